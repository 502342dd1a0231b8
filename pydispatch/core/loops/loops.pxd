# NumPy's inner loops, called directly on small arrays.

cdef extern from "numpy/ufuncobject.h":
    ctypedef void (*PyUFuncGenericFunction)(char**, const cnp.npy_intp*, const cnp.npy_intp*, void*) noexcept nogil

cdef extern from "core/src/loops.h":
    # return the error flags that the processor's arithmetic raised, with the processor's own numbers
    unsigned int flags_of_arithmetic() noexcept nogil
    # return the error flags that only `feraiseexcept` raises, with the same numbers
    unsigned int flags_of_calls() noexcept nogil
    int errors_of_flags(unsigned int flags) noexcept nogil
    int raised_errors() noexcept nogil
    void forget_errors() noexcept nogil

cdef extern from "core/src/positions.h":
    # return whether all positions, integers of 64 bits, are within an axis
    bint are_inside(const char* positions, cnp.npy_intp n, cnp.npy_intp extent) noexcept nogil
    bint take_out_of_range(cnp.npy_intp* position, cnp.npy_intp* extent) noexcept nogil
    void gather_layers(char** args, const cnp.npy_intp* extents, const cnp.npy_intp* strides, void* data) noexcept nogil
    PyUFuncGenericFunction add_products_loop(int type) noexcept nogil
    PyUFuncGenericFunction add_layers_loop(int type) noexcept nogil     # by type number. NULL if there is none

cdef enum:              # kinds of loops
    NO_LOOP = 0
    ELEMENTWISE = 1         # of numbers of one type, with a loop from float64 to float64 among others
    PRODUCT = 2             # a product of matrices
    OTHER_ELEMENTWISE = 3   # as ELEMENTWISE, but without a loop from float64 to float64, such as comparisons
    CHOICE = 4              # a choice between elements: `where`

cdef enum:
    N_TYPES = 16            # types of numbers that have loops here: those before longdouble, and complex numbers
    UNKNOWN = 0             # not looked up yet
    FOUND = 1
    MISSING = 2
    CONVERTING = 3          # there is a loop for the type to which NumPy converts the arguments

cdef enum:
    LARGEST = 4096          # elements. Beyond this size NumPy's overhead is small, and NumPy releases the GIL

cdef struct TypedLoop:                  # a universal function's loop for arguments of one type
    char state, fold_state, mask_state  # whether there is a loop, a reduction takes it, and bools can be mixed with
                                        # such numbers
    char number_state                   # whether Python numbers can be mixed with such numbers
    int n_types                         # how many loops the universal function had. Numba adds some later
    int loop_type                       # the type of the arguments, if `state` is CONVERTING
    int result_type
    PyUFuncGenericFunction function
    void* data

cdef struct Loop:                       # the loop of a universal function
    int kind                            # NO_LOOP if there is none
    int n_in
    PyUFuncGenericFunction function     # for float64
    void* data
    const char* name
    PyObject* ufunc
    bint may_raise                      # whether it can raise an exception. NumPy's loops for floats cannot
    TypedLoop* typed                    # loops by the type of the arguments. NULL if there is only one for float64

cdef struct Operand:
    char* data
    cnp.npy_intp stride     # 0 for a single number
    double number

cdef Loop adding    # of `numpy.add`

cdef int find_loop(Loop* loop, function) except -1
# return the loop for arguments of this type, or NULL
cdef TypedLoop* loop_of_type(Loop* loop, int type) except? NULL
# return the loop for arguments of this type that NumPy converts to one other type first, or NULL
cdef TypedLoop* converting_loop(Loop* loop, int type) except? NULL
cdef bint takes_numbers(Loop* loop, TypedLoop* typed, int type) except -1
cdef tuple resolved_types(ufunc, tuple dtypes, bint reduction)
# find the loop of a universal function for these types, given by number. Return False if there is none that needs no
# buffers
cdef bint find_loop_of_types(function, types, PyUFuncGenericFunction* found, void** data) except -1
# return the result of a universal function that has a loop for float64
cdef PyObject* map_elements(Loop* loop, PyObject* const* args) except? NULL
cdef PyObject* call_loop(Loop* loop, PyObject* const* args) except? NULL
cdef int report_errors(const char* name, PyObject* result) except -1
cdef int finish_loop(Loop* loop, PyObject* result) except -1
cdef bint read_operand(PyObject* value, Operand* operand) noexcept
cdef bint same_extents(PyObject* left, PyObject* right) noexcept    # return whether two arrays have the same shape
cdef PyObject* new_like(PyObject* array) except NULL    # return an uninitialized array of the same shape
cdef bint is_small(PyObject* array) noexcept    # return whether an array has 1 to LARGEST elements
cdef bint is_small_shape(int n_axes, cnp.npy_intp* extents) noexcept    # return the same for a shape
cdef bint add_in_place(PyObject* total, PyObject* more) except -1
cdef PyObject* sum_of_all(PyObject* array) except? NULL
cdef PyObject* sum_of_rows(PyObject* array) except? NULL
cdef PyObject* sum_along_axes(PyObject* array, PyObject* axes) except? NULL
# return the product of two matrices of float64 or float32, each transposed first if it is `turned`
cdef PyObject* multiply_matrices(PyObject* left, PyObject* right, bint left_turned, bint right_turned) except? NULL
cdef int type_of_python(PyObject* value) noexcept
cdef int number_of_dtype(PyObject* dtype) noexcept
