# Residuals, which are copied before they are overwritten, so that gradients survive writes.
#
#   save      A node saves a Tensor: `tensor.saves` counts it, also for the Tensors below a wrapper. Nothing else
#             happens as long as the memory of the Tensor has never been written to or shared.
#   listing   At the first write, view or alias the Tensor is listed in its memory if it was saved. So is the result
#             that its node saved. From then on, residuals of this memory are listed as they are saved.
#   write     Listed Tensors that overlap with the elements to be written are copied. The copy takes over the saves of
#             the Tensor, which is no longer listed.
#   unpack    A node gets the first copy that was made after the node, else the Tensor itself.
#   release   A node that has run or dies gives up its saves. A copy without saves is released.
#
# Times are the sequence numbers of nodes. Each copy is a copy of a residual, not of the memory, so a program keeps no
# more than one that writes nothing. A small residual that was compared with many writes is copied too, since another
# comparison costs as much. A loop that fills n elements therefore takes a number of steps in proportion to n.


@cython.final
cdef class Residuals:
    """The Tensors over one memory that nodes have saved, and the copies of those that were overwritten."""

    def __dealloc__(self):
        PyMem_Free(self.entries)


@cython.final
@cython.no_gc_clear         # its deallocation undoes a count
cdef class SavedTensor:
    """A Tensor that was saved by something other than an operator of the library."""

    def __dealloc__(self):
        if self.tensor is not None:     # None in an object that a user made of the class
            unsave(self.tensor, self.time)


cdef enum:
    COMPARISONS = 32                # how often a residual is compared with writes before it is copied
    BYTES_PER_COMPARISON = 64       # one more comparison for each such number of its bytes


cdef inline int note_saved(Tensor tensor) except -1:
    """Count one more node that has saved a Tensor."""
    if count_up(&tensor.saves) == 1 and tensor.memory is not None and tensor.memory.lists_saves:
        list_saved(tensor)
    if Py_TYPE(<PyObject*>tensor.array) != &PyArray_Type and is_tensor_type(Py_TYPE(<PyObject*>tensor.array)):
        note_saved_below(<Tensor>tensor.array)
    return 0


cdef int note_saved_below(Tensor tensor) except -1:
    return note_saved(tensor)


cdef int note_all_saved(value) except -1:
    """Apply `note_saved` to the Tensors in a sequence."""
    if PyTuple_CheckExact(<PyObject*>value):
        for item in <tuple>value:
            if isinstance(item, Tensor):
                note_saved(<Tensor>item)
            else:
                note_all_saved(item)
    return 0


cdef int list_saved(Tensor tensor) except -1:
    """List a Tensor as saved in its memory."""
    cdef Memory counter = version_counter_of(tensor)
    cdef Residuals residuals = counter.residuals
    if residuals is None:
        residuals = <Residuals>publish_once(place_of_residuals(counter), Residuals.__new__(Residuals))
    lock_listing()
    try:
        if residuals.n == residuals.capacity:
            grow(<void**>&residuals.entries, (2 * residuals.capacity + 8) * sizeof(SavedEntry))
            residuals.capacity = 2 * residuals.capacity + 8
        tensor.place = residuals.n
        residuals.entries[residuals.n].tensor = <PyObject*>tensor
        residuals.entries[residuals.n].compared = 0
        residuals.n += 1
    finally:
        unlock_listing()
    return 0


cdef void unlist_saved(Residuals residuals, Tensor tensor) noexcept:
    cdef Py_ssize_t place
    if residuals is None:
        return
    lock_listing()
    place = tensor.place
    if place < residuals.n and residuals.entries[place].tensor == <PyObject*>tensor:
        residuals.n -= 1
        residuals.entries[place] = residuals.entries[residuals.n]
        (<Tensor>residuals.entries[place].tensor).place = place
    unlock_listing()


cdef int start_listing(Tensor tensor) except -1:
    """List a Tensor whose memory is to be written to or shared for the first time, and the residual of its node."""
    cdef TapeNode node
    cdef Tensor alias
    cdef Py_ssize_t index
    tensor.memory.lists_saves = True
    if tensor.saves:
        list_saved(tensor)
    if tensor.edge is None or Py_TYPE(<PyObject*>tensor) == JVP_TYPE:
        return 0
    node = node_of_edge(tensor.edge)
    if (node is None or node.memory is not tensor.memory or node.outputs is not None
            or node.flags & (RELEASED | PACKED)):
        return 0
    index = residual_for_result(node)
    if index < 0:
        return 0
    saved = residual_at(node, index)
    if owned_by(<PyObject*>saved, node.interpreter):
        return 0
    alias = alias_at(tensor, node.interpreter)
    alias.saves = 1
    list_saved(alias)
    put_residual(node, index, alias)
    return 0


