"""`compile`: what it takes and refuses, when it compiles again, what it reports, and what it leaves alone."""

from __future__ import annotations

import gc
import pickle
import signal
import sys
import threading
import time
import warnings
import weakref
from collections import Counter, namedtuple
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

import numpy as np
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, _core, compile, default_backend, func, ops
from pydispatch.backends import MetaArray
from pydispatch.compiling import CacheInfo
from pydispatch.compiling.programs import GarbageKept
from pydispatch.exceptions import (
    CompilationError,
    DataDependentError,
    DispatchTypeError,
    OverrideWarning,
    PerformanceWarning,
)
from pydispatch.func import grad
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.tracing import make_fx
from pydispatch.tree import register_pytree_node, tree_leaves
from tests.comparing import raw
from tests.compiling.same import BACKENDS, check_same
from tests.together import together

X = np.random.default_rng(3).standard_normal((2, 3))
Pair = namedtuple("Pair", ["first", "second"])
backends = pytest.mark.parametrize("backend", BACKENDS)


class Box:
    def __init__(self, content, label):
        self.content, self.label = content, label

    def __repr__(self):
        return f"Box({self.label!r})"

    def __eq__(self, other):
        return self.label == other.label and np.array_equal(raw(self.content), raw(other.content))

    __hash__ = None


@pytest.fixture(scope="module", autouse=True)
def box():
    register_pytree_node(Box, lambda box: ((box.content,), box.label), lambda children, label: Box(children[0], label))


class Colour(Enum):
    RED = 1
    BLUE = 2


# --- what is passed, and what comes back -----------------------------------------------------------------------------

NESTED = {
    "an array": (lambda x: x * 2, (X,)),
    "a tuple": (lambda pair: (pair[0] + pair[1], pair[0]), ((X, X[0]),)),
    "a list": (lambda items: [item * i for i, item in enumerate(items)], ([X, X, X[0]],)),
    "a dict": (lambda d: {"sum": d["a"] + d["b"], "none": None, "a": d["a"]}, ({"b": X, "a": X[0]},)),
    "a dict in an order": (lambda d: list(d.items()), ({"b": X, "a": X[0], 3: X},)),
    "a named tuple": (lambda pair: Pair(pair.second, pair.first), (Pair(X, X[0]),)),
    "a registered class": (lambda box: Box(box.content * 2, box.label), (Box(X, "label"),)),
    "deep": (lambda t: {"x": [(t["y"][0][1] * 2, None, "text")], "z": {}}, ({"y": [(1, X), []]},)),
    "numbers": (lambda x, n, r, z, flag, text, nothing: (x * n + r, x * z, n, flag, text, nothing),
                (X, 3, 0.5, 1j, True, "text", None)),
    "parts of numbers": (lambda *n: [part(x) for x in n for part in (ops.np.real, ops.np.imag)], (True, 3, 0.5, 1j)),
    "parts of numbers beside arrays": (lambda x, *n: [ops.np.real(part) + x for part in n],
                                       (np.ones(2, np.int8), True, 3, 0.5, 1j)),
    "NumPy scalars": (lambda x, n: (x * n, n), (X, np.float32(3))),
    "no array": (lambda n: (n, "text", [None]), (3,)),
    "no argument": (lambda: ops.np.arange(3.0) * 2, ()),
    "an enumeration": (lambda x, colour: x * colour.value, (X, Colour.BLUE)),
    "a slice": (lambda x, where: x[where], (X, slice(1, None))),
    "a dtype": (lambda x, dtype: ops.np.astype(x, dtype), (X, np.dtype(np.float32))),
    "the same array twice": (lambda x, y: (x, y, x, x + y), (X, X)),
    "an empty tuple": (lambda x: (), (X,)),
    "no axes": (lambda x: x + 1, (np.array(2.0),)),
    "no elements": (lambda x: (x * 2, x.sum(0)), (X[:0],)),
    "views of one array": (lambda x, y: x - y, (X[:, :2], X[:, 1:])),
}


@backends
@pytest.mark.parametrize("name", NESTED)
def test_pytrees(name, backend):
    function, arguments = NESTED[name]
    compiled = compile(function, backend=backend)
    expected = function(*arguments)
    for _ in range(3):
        check_same(compiled(*arguments), expected)
    assert compiled.cache_info() == CacheInfo(2, 1, 1)


@backends
def test_what_you_pass_is_what_you_get(backend):
    compiled = compile(lambda x, y: (x + y, x, x.sum()), backend=backend)
    assert [type(value) for value in compiled(X, X)] == [np.ndarray, np.ndarray, np.float64]
    for arguments in ((Tensor(X), X), (X, Tensor(X)), (Tensor(X), Tensor(X))):
        for _ in range(2):
            assert {type(value) for value in compiled(*arguments)} == {Tensor}
    assert compiled.cache_info().currsize == 1


@backends
def test_results_share_memory_with_nothing(backend):
    captured = np.ones((2, 3))
    compiled = compile(
        lambda x: [x, x.T, x[0], ops.np.reshape(x, -1), captured * 1, captured, captured, ops.np.zeros((2, 3)),
                   ops.np.broadcast_to(x, (2, 2, 3)), x + 1, x + 1], backend=backend)
    x = X.copy()
    calls = [compiled(x), compiled(x)]
    results = [array for results in calls for array in results]
    for i, array in enumerate(results):
        assert array.flags.writeable
        assert array.flags.c_contiguous
        for other in [x, captured, *results[i + 1:]]:
            assert not np.may_share_memory(array, other)
        array[...] = np.nan
    check_same(compiled(x), [x, x.T, x[0], x.ravel(), captured, captured, captured, np.zeros((2, 3)),
                             np.broadcast_to(x, (2, 2, 3)), x + 1, x + 1])


@backends
def test_results_that_are_captured_arrays_are_copies(backend):
    captured = np.ones(3)
    compiled = compile(lambda x: (x + captured, captured), backend=backend)
    _, copy = compiled(X)
    captured[:] = 5
    check_same(copy, np.ones(3))
    check_same(compiled(X), (X + 5, np.full(3, 5.0)))


