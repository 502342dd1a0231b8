# The steps of a plan: loops over arrays, run in order without Python.
#
# An operand is an entry of a table of addresses and an offset from that address. The table begins with the arena. Then
# come inputs, constants, results, and the entries that move from one repetition to the next: a slice of an array, or
# the two memories of a carry, which are swapped.

cdef enum:
    WORK_BETWEEN_SIGNALS = 1 << 22      # elements: a few milliseconds


cdef inline void note_flags(PlanRun* run, PlanStep* step) noexcept nogil:
    """Note the floating-point flags that a step has raised."""
    cdef unsigned int flags = flags_of_arithmetic()
    if step.reports_by_call:
        flags |= flags_of_calls()
    if flags:
        forget_errors()
        note_these_flags(run, step, errors_of_flags(flags))


cdef void note_these_flags(PlanRun* run, PlanStep* step, int flags) noexcept nogil:
    """Note flags of a step. There is room for eight steps. The flags of further steps are added to the eighth."""
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
    """Run a loop for every index of the outer axes, the first of which has `outermost` elements. Changes `first`."""
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp counts[MAX_AXES]
    cdef cnp.npy_intp k
    cdef int axis, n = step.n_operands
    if step.n_axes == 1:
        for k in range(outermost):
            addresses_at(operands, first, step.strides, k, n)
            step.function(operands, step.sizes, step.steps, step.data)
        return
    for axis in range(step.n_axes):
        counts[axis] = 0
    while True:
        copy_addresses(operands, first, n)          # a loop may write to the array of pointers that it gets
        step.function(operands, step.sizes, step.steps, step.data)
        axis = step.n_axes - 1
        while True:
            counts[axis] += 1
            move_addresses(first, step.strides + axis * n, 1, n)
            if counts[axis] < (step.extents[axis] if axis else outermost):
                break
            if axis == 0:
                return
            move_addresses(first, step.strides + axis * n, -step.extents[axis], n)
            counts[axis] = 0
            axis -= 1


cdef inline void take_one_call(PlanRun* run, PlanStep* step) noexcept nogil:
    """Run a loop without outer axes."""
    cdef char* operands[MAX_OPERANDS]
    find_operands(operands, run.table, step.buffers, step.offsets, step.n_operands)
    step.function(operands, step.sizes, step.steps, step.data)


cdef void take_outer_axes(
    char** operands, const cnp.npy_intp* sizes, const cnp.npy_intp* steps, void* step
) noexcept nogil:
    """Run a loop for every index of the outer axes of a step."""
    take_axes(<PlanStep*>step, operands, (<PlanStep*>step).extents[0])


cdef void run_loop(PlanRun* run, PlanStep* step) noexcept nogil:
    """Run a loop with outer axes."""
    cdef char* operands[MAX_OPERANDS]
    find_operands(operands, run.table, step.buffers, step.offsets, step.n_operands)
    take_axes(step, operands, step.extents[0])


cdef void run_rows(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp stop,
                   cnp.npy_intp local) noexcept nogil:
    """Run loops over the rows from `start` to `stop`, by blocks: the next loop finds a loop's results in the cache.

    The `numbers` of the step are: the number of rows, the maximal number of rows in a block, the bytes of a thread's
    own memory, 0, ROWS_IN_ORDER or ROWS_BY_HALVES, and the number of threads that share the rows. Those of each loop in
    it are: the elements in a row if one call takes all rows of a block, else 0. For each operand, the bytes to its next
    row. For each operand, 1 if it lies in the thread's own memory, which begins `local` bytes further on, else 0. For
    each operand, 1 if its rows of the next block are to be fetched from memory meanwhile, else 0.
    """
    cdef cnp.npy_intp block = step.numbers[1], rows
    cdef Py_ssize_t k
    cdef PlanStep* inner
    cdef PlanStep* after = step + 1 + step.n_inside
    while start < stop:
        rows = min(block, stop - start)
        if step.numbers[3] == ROWS_BY_HALVES:
            rows = end_of_part(start, step.numbers[0], block) - start
        inner = step + 1
        while inner != after:
            if inner.fused != NULL:
                # if no other loops are in the block, the processor itself fetches the next rows
                for k in range(inner.fused.n_steps if inner.fused.n_steps < step.n_inside else 0):
                    fetch_rows(run, inner + k, start + rows, min(block, stop - start - rows))
                run_fused_loops(run, inner, start, rows, local)
                inner += inner.fused.n_steps
                continue
            fetch_rows(run, inner, start + rows, min(block, stop - start - rows))
            run_rows_of_loop(run, inner, start, rows, local, 0)
            inner += 1
        start += rows


