# Fused loops: consecutive loops of a block that are carried out together, on some elements at a time, in registers.
#
# A separate loop reads its operands from the cache and writes its result there, which takes longer than the arithmetic.
# Fused loops write to memory only what something else reads. Like small loops, they do not report which of them raised
# a floating-point flag. If one did, they run once more, one by one. No loop may therefore overwrite what they have
# read.
#
# Elements in registers are floats or integers of one size. Bools, and casts to and from half of the size, go by memory.
# The rows of arrays that are broadcast, or not in one piece, are taken one by one. If only short rows that all others
# share are broadcast, they fill vectors before the loops run, and all rows are taken in one piece.
#
# A complex number takes two elements in registers. Single complex numbers also fill vectors. Real and imaginary parts
# are every second element of an array.
#
# If a plan reads and writes more than the caches hold, a result streams to memory past the caches. Otherwise its place
# would be read into them before it is written, which takes the same time again. The part of it that later loops need is
# kept, some vectors at a time.

cdef enum:
    MOST_FUSED = 32            # loops
    MOST_KEPT = 4               # streaming results that later loops need
    MOST_FILLED = 15            # complex numbers and short rows
    WORDS_OF_LOOP = 14          # three operands, which are fetched and kept, the operation, and its result
    MOST_FUSED_WORDS = WORDS_OF_LOOP * MOST_FUSED + 1
    SHORTEST_ROW = 16           # elements
    KEPT_BYTES = 8 * 64         # bytes that the registers hold
    SMALLEST_FETCHED = 1 << 21      # bytes of arguments and results, to prefetch the operands
    SMALLEST_STREAMED = 1 << 25     # bytes of arguments and results

cdef struct FusedPlace:        # the place of an operand's elements
    Py_ssize_t buffer
    cnp.npy_intp first, after, row, move, distance  # in bytes: from one row to the next, twice, from element to element
    bint is_local

cdef struct FusedLoop:         # what a loop does with the elements in registers
    FusedWay way
    int code                    # of an operation. Of a move: how it takes elements, if not from registers
    int conversion, leave        # of a move: the code for elements in registers, or -1, and for its result
    int size                    # bytes of elements in registers, or 0 if there are none
    int[4] sizes                # bytes of an element of each operand
    bint of_pairs               # whether registers hold a number's two parts
    cnp.npy_intp length         # numbers in a row
    bint by_rows                # whether its rows are taken one by one
    bint shares_row             # whether, apart from short rows that all others share, its rows follow each other

cdef struct KeptOperand:
    PlanStep* step              # or NULL
    int operand                 # or -1: the bits that change the sign of an imaginary part

cdef cnp.npy_uint64[2] SIGN_OF_SECOND = [0, <cnp.npy_uint64>1 << 63]     # for floats, the second one is a pair


