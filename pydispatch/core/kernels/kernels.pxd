# Kernels in C, for operators whose work in NumPy takes less time than a call of a Python function.

cdef extern from "core/src/kernels.h":
    enum: SHORT_VECTOR
    void sum_windows(const double* given, const double* taken, int m, double* sums, cnp.npy_intp n) noexcept

# the type of a function that returns the result of a loop for a call, or NULL if NumPy has to serve it
ctypedef PyObject* (*loop_of_method)(PyObject* const*, Py_ssize_t, PyObject*) except? NULL

cdef class ArrayMethod:
    cdef vectorcallfunc vectorcall
    cdef loop_of_method loop            # for small arrays, or NULL if there is none
    cdef object method
    cdef bint as_first                  # whether the result for a scalar is a scalar
    cdef readonly str __name__

cdef class OutKernel:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef type array_type                # the type of arguments that can be written to
    cdef bint as_out                    # whether the function also takes that argument as `out`
    cdef object refusal
    cdef readonly str __name__

cdef class AnyDevice:
    cdef vectorcallfunc vectorcall
    cdef object function
    cdef object stand_in                # makes an array from a prototype without data, or None
    cdef readonly str __name__
