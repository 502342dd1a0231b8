# --- levels: transforms and, under all of them, the tape -------------------------------------------------------------
#
# The innermost transform processes a call. It calls the operator again on the values of the level below, with itself
# absent, and wraps the results. Under all transforms the tape does the same with raw arrays and kernels. `level` is the
# transform, or None for the tape.

cdef class Interpreter:
    """One running transform. Its wrappers are recognised by this object, and die with it."""

    def __init__(self, str name, site=None):
        self.name = name
        self.site = site

    def __repr__(self):
        return f"<{described_level(self)}>"


cdef class Grad(Interpreter):
    """The level of `grad` and `vjp`: records on a tape of its own."""


cdef class Jvp(Interpreter):
    """The level of `jvp`: values with tangents."""


cdef object described_level(Interpreter level):
    return python_side["described_level"](level)


cdef int enter_level(Interpreter level) except -1:
    """Push a transform on the stack."""
    cdef State state = state_now()
    if isinstance(level, Grad) and isinstance(state.saved_hooks, (tuple, str)):
        raise AutogradError(f"saved_tensors_hooks does not work with {level.name}\nleave its block first")
    level.serial = next_sequence()
    level.entered = state
    set_state(state_at_level(level, state))
    level.alive = True
    return 0


cdef State state_at_level(Interpreter level, State around):
    """The state inside of a transform or mode."""
    cdef State new = copy_of_state(around)
    cdef Entry entry
    if isinstance(level, ActiveMode) and (<ActiveMode>level).is_on_already:
        new.parent = around
        new.guard = level
        return new
    entry = Entry.__new__(Entry)
    entry.level = level
    entry.outer = around.entry
    entry.depth = max(around.muted, 0 if around.entry is None else around.entry.depth) + 1
    new.parent = around
    new.guard = level
    new.entry = entry
    new.top = level
    new.plain = False
    if not isinstance(level, (ActiveMode, Vmap)):
        new.inference = False
    if isinstance(level, Grad):
        new.grad = True
    elif isinstance(level, Jvp):
        new.forward = True
    return new


cdef int leave_level(Interpreter level) except -1:
    """Take a transform off the stack; what was changed inside of it and not changed back is undone."""
    cdef State state = state_now()
    level.alive = False
    level.arguments = None
    while state.parent is not None and state.guard is not level:
        state = state.parent
    state = level.entered if state.parent is None else state.parent
    if state is not None:       # None for a level that was never entered
        leave_for(state)
    return 0


def at_level(Interpreter level, function, *args):
    """Call a function in a transform."""
    cdef Shown around
    show(&around, state_now())
    try:
        enter_level(level)
        try:
            return function(*args)
        finally:
            leave_level(level)
    finally:
        hide(&around)


def lowered(Interpreter level or None, function, *args):
    """Call a function where `level`, the innermost transform, is absent; for a level that is over, where we are."""
    cdef Shown around
    cdef State state = state_now()
    if level is None or not level.alive:
        return function(*args)
    show(&around, state_below(state, level))
    try:
        return function(*args)
    finally:
        hide(&around)


def raised(Interpreter level or None, function, *args):
    """Call a function where `level`, which is absent, is the innermost transform again; None is the tape."""
    cdef Shown around
    if level is None:
        return function(*args)
    show(&around, state_at_level(level, state_now()))
    try:
        return function(*args)
    finally:
        hide(&around)


def nobody_watches():
    """Is there no transform, mode or guard around that sees, or changes, what operators do?"""
    cdef State state = state_now()
    return state.plain and state.saved_hooks is None


cpdef tuple results_of(tuple step, tuple args):
    """What a function returned, as a tuple of arrays. `step` is (function, spec, in_general).

    `spec`, of tree.py, says how results are nested. What is no Tensor, or nested otherwise, `in_general` makes a tuple of.
    """
    cdef list leaves = []
    result = step[0](*args)
    return tuple(leaves) if take_leaves(result, step[1], leaves) else step[2](result)


cdef bint take_leaves(value, spec, list leaves) except -1:
    cdef tuple children = <tuple>(<tuple>spec)[2]
    cdef Py_ssize_t i
    kind = (<tuple>spec)[0]
    if kind is None:
        leaves.append(value)
        return isinstance(value, Tensor)
    if <PyObject*>kind != <PyObject*>Py_TYPE(<PyObject*>value):
        return False
    if kind is tuple:
        if len(<tuple>value) != len(children):
            return False
        for i in range(len(children)):
            if not take_leaves((<tuple>value)[i], children[i], leaves):
                return False
        return True
    if kind is list:
        if len(<list>value) != len(children):
            return False
        for i in range(len(children)):
            if not take_leaves((<list>value)[i], children[i], leaves):
                return False
        return True
    if kind is dict:
        return len(<dict>value) == len(children) and take_items(<dict>value, (<tuple>spec)[1], children, leaves)
    return value is None


cdef bint take_items(dict value, tuple keys, tuple children, list leaves) except -1:
    cdef Py_ssize_t i
    for i in range(len(keys)):
        if keys[i] not in value or not take_leaves(value[keys[i]], children[i], leaves):
            return False
    return True


@cython.final
cdef class Rows:
    """The slices of an array of NumPy's along its first axis, as Tensors, one after the other."""
    cdef object array
    cdef Py_ssize_t i
    cdef Py_ssize_t n

    def __init__(self, array):
        self.array = array
        self.n = len(array)

    def __iter__(self):
        return self

    def __next__(self):
        if self.i == self.n:
            raise StopIteration
        row = self.array[self.i]
        self.i += 1
        return wrap(row) if Py_TYPE(<PyObject*>row) == &PyArray_Type else Tensor(row)


