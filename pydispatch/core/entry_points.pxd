# What the entry points of transforms share.

cdef str PACKAGE_FOLDER    # where the sources of the package are
cdef object not_flat    # what an entry point returns for a call that Python has to take

cdef tuple simple_positions(argnums, tuple args)    # the arguments that `argnums` names, where these are arrays
# find the edge of a value of this interpreter again, after a write to its memory
cdef int refresh_if_owned(Tensor tensor, Interpreter interpreter) except -1
cdef bint is_inexact_value(value) except -1    # is this an array of floats or complex numbers?
cdef bint is_real_scalar(Tensor tensor) except -1    # does this hold one real number?
# what a transformed function returned: the value itself in place of a wrapper of a transform that no longer runs
cpdef unwrap_dead_result(value)
cdef bint are_arrays_alone(tuple args) except -1    # is every argument an array?
# a value of the interpreter below as a transform gives it: `as_tensors` where a Tensor was passed
cdef object handed_out(value, bint as_tensors, args, bint of_raw)
cdef bint has_tensor(tuple args) noexcept    # is a Tensor among these?
