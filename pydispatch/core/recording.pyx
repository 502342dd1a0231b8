# Recording: a call becomes a node.


def with_grad_mode(bint on, function, *args):
    """Call a function with the tape on, or off."""
    cdef PublishedState around
    publish_state(&around, with_tape(state_now(), on))
    try:
        return function(*args)
    finally:
        withdraw_state(&around)


cdef object call_on_tape(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """The lowest interpreter: kernels run here, and the tape records what is tracked."""
    cdef Signature signature = table.signature
    cdef uint64_t keys
    keys = effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word)
    if keys & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT) and is_for(table.rows[highest_slot(keys)], signature, frame):
        return run(op, table, frame, keys, state, kind)      # a kernel of a user, or a composite
    if state.removed[bit_length16(frame.word & BACKEND_BITS)] & frame.word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT):
        return run(op, table, frame, keys, state, kind)
    return call_and_record(op, table, frame, state, None, kind)


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
    OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter, CallKind kind
):
    """Run a call below this interpreter, and record it if an argument is tracked."""
    cdef Signature signature = table.signature
    cdef uint64_t tracked = tracked_arguments(frame, signature,
                                              interpreter) if state.grad and not state.inference else 0
    cdef TableEntry composite
    cdef Derivative compiled = None
    cdef list copies = None
    cdef tuple values = None
    cdef object derivative = None, result
    if tracked:
        composite = table.differentiated_as
        if composite is not None:
            return run_entry(op, table, composite, frame, frame.word & KEY_BITS, state, kind)
        derivative = compiled_derivative_of(op, table)
        if isinstance(derivative, Derivative):
            compiled = derivative
            tracked &= compiled.differentiable
            if tracked == 0:
                derivative = compiled = None
        elif derivative is None:
            refuse_constant_write(op, signature, frame, tracked, interpreter)
            tracked = 0
    if signature.mutable:
        check_writes(op, signature, frame, state, interpreter, tracked)
        if compiled is not None and compiled.in_place:
            copies = copies_before_write(compiled, signature, frame, tracked, interpreter)
        elif derivative is not None and compiled is None:
            values = values_before_write(signature, frame, interpreter)
    if interpreter is None:
        result = run_below_tape(op, table, frame, state, kind)
        if state.inference:
            mark_inference(signature, result)
    else:
        if signature.mutable:
            bump_versions(signature, frame)
        result = wrap_results(signature, frame, call_below(op, signature, frame, state, interpreter), interpreter)
    if derivative is not None:
        if interpreter is None and frame.word & PYTHON_BIT and not signature.mutable:
            result = fresh_results(frame, result)
        if compiled is not None:
            record_results(compiled, signature, frame, result, tracked, interpreter, state, copies)
        else:
            if values is None:
                values = tuple([<object>value_or_default(frame, signature, i) for i in range(signature.n_arguments)])
            record_custom(op, derivative, values, result, interpreter)
    elif frame.word & SHARED_FLAG or not signature.returns_fresh_tensor:
        mark_constant_views(frame, signature, result, interpreter)
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


cdef object compiled_derivative_of(OpOverload op, Table table):
    """How an operator is differentiated: a Derivative, a CustomDerivative, or None when its results never are."""
    derivative = table.derivative
    if table.derivative_is_compiled:
        return derivative
    derivative = upcalls.compile_derivative(op, table.signature.schema, derivative)
    check_formulas(derivative, table.signature)
    table.derivative = derivative
    table.derivative_is_compiled = True
    return derivative


def is_tracked_anywhere(value):
    """Is this a Tensor that is tracked at its interpreter, or at one below?"""
    while isinstance(value, Tensor):
        if (<Tensor>value).word & TRACKED_FLAG:
            return True
        value = (<Tensor>value).array
    return False


