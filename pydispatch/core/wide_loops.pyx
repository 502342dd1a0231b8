# Wide loops: arithmetic on many elements by wider instructions than NumPy's own loops have, with the same bits.

cdef dict LAID_OUT_LOOPS = {}       # of the maximum and the minimum: what a trial has shown


cdef int widen_loop(PlanStep* step, tuple loop) except -1:
    """Take a wide loop instead of NumPy's for a step, where there is one."""
    cdef int type = -1, operation = -1
    cdef PyUFuncGenericFunction found = NULL
    if step.data != NULL or not find_operation(loop, &type, &operation) or type not in (OF_FLOAT64, OF_FLOAT32):
        return 0
    if operation in (DO_MAXIMUM, DO_MINIMUM):
        known = LAID_OUT_LOOPS.get(loop)
        if known is None:
            known = LAID_OUT_LOOPS[loop] = <size_t>laid_out_loop(step.function, type == OF_FLOAT64)
        found = <PyUFuncGenericFunction><size_t>known
    else:
        found = wide_loop(operation, type == OF_FLOAT64)
    if found != NULL:
        step.data, step.function = <void*>step.function, found
    return 0
