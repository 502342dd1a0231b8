# The engine's heap of nodes and its table of addresses.

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc


cdef int open_queue(Queue* queue) except -1:
    queue.free_entry = -1
    queue.table_size = 32
    grow(<void**>&queue.table, queue.table_size * sizeof(Py_ssize_t))
    memset(queue.table, 0xFF, queue.table_size * sizeof(Py_ssize_t))
    queue.capacity = 16
    grow(<void**>&queue.entries, queue.capacity * sizeof(Pending))
    grow(<void**>&queue.heap, queue.capacity * sizeof(Py_ssize_t))
    return 0


cdef void close_queue(Queue* queue) noexcept:
    cdef Py_ssize_t i
    if queue.table != NULL and queue.entries != NULL:
        for i in range(queue.table_size):
            if queue.table[i] >= 0:
                Py_XDECREF(queue.entries[queue.table[i]].gradient)
    PyMem_Free(queue.table)
    PyMem_Free(queue.entries)
    PyMem_Free(queue.heap)


cdef inline Py_ssize_t hash_of(PyObject* where, Py_ssize_t size) noexcept:
    return <Py_ssize_t>(((<size_t>where >> 4) * <size_t>0x9E3779B97F4A7C15) >> 20) & (size - 1)


cdef Py_ssize_t find_entry(Queue* queue, PyObject* where) noexcept:
    cdef Py_ssize_t i = hash_of(where, queue.table_size)
    while queue.table[i] >= 0:
        if queue.entries[queue.table[i]].where == where:
            return queue.table[i]
        i = (i + 1) & (queue.table_size - 1)
    return -1


cdef Py_ssize_t add_entry(Queue* queue, PyObject* where) except -1:
    """Add and return an entry for a node or slot that has none."""
    cdef Py_ssize_t entry, i
    if queue.occupied * 2 >= queue.table_size:
        enlarge_table(queue)
    if queue.free_entry >= 0:
        entry = queue.free_entry
        queue.free_entry = queue.entries[entry].remaining
    else:
        if queue.used == queue.capacity:
            grow(<void**>&queue.entries, 2 * queue.capacity * sizeof(Pending))
            grow(<void**>&queue.heap, 2 * queue.capacity * sizeof(Py_ssize_t))
            queue.capacity *= 2
        entry = queue.used
        queue.used += 1
    queue.entries[entry].where = where
    queue.entries[entry].gradient = NULL
    queue.entries[entry].sequence = 0
    queue.entries[entry].remaining = 0
    queue.entries[entry].wanted = -1
    i = hash_of(where, queue.table_size)
    while queue.table[i] >= 0:
        i = (i + 1) & (queue.table_size - 1)
    queue.table[i] = entry
    queue.occupied += 1
    return entry


cdef int grow(void** memory, size_t size) except -1:
    cdef void* larger = PyMem_Realloc(memory[0], size)
    if larger == NULL:
        raise MemoryError
    memory[0] = larger
    return 0


cdef int enlarge_table(Queue* queue) except -1:
    cdef Py_ssize_t* old = queue.table
    cdef Py_ssize_t old_size = queue.table_size, i, k
    cdef Py_ssize_t* new = <Py_ssize_t*>PyMem_Malloc(2 * old_size * sizeof(Py_ssize_t))
    if new == NULL:
        raise MemoryError
    queue.table = new
    queue.table_size = 2 * old_size
    memset(queue.table, 0xFF, queue.table_size * sizeof(Py_ssize_t))
    for i in range(old_size):
        if old[i] >= 0:
            k = hash_of(queue.entries[old[i]].where, queue.table_size)
            while queue.table[k] >= 0:
                k = (k + 1) & (queue.table_size - 1)
            queue.table[k] = old[i]
    PyMem_Free(old)
    return 0


cdef PyObject* take_entry(Queue* queue, Py_ssize_t entry) noexcept:
    """Remove an entry and return its gradient, which the caller then owns."""
    cdef PyObject* where = queue.entries[entry].where
    cdef PyObject* gradient = queue.entries[entry].gradient
    cdef Py_ssize_t hole = hash_of(where, queue.table_size), i, home
    while queue.table[hole] != entry:
        hole = (hole + 1) & (queue.table_size - 1)
    i = hole
    while True:     # close the gap, so that probing never stops early
        i = (i + 1) & (queue.table_size - 1)
        if queue.table[i] < 0:
            break
        home = hash_of(queue.entries[queue.table[i]].where, queue.table_size)
        if ((i - home) & (queue.table_size - 1)) >= ((i - hole) & (queue.table_size - 1)):
            queue.table[hole] = queue.table[i]
            hole = i
    queue.table[hole] = -1
    queue.occupied -= 1
    queue.entries[entry].remaining = queue.free_entry
    queue.free_entry = entry
    return gradient


cdef void push_heap(Queue* queue, Py_ssize_t entry) noexcept:
    cdef Py_ssize_t i = queue.heap_size, parent
    cdef uint64_t sequence = queue.entries[entry].sequence
    queue.heap_size += 1
    while i > 0:
        parent = (i - 1) >> 1
        if queue.entries[queue.heap[parent]].sequence >= sequence:
            break
        queue.heap[i] = queue.heap[parent]
        i = parent
    queue.heap[i] = entry


cdef Py_ssize_t pop_heap(Queue* queue) noexcept:
    cdef Py_ssize_t top = queue.heap[0], last, i = 0, child
    cdef uint64_t sequence
    queue.heap_size -= 1
    last = queue.heap[queue.heap_size]
    sequence = queue.entries[last].sequence
    while True:
        child = 2 * i + 1
        if child >= queue.heap_size:
            break
        if (child + 1 < queue.heap_size
                and queue.entries[queue.heap[child + 1]].sequence > queue.entries[queue.heap[child]].sequence):
            child += 1
        if queue.entries[queue.heap[child]].sequence <= sequence:
            break
        queue.heap[i] = queue.heap[child]
        i = child
    if queue.heap_size:
        queue.heap[i] = last
    return top
