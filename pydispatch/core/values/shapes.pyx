# Shapes, dtypes and keys: comparisons, checks and conversions.


cdef tuple checked_shape(shape):
    """Return a shape as a tuple of ints."""
    if type(shape) is not tuple or not are_ints(<PyObject*>shape):
        shape = (as_index(shape),) if hasattr(shape, "__index__") else tuple(map(as_index, shape))
    check_rank(len(<tuple>shape))
    for extent in <tuple>shape:
        if extent < 0:
            raise ValueError(f"negative dimensions are not allowed: {shape}")
    return shape


cdef int check_rank(Py_ssize_t rank) except -1:
    """Raise ValueError for more axes than an array can have."""
    if rank > MAX_AXES:
        raise ValueError(f"the array has {rank} axes, but NumPy allows at most {MAX_AXES}\nreshape to fewer axes")
    return rank


cdef int check_bytes(tuple shape, Py_ssize_t itemsize) except -1:
    """Raise ValueError for an array that no memory could hold, with NumPy's message."""
    cdef double n_bytes = itemsize
    cdef double count
    for extent in shape:
        count = extent
        n_bytes *= count if count > 1 else 1       # NumPy leaves out axes without elements
    if n_bytes < <double>PY_SSIZE_T_MAX:
        return 0
    if max(shape) > PY_SSIZE_T_MAX:
        raise ValueError("Maximum allowed dimension exceeded")
    raise ValueError("array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size.")


cdef object number_of_elements(tuple shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


cdef tuple strides_in_order(tuple shape, itemsize):
    """Return the strides of an array in C order."""
    cdef list strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))


cdef inline bint is_inexact(PyObject* array) except -1:
    """Return whether an array has floating-point or complex numbers."""
    cdef int number
    if Py_TYPE(array) == &PyArray_Type:
        number = PyArray_TYPE(<PyArrayObject*>array)
        return PyTypeNum_ISFLOAT(number) or PyTypeNum_ISCOMPLEX(number)
    return dtype_of(array).kind in "fc"


cdef inline bint is_complex(PyObject* array) except -1:
    if Py_TYPE(array) == &PyArray_Type:
        return PyTypeNum_ISCOMPLEX(PyArray_TYPE(<PyArrayObject*>array))
    return dtype_of(array).kind == "c"


cdef inline bint same_shape(PyObject* left, PyObject* right) except -1:
    cdef int axis, ndim
    if Py_TYPE(left) != &PyArray_Type or Py_TYPE(right) != &PyArray_Type:
        return tuple((<object>left).shape) == tuple((<object>right).shape)
    ndim = PyArray_NDIM(<PyArrayObject*>left)
    if ndim != PyArray_NDIM(<PyArrayObject*>right):
        return False
    for axis in range(ndim):
        if PyArray_DIMS(<PyArrayObject*>left)[axis] != PyArray_DIMS(<PyArrayObject*>right)[axis]:
            return False
    return True


cdef object shape_of(PyObject* array):
    cdef Py_ssize_t axis, ndim
    cdef list extents
    if Py_TYPE(array) != &PyArray_Type:
        return tuple((<object>array).shape)
    ndim = PyArray_NDIM(<PyArrayObject*>array)
    if ndim == 0:
        return ()
    if ndim == 1:
        return (PyArray_DIMS(<PyArrayObject*>array)[0],)
    if ndim == 2:
        return (PyArray_DIMS(<PyArrayObject*>array)[0], PyArray_DIMS(<PyArrayObject*>array)[1])
    extents = []
    for axis in range(ndim):
        extents.append(PyArray_DIMS(<PyArrayObject*>array)[axis])
    return tuple(extents)


cdef inline object dtype_of(PyObject* array):
    if Py_TYPE(array) == &PyArray_Type:
        return <object>PyArray_DESCR(<PyArrayObject*>array)
    return as_numpy_dtype((<object>array).dtype)


cdef object as_numpy_dtype(dtype):
    """Return NumPy's dtype for that of another library."""
    return dtype if isinstance(dtype, numpy_dtype) else upcalls.dtype_like(dtype)


cdef bint has_shape(PyObject* array, tuple shape) except -1:
    """Return whether this is the shape of an ndarray."""
    cdef Py_ssize_t axis
    if PyArray_NDIM(<PyArrayObject*>array) != PyTuple_GET_SIZE(<PyObject*>shape):
        return False
    for axis in range(PyArray_NDIM(<PyArrayObject*>array)):
        if PyArray_DIMS(<PyArrayObject*>array)[axis] != <Py_ssize_t>shape[axis]:
            return False
    return True


cdef bint has_leading(PyObject* array, tuple shape) except -1:
    """Return whether the shape of an ndarray is one more axis followed by this shape."""
    cdef Py_ssize_t axis
    if PyArray_NDIM(<PyArrayObject*>array) != PyTuple_GET_SIZE(<PyObject*>shape) + 1:
        return False
    for axis in range(PyTuple_GET_SIZE(<PyObject*>shape)):
        if PyArray_DIMS(<PyArrayObject*>array)[axis + 1] != <Py_ssize_t>shape[axis]:
            return False
    return True


