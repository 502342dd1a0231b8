# Shapes and dtypes: compared, checked, and brought to one another.

cdef tuple checked_shape(shape)    # a shape as a tuple of ints
cdef int check_rank(Py_ssize_t rank) except -1    # a number of axes that an array can have
cdef object number_of_elements(tuple shape)    # the product of the extents, an int of any size
cdef tuple strides_in_order(tuple shape, itemsize)    # the strides of an array in C order
cdef bint is_inexact(PyObject* array) except -1    # does the array hold floating-point or complex numbers?
cdef bint is_complex(PyObject* array) except -1    # has this a complex dtype?
cdef bint same_shape(PyObject* left, PyObject* right) except -1    # have both arrays the same shape?
cdef object shape_of(PyObject* array)    # of an array, or of what is like one
cdef object dtype_of(PyObject* array)    # of an array, or of what is like one
cdef bint same_dtype(PyObject* left, PyObject* right) except -1    # have both arrays the same dtype?
cdef object bring_to(gradient, target)    # the gradient with the shape and dtype of what it is the gradient of
# a view of the same memory with other dimensions
cdef object view_with(PyArrayObject* array, int ndim, cnp.npy_intp* dims, cnp.npy_intp* strides)
# the number of axes of a shape, an int or a list or tuple of ints; -1 for what NumPy is to read
cdef int read_shape(PyObject* value, cnp.npy_intp* extents) noexcept
# the number of a type of numbers as NumPy has it by itself, or that a type of Python's stands for; else -1
cdef int number_of_dtype(PyObject* dtype) noexcept
cdef int type_of_python(PyObject* value) noexcept    # the number of the dtype that this type stands for, or -1
cdef bint is_in_c_order(PyArrayObject* array) noexcept    # has every axis the stride of C order, and elements?
