# Modes: handlers for every call within a `with` block.

cdef class ActiveMode(Interpreter):     # one entering of a mode
    cdef readonly object mode
    cdef bint decompose_composites    # does it see what a composite calls, not the composite?
    cdef bint is_on_already             # and entering it again changes nothing

cdef class Mode:
    pass

# is the innermost interpreter a mode that was entered before `no_dispatch`, which disables such?
cdef bint is_disabled(State state, InterpreterStack stack) noexcept
# make this the stack, from its innermost interpreter on that is not disabled
cdef void set_stack(State state, InterpreterStack stack) noexcept
cdef Interpreter innermost_transform(State state)    # None without one
# the same without the transforms that were entered after the innermost mode
cdef State without_transforms(State state)
# is there an interpreter that has to see what is done with raw arrays?
cdef bint watches_arrays(State state) noexcept
