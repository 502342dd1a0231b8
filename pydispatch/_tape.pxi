# --- the tape: places, nodes, derivatives ----------------------------------------------------------------------------

cdef enum:              # what a slot of a node holds
    VALUE = 0               # an argument
    RESULT = 1
    SHAPE = 2               # of an argument
    DTYPE = 3

cdef enum:              # how tangents go through an operator
    BY_FORMULAS = 0         # those of `tangents`, else those for gradients, which serve as well
    LINEAR = 1              # as the arguments do
    MULTILINEAR = 2         # one after the other in place of its argument

cdef enum:              # flags of nodes
    COMPLEX = 1             # gradients are conjugated before and after the formulas
    RELEASED = 2            # what was saved is gone
    HOLDS_ARRAYS = 4        # something saved is worth releasing
    PACKED = 8              # saved values went through a user's hook
    SAME = 16               # both arguments of a symmetric operator are the same Tensor

cdef uint64_t last_sequence = 0
cdef str WITHOUT_TAPE = "view made inside of no_grad"
cdef str ONE_OF_SEVERAL = "view that was made together with others"
cdef str MADE_BY_FUNCTION = "view made by a Function or custom operator"


cdef inline bint is_leaf_edge(edge) noexcept:
    return isinstance(edge, Place) and (<Place>edge).is_leaf


cdef inline Node node_of_edge(edge):
    """The node that an edge leads to; None for a leaf."""
    return <Node>edge if isinstance(edge, Node) else (<Place>edge).node


cdef inline PyObject* node_at(PyObject* edge) noexcept:
    return edge if isinstance(<object>edge, Node) else <PyObject*>(<Place>edge).node


@cython.final
@cython.freelist(64)
@cython.trashcan(True)
cdef class Place:
    """Where gradients arrive: one result of a node, or a leaf."""

    def __repr__(self):
        return "<leaf>" if self.is_leaf else f"<result {self.index} of {self.node!r}>"


@cython.final
cdef class Derivative:
    """The formulas of one operator: one per differentiable argument, and which values each of them takes.

    `inputs` holds, per argument of the schema, the slots that its formula takes after the gradient; `slots` says what
    each slot holds, as (kind, argument).
    """

    def __cinit__(self, *, str name, operator, tuple formulas, tuple inputs, tuple slots, bint broadcasts, bint in_place,
                  uint64_t lists, source, tuple shortcuts=None, forward=None):
        cdef Py_ssize_t i
        if len(slots) > MAX_SLOTS:
            raise ValueError(f"formulas of {operator} save {len(slots)} values, at most {MAX_SLOTS} are possible")
        if len(formulas) > MAX_ARGUMENTS or len(inputs) != len(formulas) or (
                shortcuts is not None and len(shortcuts) != len(formulas)):
            raise ValueError(f"{operator}: one formula per argument, with its inputs and its shortcut")
        self.name = name
        self.operator = operator
        self.formulas = formulas
        self.inputs = inputs
        self.broadcasts = broadcasts
        self.in_place = in_place
        self.lists = lists
        self.shortcuts = shortcuts
        self.source = source
        if isinstance(forward, Derivative):
            self.tangents = forward
        elif forward is not None:
            self.forward = LINEAR if forward == "linear" else MULTILINEAR
        self.n_slots = len(slots)
        self.symmetric = is_symmetric(formulas)
        for i, (kind, argument) in enumerate(slots):
            self.slot_kind[i] = kind
            self.slot_argument[i] = argument
        for i, formula in enumerate(formulas):
            self.needs[i] = 0
            if formula is not None:
                self.differentiable |= bit(i)
                self.needs[i] = checked_needs(inputs[i], self.n_slots)
                if shortcuts is not None:
                    check_shortcut(shortcuts[i], len(inputs[i]) + 1)

    @property
    def is_in_place(self):
        """Does the call write to its first argument?"""
        return self.in_place


