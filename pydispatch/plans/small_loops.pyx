# Rows of small loops: consecutive loops over few elements that a plan runs as one piece of code.
#
# Code reports the floating-point flags that were raised only at its end, not which loop raised them. If there are flags
# that `numpy.errstate` does not ignore, or a loop has raised an exception or met a position out of range, the
# overwritten bytes are restored, and the loops run again, one by one. Bytes are saved before the row runs, but those of
# single elements that are put into an array are logged when they are overwritten.

cdef enum:
    MOST_ELEMENTS = 16          # of an operation. Beyond that, NumPy's vector instructions save more than a call costs
    MOST_WORK = 1 << 10         # elements of a loop that code calls
    MOST_IN_BODY = 1 << 11      # loops of a row that is the body of a repetition
    MOST_IN_ROW = 1 << 8        # loops of any other row. Each is compared with all loops before it
    MOST_PUT_INTO = 1 << 12     # bytes of an array of which a loop writes some elements, since rows save all
    MOST_OF_CALL = 4            # operands of a loop that code calls
    MOST_IN_CODE = 6            # operands of a loop
    MOST_WORDS = 8              # of a loop in code
    MOST_HELD = 4               # places known to contain the number in the register
    MOST_IN_CHAIN = 3           # links that share one code
    AT_ONCE = 256               # repetitions. This has to be even

cdef struct Used:               # bytes that a row writes, or that it reads before it writes them
    Py_ssize_t buffer
    double first, after
    bint is_overwritten

cdef struct Registers:          # state known before an operation
    int type                    # of the number in the register, or -1 if there is none
    int n_held
    Py_ssize_t buffers[MOST_HELD]       # places in memory with the same number
    cnp.npy_intp offsets[MOST_HELD]
    bint from_before                    # whether it was computed in the previous repetition
    bint flags_of_arithmetic, flags_of_calls    # whether there may be flags that code has not read yet


cdef bint is_small_loop(PlanStep* step) noexcept:
    return (step.kind == LOOP_STEP and not step.is_quiet and step.refusal == NULL and 0 < step.work <= MOST_WORK
            and step.n_operands <= (MOST_IN_CODE if is_access(step) else MOST_OF_CALL))


cdef bint is_access(PlanStep* step) noexcept:
    """Return whether a loop reads or writes one element at positions, which code does itself."""
    return step.gathers and step.data != NULL and step.n_axes == 0 and step.sizes[0] == 1


cdef bint is_logged(PlanStep* step, tuple loop) except -1:
    """Return whether a loop writes one element at positions."""
    return is_access(step) and loop[0] != "pick"


