# Formulas as chains of loops.

cdef enum:              # kinds of operands
    PREVIOUS = 0
    CONSTANT = 1
    ARGUMENT = 2

cdef dict OPERAND_KINDS = {"previous": PREVIOUS, "constant": CONSTANT, "argument": ARGUMENT}


@cython.final
cdef class UfuncChain:
    """A formula as a chain of loops, which work in the memory of the result.

    A step is (function, operands). The function is a ufunc, or an operator whose kernel is a ufunc when the step runs.
    An operand is ("argument", i) for an argument of the formula, ("constant", number), or ("previous", None) for the
    result of the step before. A function without a loop raises a ValueError.
    """

    def __cinit__(self, steps):
        cdef UfuncStep* step
        cdef int k
        if not 0 < len(steps) <= MAX_STEPS:
            raise ValueError(f"a chain has 1 to {MAX_STEPS} steps, found {len(steps)}")
        self.functions = tuple([function for function, _ in steps])
        self.gradient_comes_first = True
        for i, (function, operands) in enumerate(steps):
            step = &self.steps[i]
            step.operator = step.table = NULL
            find_loop(&step.loop, function)
            if not 0 < len(operands) <= 2:
                raise ValueError(f"a step has 1 or 2 operands, found {len(operands)}")
            if isinstance(function, OpOverload):
                step.operator = <PyObject*>function
            elif step.loop.kind != ELEMENTWISE or step.loop.n_in != len(operands):
                raise ValueError(f"{function} has no loop for {len(operands)} operands")
            step.n_in = len(operands)
            for k, (kind, which) in enumerate(operands):
                step.kind[k] = OPERAND_KINDS[kind]
                step.value[k] = checked_position(which, MAX_RESIDUALS + 1) if kind == "argument" else 0
                self.n_arguments = max(self.n_arguments, step.value[k] + 1)
                if i == 0 and kind == "previous":
                    raise ValueError("the first step has no previous result")
                step.number[k] = which if kind == "constant" else 0.0
                if i and step.kind[k] == ARGUMENT and step.value[k] == 0:
                    self.gradient_comes_first = False
            self.n_steps += 1

    def __dealloc__(self):
        cdef int i
        for i in range(self.n_steps):
            Py_XDECREF(self.steps[i].table)


@cython.final
cdef class Product:
    """The formula that multiplies two of its arguments as matrices, each transposed if it is `turned`."""

    def __cinit__(self, int left, int right, bint left_turned, bint right_turned):
        self.left = checked_position(left, MAX_RESIDUALS + 1)
        self.right = checked_position(right, MAX_RESIDUALS + 1)
        self.left_turned = left_turned
        self.right_turned = right_turned


cdef int checked_position(int position, int count) except -1:
    if not 0 <= position < count:
        raise IndexError(f"argument {position} is out of range: there are {count}")
    return position


cdef int check_fused(fused_formula, Py_ssize_t n_arguments) except -1:
    """Raise unless this is a fused formula of a formula with so many arguments."""
    if isinstance(fused_formula, UfuncChain):
        checked_position((<UfuncChain>fused_formula).n_arguments - 1, n_arguments)
    elif isinstance(fused_formula, Product):
        checked_position(max((<Product>fused_formula).left, (<Product>fused_formula).right), n_arguments)
    elif fused_formula is not None:
        raise TypeError(f"{fused_formula!r} is not a fused formula")
    return 0


cdef inline PyObject* run_fused(
    PyObject* fused_formula, PyObject* const* args, Py_ssize_t gradient_holders
) except? NULL:
    """Return the result of a fused formula for these arguments, or NULL if the formula has to be called."""
    cdef Product product
    if Py_TYPE(fused_formula) == UFUNC_CHAIN_TYPE:
        return run_chain(<UfuncChain>fused_formula, args, gradient_holders)
    if fused_formula == Py_None:
        return NULL
    product = <Product>fused_formula
    return multiply_matrices(args[product.left], args[product.right], product.left_turned, product.right_turned)


cdef PyTypeObject* UFUNC_CHAIN_TYPE = <PyTypeObject*>UfuncChain


