# `vmap`: interpreter, wrapper, batching, and entry point.
#
# A value of an interpreter of `vmap` has its batch axis first in the value below, always. So a rule for an operator
# says what the call on the whole batch is, for arguments that have such an axis or have none.


@cython.final
cdef class Vmap(Interpreter):
    """The interpreter of `vmap`: `batch_size` examples at once. `randomness` is "error", "same" or "different"."""

    def __init__(self, Py_ssize_t batch_size, str randomness="error", str name="vmap", site=None):
        self.batch_size = batch_size
        self.randomness = randomness
        self.name = name
        self.site = site

    @property
    def sees_functions(self):
        return self.randomness != "same"

    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        return call_batched(op, table, frame, state, self, kind)

    cdef Wrapper new_wrapper(self, value, tangent):
        if not is_batch_of(<PyObject*>value, self):
            raise upcalls.not_a_batch(value, self)
        return BatchedTensor.__new__(BatchedTensor)

    cdef int change_inside(self, State inside) except -1:
        return 0


@cython.final
cdef class BatchedTensor(Wrapper):
    """A value of a running `vmap`; the first axis of its array is the batch, what is seen of it is one example."""

    @property
    def shape(self):
        """Length of each dimension."""
        return shape_of(bottom_of(self))

    @property
    def ndim(self):
        """Number of dimensions."""
        return rank_of(<PyObject*>self)

    @property
    def size(self):
        """Number of elements."""
        return (<object>bottom_of(self)).size

    @property
    def nbytes(self):
        """Bytes of all elements."""
        return (<object>bottom_of(self)).nbytes

    @property
    def strides(self):
        """Bytes to step in each dimension."""
        return (<object>bottom_of(self)).strides

    def __len__(self):
        return len(<object>bottom_of(self))

    def __iter__(self):
        if rank_of(<PyObject*>self) == 0:
            raise TypeError("iteration over a 0-d Tensor")
        return (self[i] for i in range(len(self)))


cdef PyObject* layout_of(BatchedTensor tensor) except NULL:
    """An array that lies in memory as one example does; the Tensor keeps it."""
    if tensor.layout is None:
        tensor.layout = example_of(bottom_of(<Tensor>tensor.array) if is_tensor_type(Py_TYPE(<PyObject*>tensor.array))
                                   else <PyObject*>tensor.array)
    return <PyObject*>tensor.layout


cdef object example_of(PyObject* batch):
    """The first example of a batch, as a view; of an empty one, where it would lie."""
    cdef PyArrayObject* array = <PyArrayObject*>batch
    if Py_TYPE(batch) != &PyArray_Type:
        strides = getattr(<object>batch, "strides", None)
        return MetaArray(tuple((<object>batch).shape)[1:], dtype_of(<PyObject*>batch), <object>batch,
                         strides=None if strides is None else strides[1:])
    return view_with(array, PyArray_NDIM(array) - 1, PyArray_DIMS(array) + 1, PyArray_STRIDES(array) + 1)


cdef bint is_batch_of(PyObject* value, Vmap interpreter) except -1:
    """Has the array a first axis of as many examples as the interpreter?"""
    if is_tensor_type(Py_TYPE(value)):
        value = bottom_of(<Tensor>value)
    if Py_TYPE(value) == &PyArray_Type:
        return (PyArray_NDIM(<PyArrayObject*>value) > 0
                and PyArray_DIMS(<PyArrayObject*>value)[0] == interpreter.batch_size)
    shape = tuple(getattr(<object>value, "shape", ()))
    return len(shape) > 0 and shape[0] == interpreter.batch_size