@cython.final
cdef class CodeWriter:
    """A pass that finds rows of small loops in a plan and writes their code."""

    cdef Plan plan
    cdef tuple described
    cdef Room* used             # the bytes that each operand uses
    cdef Used* read
    cdef Used* written
    cdef Py_ssize_t n_read, n_written, n_words, n_fixed, n_patches, n_saved, n_rows
    cdef Py_ssize_t word_from_before        # word of the address of a number that the previous repetition left, or 0
    cdef Registers now
    cdef Py_ssize_t first_link, n_links         # first word of the last operations, and their number, if they are links
    cdef int form_of_first, chain               # codes of these links, one digit of base four for each

    def __cinit__(self, Plan plan not None, tuple described not None):
        cdef Py_ssize_t most = MOST_IN_CODE * min(<Py_ssize_t>MOST_IN_BODY, plan.n_steps)
        self.plan, self.described = plan, described
        self.used = self.read = self.written = NULL
        self.read = <Used*>PyMem_RawMalloc(most * sizeof(Used))
        self.written = <Used*>PyMem_RawMalloc(most * sizeof(Used))
        if self.read == NULL or self.written == NULL:
            raise MemoryError()

    def __dealloc__(self):
        PyMem_RawFree(self.read)
        PyMem_RawFree(self.written)

    # --- rows ---

    cdef int find_rows(self) except -1:
        """Write the rows. Each lies within one body."""
        cdef PlanStep* step
        cdef Py_ssize_t i = 0, stop
        while i < self.plan.n_steps:
            step = &self.plan.steps[i]
            if step.kind == LOOP_STEP:
                stop = self.end_of_row(i, MOST_IN_ROW)
                if stop > i:
                    self.write_row(i, stop, NULL)
                i = max(stop, i + 1)
            elif step.kind == BLOCKS_STEP or step.kind == REPEAT_STEP and self.write_repeated(i):
                i += 1 + step.n_inside
            else:
                i += 1
        return 0

    cdef Py_ssize_t end_of_row(self, Py_ssize_t i, Py_ssize_t most) noexcept:
        """Return the index after the small loops from index `i` on, at most so many, that belong to one body."""
        cdef Py_ssize_t stop = i
        while (stop - i < most and not (stop > i and self.plan.steps[stop].begins_row)
               and self.can_join(&self.plan.steps[stop])):
            stop += 1
        return stop

    cdef bint can_join(self, PlanStep* step) noexcept:
        cdef Room* result
        if not is_small_loop(step):
            return False
        result = &self.used[step.buffers - self.plan.numbers + step.n_operands - 1]
        return is_access(step) or not step.gathers or result.after - result.first <= MOST_PUT_INTO

    cdef bint write_repeated(self, Py_ssize_t i) except -1:
        """Write one row for the whole body of a repetition, if it can be one."""
        cdef Py_ssize_t n = self.plan.steps[i].n_inside
        return (n > 0 and self.end_of_row(i + 1, MOST_IN_BODY) == i + 1 + n
                and self.write_row(i + 1, i + 1 + n, &self.plan.steps[i]))

    cdef bint write_row(self, Py_ssize_t i, Py_ssize_t stop, PlanStep* repetition) except -1:
        """Write code for the loops from index `i` to `stop`. Return False if they cannot be repeated as one row."""
        cdef SmallLoops* row = &self.plan.rows[self.n_rows]
        cdef Py_ssize_t n_words = self.n_words, n_fixed = self.n_fixed, n_patches = self.n_patches
        memset(row, 0, sizeof(SmallLoops))
        if not self.note_saved(i, stop, repetition, row):
            return False
        row.n_steps, row.first = stop - i, self.n_words
        row.patches = self.plan.patches + self.n_patches
        memset(&self.now, 0, sizeof(Registers))
        self.now.type = -1
        self.n_links = 0
        if repetition != NULL:
            self.write_loops(i, stop)           # to find out the register's state afterwards
            self.n_words, self.n_fixed, self.n_patches = n_words, n_fixed, n_patches
            self.hand_on_register(repetition)
        self.word_from_before = self.n_links = 0
        self.write_loops(i, stop)
        row.n_patches = self.n_patches - n_patches
        row.last, row.is_single = self.word_from_before, self.now.type == OF_FLOAT32
        for k in range(i, stop):
            row.has_calls = row.has_calls or self.plan.steps[k].reports_by_call
            row.may_raise = row.may_raise or self.plan.steps[k].may_raise
            row.gathers = row.gathers or self.plan.steps[k].gathers
        if repetition != NULL:
            self.write_second(row, repetition, n_fixed)
        else:
            self.put(END_OF_CODE, 0)
        self.plan.steps[i].small = row
        self.n_rows += 1
        return True

    cdef int hand_on_register(self, PlanStep* repetition) except -1:
        """Set the register's state at the beginning of a repetition from that at the end, for carries."""
        cdef cnp.npy_intp* swaps = swaps_of(repetition)
        cdef Py_ssize_t k, pair, n = 0
        for k in range(self.now.n_held):
            for pair in range((<Repetition*>repetition.numbers).n_swaps):
                if self.now.buffers[k] == swaps[2 * pair + 1] and n == 0:
                    self.now.buffers[0], self.now.offsets[0] = swaps[2 * pair], self.now.offsets[k]
                    n = 1
        self.now.n_held, self.now.from_before = n, n > 0
        if n == 0:
            self.now.type = -1
        return 0

    cdef int write_second(self, SmallLoops* row, PlanStep* repetition, Py_ssize_t n_fixed) except -1:
        """Write the code again for every second repetition, then the code that moves slices on by two."""
        cdef Py_ssize_t k, move, n, start, total = 0
        cdef cnp.npy_intp* moves = moves_of(repetition)
        self.put(NEXT_REPETITION, 0)
        row.distance = n = self.n_words - row.first
        memcpy(self.plan.code + self.n_words, self.plan.code + row.first, (n - 1) * sizeof(CodeWord))
        self.n_words += n - 1
        for k in range(n_fixed, self.n_fixed):
            self.plan.fixed[self.n_fixed] = self.plan.fixed[k]
            self.plan.fixed[self.n_fixed].word += n
            self.n_fixed += 1
        start = self.n_words
        self.put(NEXT_TWO, 0)
        for k in range(row.n_patches):
            for move in range((<Repetition*>repetition.numbers).n_moves):
                if row.patches[k].buffer == moves[4 * move]:
                    for distance in (0, n):
                        self.plan.code[self.n_words].number = start - row.patches[k].word - <Py_ssize_t>distance
                        self.plan.code[self.n_words + 1].number = 2 * moves[4 * move + 3]
                        self.n_words += 2
                        total += 1
        put_operation(&self.plan.code[start], NEXT_TWO, total)
        return 0

    # --- bytes that are read and overwritten ---

    cdef bint note_saved(self, Py_ssize_t i, Py_ssize_t stop, PlanStep* repetition, SmallLoops* row) except -1:
        """Note the bytes that a row needs in order to run again: those that it reads first and then overwrites.

        Return False if some of these are in an entry that moves in a repetition. Elements that are logged do not count.
        """
        cdef PlanStep* step
        cdef Py_ssize_t k, number, before = self.n_saved, size = 0
        cdef int operand, n_in
        cdef Used use
        cdef SavedBytes* saved
        self.n_read = self.n_written = 0
        for k in range(i, stop):
            step = &self.plan.steps[k]
            n_in = step.n_operands - n_written(self.described[k][2])
            row.n_logged += is_logged(step, self.described[k][2])
            for operand in range(n_in if is_logged(step, self.described[k][2]) else step.n_operands):
                use = self.use_of(step, operand)
                if operand < n_in:
                    if not is_within(&use, self.written, self.n_written):
                        self.n_read = add_use(&use, self.read, self.n_read)
                else:
                    for number in range(self.n_read):
                        if overlap(&self.read[number], &use):
                            self.read[number].is_overwritten = True
                    self.n_written = add_use(&use, self.written, self.n_written)
        for number in range(self.n_read):
            use = self.read[number]
            if repetition != NULL and is_swapped(repetition, use.buffer):
                use.is_overwritten = True
            elif repetition != NULL and use.is_overwritten and is_moving(repetition, use.buffer):
                self.n_saved = before
                return False
            if use.is_overwritten:
                saved = &self.plan.saved[self.n_saved]
                saved.buffer, saved.offset = use.buffer, <cnp.npy_intp>use.first
                saved.size = <cnp.npy_intp>(use.after - use.first)
                size += saved.size
                self.n_saved += 1
        size = (size + 7) & ~<Py_ssize_t>7
        row.saved, row.n_saved, row.n_bytes_saved = self.plan.saved + before, self.n_saved - before, size
        self.plan.saved_size = max(self.plan.saved_size, size + (
            row.n_logged * (1 if repetition == NULL else AT_ONCE) * <Py_ssize_t>sizeof(Overwritten)))
        return True

    cdef Used use_of(self, PlanStep* step, int operand):
        cdef Used use
        cdef Room* room = &self.used[step.buffers - self.plan.numbers + operand]
        use.buffer, use.first, use.after = known_buffer(self.plan, step.buffers[operand]), room.first, room.after
        use.is_overwritten = False
        return use

    # --- loops ---

    cdef int write_loops(self, Py_ssize_t i, Py_ssize_t stop) except -1:
        cdef Py_ssize_t k
        for k in range(i, stop):
            self.write_loop(k)
        return 0

    cdef int write_loop(self, Py_ssize_t i) except -1:
        """Write a loop as an operation if there is one, else as a call."""
        cdef PlanStep* step = &self.plan.steps[i]
        cdef tuple loop = self.described[i][2]
        cdef int type, operation
        if is_access(step):
            return self.write_access(step, loop)
        if step.n_axes == 0 and len(self.described[i][7]) == 1 and step.sizes[0] <= MOST_ELEMENTS:
            if loop[0] == "ufunc":
                if find_operation(loop, &type, &operation) and self.write_operation(step, type, operation):
                    return 0
            elif loop[0] == "copy":
                if self.write_copy(step, loop[1]):
                    return 0
            elif loop[0] == "choose" and self.write_choice(step, loop[1]):
                return 0
        return self.write_call(step, loop)

    cdef bint write_operation(self, PlanStep* step, int type, int operation) except -1:
        cdef int n_in = step.n_operands - 1, itemsize = 4 if type == OF_FLOAT32 else 1 if type == OF_BOOL else 8, form
        cdef bint is_test = class_of(operation) == COMPARISON
        cdef bint is_extreme = class_of(operation) == EXTREME and type <= OF_FLOAT32
        cdef bint is_single = step.sizes[0] == 1
        cdef bint can_hold = is_single and type <= OF_FLOAT32
        cdef bint is_left = False, is_right = False, is_turned = False
        cdef int k
        if not self.goes_along(step, n_in, 1 if is_test else itemsize):
            return False
        if is_single:
            if can_hold and not is_extreme:
                is_left = self.is_held(step, 0, type)
                is_right = n_in == 2 and self.is_held(step, 1, type) and not (is_test and is_left)
            form = RR if is_left and is_right else RM if is_left else MR if is_right else MM
            if form == MR and type == OF_FLOAT64 and link_of(operation, MR) < 0 <= link_of(operation, RM):
                form, is_left, is_right, is_turned = RM, True, False, True      # the same number, or nan
        else:
            for k in range(n_in):
                if not (step.steps[k] == 0 and n_in == 2 or self.goes_along(step, k, itemsize)) or (
                        not self.reads_before_writing(step, k)):
                    return False
            if n_in == 2 and step.steps[0] == 0 and step.steps[1] == 0 or (
                    class_of(operation) == EXTREME and not is_extreme):
                return False
            form = VV if n_in == 1 else SV if step.steps[0] == 0 else VS if step.steps[1] == 0 else VV
        if self.now.from_before and self.word_from_before == 0 and (is_left or is_right):
            self.word_from_before = self.n_words + (1 if is_left else 2)
        self.put(CODE(type, operation, form), step.sizes[0])
        if can_hold and type == OF_FLOAT64 and form != RR and link_of(operation, form) >= 0:
            self.link(link_of(operation, form), form)
        self.put_addresses(step, is_turned)
        if is_extreme:
            self.put_call(step)
        if type <= OF_FLOAT32:
            self.now.flags_of_arithmetic = True
        self.forget_written(step)
        if can_hold and not is_test:
            self.now.type, self.now.n_held, self.now.from_before = type, 0, False
            self.hold(step)
        elif is_extreme:
            self.now.type, self.now.n_held = -1, 0
        return True

    cdef int link(self, int does, int form) except -1:
        """Link the operation whose first word was just written to the operations right before it, if possible."""
        cdef Py_ssize_t word = self.n_words - 1
        cdef int code
        if form == MM or not 0 < self.n_links < MOST_IN_CHAIN or (
                self.first_link + self.n_links * WORDS_OF_LINK != word):
            self.first_link, self.n_links, self.form_of_first, self.chain = word, 1, form, does
            return 0
        self.n_links += 1
        self.chain = 4 * self.chain + does
        if self.n_links == 2:
            code = PAIRS_OF_MEMORY if self.form_of_first == MM else PAIRS_OF_RESULT
        else:
            code = TRIPLES_OF_MEMORY if self.form_of_first == MM else TRIPLES_OF_RESULT
        put_operation(&self.plan.code[self.first_link], code + self.chain, self.n_links)
        return 0

    cdef bint write_copy(self, PlanStep* step, int itemsize) except -1:
        cdef cnp.npy_intp n = step.sizes[0]
        if n == 1:
            if (itemsize == 8 and self.is_held(step, 0, OF_FLOAT64)
                    or itemsize == 4 and self.is_held(step, 0, OF_FLOAT32)):
                if self.now.from_before and self.word_from_before == 0:
                    self.word_from_before = self.n_words + 1
                self.put(COPY_RESULT if itemsize == 8 else COPY_SINGLE_RESULT, 1)
                self.put_addresses(step)
                self.forget_written(step)
                self.hold(step)
                return True
            if itemsize not in (1, 4, 8):
                return False
            self.put(COPY_8 if itemsize == 8 else COPY_4 if itemsize == 4 else COPY_1, 1)
        elif not self.goes_along(step, 1, itemsize) or not self.reads_before_writing(step, 0):
            return False
        elif step.steps[0] == itemsize:
            self.put(COPY_BYTES, n * itemsize)
        elif step.steps[0] == 0 and (itemsize == 8 or itemsize == 4):
            self.put(FILL_8 if itemsize == 8 else FILL_4, n)
        else:
            return False
        self.put_addresses(step)
        self.forget_written(step)
        return True

    cdef bint write_choice(self, PlanStep* step, int itemsize) except -1:
        cdef cnp.npy_intp n = step.sizes[0], steps = 0
        cdef int k
        if itemsize != 4 and itemsize != 8:
            return False
        if n > 1:
            for k in range(4):
                if step.steps[k] == (itemsize if k else 1):
                    steps |= 1 << k
                elif step.steps[k] != 0 or k == 3:
                    return False
                if k < 3 and not self.reads_before_writing(step, k):
                    return False
            self.put(CHOOSE_AMONG_8 if itemsize == 8 else CHOOSE_AMONG_4, n)
        else:
            self.put(CHOOSE_8 if itemsize == 8 else CHOOSE_4, 1)
        self.put_addresses(step)
        self.plan.code[self.n_words].number = steps
        self.n_words += 1
        self.forget_written(step)
        return True

    cdef int write_access(self, PlanStep* step, tuple loop) except -1:
        """Write an operation on one element at positions."""
        cdef int size = loop[1]
        cdef bint is_held = False
        if loop[0] == "put_sum":
            size = OF_FLOAT64 if size == cnp.NPY_DOUBLE else OF_FLOAT32 if size == cnp.NPY_FLOAT else OF_INT64
            self.put(PUT_SUM, size)
            self.now.flags_of_arithmetic = True
        elif loop[0] == "put":
            self.put(PUT_ANY, size)
        else:
            is_held = size == 8
            self.put(PICK_8 if is_held else PICK_ANY, size)
        self.plan.code[self.n_words].axes = <cnp.npy_intp*>step.data
        self.n_words += 1
        self.put_addresses(step)
        self.forget_written(step)
        if is_held:
            self.now.type, self.now.n_held, self.now.from_before = OF_FLOAT64, 0, False
            self.hold(step)
        return 0

    cdef int write_call(self, PlanStep* step, tuple loop) except -1:
        cdef int code = CALL_LOOP
        cdef LoopCall call
        call.function, call.data = step.function, step.data
        if step.n_axes == 0 and step.sizes[0] == 1 and loop[0] == "ufunc" and (
                self.write_library(step, loop, &call) if step.n_operands == 2 else self.write_division(step, loop)):
            return 0
        if loop[0] == "ufunc" and not keeps_flags(loop, &call):
            if self.now.flags_of_calls:
                code = CALL_AFTER_CALLS
            elif self.now.flags_of_arithmetic:
                code = CALL_AFTER_ARITHMETIC
            self.now.flags_of_calls = self.now.flags_of_arithmetic = False
        self.put(code, step.n_operands)
        self.put_call(step)
        self.put_addresses(step)
        self.now.flags_of_calls = self.now.flags_of_calls or step.reports_by_call
        self.now.flags_of_arithmetic = self.now.flags_of_arithmetic or step.reports
        self.now.type, self.now.n_held = -1, 0
        return 0

    cdef bint write_library(self, PlanStep* step, tuple loop, LoopCall* call) except -1:
        """Write a call of a function in C's library on one number, if that is the loop and it leaves flags raised."""
        cdef LibraryFunction function = NULL
        cdef bint is_held = self.is_held(step, 0, OF_FLOAT64)
        if not keeps_flags(loop, call):
            return False
        if not find_library_function(loop, call, &function):
            return False
        if is_held and self.now.from_before and self.word_from_before == 0:
            self.word_from_before = self.n_words + 2
        self.put(LIBRARY_OF_RESULT if is_held else LIBRARY_OF_MEMORY, 1)
        self.plan.code[self.n_words].function = function
        self.n_words += 1
        self.put_addresses(step)
        self.now.flags_of_calls = self.now.flags_of_calls or step.reports_by_call
        self.now.flags_of_arithmetic = True
        self.forget_written(step)
        self.now.type, self.now.n_held, self.now.from_before = OF_FLOAT64, 0, False
        self.hold(step)
        return True

    cdef bint write_division(self, PlanStep* step, tuple loop) except -1:
        """Write a division of int64, if the loop is one."""
        if loop[2][0] != cnp.NPY_INT64 or loop[1] is not numpy.remainder and loop[1] is not numpy.floor_divide:
            return False
        self.put(REMAINDER if loop[1] is numpy.remainder else QUOTIENT, 1)
        self.put_addresses(step)
        self.put_call(step)
        self.now.flags_of_calls = self.now.flags_of_arithmetic = True       # if the code asks NumPy
        self.now.type, self.now.n_held = -1, 0
        return True

    # --- words ---

    cdef int put(self, int code, cnp.npy_intp n) except -1:
        put_operation(&self.plan.code[self.n_words], code, n)
        self.n_words += 1
        return 0

    cdef int put_call(self, PlanStep* step) except -1:
        cdef LoopCall* call = &self.plan.loop_calls[step - self.plan.steps]
        call.function, call.sizes, call.steps, call.data = step.function, step.sizes, step.steps, step.data
        if step.n_axes:
            call.function, call.data = take_outer_axes, step
        self.plan.code[self.n_words].call = call
        self.n_words += 1
        return 0

    cdef int put_addresses(self, PlanStep* step, bint is_turned=False) except -1:
        """Put the addresses of operands into the code. With `is_turned`, swap the first two.

        Addresses in the arena and of constants are known for an arena, all others for a run.
        """
        cdef int k
        cdef Patch patch
        cdef Py_ssize_t first = 1 + len(self.plan.inputs)
        for k in range(step.n_operands):
            patch.word, patch.buffer, patch.offset = self.n_words + k, step.buffers[k], step.offsets[k]
            if is_turned and k < 2:
                patch.word = self.n_words + 1 - k
            if patch.buffer == 0 or first <= patch.buffer < first + <Py_ssize_t>len(self.plan.constants):
                self.plan.fixed[self.n_fixed] = patch
                self.n_fixed += 1
            else:
                self.plan.patches[self.n_patches] = patch
                self.n_patches += 1
        self.n_words += step.n_operands
        return 0

    # --- operands ---

    cdef bint goes_along(self, PlanStep* step, int k, int itemsize) except -1:
        """Return whether the elements of an operand are contiguous."""
        return step.sizes[0] == 1 or step.steps[k] == itemsize

    cdef bint reads_before_writing(self, PlanStep* step, int k) except -1:
        """Return whether an operand lies apart from the result, or element by element where the result does."""
        cdef int last = step.n_operands - 1
        cdef Used one = self.use_of(step, k), other = self.use_of(step, last)
        return not overlap(&one, &other) or (
            one.first == other.first and one.after == other.after and step.steps[k] == step.steps[last])

    cdef bint is_held(self, PlanStep* step, int k, int type) except -1:
        """Return whether the number of an operand is in the register."""
        cdef int i
        for i in range(self.now.n_held):
            if (self.now.type == type and self.now.buffers[i] == step.buffers[k]
                    and self.now.offsets[i] == step.offsets[k]):
                return True
        return False

    cdef int hold(self, PlanStep* step) except -1:
        """Note that the result of a step is the number in the register."""
        cdef int last = step.n_operands - 1
        if self.now.n_held < MOST_HELD:
            self.now.buffers[self.now.n_held] = step.buffers[last]
            self.now.offsets[self.now.n_held] = step.offsets[last]
            self.now.n_held += 1
        return 0

    cdef int forget_written(self, PlanStep* step) except -1:
        """Forget the places that a step overwrites: they no longer contain the number in the register."""
        cdef int i, n = 0, last = step.n_operands - 1
        cdef Used use = self.use_of(step, last)
        for i in range(self.now.n_held):
            if (known_buffer(self.plan, self.now.buffers[i]) != use.buffer or self.now.offsets[i] >= use.after
                    or self.now.offsets[i] + 8 <= use.first):
                self.now.buffers[n], self.now.offsets[n] = self.now.buffers[i], self.now.offsets[i]
                n += 1
        self.now.n_held = n
        return 0


