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
    cdef readonly tuple inputs, constants, results    # (shape, dtype); arrays; (shape, dtype)
    cdef tuple calls, labels
    cdef readonly tuple donated # for each result the number of the input whose memory it may take, or -1
    cdef readonly tuple described       # what it was made of, for pickles
    cdef Arena spare            # for the next run

# the results of a plan, new arrays; the inputs are arrays as `plan.inputs` says, in any layout. May results take the
# memory of inputs that were donated?
cdef tuple run_plan(Plan plan, PyObject* const* inputs, bint takes_donated)
# a call of Python that is a step
cdef int call_python(PlanRun* run, PlanStep* step) except -1 nogil
