# Elementwise loops on small arrays, for every numeric type and every layout.
#
# All operands are of one type, except Python numbers, which take on that type. The axes of the result are laid out in
# memory as NumPy lays them out: in the order of the operands if these agree. A function that returns NULL leaves the
# call to NumPy.

cdef extern from "numpy/arrayobject.h":
    object PyDataType_METADATA(PyObject*)
    void PyArray_ScalarAsCtype(object, void*)

cdef extern from *:
    """
    #define has_metadata(descr) (PyDataType_METADATA((PyArray_Descr*)(descr)) != NULL)
    """
    bint has_metadata(PyObject* descr) noexcept

cdef PyTypeObject* FLOAT32_SCALAR = <PyTypeObject*><PyObject*>numpy.float32
cdef PyTypeObject* INT_SCALAR = <PyTypeObject*><PyObject*>numpy.intp
cdef PyTypeObject* BOOL_SCALAR = <PyTypeObject*><PyObject*>numpy.bool_
cdef double SMALLEST_FLOAT32 = numpy.finfo(numpy.float32).tiny
cdef double LARGEST_FLOAT32 = numpy.finfo(numpy.float32).max


cdef int readable_type(PyObject* value) noexcept:
    cdef int type
    if Py_TYPE(value) != &PyArray_Type:
        return -1
    type = PyArray_TYPE(<PyArrayObject*>value)
    if type >= N_TYPES or type == cnp.NPY_LONGDOUBLE or not PyArray_ISBEHAVED_RO(<PyArrayObject*>value):
        return -1
    return -1 if has_metadata(PyArray_DESCR(<PyArrayObject*>value)) else type


cdef inline int type_of_scalar(PyTypeObject* cls) noexcept:
    if cls == FLOAT64_SCALAR:
        return cnp.NPY_DOUBLE
    if cls == FLOAT32_SCALAR:
        return cnp.NPY_FLOAT
    if cls == INT_SCALAR:
        return cnp.NPY_INTP
    return cnp.NPY_BOOL if cls == BOOL_SCALAR else -1


cdef enum:
    MOST_CONVERTED = 64     # elements, as NumPy is faster for more


# --- operands ---------------------------------------------------------------------------------------------------------


cdef bint read_operands(Operands* operands, PyObject* const* args, int n, int other_type) noexcept:
    """Read arguments as operands of one type. Return False if they are not.

    If all are Python numbers, the type is `other_type` (-1: none). One operand may be a mask of bools among
    floating-point numbers.
    """
    cdef int i, type, common = -1, mask = -1
    operands.n = n
    for i in range(n):
        operands.arrays[i] = NULL
        if Py_TYPE(args[i]) == &PyArray_Type:
            type = readable_type(args[i])
            if type < 0:
                return False
            operands.arrays[i] = args[i]
            operands.data[i] = <char*>PyArray_DATA(<PyArrayObject*>args[i])
            if type == cnp.NPY_BOOL and mask < 0:
                mask = i
                continue
        else:
            type = type_of_scalar(Py_TYPE(args[i]))
            if type < 0:
                continue
        if common >= 0 and type != common:
            return False
        common = type
    if mask >= 0 and common != cnp.NPY_DOUBLE and common != cnp.NPY_FLOAT:
        if common >= 0 and common != cnp.NPY_BOOL:
            return False
        common, mask = cnp.NPY_BOOL, -1
    operands.type = other_type if common < 0 else common
    operands.mask = mask
    if operands.type < 0:
        return False
    operands.has_numbers = False
    for i in range(n):
        if operands.arrays[i] == NULL:
            operands.has_numbers |= Py_TYPE(args[i]) == &PyFloat_Type or Py_TYPE(args[i]) == &PyLong_Type
            operands.data[i] = <char*>operands.numbers[i]
            if not put_number(operands.type, args[i], operands.data[i]):
                return False
    return True


cdef bint put_number(int type, PyObject* value, char* target) noexcept:
    """Write a number as one of this type. Return False if that is not exact or is left to NumPy."""
    if Py_TYPE(value) == &PyFloat_Type or Py_TYPE(value) == FLOAT64_SCALAR and type == cnp.NPY_DOUBLE:
        return put_float(type, PyFloat_AS_DOUBLE(value), target)
    if Py_TYPE(value) == &PyLong_Type and is_compact(value):
        return put_int(type, compact_value(value), target)
    if type_of_scalar(Py_TYPE(value)) == type:
        PyArray_ScalarAsCtype(<object>value, target)
        return True
    if Py_TYPE(value) == &PyBool_Type and type == cnp.NPY_BOOL:
        (<cnp.npy_bool*>target)[0] = value == Py_True
        return True
    return False