cdef Py_ssize_t known_buffer(Plan plan, Py_ssize_t buffer):
    """Return the number of a buffer. For a result that may lie in a donated input, return the input's."""
    cdef Py_ssize_t n = buffer - 1 - len(plan.inputs) - len(plan.constants)
    if 0 <= n < len(plan.donated) and plan.donated[n] >= 0:
        return 1 + <Py_ssize_t>plan.donated[n]
    return buffer


cdef inline bint overlap(Used* one, Used* other) noexcept:
    return one.buffer == other.buffer and one.first < other.after and other.first < one.after


cdef bint is_within(Used* use, Used* known, Py_ssize_t n) noexcept:
    """Return whether one of the known uses contains all of the bytes."""
    cdef Py_ssize_t i
    for i in range(n - 1, -1, -1):
        if known[i].buffer == use.buffer and known[i].first <= use.first and use.after <= known[i].after:
            return True
    return False


cdef Py_ssize_t add_use(Used* use, Used* known, Py_ssize_t n) noexcept:
    """Add these bytes unless they are known. Return the number of uses."""
    if is_within(use, known, n):
        return n
    known[n] = use[0]
    return n + 1


cdef bint is_swapped(PlanStep* repetition, Py_ssize_t buffer) noexcept:
    cdef Py_ssize_t k
    for k in range(2 * (<Repetition*>repetition.numbers).n_swaps):
        if swaps_of(repetition)[k] == buffer:
            return True
    return False


