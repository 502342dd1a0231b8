# Reductions of small arrays, along any axes.

cdef struct Folding:        # one reduction
    int n_axes, n_left                  # of the array, of the result
    int type
    bint axes[MOST_AXES]                # whether each axis is reduced
    bint keeps                          # whether reduced axes remain, with a length of 1
    cnp.npy_intp n_elements, n_reduced  # of the result, and of the array per element of the result
    cnp.npy_intp extents[MOST_AXES]     # of the result
    double number[2]                    # the result, if it has no axes
    Iteration iteration

cdef Fold summing
find_fold(&summing, numpy.add)


cdef int find_fold(Fold* fold, ufunc) except -1:
    find_loop(&fold.loop, ufunc)
    fold.initial = FIRST if ufunc.identity is None else ufunc.identity
    if fold.loop.n_in != 2 or not FIRST < fold.initial <= 1 and ufunc.identity is not None:
        fold.loop.kind = NO_LOOP
    return 0


cdef TypedLoop* fold_of_type(Fold* fold, int type) except? NULL:
    """Return the loop if NumPy reduces numbers of this type without conversion, else NULL."""
    cdef TypedLoop* found
    if fold.loop.typed == NULL or fold.loop.kind == NO_LOOP:
        return NULL
    found = loop_of_type(&fold.loop, type)
    if found == NULL:
        return NULL
    if found.fold_state == UNKNOWN:
        types = resolved_types(<object>fold.loop.ufunc, (None, cnp.PyArray_DescrFromType(type), None), True)
        found.fold_state = FOUND if types == (type, type, type) else MISSING
    return found if found.fold_state == FOUND else NULL


# --- which axes -------------------------------------------------------------------------------------------------------


