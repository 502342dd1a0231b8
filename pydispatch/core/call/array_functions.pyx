# Functions with the signatures of NumPy's, which call NumPy's functions or operators.
#
# Three things can serve a call. The operator gets simple calls unchanged. NumPy's function gets calls without a Tensor
# while no transform, mode or guard is active. The implementation gets all other calls: it is written with operators,
# converts lists, and fills in NumPy's defaults.
#
# NumPy's function, or the loop that it ends in, is also called instead of an operator whose kernel it is. If all
# arguments are arrays and numbers, the look-up of `__array_function__` is skipped.


cdef enum:
    NOT_NUMPYS = 0      # a Tensor or an array of another backend, or a list or tuple that holds one
    SOME_OBJECT = 1     # an object whose class may define `__array_function__`, or a list or tuple that holds one
    OF_NUMPY = 2        # neither


cdef inline int origin_of(PyObject* value) except -1:
    """Return the origin of an argument: NOT_NUMPYS, SOME_OBJECT or OF_NUMPY."""
    if Py_TYPE(value) == &PyArray_Type or holds_nothing(value):
        return OF_NUMPY
    return origin_of_other(value)


cdef bint holds_arrays_and_numbers(PyObject* value, int depth) noexcept:
    """Return whether a value is surely a list or tuple of NumPy arrays, numbers and such lists (fast check)."""
    cdef Py_ssize_t i
    cdef PyObject* item
    if Py_TYPE(value) != &PyList_Type and not PyTuple_CheckExact(value):
        return False
    for i in range(PySequence_Fast_GET_SIZE(value)):
        item = PySequence_Fast_GET_ITEM(value, i)
        if Py_TYPE(item) != &PyArray_Type and not holds_nothing(item) and (
                depth == MAX_NESTING or not holds_arrays_and_numbers(item, depth + 1)):
            return False
    return True


cdef int origin_of_other(PyObject* value) except -1:
    if holds_arrays_and_numbers(value, 0):
        return OF_NUMPY
    if is_tensor_type(Py_TYPE(value)):
        return NOT_NUMPYS
    if isinstance(<object>value, (list, tuple)):
        return origin_of_items(value)
    if is_numpy_scalar(<object>value):
        return OF_NUMPY
    return NOT_NUMPYS if is_of_other_backend(value) else SOME_OBJECT


cdef int origin_of_items(PyObject* value) except -1:
    cdef int found = OF_NUMPY if PyTuple_CheckExact(value) or Py_TYPE(value) == &PyList_Type else SOME_OBJECT
    cdef Py_ssize_t i = 0
    enter_recursive_call()
    try:
        while found != NOT_NUMPYS and i < len(<object>value):      # a list may change meanwhile
            item = (<tuple>value)[i] if isinstance(<object>value, tuple) else (<list>value)[i]
            found = min(found, origin_of(<PyObject*>item))
            i += 1
    finally:
        leave_recursive_call()
    return found


cdef inline int origin_of_all(PyObject* const* args, Py_ssize_t n) except -1:
    """Return the origin of several arguments: NOT_NUMPYS if one has it, else SOME_OBJECT if one has it."""
    cdef Py_ssize_t i
    cdef int found = OF_NUMPY, origin
    for i in range(n):
        origin = origin_of(args[i])
        if origin < found:
            if origin == NOT_NUMPYS:
                return NOT_NUMPYS
            found = origin
    return found


cdef bint is_for_others(PyObject* const* args, Py_ssize_t n) except -1:
    """Return whether only NumPy can serve a call: for arrays of objects or classes with NumPy's protocols.

    No argument may be a Tensor. Transforms and modes do not change what such a call means.
    """
    cdef Py_ssize_t i
    if origin_of_all(args, n) == NOT_NUMPYS:
        return False
    for i in range(n):
        if holds_overriding(args[i], 0):
            return True
    return False