@cython.final
cdef class LoopFuser:
    """A search for loops that can be fused in the blocks of a plan, which writes their code."""

    cdef Plan plan
    cdef tuple described
    cdef Room* used
    cdef Py_ssize_t n_words, n_found
    cdef FusedPlace read[3 * MOST_FUSED]          # places that the loops read and do not write before
    cdef FusedPlace written[MOST_FUSED]
    cdef int n_read, n_written
    cdef Py_ssize_t first       # the number of their first step
    cdef FusedLoop loops[MOST_FUSED]
    cdef bint from_register[MOST_FUSED][4]
    cdef bint may_fetch, may_stream, by_rows
    cdef bint streams[MOST_FUSED]
    cdef int kept[MOST_FUSED]                      # the number of a result's kept vectors, or -1 if none are
    cdef int n_kept
    cdef KeptOperand operands[MOST_FILLED + 1]     # numbers, and what one loop has left to take another operand
    cdef int n_filled

    def __cinit__(self, Plan plan not None, tuple described not None):
        cdef double n_bytes = 0
        self.plan, self.described = plan, described
        for shape, dtype in plan.inputs + plan.results:
            n_bytes += math.prod(shape) * dtype.itemsize
        self.may_fetch, self.may_stream = n_bytes >= SMALLEST_FETCHED, n_bytes >= SMALLEST_STREAMED

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
        cdef FusedLoop* first = &self.loops[0]
        cdef FusedLoop* loop
        cdef Py_ssize_t k
        cdef int size = 0, n_filled = 0
        self.n_read = self.n_written = 0
        self.by_rows = False
        for k in range(i, min(after, i + MOST_FUSED)):
            loop = &self.loops[k - i]
            if not self.can_be_fused(&self.plan.steps[k], self.described[k][2], loop):
                return k
            n_filled += self.plan.steps[k].n_operands - 1 if loop.of_pairs or loop.shares_row else 0
            if (loop.length != first.length or loop.of_pairs != first.of_pairs or n_filled > MOST_FILLED
                    or (size and loop.size and loop.size != size)
                    or not self.can_follow(blocks, &self.plan.steps[k], loop)):
                return k
            size = max(size, loop.size)
            self.by_rows = self.by_rows or loop.by_rows and not loop.shares_row
        return min(after, i + MOST_FUSED)

    cdef bint can_be_fused(self, PlanStep* step, tuple described, FusedLoop* loop) except -1:
        """Return whether this is a loop over elements in rows, or single numbers, that code can carry out."""
        cdef int k, n = step.n_operands
        cdef cnp.npy_intp distance = 0
        if not find_fused_loop(described, loop) or loop.code == MULTIPLY_PAIRS and loop.of_pairs and (
                not multiplies_pairs(step.function, step.data, loop.size)):
            return False
        loop.by_rows = step.numbers[0] == 0
        loop.length = step.sizes[0] if loop.by_rows else step.numbers[0]
        loop.shares_row = loop.by_rows and step.n_axes == 1 and shares_row(step, loop)
        if loop.by_rows and (step.n_axes != 1 or loop.length < SHORTEST_ROW and not loop.shares_row):
            return False
        for k in range(n):
            distance = step.steps[k]
            if distance == 0 and k < n - 1 and (
                    loop.sizes[k] == loop.size << loop.of_pairs or loop.way == AS_CHOICE) and (
                    loop.by_rows and (not loop.of_pairs or step.strides[k] == 0) or step.numbers[1 + k] == 0):
                continue
            if distance != loop.sizes[k] and not is_apart(step, k, loop) or not (
                    loop.by_rows or step.numbers[1 + n + k] or step.numbers[1 + k] == loop.length * distance):
                return False
        return not loop.by_rows or step.strides[n - 1] >= loop.length * distance

    cdef bint can_follow(self, Py_ssize_t blocks, PlanStep* step, FusedLoop* loop) except -1:
        """Return whether a loop can follow those before it. Note what it reads and writes."""
        cdef int k, i, n_in = step.n_operands - 1, n_read = self.n_read
        cdef bint is_known
        cdef FusedPlace place
        for k in range(n_in):
            place = self.place_of(blocks, step, k, loop)
            is_known = False
            for i in range(self.n_written):
                if is_same_place(&place, &self.written[i]):
                    is_known = True
                elif places_overlap(&place, &self.written[i]):
                    return False
            if not is_known:
                self.read[n_read] = place
                n_read += 1
        place = self.place_of(blocks, step, n_in, loop)
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

    cdef FusedPlace place_of(self, Py_ssize_t blocks, PlanStep* step, int k, FusedLoop* loop) noexcept:
        cdef FusedPlace place
        cdef cnp.npy_intp* numbers = self.plan.steps[blocks].numbers
        cdef cnp.npy_intp span
        place.buffer, place.first = known_buffer(self.plan, step.buffers[k]), step.offsets[k]
        place.row, place.distance = step.numbers[1 + k], step.steps[k]
        place.move = move_of(step, k)
        place.is_local = step.numbers[1 + step.n_operands + k] != 0
        span = place.move * (numbers[1 if place.is_local else 0] - 1)
        place.after = place.first + max(span, 0) + place.distance * (loop.length - 1) + loop.sizes[k]
        place.first += min(span, 0)
        return place

    # --- their code ---

    cdef int fuse(self, Py_ssize_t i, Py_ssize_t stop, Py_ssize_t after) except -1:
        """Write code for the loops from number `i` up to `stop`."""
        cdef FusedLoops* fused = &self.plan.fused[self.n_found]
        cdef PlanStep* step
        cdef FusedLoop* loop
        cdef FusedOperand* word
        cdef KeptOperand* number
        cdef Py_ssize_t k
        cdef int operand
        self.first, self.n_kept, self.n_filled = i, 0, 0
        fused.n_steps, fused.words = stop - i, self.plan.fused_words + self.n_words
        fused.of_pairs = self.loops[0].of_pairs
        fused.size, fused.by_rows, fused.length = 0, self.by_rows, self.loops[0].length << fused.of_pairs
        fused.has_streams = False
        self.find_held(i, stop)
        for k in range(i, stop):
            fused.size = max(fused.size, self.loops[k - i].size)
            self.choose_stream(k, stop)
            fused.has_streams = fused.has_streams or self.streams[k - i]
        fused.size = fused.size or 8
        fused.unit = width_of_fused(fused.size)
        for k in range(i, stop):
            if self.loops[k - i].shares_row and not self.by_rows:      # it begins again with the first vector
                fused.unit = bytes_of_fused() // fused.size
        for k in range(i, stop):
            step, loop = &self.plan.steps[k], &self.loops[k - i]
            self.write_loop(step, loop, self.from_register[k - i])
            if not is_result_held(loop):
                continue
            if self.streams[k - i]:
                self.put(STREAM_ROW, step, step.n_operands - 1)
            if self.kept[k - i] >= 0:
                self.put(LEAVE_ROW, NULL, 0).kept = self.kept[k - i]
            elif not self.streams[k - i] and self.is_read(k, i, stop, after):
                self.put(LEAVE_ROW, step, step.n_operands - 1)
        self.put(END_OF_CODE, NULL, 0)
        fused.n_words = self.plan.fused_words + self.n_words - fused.words
        fused.n_filled = self.n_filled
        for operand in range(self.n_filled):
            word = self.put(END_OF_CODE, NULL, 0)
            word.buffer, word.kept, word.step = -1, MOST_KEPT + operand, 2 * fused.size
            word.move = bytes_of_fused() // word.step
            number = &self.operands[operand]
            if number.operand < 0:
                continue
            put_place(word, number.step, number.operand)
            if number.step.steps[number.operand]:
                word.step = number.step.sizes[0] * number.step.steps[number.operand]
                word.move = fused.unit // fused.length
        self.plan.steps[i].fused = fused
        self.n_found += 1
        return 0

    cdef int find_held(self, Py_ssize_t i, Py_ssize_t stop) except -1:
        """Find the operands that are in registers when their loop begins: what the loops before it left there."""
        cdef PlanStep* step
        cdef PlanStep* holder = NULL
        cdef FusedLoop* loop
        cdef Py_ssize_t k
        cdef int operand, of_holder = 0
        for k in range(i, stop):
            step, loop = &self.plan.steps[k], &self.loops[k - i]
            for operand in range(step.n_operands):
                self.from_register[k - i][operand] = (
                    holder != NULL and takes_rows(loop, operand) and operand < step.n_operands - 1
                    and is_same_operand(holder, of_holder, step, operand))
            if is_result_held(loop):
                holder, of_holder = step, step.n_operands - 1
            elif loop.way != ON_BOOLS:      # its first operand is in registers, if it was not converted
                holder, of_holder = step if takes_rows(loop, 0) and loop.conversion < 0 else NULL, 0
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
        if (not self.may_stream or self.by_rows or not is_result_held(&self.loops[k - self.first])
                or not first_result <= buffer < first_result + <Py_ssize_t>len(self.plan.results)):
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
        cdef int i
        cdef PlanStep* before
        for k in range(step - self.plan.steps - self.first):
            before = &self.plan.steps[self.first + k]
            if self.kept[k] >= 0 and is_same_operand(before, before.n_operands - 1, step, operand):
                return self.kept[k]
        for i in range(MOST_FILLED + 1):
            before = self.operands[i].step
            if (i < self.n_filled or i == MOST_FILLED) and before != NULL and (
                    self.operands[i].operand == operand if operand < 0 or self.operands[i].operand < 0
                    else is_same_operand(before, self.operands[i].operand, step, operand)):
                return MOST_KEPT + i
        return -1

    cdef int fill(self, PlanStep* step, int operand) noexcept:
        """Return the number of vectors to keep that a number fills."""
        self.operands[self.n_filled] = [step, operand]
        self.n_filled += 1
        return MOST_KEPT + self.n_filled - 1

    cdef int prepare_operands(self, PlanStep* step, FusedLoop* loop, bint* held) except -1:
        """Fill vectors with complex numbers and short rows. Take operands that are apart, and leave what was held."""
        cdef int k, other, n = step.n_operands - 1
        self.operands[MOST_FILLED].step = NULL
        for k in range(n):
            if held[k] or self.kept_of(step, k) >= 0:
                continue
            if (not self.by_rows and loop.by_rows and step.strides[k] == 0 if step.steps[k]
                    else loop.of_pairs and loop.sizes[k] > 1):
                self.fill(step, k)
            elif is_apart(step, k, loop):
                for other in range(n):
                    if held[other]:
                        self.operands[MOST_FILLED] = [step, other]
                if self.operands[MOST_FILLED].step != NULL:
                    self.put(LEAVE_ROW, NULL, 0).kept = MOST_KEPT + MOST_FILLED
                self.put(TAKE_APART, step, k)
                for other in range(n):
                    held[other] = is_same_operand(step, k, step, other)
        return 0

    cdef bint is_number(self, PlanStep* step, int operand) noexcept:
        """Return whether an operand is a number in memory. Vectors are kept of a complex one."""
        return step.steps[operand] == 0 and self.kept_of(step, operand) < 0

    cdef int write_loop(self, PlanStep* step, FusedLoop* loop, bint* held) except -1:
        cdef int kept
        self.prepare_operands(step, loop, held)
        if loop.way == ON_BOOLS:
            self.put(loop.code, step, 0)
            self.put(END_OF_CODE, step, step.n_operands - 2)
            self.put(END_OF_CODE, step, step.n_operands - 1)
        elif loop.way == AS_MOVE:
            if not held[0]:
                self.put(TAKE_NUMBER if self.is_number(step, 0) else loop.code, step, 0)
            if loop.conversion >= 0:
                self.put(loop.conversion, NULL, 0)
            if loop.leave >= 0:
                self.put(loop.leave, step, 1)
        elif loop.way == AS_CHOICE:
            if step.steps[0] == 0:
                self.put_two(step, 1, held)
                self.put(CHOOSE_ONE, step, 0)
            elif held[2] and not held[1] and not loop.of_pairs:
                self.put_other(step, 1, False)
                self.put(CHOOSE_OTHER, step, 0)
            else:
                self.put_two(step, 1, held)
                self.put(CHOOSE_PAIRS if loop.of_pairs else CHOOSE, step, 0)
        elif loop.way == BY_FORMS:
            self.write_by_forms(step, loop.code, held)
        elif loop.way == ON_ONE:
            if not held[0]:
                self.put_first(step, 0)
            if loop.of_pairs and loop.code == MULTIPLY_PAIRS:
                self.put(OTHER_SAME, NULL, 0)
            elif loop.code == CONJUGATE_PAIRS and loop.of_pairs:
                kept = self.kept_of(step, -1)
                self.put(OTHER_ROW, NULL, 0).kept = self.fill(step, -1) if kept < 0 else kept
            self.put(loop.code, NULL, 0)
        else:
            self.put_two(step, 0, held)
            self.put(loop.code, step if loop.way == AS_TEST else NULL, 2)
        return 0

    cdef int write_by_forms(self, PlanStep* step, int operation, bint* held) except -1:
        if not held[0] and not held[1]:
            self.put_first(step, 0)
        if not held[1]:
            self.put(CODE_OF_ROWS(OF_FLOATS, operation, VS if self.is_number(step, 1) else RM), step, 1)
        elif not held[0]:
            self.put(CODE_OF_ROWS(OF_FLOATS, operation, SV if self.is_number(step, 0) else MR), step, 0)
        else:
            self.put(CODE_OF_ROWS(OF_FLOATS, operation, RR), NULL, 0)
        return 0

    cdef int put_two(self, PlanStep* step, int operand, bint* held) except -1:
        """Take this operand and the following one."""
        if held[operand + 1] and not held[operand]:
            self.put_other(step, operand + 1, True)
            self.put_first(step, operand)
        else:
            if not held[operand]:
                self.put_first(step, operand)
            self.put_other(step, operand + 1, is_same_operand(step, operand, step, operand + 1))
        return 0

    cdef int put_first(self, PlanStep* step, int operand) except -1:
        self.put(TAKE_NUMBER if self.is_number(step, operand) else TAKE_ROW, step, operand)
        return 0

    cdef int put_other(self, PlanStep* step, int operand, bint is_held) except -1:
        if is_held:
            self.put(OTHER_SAME, NULL, 0)
        else:
            self.put(OTHER_NUMBER if self.is_number(step, operand) else OTHER_ROW, step, operand)
        return 0

    cdef FusedOperand* put(self, int code, PlanStep* step, int operand) noexcept:
        """Write a word, with an operand of a step."""
        cdef FusedOperand* word
        cdef int kept = -1
        if step != NULL and operand < step.n_operands - 1:
            kept = self.kept_of(step, operand)
            if (self.may_fetch and kept < 0 and code != FETCH_ROW and step.steps[operand] >= 4
                    and not step.numbers[1 + step.n_operands + operand]):
                self.put(FETCH_ROW, step, operand)
        word = &self.plan.fused_words[self.n_words]
        memset(word, 0, sizeof(FusedOperand))
        word.code, word.kept = code, kept
        if step != NULL and kept < 0:
            put_place(word, step, operand)
            word.step, word.move = step.steps[operand] >> self.loops[0].of_pairs, move_of(step, operand)
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


