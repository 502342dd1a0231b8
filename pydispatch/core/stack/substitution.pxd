# Captured values: the Tensors that replace captured ones among the arguments of calls.

cdef class SubstitutionBelow:
    cdef object substitute
    cdef Interpreter interpreter

cdef class SpeculativeRun:              # active while a function runs speculatively. It collects captured Tensors
    cdef readonly list captured
    cdef readonly bint has_ended
    cdef set known                      # addresses of objects that live as long as this, or were reallocated inside

cdef bint is_value_now(Wrapper wrapper, State state) noexcept
cdef bint holds(Tensor wrapper, Tensor tensor) noexcept
# return whether a value is a NumPy array, or an untracked plain Tensor of one
cdef bint is_plain_constant(PyObject* value) except -1
