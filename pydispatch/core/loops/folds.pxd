# Reductions of small arrays, along any axes.

cdef struct Fold:
    Loop loop
    int initial                         # the initial value of the result: FIRST, 0 or 1

cdef enum:
    FIRST = -1              # the first of the elements that are reduced

cdef PyObject* mean_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL

cdef class Reduction:
    cdef vectorcallfunc vectorcall
    cdef object reduce
    cdef bint adds
    cdef Fold fold
    cdef readonly str __name__
cdef Reduction add_reduce
