# Memory that views share: writes are counted there.


@cython.final
@cython.freelist(512)         # as many as nodes of the tape: a node that saves its result saves the memory of that
cdef class Memory:
    """What the views of one memory share: the count of in-place writes, and where the gradient of the whole goes."""

    @property
    def count(self):
        """How often this memory was written to in place."""
        return writes_to(self)

    def __repr__(self):
        return f"Memory({self.count} writes)"


cdef inline long long writes_to(Memory memory) noexcept:
    return memory.writes if memory.source is None else memory.source.writes


cdef inline long long total_version(Tensor tensor) noexcept:
    """The writes at this interpreter and, for a wrapper, those at the interpreters below."""
    if tensor.memory is None and Py_TYPE(<PyObject*>tensor.array) == &PyArray_Type:
        return 0
    return total_of_versions(tensor)


cdef long long total_of_versions(Tensor tensor) noexcept:
    cdef long long total = 0 if tensor.memory is None else writes_to(tensor.memory)
    if tensor.word & WRAPPER_FLAG and is_tensor_type(Py_TYPE(<PyObject*>tensor.array)):
        total += total_of_versions(<Tensor>tensor.array)
    return total


cdef Memory memory_of(Tensor tensor):
    if tensor.memory is None:
        tensor.memory = Memory.__new__(Memory)
    return tensor.memory


cdef Memory version_counter_of(Tensor tensor):
    """Where the writes are counted, and nothing else is known."""
    cdef Memory memory = memory_of(tensor)
    return memory if memory.source is None else memory.source


cdef Memory memory_of_detached(Tensor tensor):
    """Writes are counted together with those to `tensor`, but gradients go their own way."""
    cdef Memory detached = Memory.__new__(Memory)
    detached.source = version_counter_of(tensor)
    return detached


cdef int share_memory(Tensor view, Tensor source) except -1:
    """Make `view` one of the views of the memory of `source`."""
    cdef Memory memory = memory_of(source)
    if memory.array is None:
        # another object: nodes that saved a result count its writes in the first, and must not be led back to by it
        source.memory = memory = memory_of_detached(source)
        memory.array = raw_array(source)
        memory.edge = (<JvpTensor>source).tangent if isinstance(source, JvpTensor) else source.edge
        memory.is_leaf = is_leaf_edge(source.edge)
    view.memory = memory
    version_counter_of(view).moves = None
    source.word |= SHARED_FLAG
    view.word |= SHARED_FLAG | (source.word & INFERENCE_FLAG)
    return 0


cdef int bump_version(Tensor tensor) except -1:
    cdef Memory memory = memory_of(tensor)
    if memory.source is not None:
        memory = memory.source
    memory.writes += 1
    return 0


def take_moves(Tensor tensor not None):
    """What the last write has noted, if nothing was written since and no view was made; it is forgotten."""
    cdef Memory counter = version_counter_of(tensor)
    noted, counter.moves = counter.moves, None
    return noted[1] if noted is not None and noted[0] == counter.writes else None


def note_moves(Tensor tensor not None, noted):
    """Keep something until the memory is written to, or another view of it is made."""
    cdef Memory counter = version_counter_of(tensor)
    counter.moves = (counter.writes, noted)


def has_other_views(Tensor tensor not None):
    """Does a third Tensor, besides this one and one other, have a view of its memory?"""
    return tensor.memory is not None and reference_count(<PyObject*>tensor.memory) > 2


cdef PyObject* bottom_of(Tensor tensor) except NULL:
    """The array at the bottom of all interpreters, which the Tensor keeps: where the value lies in memory, or would."""
    cdef PyObject* value = <PyObject*>tensor
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == PYTHON_WRAPPER_TYPE and (<PythonWrapper>value).layout is not None:
            return <PyObject*>(<PythonWrapper>value).layout
        if Py_TYPE(value) == BATCHED_TYPE:
            return layout_of(<BatchedTensor>value)
        value = <PyObject*>(<Tensor>value).array
    return value


cdef object memory_owner(value):
    """The object that the memory of an array of any interpreter belongs to."""
    cdef PyObject* array = <PyObject*>value
    while is_tensor_type(Py_TYPE(array)):
        if Py_TYPE(array) == PYTHON_WRAPPER_TYPE and (<PythonWrapper>array).layout is not None:
            array = <PyObject*>(<PythonWrapper>array).layout
        else:
            array = <PyObject*>(<Tensor>array).array
    return owner_of(<object>array)


cdef object owner_of(array):
    """The object at the end of the chain of `base`: two arrays with the same owner may share memory."""
    cdef PyObject* base
    while True:
        if Py_TYPE(<PyObject*>array) == &PyArray_Type:
            base = PyArray_BASE(<PyArrayObject*>array)
            if base == NULL:
                return array
            array = <object>base
        else:
            outer = getattr(array, "base", None)
            if outer is None:
                return array
            array = outer


@cython.binding(True)        # a method of Tensor
def detach(Tensor tensor):
    """The same values as a constant for every interpreter: shares memory, and the count of writes to it."""
    if state_now().substitute is not None:
        tensor = live_value(tensor)
    return detached(tensor)


cdef object detached(Tensor tensor):
    if is_handled(tensor):
        return upcalls.detach(tensor)
    if Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE:
        return Tensor(tensor)
    if not isinstance(tensor, Wrapper):
        return upcalls.detached_subclass(tensor)
    return wrap_at((<Wrapper>tensor).interpreter, detached_value(tensor.array), None)


cdef object detached_value(value):
    return detached(value) if isinstance(value, Tensor) else value


cpdef address(array):
    """Where the first element of an array lies in memory."""
    if Py_TYPE(<PyObject*>array) == &PyArray_Type:
        return <size_t>PyArray_DATA(<PyArrayObject*><PyObject*>array)
    return array.__array_interface__["data"][0]


def have_one_memory(left, right):
    """Do two arrays, at the bottom of their interpreters, belong to one memory?"""
    return memory_owner(left) is memory_owner(right)
