# Binding: the arguments of a call, one value per schema argument, types checked.


cdef inline void release(Frame* frame) noexcept:
    cdef int i
    while frame.owned:
        i = highest_bit(frame.owned)
        frame.owned &= ~bit(i)
        Py_XDECREF(frame.storage[i + 1])
    Py_XDECREF(frame.kept)
    frame.kept = NULL


cdef inline bint fits(unsigned char kind, PyObject* value) noexcept:
    """Return whether a value surely needs no conversion. This is a fast check: on False, try the converter."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    if value == Py_None:
        return kind & OPTIONAL != 0
    if kind & KIND == ARRAY:
        return (cls == &PyArray_Type or (is_scalar_type(cls) and not kind & WRITTEN)
                or (is_tensor_type(cls) and (<Tensor>value).word))
    kind &= KIND
    if kind == INT:
        return cls == &PyLong_Type
    if kind == FLOAT:
        return cls == &PyFloat_Type
    if kind == BOOL:
        return cls == &PyBool_Type
    if kind == STR:
        return cls == &PyUnicode_Type
    if kind == INTS:
        return cls == &PyTuple_Type and are_ints(value)
    if kind == INT_OR_INTS:
        return cls == &PyLong_Type or cls == &PyTuple_Type and are_ints(value)
    if kind == SCALAR:
        return is_scalar_type(cls)
    if kind == NUMPY_DTYPE:
        return PyArray_DescrCheck(value)
    return kind == ANYTHING and needs_no_conversion(value, False, 0)    # surely holds no arrays


cdef inline bint fits_as_pytree(unsigned char kind, PyObject* value) except -1:
    """Return whether a value that may hold arrays surely needs no conversion."""
    kind &= KIND
    return kind == ANYTHING and needs_no_conversion(value, True, 0) or kind == ARRAYS and are_arrays(value)


cdef object converted_in_c(unsigned char kind, size, PyObject* value):
    """Convert the commonest values that need it. Return None to leave a value to the converter."""
    if kind == INTS and Py_TYPE(value) == &PyLong_Type and size == 1:
        return (<object>value,)
    if (kind == INTS or kind == ARRAYS) and Py_TYPE(value) == &PyList_Type:
        items = tuple(<list><object>value)
        if are_ints(<PyObject*>items) if kind == INTS else are_arrays(<PyObject*>items):
            return items
    if kind == NUMPY_DTYPE and (Py_TYPE(value) == &PyType_Type or Py_TYPE(value) == &PyUnicode_Type):
        return known_dtypes.get(<object>value)
    return None


cdef dict known_dtypes = {cls: numpy.dtype(cls) for cls in (bool, int, float, complex, *numpy.sctypeDict.values())}

# numpy.sctypeDict holds dtypes of other packages too (ml_dtypes, which JAX imports), whose names numpy may not know
known_dtypes = {cls: dtype for cls, dtype in known_dtypes.items() if dtype.isbuiltin == 1}

known_dtypes.update({
    name: numpy.dtype(name) for dtype in list(known_dtypes.values()) for name in (dtype.name, dtype.str[1:])
})


cdef object convert(op, Signature signature, Py_ssize_t i, PyObject* value):
    cdef unsigned char kind = signature.kind[i] & KIND
    if kind == ARRAY and word_of_array(value) and not (signature.kind[i] & WRITTEN and is_numpy_scalar(<object>value)):
        return <object>value
    converted = converted_in_c(kind, signature.sizes[i], value)
    if converted is not None:
        return converted
    if is_tensor_type(Py_TYPE(value)) and (<Tensor>value).word == 0:
        raise DispatchTypeError(
            f"operator {op.name}: argument {signature.names[i]!r} (position {i + 1}) is a "
            f"{type(<object>value).__name__} "
            "that was never initialized\ncall super().__init__(array) in its __init__"
        )
    try:
        return schema_of(signature).arguments[i].convert(<object>value)
    except (TypeError, ValueError, OverflowError) as error:
        reason = error
    raise upcalls.wrong_type(op, signature.schema, i, <object>value, reason) from None


cdef inline void begin_frame(Frame* frame) noexcept:
    """Clear everything that the frame owns, and its keyword-only arguments."""
    frame.owned = 0
    frame.kept = NULL
    frame.original = NULL
    frame.names = NULL
    frame.n_names = 0


cdef inline bint bind_directly(
    Frame* frame, PyObject* signature, PyObject* const* args, size_t nargsf, PyObject* kwnames
) noexcept:
    """Bind a common call, steps 1 and 3 in one pass: nothing to convert, arrays and no pytrees.

    The frame owns nothing afterwards. If this returns False, `bind_in_general` binds the call or raises the error.
    """
    cdef Py_ssize_t n = PyVectorcall_NARGS(nargsf)
    begin_frame(frame)
    frame.direct = True
    frame.word = 0
    frame.values = args
    frame.count = n
    frame.offset_flag = nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET
    if n > (<Signature>signature).n_positional or n == MAX_ARGUMENTS:
        return False
    if kwnames == NULL:
        return (<Signature>signature).required >> n == 0 and all_fit(frame, signature, args, &frame.raw[1], 0, n)
    return bind_names_directly(frame, signature, args, n, kwnames)


cdef inline bint all_fit(
    Frame* frame, PyObject* signature, PyObject* const* values, PyObject** raw, Py_ssize_t i, Py_ssize_t stop
) noexcept:
    """Return whether the arguments i to stop take these values unconverted. Note their keys and raw arrays."""
    cdef uint64_t word = 0
    cdef PyTypeObject* cls
    while i < stop:
        raw[i] = values[i]
        cls = Py_TYPE(values[i])
        if (<Signature>signature).kind[i] & KIND == ARRAY and cls == &PyArray_Type:
            word |= CPU_WORD
        elif ((<Signature>signature).kind[i] & KIND == ARRAY and (cls == TENSOR_TYPE or cls == GRAD_TYPE
                or cls == BATCHED_TYPE or cls == JVP_TYPE) and (<Tensor>values[i]).word):
            word |= (<Tensor>values[i]).word
            raw[i] = <PyObject*>(<Tensor>values[i]).array
        elif not fits_otherwise((<Signature>signature).kind[i], values[i], &word, &raw[i]):
            return False
        i += 1
    frame.word |= word
    return True


cdef bint fits_otherwise(unsigned char kind, PyObject* value, uint64_t* word, PyObject** raw) noexcept:
    """Check one value as `all_fit` does: one of a less common class, or for an argument of any type."""
    cdef PyTypeObject* cls = Py_TYPE(value)
    cdef KnownType* known
    if kind & KIND == ARRAY:
        known = known_type(cls)
        if known != NULL:
            word[0] |= known.word
            return True
        if type_of_scalar(cls) >= 0 and not kind & WRITTEN:
            word[0] |= CPU_WORD
            return True
    if fits(kind, value):
        if not is_scalar_type(cls) and kind & KIND == ARRAY and value != Py_None:
            word[0] |= (<Tensor>value).word
            raw[0] = <PyObject*>(<Tensor>value).array
        return True
    if kind & KIND != ANYTHING:
        return False
    if cls == &PyArray_Type:
        word[0] |= CPU_WORD
        return True
    if cls != TENSOR_TYPE or not (<Tensor>value).word:
        return False
    word[0] |= (<Tensor>value).word
    raw[0] = <PyObject*>(<Tensor>value).array
    return True


cdef bint bind_names_directly(
    Frame* frame, PyObject* signature, PyObject* const* args, Py_ssize_t n, PyObject* kwnames
) noexcept:
    """Bind keywords as `bind_directly` does: all positional arguments, or all keyword-only ones in schema order."""
    cdef Py_ssize_t n_positional = (<Signature>signature).n_positional, k, i, last = n - 1
    cdef uint64_t passed = bit(n) - 1
    frame.n_names = PyTuple_GET_SIZE(kwnames)
    for k in range(frame.n_names):
        i = interned_position(signature, PyTuple_GET_ITEM(kwnames, k))
        if i < 0 or passed & bit(i):
            return False
        passed |= bit(i)
        if i < n_positional:
            frame.storage[i + 1] = args[n + k]
            if not all_fit(frame, signature, &args[n + k - i], &frame.raw[1], i, i + 1):
                return False
        elif i < last or not all_fit(frame, signature, &args[n + k - i], &frame.raw[1 + n + k - i], i, i + 1):
            return False
        elif may_be_default(signature, i, args[n + k]):
            return False
        last = max(i, last)
    if (<Signature>signature).required & ~passed or not all_fit(frame, signature, args, &frame.raw[1], 0, n):
        return False
    if last < n_positional:
        bind_positions(frame, signature, args, n, last + 1, passed)
        return True
    if passed & (bit(n_positional) - 1) != bit(n) - 1:
        return False    # both kinds of keywords at once
    if (<Signature>signature).mutable or not (<Signature>signature).returns_fresh_tensor:
        return False    # later steps have to find a keyword argument again
    frame.names = kwnames
    return n == 0 or not may_be_default(signature, n - 1, args[n - 1])


cdef inline void bind_positions(
    Frame* frame, PyObject* signature, PyObject* const* args, Py_ssize_t n, Py_ssize_t count, uint64_t passed
) noexcept:
    """Put positional values before those passed by name, which are in place already, and defaults in between."""
    cdef Py_ssize_t i
    for i in range(n):
        frame.storage[i + 1] = args[i]
    for i in range(n, count):
        if not passed & bit(i):
            frame.storage[i + 1] = PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i)
            frame.raw[i + 1] = frame.storage[i + 1]
    frame.values = &frame.storage[1]
    frame.count = count
    frame.n_names = 0
    frame.offset_flag = PY_VECTORCALL_ARGUMENTS_OFFSET


cdef inline Py_ssize_t interned_position(PyObject* signature, PyObject* name) noexcept:
    cdef PyObject* names = <PyObject*>(<Signature>signature).names
    cdef Py_ssize_t i
    for i in range((<Signature>signature).n_arguments):
        if PyTuple_GET_ITEM(names, i) == name:
            return i
    return -1


cdef inline bint may_be_default(PyObject* signature, Py_ssize_t i, PyObject* value) noexcept:
    """Return whether a value that fits may equal its default, or True if only Python code can decide that."""
    cdef unsigned char kind = (<Signature>signature).kind[i] & KIND
    cdef PyObject* default = PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i)
    if (<Signature>signature).required & bit(i):
        return False
    if kind == ANYTHING:
        return True
    if kind == INTS and value != Py_None and default != Py_None:
        return PyTuple_GET_SIZE(value) == PyTuple_GET_SIZE(default)
    return equals_default(kind, value, default)     # of numbers and strings, which cannot raise


cdef int bind(Frame* frame, op, Signature signature, PyObject* const* args, size_t nargsf, PyObject* kwnames) except -1:
    """Bind a call: step 1, and the arguments' part of step 3. The caller has to `release` the frame."""
    if bind_directly(frame, <PyObject*>signature, args, nargsf, kwnames) and frame.names == NULL:
        return 0
    return bind_in_general(frame, op, signature, args, PyVectorcall_NARGS(nargsf), kwnames)


