# Rows of small loops: consecutive loops over few elements that a plan runs as one piece of code.

# find rows of small loops among the steps of a plan and write their code. `used` has the bytes that operands take
cdef int write_small_loops(Plan plan, tuple described, Room* used) except -1
# copy the code of a plan to an arena, with the addresses of the arena and of constants
cdef int fix_addresses(Plan plan, Arena arena) except -1
# run the row that begins with this step
cdef int run_small_loops(PlanRun* run, PlanStep* step) except -1 nogil
# repeat the row that is the whole body of a repetition. `moves` are its entries that move
cdef int repeat_small_loops(PlanRun* run, PlanStep* step, const cnp.npy_intp* moves) except -1 nogil
# return the number of a buffer. For a result that may lie in a donated input, return the input's
cdef Py_ssize_t known_buffer(Plan plan, Py_ssize_t buffer)
# set the errors that NumPy does not ignore
cdef int find_watched(PlanRun* run) except -1 nogil
