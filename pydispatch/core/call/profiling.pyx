# Profiling: which operators run, how long they take and how much memory NumPy allocates meanwhile.
#
# A recorder is a tracer (`State.tracer`) in C. An event is a struct. Everything that is computed from events is
# computed after the block. The time of a kernel is that between two readings of the clock. Nothing is measured inside
# the kernel.

cdef extern from "core/src/profiling.h":
    int64_t nanoseconds_now() noexcept nogil
    object counting_handler_capsule()
    int64_t live_bytes_now, peak_bytes_now, allocated_bytes_now, allocations_now

cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept
    void* PyMem_Realloc(void*, size_t) noexcept

cdef object counting_memory_handler = counting_handler_capsule()


cdef class MemoryUse:
    """NumPy's allocations for arrays in a `with` block, in this context. Earlier allocations do not count."""

    def __enter__(self):
        global peak_bytes_now
        self.entered += 1
        if self.entered == 1:
            self.handler_around = PyDataMem_SetHandler(counting_memory_handler)
            self.peak_around = peak_bytes_now
            self.base = peak_bytes_now = live_bytes_now
            self.allocated_before = self.allocated_bytes - allocated_bytes_now
            self.allocations_before = self.n_allocations - allocations_now
        return self

    def __exit__(self, kind, error, trace):
        global peak_bytes_now
        if self.entered == 1:
            self.take_stock()
            peak_bytes_now = max(self.peak_around, peak_bytes_now)
            PyDataMem_SetHandler(self.handler_around)
            self.handler_around = None
        self.entered -= 1

    cdef int take_stock(self) except -1:
        if self.entered:
            self.live_bytes = live_bytes_now - self.base
            self.peak_bytes = max(self.peak_bytes, peak_bytes_now - self.base)
            self.allocated_bytes = self.allocated_before + allocated_bytes_now
            self.n_allocations = self.allocations_before + allocations_now
        return 0

    @property
    def live(self):
        """Bytes that are allocated and not freed: now, or when the block ended."""
        self.take_stock()
        return self.live_bytes

    @property
    def peak(self):
        """The largest number of bytes that were live at once."""
        self.take_stock()
        return self.peak_bytes

    @property
    def allocated(self):
        """Bytes that were allocated, including freed ones."""
        self.take_stock()
        return self.allocated_bytes

    @property
    def allocations(self):
        """The number of allocations."""
        self.take_stock()
        return self.n_allocations


cdef class Recorder(Guard):
    """A guard that records what runs inside: operators, and the nodes of backward passes."""

    def __cinit__(self, *args, **kwargs):
        self.memory = MemoryUse()
        self.files = {}

    def __init__(self, str text):
        super().__init__(text, tracer=self)

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            Py_DECREF(self.recorded[i].what)
            Py_XDECREF(self.recorded[i].code)
        PyMem_Free(self.recorded)
        PyMem_Free(self.shapes)

    cpdef State inside(self, State state):
        """Return the state inside. Inside a block of the same recorder, nothing changes."""
        tracer = state.tracer
        while isinstance(tracer, Recorder):
            if tracer is self:
                return state.derive(self)
            tracer = (<Recorder>tracer).around
        if self.memory.entered:
            raise StateOrderError(
                f"{self.text} is already active in another thread or task\n"
                "make a recorder for each thread or task")
        self.around = state.tracer
        return state.derive(self, **self.changes)

    cdef bint leaves_paths(self) noexcept:
        return leaves_paths(self.around)

    def __enter__(self):
        set_state(self.inside(state_now()))
        self.memory.__enter__()
        if self.memory.entered == 1:
            self.elapsed_before -= nanoseconds_now()
        return self

    def __exit__(self, kind, error, trace):
        if self.memory.entered == 1:
            self.elapsed_before += nanoseconds_now()
        self.memory.__exit__(kind, error, trace)
        leave(self)

    @property
    def elapsed(self):
        """Nanoseconds spent in its blocks."""
        return self.elapsed_before + nanoseconds_now() if self.memory.entered else self.elapsed_before

    @property
    def events(self):
        """The events in order of their start.

        Each is (what, number of the event around it or -1, thread, start, stop, allocated, peak, shapes, code, offset).
        `what` is an operator or the name of a node. Times are in nanoseconds, memory in bytes.
        """
        cdef Py_ssize_t i, around
        cdef Event* event
        cdef int64_t now = nanoseconds_now()
        cdef dict innermost = {}
        cdef list found = []
        for i in range(self.count):
            event = &self.recorded[i]
            around = innermost.get(event.thread, -1)
            while around >= 0 and self.recorded[around].stop and self.recorded[around].followers <= i:
                around = found[around][1]
            innermost[event.thread] = i
            found.append((
                <object>event.what, around, event.thread, event.start, event.stop or now,
                event.allocated if event.stop else 0, event.peak, read_shapes(self, event.shapes),
                None if event.code == NULL else <object>event.code, event.offset))
        return found


cdef tuple read_shapes(Recorder recorder, Py_ssize_t place):
    """Return the shapes stored at `place`, with None for unknown ones."""
    cdef list shapes = [], extents
    cdef int64_t ndim, i, k
    for i in range(recorder.shapes[place]):
        place += 1
        ndim = recorder.shapes[place]
        extents = []
        for k in range(ndim):
            place += 1
            extents.append(recorder.shapes[place])
        shapes.append(None if ndim < 0 else tuple(extents))
    return tuple(shapes)


