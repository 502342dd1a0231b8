# The engine: the backward pass over the tape.
#
# Nodes run in descending order of their sequence numbers. A node that consumes a result is younger than the node that
# made it, so the first node of the queue has all its gradients. A leaf gets its gradient as soon as the last node that
# leads to it has run. A walk over the graph has counted these nodes before. Apart from marks, nodes hold no state of a
# run. Runs can therefore be nested, continue in several threads, or end in an exception.

cdef uint64_t last_run = 0


@cython.final
cdef class BackwardPass:
    """One backward pass.

    With `prune`, only the gradients of some edges are wanted. They go to `captured`: those of leaves by their queue
    entries, those of nodes by `captures`, from (address, index) to positions. The nodes on the way are marked as
    needed. Before another run writes its own marks, the needed nodes are remembered as a set. Without `prune`, all
    nodes are needed, and such a set is only made on request.
    """

    def __cinit__(self):
        self.number = 2 * number_after(&last_run)        # marks nodes as seen, the next number as needed
        self.ready = -1
        open_queue(&self.queue)
        if IS_FREE_THREADED:
            open_queue(&self.marks)

    def reaches(self, edge):
        """Return whether this pass will still reach a leaf or node."""
        check_edges((edge,), False)
        if is_leaf_edge(edge):
            return find_entry(&self.queue, <PyObject*>edge) >= 0
        if self.prune:
            return is_needed(self, node_at(<PyObject*>edge)) or captures_node(self, node_at(<PyObject*>edge))
        if not self.unmarked:
            return mark_of(self, node_at(<PyObject*>edge)) in (self.number, self.number + 1)
        if self.frozen is None:
            self.frozen = nodes_from(self.keep_alive[0])
        return <size_t>node_at(<PyObject*>edge) in self.frozen

    def __dealloc__(self):
        cdef Py_ssize_t i
        PyMem_Free(self.needed)
        close_queue(&self.queue)
        close_queue(&self.marks)


def run_backward(tuple roots, tuple gradients, *, bint create_graph, bint keep_graph, tuple inputs or None,
                 Interpreter interpreter or None, bint runs_inputs=False, bint stops=False):
    """Send gradients from the edges `roots` down the graph.

    `inputs` are edges whose gradients are returned, as a list with None for those that no gradient arrived at. Each is
    in memory that nothing else has. If `inputs` is None, the gradients of all leaves are accumulated. Values belong to
    the interpreter below. With `create_graph` they are Tensors of the interpreter itself, and the pass is recorded.
    `runs_inputs` also runs the nodes of the inputs, for their hooks. With `stops`, the graph ends at the inputs: an
    input that another one is computed from gets only the gradients that are sent to it directly, and the hooks of the
    inputs do not run.
    """
    check_edges(roots, True)
    if inputs is not None:
        check_edges(inputs, False)
    return run_pass(roots, gradients, create_graph, keep_graph, inputs, interpreter, runs_inputs, stops)


cdef list run_pass(tuple roots, tuple gradients, bint create_graph, bint keep_graph, tuple inputs,
                   Interpreter interpreter, bint runs_inputs, bint stops=False):
    """Run a backward pass, for callers in Cython. See `run_backward`."""
    global run_here
    cdef BackwardPass run = BackwardPass.__new__(BackwardPass)
    cdef Cell around
    cdef PyObject* run_around = run_here
    cdef State state = state_now()
    cdef Py_ssize_t i
    if has_none(roots):
        raise AutogradError("cannot send a gradient to an untracked value\ncheck `tensor.requires_grad` first")
    run.create_graph = create_graph
    run.keep_graph = keep_graph
    run.interpreter = interpreter
    run.prune = inputs is not None
    run.stops = stops
    run.checks = state.checks
    run.anomaly = state.anomaly
    run.keep_alive = [roots]
    if run.prune:
        want(run, inputs)
    state = state_of_pass(state, gradients, create_graph, interpreter)
    run.runs_fused = state.unchanged and not create_graph
    run.tracer = state.tracer
    run.on_tensors = not create_graph and watches_arrays(state)
    run.around = state.innermost
    push_cell(&around, state)
    run_here = <PyObject*>run
    try:
        begin(run)
        count_dependencies(run, roots)
        if runs_inputs:
            for edge in inputs:
                if not is_leaf_edge(edge):
                    mark_needed(run, node_at(<PyObject*>edge))
        for i in range(PyTuple_GET_SIZE(<PyObject*>roots)):
            send(run, PyTuple_GET_ITEM(<PyObject*>roots, i), as_operand(run, gradients[i]))
        run_nodes(run)
        if run.repeated is not None:
            for i, k in run.repeated:
                run.captured[i] = run.captured[k]
        if run.prune and not create_graph and not runs_inputs:
            own_all(run.captured)
    finally:
        run_here = run_around
        pop_cell(&around)
        end(run)
    return run.captured


cdef inline bint has_none(tuple values) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(<PyObject*>values)):
        if PyTuple_GET_ITEM(<PyObject*>values, i) == Py_None:
            return True
    return False


cdef inline bint has_wrapper(tuple values) noexcept:
    cdef Py_ssize_t i
    for i in range(PyTuple_GET_SIZE(<PyObject*>values)):
        if isinstance(<object>PyTuple_GET_ITEM(<PyObject*>values, i), Wrapper):
            return True
    return False