cdef inline bint same_dtype(PyObject* left, PyObject* right) except -1:
    if Py_TYPE(left) == &PyArray_Type and Py_TYPE(right) == &PyArray_Type:
        if PyArray_DESCR(<PyArrayObject*>left) == PyArray_DESCR(<PyArrayObject*>right):
            return True
    return equal_dtypes(left, right)


cdef bint equal_dtypes(PyObject* left, PyObject* right) except -1:
    return dtype_of(left) == dtype_of(right)


cpdef object expand(value, tuple shape):
    """Return `value` broadcast to `shape`: a read-only view of an array, for a Tensor the operator `broadcast_to`."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef cnp.npy_intp strides[MAX_AXES]
    cdef int ndim = check_rank(len(shape)), missing, axis
    cdef PyArrayObject* array
    if is_tensor_type(Py_TYPE(<PyObject*>value)) or (Py_TYPE(<PyObject*>value) != &PyArray_Type and word_of_array(
            <PyObject*>value) & ~CPU_WORD):
        return upcalls.broadcast_to(value, shape)
    if is_numpy_scalar(value):
        value = array_of_scalar(value)
    elif Py_TYPE(<PyObject*>value) != &PyArray_Type:
        value = numpy_asarray(value)
    array = <PyArrayObject*><PyObject*>value
    missing = ndim - PyArray_NDIM(array)
    if missing < 0:
        raise ValueError(f"an array of shape {value.shape} cannot be repeated to shape {shape}")
    for axis in range(ndim):
        dims[axis] = shape[axis]
        strides[axis] = 0
        if axis >= missing and PyArray_DIMS(array)[axis - missing] != 1:
            if PyArray_DIMS(array)[axis - missing] != dims[axis]:
                raise ValueError(f"an array of shape {value.shape} cannot be repeated to shape {shape}")
            strides[axis] = PyArray_STRIDES(array)[axis - missing]
    Py_INCREF(<object>PyArray_DESCR(array))
    result = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), ndim, dims, strides, PyArray_DATA(array), 0,
                                  NULL)
    Py_INCREF(value)
    PyArray_SetBaseObject(<PyArrayObject*><PyObject*>result, <PyObject*>value)
    return result


cpdef object restored(value, shape, axis):
    """Return a reduced array, with or without keepdims, reshaped to broadcast to the `shape` before the reduction."""
    cdef Py_ssize_t ndim = len(shape), i
    cdef list extents = []
    if axis is None or value.ndim == ndim:
        return value
    for i in range(ndim):
        extents.append(1 if i in axis or i - ndim in axis else shape[i])
    return value.reshape(tuple(extents))


def spread(g, a_shape, axis, where):
    """Return the gradient of a sum over `axis`, for each element of an array of shape `a_shape`. This is a formula."""
    cdef tuple shape = tuple(a_shape)       # the shape of PyTorch arrays is a subclass
    terms = expand(restored(g, shape, axis), shape)
    return terms if where is None else terms * where


def view_at(array, Py_ssize_t offset, tuple shape not None, tuple strides not None):
    """Return a view of the memory of an ndarray, `offset` bytes from its start. It has to lie inside that memory.

    `numpy.ndarray(..., buffer=array)` returns a read-only view if there is no memory for a buffer.
    """
    cdef cnp.npy_intp extents[MAX_AXES]
    cdef cnp.npy_intp steps[MAX_AXES]
    cdef PyArrayObject* whole = <PyArrayObject*><PyObject*>array
    cdef int axis, ndim = <int>min(len(shape), MAX_AXES)
    if Py_TYPE(<PyObject*>array) != &PyArray_Type or len(strides) != len(shape):
        raise TypeError(f"view_at takes an ndarray and a stride for each axis, found {type(array).__name__}, {strides}")
    for axis in range(ndim):
        extents[axis], steps[axis] = shape[axis], strides[axis]
    Py_INCREF(<object>PyArray_DESCR(whole))
    view = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(whole), ndim, extents, steps,
                                <char*>PyArray_DATA(whole) + offset, PyArray_FLAGS(whole) & NPY_ARRAY_WRITEABLE, NULL)
    Py_INCREF(array)
    PyArray_SetBaseObject(<PyArrayObject*><PyObject*>view, <PyObject*>array)
    return view


cdef inline object view_with(PyArrayObject* array, int ndim, cnp.npy_intp* dims, cnp.npy_intp* strides):
    """Return a view of the same memory with other dimensions."""
    Py_INCREF(<object>PyArray_DESCR(array))
    view = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), ndim, dims, strides, PyArray_DATA(array),
                                PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, NULL)
    Py_INCREF(<object><PyObject*>array)
    PyArray_SetBaseObject(<PyArrayObject*><PyObject*>view, <PyObject*>array)
    return view


def sum_to(value, tuple shape):
    """Return `value` summed to `shape`, over the axes that broadcasting added or stretched."""
    cdef PyObject* rows
    cdef tuple found
    cdef Py_ssize_t missing, axis
    cdef list axes
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        if has_shape(<PyObject*>value, shape):
            return value
        if has_leading(<PyObject*>value, shape):
            rows = sum_of_rows(<PyObject*>value)
            return add_reduce(value, 0) if rows == NULL else steal(rows)
    found = tuple(value.shape)
    if found == shape:
        return value
    missing = len(found) - len(shape)
    axes = list(range(missing))
    for axis in range(len(shape)):
        if missing + axis < 0 or (shape[axis] == 1 and found[missing + axis] != 1):
            axes.append(missing + axis)
        elif shape[axis] != found[missing + axis] and shape[axis] == shape[axis]:     # an unknown length is nan
            raise ValueError(f"an array of shape {found} cannot be summed to shape {shape}")
    if not axes:
        return value
    if is_tensor_type(Py_TYPE(<PyObject*>value)) or word_of_array(<PyObject*>value) & ~CPU_WORD:
        total = upcalls.sum(value, tuple(axes))
    else:
        total = add_reduce(value, tuple(axes))
    return total if len(axes) == missing else total.reshape(shape)


cdef object bring_to(gradient, target):
    """Return a gradient with the shape and dtype in `target`."""
    cdef object shape = (<tuple>target)[0], dtype = (<tuple>target)[1]
    if shape is not None:
        gradient = sum_to(gradient, shape)
    if dtype_of(<PyObject*>gradient) is not dtype and gradient.dtype != dtype:
        if is_complex(<PyObject*>gradient) and dtype.kind != "c":
            gradient = gradient.real
        if dtype_of(<PyObject*>gradient) is not dtype and gradient.dtype != dtype:
            gradient = gradient.astype(dtype)
    return gradient


cdef int read_shape(PyObject* value, cnp.npy_intp* extents) noexcept:
    """Return the number of axes of a shape, an int or a list or tuple of ints. Return -1 if NumPy has to read it."""
    cdef Py_ssize_t n = 1, i
    cdef PyObject* item = value
    cdef bint is_sequence = Py_TYPE(value) == &PyList_Type or PyTuple_CheckExact(value)
    if is_sequence:
        n = PySequence_Fast_GET_SIZE(value)
    if n > MOST_AXES:
        return -1
    for i in range(n):
        if is_sequence:
            item = PySequence_Fast_GET_ITEM(value, i)
        if Py_TYPE(item) != &PyLong_Type or not is_compact(item) or compact_value(item) < 0:
            return -1
        extents[i] = compact_value(item)
    return <int>n


cdef bint is_in_c_order(PyArrayObject* array) noexcept:
    """Return whether every axis, even one of length 1, has the stride of C order, and there are elements."""
    cdef cnp.npy_intp stride = PyArray_ITEMSIZE(array)
    cdef int i
    for i in range(PyArray_NDIM(array) - 1, -1, -1):
        if PyArray_STRIDES(array)[i] != stride:
            return False
        stride *= PyArray_DIMS(array)[i]
    return stride > 0


# --- keys of indices, and axes ----------------------------------------------------------------------------------------


cdef bint is_basic_key(key) except -1:
    """Return whether a key is basic indexing in NumPy: integers, slices, None and Ellipsis."""
    if isinstance(key, tuple):
        for item in <tuple>key:
            if not is_basic_key_item(item):
                return False
        return True
    return is_basic_key_item(key)


cdef bint is_basic_key_item(item) except -1:
    if is_basic_item(<PyObject*>item) or isinstance(item, slice):
        return True
    if isinstance(item, (int, numpy_integer)):
        return not isinstance(item, bool)
    return not word_of_array(<PyObject*>item) and hasattr(item, "__index__")


cdef inline bint is_basic_item(PyObject* item) noexcept:
    """Return whether an item is basic indexing, by its exact type. This is a fast check."""
    cdef PyTypeObject* cls = Py_TYPE(item)
    return cls == &PyLong_Type or cls == &PySlice_Type or item == Py_None or item == Py_Ellipsis


cdef inline bint are_ints(PyObject* values) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(values)):
        if Py_TYPE(PyTuple_GET_ITEM(values, i)) != &PyLong_Type:
            return False
    return True


cdef Py_ssize_t rank_of(PyObject* value) except -1:
    """Return the number of axes that an array or number has at its interpreter."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type:
        return PyArray_NDIM(<PyArrayObject*>value)
    if PyType_IsSubtype(cls, &PyArray_Type):
        return PyArray_NDIM(<PyArrayObject*>value)
    if is_scalar_type(cls):
        return 0
    if cls == BATCHED_TYPE:
        return rank_of(<PyObject*>(<Tensor>value).array) - (
            <Wrapper>value).interpreter.hidden_axes(<Wrapper>value)
    if is_tensor_type(cls) and Py_TYPE(<PyObject*>(<Tensor>value).array) == &PyArray_Type:
        return PyArray_NDIM(<PyArrayObject*><PyObject*>(<Tensor>value).array)
    return len((<object>value).shape) if hasattr(<object>value, "shape") else 0