@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 2], ids=["leaf", "computed"])
def test_captured_tensors_that_require_grad_have_gradients(make):
    leaf = Tensor(X, requires_grad=True)
    captured = make(leaf)
    compiled = compile(lambda x: (x * captured * captured).sum())
    for n, wrap in enumerate((np.array, Tensor, np.array)):
        leaf.grad = None
        compiled(wrap(X)).backward(retain_graph=True)
        np.testing.assert_allclose(raw(leaf.grad), 2 * X * raw(captured.detach()) * raw(make(np.ones(()))))
        assert compiled.cache_info().hits == n
    detached = captured.detach()
    check_same(compile(lambda x: x * detached)(X), X * detached.numpy())
    leaf = Tensor(X, requires_grad=True)
    compile(lambda x, w: (x * w).sum())(X, leaf).backward()
    check_same(leaf.grad, X)


HIDDEN = {}


def test_captured_tensors_that_cannot_be_found_are_refused():
    HIDDEN["w"] = Tensor(X, requires_grad=True)
    with pytest.raises(CompilationError, match=r"captures a Tensor that requires grad, whose gradient would be "
                                               r"lost \(at .*\)\npass it as an argument"):
        compile(lambda x: x * eval("HIDDEN['w']"))(X)


def test_another_call_may_capture_another_value_of_a_transform():
    weights = []

    @compile
    def layer(x):
        return np.sin(x) * weights[0]

    def deep(w, x):
        for i in range(3):
            weights[:] = [w * (i + 1.0)]
            x = layer(x)
        return x

    def plain(w, x):
        for i in range(3):
            x = np.sin(x) * (w * (i + 1.0))
        return x

    w, x = np.float64(0.75), np.float64(0.5)
    check_same(grad(deep, argnums=(0, 1))(w, x), grad(plain, argnums=(0, 1))(w, x))
    assert layer.cache_info().misses == 1
    np.testing.assert_allclose(func.vmap(grad(deep))(np.array([w, w * 2]), np.array([x, x])),
                               [grad(plain)(w, x), grad(plain)(w * 2, x)])


@compile
def scaled(x, y=1.0, *, scale):
    return x * y * scale


class Scaling:
    scaled = compile(lambda self, x: x)

    @compile
    def method(self, x):
        return x


@pytest.mark.parametrize("method", ["explain", "plan", "graph"])
@pytest.mark.parametrize(("function", "args", "message"), [
    pytest.param(scaled, (), r"scaled\.{}: missing a required argument: 'x'\npass .*: scaled\.{}\(x, scale=scale\)$",
                 id="none"),
    pytest.param(scaled, (X, X, X), r": too many positional arguments\npass ", id="too many"),
    pytest.param(Scaling().method, (X,), r"missing .* 'x'\npass .*: Scaling\.method\.{}\(self, x\)$", id="method"),
    pytest.param(Scaling.scaled, (), r"\npass .*: compiled\.{}\(self, x\)$", id="lambda"),
])
def test_reports_name_the_call_to_write(function, args, message, method):
    with pytest.raises(DispatchTypeError, match=message.format(method, method)):
        getattr(function, method)(*args)


def test_methods_and_partial_functions():
    class Model:
        def __init__(self, weights):
            self.weights = weights

        @compile
        def __call__(self, x):
            return x * self.weights

    one, other = Model(X), Model(X + 1)
    for _ in range(2):
        check_same(one(X), X * X)
        check_same(other(X), X * (X + 1))
    assert repr(Model.__call__).startswith("<compiled test_methods_and_partial_functions.<locals>.Model.__call__>")


# --- when it compiles again ------------------------------------------------------------------------------------------

NAN = float("nan")
CHANGES = {
    "shape": (X, X[:1]),
    "axes": (X, X[0]),
    "dtype": (X, X.astype(np.float32)),
    "float to int": (X, X.astype(int)),
    "structure": ((X, X), [X, X]),
    "length": ([X], [X, X]),
    "keys": ({"a": X}, {"b": X}),
    "order of keys": ({"a": X, "b": X}, {"b": X, "a": X}),
    "class": (Pair(X, X), (X, X)),
    "context": (Box(X, 1), Box(X, 2)),
    "int": (1, 2),
    "bool or int": (True, 1),
    "int or float": (1, 1.0),
    "sign of zero": (0.0, -0.0),
    "signs in complex numbers": (complex(0.0, 0.0), complex(0.0, -0.0)),
    "float": (0.1, 0.2),
    "nan or not": (NAN, 1.0),
    "string": ("a", "b"),
    "bytes or string": (b"a", "a"),
    "None": (None, 0),
    "number or array": (1.0, np.array(1.0)),
    "slice": (slice(0, 1), slice(0, 2)),
    "slice of another kind": (slice(0, 1), slice(False, 1)),
    "function": (len, max),
    "enumeration": (Colour.RED, Colour.BLUE),
    "NumPy scalar": (np.float64(1), np.float32(1)),
}
SAME = {"values": (X, X + 1), "layout": (X, X.T.copy().T), "a Tensor": (X, Tensor(X)), "nan": (NAN, float("-nan")),
        "scalars": (np.float64(1), np.float64(2)), "a scalar Tensor": (np.float64(1), Tensor(np.ones(2))[0]),
        "large ints": (10**30, 10**29 * 10), "byte order": (X, X.astype(">f8")),
        "read-only": (X, np.broadcast_to(X[0], (2, 3))), "equal strings": ("text", "".join(["te", "xt"]))}


def described(value):
    """Return a result that shows what the function got."""
    return repr(type(value)), repr(value) if not hasattr(value, "shape") else (value.shape, value.dtype.str)


@backends
@together("change", CHANGES)
def test_it_compiles_again(change, backend):
    one, other = CHANGES[change]
    got = []
    compiled = compile(lambda x, y: (x * 2, got.append(described(y)))[0], backend=backend)
    for value in (one, other, one, other, one):
        check_same(compiled(X, value), X * 2)
    assert compiled.cache_info() == CacheInfo(3, 2, 2)
    is_tried = backend == "plan" and change in ("int", "float", "nan or not")    # as an argument of the plan
    assert len(got) == 2 + is_tried
    assert got[0] != got[1]
    report = compiled.explain(X, other)
    assert "compilation 1: the first call" in report
    assert "compilation 2: " in report


@backends
@pytest.mark.parametrize("name", SAME)
def test_it_does_not_compile_again(name, backend):
    calls = []
    compiled = compile(lambda x: (calls.append(1), x)[1], backend=backend)
    for value in SAME[name]:
        compiled(value)
    assert compiled.cache_info() == CacheInfo(1, 1, 1)
    assert len(calls) == 1


