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
        arguments = schema.arguments
        if len(arguments) > MAX_ARGUMENTS:
            raise ValueError(f"at most {MAX_ARGUMENTS} arguments")
        self.schema = schema
        self.n_arguments = len(arguments)
        self.n_positional = sum(1 for argument in arguments if not argument.kw_only)
        self.names = tuple(sys.intern(argument.name) for argument in arguments)
        self.single_names = tuple((name,) for name in self.names)
        self.defaults = tuple(argument.default if argument.has_default else None for argument in arguments)
        self.converters = tuple(argument.convert for argument in arguments)
        self.sizes = tuple(argument.size or 0 for argument in arguments)
        self.device = -1
        for i, argument in enumerate(arguments):
            text = str(argument.type)
            self.kind[i] = kinds.get(text, OPTIONAL if text.endswith("?") else OTHER)
            if self.device < 0 and text in ("Device", "Device?"):
                self.device = i
            if not argument.has_default:
                self.required |= bit(i)
            if argument.type.contains_arrays:
                self.arrays |= bit(i)
                if self.kind[i] & KIND != ARRAY:
                    self.lists = True
            if argument.mutable:
                self.mutable |= bit(i)
                self.kind[i] |= WRITTEN
        returns = schema.returns
        self.n_returns = len(returns)
        self.return_converters = tuple(result.convert for result in returns)
        self.return_is_tensor = tuple(str(result.type) in ("Tensor", "Tensor?") for result in returns)
        self.return_is_list = tuple(str(result.type) == "Tensor[]" for result in returns)
        self.return_arrays = tuple(result.type.contains_arrays for result in returns)
        self.return_source = tuple(mutated_argument(arguments, result) for result in returns)
        self.return_views = tuple(aliased_arguments(arguments, result) for result in returns)
        self.detaches = str(schema.name) == "np::detach"
        self.view_of = -1
        if (len(returns) == 1 and str(returns[0].type) == "Tensor" and len(self.return_views[0]) == 1
                and not self.detaches):
            i = self.return_views[0][0]
            self.view_of = i if self.kind[i] & ~WRITTEN == ARRAY and self.return_source[0] == -1 else -1
        self.returns_fresh_tensor = (len(returns) == 1 and str(returns[0].type) == "Tensor"
                                     and self.return_source[0] == -1 and not self.return_views[0])

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))


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
