# The stack of transforms and modes. The tape is below all of them.
#
# The innermost transform processes a call. It calls the operator again on the values of the interpreter below, with
# itself absent, and wraps the results. Under all transforms the tape does the same with raw arrays and kernels.
# `interpreter` is the transform, or None for the tape.


@cython.final
@cython.freelist(64)
cdef class InterpreterStack:
    """The innermost interpreter of a stack, and the stack around it. Immutable, so that states can share it."""


cdef class Interpreter:
    """One running transform. It identifies its wrappers, which die when it ends."""

    def __init__(self, str name, site=None):
        self.name = name
        self.site = site

    def __repr__(self):
        return f"<{describe_interpreter(self)}>"

    @property
    def differentiates(self):
        """Whether its values have gradients or tangents."""
        return False

    @property
    def sees_functions(self):
        """Whether it has to see what functions do with values of other interpreters, such as drawing and writing."""
        return False

    @property
    def makes_new_values(self):
        """Whether a write to one of its values makes a new value below. If so, it handles views and swaps itself."""
        return False

    def is_off(self, State state not None):
        """Return whether this state disables its work, so that its values are constants."""
        return False

    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        cdef Signature signature = table.signature
        if not owns_any(frame, signature, self) and not signature.mutable and not table.is_factory:
            result = pass_below(op, table, frame, state, kind)
            return take_results(signature, frame, result, self) if self.takes_new_tensors() else result
        rule = rule_for(table, type(self))
        if rule is not None:
            return call_transform(op, signature, frame, state, self, rule)
        return self.process_own(op, table, frame, state, kind)

    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        raise NotImplementedError(f"{type(self).__name__} does not define a rule for calls on its values")

    cdef Wrapper new_wrapper(self, value, tangent):
        raise NotImplementedError(f"{type(self).__name__} does not define a wrapper")

    cdef int check_entering(self, State around) except -1:
        return 0

    cdef bint changes_stack(self) noexcept:
        return True

    cdef int change_inside(self, State inside) except -1:
        inside.inference = False
        return 0

    cdef int change_below(self, State below, State inside) except -1:
        if inside.substitute is not None:
            below.substitute = SubstitutionBelow(inside.substitute, self)
        return 0

    cdef bint watches_arrays(self) noexcept:
        return False

    cdef bint knows_arrays(self) noexcept:
        return self.watches_arrays()

    cdef bint is_transform(self) noexcept:
        return True

    cdef bint takes_new_tensors(self) noexcept:
        return False


cdef object describe_interpreter(Interpreter interpreter):
    return upcalls.describe_interpreter(interpreter)


cdef int enter_interpreter(Interpreter interpreter) except -1:
    """Push an interpreter on the stack."""
    cdef State state = state_now()
    interpreter.check_entering(state)
    interpreter.serial = next_sequence()
    interpreter.entered = state
    set_state(state_under(interpreter, state))
    interpreter.alive = True
    return 0


cdef State state_under(Interpreter interpreter, State around):
    """Return the state inside a transform or mode."""
    cdef State new = copy_of_state(around)
    cdef InterpreterStack stack
    new.parent = around
    new.guard = interpreter
    if not interpreter.changes_stack():
        return new
    stack = InterpreterStack.__new__(InterpreterStack)
    stack.interpreter = interpreter
    stack.outer = around.interpreters
    stack.depth = max(around.disabled, 0 if around.interpreters is None else around.interpreters.depth) + 1
    new.interpreters = stack
    new.innermost = interpreter
    new.plain = new.unchanged = False
    interpreter.change_inside(new)
    return new


cdef int leave_interpreter(Interpreter interpreter) except -1:
    """Remove an interpreter from the stack. Changes of the state inside it that were not undone are undone."""
    cdef State state = state_now()
    interpreter.alive = False
    interpreter.arguments = None
    while state.parent is not None and state.guard is not interpreter:
        state = state.parent
    state = interpreter.entered if state.parent is None else state.parent
    if state is not None:       # None for an interpreter that was never entered
        leave_for(state)
    return 0


