# Plans: steps with the memory that they work in, and a run of them.

cdef enum:
    LINE = 64                           # bytes in a line of the cache
    MOST_ENTRIES = 48                   # of a table of addresses on the stack
    LARGEST_SPARE = 1 << 26             # bytes of an arena that a plan keeps from one run to the next
    WORK_WITH_LOCK = 1 << 16            # elements: beyond, a run lets go of the GIL

cdef dict STEP_KINDS = {"loop": LOOP_STEP, "blocks": BLOCKS_STEP, "repeat": REPEAT_STEP, "while": WHILE_STEP,
                        "choose": CHOOSE_STEP, "call": CALL_STEP}


@cython.final
cdef class Arena:
    """The memory of one run, which arrays that a kernel has kept hold on to."""

    def __cinit__(self, Py_ssize_t size):
        self.size = size
        self.allocated = PyMem_RawMalloc(size + LINE)
        if self.allocated == NULL:
            raise MemoryError(f"a plan needs {size} bytes for what it computes on the way")
        self.memory = <char*>((<size_t>self.allocated + LINE - 1) & ~<size_t>(LINE - 1))

    def __dealloc__(self):
        PyMem_RawFree(self.allocated)


@cython.final
cdef class Plan:
    """Steps that compute results from inputs: `plan.run(*arrays)` gives a tuple of new arrays.

    `inputs` and `results` have a (shape, dtype) for each array, `constants` are arrays. The table of addresses has
    `n_entries`: the arena of `arena_size` bytes, inputs, constants, results, and what moves. A step is (kind, number of
    steps inside, loop, buffers, offsets, extents, strides, sizes, steps, numbers, work, label): see core/steps.pxd. A
    loop is ("ufunc", function, type numbers), ("cast", type number, type number), ("copy", bytes), ("choose", bytes) or
    ("gather",).
    A label is (name, site), for messages. The first number of a step that is a "call" says which of `calls`:
    `function(inputs, outputs)`, with what these are, (buffer, offset, shape, strides, dtype) each. Blocks are shared
    among `n_threads`. `donated` has for each result the number of the input whose memory it may take, or -1.

    Plans are made by `pydispatch.compiling`, which checks what it says of memory; nothing here does.
    """

    def __cinit__(self, tuple inputs, tuple constants, tuple results, Py_ssize_t n_entries, Py_ssize_t arena_size,
                  tuple steps, tuple calls, int n_threads=1, tuple donated=()):
        cdef PlanStep* step
        cdef cnp.npy_intp* free
        cdef Py_ssize_t i, needed = 1
        self.described = (inputs, constants, results, n_entries, arena_size, steps, calls, n_threads, donated)
        if donated and len(donated) != len(results):
            raise ValueError(f"donated says where {len(donated)} results may lie, of {len(results)}")
        self.donated = donated
        if not 1 <= n_threads <= MAX_THREADS:
            raise ValueError(f"a plan runs on 1 to {MAX_THREADS} threads, not {n_threads}")
        self.n_threads = n_threads
        self.inputs, self.constants, self.results, self.calls = inputs, constants, results, calls
        self.n_entries, self.arena_size = n_entries, arena_size
        if n_entries < 1 + len(inputs) + len(constants) + len(results):
            raise ValueError(f"a plan of {len(inputs)} inputs, {len(constants)} constants and {len(results)} results "
                             f"has more than {n_entries} addresses")
        for constant in constants:
            if type(constant) is not numpy.ndarray or not constant.flags.c_contiguous or not constant.flags.aligned:
                raise TypeError("the constants of a plan are contiguous arrays")
        labels = []
        for described in steps:
            name, site = described[11]
            labels.append((name.encode(), site))
        self.labels = tuple(labels)
        for described in steps:
            for numbers in described[3:10]:
                needed += len(numbers)
        self.n_steps = len(steps)
        self.steps = <PlanStep*>PyMem_RawMalloc((self.n_steps + 1) * sizeof(PlanStep))
        self.numbers = <cnp.npy_intp*>PyMem_RawMalloc(needed * sizeof(cnp.npy_intp))
        if self.steps == NULL or self.numbers == NULL:
            raise MemoryError()
        free = self.numbers
        for i in range(self.n_steps):
            step = &self.steps[i]
            kind, n_inside, loop, buffers, offsets, extents, strides, sizes, inner_steps, numbers, work, _ = steps[i]
            step.kind, step.n_inside, step.work = STEP_KINDS[kind], n_inside, work
            if not 0 <= step.n_inside < self.n_steps - i:
                raise ValueError(f"step {i} has {n_inside} steps inside, of {self.n_steps - i - 1} that follow")
            step.n_operands, step.n_axes = len(buffers), len(extents)
            if step.n_operands > MAX_OPERANDS or step.n_axes > MAX_AXES or len(offsets) != step.n_operands:
                raise ValueError(f"step {i} has {step.n_operands} operands and {step.n_axes} axes")
            step.function, step.data, step.reports, step.gathers = NULL, NULL, False, False
            if loop is not None:
                find_plan_loop(step, loop)
            step.buffers = free = put_numbers(&free, buffers)
            free += len(buffers)
            step.offsets = put_numbers(&free, offsets)
            free += len(offsets)
            step.extents = put_numbers(&free, extents)
            free += len(extents)
            step.strides = put_numbers(&free, strides)
            free += len(strides)
            step.sizes = put_numbers(&free, sizes)
            free += len(sizes)
            step.steps = put_numbers(&free, inner_steps)
            free += len(inner_steps)
            step.numbers = put_numbers(&free, numbers)
            free += len(numbers)
            self.work += step.work

    def __dealloc__(self):
        PyMem_RawFree(self.steps)
        PyMem_RawFree(self.numbers)

    def __reduce__(self):
        return Plan, self.described

    def run(self, *arrays):
        """The results, a tuple of new arrays. TypeError unless there is one array for each of `inputs`, like it."""
        if len(arrays) != len(self.inputs):
            raise TypeError(f"the plan takes {len(self.inputs)} arrays, not {len(arrays)}")
        for i, (array, (shape, dtype)) in enumerate(zip(arrays, self.inputs)):
            if type(array) is not numpy.ndarray or not is_array_like(
                    <PyArrayObject*><PyObject*>array, <PyObject*>shape, <PyObject*>dtype):
                raise TypeError(f"input {i} of the plan is an array of shape {shape} and dtype {dtype}, not {array!r}")
        return run_plan(self, items_of(arrays), False)