cdef bint put_float(int type, double number, char* target) noexcept:
    if type == cnp.NPY_DOUBLE or type == cnp.NPY_CDOUBLE:
        (<double*>target)[0] = number
        (<double*>target)[1] = 0.0
        return True
    if type != cnp.NPY_FLOAT and type != cnp.NPY_CFLOAT:
        return False
    if number != 0.0 and not SMALLEST_FLOAT32 <= abs(number) <= LARGEST_FLOAT32:
        return False        # NumPy may warn about it
    (<float*>target)[0] = <float>number
    (<float*>target)[1] = 0.0
    return True


cdef bint put_int(int type, Py_ssize_t number, char* target) noexcept:
    if type == cnp.NPY_BYTE:
        (<cnp.npy_byte*>target)[0] = <cnp.npy_byte>number
        return -128 <= number <= 127
    if type == cnp.NPY_UBYTE:
        (<cnp.npy_ubyte*>target)[0] = <cnp.npy_ubyte>number
        return 0 <= number <= 255
    if type == cnp.NPY_SHORT:
        (<cnp.npy_short*>target)[0] = <cnp.npy_short>number
        return -32768 <= number <= 32767
    if type == cnp.NPY_USHORT:
        (<cnp.npy_ushort*>target)[0] = <cnp.npy_ushort>number
        return 0 <= number <= 65535
    if type == cnp.NPY_INT or type == cnp.NPY_UINT:         # an int of one digit has 30 bits
        (<cnp.npy_int*>target)[0] = <cnp.npy_int>number
        return number >= 0 or type == cnp.NPY_INT
    if type == cnp.NPY_LONG or type == cnp.NPY_ULONG:
        (<cnp.npy_long*>target)[0] = <cnp.npy_long>number
        return number >= 0 or type == cnp.NPY_LONG
    if type == cnp.NPY_LONGLONG or type == cnp.NPY_ULONGLONG:
        (<cnp.npy_longlong*>target)[0] = number
        return number >= 0 or type == cnp.NPY_LONGLONG
    return put_float(type, <double>number, target)


cdef bint find_extents(Operands* operands) noexcept:
    """Find the shape that the operands are broadcast to. Return False if there is none, or if loops gain nothing."""
    cdef PyArrayObject* array
    cdef cnp.npy_intp extent, size = 1
    cdef int i, axis, missing
    operands.n_axes = 0
    for i in range(operands.n):
        if operands.arrays[i] != NULL:
            operands.n_axes = max(operands.n_axes, PyArray_NDIM(<PyArrayObject*>operands.arrays[i]))
    if not 0 < operands.n_axes <= MOST_AXES:
        return False
    for axis in range(operands.n_axes):
        operands.extents[axis] = 1
    for i in range(operands.n):
        if operands.arrays[i] == NULL:
            continue
        array = <PyArrayObject*>operands.arrays[i]
        missing = operands.n_axes - PyArray_NDIM(array)
        for axis in range(missing, operands.n_axes):
            extent = PyArray_DIMS(array)[axis - missing]
            if operands.extents[axis] == 1:
                operands.extents[axis] = extent
            elif extent != operands.extents[axis] and extent != 1:
                return False
    for axis in range(operands.n_axes):
        size *= operands.extents[axis]
        if not 0 < size <= LARGEST:
            return False
    return True


# --- ufuncs -----------------------------------------------------------------------------------------------------------


cdef PyObject* map_in_general(Loop* loop, PyObject* const* args) except? NULL:
    cdef Operands operands
    cdef TypedLoop* typed
    if loop.typed == NULL or not read_operands(&operands, args, loop.n_in, -1):
        return NULL
    if not find_extents(&operands):
        return NULL if operands.n_axes else map_numbers(loop, args)
    typed = loop_of_type(loop, operands.type)
    if typed == NULL:
        return map_converted(loop, &operands, converting_loop(loop, operands.type))
    return map_operands(loop, &operands, typed)