cdef uint64_t checked_needs(tuple slots, int n_slots) except? 0:
    """The slots that a formula takes, one bit each."""
    cdef uint64_t needs = 0
    for slot in slots:
        if not 0 <= slot < n_slots or len(slots) > MAX_SLOTS:
            raise ValueError(f"a formula takes the slots {slots}, of {n_slots}")
        needs |= bit(slot)
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
cdef class Node:
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
cdef class RuleNode(Node):
    """A recorded call that functions of a user differentiate."""

    def __init__(self, rule, context, tuple edges, tuple inputs, outputs, returns,
                 Interpreter level or None):
        if self.sequence:
            raise TypeError("a node never changes; record another one")
        check_edges(edges, True)
        self.rule = rule
        self.context = context
        self.edges = edges
        self.inputs = inputs
        self.outputs = outputs
        self.returns = returns
        self.level = level
        self.sequence = next_sequence()

    @property
    def name(self):
        """The operator's or Function's name, and "Backward"."""
        return "RuleNode" if self.rule is None else self.rule.name

    def release(self):
        """Mark what it saved as gone."""
        self.flags |= RELEASED


cdef int check_edges(tuple edges, bint optional) except -1:
    """Raise for what Python code passes, and gradients cannot be sent to."""
    for edge in edges:
        if not isinstance(edge, (Node, Place)) and not (optional and edge is None):
            raise TypeError(f"a gradient goes to a Node or a Place, not to {edge!r}")
    return 0


cdef inline uint64_t next_sequence() noexcept:
    global last_sequence
    last_sequence += 1
    return last_sequence


cdef inline Py_ssize_t n_edges(Node node) noexcept:
    if node.edges is not None:
        return PyTuple_GET_SIZE(<PyObject*>node.edges)
    return 2 if node.edge1 is not None else (1 if node.edge0 is not None else 0)


cdef inline PyObject* edge_of(Node node, Py_ssize_t k) noexcept:
    if node.edges is not None:
        return PyTuple_GET_ITEM(<PyObject*>node.edges, k)
    return <PyObject*>node.edge1 if k else <PyObject*>node.edge0


# --- the tape: recording ---------------------------------------------------------------------------------------------

cdef inline bint owned_by(PyObject* value, Interpreter level) noexcept:
    """Is this a Tensor of the level; of the tape, for None?"""
    if not is_tensor_type(Py_TYPE(value)):
        return False
    if (<Tensor>value).word & WRAPPER_FLAG:
        return level is not None and (<Wrapper>value).interpreter is level
    return level is None


cdef inline bint tracked_at(PyObject* value, Interpreter level) noexcept:
    return owned_by(value, level) and (<Tensor>value).word & TRACKED_FLAG != 0


cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter level) except? 1:
    """The arguments, one bit each, that are tracked at this level or hold something that is."""
    cdef uint64_t tracked = 0
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count):
        value = frame.values[i]
        if value == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(value)):
            if tracked_at(value, level):
                tracked |= bit(i)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(value) & TENSOR_FLAG:
            for leaf in array_leaves(<object>value):
                if tracked_at(<PyObject*>leaf, level):
                    tracked |= bit(i)
                    break
    return tracked


cdef inline bint is_inexact(PyObject* array) except -1:
    """Does the array hold floating-point or complex numbers?"""
    cdef int number
    if Py_TYPE(array) == &PyArray_Type:
        number = PyArray_TYPE(<PyArrayObject*>array)
        return PyTypeNum_ISFLOAT(number) or PyTypeNum_ISCOMPLEX(number)
    return (<object>array).dtype.kind in "fc"


cdef inline bint is_complex(PyObject* array) except -1:
    if Py_TYPE(array) == &PyArray_Type:
        return PyTypeNum_ISCOMPLEX(PyArray_TYPE(<PyArrayObject*>array))
    return (<object>array).dtype.kind == "c"


cdef inline bint same_shape(PyObject* left, PyObject* right) except -1:
    cdef int axis, ndim
    if Py_TYPE(left) != &PyArray_Type or Py_TYPE(right) != &PyArray_Type:
        return tuple((<object>left).shape) == tuple((<object>right).shape)
    ndim = PyArray_NDIM(<PyArrayObject*>left)
    if ndim != PyArray_NDIM(<PyArrayObject*>right):
        return False
    for axis in range(ndim):
        if PyArray_DIMS(<PyArrayObject*>left)[axis] != PyArray_DIMS(<PyArrayObject*>right)[axis]:
            return False
    return True


cdef object shape_of(PyObject* array):
    cdef Py_ssize_t axis, ndim
    cdef list extents
    if Py_TYPE(array) != &PyArray_Type:
        return tuple((<object>array).shape)
    ndim = PyArray_NDIM(<PyArrayObject*>array)
    if ndim == 0:
        return ()
    if ndim == 1:
        return (PyArray_DIMS(<PyArrayObject*>array)[0],)
    if ndim == 2:
        return (PyArray_DIMS(<PyArrayObject*>array)[0], PyArray_DIMS(<PyArrayObject*>array)[1])
    extents = []
    for axis in range(ndim):
        extents.append(PyArray_DIMS(<PyArrayObject*>array)[axis])
    return tuple(extents)


