# The stack of transforms and modes. The tape is below all of them.
#
# The innermost transform processes a call. It calls the operator again on the values of the interpreter below, with
# itself absent, and wraps the results. Under all transforms the tape does the same with raw arrays and kernels.
# `interpreter` is the transform, or None for the tape.


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
            return map_results(take_result, signature, frame, result, self) if self.takes_new_tensors() else result
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

    cdef bint releases(self, Wrapper value, State state) noexcept:
        return not self.alive or state is not None and state.derives and not is_active(self, state)

    cdef object owned(self, value):
        return wrap_at(self, value, None) if self.takes_new_tensors() else value

    cdef bint propagates(self) noexcept:
        return False

    cdef bint batches(self) noexcept:
        return False

    cdef Py_ssize_t hidden_axes(self, Wrapper value) noexcept:
        return 0

    cdef object whole(self, Wrapper value):
        return value.array

    cdef bint is_shared(self, Wrapper value) noexcept:
        return False

    cdef object tangent_at(self, Wrapper value):
        return None

    cdef object edge_at(self, Tensor value):
        return value.edge

    cdef bint tracks(self, Wrapper value) except -1:
        refresh(value)
        return value.word & TRACKED_FLAG != 0

    cdef Tensor alike(self, Wrapper value, other):
        return with_edge_of(value, wrap_at(self, other, None))

    cdef PyObject* laid_out(self, Wrapper value) except? NULL:
        return NULL

    cdef int note_view(self, Tensor view, Tensor source) except -1:
        return 0


cdef class Differentiator(Interpreter):
    """The interpreter of a transform that differentiates the calls on its values."""

    @property
    def differentiates(self):
        return True

    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        cdef TableEntry composite = composite_instead(op, table, frame, self)
        if composite is not None:
            return run_entry(op, table, composite, frame, frame.word & KEY_BITS, state, kind)
        return self.differentiate_call(op, table, frame, state, kind)

    cdef object differentiate_call(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        raise NotImplementedError

    cdef bint takes_new_tensors(self) noexcept:
        return True


cdef int enter_interpreter(Interpreter interpreter) except -1:
    """Push an interpreter on the stack."""
    cdef State state = state_now()
    interpreter.check_entering(state)
    interpreter.serial = next_sequence()
    interpreter.entered = state
    set_state(state_under(interpreter, state))
    interpreter.alive = True
    return 0


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


def raised(Interpreter interpreter or None, function, *args):
    """Call a function with the absent `interpreter` as the innermost transform again. None is the tape."""
    return function(*args) if interpreter is None else call_in(
        state_under(interpreter, state_now()), function, args)


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


def below_transforms(function, *args):
    """Call a function with the innermost transforms absent: on the tape, or in the innermost mode."""
    return call_in(without_transforms(state_now()), function, args)


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
    if HAS_FREE_LISTS and (slots.tp_basicsize - smallest_wrapper) // <Py_ssize_t>sizeof(PyObject*) < SIZES_OF_WRAPPERS:
        slots.tp_alloc = allocate_wrapper
        slots.tp_free = free_wrapper
    return 0


smallest_wrapper = (<vectorcallable*>Wrapper).tp_basicsize
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
    if is_batched(entered) and rank_of(<PyObject*>entered) == 0:
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


cdef object composite_entry(Table table, Frame* frame):
    """Return the kernel that these arguments run on the tape if it is a composite, else None."""
    cdef uint64_t word = frame.word
    if not word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):      # raw arrays, or none
        word |= AUTOGRAD_OTHER_BIT if word & SPARSE_BIT else AUTOGRAD_BIT
        if not word & BACKEND_BITS:
            word |= 1
    entry = autograd_entry(table, frame, word)
    return entry if entry is not None and (<TableEntry>entry).convention & COMPOSITE else None


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


cdef object take_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter):
    """Wrap a result of a call without values of the interpreter, which takes new Tensors. Raw results stay raw."""
    if signature.return_views[i] or signature.return_source[i] >= 0:
        return result
    if isinstance(result, Tensor):
        return wrap_result(signature, frame, i, result, interpreter) if is_takeable(<Tensor>result) else result
    if word_of_value(<PyObject*>result) & TENSOR_FLAG:
        return wrap_leaves(signature, frame, i, result, interpreter)
    return result


cdef inline bint is_takeable(Tensor new):
    """Return whether an interpreter may take a new Tensor as its value.

    It must not take a scalar, which is immutable. It must not take a Tensor that the tape has recorded, because users
    walk its graph, or an object of a user's class that wraps a value, because users inspect it.
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
    return interpreter.owned(value)


cpdef own_value(value):
    """Return a new array as a Tensor of the innermost active transform, whose values can be written to it."""
    return wrap_at(None, own_value_in(state_now().interpreters, value), None)


cdef object own_value_in(InterpreterStack stack, value):
    if stack is None or owned_by(<PyObject*>value, stack.interpreter):
        return value
    return own_value_at(stack.interpreter, own_value_in(stack.outer, value))


# --- constants --------------------------------------------------------------------------------------------------------


@cython.binding(True)        # a method of Tensor
def detach(Tensor tensor):
    """Return the same values as a constant for every interpreter. The result shares memory and its version counter."""
    return constant_of(tensor)


cdef object constant_of(Tensor tensor):
    """Return the same values as a constant. Apply the active substitution first."""
    if state_now().substitute is not None:
        tensor = live_value(tensor)
    return detached(tensor)


cdef object detached(Tensor tensor):
    if is_handled(tensor):
        return upcalls.detach(tensor)
    if is_uniform(<PyObject*>tensor):
        return detached_uniform(tensor)
    if tensor.word & SCALAR_FLAG and (Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE or isinstance(tensor, Wrapper)):
        return detached_scalar(tensor)
    if Py_TYPE(<PyObject*>tensor) == TENSOR_TYPE:
        return Tensor(tensor)
    if not isinstance(tensor, Wrapper):
        return upcalls.detached_subclass(tensor)
    return wrap_at((<Wrapper>tensor).interpreter, detached_value(whole_below(tensor)), None)


cdef Tensor detached_scalar(Tensor tensor):
    cdef Tensor scalar = wrap_at(interpreter_of(tensor), detached_value(tensor.array), None)
    scalar.word |= SCALAR_FLAG
    return scalar


cdef object detached_value(value):
    return detached(value) if isinstance(value, Tensor) else value


def detach_at(Tensor tensor, Interpreter interpreter or None):
    """Return a new, untracked Tensor of the interpreter on the same memory, with the same tangent."""
    return alias_at(tensor, interpreter)


cdef object alias_at(Tensor tensor, Interpreter interpreter):
    if interpreter is None and tensor.word & PYTHON_BIT:
        return alias_by_handler(tensor)
    if is_uniform(<PyObject*>tensor) and owned_by(<PyObject*>tensor, interpreter):
        return detached_uniform(tensor)
    cdef object tangent = (
        (<Wrapper>tensor).interpreter.tangent_at(<Wrapper>tensor) if tensor.word & WRAPPER_FLAG else None)
    cdef Tensor alias = wrap_at(interpreter, whole_below(tensor), tangent)
    if tensor.word & SCALAR_FLAG:
        alias.word |= SCALAR_FLAG
    elif owned_by(<PyObject*>tensor, interpreter):
        alias.memory = memory_of_detached(tensor)
    return alias
