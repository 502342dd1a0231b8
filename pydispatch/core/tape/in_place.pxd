# Writes in place, and views, on the tape.

cdef str MADE_BY_FUNCTION    # a reason why a view must not be written to

# raise if the call writes to a scalar
cdef int refuse_scalars(Signature signature, Frame* frame) except -1
# return, by position, copies of the arguments that a formula needs and that the call is about to overwrite
cdef list copies_before_write(
     Derivative derivative, Signature signature, Frame* frame, uint64_t tracked, Interpreter interpreter
)
# return one value per argument, for functions of users: copies of those that the call is about to overwrite
cdef tuple values_before_write(Signature signature, Frame* frame, Interpreter interpreter)
# refuse to overwrite a value that has a gradient by an operator without one: the old gradient would still be used
cdef int refuse_constant_write( op, Signature signature, Frame* frame, uint64_t tracked,
                               Interpreter interpreter ) except -1
# refuse writes that would lose a gradient, before anything is written
cdef int check_writes(op, Signature signature, Frame* frame, State state, Interpreter interpreter,
                      uint64_t tracked) except -1
# mark the results of inference mode, which are never differentiated
cdef int mark_inference(Signature signature, result) except -1
# keep a view that was made without the tape a constant, though its memory may be written to later
cdef int mark_constant_views(Frame* frame, Signature signature, result, Interpreter interpreter) except -1
# refuse later writes to a view of a view that must not be written to
cdef int inherit_creation(Tensor view, Signature signature, Frame* frame) except -1
# update the edge of a Tensor whose memory was written to through another view
cdef int refresh(Tensor tensor) except -1
# return whether no recorded write to the memory came after the edge was found
cdef bint is_fresh(Tensor tensor) noexcept
cdef bint is_whole(PyObject* array, Memory memory) except -1    # return whether an array is the whole memory, in order
# make `node`, whose call wrote to a Tensor in place, the edge of the Tensor and of its memory
cdef int rebase(Tensor tensor, TapeNode node) except -1
cdef object copy_before_write(value, Interpreter interpreter)    # return a copy with the same edge
# count a write to the memory of a Tensor, by a call or, with None and NULL, by something else
cdef int bump_version(Tensor tensor, Signature signature, Frame* frame) except -1
