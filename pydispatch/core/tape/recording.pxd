# Recording: calls become nodes of the tape.

# run a call at the lowest interpreter: run the kernel, and record a node if an argument is tracked
cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# update the edges of arguments whose memory was written to
cdef int refresh_arguments(Frame* frame, Signature signature) except -1
cdef object call_and_record(
    OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter, CallKind kind)
cdef object compiled_derivative_of(OpOverload op, Table table)
cdef bint loses_gradient(OpOverload op, Table table, Frame* frame) except -1
# return whether a value is tracked at this interpreter
cdef bint tracked_at(PyObject* value, Interpreter interpreter) noexcept
cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter interpreter) except? 1
cdef bint hooks_apply(State state) noexcept    # return whether hooks pack residuals in this state
cdef object described(value, int kind)
cdef object unpack(TapeNode node, Py_ssize_t index, bint create_graph)
cpdef keep_for_later(value)
cdef object alias_by_handler(Tensor tensor)
cdef void release_saved(TapeNode node) noexcept
cdef int refuse_objects(name, PyObject* result, Interpreter interpreter) except -1
cdef PyTypeObject* DERIVATIVE_TYPE    # the type's address, for comparison

cdef int refuse_number(OpOverload op, Signature signature, Frame* frame, result) except -1

cdef int put_residual(TapeNode node, Py_ssize_t index, value) except -1    # store a residual
cdef object residual_at(TapeNode node, Py_ssize_t index)    # return a residual as it is stored
cdef Py_ssize_t residual_for_result(TapeNode node) except -2
cdef object guarded(value)
