"""Calls of a compiled function use the values that the function captures at that time."""

import functools
import sys
from array import array
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, compile, func
from pydispatch.compiling.captured import MOST_LINKS, Captured, names_in_reach
from pydispatch.exceptions import PerformanceWarning
from tests.compiling.test_captures import HOLDERS

X = np.array([1.0, 2.0, 3.0])
RATE = 2.0


class Settings:
    """Attributes of a class."""

    rate: ClassVar[Any] = 2.0


class Slotted:
    """An object without a dict."""

    __slots__ = ("rate",)

    def __init__(self, rate: Any) -> None:
        self.rate = rate


class Layer:
    """An object whose methods and properties read its attributes."""

    def __init__(self, rate: Any) -> None:
        self._rate, self.n_calls = rate, 0

    @property
    def rate(self) -> Any:
        return self._rate

    def scaled(self, x: Any) -> Any:
        return x * self.rate

    def __call__(self, x: Any) -> Any:
        return self.scaled(x)


def check_follows(f, put, values=(3.0, 5.0, 3.0), n_plans=3):
    """Check that the compiled function computes with each value, twice, eagerly and under a gradient."""
    compiled = compile(f)
    np.testing.assert_array_equal(compiled(X), f(X))
    for value in values:
        put(value)
        for _ in range(2):
            np.testing.assert_array_equal(compiled(X), f(X))
            np.testing.assert_array_equal(func.grad(lambda x: compiled(x).sum())(X), func.grad(lambda x: f(x).sum())(X))
    assert compiled.cache_info().currsize == n_plans


@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("make", [float, lambda x: np.full(3, x), lambda x: Tensor(np.full(3, x)), np.float32],
                         ids=["number", "array", "tensor", "scalar"])
def test_captured_values_may_be_replaced(hold, make):
    f, put = hold(make(2.0))
    check_follows(f, put, [make(3.0), make(5.0)])


@pytest.mark.parametrize("n", [1, 512, 513, 100_000], ids=["one", "4 KiB", "over 4 KiB", "800 kB"])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.reshape(1, -1).T, lambda x: x[::2], Tensor],
                         ids=["contiguous", "transposed", "strided", "tensor"])
def test_captured_arrays_may_be_written_to(n, make):
    held = np.ones(2 * n)
    captured = make(held)
    f = lambda x: x * captured.sum()        # noqa: E731

    def put(value):
        if isinstance(captured, Tensor):
            captured[...] = value
        else:
            held[:] = value

    check_follows(f, put, n_plans=3 + (make is Tensor))


def test_a_write_to_one_element_of_a_small_array_is_seen():
    captured = np.zeros(512)
    compiled = compile(lambda x: x + captured)
    for i in (0, 17, 511):
        captured[i] = 1.0
        np.testing.assert_array_equal(compiled(np.zeros(512)), captured)


def test_a_write_to_one_element_of_a_large_tensor_is_seen():
    captured = Tensor(np.zeros(100_000))
    compiled = compile(lambda x: x + captured)
    for i in (0, 17, 99_999):
        captured[i] = 1.0
        np.testing.assert_array_equal(compiled(np.zeros(100_000)), captured)


def by_default(value):
    held = [value]

    def f(x, held=held):
        return x * held[0]

    return f, lambda value: held.__setitem__(0, value)


def by_class(value):
    Settings.rate = value
    return lambda x: x * Settings.rate, lambda value: setattr(Settings, "rate", value)


def by_slot(value):
    held = Slotted(value)
    return lambda x: x * held.rate, lambda value: setattr(held, "rate", value)


def by_property(value):
    held = Layer(value)
    return lambda x: x * held.rate, lambda value: setattr(held, "_rate", value)


def by_method_of_an_object(value):
    held = Layer(value)
    return held, lambda value: setattr(held, "_rate", value)


def by_module(value):
    module = ModuleType("tests_settings")
    sys.modules["tests_settings"] = module
    module.rate = value         # type: ignore[attr-defined]
    return lambda x: x * module.rate, lambda value: setattr(module, "rate", value)     # type: ignore[attr-defined]


def by_attribute_of_a_function(value):
    def f(x):
        return x * f.rate       # type: ignore[attr-defined]

    f.rate = value              # type: ignore[attr-defined]
    return f, lambda value: setattr(f, "rate", value)


def by_computed_name(value):
    held = SimpleNamespace(rate=value)
    return lambda x: x * getattr(held, "ra" + "te"), lambda value: setattr(held, "rate", value)


def by_function(value):
    held = {"f": lambda x: x * value}

    def put(value):
        held["f"] = lambda x: x * value

    return lambda x: held["f"](x), put


def by_partial(value):
    held = [value]
    return functools.partial(lambda held, x: x * held[0], held), lambda value: held.__setitem__(0, value)


def by_deque(value):
    held = deque([value])
    return lambda x: x * held[0], lambda value: (held.clear(), held.append(value))


def by_array_of_python(value):
    held = array("d", [value])
    return lambda x: x * held[0], lambda value: held.__setitem__(0, value)


def by_length(value):
    held = [1.0] * int(value)
    return lambda x: x * sum(held), lambda value: (held.clear(), held.extend([1.0] * int(value)))


def by_new_key(value):
    held = {0: value}
    return lambda x: x * sum(held.values()), lambda value: held.update({value: value})


def by_argument(value):
    held = [value]
    applied = compile(lambda f, x: f(x))
    scaled = lambda x: x * held[0]      # noqa: E731
    return lambda x: applied(scaled, x), lambda value: held.__setitem__(0, value)


