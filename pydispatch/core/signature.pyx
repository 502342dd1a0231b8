# Schemas, laid out for binding.

cdef dict kinds = {
    "Tensor": ARRAY, "int": INT, "float": FLOAT, "bool": BOOL, "str": STR, "Any": ANYTHING | OPTIONAL,
    "Tensor?": ARRAY | OPTIONAL, "int?": INT | OPTIONAL, "float?": FLOAT | OPTIONAL, "bool?": BOOL | OPTIONAL,
    "str?": STR | OPTIONAL, "int[]": INTS, "int[]?": INTS | OPTIONAL, "Tensor[]": ARRAYS,
    "Scalar": SCALAR, "Scalar?": SCALAR | OPTIONAL, "ScalarType": NUMPY_DTYPE, "ScalarType?": NUMPY_DTYPE | OPTIONAL,
    "Device?": OTHER | OPTIONAL, "Tensor[]?": OTHER | OPTIONAL, "Union(int, int[])": INT_OR_INTS,
}


@cython.final
cdef class Signature:
    """A schema laid out for the call path.

    With `alike`, `schema` is a function that makes it when it is asked for, and it differs in the name only; `detaches`
    says whether that is the name of the operator whose result is a view with a gradient of its own.
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
        """The schema that this is the layout of."""
        return schema_of(self)

    @property
    def brings_arrays(self):
        """Are there arguments that bring keys?"""
        return self.arrays != 0

    @property
    def array_arguments(self):
        """Names of the arguments that bring keys."""
        return tuple(name for i, name in enumerate(self.names) if self.arrays & bit(i))

    @property
    def array_lists(self):
        """Names of the arguments that are lists of arrays."""
        return tuple(name for i, name in enumerate(self.names) if self.kind[i] & KIND == ARRAYS)

    def layout(self):
        """All of it but the schema, to be compared."""
        return (self.n_arguments, self.n_positional, self.required, self.arrays, self.mutable,
                (<char*>self.kind)[:self.n_arguments], self.names, self.single_names, self.defaults,
                self.sizes, self.n_returns, self.returns_fresh_tensor, self.returns_fresh_tensors,
                self.return_is_tensor, self.return_is_list, self.return_arrays, self.return_source, self.return_views,
                self.device, self.view_of, self.lists, self.detaches)


cdef object schema_of(Signature signature):
    """The schema of a signature, made when it is first asked for."""
    if signature.own_schema is None:
        signature.own_schema = signature.make_schema()
    return signature.own_schema


cdef int lay_out_arguments(Signature self, list layouts) except -1:
    """What a call is bound to."""
    cdef Py_ssize_t i
    cdef list names = [], single_names = [], defaults = [], sizes = []
    cdef int kind, facts
    if len(layouts) > MAX_ARGUMENTS:
        raise ValueError(f"at most {MAX_ARGUMENTS} arguments")
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
    """`lay_out_arguments` for a schema with the arguments of another one."""
    self.n_arguments, self.n_positional, self.device = alike.n_arguments, alike.n_positional, alike.device
    self.required, self.arrays, self.mutable, self.lists = alike.required, alike.arrays, alike.mutable, alike.lists
    self.kind = alike.kind
    self.names, self.single_names, self.defaults = alike.names, alike.single_names, alike.defaults
    self.sizes = alike.sizes
    return 0


cdef int lay_out_returns(Signature self, tuple arguments, tuple returns) except -1:
    """What kernels return, and whether that is the common case."""
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
    """`lay_out_returns` for a schema with the returns of another one."""
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


# --- laid out from its text, without a schema -------------------------------------------------------------------------

cdef dict simple_arguments = {}     # layouts by the text of the argument and whether it is by keyword only


def simple_signature(str text, make_schema):
    """The signature of a text whose arguments are all simple, and whose results are arrays or views; else None.

    `make_schema` makes its schema when it is asked for. That takes much longer, and calls that bind do not need it.
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
    """The layout of an argument of a simple type, with a simple default or none; None of any other."""
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
    """The value of a constant, a number, or a word in quotes, where the kind of the argument needs no other."""
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
