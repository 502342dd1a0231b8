# Plans: steps with their memory, and the running of them.

cdef enum:
    LINE = 64                           # bytes in a cache line
    MOST_ENTRIES = 48                   # of a table of addresses that fits on the C stack
    MOST_OF_A_MESSAGE = 99              # characters that NumPy keeps of a floating-point message
    MOST_ADDRESSES = 1 << 24            # in the table of a plan
    LARGEST_SPARE = 1 << 26             # bytes of an arena that a plan keeps from one run to the next


@cython.final
cdef class Arena:
    """The memory of one run. An array that a kernel got and kept keeps it alive."""

    def __cinit__(self, Py_ssize_t size):
        self.size = size
        self.allocated = PyMem_RawMalloc(size + LINE)
        if self.allocated == NULL:
            raise MemoryError(f"a plan needs a workspace of {size} bytes")
        self.memory = <char*>((<size_t>self.allocated + LINE - 1) & ~<size_t>(LINE - 1))

    def __dealloc__(self):
        PyMem_RawFree(self.allocated)


@cython.final
cdef class Plan:
    """Steps that compute results from inputs: `plan.run(*arrays)` returns a tuple of new arrays.

    `inputs` and `results` have a (shape, dtype) for each array. `constants` are arrays. The table of addresses has
    `n_entries`: the arena of `arena_size` bytes, inputs, constants, results, and what moves in repetitions.

    A step is (kind, number of steps inside, loop, buffers, offsets, extents, strides, sizes, steps, numbers, work,
    label): see plans/steps.pxd. A label is (name, site), for messages. A loop is one of

    - `("ufunc", function, type numbers)`
    - `("cast", type number, type number)`
    - `("copy", bytes)`, `("choose", bytes)`, `("gather",)`
    - `("add_layers", type number)`, `("add_products", type number)`
    - `("sum_part", type number)`
    - `("add_parts", type number, largest number of elements of a part)`
    - `("ufunc", function, type numbers, message)`: one that raises LinAlgError for an invalid operation
    - `("search", type number, is_right)`, `("interpolate",)`
    - `("filter", bytes, (is along one axis, offset of each weight's elements, ...))`
    - `("sort", type number, kind)`, `("argsort", type number, kind)`
    - `("factor", 0)`, `("solve_factored", is_transposed)`, `("solve_lower", is_transposed)`, of LAPACK
    - `("native", address, owner)`: a function that a compiler has made, with the signature of NumPy's loops

    The numbers of the other kinds begin with those that `STEP_FIELDS` names: see plans/kinds.pyx. `calls` are
    (function, inputs, outputs, target, copied), with a (buffer, offset, shape, strides, dtype) for each array: see
    `run_call`. Threads share the rows
    of blocks. `donated` has for each result the number of the input whose memory it may take, or -1.

    `pydispatch.compiling` makes plans. Raises ValueError or TypeError if a step would leave its memory.
    """

    def __cinit__(self, tuple inputs, tuple constants, tuple results, Py_ssize_t n_entries, Py_ssize_t arena_size,
                  tuple steps, tuple calls, int n_threads=1, tuple donated=()):
        cdef cnp.npy_intp* free
        cdef Room* used             # the bytes that each operand uses, at the index of its buffer among the numbers
        cdef Py_ssize_t i, needed = 1
        cdef tuple parts
        self.described = (inputs, constants, results, n_entries, arena_size, steps, calls, n_threads, donated)
        check_arrays(inputs, constants, results, donated)
        self.donated = donated
        if not 1 <= n_threads <= MAX_THREADS:
            raise ValueError(f"a plan runs on 1 to {MAX_THREADS} threads, found {n_threads}")
        self.n_threads = n_threads
        self.inputs, self.constants, self.results, self.calls = inputs, constants, results, calls
        self.n_entries, self.arena_size = n_entries, arena_size
        for shape, dtype in results:
            self.has_large_results = self.has_large_results or math.prod(shape) * dtype.itemsize >= SMALLEST_KEPT
        if not 1 + len(inputs) + len(constants) + len(results) <= n_entries < MOST_ADDRESSES:
            raise ValueError(f"a plan of {len(inputs)} inputs, {len(constants)} constants and {len(results)} results "
                             f"cannot have {n_entries} addresses")
        if not 0 <= arena_size < MOST_BYTES:
            raise ValueError(f"the workspace of a plan has {arena_size} bytes, expected 0 to {MOST_BYTES - 1}")
        labels = []
        for described in steps:
            if type(described) is not tuple or len(described) != 12:
                raise TypeError(f"{described!r} is not a step of a plan")
            parts = <tuple>described
            name, site = parts[11]
            labels.append((<bytes?>name.encode(), site))
            needed += len(axes_of_positions(parts[2]))
            for i in range(3, 10):
                numbers = parts[i]
                if type(numbers) is not tuple:
                    raise TypeError(f"a step has {numbers!r}, expected a tuple of numbers")
                needed += len(<tuple>numbers)
        self.labels = tuple(labels)
        self.n_steps = len(steps)
        self.steps = <PlanStep*>PyMem_RawMalloc((self.n_steps + 1) * sizeof(PlanStep))
        self.numbers = <cnp.npy_intp*>PyMem_RawMalloc(needed * sizeof(cnp.npy_intp))
        if self.steps == NULL or self.numbers == NULL:
            raise MemoryError()
        free = self.numbers
        for i in range(self.n_steps):
            lay_out_step(self, i, steps[i], &free)
        used = <Room*>PyMem_RawMalloc(needed * sizeof(Room))
        if used == NULL:
            raise MemoryError()
        try:
            check_steps(self, steps, used)
            write_small_loops(self, steps, used)
            fuse_loops(self, steps, used)
        finally:
            PyMem_RawFree(used)
        self.saved_at = round_to_line(arena_size)
        self.code_at = self.saved_at + round_to_line(self.saved_size)

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(N_PLACES):
            Py_XDECREF(self.spares[i])
        PyMem_RawFree(self.steps)
        PyMem_RawFree(self.numbers)
        PyMem_RawFree(self.rows)
        PyMem_RawFree(self.code)
        PyMem_RawFree(self.fixed)
        PyMem_RawFree(self.patches)
        PyMem_RawFree(self.saved)
        PyMem_RawFree(self.loop_calls)
        PyMem_RawFree(self.fused)
        PyMem_RawFree(self.fused_words)

    def __reduce__(self):
        cdef Py_ssize_t i
        for i in range(self.n_steps):
            if self.steps[i].is_native:
                raise TypeError("a plan with machine code cannot be pickled\npickle the compiled function instead")
        return Plan, self.described

    def accepts(self, *arrays):
        """Return whether `run` takes these arrays."""
        if len(arrays) != len(self.inputs):
            return False
        for array, (shape, dtype) in zip(arrays, self.inputs):
            if type(array) is not numpy.ndarray or not is_array_like(
                    <PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype):
                return False
        return True

    def run(self, *arrays):
        """Return the results as a tuple of new arrays. Raise TypeError unless the arrays match `inputs` one by one."""
        if len(arrays) != len(self.inputs):
            raise TypeError(f"the plan takes {len(self.inputs)} arrays, found {len(arrays)}")
        for i, (array, (shape, dtype)) in enumerate(zip(arrays, self.inputs)):
            if type(array) is not numpy.ndarray or not is_array_like(
                    <PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype):
                raise TypeError(f"input {i} of the plan is {array!r}, expected an array of shape {shape} and dtype "
                                f"{dtype}")
        return run_plan(<PyObject*>self, items_of(arrays), False)


