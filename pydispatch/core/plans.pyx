# Calls of compiled graphs, guarded by what was traced.


cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1:
    """Has an array of NumPy's this shape, a tuple of ints, and this dtype?"""
    cdef Py_ssize_t ndim = PyTuple_GET_SIZE(shape), axis
    if PyArray_NDIM(array) != ndim:
        return False
    for axis in range(ndim):
        if PyArray_DIMS(array)[axis] != <Py_ssize_t>(<object>PyTuple_GET_ITEM(shape, axis)):
            return False
    return <void*>PyArray_DESCR(array) == <void*>dtype or <object>PyArray_DESCR(array) == <object>dtype


def is_like(value not None, tuple shape, cnp.dtype dtype):
    """Has an array, or a value that stands for one, this shape and dtype?"""
    cdef object array = (<Tensor>value).array if type(value) is Tensor else value
    if cnp.PyArray_Check(array):
        return is_array_like(<PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype)
    return tuple(value.shape) == shape and value.dtype == dtype


cdef PyObject* call_guarded(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* function = <PyObject*>(<GuardedCall>self).fast
    cdef PyObject* expected = <PyObject*>(<GuardedCall>self).expected
    cdef PyObject* spec
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(expected)
    if PyVectorcall_NARGS(nargsf) != n or kwnames != NULL:
        function = <PyObject*>(<GuardedCall>self).general
        n = 0
    for i in range(n):
        spec = PyTuple_GET_ITEM(expected, i)
        if Py_TYPE(args[i]) != &PyArray_Type or spec != Py_None and not is_array_like(
                <PyArrayObject*>args[i], PyTuple_GET_ITEM(spec, 0), PyTuple_GET_ITEM(spec, 1)):
            function = <PyObject*>(<GuardedCall>self).general
            break
    return PyObject_Vectorcall(function, args, nargsf, kwnames)


@cython.final
cdef class GuardedCall:
    """Calls `fast` with positional arguments that are all arrays of NumPy's as expected, `general` with any others.

    `expected` has for each argument its shape and dtype, or None where any will do.
    """

    def __cinit__(self, fast not None, general not None, tuple expected):
        self.vectorcall = <vectorcallfunc>call_guarded
        for spec in expected:
            if spec is not None:
                shape, dtype = spec
                if type(spec) is not tuple or type(shape) is not tuple or not isinstance(dtype, numpy.dtype):
                    raise TypeError(f"expected has {spec!r} for an argument, which is no (shape, dtype)")
        self.fast, self.general, self.expected = fast, general, expected

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))


cdef GuardedCall some_guarded_call = GuardedCall(len, len, ())
make_vectorcallable(GuardedCall, <char*>&some_guarded_call.vectorcall - <char*><PyObject*>some_guarded_call)