cdef PyObject* map_operands(Loop* loop, Operands* operands, TypedLoop* typed) except? NULL:
    cdef PyObject* result
    cdef int order
    if operands.has_numbers and not takes_numbers(loop, typed, operands.type):
        return NULL
    if operands.mask >= 0 and not takes_masks(loop, typed, operands.type):
        return NULL
    if operands.mask < 0 and is_one_loop(operands, &order):
        result = map_at_once(typed, operands, order)
    else:
        result = map_along_axes(operands, typed.result_type, typed.function, typed.data)
    return checked(loop, operands, result)


cdef inline PyObject* checked(Loop* loop, Operands* operands, PyObject* result) except NULL:
    """Return the result, unless the loop has raised an exception."""
    if operands.type < cnp.NPY_FLOAT and PyErr_Occurred() != NULL:      # as for a power of integers
        Py_DECREF(result)
        return NULL
    finish_loop(loop, result)
    return result


cdef bint takes_masks(Loop* loop, TypedLoop* typed, int type) except -1:
    """Return whether NumPy converts bools to numbers of this type. Logical functions do the contrary."""
    cdef tuple dtypes
    cdef char state = MISSING
    if typed.mask_state == UNKNOWN:
        dtypes = cnp.PyArray_DescrFromType(cnp.NPY_BOOL), cnp.PyArray_DescrFromType(type)
        if loop.n_in == 2:
            for pair in (dtypes, dtypes[::-1]):
                if resolved_types(<object>loop.ufunc, pair + (None,), False) != (type, type, typed.result_type):
                    break
            else:
                state = FOUND
        typed.mask_state = state
    return typed.mask_state == FOUND


cdef bint is_one_loop(Operands* operands, int* order) noexcept:
    """Return whether one loop can run along all operands, and find their order in memory.

    All with axes have to have the same shape, and either one axis or be contiguous in one order.
    """
    cdef PyArrayObject* array
    cdef int i, axis, found
    order[0] = 0
    for i in range(operands.n):
        array = <PyArrayObject*>operands.arrays[i]
        if array == NULL or PyArray_NDIM(array) == 0:
            continue
        if PyArray_NDIM(array) != operands.n_axes:
            return False
        for axis in range(operands.n_axes):
            if PyArray_DIMS(array)[axis] != operands.extents[axis]:
                return False
        if operands.n_axes > 1:
            found = PyArray_FLAGS(array) & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)
            if not found or (order[0] and found != order[0]):
                return False
            order[0] = found
    return True


cdef PyObject* map_at_once(TypedLoop* typed, Operands* operands, int order) except NULL:
    cdef PyObject* result = PyArray_New(&PyArray_Type, operands.n_axes, operands.extents, typed.result_type, NULL, NULL,
                                        0, order == NPY_ARRAY_F_CONTIGUOUS, NULL)
    run_at_once(typed, operands, result)
    return result


cdef PyObject* map_converted(Loop* loop, Operands* operands, TypedLoop* typed) except? NULL:
    """Run one loop on converted copies of the operands, as NumPy does for the square root of ints."""
    cdef double copies[3][MOST_CONVERTED]
    cdef cnp.npy_intp steps[3]
    cdef cnp.npy_intp n = 1
    cdef int order, i
    cdef Iteration iteration
    cdef PyObject* result
    if typed == NULL or operands.mask >= 0 or not is_one_loop(operands, &order):
        return NULL
    if operands.has_numbers and not takes_numbers(loop, typed, operands.type):
        return NULL
    for i in range(operands.n_axes):
        n *= operands.extents[i]
    if n > MOST_CONVERTED or n == 1 and typed.loop_type == NPY_HALF:        # NumPy may choose another loop for one
        return NULL
    if not convert_operands(operands, typed.loop_type, n, copies, steps):
        return NULL
    lay_out_operands(&iteration, operands)
    order_axes(&iteration)
    result = new_result(&iteration, operands.n, operands.n_axes, operands.extents, typed.result_type)
    run_on_copies(typed, operands.n, n, copies, steps, <char*>PyArray_DATA(<PyArrayObject*>result))
    finish_loop(loop, result)
    return result


