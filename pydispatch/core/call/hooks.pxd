# Hooks: the names that a chapter uses of the chapters above it, each with the reason.
#
# tests/core/test_direction.py allows no others.

# The state holds the stack of interpreters. A wrapper holds its interpreter, whose methods depend on the transform.
cdef class Interpreter

# --- addresses of types, for comparison on fast paths. Each transform sets its own ---------------------------

# Values of `grad` are bound and recorded without a look-up of their class.
cdef PyTypeObject* GRAD_TYPE
# Values of `jvp` are bound without a look-up of their class. Writes do not change their edge.
cdef PyTypeObject* JVP_TYPE
# Values of `vmap` are bound without a look-up of their class, and hide an axis.
cdef PyTypeObject* BATCHED_TYPE
# Only values of transforms in Python can have the layout of another array.
cdef PyTypeObject* PYTHON_WRAPPER_TYPE
# The fast path of the tape also serves a `grad` that is innermost.
cdef PyTypeObject* GRAD_INTERPRETER_TYPE

# --- a call goes on to the tape and the stack -------------------------------------------------------------------------

# The stack serves calls with values of a transform or tracked Tensors: run steps 2 to 7
cdef object call_through_stack(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# An active substitution replaces captured values first: run steps 2 to 7
cdef object call_with_substitute(OpOverload op, Table table, Frame* frame, State state, CallKind kind)
# The Python key has an entry in the table: call the handlers of the arguments' classes, until one does not decline
cdef object call_handlers(OpOverload op, Table table, Frame* frame, uint64_t keys, State state, CallKind kind)
# A bound call tries the fast paths in turn: record a library operator with fresh results, on the tape or in `grad`
cdef bint recording_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame,
                              PyObject** result) except -1
# A bound call tries the fast paths in turn: call an operator on batches in NumPy's memory, in a single `vmap`
cdef bint batching_fast_path(PyObject* op, PyObject* table, PyObject* state, Frame* frame, PyObject** result) except -1
# Before a kernel writes, the tape copies the residuals that it would overwrite: count the writes of one call
cdef int bump_versions(Signature signature, Frame* frame) except -1
# A view's memory holds the destination of the whole array's gradient: make `view` a view of the memory of `source`
cdef int share_memory(Tensor view, Tensor source) except -1
# A detached view has its own gradient: return a memory that counts writes together with `tensor`
cdef Memory memory_of_detached(Tensor tensor)
# NumPy cannot convert some Tensors to compare them: return whether a transform, the tape or a handler follows this one
cdef bint is_followed_or_handled(Tensor tensor) except -1
# A table holds the derivative of its operator: raise unless it has a formula for each argument
cdef int check_formulas(derivative, Signature signature) except -1

# --- the tape uses transforms -----------------------------------------------------------------------------------------

# The fast path of the tape also serves `grad`, and makes its values directly: wrap an exact ndarray like `wrap_at`
cdef Wrapper wrap_ndarray_in(Interpreter interpreter, array)
# Nodes save results as constants, which depends on the transform: return the same values as a constant
cdef object constant_of(Tensor tensor)
# Nodes save values as constants of one interpreter: return a new, untracked Tensor on the same memory
cdef object alias_at(Tensor tensor, Interpreter interpreter)
# Users' functions and reads of data end a speculative run: end the one of the function that runs here, if any
cpdef int end_speculative_run() except -1
