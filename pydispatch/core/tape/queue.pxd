# The engine's heap of nodes and its table of addresses.

cdef struct Pending:
    PyObject* where         # a TapeNode, or a leaf's GradientSlot, borrowed from the graph
    PyObject* gradient      # owned. NULL for none, which means zeros. For a node with several results, a list
    uint64_t sequence
    Py_ssize_t remaining    # of a leaf: the number of nodes that still have to run
    Py_ssize_t next_ready   # of a leaf that has all its gradients: the next such leaf, or -1
    Py_ssize_t wanted       # of a leaf: the first index in `captured` for its gradient, or -1

cdef struct Queue:          # the work that a run still has to do
    Pending* entries
    Py_ssize_t capacity, used
    Py_ssize_t free_entry   # head of a free list that is linked through `remaining`
    Py_ssize_t* heap        # the entries of nodes, with the latest node on top
    Py_ssize_t heap_size
    Py_ssize_t* table       # from an object's address to its entry, by open addressing. -1 marks an empty place
    Py_ssize_t table_size, occupied

cdef int open_queue(Queue* queue) except -1     # allocate a queue in zeroed memory
# free the memory of a queue, also after a failed `open_queue`
cdef void close_queue(Queue* queue) noexcept
# return the entry of a node or slot, or -1
cdef Py_ssize_t find_entry(Queue* queue, PyObject* where) noexcept
cdef Py_ssize_t add_entry(Queue* queue, PyObject* where) except -1
cdef int grow(void** memory, size_t size) except -1    # reallocate memory to `size` bytes
cdef PyObject* take_entry(Queue* queue, Py_ssize_t entry) noexcept
cdef void push_heap(Queue* queue, Py_ssize_t entry) noexcept    # add an entry to the heap
cdef Py_ssize_t pop_heap(Queue* queue) noexcept    # remove and return the entry of the latest node
