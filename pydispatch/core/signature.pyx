# Schemas, laid out for binding.

cdef dict kinds = {
    "Tensor": ARRAY, "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Any": ANYTHING | OPTIONAL,
    "Tensor?": ARRAY | OPTIONAL, "int?": INT | OPTIONAL, "float?": FLOAT | OPTIONAL, "bool?": BOOL | OPTIONAL,
    "str?": STR | OPTIONAL, "int[]": INTS, "int[]?": INTS | OPTIONAL, "Tensor[]": ARRAYS,
    "Scalar": SCALAR, "Scalar?": SCALAR | OPTIONAL, "ScalarType": NUMPY_DTYPE, "ScalarType?": NUMPY_DTYPE | OPTIONAL,
}


@cython.final
cdef class Signature:
    """A schema laid out for the call path."""

    def __cinit__(self, schema):
        cdef Py_ssize_t i
        cdef tuple arguments = schema.arguments, returns = schema.returns
        cdef tuple layouts, texts
        cdef int kind, facts
        if len(arguments) > MAX_ARGUMENTS:
            raise ValueError(f"at most {MAX_ARGUMENTS} arguments")
        self.schema = schema
        self.n_arguments = len(arguments)
        self.device = -1
        layouts = tuple(argument_layout(argument) for argument in arguments)
        for i, (_, _, _, _, kind, facts) in enumerate(layouts):
            self.kind[i] = kind
            if not facts & BY_KEYWORD:
                self.n_positional += 1
            if facts & NAMES_BACKEND and self.device < 0:
                self.device = i
            if facts & HAS_NO_DEFAULT:
                self.required |= bit(i)
            if facts & MAY_HOLD_ARRAYS:
                self.arrays |= bit(i)
                if kind & KIND != ARRAY:
                    self.lists = True
            if kind & WRITTEN:
                self.mutable |= bit(i)
        self.names = tuple(layout[0] for layout in layouts)
        self.single_names = tuple(layout[1] for layout in layouts)
        self.defaults = tuple(layout[2] for layout in layouts)
        self.sizes = tuple(layout[3] for layout in layouts)
        self.converters = tuple(argument.convert for argument in arguments)
        self.n_returns = len(returns)
        texts = tuple(str(result.type) for result in returns)
        self.return_converters = tuple(result.convert for result in returns)
        self.return_is_tensor = tuple(text in ("Tensor", "Tensor?") for text in texts)
        self.return_is_list = tuple(text == "Tensor[]" for text in texts)
        self.return_arrays = tuple(result.type.contains_arrays for result in returns)
        self.return_source = tuple(mutated_argument(arguments, result) for result in returns)
        self.return_views = tuple(aliased_arguments(arguments, result) for result in returns)
        self.detaches = str(schema.name) == "np::detach"
        self.view_of = -1
        if texts == ("Tensor",) and len(self.return_views[0]) == 1 and not self.detaches:
            i = self.return_views[0][0]
            self.view_of = i if self.kind[i] & ~WRITTEN == ARRAY and self.return_source[0] == -1 else -1
        self.returns_fresh_tensor = (
            texts == ("Tensor",) and self.return_source[0] == -1 and not self.return_views[0])
        self.returns_fresh_tensors = (len(texts) > 1 and set(texts) == {"Tensor"} and set(self.return_source) == {-1}
                                      and not any(self.return_views))

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))


cdef enum:      # facts about an argument
    BY_KEYWORD = 1
    HAS_NO_DEFAULT = 2
    MAY_HOLD_ARRAYS = 4
    NAMES_BACKEND = 8


cdef tuple argument_layout(argument):
    """What signatures need of an argument, found once: many declarations of a pack have the same one."""
    cdef tuple layout = getattr(argument, "layout", None)
    cdef int kind, facts
    if layout is None:
        text = str(argument.type)
        kind = kinds.get(text, OPTIONAL if text.endswith("?") else OTHER) | (WRITTEN if argument.mutable else 0)
        facts = BY_KEYWORD if argument.kw_only else 0
        facts |= 0 if argument.has_default else HAS_NO_DEFAULT
        facts |= MAY_HOLD_ARRAYS if argument.type.contains_arrays else 0
        facts |= NAMES_BACKEND if text in ("Device", "Device?") else 0
        name = sys.intern(argument.name)
        layout = (name, (name,), argument.default if argument.has_default else None, argument.size or 0, kind, facts)
        PyObject_GenericSetAttr(argument, "layout", layout)
    return layout


cdef inline uint64_t bit(Py_ssize_t i) noexcept:
    return (<uint64_t>1) << i


def mutated_argument(arguments, result):
    """The position of the mutable argument that a result is, by its alias set; -1 if it is none."""
    if result.mutable:
        for i, argument in enumerate(arguments):
            if argument.mutable and alias_sets(argument.alias) & alias_sets(result.alias):
                return i
    return -1


def aliased_arguments(arguments, result):
    """The positions of the arguments whose memory a result may share, by its alias set."""
    if result.alias is None or result.mutable:
        return ()
    sets = alias_sets(result.alias)
    return tuple(
        i for i, argument in enumerate(arguments)
        if argument.type.contains_arrays
        and ("*" in sets or alias_sets(argument.alias) & sets or "*" in alias_sets(argument.alias))
    )


def alias_sets(alias):
    """The sets that a value, or what it contains, belongs to before or after the call."""
    if alias is None:
        return frozenset()
    return alias.before | alias.after | alias_sets(alias.contained)