cdef State state_of_pass(State state, tuple gradients, bint create_graph, Interpreter interpreter):
    """Return the state that a pass runs in: that of the call, but recording only with `create_graph`."""
    if interpreter is None and not has_wrapper(gradients):
        state = without_transforms(state)
    if create_graph or interpreter is None:
        return with_tape(state, create_graph)
    if interpreter.alive:
        state = state_below(state, interpreter)
    return state.derive(None, inference=False) if state.inference else state


cdef extern from *:
    """
    static THREAD_LOCAL PyObject* run_here = NULL;
    """
    PyObject* run_here          # the innermost pass of this thread


def running_node():
    """Return the node whose formula runs in this thread, if the innermost pass has noted it."""
    return None if run_here == NULL else (<BackwardPass>run_here).node


cdef object as_operand(BackwardPass run, value):
    """Convert a value for a formula: to a Tensor if the formula must call operators or the array is not NumPy's."""
    if not run.on_tensors:
        if Py_TYPE(<PyObject*>value) == &PyArray_Type or not (
                isinstance(value, tuple) or is_of_other_backend(<PyObject*>value)):
            return as_plain_array(value)
    if isinstance(value, tuple):
        operands = []
        for item in <tuple>value:
            operands.append(as_operand(run, item))
        return tuple(operands)
    if not word_of_array(<PyObject*>value) or isinstance(value, Tensor) or is_numpy_scalar(value):
        return value
    # a constant of the innermost interpreter: below it the value is raw again
    return wrap_at(run.around if run.around is not None and run.around.differentiates else None, value, None)


cdef BackwardPass running = None


cdef int begin(BackwardPass run) except -1:
    """Add a run to those that are running. Those that lose their marks keep their needed nodes in a set."""
    global running
    cdef BackwardPass other = running
    cdef Py_ssize_t i
    if IS_FREE_THREADED:
        return 0
    while other is not None:
        other.unmarked = True
        if other.prune and other.frozen is None:
            frozen = set()
            for i in range(other.n_needed):
                frozen.add(<size_t>other.needed[i])
            other.frozen = frozen
        other = other.others
    run.others = running
    running = run
    return 0


cdef void end(BackwardPass run) noexcept:
    global running
    cdef BackwardPass other = running
    if IS_FREE_THREADED:
        pass
    elif other is run:
        running = run.others
    else:
        while other is not None and other.others is not run:
            other = other.others
        if other is not None:
            other.others = run.others
    run.others = None
    run.node = None


cdef set nodes_from(tuple roots):
    """Return the addresses of all nodes that gradients sent to these edges may reach, found without marks."""
    cdef set found = set()
    cdef list path = []
    cdef TapeNode node
    cdef Py_ssize_t k
    for edge in roots:
        if not is_leaf_edge(edge):
            path.append(node_of_edge(edge))
    while path:
        node = path.pop()
        if node is None or <size_t><PyObject*>node in found:
            continue
        found.add(<size_t><PyObject*>node)
        for k in range(n_edges(node)):
            edge = <object>edge_of(node, k)
            if edge is not None and not is_leaf_edge(edge):
                path.append(node_of_edge(edge))
    return found


cdef int want(BackwardPass run, tuple inputs) except -1:
    """Note for which edges gradients are wanted."""
    cdef Py_ssize_t i, entry
    run.captured = [None] * len(inputs)
    for i, edge in enumerate(inputs):
        if is_leaf_edge(edge):
            entry = find_entry(&run.queue, <PyObject*>edge)
            if entry < 0:
                entry = add_entry(&run.queue, <PyObject*>edge)
                run.queue.entries[entry].wanted = i
            else:
                if run.repeated is None:
                    run.repeated = []
                run.repeated.append((i, run.queue.entries[entry].wanted))
            continue
        if run.captures is None:
            run.captures = {}
        node = node_of_edge(edge)
        index = 0 if isinstance(edge, TapeNode) else (<GradientSlot>edge).index
        run.captures.setdefault((<size_t><PyObject*>node, index), []).append(i)
    run.keep_alive.append(inputs)
    return 0


cdef int count_dependencies(BackwardPass run, tuple roots) except -1:
    """Count the edges that lead to each leaf. With `prune`, find the needed nodes.

    No Python code runs here, so the marks on the nodes are safe.
    """
    cdef PyObject** path = NULL
    cdef Py_ssize_t* position = NULL
    cdef Py_ssize_t capacity = 0
    try:
        for edge in roots:
            if is_leaf_edge(edge):
                expect_leaf(run, <PyObject*>edge)
            else:
                count_dependencies_from(run, node_of_edge(edge), &path, &position, &capacity)
    finally:
        PyMem_Free(path)
        PyMem_Free(position)
    return 0


cdef int expect_leaf(BackwardPass run, PyObject* slot) except -1:
    """Count an edge to a leaf. Return whether its gradient is wanted."""
    cdef Py_ssize_t entry = find_entry(&run.queue, slot)
    if entry < 0:
        if run.prune:
            return 0
        entry = add_entry(&run.queue, slot)
    run.queue.entries[entry].remaining += 1
    return 1


