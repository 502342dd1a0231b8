# Schemas in a layout for binding.

cdef dict kinds = {
    "Tensor": ARRAY, "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Any": ANYTHING | OPTIONAL,
    "Tensor?": ARRAY | OPTIONAL, "int?": INT | OPTIONAL, "float?": FLOAT | OPTIONAL, "bool?": BOOL | OPTIONAL,
    "str?": STR | OPTIONAL, "int[]": INTS, "int[]?": INTS | OPTIONAL, "Tensor[]": ARRAYS,
    "Scalar": SCALAR, "Scalar?": SCALAR | OPTIONAL, "ScalarType": NUMPY_DTYPE, "ScalarType?": NUMPY_DTYPE | OPTIONAL,
    "Device?": OTHER | OPTIONAL, "Tensor[]?": OTHER | OPTIONAL, "Union(int, int[])": INT_OR_INTS,
}


@cython.final
cdef class Signature:
    """A schema in a layout for the call path.

    With `alike`, `schema` is a function that makes the schema on first use. That schema differs from the one of `alike`
    only in the name. `detaches` specifies whether the name is that of the operator whose result is a view with its own
    gradient.
    """

    def __cinit__(self, schema, Signature alike=None, bint detaches=False):
        if alike is None:
            self.own_schema = schema
            lay_out_arguments(self, layouts_of(schema.arguments))
            lay_out_returns(self, schema.arguments, schema.returns)
        else:
            self.make_schema = schema
            copy_arguments(self, alike)
            copy_returns(self, alike)
            if detaches:
                self.detaches, self.view_of = True, -1

    @property
    def schema(self):
        """The schema of this signature."""
        return schema_of(self)

    @property
    def brings_arrays(self):
        """Whether there are arguments that bring keys."""
        return self.arrays != 0

    @property
    def may_be_view(self):
        """Whether a result may share memory with an argument."""
        return any(self.return_views)

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))

    @property
    def array_lists(self):
        """Names of the arguments that are lists of arrays."""
        return tuple(name for i, name in enumerate(self.names) if self.kind[i] & KIND == ARRAYS)

    def layout(self):
        """Return all of it except the schema, for comparison."""
        return (self.n_arguments, self.n_positional, self.required, self.arrays, self.mutable,
                (<char*>self.kind)[:self.n_arguments], self.names, self.single_names, self.defaults,
                self.sizes, self.n_returns, self.returns_fresh_tensor, self.returns_fresh_tensors,
                self.return_is_tensor, self.return_is_list, self.return_arrays, self.return_source, self.return_views,
                self.device, self.view_of, self.lists, self.detaches)


cdef object schema_of(Signature signature):
    """Return the schema of a signature, made on first use."""
    if signature.own_schema is None:
        return <object>publish_once(place_of_schema(signature), signature.make_schema())
    return signature.own_schema


cdef int lay_out_arguments(Signature self, list layouts) except -1:
    """Lay out the arguments to which a call is bound."""
    cdef Py_ssize_t i
    cdef list names = [], single_names = [], defaults = [], sizes = []
    cdef int kind, facts
    if len(layouts) > MAX_ARGUMENTS:
        raise ValueError(f"found {len(layouts)} arguments, expected at most {MAX_ARGUMENTS}")
    self.n_arguments = len(layouts)
    self.device = -1
    for i, (name, single, default, size, kind, facts) in enumerate(layouts):
        names.append(name)
        single_names.append(single)
        defaults.append(default)
        sizes.append(size)
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
    self.sizes = tuple(sizes)
    return 0


cdef int copy_arguments(Signature self, Signature alike) except -1:
    """Copy the layout of the arguments from a signature that has the same ones."""
    self.n_arguments, self.n_positional, self.device = alike.n_arguments, alike.n_positional, alike.device
    self.required, self.arrays, self.mutable, self.lists = alike.required, alike.arrays, alike.mutable, alike.lists
    self.kind = alike.kind
    self.names, self.single_names, self.defaults = alike.names, alike.single_names, alike.defaults
    self.sizes = alike.sizes
    return 0