cdef int lay_out_step(Plan plan, Py_ssize_t i, tuple described, cnp.npy_intp** free) except -1:
    """Fill in one step from its description. Store its numbers at `free`, which moves past them."""
    cdef PlanStep* step = &plan.steps[i]
    cdef tuple loop, buffers, offsets, extents, strides, sizes, inner_steps, numbers
    kind, n_inside, loop, buffers, offsets, extents, strides, sizes, inner_steps, numbers, work, _ = described
    step.kind, step.n_inside, step.work = kind_named(kind), n_inside, work
    if len(numbers) < step.kind.n_fields:
        raise ValueError(f"step {i}, {kind}, has {len(numbers)} numbers, expected those of {STEP_FIELDS[kind]}")
    if not 0 <= step.n_inside < plan.n_steps - i or not 0 <= step.work:
        raise ValueError(f"step {i} has {n_inside} steps inside, but only {plan.n_steps - i - 1} follow")
    step.n_operands, step.n_axes = len(buffers), len(extents)
    if step.n_operands > MAX_OPERANDS or step.n_axes > MAX_AXES or len(offsets) != step.n_operands:
        raise ValueError(f"step {i} has {step.n_operands} operands and {step.n_axes} axes")
    step.function = NULL
    step.data = NULL
    step.reports = step.gathers = step.is_native = step.reports_by_call = step.may_raise = step.begins_row = False
    step.is_quiet, step.refusal = False, NULL
    step.small, step.fused = NULL, NULL
    if loop is not None:
        find_plan_loop(step, loop)
    axes = axes_of_positions(loop)
    if axes:
        step.data = put_numbers(free, axes)
    step.buffers = put_numbers(free, buffers)
    step.offsets = put_numbers(free, offsets)
    step.extents = put_numbers(free, extents)
    step.strides = put_numbers(free, strides)
    step.sizes = put_numbers(free, sizes)
    step.steps = put_numbers(free, inner_steps)
    step.numbers = put_numbers(free, numbers)
    step.long_axis = long_axis_of(step, loop)
    if loop is not None and len(sizes) == 4 and len(inner_steps) == 9 and (
            loop[0] == "ufunc" and loop[1] is numpy.matmul and loop[2][0] == cnp.NPY_DOUBLE):
        take_small_product(step)
    if loop is not None and loop[0] == "ufunc" and loop[1] in IS_INVERSE and loop[2][0] == cnp.NPY_DOUBLE:
        take_small_inverse(step, IS_INVERSE[loop[1]])
    step.row_sum = NULL
    if len(extents) == 1 and len(strides) == len(inner_steps) == 3 and len(sizes) == 1:
        find_row_sum(step, loop)
    plan.work = min(plan.work + min(step.work, WORK_WITH_LOCK + 1), WORK_WITH_LOCK + 1)     # capped
    return 0


