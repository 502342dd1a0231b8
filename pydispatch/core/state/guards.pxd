# Context managers that change the ambient state.

cdef class Guard:
    cdef str text
    cdef public dict changes            # the arguments for State.derive
    cpdef State inside(self, State state)
    # as a tracer: return whether it leaves calls on the paths that they take without it, and the tracers around it too
    cdef bint leaves_paths(self) noexcept

cdef class Switch(Guard):
    cdef State around                   # until it is entered: the state that the switch replaced
    cdef State switched                 # until it is entered: the state with the switch
    cdef State take_back(self, State state)

cdef class Setting:
    cdef object variable
    cdef object value
    cdef object shown
    cdef object token

cdef int leave(guard) except -1
