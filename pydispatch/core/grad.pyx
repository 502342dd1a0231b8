# `grad` and `vjp`: interpreter, wrapper, and entry points.


cdef class Grad(Interpreter):
    """The interpreter of `grad` and `vjp`: records on a tape of its own."""

    @property
    def differentiates(self):
        return True

    def is_off(self, State state not None):
        return not state.grad

    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, str how):
        cdef TableEntry composite = composite_instead(op, table, frame, self)
        if composite is not None:
            return run_entry(op, table, composite, frame, frame.word & KEY_BITS, state, how)
        return call_and_record(op, table, frame, state, self, how)

    cdef Wrapper new_wrapper(self, value, tangent):
        return GradTensor.__new__(GradTensor)

    cdef int check_entering(self, State around) except -1:
        if isinstance(around.saved_hooks, (tuple, str)):
            raise AutogradError(f"saved_tensors_hooks does not work with {self.name}\nleave its block first")
        return 0

    cdef int change_inside(self, State inside) except -1:
        inside.inference = False
        inside.grad = True
        return 0

    cdef int change_below(self, State below, State inside) except -1:
        Interpreter.change_below(self, below, inside)
        below.grad = inside.grad and self.entered.grad
        return 0


@cython.final
cdef class GradTensor(Wrapper):
    """A value of a running `grad` or `vjp`; its array is the value of the interpreter below."""


# --- the fast path ----------------------------------------------------------------------------------------------------


cdef inline bint recording_fast_path(
    PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result
) except -1:
    """A fast path for recording: a library operator with one fresh result, on the tape or in the innermost `grad`."""
    cdef uint64_t special = frame.word & SPECIAL_FLAGS
    if (not special & (TRACKED_FLAG | WRAPPER_FLAG) or special & INFERENCE_FLAG
            or special & SHARED_FLAG and not all_fresh(frame)
            or frame.word & PYTHON_BIT or not (<State>state).grad or (<State>state).inference or frame.names != NULL
            or (<State>state).tracer is not None or (<State>state).substitute is not None
            or Py_TYPE(<PyObject*>(<Table>table).derivative) != DERIVATIVE_TYPE
            or not (<Signature>(<Table>table).signature).returns_fresh_tensor
            or autograd_keys(table, frame.word)):
        return False
    if special & WRAPPER_FLAG:
        if (<State>state).innermost is None or Py_TYPE(<PyObject*>(<State>state).innermost) != GRAD_INTERPRETER_TYPE:
            return False
        if not all_owned(frame, <PyObject*>(<State>state).innermost):
            return False
    elif not (<State>state).plain:
        return False
    result[0] = (<recorded_call>call_recorded)(op, table, state, frame)
    return True


DERIVATIVE_TYPE = <PyTypeObject*>Derivative
GRAD_INTERPRETER_TYPE = <PyTypeObject*>Grad

# the same function, for a caller that passes the exception on as NULL
ctypedef PyObject* (*recorded_call)(PyObject*, PyObject*, PyObject*, Frame*) noexcept


cdef inline bint all_owned(Frame* frame, PyObject* interpreter) noexcept:
    """Is every Tensor among the values of this interpreter?"""
    cdef Py_ssize_t i
    for i in range(frame.count):
        if Py_TYPE(frame.values[i]) == GRAD_TYPE:
            if <PyObject*>(<Wrapper>frame.values[i]).interpreter != interpreter:
                return False
        elif is_tensor_type(Py_TYPE(frame.values[i])):
            return False
    return True


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
    cdef uint64_t tracked = tracked_arguments(frame, signature, interpreter) & derivative.differentiable
    if interpreter is None:
        if Py_TYPE(<PyObject*>value) == &PyArray_Type:
            result = <Tensor>own(wrap_ndarray(give(value)))
        else:
            result = wrap_at(None, value, None)
    else:
        result = wrap_at(interpreter, value, None)
    array = <PyObject*>result.array
    if Py_TYPE(array) != &PyArray_Type:
        array = bottom_of(result)
    if tracked and is_inexact(array):
        node = record(derivative, signature, frame, array, tracked, interpreter, held, None)
        save_result(node, result, held)
        result.edge = node
        result.word |= TRACKED_FLAG
    return give(result)