cdef Py_ssize_t rank_of(PyObject* value) except -1:
    """The number of axes of an array or number, as it is seen at its interpreter."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if cls == &PyArray_Type:
        return PyArray_NDIM(<PyArrayObject*>value)
    if is_scalar_type(cls):
        return 0
    if cls == BATCHED_TYPE:
        return rank_of(<PyObject*>(<Tensor>value).array) - 1
    if is_tensor_type(cls) and Py_TYPE(<PyObject*>(<Tensor>value).array) == &PyArray_Type:
        return PyArray_NDIM(<PyArrayObject*><PyObject*>(<Tensor>value).array)
    return len((<object>value).shape) if hasattr(<object>value, "shape") else 0


cdef enum:
    POINTWISE = 1       # every element of the result depends on one element of each argument
    BY_CHANGES = 2      # the same operator with some arguments changed
    BY_FUNCTION = 3     # a function says what to do


@cython.final
cdef class BatchingRule:
    """How a batch of calls of one operator is done at once, as its declaration says.

    Either "pointwise", or functions that change arguments, by name, or one function `(op, info, in_dims, *args)` that
    gives (results, out_dims). That may have an attribute `max_other_ndim`: with a batch as the first argument only, of
    examples that have axes, and others of that many axes at most, the call on the batch is the call on an example.
    """

    def __cinit__(self, how, Signature signature):
        self.signature = signature
        if how == "pointwise":
            self.kind = POINTWISE
        elif callable(how):
            self.kind = BY_FUNCTION
            self.rule = how
            self.max_other_ndim = getattr(how, "max_other_ndim", -1)
        else:
            if not isinstance(how, dict):
                raise TypeError(f"{signature.schema}: vmap={how!r} says nothing about batches\n"
                                'pass "pointwise", a function, or a dict of functions by argument')
            self.kind = BY_CHANGES
            self.changes = ()
            for name, change in how.items():
                self.changes += ((signature.names.index(name), change),)


cdef object call_batched(OpOverload op, Table table, Frame* frame, State state, Vmap interpreter, CallKind kind):
    """Steps 2 to 7 at an interpreter of `vmap`."""
    cdef Signature signature = table.signature
    cdef BatchingRule batching = table.batching
    cdef uint64_t owned = owned_arguments(frame, signature, interpreter)
    cdef Cell around
    cdef object dims = 0
    if owned == 0 and not table.is_random:
        result = pass_below(op, table, frame, state, kind)
        if frame.word == 0 and table.is_factory and word_of_array(<PyObject*>result) and not isinstance(result, Tensor):
            return wrap(result)     # so that batches can be written to it, or rather that be refused
        return result
    if signature.mutable:
        check_batched_writes(op, signature, frame, interpreter, owned)
    rule = rule_for(table, Vmap)
    if rule is not None:
        return call_transform(op, signature, frame, state, interpreter, rule)
    entry = autograd_entry(table, frame, frame.word)
    if entry is not None and (<TableEntry>entry).convention & COMPOSITE:
        return run_entry(op, table, <TableEntry>entry, frame, frame.word & KEY_BITS, state, kind)
    if signature.mutable:
        bump_versions(signature, frame)
    go_deeper(&around, lowered_state(state))
    try:
        if batching is None:
            args, kwargs = arguments_with(frame, signature, None)
            result = upcalls.batch_by_default(op, interpreter, args, kwargs)
        elif batching.kind == POINTWISE:
            result = call_pointwise(op, signature, frame, interpreter, owned)
        elif batching.kind == BY_CHANGES:
            result = call_changed(op, signature, batching, frame, interpreter, owned)
        else:
            result, dims = call_batching_rule(op, signature, batching, frame, interpreter)
    except Exception as error:
        if batching is None or table.is_random:
            raise
        args, kwargs = arguments_with(frame, signature, None)
        of_example = upcalls.example_error(op, interpreter, args, kwargs, error)
        if of_example is None:
            raise
        raise of_example from None
    finally:
        come_back(&around)
    if batching is None:
        return finish_handled(op, signature, frame, interpreter, result)
    if type(dims) is int and dims == 0:
        return wrap_results(signature, frame, result, interpreter)
    return wrap_batches(signature, frame, result, dims, interpreter)


cdef uint64_t owned_arguments(Frame* frame, Signature signature, Interpreter interpreter) except? 1:
    """The arguments, one bit each, that are values of the interpreter or hold some."""
    cdef uint64_t owned = 0
    cdef Py_ssize_t i
    if not frame.word & WRAPPER_FLAG:
        return 0
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if owned_by(frame.values[i], interpreter):
            owned |= bit(i)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(frame.values[i]) & WRAPPER_FLAG:
            for leaf in array_leaves(<object>frame.values[i]):
                if owned_by(<PyObject*>leaf, interpreter):
                    owned |= bit(i)
                    break
    return owned


cdef int check_batched_writes(op, Signature signature, Frame* frame, Vmap interpreter, uint64_t owned) except -1:
    """Raise before what differs from example to example is written to what all of them share."""
    cdef Py_ssize_t i
    if owned == 0:
        return 0
    for i in range(frame.count):
        if not signature.mutable & bit(i) or frame.values[i] == NULL:
            continue
        for leaf in array_leaves(<object>frame.values[i]):
            if not owned_by(<PyObject*>leaf, interpreter):
                raise upcalls.unbatched_write(op, signature.names[i], leaf, interpreter)
    return 0


cdef object call_pointwise(OpOverload op, Signature signature, Frame* frame, Vmap interpreter, uint64_t owned):
    """The operator on batches whose examples have the same number of axes; what has no batch axis broadcasts."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef list kept = None
    cdef Py_ssize_t i, rank = 0
    # not every kernel repeats what is the same for all examples to fill a batch
    cdef bint fills = signature.mutable & ~<uint64_t>1 and not owned & ~signature.mutable, arrays = False
    for i in range(frame.count):
        values[i + 1] = frame.values[i]
        if fills and values[i + 1] != NULL and signature.arrays & ~signature.mutable & bit(i):
            arrays |= word_of_array(values[i + 1]) != 0
        if values[i + 1] != NULL and signature.arrays & bit(i) and values[i + 1] != Py_None:
            rank = max(rank, rank_of(values[i + 1]))
    for i in range(frame.count):
        if signature.mutable & bit(i) and values[i + 1] != NULL and rank_of(values[i + 1]) < rank:
            raise ValueError(f"operator {op.name}: argument {signature.names[i]!r} has {rank_of(values[i + 1])} axes, "
                             f"the result has {rank}")
        if owned & bit(i):
            values[i + 1] = <PyObject*>(<Tensor>values[i + 1]).array
            if rank_of(values[i + 1]) <= rank and not signature.mutable & bit(i):
                aligned = aligned_batch(values[i + 1], rank)
                values[i + 1] = <PyObject*>aligned
                kept = keep_in(kept, aligned)
        elif fills and values[i + 1] != NULL and values[i + 1] != Py_None and signature.arrays & bit(i) and (
                not arrays or word_of_array(values[i + 1])):
            repeated = repeated_in_batch(<object>values[i + 1], interpreter)
            aligned = aligned_batch(<PyObject*>repeated, rank)
            values[i + 1] = <PyObject*>aligned
            kept = keep_in(kept, aligned)
            fills = False
    return call_with_values(op, signature, frame.direct, frame.count, &values[1])


