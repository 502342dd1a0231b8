# What code that runs in a copy of the context sees.

# Writing the variable makes a new mapping of all variables of the context, in 100 ns. It is kept beside the state that
# was there, and put in force again where that is still the context's mapping.

cdef extern from *:
    """
    typedef struct { PyObject_HEAD PyObject* previous; PyObject* variables; } LaidOutContext;     /* checked below */
    #define variables_at(context) (&((LaidOutContext*)(context))->variables)
    #define version_at_hand() (&PyThreadState_GET()->context_ver)
    """
    PyObject** variables_at(PyObject* context) noexcept
    uint64_t* version_at_hand() noexcept        # of what context variables remember of their values

cdef object some_context = contextvars.Context()     # a copy of the current one would make one where there is none

cdef bint are_contexts_known = any(
    type(value).__name__ == "hamt" and <PyObject*>value == variables_at(<PyObject*>some_context)[0]
    for value in gc.get_referents(some_context))


cdef int publish_state(PublishedState* around, State state) except -1:
    """Make this the state, in the context variable; `withdraw_state` is to follow."""
    around.value = give(<object>state_of_context())
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
    """Put in the context what was to be there, but for want of memory."""
    cdef State inner = <State>around.value
    if <PyObject*>inner.instead_in == context_now():
        around.value = give(inner.instead)
        Py_DECREF(<PyObject*>inner)
        try:
            write_or_raise(inner.instead)
        except:
            Py_DECREF(around.value)
            raise
    return 0


cdef int write_or_raise(State state) except -1:
    if not set_in_context(state):
        raise MemoryError
    return 0


cdef int write_variable(PublishedState* around, State before, State state) except -1:
    cdef PyObject* context = context_now()
    cdef PyObject** place
    if context == NULL or not are_contexts_known:
        write_or_raise(state)
        return 0
    place = variables_at(context)
    if before.published == <PyObject*>state and <PyObject*>before.variables == place[0]:
        around.variables = place[0]
        place[0] = give(before.published_variables)
        version_at_hand()[0] += 1
        remember_state(<PyObject*>state)
        take_instead_back(state)
    else:
        forget_published_state(before)
        around.variables = give(<object>place[0])
        write_or_raise(state)
        before.variables = <object>around.variables
        before.published_variables = <object>place[0]
        before.published = <PyObject*>state
    around.published = give(<object>place[0])
    return 0


cdef void withdraw_state(PublishedState* around) noexcept:
    """What was the state before `publish_state` is the state again. Guards that were not left meanwhile are dropped."""
    global cell
    cdef PyObject** place
    cell = around.cell
    if around.variables != NULL:
        place = variables_at(context_now())
        if place[0] == around.published:
            place[0] = around.variables
            version_at_hand()[0] += 1
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
    """Let go of the mappings beside a state that is left: they hold it."""
    cdef State shown
    while state.published != NULL:
        shown = <State>state.published
        state.published = NULL
        state.variables = state.published_variables = None
        state = shown


cdef int publish_deeper(PublishedState* around, State state) except -1:
    """`publish_state` for a call inside of a call, which counts as one level of recursion."""
    publish_state(around, state)
    try:
        enter_recursive_call()
    except:
        withdraw_state(around)
        raise
    return 0


cdef inline void withdraw_deeper(PublishedState* around) noexcept:
    """After `publish_deeper`."""
    withdraw_state(around)
    leave_recursive_call()


cdef object call_with_published_state(function, tuple args):
    """Call a function of users, where a cell may be in force."""
    cdef PublishedState around
    if cell.state == NULL:
        return function(*args)
    publish_state(&around, state_now())
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


cdef inline int make_context() except -1:
    """Threads begin without a context of their own."""
    if context_now() == NULL:
        write_or_raise(state_now())
    return 0
