"""Random operators under transforms.

The oracle is NumPy: a fresh generator from the same seed, and what is drawn from it by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.autograd import Function
from pydispatch.exceptions import VmapError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from pydispatch.tracing import make_fx

SEED = 7
MODES = ("error", "same", "different")
B = 3
LOC = np.array([[0.5, -1.0], [2.0, 3.0], [-4.0, 0.25]])
"""A parameter for each of B examples."""
SCALE = np.array([1.0, 2.0, 0.5])
XS = np.arange(6.0).reshape(3, 2)


def generator() -> np.random.Generator:
    return np.random.default_rng(SEED)


class Drawn:
    """The draws of a program, and the state in which it leaves its generator."""

    def __init__(self, program: Callable[[np.random.Generator], Any]) -> None:
        rng = generator()
        self.result = program(rng)
        self.state = rng.bit_generator.state

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Drawn)
        np.testing.assert_array_equal(self.result, other.result, strict=True)
        return bool(self.state == other.state)

    __hash__ = None


def assert_refused(program: Callable[[np.random.Generator], Any], pattern: str) -> None:
    """Assert that a VmapError is raised before anything is drawn."""
    rng = generator()
    with pytest.raises(VmapError, match=pattern):
        program(rng)
    assert rng.bit_generator.state == generator().bit_generator.state


def repeated(array: Any, n: int = B) -> np.ndarray:
    return np.repeat(np.asarray(array)[np.newaxis], n, 0)


def mapped(draw: Callable[..., Any], mode: str, *batches: Any, in_dims: Any = 0) -> Callable[..., Any]:
    """Return a program: the draw for each example of a batch."""
    return lambda rng: vmap(lambda *examples: draw(rng, *examples), in_dims, randomness=mode)(*batches)


REFUSED = (r"random_\w+ draws random numbers in vmap, called at .*test_randomness.py:\d+, whose randomness is 'error'"
           r'(.|\n)*randomness="different"(.|\n)*randomness="same"')
ONE_ARRAY = (r"argument 'a', of shape .*, is unbatched and cannot hold a draw for each example(.|\n)*"
             r"call ops\.np\.random_\w+_like, which")
NOT_ONE = r"argument '\w+', of shape .*, is batched in vmap(.|\n)*randomness=\"different\""

# --- factories -------------------------------------------------------------------------------------------------------

SIZES = [(), (2,), (2, 4), (0, 2)]
FACTORIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "uniform": (lambda g, size: ops.np.random_uniform(g, size=size), lambda g, size: g.uniform(size=size)),
    "uniform of numbers": (
        lambda g, size: ops.np.random_uniform(g, -1, 3.5, size), lambda g, size: g.uniform(-1, 3.5, size)),
    "normal": (lambda g, size: ops.np.random_normal(g, size=size), lambda g, size: g.normal(size=size)),
    "normal in float32": (lambda g, size: ops.np.random_normal(g, size=size, dtype=np.dtype(np.float32)),
                          lambda g, size: np.asarray(g.normal(size=size)).astype(np.float32)),
    "exponential": (lambda g, size: ops.np.random_exponential(g, 2.0, size), lambda g, size: g.exponential(2.0, size)),
    "poisson": (lambda g, size: ops.np.random_poisson(g, 3.0, size), lambda g, size: g.poisson(3.0, size)),
    "binomial": (lambda g, size: ops.np.random_binomial(g, 9, 0.25, size), lambda g, size: g.binomial(9, 0.25, size)),
    "integers": (lambda g, size: ops.np.random_integers(g, 9, size=size), lambda g, size: g.integers(9, size=size)),
    "integers of a dtype": (
        lambda g, size: ops.np.random_integers(g, 0, 1, size, np.dtype(np.int8), endpoint=True),
        lambda g, size: g.integers(0, 1, size, np.int8, True)),
}
EACH_FACTORY = pytest.mark.parametrize(("draw", "numpy_draw"), FACTORIES.values(), ids=FACTORIES)


@EACH_FACTORY
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_random_factories(draw, numpy_draw, size):
    assert_refused(mapped(lambda rng, x: draw(rng, size), "error", XS), REFUSED)
    same = Drawn(mapped(lambda rng, x: draw(rng, size), "same", XS))
    assert same == Drawn(lambda rng: repeated(numpy_draw(rng, size)))
    different = Drawn(mapped(lambda rng, x: draw(rng, size), "different", XS))
    assert different == Drawn(lambda rng: numpy_draw(rng, (B, *size)))


@EACH_FACTORY
def test_factories_without_a_size(draw, numpy_draw):
    assert Drawn(mapped(lambda rng, x: draw(rng, None), "same", XS)) == Drawn(
        lambda rng: repeated(numpy_draw(rng, None)))
    assert Drawn(mapped(lambda rng, x: draw(rng, None), "different", XS)) == Drawn(lambda rng: numpy_draw(rng, (B,)))


def test_one_draw_is_no_batch():
    rng = generator()
    result = vmap(lambda x: ops.np.random_normal(rng, size=2), out_dims=None, randomness="same")(XS)
    np.testing.assert_array_equal(result, generator().normal(size=2), strict=True)
    with pytest.raises(ValueError, match="out_dims"):
        vmap(lambda x: ops.np.random_normal(rng, size=2), out_dims=None, randomness="different")(XS)


def test_several_draws_follow_one_another():
    def draws(rng: Any, x: Any) -> Any:
        first = ops.np.random_normal(rng, size=2)
        return x + first * ops.np.random_uniform(rng)

    def by_hand(rng: Any, *batch: int) -> Any:
        first = rng.normal(size=(*batch, 2))
        return XS + first * np.asarray(rng.uniform(size=batch))[..., np.newaxis]

    assert Drawn(mapped(draws, "different", XS)) == Drawn(lambda rng: by_hand(rng, B))
    assert Drawn(mapped(draws, "same", XS)) == Drawn(by_hand)


@pytest.mark.parametrize("mode", ["same", "different"])
def test_tensors_give_tensors(mode):
    rng = generator()
    assert type(vmap(lambda x: x + ops.np.random_normal(rng), randomness=mode)(Tensor(XS))) is Tensor


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single_batches(n):
    xs = np.ones((n, 2))
    rng = generator()
    found = vmap(lambda x: ops.np.random_normal(rng, size=(4,)), randomness="different")(xs)
    np.testing.assert_array_equal(found, generator().normal(size=(n, 4)), strict=True)
    orders = vmap(lambda x: ops.np.random_permutation(rng, 4), randomness="different")(xs)
    assert (orders.shape, orders.dtype) == ((n, 4), np.int64)
    shuffled = vmap(lambda x: ops.np.random_permutation(rng, x), randomness="different")(xs)
    assert (shuffled.shape, shuffled.dtype) == (xs.shape, xs.dtype)
    captured = vmap(lambda x: ops.np.random_permutation(rng, np.ones((5, 2))), randomness="different")(xs)
    assert captured.shape == (n, 5, 2)


# --- parameters ------------------------------------------------------------------------------------------------------

# name: (draw of an example, its batches, in_dims, the same by NumPy on whole batches)
PARAMETERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, Callable[..., Any]]] = {
    "loc": (ops.np.random_normal, (LOC,), 0, lambda g: g.normal(LOC)),
    "scale by name": (lambda g, scale: ops.np.random_normal(g, scale=scale), (SCALE,), 0, lambda g: g.normal(0, SCALE)),
    "loc and scale of other ranks": (
        ops.np.random_normal, (LOC, SCALE), 0, lambda g: g.normal(LOC, SCALE[:, np.newaxis])),
    "loc for each, scale for all": (
        lambda g, loc: ops.np.random_normal(g, loc, np.array([1.0, 3.0])), (LOC,), 0,
        lambda g: g.normal(LOC, np.array([1.0, 3.0]))),
    "scale of more axes for all": (
        lambda g, loc: ops.np.random_normal(g, loc, np.ones((4, 1))), (LOC,), 0,
        lambda g: g.normal(LOC[:, np.newaxis, :], np.ones((4, 1)))),
    "loc with a size": (
        lambda g, loc: ops.np.random_normal(g, loc, size=(4, 2)), (LOC,), 0,
        lambda g: g.normal(LOC[:, np.newaxis, :], 1.0, (B, 4, 2))),
    "scale with a size": (
        lambda g, scale: ops.np.random_normal(g, 1.0, scale, (2, 3)), (SCALE,), 0,
        lambda g: g.normal(1.0, SCALE[:, np.newaxis, np.newaxis], (B, 2, 3))),
    "a size of batch size": (
        lambda g, scale: ops.np.random_normal(g, 1.0, scale, (3,)), (SCALE,), 0,
        lambda g: g.normal(1.0, SCALE[:, np.newaxis], (B, 3))),
    "loc along another axis": (ops.np.random_normal, (LOC.T,), 1, lambda g: g.normal(LOC)),
    "low and high": (ops.np.random_uniform, (LOC, LOC + 1), 0, lambda g: g.uniform(LOC, LOC + 1)),
    "high alone": (lambda g, high: ops.np.random_uniform(g, high=high), (SCALE,), 0, lambda g: g.uniform(0, SCALE)),
    "exponential": (ops.np.random_exponential, (SCALE,), 0, lambda g: g.exponential(SCALE)),
    "poisson": (ops.np.random_poisson, (SCALE,), 0, lambda g: g.poisson(SCALE)),
    "binomial": (
        lambda g, n, p: ops.np.random_binomial(g, n, p, 2), (np.array([5, 9, 2]), SCALE / 2), 0,
        lambda g: g.binomial(np.array([[5], [9], [2]]), SCALE[:, np.newaxis] / 2, (B, 2))),
    "integers": (
        lambda g, low: ops.np.random_integers(g, low, 9, endpoint=True), (np.array([5, 9, 2]),), 0,
        lambda g: g.integers(np.array([5, 9, 2]), 9, endpoint=True)),
    "float32": (
        lambda g, loc: ops.np.random_normal(g, loc, dtype=np.dtype(np.float32)), (LOC,), 0,
        lambda g: g.normal(LOC).astype(np.float32)),
}
EACH_PARAMETER = pytest.mark.parametrize(
    ("draw", "batches", "in_dims", "numpy_draw"), PARAMETERS.values(), ids=PARAMETERS)


@EACH_PARAMETER
def test_parameters_that_differ(draw, batches, in_dims, numpy_draw):
    assert_refused(mapped(draw, "error", *batches, in_dims=in_dims), REFUSED)
    assert_refused(mapped(draw, "same", *batches, in_dims=in_dims), NOT_ONE)
    assert Drawn(mapped(draw, "different", *batches, in_dims=in_dims)) == Drawn(numpy_draw)


@EACH_PARAMETER
def test_parameters_that_all_examples_share(draw, batches, in_dims, numpy_draw):
    first = [np.take(batch, 0, in_dims) for batch in batches]

    def alone(rng: Any) -> Any:
        return draw(rng, *first)

    shape = np.shape(alone(generator()))
    assert_refused(mapped(lambda rng, x: alone(rng), "error", XS), REFUSED)
    assert Drawn(mapped(lambda rng, x: alone(rng), "same", XS)) == Drawn(lambda rng: repeated(alone(rng)))
    different = Drawn(mapped(lambda rng, x: alone(rng), "different", XS))
    assert different.result.shape == (B, *shape)
    one_after_the_other = Drawn(lambda rng: np.stack([alone(rng) for _ in range(B)]))
    assert different == one_after_the_other     # element by element in this order, as one draw of all


def test_parameters_that_do_not_broadcast_to_the_size():
    rng = generator()
    with pytest.raises(ValueError, match=r"parameter has shape \(2,\), which does not broadcast to size \(3,\)"):
        vmap(lambda loc: ops.np.random_normal(rng, loc, size=3), randomness="different")(LOC)
    assert rng.bit_generator.state == generator().bit_generator.state


# --- draws like an array, and into one -------------------------------------------------------------------------------

FILLS = {"normal": ("normal", (LOC,)), "uniform": ("uniform", (-SCALE,))}
EACH_FILL = pytest.mark.parametrize("name", FILLS)


def like(name: str) -> Any:
    return getattr(ops.np, f"random_{name}_like")


def into(name: str) -> Any:
    return getattr(ops.np, f"random_{name}_like_")


@EACH_FILL
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_like_what_differs(name, dtype):
    xs = XS.astype(dtype)
    assert_refused(mapped(lambda rng, x: like(name)(x, rng), "error", xs), REFUSED)
    assert Drawn(mapped(lambda rng, x: like(name)(x, rng), "same", xs)) == Drawn(
        lambda rng: repeated(getattr(rng, name)(size=2)).astype(dtype))
    assert Drawn(mapped(lambda rng, x: like(name)(x, rng), "different", xs)) == Drawn(
        lambda rng: getattr(rng, name)(size=(B, 2)).astype(dtype))


@EACH_FILL
def test_like_what_all_examples_share(name):
    shared = np.zeros((2, 4))
    assert_refused(mapped(lambda rng, x: like(name)(shared, rng), "error", XS), REFUSED)
    assert Drawn(mapped(lambda rng, x: like(name)(shared, rng), "same", XS)) == Drawn(
        lambda rng: repeated(getattr(rng, name)(size=(2, 4))))
    assert Drawn(mapped(lambda rng, x: like(name)(shared, rng), "different", XS)) == Drawn(
        lambda rng: getattr(rng, name)(size=(B, 2, 4)))
    assert not shared.any()


def test_like_with_parameters_that_differ():
    shared = np.zeros((4, 2))
    for xs, draw in ((XS, lambda rng, loc, scale: ops.np.random_normal_like(loc, rng, loc, scale)),
                     (XS, lambda rng, loc, scale: ops.np.random_normal_like(shared[0], rng, loc, scale))):
        assert_refused(mapped(draw, "same", xs, SCALE), NOT_ONE)
        assert Drawn(mapped(draw, "different", xs, SCALE)) == Drawn(lambda rng: rng.normal(XS, SCALE[:, np.newaxis]))
    assert Drawn(mapped(lambda rng, loc: ops.np.random_normal_like(shared, rng, loc), "different", XS)) == Drawn(
        lambda rng: rng.normal(XS[:, np.newaxis, :], 1.0, (B, 4, 2)))


@EACH_FILL
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_into_what_differs(name, dtype):
    def program(rng: Any, xs: Any, mode: str) -> Any:
        return vmap(lambda x: into(name)(x, rng), randomness=mode)(xs)

    xs = XS.astype(dtype)
    assert_refused(lambda rng: program(rng, xs, "error"), REFUSED)
    np.testing.assert_array_equal(xs, XS)
    for mode, expected in (("same", lambda rng: repeated(getattr(rng, name)(size=2)).astype(dtype)),
                           ("different", lambda rng: getattr(rng, name)(size=(B, 2)).astype(dtype))):
        xs = XS.astype(dtype)
        found = Drawn(lambda rng, xs=xs, mode=mode: program(rng, xs, mode))
        assert found == Drawn(expected)
        np.testing.assert_array_equal(xs, found.result, strict=True)


@EACH_FILL
def test_into_what_all_examples_share(name):
    for mode in ("error", "different"):
        shared = np.zeros((2, 4))
        assert_refused(mapped(lambda rng, x, shared=shared: into(name)(shared, rng), mode, XS),
                       REFUSED if mode == "error" else ONE_ARRAY)
        assert not shared.any()
    shared = np.zeros((2, 4))
    found = Drawn(mapped(lambda rng, x: into(name)(shared, rng), "same", XS))
    assert found == Drawn(lambda rng: repeated(getattr(rng, name)(size=(2, 4))))
    np.testing.assert_array_equal(shared, found.result[0])


def test_into_with_parameters():
    def program(rng: Any, target: Any, mode: str, scale_dim: Any = 0) -> Any:
        scale = SCALE if scale_dim == 0 else 2.0
        return vmap(lambda x, scale: ops.np.random_normal_like_(x, rng, -1.0, scale), (0, scale_dim), randomness=mode)(
            target, scale)

    assert_refused(lambda rng: program(rng, XS.copy(), "same"), NOT_ONE)
    assert Drawn(lambda rng: program(rng, XS.copy(), "different")) == Drawn(
        lambda rng: rng.normal(-1.0, SCALE[:, np.newaxis], (B, 2)))
    assert Drawn(lambda rng: program(rng, XS.copy(), "same", None)) == Drawn(
        lambda rng: repeated(rng.normal(-1.0, 2.0, 2)))
    shared = np.zeros(2)
    for mode in ("same", "different"):
        assert_refused(
            mapped(lambda rng, x: ops.np.random_normal_like_(shared, rng, x), mode, XS), "random_normal_like_")
    assert not shared.any()


def test_fills_of_what_cannot_hold_the_draw():
    for mode in ("same", "different"):
        for draw in (ops.np.random_normal_like, ops.np.random_normal_like_):
            with pytest.raises(TypeError, match=r"float64.*int64"):
                vmap(lambda x, draw=draw: draw(x, generator()), randomness=mode)(XS.astype(int))


# --- permutations ----------------------------------------------------------------------------------------------------


def test_permutations_of_numbers():
    assert_refused(mapped(lambda rng, x: ops.np.random_permutation(rng, 5), "error", XS), REFUSED)
    assert Drawn(mapped(lambda rng, x: ops.np.random_permutation(rng, 5), "same", XS)) == Drawn(
        lambda rng: repeated(rng.permutation(5)))
    assert Drawn(mapped(lambda rng, x: ops.np.random_permutation(rng, 5), "different", XS)) == Drawn(
        lambda rng: np.stack([rng.permutation(5) for _ in range(B)]))


CUBE = np.arange(24.0).reshape(3, 4, 2)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_permutations_of_arrays(axis):
    def draw(rng: Any, x: Any) -> Any:
        return ops.np.random_permutation(rng, x, axis)

    def same(rng: Any) -> Any:
        """Return the permutation of places, applied to every example."""
        return np.take(CUBE, rng.permutation(CUBE[0].shape[axis]), axis if axis < 0 else axis + 1)

    assert_refused(mapped(draw, "error", CUBE), REFUSED)
    assert Drawn(mapped(draw, "same", CUBE)) == Drawn(same)
    assert Drawn(mapped(draw, "different", CUBE)) == Drawn(
        lambda rng: np.stack([rng.permutation(example, axis) for example in CUBE]))
    captured = CUBE[0]
    assert Drawn(mapped(lambda rng, x: draw(rng, captured), "same", XS)) == Drawn(
        lambda rng: repeated(rng.permutation(captured, axis)))
    assert Drawn(mapped(lambda rng, x: draw(rng, captured), "different", XS)) == Drawn(
        lambda rng: np.stack([rng.permutation(captured, axis) for _ in range(B)]))


@pytest.mark.parametrize("mode", ["same", "different"])
def test_permutations_along_no_axis_of_an_example(mode):
    with pytest.raises(IndexError, match="axis 2 is out of bounds for array of dimension 2"):
        vmap(lambda x: ops.np.random_permutation(generator(), x, 2), randomness=mode)(CUBE)


# --- nested ----------------------------------------------------------------------------------------------------------

OUTER, INNER = np.zeros(2), np.zeros(3)
EACH_PAIR = pytest.mark.parametrize(("outer", "inner"), [(outer, inner) for outer in MODES for inner in MODES])


def nested(draw: Callable[..., Any], outer: str, inner: str) -> Callable[..., Any]:
    """Return a program: draws for 2 x 3 examples."""
    return lambda rng: vmap(lambda x: vmap(lambda y: draw(rng, x, y), randomness=inner)(INNER), randomness=outer)(OUTER)


def nested_shape(outer: str, inner: str, size: tuple[int, ...]) -> tuple[tuple[int, ...], Callable[..., Any]]:
    """Return the size of the one draw that is made, and how it becomes the result: the inner interpreter decides first.
    """
    shape = (*((2,) if outer == "different" else ()), *((3,) if inner == "different" else ()), *size)

    def spread(drawn: Any) -> np.ndarray:
        drawn = np.asarray(drawn)
        drawn = drawn if outer == "different" else drawn[np.newaxis]
        drawn = drawn if inner == "different" else drawn[:, np.newaxis]
        return np.array(np.broadcast_to(drawn, (2, 3, *size)))

    return shape, spread


@EACH_PAIR
@EACH_FACTORY
def test_nested_factories(draw, numpy_draw, outer, inner):
    program = nested(lambda rng, x, y: draw(rng, (4,)), outer, inner)
    if "error" in (outer, inner):
        assert_refused(program, REFUSED)
        return
    shape, spread = nested_shape(outer, inner, (4,))
    assert Drawn(program) == Drawn(lambda rng: spread(numpy_draw(rng, shape)))


@EACH_PAIR
def test_nested_permutations(outer, inner):
    program = nested(lambda rng, x, y: ops.np.random_permutation(rng, 4), outer, inner)
    if "error" in (outer, inner):
        assert_refused(program, REFUSED)
        return

    def by_hand(rng: Any) -> Any:
        """Draw by one operator at the outer interpreter for each of the inner examples."""
        columns = [np.stack([rng.permutation(4) for _ in range(2 if outer == "different" else 1)])
                   for _ in range(3 if inner == "different" else 1)]
        return np.array(np.broadcast_to(np.stack(columns, 1), (2, 3, 4)))

    assert Drawn(program) == Drawn(by_hand)


def refusal(mode: str, differs: bool) -> str | None:
    """Return an interpreter's error for a parameter that differs, or does not, at this interpreter."""
    if mode == "error":
        return REFUSED
    return NOT_ONE if mode == "same" and differs else None