cdef inline list keep_in(list kept, value):
    if kept is None:
        return [value]
    kept.append(value)
    return kept


cdef object aligned_batch(PyObject* batch, Py_ssize_t rank):
    """A batch whose examples get leading axes of length one, so that they have `rank`."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef cnp.npy_intp strides[MAX_AXES]
    cdef PyArrayObject* array = <PyArrayObject*>batch
    cdef Py_ssize_t missing = rank + 1 - rank_of(batch), axis
    if missing <= 0:
        return <object>batch
    if Py_TYPE(batch) != &PyArray_Type:
        shape = tuple((<object>batch).shape)
        return upcalls.reshape(<object>batch, shape[:1] + (1,) * missing + shape[1:])
    check_rank(rank + 1)
    dims[0] = PyArray_DIMS(array)[0]
    strides[0] = PyArray_STRIDES(array)[0]
    for axis in range(1, missing + 1):
        dims[axis] = 1
        strides[axis] = 0
    for axis in range(1, PyArray_NDIM(array)):
        dims[axis + missing] = PyArray_DIMS(array)[axis]
        strides[axis + missing] = PyArray_STRIDES(array)[axis]
    return view_with(array, <int>(rank + 1), dims, strides)


cdef object call_changed(
    OpOverload op, Signature signature, BatchingRule batching, Frame* frame, Vmap interpreter, uint64_t owned
):
    """The operator with some arguments changed. The first argument is a batch, others are aligned with it."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef list kept = []
    cdef Py_ssize_t i, position, rank = rank_of(frame.values[0]), count = frame.count
    for i in range(signature.n_arguments):
        values[i + 1] = value_at(frame, i)
    for i in range(frame.count):
        if i and values[i + 1] != NULL and signature.arrays & bit(i) & ~signature.mutable and (
                word_of_array(values[i + 1]) and rank_of(values[i + 1]) > rank):
            raise ValueError(f"operator {op.name}: argument {signature.names[i]!r} has {rank_of(values[i + 1])} axes, "
                             f"argument {signature.names[0]!r} has {rank}")
        if owned & bit(i):
            if not is_tensor_type(Py_TYPE(values[i + 1])):
                value = upcalls.batch_dims(<object>values[i + 1], interpreter)[1]
            else:
                value = (<Tensor>values[i + 1]).array
                if i and not signature.mutable & bit(i):
                    value = aligned_batch(<PyObject*>value, rank)
        elif i == 0:
            value = repeated_in_batch(<object>values[1], interpreter)
        else:
            continue
        kept.append(value)
        values[i + 1] = <PyObject*>value
    for position, change in batching.changes:
        value = change(<object>value_or_default(frame, signature, position), rank, interpreter.batch_size)
        kept.append(value)
        values[position + 1] = <PyObject*>value
        count = max(count, position + 1)
    return call_with_values(op, signature, False, count, &values[1])


