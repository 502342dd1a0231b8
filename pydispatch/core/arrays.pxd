# Array types: NumPy's, those that a backend registers, and arrays without data.

cdef class MetaArray:                   # an array without data
    cdef readonly tuple shape
    cdef readonly object dtype
    cdef object owner                   # the array that owns the memory, of a view
    cdef tuple steps                    # the strides; None: those of C order
    cdef object __weakref__

cdef class Shell(MetaArray):            # what a wrapper without memory holds
    cdef uint64_t keys                  # of the backend that it pretends to be of
    cdef public bint fake               # is it a FakeTensor's? Errors say so

cdef bint is_tensor_type(PyTypeObject* cls) noexcept    # is this Tensor or a subclass?
cdef bint is_scalar_type(PyTypeObject* cls) noexcept    # is this the type of one of Python's or NumPy's numbers?
cdef uint64_t word_of_array(PyObject* value) except? 1    # the word of one array
# is this a raw array of another backend than NumPy's, whose methods are not those of Tensors?
cdef bint is_of_other_backend(PyObject* value) except -1
cdef object as_operand_of_formula(value)    # such an array as a Tensor, anything else as it is
cdef object raw_array(Tensor tensor)    # the array of the lowest interpreter
# shape, dtype, strides and backend of an array or Tensor
cdef int take_outline(Shell shell, PyObject* array) except -1