cdef int count_dependencies_from(BackwardPass run, TapeNode root, PyObject*** path, Py_ssize_t** position,
                                 Py_ssize_t* capacity) except -1:
    """Walk the graph depth first, without recursion. A node is needed if one of its edges leads to a wanted edge."""
    cdef Py_ssize_t depth = 0, k
    cdef PyObject* node
    cdef PyObject* edge
    cdef PyObject* next
    if is_marked(run, <PyObject*>root):
        return 0
    set_mark(run, <PyObject*>root, run.number)
    if capacity[0] == 0:
        grow_path(path, position, capacity)
    path[0][0] = <PyObject*>root
    position[0][0] = 0
    depth = 1
    while depth:
        node = path[0][depth - 1]
        k = position[0][depth - 1]
        if k == n_edges(<TapeNode>node):
            depth -= 1
            if depth and mark_of(run, node) == run.number + 1:
                mark_needed(run, path[0][depth - 1])
            continue
        position[0][depth - 1] = k + 1
        edge = edge_of(<TapeNode>node, k)
        if edge == Py_None:
            continue
        if run.captures is not None and captures_edge(run, edge):
            mark_needed(run, node)
            if run.stops:
                continue
        if is_leaf_edge(<object>edge):
            if expect_leaf(run, edge) and run.prune:
                mark_needed(run, node)
            continue
        next = node_at(edge)
        if next == Py_None:
            continue
        if is_marked(run, next):
            if mark_of(run, next) == run.number + 1:
                mark_needed(run, node)
            continue
        set_mark(run, next, run.number)
        if depth == capacity[0]:
            grow_path(path, position, capacity)
        path[0][depth] = next
        position[0][depth] = 0
        depth += 1
    return 0


cdef inline uint64_t mark_of(BackwardPass run, PyObject* node) noexcept:
    cdef Py_ssize_t entry
    if IS_FREE_THREADED:
        entry = find_entry(&run.marks, node)
        return 0 if entry < 0 else run.marks.entries[entry].sequence
    return (<TapeNode>node).mark


cdef inline bint is_marked(BackwardPass run, PyObject* node) noexcept:
    """Return whether this pass has seen a node."""
    return mark_of(run, node) == run.number or mark_of(run, node) == run.number + 1


cdef inline int set_mark(BackwardPass run, PyObject* node, uint64_t mark) except -1:
    cdef Py_ssize_t entry
    if IS_FREE_THREADED:
        entry = find_entry(&run.marks, node)
        if entry < 0:
            entry = add_entry(&run.marks, node)
        run.marks.entries[entry].sequence = mark
    else:
        (<TapeNode>node).mark = mark
    return 0


cdef inline int mark_needed(BackwardPass run, PyObject* node) except -1:
    if mark_of(run, node) == run.number + 1:
        return 0
    if run.n_needed == run.needed_capacity:
        grow(<void**>&run.needed, (2 * run.needed_capacity + 64) * sizeof(PyObject*))
        run.needed_capacity = 2 * run.needed_capacity + 64
    set_mark(run, node, run.number + 1)
    run.needed[run.n_needed] = node
    run.n_needed += 1
    return 0


cdef inline bint is_needed(BackwardPass run, PyObject* node) except -1:
    if run.frozen is not None:
        return <size_t>node in run.frozen
    return mark_of(run, node) == run.number + 1


cdef inline bint captures_edge(BackwardPass run, PyObject* edge) except -1:
    if isinstance(<object>edge, TapeNode):
        return (<size_t>edge, 0) in run.captures
    return (<size_t>node_at(edge), (<GradientSlot>edge).index) in run.captures


cdef int grow_path(PyObject*** path, Py_ssize_t** position, Py_ssize_t* capacity) except -1:
    grow(<void**>path, (2 * capacity[0] + 64) * sizeof(PyObject*))
    grow(<void**>position, (2 * capacity[0] + 64) * sizeof(Py_ssize_t))
    capacity[0] = 2 * capacity[0] + 64
    return 0


cdef inline int send(BackwardPass run, PyObject* edge, gradient) except -1:
    """Send a gradient to an edge: to a leaf, or to one result of a node."""
    cdef PyObject* where = edge
    cdef Py_ssize_t entry, index = 0
    cdef bint leaf = False
    if edge == Py_None:
        return 0
    if isinstance(<object>edge, GradientSlot):
        leaf = (<GradientSlot>edge).is_leaf
        index = (<GradientSlot>edge).index
        if not leaf:
            where = <PyObject*>(<GradientSlot>edge).node
            if where == Py_None:
                return 0
    if run.stops and not leaf and run.captures is not None and captures_edge(run, edge):
        capture(run, run.captures[<size_t>where, index], gradient)
        return 0
    entry = find_entry(&run.queue, where)
    if leaf:
        if entry < 0:
            return 0        # not wanted
        accumulate(run, entry, gradient)
        run.queue.entries[entry].remaining -= 1
        if run.queue.entries[entry].remaining == 0:
            run.queue.entries[entry].next_ready = run.ready
            run.ready = entry
        return 0
    if entry < 0:
        if run.prune and not is_needed(run, where) and not captures_node(run, where):
            return 0
        entry = add_entry(&run.queue, where)
        run.queue.entries[entry].sequence = (<TapeNode>where).sequence
        push_heap(&run.queue, entry)
    if (<TapeNode>where).outputs is None:
        accumulate(run, entry, gradient)
    elif gradient is not None:
        accumulate_one(run, entry, index, gradient, len((<TapeNode>where).outputs))
    return 0


cdef int capture(BackwardPass run, list positions, gradient) except -1:
    """Add a gradient to those that have arrived at an input."""
    for position in positions:
        old = run.captured[position]
        if gradient is not None:
            run.captured[position] = gradient if old is None else sum_of_two(old, gradient)
    return 0


cdef bint captures_node(BackwardPass run, PyObject* node) except -1:
    if run.captures is None:
        return False
    cdef Py_ssize_t i, n = 1 if (<TapeNode>node).outputs is None else len((<TapeNode>node).outputs)
    for i in range(n):
        if (<size_t>node, i) in run.captures:
            return True
    return False


