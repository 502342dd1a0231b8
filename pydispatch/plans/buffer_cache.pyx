# A cache of buffers for large results.
#
# The operating system provides pages one by one, when they are first written to, and reclaims large pieces as soon as
# they are free. A plan whose loops take a millisecond would wait as long again for pages. The arrays that plans return
# therefore have a separate memory handler (NEP 49), which keeps the memory that was freed last, up to a bound.
# Everything here runs with the GIL held, as NumPy calls its handlers.

cdef extern from "plans/src/buffer_cache.h":
    object kept_handler_capsule()
    void drop_kept_pieces(size_t at_most) noexcept
    size_t kept_bytes

cdef extern from "numpy/arrayobject.h":
    object PyDataMem_SetHandler(object handler)

cdef object buffer_cache_handler = kept_handler_capsule()


cdef object begin_buffer_cache():
    return PyDataMem_SetHandler(buffer_cache_handler)


cdef int end_buffer_cache(before) except -1:
    PyDataMem_SetHandler(before)
    return 0


def clear_buffer_cache():
    """Free the memory that is kept for results. Return its number of bytes."""
    cdef size_t found = kept_bytes
    drop_kept_pieces(0)
    return found
