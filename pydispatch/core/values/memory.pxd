# Memory that views share. It counts the writes to it.

cdef class Memory:                      # the data that the views of one memory share
    cdef uint64_t writes                # the number of in-place writes
    cdef Memory source                  # for a detached Tensor: the memory that counts the writes
    cdef readonly object array          # once there are views: the array that contains all of them
    cdef object edge                    # the destination of the whole array's gradient
    cdef bint is_leaf                   # whether that is a leaf
    cdef bint followed                  # in the memory that counts: whether a Tensor that shares it has been tracked
    cdef unsigned int generation        # how often `edge` has changed
    cdef bint lists_saves               # whether residuals of it are listed from now on
    cdef Residuals residuals            # the residuals that nodes hold of it, or None before listing
    cdef object gathered                # of a copy where NumPy has a view: the source of its elements

cdef extern from *:
    """
    #define place_of_memory(tensor) ((PyObject**)&(tensor)->memory)
    """
    PyObject** place_of_memory(Tensor tensor) noexcept

# return how often this memory has been written to, 0 for None
cdef long long writes_to(Memory memory) noexcept
cdef long long total_version(Tensor tensor) noexcept
# return the memory that a Tensor shares with its views, made on first use
cdef Memory memory_of(Tensor tensor)
cdef Memory version_counter_of(Tensor tensor)
cdef PyObject* bottom_of(Tensor tensor) except NULL
cdef object memory_owner(value)
cdef object owner_of(array)
cpdef address(array)
cdef struct SavedEntry:
    PyObject* tensor                # borrowed: the node that saved it holds it
    Py_ssize_t compared             # the number of writes that it was compared with

cdef class Residuals:                   # the residuals over one memory
    cdef SavedEntry* entries            # Tensors that were saved and not overwritten since. The index is `tensor.place`
    cdef Py_ssize_t n, capacity
    cdef dict copies                    # address of a Tensor -> its copies in order of time
