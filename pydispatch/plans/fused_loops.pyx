# Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers.
#
# A separate loop reads its operands from the cache and writes its result there, which takes longer than the arithmetic.
# Fused loops write to memory only what something else reads. Like small loops, they do not report which of them raised
# a floating-point flag. If one did, they run once more, one by one. No loop may therefore overwrite what they have
# read.
#
# If a plan reads and writes more than the caches hold, a result streams to memory past the caches. Otherwise its place
# would be read into them before it is written, which takes the same time again. The part of it that later loops need is
# kept, some vectors at a time.

cdef enum:
    MOST_FUSED = 32            # loops
    MOST_KEPT = 4               # streaming results that later loops need
    MOST_FUSED_WORDS = 3 * MOST_FUSED + MOST_KEPT + 1
    KEPT_BYTES = 8 * 64         # bytes that the registers hold
    SMALLEST_STREAMED = 1 << 25     # bytes of arguments and results

cdef struct FusedPlace:        # the place of an operand's elements
    Py_ssize_t buffer
    cnp.npy_intp first, after, row, distance        # in bytes, from one row to the next, from one element to the next
    bint is_local


@cython.final
cdef class LoopFuser:
    """A search for loops that can be fused in the blocks of a plan, which writes their code."""

    cdef Plan plan
    cdef tuple described
    cdef Room* used
    cdef Py_ssize_t n_words, n_found
    cdef FusedPlace read[2 * MOST_FUSED]          # places that the loops read and do not write before
    cdef FusedPlace written[MOST_FUSED]
    cdef int n_read, n_written
    cdef Py_ssize_t first       # the number of their first step
    cdef int operations[MOST_FUSED]
    cdef bint from_register[MOST_FUSED][2]
    cdef bint may_stream
    cdef bint streams[MOST_FUSED]
    cdef int kept[MOST_FUSED]                      # the number of a result's kept vectors, or -1 if none are
    cdef int n_kept

    def __cinit__(self, Plan plan not None, tuple described not None):
        cdef double n_bytes = 0
        self.plan, self.described = plan, described
        for shape, dtype in plan.inputs + plan.results:
            n_bytes += math.prod(shape) * dtype.itemsize
        self.may_stream = n_bytes >= SMALLEST_STREAMED

    cdef int find(self, Py_ssize_t i, Py_ssize_t after) except -1:
        """Join loops among the steps of a block, from number `i` on."""
        cdef Py_ssize_t blocks = i - 1, stop
        while i < after:
            stop = self.end_of_fused(blocks, i, after)
            if stop - i > 1:
                self.fuse(i, stop, after)
            i = max(stop, i + 1)
        return 0

    # --- which loops ---

    cdef Py_ssize_t end_of_fused(self, Py_ssize_t blocks, Py_ssize_t i, Py_ssize_t after) except -1:
        """Return the number of the step after the loops that can be fused, the first of which is number `i`."""
        cdef PlanStep* first = &self.plan.steps[i]
        cdef PlanStep* step
        cdef Py_ssize_t k
        cdef int type = -1, type_of_first = -1
        self.n_read = self.n_written = 0
        for k in range(i, min(after, i + MOST_FUSED)):
            step = &self.plan.steps[k]
            if not self.is_arithmetic(step, self.described[k][2], &type, &self.operations[k - i]):
                return k
            if k == i:
                type_of_first = type
            if type != type_of_first or step.numbers[0] != first.numbers[0] or not self.can_follow(blocks, step, type):
                return k
        return min(after, i + MOST_FUSED)

    cdef bint is_arithmetic(self, PlanStep* step, tuple loop, int* type, int* operation) except -1:
        """Return whether this is a loop over elements in rows, or single numbers, that code can carry out."""
        cdef int k, n = step.n_operands
        cdef cnp.npy_intp itemsize
        if loop[0] != "ufunc" or step.numbers[0] == 0 or not find_operation(loop, type, operation):
            return False
        if type[0] > OF_FLOAT32 or not is_fused(operation[0]):
            return False
        itemsize = 8 if type[0] == OF_FLOAT64 else 4
        for k in range(n):
            if step.steps[k] == 0 and step.numbers[1 + k] == 0 and k < n - 1:
                continue
            if step.steps[k] != itemsize or not (
                    step.numbers[1 + n + k] or step.numbers[1 + k] == step.numbers[0] * itemsize):
                return False
        return True

    cdef bint can_follow(self, Py_ssize_t blocks, PlanStep* step, int type) except -1:
        """Return whether a loop can follow those before it. Note what it reads and writes."""
        cdef int k, i, n_in = step.n_operands - 1, n_read = self.n_read
        cdef bint is_known
        cdef FusedPlace place
        for k in range(n_in):
            place = self.place_of(blocks, step, k, type)
            is_known = False
            for i in range(self.n_written):
                if is_same_place(&place, &self.written[i]):
                    is_known = True
                elif places_overlap(&place, &self.written[i]):
                    return False
            if not is_known:
                self.read[n_read] = place
                n_read += 1
        place = self.place_of(blocks, step, n_in, type)
        for i in range(n_read):
            if places_overlap(&place, &self.read[i]):
                return False
        for i in range(self.n_written):
            if places_overlap(&place, &self.written[i]) and not is_same_place(&place, &self.written[i]):
                return False
        self.written[self.n_written] = place
        self.n_written += 1
        self.n_read = n_read
        return True

    cdef FusedPlace place_of(self, Py_ssize_t blocks, PlanStep* step, int k, int type) noexcept:
        cdef FusedPlace place
        cdef cnp.npy_intp* numbers = self.plan.steps[blocks].numbers
        place.buffer, place.first = known_buffer(self.plan, step.buffers[k]), step.offsets[k]
        place.row, place.distance = step.numbers[1 + k], step.steps[k]
        place.is_local = step.numbers[1 + step.n_operands + k] != 0
        place.after = place.first + (place.distance * step.numbers[0] * numbers[1 if place.is_local else 0]
                                     if place.distance else 8 if type == OF_FLOAT64 else 4)
        return place

    # --- their code ---

    cdef int fuse(self, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t after) except -1:
        """Write code for the loops from number `i` up to `stop`."""
        cdef FusedLoops* fused = &self.plan.fused[self.n_found]
        cdef PlanStep* step
        cdef PlanStep* before = NULL
        cdef Py_ssize_t k
        cdef int operand
        cdef bint* held
        self.first, self.n_kept = i, 0
        fused.n_steps, fused.words = stop - i, self.plan.fused_words + self.n_words
        fused.is_double = self.plan.steps[i].steps[self.plan.steps[i].n_operands - 1] == 8
        fused.has_streams = False
        for k in range(i, stop):
            step = &self.plan.steps[k]
            held = self.from_register[k - i]
            for operand in range(step.n_operands - 1):
                held[operand] = before != NULL and is_same_operand(before, before.n_operands - 1, step, operand)
            before = step
        for k in range(i, stop):
            self.choose_stream(k, stop)
            fused.has_streams = fused.has_streams or self.streams[k - i]
        for k in range(i, stop):
            self.write_loop(&self.plan.steps[k], self.operations[k - i], self.from_register[k - i])
            step = &self.plan.steps[k]
            if self.streams[k - i]:
                self.put(STREAM_ROW, step, step.n_operands - 1)
            if self.kept[k - i] >= 0:
                self.put(LEAVE_ROW, NULL, 0).kept = self.kept[k - i]
            elif not self.streams[k - i] and self.is_read(k, i, stop, after):
                self.put(LEAVE_ROW, step, step.n_operands - 1)
        self.put(END_OF_CODE, NULL, 0)
        fused.n_words = self.plan.fused_words + self.n_words - fused.words
        self.plan.steps[i].fused = fused
        self.n_found += 1
        return 0

    cdef int choose_stream(self, Py_ssize_t k, Py_ssize_t stop) except -1:
        """Decide whether the result of a loop streams to memory, and whether vectors of it have to be kept."""
        cdef PlanStep* step = &self.plan.steps[k]
        cdef Py_ssize_t buffer = step.buffers[step.n_operands - 1], number
        cdef Py_ssize_t first_result = 1 + len(self.plan.inputs) + len(self.plan.constants)
        cdef PlanStep* later
        cdef int operand
        cdef bint is_read_later = False
        self.streams[k - self.first], self.kept[k - self.first] = False, -1
        if not self.may_stream or not first_result <= buffer < first_result + <Py_ssize_t>len(self.plan.results):
            return 0
        for number in range(self.plan.n_steps):
            later = &self.plan.steps[number]
            for operand in range(later.n_operands):
                if later.buffers[operand] == buffer and number != k:
                    if not k < number < stop or operand == later.n_operands - 1:
                        return 0
                    if not self.from_register[number - self.first][operand]:
                        if not is_same_operand(step, step.n_operands - 1, later, operand):
                            return 0
                        is_read_later = True
        if is_read_later and self.n_kept == MOST_KEPT:
            return 0
        self.streams[k - self.first] = True
        if is_read_later:
            self.kept[k - self.first] = self.n_kept
            self.n_kept += 1
        return 0

    cdef int kept_of(self, PlanStep* step, int operand) noexcept:
        """Return the number of the kept vectors that a loop reads, or -1 if it reads them from memory."""
        cdef Py_ssize_t k
        cdef PlanStep* before
        for k in range(step - self.plan.steps - self.first):
            before = &self.plan.steps[self.first + k]
            if self.kept[k] >= 0 and is_same_operand(before, before.n_operands - 1, step, operand):
                return self.kept[k]
        return -1

    cdef int write_loop(self, PlanStep* step, int operation, bint* held) except -1:
        cdef bint is_of_two = step.n_operands == 3
        if not held[0] and not (is_of_two and held[1]):
            self.put(TAKE_NUMBER if step.steps[0] == 0 else TAKE_ROW, step, 0)
        if not is_of_two:
            self.put(CODE_OF_ROWS(operation, RM), NULL, 0)
        elif not held[1]:
            self.put(CODE_OF_ROWS(operation, VS if step.steps[1] == 0 else RM), step, 1)
        elif not held[0]:
            self.put(CODE_OF_ROWS(operation, SV if step.steps[0] == 0 else MR), step, 0)
        else:
            self.put(CODE_OF_ROWS(operation, RR), NULL, 0)
        return 0

    cdef FusedOperand* put(self, int code, PlanStep* step, int operand) noexcept:
        """Write a word, with an operand of a step."""
        cdef FusedOperand* word = &self.plan.fused_words[self.n_words]
        memset(word, 0, sizeof(FusedOperand))
        word.code, word.kept = code, -1
        if step != NULL:
            word.buffer, word.offset = step.buffers[operand], step.offsets[operand]
            word.row, word.is_local = step.numbers[1 + operand], step.numbers[1 + step.n_operands + operand]
            if operand < step.n_operands - 1:
                word.kept = self.kept_of(step, operand)
        self.n_words += 1
        return word

    cdef bint is_read(self, Py_ssize_t k, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t after) except -1:
        """Return whether a later step, in the blocks or after them, reads the result of a loop from memory."""
        cdef PlanStep* step = &self.plan.steps[k]
        cdef PlanStep* later
        cdef Room* result = &self.used[step.buffers - self.plan.numbers + step.n_operands - 1]
        cdef Room* room
        cdef Py_ssize_t number
        cdef int operand, last
        if not step.numbers[2 * step.n_operands]:
            return True
        for number in range(k + 1, after):
            later = &self.plan.steps[number]
            last = later.n_operands - 1
            for operand in range(later.n_operands):
                room = &self.used[later.buffers - self.plan.numbers + operand]
                if later.is_native:
                    return True
                if (not later.numbers[1 + later.n_operands + operand] or room.first >= result.after
                        or result.first >= room.after):
                    continue
                if operand == last and room.first == result.first and room.after == result.after:
                    return False        # it is overwritten
                if operand < last and number < stop and self.from_register[number - i][operand]:
                    continue
                return True
        return False


