# Writes in place, and views, on the tape.

cdef str MADE_BY_FUNCTION    # a reason why a view must not be written to

cdef int refuse_scalars(Signature signature, Frame* frame) except -1
cdef list copies_before_write(
     Derivative derivative, Signature signature, Frame* frame, uint64_t tracked, Interpreter interpreter
)
cdef tuple values_before_write(Signature signature, Frame* frame, Interpreter interpreter)
cdef int refuse_constant_write( op, Signature signature, Frame* frame, uint64_t tracked,
                               Interpreter interpreter ) except -1
cdef int check_writes(op, Signature signature, Frame* frame, State state, Interpreter interpreter,
                      uint64_t tracked) except -1
cdef int mark_inference(Signature signature, result) except -1
cdef int mark_constant_views(Frame* frame, Signature signature, result, Interpreter interpreter) except -1
cdef int inherit_creation(Tensor view, Signature signature, Frame* frame) except -1
cdef int refresh(Tensor tensor) except -1
cdef bint is_fresh(Tensor tensor) noexcept
cdef bint is_whole(PyObject* array, Memory memory) except -1
cdef int rebase(Tensor tensor, TapeNode node) except -1
cdef object copy_before_write(value, Interpreter interpreter)    # return a copy with the same edge
# count a write to the memory of a Tensor, by a call or, with None and NULL, by something else
cdef int bump_version(Tensor tensor, Signature signature, Frame* frame) except -1
