"""`scipy.interpolate`: splines through points, with gradients of the values, the points and the points of
evaluation.

The classes have SciPy's names, arguments and errors. They are pytree nodes, so functions under transforms can
take and return them. Coefficients are the solution of a banded system with sparse factors. All else is written
with operators. At a point where a spline changes its formula, its derivative is that of the piece on the right.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib import import_module
from math import prod
from typing import Any

import numpy as np

from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import CLASSES, borrow, borrow_classes, publish
from pydispatch.scipy.checks import value_check
from pydispatch.scipy.pack import FACE, SCIPY
from pydispatch.scipy.sparse.arrays import Structure
from pydispatch.tree import register_pytree_node

__all__ = ["BSpline", "CubicHermiteSpline", "CubicSpline", "PPoly", "PchipInterpolator", "make_interp_spline"]
__dir__ = only_public(globals())

NP = ops.np


def part(x: Any, start: int | None, stop: int | None = None) -> Any:
    """Return a slice of the first axis."""
    return NP.getitem(x, (slice(start, stop),))


def item(x: Any, i: int) -> Any:
    """Return one element of the first axis."""
    return NP.getitem(x, (i,))


def total(*terms: Any) -> Any:
    """Add all terms."""
    found = terms[0]
    for term in terms[1:]:
        found = NP.add(found, term)
    return found


def in_doubles(x: Any) -> Any:
    """Convert an array to double precision."""
    x = as_nonscalar(x)
    dtype = np.dtype(np.complex128 if x.dtype.kind == "c" else np.float64)
    return x if x.dtype == dtype else NP.astype(x, dtype)


def with_axes(x: Any, n: int) -> Any:
    """Append `n` axes of length 1."""
    return NP.reshape(x, (*x.shape, *(1,) * n))


def prepared(name: str, x: Any, y: Any, axis: int, *others: Any) -> tuple[Any, ...]:
    """Return x, its differences, the axis, and the values with that axis first. Raise ValueError for invalid ones."""
    x, arrays = as_nonscalar(x), [as_nonscalar(value) for value in (y, *others)]
    if x.dtype.kind == "c":
        raise ValueError(f"{name}: `x` must contain real values.")
    x, arrays = in_doubles(x), [in_doubles(value) for value in arrays]
    if x.ndim != 1:
        raise ValueError(f"{name}: `x` must be 1-dimensional.")
    if x.shape[0] < 2:
        raise ValueError(f"{name}: `x` must contain at least 2 elements.")
    y = arrays[0]
    if not -y.ndim <= axis < y.ndim:
        raise ValueError(f"{name}: axis={axis} is out of bounds for `y` of {y.ndim} axes.")
    axis %= y.ndim
    if y.shape[axis] != x.shape[0]:
        raise ValueError(f"{name}: The length of `y` along `axis`={axis} doesn't match the length of `x`")
    if any(tuple(value.shape) != tuple(y.shape) for value in arrays[1:]):
        raise ValueError(f"{name}: The shapes of `y` and `dydx` must be identical.")
    x = increasing(finite(x, f"{name}: `x`"), name)
    arrays = [finite(value, f"{name}: `{label}`") for label, value in zip(("y", "dydx"), arrays, strict=False)]
    return (x, NP.subtract(part(x, 1), part(x, None, -1)), axis, *[NP.moveaxis(value, axis, 0) for value in arrays])


def check_finite(x: Any, who: str) -> None:
    """Raise SciPy's error for values that are infinite or nan."""
    if not np.isfinite(x).all():
        raise ValueError(f"{who} must contain only finite values.")


def check_increasing(x: Any, who: str) -> None:
    """Raise SciPy's error for values along the last axis that do not strictly increase."""
    if (x[..., 1:] <= x[..., :-1]).any():
        raise ValueError(f"{who}: `x` must be strictly increasing sequence.")


def check_knots(t: Any, who: str) -> None:
    """Raise SciPy's error for knots along the last axis that are not in order."""
    if (t[..., 1:] < t[..., :-1]).any():
        raise ValueError(f"{who}: Knots must be in a non-decreasing order.")