cdef int lay_out_returns(Signature self, tuple arguments, tuple returns) except -1:
    """Lay out the results of kernels, and whether they are the common case."""
    cdef Py_ssize_t i
    cdef list is_tensor = [], is_list = [], arrays = [], source = [], views = []
    cdef bint all_tensors = True, any_views = False
    for result in returns:
        text, contains_arrays = return_layout(result)
        is_tensor.append(text in ("Tensor", "Tensor?"))
        is_list.append(text == "Tensor[]")
        arrays.append(contains_arrays)
        source.append(mutated_argument(arguments, result))
        views.append(aliased_arguments(arguments, result))
        all_tensors &= text == "Tensor"
        any_views |= views[-1] != ()
    self.n_returns = len(returns)
    self.return_is_tensor, self.return_is_list = tuple(is_tensor), tuple(is_list)
    self.return_arrays, self.return_source, self.return_views = tuple(arrays), tuple(source), tuple(views)
    self.view_of = -1
    if all_tensors and any_views:
        self.detaches = str(self.own_schema.name) == "np::detach"
        if self.n_returns == 1 and len(views[0]) == 1 and not self.detaches:
            i = views[0][0]
            self.view_of = i if self.kind[i] & ~WRITTEN == ARRAY else -1
    elif all_tensors and self.return_source == (-1,) * self.n_returns:
        self.returns_fresh_tensor = self.n_returns == 1
        self.returns_fresh_tensors = self.n_returns > 1
    return 0


cdef int copy_returns(Signature self, Signature alike) except -1:
    """Copy the layout of the returns from a signature that has the same ones."""
    self.n_returns, self.view_of, self.detaches = alike.n_returns, alike.view_of, alike.detaches
    self.returns_fresh_tensor, self.returns_fresh_tensors = alike.returns_fresh_tensor, alike.returns_fresh_tensors
    self.return_is_tensor, self.return_is_list = alike.return_is_tensor, alike.return_is_list
    self.return_arrays = alike.return_arrays
    self.return_source, self.return_views = alike.return_source, alike.return_views
    return 0


cdef enum:      # facts about an argument
    BY_KEYWORD = 1
    HAS_NO_DEFAULT = 2
    MAY_HOLD_ARRAYS = 4
    NAMES_BACKEND = 8


cdef list layouts_of(tuple arguments):
    cdef list layouts = []
    for argument in arguments:
        layouts.append(argument_layout(argument))
    return layouts


cdef tuple argument_layout(argument):
    """Return the facts that signatures need about an argument. Cache them: many declarations of a pack share it."""
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
    """Return the text of a result's type, and whether it may contain arrays. Cache them."""
    cdef tuple layout = getattr(result, "layout", None)
    if layout is None:
        layout = str(result.type), result.type.contains_arrays
        PyObject_GenericSetAttr(result, "layout", layout)
    return layout


# --- laid out from its text, without a schema -------------------------------------------------------------------------

cdef dict simple_arguments = {}     # layouts by the text of the argument and whether it is keyword-only


def simple_signature(str text, make_schema):
    """Parse a signature with simple arguments, and arrays or views as results. Return None for any other
    text.

    `make_schema` makes the schema on first use. Binding a call does not need it, and a first call that parses it takes
    0.8 ms instead of 0.3.
    """
    cdef Signature found
    cdef list layouts = [], aliased = []
    cdef tuple layout
    cdef bint by_keyword = False, is_view, is_written, is_list
    cdef Py_ssize_t i, n
    arguments, _, returns = text[1:].partition(") -> ")
    is_list, is_written = returns == "Tensor(a)[]", returns == "Tensor(a!)"
    is_view = is_list or returns == "Tensor(a)"
    n = 1 if is_view or is_written else FRESH_RESULTS.get(returns, 0)
    if n == 0:
        return None
    for piece in arguments.replace(", int[])", ",int[])").split(", ") if arguments else ():
        if piece == "*":
            by_keyword = True
            continue
        layout = simple_argument(piece, by_keyword)
        if layout is None:
            return None
        if piece.startswith("Tensor(a"):
            aliased.append(len(layouts))
        layouts.append(layout)
    if len(aliased) != 1 and (aliased or is_view or is_written):
        return None
    found = Signature(WITHOUT_ARGUMENTS)
    found.own_schema, found.make_schema = None, make_schema
    lay_out_arguments(found, layouts)
    i = aliased[0] if aliased else -1
    found.n_returns = n
    found.return_is_tensor, found.return_is_list, found.return_arrays = (not is_list,) * n, (is_list,) * n, (True,) * n
    found.return_source, found.return_views = (i if is_written else -1,) * n, ((i,) if is_view else (),) * n
    found.view_of = i if is_view and not is_list else -1
    found.returns_fresh_tensor = n == 1 and not is_view and not is_written
    found.returns_fresh_tensors = n > 1
    return found


