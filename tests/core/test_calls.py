"""The call path: binding, keys, kernels of every convention, results, redispatch."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
from array import array
from collections import deque, namedtuple

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from pydispatch import (
    DispatchKey,
    DispatchKeySet,
    DispatchMode,
    Tensor,
    _core,
    autograd,
    below_autograd,
    default_backend,
    exclude_keys,
    force_keys,
    func,
    include_keys,
    library,
    ops,
)
from pydispatch.backends import MetaArray
from pydispatch.compat import custom_ops
from pydispatch.exceptions import (
    DispatchTypeError,
    NoKernelError,
    OperatorNotFoundError,
    OverrideWarning,
    PerformanceWarning,
    RegistrationError,
    StaleOperatorError,
    UnknownKeyError,
)
from pydispatch.library import (
    Library,
    Stack,
    custom_op,
    fallthrough_kernel,
    get_kernel,
    register_fake,
    register_opaque_type,
    register_pydispatch,
)
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import FakeMode, FakeTensor, make_fx
from pydispatch.tree import register_pytree_node, tree_map
from tests.ids import without_address

X = np.arange(3.0)
X.flags.writeable = False
KEYS = DispatchKeySet


def given(*args, **kwargs):
    return args, kwargs


def typed(value):
    """Return a value with the type of every number in it, so that 1, 1.0 and True differ. Arrays by identity."""
    if isinstance(value, (tuple, list)):
        return tuple(map(typed, value))
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return (type(value), id(value) if isinstance(value, (np.ndarray, Tensor)) else value)


# --- binding ------------------------------------------------------------------------------------------------

WIDE = "wide(Tensor x, int a=1, float b=2.0, *, str s='hi', int k=3) -> ()"
BINDINGS = [
    ("positional", given(X, 5, 6.0), (X, 5, 6.0, "hi", 3)),
    ("defaults", given(X), (X, 1, 2.0, "hi", 3)),
    ("all by name", given(x=X, a=5, b=6.0, s="s", k=4), (X, 5, 6.0, "s", 4)),
    ("names in any order", given(k=4, b=6.0, x=X), (X, 1, 6.0, "hi", 4)),
    ("gap in the middle", given(X, b=6.0), (X, 1, 6.0, "hi", 3)),
    ("keyword-only", given(X, k=4), (X, 1, 2.0, "hi", 4)),
    ("converted", given(X, True, 6, k=np.int8(4)), (X, 1, 6.0, "hi", 4)),
]


@pytest.mark.parametrize(("spelling", "bound"), [row[1:] for row in BINDINGS], ids=[row[0] for row in BINDINGS])
def test_binding(fresh, define, spy, spelling, bound):
    args, kwargs = spelling
    kernel = spy()
    op = define(fresh, WIDE, CIA=kernel)
    assert typed(op.bind(args, kwargs)) == typed(bound)
    op(*args, **kwargs)
    assert [typed(call) for call in kernel.calls] == [typed(op.strip_defaults(bound))]


REFUSED_CALLS = [
    ("no argument", given(), ["'x'", "position 1", "missing"]),
    ("required one missing", given(X), ["'n'", "position 2", "missing"]),
    ("required keyword missing", given(X, 1), ["'k'", "missing"]),
    ("too many", given(X, 1, 2, 3, k=4), ["4 positional", "at most 3", "k"]),
    ("keyword-only by position", given(X, 1, 2, 3), ["4 positional", "at most 3"]),
    ("unknown name", given(X, 1, k=4, z=9), ["'z'", "9"]),
    ("by position and by name", given(X, 1, x=X, k=4), ["'x'", "twice"]),
    ("default by position and by name", given(X, 1, 2, a=2, k=4), ["'a'", "twice"]),
    ("wrong type", given(X, "one", k=4), ["'n'", "position 2", "expected int", "str 'one'"]),
    ("wrong type by name", given(X, 1, k="four"), ["'k'", "position 4", "expected int", "str 'four'"]),
    ("wrong type of a default", given(X, 1, 2.5, k=4), ["'a'", "position 3", "expected int", "float 2.5"]),
]


@pytest.mark.parametrize(
    ("spelling", "fragments"), [row[1:] for row in REFUSED_CALLS], ids=[row[0] for row in REFUSED_CALLS])
def test_refused_calls(fresh, define, token, spelling, fragments):
    op = define(fresh, "strict(Tensor x, int n, int a=2, *, int k) -> str", CIA=token("ran"))
    args, kwargs = spelling
    for call in (op, getattr(ops, fresh.namespace).strict, lambda *args, **kwargs: op.bind(args, kwargs)):
        with pytest.raises(DispatchTypeError) as caught:
            call(*args, **kwargs)
        for fragment in [*fragments, str(op.name), f"schema: {op.schema}"]:
            assert fragment in str(caught.value)


CONVERSIONS = [
    ("int", 3, 3), ("int", True, 1), ("int", np.int16(3), 3), ("int", np.bool_(True), 1),
    ("float", 2, 2.0), ("float", True, 1.0), ("float", np.float32(0.5), 0.5), ("float", np.int64(2), 2.0),
    ("bool", True, True), ("bool", 0, False), ("bool", np.bool_(True), True),
    ("str", "a", "a"), ("str", np.str_("a"), "a"),
    ("complex", 1, 1 + 0j), ("complex", 0.5, 0.5 + 0j), ("complex", np.complex64(1j), 1j),
    ("Scalar", 1, 1), ("Scalar", 1.0, 1.0), ("Scalar", True, True), ("Scalar", 1j, 1j),
    ("Scalar", np.float32(0.5), 0.5), ("Scalar", np.int8(1), 1), ("Scalar", np.bool_(False), False),
    ("int?", None, None), ("int?", 1, 1),
    ("float?", 1, 1.0),
    ("str?", None, None),
    ("int[]", [1, 2], (1, 2)), ("int[]", (1, True), (1, 1)), ("int[]", [], ()),
    ("int[]?", None, None),
    ("int[2]", 7, (7, 7)), ("int[2]", [1, 2, 3], (1, 2, 3)),
    ("int[2]?", 7, (7, 7)),
    ("float[2]", 1, (1.0, 1.0)),
    ("float[]", [1, 2.5], (1.0, 2.5)),
    ("int[][]", [[1], []], ((1,), ())),
    ("str[]", ["a"], ("a",)),
    ("(int, float)", [1, 2], (1, 2.0)),
    ("Dict(str, float)", {"a": 1}, {"a": 1.0}),
    ("Union(int, str)", "a", "a"), ("Union(int, str)", 1, 1),
    ("Union(float, int)", 1, 1),
    ("ScalarType", float, np.dtype("f8")), ("ScalarType", "int8", np.dtype("i1")),
    ("ScalarType?", None, None),
    ("Device", "cpu", "CPU"), ("Device", "META", "Meta"),
    ("Any", None, None), ("Any", "a", "a"), ("Any", 1, 1), ("Any", [1, [2]], (1, (2,))),
]


@pytest.mark.parametrize(("type_name", "value", "converted"), CONVERSIONS, ids=str)
@pytest.mark.parametrize("kw_only", [False, True], ids=["positional", "keyword"])
def test_conversion(fresh, define, spy, type_name, value, converted, kw_only):
    kernel = spy()
    op = define(fresh, f"take({'*, ' if kw_only else ''}{type_name} value) -> ()", CIA=kernel)
    if kw_only:
        op(value=value)
    else:
        op(value)
    ((args, kwargs),) = kernel.calls
    got = kwargs["value"] if kw_only else args[0]
    assert typed(got) == typed(converted)


REFUSED_VALUES = [
    ("int", 1.0), ("int", np.float64(1)), ("int", "1"), ("int", None), ("int", X), ("int", [1]),
    ("float", "1"), ("float", None), ("float", 1j),
    ("bool", 2), ("bool", "x"), ("bool", None), ("bool", 1.0),
    ("str", 1), ("str", None), ("str", b"a"),
    ("complex", "1"),
    ("Scalar", "1"), ("Scalar", None), ("Scalar", X),
    ("int[]", 1), ("int[]", None), ("int[]", [1.5]), ("int[]", [None]),
    ("float[]", ["a"]),
    ("(int, float)", (1,)), ("(int, float)", (1, 2, 3)), ("(int, float)", ("a", 1)),
    ("Dict(str, int)", {1: 1}),
    ("Dict(str, int)", {"a": "b"}),
    ("Dict(str, int)", [("a", 1)]),
    ("ScalarType", None), ("ScalarType", "nonsense"), ("ScalarType", X),
    ("Device", "nowhere"), ("Device", 0),
    ("Generator", 1),
    ("Union(int, str)", 1.5), ("Union(int, str)", None),
    ("Tensor", None), ("Tensor", [1.0, 2.0]), ("Tensor", (X,)), ("Tensor", "x"), ("Tensor", object()),
    ("Tensor?", [1.0]),
    ("Tensor[]", X), ("Tensor[]", None), ("Tensor[]", [None]), ("Tensor[]", [[X]]),
    ("Tensor?[]", [[X]]), ("Tensor?[]", X),
    ("Dict(str, Tensor)", {"a": None}),
    ("(Tensor, Tensor)", (X, None)),
]


@pytest.mark.parametrize(("type_name", "value"), REFUSED_VALUES, ids=without_address)
def test_refused_values(fresh, define, token, type_name, value):
    op = define(fresh, f"take({type_name} value, Tensor? other=None) -> str", CEA=token("ran"))
    for call in (lambda: op(value), lambda: op(value=value), lambda: op(value, X)):
        with pytest.raises(DispatchTypeError) as caught:
            call()
        text = str(caught.value)
        assert all(part in text for part in ("take", "'value'", f"expected {type_name}", type(value).__name__))


def test_lists_are_not_arrays_says_so():
    with pytest.raises(DispatchTypeError, match=r"lists are not arrays, pass np\.asarray"):
        ops.np.add([1, 2], X)


def test_the_callers_containers_are_not_handed_on(fresh, define, spy):
    kernel = spy()
    op = define(fresh, "take(int[] a, Dict(str, int) d, Tensor[] xs) -> ()", CEA=kernel)
    d = {"a": 1}
    op([1], d, [X])
    ((args, _),) = kernel.calls
    assert args == ((1,), {"a": 1}, (X,))
    assert args[1] is not d


A, LIST, NESTED = [f"f(Tensor x, {type} a) -> Tensor" for type in ("float", "float[]", "float[][]")]
HOLDERS = [
    pytest.param(A, lambda a: a, id="alone"),
    pytest.param(LIST, lambda a: [1.0, a], id="in a list"),
    pytest.param(LIST, lambda a: a.reshape((1,)), id="one axis"),
    pytest.param(NESTED, lambda a: [(), [a]], id="in a nested list"),
    pytest.param("f(Tensor x, *, float? a=None) -> Tensor", lambda a: a.reshape((1, 1)), id="one element"),
]
TWO = np.array(2.0)
LOSING = {      # how a value gets to the call that must not become a number there, and what is said about it
    "tracked": (lambda f: f(Tensor(TWO, requires_grad=True)), "requires grad"),
    "grad": (lambda f: func.grad(lambda a: f(a).sum())(TWO), "a value of grad"),
    "vjp": (lambda f: func.vjp(f, TWO), "a value of vjp"),
    "jvp": (lambda f: func.jvp(f, (TWO,), (TWO,)), "a value of jvp"),
    "vmap": (lambda f: func.vmap(f)(np.ones(3)), "a value of vmap"),
    "grad of vmap": (lambda f: func.grad(lambda a: func.vmap(f)(a).sum())(np.ones(3)), "a value of vmap"),
    "make_fx": (lambda f: make_fx(f)(TWO), "depends on the arguments of the trace"),
    "make_fx of Tensors": (lambda f: make_fx(f)(Tensor(TWO)), "depends on the arguments of the trace"),
    "make_fx of fakes": (lambda f: make_fx(f, tracing_mode="fake")(TWO), "depends on the arguments of the trace"),
    "FakeMode": (lambda f: _in_fake_mode(f), "FakeTensor"),
    "Meta": (lambda f: f(Tensor(MetaArray(()))), "MetaArray"),
}


def _in_fake_mode(f):
    with FakeMode() as mode:
        return f(mode.from_array(TWO))


@pytest.fixture(params=[False, True], ids=["library", "custom_op"])
def number_operator(request, fresh):
    """Provide a function that defines an operator, whose kernel tells the numbers that it got."""

    def define(schema):
        taken = []

        def kernel(x, a):
            taken.append(a)
            return x * 1.0

        if request.param:
            op = custom_op(f"{fresh.namespace}::f", kernel, mutates_args=(), schema=schema[1:])
        else:
            fresh.define(schema)
            fresh.impl("f", kernel, "CompositeExplicitAutograd")
            op = getattr(ops, fresh.namespace).f
        return lambda x, a: op(x, a=a), taken

    return define


def first_number(value):
    while isinstance(value, tuple):
        value = value[-1]
    return value


@pytest.mark.parametrize(("schema", "hold"), HOLDERS)
@pytest.mark.parametrize("make", [np.array, Tensor], ids=["raw", "Tensor"])
def test_the_number_in_an_array_is_passed(number_operator, schema, hold, make):
    call, taken = number_operator(schema)
    call(X, hold(make(np.array(2.0))))
    assert typed(first_number(taken[0])) == typed(2.0)


@pytest.mark.parametrize("array", [TWO, TWO.reshape(1, 1)], ids=str)
def test_the_number_in_a_subclass_is_what_its_handler_says(number_operator, array):
    call, taken = number_operator(A)
    call(X, LoggingTensor(array))
    assert typed(taken) == typed([2.0])


@pytest.mark.parametrize(("schema", "hold"), HOLDERS)
def test_numbers_that_are_known_in_transforms_are_passed(number_operator, schema, hold):
    call, taken = number_operator(schema)
    make_fx(lambda x: call(x, hold(TWO)))(X)
    func.functionalize(lambda x: call(x, hold(Tensor(TWO))))(X)
    with autograd.no_grad():
        call(X, hold(Tensor(TWO, requires_grad=True)))
    assert [typed(first_number(value)) for value in taken] == [typed(2.0)] * 3


@pytest.mark.parametrize(("schema", "hold"), HOLDERS)
@pytest.mark.parametrize(("run", "reason"), LOSING.values(), ids=list(LOSING))
def test_what_a_transform_would_lose_is_no_number(number_operator, schema, hold, run, reason):
    call, taken = number_operator(schema)
    with pytest.raises(DispatchTypeError) as caught:
        run(lambda a: call(X, hold(a)))
    first, remedy, *_ = str(caught.value).splitlines()
    assert "::f: argument 'a' (position 2): expected float" in first
    assert reason in first
    assert remedy
    assert not taken


@pytest.mark.parametrize(
    "shape", [range(1, 3), deque([1, 2]), np.array([1, 2]), array("i", [1, 2]), [np.array(1), np.array([2])]], ids=repr)
def test_shapes_are_any_sequence_as_in_numpy(shape):
    assert ops.np.zeros(shape).shape == (1, 2)
    assert ops.np.reshape(np.ones(2), shape).shape == (1, 2)
    assert ops.np.sum(np.ones((2, 3, 4)), shape).shape == (2,)


@pytest.mark.parametrize("shape", [{1, 2}, iter([1, 2]), "ab", b"ab"], ids=without_address)
def test_what_is_no_sequence_is_no_shape(shape):
    with pytest.raises(DispatchTypeError, match=r"np::zeros: argument 'shape' \(position 1\): expected int\[\], found"):
        ops.np.zeros(shape)


# --- packets ------------------------------------------------------------------------------------------------

OVERLOADS = [
    "f.int(Tensor x, int y) -> str",
    "f.tensor(Tensor x, Tensor y) -> str",
    "f.text(Tensor x, str y) -> str",
    "f.two(Tensor x, int y, int z) -> str",
    "f(Tensor x, *, int k) -> str",
]
RESOLUTIONS = [
    (given(X, 1), "int"),
    (given(X, True), "int"),
    (given(X, 1.5), "tensor"),
    (given(X, X), "tensor"),
    (given(X, "a"), "text"),
    (given(X, 1, 2), "two"),
    (given(X, k=1), ""),
    (given(x=X, y="b"), "text"),
    (given(X, z=1, y=2), "two"),
    (given(X, np.int64(1)), "int"),
    (given(X, np.array(1)), "tensor"),
    (given(X, np.array([1])), "tensor"),
    (given(X, y=Tensor(np.array(1))), "tensor"),
    (given(X, np.array(1), 2), "two"),
    (given(X, k=np.array(1)), ""),
]


@pytest.fixture
def overloaded(fresh, define, token):
    """Provide a packet of five overloads, each with a kernel that tells which it is."""
    for schema in OVERLOADS:
        overload = schema.partition("(")[0].partition(".")[2]
        define(fresh, schema, CIA=token(overload))
    return getattr(ops, fresh.namespace).f


@pytest.mark.parametrize(("spelling", "overload"), RESOLUTIONS, ids=str)
def test_overload_resolution(overloaded, spelling, overload):
    args, kwargs = spelling
    assert overloaded(*args, **kwargs) == overload
    assert overloaded.resolve(*args, **kwargs).name.overload == overload


def test_overloads_are_attributes(overloaded):
    assert overloaded.default(X, k=1) == ""
    assert overloaded.two(X, 1, 2) == "two"
    with pytest.raises(OperatorNotFoundError, match=r"no overload 'three'[\s\S]*int, tensor, text, two, default"):
        overloaded.three  # noqa: B018


def test_the_first_defined_wins_and_a_new_overload_is_seen(fresh, define, token):
    define(fresh, "g.number(Scalar y) -> str", CEA=token("number"))
    packet = getattr(ops, fresh.namespace).g
    with pytest.raises(DispatchTypeError):
        packet("a")
    define(fresh, "g.text(str y) -> str", CEA=token("text"))
    define(fresh, "g.int(int y) -> str", CEA=token("int"))
    assert [packet(1), packet("a")] == ["number", "text"]
    assert packet is getattr(ops, fresh.namespace).g


def test_nothing_fits_says_why_of_each(overloaded):
    with pytest.raises(DispatchTypeError) as caught:
        overloaded(X, [1])
    for overload in ("int", "tensor", "text", "two"):
        assert f"f.{overload}" in str(caught.value)


def test_a_type_error_of_a_kernel_is_not_taken_for_a_refusal(fresh, define, token):
    def broken(x):
        raise DispatchTypeError("mine")

    define(fresh, "h.a(Tensor x) -> str", CIA=broken)
    define(fresh, "h.b(Tensor x) -> str", CIA=token("b"))
    with pytest.raises(DispatchTypeError, match="mine"):
        getattr(ops, fresh.namespace).h(X)


# --- results ------------------------------------------------------------------------------------------------

RESULTS = [
    ("()", None, None),
    ("Tensor", X, X),
    ("int", 3, 3), ("int", True, 1), ("int", np.int8(3), 3), ("int", np.array(3), 3),
    ("float", Tensor(np.ones(1)), 1.0),
    ("int[]", np.array([1, 2]), (1, 2)), ("int[]", range(2), (0, 1)),
    ("float", 1, 1.0), ("float", np.float32(0.5), 0.5),
    ("bool", False, False), ("bool", np.bool_(True), True),
    ("str", "a", "a"),
    ("Scalar", 1, 1), ("Scalar", 1.0, 1.0),
    ("Tensor?", None, None), ("Tensor?", X, X),
    ("int[]", [1, 2], (1, 2)),
    ("Tensor[]", [X, X], (X, X)), ("Tensor[]", (), ()),
    ("Tensor?[]", [None, X], (None, X)),
    ("(Tensor, int)", (X, 1), (X, 1)), ("(Tensor, int)", [X, 1], (X, 1)),
    ("(int, int, int)", (1, 2, 3), (1, 2, 3)),
    ("((int, int))", (1, 2), (1, 2)),
    ("Dict(str, Tensor)", {"a": X}, {"a": X}),
    ("Any", {"a": [X]}, {"a": [X]}),
    ("ScalarType", np.float32, np.dtype("f4")),
]
BAD_RESULTS = [
    ("()", X), ("()", 0), ("()", ()),
    ("Tensor", None), ("Tensor", (X,)), ("Tensor", [1.0]), ("Tensor", "a"), ("Tensor", NotImplemented),
    ("int", 1.5), ("int", None),
    ("float", "1"), ("float", None),
    ("bool", None), ("bool", 1.5), ("bool", "x"),
    ("str", 1), ("str", b"a"),
    ("Scalar", None), ("Scalar", X),
    ("int[]", 1), ("int[]", [1.5]),
    ("Tensor[]", X), ("Tensor[]", None), ("Tensor[]", [None]),
    ("(Tensor, int)", (1, X)), ("(Tensor, int)", X), ("(Tensor, int)", None), ("(Tensor, int)", (X,)),
    ("(Tensor, int)", (X, 1, 2)),
    ("(Tensor, int)", {"a": 1, "b": 2}),
    ("(Tensor, Tensor)", np.ones((2, 2))),
    ("((int, int))", (1, 2, 3)), ("((int, int))", 1),
    ("Tensor?", "a"),
]


def result_of(fresh, define, returns, result, key="CIA"):
    return define(fresh, f"make(Tensor? x=None) -> {returns}", **{key: lambda x=None: result})


@pytest.mark.parametrize(("returns", "result", "converted"), RESULTS, ids=str)
def test_results_are_converted(fresh, define, returns, result, converted):
    op = result_of(fresh, define, returns, result)
    assert typed(op()) == typed(converted)
    stack = [None]
    op.call_boxed(stack)
    several = returns.startswith("(") and not returns.startswith("((")
    assert typed(stack) == typed([] if returns == "()" else converted if several else [converted])


@pytest.mark.parametrize(("returns", "result"), BAD_RESULTS, ids=str)
def test_results_are_checked(fresh, define, returns, result):
    op = result_of(fresh, define, returns, result)
    with pytest.raises(DispatchTypeError) as caught:
        op()
    assert all(part in str(caught.value) for part in (str(op.name), "kernel", "test_calls.py", str(op.schema)))


NUMBERS = [True, 2, 2**63, 0.5, 2j]


def same_0d(array, number):
    return array.shape == () and array.dtype == np.asarray(number).dtype and array == number


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("key", ["CPU", "CEA", "CEANF", "CIA"])
def test_a_number_for_an_array_is_a_0d_array(fresh, define, key, number):
    op = result_of(fresh, define, "Tensor", number, key)
    raw, wrapped = op(X), op(Tensor(X))
    assert type(raw) is np.ndarray
    assert type(wrapped) is Tensor
    assert same_0d(raw, number)
    assert same_0d(wrapped.array, number)
    assert same_0d(func.functionalize(op)(X), number)
    graph = make_fx(op)(X)
    assert same_0d(graph(X), number)
    assert same_0d(graph.compile()(X), number)


def number_boxed(op, stack):
    stack.pop_arguments(1)
    stack.push(0.5)


NUMBER_MAKERS = {       # what makes an operator return a number, by other ways than a kernel that is called
    "boxed": (lambda lib, op: lib.impl("make", number_boxed, "CPU", boxed=True), lambda op: op(Tensor(X))),
    "key set": (
        lambda lib, op: lib.impl("make", lambda keys, x: 0.5, "CPU", with_keyset=True), lambda op: op(Tensor(X))),
    "redispatch": (lambda lib, op: None, lambda op: op.redispatch(KEYS("CPU"), Tensor(X))),
    "fetched": (lambda lib, op: None, lambda op: get_kernel(op, "CPU")(Tensor(X))),
    "Autograd": (lambda lib, op: lib.impl("make", lambda x: 0.5, "Autograd"), lambda op: op(Tensor(X))),
    "rule of a class": (
        lambda lib, op: register_pydispatch(op, LoggingTensor, lambda *call: 0.5), lambda op: op(LoggingTensor(X))),
}


@pytest.mark.parametrize(("register", "call"), NUMBER_MAKERS.values(), ids=list(NUMBER_MAKERS))
def test_a_number_by_other_ways(fresh, define, register, call):
    op = define(fresh, "make(Tensor x) -> Tensor", CEA=lambda x: 0.5)
    register(fresh, op)
    result = call(op)
    assert isinstance(result, Tensor)
    assert same_0d(result.array, 0.5)


def test_a_number_from_the_handler_of_a_mode():
    class Half(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            return 0.5

    with Half():
        raw, wrapped = ops.np.sin(X), ops.np.sin(Tensor(X))
    assert same_0d(raw, 0.5)
    assert same_0d(wrapped.array, 0.5)


@pytest.mark.parametrize("key", ["Meta", "CIA"])
def test_a_number_without_data_is_an_array_without_data(fresh, define, key):
    op = result_of(fresh, define, "Tensor", 0.5, key)
    for result in (op(MetaArray((3,))), op(Tensor(MetaArray((3,)))).array):
        assert isinstance(result, MetaArray)
        assert (result.shape, result.dtype) == ((), float)


def test_a_number_of_a_fake(fresh, define):
    op = define(fresh, "make(int n=1) -> Tensor", CPU=lambda n=1: 1)
    register_fake(op, lambda n=1: 1)
    with default_backend("Meta"):
        meta = op()
    with FakeMode():
        fake = op()
    assert isinstance(meta, MetaArray)
    assert isinstance(fake, FakeTensor)
    assert (meta.shape, meta.dtype) == (fake.shape, fake.dtype) == ((), int)


@pytest.mark.parametrize(("returns", "result", "numbers"), [
    ("(Tensor, Tensor?)", (1, 2.0), lambda out: out),
    ("Tensor[]", [1, 2.0], lambda out: out),
    ("Tensor?[]", [None, 1], lambda out: out[1:]),
    ("((Tensor, int))", (1.0, 3), lambda out: out[:1]),
    ("Dict(str, Tensor)", {"a": 1}, lambda out: (out["a"],)),
], ids=without_address)
def test_numbers_for_arrays_inside_of_results(fresh, define, returns, result, numbers):
    op = result_of(fresh, define, returns, result)
    assert [type(array) for array in numbers(op(X))] == [np.ndarray] * len(numbers(result))
    assert [type(array) for array in numbers(op(Tensor(X)))] == [Tensor] * len(numbers(result))
    assert all(map(same_0d, numbers(op(X)), numbers(result)))


def test_numbers_of_examples_are_stacked(fresh, define):
    op = define(fresh, "total(Tensor x) -> Tensor", CPU=lambda x: float(x.sum()))
    with pytest.warns(PerformanceWarning):
        assert func.vmap(op)(np.arange(6.0).reshape(2, 3)).tolist() == [3.0, 12.0]
    library.register_vmap(op, lambda info, in_dims, x: (0.5, None))
    assert func.vmap(op)(np.ones((2, 3))).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("returned", [lambda x: float(x.sum()), lambda x: x.sum()], ids=["number", "array"])
def test_a_number_has_the_gradient_of_its_array(fresh, returned):
    op = custom_op(f"{fresh.namespace}::total", returned, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_autograd(
        lambda ctx, g: g * ops.np.ones_like(ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    x = Tensor(X, requires_grad=True)
    op(x).backward()
    assert x.grad.tolist() == [1, 1, 1]
    assert func.grad(op)(X).tolist() == [1, 1, 1]
    assert [a.tolist() for a in func.jvp(op, (X,), (X,))] == [3.0, 3.0]
    with pytest.warns(PerformanceWarning):
        assert func.vmap(func.grad(op))(np.ones((2, 3))).tolist() == [[1, 1, 1]] * 2


def test_a_number_by_the_older_functions(fresh):
    name = f"{fresh.namespace}::half"
    custom_ops.custom_op(name, "(Tensor x) -> Tensor")
    custom_ops.impl(name, func=lambda x: 0.5)
    custom_ops.impl_abstract(name, func=lambda x: 0.5)
    assert same_0d(getattr(ops, fresh.namespace).half(X), 0.5)
    assert getattr(ops, fresh.namespace).half(MetaArray((3,))).shape == ()


def test_a_kernel_may_be_annotated_with_the_number(fresh, define):
    def total(x: np.ndarray) -> float:
        return float(x.sum())

    assert same_0d(define(fresh, "total(Tensor x) -> Tensor", CPU=total)(X), 3.0)


# --- universal functions as kernels -------------------------------------------------------------------------


class NumbaFunction:
    """A result of numba.guvectorize: not an np.ufunc, with the signature of a function that fills its last argument."""

    nin, nout, signature = 2, 1, "(n),(n)->()"

    def __init__(self):
        functools.update_wrapper(self, lambda x, y, result: None)

    def __call__(self, *args, **kwargs):
        return np.einsum("...i,...i->...", *args, **kwargs)


GUFUNCS = {
    "np.matmul": (np.matmul, "(Tensor x, Tensor y) -> Tensor", (X, X), np.dot(X, X)),
    "np.linalg.det": (_umath_linalg.det, "(Tensor x) -> Tensor", (np.diag([2.0, 3.0]),), 6.0),
    "np.linalg.slogdet": (_umath_linalg.slogdet, "(Tensor x) -> (Tensor, Tensor)", (np.eye(2),), (1.0, 0.0)),
    "numba": (NumbaFunction(), "(Tensor x, Tensor y) -> Tensor", (X, X), np.dot(X, X)),
}


@pytest.mark.parametrize("register", ["impl", "custom_op"])
@pytest.mark.parametrize(("kernel", "schema", "args", "expected"), GUFUNCS.values(), ids=list(GUFUNCS))
def test_generalized_universal_functions_are_kernels(fresh, define, register, kernel, schema, args, expected):
    if register == "impl":
        op = define(fresh, f"f{schema}", CPU=kernel)
    else:
        op = custom_op(f"{fresh.namespace}::f", kernel, mutates_args=(), schema=schema)
    assert np.array_equal(op(*args), expected)
    assert np.array_equal(np.asarray(op(*map(Tensor, args))) if schema.endswith("> Tensor") else op(*args), expected)


@pytest.mark.parametrize(("kernel", "schema"), [(row[0], row[1]) for row in GUFUNCS.values()], ids=list(GUFUNCS))
def test_a_universal_function_of_other_inputs_does_not_fit(fresh, kernel, schema):
    fresh.define("f(Tensor x, Tensor y, Tensor z) -> Tensor")
    with pytest.raises(RegistrationError, match=r"it takes [12] positional arguments"):
        fresh.impl("f", kernel, "CPU")


IN_AND_OUT = [
    ("Tensor", lambda x: x, lambda x: x),
    ("Tensor?", lambda x: x, lambda x: x),
    ("(Tensor, Tensor)", lambda x: (x, x), lambda x: (x, x)),
    ("Tensor[]", lambda x: [x, x], lambda x: (x, x)),
    ("Dict(str, Tensor)", lambda x: {"a": x}, lambda x: {"a": x}),
    ("Any", lambda x: {"a": (x, 1)}, lambda x: {"a": (x, 1)}),
]


@pytest.mark.parametrize("key", ["CPU", "CIA", "CEA"])
@pytest.mark.parametrize(("returns", "made", "expected"), IN_AND_OUT, ids=[row[0] for row in IN_AND_OUT])
@pytest.mark.parametrize("given_type", [np.asarray, Tensor], ids=["raw in", "Tensor in"])
@pytest.mark.parametrize("returned_type", [np.asarray, Tensor], ids=["raw returned", "Tensor returned"])
def test_what_you_pass_is_what_you_get(fresh, define, key, returns, made, expected, given_type, returned_type):
    op = define(fresh, f"f(Tensor x) -> {returns}", **{key: lambda x: made(returned_type(X))})
    result = op(given_type(X))
    assert kinds(result) == kinds(expected(given_type(X)))
    assert tree_map(lambda leaf: leaf.tolist() if hasattr(leaf, "tolist") else leaf, result) == expected(X.tolist())


def kinds(value):
    """Return a value with the name of the type of each leaf."""
    return tree_map(lambda leaf: type(leaf).__name__, value)


def test_a_tensor_among_raw_arrays_makes_the_result_a_tensor(fresh, define):
    op = define(fresh, "f(Tensor x, Tensor[] xs, *, Tensor? k=None) -> Tensor", CPU=lambda x, xs, k=None: x + 1)
    t = Tensor(X)
    calls = [given(X, []), given(t, []), given(X, [X, t]), given(X, [], k=t), given(X, [X], k=X)]
    assert [type(op(*args, **kwargs)) for args, kwargs in calls] == [np.ndarray, Tensor, Tensor, Tensor, np.ndarray]


@pytest.mark.parametrize("returned", [np.float64(3), np.array(3.0)], ids=["np.float64", "0-d array"])
def test_numpy_scalars_are_arrays(fresh, define, returned):
    op = define(fresh, "f(Tensor x) -> Tensor", CPU=lambda x: returned)
    assert op(np.float64(1)) is returned
    assert isinstance(op(Tensor(X)).array, np.ndarray)
    assert op(Tensor(X)).shape == ()


# --- mutated arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
@pytest.mark.parametrize("boxed", [False, True], ids=["plain", "boxed"])
def test_mutated_arguments_keep_their_identity(fresh, define, wrap, boxed):
    def kernel(x, y):
        np.add(x, y, out=x)
        return x.copy()

    def boxed_kernel(op, stack):
        stack.push(kernel(*stack.pop_arguments(2)))

    op = define(fresh, "add_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    fresh.impl("add_", boxed_kernel if boxed else kernel, "CPU", boxed=boxed)
    x = wrap(np.ones(3))
    assert op(x, 1.0) is x
    assert np.asarray(x).tolist() == [2, 2, 2]


def test_out_arguments_keep_their_identity_and_order(fresh, define):
    def kernel(x, *, low, high):
        low[...], high[...] = x - 1, x + 1
        return low.copy(), high.copy()

    op = define(fresh, "around(Tensor x, *, Tensor(a!) low, Tensor(b!) high) -> (Tensor(b!), Tensor(a!))", CPU=kernel)
    low, high = Tensor(np.zeros(3)), np.zeros(3)
    first, second = op(X, low=low, high=high)
    assert first is high
    assert second is low
    assert (low.tolist(), high.tolist()) == ([-1, 0, 1], [1, 2, 3])


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
@pytest.mark.parametrize("kwargs", [{}, {"out": None}], ids=["left out", "None"])
def test_an_optional_out_that_is_not_given_gives_the_kernels_result(fresh, define, wrap, kwargs):
    def kernel(x, out=None):
        return np.add(x, 1, out=out)

    op = define(fresh, "f(Tensor x, *, Tensor(a!)? out=None) -> Tensor(a!)", CPU=kernel)
    result = op(wrap(X), **kwargs)
    assert type(result) is type(wrap(X))
    assert result.tolist() == [1, 2, 3]
    assert op(wrap(X), out=result) is result


VERSIONS = [
    ("f_(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda op, x, y: op(x, y), (1, 0)),
    ("f_(Tensor x, Tensor(a!) y) -> Tensor(a!)", lambda op, x, y: op(x, y), (0, 1)),
    ("f_(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor(b!))", lambda op, x, y: op(x, y), (1, 1)),
    ("f_(Tensor(a!)[] xs) -> ()", lambda op, x, y: op([x, y]), (1, 1)),
    ("f_(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda op, x, y: op(x, out=y), (0, 1)),
    ("f_(Tensor x, *, Tensor(a!)? out=None) -> ()", lambda op, x, y: op(x, out=y), (0, 1)),
    ("f_(Tensor x, *, Tensor(a!)? out=None) -> ()", lambda op, x, y: op(x, out=None), (0, 0)),
    ("f_(Tensor(a) x, Tensor y) -> ()", lambda op, x, y: op(x, y), (0, 0)),
]


@pytest.mark.parametrize(("schema", "call", "versions"), VERSIONS, ids=[f"{row[0]} {row[2]}" for row in VERSIONS])
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_versions_rise_before_the_kernel_runs(fresh, define, schema, call, versions, fails):
    x, y = Tensor(np.ones(2)), Tensor(np.ones(2))
    seen = []

    def kernel(*args, **kwargs):
        seen.append((x._version, y._version))
        if fails:
            raise KeyboardInterrupt
        return {0: None, 1: X, 2: (X, X)}[len(op.schema.returns)]

    op = define(fresh, schema, CPU=kernel)
    if fails:
        with pytest.raises(KeyboardInterrupt):
            call(op, x, y)
    else:
        call(op, x, y)
    assert seen == [versions]
    assert (x._version, y._version) == versions


def test_a_composite_leaves_versions_to_the_operators_it_calls(fresh, define):
    op = define(fresh, "twice_(Tensor(a!) x) -> Tensor(a!)", CIA=lambda x: ops.np.add_(ops.np.add_(x, 1), 1))
    x = Tensor(np.zeros(2))
    assert op(x) is x
    assert x._version == 2


# --- views --------------------------------------------------------------------------------------------------

BASE = np.arange(6.0).reshape(2, 3)
VIEWS = [
    ("the array itself", lambda x: x, True),
    ("a slice", lambda x: x[1:], True),
    ("a slice of a transpose", lambda x: x.T[1:], True),
    ("0-d", lambda x: x[0, 0, ...], True),
    ("a copy", lambda x: x.copy(), False),
    ("another array", lambda x: X.copy(), False),
]


@pytest.mark.parametrize(("kernel", "shares"), [row[1:] for row in VIEWS], ids=[row[0] for row in VIEWS])
@pytest.mark.parametrize("make_base", [lambda: BASE.copy(), lambda: BASE.repeat(2, 0)[::2]], ids=["owner", "view"])
def test_views_share_the_version(fresh, define, kernel, shares, make_base):
    op = define(fresh, "view(Tensor(a) x) -> Tensor(a)", CPU=kernel)
    x = Tensor(make_base())
    view = op(x)
    ops.np.add_(x, 1)
    assert (x._version, view._version) == (1, 1 if shares else 0)
    ops.np.add_(view, 1)
    assert (x._version, view._version) == (2, 2) if shares else (1, 1)


def test_a_result_without_annotation_is_fresh(fresh, define):
    op = define(fresh, "same(Tensor x) -> Tensor", CPU=lambda x: x)
    x = Tensor(np.ones(2))
    assert op(x) is not x
    ops.np.add_(x, 1)
    assert op(x)._version == 0


@pytest.mark.parametrize("returns", ["Tensor(a)[]", "(Tensor(a), Tensor(a))"])
def test_views_in_containers_share_the_version(fresh, define, returns):
    op = define(fresh, f"halves(Tensor(a) x) -> {returns}", CPU=lambda x: (x[:1], x[1:].copy()))
    x = Tensor(np.ones(2))
    view, copied = op(x)
    ops.np.add_(x, 1)
    assert (view._version, copied._version) == (1, 0)


SOURCES = [
    ("f(Tensor(a) x, Tensor(b) y) -> Tensor(a)", (True, False)),
    ("f(Tensor(a) x, Tensor(b) y) -> Tensor(b)", (False, True)),
    ("f(Tensor(a) x, Tensor(b) y) -> Tensor(a|b)", (True, True)),
    ("f(Tensor(a) x, Tensor y) -> Tensor(*)", (True, True)),
    ("f(Tensor(a -> *) x, Tensor y) -> Tensor(b)", (True, False)),
]


@pytest.mark.parametrize(("schema", "shares"), SOURCES, ids=[row[0] for row in SOURCES])
def test_whose_version_a_view_shares(fresh, define, schema, shares):
    choice = 0
    op = define(fresh, schema, CPU=lambda *arrays: arrays[choice][1:])
    x, y = Tensor(np.ones(3)), Tensor(np.ones(3))
    for choice, source in enumerate((x, y)):
        view = op(x, y)
        before = view._version
        ops.np.add_(source, 1)
        assert view._version - before == shares[choice]


def test_a_view_found_in_a_list_argument_shares_its_version(fresh, define):
    op = define(fresh, "pick(Tensor(a)[] xs, int i) -> Tensor(a)", CPU=lambda xs, i: xs[i][:1])
    x, y = Tensor(np.ones(3)), Tensor(np.ones(3))
    view = op([x, y], 1)
    ops.np.add_(y, 1)
    ops.np.add_(x, 1)
    ops.np.add_(x, 1)
    assert view._version == 1


# --- which kernel -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("makers", "backend"), [
    (("CPU", "CPU"), "CPU"),
    (("CPU", "A"), "A"),
    (("A", "CPU"), "A"),
    (("A", "Meta"), "Meta"),
    (("CPU", "Meta"), "Meta"),
    (("B", "C"), "C"),
    (("C", "B"), "C"),
    (("B", "C", "Meta"), "Meta"),
], ids=str)
@pytest.mark.parametrize("wrap", [lambda x: x, Tensor], ids=["raw", "Tensor"])
def test_the_highest_backend_runs(fresh, define, token, backends, makers, backend, wrap):
    op = define(fresh, "f(Tensor[] xs) -> str", **{name: token(name) for name in ("CPU", "A", "B", "C", "Meta")})
    assert op([wrap(array_of(backends, name)) for name in makers]) == backend


@pytest.mark.parametrize("names", [("A", "B"), ("B", "A"), ("A", "C"), ("A", "CPU", "B"), ("A", "B", "Meta")], ids=str)
def test_unrelated_backends_do_not_mix(fresh, define, token, backends, names):
    op = define(fresh, "f(Tensor[] xs) -> str", CEA=token("ran"), Meta=token("meta"))
    with pytest.raises(DispatchTypeError, match=r"one call mixes arrays of the backends A and [BC][\s\S]*above="):
        op([array_of(backends, name) for name in names])


def array_of(backends, name):
    if name == "Sparse":
        return backends.SparseArray(X)
    return {"CPU": np.asarray, "Meta": lambda x: MetaArray(x.shape)}.get(
        name, getattr(backends, f"Array{name}", None))(X)


def test_a_subclass_resolves_to_its_nearest_registered_base(fresh, define, token, backends):
    class Nearer(backends.ArrayA):
        pass

    class Strange(np.ndarray):
        pass

    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), A=token("A"))
    assert [op(Nearer(X)), op(X.view(Strange)), op(np.float32(1))] == ["A", "CPU", "CPU"]


# --- redispatch ---------------------------------------------------------------------------------------------


@pytest.fixture
def layered(fresh, define, token):
    """Provide an operator with a kernel at CPU, A and AutogradCPU."""
    return define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), A=token("A"), AutogradCPU=token("AutogradCPU"))


def test_redispatch_takes_the_key_set_as_it_is(layered, backends):
    calls = [
        (KEYS("CPU"), X, "CPU"), (KEYS("CPU"), Tensor(X), "CPU"),
        (KEYS("A"), X, "A"),
        (KEYS("CPU", "AutogradCPU"), X, "AutogradCPU"),
        (KEYS("CPU"), backends.ArrayB(X), "CPU"),
    ]
    with include_keys("A"), exclude_keys("CPU"), below_autograd():
        assert [layered.redispatch(keys, x) for keys, x, _ in calls] == [expected for *_, expected in calls]


def test_redispatch_does_not_strip_the_current_key(fresh, define):
    depth = []

    def kernel(keys, x):
        depth.append(keys)
        return "done" if len(depth) == 3 else op.redispatch(keys, x)

    op = define(fresh, "f(Tensor x) -> str")
    fresh.impl("f", kernel, "CPU", with_keyset=True)
    assert op(X) == "done"
    assert depth == [KEYS("CPU")] * 3


def test_redispatch_to_no_key_is_redispatch_to_undefined(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"))
    with pytest.raises(NoKernelError, match="has no key"):
        op.redispatch(KEYS(), X)
    fresh.impl("f", token("default"), "CEA")
    assert op.redispatch(KEYS(), X) == "default"


def test_redispatch_to_a_fallthrough_raises(layered, tracer):
    with pytest.raises(NoKernelError, match="Tracer, whose kernel falls through"):
        layered.redispatch(KEYS("CPU", "Tracer"), X)


def test_redispatch_to_a_key_without_kernel_raises(layered):
    with pytest.raises(NoKernelError, match="no kernel for the key B"):
        layered.redispatch(KEYS("B"), X)


@pytest.mark.parametrize("call", [given(X, 2, k=3), given(a=2, x=X, k=3)], ids=["positional", "keyword"])
def test_redispatch_binds_like_a_call(fresh, define, spy, call):
    kernel = spy()
    op = define(fresh, "f(Tensor x, int a=1, *, int k=0) -> ()", CPU=kernel)
    args, kwargs = call
    op.redispatch(KEYS("CPU"), *args, **kwargs)
    assert kernel.calls == [((X, 2), {"k": 3})]
    with pytest.raises(DispatchTypeError, match="'x'"):
        op.redispatch(KEYS("CPU"))


def chain_plain(name, log, op):
    key = DispatchKey(name)

    def kernel(keys, x):
        log.append((name, keys))
        return name if name == "CPU" else op().redispatch(keys & KEYS.full_after(key), x) + f"<{name}"

    return kernel, {"with_keyset": True}


def chain_boxed(name, log, op):
    plain, _ = chain_plain(name, log, op)

    def kernel(op, keys, stack):
        stack.push(plain(keys, *stack.pop_arguments(1)))

    return kernel, {"with_keyset": True, "boxed": True}


@pytest.mark.parametrize("styles", [
    (chain_plain,) * 3,
    (chain_boxed,) * 3,
    (chain_plain, chain_boxed, chain_plain),
    (chain_boxed, chain_plain, chain_boxed),
], ids=["plain", "boxed", "boxed in the middle", "plain in the middle"])
@pytest.mark.parametrize("boxed_call", [False, True], ids=["call", "call_boxed"])
def test_a_chain_of_kernels_by_key_sets(fresh, define, tracer, styles, boxed_call):
    op = define(fresh, "f(Tensor x) -> str")
    log = []
    for name, style in zip(("AutogradCPU", "Tracer", "CPU"), styles, strict=True):
        kernel, options = style(name, log, lambda: op)
        fresh.impl("f", kernel, name, **options)
    with include_keys("Tracer"):
        assert call_either_way(op, boxed_call, Tensor(X)) == "CPU<Tracer<AutogradCPU"
    assert log == [
        ("AutogradCPU", KEYS("AutogradCPU", "Tracer", "CPU")),
        ("Tracer", KEYS("Tracer", "CPU")),
        ("CPU", KEYS("CPU")),
    ]
    assert [keys.highest.name for _, keys in log] == ["AutogradCPU", "Tracer", "CPU"]


def call_either_way(op, boxed, *args):
    if not boxed:
        return op(*args)
    stack = Stack(args)
    op.call_boxed(stack)
    (result,) = stack
    return result


def test_a_chain_by_guards(fresh, define, token):
    def autograd(x):
        with below_autograd():
            return "autograd>" + op(x)

    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), Autograd=autograd)
    assert op(Tensor(X)) == "autograd>CPU"
    assert op(X) == "CPU"


def test_a_backend_select_kernel_hands_on(fresh, define, token):
    seen = []

    def choose(keys, n):
        seen.append(keys)
        return "chose>" + op.redispatch(keys & KEYS.full_after("BackendSelect") | KEYS("CPU"), n)

    op = define(fresh, "f(int n) -> str", CPU=token("CPU"))
    fresh.impl("f", choose, "BackendSelect", with_keyset=True)
    assert op(1) == "chose>CPU"
    assert seen == [KEYS("BackendSelect")]


def test_fallthrough_of_one_operator(fresh, define, token):
    op = define(
        fresh, "f(Tensor x) -> str", CPU=token("CPU"), Autograd=token("autograd"), AutogradCPU=fallthrough_kernel)
    assert op(Tensor(X)) == "CPU"


def test_when_all_keys_fall_through_undefined_runs(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", CPU=fallthrough_kernel, CIA=token("composite"))
    assert op(X) == "composite"
    assert op.explain(X).key is DispatchKey.Undefined


def test_a_composite_that_falls_through_is_no_kernel(fresh, define):
    op = define(fresh, "f(Tensor x) -> str", CIA=fallthrough_kernel)
    for x in (X, Tensor(X)):
        with pytest.raises(NoKernelError, match="has no key"):
            op(x)


# --- boxed kernels and boxed calls --------------------------------------------------------------------------


def test_a_boxed_kernel_gets_every_argument(fresh, define):
    seen = []

    def kernel(op, stack):
        seen.append((op, type(stack), stack.pop_arguments(4)))
        stack.push("a", 2)

    op = define(fresh, "f(Tensor x, int a=1, *, float k=2.0, str? s=None) -> (str, int)")
    fresh.impl("f", kernel, "CPU", boxed=True)
    assert op(X, k=3) == ("a", 2)
    assert seen == [(op, Stack, (X, 1, 3.0, None))]


@pytest.mark.parametrize(("schema", "results"), [("()", ()), ("str", ("a",)), ("(str, int)", ("a", 2))], ids=str)
def test_boxed_kernels_push_a_value_per_return(fresh, define, schema, results):
    def kernel(op, stack):
        stack.pop_arguments(1)
        stack.push(*results)

    op = define(fresh, f"f(Tensor x) -> {schema}")
    fresh.impl("f", kernel, "CPU", boxed=True)
    assert op(X) == (results if len(results) > 1 else results[0] if results else None)
    below = object()
    stack = [below, X]
    op.call_boxed(stack)
    assert stack == [below, *results]


@pytest.mark.parametrize(("pushed", "popped"), [((), 1), (("a", "b"), 1), (("a",), 0)], ids=["none", "two", "left"])
def test_boxed_kernels_that_miscount(fresh, define, pushed, popped):
    def kernel(op, stack):
        stack.pop_arguments(popped)
        stack.push(*pushed)

    op = define(fresh, "f(Tensor x) -> str")
    fresh.impl("f", kernel, "CPU", boxed=True)
    stack = Stack([X])
    for call in (lambda: op(X), lambda: op.call_boxed(stack)):
        with pytest.raises(DispatchTypeError, match=f"left {len(pushed) + 1 - popped} values on its stack, expected 1"):
            call()
    assert stack == [X]


FAILURES = [
    ("too short", [X], DispatchTypeError),
    ("wrong type", [X, "a", 1], DispatchTypeError),
    ("no kernel", [MetaArray(3), 1, 1], NoKernelError),
    ("raising kernel", [X, 1, 1], ZeroDivisionError),
    ("result of the wrong type", [X, 0, 1], DispatchTypeError),
]


@pytest.mark.parametrize(("stack", "error"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
@pytest.mark.parametrize("boxed", [False, True], ids=["plain", "boxed"])
def test_the_stack_is_as_it_was_after_an_exception(fresh, define, stack, error, boxed):
    def kernel(x, a, k=1):
        return 1 // (1 - a)

    def boxed_kernel(op, stack):
        stack.push(kernel(*stack.pop_arguments(3)))

    op = define(fresh, "f(Tensor x, int a, *, int k=1) -> str")
    fresh.impl("f", boxed_kernel if boxed else kernel, "CPU", boxed=boxed)
    for cls in (list, Stack):
        before = cls(["below", *stack] if len(stack) == 3 else stack)
        after = cls(before)
        with pytest.raises(error):
            op.call_boxed(after)
        assert typed(after) == typed(before)


def test_a_boxed_call_of_every_kind_of_kernel(fresh, define, spy):
    kernel = spy("r")
    op = define(fresh, "f(Tensor x, int a=1, *, int k=2) -> str", CPU=kernel)
    stack = Stack(["below"])
    stack.push(Tensor(X), 1, 5)
    op.call_boxed(stack)
    assert stack == ["below", "r"]
    assert typed(kernel.calls) == typed([((X,), {"k": 5})])


def test_the_stack():
    stack = Stack([1])
    stack.push(2, 3)
    assert stack.pop_arguments(2) == (2, 3)
    assert stack.pop_arguments(0) == ()
    with pytest.raises(IndexError, match="cannot pop 2 values from a stack of 1"):
        stack.pop_arguments(2)
    assert stack == [1]


# --- fallbacks ----------------------------------------------------------------------------------------------

FALLBACK_CONVENTIONS = [
    ("plain", {}, lambda log: lambda op, *args, **kwargs: log.append((op, args, kwargs)) or "fallback"),
    (
        "with_keyset",
        {"with_keyset": True},
        lambda log: lambda keys, op, *args, **kwargs: log.append((keys, op, args, kwargs)) or "fallback"),
    (
        "boxed",
        {"boxed": True},
        lambda log: lambda op, stack: stack.push((log.append((op, stack.pop_arguments(3))), "fallback")[1])),
    (
        "boxed with_keyset",
        {"boxed": True, "with_keyset": True},
        lambda log: (
            lambda op, keys, stack: stack.push((log.append((keys, op, stack.pop_arguments(3))), "fallback")[1])),
    ),
]


@pytest.mark.parametrize(
    ("options", "make"), [row[1:] for row in FALLBACK_CONVENTIONS], ids=[row[0] for row in FALLBACK_CONVENTIONS])
@pytest.mark.parametrize("boxed_call", [False, True], ids=["call", "call_boxed"])
def test_calling_convention_of_fallbacks(fresh, define, token, tracer, options, make, boxed_call):
    log = []
    op = define(fresh, "f(Tensor x, int a=1, *, int k=2) -> str", CPU=token("CPU"))
    with Library("_", "IMPL") as everything:
        everything.fallback(make(log), "Tracer", **options)
        with include_keys("Tracer"):
            assert call_either_way(op, boxed_call, *((X, 7, 2) if boxed_call else (X, 7))) == "fallback"
        assert op(X, 7) == "CPU"
    (call,) = log
    tail = (op, (X, 7, 2)) if "boxed" in options else (op, (X, 7), {})
    assert call == ((KEYS("Tracer", "CPU"), *tail) if "with_keyset" in options else tail)
    with include_keys("Tracer"):
        assert op(X, 7) == "CPU"


# --- what kernels see ---------------------------------------------------------------------------------------

# (key that the kernel is registered under, guard that makes it run, backend of the arrays, are they raw?)
SIGHT = [
    ("CPU", None, "CPU", True),
    ("A", None, "A", True),
    ("Meta", None, "Meta", True),
    ("SparseCPU", None, "Sparse", True),
    ("CEA", None, "CPU", True), ("CEA", None, "Sparse", True),
    ("CEANF", None, "A", True),
    ("CIA", None, "CPU", False), ("CIA", None, "Sparse", False), ("CIA", below_autograd, "CPU", False),
    ("Autograd", None, "CPU", False), ("Autograd", None, "Sparse", False),
    ("AutogradA", None, "A", False),
    ("AutogradOther", None, "Sparse", False),
    ("BackendSelect", None, "CPU", False),
    ("Python", lambda: include_keys("Python"), "CPU", False),
    ("Tracer", lambda: include_keys("Tracer"), "CPU", False),
]
Pair = namedtuple("Pair", "left right")
# (type of the argument, the value with arrays in it)
PLACES = [
    ("Tensor", lambda x: x),
    ("Tensor?", lambda x: x),
    ("Tensor[]", lambda x: (x, x)),
    ("Tensor?[]", lambda x: (None, x)),
    ("Tensor[]?", lambda x: (x,)),
    ("Tensor[][]", lambda x: ((x,), ())),
    ("Dict(str, Tensor)", lambda x: {"a": x}),
    ("(int, Tensor)", lambda x: (1, x)),
    ("Union(int, Tensor)", lambda x: x),
    ("Any", lambda x: x),
    ("Any", lambda x: {"a": ((x,), 1), "b": None}),
    ("Any", lambda x: Pair(x, (x,))),
    ("Dict(str, Tensor[])", lambda x: {"a": (x,)}),
]
PLACE_IDS = ["Tensor", "Tensor?", "Tensor[]", "Tensor?[]", "Tensor[]?", "Tensor[][]", "Dict", "tuple", "Union", "Any",
             "Any nested", "Any namedtuple", "Dict of lists"]


@pytest.mark.parametrize(("key", "guard", "backend", "raw"), SIGHT, ids=[f"{row[0]} on {row[2]}" for row in SIGHT])
@pytest.mark.parametrize(("type_name", "place"), PLACES, ids=PLACE_IDS)
@pytest.mark.parametrize("boxed", [False, True], ids=["plain", "boxed"])
@pytest.mark.parametrize("kw_only", [False, True], ids=["positional", "keyword"])
def test_what_kernels_see(fresh, define, backends, tracer, key, guard, backend, raw, type_name, place, boxed, kw_only):
    seen = []

    def kernel(value):
        seen.append(value)
        return "ran"

    def boxed_kernel(op, stack):
        stack.push(kernel(*stack.pop_arguments(1)))

    op = define(fresh, f"f({'*, ' if kw_only else ''}{type_name} value) -> str")
    plain = (lambda *, value: kernel(value)) if kw_only else kernel
    fresh.impl("f", boxed_kernel if boxed else plain, key, boxed=boxed)
    array = array_of(backends, backend)
    passed = Tensor(array)
    calls = [(place(passed), place(array if raw else passed))]
    if not key.startswith("Autograd"):  # raw arrays carry no autograd key
        calls.append((place(array), place(array)))
    for value, expected in calls:
        with (guard or include_keys)():
            assert (op(value=value) if kw_only else op(value)) == "ran"
        assert typed_leaves(seen.pop()) == typed_leaves(expected)
    assert not seen


def typed_leaves(value):
    """Return a value with its containers, and each leaf by type and identity."""
    return tree_map(lambda leaf: (type(leaf), id(leaf)), value)


WEAK = [True, 2, 2.5, 2j]


@pytest.mark.parametrize("scalar", WEAK, ids=repr)
@pytest.mark.parametrize("key", ["CPU", "CIA", "Autograd"])
def test_python_scalars_stay_scalars(fresh, define, spy, key, scalar):
    kernel = spy("ran")
    op = define(fresh, "f(Tensor x, Tensor y, Tensor? z=None, *, Tensor[] zs) -> str", **{key: kernel})
    assert op(Tensor(X), scalar, scalar, zs=[scalar, X]) == "ran"
    ((args, kwargs),) = kernel.calls
    assert typed((args[1:], kwargs["zs"][0])) == typed(((scalar, scalar), scalar))


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64", "complex64"])
@pytest.mark.parametrize("scalar", WEAK, ids=repr)
def test_python_scalars_are_weak(dtype, scalar):
    x = np.ones(2, dtype)
    expected = (x + scalar).dtype
    assert (
        ops.np.add(x, scalar).dtype
        == ops.np.add(scalar, Tensor(x)).dtype
        == (Tensor(x) + scalar).dtype
        == expected
    )
    strong = np.asarray(scalar)[()]
    assert ops.np.add(Tensor(x), strong).dtype == (x + strong).dtype


def test_scalars_bring_no_key(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), A=token("A"))
    assert op(1.0) == "CPU"
    with default_backend("A"):
        assert op(1.0) == "A"
        assert op(np.float64(1)) == "CPU"


# --- containers ---------------------------------------------------------------------------------------------


class Box:
    def __init__(self, content, label="box"):
        self.content, self.label = content, label


class Opaque:
    """A class that is registered as a type, and not as a container."""

    def __init__(self, content):
        self.content = content


class Crate(Box):
    """A container of the user's that is also a registered type."""


@pytest.fixture(scope="module")
def own_containers():
    for cls in (Box, Crate):
        register_pytree_node(
            cls, lambda box: ((box.content,), box.label), lambda children, label, cls=cls: cls(children[0], label))
    register_opaque_type(Opaque, "CallsOpaque")
    register_opaque_type(Crate, "CallsCrate")


def test_a_registered_container_is_taken_apart(fresh, define, backends, own_containers):
    seen = []
    op = define(fresh, "f(Any box) -> Any", A=lambda box: seen.append(box) or Box([box.content], "out"))
    array = backends.ArrayA(X)
    result = op(Box(Tensor(array), "in"))
    assert (type(seen[0]), seen[0].content, seen[0].label) == (Box, array, "in")
    assert (type(result), type(result.content[0]), result.label) == (Box, Tensor, "out")
    assert result.content[0].array is array


def test_an_opaque_class_with_a_flattening_brings_keys(fresh, define, backends, own_containers):
    op = define(fresh, "f(CallsCrate crate) -> CallsCrate", A=lambda crate: crate)
    crate = Crate({"a": Tensor(backends.ArrayA(X))})
    result = op(crate)
    assert type(result) is Crate
    assert result.content["a"].array is crate.content["a"].array
    with pytest.raises(DispatchTypeError, match="expected CallsCrate, found Box"):
        op(Box(1))


