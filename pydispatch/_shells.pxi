# --- arrays without data ---------------------------------------------------------------------------------------------

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
            take_outline(self, array)
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
            f"{what}: the Tensor is a wrapper without memory of its own, and a handler would have to say what it holds\n"
            "take the values from what it wraps, or handle the operator in its __pydispatch__"
        )


cdef int take_outline(Shell shell, PyObject* array) except -1:
    """Shape, dtype, strides and backend of an array or Tensor."""
    cdef uint64_t word = word_of_array(array)
    if word == 0:
        raise DispatchTypeError(
            f"Shell: a {type(<object>array).__name__} is no array\nwrite Shell(shape=..., dtype=...)")
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
        shell.dtype = (<object>array).dtype
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
    take_outline(shell, args[0])
    return give(shell)

(<vectorcallable*>Shell).tp_vectorcall = <vectorcallfunc>call_shell


def shell_from_parts(shape, dtype, strides, keys):
    """A Shell, from what its pickle says."""
    return Shell(shape=shape, dtype=dtype, strides=strides, device=keys)


cdef class WrapperTensor(Tensor):
    """A Tensor without memory of its own around another one, its `inner`. A subclass defines `__pydispatch__`.

    `WrapperTensor(inner)` takes shape, dtype, strides and backend from `inner`, an array or Tensor. A class whose shape
    or dtype differ, or that holds several, calls `Tensor.__init__(self, Shell(...))` instead.
    """

    def __init__(self, inner, *, bint requires_grad=False):
        wrap_around(self, inner, requires_grad)

    def __tensor_flatten__(self):
        return ("inner",), None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, shape, strides):
        return cls(inner["inner"])

    def __repr__(self):
        return f"{type(self).__name__}({getattr(self, 'inner', None)!r})"     # which may have been deleted


cdef int wrap_around(WrapperTensor wrapper, inner, bint requires_grad) except -1:
    cdef Shell shell
    if is_numpy_scalar(inner):
        inner = array_of_scalar(inner)
    if not wrapper.word and has_handler(Py_TYPE(<PyObject*>wrapper)) and not requires_grad and (
            not (<State>borrowed_state()).inference):
        shell = Shell.__new__(Shell)
        take_outline(shell, <PyObject*>inner)
        wrapper.array = shell
        wrapper.word = shell.keys | TENSOR_FLAG | PYTHON_BIT | (
            AUTOGRAD_BIT if shell.keys & DENSE_BIT else AUTOGRAD_OTHER_BIT)
    else:
        Tensor.__init__(wrapper, Shell(inner), requires_grad=requires_grad)
    put_reference(<PyObject**>(<char*><PyObject*>wrapper + inner_member.offset), <PyObject*>inner)
    return 0


def make_directly_callable(type cls, **kwargs):
    """Set up a subclass of WrapperTensor: types do not pass on how they are called."""
    super(WrapperTensor, cls).__init_subclass__(**kwargs)
    (<vectorcallable*>cls).tp_vectorcall = <vectorcallfunc>call_wrapper_class

extend(WrapperTensor, __init_subclass__=classmethod(make_directly_callable))


cdef PyObject* call_wrapper_class(PyObject* cls, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """`Class(inner)`, without a tuple of arguments in between where the class is made as WrapperTensor is."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i
    if (n == 1 and kwnames == NULL and (<vectorcallable*>cls).tp_init == (<vectorcallable*>WrapperTensor).tp_init
            and (<vectorcallable*>cls).tp_new == (<vectorcallable*>WrapperTensor).tp_new):
        made = own(new_object(<PyTypeObject*>cls, <PyObject*>NO_ARGUMENTS))
        wrap_around(made, <object>args[0], False)
        return give(made)
    positional = tuple([<object>args[i] for i in range(n)])
    keywords = {} if kwnames == NULL else {name: <object>args[n + i] for i, name in enumerate(<tuple><object>kwnames)}
    return (<vectorcallable*>type).tp_call(cls, <PyObject*>positional, <PyObject*>keywords)


cdef extern from *:
    """
    static inline void put_reference(PyObject** place, PyObject* value)
    {
        PyObject* old = *place;
        Py_INCREF(value);
        *place = value;
        Py_XDECREF(old);        /* NULL after `del` */
    }
    """
    void put_reference(PyObject** place, PyObject* value)

cdef extern from "structmember.h":
    ctypedef struct PyMemberDef:
        const char* name
        int type
        Py_ssize_t offset
        int flags
        const char* doc
    int T_OBJECT_EX
    object PyDescr_NewMember(PyTypeObject*, PyMemberDef*)

cdef PyMemberDef inner_member
inner_member.name = b"inner"
inner_member.type = T_OBJECT_EX
inner_member.offset = WrapperTensor.__basicsize__ - sizeof(void*)      # it is the last one
inner_member.flags = 0
inner_member.doc = b"What it is wrapped around."
# the interpreter reads members, and not Cython's properties, without a call
extend(WrapperTensor, inner=PyDescr_NewMember(<PyTypeObject*>WrapperTensor, &inner_member))


cdef object numpy_dtype = numpy.dtype


cdef tuple checked_shape(shape):
    """A shape as a tuple of ints."""
    if type(shape) is not tuple or not are_ints(<PyObject*>shape):
        shape = (as_index(shape),) if hasattr(shape, "__index__") else tuple(map(as_index, shape))
    check_rank(len(<tuple>shape))
    for extent in <tuple>shape:
        if extent < 0:
            raise ValueError(f"negative dimensions are not allowed: {shape}")
    return shape


cdef int check_rank(Py_ssize_t rank) except -1:
    """A number of axes that an array can have."""
    if rank > MAX_AXES:
        raise ValueError(f"an array of {rank} axes; NumPy's have at most {MAX_AXES}\nreshape to fewer axes")
    return rank


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
