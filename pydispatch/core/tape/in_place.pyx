# Writes in place, and views, on the tape.


cdef int bump_versions(Signature signature, Frame* frame) except -1:
    cdef Py_ssize_t i
    cdef PyObject* value
    if frame.word & SCALAR_FLAG:
        refuse_scalars(signature, frame)
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL:
            value = frame.values[i]
            if is_tensor_type(Py_TYPE(value)):
                bump_version(<Tensor>value, signature, frame)
            elif signature.kind[i] & KIND != ARRAY:
                for leaf in array_leaves(<object>value):
                    if isinstance(leaf, Tensor):
                        bump_version(leaf, None, NULL)
    return 0


cdef int refuse_scalars(Signature signature, Frame* frame) except -1:
    """Raise if the call writes to a scalar: scalars are immutable, as NumPy's are.

    A scalar that code for the array API standard works with is an array there.
    """
    cdef Py_ssize_t i
    for i in range(frame.count):
        if signature.mutable & bit(i) and frame.values[i] != NULL:
            for leaf in array_leaves(<object>frame.values[i]):
                if isinstance(leaf, Tensor) and (<Tensor>leaf).word & (SCALAR_FLAG | ASSIGNABLE_FLAG) == SCALAR_FLAG:
                    raise upcalls.scalar_error(signature.schema, signature.names[i])
    return 0


cdef list copies_before_write(
    Derivative derivative, Signature signature, Frame* frame, uint64_t tracked, Interpreter interpreter
):
    """Return, by position, copies of the arguments that a formula needs and that the call is about to overwrite."""
    cdef list copies = [None] * signature.n_arguments
    cdef uint64_t needs = 0
    cdef Py_ssize_t index, i
    cdef PyObject* value
    owner = memory_owner(<object>frame.values[0])
    while tracked:
        i = lowest_bit(tracked)
        tracked &= tracked - 1
        needs |= derivative.needs[i]
    for index in range(derivative.n_residuals):
        if not needs & bit(index) or derivative.residual_kind[index] != VALUE:
            continue
        i = derivative.residual_argument[index]
        value = value_at(frame, i)
        if value == NULL or not word_of_array(value):
            continue
        if i == 0 or memory_owner(<object>value) is owner:
            copies[i] = copy_before_write(<object>value, interpreter)
    return copies


cdef tuple values_before_write(Signature signature, Frame* frame, Interpreter interpreter):
    """Return one value per argument, for users' functions: copies of those that the call is about to overwrite."""
    cdef list values = [<object>value_or_default(frame, signature, i) for i in range(signature.n_arguments)]
    cdef list owners = []
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        if signature.mutable & bit(i):
            for leaf in array_leaves(values[i]):
                owners.append(memory_owner(leaf))

    def copied(leaf):
        owner = memory_owner(leaf)
        return copy_before_write(leaf, interpreter) if any(owner is other for other in owners) else leaf

    for i in range(signature.n_arguments):
        if signature.arrays & bit(i):
            values[i] = upcalls.map_arrays(copied, values[i])
    return tuple(values)


cdef object copy_before_write(value, Interpreter interpreter):
    cdef Tensor tensor, copy
    if not owned_by(<PyObject*>value, interpreter):
        return lowered(interpreter, upcalls.copy_kept, value)
    tensor = <Tensor>value
    if tensor.word & PYTHON_BIT:
        copy = with_grad_mode(False, upcalls.copy_kept, tensor)
    else:
        return alike(tensor, lowered(interpreter, upcalls.copy_kept, tensor.array))
    copy.edge = tensor.edge
    copy.word |= tensor.word & TRACKED_FLAG
    return copy


cdef int refuse_constant_write(
    op, Signature signature, Frame* frame, uint64_t tracked, Interpreter interpreter
) except -1:
    """Refuse an operator without a gradient that overwrites a value with one: the old gradient would still be used."""
    cdef Py_ssize_t i
    cdef PyObject* value
    cdef bint constant
    for i in range(frame.count):
        value = frame.values[i]
        if not signature.mutable & bit(i) or value == NULL or not owned_by(value, interpreter):
            continue
        if interpreter is not None and interpreter.propagates():
            constant = interpreter.tangent_at(<Wrapper>value) is None
        else:
            constant = not (tracked & bit(i) and (<Tensor>value).word & TRACKED_FLAG)
        if not constant or (<Tensor>value).memory is not None and (<Tensor>value).memory.edge is not None:
            raise upcalls.write_error(op, signature.names[i], "NOT_DIFFERENTIABLE", <object>value, interpreter)
    return 0


