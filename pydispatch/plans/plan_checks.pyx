# Checks of plans: each step uses only the memory that it is given.
#
# Each address in the table has a range of bytes that may be used. For an array these are all its bytes. For an address
# that moves in a repetition, they are the bytes that may be used at each of its positions. A step that could use other
# bytes is an error. Distances are doubles: they represent all possible sizes of memory exactly, and do not overflow.
# Larger distances are not exact, but remain larger: spans only extend a range, and `check_use` refuses it.


cdef double MOST_BYTES = 2.0 ** 47      # more bytes than an address can have
cdef double MOST_EXACT = 2.0 ** 52      # doubles up to this one represent all distances


cdef int check_shape(shape) except -1:
    """Raise TypeError unless this is a tuple of non-negative numbers, with no more axes than an array may have."""
    if type(shape) is not tuple or len(shape) > MAX_AXES:
        raise TypeError(f"{shape!r} is not a shape")
    for extent in shape:
        if type(extent) is not int or not 0 <= extent < MOST_BYTES:
            raise TypeError(f"{shape!r} is not a shape")
    return 0


cdef bint is_plain_dtype(dtype) except -1:
    """Return whether this is the dtype of an array whose bytes may be copied."""
    return isinstance(dtype, numpy.dtype) and not dtype.hasobject


cdef int check_arrays(tuple inputs, tuple constants, tuple results, tuple donated) except -1:
    """Raise ValueError or TypeError for invalid inputs, constants, results or donations of a plan."""
    for spec in (*inputs, *results):
        if type(spec) is not tuple or len(spec) != 2 or not is_plain_dtype(spec[1]):
            raise TypeError(f"{spec!r} is not a (shape, dtype) of an array without objects")
        check_shape(spec[0])
    for constant in constants:
        if type(constant) is not numpy.ndarray or not constant.flags.c_contiguous or not constant.flags.aligned:
            raise TypeError("the constants of a plan must be contiguous arrays")
        if not is_plain_dtype(constant.dtype):
            raise TypeError("the constants of a plan must be arrays without objects")
    if donated and len(donated) != len(results):
        raise ValueError(f"donated has {len(donated)} entries, expected one for each of {len(results)} results")
    taken = set()
    for result, number in zip(results, donated):
        if number == -1:
            continue
        if type(number) is not int or not 0 <= number < len(inputs) or inputs[number] != result or number in taken:
            raise ValueError(f"a result {result} cannot lie in the memory of input {number!r}")
        taken.add(number)
    return 0


cdef double bytes_of(spec) except -1:
    """Return the size in bytes of an array of this shape and dtype."""
    cdef double n = spec[1].itemsize
    for extent in spec[0]:
        n *= <double>extent
    return n


cdef int check_steps(Plan plan, tuple described, Room* used) except -1:
    """Raise ValueError for a step that reads or writes outside its memory."""
    checker = <PlanChecker>PlanChecker.__new__(PlanChecker, plan, described)
    checker.used = used
    checker.check(0, plan.n_steps)
    return 0


