# NumPy's inner loops, called directly on small arrays.

cdef extern from "numpy/ufuncobject.h":
    ctypedef void (*PyUFuncGenericFunction)(char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept nogil

cdef extern from *:
    """
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <xmmintrin.h>
    #define ERROR_FLAGS 0x1Du
    static inline unsigned int flags_of_x87(void) {     /* where feraiseexcept notes overflow, which loops call */
        unsigned short status;
        __asm__ __volatile__ ("fnstsw %0" : "=a" (status));
        return status;
    }

    static inline unsigned int flags_of_arithmetic(void) {      /* of all before: of what memory holds already */
        __asm__ __volatile__ ("" ::: "memory");
        return _mm_getcsr() & ERROR_FLAGS;
    }
    static inline unsigned int flags_of_calls(void) { return flags_of_x87() & ERROR_FLAGS; }

    static inline int errors_of_flags(unsigned int raised) {    /* as NumPy's NPY_FPE_ flags */
        return !raised ? 0 : (raised & 4 ? 1 : 0) | (raised & 8 ? 2 : 0) | (raised & 16 ? 4 : 0) | (raised & 1 ? 8 : 0);
    }

    static inline void raise_all_flags(void) { _mm_setcsr(_mm_getcsr() | ERROR_FLAGS); }

    static inline void forget_errors(void) {    /* writing costs much more than reading */
        unsigned int flags = _mm_getcsr();
        if (flags & ERROR_FLAGS) _mm_setcsr(flags & ~ERROR_FLAGS);
        if (flags_of_x87() & ERROR_FLAGS) __asm__ __volatile__ ("fnclex");
    }
    #else
    #include <fenv.h>
    static inline unsigned int flags_of_arithmetic(void) {
        return (unsigned int)fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
    }
    static inline unsigned int flags_of_calls(void) { return 0; }       /* there is one place for flags */

    static inline int errors_of_flags(unsigned int raised) {
        return !raised ? 0 : (raised & FE_DIVBYZERO ? 1 : 0) | (raised & FE_OVERFLOW ? 2 : 0)
                             | (raised & FE_UNDERFLOW ? 4 : 0) | (raised & FE_INVALID ? 8 : 0);
    }

    static inline void raise_all_flags(void) {
        feraiseexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
    }

    static inline void forget_errors(void) {
        if (flags_of_arithmetic()) feclearexcept(FE_ALL_EXCEPT);
    }
    #endif
    static inline int raised_errors(void) { return errors_of_flags(flags_of_arithmetic() | flags_of_calls()); }
    """
    unsigned int flags_of_arithmetic() noexcept nogil   # those that the processor raises, in its own numbers
    unsigned int flags_of_calls() noexcept nogil        # those that only `feraiseexcept` raises, in the same
    int errors_of_flags(unsigned int flags) noexcept nogil
    int raised_errors() noexcept nogil
    void forget_errors() noexcept nogil

cdef enum:              # kinds of loops
    NO_LOOP = 0
    ELEMENTWISE = 1         # of numbers of one type; from float64 to float64 among others
    PRODUCT = 2             # of matrices
    OTHER_ELEMENTWISE = 3   # the same, but not from float64 to float64: comparisons are among them
    CHOICE = 4              # of elements: `where`

cdef enum:
    N_TYPES = 16            # types of numbers that have loops here: those before longdouble, and complex numbers
    UNKNOWN = 0             # not looked for yet
    FOUND = 1
    MISSING = 2
    CONVERTING = 3          # there is one, for the type that NumPy converts the arguments to

cdef enum:
    LARGEST = 4096          # elements; beyond, NumPy's way is a small part, and it lets other threads run

cdef struct TypedLoop:                  # of a ufunc, for arguments of one type
    char state, fold_state, mask_state  # is there a loop? does a reduction take it? do bools beside such numbers?
    char number_state                   # do Python's numbers beside such numbers?
    int n_types                         # how many loops the ufunc had: Numba adds some later
    int loop_type                       # of its arguments, where it is CONVERTING
    int result_type
    PyUFuncGenericFunction function
    void* data

cdef struct Loop:                       # what a ufunc does in the end
    int kind                            # NO_LOOP: there is none
    int n_in
    PyUFuncGenericFunction function     # for float64
    void* data
    const char* name
    PyObject* ufunc
    bint may_raise                      # can it raise? Those of NumPy for floating-point numbers cannot
    TypedLoop* typed                    # by the type of the arguments, for all of them; NULL: only for float64

cdef struct Operand:
    char* data
    cnp.npy_intp stride     # 0: a single number
    double number

cdef int find_loop(Loop* loop, function) except -1    # the loop of a function
cdef TypedLoop* loop_of_type(Loop* loop, int type) except? NULL     # for arguments of this type
cdef TypedLoop* converting_loop(Loop* loop, int type) except? NULL  # for those that NumPy converts to one other type
# does NumPy take this loop for Python's numbers beside numbers of this type?
cdef bint takes_numbers(Loop* loop, TypedLoop* typed, int type) except -1
# the numbers of the types that a ufunc calculates with; None where it cannot
cdef tuple resolved_types(ufunc, tuple dtypes, bint reduction)
# the loop of a ufunc for these types, their numbers; no where it has none that needs no buffers
cdef bint find_loop_of_types(function, types, PyUFuncGenericFunction* found, void** data) except -1
# the result of a ufunc with a loop for float64
cdef PyObject* map_elements(Loop* loop, PyObject* const* args) except? NULL
# the result of a ufunc on its arguments, a new array
cdef PyObject* call_loop(Loop* loop, PyObject* const* args) except? NULL
cdef int report_errors(const char* name, PyObject* result) except -1    # warn or raise, as `errstate` says
cdef int finish_loop(Loop* loop, PyObject* result) except -1    # the same, unless the loop has raised something
cdef bint read_operand(PyObject* value, Operand* operand) noexcept    # where its numbers are
cdef bint same_extents(PyObject* left, PyObject* right) noexcept    # have both arrays the same shape?
cdef PyObject* new_like(PyObject* array) except NULL    # an empty array of the same shape
cdef bint is_small(PyObject* array) noexcept    # is this one of 1 to LARGEST elements?
cdef bint is_small_shape(int n_axes, cnp.npy_intp* extents) noexcept    # the same of such an array to be made
cdef object sum_of_two(left, right)    # left + right
cdef bint add_in_place(PyObject* total, PyObject* more) except -1    # total += more, where that takes a loop only
# the sum of all elements, a float64 scalar, as `add.reduce` adds them up
cdef PyObject* sum_of_all(PyObject* array) except? NULL
cdef PyObject* sum_of_rows(PyObject* array) except? NULL    # the sum over the first axis, as `add.reduce` adds it up
# the sum over `axes`, a tuple, where these are the last ones in order, as `add.reduce` adds it up
cdef PyObject* sum_along_axes(PyObject* array, PyObject* axes) except? NULL
# the product of two matrices of float64 or float32, each of them transposed if it is `turned`
cdef PyObject* multiply_matrices(PyObject* left, PyObject* right, bint left_turned, bint right_turned) except? NULL
