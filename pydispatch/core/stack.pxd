# The stack of transforms and modes; under all of them, the tape.

cdef class Wrapper(Tensor):             # a value of a transform's interpreter
    cdef readonly Interpreter interpreter

cdef class Interpreter:                 # one running transform or mode
    cdef readonly bint alive
    cdef readonly State entered         # the state around it
    cdef uint64_t serial                # transforms that are entered later have higher ones
    cdef readonly str name              # of the transform or mode
    cdef readonly object site           # where it was called
    cdef public tuple arguments         # of the function that is transformed, while it runs; or None
    # What it does on the general path: each kind of transform, in a file of its own, overrides what it does otherwise.
    # a call while it is innermost
    cdef object process_frame(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind)
    # a call on its values that no rule is registered for
    cdef object process_own(self, OpOverload op, Table table, Frame* frame, State state, CallKind kind)
    cdef Wrapper new_wrapper(self, value, tangent)          # for this value of the interpreter below
    cdef int check_entering(self, State around) except -1   # raises where it must not run
    cdef bint changes_stack(self) noexcept                  # does entering it put it on the stack?
    cdef int change_inside(self, State inside) except -1    # the state that its function runs in
    cdef int change_below(self, State below, State inside) except -1    # the state that it lowers calls to
    cdef bint watches_arrays(self) noexcept                 # does it have to see what is done with raw arrays?
    cdef bint is_transform(self) noexcept                   # or is it a mode?

cdef class InterpreterStack:            # the innermost interpreter, and the stack around it; never changed
    cdef Interpreter interpreter
    cdef InterpreterStack outer         # the next one below,
    cdef int depth                      # and how many there are with this one

cdef object describe_interpreter(Interpreter interpreter)    # how errors call an interpreter
cdef int enter_interpreter(Interpreter interpreter) except -1    # push a transform on the stack
cdef State state_under(Interpreter interpreter, State around)    # the state inside of a transform or mode
cdef int leave_interpreter(Interpreter interpreter) except -1    # take a transform off the stack
cpdef tuple results_of(tuple step, tuple args)    # what a function returned, as a tuple of arrays
cdef State state_below(State state, Interpreter interpreter)    # the state that an interpreter runs its operators in
cdef Tensor wrap_at(Interpreter interpreter, value, tangent)    # a new, untracked Tensor of the interpreter
# the same for the argument of a transform, which is no argument of an operator: what it means here is asked for
cdef Tensor enter_at(Interpreter interpreter, value, tangent)
# a new leaf of an interpreter of `grad`: what is differentiated with respect to
cpdef tracked_leaf(interpreter, value)
# steps 2 to 7, where a transform or the tape may have something to say
cdef object call_through_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# the composite kernel that runs in place of a derivative; raises for a kernel that hides what it does
cdef TableEntry composite_instead(OpOverload op, Table table, Frame* frame, Interpreter interpreter)
# the kernel that a user registered for the autograd key of a call with this word
cdef object autograd_entry(Table table, Frame* frame, uint64_t word)
# the composite kernel that these arguments run on the tape, when it is one
cdef object composite_entry(Table table, Frame* frame)
# is the entry for this call? False for a composite that is for others
cdef bint is_for(TableEntry entry, Signature signature, Frame* frame) except -1
# the autograd keys among these that have a kernel
cdef uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept
# is this a value of a transform that has returned, taken for what it holds? Raises where it is inactive
cdef bint is_dead(op, Signature signature, Py_ssize_t i, Tensor tensor, State state) except -1
# (args, kwargs) of a call, as passed, with `change` applied to every array where that is not None
cdef tuple arguments_with(Frame* frame, Signature signature, change)
# the call as it is, at the interpreter below: nothing in it belongs to this one
cdef object pass_below(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# the operator on the values of the interpreter below, where this interpreter is absent
cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter)
# results of the interpreter below as values of this interpreter
cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter interpreter)
# one result, as a value of this interpreter where it is an array
cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter)
