# `grad` and `vjp`: interpreter, wrapper, and entry points.

cdef class GradTensor(Wrapper):         # a value of a running `grad` or `vjp`
    pass

cdef class Grad(Differentiator):           # the interpreter of `grad` and `vjp`
    pass

cdef Grad enter_grad(PublishedState* outside, str name, site)
cdef void leave_grad(Grad interpreter, PublishedState* outside) noexcept
cdef tuple entered_arguments(Grad interpreter, tuple args, tuple positions)

cdef class VjpFunction:                    # the function that `vjp` returns
    cdef Grad interpreter
    cdef object root                    # the edge that the cotangent is sent to, or None if the output is constant
    cdef object value                   # the output at the interpreter below
    cdef tuple targets
    cdef tuple primals
