# The tape: nodes, derivatives, and the destinations of gradients.

cdef uint64_t last_sequence = 0
cdef dict OPERATORS_ON_PARTS = {"np::getitem": READS_PART, "np::setitem": WRITES_PART, "np::setitem_": WRITES_PART}
cdef dict SQUARES = {"np::square": ALWAYS, "np::power": BY_EXPONENT, "np::float_power": BY_EXPONENT,
                     "np::multiply": BY_ITSELF}
HAVE_KINKS = frozenset(("np::absolute", "np::fabs", "np::hypot", "np::linalg_vector_norm", "np::std"))
cdef dict WAYS_FORWARD = {"linear": LINEAR, "multilinear": MULTILINEAR, "transposed": TRANSPOSED}


cdef inline bint is_leaf_edge(edge) noexcept:
    return isinstance(edge, GradientSlot) and (<GradientSlot>edge).is_leaf


cdef inline TapeNode node_of_edge(edge):
    """Return the node that an edge leads to, None for a leaf."""
    return (<GradientSlot>edge).node if isinstance(edge, GradientSlot) else <TapeNode>edge


cdef inline PyObject* node_at(PyObject* edge) noexcept:
    return <PyObject*>(<GradientSlot>edge).node if isinstance(<object>edge, GradientSlot) else edge


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class GradientSlot:
    """A place where gradients arrive: one result of a node, or a leaf."""

    def __repr__(self):
        return "<leaf>" if self.is_leaf else f"<result {self.index} of {self.node!r}>"


@cython.final
cdef class Derivative:
    """The formulas of one operator: one per differentiable argument, and the values that each of them takes.

    `residuals` are the values that the formulas take beside the gradient, each as (kind, argument). `inputs` has for
    each argument of the schema the indices of the residuals that its formula takes.
    """

    def __cinit__(self, *, str name, operator, tuple formulas, tuple inputs, tuple residuals, bint broadcasts,
                  bint in_place,
                  uint64_t lists, source, tuple fused=None, forward=None, bint joint=False, bint materializes=True,
                  bint is_checked=False):
        cdef Py_ssize_t i
        if len(residuals) > MAX_RESIDUALS:
            raise ValueError(
                f"formulas of {operator} save {len(residuals)} values, expected at most {MAX_RESIDUALS}")
        if len(formulas) > MAX_ARGUMENTS or len(inputs) != len(formulas) or (
                fused is not None and len(fused) != len(formulas)):
            raise ValueError(f"{operator}: expected one formula per argument, with its inputs and its fused formula")
        self.name = name
        self.operator = operator
        self.formulas = formulas
        self.inputs = inputs
        self.broadcasts = broadcasts
        self.in_place = in_place
        self.lists = lists
        self.fused = fused
        self.source = source
        if isinstance(forward, Derivative):
            self.tangents = forward
        elif forward is not None:
            self.forward = WAYS_FORWARD[forward]
        self.n_residuals = len(residuals)
        self.symmetric = not joint and is_symmetric(formulas)
        self.joint = joint
        self.materializes = materializes
        self.is_checked = is_checked
        name = str(getattr(operator, "name", ""))
        self.part = OPERATORS_ON_PARTS.get(name, 0)
        self.squares = SQUARES.get(name, 0)
        self.has_kink = name in HAVE_KINKS
        self.result_residual = -1
        for i, (kind, argument) in enumerate(residuals):
            if kind == RESULT:
                self.result_residual = i
            self.residual_kind[i] = kind
            self.residual_argument[i] = argument
        for i, formula in enumerate(formulas):
            self.needs[i] = 0
            if formula is not None:
                self.differentiable |= bit(i)
                self.needs[i] = checked_needs(inputs[i], self.n_residuals)
                if fused is not None:
                    check_fused(fused[i], len(inputs[i]) + 1)
                if self.in_place or not getattr(formula, "vanishes", False):    # a write replaces a gradient with zeros
                    self.differentiable_inside = ~<uint64_t>0
        self.differentiable_inside &= self.differentiable
        if IS_FREE_THREADED:
            for shared in (self, formulas, fused, inputs, *formulas, *(fused or ())):
                share_freely(shared)

    @property
    def is_in_place(self):
        """Whether the call writes to its first argument."""
        return self.in_place


