# Rows of small loops: consecutive loops over few elements that a plan runs as one piece of code.

# find rows of small loops among the steps of a plan and write their code. `used` has the bytes that operands take
cdef int write_small_loops(Plan plan, tuple described, Room* used) except -1
cdef int fix_addresses(Plan plan, Arena arena) except -1
cdef int run_small_loops(PlanRun* run, PlanStep* step) except -1 nogil
# repeat the row that is the whole body of a repetition
cdef int repeat_small_loops(PlanRun* run, PlanStep* step) except -1 nogil
cdef Py_ssize_t known_buffer(Plan plan, Py_ssize_t buffer)
cdef int find_watched(PlanRun* run) except -1 nogil