cdef cnp.npy_intp* put_numbers(cnp.npy_intp** free, numbers) except NULL:
    """Where these numbers are from now on."""
    cdef Py_ssize_t i
    for i in range(len(numbers)):
        free[0][i] = numbers[i]
    return free[0]


cdef int find_plan_loop(PlanStep* step, tuple loop) except -1:
    """Find the function of a loop; ValueError where there is none."""
    kind = loop[0]
    if kind == "ufunc":
        if not find_loop_of_types(loop[1], loop[2], &step.function, &step.data):
            raise ValueError(f"{loop[1]!r} has no loop for the types {loop[2]}")
        step.reports = any_floating(loop[2])
    elif kind == "cast":
        step.function = cast_loop(loop[1], loop[2])
        step.reports = True
    elif kind == "copy":
        step.function = copy_loop(loop[1])
    elif kind == "choose":
        step.function = choose_loop(loop[1])
    elif kind == "gather":
        step.function = gather_layers
        step.gathers = True
    if step.function == NULL:
        raise ValueError(f"there is no loop {loop!r}")
    return 0


cdef bint any_floating(types) except -1:
    for number in types:
        if PyTypeNum_ISFLOAT(number) or PyTypeNum_ISCOMPLEX(number):
            return True
    return len(types) > 2           # divisions of integers report zeros


def has_loop(tuple loop not None):
    """Is there a loop of this description? See Plan."""
    cdef PlanStep step
    step.function = NULL
    try:
        find_plan_loop(&step, loop)
    except ValueError:
        return False
    return True


# --- a run ------------------------------------------------------------------------------------------------------------


