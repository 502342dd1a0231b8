# The tape: nodes, derivatives, and where gradients go.

cdef uint64_t last_sequence = 0
cdef dict WAYS_FORWARD = {"linear": LINEAR, "multilinear": MULTILINEAR}


cdef inline bint is_leaf_edge(edge) noexcept:
    return isinstance(edge, GradientSlot) and (<GradientSlot>edge).is_leaf


cdef inline TapeNode node_of_edge(edge):
    """The node that an edge leads to; None for a leaf."""
    return <TapeNode>edge if isinstance(edge, TapeNode) else (<GradientSlot>edge).node


cdef inline PyObject* node_at(PyObject* edge) noexcept:
    return edge if isinstance(<object>edge, TapeNode) else <PyObject*>(<GradientSlot>edge).node


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class GradientSlot:
    """Where gradients arrive: one result of a node, or a leaf."""

    def __repr__(self):
        return "<leaf>" if self.is_leaf else f"<result {self.index} of {self.node!r}>"


@cython.final
cdef class Derivative:
    """The formulas of one operator: one per differentiable argument, and which values each of them takes.

    `residuals` are what the formulas take beside the gradient, each as (kind, argument). `inputs` holds, per argument
    of the schema, the numbers of those that its formula takes.
    """

    def __cinit__(self, *, str name, operator, tuple formulas, tuple inputs, tuple residuals, bint broadcasts,
                  bint in_place,
                  uint64_t lists, source, tuple fused=None, forward=None, bint joint=False, bint materializes=True):
        cdef Py_ssize_t i
        if len(residuals) > MAX_RESIDUALS:
            raise ValueError(
                f"formulas of {operator} save {len(residuals)} values, at most {MAX_RESIDUALS} are possible")
        if len(formulas) > MAX_ARGUMENTS or len(inputs) != len(formulas) or (
                fused is not None and len(fused) != len(formulas)):
            raise ValueError(f"{operator}: one formula per argument, with its inputs and its fused formula")
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
        for i, (kind, argument) in enumerate(residuals):
            self.residual_kind[i] = kind
            self.residual_argument[i] = argument
        for i, formula in enumerate(formulas):
            self.needs[i] = 0
            if formula is not None:
                self.differentiable |= bit(i)
                self.needs[i] = checked_needs(inputs[i], self.n_residuals)
                if fused is not None:
                    check_fused(fused[i], len(inputs[i]) + 1)

    @property
    def is_in_place(self):
        """Does the call write to its first argument?"""
        return self.in_place


cdef uint64_t checked_needs(tuple residuals, int n_residuals) except? 0:
    """The residuals that a formula takes, one bit each."""
    cdef uint64_t needs = 0
    for index in residuals:
        if not 0 <= index < n_residuals or len(residuals) > MAX_RESIDUALS:
            raise ValueError(f"a formula takes the residuals {residuals}, of {n_residuals}")
        needs |= bit(index)
    return needs


cdef bint is_symmetric(tuple formulas) except -1:
    """Are there two formulas that do the same with the gradient and the other argument, as for a product?"""
    cdef list codes = []
    for formula in formulas:
        if formula is not None:
            codes.append(getattr(formula, "__code__", None))
    return (len(codes) == 2 and codes[0] is not None and codes[1] is not None and codes[0].co_code == codes[1].co_code
            and codes[0].co_argcount == 2 and codes[0].co_names == codes[1].co_names
            and codes[0].co_consts == codes[1].co_consts)


@cython.freelist(512)
@cython.trashcan(True)
cdef class TapeNode:
    """One recorded call of an operator: what its gradients need, and where they go.

    `name` is the operator's, in camel case, and "Backward"; `next_functions` are (node or leaf, index) per argument.
    """

    @property
    def name(self):
        """The operator's or Function's name, and "Backward"."""
        return self.derivative.name

    @property
    def tracked_arguments(self):
        """The positions of the arguments of the operator that the edges belong to."""
        positions = ()
        for i in range(MAX_ARGUMENTS):
            if self.arguments & bit(i):
                positions += (i,)
        return positions

    @property
    def edges_out(self):
        """Where the gradients go, one per tracked argument; None where there is none to send."""
        return tuple([<object>edge_of(self, k) for k in range(n_edges(self))])

    @property
    def n_results(self):
        """How many results the call has that gradients arrive at."""
        return 1 if self.outputs is None else len(self.outputs)

    @property
    def has_result_list(self):
        """Do its gradients come as a list?"""
        return self.outputs is not None

    def __repr__(self):
        return f"<{self.name}>"