cdef enum:
    LONGEST_SHORT_ROW = 8       # elements. A call takes as long as about eight strided ones


cdef int long_axis_of(PlanStep* step, tuple loop) except -2:
    """Return the longest outer axis if the loop's own axis is short and the order of axes changes no bit, else -1.

    NumPy adds up fewer than eight numbers one by one.
    """
    cdef int axis, found = -1, last = step.n_operands - 1
    if loop is None or step.n_axes == 0 or step.sizes[0] > LONGEST_SHORT_ROW - (step.steps[last] == 0):
        return -1
    if not (loop[0] in ("copy", "choose", "cast") or loop[0] == "ufunc" and is_exact(loop)):
        return -1
    for axis in range(step.n_axes):
        if step.strides[axis * step.n_operands + last] and (found < 0 or step.extents[axis] > step.extents[found]):
            found = axis
    return found


cdef enum:
    LONGEST_ROW = 1 << 12       # bytes: along longer ones, the processor fetches rows better than columns


cdef int find_row_sum(PlanStep* step, tuple loop) except -1:
    """Note the function that adds rows of adjacent elements to one row, or finds extremes, if a step does that."""
    cdef cnp.npy_intp size
    if loop is None or step.n_operands != 3 or loop[0] != "ufunc":
        return 0
    size = step.steps[2]
    if (step.buffers[0] == step.buffers[2] and step.offsets[0] == step.offsets[2] and step.strides[0] == 0
            and step.strides[2] == 0 and step.steps[0] == size and step.steps[1] == size
            and size == itemsize_of_type(loop[2][0]) and step.sizes[0] * size <= LONGEST_ROW):
        if loop[1] is numpy.add:
            step.row_sum = row_sum_of(loop[2][0])
        elif loop[1] is numpy.maximum or loop[1] is numpy.minimum:
            step.row_sum = extreme_of_rows(loop[2][0], loop[1] is numpy.maximum, step.sizes[0])
    return 0


