# Subclasses of Tensor that handle calls themselves.


cdef class WrapperTensor(Tensor):
    """A Tensor without its own memory around another one, its `inner`. A subclass defines `__pydispatch__`.

    `WrapperTensor(inner)` takes shape, dtype, strides and backend from `inner`, an array or Tensor. A class whose shape
    or dtype differs, or that contains several arrays, calls `Tensor.__init__(self, Shell(...))` instead.
    """

    def __init__(self, inner, *, bint requires_grad=False):
        wrap_around(self, inner, requires_grad)

    def __tensor_flatten__(self):
        return ("inner",), None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, shape, strides):
        return cls(inner["inner"])

    def __repr__(self):
        return f"{type(self).__name__}({getattr(self, 'inner', None)!r})"     # `inner` may have been deleted


cdef int wrap_around(WrapperTensor wrapper, inner, bint requires_grad) except -1:
    cdef Shell shell
    if is_numpy_scalar(inner):
        inner = array_of_scalar(inner)
    if not wrapper.word and has_handler(Py_TYPE(<PyObject*>wrapper)) and not requires_grad and (
            not (<State>borrowed_state()).inference):
        shell = Shell.__new__(Shell)
        copy_metadata(shell, <PyObject*>inner)
        wrapper.array = shell
        wrapper.word = shell.keys | TENSOR_FLAG | PYTHON_BIT | (
            AUTOGRAD_BIT if shell.keys & DENSE_BIT else AUTOGRAD_OTHER_BIT)
    else:
        Tensor.__init__(wrapper, Shell(inner), requires_grad=requires_grad)
    put_reference(<PyObject**>(<char*><PyObject*>wrapper + inner_member.offset), <PyObject*>inner)
    return 0


def make_directly_callable(type cls, **kwargs):
    """Set up the vectorcall slot of a subclass of WrapperTensor. Types do not inherit it."""
    super(WrapperTensor, cls).__init_subclass__(**kwargs)
    set_call_of_class(<PyTypeObject*>cls, <vectorcallfunc>call_wrapper_class)


extend(WrapperTensor, __init_subclass__=classmethod(make_directly_callable))