cdef bint holds_overriding(PyObject* value, int depth) except -1:
    """Return whether a value is, or a list or tuple holds, an array of objects or an object with NumPy's protocols."""
    if isinstance(<object>value, (list, tuple)):
        for item in tuple(<object>value):
            if depth < MAX_NESTING and holds_overriding(<PyObject*>item, depth + 1):
                return True
        return False
    if Py_TYPE(value) == &PyArray_Type:
        return holds_objects(value)
    return (not holds_nothing(value)
            and (overrides(value, "__array_ufunc__") or overrides(value, "__array_function__")))


cdef bint overrides(PyObject* value, str protocol) except -1:
    """Return whether the class of a value defines the protocol, or declines it by None."""
    cdef object missing = NO_ARGUMENTS
    found = getattr(type(<object>value), protocol, missing)
    return found is not missing and found is not getattr(cnp.ndarray, protocol)


cdef bint holds_arrays(PyObject* value) noexcept:
    """Return whether a value is a list or tuple of arrays and Tensors."""
    cdef Py_ssize_t i
    cdef PyTypeObject* cls
    if Py_TYPE(value) != &PyList_Type and not PyTuple_CheckExact(value):
        return False
    for i in range(PySequence_Fast_GET_SIZE(value)):
        cls = Py_TYPE(PySequence_Fast_GET_ITEM(value, i))
        if not (cls == &PyArray_Type or cls == TENSOR_TYPE or is_tensor_type(cls)):
            return False
    return True


cdef inline bint is_operators_own(ArrayFunction self, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) except -1:
    """Return whether the operator takes this call unchanged."""
    cdef Py_ssize_t i, n = PyVectorcall_NARGS(nargsf), first = self.after_text
    cdef PyTypeObject* cls
    if self.operator is None or n < first + self.n_arrays or n > self.n_positional:
        return False
    if kwnames != NULL:
        for name in <tuple>kwnames:
            if name not in self.keywords:
                return False
    if self.joins:
        return holds_arrays(args[0])
    if self.after_text and Py_TYPE(args[0]) != &PyUnicode_Type:
        return False
    for i in range(first, first + self.n_arrays):
        cls = Py_TYPE(args[i])
        if not (cls == &PyArray_Type or cls == TENSOR_TYPE or is_scalar_type(cls) or is_tensor_type(cls)):
            return False
        if self.of_vectors and not is_surely_vector(args[i]) or cls == &PyArray_Type and holds_objects(args[i]):
            return False
    # NumPy accepts the axes 0 and -1 for an array without axes.
    return self.n_arrays != 1 or (n == 1 and kwnames == NULL) or not is_surely_number(args[first])


cdef inline bint holds_objects(PyObject* array) noexcept:
    """Return whether the elements of an ndarray are objects: NumPy's results may then be any object."""
    return PyArray_TYPE(<PyArrayObject*>array) == cnp.NPY_OBJECT


cdef inline bint is_surely_number(PyObject* value) noexcept:
    """Return whether a value is surely a Python number, or an array or Tensor without axes (fast check)."""
    if is_tensor_type(Py_TYPE(value)):
        value = <PyObject*>(<Tensor>value).array
    return is_scalar_type(Py_TYPE(value)) or (
        Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 0)


cdef inline bint is_surely_vector(PyObject* value) noexcept:
    """Return whether a value is surely an array of one axis, or a Tensor or GradTensor of one (fast check)."""
    if Py_TYPE(value) == TENSOR_TYPE or Py_TYPE(value) == GRAD_TYPE:
        value = <PyObject*>(<Tensor>value).array
    return Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 1


cdef inline PyObject* kernel_of_numpy(ArrayFunction self, PyObject* state) except? NULL:
    """Return the operator's table entry for arrays if it only calls NumPy's function, else NULL."""
    cdef PyObject* op
    cdef PyObject* table
    cdef PyObject* entry
    if not PyTuple_GET_SIZE(<PyObject*>self.operator.overloads):
        return NULL
    op = PyTuple_GET_ITEM(<PyObject*>self.operator.overloads, 0)
    if not (<State>state).plain or (<State>state).default_backend is not root.default_backend:
        return NULL
    if (<OpOverload>op).table is None:
        table_of(<OpOverload>op)
    table = <PyObject*>(<OpOverload>op).table
    if (<Table>table).last_word == CPU_WORD:
        entry = (<Table>table).last_entry
    else:
        entry = plain_entry(op, table, state, CPU_WORD)
    return entry if entry != NULL and (<TableEntry>entry).function is self.numpy_function else NULL


