# Entry points of `jacfwd`, `jacrev` and `hessian` for functions of arrays, differentiated with respect to one.
#
# In Python, the Jacobian of a function of one operator takes three times as long. All other calls are left to Python,
# as described in entry_points.pyx.


cdef Py_ssize_t position_of_floats(tuple args, argnums) except -2:
    """Return the position of the array to differentiate by, or -1 if Python has to check more or modes are active."""
    cdef PyArrayObject* array
    cdef State state = state_now()
    cdef object argument
    if type(argnums) is not int or not 0 <= argnums < len(args) or not are_arrays_alone(args):
        return -1
    argument = args[<Py_ssize_t>argnums]
    array = <PyArrayObject*>(bottom_of(<Tensor>argument) if isinstance(argument, Tensor) else <PyObject*>argument)
    if Py_TYPE(<PyObject*>array) != &PyArray_Type or PyArray_NDIM(array) == 0 or PyArray_SIZE(array) == 0 or not (
            is_native_double(array)):
        return -1
    if isinstance(argument, Tensor) and (<Tensor>argument).word & PYTHON_BIT:
        return -1
    return -1 if state.inference or watches_arrays(state) else <Py_ssize_t>argnums


cdef inline bint is_native_double(PyArrayObject* array) noexcept:
    return PyArray_TYPE(array) == cnp.NPY_DOUBLE and PyArray_ISBEHAVED_RO(array)


cdef object unit_vectors(PyArrayObject* array):
    """Return all unit vectors in the shape of an array, along a new first axis."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef Py_ssize_t i, n = PyArray_SIZE(array)
    cdef double* data
    cdef object found
    check_rank(PyArray_NDIM(array) + 1)
    dims[0] = n
    for i in range(PyArray_NDIM(array)):
        dims[i + 1] = PyArray_DIMS(array)[i]
    found = cnp.PyArray_ZEROS(PyArray_NDIM(array) + 1, dims, cnp.NPY_DOUBLE, 0)
    data = <double*>PyArray_DATA(<PyArrayObject*><PyObject*>found)
    for i in range(n):
        data[i * (n + 1)] = 1
    return found


cdef object all_unit_vectors(PyArrayObject* array, Vmap batch):
    """Return the batch of all unit vectors in the shape of an array."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef Py_ssize_t i
    cdef double* data
    if batch.batch_size < FEWEST_EXAMPLES:
        return enter_at(batch, unit_vectors(array), None)
    check_rank(PyArray_NDIM(array) + 1)
    dims[0] = 2
    for i in range(PyArray_NDIM(array)):
        dims[i + 1] = PyArray_DIMS(array)[i]
    pair = cnp.PyArray_ZEROS(PyArray_NDIM(array) + 1, dims, cnp.NPY_DOUBLE, 0)
    data = <double*>PyArray_DATA(<PyArrayObject*><PyObject*>pair)
    for i in range(batch.batch_size):
        data[i] = 1
    return diagonal_batch(pair, batch)


cdef object first_unit_vector(PyArrayObject* array):
    """Return the unit vector in the shape of an array of one element."""
    return one_of(<object>PyArray_DESCR(array)) if PyArray_NDIM(array) == 0 else unit_vectors(array)[0, ...]


cdef object batch_of(value, Vmap interpreter):
    """Return the array of a value of `vmap` with all examples along axis 0, even if they are all equal."""
    return whole_below(value) if is_batch(<PyObject*>value, interpreter) else upcalls.whole_batch(value, interpreter)


cdef object handed_out_block(block, tuple args, argument, bint of_raw):
    """Return a block of a Jacobian as the user gets it."""
    if has_tensor(args):
        return own_value(block)
    return block if Py_TYPE(<PyObject*>block) == &PyArray_Type else upcalls.as_gradient(block, argument, of_raw)


def jacobian_by_columns(str name, function, tuple args, argnums, str randomness, site):
    """Return the Jacobian by one batch of tangents, or NOT_FLAT, with nothing done, if Python has to check more."""
    cdef Py_ssize_t i, position = position_of_floats(args, argnums)
    cdef Vmap batch
    cdef Jvp interpreter
    cdef PyArrayObject* array
    cdef object run = None, value = None, tangent = None
    cdef list entered = []
    if position < 0:
        return not_flat
    argument = args[position]
    array = <PyArrayObject*>(bottom_of(<Tensor>argument) if isinstance(argument, Tensor) else <PyObject*>argument)
    batch = Vmap(PyArray_SIZE(array), randomness, name, site)
    interpreter = Jvp(name, site)
    interpreter.arguments = args
    enter_interpreter(batch)
    try:
        tangent = all_unit_vectors(array, batch)
        enter_interpreter(interpreter)
        try:
            for i in range(len(args)):
                entered.append(enter_at(interpreter, args[i], tangent if i == position else None))
            output = unwrap_dead_result(function(*entered))
            if owned_by(<PyObject*>output, interpreter):
                value, tangent = (<Tensor>output).array, tangent_of(<JvpTensor>output)
            if (Py_TYPE(<PyObject*>value) != &PyArray_Type or not is_batch(<PyObject*>tangent, batch)
                    or Py_TYPE(<PyObject*>(<Tensor>tangent).array) != &PyArray_Type):
                run = upcalls.propagated(interpreter, output)
        finally:
            leave_interpreter(interpreter)
    finally:
        leave_interpreter(batch)
    if run is not None:
        return upcalls.jacobian_of_columns(run, name, args, argnums, batch)
    block = expanded(tangent, True) if (<BatchedTensor>tangent).is_diagonal else rows_of_columns(
        (<Tensor>tangent).array)
    block = block.reshape(shape_of(<PyObject*>value) + shape_of(<PyObject*>array))
    return handed_out_block(block, args, argument, True)