def test_an_opaque_class_without_flattening_is_a_constant(fresh, define, token, backends, own_containers):
    op = define(fresh, "f(CallsOpaque x) -> CallsOpaque", A=token("A"), CEA=lambda x: x)
    opaque = Opaque(Tensor(backends.ArrayA(X)))
    assert op(opaque) is opaque


@pytest.mark.parametrize(("type_name", "place"), PLACES, ids=PLACE_IDS)
def test_arrays_in_containers_choose_the_kernel(fresh, define, token, backends, type_name, place):
    op = define(fresh, f"f({type_name} value) -> str", CPU=token("CPU"), A=token("A"), AutogradA=token("AutogradA"))
    assert op(place(X)) == "CPU"
    assert op(place(backends.ArrayA(X))) == "A"
    assert op(place(Tensor(backends.ArrayA(X)))) == "AutogradA"


EMPTY = [("Tensor[]", []), ("Tensor?[]", [None]), ("Tensor[]?", None), ("Dict(str, Tensor)", {}), ("Any", {"a": [1]})]


@pytest.mark.parametrize(("type_name", "value"), EMPTY, ids=str)
def test_containers_without_arrays_bring_nothing(fresh, define, token, type_name, value):
    op = define(fresh, f"f({type_name} value) -> str", CPU=token("CPU"), A=token("A"))
    assert op(value) == "CPU"
    with default_backend("A"):
        assert op(value) == "A"


