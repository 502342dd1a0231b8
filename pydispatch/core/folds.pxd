# Loops that reduce small arrays, along any axes.

cdef struct Fold:
    Loop loop
    int initial                         # what the result begins with: FIRST, 0 or 1

cdef enum:
    FIRST = -1              # the first of the elements that are reduced

cdef int find_fold(Fold* fold, ufunc) except -1
# what a reduction gives for the arguments of a call
cdef PyObject* fold_as_called(Fold* fold, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL
cdef PyObject* mean_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL
