# Memory that views share. It counts the writes to it.


@cython.final
@cython.freelist(512)         # as many as nodes of the tape: a node that saves its result also saves its memory
cdef class Memory:
    """The data that the views of one memory share: the count of in-place writes, and the edge of the whole array."""

    @property
    def count(self):
        """The number of in-place writes to this memory."""
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
        return <Memory>publish_once(place_of_memory(tensor), Memory.__new__(Memory))
    return tensor.memory


cdef Memory version_counter_of(Tensor tensor):
    """Return the memory that counts the writes, only for its count."""
    cdef Memory memory = memory_of(tensor)
    return memory if memory.source is None else memory.source


cdef PyObject* bottom_of(Tensor tensor) except NULL:
    """Return the array at the bottom of all interpreters, with the value's memory layout. The Tensor keeps it."""
    cdef PyObject* value = <PyObject*>tensor
    cdef PyObject* layout
    while is_tensor_type(Py_TYPE(value)):
        if Py_TYPE(value) == BATCHED_TYPE or Py_TYPE(value) == PYTHON_WRAPPER_TYPE:
            layout = (<Wrapper>value).interpreter.laid_out(<Wrapper>value)
            if layout != NULL:
                return layout
        value = <PyObject*>(<Tensor>value).array
    return value


cdef object memory_owner(value):
    """Return the owner of the memory of an array of any interpreter."""
    cdef PyObject* array = <PyObject*>value
    cdef PyObject* layout
    while is_tensor_type(Py_TYPE(array)):
        layout = NULL
        if Py_TYPE(array) == PYTHON_WRAPPER_TYPE:
            layout = (<Wrapper>array).interpreter.laid_out(<Wrapper>array)
        array = <PyObject*>(<Tensor>array).array if layout == NULL else layout
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


cpdef address(array):
    """Return the memory address of the first element of an array."""
    if Py_TYPE(<PyObject*>array) == &PyArray_Type:
        return <size_t>PyArray_DATA(<PyArrayObject*><PyObject*>array)
    return array.__array_interface__["data"][0]


def have_one_memory(left, right):
    """Return whether two arrays, at the bottom of their interpreters, belong to one memory."""
    return memory_owner(left) is memory_owner(right)