# --- calls without arrays -----------------------------------------------------------------------------------


@pytest.fixture
def maker(fresh, define, token):
    """Provide a creation operator with a kernel on CPU, A and B."""
    schema = "make(int n, Tensor? like=None, *, Device? device=None) -> str"
    return define(fresh, schema, **{name: token(name) for name in ("CPU", "A", "B")})


def test_where_a_call_without_arrays_goes(maker, backends):
    assert maker(1) == "CPU"
    assert [maker(1, device=name) for name in ("CPU", "cpu", "A", "a", "B")] == ["CPU", "CPU", "A", "A", "B"]
    with default_backend("A"):
        assert [maker(1), maker(1, device="B"), maker(1, device=None)] == ["A", "B", "A"]
        with default_backend("b"):
            assert maker(1) == "B"
        assert maker(1, X) == "CPU"
        assert maker(1, backends.ArrayB(X)) == "B"
    assert maker(1) == "CPU"


def test_device_beats_the_backend_of_the_arguments(maker, backends):
    assert maker(1, backends.ArrayA(X), device="B") == "B"
    assert maker(1, backends.ArrayA(X)) == "A"


def test_an_unknown_device_is_refused(maker):
    with pytest.raises(DispatchTypeError, match=r"'device'[\s\S]*nowhere[\s\S]*backends: CPU"):
        maker(1, device="nowhere")
    with pytest.raises(UnknownKeyError, match="nowhere"):
        default_backend("nowhere")


