# The steps of a plan: loops over arrays, run in order without Python.
#
# An operand is an entry of a table of addresses and an offset from that address. The table begins with the arena. Then
# come inputs, constants, results, and the entries that move from one repetition to the next: a slice of an array, or
# the two memories of a carry, which are swapped.

cdef enum:
    WORK_BETWEEN_SIGNALS = 1 << 22      # elements: a few milliseconds
    ERROR_INVALID = 8                   # NumPy's flag


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
    cdef cnp.npy_intp extents[MAX_AXES]
    cdef cnp.npy_intp* strides[MAX_AXES]
    cdef cnp.npy_intp* sizes = step.sizes
    cdef cnp.npy_intp* steps = step.steps
    cdef cnp.npy_intp k, size
    cdef int axis, n = step.n_operands
    if step.row_sum != NULL and step.row_sum(first[0], first[1], outermost, step.strides[1], step.sizes[0]):
        return
    for axis in range(step.n_axes):
        counts[axis], extents[axis], strides[axis] = 0, step.extents[axis], step.strides + axis * n
    extents[0] = outermost
    axis = step.long_axis
    if axis >= 0 and extents[axis] > sizes[0]:
        size = extents[axis]
        extents[axis], sizes = sizes[0], &size
        steps, strides[axis] = step.strides + axis * n, steps
    if step.n_axes == 1:
        for k in range(extents[0]):
            addresses_at(operands, first, strides[0], k, n)
            step.function(operands, sizes, steps, step.data)
        return
    while True:
        copy_addresses(operands, first, n)          # a loop may write to the array of pointers that it gets
        step.function(operands, sizes, steps, step.data)
        axis = step.n_axes - 1
        while True:
            counts[axis] += 1
            move_addresses(first, strides[axis], 1, n)
            if counts[axis] < extents[axis]:
                break
            if axis == 0:
                return
            move_addresses(first, strides[axis], -extents[axis], n)
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

    The `numbers` of each loop are: the elements in a row if one call takes all rows of a block, else 0. For each
    operand, the bytes to its next row. For each operand, 1 if it lies in the thread's own memory, which begins `local`
    bytes further on, else 0. For each operand, 1 if its rows of the next block are prefetched meanwhile, else 0.
    """
    cdef Blocks* blocks = <Blocks*>step.numbers
    cdef cnp.npy_intp block = blocks.block, rows
    cdef Py_ssize_t k
    cdef PlanStep* inner
    cdef PlanStep* after = step + 1 + step.n_inside
    while start < stop:
        rows = min(block, stop - start)
        if blocks.order == ROWS_BY_HALVES:
            rows = end_of_part(start, blocks.n_rows, block) - start
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
    """Run a loop in blocks over some rows, the first `done` elements of which are done."""
    cdef char* operands[MAX_OPERANDS]
    cdef cnp.npy_intp* numbers = step.numbers + 1
    cdef cnp.npy_intp* moves = step.steps
    cdef cnp.npy_intp size = rows * step.numbers[0] - done, position, extent
    cdef int i, n = step.n_operands
    if done and not step.numbers[0]:        # whole rows
        moves, done = step.strides, done // step.sizes[0]
        rows = size = rows - done
    if done and not size:
        return
    for i in range(n):
        operands[i] = (run.table[step.buffers[i]] + step.offsets[i] + start * numbers[i] + local * numbers[n + i]
                       + done * moves[i])
    if step.numbers[0]:
        step.function(operands, &size, step.steps, step.data)
    else:
        take_axes(step, operands, rows)
    note_errors(run, step)
    if step.gathers and take_out_of_range(&position, &extent):
        run.meets_out_of_range, run.position, run.extent = True, position, extent


cdef inline void note_errors(PlanRun* run, PlanStep* step) noexcept nogil:
    """Note the exception and the floating-point flags that the loop of a step has raised."""
    if step.may_raise and has_raised():
        name_raised(run, step)
    if step.reports:
        note_flags(run, step)
    elif step.is_quiet:
        forget_errors()


cdef int run_loop_step(PlanRun* run, PlanStep* step) except -1 nogil:
    """Run a loop that is a step by itself."""
    if step.refusal != NULL:
        forget_errors()         # the loop would take an earlier invalid operation for its own
    if step.n_axes == 0:
        take_one_call(run, step)
    else:
        run_loop(run, step)
    if step.refusal != NULL:
        refuse_invalid(run, step)
    else:
        note_errors(run, step)
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
    cdef Blocks* blocks = <Blocks*>step.numbers
    cdef cnp.npy_intp n = blocks.n_rows, block = blocks.block
    cdef cnp.npy_intp part = max(block, n * WORK_BETWEEN_SIGNALS // max(step.work, 1) // block * block)
    if blocks.n_threads > 1:
        return share_rows(run, step, part)
    return run_parts(run, step, 0, n, part)


cdef cnp.npy_intp border_of_blocks(PlanStep* step, cnp.npy_intp row) noexcept nogil:
    """Return a row that is a multiple of the rows in a block, or the first row from it on where a block may begin."""
    cdef Blocks* blocks = <Blocks*>step.numbers
    if row == 0 or row >= blocks.n_rows:
        return min(row, blocks.n_rows)
    return end_of_part(row - 1, blocks.n_rows, blocks.block) if blocks.order == ROWS_BY_HALVES else row


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
        watch_signals(run, <Py_ssize_t>(<double>step.work * (next_start - start) / (<Blocks*>step.numbers).n_rows))
        start = next_start
    return 0


cdef int refuse_invalid(PlanRun* run, PlanStep* step) except -1 nogil:
    """Raise LinAlgError if the step has raised the flag of invalid operations. NumPy ignores its other flags."""
    cdef int errors = raised_errors()
    forget_errors()
    if errors & ERROR_INVALID:
        with gil:
            error = numpy.linalg.LinAlgError(<object>step.refusal)
            name, site = (<Plan>run.plan).labels[step - (<Plan>run.plan).steps]
            upcalls.name_loop(error, name.decode(), site)
            raise error
    return 0


cdef int refuse_position(PlanRun* run) except -1 nogil:
    with gil:
        raise IndexError(f"index {run.position} is out of bounds for axis with size {run.extent}")


cdef int run_plan_steps(PlanRun* run, PlanStep* step, PlanStep* after) except -1 nogil:
    """Run the steps up to `after`."""
    cdef PlanStep* next_step
    while step != after:
        next_step = step + 1 + step.n_inside
        if step.small != NULL:
            run_small_loops(run, step)
            next_step = step + step.small.n_steps
        else:
            step.kind.run(run, step)
        step = next_step
    return 0