cdef inline void fetch_rows(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows) noexcept nogil:
    """Fetch the rows of a loop in blocks from memory, for those operands that this loop has to fetch."""
    cdef int i, n = step.n_operands
    cdef cnp.npy_intp* numbers = step.numbers + 1
    for i in range(n):
        if numbers[2 * n + i] and rows > 0:
            fetch_ahead(run.table[step.buffers[i]] + step.offsets[i] + start * numbers[i], rows * numbers[i])


cdef void run_rows_of_loop(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                           cnp.npy_intp local, cnp.npy_intp done) noexcept nogil:
    """Run a loop in blocks over some rows. The first `done` elements may be done if one call takes all."""
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp* numbers = step.numbers + 1
    cdef cnp.npy_intp size = rows * step.numbers[0] - done, position, extent
    cdef int i, n = step.n_operands
    if done and not size:
        return
    for i in range(n):
        operands[i] = (run.table[step.buffers[i]] + step.offsets[i] + start * numbers[i] + local * numbers[n + i]
                       + done * step.steps[i])
    if step.numbers[0]:
        step.function(operands, &size, step.steps, step.data)
    else:
        take_axes(step, operands, rows)
    if step.may_raise and has_raised():
        name_raised(run, step)
    if step.reports:
        note_flags(run, step)
    elif step.is_native:
        forget_errors()
    if step.gathers and take_out_of_range(&position, &extent):
        run.meets_out_of_range, run.position, run.extent = True, position, extent


cdef int run_loop_step(PlanRun* run, PlanStep* step) except -1 nogil:
    """Run a loop that is a step by itself."""
    if step.n_axes == 0:
        take_one_call(run, step)
    else:
        run_loop(run, step)
    if step.may_raise and has_raised():
        name_raised(run, step)
    if step.reports:
        note_flags(run, step)
    elif step.is_native:
        forget_errors()
    if step.gathers and take_out_of_range(&run.position, &run.extent):
        refuse_position(run)
    if step.is_native or step.work > WORK_BETWEEN_SIGNALS // 16:
        watch_signals(run, step.work)
    return 0


cdef int watch_signals(PlanRun* run, Py_ssize_t work) except -1 nogil:
    """Check for signals from time to time, and let other threads have the GIL if the run keeps it.

    Also raise the exception of an earlier loop.
    """
    run.work += work
    if run.work > WORK_BETWEEN_SIGNALS:
        run.work = 0
        with gil:
            check_loops()
            PyErr_CheckSignals()
            with nogil:
                pass
    return 0