@EACH_PAIR
@pytest.mark.parametrize("owner", ["outer", "inner", "both"])
def test_nested_parameters(outer, inner, owner):
    locs, scales = np.array([10.0, -10.0]), np.array([1.0, 2.0, 3.0])

    def draw(rng: Any, x: Any, y: Any) -> Any:
        return ops.np.random_normal(rng, *{"outer": (x,), "inner": (0.0, y), "both": (x, y)}[owner], size=(4,))

    def program(rng: Any) -> Any:
        return vmap(lambda x: vmap(lambda y: draw(rng, x, y), randomness=inner)(scales), randomness=outer)(locs)

    refusals = [refusal(inner, owner != "outer"), refusal(outer, owner != "inner")]
    if any(refusals):
        assert_refused(program, refusals[0] or refusals[1])
    else:
        shape, spread = nested_shape(outer, inner, (4,))
        loc = locs.reshape(2, 1, 1) if inner == "different" else locs.reshape(2, 1)
        parameters = {"outer": (loc,), "inner": (0.0, scales[:, np.newaxis]), "both": (loc, scales[:, np.newaxis])}
        assert Drawn(program) == Drawn(lambda rng: spread(rng.normal(*parameters[owner], size=shape)))


@EACH_PAIR
@pytest.mark.parametrize("owner", ["outer", "inner", "both", "none"])
def test_nested_like(outer, inner, owner):
    def draw(rng: Any, x: Any, y: Any) -> Any:
        template = {"outer": x, "inner": y, "both": x + y, "none": np.zeros(4)}[owner]
        return ops.np.random_uniform_like(template, rng)

    def program(rng: Any) -> Any:
        return vmap(lambda x: vmap(lambda y: draw(rng, x, y), randomness=inner)(np.zeros((3, 4))),
                    randomness=outer)(np.zeros((2, 4)))

    if "error" in (outer, inner):
        assert_refused(program, REFUSED)
        return
    shape, spread = nested_shape(outer, inner, (4,))
    assert Drawn(program) == Drawn(lambda rng: spread(rng.uniform(size=shape)))