cdef bint is_result_held(FusedLoop* loop) noexcept:
    """Return whether the registers hold the result of a loop after it. Otherwise it is in memory."""
    return loop.way not in (AS_TEST, ON_BOOLS) and not (loop.way == AS_MOVE and loop.leave >= 0)


cdef bint takes_rows(FusedLoop* loop, int operand) noexcept:
    """Return whether a loop takes the elements of an operand as the registers hold them."""
    return not (loop.way == ON_BOOLS or loop.way == AS_CHOICE and operand == 0
                or loop.way == AS_MOVE and loop.code != TAKE_ROW)


cdef bint is_apart(PlanStep* step, int operand, FusedLoop* loop) noexcept:
    """Return whether an operand is every second element in memory."""
    return (step.steps[operand] == 2 * loop.sizes[operand] and loop.sizes[operand] == loop.size
            and operand < step.n_operands - 1 and takes_rows(loop, operand))


cdef bint shares_row(PlanStep* step, FusedLoop* loop) noexcept:
    """Return whether the rows of each operand follow each other, or are one that fits vectors several times."""
    cdef int k
    for k in range(step.n_operands):
        if step.strides[k] != loop.length * step.steps[k] and (
                step.strides[k] or k == step.n_operands - 1 or loop.of_pairs and loop.sizes[k] == 1):
            return False
    return bytes_of_fused() % (loop.length * (loop.size or 8) << loop.of_pairs) == 0


