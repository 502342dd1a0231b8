# Registrations: locks, and changes that take effect as a whole or not at all.

cdef class Lock:
    cdef object inner
    cdef object __weakref__
    cdef int free(self) except -1
