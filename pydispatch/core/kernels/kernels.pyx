# Kernels in C, for operators whose work in NumPy takes less time than a call of a Python function.


cdef PyObject* call_array_method(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    cdef PyObject* laid_out[MAX_ARGUMENTS + 1]
    cdef PyObject* method = <PyObject*>(<ArrayMethod>self).method
    cdef PyObject* result
    if n and Py_TYPE(args[0]) == &PyArray_Type:
        if (<ArrayMethod>self).loop != NULL:
            result = (<ArrayMethod>self).loop(args, n, kwnames)
            if result != NULL:
                return result
        return PyObject_Vectorcall(method, args, nargsf, kwnames)
    if n == 0 or n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)) > MAX_ARGUMENTS:
        raise TypeError(f"{(<ArrayMethod>self).__name__} takes an array and at most {MAX_ARGUMENTS - 1} more arguments")
    array = numpy_asanyarray(<object>args[0])
    laid_out[1] = <PyObject*>array
    for i in range(1, n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
        laid_out[i + 1] = args[i]
    result = PyObject_Vectorcall(method, &laid_out[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames)
    if result == NULL or not (<ArrayMethod>self).as_first:
        return result
    return new_reference(to_scalar(steal(result)))


cdef frozenset KEEP_SCALARS = frozenset(("astype", "squeeze", "transpose", "view"))


@cython.final
cdef class ArrayMethod:
    """A kernel that calls a method of ndarray. It converts other values, such as scalars, to arrays first.

    The methods of `KEEP_SCALARS` return a scalar for a scalar, as those of scalars do.
    """

    def __cinit__(self, str name):
        self.vectorcall = <vectorcallfunc>call_array_method
        self.method = getattr(numpy.ndarray, name)
        self.as_first = name in KEEP_SCALARS
        self.loop = NULL
        if name == "mean":
            self.loop = mean_as_called
        elif name == "clip":
            self.loop = clip_as_called
        elif name == "astype":
            self.loop = astype_as_called
        self.__name__ = name

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


cdef ArrayMethod some_array_method = ArrayMethod("copy")
make_vectorcallable(ArrayMethod, <char*>&some_array_method.vectorcall - <char*><PyObject*>some_array_method)
cdef object numpy_asanyarray = numpy.asanyarray


cdef PyObject* call_writing(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* laid_out[MAX_ARGUMENTS + 2]
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf), n_names = 0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)
    cdef PyObject* result
    cdef tuple names = OUT
    if n == 0 or n + n_names > MAX_ARGUMENTS:
        raise TypeError(f"{(<OutKernel>self).__name__} takes an array and at most {MAX_ARGUMENTS - 1} more arguments")
    if Py_TYPE(args[0]) != <PyTypeObject*>(<OutKernel>self).array_type and not isinstance(
            <object>args[0], (<OutKernel>self).array_type):
        raise (<OutKernel>self).refusal((<OutKernel>self).__name__, <object>args[0], (<OutKernel>self).array_type)
    if not (<OutKernel>self).as_out:
        result = PyObject_Vectorcall(<PyObject*>(<OutKernel>self).function, args, nargsf, kwnames)
    else:
        for i in range(n + n_names):
            laid_out[i + 1] = args[i]
        laid_out[n + n_names + 1] = args[0]
        if n_names:
            names = <tuple>kwnames + OUT
        result = PyObject_Vectorcall(<PyObject*>(<OutKernel>self).function, &laid_out[1],
                                     n | PY_VECTORCALL_ARGUMENTS_OFFSET, <PyObject*>names)
    if result == NULL:
        return NULL
    if (<OutKernel>self).as_out:
        return result
    Py_DECREF(result)
    return new_reference(<object>args[0])


cdef tuple OUT = ("out",)


@cython.final
cdef class OutKernel:
    """A kernel that calls `function` to write to its first argument, and returns that argument.

    With `as_out` the function has a result, and also takes that argument as `out`. `refusal(name, value, array_type)`
    returns the error for a value that cannot be written to.
    """

    def __cinit__(self, str name, function, type array_type, refusal, *, bint as_out=False):
        self.vectorcall = <vectorcallfunc>call_writing
        self.__name__ = name
        self.function = function
        self.array_type = array_type
        self.refusal = refusal
        self.as_out = as_out

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


cdef OutKernel some_writing = OutKernel("some", None, type, None)
make_vectorcallable(OutKernel, <char*>&some_writing.vectorcall - <char*><PyObject*>some_writing)


cdef PyObject* call_on_any_device(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* laid_out[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i, k = 0, n = PyVectorcall_NARGS(nargsf)
    cdef PyObject* function = <PyObject*>(<AnyDevice>self).function
    cdef Py_ssize_t n_names = 0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)
    cdef object names = None, prototype = None
    if n and isinstance(<object>args[0], MetaArray) and (<AnyDevice>self).stand_in is not None:
        prototype = (<AnyDevice>self).stand_in(<object>args[0])
    elif n_names == 0 or "device" not in <tuple>kwnames:
        return PyObject_Vectorcall(function, args, nargsf, kwnames)
    if n + n_names > MAX_ARGUMENTS:
        raise TypeError(f"{(<AnyDevice>self).__name__} takes at most {MAX_ARGUMENTS} arguments")
    if n_names:
        names = tuple([name for name in <tuple>kwnames if name != "device"])
    for i in range(n + n_names):
        if i < n or <object>PyTuple_GET_ITEM(kwnames, i - n) != "device":
            laid_out[1 + k] = args[i]
            k += 1
    if prototype is not None:
        laid_out[1] = <PyObject*>prototype
    return PyObject_Vectorcall(function, &laid_out[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET,
                               NULL if names is None else <PyObject*>names)


@cython.final
cdef class AnyDevice:
    """A kernel that calls `function` without the device: a kernel belongs to one device and need not know it.

    The first argument, a prototype, may be without data if `stand_in` makes an array from it.
    """

    def __cinit__(self, function, stand_in=None):
        self.vectorcall = <vectorcallfunc>call_on_any_device
        self.function = function
        self.stand_in = stand_in
        self.__name__ = function.__name__

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


cdef AnyDevice some_any_device = AnyDevice(len)
make_vectorcallable(AnyDevice, <char*>&some_any_device.vectorcall - <char*><PyObject*>some_any_device)


# --- selecting elements -----------------------------------------------------------------------------------------------

# NumPy accepts sequences as index arrays
cdef tuple INDEX_ARRAYS = (numpy.ndarray, MetaArray, numpy.bool_, bool, list, tuple)


cdef int check_key_item(str name, item) except -1:
    """Raise KeyTypeError for an item that no key may have, such as a range, a string or a float."""
    if is_basic_key_item(item) or isinstance(item, INDEX_ARRAYS) or isinstance(item, Shell):
        return 0
    if isinstance(item, range):
        remedy = f"pass tuple({item!r}) for one index per axis, or np.array({item!r}) to select these along one axis"
    elif hasattr(item, "__iter__") and not isinstance(item, (str, bytes)):
        remedy = "pass np.array(list(...)) to select these along one axis"
    else:
        remedy = "pass int(number), an index array, or a slice"
    raise KeyTypeError(
        f"{name}: argument key holds {type(item).__name__} {item!r}, expected ints, slices, None, Ellipsis, index "
        f"arrays and masks\n{remedy}"
    )


cdef tuple basic_items(str name, key, str other):
    """Return the items of a basic key. For others, raise DispatchTypeError, naming the operator for index arrays."""
    cdef tuple items = <tuple>key if type(key) is tuple else (key,)
    for item in items:
        if is_basic_item(<PyObject*>item):
            continue
        if isinstance(item, range):         # NumPy accepts it as an index array, and refuses other things itself
            check_key_item(name, item)
        if isinstance(item, INDEX_ARRAYS):
            raise DispatchTypeError(
                f"{name}: argument key holds {a_type(item)}, expected ints, slices, None and Ellipsis\n"
                f"use ops.np.{other} for index arrays and masks"
            )
    return items


def advanced_items(str name, key, str other):
    """Return the items of a key with at least one index array or mask.

    Raise DispatchTypeError for any other key. A NumPy integer, which operators return for a 0-d index array, becomes an
    array.
    """
    cdef tuple items = <tuple>key if type(key) is tuple else (key,)
    cdef bint found = False
    for i, item in enumerate(items):
        if isinstance(item, numpy.integer):
            items = items[:i] + (numpy_asanyarray(item),) + items[i + 1:]
            found = True
    for item in items:
        if isinstance(item, (list, tuple)):
            raise DispatchTypeError(
                f"{name}: argument key holds {a_type(item)}, expected arrays, ints, slices, None, Ellipsis\n"
                f"pass np.array({item})"
            )
        if isinstance(item, range):
            check_key_item(name, item)
        found = found or isinstance(item, INDEX_ARRAYS)
    if not found:
        for item in items:              # with an index array NumPy refuses them itself
            check_key_item(name, item)
        raise DispatchTypeError(
            f"{name}: argument key has no index array or mask\n"
            f"use ops.np.{other}" + (", or ops.np.setitem for a changed copy" if other == "setitem_" else "")
        )
    return items


def getitem(x, key):
    """Return a view of the elements that a basic key selects, or a scalar if the key has an integer for each axis."""
    cdef tuple items = basic_items("getitem", key, "index")
    cdef object array = as_array(x), found
    if Py_TYPE(<PyObject*>array) == &PyArray_Type and PyArray_TYPE(<PyArrayObject*><PyObject*>array) not in (
            cnp.NPY_OBJECT, cnp.NPY_VOID):
        return array[items]
    for item in items:
        if item is Ellipsis:
            return array[items]
    found = array[items + WHOLE]        # without the Ellipsis it is the element itself, which may be any object
    return found if found.ndim else found.copy()


cdef tuple WHOLE = (Ellipsis,)


def index(x, key):
    """Return a copy of the elements that a key with index arrays or masks selects."""
    cdef tuple items = advanced_items("index", key, "getitem")
    cdef object array = as_array(x)
    if PyTuple_GET_SIZE(<PyObject*>items) == 1 and are_layers(<PyArrayObject*><PyObject*>array, items[0]):
        # up to 4 times as fast
        return PyArray_TakeFrom(<PyArrayObject*><PyObject*>array, items[0], 0, NULL, cnp.NPY_RAISE)
    return array[items]


cdef bint are_layers(PyArrayObject* x, positions) noexcept:
    """Return whether intp positions select layers of an array in C order. Single elements are NumPy's."""
    cdef PyArrayObject* places = <PyArrayObject*><PyObject*>positions
    return (Py_TYPE(<PyObject*>x) == &PyArray_Type and Py_TYPE(<PyObject*>positions) == &PyArray_Type
            and PyArray_NDIM(x) > 1 and PyArray_ISCARRAY_RO(x) and PyArray_NDIM(places) > 0
            and PyArray_TYPE(places) == cnp.NPY_INTP and PyArray_ISCARRAY_RO(places))


cdef inline object as_array(x):
    return x if Py_TYPE(<PyObject*>x) == &PyArray_Type else numpy_asanyarray(x)


def setitem(x, key, value):
    """Write to the elements that a basic key selects."""
    cdef tuple items = basic_items("setitem_", key, "index_put_")
    x[items] = value.copy() if reads_what_it_wrote(x, key, value) else value


cdef bint reads_what_it_wrote(x, key, value) except -1:
    """Return whether NumPy would assign elements that it has overwritten: vectors that overlap with other strides.

    NumPy 2.4 only chooses a direction, which is enough if the strides are equal.
    """
    if Py_TYPE(<PyObject*>value) != &PyArray_Type or not may_share_elements(<PyObject*>x, <PyObject*>value):
        return False
    target = getitem(x, key)
    return target.ndim == 1 and target.strides != value.strides[-1:] and may_share_elements(
        <PyObject*>target, <PyObject*>value)


# --- making arrays ----------------------------------------------------------------------------------------------------

cdef extern from "numpy/arrayobject.h":
    int PyArray_CopyInto(PyArrayObject*, PyArrayObject*) except -1

cdef object numpy_ones = numpy.ones, numpy_full = numpy.full


def ones(shape, *, dtype=None):
    """Return an array of ones."""
    cdef object one = 1
    cdef PyObject* result = make_filled(<PyObject*>shape, <PyObject*>one,
                                        FLOAT64 if dtype is None else <PyObject*>dtype)
    return numpy_ones(shape, dtype=dtype) if result == NULL else steal(result)


def full(shape, fill_value, *, dtype=None):
    """Return an array filled with a value, whose dtype is the default."""
    cdef PyObject* result = make_filled(<PyObject*>shape, <PyObject*>fill_value, <PyObject*>dtype)
    return numpy_full(shape, fill_value, dtype=dtype) if result == NULL else steal(result)


cdef PyObject* make_filled(PyObject* shape, PyObject* value, PyObject* dtype) except? NULL:
    """Return a new small array of a number, or of the elements of an array, or NULL if NumPy has to make it."""
    cdef cnp.npy_intp extents[MOST_AXES]
    cdef double number[2]
    cdef int n_axes = read_shape(shape, extents), type
    cdef PyObject* result
    cdef bint is_array = Py_TYPE(value) == &PyArray_Type
    if dtype == Py_None:
        type = readable_type(value) if is_array else type_of_python(<PyObject*>Py_TYPE(value))
    else:
        type = number_of_dtype(dtype)
    if n_axes < 0 or type < 0 or not is_small_shape(n_axes, extents):
        return NULL
    if is_array:
        if readable_type(value) < 0:
            return NULL
    elif not put_number(type, value, <char*>number):
        return NULL
    result = PyArray_New(&PyArray_Type, n_axes, extents, type, NULL, NULL, 0, 0, NULL)
    try:
        if is_array:
            PyArray_CopyInto(<PyArrayObject*>result, <PyArrayObject*>value)
        else:
            fill_with(<PyArrayObject*>result, <char*>number)
    except:
        Py_DECREF(result)
        raise
    return result


cdef void fill_with(PyArrayObject* array, char* number) noexcept:
    cdef Py_ssize_t filled = PyArray_ITEMSIZE(array), size = PyArray_NBYTES(array)
    cdef char* target = <char*>PyArray_DATA(array)
    memcpy(target, number, filled)
    while filled < size:
        memcpy(target + filled, target, min(filled, size - filled))
        filled *= 2


cdef PyObject* astype_as_called(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    """Return a copy in C order, as numbers of another type, or NULL if NumPy has to make it."""
    cdef PyArrayObject* array = <PyArrayObject*>args[0]
    cdef int type = number_of_dtype(args[1]) if n == 2 else -1
    cdef PyObject* result
    if kwnames != NULL or type < 0 or readable_type(args[0]) < 0 or not is_in_c_order(array) or not is_small(args[0]):
        return NULL
    result = PyArray_New(&PyArray_Type, PyArray_NDIM(array), PyArray_DIMS(array), type, NULL, NULL, 0, 0, NULL)
    try:
        PyArray_CopyInto(<PyArrayObject*>result, array)
    except:
        Py_DECREF(result)
        raise
    return result


# --- joining and repeating --------------------------------------------------------------------------------------------

cdef extern from "numpy/arrayobject.h":
    object PyArray_Concatenate(object, int)

cdef object numpy_concatenate = numpy.concatenate, numpy_stack = numpy.stack


def concatenate(arrays, axis=0, *, out=None, dtype=None, casting="same_kind"):
    """Concatenate arrays along an axis."""
    cdef PyObject* result
    if out is None and dtype is None and axis is not None and casting == "same_kind" and are_arrays(<PyObject*>arrays):
        result = join_blocks(<tuple>arrays, axis, False)
        return PyArray_Concatenate(arrays, axis) if result == NULL else steal(result)
    return numpy_concatenate(arrays, axis, out=out, dtype=dtype, casting=casting)


def stack(arrays, axis=0, *, out=None, dtype=None, casting="same_kind"):
    """Stack arrays of one shape along a new axis."""
    cdef PyObject* result = NULL
    if out is None and dtype is None and casting == "same_kind" and are_arrays(<PyObject*>arrays):
        result = join_blocks(<tuple>arrays, axis, True)
    return numpy_stack(arrays, axis, out, dtype=dtype, casting=casting) if result == NULL else steal(result)


cdef enum:
    MOST_BLOCKS = 32        # of each array, as NumPy's loops are faster for more


cdef PyObject* join_blocks(tuple arrays, Py_ssize_t axis, bint stacks) except? NULL:
    """Join small arrays in C order along an axis, a new one with `stacks`. Return NULL if NumPy has to."""
    cdef cnp.npy_intp extents[MOST_AXES]
    cdef Py_ssize_t n = PyTuple_GET_SIZE(<PyObject*>arrays), i, k, n_blocks = 1, block
    cdef PyArrayObject* array
    cdef PyObject* result
    cdef char* target
    cdef int n_axes = lay_out_joined(arrays, &axis, stacks, extents)
    if n_axes < 0 or not is_small_shape(n_axes, extents):
        return NULL
    for i in range(axis):
        n_blocks *= extents[i]
    if n_blocks > MOST_BLOCKS:
        return NULL
    result = PyArray_New(&PyArray_Type, n_axes, extents, PyArray_TYPE(<PyArrayObject*>PyTuple_GET_ITEM(
        <PyObject*>arrays, 0)), NULL, NULL, 0, 0, NULL)
    target = <char*>PyArray_DATA(<PyArrayObject*>result)
    for k in range(n_blocks):
        for i in range(n):
            array = <PyArrayObject*>PyTuple_GET_ITEM(<PyObject*>arrays, i)
            block = PyArray_NBYTES(array) // n_blocks
            memcpy(target, <char*>PyArray_DATA(array) + k * block, block)
            target += block
    return result


cdef int lay_out_joined(tuple arrays, Py_ssize_t* counted, bint stacks, cnp.npy_intp* extents) noexcept:
    """Compute the shape of the joined arrays. Return the number of its axes, or -1.

    It is -1 unless all arrays are in C order, of one type and of shapes that fit. `counted` is the axis, counted from
    the end or from the start, and is counted from the start afterwards.
    """
    cdef PyObject* first = PyTuple_GET_ITEM(<PyObject*>arrays, 0) if PyTuple_GET_SIZE(<PyObject*>arrays) else Py_None
    cdef int type = readable_type(first), n_axes, i
    cdef Py_ssize_t k, axis = counted[0]
    cdef PyArrayObject* array
    if type < 0:
        return -1
    n_axes = PyArray_NDIM(<PyArrayObject*>first)
    if n_axes + stacks > MOST_AXES or not -n_axes - stacks <= axis < n_axes + stacks:
        return -1
    if axis < 0:
        axis += n_axes + stacks
    counted[0] = axis
    for i in range(n_axes):
        extents[i + (stacks and i >= axis)] = PyArray_DIMS(<PyArrayObject*>first)[i]
    extents[axis] = 0
    for k in range(PyTuple_GET_SIZE(<PyObject*>arrays)):
        array = <PyArrayObject*>PyTuple_GET_ITEM(<PyObject*>arrays, k)
        if readable_type(<PyObject*>array) != type or PyArray_NDIM(array) != n_axes or not is_in_c_order(array):
            return -1
        for i in range(n_axes):
            if (stacks or i != axis) and extents[i + (stacks and i >= axis)] != PyArray_DIMS(array)[i]:
                return -1
        extents[axis] += 1 if stacks else PyArray_DIMS(array)[axis]
    return n_axes + stacks


def repeat(a, tuple repeats, axis=None):
    """Repeat elements: all equally often, or each as often as its number in `repeats` specifies."""
    return as_array(a).repeat(repeats[0] if PyTuple_GET_SIZE(<PyObject*>repeats) == 1 else repeats, axis)


# --- vectors of positions ---------------------------------------------------------------------------------------------


cdef inline bint is_vector(PyObject* value, int type) noexcept:
    """Return whether a value is a NumPy vector with elements of this type that C can read."""
    return (Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 1
            and PyArray_TYPE(<PyArrayObject*>value) == type and PyArray_ISBEHAVED_RO(<PyArrayObject*>value))


cdef inline double* double_at(PyArrayObject* vector, Py_ssize_t i) noexcept:
    return <double*>(<char*>PyArray_DATA(vector) + i * PyArray_STRIDES(vector)[0])


cdef inline PyObject* new_vector(cnp.npy_intp n) except NULL:
    return PyArray_New(&PyArray_Type, 1, &n, cnp.NPY_DOUBLE, NULL, NULL, 0, 0, NULL)


cpdef bint is_vector_of_positions(x, indices, axis) except -1:
    """Return whether two arrays are vectors, the second with integers that index the first."""
    cdef PyArrayObject* places = <PyArrayObject*><PyObject*>indices
    return (Py_TYPE(<PyObject*>x) == &PyArray_Type and Py_TYPE(<PyObject*>indices) == &PyArray_Type
            and PyArray_NDIM(<PyArrayObject*><PyObject*>x) == 1 and PyArray_NDIM(places) == 1
            and cnp.PyTypeNum_ISINTEGER(PyArray_TYPE(places)) and (axis == 0 or axis == -1))


def take_along_axis(arr, indices, axis=-1):
    """Take elements along an axis, as NumPy does, which takes three times as long for vectors."""
    if not is_vector_of_positions(arr, indices, axis):
        return numpy_take_along_axis(arr, indices, axis)
    return arr[indices]


cdef object numpy_take_along_axis = numpy.take_along_axis


def added_at(values, key, tuple shape):
    """Return zeros of a shape, with values added at the elements that a key with index arrays selects."""
    cdef object result = numpy_zeros(shape, values.dtype)
    if not has_added_layers(result, key, values, True):
        numpy_add_at(result, key, values)
    return result


def add_at(x, key, values):
    """Add values at the elements that a key with index arrays selects, like `numpy.add.at`, but by whole layers."""
    if not has_added_layers(x, key, values, False):
        numpy_add_at(x, key, values)


cdef object numpy_zeros = numpy.zeros, numpy_add_at = numpy.add.at, WHOLE_AXIS = slice(None)
cdef object in_c_order = numpy.ascontiguousarray, may_share_memory = numpy.may_share_memory


cdef inline PyArrayObject* numpy_array(value) noexcept:
    """Return a value if it is a NumPy array that C can read, else NULL."""
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>value
    return array if Py_TYPE(<PyObject*>value) == &PyArray_Type and PyArray_ISBEHAVED_RO(array) else NULL


cdef bint has_added_layers(x, key, values, bint is_new) except -1:
    """Add values to layers of an array at positions along an axis. Return False if NumPy has to add, or to raise.

    The other arguments do not share memory with a new array.
    """
    cdef tuple items = <tuple>key if type(key) is tuple else (key,)
    cdef Py_ssize_t i, axis = PyTuple_GET_SIZE(<PyObject*>items) - 1, extent
    cdef PyArrayObject* target = numpy_array(x)
    cdef PyArrayObject* added = numpy_array(values)
    cdef PyArrayObject* places = NULL if axis < 0 else numpy_array(items[axis])
    cdef PyUFuncGenericFunction loop = NULL
    cdef cnp.npy_intp sizes[5]
    cdef cnp.npy_intp strides[5]
    cdef char* operands[4]
    cdef bint is_one = True         # whether all values are the same one
    if target != NULL:
        loop = add_layers_loop(PyArray_TYPE(target))
    if (loop == NULL or places == NULL or added == NULL or not PyArray_ISCARRAY(target) or axis >= PyArray_NDIM(target)
            or PyArray_TYPE(places) != cnp.NPY_INTP or PyArray_TYPE(added) != PyArray_TYPE(target)
            or PyArray_NDIM(added) not in (0, PyArray_NDIM(target) + PyArray_NDIM(places) - 1)):
        return False
    for i in range(axis):
        if type(items[i]) is not slice or items[i] != WHOLE_AXIS:
            return False
    for i in range(PyArray_NDIM(added)):
        extent = (PyArray_DIMS(target)[i] if i < axis else PyArray_DIMS(places)[i - axis]
                  if i < axis + PyArray_NDIM(places) else PyArray_DIMS(target)[i - PyArray_NDIM(places) + 1])
        is_one = is_one and PyArray_STRIDES(added)[i] == 0
        if PyArray_DIMS(added)[i] != extent:
            return False
    if not is_new and (may_share_memory(x, values) or may_share_memory(x, items[axis])):
        return False
    positions = items[axis] if PyArray_ISCARRAY_RO(places) else in_c_order(items[axis])
    if not is_one and not PyArray_ISCARRAY_RO(added):
        values = in_c_order(values)
    sizes[0] = sizes[1] = sizes[4] = 1
    for i in range(PyArray_NDIM(target)):
        sizes[1 if i < axis else 3 if i == axis else 4] *= PyArray_DIMS(target)[i]
    sizes[2], sizes[3] = PyArray_SIZE(places), PyArray_DIMS(target)[axis]
    strides[4] = 0 if is_one else PyArray_ITEMSIZE(target)
    operands[0] = operands[3] = <char*>PyArray_DATA(target)
    operands[1] = <char*>PyArray_DATA(<PyArrayObject*><PyObject*>positions)
    operands[2] = <char*>PyArray_DATA(<PyArrayObject*><PyObject*>values)
    if not are_inside(operands[1], sizes[2], sizes[3]):
        return False
    forget_errors()
    with nogil:
        loop(operands, sizes, strides, NULL)
    report_errors(adding.name, NULL)
    return True


# --- convolution ------------------------------------------------------------------------------------------------------

cdef extern from "numpy/arrayobject.h":
    object PyArray_Correlate(object, object, int)


cdef inline bint are_convolved(PyObject* a, PyObject* v, Py_ssize_t most) noexcept:
    """Return whether two values are vectors of float64 whose lengths have a product from 1 to `most`."""
    return is_vector(a, cnp.NPY_DOUBLE) and is_vector(v, cnp.NPY_DOUBLE) and (
        0 < <double>PyArray_DIMS(<PyArrayObject*>a)[0] * PyArray_DIMS(<PyArrayObject*>v)[0] <= most)


cdef PyObject* short_correlation(PyArrayObject* a, PyArrayObject* v, bint is_reversed, int mode) except? NULL:
    """Return the correlation with a short vector that is not longer, or NULL if NumPy has to compute it.

    NumPy's checks of the arguments take longer than the sums. With `is_reversed`, `v` is read backwards.
    """
    cdef Py_ssize_t n = PyArray_DIMS(a)[0], m = PyArray_DIMS(v)[0], i
    cdef Py_ssize_t before = m - 1 if mode == 2 else m // 2 if mode == 1 else 0     # places before the first of `a`
    cdef Py_ssize_t after = m - 1 if mode == 2 else m - 1 - m // 2 if mode == 1 else 0
    cdef double taken[SHORT_VECTOR]
    cdef double* given = <double*>PyArray_DATA(a)
    cdef double* sums
    cdef PyObject* result
    if m > SHORT_VECTOR or (n > 1 and PyArray_STRIDES(a)[0] != sizeof(double)):
        return NULL
    result = new_vector(n - m + 1 + before + after)
    sums = <double*>PyArray_DATA(<PyArrayObject*>result)
    for i in range(m):
        taken[i] = double_at(v, m - 1 - i if is_reversed else i)[0]
    for i in range(before):
        sum_windows(given, taken + before - i, m - before + i, sums + i, 1)
    sum_windows(given, taken, m, sums + before, n - m + 1)
    for i in range(after):
        sum_windows(given + n - m + 1 + i, taken, m - 1 - i, sums + before + n - m + 1 + i, 1)
    return result


cdef reversed_vector(PyArrayObject* v):
    """Return a reversed copy of a vector of float64."""
    cdef Py_ssize_t i, m = PyArray_DIMS(v)[0]
    copy = steal(new_vector(m))
    for i in range(m):
        (<double*>PyArray_DATA(<PyArrayObject*><PyObject*>copy))[i] = double_at(v, m - 1 - i)[0]
    return copy


def correlate_vectors(a, v, int mode, Py_ssize_t most=PY_SSIZE_T_MAX):
    """Return the correlation of two vectors of float64, as `numpy.correlate` defines it for real numbers.

    Return None for other arguments, and if the second vector is the longer one, except in the mode "full". The mode is
    NumPy's number for "valid", "same" or "full". The product of the lengths is at most `most`.
    """
    cdef PyObject* found
    if not are_convolved(<PyObject*>a, <PyObject*>v, most):
        return None
    if PyArray_DIMS(<PyArrayObject*><PyObject*>a)[0] < PyArray_DIMS(<PyArrayObject*><PyObject*>v)[0]:
        return convolve_vectors(reversed_vector(<PyArrayObject*><PyObject*>v), a, mode) if mode == 2 else None
    found = short_correlation(<PyArrayObject*><PyObject*>a, <PyArrayObject*><PyObject*>v, False, mode)
    return PyArray_Correlate(a, v, mode) if found == NULL else steal(found)


def convolve_vectors(a, v, int mode, Py_ssize_t most=PY_SSIZE_T_MAX):
    """Return the convolution of two vectors of float64, as `numpy.convolve` defines it for real numbers.

    Return None for other arguments. The product of the lengths is at most `most`.
    """
    cdef PyObject* found
    if not are_convolved(<PyObject*>a, <PyObject*>v, most):
        return None
    if PyArray_DIMS(<PyArrayObject*><PyObject*>a)[0] < PyArray_DIMS(<PyArrayObject*><PyObject*>v)[0]:
        a, v = v, a
    found = short_correlation(<PyArrayObject*><PyObject*>a, <PyArrayObject*><PyObject*>v, True, mode)
    return PyArray_Correlate(a, reversed_vector(<PyArrayObject*><PyObject*>v), mode) if found == NULL else steal(found)


# --- exponentials -----------------------------------------------------------------------------------------------------

cdef Loop exponentials, logarithms, logarithms_of_more, larger, dividing
find_loop(&exponentials, numpy.exp)
find_loop(&logarithms, numpy.log)
find_loop(&logarithms_of_more, numpy.log1p)
find_loop(&larger, numpy.maximum)
find_loop(&dividing, numpy.divide)


@cython.cdivision(True)
def logarithm_and_shares(x):
    """Return the logarithm of the sum of exponentials, and the share of each of them in the sum.

    The logarithm has no axes. Return None if NumPy has to compute it: unless `x` is a small contiguous array of float64
    without NaN, whose largest element is finite.
    """
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>x
    cdef PyObject* result
    cdef double largest, total, rest = 0, n_largest = 0
    cdef double* given
    cdef double* shares
    cdef double* terms
    cdef Py_ssize_t n, i
    if Py_TYPE(<PyObject*>x) != &PyArray_Type or PyArray_TYPE(array) != cnp.NPY_DOUBLE or not (
            PyArray_ISCARRAY_RO(array) and PyArray_NDIM(array) and is_small(<PyObject*>x)):
        return None
    n, given = PyArray_SIZE(array), <double*>PyArray_DATA(array)
    largest = given[0]
    forget_errors()
    if n > 1:
        run_on_pair(&larger, &largest, 0, given + 1, 1, &largest, 0, n - 1)
    if largest - largest != 0:      # NaN or infinite
        forget_errors()
        return None
    exponentiated, logarithm = steal(new_like(<PyObject*>x)), steal(new_array_of_double(0, NULL))
    result = new_like(<PyObject*>x)
    shares = <double*>PyArray_DATA(<PyArrayObject*>result)
    terms = <double*>PyArray_DATA(<PyArrayObject*><PyObject*>exponentiated)
    for i in range(n):
        shares[i] = given[i] - largest
    run_on_one(&exponentials, shares, terms, n)
    for i in range(n):          # the largest ones are 1 and counted, since they may be nearly the whole sum
        shares[i] = 0 if given[i] == largest else terms[i]
        n_largest += given[i] == largest
    run_on_pair(&add_reduce.fold.loop, &rest, 0, shares, 1, &rest, 0, n)
    total = rest + n_largest
    run_on_pair(&dividing, terms, 1, &total, 0, shares, 1, n)
    (<double*>PyArray_DATA(<PyArrayObject*><PyObject*>logarithm))[0] = (
        value_of(&logarithms_of_more, rest / n_largest) + value_of(&logarithms, n_largest) + largest)
    report_errors(exponentials.name, result)
    return logarithm, steal(result)


cdef double value_of(Loop* loop, double number) noexcept:
    """Return the value of NumPy's function, which may round differently from the C library's."""
    cdef double found
    run_on_one(loop, &number, &found, 1)
    return found


cdef void run_on_one(Loop* loop, double* numbers, double* found, Py_ssize_t n) noexcept:
    cdef char* pointers[2]
    cdef cnp.npy_intp strides[2]
    cdef cnp.npy_intp length = n
    pointers[0], pointers[1] = <char*>numbers, <char*>found
    strides[0] = strides[1] = sizeof(double)
    loop.function(pointers, &length, strides, loop.data)


cdef void run_on_pair(Loop* loop, double* left, bint moves_left, double* right, bint moves_right, double* found,
                      bint moves_found, Py_ssize_t n) noexcept:
    """Run a loop on two operands. Each pointer moves along an array, or is that of a single number."""
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length = n
    pointers[0], pointers[1], pointers[2] = <char*>left, <char*>right, <char*>found
    strides[0], strides[1], strides[2] = (
        moves_left * sizeof(double), moves_right * sizeof(double), moves_found * sizeof(double))
    loop.function(pointers, &length, strides, loop.data)


# --- complex numbers --------------------------------------------------------------------------------------------------


def times_minus_i(g):
    """Return the product of contiguous float64 numbers and -1j, or None for others."""
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>g
    cdef double* found
    cdef Py_ssize_t i
    if Py_TYPE(<PyObject*>g) != &PyArray_Type or PyArray_TYPE(array) != cnp.NPY_DOUBLE or not (
            PyArray_ISCARRAY_RO(array)):
        return None
    result = steal(PyArray_New(&PyArray_Type, PyArray_NDIM(array), PyArray_DIMS(array), cnp.NPY_CDOUBLE, NULL, NULL, 0,
                               0, NULL))
    found = <double*>PyArray_DATA(<PyArrayObject*><PyObject*>result)
    for i in range(PyArray_SIZE(array)):
        found[2 * i], found[2 * i + 1] = 0.0, -(<double*>PyArray_DATA(array))[i]
    return result


def second_argument(first, second):
    """Return the second argument: a kernel without work, to measure the cost of dispatch."""
    return second


def first_of_five(first, a=0, b=0, c=0, d=0):
    """Return the first argument: a kernel without work and with defaults."""
    return first
