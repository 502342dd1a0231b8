# Methods of a Tensor that Python and NumPy call: operators of the language, `__array_ufunc__`, operators as methods.
#
# NumPy's other protocol, `__array_function__`, is in core/call/array_functions.pyx.

cdef list special_methods = [None] * N_SPECIAL_METHODS


def set_special_methods(**operators):
    """Set the operator of each operator of the language, by the names in SPECIAL_METHODS."""
    for name, operator in operators.items():
        special_methods[SPECIAL_METHODS.index(name)] = operator


cdef dict universal_functions = {}      # by universal function of NumPy: the operator


def set_universal_functions(dict operators not None):
    """Set the operators to call when NumPy universal functions are called with a Tensor."""
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
    # Tensors that were never initialized are accepted here, so that the operator reports the problem
    if is_tensor_type(Py_TYPE(value)):
        return True
    return (word_of_array(value) != 0 and not is_numpy_matrix(value) or is_scalar_type(Py_TYPE(value))
            or isinstance(<object>value, (int, float, complex)))


cdef object binary(int method, left, right):
    if not is_operand(<PyObject*>left) or not is_operand(<PyObject*>right):
        return upcalls.binary_with_object(SPECIAL_METHODS[method], left, right)
    return call_method(method, left, right, NULL)


cdef object equality(int method, left, right):
    """Compute `left == right` or `left != right`. As in NumPy, text and numbers are not equal."""
    try:
        return binary(method, left, right)
    except TypeError as error:
        return upcalls.compare_unlike(SPECIAL_METHODS[method], left, right, error)


cdef object augmented(int method, Tensor left, right):
    """Compute `left += right`. A scalar is immutable, as in NumPy, so Python binds the name to the sum."""
    method -= (left.word & SCALAR_FLAG) != 0
    return power(method, left, right) if method // 2 == POW // 2 else binary(method, left, right)


cdef object power(int method, Tensor left, exponent):
    """Compute a power. For some exponents NumPy calls a function of one argument, whose results may be others."""
    cdef int function
    if type(exponent) is int and (exponent == 2 or exponent == -1) or type(exponent) is float and (
            exponent == 0.5 or (exponent == 2.0 or exponent == -1.0) and not is_complex(bottom_of(left))):
        if is_inexact(bottom_of(left)):
            function = SQRT if exponent == 0.5 else SQUARE if exponent == 2 else RECIPROCAL
            return unary(function + method - POW, left)
    return binary(method, left, exponent)


cdef inline object call_method(int method, first, second, PyObject* third):
    """Call the operator of a special method, with two or three arguments."""
    cdef PyObject* args[4]
    args[1] = <PyObject*>first
    args[2] = <PyObject*>second
    args[3] = third
    return steal(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1],
                                     (2 if third == NULL else 3) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef inline object unary(int method, value):
    cdef PyObject* args[2]
    args[1] = <PyObject*>value
    return steal(PyObject_Vectorcall(<PyObject*>special_methods[method], &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                     NULL))


cdef object divide_with_remainder(left, right):
    quotient = binary(FLOORDIV, left, right)
    return quotient if quotient is NotImplemented else (quotient, binary(MOD, left, right))


cdef object key_of_arrays(key):
    """Return a key with numbers and arrays instead of objects that NumPy converts to these."""
    if isinstance(key, tuple):
        for item in <tuple>key:
            if not is_read_key_item(<PyObject*>item):
                return upcalls.as_key(key)
        return key
    return key if is_read_key_item(<PyObject*>key) else upcalls.as_key(key)


cdef inline bint is_read_key_item(PyObject* item) except -1:
    """Return whether an item of a key is a number, slice, None, Ellipsis, or an array other than a single number."""
    cdef PyTypeObject* cls = Py_TYPE(item)
    return (is_basic_item(item) or cls == &PyArray_Type or cls == &PyBool_Type or is_scalar_type(cls)
            or is_tensor_type(cls) and rank_of(item) > 0)