cdef inline int accumulate(BackwardPass run, Py_ssize_t entry, gradient) except -1:
    cdef PyObject* old = run.queue.entries[entry].gradient
    if gradient is None:
        return 0
    if old == NULL:
        run.queue.entries[entry].gradient = new_reference(gradient)
        return 0
    # the old gradient may be written to only if nothing else shares its memory
    total = sum_of(<object>old, gradient, not run.create_graph and is_own(old, 1))
    if <PyObject*>total != old:
        run.queue.entries[entry].gradient = new_reference(total)
        Py_DECREF(old)
    return 0


cdef object sum_of(old, gradient, bint in_place):
    if not in_place:
        return sum_of_two(old, gradient)
    if add_in_place(<PyObject*>old, <PyObject*>gradient):
        return old
    if (Py_TYPE(<PyObject*>old) == &PyArray_Type and Py_TYPE(<PyObject*>gradient) == &PyArray_Type
            and same_dtype(<PyObject*>old, <PyObject*>gradient) and same_shape(<PyObject*>old, <PyObject*>gradient)
            and PyArray_NDIM(<PyArrayObject*><PyObject*>old) > 0):
        numpy_add(old, gradient, out=old)
        return old
    return as_operand_of_formula(old) + as_operand_of_formula(gradient)


cdef object numpy_add = numpy.add


cdef int accumulate_one(BackwardPass run, Py_ssize_t entry, Py_ssize_t index, gradient, Py_ssize_t n) except -1:
    """Accumulate the gradient of one of several results. The sums are never written to."""
    cdef list gradients
    if run.queue.entries[entry].gradient == NULL:
        gradients = [None] * n
        run.queue.entries[entry].gradient = new_reference(gradients)
    gradients = <list>run.queue.entries[entry].gradient
    gradients[index] = gradient if gradients[index] is None else gradients[index] + gradient
    return 0


cdef int run_nodes(BackwardPass run) except -1:
    cdef Py_ssize_t entry
    cdef PyObject* taken
    cdef TapeNode node
    cdef object gradient
    finish_leaves(run)
    while run.queue.heap_size:
        entry = pop_heap(&run.queue)
        node = <TapeNode>run.queue.entries[entry].where
        taken = take_entry(&run.queue, entry)
        gradient = None
        if taken != NULL:
            gradient = <object>taken
            Py_DECREF(taken)
        if run.tracer is None:
            run_node(run, node, gradient)
        else:
            run_node_traced(run.tracer, run, node, gradient)
        taken = new_reference(gradient)
        gradient = None
        release_reference(taken)
        finish_leaves(run)
    return 0


cdef inline int finish_leaves(BackwardPass run) except -1:
    """Finish the leaves that have all their gradients, before the next node runs."""
    cdef Py_ssize_t entry
    while run.ready >= 0:
        entry = run.ready
        run.ready = run.queue.entries[entry].next_ready
        finish_leaf(run, entry)
    return 0


cdef int run_node_traced(tracer, BackwardPass run, TapeNode node, gradient) except -1:
    """Run a node inside a tracer. Recorders record the node, other tracers only see kernels."""
    cdef OpenEvent opened
    if not isinstance(tracer, Recorder):
        return run_node(run, node, gradient)
    begin_named(<Recorder>tracer, node.name, gradient, &opened)
    try:
        return run_node_traced((<Recorder>tracer).around, run, node, gradient)
    finally:
        end_event(<Recorder>tracer, &opened)


cdef int run_node(BackwardPass run, TapeNode node, gradient) except -1:
    cdef list gradients
    cdef bint whole = True
    if run.prune:
        whole = is_needed(run, <PyObject*>node)
    if node.notes is not None:
        gradient = call_with_published_state(upcalls.before_node, (node, gradient, run, whole))
    if run.captures is not None and not run.stops:
        capture_results(run, node, gradient)
    if not whole:
        return 0
    if is_about_part(node) and run_on_part(run, node, <PyObject*>gradient):
        pass
    elif node.notes is None and node.derivative is not None and not run.anomaly:
        if gradient is not None:
            run_formulas(run, node, gradient, None)
        else:
            send_nothing(run, node)
    else:
        gradients = gradients_of(run, node, gradient)
        for k in range(n_edges(node)):
            send_along(run, node, k, gradients[k])
    if not run.keep_graph:
        if node.derivative is not None:
            release_saved(node)
        else:
            release_custom(<CustomNode>node)
    return 0


# --- parts: in a loop that fills an array, a step takes time for its elements, not for the whole array ----------------


cdef inline bint is_about_part(TapeNode node) noexcept:
    """Return whether the node reads or writes a part of an array."""
    return node.derivative.part != 0 if node.derivative is not None else (<CustomNode>node).context is None


cdef enum:
    HOLDERS_OF_PART = 2             # references to the gradient of the whole array: `run_nodes` and `run_node`


