# What code that runs in a copy of the context sees.

cdef struct PublishedState:          # what there was before
    Cell cell
    PyObject* value         # of the variable; owned
    PyObject* variables     # the context's mapping, or NULL; owned
    PyObject* published     # the one in its place; owned

cdef int publish_state(PublishedState* around, State state) except -1    # make this the state, in the context variable
cdef int write_or_raise(State state) except -1    # put a state in force, in the cell or in the context
cdef void withdraw_state(PublishedState* around) noexcept    # undo `publish_state`
# let go of the mappings beside a state that is left: they hold it
cdef void forget_published_state(State state) noexcept
# the same as `publish_state` for a call inside of a call, which counts
cdef int publish_deeper(PublishedState* around, State state) except -1
cdef void withdraw_deeper(PublishedState* around) noexcept    # after `publish_deeper`
cdef object call_with_published_state(function, tuple args)    # call a function of users, where a cell may be in force
cdef int make_context() except -1    # threads begin without a context of their own
