# --- arrays without data ---------------------------------------------------------------------------------------------

@cython.freelist(64)
cdef class MetaArray:
    """An array of the given shape and dtype that has no data; ValueError for negative dimensions.

    `base` is the array that owns the memory which this one, a view, would share; None for an owner. `strides` are those
    of an array in C order where none are given.
    """

    def __init__(self, shape, dtype=None, base=None, *, strides=None):
        self.shape = checked_shape(shape)
        self.dtype = <object>dtype if type(dtype) is numpy_dtype else numpy_dtype(dtype)
        self.base = base
        self.steps = None if strides is None else tuple(strides)

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self):
        """Number of elements."""
        return number_of_elements(self.shape)

    @property
    def itemsize(self):
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self):
        """Bytes that the elements would take."""
        return number_of_elements(self.shape) * self.dtype.itemsize

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return strides_in_order(self.shape, self.dtype.itemsize) if self.steps is None else self.steps

    def __len__(self):
        if not self.shape:
            raise TypeError(f"len() of a {type(self).__name__} of shape ()")
        return self.shape[0]

    def __bool__(self):
        raise self.no_data("bool()")

    def __array__(self, dtype=None, copy=None):
        raise self.no_data("numpy.asarray()")

    def __reduce__(self):
        return MetaArray, (self.shape, self.dtype, None)

    def __repr__(self):
        return f"MetaArray(shape={self.shape}, dtype={self.dtype})"

    def no_data(self, str what):
        """The error of asking for data."""
        return DispatchTypeError(
            f"{what}: a MetaArray has a shape and a dtype, but no data\n"
            "run the operator on arrays of a backend with data, or read .shape and .dtype"
        )


@cython.final
cdef class Shell(MetaArray):
    """What a wrapper holds in place of an array: shape, dtype, strides and backend of one that is elsewhere.

    `Shell(inner)` takes all of them from an array or Tensor; each can be given. `device` is the name of a backend, CPU
    where nothing says another.
    """

    def __init__(self, like=None, *, shape=None, dtype=None, strides=None, device=None):
        cdef PyObject* array = <PyObject*>like
        if like is None and shape is None:
            raise DispatchTypeError("Shell() needs a shape\nwrite Shell(inner), or Shell(shape=(2, 3), dtype=float)")
        if is_tensor_type(Py_TYPE(array)):
            self.keys = (<Tensor>like).word & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
            array = bottom_of(<Tensor>like)
        elif like is not None:
            self.keys = word_of_array(array)
            if self.keys == 0:
                raise DispatchTypeError(f"Shell: a {type(like).__name__} is no array\nwrite Shell(shape=..., dtype=...)")
        else:
            self.keys = CPU_WORD
        if isinstance(<object>array, Shell):
            self.keys = (<Shell>array).keys
        if device is not None:
            self.keys = word_of_keys(device) & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
        self.shape = shape_of(array) if shape is None else checked_shape(shape)
        if dtype is not None or like is None:
            self.dtype = numpy_dtype(dtype)
        else:
            self.dtype = dtype_of(array)
        if strides is not None:
            self.steps = tuple(strides)
        elif shape is None and dtype is None and (
                Py_TYPE(array) != &PyArray_Type or not PyArray_FLAGS(<PyArrayObject*>array) & NPY_ARRAY_C_CONTIGUOUS):
            self.steps = getattr(<object>array, "strides", None)

    @property
    def device(self):
        """The key of the backend that it pretends to be of."""
        return slot_keys[highest_slot(self.keys)]

    def __reduce__(self):
        return shell_from_parts, (self.shape, self.dtype, self.steps, keyset(self.keys))

    def __repr__(self):
        return f"Shell(shape={self.shape}, dtype={self.dtype})"

    def no_data(self, str what):
        """The error of asking for data."""
        return DispatchTypeError(
            f"{what}: the Tensor is a wrapper without memory of its own, and a handler would have to say what it holds\n"
            "take the values from what it wraps, or handle the operator in its __pydispatch__"
        )


def shell_from_parts(shape, dtype, strides, keys):
    """A Shell, from what its pickle says."""
    return Shell(shape=shape, dtype=dtype, strides=strides, device=keys)


cdef object numpy_dtype = numpy.dtype


cdef tuple checked_shape(shape):
    """A shape as a tuple of ints."""
    if type(shape) is not tuple or not are_ints(<PyObject*>shape):
        shape = (shape.__index__(),) if hasattr(shape, "__index__") else tuple([extent.__index__() for extent in shape])
    for extent in <tuple>shape:
        if extent < 0:
            raise ValueError(f"negative dimensions are not allowed: {shape}")
    return shape


cdef object number_of_elements(tuple shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


cdef tuple strides_in_order(tuple shape, itemsize):
    """The strides of an array in C order."""
    cdef list strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= max(extent, 1)
    return tuple(reversed(strides))