cdef cnp.npy_intp* put_numbers(cnp.npy_intp** free, tuple numbers) except NULL:
    """Store numbers at `free`, which moves past them. Return their address."""
    cdef cnp.npy_intp* first = free[0]
    cdef Py_ssize_t i
    for i in range(len(numbers)):
        first[i] = numbers[i]
        if not -MOST_BYTES < <double>first[i] < MOST_BYTES:
            raise ValueError(f"a step has the number {numbers[i]}")
    free[0] += len(numbers)
    return first


cdef tuple axes_of_positions(tuple loop):
    """Return the data of a loop about the axes of positions or the offsets of weights, or () for other loops."""
    if loop is None or loop[0] == "ufunc" or not (loop[0] in POSITION_LOOPS or loop[0] == "filter"):
        return ()
    return loop[2]


cdef frozenset POSITION_LOOPS = frozenset(["pick", "put", "put_sum"])


cdef int find_plan_loop(PlanStep* step, tuple loop) except -1:
    """Fill in the function of a loop. Raise ValueError if there is none."""
    cdef void* unused
    kind = loop[0]
    if kind in ("copy", "choose") and loop[1] < 0:
        raise ValueError(f"there is no loop {loop!r}")
    if kind == "ufunc":
        if cnp.NPY_OBJECT in loop[2]:
            raise ValueError(f"{loop[1]!r} works on objects, which plans do not support")
        if not find_loop_of_types(loop[1], loop[2], &step.function, &step.data):
            raise ValueError(f"{loop[1]!r} has no loop for the types {loop[2]}")
        step.reports = any_floating(loop[2]) or (         # integers: a division by zero
            len(loop[2]) > 2 and row_of(loop[1])[1] != "ARITHMETIC")
        step.reports_by_call = step.reports and may_report_by_call(loop)
        step.may_raise = may_raise(loop)
        if len(loop) > 3:
            step.refusal = <PyObject*><str?>loop[3]
        widen_loop(step, loop)
    elif kind == "cast":
        step.function = cast_loop(loop[1], loop[2])
        step.reports = True
        put_standalone(step, loop)
    elif kind == "copy":
        step.function, step.data = copy_loop(loop[1]), <void*><Py_ssize_t>loop[1]
    elif kind == "choose":
        step.function, step.data = choose_loop(loop[1]), <void*><Py_ssize_t>loop[1]
        put_standalone(step, loop)
    elif kind == "native":
        step.function = <PyUFuncGenericFunction><size_t>loop[1]
        step.is_native = step.is_quiet = True
    elif kind == "gather":
        step.function = gather_layers
        step.gathers = True
    elif kind == "add_layers":
        step.function = add_layers_loop(loop[1])
        step.gathers = step.reports = True
    elif kind == "add_products":
        step.function = add_products_loop(loop[1])
        step.gathers = step.reports = True
    elif kind == "pick":
        step.function = pick_loop(loop[1])
        step.gathers = True
    elif kind == "put":
        step.function = put_loop(loop[1])
        step.gathers = True
    elif kind == "sum_part":
        step.function = sum_part_loop(loop[1])
        if step.function != NULL and not find_loop_of_types(
                numpy.add, (loop[1],) * 3, <PyUFuncGenericFunction*>&step.data, &unused):
            step.function = NULL
        step.reports = True
    elif kind == "add_parts" and loop[2] >= SHORTEST_PART:
        step.function, step.data = add_parts_loop(loop[1]), <void*><Py_ssize_t>loop[2]
        step.reports = True
    elif kind == "put_sum":
        step.function = put_sum_loop(loop[1])
        step.gathers = step.reports = True
    elif kind in ROW_LOOPS:
        find_row_loop(step, loop)
    if step.function == NULL:
        raise ValueError(f"there is no loop {loop!r}")
    return 0


