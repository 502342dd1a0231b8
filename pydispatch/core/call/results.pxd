# Results of kernels: checked and wrapped.

# return True on the fast check: for one ndarray and arguments that are ndarrays and numbers
cdef bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept
# raise if a result shares memory with an array argument or another result, and the schema does not declare it
cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1
cdef object unwrap_value(value)
cdef object finish(OpOverload op, Signature signature, TableEntry entry, Frame* frame, result)
cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out)
cdef bint is_scalar_result(Signature signature, Frame* frame, Tensor tensor) except -1
cpdef to_scalar(value)
cdef int mark_or_share(Signature signature, Frame* frame, Py_ssize_t i, Tensor tensor) except -1
cdef tuple arguments_of(Frame* frame, Signature signature)
