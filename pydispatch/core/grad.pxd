# `grad` and `vjp`: interpreter, wrapper, and entry points.

cdef class GradTensor(Wrapper):         # of `grad` and `vjp`
    pass

cdef class Grad(Interpreter):           # of `grad` and `vjp`
    pass

cdef class VjpFunction:                    # what `vjp` gives
    cdef Grad interpreter
    cdef object root                    # where the cotangent goes; None where the output depends on no primal
    cdef object value                   # the output at the interpreter below
    cdef tuple targets
    cdef tuple primals

cdef GradTensor wrap_ndarray_in(Grad interpreter, array)    # `wrap_at` for an exact ndarray
