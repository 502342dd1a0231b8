# Recording: a call becomes a node.

# the lowest level: kernels run here, and the tape takes down what is tracked
cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, str how)
cdef int refresh_arguments(Frame* frame, Signature signature) except -1    # find the edges of written arguments again
# run a call below this level, and take it down where something tracked takes part
cdef object call_and_record(OpOverload op, Table table, Frame* frame, State state, Interpreter level, str how)
# how an operator is differentiated: a Derivative, a CustomDerivative, or None when its results never are
cdef object rule_of(OpOverload op, Table table)
cdef int check_formulas(rule, Signature signature) except -1    # formulas are found by the position of their argument
# steps 3 to 7 without the tape
cdef object run_below_tape(OpOverload op, Table table, Frame* frame, State state, str how)
cdef bint owned_by(PyObject* value, Interpreter level) noexcept    # is this a Tensor of the level
cdef bint tracked_at(PyObject* value, Interpreter level) noexcept    # is this tracked at this level?
# the arguments, one bit each, that are tracked at this level or hold something that is
cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter level) except? 1
# a node for one call
cdef TapeNode record(
    Derivative derivative, Signature signature, Frame* frame, PyObject* result, uint64_t tracked, Interpreter level,
    State state, list copies,
)
cdef bint hooks_apply(State state) noexcept    # do hooks pack what is saved here?
# the value of an argument, by default its default
cdef PyObject* value_or_default(Frame* frame, Signature signature, Py_ssize_t i) except NULL
cdef object described(value, int kind)    # shape or dtype of an argument, of each element of a list
# put a result into the slot for it, if its formulas need one
cdef int save_result(TapeNode node, Tensor result, State state) except -1
# what a slot holds, checked: as values of the level below, or of this level to be recorded again
cdef object unpack(TapeNode node, Py_ssize_t slot, bint create_graph)
# another object for what a Tensor with a handler holds: what its class makes of `detach`
cdef object alias_by_handler(Tensor tensor)
cdef object below(value, Interpreter level)    # the value of the level below, for values of this level
cdef tuple all_below(values, Interpreter level)    # the same for each of a sequence
# let go of what was saved, so that memory is given back while a backward pass goes on
cdef void release_saved(TapeNode node) noexcept
