# Plans: steps with their memory, and the running of them.

cdef class Arena:
    cdef char* memory           # of `size` bytes, aligned to a cache line
    cdef void* allocated
    cdef Py_ssize_t size

cdef class Plan:
    cdef PlanStep* steps
    cdef cnp.npy_intp* numbers      # the arrays that the steps' pointers refer to
    cdef Py_ssize_t n_numbers
    cdef readonly Py_ssize_t n_steps
    cdef Py_ssize_t n_entries, arena_size, work
    cdef int n_threads
    cdef bint has_large_results     # which are allocated from kept memory
    cdef readonly tuple inputs, constants, results    # (shape, dtype) of each, arrays, and (shape, dtype) of each
    cdef tuple calls, labels
    cdef readonly tuple donated     # for each result: the index of the input whose memory it may take, or -1
    cdef readonly tuple described   # the arguments of the constructor, for pickles
    cdef SmallLoops* rows           # rows of small loops that run as code
    cdef CodeWord* code             # of all rows. Each run has a copy in its arena
    cdef Patch* fixed               # addresses in the code that are known for an arena
    cdef Patch* patches             # addresses in the code that are known for a run
    cdef SavedBytes* saved
    cdef LoopCall* loop_calls       # one for each step
    cdef FusedLoops* fused
    cdef FusedOperand* fused_words
    cdef Py_ssize_t n_words, n_fixed, saved_size
    cdef Py_ssize_t saved_at, code_at       # offsets of both in an arena
    cdef PyObject* spares[N_PLACES]         # arenas kept for the next run

cdef enum:
    WORK_WITH_LOCK = 1 << 16    # elements: a longer run releases the GIL

# run a plan and return its results, as new arrays. The inputs have the shapes and dtypes of `plan.inputs`, and any
# layout. With `takes_donated`, results may take the memory of inputs that are donated
cdef tuple run_plan(PyObject* plan, PyObject* const* inputs, bint takes_donated)
cdef int check_loops() except -1
cdef void name_raised(PlanRun* run, PlanStep* step) noexcept nogil
# clear the exception of a row of small loops, which then run one by one. Return False if there is none
cdef bint forget_raised(PlanRun* run) noexcept nogil
cdef tuple axes_of_positions(tuple loop)
# the kinds of loops over single elements
cdef frozenset POSITION_LOOPS
cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1