def check_closed(y: Any, who: str) -> None:
    """Raise SciPy's error for values along the last axis that do not end as they begin."""
    if not np.allclose(y[..., 0], y[..., -1], rtol=1e-15, atol=1e-15):
        raise ValueError(f"{who} must be identical (within machine precision) when bc_type='periodic'.")


closed = value_check("interpolate_closed", check_closed)
finite = value_check("interpolate_finite", check_finite)
increasing = value_check("interpolate_increasing", check_increasing)
knots_in_order = value_check("interpolate_knots", check_knots)


def as_columns(y: Any) -> Any:
    """Return a matrix with a column for each function that is interpolated."""
    shape = tuple(y.shape)
    return NP.reshape(y, (shape[0], prod(shape[1:])))


def moved_in(found: Any, x_ndim: int, axis: int) -> Any:
    """Move the axes of the points of evaluation, which come first, to the axis of the spline's points."""
    if not axis:
        return found
    order = list(range(found.ndim))
    return NP.transpose(found, (*order[x_ndim:x_ndim + axis], *order[:x_ndim], *order[x_ndim + axis:]))


def wrapped_around(x: Any, start: Any, end: Any) -> Any:
    """Move points by whole periods into the first period."""
    return NP.add(start, NP.remainder(NP.subtract(x, start), NP.subtract(end, start)))


def nan_outside(found: Any, x: Any, start: Any, end: Any) -> Any:
    inside = NP.logical_and(NP.greater_equal(x, start), NP.less_equal(x, end))
    return NP.where(with_axes(inside, found.ndim - 1), found, np.nan)


# --- piecewise polynomials -------------------------------------------------------------------------------------------


