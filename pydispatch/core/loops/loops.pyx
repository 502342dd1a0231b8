# NumPy's inner loops, called directly on small arrays.
#
# NumPy takes about 3,000 instructions from a call of a universal function to its inner loop. They decide things that
# are obvious if all operands are aligned, contiguous and of float64. Then the loop is called directly: the same
# function on the same numbers gives the same bits. Floating-point errors are reported through NumPy, so `errstate`
# holds. Operands of another type or layout take elementwise.pyx. Cases that are not simple there either are left to
# NumPy: then these functions return NULL, or False, without an error.

cdef extern from "numpy/ufuncobject.h":
    ctypedef struct PyUFuncObject:
        int nin, nout, nargs, ntypes, core_enabled
        PyUFuncGenericFunction* functions
        void** data
        char* types
        const char* name
    int PyUFunc_GiveFloatingpointErrors(const char*, int) except -1

cnp.import_umath()

cdef enum:
    LARGEST_PRODUCT = 32768     # multiplications in a product of matrices


cdef int find_loop(Loop* loop, function) except -1:
    """Find the loop of a function. Only universal functions, and `where`, have one."""
    cdef PyUFuncObject* ufunc
    loop.kind, loop.typed = NO_LOOP, NULL
    if function is numpy.where:
        loop.kind, loop.n_in = CHOICE, 3
        return 0
    universal = universal_function(function)
    if universal is None:
        return 0
    ufunc = <PyUFuncObject*><PyObject*>universal
    if ufunc.nout != 1 or ufunc.nin > 3 or (ufunc.core_enabled and universal is not numpy.matmul):
        return 0
    loop.ufunc, loop.name, loop.n_in = <PyObject*>universal, ufunc.name, ufunc.nin
    loop.may_raise = getattr(numpy_umath, universal.__name__, None) is not universal
    if ufunc.core_enabled:
        loop.kind = PRODUCT
        find_loop_of_types(universal, (cnp.NPY_DOUBLE,) * ufunc.nargs, &loop.function, &loop.data)
        return 0
    loop.typed = typed_loops_of(universal).loops
    loop.kind = OTHER_ELEMENTWISE
    if universal is function and ufunc.nin <= 2:    # Numba may add a loop to its functions later
        find_loop_of_float64(loop)
    return 0


cdef int find_loop_of_float64(Loop* loop) except -1:
    """Use one loop directly for arrays of float64, and Python numbers beside them, if NumPy takes it for all."""
    cdef TypedLoop* typed = loop_of_type(loop, cnp.NPY_DOUBLE)
    if typed != NULL and typed.result_type == cnp.NPY_DOUBLE and takes_numbers(loop, typed, cnp.NPY_DOUBLE):
        loop.function, loop.data, loop.kind = typed.function, typed.data, ELEMENTWISE
    return 0


cdef object universal_function(function):
    """Return a universal function itself, or the one that a function of Numba's has. Return None for others."""
    if type(function) is numpy.ufunc:
        return function
    if type(function).__module__ == "numba.np.ufunc.dufunc":
        return function.ufunc
    return None


@cython.final
cdef class TypedLoops:
    cdef TypedLoop loops[N_TYPES]


cdef dict all_typed_loops = {}      # by universal function, never removed


cdef TypedLoops typed_loops_of(ufunc):
    found = all_typed_loops.get(ufunc)
    if found is None:
        found = all_typed_loops.setdefault(ufunc, TypedLoops.__new__(TypedLoops))
    return <TypedLoops>found


cdef TypedLoop* loop_of_type(Loop* loop, int type) except? NULL:
    cdef TypedLoop* found = &loop.typed[type]
    if read_state(&found.state) == UNKNOWN or found.n_types != (<PyUFuncObject*>loop.ufunc).ntypes:
        look_for_loop(<object>loop.ufunc, type, found)
    return found if found.state == FOUND else NULL


cdef TypedLoop* converting_loop(Loop* loop, int type) except? NULL:
    """Return the loop for arguments of this type that NumPy converts first."""
    loop_of_type(loop, type)
    return &loop.typed[type] if loop.typed[type].state == CONVERTING else NULL