def take_steps(tuple step, tuple init, slices, check):
    """(last carry, what each step returned besides) of a loop over slices; first a step returns the carry of the next.

    Where it returns nothing besides, there is an empty list.

    `check(init, carry)` is called where a carry may have other shapes and dtypes than the first one.
    """
    cdef tuple carry = init, results
    cdef list rows = []
    cdef Py_ssize_t n = len(init)
    for x in slices:
        results = results_of(step, carry + <tuple>x)
        carry = results
        if len(results) != n:
            carry = results[:n]
            rows.append(results[n:])
        if not are_alike(carry, init):
            check(init, carry)
    return carry, rows


def take_steps_while(tuple test, tuple step, tuple init, holds, check, bint keeps):
    """The same as long as a test of the carry holds: (last carry, those that steps started with if `keeps`).

    `holds(results)` is called where the test may have returned something else than one bool.
    """
    cdef tuple carry = init
    cdef tuple results
    cdef list rows = []
    cdef PyObject* array
    while True:
        results = results_of(test, carry)
        array = array_of_level(PyTuple_GET_ITEM(<PyObject*>results, 0)) if len(results) == 1 else Py_None
        if is_one_bool(array):
            if not (<cnp.npy_bool*>PyArray_DATA(<PyArrayObject*>array))[0]:
                break
        elif not holds(results):
            break
        if keeps:
            rows.append(carry)
        carry = results_of(step, carry)
        if not are_alike(carry, init):
            check(init, carry)
    return carry, rows


cdef inline bint is_one_bool(PyObject* value) noexcept:
    return (Py_TYPE(value) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>value) == 0
            and PyArray_TYPE(<PyArrayObject*>value) == cnp.NPY_BOOL)


cdef bint are_alike(tuple values, tuple models) except -1:
    """Has each array the shape and dtype of its model? No may mean that this takes longer to tell."""
    cdef PyObject* one
    cdef PyObject* other
    cdef Py_ssize_t i
    if len(values) != len(models):
        return False
    for i in range(len(models)):
        one = array_of_level(PyTuple_GET_ITEM(<PyObject*>values, i))
        other = array_of_level(PyTuple_GET_ITEM(<PyObject*>models, i))
        if (Py_TYPE(one) != &PyArray_Type or Py_TYPE(other) != &PyArray_Type
                or not same_shape(one, other) or not same_dtype(one, other)):
            return False
    return True


cdef PyObject* array_of_level(PyObject* value) noexcept:
    """What is under levels of `grad`, which has the same shape."""
    while Py_TYPE(value) == <PyTypeObject*>Tensor or Py_TYPE(value) == <PyTypeObject*>GradTensor:
        value = <PyObject*>(<Tensor>value).array
    return value


cdef State state_below(State state, Interpreter level):
    while state.top is not None and state.top is not level:
        state = lowered_state(state)
    if state.top is None:
        raise AutogradError(f"{described_level(level)} is not active here\nuse its values inside of the function it was "
                            "called with, in the same thread")
    return lowered_state(state)


def below_transforms(function, *args):
    """Call a function where none of the innermost transforms is active: on the tape, or in the innermost mode."""
    cdef Shown around
    show(&around, without_transforms(state_now()))
    try:
        return function(*args)
    finally:
        hide(&around)


def substituting(substitute, function, *args):
    """Call a function where each Tensor among the arguments of an operator means `substitute(tensor)`.

    That is asked for before anything else looks at the call, so the Tensor may be a value of a transform that is over, or
    not active here. It holds at the levels below, too: functions of users that run there use the same variables.
    """
    cdef Shown around
    show(&around, with_substitute(state_now(), substitute))
    try:
        return function(*args)
    finally:
        hide(&around)


def deriving(function, *args):
    """Call a function that derives, below the levels that it derives for: what it captures of them are values to it."""
    cdef Shown around
    cdef State state = state_now(), new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.derives = True
    show(&around, new)
    try:
        return function(*args)
    finally:
        hide(&around)


cdef State with_substitute(State state, substitute):
    cdef State new = copy_of_state(state)
    new.parent = state.parent
    new.guard = state.guard
    new.substitute = substitute
    settle_plainness(new)
    return new


