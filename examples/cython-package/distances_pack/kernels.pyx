"""Kernels in C, and functions that call operators, for the operators of `distances_pack`."""

from cpython.pycapsule cimport PyCapsule_New
from libc.math cimport sqrt
from libc.stdint cimport intptr_t
from pydispatch cimport c_api

from pydispatch import ops

c_api.import_pydispatch()


cdef double smooth_abs(double x) noexcept nogil:
    return sqrt(x * x + 1) - 1


cdef void squared_distance(double* x, double* y, double* result, intptr_t n) noexcept nogil:
    cdef intptr_t i
    for i in range(n):
        result[i] = (x[i] - y[i]) * (x[i] - y[i])


def smooth_abs_kernel():
    """sqrt(x * x + 1) - 1, as a function in C that is called for each element."""
    return PyCapsule_New(<void*>smooth_abs, "double (double)", NULL)


def squared_distance_kernel():
    """(x - y)², as a function in C that is called for whole blocks of elements."""
    return PyCapsule_New(<void*>squared_distance, "void (double *, double *, double *, intptr_t)", NULL)


def register_doubling(str operator):
    """Register a kernel in C for an operator; the handle that removes it."""
    return c_api.register_kernel(operator, "CPU", <void*>double_it, "double (double)")


cdef double double_it(double x) noexcept nogil:
    return 2 * x


def total_distance(x, y):
    """The sum of the squared distances; of Tensors a Tensor, with its gradient."""
    return c_api.call_1(ops.np.sum, c_api.call_2(ops.distances.squared_distance, x, y))


def largest(value):
    """The largest element of a one-dimensional array or Tensor of float64, as a Python float."""
    cdef double[:] elements = c_api.array_of(value)
    cdef double found = elements[0]
    cdef Py_ssize_t i
    for i in range(1, elements.shape[0]):
        found = max(found, elements[i])
    return found


def as_tensor(value):
    """A Tensor of an array; a Tensor as it is."""
    return value if c_api.is_tensor(value) else c_api.make_tensor(value)