cdef bint loses_gradient(OpOverload op, Table table, Frame* frame) except -1:
    """Would a constant in place of the result end the gradient of an argument, as far as is known?"""
    cdef Py_ssize_t i
    cdef uint64_t tracked = 0
    try:
        derivative = compiled_derivative_of(op, table)
    except NoDerivativeError:
        return True
    if not isinstance(derivative, Derivative):
        return derivative is not None
    for i in range(frame.count):
        if frame.values[i] != NULL and word_of_value(frame.values[i]) & TRACKED_FLAG:
            tracked |= bit(i)
    return (<Derivative>derivative).differentiable & tracked != 0


cdef int check_formulas(derivative, Signature signature) except -1:
    """Formulas are found by the position of their argument."""
    if isinstance(derivative, Derivative) and len((<Derivative>derivative).formulas) != signature.n_arguments:
        raise ValueError(f"{signature.schema} has {signature.n_arguments} arguments, not as many as its formulas")
    return 0


cdef object run_below_tape(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Steps 3 to 7 without the tape. Kernels that get Tensors run where the tape is excluded."""
    cdef uint64_t keys = effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word)
    cdef PyObject* entry = table.entries[highest_slot(keys)]
    cdef Cell around
    if entry == NULL or (<TableEntry>entry).convention & RAW or not frame.word & TRACKED_FLAG:
        return run(op, table, frame, keys, state, kind)
    if (<TableEntry>entry).convention & HANDLERS:
        return run(op, table, frame, keys, state, kind)
    state = state.derive(None, removed=AUTOGRAD_SLOTS)
    push_cell(&around, state)
    try:
        return run(op, table, frame, keys, state, kind)
    finally:
        pop_cell(&around)


cdef tuple AUTOGRAD_SLOTS = tuple([
    slot for slot in range(1, N_SLOTS) if slot_words[slot] & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)
])


cdef int record_results(Derivative derivative, Signature signature, Frame* frame, result, uint64_t tracked,
                        Interpreter interpreter, State state, list copies) except -1:
    """A node for a call that was run, and the results as its results."""
    cdef TapeNode node
    cdef PyObject* array
    cdef Tensor tensor
    cdef GradientSlot slot
    if isinstance(result, Tensor):
        tensor = <Tensor>result
        array = bottom_of(tensor)
        if not is_inexact(array):
            return 0
        node = record(derivative, signature, frame, array, tracked, interpreter, state, copies)
        save_result(node, tensor, state)
        if derivative.in_place:
            rebase(tensor, node)
        else:
            set_edge(tensor, node)
            if tensor.word & SHARED_FLAG:
                inherit_creation(tensor, signature, frame)
        return 0
    cdef list leaves = [leaf for leaf in array_leaves(result) if isinstance(leaf, Tensor)]
    cdef list outputs = []
    if not leaves or not is_inexact(bottom_of(leaves[0])):
        return 0
    node = record(derivative, signature, frame, NULL, tracked, interpreter, state, copies)
    for leaf in leaves:
        outputs.append((described(leaf, SHAPE), described(leaf, DTYPE)) if Py_TYPE(
            <PyObject*>(<Tensor>leaf).array) == &PyArray_Type else (tuple(leaf.shape), dtype_of(<PyObject*>leaf)))
        if is_complex(bottom_of(leaf)):
            node.flags |= COMPLEX
    node.outputs = tuple(outputs)
    save_results(node, leaves, state)
    for i, leaf in enumerate(leaves):
        slot = result_slot(node, i)
        if (<Tensor>leaf).word & SHARED_FLAG:
            slot.creation = ONE_OF_SEVERAL
            slot.generation = (<Tensor>leaf).memory.generation
        (<Tensor>leaf).edge = slot
        (<Tensor>leaf).word |= TRACKED_FLAG
    return 0


cdef inline bint owned_by(PyObject* value, Interpreter interpreter) noexcept:
    """Is this a Tensor of the interpreter; of the tape, for None?"""
    if not is_tensor_type(Py_TYPE(value)):
        return False
    if (<Tensor>value).word & WRAPPER_FLAG:
        return interpreter is not None and (<Wrapper>value).interpreter is interpreter
    return interpreter is None


cdef inline bint tracked_at(PyObject* value, Interpreter interpreter) noexcept:
    return owned_by(value, interpreter) and (<Tensor>value).word & TRACKED_FLAG != 0


cdef uint64_t tracked_arguments(Frame* frame, Signature signature, Interpreter interpreter) except? 1:
    """The arguments, one bit each, that are tracked at this interpreter or hold something that is."""
    cdef uint64_t tracked = 0
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count):
        value = frame.values[i]
        if value == NULL or not signature.arrays & bit(i):
            continue
        if is_tensor_type(Py_TYPE(value)):
            if tracked_at(value, interpreter):
                tracked |= bit(i)
        elif signature.kind[i] & KIND != ARRAY and word_of_value(value) & TENSOR_FLAG:
            for leaf in array_leaves(<object>value):
                if tracked_at(<PyObject*>leaf, interpreter):
                    tracked |= bit(i)
                    break
    return tracked


cdef TapeNode record(Derivative derivative, Signature signature, Frame* frame, PyObject* result, uint64_t tracked,
                 Interpreter interpreter, State state, list copies):
    """A node for one call. `result` is the array at the bottom of the result; of several, NULL."""
    cdef TapeNode node = TapeNode.__new__(TapeNode)
    cdef uint64_t needs = 0, rest = tracked
    cdef Py_ssize_t i, k = 0
    cdef PyObject* value
    cdef PyObject* array
    cdef uint64_t beyond_two
    cdef list edges = None, targets = None
    node.derivative = derivative
    node.arguments = tracked
    node.interpreter = interpreter
    if result != NULL and is_complex(result):
        node.flags |= COMPLEX
    beyond_two = tracked & (tracked - 1)
    beyond_two &= beyond_two - 1
    if derivative.lists & tracked or beyond_two:
        edges = []
    while rest:
        i = lowest_bit(rest)
        rest &= rest - 1
        needs |= derivative.needs[i]
        value = frame.values[i]
        if derivative.lists & bit(i):
            add_list_edges(node, <object>value, edges, targets, result, interpreter)
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
                targets = [None] * k if targets is None else targets
                targets.append((shape_of(array) if derivative.broadcasts else None, dtype_of(array)))
                if is_complex(array):
                    node.flags |= COMPLEX
            elif targets is not None:
                targets.append(None)
        add_edge(node, k, <Tensor>value, edges)
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
        upcalls.note_origin(node)
    return node


cdef inline void add_edge(TapeNode node, Py_ssize_t k, Tensor value, list edges):
    """The edge of a node's tracked argument number k; the first two are in the node, where there are no more."""
    if edges is not None:
        edges.append(value.edge)
    elif k == 0:
        node.edge0 = value.edge
    else:
        node.edge1 = value.edge


cdef int add_list_edges(
    TapeNode node, values, list edges, list targets, PyObject* result, Interpreter interpreter
) except -1:
    """The edges of an argument that is a list, and what their gradients are to be brought to."""
    cdef PyObject* array
    targets = [None] * len(edges) if targets is None else targets
    for value in values:
        if not tracked_at(<PyObject*>value, interpreter):
            edges.append(None)
            targets.append(None)
            continue
        array = bottom_of(value)
        edges.append((<Tensor>value).edge)
        targets.append(None if result == NULL or same_dtype(array, result) else (None, dtype_of(array)))
        if is_complex(array):
            node.flags |= COMPLEX
    node.targets = targets
    return 0


cdef inline bint hooks_apply(State state) noexcept:
    return isinstance(state.saved_hooks, (tuple, str))


cdef int save(TapeNode node, Signature signature, Frame* frame, uint64_t needs, State state, list copies) except -1:
    """Save what the formulas need; a result follows when it is wrapped."""
    cdef Derivative derivative = node.derivative
    cdef Py_ssize_t index, i
    cdef PyObject* found
    cdef unsigned int count
    cdef object value
    if derivative.n_residuals > 4:
        node.residual0 = [None] * derivative.n_residuals
    while needs:
        index = lowest_bit(needs)
        needs &= needs - 1
        if derivative.residual_kind[index] == RESULT:
            continue
        i = derivative.residual_argument[index]
        found = value_or_default(frame, signature, i)
        count = 0
        value = <object>found
        if derivative.residual_kind[index] != VALUE:
            value = described(value, derivative.residual_kind[index])
        elif signature.arrays & bit(i) and (word_of_array(found) or word_of_value(found)):
            if copies is not None and copies[i] is not None:
                value = copies[i]
            if is_tensor_type(Py_TYPE(<PyObject*>value)):
                if node.interpreter is None and (<Tensor>value).word & INFERENCE_FLAG:
                    raise upcalls.inference_error(node, value)
                count = total_version(<Tensor>value)
            node.flags |= HOLDS_ARRAYS
            if hooks_apply(state):
                value = upcalls.pack(state.saved_hooks, value, node)
                node.flags |= PACKED
        put_residual(node, index, value, count)
    return 0


cdef inline PyObject* value_or_default(Frame* frame, Signature signature, Py_ssize_t i) except NULL:
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
    return dtype_of(<PyObject*>value) if hasattr(value, "dtype") else numpy_asarray(value).dtype


cdef inline Py_ssize_t residual_for_result(TapeNode node) except -2:
    """The number of the residual that the operator returned, if a formula that will run needs it; else -1."""
    cdef Derivative derivative = node.derivative
    cdef Py_ssize_t index
    cdef uint64_t rest = node.arguments, needs = 0
    while rest:
        needs |= derivative.needs[lowest_bit(rest)]
        rest &= rest - 1
    for index in range(derivative.n_residuals):
        if needs & bit(index) and derivative.residual_kind[index] == RESULT:
            return index
    return -1


cdef int save_result(TapeNode node, Tensor result, State state) except -1:
    """Save a result, if a formula needs it."""
    cdef Py_ssize_t index = residual_for_result(node)
    if index >= 0:
        node.memory = version_counter_of(result)
        put_residual(node, index, residual_of_result(node, result, state), total_version(result))
    return 0


cdef int save_results(TapeNode node, list results, State state) except -1:
    """Save several results: the residual is a tuple of all, each with its memory and the version of that."""
    cdef Py_ssize_t index = residual_for_result(node)
    cdef list kept = []
    if index >= 0:
        for result in results:
            kept.append((residual_of_result(node, result, state), version_counter_of(result), total_version(result)))
        put_residual(node, index, tuple(kept), 0)
    return 0


cdef object residual_of_result(TapeNode node, Tensor result, State state):
    """What is kept of a result: a cycle would keep the node alive."""
    node.flags |= HOLDS_ARRAYS
    if hooks_apply(state):
        node.flags |= PACKED
        return upcalls.pack(state.saved_hooks, detach(result), node)
    # a Tensor with a handler: its class says what it holds
    return alias_by_handler(result) if result.word & PYTHON_BIT else result.array


cdef int put_residual(TapeNode node, Py_ssize_t index, value, unsigned int writes) except -1:
    if node.derivative.n_residuals > 4:
        (<list>node.residual0)[index] = value
        if writes:
            if node.residual1 is None:
                node.residual1 = [0] * node.derivative.n_residuals
            (<list>node.residual1)[index] = writes
    elif index == 0:
        node.residual0, node.version0 = value, writes
    elif index == 1:
        node.residual1, node.version1 = value, writes
    elif index == 2:
        node.residual2, node.version2 = value, writes
    else:
        node.residual3, node.version3 = value, writes
    return 0


cdef object unpack(TapeNode node, Py_ssize_t index, bint create_graph):
    """A residual, checked: as values of the interpreter below, or of this interpreter to be recorded again."""
    cdef Derivative derivative = node.derivative
    cdef object value
    cdef unsigned int writes
    if node.flags & RELEASED and derivative.residual_kind[index] <= RESULT:
        raise upcalls.released_error(node)
    if derivative.n_residuals > 4:
        value = (<list>node.residual0)[index]
        writes = 0 if node.residual1 is None else (<list>node.residual1)[index]
    elif index == 0:
        value, writes = node.residual0, node.version0
    elif index == 1:
        value, writes = node.residual1, node.version1
    elif index == 2:
        value, writes = node.residual2, node.version2
    else:
        value, writes = node.residual3, node.version3
    if derivative.residual_kind[index] == RESULT:
        if node.outputs is None:
            return unpack_result(node, value, node.memory, writes, node, create_graph)
        return unpack_results(node, value, create_graph)
    if derivative.residual_kind[index] != VALUE:
        return value
    if node.flags & PACKED and isinstance(value, upcalls.Packed):
        value = value.unpack(create_graph, None)
    elif is_tensor_type(Py_TYPE(<PyObject*>value)):
        if total_version(<Tensor>value) != writes:
            raise upcalls.modified_error(node, index, value, writes, total_version(<Tensor>value))
    elif isinstance(value, (tuple, list)) and not create_graph:
        return all_below(value, node.interpreter)
    return value if create_graph else below(value, node.interpreter)


cdef tuple unpack_results(TapeNode node, tuple kept, bint create_graph):
    cdef list results = []
    for i, (value, memory, writes) in enumerate(kept):
        edge = result_slot(node, i) if create_graph or node.flags & PACKED else None
        results.append(unpack_result(node, value, memory, writes, edge, create_graph))
    return tuple(results)


cdef object unpack_result(TapeNode node, value, Memory memory, unsigned int writes, edge, bint create_graph):
    """A saved result; to be recorded again it leads to `edge`, the node or the gradient slot of this result."""
    cdef Tensor result
    if node.flags & PACKED and isinstance(value, upcalls.Packed):
        value = value.unpack(create_graph, edge)
        return value if create_graph else below(value, node.interpreter)
    found = writes_to(memory)
    if isinstance(value, Tensor) and node.interpreter is not None:
        found += total_version(<Tensor>value)
    if found != writes:
        raise upcalls.modified_error(node, -1, value, writes, found)
    if isinstance(value, Tensor) and node.interpreter is None:
        value = alias_by_handler(value)
    if not create_graph:
        return value
    result = wrap_at(node.interpreter, value, None)
    result.memory = memory
    result.edge = edge
    result.word |= TRACKED_FLAG
    return result


cdef object alias_by_handler(Tensor tensor):
    """Another object for what a Tensor with a handler holds: what its class makes of `detach`."""
    cdef Cell around
    push_cell(&around, with_tape(state_now(), False))
    try:
        alias = upcalls.detach(tensor)
    finally:
        pop_cell(&around)
    if alias is tensor:
        raise upcalls.detach_error(tensor)
    return alias


cdef inline object below(value, Interpreter interpreter):
    """The value of the interpreter below, for values of this interpreter; others are as they are.

    A Tensor whose class has a handler is its own value on the tape: only the handler knows what it holds.
    """
    if owned_by(<PyObject*>value, interpreter) and not (<Tensor>value).word & PYTHON_BIT:
        return (<Tensor>value).array
    return value


cdef tuple all_below(values, Interpreter interpreter):
    """`below` for each of a sequence."""
    cdef list lower = []
    for value in values:
        lower.append(below(value, interpreter))
    return tuple(lower)


cdef void release_saved(TapeNode node) noexcept:
    """Let go of what was saved, so that memory is given back while a backward pass goes on."""
    cdef Derivative derivative = node.derivative
    if derivative is None or not node.flags & HOLDS_ARRAYS:
        return
    node.flags |= RELEASED
    node.memory = None
    if derivative.n_residuals > 4:
        node.residual0 = None
        return
    cdef PyObject* saved
    if derivative.residual_kind[0] <= RESULT:
        saved = give(node.residual0)
        node.residual0 = None
        let_go(saved)
    if derivative.n_residuals > 1 and derivative.residual_kind[1] <= RESULT:
        saved = give(node.residual1)
        node.residual1 = None
        let_go(saved)
    if derivative.n_residuals > 2 and derivative.residual_kind[2] <= RESULT:
        node.residual2 = None
    if derivative.n_residuals > 3 and derivative.residual_kind[3] <= RESULT:
        node.residual3 = None


# --- the fast path ----------------------------------------------------------------------------------------------------


cdef inline bint recording_fast_path(
    PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result
) except -1:
    """A fast path for recording: a library operator with fresh results, on the tape or in the innermost `grad`.

    It serves operators without a derivative too, whose results are constants.
    """
    cdef Signature signature = (<Table>table).signature
    cdef uint64_t special = frame.word & SPECIAL_FLAGS
    if (not special & (TRACKED_FLAG | WRAPPER_FLAG) or special & INFERENCE_FLAG
            or special & SHARED_FLAG and not all_fresh(frame)
            or frame.word & PYTHON_BIT or not (<State>state).grad or (<State>state).inference or frame.names != NULL
            or (<State>state).traced or (<State>state).substitute is not None
            or not signature.returns_fresh_tensor and not signature.returns_fresh_tensors
            or autograd_keys(table, frame.word)):
        return False
    if special & WRAPPER_FLAG:
        if (<State>state).innermost is None or Py_TYPE(<PyObject*>(<State>state).innermost) != GRAD_INTERPRETER_TYPE:
            return False
        if not all_owned(frame, state):
            return False
    elif not (<State>state).unchanged:
        return False
    if (signature.returns_fresh_tensor and Py_TYPE(<PyObject*>(<Table>table).derivative) == DERIVATIVE_TYPE
            and (<Table>table).differentiated_as is None):
        result[0] = (<recorded_call>call_recorded)(op, table, state, frame)
        return True
    return other_fast_path(op, table, state, frame, result)


cdef bint other_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result) except -1:
    """`recording_fast_path` for operators without a derivative, with several results, and for composites."""
    cdef Signature signature = (<Table>table).signature
    if (<Table>table).differentiated_as is not None:
        return composite_fast_path(op, table, state, frame, result)
    if Py_TYPE(<PyObject*>(<Table>table).derivative) != DERIVATIVE_TYPE and (
            not (<Table>table).derivative_is_compiled or (<Table>table).derivative is not None
            or frame.word & SHARED_FLAG or signature.mutable or not signature.returns_fresh_tensor):
        return False
    if signature.returns_fresh_tensor:
        result[0] = (<recorded_call>call_recorded)(op, table, state, frame)
    else:
        result[0] = (<recorded_call>call_recorded_several)(op, table, state, frame)
    return True