cdef int put_place(FusedOperand* word, PlanStep* step, int operand) noexcept:
    word.buffer, word.offset = step.buffers[operand], step.offsets[operand]
    word.row, word.is_local = step.numbers[1 + operand], step.numbers[1 + step.n_operands + operand]
    return 0


cdef inline cnp.npy_intp move_of(PlanStep* step, int operand) noexcept nogil:
    """Return the bytes from one row of a block to the next."""
    return step.steps[operand] * step.numbers[0] if step.numbers[0] else step.strides[operand]


cdef bint is_same_place(FusedPlace* one, FusedPlace* other) noexcept:
    return (one.buffer == other.buffer and one.first == other.first and one.after == other.after
            and one.row == other.row and one.move == other.move and one.distance == other.distance
            and one.is_local == other.is_local)


cdef bint places_overlap(FusedPlace* one, FusedPlace* other) noexcept:
    return one.buffer == other.buffer and one.first < other.after and other.first < one.after


cdef bint is_same_operand(PlanStep* one, int of_one, PlanStep* other, int of_other) noexcept:
    """Return whether the elements of two operands are in the same place."""
    return (one.buffers[of_one] == other.buffers[of_other] and one.offsets[of_one] == other.offsets[of_other]
            and one.steps[of_one] == other.steps[of_other]
            and one.numbers[1 + of_one] == other.numbers[1 + of_other]
            and move_of(one, of_one) == move_of(other, of_other)
            and one.numbers[1 + one.n_operands + of_one] == other.numbers[1 + other.n_operands + of_other])


