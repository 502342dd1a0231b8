# Schemas in a layout for binding.

cdef enum:
    OTHER = 0           # conversion happens in Python
    ARRAY = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    STR = 5
    ANYTHING = 6
    INTS = 7            # a tuple of ints, such as shapes and axes
    ARRAYS = 8
    SCALAR = 9
    NUMPY_DTYPE = 10
    INT_OR_INTS = 11
    KIND = 15           # mask of these numbers. The flags that follow are combined with them
    OPTIONAL = 16
    WRITTEN = 32        # an array that is written to. A number is not accepted

cdef enum:              # kinds of NumPy's results without axes
    A_SCALAR = 0
    AN_ARRAY = 1
    AS_FIRST = 2            # a scalar if the first argument is one
    BY_KEY = 3              # a scalar unless the key has an Ellipsis

cdef class Signature:                   # a schema in a layout for binding
    cdef object own_schema              # None until first use, then the result of `make_schema`
    cdef object make_schema
    cdef Py_ssize_t n_arguments
    cdef readonly Py_ssize_t n_positional   # keyword-only arguments come after these
    cdef uint64_t required              # sets of arguments, one bit each
    cdef uint64_t arrays
    cdef uint64_t mutable
    cdef unsigned char kind[MAX_ARGUMENTS]
    cdef readonly tuple names
    cdef tuple single_names             # each name as a tuple, for calls with one keyword
    cdef tuple defaults
    cdef tuple sizes                    # for lists: the length to which a scalar is repeated, else 0
    cdef Py_ssize_t n_returns
    cdef bint returns_fresh_tensor      # exactly one Tensor, which shares memory with no argument: the common case
    cdef bint returns_fresh_tensors     # several such Tensors and nothing else
    cdef tuple return_is_tensor
    cdef tuple return_is_list           # per result: whether it is a list of arrays
    cdef tuple return_arrays            # per result: whether it may contain arrays
    cdef tuple return_source            # per result: the mutable argument that it is, else -1
    cdef tuple return_views             # per result: the arguments whose memory it may share
    cdef readonly Py_ssize_t device              # the argument that specifies the backend, or -1
    cdef Py_ssize_t view_of             # the argument of which the only result may be a view, else -1
    cdef int zero_d                     # whether a result without axes is a scalar or an array
    cdef bint lists                     # whether some array arguments are pytrees
    cdef bint detaches                  # whether the result is a view that has its own gradient

cdef extern from *:
    """
    #define place_of_schema(signature) (&(signature)->own_schema)
    """
    PyObject** place_of_schema(Signature signature) noexcept

cdef object schema_of(Signature signature)
cdef uint64_t bit(Py_ssize_t i) noexcept    # return the set with only argument i