cdef bint composite_fast_path(
    PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result
) except -1:
    """`recording_fast_path` for an operator that is differentiated as a composite: what it calls is recorded."""
    cdef PyObject* entry = <PyObject*>(<Table>table).differentiated_as
    if not is_plain(entry) or (<TableEntry>entry).convention & (RAW | FRESH) or not (
            tracked_arguments(frame, (<Table>table).signature, (<State>state).innermost)):
        return False
    result[0] = (<composite_call>call_composite)(op, table, state, entry, frame)
    return True


cdef PyObject* call_composite(
    PyObject* op, PyObject* table, PyObject* state, PyObject* entry, Frame* frame
) except NULL:
    cdef Signature signature = (<Table>table).signature
    cdef TableEntry held = <TableEntry>entry
    value = own(call_directly_or_recorded(op, table, state, entry, frame))
    if not signature.returns_fresh_tensor or not isinstance(value, Tensor):
        value = finish(<OpOverload>op, signature, held, frame, value)
    return give(value)


# the same function, for a caller that passes the exception on as NULL
ctypedef PyObject* (*composite_call)(PyObject*, PyObject*, PyObject*, PyObject*, Frame*) noexcept

DERIVATIVE_TYPE = <PyTypeObject*>Derivative
GRAD_INTERPRETER_TYPE = <PyTypeObject*>Grad

