# Profiling: which operators run, how long they take and how much memory NumPy allocates meanwhile.

from libc.stdint cimport int64_t

cdef struct Event:              # one run of an operator, or of a node in a backward pass
    PyObject* what              # the operator, or the name of the node
    PyObject* code              # of the user's function that was running, or NULL
    int offset                  # of the instruction in `code`
    unsigned long thread
    int64_t start               # in nanoseconds
    int64_t stop                # 0 while it runs
    int64_t allocated           # bytes
    int64_t peak                # bytes
    Py_ssize_t shapes           # index in `Recorder.shapes` of its arguments' shapes
    Py_ssize_t followers        # the number of events when it ended. Later events up to that number ran inside it

cdef struct OpenEvent:            # held by the caller of `begin_event` until `end_event`
    Py_ssize_t number
    int64_t peak_around

cdef class MemoryUse:                   # NumPy's allocations for arrays in a `with` block
    cdef int entered                    # how many times it was entered
    cdef object handler_around
    cdef int64_t base, peak_around, allocated_before, allocations_before
    cdef int64_t peak_bytes, live_bytes, allocated_bytes, n_allocations      # after the block
    cdef int take_stock(self) except -1

cdef class Recorder(Guard):             # the tracer inside its block. See `State.tracer`
    cdef readonly MemoryUse memory
    cdef object around                  # the tracer around it, or None
    cdef int64_t elapsed_before         # nanoseconds in its blocks. In a block: less the time at which the block began
    cdef Event* recorded
    cdef Py_ssize_t count, capacity
    cdef int64_t* shapes                # per event: the number of arrays, then the number of axes and extents of each
    cdef Py_ssize_t n_shapes, capacity_of_shapes
    cdef dict files                     # by file name: whether it is a user's
    cdef object last_code               # of a user's function

# begin the event of an operator that is about to run
cdef int begin_event(Recorder recorder, OpOverload op, Frame* frame, OpenEvent* opened) except -1
# begin the event of a node that is about to run in a backward pass
cdef int begin_named(Recorder recorder, str name, array, OpenEvent* opened) except -1
cdef void end_event(Recorder recorder, OpenEvent* opened) noexcept
cdef str PACKAGE_FOLDER    # the folder of the package's sources