def test_keywords():
    compiled = compile(lambda x, y=None, *, n=2, **more: (x * n - (0 if y is None else y), sorted(more)))
    check_same(compiled(X), (X * 2 - 0, []))
    check_same(compiled(X, X[0], n=3), (X * 3 - X[0], []))
    check_same(compiled(n=3, y=X[0], x=X), (X * 3 - X[0], []))
    check_same(compiled(x=X[0], y=X, n=3), (X[0] * 3 - X, []))
    check_same(compiled(y=X, x=X[0], n=3), (X[0] * 3 - X, []))
    check_same(compiled(X, b=X, a=1), (X * 2 - 0, ["a", "b"]))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        compiled()


def test_static_arguments():
    seen = []

    def function(settings, x, last):
        seen.append((settings, last))
        return x * len(settings) * last

    compiled = compile(function, static_argnums=(0, -1))
    for settings, last in (((1, 2), 3), ((1, 2), 3), ((1, 3), 3), ((1, 2), 4), (frozenset({1}), 4)):
        check_same(compiled(settings, X, last), X * len(settings) * last)
    assert seen == [((1, 2), 3), ((1, 3), 3), ((1, 2), 4), (frozenset({1}), 4)]
    with pytest.raises(CompilationError, match=r"an argument is a list, expected an array or a hashable value\npass"):
        compiled([1, 2], X, 3)
    with pytest.raises(CompilationError, match=r"an argument is an ndarray"):
        compiled(X, X, 3)


def test_generators_are_told_apart_and_draw_anew():
    compiled = compile(lambda x, generator: x + ops.np.random_normal(generator, size=(2, 3)))
    one, other = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(3):
        check_same(compiled(X, one), X + other.normal(size=(2, 3)))
    third, fourth = np.random.default_rng(1), np.random.default_rng(1)
    check_same(compiled(X, third), X + fourth.normal(size=(2, 3)))
    assert compiled.cache_info().currsize == 2


def test_generators_in_functions_that_write():
    def function(x, generator):
        y = ops.np.copy(x)
        y[0] += ops.np.random_normal(generator, size=(3,))
        return y

    one, other = np.random.default_rng(0), np.random.default_rng(0)
    compiled = compile(function)
    for _ in range(3):
        check_same(compiled(X, one), function(X, other))


def test_many_variants_are_worth_a_warning():
    compiled = compile(lambda x, n: x * int(n))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(8):
            compiled(X, n)
    with pytest.warns(PerformanceWarning, match=r"compiled 9 times, this time because argument 1 is 8 and was 7 \(at .*"
                                                r"test_functions\.py:\d+\)\npass what changes as an array argument"):
        compiled(X, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(X, 8)


# --- the ambient state -----------------------------------------------------------------------------------------------


def test_the_device_is_numpys_whatever_the_ambient_one():
    function = lambda x: x + ops.np.ones(3) * ops.np.arange(3.0)      # noqa: E731
    before, inside = compile(function), compile(function)
    check_same(before(X), X + np.arange(3.0))
    with default_backend("Meta"):
        check_same(inside(X), X + np.arange(3.0))
        check_same(before(X), X + np.arange(3.0))
    check_same(inside(X), X + np.arange(3.0))


def test_arrays_without_data_give_arrays_without_data():
    compiled = compile(lambda x: (x.T, x.sum(0)))
    found = compiled(MetaArray((2, 3), np.float64))
    assert [(type(value), value.shape) for value in found] == [(MetaArray, (3, 2)), (MetaArray, (3,))]


ERRSTATES = {"divide": 0, "invalid": 0, "over": 0, "under": 0}


def divided(x):
    return ops.np.divide(x, 0.0)


class Noted:
    """A log for errors of NumPy."""

    def __init__(self):
        self.messages = []

    def write(self, message):
        self.messages.append(message)


@pytest.mark.parametrize("size", [3, 100_000], ids=["small", "in blocks"])
def test_floating_point_errors_are_reported_as_errstate_says_at_run_time(size):
    x = np.ones(size)
    compiled = compile(lambda x: ops.np.exp(divided(x)) + 1)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)
    line = divided.__code__.co_firstlineno + 1
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=rf"^divide by zero encountered in divide \(at .*\.py:{line}\)$"):
            compiled(x)
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match=rf"in divide \(at .*py:{line}\)"):
            compiled(x)
        note = Noted()
        with np.errstate(divide="log", call=note):
            compiled(x)
        assert len(note.messages) == 1      # of which NumPy keeps a hundred characters
        assert note.messages[0].startswith("Warning: divide by zero encountered in divide (at ")
    with np.errstate(divide="ignore"):
        compiled(x)


@pytest.mark.parametrize(("function", "x", "kind", "name"), [
    (lambda x: ops.np.log(x - 5) + 1, np.ones(3), "invalid value", "log"),
    (lambda x: ops.np.exp(x * 1000), np.ones(3), "overflow", "exp"),
    (lambda x: x // 0, np.ones(3, int), "divide by zero", "floor_divide"),
    (lambda x: ops.np.astype(x * np.nan, np.dtype(int)), np.ones(3), "invalid value", "cast"),
    (lambda x: ops.np.sum(x * 1e308), np.ones(3), "overflow", "reduce"),
    (lambda x: ops.np.multiply(np.float64(1e308), 10.0) + x, np.ones(3), "overflow", "multiply"),
], ids=["log", "exp", "integers", "cast", "reduce", "constants"])
def test_each_kind_of_floating_point_error(function, x, kind, name):
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=kind):
        function(Tensor(x))
    compiled = compile(function)
    for _ in range(2):
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=f"{kind} encountered in .*{name}"):
            compiled(x)
        with np.errstate(all="ignore"):
            check_same(compiled(x), raw(function(Tensor(x))))


def test_no_error_of_a_branch_that_is_not_chosen_by_value():
    compiled = compile(lambda x: ops.np.where(x > 0, ops.np.log(x), 0.0))
    with np.errstate(all="raise"):
        compiled(np.ones(3))
        with pytest.raises(FloatingPointError, match=r"divide by zero encountered in log"):
            compiled(np.zeros(3))


# --- donated arguments -----------------------------------------------------------------------------------------------


