# The engine's heap of nodes and its table of addresses.

cdef struct Pending:
    PyObject* where         # a TapeNode, or a leaf's GradientSlot; borrowed from the graph
    PyObject* gradient      # owned; NULL for none, that is zeros. Of a node with several results, a list
    uint64_t sequence
    Py_ssize_t remaining    # of a leaf: the nodes that are still to run
    Py_ssize_t next_ready   # of a leaf that has all its gradients: the next such, or -1
    Py_ssize_t wanted       # of a leaf: where in `captured` its gradient belongs first, or -1

cdef struct Queue:          # what a run has still to do
    Pending* entries
    Py_ssize_t capacity, used
    Py_ssize_t free_entry   # a chain through `remaining`
    Py_ssize_t* heap        # the entries of nodes, the latest node on top
    Py_ssize_t heap_size
    Py_ssize_t* table       # from an object's address to its entry, open addressing; -1: empty
    Py_ssize_t table_size, occupied

cdef int open_queue(Queue* queue) except -1     # make room; the memory has to be zero
cdef void close_queue(Queue* queue) noexcept    # give the memory back, with what a failed `open_queue` left
# the entry of a node or slot; -1 where there is none
cdef Py_ssize_t find_entry(Queue* queue, PyObject* where) noexcept
cdef Py_ssize_t add_entry(Queue* queue, PyObject* where) except -1    # a new entry for what has none
cdef int grow(void** memory, size_t size) except -1    # double a piece of memory
cdef PyObject* take_entry(Queue* queue, Py_ssize_t entry) noexcept    # remove an entry
cdef void push_heap(Queue* queue, Py_ssize_t entry) noexcept    # add an entry to the heap
cdef Py_ssize_t pop_heap(Queue* queue) noexcept    # the entry of the latest node
