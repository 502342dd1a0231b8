"""Captures of a compiled function may change from call to call. A Tensor that requires grad gets its gradient."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, autograd, compile, ops
from pydispatch.autograd.captures import sources_in_reach
from pydispatch.exceptions import CompilationError, DispatchTypeError
from pydispatch.library import Library
from pydispatch.operators.declare import PACKS
from tests.together import together

X, W = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 5.0])
WEIGHT: Any = None


class Model:
    """A function with a weight, as a bound method."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> Any:
        return x * self.weight

    def call(self, x: Any) -> Any:
        return self(x)


Setter = Callable[[Any], None]


def by_global(weight: Any) -> tuple[Callable[..., Any], Setter]:
    def put(value: Any) -> None:
        global WEIGHT
        WEIGHT = value

    put(weight)
    return lambda x: x * WEIGHT, put


def by_cell(weight: Any) -> tuple[Callable[..., Any], Setter]:
    def put(value: Any) -> None:
        nonlocal weight
        weight = value

    return lambda x: x * weight, put


def by_cell_of_another_function(weight: Any) -> tuple[Callable[..., Any], Setter]:
    inner, put = by_cell(weight)
    return lambda x: inner(x) * 1.0, put


def by_compiled_function(weight: Any) -> tuple[Callable[..., Any], Setter]:
    inner, put = by_cell(weight)
    compiled = compile(inner)
    return lambda x: compiled(x) * 1.0, put


def by_dict(weight: Any) -> tuple[Callable[..., Any], Setter]:
    held = {"weights": {"w": weight}}
    return lambda x: x * held["weights"]["w"], lambda value: held["weights"].update(w=value)


def by_replaced_dict(weight: Any) -> tuple[Callable[..., Any], Setter]:
    held = {"weights": (weight,)}
    return lambda x: x * held["weights"][0], lambda value: held.update(weights=(value,))


def by_list(weight: Any) -> tuple[Callable[..., Any], Setter]:
    held = [0.0, weight]
    return lambda x: x * held[1], lambda value: held.__setitem__(1, value)


def by_attribute(weight: Any) -> tuple[Callable[..., Any], Setter]:
    held = SimpleNamespace(layer=Model(weight))
    return lambda x: x * held.layer.weight, lambda value: setattr(held.layer, "weight", value)


def by_bound_method(weight: Any) -> tuple[Callable[..., Any], Setter]:
    model = Model(weight)
    return model.call, lambda value: setattr(model, "weight", value)


def by_object(weight: Any) -> tuple[Callable[..., Any], Setter]:
    model = Model(weight)
    return model, lambda value: setattr(model, "weight", value)


HOLDERS = [by_global, by_cell, by_cell_of_another_function, by_compiled_function, by_dict, by_replaced_dict, by_list,
           by_attribute, by_bound_method, by_object]


@pytest.mark.parametrize("first", [lambda: W, lambda: Tensor(W), lambda: 2.0], ids=["array", "tensor", "number"])
@together("hold", HOLDERS)
def test_what_is_captured_later_and_requires_grad_has_a_gradient(hold, first):
    f, put = hold(first())
    compiled = compile(f)
    for _ in range(3):
        compiled(X)
    for _ in range(2):
        tracked = Tensor(W * 2, requires_grad=True)
        put(tracked)
        found = compiled(X)
        np.testing.assert_array_equal(found.detach(), X * W * 2)
        np.testing.assert_array_equal(autograd.grad(found.sum(), tracked)[0], X)
        put(first())
        assert not getattr(compiled(X), "requires_grad", False)


@pytest.mark.parametrize("hold", HOLDERS)
def test_a_captured_tensor_may_come_to_require_grad(hold):
    weight = Tensor(W)
    f, _ = hold(weight)
    compiled = compile(f)
    for _ in range(3):
        compiled(X)
    weight.requires_grad_(True)
    np.testing.assert_array_equal(autograd.grad(compiled(X).sum(), weight)[0], X)
    weight.requires_grad_(False)
    assert not getattr(compiled(X), "requires_grad", False)


@pytest.mark.parametrize("hold", [by_global, by_cell, by_dict, by_list, by_attribute, by_object])
def test_calls_that_capture_what_they_did_before_are_guarded_in_c(hold):
    f, put = hold(W)
    compiled = compile(f)
    compiled(X)
    hits = compiled.hits
    compiled(X)
    assert compiled.hits == hits + 1
    put(W * 3)
    np.testing.assert_array_equal(compiled(X), X * W * 3)       # is compiled again
    np.testing.assert_array_equal(compiled(X), X * W * 3)
    put(W)
    np.testing.assert_array_equal(compiled(X), X * W)           # finds the first plan
    assert compiled.hits == hits + 3
    assert compiled.cache_info().misses == len(compiled.variants) == 2


def test_functions_that_capture_nothing_have_no_links():
    compiled = compile(lambda x: np.sin(x) * 2)
    compiled(X)
    variant, = compiled.variants
    assert variant.links == ()


def test_what_cannot_be_compared_is_looked_at_in_each_call():
    held = {Tensor(W)}
    compiled = compile(lambda x: x * next(iter(held)))
    compiled(X)
    assert compiled.variants == ()
    held.clear()
    tracked = Tensor(W, requires_grad=True)
    held.add(tracked)
    np.testing.assert_array_equal(autograd.grad(compiled(X).sum(), tracked)[0], X)


class Tenfold(np.ndarray):
    """Arrays whose sums are ten times as large."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        result = getattr(ufunc, method)(*map(np.asarray, inputs), **options)
        return 10 * result if ufunc is np.add else result


class Doubled(np.ndarray):
    """Arrays of which NumPy's functions return the double."""

    def __array_function__(self, function, types, args, kwargs):
        return 2 * function(*map(np.asarray, args), **kwargs)


@pytest.mark.parametrize("cls", [Tenfold, Doubled])
def test_arrays_with_operators_that_differ_are_refused(cls):
    special = X.view(cls)
    refused = rf"is a {cls.__name__}, expected a NumPy array\ncall the function itself"
    for argument in (special, Tensor(special)):
        with pytest.raises(DispatchTypeError, match=refused):
            compile(lambda x: x + 1.0)(argument)
    for model in (Model(special), Model(Tensor(special))):
        for x in (W, Tensor(W, requires_grad=True)):
            with pytest.raises(CompilationError, match=rf"captures a {cls.__name__}, expected NumPy arrays"):
                compile(model)(x)


def test_arrays_of_other_classes_with_numpys_operators_are_compiled():
    plain = X.view(type("Plain", (np.ndarray,), {}))
    np.testing.assert_array_equal(compile(lambda x: x + plain)(plain), X + X, strict=True)


def test_near_sources_are_found_without_a_search_of_the_whole_program():
    near, far = np.random.default_rng(0), np.random.default_rng(1)
    for roots in ((near, [[[far]]]), ([[[far]]], near), (near, ops.np.sin, [[[far]]])):
        assert [*sources_in_reach(roots, PACKS)] == [near, far]


def test_a_search_leaves_out_kernels_of_the_operators_of_packs():
    source = np.random.default_rng(0)
    with Library("np", "IMPL") as library:
        library.impl("sin", lambda x, hidden=source: x, "A")
        assert source in sources_in_reach(ops.np.sin, ())       # beside those of other tests
        assert not [*sources_in_reach(ops.np.sin, PACKS)]
