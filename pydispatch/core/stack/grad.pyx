# `grad` and `vjp`: interpreter, wrapper, and entry points.


cdef class Grad(Differentiator):
    """The interpreter of `grad` and `vjp`, which records on a separate tape."""

    def is_off(self, State state not None):
        return not state.grad

    cdef object differentiate_call(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        return call_and_record(op, table, frame, state, self, kind)

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
    """A value of a running `grad` or `vjp`, whose array is the value of the interpreter below."""


GRAD_TYPE = <PyTypeObject*>GradTensor
keep_freed(GradTensor)
GRAD_INTERPRETER_TYPE = <PyTypeObject*>Grad


cdef inline Wrapper wrap_ndarray_in(Interpreter interpreter, array):
    """Wrap an exact ndarray, as `wrap_at` does."""
    cdef GradTensor tensor = GradTensor.__new__(GradTensor)
    tensor.array = array
    tensor.word = CPU_WORD | AUTOGRAD_BIT | TENSOR_FLAG | WRAPPER_FLAG
    tensor.interpreter = interpreter
    return tensor


cdef Grad enter_grad(PublishedState* outside, str name, site):
    """Push an interpreter of `grad` on the stack: the last one that returned, if nothing else holds it, or a new one.

    Most calls leave nothing behind. The next call then finds everything it needs, including the mapping of the context.
    With `enter_interpreter`, which makes all of it, the gradient of sum(x * x + x) takes an eighth more instructions.
    """
    cdef State around = state_now()
    cdef State inside = around.spare
    cdef Grad interpreter
    if inside is not None and is_unused(around, inside):
        interpreter = <Grad>inside.guard
        interpreter.alive = True        # first, so that no other code can take it too
        interpreter.name = name
        interpreter.site = site
    else:
        drop_spare(around)
        interpreter = Grad(name, site)
        interpreter.entered = around
        inside = state_under(interpreter, around)
        interpreter.alive = True
    try:
        interpreter.check_entering(around)
        publish_state(outside, inside)
    except:
        interpreter.alive = False
        raise
    interpreter.serial = next_sequence()
    if not IS_FREE_THREADED:        # where threads share a state
        around.spare = inside
    return interpreter


cdef void leave_grad(Grad interpreter, PublishedState* outside) noexcept:
    """Remove the interpreter from the stack, and undo changes made inside it and not undone."""
    cdef State state = state_now()
    interpreter.alive = False
    interpreter.arguments = None
    withdraw_state(outside)
    while state.guard is not interpreter and state.parent is not None:
        state = state.parent
    if state.parent is not interpreter.entered and state.parent is not None:
        leave_for(state.parent)     # a guard around it was left inside it


cdef enum:
    HOLDERS_OF_INTERPRETER = 3      # its state, twice, and its place in the stack
    HOLDERS_OF_STATE = 2            # the state around it, and `enter_grad`


cdef inline bint is_unused(State around, State inside) noexcept:
    """Return whether this is the state of a `grad` that has returned, and nothing else holds it."""
    cdef Py_ssize_t mappings = 0
    if IS_FREE_THREADED:        # threads may share the state around
        return False
    if around.published == <PyObject*>inside:
        mappings = 1
        if not has_references(<PyObject*>around.published_variables, 1):     # a copy of the context
            return False
    return (not (<Grad>inside.guard).alive and has_references(<PyObject*>inside.guard, HOLDERS_OF_INTERPRETER)
            and has_references(<PyObject*>inside, HOLDERS_OF_STATE + mappings))


def differentiate(function, tuple args, dict kwargs, argnums, bint has_aux, bint with_value):
    """Run one call of the function that `grad`, or with a value `value_and_grad`, returned."""
    cdef tuple positions = simple_positions(argnums, args)
    cdef list gradients
    cdef Py_ssize_t k
    cdef object site = calling_site(), value, aux, found
    if positions is None:
        value, aux, found = upcalls.differentiate_in_general(function, args, kwargs, argnums, has_aux, site)
    else:
        value, aux, gradients = value_and_gradients(function, args, kwargs, positions, has_aux, with_value, site)
        for k in range(len(positions)):
            argument = args[<Py_ssize_t>positions[k]]
            if Py_TYPE(<PyObject*>gradients[k]) != &PyArray_Type or Py_TYPE(<PyObject*>argument) != &PyArray_Type:
                gradients[k] = upcalls.as_gradient(gradients[k], argument, not isinstance(value, Tensor))
        found = gradients[0] if type(argnums) is int else tuple(gradients)
    if not with_value:
        return (found, aux) if has_aux else found
    value = upcalls.as_passed(value, args)
    return ((value, aux) if has_aux else value), found


cdef tuple entered_arguments(Grad interpreter, tuple args, tuple positions):
    """Return positional arguments at an interpreter of `grad`: leaves at the positions, constants elsewhere."""
    cdef Py_ssize_t n = len(args), i
    cdef tuple entered = PyTuple_New(n)
    for i in range(n):
        value = args[i]
        if i in positions:
            value = tracked_leaf(interpreter, value)
        elif word_of_array(<PyObject*>value):
            value = enter_at(interpreter, value, None)
        elif word_of_value(<PyObject*>value):
            value = upcalls.enter_constants(interpreter, value)
        Py_INCREF(value)
        PyTuple_SET_ITEM(entered, i, value)
    return entered


cdef tuple value_and_gradients(function, tuple args, dict kwargs, tuple positions, bint has_aux, bint with_value,
                               site):
    """Return (value, aux, gradients) of a function at an interpreter of `grad`.

    All are values of the interpreter below. A gradient is None if the value does not depend on the argument. The other
    gradients are in memory that nothing else has.
    """
    cdef tuple entered
    cdef Py_ssize_t i
    cdef PublishedState outside
    cdef Grad interpreter
    for i in positions:
        if not is_inexact_value(args[i]):
            upcalls.check_differentiable("grad", args[i], i)
    interpreter = enter_grad(&outside, "grad", site)
    try:
        interpreter.arguments = args
        entered = entered_arguments(interpreter, args, positions)
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
        leave_grad(interpreter, &outside)
    cdef list gradients = [None] * len(positions)
    value = below(output, interpreter)
    if tracked_at(<PyObject*>output, interpreter):
        gradients = run_pass(((<Tensor>output).edge,), (seed_of(value),), False, False,
                            tuple([(<Tensor>entered[i]).edge for i in positions]), interpreter, False)
    if has_aux:
        aux = upcalls.leave_aux(aux, interpreter, args)
    return scalar_below(output, interpreter) if with_value else value, aux, gradients


cdef object seed_of(value):
    """Return the gradient of a value of one element with respect to itself."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type and not PyArray_NDIM(<PyArrayObject*><PyObject*>value) and (
            not watches_arrays(state_now())):
        return one_of(<object>PyArray_DESCR(<PyArrayObject*><PyObject*>value))
    return upcalls.one_beside(value)


NOT_FLAT = not_flat


@cython.final
@cython.trashcan(True)
cdef class VjpFunction:
    """The function that `vjp` returns: from the cotangent of the output to a tuple of gradients, one per primal."""

    def __call__(self, cotangent):
        cdef tuple found
        cdef list gradients
        cdef Py_ssize_t i
        cdef bint of_raw
        if (not word_of_array(<PyObject*>cotangent) or is_numpy_matrix(<PyObject*>cotangent)
                or not have_same_metadata(cotangent, self.value)):
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
    """Return (output, VjpFunction) of `vjp` for arrays, or NOT_FLAT, with nothing done, if Python has to check more."""
    cdef PublishedState outside
    cdef Grad interpreter
    cdef list entered = []
    cdef object run = None
    cdef VjpFunction vjp_fn
    if not are_arrays_alone(primals):
        return not_flat
    for primal in primals:
        if not is_inexact_value(primal):
            return not_flat
    interpreter = enter_grad(&outside, "vjp", site)
    try:
        for primal in primals:
            entered.append(tracked_leaf(interpreter, primal))
        output = unwrap_dead_result(function(*entered))
        if owned_by(<PyObject*>output, interpreter) and is_inexact(bottom_of(output)):
            refresh(output)
        else:
            run = upcalls.recorded(interpreter, output, entered)
    finally:
        leave_grad(interpreter, &outside)
    if run is not None:
        return upcalls.output_and_vjp_fn(run, primals)
    keep_for_later(output)
    for leaf in entered:
        keep_for_later(leaf)
    vjp_fn = VjpFunction.__new__(VjpFunction)
    vjp_fn.interpreter = interpreter
    vjp_fn.value = (<Tensor>output).array
    vjp_fn.root = (<Tensor>output).edge if (<Tensor>output).word & TRACKED_FLAG else None
    vjp_fn.targets = tuple([(<Tensor>leaf).edge for leaf in entered])
    vjp_fn.primals = primals
    return handed_out(scalar_below(output, interpreter), has_tensor(primals), primals, False), vjp_fn