cdef int check_writes(op, Signature signature, Frame* frame, State state, Interpreter interpreter,
                      uint64_t tracked) except -1:
    """Refuse writes that would lose a gradient, before anything is written."""
    cdef Py_ssize_t i
    if frame.word & SCALAR_FLAG:
        refuse_scalars(signature, frame)
    for i in range(frame.count):
        if not signature.mutable & bit(i) or frame.values[i] == NULL or frame.values[i] == Py_None:
            continue
        if word_of_array(frame.values[i]):
            check_write(op, signature, i, <object>frame.values[i], state, interpreter, tracked)
        else:
            for leaf in array_leaves(<object>frame.values[i]):
                check_write(op, signature, i, leaf, state, interpreter, tracked)
    return 0


cdef int check_write(
    op, Signature signature, Py_ssize_t i, target, State state, Interpreter interpreter, uint64_t tracked
) except -1:
    cdef Tensor tensor
    cdef bint propagates = interpreter is not None and interpreter.propagates()
    if not owned_by(<PyObject*>target, interpreter):
        if interpreter is not None or tracked:
            raise upcalls.write_error(op, signature.names[i], "CAPTURED", target, interpreter)
        return 0
    tensor = <Tensor>target
    if tensor.word & INFERENCE_FLAG and not state.inference:
        raise upcalls.write_error(op, signature.names[i], "INFERENCE", target, interpreter)
    if interpreter is not None and interpreter.arguments is not None and (tracked or propagates):
        upcalls.check_passed_once(op, signature.names[i], target, interpreter)
    if (propagates and isinstance(tensor.edge, GradientSlot)
            and (<GradientSlot>tensor.edge).creation is not None):
        raise upcalls.write_error(op, signature.names[i], (<GradientSlot>tensor.edge).creation, target, interpreter)
    if not state.grad:
        return 0
    if tensor.word & TRACKED_FLAG and is_leaf_edge(tensor.edge):
        raise upcalls.write_error(op, signature.names[i], "LEAF" if interpreter is None else "PRIMAL", target,
                                  interpreter)
    if tensor.word & SHARED_FLAG and tensor.memory.is_leaf:
        raise upcalls.write_error(
            op, signature.names[i], "VIEW_OF_A_LEAF" if interpreter is None else "PRIMAL", target, interpreter)
    if (tensor.word & SHARED_FLAG and isinstance(raw_array(tensor), MetaArray)
            and (tracked or tensor.memory.edge is not None)
            and not (propagates and upcalls.has_no_positions(raw_array(tensor)))):
        raise upcalls.write_error(op, signature.names[i], "WITHOUT_MEMORY", target, interpreter)
    if tracked and upcalls.overlaps_itself(raw_array(tensor)):
        raise upcalls.write_error(op, signature.names[i], "OVERLAP", target, interpreter)
    if isinstance(tensor.edge, GradientSlot) and (<GradientSlot>tensor.edge).creation is not None and (
            tracked or tensor.memory is not None and tensor.memory.edge is not None):
        raise upcalls.write_error(op, signature.names[i], (<GradientSlot>tensor.edge).creation, target, interpreter)
    return 0


cdef int mark_inference(Signature signature, result) except -1:
    """Mark the results of inference mode, which are never differentiated. Views are like the Tensors they view."""
    for leaf in array_leaves(result):
        if isinstance(leaf, Tensor) and not (<Tensor>leaf).word & SHARED_FLAG and (<Tensor>leaf).memory is None:
            (<Tensor>leaf).word |= INFERENCE_FLAG
    return 0


