# --- dispatch to Python ----------------------------------------------------------------------------------------------
#
# Modes are entries of the stack, above the tape: the innermost one gets the call, and is absent inside of its handler.
# Handlers of subclasses are what the Python key runs, below the tape and above the kernels.

cdef enum:
    MAX_PARTICIPANTS = 64

cdef extern from "Python.h":
    PyObject* PyObject_VectorcallMethod(PyObject* name, PyObject* const* args, size_t nargsf, PyObject* kwnames)
    PyObject* lookup_on_type "_PyType_Lookup" (PyTypeObject* cls, PyObject* name)   # borrowed
    PyTypeObject PyClassMethod_Type
    tuple PyTuple_New(Py_ssize_t)
    void PyTuple_SET_ITEM(tuple, Py_ssize_t, object)

cdef extern from *:
    """
    /* the first member of a classmethod, in every CPython; checked below */
    #define function_of(method) (*(PyObject**)((char*)(method) + sizeof(PyObject)))
    """
    PyObject* function_of(PyObject* method) noexcept

cdef str HANDLER = "__pydispatch__"
cdef object some_classmethod = classmethod(len)
if <object>function_of(<PyObject*>some_classmethod) is not some_classmethod.__func__:
    raise ImportError("classmethod objects of this Python are laid out in another way than pydispatch knows")


@cython.final
cdef class ActiveMode(Interpreter):
    """One entering of a user's mode."""

    def __init__(self, mode, bint is_on_already):
        self.mode = mode
        self.whole = mode.composites == "whole"
        self.is_on_already = is_on_already
        self.name = type(mode).__name__

    def __repr__(self):
        return repr(self.mode)


cdef inline bint has_handler(PyTypeObject* cls) noexcept:
    """Does a class say itself what operators do with its objects?"""
    cdef PyObject* handler = lookup_on_type(cls, <PyObject*>HANDLER)
    return handler != lookup_on_type(TENSOR_TYPE, <PyObject*>HANDLER) and not (
        Py_TYPE(handler) == Py_TYPE(<PyObject*>BASE_HANDLER) and PyObject_RichCompareBool(
            <object>handler, BASE_HANDLER, Py_EQ) == 1)

cdef object BASE_HANDLER = Tensor.__pydispatch__    # as it is assigned to a class that is to have no handler


def has_own_handler(type cls):
    """Does a class say itself what operators do with its objects?"""
    return issubclass(cls, Tensor) and has_handler(<PyTypeObject*>cls)


cdef class Mode:
    """What is entered and left of a user's mode, which has a handler."""

    composites = "pieces"
    enters_anew = True

    def __enter__(self):
        enter_level(ActiveMode(self, not self.enters_anew and any(mode is self for mode in active_modes())))
        return self

    def __exit__(self, kind, error, trace):
        leave_mode(self)


cdef int leave_mode(mode) except -1:
    """Take the innermost entry of a mode out of the stack; StateOrderError as `leave`."""
    cdef State state = state_now()
    while state is not None:
        if isinstance(state.guard, ActiveMode) and (<ActiveMode>state.guard).mode is mode:
            return leave(state.guard)
        state = state.parent
    return leave(mode)


def active_modes():
    """The modes on the stack, innermost first."""
    return tuple([(<ActiveMode>level).mode for level in state_now().stack if isinstance(level, ActiveMode)])


cdef inline bint is_muted(State state, Entry entry) noexcept:
    """Is this a mode that was entered before `no_dispatch`, which passes over such?"""
    return entry.depth <= state.muted and isinstance(entry.level, ActiveMode)


cdef inline void set_entry(State state, Entry entry) noexcept:
    """Make this the innermost entry of the stack, or the next one that is not passed over."""
    while entry is not None and is_muted(state, entry):
        entry = entry.outer
    state.entry = entry
    state.top = None if entry is None else entry.level


