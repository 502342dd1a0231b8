# Context managers that change the ambient state.

cdef class Guard:
    cdef str text
    cdef public dict changes            # what State.derive is called with
    cpdef State inside(self, State state)

cdef class Switch(Guard):
    cdef State around                   # until it is entered: what was there,
    cdef State switched                 # and what it made of it
    cdef State take_back(self, State state)

cdef class Setting:
    cdef object variable
    cdef object value
    cdef object shown
    cdef object token

# take the innermost entry of a guard, or of a mode's ActiveMode, out of the ambient state
cdef int leave(guard) except -1