cdef bint is_moving(PlanStep* repetition, Py_ssize_t buffer) noexcept:
    cdef Py_ssize_t k
    for k in range((<Repetition*>repetition.numbers).n_moves):
        if moves_of(repetition)[4 * k] == buffer:
            return True
    return False


cdef int write_small_loops(Plan plan, tuple described, Room* used) except -1:
    """Find rows of small loops among the steps of a plan and write their code."""
    cdef Py_ssize_t i, n = 0
    for i in range(plan.n_steps):
        n += is_small_loop(&plan.steps[i])
    plan.rows = <SmallLoops*>PyMem_RawMalloc((n + 1) * sizeof(SmallLoops))
    plan.patches = <Patch*>PyMem_RawMalloc((MOST_IN_CODE * n + 1) * sizeof(Patch))
    plan.fixed = <Patch*>PyMem_RawMalloc((2 * MOST_IN_CODE * n + 1) * sizeof(Patch))
    plan.saved = <SavedBytes*>PyMem_RawMalloc((MOST_IN_CODE * n + 1) * sizeof(SavedBytes))
    plan.loop_calls = <LoopCall*>PyMem_RawMalloc((plan.n_steps + 1) * sizeof(LoopCall))
    plan.code = <CodeWord*>PyMem_RawMalloc(
        ((2 * MOST_WORDS + 4 * MOST_IN_CODE + 2) * n + MOST_IN_CODE + 2) * sizeof(CodeWord))
    if (plan.rows == NULL or plan.patches == NULL or plan.fixed == NULL or plan.saved == NULL
            or plan.loop_calls == NULL or plan.code == NULL):
        raise MemoryError()
    if n == 0:
        return 0
    writer = <CodeWriter>CodeWriter.__new__(CodeWriter, plan, described)
    writer.used = used
    writer.find_rows()
    plan.n_words, plan.n_fixed = writer.n_words, writer.n_fixed
    return 0


