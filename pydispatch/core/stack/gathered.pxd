# Rows that are read at an unknown index: copies where NumPy has views.

cdef class Gathered:
    cdef Tensor source              # the array that was read
    cdef object key                 # the key that it was read with, which has unknown indices
    cdef Tensor whole               # the copy
    cdef long long version          # the version counter of the array when the copy was made
    cdef bint is_writing            # whether a write to the copy is running

# make writes to the result of a key with index arrays also write to the array, if NumPy's result would be a view
cdef object stand_for_view(Tensor source, key, result)
# run a call that writes to such copies, or to views of them, and write to the arrays they came from as well
cdef object call_writing_back(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