cdef inline bint has_array_with_axes(PyObject* const* args, Py_ssize_t n) noexcept:
    """Return whether an argument is an array with axes. Without one, the result is a scalar."""
    cdef Py_ssize_t i
    for i in range(n):
        if Py_TYPE(args[i]) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>args[i]):
            return True
    return False


cdef inline bint may_have_loop(Loop* loop, PyObject* const* args) noexcept:
    """Return whether an argument is an array of a type that may have a loop."""
    cdef int i, type
    for i in range(loop.n_in):
        if Py_TYPE(args[i]) == &PyArray_Type:
            type = PyArray_TYPE(<PyArrayObject*>args[i])
            if type < N_TYPES and (loop.typed == NULL or loop.typed[type].state != MISSING):
                return True
    return False


cdef inline PyObject* call_loop_of_ufunc(Loop* loop, PyObject* const* args, Py_ssize_t n,
                                         PyObject* kwnames) except? NULL:
    """Call the loop, which may get the keyword `out`. Return NULL if NumPy must handle the call."""
    if n != loop.n_in:
        return NULL
    if kwnames != NULL:
        return call_loop_with_option(loop, args, kwnames)
    if has_array_with_axes(args, n):
        return call_loop(loop, args) if may_have_loop(loop, args) else NULL
    return map_numbers(loop, args)


cdef inline bint has_added(ArrayFunction self, PyObject* kwnames) except -1:
    """Return whether a keyword is one that NumPy's function does not have."""
    cdef Py_ssize_t i, k
    cdef PyObject* name
    if kwnames == NULL or self.added is None:
        return False
    for i in range(PyTuple_GET_SIZE(kwnames)):
        name = PyTuple_GET_ITEM(kwnames, i)
        for k in range(PyTuple_GET_SIZE(<PyObject*>self.added)):
            if name == PyTuple_GET_ITEM(<PyObject*>self.added, k):
                return True
        if not is_interned(name) and <object>name in self.added:
            return True
    return False


cdef inline bint is_kept(ArrayFunction self, PyObject* value) noexcept:
    """Return whether the function returns its argument itself."""
    cdef int flags = self.kept_flags
    return flags >= 0 and Py_TYPE(value) == &PyArray_Type and (
        flags == 0 or PyArray_FLAGS(<PyArrayObject*>value) & flags and PyArray_NDIM(<PyArrayObject*>value) > 0)


cdef enum:      # makers of arrays, called here directly instead of through NumPy's parsing of arguments
    NO_MAKER = 0
    ZEROS = 1
    EMPTY = 2
    ARANGE = 3
    ASARRAY = 4
    MOST_COUNTED = 4096     # few enough that there is memory for them
    LARGEST_COUNTED = 4096  # float32 holds all integers up to this one exactly