cdef PyObject* call_wrapper_class(PyObject* cls, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Make `Class(inner)`, without a tuple of arguments if the class is made as WrapperTensor is."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i
    if (n == 1 and kwnames == NULL and (<vectorcallable*>cls).tp_init == (<vectorcallable*>WrapperTensor).tp_init
            and (<vectorcallable*>cls).tp_new == (<vectorcallable*>WrapperTensor).tp_new):
        made = steal(new_object(<PyTypeObject*>cls, <PyObject*>NO_ARGUMENTS))
        wrap_around(made, <object>args[0], False)
        return new_reference(made)
    positional = tuple([<object>args[i] for i in range(n)])
    keywords = {} if kwnames == NULL else {name: <object>args[n + i] for i, name in enumerate(<tuple><object>kwnames)}
    return (<vectorcallable*>type).tp_call(cls, <PyObject*>positional, <PyObject*>keywords)


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
inner_member.offset = WrapperTensor.__basicsize__ - sizeof(void*)      # `inner` is the last member
inner_member.flags = 0
inner_member.doc = b"What it is wrapped around."

# the interpreter reads members without a call, but not Cython's properties
extend(WrapperTensor, inner=PyDescr_NewMember(<PyTypeObject*>WrapperTensor, &inner_member))

cdef enum:
    MAX_RELEVANT = 64

HANDLER = "__pydispatch__"
cdef object some_classmethod = classmethod(len)

if <object>function_of(<PyObject*>some_classmethod) is not some_classmethod.__func__:
    raise ImportError("this Python lays out classmethod objects in a way that pydispatch does not support")


cdef inline bint has_handler(PyTypeObject* cls) noexcept:
    """Return whether a class has its own handler."""
    cdef PyObject* handler = lookup_on_type(cls, <PyObject*>HANDLER)
    return handler != lookup_on_type(TENSOR_TYPE, <PyObject*>HANDLER) and not (
        Py_TYPE(handler) == Py_TYPE(<PyObject*>BASE_HANDLER) and PyObject_RichCompareBool(
            <object>handler, BASE_HANDLER, Py_EQ) == 1)


cdef object BASE_HANDLER = None         # the handler of Tensor, which may be assigned to a class that should have none


cdef int set_base_handler(handler) except -1:
    global BASE_HANDLER
    BASE_HANDLER = handler
    return 0


def has_own_handler(type cls):
    """Return whether a class has its own handler."""
    return issubclass(cls, Tensor) and has_handler(<PyTypeObject*>cls)


# --- arguments and results --------------------------------------------------------------------------------------------


cdef tuple stripped_positionals(Signature signature, Frame* frame):
    """Return the positional arguments for a handler: without trailing ones that equal their defaults."""
    cdef Py_ssize_t n = min(frame.count, signature.n_positional), i
    cdef PyObject* value
    cdef tuple args
    while n > 0 and (frame.values[n - 1] == NULL or is_default(<PyObject*>signature, n - 1, frame.values[n - 1])):
        n -= 1
    args = PyTuple_New(n)
    for i in range(n):
        value = value_or_default(frame, signature, i)
        Py_INCREF(<object>value)
        PyTuple_SET_ITEM(args, i, <object>value)
    return args


cdef dict stripped_keywords(Signature signature, Frame* frame):
    """Return the keyword-only arguments that do not equal their defaults, in the order of the schema."""
    cdef dict kwargs = {}
    cdef Py_ssize_t i
    for i in range(signature.n_positional, signature.n_arguments):
        if i < frame.count and frame.values[i] != NULL and not is_default(<PyObject*>signature, i, frame.values[i]):
            kwargs[signature.names[i]] = <object>frame.values[i]
    return kwargs


# The first Tensor of each class with a handler: subclasses before superclasses, else from left to right. References to
# the Tensors are held, since the pytrees that contain them may create or drop them.
cdef struct RelevantArguments:
    PyObject* tensors[MAX_RELEVANT]
    Py_ssize_t count


cdef void release_relevant_arguments(RelevantArguments* found) noexcept:
    while found.count:
        found.count -= 1
        Py_DECREF(found.tensors[found.count])


cdef int find_relevant_arguments(RelevantArguments* found, Signature signature, Frame* frame) except -1:
    """Fill `found` from the arguments of a call. Call release_relevant_arguments then, even after an exception."""
    cdef Py_ssize_t i
    cdef PyObject* value
    found.count = 0
    for i in range(frame.count):
        value = frame.values[i]
        if value == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(value)):
            if (<Tensor>value).word & PYTHON_BIT:
                add_relevant_argument(found, value)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(value) & PYTHON_BIT:
            add_relevant_arguments_in(found, value)
    return 0


cdef int add_relevant_arguments_in(RelevantArguments* found, PyObject* value) except -1:
    cdef Py_ssize_t i
    if is_tensor_type(Py_TYPE(value)):
        if (<Tensor>value).word & PYTHON_BIT:
            add_relevant_argument(found, value)
    elif PyTuple_CheckExact(value):
        enter_recursive_call()
        try:
            for i in range(PyTuple_GET_SIZE(value)):
                add_relevant_arguments_in(found, PyTuple_GET_ITEM(value, i))
        finally:
            leave_recursive_call()
    elif not holds_nothing(value):
        for leaf in array_leaves(<object>value):
            if isinstance(leaf, Tensor):
                add_relevant_arguments_in(found, <PyObject*>leaf)
    return 0


cdef int add_relevant_argument(RelevantArguments* found, PyObject* tensor) except -1:
    """Insert a Tensor at its position, unless there is one of its class."""
    cdef Py_ssize_t i, place = found.count
    for i in range(found.count):
        if Py_TYPE(found.tensors[i]) == Py_TYPE(tensor):
            return 0
        if place == found.count and PyType_IsSubtype(Py_TYPE(tensor), Py_TYPE(found.tensors[i])):
            place = i
    if found.count == MAX_RELEVANT:
        raise DispatchTypeError(f"the call has Tensors of more than {MAX_RELEVANT} classes with handlers")
    for i in range(found.count, place, -1):
        found.tensors[i] = found.tensors[i - 1]
    found.tensors[place] = new_reference(<object>tensor)
    found.count += 1
    return 0


cdef tuple types_of(RelevantArguments* found):
    cdef tuple types = PyTuple_New(found.count)
    cdef Py_ssize_t i
    for i in range(found.count):
        Py_INCREF(<object><PyObject*>Py_TYPE(found.tensors[i]))
        PyTuple_SET_ITEM(types, i, <object><PyObject*>Py_TYPE(found.tensors[i]))
    return types


