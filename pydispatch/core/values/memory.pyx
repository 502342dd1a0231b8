# Memory that views share. It counts the writes to it.


@cython.final
@cython.freelist(512)         # as many as nodes of the tape: a node that saves its result also saves its memory
cdef class Memory:
    """The data that the views of one memory share: the count of in-place writes, and the edge of the whole array."""

    @property
    def count(self):
        """How often this memory was written to in place."""
        return writes_to(self)

    def __repr__(self):
        return f"Memory({self.count} writes)"


cdef inline long long writes_to(Memory memory) noexcept:
    return memory.writes if memory.source is None else memory.source.writes


cdef inline long long total_version(Tensor tensor) noexcept:
    """Return the writes at this interpreter and, for a wrapper, those at the interpreters below."""
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
    """Return the memory that counts the writes, for nothing but its count."""
    cdef Memory memory = memory_of(tensor)
    return memory if memory.source is None else memory.source


cdef Memory memory_of_detached(Tensor tensor):
    """Return a memory that counts writes together with `tensor` but has its own gradients."""
    cdef Memory detached = Memory.__new__(Memory)
    detached.source = version_counter_of(tensor)
    if tensor.word & TRACKED_FLAG:
        detached.source.followed = True
    detached.lists_saves = True
    if not tensor.memory.lists_saves:
        start_listing(tensor)
    return detached


cdef int share_memory(Tensor view, Tensor source) except -1:
    """Make `view` one of the views of the memory of `source`."""
    cdef Memory memory = memory_of(source)
    if memory.array is None:
        # A separate object. Nodes that saved a result count its writes in the first one, which must not refer back to
        # them.
        source.memory = memory = memory_of_detached(source)
        memory.array = raw_array(source)
        memory.edge = (<JvpTensor>source).tangent if isinstance(source, JvpTensor) else source.edge
        memory.is_leaf = is_leaf_edge(source.edge)
    view.memory = memory
    if Py_TYPE(<PyObject*>source) == BATCHED_TYPE and (<BatchedTensor>source).has_moved:
        follow_layout(<BatchedTensor>view, <BatchedTensor>source)
    source.word |= SHARED_FLAG
    view.word |= SHARED_FLAG | (source.word & (INFERENCE_FLAG | GATHERED_FLAG))
    return 0


cdef int bump_version(Tensor tensor, Signature signature, Frame* frame) except -1:
    cdef Memory memory = memory_of(tensor)
    before_write(tensor, signature, frame)
    if memory.source is not None:
        memory = memory.source
    memory.writes += 1
    return 0


def may_be_written(Tensor tensor not None):
    """Return whether code that gets the array under a Tensor may write to it.

    If so, the residuals over the memory are copied first. Code may not write if a gradient depends on the memory: the
    Tensor is tracked or shares its memory with one that is, or it is a value of a transform.
    """
    if tensor.word & (WRAPPER_FLAG | TRACKED_FLAG) or tensor.memory is not None and version_counter_of(tensor).followed:
        return False
    before_write(tensor, None, NULL)
    return True


cdef PyObject* bottom_of(Tensor tensor) except NULL:
    """Return the array at the bottom of all interpreters, with the value's memory layout. The Tensor keeps it."""
    cdef PyObject* value = <PyObject*>tensor
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == PYTHON_WRAPPER_TYPE and (<PythonWrapper>value).layout is not None:
            return <PyObject*>(<PythonWrapper>value).layout
        if Py_TYPE(value) == BATCHED_TYPE:
            return layout_of(<BatchedTensor>value)
        value = <PyObject*>(<Tensor>value).array
    return value


cdef object memory_owner(value):
    """Return the owner of the memory of an array of any interpreter."""
    cdef PyObject* array = <PyObject*>value
    while is_tensor_type(Py_TYPE(array)):
        if Py_TYPE(array) == PYTHON_WRAPPER_TYPE and (<PythonWrapper>array).layout is not None:
            array = <PyObject*>(<PythonWrapper>array).layout
        else:
            array = <PyObject*>(<Tensor>array).array
    return owner_of(<object>array)


cdef object owner_of(array):
    """Return the object at the end of the chain of `base`. Two arrays with the same owner may share memory.

    Cython's arrays are their own base.
    """
    cdef PyObject* base
    while True:
        if Py_TYPE(<PyObject*>array) == &PyArray_Type:
            base = PyArray_BASE(<PyArrayObject*>array)
            if base == NULL:
                return array
            array = <object>base
        else:
            outer = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
            if outer is None or outer is array:
                return array
            array = outer


@cython.binding(True)        # a method of Tensor
def detach(Tensor tensor):
    """Return the same values as a constant for every interpreter. The result shares memory and its version counter."""
    if state_now().substitute is not None:
        tensor = live_value(tensor)
    return detached(tensor)


cdef object detached(Tensor tensor):
    if is_handled(tensor):
        return upcalls.detach(tensor)
    if is_uniform(<PyObject*>tensor):
        return detached_uniform(tensor)
    if tensor.word & SCALAR_FLAG and (Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE or isinstance(tensor, Wrapper)):
        return detached_scalar(tensor)
    if Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE:
        return Tensor(tensor)
    if not isinstance(tensor, Wrapper):
        return upcalls.detached_subclass(tensor)
    return wrap_at((<Wrapper>tensor).interpreter, detached_value(tensor.array), None)


cdef Tensor detached_scalar(Tensor tensor):
    cdef Tensor scalar = wrap_at(interpreter_of(tensor), detached_value(tensor.array), None)
    scalar.word |= SCALAR_FLAG
    return scalar


cdef object detached_value(value):
    return detached(value) if isinstance(value, Tensor) else value


cpdef address(array):
    """Return the memory address of the first element of an array."""
    if Py_TYPE(<PyObject*>array) == &PyArray_Type:
        return <size_t>PyArray_DATA(<PyArrayObject*><PyObject*>array)
    return array.__array_interface__["data"][0]


def have_one_memory(left, right):
    """Return whether two arrays, at the bottom of their interpreters, belong to one memory."""
    return memory_owner(left) is memory_owner(right)
