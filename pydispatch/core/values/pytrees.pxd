# Pytrees: flattened into leaves, and rebuilt from them.

cdef object array_leaves(value)
# return the Tensors in a value with the structure of `spec`: a Tensor, or a tuple of Tensors and None. Return None for
# other values
cdef object leaves_of_flat(value, spec)
# append the leaves of a pytree with the structure of `spec`. Return False if it has another structure
cdef bint add_leaves(value, spec, list leaves) except -1
