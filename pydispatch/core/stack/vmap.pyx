# `vmap`: interpreter, wrapper, batching, and entry point.
#
# The batch axis of a batch is always the first axis of the value below. So a rule for an operator computes the call on
# the whole batch, for arguments that have such an axis or have none.
#
# If the function computes a value from no batch, it is a *uniform* value: one array, without a batch axis, for all
# examples. Rules and kernels get the array itself. The first write of a batch to it turns it, and every view of its
# memory, into batches (`vary`): the array is copied for each example, and the calls that made the views are repeated on
# the copy. Arrays from outside the function are not values of the interpreter, and batches cannot be written to them.


@cython.final
cdef class Vmap(Interpreter):
    """The interpreter of `vmap`: `batch_size` examples at once. `randomness` is "error", "same" or "different"."""

    def __init__(self, Py_ssize_t batch_size, str randomness="error", str name="vmap", site=None):
        self.batch_size = batch_size
        self.randomness = randomness
        self.name = name
        self.site = site

    def again(self):
        """Return a new interpreter for the same batch. Values that enter it have left this one."""
        cdef Vmap new = Vmap(self.batch_size, self.randomness, self.name, self.site)
        new.continued = self if self.continued is None else self.continued
        return new

    @property
    def first(self):
        """The interpreter that this one continues, or itself unless `again` has made it."""
        return self if self.continued is None else self.continued

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

    cdef bint releases(self, Wrapper value, State state) noexcept:
        return (<BatchedTensor>value).uniform is not None and (
            not self.alive or state is not None and not is_active(self, state))

    cdef object owned(self, value):
        return uniform_value(value, self)

    cdef bint batches(self) noexcept:
        return True

    cdef Py_ssize_t hidden_axes(self, Wrapper value) noexcept:
        return (<BatchedTensor>value).uniform is None

    cdef object whole(self, Wrapper value):
        expand_batch(<PyObject*>value)
        return value.array

    cdef bint is_shared(self, Wrapper value) noexcept:
        return (<BatchedTensor>value).uniform is not None

    cdef Tensor alike(self, Wrapper value, other):
        return uniform_value(other, self) if is_uniform(<PyObject*>value) else Interpreter.alike(self, value, other)

    cdef PyObject* laid_out(self, Wrapper value) except? NULL:
        return layout_of(<BatchedTensor>value)

    cdef int note_view(self, Tensor view, Tensor source) except -1:
        return follow_layout(<BatchedTensor>view, <BatchedTensor>source) if (<BatchedTensor>source).has_moved else 0


@cython.final
cdef class BatchedTensor(Wrapper):
    """A value of a running `vmap`. Its metadata is that of one example.

    The first axis of its array is the batch, unless the value is uniform.
    """

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


BATCHED_TYPE = <PyTypeObject*>BatchedTensor
keep_freed(BatchedTensor)


cdef PyObject* layout_of(BatchedTensor tensor) except NULL:
    """Return an array with the memory layout of one example. The Tensor keeps it."""
    if tensor.uniform is not None:
        return first_of(tensor.array)
    if tensor.layout is None:
        tensor.layout = example_of(first_of(tensor.array))
    return <PyObject*>tensor.layout


cdef object example_of(PyObject* batch):
    """Return the first example of a batch, as a view. For an empty batch, the view lies where the example would."""
    cdef PyArrayObject* array = <PyArrayObject*>batch
    if Py_TYPE(batch) != &PyArray_Type:
        strides = getattr(<object>batch, "strides", None)
        return MetaArray(tuple((<object>batch).shape)[1:], dtype_of(<PyObject*>batch), <object>batch,
                         strides=None if strides is None else strides[1:])
    return view_with(array, PyArray_NDIM(array) - 1, PyArray_DIMS(array) + 1, PyArray_STRIDES(array) + 1)


cdef bint is_batch_of(PyObject* value, Vmap interpreter) except -1:
    """Return whether the first axis of an array has as many examples as the interpreter."""
    if is_tensor_type(Py_TYPE(value)):
        value = bottom_of(<Tensor>value)
    if Py_TYPE(value) == &PyArray_Type:
        return (PyArray_NDIM(<PyArrayObject*>value) > 0
                and PyArray_DIMS(<PyArrayObject*>value)[0] == interpreter.batch_size)
    shape = tuple(getattr(<object>value, "shape", ()))
    return len(shape) > 0 and shape[0] == interpreter.batch_size


cdef enum:
    POINTWISE = 1       # every element of the result depends on one element of each argument
    BY_CHANGES = 2      # the same operator with some arguments changed
    BY_FUNCTION = 3     # a function computes the batch


