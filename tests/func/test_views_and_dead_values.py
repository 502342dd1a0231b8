"""Views of tangents, batches without a batch axis, values of dead interpreters, kernels that come and go."""

import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, higher_order, library
from pydispatch.autograd import Function
from pydispatch.exceptions import AutogradError, OverrideWarning, VmapError
from pydispatch.func import functionalize, grad, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves
from tests.together import together

X = np.array(2.0)


# --- views and aliases -----------------------------------------------------------------------------------------------


def view_of_tracked_memory() -> Tensor:
    """Return a view that was made before its memory was written to, and that nobody has looked at since."""
    base = Tensor(np.zeros(3))
    view = base[0:2]
    x = Tensor(np.ones(3))
    x.requires_grad = True
    base[:] = x * 2
    return view


def test_a_view_that_became_tracked_is_no_constant_to_a_batch() -> None:
    view = view_of_tracked_memory()
    result = vmap(lambda row: row * view)(np.ones((4, 2)))
    assert isinstance(result, Tensor)
    assert result.requires_grad


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_tangents_are_in_memory_of_their_own(wrap: Callable[[Any], Any]) -> None:
    given = np.arange(3.0)
    tangents = jvp(lambda x: (x + 1, x + 2), (wrap(np.ones(3)),), (wrap(given),))[1]
    first, second = [np.asarray(tangent) for tangent in tangents]
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, given)
    assert not np.shares_memory(second, given)
    one = jvp(lambda x: x + 1, (wrap(np.ones(3)),), (wrap(given),))[1]
    assert not np.shares_memory(np.asarray(one), given)


def test_tangents_of_several_outputs_are_values_of_the_level_around() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    found = vmap(lambda row: jvp(lambda x: (x + 1, x + 2), (row,), (row,))[1][1])(rows)
    np.testing.assert_array_equal(found, rows)
    tangents = jvp(lambda x: (x, x * 2), (np.float64(3.0),), (X,))[1]
    assert [type(tangent) for tangent in tangents] == [np.float64, np.float64]


# --- what is no batch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [np.array(3.0), np.float64(3.0), np.ones(7)], ids=["0-d", "scalar", "other size"])
def test_a_kernel_that_loses_the_batch_is_refused(result: Any) -> None:
    with pytest.warns(OverrideWarning):
        handle = library.register_kernel("np::add", "CPU", lambda x1, x2, **options: result)
    try:
        with pytest.raises(VmapError, match="batch of 2"):
            vmap(lambda x: x + x)(np.ones((2, 3)))
    finally:
        handle.remove()


def test_a_batch_has_an_axis() -> None:
    with pytest.raises(VmapError, match="batch of 2"):
        _core.wrap_value_at(_core.Vmap(2), np.array(3.0))


# --- values of transforms that no longer run, as results --------------------------------------------------------------


def value_of_a_transform_that_is_over(kind: str, x: Any) -> Any:
    """Return a value of an interpreter around `x` that was kept until the interpreter no longer ran."""
    kept = []

    def keep(y: Any) -> Any:
        kept.append(y)
        return (y * y).sum()

    if kind == "grad":
        grad(keep)(x)
    else:
        jvp(keep, (x,), (x,))
    return kept[0]


ONE = np.array(1.0)
TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "grad": (lambda f: grad(f)(X), 1.0),
    "grad, tuple": (lambda f: grad(f, argnums=(-1,))(X)[0], 1.0),
    "value_and_grad": (lambda f: value_and_grad(f)(X), (2.0, 1.0)),
    "vjp": (lambda f: vjp(f, X)[1](ONE)[0], 1.0),
    "vjp, two": (lambda f: vjp(lambda x: (f(x), x), X)[1]((ONE, ONE))[0], 2.0),
    "jvp": (lambda f: jvp(f, (X,), (ONE,)), (2.0, 1.0)),
    "jvp, two": (lambda f: jvp(lambda x: (f(x), x), (X,), (ONE,))[1], (1.0, 1.0)),
    "linearize": (lambda f: linearize(f, X)[1](ONE), 1.0),
    "jacrev": (lambda f: jacrev(f)(X), 1.0),
    "jacfwd": (lambda f: jacfwd(f)(X), 1.0),
    "vmap": (lambda f: vmap(f)(np.array([2.0, 3.0])), [2.0, 3.0]),
    "vmap, two": (lambda f: vmap(lambda x: (f(x), x))(np.array([2.0, 3.0])), ([2.0, 3.0], [2.0, 3.0])),
    "aux": (lambda f: grad(lambda x: (x * 1, f(x)), has_aux=True)(X), (1.0, 2.0)),
}


