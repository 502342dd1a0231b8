"""Order statistics, averages, correlations, histograms, and reductions that ignore nan."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import is_array
from pydispatch.exceptions import DispatchTypeError, UnsupportedError
from pydispatch.numpy.creation import made
from pydispatch.numpy.declare import (
    ABSENT,
    array_function,
    as_array,
    as_nonscalar,
    decided_by,
    into,
    known_values,
)
from pydispatch.numpy.selection import searchsorted
from pydispatch.ops import ops
from pydispatch.registry.backends import check_sizes, is_masked

# --- reductions ------------------------------------------------------------------------------------------------------


def options_of(**options: Any) -> dict[str, Any]:
    """The keyword arguments that were passed."""
    return {name: value for name, value in options.items() if value is not ABSENT and value is not None}


@array_function()
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = ABSENT) -> Any:
    """The largest minus the smallest element."""
    a, options = as_nonscalar(a), options_of(keepdims=keepdims)
    return into(out, ops.np.subtract(ops.np.max(a, axis, **options), ops.np.min(a, axis, **options)))


def accumulated(name: str) -> Callable[..., Any]:
    """`cumulative_sum` and `cumulative_prod`, by operators that accumulate."""
    accumulate, start = (ops.np.cumsum, 0) if name == "cumulative_sum" else (ops.np.cumprod, 1)

    def function(x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None,
                 include_initial: bool = False) -> Any:
        x = as_nonscalar(x)
        if x.ndim == 0:
            x = ops.np.reshape(x, (1,))
        if x.ndim > 1 and axis is None:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = normalize_axis_index(0 if axis is None else axis, x.ndim)
        result = accumulate(x, axis, dtype)
        if include_initial:
            shape = [1 if i == axis else n for i, n in enumerate(result.shape)]
            result = ops.np.concatenate([ops.np.full_like(result, start, shape=tuple(shape)), result], axis)
        return into(out, result)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Running totals along an axis." if start == 0 else "Running products along an axis."
    return array_function()(function)


cumulative_sum = accumulated("cumulative_sum")
cumulative_prod = accumulated("cumulative_prod")


@array_function()
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = ABSENT) -> Any:
    """The weighted mean; with `returned`, also the sum of the weights."""
    a, options = as_nonscalar(a), options_of(keepdims=keepdims)
    axis = tuple(axis) if isinstance(axis, list) else axis
    if weights is None:
        result = ops.np.mean(a, axis, **options)
        if not returned:
            return result
        check_sizes("average", a)
        return result, ops.np.full_like(result, a.size / max(1, result.size))
    weights = as_nonscalar(weights)
    dtype = np.result_type(a.dtype, weights.dtype, *(["f8"] if a.dtype.kind in "iub" else []))
    if tuple(weights.shape) != tuple(a.shape):
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        axes = normalize_axis_tuple(axis, a.ndim)
        if tuple(weights.shape) != tuple([a.shape[i] for i in axes]):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        weights = ops.np.transpose(weights, tuple(np.argsort(axes).tolist()))
        weights = ops.np.reshape(weights, tuple([n if i in axes else 1 for i, n in enumerate(a.shape)]))
    if is_masked(a):
        weights = ops.masked.with_mask(ops.np.broadcast_to(weights, tuple(a.shape)), ops.masked.mask(a))
    total = ops.np.sum(ops.np.astype(weights, dtype), axis, **options)
    known = known_values(total)
    if known is not None and np.any(known == 0):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    result = ops.np.divide(ops.np.sum(ops.np.multiply(a, ops.np.astype(weights, dtype)), axis, **options), total)
    if not returned:
        return result
    if tuple(total.shape) != tuple(result.shape):
        total = ops.np.copy(ops.np.broadcast_to(total, tuple(result.shape)))
    return result, total


# --- quantiles -------------------------------------------------------------------------------------------------------


def arithmetic(n: Any, q: Any) -> Any:
    """What to compute positions with: NumPy's functions where they are constants, which are known in traces."""
    return np if isinstance(n, int) and isinstance(q, np.ndarray) else ops.np


def continuous(alpha: float, beta: float) -> Callable[..., Any]:
    """The position of a quantile among `n` sorted elements (Hyndman and Fan, 1996), counted from 0."""
    def position(n: Any, q: Any) -> Any:
        xp = arithmetic(n, q)
        whole = xp.multiply(xp.subtract(n, 1), q)
        slope, offset = 2 - alpha - beta, alpha - 1
        return whole if not (slope or offset) else xp.add(whole, xp.add(xp.multiply(q, slope), offset))
    return position


def at_element(rounded: str) -> Callable[..., Any]:
    """The position of the element below, above or nearest to where `linear` has the quantile."""
    def position(n: Any, q: Any) -> Any:
        xp = arithmetic(n, q)
        return getattr(xp, rounded)(xp.multiply(xp.subtract(n, 1), q))
    return position


def of_inverted_cdf(n: Any, q: Any) -> Any:
    xp = arithmetic(n, q)
    return xp.subtract(xp.ceil(xp.multiply(n, q)), 1)