cdef Interpreter innermost_transform(State state):
    """The innermost entry of the stack that is no mode."""
    cdef Entry entry = state.entry
    while entry is not None and isinstance(entry.level, ActiveMode):
        entry = entry.outer
    return None if entry is None else entry.level


cdef State without_transforms(State state):
    """The same without the transforms that were entered after the innermost mode."""
    while state.top is not None and not isinstance(state.top, ActiveMode):
        state = lowered_state(state)
    return state


def innermost_transform_now():
    """The innermost transform that is active; None for the tape. Modes are none."""
    return innermost_transform(state_now())


def operators_are_watched():
    """Is there a mode, or a transform written in Python, that has to see what is done with raw arrays?"""
    return watches_arrays(state_now())


def tensors_are_followed():
    """Does it matter here what is done with a Tensor that is not tracked? A raw array in its place would be a constant."""
    cdef State state = state_now()
    return state.substitute is not None or watches_arrays(state)


cdef bint watches_arrays(State state) noexcept:
    """Is there an entry of the stack that has to see what is done with raw arrays?"""
    cdef Entry entry = state.entry
    while entry is not None:
        if not is_muted(state, entry) and (
                isinstance(entry.level, ActiveMode) or isinstance(entry.level, Transform) and (<Transform>entry.level).watches):
            return True
        entry = entry.outer
    return False


# --- dispatch to Python: arguments and results ------------------------------------------------------------------------

cdef tuple stripped_positionals(Signature signature, Frame* frame):
    """The positional arguments as a handler gets them: without those at the end that equal their defaults."""
    cdef Py_ssize_t n = min(frame.count, signature.n_positional), i
    cdef PyObject* value
    cdef tuple args
    while n > 0 and (frame.values[n - 1] == NULL or is_default(<PyObject*>signature, n - 1, frame.values[n - 1])):
        n -= 1
    args = PyTuple_New(n)
    for i in range(n):
        value = value_by_position(frame, signature, i)
        Py_INCREF(<object>value)
        PyTuple_SET_ITEM(args, i, <object>value)
    return args


cdef dict stripped_keywords(Signature signature, Frame* frame):
    """The keyword-only arguments that do not equal their defaults, in the order of the schema."""
    cdef dict kwargs = {}
    cdef Py_ssize_t i
    for i in range(signature.n_positional, signature.n_arguments):
        if i < frame.count and frame.values[i] != NULL and not is_default(<PyObject*>signature, i, frame.values[i]):
            kwargs[signature.names[i]] = <object>frame.values[i]
    return kwargs


# The first Tensor of each class with a handler: subclasses before superclasses, else from left to right. References to
# them are held, as the containers that they were found in may make or drop theirs.
cdef struct Participants:
    PyObject* tensors[MAX_PARTICIPANTS]
    Py_ssize_t count


cdef void release_participants(Participants* found) noexcept:
    while found.count:
        found.count -= 1
        Py_DECREF(found.tensors[found.count])


cdef int find_participants(Participants* found, Signature signature, Frame* frame) except -1:
    """Fill `found` from the arguments of a call; release_participants is to follow, also after an exception."""
    cdef Py_ssize_t i
    cdef PyObject* value
    found.count = 0
    for i in range(frame.count):
        value = frame.values[i]
        if value == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(value)):
            if (<Tensor>value).word & PYTHON_BIT:
                add_participant(found, value)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(value) & PYTHON_BIT:
            add_participants_in(found, value)
    return 0


cdef int add_participants_in(Participants* found, PyObject* value) except -1:
    cdef Py_ssize_t i
    if is_tensor_type(Py_TYPE(value)):
        if (<Tensor>value).word & PYTHON_BIT:
            add_participant(found, value)
    elif PyTuple_CheckExact(value):
        enter_recursive_call()
        try:
            for i in range(PyTuple_GET_SIZE(value)):
                add_participants_in(found, PyTuple_GET_ITEM(value, i))
        finally:
            leave_recursive_call()
    elif not holds_nothing(value):
        for leaf in array_leaves(<object>value):
            if isinstance(leaf, Tensor):
                add_participants_in(found, <PyObject*>leaf)
    return 0