def test_creation_of_the_library_takes_a_device():
    assert isinstance(ops.np.zeros((2, 3)), np.ndarray)
    meta = ops.np.zeros((2, 3), dtype="int8", device="meta")
    assert (type(meta), meta.shape, meta.dtype) == (MetaArray, (2, 3), np.int8)
    with default_backend("Meta"):
        assert isinstance(ops.np.arange(3), MetaArray)
        assert isinstance(ops.np.arange(3, device="CPU"), np.ndarray)


def test_a_functionality_runs_when_a_guard_includes_it(fresh, define, token, tracer):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), AutogradCPU=token("autograd"), Tracer=token("Tracer"))
    other = define(fresh, "g(Tensor x) -> str", CPU=token("CPU"))
    assert op(X) == "CPU"
    with include_keys("Tracer"):
        assert [op(X), other(X), op(Tensor(X))] == ["Tracer", "CPU", "autograd"]
        with below_autograd():
            assert op(Tensor(X)) == "Tracer"
        with exclude_keys("Tracer"):
            assert op(X) == "CPU"
        with exclude_keys("Tracer"), include_keys("Tracer"):
            assert op(X) == "CPU"


def test_including_a_backend(fresh, define, token, backends):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), A=token("A"), Meta=token("Meta"))
    with include_keys("A"):
        assert [op(X), op(1.0), op(MetaArray(3))] == ["A", "A", "Meta"]
    with include_keys("Meta"):
        assert [op(X), op(backends.ArrayA(X))] == ["Meta", "Meta"]


