"""What SciPy's interpolators of several dimensions compute in compiled code, on Tensors."""

# tests: tests/scipy/test_classes.py
from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import Delaunay, cKDTree

import pydispatch.numpy as pnp
from pydispatch.exceptions import DataDependentError
from pydispatch.numpy.declare import as_array, known_values
from pydispatch.scipy.borrowed import REPLACED, copy_of
from pydispatch.scipy.classes import Batching
from pydispatch.scipy.interpolate import in_doubles, make_interp_spline


def coordinates(points: Any, ndim: int | None = None) -> Any:
    """Return points as an array whose last axis has the coordinates."""
    if isinstance(points, tuple) and len(points) == 1:
        points = points[0]
    if isinstance(points, tuple):
        return pnp.stack(pnp.broadcast_arrays(*points), -1)
    points = as_array(points)
    return pnp.reshape(points, (-1, ndim or 1)) if points.ndim == 1 else points


def find_indices(grid: Any, xi: Any) -> tuple[Any, Any]:
    """Return the intervals of a grid that points lie in, along each axis, and where in the intervals they lie."""
    indices, distances = [], []
    for x, knots in zip(xi, grid, strict=True):
        n = knots.shape[0]
        index = pnp.clip(pnp.searchsorted(knots, x, "right") - 1, 0, max(n - 2, 0))
        start = pnp.take(knots, index)
        indices.append(index)
        distances.append((x - start) / (pnp.take(knots, index + 1) - start) if n > 1 else x * 0)
    return pnp.stack(indices), pnp.stack(distances)


def evaluate_linear_2d(values: Any, indices: Any, distances: Any, grid: Any, out: Any) -> Any:
    """Interpolate linearly in two dimensions."""
    (i, j), (s, t) = indices, distances
    below, beside = [np.minimum(index + 1, size - 1) for index, size in zip((i, j), values.shape, strict=True)]
    return (values[i, j] * (1 - s) * (1 - t) + values[i, beside] * (1 - s) * t
            + values[below, j] * s * (1 - t) + values[below, beside] * s * t)


def spline_of_grid(grid: Any, values: Any, k: int, **_: Any) -> Any:
    """Return the spline of degree `k` through values on a grid, which interpolates along one axis after the other."""
    method = {1: "slinear_legacy", 3: "cubic_legacy", 5: "quintic_legacy"}[k]
    return copy_of("scipy.interpolate._rgi").RegularGridInterpolator(grid, values, method, False, None)


def known(points: Any, what: str) -> Any:
    """Return points as a raw array. Raise DataDependentError if they are unknown."""
    found = known_values(points)
    if found is None:
        raise DataDependentError(f"{what} needs the values of points, which are unknown in a trace and on Meta\n"
                                 "interpolate outside")
    return np.asarray(found, float)


class Scattered(metaclass=Batching):
    """Interpolation of values at points without a grid."""

    def __init__(self, points: Any, values: Any, rescale: bool = False) -> None:
        self.points, self.values = in_doubles(coordinates(points)), as_array(values)
        if self.points.ndim != 2:
            raise ValueError("invalid shape for input data points")
        if self.values.shape[0] != self.points.shape[0]:
            raise ValueError("different number of values and points")
        self.offset, self.scale = 0.0, 1.0
        if rescale:
            self.offset, self.scale = pnp.mean(self.points, 0), pnp.ptp(self.points, 0)
            self.points = (self.points - self.offset) / self.scale

    def queries(self, args: tuple[Any, ...]) -> tuple[Any, tuple[int, ...]]:
        """Return the points of evaluation, one in each row, and the shape of the result before that of a value."""
        n = self.points.shape[1]
        xi = coordinates(args if len(args) > 1 else args[0], n)
        if xi.shape[-1] != n:
            raise ValueError("number of dimensions in xi does not match x")
        return (pnp.reshape(xi, (-1, n)) - self.offset) / self.scale, xi.shape[:-1]