def run_under(Interpreter interpreter, function, *args):
    """Call a function inside a transform."""
    cdef PublishedState around
    publish_state(&around, state_now())
    try:
        enter_interpreter(interpreter)
        try:
            return function(*args)
        finally:
            leave_interpreter(interpreter)
    finally:
        withdraw_state(&around)


def lowered(Interpreter interpreter or None, function, *args):
    """Call a function below the transform `interpreter`, or in the present state if that no longer runs."""
    cdef PublishedState around
    cdef State state = state_now()
    if interpreter is None or not interpreter.alive:
        return function(*args)
    publish_state(&around, state_below(state, interpreter))
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


def raised(Interpreter interpreter or None, function, *args):
    """Call a function with the absent `interpreter` as the innermost transform again. None is the tape."""
    cdef PublishedState around
    if interpreter is None:
        return function(*args)
    publish_state(&around, state_under(interpreter, state_now()))
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


def is_unobserved():
    """Return whether no transform, mode or guard is active that sees or changes the work of operators."""
    cdef State state = state_now()
    return state.plain and state.saved_hooks is None


cpdef tuple results_of(tuple step, tuple args):
    """Return the results of a function as a tuple of arrays. `step` is (function, spec, in_general).

    `spec`, of tree.py, is the structure of the results. `in_general` makes a tuple of any other results.
    """
    cdef list leaves
    result = step[0](*args)
    flat = leaves_of_flat(result, step[1])
    if flat is not None:
        return <tuple>flat
    leaves = []
    return tuple(leaves) if add_leaves(result, step[1], leaves) else step[2](result)


cdef State state_below(State state, Interpreter interpreter):
    while state.innermost is not None and state.innermost is not interpreter:
        state = lowered_state(state)
    if state.innermost is None:
        raise AutogradError(f"{describe_interpreter(interpreter)} is not active here\nuse its values inside the "
                            "function that it was called with, in the same thread")
    return lowered_state(state)


def below_transforms(function, *args):
    """Call a function with the innermost transforms absent: on the tape, or in the innermost mode."""
    cdef PublishedState around
    publish_state(&around, without_transforms(state_now()))
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


cdef class Wrapper(Tensor):
    """A value of a running transform."""


# Wrappers are allocated at every call. Cython has a free list for Tensors, but not for objects of subclasses.

cdef extern from "core/src/wrappers.h":
    int SIZES_OF_WRAPPERS
    Py_ssize_t smallest_wrapper
    PyObject* allocate_wrapper(PyTypeObject*, Py_ssize_t) noexcept
    void free_wrapper(void*) noexcept


cdef int keep_freed(type cls) except -1:
    """Give a final class of wrappers a free list."""
    cdef vectorcallable* slots = <vectorcallable*>cls
    if (slots.tp_basicsize - smallest_wrapper) // <Py_ssize_t>sizeof(PyObject*) < SIZES_OF_WRAPPERS:
        slots.tp_alloc = allocate_wrapper
        slots.tp_free = free_wrapper
    return 0


smallest_wrapper = (<vectorcallable*>Wrapper).tp_basicsize
if HAS_FREE_LISTS:
    keep_freed(GradTensor)
    keep_freed(JvpTensor)
    keep_freed(BatchedTensor)


cdef Tensor wrap_at(Interpreter interpreter, value, tangent):
    """Return a new, untracked Tensor of the interpreter."""
    cdef Wrapper wrapper
    cdef uint64_t scalar = 0
    if interpreter is None:
        return <Tensor>value if isinstance(value, Tensor) else wrap(value)
    wrapper = interpreter.new_wrapper(value, tangent)
    if is_numpy_scalar(value):
        value = array_of_scalar(value)
        scalar = SCALAR_FLAG
    wrapper.array = value
    wrapper.word = scalar | (word_of_array(<PyObject*>value) & (KEY_BITS | SCALAR_FLAG) & ~PYTHON_BIT)
    wrapper.word |= TENSOR_FLAG | WRAPPER_FLAG
    wrapper.word |= AUTOGRAD_BIT if wrapper.word & DENSE_BIT else AUTOGRAD_OTHER_BIT
    wrapper.interpreter = interpreter
    return wrapper


