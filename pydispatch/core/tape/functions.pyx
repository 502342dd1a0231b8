# Calls that users' functions differentiate: of `Function` and of custom operators.
#
# In the common call, the arguments are arrays and numbers, none of them in a pytree, and the result is one Tensor or a
# tuple of Tensors. A node then has one edge per argument. Other calls go through `autograd/custom_derivatives.py`.


@cython.trashcan(True)
cdef class Context:
    """The values that one call of a Function or custom operator keeps until its backward pass.

    You may set attributes freely. An attribute that holds an output keeps the graph alive: save Tensors with
    `save_for_backward`.
    """

    def __cinit__(self, tuple needs_input_grad, Interpreter interpreter or None):
        self.needs_input_grad = needs_input_grad
        self.interpreter = interpreter
        self.materialize = True
        self.as_saved = True
        self.dirty = ()
        self.non_differentiable = ()
        self.substitute = state_now().substitute

    def __getattr__(self, str name):
        raise AttributeError(f"ctx has no attribute {name!r}: nothing has set it\n"
                             f"write ctx.{name} = ... in setup_context, or ctx.save_for_backward(...) for arrays")

    def save_for_backward(self, *tensors):
        """Save arrays or None for backward: inputs and outputs.

        An intermediate value is a constant in further derivatives.

        Raises
        ------
        DispatchTypeError
            For anything that is neither an array nor None.
        AutogradError
            If this is called twice.
        """
        if self.to_save is not None:
            raise AutogradError("ctx.save_for_backward was called twice\ncall it once, with all values to save")
        self.to_save = arrays_only("save_for_backward", tensors)

    def save_for_forward(self, *tensors):
        """Save arrays or None for `jvp`."""
        self.for_forward = arrays_only("save_for_forward", tensors)

    @property
    def saved_tensors(self):
        """The values that `save_for_backward` saved.

        Raises AutogradError once they are released or modified in place.
        """
        cdef Py_ssize_t i
        if self.released and self.to_save:
            raise upcalls.released_error(self.node())
        if self.saved is None:
            return self.for_forward or self.to_save or ()
        saved, indices = self.saved, self.indices       # a hook may release them meanwhile
        unpacked = []
        for i in range(len(saved)):
            unpacked.append(unpack_for_user(self, saved[i], indices[i]))
        return tuple(unpacked)

    def mark_dirty(self, *tensors):
        """Declare that forward wrote to these inputs in place. Each must be returned."""
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors):
        """Declare that these outputs have no gradient."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, bint value):
        """Choose what backward gets for outputs that took no part: zeros if True (the default), else None."""
        self.materialize = value

    @property
    def _is_forward(self):
        """Return whether this is the context of a call in forward mode, whose `jvp` runs at once."""
        return self.interpreter is not None and (<Interpreter>self.interpreter).propagates()

    def seal(self, node, outputs):
        """Save the residuals, once the call has returned."""
        if node is not None:
            seal_context(self, node, tuple(outputs))

    def seal_for_forward(self):
        """Save the residuals for `jvp`, which runs at once and sees them from the interpreter below."""
        self.to_save = self.for_forward or self.to_save
        keep_saved(self, self.to_save or (), ())
        self.as_saved = False

    def keep_dependencies(self, tuple tensors):
        """Keep the values that gradients depend on, for a backward that cannot be differentiated again."""
        self.depends_on = tensors

    @property
    def dependencies(self):
        """The values that gradients depend on, at the interpreter that backward runs at."""
        if self.as_saved or self.depends_on is None:
            return self.depends_on or ()
        return all_below(self.depends_on, self.interpreter)


cdef tuple arrays_only(str method, tuple values):
    for i, value in enumerate(values):
        if value is not None and not word_of_array(<PyObject*>value):
            raise DispatchTypeError(
                f"ctx.{method}: argument {i} is {a_type(value)}, expected an array or None\n"
                "keep other values as attributes: ctx.name = value"
            )
    return values


cdef int seal_context(Context ctx, CustomNode node, tuple outputs) except -1:
    ctx.node = weakref_of(node)
    if ctx.to_save:
        keep_saved(ctx, ctx.to_save, outputs)
    else:
        ctx.saved = ()
    return 0


cdef object weakref_of = weakref.ref


cdef int keep_saved(Context ctx, tuple tensors, tuple outputs) except -1:
    """Keep inputs unchanged, and outputs by value and index, so that no cycle keeps the node alive."""
    cdef list saved = [], indices = []
    cdef Py_ssize_t index, k
    cdef State state = state_now()
    for value in tensors:
        index = -1
        if isinstance(value, Tensor):
            if ctx.interpreter is None and (<Tensor>value).word & INFERENCE_FLAG:
                raise upcalls.inference_error(ctx, value)
            for k in range(len(outputs)):
                if outputs[k] is value:
                    index = k
            if hooks_apply(state):
                value = upcalls.pack(state.saved_hooks, value)
            else:
                if index >= 0:
                    value = alias_at(<Tensor>value, ctx.interpreter)
                value = saved_tensor(<Tensor>value)
        elif value is not None:
            value = guarded(value)
        saved.append(value)
        indices.append(index)
    ctx.saved = tuple(saved)
    ctx.indices = tuple(indices)
    ctx.to_save = KEPT if saved else ()     # drop what was passed: outputs would keep the node alive
    return 0


cdef tuple KEPT = (None,)


cdef object unpack_for_user(Context ctx, value, Py_ssize_t index):
    """Return a residual as a Tensor of the interpreter that the user's function runs at."""
    cdef Tensor tensor
    node = None if ctx.node is None else ctx.node()
    if value is None:
        return None
    if not isinstance(value, SavedTensor):
        if isinstance(value, upcalls.Packed):
            return value.unpack(ctx.as_saved, result_slot(node, index) if index >= 0 and node is not None else None)
        return value if value.dtype.kind in "iub" else wrap_at(None, value, None)   # such as positions to index with
    tensor = <Tensor>value_when_saved((<SavedTensor>value).tensor, (<SavedTensor>value).time)
    if not ctx.as_saved and ctx.interpreter is not None:
        value = below(tensor, ctx.interpreter)
        return value if isinstance(value, Tensor) else wrap_at(None, value, None)
    if index < 0:
        return tensor
    tensor = alias_at(tensor, ctx.interpreter)
    if node is not None:
        tensor.edge = result_slot(node, index)
        tensor.word |= TRACKED_FLAG
    return tensor