@cython.final
cdef class PlanChecker:
    """A pass over the steps of a plan, with the room at each address of its table."""

    def __cinit__(self, Plan plan not None, tuple described not None):
        cdef Py_ssize_t i = 1
        self.plan, self.described, self.moving = plan, described, []
        self.rooms = <Room*>PyMem_RawMalloc(plan.n_entries * sizeof(Room))
        if self.rooms == NULL:
            raise MemoryError()
        memset(self.rooms, 0, plan.n_entries * sizeof(Room))
        self.rooms[0].after, self.rooms[0].is_written = plan.arena_size, True
        for spec in plan.inputs:
            self.rooms[i].after = bytes_of(spec)
            i += 1
        for constant in plan.constants:
            self.rooms[i].after = constant.nbytes
            i += 1
        for spec in plan.results:
            self.rooms[i].after, self.rooms[i].is_written = bytes_of(spec), True
            i += 1

    def __dealloc__(self):
        PyMem_RawFree(self.rooms)

    cdef int check(self, Py_ssize_t i, Py_ssize_t after) except -1:
        """Check the steps from index `i` to `after`, which are one body."""
        cdef PlanStep* step
        cdef Py_ssize_t following
        self.plan.steps[i].begins_row = self.plan.steps[after].begins_row = True
        enter_recursive_call()
        try:
            while i < after:
                step = &self.plan.steps[i]
                following = i + 1 + step.n_inside
                if following > after:
                    raise ValueError(f"step {i} has {step.n_inside} steps inside, but only {after - i - 1} follow")
                step.kind.check(self, i, following)
                i = following
        finally:
            leave_recursive_call()
        return 0

    cdef int check_use(
        self, Py_ssize_t i, Py_ssize_t number, double first, double after, bint is_written=False
    ) except -1:
        """Raise ValueError unless the number is in the table and the bytes from `first` to `after` may be used."""
        if not 0 <= number < self.plan.n_entries:
            raise ValueError(f"step {i} uses address {number}, but the plan has {self.plan.n_entries}")
        if is_written and not self.rooms[number].is_written:
            raise ValueError(f"step {i} writes to address {number}, which is only read")
        if not (-MOST_EXACT < first and after < MOST_EXACT) or first < after and not (
                self.rooms[number].first <= first and after <= self.rooms[number].after):
            raise ValueError(f"step {i} uses bytes {first:.0f} to {after:.0f} at address {number}, which has "
                             f"{self.rooms[number].first:.0f} to {self.rooms[number].after:.0f}")
        return 0

    # --- loops ---

    cdef int check_loop(self, Py_ssize_t i, Py_ssize_t rows, Py_ssize_t start, Py_ssize_t locals_from) except -1:
        """Check a loop. In blocks, check `rows` rows from `start`, for a thread whose memory is at `locals_from`."""
        cdef PlanStep* step = &self.plan.steps[i]
        cdef tuple loop = self.described[i][2]
        cdef int k, axis, n = step.n_operands
        cdef cnp.npy_intp extent, whole = step.numbers[0] if rows else 0
        cdef Room[MAX_OPERANDS] rooms
        cdef Room used
        cdef int written_from
        if (rooms_of_loop(step, loop, self.described[i][7], self.described[i][8], <double>rows * whole, rooms) != n
                or len(self.described[i][6]) != step.n_axes * n):
            raise ValueError(f"step {i} has {n} operands and {step.n_axes} axes for the loop {loop!r}")
        written_from = n - n_written(loop)
        for k in range(n):
            used = rooms[k]
            for axis in range(0 if whole == 0 else step.n_axes, step.n_axes):
                extent = step.extents[axis] if axis or not rows else rows
                if step.extents[axis] < 1:
                    raise ValueError(f"step {i} has an axis of {step.extents[axis]} elements")
                widen_room(&used, <double>(extent - 1) * step.strides[axis * n + k])
            shift_room(&used, step.offsets[k])
            if rows:
                shift_room(&used, <double>start * step.numbers[1 + k] + <double>locals_from * step.numbers[1 + n + k])
            self.used[step.buffers - self.plan.numbers + k] = used
            self.check_use(i, step.buffers[k], used.first, used.after, k >= written_from)
        return 0

    # --- addresses that move ---

    cdef int share_room(self, Py_ssize_t one, Py_ssize_t other) except -1:
        """Give both addresses of a swap the room that they share."""
        cdef Room room
        room.first = max(self.rooms[one].first, self.rooms[other].first)
        room.after = min(self.rooms[one].after, self.rooms[other].after)
        room.is_written = self.rooms[one].is_written and self.rooms[other].is_written
        self.rooms[one] = self.rooms[other] = room
        return 0

    cdef int set_room(self, Py_ssize_t i, Py_ssize_t number, Room* room) except -1:
        """Set the room of an address. Only one step may set an address."""
        cdef Py_ssize_t first = 1 + len(self.plan.inputs) + len(self.plan.constants) + len(self.plan.results)
        if not first <= number < self.plan.n_entries or number in self.moving:
            raise ValueError(f"step {i} sets address {number}, which does not move or was set before")
        self.moving.append(number)
        self.rooms[number] = room[0]
        if room.first > room.after:
            self.rooms[number].first = self.rooms[number].after = 0
        return 0

    cdef int forget(self, Py_ssize_t known) except -1:
        """Remove the room of addresses that were set by steps that may not have run."""
        cdef Py_ssize_t number
        while len(self.moving) > known:
            number = self.moving.pop()
            self.rooms[number].first = self.rooms[number].after = 0
        return 0


