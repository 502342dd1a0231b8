# The steps of a plan: loops over arrays, run in order without Python.

cdef extern from "plans/src/steps.h":
    void find_operands(char** operands, char** table, const cnp.npy_intp* buffers, const cnp.npy_intp* offsets,
                       int n) noexcept nogil
    void fetch_ahead(char* start, cnp.npy_intp size) noexcept nogil
    void copy_addresses(char** operands, char** first, int n) noexcept nogil
    void addresses_at(char** operands, char** first, const cnp.npy_intp* strides, cnp.npy_intp k, int n) noexcept nogil
    void move_addresses(char** operands, const cnp.npy_intp* strides, cnp.npy_intp times, int n) noexcept nogil
    PyUFuncGenericFunction cast_loop(int source, int target) noexcept nogil     # NULL if there is none
    PyUFuncGenericFunction copy_loop(int size) noexcept nogil                   # `data` is also the size of an element
    PyUFuncGenericFunction choose_loop(int size) noexcept nogil                 # condition, one, other
    PyUFuncGenericFunction pick_loop(int size) noexcept nogil                   # array, positions
    PyUFuncGenericFunction put_loop(int size) noexcept nogil                    # target, values, positions
    PyUFuncGenericFunction put_sum_loop(int type) noexcept nogil                # the same, by type number
    ctypedef bint (*RowSum)(char* sums, const char* rows, cnp.npy_intp n_rows, cnp.npy_intp stride,
                            cnp.npy_intp n) noexcept nogil
    RowSum row_sum_of(int type) noexcept nogil                                  # NULL if there is none
    RowSum extreme_of_rows(int type, bint is_largest, cnp.npy_intp n) noexcept nogil
    enum:
        SHORTEST_PART           # of a sum: the length up to which NumPy adds without halving
    PyUFuncGenericFunction sum_part_loop(int type) noexcept nogil               # elements, sums of parts
    PyUFuncGenericFunction add_parts_loop(int type) noexcept nogil              # first term, sums of parts, sum
    # return the end of the part with this position, in a sum of `n` elements with parts of up to `longest`
    cnp.npy_intp end_of_part(cnp.npy_intp position, cnp.npy_intp n, cnp.npy_intp longest) noexcept nogil

cdef extern from "plans/src/row_loops.h":
    PyUFuncGenericFunction search_loop(int type, bint is_right) noexcept nogil
    PyUFuncGenericFunction interpolate, sort_rows, argsort_rows, filter_rows
    void* sort_function(int type, int kind) noexcept
    void* argsort_function(int type, int kind) noexcept
    PyUFuncGenericFunction lapack_loop(int routine) noexcept nogil
    void set_lapack(size_t getrf, size_t getrs, size_t trtrs, int size) noexcept

cdef enum:              # constraints on threads that share blocks
    ROWS_IN_ORDER = 1           # each row needs the results of the previous one, so threads do not share them
    ROWS_BY_HALVES = 2          # blocks are parts of sums

cdef enum:
    MAX_OPERANDS = 64           # of a loop

cdef struct Patch:          # an address in code that is an offset from an address in the table
    Py_ssize_t word, buffer
    cnp.npy_intp offset

cdef struct SavedBytes:     # bytes that loops read and overwrite, saved so that they can run again
    Py_ssize_t buffer
    cnp.npy_intp offset, size

cdef struct SmallLoops:     # consecutive loops over few elements that run as code
    Py_ssize_t n_steps
    Py_ssize_t first            # the first word of their code
    Py_ssize_t distance         # to the code for every second repetition, if this is the whole body of one, else 0
    Py_ssize_t last             # the word with the address of the number in the register before a repetition, or 0
    bint is_single              # whether that number is a float32
    bint has_calls              # of loops that may raise flags by `feraiseexcept`
    bint may_raise              # whether one of them can raise exceptions
    bint gathers                # whether one of them can meet positions out of range
    Patch* patches
    Py_ssize_t n_patches
    SavedBytes* saved
    Py_ssize_t n_saved, n_bytes_saved
    Py_ssize_t n_logged         # the number of elements that a repetition writes to the log

cdef struct FusedOperand:  # a word of code and the place of its operand
    cnp.npy_intp code
    Py_ssize_t buffer
    cnp.npy_intp offset, row, is_local, step, move      # of a filler: its bytes, and how many times they are repeated
    int kept                    # the number of the kept vectors to use instead, or -1