cdef int fix_addresses(Plan plan, Arena arena) except -1:
    """Copy the code of a plan to an arena, with the addresses of the arena and of constants."""
    cdef CodeWord* code = <CodeWord*>(arena.memory + plan.code_at)
    cdef Py_ssize_t i, first = 1 + len(plan.inputs)
    cdef Patch* patch
    memcpy(code, plan.code, plan.n_words * sizeof(CodeWord))
    for i in range(plan.n_fixed):
        patch = &plan.fixed[i]
        code[patch.word].address = patch.offset + (arena.memory if patch.buffer == 0 else <char*>PyArray_DATA(
            <PyArrayObject*>PyTuple_GET_ITEM(<PyObject*>plan.constants, patch.buffer - first)))
    return 0


# --- a run ------------------------------------------------------------------------------------------------------------


cdef inline void put_run_addresses(PlanRun* run, SmallLoops* row, Py_ssize_t distance) noexcept nogil:
    """Put the addresses of this run into code, or into the code for every second repetition."""
    cdef Py_ssize_t i
    cdef Patch* patch
    for i in range(row.n_patches):
        patch = &row.patches[i]
        run.code[patch.word + distance].address = run.table[patch.buffer] + patch.offset


cdef inline void save_bytes(PlanRun* run, SmallLoops* row) noexcept nogil:
    cdef Py_ssize_t i
    cdef char* free = run.saved
    for i in range(row.n_saved):
        memcpy(free, run.table[row.saved[i].buffer] + row.saved[i].offset, row.saved[i].size)
        free += row.saved[i].size