cdef inline object dtype_of(PyObject* array):
    if Py_TYPE(array) == &PyArray_Type:
        return <object>PyArray_DESCR(<PyArrayObject*>array)
    return (<object>array).dtype


cdef bint has_shape(PyObject* array, tuple shape) except -1:
    """Is this the shape of an ndarray?"""
    cdef Py_ssize_t axis
    if PyArray_NDIM(<PyArrayObject*>array) != PyTuple_GET_SIZE(<PyObject*>shape):
        return False
    for axis in range(PyArray_NDIM(<PyArrayObject*>array)):
        if PyArray_DIMS(<PyArrayObject*>array)[axis] != <Py_ssize_t>shape[axis]:
            return False
    return True


cdef bint has_leading(PyObject* array, tuple shape) except -1:
    """Is the shape of an ndarray one more axis and then this?"""
    cdef Py_ssize_t axis
    if PyArray_NDIM(<PyArrayObject*>array) != PyTuple_GET_SIZE(<PyObject*>shape) + 1:
        return False
    for axis in range(PyTuple_GET_SIZE(<PyObject*>shape)):
        if PyArray_DIMS(<PyArrayObject*>array)[axis + 1] != <Py_ssize_t>shape[axis]:
            return False
    return True


cdef inline bint same_dtype(PyObject* left, PyObject* right) except -1:
    if Py_TYPE(left) == &PyArray_Type and Py_TYPE(right) == &PyArray_Type:
        if PyArray_DESCR(<PyArrayObject*>left) == PyArray_DESCR(<PyArrayObject*>right):
            return True
    return (<object>left).dtype == (<object>right).dtype


cdef Node record(Derivative derivative, Signature signature, Frame* frame, PyObject* result, uint64_t tracked,
                 Interpreter level, State state, list copies):
    """A node for one call. `result` is the array at the bottom of the result; of several, NULL."""
    cdef Node node = Node.__new__(Node)
    cdef uint64_t needs = 0, rest = tracked
    cdef Py_ssize_t i, k = 0
    cdef PyObject* value
    cdef PyObject* array
    cdef list edges = None, targets = None
    node.derivative = derivative
    node.arguments = tracked
    node.level = level
    if result != NULL and is_complex(result):
        node.flags |= COMPLEX
    if derivative.lists & tracked or tracked & (tracked - 1) and (tracked & (tracked - 1)) & ((tracked & (tracked - 1)) - 1):
        edges = []
    while rest:
        i = lowest_bit(rest)
        rest &= rest - 1
        needs |= derivative.needs[i]
        value = frame.values[i]
        if derivative.lists & bit(i):
            add_list_edges(node, <object>value, edges, targets, result, level)
            targets = node.targets
            k = len(edges)
            continue
        if copies is not None and copies[i] is not None:
            value = <PyObject*>copies[i]
        array = <PyObject*>(<Tensor>value).array
        if Py_TYPE(array) != &PyArray_Type:
            array = bottom_of(<Tensor>value)
        if result != NULL:
            if (derivative.broadcasts and not same_shape(array, result)) or not same_dtype(array, result):
                if targets is None:
                    targets = [None] * k
                targets.append((shape_of(array) if derivative.broadcasts else None, dtype_of(array)))
                if is_complex(array):
                    node.flags |= COMPLEX
            elif targets is not None:
                targets.append(None)
        if edges is not None:
            edges.append((<Tensor>value).edge)
        elif k == 0:
            node.edge0 = (<Tensor>value).edge
        else:
            node.edge1 = (<Tensor>value).edge
        k += 1
    if edges is not None:
        node.edges = tuple(edges)
    node.targets = targets
    if derivative.symmetric and frame.values[0] == frame.values[1] and targets is None and copies is None:
        node.flags |= SAME
    node.sequence = next_sequence()
    if needs:
        save(node, signature, frame, needs, state, copies)
    if state.anomaly:
        python_side["note_origin"](node)
    return node


