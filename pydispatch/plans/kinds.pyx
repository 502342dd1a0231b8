# The kinds of steps: how a plan checks and runs each.
#
# A kind has a name, a struct of the numbers that describe it, and two functions. One raises ValueError for a step that
# could leave its memory, the other runs the step. A new kind adds these here, and a line at the end of this file.

# tests: tests/core/test_plans.py

cdef enum:
    MOST_KINDS = 16
    MOST_FIELDS = 16

cdef StepKind[MOST_KINDS] KINDS
cdef cnp.npy_intp[MOST_FIELDS] NO_NUMBERS
cdef dict KIND_NUMBERS = {}
STEP_FIELDS = {}                # by name of a kind: the names of its numbers


cdef StepKind* add_kind(str name, dict fields, StepRun run, StepCheck check) except NULL:
    """Add a kind with the fields of its struct, which Cython turns into a dict."""
    cdef StepKind* kind = &KINDS[len(KIND_NUMBERS)]
    KIND_NUMBERS[name] = len(KIND_NUMBERS)
    STEP_FIELDS[name] = tuple(fields)
    kind.n_fields, kind.run, kind.check = len(fields), run, check
    return kind


cdef StepKind* kind_named(name) except NULL:
    return &KINDS[<int>KIND_NUMBERS[name]]


# --- loops, and loops in blocks ---------------------------------------------------------------------------------------


