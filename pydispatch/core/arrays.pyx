# Array types: NumPy's, those that a backend registers, and arrays without data.

cdef dict registered_array_types = {}       # type -> word
cdef dict words_by_type = {}                # address of a type -> word: a cache that keeps no type alive
cdef dict cached_types = {}                 # address -> weak reference that empties the cache
cdef KnownType known_types[N_KNOWN_TYPES]   # the same again for types of run-time backends, to be read without Python
memset(known_types, 0, sizeof(known_types))
cdef uint64_t n_times_forgotten = 0         # what was looked up before the last time is not noted after it


def register_array_type(cls, uint64_t word):
    """Instances of `cls`, and of its subclasses, are raw arrays that bring these keys."""
    registered_array_types[cls] = word & KEY_BITS
    forget_all_types()


def forget_array_type(cls):
    """Instances of `cls` are no raw arrays, unless those of a base are."""
    registered_array_types.pop(cls, None)
    forget_all_types()


cdef int forget_all_types() except -1:
    global n_times_forgotten
    n_times_forgotten += 1
    memset(known_types, 0, sizeof(known_types))
    words_by_type.clear()
    cached_types.clear()
    return 0


def registered_word(cls):
    """The word that exactly this type was registered with; 0 when it was not."""
    return registered_array_types.get(cls, 0)


cdef uint64_t resolve_type(cls) except? 1:
    """The word of a type that no call has met before: that of its nearest base that is an array type.

    The pack of a backend for arrays of this type may be installed, which registers it.
    """
    cdef uint64_t word, before
    if cls not in registered_array_types:
        upcalls.load_backend(cls)
    address = <size_t><PyObject*>cls
    while True:
        before = n_times_forgotten
        word = nearest_word(cls)        # runs Python's code, and other threads: a type may be registered meanwhile
        reference = weakref.ref(cls, lambda _: forget_type(address))
        if n_times_forgotten == before:
            break
    cached_types[address] = reference
    words_by_type[address] = word
    return word


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
    """The word of a type that is not noted; one of a run-time backend is from now on."""
    cdef KnownType* known
    cdef uint64_t word
    cached = words_by_type.get(<size_t>cls)
    word = resolve_type(<object><PyObject*>cls) if cached is None else <uint64_t>cached
    if word & RUNTIME_BACKEND_BITS:
        owns_itself = has_no_base(<object><PyObject*>cls)
        if words_by_type.get(<size_t>cls) == word:      # nothing was registered meanwhile
            known = place_of_type(cls)
            known.cls, known.word, known.owns_itself = cls, word, owns_itself
    return word


cdef bint has_no_base(cls) except -1:
    """Can no object of this class have an attribute `base`, as views have? A class is not asked a second time."""
    return cls.__dictoffset__ == 0 and cls.__getattribute__ is object.__getattribute__ and not any(
        name in base.__dict__ for base in cls.__mro__ for name in ("base", "__getattr__"))


cdef inline bint is_tensor_type(PyTypeObject* cls) noexcept:
    if cls == TENSOR_TYPE or cls == GRAD_TYPE or cls == BATCHED_TYPE or cls == JVP_TYPE:
        return True
    return cls != &PyArray_Type and cls != &PyFloat_Type and PyType_IsSubtype(cls, <PyTypeObject*>Tensor)


cdef inline bint is_scalar_type(PyTypeObject* cls) noexcept:
    return cls == &PyFloat_Type or cls == &PyLong_Type or cls == &PyBool_Type or cls == &PyComplex_Type


cdef inline uint64_t word_of_array(PyObject* value) except? 1:
    """The word of one array; 0 for anything else."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type:
        return CPU_WORD
    return (<Tensor>value).word if cls == TENSOR_TYPE else word_of_other(value, cls)


cdef uint64_t word_of_other(PyObject* value, PyTypeObject* cls) except? 1:
    """The word of a value that is neither an array of NumPy's nor a plain Tensor; 0 for what is no array."""
    if cls == GRAD_TYPE or cls == BATCHED_TYPE or cls == JVP_TYPE:
        return (<Tensor>value).word
    if holds_nothing(value) or cls == &PyTuple_Type:
        return 0
    return (<Tensor>value).word if is_tensor_type(cls) else word_of_type(cls)


cdef bint is_of_other_backend(PyObject* value) except -1:
    """Is this a raw array of another backend than NumPy's, whose methods are not those of Tensors?"""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type or is_tensor_type(cls) or is_scalar_type(cls) or value == Py_None:
        return False
    return word_of_type(cls) & ~CPU_WORD != 0


cdef object as_operand_of_formula(value):
    """Such an array as a Tensor, whose operators and methods are operators of the library; anything else as it is."""
    return wrap(value) if is_of_other_backend(<PyObject*>value) else value


def is_array(value):
    """Is this a Tensor, or an instance of a registered raw array type?"""
    return word_of_array(<PyObject*>value) != 0