cdef int begin_event(Recorder recorder, OpOverload op, Frame* frame, OpenEvent* opened) except -1:
    cdef Py_ssize_t i, place = add_event(recorder, <PyObject*>op, opened)
    for i in range(min(frame.count, op.table.signature.n_arguments)):
        if frame.values[i] != NULL and op.table.signature.arrays & bit(i):
            note_shapes(recorder, place, frame.values[i])
    start_event(recorder, opened)
    return 0


cdef int begin_named(Recorder recorder, str name, array, OpenEvent* opened) except -1:
    """Begin an event that is not an operator: the work of a backward pass or `jvp` for one."""
    note_shapes(recorder, add_event(recorder, <PyObject*>name, opened), <PyObject*>array)
    start_event(recorder, opened)
    return 0


cdef Py_ssize_t add_event(Recorder recorder, PyObject* what, OpenEvent* opened) except -1:
    """Add an event without shapes. Return the index after which its shapes have to be appended."""
    cdef Event* event
    if recorder.count == recorder.capacity:
        recorder.capacity = 2 * recorder.capacity + 64
        recorder.recorded = <Event*>grown(recorder.recorded, recorder.capacity * sizeof(Event))
    event = &recorder.recorded[recorder.count]
    memset(event, 0, sizeof(Event))
    find_user(recorder, event)
    event.thread = PyThread_get_thread_ident()
    event.shapes = recorder.n_shapes
    event.what = new_reference(<object>what)
    opened.number = recorder.count
    recorder.count += 1
    append_number(recorder, 0)
    return event.shapes


cdef inline void start_event(Recorder recorder, OpenEvent* opened) noexcept:
    global peak_bytes_now
    cdef Event* event = &recorder.recorded[opened.number]
    opened.peak_around = peak_bytes_now
    peak_bytes_now = live_bytes_now
    event.allocated = -allocated_bytes_now
    event.start = nanoseconds_now()


cdef void end_event(Recorder recorder, OpenEvent* opened) noexcept:
    global peak_bytes_now
    cdef Event* event = &recorder.recorded[opened.number]
    event.stop = nanoseconds_now()
    event.allocated += allocated_bytes_now
    event.peak = peak_bytes_now - recorder.memory.base
    event.followers = recorder.count
    peak_bytes_now = max(opened.peak_around, peak_bytes_now)


cdef void* grown(void* memory, size_t size) except NULL:
    memory = PyMem_Realloc(memory, size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef int append_number(Recorder recorder, int64_t number) except -1:
    if recorder.n_shapes == recorder.capacity_of_shapes:
        recorder.capacity_of_shapes = 2 * recorder.capacity_of_shapes + 256
        recorder.shapes = <int64_t*>grown(recorder.shapes, recorder.capacity_of_shapes * sizeof(int64_t))
    recorder.shapes[recorder.n_shapes] = number
    recorder.n_shapes += 1
    return 0


cdef int note_shapes(Recorder recorder, Py_ssize_t place, PyObject* value) except -1:
    """Append the shape of an array, or the shapes of the arrays in a tuple. Count them at index `place`."""
    cdef PyObject* array
    cdef Py_ssize_t i
    if PyTuple_CheckExact(value):
        for i in range(PyTuple_GET_SIZE(value)):
            note_shapes(recorder, place, PyTuple_GET_ITEM(value, i))
        return 0
    if not word_of_array(value):
        return 0
    array = bottom_of(<object>value) if is_tensor_type(Py_TYPE(value)) else value
    recorder.shapes[place] += 1
    if Py_TYPE(array) == &PyArray_Type:
        append_number(recorder, PyArray_NDIM(<PyArrayObject*>array))
        for i in range(PyArray_NDIM(<PyArrayObject*>array)):
            append_number(recorder, PyArray_DIMS(<PyArrayObject*>array)[i])
    else:
        append_other_shape(recorder, array)
    return 0


cdef int append_other_shape(Recorder recorder, PyObject* array) except -1:
    """Append the shape of an array that is not NumPy's. It is unknown if an extent is not a number."""
    cdef tuple shape = shape_of(array)
    for extent in shape:
        if not isinstance(extent, int):
            return append_number(recorder, -1)
    append_number(recorder, len(shape))
    for extent in shape:
        append_number(recorder, extent)
    return 0


cdef int find_user(Recorder recorder, Event* event) except -1:
    """Note the innermost running function outside of the package, and the position in it."""
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef object held = None, code
    while frame != NULL:
        code = steal(<PyObject*>PyFrame_GetCode(frame))
        if code is recorder.last_code or is_users_file(recorder, code.co_filename):
            recorder.last_code = code
            event.code = new_reference(code)
            event.offset = PyFrame_GetLasti(frame)
            return 0
        frame = PyFrame_GetBack(frame)
        held = None if frame == NULL else steal(<PyObject*>frame)
    return 0


cdef bint is_users_file(Recorder recorder, str file) except -1:
    cdef PyObject* known = PyDict_GetItemWithError(<PyObject*>recorder.files, <PyObject*>file)
    if known == NULL:
        recorder.files[file] = not file.startswith(PACKAGE_FOLDER)
        return recorder.files[file]
    return known == Py_True


cdef str PACKAGE_FOLDER = os.path.join(os.path.dirname(__file__), "")