cdef Residuals residuals_of(Tensor tensor):
    """Return the residuals over the memory of a Tensor, or None."""
    cdef Memory memory = tensor.memory
    if memory is None:
        return None
    return memory.residuals if memory.source is None else memory.source.residuals


cdef KeptCopy copy_for(Tensor tensor, uint64_t time):
    """Return the copy of a Tensor for a node of this time, or None if it has not been overwritten since."""
    cdef Residuals residuals = residuals_of(tensor)
    if residuals is None or residuals.copies is None:
        return None
    if IS_FREE_THREADED:
        with cython.critical_section(residuals):
            return copy_among(residuals, tensor, time)
    return copy_among(residuals, tensor, time)


cdef inline KeptCopy copy_among(Residuals residuals, Tensor tensor, uint64_t time):
    cdef list copies
    cdef Py_ssize_t low = 0, high, middle
    copies = residuals.copies.get(<size_t><PyObject*>tensor)
    if copies is None or (<KeptCopy>copies[-1]).time <= time:
        return None
    high = len(copies) - 1
    while low < high:
        middle = (low + high) // 2
        if (<KeptCopy>copies[middle]).time > time:
            high = middle
        else:
            low = middle + 1
    return copies[low]


@cython.final
cdef class KeptCopy:
    """A copy of a Tensor's value before a write, for the nodes that saved it earlier."""


cdef inline void unsave(Tensor tensor, uint64_t time) noexcept:
    """Count down the saves of a Tensor that a node of this time no longer needs."""
    if tensor.memory is not None or Py_TYPE(<PyObject*>tensor.array) != &PyArray_Type:
        unsave_in_general(tensor, time)
    elif tensor.saves:
        count_down(&tensor.saves)


cdef void unsave_in_general(Tensor tensor, uint64_t time) noexcept:
    """Count down saves as `unsave` does. The node may die while an exception propagates, which stays set."""
    cdef PyObject* kind
    cdef PyObject* error
    cdef PyObject* trace
    PyErr_Fetch(&kind, &error, &trace)
    unsave_with_copies(tensor, time)
    PyErr_Restore(kind, error, trace)


cdef void unsave_with_copies(Tensor tensor, uint64_t time) noexcept:
    cdef KeptCopy kept
    if tensor.memory is not None:
        kept = copy_for(tensor, time)
        if kept is not None:
            if count_down(&kept.saves) == 0:
                drop_copy(residuals_of(tensor), tensor, kept)
            if not kept.is_whole:
                unsave_below(tensor, time)
            return
    if tensor.saves and count_down(&tensor.saves) == 0 and tensor.memory is not None:
        unlist_saved(residuals_of(tensor), tensor)
    unsave_below(tensor, time)


cdef inline void unsave_below(Tensor tensor, uint64_t time) noexcept:
    if is_tensor_type(Py_TYPE(<PyObject*>tensor.array)):
        unsave(<Tensor>tensor.array, time)


cdef int drop_copy(Residuals residuals, Tensor tensor, KeptCopy kept) except -1:
    if IS_FREE_THREADED:
        with cython.critical_section(residuals):
            return drop_copy_held(residuals, tensor, kept)
    return drop_copy_held(residuals, tensor, kept)


cdef inline int drop_copy_held(Residuals residuals, Tensor tensor, KeptCopy kept) except -1:
    cdef list copies = residuals.copies[<size_t><PyObject*>tensor]
    if len(copies) == 1:
        del residuals.copies[<size_t><PyObject*>tensor]
    else:
        copies.remove(kept)
    return 0


cdef int replace_array(Tensor tensor, value) except -1:
    """Replace the value below of a Tensor, and transfer the count of its saves to the new value."""
    cdef unsigned int i
    for i in range(tensor.saves):
        unsave_below(tensor, next_sequence())
    tensor.array = value
    if isinstance(value, Tensor):
        for i in range(tensor.saves):
            note_saved(<Tensor>value)
    return 0