# the same function, for a caller that passes the exception on as NULL
ctypedef PyObject* (*recorded_call)(PyObject*, PyObject*, PyObject*, Frame*) noexcept


cdef inline bint all_owned(Frame* frame, PyObject* state) except -1:
    """Is every Tensor among the values of the innermost interpreter, or a constant over an array of NumPy's?

    Such a constant counts as its array where nothing below tells the two apart.
    """
    cdef Py_ssize_t i
    cdef bint has_constant = False
    for i in range(frame.count):
        if Py_TYPE(frame.values[i]) == GRAD_TYPE:
            if (<Wrapper>frame.values[i]).interpreter is not (<State>state).innermost:
                return False
        elif Py_TYPE(frame.values[i]) == TENSOR_TYPE:
            if ((<Tensor>frame.values[i]).word & TRACKED_FLAG
                    or Py_TYPE(<PyObject*>(<Tensor>frame.values[i]).array) != &PyArray_Type):
                return False
            has_constant = True
        elif is_tensor_type(Py_TYPE(frame.values[i])):
            return False
    return not has_constant or lowered_state(<State>state).plain


cdef inline bint all_fresh(Frame* frame) noexcept:
    """Does every view among the values know where its gradient goes?"""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if is_tensor_type(Py_TYPE(frame.values[i])) and not is_fresh(<Tensor>frame.values[i]):
            return False
    return True