cdef int mark_constant_views(Frame* frame, Signature signature, result, Interpreter interpreter) except -1:
    """Keep a view that was made without the tape a constant, though its memory may be written to later."""
    cdef GradientSlot slot
    cdef object creation = None
    if not frame.word & TENSOR_FLAG or signature.mutable:
        return 0
    for i in range(frame.count):
        if frame.values[i] != NULL and owned_by(frame.values[i], interpreter):
            if (<Tensor>frame.values[i]).word & TRACKED_FLAG:
                creation = MADE_WITHOUT_TAPE
            elif isinstance((<Tensor>frame.values[i]).edge, GradientSlot):
                creation = creation or (<GradientSlot>(<Tensor>frame.values[i]).edge).creation
    if creation is None:
        return 0
    for leaf in array_leaves(result):
        if (owned_by(<PyObject*>leaf, interpreter) and (<Tensor>leaf).word & SHARED_FLAG
            and (<Tensor>leaf).edge is None):
            slot = GradientSlot.__new__(GradientSlot)
            slot.generation = (<Tensor>leaf).memory.generation
            slot.creation = creation
            (<Tensor>leaf).edge = slot
    return 0


cdef int inherit_creation(Tensor view, Signature signature, Frame* frame) except -1:
    """Refuse later writes to a view of a view that must not be written to."""
    cdef GradientSlot slot
    cdef PyObject* value
    for position in signature.return_views[0]:
        value = value_at(frame, position)
        if value != NULL and is_tensor_type(Py_TYPE(value)) and isinstance((<Tensor>value).edge, GradientSlot):
            if (<GradientSlot>(<Tensor>value).edge).creation is not None:
                slot = result_slot(node_of_edge(view.edge), 0)
                slot.generation = view.memory.generation
                slot.creation = (<GradientSlot>(<Tensor>value).edge).creation
                view.edge = slot
    return 0


cdef str MADE_WITHOUT_TAPE = "MADE_WITHOUT_TAPE"
MADE_BY_FUNCTION = "MADE_BY_FUNCTION"


cdef int refresh(Tensor tensor) except -1:
    """Update the edge of a Tensor whose memory was written to through another view."""
    if not is_fresh(tensor):
        set_edge(tensor, regenerated_edge(tensor, tensor.memory))
    return 0


cdef inline bint is_fresh(Tensor tensor) noexcept:
    """Return whether no recorded write to the memory came after the edge was found."""
    cdef Memory memory = tensor.memory
    if memory is None or memory.generation == 0 or Py_TYPE(<PyObject*>tensor) == JVP_TYPE:
        return True
    return isinstance(tensor.edge, GradientSlot) and (<GradientSlot>tensor.edge).generation == memory.generation


cdef object regenerated_edge(Tensor tensor, Memory memory):
    cdef PyObject* array = bottom_of(tensor)
    if isinstance(tensor.edge, GradientSlot) and (<GradientSlot>tensor.edge).creation == MADE_WITHOUT_TAPE:
        raise AutogradError(
            f"a view of shape {tensor.shape} was made inside no_grad, but its memory has been written to since then "
            "in grad mode, so it is ambiguous whether the view is a constant\n"
            "make the view in grad mode, or detach it: tensor.detach()"
        )
    if is_whole(array, memory):
        return memory.edge
    return upcalls.view_node(tensor, memory.array, memory.edge, interpreter_of(tensor))


cdef bint is_whole(PyObject* array, Memory memory) except -1:
    """Return whether an array is the whole memory, in the same order."""
    cdef object whole = memory.array
    if <object>array is whole:
        return True
    if isinstance(<object>array, MetaArray):
        return same_shape(array, <PyObject*>whole) and (<object>array).base is whole
    return (same_shape(array, <PyObject*>whole) and same_dtype(array, <PyObject*>whole)
            and address(<object>array) == address(whole) and (<object>array).strides == whole.strides)


cdef int rebase(Tensor tensor, TapeNode node) except -1:
    """Make `node`, whose call wrote to a Tensor in place, the edge of the Tensor and of its memory."""
    cdef Memory memory = tensor.memory
    if not tensor.word & SHARED_FLAG or memory is None or memory.array is None:
        return set_edge(tensor, node)
    edge = node
    if not is_whole(bottom_of(tensor), memory):
        edge = upcalls.written_node(tensor, memory.array, memory.edge, node, interpreter_of(tensor))
    former = memory.edge
    memory.edge = edge
    keep_for_readers(former)
    memory.is_leaf = False
    memory.generation += 1
    return set_edge(tensor, regenerated_edge(tensor, memory))