cdef inline Overwritten* log_of(PlanRun* run, SmallLoops* row) noexcept nogil:
    """Return the beginning of a row's log."""
    return <Overwritten*>(run.saved + row.n_bytes_saved)


cdef void put_back_bytes(PlanRun* run, SmallLoops* row, Overwritten* log) noexcept nogil:
    """Restore the bytes from before a row ran. `log` is the end of its log."""
    cdef Py_ssize_t i
    cdef char* free = run.saved
    undo(log_of(run, row), log)
    for i in range(row.n_saved):
        memcpy(run.table[row.saved[i].buffer] + row.saved[i].offset, free, row.saved[i].size)
        free += row.saved[i].size


cdef int find_watched(PlanRun* run) except -1 nogil:
    """Set the errors that NumPy does not ignore."""
    cdef int i
    with gil:
        handling = numpy.geterr()
        run.watched = 0
        for i, name in enumerate(("divide", "over", "under", "invalid")):
            if handling[name] != "ignore":
                run.watched |= 1 << i
    return 0


cdef bint has_watched(PlanRun* run, unsigned int flags) except -1 nogil:
    """Return whether there are errors that have to be reported. Clear the flags."""
    if run.watched < 0:
        find_watched(run)
    forget_errors()
    return (errors_of_flags(flags) & run.watched) != 0


