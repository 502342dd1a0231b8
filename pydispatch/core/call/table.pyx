# Dispatch tables: from a key to the kernel that runs.

CONVENTION = {
    "raw": RAW, "keyset": TAKES_KEYSET, "operator": TAKES_OPERATOR, "boxed": BOXED, "fallthrough": FALLTHROUGH,
    "asks_device": ASKS_DEVICE, "fresh": FRESH, "handlers": HANDLERS,
    "composite": COMPOSITE, "of_user": USER_KERNEL, "conditional": CONDITIONAL,
    "stateful": STATEFUL,
}

cdef tuple SELF_COUNTING = (types.FunctionType, types.BuiltinFunctionType) if sys.version_info < (3, 12) or (
    sys.version_info >= (3, 14)) else (types.FunctionType,)


cdef bint writes_to_out_alone(Signature signature) except -1:
    """Return whether the operator writes only to the keyword `out`, as for a universal function."""
    cdef tuple names = signature.names[signature.n_positional:]
    return "out" in names and signature.mutable == bit(signature.n_positional + names.index("out"))


@cython.final
cdef class TableEntry:
    """The call of one kernel by one operator: the function, its convention, the arguments that are never stripped.

    `unsupported` are the arguments that the function does not take.
    """

    def __cinit__(self, function, *, str convention, fill, Signature signature, kernel, label, unsupported=()):
        cdef Py_ssize_t i
        self.function = function
        self.call = PyVectorcall_Function(<PyObject*>function)
        if self.call == NULL:
            self.call = PyObject_Vectorcall
        self.convention = COUNTS_DEPTH if type(function) in SELF_COUNTING else 0
        for word in convention.split():
            self.convention |= CONVENTION[word]
        if fill or unsupported:
            for i, name in enumerate(signature.names):
                if name in fill:
                    self.fill |= bit(i)
                if name in unsupported:
                    self.unsupported |= bit(i)
                    self.convention |= PARTIAL
        self.kernel = kernel
        self.label = label
        self.unsupported_names = tuple([name for name in signature.names if name in unsupported]) if unsupported else ()
        if not signature.mutable or writes_to_out_alone(signature):
            find_loop(&self.loop, function)

    @property
    def is_fallthrough(self):
        """Whether this marks a key that is skipped."""
        return self.convention & FALLTHROUGH != 0

    @property
    def is_raw(self):
        """Whether the kernel gets raw arrays instead of Tensors."""
        return self.convention & RAW != 0

    @property
    def is_composite(self):
        """Whether it calls other operators, which every interpreter sees instead of this one."""
        return self.convention & COMPOSITE != 0

    @property
    def asks_handlers(self):
        """Whether this is the entry of the handlers of the arguments' classes."""
        return self.convention & HANDLERS != 0

    @property
    def asks_device(self):
        """Whether it runs only if no argument determines the backend, or a device is specified."""
        return self.convention & ASKS_DEVICE != 0


cdef tuple ZERO_D = ("a scalar", "an array", "as first", "by key")     # in the order of the enumeration


@cython.final
cdef class Table:
    """The kernels that one operator runs under each key: an immutable snapshot of the registrations in force."""

    def __cinit__(self, Signature signature, tuple rows, bint asks_device, derivative=None, bint is_factory=False,
                  dict rules=None, BatchingRule batching=None, bint is_random=False, TableEntry differentiated_as=None,
                  bint is_stateful=False, str zero_d="a scalar"):
        cdef Py_ssize_t slot, backends
        cdef TableEntry entry
        cdef uint64_t word, functionality
        self.signature = signature
        signature.zero_d = ZERO_D.index(zero_d)
        self.rows = rows
        self.derivative = derivative
        self.rules = rules
        self.has_users_functions = rules is not None or hasattr(type(derivative), "setup")
        self.is_factory = is_factory
        self.batching = batching
        self.is_random = is_random
        self.is_stateful = is_stateful or is_random
        self.differentiated_as = differentiated_as
        self.last_word = ~<uint64_t>0       # no arguments have this word
        if len(rows) != N_SLOTS:
            raise ValueError(f"a table has {N_SLOTS} rows, found {len(rows)}")
        if batching is not None and batching.signature is not signature:
            raise ValueError("the way of batching was made for another signature")
        check_formulas(derivative, signature)
        self.masks[0] = FUNCTIONALITY_BITS & ~PER_BACKEND_BITS
        for backends in range(1, N_BACKENDS + 1):
            self.masks[backends] = FUNCTIONALITY_BITS
        for slot in range(N_SLOTS):
            entry = rows[slot]
            self.entries[slot] = NULL if entry is None else <PyObject*>entry
            if entry is None or slot == 0:
                continue
            word = slot_words[slot]
            functionality = word & FUNCTIONALITY_BITS
            for backends in range(N_BACKENDS + 1):
                if word & PER_BACKEND_BITS and word & BACKEND_BITS != backend_of_length(backends):
                    continue
                if entry.convention & (FALLTHROUGH | HANDLERS) or (
                        entry.convention & ASKS_DEVICE and backends and not asks_device):
                    self.masks[backends] &= ~functionality
                self.asks_handlers |= entry.convention & HANDLERS != 0
        if IS_FREE_THREADED:
            for shared in (self, signature, batching, rows, *rows):
                share_freely(shared)
                if isinstance(shared, TableEntry):
                    share_freely((<TableEntry>shared).function)

    @property
    def schema(self):
        """The schema to which calls are bound."""
        return self.signature.schema

    @property
    def array_arguments(self):
        """The names of the arguments that bring keys."""
        return self.signature.array_arguments

    def mask(self, DispatchKeySet keys):
        """Return the keys of this set that do not fall through, given the backend of the set."""
        return keyset((keys.word & self.masks[bit_length16(keys.word & BACKEND_BITS)]) | keys.word & BACKEND_BITS)

    def masks_by_backend(self):
        """Return one word per bit length of the backends: the functionalities that do not fall through."""
        return tuple(self.masks[i] for i in range(N_BACKENDS + 1))

    def slot(self, DispatchKeySet keys):
        """Return the slot of the highest key."""
        return highest_slot(keys.word)