cdef bint run_on_part(BackwardPass run, TapeNode node, PyObject* gradient) except -1:
    """Run a node that reads or writes a part of an array, in the memory of the whole array's gradient.

    Return False, with nothing done, if that memory is shared or the formulas have to be called.
    """
    cdef int kind
    cdef PyObject* edge = edge_of(node, 0)
    cdef PyObject* edge_of_value
    cdef object written = None
    if (not run.runs_fused or run.anomaly or node.notes is not None or node.targets is not None
            or node.flags & (COMPLEX | RELEASED) or edge == Py_None
            or Py_TYPE(gradient) != &PyArray_Type and not is_numpy_scalar(<object>gradient)):
        return False
    if node.derivative is None:
        kind = READS_PART if (<CustomNode>node).custom_derivative.reads_part else WRITES_PART
    else:
        kind = node.derivative.part
    if kind == READS_PART:
        return add_to_part(run, node, edge, array_of_scalar(<object>gradient) if Py_TYPE(gradient) != &PyArray_Type
                           else <object>gradient)
    if Py_TYPE(gradient) != &PyArray_Type or n_edges(node) != 2 or not is_own(gradient, HOLDERS_OF_PART):
        return False
    part = part_of(node, <object>gradient)
    if part is None:
        return False
    edge_of_value = edge_of(node, 1)
    if not run.prune or leads_somewhere(run, edge_of_value):
        written = part.copy() if node.derivative is None else gradient_of_value(node, <object>gradient)
    part[...] = 0
    send(run, edge, <object>gradient)
    if written is not None:
        send(run, edge_of_value, written)
    return True


cdef bint add_to_part(BackwardPass run, TapeNode node, PyObject* edge, gradient) except -1:
    """Add the gradient of a part to the whole array's at the edge. Return False, with nothing done, if not possible."""
    cdef PyObject* where = edge
    cdef PyObject* old
    cdef Py_ssize_t entry
    cdef bint leaf = is_leaf_edge(<object>edge)
    if not leaf:
        where = node_at(edge)
        if run.stops or where == Py_None or (<TapeNode>where).outputs is not None:
            return False
    entry = find_entry(&run.queue, where)
    if entry < 0:
        return False
    old = run.queue.entries[entry].gradient
    if old == NULL or Py_TYPE(old) != &PyArray_Type or not same_dtype(old, <PyObject*>gradient) or not is_own(old, 1):
        return False
    part = part_of(node, <object>old)
    if part is None or not same_shape(<PyObject*>part, <PyObject*>gradient):
        return False
    numpy_add(part, gradient, out=part)
    part = None
    if leaf:
        send(run, edge, None)
    return True


cdef object part_of(TapeNode node, whole):
    """Return the part that a node reads or writes, as a view, or None if its key holds arrays or is not known."""
    cdef Py_ssize_t index
    if node.derivative is None:
        return (<CustomNode>node).custom_derivative.part(whole)
    for index in range(node.derivative.n_residuals):
        if node.derivative.residual_kind[index] == VALUE and node.derivative.residual_argument[index] == 1:
            key = residual_at(node, index)
            if word_of_value(<PyObject*>key):
                return None
            key = key if isinstance(key, tuple) else (key,)
            for item in <tuple>key:
                if item is Ellipsis:
                    return whole[key]
            return whole[(<tuple>key) + (Ellipsis,)]
    return None


cdef object gradient_of_value(TapeNode node, gradient):
    """Return the gradient of the values that the node's call assigned, as a new array."""
    cdef list residuals = []
    for index in <tuple>node.derivative.inputs[2]:
        residuals.append(residual_at(node, index))
    found = node.derivative.formulas[2](gradient, *residuals)
    if Py_TYPE(<PyObject*>found) == &PyArray_Type and PyArray_BASE(<PyArrayObject*><PyObject*>found) != NULL:
        return found.copy()
    return found


cdef int capture_results(BackwardPass run, TapeNode node, gradient) except -1:
    cdef Py_ssize_t i, n = 1 if node.outputs is None else len(node.outputs)
    for i in range(n):
        positions = run.captures.get((<size_t><PyObject*>node, i))
        if positions is not None:
            value = gradient if node.outputs is None else (None if gradient is None else gradient[i])
            for position in positions:
                run.captured[position] = value
    return 0


cdef list gradients_of(BackwardPass run, TapeNode node, gradient):
    """Return the gradients of one node, one per edge, with its hooks and the checks of anomaly mode."""
    cdef list gradients
    try:
        if node.derivative is None:
            gradients = apply_custom(<CustomNode>node, gradient, run.create_graph, run.keep_graph)
        else:
            gradients = []
            if gradient is None:
                gradients = [None] * n_edges(node)
            else:
                run_formulas(run, node, gradient, gradients)
    except Exception:
        if run.anomaly:
            upcalls.tell_origin(node)
        raise
    if node.notes is not None:
        gradients = call_with_published_state(upcalls.after_node, (node, gradients, gradient, run))
    if run.checks:
        upcalls.check_node(node, gradients, run.checks)
    return gradients


cdef inline int send_along(BackwardPass run, TapeNode node, Py_ssize_t k, gradient) except -1:
    cdef PyObject* edge = edge_of(node, k)
    cdef object held = <object>edge
    return send(run, edge, as_operand(run, gradient) if run.on_tensors else gradient)


cdef int send_nothing(BackwardPass run, TapeNode node) except -1:
    cdef Py_ssize_t k
    for k in range(n_edges(node)):
        send_along(run, node, k, None)
    return 0


