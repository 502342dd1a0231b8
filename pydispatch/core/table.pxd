# Dispatch tables: from a key to the kernel that runs.

cdef enum:      # how a kernel is called
    RAW = 1             # arrays are unwrapped first
    TAKES_KEYSET = 2
    TAKES_OPERATOR = 4
    BOXED = 8
    FALLTHROUGH = 16    # never called
    ASKS_DEVICE = 32    # runs only when no argument brings a backend, or the schema has a device
    COUNTS_DEPTH = 64   # CPython counts the depth of recursion when it calls such an object
    FRESH = 128         # its results must not share memory with its arguments, which is looked after
    HANDLERS = 256      # stands for the handlers of the arguments' classes
    COMPOSITE = 512     # is made of other operators, which every interpreter sees
    USER_KERNEL = 1024      # is not of the library, and may copy the context
    PARTIAL = 2048      # does not take every argument of the schema
    CONDITIONAL = 4096  # is for some calls alone: `applies` of its kernel tells

cdef class TableEntry:                  # a kernel as one operator calls it under one key
    cdef object function
    cdef vectorcallfunc call            # its own entry point
    cdef int convention
    cdef Loop loop                      # where the function is a ufunc
    cdef uint64_t fill                  # arguments that are passed even when they equal their default
    cdef uint64_t untaken               # arguments that the function does not take; they can be at their default only
    cdef readonly object kernel
    cdef readonly object label          # the row of the precedence that chose it
    cdef readonly tuple untaken_names   # of those arguments, in the order of the schema

cdef class Table:                       # replaced whole when a registration changes; the rest is compiled or cached
    cdef readonly Signature signature
    cdef PyObject* entries[N_SLOTS]     # borrowed from rows
    # functionalities that do not fall through, by bit length of the backends
    cdef uint64_t masks[N_BACKENDS + 1]
    cdef readonly tuple rows
    cdef uint64_t last_word             # the last plain call outside of all guards: the word of its arguments,
    cdef PyObject* last_entry           # and the entry that it found
    cdef bint is_factory                     # does it make an array, so that every interpreter has to see the call?
    # does it draw random numbers, so that every interpreter of vmap has to see the call?
    cdef bint is_random
    cdef bint asks_handlers             # are the handlers of classes what it runs under Python?
    cdef dict rules                     # for classes of subclasses, modes and transforms; or None
    cdef readonly BatchingRule batching     # how it is batched; None if undeclared
    cdef readonly object derivative           # a Derivative, what one is made of, a CustomDerivative, or None
    cdef bint has_users_functions       # are there rules, or a derivative of a user's?
    cdef bint derivative_is_compiled    # is `derivative` what compile_derivative made?
    cdef readonly TableEntry differentiated_as      # the composite that runs in its place where a derivative is wanted

# step 3, the ambient part: + include, - exclude, & not-fall-through
cdef uint64_t effective_keys(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? 1
# the keys of a call that have a kernel and are not excluded
cdef uint64_t usable_keys(PyObject* table, PyObject* state, uint64_t word) noexcept
cdef Table table_of(OpOverload op)    # the operator's table, computed anew where registrations have changed
cdef object rule_for(Table table, cls)    # the rule for a class of subclasses, modes or transforms; None without one
# steps 3 and 4 of the fast path
cdef PyObject* plain_entry(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? NULL
# the same outside of all guards where the backend has to be chosen, or arguments are views of constants
cdef PyObject* further_entry(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except? NULL