cdef int look_for_loop(ufunc, int type, TypedLoop* loop) except -1:
    """Find the loop that NumPy takes for arguments of this type. It may convert them first, as it does to divide."""
    cdef tuple types = resolved_types(ufunc, (cnp.PyArray_DescrFromType(type),) * ufunc.nin + (None,), False)
    cdef char state = MISSING
    loop.fold_state = loop.mask_state = loop.number_state = UNKNOWN
    loop.n_types = (<PyUFuncObject*><PyObject*>ufunc).ntypes
    if types is not None and types[:-1] == types[:1] * ufunc.nin and (
            find_loop_of_types(ufunc, types, &loop.function, &loop.data)):
        loop.loop_type, loop.result_type = types[0], types[-1]
        if loop.loop_type != type:
            if can_convert(type, loop.loop_type) and is_number_type(loop.result_type):
                state = CONVERTING
        elif 0 <= loop.result_type < N_TYPES:
            state = FOUND
    write_state(&loop.state, state)
    return 0


cdef bint is_number_type(int type) noexcept:
    return 0 <= type < N_TYPES and type != cnp.NPY_LONGDOUBLE or type == NPY_HALF


cdef bint can_convert(int type, int loop_type) noexcept:
    """Return whether this conversion is from whole numbers to floating-point ones. No number overflows then."""
    return type < cnp.NPY_FLOAT and loop_type in (NPY_HALF, cnp.NPY_FLOAT, cnp.NPY_DOUBLE)


cdef bint takes_numbers(Loop* loop, TypedLoop* typed, int type) except -1:
    """Return whether NumPy takes this loop for Python numbers mixed with numbers of this type.

    If the universal function has loops for whole numbers, or its loop in double precision comes first, it may take
    another loop. A logical function takes the loop for truth values, which gives the same results: no conversion
    turns a nonzero number into 0.
    """
    if typed.number_state == UNKNOWN:
        typed.number_state = FOUND if resolves_numbers(<object>loop.ufunc, typed, type) else MISSING
    return typed.number_state == FOUND


cdef tuple LOGICAL = (numpy.logical_and, numpy.logical_or, numpy.logical_xor)


cdef bint resolves_numbers(ufunc, TypedLoop* typed, int type) except -1:
    """Look `takes_numbers` up for every order of such numbers and Python's."""
    cdef int n = ufunc.nin, i, k, code
    cdef tuple choices = (int, float, cnp.PyArray_DescrFromType(type)), given
    cdef tuple expected = (typed.loop_type,) * n + (typed.result_type,)
    cdef bint has_type      # tracked apart: `x in given` fails here, as the dtype of 64-bit integers equals `int`
    for i in range((3, 9, 27)[n - 1]):
        given, code, has_type = (), i, False
        for k in range(n):
            given += (choices[code % 3],)
            has_type |= code % 3 == 2
            code //= 3
        if type < cnp.NPY_FLOAT and float in given:
            continue            # these are converted to another type
        if not has_type and (type != cnp.NPY_DOUBLE or float not in given):
            continue            # Python numbers without an array decide on a type by themselves
        resolved = resolved_types(ufunc, given + (None,), False)
        if resolved != expected and not (ufunc in LOGICAL and resolved == (cnp.NPY_BOOL,) * (n + 1)):
            return False
    return True


cdef tuple resolved_types(ufunc, tuple dtypes, bint reduction):
    """Return the numbers of the types that NumPy calculates with, or None if it cannot."""
    cdef list numbers = []
    try:
        resolved = ufunc.resolve_dtypes(dtypes, reduction=reduction)
    except TypeError:
        return None
    for dtype in resolved:
        numbers.append(dtype.num)
    return tuple(numbers)


cdef bint find_loop_of_types(function, types, PyUFuncGenericFunction* found, void** data) except -1:
    """Find the loop of a universal function for these types, given by number."""
    cdef PyUFuncObject* ufunc
    cdef int i, k
    if type(function) is not numpy.ufunc:
        return False
    ufunc = <PyUFuncObject*><PyObject*>function
    if ufunc.nargs != len(types):
        return False
    for i in range(ufunc.ntypes):
        for k in range(ufunc.nargs):
            if ufunc.types[i * ufunc.nargs + k] != <int>types[k]:
                break
        else:
            found[0] = ufunc.functions[i]
            data[0] = NULL if ufunc.data == NULL else ufunc.data[i]
            return found[0] != NULL
    return False


