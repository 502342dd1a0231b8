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
