# Elementwise loops on small arrays, for every numeric type and every layout.

cdef struct Operands:       # arrays and numbers that are broadcast together
    int n, n_axes
    int type                            # the type of all operands
    int mask                            # the operand that is an array of bools instead, or -1 if there is none
    bint has_numbers                    # whether Python ints or floats are among them
    PyObject* arrays[3]                 # NULL for a number
    char* data[3]
    double numbers[3][2]                # numbers of any type, up to complex128
    cnp.npy_intp extents[MOST_AXES]     # the shape that they are broadcast to

cdef str NAME_OF_OUT, NAME_OF_DTYPE

# return the type of an array that a loop can read, or -1 for any other value
cdef int readable_type(PyObject* value) noexcept
# return the type of a NumPy scalar that a loop can read, or -1 for objects of any other class
cdef int type_of_scalar(PyTypeObject* cls) noexcept
# write an int as a number of this type. Return False if the type cannot hold it
cdef bint put_int(int type, Py_ssize_t number, char* target) noexcept
# write a Python number or NumPy scalar as a number of this type. Return False if that is left to NumPy
cdef bint put_number(int type, PyObject* value, char* target) noexcept
# write a float as a number of this type. Return False if that is left to NumPy
cdef bint put_float(int type, double number, char* target) noexcept
cdef PyObject* map_in_general(Loop* loop, PyObject* const* args) except? NULL   # return the result of a ufunc, or NULL
cdef PyObject* map_numbers(Loop* loop, PyObject* const* args) except? NULL
# return the result of a ufunc that is called with `out` or `dtype` as the only keyword, or NULL
cdef PyObject* call_loop_with_option(Loop* loop, PyObject* const* args, PyObject* kwnames) except? NULL
cdef PyObject* choose_elements(PyObject* const* args) except? NULL
cdef PyObject* clip_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL
