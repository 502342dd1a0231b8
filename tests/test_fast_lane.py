"""Common calls take a short cut once an operator's table is there; it must not be seen.

A trace keeps calls off the short cut, so whatever a call does under one is what it has to do without.
"""

from __future__ import annotations

import gc
import io
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, below_autograd, debug, default_backend, include_keys, ops
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchTypeError, NoKernelError, StaleOperatorError
from pydispatch.library import Library
from pydispatch.tree import tree_map


class Sub(Tensor):
    """A subclass, which is no exact Tensor."""


class Whole(int):
    """A subclass, which is no exact int."""


def known_values(backends):
    """What is passed for arguments, fitting or not; by name, so that failures can be read."""
    array, matrix = np.arange(3.0), np.ones((2, 3))
    return {
        "array": array,
        "matrix": matrix,
        "Tensor": Tensor(array),
        "Tensor of matrix": Tensor(matrix),
        "Sub": Sub(array),
        "masked": np.ma.masked_array([1, 2]),
        "np.float64": np.float64(2),
        "np.int64": np.int64(2),
        "A": backends.ArrayA(array),
        "Tensor of A": Tensor(backends.ArrayA(array)),
        "B": backends.ArrayB(array),
        "Sparse": backends.SparseArray(array),
        "Meta": MetaArray(3),
        "Tensor of Meta": Tensor(MetaArray(3)),
        "1": 1,
        "True": True,
        "2.5": 2.5,
        "1j": 1j,
        "5": 5,
        "Whole": Whole(7),
        "None": None,
        "s": "s",
        "t": "".join(["t"]),
        "list": [array],
        "Tensors": (Tensor(array), array),
        "ints": [1, 2],
        "dict": {"a": Tensor(array)},
        "object": object(),
    }


TYPES = {
    "Tensor": [None],
    "Tensor?": ["None"],
    "int": ["1", "5"],
    "float": ["2.5"],
    "bool": ["True"],
    "str": ["'s'", "'t'"],
    "Scalar": ["1", "2.5"],
    "Any": [None],
    "Tensor[]": [None],
    "int[]": ["[1, 2]"],
    "int?": ["None", "5"],
}
FITTING = {
    "Tensor": [
        "array",
        "Tensor",
        "Tensor",
        "matrix",
        "Tensor of matrix",
        "2.5",
        "1",
        "A",
        "Tensor of A",
        "Sub",
        "np.float64",
        "Meta",
    ],
    "Tensor?": ["array", "Tensor", "None", "Tensor of A", "1"],
    "int": ["1", "5", "True", "Whole", "np.int64"],
    "float": ["2.5", "1", "np.float64"],
    "bool": ["True", "1"],
    "str": ["s", "t"],
    "Scalar": ["1", "2.5", "True", "1j"],
    "Any": ["array", "Tensor", "dict", "ints", "None", "1"],
    "Tensor[]": ["list", "Tensors"],
    "int[]": ["ints"],
    "int?": ["5", "None"],
}
ARRAY_RESULTS = ["new", "new", "Tensor", "0-d", "scalar"]
RETURNS = {  # and what kernels mostly return there
    "Tensor": ARRAY_RESULTS,
    "Tensor?": [*ARRAY_RESULTS, "None"],
    "(Tensor, Tensor)": ["pair"],
    "()": ["None"],
    "str": ["str"],
    "Tensor[]": ["list"],
    "Any": [*ARRAY_RESULTS, "pair", "str", "first"],
    "Tensor(a)": [*ARRAY_RESULTS, "first"],
    "Tensor(a!)": [*ARRAY_RESULTS, "first"],
}
RESULTS = {
    "new": lambda args: np.ones(2),
    "Tensor": lambda args: Tensor(np.ones(2)),
    "scalar": lambda args: np.float64(3),
    "0-d": lambda args: np.array(3),
    "first": lambda args: args[0],
    "view": lambda args: args[0][:1],
    "pair": lambda args: (np.ones(1), args[0]),
    "None": lambda args: None,
    "str": lambda args: "answer",
    "number": lambda args: 1.0,
    "list": lambda args: [np.ones(1)],
    "A": lambda args: "later",
}
KEYS = ["CPU", "CPU", "CPU", "CIA", "CEA", "A", "Meta", "AutogradCPU", "Autograd", "SparseCPU"]
GUARDS = {
    "none": include_keys,
    "Tracer": lambda: include_keys("Tracer"),
    "below": below_autograd,
    "backend": lambda: default_backend("A"),
}


