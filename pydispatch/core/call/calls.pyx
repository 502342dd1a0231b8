# A call, from bound arguments to its result.

# The steps, as in docs/architecture.md: 1 bind, 2 stack, 3 keys, 4 table, 5 strip, 6 kernel, 7 finish.

cdef tuple CALL_KINDS = ("call", "boxed", "redispatch", "kernel", "redispatch")


cdef inline bint is_default(PyObject* signature, Py_ssize_t i, PyObject* value) except -1:
    """Return whether a converted value that was passed is the default. Values of different kinds are not equal."""
    if (<Signature>signature).required & bit(i):
        return False
    return equals_default(
        (<Signature>signature).kind[i] & KIND, value, PyTuple_GET_ITEM(<PyObject*>(<Signature>signature).defaults, i))


cdef bint equals_default(unsigned char kind, PyObject* value, PyObject* default) except -1:
    if kind == ARRAY or default == Py_None or value == Py_None:
        return value == default
    if kind == FLOAT:
        return PyFloat_AS_DOUBLE(value) == PyFloat_AS_DOUBLE(default)
    if kind == INT and is_compact(value) and is_compact(default):
        return compact_value(value) == compact_value(default)
    if kind == INT or kind == STR:
        return value == default or PyObject_RichCompareBool(<object>value, <object>default, Py_EQ)
    if kind == BOOL:
        return value == default
    return same_value(<object>value, <object>default)


cdef bint same_value(value, default) except -1:
    """Return whether two values of one type are equal. NaN equals nothing, and arrays are not compared."""
    if type(value) is not type(default):
        return False
    if isinstance(value, tuple):
        return len(value) == len(default) and all(same_value(a, b) for a, b in zip(value, default))
    if isinstance(value, dict):
        return value.keys() == default.keys() and all(same_value(value[key], default[key]) for key in value)
    if word_of_array(<PyObject*>value):
        return False
    return bool(value == default)


cdef object run(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind):
    """Run steps 4 to 7, for a bound frame and a chosen key set."""
    cdef int slot = highest_slot(keys)
    cdef PyObject* found = table.entries[slot]
    cdef Table current
    if found == NULL:
        current = table_with_provided(op, slot)
        if current is not table:
            return run(op, current, frame, keys, state, kind)
    if found == NULL or (slot == 0 and (<TableEntry>found).convention & FALLTHROUGH):
        raise upcalls.no_kernel(
            op, table, slot_keys[slot], keyset(keys & KEY_BITS), arguments_of(frame, table.signature))
    if (<TableEntry>found).convention & (FALLTHROUGH | CONDITIONAL):
        if (<TableEntry>found).convention & FALLTHROUGH:
            raise upcalls.ran_fallthrough(op, slot_keys[slot], <object>found)
        if not is_for(<TableEntry>found, table.signature, frame):
            return run(op, table, frame, keys & ~(AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT), state, kind)
    return run_entry(op, table, <TableEntry>found, frame, keys, state, kind)


cdef inline bint is_for(TableEntry entry, Signature signature, Frame* frame) except -1:
    """Return whether the entry serves this call. A composite may serve only some calls, and the formula all others."""
    if entry is None or not entry.convention & CONDITIONAL:
        return True
    args, kwargs = arguments_with(frame, signature, None)
    return entry.kernel.applies(*args, **kwargs)


cdef Table table_with_provided(OpOverload op, int slot):
    """Return the table once the backend of an unserved key has registered everything that it can."""
    if slot_keys[slot] is not None:
        upcalls.bring_into_use(slot_keys[slot])
    return table_of(op)


cdef object run_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, CallKind kind
):
    """Run steps 5 to 7 inside the active tracers."""
    return run_traced(state.tracer, op, table, entry, frame, keys, state, kind)