cdef inline object value_of_kernel(OpOverload op, Table table, State state, Frame* frame, Interpreter interpreter):
    """The result of the call on the values of the interpreter below."""
    if interpreter is None:
        return value_at_bottom(op, table, state, frame, frame.word, None)
    return value_below_interpreter(op, table, lowered_state(state), frame, interpreter)


cdef object value_below_interpreter(OpOverload op, Table table, State lower, Frame* frame, Interpreter interpreter):
    cdef uint64_t word = 0
    cdef Py_ssize_t i
    cdef Cell around
    go_deeper(&around, lower)
    try:
        for i in range(frame.count):
            word |= word_of_array(frame.raw[i + 1])
        if word & TENSOR_FLAG or not lower.plain:
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
    value = own(call_directly(<PyObject*>table.signature, entry, frame))
    if Py_TYPE(<PyObject*>value) != &PyArray_Type:
        value = unwrap_value(finish(op, table.signature, <TableEntry>entry, frame, value))
    return value


cdef object call_in_order(OpOverload op, Table table, Frame* frame, State state, Interpreter interpreter):
    """The same for kernels that take more than the arguments."""
    if interpreter is None:
        return unwrap_value(run_below_tape(op, table, frame, state, "call"))
    return own(PyObject_Vectorcall(
        <PyObject*>op, &frame.raw[1], frame.count | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL))




def differentiate(function, tuple args, dict kwargs, argnums, bint has_aux, bint with_value):
    """What `grad`, or with a value `value_and_grad`, gives for one call of the function that it made."""
    cdef tuple positions = simple_positions(argnums, args)
    cdef list gradients
    cdef Py_ssize_t k
    cdef object site = calling_site(), value, aux, found
    cdef Grad interpreter
    if positions is None:
        value, aux, found = upcalls.differentiate_in_general(function, args, kwargs, argnums, has_aux, site)
    else:
        interpreter = Grad("grad", site)
        value, aux, gradients = value_and_gradients(interpreter, function, args, kwargs, positions, has_aux)
        for k in range(len(positions)):
            argument = args[<Py_ssize_t>positions[k]]
            if Py_TYPE(<PyObject*>gradients[k]) != &PyArray_Type or Py_TYPE(<PyObject*>argument) != &PyArray_Type:
                gradients[k] = upcalls.as_gradient(gradients[k], argument, not isinstance(value, Tensor))
        found = gradients[0] if type(argnums) is int else tuple(gradients)
        if has_aux:
            aux = upcalls.leave_aux(aux, interpreter, args)
    if not with_value:
        return (found, aux) if has_aux else found
    value = upcalls.as_passed(value, args)
    return ((value, aux) if has_aux else value), found


cdef tuple value_and_gradients(Grad interpreter, function, tuple args, dict kwargs, tuple positions, bint has_aux):
    """(value, aux, gradients) of a function at an interpreter of `grad`: all as values of the interpreter below.

    A gradient is None where the value does not depend on the argument; the others are in memory of their own.
    """
    cdef list entered = list(args)
    cdef Py_ssize_t i
    for i in positions:
        if not is_inexact_value(args[i]):
            upcalls.check_differentiable("grad", args[i], i)
    interpreter.arguments = args
    enter_interpreter(interpreter)
    try:
        for i in range(len(entered)):
            if i in positions:
                entered[i] = tracked_leaf(interpreter, args[i])
            elif word_of_array(<PyObject*>entered[i]):
                entered[i] = enter_at(interpreter, entered[i], None)
            elif word_of_value(<PyObject*>entered[i]):
                entered[i] = upcalls.enter_constants(interpreter, entered[i])
        if kwargs:
            kwargs = upcalls.enter_constants(interpreter, kwargs)
        output = function(*entered, **kwargs)
        aux = None
        if has_aux:
            output, aux = upcalls.check_aux("grad", output, True)
        if not owned_by(<PyObject*>output, interpreter) or not is_real_scalar(<Tensor>output):
            output = upcalls.as_scalar(output)
        if isinstance(output, Tensor):
            refresh_if_owned(<Tensor>output, interpreter)
    finally:
        leave_interpreter(interpreter)
    cdef list gradients = [None] * len(positions)
    value = below(output, interpreter)
    if tracked_at(<PyObject*>output, interpreter):
        gradients = run_pass(((<Tensor>output).edge,), (seed_of(value),), False, False,
                            tuple([(<Tensor>entered[i]).edge for i in positions]), interpreter, False)
    return value, aux, gradients