cdef int add_participant(Participants* found, PyObject* tensor) except -1:
    """Put a Tensor in its place, unless there is one of its class."""
    cdef Py_ssize_t i, place = found.count
    for i in range(found.count):
        if Py_TYPE(found.tensors[i]) == Py_TYPE(tensor):
            return 0
        if place == found.count and PyType_IsSubtype(Py_TYPE(tensor), Py_TYPE(found.tensors[i])):
            place = i
    if found.count == MAX_PARTICIPANTS:
        raise DispatchTypeError(f"a call with Tensors of more than {MAX_PARTICIPANTS} classes with handlers")
    for i in range(found.count, place, -1):
        found.tensors[i] = found.tensors[i - 1]
    found.tensors[place] = give(<object>tensor)
    found.count += 1
    return 0


cdef tuple types_of(Participants* found):
    cdef tuple types = PyTuple_New(found.count)
    cdef Py_ssize_t i
    for i in range(found.count):
        Py_INCREF(<object><PyObject*>Py_TYPE(found.tensors[i]))
        PyTuple_SET_ITEM(types, i, <object><PyObject*>Py_TYPE(found.tensors[i]))
    return types


cdef tuple types_in(Signature signature, Frame* frame):
    """The classes with a handler among the arguments, in the order in which they are asked."""
    cdef Participants found
    if not frame.word & PYTHON_BIT:
        return NO_ARGUMENTS
    try:
        find_participants(&found, signature, frame)
        return types_of(&found)
    finally:
        release_participants(&found)


cdef inline object finish_handled(OpOverload op, Signature signature, Frame* frame, handler, result):
    """Step 7 for what a handler returned: Tensors stay as they are."""
    if signature.returns_fresh_tensor and isinstance(result, Tensor) and (<Tensor>result).word:
        return result
    return finish_all(op, signature, handler, frame, result, False)


# --- dispatch to Python: modes ---------------------------------------------------------------------------------------

cdef object call_mode(OpOverload op, Table table, Frame* frame, State state, ActiveMode top, str how):
    """Let the innermost mode handle a call; what it declines goes to the next entry of the stack, without it."""
    cdef Signature signature = table.signature
    cdef State lower
    cdef Shown around
    cdef tuple args, types
    cdef object result = NotImplemented
    cdef object rule = rule_for(table, type(top.mode))
    cdef object composite = None if top.whole else composite_entry(table, frame.word)
    if rule is None and composite is not None:
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, how)
    lower = lowered_state(state)
    args = stripped_positionals(signature, frame)
    types = types_in(signature, frame)
    show_deeper(&around, lower)
    try:
        if rule is not None:
            result = rule(top.mode, op, types, args, stripped_keywords(signature, frame))
        if result is NotImplemented and composite is None:
            result = call_handler(<PyObject*>top.mode, op, types, args, stripped_keywords(signature, frame))
            if result is NotImplemented:
                if frame.original == NULL:
                    frame.original = <PyObject*>state
                return dispatch(op, table, frame, lower, how)
    finally:
        hide_deeper(&around)
    if result is NotImplemented:        # a rule declined what the mode sees in pieces
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, how)
    if frame.word & TRACKED_FLAG and state.grad and not is_tracked_result(result) and not (
            state.removed[bit_length16(frame.word & BACKEND_BITS)] & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)):
        if loses_gradient(op, table, frame):
            python_side["warn_untracked"](op, top.mode, result)
    return finish_handled(op, signature, frame, top.mode, result)


cdef inline bint is_tracked_result(result) noexcept:
    return isinstance(result, Tensor) and (<Tensor>result).word & TRACKED_FLAG != 0