cdef object rows_of_columns(columns):
    """Return a copy of an array with its first axis moved to the end."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef cnp.npy_intp strides[MAX_AXES]
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>columns
    cdef Py_ssize_t i, last = PyArray_NDIM(array) - 1
    for i in range(last + 1):
        dims[i] = PyArray_DIMS(array)[i + 1 if i < last else 0]
        strides[i] = PyArray_STRIDES(array)[i + 1 if i < last else 0]
    moved = view_with(array, <int>(last + 1), dims, strides)
    return moved.copy()


def jacobian_by_rows(str name, function, tuple args, argnums, site):
    """Return the Jacobian by one batch of cotangents, or NOT_FLAT, with nothing done, if Python has to check more."""
    cdef Py_ssize_t position = position_of_floats(args, argnums)
    cdef PublishedState outside
    cdef Grad interpreter
    cdef Vmap batch
    cdef PyArrayObject* array
    cdef object run = None, gradient = None, edge, output, target
    cdef tuple entered, shape
    if position < 0:
        return not_flat
    interpreter = enter_grad(&outside, name, site)
    try:
        interpreter.arguments = args
        entered = entered_arguments(interpreter, args, (position,))
        output = unwrap_dead_result(function(*entered))
        if owned_by(<PyObject*>output, interpreter):
            refresh(<Tensor>output)
        if (not tracked_at(<PyObject*>output, interpreter) or Py_TYPE(bottom_of(<Tensor>output)) != &PyArray_Type
                or not is_native_double(<PyArrayObject*>bottom_of(<Tensor>output))):
            run = upcalls.recorded(interpreter, output, [entered[position]])
    finally:
        leave_grad(interpreter, &outside)
    if run is not None:
        return upcalls.jacobian_of_rows(run, name, args, argnums, site)
    array = <PyArrayObject*>bottom_of(<Tensor>output)
    shape = shape_of(<PyObject*>array) + shape_of(bottom_of(<Tensor>entered[position]))
    edge, target = (<Tensor>output).edge, (<Tensor>entered[position]).edge
    if PyArray_SIZE(array) == 1:
        gradient = run_pass((edge,), (first_unit_vector(array),), False, False, (target,), interpreter, False)[0]
    elif PyArray_SIZE(array):
        batch = Vmap(PyArray_SIZE(array), "error", name, site)
        enter_interpreter(batch)
        try:
            gradient = run_pass((edge,), (all_unit_vectors(array, batch),), False, False, (target,),
                                interpreter, False)[0]
        finally:
            leave_interpreter(batch)
        if gradient is not None:
            gradient = batch_of(gradient, batch)
    if gradient is None:
        gradient = upcalls.zeros_for(args[position], shape)
    elif shape_of(<PyObject*>gradient) != shape:
        gradient = gradient.reshape(shape)
    return handed_out_block(gradient, args, args[position], not isinstance((<Tensor>output).array, Tensor))


def mapped_linearly(function, value):
    """Apply a linear function of arrays to values of `jvp` and `vmap` over NumPy arrays, without operators.

    `function(array, n)` has to leave the first n axes, of batches, in place. Return NOT_FLAT for other values, and if
    modes or tracers have to see operators.
    """
    cdef State state = state_now()
    if state.tracer is not None or state.inference or not state.forward or state.substitute is not None or (
            watches_arrays(state)):
        return not_flat
    return mapped_below(function, value, state.interpreters, 0)


cdef object mapped_below(function, value, InterpreterStack stack, Py_ssize_t n):
    cdef Interpreter interpreter
    cdef object found, tangent
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return function(value, n)
    while stack is not None and not owned_by(<PyObject*>value, stack.interpreter):
        stack = stack.outer
    if stack is None:
        return not_flat
    interpreter = stack.interpreter
    if is_batch(<PyObject*>value, interpreter) and interpreter.batches():
        found = mapped_below(function, whole_below(value), stack.outer, n + 1)
        return not_flat if found is not_flat else wrap_at(interpreter, found, None)
    if Py_TYPE(<PyObject*>value) != JVP_TYPE:
        return not_flat
    tangent = tangent_of(<JvpTensor>value)
    found = mapped_below(function, (<Tensor>value).array, stack.outer, n)
    if tangent is not None and found is not not_flat:
        tangent = mapped_below(function, tangent, stack.outer, n)
    return not_flat if found is not_flat or tangent is not_flat else wrap_at(interpreter, found, tangent)
