# Key sets: which kernels a value asks for, in one word.
#
# This is the one place that says how the word is laid out: from the lowest bit, a bit per backend, a bit per
# functionality, and the flags of the arguments, which are no part of a key set. Python reads the same numbers.
# A runtime key is a functionality, or, for the per-backend ones, a functionality on a backend; each has a slot in every
# operator's table. Slots ascend in priority.

cdef extern from *:
    """
    enum {
        N_BACKENDS = 16,                /* CPU is the lowest, Meta the highest */
        N_RUNTIME_FUNCTIONALITIES = 16
    };
    enum {                              /* functionalities, in ascending priority */
        DENSE, SPARSE, BACKEND_SELECT, PYTHON,
        FIRST_RUNTIME_FUNCTIONALITY,
        AUTOGRAD_OTHER = FIRST_RUNTIME_FUNCTIONALITY + N_RUNTIME_FUNCTIONALITIES, AUTOGRAD,
        N_FUNCTIONALITIES
    };
    #define FUNCTIONALITY_BIT(functionality) (UINT64_C(1) << (N_BACKENDS + (functionality)))
    #define DENSE_BIT FUNCTIONALITY_BIT(DENSE)
    #define SPARSE_BIT FUNCTIONALITY_BIT(SPARSE)
    #define BACKEND_SELECT_BIT FUNCTIONALITY_BIT(BACKEND_SELECT)
    #define PYTHON_BIT FUNCTIONALITY_BIT(PYTHON)
    #define AUTOGRAD_OTHER_BIT FUNCTIONALITY_BIT(AUTOGRAD_OTHER)
    #define AUTOGRAD_BIT FUNCTIONALITY_BIT(AUTOGRAD)
    #define PER_BACKEND_BITS (DENSE_BIT | SPARSE_BIT | AUTOGRAD_BIT)
    enum { N_PER_BACKEND = 3, N_SLOTS = 1 + N_PER_BACKEND * N_BACKENDS + N_FUNCTIONALITIES - N_PER_BACKEND };
    #define CPU_BACKEND_BIT UINT64_C(1)
    #define META_BACKEND_BIT (UINT64_C(1) << (N_BACKENDS - 1))
    #define BACKEND_BITS ((UINT64_C(1) << N_BACKENDS) - 1)
    #define RUNTIME_BACKEND_BITS (BACKEND_BITS & ~(CPU_BACKEND_BIT | META_BACKEND_BIT))
    #define FUNCTIONALITY_BITS (FUNCTIONALITY_BIT(N_FUNCTIONALITIES) - FUNCTIONALITY_BIT(0))
    #define BELOW_BACKEND_SELECT_BITS (BACKEND_SELECT_BIT - FUNCTIONALITY_BIT(0))
    #define ABOVE_PYTHON_BITS (FUNCTIONALITY_BITS & ~(FUNCTIONALITY_BIT(PYTHON + 1) - 1))
    #define KEY_BITS (BACKEND_BITS | FUNCTIONALITY_BITS)
    #define CPU_WORD (DENSE_BIT | CPU_BACKEND_BIT)
    #define TENSOR_FLAG (UINT64_C(1) << 63)
    #define TRACKED_FLAG (UINT64_C(1) << 62)
    #define WRAPPER_FLAG (UINT64_C(1) << 61)
    #define SHARED_FLAG (UINT64_C(1) << 60)
    #define INFERENCE_FLAG (UINT64_C(1) << 59)
    #define SPECIAL_FLAGS (TRACKED_FLAG | WRAPPER_FLAG | SHARED_FLAG | INFERENCE_FLAG)
    """
    enum:
        N_BACKENDS
        N_RUNTIME_FUNCTIONALITIES       # the names between Python and AutogradOther are given out at run time
        FIRST_RUNTIME_FUNCTIONALITY
        N_FUNCTIONALITIES
        N_SLOTS                         # slot 0 is Undefined: nothing that could be dispatched on
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
    const uint64_t TENSOR_FLAG              # set in the word of every Tensor, so a union tells that there was one
    const uint64_t TRACKED_FLAG             # its gradient is asked for
    const uint64_t WRAPPER_FLAG             # it belongs to a transform
    const uint64_t SHARED_FLAG              # it is a view, or has views
    const uint64_t INFERENCE_FLAG           # it was made in inference mode
    const uint64_t SPECIAL_FLAGS            # a call with any of these takes more than finding a kernel

cdef enum:
    MAX_ARGUMENTS = 64                  # sets of arguments are words too

cdef class DispatchKeySet:              # 24 bytes
    cdef readonly uint64_t word

cdef uint64_t above[N_BACKENDS]    # per backend, the backends that it outranks
cdef dict device_words    # name of a backend -> word of its dense arrays
cdef list slot_keys    # per slot: its named key; filled by keys.py
cdef list slot_words    # per slot: the key set of its key

cdef int highest_slot(uint64_t word) noexcept nogil    # the slot of the key that goes first; 0 for the empty set
cdef DispatchKeySet keyset(uint64_t word)    # the set of this word
cdef uint64_t word_of_keys(keys) except? 0    # the word of a set, a key, or an iterable of keys
