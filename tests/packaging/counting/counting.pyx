# `counting`: interpreter, wrapper, default rule, and entry point.


cdef class Counting(Interpreter):
    """Counts the operators that its values go through."""

    def __cinit__(self):
        self.calls = {}

    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind):
        self.calls[op.name] = self.calls.get(op.name, 0) + 1
        if table.signature.mutable:
            bump_versions(table.signature, frame)
        return wrap_results(table.signature, frame, call_below(op, table.signature, frame, state, self), self)

    cdef Wrapper new_wrapper(self, value, tangent):
        return CountedTensor.__new__(CountedTensor)


@cython.final
cdef class CountedTensor(Wrapper):
    """A value of a running `counting`."""


def run_counting(function, tuple args, site):
    """(output one interpreter below, calls) of a function of arrays."""
    cdef Counting interpreter = Counting("counting", site)
    enter_interpreter(interpreter)
    try:
        entered = []
        for value in args:
            entered.append(enter_at(interpreter, value, None))
        output = unwrap_dead_result(function(*entered))
    finally:
        leave_interpreter(interpreter)
    return (<Tensor>output).array if owned_by(<PyObject*>output, interpreter) else output, interpreter.calls