def test_donated_memory_is_taken():
    compiled = compile(lambda x, y: (x * 2 + y, y + 1), donate=0)
    x, y = X.copy(), X.copy()
    compiled(X, X)
    found = compiled(x, y)
    assert found[0] is x
    check_same(found, (X * 2 + X, X + 1))
    check_same(y, X)
    tensor = Tensor(X.copy())
    found = compiled(tensor, y)
    assert np.shares_memory(found[0].array, tensor.array)
    check_same(found, (X * 2 + X, X + 1))


NOT_TAKEN = {
    "another argument has the memory": lambda compiled, x: compiled(x, x),
    "another argument is a view of it": lambda compiled, x: compiled(x, x[:1]),
    "it is read-only": lambda compiled, x: compiled(frozen(x), X),
    "it is not in C order": lambda compiled, x: compiled(np.asfortranarray(x), X),
    "of another byte order": lambda compiled, x: compiled(x.astype(">f8"), X),
}


def frozen(x):
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_donated_memory_is_not_taken(name):
    compiled = compile(lambda x, y: x * 2 + y, donate=0)
    for _ in range(3):
        x = X.copy()
        found = NOT_TAKEN[name](compiled, x)
        assert not np.may_share_memory(found, x)
        check_same(x, X)
        check_same(found, X * 2 + (X[:1] if name == "another argument is a view of it" else X))


@pytest.mark.parametrize("size", [2, 30_000], ids=["small", "in blocks"])
@pytest.mark.parametrize("donate", [0, (0, 1), -1], ids=str)
@together("function", [
    lambda x, y: x + x[::-1], lambda x, y: ops.np.flip(x), lambda x, y: (x + 1, x * 2), lambda x, y: (x[::-1] + 1, x),
    lambda x, y: ops.np.cumsum(x, 0) + x.T.T, lambda x, y: ops.np.take(x, np.array([1, 0]), 0),
    lambda x, y: x - x.sum(), lambda x, y: (x * 2, x.sum()), lambda x, y: (ops.np.exp(x), x * y),
    lambda x, y: ops.np.sort(x, 0)[::-1] + x, lambda x, y: (ops.np.astype(x, np.dtype(np.float32)), x[0]),
    lambda x, y: x @ (x.T @ y), lambda x, y: ops.np.concatenate([x[1:], x[:1]]),
    lambda x, y: ops.np.where(x > 0, y, x), lambda x, y: x.T[::-1].T + x, lambda x, y: (y * 2, x + 1, x - 1),
], ids=range(16))
def test_values_are_right_whatever_is_donated(function, size, donate):
    x, y = np.random.default_rng(1).standard_normal((2, size, 3))
    if size > 2:
        x, y = x[:, :2].copy(), y[:, :2].copy()
        if "T @" in str(function.__code__.co_names):
            x, y = x[:100].copy(), y[:100].copy()
    expected = function(Tensor(x), Tensor(y))
    compiled = compile(function, donate=donate)
    compiled(x, y)
    for _ in range(2):
        check_same(compiled(x.copy(), y.copy()), expected)


def test_nothing_is_donated_under_transforms_or_on_the_tape():
    compiled = compile(lambda x: x * 2, donate=0)
    compiled(X)
    x = X.copy()
    func.vmap(compiled)(x)
    func.grad(lambda x: compiled(x).sum())(x)
    leaf = Tensor(x, requires_grad=True)
    compiled(leaf).sum().backward()
    check_same(x, X)
    np.testing.assert_array_equal(leaf.grad.numpy(), np.full_like(X, 2))


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "options", "message"), [
    ((3,), {}, r"compile: f is an int, expected a function\nwrite compile\(f\)\(x\)"),
    ((None,), {}, r"f is a NoneType"),
    ((len,), {"threads": -1}, r"threads is -1, expected None or an int from 0 to 64\n"),
    ((len,), {"threads": 65}, r"threads is 65"),
    ((len,), {"threads": 1.0}, r"threads is 1\.0"),
    ((len,), {"threads": True}, r"threads is True"),
    ((len,), {"threads": "2"}, r"threads is '2'"),
    ((len,), {"static_argnums": None}, r"static_argnums is None, expected positions of arguments\nwrite static_"),
    ((len,), {"static_argnums": 1.5}, r"static_argnums is 1\.5"),
    ((len,), {"static_argnums": "01"}, r"static_argnums is '01'"),
    ((len,), {"static_argnums": (0, True)}, r"static_argnums is \(0, True\)"),
    ((len,), {"static_argnums": False}, r"static_argnums is False"),
    ((len,), {"donate": None}, r"donate is None, expected positions of arguments\nwrite donate="),
    ((len,), {"donate": {0}}, r"donate is \{0\}"),
    ((len,), {"backend": None}, r"backend is None, expected the name of a compiler\nwrite backend='plan'"),
    ((len,), {"backend": ["plan"]}, r"backend is \['plan'\]"),
], ids=str)
def test_wrong_parameters(arguments, options, message):
    with pytest.raises(DispatchTypeError, match=message):
        compile(*arguments, **options)


@pytest.mark.parametrize("name", ["donate", "static_argnums"])
@pytest.mark.parametrize("positions", [2, -3, (0, 2)])
def test_positions_that_a_function_does_not_have(name, positions):
    with pytest.raises(DispatchTypeError, match=rf"compile: {name} is .*, but f has the parameters x, y\ncount "):
        compile(lambda x, y: x, **{name: positions})
    compile(lambda x, *rest: x, **{name: positions})        # which has as many as it gets


def test_an_unknown_backend():
    with pytest.raises(CompilationError, match=r"backend is 'plam', expected one of .*'plan', 'python'\nname one of"):
        compile(len, backend="plam")


def test_parameters_are_keywords():
    with pytest.raises(TypeError):
        compile(len, "plan")


def branches(x):
    y = x * 2
    if y.sum() > 0:
        return y
    return -y


REFUSED = {
    "a branch": (branches, DataDependentError, 2),
    "float()": (lambda x: x * float(x[0, 0]), DataDependentError, 0),
    "a loop": (lambda x: sum(range(int(x[0, 0]))), DataDependentError, 0),
    "a mask": (lambda x: x[x > 0], DataDependentError, 0),
    "NumPy": (lambda x: np.sin(np.asarray(x)), DataDependentError, 0),
    "nonzero": (lambda x: ops.np.sum(x[ops.np.greater(x, 0)]), DataDependentError, 0),
    "printing": (lambda x: print(x.tolist()), DataDependentError, 0),
}