@pytest.mark.parametrize("kind", ["grad", "jvp"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_result_of_a_transform_that_is_over_is_its_value(name: str, kind: str) -> None:
    transform, expected = TRANSFORMS[name]
    found = transform(lambda x: value_of_a_transform_that_is_over(kind, x))
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for value, wanted in pairs:
        assert not isinstance(value, _core.Wrapper)
        np.testing.assert_array_equal(value, wanted)


# --- kernels that come and go ----------------------------------------------------------------------------------------


class KernelError(Exception):
    """The error that a kernel of these tests raises."""


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
def test_a_kernel_may_remove_itself_from_a_batched_call(raises: bool) -> None:
    is_armed = False

    def kernel(x1: Any, x2: Any, **options: Any) -> Any:
        if is_armed:
            handle.remove()
            gc.collect()
            if raises:
                raise KernelError
        return np.add(x1, x2)

    with pytest.warns(OverrideWarning):
        handle = library.register_kernel("np::add", "CPU", kernel)
    rows = np.ones((2, 3))
    vmap(lambda x: x + x)(rows)
    is_armed = True
    if raises:
        with pytest.raises(KernelError):
            vmap(lambda x: x + x)(rows)
    else:
        np.testing.assert_array_equal(vmap(lambda x: x + x)(rows), rows * 2)
    np.testing.assert_array_equal(ops.np.add(rows, rows), rows * 2)


# --- more of the same ------------------------------------------------------------------------------------------------


VIEWS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda x: (x + 1).reshape(3, 1),
    "slice": lambda x: (x + 1)[:2],
    "broadcast": lambda x: ops.np.broadcast_to(x + 1, (2, 3)),
    "squeeze": lambda x: ops.np.squeeze(ops.np.expand_dims(x + 1, 0)),
    "split": lambda x: ops.np.split(x + 1, 3),
    "two": lambda x: ((x + 1)[1:], x + 2),
}


@pytest.mark.parametrize("name", VIEWS)
def test_tangents_of_views_of_new_memory_are_in_new_memory(name: str) -> None:
    given = np.arange(3.0)
    tangents = jvp(VIEWS[name], (np.ones(3),), (given,))[1]
    for tangent in tree_leaves(tangents):
        assert not np.shares_memory(tangent, given)


def test_tangents_written_to_change_no_other() -> None:
    def f(x: Any) -> Any:
        given = x * 1
        first, second = jvp(lambda y: ((y + 1)[1:], y + 2), (x,), (given,))[1]
        first[:] = 0
        return given.sum() + second.sum()

    np.testing.assert_array_equal(grad(f)(np.ones(3)), np.full(3, 2.0))


def test_what_was_made_in_inference_mode_is_a_constant_of_grad() -> None:
    with autograd.inference_mode():
        constant = Tensor(np.ones(3)) * 2
        gradient = grad(lambda x: (x * constant).sum())(np.ones(3))
        pull = vjp(lambda x: x * constant, np.ones(3))[1]
        ops.np.multiply_(constant, 5.0)
        pulled, = pull(np.ones(3))
    np.testing.assert_array_equal(pulled, np.full(3, 2.0))
    np.testing.assert_array_equal(gradient, np.full(3, 2.0))


class Product(Function):
    """x * y, by its author's formulas."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, y: Any) -> Any:
        return x * y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, y = ctx.saved_tensors
        return gradient * y, gradient * x


@pytest.mark.parametrize("around", [lambda f: f, vmap], ids=["grad", "vmap of grad"])
def test_what_was_made_in_inference_mode_may_be_saved_by_a_function(around: Callable[[Any], Any]) -> None:
    with autograd.inference_mode():
        constant = Tensor(np.ones(3)) * 2
        gradient = around(grad(lambda x: Product.apply(x, constant).sum()))(np.ones((2, 3)))
    np.testing.assert_array_equal(gradient, np.full((2, 3), 2.0))


def test_hooks_on_a_batch_are_not_lost_without_a_word() -> None:
    def f(x: Any) -> Any:
        y = x * x
        y.register_hook(lambda gradient: gradient * 2)
        return y.sum()

    rows = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(vmap(grad(f))(rows), rows * 4)
    with pytest.raises(AutogradError, match="register_hook"):
        grad(lambda z: vmap(f)(z).sum())(rows)


def test_views_of_a_call_that_recurses_too_deeply_are_let_go_of() -> None:
    kept: list[weakref.ref[np.ndarray]] = []

    def multiply_at(depth: int, x: Any, y: Any) -> None:
        if depth:
            multiply_at(depth - 1, x, y)
        else:
            ops.np.multiply(x, y)

    def f(x: Any, y: Any) -> Any:
        for depth in range(200):
            with suppress(RecursionError):
                multiply_at(depth, x, y)
        return x

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 60)
    try:
        batch = np.ones(2)
        kept.append(weakref.ref(batch))
        vmap(f)(batch, np.ones((2, 3, 4)))
    finally:
        sys.setrecursionlimit(limit)
    del batch
    gc.collect()
    assert kept[0]() is None


# --- captured values in bodies of operators on functions --------------------------------------------------------------


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "functionalize of it": lambda x, y: functionalize(lambda z: z * y)(x),
    "functionalize with it": lambda x, y: functionalize(lambda z, *, k: z * k)(y, k=x),
    "functionalize in a tuple": lambda x, y: functionalize(lambda pair: pair[0] * pair[1])((x, y)),
    "detach": lambda x, y: x.detach() * y,
}
OPERATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cond": lambda body, x, y: cond(True, lambda y: body(x, y), lambda y: y * 1, (y,)),
    "map": lambda body, x, y: higher_order.map(lambda y: body(x, y), y[None])[0],
    "scan": lambda body, x, y: scan(lambda carry, y: (carry * 1, body(x, y)), X, y[None])[1][0],
    "while_loop": lambda body, x, y: while_loop(
        lambda k, y: ops.np.less(k, 1), lambda k, y: (k + 1, body(x, y)), (np.array(0), y))[1],
}


def gradient_on_the_tape(f: Callable[[Any], Any]) -> Any:
    leaf = Tensor(np.arange(1.0, 4.0))
    leaf.requires_grad = True
    return autograd.grad((f(leaf).sum(),), (leaf,))[0]


@pytest.mark.parametrize("gradient", [lambda f: grad(lambda x: f(x).sum())(np.arange(1.0, 4.0)), gradient_on_the_tape],
                         ids=["grad", "tape"])
@pytest.mark.parametrize("operator", OPERATORS)
@together("body", BODIES)
def test_a_captured_value_is_that_of_the_body_everywhere(
    body: str, operator: str, gradient: Callable[[Any], Any]
) -> None:
    expected = gradient(lambda x: BODIES[body](x, x * 0.5))
    found = gradient(lambda x: OPERATORS[operator](BODIES[body], x, x * 0.5))
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected))
