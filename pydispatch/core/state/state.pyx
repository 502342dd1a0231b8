# The ambient state: changes made by guards, modes and transforms, per thread and context.


@cython.final
@cython.trashcan(True)
cdef class State:
    """One node of the ambient state: the change of one guard, on top of its parent. Immutable."""

    def derive(self, guard, *, DispatchKeySet added=None, removed=(), bint replace=False, tracer=None,
               str default_backend=None, grad=None, forward=None, inference=None,
               anomaly=None, checks=None, saved_hooks=None, bint without_modes=False):
        """Return the state inside `guard`. `removed` are slots. `replace` drops what the parents added and removed."""
        cdef State new = copy_of_state(self)
        cdef int slot, backends
        cdef uint64_t word
        new.parent = self
        new.guard = guard
        if replace:
            new.added = 0
            memset(new.removed, 0, sizeof(new.removed))
        if added is not None:
            new.added |= added.word
        for slot in removed:
            word = slot_words[slot]
            for backends in range(N_BACKENDS + 1):
                if not word & PER_BACKEND_BITS or word & BACKEND_BITS == backend_of_length(backends):
                    new.removed[backends] |= word & FUNCTIONALITY_BITS
        if tracer is not None:
            new.tracer = tracer
        if default_backend is not None:
            new.default_backend = default_backend
        if grad is not None:
            new.grad = grad
        if forward is not None:
            new.forward = forward
        if inference is not None:
            new.inference = inference
        if anomaly is not None:
            new.anomaly = anomaly
        if checks is not None:
            new.checks = checks
        if saved_hooks is not None:
            new.saved_hooks = saved_hooks
        if without_modes:
            disable_modes(new)
        compute_plain(new)
        return new

    @property
    def stack(self):
        """The active transforms and modes, innermost first."""
        cdef InterpreterStack stack = self.interpreters
        cdef list interpreters = []
        while stack is not None:
            if not is_disabled(self, stack):
                interpreters.append(stack.interpreter)
            stack = stack.outer
        return tuple(interpreters)

    @property
    def included(self):
        """The keys added to every call."""
        return keyset(self.added)

    @property
    def excluded(self):
        """The keys excluded from every call, as a tuple of runtime keys."""
        return tuple(key for slot, key in enumerate(slot_keys) if key is not None and excludes_slot(self, slot))


cdef State copy_of_state(State state):
    cdef State new = State.__new__(State)
    new.interpreters = state.interpreters
    new.innermost = state.innermost
    new.disabled = state.disabled
    new.call_state = state.call_state
    new.added = state.added
    new.removed = state.removed
    new.plain = state.plain
    new.unchanged = state.unchanged
    new.traced = state.traced
    new.grad = state.grad
    new.forward = state.forward
    new.inference = state.inference
    new.anomaly = state.anomaly
    new.checks = state.checks
    new.saved_hooks = state.saved_hooks
    new.tracer = state.tracer
    new.substitute = state.substitute
    new.generators = state.generators
    new.derives = state.derives
    new.default_backend = state.default_backend
    return new


cdef bint leaves_paths(tracer) noexcept:
    """Return whether a tracer leaves calls on the paths that they take without it."""
    return tracer is None or isinstance(tracer, Guard) and (<Guard>tracer).leaves_paths()


cdef void compute_plain(State state) noexcept:
    cdef int backends
    cdef uint64_t removed = 0
    for backends in range(N_BACKENDS + 1):
        removed |= state.removed[backends]
    state.traced = not leaves_paths(state.tracer)
    state.unchanged = (state.innermost is None and not state.traced and state.substitute is None
                       and state.generators is None and not state.inference
                       and state.added == BACKEND_SELECT_BIT and removed == 0)
    state.plain = state.unchanged and state.tracer is None


cdef State lowered_state(State state):
    """Return the state without the innermost interpreter. That interpreter's own changes are undone in it."""
    cdef State new = state.lowered
    if new is None:
        new = copy_of_state(state)
        set_stack(new, state.interpreters.outer)
        state.innermost.change_below(new, state)
        compute_plain(new)
        return <State>publish_once(place_of_lowered(state), new)
    return new


cdef State with_tape(State state, bint on):
    """Return the state with the tape recording or not."""
    cdef State new
    if state.grad == on:
        return state
    new = state.recording if on else state.silent
    if new is None:
        new = copy_of_state(state)
        new.parent = state.parent
        new.guard = state.guard
        new.grad = on
        if state is root:
            share_freely(new)
        return <State>publish_once(place_of_recording(state) if on else place_of_silent(state), new)
    return new


cdef inline uint64_t backend_of_length(Py_ssize_t length) noexcept:
    """Return the bit of the highest backend among backends with this bit length, 0 for none."""
    return ((<uint64_t>1) << length) >> 1


