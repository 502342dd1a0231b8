# Recording: a call becomes a node.

# the lowest interpreter: kernels run here, and the tape takes down what is tracked
cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
cdef int refresh_arguments(Frame* frame, Signature signature) except -1    # find the edges of written arguments again
# run a call below this interpreter, and take it down where something tracked takes part
cdef object call_and_record(
    OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter, CallKind kind)
# how an operator is differentiated: a Derivative, a CustomDerivative, or None when its results never are
cdef object compiled_derivative_of(OpOverload op, Table table)
# would a constant in place of the result end the gradient of an argument, as far as is known?
cdef bint loses_gradient(OpOverload op, Table table, Frame* frame) except -1
# formulas are found by the position of their argument
cdef int check_formulas(derivative, Signature signature) except -1
cdef bint owned_by(PyObject* value, Interpreter interpreter) noexcept    # is this a Tensor of the interpreter
cdef bint tracked_at(PyObject* value, Interpreter interpreter) noexcept    # is this tracked at this interpreter?
# the arguments, one bit each, that are tracked at this interpreter or hold something that is
cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter interpreter) except? 1
cdef bint hooks_apply(State state) noexcept    # do hooks pack what is saved here?
# the value of an argument, by default its default
cdef PyObject* value_or_default(Frame* frame, Signature signature, Py_ssize_t i) except NULL
cdef object described(value, int kind)    # shape or dtype of an argument, of each element of a list
# a residual, checked: as values of the interpreter below, or of this interpreter to be recorded again
cdef object unpack(TapeNode node, Py_ssize_t index, bint create_graph)
# another object for what a Tensor with a handler holds: what its class makes of `detach`
cdef object alias_by_handler(Tensor tensor)
# the value of the interpreter below, for values of this interpreter
cdef object below(value, Interpreter interpreter)
cdef tuple all_below(values, Interpreter interpreter)    # the same for each of a sequence
# let go of what was saved, so that memory is given back while a backward pass goes on
cdef void release_saved(TapeNode node) noexcept
cdef PyTypeObject* DERIVATIVE_TYPE    # addresses of types, to compare with
cdef PyTypeObject* GRAD_INTERPRETER_TYPE

# a fast path for recording: a library operator with fresh results, on the tape or in the innermost `grad`
cdef bint recording_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                              PyObject** result) except -1
