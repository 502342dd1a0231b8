# Context managers that change the ambient state.

cdef class Guard:
    cdef str text
    cdef public dict changes            # the arguments for State.derive
    cpdef State inside(self, State state)

cdef class Switch(Guard):
    cdef State around                   # until it is entered: the state that the switch replaced
    cdef State switched                 # until it is entered: the state with the switch
    cdef State take_back(self, State state)

cdef class Setting:
    cdef object variable
    cdef object value
    cdef object shown
    cdef object token

# remove the innermost entry of a guard, or of a mode's ActiveMode, from the ambient state
cdef int leave(guard) except -1
