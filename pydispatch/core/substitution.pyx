# Captured values: which Tensor a function means by one among its arguments.


def substituting(substitute, function, *args):
    """Call a function where each Tensor among the arguments of an operator means `substitute(tensor)`.

    That is asked for before anything else looks at the call, so the Tensor may be a value of a transform that no longer
    runs, or is not active here. It holds at the interpreters below, too: functions of users that run there use the same
    variables.
    """
    cdef PublishedState around
    publish_state(&around, with_substitute(state_now(), substitute))
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


def deriving(function, *args):
    """Run a user's derivative one interpreter down; wrappers that it captured count as their values."""
    cdef PublishedState around
    cdef State state = state_now(), new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.derives = True
    publish_state(&around, new)
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


cdef State with_substitute(State state, substitute):
    cdef State new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.substitute = substitute
    compute_plain(new)
    return new


@cython.final
cdef class Substitution:
    """What Tensors mean: another one for some, by `id`; for all others what they mean outside.

    `unknown(tensor)` is called for values of transforms that were entered before number `since`, and are not active.
    """
    cdef dict meanings
    cdef object outer
    cdef object unknown
    cdef uint64_t since

    def __init__(self, dict meanings, unknown=None, uint64_t since=0):
        self.meanings = meanings
        self.outer = state_now().substitute
        self.unknown = unknown
        self.since = since

    def __call__(self, Tensor tensor):
        cdef object meant = self.meanings.get(<size_t><PyObject*>tensor)
        if meant is not None:
            return unwrap_dead(meant)
        if self.outer is not None:
            meant = self.outer(tensor)
            if meant is not tensor:
                return meant
        if (self.unknown is not None and tensor.word & WRAPPER_FLAG
                and (<Wrapper>tensor).interpreter.serial < self.since and not is_meant(tensor, self.meanings)
                and not is_active((<Wrapper>tensor).interpreter, state_now())):
            self.unknown(tensor)
        return tensor


@cython.final
cdef class CapturedMetaArrays:
    """What Tensors mean to a function that runs without data: for each one that it captures, another without data.

    `captured` has the Tensors that it captures, in the order of their first use, and `values` what stands for each.
    """
    cdef readonly list captured
    cdef readonly list values
    cdef dict by_id

    def __cinit__(self):
        self.captured, self.values, self.by_id = [], [], {}

    def __call__(self, Tensor tensor):
        """What stands for a captured Tensor; one that was made inside stands for itself."""
        cdef Tensor meta
        known = self.by_id.get(<size_t><PyObject*>tensor)
        if known is not None:
            return known
        if not is_from_outside(tensor):
            return tensor
        meta = wrap_at(None, MetaArray(tuple(tensor.shape), tensor.dtype), None)
        self.by_id[<size_t><PyObject*>tensor] = self.by_id[<size_t><PyObject*>meta] = meta
        self.captured.append(tensor)
        self.values.append(meta)
        return meta

    def meaning(self, Tensor tensor):
        """What stands for a Tensor that the function has used, any other one itself."""
        return self.by_id.get(<size_t><PyObject*>tensor, tensor)


@cython.final
cdef class Trial:
    """The Tensors that a function captures, noted while it runs on its true arguments: each stands for itself.

    It ends, and with it the function, before anything that a trial cannot tell all about: a write, a look at data,
    after which another step may capture something else, a Function or higher-order operator, which run functions of
    their own, or the use of a value that is no constant. `captured` are the Tensors that neither were given nor come
    from an operator.
    """
    def __cinit__(self, *given):
        self.captured, self.known = [], set()
        for value in given:
            self.known.add(<size_t><PyObject*>value)

    def __call__(self, Tensor tensor):
        """The Tensor itself."""
        cdef size_t address = <size_t><PyObject*>tensor
        if address not in self.known:
            if not is_plain_constant(<PyObject*>tensor):
                end_of_trial(self)
            self.known.add(address)
            self.captured.append(tensor)
        return tensor


cdef object call_in_trial(OpOverload op, Table table, Frame* frame, State state, CallKind kind, Trial trial):
    """A call of an operator, whose arguments and results are noted."""
    cdef Signature signature = table.signature
    if signature.mutable:
        end_of_trial(trial)
    means_others(frame, signature, state)
    result = dispatch_as_meant(op, table, frame, state, kind)
    if isinstance(result, Tensor):
        trial.known.add(<size_t><PyObject*>result)
    elif isinstance(result, (tuple, list)):
        for part in result:
            trial.known.add(<size_t><PyObject*>part)
    return result


