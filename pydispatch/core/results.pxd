# Results of kernels: checked and wrapped.

# the quick yes, for one ndarray and arguments that are ndarrays and numbers
cdef bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept
# raise for a result that shares memory with an array argument, or with another result, undeclared
cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1
cdef object unwrap_value(value)    # the value with raw arrays in place of Tensors, inside pytrees too
cdef object finish(OpOverload op, Signature signature, TableEntry entry, Frame* frame, result)    # step 7
# step 7 in general
cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out)
# a result that is a view counts its writes with its base
cdef int share_with_base(Signature signature, Frame* frame, Py_ssize_t i, Tensor view) except -1
cdef tuple arguments_of(Frame* frame, Signature signature)    # (name, value) of what was passed, for messages
