"""Splines: values of SciPy's, gradients in values, points and places, closed forms, and errors."""

import numpy as np
import pytest
import scipy.interpolate

import pydispatch
from pydispatch import Tensor, ops
from pydispatch.func import grad, hessian, jvp, vmap
from pydispatch.scipy import interpolate
from pydispatch.testing import gradcheck, gradgradcheck
from pydispatch.tracing import make_fx
from tests.scipy.samples.linalg import entries
from tests.together import together

POINTS = np.array([-0.4, 0.5, 1.1, 2.5, 3.0, 4.2])
PLACES = np.array([[-1.0, -0.4, 0.2, 1.1], [2.0, 2.9, 4.2, 5.0]])
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
CONDITIONS = {"not-a-knot": "not-a-knot", "periodic": "periodic", "clamped": "clamped", "natural": "natural",
              "pair": ("natural", "not-a-knot"), "derivatives": ((1, np.array([0.5, -1.0])), (2, np.array([0.2, 0.3])))}


def values(n, *, is_periodic=False, dtype=float):
    y = entries(n, 2, dtype=dtype)
    y[-1] = y[0] if is_periodic else y[-1]
    return y


def check_like_scipys(found, expected):
    for nu in range(6):
        np.testing.assert_allclose(found(PLACES, nu), expected(PLACES, nu), **CLOSE)
    for extrapolate in (True, False):
        np.testing.assert_allclose(found(PLACES, 0, extrapolate), expected(PLACES, 0, extrapolate), **CLOSE)
    np.testing.assert_allclose(found(PLACES, extrapolate="periodic"), expected(PLACES, extrapolate="periodic"), **CLOSE)
    n = min(getattr(found, "k", 2), 2)
    np.testing.assert_allclose(found.derivative(n)(PLACES), expected.derivative(n)(PLACES), **CLOSE)
    np.testing.assert_allclose(found.antiderivative(2)(PLACES), expected.antiderivative(2)(PLACES), **CLOSE)
    for bounds in ((0.3, 1.9), (3.0, -0.2), (-2.0, 6.0)):
        np.testing.assert_allclose(found.integrate(*bounds), expected.integrate(*bounds), **CLOSE)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("n", [2, 3, 4, 6])
@together("bc", CONDITIONS)
def test_cubic_splines_are_scipys(bc, n, dtype):
    y = values(n, is_periodic=bc == "periodic", dtype=dtype)
    found = interpolate.CubicSpline(POINTS[:n], y, bc_type=CONDITIONS[bc])
    expected = scipy.interpolate.CubicSpline(POINTS[:n], y, bc_type=CONDITIONS[bc])
    np.testing.assert_allclose(found.c, expected.c, **CLOSE)
    check_like_scipys(found, expected)
    if bc == "periodic":
        np.testing.assert_allclose(found.integrate(-3.0, 9.0), expected.integrate(-3.0, 9.0), **CLOSE)


@pytest.mark.parametrize("n", [2, 3, 6])
def test_monotonic_splines_are_scipys(n):
    for y in (values(n), np.sort(values(n), 0), np.round(values(n))):
        found = interpolate.PchipInterpolator(POINTS[:n], y)
        check_like_scipys(found, scipy.interpolate.PchipInterpolator(POINTS[:n], y))


@pytest.mark.parametrize("k", [1, 3, 5])
def test_interpolating_splines_are_scipys(k):
    y = values(6)
    found = interpolate.make_interp_spline(POINTS, y, k)
    expected = scipy.interpolate.make_interp_spline(POINTS, y, k)
    assert (found.k, found.n, found.extrapolate) == (k, 6, True)
    np.testing.assert_allclose(found.t, expected.t)
    np.testing.assert_allclose(found.c, expected.c, **CLOSE)
    check_like_scipys(found, expected)
    complex_valued = interpolate.make_interp_spline(POINTS, y * (1 + 2j), k)
    np.testing.assert_allclose(complex_valued(PLACES), expected(PLACES) * (1 + 2j), **CLOSE)
    np.testing.assert_allclose(complex_valued.integrate(0.0, 2.0), expected.integrate(0.0, 2.0) * (1 + 2j), **CLOSE)


def test_hermite_splines_and_polynomials_are_scipys():
    y, slopes = values(6), entries(6, 2)[::-1]
    found = interpolate.CubicHermiteSpline(POINTS, y, slopes)
    expected = scipy.interpolate.CubicHermiteSpline(POINTS, y, slopes)
    check_like_scipys(found, expected)
    check_like_scipys(interpolate.PPoly(expected.c, POINTS), scipy.interpolate.PPoly(expected.c, POINTS))
    spline = scipy.interpolate.make_interp_spline(POINTS, y)
    check_like_scipys(interpolate.BSpline(spline.t, spline.c, 3), spline)