cdef int find_row_loop(PlanStep* step, tuple loop) except -1:
    """Fill in the function of a loop over rows or matrices."""
    kind = loop[0]
    step.is_quiet = True
    if kind == "search":
        step.function = search_loop(loop[1], loop[2])
    elif kind == "interpolate":
        step.function = interpolate
    elif kind == "filter":
        step.function = filter_rows
    elif kind == "sort" or kind == "argsort":
        step.data = sort_function(loop[1], loop[2]) if kind == "sort" else argsort_function(loop[1], loop[2])
        if step.data != NULL:
            step.function = sort_rows if kind == "sort" else argsort_rows
    else:
        step.function = lapack_loop(LAPACK_LOOPS.index(kind))
        step.data = <void*><Py_ssize_t>loop[1]
        step.refusal = <PyObject*>SINGULAR
    return 0


cdef str SINGULAR = "Singular matrix"


def connect_lapack(addresses, int size):
    """Set the addresses of LAPACK's routines getrf, getrs and trtrs for float64, and the bytes of their integers."""
    getrf, getrs, trtrs = addresses
    set_lapack(getrf, getrs, trtrs, size)


cdef bint any_floating(types) except -1:
    for number in types:
        if PyTypeNum_ISFLOAT(number) or PyTypeNum_ISCOMPLEX(number):
            return True
    return False


def has_loop(tuple loop not None):
    """Return whether there is a loop with this description. See Plan."""
    cdef PlanStep step
    step.function = NULL
    try:
        find_plan_loop(&step, loop)
    except (ValueError, OverflowError):
        return False
    return True


# --- a run ------------------------------------------------------------------------------------------------------------


cdef tuple run_plan(PyObject* plan, PyObject* const* inputs, bint takes_donated):
    cdef char* small_table[MOST_ENTRIES]
    cdef char** table = small_table
    cdef PlanRun run
    cdef PyObject* spare = take_object(own_place((<Plan>plan).spares))
    cdef Arena arena = new_arena(<Plan>plan) if spare == NULL else <Arena>steal(spare)
    cdef Py_ssize_t n_inputs = PyTuple_GET_SIZE(<PyObject*>(<Plan>plan).inputs)
    cdef Py_ssize_t n_constants = PyTuple_GET_SIZE(<PyObject*>(<Plan>plan).constants), i
    cdef tuple results
    cdef list copies = None         # of inputs that are not in C order
    cdef PyObject* array
    cdef PyObject* kept
    if (<Plan>plan).n_entries > MOST_ENTRIES:
        table = <char**>PyMem_RawMalloc((<Plan>plan).n_entries * sizeof(char*))
        if table == NULL:
            raise MemoryError()
    try:
        table[0] = arena.memory
        for i in range(n_inputs):
            array = inputs[i]
            if not PyArray_ISCARRAY_RO(<PyArrayObject*>array):
                copy = numpy.array(<object>array, order="C", copy=True, subok=False)
                copies = keep_in(copies, copy)
                array = <PyObject*>copy
            table[1 + i] = <char*>PyArray_DATA(<PyArrayObject*>array)
        for i in range(n_constants):
            array = PyTuple_GET_ITEM(<PyObject*>(<Plan>plan).constants, i)
            table[1 + n_inputs + i] = <char*>PyArray_DATA(<PyArrayObject*>array)
        takes_donated = takes_donated and PyTuple_GET_SIZE(<PyObject*>(<Plan>plan).donated) > 0
        results = new_results(<Plan>plan, table + 1 + n_inputs + n_constants, inputs if takes_donated else NULL)
        run.table, run.plan, run.inputs, run.n_noted, run.work = table, plan, NULL, 0, 0
        run.meets_out_of_range = run.has_named = False
        run.code, run.saved = <CodeWord*>(arena.memory + (<Plan>plan).code_at), arena.memory + (<Plan>plan).saved_at
        run.watched = -1
        run.n_threads = (<Plan>plan).n_threads
        # else nothing can release the inputs during the run
        if PyTuple_GET_SIZE(<PyObject*>(<Plan>plan).calls) or (<Plan>plan).work > WORK_WITH_LOCK:
            held = (arena, copies, results, tuple_of(inputs, n_inputs))
            run.inputs = <PyObject*>held
        forget_errors()
        if (<Plan>plan).work > WORK_WITH_LOCK:
            with nogil:
                run_plan_steps(&run, (<Plan>plan).steps, (<Plan>plan).steps + (<Plan>plan).n_steps)
        else:
            run_plan_steps(&run, (<Plan>plan).steps, (<Plan>plan).steps + (<Plan>plan).n_steps)
        check_loops()
        if run.n_noted:
            report_noted(<Plan>plan, &run)
    finally:
        if table != small_table:
            PyMem_RawFree(table)
    held = None
    if (<Plan>plan).arena_size <= LARGEST_SPARE and (
            IS_FREE_THREADED and run.inputs == NULL or has_references(<PyObject*>arena, 1)):
        give_object(own_place((<Plan>plan).spares), new_reference(arena))
    return results


