# Wide loops: arithmetic on many elements with wider instructions than NumPy's own loops have, and the same bits.

cdef dict TESTED_LOOPS = {}         # for maximum, minimum, sin and cos: the result of the test


cdef int find_tested_loop(
        tuple loop, PyUFuncGenericFunction numpys, int operation, PyUFuncGenericFunction* found) except -1:
    """Find a wide loop that has passed a test against NumPy's, or NULL."""
    known = TESTED_LOOPS.get(loop)
    if known is None:
        if row_of(loop[1])[0] == "EXTREME":
            known = <size_t>laid_out_loop(numpys, loop[2][0] == cnp.NPY_DOUBLE)
        else:
            known = <size_t>trigonometric_loop(operation, numpys)
        TESTED_LOOPS[loop] = known
    found[0] = <PyUFuncGenericFunction><size_t>known
    return 0


cdef int widen_loop(PlanStep* step, tuple loop) except -1:
    """Replace NumPy's loop of a step by a wide loop if there is one."""
    cdef int type = -1, operation = -1
    cdef PyUFuncGenericFunction found = NULL
    if step.data != NULL:
        return 0
    if row_of(loop[1])[0] == "LIBRARY" and loop[2][0] == cnp.NPY_DOUBLE and not IS_NUMPY_2_0:
        find_tested_loop(loop, step.function, OPERATIONS[loop[1]], &found)
    elif not find_operation(loop, &type, &operation) or type not in (OF_FLOAT64, OF_FLOAT32):
        return 0
    elif class_of(operation) == EXTREME:
        find_tested_loop(loop, step.function, operation, &found)
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


IS_INVERSE = {numpy.linalg._umath_linalg.det: False, numpy.linalg._umath_linalg.inv: True}


cdef void take_small_inverse(PlanStep* step, bint is_inverse) noexcept:
    """Replace NumPy's loop of a step for determinants or inverses of small matrices of float64."""
    cdef PyUFuncGenericFunction found = NULL
    if step.data == NULL and 2 <= step.sizes[1] <= 4:
        found = small_inverse_loop(<int>step.sizes[1], is_inverse, step.function)
    if found != NULL:
        step.data, step.function = address_of(<AnyFunction>step.function), found