cdef int bind_in_general(
    Frame* frame, op, Signature signature, PyObject* const* args, Py_ssize_t n, PyObject* kwnames
) except -1:
    cdef Py_ssize_t i, k
    cdef PyObject** values = &frame.storage[1]
    if n > signature.n_positional:
        raise upcalls.too_many_arguments(op, signature.schema, n)
    for i in range(n):
        values[i] = args[i]
    for i in range(n, signature.n_arguments):
        values[i] = NULL
    if kwnames != NULL:
        for k in range(PyTuple_GET_SIZE(kwnames)):
            i = position_of(signature, PyTuple_GET_ITEM(kwnames, k))
            if i < 0:
                raise upcalls.unknown_keyword(op, signature.schema, <object>PyTuple_GET_ITEM(kwnames, k),
                                              <object>args[n + k])
            if values[i] != NULL:
                raise upcalls.given_twice(op, signature.schema, i, <object>args[n + k])
            values[i] = args[n + k]
    return convert_all(frame, op, signature)


cdef int bind_values(Frame* frame, op, Signature signature, tuple values) except -1:
    """Bind a boxed call, in which every argument has a value: step 1."""
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        frame.storage[i + 1] = PyTuple_GET_ITEM(<PyObject*>values, i)
    return convert_all(frame, op, signature)


