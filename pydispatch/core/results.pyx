# Results of kernels: checked and wrapped.


cdef inline bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept:
    """The quick yes, for one array and arguments that are arrays and numbers; a no asks `check_fresh`.

    The arrays are ndarrays, or of a type whose objects are never views.
    """
    cdef Py_ssize_t i
    cdef PyObject* owner
    if not signature.returns_fresh_tensor or signature.lists:
        return False
    if Py_TYPE(result) != &PyArray_Type:
        return is_never_view(result) and is_none_of(frame, result)
    owner = owner_of_ndarray(result)
    if owner == NULL:
        return False
    for i in range(frame.count + frame.n_names):
        if Py_TYPE(frame.raw[i + 1]) == &PyArray_Type:
            if owner_of_ndarray(frame.raw[i + 1]) == owner:
                return False
        elif not is_scalar_type(Py_TYPE(frame.raw[i + 1])) and frame.raw[i + 1] != Py_None:
            return False
    return True


cdef bint is_none_of(Frame* frame, PyObject* result) noexcept:
    """Is an array that is no view another than the arguments, which are no views of it?"""
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(1, frame.count + frame.n_names + 1):
        value = frame.raw[i]
        if value == result or not (is_never_view(value) or is_scalar_type(Py_TYPE(value)) or value == Py_None
                                   or Py_TYPE(value) == &PyArray_Type and owner_of_ndarray(value) != NULL):
            return False
    return True


cdef inline bint is_never_view(PyObject* value) noexcept:
    cdef KnownType* known = known_type(Py_TYPE(value))
    return known != NULL and known.owns_itself


cdef inline PyObject* owner_of_ndarray(PyObject* array) noexcept:
    """The array at the end of the chain of `base`; NULL when something else is in it."""
    cdef PyObject* base = PyArray_BASE(<PyArrayObject*>array)
    while base != NULL:
        if Py_TYPE(base) != &PyArray_Type:
            return NULL
        array = base
        base = PyArray_BASE(<PyArrayObject*>array)
    return array


cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1:
    """Raise for a result that shares memory with an array argument, or with another result, undeclared."""
    cdef Py_ssize_t i, k, n = signature.n_returns
    cdef list seen = []
    cdef PyObject* value
    if n == 1 and signature.returns_fresh_tensor and (
            Py_TYPE(<PyObject*>result) == &PyArray_Type or known_type(Py_TYPE(<PyObject*>result)) != NULL):
        owner = owner_of(result)
        for i in range(frame.count):
            value = frame.values[i]
            if value != NULL and signature.kind[i] & KIND == ARRAY and word_of_array(value):
                if owner_of(unwrap_value(<object>value)) is owner:
                    raise upcalls.aliasing_error(signature.schema, entry.kernel, 0, signature.names[i])
        if frame.n_names == 0 and not signature.lists:      # what was not passed is no array
            return 0
    results = (result,) if n == 1 else tuple(result) if isinstance(result, (tuple, list)) else ()
    for i, item in enumerate(results):
        if i >= n:
            break
        if signature.return_source[i] >= 0:
            value = value_at(frame, signature.return_source[i])
            if value != NULL and item is not unwrap_value(<object>value):
                raise upcalls.aliasing_error(signature.schema, entry.kernel, i, None)
            continue
        if signature.return_views[i]:
            continue
        for leaf in array_leaves(item):
            owner = owner_of(leaf)
            for k in range(frame.count):
                value = frame.values[k]
                if value == NULL or not signature.arrays & bit(k):
                    continue
                for other in array_leaves(unwrap_value(<object>value)):
                    if owner_of(other) is owner:
                        raise upcalls.aliasing_error(signature.schema, entry.kernel, i, signature.names[k])
            for other in seen:
                if other is owner:
                    raise upcalls.aliasing_error(signature.schema, entry.kernel, i, "another result")
            seen.append(owner)
    return 0


cdef object unwrap_value(value):
    """The value with raw arrays in place of Tensors, inside pytrees too."""
    if isinstance(value, Tensor):
        return (<Tensor>value).array
    if type(value) is tuple:
        return unwrap_items(value)
    if value is None or is_scalar_type(Py_TYPE(<PyObject*>value)) or word_of_array(<PyObject*>value):
        return value
    return upcalls.map_arrays(unwrap_value, value)


cdef tuple unwrap_items(tuple values):
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(<PyObject*>values)
    cdef tuple unwrapped = PyTuple_New(n)
    enter_recursive_call()
    try:
        for i in range(n):
            item = unwrap_value(<object>PyTuple_GET_ITEM(<PyObject*>values, i))
            Py_INCREF(item)
            PyTuple_SET_ITEM(unwrapped, i, item)
    finally:
        leave_recursive_call()
    return unwrapped