cdef uint64_t checked_needs(tuple residuals, int n_residuals) except? 0:
    """Return the residuals that a formula takes, one bit each."""
    cdef uint64_t needs = 0
    for index in residuals:
        if not 0 <= index < n_residuals or len(residuals) > MAX_RESIDUALS:
            raise ValueError(f"a formula takes the residuals {residuals}, but there are {n_residuals}")
        needs |= bit(index)
    return needs


cdef bint is_symmetric(tuple formulas) except -1:
    """Return whether two formulas do the same with the gradient and the other argument, as for a product."""
    cdef list codes = []
    for formula in formulas:
        if formula is not None:
            codes.append(getattr(formula, "__code__", None))
    return (len(codes) == 2 and codes[0] is not None and codes[1] is not None and codes[0].co_code == codes[1].co_code
            and codes[0].co_argcount == 2 and codes[0].co_names == codes[1].co_names
            and codes[0].co_consts == codes[1].co_consts)


@cython.freelist(512)
@cython.no_gc_clear         # its deallocation releases residuals. The objects that nodes hold break cycles
cdef class TapeNode:
    """One recorded call of an operator: its residuals, and where its gradients go.

    `name` is the operator's in camel case, and "Backward". `next_functions` are (node or leaf, index) per argument.
    """

    @property
    def name(self):
        """The operator's or Function's name, and "Backward"."""
        return self.derivative.name

    @property
    def tracked_arguments(self):
        """The positions of the operator's arguments to which the edges belong."""
        positions = ()
        for i in range(MAX_ARGUMENTS):
            if self.arguments & bit(i):
                positions += (i,)
        return positions

    @property
    def edges_out(self):
        """The edge of each tracked argument, None for one without."""
        return tuple([<object>edge_of(self, k) for k in range(n_edges(self))])

    @property
    def n_results(self):
        """The number of results of the call at which gradients arrive."""
        return 1 if self.outputs is None else len(self.outputs)

    @property
    def has_result_list(self):
        """Whether its gradients come as a list."""
        return self.outputs is not None

    def __repr__(self):
        return f"<{self.name}>"


@cython.trashcan(True)
cdef class CustomNode(TapeNode):
    """A recorded call that functions of a user differentiate."""

    def __init__(self, derivative, context, tuple edges, tuple inputs, outputs, returns,
                 Interpreter interpreter or None):
        if self.sequence:
            raise TypeError("a node cannot be initialized twice: record a new one")
        check_edges(edges, True)
        self.custom_derivative = derivative
        self.context = context
        self.edges = edges
        self.inputs = inputs
        self.outputs = outputs
        self.returns = returns
        self.interpreter = interpreter
        self.sequence = next_sequence()

    @property
    def name(self):
        """The operator's or Function's name, and "Backward"."""
        return "CustomNode" if self.custom_derivative is None else self.custom_derivative.name

    def release(self):
        """Mark its residuals as released."""
        self.flags |= RELEASED


cdef int check_edges(tuple edges, bint optional) except -1:
    """Raise for objects from Python code that gradients cannot be sent to."""
    for edge in edges:
        if not isinstance(edge, (TapeNode, GradientSlot)) and not (optional and edge is None):
            raise TypeError(f"found the edge {edge!r}, expected a TapeNode or a GradientSlot")
    return 0


cdef inline uint64_t next_sequence() noexcept:
    return number_after(&last_sequence)


cdef inline Py_ssize_t n_edges(TapeNode node) noexcept:
    if node.edges is not None:
        return PyTuple_GET_SIZE(<PyObject*>node.edges)
    return 2 if node.edge1 is not None else (1 if node.edge0 is not None else 0)


cdef inline PyObject* edge_of(TapeNode node, Py_ssize_t k) noexcept:
    if node.edges is not None:
        return PyTuple_GET_ITEM(<PyObject*>node.edges, k)
    return <PyObject*>node.edge1 if k else <PyObject*>node.edge0


# --- Tensors on the tape ----------------------------------------------------------------------------------------------


