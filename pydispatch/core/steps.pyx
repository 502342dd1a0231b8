# What a plan does: loops over arrays, run one after the other without Python.
#
# An operand is a number in a table of addresses and an offset: the table holds the arena (number 0), the arrays that go
# in and come out, the constants, and what moves in a repetition: a slice of an array, or the carry and the next one,
# which change places.

cdef enum:
    WORK_BETWEEN_SIGNALS = 1 << 22      # elements, some milliseconds
    WORK_OF_REPETITION = 64             # what the steps of a short body take, about


cdef inline void note_flags(PlanRun* run, PlanStep* step) noexcept nogil:
    """Remember what a step raised; each kind of error is reported for the first steps that raise it."""
    cdef int flags = raised_errors(), i
    if not flags:
        return
    forget_errors()
    for i in range(run.n_noted):
        if run.noted[i] == step:
            run.flags[i] |= flags
            return
    if run.n_noted < 8:
        run.noted[run.n_noted] = step
        run.flags[run.n_noted] = flags
        run.n_noted += 1
    else:
        run.flags[7] |= flags


cdef inline void take_loop(PlanRun* run, PlanStep* step) noexcept nogil:
    cdef char* operands[MAX_OPERANDS]
    cdef char* first[MAX_OPERANDS]
    cdef cnp.npy_intp counts[MAX_AXES]
    cdef int i, axis, n = step.n_operands
    for i in range(n):
        operands[i] = run.table[step.buffers[i]] + step.offsets[i]
    if step.n_axes == 0:
        step.function(operands, step.sizes, step.steps, step.data)
        return
    for i in range(n):
        first[i] = operands[i]          # a loop may change what it is given
    for axis in range(step.n_axes):
        counts[axis] = 0
    while True:
        step.function(operands, step.sizes, step.steps, step.data)
        axis = step.n_axes - 1
        while True:
            counts[axis] += 1
            for i in range(n):
                first[i] += step.strides[axis * n + i]
            if counts[axis] < step.extents[axis]:
                break
            for i in range(n):
                first[i] -= step.strides[axis * n + i] * step.extents[axis]
            counts[axis] = 0
            axis -= 1
            if axis < 0:
                return
        for i in range(n):
            operands[i] = first[i]


cdef inline void take_blocks(PlanRun* run, PlanStep* step, PlanStep* after) noexcept nogil:
    """Loops over the same elements, block by block, so that what one leaves for the next stays in the cache.

    `numbers` has the elements in all, and in a block; that of a loop inside, for each operand whether it moves on.
    """
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp start = 0, n = step.numbers[0], block = step.numbers[1], size
    cdef PlanStep* inner
    cdef int i
    while start < n:
        size = min(block, n - start)
        inner = step + 1
        while inner != after:
            for i in range(inner.n_operands):
                operands[i] = run.table[inner.buffers[i]] + inner.offsets[i] + start * inner.numbers[i] * inner.steps[i]
            inner.function(operands, &size, inner.steps, inner.data)
            if inner.reports:
                note_flags(run, inner)
            inner += 1
        start += size


cdef inline int watch_signals(PlanRun* run, Py_ssize_t work) except -1 nogil:
    """Let Python look for signals now and then."""
    run.work += work
    if run.work > WORK_BETWEEN_SIGNALS:
        run.work = 0
        with gil:
            PyErr_CheckSignals()
    return 0


cdef inline void swap_entries(PlanRun* run, const cnp.npy_intp* pairs, cnp.npy_intp n) noexcept nogil:
    cdef char* kept
    cdef cnp.npy_intp i
    for i in range(n):
        kept = run.table[pairs[2 * i]]
        run.table[pairs[2 * i]] = run.table[pairs[2 * i + 1]]
        run.table[pairs[2 * i + 1]] = kept


cdef int take_plan_steps(PlanRun* run, PlanStep* step, PlanStep* after) except -1 nogil:
    """Take the steps up to `after`."""
    cdef PlanStep* next_step
    cdef cnp.npy_intp* numbers
    cdef cnp.npy_intp i, k, n_places, n_moves, n_swaps
    while step != after:
        next_step = step + 1 + step.n_inside
        numbers = step.numbers
        if step.kind == LOOP_STEP:
            take_loop(run, step)
            if step.reports:
                note_flags(run, step)
            if step.work > WORK_BETWEEN_SIGNALS // 16:
                watch_signals(run, step.work)
        elif step.kind == BLOCKS_STEP:
            take_blocks(run, step, next_step)
            watch_signals(run, step.work)
        elif step.kind == CALL_STEP:
            call_python(run, step)
        elif step.kind == CHOOSE_STEP:
            # the condition, its offset; how many steps are the first
            if run.table[numbers[0]][numbers[1]]:
                take_plan_steps(run, step + 1, step + 1 + numbers[2])
            else:
                take_plan_steps(run, step + 1 + numbers[2], next_step)
        else:
            # Places in the arena: (number, offset) each. Then moves: (number, array, offset, stride) each. Then
            # pairs of numbers that change places after each step.
            n_places, n_moves, n_swaps = numbers[0], numbers[1], numbers[2]
            numbers += 6
            for i in range(n_places):
                run.table[numbers[2 * i]] = run.table[0] + numbers[2 * i + 1]
            numbers += 2 * n_places
            if step.kind == REPEAT_STEP:
                for k in range(step.numbers[3]):
                    for i in range(n_moves):
                        run.table[numbers[4 * i]] = (run.table[numbers[4 * i + 1]] + numbers[4 * i + 2]
                                                     + k * numbers[4 * i + 3])
                    take_plan_steps(run, step + 1, next_step)
                    swap_entries(run, numbers + 4 * n_moves, n_swaps)
                    watch_signals(run, WORK_OF_REPETITION)
            else:
                while True:
                    take_plan_steps(run, step + 1, step + 1 + step.numbers[5])
                    if not run.table[step.numbers[3]][step.numbers[4]]:
                        break
                    take_plan_steps(run, step + 1 + step.numbers[5], next_step)
                    swap_entries(run, numbers, n_swaps)
                    watch_signals(run, WORK_OF_REPETITION)
        step = next_step
    return 0