def by_transform(value):
    held = [value]
    slope = func.grad(lambda x: (x * x).sum() * held[0])
    return lambda x: slope(x), lambda value: held.__setitem__(0, value)


@pytest.mark.parametrize("hold", [
    by_default, by_class, by_slot, by_property, by_method_of_an_object, by_module, by_attribute_of_a_function,
    by_computed_name, by_function, by_partial, by_deque, by_array_of_python, by_length, by_argument, by_transform])
def test_values_are_found_wherever_code_may_read_them(hold):
    f, put = hold(2.0)
    check_follows(f, put)


def test_new_keys_are_seen():
    f, put = by_new_key(2.0)
    check_follows(f, put, (3.0, 5.0))


def test_globals_may_be_rebound():
    global RATE
    before = RATE
    try:
        compiled = compile(lambda x: x * RATE)
        for value in (2.0, 3.0, 2.0):
            RATE = value
            np.testing.assert_array_equal(compiled(X), X * value)
    finally:
        RATE = before


def test_what_no_code_reads_compiles_nothing_again():
    layer = Layer(2.0)
    compiled = compile(layer.scaled)
    for i in range(3):
        layer.n_calls = i
        compiled(X)
    assert compiled.cache_info().misses == 1


def test_an_attribute_is_not_a_global_of_that_name(monkeypatch):
    compiled = compile(lambda x: x.T * 2)
    for value in range(3):
        monkeypatch.setitem(globals(), "T", value)
        compiled(X)
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("change", [
    lambda held: held["calls"].append(1), lambda held: held.update(n=held["n"] + 1),
    lambda held: held.update({len(held): 1})], ids=["list", "key", "new key"])
def test_what_the_function_itself_changes_compiles_nothing_again(change):
    held = {"calls": [], "n": 0, "rate": 2.0}
    compiled = compile(lambda x: (change(held), x * held["rate"])[1])
    for _ in range(4):
        np.testing.assert_array_equal(compiled(X), X * 2)
    np.testing.assert_array_equal(compiled(X[:2]), X[:2] * 2)
    assert compiled.cache_info().misses == 2
    assert len(held["calls"]) + held["n"] + len(held) - 3 <= 2


def test_a_counter_of_traces_compiles_nothing_again():
    n = 0

    def f(x):
        nonlocal n
        n += 1
        return x * 2

    compiled = compile(f)
    for _ in range(3):
        compiled(X)
    assert n == 1


def test_a_value_that_changes_in_each_call_is_worth_a_warning_that_names_it():
    rate = 0.0
    compiled = compile(lambda x: x * rate)
    for i in range(8):
        rate = float(i)
        compiled(X)
    rate = 8.0
    with pytest.warns(PerformanceWarning, match=r"because the variable 'rate' is 8\.0 and was 7\.0 \(at "):
        np.testing.assert_array_equal(compiled(X), X * rate)
    assert "the variable 'rate' is 3.0 and was 2.0" in compiled.explain(X)


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
def test_plans_for_few_captured_values_are_kept():
    captured = np.zeros(3)
    compiled = compile(lambda x: x * captured)
    for i in range(30):
        captured[:] = i
        np.testing.assert_array_equal(compiled(X), X * i)
    assert compiled.cache_info().currsize == len(compiled.variants) == 9


def test_many_captured_values_are_compared_by_python():
    held = [float(i) for i in range(MOST_LINKS + 1)]
    compiled = compile(lambda x: x * sum(held))
    np.testing.assert_array_equal(compiled(X), X * sum(held))
    assert compiled.variants == ()
    held[-1] = 0.0
    np.testing.assert_array_equal(compiled(X), X * sum(held))


def test_the_last_of_many_captured_values_is_seen():
    held = [1.0] * 10_000
    compiled = compile(lambda x: x * sum(held))
    np.testing.assert_array_equal(compiled(X), X * 10_000)
    held[-1] = 0.0
    np.testing.assert_array_equal(compiled(X), X * 9_999)
    assert len(compiled.variants) == 2


def test_equal_values_share_a_plan():
    held = {"w": np.ones(3), "n": 2}
    compiled = compile(lambda x: x * held["w"] * held["n"])
    for _ in range(3):
        held.update(w=np.ones(3), n=int("2"))
        compiled(X)
    assert compiled.cache_info().misses == 1


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, -0.0, float("nan"), 1.0, 1j]),
    st.text("ab", max_size=2), st.binary(max_size=2),
    st.lists(st.integers(0, 2), max_size=3).map(lambda items: np.array(items, "f8")),
    st.sampled_from([np.float32(1), np.float64(1), np.int64(1)]))
TREES = st.recursive(VALUES, lambda inner: st.one_of(
    st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    inner.map(lambda value: SimpleNamespace(rate=value))), max_leaves=6)


def described(value):
    """Return text that is equal for equal values, as an independent oracle."""
    if isinstance(value, SimpleNamespace):
        return f"namespace of {described(value.rate)}"
    if isinstance(value, dict):
        return f"dict of {[(key, described(part)) for key, part in value.items()]}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} of {list(map(described, value))}"
    return f"{type(value)} {value!r} {getattr(value, 'shape', '')}"


@settings(max_examples=300)
@given(TREES, TREES)
def test_keys_are_equal_for_equal_values_only(one, other):
    def key_of(value):
        f = lambda: value.rate      # noqa: E731
        return Captured((f,), names_in_reach((f,))).key

    assert (key_of(one) == key_of(other)) == (described(one) == described(other))
