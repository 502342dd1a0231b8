# The engine: the backward pass over the tape.

cdef class BackwardPass:                     # one backward pass
    cdef readonly bint create_graph
    cdef bint keep_graph, prune
    cdef bint stops                 # does nothing go beyond the inputs, whose hooks do not run?
    cdef readonly Interpreter level
    cdef Interpreter around         # the innermost entry of the stack while the formulas run
    cdef readonly uint64_t number
    cdef dict captures
    cdef list captured
    cdef list repeated              # positions in `captured` that are filled from others: (position, from)
    cdef PyObject** needed          # the nodes on the way
    cdef Py_ssize_t n_needed, needed_capacity
    cdef set frozen
    cdef bint unmarked              # have others written over the marks?
    cdef public object node         # the node whose formula runs, where hooks or anomaly mode have to know
    cdef BackwardPass others                 # the runs that were going on when this one began
    cdef bint checks_nan, anomaly
    cdef bint runs_fused
    cdef bint on_tensors            # are raw arrays wrapped, so that operators are called for all that is computed?
    cdef Queue queue
    cdef Py_ssize_t ready           # the leaves that have all their gradients: a chain through `next_ready`
    cdef list keep_alive
    cdef object __weakref__

# `run_backward`, for callers in Cython
cdef list run_pass(
    tuple roots, tuple gradients, bint create_graph, bint keep_graph, tuple inputs, Interpreter level,
    bint runs_inputs, bint stops=*,
)
