# What calls, the tape and the stack know of an interpreter: a running transform or mode.

cdef class Interpreter:                 # one running transform or mode
    cdef readonly bint alive
    cdef readonly State entered         # the state around it
    cdef uint64_t serial                # increases with each entering of a transform
    cdef readonly str name              # of the transform or mode
    cdef readonly object site           # where it was called
    cdef public tuple arguments         # arguments of the function that is transformed, while it runs, or None
    # Each kind of transform overrides some of these methods, in its own file.
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
    # return whether a value counts as the value below, in a state or, with None, in any: by default if the transform no
    # longer runs, or is not active while a batching rule is derived
    cdef bint releases(self, Wrapper value, State state) noexcept
    cdef object owned(self, value)                          # return a new array as its value, if it takes new arrays
    cdef bint propagates(self) noexcept                     # return whether its values have tangents
    cdef bint batches(self) noexcept                        # return whether it computes several examples at once
    cdef Py_ssize_t hidden_axes(self, Wrapper value) noexcept   # return how many axes more the value below has
    cdef object whole(self, Wrapper value)                  # return the value below, with a row for each example
    cdef bint is_shared(self, Wrapper value) noexcept       # return whether all examples share a value
    cdef object tangent_at(self, Wrapper value)             # return the tangent of a value, or None
    cdef object edge_at(self, Tensor value)                 # return the destination of its gradient, or the tangent
    cdef bint tracks(self, Wrapper value) except -1         # return whether it differentiates a value
    # return a value around `other`, with the same gradient or tangent
    cdef Tensor alike(self, Wrapper value, other)
    # return an array with the memory layout of a value, or NULL if that is the layout of the value below
    cdef PyObject* laid_out(self, Wrapper value) except? NULL
    cdef int note_view(self, Tensor view, Tensor source) except -1      # note that two values now share memory

cdef object describe_interpreter(Interpreter interpreter)    # return the description of an interpreter for errors
# return the state in which an interpreter runs its operators
cdef State state_below(State state, Interpreter interpreter)
cdef Tensor wrap_at(Interpreter interpreter, value, tangent)
cdef object call_below(OpOverload op, Signature signature, Frame* frame, State state, Interpreter interpreter)
ctypedef object (*OfResult)(Signature signature, Frame* frame, Py_ssize_t i, object result, Interpreter interpreter)
cdef object map_results(OfResult function, Signature signature, Frame* frame, result, Interpreter interpreter)
cdef object wrap_results(Signature signature, Frame* frame, result, Interpreter interpreter)
# return one result as a value of this interpreter, if it is an array
cdef object wrap_result(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter)
cdef object wrap_leaves(Signature signature, Frame* frame, Py_ssize_t i, result, Interpreter interpreter)
cdef object scalar_below(value, Interpreter interpreter)
