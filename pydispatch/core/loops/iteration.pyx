# Iteration over small arrays of any layout, with loops in NumPy's order.
#
# A loop may compute other bits for an element that is one of many contiguous ones than for a single one, such as the
# sign of max(0.0, -0.0). This part therefore follows NumPy in three things: which axis is innermost, which axes are
# merged, and which operands are copied first so that one loop does what would take several.
# `tests/core/test_iteration.py` has a ufunc that notes each of its loops.

cdef inline cnp.npy_intp magnitude(cnp.npy_intp number) noexcept nogil:
    return number if number >= 0 else -number


cdef inline int compared_strides(cnp.npy_intp* inner, cnp.npy_intp* outer, int n_operands) noexcept nogil:
    """Return 1 if the axis with `outer` strides belongs inside, -1 if not, 0 if no operand decides."""
    cdef int i, found = 0
    for i in range(n_operands):
        if inner[i] == 0 or outer[i] == 0:
            continue
        if magnitude(inner[i]) <= magnitude(outer[i]):
            return -1
        found = 1
    return found


cdef void order_axes(Iteration* iteration) noexcept nogil:
    cdef cnp.npy_intp extents[MOST_AXES]
    cdef cnp.npy_intp strides[MOST_AXES][MOST_OPERANDS]
    cdef int n = iteration.n_axes, i, k, place, moved, found
    cdef bint is_moved = False
    for i in range(n):
        iteration.order[i] = i
    for i in range(1, n):
        place = i
        moved = iteration.order[i]
        for k in range(i - 1, -1, -1):
            found = compared_strides(iteration.strides[iteration.order[k]], iteration.strides[moved],
                                     iteration.n_operands)
            if found > 0:
                place = k
            elif found < 0:
                break
        if place != i:
            is_moved = True
            for k in range(i, place, -1):
                iteration.order[k] = iteration.order[k - 1]
            iteration.order[place] = moved
    if not is_moved:
        return
    memcpy(extents, iteration.extents, sizeof(extents))
    memcpy(strides, iteration.strides, sizeof(strides))
    for i in range(n):
        iteration.extents[i] = extents[iteration.order[i]]
        memcpy(iteration.strides[i], strides[iteration.order[i]], sizeof(strides[0]))


cdef inline bint can_merge(Iteration* iteration, int inner, int outer) noexcept nogil:
    cdef int i
    for i in range(iteration.n_operands):
        if iteration.extents[inner] == 1 and iteration.strides[inner][i] == 0:
            continue
        if iteration.extents[outer] == 1 and iteration.strides[outer][i] == 0:
            continue
        if iteration.strides[inner][i] * iteration.extents[inner] != iteration.strides[outer][i]:
            return False
    return True


cdef void merge_axes(Iteration* iteration) noexcept nogil:
    cdef int last = 0, axis, i
    for axis in range(1, iteration.n_axes):
        if can_merge(iteration, last, axis):
            iteration.extents[last] *= iteration.extents[axis]
            for i in range(iteration.n_operands):
                if iteration.strides[last][i] == 0:
                    iteration.strides[last][i] = iteration.strides[axis][i]
            continue
        last += 1
        if last != axis:
            iteration.extents[last] = iteration.extents[axis]
            memcpy(iteration.strides[last], iteration.strides[axis], sizeof(iteration.strides[0]))
    iteration.n_axes = last + 1


cdef bint COUNTS_COPIES = tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 3)
"""Does NumPy weigh copies against loops? Before 2.3, it copies whatever makes one loop of several."""


cdef struct Chunks:         # how an iteration is divided into loops
    int axis                            # the outermost axis inside a chunk
    bint turns                          # whether it takes several loops, because operand 0 starts or stops moving
    cnp.npy_intp n, turned              # elements per loop, loops per chunk
    cnp.npy_intp steps[MOST_OPERANDS]           # within a loop
    cnp.npy_intp outer_steps[MOST_OPERANDS]     # from one loop of a chunk to the next
    int copied_axes[MOST_OPERANDS]      # an operand is copied first along so many axes, or 0