cdef bint is_flat(tuple values) except -1:
    """Return whether no value is a pytree."""
    for value in values:
        if value is None or is_scalar_type(Py_TYPE(<PyObject*>value)) or word_of_array(<PyObject*>value):
            continue
        if isinstance(value, str):
            continue
        return False
    return True


cdef int record_custom(OpOverload op, derivative, tuple values, output, Interpreter interpreter) except -1:
    """Record a node for a call that has run: call the user's setup function, and attach the results.

    Through `upcalls.record_custom` a recorded call takes 76,000 instructions instead of 18,000.
    """
    cdef Context ctx
    cdef PublishedState around
    cdef Py_ssize_t n = table_of(op).signature.n_returns
    cdef list tracked = []
    if not is_flat(values) or not (isinstance(output, Tensor) if n == 1 else are_tensors(output)):
        upcalls.record_custom(op, derivative, values, output, interpreter)
        return 0
    for value in values:
        tracked.append(tracked_at(<PyObject*>value, interpreter))
    ctx = Context(tuple(tracked), interpreter)
    publish_state(&around, with_tape(state_now(), False) if interpreter is None else state_now())
    try:
        set_up(derivative, ctx, values, output)
    finally:
        withdraw_state(&around)
    attach_flat(derivative, ctx, values, (output,) if isinstance(output, Tensor) else output, interpreter)
    return 0


cdef tuple SETUP_NAMES = ("ctx", "inputs", "output")


cdef int set_up(derivative, Context ctx, tuple values, output) except -1:
    """Call the user's setup: directly if the function takes just these arguments, else through the derivative."""
    cdef PyObject* args[4]
    direct = derivative.direct
    if direct is None:
        derivative.setup(ctx, values, output)
        return 0
    if direct[0] is not None:
        args[1] = <PyObject*>ctx
        args[2] = <PyObject*>values
        args[3] = <PyObject*>output
        steal(PyObject_Vectorcall(
            <PyObject*>direct[0], &args[1], PY_VECTORCALL_ARGUMENTS_OFFSET, <PyObject*>SETUP_NAMES))
    return 0