cdef tuple types_in(Signature signature, Frame* frame):
    """Return the classes with a handler among the arguments, in the order in which their handlers are called."""
    cdef RelevantArguments found
    if not frame.word & PYTHON_BIT:
        return NO_ARGUMENTS
    try:
        find_relevant_arguments(&found, signature, frame)
        return types_of(&found)
    finally:
        release_relevant_arguments(&found)


cdef inline object finish_handled(OpOverload op, Signature signature, Frame* frame, handler, result):
    """Apply step 7 to the result of a handler: Tensors stay as they are, and views of arguments share their memory."""
    if signature.returns_fresh_tensor and isinstance(result, Tensor) and (<Tensor>result).word:
        mark_handled(signature, frame, <Tensor>result)
        return result
    result = finish_all(op, signature, handler, frame, result, False)
    if frame.word & TENSOR_FLAG and not signature.returns_fresh_tensor:
        share_views_of_handler(signature, frame, result)
    return result


cdef int mark_handled(Signature signature, Frame* frame, Tensor result) except -1:
    """Mark a handler's result as a scalar, unless it is an argument, a leaf or otherwise writable already."""
    if (not result.word & SCALAR_FLAG and result.memory is None and not is_argument(frame, result)
            and not is_leaf_edge(result.edge) and is_scalar_result(signature, frame, result)):
        result.word |= SCALAR_FLAG
    return 0


# --- handlers ---------------------------------------------------------------------------------------------------------


cdef object call_handlers(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind):
    """Run the Python key: call the handlers of the arguments' classes, until one does not decline."""
    cdef Signature signature = table.signature
    cdef RelevantArguments found
    cdef tuple types
    cdef long long writes = writes_to_mutable(signature, frame)
    cdef object result
    cdef PyObject* handling = NULL      # a class, held by `types`
    try:
        find_relevant_arguments(&found, signature, frame)
        types = types_of(&found)
        result = ask_handlers(op, table, frame, &found, types, state, &handling)
    finally:
        release_relevant_arguments(&found)
        count_unseen_write(signature, frame, writes)
    if handling == NULL:        # no argument has a handler, or none any longer
        return run(op, table, frame, keys & ~PYTHON_BIT, state, kind)
    if result is NotImplemented:
        raise upcalls.no_handler(op, declined_modes(frame, state), types)
    return finish_handled(op, signature, frame, <object>handling, result)


cdef object ask_handlers(
    OpOverload op, Table table, Frame* frame, RelevantArguments* found, tuple types, State state, PyObject** handling
):
    """Return the result of the first handler that does not decline. Set `handling` to the class called last."""
    cdef Signature signature = table.signature
    cdef tuple args = stripped_positionals(signature, frame)
    cdef object result = NotImplemented
    cdef Py_ssize_t i
    cdef PublishedState around
    publish_deeper(&around, handling_state(<State>frame.original if frame.original != NULL else state))
    try:
        for i in range(found.count):
            if not has_handler(Py_TYPE(found.tensors[i])):
                continue
            handling[0] = <PyObject*>Py_TYPE(found.tensors[i])
            rule = rule_for(table, <object>handling[0])
            if rule is not None:
                result = rule(<object>handling[0], op, types, args, stripped_keywords(signature, frame))
            if result is NotImplemented:
                result = call_handler(found.tensors[i], op, types, args, stripped_keywords(signature, frame))
            if result is not NotImplemented:
                break
    finally:
        withdraw_deeper(&around)
    return result


