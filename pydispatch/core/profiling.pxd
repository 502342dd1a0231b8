# What operators run, how long they take and how much memory NumPy allocates meanwhile.

from libc.stdint cimport int64_t

cdef struct Event:              # one run of an operator, or of a node in a backward pass
    PyObject* what              # the operator, or the node's name
    PyObject* code              # of the user's function that runs, or NULL
    int offset                  # of the instruction in it
    unsigned long thread
    int64_t start               # in nanoseconds
    int64_t stop                # 0 while it runs
    int64_t allocated           # bytes
    int64_t peak                # bytes
    Py_ssize_t shapes           # where the shapes of its arguments begin in `Recorder.shapes`
    Py_ssize_t followers        # how many events there were when it ended: those after it came inside of it

cdef struct OpenEvent:            # what the caller of `begin_event` holds until `end_event`
    Py_ssize_t number
    int64_t peak_around

cdef class MemoryUse:                   # what NumPy allocates for arrays in a `with` block
    cdef int entered                    # how often
    cdef object handler_around
    cdef int64_t base, peak_around, allocated_before, allocations_before
    cdef int64_t peak_bytes, live_bytes, allocated_bytes, n_allocations      # after the block
    cdef int take_stock(self) except -1

cdef class Recorder(Guard):             # the tracer of its block; see `State.tracer`
    cdef readonly MemoryUse memory
    cdef object around                  # the tracer around it, or None
    cdef int64_t elapsed_before         # nanoseconds in its blocks; in a block, less the time when that began
    cdef Event* recorded
    cdef Py_ssize_t count, capacity
    cdef int64_t* shapes                # per event: the number of arrays; per array: its number of axes and its extents
    cdef Py_ssize_t n_shapes, capacity_of_shapes
    cdef dict files                     # by file name: is it a user's?
    cdef object last_code               # a function of users

# does it leave calls on the paths that they take without it?
cdef bint leaves_paths(tracer) noexcept
# an operator is about to run
cdef int begin_event(Recorder recorder, OpOverload op, Frame* frame, OpenEvent* opened) except -1
# a node is about to run in a backward pass
cdef int begin_named(Recorder recorder, str name, array, OpenEvent* opened) except -1
cdef void end_event(Recorder recorder, OpenEvent* opened) noexcept
