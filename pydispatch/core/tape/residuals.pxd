# Residuals, which are copied before they are overwritten, so that gradients survive writes.

cdef extern from "core/src/residuals.h":
    # lock while reading or changing the residuals of a memory, which threads may share
    void lock_listing() noexcept
    void unlock_listing() noexcept
    unsigned int count_up(unsigned int* number) noexcept        # the counters return the new number
    unsigned int count_down(unsigned int* number) noexcept

    PyObject** place_of_residuals(Memory memory) noexcept

cdef class KeptCopy:                    # a copy of one Tensor, made before a write
    cdef object value                   # None if the write was noticed too late
    cdef uint64_t time                  # of the write
    cdef unsigned int saves             # the number of nodes that need it
    cdef bint is_whole                  # whether these nodes need none of the values below the Tensor

cdef class SavedTensor:
    cdef Tensor tensor
    cdef uint64_t time

cdef int note_saved(Tensor tensor) except -1
cdef int note_all_saved(value) except -1
# list the residuals of a memory before the first write to it or the first sharing of it
cdef int start_listing(Tensor tensor) except -1
cdef void unsave(Tensor tensor, uint64_t time) noexcept
cdef int replace_array(Tensor tensor, value) except -1
cdef object value_when_saved(Tensor tensor, uint64_t time)
cdef int before_write(Tensor target, Signature signature, Frame* frame) except -1
cdef int note_late_write(Tensor target) except -1
cdef SavedTensor saved_tensor(Tensor tensor)
cdef object alike(Tensor tensor, value)
cdef Tensor with_edge_of(Tensor tensor, Tensor other)
# return whether the bounds of two arrays overlap
cdef bint may_share_elements(PyObject* one, PyObject* other) noexcept
