# Key sets: the keys that a value brings, in one word.

cdef int first_slot[N_FUNCTIONALITIES]
cdef int slot_spread[N_FUNCTIONALITIES]             # all ones if each backend has a separate slot, else 0
slot_words = [0] * N_SLOTS
cdef uint64_t named_bits = 0
device_words = {}
slot_keys = [None] * N_SLOTS


cdef int lay_out_slots() except -1:
    cdef int functionality, backend
    cdef Py_ssize_t slot = 1
    cdef uint64_t bit
    for functionality in range(N_FUNCTIONALITIES):
        first_slot[functionality] = slot
        bit = FUNCTIONALITY_BIT(functionality)
        slot_spread[functionality] = -1 if bit & PER_BACKEND_BITS else 0
        if bit & PER_BACKEND_BITS:
            for backend in range(N_BACKENDS):
                slot_words[slot] = bit | (<uint64_t>1) << backend
                slot += 1
        else:
            slot_words[slot] = bit
            slot += 1
    assert slot == N_SLOTS
    return 0


lay_out_slots()
memset(above, 0, sizeof(above))


cdef inline int highest_slot(uint64_t word) noexcept nogil:
    cdef int backend = bit_length16(word & BACKEND_BITS)
    cdef int functionality
    word &= FUNCTIONALITY_BITS
    if backend == 0:
        word &= ~PER_BACKEND_BITS       # a per-backend functionality without a backend is not a key
    if word == 0:
        return 0
    functionality = highest_bit(word) - N_BACKENDS
    return first_slot[functionality] + ((backend - 1) & slot_spread[functionality])


def slots():
    """Return the key set of each slot, as a word."""
    return tuple(slot_words)


@cython.final
cdef class KeyLayout:
    """The layout of key sets and tables, for Python."""

    backends = N_BACKENDS
    backend_bits = BACKEND_BITS
    functionality_bits = FUNCTIONALITY_BITS
    functionalities = types.MappingProxyType({      # the rank of each that always exists
        "Dense": DENSE, "Sparse": SPARSE, "BackendSelect": BACKEND_SELECT, "Python": PYTHON,
        "AutogradOther": AUTOGRAD_OTHER, "Autograd": AUTOGRAD,
    })
    runtime_functionalities = range(FIRST_RUNTIME_FUNCTIONALITY, AUTOGRAD_OTHER)

    @staticmethod
    def functionality_bit(int functionality):
        """Return the bit of a functionality, given its rank."""
        return FUNCTIONALITY_BIT(checked_functionality(functionality))

    @staticmethod
    def is_per_backend(int functionality):
        """Return whether each backend has a key of this functionality."""
        return slot_spread[checked_functionality(functionality)] != 0

    @staticmethod
    def slot(int functionality, int backend=0):
        """Return the slot of a functionality, and of a backend if it is per-backend, given their ranks."""
        checked_functionality(functionality)
        return first_slot[functionality] + (checked_backend(backend) & slot_spread[functionality])


cdef int checked_functionality(int functionality) except -1:
    if not 0 <= functionality < N_FUNCTIONALITIES:
        raise ValueError(f"no functionality has rank {functionality}")
    return functionality


cdef int checked_backend(int backend) except -1:
    if not 0 <= backend < N_BACKENDS:
        raise ValueError(f"no backend has rank {backend}")
    return backend


def name_slot(int slot, key):
    """Assign a key to a slot. Iteration over key sets yields only named keys."""
    global named_bits
    cdef uint64_t word = slot_words[slot]
    slot_keys[slot] = key
    named_bits |= word
    if word & DENSE_BIT:
        device_words[key.name] = word


def unname_slot(int slot):
    """Remove the key of a slot, if it has one."""
    global named_bits
    key = slot_keys[slot]
    slot_keys[slot] = None
    named_bits = 0
    for other in range(N_SLOTS):
        if slot_keys[other] is not None:
            named_bits |= <uint64_t>slot_words[other]
    if key is not None:
        device_words.pop(key.name, None)


def rank_backend(int backend, DispatchKeySet outranked):
    """Declare which run-time backends this one outranks."""
    above[checked_backend(backend)] = outranked.word & BACKEND_BITS


@cython.final
@cython.freelist(32)
cdef class DispatchKeySet:
    """A set of dispatch keys in one word: backends times functionalities.

    Make one from keys, names of keys, or other key sets. Alias keys are not members of a set. `key.members` has the
    keys that an alias key represents.

    Backends and functionalities are kept apart: `{CPU, AutogradB}` and `{B, AutogradCPU}` are the same set, and
    difference only removes functionalities.

    Examples
    --------
    >>> from pydispatch import DispatchKeySet
    >>> DispatchKeySet("CPU", "AutogradCPU").highest
    DispatchKey.AutogradCPU
    """

    def __init__(self, *keys):
        if self.word:
            raise TypeError("a key set is immutable\nmake a new one: DispatchKeySet(...)")
        for key in keys:
            self.word |= word_of_keys(key)

    @staticmethod
    def from_word(uint64_t word):
        """Return the set with these bits. Bits that are not key bits are dropped."""
        return keyset(word & KEY_BITS)

    @staticmethod
    def full():
        """Return the set of every backend and every functionality."""
        return keyset(KEY_BITS)

    @staticmethod
    def full_after(key):
        """Return every key of strictly lower priority than the functionality of `key`, on all backends."""
        cdef uint64_t functionality = word_of_keys(key) & FUNCTIONALITY_BITS
        if functionality == 0:
            return keyset(0)
        return keyset(BACKEND_BITS | (FUNCTIONALITY_BITS & (((<uint64_t>1) << highest_bit(functionality)) - 1)))

    @property
    def highest(self):
        """The key of highest priority: the highest functionality, on the highest backend of the whole set."""
        return slot_keys[highest_slot(self.word & named_bits)]

    def remove_backend(self, key):
        """Return the set without the backend of `key`."""
        return keyset(self.word & ~(word_of_keys(key) & BACKEND_BITS))

    def __or__(self, other):
        return keyset((<DispatchKeySet?>self).word | word_of_keys(other))

    def __and__(self, other):
        return keyset((<DispatchKeySet?>self).word & word_of_keys(other))

    def __xor__(self, other):
        return keyset((<DispatchKeySet?>self).word ^ word_of_keys(other))

    def __sub__(self, other):
        return keyset((<DispatchKeySet?>self).word & ~(word_of_keys(other) & FUNCTIONALITY_BITS))

    def __contains__(self, key):
        cdef uint64_t word = word_of_keys(key)
        return self.word & word == word

    def __bool__(self):
        return self.word != 0

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and self.word == (<DispatchKeySet>other).word

    def __hash__(self):
        return hash(self.word)

    def __iter__(self):
        for slot, word in enumerate(slot_words):
            if word and self.word & word == word and slot_keys[slot] is not None:
                yield slot_keys[slot]

    def __len__(self):
        return sum(1 for _ in self)

    def __repr__(self):
        return f"DispatchKeySet({', '.join(map(name_of, self))})"

    def __reduce__(self):
        return upcalls.keyset_from_names, upcalls.names_of_keyset(self)


cdef object name_of = operator.attrgetter("name")


cdef inline DispatchKeySet keyset(uint64_t word):
    cdef DispatchKeySet result = DispatchKeySet.__new__(DispatchKeySet)
    result.word = word
    return result


cdef uint64_t word_of_keys(keys) except? 0:
    if isinstance(keys, DispatchKeySet):
        return (<DispatchKeySet>keys).word
    return (<DispatchKeySet?>upcalls.member(keys)).word
