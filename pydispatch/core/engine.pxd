# The engine: the backward pass over the tape.

cdef class BackwardPass:                     # one backward pass
    cdef readonly bint create_graph
    cdef bint keep_graph
    cdef bint prune                 # are gradients wanted for some edges only?
    cdef bint stops                 # does nothing go beyond the inputs, whose hooks do not run?
    cdef readonly Interpreter interpreter
    cdef Interpreter around         # the innermost one of the stack while the formulas run
    cdef readonly uint64_t number   # marks the nodes that it has seen
    cdef dict captures              # (address of a node, index) -> position in `captured`
    cdef list captured
    cdef list repeated              # positions in `captured` that are filled from others: (position, from)
    cdef PyObject** needed          # the nodes on the way
    cdef Py_ssize_t n_needed, needed_capacity
    cdef set frozen                 # the addresses of these, once another pass has written over the marks
    cdef bint unmarked              # have others written over the marks?
    cdef public object node         # the node whose formula runs, where hooks or anomaly mode have to know
    cdef BackwardPass others                 # the runs that were going on when this one began
    cdef bint checks_nan, anomaly
    cdef bint runs_fused
    cdef object tracer
    cdef bint on_tensors            # are raw arrays wrapped, so that operators are called for all that is computed?
    cdef Queue queue
    cdef Py_ssize_t ready           # the leaves that have all their gradients: a chain through `next_ready`
    cdef list keep_alive            # what the addresses above belong to
    cdef object __weakref__

# `run_backward`, for callers in Cython
cdef list run_pass(
    tuple roots, tuple gradients, bint create_graph, bint keep_graph, tuple inputs, Interpreter interpreter,
    bint runs_inputs, bint stops=*,
)
# do so many references keep all there is of an array, down to the memory?
cdef bint is_own(PyObject* value, Py_ssize_t holders) noexcept
