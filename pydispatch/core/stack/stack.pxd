# The stack of transforms and modes. The tape is below all of them.

cdef class Differentiator(Interpreter):         # the interpreter of a transform that differentiates
    # process a call on its values that runs no composite
    cdef object differentiate_call(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind)

cdef int enter_interpreter(Interpreter interpreter) except -1
cdef int leave_interpreter(Interpreter interpreter) except -1
cpdef tuple results_of(tuple step, tuple args)
cdef Tensor enter_at(Interpreter interpreter, value, tangent)
cdef int keep_freed(type cls) except -1
cpdef tracked_leaf(interpreter, value)
# run the same steps if no argument that is written to is a copy where NumPy has a view
cdef object call_on_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# return the kernel that a user registered for the autograd key of a call with this word, or None
cdef object autograd_entry(Table table, Frame* frame, uint64_t word)
cdef object composite_entry(Table table, Frame* frame)
# return whether a Tensor is a wrapper that counts as the value that it holds. Raise if its transform is not active here
cdef bint is_dead(op, Signature signature, Py_ssize_t i, Tensor tensor, State state) except -1
cdef object pass_below(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
cpdef own_value(value)
cdef object detached(Tensor tensor)    # return the same values as a constant
cdef object detached_value(value)    # return the same value as a constant, if it is a Tensor