@pytest.mark.parametrize("kind", ["CubicSpline", "PchipInterpolator", "make_interp_spline"])
def test_any_axis(kind):
    y = np.moveaxis(entries(2, 6, 3), 1, 2)
    for axis in (2, -1):
        found = getattr(interpolate, kind)(POINTS, y, axis=axis)(PLACES)
        np.testing.assert_allclose(found, getattr(scipy.interpolate, kind)(POINTS, y, axis=axis)(PLACES), **CLOSE)


# --- derivatives -----------------------------------------------------------------------------------------------------

SPLINES = {
    "not-a-knot": interpolate.CubicSpline,
    "natural": lambda x, y: interpolate.CubicSpline(x, y, bc_type="natural"),
    "clamped": lambda x, y: interpolate.CubicSpline(x, y, bc_type="clamped"),
    "end slopes": lambda x, y: interpolate.CubicSpline(x, y, bc_type=((1, ops.np.getitem(y, (0,))), "natural")),
    "pchip": interpolate.PchipInterpolator,
    "hermite": lambda x, y: interpolate.CubicHermiteSpline(x, y, ops.np.multiply(y, y)),
    "linear": lambda x, y: interpolate.make_interp_spline(x, y, 1),
    "cubic": interpolate.make_interp_spline,
}
INSIDE = np.array([-0.7, 0.2, 1.4, 2.8, 4.5])


@pytest.mark.parametrize("name", SPLINES)
def test_derivatives_of_every_order_by_points_values_and_places(name):
    def function(x, y, at):
        spline = SPLINES[name](x, y)
        return spline(at), spline(at, 1), spline.integrate(0.1, 2.9)

    arguments = [Tensor(np.array(x), requires_grad=True) for x in (POINTS, values(6), INSIDE)]
    gradcheck(function, arguments, check_forward_ad=True)
    gradgradcheck(function, arguments)


def test_derivatives_of_a_periodic_spline():
    def function(x, y):
        y = ops.np.concatenate([y, ops.np.getitem(y, (slice(0, 1),))])
        spline = interpolate.CubicSpline(x, y, bc_type="periodic")
        return spline(np.array([-3.0, 0.1, 7.0])), spline.integrate(-3.0, 7.0)

    arguments = [Tensor(np.array(x), requires_grad=True) for x in (POINTS, values(5))]
    gradcheck(function, arguments, check_forward_ad=True)
    gradgradcheck(function, arguments)


def test_the_gradient_of_an_integral_by_its_end_is_the_value():
    spline = interpolate.CubicSpline(POINTS, values(6)[:, 0])
    for found in (spline, interpolate.make_interp_spline(POINTS, values(6)[:, 0])):
        np.testing.assert_allclose(grad(lambda b, f=found: f.integrate(0.0, b))(np.array(1.7)), found(1.7))
        np.testing.assert_allclose(grad(found)(np.array(1.7)), found(1.7, 1), rtol=1e-12)


def test_a_cubic_is_its_own_spline():
    # The slopes by points and values cancel: moving a point along the curve changes nothing.
    def cubic(x):
        return ops.np.multiply(x, ops.np.square(x))

    def at(x):
        return interpolate.CubicSpline(x, cubic(x))(INSIDE)

    found, tangent = jvp(at, (POINTS,), (entries(6),))
    np.testing.assert_allclose(found, INSIDE ** 3, rtol=1e-12)
    np.testing.assert_allclose(tangent, 0, atol=1e-10)


def test_energy_is_quadratic_in_the_values():
    # The hessian of the integral of the squared second derivative gives the integral again.
    def energy(y):
        bend = interpolate.CubicSpline(POINTS, y, bc_type="natural").derivative(2)
        squares = ops.np.square(bend(np.linspace(POINTS[0], POINTS[-1], 50)))
        return ops.np.sum(squares)

    y = values(6)[:, 0]
    np.testing.assert_allclose(y @ hessian(energy)(y) @ y / 2, energy(y), rtol=1e-10)


# --- transforms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPLINES)
@together("in_dims", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)],
          ids=["points", "values", "places", "all"])
