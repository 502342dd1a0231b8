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
    cdef public object place            # what equals that of another view of the same elements; None: unknown

cdef enum:
    N_KNOWN_TYPES = 64

cdef struct KnownType:                  # a type of arrays that a run-time backend registered, as far as calls ask
    PyTypeObject* cls
    uint64_t word
    bint owns_itself                    # can its objects have no attribute `base`?

# where the type is noted; NULL: not now, so `word_of_type` has to be asked
cdef KnownType* known_type(PyTypeObject* cls) noexcept
cdef bint is_tensor_type(PyTypeObject* cls) noexcept    # is this Tensor or a subclass?
cdef bint is_scalar_type(PyTypeObject* cls) noexcept    # is this the type of one of Python's or NumPy's numbers?
cdef uint64_t word_of_array(PyObject* value) except? 1    # the word of one array
# is this a raw array of another backend than NumPy's, whose methods are not those of Tensors?
cdef bint is_of_other_backend(PyObject* value) except -1
cdef object as_operand_of_formula(value)    # such an array as a Tensor, anything else as it is
cdef object raw_array(Tensor tensor)    # the array of the lowest interpreter
# shape, dtype, strides and backend of an array or Tensor
cdef int take_metadata(Shell shell, PyObject* array) except -1