def write_refusal(mode: str, differs: bool) -> str | None:
    """Return an interpreter's error for a target that differs, or does not, at this interpreter."""
    if mode == "error":
        return REFUSED
    return ONE_ARRAY if mode == "different" and not differs else None


@EACH_PAIR
@pytest.mark.parametrize("owner", ["outer", "inner", "both", "none"])
def test_nested_in_place(outer, inner, owner):
    xs, ys, shared = np.zeros((2, 4)), np.zeros((3, 4)), np.zeros(4)

    def draw(rng: Any, x: Any, y: Any) -> Any:
        target = {"outer": x, "inner": y, "both": x + y, "none": shared}[owner]
        return ops.np.random_uniform_like_(target, rng)

    def program(rng: Any) -> Any:
        return vmap(lambda x: vmap(lambda y: draw(rng, x, y), randomness=inner)(ys), randomness=outer)(xs)

    refusals = [write_refusal(inner, owner in ("inner", "both")), write_refusal(outer, owner in ("outer", "both"))]
    if any(refusals):
        assert_refused(program, refusals[0] or refusals[1])
    else:
        shape, spread = nested_shape(outer, inner, (4,))
        assert Drawn(program) == Drawn(lambda rng: spread(rng.uniform(size=shape)))


def test_the_error_names_the_level_that_refuses():
    def program(outer: str, inner: str) -> None:
        rng = generator()
        vmap(lambda x: vmap(lambda y: ops.np.random_normal(rng), randomness=inner)(INNER), randomness=outer)(OUTER)

    lines = []
    for modes in (("error", "different"), ("different", "error")):
        with pytest.raises(VmapError) as caught:
            program(*modes)
        lines.append(str(caught.value).partition(".py:")[2].partition(",")[0])
    assert lines[0] != "" != lines[1]