cdef inline void cut_into_chunks(Iteration* iteration, Chunks* chunks) noexcept nogil:
    """Choose chunks as NumPy does, by counting loops and copies."""
    cdef int uniform[MOST_OPERANDS]     # the number of inner axes that one stride steps along
    cdef int n = iteration.n_operands, axis, i, turning = 0, cost = 1, best_cost
    cdef int always_copied = -1
    cdef cnp.npy_intp size = iteration.extents[0], best = size, core
    cdef bint is_turned
    chunks.axis, chunks.n, chunks.turned = 0, size, 1
    for i in range(n):
        uniform[i] = 1
    if iteration.mask >= 0 and iteration.mask_ndim > 1:     # otherwise NumPy converts it before it iterates
        always_copied = iteration.mask
        cost += 1
    best_cost = cost
    for axis in range(1, iteration.n_axes):
        for i in range(n):
            if uniform[i] == axis:
                if iteration.strides[axis - 1][i] * iteration.extents[axis - 1] == iteration.strides[axis][i]:
                    uniform[i] += 1
                    continue
                if i != always_copied:
                    cost += 1
            if i == 0 and iteration.reduces and (
                    iteration.strides[axis][0] == 0 or iteration.strides[axis - 1][0] == 0):
                turning = axis
        core = size
        size *= iteration.extents[axis]
        if cost * best <= best_cost * size or not COUNTS_COPIES and not iteration.reduces:
            best_cost, best = cost, size
            chunks.axis, chunks.n, chunks.turned = axis, core, iteration.extents[axis]
        if turning:
            break
    axis = chunks.axis
    chunks.turns = turning != 0 and turning == axis
    if not chunks.turns:
        chunks.n *= chunks.turned
        chunks.turned = 1
    for i in range(n):
        is_turned = chunks.turns and (
            i == 0 or uniform[i] == axis or (iteration.strides[axis][i] == 0 and uniform[i] <= axis))
        chunks.copied_axes[i] = 0
        chunks.steps[i], chunks.outer_steps[i] = iteration.strides[0][i], iteration.strides[axis][i]
        if uniform[i] + is_turned <= axis or i == iteration.mask:
            chunks.copied_axes[i] = axis if is_turned else axis + 1
            chunks.steps[i] = iteration.sizes[i]
            chunks.outer_steps[i] = 0 if is_turned else iteration.sizes[i] * chunks.n
            if uniform[i] > axis and iteration.strides[0][i] == 0:
                chunks.steps[i] = 0


cdef bint run_iteration(
    Iteration* iteration, PyUFuncGenericFunction function, void* data, bint skips_first
) noexcept nogil:
    cdef Chunks chunks
    cdef double on_stack[SMALL_COPIES]
    cdef char* copies = <char*>on_stack
    cdef cnp.npy_intp needed = 0
    cdef int i
    if iteration.n_axes == 1 and iteration.mask < 0:
        take_chunk(iteration, NULL, iteration.pointers, function, data, skips_first)
        return True
    cut_into_chunks(iteration, &chunks)
    for i in range(iteration.n_operands):
        if chunks.copied_axes[i]:
            needed += room_for_copy(iteration, &chunks, i)
    if needed > <cnp.npy_intp>sizeof(on_stack):
        copies = <char*>PyMem_RawMalloc(needed)
        if copies == NULL:
            return False
    take_chunks(iteration, &chunks, copies, function, data, skips_first)
    if needed > <cnp.npy_intp>sizeof(on_stack):
        PyMem_RawFree(copies)
    return True


cdef inline cnp.npy_intp room_for_copy(Iteration* iteration, Chunks* chunks, int operand) noexcept nogil:
    cdef cnp.npy_intp size = iteration.sizes[operand]
    cdef int axis
    for axis in range(chunks.copied_axes[operand]):
        size *= iteration.extents[axis]
    return (size + 15) & ~<cnp.npy_intp>15


