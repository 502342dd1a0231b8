# Shapes, dtypes and keys: comparisons, checks and conversions.

cdef tuple checked_shape(shape)
cdef int check_bytes(tuple shape, Py_ssize_t itemsize) except -1
cdef int check_rank(Py_ssize_t rank) except -1
cdef object number_of_elements(tuple shape)    # return the product of the extents, an int of any size
cdef tuple strides_in_order(tuple shape, itemsize)
cdef bint is_inexact(PyObject* array) except -1
cdef bint is_complex(PyObject* array) except -1    # return whether an array has a complex dtype
# return whether two arrays have the same shape
cdef bint same_shape(PyObject* left, PyObject* right) except -1
cdef object shape_of(PyObject* array)    # return the shape of an array or array-like object
cdef object dtype_of(PyObject* array)    # return NumPy's dtype for an array or array-like object
# return whether two arrays have the same dtype
cdef bint same_dtype(PyObject* left, PyObject* right) except -1
cdef object bring_to(gradient, target)
cdef object view_with(PyArrayObject* array, int ndim, cnp.npy_intp* dims, cnp.npy_intp* strides)
cdef int read_shape(PyObject* value, cnp.npy_intp* extents) noexcept
cdef bint is_in_c_order(PyArrayObject* array) noexcept
cdef bint is_basic_key(key) except -1
cdef bint is_basic_key_item(item) except -1    # return whether an item of a key is basic indexing
cdef bint is_basic_item(PyObject* item) noexcept
cdef bint are_ints(PyObject* values) noexcept    # return whether all items of a tuple are plain ints
cdef Py_ssize_t rank_of(PyObject* value) except -1