cdef PyObject* call_loop(Loop* loop, PyObject* const* args) except? NULL:
    """Return the result of a universal function, a new array or a scalar, or NULL if NumPy has to compute it."""
    if loop.kind == ELEMENTWISE:
        return map_elements(loop, args)
    if loop.kind == PRODUCT:
        return multiply_matrices(args[0], args[1], False, False)
    if loop.kind == CHOICE:
        return choose_elements(args)
    return map_in_general(loop, args)


cdef int report_errors(const char* name, PyObject* result) except -1:
    """Warn or raise as `errstate` specifies. Release the result on an exception."""
    cdef int errors = raised_errors()
    if not errors:
        return 0
    forget_errors()
    try:
        PyUFunc_GiveFloatingpointErrors(name, errors)
    except:
        release_reference(result)
        raise
    return 0


cdef inline int finish_loop(Loop* loop, PyObject* result) except -1:
    """Raise the loop's exception, else warn or raise as `errstate` specifies. Release the result on an exception."""
    if loop.may_raise and PyErr_Occurred() != NULL:
        release_reference(result)
        return -1
    return report_errors(loop.name, result)


# --- element by element -----------------------------------------------------------------------------------------------


cdef inline bint read_operand(PyObject* value, Operand* operand) noexcept:
    """Read where the numbers of a value lie. Return False if a loop cannot read them."""
    if Py_TYPE(value) == &PyArray_Type:
        operand.data = <char*>PyArray_DATA(<PyArrayObject*>value)
        operand.stride = sizeof(double) if PyArray_NDIM(<PyArrayObject*>value) else 0
        if PyArray_NDIM(<PyArrayObject*>value) == 1 and PyArray_STRIDES(<PyArrayObject*>value)[0] != sizeof(double):
            return False            # one element of a strided array is also contiguous, but loops may check the stride
        return PyArray_TYPE(<PyArrayObject*>value) == cnp.NPY_DOUBLE and PyArray_ISCARRAY_RO(<PyArrayObject*>value)
    if Py_TYPE(value) == &PyFloat_Type or Py_TYPE(value) == FLOAT64_SCALAR:     # the scalar is also a Python float
        operand.number = PyFloat_AS_DOUBLE(value)
    elif Py_TYPE(value) == &PyLong_Type and is_compact(value):
        operand.number = <double>compact_value(value)
    else:
        return False
    operand.data = <char*>&operand.number
    operand.stride = 0
    return True


cdef inline bint same_extents(PyObject* left, PyObject* right) noexcept:
    cdef int axis
    if PyArray_NDIM(<PyArrayObject*>left) != PyArray_NDIM(<PyArrayObject*>right):
        return False
    for axis in range(PyArray_NDIM(<PyArrayObject*>left)):
        if PyArray_DIMS(<PyArrayObject*>left)[axis] != PyArray_DIMS(<PyArrayObject*>right)[axis]:
            return False
    return True


cdef inline PyObject* new_like(PyObject* array) except NULL:
    return new_array_of_double(PyArray_NDIM(<PyArrayObject*>array), PyArray_DIMS(<PyArrayObject*>array))


cdef inline bint is_small(PyObject* array) noexcept:
    return 0 < PyArray_SIZE(<PyArrayObject*>array) <= LARGEST


cdef bint is_small_shape(int n_axes, cnp.npy_intp* extents) noexcept:
    cdef cnp.npy_intp size = 1
    cdef int i
    for i in range(n_axes):
        if extents[i] > LARGEST:        # so that the product cannot overflow
            return False
        size *= extents[i]
        if size > LARGEST:
            return False
    return size > 0


cdef inline bint ends_with(PyObject* longer, PyObject* shorter) noexcept:
    """Return whether the one array has more axes, followed by those of the other."""
    cdef int n = PyArray_NDIM(<PyArrayObject*>shorter), missing = PyArray_NDIM(<PyArrayObject*>longer) - n, axis
    if missing <= 0:
        return False
    for axis in range(n):
        if PyArray_DIMS(<PyArrayObject*>longer)[missing + axis] != PyArray_DIMS(<PyArrayObject*>shorter)[axis]:
            return False
    return True