def test_vmap_is_a_loop(name, in_dims):
    def function(x, y, at):
        spline = SPLINES[name](x, y)
        return spline(at), spline.integrate(0.0, at[1])

    arrays = (POINTS, values(6), INSIDE)
    stacks = [np.stack([x, 1.1 * x, 0.9 * x]) for x in arrays]
    batched = [stack if dim == 0 else x for x, stack, dim in zip(arrays, stacks, in_dims, strict=True)]
    found = vmap(function, in_dims)(*batched)
    loop = [function(*[x[i] if dim == 0 else x for x, dim in zip(batched, in_dims, strict=True)]) for i in range(3)]
    for one, each in zip(found, zip(*loop, strict=True), strict=True):
        np.testing.assert_allclose(one, each, **CLOSE)


@pytest.mark.parametrize("name", SPLINES)
def test_traced_and_compiled_is_eager(name):
    def function(x, y, at):
        return SPLINES[name](x, y)(at)

    arrays, others = (POINTS, values(6), INSIDE), (POINTS + 0.1, 2 * values(6), INSIDE + 0.2)
    for made in (make_fx(function)(*arrays), pydispatch.compile(function)):
        np.testing.assert_allclose(made(*others), function(*others), **CLOSE)


def test_functions_return_splines():
    splines = vmap(lambda y: interpolate.CubicSpline(POINTS, y))(np.stack([values(6), 2 * values(6)]))
    assert isinstance(splines, interpolate.CubicSpline)
    found = vmap(lambda spline: spline(INSIDE))(splines)
    np.testing.assert_allclose(found[1], interpolate.CubicSpline(POINTS, 2 * values(6))(INSIDE), **CLOSE)
    gradient = grad(lambda spline: ops.np.sum(spline(INSIDE)))(interpolate.make_interp_spline(POINTS, values(6)))
    assert gradient.c.shape == (6, 2)


def test_splines_of_tensors_are_tensors():
    assert isinstance(interpolate.CubicSpline(POINTS, Tensor(values(6)))(0.3), Tensor)
    assert isinstance(interpolate.CubicSpline(POINTS, values(6))(Tensor(INSIDE)), Tensor)
    assert isinstance(interpolate.CubicSpline([0, 1, 2], [0, 1, 4])([0.5]), np.ndarray)


# --- errors ----------------------------------------------------------------------------------------------------------

NAN = np.where(np.arange(6) == 2, np.nan, 1.0)
ERRORS = {
    "not increasing": (lambda y: interpolate.CubicSpline(POINTS[::-1], y), r"CubicSpline: `x` must be strictly incr"),
    "nan in x": (lambda y: interpolate.CubicSpline(NAN, y), r"CubicSpline: `x` must contain only finite values"),
    "length": (lambda y: interpolate.PchipInterpolator(POINTS[:4], y),
               r"PchipInterpolator: The length of `y` along `axis`=0 doesn't match"),
    "two axes": (lambda y: interpolate.CubicSpline(np.ones((2, 2)), y), r"CubicSpline: `x` must be 1-dimensional"),
    "one point": (lambda y: interpolate.CubicSpline(POINTS[:1], y), r"CubicSpline: `x` must contain at least 2"),
    "complex x": (lambda y: interpolate.CubicSpline(1j * POINTS, y), r"CubicSpline: `x` must contain real values"),
    "axis": (lambda y: interpolate.CubicSpline(POINTS, y, axis=3), r"CubicSpline: axis=3 is out of bounds"),
    "condition": (lambda y: interpolate.CubicSpline(POINTS, y, bc_type="flat"), r"CubicSpline: bc_type=flat"),
    "conditions": (lambda y: interpolate.CubicSpline(POINTS, y, bc_type=("natural",) * 3), r"CubicSpline: `bc_type` m"),
    "periodic pair": (lambda y: interpolate.CubicSpline(POINTS, y, bc_type=("periodic", "natural")),
                      r"CubicSpline: 'periodic' `bc_type` is defined for both"),
    "order": (lambda y: interpolate.CubicSpline(POINTS, y, bc_type=((3, 0.0), (1, 0.0))),
              r"CubicSpline: The specified derivative order must be 1 or 2"),
    "slopes": (lambda y: interpolate.CubicHermiteSpline(POINTS, y, np.ones(5)), "CubicHermiteSpline: The shapes of"),
    "few points": (lambda y: interpolate.make_interp_spline(POINTS[:3], y[:3]), "make_interp_spline: 3 points are too"),
    "coefficients": (lambda y: interpolate.PPoly(np.ones((4, 3)), y), r"PPoly: number of coefficients != len\(x\)-1"),
    "knots": (lambda y: interpolate.BSpline(POINTS[::-1], y, 1), "BSpline: Knots must be in a non-decreasing order"),
}
WAYS = {
    "eager": lambda function: lambda y: function(Tensor(y)),
    "grad": lambda function: grad(lambda y: ops.np.sum(function(y)(0.3))),
    "jvp": lambda function: lambda y: jvp(lambda y: function(y)(0.3), (y,), (y,)),
    "vmap": lambda function: lambda y: vmap(lambda y: function(y)(0.3))(np.stack([y, y])),
}