cdef object entries_of(CustomNode node, Context ctx, list gradients):
    """Return the gradients that the user's backward returns, one entry per argument."""
    cdef Py_ssize_t i, n
    cdef object result
    direct = node.custom_derivative.direct
    if direct is None:
        return node.custom_derivative.backward(ctx, tuple(gradients))
    n = len(node.edges)
    result = direct[1](ctx, *gradients)
    if n == 1 and isinstance(result, Tensor):
        return (result,)
    if type(result) is tuple and len(<tuple>result) == n:
        for i in range(n):
            entry = (<tuple>result)[i]
            if entry is not None and (not isinstance(entry, Tensor) or node.inputs[i] is False):
                return node.custom_derivative.entries(ctx, result)
        return result
    return node.custom_derivative.entries(ctx, result)


cdef bint are_tensors(output) except -1:
    if type(output) is not tuple:
        return False
    for item in <tuple>output:
        if not isinstance(item, Tensor):
            return False
    return True


cdef int attach_flat(derivative, Context ctx, tuple values, tuple outputs, Interpreter interpreter) except -1:
    cdef list edges = [], inputs = [], metas = []
    cdef Py_ssize_t i
    cdef CustomNode node
    cdef Tensor tensor
    cdef GradientSlot slot
    for value in values:
        if tracked_at(<PyObject*>value, interpreter):
            edges.append((<Tensor>value).edge)
            array = raw_array(value)
            inputs.append((tuple(array.shape), dtype_of(<PyObject*>array)))
        else:
            edges.append(None)
            inputs.append(None if word_of_array(<PyObject*>value) else False)
    for tensor in outputs:
        metas.append((tuple(tensor.shape), tensor.dtype))
    node = CustomNode.__new__(CustomNode)
    node.custom_derivative = derivative
    node.context = ctx
    node.edges = tuple(edges)
    node.inputs = tuple(inputs)
    node.outputs = tuple(metas)
    node.interpreter = interpreter
    node.sequence = next_sequence()
    seal_context(ctx, node, outputs)
    if state_now().anomaly:
        upcalls.note_origin(node)
    for i, tensor in enumerate(outputs):
        if is_any_of(tensor, ctx.non_differentiable) or not is_inexact(bottom_of(tensor)):
            continue
        if is_any_of(tensor, ctx.dirty) and len(outputs) == 1:
            rebase(tensor, node)
            continue
        slot = result_slot(node, i)
        if tensor.word & SHARED_FLAG and not is_any_of(tensor, ctx.dirty):
            slot.creation = MADE_BY_FUNCTION
            slot.generation = tensor.memory.generation
        tensor.edge = slot
        tensor.word |= TRACKED_FLAG
    return 0


def attach_custom(derivative, Context ctx, tuple values, tuple outputs, Interpreter interpreter or None):
    """Make the Tensors `outputs` results of a node if an argument is tracked. No value may be a pytree."""
    for value in values:
        if tracked_at(<PyObject*>value, interpreter):
            attach_flat(derivative, ctx, values, outputs, interpreter)
            return


def are_flat(tuple values not None):
    """Return whether no value is a pytree."""
    return is_flat(values)


def are_flat_and_followed(tuple values not None):
    """Return whether no value is a pytree, and one is a Tensor that is differentiated or batched."""
    if is_flat(values):
        for value in values:
            if isinstance(value, Tensor) and followed_in(<Tensor>value) is not None:
                return True
    return False


def arrays_of_constants(tuple values not None):
    """Return a list with arrays for the Tensors that no interpreter follows, and scalars for arrays without axes."""
    cdef list found = []
    cdef State state = state_now()
    cdef bint followed = state.substitute is not None or watches_arrays(state)
    for value in values:
        if Py_TYPE(<PyObject*>value) == TENSOR_TYPE and not followed and not (<Tensor>value).word & TRACKED_FLAG:
            value = (<Tensor>value).array
        if Py_TYPE(<PyObject*>value) == &PyArray_Type and not PyArray_NDIM(<PyArrayObject*><PyObject*>value):
            value = value[()]
        found.append(value)
    return found


def is_flat_call(tuple values, output):
    """Return whether no argument is a pytree, and the output is a Tensor or a tuple of Tensors."""
    return is_flat(values) and (isinstance(output, Tensor) or are_tensors(output))


cdef int release_custom(CustomNode node) except -1:
    """Release the residuals of a node."""
    cdef Context ctx
    if node.context is not None:
        ctx = <Context>node.context
        node.flags |= RELEASED
        ctx.released = True
        ctx.saved = ()
        ctx._recorded = None
    return 0


cpdef bint is_any_of(value, others) except -1:
    """Return whether a value is one of these objects themselves."""
    for other in others:
        if other is value:
            return True
    return False