cdef bint find_current_loop(UfuncStep* step) except -1:
    """Take the loop of the operator's current kernel. Return False if the kernel is not a ufunc."""
    cdef Table table = table_of(<OpOverload>step.operator)
    cdef PyObject* entry
    cdef PyObject* old = step.table
    if old == <PyObject*>table:
        return step.loop.kind == ELEMENTWISE
    step.loop.kind = NO_LOOP
    entry = table.entries[highest_slot(usable_keys(<PyObject*>table, <PyObject*>root, CPU_WORD))]
    if entry != NULL and is_plain(entry) and (<TableEntry>entry).loop.n_in == step.n_in:
        step.loop = (<TableEntry>entry).loop
    step.table = new_reference(table)
    Py_XDECREF(old)
    return step.loop.kind == ELEMENTWISE


cdef inline bint has_axes(PyObject* value) noexcept:
    return Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) > 0


cdef inline bint read_repeated(PyObject* value, Operand* operand) noexcept:
    """Read the number that an array repeats, as the gradient of a sum does. Return False for other arrays."""
    if (Py_TYPE(value) != &PyArray_Type or PyArray_TYPE(<PyArrayObject*>value) != cnp.NPY_DOUBLE
            or not PyArray_ISBEHAVED_RO(<PyArrayObject*>value) or not is_repeated(value)):
        return False
    operand.data = <char*>PyArray_DATA(<PyArrayObject*>value)
    operand.stride = 0
    return True


cdef inline bint is_repeated(PyObject* array) noexcept:
    cdef int axis
    for axis in range(PyArray_NDIM(<PyArrayObject*>array)):
        if PyArray_STRIDES(<PyArrayObject*>array)[axis] and PyArray_DIMS(<PyArrayObject*>array)[axis] != 1:
            return False
    return True


cdef inline PyObject* room_of_gradient(UfuncChain chain, PyObject* const* args, PyObject* whole,
                                       Py_ssize_t gradient_holders) except NULL:
    """Return the array for the result: the gradient's, if nothing else holds it and no later step reads it."""
    if (gradient_holders and chain.gradient_comes_first and Py_TYPE(args[0]) == &PyArray_Type
            and PyArray_ISCARRAY(<PyArrayObject*>args[0]) and is_own(args[0], gradient_holders)
            and same_extents(args[0], whole)):
        return new_reference(<object>args[0])
    return new_like(whole)


cdef PyObject* run_chain(UfuncChain chain, PyObject* const* args, Py_ssize_t gradient_holders) except? NULL:
    cdef Operand operands[MAX_STEPS][2]
    cdef char* pointers[3]
    cdef cnp.npy_intp strides[3]
    cdef cnp.npy_intp length
    cdef UfuncStep* step
    cdef PyObject* whole = NULL
    cdef PyObject* value
    cdef PyObject* result
    cdef char* numbers
    cdef int i, k
    for i in range(chain.n_steps):
        step = &chain.steps[i]
        if step.operator != NULL and not find_current_loop(step):
            return NULL
        for k in range(step.n_in):
            if step.kind[k] != ARGUMENT:
                continue
            value = args[step.value[k]]
            if not read_operand(value, &operands[i][k]) and not read_repeated(value, &operands[i][k]):
                return run_chain_of_float32(chain, args)
            if value == whole or not has_axes(value):
                continue
            if whole == NULL:
                whole = value
            elif not same_extents(whole, value):
                return NULL
    if whole == NULL and Py_TYPE(args[0]) == &PyArray_Type:
        whole = args[0]         # all are single numbers
    if whole == NULL or not is_small(whole):
        return NULL
    result = room_of_gradient(chain, args, whole, gradient_holders)
    numbers = <char*>PyArray_DATA(<PyArrayObject*>result)
    length = PyArray_SIZE(<PyArrayObject*>result)
    forget_errors()
    for i in range(chain.n_steps):
        step = &chain.steps[i]
        for k in range(step.n_in):
            if step.kind[k] == PREVIOUS:
                pointers[k] = numbers
                strides[k] = sizeof(double)
            elif step.kind[k] == CONSTANT:
                pointers[k] = <char*>&step.number[k]
                strides[k] = 0
            else:
                pointers[k] = operands[i][k].data
                strides[k] = operands[i][k].stride
        pointers[step.n_in] = numbers
        strides[step.n_in] = sizeof(double)
        step.loop.function(pointers, &length, strides, step.loop.data)
        finish_loop(&step.loop, result)
    return result


