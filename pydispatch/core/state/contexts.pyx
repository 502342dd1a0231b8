# The ambient state, as seen by code that runs in a copy of the context.

# Writing the variable makes a new mapping of all variables of the context, which takes 100 ns. The mapping is kept with
# the previous state, and reused if the previous mapping is still the context's.

cdef object some_context = contextvars.Context()     # copying the current context would make one where there is none

cdef bint are_contexts_known = KNOWS_CONTEXTS and any(
    type(value).__name__ == "hamt" and <PyObject*>value == variables_at(<PyObject*>some_context)[0]
    for value in gc.get_referents(some_context))


cdef int publish_state(PublishedState* around, State state) except -1:
    """Make a state the current one, in the context variable. `withdraw_state` has to follow."""
    around.value = new_reference(<object>state_of_context())
    if (<State>around.value).instead is not None:
        make_up_for(around)
    around.variables = around.published = NULL
    if around.value != <PyObject*>state:
        try:
            write_variable(around, <State>around.value, state)
        except:
            Py_XDECREF(around.variables)
            Py_DECREF(around.value)
            raise
    around.cell = cell
    cell.context = cell.state = NULL
    return 0


cdef int make_up_for(PublishedState* around) except -1:
    """Follow a state's redirect, set when a leave ran out of memory: write its replacement to the context."""
    cdef State inner = <State>around.value
    if <PyObject*>inner.instead_in == context_now():
        around.value = new_reference(inner.instead)
        Py_DECREF(<PyObject*>inner)
        try:
            write_or_raise(inner.instead)
        except:
            Py_DECREF(around.value)
            raise
    return 0


cdef int write_or_raise(State state) except -1:
    return set_in_context(state)


cdef int write_variable(PublishedState* around, State before, State state) except -1:
    cdef PyObject* context = context_now()
    cdef PyObject** place
    if context == NULL or not are_contexts_known:
        write_or_raise(state)
        return 0
    place = variables_at(context)
    if before.published == <PyObject*>state and <PyObject*>before.variables == place[0]:
        around.variables = place[0]
        place[0] = new_reference(before.published_variables)
        count_context_version()
        remember_state(<PyObject*>state)
        take_instead_back(state)
    else:
        forget_published_state(before)
        around.variables = new_reference(<object>place[0])
        write_or_raise(state)
        before.variables = <object>around.variables
        before.published_variables = <object>place[0]
        before.published = <PyObject*>state
    around.published = new_reference(<object>place[0])
    return 0


cdef void withdraw_state(PublishedState* around) noexcept:
    """Restore the state from before `publish_state`. Drop guards that were not left meanwhile."""
    global cell
    cdef PyObject** place
    cell = around.cell
    if around.variables != NULL:
        place = variables_at(context_now())
        if place[0] == around.published:
            place[0] = around.variables
            count_context_version()
            remember_state(around.value)
            Py_DECREF(around.published)     # the context's reference
            Py_DECREF(around.published)
            Py_DECREF(around.value)
            return
        Py_DECREF(around.variables)
        Py_DECREF(around.published)
    if state_of_context() != around.value:
        put_back_in_context(<State>around.value)
    Py_DECREF(around.value)


cdef void forget_published_state(State state) noexcept:
    """Drop the mappings kept with a state that is left: they hold the state."""
    cdef State shown
    while state.published != NULL:
        shown = <State>state.published
        state.published = NULL
        state.variables = state.published_variables = None
        state = shown


cdef int publish_deeper(PublishedState* around, State state) except -1:
    """Do what `publish_state` does for a nested call, which counts as one level of recursion."""
    publish_state(around, state)
    try:
        enter_recursive_call()
    except:
        withdraw_state(around)
        raise
    return 0


cdef inline void withdraw_deeper(PublishedState* around) noexcept:
    """Undo `publish_deeper`."""
    withdraw_state(around)
    leave_recursive_call()


cdef object call_in(State state, function, tuple args):
    """Call a function with this state published."""
    cdef PublishedState around
    publish_state(&around, state)
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


cdef object call_with_published_state(function, tuple args):
    """Call a user's function, with the state published if a cell holds it."""
    return function(*args) if cell.state == NULL else call_in(state_now(), function, args)


cdef inline int make_context() except -1:
    """Make sure that this thread has a context: threads begin without one."""
    if context_now() == NULL:
        write_or_raise(state_now())
    return 0