def test_excluding_a_backend_excludes_that_one_only(fresh, define, token, backends):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), A=token("A"))
    with exclude_keys("CPU"):
        assert op(backends.ArrayA(X)) == "A"
        with pytest.raises(NoKernelError, match="has no key"):
            op(X)


def test_forcing_keys_replaces_the_guards_outside(fresh, define, token, tracer):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), Tracer=token("Tracer"), Autograd=token("autograd"))
    with include_keys("Tracer"), below_autograd():
        assert op(Tensor(X)) == "Tracer"
        with force_keys():
            assert op(Tensor(X)) == "autograd"
            with pytest.raises(NoKernelError, match="has no key"):
                op(1.0)  # BackendSelect is gone too
        with force_keys(include=("Tracer",), exclude=("Autograd",)):
            assert op(Tensor(X)) == "Tracer"
        assert op(Tensor(X)) == "Tracer"


# --- kernels that do odd things -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["call", "packet", "keyword", "redispatch", "call_boxed", "get_kernel", "boxed kernel"])
def test_deep_recursion_is_a_recursion_error(fresh, define, way):
    ways = {
        "call": lambda x: op(x),
        "packet": lambda x: packet(x),
        "keyword": lambda x: op(x=x),
        "redispatch": lambda x: op.redispatch(KEYS("CPU"), x),
        "call_boxed": lambda x: op.call_boxed([x]),
        "get_kernel": lambda x: get_kernel(op, "CPU")(x),
        "boxed kernel": lambda op, stack: op(stack[0]),
    }
    op = define(fresh, "f(Tensor x) -> str")
    packet = getattr(ops, fresh.namespace).f
    fresh.impl("f", ways[way], "CPU", boxed=way == "boxed kernel")
    for x in (X, Tensor(X)):
        with pytest.raises(RecursionError):
            op(x)


