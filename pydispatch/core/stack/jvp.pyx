# `jvp`: interpreter, wrapper, rules for tangents, and entry point.
#
# At an interpreter of `jvp` every value has a tangent, or None for zeros. An operator is called on the values of the
# interpreter below. There, its formulas also compute the tangents of the results from those of the arguments.


cdef class Jvp(Differentiator):
    """The interpreter of `jvp`: values with tangents."""

    def is_off(self, State state not None):
        return not state.forward

    cdef object differentiate_call(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        return call_and_propagate(op, table, frame, state, self, kind)

    cdef Wrapper new_wrapper(self, value, tangent):
        cdef JvpTensor wrapper = JvpTensor.__new__(JvpTensor)
        wrapper.tangent = tangent
        return wrapper

    cdef bint propagates(self) noexcept:
        return True

    cdef object tangent_at(self, Wrapper value):
        return tangent_of(<JvpTensor>value)

    cdef object edge_at(self, Tensor value):
        return (<JvpTensor>value).tangent

    cdef bint tracks(self, Wrapper value) except -1:
        return tangent_of(<JvpTensor>value) is not None and is_inexact(bottom_of(value))

    cdef Tensor alike(self, Wrapper value, other):
        return with_edge_of(value, wrap_at(self, other, tangent_of(<JvpTensor>value)))

    cdef int change_inside(self, State inside) except -1:
        inside.inference = False
        inside.forward = True
        return 0

    cdef int change_below(self, State below, State inside) except -1:
        Interpreter.change_below(self, below, inside)
        below.forward = inside.forward and self.entered.forward
        return 0


@cython.final
cdef class JvpTensor(Wrapper):
    """A value of a running `jvp` with its tangent, or None for zeros."""


JVP_TYPE = <PyTypeObject*>JvpTensor
keep_freed(JvpTensor)


cdef object call_and_propagate(
    OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter, CallKind kind
):
    """Run a call below an interpreter of `jvp`, and set the tangents of its results."""
    cdef Signature signature = table.signature
    cdef TableEntry composite
    cdef object derivative = None, values = None
    cdef Py_ssize_t i
    cdef bint loses_value = False
    if state.forward and not state.inference and has_tangents(frame, signature, interpreter):
        composite = table.differentiated_as
        if composite is not None:
            return run_entry(op, table, composite, frame, frame.word & KEY_BITS, state, kind)
        derivative = compiled_derivative_of(op, table)
        if derivative is None:
            refuse_constant_write(op, signature, frame, signature.arrays, interpreter)
            loses_value = True
        elif isinstance(derivative, Derivative) and not (<Derivative>derivative).differentiable_inside:
            derivative = None
        elif is_simple(derivative, signature, frame) and not watches_arrays(lowered_state(state)):
            return propagate_simply(op, signature, <Derivative>derivative, frame, state, <Jvp>interpreter)
    if signature.mutable:
        check_writes(op, signature, frame, state, interpreter, 0)
    if derivative is not None:
        values = [<object>value_or_default(frame, signature, i) for i in range(signature.n_arguments)]
        if isinstance(derivative, Derivative) and (<Derivative>derivative).in_place:
            for i, copy in enumerate(copies_before_write(derivative, signature, frame, signature.arrays, interpreter)):
                if copy is not None:
                    values[i] = copy
        elif signature.mutable:
            values = values_before_write(signature, frame, interpreter)
    if signature.mutable:
        bump_versions(signature, frame)
    result = wrap_results(signature, frame, call_below(op, signature, frame, state, interpreter), interpreter)
    if derivative is not None:
        upcalls.propagate(op, derivative, tuple(values), result, interpreter)
    if loses_value:
        refuse_number(op, signature, frame, result)
    return result


cdef bint is_simple(derivative, Signature signature, Frame* frame) except -1:
    """Return whether this is an operator of the library with one new result, and no pytree holds wrappers.

    A linear operator may take a tuple of them.
    """
    cdef Py_ssize_t i
    if not isinstance(derivative, Derivative) or (<Derivative>derivative).in_place:
        return False
    if (<Derivative>derivative).forward == TRANSPOSED:
        return False
    if signature.mutable or signature.n_returns != 1 or not signature.return_is_tensor[0]:
        return False
    if signature.lists:
        for i in range(frame.count):
            if (signature.arrays & bit(i) and frame.values[i] != NULL and not is_tensor_type(Py_TYPE(frame.values[i]))
                    and word_of_value(frame.values[i]) & WRAPPER_FLAG and not (
                        (<Derivative>derivative).forward == LINEAR and signature.kind[i] & KIND == ARRAYS
                        and are_arrays(frame.values[i]))):
                return False
    return True


cdef bint has_tangents(Frame* frame, Signature signature, Interpreter interpreter) except -1:
    cdef Py_ssize_t i
    if not frame.word & WRAPPER_FLAG:
        return False
    for i in range(frame.count):
        if frame.values[i] == NULL or not signature.arrays & bit(i):
            continue
        if word_of_array(frame.values[i]):
            if owned_by(frame.values[i], interpreter) and tangent_of(<JvpTensor>frame.values[i]) is not None:
                return True
            continue
        for leaf in array_leaves(<object>frame.values[i]):
            if owned_by(<PyObject*>leaf, interpreter) and tangent_of(leaf) is not None:
                return True
    return False


cdef object propagate_simply(
    OpOverload op, Signature signature, Derivative derivative, Frame* frame, State state, Jvp interpreter
):
    """Compute the value and the tangent of a call that `is_simple`, at the interpreter below."""
    cdef PyObject* values[MAX_ARGUMENTS + 1]
    cdef PyObject* tangents[MAX_ARGUMENTS]      # NULL for none, owned as the call may write to their holders
    cdef Py_ssize_t i
    cdef Cell around
    cdef State lower = lowered_state(state)
    cdef JvpTensor result
    cdef list kept = []
    for i in range(frame.count):
        values[i + 1] = frame.values[i]
        tangents[i] = NULL
    try:
        for i in range(frame.count):
            if frame.values[i] != NULL and signature.arrays & bit(i) and owned_by(frame.values[i], interpreter):
                values[i + 1] = <PyObject*>(<Tensor>frame.values[i]).array
                tangent = tangent_of(<JvpTensor>frame.values[i])
                if tangent is not None and PyTuple_GET_ITEM(<PyObject*>derivative.formulas, i) != Py_None:
                    tangents[i] = new_reference(tangent)
            elif frame.values[i] != NULL and signature.kind[i] & KIND == ARRAYS:
                below, tangent = values_and_tangents(<tuple>frame.values[i], interpreter)
                kept.append(below)
                values[i + 1] = <PyObject*>below
                if tangent is not None:
                    tangents[i] = new_reference(tangent)
        push_state(&around, lower)
        try:
            value = call_with_values(op, signature, frame.direct, frame.count, &values[1])
            result = <JvpTensor>wrap_result(signature, frame, 0, value, interpreter)
            if is_inexact(bottom_of(result)):
                if lower.tracer is None:
                    tangent = tangent_of_call(op, signature, derivative, frame, &values[1], tangents, result, lower)
                else:
                    tangent = tangent_traced(lower.tracer, op, signature, derivative, frame, &values[1], tangents,
                                             result, lower)
                if tangent is not None:
                    set_tangent(result, as_tangent_of(tangent, bottom_of(result), derivative))
            else:
                refuse_objects(op.name, bottom_of(result), interpreter)
        finally:
            pop_state(&around)
        if derivative.has_kink and lower.innermost is not None:     # which may differentiate again
            result.kink = op, as_they_are(frame, signature), total_version(result)
        elif derivative.squares:
            return square_with_tangent(derivative, frame, result, state)
    finally:
        for i in range(frame.count):
            Py_XDECREF(tangents[i])
    return result


cdef tuple values_and_tangents(tuple values, Jvp interpreter):
    """Return the values below, and their tangents, or None if none has one."""
    cdef list below = [], tangents = []
    cdef bint moves = False
    for value in values:
        tangent = None
        if owned_by(<PyObject*>value, interpreter):
            tangent = tangent_of(<JvpTensor>value)
            value = (<Tensor>value).array
        moves = moves or tangent is not None
        below.append(value)
        tangents.append(tangent)
    return tuple(below), tuple(tangents) if moves else None


cdef tuple all_tangents(tuple values, tuple tangents):
    """Return the tangents, with zeros for None."""
    cdef list found = []
    for value, tangent in zip(values, tangents):
        found.append(upcalls.zeros_like(value) if tangent is None else tangent)
    return tuple(found)


cdef object square_with_tangent(Derivative derivative, Frame* frame, JvpTensor result, State state):
    """Return a square. If its root has a kink, it gets the second derivative of autograd/kinks.py."""
    cdef JvpTensor root
    if derivative.squares == BY_ITSELF and frame.values[1] != frame.values[0] or not owned_by(
            frame.values[0], result.interpreter):
        return result
    root = <JvpTensor>frame.values[0]
    if root.kink is None:
        return result
    op, arguments, writes = root.kink
    if total_version(root) != writes:
        return result
    exponent = 2 if derivative.squares != BY_EXPONENT else <object>frame.values[1]
    return call_in(state, upcalls.square_of_kink, (op, as_they_were(arguments), root, exponent, result))


cdef list as_they_are(Frame* frame, Signature signature):
    """Return the arguments of a call, saved from later writes."""
    cdef list arguments = []
    cdef Py_ssize_t i
    for i in range(signature.n_arguments):
        value = <object>value_or_default(frame, signature, i)
        arguments.append(saved_tensor(<Tensor>value) if isinstance(value, Tensor) else value)
    return arguments


cdef dict as_they_were(list arguments):
    """Return the arguments that `as_they_are` has saved, by position."""
    cdef dict values = {}
    for i, value in enumerate(arguments):
        if isinstance(value, SavedTensor):
            value = value_when_saved((<SavedTensor>value).tensor, (<SavedTensor>value).time)
        values[i] = value
    return values


cdef object tangent_traced(tracer, OpOverload op, Signature signature, Derivative derivative, Frame* frame,
                           PyObject** values, PyObject** tangents, JvpTensor result, State lower):
    """Run `tangent_of_call` inside a tracer. Recorders record it, other tracers only see kernels."""
    return tangents_traced(tracer, derivative.name, result.array, lambda: tangent_of_call(
        op, signature, derivative, frame, values, tangents, result, lower), ())


def as_tangents_of(str name, output, function, *args):
    """Call a function that makes the tangents of `output`. Recorders record it by the name of a tape's node."""
    return tangents_traced(state_now().tracer, name, output, function, args)


cdef object tangents_traced(tracer, str name, output, function, tuple args):
    cdef OpenEvent opened
    if not isinstance(tracer, Recorder):
        return function(*args)
    begin_named(<Recorder>tracer, name_of_tangent(name), output, &opened)
    try:
        return tangents_traced((<Recorder>tracer).around, name, output, function, args)
    finally:
        end_event(<Recorder>tracer, &opened)


cdef str name_of_tangent(str name):
    return name.removesuffix("Backward") + "Tangent"


cdef object tangent_of_call(OpOverload op, Signature signature, Derivative derivative, Frame* frame, PyObject** values,
                            PyObject** tangents, JvpTensor result, State lower):
    """Return the tangent of a result, given those of the arguments. `values` are those of the interpreter below."""
    cdef Py_ssize_t i
    cdef object total = None, term
    cdef PyObject* value
    if derivative.forward == LINEAR:
        return tangent_of_linear(op, signature, derivative, frame, values, tangents)
    for i in range(frame.count):
        if tangents[i] == NULL:
            continue
        if derivative.forward == MULTILINEAR:
            value = values[i]
            values[i] = tangents[i]
            term = call_with_values(op, signature, frame.direct, frame.count, values)
            values[i] = value
        else:
            term = tangent_by_formula(
                derivative if derivative.tangents is None else derivative.tangents, signature, frame, i, values,
                tangents[i], result, lower)
        total = term if total is None else sum_of_two(total, term)
    return total


cdef object tangent_of_linear(
    OpOverload op, Signature signature, Derivative derivative, Frame* frame, PyObject** values, PyObject** tangents
):
    """Call the operator itself on the tangents of all the arguments that it is linear in."""
    cdef PyObject* replaced[MAX_ARGUMENTS + 1]
    cdef list kept = []
    cdef Py_ssize_t i
    for i in range(frame.count):
        replaced[i + 1] = values[i]
        if tangents[i] != NULL:
            replaced[i + 1] = tangents[i]
            if Py_TYPE(tangents[i]) == &PyTuple_Type:
                completed = all_tangents(<tuple>values[i], <tuple>tangents[i])
                kept.append(completed)
                replaced[i + 1] = <PyObject*>completed
        elif values[i] != NULL and derivative.formulas[i] is not None and values[i] != Py_None:
            zeros = upcalls.zeros_like(<object>values[i])
            kept.append(zeros)
            replaced[i + 1] = <PyObject*>zeros
    return call_with_values(op, signature, frame.direct, frame.count, &replaced[1])


cdef object tangent_by_formula(Derivative derivative, Signature signature, Frame* frame, Py_ssize_t i,
                               PyObject** values,
                               PyObject* tangent, JvpTensor result, State lower):
    """Call one formula with the tangent and the residuals that it names."""
    cdef PyObject* args[MAX_RESIDUALS + 2]
    cdef PyObject* residuals
    cdef PyObject* found
    cdef PyObject* formula = PyTuple_GET_ITEM(<PyObject*>derivative.formulas, i)
    cdef list kept = None
    cdef Py_ssize_t n, j, index, argument
    if formula == <PyObject*>identity:
        return <object>tangent
    residuals = PyTuple_GET_ITEM(<PyObject*>derivative.inputs, i)
    n = PyTuple_GET_SIZE(residuals)
    operand = as_operand_of_formula(<object>tangent)
    args[1] = <PyObject*>operand
    for j in range(n):
        index = compact_value(PyTuple_GET_ITEM(residuals, j))
        argument = derivative.residual_argument[index]
        if derivative.residual_kind[index] == RESULT:
            value = result.array
        elif argument < frame.count and values[argument] != NULL:
            value = <object>values[argument]
        else:
            value = signature.defaults[argument]
        if derivative.residual_kind[index] > RESULT:
            value = described(value, derivative.residual_kind[index])
            kept = keep_in(kept, value)
        elif Py_TYPE(<PyObject*>value) != &PyArray_Type and not is_tensor_type(Py_TYPE(<PyObject*>value)):
            value = as_operand_of_formula(value)
            kept = keep_in(kept, value)
        args[j + 2] = <PyObject*>value
    if lower.unchanged and derivative.fused is not None:
        found = run_fused(PyTuple_GET_ITEM(<PyObject*>derivative.fused, i), &args[1], 0)
        if found != NULL:
            return steal(found)
    return steal(PyObject_Vectorcall(formula, &args[1], (n + 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))


cdef object as_tangent_of(tangent, PyObject* result, Derivative derivative):
    """Convert a tangent to the shape and dtype of the result, whose array is given."""
    tangent = as_operand_of_formula(tangent)
    cdef PyObject* array = <PyObject*>tangent
    if is_numpy_scalar(tangent):
        tangent = array_of_scalar(tangent)
    elif is_tensor_type(Py_TYPE(array)):
        array = bottom_of(<Tensor>tangent)
        if same_shape(array, result) and same_dtype(array, result):
            return tangent
    elif Py_TYPE(array) == &PyArray_Type and same_shape(array, result) and same_dtype(array, result):
        return tangent
    shape, dtype = shape_of(result), dtype_of(result)
    if derivative.is_checked:
        upcalls.check_tangent(derivative, tangent, shape, dtype)
    if tuple(tangent.shape) != shape:
        tangent = expand(tangent, shape)
    if tangent.dtype == dtype:
        return tangent
    if dtype.kind != "c" and tangent.dtype.kind == "c":
        tangent = tangent.real
    return tangent.astype(dtype)


cpdef tangent_of(JvpTensor tensor):
    """Return the tangent of a value of an interpreter of `jvp`, or None for zeros."""
    cdef Memory memory = tensor.memory
    if memory is not None and memory.generation != tensor.generation:
        tensor.tangent = memory.edge
        if not is_whole(bottom_of(tensor), memory) and memory.edge is not None:
            tensor.tangent = lowered(tensor.interpreter, upcalls.part_of, memory.edge, raw_array(tensor),
                                     memory.array)
        tensor.generation = memory.generation
    return tensor.tangent


cpdef set_tangent(JvpTensor tensor, tangent):
    """Set the tangent of a fresh value."""
    tensor.tangent = tangent
    tensor.generation = 0 if tensor.memory is None else tensor.memory.generation


def write_tangent(JvpTensor tensor, tangent):
    """Set the tangent of a value that was written to in place, and of its memory."""
    cdef Memory memory = tensor.memory
    if memory is not None and memory.array is not None:
        if is_whole(bottom_of(tensor), memory):
            memory.edge = tangent
        else:
            memory.edge = upcalls.part_replaced(memory.edge, tangent, raw_array(tensor), memory.array)
        memory.generation += 1
    set_tangent(tensor, tangent)


def run_jvp(function, tuple primals, tuple tangents, site):
    """Return (output, tangent) of `jvp` for arrays, or NOT_FLAT, with nothing done, if Python has to check more."""
    cdef Py_ssize_t i, n = len(primals)
    cdef Jvp interpreter
    cdef list entered = []
    cdef object run = None
    cdef bint as_tensors, scalar
    if n == 0 or len(tangents) != n or not are_arrays_alone(primals) or not are_arrays_alone(tangents):
        return not_flat
    for i in range(n):
        if not is_inexact_value(primals[i]) or not have_same_metadata(primals[i], tangents[i]):
            return not_flat
    interpreter = Jvp("jvp", site)
    interpreter.arguments = primals
    enter_interpreter(interpreter)
    try:
        for i in range(n):
            entered.append(enter_at(interpreter, primals[i], tangents[i]))
        output = unwrap_dead_result(function(*entered))
        if owned_by(<PyObject*>output, interpreter):
            tangent = tangent_of(<JvpTensor>output)
        else:
            run = upcalls.propagated(interpreter, output)
    finally:
        leave_interpreter(interpreter)
    if run is not None:
        return upcalls.output_and_tangent(run, primals + tangents)
    value = (<Tensor>output).array
    if tangent is None:
        tangent = upcalls.zeros_for(value)
    elif shares_memory_with_any(tangent, tangents) and not shares_memory_with_any(value, primals):
        tangent = upcalls.copy(tangent)      # the tangent is the caller's array, as that of x + 1 is
    scalar = (<Tensor>output).word & SCALAR_FLAG and (
        Py_TYPE(<PyObject*>value) == &PyArray_Type or not cnp.PyArray_Check(value))     # else a 0-d array of a subclass
    if scalar:
        value, tangent = scalar_below(output, interpreter), to_scalar(tangent)
    as_tensors = has_tensor(primals) or has_tensor(tangents)
    tangent = handed_out(tangent, as_tensors, primals + tangents, not isinstance(value, Tensor))
    if as_tensors and not shares_memory_with_any(tangent, primals + tangents):
        tangent = own_value(tangent)
    if not scalar and is_numpy_scalar(tangent):
        tangent = array_of_scalar(tangent)
    return handed_out(value, as_tensors, primals + tangents, False), tangent


cdef bint shares_memory_with_any(value, tuple others) except -1:
    """Return whether a value shares its memory with one of the others."""
    cdef object owner = memory_owner(value)
    for other in others:
        if memory_owner(other) is owner:
            return True
    return False


cdef bint have_same_metadata(left, right) except -1:
    """Return whether two arrays have the same shape and dtype."""
    cdef PyObject* first = bottom_of(<Tensor>left) if isinstance(left, Tensor) else <PyObject*>left
    cdef PyObject* second = bottom_of(<Tensor>right) if isinstance(right, Tensor) else <PyObject*>right
    return same_shape(first, second) and same_dtype(first, second)