@cython.trashcan(True)
cdef class CustomNode(TapeNode):
    """A recorded call that functions of a user differentiate."""

    def __init__(self, derivative, context, tuple edges, tuple inputs, outputs, returns,
                 Interpreter interpreter or None):
        if self.sequence:
            raise TypeError("a node never changes; record another one")
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
        """Mark what it saved as gone."""
        self.flags |= RELEASED


cdef int check_edges(tuple edges, bint optional) except -1:
    """Raise for what Python code passes, and gradients cannot be sent to."""
    for edge in edges:
        if not isinstance(edge, (TapeNode, GradientSlot)) and not (optional and edge is None):
            raise TypeError(f"a gradient goes to a TapeNode or a GradientSlot, not to {edge!r}")
    return 0


cdef inline uint64_t next_sequence() noexcept:
    global last_sequence
    last_sequence += 1
    return last_sequence


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
            (<Wrapper>tensor).interpreter.alive or Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE):
        raise AutogradError(
            f"requires_grad cannot be set on a value of {describe_interpreter((<Wrapper>tensor).interpreter)}\n"
            "pass the value as a differentiated argument of the transform"
        )
    if tensor.edge is not None and tensor.word & TRACKED_FLAG and not is_leaf_edge(tensor.edge):
        if flag:
            return 0
        raise AutogradError(
            "requires_grad of a Tensor that an operator made cannot be taken back\nuse tensor.detach(), a constant"
        )
    if flag and not is_inexact(bottom_of(tensor)):
        raise AutogradError(
            f"a Tensor of dtype {tensor.dtype} cannot require grad: only floating-point and complex ones can\n"
            "convert it first: tensor.astype(float)"
        )
    if flag and tensor.word & INFERENCE_FLAG and not state_now().inference:
        raise AutogradError(
            "a Tensor that was made in inference mode cannot require grad\nuse tensor.copy() outside of inference mode"
        )
    if flag == (tensor.word & TRACKED_FLAG != 0):
        return 0
    if flag:
        if not is_leaf_edge(tensor.edge):
            slot = GradientSlot.__new__(GradientSlot)
            slot.is_leaf = True
            tensor.edge = slot
        tensor.word |= TRACKED_FLAG
    else:
        tensor.word &= ~TRACKED_FLAG
    if tensor.memory is not None and tensor.memory.array is not None:
        tensor.memory.is_leaf = flag
        tensor.memory.edge = tensor.edge if flag else None
    return 0


cdef inline Interpreter interpreter_of(Tensor tensor):
    return (<Wrapper>tensor).interpreter if tensor.word & WRAPPER_FLAG else None


cdef int set_edge(Tensor tensor, edge) except -1:
    """Say where the gradient of a Tensor goes, noting how often its memory's has changed."""
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
    tensor.edge = edge
    tensor.word |= TRACKED_FLAG
    if retains:
        upcalls.move_retained(tensor, old, slot)
    return 0


# --- what Python code asks --------------------------------------------------------------------------------------------


cdef int refuse_constant(Tensor tensor, str use) except -1:
    """Raise where a conversion would lose a gradient without a word."""
    if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE and not (<Wrapper>tensor).interpreter.alive:
        raise upcalls.number_error(tensor, use)
    if tensor.word & WRAPPER_FLAG and (<Wrapper>tensor).interpreter.alive and not is_constant_at(tensor):
        raise ConversionError(
            f"a value of {describe_interpreter((<Wrapper>tensor).interpreter)} was used as {use}: "
            "it would become a constant\n"
            + ("compute with operators, or make an operator of what calls NumPy: pydispatch.library.custom_op"
               if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE
               else "compute with operators, or take its value on purpose: pydispatch.func.concrete_value(tensor)")
            + way_to_keep(use)
        )
    if tensor.word & TRACKED_FLAG and state_now().grad and not tensor.word & WRAPPER_FLAG:
        raise AutogradError(
            f"a Tensor that requires grad was used as {use}, and its gradient would be lost\n"
            "take its value on purpose: tensor.detach(), or inside of no_grad()" + way_to_keep(use)
        )
    return 0


cdef str way_to_keep(str use):
    """What to write where NumPy was to put values into an array: it reads each by `float()`, or as an array."""
    if use == "float()":
        return "; an array that takes it: pydispatch.numpy.zeros(shape, like=tensor)"
    if use == "a NumPy array":
        return "; an array of several: numpy.stack([...]), not numpy.array([...])"
    return ""


