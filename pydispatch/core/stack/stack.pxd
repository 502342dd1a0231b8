# The stack of transforms and modes. The tape is below all of them.

cdef class Wrapper(Tensor):             # a value of a transform's interpreter
    cdef readonly Interpreter interpreter

cdef class Interpreter:                 # one running transform or mode
    cdef readonly bint alive
    cdef readonly State entered         # the state around it
    cdef uint64_t serial                # increases with each entering of a transform
    cdef readonly str name              # of the transform or mode
    cdef readonly object site           # where it was called
    cdef public tuple arguments         # arguments of the function that is transformed, while it runs, or None
    # Methods of the general path. Each kind of transform overrides some of them, in its own file.
    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind)
    # process a call on its values for which no rule is registered
    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind)
    cdef Wrapper new_wrapper(self, value, tangent)          # return a wrapper for a value of the interpreter below
    cdef int check_entering(self, State around) except -1   # raise if it must not run here
    cdef bint changes_stack(self) noexcept                  # return whether entering it puts it on the stack
    cdef int change_inside(self, State inside) except -1    # change the state in which its function runs
    cdef int change_below(self, State below, State inside) except -1    # change the state to which it lowers calls
    cdef bint watches_arrays(self) noexcept                 # return whether it has to see operations on raw arrays
    cdef bint knows_arrays(self) noexcept                   # return whether it identifies arrays as objects
    cdef bint is_transform(self) noexcept                   # return whether it is a transform, not a mode
    # return whether new Tensors of calls without its values become its values, so that its values can be written to
    # them
    cdef bint takes_new_tensors(self) noexcept

cdef class InterpreterStack:            # the innermost interpreter and the stack around it. Immutable
    cdef Interpreter interpreter
    cdef InterpreterStack outer         # the next one below
    cdef int depth                      # the number of interpreters from this one down

cdef object describe_interpreter(Interpreter interpreter)    # return the description of an interpreter for errors
cdef int enter_interpreter(Interpreter interpreter) except -1    # push an interpreter on the stack
cdef State state_under(Interpreter interpreter, State around)    # return the state inside a transform or mode
cdef int leave_interpreter(Interpreter interpreter) except -1    # remove an interpreter from the stack
cpdef tuple results_of(tuple step, tuple args)    # return the results of a function as a tuple of arrays
# return the state in which an interpreter runs its operators
cdef State state_below(State state, Interpreter interpreter)
cdef Tensor wrap_at(Interpreter interpreter, value, tangent)    # return a new, untracked Tensor of the interpreter
# apply `wrap_at` to an argument of a transform, which no operator has seen. Apply the active substitution first
cdef Tensor enter_at(Interpreter interpreter, value, tangent)
# return a new leaf of an interpreter of `grad`, an input of differentiation
cpdef tracked_leaf(interpreter, value)
# run steps 2 to 7 if a transform or the tape may be involved
cdef object call_through_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# run the same steps if no argument that is written to is a copy where NumPy has a view
cdef object call_on_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# return the composite kernel that runs instead of a derivative. Raise for a kernel that is opaque
cdef TableEntry composite_instead(OpOverload op, Table table, Frame* frame, Interpreter interpreter)
# return the kernel that a user registered for the autograd key of a call with this word, or None
cdef object autograd_entry(Table table, Frame* frame, uint64_t word)
# return the kernel that these arguments run on the tape if it is a composite, else None
cdef object composite_entry(Table table, Frame* frame)
# return whether the entry serves this call. A composite may serve only some calls
cdef bint is_for(TableEntry entry, Signature signature, Frame* frame) except -1
# return the autograd keys among these that have a kernel
cdef uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept
# return whether a Tensor is a wrapper that counts as the value that it holds. Raise if its transform is not active here
cdef bint is_dead(op, Signature signature, Py_ssize_t i, Tensor tensor, State state) except -1
# return (args, kwargs) of a call, as passed. Apply `change` to every array unless it is None
cdef tuple arguments_with(Frame* frame, Signature signature, change)
# pass a call unchanged to the interpreter below: none of its arguments belong to this one
cdef object pass_below(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# call the operator on the values of the interpreter below, with this interpreter absent
cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter)
# return results of the interpreter below as values of this interpreter
cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter interpreter)
# return one result as a value of this interpreter, if it is an array
cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter)
# return a new array as a Tensor of the innermost active transform, whose values can be written to it
cpdef own_value(value)