cdef bint excludes_slot(State state, Py_ssize_t slot) except -1:
    cdef uint64_t word = slot_words[slot]
    return state.removed[bit_length16(word & BACKEND_BITS)] & word & FUNCTIONALITY_BITS != 0


root = State.__new__(State)
root.added = BACKEND_SELECT_BIT
memset(root.removed, 0, sizeof(root.removed))
root.default_backend = "CPU"
root.plain = root.unchanged = True
root.grad = True
root.forward = True
ambient = PyContextVar_New(b"pydispatch.state", <PyObject*>root)
share_freely(root)
share_freely(<object>ambient)

# Inside one operator call the state changes without the context variable, which is slow to write. A cell per thread,
# pushed and popped within one C function, applies to code that runs in the context in which it was pushed. Only our own
# code may run there. Users' code may copy the context, and code that runs in the copy, possibly in another thread,
# has to find the state at the time of copying. So before a user's handler, kernel or hook runs, the state is written to
# the variable (`publish_state`).
#
# A state is thus stored in several places. The variable is what other contexts and threads see. The cell saves writing
# it (90 to 350 ns) at each step down the stack, the mappings of contexts.pyx a new mapping (100 ns), `remembered_state`
# a look-up at each call, and `spare` an eighth of a small `grad`. `instead` saves nothing: it makes leaving a guard
# certain, also without memory.


cdef inline PyObject* borrowed_state() noexcept:
    """Return the ambient state as a borrowed reference, valid until the state changes."""
    cdef PyObject* state
    if cell.state != NULL and cell.context == context_now():
        return cell.state
    state = state_of_context()
    if (<State>state).instead is not None and <PyObject*>(<State>state).instead_in == context_now():
        return <PyObject*>(<State>state).instead
    return state


cdef inline State state_now():
    return <State>borrowed_state()


cdef int set_state(State state) except -1:
    if not set_in_cell(state):
        forget_published_state(state_now())
        write_or_raise(state)
    return 0


cdef inline bint set_in_cell(State state) noexcept:
    cdef PyObject* old = cell.state
    if old == NULL or cell.context != context_now():
        return False
    cell.state = new_reference(state)
    Py_DECREF(old)
    return True


cdef int set_in_context(State state) noexcept:
    """Write the context variable. Return -1 with an error set if it cannot be written."""
    cdef PyObject* token
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* traceback
    remember_state(NULL)
    token = set_quietly(ambient, <PyObject*>state)
    if token != NULL:
        Py_DECREF(token)
    else:
        PyErr_Fetch(&kind, &error, &traceback)
        if state_of_context() != <PyObject*>state:      # else there was no memory for the token only
            PyErr_Restore(kind, error, traceback)
            return -1
        Py_XDECREF(kind)
        Py_XDECREF(error)
        Py_XDECREF(traceback)
    take_instead_back(state)
    return 0


cdef inline void take_instead_back(State state) noexcept:
    """Clear the redirect of a state that is written to the context again."""
    if state.instead is not None and <PyObject*>state.instead_in == context_now():
        state.instead = state.instead_in = None


cdef void leave_for(State state) noexcept:
    """Return to the state around the present one."""
    cdef State left
    if not set_in_cell(state):
        left = state_now()
        drop_spare(left)
        forget_published_state(left)
        put_back_in_context(state)


cdef void drop_spare(State state) noexcept:
    """Release the state that is kept for the next `grad`: it and this one refer to each other."""
    cdef State spare
    while state.spare is not None:
        spare = state.spare
        state.spare = None
        forget_published_state(spare)
        state = spare


cdef void put_back_in_context(State state) noexcept:
    """Write the context variable. Without memory for that, store a redirect in the present state."""
    cdef State inner
    if set_in_context(state) < 0:
        PyErr_Clear()
        inner = <State>state_of_context()
        inner.instead = state
        inner.instead_in = <object>context_now()


cdef inline PyObject* state_of_context() noexcept:
    # A look-up fails if the depth of recursion is used up and the look-up compares the variable with another one whose
    # hash begins with the same bits. A mapping that has the variable distinguishes them before it compares.
    cdef PyObject* state = remembered_state()
    if state == NULL:
        if get_quietly(ambient, NULL, &state) < 0:
            PyErr_Clear()
            state = <PyObject*>root
        else:
            Py_DECREF(state)
        remember_state(state)
    return state


cdef int push_cell(Cell* around, State state) except -1:
    if not KNOWS_CONTEXTS:
        return push_in_context(around, state)
    make_context()
    put_cell(around, state)
    return 0