cdef object run_traced(
    tracer, OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, CallKind kind
):
    """Run an entry inside a tracer and those around it."""
    cdef OpenEvent opened
    if tracer is None:
        return result_of_entry(op, table, entry, frame, keys, state, kind)
    if not isinstance(tracer, Recorder):
        tracer.enter(CALL_KINDS[kind], op, slot_keys[highest_slot(keys)], entry)
        try:
            return result_of_entry(op, table, entry, frame, keys, state, kind)
        finally:
            tracer.leave()
    if kind == BY_REDISPATCH or entry.convention & ASKS_DEVICE:     # another entry of this call is recorded
        return run_traced((<Recorder>tracer).around, op, table, entry, frame, keys, state, kind)
    begin_event(<Recorder>tracer, op, frame, &opened)
    try:
        return run_traced((<Recorder>tracer).around, op, table, entry, frame, keys, state, kind)
    finally:
        end_event(<Recorder>tracer, &opened)


cdef inline object result_of_entry(
    OpOverload op, Table table, TableEntry entry, Frame* frame, uint64_t keys, State state, CallKind kind
):
    if not entry.convention & (HANDLERS | ASKS_DEVICE):
        return finish(op, table.signature, entry, frame, call_kernel(op, table.signature, entry, frame, keys))
    if entry.convention & ASKS_DEVICE:
        result = run(op, table, frame, keys_on_backend(table, frame, keys, state), state, BY_SELECTION)
        # a function that runs without data may index the array and write to it
        return wrap(result) if state.substitute is not None and type(result) is MetaArray else result
    if not frame.word & PYTHON_BIT:     # called with the Python key, which no argument has
        raise upcalls.ran_fallthrough(op, slot_keys[highest_slot(keys)], entry)
    return call_handlers(op, table, frame, keys, state, kind)


cdef uint64_t keys_on_backend(Table table, Frame* frame, uint64_t keys, State state) except? 1:
    """Return the keys below BackendSelect, on the requested device, else on the ambient default backend."""
    cdef PyObject* device = Py_None
    keys &= BACKEND_BITS | BELOW_BACKEND_SELECT_BITS
    if table.signature.device >= 0:
        device = value_passed(frame, table.signature, table.signature.device)
    if device == Py_None and not keys & ~BACKEND_BITS:
        device = <PyObject*>state.default_backend
    if device != Py_None:
        keys = keys & ~BACKEND_BITS | <uint64_t>device_words[<object>device]
    return usable_keys(<PyObject*>table, <PyObject*>state, keys)


cdef PyObject* value_passed(Frame* frame, Signature signature, Py_ssize_t i) noexcept:
    """Return the value of an argument, or its default if it was not passed, for direct frames too."""
    cdef Py_ssize_t k
    for k in range(frame.n_names):
        if PyTuple_GET_ITEM(frame.names, k) == PyTuple_GET_ITEM(<PyObject*>signature.names, i):
            return frame.values[frame.count + k]
    if i < frame.count and frame.values[i] != NULL:
        return frame.values[i]
    return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i)


cdef object call_kernel(OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys):
    """Run steps 5 and 6."""
    cdef bint unwrap = entry.convention & RAW and frame.word & TENSOR_FLAG
    if frame.direct and is_plain(<PyObject*>entry):
        return steal(call_directly(<PyObject*>signature, <PyObject*>entry, frame))
    if entry.convention & BOXED:
        result = call_boxed_kernel(op, signature, entry, frame, keys, unwrap)
    else:
        result = call_with_arguments(op, signature, entry, frame, keys, unwrap)
    if entry.convention & FRESH:
        check_fresh(signature, entry, frame, result)
    return result


cdef inline bint is_plain(PyObject* entry) noexcept:
    """Return whether the kernel gets only the arguments."""
    return (<TableEntry>entry).convention & ~(RAW | COUNTS_DEPTH | FRESH | COMPOSITE | USER_KERNEL) == 0 and (
        <TableEntry>entry).fill == 0


