# Pytrees: taken apart into leaves, and put together again.

cdef object array_leaves(value)    # the arrays in a value, depth first: itself, or those in a pytree
# the Tensors in a Tensor, or a tuple of Tensors and None, that is nested as `spec` says; None for anything else
cdef object leaves_of_flat(value, spec)
# append the leaves of a pytree that is nested as `spec` says; False where it is not
cdef bint take_leaves(value, spec, list leaves) except -1