# --- which operations ---


cdef bint find_fused_loop(tuple described, FusedLoop* loop) except -1:
    """Return whether fused loops can do what a loop does, wherever its elements are. Set all but where they are."""
    cdef int k, n, type, size, of_second, size_of_second
    loop.size, loop.leave, loop.conversion, loop.of_pairs = 0, -1, -1, False
    kind = described[0]
    if kind == "ufunc":
        types = described[2]
        if cnp.PyTypeNum_ISCOMPLEX(types[0]):
            return find_loop_of_pairs(described[1], types, loop)
        n = len(types)
        operation = OPERATIONS.get(described[1])
        if operation is None or operation >= N_ON_ELEMENTS or not 2 <= n <= 3 or n != described[1].nin + 1:
            return False
        for k in range(n):
            find_element(types[k], &type, &loop.sizes[k])
        if not find_element(types[0], &type, &size) or (n == 3 and types[1] != types[0]):
            return False
        loop.way = fused_way(operation, type)
        if loop.way == NOT_FUSED or types[n - 1] != (cnp.NPY_BOOL if loop.way == AS_TEST else types[0]):
            return False
        loop.code = operation if loop.way == BY_FORMS else CODE_OF_ROWS(type, operation, VV)
        loop.size = 0 if loop.way == ON_BOOLS else size
    elif kind == "choose":
        loop.way, loop.size = AS_CHOICE, described[1]
        loop.sizes = [1, loop.size, loop.size, loop.size]
    elif kind == "copy":
        loop.way, loop.code, loop.size = AS_MOVE, TAKE_ROW, described[1]
        loop.sizes = [loop.size, loop.size, 0, 0]
    elif kind == "cast":
        loop.way = AS_MOVE
        if not (find_element(described[1], &type, &size) and find_element(described[2], &of_second, &size_of_second)):
            return False
        loop.sizes, loop.size = [size, size_of_second, 0, 0], max(size, size_of_second)
        if not find_move(loop, type, of_second):
            return False
    else:
        return False
    if loop.size == 16:
        loop.size, loop.of_pairs = 8, True
    return loop.way == ON_BOOLS or loop.size == 8 or loop.size == 4


