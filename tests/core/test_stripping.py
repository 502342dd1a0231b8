"""Arguments equal to their defaults do not reach kernels. `bind`, `strip_defaults` and `fill_defaults`.

`strip` below states the rules in plain Python, and everything is compared with it.
"""

from __future__ import annotations

import enum
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import DispatchKeySet, Tensor, debug, include_keys, ops
from pydispatch.exceptions import DispatchTypeError, RegistrationError, UnsupportedArgumentError
from pydispatch.library import Library, register_opaque_type, unregister_opaque_type
from pydispatch.tracing import make_fx

X = np.arange(3.0)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.fixture(scope="module", autouse=True)
def color():
    register_opaque_type(Color, "StrippedColor")
    yield
    unregister_opaque_type(Color)


# --- equality of a value and a default ----------------------------------------------------------------------

EQUALITY = [  # an argument with its default, what is passed, whether it is stripped
    ("int a=1", 1, True), ("int a=1", True, True), ("int a=1", np.int8(1), True), ("int a=1", 2, False),
    ("float b=2.0", 2, True), ("float b=2.0", 2.0, True), ("float b=2.0", 2.5, False),
    ("float f=0.0", -0.0, True), ("float f=0.0", math.nan, False),
    ("bool c=False", 0, True), ("bool c=False", False, True), ("bool c=False", True, False),
    ("Scalar s=1", 1, True), ("Scalar s=1", np.int64(1), True), ("Scalar s=1", 1.0, False), ("Scalar s=1", True, False),
    ("Scalar s=1", 1 + 0j, False),
    ("Scalar s=True", 1, False), ("Scalar s=True", True, True),
    ("Scalar s=1.5", 1.5, True),
    ("Scalar? s=None", 0, False), ("Scalar? s=None", None, True),
    ("Scalar? s=0", False, False),
    ("str s='hi'", "hi", True), ("str s='hi'", "ho", False),
    ("str? s=None", "", False),
    ("str? s=''", None, False),
    ("int? i=5", 5, True), ("int? i=5", None, False),
    ("int? i=None", None, True), ("int? i=None", 0, False),
    ("bool? b=True", None, False), ("bool? b=True", 1, True),
    ("float? f=1.0", 1, True),
    ("complex z=1j", 1j, True), ("complex z=1j", 1, False),
    ("Tensor? t=None", None, True), ("Tensor? t=None", X, False), ("Tensor? t=None", Tensor(X), False),
    ("Tensor? t=None", 0, False),
    ("Tensor[]? t=None", None, True), ("Tensor[]? t=None", [], False),
    ("int[] l=[1,2]", [1, 2], True), ("int[] l=[1,2]", (1, 2), True), ("int[] l=[1,2]", [1, 2, 3], False),
    ("int[] l=[1,2]", [], False), ("int[] l=[1,2]", [2, 1], False),
    ("int[] l=[]", [], True),
    ("int[2] e=1", 1, True), ("int[2] e=1", [1, 1], True), ("int[2] e=1", [1, 1, 1], False), ("int[2] e=1", 2, False),
    ("int[2]? e=None", 1, False),
    ("float[] l=[1.,2.]", [1, 2], True),
    ("bool[2] kb=[True,False]", [1, 0], True),
    ("int[]? l=None", [], False), ("int[]? l=None", None, True),
    ("Scalar[] l=[1]", [1], True), ("Scalar[] l=[1]", [1.0], False), ("Scalar[] l=[1]", [True], False),
    ("str[] l=['a']", ["a"], True),
    ("ScalarType d=float32", np.float32, True),
    ("ScalarType d=float32", "float32", True),
    ("ScalarType d=float32", float, False), ("ScalarType d=float32", ">f4", False),
    ("ScalarType? d=None", None, True), ("ScalarType? d=None", float, False),
    ("Device d='CPU'", "cpu", True), ("Device d='CPU'", "A", False),
    ("Device? d=None", "CPU", False),
    ("Generator? g=None", None, True),
    ("Generator? g=None", np.random.default_rng(0), False),
    ("(int, Scalar) p=[1,2]", (1, 2), True),
    ("(int, Scalar) p=[1,2]", (1, 2.0), False),
    ("Union(int, str) u=1", 1, True), ("Union(int, str) u=1", "1", False),
    ("Union(int, str) u='1'", "1", True),
    ("StrippedColor c=StrippedColor.RED", Color.RED, True),
    ("StrippedColor c=StrippedColor.RED", Color.BLUE, False),
    ("Any? a=None", None, True), ("Any? a=None", X, False), ("Any? a=None", (X,), False), ("Any? a=None", 0, False),
]


