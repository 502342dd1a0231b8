# Rows of small loops: consecutive loops over few elements, which a plan runs as one piece of code.

# find such rows among the steps of a plan, whose operands take these bytes, and write code for them
cdef int write_small_loops(Plan plan, tuple described, Room* used) except -1
# put the addresses of an arena and of constants into the code that lies in it
cdef int fix_addresses(Plan plan, Arena arena) except -1
# run the row that begins with this step
cdef int take_small_loops(PlanRun* run, PlanStep* step) except -1 nogil
# repeat the row that is all that a repetition has inside; `moves` are its entries that move
cdef int repeat_small_loops(PlanRun* run, PlanStep* step, const cnp.npy_intp* moves) except -1 nogil
# the number of a buffer, the input's of a result that may lie in a donated input
cdef Py_ssize_t known_buffer(Plan plan, Py_ssize_t buffer)
# ask NumPy which errors are not ignored
cdef int find_watched(PlanRun* run) except -1 nogil