cdef tuple run_plan(Plan plan, PyObject* const* inputs, bint takes_donated):
    cdef char* small_table[MOST_ENTRIES]
    cdef char** table = small_table
    cdef PlanRun run
    cdef Arena arena = plan.spare
    cdef Py_ssize_t n_inputs = len(plan.inputs), n_constants = len(plan.constants), i
    cdef tuple results
    cdef list copies = None         # of inputs that are laid out otherwise
    cdef PyObject* array
    cdef PyObject* kept
    plan.spare = None
    if arena is None:
        arena = Arena.__new__(Arena, plan.arena_size)
    if plan.n_entries > MOST_ENTRIES:
        table = <char**>PyMem_RawMalloc(plan.n_entries * sizeof(char*))
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
            array = PyTuple_GET_ITEM(<PyObject*>plan.constants, i)
            table[1 + n_inputs + i] = <char*>PyArray_DATA(<PyArrayObject*>array)
        takes_donated = takes_donated and len(plan.donated) > 0
        results = new_results(plan, table + 1 + n_inputs + n_constants, inputs if takes_donated else NULL)
        run.table, run.plan, run.inputs, run.n_noted, run.work = table, <PyObject*>plan, NULL, 0, 0
        run.n_threads = plan.n_threads
        if len(plan.calls) or plan.work > WORK_WITH_LOCK:       # else nothing can let go of the inputs meanwhile
            held = (arena, copies, results, inputs_of(inputs, n_inputs))
            run.inputs = <PyObject*>held
        forget_errors()
        if plan.work > WORK_WITH_LOCK:
            with nogil:
                take_plan_steps(&run, plan.steps, plan.steps + plan.n_steps)
        else:
            take_plan_steps(&run, plan.steps, plan.steps + plan.n_steps)
        if run.n_noted:
            report_noted(plan, &run)
    finally:
        if table != small_table:
            PyMem_RawFree(table)
    held = None
    if plan.arena_size <= LARGEST_SPARE and reference_count(<PyObject*>arena) == 1:
        plan.spare = arena
    return results


cdef tuple inputs_of(PyObject* const* inputs, Py_ssize_t n):
    cdef tuple found = PyTuple_New(n)
    cdef Py_ssize_t i
    for i in range(n):
        Py_INCREF(<object>inputs[i])
        PyTuple_SET_ITEM(found, i, <object>inputs[i])
    return found


cdef tuple new_results(Plan plan, char** table, PyObject* const* inputs):
    """New arrays for the results, and their addresses; some of the inputs instead, where these were donated."""
    cdef Py_ssize_t n = len(plan.results), i, k, axis
    cdef tuple results = PyTuple_New(n)
    cdef cnp.npy_intp extents[MAX_AXES]
    cdef PyObject* shape
    cdef PyObject* dtype
    for i in range(n):
        if inputs != NULL:
            k = plan.donated[i]
            if k >= 0 and can_be_taken(inputs, len(plan.inputs), k):
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


cdef bint can_be_taken(PyObject* const* inputs, Py_ssize_t n, Py_ssize_t k) noexcept:
    """Can a result lie in this input? Only if no other input has a part of its memory."""
    cdef PyArrayObject* array = <PyArrayObject*>inputs[k]
    cdef char* start = <char*>PyArray_DATA(array)
    cdef char* other
    cdef Py_ssize_t i
    if not PyArray_ISCARRAY_RO(array) or not PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE:
        return False
    for i in range(n):
        other = <char*>PyArray_DATA(<PyArrayObject*>inputs[i])
        if i != k and (not PyArray_ISCARRAY_RO(<PyArrayObject*>inputs[i])
                       or other < start + PyArray_NBYTES(array)
                       and start < other + PyArray_NBYTES(<PyArrayObject*>inputs[i])):
            return False
    return True


cdef int report_noted(Plan plan, PlanRun* run) except -1:
    """Warn or raise for the floating-point flags of steps, as `errstate` says."""
    cdef int i
    for i in range(run.n_noted):
        name, site = plan.labels[run.noted[i] - plan.steps]
        try:
            PyUFunc_GiveFloatingpointErrors(<const char*><bytes>name, run.flags[i])
        except BaseException as error:
            if site is not None:
                error.add_note(f"in {name.decode()}, which the compiled function calls at {site}")
            raise
    return 0


cdef int call_python(PlanRun* run, PlanStep* step) except -1 nogil:
    """A call of Python that is a step: on arrays that lie in the memory of the run."""
    with gil:
        plan = <Plan>run.plan
        function, given, taken = plan.calls[step.numbers[0]]
        try:
            function(arrays_at(run, given, False), arrays_at(run, taken, True))
        except Exception as error:
            name, site = plan.labels[step - plan.steps]
            if site is not None:
                error.add_note(f"in {name.decode()}, which the compiled function calls at {site}")
            raise
        forget_errors()
    return 0


cdef tuple arrays_at(PlanRun* run, tuple places, bint writeable):
    """Arrays in the memory of the run, which they keep alive."""
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
        Py_INCREF(array)
        PyTuple_SET_ITEM(arrays, i, array)
    return arrays