cdef inline Py_ssize_t round_to_line(Py_ssize_t size) noexcept:
    return (size + LINE - 1) // LINE * LINE


cdef Arena new_arena(Plan plan):
    """Return the memory of a run, with the code of the plan behind it."""
    arena = <Arena>Arena.__new__(Arena, plan.code_at + plan.n_words * sizeof(CodeWord) + LINE)
    fix_addresses(plan, arena)
    return arena


cdef tuple new_results(Plan plan, char** table, PyObject* const* inputs):
    """Allocate the results and store their addresses. Donated inputs may be used instead of new arrays."""
    cdef char* apart = NULL if inputs == NULL else inputs_apart(inputs, PyTuple_GET_SIZE(<PyObject*>plan.inputs))
    before = begin_buffer_cache() if plan.has_large_results else None
    try:
        return new_arrays(plan, table, inputs, apart)
    finally:
        PyMem_RawFree(apart)
        if before is not None:
            end_buffer_cache(before)


cdef tuple new_arrays(Plan plan, char** table, PyObject* const* inputs, char* apart):
    cdef Py_ssize_t n = PyTuple_GET_SIZE(<PyObject*>plan.results), i, k, axis
    cdef tuple results = PyTuple_New(n)
    cdef cnp.npy_intp extents[MAX_AXES]
    cdef PyObject* shape
    cdef PyObject* dtype
    for i in range(n):
        if inputs != NULL:
            k = <object>PyTuple_GET_ITEM(<PyObject*>plan.donated, i)
            if k >= 0 and apart[k]:
                table[i] = <char*>PyArray_DATA(<PyArrayObject*>inputs[k])
                Py_INCREF(<object>inputs[k])
                PyTuple_SET_ITEM(results, i, <object>inputs[k])
                continue
        shape = PyTuple_GET_ITEM(PyTuple_GET_ITEM(<PyObject*>plan.results, i), 0)
        dtype = PyTuple_GET_ITEM(PyTuple_GET_ITEM(<PyObject*>plan.results, i), 1)
        for axis in range(PyTuple_GET_SIZE(shape)):
            extents[axis] = <cnp.npy_intp>(<object>PyTuple_GET_ITEM(shape, axis))
        Py_INCREF(<object>dtype)
        array = PyArray_NewFromDescr(&PyArray_Type, dtype, <int>PyTuple_GET_SIZE(shape), extents, NULL, NULL, 0, NULL)
        table[i] = <char*>PyArray_DATA(<PyArrayObject*><PyObject*>array)
        Py_INCREF(array)
        PyTuple_SET_ITEM(results, i, array)
    return results


cdef struct Extent:             # the memory of an input
    char* start
    char* after
    Py_ssize_t number