@backends
@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_data_is_refused_with_the_line(name, backend):
    function, error, offset = REFUSED[name]
    with pytest.raises(error) as caught:
        compile(function, backend=backend)(Tensor(X))
    line = function.__code__.co_firstlineno + offset
    assert f"{__file__}:{line}" in str(caught.value) or "mask" in str(caught.value) or "numpy" in str(caught.value)


@pytest.mark.parametrize("write", [
    lambda x: ops.np.add_(x, 1), lambda x: ops.np.add(x, 1, out=x), lambda x: ops.np.setitem_(x, 0, 1),
    lambda x: ops.np.multiply_(x[0], 2), lambda x: ops.np.copy(ops.np.add_(ops.np.transpose(x), 1)),
])
def test_writes_to_arguments_are_refused(write):
    x = X.copy()
    for given in (x, Tensor(x)):
        with pytest.raises(CompilationError, match=r"writes to its argument x, .*\nreturn the new value, or write to"):
            compile(lambda x: (write(x), x * 2)[1])(given)
    check_same(x, X)


@pytest.mark.parametrize("value", [
    np.array([None, 1]), np.array(["text"], np.dtypes.StringDType()), np.zeros(2, [("a", object)]),
], ids=["objects", "strings", "records"])
def test_arrays_of_objects_are_refused(value):
    with pytest.raises(CompilationError, match=r"argument x\w* has dtype .*, expected one without objects\n"):
        compile(lambda x: x)(value)
    with pytest.raises(CompilationError):
        compile(lambda x: ops.np.concatenate([ops.np.reshape(value, -1), ops.np.reshape(value, -1)]))(X)


def test_errors_of_the_function_are_its_own():
    def wrong(x):
        raise ZeroDivisionError("of the function")

    compiled = compile(wrong)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="of the function"):
            compiled(X)
    assert compiled.cache_info() == CacheInfo(0, 0, 0)


def test_unhashable_arguments():
    with pytest.raises(CompilationError, match=r"an argument is a set, expected an array or a hashable value\npass"):
        compile(lambda x, s: x)(X, {1})
    with pytest.raises(CompilationError, match=r"an argument is a bytearray"):
        compile(lambda x, s: x)(X, bytearray(b"1"))


def test_arrays_of_other_backends_are_refused(request):
    array = request.getfixturevalue("backends").ArrayA(X)
    with pytest.raises((DispatchTypeError, CompilationError)):
        compile(lambda x: ops.np.multiply(x, 2))(array)


# --- steps that fail -------------------------------------------------------------------------------------------------


@pytest.fixture
def operator(fresh, define):
    """Provide an operator that does what `operator.act` says before it doubles its argument."""
    def kernel(x):
        make.act()
        return x * 2

    found = define(fresh, "double(Tensor x) -> Tensor", CPU=kernel, Meta=lambda x: MetaArray(x.shape, x.dtype))

    def make(x):
        return found(x)

    make.act = lambda: None
    return make


def failing():
    raise OSError("in the step")


@pytest.mark.parametrize("size", [3, 100_000], ids=["small", "large"])
def test_an_exception_in_a_step_changes_nothing(operator, size):
    x = np.random.default_rng(0).standard_normal(size)
    compiled = compile(lambda x: operator(x + 1) * 3)
    expected = (x + 1) * 2 * 3
    check_same(compiled(x), expected)
    before = x.copy()
    for _ in range(3):
        operator.act = failing
        with pytest.raises(OSError, match="in the step") as caught:
            compiled(x)
        assert any("double" in note and "test_functions.py" in note for note in caught.value.__notes__)
        operator.act = lambda: None
        check_same(x, before)
        check_same(compiled(x), expected)


def test_a_step_that_calls_the_function_again(operator):
    compiled = compile(lambda x: operator(x + 1) * 3 + ops.np.exp(x))
    expected = (X + 1) * 6 + np.exp(X)
    compiled(X)
    depth = [0]

    def again():
        if depth[0] < 5:
            depth[0] += 1
            x = X + depth[0]
            check_same(compiled(x), (x + 1) * 6 + np.exp(x))

    operator.act = again
    check_same(compiled(X), expected)
    assert depth == [5]


def test_a_kernel_that_keeps_its_arguments(operator, fresh, define):
    kept = []

    def kernel(x):
        kept.append(x)
        return x * 2

    keep = define(fresh, "keep(Tensor x) -> Tensor", CPU=kernel, Meta=lambda x: MetaArray(x.shape, x.dtype))
    compiled = compile(lambda x: keep(x + 1) + keep(x * 5))
    for i in range(4):
        compiled(X + i)
    for i in range(4):
        np.testing.assert_array_equal(kept[2 * i], X + i + 1)
        np.testing.assert_array_equal(kept[2 * i + 1], (X + i) * 5)


def test_a_kernel_that_returns_another_shape_later(fresh, define):
    shapes = [(2, 3), (3,)]
    change = define(fresh, "change(Tensor x) -> Tensor", CPU=lambda x: np.ones(shapes[0]),
                    Meta=lambda x: MetaArray((2, 3), np.float64))
    compiled = compile(lambda x: change(x) + 1)
    check_same(compiled(X), np.full((2, 3), 2.0))
    shapes.reverse()
    with pytest.raises(CompilationError, match=r"change returned float64\[3\], expected float64\[2, 3\], as in the "
                                               r"trace\nreturn the same"):
        compiled(X)


def test_kernels_that_are_registered_later_are_not_overlooked(fresh, define):
    op = define(fresh, "late(Tensor x) -> Tensor", CPU=lambda x: x * 2, Meta=lambda x: MetaArray(x.shape, x.dtype))
    compiled = compile(lambda x: op(x))
    check_same(compiled(X), X * 2)
    with pytest.warns(OverrideWarning):
        handle = fresh.impl("late", lambda x: x * 3, "CPU")
    with handle:
        check_same(compiled(X), X * 3)
    check_same(compiled(X), X * 2)