cdef int run_formulas(BackwardPass run, TapeNode node, gradient, list results) except -1:
    """Run the formulas of the tracked arguments. Send their results, or put them in `results`."""
    cdef Derivative derivative = node.derivative
    cdef PyObject* values[MAX_RESIDUALS]
    cdef uint64_t rest = node.arguments, unpacked = 0
    cdef Py_ssize_t i, k = 0, index
    cdef PyObject* edge
    cdef PyObject* handed_on
    cdef object together = None
    # hooks of the node have to see one gradient per argument
    cdef bint same = node.flags & SAME != 0 and node.notes is None and n_edges(node) == 2
    if node.flags & RELEASED:
        raise upcalls.released_error(node)
    if node.outputs is not None and derivative.materializes:
        gradient = upcalls.materialize(node, gradient)
    if node.flags & COMPLEX:
        gradient = conjugated(gradient)
    try:
        while rest:
            i = lowest_bit(rest)
            rest &= rest - 1
            if derivative.lists & bit(i):
                k = run_list_formula(run, node, i, k, gradient, results, values, &unpacked)
                continue
            edge = edge_of(node, k)
            if results is None and run.prune and not leads_somewhere(run, edge):
                k += 1
                continue
            if PyTuple_GET_ITEM(<PyObject*>derivative.formulas, i) == <PyObject*>identity:
                found = gradient
            elif derivative.joint:
                if together is None:
                    together = formula_result(run, node, i, gradient, values, &unpacked, False)
                    if derivative.is_checked:
                        upcalls.check_gradients(node, together, number_of_bits(derivative.differentiable), False)
                found = together[number_of_bits(derivative.differentiable & (bit(i) - 1))]
            else:
                found = formula_result(run, node, i, gradient, values, &unpacked, results is None and rest == 0)
            if same and found is not None:
                found = sum_of_two(found, found)
                rest = 0
            if found is not None:
                found = as_of_argument(node, i, k, found, gradient)
            hand_on(run, node, k, found, results)
            handed_on = new_reference(found)
            found = None
            release_reference(handed_on)
            k += 1
            if same and k == 1:
                hand_on(run, node, 1, None, results)
                break
        found = None
    finally:
        while unpacked:
            index = lowest_bit(unpacked)
            unpacked &= unpacked - 1
            Py_DECREF(values[index])
    return 0


cdef inline object as_of_argument(TapeNode node, Py_ssize_t i, Py_ssize_t k, found, gradient):
    """Convert the result of a formula to the shape and dtype of argument i, tracked argument number k."""
    if node.flags & COMPLEX:
        found = conjugated(found)
    if node.targets is not None and (<list>node.targets)[k] is not None:
        if node.derivative.is_checked:
            return checked_by_target(node, i, k, found, gradient)
        return bring_to(found, (<list>node.targets)[k])
    if node.outputs is None and not same_dtype_as(found, gradient):
        return bring_to(found, (None, dtype_of(<PyObject*>gradient)))
    return found


cdef inline int hand_on(BackwardPass run, TapeNode node, Py_ssize_t k, found, list results) except -1:
    """Send a gradient along an edge, or put it in `results` if there is such a list."""
    if results is None:
        return send_along(run, node, k, found)
    results.append(found)
    return 0


cdef inline bint same_dtype_as(found, gradient) except -1:
    """Return whether the result of a formula has the gradient's dtype. Arrays not of NumPy's are believed."""
    if Py_TYPE(<PyObject*>found) != &PyArray_Type or Py_TYPE(<PyObject*>gradient) != &PyArray_Type:
        return dtype_of(<PyObject*>found) == dtype_of(<PyObject*>gradient)
    return same_dtype(<PyObject*>found, <PyObject*>gradient)


def identity(g):
    """Return the gradient: the identity formula."""
    return g


cdef enum:
    HOLDERS_OF_GRADIENT = 3         # references of `run_nodes`, `run_node` and `run_formulas` while a formula runs


cdef inline bint leads_somewhere(BackwardPass run, PyObject* edge) except -1:
    cdef PyObject* node
    if edge == Py_None:
        return False
    if is_leaf_edge(<object>edge):
        return find_entry(&run.queue, edge) >= 0
    node = node_at(edge)
    return is_needed(run, node) or captures_node(run, node)


