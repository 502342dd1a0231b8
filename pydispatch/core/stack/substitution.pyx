# Captured values: the Tensors that replace captured ones among the arguments of calls.


def substituting(substitute, function, *args):
    """Call a function with `substitute(tensor)` instead of each Tensor among the arguments of an operator.

    The substitution is applied before any other step of a call, so the Tensor may be a value of a transform that no
    longer runs, or is not active here. It also applies at the interpreters below: users' functions that run there use
    the same variables.
    """
    return call_in(with_substitute(state_now(), substitute), function, args)


def drawing(draws, function, *args):
    """Call a function with `draws.arguments(op, args, kwargs)` called for each call of an operator that draws numbers.

    It returns other arguments, or None. With None for `draws`, nothing sees these calls.
    """
    cdef State state = state_now(), new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.generators = draws
    compute_plain(new)
    return call_in(new, function, args)


def deriving(function, *args):
    """Run a user's derivative one interpreter down. Wrappers that it captured count as their values."""
    cdef State state = state_now(), new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.derives = True
    return call_in(new, function, args)


@cython.final
cdef class Substitution:
    """A substitution that replaces some Tensors, by `id`, and applies the outer substitution to all others.

    `unknown(tensor)` is called for inactive values of transforms that were entered before number `since`.
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
    """A substitution for a function that runs without data: it replaces each captured Tensor by one without data.

    `captured` has the captured Tensors in the order of their first use, and `values` their replacements.
    """
    cdef readonly list captured
    cdef readonly list values
    cdef dict by_id
    cdef uint64_t since

    def __cinit__(self):
        self.captured, self.values, self.by_id = [], [], {}
        self.since = next_sequence()

    def __call__(self, Tensor tensor):
        """Return the replacement of a captured Tensor. Return a Tensor that was made inside unchanged."""
        cdef Tensor meta
        known = self.by_id.get(<size_t><PyObject*>tensor)
        if known is not None:
            return known
        if not is_from_outside(tensor) or (
                tensor.word & WRAPPER_FLAG and (<Wrapper>tensor).interpreter.serial > self.since):
            return tensor
        meta = wrap_at(None, MetaArray(tuple(tensor.shape), tensor.dtype), None)
        self.by_id[<size_t><PyObject*>tensor] = self.by_id[<size_t><PyObject*>meta] = meta
        self.captured.append(tensor)
        self.values.append(meta)
        return meta

    def meaning(self, Tensor tensor):
        """Return the replacement of a Tensor that the function has used, and any other Tensor unchanged."""
        return self.by_id.get(<size_t><PyObject*>tensor, tensor)


@cython.final
cdef class SpeculativeRun:
    """A substitution that collects captured Tensors while a function runs on its actual arguments, and replaces none.

    The run, and with it the function, ends at the first operation that it cannot track: a write, an access to data, a
    Function or higher-order operator, or the use of a value that is not a constant. After an access to data another
    step may capture something else. Functions and higher-order operators run their own functions. `captured` are the
    Tensors that were not given and do not come from an operator.
    """
    def __cinit__(self, *given):
        self.captured, self.known = [], set()
        for value in given:
            self.known.add(<size_t><PyObject*>value)

    def __call__(self, Tensor tensor):
        """Return the Tensor itself. Note it as captured if it is not known."""
        cdef size_t address = <size_t><PyObject*>tensor
        if address not in self.known:
            if not is_plain_constant(<PyObject*>tensor):
                end_of_speculative_run(self)
            self.known.add(address)
            self.captured.append(tensor)
        return tensor


cdef object call_in_speculative_run(
    OpOverload op, Table table, Frame* frame, State state, CallKind kind, SpeculativeRun run
):
    """Run a call of an operator in a speculative run, and note its arguments and results."""
    cdef Signature signature = table.signature
    if signature.mutable:
        end_of_speculative_run(run)
    means_others(frame, signature, state)
    result = dispatch_as_meant(op, table, frame, state, kind)
    if isinstance(result, Tensor):
        run.known.add(<size_t><PyObject*>result)
    elif isinstance(result, (tuple, list)):
        for part in result:
            run.known.add(<size_t><PyObject*>part)
    return result


cdef int end_of_speculative_run(SpeculativeRun run) except -1:
    run.has_ended = True
    raise RuntimeError("cannot run this function speculatively: it writes, reads data, runs other functions, or uses "
                       "values that are not constants\nrun it without data")


def are_plain_constants(values):
    """Return whether these are NumPy arrays, or untracked plain Tensors of such."""
    for value in values:
        if not is_plain_constant(<PyObject*>value):
            return False
    return True


cdef bint is_plain_constant(PyObject* value) except -1:
    if Py_TYPE(value) == TENSOR_TYPE:
        return Py_TYPE(<PyObject*>(<Tensor>value).array) == &PyArray_Type and not requires_grad_of(<Tensor>value)
    return Py_TYPE(value) == &PyArray_Type


cpdef int end_speculative_run() except -1:
    """End the speculative run of the function that runs here, if there is one, before other functions run."""
    substitute = state_now().substitute
    if Py_TYPE(<PyObject*>substitute) == SPECULATIVE_RUN_TYPE:
        end_of_speculative_run(substitute)


cdef PyTypeObject* SPECULATIVE_RUN_TYPE = <PyTypeObject*>SpeculativeRun


cpdef bint is_from_outside(Tensor tensor) except -1:
    """Return whether a function that runs without data may have captured this Tensor.

    Values of interpreters that are active here were made inside. So were other values without data, unless they are
    tracked.
    """
    while (is_uniform(<PyObject*>tensor) and isinstance(tensor.array, Tensor)
           and (<Wrapper>tensor).interpreter not in state_now().stack):
        tensor = tensor.array
    if tensor.word & WRAPPER_FLAG:
        return (<Wrapper>tensor).interpreter not in state_now().stack
    return type(raw_array(tensor)) is not MetaArray or tensor.requires_grad


cdef Tensor unwrap_dead(Tensor tensor):
    """Unwrap wrappers that only differentiated, and whose transform no longer runs."""
    while tensor.word & WRAPPER_FLAG and is_value_now((<Wrapper>tensor), None) and isinstance(tensor.array, Tensor):
        tensor = tensor.array
    return tensor


cdef inline bint is_value_now(Wrapper wrapper, State state) noexcept:
    """Return whether a wrapper counts as its value here."""
    return wrapper.interpreter.releases(wrapper, state)


cdef bint is_meant(Tensor tensor, dict meanings) noexcept:
    for meant in meanings.values():
        if meant is tensor:
            return True
    return False


def next_number():
    """Return a number larger than that of every transform that was entered before."""
    return next_sequence()


@cython.final
cdef class SubstitutionBelow:
    """A substitution one interpreter below: as above, so that a value of the interpreter is inactive there.

    If a Tensor is the value below its own replacement, interpreters may have passed it on. Then its replacement there
    is the value below.
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
    """Return whether a Tensor is the value of a wrapper at some interpreter below."""
    cdef object value = wrapper
    while isinstance(value, Wrapper):
        value = (<Tensor>value).array
        if value is tensor:
            return True
    return False


cdef bint means_others(Frame* frame, Signature signature, State state) except -1:
    """Return whether the substitution replaces a Tensor among the arguments."""
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


cdef object call_with_substitute(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Run steps 2 to 7 of a call with Tensors, with captured values replaced."""
    if Py_TYPE(<PyObject*>state.substitute) == SPECULATIVE_RUN_TYPE:
        return call_in_speculative_run(op, table, frame, state, kind, state.substitute)
    if table.has_users_functions:
        upcalls.function_is_used(op)
    if means_others(frame, table.signature, state):
        args, kwargs = arguments_with(frame, table.signature, state.substitute)
        return op(*args, **kwargs)
    return dispatch_as_meant(op, table, frame, state, kind)