cdef dict FRESH_RESULTS = {"Tensor": 1, "(Tensor, Tensor)": 2, "(Tensor, Tensor, Tensor)": 3}
cdef object WITHOUT_ARGUMENTS = types.SimpleNamespace(arguments=(), returns=())


cdef tuple simple_argument(str text, bint by_keyword):
    """Return the layout of an argument of a simple type, with a simple default or none. Return None for others."""
    cdef tuple found = simple_arguments.get((text, by_keyword))
    cdef int kind, facts = BY_KEYWORD if by_keyword else 0
    if found is not None:
        return found
    head, equals, literal = text.partition("=")
    spelled, _, name = head.rpartition(" ")
    sized = spelled.startswith("int[1]")
    spelled = SHORTER.get(spelled, spelled)
    if spelled not in kinds or not name.isidentifier():
        return None
    kind = kinds[spelled] | (WRITTEN if head.startswith("Tensor(a!)") else 0)
    facts |= MAY_HOLD_ARRAYS if spelled.startswith("Tensor") or spelled == "Any" else 0
    facts |= NAMES_BACKEND if spelled == "Device?" else 0
    default = simple_default(kind, literal) if equals else None
    if default is NOT_SIMPLE:
        return None
    name = sys.intern(name)
    found = (name, (name,), default, int(sized), kind, facts | (0 if equals else HAS_NO_DEFAULT))
    return simple_arguments.setdefault((text, by_keyword), found)


cdef dict SHORTER = {"Tensor(a)": "Tensor", "Tensor(a!)": "Tensor", "int[1]": "int[]", "int[1]?": "int[]?",
                     "Union(int,int[])": "Union(int, int[])"}
cdef object NOT_SIMPLE = object()


cdef object simple_default(int kind, str text):
    """Return the value of a default that is a constant, a number or a quoted word, if it suits the kind of argument."""
    kind, optional = kind & KIND, kind & OPTIONAL
    if text == "None":
        return None if optional else NOT_SIMPLE
    if kind == BOOL and text in ("True", "False"):
        return text == "True"
    if kind in (INT, SCALAR) and text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
    if kind in (FLOAT, SCALAR) and text.isascii() and all(map(str.isdecimal, text.removeprefix("-").split(".", 1))):
        return float(text) if "." in text else NOT_SIMPLE
    if kind == STR and text[:1] in ("'", '"') and text[:1] == text[-1:] and text[1:-1].isidentifier():
        return text[1:-1]
    return NOT_SIMPLE


cdef inline uint64_t bit(Py_ssize_t i) noexcept:
    return (<uint64_t>1) << i


def mutated_argument(arguments, result):
    """Return the position of the mutable argument that a result is, by its alias set, or -1."""
    if result.alias is not None and result.mutable:
        for i, argument in enumerate(arguments):
            if argument.mutable and alias_sets(argument.alias) & alias_sets(result.alias):
                return i
    return -1


def aliased_arguments(arguments, result):
    """Return the positions of the arguments whose memory a result may share, by its alias set."""
    if result.alias is None or result.mutable:
        return ()
    sets = alias_sets(result.alias)
    return tuple(
        i for i, argument in enumerate(arguments)
        if argument.type.contains_arrays
        and ("*" in sets or alias_sets(argument.alias) & sets or "*" in alias_sets(argument.alias))
    )


def alias_sets(alias):
    """Return the alias sets that a value, or its content, belongs to before or after the call."""
    if alias is None:
        return frozenset()
    return alias.before | alias.after | alias_sets(alias.contained)
