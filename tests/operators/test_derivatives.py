"""Derivatives of every operator in the library against finite differences of NumPy, over sample calls."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch._registry.registrations import packets
from pydispatch.autograd import grad
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import AutogradError
from pydispatch.func import grad as func_grad
from pydispatch.func import jacfwd, jacrev, jvp, vjp
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.operators.declare import operators
from pydispatch.operators.random import vmap_of_draw, vmap_of_fill
from pydispatch.testing import gradcheck, gradgradcheck
from tests.operators.oracles import (
    DIFFERENTIABLE,
    NAMES,
    STEP,
    Case,
    assert_near,
    case_of,
    cases,
    is_error,
    is_single,
    likewise,
    moved,
    outcome,
    precise_cases,
    quiet,
    weights,
)
from tests.operators.samples import numpy_function, samples, schema_of
from tests.together import together

CONSTANT = [name for name in NAMES if not DECLARATIONS[name].differentiable]


STEEP = {"sqrt": (ops.np.sqrt, 0.0), "square root": (lambda x: x ** 0.5, 0.0), "arcsin": (ops.np.arcsin, 1.0),
         "arccos": (ops.np.arccos, -1.0), "arccosh": (ops.np.arccosh, 1.0)}


@pytest.mark.parametrize("name", STEEP)
def test_a_constant_has_no_tangent_where_a_slope_is_infinite(name):
    function, edge = STEEP[name]
    near = edge + 0.25 if name != "arcsin" else edge - 0.25
    x, step = np.array([edge, near, edge]), np.array([0.0, 1.0, 0.0])
    _, found = jvp(function, (x,), (step,))
    slope = func_grad(function)(near)
    np.testing.assert_allclose(found, [0.0, slope, 0.0])
    with np.errstate(all="ignore"):
        assert np.isinf(jvp(function, (x,), (np.ones(3),))[1][0])       # it is infinite still
        second = jvp(lambda x: jvp(function, (x,), (x * 0.0,))[1], (np.array(edge),), (np.array(1.0),))[1]
        assert not np.isfinite(second) or second == 0
        kink = jvp(lambda x: jvp(lambda x: ops.np.sqrt(x * x), (x,), (1.0,))[1], (0.0,), (1.0,))[1]
        assert not np.isfinite(kink)


def protected(value: np.ndarray) -> np.ndarray:
    """Return a copy that nobody may write to, of the same layout in memory."""
    copy = np.array(value)
    copy.flags.writeable = False
    return copy


def product(ones: Any, others: Any) -> float:
    """Compute Re(sum(conj(ones) * others)). None means zeros."""
    return sum(
        float(np.real(np.sum(np.conj(np.asarray(one)) * np.asarray(other))))
        for one, other in zip(ones, others, strict=True) if one is not None)


def gradients(values: Any, results: Any, cotangents: Any, **options: Any) -> tuple[Any, ...]:
    """Return the gradients of all values, None where there is none."""
    live = [i for i, result in enumerate(results) if isinstance(result, Tensor) and result.requires_grad]
    if not live:
        return (None,) * len(values)
    return grad([results[i] for i in live], values, [cotangents[i] for i in live], allow_unused=True, **options)


def tracked(values: Any) -> list[Tensor]:
    return [Tensor(protected(value), requires_grad=True) for value in values]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_first_derivatives(name):
    for case in cases(name):
        directions = likewise(case.values, 1)
        with quiet():
            expected = case.difference(directions)
            results, tangents = jvp(lambda *values, case=case: tuple(case.ours(*values)),
                                    tuple(map(protected, case.values)), tuple(directions))
        for result, tangent, difference in zip(results, tangents, expected, strict=True):
            assert (tangent.shape, tangent.dtype) == (result.shape, result.dtype)
            assert_near(tangent, difference, case, "tangent")
        values, cotangents = tracked(case.values), likewise(results, 7)
        with quiet():
            outputs = case.ours(*values)
        found = gradients(values, outputs, cotangents, retain_graph=True)
        for value, gradient in zip(values, found, strict=True):
            assert gradient is None or (gradient.shape, gradient.dtype) == (value.shape, value.dtype), (case, gradient)
        scale = sum(map(np.size, results))
        assert_near(product(found, directions), product(cotangents, expected), case, "gradient", scale)
        again = gradients(values, outputs, cotangents, create_graph=True)
        for one, other in zip(found, again, strict=True):
            assert (one is None) == (other is None), case
            assert one is None or np.allclose(one.array, other.array, rtol=1e-5 if is_single(case) else 1e-13), case


def nth_gradients(case: Case, inputs: Any, order: int) -> list[Any]:
    """Return gradients of gradients, each time with respect to the values and the cotangents of the results.

    Each time what is differentiated is the last gradients, weighted by fixed numbers.
    """
    inputs = tracked(inputs)
    with quiet():
        found: list[Any] = case.ours(*inputs[:len(case.places)])
    seeds = inputs[len(case.places):]
    for interpreter in range(order):
        found = list(gradients(inputs, found, seeds, create_graph=interpreter < order - 1))
        seeds = [None if value is None else weights(value.shape, value.dtype, 31 + interpreter) for value in found]
    return found


def check_nth_derivatives(name: str, order: int, cases_of: Callable[[str], list[Case]]) -> None:
    """Assert that gradients of one order are the transposed finite differences of those of the order below."""
    for case in cases_of(name):
        with quiet():
            results = case.theirs(case.values)
        inputs = [*case.values, *likewise(results, 7)]
        directions = likewise(inputs, 1)
        found = nth_gradients(case, inputs, order)
        up, down = (nth_gradients(case, moved(inputs, directions, step), order - 1) for step in (STEP, -STEP))
        assert [value is None for value in up] == [value is None for value in down]
        seeds = [None if value is None else weights(value.shape, value.dtype, 31 + order - 2) for value in up]
        expected = (product(seeds, up) - product(seeds, down)) / (2 * STEP)
        scale = sum(value.size for value in up if value is not None)
        assert_near(product(found, directions), expected, case, f"derivative of order {order}", scale)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivatives(name):
    check_nth_derivatives(name, 2, precise_cases)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_third_derivatives(name):
    check_nth_derivatives(name, 3, precise_cases)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_tangents_of_gradients(name):
    for case in precise_cases(name):
        def gradients_at(*inputs, case=case):
            _, run_vjp = vjp(lambda *values: tuple(case.ours(*values)), *inputs[:len(case.places)])
            return run_vjp(inputs[len(case.places):])

        with quiet():
            inputs = (*map(protected, case.values), *likewise(case.theirs(case.values), 7))
            directions = likewise(inputs, 1)
            found, tangents = jvp(gradients_at, inputs, tuple(directions))
        expected = nth_gradients(case, inputs, 1)
        up, down = (nth_gradients(case, moved(inputs, directions, step), 1) for step in (STEP, -STEP))
        for i, gradient in enumerate(found):
            assert_near(gradient, 0 if expected[i] is None else expected[i].array, case, "gradient")
            difference = 0 if expected[i] is None else (up[i].array - down[i].array) / (2 * STEP)
            assert_near(tangents[i], difference, case, "tangent of the gradient")


def checks(name: str, n: int) -> list[Case]:
    """Return some cases, small ones that have an element to differentiate."""
    found = [case for case in precise_cases(name) if 0 < sum(map(np.size, case.values)) < 30]
    assert found, f"no case of {name} in double precision"
    return found[::max(len(found) // n, 1)]


def check_all_elements(case: Case) -> None:
    values = [Tensor(value, requires_grad=True) for value in case.values]
    with quiet():
        gradcheck(lambda *values: tuple(case.ours(*values)), values, check_forward_ad=True)
        gradgradcheck(lambda *values: tuple(case.ours(*values)), values, check_fwd_over_rev=True)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradcheck(name):
    check_all_elements(checks(name, 1)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradcheck_of_more_cases(name):
    for case in checks(name, 12)[::2]:
        check_all_elements(case)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_on_meta_have_shape_and_dtype(name):
    for case in cases(name):
        values = [Tensor(MetaArray(value.shape, value.dtype), requires_grad=True) for value in case.values]
        with quiet():
            results = case.ours(*values)
        cotangents = [Tensor(MetaArray(result.shape, result.dtype)) for result in results]
        for value, gradient in zip(values, gradients(values, results, cotangents, create_graph=True), strict=True):
            assert gradient is None or (gradient.shape, gradient.dtype) == (value.shape, value.dtype), (case, gradient)


# --- in place, and constants -----------------------------------------------------------------------------------------


def is_writable_in_place(case: Case) -> bool:
    """Return whether the first argument requires grad and NumPy can write the result into it."""
    if case.places[0] != 0 or not isinstance(case.leaves[0], np.ndarray):
        return False
    with quiet():
        result, target = np.asarray(case.call(numpy_function(case.name), case.values)[0]), case.leaves[0]
    return result.shape == target.shape and np.can_cast(result.dtype, target.dtype, "same_kind")


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if VARIANTS[name].in_place])
def test_in_place_variants_have_the_derivatives_of_the_function(name):
    found = [case for case in cases(name) if is_writable_in_place(case)]
    assert found, f"no case of {name} that works in place"
    in_place = getattr(ops.np, VARIANTS[name].in_place)
    for case in found:
        values = tracked(case.values)
        with quiet():
            results = case.ours(*values)
            target = ops.np.copy(values[0])
            written = case.call(in_place, [target, *values[1:]])
        assert written[0] is target
        cotangents = likewise(case.values[:1], 7)
        expected = gradients(values, [ops.np.astype(results[0], target.dtype)], cotangents)
        for one, other in zip(gradients(values, written, cotangents), expected, strict=True):
            assert (one is None) == (other is None), case
            assert one is None or np.allclose(one.array, other.array, rtol=1e-5 if is_single(case) else 1e-13), case


def filling(function: Callable[..., Any], target: Any) -> Callable[..., Any]:
    """Return the function with this array as `out`."""
    return lambda *args, **kwargs: function(*args, out=target, **kwargs)


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if VARIANTS[name].out])
def test_variants_with_out_have_the_derivatives_of_the_function(name):
    for case in checks(name, 3):
        values = tracked(case.values)
        with quiet():
            results = case.ours(*values)
            target = Tensor(np.zeros(results[0].shape, results[0].dtype))
            if is_error(outcome(case.call, (filling(numpy_function(name), target.array), case.values), {})):
                continue        # concatenate() only takes `out` or `dtype`
            written = case.call(filling(getattr(ops.np, name), target), values)
        assert written[0] is target
        np.testing.assert_array_equal(target.array, results[0].array)
        cotangents = likewise([results[0].array], 7)
        expected = gradients(values, results, cotangents)
        for one, other in zip(gradients(values, written, cotangents), expected, strict=True):
            assert (one is None) == (other is None), case
            assert one is None or np.allclose(one.array, other.array, rtol=1e-5 if is_single(case) else 1e-13), case


def test_out_may_be_an_argument_and_of_another_dtype():
    x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    y = x * 1.0
    ops.np.multiply(y, ops.np.exp(y), out=y)
    ops.np.sin(y, out=y)
    gradient, = grad(ops.np.sum(y), x)
    e = np.exp(x.array)
    np.testing.assert_allclose(gradient.array, np.cos(x.array * e) * (1 + x.array) * e)
    single = Tensor(np.zeros(2, np.float32))
    ops.np.add(x, 1.0, out=single)
    assert (single.dtype, single.requires_grad) == (np.float32, True)
    with pytest.raises(TypeError, match="same_kind"):
        ops.np.add(x, 1.0, out=Tensor(np.zeros(2, int)))
    with pytest.raises(ValueError, match="shape"):
        ops.np.add(x, 1.0, out=Tensor(np.zeros(3)))
    with pytest.raises(AutogradError, match="raw array"):
        ops.np.add(x, 1.0, out=np.zeros(2))


@pytest.mark.parametrize("name", CONSTANT)
def test_results_that_are_constants(name):
    for case in [case_of(name, sample) for sample in samples(name)]:
        if case.places and not is_error(outcome(case.call, (numpy_function(name), case.values), {})):
            with quiet():
                results = case.ours(*tracked(case.values))
                _, tangents = jvp(lambda *values, case=case: tuple(case.ours(*values)),
                                  tuple(case.values), tuple(map(np.ones_like, case.values)))
            assert not any(result.requires_grad for result in results if isinstance(result, Tensor)), case
            assert not any(np.any(tangent) for tangent in tangents), case


# --- what the declarations say ---------------------------------------------------------------------------------------

WITHOUT_GRADIENT = {
    "where": {"condition"}, "sum": {"where"}, "prod": {"where"}, "max": {"where"}, "min": {"where"}, "mean": {"where"},
    "var": {"where"}, "std": {"where"}, "full_like": {"a"}, "getitem": {"key"}, "setitem": {"key"}, "index": {"key"},
    "index_put": {"key"}, "take": {"indices"}, "take_along_axis": {"indices"}, "scatter_add": {"indices"},
    "ldexp": {"x2"}, "slice_sums": {"indices"}, "slices_filled": {"indices"},
}
"""Arrays without a gradient: they say which elements are meant, or what shape, or are integers."""


def formulas_of(name: str) -> dict[str, Any]:
    """Return the formula of each argument that holds arrays. None for one without."""
    arguments = [argument.name for argument in schema_of(name).arguments if argument.type.contains_arrays]
    vjp = DECLARATIONS[name].vjp
    formulas = vjp if isinstance(vjp, tuple) else (vjp,)
    assert len(formulas) <= len(arguments), f"{name} has formulas to spare"
    return dict.fromkeys(arguments) | dict(zip(arguments, formulas, strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_a_derivative_or_says_that_it_has_none(name):
    declaration = DECLARATIONS[name]
    if declaration.differentiated_as is not None:
        assert (declaration.vjp, declaration.jvp, declaration.differentiable) == (None, None, True)
    elif declaration.differentiable:
        without = {argument for argument, formula in formulas_of(name).items() if formula is None}
        assert without == WITHOUT_GRADIENT.get(name, set())
        assert declaration.jvp is not None or "pointwise" in declaration.tags
    else:
        assert (declaration.vjp, declaration.jvp) == (None, None)


@together("name", DECLARATIONS)
def test_variants_share_their_formulas(name):
    declaration, functional = DECLARATIONS[name], DECLARATIONS[VARIANTS[name].functional]
    for what in ("vjp", "jvp", "differentiable", "broadcasts"):
        assert getattr(declaration, what) is getattr(functional, what)
    kinds = dict(zip(VARIANTS[name], ("functional", "inplace", "out"), strict=True))
    assert declaration.variant == kinds[name]
    is_draw = declaration.vmap in (vmap_of_draw, vmap_of_fill)
    assert declaration.broadcasts == ("pointwise" in declaration.tags or is_draw)


def test_operators_named_in_formulas_exist():
    # `operators` makes packets before their operators are declared. A wrong name would leave one empty.
    assert [name for name, packet in packets["np"].items() if not packet.overloads] == []


def test_operators_named_in_formulas_are_those_of_the_library():
    assert operators("sin", "cos") == (ops.np.sin, ops.np.cos)


# --- far out, and near the ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "x", "expected"), [       # by arithmetic of sixty digits
    ("arcsinh", 1e200, 1e-200), ("arcsinh", -1e300, 1e-300), ("arcsinh", 0.0, 1.0),
    ("arctanh", 0.99999999, 49999999.998762039), ("arctanh", -0.0, 1.0), ("arctanh", 1.0, np.inf),
    ("arccosh", 1e200, 1e-200), ("arctan", 1e100, 1e-200),
    ("i0", 709.0, 1.2306788896524786e+306), ("i0", -709.0, -1.2306788896524786e+306),
])
def test_slopes_of_extreme_arguments(name, x, expected):
    call = getattr(ops.np, name)
    with np.errstate(all="raise", under="ignore", divide="ignore"):
        found = {"backward": func_grad(call)(np.float64(x)), "forward": jvp(call, (np.float64(x),), (1.0,))[1]}
    assert found == {way: pytest.approx(expected, rel=1e-12, abs=0) for way in found}


# --- where operators are not smooth ----------------------------------------------------------------------------------

NAN, INF = np.nan, np.inf


def kink(name: str, call: Callable[..., Any], *values_and_gradients: tuple[Any, Any]) -> Any:
    """Return a row: what is called, and its arguments with the gradient that each of them is to have."""
    return pytest.param(call, *zip(*values_and_gradients, strict=True), id=name)


@pytest.mark.parametrize(("call", "values", "expected"), [
    kink("abs at 0: 0", ops.np.absolute, ([0.0, -0.0], [0, 0])),
    kink("abs at 0j: 0", ops.np.absolute, ([0j], [0])),
    kink("sign at 0: 0", ops.np.sign, ([0.0], [0])),
    kink("complex sign at 0: 0", lambda z: ops.np.real(ops.np.sign(z)), ([0j], [0])),
    kink("floor at an integer: 0", ops.np.floor, ([1.0], [0])),
    kink("ceil at an integer: 0", ops.np.ceil, ([1.0], [0])),
    kink("trunc at an integer: 0", ops.np.trunc, ([1.0], [0])),
    kink("rint half way: 0", ops.np.rint, ([0.5], [0])),
    kink("round half way: 0", lambda x: ops.np.round(x, 1), ([0.25], [0])),
    kink("floor_divide at a jump: 0", ops.np.floor_divide, ([4.0], [0]), ([2.0], [0])),
    kink("remainder at a jump", ops.np.remainder, ([4.0], [1]), ([2.0], [-2])),
    kink("fabs at 0: 0", ops.np.fabs, ([0.0, -0.0], [0, 0])),
    kink("spacing: 0", ops.np.spacing, ([1.0], [0])),
    kink("heaviside at 0: all to the value there", ops.np.heaviside, ([0.0, 1.0, -1.0], [0] * 3),
         ([0.5] * 3, [1, 0, 0])),
    kink("nextafter: all to the first", ops.np.nextafter, ([1.0, 2.0], [1, 1]), ([2.0, 2.0], [0, 0])),
    kink("fmod at a jump", ops.np.fmod, ([4.0, -4.0], [1, 1]), ([2.0, 2.0], [-2, 2])),
    kink("logaddexp2 of equal infinities: half each", ops.np.logaddexp2, ([INF, -INF], [0.5, 0.5]),
         ([INF, -INF], [0.5, 0.5])),
    kink("float_power: 0 ** 0", ops.np.float_power, ([0.0], [0]), ([0.0], [0])),
    kink("sinc at 0", ops.np.sinc, ([0.0], [0])),
    kink("maximum: half each of a tie", ops.np.maximum, ([1.0, 2.0], [0.5, 1]), ([1.0, 1.0], [0.5, 0])),
    kink("minimum: half each of a tie", ops.np.minimum, ([1.0, 2.0], [0.5, 0]), ([1.0, 1.0], [0.5, 1])),
    kink("maximum with 0: half at 0", lambda x: ops.np.maximum(x, 0.0), ([0.0, -1.0], [0.5, 0])),
    kink("maximum of infinities", ops.np.maximum, ([INF, -INF], [0.5, 0.5]), ([INF, -INF], [0.5, 0.5])),
    kink("fmax: ties to the first, nan is passed over", ops.np.fmax,
         ([1.0, NAN, 1.0, NAN], [1, 0, 1, 1]), ([1.0, 1.0, NAN, NAN], [0, 1, 0, 0])),
    kink("fmin: ties to the first, nan is passed over", ops.np.fmin,
         ([1.0, NAN, 1.0, NAN], [1, 0, 1, 1]), ([1.0, 1.0, NAN, NAN], [0, 1, 0, 0])),
    kink("max: ties split evenly", ops.np.max, ([1.0, 1.0, 0.0], [0.5, 0.5, 0])),
    kink("max along an axis: ties split evenly", lambda x: ops.np.max(x, 0),
         ([[2.0, 1.0], [2.0, 3.0]], [[0.5, 0], [0.5, 1]])),
    kink("min: ties split evenly", ops.np.min, ([0.0, 1.0, 0.0, 0.0], [1 / 3, 0, 1 / 3, 1 / 3])),
    kink("max: ties among the elements of a mask",
         lambda x: ops.np.max(x, initial=-9, where=np.array([True, False, True])), ([1.0, 1.0, 1.0], [0.5, 0, 0.5])),
    kink("max: an initial value wins", lambda x: ops.np.max(x, initial=5.0), ([1.0, 2.0], [0, 0])),
    kink("max with nan: nan", ops.np.max, ([1.0, NAN], [NAN, NAN])),
    kink("clip at an edge: 1", lambda x: ops.np.clip(x, 0, 1), ([0.0, 1.0, -1.0, 2.0], [1, 1, 0, 0])),
    kink("clip: limits at an edge: 0", ops.np.clip, ([0.0, 1.0, -1.0, 2.0], [1, 1, 0, 0]), ([0.0] * 4, [0, 0, 1, 0]),
         ([1.0] * 4, [0, 0, 0, 1])),
    kink("clip: the upper limit wins", ops.np.clip, ([1.0, 5.0], [0, 0]), ([3.0, 3.0], [0, 0]), ([1.0, 1.0], [1, 1])),
    kink("clip with nan: 0", ops.np.clip, ([NAN, 0.5, 0.5], [0, 0, 0]), ([0.0, NAN, 0.0], [0, 0, 0]),
         ([1.0, 1.0, NAN], [0, 0, 0])),
    kink("clip: equal limits", ops.np.clip, ([-1.0, 0.0, 2.0], [0, 1, 0]), ([0.0] * 3, [1, 0, 0]),
         ([0.0] * 3, [0, 0, 1])),
    kink("sqrt at 0: inf", ops.np.sqrt, ([0.0], [INF])),
    kink("reciprocal at 0: -inf", ops.np.reciprocal, ([0.0], [-INF])),
    kink("log at 0: inf", ops.np.log, ([0.0], [INF])),
    kink("arcsin at 1: inf", ops.np.arcsin, ([1.0], [INF])),
    kink("x ** 0 at 0: 0", lambda x: x ** 0, ([0.0, 2.0], [0, 0])),
    kink("x ** 1 at 0: 1", lambda x: x ** 1, ([0.0], [1])),
    kink("x ** 2 at 0: 0", lambda x: x ** 2, ([0.0], [0])),
    kink("x ** 0.5 at 0: inf", lambda x: x ** 0.5, ([0.0], [INF])),
    kink("0 ** y: 0 for y >= 0", lambda y: 0.0 ** y, ([0.0, 0.5, 1.0, 2.0], [0, 0, 0, 0])),
    kink("power(0, y)", ops.np.power, ([0.0, 0.0, 0.0], [0, 1, 0]), ([0.0, 1.0, 2.0], [0, 0, 0])),
    kink("0 ** y: -inf for y < 0", lambda y: 0.0 ** y, ([-1.0], [-INF])),
    kink("hypot(0, 0): 0", ops.np.hypot, ([0.0, 3.0], [0, 0.6]), ([0.0, 4.0], [0, 0.8])),
    kink("hypot with infinities: their signs", ops.np.hypot, ([INF, -INF, 2.0, INF], [1, -1, 0, 1]),
         ([1.0, 0.0, -INF, INF], [0, 0, -1, 1])),
    kink("arctan2 with infinities: 0", ops.np.arctan2, ([INF, -INF, 2.0, INF], [0, 0, 0, 0]),
         ([1.0, 0.0, -INF, INF], [0, 0, 0, 0])),
    kink("power of infinity: 0 by an exponent < 0", lambda y: ops.np.power(INF, y), ([-1.0, -INF], [0, 0])),
    kink("power(x, 0) by x: 0", lambda x: ops.np.power(x, np.zeros(6)), ([0.0, -0.0, 1e-310, NAN, INF, -2.0], [0] * 6)),
    kink("power of 0 by an infinite exponent: 0", ops.np.power, ([0.5, -0.5, 0.0, -0.0, 2.0, -3.0, INF], [0] * 7),
         ([INF, INF, INF, INF, -INF, -INF, -INF], [0] * 7)),
    kink("x ** inf, a number: 0", lambda x: x ** INF, ([0.5, 0.0, -0.5], [0, 0, 0])),
    kink("x ** -1 at -0: -inf", lambda x: x ** -1.0, ([-0.0], [-INF])),
    kink("x ** -2 at -0: inf", lambda x: x ** -2, ([-0.0], [INF])),
    kink("logaddexp of huge numbers: half of each", ops.np.logaddexp, ([1e200, -1e200, 1e17], [0.5, 0.5, 1]),
         ([1e200, -1e200, 0.0], [0.5, 0.5, 0])),
    kink("maximum with nan: 0", ops.np.maximum, ([NAN, 1.0], [0, 0]), ([1.0, NAN], [0, 0])),
    kink("minimum with nan: 0", ops.np.minimum, ([NAN, 1.0], [0, 0]), ([1.0, NAN], [0, 0])),
    kink("arctan2(0, 0): 0", ops.np.arctan2, ([0.0, 0.0], [0, -1]), ([0.0, -1.0], [0, 0])),
    kink("copysign at 0: 0", ops.np.copysign, ([0.0, -0.0, 1.0], [0, 0, -1]), ([1.0, -1.0, -0.0], [0, 0, 0])),
    kink("logaddexp with infinities", ops.np.logaddexp, ([0.0, INF, -INF, INF, -INF, INF], [0, 1, 0.5, 0.5, 0, 1]),
         ([INF, 0.0, -INF, INF, 0.0, -INF], [1, 0, 0.5, 0.5, 1, 0])),
    kink("std of equal values: 0", ops.np.std, ([1.5, 1.5], [0, 0])),
    kink("std of one element: nan", lambda x: ops.np.std(x, ddof=1), ([1.5], [NAN])),
    kink("var of one element: nan", lambda x: ops.np.var(x, ddof=1), ([1.5], [NAN])),
    kink("prod with one zero: the product of the others", ops.np.prod, ([0.0, 2.0, 3.0], [6, 0, 0])),
    kink("prod with two zeros: 0", ops.np.prod, ([0.0, 2.0, 0.0], [0, 0, 0])),
    kink("cumprod with zeros", ops.np.cumprod, ([2.0, 0.0, 3.0, 0.0, 5.0], [1, 8, 0, 0, 0])),
    kink("where: of the branch that is not chosen: 0", lambda x: ops.np.where(x > 0, x, -x),
         ([0.0, 2.0, -2.0], [-1, 1, -1])),
    kink("where, twice, against nan from that branch",
         lambda x: ops.np.where(x > 0, ops.np.sqrt(ops.np.where(x > 0, x, 1.0)), 0.0), ([-1.0, 4.0], [0, 0.25])),
    kink("setitem: what is overwritten: 0", lambda x, y: ops.np.setitem(x, 0, y), ([1.0, 2.0], [0, 1]), (5.0, 1)),
    kink("index_put: of values for one place the last", lambda x, y: ops.np.index_put(x, np.array([1, 1, 0]), y),
         ([1.0, 2.0, 3.0], [0, 0, 1]), ([7.0, 8.0, 9.0], [0, 1, 1])),
    kink("index_put: a value for one place counts once", lambda x, y: ops.np.index_put(x, np.array([1, 1]), y),
         ([1.0, 2.0], [1, 0]), (7.0, 1)),
    kink("index_put: values that are added all count",
         lambda x, y: ops.np.index_put(x, np.array([1, 1]), y, accumulate=True), ([1.0, 2.0], [1, 1]), (7.0, 2)),
    kink("index: an element that is read twice counts twice", lambda x: ops.np.index(x, np.array([1, 1, 0])),
         ([1.0, 2.0, 3.0], [1, 2, 0])),
])
def test_conventions_where_operators_are_not_smooth(call, values, expected):
    values = [np.array(value) for value in values]
    leaves = tracked(values)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Degrees of freedom", RuntimeWarning)
        found = grad(ops.np.sum(call(*leaves)), leaves)
        for i, (gradient, wanted) in enumerate(zip(found, expected, strict=True)):
            assert np.array_equal(gradient.array, wanted, equal_nan=True), gradient
            for place in np.ndindex(values[i].shape):
                tangents = [np.zeros_like(value) for value in values]
                tangents[i][place] = 1
                _, tangent = jvp(lambda *values: ops.np.sum(call(*values)), tuple(values), tuple(tangents))
                assert np.array_equal(tangent, np.asarray(wanted)[place], equal_nan=True), (place, tangent)


@pytest.mark.parametrize(("call", "value", "expected"), [
    pytest.param(ops.np.absolute, [0.0], [[0]], id="abs at 0"),
    pytest.param(ops.np.sqrt, [0.0], [[-INF]], id="sqrt at 0"),
    pytest.param(ops.np.log, [0.0], [[-INF]], id="log at 0"),
    pytest.param(ops.np.arcsin, [1.0], [[INF]], id="arcsin at 1"),
    pytest.param(ops.np.arccosh, [1.0], [[-INF]], id="arccosh at 1"),
    pytest.param(ops.np.tanh, [INF], [[0]], id="tanh at infinity"),
    pytest.param(lambda x: x ** 2, [0.0], [[2]], id="x ** 2 at 0"),
    pytest.param(lambda x: x ** 1, [0.0], [[0]], id="x ** 1 at 0"),
    pytest.param(lambda x: x ** INF, [0.5, 0.0], [[0, 0], [0, 0]], id="x ** inf"),
    pytest.param(lambda x: ops.np.maximum(x[0], x[1]), [1.0, 1.0], [[0, 0], [0, 0]], id="maximum of a tie"),
    pytest.param(ops.np.max, [1.0, 1.0], [[0, 0], [0, 0]], id="max of a tie"),
    pytest.param(lambda x: ops.np.hypot(x[0], x[1]), [INF, 1.0], [[0, 0], [0, 0]], id="hypot with infinity"),
    pytest.param(lambda x: ops.np.logaddexp(x[0], x[1]), [INF, 0.0], [[0, 0], [0, 0]], id="logaddexp with infinity"),
    pytest.param(lambda x: ops.np.logaddexp(x[0], x[1]), [-INF, -INF], [[0, 0], [0, 0]], id="logaddexp of infinities"),
    pytest.param(ops.np.prod, [0.0, 2.0, 3.0], [[0, 3, 2], [3, 0, 0], [2, 0, 0]], id="prod with a zero"),
    pytest.param(ops.np.prod, [0.0, 0.0, 3.0], [[0, 3, 0], [3, 0, 0], [0, 0, 0]], id="prod with two zeros"),
    pytest.param(ops.np.cumprod, [0.0, 2.0, 0.0], [[0, 1, 2], [1, 0, 0], [2, 0, 0]], id="cumprod with zeros"),
    pytest.param(ops.np.var, [1.0, 1.0], [[0.5, -0.5], [-0.5, 0.5]], id="var of equal values"),
])
def test_second_derivatives_where_operators_are_not_smooth(call, value, expected):
    def total(x):
        return ops.np.sum(call(x))

    value = np.array(value)
    leaf = Tensor(value, requires_grad=True)
    with np.errstate(all="ignore"):
        first, = grad(total(leaf), leaf, create_graph=True)
        rows = [grad(part, leaf, retain_graph=True)[0].array if first.requires_grad else np.zeros_like(value)
                for part in first]
        found = {
            "tape": np.array(rows),
            **{f"{outer.__name__} of {inner.__name__}": outer(inner(total))(value)
               for outer in (jacrev, jacfwd) for inner in (jacrev, jacfwd)},
        }
    for way, second in found.items():
        assert np.array_equal(second, expected), (way, second)


def test_shares_of_a_logaddexp_of_large_numbers_are_exact():
    x, y = (np.array([value], np.float32) for value in (1e7, 1e7 - 1))
    _, pull = vjp(ops.np.logaddexp, x, y)
    assert np.allclose(pull(np.ones(1, np.float32)), [[1 / (1 + np.exp(-1))], [1 / (1 + np.exp(1))]], rtol=1e-6)


@pytest.mark.parametrize("base", [0.5, 1.0, 2.0, 3.0])
def test_the_slope_of_a_power_by_its_base_depends_on_an_exponent_of_0(base):
    # d/dy of y x^(y - 1) is 1 / x at y = 0.
    def slope(x, y):
        return func_grad(ops.np.power)(x, y)

    arguments = np.array(base), np.array(0.0)
    assert np.allclose(func_grad(slope, argnums=1)(*arguments), 1 / base)
    assert np.allclose(jvp(lambda y: slope(arguments[0], y), arguments[1:], (np.array(1.0),))[1], 1 / base)


def test_where_lets_nan_through_from_the_branch_that_is_not_chosen():
    def root_or_zero(x):
        return ops.np.where(x > 0, ops.np.sqrt(x), 0.0)

    values = np.array([-1.0, 4.0])
    x = Tensor(values, requires_grad=True)
    with np.errstate(all="ignore"):
        gradient, = grad(ops.np.sum(root_or_zero(x)), x)
        _, tangent = jvp(root_or_zero, (values,), (np.ones(2),))
    assert np.array_equal(gradient.array, [NAN, 0.25], equal_nan=True)
    assert np.array_equal(tangent, [0, 0.25])


@pytest.mark.parametrize(("shape", "options"), [
    pytest.param((0,), {}, id="no elements"), pytest.param((3, 0), {"axis": 1}, id="rows of no elements"),
    pytest.param((3,), {"where": np.zeros(3, bool)}, id="none by a mask"),
    pytest.param((2, 3), {"axis": 1, "where": np.array([[True], [False]])}, id="none by a mask in one row"),
])
def test_the_mean_of_nothing_has_a_gradient_of_zeros(shape, options):
    x = Tensor(np.ones(shape), requires_grad=True)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        mean = ops.np.mean(x, **options)
    gradient, = grad(ops.np.sum(mean), x)
    assert gradient.shape == shape
    counted = np.broadcast_to(options.get("where", True), shape) / 3
    assert np.array_equal(gradient.array, counted)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">c16"])
@pytest.mark.parametrize("name", ["max", "min", "mean", "var", "std"])
def test_reductions_of_foreign_byte_order(name, dtype):
    def reduced(x, **options):
        return getattr(x, name)(**options).real.sum()

    x = np.array([[1.0, 3.0, 3.0], [2.0, 0.5, 4.0]]).astype(dtype)
    native = x.astype(x.dtype.newbyteorder("="))
    masked = {"where": np.array([True, False, True])} | ({"initial": -9.0} if name in ("max", "min") else {})
    for options in ({}, {"axis": 1}, masked):
        def function(x, options=options):
            return reduced(x, **options)

        expected = func_grad(function)(native)
        np.testing.assert_array_equal(func_grad(function)(x), expected)
        np.testing.assert_array_equal(grad(function(leaf := Tensor(x, requires_grad=True)), leaf)[0].array, expected)
        np.testing.assert_array_equal(jvp(function, (x,), (x,))[1], jvp(function, (native,), (native,))[1])
        if dtype != ">c16":
            np.testing.assert_allclose(jacfwd(function)(x), expected, rtol=1e-6)
