# Loops element by element on small arrays, for every type of numbers and every layout.

cdef struct Operands:       # arrays and numbers that are broadcast together
    int n, n_axes
    int type                            # of all of them,
    int mask                            # but for this one, of bools; -1: none
    bint has_numbers                    # are Python's ints or floats among them?
    PyObject* arrays[3]                 # NULL: a number
    char* data[3]
    double numbers[3][2]                # of any type, up to complex128
    cnp.npy_intp extents[MOST_AXES]     # together

cdef str NAME_OF_OUT, NAME_OF_DTYPE

# the type of an array that a loop can read, -1 for any other value
cdef int readable_type(PyObject* value) noexcept
# write an int as a number of this type; no where that cannot hold it
cdef bint put_int(int type, Py_ssize_t number, char* target) noexcept
# the same of any number in Python
cdef bint put_number(int type, PyObject* value, char* target) noexcept
# the same of a floating-point number
cdef bint put_float(int type, double number, char* target) noexcept
cdef PyObject* map_in_general(Loop* loop, PyObject* const* args) except? NULL   # the result of a ufunc
# the scalar that a ufunc makes of numbers and arrays without axes
cdef PyObject* map_numbers(Loop* loop, PyObject* const* args) except? NULL
# the result of a ufunc called with `out` or `dtype`, the only keyword
cdef PyObject* call_loop_with_option(Loop* loop, PyObject* const* args, PyObject* kwnames) except? NULL
cdef PyObject* choose_elements(PyObject* const* args) except? NULL      # what `where` gives
cdef PyObject* clip_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL   # what `clip` gives