cdef bint find_loop_of_pairs(function, tuple types, FusedLoop* loop) except -1:
    """Return whether fused loops can do what a universal function does with complex numbers. Set the same as above."""
    cdef int k, size = itemsize_of_type(types[0])
    for k in range(len(types)):
        if types[k] != types[0]:
            return False
        loop.sizes[k] = size
    loop.size, loop.of_pairs = size // 2, True
    loop.way = fused_way_of_pairs(OPERATIONS.get(function, -1), &loop.code)
    return loop.way != NOT_FUSED and size <= 16


cdef bint find_element(int number, int* type, int* size) except -1:
    """Look up the type and size of elements by type number. Return False if fused loops do not support them."""
    size[0] = itemsize_of_type(number)
    if number == cnp.NPY_DOUBLE or number == cnp.NPY_FLOAT:
        type[0] = OF_FLOATS
    elif number == cnp.NPY_BOOL:
        type[0] = OF_BOOL
    elif number != cnp.NPY_UBYTE and size[0] != 8 and size[0] != 4 or not cnp.PyTypeNum_ISINTEGER(number):
        return False
    else:
        type[0] = OF_UNSIGNED if cnp.PyTypeNum_ISUNSIGNED(number) else OF_SIGNED
    return True


cdef bint find_move(FusedLoop* loop, int one, int other) except -1:
    """Return whether a cast between these types is a move. Set its codes."""
    cdef bint is_float = one == OF_FLOATS
    if one == OF_BOOL:
        is_float = other == OF_FLOATS
        loop.code = TAKE_BOOLS_AS_FLOATS if is_float else TAKE_BOOLS
    elif loop.sizes[0] == loop.size:
        loop.code = TAKE_ROW
    elif loop.sizes[0] == 1:
        loop.code, one = TAKE_BYTES, OF_SIGNED
    elif one == OF_UNSIGNED:
        return False
    else:
        loop.code = TAKE_HALF_FLOATS if is_float else TAKE_HALF_INTS
    if other == OF_BOOL:
        loop.leave = LEAVE_TRUTH_OF_FLOATS if is_float else LEAVE_TRUTH_OF_INTS
        return True
    if is_float != (other == OF_FLOATS):
        # C converts to the lower half of more bits than the result has, and differs for large numbers
        if one == OF_UNSIGNED or loop.sizes[1] != loop.size and not (loop.size == 4 and is_float) or (
                other == OF_UNSIGNED and loop.sizes[1] == loop.size):
            return False
        loop.conversion = TO_INTS if is_float else TO_FLOATS
    if loop.sizes[1] != loop.size:
        loop.leave = (LEAVE_BYTES if loop.sizes[1] == 1 else
                      LEAVE_HALF_FLOATS if other == OF_FLOATS else LEAVE_HALF_INTS)
    return True


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
    plan.fused_words = <FusedOperand*>PyMem_RawMalloc((WORDS_OF_LOOP + 4) * n * sizeof(FusedOperand))
    if plan.fused == NULL or plan.fused_words == NULL:
        raise MemoryError()
    fuser = <LoopFuser>LoopFuser.__new__(LoopFuser, plan, described)
    fuser.used = used
    for i in range(plan.n_steps):
        if plan.steps[i].kind == BLOCKS_STEP and (<Blocks*>plan.steps[i].numbers).order != ROWS_IN_ORDER:
            fuser.find(i + 1, i + 1 + plan.steps[i].n_inside)
    return 0