cdef list apply_custom(CustomNode node, gradients, bint create_graph, bint keep_graph):
    """Return the gradients of a node, one per edge, by its user's backward function."""
    cdef Context ctx
    cdef PublishedState around
    cdef bint before
    cdef list found
    cdef Py_ssize_t i
    if node.context is None:
        return upcalls.apply_custom_on_tape(node, gradients)
    ctx = <Context>node.context
    ctx._keeps_graph = keep_graph
    if node.flags & RELEASED and ctx.to_save:
        raise upcalls.released_error(node)
    found = []
    present = None
    if gradients is not None:
        for gradient in gradients:
            present = gradient if present is None else present
    for i, meta in enumerate(<tuple>node.outputs):
        gradient = None if gradients is None else gradients[i]
        if gradient is not None:
            found.append(gradient if isinstance(gradient, Tensor) else wrap_at(None, gradient, None))
        else:
            found.append(upcalls.zeros_beside(present, meta) if ctx.materialize else None)
    before = ctx.as_saved
    ctx.as_saved = create_graph or node.interpreter is None
    publish_state(&around, state_now() if ctx.substitute is None else with_substitute(state_now(), ctx.substitute))
    try:
        entries = entries_by_user(node, ctx, found)
    finally:
        withdraw_state(&around)
        ctx.as_saved = before
    found = []
    for i, entry in enumerate(entries):
        if entry is not None and node.edges[i] is not None:
            found.append(checked_gradient(node, i, entry, create_graph))
        elif entry is not None and node.inputs[i] is False:
            raise upcalls.needless_gradient(node, i)
        else:
            found.append(None)
    return found


cdef object entries_by_user(CustomNode node, Context ctx, list gradients):
    """Return one gradient per edge, as the user's backward returns them."""
    if node.returns is None:
        return entries_of(node, ctx, gradients)
    return node.returns.flatten(node.custom_derivative.backward(ctx, node.returns.nest(gradients)), node)


cdef object checked_gradient(CustomNode node, Py_ssize_t i, entry, bint create_graph):
    """Check a gradient that a user's function returned, and give it the shape and dtype of the argument."""
    cdef PyObject* array
    shape, dtype = node.inputs[i]
    if Py_TYPE(<PyObject*>entry) == TENSOR_TYPE and not create_graph and not (<Tensor>entry).word & TRACKED_FLAG:
        array = <PyObject*>(<Tensor>entry).array
        if (Py_TYPE(array) == &PyArray_Type and <object>PyArray_DESCR(<PyArrayObject*>array) is dtype
                and (<object>array).shape == shape):
            return <object>array
    return upcalls.checked_gradient(entry, node.inputs[i], i, node, create_graph)


# --- Function ---------------------------------------------------------------------------------------------------------

# These routines are those of autograd/function.py for flat calls on the tape and in `grad`. Without them, a call of a
# Function takes 29,000 instructions instead of 4,300, a recorded one 63,000 instead of 16,000, and its gradient inside
# `grad` 134,000 instead of 49,000. `apply` makes no tuple, which saves a tenth of an unrecorded call.


@cython.final
cdef class FunctionParts:
    """The functions of a Function, in the form that calls use.

    `n_parameters` is the number of arguments that forward takes, -1 if it varies. A Function that is not `is_simple`
    goes through `autograd/function.py`, as do calls whose arguments or outputs are in pytrees.
    """
    cdef readonly object derivative
    cdef object function                # the class, or None for a batch of calls
    cdef object forward
    cdef object setup
    cdef Py_ssize_t n_parameters
    cdef bint is_simple

    def __init__(self, derivative not None, function, forward not None, setup not None, Py_ssize_t n_parameters,
                 bint is_simple):
        self.derivative = derivative
        self.function = function
        self.forward = forward
        self.setup = setup
        self.n_parameters = n_parameters
        self.is_simple = is_simple


cdef str PARTS = "_parts"


cdef class FunctionBase:
    """The part of `autograd.Function` that is in the core: how a class of it is called."""


