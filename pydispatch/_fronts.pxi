# --- the fronts of transforms ----------------------------------------------------------------------------------------
#
# What `grad`, `vjp`, `jvp` and `vmap` do with a call whose arguments are arrays and no containers. Everything else is
# left to Python, before the function is called or, where only its results are unusual, after that.

cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    PyFrameObject* PyEval_GetFrame()    # borrowed
    PyFrameObject* PyFrame_GetBack(PyFrameObject*) except? NULL
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)
    ctypedef struct PyCodeObject:
        pass


cdef str PACKAGE_FOLDER = os.path.join(os.path.dirname(__file__), "")


def calling_site():
    """Where the user's code called into the package: (code, offset of the instruction), for `Interpreter.site`.

    Of transforms that transforms call, that is where the outermost was called.
    """
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef object held = None
    while frame != NULL:
        frame = PyFrame_GetBack(frame)
        if frame == NULL:
            return None
        held = own(<PyObject*>frame)
        code = own(<PyObject*>PyFrame_GetCode(frame))
        if not code.co_filename.startswith(PACKAGE_FOLDER):
            return code, PyFrame_GetLasti(frame)
    return None


def differentiate(function, tuple args, dict kwargs, argnums, bint has_aux, bint with_value):
    """What `grad`, or with a value `value_and_grad`, gives for one call of the function that it made."""
    cdef tuple positions = simple_positions(argnums, args)
    cdef list gradients
    cdef Py_ssize_t k
    cdef object site = calling_site(), value, aux, found
    cdef Grad level
    if positions is None:
        value, aux, found = python_side["differentiate_in_general"](function, args, kwargs, argnums, has_aux, site)
    else:
        level = Grad("grad", site)
        value, aux, gradients = value_and_gradients(level, function, args, kwargs, positions, has_aux)
        for k in range(len(positions)):
            argument = args[<Py_ssize_t>positions[k]]
            if Py_TYPE(<PyObject*>gradients[k]) != &PyArray_Type or Py_TYPE(<PyObject*>argument) != &PyArray_Type:
                gradients[k] = python_side["as_gradient"](gradients[k], argument, not isinstance(value, Tensor))
        found = gradients[0] if type(argnums) is int else tuple(gradients)
        if has_aux:
            aux = python_side["leave_aux"](aux, level, args)
    if not with_value:
        return (found, aux) if has_aux else found
    value = python_side["as_passed"](value, args)
    return ((value, aux) if has_aux else value), found


cdef tuple simple_positions(argnums, tuple args):
    """The arguments that `argnums` names, where these are arrays; None where Python has to look closer."""
    cdef tuple positions = (argnums,) if type(argnums) is int else argnums if type(argnums) is tuple else None
    cdef uint64_t seen = 0
    cdef Py_ssize_t i
    if not positions:
        return None
    for position in positions:
        if type(position) is not int or not 0 <= position < len(args) or position >= MAX_ARGUMENTS:
            return None
        i = position
        if seen & bit(i) or not word_of_array(<PyObject*>args[i]):
            return None
        seen |= bit(i)
    return positions


cdef tuple value_and_gradients(Grad level, function, tuple args, dict kwargs, tuple positions, bint has_aux):
    """(value, aux, gradients) of a function at a level of `grad`: all as values of the level below.

    A gradient is None where the value does not depend on the argument; the others are in memory of their own.
    """
    cdef list entered = list(args)
    cdef Py_ssize_t i
    for i in positions:
        if not is_inexact_value(args[i]):
            python_side["check_differentiable"]("grad", args[i], i)
    level.arguments = args
    enter_level(level)
    try:
        for i in range(len(entered)):
            if i in positions:
                entered[i] = tracked_leaf(level, args[i])
            elif word_of_array(<PyObject*>entered[i]):
                entered[i] = enter_at(level, entered[i], None)
            elif word_of_value(<PyObject*>entered[i]):
                entered[i] = python_side["enter_constants"](level, entered[i])
        if kwargs:
            kwargs = python_side["enter_constants"](level, kwargs)
        output = function(*entered, **kwargs)
        aux = None
        if has_aux:
            output, aux = python_side["check_aux"]("grad", output, True)
        if not owned_by(<PyObject*>output, level) or not is_real_scalar(<Tensor>output):
            output = python_side["as_scalar"](output)
        if isinstance(output, Tensor):
            refresh_if_owned(<Tensor>output, level)
    finally:
        leave_level(level)
    cdef list gradients = [None] * len(positions)
    value = below(output, level)
    if tracked_at(<PyObject*>output, level):
        gradients = go_back(((<Tensor>output).edge,), (seed_of(value),), False, False,
                            tuple([(<Tensor>entered[i]).edge for i in positions]), level, False)
    return value, aux, gradients