# --- choices and casts by themselves ----------------------------------------------------------------------------------

cdef enum:
    MOST_STANDALONE = 128

cdef StandaloneLoop[MOST_STANDALONE] STANDALONE_LOOPS
cdef int N_STANDALONE = 0
cdef dict STANDALONE_NUMBERS = {}         # by loop: the number of its StandaloneLoop, or -1


cdef int put_standalone(PlanStep* step, tuple described) except -1:
    """Replace the loop of a choice or a cast by one in registers if there is one."""
    number = STANDALONE_NUMBERS.get(described)
    if number is None:
        with cython.critical_section(STANDALONE_NUMBERS):
            number = STANDALONE_NUMBERS[described] = new_standalone(step, described)
    if number >= 0:
        step.function, step.data = run_standalone, &STANDALONE_LOOPS[<Py_ssize_t>number]
    return 0


cdef object new_standalone(PlanStep* step, tuple described):
    cdef StandaloneLoop* made
    cdef FusedLoop loop
    global N_STANDALONE
    number = N_STANDALONE
    if (step.function == NULL or number == MOST_STANDALONE or not bytes_of_fused()
            or not find_fused_loop(described, &loop) or loop.of_pairs):
        return -1
    N_STANDALONE += 1
    made = &STANDALONE_LOOPS[<Py_ssize_t>number]
    made.function, made.data, made.size, made.sizes = step.function, step.data, loop.size, loop.sizes
    if loop.way == AS_CHOICE:
        made.codes, made.operands = [TAKE_ROW, OTHER_ROW, CHOOSE, LEAVE_ROW], [1, 2, 0, 3]
        made.n_words = made.n_operands = 4
        return number
    made.codes[0], made.operands[0], made.n_operands, made.n_words = loop.code, 0, 2, 2
    if loop.conversion >= 0:
        made.codes[1], made.operands[1], made.n_words = loop.conversion, 1, 3
    made.codes[made.n_words - 1], made.operands[made.n_words - 1] = LEAVE_ROW if loop.leave < 0 else loop.leave, 1
    return number


