# The engine: the backward pass over the tape.

cdef class BackwardPass:                     # one backward pass
    cdef readonly bint create_graph
    cdef bint keep_graph
    cdef bint prune                 # whether only the gradients of some edges are wanted
    cdef bint stops                 # whether the graph ends at the inputs, whose hooks do not run
    cdef readonly Interpreter interpreter
    cdef Interpreter around         # the innermost interpreter of the stack while the formulas run
    cdef readonly uint64_t number   # marks nodes as seen, and the next number marks them as needed
    cdef dict captures              # (address of a node, index) -> position in `captured`
    cdef list captured
    cdef list repeated              # positions in `captured` that are copied from others: (position, from)
    cdef PyObject** needed          # the needed nodes: they lead to a wanted edge
    cdef Py_ssize_t n_needed, needed_capacity
    cdef set frozen                 # the addresses of the needed nodes, once another pass has overwritten the marks
    cdef bint unmarked              # whether another pass has overwritten the marks
    cdef public object node         # the node whose formula runs, if hooks or anomaly mode have to know
    cdef BackwardPass others                 # the passes that were running when this one began
    cdef int checks
    cdef bint anomaly
    cdef bint runs_fused
    cdef object tracer
    cdef bint on_tensors            # whether raw arrays are wrapped, so that all computations call operators
    cdef Queue queue
    cdef Queue marks                # without the GIL, the marks of nodes, by the field `sequence`: passes share nodes
    cdef Py_ssize_t ready           # the first leaf that has all its gradients, in a chain through `next_ready`
    cdef list keep_alive            # the owners of the addresses above
    cdef object __weakref__

cdef list run_pass(
    tuple roots, tuple gradients, bint create_graph, bint keep_graph, tuple inputs, Interpreter interpreter,
    bint runs_inputs, bint stops=*,
)
cdef bint is_own(PyObject* value, Py_ssize_t holders) noexcept
cdef object sum_of_two(left, right)
