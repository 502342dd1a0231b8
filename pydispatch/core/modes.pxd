# Modes: handlers for every call within a `with` block.

cdef class ActiveMode(Interpreter):     # one entering of a mode
    cdef readonly object mode
    cdef bint decompose_composites    # does it see what a composite calls, not the composite?
    cdef bint is_on_already             # and entering it again changes nothing

cdef class Mode:
    pass

# is this a mode that was entered before `no_dispatch`, which passes over such?
cdef bint is_disabled(State state, InterpreterStack entry) noexcept
# make this the innermost entry of the stack, or the next one that is not passed over
cdef void set_entry(State state, InterpreterStack entry) noexcept
cdef Interpreter innermost_transform(State state)    # the innermost entry of the stack that is no mode
# the same without the transforms that were entered after the innermost mode
cdef State without_transforms(State state)
# is there an entry of the stack that has to see what is done with raw arrays?
cdef bint watches_arrays(State state) noexcept