def attach_written(Tensor tensor, TapeNode node):
    """Make a node, whose call wrote to a Tensor in place, the edge of the Tensor and of its memory."""
    rebase(tensor, node)


def note_write(Tensor tensor):
    """Count a write to the memory of a Tensor that is about to be made."""
    bump_version(tensor, None, NULL)


def note_write_of_function(Tensor tensor):
    """Count a write that a function of a user has made, maybe to the array itself."""
    version_counter_of(tensor)
    if not tensor.memory.lists_saves:
        start_listing(tensor)
    note_late_write(tensor)
    bump_version(tensor, None, NULL)


def is_leaf_memory(Tensor tensor):
    """Return whether a Tensor is a leaf that requires grad, or a view of one."""
    return tensor.word & TRACKED_FLAG != 0 and is_leaf_edge(tensor.edge) or (
        tensor.memory is not None and tensor.memory.is_leaf)


def is_view(Tensor tensor):
    """Return whether a Tensor shares its memory with another Tensor that is not detached."""
    return tensor.word & SHARED_FLAG != 0


def base_of(Tensor tensor not None, array):
    """Return a Tensor, detached, around the array that the array under a Tensor is a view of. Writes are counted."""
    cdef Tensor base = wrap(array)
    base.memory = memory_of_detached(tensor)
    return base


def share_through_function(Tensor view, Tensor source):
    """Make `view`, which a Function made of `source`, a view that must not be written to: its elements are unknown."""
    cdef GradientSlot slot = GradientSlot.__new__(GradientSlot)
    share_memory(view, source)
    slot.generation = view.memory.generation
    slot.creation = MADE_BY_FUNCTION
    view.edge = slot


# --- memory -----------------------------------------------------------------------------------------------------------


cdef Memory memory_of_detached(Tensor tensor):
    """Return a memory that shares the write counter of `tensor` but has its own gradients."""
    cdef Memory detached = Memory.__new__(Memory)
    detached.source = version_counter_of(tensor)
    if tensor.word & TRACKED_FLAG:
        detached.source.followed = True
    detached.lists_saves = True
    if not tensor.memory.lists_saves:
        start_listing(tensor)
    return detached


cdef int share_memory(Tensor view, Tensor source) except -1:
    """Make `view` one of the views of the memory of `source`."""
    if IS_FREE_THREADED:
        with cython.critical_section(source):
            return share_memory_held(view, source)
    return share_memory_held(view, source)


cdef inline int share_memory_held(Tensor view, Tensor source) except -1:
    cdef Memory memory = memory_of(source)
    if memory.array is None:
        # A separate object. Nodes that saved a result count its writes in the first one, which must not refer back to
        # them.
        former = memory
        memory = memory_of_detached(source)
        memory.array = raw_array(source)
        memory.edge = (<Wrapper>source).interpreter.edge_at(source) if source.word & WRAPPER_FLAG else source.edge
        memory.is_leaf = is_leaf_edge(source.edge)
        source.memory = memory
        keep_for_readers(former)
    view.memory = memory
    if source.word & WRAPPER_FLAG:
        (<Wrapper>source).interpreter.note_view(view, source)
    add_flags(&source.word, SHARED_FLAG)
    view.word |= SHARED_FLAG | (source.word & (INFERENCE_FLAG | GATHERED_FLAG))
    return 0


cdef int bump_version(Tensor tensor, Signature signature, Frame* frame) except -1:
    cdef Memory memory = memory_of(tensor)
    before_write(tensor, signature, frame)
    if memory.source is not None:
        memory = memory.source
    number_after(&memory.writes)
    return 0


def may_be_written(Tensor tensor not None):
    """Return whether code that gets the array under a Tensor may write to it.

    If so, the residuals over the memory are copied first. Code may not write if a gradient depends on the memory: the
    Tensor is tracked or shares its memory with one that is, or it is a value of a transform.
    """
    if tensor.word & (WRAPPER_FLAG | TRACKED_FLAG) or tensor.memory is not None and version_counter_of(tensor).followed:
        return False
    before_write(tensor, None, NULL)
    return True