cdef int add_list_edges(
    Node node, values, list edges, list targets, PyObject* result, Interpreter level
) except -1:
    """The edges of an argument that is a list, and what their gradients are to be brought to."""
    cdef PyObject* array
    targets = [None] * len(edges) if targets is None else targets
    for value in values:
        if not tracked_at(<PyObject*>value, level):
            edges.append(None)
            targets.append(None)
            continue
        array = bottom_of(value)
        edges.append((<Tensor>value).edge)
        targets.append(None if result == NULL or same_dtype(array, result) else (None, (<object>array).dtype))
        if is_complex(array):
            node.flags |= COMPLEX
    node.targets = targets
    return 0


cdef inline bint hooks_apply(State state) noexcept:
    return isinstance(state.saved_hooks, (tuple, str))


cdef int save(Node node, Signature signature, Frame* frame, uint64_t needs, State state, list copies) except -1:
    """Put what the formulas need into the slots; a result follows when it is wrapped."""
    cdef Derivative derivative = node.derivative
    cdef Py_ssize_t slot, i
    cdef PyObject* found
    cdef unsigned int count
    cdef object value
    if derivative.n_slots > 4:
        node.saved0 = [None] * derivative.n_slots
    while needs:
        slot = lowest_bit(needs)
        needs &= needs - 1
        if derivative.slot_kind[slot] == RESULT:
            continue
        i = derivative.slot_argument[slot]
        found = value_by_position(frame, signature, i)
        count = 0
        value = <object>found
        if derivative.slot_kind[slot] != VALUE:
            value = described(value, derivative.slot_kind[slot])
        elif signature.arrays & bit(i) and word_of_value(found):
            if copies is not None and copies[i] is not None:
                value = copies[i]
            if is_tensor_type(Py_TYPE(<PyObject*>value)):
                if node.level is None and (<Tensor>value).word & INFERENCE_FLAG:
                    raise python_side["inference_error"](node, value)
                count = total_writes(<Tensor>value)
            node.flags |= HOLDS_ARRAYS
            if hooks_apply(state):
                value = python_side["pack"](state.saved_hooks, value, node)
                node.flags |= PACKED
        put_in_slot(node, slot, value, count)
    return 0


cdef inline PyObject* value_by_position(Frame* frame, Signature signature, Py_ssize_t i) except NULL:
    """The value of an argument, by default its default."""
    cdef PyObject* value = value_at(frame, i)
    return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i) if value == NULL else value


cdef object described(value, int kind):
    """Shape or dtype of an argument, of each element of a list."""
    if is_tensor_type(Py_TYPE(<PyObject*>value)):
        value = raw_array(<Tensor>value)
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return shape_of(<PyObject*>value) if kind == SHAPE else <object>PyArray_DESCR(<PyArrayObject*><PyObject*>value)
    if isinstance(value, (tuple, list)):
        descriptions = []
        for item in value:
            descriptions.append(described(item, kind))
        return tuple(descriptions)
    if kind == SHAPE:
        return tuple(getattr(value, "shape", ()))
    return value.dtype if hasattr(value, "dtype") else numpy_asarray(value).dtype


cdef int save_result(Node node, Tensor result, State state) except -1:
    """Put a result into the slot for it, if its formulas need one."""
    cdef Derivative derivative = node.derivative
    cdef Py_ssize_t slot, i
    cdef uint64_t rest = node.arguments, needs = 0
    cdef unsigned int count
    cdef object value
    while rest:
        i = lowest_bit(rest)
        rest &= rest - 1
        needs |= derivative.needs[i]
    for slot in range(derivative.n_slots):
        if not needs & bit(slot) or derivative.slot_kind[slot] != RESULT:
            continue
        node.memory = counter_of(result)
        count = total_writes(result)
        node.flags |= HOLDS_ARRAYS
        value = result.array
        if result.word & PYTHON_BIT:
            value = alias_by_handler(result)    # its class says what it holds; itself would be a cycle
        if hooks_apply(state):
            value = python_side["pack"](state.saved_hooks, detach(result), node)
            node.flags |= PACKED
        put_in_slot(node, slot, value, count)
    return 0


cdef int put_in_slot(Node node, Py_ssize_t slot, value, unsigned int writes) except -1:
    if node.derivative.n_slots > 4:
        (<list>node.saved0)[slot] = value
        if writes:
            if node.saved1 is None:
                node.saved1 = [0] * node.derivative.n_slots
            (<list>node.saved1)[slot] = writes
    elif slot == 0:
        node.saved0, node.writes0 = value, writes
    elif slot == 1:
        node.saved1, node.writes1 = value, writes
    elif slot == 2:
        node.saved2, node.writes2 = value, writes
    else:
        node.saved3, node.writes3 = value, writes
    return 0


