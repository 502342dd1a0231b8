# Calls of compiled graphs, guarded by what was traced.

cdef class GuardedCall:
    cdef vectorcallfunc vectorcall
    cdef readonly object fast, general
    cdef readonly tuple expected
