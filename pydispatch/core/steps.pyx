# What a plan does: loops over arrays, run one after the other without Python.
#
# An operand is a number in a table of addresses and an offset: the table holds the arena (number 0), the arrays that go
# in and come out, the constants, and what moves in a repetition: a slice of an array, or the carry and the next one,
# which change places.

cdef enum:
    WORK_BETWEEN_SIGNALS = 1 << 22      # elements, some milliseconds
    WORK_OF_REPETITION = 64             # what the steps of a short body take, about
    WORK_OF_THREADS = 1 << 16           # elements: below, starting threads takes longer than they save


cdef inline void note_flags(PlanRun* run, PlanStep* step) noexcept nogil:
    """Remember what a step raised."""
    cdef int flags = raised_errors()
    if flags:
        forget_errors()
        note_these_flags(run, step, flags)


cdef void note_these_flags(PlanRun* run, PlanStep* step, int flags) noexcept nogil:
    """Remember flags of a step; after eight steps, those of the others go with the last one."""
    cdef int i
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


cdef inline void take_axes(PlanStep* step, char** first, cnp.npy_intp outermost) noexcept nogil:
    """A loop along the outer axes, of which the first one has so many elements; leaves `first` changed."""
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp counts[MAX_AXES]
    cdef int i, axis, n = step.n_operands
    for axis in range(step.n_axes):
        counts[axis] = 0
    while True:
        for i in range(n):
            operands[i] = first[i]          # a loop may change what it is given
        step.function(operands, step.sizes, step.steps, step.data)
        axis = step.n_axes - 1
        while True:
            counts[axis] += 1
            for i in range(n):
                first[i] += step.strides[axis * n + i]
            if counts[axis] < (step.extents[axis] if axis else outermost):
                break
            if axis == 0:
                return
            for i in range(n):
                first[i] -= step.strides[axis * n + i] * step.extents[axis]
            counts[axis] = 0
            axis -= 1


cdef inline void take_loop(PlanRun* run, PlanStep* step) noexcept nogil:
    cdef char* operands[MAX_OPERANDS]
    cdef int i
    for i in range(step.n_operands):
        operands[i] = run.table[step.buffers[i]] + step.offsets[i]
    if step.n_axes == 0:
        step.function(operands, step.sizes, step.steps, step.data)
    else:
        take_axes(step, operands, step.extents[0])


cdef void take_rows(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp stop,
                    cnp.npy_intp local) noexcept nogil:
    """Loops over some of the rows, block by block, so that what one leaves for the next stays in the cache.

    `numbers` has the rows in all, those in a block, and the bytes of a thread's own memory; that of a loop inside the
    elements of a row, where a loop takes all rows of a block (else 0), and for each operand how far the next row is,
    and 1 where it lies in a thread's own memory, which is `local` bytes on.
    """
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp block = step.numbers[1], size, rows
    cdef PlanStep* inner
    cdef PlanStep* after = step + 1 + step.n_inside
    cdef cnp.npy_intp* numbers
    cdef int i, n
    while start < stop:
        rows = min(block, stop - start)
        inner = step + 1
        while inner != after:
            n = inner.n_operands
            numbers = inner.numbers + 1
            for i in range(n):
                operands[i] = (run.table[inner.buffers[i]] + inner.offsets[i] + start * numbers[i]
                               + local * numbers[n + i])
            if inner.numbers[0]:
                size = rows * inner.numbers[0]
                inner.function(operands, &size, inner.steps, inner.data)
            else:
                take_axes(inner, operands, rows)
            if inner.reports:
                note_flags(run, inner)
            inner += 1
        start += rows


cdef inline int watch_signals(PlanRun* run, Py_ssize_t work) except -1 nogil:
    """Let Python look for signals now and then."""
    run.work += work
    if run.work > WORK_BETWEEN_SIGNALS:
        run.work = 0
        with gil:
            PyErr_CheckSignals()
    return 0


cdef struct Worker:             # a thread's part of the rows
    PlanRun run
    PlanStep* step
    cnp.npy_intp start, stop, local


cdef void* work_on_rows(void* given) noexcept nogil:
    cdef Worker* worker = <Worker*>given
    forget_errors()
    take_rows(&worker.run, worker.step, worker.start, worker.stop, worker.local)
    return NULL


cdef int take_blocks(PlanRun* run, PlanStep* step) except -1 nogil:
    """All rows, in parts with a look at signals between them; each thread has one range of the rows of a part."""
    cdef Worker workers[MAX_THREADS]
    cdef Thread threads[MAX_THREADS]
    cdef bint started[MAX_THREADS]
    cdef cnp.npy_intp n = step.numbers[0], block = step.numbers[1], start = 0, stop, share
    cdef cnp.npy_intp part = max(block, n * WORK_BETWEEN_SIGNALS // max(step.work, 1) // block * block)
    cdef int i, k, n_threads = run.n_threads if step.work >= WORK_OF_THREADS else 1
    while start < n:
        if n_threads == 1:
            stop = min(n, start + part)
            take_rows(run, step, start, stop, 0)
        else:
            stop = n
            share = (n // block + n_threads) // n_threads * block
            for i in range(n_threads):
                workers[i].run = run[0]
                workers[i].run.n_noted = 0
                workers[i].step, workers[i].local = step, i * step.numbers[2]
                workers[i].start, workers[i].stop = min(n, i * share), min(n, (i + 1) * share)
                started[i] = i > 0 and start_thread(&threads[i], work_on_rows, &workers[i]) == 0
            for i in range(n_threads):
                if not started[i]:
                    work_on_rows(&workers[i])
            for i in range(n_threads):
                if started[i]:
                    join_thread(threads[i])
                for k in range(workers[i].run.n_noted):
                    note_these_flags(run, workers[i].run.noted[k], workers[i].run.flags[k])
        watch_signals(run, step.work * (stop - start) // n)
        start = stop
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
            if step.gathers and take_out_of_range(&k):
                with gil:
                    raise IndexError(f"index {k} is out of bounds for axis with size {step.sizes[3]}")
            if step.work > WORK_BETWEEN_SIGNALS // 16:
                watch_signals(run, step.work)
        elif step.kind == BLOCKS_STEP:
            take_blocks(run, step)
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
