# Functions that the entry points of transforms share.

cdef object not_flat    # returned by an entry point for a call that Python has to serve

cdef tuple simple_positions(argnums, tuple args)
# find the edge of a value of this interpreter again, after a write to its memory
cdef int refresh_if_owned(Tensor tensor, Interpreter interpreter) except -1
cdef bint is_inexact_value(value) except -1    # return whether an array or Tensor holds floats or complex numbers
cdef bint is_real_scalar(Tensor tensor) except -1    # return whether a Tensor holds one real number
cpdef unwrap_dead_result(value)
cdef bint are_arrays_alone(tuple args) except -1
cdef object handed_out(value, bint as_tensors, args, bint of_raw)
cdef bint has_tensor(tuple args) noexcept    # return whether a Tensor is among these