cdef int compare_starts(const void* first, const void* second) noexcept nogil:
    cdef char* a = (<const Extent*>first).start
    cdef char* b = (<const Extent*>second).start
    return (a > b) - (a < b)


cdef char* inputs_apart(PyObject* const* inputs, Py_ssize_t n) except NULL:
    """Return for each input whether a result may take its memory: whether no other input shares some of it.

    The caller frees the answer.
    """
    cdef Extent* extents = <Extent*>PyMem_RawMalloc(n * sizeof(Extent))
    cdef char* answer = <char*>PyMem_RawCalloc(n, 1)
    cdef char* reached = NULL   # the end of the inputs before
    cdef PyArrayObject* array
    cdef Py_ssize_t i
    if extents == NULL or answer == NULL:
        PyMem_RawFree(extents)
        PyMem_RawFree(answer)
        raise MemoryError()
    for i in range(n):
        array = <PyArrayObject*>inputs[i]
        if not PyArray_ISCARRAY_RO(array):      # its memory may be anywhere
            n = 0
            break
        extents[i].start = <char*>PyArray_DATA(array)
        extents[i].after = extents[i].start + PyArray_NBYTES(array)
        extents[i].number = i
    qsort(extents, n, sizeof(Extent), compare_starts)
    for i in range(n):
        array = <PyArrayObject*>inputs[extents[i].number]
        answer[extents[i].number] = (
            PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE and reached <= extents[i].start
            and (i + 1 == n or extents[i].after <= extents[i + 1].start))
        reached = max(reached, extents[i].after)
    PyMem_RawFree(extents)
    return answer


cdef int check_loops() except -1:
    """Raise the exception that a loop has set, if any. Loops of SciPy and Numba can set one."""
    return -1 if PyErr_Occurred() != NULL else 0


cdef void name_raised(PlanRun* run, PlanStep* step) noexcept nogil:
    """Add the step's name to the exception that it has set. A later exception of the run does not change the name."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    if run.has_named:
        return
    run.has_named = True
    with gil:
        PyErr_Fetch(&kind, &error, &trace)
        PyErr_NormalizeException(&kind, &error, &trace)
        try:
            name, site = (<Plan>run.plan).labels[step - (<Plan>run.plan).steps]
            upcalls.name_loop(<object>error, name.decode(), site)
        except Exception:       # the loop's exception matters more
            pass
        PyErr_Restore(kind, error, trace)


cdef bint forget_raised(PlanRun* run) noexcept nogil:
    """Clear the exception of a row. Return False if there is none, or an earlier step raised it."""
    if run.has_named or not has_raised():
        return False
    with gil:
        PyErr_Clear()
    return True


cdef int report_noted(Plan plan, PlanRun* run) except -1:
    """Warn or raise for the floating-point flags of steps, as `numpy.errstate` specifies."""
    cdef int i, flags
    for i in range(run.n_noted):
        name, site = plan.labels[run.noted[i] - plan.steps]
        flags = run.flags[i] & ~<int>getattr(site, "ignored", 0)
        if not flags:
            continue
        if site is not None:
            room = MOST_OF_A_MESSAGE - len("divide by zero encountered in ") - len(name) - len(" (at )")
            name += f" (at {site if len(site) <= room else '...' + site[3 - room:]})".encode()
        PyUFunc_GiveFloatingpointErrors(<const char*><bytes>name, flags)
    return 0


cdef bint is_array_like(PyArrayObject* array, PyObject* shape, PyObject* dtype) except -1:
    """Return whether a NumPy array has this shape, a tuple of ints, and this dtype."""
    cdef Py_ssize_t ndim = PyTuple_GET_SIZE(shape), axis
    if PyArray_NDIM(array) != ndim:
        return False
    for axis in range(ndim):
        if PyArray_DIMS(array)[axis] != <Py_ssize_t>(<object>PyTuple_GET_ITEM(shape, axis)):
            return False
    return <void*>PyArray_DESCR(array) == <void*>dtype or <object>PyArray_DESCR(array) == <object>dtype