cdef Tensor enter_at(Interpreter interpreter, value, tangent):
    """Apply `wrap_at` to an argument of a transform, which no operator has seen. Apply the substitution first."""
    cdef State state = state_now()
    refuse_matrix(<PyObject*>value)
    refuse_matrix(<PyObject*>tangent)
    if interpreter is not None and state.substitute is not None:
        if isinstance(value, Tensor):
            value = state.substitute(value)
        if isinstance(tangent, Tensor):
            tangent = state.substitute(tangent)
    cdef Tensor entered = wrap_at(interpreter, value, tangent)
    if Py_TYPE(<PyObject*>entered) == BATCHED_TYPE and rank_of(<PyObject*>entered) == 0:
        entered.word |= SCALAR_FLAG     # in a loop over the batch, an example would be a scalar
    return entered


def wrap_value_at(interpreter, value, tangent=None):
    """Return a new, untracked Tensor of the interpreter. For `jvp`, it has a tangent."""
    return enter_at(interpreter, value, tangent)


cpdef tracked_leaf(interpreter, value):
    """Return a new leaf of an interpreter of `grad`, an input of differentiation."""
    cdef Tensor leaf = enter_at(interpreter, value, None)
    cdef GradientSlot slot = GradientSlot.__new__(GradientSlot)
    slot.is_leaf = True
    leaf.edge = slot
    leaf.word |= TRACKED_FLAG
    return leaf