cdef Py_ssize_t rooms_of_loop(PlanStep* step, tuple loop, tuple sizes, tuple strides, double whole,
                              Room* rooms) except -1:
    """Set the rooms that one call of a loop uses, if it has as many operands as the step. Return how many it has.

    `whole` is its number of elements in blocks of rows, else 0.
    """
    cdef tuple itemsizes, axes
    cdef double span, n = whole
    cdef Py_ssize_t k, n_operands
    if step.function == NULL or not sizes:
        raise ValueError(f"there is no loop {loop!r}, or no size for it")
    if step.is_native:                      # its compiler is responsible
        return put_rooms(rooms, step, ((0, 0),) * step.n_operands)
    if loop[0] != "ufunc":
        if loop[0] == "gather":
            return put_rooms(rooms, step, rooms_of_layers(loop, sizes, 1))
        if loop[0] == "add_products":
            return put_rooms(rooms, step, rooms_of_products(loop, sizes))
        if loop[0] == "add_layers":
            return put_rooms(rooms, step, rooms_of_layers(loop, sizes, itemsize_of_type(loop[1]), strides))
        if loop[0] in LAPACK_LOOPS:
            return put_rooms(rooms, step, rooms_of_solution(loop, sizes))
    itemsizes = itemsizes_of_loop(loop)
    n_operands = len(itemsizes)
    if len(strides) < n_operands:
        raise ValueError(f"the loop {loop!r} has the strides {strides!r}")
    core = core_of_loop(loop)
    if core is not None:
        if whole:
            raise ValueError(f"the loop {loop!r} is not one over elements")
        return put_rooms(rooms, step, rooms_of_core(loop, core, sizes, strides, itemsizes))
    if not whole:
        n = <double><cnp.npy_intp>sizes[0]
    # a loop that reduces reads its initial value even if there is nothing else to read
    if n < 1:
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r}")
    if n_operands != step.n_operands:
        return n_operands
    for k in range(n_operands):
        rooms[k].first, rooms[k].after = 0, <cnp.npy_intp>itemsizes[k]
        widen_room(&rooms[k], (n - 1) * step.steps[k])
    axes = axes_of_positions(loop)
    for extent, distance in zip(axes[1::2], axes[2::2]):
        span = <double>(<cnp.npy_intp>extent - 1) * <double><cnp.npy_intp>distance
        widen_room(&rooms[0], span)
        if loop[0] != "pick":
            widen_room(&rooms[n_operands - 1], span)
    return n_operands


cdef Py_ssize_t put_rooms(Room* rooms, PlanStep* step, tuple found) except -1:
    """Set the rooms to `found`, pairs of (first, after), if there is one for each operand. Return their number."""
    cdef Py_ssize_t k
    if len(found) == step.n_operands:
        for k in range(len(found)):
            rooms[k].first, rooms[k].after = found[k]
    return len(found)


cdef dict ITEMSIZES_OF_UFUNCS = {}      # by loop, since blocks need the sizes three times for each


