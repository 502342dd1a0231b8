# `jvp`: interpreter, wrapper, rules for tangents, and entry point.

cdef class JvpTensor(Wrapper):          # of `jvp`: a value with a tangent, or None for zero
    cdef object tangent
    cdef unsigned int generation        # of the memory, when the tangent was found

cdef class Jvp(Interpreter):            # of `jvp`
    pass

# is this an operator of the library with one new result, and no pytree that holds values of an interpreter?
cdef bint is_simple(derivative, Signature signature, Frame* frame) except -1
cpdef tangent_of(JvpTensor tensor)    # the tangent of a value of an interpreter of `jvp`
cdef bint have_same_metadata(left, right) except -1    # have two arrays the same shape and dtype?