cdef PyObject* map_elements(Loop* loop, PyObject* const* args) except? NULL:
    cdef Operand operands[2]
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length
    cdef PyObject* whole = NULL     # an operand with the shape of the result
    cdef PyObject* result
    cdef int i
    for i in range(loop.n_in):
        if not read_operand(args[i], &operands[i]):
            return map_in_general(loop, args)
        if operands[i].stride == 0:
            continue
        if whole == NULL:
            whole = args[i]
        elif not same_extents(whole, args[i]):
            if ends_with(whole, args[i]):
                return map_with_row(loop, operands, whole, args[i], i)
            if ends_with(args[i], whole):
                return map_with_row(loop, operands, args[i], whole, 0)
            return map_in_general(loop, args)
    if whole == NULL:
        return map_numbers(loop, args)
    if not is_small(whole):
        return NULL
    result = new_like(whole)
    length = PyArray_SIZE(<PyArrayObject*>whole)
    for i in range(loop.n_in):
        pointers[i] = operands[i].data
        strides[i] = operands[i].stride
    pointers[loop.n_in] = <char*>PyArray_DATA(<PyArrayObject*>result)
    strides[loop.n_in] = sizeof(double)
    forget_errors()
    loop.function(pointers, &length, strides, loop.data)
    finish_loop(loop, result)
    return result


cdef PyObject* map_with_row(Loop* loop, Operand* operands, PyObject* whole, PyObject* row, int which) except? NULL:
    """Compute `map_elements` with an operand that repeats along the other's first axes. Copy it first, like NumPy."""
    cdef double on_stack[SMALL_COPIES]
    cdef char* copies = <char*>on_stack
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length = PyArray_SIZE(<PyArrayObject*>whole), size, filled
    cdef PyObject* result
    if not is_small(whole):
        return NULL
    size = length * sizeof(double)
    filled = PyArray_NBYTES(<PyArrayObject*>row)
    result = new_like(whole)
    pointers[0], pointers[1], pointers[2] = operands[0].data, operands[1].data, <char*>PyArray_DATA(
        <PyArrayObject*>result)
    strides[0] = strides[1] = strides[2] = sizeof(double)
    if filled == sizeof(double):
        strides[which] = 0
    elif filled < size:
        if size > <cnp.npy_intp>sizeof(on_stack):
            copies = <char*>PyMem_RawMalloc(size)
            if copies == NULL:
                Py_DECREF(result)
                raise MemoryError()
        memcpy(copies, operands[which].data, filled)
        while filled < size:
            memcpy(copies + filled, copies, min(filled, size - filled))
            filled += min(filled, size - filled)
        pointers[which] = copies
    forget_errors()
    loop.function(pointers, &length, strides, loop.data)
    if copies != <char*>on_stack:
        PyMem_RawFree(copies)
    finish_loop(loop, result)
    return result


cdef bint add_in_place(PyObject* total, PyObject* more) except -1:
    """Compute total += more, if that takes only a loop."""
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length, distance
    cdef TypedLoop* loop
    cdef int type = readable_type(total)
    if type < 0 or readable_type(more) != type or not same_extents(total, more) or not is_small(total):
        return False
    if not PyArray_ISCARRAY_RO(<PyArrayObject*>total) or not PyArray_ISCARRAY_RO(<PyArrayObject*>more):
        return False
    if not PyArray_FLAGS(<PyArrayObject*>total) & NPY_ARRAY_WRITEABLE or PyArray_NDIM(<PyArrayObject*>total) == 0:
        return False
    pointers[0] = pointers[2] = <char*>PyArray_DATA(<PyArrayObject*>total)
    pointers[1] = <char*>PyArray_DATA(<PyArrayObject*>more)
    distance = pointers[0] - pointers[1]
    if 0 < magnitude(distance) < PyArray_NBYTES(<PyArrayObject*>total):
        return False
    loop = loop_of_type(&adding, type)
    if loop == NULL:
        return False
    length = PyArray_SIZE(<PyArrayObject*>total)
    strides[0] = strides[1] = strides[2] = PyArray_ITEMSIZE(<PyArrayObject*>total)
    forget_errors()
    loop.function(pointers, &length, strides, loop.data)
    Py_INCREF(<object>total)
    report_errors(adding.name, total)
    Py_DECREF(total)
    return True


# --- sums -------------------------------------------------------------------------------------------------------------