cdef bint read_folding(Folding* folding, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except -1:
    """Read the arguments of a call: an array, axes and `keepdims`. Return False for any other call."""
    cdef PyObject* keeps
    folding.keeps = False
    if not 1 <= n <= 2:
        return False
    if kwnames != NULL and PyTuple_GET_SIZE(kwnames):
        keeps = args[n]
        if PyTuple_GET_SIZE(kwnames) != 1 or <object>PyTuple_GET_ITEM(kwnames, 0) != "keepdims" or (
                Py_TYPE(keeps) != &PyBool_Type):
            return False
        folding.keeps = keeps == Py_True
    return read_axes(folding, args[0], args[1] if n == 2 else Py_None)


cdef bint read_axes(Folding* folding, PyObject* array, PyObject* axes) noexcept:
    cdef Py_ssize_t k
    cdef int axis
    folding.type = readable_type(array)
    if folding.type < 0 or not is_small(array):
        return False
    folding.n_axes = PyArray_NDIM(<PyArrayObject*>array)
    if not 0 < folding.n_axes <= MOST_AXES:
        return False
    for axis in range(folding.n_axes):
        folding.axes[axis] = axes == Py_None
    if PyTuple_CheckExact(axes):
        for k in range(PyTuple_GET_SIZE(axes)):
            if not mark_axis(folding, PyTuple_GET_ITEM(axes, k)):
                return False
        if PyTuple_GET_SIZE(axes) == 0:
            return False
    elif axes != Py_None and not mark_axis(folding, axes):
        return False
    measure_result(folding, array)
    return True


cdef inline bint mark_axis(Folding* folding, PyObject* axis) noexcept:
    cdef Py_ssize_t k
    if Py_TYPE(axis) != &PyLong_Type or not is_compact(axis):
        return False
    k = compact_value(axis)
    if k < 0:
        k += folding.n_axes
    if not 0 <= k < folding.n_axes or folding.axes[k]:
        return False
    folding.axes[k] = True
    return True


cdef void measure_result(Folding* folding, PyObject* array) noexcept:
    cdef int axis
    cdef cnp.npy_intp extent
    folding.n_left, folding.n_elements, folding.n_reduced = 0, 1, 1
    for axis in range(folding.n_axes):
        extent = PyArray_DIMS(<PyArrayObject*>array)[axis]
        if folding.axes[axis]:
            folding.n_reduced *= extent
            extent = 1
            if not folding.keeps:
                continue
        folding.extents[folding.n_left] = extent
        folding.n_left += 1
        folding.n_elements *= extent


# --- the reduction ----------------------------------------------------------------------------------------------------


cdef PyObject* fold_as_called(Fold* fold, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    cdef Folding folding
    cdef PyObject* result
    if not read_folding(&folding, args, n, kwnames):
        return NULL
    result = fold_elements(fold, &folding, args[0])
    if result == NULL:
        return NULL
    report_errors(b"reduce", result)
    return result if folding.n_left else scalar_result(&folding, result)


cdef PyObject* fold_elements(Fold* fold, Folding* folding, PyObject* array) except? NULL:
    """Reduce `array` to a new one, or to `folding.number` and return `array`. Errors are not reported yet."""
    cdef Iteration* iteration = &folding.iteration
    cdef TypedLoop* loop = fold_of_type(fold, folding.type)
    cdef PyObject* result
    if loop == NULL:
        return NULL
    lay_out_folding(folding, array)
    order_axes(iteration)
    result = new_total(folding, array)
    merge_axes(iteration)
    begin_total(iteration, fold.initial, folding.type, folding.n_elements)
    forget_errors()
    if not run_iteration(iteration, loop.function, loop.data, fold.initial == FIRST):
        Py_DECREF(result)
        raise MemoryError()
    return result


cdef inline PyObject* scalar_result(Folding* folding, PyObject* array) except NULL:
    """Return the result without axes as a scalar. Release the reference to `array`."""
    cdef PyObject* number = PyArray_Scalar(folding.number, PyArray_DESCR(<PyArrayObject*>array), NULL)
    Py_DECREF(array)
    return number


cdef void lay_out_folding(Folding* folding, PyObject* array) noexcept:
    cdef Iteration* iteration = &folding.iteration
    cdef int n = folding.n_axes, axis, k
    iteration.n_operands, iteration.n_axes, iteration.reduces, iteration.mask = 2, n, True, -1
    iteration.sizes[0] = iteration.sizes[1] = PyArray_ITEMSIZE(<PyArrayObject*>array)
    iteration.pointers[1] = <char*>PyArray_DATA(<PyArrayObject*>array)
    for axis in range(n):
        k = n - 1 - axis
        iteration.extents[k] = PyArray_DIMS(<PyArrayObject*>array)[axis]
        iteration.strides[k][0] = 0
        iteration.strides[k][1] = 0 if iteration.extents[k] == 1 else PyArray_STRIDES(<PyArrayObject*>array)[axis]


cdef PyObject* new_total(Folding* folding, PyObject* array) except NULL:
    """Return the array for the result, with its axes in memory in the order of the iteration."""
    cdef Iteration* iteration = &folding.iteration
    cdef cnp.npy_intp strides[MOST_AXES]
    cdef int places[MOST_AXES]
    cdef cnp.npy_intp stride = iteration.sizes[0]
    cdef PyObject* result
    cdef int k, axis, place = 0
    if folding.n_left == 0:
        iteration.pointers[0] = <char*>folding.number
        Py_INCREF(<object>array)
        return array
    for axis in range(folding.n_axes):
        places[axis] = place
        if folding.keeps or not folding.axes[axis]:
            place += 1
    for k in range(folding.n_axes):
        axis = folding.n_axes - 1 - iteration.order[k]
        if folding.axes[axis]:
            if folding.keeps:
                strides[places[axis]] = stride
            continue
        strides[places[axis]] = stride
        if iteration.extents[k] != 1:
            iteration.strides[k][0] = stride
        stride *= iteration.extents[k]
    result = PyArray_New(&PyArray_Type, folding.n_left, folding.extents, folding.type, strides, NULL, 0, 0, NULL)
    iteration.pointers[0] = <char*>PyArray_DATA(<PyArrayObject*>result)
    return result


cdef void begin_total(Iteration* iteration, int initial, int type, cnp.npy_intp n) noexcept:
    cdef double number[2]
    cdef char* target = iteration.pointers[0]
    cdef cnp.npy_intp size = iteration.sizes[0], i
    if initial == FIRST:
        copy_first_elements(iteration)
    elif initial == 0:
        memset(target, 0, n * size)
    else:
        if type == cnp.NPY_BOOL:
            (<cnp.npy_bool*>number)[0] = True
        else:
            put_int(type, initial, <char*>number)
        for i in range(n):
            memcpy(target + i * size, number, size)


cdef void copy_first_elements(Iteration* iteration) noexcept:
    """Copy to each element of the result the first of the elements that it reduces."""
    cdef cnp.npy_intp position[MOST_AXES]
    cdef char* target = iteration.pointers[0]
    cdef char* source = iteration.pointers[1]
    cdef int axis
    for axis in range(iteration.n_axes):
        position[axis] = 0
    while True:
        memcpy(target, source, iteration.sizes[0])
        axis = 0
        while axis < iteration.n_axes:
            if iteration.strides[axis][0] != 0:
                position[axis] += 1
                target += iteration.strides[axis][0]
                source += iteration.strides[axis][1]
                if position[axis] < iteration.extents[axis]:
                    break
                target -= iteration.strides[axis][0] * iteration.extents[axis]
                source -= iteration.strides[axis][1] * iteration.extents[axis]
                position[axis] = 0
            axis += 1
        if axis == iteration.n_axes:
            return


# --- means ------------------------------------------------------------------------------------------------------------


cdef PyObject* mean_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    """Return the mean of floats: the sum, divided in double precision, as NumPy's counts are integers. Or NULL."""
    cdef Folding folding
    cdef PyObject* result
    if not read_folding(&folding, args, n, kwnames):
        return NULL
    if folding.type != cnp.NPY_DOUBLE and folding.type != cnp.NPY_FLOAT:
        return NULL
    result = fold_elements(&summing, &folding, args[0])
    if result == NULL:
        return NULL
    divide_numbers(folding.iteration.pointers[0], folding.type, folding.n_elements, <double>folding.n_reduced)
    if raised_errors():         # NumPy reports where each of them was raised
        Py_DECREF(result)
        return NULL
    return result if folding.n_left else scalar_result(&folding, result)


@cython.cdivision(True)
cdef void divide_numbers(char* numbers, int type, cnp.npy_intp n, double divisor) noexcept:
    cdef cnp.npy_intp i
    if type == cnp.NPY_DOUBLE:
        for i in range(n):
            (<double*>numbers)[i] = (<double*>numbers)[i] / divisor
    else:
        for i in range(n):
            (<float*>numbers)[i] = <float>(<double>(<float*>numbers)[i] / divisor)


# --- kernels ----------------------------------------------------------------------------------------------------------


cdef inline bint is_axis_of_number(PyObject* value, PyObject* axis) noexcept:
    """Return whether `axis` is a tuple of one axis for a value without axes, where NumPy only allows an int."""
    return PyTuple_CheckExact(axis) and PyTuple_GET_SIZE(axis) == 1 and not (
        Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value))


cdef PyObject* call_reduction(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* laid_out[16]
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i, n_names = 0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)
    cdef PyObject* result = NULL
    if n_names == 0 and (<Reduction>self).adds:
        if n == 1:
            result = sum_of_all(args[0])
        elif n == 2 and PyTuple_CheckExact(args[1]):
            result = sum_along_axes(args[0], args[1])
        if result != NULL:
            return result
    result = fold_as_called(&(<Reduction>self).fold, args, n, kwnames)
    if result != NULL:
        return result
    if n > 1 and n + n_names < 16 and is_axis_of_number(args[0], args[1]):
        for i in range(n + n_names):
            laid_out[1 + i] = args[i]
        laid_out[2] = PyTuple_GET_ITEM(args[1], 0)
        return PyObject_Vectorcall(<PyObject*>(<Reduction>self).reduce, &laid_out[1],
                                   n | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames)
    if n != 1 or n_names > 12:
        return PyObject_Vectorcall(<PyObject*>(<Reduction>self).reduce, args, nargsf, kwnames)
    laid_out[1] = args[0]
    laid_out[2] = Py_None
    for i in range(n_names):
        laid_out[3 + i] = args[1 + i]
    return PyObject_Vectorcall(<PyObject*>(<Reduction>self).reduce, &laid_out[1], 2 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               kwnames)


@cython.final
cdef class Reduction:
    """A kernel that reduces by a ufunc, over all axes if none is given."""

    def __cinit__(self, ufunc):
        self.vectorcall = <vectorcallfunc>call_reduction
        self.reduce = ufunc.reduce
        if ufunc in (numpy.logical_and, numpy.logical_or):      # `all` and `any` of objects are bools too
            self.reduce = functools.partial(ufunc.reduce, dtype=bool)
        self.adds = ufunc is numpy.add
        find_fold(&self.fold, ufunc)
        self.__name__ = f"{ufunc.__name__}.reduce"

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


add_reduce = Reduction(numpy.add)
make_vectorcallable(Reduction, <char*>&add_reduce.vectorcall - <char*><PyObject*>add_reduce)
