# Results of kernels: checked and wrapped.

cdef inline bint is_fresh_array(Signature signature, Frame* frame, PyObject* result) noexcept:
    """Return True on a fast check, for one array and arguments that are arrays and numbers. On False, use
    `check_fresh`.

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
    """Return whether an array that is not a view is none of the arguments, and none of them is a view of it."""
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
    """Return the array at the end of the chain of `base`, or NULL if something else is in the chain."""
    cdef PyObject* base = PyArray_BASE(<PyArrayObject*>array)
    while base != NULL:
        if Py_TYPE(base) != &PyArray_Type:
            return NULL
        array = base
        base = PyArray_BASE(<PyArrayObject*>array)
    return array


cdef int check_fresh(Signature signature, TableEntry entry, Frame* frame, result) except -1:
    """Raise if a result shares memory with an array argument or another result, and that is not declared."""
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
        if frame.n_names == 0 and not signature.lists:      # omitted arguments are not arrays
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
    """Return the value with raw arrays instead of Tensors, also inside pytrees."""
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
    """Check and wrap the result of a kernel: step 7."""
    cdef KnownType* known
    if signature.returns_fresh_tensor:
        if Py_TYPE(<PyObject*>result) == &PyArray_Type:
            return wrap(result) if frame.word & TENSOR_FLAG else result
        if Py_TYPE(<PyObject*>result) == TENSOR_TYPE and frame.word & TENSOR_FLAG:
            return result
        known = known_type(Py_TYPE(<PyObject*>result))
        if known != NULL:
            return wrap_known(signature, frame, result, known) if frame.word & TENSOR_FLAG else result
        if is_numpy_scalar(result):     # universal functions return one for 0-d arrays
            return wrap_scalar(result) if frame.word & TENSOR_FLAG else result
    elif signature.view_of >= 0:
        if Py_TYPE(<PyObject*>result) == &PyArray_Type:
            return finish_view(signature, frame, result) if frame.word & TENSOR_FLAG else result
        if is_numpy_scalar(result):
            return wrap_scalar(result) if frame.word & TENSOR_FLAG else result
    return finish_all(op, signature, entry.kernel, frame, result, True)


cdef Tensor wrap_known(Signature signature, Frame* frame, array, KnownType* known):
    """Return a new Tensor of a new array of another backend."""
    cdef Tensor tensor = wrap_of_word(array, known.word)
    if known.is_ndarray and PyArray_NDIM(<PyArrayObject*><PyObject*>array):
        return tensor
    if is_scalar_result(signature, frame, tensor):
        tensor.word |= SCALAR_FLAG
    return tensor


cdef object finish_view(Signature signature, Frame* frame, array):
    """Return a new Tensor of an ndarray that may lie in the memory of one argument."""
    cdef Tensor tensor = <Tensor>steal(wrap_ndarray(new_reference(array)))
    cdef PyObject* source = value_at(frame, signature.view_of)
    if source != NULL and is_tensor_type(Py_TYPE(source)):
        if (<Tensor>source).word & SCALAR_FLAG:
            mark_or_share(signature, frame, 0, tensor)
        elif have_one_owner(<PyObject*>array, <Tensor>source):
            share_memory(tensor, <Tensor>source)
    return tensor


cdef int mark_or_share(Signature signature, Frame* frame, Py_ssize_t i, Tensor tensor) except -1:
    """Mark a new result that NumPy would return as a scalar. Let any other view share the memory of its base."""
    cdef bint is_view = PyTuple_GET_SIZE(PyTuple_GET_ITEM(<PyObject*>signature.return_views, i)) != 0
    if is_scalar_result(signature, frame, tensor):
        if is_view and signature.zero_d != AS_FIRST and is_batched(tensor):
            move_to_own_memory(tensor)      # for a batch of elements, the kernel made a view
        tensor.word |= SCALAR_FLAG
    elif is_view:
        share_with_base(signature, frame, i, tensor)
    return 0


cdef inline bint is_scalar_result(Signature signature, Frame* frame, Tensor tensor) except -1:
    """Return whether NumPy would return a scalar for this result of a call."""
    cdef PyObject* value
    if signature.zero_d == AN_ARRAY or rank_of(
            <PyObject*>tensor if tensor.word & WRAPPER_FLAG else <PyObject*>tensor.array):
        return False
    if signature.zero_d == AS_FIRST:
        value = value_at(frame, 0)
        return value != NULL and is_tensor_type(Py_TYPE(value)) and (<Tensor>value).word & SCALAR_FLAG != 0
    return signature.zero_d != BY_KEY or not has_ellipsis(value_at(frame, 1))


def is_scalar(value):
    """Return whether a value is a scalar Tensor, or a NumPy scalar: an immutable value."""
    return isinstance(value, Tensor) and (<Tensor>value).word & SCALAR_FLAG != 0 or is_numpy_scalar(value)


cpdef to_scalar(value):
    """Return a value without axes as a scalar: the element of an ndarray, or a Tensor itself, now immutable."""
    if isinstance(value, Tensor):
        if rank_of(<PyObject*>value) == 0:
            (<Tensor>value).word |= SCALAR_FLAG
    elif Py_TYPE(<PyObject*>value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*><PyObject*>value) == 0:
        return steal(PyArray_Scalar(PyArray_DATA(<PyArrayObject*><PyObject*>value),
                                    PyArray_DESCR(<PyArrayObject*><PyObject*>value), <PyObject*>value))
    return value


def make_assignable(Tensor tensor not None):
    """Let elements of a scalar be assigned, as the array API standard does: there, it is an array without axes.

    Code that requests a value's namespace follows the standard, and may write to what it has computed. It cannot
    distinguish a scalar from an array, since libraries recognize NumPy scalars by their class. `scalar += value`
    rebinds as before.
    """
    cdef PyObject* value = <PyObject*>tensor
    while is_tensor_type(Py_TYPE(value)) and (<Tensor>value).word & SCALAR_FLAG:
        (<Tensor>value).word |= ASSIGNABLE_FLAG
        value = <PyObject*>(<Tensor>value).array


cdef bint has_ellipsis(PyObject* key) noexcept:
    cdef Py_ssize_t i
    if PyTuple_CheckExact(key):
        for i in range(PyTuple_GET_SIZE(key)):
            if PyTuple_GET_ITEM(key, i) == Py_Ellipsis:
                return True
    return key == Py_Ellipsis


cdef int move_to_own_memory(Tensor tensor) except -1:
    """Copy the value of a new Tensor, so that it shares memory with nothing."""
    if isinstance(tensor.array, Shell):
        (<Shell>tensor.array).owner = object()
    elif Py_TYPE(<PyObject*>tensor.array) == &PyArray_Type and not watches_arrays(state_now()):
        tensor.array = steal(PyArray_NewCopy(<PyArrayObject*><PyObject*>tensor.array, NPY_KEEPORDER))
    elif isinstance(tensor, Wrapper) and is_active((<Wrapper>tensor).interpreter, state_now()):
        tensor.array = lowered((<Wrapper>tensor).interpreter, upcalls.copy, tensor.array)
    else:
        tensor.array = upcalls.copy(tensor.array)
    return 0


cdef inline bint have_one_owner(PyObject* array, Tensor source) except -1:
    """Return whether an ndarray belongs to the memory of a Tensor."""
    cdef PyObject* owner = owner_of_ndarray(array)
    if owner == NULL or Py_TYPE(<PyObject*>source.array) != &PyArray_Type:
        return memory_owner(source) is owner_of(<object>array)
    return owner_of_ndarray(<PyObject*>source.array) == owner


cdef object finish_all(OpOverload op, Signature signature, maker, Frame* frame, result, bint raw_out):
    """Apply step 7 in general. `maker` is the kernel or a handler's owner. `raw_out` unwraps if arguments are raw."""
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
        if signature.return_is_tensor[i] and reads_objects(frame, signature):
            result = array_of_object(result)
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