# --- a run ------------------------------------------------------------------------------------------------------------


cdef void run_fused_loops(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows,
                      cnp.npy_intp local) noexcept nogil:
    """Run the fused loops that begin with this step over the rows of a block."""
    cdef FusedWord words[MOST_FUSED_WORDS]
    cdef char memory[(MOST_KEPT + MOST_FILLED + 2) * KEPT_BYTES]
    cdef char* number
    cdef char* kept = memory + (-<size_t>&memory[0]) % KEPT_BYTES
    cdef FusedLoops* fused = step.fused
    cdef FusedOperand* operand
    cdef Py_ssize_t k
    cdef int bytes = bytes_of_fused()
    cdef cnp.npy_intp at
    cdef bint is_usual
    cdef cnp.npy_intp n = fused.length if fused.by_rows else rows * fused.length
    cdef cnp.npy_intp done = n - n % fused.unit
    for k in range(fused.n_words):
        operand = &fused.words[k]
        words[k].code, words[k].step, words[k].move = operand.code, operand.step, operand.move
        words[k].address = (run.table[operand.buffer] + operand.offset + start * operand.row
                            + local * operand.is_local)
        if operand.kept >= 0:
            words[k].address, words[k].step = kept + operand.kept * KEPT_BYTES, 0
        elif operand.code == STREAM_ROW and <size_t>words[k].address % (bytes // 8):
            words[k].code = LEAVE_ROW
    for k in range(fused.n_words, fused.n_words + fused.n_filled):
        operand = &fused.words[k]
        number = <char*>&SIGN_OF_SECOND[fused.size == 4]
        if operand.buffer >= 0:
            number = (run.table[operand.buffer] + operand.offset + start * operand.row
                      + local * operand.is_local)
        for at in range(operand.move):
            memcpy(kept + operand.kept * KEPT_BYTES + at * operand.step, number, operand.step)
    is_usual = run_fused_words(words, fused.n_words, rows if fused.by_rows else 1, n if fused.by_rows else done,
                               fused.size)
    if fused.has_streams:
        finish_streams()
    if is_watched(run, flags_of_arithmetic()) or not is_usual:
        done = 0
    done, n = done >> fused.of_pairs, n >> fused.of_pairs
    for k in range(fused.n_steps):
        if fused.by_rows and done:
            run_ends_of_rows(run, step + k, start, rows, local, done, n - done)
        else:
            run_rows_of_loop(run, step + k, start, rows, local, done)


cdef void run_ends_of_rows(PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp rows, cnp.npy_intp local,
                           cnp.npy_intp done, cnp.npy_intp n) noexcept nogil:
    """Run a loop over the last `n` elements of each row, after those that are done."""
    cdef char* first[4]
    cdef char* operands[4]
    cdef cnp.npy_intp* numbers = step.numbers + 1
    cdef cnp.npy_intp row
    cdef unsigned int flags
    cdef int i
    if n == 0:
        return
    for i in range(step.n_operands):
        first[i] = (run.table[step.buffers[i]] + step.offsets[i] + start * numbers[i]
                    + local * numbers[step.n_operands + i] + done * step.steps[i])
    for row in range(rows):
        for i in range(step.n_operands):
            operands[i] = first[i] + row * move_of(step, i)
        step.function(operands, &n, step.steps, step.data)
    flags = flags_of_arithmetic()
    if step.reports and flags:
        forget_errors()
        note_these_flags(run, step, errors_of_flags(flags))


cdef inline bint is_watched(PlanRun* run, unsigned int flags) noexcept nogil:
    """Return whether there are errors that have to be reported, or may have to be. Clear the flags."""
    if not flags:
        return False
    forget_errors()
    return run.watched < 0 or (errors_of_flags(flags) & run.watched) != 0
