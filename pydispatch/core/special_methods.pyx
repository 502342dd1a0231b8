# What Python and NumPy call of a Tensor: operators of the language, `__array_ufunc__`, methods that are operators.
#
# The other half of NumPy's way in, `__array_function__`, is in core/array_functions.pyx.

cdef list special_methods = [None] * N_SPECIAL_METHODS


def set_special_methods(**operators):
    """Say which operator stands behind each operator of the language, by the names in SPECIAL_METHODS."""
    for name, operator in operators.items():
        special_methods[SPECIAL_METHODS.index(name)] = operator


cdef dict universal_functions = {}      # of NumPy's: the operator that each is


def set_universal_functions(dict operators not None):
    """Say which operator is called where one of NumPy's universal functions is called with a Tensor."""
    universal_functions.update(operators)


def extend(type cls, **attributes):
    """Add attributes to an extension type, whose namespace Python code cannot write to."""
    namespace = <dict>(<vectorcallable*>cls).tp_dict
    namespace.update(attributes)
    PyType_Modified(<PyTypeObject*>cls)


cdef inline bint is_operand(PyObject* value) except -1:
    return (Py_TYPE(value) == TENSOR_TYPE or Py_TYPE(value) == &PyFloat_Type or Py_TYPE(value) == GRAD_TYPE
            or Py_TYPE(value) == &PyArray_Type or is_other_operand(value))


cdef bint is_other_operand(PyObject* value) except -1:
    # Tensors never initialized are let through, so that the operator says what they lack
    return (word_of_array(value) != 0 or is_scalar_type(Py_TYPE(value)) or is_tensor_type(Py_TYPE(value))
            or isinstance(<object>value, (int, float, complex)))


cdef object binary(int method, left, right):
    if not is_operand(<PyObject*>left) or not is_operand(<PyObject*>right):
        return binary_of_sequences(method, left, right)
    return call_method(method, left, right, NULL)


cdef object binary_of_sequences(int method, left, right):
    """`binary` where an operand may be a list, which becomes an array as in NumPy."""
    left, right = without_sequence(left), without_sequence(right)
    if not is_operand(<PyObject*>left) or not is_operand(<PyObject*>right):
        return NotImplemented
    return call_method(method, left, right, NULL)


cdef object without_sequence(value):
    return upcalls.as_array(value) if isinstance(value, (list, tuple)) else value


cdef inline object call_method(int method, first, second, PyObject* third):
    """Call the operator behind one of the language, of two or three arguments."""
    cdef PyObject* args[4]
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    args[3] = third
    return own(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1],
                                   (2 if third == NULL else 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef inline object unary(int method, value):
    cdef PyObject* args[2]
    args[1] = <PyObject*>value
    return own(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                   NULL))


cdef object divide_with_remainder(left, right):
    quotient = binary(FLOORDIV, left, right)
    return quotient if quotient is NotImplemented else (quotient, binary(MOD, left, right))


cdef object key_of_arrays(key):
    """A key with arrays in place of the sequences in it, as NumPy reads them."""
    if isinstance(key, tuple):
        for item in <tuple>key:
            if isinstance(item, (list, tuple)):
                return upcalls.as_key(key)
        return key
    return upcalls.as_key(key) if isinstance(key, list) else key


@cython.final
cdef class UniversalFunctions:
    """`Tensor.__array_ufunc__`: calls the operator that a universal function of NumPy's is.

    NumPy looks for it in the class. Masked arrays ask the object, and leave `array + tensor` to it where that has None.
    """

    def __get__(self, tensor, owner):
        return self if tensor is None else None

    def __call__(self, tensor, ufunc, method, *inputs, **kwargs):
        operator = universal_functions.get(ufunc) if method == "__call__" and not kwargs else None
        if operator is None:
            return upcalls.call_universal(ufunc, method, inputs, kwargs)
        for value in inputs:
            if not is_operand(<PyObject*>value):
                if isinstance(value, (list, tuple)):
                    return upcalls.call_universal(ufunc, method, inputs, kwargs)
                return NotImplemented
        return operator(*inputs)


@cython.final
cdef class Method:
    """An operator as a method of Tensor: the Tensor is its first argument.

    Calls that the operator refuses, which is strict, are those of NumPy's function where that takes them. So are those
    with `out`: the operator's variant for it has no derivative, and the function writes by an operator that has one.
    """

    def __cinit__(self, operator, str name):
        self.vectorcall = <vectorcallfunc>call_as_method
        self.operator = operator
        self.__name__ = name

    def __get__(self, tensor, owner):
        return self if tensor is None else PyMethod_New(self, tensor)

    def __call__(self, *args, **kwargs):
        return own(PyVectorcall_Call(<PyObject*>self, <PyObject*>args, <PyObject*>kwargs))


cdef PyObject* call_as_method(PyObject* method, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Method self = <Method>method
    if kwnames != NULL and "out" in <tuple>kwnames:
        return call_as_function(self, args, nargsf, kwnames, None)
    try:
        return give(own(PyObject_Vectorcall(<PyObject*>self.operator, args, nargsf, kwnames)))
    except DispatchTypeError as error:
        return call_as_function(self, args, nargsf, kwnames, error)


cdef PyObject* call_as_function(Method self, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                                error) except NULL:
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    positional, named = [], {}
    for i in range(n):
        positional.append(<object>args[i])
    if kwnames != NULL:
        for i, name in enumerate(<tuple>kwnames):
            named[name] = <object>args[n + i]
    return give(upcalls.call_as_function(self.operator, tuple(positional), named, error))


cdef Method some_method = Method(None, "")
make_vectorcallable(Method, <char*>&some_method.vectorcall - <char*><PyObject*>some_method)


cdef extern from "Python.h":
    object PyMethod_New(object function, object self)