cdef object unpack(Node node, Py_ssize_t slot, bint create_graph):
    """What a slot holds, checked: as values of the level below, or of this level to be recorded again."""
    cdef Derivative derivative = node.derivative
    cdef object value
    cdef unsigned int writes
    if node.flags & RELEASED and derivative.slot_kind[slot] <= RESULT:
        raise python_side["released_error"](node)
    if derivative.n_slots > 4:
        value = (<list>node.saved0)[slot]
        writes = 0 if node.saved1 is None else (<list>node.saved1)[slot]
    elif slot == 0:
        value, writes = node.saved0, node.writes0
    elif slot == 1:
        value, writes = node.saved1, node.writes1
    elif slot == 2:
        value, writes = node.saved2, node.writes2
    else:
        value, writes = node.saved3, node.writes3
    if derivative.slot_kind[slot] == RESULT:
        return unpack_result(node, value, writes, create_graph)
    if derivative.slot_kind[slot] != VALUE:
        return value
    if node.flags & PACKED and isinstance(value, python_side["Packed"]):
        value = value.unpack(create_graph, None)
    elif is_tensor_type(Py_TYPE(<PyObject*>value)):
        if total_writes(<Tensor>value) != writes:
            raise python_side["modified_error"](node, slot, value, writes, total_writes(<Tensor>value))
    elif isinstance(value, (tuple, list)) and not create_graph:
        return all_below(value, node.level)
    return value if create_graph else below(value, node.level)


cdef object unpack_result(Node node, value, unsigned int writes, bint create_graph):
    cdef Tensor result
    if node.flags & PACKED and isinstance(value, python_side["Packed"]):
        value = value.unpack(create_graph, node)
        return value if create_graph else below(value, node.level)
    found = writes_to(node.memory) + (total_writes(<Tensor>value) if isinstance(value, Tensor) and node.level is not None
                                      else 0)
    if found != writes:
        raise python_side["modified_error"](node, -1, value, writes, found)
    if isinstance(value, Tensor) and node.level is None:
        value = alias_by_handler(value)
    if not create_graph:
        return value
    result = wrap_at(node.level, value, None)
    result.memory = node.memory
    result.edge = node
    result.word |= TRACKED_FLAG
    return result


cdef object alias_by_handler(Tensor tensor):
    """Another object for what a Tensor with a handler holds: what its class makes of `detach`."""
    cdef Cell around
    push_cell(&around, with_tape(state_now(), False))
    try:
        alias = python_side["detach"](tensor)
    finally:
        pop_cell(&around)
    if alias is tensor:
        raise python_side["detach_error"](tensor)
    return alias


cdef inline object below(value, Interpreter level):
    """The value of the level below, for values of this level; others are as they are.

    A Tensor whose class has a handler is its own value on the tape: only the handler knows what it holds.
    """
    if owned_by(<PyObject*>value, level) and not (<Tensor>value).word & PYTHON_BIT:
        return (<Tensor>value).array
    return value


cdef tuple all_below(values, Interpreter level):
    """The same for each of a sequence."""
    cdef list lower = []
    for value in values:
        lower.append(below(value, level))
    return tuple(lower)


cdef void release_saved(Node node) noexcept:
    """Let go of what was saved, so that memory is given back while a backward pass goes on."""
    cdef Derivative derivative = node.derivative
    if derivative is None or not node.flags & HOLDS_ARRAYS:
        return
    node.flags |= RELEASED
    node.memory = None
    if derivative.n_slots > 4:
        node.saved0 = None
        return
    if derivative.slot_kind[0] <= RESULT:
        node.saved0 = None
    if derivative.n_slots > 1 and derivative.slot_kind[1] <= RESULT:
        node.saved1 = None
    if derivative.n_slots > 2 and derivative.slot_kind[2] <= RESULT:
        node.saved2 = None
    if derivative.n_slots > 3 and derivative.slot_kind[3] <= RESULT:
        node.saved3 = None


# --- the tape: Tensors ----------------------------------------------------------------------------------------------