cdef PyObject* call_recorded(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except NULL:
    cdef Signature signature = (<Table>table).signature
    cdef Derivative derivative = <Derivative>(<Table>table).derivative
    cdef Interpreter interpreter = (<State>state).innermost
    cdef State held = <State>state
    cdef object value = value_of_kernel(<OpOverload>op, <Table>table, held, frame, interpreter)
    cdef Tensor result
    cdef TapeNode node
    cdef PyObject* array
    cdef uint64_t tracked = 0
    if derivative is not None:
        tracked = tracked_arguments(frame, signature, interpreter) & derivative.differentiable
    if Py_TYPE(<PyObject*>value) != &PyArray_Type:
        result = wrap_at(interpreter, value, None)
    elif interpreter is None:
        result = <Tensor>own(wrap_ndarray(give(value)))
    else:       # of `grad`: see recording_fast_path
        result = wrap_ndarray_in(<Grad>interpreter, value)
    array = <PyObject*>result.array
    if Py_TYPE(array) != &PyArray_Type:
        array = bottom_of(result)
    if tracked and is_inexact(array):
        node = record(derivative, signature, frame, array, tracked, interpreter, held, None)
        save_result(node, result, held)
        result.edge = node
        result.word |= TRACKED_FLAG
    return give(result)


cdef PyObject* call_recorded_several(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except NULL:
    """`call_recorded` for an operator with several results."""
    cdef Signature signature = (<Table>table).signature
    cdef Derivative derivative = <Derivative>(<Table>table).derivative
    cdef Interpreter interpreter = (<State>state).innermost
    cdef State held = <State>state
    cdef object value = value_of_kernel(<OpOverload>op, <Table>table, held, frame, interpreter)
    cdef tuple results = wrap_each(<tuple?>value, interpreter)
    cdef uint64_t tracked = tracked_arguments(frame, signature, interpreter) & derivative.differentiable
    if tracked:
        record_results(derivative, signature, frame, results, tracked, interpreter, held, None)
    return give(results)


cdef tuple wrap_each(tuple values, Interpreter interpreter):
    """Values of the interpreter below as values of this interpreter."""
    cdef Py_ssize_t i, n = PyTuple_GET_SIZE(<PyObject*>values)
    cdef tuple wrapped = PyTuple_New(n)
    for i in range(n):
        item = wrap_at(interpreter, <object>PyTuple_GET_ITEM(<PyObject*>values, i), None)
        Py_INCREF(item)
        PyTuple_SET_ITEM(wrapped, i, item)
    return wrapped


cdef inline object value_of_kernel(OpOverload op, Table table, State state, Frame* frame, Interpreter interpreter):
    """The result of the call on the values of the interpreter below."""
    cdef State lower
    cdef PyObject* result
    if interpreter is None:
        return value_at_bottom(op, table, state, frame, frame.word, None)
    lower = state.lowered if state.lowered is not None else lowered_state(state)
    if lower.plain and are_plain_numbers(frame):
        result = result_of_loop(op, table, lower, frame)
        if result != NULL:
            return own(result)
    return value_below_interpreter(op, table, lower, frame, interpreter)


cdef inline bint are_plain_numbers(Frame* frame) noexcept:
    """Are all values below NumPy's arrays and Python's floats?"""
    cdef Py_ssize_t i
    for i in range(1, frame.count + 1):
        if Py_TYPE(frame.raw[i]) != &PyArray_Type and Py_TYPE(frame.raw[i]) != &PyFloat_Type:
            return False
    return True


cdef inline PyObject* result_of_loop(OpOverload op, Table table, State lower, Frame* frame) except? NULL:
    """The result of a kernel that is a loop, which does not look at the state; NULL for another kernel."""
    cdef PyObject* entry = table.entries[
        highest_slot(effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>lower, CPU_WORD))]
    if (entry == NULL or not is_plain(entry) or not (<TableEntry>entry).convention & RAW
            or not (<TableEntry>entry).loop.kind or (<TableEntry>entry).loop.n_in != frame.count):
        return NULL
    return call_loop(&(<TableEntry>entry).loop, &frame.raw[1])


cdef object value_below_interpreter(OpOverload op, Table table, State lower, Frame* frame, Interpreter interpreter):
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef Cell around
    go_deeper(&around, lower)
    try:
        for i in range(frame.count):
            word |= word_of_array(frame.raw[i + 1])
        if word & TENSOR_FLAG or not lower.unchanged:
            return own(PyObject_Vectorcall(
                <PyObject*>op, &frame.raw[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
        return value_at_bottom(op, table, lower, frame, word, interpreter)
    finally:
        come_back(&around)


cdef inline object value_at_bottom(
    OpOverload op, Table table, State state, Frame* frame, uint64_t word, Interpreter interpreter
):
    """The result of the kernel, where there is no interpreter below."""
    cdef PyObject* entry = table.entries[
        highest_slot(effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, word))]
    if entry == NULL or not is_plain(entry) or not (<TableEntry>entry).convention & RAW:
        return call_in_order(op, table, frame, state, interpreter)
    value = own(call_directly_or_recorded(<PyObject*>op, <PyObject*>table, <PyObject*>state, entry, frame))
    if Py_TYPE(<PyObject*>value) != &PyArray_Type and not are_raw_results(table.signature, <PyObject*>value):
        value = unwrap_value(finish(op, table.signature, <TableEntry>entry, frame, value))
    return value


cdef bint are_raw_results(Signature signature, PyObject* value) noexcept:
    """Is this the tuple of NumPy's arrays that an operator with several results returns?"""
    cdef Py_ssize_t i
    if not signature.returns_fresh_tensors or not PyTuple_CheckExact(value) or (
            PyTuple_GET_SIZE(value) != signature.n_returns):
        return False
    for i in range(signature.n_returns):
        if Py_TYPE(PyTuple_GET_ITEM(value, i)) != &PyArray_Type and not is_numpy_scalar(
                <object>PyTuple_GET_ITEM(value, i)):
            return False
    return True


cdef object call_in_order(OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter):
    """`value_at_bottom` for kernels that take more than the arguments."""
    if interpreter is None:
        return unwrap_value(run_below_tape(op, table, frame, state, BY_CALL))
    return own(PyObject_Vectorcall(
        <PyObject*>op, &frame.raw[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))
