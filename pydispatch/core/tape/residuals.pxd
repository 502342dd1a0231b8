# Residuals, which are copied before they are overwritten, so that gradients survive writes.

cdef extern from "core/src/residuals.h":
    # lock while reading or changing the residuals of a memory, which threads may share
    void lock_listing() noexcept
    void unlock_listing() noexcept
    unsigned int count_up(unsigned int* number) noexcept        # the counters return the new number
    unsigned int count_down(unsigned int* number) noexcept

cdef class KeptCopy:                    # a copy of one Tensor, made before a write
    cdef object value                   # None if the write was noticed too late
    cdef uint64_t time                  # of the write
    cdef unsigned int saves             # the number of nodes that need it
    cdef bint is_whole                  # whether these nodes need none of the values below the Tensor

cdef class SavedTensor:
    cdef Tensor tensor
    cdef uint64_t time

# count one more node that has saved a Tensor
cdef int note_saved(Tensor tensor) except -1
cdef int note_all_saved(value) except -1    # apply `note_saved` to the Tensors in a value
# list the residuals of a memory before the first write to it or the first sharing of it
cdef int start_listing(Tensor tensor) except -1
# count down the saves of a Tensor that a node of this time no longer needs
cdef void unsave(Tensor tensor, uint64_t time) noexcept
cdef int replace_array(Tensor tensor, value) except -1    # replace the value below of a Tensor
# return the Tensor, or the copy that a node of this time needs
cdef object value_when_saved(Tensor tensor, uint64_t time)
# copy the residuals over the memory of a Tensor before a call, or with None something else, overwrites them
cdef int before_write(Tensor target, Signature signature, Frame* frame) except -1
cdef int note_late_write(Tensor target) except -1    # mark as lost the residuals that were overwritten without a copy
# save a Tensor's present value, whatever is written to it later
cdef SavedTensor saved_tensor(Tensor tensor)
cdef object alike(Tensor tensor, value)    # return a Tensor around another value with the same edge
cdef Tensor with_edge_of(Tensor tensor, Tensor other)    # return `other` with the edge of `tensor`