cdef object seed_of(value):
    """The gradient of a value of one element with respect to itself."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type and not PyArray_NDIM(<PyArrayObject*><PyObject*>value) and (
            not watches_arrays(state_now())):
        return one_of(<object>PyArray_DESCR(<PyArrayObject*><PyObject*>value))
    return upcalls.one_beside(value)


NOT_FLAT = not_flat


@cython.final
@cython.trashcan(True)
cdef class VjpFunction:
    """What `vjp` gives: a function from the cotangent of the output to a tuple of gradients, one per primal."""

    def __call__(self, cotangent):
        cdef tuple found
        cdef list gradients
        cdef Py_ssize_t i
        cdef bint of_raw
        if not word_of_array(<PyObject*>cotangent) or not have_same_outline(cotangent, self.value):
            cotangent = upcalls.as_cotangent(cotangent, self.value)
        elif Py_TYPE(<PyObject*>cotangent) == TENSOR_TYPE:
            cotangent = upcalls.as_raw_constant(cotangent)
        of_raw = not isinstance(self.value, Tensor) and not isinstance(cotangent, Tensor)
        gradients = [None] * len(self.primals)
        if self.root is not None:
            gradients = run_pass((self.root,), (cotangent,), False, True, self.targets, self.interpreter, False)
        for i in range(len(gradients)):
            if (Py_TYPE(<PyObject*>gradients[i]) != &PyArray_Type
                    or Py_TYPE(PyTuple_GET_ITEM(<PyObject*>self.primals, i)) != &PyArray_Type):
                gradients[i] = upcalls.as_gradient(gradients[i], self.primals[i], of_raw)
        return tuple(gradients)


def run_vjp(function, tuple primals, site):
    """(output, VjpFunction) of `vjp` for arrays; NOT_FLAT, with nothing done, where Python has to look closer."""
    cdef Py_ssize_t i
    cdef Grad interpreter
    cdef list entered = []
    cdef object run = None
    cdef VjpFunction pull
    if not are_arrays_alone(primals):
        return not_flat
    for primal in primals:
        if not is_inexact_value(primal):
            return not_flat
    interpreter = Grad("vjp", site)
    enter_interpreter(interpreter)
    try:
        for primal in primals:
            entered.append(tracked_leaf(interpreter, primal))
        output = unwrap_dead_result(function(*entered))
        if owned_by(<PyObject*>output, interpreter) and is_inexact(bottom_of(output)):
            refresh(output)
        else:
            run = upcalls.recorded(interpreter, output, entered)
    finally:
        leave_interpreter(interpreter)
    if run is not None:
        return upcalls.pulled(run, primals)
    pull = VjpFunction.__new__(VjpFunction)
    pull.interpreter = interpreter
    pull.value = (<Tensor>output).array
    pull.root = (<Tensor>output).edge if (<Tensor>output).word & TRACKED_FLAG else None
    pull.targets = tuple([(<Tensor>leaf).edge for leaf in entered])
    pull.primals = primals
    return handed_out(pull.value, has_tensor(primals), primals, False), pull
