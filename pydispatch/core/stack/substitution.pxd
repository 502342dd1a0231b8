# Captured values: the Tensors that replace captured ones among the arguments of calls.

cdef class SubstitutionBelow:
    cdef object substitute
    cdef Interpreter interpreter

cdef class SpeculativeRun:              # active while a function runs speculatively. It collects captured Tensors
    cdef readonly list captured
    cdef readonly bint has_ended
    cdef set known                      # addresses of objects that live as long as this, or were reallocated inside

# the type's address, for comparison
cdef PyTypeObject* SPECULATIVE_RUN_TYPE
cpdef int end_speculative_run() except -1    # end the speculative run of the function that runs here, if there is one
# return the state with `substitute` as the active substitution
cdef State with_substitute(State state, substitute)
# return whether a wrapper counts as its value here: if it is one of `grad` or `jvp` that no longer runs, or that is not
# active while a batching rule is derived
cdef bint is_value_now(Wrapper wrapper, State state) noexcept
# return whether an interpreter is on the stack of the state
cdef bint is_active(Interpreter interpreter, State state) noexcept
# return whether a Tensor is the value of a wrapper at some interpreter below
cdef bint holds(Tensor wrapper, Tensor tensor) noexcept
# report the use of an operator that functions of users differentiate, or have rules for
cdef bint note_rule(OpOverload op, Table table, State state) except -1
# return whether the substitution replaces a Tensor among the arguments
cdef bint means_others(Frame* frame, Signature signature, State state) except -1
# run a call in a speculative run, and note its arguments and results
cdef object call_in_speculative_run(
    OpOverload op, Table table, Frame* frame, State state, CallKind kind, SpeculativeRun run)
# return whether a value is an array of NumPy's, or an untracked plain Tensor of one
cdef bint is_plain_constant(PyObject* value) except -1