cdef object seed_of(value):
    """The gradient of a value of one element with respect to itself."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type and not PyArray_NDIM(<PyArrayObject*><PyObject*>value) and (
            not watches_arrays(state_now())):
        return one_of(<object>PyArray_DESCR(<PyArrayObject*><PyObject*>value))
    return python_side["one_beside"](value)


cdef int refresh_if_owned(Tensor tensor, Interpreter level) except -1:
    return refresh(tensor) if owned_by(<PyObject*>tensor, level) else 0


cdef bint is_inexact_value(value) except -1:
    return is_inexact(bottom_of(value) if isinstance(value, Tensor) else <PyObject*>value)


cdef bint is_real_scalar(Tensor tensor) except -1:
    cdef PyObject* array = bottom_of(tensor)
    return (Py_TYPE(array) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>array) == 0
            and PyTypeNum_ISFLOAT(PyArray_TYPE(<PyArrayObject*>array)))


cpdef settle_result(value):
    """What a transformed function returned: the value itself in place of a wrapper of a transform that is over.

    Raises for one that has escaped from a transform, or is of one that is not active here.
    """
    cdef Entry entry
    if not isinstance(value, Wrapper):
        return value
    entry = state_now().entry
    while entry is not None:
        if entry.level is (<Wrapper>value).interpreter:
            return value
        entry = entry.outer
    value = live_value(value)
    if isinstance(value, Wrapper):
        is_dead(None, None, -1, value, state_now())
    return value


cdef inline bint are_arrays_alone(tuple args) except -1:
    """Is every argument an array?"""
    for arg in args:
        if not word_of_array(<PyObject*>arg):
            return False
    return PyTuple_GET_SIZE(<PyObject*>args) > 0


cdef inline object handed_out(value, bint as_tensors, args, bint of_raw):
    """A value of the level below as a transform gives it: `as_tensors` where a Tensor was passed."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return wrap(value) if as_tensors else value
    if as_tensors and isinstance(value, Tensor):
        return value
    if of_raw and not as_tensors and Py_TYPE(<PyObject*>value) == TENSOR_TYPE:
        return (<Tensor>value).array
    return python_side["as_passed"](value, args)


cdef inline bint has_tensor(tuple args) noexcept:
    for arg in args:
        if is_tensor_type(Py_TYPE(<PyObject*>arg)):
            return True
    return False


cdef object not_flat = object()
NOT_FLAT = not_flat


def push_forward(function, tuple primals, tuple tangents, site):
    """(output, tangent) of `jvp` for arrays; NOT_FLAT, and nothing has happened, where Python has to look closer."""
    cdef Py_ssize_t i, n = len(primals)
    cdef Jvp level
    cdef list entered = []
    cdef object run = None
    cdef bint as_tensors
    if n == 0 or len(tangents) != n or not are_arrays_alone(primals) or not are_arrays_alone(tangents):
        return not_flat
    for i in range(n):
        if not is_inexact_value(primals[i]) or not have_same_outline(primals[i], tangents[i]):
            return not_flat
    level = Jvp("jvp", site)
    level.arguments = primals
    enter_level(level)
    try:
        for i in range(n):
            entered.append(enter_at(level, primals[i], tangents[i]))
        output = settle_result(function(*entered))
        if owned_by(<PyObject*>output, level):
            tangent = tangent_of(<JvpTensor>output)
        else:
            run = python_side["propagated"](level, output)
    finally:
        leave_level(level)
    if run is not None:
        return python_side["pushed"](run, primals + tangents)
    value = (<Tensor>output).array
    if tangent is None:
        tangent = python_side["zeros_for"](value)
    elif shares_memory_with_any(tangent, tangents) and not shares_memory_with_any(value, primals):
        tangent = python_side["copy"](tangent)      # of the caller's own array, as that of x + 1 is
    as_tensors = has_tensor(primals) or has_tensor(tangents)
    return (handed_out(value, as_tensors, primals + tangents, False),
            handed_out(tangent, as_tensors, primals + tangents, not isinstance(value, Tensor)))


cdef bint shares_memory_with_any(value, tuple others) except -1:
    """Does this belong to the memory of one of the arrays?"""
    cdef object owner = memory_owner(value)
    for other in others:
        if memory_owner(other) is owner:
            return True
    return False


cdef bint have_same_outline(left, right) except -1:
    """Have two arrays the same shape and dtype?"""
    cdef PyObject* first = bottom_of(<Tensor>left) if isinstance(left, Tensor) else <PyObject*>left
    cdef PyObject* second = bottom_of(<Tensor>right) if isinstance(right, Tensor) else <PyObject*>right
    return same_shape(first, second) and same_dtype(first, second)