def is_tracked_anywhere(value):
    """Is this a Tensor that is tracked at its level, or at one below?"""
    while isinstance(value, Tensor):
        if (<Tensor>value).word & TRACKED_FLAG:
            return True
        value = (<Tensor>value).array
    return False


cdef bint loses_gradient(OpOverload op, Table table, Frame* frame) except -1:
    """Would a constant in place of the result end the gradient of an argument, as far as is known?"""
    cdef Py_ssize_t i
    cdef uint64_t tracked = 0
    try:
        rule = rule_of(op, table)
    except NoDerivativeError:
        return True
    if not isinstance(rule, Derivative):
        return rule is not None
    for i in range(frame.count):
        if frame.values[i] != NULL and word_of_value(frame.values[i]) & TRACKED_FLAG:
            tracked |= bit(i)
    return (<Derivative>rule).differentiable & tracked != 0


cdef inline object call_handler(PyObject* owner, op, tuple types, tuple args, dict kwargs):
    """`owner.__pydispatch__(op, types, args, kwargs)`."""
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
        return own(PyObject_Vectorcall(<PyObject*>function, values, 5, NULL))
    return own(PyObject_VectorcallMethod(<PyObject*>HANDLER, values, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef inline object rule_for(Table table, cls):
    return None if table.rules is None else table.rules.get(cls)


cdef object composite_entry(Table table, uint64_t word):
    """The composite kernel that these arguments run on the tape, when it is one."""
    if not word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):      # raw arrays, or none
        word |= AUTOGRAD_OTHER_BIT if word & SPARSE_BIT else AUTOGRAD_BIT
        if not word & BACKEND_BITS:
            word |= 1
    entry = autograd_entry(table, word)
    return entry if entry is not None and (<TableEntry>entry).convention & COMPOSITE else None


# --- dispatch to Python: subclasses -----------------------------------------------------------------------------------

cdef object call_handlers(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, str how):
    """What the Python key runs: the handlers of the arguments' classes, until one does not decline."""
    cdef Signature signature = table.signature
    cdef Participants found
    cdef tuple types
    cdef long long writes = writes_to_mutable(signature, frame)
    cdef object result
    cdef PyObject* handling = NULL      # a class, which `types` holds
    try:
        find_participants(&found, signature, frame)
        types = types_of(&found)
        result = ask_handlers(op, table, frame, &found, types, state, &handling)
    finally:
        release_participants(&found)
        if writes >= 0 and writes_to_mutable(signature, frame) == writes:
            count_writes(signature, frame)
    if handling == NULL:        # nobody takes part, or no longer
        return run(op, table, frame, keys & ~PYTHON_BIT, state, how)
    if result is NotImplemented:
        raise python_side["no_handler"](op, declined_modes(frame, state), types)
    result = finish_handled(op, signature, frame, <object>handling, result)
    if frame.word & TENSOR_FLAG and not signature.returns_fresh_tensor:
        share_views_of_handler(signature, frame, result)
    return result


cdef object ask_handlers(
    OpOverload op, Table table, Frame* frame, Participants* found, tuple types, State state, PyObject** handling
):
    """What the first handler that does not decline returned; `handling` becomes the class that was asked last."""
    cdef Signature signature = table.signature
    cdef tuple args = stripped_positionals(signature, frame)
    cdef object result = NotImplemented
    cdef Py_ssize_t i
    cdef Shown around
    show_deeper(&around, handling_state(<State>frame.original if frame.original != NULL else state))
    try:
        for i in range(found.count):
            if not has_handler(Py_TYPE(found.tensors[i])):
                continue
            handling[0] = <PyObject*>Py_TYPE(found.tensors[i])
            if table.rules is not None:
                rule = table.rules.get(<object>handling[0])
                if rule is not None:
                    result = rule(<object>handling[0], op, types, args, stripped_keywords(signature, frame))
            if result is NotImplemented:
                result = call_handler(found.tensors[i], op, types, args, stripped_keywords(signature, frame))
            if result is not NotImplemented:
                break
    finally:
        hide_deeper(&around)
    return result


cdef tuple declined_modes(Frame* frame, State state):
    """The modes that declined a call before it came here, in this order."""
    cdef Entry entry = None if frame.original == NULL else (<State>frame.original).entry
    cdef list modes = []
    while entry is not None and entry is not state.entry:
        if isinstance(entry.level, ActiveMode):
            modes.append((<ActiveMode>entry.level).mode)
        entry = entry.outer
    return tuple(modes)


cdef State handling_state(State state):
    """The state in the handler of a subclass: every key above Python is switched off."""
    cdef State new = state.handling
    cdef int backends
    if new is None:
        new = copy_of_state(state)
        for backends in range(N_BACKENDS + 1):
            new.removed[backends] |= ABOVE_PYTHON_BITS
        new.call_state = copy_of_state(state)       # itself would be a cycle
        settle_plainness(new)
        state.handling = new
    return new


cdef long long writes_to_mutable(Signature signature, Frame* frame) noexcept:
    """The writes so far to the Tensors that a call is to write to; -1 for none."""
    cdef Py_ssize_t i
    cdef long long total = -1
    if not signature.mutable:
        return -1
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL and is_tensor_type(Py_TYPE(frame.values[i])):
            total = max(total, 0) + total_writes(<Tensor>frame.values[i])
    return total


cdef int share_views_of_handler(Signature signature, Frame* frame, result) except -1:
    """Results that lie in the memory of an argument are its views, though a handler has wrapped them anew."""
    cdef Py_ssize_t i
    results = (result,) if signature.n_returns == 1 else result
    for i in range(signature.n_returns):
        if signature.return_views[i]:
            share_view_of_handler(signature, frame, i, results[i])
    return 0


cdef int share_view_of_handler(Signature signature, Frame* frame, Py_ssize_t i, result) except -1:
    if isinstance(result, Tensor):
        if not (<Tensor>result).word & SHARED_FLAG and not is_argument(frame, result):
            if isinstance((<Tensor>result).array, Shell) and (<Shell>(<Tensor>result).array).owner is None:
                lay_over(<Shell>(<Tensor>result).array, signature, frame, i)
            share_with_base(signature, frame, i, result)
    elif isinstance(result, (tuple, list)):
        for item in result:
            share_view_of_handler(signature, frame, i, item)
    return 0


cdef int lay_over(Shell shell, Signature signature, Frame* frame, Py_ssize_t i) except -1:
    """A wrapper made as a view of another lies in the memory of that, for all that can be known."""
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


cdef bint is_argument(Frame* frame, value) noexcept:
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] == <PyObject*>value:
            return True
    return False