cdef struct FusedLoops:    # loops in blocks that are computed together in registers
    Py_ssize_t n_steps, n_words, n_filled
    FusedOperand* words         # code, and numbers that fill kept vectors
    int size                    # bytes of the elements in registers
    bint of_pairs               # whether each number has two of them, a real and an imaginary part
    bint by_rows                # whether rows are taken one by one
    cnp.npy_intp length, unit   # elements of registers in a row, and those that are taken together
    bint has_streams            # whether it writes around the caches

cdef class PlanChecker
ctypedef int (*StepRun)(PlanRun* run, PlanStep* step) except -1 nogil
ctypedef int (*StepCheck)(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1

cdef struct StepKind:
    Py_ssize_t n_fields         # of the struct of its numbers
    StepRun run                 # run a step, with or without the GIL
    StepCheck check             # raise ValueError for a step that could leave its memory

cdef struct PlanStep:
    StepKind* kind
    int n_inside                # how many of the following steps are part of it
    int n_operands, n_axes
    bint reports                # whether it can raise floating-point flags
    bint gathers                # whether it can meet positions out of range
    bint reports_by_call        # whether it can raise them by `feraiseexcept`, which sets some elsewhere
    bint may_raise              # whether it can raise exceptions, as loops of SciPy and Numba can
    bint begins_row             # whether rows of small loops end before it: it is the first of a body, or follows one
    bint is_native              # whether it is machine code of a compiler
    bint is_quiet               # whether it raises flags where NumPy raises none
    PyObject* refusal           # the message of the LinAlgError for an invalid operation, or NULL
    int long_axis               # the outer axis that a call takes instead of the loop's own short one, or -1
    PyUFuncGenericFunction function
    void* data
    RowSum row_sum              # adds rows along the outer axis, or finds extremes, or NULL
    cnp.npy_intp* buffers           # for each operand: its index in the table of addresses
    cnp.npy_intp* offsets           # for each operand: its offset from that address
    cnp.npy_intp* extents           # of the outer axes
    cnp.npy_intp* strides           # of the operands along these axes, axis by axis
    cnp.npy_intp* sizes             # the extents that the loop gets
    cnp.npy_intp* steps             # the strides that the loop gets
    cnp.npy_intp* numbers           # the struct of its kind, or those of a loop in blocks. See `run_rows`
    Py_ssize_t work             # about how many elements one run of it processes
    SmallLoops* small           # the loops from this one on that run as code, or NULL
    FusedLoops* fused         # the loops in blocks from this one on that are fused, or NULL

cdef struct PlanRun:
    char** table                # addresses of buffers
    CodeWord* code              # of small loops
    char* saved                 # bytes that these read and overwrite
    int watched                 # the errors that `numpy.errstate` does not ignore, or -1 if not read yet
    PyObject* plan
    PyObject* inputs            # keeps the buffers alive
    int n_threads
    int n_noted
    PlanStep* noted[8]          # the steps that raised floating-point flags, in order
    int flags[8]
    bint has_named              # whether a step has raised an exception that has its name
    bint meets_out_of_range     # whether a step met a position out of range, which follows
    cnp.npy_intp position, extent
    Py_ssize_t work             # elements since Python last checked for signals

# run a loop and note its flags
cdef int run_loop_step(PlanRun* run, PlanStep* step) except -1 nogil
cdef int run_blocks(PlanRun* run, PlanStep* step) except -1 nogil
# run a loop in blocks over some rows and note its flags. The first `done` elements may be done if one call takes all
cdef void run_rows_of_loop(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                           cnp.npy_intp local, cnp.npy_intp done) noexcept nogil
# call a loop for every index of its outer axes. This is itself a loop, with the step as its data
cdef void take_outer_axes(
    char** operands, const cnp.npy_intp* sizes, const cnp.npy_intp* steps, void* step
) noexcept nogil
cdef int run_parts(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp stop,
                   cnp.npy_intp part) except -1 nogil
cdef void run_rows(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp stop,
                   cnp.npy_intp local) noexcept nogil
cdef cnp.npy_intp border_of_blocks(PlanStep* step, cnp.npy_intp row) noexcept nogil
cdef int refuse_position(PlanRun* run) except -1 nogil
cdef void note_these_flags(PlanRun* run, PlanStep* step, int flags) noexcept nogil
cdef int watch_signals(PlanRun* run, Py_ssize_t work) except -1 nogil
# run the steps up to `after`, with or without the GIL. Steps that call Python take it
cdef int run_plan_steps(PlanRun* run, PlanStep* step, PlanStep* after) except -1 nogil
