"""SciPy's classes on Tensors: SciPy's values, finite differences, loops over examples."""

import pickle
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
import scipy.linalg
import scipy.spatial.transform

import pydispatch.scipy
from pydispatch import Tensor, func
from pydispatch.exceptions import DataDependentError, VmapError
from pydispatch.scipy import interpolate, signal, stats
from pydispatch.scipy.borrowed import CLASSES
from pydispatch.scipy.pack import FACE
from pydispatch.scipy.spatial import transform
from pydispatch.tree import tree_leaves
from tests.scipy.samples.sample import between
from tests.together import together

for family in ("interpolate", "signal", "spatial", "stats"):
    import_module(f"pydispatch.scipy.{family}")

OURS = SimpleNamespace(interpolate=interpolate, signal=signal, stats=stats,
                       spatial=SimpleNamespace(transform=transform))
X, Y, Q = np.array([0.0, 0.7, 1.5, 2.0, 3.1, 4.0]), between(-2, 2, 6), np.array([0.2, 1.7, 2.4, 3.7])
POINTS = np.array([[0.0, 0.0], [1.0, 0.1], [0.1, 1.0], [1.1, 1.2], [0.4, 0.6]])
VALUES, QUERIES = between(-2, 2, 5), np.array([[0.4, 0.45], [0.8, 0.6]])
GRID, HEIGHTS = (np.array([0.0, 0.2, 0.5, 0.75, 1.0]), np.array([0.0, 0.3, 0.7, 1.2])), between(-2, 2, 5, 4)
ROTATION, QUATERNION = np.array([0.3, -0.4, 0.8]), np.array([0.1, 0.2, 0.3, 0.9])
NUMERATOR, DENOMINATOR, STATES = np.array([1.0, 0.4]), [1.0, 0.5, 0.3], np.array([[-1.0, 0.4], [0.2, -0.5]])
SIGNAL = between(-2, 2, 12)


def rotation(of):
    return of.spatial.transform.Rotation


def of_line(name):
    """Return calls of a class that interpolates between points, as functions of values, points, and queries."""
    return {f"interpolate.{name} values": (lambda of, y: getattr(of.interpolate, name)(X, y)(Q), Y),
            f"interpolate.{name} points": (lambda of, x: getattr(of.interpolate, name)(x, Y)(Q), X),
            f"interpolate.{name} queries": (lambda of, q: getattr(of.interpolate, name)(X, Y)(q), Q)}


def of_plane(name):
    return {f"interpolate.{name} values": (lambda of, v: getattr(of.interpolate, name)(POINTS, v)(QUERIES), VALUES),
            f"interpolate.{name} points": (lambda of, p: getattr(of.interpolate, name)(p, VALUES)(QUERIES), POINTS),
            f"interpolate.{name} queries": (lambda of, q: getattr(of.interpolate, name)(POINTS, VALUES)(q), QUERIES)}