CYCLE = """
import numpy, pydispatch
library = pydispatch.library.Library("cycle", "FRAGMENT")
library.define("f(Tensor x) -> Tensor")
library.impl("f", pydispatch.ops.cycle.f.default, "CPU")
try:
    pydispatch.ops.cycle.f(numpy.ones(3))
except RecursionError:
    print("recursion error")
"""


def test_a_cycle_without_python_frames_is_a_recursion_error():
    # An operator can be its own kernel. Only the dispatcher's check keeps the C stack from overflowing.
    finished = subprocess.run([sys.executable, "-c", CYCLE], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (0, "recursion error\n")


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
@pytest.mark.parametrize("how", ["handle", "library", "override"])
def test_a_kernel_that_removes_itself_finishes(new_library, define, token, wrap, how):
    library = new_library()

    def kernel(x):
        remove[how]()
        gc.collect()
        return x + 1

    op = define(library, "f(Tensor x) -> Tensor")
    handle = library.impl("f", kernel, "CPU")
    remove = {"handle": handle.remove, "library": library.close, "override": override(library, token)}
    del kernel
    result = op(wrap(X))
    assert result.tolist() == [1, 2, 3]
    with pytest.raises({"handle": NoKernelError, "library": StaleOperatorError, "override": DispatchTypeError}[how]):
        op(wrap(X))
    library.close()


def override(library, token):
    def run():
        with pytest.warns(OverrideWarning):
            library.impl("f", token("not an array"), "CPU")

    return run


def test_an_operator_redefined_while_it_runs_finishes_by_the_old_schema(fresh, define):
    def kernel(x):
        definition.remove()
        fresh.define("f(Tensor x) -> int")
        return "old"

    definition = fresh.define("f(Tensor x) -> str")
    fresh.impl("f", kernel, "CPU")
    op = getattr(ops, fresh.namespace).f.default
    assert op(X) == "old"
    assert str(op.schema.returns[0].type) == "int"


def test_a_kernel_may_call_its_own_operator_on_other_arrays(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", A=lambda x: "A>" + op(x.data), CPU=token("CPU"))
    assert op(np.ones(1)) == "CPU"


# --- found by review ---------------------------------------------------------------------------------------


def test_a_keyword_only_mutable_argument_is_counted_in_every_call(fresh):
    def note(x, *, log):
        log += 1
        return x + 0

    fresh.define("note(Tensor x, *, Tensor(a!) log) -> Tensor", note, "CPU")
    log = Tensor(np.zeros(2))
    for count in (1, 2, 3):
        getattr(ops, fresh.namespace).note(Tensor(np.ones(2)), log=log)
        assert log._version == count


def test_a_refused_mixture_of_backends_keeps_no_state_alive(fresh, backends):
    fresh.define("two(Tensor x, Tensor y) -> Tensor", lambda x, y: x, "CEA")
    two = getattr(ops, fresh.namespace).two
    x, y = Tensor(backends.ArrayA(np.ones(2))), Tensor(backends.ArrayB(np.ones(2)))
    before = sys.getrefcount(_core.current_state())
    for _ in range(100):
        with pytest.raises(DispatchTypeError, match="A and B"):
            two(x, y)
    assert sys.getrefcount(_core.current_state()) <= before + 1


def test_autograd_keys_of_unrelated_backends_do_not_mix_either(fresh, backends):
    fresh.define("one(Tensor x) -> Tensor", lambda x: x, "CEA")
    with include_keys("AutogradA", "AutogradB"), pytest.raises(DispatchTypeError, match="A and B"):
        getattr(ops, fresh.namespace).one(1.0)


def test_a_tensor_that_was_never_initialized_is_refused_by_name(fresh):
    class Forgetful(Tensor):
        def __init__(self, array):
            pass

    fresh.define("same(Tensor x) -> Tensor", lambda x: x, "CPU")
    same = getattr(ops, fresh.namespace).same
    for value in (Forgetful(np.ones(2)), Tensor.__new__(Tensor)):
        with pytest.raises(DispatchTypeError, match=r"'x' .* never initialized\ncall super"):
            same(value)