cdef bint convert_operands(Operands* operands, int loop_type, cnp.npy_intp n, double (*copies)[MOST_CONVERTED],
                           cnp.npy_intp* steps) noexcept:
    """Copy the operands without gaps to the loop's type. Return False if NumPy might warn about the conversion."""
    cdef cnp.npy_intp step, k
    cdef int i
    for i in range(operands.n):
        step = step_of(operands.arrays[i])
        steps[i] = size_of_floating(loop_type) if step else 0
        for k in range(n if step else 1):
            if operands.type != cnp.NPY_DOUBLE:
                put_whole(loop_type, operands.type, operands.data[i] + k * step, <char*>copies[i] + k * steps[i])
            elif not put_float(loop_type, (<double*>(operands.data[i] + k * step))[0], <char*>copies[i] + k * steps[i]):
                return False
    return True


cdef inline cnp.npy_intp size_of_floating(int type) noexcept:
    return 2 if type == NPY_HALF else 4 if type == cnp.NPY_FLOAT else 8


cdef inline void put_whole(int loop_type, int type, char* number, char* target) noexcept:
    """Write an integer as a floating-point number. Those that NumPy converts to float16 or float32 are small."""
    if loop_type == cnp.NPY_DOUBLE:
        (<double*>target)[0] = whole_as_double(type, number)
    elif loop_type == cnp.NPY_FLOAT:
        (<float*>target)[0] = <float>whole_as_double(type, number)
    else:
        (<unsigned short*>target)[0] = HALVES[<int>whole_as_double(type, number) + 128]


cdef inline double whole_as_double(int type, char* number) noexcept:
    if type == cnp.NPY_LONG:
        return <double>(<cnp.npy_long*>number)[0]
    if type == cnp.NPY_BOOL:
        return <double>(number[0] != 0)
    if type == cnp.NPY_BYTE:
        return <double>(<cnp.npy_byte*>number)[0]
    if type == cnp.NPY_UBYTE:
        return <double>(<cnp.npy_ubyte*>number)[0]
    if type == cnp.NPY_SHORT:
        return <double>(<cnp.npy_short*>number)[0]
    if type == cnp.NPY_USHORT:
        return <double>(<cnp.npy_ushort*>number)[0]
    if type == cnp.NPY_INT:
        return <double>(<cnp.npy_int*>number)[0]
    if type == cnp.NPY_UINT:
        return <double>(<cnp.npy_uint*>number)[0]
    if type == cnp.NPY_ULONG:
        return <double>(<cnp.npy_ulong*>number)[0]
    if type == cnp.NPY_LONGLONG:
        return <double>(<cnp.npy_longlong*>number)[0]
    return <double>(<cnp.npy_ulonglong*>number)[0]


cdef bytes halves = numpy.arange(-128, 256).astype("e").tobytes()
cdef const unsigned short* HALVES = <const unsigned short*><const char*>halves      # the float16 of each number


cdef void run_on_copies(TypedLoop* typed, int n_operands, cnp.npy_intp n, double (*copies)[MOST_CONVERTED],
                        cnp.npy_intp* steps, char* result) noexcept:
    cdef char* pointers[4]
    cdef cnp.npy_intp strides[4]
    cdef int i
    for i in range(n_operands):
        pointers[i], strides[i] = <char*>copies[i], steps[i]
    pointers[n_operands], strides[n_operands] = result, size_of_result(typed)
    forget_errors()
    typed.function(pointers, &n, strides, typed.data)


cdef inline cnp.npy_intp size_of_result(TypedLoop* typed):
    return cnp.PyArray_DescrFromType(typed.result_type).itemsize


cdef inline void run_at_once(TypedLoop* typed, Operands* operands, PyObject* result) noexcept:
    cdef char* pointers[4]
    cdef cnp.npy_intp strides[4]
    cdef cnp.npy_intp n = 1
    cdef int i
    for i in range(operands.n_axes):
        n *= operands.extents[i]
    for i in range(operands.n):
        pointers[i] = operands.data[i]
        strides[i] = step_of(operands.arrays[i])
    pointers[operands.n] = <char*>PyArray_DATA(<PyArrayObject*>result)
    strides[operands.n] = step_of(result)
    forget_errors()
    typed.function(pointers, &n, strides, typed.data)


cdef inline cnp.npy_intp step_of(PyObject* array) noexcept:
    """Return the step between the elements of an array that one loop takes, or 0 for a number (NULL)."""
    if array == NULL or PyArray_NDIM(<PyArrayObject*>array) == 0:
        return 0
    if PyArray_NDIM(<PyArrayObject*>array) == 1:
        return PyArray_STRIDES(<PyArrayObject*>array)[0]
    return PyArray_ITEMSIZE(<PyArrayObject*>array)