CALLS = {
    **of_line("Akima1DInterpolator"), **of_line("KroghInterpolator"), **of_line("BarycentricInterpolator"),
    **of_line("FloaterHormannInterpolator"), **of_line("interp1d"), **of_plane("RBFInterpolator"),
    **of_plane("LinearNDInterpolator"),
    "interpolate.NearestNDInterpolator": (
        lambda of, v: of.interpolate.NearestNDInterpolator(POINTS, v)(QUERIES), VALUES),
    "interpolate.Akima1DInterpolator slope": (
        lambda of, y: of.interpolate.Akima1DInterpolator(X, y).derivative()(Q), Y),
    "interpolate.KroghInterpolator slopes": (lambda of, y: of.interpolate.KroghInterpolator(X, y).derivatives(Q), Y),
    "interpolate.Rbf": (lambda of, v: of.interpolate.Rbf(*POINTS.T, v)(*QUERIES.T), VALUES),
    **{f"interpolate.RegularGridInterpolator {method}": (
        lambda of, v, method=method: of.interpolate.RegularGridInterpolator(GRID, v, method)(QUERIES), HEIGHTS)
       for method in ("linear", "nearest", "slinear", "cubic", "pchip")},
    "interpolate.RegularGridInterpolator queries": (
        lambda of, q: of.interpolate.RegularGridInterpolator(GRID, HEIGHTS, "cubic")(q), QUERIES),
    "interpolate.RegularGridInterpolator grid": (
        lambda of, g: of.interpolate.RegularGridInterpolator((g, GRID[1]), HEIGHTS)(QUERIES), GRID[0]),
    "interpolate.lagrange": (lambda of, y: of.interpolate.lagrange(X[:4], y).coef, Y[:4]),
    "interpolate.pade": (lambda of, c: of.interpolate.pade(c, 2)[0].coef, np.array([1.0, 1.0, 0.5, 0.2, 0.1])),
    "stats.gaussian_kde": (lambda of, x: of.stats.gaussian_kde(x)(Q), Y),
    "stats.gaussian_kde queries": (lambda of, q: of.stats.gaussian_kde(Y, 0.4).logpdf(q), Q),
    "stats.gaussian_kde of vectors": (lambda of, x: of.stats.gaussian_kde(x)(QUERIES), POINTS.T),
    "stats.gaussian_kde weights": (lambda of, w: of.stats.gaussian_kde(Y, weights=w).integrate_box_1d(0.0, 1.0),
                                   np.arange(1.0, 7.0)),
    "signal.ShortTimeFFT": (lambda of, x: of.signal.ShortTimeFFT(np.hanning(9)[1:-1], 2, 1.0).stft(x).real, SIGNAL),
    "signal.CZT": (lambda of, x: of.signal.CZT(12, 5)(x).real, SIGNAL),
    "signal.ZoomFFT": (lambda of, x: of.signal.ZoomFFT(12, [0.1, 0.3], 5)(x).real, SIGNAL),
    "signal.lti": (lambda of, b: of.signal.lti(b, DENOMINATOR).freqresp([0.1, 1.0])[1].real, NUMERATOR),
    "signal.dlti": (lambda of, b: of.signal.dlti(b, DENOMINATOR).impulse(n=4)[1][0], NUMERATOR),
    "signal.StateSpace": (
        lambda of, a: of.signal.StateSpace(a, np.ones((2, 1)), np.ones((1, 2)), 1.0).to_tf().den, STATES),
    "signal.TransferFunction": (lambda of, b: of.signal.TransferFunction(b, DENOMINATOR).bode([0.1, 1.0])[1],
                                NUMERATOR),
    "signal.ZerosPolesGain": (lambda of, k: of.signal.ZerosPolesGain([-0.3], [-0.5, -0.2], k).to_tf().num,
                              np.array(1.5)),
    "spatial.transform.Rotation": (lambda of, q: rotation(of).from_quat(q).as_matrix(), QUATERNION),
    "spatial.transform.Rotation angles": (lambda of, e: rotation(of).from_euler("xyz", e).as_euler("zyx"), ROTATION),
    "spatial.transform.Rotation matrix": (lambda of, m: rotation(of).from_matrix(m).as_rotvec(),
                                          scipy.linalg.expm(np.cross(np.eye(3), ROTATION))),
    "spatial.transform.Rotation align": (lambda of, v: rotation(of).align_vectors(v, np.eye(3))[0].as_rotvec(),
                                         np.eye(3) + between(-0.3, 0.3, 3, 3)),
    "spatial.transform.Rotation apply": (lambda of, v: rotation(of).from_rotvec(v).apply([1.0, 2.0, 3.0]), ROTATION),
    "spatial.transform.Rotation product": (
        lambda of, v: (rotation(of).from_rotvec(v) * rotation(of).from_mrp(ROTATION).inv()).as_rotvec(), -ROTATION),
    "spatial.transform.Rotation mean": (lambda of, v: rotation(of).from_rotvec(v).mean().as_matrix(),
                                        between(-1, 1, 5, 3)),
    "spatial.transform.Slerp": (
        lambda of, v: of.spatial.transform.Slerp([0.0, 1.0], rotation(of).from_rotvec(v))([0.3, 0.6]).as_rotvec(),
        np.stack([ROTATION, -0.5 * ROTATION[::-1]])),
    "spatial.transform.RotationSpline": (
        lambda of, v: of.spatial.transform.RotationSpline([0.0, 1.0, 2.5], rotation(of).from_rotvec(v))(
            [0.3, 1.6]).as_rotvec(), between(-1, 1, 3, 3)),
    "spatial.transform.RigidTransform": (
        lambda of, v: of.spatial.transform.RigidTransform.from_components(
            v, rotation(of).from_rotvec(v)).apply([1.0, 2.0, 3.0]), ROTATION),
}


def differences(function, x, step=1e-6):
    columns = [(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(x.size).reshape(-1, *x.shape)]
    return np.moveaxis(np.array(columns), 0, -1).reshape(np.shape(columns[0]) + x.shape)



HERE = [name for name in CALLS if {name.partition(" ")[0]} & {*CLASSES, *FACE.functions}]
"""The calls of what the installed SciPy has as code in Python."""


def test_every_class_has_a_call():
    assert set(CLASSES) <= {name.partition(" ")[0] for name in CALLS}


@together("name", HERE)
def test_values_are_scipys_and_derivatives_those_of_differences(name):
    call, x = CALLS[name]
    expected = np.asarray(call(scipy, x))
    assert not isinstance(call(OURS, x), Tensor)
    np.testing.assert_allclose(call(OURS, x), expected, rtol=1e-11, atol=1e-11)
    found = call(OURS, Tensor(x))
    assert isinstance(found, Tensor)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-11, atol=1e-11)
    slopes = differences(lambda x: np.asarray(call(scipy, x)), x)
    for jacobian in (func.jacrev, func.jacfwd):
        np.testing.assert_allclose(jacobian(lambda x: call(OURS, x))(x), slopes, rtol=1e-5, atol=1e-6)