@cython.final
cdef class Substitute:
    """What Tensors mean: another one for some, by `id`; for all others what they mean outside.

    `unknown(tensor)` is called for values of transforms that were entered before the number `since`, and are not active.
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
            return outlived(meant)
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
cdef class StandIns:
    """What Tensors mean to a function that runs without data: for each one that it captures, another without data.

    `captured` are they, in the order in which it used them, and `values` what stands for each.
    """
    cdef readonly list captured
    cdef readonly list values
    cdef dict by_id

    def __cinit__(self):
        self.captured, self.values, self.by_id = [], [], {}

    def __call__(self, Tensor tensor):
        """What stands for a captured Tensor; one that was made inside stands for itself."""
        cdef Tensor stand_in
        known = self.by_id.get(<size_t><PyObject*>tensor)
        if known is not None:
            return known
        if not is_from_outside(tensor):
            return tensor
        stand_in = wrap_at(None, MetaArray(tuple(tensor.shape), tensor.dtype), None)
        self.by_id[<size_t><PyObject*>tensor] = self.by_id[<size_t><PyObject*>stand_in] = stand_in
        self.captured.append(tensor)
        self.values.append(stand_in)
        return stand_in

    def meaning(self, Tensor tensor):
        """What stands for a Tensor that the function has used, any other one itself."""
        return self.by_id.get(<size_t><PyObject*>tensor, tensor)


cpdef bint is_from_outside(Tensor tensor) except -1:
    """May a function that runs without data have captured this Tensor?

    Values of levels that are active here were made inside; so were others without data, unless they are tracked.
    """
    if tensor.word & WRAPPER_FLAG:
        return (<Wrapper>tensor).interpreter not in state_now().stack
    return type(raw_array(tensor)) is not MetaArray or tensor.requires_grad


cdef Tensor outlived(Tensor tensor):
    """The Tensor itself in place of wrappers that only differentiated, and whose transform is over."""
    while tensor.word & WRAPPER_FLAG and is_value_now((<Wrapper>tensor), None) and isinstance(tensor.array, Tensor):
        tensor = tensor.array
    return tensor


cdef inline bint is_value_now(Wrapper wrapper, State state) noexcept:
    """Does it mean its value here: as one of `grad` or `jvp` that is over, or, in a rule that derives, not active?"""
    if isinstance(wrapper, (LevelTensor, BatchedTensor)):
        return False
    return not wrapper.interpreter.alive or state is not None and state.derives and not is_active(
        wrapper.interpreter, state)


cdef bint is_meant(Tensor tensor, dict meanings) noexcept:
    for meant in meanings.values():
        if meant is tensor:
            return True
    return False


cdef bint is_active(Interpreter level, State state) noexcept:
    """Is this level on the stack here?"""
    cdef Entry entry = state.entry
    while entry is not None:
        if entry.level is level:
            return True
        entry = entry.outer
    return False


def next_number():
    """Larger than that of every transform that was entered before."""
    return next_sequence()


@cython.final
cdef class SubstituteBelow:
    """What Tensors mean one level below: the same, and so a value of the level is misplaced there.

    One that its own substitute holds may be what levels pass on, and means what is below the substitute.
    """
    cdef object substitute
    cdef Interpreter level

    def __init__(self, substitute, Interpreter level):
        self.substitute = substitute
        self.level = level

    def __call__(self, Tensor tensor):
        cdef Tensor meant
        if owned_by(<PyObject*>tensor, self.level):
            return tensor
        meant = self.substitute(tensor)
        if owned_by(<PyObject*>meant, self.level) and holds(meant, tensor):
            return meant.array
        return meant


cdef bint holds(Tensor wrapper, Tensor tensor) noexcept:
    """Is this Tensor the value of a wrapper at some level below?"""
    cdef object value = wrapper
    while isinstance(value, Wrapper):
        value = (<Tensor>value).array
        if value is tensor:
            return True
    return False


cdef bint note_rule(OpOverload op, Table table, State state) except -1:
    """Tell of an operator that functions of users differentiate, or have rules for; never true."""
    if table.rules is not None or (
            table.rule is not None and Py_TYPE(<PyObject*>table.rule) != DERIVATIVE_TYPE and hasattr(table.rule, "setup")):
        python_side["author_is_met"](op)
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


def with_grad_mode(bint on, function, *args):
    """Call a function with the tape on, or off."""
    cdef Shown around
    show(&around, with_tape(state_now(), on))
    try:
        return function(*args)
    finally:
        hide(&around)


@cython.final
cdef class GradTensor(Wrapper):
    """A value of a running `grad` or `vjp`; its array is the value of the level below."""


@cython.final
cdef class JvpTensor(Wrapper):
    """A value of a running `jvp`, with its tangent; None is a tangent of zeros."""


cdef class Wrapper(Tensor):
    """A value of a running transform."""


cdef Tensor wrap_at(Interpreter level, value, tangent):
    """A new, untracked Tensor of the level."""
    cdef Wrapper wrapper
    if level is None:
        return <Tensor>value if isinstance(value, Tensor) else wrap(value)
    if isinstance(level, Grad):
        wrapper = GradTensor.__new__(GradTensor)
    elif isinstance(level, Jvp):
        wrapper = JvpTensor.__new__(JvpTensor)
        (<JvpTensor>wrapper).tangent = tangent
    elif isinstance(level, Vmap):
        if not is_batch_of(<PyObject*>value, <Vmap>level):
            raise python_side["not_a_batch"](value, level)
        wrapper = BatchedTensor.__new__(BatchedTensor)
    else:
        wrapper = LevelTensor.__new__(LevelTensor)
    if isinstance(value, numpy_generic):
        value = numpy_asarray(value)
    wrapper.array = value
    wrapper.word = (word_of_array(<PyObject*>value) & KEY_BITS & ~PYTHON_BIT) | TENSOR_FLAG | WRAPPER_FLAG
    wrapper.word |= AUTOGRAD_BIT if wrapper.word & DENSE_BIT else AUTOGRAD_OTHER_BIT
    wrapper.interpreter = level
    return wrapper


cdef Tensor enter_at(Interpreter level, value, tangent):
    """The same for the argument of a transform, which is no argument of an operator: what it means here is asked for."""
    cdef State state = state_now()
    if level is not None and state.substitute is not None:
        if isinstance(value, Tensor):
            value = state.substitute(value)
        if isinstance(tangent, Tensor):
            tangent = state.substitute(tangent)
    return wrap_at(level, value, tangent)


def wrap_value_at(level, value, tangent=None):
    """A new, untracked Tensor of the level; of `jvp` with a tangent."""
    return enter_at(level, value, tangent)


cpdef tracked_leaf(level, value):
    """A new leaf of a level of `grad`: what is differentiated with respect to."""
    cdef Tensor leaf = enter_at(level, value, None)
    cdef Place place = Place.__new__(Place)
    place.is_leaf = True
    leaf.edge = place
    leaf.word |= TRACKED_FLAG
    return leaf


cdef object call_through_levels(OpOverload op, Table table, Frame* frame, State state, str how):
    """Steps 2 to 7, where a transform or the tape may have something to say."""
    cdef Signature signature = table.signature
    cdef Interpreter top = state.top
    if frame.word & SHARED_FLAG:
        refresh_arguments(frame, signature)
    if frame.word & WRAPPER_FLAG:
        if settle_wrappers(op, signature, frame, state):
            args, kwargs = arguments_with(frame, signature, live_value)
            return op(*args, **kwargs)
    if top is None:
        return call_on_tape(op, table, frame, state, how)
    if isinstance(top, ActiveMode):
        return call_mode(op, table, frame, state, top, how)
    if isinstance(top, Vmap):
        return call_batched(op, table, frame, state, <Vmap>top, how)
    if not owns_any(frame, signature, top) and not signature.mutable and not table.makes:
        return pass_below(op, table, frame, state, how)
    rule = rule_for(table, type(top))
    if rule is not None:
        return call_transform(op, signature, frame, state, top, rule)
    if isinstance(top, Transform):
        entry = composite_entry(table, frame.word)
        if entry is not None:
            return run_entry(op, table, <TableEntry>entry, frame, frame.word & KEY_BITS, state, how)
        return call_transform(op, signature, frame, state, top, None)
    entry = autograd_entry(table, frame.word)
    if entry is not None:
        if (<TableEntry>entry).convention & COMPOSITE:
            return run_entry(op, table, <TableEntry>entry, frame, frame.word & KEY_BITS, state, how)
        if owns_any(frame, signature, top):
            raise python_side["opaque_autograd_kernel"](op, entry, top)
    if isinstance(top, Grad):
        return call_and_record(op, table, frame, state, top, how)
    return call_and_propagate(op, table, frame, state, top, how)


cdef object autograd_entry(Table table, uint64_t word):
    """The kernel that somebody registered for the autograd key of these arguments; None leaves it to the tape."""
    cdef uint64_t usable = autograd_keys(<PyObject*>table, word)
    return table.rows[highest_slot(usable | word & BACKEND_BITS)] if usable else None


cdef inline uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept:
    """The autograd keys among these that have a kernel."""
    return (word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)
            & (<Table>table).masks[bit_length16(word & BACKEND_BITS)])


cdef bint settle_wrappers(op, Signature signature, Frame* frame, State state) except -1:
    """Is there a wrapper of a transform that is over? Raises for one of a transform that is not active here."""
    cdef Py_ssize_t i
    cdef bint dead = False
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(frame.values[i])):
            dead |= is_dead(op, signature, i, <Tensor>frame.values[i], state)
        elif signature.kind[i] & KIND != ARRAY:
            for leaf in array_leaves(<object>frame.values[i]):
                if isinstance(leaf, Tensor):
                    dead |= is_dead(op, signature, i, leaf, state)
    return dead


cdef bint is_dead(op, Signature signature, Py_ssize_t i, Tensor tensor, State state) except -1:
    cdef Interpreter level
    if not tensor.word & WRAPPER_FLAG:
        return False
    level = (<Wrapper>tensor).interpreter
    if is_value_now(<Wrapper>tensor, state):
        return True
    if is_active(level, state):
        return False
    raise python_side["misplaced_error"](op, None if signature is None else signature.names[i], tensor)


def live_value(value):
    """The value that is meant here; the value itself in place of wrappers whose transform is over."""
    cdef State state = state_now()
    if state.substitute is not None and isinstance(value, Tensor):
        value = state.substitute(value)
    while isinstance(value, Wrapper) and is_value_now(<Wrapper>value, state):
        value = (<Wrapper>value).array
    return value


def settled(value):
    """The value that is meant here, without wrappers of transforms that are over.

    AutogradError for a value of a transform that is not active here, VmapError for one that has escaped.
    """
    value = live_value(value)
    if isinstance(value, Wrapper):
        check_active(value)
    return value


def all_settled(list values):
    """The same for each of them; the very list where nothing changes."""
    cdef list found = values
    cdef Py_ssize_t i
    for i in range(len(values)):
        if isinstance(values[i], Tensor):
            value = settled(values[i])
            if value is not values[i]:
                if found is values:
                    found = list(values)
                found[i] = value
    return found


def check_active(Wrapper wrapper):
    """Raise AutogradError for a value of a transform that is running, but not here."""
    is_dead(None, None, -1, wrapper, state_now())


def detach_at(Tensor tensor, Interpreter level or None):
    """A new, untracked Tensor of the level on the same memory, with the same tangent."""
    if level is None and tensor.word & PYTHON_BIT:
        return alias_by_handler(tensor)
    cdef Tensor alias = wrap_at(level, tensor.array, tangent_of(tensor) if isinstance(tensor, JvpTensor) else None)
    if owned_by(<PyObject*>tensor, level):
        alias.memory = memory_of_detached(tensor)
    return alias


cdef bint owns_any(Frame* frame, Signature signature, Interpreter level) except -1:
    cdef Py_ssize_t i
    if not frame.word & WRAPPER_FLAG:
        return False
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if owned_by(frame.values[i], level):
            return True
        if signature.kind[i] & KIND != ARRAY and not is_tensor_type(Py_TYPE(frame.values[i])):
            for leaf in array_leaves(<object>frame.values[i]):
                if owned_by(<PyObject*>leaf, level):
                    return True
    return False


cdef tuple arguments_with(Frame* frame, Signature signature, change):
    """(args, kwargs) of a call, as passed, with `change` applied to every array where that is not None."""
    cdef Py_ssize_t i, positional = 0
    cdef list args = []
    cdef dict kwargs = {}
    for i in range(min(frame.count, signature.n_positional)):
        if frame.values[i] != NULL:
            positional = i + 1
    for i in range(positional):
        args.append(changed(<object>value_by_position(frame, signature, i), change))
    for i in range(signature.n_positional, signature.n_arguments):
        if value_at(frame, i) != NULL:
            kwargs[signature.names[i]] = changed(<object>value_at(frame, i), change)
    return tuple(args), kwargs


cdef object changed(value, change):
    if change is None or not word_of_value(<PyObject*>value) & TENSOR_FLAG:
        return value
    return change(value) if isinstance(value, Tensor) else python_side["map_arrays"](change, value)


cdef object pass_below(OpOverload op, Table table, Frame* frame, State state, str how):
    """The call as it is, at the level below: nothing in it belongs to this one."""
    cdef Cell around
    cdef State lower = lowered_state(state)
    if frame.original == NULL:
        frame.original = <PyObject*>state
    go_deeper(&around, lower)
    try:
        return dispatch(op, table, frame, lower, how)
    finally:
        come_back(&around)


cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter level):
    """The operator on the values of the level below, where this level is absent."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i
    cdef Cell around
    go_deeper(&around, lowered_state(state))
    try:
        if frame.direct:
            for i in range(frame.count):
                values[i + 1] = frame.values[i]
                if owned_by(frame.values[i], level):
                    values[i + 1] = <PyObject*>(<Tensor>frame.values[i]).array
            return own(PyObject_Vectorcall(
                <PyObject*>op, &values[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
        args, kwargs = arguments_with(frame, signature, lambda value: below(value, level))
        return op(*args, **kwargs)
    finally:
        come_back(&around)


cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter level):
    """Results of the level below as values of this level; mutated arguments keep their identity."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return wrap_result(signature, frame, 0, result, level)
    wrapped = []
    for i in range(signature.n_returns):
        wrapped.append(wrap_result(signature, frame, i, result[i], level))
    return tuple(wrapped)


cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter level):
    cdef Py_ssize_t source = signature.return_source[i]
    cdef Tensor tensor
    if source >= 0 and value_at(frame, source) != NULL and value_at(frame, source) != Py_None:
        return <object>value_at(frame, source)
    if not signature.return_arrays[i] or result is None:
        return result
    if word_of_array(<PyObject*>result):
        tensor = wrap_at(level, result, None)
        if signature.return_views[i]:
            share_with_base(signature, frame, i, tensor)
        return tensor
    return python_side["map_arrays"](lambda leaf: wrap_result(signature, frame, i, leaf, level), result)


cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, str how):
    """The lowest level: kernels run here, and the tape takes down what is tracked."""
    cdef Signature signature = table.signature
    cdef uint64_t keys
    keys = effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word)
    if keys & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):
        return run(op, table, frame, keys, state, how)      # a kernel of somebody's own, or a composite
    if state.removed[bit_length16(frame.word & BACKEND_BITS)] & frame.word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):
        return run(op, table, frame, keys, state, how)
    return call_and_record(op, table, frame, state, None, how)


cdef int refresh_arguments(Frame* frame, Signature signature) except -1:
    cdef Py_ssize_t i
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(frame.values[i])):
            refresh(<Tensor>frame.values[i])
        elif signature.kind[i] & KIND != ARRAY:
            for leaf in array_leaves(<object>frame.values[i]):
                if isinstance(leaf, Tensor):
                    refresh(leaf)
    collect_keys(frame, signature)
    return 0


cdef object call_and_record(
    OpOverload op, Table table, Frame* frame, State state, Interpreter level, str how
):
    """Run a call below this level, and take it down where something tracked takes part."""
    cdef Signature signature = table.signature
    cdef uint64_t tracked = tracked_arguments(frame, signature, level) if state.grad and not state.inference else 0
    cdef Derivative derivative = None
    cdef list copies = None
    cdef tuple values = None
    cdef object rule = None, result
    if tracked:
        rule = rule_of(op, table)
        if isinstance(rule, Derivative):
            derivative = rule
            tracked &= derivative.differentiable
            if tracked == 0:
                rule = derivative = None
        elif rule is None:
            refuse_constant_write(op, signature, frame, tracked, level)
            tracked = 0
    if signature.mutable:
        check_writes(op, signature, frame, state, level, tracked)
        if derivative is not None and derivative.in_place:
            copies = copies_before_write(derivative, signature, frame, tracked, level)
        elif rule is not None and derivative is None:
            values = values_before_write(signature, frame, level)
    if level is None:
        result = run_below_tape(op, table, frame, state, how)
        if state.inference:
            mark_inference(signature, result)
    else:
        if signature.mutable:
            count_writes(signature, frame)
        result = wrap_results(signature, frame, call_below(op, signature, frame, state, level), level)
    if rule is not None:
        if level is None and frame.word & PYTHON_BIT and not signature.mutable:
            result = fresh_results(frame, result)
        if derivative is not None:
            record_results(derivative, signature, frame, result, tracked, level, state, copies)
        else:
            if values is None:
                values = tuple([<object>value_by_position(frame, signature, i) for i in range(signature.n_arguments)])
            record_rule(op, rule, values, result, level)
    elif frame.word & SHARED_FLAG or not signature.returns_fresh_tensor:
        mark_constant_views(frame, signature, result, level)
    return result


cdef object fresh_results(Frame* frame, result):
    """What a handler returned, with other objects in place of arguments and of what is on the tape already."""
    if isinstance(result, Tensor):
        if (<Tensor>result).edge is None and not is_argument(frame, result):
            return result
        return alias_by_handler(result) if (<Tensor>result).word & PYTHON_BIT else detach(result)
    if isinstance(result, (tuple, list)):
        fresh = []
        for item in result:
            fresh.append(fresh_results(frame, item))
        return type(result)(fresh)
    return result


cdef object rule_of(OpOverload op, Table table):
    """How an operator is differentiated: a Derivative, a Rule, or None when its results never are."""
    rule = table.rule
    if table.settled:
        return rule
    rule = python_side["settle_rule"](op, table.signature.schema, rule)
    check_formulas(rule, table.signature)
    table.rule = rule
    table.settled = True
    return rule


cdef int check_formulas(rule, Signature signature) except -1:
    """Formulas are found by the position of their argument."""
    if isinstance(rule, Derivative) and len((<Derivative>rule).formulas) != signature.n_arguments:
        raise ValueError(f"{signature.schema} has {signature.n_arguments} arguments, not as many as its formulas")
    return 0


cdef object run_below_tape(OpOverload op, Table table, Frame* frame, State state, str how):
    """Steps 3 to 7 without the tape. Kernels that get Tensors run where the tape is excluded."""
    cdef uint64_t keys = effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word)
    cdef PyObject* entry = table.entries[highest_slot(keys)]
    cdef Cell around
    if entry == NULL or (<TableEntry>entry).convention & RAW or not frame.word & TRACKED_FLAG:
        return run(op, table, frame, keys, state, how)
    if (<TableEntry>entry).convention & HANDLERS:
        return run(op, table, frame, keys, state, how)
    state = state.derive(None, removed=AUTOGRAD_SLOTS)
    push_cell(&around, state)
    try:
        return run(op, table, frame, keys, state, how)
    finally:
        pop_cell(&around)


cdef tuple AUTOGRAD_SLOTS = tuple([
    slot for slot in range(1, N_SLOTS) if slot_words[slot] & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)
])


cdef list copies_before_write(
    Derivative derivative, Signature signature, Frame* frame, uint64_t tracked, Interpreter level
):
    """Copies of the arguments that a formula asks for and that the call is about to overwrite, by position."""
    cdef list copies = [None] * signature.n_arguments
    cdef uint64_t needs = 0
    cdef Py_ssize_t slot, i
    cdef PyObject* value
    owner = memory_owner(<object>frame.values[0])
    while tracked:
        i = lowest_bit(tracked)
        tracked &= tracked - 1
        needs |= derivative.needs[i]
    for slot in range(derivative.n_slots):
        if not needs & bit(slot) or derivative.slot_kind[slot] != VALUE:
            continue
        i = derivative.slot_argument[slot]
        value = value_at(frame, i)
        if value == NULL or not word_of_array(value):
            continue
        if i == 0 or memory_owner(<object>value) is owner:
            copies[i] = copy_before_write(<object>value, level)
    return copies


cdef tuple values_before_write(Signature signature, Frame* frame, Interpreter level):
    """One value per argument, for the functions of an author: copies of what the call is about to overwrite."""
    cdef list values = [<object>value_by_position(frame, signature, i) for i in range(signature.n_arguments)]
    cdef list owners = []
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        if signature.mutable & bit(i):
            for leaf in array_leaves(values[i]):
                owners.append(memory_owner(leaf))

    def copied(leaf):
        owner = memory_owner(leaf)
        return copy_before_write(leaf, level) if any(owner is other for other in owners) else leaf

    for i in range(signature.n_arguments):
        if signature.arrays & bit(i):
            values[i] = python_side["map_arrays"](copied, values[i])
    return tuple(values)


cdef object copy_before_write(value, Interpreter level):
    cdef Tensor tensor, copy
    if not owned_by(<PyObject*>value, level):
        return lowered(level, python_side["copy_kept"], value)
    tensor = <Tensor>value
    if tensor.word & PYTHON_BIT:
        copy = with_grad_mode(False, python_side["copy_kept"], tensor)
    else:
        copy = wrap_at(level, lowered(level, python_side["copy_kept"], tensor.array),
                   tangent_of(tensor) if isinstance(tensor, JvpTensor) else None)
    copy.edge = tensor.edge
    copy.word |= tensor.word & TRACKED_FLAG
    return copy


cdef int refuse_constant_write(
    op, Signature signature, Frame* frame, uint64_t tracked, Interpreter level
) except -1:
    """An operator without a gradient must not overwrite what has one: the old gradient would go on being used."""
    cdef Py_ssize_t i
    cdef PyObject* value
    cdef bint constant
    for i in range(frame.count):
        value = frame.values[i]
        if not signature.mutable & bit(i) or value == NULL or not owned_by(value, level):
            continue
        if isinstance(level, Jvp):
            constant = tangent_of(<JvpTensor>value) is None
        else:
            constant = not (tracked & bit(i) and (<Tensor>value).word & TRACKED_FLAG)
        if not constant or (<Tensor>value).memory is not None and (<Tensor>value).memory.edge is not None:
            raise python_side["write_error"](op, signature.names[i], "not differentiable", <object>value, level)
    return 0


cdef int check_writes(op, Signature signature, Frame* frame, State state, Interpreter level, uint64_t tracked) except -1:
    """Refuse, before anything is written, what would lose a gradient."""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if not signature.mutable & bit(i) or frame.values[i] == NULL or frame.values[i] == Py_None:
            continue
        if word_of_array(frame.values[i]):
            check_write(op, signature, i, <object>frame.values[i], state, level, tracked)
        else:
            for leaf in array_leaves(<object>frame.values[i]):
                check_write(op, signature, i, leaf, state, level, tracked)
    return 0


cdef int check_write(
    op, Signature signature, Py_ssize_t i, target, State state, Interpreter level, uint64_t tracked
) except -1:
    cdef Tensor tensor
    if not owned_by(<PyObject*>target, level):
        if level is not None or tracked:
            raise python_side["write_error"](op, signature.names[i], "captured", target, level)
        return 0
    tensor = <Tensor>target
    if tensor.word & INFERENCE_FLAG and not state.inference:
        raise python_side["write_error"](op, signature.names[i], "inference", target, level)
    if level is not None and level.arguments is not None and (tracked or isinstance(level, Jvp)):
        python_side["check_passed_once"](op, signature.names[i], target, level)
    if isinstance(level, Jvp) and isinstance(tensor.edge, Place) and (<Place>tensor.edge).creation is not None:
        raise python_side["write_error"](op, signature.names[i], (<Place>tensor.edge).creation, target, level)
    if not state.grad:
        return 0
    if tensor.word & TRACKED_FLAG and is_leaf_edge(tensor.edge):
        raise python_side["write_error"](op, signature.names[i], "leaf" if level is None else "primal", target, level)
    if tensor.word & SHARED_FLAG and tensor.memory.is_leaf:
        raise python_side["write_error"](
            op, signature.names[i], "view of a leaf" if level is None else "primal", target, level)
    if (tensor.word & SHARED_FLAG and isinstance(raw_array(tensor), MetaArray)
            and (tracked or tensor.memory.edge is not None)):
        raise python_side["write_error"](op, signature.names[i], "without memory", target, level)
    if tracked and python_side["overlaps_itself"](raw_array(tensor)):
        raise python_side["write_error"](op, signature.names[i], "overlap", target, level)
    if isinstance(tensor.edge, Place) and (<Place>tensor.edge).creation is not None and (
            tracked or tensor.memory is not None and tensor.memory.edge is not None):
        raise python_side["write_error"](op, signature.names[i], (<Place>tensor.edge).creation, target, level)
    return 0


cdef int mark_inference(Signature signature, result) except -1:
    """What is made in inference mode is never to be differentiated; views of other Tensors are as those."""
    for leaf in array_leaves(result):
        if isinstance(leaf, Tensor) and not (<Tensor>leaf).word & SHARED_FLAG and (<Tensor>leaf).memory is None:
            (<Tensor>leaf).word |= INFERENCE_FLAG
    return 0


cdef int mark_constant_views(Frame* frame, Signature signature, result, Interpreter level) except -1:
    """A view that was made without the tape stays a constant, though its memory may be written to later."""
    cdef Place place
    cdef object creation = None
    if not frame.word & TENSOR_FLAG or signature.mutable:
        return 0
    for i in range(frame.count):
        if frame.values[i] != NULL and owned_by(frame.values[i], level):
            if (<Tensor>frame.values[i]).word & TRACKED_FLAG:
                creation = WITHOUT_TAPE
            elif isinstance((<Tensor>frame.values[i]).edge, Place):
                creation = creation or (<Place>(<Tensor>frame.values[i]).edge).creation
    if creation is None:
        return 0
    for leaf in array_leaves(result):
        if (owned_by(<PyObject*>leaf, level) and (<Tensor>leaf).word & SHARED_FLAG and (<Tensor>leaf).edge is None):
            place = Place.__new__(Place)
            place.generation = (<Tensor>leaf).memory.generation
            place.creation = creation
            (<Tensor>leaf).edge = place
    return 0


cdef int inherit_creation(Tensor view, Signature signature, Frame* frame) except -1:
    """A view of a view that must not be written to must not be written to either."""
    cdef Place place
    cdef PyObject* value
    for position in signature.return_views[0]:
        value = value_at(frame, position)
        if value != NULL and is_tensor_type(Py_TYPE(value)) and isinstance((<Tensor>value).edge, Place):
            if (<Place>(<Tensor>value).edge).creation is not None:
                place = result_place(node_of_edge(view.edge), 0)
                place.generation = view.memory.generation
                place.creation = (<Place>(<Tensor>value).edge).creation
                view.edge = place
    return 0


cdef int record_results(Derivative derivative, Signature signature, Frame* frame, result, uint64_t tracked,
                        Interpreter level, State state, list copies) except -1:
    """A node for a call that was run, and the results as its results."""
    cdef Node node
    cdef PyObject* array
    cdef Tensor tensor
    cdef Place place
    if isinstance(result, Tensor):
        tensor = <Tensor>result
        array = bottom_of(tensor)
        if not is_inexact(array):
            return 0
        node = record(derivative, signature, frame, array, tracked, level, state, copies)
        save_result(node, tensor, state)
        if derivative.in_place:
            rebase(tensor, node)
        else:
            set_edge(tensor, node)
            if tensor.word & SHARED_FLAG:
                inherit_creation(tensor, signature, frame)
        return 0
    leaves = [leaf for leaf in array_leaves(result) if isinstance(leaf, Tensor)]
    if not leaves or not is_inexact(bottom_of(leaves[0])):
        return 0
    node = record(derivative, signature, frame, NULL, tracked, level, state, copies)
    outputs = []
    for leaf in leaves:
        outputs.append((tuple(leaf.shape), leaf.dtype))
    node.outputs = tuple(outputs)
    for i, leaf in enumerate(leaves):
        place = result_place(node, i)
        if (<Tensor>leaf).word & SHARED_FLAG:
            place.creation = ONE_OF_SEVERAL
            place.generation = (<Tensor>leaf).memory.generation
        (<Tensor>leaf).edge = place
        (<Tensor>leaf).word |= TRACKED_FLAG
    return 0


# --- levels: the common call ------------------------------------------------------------------------------------------

cdef inline bint recording_lane(
    PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result
) except -1:
    """A lane beside the fast one: a library operator with one fresh result, on the tape or in the innermost `grad`."""
    cdef uint64_t special = frame.word & SPECIAL_FLAGS
    if (not special & (TRACKED_FLAG | WRAPPER_FLAG) or special & INFERENCE_FLAG
            or special & SHARED_FLAG and not all_fresh(frame)
            or frame.word & PYTHON_BIT or not (<State>state).grad or (<State>state).inference or frame.names != NULL
            or (<State>state).tracer is not None or (<State>state).substitute is not None
            or Py_TYPE(<PyObject*>(<Table>table).rule) != DERIVATIVE_TYPE
            or not (<Signature>(<Table>table).signature).returns_fresh_tensor
            or autograd_keys(table, frame.word)):
        return False
    if special & WRAPPER_FLAG:
        if (<State>state).top is None or Py_TYPE(<PyObject*>(<State>state).top) != GRAD_INTERPRETER_TYPE:
            return False
        if not all_owned(frame, <PyObject*>(<State>state).top):
            return False
    elif not (<State>state).plain:
        return False
    result[0] = (<recorded_call>call_recorded)(op, table, state, frame)
    return True


cdef PyTypeObject* DERIVATIVE_TYPE = <PyTypeObject*>Derivative
cdef PyTypeObject* GRAD_INTERPRETER_TYPE = <PyTypeObject*>Grad
# the same function, for a caller that passes the exception on as NULL
ctypedef PyObject* (*recorded_call)(PyObject*, PyObject*, PyObject*, Frame*) noexcept


cdef inline bint all_owned(Frame* frame, PyObject* level) noexcept:
    """Is every Tensor among the values of this level?"""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if Py_TYPE(frame.values[i]) == GRAD_TYPE:
            if <PyObject*>(<Wrapper>frame.values[i]).interpreter != level:
                return False
        elif is_tensor_type(Py_TYPE(frame.values[i])):
            return False
    return True


cdef inline bint all_fresh(Frame* frame) noexcept:
    """Does every view among the values know where its gradient goes?"""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if is_tensor_type(Py_TYPE(frame.values[i])) and not is_fresh(<Tensor>frame.values[i]):
            return False
    return True


cdef PyObject* call_recorded(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except NULL:
    cdef Signature signature = (<Table>table).signature
    cdef Derivative derivative = <Derivative>(<Table>table).rule
    cdef Interpreter level = (<State>state).top
    cdef State held = <State>state
    cdef object value = value_of_kernel(<OpOverload>op, <Table>table, held, frame, level)
    cdef Tensor result
    cdef Node node
    cdef PyObject* array
    cdef uint64_t tracked = tracked_arguments(frame, signature, level) & derivative.differentiable
    if level is None:
        if Py_TYPE(<PyObject*>value) == &PyArray_Type:
            result = <Tensor>own(wrap_ndarray(give(value)))
        else:
            result = wrap_at(None, value, None)
    else:
        result = wrap_at(level, value, None)
    array = <PyObject*>result.array
    if Py_TYPE(array) != &PyArray_Type:
        array = bottom_of(result)
    if tracked and is_inexact(array):
        node = record(derivative, signature, frame, array, tracked, level, held, None)
        save_result(node, result, held)
        result.edge = node
        result.word |= TRACKED_FLAG
    return give(result)


cdef inline object value_of_kernel(OpOverload op, Table table, State state, Frame* frame, Interpreter level):
    """The result of the call on the values of the level below."""
    if level is None:
        return value_at_bottom(op, table, state, frame, frame.word, None)
    return value_below_level(op, table, lowered_state(state), frame, level)


cdef object value_below_level(OpOverload op, Table table, State lower, Frame* frame, Interpreter level):
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef Cell around
    go_deeper(&around, lower)
    try:
        for i in range(frame.count):
            word |= word_of_array(frame.raw[i + 1])
        if word & TENSOR_FLAG or not lower.plain:
            return own(PyObject_Vectorcall(
                <PyObject*>op, &frame.raw[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
        return value_at_bottom(op, table, lower, frame, word, level)
    finally:
        come_back(&around)


cdef inline object value_at_bottom(
    OpOverload op, Table table, State state, Frame* frame, uint64_t word, Interpreter level
):
    """The result of the kernel, where there is no level below."""
    cdef PyObject* entry = table.entries[
        highest_slot(effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, word))]
    if entry == NULL or not is_plain(entry) or not (<TableEntry>entry).convention & RAW:
        return call_in_order(op, table, frame, state, level)
    value = own(call_directly(<PyObject*>table.signature, entry, frame))
    if Py_TYPE(<PyObject*>value) != &PyArray_Type:
        value = unwrap_value(finish(op, table.signature, <TableEntry>entry, frame, value))
    return value


cdef object call_in_order(OpOverload op, Table table, Frame* frame, State state, Interpreter level):
    """The same for kernels that take more than the arguments."""
    if level is None:
        return unwrap_value(run_below_tape(op, table, frame, state, "call"))
    return own(PyObject_Vectorcall(
        <PyObject*>op, &frame.raw[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