@cython.final
cdef class UniversalFunctions:
    """`Tensor.__array_ufunc__`: calls the operator for a universal function of NumPy's.

    NumPy looks it up in the class. Code in Python, such as Numba's, may look it up in the object. So do masked arrays,
    which leave `array + tensor` to the Tensor if they find None. For masked arrays it is therefore None.
    """

    def __get__(self, tensor, owner):
        if tensor is None:
            return self
        if sys._getframe().f_globals.get("__name__") == "numpy.ma.core":
            return None
        return PyMethod_New(self, tensor)

    def __call__(self, tensor, ufunc, method, *inputs, **kwargs):
        operator = universal_functions.get(ufunc) if method == "__call__" and not kwargs else None
        if operator is None:
            return upcalls.call_universal(ufunc, method, inputs, kwargs)
        for value in inputs:
            if not is_operand(<PyObject*>value):
                if isinstance(value, (list, tuple)) or is_numpy_matrix(<PyObject*>value):
                    return upcalls.call_universal(ufunc, method, inputs, kwargs)
                return NotImplemented
        if operator is special_methods[EQ] or operator is special_methods[NE]:
            return comparison_by_numpy(operator, inputs)
        return operator(*inputs)


cdef object comparison_by_numpy(operator, tuple inputs):
    """Compare for equality where NumPy called the operator.

    If `text == tensor` cannot compare the elements, NumPy converts the Tensor, only for its shape. A Tensor that is
    followed or handled cannot be converted.
    """
    try:
        return operator(*inputs)
    except TypeError as error:
        for value in inputs:
            if isinstance(value, Tensor) and is_followed_or_handled(value):
                return upcalls.compare_unlike("eq" if operator is special_methods[EQ] else "ne", *inputs, error)
        raise


@cython.final
cdef class Method:
    """An operator as a method of Tensor: the Tensor is its first argument.

    If the operator, which is strict, rejects a call that NumPy's function accepts, the function is called. The function
    also serves calls with `out`: the operator's variant for it has no derivative, but the function writes with an
    operator that has one.
    """

    def __cinit__(self, operator, str name):
        self.vectorcall = <vectorcallfunc>(call_copy if name == "copy" else call_as_method)
        self.operator = operator
        self.__name__ = name

    def __get__(self, tensor, owner):
        return self if tensor is None else PyMethod_New(self, tensor)

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


cdef PyObject* call_as_method(PyObject* method, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef Method self = <Method>method
    if kwnames != NULL and "out" in <tuple>kwnames:
        return call_as_function(self, args, nargsf, kwnames, None)
    try:
        return new_reference(steal(PyObject_Vectorcall(<PyObject*>self.operator, args, nargsf, kwnames)))
    except DispatchTypeError as error:
        return call_as_function(self, args, nargsf, kwnames, error)


cdef PyObject* call_copy(PyObject* method, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Call the method `copy`. Its result has C order, as NumPy's does, and that of a scalar is a scalar.

    The operator keeps the order of the Tensor.
    """
    cdef PyObject* array
    if (kwnames == NULL and PyVectorcall_NARGS(nargsf) == 1 and is_tensor_type(Py_TYPE(args[0]))
            and not (<Tensor>args[0]).word & SCALAR_FLAG):
        array = bottom_of(<Tensor>args[0])
        if Py_TYPE(array) != &PyArray_Type or PyArray_FLAGS(<PyArrayObject*>array) & NPY_ARRAY_C_CONTIGUOUS:
            return call_as_method(method, args, nargsf, NULL)
    return call_as_function(<Method>method, args, nargsf, kwnames, None)


cdef PyObject* call_as_function(Method self, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                                error) except NULL:
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf)
    positional, named = [], {}
    for i in range(n):
        positional.append(<object>args[i])
    if kwnames != NULL:
        for i, name in enumerate(<tuple>kwnames):
            named[name] = <object>args[n + i]
    return new_reference(upcalls.call_as_function(self.operator, tuple(positional), named, error))


cdef Method some_method = Method(None, "")
make_vectorcallable(Method, <char*>&some_method.vectorcall - <char*><PyObject*>some_method)


cdef extern from "Python.h":
    object PyMethod_New(object function, object self)


SPECIAL_METHODS = (
    "add", "iadd", "sub", "isub", "mul", "imul", "truediv", "itruediv", "floordiv", "ifloordiv", "mod", "imod",
    "pow", "ipow", "square", "isquare", "sqrt", "isqrt", "reciprocal", "ireciprocal", "matmul", "imatmul",
    "and", "iand", "or", "ior", "xor", "ixor", "lshift", "ilshift", "rshift", "irshift",
    "neg", "pos", "abs", "invert", "lt", "le", "eq", "ne", "gt", "ge", "getitem", "index", "setitem", "index_put",
)
