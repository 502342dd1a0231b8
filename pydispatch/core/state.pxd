# The ambient state: what guards, modes and transforms have changed, per thread and context.

cdef extern from *:
    """
    typedef struct { PyObject* context; PyObject* state; } Cell;
    typedef struct { PyObject* state; PyObject* context; uint64_t version; uint64_t thread; } RememberedState;
    #if defined(_MSC_VER)
    static __declspec(thread) Cell cell = {NULL, NULL};
    static __declspec(thread) RememberedState remembered = {NULL, NULL, 0, 0};
    #else
    static __thread Cell cell __attribute__((tls_model("initial-exec"))) = {NULL, NULL};
    static __thread RememberedState remembered __attribute__((tls_model("initial-exec"))) = {NULL, NULL, 0, 0};
    #endif
    #define context_now() (PyThreadState_GET()->context)

    static inline PyObject* remembered_state(void) {
        PyThreadState* now = PyThreadState_GET();
        return remembered.version == now->context_ver && remembered.context == now->context
            && remembered.thread == now->id ? remembered.state : NULL;
    }

    static inline void remember_state(PyObject* state) {
        PyThreadState* now = PyThreadState_GET();
        RememberedState found = {state, now->context, now->context_ver, now->id};
        remembered = found;
    }
    """
    ctypedef struct Cell:
        PyObject* context
        PyObject* state
    Cell cell
    PyObject* context_now() noexcept
    PyObject* remembered_state() noexcept   # the one last found in the context, if that is as it was; else NULL
    void remember_state(PyObject* state) noexcept   # the one in the context; NULL where that is about to change

cdef class State:                       # immutable once pushed; the chain of parents is the stack of guards
    cdef readonly State parent
    cdef readonly object guard
    cdef InterpreterStack interpreters      # the stack, from the innermost one that is not disabled; None: empty
    cdef readonly Interpreter innermost     # of the stack; None for an empty one
    cdef int disabled                   # modes of this depth and less are disabled
    cdef uint64_t added                 # keys added to every call
    cdef uint64_t removed[N_BACKENDS + 1]       # functionalities switched off, by bit length of the backends seen
    cdef bint unchanged                 # does nothing here change a call? See compute_plain
    cdef bint plain                     # and is it not recorded either?
    cdef bint traced                    # is there a tracer other than recorders?
    cdef readonly bint grad             # does the tape record?
    cdef readonly bint forward          # do tangents propagate?
    cdef readonly bint inference        # is what is made here never to be differentiated?
    cdef readonly bint checks_nan
    cdef readonly bint anomaly          # do nodes remember where they were made?
    cdef readonly object saved_hooks    # (pack, unpack), a message that forbids them, or None
    cdef readonly object tracer
    cdef readonly object substitute     # what says which Tensor is meant by one among the arguments of a call; or None
    cdef bint derives                   # do inactive wrappers of `grad` and `jvp` stand for the values in them?
    cdef readonly str default_backend
    cdef State call_state               # inside of a handler: the state of the call that it handles
    cdef State lowered                  # made on demand: the same without the innermost interpreter,
    cdef State recording                # this one with the tape on,
    cdef State silent                   # or off,
    cdef State handling                 # and in the handler of a subclass
    cdef State spare                    # inside of a `grad` that has returned; see `enter_grad`
    cdef object variables               # a mapping of the context variables with this state in it,
    cdef object published_variables         # the same with another one in its place,
    cdef PyObject* published            # which is this
    cdef State instead                  # what was to replace this one when it was left, without memory for that,
    cdef object instead_in              # in this context

cdef PyObject* ambient    # the context variable that holds the state
cdef State root    # the state outside of all guards

cdef State copy_of_state(State state)    # to be changed before it is pushed
cdef void compute_plain(State state) noexcept    # does the state leave calls as they are?
cdef State lowered_state(State state)    # the same without the innermost interpreter
cdef State with_tape(State state, bint on)    # the same with the tape on, or off
# the bit of the highest of backends whose bit length this is
cdef uint64_t backend_of_length(Py_ssize_t length) noexcept
cdef PyObject* borrowed_state() noexcept    # the ambient state
cdef PyObject* state_of_context() noexcept    # the one in the context variable, borrowed
cdef State state_now()    # the ambient state
cdef int set_state(State state) except -1    # put a state in force until the next one
cdef bint set_in_context(State state) noexcept    # no: there is no memory for that
# a state that comes into the context once more: nothing is in force instead of it any longer
cdef void take_instead_back(State state) noexcept
cdef void leave_for(State state) noexcept    # set the state around what is left
cdef void drop_spare(State state) noexcept    # let go of the state that is kept for the next `grad`
# where there is no memory for that, the one in the context refers to it
cdef void put_back_in_context(State state) noexcept
cdef int push_cell(Cell* around, State state) except -1    # put a state in force for the time of one call
cdef int go_deeper(Cell* around, State state) except -1    # the same for a call inside of a call, which counts
cdef void pop_cell(Cell* around) noexcept    # leave what push_cell entered
cdef void come_back(Cell* around) noexcept    # after `go_deeper`