cdef object formula_result(BackwardPass run, TapeNode node, Py_ssize_t i, gradient, PyObject** values,
                           uint64_t* unpacked, bint is_last):
    """Call a formula with the gradient and its residuals, which are unpacked once per node.

    The last formula of a node may leave its result in the memory of the gradient.
    """
    cdef Derivative derivative = node.derivative
    cdef PyObject* args[MAX_RESIDUALS + 2]
    cdef PyObject* residuals = PyTuple_GET_ITEM(<PyObject*>derivative.inputs, i)
    cdef Py_ssize_t n = PyTuple_GET_SIZE(residuals), j, index
    cdef PyObject* result
    args[1] = <PyObject*>gradient
    for j in range(n):
        index = compact_value(PyTuple_GET_ITEM(residuals, j))
        if not unpacked[0] & bit(index):
            value = unpack(node, index, run.create_graph)
            if derivative.residual_kind[index] <= RESULT:
                value = as_operand(run, value)
            values[index] = new_reference(value)
            unpacked[0] |= bit(index)
        args[j + 2] = values[index]
    if run.runs_fused and derivative.fused is not None:
        result = run_fused(PyTuple_GET_ITEM(<PyObject*>derivative.fused, i), &args[1],
                           HOLDERS_OF_GRADIENT if is_last else 0)
        if result != NULL:
            return steal(result)
    return steal(PyObject_Vectorcall(
        PyTuple_GET_ITEM(<PyObject*>derivative.formulas, i), &args[1], (n + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef Py_ssize_t run_list_formula(BackwardPass run, TapeNode node, Py_ssize_t i, Py_ssize_t k, gradient, list results,
                                 PyObject** values, uint64_t* unpacked) except -1:
    """Run the formula of an argument that is a list: one gradient per element. Return the next edge."""
    found = formula_result(run, node, i, gradient, values, unpacked, False)
    if node.derivative.is_checked:
        upcalls.check_gradients(node, found, length_of_list(node, i, k),
                                node.arguments & node.derivative.lists & ~(2 * bit(i) - 1) != 0)
    for item in found:
        hand_on(run, node, k, None if item is None else as_of_argument(node, i, k, item, gradient), results)
        k += 1
    return k


cdef Py_ssize_t length_of_list(TapeNode node, Py_ssize_t i, Py_ssize_t k) except -1:
    """Return the number of edges of argument i, a list whose first edge is number k, and of lists that follow it."""
    cdef uint64_t later = node.arguments & ~(2 * bit(i) - 1)
    return n_edges(node) - k - number_of_bits(later)


cdef object checked_by_target(TapeNode node, Py_ssize_t i, Py_ssize_t k, found, gradient):
    """Check a gradient that a formula of a pack returned, as users' gradients are checked."""
    return upcalls.gradient_of_formula(node, i, found, (<list>node.targets)[k], gradient, node.flags & COMPLEX != 0)


cdef object conjugated(value):
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return conjugated_array(value) if is_complex(<PyObject*>value) else value
    if isinstance(value, (tuple, list)):
        conjugates = []
        for item in value:
            conjugates.append(conjugated(item))
        return tuple(conjugates)
    if value is None or dtype_of(<PyObject*>value).kind != "c":
        return value
    return value.conj()


cdef object conjugated_array(value):
    """Return the conjugates of complex numbers, computed here if they are contiguous, as gradients mostly are."""
    cdef PyArrayObject* array = <PyArrayObject*><PyObject*>value
    cdef double* found
    cdef double* given
    cdef Py_ssize_t i
    if PyArray_TYPE(array) != cnp.NPY_CDOUBLE or not PyArray_ISCARRAY_RO(array):
        return value.conj()
    result = steal(PyArray_New(&PyArray_Type, PyArray_NDIM(array), PyArray_DIMS(array), cnp.NPY_CDOUBLE, NULL, NULL, 0,
                               0, NULL))
    given, found = <double*>PyArray_DATA(array), <double*>PyArray_DATA(<PyArrayObject*><PyObject*>result)
    for i in range(PyArray_SIZE(array)):
        found[2 * i], found[2 * i + 1] = given[2 * i], -given[2 * i + 1]
    return result


cdef int finish_leaf(BackwardPass run, Py_ssize_t entry) except -1:
    """Finish a leaf at which all gradients have arrived."""
    cdef GradientSlot slot = <GradientSlot>run.queue.entries[entry].where
    cdef Py_ssize_t wanted = run.queue.entries[entry].wanted
    cdef PyObject* taken = take_entry(&run.queue, entry)
    cdef object gradient = None
    if taken != NULL:
        gradient = <object>taken
        Py_DECREF(taken)
    if slot.hooks is not None and not run.stops:
        gradient = call_with_published_state(upcalls.before_leaf, (slot, gradient, run))
        if run.on_tensors:
            gradient = as_operand(run, gradient)
    if run.prune:
        run.captured[wanted] = gradient
        return 0
    if gradient is not None and not take_over(run, slot, gradient):
        with accumulating:
            accumulate_in_leaf(run, slot, gradient)
    if slot.hooks is not None:
        call_with_published_state(upcalls.after_leaf, (slot,))
    return 0


# NumPy lets other threads run during larger additions, and they may share the leaf
accumulating = Lock()


cdef bint take_over(BackwardPass run, GradientSlot slot, gradient) except -1:
    """Make the first gradient of a leaf its `grad` if nothing else shares its memory. The GIL is lock enough."""
    cdef object taken
    if IS_FREE_THREADED or run.create_graph or slot.grad is not None \
            or Py_TYPE(<PyObject*>gradient) != &PyArray_Type or not is_own(<PyObject*>gradient, 1):
        return False
    taken = steal(wrap_ndarray(new_reference(gradient)))
    if slot.grad is not None:          # another thread was faster
        return False
    slot.grad = taken
    return True


cdef int accumulate_in_leaf(BackwardPass run, GradientSlot slot, gradient) except -1:
    """Add a gradient to the `grad` of a leaf: take over the first one, add later ones in place."""
    cdef Tensor old
    if run.create_graph:
        slot.grad = upcalls.copy(gradient) if slot.grad is None else slot.grad + gradient
        return 0
    if slot.grad is None:
        slot.grad = wrap_at(None, own_array(gradient, 1), None)
        return 0
    old = <Tensor>slot.grad
    if old.word & (TRACKED_FLAG | PYTHON_BIT) or Py_TYPE(<PyObject*>old.array) != &PyArray_Type or (
            isinstance(gradient, Tensor) and (<Tensor>gradient).word & PYTHON_BIT):
        slot.grad = old + gradient
        return 0
    if isinstance(gradient, Tensor):
        upcalls.add_to(old, gradient)
        return 0
    bump_version(old, None, NULL)
    if not add_in_place(<PyObject*>old.array, <PyObject*>gradient):
        numpy_add(old.array, gradient, out=old.array, casting="same_kind")
    return 0


cdef object own_array(value, Py_ssize_t holders):
    """Return the value itself if the caller holds its only references and it owns its memory, else a copy."""
    if is_own(<PyObject*>value, holders):
        return value
    if isinstance(value, Tensor):
        return upcalls.copy(value)
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return value.copy()
    if is_numpy_scalar(value):
        return array_of_scalar(value)
    return value.copy() if hasattr(value, "copy") else value


cdef bint is_own(PyObject* value, Py_ssize_t holders) noexcept:
    """Return whether the caller holds the only references to an array that owns its buffer."""
    if has_more_references(value, holders):
        return False
    if Py_TYPE(value) == &PyArray_Type:
        return (PyArray_FLAGS(<PyArrayObject*>value) & NPY_ARRAY_OWNDATA != 0
                and PyArray_FLAGS(<PyArrayObject*>value) & NPY_ARRAY_WRITEABLE != 0
                and PyArray_BASE(<PyArrayObject*>value) == NULL)
    if not is_tensor_type(Py_TYPE(value)) or (<Tensor>value).word & PYTHON_BIT or (<Tensor>value).memory is not None:
        return False
    return is_own(<PyObject*>(<Tensor>value).array, 1)


cdef int own_all(list values) except -1:
    """Replace the gradients in a list that share memory with anything else by copies."""
    cdef Py_ssize_t i
    for i in range(len(values)):
        value = values[i]
        if value is not None:
            values[i] = own_array(value, 2)     # held by the list and by this function
    return 0


# --- entry points, for plain arguments --------------------------------------------------------------------------------

cdef dict kept_ones = {}


def one_of(dtype):
    """Return a read-only 0-d array of 1."""
    one = kept_ones.get(dtype)
    if one is None:
        one = numpy.ones((), dtype)
        one.flags.writeable = False
        kept_ones[dtype] = one
    return one


@cython.binding(True)        # a method of Tensor
def backward(Tensor self, gradient=None, retain_graph=None, bint create_graph=False, inputs=None):
    """Add the gradient of this Tensor to the `grad` of every leaf. See `pydispatch.autograd.backward`."""
    if inputs is None and not create_graph and is_plainly_tracked(self):
        given = plain_cotangent(self, gradient)
        if given is not None:
            run_pass((self.edge,), (given,), False, bool(retain_graph), None, None, False)
            return
    upcalls.backward(self, gradient, retain_graph, create_graph, inputs)


cdef object plain_cotangent(Tensor output, gradient):
    """Return the raw array to start from if nothing has to be converted or refused, else None."""
    cdef PyObject* array = <PyObject*>output.array
    cdef PyObject* given
    if Py_TYPE(array) != &PyArray_Type:
        return None
    if gradient is None:
        if PyArray_NDIM(<PyArrayObject*>array) or not PyTypeNum_ISFLOAT(PyArray_TYPE(<PyArrayObject*>array)) or (
                watches_arrays(state_now())):
            return None
        return one_of(<object>PyArray_DESCR(<PyArrayObject*>array))
    given = <PyObject*>gradient
    if Py_TYPE(given) == TENSOR_TYPE:
        given = <PyObject*>(<Tensor>given).array
    if Py_TYPE(given) == &PyArray_Type and same_shape(given, array) and same_dtype(given, array):
        return <object>given
    return None


def grad(outputs, inputs, grad_outputs=None, retain_graph=None, bint create_graph=False, allow_unused=None,
         bint materialize_grads=False, bint is_grads_batched=False):
    """Return the gradients of `outputs` with respect to `inputs`, without changing any `grad` attribute.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensors
        The results to differentiate.
    inputs : Tensor or sequence of Tensors
        The Tensors to differentiate with respect to.
    grad_outputs : array or sequence, optional
        One cotangent per output, of its shape. None means 1 if the output has one real element.
    retain_graph : bool, optional
        Whether to keep the residuals, which are released otherwise. The default is `create_graph`.
    create_graph : bool, optional
        With True, the gradients can be differentiated again.
    allow_unused : bool, optional
        With True, the result has None for an input that the outputs do not depend on.
    materialize_grads : bool, optional
        With True, the result has zeros for such an input.
    is_grads_batched : bool, optional
        With True, each cotangent has its batch axis first, and so have the gradients: one backward pass by vmap.

    Returns
    -------
    tuple of Tensors
        One gradient per input.

    Raises
    ------
    AutogradError
        If the outputs do not depend on an input, unless `allow_unused` or `materialize_grads` is True.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor, autograd
    >>> x = Tensor(numpy.array([1.0, 2.0]), requires_grad=True)
    >>> autograd.grad(np.sum(x ** 2), x)
    (Tensor([2., 4.]),)
    """
    cdef tuple wanted
    cdef list edges
    if is_grads_batched:
        return upcalls.grads_of_batch(
            outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    if not create_graph and not materialize_grads and isinstance(outputs, Tensor) and is_plainly_tracked(outputs):
        given = plain_cotangent(outputs, grad_outputs)
        wanted = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs) if isinstance(inputs, (tuple, list)) else ()
        if given is not None and wanted and are_plain_inputs(wanted):
            found = run_pass(((<Tensor>outputs).edge,), (given,), False, bool(retain_graph),
                            tuple([(<Tensor>tensor).edge for tensor in wanted]), None, False)
            if all(gradient is not None for gradient in found):
                for i in range(len(wanted)):
                    found[i] = wrap_at(None, found[i], None)
                return tuple(found)
            return upcalls.grad_results(wanted, found, None, False, allow_unused, False)
    return upcalls.grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)


cdef bint are_plain_inputs(tuple tensors) noexcept:
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or not is_plainly_tracked(tensor):
            return False
    return True


cdef inline bint is_plainly_tracked(Tensor tensor) noexcept:
    """Return whether a Tensor is tracked by the tape and has no other special property."""
    return tensor.word & (SPECIAL_FLAGS | PYTHON_BIT) == TRACKED_FLAG


cdef object sum_of_two(left, right):
    """Return left + right."""
    cdef PyObject* args[2]
    cdef PyObject* result
    args[0] = <PyObject*>left
    args[1] = <PyObject*>right
    result = map_elements(&adding, args)
    if result != NULL:
        return steal(result)
    return as_operand_of_formula(left) + as_operand_of_formula(right)