cdef int check_single_loop(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    if following != i + 1:
        raise ValueError(f"step {i}, a loop, has steps inside")
    return checker.check_loop(i, 0, 0, 0)


cdef int check_blocks(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    """Check the loops of blocks on the first block, the last full one and the last one.

    Also note whether one may raise. Threads that share blocks need the GIL then, so the run releases it.
    """
    cdef Plan plan = checker.plan
    cdef PlanStep* step = &plan.steps[i]
    cdef PlanStep* inner
    cdef Blocks* blocks = <Blocks*>step.numbers
    cdef Py_ssize_t k, n = blocks.n_rows, block = blocks.block, local = blocks.local_bytes, last
    cdef int thread, least = SHORTEST_PART if blocks.order == ROWS_BY_HALVES else 1
    if not least <= block < MOST_BYTES or not 0 < n < MOST_BYTES or not 0 <= local <= plan.arena_size:
        raise ValueError(f"step {i} has {n} rows in blocks of {block}")
    if not 1 <= blocks.n_threads <= (1 if blocks.order == ROWS_IN_ORDER else plan.n_threads):
        raise ValueError(f"step {i} shares rows among {blocks.n_threads} threads, of {plan.n_threads}")
    last = (n - 1) // block * block
    for k in range(i + 1, following):
        inner = &plan.steps[k]
        if (inner.kind != LOOP_STEP or inner.n_inside or checker.described[k][2][0] in LAYER_LOOPS
                or len(checker.described[k][9]) != 1 + 3 * inner.n_operands or inner.numbers[0] < 0
                or inner.numbers[0] == 0 and inner.n_axes == 0
                or not {0, 1}.issuperset(checker.described[k][9][1 + inner.n_operands:])):
            raise ValueError(f"step {k} cannot be part of blocks")
        for thread in range(0, plan.n_threads, max(plan.n_threads - 1, 1)):       # first and last
            checker.check_loop(k, min(block, n), 0, thread * local)
            checker.check_loop(k, n - last, last, thread * local)
            if last >= block:
                checker.check_loop(k, block, last - block, thread * local)
        step.may_raise = step.may_raise or inner.may_raise
    if step.may_raise and plan.n_threads > 1:
        plan.work = WORK_WITH_LOCK + 1
    return 0


# --- calls of Python --------------------------------------------------------------------------------------------------

cdef struct Call:               # of a Python function on arrays in the memory of the run
    cnp.npy_intp index              # among the plan's calls


cdef int check_call(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    cdef tuple calls = checker.plan.calls
    cdef Py_ssize_t index = (<Call*>checker.plan.steps[i].numbers).index
    cdef Room used
    if following != i + 1 or not 0 <= index < len(calls):
        raise ValueError(f"step {i} calls none of the {len(calls)} functions")
    function, given, taken, target, copied = calls[index]
    if type(copied) is not tuple:
        raise TypeError(f"step {i} copies the arguments {copied!r}")
    for k, place in enumerate((*<tuple?>given, *<tuple?>taken)):
        buffer, offset, shape, strides, dtype = <tuple?>place
        check_shape(shape)
        if (type(strides) is not tuple or len(strides) != len(shape) or not is_plain_dtype(dtype)
                or set(map(type, (buffer, offset, *strides))) != {int}):
            raise TypeError(f"step {i} is passed {place!r} for an array")
        used.first, used.after = 0, dtype.itemsize
        for extent, stride in zip(shape, strides):
            if extent == 0:
                used.after = used.first
                break
            widen_room(&used, <double>(extent - 1) * <double><cnp.npy_intp>stride)
        else:
            shift_room(&used, <double><cnp.npy_intp>offset)
        checker.check_use(i, buffer, used.first, used.after, k >= len(given))
        if k >= len(given) and not are_in_c_order(shape, strides, dtype.itemsize):
            raise ValueError(f"step {i} is passed {place!r} for a result")
    return 0


cdef bint are_in_c_order(tuple shape, tuple strides, following) except -1:
    """Return whether an array of this shape is in C order. `following` is the distance of elements on the last axis."""
    if 0 in shape:
        return True
    for extent, stride in zip(shape[::-1], strides[::-1]):
        if extent != 1 and stride != following:
            return False
        following *= extent
    return True


cdef int run_call(PlanRun* run, PlanStep* step) except -1 nogil:
    """Call `function(inputs, outputs)`, or call its target on the inputs, and let the function store other results.

    Arguments whose numbers are in `copied` may be kept, so they are new arrays.
    """
    with gil:
        check_loops()
        plan = <Plan>run.plan
        function, given, taken, target, copied = plan.calls[(<Call*>step.numbers).index]
        try:
            if target is None:
                function(arrays_at(run, given, False, copied), arrays_at(run, taken, True, ()))
            else:
                result = target(*arrays_at(run, given, False, copied))
                if not store_result(run, <PyObject*>result, taken):
                    function.store(result, arrays_at(run, taken, True, ()))
        except Exception as error:
            name, site = plan.labels[step - plan.steps]
            if site is not None:
                error.add_note(f"in {name.decode()}, which the compiled function calls at {site}")
            raise
        forget_errors()
    return 0


cdef bint store_result(PlanRun* run, PyObject* result, tuple taken) except -1:
    """Copy a result of the expected shape and dtype to its place, which is in C order. Return False for others."""
    if len(taken) != 1 or Py_TYPE(result) != &PyArray_Type:
        return False
    buffer, offset, shape, _, dtype = taken[0]
    if not PyArray_ISCARRAY_RO(<PyArrayObject*>result) or not is_array_like(
            <PyArrayObject*>result, <PyObject*>shape, <PyObject*>dtype):
        return False
    memcpy(run.table[<Py_ssize_t>buffer] + <Py_ssize_t>offset, PyArray_DATA(<PyArrayObject*>result),
           PyArray_NBYTES(<PyArrayObject*>result))
    return True


cdef tuple arrays_at(PlanRun* run, tuple places, bint writeable, tuple copied):
    """Return arrays in the memory of a run, which keep it alive, or copies of them."""
    cdef cnp.npy_intp extents[MAX_AXES]
    cdef cnp.npy_intp strides[MAX_AXES]
    cdef Py_ssize_t n = len(places), i, axis
    cdef tuple arrays = PyTuple_New(n)
    for i in range(n):
        buffer, offset, shape, array_strides, dtype = places[i]
        for axis in range(len(shape)):
            extents[axis] = shape[axis]
            strides[axis] = array_strides[axis]
        Py_INCREF(dtype)
        array = PyArray_NewFromDescr(
            &PyArray_Type, <PyObject*>dtype, <int>len(shape), extents, strides,
            run.table[<Py_ssize_t>buffer] + <Py_ssize_t>offset, NPY_ARRAY_WRITEABLE if writeable else 0, NULL)
        Py_INCREF(<object>run.inputs)
        PyArray_SetBaseObject(<PyArrayObject*><PyObject*>array, run.inputs)
        if copied and i in copied:
            array = steal(PyArray_NewCopy(<PyArrayObject*><PyObject*>array, NPY_CORDER))
        Py_INCREF(array)
        PyTuple_SET_ITEM(arrays, i, array)
    return arrays


# --- choices ----------------------------------------------------------------------------------------------------------

cdef struct Choice:             # the steps of one of two branches
    cnp.npy_intp buffer, offset     # of the condition
    cnp.npy_intp n_first            # steps of the first branch


cdef int check_choice(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    cdef Choice* choice = <Choice*>checker.plan.steps[i].numbers
    cdef Py_ssize_t middle = i + 1 + choice.n_first, known = len(checker.moving)
    if not i < middle <= following:
        raise ValueError(f"step {i}, a choice, has {choice.n_first} steps in its first branch, of {following - i - 1}")
    checker.check_use(i, choice.buffer, choice.offset, <double>choice.offset + 1)
    checker.check(i + 1, middle)
    checker.forget(known)
    checker.check(middle, following)
    checker.forget(known)
    return 0


cdef int run_choice(PlanRun* run, PlanStep* step) except -1 nogil:
    cdef Choice* choice = <Choice*>step.numbers
    cdef PlanStep* middle = step + 1 + choice.n_first
    if run.table[choice.buffer][choice.offset]:
        return run_plan_steps(run, step + 1, middle)
    return run_plan_steps(run, middle, step + 1 + step.n_inside)


# --- repetitions ------------------------------------------------------------------------------------------------------

cdef int check_repeat(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    cdef Repetition* repetition = <Repetition*>checker.plan.steps[i].numbers
    cdef Py_ssize_t length = repetition.length
    cdef Room room
    moves = check_places(checker, i)
    if not 0 < length < MOST_BYTES:
        raise ValueError(f"step {i} is repeated {length} times")
    for number, array, offset, stride in in_groups(moves, 4):
        checker.check_use(i, array, 0, 0)
        room = checker.rooms[<Py_ssize_t>array]
        shift_room(&room, -<double><cnp.npy_intp>offset)
        narrow_room(&room, <double>(length - 1) * <double><cnp.npy_intp>stride)
        checker.set_room(i, number, &room)
    return checker.check(i + 1, following)


cdef int check_while(PlanChecker checker, Py_ssize_t i, Py_ssize_t following) except -1:
    cdef Repetition* repetition = <Repetition*>checker.plan.steps[i].numbers
    cdef Py_ssize_t known, middle = i + 1 + repetition.n_test
    if repetition.n_moves or not i < middle <= following:
        raise ValueError(f"step {i} has {repetition.n_moves} moves and {repetition.n_test} steps before its condition, "
                         f"of {following - i - 1}")
    check_places(checker, i)
    checker.check(i + 1, middle)
    checker.check_use(i, repetition.buffer, repetition.offset, <double>repetition.offset + 1)
    known = len(checker.moving)
    checker.check(middle, following)
    checker.forget(known)
    return 0


cdef tuple check_places(PlanChecker checker, Py_ssize_t i):
    """Check the memories of a repetition's carries and which of them are swapped. Return the numbers of its moves."""
    cdef tuple numbers = checker.described[i][9][REPEAT_STEP.n_fields:]
    cdef object n_places, n_moves, n_swaps, first_swap
    cdef Room room
    n_places, n_moves, n_swaps = checker.described[i][9][:3]
    first_swap = len(numbers) - 2 * n_swaps
    if min(n_places, n_moves, n_swaps) < 0 or first_swap != 2 * n_places + 4 * n_moves:
        raise ValueError(f"step {i}, a repetition, has {len(numbers)} further numbers for {n_places} places, {n_moves} "
                         f"moves and {n_swaps} swaps")
    places = set()
    for number, offset in in_groups(numbers[:2 * n_places], 2):
        places.add(number)
        room.first, room.after, room.is_written = 0, checker.plan.arena_size, True
        shift_room(&room, -<double><cnp.npy_intp>offset)
        checker.set_room(i, number, &room)
    for one, other in in_groups(numbers[first_swap:], 2):
        if one not in places or other not in places:
            raise ValueError(f"step {i} has addresses {one} and {other} change places, which it does not set")
        checker.share_room(one, other)
    return numbers[2 * n_places:first_swap]


cdef object in_groups(tuple numbers, Py_ssize_t n):
    """Return an iterator over the tuples of `n` numbers."""
    return zip(*[iter(numbers)] * n)


cdef cnp.npy_intp* places_of(PlanStep* step) noexcept nogil:
    return <cnp.npy_intp*>(<Repetition*>step.numbers + 1)


cdef cnp.npy_intp* moves_of(PlanStep* step) noexcept nogil:
    return places_of(step) + 2 * (<Repetition*>step.numbers).n_places


cdef cnp.npy_intp* swaps_of(PlanStep* step) noexcept nogil:
    return moves_of(step) + 4 * (<Repetition*>step.numbers).n_moves


cdef int run_repeat(PlanRun* run, PlanStep* step) except -1 nogil:
    cdef cnp.npy_intp k
    set_places(run, step)
    if step.n_inside and step[1].small != NULL and step[1].small.distance:
        return repeat_small_loops(run, step)
    for k in range((<Repetition*>step.numbers).length):
        move_entries(run, step, k)
        run_plan_steps(run, step + 1, step + 1 + step.n_inside)
        swap_entries(run, step)
        watch_signals(run, WORK_OF_REPETITION)
    return 0


cdef int run_while(PlanRun* run, PlanStep* step) except -1 nogil:
    cdef Repetition* repetition = <Repetition*>step.numbers
    cdef PlanStep* body = step + 1 + repetition.n_test
    set_places(run, step)
    while True:
        run_plan_steps(run, step + 1, body)
        if not run.table[repetition.buffer][repetition.offset]:
            return 0
        run_plan_steps(run, body, step + 1 + step.n_inside)
        swap_entries(run, step)
        watch_signals(run, WORK_OF_REPETITION)


cdef void set_places(PlanRun* run, PlanStep* step) noexcept nogil:
    """Set the entries of carries to their memories."""
    cdef cnp.npy_intp* places = places_of(step)
    cdef cnp.npy_intp i
    for i in range((<Repetition*>step.numbers).n_places):
        run.table[places[2 * i]] = run.table[0] + places[2 * i + 1]


cdef void move_entries(PlanRun* run, PlanStep* step, cnp.npy_intp k) noexcept nogil:
    cdef cnp.npy_intp* moves = moves_of(step)
    cdef cnp.npy_intp i
    for i in range((<Repetition*>step.numbers).n_moves):
        run.table[moves[4 * i]] = run.table[moves[4 * i + 1]] + moves[4 * i + 2] + k * moves[4 * i + 3]


cdef void swap_entries(PlanRun* run, PlanStep* step) noexcept nogil:
    cdef cnp.npy_intp* pairs = swaps_of(step)
    cdef char* kept
    cdef cnp.npy_intp i
    for i in range((<Repetition*>step.numbers).n_swaps):
        kept = run.table[pairs[2 * i]]
        run.table[pairs[2 * i]] = run.table[pairs[2 * i + 1]]
        run.table[pairs[2 * i + 1]] = kept


# --- the table --------------------------------------------------------------------------------------------------------

cdef StepKind* LOOP_STEP = add_kind("loop", {}, run_loop_step, check_single_loop)
cdef StepKind* BLOCKS_STEP = add_kind("blocks", (<Blocks*>NO_NUMBERS)[0], run_blocks, check_blocks)
cdef StepKind* REPEAT_STEP = add_kind("repeat", (<Repetition*>NO_NUMBERS)[0], run_repeat, check_repeat)
add_kind("while", (<Repetition*>NO_NUMBERS)[0], run_while, check_while)
add_kind("choose", (<Choice*>NO_NUMBERS)[0], run_choice, check_choice)
add_kind("call", (<Call*>NO_NUMBERS)[0], run_call, check_call)
