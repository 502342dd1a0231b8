# What calls, the tape and the stack know of an interpreter: a running transform or mode.


cdef object describe_interpreter(Interpreter interpreter):
    return upcalls.describe_interpreter(interpreter)


cdef State state_below(State state, Interpreter interpreter):
    while state.innermost is not None and state.innermost is not interpreter:
        state = lowered_state(state)
    if state.innermost is None:
        raise AutogradError(f"{describe_interpreter(interpreter)} is not active here\nuse its values inside the "
                            "function that it was called with, in the same thread")
    return lowered_state(state)


def lowered(Interpreter interpreter or None, function, *args):
    """Call a function below the transform `interpreter`, or in the present state if that no longer runs."""
    if interpreter is None or not interpreter.alive:
        return function(*args)
    return call_in(state_below(state_now(), interpreter), function, args)


cdef Tensor wrap_at(Interpreter interpreter, value, tangent):
    """Return a new, untracked Tensor of the interpreter."""
    cdef Wrapper wrapper
    cdef uint64_t scalar = 0
    if interpreter is None:
        return <Tensor>value if isinstance(value, Tensor) else wrap(value)
    wrapper = interpreter.new_wrapper(value, tangent)
    if is_numpy_scalar(value):
        value = array_of_scalar(value)
        scalar = SCALAR_FLAG
    elif Py_TYPE(<PyObject*>value) != &PyArray_Type and is_numpy_matrix(<PyObject*>value):
        value = as_plain_array(value)
    wrapper.array = value
    wrapper.word = scalar | (word_of_array(<PyObject*>value) & (KEY_BITS | SCALAR_FLAG) & ~PYTHON_BIT)
    wrapper.word |= TENSOR_FLAG | WRAPPER_FLAG
    wrapper.word |= AUTOGRAD_BIT if wrapper.word & DENSE_BIT else AUTOGRAD_OTHER_BIT
    wrapper.interpreter = interpreter
    return wrapper


cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter):
    """Call the operator on the values of the interpreter below, with this interpreter absent."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i
    cdef Cell around
    push_state(&around, lowered_state(state))
    try:
        if frame.direct:
            for i in range(frame.count):
                values[i + 1] = frame.values[i]
                if owned_by(frame.values[i], interpreter):
                    values[i + 1] = <PyObject*>(<Tensor>frame.values[i]).array
            return steal(PyObject_Vectorcall(
                <PyObject*>op, &values[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
        args, kwargs = arguments_with(frame, signature, lambda value: below(value, interpreter))
        return op(*args, **kwargs)
    finally:
        pop_state(&around)


cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter interpreter):
    """Return results of the interpreter below as values of this interpreter. Mutated arguments keep their identity."""
    return map_results(wrap_result, signature, frame, result, interpreter)


cdef object map_results(OfResult function, Signature signature, Frame* frame, result, Interpreter interpreter):
    """Apply a function to each result of a call."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return function(signature, frame, 0, result, interpreter)
    found = []
    for i in range(signature.n_returns):
        found.append(function(signature, frame, i, result[i], interpreter))
    return tuple(found)


cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    cdef Py_ssize_t source = signature.return_source[i]
    cdef Tensor tensor
    if source >= 0 and value_at(frame, source) != NULL and value_at(frame, source) != Py_None:
        return <object>value_at(frame, source)
    if not signature.return_arrays[i] or result is None:
        return result
    if word_of_array(<PyObject*>result):
        tensor = wrap_at(interpreter, result, None)
        if not tensor.word & SCALAR_FLAG:
            mark_or_share(signature, frame, i, tensor)
        return tensor
    return wrap_leaves(signature, frame, i, result, interpreter)


cdef object wrap_leaves(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    """Apply `wrap_result` to a pytree. This is separate because a function with a closure is slower at each call."""
    return upcalls.map_arrays(lambda leaf: wrap_result(signature, frame, i, leaf, interpreter), result)


cdef object scalar_below(value, Interpreter interpreter):
    """Return the value of the interpreter below. For a scalar over an ndarray, return a NumPy scalar."""
    lower = below(value, interpreter)
    if (lower is not value and (<Tensor>value).word & SCALAR_FLAG and Py_TYPE(<PyObject*>lower) == &PyArray_Type
            and not knows_arrays(state_now())):
        return lower[()]
    return lower
