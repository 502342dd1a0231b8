# Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers.

cdef extern from "plans/src/fused_loops.h":
    ctypedef struct FusedWord:
        cnp.npy_intp code
        char* address
        cnp.npy_intp step, move
    enum:
        OF_FLOATS, OF_UNSIGNED, OF_SIGNED
    ctypedef enum FusedWay:
        NOT_FUSED, BY_FORMS, ON_ONE, ON_TWO, AS_TEST, ON_BOOLS, AS_CHOICE, AS_MOVE
    int CODE_OF_ROWS(int type, int operation, int form) nogil
    enum:
        CONJUGATE_PAIRS
    FusedWay fused_way(int operation, int type) noexcept nogil
    FusedWay fused_way_of_pairs(int operation, int* code) noexcept nogil
    int bytes_of_fused() noexcept nogil
    bint multiplies_pairs(PyUFuncGenericFunction function, void* data, int size) noexcept nogil
    void finish_streams() noexcept nogil
    cnp.npy_intp width_of_fused(int size) noexcept nogil
    ctypedef struct StandaloneLoop:
        PyUFuncGenericFunction function
        void* data
        int n_words, n_operands, size
        int[4] codes, operands, sizes
    void run_standalone(char** args, const cnp.npy_intp* extents, const cnp.npy_intp* strides,
                        void* data) noexcept nogil
    bint run_fused_words(FusedWord* words, cnp.npy_intp n_words, cnp.npy_intp n_rows, cnp.npy_intp n,
                         int size) noexcept nogil

# find loops of blocks that can be fused, and write code for them. `used` has the bytes of each operand of the plan
cdef int fuse_loops(Plan plan, tuple described, Room* used) except -1
cdef void run_fused_loops(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                      cnp.npy_intp local) noexcept nogil
# replace the loop of a choice or a cast by one in registers if there is one
cdef int put_standalone(PlanStep* step, tuple loop) except -1
