# Array types: NumPy's, those that a backend registers, and arrays without data.

cdef class MetaArray:                   # an array without data
    cdef readonly tuple shape
    cdef readonly object dtype
    cdef object owner                   # the array that owns the memory of this view, or None for an owner
    cdef tuple steps                    # the strides, or None for those of C order
    cdef object __weakref__

cdef class Shell(MetaArray):            # the metadata that a wrapper without memory holds instead of an array
    cdef uint64_t keys                  # of the backend that it pretends to be on
    cdef public bint fake               # whether it belongs to a FakeTensor, for error messages

cdef enum:
    N_KNOWN_TYPES = 64

cdef struct KnownType:                  # a registered array type of a run-time backend, readable without Python
    PyTypeObject* cls
    uint64_t word
    bint owns_itself                    # whether its objects can have no attribute `base`
    bint is_ndarray                     # whether it is a subclass of `numpy.ndarray`

# return the cache entry of a type, or NULL if it has none at present: call `word_of_type` then
cdef KnownType* known_type(PyTypeObject* cls) noexcept
cdef bint is_tensor_type(PyTypeObject* cls) noexcept    # return whether a type is Tensor or a subclass
cdef bint is_scalar_type(PyTypeObject* cls) noexcept    # return whether a type is that of a Python number
cdef uint64_t word_of_array(PyObject* value) except? 1
cdef bint is_of_other_backend(PyObject* value) except -1
cdef bint is_numpy_matrix(PyObject* value) noexcept
cdef int refuse_matrix(PyObject* value) except -1
cdef object as_operand_of_formula(value)
cdef object as_plain_array(value)
cdef object raw_array(Tensor tensor)    # return the array below all wrappers
cdef int copy_metadata(Shell shell, PyObject* array) except -1
