# The ambient state: changes made by guards, modes and transforms, per thread and context.

cdef extern from "core/src/state.h":
    PyObject** place_of_lowered(State state) noexcept
    PyObject** place_of_recording(State state) noexcept
    PyObject** place_of_silent(State state) noexcept
    PyObject** place_of_handling(State state) noexcept
    ctypedef struct Cell:
        PyObject* context
        PyObject* state
    Cell cell

cdef class InterpreterStack:            # the innermost interpreter and the stack around it. Immutable
    cdef Interpreter interpreter
    cdef InterpreterStack outer         # the next one below
    cdef int depth                      # the number of interpreters from this one down

cdef class State:                       # immutable once pushed. The chain of parents is the stack of guards
    cdef readonly State parent
    cdef readonly object guard
    cdef InterpreterStack interpreters      # the stack, from the innermost one that is not disabled, or None
    cdef readonly Interpreter innermost     # of the stack, or None if that is empty
    cdef int disabled                   # modes up to this depth are disabled
    cdef uint64_t added                 # keys added to every call
    cdef uint64_t removed[N_BACKENDS + 1]       # excluded functionalities, by bit length of the backends seen
    cdef bint unchanged                 # whether nothing here changes a call. See compute_plain
    cdef bint plain                     # whether, additionally, calls are not recorded
    cdef bint traced                    # whether there is a tracer other than recorders
    cdef readonly bint grad             # whether the tape records
    cdef readonly bint forward          # whether tangents propagate
    cdef readonly bint inference        # inference mode
    cdef readonly int checks            # checks of nodes that have run. See autograd/anomaly.py
    cdef readonly bint anomaly          # whether nodes store where they were made
    cdef readonly object saved_hooks    # (pack, unpack), a message that forbids them, or None
    cdef readonly object tracer
    cdef readonly object substitute     # the active substitution of Tensors among the arguments of calls, or None
    cdef readonly object generators     # notes or replaces the generators that operators draw from, or None
    cdef bint derives                   # whether inactive wrappers of `grad` and `jvp` count as their values
    cdef readonly str default_backend
    cdef State call_state               # inside a handler: the state of the call that it handles
    cdef State lowered                  # states cached for reuse: without the innermost interpreter
    cdef State recording                # with the tape recording
    cdef State silent                   # with the tape not recording
    cdef State handling                 # in the handler of a subclass
    cdef State spare                    # inside a `grad` that has returned. See `enter_grad`
    cdef object variables               # a mapping of the context variables with this state in it
    cdef object published_variables         # the same mapping with another state, `published`, instead
    cdef PyObject* published            # the state in `published_variables`
    cdef State instead                  # redirect after an out-of-memory leave: the state in force instead
    cdef object instead_in              # the context in which the redirect applies

# the context variable that contains the state
cdef PyObject* ambient
cdef State root    # the state outside all guards

# return a copy, to be changed before it is pushed
cdef State copy_of_state(State state)
cdef bint leaves_paths(tracer) noexcept
# compute whether a state leaves calls unchanged, and whether it is plain
cdef void compute_plain(State state) noexcept
cdef State lowered_state(State state)
cdef State with_tape(State state, bint on)
cdef uint64_t backend_of_length(Py_ssize_t length) noexcept
cdef PyObject* borrowed_state() noexcept
cdef PyObject* state_of_context() noexcept    # return the state in the context variable, borrowed
cdef State state_now()    # return the ambient state
cdef int set_state(State state) except -1    # set the ambient state, until another one is set
cdef int set_in_context(State state) noexcept
cdef void take_instead_back(State state) noexcept
cdef void leave_for(State state) noexcept
cdef void drop_spare(State state) noexcept
cdef void put_back_in_context(State state) noexcept
cdef int push_cell(Cell* around, State state) except -1    # set the state for the time of one call
cdef int push_state(Cell* around, State state) except -1
cdef void pop_cell(Cell* around) noexcept    # restore the state before `push_cell`
cdef void pop_state(Cell* around) noexcept

cdef State state_under(Interpreter interpreter, State around)
cdef bint is_active(Interpreter interpreter, State state) noexcept
cdef Interpreter innermost_transform(State state)
cdef State without_transforms(State state)
cdef bint knows_arrays(State state) noexcept
cdef bint watches_arrays(State state) noexcept
cdef void disable_modes(State state) noexcept
# return the state with `substitute` as the active substitution
cdef State with_substitute(State state, substitute)
