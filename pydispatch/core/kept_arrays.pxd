# Small arrays of float64 that are used again when they are no longer held.

# a new array of numbers that are yet to be written
cdef PyObject* new_array_of_double(int ndim, cnp.npy_intp* extents) except NULL
cdef void let_go(PyObject* value) noexcept      # give up a reference, to anything
