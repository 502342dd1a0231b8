# Modes: handlers for every call within a `with` block.

cdef class ActiveMode(Interpreter):     # one entering of a mode
    cdef readonly object mode
    cdef bint decompose_composites    # whether it sees the calls of a composite instead of the composite
    cdef bint follows_arrays            # whether it identifies arrays as objects
    cdef bint is_on_already             # whether the mode was active already, so that entering it again changes nothing

cdef class Mode:
    pass

# return whether the innermost interpreter is a mode that was entered before `no_dispatch`, which disables such modes
cdef bint is_disabled(State state, InterpreterStack stack) noexcept
# set the stack, from its innermost interpreter on that is not disabled
cdef void set_stack(State state, InterpreterStack stack) noexcept
cdef Interpreter innermost_transform(State state)    # return the innermost transform, or None
# return the state without the transforms that were entered after the innermost mode
cdef State without_transforms(State state)
cdef bint knows_arrays(State state) noexcept    # return whether an interpreter identifies arrays as objects
# return whether an interpreter has to see operations on raw arrays
cdef bint watches_arrays(State state) noexcept