cdef Loop adding
find_loop(&adding, numpy.add)


cdef PyObject* sum_of_all(PyObject* array) except? NULL:
    """Return the sum of all elements as a float64 scalar, added in the order of `add.reduce`."""
    cdef Operand operand
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length
    cdef double total = 0.0
    cdef PyObject* result
    if Py_TYPE(array) != &PyArray_Type or not read_operand(array, &operand) or not is_small(array):
        return NULL
    length = PyArray_SIZE(<PyArrayObject*>array)
    pointers[0] = pointers[2] = <char*>&total
    pointers[1] = operand.data
    strides[0] = strides[2] = 0
    strides[1] = sizeof(double)
    forget_errors()
    adding.function(pointers, &length, strides, adding.data)
    result = PyArray_Scalar(&total, PyArray_DESCR(<PyArrayObject*>array), NULL)
    report_errors(b"reduce", result)
    return result


cdef PyObject* sum_of_rows(PyObject* array) except? NULL:
    """Return the sum over the first axis, added in the order of `add.reduce`."""
    cdef Operand operand
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length, row
    cdef int ndim = PyArray_NDIM(<PyArrayObject*>array)
    cdef cnp.npy_intp* extents = PyArray_DIMS(<PyArrayObject*>array)
    cdef PyObject* result
    if ndim < 2 or not read_operand(array, &operand) or not is_small(array):
        return NULL
    length = PyArray_SIZE(<PyArrayObject*>array) // extents[0]
    if length == 1:
        return NULL         # NumPy adds these pairwise
    result = new_array_of_double(ndim - 1, extents + 1)
    pointers[0] = pointers[2] = <char*>PyArray_DATA(<PyArrayObject*>result)
    pointers[1] = operand.data
    strides[0] = strides[1] = strides[2] = sizeof(double)
    memset(pointers[0], 0, length * sizeof(double))
    forget_errors()
    for row in range(extents[0]):
        adding.function(pointers, &length, strides, adding.data)
        pointers[1] += length * sizeof(double)
    report_errors(b"reduce", result)
    return result


cdef PyObject* sum_along_axes(PyObject* array, PyObject* axes) except? NULL:
    """Return the sum over the tuple `axes`, added in the order of `add.reduce`, if these are the last axes in order."""
    cdef Operand operand
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length = 1, row, n_rows
    cdef Py_ssize_t n_axes = PyTuple_GET_SIZE(axes), kept, k
    cdef PyObject* axis
    cdef PyObject* result
    if Py_TYPE(array) != &PyArray_Type or not read_operand(array, &operand) or not is_small(array):
        return NULL
    kept = PyArray_NDIM(<PyArrayObject*>array) - n_axes
    if kept < 1 or n_axes == 0:
        return NULL
    for k in range(n_axes):
        axis = PyTuple_GET_ITEM(axes, k)
        if Py_TYPE(axis) != &PyLong_Type or not is_compact(axis) or compact_value(axis) != kept + k:
            return NULL
        length *= PyArray_DIMS(<PyArrayObject*>array)[kept + k]
    result = new_array_of_double(<int>kept, PyArray_DIMS(<PyArrayObject*>array))
    n_rows = PyArray_SIZE(<PyArrayObject*>result)
    pointers[0] = pointers[2] = <char*>PyArray_DATA(<PyArrayObject*>result)
    pointers[1] = operand.data
    strides[0] = strides[2] = 0
    strides[1] = sizeof(double)
    memset(pointers[0], 0, n_rows * sizeof(double))
    forget_errors()
    for row in range(n_rows):
        adding.function(pointers, &length, strides, adding.data)
        pointers[0] += sizeof(double)
        pointers[2] = pointers[0]
        pointers[1] += length * sizeof(double)
    report_errors(b"reduce", result)
    return result


# --- products of matrices ---------------------------------------------------------------------------------------------

cdef Loop multiplying
find_loop(&multiplying, numpy.matmul)
cdef PyUFuncGenericFunction multiplying_float32 = NULL
cdef void* data_of_float32 = NULL
find_loop_of_types(numpy.matmul, (cnp.NPY_FLOAT,) * 3, &multiplying_float32, &data_of_float32)


cdef inline bint is_matrix(PyObject* value) noexcept:
    return (Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 2
            and PyArray_ISBEHAVED_RO(<PyArrayObject*>value))


