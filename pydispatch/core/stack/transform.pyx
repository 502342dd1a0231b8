# Transforms written in Python.


cdef class PythonInterpreter(Interpreter):
    """A transform written in Python: a subclass defines `process(func, args, kwargs)`.

    `process` is called, with the interpreter absent, for every call that has an argument of the interpreter, writes to
    an argument or makes an array. `args` and `kwargs` are as they were passed, including values of the interpreter
    (PythonWrapper). It returns the result. Instead of a mutated argument the caller gets that argument itself. With
    `watches` it also sees the work of formulas of derivatives on constants. Without `follows_values`, numbers and
    arrays may be read from its values. With `takes_new`, new Tensors of other calls become its values.
    """

    def __init__(self, str name, site=None, *, bint watches=True, bint follows_values=True, bint takes_new=False):
        self.name = name
        self.site = site
        self.watches = watches
        self.follows_values = follows_values
        self.takes_new = takes_new

    def __enter__(self):
        if self.entered is not None:
            raise StateOrderError(
                f"{self.name}: this object was entered before, so entering it again would revive its old values\n"
                f"make a new object for every run: with {type(self).__name__}() as interpreter"
            )
        enter_interpreter(self)
        return self

    def __exit__(self, kind, error, trace):
        leave_interpreter(self)

    def process(self, func, args, kwargs):
        """Return the result of an operator's call at this interpreter."""
        raise NotImplementedError(f"{type(self).__name__}.process")

    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        composite = composite_entry(table, frame)
        if composite is not None:
            return run_entry(op, table, <TableEntry>composite, frame, frame.word & KEY_BITS, state, kind)
        return call_transform(op, table.signature, frame, state, self, None)

    cdef Wrapper new_wrapper(self, value, tangent):
        return PythonWrapper.__new__(PythonWrapper)

    cdef bint watches_arrays(self) noexcept:
        return self.watches

    cdef bint takes_new_tensors(self) noexcept:
        return self.takes_new

    cdef bint releases(self, Wrapper value, State state) noexcept:
        return False

    cdef bint tracks(self, Wrapper value) except -1:
        return self.follows_values

    cdef PyObject* laid_out(self, Wrapper value) except? NULL:
        return NULL if (<PythonWrapper>value).layout is None else <PyObject*>(<PythonWrapper>value).layout


@cython.final
cdef class PythonWrapper(Wrapper):
    """A value of a transform written in Python. `note` is for the transform's data about it."""


PYTHON_WRAPPER_TYPE = <PyTypeObject*>PythonWrapper


def replace_value(PythonWrapper tensor, value):
    """Replace the value below a PythonWrapper. Shape, dtype and backend become the new value's."""
    cdef uint64_t word = word_of_array(<PyObject*>value) & (BACKEND_BITS | DENSE_BIT | SPARSE_BIT)
    cdef object below = value
    while isinstance(below, Tensor):
        if below is tensor:
            raise ValueError("a value cannot be below itself")
        below = (<Tensor>below).array
    tensor.array = value
    tensor.word = (tensor.word & ~(BACKEND_BITS | DENSE_BIT | SPARSE_BIT)) | word


cdef object call_transform(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter,
                           rule):
    """Call a transform written in Python, or a rule for the class of a transform, for a call of an operator."""
    cdef PublishedState around
    args, kwargs = arguments_with(frame, signature, None)
    if signature.mutable:
        bump_versions(signature, frame)
    publish_deeper(&around, lowered_state(state))
    try:
        result = interpreter.process(op, args, kwargs) if rule is None else rule(interpreter, op, args, kwargs)
    finally:
        withdraw_deeper(&around)
    return finish_handled(op, signature, frame, interpreter, result)
