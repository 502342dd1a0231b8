# Memory that views share: writes are counted there.

cdef class Memory:                      # what the views of one memory share
    cdef long long writes               # counts the in-place writes
    cdef Memory source                  # of a detached Tensor: the memory whose writes are counted
    cdef readonly object array          # once there are views: the array that all of them lie in,
    cdef object edge                    # where the gradient of the whole of it goes,
    cdef bint is_leaf                   # whether that is a leaf,
    cdef unsigned int generation        # and how often that has changed
    cdef object moves                   # the first parts of `t[i], t[j] = t[j], t[i]`; see moves.py

cdef long long writes_to(Memory memory) noexcept    # how often this memory has been written to; 0 for None
# the writes at this interpreter and, for a wrapper, those at the interpreters below
cdef long long total_version(Tensor tensor) noexcept
cdef Memory version_counter_of(Tensor tensor)    # where the writes are counted, and nothing else is known
# writes are counted together with those to `tensor`, but gradients go their own way
cdef Memory memory_of_detached(Tensor tensor)
cdef int share_memory(Tensor view, Tensor source) except -1    # make `view` one of the views of the memory of `source`
cdef int bump_version(Tensor tensor) except -1    # one more write to the memory of a Tensor
# the array at the bottom of all interpreters, which the Tensor keeps: where the value lies in memory, or would
cdef PyObject* bottom_of(Tensor tensor) except NULL
cdef object memory_owner(value)    # the object that the memory of an array of any interpreter belongs to
# the object at the end of the chain of `base`: two arrays with the same owner may share memory
cdef object owner_of(array)
cpdef address(array)    # where the first element of an array lies in memory