cdef PyObject* make_directly(int maker, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    """Make an array from a shape and maybe a Python type. Return NULL if NumPy's function has to be called.

    `asarray` gets an array instead of the shape.
    """
    cdef cnp.npy_intp extents[MOST_AXES]
    cdef int n_axes, type = cnp.NPY_DOUBLE
    if maker == ARANGE:
        return count_numbers(args, n, kwnames)
    if maker == ASARRAY and (n == 0 or Py_TYPE(args[0]) != &PyArray_Type):
        return NULL
    if kwnames != NULL:
        if n != 1 or PyTuple_GET_SIZE(kwnames) != 1 or PyTuple_GET_ITEM(kwnames, 0) != <PyObject*>NAME_OF_DTYPE:
            return NULL
        n = 2
    if not 0 < n <= 2:
        return NULL
    if n == 2:
        type = type_of_python(args[1])
    if maker == ASARRAY:
        return NULL if n == 1 or type < 0 else new_reference(array_of_type(args[0], type))
    n_axes = read_shape(args[0], extents)
    if n_axes < 0 or type < 0:
        return NULL
    return new_reference(cnp.PyArray_ZEROS(n_axes, extents, type, 0) if maker == ZEROS
                         else cnp.PyArray_EMPTY(n_axes, extents, type, 0))


cdef PyObject* count_numbers(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except? NULL:
    """Return `arange` of a few small numbers, and maybe a dtype, or NULL if NumPy's function has to be called."""
    cdef double numbers[3]
    cdef bint is_whole = True
    cdef Py_ssize_t i
    cdef int type
    numbers[:] = [0.0, 0.0, 1.0]
    if not 0 < n <= 3:
        return NULL
    for i in range(n):
        if Py_TYPE(args[i]) == &PyLong_Type and is_compact(args[i]):
            numbers[i if n > 1 else 1] = <double>compact_value(args[i])
        elif Py_TYPE(args[i]) == &PyFloat_Type:
            numbers[i if n > 1 else 1] = PyFloat_AS_DOUBLE(args[i])
            is_whole = False
        else:
            return NULL
    type = cnp.NPY_INTP if is_whole else cnp.NPY_DOUBLE
    if kwnames != NULL:
        if (not is_whole or PyTuple_GET_SIZE(kwnames) != 1
                or PyTuple_GET_ITEM(kwnames, 0) != <PyObject*>NAME_OF_DTYPE):
            return NULL
        type = counted_type(args[n])
    return count_from(numbers[0], numbers[1], numbers[2], type)


cdef int counted_type(PyObject* value) except -2:
    """Return the type number of a dtype, given as a class or by name, that holds all small integers, else -1."""
    if Py_TYPE(value) != &PyType_Type and Py_TYPE(value) != &PyUnicode_Type:
        return -1
    dtype = known_dtypes.get(<object>value)
    if dtype is None:
        return -1
    type = (<cnp.dtype>dtype).type_num
    return type if type in (cnp.NPY_INTP, cnp.NPY_FLOAT, cnp.NPY_DOUBLE) else -1


cdef PyObject* count_from(double start, double stop, double step, int type) except? NULL:
    """Return the numbers from `start` up to `stop`. Like NumPy, add multiples of the first distance to `start`."""
    cdef double length = (stop - start) / step if step != 0 else -1, distance = (start + step) - start
    cdef PyObject* result
    cdef void* data
    cdef cnp.npy_intp n, i
    if type < 0 or not 0 < length <= MOST_COUNTED or not -LARGEST_COUNTED <= start <= LARGEST_COUNTED or (
            not -LARGEST_COUNTED <= step <= LARGEST_COUNTED):
        return NULL             # also if one of them is NaN
    n = <cnp.npy_intp>length
    if <double>n < length:
        n += 1
    result = new_reference(cnp.PyArray_EMPTY(1, &n, type, 0))
    data = PyArray_DATA(<PyArrayObject*>result)
    for i in range(n):
        if type == cnp.NPY_INTP:
            (<cnp.npy_intp*>data)[i] = <cnp.npy_intp>(start + <double>i * step)
        elif type == cnp.NPY_DOUBLE:
            (<double*>data)[i] = start + <double>i * distance if i > 1 else start + step if i == 1 else start
        else:
            (<float*>data)[i] = <float>(start + <double>i * step)
    return result


cdef inline bint is_quickly_of_numpy(PyObject* function, PyObject* value) noexcept:
    """Return whether a value is surely an array, a number, or a list of these.

    This is a fast check. A function that creates arrays takes any list: in a shape, NumPy accepts Tensors as we do.
    """
    cdef PyTypeObject* cls = Py_TYPE(value)
    return (cls == &PyArray_Type or cls == &PyList_Type and (<ArrayFunction>function).creates or holds_nothing(value)
            or holds_arrays_and_numbers(value, 0))


cdef PyObject* call_function_in_c(PyObject* function, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) except NULL:
    """Call a C function of NumPy's that has no operator. Leave calls that need more to `call_array_function`."""
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf), i
    cdef PyObject* state
    cdef PyObject* result
    state = borrowed_state()
    if not (<State>state).plain or has_added(<ArrayFunction>function, kwnames) or (
            (<ArrayFunction>function).creates and (<State>state).default_backend is not root.default_backend):
        return call_array_function(function, args, nargsf, kwnames)
    if (<ArrayFunction>function).maker:
        result = make_directly((<ArrayFunction>function).maker, args, n, kwnames)
        if result != NULL:
            return result
    for i in range(n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
        if not is_quickly_of_numpy(function, args[i]):
            return call_array_function(function, args, nargsf, kwnames)
    result = (<ArrayFunction>function).function_in_c((<ArrayFunction>function).self_in_c, args, n, kwnames)
    if result == NULL:
        check_raised((<ArrayFunction>function).numpys_own)
    return result


cdef PyObject* call_array_function(PyObject* function, PyObject* const* args, size_t nargsf,
                                   PyObject* kwnames) except NULL:
    cdef ArrayFunction self = <ArrayFunction>function
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    cdef PyObject* state
    cdef PyObject* entry = NULL
    cdef int whose
    state = borrowed_state()
    if self.operator is not None:
        entry = NULL if self.numpy_first else kernel_of_numpy(self, state)
        if entry == NULL and not self.numpy_first and is_operators_own(self, args, nargsf, kwnames):
            return PyObject_Vectorcall(<PyObject*>self.operator, args, nargsf, kwnames)
    if (<State>state).plain and self.numpy_function is not None and not has_added(self, kwnames) and (
            not self.creates or (<State>state).default_backend is root.default_backend):
        whose = origin_of_all(args, n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)))
        if whose != NOT_NUMPYS:
            return call_numpys(self, entry, whose, args, nargsf, kwnames)
    elif self.numpy_function is not None and is_for_others(
            args, n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames))):
        return PyObject_Vectorcall(<PyObject*>self.numpy_function, args, nargsf, kwnames)
    if (entry != NULL or self.numpy_first) and is_operators_own(self, args, nargsf, kwnames):
        return PyObject_Vectorcall(<PyObject*>self.operator, args, nargsf, kwnames)
    if holds_array_of_other(args, n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)), 0):
        return call_on_backend(self, args, n, kwnames)
    entry = PyObject_Vectorcall(<PyObject*>self.implementation, args, nargsf, kwnames)
    return entered_result(entry, args, n + (0 if kwnames == NULL else PyTuple_GET_SIZE(kwnames)))


