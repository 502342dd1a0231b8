# Tensors, and the keys and arrays of values.


cdef uint64_t word_of_value(PyObject* value) except? 1:
    """Return the union of the words of the arrays in a value: an array, or a pytree of arrays."""
    cdef uint64_t word = word_of_array(value)
    cdef Py_ssize_t i
    if word:
        return word
    if PyTuple_CheckExact(value):
        enter_recursive_call()
        try:
            for i in range(PyTuple_GET_SIZE(value)):
                word |= word_of_value(PyTuple_GET_ITEM(value, i))
        finally:
            leave_recursive_call()
    elif not holds_nothing(value):
        for leaf in array_leaves(<object>value):
            word |= word_of_array(<PyObject*>leaf)
    return word


cdef inline bint holds_nothing(PyObject* value) noexcept:
    """Return whether a value has a type whose objects are neither arrays nor containers."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    return (is_scalar_type(cls) or value == Py_None or value == Py_Ellipsis or cls == &PyUnicode_Type
            or cls == &PySlice_Type or cls == &PyType_Type)


cdef bint needs_no_conversion(PyObject* value, bint arrays, int depth) noexcept:
    """Return whether binding would convert nothing in a value, down to the items of tuples.

    With `arrays` the value may be or contain arrays. This is a fast check for tuples of ordinary depth. False may be
    wrong.
    """
    cdef Py_ssize_t i
    if holds_nothing(value):
        return True
    if PyTuple_CheckExact(value):
        for i in range(PyTuple_GET_SIZE(value)):
            if depth == MAX_NESTING or not needs_no_conversion(PyTuple_GET_ITEM(value, i), arrays, depth + 1):
                return False
        return True
    if is_tensor_type(Py_TYPE(value)):
        return arrays and (<Tensor>value).word != 0
    return arrays and Py_TYPE(value) != &PyList_Type


cdef bint are_arrays(PyObject* value) noexcept:
    """Return whether a value is a tuple of ndarrays and Tensors."""
    cdef Py_ssize_t i
    cdef PyObject* item
    if not PyTuple_CheckExact(value):
        return False
    for i in range(PyTuple_GET_SIZE(value)):
        item = PyTuple_GET_ITEM(value, i)
        if Py_TYPE(item) != &PyArray_Type and not (is_tensor_type(Py_TYPE(item)) and (<Tensor>item).word):
            return False
    return True


def keys_of(value):
    """Return the key set that a value brings to a call: that of an array, or the union over a pytree."""
    return keyset(word_of_value(<PyObject*>value) & KEY_BITS)


def keys_of_all(list values):
    """Return the union of the key sets of the arrays among these values."""
    cdef uint64_t word = 0
    for value in values:
        word |= word_of_array(<PyObject*>value)
    return keyset(word & KEY_BITS)


cdef int fill_tensor(Tensor tensor, array, uint64_t word) except -1:
    if is_numpy_scalar(array):
        array = array_of_scalar(array)
        word |= SCALAR_FLAG
    elif word == CPU_WORD and Py_TYPE(<PyObject*>array) != &PyArray_Type and is_numpy_matrix(<PyObject*>array):
        array = as_plain_array(array)       # a kernel returned it
    tensor.array = array
    tensor.word = word | TENSOR_FLAG | (AUTOGRAD_BIT if word & DENSE_BIT else AUTOGRAD_OTHER_BIT)
    return 0


cdef PyTypeObject* INTP_SCALAR = <PyTypeObject*><PyObject*>numpy.intp


cdef object array_of_double(double value):
    """Return a new 0-d array."""
    array = steal(new_array_of_double(0, NULL))
    (<double*>PyArray_DATA(<PyArrayObject*><PyObject*>array))[0] = value
    return array


cdef inline object array_of_scalar(value):
    """Return a new 0-d array of a NumPy scalar."""
    if Py_TYPE(<PyObject*>value) == FLOAT64_SCALAR:     # the scalar is also a Python float
        return array_of_double(PyFloat_AS_DOUBLE(<PyObject*>value))
    if Py_TYPE(<PyObject*>value) == INTP_SCALAR:
        array = steal(PyArray_New(&PyArray_Type, 0, NULL, cnp.NPY_INTP, NULL, NULL, 0, 0, NULL))
        (<cnp.npy_intp*>PyArray_DATA(<PyArrayObject*><PyObject*>array))[0] = intp_of_scalar(<PyObject*>value)
        return array
    return PyArray_FromScalar(value, NULL)


TENSOR_TYPE = <PyTypeObject*>Tensor
NO_ARGUMENTS = ()


cdef Tensor wrap(array):
    cdef Tensor tensor
    if is_numpy_scalar(array):
        return wrap_scalar(array)
    tensor = Tensor.__new__(Tensor)
    if isinstance(array, Shell):
        raise DispatchTypeError("a plain Tensor cannot hold a Shell, which has no data\n"
                                "return a Tensor of the subclass")
    fill_tensor(tensor, array, word_of_array(<PyObject*>array))
    return tensor


cdef Tensor wrap_of_word(array, uint64_t word):
    """Return a new Tensor of an array that is not a Shell and whose word is known."""
    cdef Tensor tensor = Tensor.__new__(Tensor)
    fill_tensor(tensor, array, word)
    return tensor


cdef Tensor wrap_scalar(value):
    """Return a new scalar Tensor of a NumPy scalar."""
    cdef Tensor tensor = <Tensor>steal(wrap_ndarray(new_reference(array_of_scalar(value))))
    tensor.word |= SCALAR_FLAG
    return tensor


cdef inline PyObject* wrap_ndarray(PyObject* array) except NULL:
    """Return a new Tensor of an exact ndarray. This takes over the reference."""
    cdef PyObject* tensor = new_or_null(TENSOR_TYPE, <PyObject*>NO_ARGUMENTS)
    if tensor == NULL:
        Py_DECREF(array)
        return NULL
    (<Tensor>tensor).array = <object>array
    Py_DECREF(array)
    (<Tensor>tensor).word = CPU_WORD | AUTOGRAD_BIT | TENSOR_FLAG
    return tensor


def a_type(value):
    """Return the type of a value for messages, with its article: "an int", "a Tensor"."""
    name = type(value).__name__
    return f"an {name}" if name.startswith(("nd", *"AEIOaeio")) else f"a {name}"     # but a uint8


# --- values of interpreters -------------------------------------------------------------------------------------------


cdef inline Interpreter interpreter_of(Tensor tensor):
    return (<Wrapper>tensor).interpreter if tensor.word & WRAPPER_FLAG else None


cdef inline bint owned_by(PyObject* value, Interpreter interpreter) noexcept:
    """Return whether a value is a Tensor of the interpreter, or of the tape if that is None."""
    if not is_tensor_type(Py_TYPE(value)):
        return False
    if (<Tensor>value).word & WRAPPER_FLAG:
        return interpreter is not None and (<Wrapper>value).interpreter is interpreter
    return interpreter is None


cdef inline object below(value, Interpreter interpreter):
    """Return the value below for a value of this interpreter, and any other value unchanged.

    A Tensor whose class has a handler is its own value on the tape: only the handler can interpret its content.
    """
    if owned_by(<PyObject*>value, interpreter) and not (<Tensor>value).word & PYTHON_BIT:
        return whole_below(<Tensor>value)
    return value


cdef inline object whole_below(Tensor tensor):
    """Return the value below. For a batch, it has a row for each example."""
    if Py_TYPE(<PyObject*>tensor) != BATCHED_TYPE:
        return tensor.array
    return (<Wrapper>tensor).interpreter.whole(<Wrapper>tensor)


cdef tuple all_below(values, Interpreter interpreter):
    """Apply `below` to each of a sequence."""
    cdef list lower = []
    for value in values:
        lower.append(below(value, interpreter))
    return tuple(lower)


cdef inline bint is_batched(Tensor tensor) noexcept:
    """Return whether a Tensor belongs to an interpreter that computes several examples at once."""
    return tensor.word & WRAPPER_FLAG != 0 and (<Wrapper>tensor).interpreter.batches()