@together("name", HERE)
def test_vmap_is_a_loop(name):
    call, x = CALLS[name]
    if name in ("interpolate.lagrange", "interpolate.pade"):        # which return a polynomial of NumPy
        with pytest.raises(VmapError, match="vmap cannot return a poly1d"):
            func.vmap(lambda x: call(OURS, x))(np.stack([x, x]))
        return
    batch = np.stack([x, 0.97 * x])
    np.testing.assert_allclose(func.vmap(lambda x: call(OURS, x))(batch), [call(OURS, each) for each in batch],
                               rtol=1e-12, atol=1e-12)
    slope = func.jacrev(lambda x: call(OURS, x))
    np.testing.assert_allclose(func.vmap(slope)(batch)[1], slope(batch[1]), rtol=1e-10, atol=1e-10)


@together("name", ["interpolate.Akima1DInterpolator values", "stats.gaussian_kde",
                   "interpolate.RegularGridInterpolator cubic"])
def test_second_order(name):
    call, x = CALLS[name]
    slope = func.jacrev(lambda x: call(OURS, x))
    np.testing.assert_allclose(func.jacfwd(slope)(x), differences(slope, x), rtol=1e-4, atol=1e-5)


def test_objects_are_pytree_nodes_of_the_public_class():
    value = func.vmap(lambda y: interpolate.KroghInterpolator(X, y))(np.stack([Y, 2 * Y]))
    assert isinstance(value, interpolate.KroghInterpolator)
    assert any(np.shape(leaf)[0] == 2 for leaf in tree_leaves(value) if hasattr(leaf, "shape") and leaf.shape)
    found = func.vmap(lambda each: each(Q))(value)
    np.testing.assert_allclose(found, [scipy.interpolate.KroghInterpolator(X, y)(Q) for y in (Y, 2 * Y)])


@pytest.mark.parametrize("make", {
    "public": lambda: interpolate.CubicSpline(X, Y),
    "private": lambda: signal.lti([1.0], [1.0, 2.0]),
    "by a method of its class": lambda: CLASSES and transform.RigidTransform.identity(),
}.values())
def test_an_object_is_pickled(make):
    value = make()
    found = pickle.loads(pickle.dumps(value))
    assert type(found) is type(value)
    assert all((np.asarray(a) == b).all() for a, b in zip(tree_leaves(found), tree_leaves(value), strict=True)
               if isinstance(b, np.ndarray))


@pytest.mark.skipif("spatial.transform.Rotation" not in CLASSES, reason="SciPy computes rotations in compiled code")
@pytest.mark.parametrize("sides", [("left",), ("right",), ("left", "right")])
def test_rotations_are_reduced_by_groups(sides):
    found, expected = [
        of.from_rotvec(np.pi * between(-1, 1, 6, 3)).reduce(
            return_indices=True, **{side: of.create_group({"left": "C3", "right": "T"}[side]) for side in sides})
        for of in (transform.Rotation, scipy.spatial.transform.Rotation)]
    np.testing.assert_allclose((found[0] * transform.Rotation.from_quat(expected[0].as_quat()).inv()).magnitude(), 0,
                               atol=1e-12)
    assert all((found[i] == expected[i]).all() for i, side in ((1, "left"), (2, "right")) if side in sides)


def test_a_number_is_numpys_scalar_as_scipys():
    assert isinstance(stats.gaussian_kde(Y).integrate_box_1d(0.0, 1.0), float)
    if "spatial.transform.Rotation" in CLASSES:
        assert isinstance(transform.Rotation.from_rotvec(ROTATION).magnitude(), float)


def test_a_trace_refuses_values_by_name():
    with pytest.raises(DataDependentError):
        pydispatch.tracing.make_fx(lambda p: interpolate.LinearNDInterpolator(p, VALUES)(QUERIES))(POINTS)


def test_errors_are_scipys():
    with pytest.raises(ValueError, match="out of bounds"):
        interpolate.RegularGridInterpolator(GRID, Tensor(HEIGHTS))([[5.0, 5.0]])
    if "spatial.transform.Rotation" in CLASSES:
        with pytest.raises(ValueError, match="norm"):
            transform.Rotation.from_quat(Tensor(np.zeros(4)))
    with pytest.raises(AttributeError, match=r"'pydispatch\.scipy\.interpolate' has no attribute 'nothing'"):
        interpolate.nothing  # noqa: B018


def test_points_outside_get_the_fill_value():
    found = interpolate.LinearNDInterpolator(POINTS, Tensor(VALUES), 7.0)([[9.0, 9.0]])
    assert found.numpy() == 7.0
    far = interpolate.NearestNDInterpolator(POINTS, Tensor(VALUES))([[9.0, 9.0]], distance_upper_bound=1.0)
    assert np.isnan(far.numpy())
