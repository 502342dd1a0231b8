# NumPy's inner loops, called directly on small arrays of float64.

cdef extern from "numpy/ufuncobject.h":
    ctypedef void (*PyUFuncGenericFunction)(char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept nogil

cdef extern from *:
    """
    #include <fenv.h>
    static inline int raised_errors(void) {     /* as NumPy's NPY_FPE_ flags */
        int raised = fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
        return !raised ? 0 : (raised & FE_DIVBYZERO ? 1 : 0) | (raised & FE_OVERFLOW ? 2 : 0)
                             | (raised & FE_UNDERFLOW ? 4 : 0) | (raised & FE_INVALID ? 8 : 0);
    }

    static inline void forget_errors(void) {    /* clearing costs much more than looking */
        if (raised_errors()) feclearexcept(FE_ALL_EXCEPT);
    }
    """
    int raised_errors() noexcept nogil
    void forget_errors() noexcept nogil

cdef enum:              # kinds of loops
    NO_LOOP = 0
    ELEMENTWISE = 1
    PRODUCT = 2             # of matrices

cdef struct Loop:                       # what a ufunc does in the end, with float64
    int kind                            # NO_LOOP: there is none
    int n_in
    PyUFuncGenericFunction function
    void* data
    const char* name

cdef struct Operand:
    char* data
    cnp.npy_intp stride     # 0: a single number
    double number

cdef int find_loop(Loop* loop, function) except -1    # the loop of a function for float64
# the loop of a ufunc for these types, their numbers; no where it has none that needs no buffers
cdef bint find_loop_of_types(function, types, PyUFuncGenericFunction* found, void** data) except -1
# the result of a ufunc on its arguments, a new array
cdef PyObject* call_loop(Loop* loop, PyObject* const* args) except? NULL
cdef int report_errors(const char* name, PyObject* result) except -1    # warn or raise, as `errstate` says
cdef bint read_operand(PyObject* value, Operand* operand) noexcept    # where its numbers are
cdef bint same_extents(PyObject* left, PyObject* right) noexcept    # have both arrays the same shape?
cdef PyObject* new_like(PyObject* array) except NULL    # an empty array of the same shape
cdef bint is_small(PyObject* array) noexcept    # is this one of 1 to LARGEST elements?
cdef object sum_of_two(left, right)    # left + right
cdef bint add_in_place(PyObject* total, PyObject* more) except -1    # total += more, where that takes a loop only
# the sum of all elements, a float64 scalar, as `add.reduce` adds them up
cdef PyObject* sum_of_all(PyObject* array) except? NULL
cdef PyObject* sum_of_rows(PyObject* array) except? NULL    # the sum over the first axis, as `add.reduce` adds it up
# the sum over `axes`, a tuple, where these are the last ones in order, as `add.reduce` adds it up
cdef PyObject* sum_along_axes(PyObject* array, PyObject* axes) except? NULL
# the product of two matrices, each of them transposed if it is `turned`
cdef PyObject* multiply_matrices(PyObject* left, PyObject* right, bint left_turned, bint right_turned) except? NULL