cdef bint reads_objects(Frame* frame, Signature signature) except -1:
    """Return whether an argument is an array of objects. Results of these without axes may be any object."""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] != NULL and signature.arrays & bit(i):
            for leaf in array_leaves(<object>frame.values[i]):
                while isinstance(leaf, Tensor):
                    leaf = (<Tensor>leaf).array
                if isinstance(leaf, numpy.ndarray) and leaf.dtype.hasobject:
                    return True
    return False


cdef object array_of_object(value):
    """Return an object as an array without axes."""
    array = numpy.empty((), object)
    array[()] = value
    return array


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
    """Return the value with Tensors instead of raw arrays, also inside pytrees. Views share their base's version."""
    cdef Tensor tensor
    if isinstance(value, Tensor) or value is None or is_scalar_type(Py_TYPE(<PyObject*>value)):
        return value
    if word_of_array(<PyObject*>value):
        tensor = wrap(value)
        if not tensor.word & SCALAR_FLAG:
            mark_or_share(signature, frame, i, tensor)
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
                if (<Tensor>candidate).word & SCALAR_FLAG:
                    move_to_own_memory(view)
                elif signature.detaches:
                    view.memory = memory_of_detached(candidate)
                else:
                    share_memory(view, candidate)
                return 0
    return 0


cdef tuple arguments_of(Frame* frame, Signature signature):
    """Return (name, value) of the arguments that were passed, for messages."""
    cdef Py_ssize_t i
    cdef list arguments = []
    for i in range(min(frame.count, signature.n_arguments)):
        if frame.values[i] != NULL:
            arguments.append((signature.names[i], <object>frame.values[i]))
    return tuple(arguments)