cdef inline bint is_row_of_float32(PyObject* array) noexcept:
    return PyArray_ISCARRAY_RO(<PyArrayObject*>array) and (
        PyArray_NDIM(<PyArrayObject*>array) > 1 or PyArray_STRIDES(<PyArrayObject*>array)[0] == sizeof(float))


cdef PyObject* run_chain_of_float32(UfuncChain chain, PyObject* const* args) except? NULL:
    """Run a chain on arrays of float32."""
    cdef char* data[MAX_STEPS][2]
    cdef cnp.npy_intp strides[MAX_STEPS][3]
    cdef double numbers[MAX_STEPS][2]       # large enough for a number of any type
    cdef TypedLoop* loops[MAX_STEPS]
    cdef char* pointers[3]
    cdef cnp.npy_intp length
    cdef UfuncStep* step
    cdef PyObject* whole = NULL
    cdef PyObject* value
    cdef PyObject* result
    cdef int i, k
    cdef bint has_array, has_number
    for i in range(chain.n_steps):
        step = &chain.steps[i]
        has_array = has_number = False
        if step.operator != NULL and not find_current_loop(step) or step.loop.typed == NULL:
            return NULL
        loops[i] = loop_of_type(&step.loop, cnp.NPY_FLOAT)
        if loops[i] == NULL or loops[i].result_type != cnp.NPY_FLOAT:
            return NULL
        for k in range(step.n_in):
            strides[i][k] = 0
            data[i][k] = <char*>&numbers[i][k]
            if step.kind[k] == PREVIOUS:
                has_array = True
                data[i][k] = NULL
                strides[i][k] = sizeof(float)
            elif step.kind[k] == CONSTANT:
                has_number = True
                if not put_float(cnp.NPY_FLOAT, step.number[k], data[i][k]):
                    return NULL
            elif Py_TYPE(args[step.value[k]]) != &PyArray_Type:
                has_number = True
                if not put_number(cnp.NPY_FLOAT, args[step.value[k]], data[i][k]):
                    return NULL
            else:
                value = args[step.value[k]]
                if readable_type(value) != cnp.NPY_FLOAT:
                    return NULL
                has_array = True
                data[i][k] = <char*>PyArray_DATA(<PyArrayObject*>value)
                if PyArray_NDIM(<PyArrayObject*>value) == 0:
                    continue
                if is_row_of_float32(value):
                    strides[i][k] = sizeof(float)
                elif not is_repeated(value):
                    return NULL
                if whole == NULL:
                    whole = value
                elif not same_extents(whole, value):
                    return NULL
        if not has_array:       # NumPy makes a float64 if all operands are Python floats
            return NULL
        if has_number and not takes_numbers(&step.loop, loops[i], cnp.NPY_FLOAT):
            return NULL
    if whole == NULL or not is_small(whole):
        return NULL
    result = PyArray_New(&PyArray_Type, PyArray_NDIM(<PyArrayObject*>whole), PyArray_DIMS(<PyArrayObject*>whole),
                         cnp.NPY_FLOAT, NULL, NULL, 0, 0, NULL)
    length = PyArray_SIZE(<PyArrayObject*>result)
    forget_errors()
    for i in range(chain.n_steps):
        step = &chain.steps[i]
        for k in range(step.n_in):
            pointers[k] = data[i][k] if data[i][k] != NULL else <char*>PyArray_DATA(<PyArrayObject*>result)
        pointers[step.n_in] = <char*>PyArray_DATA(<PyArrayObject*>result)
        strides[i][step.n_in] = sizeof(float)
        loops[i].function(pointers, &length, strides[i], loops[i].data)
        finish_loop(&step.loop, result)
    return result


def fused_result(fused_formula, *args):
    """Return the result of a UfuncChain or Product, or NotImplemented if the formula has to be called."""
    cdef PyObject* result
    check_fused(fused_formula, len(args))
    result = run_fused(<PyObject*>fused_formula, <PyObject**>items_of(args), 0)
    return NotImplemented if result == NULL else steal(result)
