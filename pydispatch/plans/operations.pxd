# Operations: loops over few elements as our own code, and the function that runs it.

cdef extern from "plans/src/operations.h":
    bint GLIBC
    ctypedef double (*LibraryFunction)(double) noexcept nogil
    LibraryFunction library_function(int operation) noexcept nogil
    bint loop_is_function(LoopCall* call, LibraryFunction function) noexcept nogil
    bint loop_keeps_flags(LoopCall* call, int n_in, bint is_single) noexcept nogil
    ctypedef struct LoopCall:
        PyUFuncGenericFunction function
        cnp.npy_intp* sizes
        cnp.npy_intp* steps
        void* data
    ctypedef union CodeWord:
        char* address
        cnp.npy_intp number
        LoopCall* call
        LibraryFunction function
        const cnp.npy_intp* axes
    ctypedef struct Overwritten:
        pass
    const char* TABLE_OF_ARITHMETIC
    ctypedef enum OperationClass:
        COMPARISON, EXTREME
    enum:
        N_ON_ELEMENTS
        OF_FLOAT64, OF_FLOAT32, OF_INT64, OF_BOOL
        MM, RM, MR, RR, VV, VS, SV
        END_OF_CODE, TAKE_ROW, TAKE_NUMBER, LEAVE_ROW, STREAM_ROW, FETCH_ROW, OTHER_ROW, OTHER_NUMBER, OTHER_SAME
        CHOOSE, CHOOSE_OTHER, CHOOSE_ONE, TAKE_BOOLS, TAKE_BOOLS_AS_FLOATS, TAKE_BYTES, TAKE_HALF_FLOATS, TAKE_HALF_INTS
        TO_FLOATS, TO_INTS
        LEAVE_TRUTH_OF_FLOATS, LEAVE_TRUTH_OF_INTS, LEAVE_BYTES, LEAVE_HALF_FLOATS, LEAVE_HALF_INTS
        TAKE_APART, MULTIPLY_PAIRS, CHOOSE_PAIRS
        COPY_1, COPY_4, COPY_8, COPY_SINGLE_RESULT, COPY_RESULT, COPY_BYTES, FILL_4, FILL_8
        CHOOSE_4, CHOOSE_8, CHOOSE_AMONG_4, CHOOSE_AMONG_8, CALL_LOOP, CALL_AFTER_ARITHMETIC, CALL_AFTER_CALLS
        LIBRARY_OF_MEMORY, LIBRARY_OF_RESULT, PICK_ANY, PICK_8, PUT_ANY, PUT_SUM, QUOTIENT, REMAINDER
        NEXT_REPETITION, NEXT_TWO
        PAIRS_OF_RESULT, PAIRS_OF_MEMORY, TRIPLES_OF_RESULT, TRIPLES_OF_MEMORY, WORDS_OF_LINK
    OperationClass class_of(int operation) noexcept nogil
    bint has_code(int operation, int type) noexcept nogil
    int link_of(int operation, int form) noexcept nogil
    int CODE(int type, int operation, int form) nogil
    void put_operation(CodeWord* word, int code, cnp.npy_intp n) noexcept nogil
    unsigned int run_operations(CodeWord* code, cnp.npy_intp count, const char* last, bint is_single,
                                Overwritten** log) noexcept nogil
    void undo(Overwritten* first, Overwritten* after) noexcept nogil

cdef dict OPERATIONS             # the number of each universal function in the table
cdef bint IS_NUMPY_2_0           # whether a test on one number at a time proves nothing
cdef tuple row_of(function)
cdef bint find_operation(tuple loop, int* type, int* operation) except -1
# find the function of C's library that a universal function's loop calls for each element. Return False if unknown
cdef bint find_library_function(tuple loop, LoopCall* call, LibraryFunction* function) except -1
cdef bint keeps_flags(tuple loop, LoopCall* call) except -1
cdef bint may_report_by_call(tuple loop) except -1
cdef bint is_exact(tuple loop) except -1
cdef bint may_raise(tuple loop) except -1