cdef inline object finish(OpOverload op, Signature signature, TableEntry entry, Frame* frame, result):
    """Step 7."""
    cdef KnownType* known
    if signature.returns_fresh_tensor:
        if Py_TYPE(<PyObject*>result) == &PyArray_Type:
            return wrap(result) if frame.word & TENSOR_FLAG else result
        if Py_TYPE(<PyObject*>result) == TENSOR_TYPE and frame.word & TENSOR_FLAG:
            return result
        known = known_type(Py_TYPE(<PyObject*>result))
        if known != NULL:
            return wrap_of_word(result, known.word) if frame.word & TENSOR_FLAG else result
        if is_numpy_scalar(result):     # what a ufunc makes of 0-d arrays
            return own(wrap_ndarray(give(array_of_scalar(result)))) if frame.word & TENSOR_FLAG else result
    elif signature.view_of >= 0 and Py_TYPE(<PyObject*>result) == &PyArray_Type:
        return finish_view(signature, frame, result) if frame.word & TENSOR_FLAG else result
    return finish_all(op, signature, entry.kernel, frame, result, True)


cdef object finish_view(Signature signature, Frame* frame, array):
    """A new Tensor of an ndarray that may lie in the memory of one argument."""
    cdef Tensor tensor = <Tensor>own(wrap_ndarray(give(array)))
    cdef PyObject* source = value_at(frame, signature.view_of)
    if source != NULL and is_tensor_type(Py_TYPE(source)) and have_one_owner(<PyObject*>array, <Tensor>source):
        share_memory(tensor, <Tensor>source)
    return tensor


cdef inline bint have_one_owner(PyObject* array, Tensor source) except -1:
    """Does an ndarray belong to the memory of a Tensor?"""
    cdef PyObject* owner = owner_of_ndarray(array)
    if owner == NULL or Py_TYPE(<PyObject*>source.array) != &PyArray_Type:
        return memory_owner(source) is owner_of(<object>array)
    return owner_of_ndarray(<PyObject*>source.array) == owner


cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out):
    """Step 7 in general. `maker` is the kernel or the handler's owner; `raw_out` unwraps Tensors for raw arguments."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        if result is not None:
            raise upcalls.wrong_number_returned(op, signature.schema, maker, result)
        return None
    if signature.n_returns == 1:
        return finish_one(op, signature, maker, frame, 0, result, raw_out)
    if not isinstance(result, (tuple, list)) or len(result) != signature.n_returns:
        raise upcalls.wrong_number_returned(op, signature.schema, maker, result)
    finished = []
    for i in range(signature.n_returns):
        finished.append(finish_one(op, signature, maker, frame, i, result[i], raw_out))
    return tuple(finished)


cdef object finish_one(OpOverload op, Signature signature, maker, Frame* frame, Py_ssize_t i, result, bint raw_out):
    cdef Py_ssize_t source = signature.return_source[i]
    cdef PyObject* value
    if not signature.return_is_tensor[i] or not word_of_array(<PyObject*>result):
        result = convert_result(op, signature, maker, frame, i, result)
    if source >= 0:
        value = value_at(frame, source)
        if value != NULL and value != Py_None:
            return <object>value
    if not signature.return_arrays[i]:
        return result
    if frame.word & TENSOR_FLAG:
        return wrap_value(signature, frame, i, result)
    return unwrap_value(result) if raw_out else result


cdef object convert_result(op, Signature signature, maker, Frame* frame, Py_ssize_t i, result):
    if signature.return_is_list[i] and type(result) is list:
        items = tuple(<list>result)
        if are_arrays(<PyObject*>items):
            return items
    try:
        return schema_of(signature).returns[i].convert(
            result, frame.word & META_BACKEND_BIT != 0 or getattr(maker, "is_fake", False))
    except (TypeError, ValueError, OverflowError) as error:
        reason = error
    raise upcalls.wrong_type_returned(op, signature.schema, maker, i, reason) from None


cdef object wrap_value(Signature signature, Frame* frame, Py_ssize_t i, value):
    """The value with Tensors in place of raw arrays, inside pytrees too; views share the version of their base."""
    cdef Tensor tensor
    if isinstance(value, Tensor) or value is None or is_scalar_type(Py_TYPE(<PyObject*>value)):
        return value
    if word_of_array(<PyObject*>value):
        tensor = wrap(value)
        if signature.return_views[i]:
            share_with_base(signature, frame, i, tensor)
        return tensor
    if type(value) is tuple:
        wrapped = []
        enter_recursive_call()
        try:
            for item in <tuple>value:
                wrapped.append(wrap_value(signature, frame, i, item))
        finally:
            leave_recursive_call()
        return tuple(wrapped)
    return upcalls.map_arrays(lambda leaf: wrap_value(signature, frame, i, leaf), value)


cdef int share_with_base(Signature signature, Frame* frame, Py_ssize_t i, Tensor view) except -1:
    cdef PyObject* value
    owner = memory_owner(view)
    for position in signature.return_views[i]:
        value = value_at(frame, position)
        if value == NULL:
            continue
        candidates = (<object>value,) if word_of_array(value) else array_leaves(<object>value)
        for candidate in candidates:
            if (isinstance(candidate, Tensor) and interpreter_of(<Tensor>candidate) is interpreter_of(view)
                    and memory_owner(candidate) is owner):
                if signature.detaches:
                    view.memory = memory_of_detached(candidate)
                    return 0
                return share_memory(view, candidate)
    return 0


cdef tuple arguments_of(Frame* frame, Signature signature):
    """(name, value) of what was passed, for messages."""
    cdef Py_ssize_t i
    cdef list arguments = []
    for i in range(min(frame.count, signature.n_arguments)):
        if frame.values[i] != NULL:
            arguments.append((signature.names[i], <object>frame.values[i]))
    return tuple(arguments)
