# Reductions of small arrays, along any axes.

cdef struct Fold:
    Loop loop
    int initial                         # the initial value of the result: FIRST, 0 or 1

cdef enum:
    FIRST = -1              # the first of the elements that are reduced

cdef int find_fold(Fold* fold, ufunc) except -1
# return the result of a reduction for the arguments of a call, or NULL if NumPy has to serve it
cdef PyObject* fold_as_called(Fold* fold, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL
cdef PyObject* mean_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL
