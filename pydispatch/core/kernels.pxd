# Kernels in C, for operators whose work in NumPy is less than a call of a Python function.

cdef class Reduction:
    cdef vectorcallfunc vectorcall
    cdef object reduce
    cdef bint adds
    cdef Fold fold
    cdef readonly str __name__

cdef Reduction add_reduce

# what a loop gives for the arguments of a call; NULL where NumPy is to be asked
ctypedef PyObject* (*loop_of_method)(PyObject* const*, Py_ssize_t, PyObject*) except? NULL

cdef class ArrayMethod:
    cdef vectorcallfunc vectorcall
    cdef loop_of_method loop            # for small arrays; NULL: there is none
    cdef object method
    cdef readonly str __name__

cdef class OutKernel:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef type array_type                # of what can be written into
    cdef bint as_out                    # does the function take that as `out` too?
    cdef object refusal
    cdef readonly str __name__

cdef class AnyDevice:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef object stand_in                # None, or what makes an array of a prototype without data
    cdef readonly str __name__

cdef bint is_basic_key(key) except -1    # does NumPy call this basic indexing: integers, slices, None and Ellipsis?