@pytest.fixture
def interrupts():
    """Let signals interrupt, even if the process was started in the background, where shells ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.parametrize("name", ["blocks", "a while loop", "a scan"])
def test_a_long_plan_can_be_interrupted(name, interrupts):
    from pydispatch.higher_order import scan, while_loop
    x = np.linspace(0, 1, 1 << 22)

    def blocks(x):
        for _ in range(60):
            x = ops.np.sin(x) + 0.5
        return x

    functions = {
        "blocks": (blocks, x),
        "a while loop": (lambda x: while_loop(
            lambda i, x: i < 1e9, lambda i, x: (i + 1, x * 0.5), (ops.np.zeros(()), x)), np.ones(3)),
        "a scan": (lambda x: scan(lambda c, _: (ops.np.sin(c), c[0] * 2), x, None, length=10**8)[0], np.ones(3)),
    }
    function, argument = functions[name]
    compiled = compile(function)
    compiled.plan(argument)         # which compiles
    before = argument.copy()
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(argument)
    timer.join()
    check_same(argument, before)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_an_interrupted_plan_stops_on_all_threads(n_threads, interrupts):
    def f(x):
        for _ in range(100):
            x = ops.np.sin(x) + 0.5
        return x

    def interrupt():
        while x[0, 0] == 0.1 and not over.is_set():
            time.sleep(0.001)
        signal.raise_signal(signal.SIGINT)

    x = np.full((n_threads, 1 << 19), 0.1)
    compiled = compile(f, threads=n_threads, donate=0)
    compiled(x.copy())          # which compiles, later calls write to the argument
    over = threading.Event()
    interrupter = threading.Thread(target=interrupt)

    def run():
        interrupter.start()
        compiled(x)
        over.set()
        interrupter.join()

    with pytest.raises(KeyboardInterrupt):
        run()
    interrupter.join()
    assert x[0, 0] != 0.1
    assert np.all(x[:, -1 << 14:] == 0.1)


def test_other_threads_run_during_a_long_loop():
    from pydispatch.higher_order import while_loop
    compiled = compile(
        lambda x, n: while_loop(lambda i, x: i < n, lambda i, x: (i + 1, ops.np.sin(x)), (ops.np.zeros(()), x))[1])
    compiled(X, np.array(1.0))
    ticks = []

    def tick():
        while not done.is_set():
            ticks.append(None)
            time.sleep(0.001)

    def ticks_of_a_call():
        before = len(ticks)
        compiled(X, np.array(1e6))
        return len(ticks) - before

    done = threading.Event()
    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assert any(ticks_of_a_call() > 10 for _ in range(20))       # on a busy machine not in every call
    finally:
        done.set()
        thread.join()


# --- what it keeps ---------------------------------------------------------------------------------------------------


@backends
def test_no_reference_to_arguments_or_results_is_kept(backend):
    compiled = compile(lambda x, y: (x @ y.T, ops.np.sort(x), x), backend=backend)
    for make in (np.array, Tensor):
        for _ in range(3):
            x, y = make(X.copy()), make(X + 1)
            counts = sys.getrefcount(x), sys.getrefcount(y)
            results = compiled(x, y)
            assert (sys.getrefcount(x), sys.getrefcount(y)) == counts
            watched = [weakref.ref(value) for value in (x, y, *results)]
            del x, y, results
            gc.collect()
            assert not any(reference() for reference in watched)


def test_a_function_goes_with_its_plans():
    def function(x):
        return x * 2

    compiled = compile(function)
    compiled(X)
    references = weakref.ref(function), weakref.ref(compiled)
    gc.disable()
    try:
        del compiled
        assert references[1]() is None      # its memory is free at once
    finally:
        gc.enable()
    del function
    gc.collect()
    assert references[0]() is None


@backends
def test_calls_leave_no_memory_behind(backend):
    from tests.properties.test_leaks import stays_flat
    compiled = compile(lambda x, d, n: ({"a": x * n, "b": [d["y"] @ x.T]}, (n, None)), backend=backend)
    wrong = compile(lambda x: ops.np.take(x, np.array([9])), backend=backend)
    x, y = X.copy(), X + 1
    tensor, leaf = Tensor(x), Tensor(x, requires_grad=True)
    watched = {"x": x, "y": y, "tensor": tensor, "compiled": compiled}
    stays_flat(lambda: compiled(x, {"y": y}, 2), watched, 1000)
    stays_flat(lambda: compiled(tensor, {"y": y}, 2), watched, 1000)
    stays_flat(lambda: compiled(leaf, {"y": y}, 2)[0]["a"].sum().backward(), watched, 200)
    stays_flat(lambda: compiled(x, {"z": y}, {1}), watched, 500)
    stays_flat(lambda: wrong(x), watched, 500)
    stays_flat(lambda: func.grad(lambda x: compiled(x, {"y": y}, 2)[0]["a"].sum())(x), watched, 200)


def test_compiling_leaves_no_memory_behind():
    from tests.properties.test_leaks import stays_flat
    stays_flat(lambda: compile(lambda x: ops.np.sin(x) * 2 + ops.np.sort(x))(X), {"X": X}, 60)
    compiled = compile(lambda x: ops.np.sin(x) * 2)

    def again():
        compiled.cache_clear()
        compiled(X)

    stays_flat(again, {"X": X}, 100)


# --- reports, pickles, threads ---------------------------------------------------------------------------------------


def test_cache_info_and_clear():
    compiled = compile(lambda x: x * 2)
    assert compiled.cache_info() == CacheInfo(0, 0, 0)
    compiled(X)
    compiled(x=X)
    compiled(X[0])
    compiled(X)
    assert compiled.cache_info() == CacheInfo(2 - 1, 3, 3)
    compiled.cache_clear()
    assert compiled.cache_info() == CacheInfo(0, 0, 0)
    compiled(X)
    assert compiled.cache_info() == CacheInfo(0, 1, 1)


def test_it_wears_the_functions_name():
    def function(x: int) -> int:
        """Return what it does."""
        return x

    compiled = compile(function)
    assert (compiled.__name__, compiled.__doc__, compiled.__wrapped__) == ("function", "Return what it does.", function)
    assert repr(compiled) == "<compiled test_it_wears_the_functions_name.<locals>.function>"


@compile
def decorated(x, y=2.0):
    return {"sum": x + y, "product": [ops.np.sort(x * y)]}


def undecorated(x, n=2):
    return (x * n + 1, ops.np.cumsum(x))


def test_a_decorated_function_pickles_by_name():
    assert pickle.loads(pickle.dumps(decorated)) is decorated


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@backends
def test_pickles(backend, protocol):
    compiled = compile(undecorated, backend=backend, threads=2, donate=-1, static_argnums=1)
    expected = undecorated(X, 3)
    check_same(compiled(X, 3), expected)
    copy = pickle.loads(pickle.dumps(compiled, protocol))
    assert copy.cache_info() == CacheInfo(0, 0, 1)
    assert (copy.backend, copy.static_argnums, copy.donate) == (compiled.backend, (1,), (-1,))
    for _ in range(2):
        check_same(copy(X, 3), expected)
    assert copy.cache_info() == CacheInfo(2, 0, 1)
    check_same(copy(X[0], 3), undecorated(X[0], 3))


def test_a_pickle_runs_its_plan_in_the_core_again():
    copy = pickle.loads(pickle.dumps(warmed(compile(undecorated))))
    copy(X)
    assert len(copy.variants) == 1
    copy(X)
    assert copy.hits == 1


def warmed(compiled):
    compiled(X)
    return compiled


def test_plans_and_graphs_pickle():
    plan = compile(undecorated)
    graph = pickle.loads(pickle.dumps(plan.graph(X)))
    check_same(tuple(graph(X)), undecorated(X))
    plan(X)
    found = pickle.loads(pickle.dumps(plan.variants[0].plan))
    check_same(found.run(X), undecorated(X))
    with pytest.raises(TypeError, match="the plan takes 1 arrays, found 2"):
        found.run(X, X)
    for wrong in (X[0], X.astype(int), "text", Tensor(X)):
        with pytest.raises(TypeError, match=r"(?s)input 0 of the plan is .*, expected an array"):
            found.run(wrong)


@backends
def test_threads_share_a_function(backend):
    compiled = compile(lambda x, n: (ops.np.exp(x) * n + ops.np.sort(x), (x @ x.T).sum()), backend=backend)

    def work(seed):
        generator = np.random.default_rng(seed)
        for _ in range(60):
            x = generator.standard_normal((generator.integers(1, 4), 3))
            check_same(compiled(x, 2.0), (np.exp(x) * 2.0 + np.sort(x), np.asarray((x @ x.T).sum())))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))
    info = compiled.cache_info()
    assert (info.misses, info.currsize, info.hits) == (3, 3, 16 * 60 - 3)


def test_objects_of_other_classes_are_values_or_refused():
    with pytest.raises(CompilationError, match="Counter, expected an array or a hashable value"):
        compile(lambda d: d["x"])(Counter(x=X))


@backends
def test_a_cast_for_a_step_that_cannot_be_lowered_serves_no_other_step(backend):
    def of_two(i, half):
        i = -i
        return i * half, ops.np.fabs(i)

    arguments = np.array([1, -2]), np.ones((2, 2), np.float16)
    for found, expected in zip(compile(of_two, backend=backend)(*arguments), of_two(*arguments), strict=True):
        check_same(found, expected)


@backends
def test_calls_that_nothing_uses_raise_no_errors(backend):
    def unused(x, i):
        ops.np.take(x, i)
        return x + 1.0

    check_same(compile(unused, backend=backend)(X, np.array([99])), X + 1.0)
    used = compile(lambda x, i: ops.np.take(x, i) + 1.0, backend=backend)
    with pytest.raises(IndexError):
        used(X, np.array([99]))


def test_positions_that_are_out_of_range_for_made_up_data():
    def counted(i):
        counts = ops.np.copy(i)
        ops.np.setitem_(ops.np.reshape(counts, -1), 0, 5)
        return ops.np.take(i, counts - 5)

    i = np.array([1, 6, 5])
    np.testing.assert_array_equal(counted(i), [1, 6, 1])
    check_same(compile(counted)(i), np.array([1, 6, 1]))


def through_a_reshape(m):
    y = m.T * 1.0
    y.reshape(-1)[0] = 9.0
    y.ravel()[1::3] = 5.0
    return y


USES_OF_REGULAR_MATRICES = {
    "inv": lambda y: face.linalg.inv(y), "solve": lambda y: face.linalg.solve(y, y @ y),
    "svd": lambda y: face.linalg.svd(y)[1], "det": lambda y: face.linalg.det(y),
    "cholesky": lambda y: face.linalg.cholesky(y @ y.T), "eigvalsh": lambda y: face.linalg.eigvalsh(y + y.T),
    "take": lambda y: face.take(np.arange(10.0), 2 * face.floor(y).astype(int) - 13) + y,
    "scan": lambda y: scan(lambda c, x: (face.linalg.inv(c + face.eye(3)), c @ x), y, y)[1],
}


@pytest.mark.parametrize("name", USES_OF_REGULAR_MATRICES)
def test_what_fails_on_made_up_data(name):
    m = np.array([[4.0, 3.0, 2.0], [2.0, 8.0, 3.0], [5.0, 2.0, 7.0]])
    use = USES_OF_REGULAR_MATRICES[name]
    np.testing.assert_allclose(compile(lambda m: use(through_a_reshape(m)))(m), use(through_a_reshape(m)), rtol=1e-12)
    if name != "take":
        loss = lambda m: use(through_a_reshape(m)).sum()  # noqa: E731
        np.testing.assert_allclose(compile(grad(loss))(m), grad(loss)(m), rtol=1e-9, atol=1e-12)


SCALARS = {
    "float32": lambda x: np.float32(2), "sum": lambda x: np.sum(np.ones(3)), "bool": lambda x: np.bool_(True),
    "in a tuple": lambda x: (x * 1.0, np.int8(3)), "in a dict": lambda x: {"a": np.complex64(1j), "b": x + 1.0},
    "integer": lambda x: np.int64(x.shape[0]),
}


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_of_numpy_are_returned_as_they_are(name):
    for x in (X, X, Tensor(X)):
        found, expected = tree_leaves(compile(SCALARS[name])(x)), tree_leaves(SCALARS[name](x))
        assert list(map(type, found)) == list(map(type, expected))
        assert [str(np.asarray(one)) for one in found] == [str(np.asarray(other)) for other in expected]
        assert [one.dtype for one in found] == [other.dtype for other in expected]


@pytest.mark.parametrize("positions", [np.array([-1, 0]), np.array([-3, -2]), [-1], -2, (slice(None), -1)], ids=str)
@backends
def test_captured_positions_that_count_from_the_end(positions, backend):
    def written(x):
        y = x * 1.0
        y[positions] = 7.0
        y.reshape(-1)[np.array([-2])] += x[0, 0]
        return y, x[positions] * y[positions]

    m = np.arange(9.0).reshape(3, 3)
    check_same(compile(written, backend=backend)(m), written(m))
    check_same(compile(grad(lambda m: written(m)[1].sum()), backend=backend)(m), grad(lambda m: written(m)[1].sum())(m))


# --- results without axes have the types of eager calls ---------------------------------------------------------------


GENERATOR = face.random.default_rng(7)
WITHOUT_AXES = {
    "while_loop": lambda x: while_loop(lambda c: c < 5, lambda c: c + 1, (x,)),
    "while_loop of an array": lambda x: while_loop(lambda c: c < 5, lambda c: face.array(c + 1), (x,)),
    "while_loop of two": lambda x: while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, c * 2), (0, x)),
    "scan": lambda x: scan(lambda c, u: (c + u, c * 2), x, np.ones(3)),
    "scan of an array": lambda x: scan(lambda c, u: (face.array(c + u), c * 2), x, np.ones(3)),
    "scan of nothing": lambda x: scan(lambda c, u: (c + u, c * 2), x, np.ones(0)),
    "cond": lambda x: cond(face.sum(x) > 0, lambda c: c * 2, lambda c: c * 3, (x,)),
    "cond of an array": lambda x: cond(face.sum(x) > 0, lambda c: face.array(c * 2), lambda c: face.array(c), (x,)),
    "sum": lambda x: (face.sum(x), {"a": face.array(x), "b": [x * 2]}),
    "normal": lambda x: GENERATOR.normal(),
    "normal around": lambda x: GENERATOR.normal(x),
    "choice": lambda x: (GENERATOR.choice(5), x * 2, GENERATOR.normal(size=2)),
    "integers": lambda x: GENERATOR.integers(5),
    "poisson": lambda x: [GENERATOR.poisson(3.0), GENERATOR.random(), GENERATOR.standard_normal()],
    "sum of a draw": lambda x: GENERATOR.normal() + x,
}
WAYS_WITHOUT_AXES = {
    "plan": compile, "python": lambda f: compile(f, backend="python"), "nested": lambda f: compile(compile(f)),
    "functionalize": func.functionalize, "make_fx": lambda f: lambda x: make_fx(f)(x)(x),
    "jvp": lambda f: lambda x: func.jvp(f, (x,), (x,))[0], "linearize": lambda f: lambda x: func.linearize(f, x)[0],
}


@pytest.mark.parametrize("name", WITHOUT_AXES)
@together("way", WAYS_WITHOUT_AXES)
def test_results_without_axes_are_what_they_are_eagerly(name, way):
    f = WITHOUT_AXES[name]
    draws = name in ("normal", "normal around", "choice", "integers", "poisson", "sum of a draw")
    if way in ("jvp", "linearize", "make_fx", "functionalize") and draws:
        return
    for x in (np.array(1.0), np.float64(1.0), Tensor(np.array(1.0)), Tensor(np.ones(1))[0]):
        if draws and isinstance(x, Tensor):
            continue        # what is computed for a Tensor is a Tensor
        run = WAYS_WITHOUT_AXES[way](f)
        expected = [(type(leaf), _core.is_scalar(leaf)) for leaf in tree_leaves(f(x))]
        for _ in range(3):      # the first call traces, the second runs the plan, the third one is recognized
            assert [(type(leaf), _core.is_scalar(leaf)) for leaf in tree_leaves(run(x))] == expected, type(x)


def test_a_proxy_of_a_dead_object_is_no_capture():
    class Owner:
        pass

    holder = [weakref.proxy(Owner())]
    compiled = compile(lambda x, rng: x * len(holder) + rng.random())
    rng = face.random.default_rng(0)
    np.testing.assert_array_equal(compiled(np.ones(2), rng), 1 + np.random.default_rng(0).random() * np.ones(2))


# --- what a compilation costs ----------------------------------------------------------------------------------------


def chain(n):
    def f(x):
        for _ in range(n):
            x = face.sin(x) * 1.01
        return x.sum()

    return lambda: compile(func.value_and_grad(f))(np.ones(4))


def wide(n):
    def f(x):
        total = 0.0
        for part in [face.sin(x * (i + 1.0)) for i in range(n)]:
            total = total + part
        return total.sum()

    return lambda: compile(func.value_and_grad(f))(np.ones(4))


def leaves(n, **options):
    tree = {f"leaf{i}": np.ones(3) for i in range(n)}
    return lambda: compile(lambda tree: {name: leaf * 2.0 for name, leaf in tree.items()}, **options)(tree)


def count_instructions(call):
    """Return how many instructions of Python's virtual machine a call takes."""
    total = 0

    def trace(frame, event, _):
        nonlocal total
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        total += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return total


