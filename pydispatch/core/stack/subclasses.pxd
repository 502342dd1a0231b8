# Subclasses of Tensor that handle calls themselves.

cdef class WrapperTensor(Tensor):       # around another Tensor, for subclasses with a handler
    cdef object inner

cdef str HANDLER    # the name of the method that handles calls
cdef int set_base_handler(handler) except -1    # set the handler of Tensor

cdef bint has_handler(PyTypeObject* cls) noexcept
cdef tuple stripped_positionals(Signature signature, Frame* frame)
cdef dict stripped_keywords(Signature signature, Frame* frame)
cdef tuple types_in(Signature signature, Frame* frame)
cdef object finish_handled(OpOverload op, Signature signature, Frame* frame, handler, result)
cdef object call_handler(PyObject* owner, op, tuple types, tuple args, dict kwargs)
cdef long long writes_to_mutable(Signature signature, Frame* frame) except -2
cdef int count_unseen_write(Signature signature, Frame* frame, long long writes) except -1
cdef bint is_handled(Tensor tensor) noexcept
cdef object number_of(Tensor tensor)
cdef object number_for(kind, Tensor tensor)    # return the same for a conversion that does not take an array with axes
