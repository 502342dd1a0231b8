# Modes: handlers for every call within a `with` block.
#
# Entering a mode puts an interpreter on the stack, which is above the tape. The innermost interpreter gets a call. It
# is absent inside its mode's handler.


@cython.final
cdef class ActiveMode(Interpreter):
    """One entering of a user's mode."""

    def __init__(self, mode, bint is_on_already):
        self.mode = mode
        self.decompose_composites = mode.decompose_composites
        self.follows_arrays = mode._follows_tensors
        self.is_on_already = is_on_already
        self.name = type(mode).__name__

    def __repr__(self):
        return repr(self.mode)

    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        return call_mode(op, table, frame, state, self, kind)

    cdef bint changes_stack(self) noexcept:
        return not self.is_on_already

    cdef int change_inside(self, State inside) except -1:
        return 0

    cdef int change_below(self, State below, State inside) except -1:
        return 0

    cdef bint watches_arrays(self) noexcept:
        return True

    cdef bint knows_arrays(self) noexcept:
        return self.follows_arrays

    cdef bint is_transform(self) noexcept:
        return False


cdef class Mode:
    """The entering and leaving of a user's mode, which has a handler."""

    decompose_composites = True
    enters_anew = True
    _follows_tensors = False

    def __enter__(self):
        enter_interpreter(ActiveMode(self, not self.enters_anew and any(mode is self for mode in active_modes())))
        return self

    def __exit__(self, kind, error, trace):
        leave_mode(self)


cdef int leave_mode(mode) except -1:
    """Remove the interpreter of the last entering of a mode from the stack. Raise StateOrderError as `leave` does."""
    cdef State state = state_now()
    while state is not None:
        if isinstance(state.guard, ActiveMode) and (<ActiveMode>state.guard).mode is mode:
            return leave(state.guard)
        state = state.parent
    return leave(mode)


def active_modes():
    """Return the modes on the stack, innermost first."""
    return tuple([(<ActiveMode>interpreter).mode for interpreter in state_now().stack
                  if isinstance(interpreter, ActiveMode)])


def innermost_transform_now():
    """Return the innermost active transform, or None for the tape. Modes do not count."""
    return innermost_transform(state_now())


def operators_are_watched():
    """Return whether a mode, or a transform written in Python, has to see operations on raw arrays."""
    return watches_arrays(state_now())


def known_array(value):
    """Return the raw array that has the elements of a value, to decide by, or None if they are unknown.

    They are unknown under `vmap` and modes, and in a trace, but not under `grad` and `jvp`. The array may be of any
    backend, and without data on Meta.
    """
    if isinstance(value, Tensor) and watches_arrays(state_now()):
        return None
    while isinstance(value, Tensor):
        if isinstance(value, Wrapper) and not (<Wrapper>value).interpreter.differentiates:
            return None
        value = (<Tensor>value).array
    return value


def tensors_are_followed():
    """Return whether operations on untracked Tensors matter. If so, a raw array instead of one would be a constant."""
    cdef State state = state_now()
    return state.substitute is not None or watches_arrays(state)


# --- calls ------------------------------------------------------------------------------------------------------------


cdef object call_mode(OpOverload op, Table table, Frame* frame, State state, ActiveMode active, CallKind kind):
    """Let the innermost mode handle a call. A call that it declines goes to the next interpreter of the stack."""
    cdef Signature signature = table.signature
    cdef State lower
    cdef PublishedState around
    cdef tuple args, types
    cdef object result = NotImplemented
    cdef long long writes
    cdef object rule = rule_for(table, type(active.mode))
    cdef object composite = composite_entry(table, frame) if active.decompose_composites else None
    if (composite is None and active.decompose_composites and frame.word & TRACKED_FLAG and state.grad
            and not state.inference):
        composite = table.differentiated_as     # the mode sees how this makes its residuals
    if rule is None and composite is not None:
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, kind)
    lower = lowered_state(state)
    args = stripped_positionals(signature, frame)
    types = types_in(signature, frame)
    writes = writes_to_mutable(signature, frame)
    publish_deeper(&around, lower)
    try:
        if rule is not None:
            result = rule(active.mode, op, types, args, stripped_keywords(signature, frame))
        if result is NotImplemented and composite is None:
            result = call_handler(<PyObject*>active.mode, op, types, args, stripped_keywords(signature, frame))
            if result is NotImplemented:
                if frame.original == NULL:
                    frame.original = <PyObject*>state
                return dispatch(op, table, frame, lower, kind)
    finally:
        withdraw_deeper(&around)
        count_unseen_write(signature, frame, writes)
    if result is NotImplemented:        # a rule declined a composite. The mode sees it decomposed
        return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, kind)
    if frame.word & TRACKED_FLAG and state.grad and not is_tracked_result(result) and not (
            state.removed[bit_length16(frame.word & BACKEND_BITS)] & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)):
        if loses_gradient(op, table, frame):
            upcalls.warn_untracked(op, active.mode, result)
    return finish_handled(op, signature, frame, active.mode, result)


cdef inline bint is_tracked_result(result) noexcept:
    return isinstance(result, Tensor) and (<Tensor>result).word & TRACKED_FLAG != 0
