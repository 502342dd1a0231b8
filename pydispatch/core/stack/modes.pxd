# Modes: handlers for every call within a `with` block.

cdef class ActiveMode(Interpreter):     # one entering of a mode
    cdef readonly object mode
    cdef bint decompose_composites    # whether it sees the calls of a composite instead of the composite
    cdef bint follows_arrays            # whether it identifies arrays as objects
    cdef bint is_on_already             # whether the mode was active already, so that entering it again changes nothing

cdef class Mode:
    pass