# --- keys, and the entry that they find -------------------------------------------------------------------------------


cdef inline uint64_t effective_keys(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? 1:
    """Return the keys of a call with the ambient state applied in step 3: + include, - exclude, & not-fall-through."""
    cdef uint64_t runtime, asked = word & PYTHON_BIT
    word |= (<State>state).added
    runtime = word & RUNTIME_BACKEND_BITS
    if runtime & (runtime - 1):
        check_backends(op, word, runtime)
    if asked and (<Table>table).asks_handlers:      # only arguments bring this key, not guards
        asked &= ~(<State>state).removed[bit_length16(word & BACKEND_BITS)]
        return usable_keys(table, state, word) | asked
    return usable_keys(table, state, word)


cdef int check_backends(PyObject* op, uint64_t word, uint64_t runtime) except -1:
    """Raise DispatchTypeError unless the highest of these backends is above all others."""
    if runtime & ~above[highest_bit(runtime)] & ~bit(highest_bit(runtime)):
        raise upcalls.mixed_backends(<object>op, keyset(word & KEY_BITS))
    return 0


cdef inline uint64_t usable_keys(PyObject* table, PyObject* state, uint64_t word) noexcept:
    cdef uint64_t backends = word & BACKEND_BITS
    cdef int length = bit_length16(backends)
    cdef uint64_t mask = (<Table>table).masks[length]
    if not word & (DENSE_BIT | SPARSE_BIT):     # no array determines the backend, so it may have to be selected
        mask |= (<Table>table).masks[0] & BACKEND_SELECT_BIT
    return backends | (word & ~(<State>state).removed[length] & mask)


cdef inline uint64_t autograd_keys(PyObject* table, uint64_t word) noexcept:
    """Return the autograd keys among these that have a kernel."""
    return (word & (AUTOGRAD_BIT | AUTOGRAD_OTHER_BIT)
            & (<Table>table).masks[bit_length16(word & BACKEND_BITS)])


def effective_keyset(op, Table table, State state, DispatchKeySet keys):
    """Return the key set on which a call is dispatched whose arguments bring `keys`."""
    return keyset(effective_keys(<PyObject*>op, <PyObject*>table, <PyObject*>state, keys.word) & KEY_BITS)


cdef inline Table table_of(OpOverload op):
    if op.table is None:
        return <Table?>upcalls.build_table(op)
    return op.table


cdef inline object rule_for(Table table, cls):
    return None if table.rules is None else table.rules.get(cls)


cdef PyObject* plain_entry(PyObject* op, PyObject* table, PyObject* state, uint64_t word) except? NULL:
    """Apply steps 3 and 4 of the fast path. Return NULL if there is more to do than to call a function.

    Outside all guards the result depends only on the arguments' word, and the last one is cached. The processor
    predicts the comparison of a word, but finding the entry is a chain of dependent look-ups.
    """
    cdef PyObject* entry
    if (word & SPECIAL_FLAGS or (<State>state).innermost is not None or (<State>state).traced
            or (<State>state).inference or (<State>state).substitute is not None):
        return NULL
    entry = (<Table>table).entries[highest_slot(effective_keys(op, table, state, word))]
    if entry == NULL or not is_plain(entry):
        return NULL
    if (<State>state).plain and not IS_FREE_THREADED:      # other threads could see one of the two
        (<Table>table).last_word = word
        (<Table>table).last_entry = entry
    return entry


cdef PyObject* further_entry(PyObject* op, PyObject* table, PyObject* state, Frame* frame) except? NULL:
    """Apply `plain_entry` outside all guards if the backend has to be selected, or arguments are views of constants."""
    cdef uint64_t word = frame.word & ~SHARED_FLAG
    cdef PyObject* entry
    if not (<State>state).unchanged or word & SPECIAL_FLAGS:
        return NULL
    if frame.word & SHARED_FLAG and not all_constant(frame, <Signature>(<Table>table).signature):
        return NULL
    entry = plain_entry(op, table, state, word)
    if entry == NULL:
        entry = (<Table>table).entries[highest_slot(effective_keys(op, table, state, word))]
        if entry == NULL or not (<TableEntry>entry).convention & ASKS_DEVICE:
            return NULL
        word = effective_keys(op, table, state, word)
        entry = (<Table>table).entries[highest_slot(keys_on_backend(<Table>table, frame, word, <State>state))]
        if entry == NULL or not is_plain(entry):
            return NULL
    frame.word &= ~SHARED_FLAG
    return entry
