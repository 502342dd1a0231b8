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
        cdef list names = [], single_names = [], defaults = [], sizes = [], converters = []
        cdef int kind, facts
        if len(arguments) > MAX_ARGUMENTS:
            raise ValueError(f"at most {MAX_ARGUMENTS} arguments")
        self.schema = schema
        self.n_arguments = len(arguments)
        self.device = -1
        for i, argument in enumerate(arguments):
            name, single, default, size, kind, facts = argument_layout(argument)
            names.append(name)
            single_names.append(single)
            defaults.append(default)
            sizes.append(size)
            converters.append(argument.convert)
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
        self.names, self.single_names, self.defaults = tuple(names), tuple(single_names), tuple(defaults)
        self.sizes, self.converters = tuple(sizes), tuple(converters)
        lay_out_returns(self, arguments, returns)

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))


cdef int lay_out_returns(Signature self, tuple arguments, tuple returns) except -1:
    """What kernels return, and whether that is the common case."""
    cdef Py_ssize_t i
    cdef list converters = [], is_tensor = [], is_list = [], arrays = [], source = [], views = []
    cdef bint all_tensors = True, any_views = False
    for result in returns:
        text, contains_arrays = return_layout(result)
        converters.append(result.convert)
        is_tensor.append(text in ("Tensor", "Tensor?"))
        is_list.append(text == "Tensor[]")
        arrays.append(contains_arrays)
        source.append(mutated_argument(arguments, result))
        views.append(aliased_arguments(arguments, result))
        all_tensors &= text == "Tensor"
        any_views |= views[-1] != ()
    self.n_returns = len(returns)
    self.return_converters, self.return_is_tensor, self.return_is_list = (
        tuple(converters), tuple(is_tensor), tuple(is_list))
    self.return_arrays, self.return_source, self.return_views = tuple(arrays), tuple(source), tuple(views)
    self.view_of = -1
    if all_tensors and any_views:
        self.detaches = str(self.schema.name) == "np::detach"
        if self.n_returns == 1 and len(views[0]) == 1 and not self.detaches:
            i = views[0][0]
            self.view_of = i if self.kind[i] & ~WRITTEN == ARRAY else -1
    elif all_tensors and self.return_source == (-1,) * self.n_returns:
        self.returns_fresh_tensor = self.n_returns == 1
        self.returns_fresh_tensors = self.n_returns > 1
    return 0


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
        has_default = argument.has_default
        facts = (BY_KEYWORD if argument.kw_only else 0) | (0 if has_default else HAS_NO_DEFAULT)
        facts |= MAY_HOLD_ARRAYS if argument.type.contains_arrays else 0
        facts |= NAMES_BACKEND if text in ("Device", "Device?") else 0
        name = sys.intern(argument.name)
        layout = (name, (name,), argument.default if has_default else None, argument.size or 0, kind, facts)
        PyObject_GenericSetAttr(argument, "layout", layout)
    return layout


cdef tuple return_layout(result):
    """The text of a result's type, and whether it may hold arrays, likewise."""
    cdef tuple layout = getattr(result, "layout", None)
    if layout is None:
        layout = str(result.type), result.type.contains_arrays
        PyObject_GenericSetAttr(result, "layout", layout)
    return layout


cdef inline uint64_t bit(Py_ssize_t i) noexcept:
    return (<uint64_t>1) << i


def mutated_argument(arguments, result):
    """The position of the mutable argument that a result is, by its alias set; -1 if it is none."""
    if result.alias is not None and result.mutable:
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