cdef int convert_all(Frame* frame, op, Signature signature) except -1:
    cdef Py_ssize_t i
    cdef PyObject** values = &frame.storage[1]
    frame.values = values
    frame.count = signature.n_arguments
    frame.offset_flag = PY_VECTORCALL_ARGUMENTS_OFFSET
    frame.direct = False
    begin_frame(frame)
    try:
        for i in range(signature.n_arguments):
            if values[i] == NULL:
                if signature.required & bit(i):
                    raise upcalls.missing_argument(op, signature.schema, i)
            elif not fits(signature.kind[i], values[i]) and not fits_as_pytree(signature.kind[i], values[i]):
                converted = convert(op, signature, i, values[i])
                Py_INCREF(converted)
                values[i] = <PyObject*>converted
                frame.owned |= bit(i)
        collect_keys(frame, signature)
    except BaseException:
        release(frame)
        raise
    return 0


cdef inline int collect_keys(Frame* frame, Signature signature) except -1:
    """Collect the union of the arguments' words: their part of step 3."""
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count):
        if signature.arrays & bit(i):
            value = frame.values[i]
            if value != NULL:
                if signature.kind[i] & KIND == ARRAY:
                    word |= word_of_array(value)
                else:
                    word |= word_of_value(value)
    frame.word = word
    return 0