cdef PyObject* entered_result(PyObject* result, PyObject* const* args, Py_ssize_t n) except NULL:
    """Return a NumPy array, or a tuple or list of them, made of numbers and lists as values of the active transform."""
    cdef PyObject* first = result
    cdef Py_ssize_t i
    if result == NULL:
        return NULL
    if isinstance(<object>result, (tuple, list)) and PySequence_Fast_GET_SIZE(result):
        first = PySequence_Fast_GET_ITEM(result, 0)
    if Py_TYPE(first) != &PyArray_Type:
        return result
    for i in range(n):
        if word_of_array(args[i]):
            return result
    return new_reference(upcalls.entered(steal(result)))


cdef PyObject* call_naming_errors(PyObject* function, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) except NULL:
    """Call a function that has an `on_error`."""
    try:
        return call_array_function(function, args, nargsf, kwnames)
    except Exception as error:
        (<ArrayFunction>function).on_error(error)
        raise


cdef bint holds_array_of_other(PyObject* const* args, Py_ssize_t n, int depth) except -1:
    """Return whether there is a raw array of a backend other than NumPy, without a Tensor's methods. Search lists."""
    cdef Py_ssize_t i
    for i in range(n):
        if Py_TYPE(args[i]) == &PyList_Type or PyTuple_CheckExact(args[i]):
            items = tuple(<object>args[i])      # a list may change meanwhile
            if depth < MAX_NESTING and holds_array_of_other(items_of(items), len(items), depth + 1):
                return True
        elif is_of_other_backend(args[i]):
            return True
    return False