cdef PyObject* map_along_axes(Operands* operands, int result_type, PyUFuncGenericFunction function,
                              void* data) except NULL:
    """Compute the result with several loops, or on copies of the operands."""
    cdef Iteration iteration
    cdef PyObject* result
    lay_out_operands(&iteration, operands)
    order_axes(&iteration)
    result = new_result(&iteration, operands.n, operands.n_axes, operands.extents, result_type)
    merge_axes(&iteration)
    forget_errors()
    if not run_iteration(&iteration, function, data, False):
        Py_DECREF(result)
        raise MemoryError()
    return result


cdef void lay_out_operands(Iteration* iteration, Operands* operands) noexcept:
    """Describe the iteration over the operands, which the result follows."""
    cdef PyArrayObject* array
    cdef int n = operands.n_axes, i, k, axis
    iteration.n_operands, iteration.n_axes, iteration.reduces = operands.n + 1, n, False
    iteration.mask, iteration.mask_type = operands.mask, operands.type
    for k in range(n):
        iteration.extents[k] = operands.extents[n - 1 - k]
        iteration.strides[k][operands.n] = 0
    for i in range(operands.n):
        array = <PyArrayObject*>operands.arrays[i]
        iteration.pointers[i] = operands.data[i]
        iteration.sizes[i] = 0 if array == NULL else PyArray_ITEMSIZE(array)
        if i == operands.mask:
            iteration.mask_ndim = PyArray_NDIM(array)
            iteration.sizes[i] = sizeof(double) if operands.type == cnp.NPY_DOUBLE else sizeof(float)
        for k in range(n):
            axis = -1 if array == NULL else PyArray_NDIM(array) - 1 - k
            iteration.strides[k][i] = 0
            if axis >= 0 and PyArray_DIMS(array)[axis] != 1:
                iteration.strides[k][i] = PyArray_STRIDES(array)[axis]


cdef PyObject* new_result(Iteration* iteration, int operand, int n_axes, cnp.npy_intp* extents, int type) except NULL:
    """Return a new array as an operand of the iteration, with its axes in memory in the iteration's order."""
    cdef cnp.npy_intp strides[MOST_AXES]
    cdef cnp.npy_intp size = cnp.PyArray_DescrFromType(type).itemsize, stride = size
    cdef PyObject* result
    cdef int k
    for k in range(n_axes):
        strides[n_axes - 1 - iteration.order[k]] = stride
        if iteration.extents[k] != 1:
            iteration.strides[k][operand] = stride
        stride *= iteration.extents[k]
    result = PyArray_New(&PyArray_Type, n_axes, extents, type, strides, NULL, 0, 0, NULL)
    iteration.sizes[operand] = size
    iteration.pointers[operand] = <char*>PyArray_DATA(<PyArrayObject*>result)
    return result


# --- ufuncs on numbers, and with `out` --------------------------------------------------------------------------------


cdef int type_of_numbers(PyObject* const* args, int n) noexcept:
    """Return the type that NumPy gives Python numbers without an array, or -1 if an argument is anything else."""
    cdef int i, type, found = cnp.NPY_BOOL
    for i in range(n):
        if Py_TYPE(args[i]) == &PyFloat_Type:
            type = cnp.NPY_DOUBLE
        elif Py_TYPE(args[i]) == &PyLong_Type:
            type = cnp.NPY_INTP
        elif Py_TYPE(args[i]) == &PyBool_Type:
            type = cnp.NPY_BOOL
        else:
            return -1
        found = max(found, type)
    return found


cdef inline bint is_ordinary(int type) noexcept:
    """Return whether loops of this type give the same bits for one number, whatever the strides."""
    return type == cnp.NPY_DOUBLE or type == cnp.NPY_INTP or type == cnp.NPY_BOOL or type == cnp.NPY_FLOAT


cdef inline bint is_left_to_numpy(Loop* loop, int type) noexcept:
    """Return whether NumPy surely has to serve numbers of this type: no loop, or one that converts to float16."""
    cdef TypedLoop* typed = &loop.typed[type]
    return typed.state == MISSING or typed.state == CONVERTING and typed.loop_type == NPY_HALF