cdef inline object value_when_saved(Tensor tensor, uint64_t time):
    """Return a Tensor as it was when a node of this time saved it: itself, or a copy."""
    cdef uint64_t copied = 0
    if tensor.memory is None and Py_TYPE(<PyObject*>tensor.array) == &PyArray_Type:
        return tensor
    return earlier_value(tensor, time, &copied)


cdef object earlier_value(Tensor tensor, uint64_t time, uint64_t* copied):
    """Return `value_when_saved` and the time of its copy. The first write counts, at whatever interpreter."""
    cdef KeptCopy kept = None
    cdef uint64_t copied_below = 0
    if tensor.memory is not None:
        kept = copy_for(tensor, time)
    if is_tensor_type(Py_TYPE(<PyObject*>tensor.array)) and (kept is None or not kept.is_whole):
        value = earlier_value(<Tensor>tensor.array, time, &copied_below)
        if copied_below and (kept is None or copied_below < kept.time):
            copied[0] = copied_below
            return alike(tensor, value)
    if kept is None:
        return tensor
    copied[0] = kept.time
    if kept.value is None:
        raise upcalls.overwritten_error(tensor)
    return kept.value


cdef object alike(Tensor tensor, value):
    """Return a Tensor of the same interpreter around another value whose gradient has the same destination."""
    if tensor.word & WRAPPER_FLAG:
        return (<Wrapper>tensor).interpreter.alike(<Wrapper>tensor, value)
    return with_edge_of(tensor, wrap_at(None, value, None))


cdef Tensor with_edge_of(Tensor tensor, Tensor other):
    """Return `other` with the destination of the gradient of `tensor`."""
    other.edge = tensor.edge
    other.word |= tensor.word & (TRACKED_FLAG | SCALAR_FLAG)
    return other


cdef int before_write(Tensor target, Signature signature, Frame* frame) except -1:
    """Copy the residuals over the memory of a Tensor before a call, or with None something else, overwrites them."""
    cdef Memory memory = memory_of(target)
    if not memory.lists_saves:
        start_listing(target)
    if memory.source is not None:
        memory = memory.source
    if memory.residuals is not None and memory.residuals.n:
        keep_overwritten(memory.residuals, target, signature, frame)
    return 0


cdef int keep_overwritten(Residuals residuals, Tensor target, Signature signature, Frame* frame) except -1:
    region = region_written(target, signature, frame)
    for tensor in saved_over(residuals, <PyObject*>region, True):
        keep_copy(residuals, tensor)
    return 0


cdef list saved_over(Residuals residuals, PyObject* region, bint counts):
    """Return the listed Tensors that share elements with an array. With `counts`, include those compared too often."""
    cdef list found = [], close = []
    cdef SavedEntry* entry
    cdef PyObject* saved
    cdef Py_ssize_t i
    lock_listing()
    try:
        for i in range(residuals.n):
            entry = &residuals.entries[i]
            saved = bottom_of(<Tensor>entry.tensor)
            entry.compared += counts
            if entry.compared > comparisons_of(saved):
                found.append(<object>entry.tensor)
            elif may_share_elements(saved, region):
                close.append(<object>entry.tensor)
    finally:
        unlock_listing()
    for tensor in close:
        if share_elements(bottom_of(<Tensor>tensor), region):
            found.append(tensor)
    return found


cdef inline Py_ssize_t comparisons_of(PyObject* array) noexcept:
    if Py_TYPE(array) != &PyArray_Type:
        return COMPARISONS
    return COMPARISONS + PyArray_NBYTES(<PyArrayObject*>array) // BYTES_PER_COMPARISON


cdef object region_written(Tensor target, Signature signature, Frame* frame):
    """Return the array that a call will write to. For an assignment, these are the elements that the key selects."""
    cdef object array = <object>bottom_of(target)
    if (signature is None or Py_TYPE(<PyObject*>array) != &PyArray_Type or frame.values[1] == NULL
            or str(schema_of(signature).name) != "np::setitem_"):
        return array
    key = <object>frame.values[1]
    if not isinstance(key, tuple):
        key = (key,)
    for item in <tuple>key:
        if item is Ellipsis:
            break
    else:
        key = (<tuple>key) + (Ellipsis,)        # makes it a view, not a scalar
    try:
        return array[key]
    except (IndexError, TypeError, AutogradError):        # the kernel reports the error
        return array