cdef inline int push_state(Cell* around, State state) except -1:
    """Set the state for a nested call, which counts as one level of recursion.

    All steps that can fail come before any change.
    """
    if not KNOWS_CONTEXTS:
        return push_deeper_in_context(around, state)
    make_context()
    enter_recursive_call()
    put_cell(around, state)
    return 0


cdef inline void put_cell(Cell* around, State state) noexcept:
    around[0] = cell
    cell.context = context_now()
    cell.state = new_reference(state)


cdef int push_in_context(Cell* around, State state) except -1:
    """Do what `push_cell` does if a cell cannot know the context that it applies in: write the variable."""
    cdef State before = state_now()
    write_or_raise(state)
    around.context = NULL
    around.state = new_reference(before)
    return 0


cdef int push_deeper_in_context(Cell* around, State state) except -1:
    enter_recursive_call()
    try:
        push_in_context(around, state)
    except:
        leave_recursive_call()
        raise
    return 0


cdef void pop_cell(Cell* around) noexcept:
    cdef PyObject* old = cell.state
    if not KNOWS_CONTEXTS:
        put_back_in_context(<State>around.state)
        Py_DECREF(around.state)
        return
    cell.context = around.context
    cell.state = around.state
    Py_XDECREF(old)


cdef inline void pop_state(Cell* around) noexcept:
    """Restore the state before `push_state`."""
    pop_cell(around)
    leave_recursive_call()


def current_state():
    """Return the ambient state of this context."""
    return state_now()


def trace_from_start(tracer):
    """Install a tracer in the state that every context starts from. Call this before the first call of an operator."""
    root.tracer = tracer
    root.spare = None
    compute_plain(root)


# --- the stack of interpreters ----------------------------------------------------------------------------------------


@cython.final
@cython.freelist(64)
cdef class InterpreterStack:
    """The innermost interpreter of a stack, and the stack around it. Immutable, so that states can share it."""


cdef bint is_active(Interpreter interpreter, State state) noexcept:
    """Return whether an interpreter is on the stack of the state."""
    cdef InterpreterStack stack = state.interpreters
    while stack is not None:
        if stack.interpreter is interpreter:
            return True
        stack = stack.outer
    return False


cdef State state_under(Interpreter interpreter, State around):
    """Return the state inside a transform or mode."""
    cdef State new = copy_of_state(around)
    cdef InterpreterStack stack
    new.parent = around
    new.guard = interpreter
    if not interpreter.changes_stack():
        return new
    stack = InterpreterStack.__new__(InterpreterStack)
    stack.interpreter = interpreter
    stack.outer = around.interpreters
    stack.depth = max(around.disabled, 0 if around.interpreters is None else around.interpreters.depth) + 1
    new.interpreters = stack
    new.innermost = interpreter
    new.plain = new.unchanged = False
    interpreter.change_inside(new)
    return new


cdef inline bint is_disabled(State state, InterpreterStack stack) noexcept:
    """Return whether the innermost interpreter is a mode that was entered before `no_dispatch`, which disables it."""
    return stack.depth <= state.disabled and not stack.interpreter.is_transform()


cdef inline void set_stack(State state, InterpreterStack stack) noexcept:
    """Set the stack, from its innermost interpreter on that is not disabled."""
    while stack is not None and is_disabled(state, stack):
        stack = stack.outer
    state.interpreters = stack
    state.innermost = None if stack is None else stack.interpreter


cdef Interpreter innermost_transform(State state):
    """Return the innermost transform, or None if there are only modes or nothing."""
    cdef InterpreterStack stack = state.interpreters
    while stack is not None and not stack.interpreter.is_transform():
        stack = stack.outer
    return None if stack is None else stack.interpreter


cdef State without_transforms(State state):
    """Return the state without the transforms that were entered after the innermost mode."""
    while state.innermost is not None and state.innermost.is_transform():
        state = lowered_state(state)
    return state


cdef bint knows_arrays(State state) noexcept:
    """Return whether an interpreter identifies arrays as objects, so that another array cannot replace one."""
    cdef InterpreterStack stack = state.interpreters
    while stack is not None:
        if not is_disabled(state, stack) and stack.interpreter.knows_arrays():
            return True
        stack = stack.outer
    return False


cdef bint watches_arrays(State state) noexcept:
    """Return whether an interpreter has to see operations on raw arrays."""
    cdef InterpreterStack stack = state.interpreters
    while stack is not None:
        if not is_disabled(state, stack) and stack.interpreter.watches_arrays():
            return True
        stack = stack.outer
    return False


cdef void disable_modes(State state) noexcept:
    """Disable the modes that are on the stack now."""
    if state.interpreters is not None:
        state.disabled = state.interpreters.depth
        set_stack(state, state.interpreters)


cdef State with_substitute(State state, substitute):
    cdef State new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.substitute = substitute
    compute_plain(new)
    return new