cdef PyObject* map_numbers(Loop* loop, PyObject* const* args) except? NULL:
    """Return the scalar that a ufunc computes from numbers and arrays without axes, or NULL."""
    cdef Operands operands
    cdef TypedLoop* typed
    cdef double copies[3][MOST_CONVERTED]
    cdef cnp.npy_intp steps[3]
    cdef double result[2]
    cdef int type = type_of_numbers(args, loop.n_in)
    if loop.typed == NULL or type >= 0 and is_left_to_numpy(loop, type):
        return NULL
    if not read_operands(&operands, args, loop.n_in, type):
        return NULL
    if operands.mask >= 0 or not is_ordinary(operands.type):
        return NULL
    typed = loop_of_type(loop, operands.type)
    if typed == NULL:
        typed = converting_loop(loop, operands.type)
        if typed == NULL or typed.loop_type == NPY_HALF or (
                operands.has_numbers and not takes_numbers(loop, typed, operands.type)):
            return NULL
        convert_operands(&operands, typed.loop_type, 1, copies, steps)
        run_on_copies(typed, operands.n, 1, copies, steps, <char*>result)
    else:
        if operands.has_numbers and not takes_numbers(loop, typed, operands.type):
            return NULL
        run_on_numbers(typed, &operands, <char*>result)
    return checked(loop, &operands, new_scalar_of(typed, result))


cdef void run_on_numbers(TypedLoop* typed, Operands* operands, char* result) noexcept:
    cdef char* pointers[4]
    cdef cnp.npy_intp strides[4]
    cdef cnp.npy_intp one = 1
    cdef int i
    for i in range(operands.n):
        pointers[i], strides[i] = operands.data[i], 0
    pointers[operands.n], strides[operands.n] = result, 0
    forget_errors()
    typed.function(pointers, &one, strides, typed.data)


cdef PyObject* new_scalar_of(TypedLoop* typed, void* number) except NULL:
    descr = cnp.PyArray_DescrFromType(typed.result_type)
    return PyArray_Scalar(number, <PyObject*>descr, NULL)


cdef PyObject* map_into(Loop* loop, PyObject* const* args, PyObject* out) except? NULL:
    """Write the result of a ufunc to `out` and return `out`, or NULL if that takes more than one loop."""
    cdef Operands operands
    cdef TypedLoop* typed
    cdef int order
    if loop.typed == NULL or not read_operands(&operands, args, loop.n_in, -1) or operands.mask >= 0:
        return NULL
    if not find_extents(&operands) or not is_one_loop(&operands, &order):
        return NULL
    typed = loop_of_type(loop, operands.type)
    if typed == NULL or operands.has_numbers and not takes_numbers(loop, typed, operands.type):
        return NULL
    if readable_type(out) != typed.result_type or not takes_results(&operands, out, order):
        return NULL
    run_at_once(typed, &operands, out)
    Py_INCREF(<object>out)
    return checked(loop, &operands, out)


NAME_OF_OUT, NAME_OF_DTYPE = "out", "dtype"


cdef PyObject* call_loop_with_option(Loop* loop, PyObject* const* args, PyObject* kwnames) except? NULL:
    """Return the result of a ufunc for arguments followed by `out` or `dtype`, or NULL if NumPy has to serve it."""
    if PyTuple_GET_SIZE(kwnames) != 1:
        return NULL
    if PyTuple_GET_ITEM(kwnames, 0) == <PyObject*>NAME_OF_OUT:
        return map_into(loop, args, args[loop.n_in])
    if PyTuple_GET_ITEM(kwnames, 0) == <PyObject*>NAME_OF_DTYPE:
        return map_to_type(loop, args, number_of_dtype(args[loop.n_in]))
    return NULL


cdef PyObject* map_to_type(Loop* loop, PyObject* const* args, int wanted) except? NULL:
    """Return the result of a ufunc in this dtype, if it has that anyway or is to be float32 instead of float64."""
    cdef Operands operands
    cdef TypedLoop* typed
    cdef bint narrows
    if wanted < 0 or loop.typed == NULL or not read_operands(&operands, args, loop.n_in, -1) or operands.mask >= 0:
        return NULL
    if operands.has_numbers and operands.type != cnp.NPY_DOUBLE or not find_extents(&operands):
        return NULL
    narrows = operands.type == cnp.NPY_DOUBLE and wanted == cnp.NPY_FLOAT
    typed = loop_of_type(loop, cnp.NPY_FLOAT if narrows else operands.type)
    if typed == NULL or typed.result_type != wanted or narrows and operands.has_numbers:
        return NULL
    return map_converted(loop, &operands, typed) if narrows else map_operands(loop, &operands, typed)