cdef int set_requires_grad(Tensor tensor, bint flag) except -1:
    cdef Place place
    refresh(tensor)
    if flag and tensor.word & WRAPPER_FLAG and (
            (<Wrapper>tensor).interpreter.alive or Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE):
        raise AutogradError(
            f"requires_grad cannot be set on a value of {described_level((<Wrapper>tensor).interpreter)}\n"
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
            place = Place.__new__(Place)
            place.is_leaf = True
            tensor.edge = place
        tensor.word |= TRACKED_FLAG
    else:
        tensor.word &= ~TRACKED_FLAG
    if tensor.memory is not None and tensor.memory.array is not None:
        tensor.memory.is_leaf = flag
        tensor.memory.edge = tensor.edge if flag else None
    return 0


cdef int refresh(Tensor tensor) except -1:
    """Where the memory was written to through another of its views, find out where the gradient goes now."""
    if not is_fresh(tensor):
        set_edge(tensor, regenerated_edge(tensor, tensor.memory))
    return 0


cdef inline bint is_fresh(Tensor tensor) noexcept:
    """Has the memory not been written to, on the tape, since it was found out where the gradient goes?"""
    cdef Memory memory = tensor.memory
    if memory is None or memory.generation == 0 or isinstance(tensor, JvpTensor):
        return True
    return isinstance(tensor.edge, Place) and (<Place>tensor.edge).generation == memory.generation


cdef object regenerated_edge(Tensor tensor, Memory memory):
    cdef PyObject* array = bottom_of(tensor)
    if isinstance(tensor.edge, Place) and (<Place>tensor.edge).creation == WITHOUT_TAPE:
        raise AutogradError(
            f"a view of shape {tensor.shape} was made inside of no_grad, and its memory has been written to since with the "
            "tape on: whether it is a constant is ambiguous\nmake the view with the tape on, or detach it: tensor.detach()"
        )
    if is_whole(array, memory):
        return memory.edge
    return python_side["view_node"](tensor, memory.array, memory.edge, level_of(tensor))


cdef bint is_whole(PyObject* array, Memory memory) except -1:
    """Is this array all of the memory, in the same order?"""
    cdef object whole = memory.array
    if <object>array is whole:
        return True
    if isinstance(<object>array, MetaArray):
        return same_shape(array, <PyObject*>whole) and (<object>array).base is whole
    return (same_shape(array, <PyObject*>whole) and same_dtype(array, <PyObject*>whole)
            and address(<object>array) == address(whole) and (<object>array).strides == whole.strides)


cpdef address(array):
    """Where the first element of an array lies in memory."""
    if Py_TYPE(<PyObject*>array) == &PyArray_Type:
        return <size_t>PyArray_DATA(<PyArrayObject*><PyObject*>array)
    return array.__array_interface__["data"][0]


cdef inline Interpreter level_of(Tensor tensor):
    return (<Wrapper>tensor).interpreter if tensor.word & WRAPPER_FLAG else None


cdef int set_edge(Tensor tensor, edge) except -1:
    """Say where the gradient of a Tensor goes, noting how often its memory's has changed."""
    cdef Place place
    cdef Place old = <Place>tensor.edge if isinstance(tensor.edge, Place) else None
    cdef bint retains = old is not None and old.retains
    if retains or tensor.memory is not None and tensor.memory.generation:
        place = Place.__new__(Place)
        place.node = node_of_edge(edge)
        place.index = 0 if isinstance(edge, Node) else (<Place>edge).index
        place.generation = 0 if tensor.memory is None else tensor.memory.generation
        if isinstance(edge, Place):
            place.creation = (<Place>edge).creation
        if old is not None and place.creation is None:
            place.creation = old.creation
        edge = place
    tensor.edge = edge
    tensor.word |= TRACKED_FLAG
    if retains:
        python_side["move_retained"](tensor, old, place)
    return 0


cdef int rebase(Tensor tensor, Node node) except -1:
    """A Tensor was written to in place by the call of `node`: its gradient goes there, and that of its memory too."""
    cdef Memory memory = tensor.memory
    if not tensor.word & SHARED_FLAG or memory is None or memory.array is None:
        return set_edge(tensor, node)
    if is_whole(bottom_of(tensor), memory):
        memory.edge = node
    else:
        memory.edge = python_side["written_node"](tensor, memory.array, memory.edge, node, level_of(tensor))
    memory.is_leaf = False
    memory.generation += 1
    return set_edge(tensor, regenerated_edge(tensor, memory))


# --- what Python code asks of the tape -------------------------------------------------------------------------------

cdef int refuse_constant(Tensor tensor, str use) except -1:
    """Raise where a conversion would lose a gradient without a word."""
    if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE and not (<Wrapper>tensor).interpreter.alive:
        raise python_side["number_error"](tensor, use)
    if tensor.word & WRAPPER_FLAG and (<Wrapper>tensor).interpreter.alive and not is_constant_at(tensor):
        raise ConversionError(
            f"a value of {described_level((<Wrapper>tensor).interpreter)} was used as {use}, and would become a constant\n"
            + ("compute with operators, or make an operator of what calls NumPy: pydispatch.library.custom_op"
               if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE
               else "compute with operators, or take its value on purpose: pydispatch.func.concrete_value(tensor)")
        )
    if tensor.word & TRACKED_FLAG and state_now().grad and not tensor.word & WRAPPER_FLAG:
        raise AutogradError(
            f"a Tensor that requires grad was used as {use}, and its gradient would be lost\n"
            "take its value on purpose: tensor.detach(), or inside of no_grad()"
        )
    return 0


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
    """Is the gradient of this Tensor asked for? Of a batch, at a level below."""
    if Py_TYPE(<PyObject*>tensor) == BATCHED_TYPE:
        return isinstance(tensor.array, Tensor) and requires_grad_of(tensor.array)
    refresh(tensor)
    return tensor.word & TRACKED_FLAG != 0 and (not isinstance(tensor, Wrapper) or (<Wrapper>tensor).interpreter.alive)


def set_requires_grad_of(Tensor tensor, bint flag):
    """Ask for the gradient of a leaf, or no longer."""
    cdef State state = state_now()
    if flag and innermost_transform(state) is not None:
        raise AutogradError(
            f"requires_grad cannot be set inside of {described_level(innermost_transform(state))}\n"
            "pass the value as a differentiated argument, or make a new leaf: Tensor(array, requires_grad=True)"
        )
    set_requires_grad(tensor, flag)


def edge_of_tensor(Tensor tensor):
    """Where its gradient goes: None, a Node of which it is the only result, or a Place."""
    refresh(tensor)
    if tensor.word & WRAPPER_FLAG and not (<Wrapper>tensor).interpreter.alive and not is_leaf_edge(tensor.edge):
        return None
    return tensor.edge


def place_of(Tensor tensor):
    """The Place of a Tensor, made when it has none yet: something to keep a gradient and hooks in."""
    cdef Place place
    refresh(tensor)
    if isinstance(tensor.edge, Place):
        return tensor.edge
    place = Place.__new__(Place)
    place.node = tensor.edge
    place.generation = 0 if tensor.memory is None else tensor.memory.generation
    tensor.edge = place
    return place


def retain(Place place):
    """Keep the gradient that arrives at this result of a node."""
    place.retains = True


def result_place(Node node, unsigned int index, bint made_by_function=False):
    """A new place for one result of a node; a view that a Function made must not be written to."""
    cdef Place place = Place.__new__(Place)
    place.node = node
    place.index = index
    if made_by_function:
        place.creation = MADE_BY_FUNCTION
    return place


def attach(Tensor tensor, edge):
    """Say where the gradient of a fresh Tensor goes."""
    check_edges((edge,), False)
    set_edge(tensor, edge)


def attach_written(Tensor tensor, Node node):
    """A Tensor was written to in place by the call of this node."""
    rebase(tensor, node)


def note_write(Tensor tensor):
    """Count a write to the memory of a Tensor."""
    count_write(tensor)


def is_leaf_memory(Tensor tensor):
    """Is it a leaf that requires grad, or a view of one?"""
    return tensor.word & TRACKED_FLAG != 0 and is_leaf_edge(tensor.edge) or (
        tensor.memory is not None and tensor.memory.is_leaf)


def is_tracked_at(value, level):
    """Is this a Tensor that is tracked at this level (None: the tape)?"""
    return is_tracked_now(value, level)


def is_any_tracked_at(list values, level):
    """Is one of these values?"""
    for value in values:
        if is_tracked_now(value, level):
            return True
    return False


cdef inline bint is_tracked_now(value, Interpreter level) except -1:
    if isinstance(value, Tensor):
        refresh(value)
    return tracked_at(<PyObject*>value, level)


def is_owned_by(value, level):
    """Is this a Tensor of this level?"""
    return owned_by(<PyObject*>value, level)


def value_below(value, level):
    """The value of the level below, for values of this level; others are as they are."""
    return below(value, level)


def array_of(Tensor tensor not None):
    """The value below, also of a batch, whose axis nobody else is to see."""
    return tensor.array


def bottom_array(Tensor tensor):
    """The raw array at the bottom of all levels."""
    return raw_array(tensor)


def is_view(Tensor tensor):
    """Does it share its memory with another Tensor that is not a detached one?"""
    return tensor.word & SHARED_FLAG != 0


def have_one_memory(left, right):
    """Do two arrays, at the bottom of their levels, belong to one memory?"""
    return memory_owner(left) is memory_owner(right)


def share_through_function(Tensor view, Tensor source):
    """Make `view`, which a Function made of `source`, a view that must not be written to: nobody knows which."""
    cdef Place place = Place.__new__(Place)
    share_memory(view, source)
    place.generation = view.memory.generation
    place.creation = MADE_BY_FUNCTION
    view.edge = place


# --- shapes of gradients ---------------------------------------------------------------------------------------------

cdef object add_reduce = numpy.add.reduce


def expand(value, tuple shape):
    """`value` repeated to `shape`: of an array a read-only view, of a Tensor the operator `broadcast_to`."""
    cdef cnp.npy_intp dims[MAX_AXES]
    cdef cnp.npy_intp strides[MAX_AXES]
    cdef int ndim = check_rank(len(shape)), missing, axis
    cdef PyArrayObject* array
    if is_tensor_type(Py_TYPE(<PyObject*>value)) or (Py_TYPE(<PyObject*>value) != &PyArray_Type and word_of_array(
            <PyObject*>value) & ~CPU_WORD):
        return python_side["broadcast_to"](value, shape)
    if is_numpy_scalar(value):
        value = array_of_scalar(value)
    elif Py_TYPE(<PyObject*>value) != &PyArray_Type:
        value = numpy_asarray(value)
    array = <PyArrayObject*><PyObject*>value
    missing = ndim - PyArray_NDIM(array)
    if missing < 0:
        raise ValueError(f"an array of shape {value.shape} cannot be repeated to shape {shape}")
    for axis in range(ndim):
        dims[axis] = shape[axis]
        strides[axis] = 0
        if axis >= missing and PyArray_DIMS(array)[axis - missing] != 1:
            if PyArray_DIMS(array)[axis - missing] != dims[axis]:
                raise ValueError(f"an array of shape {value.shape} cannot be repeated to shape {shape}")
            strides[axis] = PyArray_STRIDES(array)[axis - missing]
    Py_INCREF(<object>PyArray_DESCR(array))
    result = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), ndim, dims, strides, PyArray_DATA(array), 0, NULL)
    Py_INCREF(value)
    PyArray_SetBaseObject(<PyArrayObject*><PyObject*>result, <PyObject*>value)
    return result


