# A free list of small arrays of float64.

# return a new array of numbers that are yet to be written
cdef PyObject* new_array_of_double(int ndim, cnp.npy_intp* extents) except NULL
cdef void release_reference(PyObject* value) noexcept      # release a reference to any object
