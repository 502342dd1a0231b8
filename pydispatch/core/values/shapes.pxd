# Shapes, dtypes and keys: comparisons, checks and conversions.

cdef tuple checked_shape(shape)    # return a shape as a tuple of ints
# raise ValueError for an array that no memory could hold
cdef int check_bytes(tuple shape, Py_ssize_t itemsize) except -1
cdef int check_rank(Py_ssize_t rank) except -1    # raise ValueError for more axes than an array can have
cdef object number_of_elements(tuple shape)    # return the product of the extents, an int of any size
cdef tuple strides_in_order(tuple shape, itemsize)    # return the strides of an array in C order
# return whether an array has floating-point or complex numbers
cdef bint is_inexact(PyObject* array) except -1
cdef bint is_complex(PyObject* array) except -1    # return whether an array has a complex dtype
# return whether two arrays have the same shape
cdef bint same_shape(PyObject* left, PyObject* right) except -1
cdef object shape_of(PyObject* array)    # return the shape of an array or array-like object
cdef object dtype_of(PyObject* array)    # return NumPy's dtype for an array or array-like object
# return whether two arrays have the same dtype
cdef bint same_dtype(PyObject* left, PyObject* right) except -1
cdef object bring_to(gradient, target)    # return a gradient with the shape and dtype in `target`
# return a view of the same memory with other dimensions
cdef object view_with(PyArrayObject* array, int ndim, cnp.npy_intp* dims, cnp.npy_intp* strides)
# return the number of axes of a shape, an int or a list or tuple of ints, or -1 if NumPy has to read it
cdef int read_shape(PyObject* value, cnp.npy_intp* extents) noexcept
# return whether every axis has the stride of C order, and there are elements
cdef bint is_in_c_order(PyArrayObject* array) noexcept
cdef bint is_basic_key(key) except -1    # return whether a key is basic indexing in NumPy
cdef bint is_basic_key_item(item) except -1    # return whether an item of a key is basic indexing
cdef bint is_basic_item(PyObject* item) noexcept    # the fast check for that
cdef bint are_ints(PyObject* values) noexcept    # return whether all items of a tuple are plain ints
# return the number of axes that an array or number has at its interpreter
cdef Py_ssize_t rank_of(PyObject* value) except -1
