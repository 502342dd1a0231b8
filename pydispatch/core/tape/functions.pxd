# Calls that users' functions differentiate: of `Function` and of custom operators.

cdef class Context:                     # what one call of a Function or custom operator keeps for its backward
    cdef dict __dict__
    cdef object __weakref__
    cdef readonly tuple needs_input_grad
    cdef public bint materialize
    cdef public tuple dirty
    cdef public tuple non_differentiable
    cdef Interpreter interpreter
    cdef tuple to_save
    cdef tuple for_forward
    cdef tuple saved                    # residuals, Tensors as `SavedTensor`, and in `indices` their outputs, or -1
    cdef tuple indices
    cdef tuple depends_on
    cdef object node                    # a weak reference
    cdef public object _recorded        # a graph that backward runs over, released with the residuals
    cdef readonly bint _keeps_graph     # whether the running pass keeps the residuals for another pass
    cdef bint released
    cdef bint as_saved                  # whether residuals are returned as saved, or as values of the interpreter below
    cdef readonly object substitute     # the substitution of the call, also for the user's functions later, or None

cdef bint is_flat(tuple values) except -1
cdef int record_custom(OpOverload op, derivative, tuple values, output, Interpreter interpreter) except -1
cdef int release_custom(CustomNode node) except -1
cdef list apply_custom(CustomNode node, gradients, bint create_graph, bint keep_graph)