cdef tuple itemsizes_of_loop(tuple loop):
    """Return the bytes of an element of each operand that is addressed by strides."""
    kind = loop[0]
    if kind == "ufunc":
        known = ITEMSIZES_OF_UFUNCS.get(loop)
        if known is None:
            known = ITEMSIZES_OF_UFUNCS[loop] = tuple(itemsizes_of_types(loop[2]))
        return known
    if kind == "cast":
        return itemsize_of_type(loop[1]), itemsize_of_type(loop[2])
    if kind == "copy":
        return loop[1], loop[1]
    if kind == "choose":
        return 1, loop[1], loop[1], loop[1]
    if kind == "sum_part" or kind == "add_parts":
        return (itemsize_of_type(loop[1]),) * (2 if kind == "sum_part" else 3)
    if kind == "interpolate" or kind == "filter":
        return (8,) * (6 if kind == "interpolate" else 3)
    if kind in ROW_LOOPS:
        itemsize = itemsize_of_type(loop[1])
        return (itemsize, itemsize, 8) if kind == "search" else (itemsize, itemsize if kind == "sort" else 8)
    if kind in POSITION_LOOPS:
        itemsize = itemsize_of_type(loop[1]) if kind == "put_sum" else loop[1]
        positions = (8,) * check_axes(loop)
        return (itemsize, *positions, itemsize) if kind == "pick" else (itemsize, itemsize, *positions, itemsize)
    return ()


cdef Py_ssize_t check_axes(tuple loop) except -1:
    """Return the number of axes of a loop over single elements. Each of them has an extent and a stride."""
    axes = loop[2]
    if type(axes) is not tuple or not axes or set(map(type, axes)) != {int} or not 0 < axes[0] <= MOST_POSITIONS or (
            len(axes) != 1 + 2 * axes[0] or min(axes[1::2]) < 1 or max(axes[1::2]) >= MOST_BYTES):
        raise ValueError(f"the loop {loop!r} has no extent and stride for each axis")
    return axes[0]


cdef enum:
    MOST_POSITIONS = MAX_OPERANDS - 3


cdef int n_written(tuple loop) except -1:
    """Return the number of operands that a loop writes to. They are the last ones."""
    return loop[1].nout if loop[0] == "ufunc" else 2 if loop[0] == "factor" else 1


cdef list itemsizes_of_types(numbers):
    found = []
    for number in numbers:
        found.append(itemsize_of_type(number))
    return found


cdef object itemsize_of_type(int number):
    """Return the bytes of an element of the dtype with this type number."""
    return cnp.PyArray_DescrFromType(number).itemsize


LAYER_LOOPS = frozenset(["gather", "add_layers", "add_products"])


cdef tuple rooms_of_layers(tuple loop, tuple sizes, itemsize, tuple strides=()):
    """Return the rooms of a loop over layers at positions. Only a loop that adds to layers has strides."""
    if len(sizes) != 5 or min(sizes) < 1 or (strides and (len(strides) != 5 or strides[4] not in (0, itemsize))):
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r} and strides {strides!r}")
    _, outer, n, layers, size = sizes
    whole, selected = (0, outer * layers * size * itemsize), (0, outer * n * size * itemsize)
    if strides:
        return whole, (0, n * 8), selected if strides[4] else (0, itemsize), whole
    return whole, (0, n * 8), selected


cdef tuple rooms_of_products(tuple loop, tuple sizes):
    """Return the rooms of a loop that adds products with elements at positions."""
    if len(sizes) != 4 or min(sizes) < 1:
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r}")
    itemsize = itemsize_of_type(loop[1])
    whole, positions = (0, sizes[2] * itemsize), (0, sizes[1] * 8)
    return whole, positions, (0, sizes[1] * itemsize), (0, sizes[3] * itemsize), positions, whole


# loops of our own whose elements are rows: the numbers of the axes of each operand
cdef dict CORE_OF_ROWS = {"search": ((0,), (), ()), "interpolate": ((), (0,), (0,), (), (), ()),
                          "sort": ((0,), (0,)), "argsort": ((0,), (0,)), "filter": ((0,), (1,), (0,))}
cdef tuple LAPACK_LOOPS = ("factor", "solve_factored", "solve_lower")
cdef frozenset ROW_LOOPS = frozenset([*CORE_OF_ROWS, *LAPACK_LOOPS])
CORE_LOOPS = {}     # universal functions whose elements are arrays: the numbers of the axes of each operand


