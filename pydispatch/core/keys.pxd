# Key sets: which kernels a value asks for, in one word.
#
# A key set is one word:    bits 0-15 backends  |  bits 16-37 functionalities  |  bits 38-63 flags of the arguments.
# A runtime key is a functionality, or, for the per-backend ones, a functionality on a backend; each has a slot in every
# operator's table. Slots ascend in priority.

cdef extern from *:
    """
    #define FUNCTIONALITY_BIT(rank) (UINT64_C(1) << ((rank) + 16))
    #define BACKEND_BITS UINT64_C(0xFFFF)
    #define RUNTIME_BACKEND_BITS UINT64_C(0x7FFE)
    #define META_BACKEND_BIT UINT64_C(0x8000)
    #define FUNCTIONALITY_BITS (((UINT64_C(1) << 22) - 1) << 16)
    #define KEY_BITS (BACKEND_BITS | FUNCTIONALITY_BITS)
    #define DENSE_BIT FUNCTIONALITY_BIT(0)
    #define SPARSE_BIT FUNCTIONALITY_BIT(1)
    #define BACKEND_SELECT_BIT FUNCTIONALITY_BIT(2)
    #define BELOW_BACKEND_SELECT_BITS (FUNCTIONALITY_BIT(2) - FUNCTIONALITY_BIT(0))
    #define PYTHON_BIT FUNCTIONALITY_BIT(3)
    #define ABOVE_PYTHON_BITS (FUNCTIONALITY_BITS & ~(FUNCTIONALITY_BIT(4) - 1))
    #define AUTOGRAD_OTHER_BIT FUNCTIONALITY_BIT(20)
    #define AUTOGRAD_BIT FUNCTIONALITY_BIT(21)
    #define PER_BACKEND_BITS (DENSE_BIT | SPARSE_BIT | AUTOGRAD_BIT)
    #define CPU_WORD (DENSE_BIT | 1)
    #define TENSOR_FLAG (UINT64_C(1) << 63)
    #define TRACKED_FLAG (UINT64_C(1) << 62)
    #define WRAPPER_FLAG (UINT64_C(1) << 61)
    #define SHARED_FLAG (UINT64_C(1) << 60)
    #define INFERENCE_FLAG (UINT64_C(1) << 59)
    #define SPECIAL_FLAGS (TRACKED_FLAG | WRAPPER_FLAG | SHARED_FLAG | INFERENCE_FLAG)
    """
    const uint64_t BACKEND_BITS
    const uint64_t RUNTIME_BACKEND_BITS     # all but CPU, the lowest, and Meta, the highest
    const uint64_t META_BACKEND_BIT
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
    N_BACKENDS = 16
    N_FUNCTIONALITIES = 22
    FIRST_RUNTIME_FUNCTIONALITY = 4     # the names between Python and AutogradOther are given out at run time
    N_RUNTIME_FUNCTIONALITIES = 16
    N_SLOTS = 68                        # slot 0 is Undefined: nothing that could be dispatched on
    MAX_ARGUMENTS = 64                  # sets of arguments are words too

cdef class DispatchKeySet:              # 24 bytes
    cdef readonly uint64_t word

cdef uint64_t above[N_BACKENDS]    # per backend, the backends that it outranks
cdef dict device_words    # name of a backend -> word of its dense arrays
cdef list slot_keys    # per slot: its named key; filled by keys.py
cdef list slot_words    # per slot: the key set of its key

cdef int highest_slot(uint64_t word) noexcept nogil    # the slot of the key that goes first; 0 for the empty set
cdef DispatchKeySet keyset(uint64_t word)    # the set of this word
cdef uint64_t word_of_keys(keys) except? 0    # the word of a set, a key, or a container of keys