cdef PyObject* apply(PyObject* cls, PyObject* const* args, Py_ssize_t n) except NULL:
    """Run `Function.apply`, a class method. Calls without a gradient, the most common ones, make no tuple."""
    cdef PyObject* found = lookup_on_type(<PyTypeObject*>cls, <PyObject*>PARTS)
    cdef FunctionParts parts
    cdef State state = state_now()
    cdef uint64_t word
    if found == NULL or (<FunctionParts>found).function is not <object>cls:
        parts = upcalls.parts_of_function(<object>cls)
    else:
        parts = <FunctionParts>found
    if n == parts.n_parameters and parts.is_simple and state.substitute is None and state.innermost is None:
        word = word_of_flat(args, n)
        if not word & SPECIAL_FLAGS:
            output = call_forward(parts, args, n, state)
            if Py_TYPE(<PyObject*>output) == (TENSOR_TYPE if word & TENSOR_FLAG else &PyArray_Type) and (
                    not word & TENSOR_FLAG or is_new_constant(output, args, n)):
                return new_reference(output)
            return new_reference(results_on_tape(parts, tuple_of(args, n), output, state, word, False))
    given = tuple_of(args, n)
    return new_reference(apply_parts(parts, given if n == parts.n_parameters else parts.derivative.bind(given), False))


cdef inline uint64_t word_of_flat(PyObject* const* values, Py_ssize_t n) except? 1:
    """Return the union of the words of all values, or SPECIAL_FLAGS if one may be a pytree."""
    cdef uint64_t word = 0, found
    cdef Py_ssize_t i
    for i in range(n):
        found = word_of_array(values[i])
        if found == 0 and values[i] != Py_None and not is_scalar_type(Py_TYPE(values[i])):
            return SPECIAL_FLAGS
        word |= found
    return word


cdef PyMethodDef definition_of_apply
definition_of_apply.ml_name = b"apply"
definition_of_apply.ml_meth = <PyCFunction>apply
definition_of_apply.ml_flags = METH_FASTCALL
definition_of_apply.ml_doc = b"""apply($type, /, *args)
--

Call the Function. Its outputs are tracked if an argument is."""
extend(FunctionBase, apply=PyDescr_NewClassMethod(<PyTypeObject*>FunctionBase, &definition_of_apply))


def apply_function(FunctionParts parts not None, tuple args not None, bint captured=False):
    """Call a Function in the innermost interpreter. With `captured`, one above owns no argument: none is written to."""
    return apply_parts(parts, args, captured)


cdef object apply_parts(FunctionParts parts, tuple args, bint captured):
    cdef State state = state_now()
    cdef uint64_t word = 0
    cdef PublishedState around
    if state.substitute is not None:
        end_speculative_run()
    if not parts.is_simple or state.substitute is not None or not is_flat(args):
        return upcalls.apply_in_general(parts.derivative, args, captured)
    for value in args:
        word |= word_of_array(<PyObject*>value)
    if word & SHARED_FLAG:
        for value in args:
            if isinstance(value, Tensor):
                refresh(value)
    if state.innermost is None:
        if word & WRAPPER_FLAG:
            return upcalls.apply_in_general(parts.derivative, args, captured)
        return apply_on_tape(parts, args, state, word, captured)
    if not are_of_interpreter(args, state.innermost):
        return upcalls.apply_in_general(parts.derivative, args, captured)
    if state.innermost.batches():
        return parts.derivative.batched(state.innermost, args, captured)
    if Py_TYPE(<PyObject*>state.innermost) != GRAD_INTERPRETER_TYPE:
        return upcalls.apply_in_general(parts.derivative, args, captured)
    if word & WRAPPER_FLAG:
        return apply_in_grad(parts, args, state, captured)
    publish_deeper(&around, lowered_state(state))
    try:
        return apply_parts(parts, args, True)
    finally:
        withdraw_deeper(&around)


cdef bint are_of_interpreter(tuple args, Interpreter interpreter) noexcept:
    """Return whether no argument belongs to another interpreter or is shared by all examples of a batch."""
    for value in args:
        if is_tensor_type(Py_TYPE(<PyObject*>value)) and (<Tensor>value).word & WRAPPER_FLAG:
            if (<Wrapper>value).interpreter is not interpreter or interpreter.is_shared(<Wrapper>value):
                return False
    return True


cdef object apply_on_tape(FunctionParts parts, tuple args, State state, uint64_t word, bint captured):
    """Run a Function below all transforms. Forward runs with the tape off."""
    return results_on_tape(parts, args, call_forward(parts, items_of(args), len(args), state), state, word, captured)


cdef inline object call_forward(FunctionParts parts, PyObject* const* args, Py_ssize_t n, State state):
    cdef PublishedState around
    publish_state(&around, with_tape(state, False))
    try:
        return steal(PyObject_Vectorcall(<PyObject*>parts.forward, args, n, NULL))
    finally:
        withdraw_state(&around)