@pytest.mark.parametrize("make", [
    chain, wide, leaves, pytest.param(lambda n: leaves(n, donate=0), id="donated leaves")])
def test_a_compilation_is_linear_in_the_program(make):
    # All but the loops inside of C functions is counted.
    make(3)()
    few, many = count_instructions(make(50)), count_instructions(make(200))
    assert many < 4.2 * few


@pytest.mark.parametrize("seed", range(20))
def test_inputs_that_share_memory_are_not_overwritten(seed):
    # The oracle is `numpy.shares_memory` of each pair.
    random = np.random.default_rng(seed)
    memory = np.zeros(60)
    given = {}
    for i in range(12):
        start = random.integers(40)
        given[f"x{i}"] = memory[start:start + 4] if random.random() < 0.5 else np.zeros(4)
        given[f"x{i}"].flags.writeable = random.random() < 0.8
    compiled = compile(lambda tree: {name: leaf + 1.0 for name, leaf in tree.items()}, donate=0)
    compiled({name: np.zeros(4) for name in given})
    results = compiled(given)
    for name, array in given.items():
        apart = not any(np.shares_memory(array, other) for key, other in given.items() if key != name)
        assert (results[name] is array) == (apart and array.flags.writeable)


def test_the_garbage_collector_is_put_back_by_the_last_of_several_compilations() -> None:
    assert gc.isenabled()
    with GarbageKept():
        inner = GarbageKept()
        inner.__enter__()
    assert not gc.isenabled()       # another thread still compiles
    inner.__exit__()
    assert gc.isenabled()
    gc.disable()
    try:
        with GarbageKept():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