def is_of_numpy(value):
    """Is this an array of NumPy's, of that very class, or one of its scalars?"""
    return Py_TYPE(<PyObject*>value) == &PyArray_Type or is_numpy_scalar(value)


def is_array_type(cls):
    """Are instances of `cls` Tensors or raw arrays?"""
    return isinstance(cls, type) and (issubclass(cls, Tensor) or word_of_type(<PyTypeObject*>cls) != 0)


cdef inline object raw_array(Tensor tensor):
    return <object>bottom_of(tensor)


# --- arrays without data ----------------------------------------------------------------------------------------------


@cython.freelist(64)
@cython.trashcan(True)
cdef class MetaArray:
    """An array of the given shape and dtype that has no data; ValueError for negative dimensions.

    `base` is the array that owns the memory which this one, a view, would share; None for an owner. `strides` are those
    of an array in C order where none are given.
    """

    def __init__(self, shape, dtype=None, base=None, *, strides=None):
        self.shape = checked_shape(shape)
        self.dtype = <object>dtype if type(dtype) is numpy_dtype else numpy_dtype(dtype)
        if base is not None:
            self.base = base
        self.steps = None if strides is None else tuple(strides)

    @property
    def base(self):
        """The array that owns the memory which this one, a view, would share; None for an owner."""
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
        """Bytes that the elements would take."""
        return number_of_elements(self.shape) * self.dtype.itemsize

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return strides_in_order(self.shape, self.dtype.itemsize) if self.steps is None else self.steps

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of an array of shape ()\nread .shape")
        return self.shape[0]

    def __bool__(self):
        raise self.no_data("bool()")

    def __array__(self, dtype=None, copy=None):
        raise self.no_data("numpy.asarray()")

    def __reduce__(self):
        return MetaArray, (self.shape, self.dtype)

    def __repr__(self):
        return f"MetaArray(shape={self.shape}, dtype={self.dtype})"

    def no_data(self, str what):
        """The error of asking for data."""
        return NoDataError(
            f"{what}: a MetaArray has a shape and a dtype, but no data\n"
            "run the operator on arrays of a backend with data, or read .shape and .dtype"
        )


@cython.final
cdef class Shell(MetaArray):
    """What a wrapper holds in place of an array: shape, dtype, strides and backend of one that is elsewhere.

    `Shell(inner)` takes all of them from an array or Tensor; each can be given. `device` is the name of a backend, CPU
    where nothing says another.
    """

    def __init__(self, like=None, *, shape=None, dtype=None, strides=None, device=None, base=None):
        cdef PyObject* array = <PyObject*>like
        if base is not None:
            self.base = base
        if like is None and shape is None:
            raise DispatchTypeError("Shell() needs a shape\nwrite Shell(inner), or Shell(shape=(2, 3), dtype=float)")
        if like is not None:
            take_metadata(self, array)
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
        if strides is not None:
            self.steps = tuple(strides)

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
        if self.fake:
            return NoDataError(
                f"{what}: a FakeTensor has a shape, a dtype and a device, but no data\n"
                "read these, or call what needs data outside of the FakeMode, with the array"
            )
        return NoDataError(
            f"{what}: the Tensor is a wrapper without memory of its own, and no handler gives its values\n"
            "take the values from what it wraps, or handle the operator in its __pydispatch__"
        )


cdef int take_metadata(Shell shell, PyObject* array) except -1:
    """Shape, dtype, strides and backend of an array or Tensor."""
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
        shell.place = <size_t>PyArray_DATA(<PyArrayObject*>array)
        if not PyArray_FLAGS(<PyArrayObject*>array) & NPY_ARRAY_C_CONTIGUOUS:
            shell.steps = (<object>array).strides
    elif isinstance(<object>array, MetaArray):
        shell.shape = (<MetaArray>array).shape
        shell.dtype = (<MetaArray>array).dtype
        shell.steps = (<MetaArray>array).steps
        if isinstance(<object>array, Shell):
            shell.keys = (<Shell>array).keys
            shell.place = (<Shell>array).place
    else:
        shell.shape = shape_of(array)
        shell.dtype = dtype_of(array)
        shell.steps = getattr(<object>array, "strides", None)
    return 0


cdef PyObject* call_shell(PyObject* cls, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """`Shell(inner)` without a tuple of arguments in between."""
    cdef Shell shell
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    if n != 1 or kwnames != NULL:
        keywords = {} if kwnames == NULL else {
            name: <object>args[n + i] for i, name in enumerate(<tuple><object>kwnames)}
        shell = Shell.__new__(Shell)
        shell.__init__(*[<object>args[i] for i in range(n)], **keywords)
        return give(shell)
    shell = Shell.__new__(Shell)
    if args[0] == Py_None:
        shell.__init__()
    take_metadata(shell, args[0])
    return give(shell)


(<vectorcallable*>Shell).tp_vectorcall = <vectorcallfunc>call_shell


def shell_from_parts(shape, dtype, strides, keys):
    """A Shell, from what its pickle says."""
    return Shell(shape=shape, dtype=dtype, strides=strides, device=keys)
