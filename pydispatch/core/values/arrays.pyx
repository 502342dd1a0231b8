# Array types: NumPy's, those that a backend registers, and arrays without data.

cdef dict registered_array_types = {}       # type -> word
cdef dict words_by_type = {}                # address of a type -> word: a cache that keeps no type alive
cdef dict cached_types = {}                 # address -> weak reference that empties the cache
cdef KnownType known_types[N_KNOWN_TYPES]   # the same for types of run-time backends, readable without Python
memset(known_types, 0, sizeof(known_types))
cdef uint64_t n_times_forgotten = 0         # a look-up that began before the last time is not cached


def register_array_type(cls, uint64_t word):
    """Register `cls`: instances of it and of its subclasses are raw arrays that bring these keys."""
    registered_array_types[cls] = word & KEY_BITS
    forget_all_types()


def forget_array_type(cls):
    """Undo `register_array_type`: instances of `cls` are raw arrays only if those of a base are."""
    registered_array_types.pop(cls, None)
    forget_all_types()


cdef int forget_all_types() except -1:
    if IS_FREE_THREADED:
        with cython.critical_section(registered_array_types):
            return forget_all_types_held()
    return forget_all_types_held()


cdef inline int forget_all_types_held() except -1:
    global n_times_forgotten
    n_times_forgotten += 1
    memset(known_types, 0, sizeof(known_types))
    words_by_type.clear()
    cached_types.clear()
    return 0


def registered_word(cls):
    """Return the word that exactly this type was registered with, or 0 if it was not registered."""
    return registered_array_types.get(cls, 0)


cdef uint64_t resolve_type(cls) except? 1:
    """Return the word of a type that is not cached: that of its nearest base that is an array type.

    If the pack of a backend for this type is installed, load it first: it registers the type.
    """
    cdef uint64_t word, before
    if cls not in registered_array_types:
        upcalls.load_backend(cls)
    address = <size_t><PyObject*>cls
    while True:
        before = n_times_forgotten
        word = nearest_word(cls)        # runs Python code and other threads, which may register a type
        reference = weakref.ref(cls, lambda _: forget_type(address))
        if remember_type(address, word, reference, before):
            return word


cdef bint remember_type(address, uint64_t word, reference, uint64_t before) except -1:
    """Cache the word of a type, unless types were registered since `n_times_forgotten` was `before`."""
    if IS_FREE_THREADED:
        with cython.critical_section(registered_array_types):
            return remember_type_held(address, word, reference, before)
    return remember_type_held(address, word, reference, before)


cdef inline bint remember_type_held(address, uint64_t word, reference, uint64_t before) except -1:
    if n_times_forgotten != before:
        return False
    cached_types[address] = reference
    words_by_type[address] = word
    return True


cdef uint64_t nearest_word(cls) except? 1:
    for base in cls.__mro__:
        if base in registered_array_types:
            return registered_array_types[base]
    return 0


def forget_type(address):
    cdef KnownType* known = place_of_type(<PyTypeObject*><size_t>address)
    if <size_t>known.cls == <size_t>address:
        known.cls = NULL
    words_by_type.pop(address, None)
    cached_types.pop(address, None)


cdef inline KnownType* place_of_type(PyTypeObject* cls) noexcept:
    return &known_types[(<size_t>cls >> 4 ^ <size_t>cls >> 10) % N_KNOWN_TYPES]


cdef inline KnownType* known_type(PyTypeObject* cls) noexcept:
    cdef KnownType* known = place_of_type(cls)
    return known if known.cls == cls else NULL


cdef inline uint64_t word_of_type(PyTypeObject* cls) except? 1:
    cdef KnownType* known = known_type(cls)
    return known.word if known != NULL else word_of_other_type(cls)


