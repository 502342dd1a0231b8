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

cdef PyTypeObject* DERIVATIVE_TYPE    # addresses of types, to compare with
cdef PyTypeObject* GRAD_INTERPRETER_TYPE

# a fast path for recording: a library operator with one fresh result, on the tape or in the innermost `grad`
cdef bint recording_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                              PyObject** result ) except -1
