# Declarations of C, Python and NumPy that the core uses.
# tests: tests/core/test_threads.py

as_index = operator.index
numpy_asarray = numpy.asarray
numpy_dtype = numpy.dtype
numpy_integer = numpy.integer
cdef object float64_dtype = numpy.dtype("float64")
cdef object float64_scalar = numpy.float64
FLOAT64 = <PyObject*>float64_dtype
FLOAT64_SCALAR = <PyTypeObject*><PyObject*>float64_scalar
numpy_umath = numpy if IS_PORTABLE else numpy._core.umath

PORTABLE = bool(IS_PORTABLE)


cdef list replaced_objects = []         # what fields held, and threads may be about to count
cdef Py_ssize_t n_replaced = 0


cdef inline void keep_for_readers(value) noexcept:
    if IS_FREE_THREADED and value is not None and not is_only_thread():
        replaced_objects.append(value)


def release_replaced(phase, info):
    """Release what was replaced before a garbage collection began.

    A collection stops each thread where it is not between reading a field and counting the object.
    """
    global n_replaced
    if phase == "start":
        n_replaced = len(replaced_objects)
    else:
        del replaced_objects[:n_replaced]
        n_replaced = 0


if IS_FREE_THREADED:
    gc.callbacks.append(release_replaced)


cdef inline list keep_in(list kept, value):
    if kept is None:
        return [value]
    kept.append(value)
    return kept


cdef tuple tuple_of(PyObject* const* values, Py_ssize_t n):
    cdef tuple found = PyTuple_New(n)
    cdef Py_ssize_t i
    for i in range(n):
        Py_INCREF(<object>values[i])
        PyTuple_SET_ITEM(found, i, <object>values[i])
    return found


cdef int make_vectorcallable(type cls, Py_ssize_t offset) except -1:
    """Set the vectorcall slot of a class, for which Cython has no syntax."""
    set_vectorcall_slot(<PyTypeObject*>cls, offset)
    return 0