cdef void mute_modes(State state) noexcept:
    """Pass over the modes that are on the stack now."""
    if state.entry is not None:
        state.muted = state.entry.depth
        set_entry(state, state.entry)


cdef State below_python_state(State state):
    cdef State new = handling_state(state), below = copy_of_state(new)
    cdef int backends
    for backends in range(N_BACKENDS + 1):
        below.removed[backends] |= PYTHON_BIT
    below.call_state = new.call_state
    mute_modes(below)
    settle_plainness(below)
    return below


def below_python(func, /, *args, **kwargs):
    """Call an operator with the Python key and every key above it excluded, and no mode on: its kernel runs.

    Modes are told by `on_conversion`, and may refuse. Wrappers without memory have nothing for a kernel; the kernel's
    complaint is raised.
    """
    cdef Shown around
    for mode in active_modes():
        for leaf in array_leaves((args, kwargs)):
            if isinstance(leaf, Tensor):
                mode.on_conversion(leaf, "an argument of a kernel below the modes")
    show(&around, below_python_state(state_now()))
    try:
        return func(*args, **kwargs)
    finally:
        hide(&around)


def entry_state(State state, guard):
    """The state with the keys of the call that the handler around us handles; StateOrderError outside of handlers."""
    cdef State new
    if state.call_state is None:
        raise StateOrderError(
            "restore_entry_state() is for the handlers of subclasses, and this is none: there is no call whose state "
            "could be restored\nenter it inside of __pydispatch__"
        )
    new = copy_of_state(state)
    new.parent = state
    new.guard = guard
    new.removed = state.call_state.removed
    new.grad = state.call_state.grad
    new.inference = state.call_state.inference
    settle_plainness(new)
    return new