cdef object repeated_in_batch(value, Vmap interpreter):
    """A batch of the same example, without copies of it."""
    if not word_of_array(<PyObject*>value):
        value = numpy_asarray(value)
    return expand(value, (interpreter.batch_size,) + tuple(value.shape))


cdef object call_batching_rule(OpOverload op, Signature signature, BatchingRule batching, Frame* frame,
                               Vmap interpreter):
    """What the operator's own rule makes of the call: (results, out_dims)."""
    cdef PyObject* values[MAX_ARGUMENTS + 4]
    cdef list kept = [None] * signature.n_arguments
    cdef tuple dims = PyTuple_New(signature.n_arguments)
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(signature.n_arguments):
        value = value_or_default(frame, signature, i)
        dim = None
        if signature.arrays & bit(i):
            if owned_by(value, interpreter):
                dim = 0
                value = <PyObject*>(<Tensor>value).array
            elif signature.kind[i] & KIND != ARRAY and word_of_value(value) & WRAPPER_FLAG:
                dim, unwrapped = upcalls.batch_dims(<object>value, interpreter)
                kept[i] = unwrapped
                value = <PyObject*>unwrapped
        Py_INCREF(dim)
        PyTuple_SET_ITEM(dims, i, dim)
        values[i + 4] = value
    values[1] = <PyObject*>op
    values[2] = <PyObject*>interpreter
    values[3] = <PyObject*>dims
    return own(PyObject_Vectorcall(
        <PyObject*>batching.rule, &values[1], (signature.n_arguments + 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef object call_with_values(OpOverload op, Signature signature, bint direct, Py_ssize_t count, PyObject** values):
    """Call an operator anew, on one value per argument of the schema, or NULL. values[-1] may be written to."""
    cdef PyObject* laid_out[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i, n, positional = 0
    cdef tuple names = None
    if direct:
        return own(PyObject_Vectorcall(<PyObject*>op, values, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
    for i in range(min(count, signature.n_positional)):
        if values[i] != NULL:
            positional = i + 1
    for i in range(positional):
        laid_out[i + 1] = values[i] if values[i] != NULL else PyTuple_GET_ITEM(<PyObject*>signature.defaults, i)
    n = positional
    for i in range(signature.n_positional, count):
        if values[i] != NULL:
            laid_out[n + 1] = values[i]
            n += 1
            name = <tuple>signature.single_names[i]
            names = name if names is None else names + name
    return own(PyObject_Vectorcall(<PyObject*>op, &laid_out[1], positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   NULL if names is None else <PyObject*>names))


# --- the fast path ----------------------------------------------------------------------------------------------------


cdef inline bint batching_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                                    PyObject** result) except -1:
    """A fast path for batches: an operator on batches in NumPy's memory, at the only interpreter of the stack.

    No: nothing has happened. Also where the kernel raises, whose complaint is to be about one example.
    """
    if (not frame.word & WRAPPER_FLAG or frame.word & FAST_PATH_FLAGS or (<State>state).innermost is None
            or Py_TYPE(<PyObject*>(<State>state).innermost) != VMAP_TYPE or frame.names != NULL
            or <PyObject*>(<Table>table).batching == Py_None or (<Table>table).rules is not None
            or not (<Signature>(<Table>table).signature).returns_fresh_tensor or (<State>state).inference
            or (<State>state).substitute is not None):
        return False
    return run_batching_fast_path(op, table, state, frame, result)


cdef bint run_batching_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                                 PyObject** result) except -1:
    cdef PyObject* interpreter = <PyObject*>(<State>state).innermost
    cdef BatchingRule batching = (<Table>table).batching
    cdef State lower = lowered_state(<State>state)
    cdef PyObject* entry
    cdef PyObject* value
    cdef uint64_t batched = 0
    cdef Py_ssize_t rank = 0
    if not lower.unchanged or batching.kind == BY_CHANGES or not (
            are_simple_batches(frame, interpreter, &batched, &rank)):
        return False
    if rank >= MAX_AXES or batching.kind == BY_FUNCTION and not stays_the_same(batching, frame, batched):
        return False
    entry = (<Table>table).last_entry if (<Table>table).last_word == CPU_WORD else plain_entry(
        op, table, <PyObject*>lower, CPU_WORD)
    if (entry == NULL or not (<TableEntry>entry).convention & RAW or not is_repeatable(<TableEntry>entry)
            or autograd_keys(table, frame.word)):
        return False
    call_on_batches(op, table, entry, frame, lower, batched if batching.kind == POINTWISE else 0, rank, &value)
    if value == NULL:
        if not PyErr_ExceptionMatches(Exception):
            result[0] = NULL
            return True
        PyErr_Clear()
        return False
    if Py_TYPE(value) != &PyArray_Type or not is_batch_of(value, <Vmap>interpreter):
        Py_DECREF(value)
        return False
    result[0] = wrap_batch_of(value, interpreter)
    return True


cdef inline bint are_simple_batches(
    Frame* frame, PyObject* interpreter, uint64_t* batched, Py_ssize_t* rank
) except -1:
    """Are all arguments batches of this interpreter, constants or numbers?

    Finds which are batches, and the most axes that an example has.
    """
    cdef PyObject* value
    cdef Py_ssize_t i
    for i in range(frame.count):
        value = frame.values[i]
        if Py_TYPE(value) == BATCHED_TYPE:
            if <PyObject*>(<Wrapper>value).interpreter != interpreter:
                return False
            batched[0] |= bit(i)
        elif is_tensor_type(Py_TYPE(value)) and (
                Py_TYPE(value) != TENSOR_TYPE or (<Tensor>value).word & SHARED_FLAG):     # may turn out to be tracked
            return False
        value = frame.raw[i + 1]
        if Py_TYPE(value) == &PyArray_Type:
            rank[0] = max(rank[0], PyArray_NDIM(<PyArrayObject*>value) - (1 if batched[0] & bit(i) else 0))
        elif not is_scalar_type(Py_TYPE(value)):
            return False
    return True


cdef inline int call_on_batches(
    PyObject* op, PyObject* table, PyObject* entry, Frame* frame, State lower, uint64_t pointwise, Py_ssize_t rank,
    PyObject** value
) except -1:
    """Call the kernel on whole batches; `pointwise` ones are aligned first. `value` is NULL if it raises."""
    cdef Frame below
    cdef Cell around
    cdef uint64_t aligned = 0
    cdef Py_ssize_t i
    begin_frame(&below)
    below.direct = True
    below.count = frame.count
    below.word = CPU_WORD
    below.offset_flag = PY_VECTORCALL_ARGUMENTS_OFFSET
    below.values = &below.raw[1]
    try:
        for i in range(frame.count):
            below.raw[i + 1] = frame.raw[i + 1]
            if pointwise & bit(i) and PyArray_NDIM(<PyArrayObject*>frame.raw[i + 1]) <= rank:
                below.raw[i + 1] = give(aligned_batch(frame.raw[i + 1], rank))
                aligned |= bit(i)
        go_deeper(&around, lower)
        value[0] = (<direct_kernel>call_directly_or_recorded)(op, table, <PyObject*>lower, entry, &below)
        come_back(&around)
    finally:
        while aligned:
            i = lowest_bit(aligned)
            aligned &= aligned - 1
            Py_DECREF(below.raw[i + 1])
    return 0


# the same function, for a caller that looks at NULL itself
ctypedef PyObject* (*direct_kernel)(PyObject*, PyObject*, PyObject*, PyObject*, Frame*) noexcept

cdef uint64_t FAST_PATH_FLAGS = (SPECIAL_FLAGS & ~(WRAPPER_FLAG | SHARED_FLAG)) | PYTHON_BIT
cdef PyTypeObject* VMAP_TYPE = <PyTypeObject*>Vmap


cdef inline bint is_repeatable(TableEntry entry) noexcept:
    """Is the kernel one of NumPy's, which may be asked twice?"""
    return entry.loop.kind != NO_LOOP or Py_TYPE(<PyObject*>entry.function) == UFUNC_TYPE


cdef object ufunc_type = numpy.ufunc
cdef PyTypeObject* UFUNC_TYPE = <PyTypeObject*><PyObject*>ufunc_type


cdef inline bint stays_the_same(BatchingRule batching, Frame* frame, uint64_t batched) noexcept:
    """Is the call on the batch the same, as the rule says of a batch as first argument and others of few axes?"""
    cdef Py_ssize_t i
    if batching.max_other_ndim < 0 or batched != 1 or PyArray_NDIM(<PyArrayObject*>frame.raw[1]) < 2:
        return False
    for i in range(1, frame.count):
        if Py_TYPE(frame.raw[i + 1]) == &PyArray_Type and (
                PyArray_NDIM(<PyArrayObject*>frame.raw[i + 1]) > batching.max_other_ndim):
            return False
    return True


cdef inline PyObject* wrap_batch_of(PyObject* array, PyObject* interpreter) except NULL:
    """A new value of the interpreter of an exact ndarray, a reference that is handed over."""
    cdef object value = own(array)
    cdef BatchedTensor wrapper = BatchedTensor.__new__(BatchedTensor)
    wrapper.array = value
    wrapper.word = CPU_WORD | AUTOGRAD_BIT | TENSOR_FLAG | WRAPPER_FLAG
    wrapper.interpreter = <Interpreter>interpreter
    return give(wrapper)


cdef object wrap_batches(Signature signature, Frame* frame, result, dims, Vmap interpreter):
    """The results of a rule as values of the interpreter, by where it put the batch axis of each; None: nowhere."""
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return wrap_batch(signature, frame, 0, result, dims, interpreter)
    if not isinstance(dims, tuple):
        dims = (dims,) * signature.n_returns
    wrapped = []
    for i in range(signature.n_returns):
        wrapped.append(wrap_batch(signature, frame, i, result[i], dims[i], interpreter))
    return tuple(wrapped)


cdef object wrap_batch(Signature signature, Frame* frame, Py_ssize_t i, result, dim, Vmap interpreter):
    if dim is None:
        return result
    if isinstance(dim, tuple):
        wrapped = []
        for item, of_item in zip(result, dim):
            wrapped.append(wrap_batch(signature, frame, i, item, of_item, interpreter))
        return type(result)(wrapped)
    if dim:
        result = upcalls.moveaxis(result, dim, 0)
    return wrap_result(signature, frame, i, result, interpreter)


def check_concrete(Tensor tensor, str use):
    """Raise DataDependentError where a number is asked for that differs from example to example."""
    cdef PyObject* value = <PyObject*>tensor
    end_trial()
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == BATCHED_TYPE:
            raise upcalls.number_error(<object>value, use)
        value = <PyObject*>(<Tensor>value).array


cdef Py_ssize_t size_of_flat_batch(tuple args, in_dims, list batch_dims) except -2:
    """The size of a batch of arrays, and in `batch_dims` the axis that each has; -1 where Python has to look closer."""
    cdef Py_ssize_t i, n = len(args), size = -1, extent, axis, ndim
    cdef tuple dims = <tuple>in_dims if type(in_dims) is tuple else None
    cdef PyObject* array
    if n == 0 or dims is not None and len(dims) != n:
        return -1
    for i in range(n):
        dim = in_dims if dims is None else dims[i]
        batch_dims.append(dim)
        if not word_of_array(<PyObject*>args[i]) and (dim is not None or not holds_nothing(<PyObject*>args[i])):
            return -1
        if dim is None:
            continue
        if type(dim) is not int:
            return -1
        array = <PyObject*>args[i]
        if is_tensor_type(Py_TYPE(array)):
            array = bottom_of(<Tensor>array)
        if Py_TYPE(array) != &PyArray_Type:
            return -1
        ndim = PyArray_NDIM(<PyArrayObject*>array)
        axis = dim
        if axis < -ndim or axis >= ndim:
            return -1
        extent = PyArray_DIMS(<PyArrayObject*>array)[axis + ndim if axis < 0 else axis]
        if size != -1 and size != extent:
            return -1
        size = extent
    return size


def map_flat(function, tuple args, in_dims, str randomness, site):
    """What `vmap` gives for arrays, with out_dims=0; NOT_FLAT, before the call, where Python has to look closer."""
    cdef Py_ssize_t i
    cdef list values = [], batch_dims = []
    cdef Vmap interpreter
    cdef bint as_tensors
    cdef Py_ssize_t size = size_of_flat_batch(args, in_dims, batch_dims)
    if size == -1:
        return not_flat
    interpreter = Vmap(size, randomness, "vmap", site)
    for i in range(len(args)):
        value = args[i]
        if batch_dims[i] is None:
            values.append(wrap(value) if word_of_array(<PyObject*>value) and not isinstance(value, Tensor) else value)
            continue
        if batch_dims[i] != 0:
            value = upcalls.moved(value, batch_dims[i], 0)
        values.append(enter_at(interpreter, value, None))
    enter_interpreter(interpreter)
    try:
        output = unwrap_dead_result(function(*values))
    finally:
        leave_interpreter(interpreter)
    as_tensors = has_tensor(args)
    if owned_by(<PyObject*>output, interpreter):
        return handed_out((<Tensor>output).array, as_tensors, args, False)
    if type(output) is not tuple:
        return upcalls.batched_in_general(interpreter, output, args)
    for value in <tuple>output:
        if not owned_by(<PyObject*>value, interpreter):       # may be a wrapper of a transform that no longer runs
            return upcalls.batched_in_general(interpreter, output, args)
    results = []
    for value in <tuple>output:
        results.append(handed_out((<Tensor>value).array, as_tensors, args, False))
    return tuple(results)


def dims_of_leaves(leaves, Vmap interpreter):
    """A tuple of 0 for each batch of this interpreter, whose first axis is that of the examples; of None for others."""
    cdef list dims = []
    for leaf in leaves:
        dims.append(0 if owned_by(<PyObject*>leaf, interpreter) else None)
    return tuple(dims)


def entered_leaves(Vmap interpreter not None, leaves, dims):
    """The leaves that have a dim, batches, as values of an interpreter, each one example to what sees it."""
    cdef list entered = []
    cdef Py_ssize_t i = 0
    if len(leaves) != len(dims):
        raise ValueError(f"entered_leaves: {len(leaves)} leaves, {len(dims)} dims\npass one dim for each leaf")
    for leaf in leaves:
        entered.append(leaf if leaf is None or dims[i] is None else enter_at(interpreter, leaf, None))
        i += 1
    return entered