cdef Py_ssize_t position_of(Signature signature, PyObject* name) except -2:
    cdef Py_ssize_t i = interned_position(<PyObject*>signature, name)
    if i < 0 and not is_interned(name) and <object>name in signature.names:
        i = signature.names.index(<object>name)
    return i


cdef inline PyObject* value_at(Frame* frame, Py_ssize_t i) noexcept:
    return frame.values[i] if i < frame.count else NULL


cdef tuple arguments_with(Frame* frame, Signature signature, change):
    """Return (args, kwargs) of a call, as passed. Apply `change` to every array unless it is None."""
    cdef Py_ssize_t i, positional = 0
    cdef list args = []
    cdef dict kwargs = {}
    for i in range(min(frame.count, signature.n_positional)):
        if frame.values[i] != NULL:
            positional = i + 1
    for i in range(positional):
        args.append(changed(<object>value_or_default(frame, signature, i), change))
    for i in range(signature.n_positional, signature.n_arguments):
        if value_at(frame, i) != NULL:
            kwargs[signature.names[i]] = changed(<object>value_at(frame, i), change)
    return tuple(args), kwargs


cdef object changed(value, change):
    if change is None or not word_of_value(<PyObject*>value) & TENSOR_FLAG:
        return value
    return change(value) if isinstance(value, Tensor) else upcalls.map_arrays(change, value)


cdef inline PyObject* value_or_default(Frame* frame, Signature signature, Py_ssize_t i) except NULL:
    """Return the value of an argument, or its default."""
    cdef PyObject* value = value_at(frame, i)
    return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i) if value == NULL else value


cdef bint is_argument(Frame* frame, value) noexcept:
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] == <PyObject*>value:
            return True
    return False