cdef bint is_constant_at(Tensor tensor) except -1:
    """Is this value of a running transform one without a derivative, of integers or bools, and no batch?"""
    cdef PyObject* value = <PyObject*>tensor
    while is_tensor_type(Py_TYPE(value)) and (<Tensor>value).word & WRAPPER_FLAG:
        if Py_TYPE(value) != GRAD_TYPE and Py_TYPE(value) != JVP_TYPE:
            return False
        value = <PyObject*>(<Tensor>value).array
    return not is_inexact(bottom_of(tensor))


def refuse_conversion(Tensor tensor, str use):
    """Raise where a conversion would lose a gradient without a word."""
    refuse_constant(tensor, use)


cdef bint requires_grad_of(Tensor tensor) except -1:
    """Is the gradient of this Tensor asked for? Of a batch, at an interpreter below."""
    if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE:
        return isinstance(tensor.array, Tensor) and requires_grad_of(tensor.array)
    refresh(tensor)
    return tensor.word & TRACKED_FLAG != 0 and (not isinstance(tensor, Wrapper) or (<Wrapper>tensor).interpreter.alive)


def set_requires_grad_of(Tensor tensor, bint flag):
    """Ask for the gradient of a leaf, or no longer."""
    cdef State state = state_now()
    if flag and innermost_transform(state) is not None:
        raise AutogradError(
            f"requires_grad cannot be set inside of {describe_interpreter(innermost_transform(state))}\n"
            "pass the value as a differentiated argument, or make a new leaf: Tensor(array, requires_grad=True)"
        )
    set_requires_grad(tensor, flag)


def edge_of_tensor(Tensor tensor):
    """Where its gradient goes: None, a TapeNode of which it is the only result, or a GradientSlot."""
    refresh(tensor)
    if tensor.word & WRAPPER_FLAG and not (<Wrapper>tensor).interpreter.alive and not is_leaf_edge(tensor.edge):
        return None
    return tensor.edge


def gradient_slot_of(Tensor tensor):
    """The GradientSlot of a Tensor, made when it has none yet: something to keep a gradient and hooks in."""
    cdef GradientSlot slot
    refresh(tensor)
    if isinstance(tensor.edge, GradientSlot):
        return tensor.edge
    slot = GradientSlot.__new__(GradientSlot)
    slot.node = tensor.edge
    slot.generation = 0 if tensor.memory is None else tensor.memory.generation
    tensor.edge = slot
    return slot


def retain(GradientSlot slot):
    """Keep the gradient that arrives at this result of a node."""
    slot.retains = True


cpdef GradientSlot result_slot(TapeNode node, unsigned int index, bint made_by_function=False):
    """A new gradient slot for one result of a node; a view that a Function made must not be written to."""
    cdef GradientSlot slot = GradientSlot.__new__(GradientSlot)
    slot.node = node
    slot.index = index
    if made_by_function:
        slot.creation = MADE_BY_FUNCTION
    return slot


def attach(Tensor tensor, edge):
    """Say where the gradient of a fresh Tensor goes."""
    check_edges((edge,), False)
    set_edge(tensor, edge)


def is_tracked_at(value, interpreter):
    """Is this a Tensor that is tracked at this interpreter (None: the tape)?"""
    return is_tracked_now(value, interpreter)


def is_any_tracked_at(list values, interpreter):
    """Is one of these values?"""
    for value in values:
        if is_tracked_now(value, interpreter):
            return True
    return False


cdef inline bint is_tracked_now(value, Interpreter interpreter) except -1:
    if isinstance(value, Tensor):
        refresh(value)
    return tracked_at(<PyObject*>value, interpreter)


def is_owned_by(value, interpreter):
    """Is this a Tensor of this interpreter?"""
    return owned_by(<PyObject*>value, interpreter)


def value_below(value, interpreter):
    """The value of the interpreter below, for values of this interpreter; others are as they are."""
    return below(value, interpreter)


def leaves_below(leaves, interpreter):
    """`value_below` of each leaf, as a list."""
    cdef list found = []
    for leaf in leaves:
        found.append(below(leaf, interpreter))
    return found


def array_of(Tensor tensor not None):
    """The value below, even of a batch, whose axis users never see."""
    return tensor.array


def bottom_array(Tensor tensor):
    """The raw array at the bottom of all interpreters."""
    return raw_array(tensor)
