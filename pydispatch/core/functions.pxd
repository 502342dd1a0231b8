# Calls that functions of users differentiate: `Function` and custom operators.

cdef class Context:                     # of one call of a Function or custom operator, for the user
    cdef dict __dict__
    cdef object __weakref__
    cdef readonly tuple needs_input_grad
    cdef public bint materialize
    cdef public tuple dirty
    cdef public tuple non_differentiable
    cdef Interpreter interpreter
    cdef tuple to_save
    cdef tuple for_forward
    cdef tuple saved                    # values, how often each had been written to, which output it is or -1
    cdef tuple writes
    cdef tuple indices
    cdef tuple depends_on
    cdef object node                    # a weak reference
    cdef public object _recorded        # a graph that backward goes over, let go of with what is saved
    cdef readonly bint _keeps_graph     # is what was saved kept for another time, by the run that is going on?
    cdef bint released
    cdef bint as_saved                  # do residuals come back as they are, or as those of the interpreter below?
    cdef readonly object substitute     # that of the call, which holds for the user's functions later, too; or None

cdef bint is_flat(tuple values) except -1    # is no value a pytree?
cdef tuple tuple_of(PyObject* const* values, Py_ssize_t n)    # the first n of these, held
# a node for a call that was run: let its user's function save, and attach the results
cdef int record_custom(OpOverload op, derivative, tuple values, output, Interpreter interpreter) except -1
cdef int release_custom(CustomNode node) except -1    # let go of what the user's function saved
# the gradients of a node, one per edge, by its user's backward function
cdef list apply_custom(CustomNode node, gradients, bint create_graph, bint keep_graph)
