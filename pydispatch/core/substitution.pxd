# Captured values: which Tensor a function means by one among its arguments.

cdef class SubstitutionBelow:
    cdef object substitute
    cdef Interpreter interpreter

cdef class Trial:                       # while a function runs that is tried out: what it captures
    cdef readonly list captured
    cdef readonly bint has_ended
    cdef set known                      # addresses: of what lives as long as this, or was freed and made anew inside

cdef PyTypeObject* TRIAL_TYPE    # its address, to compare with
cpdef int end_trial() except -1    # end the trial of the function that runs here, if there is one
cdef State with_substitute(State state, substitute)    # the same state, with captured values replaced as this says
# does it stand for its value here: as one of `grad` or `jvp` that no longer runs, or that is not active while a
# batching rule is derived?
cdef bint is_value_now(Wrapper wrapper, State state) noexcept
cdef bint is_active(Interpreter interpreter, State state) noexcept    # is this interpreter on the stack here?
# is this Tensor the value of a wrapper at some interpreter below?
cdef bint holds(Tensor wrapper, Tensor tensor) noexcept
# tell of an operator that functions of users differentiate, or have rules for
cdef bint note_rule(OpOverload op, Table table, State state) except -1
# does a Tensor among the arguments mean another one here?
cdef bint means_others(Frame* frame, Signature signature, State state) except -1
# a call while a function is tried out: its arguments and results are noted
cdef object call_in_trial(OpOverload op, Table table, Frame* frame, State state, CallKind kind, Trial trial)
# is this an array of NumPy's, or an untracked Tensor of one, under no interpreter and of no class of a user's?
cdef bint is_plain_constant(PyObject* value) except -1