cdef int set_requires_grad(Tensor tensor, bint flag) except -1:
    cdef GradientSlot slot
    refresh(tensor)
    if flag and tensor.word & WRAPPER_FLAG and (
            (<Wrapper>tensor).interpreter.alive or is_batched(tensor)):
        raise AutogradError(
            f"requires_grad cannot be set on a value of {describe_interpreter((<Wrapper>tensor).interpreter)}\n"
            "pass the value as a differentiated argument of the transform"
        )
    if tensor.edge is not None and tensor.word & TRACKED_FLAG and not is_leaf_edge(tensor.edge):
        if flag:
            return 0
        raise AutogradError(
            "requires_grad of a Tensor that an operator made cannot be unset\nuse a constant: tensor.detach()"
        )
    if flag and not is_inexact(bottom_of(tensor)):
        raise AutogradError(
            f"a Tensor of dtype {tensor.dtype} cannot require grad: only floating-point and complex Tensors can\n"
            "convert it first: tensor.astype(float)"
        )
    if flag and tensor.word & INFERENCE_FLAG and not state_now().inference:
        raise AutogradError(
            "a Tensor that was made in inference mode cannot require grad\nuse tensor.copy() outside inference mode"
        )
    if flag == (tensor.word & TRACKED_FLAG != 0):
        return 0
    if flag:
        if tensor.memory is not None:
            version_counter_of(tensor).followed = True
        if not is_leaf_edge(tensor.edge):
            slot = GradientSlot.__new__(GradientSlot)
            slot.is_leaf = True
            former = tensor.edge
            tensor.edge = slot
            keep_for_readers(former)
        add_flags(&tensor.word, TRACKED_FLAG)
    else:
        remove_flags(&tensor.word, TRACKED_FLAG)
    if tensor.memory is not None and tensor.memory.array is not None:
        tensor.memory.is_leaf = flag
        former = tensor.memory.edge
        tensor.memory.edge = tensor.edge if flag else None
        keep_for_readers(former)
    return 0


cdef int set_edge(Tensor tensor, edge) except -1:
    """Set the edge of a Tensor, and note the generation of its memory."""
    cdef GradientSlot slot
    cdef GradientSlot old = <GradientSlot>tensor.edge if isinstance(tensor.edge, GradientSlot) else None
    cdef bint retains = old is not None and old.retains
    if retains or tensor.memory is not None and tensor.memory.generation:
        slot = GradientSlot.__new__(GradientSlot)
        slot.node = node_of_edge(edge)
        slot.index = 0 if isinstance(edge, TapeNode) else (<GradientSlot>edge).index
        slot.generation = 0 if tensor.memory is None else tensor.memory.generation
        if isinstance(edge, GradientSlot):
            slot.creation = (<GradientSlot>edge).creation
        if old is not None and slot.creation is None:
            slot.creation = old.creation
        edge = slot
    former = tensor.edge
    tensor.edge = edge
    keep_for_readers(former)
    add_flags(&tensor.word, TRACKED_FLAG)
    if retains:
        upcalls.move_retained(tensor, old, slot)
    return 0


# --- for Python code --------------------------------------------------------------------------------------------------


def refuse_conversion(Tensor tensor not None, str use):
    """Raise if a conversion to Python or NumPy would lose a value's gradient, or its batch, without notice.

    Every conversion calls this except that to a truth value. Truth values are piecewise constant and have no gradient
    to lose. They call `check_concrete`.
    """
    cdef Tensor followed
    end_speculative_run()
    followed = followed_in(tensor)
    if followed is not None:
        raise upcalls.conversion_error(followed, use)


def is_followed(Tensor tensor not None):
    """Return whether a Tensor is differentiated or batched, so that `refuse_conversion` would raise."""
    return followed_in(tensor) is not None


cdef Tensor followed_in(Tensor tensor):
    """Return the Tensor, or the value below it, that a transform or the tape tracks, or None.

    Constants of a transform, and values of a transform that no longer runs, are not tracked. A batch comes first: it
    has no single value that could be read on purpose.
    """
    cdef PyObject* value = <PyObject*>tensor
    cdef Tensor found = None
    cdef bint is_batched
    while is_tensor_type(Py_TYPE(value)):
        is_batched = (<Tensor>value).word & WRAPPER_FLAG and (
            <Wrapper>value).interpreter.hidden_axes(<Wrapper>value) != 0
        if is_batched or found is None and follows_value(<Tensor>value):
            found = <Tensor>value
            if is_batched:
                break
        value = <PyObject*>(<Tensor>value).array
    return found


cdef bint follows_value(Tensor value) except -1:
    """Return whether the value's own interpreter, other than `vmap`, tracks it."""
    cdef Interpreter interpreter
    if not value.word & WRAPPER_FLAG:
        if value.edge is None and value.memory is None:
            return False
        refresh(value)
        return value.word & TRACKED_FLAG != 0 and state_now().grad
    interpreter = (<Wrapper>value).interpreter
    if not interpreter.alive:
        return False
    return interpreter.tracks(<Wrapper>value)