@cython.final
cdef class BatchingRule:
    """The declared way to compute a batch of calls of one operator at once.

    It is "pointwise", or functions that change arguments, by name, or one function `(op, info, in_dims, *args)` that
    returns (results, out_dims). The function may have an attribute `max_other_ndim`. The call on the batch is then the
    call on an example if only the first argument is a batch, its examples have axes, and other arguments have at most
    `max_other_ndim` axes.
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
                raise TypeError(f"{signature.schema}: vmap={how!r} is not a batching rule\n"
                                'pass "pointwise", a function, or a dict of functions by argument')
            self.kind = BY_CHANGES
            self.changes = ()
            for name, change in how.items():
                self.changes += ((signature.names.index(name), change),)


cdef object call_batched(OpOverload op, Table table, Frame* frame, State state, Vmap interpreter, CallKind kind):
    """Run steps 2 to 7 at an interpreter of `vmap`."""
    cdef Signature signature = table.signature
    cdef BatchingRule batching = table.batching
    cdef uint64_t uniform = 0
    cdef uint64_t owned = owned_arguments(frame, signature, interpreter, &uniform)
    cdef Cell around
    cdef object dims = 0
    if interpreter.has_diagonals and owned:
        expand_arguments(frame, signature)
    if uniform:
        return call_with_uniform(op, table, frame, state, interpreter, owned, uniform)
    if owned == 0 and not table.is_random:
        return uniform_results(op, signature, frame, pass_below(op, table, frame, state, kind), interpreter,
                               table.is_factory)
    if signature.mutable:
        check_batched_writes(op, signature, frame, interpreter, owned)
    if signature.view_of >= 0 or signature.n_returns > 0 and signature.return_views[0]:
        lay_out_sources(signature, frame, state, interpreter)
    rule = rule_for(table, Vmap)
    if rule is not None:
        return call_transform(op, signature, frame, state, interpreter, rule)
    entry = autograd_entry(table, frame, frame.word)
    if entry is not None and (<TableEntry>entry).convention & COMPOSITE:
        return run_entry(op, table, <TableEntry>entry, frame, frame.word & KEY_BITS, state, kind)
    if signature.mutable:
        bump_versions(signature, frame)
    push_state(&around, lowered_state(state))
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
        pop_state(&around)
    if batching is None:
        return finish_handled(op, signature, frame, interpreter, result)
    if type(dims) is int and dims == 0:
        if signature.n_returns == 1:
            return wrap_fresh(signature, frame, 0, result, interpreter)
        return wrap_results(signature, frame, result, interpreter)
    return wrap_batches(signature, frame, result, dims, interpreter)


cdef uint64_t owned_arguments(
    Frame* frame, Signature signature, Interpreter interpreter, uint64_t* uniform
) except? 1:
    """Return the arguments that are or contain batches of the interpreter, one bit each.

    Set `uniform` in the same way for its uniform values.
    """
    cdef uint64_t owned = 0
    cdef Py_ssize_t i
    if not frame.word & WRAPPER_FLAG:
        return 0
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if owned_by(frame.values[i], interpreter):
            if (<BatchedTensor>frame.values[i]).uniform is None:
                owned |= bit(i)
            else:
                uniform[0] |= bit(i)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(frame.values[i]) & WRAPPER_FLAG:
            for leaf in array_leaves(<object>frame.values[i]):
                if owned_by(<PyObject*>leaf, interpreter):
                    if (<BatchedTensor>leaf).uniform is None:
                        owned |= bit(i)
                    else:
                        uniform[0] |= bit(i)
    return owned


cdef int check_batched_writes(op, Signature signature, Frame* frame, Vmap interpreter, uint64_t owned) except -1:
    """Raise before values that differ between examples are written to an array that all of them share."""
    cdef Py_ssize_t i
    if frame.word & SCALAR_FLAG:
        refuse_scalars(signature, frame)
    if owned == 0:
        return 0
    for i in range(frame.count):
        if not signature.mutable & bit(i) or frame.values[i] == NULL:
            continue
        for leaf in array_leaves(<object>frame.values[i]):
            if not owned_by(<PyObject*>leaf, interpreter):
                raise upcalls.unbatched_write(op, signature.names[i], leaf, interpreter)
    return 0


# --- values that are the same in all examples -------------------------------------------------------------------------


@cython.final
cdef class Uniform:
    """The data that turns a uniform value into a batch: for a view the call that made it, else its views."""


cdef Uniform WITHOUT_VIEWS = Uniform.__new__(Uniform)     # of an array that owns its memory and has no views


cdef inline bint is_uniform(PyObject* value) noexcept:
    """Return whether a value belongs to `vmap` and is the same in all examples."""
    return Py_TYPE(value) == BATCHED_TYPE and (<BatchedTensor>value).uniform is not None


cdef inline bint is_batch(PyObject* value, Interpreter interpreter) noexcept:
    """Return whether a value belongs to the interpreter and may differ between examples."""
    return owned_by(value, interpreter) and not is_uniform(value)


def is_uniform_value(value):
    """Return whether a value belongs to a `vmap` and is the same in all examples."""
    return is_uniform(<PyObject*>value)


def uniform_below(value, interpreter):
    """Return the array or scalar of a uniform value of the interpreter, and any other value unchanged."""
    if owned_by(<PyObject*>value, interpreter) and is_uniform(<PyObject*>value):
        return scalar_below(value, interpreter)
    return value


cdef BatchedTensor uniform_value(value, Interpreter interpreter):
    """Return an array or scalar that all examples share as a value of the interpreter."""
    cdef BatchedTensor wrapper
    cdef uint64_t word = word_of_array(<PyObject*>value)
    cdef uint64_t scalar = (<Tensor>value).word & SCALAR_FLAG if isinstance(value, Tensor) else 0
    if is_numpy_scalar(value):
        value = array_of_scalar(value)
        scalar = SCALAR_FLAG
    wrapper = BatchedTensor.__new__(BatchedTensor)
    wrapper.array = value
    wrapper.uniform = WITHOUT_VIEWS
    wrapper.word = (word & KEY_BITS & ~PYTHON_BIT) | TENSOR_FLAG | WRAPPER_FLAG | scalar
    wrapper.word |= AUTOGRAD_BIT if word & DENSE_BIT else AUTOGRAD_OTHER_BIT
    wrapper.interpreter = interpreter
    return wrapper


cdef BatchedTensor uniform_of_call(Signature signature, Frame* frame, value, Vmap interpreter):
    """Return a result of a call as a uniform value. It is a scalar if NumPy would return one."""
    cdef BatchedTensor wrapper = uniform_value(value, interpreter)
    if not wrapper.word & SCALAR_FLAG and is_scalar_result(signature, frame, wrapper):
        wrapper.word |= SCALAR_FLAG
    return wrapper


cdef object call_with_uniform(OpOverload op, Table table, Frame* frame, State state, Vmap interpreter, uint64_t owned,
                              uint64_t uniform):
    """Run a call with uniform values on their arrays. If a batch is written to them, they become batches first."""
    cdef Signature signature = table.signature
    cdef bint varies = owned != 0 or table.is_random and interpreter.randomness != "same"
    cdef Py_ssize_t i
    cdef list given = None
    if signature.mutable & uniform and varies:
        given = []      # holds the arrays that the frame refers to
        for i in range(frame.count):
            if signature.mutable & uniform & bit(i):
                for leaf in array_leaves(<object>frame.values[i]):
                    if owned_by(<PyObject*>leaf, interpreter) and is_uniform(<PyObject*>leaf):
                        given.append((<Tensor>leaf).array)
                        vary(op, leaf, state, interpreter)
        args, kwargs = arguments_with(frame, signature, None)
        return op(*args, **kwargs)
    if varies or table.is_random:
        return given_back(signature, frame, call_without_uniform(op, signature, frame, interpreter))
    if signature.mutable:
        bump_versions(signature, frame)
    if frame.direct:
        return uniform_results(op, signature, frame, call_below(op, signature, frame, state, interpreter), interpreter,
                               True)
    args, kwargs = arguments_with(frame, signature, lambda value: constant_below(value, interpreter))
    return uniform_results(op, signature, frame, called_below(op, args, kwargs, state), interpreter, True)


cdef object called_below(function, args, kwargs, State state):
    """Call a function one interpreter below."""
    cdef Cell around
    push_state(&around, lowered_state(state))
    try:
        return function(*args, **kwargs)
    finally:
        pop_state(&around)


cdef object call_without_uniform(OpOverload op, Signature signature, Frame* frame, Vmap interpreter):
    """Run the call with the arrays of uniform values instead of these."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i
    if frame.direct and not signature.mutable:
        for i in range(frame.count):
            values[i + 1] = frame.values[i]
            if is_uniform(frame.values[i]) and owned_by(frame.values[i], interpreter):
                values[i + 1] = <PyObject*>(<Tensor>frame.values[i]).array
        return steal(PyObject_Vectorcall(
            <PyObject*>op, &values[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
    args, kwargs = arguments_with(frame, signature, lambda value: constant_below(value, interpreter))
    return op(*args, **kwargs)


cdef object constant_below(value, Vmap interpreter):
    """Return the array of a uniform value as a Tensor, so that a 0-d key is also read as an array."""
    value = uniform_below(value, interpreter)
    if isinstance(value, Tensor):
        return value
    return wrap_scalar(value) if is_numpy_scalar(value) else wrap(value)


cdef object given_back(Signature signature, Frame* frame, result):
    """Return the results, with the passed arguments instead of results that are arguments."""
    cdef Py_ssize_t i
    if not signature.mutable:
        return result
    results = [result] if signature.n_returns == 1 else list(result or ())
    for i in range(signature.n_returns):
        if signature.return_source[i] >= 0 and value_at(frame, signature.return_source[i]) != NULL and (
                value_at(frame, signature.return_source[i]) != Py_None):
            results[i] = <object>value_at(frame, signature.return_source[i])
    return None if signature.n_returns == 0 else results[0] if signature.n_returns == 1 else tuple(results)


cdef object uniform_results(OpOverload op, Signature signature, Frame* frame, result, Vmap interpreter, bint made_here):
    """Return the results of a call without batches. New arrays and views of uniform values become uniform values.

    Raw results of raw arrays stay raw, unless they are `made_here`, as by factories.
    """
    cdef Py_ssize_t i
    if signature.returns_fresh_tensor:
        if (made_here or is_tensor_type(Py_TYPE(<PyObject*>result))) and word_of_array(<PyObject*>result):
            return uniform_of_call(signature, frame, result, interpreter)
        return result
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return uniform_result(op, signature, frame, 0, result, interpreter, made_here)
    wrapped = []
    for i in range(signature.n_returns):
        wrapped.append(uniform_result(op, signature, frame, i, result[i], interpreter, made_here))
    return tuple(wrapped)


cdef object uniform_result(OpOverload op, Signature signature, Frame* frame, Py_ssize_t i, result, Vmap interpreter,
                           bint made_here):
    cdef Py_ssize_t source = signature.return_source[i], n = 0
    if source >= 0 and value_at(frame, source) != NULL and value_at(frame, source) != Py_None:
        return <object>value_at(frame, source)
    if not signature.return_arrays[i] or result is None:
        return result
    if word_of_array(<PyObject*>result):
        return uniform_leaf(op, signature, frame, i, 0, result, interpreter, made_here)
    places = iter(range(len(array_leaves(result))))
    return upcalls.map_arrays(
        lambda leaf: uniform_leaf(op, signature, frame, i, next(places), leaf, interpreter, made_here), result)


cdef object uniform_leaf(OpOverload op, Signature signature, Frame* frame, Py_ssize_t i, Py_ssize_t place, leaf,
                         Vmap interpreter, bint made_here):
    """Return array number `place` in result i as a uniform value, unless it lies in memory from outside."""
    cdef BatchedTensor view, found
    cdef PyObject* value
    if not made_here and not isinstance(leaf, Tensor):
        return leaf
    found = uniform_of_call(signature, frame, leaf, interpreter)
    if signature.return_views[i] and not found.word & SCALAR_FLAG:
        owner = memory_owner(leaf)
        for position in signature.return_views[i]:
            value = value_at(frame, position)
            if value == NULL:
                continue
            for candidate in (<object>value,) if word_of_array(value) else array_leaves(<object>value):
                if memory_owner(candidate) is not owner:
                    continue
                if not (owned_by(<PyObject*>candidate, interpreter) and is_uniform(<PyObject*>candidate)):
                    return leaf
                if leaf is (<Tensor>candidate).array:
                    return candidate
                args, kwargs = upcalls.map_arrays(kept_value, arguments_with(frame, signature, None))
                view = uniform_view(leaf, candidate, (op, args, kwargs, i, place))
                if signature.detaches:
                    view.memory = memory_of_detached(candidate)
                else:
                    share_memory(view, candidate)
                return view
    return found


cdef BatchedTensor uniform_view(value, BatchedTensor source, tuple call):
    """Return a uniform value in the memory of another one. Store the call that makes it."""
    cdef BatchedTensor view = uniform_value(value, source.interpreter)
    view.uniform = Uniform.__new__(Uniform)
    view.uniform.source = source
    view.uniform.call = call
    add_view(view)
    return view


cdef object detached_uniform(BatchedTensor tensor):
    cdef BatchedTensor view
    if tensor.word & SCALAR_FLAG:       # a scalar shares its memory with nothing
        return uniform_value(detached_value(tensor.array), tensor.interpreter)
    view = uniform_view(detached_value(tensor.array), tensor, (detach, (tensor,), {}, 0, 0))
    view.memory = memory_of_detached(tensor)
    return view


def kept_value(leaf):
    """Return an argument for a call that may be repeated later. Copy an array without axes, such as a position."""
    return leaf if isinstance(leaf, BatchedTensor) or leaf.ndim else upcalls.copy(leaf)


cdef BatchedTensor root_of(BatchedTensor tensor):
    """Return the uniform value whose memory this value is a view of."""
    while tensor.uniform.source is not None:
        tensor = tensor.uniform.source
    return tensor


cdef int add_view(BatchedTensor view) except -1:
    """Add a view to the list of its memory. Drop dead references whenever the number of views has doubled."""
    cdef BatchedTensor root = root_of(view)
    cdef Uniform of_root = root.uniform
    if of_root.views is None:
        of_root = root.uniform = Uniform.__new__(Uniform)
        of_root.views = []
        of_root.limit = 16
    elif len(of_root.views) >= of_root.limit:
        of_root.views = [reference for reference in of_root.views if reference() is not None]
        of_root.limit = 2 * len(of_root.views) + 16
    of_root.views.append(weakref.ref(view))
    return 0


cdef int vary(op, BatchedTensor tensor, State state, Vmap interpreter) except -1:
    """Turn the memory of a uniform value into a batch, for all values that lie in it."""
    cdef BatchedTensor view, root
    if tensor.uniform is None:      # it became a batch by an earlier argument of the call
        return 0
    root = root_of(tensor)
    views = root.uniform.views or ()
    become_batch(root, called_below(upcalls.copies_for_examples, (root.array, interpreter.batch_size), {}, state))
    for reference in views:
        view = reference()
        if view is not None:
            become_batch(view, repeated_view(op, view, interpreter))
    return 0


cdef object repeated_view(op, BatchedTensor view, Vmap interpreter):
    """Return the array of a view whose source has become a batch."""
    cdef BatchedTensor found
    maker, args, kwargs, number, place = view.uniform.call
    results = maker(*args, **kwargs)
    if type(results) is tuple and isinstance(maker, OpOverload) and len((<OpOverload>maker).schema.returns) > 1:
        results = results[number]
    found = array_leaves(results)[place]
    if memory_owner(found) is not memory_owner(view.uniform.source):
        raise upcalls.lost_view(op, maker, interpreter)
    return found.array


cdef int become_batch(BatchedTensor tensor, value) except -1:
    """Replace the array of a uniform value by one with a batch axis. Keep its memory layout and version."""
    cdef object layout = <object>layout_of(tensor)
    cdef Memory counter
    if isinstance(tensor.array, Tensor):        # writes to the Tensors below are no longer counted
        counter = version_counter_of(tensor)
        counter.writes += total_version(<Tensor>tensor.array)
    tensor.layout = layout
    replace_array(tensor, value)
    tensor.uniform = None
    tensor.is_fresh = tensor.has_moved = True
    return 0


cdef int follow_layout(BatchedTensor view, BatchedTensor source) except -1:
    """Place the layout of a new view in that of its source, as the view lies in the array of the source."""
    cdef object whole = source.layout, found, origin
    cdef PyArrayObject* array
    cdef char* data
    if Py_TYPE(<PyObject*>view) != BATCHED_TYPE or view.uniform is not None or source.uniform is not None:
        return 0
    found = example_of(first_of(view.array))
    if isinstance(found, MetaArray):
        view.layout = MetaArray(found.shape, found.dtype, whole, strides=found.strides)
    elif Py_TYPE(<PyObject*>found) == &PyArray_Type and Py_TYPE(<PyObject*>whole) == &PyArray_Type:
        array = <PyArrayObject*><PyObject*>found
        origin = example_of(first_of(source.array))
        data = <char*>PyArray_DATA(<PyArrayObject*><PyObject*>whole) + (
            <char*>PyArray_DATA(array) - <char*>PyArray_DATA(<PyArrayObject*><PyObject*>origin))
        Py_INCREF(<object>PyArray_DESCR(array))
        view.layout = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), PyArray_NDIM(array),
                                           PyArray_DIMS(array), PyArray_STRIDES(array), data, 0, NULL)
        Py_INCREF(whole)
        PyArray_SetBaseObject(<PyArrayObject*><PyObject*>view.layout, <PyObject*>whole)
    view.has_moved = True
    return 0


cdef inline PyObject* first_of(value) except NULL:
    """Return the array in which a value lies, as the interpreter below sees it."""
    return bottom_of(<Tensor>value) if is_tensor_type(Py_TYPE(<PyObject*>value)) else <PyObject*>value


# --- how a batch lies in memory ---------------------------------------------------------------------------------------


cdef int lay_out_sources(Signature signature, Frame* frame, State state, Vmap interpreter) except -1:
    """Give examples the memory layout that they have in a loop, before the first view of memory that was allocated
    here.

    In a loop each example is contiguous. In a batch, other examples may lie between the elements of an example. Then an
    operator that makes a view of the example would have to copy the batch, and writes to the view would be lost.
    """
    cdef PyObject* value
    for positions in signature.return_views:
        for position in positions:
            value = value_at(frame, position)
            if value == NULL:
                continue
            if Py_TYPE(value) == BATCHED_TYPE:
                lay_out(<BatchedTensor>value, state, interpreter)
            elif not word_of_array(value):
                for leaf in array_leaves(<object>value):
                    if isinstance(leaf, BatchedTensor):
                        lay_out(leaf, state, interpreter)
    return 0


cdef int lay_out(BatchedTensor tensor, State state, Vmap interpreter) except -1:
    cdef PyObject* array
    if not tensor.is_fresh or tensor.word & SHARED_FLAG or tensor.interpreter is not interpreter:
        return 0
    array = first_of(tensor.array)
    if not is_batch_outermost(array):
        replace_array(tensor, called_below(upcalls.with_batch_outermost, (tensor.array,), {}, state))
        tensor.layout = None
    return 0


cdef bint is_batch_outermost(PyObject* array) except -1:
    """Return whether the step between examples exceeds all steps inside an example, or is unknown."""
    cdef Py_ssize_t axis
    if Py_TYPE(array) == &PyArray_Type:
        for axis in range(1, PyArray_NDIM(<PyArrayObject*>array)):
            if PyArray_DIMS(<PyArrayObject*>array)[axis] > 1 and (
                    abs(PyArray_STRIDES(<PyArrayObject*>array)[axis])
                    > abs(PyArray_STRIDES(<PyArrayObject*>array)[0])):
                return PyArray_DIMS(<PyArrayObject*>array)[0] <= 1
        return True
    strides, shape = getattr(<object>array, "strides", None), (<object>array).shape
    if strides is None or shape[0] <= 1:
        return True
    for axis in range(1, len(shape)):
        if shape[axis] > 1 and abs(strides[axis]) > abs(strides[0]):
            return False
    return True


cdef object call_pointwise(OpOverload op, Signature signature, Frame* frame, Vmap interpreter, uint64_t owned):
    """Call the operator on batches whose examples have equal numbers of axes. Unbatched arguments broadcast."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef list kept = None
    cdef Py_ssize_t i, rank = 0
    # not every kernel repeats a value that all examples share to fill a batch
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
                             f"but the result has {rank}")
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


cdef object aligned_batch(PyObject* batch, Py_ssize_t rank):
    """Return a batch whose examples have leading axes of length one, so that they have `rank` axes."""
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
    """Call the operator with some arguments changed. The first argument is a batch, and others are aligned with it."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef list kept = []
    cdef Py_ssize_t i, position, rank = rank_of(frame.values[0]), count = frame.count
    for i in range(signature.n_arguments):
        values[i + 1] = value_at(frame, i)
    for i in range(frame.count):
        if i and values[i + 1] != NULL and signature.arrays & bit(i) & ~signature.mutable and (
                word_of_array(values[i + 1]) and rank_of(values[i + 1]) > rank):
            raise ValueError(f"operator {op.name}: argument {signature.names[i]!r} has {rank_of(values[i + 1])} axes, "
                             f"but argument {signature.names[0]!r} has {rank}")
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
    """Return a batch that repeats one example, without copies of it."""
    if not word_of_array(<PyObject*>value):
        value = numpy_asarray(value)
    return expand(value, (interpreter.batch_size,) + tuple(value.shape))


cdef object call_batching_rule(OpOverload op, Signature signature, BatchingRule batching, Frame* frame,
                               Vmap interpreter):
    """Call the operator's own batching rule. Return (results, out_dims)."""
    cdef PyObject* values[MAX_ARGUMENTS + 4]
    cdef list kept = [None] * signature.n_arguments
    cdef tuple dims = PyTuple_New(signature.n_arguments)
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(signature.n_arguments):
        value = value_or_default(frame, signature, i)
        dim = None
        if signature.arrays & bit(i):
            if is_batch(value, interpreter):
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
    return steal(PyObject_Vectorcall(
        <PyObject*>batching.rule, &values[1], (signature.n_arguments + 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef object call_with_values(OpOverload op, Signature signature, bint direct, Py_ssize_t count, PyObject** values):
    """Call an operator again, with one value per argument of the schema, or NULL. values[-1] may be overwritten."""
    cdef PyObject* laid_out[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i, n, positional = 0
    cdef tuple names = None
    if direct:
        return steal(PyObject_Vectorcall(<PyObject*>op, values, count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
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
    return steal(PyObject_Vectorcall(<PyObject*>op, &laid_out[1], positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                     NULL if names is None else <PyObject*>names))


# --- diagonals --------------------------------------------------------------------------------------------------------

# `jacfwd` and `jacrev` start from a batch of all unit vectors. Operators element by element leave it diagonal: example
# i differs from all others only in its element i. The array of such a batch has two rows, the elements on the diagonal
# and those off the diagonal, until a call needs all examples. NumPy computes each element separately, so the bits are
# those of the whole batch.

cdef BatchedTensor diagonal_batch(array, Vmap interpreter):
    """Return a value of the interpreter with the elements on and off the diagonal, two rows of an exact ndarray."""
    cdef BatchedTensor tensor = <BatchedTensor>steal(wrap_batch_of(new_reference(array), <PyObject*>interpreter))
    tensor.is_diagonal = interpreter.has_diagonals = True
    return tensor


cdef int expand_batch(PyObject* value) except -1:
    """Give each example of a batch a row, if the batch is diagonal."""
    cdef BatchedTensor tensor
    if Py_TYPE(value) != BATCHED_TYPE or not (<BatchedTensor>value).is_diagonal:
        return 0
    tensor = <BatchedTensor>value
    tensor.array = expanded(tensor, False)
    tensor.is_diagonal = False
    tensor.layout = None
    return 0


cdef object expanded(BatchedTensor tensor, bint last):
    """Return all examples of a diagonal batch, along the first axis of a new array or along the last one."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef object two_rows = tensor.array if is_in_c_order(<PyArrayObject*><PyObject*>tensor.array) else (
        tensor.array.copy())
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>two_rows
    cdef int i, ndim = PyArray_NDIM(array)
    cdef Py_ssize_t n = (<Vmap>tensor.interpreter).batch_size, row, k
    cdef double* pair = <double*>PyArray_DATA(array)
    cdef double* rows
    for i in range(1, ndim):
        dims[i - last] = PyArray_DIMS(array)[i]
    dims[ndim - 1 if last else 0] = n
    found = cnp.PyArray_EMPTY(ndim, dims, cnp.NPY_DOUBLE, 0)
    rows = <double*>PyArray_DATA(<PyArrayObject*><PyObject*>found)
    for row in range(n):
        if last:
            for k in range(n):
                rows[row * n + k] = pair[n + row]
        else:
            memcpy(&rows[row * n], &pair[n], n * sizeof(double))
        rows[row * n + row] = pair[row]
    return found


cdef int expand_arguments(Frame* frame, Signature signature) except -1:
    """Give each example a row in all batches among the arguments."""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if word_of_array(frame.values[i]):
            expand_batch(frame.values[i])
        elif word_of_value(frame.values[i]) & WRAPPER_FLAG:
            for leaf in array_leaves(<object>frame.values[i]):
                expand_batch(<PyObject*>leaf)
    return 0


cdef bint has_diagonal(Frame* frame, uint64_t batched) noexcept:
    cdef Py_ssize_t i
    for i in range(frame.count):
        if batched & bit(i) and (<BatchedTensor>frame.values[i]).is_diagonal:
            return True
    return False


cdef PyObject* diagonal_of(Frame* frame, uint64_t batched) except? NULL:
    """Return the array of a diagonal batch if the result is diagonal too, else NULL.

    All batches have to be diagonal and of one shape, and constants must not have more axes or longer ones.
    """
    cdef PyArrayObject* first = <PyArrayObject*>frame.raw[lowest_bit(batched) + 1]
    cdef PyArrayObject* array
    cdef Py_ssize_t i, axis, behind
    for i in range(frame.count):
        array = <PyArrayObject*>frame.raw[i + 1]
        if batched & bit(i):
            if not (<BatchedTensor>frame.values[i]).is_diagonal or not same_shape(<PyObject*>array, <PyObject*>first):
                return NULL
        elif Py_TYPE(<PyObject*>array) == &PyArray_Type:
            behind = PyArray_NDIM(first) - PyArray_NDIM(array)
            if behind < 1:
                return NULL
            for axis in range(PyArray_NDIM(array)):
                if PyArray_DIMS(array)[axis] not in (1, PyArray_DIMS(first)[axis + behind]):
                    return NULL
    return <PyObject*>first


# --- the fast path ----------------------------------------------------------------------------------------------------


cdef inline bint batching_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                                    PyObject** result) except -1:
    """Call an operator on a fast path: on batches in NumPy's memory, at the only interpreter of the stack.

    If the result is False, nothing has happened. It is also False if the kernel raises, since the error should describe
    one example.
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
    cdef PyObject* diagonal = NULL
    cdef uint64_t batched = 0
    cdef Py_ssize_t rank = 0
    if not lower.unchanged or batching.kind == BY_CHANGES or not (
            are_simple_batches(frame, interpreter, &batched, &rank)) or batched == 0:
        return False
    if (<Vmap>interpreter).has_diagonals:
        diagonal = diagonal_of(frame, batched) if batching.kind == POINTWISE else NULL
        if diagonal == NULL and has_diagonal(frame, batched):
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
    if diagonal != NULL and Py_TYPE(value) == &PyArray_Type and same_shape(value, diagonal) and same_dtype(
            value, diagonal):
        result[0] = new_reference(diagonal_batch(steal(value), <Vmap>interpreter))
        return True
    if diagonal != NULL or Py_TYPE(value) != &PyArray_Type or not is_batch_of(value, <Vmap>interpreter):
        Py_DECREF(value)
        return False
    result[0] = wrap_batch_of(value, interpreter)
    if PyArray_NDIM(<PyArrayObject*>value) == 1 and (<Signature>(<Table>table).signature).zero_d == A_SCALAR:
        (<Tensor>result[0]).word |= SCALAR_FLAG
    return True


cdef inline bint are_simple_batches(
    Frame* frame, PyObject* interpreter, uint64_t* batched, Py_ssize_t* rank
) except -1:
    """Return whether all arguments are batches of this interpreter, constants or numbers.

    Set `batched` to the batches, one bit each, and `rank` to the largest number of axes of an example.
    """
    cdef PyObject* value
    cdef Py_ssize_t i
    for i in range(frame.count):
        value = frame.values[i]
        if Py_TYPE(value) == BATCHED_TYPE:
            if <PyObject*>(<Wrapper>value).interpreter != interpreter:
                return False
            if (<BatchedTensor>value).uniform is None:
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
    """Call the kernel on whole batches. Align `pointwise` ones first. Set `value` to NULL if the kernel raises."""
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
                below.raw[i + 1] = new_reference(aligned_batch(frame.raw[i + 1], rank))
                aligned |= bit(i)
        push_state(&around, lower)
        value[0] = (<direct_kernel>call_directly_or_recorded)(op, table, <PyObject*>lower, entry, &below)
        pop_state(&around)
    finally:
        while aligned:
            i = lowest_bit(aligned)
            aligned &= aligned - 1
            Py_DECREF(below.raw[i + 1])
    return 0


# the function above, with a type for a caller that handles NULL itself
ctypedef PyObject* (*direct_kernel)(PyObject*, PyObject*, PyObject*, PyObject*, Frame*) noexcept

cdef uint64_t FAST_PATH_FLAGS = (SPECIAL_FLAGS & ~(WRAPPER_FLAG | SHARED_FLAG)) | PYTHON_BIT
cdef PyTypeObject* VMAP_TYPE = <PyTypeObject*>Vmap


cdef inline bint is_repeatable(TableEntry entry) noexcept:
    """Return whether the kernel is one of NumPy's, which may be called twice."""
    return entry.loop.kind != NO_LOOP or Py_TYPE(<PyObject*>entry.function) == UFUNC_TYPE


cdef object ufunc_type = numpy.ufunc
cdef PyTypeObject* UFUNC_TYPE = <PyTypeObject*><PyObject*>ufunc_type


cdef inline bint stays_the_same(BatchingRule batching, Frame* frame, uint64_t batched) noexcept:
    """Return whether the call on the batch is the call on an example, by the rule's `max_other_ndim`."""
    cdef Py_ssize_t i
    if batching.max_other_ndim < 0 or batched != 1 or PyArray_NDIM(<PyArrayObject*>frame.raw[1]) < 2:
        return False
    for i in range(1, frame.count):
        if Py_TYPE(frame.raw[i + 1]) == &PyArray_Type and (
                PyArray_NDIM(<PyArrayObject*>frame.raw[i + 1]) > batching.max_other_ndim):
            return False
    return True


cdef inline PyObject* wrap_batch_of(PyObject* array, PyObject* interpreter) except NULL:
    """Return a new value of the interpreter for an exact ndarray. This takes over the reference."""
    cdef object value = steal(array)
    cdef BatchedTensor wrapper = BatchedTensor.__new__(BatchedTensor)
    wrapper.array = value
    wrapper.word = CPU_WORD | AUTOGRAD_BIT | TENSOR_FLAG | WRAPPER_FLAG
    wrapper.interpreter = <Interpreter>interpreter
    wrapper.is_fresh = True
    return new_reference(wrapper)


cdef object wrap_batches(Signature signature, Frame* frame, result, dims, Vmap interpreter):
    """Return the results of a rule as values of the interpreter. `dims` has the batch axis of each, or None."""
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
        return uniform_of_call(signature, frame, result, interpreter) if word_of_array(<PyObject*>result) else result
    if isinstance(dim, tuple):
        wrapped = []
        for item, of_item in zip(result, dim):
            wrapped.append(wrap_batch(signature, frame, i, item, of_item, interpreter))
        return type(result)(wrapped)
    if dim:
        result = upcalls.moveaxis(result, dim, 0)
    return wrap_fresh(signature, frame, i, result, interpreter)


cdef object wrap_fresh(Signature signature, Frame* frame, Py_ssize_t i, result, Vmap interpreter):
    """Return a result that consists of batches. Mark it as fresh if it shares no memory with an argument."""
    wrapped = wrap_result(signature, frame, i, result, interpreter)
    if (Py_TYPE(<PyObject*>wrapped) == BATCHED_TYPE and not (<Tensor>wrapped).word & SHARED_FLAG
            and (<Tensor>wrapped).memory is None and signature.return_source[i] < 0):
        (<BatchedTensor>wrapped).is_fresh = True
    return wrapped


def check_concrete(Tensor tensor, str use):
    """Raise DataDependentError if a truth value is needed that differs between examples."""
    cdef PyObject* value = <PyObject*>tensor
    end_speculative_run()
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == BATCHED_TYPE and not is_uniform(value):
            raise upcalls.conversion_error(<object>value, use)
        value = <PyObject*>(<Tensor>value).array


cdef Py_ssize_t size_of_flat_batch(tuple args, in_dims, list batch_dims) except -2:
    """Return the size of a batch of arrays, and append the batch axis of each to `batch_dims`.

    Return -1 if Python has to examine the arguments.
    """
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
    """Return the result of `vmap` for arrays, with out_dims=0. Return NOT_FLAT if Python has to examine the arguments.

    In that case the function has not been called.
    """
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
    if is_batch(<PyObject*>output, interpreter):
        return handed_out((<Tensor>output).array, as_tensors, args, False)
    if type(output) is not tuple:
        return upcalls.batched_in_general(interpreter, output, args)
    for value in <tuple>output:
        if not is_batch(<PyObject*>value, interpreter):       # may be a dead wrapper
            return upcalls.batched_in_general(interpreter, output, args)
    results = []
    for value in <tuple>output:
        results.append(handed_out((<Tensor>value).array, as_tensors, args, False))
    return tuple(results)


def dims_of_leaves(leaves, Vmap interpreter):
    """Return a tuple with 0 for each batch of this interpreter, whose first axis is the batch axis, else None."""
    cdef list dims = []
    for leaf in leaves:
        dims.append(0 if is_batch(<PyObject*>leaf, interpreter) else None)
    return tuple(dims)


def entered_leaves(Vmap interpreter not None, leaves, dims):
    """Return the leaves, with those that have a dim as batches of the interpreter."""
    cdef list entered = []
    cdef Py_ssize_t i = 0
    if len(leaves) != len(dims):
        raise ValueError(f"entered_leaves: {len(leaves)} leaves, but {len(dims)} dims\npass one dim for each leaf")
    for leaf in leaves:
        entered.append(leaf if leaf is None or dims[i] is None else enter_at(interpreter, leaf, None))
        i += 1
    return entered
