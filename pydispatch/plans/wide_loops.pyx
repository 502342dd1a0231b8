# Wide loops: arithmetic on many elements with wider instructions than NumPy's own loops have, and the same bits.

cdef dict LAID_OUT_LOOPS = {}       # for maximum and minimum: the result of the test


cdef int widen_loop(PlanStep* step, tuple loop) except -1:
    """Replace NumPy's loop of a step by a wide loop if there is one."""
    cdef int type = -1, operation = -1
    cdef PyUFuncGenericFunction found = NULL
    if step.data != NULL or not find_operation(loop, &type, &operation) or type not in (OF_FLOAT64, OF_FLOAT32):
        return 0
    if class_of(operation) == EXTREME:
        known = LAID_OUT_LOOPS.get(loop)
        if known is None:
            known = LAID_OUT_LOOPS[loop] = <size_t>laid_out_loop(step.function, type == OF_FLOAT64)
        found = <PyUFuncGenericFunction><size_t>known
    else:
        found = wide_loop(operation, type == OF_FLOAT64)
    if found != NULL:
        step.data, step.function = address_of(<AnyFunction>step.function), found
    return 0


cdef void take_small_product(PlanStep* step) noexcept:
    """Replace NumPy's loop of a step that multiplies small matrices of float64, where BLAS would be called."""
    cdef cnp.npy_intp n = step.sizes[1], row = n * sizeof(double)
    cdef cnp.npy_intp* strides = step.steps + 3
    cdef PyUFuncGenericFunction found
    cdef int k
    if not 2 <= n <= 4 or step.sizes[2] != n or step.sizes[3] != n:
        return
    for k in range(0, 6, 2):
        if not (strides[k + 1] == sizeof(double) and strides[k] >= row and strides[k] % sizeof(double) == 0
                or strides[k] == sizeof(double) and strides[k + 1] >= row and strides[k + 1] % sizeof(double) == 0):
            return
    found = small_product_loop(<int>n, step.function, step.data)
    if found != NULL:
        step.function = found
