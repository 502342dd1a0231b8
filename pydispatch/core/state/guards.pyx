# Context managers that change the ambient state.

# Python checks for signals when it calls a function that is written in Python, and when that function continues after a
# call. Code that enters and leaves a `with` block is therefore written in C, so that no KeyboardInterrupt can come
# between it and the block.


cdef class Guard:
    """A context manager that changes the ambient state."""

    def __init__(self, str text, **changes):
        self.text = text
        self.changes = changes

    cpdef State inside(self, State state):
        """Return the state inside for the state around, or raise to refuse entering."""
        return state.derive(self, **self.changes)

    cdef bint leaves_paths(self) noexcept:
        return False

    def __enter__(self):
        set_state(self.inside(state_now()))
        return self

    def __exit__(self, kind, error, trace):
        leave(self)

    def __repr__(self):
        return self.text


cdef class Switch(Guard):
    """A guard that switches `what` at once, for the rest of the surrounding block, until it is entered."""

    what = "grad"

    def __init__(self, mode):
        self.text = f"{type(self).__name__}({mode})"
        self.changes = changes = {self.what: bool(mode)}
        self.around = state_now()
        self.switched = beside(self.around, changes)
        set_state(self.switched)

    cdef State take_back(self, State state):
        """Return the state without the switch that was made when this object was made."""
        if self.around is not None:
            if state is self.switched:
                state = self.around
            else:
                state = beside(state, {name: getattr(self.around, name) for name in self.changes})
            self.around = self.switched = None
        return state

    def hold(self):
        """Undo the switch, so that only a `with` block changes the state from here on."""
        set_state(self.take_back(state_now()))

    cpdef State inside(self, State state):
        """Return the state inside."""
        return self.take_back(state).derive(self, **self.changes)


cdef void (*dealloc_of_switch)(PyObject*) noexcept


cdef void drop_switch(PyObject* switch) noexcept:
    """Undo the switch if an interrupt comes before `__enter__`. Cython's __dealloc__ would see no error."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    if PyErr_Occurred() != NULL and (<Switch>switch).around is not None:
        PyErr_Fetch(&kind, &error, &trace)
        if borrowed_state() == <PyObject*>(<Switch>switch).switched:
            set_state((<Switch>switch).around)
        PyErr_Restore(kind, error, trace)
    dealloc_of_switch(switch)


cdef int put_in_dealloc(type cls) except -1:
    global dealloc_of_switch
    cdef vectorcallable* slots = <vectorcallable*>cls
    dealloc_of_switch = slots.tp_dealloc
    slots.tp_dealloc = drop_switch
    return 0


put_in_dealloc(Switch)


cdef State beside(State state, dict changes):
    """Return the state with these changes, in the same block."""
    cdef State new = state.derive(state.guard, **changes)
    new.parent = state.parent
    return new


cdef class Setting:
    """A context manager that sets a context variable and returns `shown` for `as`."""

    def __init__(self, variable, value, shown=None):
        self.variable = variable
        self.value = value
        self.shown = shown

    def __enter__(self):
        self.token = self.variable.set(self.value)
        return self.shown

    def __exit__(self, kind, error, trace):
        self.variable.reset(self.token)


cdef int leave(guard) except -1:
    """Remove the innermost entry of a guard, or of a mode's ActiveMode, from the ambient state.

    If other guards were entered after it, only this entry is removed, and StateOrderError is raised.
    """
    cdef State state = state_now()
    cdef list later = None          # leaving in order allocates no memory
    while state.parent is not None and state.guard is not guard:
        later = keep_in(later, state.guard)
        state = state.parent
    if state.parent is None:
        raise StateOrderError(
            f"{guard!r} was left in a context in which it was not entered\n"
            "enter and leave a guard in the same thread or task, and do not hold one across the yield of a generator"
        )
    state = state.parent
    if later is not None:
        for other in reversed(later):
            state = (state_under(other, state) if isinstance(other, Interpreter)
                     else state.derive(other, **other.changes))
    leave_for(state)
    if later is not None:
        raise StateOrderError(
            f"{guard!r} was left while {later[0]!r}, entered after it, is still active: only its entry was removed\n"
            "leave guards in the reverse order of entering: nest `with` statements"
        )
    return 0