cdef inline PyObject* call_directly(PyObject* signature, PyObject* entry, Frame* frame) except NULL:
    """Run steps 5 and 6 for a frame whose values can go unchanged, except for a shorter count."""
    cdef Py_ssize_t n = frame.count
    cdef PyObject* result
    cdef PyObject** values
    while n > 0 and is_default(signature, n - 1, frame.values[n - 1]):      # never if names follow
        n -= 1
    if (<TableEntry>entry).loop.kind and n == (<TableEntry>entry).loop.n_in:
        values = &frame.raw[1] if frame.word & TENSOR_FLAG else <PyObject**>frame.values
        if frame.names == NULL:
            result = call_loop(&(<TableEntry>entry).loop, values)
        else:
            result = call_loop_with_option(&(<TableEntry>entry).loop, values, frame.names)
        if result != NULL:
            return result
    if (<TableEntry>entry).convention & FRESH:
        return call_for_fresh(signature, entry, frame, n)
    if not (<TableEntry>entry).convention & RAW or not frame.word & TENSOR_FLAG:
        return invoke(entry, frame.values, n | frame.offset_flag, frame.names)
    if (<Signature>signature).mutable:
        bump_versions(<Signature>signature, frame)
    return invoke(entry, &frame.raw[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET, frame.names)


cdef inline PyObject* call_directly_or_recorded(
    PyObject* op, PyObject* table, PyObject* state, PyObject* entry, Frame* frame
) except NULL:
    """Run steps 5 and 6, recorded by recorders."""
    if (<State>state).tracer is None:
        return call_directly(<PyObject*>(<Table>table).signature, entry, frame)
    return call_directly_recorded((<State>state).tracer, op, table, entry, frame)


cdef PyObject* call_directly_recorded(
    tracer, PyObject* op, PyObject* table, PyObject* entry, Frame* frame
) except NULL:
    cdef OpenEvent opened
    if tracer is None:
        return call_directly(<PyObject*>(<Table>table).signature, entry, frame)
    begin_event(<Recorder>tracer, <OpOverload>op, frame, &opened)
    try:
        return call_directly_recorded((<Recorder>tracer).around, op, table, entry, frame)
    finally:
        end_event(<Recorder>tracer, &opened)


cdef object scalar_of(PyObject* signature, array):
    """Return the scalar of a 0-d array that a user's kernel made, where results of the operator are scalars."""
    if (<Signature>signature).zero_d != A_SCALAR or array.dtype.hasobject:
        return array
    return array[()]


cdef PyObject* call_for_fresh(PyObject* signature, PyObject* entry, Frame* frame, Py_ssize_t n) except NULL:
    """Call a kernel whose results must not share memory with arguments, and check that they do not."""
    if frame.word & TENSOR_FLAG and (<Signature>signature).mutable:
        bump_versions(<Signature>signature, frame)
    cdef PyObject* result = invoke(entry, &frame.raw[1], n | PY_VECTORCALL_ARGUMENTS_OFFSET, frame.names)
    if not is_fresh_array(<Signature>signature, frame, result):
        try:
            check_fresh(<Signature>signature, <TableEntry>entry, frame, <object>result)
        except:
            Py_DECREF(result)
            raise
    if frame.word & TENSOR_FLAG and Py_TYPE(result) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>result) == 0:
        return new_reference(scalar_of(signature, steal(result)))
    return result