@st.composite
def schemas(draw):
    """(text, types of the arguments, how many are positional)"""
    n_positional, n_by_keyword = draw(st.integers(0, 3)), draw(st.integers(0, 2))
    returns = draw(st.just("Tensor") | st.sampled_from(sorted(RETURNS)))
    types = [draw(st.sampled_from(list(TYPES))) for _ in range(n_positional + n_by_keyword)]
    if not types or "(" in returns[1:]:
        types, n_positional = ["Tensor", *types], n_positional + 1
        types[0] = "Tensor"
    first = returns[6:] if returns in ("Tensor(a)", "Tensor(a!)") else ""
    parts, optional = [], False
    for i, type_name in enumerate(types):
        if i == n_positional:
            parts.append("*")
            optional = False
        default = draw(st.sampled_from(TYPES[type_name])) if i and (optional or draw(st.booleans())) else None
        if optional and i < n_positional and default is None:
            type_name, default = "int", "1"
            types[i] = "int"
        optional = default is not None
        mark = first if i == 0 else ""
        parts.append(f"{type_name}{mark} a{i}" + (f"={default}" if default is not None else ""))
    return f"f({', '.join(parts)}) -> {returns}", types, n_positional


@st.composite
def calls(draw, types, n_positional):
    """Names of values by position and by keyword; mostly of the right types and number."""
    chosen = [
        draw(
            st.sampled_from(FITTING[type_name]) if draw(st.integers(0, 9)) else st.sampled_from(sorted(NAMES))
        )
        for type_name in types
    ]
    n = draw(st.integers(0, n_positional)) if draw(st.booleans()) else n_positional
    kwargs = {f"a{i}": name for i, name in enumerate(chosen) if i >= n and draw(st.integers(0, 4))}
    order = draw(st.permutations(sorted(kwargs)))
    args = chosen[:n] + (["1"] if draw(st.integers(0, 19)) == 0 else [])
    if draw(st.integers(0, 19)) == 0:
        kwargs[draw(st.sampled_from(["a0", "nonsense"]))] = "1"
        order = sorted(kwargs)
    return args, {name: kwargs[name] for name in order}


NAMES = [
    "array",
    "matrix",
    "Tensor",
    "Tensor of matrix",
    "Sub",
    "masked",
    "np.float64",
    "np.int64",
    "A",
    "Tensor of A",
    "B",
    "Sparse",
    "Meta",
    "Tensor of Meta",
    "1",
    "True",
    "2.5",
    "1j",
    "5",
    "Whole",
    "None",
    "s",
    "t",
    "list",
    "Tensors",
    "ints",
    "dict",
    "object",
]


@st.composite
def situations(draw):
    """A schema, kernels for it (key, convention, result), calls and the guards they are under."""
    schema, types, n_positional = draw(schemas())
    fitting = RETURNS[schema.partition(" -> ")[2]]
    kernels = []
    for key in (
        draw(st.sampled_from(["CPU", "CIA", "CEA"])),
        *draw(st.lists(st.sampled_from(KEYS), max_size=2)),
    ):
        convention = draw(st.sampled_from([{}, {}, {}, {"with_keyset": True}, {"boxed": True}]))
        kernels.append(
            (key, convention, draw(st.sampled_from(fitting if draw(st.integers(0, 9)) else sorted(RESULTS))))
        )
    call = st.tuples(calls(types, n_positional), st.sampled_from(sorted(GUARDS)))
    return schema, kernels, draw(st.lists(call, min_size=1, max_size=4))