cdef inline bint must_run_again(PlanRun* run, SmallLoops* row, unsigned int flags) except -1 nogil:
    return (flags or row.has_calls or row.may_raise or row.gathers) and has_failed(run, row, flags)


cdef bint has_failed(PlanRun* run, SmallLoops* row, unsigned int flags) except -1 nogil:
    """Return whether loops of a row have failed, or have errors that must be reported. Clear all flags."""
    cdef bint found
    if row.has_calls:
        flags |= flags_of_calls()
    found = flags and has_watched(run, flags)
    if row.may_raise and forget_raised(run):
        found = True
    if row.gathers and take_out_of_range(&run.position, &run.extent):
        found = True
    return found


cdef int take_one_by_one(PlanRun* run, PlanStep* step, SmallLoops* row) except -1 nogil:
    cdef Py_ssize_t i
    for i in range(row.n_steps):
        run_loop_step(run, step + i)
    return 0


cdef int run_small_loops(PlanRun* run, PlanStep* step) except -1 nogil:
    """Run the row that begins with this step."""
    cdef SmallLoops* row = step.small
    cdef Overwritten* log = log_of(run, row)
    cdef unsigned int flags
    put_run_addresses(run, row, 0)
    save_bytes(run, row)
    flags = run_operations(run.code + row.first, 1, NULL, False, &log)
    if must_run_again(run, row, flags):
        put_back_bytes(run, row, log)
        take_one_by_one(run, step, row)
    return 0


