# What the entry points of transforms share.
#
# What `grad`, `vjp`, `jvp` and `vmap` do with a call whose arguments are arrays and no pytrees. Everything else is
# left to Python, before the function is called or, where only its results are unusual, after that.

cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    PyFrameObject* PyEval_GetFrame()    # borrowed
    PyFrameObject* PyFrame_GetBack(PyFrameObject*) except? NULL
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)
    ctypedef struct PyCodeObject:
        PyObject* co_filename

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
        if is_code_of_user(code):
            return code, PyFrame_GetLasti(frame)
    return None


cdef object last_code_of_user = None


cdef bint is_code_of_user(code) except -1:
    """Does code stand outside of the package? Loops call from the same place again and again."""
    global last_code_of_user
    if code is last_code_of_user:
        return True
    if code.co_filename.startswith(PACKAGE_FOLDER):
        return False
    last_code_of_user = code
    return True


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


cdef int refresh_if_owned(Tensor tensor, Interpreter interpreter) except -1:
    return refresh(tensor) if owned_by(<PyObject*>tensor, interpreter) else 0


cdef bint is_inexact_value(value) except -1:
    return is_inexact(bottom_of(value) if isinstance(value, Tensor) else <PyObject*>value)


cdef bint is_real_scalar(Tensor tensor) except -1:
    cdef PyObject* array = bottom_of(tensor)
    return (Py_TYPE(array) == &PyArray_Type and PyArray_NDIM(<PyArrayObject*>array) == 0
            and PyTypeNum_ISFLOAT(PyArray_TYPE(<PyArrayObject*>array)))


cpdef unwrap_dead_result(value):
    """What a transformed function returned: the value itself in place of a wrapper of a transform that no longer runs.

    Raises for one that has left its function, or is of a transform that is not active here.
    """
    cdef InterpreterStack stack
    if not isinstance(value, Wrapper):
        return value
    stack = state_now().interpreters
    while stack is not None:
        if stack.interpreter is (<Wrapper>value).interpreter:
            return value
        stack = stack.outer
    value = live_value(value)
    if isinstance(value, Wrapper):
        is_dead(None, None, -1, value, state_now())
    return value


cdef bint are_arrays_alone(tuple args) except -1:
    """Is every argument an array?"""
    for arg in args:
        if not word_of_array(<PyObject*>arg):
            return False
    return PyTuple_GET_SIZE(<PyObject*>args) > 0


cdef inline object handed_out(value, bint as_tensors, args, bint of_raw):
    """A value of the interpreter below as a transform gives it: `as_tensors` where a Tensor was passed."""
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return wrap(value) if as_tensors else value
    if as_tensors and isinstance(value, Tensor):
        return value
    if of_raw and not as_tensors and Py_TYPE(<PyObject*>value) == TENSOR_TYPE:
        return (<Tensor>value).array
    return upcalls.as_passed(value, args)


cdef inline bint has_tensor(tuple args) noexcept:
    for arg in args:
        if is_tensor_type(Py_TYPE(<PyObject*>arg)):
            return True
    return False


not_flat = object()
