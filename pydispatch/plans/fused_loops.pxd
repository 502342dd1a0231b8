# Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers.

cdef extern from "plans/src/fused_loops.h":
    ctypedef struct FusedWord:
        cnp.npy_intp code
        char* address
        cnp.npy_intp follows
    int CODE_OF_ROWS(int operation, int form) nogil
    bint is_fused(int operation) noexcept nogil
    int bytes_of_fused() noexcept nogil
    void finish_streams() noexcept nogil
    void run_fused_words(const FusedWord* words, cnp.npy_intp n, int bytes, bint is_double) noexcept nogil

# find loops of blocks that can be fused, and write code for them. `used` has the bytes of each operand of the plan
cdef int fuse_loops(Plan plan, tuple described, Room* used) except -1
cdef void run_fused_loops(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                      cnp.npy_intp local) noexcept nogil