class PPoly:
    """A piecewise polynomial: the sum over m of `c[m, i] * (x - x[i]) ** (k - m - 1)` between x[i] and x[i + 1].

    Parameters
    ----------
    c
        Coefficients, the highest power first.
    x
        Breakpoints, which increase.
    extrapolate
        True (the default), False (nan outside) or "periodic".
    axis
        Axis of the interpolation, as in SciPy.

    Raises
    ------
    ValueError
        If the parts do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> PPoly(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([0.0, 1.0, 2.0]))(1.5)
    array(2.)
    """

    def __init__(self, c: Any, x: Any, extrapolate: Any = None, axis: int = 0):
        c, x = in_doubles(c), in_doubles(x)
        name = type(self).__name__
        if c.ndim < 2:
            raise ValueError(f"{name}: Coefficients array must be at least 2-dimensional.")
        if not 0 <= axis < c.ndim - 1:
            raise ValueError(f"{name}: axis={axis} must be between 0 and {c.ndim - 1}")
        if x.ndim != 1 or x.shape[0] < 2:
            raise ValueError(f"{name}: x must be 1-dimensional, with at least 2 breakpoints")
        c = NP.moveaxis(c, (axis, axis + 1), (0, 1))
        if not c.shape[0]:
            raise ValueError(f"{name}: polynomial must be at least of order 0")
        if c.shape[1] != x.shape[0] - 1:
            raise ValueError(f"{name}: number of coefficients != len(x)-1")
        self.c, self.x, self.axis = c, increasing(x, name), axis
        self.extrapolate = True if extrapolate is None else extrapolate

    @classmethod
    def construct_fast(cls, c: Any, x: Any, extrapolate: Any = None, axis: int = 0) -> PPoly:
        """Make a piecewise polynomial of parts that are known to fit together, with the axes of `c` in order."""
        self = object.__new__(cls)
        self.c, self.x, self.axis = c, x, axis
        self.extrapolate = True if extrapolate is None else extrapolate
        return self

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Return the values at points, or the derivatives of order `nu`."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu:
            return PPoly.derivative(self, nu)(x, 0, extrapolate)
        x = in_doubles(x)
        shape = tuple(x.shape)
        points = NP.reshape(x, (prod(shape),))
        start, end = item(self.x, 0), item(self.x, -1)
        if extrapolate == "periodic":
            points = wrapped_around(points, start, end)
        interval = NP.interval(points, self.x)
        distance = with_axes(NP.subtract(points, NP.take(self.x, interval)), self.c.ndim - 2)
        found = horner(NP.take(self.c, interval, 1), distance)
        if not extrapolate:
            found = nan_outside(found, points, start, end)
        return moved_in(NP.reshape(found, (*shape, *self.c.shape[2:])), len(shape), self.axis)

    def derivative(self, nu: int = 1) -> PPoly:
        """Return the derivative of order `nu`. A negative order gives an antiderivative."""
        if nu < 0:
            return self.antiderivative(-nu)
        c = self.c
        for _ in range(nu):
            k = c.shape[0]
            if k == 1:
                c = NP.multiply(c, 0.0)
                break
            c = NP.multiply(part(c, None, -1), with_axes(np.arange(k - 1.0, 0, -1), c.ndim - 1))
        return PPoly.construct_fast(c, self.x, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> PPoly:
        """Return the continuous antiderivative of order `nu` that is 0 at the first breakpoint."""
        if nu <= 0:
            return self.derivative(-nu)
        c = self.c
        lengths = with_axes(NP.subtract(part(self.x, 1), part(self.x, None, -1)), c.ndim - 2)
        for _ in range(nu):
            c = NP.divide(c, with_axes(np.arange(float(c.shape[0]), 0, -1), c.ndim - 1))
            zeros = NP.multiply(part(c, 0, 1), 0.0)
            passed = NP.cumsum(horner(NP.concatenate([c, zeros], 0), lengths), 0)
            starts = NP.concatenate([part(item(zeros, 0), 0, 1), part(passed, None, -1)], 0)
            c = NP.concatenate([c, NP.expand_dims(starts, 0)], 0)
        return PPoly.construct_fast(c, self.x, self.extrapolate if self.extrapolate != "periodic" else False, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """Return the integral from `a` to `b`, which may be tracked."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        whole = PPoly.construct_fast(PPoly.antiderivative(self).c, self.x, bool(extrapolate))
        if extrapolate != "periodic":
            return NP.subtract(whole(b), whole(a))
        start, end = item(self.x, 0), item(self.x, -1)
        of_period = whole(end)

        def up_to(x: Any) -> Any:
            x = in_doubles(x)
            n = NP.floor(NP.divide(NP.subtract(x, start), NP.subtract(end, start)))
            return NP.add(NP.multiply(n, of_period), whole(wrapped_around(x, start, end)))

        return NP.subtract(up_to(b), up_to(a))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.c.shape[1]} pieces of order {self.c.shape[0]})"


def horner(coefficients: Any, x: Any) -> Any:
    """Return the values of polynomials. Their coefficients lie along the first axis, the highest power first."""
    found = item(coefficients, 0)
    for i in range(1, coefficients.shape[0]):
        found = NP.add(NP.multiply(found, x), item(coefficients, i))
    return found


class CubicHermiteSpline(PPoly):
    """A cubic spline with given values and first derivatives at the points.

    Parameters
    ----------
    x
        Points, which increase.
    y, dydx
        Values and first derivatives at the points.
    axis
        Axis of `y` along which the points lie.
    extrapolate
        As in `PPoly`.

    Raises
    ------
    ValueError
        If the arguments make no spline.
    """

    def __init__(self, x: Any, y: Any, dydx: Any, axis: int = 0, extrapolate: Any = None):
        x, dx, axis, y, slopes = prepared(type(self).__name__, x, y, axis, dydx)
        self.set_slopes(x, dx, y, slopes, axis, extrapolate)

    def set_slopes(self, x: Any, dx: Any, y: Any, slopes: Any, axis: int, extrapolate: Any) -> None:
        """Compute the coefficients from values and slopes."""
        lengths = with_axes(dx, y.ndim - 1)
        mean = NP.divide(NP.subtract(part(y, 1), part(y, None, -1)), lengths)
        left, right = part(slopes, None, -1), part(slopes, 1)
        bend = NP.divide(total(left, right, NP.multiply(-2.0, mean)), lengths)
        self.c = NP.stack([NP.divide(bend, lengths),
                           NP.subtract(NP.divide(NP.subtract(mean, left), lengths), bend), left, part(y, None, -1)])
        self.x, self.axis = x, axis
        self.extrapolate = True if extrapolate is None else extrapolate


class PchipInterpolator(CubicHermiteSpline):
    """A cubic spline that is monotonic where the values are. It is not differentiable where a slope changes its sign.

    Parameters
    ----------
    x
        Points, which increase.
    y
        Real values at the points.
    axis
        Axis of `y` along which the points lie.
    extrapolate
        As in `PPoly`.

    Raises
    ------
    ValueError
        If the arguments make no spline.
    """

    def __init__(self, x: Any, y: Any, axis: int = 0, extrapolate: Any = None):
        if as_nonscalar(y).dtype.kind == "c":
            raise ValueError("PchipInterpolator: `PchipInterpolator` only works with real values for `y`.")
        x, dx, axis, y = prepared("PchipInterpolator", x, y, axis)
        self.set_slopes(x, dx, y, monotonic_slopes(with_axes(dx, y.ndim - 1), y), axis, extrapolate)


def monotonic_slopes(dx: Any, y: Any) -> Any:
    """Return the slopes at the points: weighted harmonic means of those of the adjacent pieces, 0 at extremes."""
    means = NP.divide(NP.subtract(part(y, 1), part(y, None, -1)), dx)
    if y.shape[0] == 2:
        return NP.concatenate([means, means], 0)
    before, after, h, k = part(means, None, -1), part(means, 1), part(dx, None, -1), part(dx, 1)
    is_extreme = NP.less_equal(NP.multiply(NP.sign(before), NP.sign(after)), 0)
    before, after = NP.where(is_extreme, 1.0, before), NP.where(is_extreme, 1.0, after)
    first, second = NP.add(NP.multiply(2.0, k), h), NP.add(k, NP.multiply(2.0, h))
    inverse = NP.divide(NP.add(NP.divide(first, before), NP.divide(second, after)), NP.add(first, second))
    inner = NP.where(is_extreme, 0.0, NP.divide(1.0, inverse))
    return NP.concatenate([end_slope(part(dx, 0, 1), part(dx, 1, 2), part(means, 0, 1), part(means, 1, 2)), inner,
                           end_slope(part(dx, -1), part(dx, -2, -1), part(means, -1), part(means, -2, -1))], 0)


def end_slope(h: Any, k: Any, own: Any, other: Any) -> Any:
    """Return the slope at an end from three points, reduced if it would not be monotonic."""
    found = NP.divide(NP.subtract(NP.multiply(NP.add(NP.multiply(2.0, h), k), own), NP.multiply(h, other)),
                      NP.add(h, k))
    turns = NP.not_equal(NP.sign(found), NP.sign(own))
    is_steep = NP.logical_and(NP.not_equal(NP.sign(own), NP.sign(other)),
                              NP.greater(NP.absolute(found), NP.multiply(3.0, NP.absolute(own))))
    return NP.where(turns, 0.0, NP.where(is_steep, NP.multiply(3.0, own), found))


# --- cubic splines ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def rows_of_three(n: int, is_cyclic: bool) -> Structure:
    """Return the structure of a tridiagonal matrix. If it is cyclic, elements outside wrap around the corners."""
    columns = np.arange(n)[:, None] + (-1, 0, 1)
    if is_cyclic:
        return Structure((columns % n).reshape(-1), np.arange(0, 3 * n + 1, 3), (n, n))
    inside = (columns >= 0) & (columns < n)
    return Structure(columns[inside], np.append(0, inside.sum(1).cumsum()), (n, n))


class CubicSpline(CubicHermiteSpline):
    """The cubic spline through points, twice continuously differentiable.

    Parameters
    ----------
    x
        Points, which increase.
    y
        Values at the points.
    axis
        Axis of `y` along which the points lie.
    bc_type
        "not-a-knot", "periodic", "clamped", "natural", or a pair of these or of (order, derivative). The derivative
        may be tracked.
    extrapolate
        As in `PPoly`. The default is "periodic" for a periodic spline, and otherwise True.

    Raises
    ------
    ValueError
        If the arguments make no spline.

    Examples
    --------
    >>> import numpy as np
    >>> CubicSpline(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 4.0]))(1.5)
    array(2.25)
    """

    def __init__(self, x: Any, y: Any, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Any = None):
        x, dx, axis, y = prepared("CubicSpline", x, y, axis)
        start, end = conditions(bc_type, y)
        if start == "periodic":
            y = closed(NP.moveaxis(y, 0, -1), f"CubicSpline: The first and last `y` point along axis {axis}")
            y = NP.moveaxis(y, -1, 0)
        if extrapolate is None:
            extrapolate = "periodic" if start == "periodic" else True
        shape = tuple(y.shape)
        slopes = smooth_slopes(dx, as_columns(y), start, end)
        self.set_slopes(x, dx, y, NP.reshape(slopes, shape), axis, extrapolate)


def conditions(bc_type: Any, y: Any) -> tuple[Any, Any]:
    """Return the conditions at both ends: a name, or the order of a derivative and its values as a row."""
    if isinstance(bc_type, str):
        bc_type = (bc_type, bc_type)
    elif len(bc_type) != 2:
        raise ValueError("CubicSpline: `bc_type` must contain 2 elements to specify start and end conditions.")
    elif any(isinstance(each, str) and each == "periodic" for each in bc_type):
        raise ValueError("CubicSpline: 'periodic' `bc_type` is defined for both curve ends and cannot be used with "
                         "other boundary conditions.")
    return condition(bc_type[0], y), condition(bc_type[1], y)


def condition(bc: Any, y: Any) -> Any:
    shape = tuple(y.shape)[1:]
    if isinstance(bc, str):
        if bc in ("not-a-knot", "periodic"):
            return bc
        if bc not in ("clamped", "natural"):
            raise ValueError(f"CubicSpline: bc_type={bc} is not allowed.")
        return 1 if bc == "clamped" else 2, np.zeros((1, prod(shape)))
    try:
        order, value = bc
    except Exception as error:
        raise ValueError("CubicSpline: A specified derivative value must be given in the form "
                         "(order, value).") from error
    if order not in (1, 2):
        raise ValueError("CubicSpline: The specified derivative order must be 1 or 2.")
    value = in_doubles(value)
    if tuple(value.shape) != shape:
        raise ValueError(f"CubicSpline: `deriv_value` shape {tuple(value.shape)} is not the expected one {shape}.")
    return order, NP.reshape(value, (1, prod(shape)))


def smooth_slopes(dx: Any, y: Any, start: Any, end: Any) -> Any:
    """Return the first derivatives at the points, in the columns of a matrix."""
    n, lengths = y.shape[0], with_axes(dx, 1)
    means = NP.divide(NP.subtract(part(y, 1), part(y, None, -1)), lengths)
    if n == 2:
        start, end = [(1, means) if isinstance(each, str) else each for each in (start, end)]
    if start == "periodic":
        rows, sides = middle_rows(NP.roll(dx, 1), dx, NP.roll(means, 1, 0), means)
        found = solved(rows, sides, n - 1, True)
        return NP.concatenate([found, part(found, 0, 1)], 0)
    rows, sides = middle_rows(part(dx, None, -1), part(dx, 1), part(means, None, -1), part(means, 1))
    if n == 3 and start == "not-a-knot" and end == "not-a-knot":    # the spline is a parabola
        first, last = [(np.ones(1), np.ones(1), NP.multiply(2.0, part(means, i, i + 1))) for i in (0, 1)]
    else:
        first = end_row(start, dx, means, (0, 1), (1, 2), -0.5)
        last = end_row(end, dx, means, (-1, None), (-2, -1), 0.5)
    values = NP.concatenate([first[0], first[1], rows, last[1], last[0]])
    return solved(values, NP.concatenate([first[2], sides, last[2]], 0), n, False)


def middle_rows(before: Any, after: Any, mean_before: Any, mean_after: Any) -> tuple[Any, Any]:
    """Return the equations for continuous second derivatives, from lengths and slopes of the pieces at each point."""
    rows = NP.stack([after, NP.multiply(2.0, NP.add(before, after)), before], -1)
    sides = NP.multiply(3.0, NP.add(NP.multiply(with_axes(after, 1), mean_before),
                                    NP.multiply(with_axes(before, 1), mean_after)))
    return NP.reshape(rows, (-1,)), sides


def end_row(bc: Any, dx: Any, means: Any, own: Any, other: Any, factor: float) -> tuple[Any, Any, Any]:
    """Return the equation at an end: the element on the diagonal, the one next to it, and the right-hand side."""
    h, mean = part(dx, *own), part(means, *own)
    if bc != "not-a-knot":
        order, value = bc
        if order == 1:
            return np.ones(1), np.zeros(1), value
        jump = NP.multiply(NP.multiply(3.0, mean), h)
        return NP.multiply(2.0, h), h, NP.add(NP.multiply(NP.multiply(factor, value), NP.square(h)), jump)
    k = part(dx, *other)
    both = NP.add(h, k)
    side = NP.add(NP.multiply(NP.multiply(NP.add(h, NP.multiply(2.0, both)), k), mean),
                  NP.multiply(NP.square(h), part(means, *other)))
    return k, both, NP.divide(side, both)


def solved(values: Any, sides: Any, n: int, is_cyclic: bool) -> Any:
    return ops.scipy.sparse_solution(values, sides, rows_of_three(n, is_cyclic))


# --- splines as sums of B-splines ------------------------------------------------------------------------------------


class BSpline:
    """The sum of B-splines of degree `k` on the knots `t`, times the coefficients `c` along an axis.

    Parameters
    ----------
    t
        Knots in order.
    c
        Coefficients.
    k
        Degree.
    extrapolate
        True, False (nan outside) or "periodic".
    axis
        Axis of `c` along which the coefficients lie.

    Raises
    ------
    ValueError
        If knots and coefficients do not fit together.
    """

    def __init__(self, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0):
        t, c = in_doubles(t), in_doubles(c)
        n = t.shape[0] - k - 1 if t.ndim == 1 else 0
        if k < 0:
            raise ValueError("BSpline: Spline order cannot be negative.")
        if t.ndim != 1:
            raise ValueError("BSpline: Knot vector must be one-dimensional.")
        if n < k + 1:
            raise ValueError(f"BSpline: Need at least {2 * k + 2} knots for degree {k}")
        t = knots_in_order(t, "BSpline")
        if not -c.ndim <= axis < c.ndim:
            raise ValueError(f"BSpline: axis {axis} is out of bounds for coefficients of {c.ndim} axes")
        self.axis = axis % c.ndim
        c = NP.moveaxis(c, self.axis, 0)
        if c.shape[0] < n:
            raise ValueError("BSpline: Knots, coefficients and degree are inconsistent.")
        self.t, self.c, self.k, self.extrapolate = t, c, int(k), extrapolate

    @classmethod
    def construct_fast(cls, t: Any, c: Any, k: int, extrapolate: Any = True, axis: int = 0) -> BSpline:
        """Make a spline of parts that are known to fit together, with the axis of the coefficients first."""
        self = object.__new__(cls)
        self.t, self.c, self.k, self.extrapolate, self.axis = t, c, k, extrapolate, axis
        return self

    @property
    def n(self) -> int:
        """The number of B-splines."""
        return self.t.shape[0] - self.k - 1

    def __call__(self, x: Any, nu: int = 0, extrapolate: Any = None) -> Any:
        """Return the values at points, or the derivatives of order `nu`."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu > self.k:
            return NP.multiply(self.derivative(self.k)(x, 0, extrapolate), 0.0)
        if nu:
            return self.derivative(nu)(x, 0, extrapolate)
        x = in_doubles(x)
        shape = tuple(x.shape)
        points = NP.reshape(x, (prod(shape),))
        start, end = item(self.t, self.k), item(self.t, self.n)
        if extrapolate == "periodic":
            points = wrapped_around(points, start, end)
        interval = NP.add(NP.interval(points, part(self.t, self.k, self.n + 1)), self.k)
        weights = nonzero_splines(self.t, points, interval, self.k)
        found = total(*[
            NP.multiply(with_axes(weight, self.c.ndim - 1), NP.take(self.c, NP.add(interval, j - self.k), 0))
            for j, weight in enumerate(weights)])
        if not extrapolate:
            found = nan_outside(found, points, start, end)
        return moved_in(NP.reshape(found, (*shape, *self.c.shape[1:])), len(shape), self.axis)

    def derivative(self, nu: int = 1) -> BSpline:
        """Return the derivative of order `nu`. A negative order gives an antiderivative."""
        if nu < 0:
            return self.antiderivative(-nu)
        if nu > self.k:
            raise ValueError(f"BSpline: Order of derivative (n = {nu}) must be <= order of spline (k = {self.k})")
        t, c, k = self.t, part(self.c, None, self.n), self.k
        for _ in range(nu):
            spans = NP.subtract(part(t, k + 1, -1), part(t, 1, -k - 1))
            spans = NP.where(NP.equal(spans, 0), 1.0, spans)
            differences = NP.subtract(part(c, 1), part(c, None, -1))
            c = NP.divide(NP.multiply(float(k), differences), with_axes(spans, c.ndim - 1))
            t, k = part(t, 1, -1), k - 1
        return BSpline.construct_fast(t, c, k, self.extrapolate, self.axis)

    def antiderivative(self, nu: int = 1) -> BSpline:
        """Return the antiderivative of order `nu` that is 0 at the first knot."""
        if nu <= 0:
            return self.derivative(-nu)
        t, c, k = self.t, part(self.c, None, self.n), self.k
        for _ in range(nu):
            spans = NP.divide(NP.subtract(part(t, k + 1), part(t, None, -k - 1)), k + 1.0)
            sums = NP.cumsum(NP.multiply(c, with_axes(spans, c.ndim - 1)), 0)
            c = NP.concatenate([NP.multiply(part(c, 0, 1), 0.0), sums], 0)
            t, k = NP.concatenate([part(t, 0, 1), t, part(t, -1)]), k + 1
        extrapolate = self.extrapolate if self.extrapolate != "periodic" else False
        return BSpline.construct_fast(t, c, k, extrapolate, self.axis)

    def integrate(self, a: Any, b: Any, extrapolate: Any = None) -> Any:
        """Return the integral from `a` to `b`, which may be tracked. Without extrapolation, the part outside is 0."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            raise NotImplementedError("BSpline.integrate: extrapolate='periodic' is not supported\n"
                                      "use CubicSpline, or pass another value")
        start, end = item(self.t, self.k), item(self.t, self.n)
        if not extrapolate:
            a, b = [NP.minimum(NP.maximum(in_doubles(x), start), end) for x in (a, b)]
        whole = self.antiderivative()
        whole.axis = 0
        return NP.subtract(whole(b, 0, True), whole(a, 0, True))

    def __repr__(self) -> str:
        return f"BSpline({self.n} coefficients, degree {self.k})"


def nonzero_splines(t: Any, x: Any, interval: Any, k: int) -> list[Any]:
    """Return the k + 1 B-splines that are not 0 in the interval of each point, by the recursion of Cox and de Boor."""
    knots = {j: NP.take(t, NP.add(interval, j)) for j in range(1 - k, k + 1)}
    found = [NP.ones_like(x)]
    for degree in range(1, k + 1):
        raised, carried = [], None
        for j, spline in enumerate(found):
            left, right = knots[j + 1 - degree], knots[j + 1]
            ratio = NP.divide(spline, NP.subtract(right, left))
            falling = NP.multiply(NP.subtract(right, x), ratio)
            raised.append(falling if carried is None else NP.add(carried, falling))
            carried = NP.multiply(NP.subtract(x, left), ratio)
        found = [*raised, carried]
    return found


@lru_cache(maxsize=32)
def collocation(n: int, k: int) -> tuple[np.ndarray, Structure]:
    """Return the interval of the knots that each of n points lies in, and the structure of the equations."""
    half = (k + 1) // 2
    interval = k + np.clip(np.arange(n) - half + 1, 0, n - 2 * half)
    columns = interval[:, None] + np.arange(-k, 1)
    return interval, Structure(columns.reshape(-1), np.arange(0, n * (k + 1) + 1, k + 1), (n, n))


def make_interp_spline(x: Any, y: Any, k: int = 3, t: Any = None, bc_type: Any = None, axis: int = 0,
                       check_finite: bool = True) -> BSpline:
    """Return the spline of odd degree `k` through points, as a sum of B-splines. With k=1, it consists of lines.

    The knots are the points that SciPy chooses ("not-a-knot"). For other conditions at the ends, use `CubicSpline`.

    Parameters
    ----------
    x
        Points, which increase.
    y
        Values at the points.
    k
        Degree, an odd number.
    t, bc_type
        Accepted only at their defaults.
    axis
        Axis of `y` along which the points lie.
    check_finite
        Ignored: the values are always checked.

    Returns
    -------
    BSpline
        The spline.

    Raises
    ------
    NotImplementedError
        For other conditions or an even degree.
    ValueError
        If the arguments make no spline.

    Examples
    --------
    >>> import numpy as np
    >>> make_interp_spline(np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 3.0]), k=1)(1.5)
    array(2.5)
    """
    if t is not None or bc_type not in (None, "not-a-knot"):
        raise NotImplementedError("make_interp_spline: only the defaults of t and bc_type are supported\n"
                                  "use CubicSpline(x, y, bc_type=...)")
    if k < 1 or k % 2 == 0:
        raise NotImplementedError(f"make_interp_spline: found k={k}, expected an odd degree\npass k=1 or k=3")
    x, _, axis, y = prepared("make_interp_spline", x, y, axis)
    n, half = x.shape[0], (k + 1) // 2
    if n < k + 1:
        raise ValueError(f"make_interp_spline: {n} points are too few for k={k}, expected at least {k + 1}")
    ends = [NP.broadcast_to(part(x, 0, 1), (k + 1,)), NP.broadcast_to(part(x, -1), (k + 1,))]
    knots = NP.concatenate([ends[0], part(x, half, n - half), ends[1]])
    if k == 1:
        return BSpline.construct_fast(knots, y, k, True, axis)
    interval, structure = collocation(n, k)
    rows = NP.reshape(NP.stack(nonzero_splines(knots, x, interval, k), -1), (-1,))
    c = ops.scipy.sparse_solution(rows, as_columns(y), structure)
    return BSpline.construct_fast(knots, NP.reshape(c, tuple(y.shape)), k, True, axis)


def of_module(name: str) -> type:
    """Return a class of the module that is imported when it is needed."""
    found: type = getattr(import_module("pydispatch.scipy.interpolants"), name)
    return found


def unflattened(cls: type[PPoly]) -> Any:
    return lambda children, static: cls.construct_fast(*children, *static)


for cls in (PPoly, CubicHermiteSpline, PchipInterpolator, CubicSpline):
    register_pytree_node(cls, lambda spline: ((spline.c, spline.x), (spline.extrapolate, spline.axis)),
                         unflattened(cls))
register_pytree_node(BSpline, lambda spline: ((spline.t, spline.c), (spline.k, spline.extrapolate, spline.axis)),
                     lambda children, static: BSpline.construct_fast(*children, *static))
borrow("interpolate", """
    barycentric_interpolate griddata interpn krogh_interpolate lagrange pade pchip_interpolate
""")
borrow_classes("interpolate", """
    Akima1DInterpolator BarycentricInterpolator FloaterHormannInterpolator KroghInterpolator Rbf
    RegularGridInterpolator interp1d
""")
if FACE.original("interpolate._rbfinterp_xp") is not None:      # older versions compute in compiled code
    borrow_classes("interpolate", "RBFInterpolator")
for name in ("LinearNDInterpolator", "NearestNDInterpolator"):
    CLASSES[f"interpolate.{name}"] = partial(of_module, name)
SCIPY.install("interpolate")
__all__ = publish("interpolate", globals(), __all__)
