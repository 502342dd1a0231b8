# Writes in place and views, on the tape.

cdef str MADE_BY_FUNCTION    # why a view must not be written to
cdef str ONE_OF_SEVERAL

# count the writes of one call to the arguments that its schema says are written to
cdef int bump_versions(Signature signature, Frame* frame) except -1
# copies of the arguments that a formula asks for and that the call is about to overwrite, by position
cdef list copies_before_write(
     Derivative derivative, Signature signature, Frame* frame, uint64_t tracked, Interpreter interpreter
)
# one value per argument, for the functions of users: copies of what the call is about to overwrite
cdef tuple values_before_write(Signature signature, Frame* frame, Interpreter interpreter)
# an operator without a gradient must not overwrite what has one: the old gradient would go on being used
cdef int refuse_constant_write( op, Signature signature, Frame* frame, uint64_t tracked,
                               Interpreter interpreter ) except -1
# refuse, before anything is written, what would lose a gradient
cdef int check_writes(op, Signature signature, Frame* frame, State state, Interpreter interpreter,
                      uint64_t tracked) except -1
# what is made in inference mode is never to be differentiated
cdef int mark_inference(Signature signature, result) except -1
# a view that was made without the tape stays a constant, though its memory may be written to later
cdef int mark_constant_views(Frame* frame, Signature signature, result, Interpreter interpreter) except -1
# a view of a view that must not be written to must not be written to either
cdef int inherit_creation(Tensor view, Signature signature, Frame* frame) except -1
# where the memory was written to through another of its views, find out where the gradient goes now
cdef int refresh(Tensor tensor) except -1
# has the memory not been written to, on the tape, since it was found out where the gradient goes?
cdef bint is_fresh(Tensor tensor) noexcept
cdef bint is_whole(PyObject* array, Memory memory) except -1    # is this array all of the memory, in the same order?
# a Tensor was written to in place by the call of `node`: its gradient goes there, and that of its memory too
cdef int rebase(Tensor tensor, TapeNode node) except -1