cdef bint is_same_place(FusedPlace* one, FusedPlace* other) noexcept:
    return (one.buffer == other.buffer and one.first == other.first and one.after == other.after
            and one.row == other.row and one.distance == other.distance and one.is_local == other.is_local)


cdef bint places_overlap(FusedPlace* one, FusedPlace* other) noexcept:
    return one.buffer == other.buffer and one.first < other.after and other.first < one.after


cdef bint is_same_operand(PlanStep* one, int of_one, PlanStep* other, int of_other) noexcept:
    """Return whether the elements of two operands are in the same place."""
    return (one.buffers[of_one] == other.buffers[of_other] and one.offsets[of_one] == other.offsets[of_other]
            and one.steps[of_one] == other.steps[of_other]
            and one.numbers[1 + of_one] == other.numbers[1 + of_other]
            and one.numbers[1 + one.n_operands + of_one] == other.numbers[1 + other.n_operands + of_other])


cdef int fuse_loops(Plan plan, tuple described, Room* used) except -1:
    """Find loops of blocks that can be fused, and write code for them."""
    cdef Py_ssize_t i, n = 0
    if not bytes_of_fused():
        return 0
    for i in range(plan.n_steps):
        if plan.steps[i].kind == BLOCKS_STEP:
            n += plan.steps[i].n_inside
    if n == 0:
        return 0
    plan.fused = <FusedLoops*>PyMem_RawMalloc(n * sizeof(FusedLoops))
    plan.fused_words = <FusedOperand*>PyMem_RawMalloc((3 + 1 + 1) * n * sizeof(FusedOperand))
    if plan.fused == NULL or plan.fused_words == NULL:
        raise MemoryError()
    fuser = <LoopFuser>LoopFuser.__new__(LoopFuser, plan, described)
    fuser.used = used
    for i in range(plan.n_steps):
        if plan.steps[i].kind == BLOCKS_STEP and (<Blocks*>plan.steps[i].numbers).order != ROWS_IN_ORDER:
            fuser.find(i + 1, i + 1 + plan.steps[i].n_inside)
    return 0


