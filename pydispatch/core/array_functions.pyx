# Functions that take what NumPy's take, and call NumPy's own or operators.
#
# An operator takes the simple calls as they are. Of the others NumPy's own function takes those in which no argument is
# a Tensor, where no transform or mode runs; the rest goes to the function's implementation, which is written with
# operators, converts lists, and fills in the defaults that NumPy has.


cdef bint is_of_numpy(PyObject* value) except -1:
    """Is this no Tensor and no array of another backend, and, if it is a list or tuple, are its items neither?"""
    cdef PyTypeObject* cls = Py_TYPE(value)
    cdef Py_ssize_t i
    if cls == &PyArray_Type or cls == &PyFloat_Type or value == Py_None or is_scalar_type(cls):
        return True
    if is_tensor_type(cls):
        return False
    if not isinstance(<object>value, (list, tuple)):
        return cnp.PyArray_Check(<object>value) or word_of_array(value) == 0
    enter_recursive_call()
    try:
        if isinstance(<object>value, tuple):
            for i in range(PyTuple_GET_SIZE(value)):
                if not is_of_numpy(PyTuple_GET_ITEM(value, i)):
                    return False
        else:
            for item in list(<object>value):
                if not is_of_numpy(<PyObject*>item):
                    return False
    finally:
        leave_recursive_call()
    return True


cdef inline bint is_operators_own(ArrayFunction self, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) except -1:
    """Does the operator take this call as it is?"""
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    cdef PyTypeObject* cls
    if self.operator is None or n < self.n_arrays or n > self.n_positional:
        return False
    if kwnames != NULL:
        for name in <tuple>kwnames:
            if name not in self.keywords:
                return False
    for i in range(self.n_arrays):
        cls = Py_TYPE(args[i])
        if not (cls == &PyArray_Type or cls == TENSOR_TYPE or is_scalar_type(cls) or is_tensor_type(cls)):
            return False
    return True


cdef PyObject* call_array_function(PyObject* function, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) except NULL:
    cdef ArrayFunction self = <ArrayFunction>function
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    if is_operators_own(self, args, nargsf, kwnames):
        return PyObject_Vectorcall(<PyObject*>self.operator, args, nargsf, kwnames)
    if self.numpy_function is not None and (<State>borrowed_state()).plain and (
            self.added is None or kwnames == NULL or self.added.isdisjoint(<tuple>kwnames)):
        for i in range(n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
            if not is_of_numpy(args[i]):
                break
        else:
            return PyObject_Vectorcall(<PyObject*>self.numpy_function, args, nargsf, kwnames)
    return PyObject_Vectorcall(<PyObject*>self.implementation, args, nargsf, kwnames)


cdef class ArrayFunction:
    """A function of `pydispatch.numpy`.

    `numpy_function` is NumPy's own, or None; it is called with NumPy's arrays where nothing watches. `implementation`
    is the same written with operators. `operator` takes calls with between `n_arrays` and `n_positional` arguments by
    position, of which the first `n_arrays` are arrays or numbers, and with those of `keywords`. NumPy's own does not
    have the keywords in `added`.
    """

    def __cinit__(self, numpy_function, implementation not None, OpOverloadPacket operator or None=None,
                  Py_ssize_t n_arrays=0, Py_ssize_t n_positional=0, frozenset keywords=frozenset(),
                  frozenset added=None):
        self.vectorcall = <vectorcallfunc>call_array_function
        self.numpy_function, self.implementation, self.operator = numpy_function, implementation, operator
        self.n_arrays, self.n_positional, self.keywords, self.added = n_arrays, n_positional, keywords, added

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))

    def on_tensors(self, *args, **kwargs):
        """Call the operator or the implementation, never NumPy's own function."""
        names = tuple(kwargs) if kwargs else None
        if is_operators_own(self, items_of(args), len(args), NULL if names is None else <PyObject*>names):
            return self.operator(*args, **kwargs)
        return self.implementation(*args, **kwargs)

    def __reduce__(self):
        return self.__qualname__

    def __repr__(self):
        return f"<array function {self.__module__}.{self.__qualname__}>"


cdef dict functions_of_numpy = {}


def set_functions_of_numpy(dict functions not None):
    """Say which function stands for each of NumPy's, for `Tensor.__array_function__`."""
    global functions_of_numpy
    functions_of_numpy = functions


cdef object call_function_of_numpy(function, types, tuple args, dict kwargs):
    cdef ArrayFunction found
    value = functions_of_numpy.get(function)
    if value is None:
        value = upcalls.function_of_numpy(function)
    for cls in types:
        if cls is not Tensor and not issubclass(cls, (Tensor, cnp.ndarray)) and hasattr(cls, "__array_function__"):
            return NotImplemented
    found = <ArrayFunction?>value
    if not kwargs and is_operators_own(found, items_of(args), len(args), NULL):
        return own(PyObject_Vectorcall(<PyObject*>found.operator, items_of(args), len(args), NULL))
    return found.on_tensors(*args, **kwargs)


cdef ArrayFunction some_array_function = ArrayFunction(None, len)
make_vectorcallable(ArrayFunction, <char*>&some_array_function.vectorcall - <char*><PyObject*>some_array_function)
