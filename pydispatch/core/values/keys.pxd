# Key sets: the keys that a value brings, in one word.
#
# The layout of the word is defined only here: from the lowest bit, a bit per backend, a bit per functionality, and the
# flags of the arguments, which are not part of a key set. Python reads the same numbers. A runtime key is a
# functionality or, for the per-backend ones, a functionality on a backend. Each has a slot in every operator's table.
# Slots ascend in priority.

cdef extern from "core/src/keys.h":
    enum:
        N_BACKENDS
        N_RUNTIME_FUNCTIONALITIES       # the names between Python and AutogradOther are assigned at run time
        FIRST_RUNTIME_FUNCTIONALITY
        N_FUNCTIONALITIES
        N_SLOTS                         # slot 0 is Undefined, for an empty key set
    const int DENSE
    const int SPARSE
    const int BACKEND_SELECT
    const int PYTHON
    const int AUTOGRAD_OTHER
    const int AUTOGRAD
    const uint64_t BACKEND_BITS
    const uint64_t RUNTIME_BACKEND_BITS     # all but CPU and Meta
    const uint64_t META_BACKEND_BIT
    uint64_t FUNCTIONALITY_BIT(int functionality) nogil
    const uint64_t FUNCTIONALITY_BITS
    const uint64_t KEY_BITS
    const uint64_t PER_BACKEND_BITS
    const uint64_t BACKEND_SELECT_BIT
    const uint64_t BELOW_BACKEND_SELECT_BITS
    const uint64_t PYTHON_BIT
    const uint64_t ABOVE_PYTHON_BITS
    const uint64_t DENSE_BIT
    const uint64_t SPARSE_BIT
    const uint64_t AUTOGRAD_BIT
    const uint64_t AUTOGRAD_OTHER_BIT
    const uint64_t CPU_WORD
    const uint64_t TENSOR_FLAG              # set in the word of every Tensor, so a union shows whether there is one
    const uint64_t TRACKED_FLAG             # it is tracked
    const uint64_t WRAPPER_FLAG             # it is a wrapper
    const uint64_t SHARED_FLAG              # it is a view, or has views
    const uint64_t INFERENCE_FLAG           # it was made in inference mode
    const uint64_t SCALAR_FLAG              # a scalar in NumPy: 0-d, immutable, sharing memory with nothing
    const uint64_t GATHERED_FLAG            # it is a copy where NumPy has a view: see gathered.pyx
    const uint64_t ASSIGNABLE_FLAG          # a scalar that is an array to the code that holds it: see `make_assignable`
    const uint64_t SPECIAL_FLAGS            # a call with any of these takes more than finding a kernel

cdef enum:
    MAX_ARGUMENTS = 64                  # sets of arguments are words too

cdef class DispatchKeySet:              # 24 bytes
    cdef readonly uint64_t word

cdef uint64_t above[N_BACKENDS]    # per backend, the backends that it outranks
cdef dict device_words    # name of a backend -> word of its dense arrays
cdef list slot_keys    # per slot: its named key, which keys.py sets
cdef list slot_words    # per slot: the key set of its key

cdef int highest_slot(uint64_t word) noexcept nogil    # return the slot of the key of highest priority, or 0
cdef DispatchKeySet keyset(uint64_t word)    # return the key set with this word
cdef uint64_t word_of_keys(keys) except? 0    # return the word of a key set, a key, or an iterable of keys