cdef inline PyObject* invoke(PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Run step 6: call the kernel."""
    if cell.state == NULL and (<TableEntry>entry).convention & COUNTS_DEPTH:
        return (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
    return invoke_in_general(entry, args, nargsf, kwnames)


cdef PyObject* invoke_in_general(
    PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames
) except NULL:
    """Run step 6 if the kernel has to see the state, or if it does not count the depth of recursion itself."""
    cdef PyObject* result
    if cell.state != NULL and (<TableEntry>entry).convention & USER_KERNEL:
        return invoke_shown(entry, args, nargsf, kwnames)
    if (<TableEntry>entry).convention & COUNTS_DEPTH:
        result = (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
    else:
        enter_recursive_call()
        result = (<TableEntry>entry).call(<PyObject*>(<TableEntry>entry).function, args, nargsf, kwnames)
        leave_recursive_call()
    if result == NULL:
        check_raised((<TableEntry>entry).function)
    return result


cdef int check_raised(function) except -1:
    """Raise if an exception is missing: a NumPy ufunc that runs out of memory may return NULL without one."""
    if PyErr_Occurred() == NULL:
        raise SystemError(f"{function!r} returned NULL without an exception")
    return 0


cdef PyObject* invoke_shown(PyObject* entry, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    """Run step 6 for a user's kernel while the state is in a cell."""
    cdef PublishedState around
    publish_state(&around, state_now())
    try:
        return new_reference(steal((<invoke_kernel>invoke)(entry, args, nargsf, kwnames)))
    finally:
        withdraw_state(&around)


ctypedef PyObject* (*invoke_kernel)(PyObject*, PyObject* const*, size_t, PyObject*) except NULL


cdef object call_with_arguments(
    OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys, bint unwrap
):
    """Run steps 5 and 6 for any kernel: lay out a new array of arguments."""
    cdef PyObject* laid_out[MAX_ARGUMENTS + 3]      # a spare item, the key set, the operator, the arguments
    cdef Py_ssize_t n = 1, i, positional = signature.n_positional
    cdef DispatchKeySet key_set
    cdef tuple names = None
    cdef PyObject* result
    if entry.convention & PARTIAL:
        check_unsupported(op, signature, entry, frame, keys)
    if unwrap and signature.mutable:
        bump_versions(signature, frame)
    if entry.convention & TAKES_KEYSET:
        key_set = keyset(keys & KEY_BITS)
        laid_out[n] = <PyObject*>key_set
        n += 1
    if entry.convention & TAKES_OPERATOR:
        laid_out[n] = <PyObject*>op
        n += 1
    while positional > 0 and is_stripped(signature, entry, frame, positional - 1):
        positional -= 1
    for i in range(positional):
        laid_out[n] = argument_at(signature, frame, i, unwrap)
        n += 1
    positional = n - 1
    for i in range(signature.n_positional, signature.n_arguments):
        if not is_stripped(signature, entry, frame, i):
            laid_out[n] = argument_at(signature, frame, i, unwrap)
            n += 1
            name = <tuple>signature.single_names[i]
            names = name if names is None else names + name
    if entry.loop.kind and positional == entry.loop.n_in and names is not None:
        result = call_loop_with_option(&entry.loop, &laid_out[1], <PyObject*>names)
        if result != NULL:
            return steal(result)
    return steal(invoke(<PyObject*>entry, &laid_out[1], positional | PY_VECTORCALL_ARGUMENTS_OFFSET,
                        NULL if names is None else <PyObject*>names))


cdef inline bint is_stripped(Signature signature, TableEntry entry, Frame* frame, Py_ssize_t i) except -1:
    cdef PyObject* value
    if entry.fill & bit(i):
        return False
    value = value_at(frame, i)
    return value == NULL or is_default(<PyObject*>signature, i, value)


cdef int check_unsupported(OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys) except -1:
    """Raise an error if an argument that the kernel does not take is not at its default."""
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        if entry.unsupported & bit(i) and not is_stripped(signature, entry, frame, i):
            raise upcalls.unsupported_argument(
                op, signature.schema, slot_keys[highest_slot(keys)], entry, i, <object>value_at(frame, i))
    return 0


cdef inline PyObject* argument_at(Signature signature, Frame* frame, Py_ssize_t i, bint unwrap) except NULL:
    """Return the value that a kernel gets. The frame keeps a pytree alive that was made for it."""
    cdef PyObject* value = value_at(frame, i)
    if value == NULL:
        return PyTuple_GET_ITEM(<PyObject*>signature.defaults, i)
    if not unwrap or not signature.arrays & bit(i):
        return value
    if is_tensor_type(Py_TYPE(value)):
        return <PyObject*>(<Tensor>value).array
    if signature.kind[i] & KIND == ARRAY:
        return value
    return keep(frame, unwrap_value(<object>value))


cdef PyObject* keep(Frame* frame, value) except NULL:
    if frame.kept == NULL:
        frame.kept = new_reference(value)
    else:
        both = (<object>frame.kept, value)
        Py_DECREF(frame.kept)
        frame.kept = new_reference(both)
    return <PyObject*>value


cdef object call_boxed_kernel(
    OpOverload op, Signature signature, TableEntry entry, Frame* frame, uint64_t keys, bint unwrap
):
    cdef Stack stack = Stack()
    cdef Py_ssize_t i
    if unwrap and signature.mutable:
        bump_versions(signature, frame)
    for i in range(signature.n_arguments):
        stack.append(<object>argument_at(signature, frame, i, unwrap))
    enter_recursive_call()
    try:
        call_with_published_state(entry.function, (op, keyset(keys & KEY_BITS), stack)
                                  if entry.convention & TAKES_KEYSET else (op, stack))
    finally:
        leave_recursive_call()
    if len(stack) != signature.n_returns:
        raise upcalls.wrong_number_left(op, signature.schema, entry.kernel, tuple(stack))
    if signature.n_returns == 0:
        return None
    return stack[0] if signature.n_returns == 1 else tuple(stack)


# --- entering a call --------------------------------------------------------------------------------------------------


cdef PyObject* call_operator(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    cdef PyObject* result
    if fast_path(self, args, nargsf, kwnames, &result):
        return result
    return new_reference(call_in_general(<OpOverload>self, args, nargsf, kwnames))


cdef inline bint fast_path(
    PyObject* op, PyObject* const* args, size_t nargsf, PyObject* kwnames, PyObject** result
) except -1:
    """Run a common call without counting a reference at each step.

    False means that nothing has happened yet. The result is NULL if the call raised.
    """
    cdef PyObject* table = <PyObject*>(<OpOverload>op).table
    cdef PyObject* state
    cdef PyObject* entry
    cdef Frame frame
    if table == Py_None or not bind_directly(&frame, <PyObject*>(<Table>table).signature, args, nargsf, kwnames):
        return False
    state = borrowed_state()
    if (<State>state).plain and frame.word == (<Table>table).last_word:
        entry = (<Table>table).last_entry
    else:
        entry = NULL if (<State>state).tracer is not None else plain_entry(op, table, state, frame.word)
    if entry == NULL:
        return other_fast_paths(op, table, state, &frame, result)
    Py_INCREF(<object>table)    # this also holds the entry, in case the kernel removes itself
    result[0] = (<direct_call>run_directly)(op, table, entry, &frame)
    Py_DECREF(table)
    return True


cdef bint other_fast_paths(PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result) except -1:
    """Run a bound call that takes more than calling a kernel."""
    cdef PyObject* entry
    cdef Table held = <Table>table
    if recording_fast_path(op, table, state, frame, result):
        return True
    entry = further_entry(op, table, state, frame)
    if entry != NULL:
        if (<State>state).tracer is None:
            result[0] = (<direct_call>run_directly)(op, table, entry, frame)
        else:
            result[0] = (<direct_call>run_recorded)(op, table, entry, frame)
    elif not batching_fast_path(op, table, state, frame, result):
        if frame.names != NULL:
            return False
        result[0] = (<bound_call>call_bound_frame)(op, table, frame)
    return True


cdef bint all_constant(Frame* frame, Signature signature) except -1:
    """Return whether no argument was ever recorded. Then it does not matter which arguments are views."""
    cdef Py_ssize_t i
    cdef PyObject* value
    for i in range(frame.count + frame.n_names):
        value = frame.values[i]
        if value == NULL:
            continue
        if is_tensor_type(Py_TYPE(value)):
            if not is_constant(<Tensor>value):
                return False
        elif (not frame.direct and signature.arrays & bit(i) and signature.kind[i] & KIND != ARRAY
                and not holds_constants(value)):
            return False
    return True


cdef bint holds_constants(PyObject* value) except -1:
    """Return whether no Tensor in a value, which may be or hold arrays, was ever recorded."""
    cdef Py_ssize_t i
    if is_tensor_type(Py_TYPE(value)):
        return is_constant(<Tensor>value)
    if PyTuple_CheckExact(value):
        for i in range(PyTuple_GET_SIZE(value)):
            if not holds_constants(PyTuple_GET_ITEM(value, i)):
                return False
        return True
    for leaf in array_leaves(<object>value) if not word_of_array(value) else ():
        if isinstance(leaf, Tensor) and not is_constant(<Tensor>leaf):
            return False
    return True


cdef inline bint is_constant(Tensor tensor) noexcept:
    """Return whether neither the Tensor nor its memory was ever recorded."""
    cdef Memory memory = tensor.memory
    return tensor.edge is None and (memory is None or (
        memory.edge is None and memory.generation == 0 and not memory.is_leaf))


cdef PyObject* call_bound_frame(PyObject* op, PyObject* table, Frame* frame) except NULL:
    """Run the rest of a bound call that takes more than the fast path."""
    return new_reference(call_bound(<OpOverload>op, <Table>table, frame))


# the same functions for callers that pass the exception on as NULL, or clean up first
ctypedef PyObject* (*bound_call)(PyObject*, PyObject*, Frame*) noexcept

ctypedef PyObject* (*direct_call)(PyObject*, PyObject*, PyObject*, Frame*) noexcept


cdef inline PyObject* run_directly(PyObject* op, PyObject* table, PyObject* entry, Frame* frame) except NULL:
    """Run steps 5 to 7 of the fast path."""
    return finish_directly(op, table, entry, frame, call_directly(<PyObject*>(<Table>table).signature, entry, frame))


cdef PyObject* run_recorded(PyObject* op, PyObject* table, PyObject* entry, Frame* frame) except NULL:
    """Run steps 5 to 7 of the fast path, recorded by recorders."""
    return finish_directly(op, table, entry, frame, call_directly_recorded(state_now().tracer, op, table, entry, frame))


cdef inline PyObject* finish_directly(
    PyObject* op, PyObject* table, PyObject* entry, Frame* frame, PyObject* result
) except NULL:
    """Run step 7 of the fast path."""
    cdef PyObject* signature = <PyObject*>(<Table>table).signature
    if (<Signature>signature).returns_fresh_tensor and Py_TYPE(result) == &PyArray_Type:
        return wrap_ndarray(result) if frame.word & TENSOR_FLAG else result
    return new_reference(finish(<OpOverload>op, <Signature>signature, <TableEntry>entry, frame, steal(result)))


cdef object call_in_general(OpOverload op, PyObject* const* args, size_t nargsf, PyObject* kwnames):
    cdef Table table = table_of(op)
    cdef Frame frame
    bind(&frame, op, table.signature, args, nargsf, kwnames)
    return call_bound(op, table, &frame)


cdef object call_bound(OpOverload op, Table table, Frame* frame):
    try:
        return dispatch(op, table, frame, state_now(), BY_CALL)
    finally:
        release(frame)


cdef object dispatch(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Run steps 2 to 7."""
    if state.generators is not None and table.is_stateful:
        replaced = state.generators.arguments(op, *arguments_with(frame, table.signature, None))
        if replaced is not None:
            return op(*replaced[0], **replaced[1])
    if state.substitute is not None and frame.word & TENSOR_FLAG:
        return call_with_substitute(op, table, frame, state, kind)
    return dispatch_as_meant(op, table, frame, state, kind)


cdef object dispatch_as_meant(OpOverload op, Table table, Frame* frame, State state, CallKind kind):
    """Run steps 2 to 7 without replacing captured values."""
    if state.unchanged and frame.word & SPECIAL_FLAGS == SHARED_FLAG and all_constant(frame, table.signature):
        frame.word &= ~SHARED_FLAG
    if frame.word & SPECIAL_FLAGS or state.innermost is not None or state.inference:
        return call_through_stack(op, table, frame, state, kind)
    return run(op, table, frame, effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, frame.word), state,
               kind)


cdef PyObject* call_target(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) except NULL:
    return PyObject_Vectorcall(<PyObject*>(<Callee>self).target, args, nargsf, kwnames)


cdef class Callee:
    """An object that calls its `target` without a frame or a tuple in between."""

    def __cinit__(self, *args, **kwargs):
        self.vectorcall = <vectorcallfunc>call_target

    def __call__(self, *args, **kwargs):
        return steal(call_by_slot(<PyObject*>self, self.vectorcall, <PyObject*>args, <PyObject*>kwargs))


some_callee = Callee.__new__(Callee)
make_vectorcallable(Callee, <char*>&some_callee.vectorcall - <char*><PyObject*>some_callee)
