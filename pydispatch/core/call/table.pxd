# Dispatch tables: from a key to the kernel that runs.

cdef enum:      # flags of how a kernel is called
    RAW = 1             # arrays are unwrapped first
    TAKES_KEYSET = 2
    TAKES_OPERATOR = 4
    BOXED = 8
    FALLTHROUGH = 16    # never called
    ASKS_DEVICE = 32    # runs only if no argument brings a backend, or the schema has a device
    COUNTS_DEPTH = 64   # CPython counts the depth of recursion when it calls such an object
    FRESH = 128         # results must not alias arguments. This is checked
    HANDLERS = 256      # the entry of the handlers of the arguments' classes
    COMPOSITE = 512     # calls other operators, which every interpreter sees
    USER_KERNEL = 1024      # is not in the library, and may copy the context
    PARTIAL = 2048      # does not take every argument of the schema
    STATEFUL = 8192     # of an operator that draws numbers or has other state
    CONDITIONAL = 4096  # used only if `kernel.applies(*args, **kwargs)`

cdef class TableEntry:                  # a kernel as one operator calls it under one key
    cdef object function
    cdef vectorcallfunc call            # entry point of the function
    cdef int convention
    cdef Loop loop                      # if the function is a universal function
    cdef uint64_t fill                  # arguments that are passed even if they equal their default
    cdef uint64_t unsupported           # arguments that the function does not take. They can be at their default only
    cdef readonly object kernel
    cdef readonly object label          # the row of the precedence that chose it
    cdef readonly tuple unsupported_names  # the names of these arguments, in the order of the schema

# replaced as a whole when a registration changes. Some fields are compiled or cached later
cdef class Table:
    cdef readonly Signature signature
    cdef PyObject* entries[N_SLOTS]     # borrowed from rows
    # functionalities that do not fall through, by bit length of the backends
    cdef uint64_t masks[N_BACKENDS + 1]
    cdef readonly tuple rows
    cdef uint64_t last_word             # of the last plain call outside all guards: the word of its arguments
    cdef PyObject* last_entry           # the entry for that word
    cdef bint is_factory                     # whether it makes an array, so that every interpreter has to see the call
    # whether it draws random numbers, so that every interpreter of vmap has to see the call
    cdef bint is_random
    # whether it draws numbers, or has another state, so that a second run of a function has to see that of the first
    cdef bint is_stateful
    cdef bint asks_handlers             # whether it runs the handlers of classes under the Python key
    cdef dict rules                     # for classes of subclasses, modes and transforms, or None
    cdef readonly BatchingRule batching     # None if undeclared
    cdef readonly object derivative           # a Derivative, a source of one, a CustomDerivative, or None
    cdef bint has_users_functions       # whether there are rules, or a derivative of a user's
    cdef char derivative_is_compiled    # whether `derivative` is a result of compile_derivative
    cdef readonly TableEntry differentiated_as      # the composite that runs instead if a derivative is needed

cdef uint64_t effective_keys(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? 1
# return the keys of a call that have a kernel and are not excluded
cdef uint64_t usable_keys(PyObject* table, PyObject* state, uint64_t word) noexcept
cdef Table table_of(OpOverload op)    # return the operator's table. Compute it if registrations have changed
# return the rule for a class of subclasses, modes or transforms, or None
cdef object rule_for(Table table, cls)
cdef PyObject* plain_entry(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? NULL
cdef PyObject* further_entry(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except? NULL
cdef uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept

cdef class BatchingRule:                    # how a batch of calls is computed at once
    cdef Signature signature
    cdef int kind
    cdef tuple changes                  # (position of an argument, function)
    cdef object rule
    cdef int max_other_ndim             # see BatchingRule in vmap.pyx. -1 for none