# --- dispatch to Python: transforms ----------------------------------------------------------------------------------

cdef class Transform(Interpreter):
    """A transform written in Python: a subclass defines `process(func, args, kwargs)`.

    It is called, with the level absent, for every call that has an argument of the level, writes to an argument or
    makes an array; `args` and `kwargs` are as they were passed, with values of the level (LevelTensor) in them. What
    it returns is the result; in place of a mutated argument the caller gets that argument itself. With `watches` it
    sees what formulas of derivatives do with constants too.
    """

    def __init__(self, str name, site=None, *, bint watches=True):
        self.name = name
        self.site = site
        self.watches = watches

    def __enter__(self):
        if self.entered is not None:
            raise StateOrderError(
                f"{self.name}: this object was entered before, and its values would be alive again\n"
                f"make a new one for every run: with {type(self).__name__}() as level"
            )
        enter_level(self)
        return self

    def __exit__(self, kind, error, trace):
        leave_level(self)

    def process(self, func, args, kwargs):
        """Do what the call of an operator means at this level."""
        raise NotImplementedError(f"{type(self).__name__}.process")


@cython.final
cdef class LevelTensor(Wrapper):
    """A value of a transform written in Python; `note` is for what the transform knows of it."""


def replace_value(LevelTensor tensor, value):
    """Put another value below a LevelTensor; shape, dtype and backend are the new value's."""
    cdef uint64_t word = word_of_array(<PyObject*>value) & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
    cdef object below = value
    while isinstance(below, Tensor):
        if below is tensor:
            raise ValueError("a value cannot lie below itself")
        below = (<Tensor>below).array
    tensor.array = value
    tensor.word = (tensor.word & ~(BACKEND_BITS | DENSE_BIT | SPARSE_BIT)) | word


cdef object call_transform(OpOverload op, Signature signature, Frame* frame, State state, Interpreter top, rule):
    """Let a transform written in Python, or a rule for the class of a transform, do what a call means."""
    cdef Shown around
    args, kwargs = arguments_with(frame, signature, None)
    show_deeper(&around, lowered_state(state))
    try:
        result = top.process(op, args, kwargs) if rule is None else rule(top, op, args, kwargs)
    finally:
        hide_deeper(&around)
    return finish_handled(op, signature, frame, top, result)


# --- dispatch to Python: values leave --------------------------------------------------------------------------------

cdef bint is_handled(Tensor tensor) noexcept:
    """Do handlers or modes have a say in what this Tensor holds?"""
    cdef State state = state_now()
    if tensor.word & PYTHON_BIT and not state.removed[bit_length16(tensor.word & BACKEND_BITS)] & PYTHON_BIT:
        return True
    return state.top is not None and watches_arrays(state)


cdef object number_of(Tensor tensor):
    """The Tensor as what Python can make a number of: its array, or where handlers have a say the result of `item`."""
    return python_side["item"](tensor) if is_handled(tensor) else tensor.array


def is_processed_in_python(Tensor tensor):
    """Is this, or a value below it, one of a running transform that is written in Python?"""
    cdef object value = tensor
    while isinstance(value, Wrapper):
        if isinstance(value, LevelTensor) and (<Wrapper>value).interpreter.alive:
            return True
        value = (<Tensor>value).array
    return False


def is_handled_in_python(Tensor tensor):
    """Do handlers or modes have a say in what this Tensor holds?"""
    return is_handled(tensor)