@pytest.mark.parametrize(("argument", "value", "stripped"), EQUALITY, ids=str)
@pytest.mark.parametrize("kw_only", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize("key", ["CIA", "CEA"])
def test_what_equals_a_default(fresh, define, spy, argument, value, stripped, kw_only, key):
    kernel = spy()
    op = define(fresh, f"f(Tensor x, {'*, ' if kw_only else ''}{argument}) -> ()", **{key: kernel})
    name = argument.partition("=")[0].split()[-1]
    op(X, **{name: value})
    if not kw_only:
        op(X, value)
    for args, kwargs in kernel.calls:
        assert (len(args) - 1 + len(kwargs)) == (0 if stripped else 1)
        if not stripped:
            got = kwargs[name] if kw_only else args[1]
            converted = op.bind((X,), {name: value})[1]
            raw = converted.array if key == "CEA" and isinstance(converted, Tensor) else converted
            assert got is raw or plain(got) == plain(raw)


def plain(value):
    """Return a value made comparable with `==`: numbers with their type, NaN by its name, arrays by identity."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, Tensor)):
        return id(value)
    return type(value), repr(value) if value != value else value


# --- worked examples ----------------------------------------------------------------------------------------

P = (
    "p(Tensor x, int a=1, float b=2.0, bool c=False, str s='hi', Tensor? t=None, int[] l=[1,2], int[2] e=1, "
    "float[] fl=[], Scalar sc=3, int? oi=5, ScalarType? dt=None, *, int k1=1, Scalar alpha=1, "
    "Tensor? kt=None, float kf=0.0, str? so=None) -> ()"
)
Q = "q(Tensor x, int a, int b=1, int c=2) -> ()"
R = "r(Tensor x, int a=1, *, int k) -> ()"
ADDMV = "addmv(Tensor x, Tensor y, Tensor z, *, Scalar beta=1, Scalar alpha=1) -> ()"
SOFTMAX = "softmax(Tensor x, int dim, bool half) -> ()"


def call(*args, **kwargs):
    return args, kwargs


EXAMPLES = [
    (P, call(X), call(X)), (P, call(X, 1), call(X)), (P, call(X, True), call(X)), (P, call(X, 1, 2), call(X)),
    (P, call(X, 1, 2.0, False, "hi", None), call(X)),
    (P, call(X, a=2), call(X, 2)),
    (P, call(X, c=True), call(X, 1, 2.0, True)),
    (P, call(X, e=[1, 2]), call(X, 1, 2.0, False, "hi", None, (1, 2), (1, 2))),
    (P, call(X, oi=None), call(X, 1, 2.0, False, "hi", None, (1, 2), (1, 1), (), 3, None)),
    (P, call(X, so="z", kf=1.0, k1=3, alpha=7), call(X, k1=3, alpha=7, kf=1.0, so="z")),
    (P, call(X, kt=X, alpha=1.0), call(X, alpha=1.0, kt=X)),
    (Q, call(X, 1, 1, 3), call(X, 1, 1, 3)), (Q, call(X, 1, 5, 2), call(X, 1, 5)),
    (Q, call(x=X, a=1, c=9), call(X, 1, 1, 9)),
    (R, call(X, k=1), call(X, k=1)), (R, call(X, 2, k=1), call(X, 2, k=1)),
    (ADDMV, call(X, X, X, beta=2, alpha=2), call(X, X, X, beta=2, alpha=2)),
    (ADDMV, call(X, X, X, beta=1, alpha=2), call(X, X, X, alpha=2)),
    (SOFTMAX, call(X, 0, False), call(X, 0, False)),
]


@pytest.mark.parametrize(("schema", "spelling", "expected"), EXAMPLES, ids=str)
def test_worked_examples(fresh, define, spy, schema, spelling, expected):
    kernel = spy()
    op = define(fresh, schema, CPU=kernel)
    args, kwargs = spelling
    op(*args, **kwargs)
    ((got_args, got_kwargs),) = kernel.calls
    assert plain((got_args, got_kwargs)) == plain(expected)
    assert list(got_kwargs) == list(expected[1])  # in the order of the schema


Y = np.ones((2, 3))
LIBRARY_EXAMPLES = [
    ("sum", call(Y), call(Y)), ("sum", call(Y, 0), call(Y, (0,))),
    ("sum", call(Y, 0, keepdims=False), call(Y, (0,))),
    ("sum", call(Y, 0, keepdims=True), call(Y, (0,), keepdims=True)),
    ("sum", call(Y, axis=(0, 1)), call(Y, (0, 1))),
    ("getitem", call(Y, slice(0, 1)), call(Y, slice(0, 1))),
    ("astype", call(Y, int), call(Y, np.dtype(int))),
]


@pytest.mark.parametrize(("name", "spelling", "expected"), LIBRARY_EXAMPLES, ids=str)
def test_operators_of_the_library_are_stripped_likewise(tracer, spy, name, spelling, expected):
    seen = []

    def fallback(keys, op, *args, **kwargs):
        seen.append((args, kwargs))
        return op.redispatch(keys & DispatchKeySet.full_after(tracer), *args, **kwargs)

    args, kwargs = spelling
    with Library("_", "IMPL") as everything:
        everything.fallback(fallback, "Tracer", with_keyset=True)
        with include_keys("Tracer"):
            getattr(ops.np, name)(*args, **kwargs)
    assert plain(seen[0]) == plain(expected)


# --- the laws -----------------------------------------------------------------------------------------------


def same_kind_and_value(value, default):
    """Compare by value after conversion: 1, 1.0 and True differ, NaN equals nothing, arrays equal nothing."""
    if isinstance(value, tuple) and isinstance(default, tuple):
        return len(value) == len(default) and all(map(same_kind_and_value, value, default))
    if isinstance(value, (np.ndarray, Tensor)):
        return False
    return type(value) is type(default) and value == default


def strip(arguments, values):
    """Strip by the rules in plain Python.

    `arguments` are (name, has_default, default, kw_only), keyword-only ones last.
    """
    is_default = [
        has_default and same_kind_and_value(value, default)
        for (_, has_default, default, _), value in zip(arguments, values, strict=True)
    ]
    n_positional = sum(not kw_only for *_, kw_only in arguments)
    n = n_positional
    while n > 0 and is_default[n - 1]:
        n -= 1
    kwargs = {arguments[i][0]: values[i] for i in range(n_positional, len(arguments)) if not is_default[i]}
    return tuple(values[:n]), kwargs


small = st.integers(-2, 2)
number = small | st.booleans() | st.sampled_from([0.0, -0.0, 1.0, math.nan, 1j])
real = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0])
text = st.sampled_from(["", "a", "b"])
TYPES = {  # type: (converted values, values that may be defaults)
    "int": (small, small),
    "float": (real | st.just(math.nan), real),
    "bool": (st.booleans(), st.booleans()),
    "str": (text, text),
    "Scalar": (number, small | st.booleans() | real),
    "int?": (st.none() | small, st.none() | small),
    "str?": (st.none() | text, st.none() | text),
    "Scalar?": (st.none() | number, st.none() | small | real),
    "int[]": (st.lists(small, max_size=2).map(tuple),) * 2,
    "int[2]": (st.tuples(small, small),) * 2,
    "int[]?": (st.none() | st.lists(small, max_size=2).map(tuple), st.none()),
    "float[]": (st.lists(real, max_size=2).map(tuple),) * 2,
    "Scalar[]": (st.lists(number, max_size=2).map(tuple), st.lists(small | real, max_size=2).map(tuple)),
    "Tensor?": (st.none() | st.just(X) | number, st.none()),
    "Any": (st.none() | small | st.just(X), None),
}


def literal(value):
    """Return a default as the schema language writes it."""
    return f"[{', '.join(map(literal, value))}]" if isinstance(value, tuple) else repr(value)


@st.composite
def operators(draw):
    """Draw (schema, arguments, a list of values for each)."""
    n = draw(st.integers(0, 7))
    kw_only = sorted(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    arguments, parts, values = [("x", False, None, False)], ["Tensor x"], [X]
    optional = False
    for i in range(n):
        type_name = draw(st.sampled_from(sorted(TYPES)))
        strategy, defaults = TYPES[type_name]
        if kw_only[i] and (i == 0 or not kw_only[i - 1]):
            parts.append("*")
            optional = False
        has_default = defaults is not None and (optional or draw(st.booleans()))
        if optional and not has_default:  # no required argument may follow an optional one
            type_name, (strategy, defaults), has_default = "int", TYPES["int"], True
        optional = has_default and not kw_only[i]
        default = draw(defaults) if has_default else None
        arguments.append((f"a{i}", has_default, default, kw_only[i]))
        parts.append(f"{type_name} a{i}" + (f"={literal(default)}" if has_default else ""))
        values.append(draw(st.just(default) | strategy if has_default else strategy))
    return f"f({', '.join(parts)}) -> ()", arguments, tuple(values)


@st.composite
def spelled(draw, arguments, values):
    """Draw some way to pass these values: leading ones by position, defaults left out or not."""
    n_positional = sum(not kw_only for *_, kw_only in arguments)
    by_position = draw(st.integers(0, n_positional))
    kwargs = {
        name: value
        for (name, has_default, default, _), value in zip(arguments[by_position:], values[by_position:], strict=True)
        if not (has_default and same_kind_and_value(value, default) and draw(st.booleans()))
    }
    names = draw(st.permutations(list(kwargs)))
    return values[:by_position], {name: kwargs[name] for name in names}


@given(st.data())
@settings(max_examples=250)
def test_laws_of_stripping(new_library, define, spy, data):
    schema, arguments, values = data.draw(operators())
    args, kwargs = data.draw(spelled(arguments, values))
    with new_library() as library:
        kernel, fill = spy(), spy()
        op = define(library, schema, CIA=kernel)
        expected = strip(arguments, values)

        stripped = op.strip_defaults(values)
        assert plain(stripped) == plain(expected)
        assert plain(op.strip_defaults(list(values))) == plain(expected)
        bound = op.bind(args, kwargs)
        assert plain(op.strip_defaults(bound)) == plain(expected), "whatever the spelling"
        assert plain(op.strip_defaults(op.bind(*stripped))) == plain(expected), "idempotent"

        filled, by_name = op.fill_defaults(args, kwargs), op.fill_defaults(args, kwargs, by_name=True)
        n_positional = sum(not kw_only for *_, kw_only in arguments)
        names = [name for name, *_ in arguments]
        assert plain(filled) == plain(
            (bound[:n_positional], dict(zip(names[n_positional:], bound[n_positional:], strict=True))))
        assert plain(by_name) == plain(((), dict(zip(names, bound, strict=True))))
        refilled = op.fill_defaults(*stripped)
        assert plain(op.fill_defaults(*refilled)) == plain(refilled), "fill after fill"
        for form in (filled, by_name, stripped):
            assert plain(op.strip_defaults(op.bind(*form))) == plain(expected), "strip after fill"

        for form in ((args, kwargs), filled, by_name, stripped):
            op(*form[0], **form[1])
        op.call_boxed(list(values))
        assert [plain(seen) for seen in kernel.calls] == [plain(expected)] * 5
        library.impl("f", fill, "BackendSelect")
        op(*args, **kwargs)
        assert plain(fill.calls) == plain([expected])


@pytest.mark.parametrize("method", ["strip_defaults", "bind", "fill_defaults"])
def test_the_inverses_refuse_what_a_call_refuses(fresh, define, spy, method):
    op = define(fresh, Q, CIA=spy())
    wrong = {
        "strip_defaults": [((X, 1),), ((X, 1, 1, 2, 3),), ((X, "a", 1, 2),)],
        "bind": [((),), ((X, 1, 2, 3, 4),), ((X,), {"a": "b"}), ((X, 1), {"z": 1}), ((X, 1), {"a": 1})],
        "fill_defaults": [((),), ((X, 1, 2, 3, 4),), ((X,), {"a": "b"}), ((X, 1), {"z": 1}), ((X, 1), {"a": 1})],
    }
    for arguments in wrong[method]:
        with pytest.raises(DispatchTypeError, match=r"operator .*::q"):
            getattr(op, method)(*arguments)


# --- defaults of kernels ------------------------------------------------------------------------------------

F = "f(Tensor x, int a=1, float b=2.0, *, int k=3, str s='hi') -> ()"
seen = []
FILLED = [  # kernels that have all defaults, or lack some
    lambda x, a=1, b=2.0, *, k=3, s="hi": seen.append((x, a, b, k, s)),
    lambda x, a, b=2.0, *, k=3, s="hi": seen.append((x, a, b, k, s)),
    lambda x, a, b, *, k=3, s="hi": seen.append((x, a, b, k, s)),
    lambda x, a=1, b=2.0, *, k, s="hi": seen.append((x, a, b, k, s)),
    lambda x, a=1, b=2.0, *, s, k=3: seen.append((x, a, b, k, s)),
    lambda x, a, b, *, k, s: seen.append((x, a, b, k, s)),
    lambda x, *rest, k, s: seen.append((x, *rest, *(1, 2.0)[len(rest) :], k, s)),
]


@pytest.mark.parametrize("kernel", FILLED, ids=range(len(FILLED)))
@pytest.mark.parametrize("key", ["CPU", "CIA"])
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_a_default_that_a_kernel_lacks_is_filled_in(fresh, define, key, kernel, wrap):
    op = define(fresh, F, **{key: kernel})
    seen.clear()
    x = wrap(X)
    op(x)
    op(x, 5)
    op(x, b=7.0, k=8)
    op.call_boxed([x, 1, 2.0, 3, "hi"])
    x = X if key == "CPU" else x
    assert plain(seen) == plain(
        [(x, 1, 2.0, 3, "hi"), (x, 5, 2.0, 3, "hi"), (x, 1, 7.0, 8, "hi"), (x, 1, 2.0, 3, "hi")])


def test_only_what_lacks_its_default_is_filled_in(fresh, define):
    seen = []

    def kernel(x, a, *rest, k, **others):
        seen.append((x, a, rest, k, others))

    op = define(fresh, F, CPU=kernel)
    op(X)
    op(X, s="ho")
    op(X, 1, 9.0)
    # *rest and **others take whatever comes: they say no default, so all of it comes
    assert plain([call[3] for call in seen]) == plain([3, 3, 3])
    assert plain(seen[2][:3]) == plain((X, 1, (9.0,)))
    assert seen[1][4] == {"s": "ho"}


DEFAULTS = [  # argument of the schema, the kernel's default, whether they agree
    ("int a=1", 1, True), ("int a=1", True, True), ("int a=1", 2, False), ("int a=1", None, False),
    ("int a=1", 1.0, False),
    ("float a=1.0", 1, True), ("float a=1.0", 1.0, True), ("float a=1.0", 1.5, False),
    ("Scalar a=1", 1, True), ("Scalar a=1", 1.0, False), ("Scalar a=1", True, False),
    ("bool a=True", True, True), ("bool a=True", 1, True), ("bool a=True", False, False),
    ("str a='x'", "x", True), ("str a='x'", "y", False),
    ("str? a=None", None, True), ("str? a=None", "", False),
    ("int[2] a=1", (1, 1), True), ("int[2] a=1", [1, 1], True), ("int[2] a=1", 1, True), ("int[2] a=1", (1, 2), False),
    ("int[] a=[]", (), True), ("int[] a=[]", None, False),
    ("Tensor? a=None", None, True), ("Tensor? a=None", 0, False),
    ("ScalarType a=float32", np.float32, True),
    ("ScalarType a=float32", "float32", True),
    ("ScalarType a=float32", float, False),
    ("Device a='CPU'", "cpu", True), ("Device a='CPU'", "Meta", False),
]


@pytest.mark.parametrize(("argument", "default", "agrees"), DEFAULTS, ids=str)
@pytest.mark.parametrize("kw_only", [False, True], ids=["positional", "keyword"])
@pytest.mark.parametrize("first", ["def", "impl"])
def test_a_different_default_is_refused_in_both_orders(fresh, argument, default, agrees, kw_only, first):
    def positional(x, a=default):
        return None

    def keyword(x, *, a=default):
        return None

    steps = [
        lambda: fresh.define(f"f(Tensor x, {'*, ' if kw_only else ''}{argument}) -> ()"),
        lambda: fresh.impl("f", keyword if kw_only else positional, "CPU"),
    ]
    one, two = steps if first == "def" else reversed(steps)
    one()
    if agrees:
        two()
        return
    with pytest.raises(RegistrationError) as caught:
        two()
    for part in (
        "f(Tensor x", "default for 'a'", repr(default), "keyword" if kw_only else "positional", "test_stripping"):
        assert part in str(caught.value)
    fresh.close()
    assert not hasattr(getattr(ops, fresh.namespace), "f")


SHAPES = [
    ("f(Tensor x, int a) -> ()", lambda x: None, "1 positional arguments"),
    ("f(Tensor x, *, int a) -> ()", lambda x: None, "does not take a keyword argument 'a'"),
    ("f(Tensor x, *, int a=1) -> ()", lambda x, a=1, /: None, "does not take a keyword argument 'a'"),
    ("f(Tensor x) -> ()", lambda x, y: None, "requires a parameter 'y'"),
    ("f(Tensor x) -> ()", lambda x, *, y: None, "requires a parameter 'y'"),
    ("f(Tensor x) -> ()", lambda: None, "0 positional arguments"),
]


@pytest.mark.parametrize(("schema", "kernel", "reason"), SHAPES, ids=[f"{row[0]} {row[2]}" for row in SHAPES])
@pytest.mark.parametrize("first", ["def", "impl"])
def test_a_kernel_that_cannot_be_called_is_refused(fresh, schema, kernel, reason, first):
    steps = [lambda: fresh.define(schema), lambda: fresh.impl("f", kernel, "CPU")]
    one, two = steps if first == "def" else reversed(steps)
    one()
    with pytest.raises(RegistrationError, match=reason):
        two()


def test_a_new_defaulted_argument_breaks_no_caller_but_asks_every_kernel(fresh, define, spy):
    # Arguments are stripped so that a schema can get another default while kernels see the same calls.
    kernel = spy()
    for schema in ("f(Tensor x) -> ()", "f(Tensor x, int a=1) -> ()", "f(Tensor x, int a=1, *, int k=2) -> ()"):
        with fresh.define(schema), fresh.impl("f", kernel, "CPU"):
            getattr(ops, fresh.namespace).f(X)
    assert plain(kernel.calls) == plain([((X,), {})] * 3)


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64])
def test_many_arguments(fresh, define, spy, n):
    kernel = spy()
    op = define(fresh, f"f({', '.join(f'int a{i}={i}' for i in range(n))}) -> ()", CIA=kernel)
    values = tuple(range(n))
    changed = (*values[:-1], -1)[:n]
    for args in (values, changed):
        op(*args)
        op.call_boxed(list(args))
        op(**{f"a{i}": value for i, value in enumerate(args)})
    assert [len(args) for args, _ in kernel.calls] == [0, 0, 0, n, n, n]
    assert op.bind(changed) == changed
    if n:
        op(**{f"a{n - 1}": -1})
        assert kernel.calls[-1] == ((*values[:-1], -1), {})
    with pytest.raises(DispatchTypeError, match=f"at most {n}"):
        op(*itertools.repeat(0, n + 1))


# --- partial kernels -------------------------------------------------------------------------------------------------

PARTIAL = "f(Tensor x, int a=1, int? b=None, *, str s='t', bool c=False) -> Tensor"
PARTIAL_KERNELS = {
    "a only": (lambda x, a=1: x + a, {"b", "s", "c"}),
    "x only": (lambda x: x + 1, {"a", "b", "s", "c"}),
    "a without default": (lambda x, a: x + a, {"b", "s", "c"}),
    "c by keyword": (lambda x, *, c=False: x + 1 - c, {"a", "b", "s"}),
}
CALLS = [((), {}), ((2,), {}), ((), {"a": 2}), ((1, 5), {}), ((), {"b": 5}), ((), {"s": "u"}), ((), {"c": True}),
         ((1, None), {"s": "t", "c": False})]


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
@pytest.mark.parametrize(("kernel", "unsupported"), PARTIAL_KERNELS.values(), ids=list(PARTIAL_KERNELS))
def test_what_a_kernel_does_not_take_can_be_at_its_default_only(fresh, kernel, unsupported, wrap):
    fresh.define(PARTIAL)
    fresh.impl("f", kernel, "CPU")
    op = getattr(ops, fresh.namespace).f.default
    for args, kwargs in CALLS:
        given = dict(zip("ab", args, strict=False)) | kwargs
        changed = {name for name, value in given.items() if value != {"a": 1, "b": None, "s": "t", "c": False}[name]}
        refused = [name for name in ("a", "b", "s", "c") if name in changed & unsupported]
        calls = [lambda args=args, kwargs=kwargs: op(wrap(X), *args, **kwargs),
                 lambda args=args, kwargs=kwargs: op.redispatch(DispatchKeySet("CPU"), wrap(X), *args, **kwargs)]
        for call in calls:
            if not refused:
                assert np.array_equal(np.asarray(call()), X + given.get("a", 1) - given.get("c", 0))
                continue
            with pytest.raises(UnsupportedArgumentError) as caught:
                call()
            assert isinstance(caught.value, NotImplementedError)
            for part in (f"{fresh.namespace}::f", repr(refused[0]), "CPU", "test_stripping", repr(given[refused[0]]),
                         "register a kernel that takes it"):
                assert part in str(caught.value)


def test_what_a_kernel_does_not_take_is_told(fresh):
    fresh.define(PARTIAL)
    fresh.impl("f", lambda x, a=1: x + a, "CPU")
    op = getattr(ops, fresh.namespace).f.default
    assert "does not take b, s, c" in str(op.explain(X))
    assert "[kernel, without b, s, c]" in debug.dump_table(op)


def test_an_annotated_kernel_may_lack_arguments(fresh):
    def kernel(x: Tensor, a: int = 1) -> Tensor:
        return x + a
    fresh.define(PARTIAL)
    fresh.impl("f", kernel, "CPU")
    assert getattr(ops, fresh.namespace).f(X, 2)[0] == X[0] + 2


def test_a_compiled_graph_does_not_leave_out_what_a_kernel_does_not_take(fresh):
    fresh.define(PARTIAL)
    fresh.impl("f", lambda x: x + 1, "CPU")
    fresh.impl("f", lambda x, a=1, b=None, *, s="t", c=False: ops.np.zeros_like(x), "Meta")
    op = getattr(ops, fresh.namespace).f.default
    graph = make_fx(lambda x: op(x, c=True), tracing_mode="fake")(X)
    with pytest.raises(UnsupportedArgumentError, match="'c'"):
        graph.compile()(X)
