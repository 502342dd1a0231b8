# Schemas, laid out for binding.

cdef enum:
    OTHER = 0           # converted in Python
    ARRAY = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    STR = 5
    ANYTHING = 6
    INTS = 7            # a tuple of them; shapes and axes
    ARRAYS = 8
    SCALAR = 9
    NUMPY_DTYPE = 10
    INT_OR_INTS = 11
    KIND = 15           # the bits of these; beside them are
    OPTIONAL = 16
    WRITTEN = 32        # an array that is written to, which a number is not

cdef class Signature:                   # a schema, laid out for binding
    cdef object own_schema              # None until it is asked for, then made by
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
    cdef tuple sizes                    # of lists that a scalar is repeated to fill; else 0
    cdef Py_ssize_t n_returns
    cdef bint returns_fresh_tensor      # exactly one Tensor that shares memory with no argument: the common case
    cdef bint returns_fresh_tensors     # several of them, and nothing else
    cdef tuple return_is_tensor
    cdef tuple return_is_list           # is this result one array after the other?
    cdef tuple return_arrays            # may this result hold arrays?
    cdef tuple return_source            # per result: the mutable argument that it is, else -1
    cdef tuple return_views             # per result: the arguments whose memory it may share
    cdef readonly Py_ssize_t device              # the argument that names the backend; -1 without one
    cdef Py_ssize_t view_of             # the argument that the only result may be a view of; -1 where it is otherwise
    cdef bint lists                     # are there array arguments that are pytrees?
    cdef bint detaches                  # is the result a view whose gradient goes its own way?

cdef object schema_of(Signature signature)  # its schema, made when it is first asked for
cdef uint64_t bit(Py_ssize_t i) noexcept    # the set that holds argument i alone
