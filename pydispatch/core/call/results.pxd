# Results of kernels: checked and wrapped.

# return True on the fast check: for one ndarray and arguments that are ndarrays and numbers
cdef bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept
# raise if a result shares memory with an array argument or another result, and the schema does not declare it
cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1
# return the value with raw arrays instead of Tensors, also inside pytrees
cdef object unwrap_value(value)
# check and wrap the result of a kernel: step 7
cdef object finish(OpOverload op, Signature signature, TableEntry entry, Frame* frame, result)
# apply step 7 in general
cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out)
# return whether NumPy would return a scalar
cdef bint is_scalar_result(Signature signature, Frame* frame, Tensor tensor) except -1
cpdef to_scalar(value)    # return a value without axes as a scalar
# mark a new result that NumPy would return as a scalar. Let any other view share the memory of its base
cdef int mark_or_share(Signature signature, Frame* frame, Py_ssize_t i, Tensor tensor) except -1
# return (name, value) of the arguments that were passed, for messages
cdef tuple arguments_of(Frame* frame, Signature signature)
