# Memory of large results, which is used again once they are gone.

cdef extern from *:
    const size_t SMALLEST_KEPT      # bytes: the smallest piece that is worth it

# have arrays that are made from here on such memory: what to pass to `end_kept_memory`, at once after they are made
cdef object begin_kept_memory()
cdef int end_kept_memory(before) except -1