cdef bint may_share_elements(PyObject* one, PyObject* other) noexcept:
    """Return whether the bounds of two arrays overlap, or True if one is not a NumPy array."""
    cdef char* first
    cdef char* begin_other
    cdef char* limit
    cdef char* limit_other
    if Py_TYPE(one) != &PyArray_Type or Py_TYPE(other) != &PyArray_Type:
        return True
    bounds_of(<PyArrayObject*>one, &first, &limit)
    bounds_of(<PyArrayObject*>other, &begin_other, &limit_other)
    return begin_other < limit and first < limit_other


cdef bint share_elements(PyObject* one, PyObject* other) except -1:
    """Return whether two arrays with overlapping bounds share elements."""
    if Py_TYPE(one) != &PyArray_Type or Py_TYPE(other) != &PyArray_Type or (
            PyArray_ISCARRAY_RO(<PyArrayObject*>one) and PyArray_ISCARRAY_RO(<PyArrayObject*>other)):
        return True
    return upcalls.overlap(<object>one, <object>other)


cdef void bounds_of(PyArrayObject* array, char** first, char** limit) noexcept:
    """Find the first byte of an array in memory, and the byte after its last."""
    cdef Py_ssize_t reach
    cdef int i
    first[0] = limit[0] = <char*>PyArray_DATA(array)
    if PyArray_SIZE(array) == 0:
        return
    for i in range(PyArray_NDIM(array)):
        reach = (PyArray_DIMS(array)[i] - 1) * PyArray_STRIDES(array)[i]
        if reach < 0:
            first[0] += reach
        else:
            limit[0] += reach
    limit[0] += PyArray_ITEMSIZE(array)


cdef int keep_copy(Residuals residuals, Tensor tensor) except -1:
    """Copy a saved Tensor for the nodes that saved it."""
    cdef KeptCopy kept
    cdef Tensor below = tensor
    cdef unsigned int saves
    if not tensor.saves:
        return 0
    value = copy_before_write(tensor, interpreter_of(tensor))
    kept = KeptCopy.__new__(KeptCopy)
    kept.value = value
    kept.time = next_sequence()
    kept.saves = saves = tensor.saves
    kept.is_whole = True
    while is_tensor_type(Py_TYPE(<PyObject*>below.array)):
        below = <Tensor>below.array
        residuals_below = residuals_of(below)
        if residuals_below is not None and (<Residuals>residuals_below).copies is not None and (
                <size_t><PyObject*>below in (<Residuals>residuals_below).copies):
            kept.is_whole = False
    take_over_saves(residuals, tensor, kept)
    if kept.is_whole:           # the values below are not needed for this Tensor's saves either
        below = tensor
        while is_tensor_type(Py_TYPE(<PyObject*>below.array)):
            below = <Tensor>below.array
            below.saves -= min(saves, below.saves)
            if below.saves == 0:
                unlist_saved(residuals_of(below), below)
    return 0


cdef int take_over_saves(Residuals residuals, Tensor tensor, KeptCopy kept) except -1:
    """Let a copy take over the saves of a Tensor."""
    if IS_FREE_THREADED:
        with cython.critical_section(residuals):
            return take_over_saves_held(residuals, tensor, kept)
    return take_over_saves_held(residuals, tensor, kept)


cdef inline int take_over_saves_held(Residuals residuals, Tensor tensor, KeptCopy kept) except -1:
    if residuals.copies is None:
        residuals.copies = {}
    residuals.copies.setdefault(<size_t><PyObject*>tensor, []).append(kept)
    tensor.saves = 0
    unlist_saved(residuals, tensor)
    return 0


cdef int note_late_write(Tensor target) except -1:
    """Mark residuals as lost that were overwritten without a copy, because the write was reported only afterwards."""
    cdef Residuals residuals = residuals_of(target)
    cdef KeptCopy lost
    if residuals is None:
        return 0
    for tensor in saved_over(residuals, bottom_of(target), False):
        lost = KeptCopy.__new__(KeptCopy)       # without a value
        lost.time, lost.saves = next_sequence(), (<Tensor>tensor).saves
        take_over_saves(residuals, tensor, lost)
    return 0


cdef SavedTensor saved_tensor(Tensor tensor):
    """Save a Tensor's present value, whatever is written to it later."""
    cdef SavedTensor saved = SavedTensor.__new__(SavedTensor)
    note_saved(tensor)
    saved.tensor = tensor
    saved.time = next_sequence()
    return saved
