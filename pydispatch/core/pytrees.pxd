# Containers: taken apart into leaves, and put together again.

cdef object array_leaves(value)    # the arrays in a value, depth first: itself, or those in a container
# append the leaves of a container that is nested as `spec` says; False where it is not
cdef bint take_leaves(value, spec, list leaves) except -1
