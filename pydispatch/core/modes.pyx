# Modes: handlers for every call within a `with` block.
#
# Modes are entries of the stack, above the tape: the innermost one gets the call, and is absent inside of its handler.
# Handlers of subclasses are what the Python key runs, below the tape and above the kernels.


@cython.final
cdef class ActiveMode(Interpreter):
    """One entering of a user's mode."""

    def __init__(self, mode, bint is_on_already):
        self.mode = mode
        self.decompose_composites = mode.decompose_composites
        self.is_on_already = is_on_already
        self.name = type(mode).__name__

    def __repr__(self):
        return repr(self.mode)

    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, str how):
        return call_mode(op, table, frame, state, self, how)

    cdef bint changes_stack(self) noexcept:
        return not self.is_on_already

    cdef int change_inside(self, State inside) except -1:
        return 0

    cdef int change_below(self, State below, State inside) except -1:
        return 0

    cdef bint watches_arrays(self) noexcept:
        return True

    cdef bint is_transform(self) noexcept:
        return False


cdef class Mode:
    """What is entered and left of a user's mode, which has a handler."""

    decompose_composites = True
    enters_anew = True

    def __enter__(self):
        enter_interpreter(ActiveMode(self, not self.enters_anew and any(mode is self for mode in active_modes())))
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
    return tuple([(<ActiveMode>interpreter).mode for interpreter in state_now().stack
                  if isinstance(interpreter, ActiveMode)])


cdef inline bint is_disabled(State state, InterpreterStack entry) noexcept:
    """Is this a mode that was entered before `no_dispatch`, which passes over such?"""
    return entry.depth <= state.disabled and not entry.interpreter.is_transform()


cdef inline void set_entry(State state, InterpreterStack entry) noexcept:
    """Make this the innermost entry of the stack, or the next one that is not passed over."""
    while entry is not None and is_disabled(state, entry):
        entry = entry.outer
    state.entry = entry
    state.innermost = None if entry is None else entry.interpreter


cdef Interpreter innermost_transform(State state):
    """The innermost entry of the stack that is no mode."""
    cdef InterpreterStack entry = state.entry
    while entry is not None and not entry.interpreter.is_transform():
        entry = entry.outer
    return None if entry is None else entry.interpreter


cdef State without_transforms(State state):
    """The same without the transforms that were entered after the innermost mode."""
    while state.innermost is not None and state.innermost.is_transform():
        state = lowered_state(state)
    return state


def innermost_transform_now():
    """The innermost transform that is active; None for the tape. Modes are none."""
    return innermost_transform(state_now())


def operators_are_watched():
    """Is there a mode, or a transform written in Python, that has to see what is done with raw arrays?"""
    return watches_arrays(state_now())


def tensors_are_followed():
    """Does it matter what is done with an untracked Tensor? Then a raw array in its place would be a constant."""
    cdef State state = state_now()
    return state.substitute is not None or watches_arrays(state)


cdef bint watches_arrays(State state) noexcept:
    """Is there an entry of the stack that has to see what is done with raw arrays?"""
    cdef InterpreterStack entry = state.entry
    while entry is not None:
        if not is_disabled(state, entry) and entry.interpreter.watches_arrays():
            return True
        entry = entry.outer
    return False


# --- calls ------------------------------------------------------------------------------------------------------------


cdef object call_mode(OpOverload op, Table table, Frame* frame, State state, ActiveMode active, str how):
    """Let the innermost mode handle a call; what it declines goes to the next entry of the stack, without it."""
    cdef Signature signature = table.signature
    cdef State lower
    cdef PublishedState around
    cdef tuple args, types
    cdef object result = NotImplemented
    cdef object rule = rule_for(table, type(active.mode))
    cdef object composite = composite_entry(table, frame.word) if active.decompose_composites else None
    if (composite is None and active.decompose_composites and frame.word & TRACKED_FLAG and state.grad
            and not state.inference):
        composite = table.differentiated_as     # what it saves, the mode sees being made
    if rule is None and composite is not None:
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, how)
    lower = lowered_state(state)
    args = stripped_positionals(signature, frame)
    types = types_in(signature, frame)
    publish_deeper(&around, lower)
    try:
        if rule is not None:
            result = rule(active.mode, op, types, args, stripped_keywords(signature, frame))
        if result is NotImplemented and composite is None:
            result = call_handler(<PyObject*>active.mode, op, types, args, stripped_keywords(signature, frame))
            if result is NotImplemented:
                if frame.original == NULL:
                    frame.original = <PyObject*>state
                return dispatch(op, table, frame, lower, how)
    finally:
        withdraw_deeper(&around)
    if result is NotImplemented:        # a rule declined what the mode sees in pieces
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, how)
    if frame.word & TRACKED_FLAG and state.grad and not is_tracked_result(result) and not (
            state.removed[bit_length16(frame.word & BACKEND_BITS)] & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)):
        if loses_gradient(op, table, frame):
            upcalls.warn_untracked(op, active.mode, result)
    return finish_handled(op, signature, frame, active.mode, result)


cdef inline bint is_tracked_result(result) noexcept:
    return isinstance(result, Tensor) and (<Tensor>result).word & TRACKED_FLAG != 0


def is_tracked_anywhere(value):
    """Is this a Tensor that is tracked at its interpreter, or at one below?"""
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
        derivative = compiled_derivative_of(op, table)
    except NoDerivativeError:
        return True
    if not isinstance(derivative, Derivative):
        return derivative is not None
    for i in range(frame.count):
        if frame.values[i] != NULL and word_of_value(frame.values[i]) & TRACKED_FLAG:
            tracked |= bit(i)
    return (<Derivative>derivative).differentiable & tracked != 0


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