cdef bint requires_grad_of(Tensor tensor) except -1:
    """Return whether a Tensor requires grad. A batch does if the value below it does."""
    if is_batched(tensor):
        return isinstance(tensor.array, Tensor) and requires_grad_of(tensor.array)
    refresh(tensor)
    return tensor.word & TRACKED_FLAG != 0 and (not isinstance(tensor, Wrapper) or (<Wrapper>tensor).interpreter.alive)


def set_requires_grad_of(Tensor tensor, bint flag):
    """Make a Tensor a leaf that requires grad, or undo that."""
    cdef State state = state_now()
    if flag and innermost_transform(state) is not None:
        raise AutogradError(
            f"requires_grad cannot be set inside {describe_interpreter(innermost_transform(state))}\n"
            "pass the value as a differentiated argument, or make a new leaf: Tensor(array, requires_grad=True)"
        )
    set_requires_grad(tensor, flag)


def edge_of_tensor(Tensor tensor):
    """Return the edge of a Tensor: None, a TapeNode of which it is the only result, or a GradientSlot."""
    refresh(tensor)
    if tensor.word & WRAPPER_FLAG and not (<Wrapper>tensor).interpreter.alive and not is_leaf_edge(tensor.edge):
        return None
    return tensor.edge


def gradient_slot_of(Tensor tensor):
    """Return the GradientSlot of a Tensor, to keep a gradient and hooks in. Make one if there is none."""
    cdef GradientSlot slot
    refresh(tensor)
    if isinstance(tensor.edge, GradientSlot):
        return tensor.edge
    slot = GradientSlot.__new__(GradientSlot)
    slot.node = tensor.edge
    slot.generation = 0 if tensor.memory is None else tensor.memory.generation
    former = tensor.edge
    tensor.edge = slot
    keep_for_readers(former)
    return slot


def retain(GradientSlot slot):
    """Keep the gradient that arrives at this result of a node."""
    slot.retains = True


cpdef GradientSlot result_slot(TapeNode node, unsigned int index, bint made_by_function=False):
    """Return a new gradient slot for one result of a node. A view that a Function made must not be written to."""
    cdef GradientSlot slot = GradientSlot.__new__(GradientSlot)
    slot.node = node
    slot.index = index
    if made_by_function:
        slot.creation = MADE_BY_FUNCTION
    return slot


def attach(Tensor tensor, edge):
    """Set the edge of a fresh Tensor."""
    check_edges((edge,), False)
    set_edge(tensor, edge)


def is_tracked_at(value, interpreter):
    """Return whether a value is a Tensor that is tracked at this interpreter, or on the tape if that is None."""
    return is_tracked_now(value, interpreter)


def is_any_tracked_at(list values, interpreter):
    """Return whether one of these values is tracked at this interpreter."""
    for value in values:
        if is_tracked_now(value, interpreter):
            return True
    return False


cdef inline bint is_tracked_now(value, Interpreter interpreter) except -1:
    if isinstance(value, Tensor):
        refresh(value)
    return tracked_at(<PyObject*>value, interpreter)


def is_owned_by(value, interpreter):
    """Return whether a value is a Tensor of this interpreter. For `vmap`, uniform values do not count."""
    return owned_by(<PyObject*>value, interpreter) and (
        interpreter is None or not (<Interpreter>interpreter).is_shared(<Wrapper>value))


def value_below(value, interpreter):
    """Return the value below for a value of this interpreter, and any other value unchanged."""
    return below(value, interpreter)


def leaves_below(leaves, interpreter):
    """Return the list of `value_below` of each leaf."""
    cdef list found = []
    for leaf in leaves:
        found.append(below(leaf, interpreter))
    return found


def results_below(leaves, interpreter):
    """Return the results of a function as values of the interpreter below: scalars stay scalars."""
    cdef list found = []
    for leaf in leaves:
        found.append(scalar_below(leaf, interpreter))
    return found


def array_of(Tensor tensor not None):
    """Return the value below, even of a batch, whose axis users never see."""
    return whole_below(tensor)


def bottom_array(Tensor tensor):
    """Return the raw array at the bottom of all interpreters."""
    return raw_array(tensor)