cdef PyObject* call_on_backend(ArrayFunction self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    """Call the implementation, with raw arrays of other backends wrapped in Tensors."""
    cdef Py_ssize_t i
    values = tuple([<object>args[i] for i in range(n)])
    names = () if kwnames == NULL else <tuple>kwnames
    options = {names[i]: <object>args[n + i] for i in range(len(names))}
    return new_reference(upcalls.call_on_backend(self, values, options))


cdef inline PyObject* call_numpys(ArrayFunction self, PyObject* entry, int whose, PyObject* const* args, size_t nargsf,
                                  PyObject* kwnames) except NULL:
    """Call NumPy's function, or the loop that it ends in."""
    cdef PyObject* result
    if entry != NULL and (<TableEntry>entry).loop.kind:
        result = call_loop_of_ufunc(&(<TableEntry>entry).loop, args, PyVectorcall_NARGS(nargsf), kwnames)
        if result != NULL:
            return result
    if whose == SOME_OBJECT:
        return PyObject_Vectorcall(<PyObject*>self.numpy_function, args, nargsf, kwnames)
    if self.function_in_c != NULL:
        result = self.function_in_c(self.self_in_c, args, PyVectorcall_NARGS(nargsf), kwnames)
    else:
        result = self.call_numpys_own(<PyObject*>self.numpys_own, args, nargsf, kwnames)
    if result == NULL:
        check_raised(self.numpys_own)
    return result


# --- conversions -----------------------------------------------------------------------------------------------------
#
# An array may be its own result here. For that, NumPy takes little longer than CPython takes for a call. These
# functions are therefore builtins, which CPython calls with less overhead than other objects. A builtin with one of our
# objects as its `__self__` would show that object in its qualified name and when it is pickled. Each builtin therefore
# has a separate entry point.

cdef enum:
    MOST_BUILTINS = 4
    NO_CONVERSION = -1      # `kept_flags` of a function that is not a conversion

cdef list builtins = []             # (array function, name, text) of each, which its definition points to
cdef PyMethodDef definitions_of_builtins[MOST_BUILTINS]
cdef PyObject* called_by_builtins[MOST_BUILTINS]


cdef inline PyObject* keep_or_convert(int i, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    cdef PyObject* function = called_by_builtins[i]
    if n == 1 and kwnames == NULL and is_kept(<ArrayFunction>function, args[0]):
        Py_INCREF(<object>args[0])
        return args[0]
    return convert_array(function, args, n, kwnames)


cdef PyObject* convert_array(PyObject* function, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    """Convert an array or number that is not its own result.

    NumPy converts arrays with axes whatever is active, and numbers too if `keeps` is "K": no operator is involved. An
    operator gives an axis to an array without axes.
    """
    cdef ArrayFunction self = <ArrayFunction>function
    cdef PyTypeObject* cls
    cdef PyObject* result
    cdef cnp.npy_intp extent = 1, stride
    cdef bint is_numpys
    if n != 1 or kwnames != NULL:
        return call_function_in_c(function, args, n, kwnames)
    cls = Py_TYPE(args[0])
    if cls == &PyArray_Type:
        is_numpys = PyArray_NDIM(<PyArrayObject*>args[0]) or (<State>borrowed_state()).plain
        if is_numpys and self.kept_flags and not PyArray_NDIM(<PyArrayObject*>args[0]):
            stride = PyArray_ITEMSIZE(<PyArrayObject*>args[0])
            return new_reference(view_with(<PyArrayObject*>args[0], 1, &extent, &stride))
    else:
        is_numpys = is_scalar_type(cls) and (self.kept_flags == 0 or (<State>borrowed_state()).plain)
    if not is_numpys:
        return call_function_in_c(function, args, n, kwnames)
    result = self.function_in_c(self.self_in_c, args, 1, NULL)
    if result == NULL:
        check_raised(self.numpys_own)
    return result


cdef PyObject* convert_by_first(PyObject* _, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    return keep_or_convert(0, args, n, kwnames)


cdef PyObject* convert_by_second(PyObject* _, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    return keep_or_convert(1, args, n, kwnames)


cdef PyObject* convert_by_third(PyObject* _, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    return keep_or_convert(2, args, n, kwnames)


cdef PyObject* convert_by_fourth(PyObject* _, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) except NULL:
    return keep_or_convert(3, args, n, kwnames)


cdef FunctionInC entries_of_builtins[MOST_BUILTINS]
entries_of_builtins[:] = [<FunctionInC>convert_by_first, <FunctionInC>convert_by_second, <FunctionInC>convert_by_third,
                          <FunctionInC>convert_by_fourth]


def as_builtin(ArrayFunction function not None, str signature not None):
    """Return a builtin that converts as this function does, with its name and documentation.

    The function must have `keeps`. If a module was imported in part and then again, its old builtin calls the new
    function from now on.
    """
    cdef PyMethodDef* definition
    cdef bytes name = function.__name__.encode()
    cdef bytes text = f"{function.__name__}{signature}\n--\n\n{function.__doc__}".encode()
    cdef Py_ssize_t i = 0
    while i < len(builtins) and builtins[i][1] != name:
        i += 1
    if i == MOST_BUILTINS or function.kept_flags == NO_CONVERSION or function.function_in_c == NULL:
        raise ValueError(f"{function} cannot be a builtin: it is not a conversion, NumPy's function is not in C, or "
                         f"there are already {MOST_BUILTINS} builtins")
    builtins[i:i + 1] = [(function, name, text)]
    called_by_builtins[i] = <PyObject*>function
    definition = &definitions_of_builtins[i]
    definition.ml_name, definition.ml_doc, definition.ml_meth = name, text, <PyCFunction>entries_of_builtins[i]
    definition.ml_flags = METH_FASTCALL | METH_KEYWORDS
    function.builtin = PyCFunction_NewEx(definition, NULL, function.__module__)
    return function.builtin


cdef dict KEPT_FLAGS = {None: NO_CONVERSION, "K": 0, "C": NPY_ARRAY_C_CONTIGUOUS, "F": NPY_ARRAY_F_CONTIGUOUS}

cdef object type_of_askers = type(numpy.sum) if type(numpy.sum) is not type(lambda: None) else None
# the type of NumPy's functions that dispatch on `__array_function__` before they call the function that they wrap


cdef class ArrayFunction:
    """A function of `pydispatch.numpy`.

    `numpy_function` is NumPy's function, or None. It gets NumPy arrays while no transform, mode or guard is active.
    `implementation` is the same function written with operators.

    `operator` gets simple calls. These have `n_arrays` to `n_positional` positional arguments, and only keywords that
    are in `keywords`. The first `n_arrays` arguments are arrays or numbers, or vectors if the function is `of_vectors`.
    With `joins` the first argument is a list of arrays. With `after_text` a string precedes the arrays. With
    `numpy_first` the operator gets only calls that NumPy's function does not get.

    `added` are the keywords that NumPy's function does not have. A function that `creates` arrays from shapes and
    numbers makes arrays of the default backend. NumPy's function is called if that is "CPU". `on_error` is called with
    each error of a call, and may add to its message.

    `keeps` is the memory layout of arrays that are their own results: "C", "F", or "K" for any. Only `as_builtin` uses
    it. A call of the function itself goes to NumPy's.
    """

    def __cinit__(self, numpy_function, implementation not None, OpOverloadPacket operator or None=None,
                  Py_ssize_t n_arrays=0, Py_ssize_t n_positional=0, frozenset keywords=frozenset(),
                  frozenset added=None, str keeps=None, bint numpy_first=False, bint joins=False, bint creates=False,
                  bint of_vectors=False, bint after_text=False, on_error=None):
        share_freely(self)
        self.vectorcall = <vectorcallfunc>call_array_function
        self.numpy_function, self.implementation, self.operator = numpy_function, implementation, operator
        self.numpys_own = numpy_function.__wrapped__ if type(numpy_function) is type_of_askers else numpy_function
        self.call_numpys_own = PyVectorcall_Function(<PyObject*>self.numpys_own)
        if self.call_numpys_own == NULL:
            self.call_numpys_own = <vectorcallfunc>PyObject_Vectorcall
        if PyCFunction_Check(<PyObject*>self.numpys_own) and (
                PyCFunction_GetFlags(<PyObject*>self.numpys_own) == (METH_FASTCALL | METH_KEYWORDS)):
            self.function_in_c = <FunctionInC>PyCFunction_GetFunction(<PyObject*>self.numpys_own)
            self.self_in_c = PyCFunction_GetSelf(<PyObject*>self.numpys_own)
            if operator is None:
                self.vectorcall = <vectorcallfunc>call_function_in_c
        self.on_error = on_error
        if on_error is not None:
            self.vectorcall = <vectorcallfunc>call_naming_errors
        self.n_arrays, self.n_positional, self.keywords = n_arrays, n_positional, keywords
        self.added = None if added is None else tuple(added)
        self.kept_flags, self.numpy_first, self.joins = KEPT_FLAGS[keeps], numpy_first, joins
        self.creates, self.of_vectors, self.after_text = creates, of_vectors, after_text
        self.maker = (ZEROS if numpy_function is numpy.zeros else EMPTY if numpy_function is numpy.empty
                      else ARANGE if numpy_function is numpy.arange
                      else ASARRAY if numpy_function is numpy.asarray else NO_MAKER)

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))

    @property
    def public(self):
        """The object that users call: this function, or its builtin."""
        return self if self.builtin is None else self.builtin

    def on_tensors(self, *args, **kwargs):
        """Call the operator or the implementation, never NumPy's function."""
        return call_on_tensors(self, args, kwargs)

    def __reduce__(self):
        return self.__qualname__

    def __repr__(self):
        return f"<array function {self.__module__}.{self.__qualname__}>"


cdef object call_on_tensors(ArrayFunction function, tuple args, dict kwargs):
    if function.on_error is None:
        return call_own(function, args, kwargs)
    try:
        return call_own(function, args, kwargs)
    except Exception as error:
        function.on_error(error)
        raise


cdef object call_own(ArrayFunction function, tuple args, dict kwargs):
    """Call the operator or the implementation."""
    cdef tuple values = args, names = None
    cdef PyObject* kwnames = NULL
    if kwargs:
        values, names = flatten_call(args, kwargs)
        kwnames = <PyObject*>names
    called = <PyObject*>(function.operator if is_operators_own(function, items_of(values), len(args), kwnames)
                         else function.implementation)
    return steal(PyObject_Vectorcall(called, items_of(values), len(args), kwnames))


cdef dict functions_of_numpy = {}


def set_functions_of_numpy(dict functions not None):
    """Set the array function of each of NumPy's functions, for `Tensor.__array_function__`."""
    global functions_of_numpy
    functions_of_numpy = functions


cdef object call_function_of_numpy(function, types, tuple args, dict kwargs):
    value = functions_of_numpy.get(function)
    if value is None:
        value = upcalls.function_of_numpy(function)
    for cls in types:
        if cls is not Tensor and not issubclass(cls, (Tensor, cnp.ndarray)) and hasattr(cls, "__array_function__"):
            return NotImplemented
    return call_on_tensors(<ArrayFunction?>value, args, kwargs)


cdef ArrayFunction some_array_function = ArrayFunction(None, len)
make_vectorcallable(ArrayFunction, <char*>&some_array_function.vectorcall - <char*><PyObject*>some_array_function)
