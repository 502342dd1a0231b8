# The kinds of steps: the numbers that describe each, and how it is checked and run.

cdef struct Blocks:             # loops that run on one block of rows after the other
    cnp.npy_intp n_rows
    cnp.npy_intp block              # the maximal number of rows in a block
    cnp.npy_intp local_bytes        # of a thread's own memory
    cnp.npy_intp order              # 0, ROWS_IN_ORDER or ROWS_BY_HALVES
    cnp.npy_intp n_threads          # that share the rows

# Steps that are repeated. After these numbers come the memories of carries: (entry, offset in the arena). Then the
# entries that move: (entry, buffer, offset, stride). Then the pairs of entries that are swapped after a repetition.
cdef struct Repetition:
    cnp.npy_intp n_places, n_moves, n_swaps
    cnp.npy_intp length             # 0 in a while loop, which has the following three
    cnp.npy_intp buffer, offset     # of the condition
    cnp.npy_intp n_test             # steps of the test, which come first

cdef StepKind* LOOP_STEP        # a loop over arrays
cdef StepKind* BLOCKS_STEP
cdef StepKind* REPEAT_STEP
cdef StepKind* kind_named(name) except NULL
cdef cnp.npy_intp* moves_of(PlanStep* step) noexcept nogil
cdef cnp.npy_intp* swaps_of(PlanStep* step) noexcept nogil
# set the entries that move in a repetition to their slice number `k`
cdef void move_entries(PlanRun* run, PlanStep* step, cnp.npy_intp k) noexcept nogil
# swap pairs of entries after a repetition
cdef void swap_entries(PlanRun* run, PlanStep* step) noexcept nogil

cdef enum:
    WORK_OF_REPETITION = 64     # elements: about the work of the steps of a short body