# --- a run ------------------------------------------------------------------------------------------------------------


cdef void run_fused_loops(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                      cnp.npy_intp local) noexcept nogil:
    """Run the fused loops that begin with this step over the rows of a block."""
    cdef FusedWord words[MOST_FUSED_WORDS]
    cdef char memory[(MOST_KEPT + 1) * KEPT_BYTES]
    cdef char* kept = memory + (-<size_t>&memory[0]) % KEPT_BYTES
    cdef FusedLoops* fused = step.fused
    cdef FusedOperand* operand
    cdef Py_ssize_t k
    cdef int bytes = bytes_of_fused()
    cdef cnp.npy_intp done = rows * step.numbers[0]
    done -= done % (bytes // (8 if fused.is_double else 4))
    for k in range(fused.n_words):
        operand = &fused.words[k]
        words[k].code, words[k].follows = operand.code, -1
        words[k].address = (run.table[operand.buffer] + operand.offset + start * operand.row
                            + local * operand.is_local)
        if operand.kept >= 0:
            words[k].address, words[k].follows = kept + operand.kept * KEPT_BYTES, 0
        elif operand.code == STREAM_ROW and <size_t>words[k].address % (bytes // 8):
            words[k].code = LEAVE_ROW
    run_fused_words(words, done, bytes, fused.is_double)
    if fused.has_streams:
        finish_streams()
    if is_watched(run, flags_of_arithmetic()):
        done = 0
    for k in range(fused.n_steps):
        run_rows_of_loop(run, step + k, start, rows, local, done)


cdef inline bint is_watched(PlanRun* run, unsigned int flags) noexcept nogil:
    """Return whether there are errors that have to be reported, or may have to be. Clear the flags."""
    if not flags:
        return False
    forget_errors()
    return run.watched < 0 or (errors_of_flags(flags) & run.watched) != 0
