# A cache of buffers for large results.

cdef extern from *:
    const size_t SMALLEST_KEPT      # bytes: the smallest piece that is kept

# allocate new arrays in such memory. Pass the result to `end_buffer_cache` as soon as they are made
cdef object begin_buffer_cache()
cdef int end_buffer_cache(before) except -1
