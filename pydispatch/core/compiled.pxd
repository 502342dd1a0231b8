# Calls of compiled functions, guarded by what was traced.

cdef class GuardedCall:
    cdef vectorcallfunc vectorcall
    cdef readonly object fast, general
    cdef readonly tuple expected

cdef struct Expected:           # a leaf of arguments, or a pytree node with its parts after it
    int kind
    Py_ssize_t n                # axes of an array, or parts
    PyObject* what              # dtype, keys or value; `guard` of the variant holds it
    cnp.npy_intp* shape

cdef class Variant:
    cdef readonly Plan plan
    cdef readonly tuple guard
    cdef readonly object nest
    cdef Expected* expected
    cdef cnp.npy_intp* extents
    cdef Py_ssize_t n_arguments, n_arrays

cdef class CompiledFunction:
    cdef vectorcallfunc vectorcall
    cdef readonly list variants         # the last one that was used first
    cdef readonly Py_ssize_t hits
    cdef public object general
    cdef dict __dict__
    cdef object __weakref__

# has an array of NumPy's this shape, a tuple of ints, and this dtype?
cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1
# address of the vectorcall slot in objects of the class
cdef Py_ssize_t vectorcall_offset_of_compiled() noexcept
