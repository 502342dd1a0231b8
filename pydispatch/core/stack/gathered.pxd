# Rows that are read at an unknown index: copies where NumPy has views.

cdef class Gathered:
    cdef Tensor source              # the array that was read
    cdef object key                 # the key that it was read with, which has unknown indices
    cdef Tensor whole               # the copy
    cdef long long version          # the version counter of the array when the copy was made
    cdef bint is_writing            # whether a write to the copy is running

cdef object stand_for_view(Tensor source, key, result)
cdef object call_writing_back(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
