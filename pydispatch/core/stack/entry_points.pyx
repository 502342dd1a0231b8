# Functions that the entry points of transforms share.
#
# They serve calls of `grad`, `vjp`, `jvp` and `vmap` whose arguments are arrays and no pytrees. All other calls are
# left to Python, before the function is called or, if only its results are unusual, after that. In Python, `vjp` of a
# function of two operators takes 99,000 instructions instead of 23,000, `jvp` 134,000 instead of 27,000, and `vmap`
# 116,000 instead of 25,000.

cdef extern from "Python.h":
    ctypedef struct PyFrameObject:
        pass
    PyFrameObject* PyEval_GetFrame()    # borrowed
    PyFrameObject* PyFrame_GetBack(PyFrameObject*) except? NULL
    ctypedef struct PyCodeObject:
        pass
    PyCodeObject* PyFrame_GetCode(PyFrameObject*)
    int PyFrame_GetLasti(PyFrameObject*)

def calling_site():
    """Return where the user's code called into the package: (code, offset), for `Interpreter.site`.

    The offset is that of the instruction. For transforms that transforms call, it is where the outermost was called.
    """
    cdef PyFrameObject* frame = PyEval_GetFrame()
    cdef object held = None
    while frame != NULL:
        frame = PyFrame_GetBack(frame)
        if frame == NULL:
            return None
        held = steal(<PyObject*>frame)
        code = steal(<PyObject*>PyFrame_GetCode(frame))
        if is_code_of_user(code):
            return code, PyFrame_GetLasti(frame)
    return None


cdef object last_code_of_user = None


cdef bint is_code_of_user(code) except -1:
    """Return whether code is outside the package. The last such code is cached, for loops that call from one place."""
    global last_code_of_user
    if code is last_code_of_user:
        return True
    if code.co_filename.startswith(PACKAGE_FOLDER):
        return False
    if not IS_FREE_THREADED:        # other threads could use what this releases
        last_code_of_user = code
    return True


cdef tuple simple_positions(argnums, tuple args):
    """Return the positions that `argnums` names if their arguments are arrays, or None if Python has to check more."""
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
    """Unwrap a result of a transformed function if it is a wrapper of a transform that no longer runs.

    Raise if the wrapper has left its function, or its transform is not active here.
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
    """Return whether there are arguments and all are arrays."""
    for arg in args:
        if not word_of_array(<PyObject*>arg):
            return False
    return PyTuple_GET_SIZE(<PyObject*>args) > 0


cdef inline object handed_out(value, bint as_tensors, args, bint of_raw):
    """Return a value of the interpreter below as the transform returns it.

    With `as_tensors`, a Tensor was passed, and one is returned.
    """
    if Py_TYPE(<PyObject*>value) == &PyArray_Type:
        return wrap(value) if as_tensors else value
    if as_tensors and isinstance(value, Tensor):
        return value
    if of_raw and not as_tensors and Py_TYPE(<PyObject*>value) == TENSOR_TYPE:
        return raw_of(<Tensor>value)
    return upcalls.as_passed(value, args)


cpdef raw_of(Tensor tensor):
    """Return the array of a Tensor, or the scalar if it is one."""
    return tensor.array[()] if tensor.word & SCALAR_FLAG and Py_TYPE(<PyObject*>tensor.array) == &PyArray_Type else (
        tensor.array)


cdef inline bint has_tensor(tuple args) noexcept:
    for arg in args:
        if is_tensor_type(Py_TYPE(<PyObject*>arg)):
            return True
    return False


not_flat = object()