# --- dropout, a composite of a draw and a choice ---------------------------------------------------------------------


def dropout(rng: Any, x: Any, keep: float = 0.5, *, training: bool = True) -> Any:
    """Return zeros with probability 1 - keep, the rest larger accordingly."""
    if not training:
        return x
    mask = ops.np.random_binomial(rng, 1, keep, tuple(x.shape)) == 1
    return ops.np.where(mask, x / keep, 0.0)


def dropped(rng: Any, xs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.where(rng.binomial(1, 0.5, shape) == 1, xs / 0.5, 0.0)


WIDE = 1 + np.arange(60.0).reshape(3, 20)


def test_dropout_in_training():
    assert_refused(mapped(dropout, "error", WIDE), REFUSED)
    assert Drawn(mapped(dropout, "same", WIDE)) == Drawn(lambda rng: dropped(rng, WIDE, (20,)))
    different = Drawn(mapped(dropout, "different", WIDE))
    assert different == Drawn(lambda rng: dropped(rng, WIDE, (3, 20)))
    masks = different.result != 0
    assert masks.any()
    assert not (masks == masks[0]).all()


@pytest.mark.parametrize("mode", MODES)
def test_dropout_in_evaluation(mode):
    found = Drawn(mapped(lambda rng, x: dropout(rng, x, training=False), mode, WIDE))
    assert found == Drawn(lambda rng: WIDE)


def test_the_gradient_of_dropout_uses_the_mask_of_the_call():
    def program(rng: Any) -> Any:
        return vmap(grad(lambda x: (dropout(rng, x) * x).sum()), randomness="different")(WIDE)

    def by_hand(rng: Any) -> Any:
        return np.where(rng.binomial(1, 0.5, (3, 20)) == 1, 2 * WIDE / 0.5, 0.0)

    assert Drawn(program) == Drawn(by_hand)


def test_one_mask_for_all_steps_of_a_program():
    rng = generator()
    mask = ops.np.random_binomial(rng, 1, 0.5, 20) == 1
    found = vmap(lambda x: ops.np.where(mask, x, 0.0))(WIDE)
    np.testing.assert_array_equal(found, np.where(generator().binomial(1, 0.5, 20) == 1, WIDE, 0.0))


# --- grad and jvp let draws through ----------------------------------------------------------------------------------


def noisy(rng: Any, loc: Any, scale: Any) -> Any:
    """Return the sum of squares of two draws from one distribution."""
    return (ops.np.random_normal(rng, loc, scale, 2) ** 2).sum()


def noisy_by_hand(rng: Any, *batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradients by loc and scale, for parameters 0.5 and SCALE."""
    z = rng.normal(size=(*batch, 2))
    scale = SCALE[:, np.newaxis]
    draws = 0.5 + scale * z
    return 2 * draws.sum(-1), (2 * draws * z).sum(-1)


@pytest.mark.parametrize("interpreter", [grad, jvp, vjp], ids=lambda interpreter: interpreter.__name__)
def test_derivatives_alone(interpreter):
    rng, x = generator(), np.array([1.0, 2.0])

    def f(x: Any) -> Any:
        return (x * ops.np.random_normal(rng, size=2)).sum()

    draws = generator().normal(size=2)
    if interpreter is grad:
        np.testing.assert_array_equal(grad(f)(x), draws)
    elif interpreter is jvp:
        np.testing.assert_allclose(jvp(f, (x,), (x,)), [(draws * x).sum()] * 2)
    else:
        value, pull = vjp(f, x)
        np.testing.assert_allclose(value, (draws * x).sum())
        np.testing.assert_array_equal(pull(np.array(1.0))[0], draws)
    assert rng.bit_generator.state == Drawn(lambda rng: rng.normal(size=2)).state


def test_gradients_for_each_example():
    def program(rng: Any) -> Any:
        found = vmap(grad(lambda loc, scale: noisy(rng, loc, scale), argnums=(0, 1)), (None, 0),
                     randomness="different")(np.array(0.5), SCALE)
        return np.round(found, 10)

    assert Drawn(program) == Drawn(lambda rng: np.round(noisy_by_hand(rng, B), 10))


def test_the_gradient_of_a_batch():
    def program(rng: Any) -> Any:
        def total(loc: Any, scales: Any) -> Any:
            return vmap(lambda scale: noisy(rng, loc, scale), randomness="different")(scales).sum()

        by_loc, by_scale = grad(total, argnums=(0, 1))(np.array(0.5), SCALE)
        return np.round([by_loc, *by_scale], 10)

    def by_hand(rng: Any) -> Any:
        by_loc, by_scale = noisy_by_hand(rng, B)
        return np.round([by_loc.sum(), *by_scale], 10)

    assert Drawn(program) == Drawn(by_hand)


@pytest.mark.parametrize("inside", [True, False], ids=["vmap of jvp", "jvp of vmap"])
def test_tangents_through_draws(inside):
    def program(rng: Any) -> Any:
        def f(scale: Any) -> Any:
            return noisy(rng, 0.5, scale)

        if inside:
            return np.round(vmap(lambda s: jvp(f, (s,), (np.array(1.0),)), randomness="different")(SCALE)[1], 10)
        return np.round(jvp(vmap(f, randomness="different"), (SCALE,), (np.ones(B),))[1], 10)

    assert Drawn(program) == Drawn(lambda rng: np.round(noisy_by_hand(rng, B)[1], 10))


@pytest.mark.parametrize("wrap", [
    lambda f: grad(lambda x: f(x).sum()), lambda f: lambda x: jvp(f, (x,), (x,))[1],
    lambda f: grad(lambda x: grad(lambda y: (f(y) * y * y).sum())(x).sum()),
], ids=["grad", "jvp", "grad of grad"])
def test_levels_between_the_draw_and_vmap_change_nothing(wrap):
    rng = generator()
    with pytest.raises(VmapError, match="randomness is 'error'"):
        vmap(wrap(lambda x: x * ops.np.random_normal(rng, size=2)))(XS)
    assert rng.bit_generator.state == generator().bit_generator.state
    vmap(wrap(lambda x: x * ops.np.random_normal(rng, size=2)), randomness="different")(XS)
    assert rng.bit_generator.state == Drawn(lambda rng: rng.normal(size=(B, 2))).state


def test_gradients_of_in_place_draws():
    def program(rng: Any) -> Any:
        def f(scale: Any) -> Any:
            target = ops.np.zeros_like(scale)
            ops.np.random_normal_like_(target, rng, 1.0, scale)
            return target * target

        return np.round(vmap(grad(f), randomness="different")(SCALE), 10)

    def by_hand(rng: Any) -> Any:
        z = rng.normal(size=B)
        return np.round(2 * (1 + SCALE * z) * z, 10)

    assert Drawn(program) == Drawn(by_hand)


@pytest.mark.parametrize("in_place", [False, True], ids=["new", "in place"])
def test_the_tape_below_a_batch(in_place):
    def program(rng: Any) -> Any:
        scale = Tensor(SCALE, requires_grad=True)

        def f(s: Any) -> Any:
            if in_place:
                draw = ops.np.random_normal_like_(ops.np.zeros_like(s), rng, 0.5, s)
            else:
                draw = ops.np.random_normal(rng, 0.5, s)
            return draw * draw

        vmap(f, randomness="different")(scale).sum().backward()
        return np.round(scale.grad.array, 10)

    def by_hand(rng: Any) -> Any:
        z = rng.normal(size=B)
        return np.round(2 * (0.5 + SCALE * z) * z, 10)

    assert Drawn(program) == Drawn(by_hand)


def test_what_one_draw_overwrites_in_all_examples_has_no_gradient():
    def program(rng: Any) -> Any:
        xs = Tensor(XS, requires_grad=True)
        written = vmap(lambda x: x * ops.np.random_normal_like_(x * 2, rng), randomness="same")(xs)
        written.sum().backward()
        return xs.grad.array

    assert Drawn(program) == Drawn(lambda rng: repeated(rng.normal(size=2)))


# --- Jacobians -------------------------------------------------------------------------------------------------------


def test_draws_in_jacfwd():
    def f(rng: Any, x: Any) -> Any:
        return x * x * ops.np.random_uniform(rng, size=2)

    x = np.array([1.0, 3.0])
    assert_refused(lambda rng: jacfwd(lambda x: f(rng, x))(x), r'randomness="different"')
    assert Drawn(lambda rng: jacfwd(lambda x: f(rng, x), randomness="same")(x)) == Drawn(
        lambda rng: np.diag(2 * x * rng.uniform(size=2)))
    assert Drawn(lambda rng: jacfwd(lambda x: f(rng, x), randomness="different")(x)) == Drawn(
        lambda rng: np.diag(2 * x) * rng.uniform(size=(2, 2)).T)


def test_jacrev_draws_once():
    def f(rng: Any, x: Any) -> Any:
        return x * x * ops.np.random_uniform(rng, size=2)

    x = np.array([1.0, 3.0])
    assert Drawn(lambda rng: jacrev(lambda x: f(rng, x))(x)) == Drawn(lambda rng: np.diag(2 * x * rng.uniform(size=2)))


def test_hessian_draws_once():
    x = np.array([1.0, 3.0])
    assert Drawn(lambda rng: hessian(lambda x: (x ** 3 * ops.np.random_uniform(rng, size=2)).sum())(x)) == Drawn(
        lambda rng: np.diag(6 * x * rng.uniform(size=2)))


# --- Functions whose forward draws -----------------------------------------------------------------------------------


class Noisy(Function):
    """x times a draw of two numbers, which backward is told of by the result."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rng, x):
        return x * ops.np.random_normal(rng, size=2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx, gradient):
        x, output = ctx.saved_tensors
        return None, gradient * output / x


def test_a_function_inherits_the_randomness_of_the_level():
    xs = 1 + XS
    assert_refused(mapped(Noisy.apply, "error", xs), r"random_normal draws(.|\n)*pass vmap\(\.\.\., randomness=")
    assert Drawn(mapped(Noisy.apply, "same", xs)) == Drawn(lambda rng: xs * rng.normal(size=2))
    assert Drawn(mapped(Noisy.apply, "different", xs)) == Drawn(lambda rng: xs * rng.normal(size=(B, 2)))


def test_the_gradient_of_a_function_does_not_draw():
    def program(rng: Any) -> Any:
        return np.round(vmap(grad(lambda x: Noisy.apply(rng, x).sum()), randomness="different")(1 + XS), 12)

    assert Drawn(program) == Drawn(lambda rng: np.round(rng.normal(size=(B, 2)), 12))


def test_composites_draw_at_the_level_where_they_are_called(fresh):
    fresh.define("shaken(Generator g, Tensor x) -> Tensor")
    fresh.impl("shaken", lambda g, x: x + ops.np.random_normal(g, size=tuple(x.shape)), "CompositeImplicitAutograd")
    shaken = find_or_raise(f"{fresh.namespace}::shaken")
    assert_refused(mapped(shaken, "error", XS), REFUSED)
    assert Drawn(mapped(shaken, "same", XS)) == Drawn(lambda rng: XS + rng.normal(size=2))
    assert Drawn(mapped(shaken, "different", XS)) == Drawn(lambda rng: XS + rng.normal(size=(B, 2)))


# --- with the other transforms, and in traces ------------------------------------------------------------------------


def shaken(rng: Any, x: Any) -> Any:
    """Return x and a draw that is written into an array of its own."""
    noise = ops.np.zeros_like(x)
    ops.np.random_normal_like_(noise, rng, 1.0)
    return x * noise


def shaken_by_hand(mode: str) -> Callable[[Any], Any]:
    return lambda rng: XS * rng.normal(1.0, 1.0, (B, 2) if mode == "different" else 2)


@pytest.mark.parametrize("mode", ["same", "different"])
@pytest.mark.parametrize("inside", [True, False], ids=["vmap of functionalize", "functionalize of vmap"])
def test_draws_into_an_array_that_are_functionalized(inside, mode):
    def program(rng: Any) -> Any:
        def f(x: Any) -> Any:
            return shaken(rng, x)

        mapped = vmap(functionalize(f), randomness=mode) if inside else functionalize(vmap(f, randomness=mode))
        return mapped(XS)

    assert Drawn(program) == Drawn(shaken_by_hand(mode))


@pytest.mark.parametrize("tracing", ["real", "fake"])
@pytest.mark.parametrize("mode", ["same", "different"])
def test_a_trace_of_a_batch_has_the_draw_of_the_batch(mode, tracing):
    graph = make_fx(lambda rng, xs: vmap(lambda x: shaken(rng, x), randomness=mode)(xs), tracing_mode=tracing)(
        np.random.default_rng(1), np.ones((B, 2)))
    draws = [node for node in graph.find_nodes(op="call_function") if "random" in node.target.tags]
    assert len(draws) == 1
    for run in (graph, graph.compile()):
        assert Drawn(lambda rng, run=run: run(rng, XS.copy())) == Drawn(shaken_by_hand(mode))


def test_a_linearized_function_draws_once():
    def program(rng: Any) -> Any:
        value, along = linearize(lambda scale: ops.np.random_normal(rng, 1.0, scale) ** 2, SCALE)
        return np.round([value, along(np.ones(3)), along(np.ones(3))], 12)

    def by_hand(rng: Any) -> Any:
        z = rng.normal(size=3)
        draw = 1 + SCALE * z
        return np.round([draw ** 2, 2 * draw * z, 2 * draw * z], 12)

    assert Drawn(program) == Drawn(by_hand)


def test_second_derivatives_with_one_draw():
    def program(rng: Any) -> Any:
        def f(scale: Any) -> Any:
            return (ops.np.random_normal(rng, 1.0, scale) ** 3).sum()

        return np.round(jacfwd(jacrev(f), randomness="same")(SCALE), 10)

    def by_hand(rng: Any) -> Any:
        z = rng.normal(size=3)
        return np.round(np.diag(6 * (1 + SCALE * z) * z * z), 10)

    assert Drawn(program) == Drawn(by_hand)