cdef inline object call_handler(PyObject* owner, op, tuple types, tuple args, dict kwargs):
    """Call `owner.__pydispatch__(op, types, args, kwargs)`."""
    cdef PyObject* values[5]
    cdef PyObject* found = lookup_on_type(Py_TYPE(owner), <PyObject*>HANDLER)
    values[0] = owner
    values[1] = <PyObject*>op
    values[2] = <PyObject*>types
    values[3] = <PyObject*>args
    values[4] = <PyObject*>kwargs
    if found != NULL and Py_TYPE(found) == &PyClassMethod_Type:     # saves the bound method
        values[0] = <PyObject*>Py_TYPE(owner)
        function = <object>function_of(found)
        return steal(PyObject_Vectorcall(<PyObject*>function, values, 5, NULL))
    return steal(PyObject_VectorcallMethod(<PyObject*>HANDLER, values, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef tuple declined_modes(Frame* frame, State state):
    """Return the modes that declined a call before it came here, in this order."""
    cdef InterpreterStack stack = None if frame.original == NULL else (<State>frame.original).interpreters
    cdef list modes = []
    while stack is not None and stack is not state.interpreters:
        if isinstance(stack.interpreter, ActiveMode):
            modes.append((<ActiveMode>stack.interpreter).mode)
        stack = stack.outer
    return tuple(modes)


cdef State handling_state(State state):
    """Return the state in the handler of a subclass: every key above Python is excluded."""
    cdef State new = state.handling
    cdef int backends
    if new is None:
        new = copy_of_state(state)
        for backends in range(N_BACKENDS + 1):
            new.removed[backends] |= ABOVE_PYTHON_BITS
        new.call_state = copy_of_state(state)       # the state itself would make a cycle
        compute_plain(new)
        return <State>publish_once(place_of_handling(state), new)
    return new


cdef long long writes_to_mutable(Signature signature, Frame* frame) except -2:
    """Return the number of writes so far to the Tensors that a call will write to, or -1 if there are none."""
    cdef Py_ssize_t i
    cdef long long total = -1
    if not signature.mutable:
        return -1
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL and is_tensor_type(Py_TYPE(frame.values[i])):
            total = max(total, 0) + total_version(<Tensor>frame.values[i])
            before_write(<Tensor>frame.values[i], signature, frame)         # the handler may write
    return total


cdef int count_unseen_write(Signature signature, Frame* frame, long long writes) except -1:
    """Count a handler's write, unless a call in it was counted. `writes` is the earlier result of writes_to_mutable."""
    if writes >= 0 and writes_to_mutable(signature, frame) == writes:
        bump_versions(signature, frame)
    return 0


cdef int share_views_of_handler(Signature signature, Frame* frame, result) except -1:
    """Let results that lie in the memory of an argument be views of it, even if a handler has wrapped them again.

    If there are several results, mark those that are not views as scalars, as for a single result.
    """
    cdef Py_ssize_t i
    results = (result,) if signature.n_returns == 1 else result
    for i in range(signature.n_returns):
        if signature.return_views[i]:
            share_view_of_handler(signature, frame, i, results[i])
        elif isinstance(results[i], Tensor) and (<Tensor>results[i]).word:
            mark_handled(signature, frame, results[i])
    return 0


cdef int share_view_of_handler(Signature signature, Frame* frame, Py_ssize_t i, result) except -1:
    if isinstance(result, Tensor):
        if not (<Tensor>result).word & (SHARED_FLAG | SCALAR_FLAG) and not is_argument(frame, result):
            if isinstance((<Tensor>result).array, Shell) and (<Shell>(<Tensor>result).array).owner is None:
                lay_over(<Shell>(<Tensor>result).array, signature, frame, i)
            mark_or_share(signature, frame, i, result)
    elif isinstance(result, (tuple, list)):
        for item in result:
            share_view_of_handler(signature, frame, i, item)
    return 0


cdef int lay_over(Shell shell, Signature signature, Frame* frame, Py_ssize_t i) except -1:
    """Note that a wrapper made as a view of another one lies in the same memory, if that can be determined."""
    cdef PyObject* value
    for position in signature.return_views[i]:
        value = value_at(frame, position)
        if value != NULL and is_tensor_type(Py_TYPE(value)) and isinstance((<Tensor>value).array, Shell):
            source = (<Tensor>value).array
            if source is shell:
                return 0
            shell.owner = source if (<Shell>source).owner is None else (<Shell>source).owner
            return 0
    return 0


cdef State below_python_state(State state):
    cdef State new = handling_state(state), below = copy_of_state(new)
    cdef int backends
    for backends in range(N_BACKENDS + 1):
        below.removed[backends] |= PYTHON_BIT
    below.call_state = new.call_state
    disable_modes(below)
    compute_plain(below)
    return below


def below_python(func, /, *args, **kwargs):
    """Run an operator's kernel: call the operator with modes disabled, and the Python key and all above it excluded.

    Modes are notified by `on_conversion`, which may raise. Wrappers without memory have no data for a kernel, and the
    kernel's error is raised.
    """
    cdef PublishedState around
    for mode in active_modes():
        for leaf in array_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                mode.on_conversion(leaf, "an argument of a kernel below the modes")
    publish_state(&around, below_python_state(state_now()))
    try:
        return func(*args, **kwargs)
    finally:
        withdraw_state(&around)


def entry_state(State state, guard):
    """Return the state with the keys of the call that is being handled. Raise StateOrderError outside handlers."""
    cdef State new
    if state.call_state is None:
        raise StateOrderError(
            "restore_entry_state() was entered outside a handler of a subclass, where there is no call whose state it "
            "could restore\nenter it inside __pydispatch__"
        )
    new = copy_of_state(state)
    new.parent = state
    new.guard = guard
    new.removed = state.call_state.removed
    new.grad = state.call_state.grad
    new.inference = state.call_state.inference
    compute_plain(new)
    return new


# --- conversions ------------------------------------------------------------------------------------------------------


cdef bint is_followed_or_handled(Tensor tensor) except -1:
    return is_handled(tensor) or followed_in(tensor) is not None


cdef bint is_handled(Tensor tensor) noexcept:
    """Return whether handlers or modes control access to the value of this Tensor."""
    cdef State state = state_now()
    if tensor.word & PYTHON_BIT and not state.removed[bit_length16(tensor.word & BACKEND_BITS)] & PYTHON_BIT:
        return True
    if tensor.word & WRAPPER_FLAG and state.substitute is not None:     # a captured value, which it may replace
        return True
    return state.innermost is not None and watches_arrays(state)


cdef object number_of(Tensor tensor):
    """Return an object that Python can convert to a number: the array, or with handlers in control `item`'s result."""
    return upcalls.item(tensor) if is_handled(tensor) else tensor.array


cdef object number_for(kind, Tensor tensor):
    """Return `number_of` a Tensor. Raise or warn as NumPy does if the Tensor has axes."""
    if is_handled(tensor) and tensor.array.ndim:        # `item` takes any array of one element
        kind(numpy.broadcast_to(0.0, tensor.shape))
    return number_of(tensor)


def is_processed_in_python(Tensor tensor):
    """Return whether this Tensor, or a value below it, belongs to a running transform that is written in Python."""
    cdef object value = tensor
    while isinstance(value, Wrapper):
        if isinstance(value, PythonWrapper) and (<Wrapper>value).interpreter.alive:
            return True
        value = (<Tensor>value).array
    return False


def is_handled_in_python(Tensor tensor):
    """Return whether handlers or modes control access to the value of this Tensor."""
    return is_handled(tensor)


def has_plain_array(Tensor tensor not None):
    """Return whether `Tensor.__array__` converts a Tensor, while no mode is active."""
    return type(tensor).__array__ is Tensor.__array__ and not active_modes()


cdef int get_buffer(PyObject* value, Py_buffer* view, int flags) except -1:
    """Export the memory of the array under a Tensor as a buffer, for `memoryview`, hashlib and NumPy.

    NumPy requests a buffer before it calls `__array__`, and continues with that on an error. So a class with its own
    `__array__` exports no buffer. Neither does any Tensor under modes, which are to be notified of a conversion once.
    """
    clear_exporter(view)
    if not has_plain_array(<object>value):
        raise BufferError("a Tensor under a mode, or with its own __array__, does not export a buffer\n"
                          "use numpy.asarray(tensor)")
    if (<Tensor>value).dtype.kind == "V":       # the format has less information than the dtype, so __array__ is used
        raise BufferError("a Tensor of records does not export a buffer\nuse numpy.asarray(tensor)")
    return PyObject_GetBuffer(upcalls.convert(<object>value), view, flags)


cdef buffer_functions tensor_as_buffer
tensor_as_buffer.bf_getbuffer = get_buffer
tensor_as_buffer.bf_releasebuffer = NULL

for cls in (Tensor, WrapperTensor, Wrapper, *Wrapper.__subclasses__()):
    (<vectorcallable*>cls).tp_as_buffer = &tensor_as_buffer
    # Tensors are indexed as mappings are. If their type had this slot, NumPy would replace the error of `array[i] =
    # tensor`, about the gradient that would be lost, by one about sequences.
    (<vectorcallable*>cls).tp_as_sequence.sq_item = NULL
del cls