def sum_to(value, tuple shape):
    """`value` summed over the axes that broadcasting added or stretched, to `shape`."""
    cdef PyObject* rows
    cdef tuple found
    cdef Py_ssize_t missing, axis
    cdef list axes
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        if has_shape(<PyObject*>value, shape):
            return value
        if has_leading(<PyObject*>value, shape):
            rows = sum_of_rows(<PyObject*>value)
            return add_reduce(value, 0) if rows == NULL else own(rows)
    found = tuple(value.shape)
    if found == shape:
        return value
    missing = len(found) - len(shape)
    axes = list(range(missing))
    for axis in range(len(shape)):
        if missing + axis < 0 or (shape[axis] == 1 and found[missing + axis] != 1):
            axes.append(missing + axis)
        elif shape[axis] != found[missing + axis]:
            raise ValueError(f"an array of shape {found} cannot be summed to shape {shape}")
    if is_tensor_type(Py_TYPE(<PyObject*>value)) or word_of_array(<PyObject*>value) & ~CPU_WORD:
        total = python_side["sum"](value, tuple(axes))
    else:
        total = add_reduce(value, tuple(axes))
    return total if len(axes) == missing else total.reshape(shape)


cdef object bring_to(gradient, target):
    """The gradient with the shape and dtype of what it is the gradient of."""
    cdef object shape = (<tuple>target)[0], dtype = (<tuple>target)[1]
    if shape is not None:
        gradient = sum_to(gradient, shape)
    if dtype_of(<PyObject*>gradient) is not dtype and gradient.dtype != dtype:
        if dtype.kind != "c" and gradient.dtype.kind == "c":
            gradient = gradient.real
        if gradient.dtype != dtype:
            gradient = gradient.astype(dtype)
    return gradient