cdef int end_of_trial(Trial trial) except -1:
    trial.has_ended = True
    raise RuntimeError("this function cannot be tried out: it writes, looks at data, runs other functions, or uses "
                       "values that are no constants\nrun it without data")


def are_plain_constants(values):
    """Are these arrays of NumPy's, or untracked Tensors of such, under no interpreter and of no class of a user's?"""
    for value in values:
        if not is_plain_constant(<PyObject*>value):
            return False
    return True


cdef bint is_plain_constant(PyObject* value) except -1:
    if Py_TYPE(value) == TENSOR_TYPE:
        return Py_TYPE(<PyObject*>(<Tensor>value).array) == &PyArray_Type and not requires_grad_of(<Tensor>value)
    return Py_TYPE(value) == &PyArray_Type


cpdef int end_trial() except -1:
    """End the trial of the function that runs here, if there is one, before other functions run."""
    substitute = state_now().substitute
    if Py_TYPE(<PyObject*>substitute) == TRIAL_TYPE:
        end_of_trial(substitute)


TRIAL_TYPE = <PyTypeObject*>Trial


cpdef bint is_from_outside(Tensor tensor) except -1:
    """May a function that runs without data have captured this Tensor?

    Values of interpreters that are active here were made inside; so were others without data, unless they are tracked.
    """
    if tensor.word & WRAPPER_FLAG:
        return (<Wrapper>tensor).interpreter not in state_now().stack
    return type(raw_array(tensor)) is not MetaArray or tensor.requires_grad


cdef Tensor unwrap_dead(Tensor tensor):
    """The Tensor itself in place of wrappers that only differentiated, and whose transform no longer runs."""
    while tensor.word & WRAPPER_FLAG and is_value_now((<Wrapper>tensor), None) and isinstance(tensor.array, Tensor):
        tensor = tensor.array
    return tensor


cdef inline bint is_value_now(Wrapper wrapper, State state) noexcept:
    """Does it stand for its value here?

    Those of `grad` and `jvp` do that no longer run, or that are not active while a batching rule is derived.
    """
    if isinstance(wrapper, (PythonWrapper, BatchedTensor)):
        return False
    return not wrapper.interpreter.alive or state is not None and state.derives and not is_active(
        wrapper.interpreter, state)


cdef bint is_meant(Tensor tensor, dict meanings) noexcept:
    for meant in meanings.values():
        if meant is tensor:
            return True
    return False


cdef bint is_active(Interpreter interpreter, State state) noexcept:
    """Is this interpreter on the stack here?"""
    cdef InterpreterStack stack = state.interpreters
    while stack is not None:
        if stack.interpreter is interpreter:
            return True
        stack = stack.outer
    return False


def next_number():
    """Larger than that of every transform that was entered before."""
    return next_sequence()


@cython.final
cdef class SubstitutionBelow:
    """What Tensors mean one interpreter below: the same, and so a value of the interpreter is inactive there.

    One that its own substitute holds may be what interpreters pass on, and means what is below the substitute.
    """

    def __init__(self, substitute, Interpreter interpreter):
        self.substitute = substitute
        self.interpreter = interpreter

    def __call__(self, Tensor tensor):
        cdef Tensor meant
        if owned_by(<PyObject*>tensor, self.interpreter):
            return tensor
        meant = self.substitute(tensor)
        if owned_by(<PyObject*>meant, self.interpreter) and holds(meant, tensor):
            return meant.array
        return meant


cdef bint holds(Tensor wrapper, Tensor tensor) noexcept:
    """Is this Tensor the value of a wrapper at some interpreter below?"""
    cdef object value = wrapper
    while isinstance(value, Wrapper):
        value = (<Tensor>value).array
        if value is tensor:
            return True
    return False


cdef bint note_rule(OpOverload op, Table table, State state) except -1:
    """Tell of an operator that functions of users differentiate, or have rules for; never true."""
    if table.has_users_functions:
        upcalls.function_is_used(op)
    return False


cdef bint means_others(Frame* frame, Signature signature, State state) except -1:
    """Does a Tensor among the arguments mean another one here?"""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(frame.values[i])):
            if state.substitute(<object>frame.values[i]) is not <object>frame.values[i]:
                return True
        elif signature.kind[i] & KIND != ARRAY:
            for leaf in array_leaves(<object>frame.values[i]):
                if isinstance(leaf, Tensor) and state.substitute(leaf) is not leaf:
                    return True
    return False