def of_averaged_inverted_cdf(n: Any, q: Any) -> Any:
    xp = arithmetic(n, q)
    position = xp.multiply(n, q)
    return xp.where(xp.equal(position, xp.floor(position)), xp.subtract(position, 0.5),
                    xp.subtract(xp.ceil(position), 1))


def of_closest_observation(n: Any, q: Any) -> Any:
    xp = arithmetic(n, q)
    position = xp.subtract(xp.multiply(n, q), 1.5)
    below = xp.floor(position)
    is_tie_at_odd = xp.logical_and(xp.equal(position, below), xp.equal(xp.remainder(below, 2), 1))
    return xp.where(is_tie_at_odd, below, xp.add(below, 1))


def of_midpoint(n: Any, q: Any) -> Any:
    xp = arithmetic(n, q)
    return xp.divide(xp.add(at_element("floor")(n, q), at_element("ceil")(n, q)), 2)


POSITIONS: dict[str, Callable[..., Any]] = {
    "inverted_cdf": of_inverted_cdf,
    "averaged_inverted_cdf": of_averaged_inverted_cdf,
    "closest_observation": of_closest_observation,
    "interpolated_inverted_cdf": continuous(0, 1),
    "hazen": continuous(0.5, 0.5),
    "weibull": continuous(0, 0),
    "linear": continuous(1, 1),
    "median_unbiased": continuous(1 / 3, 1 / 3),
    "normal_unbiased": continuous(3 / 8, 3 / 8),
    "lower": at_element("floor"),
    "higher": at_element("ceil"),
    "midpoint": of_midpoint,
    "nearest": at_element("rint"),
}
"""For each method: the position of a quantile. Between two positions, the method interpolates."""
SMOOTH = ("interpolated_inverted_cdf", "hazen", "weibull", "linear", "median_unbiased", "normal_unbiased")


