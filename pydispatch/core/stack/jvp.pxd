# `jvp`: interpreter, wrapper, rules for tangents, and entry point.

cdef class JvpTensor(Wrapper):          # a value of a running `jvp` with its tangent, or None for zeros
    cdef object tangent
    cdef unsigned int generation        # of the memory when the tangent was found
    cdef object kink                    # of a result that has a kink: (operator, arguments, version counter), else None

cdef class Jvp(Differentiator):            # the interpreter of `jvp`
    pass

cdef bint is_simple(derivative, Signature signature, Frame* frame) except -1
cpdef tangent_of(JvpTensor tensor)
cdef bint have_same_metadata(left, right) except -1