class LinearNDInterpolator(Scattered):
    """Linear interpolation in the simplices of Delaunay's triangulation, as `scipy.interpolate.LinearNDInterpolator`.

    It has gradients by values, points and points of evaluation, as long as the triangulation is the same.
    """

    def __init__(self, points: Any, values: Any, fill_value: float = np.nan, rescale: bool = False) -> None:
        super().__init__(points.points if isinstance(points, Delaunay) else points, values, rescale)
        self.values, self.fill_value = in_doubles(self.values), fill_value

    def __call__(self, *args: Any) -> Any:
        """Return the values at points."""
        x, shape = self.queries(args)
        triangles = Delaunay(known(self.points, "LinearNDInterpolator"))
        simplex = triangles.find_simplex(known(x, "LinearNDInterpolator"))
        corners = triangles.simplices[simplex]
        of_corners = self.points[corners]
        edges = pnp.swapaxes(of_corners[:, :-1] - of_corners[:, -1:], 1, 2)
        weights = pnp.linalg.solve(edges, (x - of_corners[:, -1])[..., None])[..., 0]
        weights = pnp.concatenate([weights, 1 - pnp.sum(weights, 1, keepdims=True)], 1)
        more = self.values.shape[1:]
        weights = pnp.reshape(weights, (*weights.shape, *(1,) * len(more)))
        found = pnp.sum(weights * self.values[corners], 1)
        inside = np.reshape(simplex >= 0, (-1, *(1,) * len(more)))
        return pnp.reshape(pnp.where(inside, found, self.fill_value), (*shape, *more))


class NearestNDInterpolator(Scattered):
    """The value at the nearest point, as `scipy.interpolate.NearestNDInterpolator`, with gradients by values."""

    def __init__(self, x: Any, y: Any, rescale: bool = False, tree_options: Any = None) -> None:
        super().__init__(x, y, rescale)
        self.tree_options = tree_options or {}

    def __call__(self, *args: Any, **query_options: Any) -> Any:
        """Return the values at points."""
        x, shape = self.queries(args)
        tree = cKDTree(known(self.points, "NearestNDInterpolator"), **self.tree_options)
        distance, index = tree.query(known(x, "NearestNDInterpolator"), **query_options)
        found = self.values[np.minimum(index, len(tree.data) - 1)]
        if np.isinf(distance).any():
            found = pnp.where(np.reshape(np.isinf(distance), (-1, *(1,) * (found.ndim - 1))), np.nan, found)
        return pnp.reshape(found, (*shape, *self.values.shape[1:]))


def kernel_matrix(x: Any, kernel: Any, xp: Any) -> Any:
    """Return a function of the distances between points. Those to the points themselves are constant zeros."""
    is_same = np.eye(x.shape[0], dtype=bool)
    squares = pnp.sum((x[None] - x[:, None]) ** 2, -1)
    with np.errstate(all="ignore"):
        at_0 = kernel(np.zeros(()), np)
    return pnp.where(is_same, at_0, kernel(pnp.sqrt(pnp.where(is_same, 1.0, squares)), xp))


REPLACED["scipy.interpolate._rbfinterp_xp"] = {"kernel_matrix": kernel_matrix}
REPLACED["scipy.interpolate._rgi"] = {
    "_ndim_coords_from_arrays": coordinates, "find_indices": find_indices, "evaluate_linear_2d": evaluate_linear_2d,
    "make_interp_spline": make_interp_spline, "make_ndbspl": spline_of_grid}
REPLACED["scipy.interpolate._ndgriddata"] = {
    "_ndim_coords_from_arrays": coordinates, "LinearNDInterpolator": LinearNDInterpolator,
    "NearestNDInterpolator": NearestNDInterpolator}
REPLACED["scipy.interpolate._rbfinterp"] = {"_get_backend": lambda xp: copy_of("scipy.interpolate._rbfinterp_xp")}