def kernel_for(seen, convention, result):
    """A kernel that notes what it gets; however it is called."""

    def note(args, kwargs):
        seen.append((args, kwargs))
        return RESULTS[result]([*args, *kwargs.values()])

    def boxed(op, stack):
        args = stack.pop_arguments(len(op.schema.arguments))
        answer = note(args, {})
        n = len(op.schema.returns)
        stack.push(*(answer if n > 1 and isinstance(answer, tuple) else [answer][:n]))

    if convention.get("boxed"):
        return boxed
    if convention.get("with_keyset"):
        return lambda keys, *args, **kwargs: note((keys, *args), kwargs)
    return lambda *args, **kwargs: note(args, kwargs)


def told(value, names):
    """A value that can be compared: known objects by name, others by type and content."""

    def tell(leaf):
        if id(leaf) in names:
            return f"<{names[id(leaf)]}>"
        if isinstance(leaf, Tensor):
            return type(leaf).__name__, tell(leaf.array), leaf._version
        return type(leaf).__name__, np.asarray(leaf).tolist() if isinstance(
            leaf, (np.ndarray, np.generic)
        ) else repr(leaf)

    return repr(tree_map(tell, value))


def observe(op, call, guard, values, names, seen):
    """Everything that can be seen of a call."""
    args, kwargs = call
    tensors = [value for value in values.values() if isinstance(value, Tensor)]
    before = [t._version for t in tensors]
    seen.clear()
    try:
        with GUARDS[guard]():
            answer = told(
                op(*(values[name] for name in args), **{key: values[name] for key, name in kwargs.items()}),
                names,
            )
    except Exception as error:
        answer = type(error), str(error)
    written = [t._version - version for t, version in zip(tensors, before, strict=True)]
    return answer, told(seen, names), written


@given(situations())
@settings(max_examples=300, deadline=None)
def test_the_short_cut_is_not_seen(new_library, backends, tracer, situation):
    schema, kernels, spellings = situation
    values = known_values(backends)
    names = {id(value): name for name, value in values.items()}
    names |= {
        id(value.array): f"array of {name}"
        for name, value in values.items()
        if type(value) is Tensor and name != "Tensor"
    }
    seen = []
    with new_library() as library, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.define(schema)
        for key, convention, result in kernels:
            library.impl("f", kernel_for(seen, convention, result), key, **convention)
        packet = getattr(ops, library.namespace).f
        op = packet.default
        with debug.trace(io.StringIO()):
            expected = [observe(op, call, guard, values, names, seen) for call, guard in spellings]
        for callee in (op, packet, op):
            for (call, guard), outcome in zip(spellings, expected, strict=True):
                assert observe(callee, call, guard, values, names, seen) == outcome
        for (call, guard), outcome in reversed(list(zip(spellings, expected, strict=True))):
            for _ in range(2):
                assert observe(op, call, guard, values, names, seen) == outcome


# --- what is remembered from call to call -------------------------------------------------------------------


def test_the_kernel_found_last_is_not_run_for_other_arguments(fresh, define, token, backends):
    keys = ("CPU", "A", "Meta", "SparseCPU", "AutogradCPU", "AutogradA")
    op = define(fresh, "f(Tensor x, Tensor? y=None) -> str", **{key: token(key) for key in keys})
    x, a = np.ones(2), backends.ArrayA(1)
    sparse, meta = backends.SparseArray(1), MetaArray(2)
    rows = [
        ((x,), "CPU"),
        ((Tensor(x),), "AutogradCPU"),
        ((a,), "A"),
        ((Tensor(a),), "AutogradA"),
        ((x, a), "A"),
        ((1.0,), "CPU"),
        ((sparse,), "SparseCPU"),
        ((meta,), "Meta"),
        ((x, Tensor(a)), "AutogradA"),
        ((np.float32(1),), "CPU"),
        ((x, meta), "Meta"),
    ]
    for first, second in [(one, other) for one in rows for other in rows]:
        for args, expected in (first, first, second, first):
            assert op(*args) == expected