cdef bint takes_results(Operands* operands, PyObject* out, int order) noexcept:
    """Return whether one loop can write its result to `out` without reading what it has written."""
    cdef int flags = PyArray_FLAGS(<PyArrayObject*>out), i
    if not flags & NPY_ARRAY_WRITEABLE or flags < 0:        # the highest flag makes NumPy warn about writes
        return False
    if PyArray_NDIM(<PyArrayObject*>out) != operands.n_axes or (operands.n_axes > 1 and not flags & order):
        return False
    if magnitude(step_of(out)) < PyArray_ITEMSIZE(<PyArrayObject*>out):
        return False
    for i in range(operands.n_axes):
        if PyArray_DIMS(<PyArrayObject*>out)[i] != operands.extents[i]:
            return False
    for i in range(operands.n):
        if operands.arrays[i] != NULL and not are_apart(operands.arrays[i], out) and (
                not hold_the_same(operands.arrays[i], out)):
            return False
    return True


cdef bint hold_the_same(PyObject* array, PyObject* out) noexcept:
    """Return whether both arrays have the same elements, in the same order."""
    return (PyArray_DATA(<PyArrayObject*>array) == PyArray_DATA(<PyArrayObject*>out)
            and PyArray_ITEMSIZE(<PyArrayObject*>array) == PyArray_ITEMSIZE(<PyArrayObject*>out)
            and step_of(array) == step_of(out))


cdef bint are_apart(PyObject* array, PyObject* out) noexcept:
    """Return whether the address ranges of two arrays do not overlap."""
    return end_of(array) <= start_of(out) or end_of(out) <= start_of(array)


cdef inline cnp.npy_intp last_of(PyObject* array) noexcept:
    """Return the offset of the last element from the first one."""
    return step_of(array) * (PyArray_SIZE(<PyArrayObject*>array) - 1)


cdef inline char* start_of(PyObject* array) noexcept:
    return <char*>PyArray_DATA(<PyArrayObject*>array) + min(0, last_of(array))


cdef inline char* end_of(PyObject* array) noexcept:
    return (<char*>PyArray_DATA(<PyArrayObject*>array) + PyArray_ITEMSIZE(<PyArrayObject*>array)
            + max(0, last_of(array)))


# --- `where` and `clip` -----------------------------------------------------------------------------------------------


cdef PyObject* choose_elements(PyObject* const* args) except? NULL:
    """Return the result of `where` for a mask and two operands of one type, or NULL."""
    cdef Operands operands
    cdef int type = -1, size, i
    if readable_type(args[0]) != cnp.NPY_BOOL:
        return NULL
    if Py_TYPE(args[1]) == &PyFloat_Type and Py_TYPE(args[2]) == &PyFloat_Type:
        type = cnp.NPY_DOUBLE
    if not read_operands(&operands, args + 1, 2, type) or operands.mask >= 0:
        return NULL
    operands.n = 3
    for i in range(2, 0, -1):
        operands.arrays[i], operands.data[i] = operands.arrays[i - 1], operands.data[i - 1]
    operands.arrays[0] = args[0]
    operands.data[0] = <char*>PyArray_DATA(<PyArrayObject*>args[0])
    if not find_extents(&operands):
        return NULL
    size = cnp.PyArray_DescrFromType(operands.type).itemsize
    return map_along_axes(&operands, operands.type, choose_loop(size), NULL)


cdef Loop minimum, maximum, clipping
find_loop(&minimum, numpy.minimum)
find_loop(&maximum, numpy.maximum)
find_loop(&clipping, getattr(numpy_umath, "clip", None))


cdef PyObject* clip_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    """Return the result of `clip` for an array and its limits, or NULL. A limit may be None."""
    cdef PyObject* limited[2]
    cdef PyObject* low = args[1] if n > 1 else Py_None
    cdef PyObject* high = args[2] if n > 2 else Py_None
    if kwnames != NULL or n > 3 or low == Py_None and high == Py_None:
        return NULL
    if low != Py_None and high != Py_None:
        return map_in_general(&clipping, args) if clipping.kind != NO_LOOP else NULL
    limited[0] = args[0]
    limited[1] = high if low == Py_None else low
    return map_elements(&minimum if low == Py_None else &maximum, limited)
