# The ambient state, as seen by code that runs in a copy of the context.

cdef struct PublishedState:          # what `publish_state` has replaced
    Cell cell
    PyObject* value         # the previous value of the variable (owned)
    PyObject* variables     # the context's previous mapping, or NULL (owned)
    PyObject* published     # the mapping that replaced it (owned)

cdef int publish_state(PublishedState* around, State state) except -1
cdef int write_or_raise(State state) except -1    # write a state to the context variable, or raise
cdef void withdraw_state(PublishedState* around) noexcept
cdef void forget_published_state(State state) noexcept
cdef int publish_deeper(PublishedState* around, State state) except -1
cdef void withdraw_deeper(PublishedState* around) noexcept
cdef object call_in(State state, function, tuple args)
cdef object call_with_published_state(function, tuple args)
cdef int make_context() except -1