cdef object results_on_tape(FunctionParts parts, tuple args, output, State state, uint64_t word, bint captured):
    """Convert what forward returned to the results of the call."""
    cdef Context ctx
    if not word & TENSOR_FLAG and not captured and (
            Py_TYPE(<PyObject*>output) == &PyArray_Type or is_numpy_scalar(output)):
        return output       # a constant, computed from constants
    if word & TENSOR_FLAG and not isinstance(output, Tensor) and not are_tensors(output):
        output = wrap(output) if word_of_array(<PyObject*>output) else upcalls.map_arrays(
            lambda value: value if isinstance(value, Tensor) else wrap(value), output)
    if not (state.grad and is_any_tracked(args)) and (
            isinstance(output, Tensor) and is_new_constant(output, items_of(args), len(args))):
        return output       # no gradient needs residuals, and no argument can have been written to
    ctx = Context(needs_of(args, None, state), None)
    call_in(with_tape(state, False), parts.setup, (ctx, args, output))
    return finish_parts(parts, ctx, args, output, None, state, captured)


cdef bint is_any_tracked(tuple args) except -1:
    for value in args:
        if tracked_at(<PyObject*>value, None):
            return True
    return False


cdef inline bint is_new_constant(Tensor output, PyObject* const* args, Py_ssize_t n) noexcept:
    """Return whether an output is neither tracked nor one of the arguments."""
    cdef Py_ssize_t i
    for i in range(n):
        if args[i] == <PyObject*>output:
            return False
    return not output.word & TRACKED_FLAG


cdef object apply_in_grad(FunctionParts parts, tuple args, State state, bint captured):
    """Run a Function at the interpreter of `grad`: call it on the values below, and record one node."""
    cdef Interpreter interpreter = state.innermost
    cdef Context ctx
    cdef PublishedState around
    cdef tuple lower = all_below(args, interpreter)
    cdef list wrapped = []
    publish_deeper(&around, lowered_state(state))
    try:
        output = apply_parts(parts, lower, captured)
    finally:
        withdraw_deeper(&around)
    if word_of_array(<PyObject*>output):
        output = wrap_output(output, lower, args, interpreter)
    elif type(output) is tuple and all_arrays(output):
        for item in <tuple>output:
            wrapped.append(wrap_output(item, lower, args, interpreter))
        output = tuple(wrapped)
    else:
        output = upcalls.wrap_outputs(output, lower, args, interpreter)
    ctx = Context(needs_of(args, interpreter, state), interpreter)
    parts.setup(ctx, args, output)
    return finish_parts(parts, ctx, args, output, interpreter, state, captured)


cdef bint all_arrays(tuple values) except -1:
    for value in values:
        if not word_of_array(<PyObject*>value):
            return False
    return True


cdef tuple needs_of(tuple args, Interpreter interpreter, State state):
    """Return which arguments are tracked at this interpreter, which none is while the tape is off."""
    cdef list needs = []
    for value in args:
        needs.append(state.grad and tracked_at(<PyObject*>value, interpreter))
    return tuple(needs)


cdef object wrap_output(output, tuple lower, tuple args, Interpreter interpreter):
    """Wrap an output of the interpreter below. An argument there becomes the same argument here."""
    cdef Py_ssize_t i
    cdef Tensor wrapper
    for i in range(len(args)):
        if lower[i] is output and owned_by(<PyObject*>args[i], interpreter):
            return args[i]
    wrapper = wrap_at(interpreter, output, None)
    for value in args:
        if owned_by(<PyObject*>value, interpreter) and memory_owner(output) is memory_owner(value):
            share_through_function(wrapper, value)
    return wrapper


cdef object finish_parts(
    FunctionParts parts, Context ctx, tuple args, output, Interpreter interpreter, State state, bint captured
):
    """Make the outputs results of a node if an argument is tracked."""
    cdef tuple outputs
    cdef bint tracked = False
    if isinstance(output, Tensor):
        outputs = (output,)
    elif are_tensors(output):
        outputs = output
    else:
        return upcalls.finish_in_general(parts.derivative, ctx, args, output, interpreter, captured)
    for value in outputs:
        if ctx.dirty or (<Tensor>value).word & TRACKED_FLAG or is_any_of(value, args):
            return upcalls.finish_in_general(parts.derivative, ctx, args, output, interpreter, captured)
    for value in ctx.needs_input_grad:
        tracked |= value
    if tracked:
        attach_flat(parts.derivative, ctx, args, outputs, interpreter)
    return output