cdef uint64_t word_of_other_type(PyTypeObject* cls) except? 1:
    """Return the word of a type that is not in `known_types`. Add types of run-time backends there."""
    cdef KnownType* known
    cdef uint64_t word
    cached = words_by_type.get(<size_t>cls)
    word = resolve_type(<object><PyObject*>cls) if cached is None else <uint64_t>cached
    if word & RUNTIME_BACKEND_BITS and not IS_FREE_THREADED:       # other threads could see only some of the fields
        owns_itself = has_no_base(<object><PyObject*>cls)
        if words_by_type.get(<size_t>cls) == word:      # nothing was registered meanwhile
            known = place_of_type(cls)
            known.cls, known.word, known.owns_itself = cls, word, owns_itself
            known.is_ndarray = PyType_IsSubtype(cls, &PyArray_Type)
    return word


cdef bint has_no_base(cls) except -1:
    """Return whether no object of this class can have an attribute `base`, as views have. The result is cached."""
    return cls.__dictoffset__ == 0 and cls.__getattribute__ is object.__getattribute__ and not any(
        name in base.__dict__ for base in cls.__mro__ for name in ("base", "__getattr__"))


cdef inline bint is_tensor_type(PyTypeObject* cls) noexcept:
    if cls == TENSOR_TYPE or cls == GRAD_TYPE or cls == BATCHED_TYPE or cls == JVP_TYPE:
        return True
    return cls != &PyArray_Type and cls != &PyFloat_Type and PyType_IsSubtype(cls, <PyTypeObject*>Tensor)


cdef inline bint is_scalar_type(PyTypeObject* cls) noexcept:
    return cls == &PyFloat_Type or cls == &PyLong_Type or cls == &PyBool_Type or cls == &PyComplex_Type


cdef inline uint64_t word_of_array(PyObject* value) except? 1:
    """Return the word of one array, or 0 for anything else."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type:
        return CPU_WORD
    return (<Tensor>value).word if cls == TENSOR_TYPE else word_of_other(value, cls)


cdef uint64_t word_of_other(PyObject* value, PyTypeObject* cls) except? 1:
    """Return the word of a value that is neither a NumPy array nor a plain Tensor, or 0 if it is not an array."""
    if cls == GRAD_TYPE or cls == BATCHED_TYPE or cls == JVP_TYPE:
        return (<Tensor>value).word
    if holds_nothing(value) or cls == &PyTuple_Type:
        return 0
    return (<Tensor>value).word if is_tensor_type(cls) else word_of_type(cls)


cdef bint is_of_other_backend(PyObject* value) except -1:
    """Return whether a value is a raw array of a backend other than NumPy, without a Tensor's methods."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type or is_tensor_type(cls) or is_scalar_type(cls) or value == Py_None:
        return False
    return word_of_type(cls) & ~CPU_WORD != 0


cdef object numpy_ndarray = numpy.ndarray
cdef object matrix_of_numpy = numpy.matrix
cdef PyTypeObject* MATRIX_TYPE = <PyTypeObject*>matrix_of_numpy


cdef inline bint is_numpy_matrix(PyObject* value) noexcept:
    """Return whether a value is a numpy.matrix, whose product with an array is not that of two arrays."""
    return PyType_IsSubtype(Py_TYPE(value), MATRIX_TYPE)


cdef inline int refuse_matrix(PyObject* value) except -1:
    """Raise DispatchTypeError for a numpy.matrix that would become a Tensor, whose products are elementwise."""
    if Py_TYPE(value) != &PyArray_Type and is_numpy_matrix(value):
        raise DispatchTypeError("cannot make a Tensor of a numpy.matrix: a * b is the matrix product for matrices, "
                                "but the elementwise product for Tensors\n"
                                "pass numpy.asarray(matrix), and write a @ b for the matrix product")
    return 0


