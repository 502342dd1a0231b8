# Recording: calls become nodes of the tape.

# run a call at the lowest interpreter: run the kernel, and record a node if an argument is tracked
cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# update the edges of arguments whose memory was written to
cdef int refresh_arguments(Frame* frame, Signature signature) except -1
# run a call below this interpreter. Record a node if an argument is tracked
cdef object call_and_record(
    OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter, CallKind kind)
# return how an operator is differentiated: a Derivative, a CustomDerivative, or None if its results are constants
cdef object compiled_derivative_of(OpOverload op, Table table)
# return whether a constant result would lose the gradient of an argument, as far as is known
cdef bint loses_gradient(OpOverload op, Table table, Frame* frame) except -1
# return whether a value is tracked at this interpreter
cdef bint tracked_at(PyObject* value, Interpreter interpreter) noexcept
# return the arguments, one bit each, that are tracked at this interpreter or contain such a value
cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter interpreter) except? 1
cdef bint hooks_apply(State state) noexcept    # return whether hooks pack residuals in this state
cdef object described(value, int kind)    # return the shape or dtype of an argument, or of each element of a list
# return a residual after checking it: as values of the interpreter below, or of this interpreter to be recorded again
cdef object unpack(TapeNode node, Py_ssize_t index, bint create_graph)
# copy a small raw array that nodes have saved and users may write to
cpdef keep_for_later(value)
# return another object for the value of a Tensor with a handler: the result of its class's `detach`
cdef object alias_by_handler(Tensor tensor)
# release the residuals of a node, so that a backward pass frees memory as it runs
cdef void release_saved(TapeNode node) noexcept
cdef PyTypeObject* DERIVATIVE_TYPE    # the type's address, for comparison

# raise for a Python number that an operator without a derivative returned for tracked arguments
cdef int refuse_number(OpOverload op, Signature signature, Frame* frame, result) except -1

cdef int put_residual(TapeNode node, Py_ssize_t index, value) except -1    # store a residual
cdef object residual_at(TapeNode node, Py_ssize_t index)    # return a residual as it is stored
# return the index of the residual that is the result, if a formula that will run needs it, else -1
cdef Py_ssize_t residual_for_result(TapeNode node) except -2
cdef object guarded(value)    # return the form in which raw arrays are saved: a copy, unless they cannot be written to