cdef void take_chunks(Iteration* iteration, Chunks* chunks, char* copies, PyUFuncGenericFunction function, void* data,
                      bint skips_first) noexcept nogil:
    cdef cnp.npy_intp position[MOST_AXES]
    cdef char* pointers[MOST_OPERANDS]      # the start of the chunk
    cdef char* given[MOST_OPERANDS]
    cdef char* free
    cdef int n = iteration.n_operands, axis, i
    cdef bint is_first
    for axis in range(iteration.n_axes):
        position[axis] = 0
    for i in range(n):
        pointers[i] = iteration.pointers[i]
    while True:
        free = copies
        for i in range(n):
            given[i] = pointers[i]
            if chunks.copied_axes[i]:
                gather_elements(iteration, i, chunks.copied_axes[i], pointers[i], free)
                given[i] = free
                free += room_for_copy(iteration, chunks, i)
        is_first = skips_first
        if skips_first:
            for axis in range(chunks.axis + 1, iteration.n_axes):
                if iteration.strides[axis][0] == 0 and position[axis]:
                    is_first = False
        take_chunk(iteration, chunks, given, function, data, is_first)
        axis = chunks.axis + 1
        while axis < iteration.n_axes:
            position[axis] += 1
            for i in range(n):
                pointers[i] += iteration.strides[axis][i]
            if position[axis] < iteration.extents[axis]:
                break
            for i in range(n):
                pointers[i] -= iteration.strides[axis][i] * iteration.extents[axis]
            position[axis] = 0
            axis += 1
        if axis == iteration.n_axes:
            return


cdef inline void take_chunk(Iteration* iteration, Chunks* chunks, char** starts, PyUFuncGenericFunction function,
                            void* data, bint is_first) noexcept nogil:
    """Run the loops of one chunk. Without `chunks`, one loop does all. If it `is_first`, skip the first element."""
    cdef char* pointers[MOST_OPERANDS]
    cdef cnp.npy_intp* steps = &iteration.strides[0][0]
    cdef cnp.npy_intp n = iteration.extents[0], turned = 1, count, k
    cdef cnp.npy_intp strides[MOST_OPERANDS]
    cdef int i, n_operands = iteration.n_operands
    if chunks != NULL:
        steps, n, turned = &chunks.steps[0], chunks.n, chunks.turned
    if not iteration.reduces:
        for i in range(n_operands):
            pointers[i] = starts[i]
        function(pointers, &n, steps, data)
        return
    strides[0], strides[1], strides[2] = steps[0], steps[1], steps[0]
    for k in range(turned):
        pointers[0], pointers[1] = starts[0], starts[1]
        count = n
        if k:
            pointers[0] += k * chunks.outer_steps[0]
            pointers[1] += k * chunks.outer_steps[1]
        if is_first and (k == 0 or chunks.outer_steps[0] != 0):
            if steps[0] != 0:
                continue
            count -= 1
            pointers[1] += steps[1]
        if count:
            pointers[2] = pointers[0]
            function(pointers, &count, strides, data)


# --- copies -----------------------------------------------------------------------------------------------------------

cdef extern from "core/src/iteration.h":
    void copy_elements(char* source, cnp.npy_intp stride, char* target, cnp.npy_intp n,
                       cnp.npy_intp size) noexcept nogil


cdef inline void copy_mask(char* source, cnp.npy_intp stride, char* target, cnp.npy_intp n, int type) noexcept nogil:
    cdef cnp.npy_intp i
    if type == cnp.NPY_DOUBLE:
        for i in range(n):
            (<double*>target)[i] = (<cnp.npy_bool*>source)[i * stride] != 0
    else:
        for i in range(n):
            (<float*>target)[i] = (<cnp.npy_bool*>source)[i * stride] != 0


cdef void gather_elements(Iteration* iteration, int operand, int n_axes, char* source, char* target) noexcept nogil:
    cdef cnp.npy_intp position[MOST_AXES]
    cdef cnp.npy_intp size = iteration.sizes[operand], n = iteration.extents[0]
    cdef int axis
    for axis in range(n_axes):
        position[axis] = 0
    while True:
        if operand == iteration.mask:
            copy_mask(source, iteration.strides[0][operand], target, n, iteration.mask_type)
        else:
            copy_elements(source, iteration.strides[0][operand], target, n, size)
        target += n * size
        axis = 1
        while axis < n_axes:
            position[axis] += 1
            source += iteration.strides[axis][operand]
            if position[axis] < iteration.extents[axis]:
                break
            source -= iteration.strides[axis][operand] * iteration.extents[axis]
            position[axis] = 0
            axis += 1
        if axis >= n_axes:
            return