cdef int run_blocks(PlanRun* run, PlanStep* step) except -1 nogil:
    """Run all rows in parts, and check for signals between the parts. With threads, each gets a range of all rows."""
    cdef cnp.npy_intp n = step.numbers[0], block = step.numbers[1]
    cdef cnp.npy_intp part = max(block, n * WORK_BETWEEN_SIGNALS // max(step.work, 1) // block * block)
    if step.numbers[4] > 1:
        share_rows(run, step, part)
    else:
        run_parts(run, step, 0, n, part)
    return 0


cdef cnp.npy_intp border_of_blocks(PlanStep* step, cnp.npy_intp row) noexcept nogil:
    """Return a row that is a multiple of the rows in a block, or the first row from it on where a block may begin."""
    if row == 0 or row >= step.numbers[0]:
        return min(row, step.numbers[0])
    return end_of_part(row - 1, step.numbers[0], step.numbers[1]) if step.numbers[3] == ROWS_BY_HALVES else row


cdef int run_parts(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp stop,
                   cnp.npy_intp part) except -1 nogil:
    """Run the rows of the calling thread, `part` rows at a time."""
    cdef cnp.npy_intp next_start
    while start < stop:
        next_start = min(stop, border_of_blocks(step, start + part))
        run_rows(run, step, start, next_start, 0)
        if run.n_noted and run.watched < 0:
            find_watched(run)
        if run.meets_out_of_range:
            refuse_position(run)
        watch_signals(run, <Py_ssize_t>(<double>step.work * (next_start - start) / step.numbers[0]))
        start = next_start
    return 0


cdef int refuse_position(PlanRun* run) except -1 nogil:
    with gil:
        raise IndexError(f"index {run.position} is out of bounds for axis with size {run.extent}")


cdef void move_entries(PlanRun* run, const cnp.npy_intp* moves, cnp.npy_intp n, cnp.npy_intp k) noexcept nogil:
    """Set the entries that move to their slice number `k`."""
    cdef cnp.npy_intp i
    for i in range(n):
        run.table[moves[4 * i]] = run.table[moves[4 * i + 1]] + moves[4 * i + 2] + k * moves[4 * i + 3]


cdef void swap_entries(PlanRun* run, const cnp.npy_intp* pairs, cnp.npy_intp n) noexcept nogil:
    cdef char* kept
    cdef cnp.npy_intp i
    for i in range(n):
        kept = run.table[pairs[2 * i]]
        run.table[pairs[2 * i]] = run.table[pairs[2 * i + 1]]
        run.table[pairs[2 * i + 1]] = kept


cdef int run_plan_steps(PlanRun* run, PlanStep* step, PlanStep* after) except -1 nogil:
    """Run the steps up to `after`."""
    cdef PlanStep* next_step
    cdef cnp.npy_intp* numbers
    cdef cnp.npy_intp i, k, n_places, n_moves, n_swaps
    while step != after:
        next_step = step + 1 + step.n_inside
        numbers = step.numbers
        if step.kind == LOOP_STEP:
            if step.small != NULL:
                run_small_loops(run, step)
                next_step = step + step.small.n_steps
            else:
                run_loop_step(run, step)
        elif step.kind == BLOCKS_STEP:
            run_blocks(run, step)
        elif step.kind == CALL_STEP:
            call_python(run, step)
        elif step.kind == CHOOSE_STEP:
            # buffer and offset of the condition, then the number of steps of the first branch
            if run.table[numbers[0]][numbers[1]]:
                run_plan_steps(run, step + 1, step + 1 + numbers[2])
            else:
                run_plan_steps(run, step + 1 + numbers[2], next_step)
        else:
            # The numbers of places, moves and swaps, then the length, or the position of the condition and the number
            # of steps of the test. Then the memories of carries: (entry, offset in the arena). The entries that move:
            # (entry, buffer, offset, stride). The pairs of entries that are swapped after a repetition.
            n_places, n_moves, n_swaps = numbers[0], numbers[1], numbers[2]
            numbers += 6
            for i in range(n_places):
                run.table[numbers[2 * i]] = run.table[0] + numbers[2 * i + 1]
            numbers += 2 * n_places
            if step.kind == REPEAT_STEP and step.n_inside and step[1].small != NULL and step[1].small.distance:
                repeat_small_loops(run, step, numbers)
            elif step.kind == REPEAT_STEP:
                for k in range(step.numbers[3]):
                    move_entries(run, numbers, n_moves, k)
                    run_plan_steps(run, step + 1, next_step)
                    swap_entries(run, numbers + 4 * n_moves, n_swaps)
                    watch_signals(run, WORK_OF_REPETITION)
            else:
                while True:
                    run_plan_steps(run, step + 1, step + 1 + step.numbers[5])
                    if not run.table[step.numbers[3]][step.numbers[4]]:
                        break
                    run_plan_steps(run, step + 1 + step.numbers[5], next_step)
                    swap_entries(run, numbers, n_swaps)
                    watch_signals(run, WORK_OF_REPETITION)
        step = next_step
    return 0