def test_what_is_remembered_goes_with_the_registration(fresh, define, token, tracer):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"))
    x = np.ones(2)
    for _ in range(3):
        assert op(x) == "CPU"
    with fresh.impl("f", token("Tracer"), "Tracer"):
        assert op(x) == "CPU"
        with include_keys("Tracer"):
            assert [op(x), op(x)] == ["Tracer"] * 2
        assert op(x) == "CPU"
    with include_keys("Tracer"):
        assert op(x) == "CPU"
        with Library("_", "IMPL") as everything:
            everything.fallback(lambda op, x: "fallback", "Tracer")
            assert op(x) == "fallback"
        assert op(x) == "CPU"
    with default_backend("A"), pytest.raises(NoKernelError):
        op(1.0)
    assert op(1.0) == "CPU"


def test_another_definition_is_another_signature(fresh, token):
    x = np.ones(2)
    for schema, call, expected in (
        ("f(Tensor x) -> str", lambda f: f(x), "ran"),
        ("f(Tensor x, Tensor y) -> str", lambda f: f(x, Tensor(x)), "ran"),
        ("f(Tensor x) -> str", lambda f: f(x), "ran"),
        ("f(*, Tensor x) -> str", lambda f: f(x=x), "ran"),
    ):
        with fresh.define(schema), fresh.impl("f", token("ran"), "CPU"):
            f = getattr(ops, fresh.namespace).f
            assert [call(f) for _ in range(3)] == [expected] * 3


# --- kernels that remove what they run in -------------------------------------------------------------------

REMOVALS = {"kernel": lambda lib, kernel: kernel.remove(), "library": lambda lib, kernel: lib.close()}
CALLEES = {
    "overload": lambda lib: getattr(ops, lib.namespace).f.default,
    "packet": lambda lib: getattr(ops, lib.namespace).f,
}
SPELLINGS = {
    "positional": lambda f, x: f(x),
    "keyword": lambda f, x: f(x=x),
    "default": lambda f, x: f(x, 1),
    "by name": lambda f, x: f(x, k=5),
}
ANSWERS = {
    "array": (lambda x: np.ones(2), None),
    "0-d": (lambda x: np.float64(1), None),
    "wrong": (lambda x: "wrong", DispatchTypeError),
    "raises": (lambda x: 1 / 0, ZeroDivisionError),
    "the argument": (lambda x: x, None),
}


@pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS)
@pytest.mark.parametrize("callee", CALLEES.values(), ids=CALLEES)
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize(("answer", "error"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_a_kernel_removes_itself_in_the_short_cut(
    new_library, removal, callee, spelling, answer, error, wrap
):
    library, calls = new_library(), []

    def kernel(x, a=1, *, k=2):
        calls.append(x)
        if len(calls) <= 2:
            return np.ones(2)
        removal(library, handle)
        gc.collect()
        made = [object() for _ in range(200)]
        assert len(made) == 200
        return answer(x)

    library.define("f(Tensor x, int a=1, *, int k=2) -> Tensor")
    handle = library.impl("f", kernel, "CPU")
    x, f = wrap(np.ones(3)), callee(library)
    spelling(f, x), spelling(f, x)
    if error is None:
        assert type(spelling(f, x)) is (Tensor if wrap is Tensor else type(answer(x)))
    else:
        with pytest.raises(error):
            spelling(f, x)
    with pytest.raises((NoKernelError, StaleOperatorError)):
        spelling(f, x)
    library.close()


def test_names_that_are_not_interned(fresh, define, spy):
    kernel = spy(np.ones(1))
    op = define(fresh, "f(Tensor first, int second=1, *, int third=2) -> Tensor", CPU=kernel)
    x = np.ones(2)
    for _ in range(3):
        names = ["".join(["fir", "st"]), "".join(["sec", "ond"]), "".join(["thi", "rd"])]
        assert all(name is not sys.intern(name) for name in names)
        op(**dict(zip(names, (x, 5, 6), strict=True)))
        op(x, **{names[2]: 6})
    assert kernel.calls == [((x, 5), {"third": 6}), ((x,), {"third": 6})] * 3