@cython.final
@cython.trashcan(True)
cdef class PullBack:
    """What `vjp` gives: a function from the cotangent of the output to a tuple of gradients, one per primal."""

    def __call__(self, cotangent):
        cdef tuple found
        cdef list gradients
        cdef Py_ssize_t i
        cdef bint of_raw
        if not word_of_array(<PyObject*>cotangent) or not have_same_outline(cotangent, self.value):
            cotangent = python_side["as_cotangent"](cotangent, self.value)
        elif Py_TYPE(<PyObject*>cotangent) == TENSOR_TYPE:
            cotangent = python_side["as_raw_constant"](cotangent)
        of_raw = not isinstance(self.value, Tensor) and not isinstance(cotangent, Tensor)
        gradients = [None] * len(self.primals)
        if self.root is not None:
            gradients = go_back((self.root,), (cotangent,), False, True, self.targets, self.level, False)
        for i in range(len(gradients)):
            if (Py_TYPE(<PyObject*>gradients[i]) != &PyArray_Type
                    or Py_TYPE(PyTuple_GET_ITEM(<PyObject*>self.primals, i)) != &PyArray_Type):
                gradients[i] = python_side["as_gradient"](gradients[i], self.primals[i], of_raw)
        return tuple(gradients)


def pull_back(function, tuple primals, site):
    """(output, PullBack) of `vjp` for arrays; NOT_FLAT, and nothing has happened, where Python has to look closer."""
    cdef Py_ssize_t i
    cdef Grad level
    cdef list entered = []
    cdef object run = None
    cdef PullBack pull
    if not are_arrays_alone(primals):
        return not_flat
    for primal in primals:
        if not is_inexact_value(primal):
            return not_flat
    level = Grad("vjp", site)
    enter_level(level)
    try:
        for primal in primals:
            entered.append(tracked_leaf(level, primal))
        output = settle_result(function(*entered))
        if owned_by(<PyObject*>output, level) and is_inexact(bottom_of(output)):
            refresh(output)
        else:
            run = python_side["recorded"](level, output, entered)
    finally:
        leave_level(level)
    if run is not None:
        return python_side["pulled"](run, primals)
    pull = PullBack.__new__(PullBack)
    pull.level = level
    pull.value = (<Tensor>output).array
    pull.root = (<Tensor>output).edge if (<Tensor>output).word & TRACKED_FLAG else None
    pull.targets = tuple([(<Tensor>leaf).edge for leaf in entered])
    pull.primals = primals
    return handed_out(pull.value, has_tensor(primals), primals, False), pull


def map_flat(function, tuple args, in_dims, str randomness, site):
    """What `vmap` gives for arrays, with out_dims=0; NOT_FLAT, before the call, where Python has to look closer."""
    cdef Py_ssize_t i, n = len(args), size = -1, extent, axis, ndim
    cdef tuple dims = <tuple>in_dims if type(in_dims) is tuple else None
    cdef PyObject* outline
    cdef list values = []
    cdef list mapped = []
    cdef Vmap level
    cdef bint as_tensors
    if n == 0 or dims is not None and len(dims) != n:
        return not_flat
    for i in range(n):
        dim = in_dims if dims is None else dims[i]
        mapped.append(dim)
        if not word_of_array(<PyObject*>args[i]) and (dim is not None or not holds_nothing(<PyObject*>args[i])):
            return not_flat
        if dim is None:
            continue
        if type(dim) is not int:
            return not_flat
        outline = <PyObject*>args[i]
        if is_tensor_type(Py_TYPE(outline)):
            outline = bottom_of(<Tensor>outline)
        if Py_TYPE(outline) != &PyArray_Type:
            return not_flat
        ndim = PyArray_NDIM(<PyArrayObject*>outline)
        axis = dim
        if axis < -ndim or axis >= ndim:
            return not_flat
        extent = PyArray_DIMS(<PyArrayObject*>outline)[axis + ndim if axis < 0 else axis]
        if size != -1 and size != extent:
            return not_flat
        size = extent
    if size == -1:
        return not_flat
    level = Vmap(size, randomness, "vmap", site)
    for i in range(n):
        value = args[i]
        if mapped[i] is None:
            values.append(wrap(value) if word_of_array(<PyObject*>value) and not isinstance(value, Tensor) else value)
            continue
        if mapped[i] != 0:
            value = python_side["moved"](value, mapped[i], 0)
        values.append(enter_at(level, value, None))
    enter_level(level)
    try:
        output = settle_result(function(*values))
    finally:
        leave_level(level)
    as_tensors = has_tensor(args)
    if owned_by(<PyObject*>output, level):
        return handed_out((<Tensor>output).array, as_tensors, args, False)
    if type(output) is not tuple:
        return python_side["mapped_in_general"](level, output, args)
    for value in <tuple>output:
        if not owned_by(<PyObject*>value, level):       # may be a wrapper of a transform that is over
            return python_side["mapped_in_general"](level, output, args)
    results = []
    for value in <tuple>output:
        results.append(handed_out((<Tensor>value).array, as_tensors, args, False))
    return tuple(results)