cdef PyObject* multiply_matrices(PyObject* left, PyObject* right, bint left_turned, bint right_turned) except? NULL:
    """Return the product of two matrices, each transposed first if it is `turned`."""
    cdef char* pointers[3]
    cdef cnp.npy_intp extents[4]
    cdef cnp.npy_intp strides[9]
    cdef cnp.npy_intp* of_left
    cdef cnp.npy_intp* of_right
    cdef cnp.npy_intp shape[2]
    cdef cnp.npy_intp count
    cdef int row = 1 if left_turned else 0, column = 0 if right_turned else 1
    cdef PyObject* result
    cdef int type
    if not is_matrix(left) or not is_matrix(right):
        return NULL
    type = PyArray_TYPE(<PyArrayObject*>left)
    if type != PyArray_TYPE(<PyArrayObject*>right) or type != cnp.NPY_DOUBLE and (
            type != cnp.NPY_FLOAT or multiplying_float32 == NULL):
        return NULL
    of_left = PyArray_DIMS(<PyArrayObject*>left)
    of_right = PyArray_DIMS(<PyArrayObject*>right)
    extents[0] = 1
    extents[1] = shape[0] = of_left[row]
    extents[2] = of_left[1 - row]
    extents[3] = shape[1] = of_right[column]
    count = extents[1] * extents[2] * extents[3]
    if extents[2] != of_right[1 - column] or not 0 < count <= LARGEST_PRODUCT:
        return NULL
    if type == cnp.NPY_DOUBLE:
        result = new_array_of_double(2, shape)
    else:
        result = PyArray_New(&PyArray_Type, 2, shape, type, NULL, NULL, 0, 0, NULL)
    pointers[0] = <char*>PyArray_DATA(<PyArrayObject*>left)
    pointers[1] = <char*>PyArray_DATA(<PyArrayObject*>right)
    pointers[2] = <char*>PyArray_DATA(<PyArrayObject*>result)
    strides[0] = strides[1] = strides[2] = 0
    strides[3] = PyArray_STRIDES(<PyArrayObject*>left)[row]
    strides[4] = PyArray_STRIDES(<PyArrayObject*>left)[1 - row]
    strides[5] = PyArray_STRIDES(<PyArrayObject*>right)[1 - column]
    strides[6] = PyArray_STRIDES(<PyArrayObject*>right)[column]
    strides[8] = sizeof(double) if type == cnp.NPY_DOUBLE else sizeof(float)
    strides[7] = shape[1] * strides[8]
    forget_errors()
    if type == cnp.NPY_DOUBLE:
        multiplying.function(pointers, extents, strides, multiplying.data)
    else:
        multiplying_float32(pointers, extents, strides, data_of_float32)
    report_errors(multiplying.name, result)
    return result


def loop_result(function, *args):
    """Return the result of a universal function's loop. Return NotImplemented if NumPy has to compute it."""
    cdef Loop loop
    cdef PyObject* values[3]
    cdef PyObject* result
    find_loop(&loop, function)
    if loop.kind == NO_LOOP or loop.n_in != len(args):
        return NotImplemented
    for i in range(len(args)):
        values[i] = PyTuple_GET_ITEM(<PyObject*>args, i)
    result = call_loop(&loop, values)
    return NotImplemented if result == NULL else steal(result)


# --- types ------------------------------------------------------------------------------------------------------------


cdef int type_of_python(PyObject* value) noexcept:
    """Return the type number of the dtype for one of Python's types, or -1."""
    if value == <PyObject*>&PyFloat_Type:
        return cnp.NPY_DOUBLE
    if value == <PyObject*>&PyLong_Type:
        return cnp.NPY_INTP
    return cnp.NPY_BOOL if value == <PyObject*>&PyBool_Type else -1


cdef int number_of_dtype(PyObject* dtype) noexcept:
    """Return the type number of a dtype of numbers in native form, or of a Python type's dtype, else -1."""
    cdef int type
    if not PyArray_DescrCheck(dtype):
        return type_of_python(dtype)
    type = number_of_descr(dtype)
    if not 0 <= type < N_TYPES:
        return -1
    own_dtype = cnp.PyArray_DescrFromType(type)
    return type if <PyObject*>own_dtype == dtype else -1