cdef object call_through_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Run steps 2 to 7 if a transform or the tape may be involved."""
    if frame.word & GATHERED_FLAG and table.signature.mutable:
        return call_writing_back(op, table, frame, state, kind)
    return call_on_stack(op, table, frame, state, kind)


cdef inline object call_on_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    cdef Signature signature = table.signature
    cdef Interpreter innermost = state.innermost
    if frame.word & SHARED_FLAG:
        refresh_arguments(frame, signature)
    if frame.word & WRAPPER_FLAG:
        if find_dead_wrappers(op, signature, frame, state):
            args, kwargs = arguments_with(frame, signature, live_value)
            return op(*args, **kwargs)
    if innermost is None:
        return call_on_tape(op, table, frame, state, kind)
    return innermost.process_frame(op, table, frame, state, kind)


cdef TableEntry composite_instead(OpOverload op, Table table, Frame* frame, Interpreter interpreter):
    """Return the composite kernel that runs instead of a derivative. Raise for a kernel that is opaque."""
    cdef TableEntry entry = autograd_entry(table, frame, frame.word)
    if entry is None or entry.convention & COMPOSITE:
        return entry
    if owns_any(frame, table.signature, interpreter):
        raise upcalls.opaque_autograd_kernel(op, entry, interpreter)
    return None


cdef object autograd_entry(Table table, Frame* frame, uint64_t word):
    """Return the kernel that a user registered for the autograd key of a call. None leaves the call to the tape."""
    cdef uint64_t usable = autograd_keys(<PyObject*>table, word)
    cdef TableEntry entry = table.rows[highest_slot(usable | word & BACKEND_BITS)] if usable else None
    return entry if entry is not None and is_for(entry, table.signature, frame) else None


cdef inline bint is_for(TableEntry entry, Signature signature, Frame* frame) except -1:
    """Return whether the entry serves this call. A composite may serve only some calls, and the formula all others."""
    if entry is None or not entry.convention & CONDITIONAL:
        return True
    args, kwargs = arguments_with(frame, signature, None)
    return entry.kernel.applies(*args, **kwargs)


cdef object composite_entry(Table table, Frame* frame):
    """Return the kernel that these arguments run on the tape if it is a composite, else None."""
    cdef uint64_t word = frame.word
    if not word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):      # raw arrays, or none
        word |= AUTOGRAD_OTHER_BIT if word & SPARSE_BIT else AUTOGRAD_BIT
        if not word & BACKEND_BITS:
            word |= 1
    entry = autograd_entry(table, frame, word)
    return entry if entry is not None and (<TableEntry>entry).convention & COMPOSITE else None


cdef inline uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept:
    """Return the autograd keys among these that have a kernel."""
    return (word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)
            & (<Table>table).masks[bit_length16(word & BACKEND_BITS)])


cdef bint find_dead_wrappers(op, Signature signature, Frame* frame, State state) except -1:
    """Return whether an argument is a dead wrapper. Raise for a wrapper whose transform is not active here."""
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
    cdef Interpreter interpreter
    if not tensor.word & WRAPPER_FLAG:
        return False
    interpreter = (<Wrapper>tensor).interpreter
    if is_value_now(<Wrapper>tensor, state):
        return True
    if is_active(interpreter, state):
        return False
    raise upcalls.inactive_error(op, None if signature is None else signature.names[i], tensor)


def live_value(value):
    """Apply the active substitution to a value, and unwrap dead wrappers."""
    cdef State state = state_now()
    if state.substitute is not None and isinstance(value, Tensor):
        value = state.substitute(value)
    while isinstance(value, Wrapper) and is_value_now(<Wrapper>value, state):
        value = (<Wrapper>value).array
    return value


def unwrap_dead_value(value):
    """Apply the active substitution to a value, and unwrap dead wrappers.

    Raises AutogradError for a value of a transform that is not active here, VmapError for one that has left its
    function.
    """
    value = live_value(value)
    if isinstance(value, Wrapper):
        check_active(value)
    return value


def unwrap_all_dead(list values):
    """Apply `unwrap_dead_value` to each value. Return the same list object if nothing changed."""
    cdef list found = values
    cdef Py_ssize_t i
    for i in range(len(values)):
        if isinstance(values[i], Tensor):
            value = unwrap_dead_value(values[i])
            if value is not values[i]:
                if found is values:
                    found = list(values)
                found[i] = value
    return found


def check_active(Wrapper wrapper):
    """Raise AutogradError for a value of a transform that is running, but not here."""
    is_dead(None, None, -1, wrapper, state_now())


def detach_at(Tensor tensor, Interpreter interpreter or None):
    """Return a new, untracked Tensor of the interpreter on the same memory, with the same tangent."""
    if interpreter is None and tensor.word & PYTHON_BIT:
        return alias_by_handler(tensor)
    if is_uniform(<PyObject*>tensor) and owned_by(<PyObject*>tensor, interpreter):
        return detached_uniform(tensor)
    cdef Tensor alias = wrap_at(interpreter, tensor.array, tangent_of(tensor) if isinstance(tensor, JvpTensor)
                                else None)
    if tensor.word & SCALAR_FLAG:
        alias.word |= SCALAR_FLAG
    elif owned_by(<PyObject*>tensor, interpreter):
        alias.memory = memory_of_detached(tensor)
    return alias


cdef bint owns_any(Frame* frame, Signature signature, Interpreter interpreter) except -1:
    cdef Py_ssize_t i
    if not frame.word & WRAPPER_FLAG:
        return False
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if owned_by(frame.values[i], interpreter):
            return True
        if signature.kind[i] & KIND != ARRAY and not is_tensor_type(Py_TYPE(frame.values[i])):
            for leaf in array_leaves(<object>frame.values[i]):
                if owned_by(<PyObject*>leaf, interpreter):
                    return True
    return False


cdef tuple arguments_with(Frame* frame, Signature signature, change):
    """Return (args, kwargs) of a call, as passed. Apply `change` to every array unless it is None."""
    cdef Py_ssize_t i, positional = 0
    cdef list args = []
    cdef dict kwargs = {}
    for i in range(min(frame.count, signature.n_positional)):
        if frame.values[i] != NULL:
            positional = i + 1
    for i in range(positional):
        args.append(changed(<object>value_or_default(frame, signature, i), change))
    for i in range(signature.n_positional, signature.n_arguments):
        if value_at(frame, i) != NULL:
            kwargs[signature.names[i]] = changed(<object>value_at(frame, i), change)
    return tuple(args), kwargs


cdef object changed(value, change):
    if change is None or not word_of_value(<PyObject*>value) & TENSOR_FLAG:
        return value
    return change(value) if isinstance(value, Tensor) else upcalls.map_arrays(change, value)


cdef object pass_below(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Pass a call unchanged to the interpreter below: none of its arguments belong to this one."""
    cdef Cell around
    cdef State lower = lowered_state(state)
    if frame.original == NULL:
        frame.original = <PyObject*>state
    push_state(&around, lower)
    try:
        return dispatch(op, table, frame, lower, kind)
    finally:
        pop_state(&around)


cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter):
    """Call the operator on the values of the interpreter below, with this interpreter absent."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef Py_ssize_t i
    cdef Cell around
    push_state(&around, lowered_state(state))
    try:
        if frame.direct:
            for i in range(frame.count):
                values[i + 1] = frame.values[i]
                if owned_by(frame.values[i], interpreter):
                    values[i + 1] = <PyObject*>(<Tensor>frame.values[i]).array
            return steal(PyObject_Vectorcall(
                <PyObject*>op, &values[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
        args, kwargs = arguments_with(frame, signature, lambda value: below(value, interpreter))
        return op(*args, **kwargs)
    finally:
        pop_state(&around)


cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter interpreter):
    """Return results of the interpreter below as values of this interpreter. Mutated arguments keep their identity."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return wrap_result(signature, frame, 0, result, interpreter)
    wrapped = []
    for i in range(signature.n_returns):
        wrapped.append(wrap_result(signature, frame, i, result[i], interpreter))
    return tuple(wrapped)


cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    cdef Py_ssize_t source = signature.return_source[i]
    cdef Tensor tensor
    if source >= 0 and value_at(frame, source) != NULL and value_at(frame, source) != Py_None:
        return <object>value_at(frame, source)
    if not signature.return_arrays[i] or result is None:
        return result
    if word_of_array(<PyObject*>result):
        tensor = wrap_at(interpreter, result, None)
        if not tensor.word & SCALAR_FLAG:
            mark_or_share(signature, frame, i, tensor)
        return tensor
    return wrap_leaves(signature, frame, i, result, interpreter)


cdef object wrap_leaves(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    """Apply `wrap_result` to a pytree. This is separate because a function with a closure is slower at each call."""
    return upcalls.map_arrays(lambda leaf: wrap_result(signature, frame, i, leaf, interpreter), result)


cdef object take_results(Signature signature, Frame* frame, result, Interpreter interpreter):
    """Wrap the results of a call without values of the interpreter, which takes new Tensors. Raw results stay raw."""
    cdef Py_ssize_t i
    if signature.n_returns == 0:
        return None
    if signature.n_returns == 1:
        return take_result(signature, frame, 0, result, interpreter)
    taken = []
    for i in range(signature.n_returns):
        taken.append(take_result(signature, frame, i, result[i], interpreter))
    return tuple(taken)


cdef object take_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    if signature.return_views[i] or signature.return_source[i] >= 0:
        return result
    if isinstance(result, Tensor):
        return wrap_result(signature, frame, i, result, interpreter) if is_takeable(<Tensor>result) else result
    if word_of_value(<PyObject*>result) & TENSOR_FLAG:
        return wrap_leaves(signature, frame, i, result, interpreter)
    return result


cdef inline bint is_takeable(Tensor new):
    """Return whether an interpreter may take a new Tensor as its value.

    It may not take a scalar, which is immutable. It may not take a Tensor that the tape has recorded, whose graph users
    walk, or an object of a user's class that wraps a value, which users inspect.
    """
    if new.word & SCALAR_FLAG:
        return False
    return isinstance(new, Wrapper) or not new.word & TRACKED_FLAG and (
        not new.word & PYTHON_BIT or not getattr(new, "wraps", True))


def own_value_at(Interpreter interpreter, value):
    """Return a new array of the interpreter below as a value of one that takes new arrays. None is the tape."""
    if interpreter is None or is_numpy_scalar(value) or owned_by(<PyObject*>value, interpreter) or (
            isinstance(value, Tensor) and not is_takeable(<Tensor>value)):
        return value
    if isinstance(interpreter, Vmap):
        return uniform_value(value, interpreter)
    return wrap_at(interpreter, value, None) if interpreter.takes_new_tensors() else value


cpdef own_value(value):
    """Return a new array as a Tensor of the innermost active transform, whose values can be written to it."""
    return wrap_at(None, own_value_in(state_now().interpreters, value), None)


cdef object own_value_in(InterpreterStack stack, value):
    if stack is None or owned_by(<PyObject*>value, stack.interpreter):
        return value
    return own_value_at(stack.interpreter, own_value_in(stack.outer, value))