@pytest.mark.parametrize("name", ERRORS)
@together("way", WAYS)
def test_errors_name_the_spline(name, way):
    function, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        WAYS[way](function)(values(6)[:, 0])


VALUES = {
    "order": (lambda x: interpolate.CubicSpline(x, POINTS)(0.3), POINTS[::-1].copy(), "CubicSpline: `x` must be str"),
    "breakpoints": (lambda x: interpolate.PPoly(np.ones((2, 5)), x)(0.3), POINTS[::-1].copy(), "PPoly: `x` must be"),
    "nan in x": (lambda x: interpolate.CubicSpline(x, POINTS)(0.3), NAN, "CubicSpline: `x` must contain only finite"),
    "nan in y": (lambda y: interpolate.CubicSpline(POINTS, y)(0.3), NAN, "CubicSpline: `y` must contain only finite"),
    "ends": (lambda x: interpolate.CubicSpline(POINTS, (x - POINTS[0]) * (x - POINTS[-1]), bc_type="periodic")(0.3),
             2 * POINTS, "CubicSpline: The first and last"),
    "knots": (lambda t: interpolate.BSpline(t, POINTS, 1)(0.3), POINTS[::-1].copy(), "BSpline: Knots must be"),
}
LATER = {
    "vmap": lambda function, bad: vmap(function)(np.stack([POINTS, bad])),
    "gradients in a batch": lambda function, bad: vmap(grad(lambda x: ops.np.sum(function(x))))(
        np.stack([POINTS, bad])),
    "compile": lambda function, bad: pydispatch.compile(function)(bad),
    "trace": lambda function, bad: make_fx(function)(POINTS)(bad),
}


@pytest.mark.parametrize("name", VALUES)
@together("way", LATER)
def test_bad_values_are_found_where_a_transform_or_a_trace_has_them(name, way):
    function, bad, message = VALUES[name]
    with pytest.raises(ValueError, match=message) as caught:
        LATER[way](function, bad)
    if way in ("vmap", "gradients in a batch"):
        assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


def test_values_that_are_known_are_checked():
    with pytest.raises(ValueError, match="CubicSpline: `y` must contain only finite values"):
        interpolate.CubicSpline(POINTS, Tensor(NAN))
    with pytest.raises(ValueError, match="CubicSpline: The first and last `y` point along axis 0 must be identical"):
        interpolate.CubicSpline(POINTS, Tensor(values(6)), bc_type="periodic")
    with pytest.raises(ValueError, match=r"PchipInterpolator: .*only works with real values"):
        interpolate.PchipInterpolator(POINTS, 1j * POINTS)


def test_what_is_left_out_says_what_to_use():
    for options in ({"k": 2}, {"t": POINTS}, {"bc_type": "natural"}):
        with pytest.raises(NotImplementedError, match="make_interp_spline: "):
            interpolate.make_interp_spline(POINTS, values(6), **options)


def test_gradients_are_those_of_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    theirs = jax.grad(lambda y: (jax.numpy.interp(INSIDE[1:-1], POINTS, y) ** 2).sum())
    ours = grad(lambda y: ops.np.sum(ops.np.square(interpolate.make_interp_spline(POINTS, y, 1)(INSIDE[1:-1]))))
    np.testing.assert_allclose(ours(values(6)[:, 0]), np.asarray(theirs(values(6)[:, 0])), **CLOSE)


@pytest.mark.parametrize("transform", [None, vmap, lambda function: vmap(grad(function))],
                         ids=["eager", "vmap", "vmap of grad"])
def test_values_of_other_backends_are_not_looked_at(transform):
    dask = pytest.importorskip("dask.array")

    def value(x):
        return interpolate.PPoly(np.ones((2, 5)), x)(0.3)

    points = POINTS if transform is None else np.stack([POINTS, POINTS + 0.1])
    function = value if transform is None else transform(value)
    expected = function(points)
    found = function(Tensor(dask.from_array(points)))
    np.testing.assert_allclose(np.asarray(found.array), expected)