cdef int repeat_small_loops(PlanRun* run, PlanStep* step) except -1 nogil:
    """Repeat the row that is the whole body of a repetition.

    There are two copies of its code, since carries are swapped after each repetition.
    """
    cdef SmallLoops* row = step[1].small
    cdef cnp.npy_intp n = (<Repetition*>step.numbers).length, k = 0, count
    cdef const char* last
    cdef Overwritten* log
    cdef unsigned int flags
    move_entries(run, step, 1)
    swap_entries(run, step)
    put_run_addresses(run, row, row.distance)
    move_entries(run, step, 0)
    swap_entries(run, step)
    put_run_addresses(run, row, 0)
    while k < n:
        count = min(<cnp.npy_intp>AT_ONCE, n - k)
        save_bytes(run, row)
        last = run.code[row.last].address if row.last else NULL
        log = log_of(run, row)
        flags = run_operations(run.code + row.first, count, last, row.is_single, &log)
        if must_run_again(run, row, flags):
            put_back_bytes(run, row, log)
            repeat_one_by_one(run, step, k, count)
        k += count
        watch_signals(run, count * WORK_OF_REPETITION)
    if n % 2:
        swap_entries(run, step)
    return 0


cdef int repeat_one_by_one(
    PlanRun* run, PlanStep* step, cnp.npy_intp start, cnp.npy_intp count
) except -1 nogil:
    """Run `count` repetitions from number `start` on. At the end, carries are where they were."""
    cdef cnp.npy_intp k
    for k in range(start, start + count):
        move_entries(run, step, k)
        take_one_by_one(run, step + 1, step[1].small)
        swap_entries(run, step)
    if count % 2:
        swap_entries(run, step)
    return 0
