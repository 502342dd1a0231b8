# Plans: steps with the memory that they work in, and a run of them.

cdef class Arena:
    cdef char* memory           # of `size` bytes, aligned to a line of the cache
    cdef void* allocated
    cdef Py_ssize_t size

cdef class Plan:
    cdef PlanStep* steps
    cdef cnp.npy_intp* numbers      # what the steps' pointers lead to
    cdef Py_ssize_t n_numbers
    cdef readonly Py_ssize_t n_steps
    cdef Py_ssize_t n_entries, arena_size, work
    cdef int n_threads
    cdef bint has_large_results     # in memory that is kept when they are gone
    cdef readonly tuple inputs, constants, results    # (shape, dtype); arrays; (shape, dtype)
    cdef tuple calls, labels
    cdef readonly tuple donated     # for each result the number of the input whose memory it may take, or -1
    cdef readonly tuple described   # the arguments that it was made from, for pickles
    cdef SmallLoops* rows           # of loops that code runs
    cdef CodeWord* code             # of all of them; a run has a copy in its arena
    cdef Patch* fixed               # its addresses that are known for an arena
    cdef Patch* patches             # those that are known for a run
    cdef SavedBytes* saved
    cdef LoopCall* loop_calls       # of each step
    cdef JoinedLoops* joined
    cdef JoinedOperand* joined_words
    cdef Py_ssize_t n_words, n_fixed, saved_size
    cdef Py_ssize_t saved_at, code_at       # where these lie in an arena
    cdef Arena spare            # for the next run

# the results of a plan, new arrays; the inputs have the shapes and dtypes of `plan.inputs`, and any layout. With
# `takes_donated`, results may take the memory of inputs that are donated
cdef tuple run_plan(Plan plan, PyObject* const* inputs, bint takes_donated)
# raise what a loop has raised
cdef int check_loops() except -1
# has a loop that this thread has taken raised an exception? For threads that have a state in the interpreter
cdef extern from *:
    """
    #if PY_VERSION_HEX < 0x030C0000
        #define EXCEPTION_OF(state) (state)->curexc_type
    #else
        #define EXCEPTION_OF(state) (state)->current_exception
    #endif
    static inline int has_raised(void) {
        PyThreadState* state = PyGILState_GetThisThreadState();
        return state != NULL && EXCEPTION_OF(state) != NULL; }
    """
    bint has_raised() noexcept nogil
# let the exception of a step say which one it is, once in a run
cdef void name_raised(PlanRun* run, PlanStep* step) noexcept nogil
# forget the exception of a row of small loops, which are to run one by one; False if there is none
cdef bint forget_raised(PlanRun* run) noexcept nogil
# a step that calls a Python function
cdef int call_python(PlanRun* run, PlanStep* step) except -1 nogil
# what a loop over single elements knows of the axes that their positions are along; () for other loops
cdef tuple axes_of_positions(loop)
cdef frozenset POSITION_LOOPS    # the kinds of loops over single elements