cdef object as_operand_of_formula(value):
    """Wrap an array of another backend in a Tensor, with the library's methods. View one of NumPy's as an ndarray."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type or is_tensor_type(Py_TYPE(<PyObject*>value)):
        return value
    return wrap(value) if is_of_other_backend(<PyObject*>value) else as_plain_array(value)


cdef object as_plain_array(value):
    """View an array of an ndarray subclass, whose operators may differ, as an ndarray. Keep anything else."""
    cdef PyTypeObject* cls = Py_TYPE(<PyObject*>value)
    if cls == &PyArray_Type or not PyType_IsSubtype(cls, &PyArray_Type) or word_of_type(cls) & ~CPU_WORD:
        return value
    return numpy_ndarray.view(value, numpy_ndarray)


def plain_array(value):
    """Return a view of an array of an ndarray subclass as a plain array. Return anything else unchanged."""
    return as_plain_array(value)


def is_array(value):
    """Return whether a value is a Tensor or an instance of a registered raw array type."""
    return word_of_array(<PyObject*>value) != 0


def is_of_numpy(value):
    """Return whether a value is exactly a `numpy.ndarray`, or a NumPy scalar."""
    return Py_TYPE(<PyObject*>value) == &PyArray_Type or is_numpy_scalar(value)


def is_array_type(cls):
    """Return whether instances of `cls` are Tensors or raw arrays."""
    return isinstance(cls, type) and (issubclass(cls, Tensor) or word_of_type(<PyTypeObject*>cls) != 0)


cdef inline object raw_array(Tensor tensor):
    return <object>bottom_of(tensor)


# --- arrays without data ----------------------------------------------------------------------------------------------


@cython.freelist(64)
@cython.trashcan(True)
cdef class MetaArray:
    """An array of the given shape and dtype that has no data.

    Parameters
    ----------
    shape : int or tuple of ints
        The shape.
    dtype : dtype, optional
        The dtype, float64 by default.
    base : array, optional
        The array that owns the memory which this one, a view, would share. None for an owner.
    strides : tuple of ints, optional
        The strides, by default those of C order.

    Raises
    ------
    ValueError
        For negative dimensions or too many elements.

    Examples
    --------
    >>> from pydispatch.backends import MetaArray
    >>> MetaArray((2, 3), float).strides
    (24, 8)
    """

    def __init__(self, shape, dtype=None, base=None, *, strides=None):
        self.shape = checked_shape(shape)
        self.dtype = <object>dtype if type(dtype) is numpy_dtype else numpy_dtype(dtype)
        check_bytes(self.shape, self.dtype.itemsize)
        if base is not None:
            self.base = base
        self.steps = None if strides is None else tuple(strides)

    @property
    def base(self):
        """For a view, the array that would own its memory, else None."""
        return self.owner

    @base.setter
    def base(self, value):
        below = value
        while below is not None:
            if below is self:
                raise ValueError("an array cannot be a view of itself\nset base to the array that owns the memory")
            below = getattr(below, "base", None)
        self.owner = value

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
        """Number of bytes that the elements would take."""
        return number_of_elements(self.shape) * self.dtype.itemsize

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return strides_in_order(self.shape, self.dtype.itemsize) if self.steps is None else self.steps

    def __len__(self):
        if not self.shape:
            raise TypeError("an array of shape () has no len()\nread .shape")
        return self.shape[0]

    def __bool__(self):
        raise self.no_data("bool()")

    def __int__(self):
        raise self.no_data("int()")

    def __float__(self):
        raise self.no_data("float()")

    def __complex__(self):
        raise self.no_data("complex()")

    def __index__(self):
        raise self.no_data("an index")

    def __array__(self, dtype=None, copy=None):
        raise self.no_data("numpy.asarray()")

    def __reduce__(self):
        return MetaArray, (self.shape, self.dtype)

    def __repr__(self):
        return f"MetaArray(shape={self.shape}, dtype={self.dtype})"

    def no_data(self, str what):
        """Return the error that reading data raises."""
        return NoDataError(
            f"{what}: a MetaArray has a shape and a dtype, but no data\n"
            "run the operator on arrays of a backend with data, or read .shape and .dtype"
        )


@cython.final
cdef class Shell(MetaArray):
    """The metadata that a wrapper holds instead of an array: shape, dtype, strides and backend.

    `Shell(inner)` takes all of them from an array or Tensor. Each can be given. `device` is the name of a backend, CPU
    by default.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch.subclasses import Shell
    >>> Shell(numpy.ones((2, 3)))
    Shell(shape=(2, 3), dtype=float64)
    """

    def __init__(self, like=None, *, shape=None, dtype=None, strides=None, device=None, base=None):
        cdef PyObject* array = <PyObject*>like
        if base is not None:
            self.base = base
        if like is None and shape is None:
            raise DispatchTypeError("Shell() needs a shape\nwrite Shell(inner), or Shell(shape=(2, 3), dtype=float)")
        if like is not None:
            copy_metadata(self, array)
        else:
            self.keys = CPU_WORD
            self.dtype = numpy_dtype(dtype)
        if shape is not None or dtype is not None:
            self.steps = None
        if device is not None:
            self.keys = word_of_keys(device) & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
        if shape is not None:
            self.shape = checked_shape(shape)
        if dtype is not None:
            self.dtype = numpy_dtype(dtype)
        if shape is not None or dtype is not None:
            check_bytes(self.shape, self.dtype.itemsize)
        if strides is not None:
            self.steps = tuple(strides)

    @property
    def device(self):
        """The key of the backend that it pretends to be on."""
        return slot_keys[highest_slot(self.keys)]

    def __reduce__(self):
        return shell_from_parts, (self.shape, self.dtype, self.steps, keyset(self.keys))

    def __repr__(self):
        return f"Shell(shape={self.shape}, dtype={self.dtype})"

    def no_data(self, str what):
        """Return the error that reading data raises."""
        if self.fake:
            return NoDataError(
                f"{what}: a FakeTensor has a shape, a dtype and a device, but no data\n"
                "read these, or use the array itself outside the FakeMode"
            )
        return NoDataError(
            f"{what}: the Tensor is a wrapper without its own memory, and no handler returns its values\n"
            "use the values of the arrays that it wraps, or handle the operator in its __pydispatch__"
        )


cdef int copy_metadata(Shell shell, PyObject* array) except -1:
    """Copy shape, dtype, strides and backend of an array or Tensor to a Shell."""
    cdef uint64_t word = word_of_array(array)
    if word == 0:
        raise DispatchTypeError(
            f"Shell: {a_type(<object>array)} is not an array\nwrite Shell(shape=..., dtype=...)")
    if is_tensor_type(Py_TYPE(array)):
        array = bottom_of(<Tensor>array)
    shell.keys = word & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
    if Py_TYPE(array) == &PyArray_Type:
        shell.shape = shape_of(array)
        shell.dtype = <object>PyArray_DESCR(<PyArrayObject*>array)
        if not PyArray_FLAGS(<PyArrayObject*>array) & NPY_ARRAY_C_CONTIGUOUS:
            shell.steps = (<object>array).strides
    elif isinstance(<object>array, MetaArray):
        shell.shape = (<MetaArray>array).shape
        shell.dtype = (<MetaArray>array).dtype
        shell.steps = (<MetaArray>array).steps
        if isinstance(<object>array, Shell):
            shell.keys = (<Shell>array).keys
    else:
        shell.shape = shape_of(array)
        shell.dtype = dtype_of(array)
        shell.steps = getattr(<object>array, "strides", None)
    return 0


cdef PyObject* call_shell(PyObject* cls, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Make a `Shell(inner)` without a tuple of arguments."""
    cdef Shell shell
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    if n != 1 or kwnames != NULL:
        keywords = {} if kwnames == NULL else {
            name: <object>args[n + i] for i, name in enumerate(<tuple><object>kwnames)}
        shell = Shell.__new__(Shell)
        shell.__init__(*[<object>args[i] for i in range(n)], **keywords)
        return new_reference(shell)
    shell = Shell.__new__(Shell)
    if args[0] == Py_None:
        shell.__init__()
    copy_metadata(shell, args[0])
    return new_reference(shell)


set_call_of_class(<PyTypeObject*>Shell, <vectorcallfunc>call_shell)


def shell_from_parts(shape, dtype, strides, keys):
    """Return the Shell that a pickle describes."""
    return Shell(shape=shape, dtype=dtype, strides=strides, device=keys)