def add_core_loops(*functions):
    """Allow plans to call the loops of these generalized universal functions."""
    for function in functions:
        names, found = {}, ()
        signature = function.signature.replace("?", "").replace(" ", "").replace("->", ",")
        for operand in signature[1:-1].split("),("):
            axes = ()
            for name in operand.split(",") if operand else ():
                axes += (names.setdefault(name, len(names)),)
            found += (axes,)
        CORE_LOOPS[function] = found


add_core_loops(numpy.matmul)


cdef tuple core_of_loop(tuple loop):
    """Return the numbers of the axes of each operand's elements, or None for a loop over numbers."""
    if loop[0] != "ufunc":
        return CORE_OF_ROWS.get(loop[0])
    core = (<dict>CORE_LOOPS).get(loop[1])
    if core is None and loop[1].signature is not None:
        raise ValueError(f"{loop[1]!r} does not work element by element")
    return core


cdef tuple rooms_of_core(tuple loop, tuple core, tuple sizes, tuple strides, tuple itemsizes):
    """Return the rooms of a loop whose elements are arrays: strides between elements, then along their axes."""
    cdef Room room
    cdef Py_ssize_t n = len(core), k, axis, following = n
    if min(sizes) < 1 or len(sizes) != 2 + max(map(max, filter(None, core))) or len(strides) != n + sum(map(len, core)):
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r} and strides {strides!r}")
    if loop[0] == "ufunc" and ("(p" in loop[1].signature and sizes[3] != min(sizes[1:3])
                               or loop[1].__name__ == "rfft_n_even" and sizes[2] < 2):
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r}")
    if loop[0] in ("sort", "argsort") and sizes[1] > 1 and strides[3 if loop[0] == "sort" else 2] != itemsizes[0] or (
            loop[0] == "argsort" and strides[3] != 8):
        raise ValueError(f"the loop {loop!r} has the strides {strides!r}")
    if loop[0] == "filter" and (len(loop[2]) != 1 + sizes[2] or strides[3] != 8 or strides[5] != 8):
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r} and strides {strides!r}")
    found = []
    for k in range(n):
        room.first, room.after = 0, itemsizes[k]
        if k == 0 and loop[0] == "filter":
            room.first, room.after = min(loop[2][1:]), 8 + max(loop[2][1:])
        widen_room(&room, <double>(sizes[0] - 1) * <double><cnp.npy_intp>strides[k])
        for axis in core[k]:
            widen_room(&room, <double>(sizes[1 + axis] - 1) * <double><cnp.npy_intp>strides[following])
            following += 1
        found.append((room.first, room.after))
    return tuple(found)


cdef tuple rooms_of_solution(tuple loop, tuple sizes):
    """Return the rooms of factors or solutions by them."""
    if min(sizes) < 1 or len(sizes) != (2 if loop[0] == "factor" else 3) or sizes[0] != 1:
        raise ValueError(f"the loop {loop!r} has the sizes {sizes!r}")
    n = sizes[1]
    matrix, pivots, sides = (0, 8 * n * n), (0, 8 * n), (0, 8 * n * sizes[len(sizes) - 1])
    if loop[0] == "factor":
        return matrix, matrix, pivots
    return (matrix, pivots, sides, sides) if loop[0] == "solve_factored" else (matrix, sides, sides)


cdef void widen_room(Room* room, double span) noexcept:
    """Extend a room that is used by `span` bytes: at its end, or at its beginning if negative."""
    if span > 0:
        room.after += span
    else:
        room.first += span


cdef void narrow_room(Room* room, double span) noexcept:
    """Reduce a room to the bytes that may be used wherever an address is that moves by `span`."""
    if span > 0:
        room.after -= span
    else:
        room.first -= span


cdef void shift_room(Room* room, double offset) noexcept:
    room.first += offset
    room.after += offset