def rows_of(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """The array with the axes to reduce joined as its last one, and the shape with `keepdims`."""
    if axis is None and a.ndim == 1:
        return a, (1,)
    axes = tuple(range(a.ndim)) if axis is None else normalize_axis_tuple(axis, a.ndim)
    kept = tuple([1 if i in axes else n for i, n in enumerate(a.shape)])
    if len(axes) == a.ndim:
        return a if a.ndim == 1 else ops.np.ravel(a), kept
    others = [i for i in range(a.ndim) if i not in axes]
    if axes != (a.ndim - 1,):
        a = ops.np.transpose(a, (*others, *axes))
    if len(axes) != 1:
        shape = tuple(a.shape)
        a = ops.np.reshape(a, (*shape[:len(others)], math.prod(shape[len(others):])))
    return a, kept


def may_have_nan(a: Any) -> bool:
    """May nan be among the values? True where they are unknown."""
    if a.dtype.kind not in "fc":
        return False
    known = known_values(a)
    return known is None or bool(np.isnan(known).any())


def sorted_rows(a: Any) -> Any:
    """The rows sorted; one with a nan in it is all nan."""
    rows = ops.np.sort(a, -1)
    if not rows.shape[-1] or not may_have_nan(a):
        return rows
    last = ops.np.getitem(rows, (..., slice(-1, None)))
    return ops.np.where(ops.np.isnan(last), last, rows)


def between(rows: Any, position: np.ndarray, dtype: Any) -> Any:
    """The elements at positions of the sorted rows; several positions are a new first axis."""
    n = rows.shape[-1]
    position = np.clip(position, 0, n - 1)
    below = np.floor(position).astype(np.intp)
    weight = position - below
    left = ops.np.take(rows, below, -1)
    if (weight == 0).all():
        return left
    right = ops.np.take(rows, np.minimum(below + 1, n - 1), -1)
    weight = weight.astype(dtype)
    step = ops.np.multiply(ops.np.subtract(right, left), weight)
    # the same in the order that loses the least, as NumPy has it
    if (weight < 0.5).all():
        return ops.np.add(left, step)
    from_right = ops.np.subtract(right, ops.np.multiply(ops.np.subtract(right, left), 1 - weight))
    return from_right if (weight >= 0.5).all() else ops.np.where(weight < 0.5, ops.np.add(left, step), from_right)


def as_quantile(q: Any, a: Any) -> Any:
    """`q` as an array or Tensor; a Python number gets the precision of `a`."""
    if isinstance(q, (int, float)) and a.dtype.kind == "f":
        return np.asarray(q, a.dtype)
    q = as_nonscalar(q)
    return np.asarray(q) if isinstance(q, np.generic) else q


def as_share(q: Any, a: Any) -> Any:
    """Percentages as fractions."""
    a = as_nonscalar(a)
    q, hundred = as_quantile(q, a), a.dtype.type(100) if a.dtype.kind == "f" else 100
    return q / hundred if isinstance(q, np.ndarray) else ops.np.divide(q, hundred)


def of_unmasked(function: Callable[[Any], Any], a: Any, axis: Any, out: Any, keepdims: Any, *, takes_nan: bool) -> Any:
    """Quantiles of the elements that are not masked, by the function that leaves out nan; masked where there are none.

    With `takes_nan`, a nan among these elements makes the quantiles nan.
    """
    mask, axis = ops.masked.mask(a), tuple(axis) if isinstance(axis, list) else axis
    a = a if a.dtype.kind == "f" else ops.np.astype(a, np.dtype(float))
    nothing = ops.np.all(mask, axis, keepdims=True)
    found = function(ops.np.where(nothing, 0.0, ops.masked.filled(a, math.nan)))
    if takes_nan:
        is_nan = ops.np.any(ops.np.isnan(ops.masked.filled(a, 0.0)), axis, keepdims=is_asked_for(keepdims))
        found = ops.np.where(is_nan, math.nan, found)
    if not is_asked_for(keepdims):
        nothing = ops.np.all(mask, axis)
    return into(out, ops.masked.with_mask(found, ops.np.broadcast_to(nothing, tuple(found.shape))))


def quantiles(name: str, a: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any) -> Any:
    """The quantiles `q`, between 0 and 1."""
    a = as_nonscalar(a)
    if is_masked(a):
        return of_unmasked(lambda a: nan_quantiles(f"nan{name.removeprefix('nan')}", a, q, axis, None, method, keepdims,
                                                   weights),
                           a, axis, out, keepdims, takes_nan=not name.startswith("nan"))
    if a.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if a.dtype.kind == "b":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` "
                        "operator, or the logical_xor function instead.")
    if a.dtype.kind in "mM":
        raise DispatchTypeError(f"numpy.{name} was called with a of dtype {a.dtype}, and expects real numbers\n"
                                "pass a.astype(int), and give the result the unit again")
    q = as_quantile(q, a)
    if method not in POSITIONS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {set(POSITIONS)}")
    known = known_values(q)
    if known is not None and known.size and not (known.min() >= 0 and known.max() <= 1):
        raise ValueError("Quantiles must be in the range [0, 1]" if name != "percentile" else
                         "Percentiles must be in the range [0, 100]")
    rows, kept = rows_of(a, axis)
    dtype = np.result_type(a.dtype, q.dtype) if a.dtype.kind == "f" else np.dtype(float)
    if weights is not None:
        found = weighted_quantiles(rows, q, weights, axis, method, a, leave_out_nan=name.startswith("nan"))
    elif isinstance(q, np.ndarray):
        rows = sorted_rows(rows)
        found = between(rows, POSITIONS[method](rows.shape[-1], q.astype(float)), dtype)
    else:
        if method not in SMOOTH:
            raise DispatchTypeError(f"numpy.{name} was called with a Tensor as q and method={method!r}, which is no "
                                    "smooth function of q\npass q as an array")
        rows = sorted_rows(rows)
        n = rows.shape[-1]
        position = ops.np.clip(POSITIONS[method](n, q), 0, n - 1)
        below = ops.np.astype(ops.np.floor(position), np.dtype(np.intp))
        left = ops.np.take(rows, below, -1)
        right = ops.np.take(rows, ops.np.minimum(below + 1, n - 1), -1)
        found = ops.np.add(left, ops.np.multiply(ops.np.subtract(right, left), ops.np.subtract(position, below)))
    return in_place_of(found, q.ndim, kept, keepdims, a.dtype if weights is not None else dtype_of(method, a, dtype),
                       out)


def dtype_of(method: str, a: Any, interpolated: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of quantiles: that of the elements, where they are elements."""
    return interpolated if method in (*SMOOTH, "midpoint", "averaged_inverted_cdf") else a.dtype


def in_place_of(found: Any, q_ndim: int, kept: tuple[int, ...], keepdims: Any, dtype: Any, out: Any) -> Any:
    """Results whose last axes are those of `q`, with these moved first, and the reduced axes as `keepdims` says."""
    if q_ndim:
        axes = tuple(range(found.ndim - q_ndim, found.ndim))
        found = ops.np.moveaxis(found, axes, tuple(range(q_ndim)))
    if is_asked_for(keepdims):
        found = ops.np.reshape(found, (*found.shape[:q_ndim], *kept))
    return into(out, found if found.dtype == dtype else ops.np.astype(found, dtype))


def is_asked_for(keepdims: Any) -> bool:
    """Are the reduced axes to be kept? Anything true says so."""
    return keepdims is not ABSENT and bool(keepdims)


def weighted_quantiles(
    rows: Any, q: Any, weights: Any, axis: Any, method: str, a: Any, *, leave_out_nan: bool,
) -> Any:
    """The smallest elements below which the fraction `q` of the weights lies. A nan is left out, or makes it nan."""
    if method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    weights = as_nonscalar(weights)
    if tuple(weights.shape) != tuple(a.shape):
        axes = normalize_axis_tuple(axis, a.ndim)
        weights = ops.np.reshape(weights, tuple([n if i in axes else 1 for i, n in enumerate(a.shape)]))
        weights = ops.np.broadcast_to(weights, tuple(a.shape))
    weights, _ = rows_of(weights, axis)
    missing = ops.np.isnan(rows) if may_have_nan(rows) else None
    check_weights(weights, missing)
    if missing is not None and leave_out_nan:
        weights = with_instead(weights, missing, 0)
    order = ops.np.argsort(rows, -1, None, stable=True)
    shares = ops.np.cumsum(ops.np.astype(ops.np.take_along_axis(weights, order, -1), np.dtype(float)), -1)
    total = ops.np.getitem(shares, (..., slice(-1, None)))
    wanted = ops.np.reshape(q, (-1,))
    shares = ops.np.expand_dims(shares, -2)
    reached = ops.np.logical_or(ops.np.less(shares, ops.np.expand_dims(ops.np.multiply(total, wanted), -1)),
                                ops.np.equal(shares, 0))
    position = ops.np.minimum(ops.np.sum(reached, -1), rows.shape[-1] - 1)
    found = ops.np.take_along_axis(rows, ops.np.take_along_axis(order, position, -1), -1)
    if missing is not None:
        nothing = ops.np.all(missing, -1, keepdims=True)
        if leave_out_nan:
            warn_of(nothing, "All-NaN slice encountered")
        is_nan = nothing if leave_out_nan else ops.np.any(missing, -1, keepdims=True)
        found = ops.np.where(is_nan, np.asarray(np.nan, found.dtype), found)
    return ops.np.reshape(found, (*found.shape[:-1], *q.shape))


def check_weights(weights: Any, missing: Any) -> None:
    """ValueError for weights that are negative, nan or infinite, or 0 in a whole row, where values can be looked at."""
    known, absent = known_values(weights), None if missing is None else known_values(missing)
    if known is None or (missing is not None and absent is None):
        return
    if (known < 0).any():
        raise ValueError("Weights must be non-negative.")
    present = np.broadcast_to(known, known.shape if absent is None else absent.shape)
    empty = ~present.any(-1) if absent is None else ~present.any(-1) & ~absent.all(-1)
    if empty.any() or not np.isfinite(known).all():
        raise ValueError("Weights included NaN, inf or were all zero.")


@array_function()
def quantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: Any = False, *, weights: Any = None) -> Any:
    """The values below which fractions `q` of the elements lie; gradients go to the two elements beside each."""
    return quantiles("quantile", a, q, axis, out, method, keepdims, weights)


@array_function()
def percentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: Any = False, *, weights: Any = None) -> Any:
    """The same, with `q` in per cent."""
    return quantiles("percentile", a, as_share(q, a), axis, out, method, keepdims, weights)


def at_places(rows: Any, order: Any, places: slice) -> Any:
    """The elements of each row at these places of its order."""
    order = order[..., places] if isinstance(order, np.ndarray) else ops.np.getitem(order, (..., places))
    return ops.np.take_along_axis(rows, order, -1)


PARTITIONED = 200       # elements, from which on a partition is sooner ready than an order


def order_of_middle(known: np.ndarray, n: int) -> np.ndarray:
    """The positions of the elements of each row, where the middle and the last come at their places in order."""
    return known.argsort(-1) if n < PARTITIONED else known.argpartition(((n - 1) // 2, n // 2, n - 1), -1)


def mean_of_row(rows: Any) -> Any:
    """The mean over the last axis."""
    return ops.np.mean(rows) if rows.ndim == 1 else ops.np.mean(rows, -1)


def has_nan_last(known: np.ndarray, order: np.ndarray) -> bool:
    """Is there a nan among the numbers? It comes last in the order of its row."""
    if known.ndim == 1:
        last = known[order[-1]]
        return bool(last != last)
    return bool(np.isnan(np.take_along_axis(known, order[..., -1:], -1)).any())


@array_function()
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """The middle element in order, or the mean of the two in the middle."""
    a = as_nonscalar(a)
    if is_masked(a):
        return of_unmasked(lambda a: nanmedian(a, axis, keepdims=keepdims), a, axis, out, keepdims, takes_nan=True)
    rows, kept = rows_of(a, axis)
    n = rows.shape[-1]
    if not n:
        found = ops.np.mean(rows, -1)
    else:
        known = known_values(rows)
        order = ops.np.argsort(rows, -1) if known is None else order_of_middle(known, n)
        found = mean_of_row(at_places(rows, order, slice((n - 1) // 2, n // 2 + 1)))
        if rows.dtype.kind in "fc" and (known is None or has_nan_last(known, order)):
            last = at_places(rows, order, slice(-1, None))
            found = ops.np.where(ops.np.squeeze(ops.np.isnan(last), -1), ops.np.squeeze(last, -1), found)
    if is_asked_for(keepdims):
        found = ops.np.reshape(found, kept)
    return into(out, found)


# --- without nan -----------------------------------------------------------------------------------------------------


def missing_of(a: Any) -> Any:
    """The mask of the elements that are nan; None if the dtype has no nan."""
    return ops.np.isnan(a) if a.dtype.kind in "fc" else None


def with_instead(a: Any, missing: Any, value: Any) -> Any:
    """The elements, with a value in place of each nan."""
    return a if missing is None else ops.np.where(missing, np.asarray(value, a.dtype), a)


def nan_reduction(name: str, value: Any, doc: str) -> Callable[..., Any]:
    """nansum and nanprod."""
    reduce = getattr(ops.np, name.removeprefix("nan"))

    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = ABSENT,
                 initial: Any = ABSENT, where: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        return into(out, reduce(with_instead(a, missing_of(a), value), axis, dtype,
                                **options_of(keepdims=keepdims, initial=initial, where=where)))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return array_function()(function)


nansum = nan_reduction("nansum", 0, "The sum of the elements that are not nan.")
nanprod = nan_reduction("nanprod", 1, "The product of the elements that are not nan.")


def nan_accumulation(name: str, value: Any, doc: str) -> Callable[..., Any]:
    """nancumsum and nancumprod."""
    accumulate = getattr(ops.np, name.removeprefix("nan"))

    def function(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        a = as_nonscalar(a)
        return into(out, accumulate(with_instead(a, missing_of(a), value), axis, dtype))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return array_function()(function)


nancumsum = nan_accumulation("nancumsum", 0, "Running totals of the elements that are not nan.")
nancumprod = nan_accumulation("nancumprod", 1, "Running products of the elements that are not nan.")


def nan_extreme(name: str, doc: str) -> Callable[..., Any]:
    """nanmin and nanmax."""
    reduce = getattr(ops.np, name.removeprefix("nan"))
    limit = np.inf if name == "nanmin" else -np.inf

    def function(a: Any, axis: Any = None, out: Any = None, keepdims: Any = ABSENT, initial: Any = ABSENT,
                 where: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        missing, options = missing_of(a), options_of(keepdims=keepdims, initial=initial, where=where)
        if missing is None:
            return into(out, reduce(a, axis, **options))
        result = reduce(with_instead(a, missing, limit), axis, **options)
        if initial is ABSENT or initial is None:
            options.pop("initial", None)
            nothing = ops.np.all(missing, axis, **options)
            warn_of(nothing, "All-NaN slice encountered")
            result = ops.np.where(nothing, np.asarray(np.nan, a.dtype), result)
        return into(out, result)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return array_function()(function)


def warn_of(nothing: Any, message: str) -> None:
    """Warn (RuntimeWarning) if a slice is all nan, where the values are known."""
    known = known_values(nothing)
    if known is not None and known.any():
        warnings.warn(message, RuntimeWarning, stacklevel=4)


nanmin = nan_extreme("nanmin", "The smallest of the elements that are not nan.")
nanmax = nan_extreme("nanmax", "The largest of the elements that are not nan.")


def nan_position(name: str, doc: str) -> Callable[..., Any]:
    """nanargmin and nanargmax."""
    find = getattr(ops.np, name.removeprefix("nan"))
    limit = np.inf if name == "nanargmin" else -np.inf

    def function(a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        missing, options = missing_of(a), options_of(keepdims=keepdims)
        if missing is not None:
            known = known_values(ops.np.all(missing, axis))
            if known is not None and known.any():
                raise ValueError("All-NaN slice encountered")
        return into(out, find(with_instead(a, missing, limit), axis, **options))
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return array_function(constant=True)(function)


nanargmin = nan_position("nanargmin", "The position of the smallest element that is not nan.")
nanargmax = nan_position("nanargmax", "The position of the largest element that is not nan.")


def count_of(a: Any, missing: Any, axis: Any, where: Any, keepdims: Any) -> Any:
    """The number of elements that are not nan."""
    there = ops.np.logical_not(missing)
    return ops.np.sum(there, axis, **options_of(keepdims=keepdims, where=where))


@array_function()
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = ABSENT, *,
            where: Any = ABSENT) -> Any:
    """The mean of the elements that are not nan."""
    a = as_nonscalar(a)
    missing = missing_of(a)
    if missing is None:
        return into(out, ops.np.mean(a, axis, dtype, **options_of(keepdims=keepdims, where=where)))
    n = count_of(a, missing, axis, where, keepdims)
    warn_of(ops.np.equal(n, 0), "Mean of empty slice")
    return into(out, mean_of_present(a, missing, n, axis, dtype, keepdims, where))


def mean_of_present(a: Any, missing: Any, n: Any, axis: Any, dtype: Any, keepdims: Any, where: Any) -> Any:
    """The mean of the `n` elements that are not nan."""
    total = ops.np.sum(with_instead(a, missing, 0), axis, dtype, **options_of(keepdims=keepdims, where=where))
    with np.errstate(invalid="ignore", divide="ignore"):
        return ops.np.divide(total, ops.np.astype(n, np.empty(0, total.dtype).real.dtype))


@array_function()
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = ABSENT, *,
           where: Any = ABSENT, mean: Any = ABSENT, correction: Any = ABSENT) -> Any:
    """The variance of the elements that are not nan."""
    a = as_nonscalar(a)
    missing = missing_of(a)
    ddof = ddof if correction is ABSENT else correction
    if missing is None:
        return into(out, ops.np.var(a, axis, dtype, ddof=ddof, **options_of(keepdims=keepdims, where=where, mean=mean)))
    center = mean
    if mean is ABSENT:
        center = mean_of_present(a, missing, count_of(a, missing, axis, where, True), axis, dtype, True, where)
    difference = with_instead(ops.np.subtract(a, center), missing, 0)
    squares = ops.np.real(ops.np.multiply(difference, ops.np.conjugate(difference)))
    n = count_of(a, missing, axis, where, keepdims)
    total = ops.np.sum(squares, axis, dtype, **options_of(keepdims=keepdims, where=where))
    freedom = ops.np.subtract(n, ddof)
    warn_of(ops.np.less_equal(freedom, 0), "Degrees of freedom <= 0 for slice.")
    freedom = ops.np.where(ops.np.less_equal(freedom, 0), np.nan, freedom)
    return into(out, ops.np.divide(total, ops.np.astype(freedom, total.dtype)))


@array_function()
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = ABSENT, *,
           where: Any = ABSENT, mean: Any = ABSENT, correction: Any = ABSENT) -> Any:
    """The standard deviation of the elements that are not nan."""
    return into(out, ops.np.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean,
                                        correction=correction)))


def nan_quantiles(name: str, a: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any) -> Any:
    """Quantiles of the elements of each row that are not nan."""
    a = as_nonscalar(a)
    if is_masked(a):
        return quantiles(name, a, q, axis, out, method, keepdims, weights)
    if not a.size:
        return nanmean(a, axis, out=out, keepdims=keepdims)
    if (a.dtype.kind != "f" and name != "nanmedian") or weights is not None:
        return quantiles(name, a, q, axis, out, method, keepdims, weights)
    q = as_quantile(q, a)
    if not isinstance(q, np.ndarray):
        raise DispatchTypeError(f"numpy.{name} was called with a Tensor as q\npass q as an array")
    if method not in POSITIONS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {set(POSITIONS)}")
    if not ((q >= 0) & (q <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    rows, kept = rows_of(a, axis)
    rows = ops.np.sort(rows, -1)
    n = ops.np.sum(ops.np.logical_not(ops.np.isnan(rows)), -1, keepdims=True)
    warn_of(ops.np.equal(n, 0), "All-NaN slice encountered")
    last = ops.np.maximum(ops.np.subtract(n, 1), 0)
    position = ops.np.clip(POSITIONS[method](ops.np.astype(n, np.dtype(float)), q.reshape(-1).astype(float)), 0,
                           ops.np.astype(last, np.dtype(float)))
    below = ops.np.astype(ops.np.floor(position), np.dtype(np.intp))
    weight = ops.np.astype(ops.np.subtract(position, below), np.result_type(a.dtype, q.dtype))
    left = ops.np.take_along_axis(rows, below, -1)
    right = ops.np.take_along_axis(rows, ops.np.minimum(ops.np.add(below, 1), last), -1)
    if name == "nanmedian":     # no difference, which would be nan of two infinite elements
        alone = ops.np.equal(weight, 0)
        found = ops.np.divide(ops.np.where(alone, left, ops.np.add(left, right)), ops.np.subtract(
            np.asarray(2, q.dtype), alone))
    else:
        found = ops.np.add(left, ops.np.multiply(ops.np.subtract(right, left), weight))
    found = ops.np.reshape(found, (*found.shape[:-1], *q.shape))
    return in_place_of(found, q.ndim, kept, keepdims, dtype_of(method, a, np.result_type(a.dtype, q.dtype)), out)


@array_function()
def nanquantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: Any = ABSENT, *, weights: Any = None) -> Any:
    """The quantiles of the elements that are not nan."""
    return nan_quantiles("nanquantile", a, q, axis, out, method, keepdims, weights)


@array_function()
def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: Any = ABSENT, *, weights: Any = None) -> Any:
    """The same, with `q` in per cent."""
    return nan_quantiles("nanpercentile", a, as_share(q, a), axis, out, method, keepdims, weights)


@array_function()
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = ABSENT) -> Any:
    """The median of the elements that are not nan."""
    a = as_nonscalar(a)
    if a.dtype.kind not in "fc":
        return median(a, axis, out, overwrite_input, keepdims)
    half = np.asarray(0.5, np.empty(0, a.dtype).real.dtype)
    return nan_quantiles("nanmedian", a, half, axis, out, "linear", keepdims, None)


# --- correlations ----------------------------------------------------------------------------------------------------


@array_function()
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:
    """The covariances of variables, which are rows, over observations."""
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    m = as_nonscalar(m)
    if m.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    if y is not None:
        y = as_nonscalar(y)
        if y.ndim > 2:
            raise ValueError("y has more than 2 dimensions")
    if dtype is None:
        dtype = np.result_type(m.dtype, *([] if y is None else [y.dtype]), np.float64)
    x = rows_of_variables(m, rowvar, dtype, is_transposed=not rowvar and m.ndim != 1)
    if not x.shape[0]:
        return ops.np.zeros_like(x, shape=(0, 0), dtype=float)
    if y is not None:
        others = rows_of_variables(y, rowvar, dtype, is_transposed=not rowvar and y.shape[0] != 1 and y.ndim > 1)
        if (is_masked(x) or is_masked(others)) and tuple(x.shape) == tuple(others.shape):   # masked in both, as in ma
            mask = ops.np.logical_or(ops.masked.mask(x), ops.masked.mask(others))
            x, others = [ops.masked.with_mask(ops.masked.filled(rows, 0), mask) for rows in (x, others)]
        x = ops.np.concatenate([x, others], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if is_masked(x) and (fweights is not None or aweights is not None):
        raise UnsupportedError("cov: covariances of masked arrays take no weights\nwrite out the sums")
    weights = weights_of_observations(x.shape[1], fweights=fweights, aweights=aweights)
    if weights is None:
        check_sizes("cov", x, axes=slice(1, None))
        freedom = known = x.shape[1] - ddof
    else:
        freedom = freedom_of_weights(weights, aweights, ddof)
        known = known_values(freedom)
    if known is not None and not known > 0:
        warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
        freedom = 0.0
    found = ops.np.covariance(x, freedom) if weights is None else weighted_covariance(x, weights, freedom)
    return found if found.shape[0] > 1 else ops.np.squeeze(found)


def rows_of_variables(x: Any, rowvar: bool, dtype: Any, *, is_transposed: bool) -> Any:
    """The argument as a matrix whose rows are variables."""
    x = x if x.dtype == dtype else ops.np.astype(x, dtype)
    if x.ndim < 2:
        return ops.np.reshape(x, (1, -1))
    return ops.np.transpose(x) if is_transposed else x


def weights_of_observations(n: int, **given: Any) -> Any:
    """The product of the weights that were given for `n` observations; None without any."""
    weights = None
    for name, value in given.items():
        if value is not None:
            weight = as_nonscalar(value)
            if weight.ndim > 1:
                raise RuntimeError(f"cannot handle multidimensional {name}")
            if weight.shape[0] != n:
                raise RuntimeError(f"incompatible numbers of samples and {name}")
            weights = weight if weights is None else ops.np.multiply(weights, weight)
    return weights


def freedom_of_weights(weights: Any, aweights: Any, ddof: Any) -> Any:
    """What sums of weighted products are divided by."""
    total = ops.np.sum(weights)
    if ddof == 0:
        return total
    if aweights is None:
        return ops.np.subtract(total, ddof)
    spread = ops.np.sum(ops.np.multiply(weights, as_nonscalar(aweights)))
    return ops.np.subtract(total, ops.np.divide(ops.np.multiply(ddof, spread), total))


def weighted_covariance(x: Any, weights: Any, freedom: Any) -> Any:
    """The covariances of the rows of `x`, with a weight for each column."""
    center = ops.np.divide(ops.np.sum(ops.np.multiply(x, weights), 1, keepdims=True), ops.np.sum(weights))
    apart = ops.np.subtract(x, center)
    other = ops.np.transpose(ops.np.multiply(apart, weights))
    products = ops.np.matmul(apart, ops.np.conjugate(other) if other.dtype.kind == "c" else other)
    return ops.np.divide(products, freedom)


@array_function()
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """The correlation coefficients of variables."""
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return ops.np.divide(c, c)
    n = c.shape[0]
    deviation = ops.np.sqrt(ops.np.real(ops.np.index(c, (np.arange(n), np.arange(n)))))
    c = ops.np.divide(ops.np.divide(c, ops.np.expand_dims(deviation, 1)), deviation)
    if c.dtype.kind == "c":
        return ops.np.complex(ops.np.clip(ops.np.real(c), -1, 1), ops.np.clip(ops.np.imag(c), -1, 1))
    return ops.np.clip(c, -1, 1)


# --- histograms ------------------------------------------------------------------------------------------------------


@array_function(added=("length",))
def bincount(x: Any, /, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often 0, 1, 2, ... occur, or the sums of their weights; `length` fixes how many there are, as in JAX."""
    x = as_nonscalar(x)
    if x.ndim != 1:
        raise ValueError("object of too small depth for desired array" if x.ndim == 0 else
                         "object too deep for desired array")
    if x.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule 'safe'")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if length is None:
        known = known_values(x)
        if known is not None and known.size and known.min() < 0:
            raise ValueError("'list' argument must have no negative elements")
        largest = -1 if not x.shape[0] else int(known.max()) if known is not None else decided_by(
            ops.np.max(x), "how many counts numpy.bincount returns", "pass length=, the number of counts to return")
        length = max(minlength, largest + 1)
    if weights is None:
        weights = ops.np.ones_like(x, dtype=np.dtype(np.intp))
    else:
        weights = as_nonscalar(weights)
        if tuple(weights.shape) != tuple(x.shape):
            raise ValueError("The weights and list don't have the same length.")
        weights = ops.np.astype(weights, np.dtype(float))
    return added_up(x, weights, length)


def added_up(x: Any, weights: Any, length: int) -> Any:
    """For each number below `length`, the sum of the weights of the elements that are this number."""
    zeros = ops.np.zeros_like(weights, shape=(length,))
    return ops.np.scatter_add(zeros, ops.np.astype(x, np.dtype(np.intp)), weights, 0)


def edges_of(a: Any, bins: Any, limits: Any) -> Any:
    """The edges of bins: given, or at equal distances."""
    if isinstance(bins, str):
        raise DispatchTypeError("numpy.histogram was called with a Tensor and bins as a text, which estimates their "
                                "number\npass the number of bins, or their edges")
    if not is_array(bins) and np.ndim(bins) == 0:
        try:
            n = operator.index(bins)
        except TypeError:
            raise TypeError("`bins` must be an integer, a string, or an array") from None
        if n < 1:
            raise ValueError("`bins` must be positive, when an integer")
        if limits is not None:
            first, last = limits
            if first > last:
                raise ValueError("max must be larger than min in range parameter.")
            if first == last:
                first, last = first - 0.5, last + 0.5
            return made(np.linspace(first, last, n + 1, dtype=edge_dtype(first, last, a)), a)
        if not a.size:
            return made(np.linspace(0, 1, n + 1, dtype=edge_dtype(0, 1, a)), a)
        first, last = ops.np.min(a), ops.np.max(a)
        same = ops.np.astype(ops.np.equal(first, last), np.dtype(float))
        half = ops.np.multiply(same, 0.5)
        dtype = edge_dtype(first, last, a)
        return ops.np.linspace(ops.np.astype(ops.np.subtract(first, half), dtype),
                               ops.np.astype(ops.np.add(last, half), dtype), n + 1)
    edges = as_nonscalar(bins)
    if edges.ndim != 1:
        raise ValueError("`bins` must be 1d, when an array")
    known = known_values(edges)
    if known is not None and (known[1:] < known[:-1]).any():
        raise ValueError("`bins` must increase monotonically, when an array")
    return made(edges, a)


def edge_dtype(first: Any, last: Any, a: Any) -> np.dtype:
    dtype = np.result_type(getattr(first, "dtype", first), getattr(last, "dtype", last), a.dtype)
    return np.result_type(dtype, float) if dtype.kind in "iub" else dtype


def bins_of(x: Any, edges: Any) -> Any:
    """The number of the bin of each element: 0 below the first edge, the number of edges above the last one."""
    n = edges.shape[0]
    number = searchsorted(edges, x, "right")
    at_end = ops.np.equal(x, ops.np.getitem(edges, -1))
    return ops.np.where(at_end, n - 1, number)


@array_function()
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of the bins of a histogram."""
    return edges_of(ops.np.ravel(as_nonscalar(a)), bins, range)


@array_function()
def histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    """The number of elements in each bin, or the sum of their weights, and the edges of the bins."""
    a = as_nonscalar(a)
    if weights is not None:
        weights = as_nonscalar(weights)
        if tuple(weights.shape) != tuple(a.shape):
            raise ValueError("weights should have the same shape as a.")
        weights = ops.np.ravel(weights)
    a = ops.np.ravel(a)
    edges = edges_of(a, bins, range)
    counts = counted([bins_of(a, edges)], [edges.shape[0] + 1], weights)
    if density:
        widths = ops.np.subtract(ops.np.getitem(edges, slice(1, None)), ops.np.getitem(edges, slice(-1)))
        counts = ops.np.divide(ops.np.divide(counts, widths), ops.np.sum(counts))
    return counts, edges


def counted(numbers: list[Any], lengths: list[int], weights: Any) -> Any:
    """The counts, or sums of weights, for each box, without the points outside of all boxes."""
    flat = numbers[0]
    for number, length in zip(numbers[1:], lengths[1:], strict=True):
        flat = ops.np.add(ops.np.multiply(flat, length), number)
    if weights is None:
        weights = ops.np.ones_like(flat, dtype=np.dtype(np.intp))
    counts = added_up(flat, weights, math.prod(lengths))
    inner = tuple([slice(1, -1)] * len(lengths))
    return ops.np.copy(ops.np.getitem(ops.np.reshape(counts, tuple(lengths)), inner))


@array_function()
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
                weights: Any = None) -> Any:
    """The number of points in each box of a grid, or the sum of their weights, and the edges along each axis."""
    if is_array(sample) and sample.ndim == 2:
        columns = [ops.np.getitem(sample, (slice(None), j)) for j in builtin_range(sample.shape[1])]
    elif is_array(sample):
        columns = [as_nonscalar(sample)]
    else:
        columns = [as_nonscalar(column) for column in sample]
    d = len(columns)
    if not isinstance(bins, (list, tuple)) and not is_array(bins):
        bins = [bins] * d
    if len(bins) != d:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * d if range is None else range
    if len(ranges) != d:
        raise ValueError("range argument must have one entry per dimension")
    edges = [edges_of(column, each, limits) for column, each, limits in zip(columns, bins, ranges, strict=True)]
    numbers = [bins_of(column, edge) for column, edge in zip(columns, edges, strict=True)]
    lengths = [edge.shape[0] + 1 for edge in edges]
    counts = counted(numbers, lengths, None if weights is None else as_nonscalar(weights))
    counts = ops.np.astype(counts, np.dtype(float))
    if density:
        total = ops.np.sum(counts)
        for axis, edge in enumerate(edges):
            widths = ops.np.subtract(ops.np.getitem(edge, slice(1, None)), ops.np.getitem(edge, slice(-1)))
            counts = ops.np.divide(counts, ops.np.reshape(widths, (-1,) + (1,) * (d - axis - 1)))
        counts = ops.np.divide(counts, total)
    return counts, tuple(edges)


builtin_range = range


@array_function()
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
                weights: Any = None) -> Any:
    """The number of points in each rectangle of a grid, or the sum of their weights, and the edges along both axes."""
    x, y = as_nonscalar(x), as_nonscalar(y)
    if x.shape[0] != y.shape[0]:
        raise ValueError("x and y must have the same length.")
    if (is_array(bins) or isinstance(bins, (list, tuple))) and len(bins) not in (1, 2):
        bins = [as_array(bins)] * 2
    elif isinstance(bins, (list, tuple)) and len(bins) == 1:
        bins = [bins[0]] * 2
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]
