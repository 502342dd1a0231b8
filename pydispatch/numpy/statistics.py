"""Order statistics, averages, correlations, histograms, and reductions that ignore nan."""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import Reduction, Tensor, is_array
from pydispatch._registry.backends import check_sizes, is_masked
from pydispatch.exceptions import DispatchTypeError, UnsupportedError
from pydispatch.numpy.creation import made
from pydispatch.numpy.declare import (
    ABSENT,
    FUNCTIONS,
    array_function,
    as_array,
    as_nonscalar,
    as_scalar,
    decided_by,
    into,
    into_alike,
    known_values,
)
from pydispatch.numpy.selection import searchsorted
from pydispatch.operators.layouts import in_c_order, laid_out_like
from pydispatch.operators.sorting import PARTITIONED
from pydispatch.ops import ops
from pydispatch.schema.base_types import as_dtype

# --- reductions ------------------------------------------------------------------------------------------------------


def options_of(**options: Any) -> dict[str, Any]:
    """Return the keyword arguments that were passed."""
    return {name: value for name, value in options.items() if value is not ABSENT and value is not None}


def named(name: str, doc: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a function a name and a docstring, and return it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


@array_function()
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = ABSENT) -> Any:
    """Return the difference of the largest and the smallest element."""
    a, options = as_nonscalar(a), options_of(keepdims=keepdims)
    return into(out, ops.np.subtract(ops.np.max(a, axis, **options), ops.np.min(a, axis, **options)))


def accumulated(name: str) -> Callable[..., Any]:
    """Define `cumulative_sum` or `cumulative_prod`, by operators that accumulate."""
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
        return into(out, result, "unsafe")
    doc = "Running totals along an axis." if start == 0 else "Running products along an axis."
    return array_function()(named(name, doc, function))


cumulative_sum = accumulated("cumulative_sum")
cumulative_prod = accumulated("cumulative_prod")


@array_function()
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = ABSENT) -> Any:
    """Return the weighted mean. With `returned`, also return the sum of the weights."""
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
    """Return the namespace to compute positions with.

    It is NumPy's if they are constants, which are known in traces.
    """
    return np if isinstance(n, int) and isinstance(q, np.ndarray) else ops.np


def continuous(alpha: float, beta: float) -> Callable[..., Any]:
    """Return a function of the position of a quantile among `n` sorted elements, counted from 0.

    Source: Hyndman and Fan, 1996.
    """
    def position(n: Any, q: Any) -> Any:
        xp = arithmetic(n, q)
        if alpha == beta == 1:
            return xp.multiply(xp.subtract(n, 1), q)
        offset = xp.add(xp.multiply(q, 1 - alpha - beta), alpha)    # in NumPy's order, for equal rounding
        return xp.subtract(xp.add(xp.multiply(n, q), offset), 1)
    return position


def at_element(rounded: str) -> Callable[..., Any]:
    """Return a function of the position of the element below, above or nearest to that of `linear`."""
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
    below = xp.floor(position)
    return xp.where(xp.equal(position, below), xp.subtract(below, 0.5), xp.subtract(xp.ceil(position), 1))


@functools.cache
def parity_of_ties() -> int:
    """Return 1 if the installed NumPy chooses the odd one of two equally near observations, 0 for the even one."""
    return int(np.quantile(np.arange(4.0), 0.625, method="closest_observation")) % 2


def of_closest_observation(n: Any, q: Any) -> Any:
    xp = arithmetic(n, q)
    position = xp.subtract(xp.multiply(n, q), 1.5)
    below = xp.floor(position)
    stays = xp.logical_and(xp.equal(position, below), xp.equal(xp.remainder(below, 2), parity_of_ties()))
    return xp.where(stays, below, xp.add(below, 1))


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
"""The position of a quantile, for each method. Between two positions, the method interpolates."""
DISCRETE = ("inverted_cdf", "closest_observation", "lower", "higher", "nearest")


def rows_of(a: Any, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """Return the array with the axes to reduce joined as its last one, and the shape with `keepdims`."""
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
    """Return whether nan may be among the values. The result is True if they are unknown."""
    if a.dtype.kind not in "fc":
        return False
    known = known_values(a)
    return known is None or (known.size > 0 and has_nan(known))


def sorted_rows(a: Any, places: np.ndarray | None = None) -> Any:
    """Return the rows sorted, or the elements at these places of the sorted rows. A row with nan is all nan."""
    if places is None:
        rows = ops.np.sort(a, -1)
    else:
        order = ops.np.argpartition(a, tuple(places.tolist()), -1)
        rows = ops.np.take_along_axis(a, ops.np.take(order, places, -1), -1)
    return with_nan(rows, a) if a.shape[-1] and may_have_nan(a) else rows


def with_nan(found: Any, a: Any) -> Any:
    """Replace what was found for rows with nan by nan. For `argmax`, the first nan of a row is the largest element."""
    largest = ops.np.take_along_axis(a, ops.np.argmax(a, -1, keepdims=True), -1)
    return ops.np.where(ops.np.isnan(largest), largest, found)


def between(rows: Any, position: np.ndarray, dtype: Any) -> Any:
    """Return the elements at positions of the rows in sorted order. Several positions are a new first axis."""
    n = rows.shape[-1]
    position = np.clip(position, 0, n - 1)
    below = np.floor(position).astype(np.intp)
    above = np.minimum(below + 1, n - 1)
    weight = (position - below).astype(position.dtype)
    if n < PARTITIONED:
        rows = sorted_rows(rows)
    else:
        places, found = np.unique([below, above], return_inverse=True)
        rows, (below, above) = sorted_rows(rows, places), found.reshape(2, *below.shape)
    left = ops.np.take(rows, below, -1)
    if (weight == 0).all():
        return left
    right = ops.np.take(rows, above, -1)
    step = ops.np.multiply(ops.np.subtract(right, left), weight.astype(dtype))
    # compute the sum in the order that loses the least precision, like NumPy
    if (weight < 0.5).all():
        return ops.np.add(left, step)
    from_right = ops.np.subtract(right, ops.np.multiply(ops.np.subtract(right, left), (1 - weight).astype(dtype)))
    return from_right if (weight >= 0.5).all() else ops.np.where(weight < 0.5, ops.np.add(left, step), from_right)


def as_quantile(q: Any) -> Any:
    """Return `q` as an array or Tensor. Positions are computed in its dtype, as in NumPy."""
    q = as_nonscalar(q)
    if type(q) is Tensor and not q.requires_grad:
        known = known_values(q)
        return q if known is None else known
    return np.asarray(q) if isinstance(q, np.generic) else q


def as_share(q: Any) -> Any:
    """Convert percentages to fractions."""
    q = as_quantile(q)
    return np.asarray(np.true_divide(q, 100)) if isinstance(q, np.ndarray) else ops.np.divide(q, 100)


def is_weak(q: Any) -> bool:
    """Return whether this `q` leaves the dtype of the quantiles to the elements."""
    return type(q) in (int, float)


def check_quantiles(name: str, q: Any, method: str) -> None:
    """Raise ValueError for an unknown method, and for `q` that are out of range or have too many axes."""
    if method not in POSITIONS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {set(POSITIONS)}")
    known = known_values(q)
    if known is not None and known.size and not (known.min() >= 0 and known.max() <= 1):
        raise ValueError("Quantiles must be in the range [0, 1]" if "percentile" not in name else
                         "Percentiles must be in the range [0, 100]")
    if q.dtype.kind == "c":
        raise TypeError("q must be real")
    if q.ndim > 2:
        raise ValueError("q must be a scalar or 1d")


def of_unmasked(function: Callable[[Any], Any], a: Any, axis: Any, out: Any, keepdims: Any, *, takes_nan: bool) -> Any:
    """Compute quantiles of the elements that are not masked, by the function that leaves out nan.

    The result is masked where there are no such elements. With `takes_nan`, a nan among these elements makes the
    quantiles nan.
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


def quantiles(name: str, a: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any,
              weak: bool) -> Any:
    """Compute the quantiles `q`, between 0 and 1. With `weak`, the elements determine their dtype."""
    a = as_nonscalar(a)
    if is_masked(a):
        return of_unmasked(lambda a: nan_quantiles(f"nan{name.removeprefix('nan')}", a, q, axis, None, method, keepdims,
                                                   weights, weak),
                           a, axis, out, keepdims, takes_nan=not name.startswith("nan"))
    if a.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if a.dtype.kind in "mM":
        raise DispatchTypeError(f"numpy.{name} was called with a of dtype {a.dtype}, expected real numbers\n"
                                "pass a.astype(int), and convert the result back to the unit")
    q = as_quantile(q)
    check_quantiles(name, q, method)
    if a.dtype.kind == "b" and method not in DISCRETE and q.dtype.kind not in "biu":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` "
                        "operator, or the logical_xor function instead.")
    rows, kept = rows_of(a, axis)
    dtype = dtype_of(method, a, q, weak)
    if weights is not None:
        found = weighted_quantiles(rows, q, weights, axis, method, a, leave_out_nan=name.startswith("nan"))
    elif isinstance(q, np.ndarray):
        found = between(rows, POSITIONS[method](rows.shape[-1], q if q.dtype.kind == "f" else q.astype(float)), dtype)
    else:
        rows = sorted_rows(rows)
        n = rows.shape[-1]
        position = ops.np.clip(POSITIONS[method](n, q), 0, n - 1)
        below = ops.np.astype(ops.np.floor(position), np.dtype(np.intp))
        found = ops.np.take(rows, below, -1)
        if q.dtype.kind == "f" and method not in DISCRETE:
            weight = ops.np.subtract(position, below)
            over = ops.np.subtract(ops.np.take(rows, ops.np.minimum(below + 1, n - 1), -1), found)
            is_element = ops.np.logical_and(ops.np.equal(weight, 0), ops.np.isinf(over))
            found = ops.np.add(found, ops.np.multiply(ops.np.where(is_element, 0.0, over), weight))
    return in_place_of(in_c_order(with_first(found, q.ndim)), q.ndim, kept, keepdims,
                       a.dtype if weights is not None else dtype, out,
                       "alike" if method in DISCRETE else "same_kind")


def dtype_of(method: str, a: Any, q: Any, weak: bool) -> np.dtype[Any]:
    """Return the dtype of quantiles: that of the elements if they are elements."""
    of_elements: np.dtype[Any] = a.dtype
    if method in DISCRETE or (method == "linear" and q.dtype.kind in "biu"):
        return of_elements
    return np.result_type(of_elements, 0.0 if weak else q.dtype if q.dtype.kind == "f" else float)


def with_first(found: Any, q_ndim: int) -> Any:
    """Move the last axes of the results, which are those of `q`, to the front."""
    if not q_ndim:
        return found
    return ops.np.moveaxis(found, tuple(range(found.ndim - q_ndim, found.ndim)), tuple(range(q_ndim)))


def in_place_of(found: Any, q_ndim: int, kept: tuple[int, ...], keepdims: Any, dtype: Any, out: Any,
                casting: str) -> Any:
    """Return results whose first axes are those of `q`, with the reduced axes if `keepdims`."""
    if is_asked_for(keepdims):
        found = ops.np.reshape(found, (*found.shape[:q_ndim], *kept))
    found = as_scalar(found if found.dtype == dtype else ops.np.astype(found, dtype))
    return into_alike(out, found) if casting == "alike" else into(out, found, casting, repeats=True)


def is_asked_for(keepdims: Any) -> bool:
    """Return whether `keepdims` was passed and is true."""
    return keepdims is not ABSENT and bool(keepdims)


def weighted_quantiles(
    rows: Any, q: Any, weights: Any, axis: Any, method: str, a: Any, *, leave_out_nan: bool,
) -> Any:
    """Return the smallest elements below which the fraction `q` of the weights lies.

    A nan is left out, or makes the result nan.
    """
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
    """Raise ValueError for weights that are negative, nan or infinite, or 0 in a whole row, if known."""
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
    """Return the values below which fractions `q` of the elements lie.

    The gradient of each goes to the two elements next to it.
    """
    return quantiles("quantile", a, q, axis, out, method, keepdims, weights, is_weak(q))


@array_function()
def percentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
               method: str = "linear", keepdims: Any = False, *, weights: Any = None) -> Any:
    """Compute percentiles. `q` is in percent."""
    return quantiles("percentile", a, as_share(q), axis, out, method, keepdims, weights, is_weak(q))


def at_places(rows: Any, order: Any, places: slice) -> Any:
    """Return the elements of each row at these positions of its order."""
    order = order[..., places] if isinstance(order, np.ndarray) else ops.np.getitem(order, (..., places))
    return ops.np.take_along_axis(rows, order, -1)


def order_of_middle(rows: Any, known: np.ndarray | None, kth: tuple[int, ...]) -> Any:
    """Return the positions of each row's elements, with the elements at `kth` as in sorted order."""
    if known is None:
        return ops.np.argpartition(rows, kth, -1)
    return known.argsort(-1) if rows.shape[-1] < PARTITIONED else known.argpartition(kth, -1)


def mean_of_row(rows: Any) -> Any:
    """Return the mean over the last axis."""
    return ops.np.mean(rows) if rows.ndim == 1 else ops.np.mean(rows, -1)


LARGEST = Reduction(np.maximum)


def has_nan(known: np.ndarray) -> bool:
    """Return whether nan is among the numbers."""
    if not known.size:
        return False
    largest = LARGEST(known)
    return bool(largest != largest)


@array_function()
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """Return the middle element in order, or the mean of the two in the middle."""
    a = as_nonscalar(a)
    if is_masked(a):
        return of_unmasked(lambda a: nanmedian(a, axis, keepdims=keepdims), a, axis, out, keepdims, takes_nan=True)
    rows, kept = rows_of(a, axis)
    n = rows.shape[-1]
    if not n:
        found = ops.np.mean(rows, -1)
    else:
        known, middle = known_values(rows), ((n - 1) // 2, n // 2)
        order = order_of_middle(rows, known, middle[middle[0] == middle[1]:])
        found = mean_of_row(at_places(rows, order, slice(middle[0], middle[1] + 1)))
        if rows.dtype.kind in "fc" and (known is None or has_nan(known)):
            found = ops.np.squeeze(with_nan(ops.np.expand_dims(found, -1), rows), -1)
    found = laid_out_like(found, rows, without=[rows.ndim - 1])
    if is_asked_for(keepdims):
        found = ops.np.reshape(found, kept)
    return into(out, as_scalar(found), "unsafe")


# --- without nan -----------------------------------------------------------------------------------------------------


def missing_of(a: Any) -> Any:
    """Return the mask of the elements that are nan, or None if the dtype has no nan."""
    return ops.np.isnan(a) if a.dtype.kind in "fc" else None


def with_instead(a: Any, missing: Any, value: Any) -> Any:
    """Replace each nan by a value."""
    return a if missing is None else ops.np.where(missing, np.asarray(value, a.dtype), a)


def nan_reduction(name: str, value: Any, doc: str) -> Callable[..., Any]:
    """Define nansum or nanprod."""
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = ABSENT,
                 initial: Any = ABSENT, where: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        reduce = FUNCTIONS[name.removeprefix("nan")].on_tensors
        return into(out, reduce(with_instead(a, missing_of(a), value), axis, dtype,
                                **options_of(keepdims=keepdims, initial=initial, where=where)), "unsafe")
    return array_function()(named(name, doc, function))


nansum = nan_reduction("nansum", 0, "The sum of the elements that are not nan.")
nanprod = nan_reduction("nanprod", 1, "The product of the elements that are not nan.")


def nan_accumulation(name: str, value: Any, doc: str) -> Callable[..., Any]:
    """Define nancumsum or nancumprod."""
    accumulate = getattr(ops.np, name.removeprefix("nan"))

    def function(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        a = as_nonscalar(a)
        return into(out, accumulate(with_instead(a, missing_of(a), value), axis, dtype), "unsafe")
    return array_function()(named(name, doc, function))


nancumsum = nan_accumulation("nancumsum", 0, "Running totals of the elements that are not nan.")
nancumprod = nan_accumulation("nancumprod", 1, "Running products of the elements that are not nan.")


def nan_extreme(name: str, doc: str) -> Callable[..., Any]:
    """Define nanmin or nanmax."""
    limit = np.inf if name == "nanmin" else -np.inf

    def function(a: Any, axis: Any = None, out: Any = None, keepdims: Any = ABSENT, initial: Any = ABSENT,
                 where: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        reduce = FUNCTIONS[name.removeprefix("nan")].on_tensors
        missing, options = missing_of(a), options_of(keepdims=keepdims, initial=initial, where=where)
        if missing is None:
            return into(out, reduce(a, axis, **options), "unsafe")
        result = reduce(with_instead(a, missing, limit), axis, **options)
        if initial is ABSENT or initial is None:
            options.pop("initial", None)
            nothing = ops.np.all(missing, axis, **options)
            warn_of(nothing, "All-NaN slice encountered")
            result = as_scalar(ops.np.where(nothing, np.asarray(np.nan, a.dtype), result))
        return into(out, result, "unsafe")
    return array_function()(named(name, doc, function))


def warn_of(nothing: Any, message: str) -> None:
    """Warn (RuntimeWarning) if a slice is known to be all nan."""
    known = known_values(nothing)
    if known is not None and known.any():
        warnings.warn(message, RuntimeWarning, stacklevel=4)


nanmin = nan_extreme("nanmin", "The smallest of the elements that are not nan.")
nanmax = nan_extreme("nanmax", "The largest of the elements that are not nan.")


def nan_position(name: str, doc: str) -> Callable[..., Any]:
    """Define nanargmin or nanargmax."""
    find = getattr(ops.np, name.removeprefix("nan"))
    limit = np.inf if name == "nanargmin" else -np.inf

    def function(a: Any, axis: int | None = None, out: Any = None, *, keepdims: Any = ABSENT) -> Any:
        a = as_nonscalar(a)
        missing, options = missing_of(a), options_of(keepdims=keepdims)
        if missing is not None:
            known = known_values(ops.np.all(missing, axis))
            if known is not None and known.any():
                raise ValueError("All-NaN slice encountered")
        return into_alike(out, find(with_instead(a, missing, limit), axis, **options))
    return array_function(constant=True)(named(name, doc, function))


nanargmin = nan_position("nanargmin", "The position of the smallest element that is not nan.")
nanargmax = nan_position("nanargmax", "The position of the largest element that is not nan.")


def count_of(a: Any, missing: Any, axis: Any, where: Any, keepdims: Any) -> Any:
    """Count the elements that are not nan."""
    there = ops.np.logical_not(missing)
    return ops.np.sum(there, axis, **options_of(keepdims=keepdims, where=where))


@array_function()
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = ABSENT, *,
            where: Any = ABSENT) -> Any:
    """Return the mean of the elements that are not nan."""
    a = as_nonscalar(a)
    missing = missing_of(a)
    if missing is None:
        return into(out, ops.np.mean(a, axis, dtype, **options_of(keepdims=keepdims, where=where)), "unsafe")
    check_inexact(a, dtype, out)
    n = count_of(a, missing, axis, where, keepdims)
    warn_of(ops.np.equal(n, 0), "Mean of empty slice")
    return into(out, mean_of_present(a, missing, n, axis, dtype, keepdims, where), "unsafe")


def mean_of_present(a: Any, missing: Any, n: Any, axis: Any, dtype: Any, keepdims: Any, where: Any) -> Any:
    """Return the mean of the `n` elements that are not nan."""
    total = ops.np.sum(with_instead(a, missing, 0), axis, dtype, **options_of(keepdims=keepdims, where=where))
    with np.errstate(invalid="ignore", divide="ignore"):
        return ops.np.divide(total, ops.np.astype(n, np.empty(0, total.dtype).real.dtype))


def degrees(name: str, ddof: Any, correction: Any) -> Any:
    """Return the number to subtract from the number of elements, which has two names."""
    if correction is ABSENT:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def check_inexact(a: Any, dtype: Any, out: Any) -> None:
    """Raise TypeError for a mean or variance of inexact numbers in another kind of dtype."""
    if a.dtype.kind not in "fc":
        return
    if dtype is not None and as_dtype(dtype).kind not in "fc":
        raise TypeError("If a is inexact, then dtype must be inexact")
    if is_array(out) and out.dtype.kind not in "fc":
        raise TypeError("If a is inexact, then out must be inexact")


@array_function()
def nanvar(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = ABSENT, *,
           where: Any = ABSENT, mean: Any = ABSENT, correction: Any = ABSENT) -> Any:
    """Return the variance of the elements that are not nan."""
    a = as_nonscalar(a)
    missing = missing_of(a)
    ddof = degrees("nanvar", ddof, correction)
    if missing is None:
        options = options_of(keepdims=keepdims, where=where, mean=mean)
        return into(out, ops.np.var(a, axis, dtype, ddof=ddof, **options), "unsafe")
    check_inexact(a, dtype, out)
    center = mean
    if mean is ABSENT:
        center = mean_of_present(a, missing, count_of(a, missing, axis, where, True), axis, dtype, True, where)
    difference = ops.np.astype(ops.np.subtract(a, center), a.dtype, copy=False)
    difference = with_instead(difference, missing, 0)
    squares = ops.np.real(ops.np.multiply(difference, ops.np.conjugate(difference)))
    n = count_of(a, missing, axis, where, keepdims)
    total = ops.np.sum(squares, axis, dtype, **options_of(keepdims=keepdims, where=where))
    freedom = ops.np.subtract(n, ddof)
    warn_of(ops.np.less_equal(freedom, 0), "Degrees of freedom <= 0 for slice.")
    freedom = ops.np.where(ops.np.less_equal(freedom, 0), np.nan, freedom)
    return into(out, ops.np.divide(total, ops.np.astype(freedom, total.dtype)), "unsafe")


@array_function()
def nanstd(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = ABSENT, *,
           where: Any = ABSENT, mean: Any = ABSENT, correction: Any = ABSENT) -> Any:
    """Return the standard deviation of the elements that are not nan."""
    check_inexact(as_nonscalar(a), dtype, out)
    return into(out, ops.np.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean,
                                        correction=correction)))


def nan_quantiles(name: str, a: Any, q: Any, axis: Any, out: Any, method: str, keepdims: Any, weights: Any,
                  weak: bool) -> Any:
    """Compute quantiles of the elements of each row that are not nan."""
    a = as_nonscalar(a)
    if is_masked(a):
        return quantiles(name, a, q, axis, out, method, keepdims, weights, weak)
    if not a.size:
        return nanmean(a, axis, out=out, keepdims=keepdims)
    if (a.dtype.kind != "f" and name != "nanmedian") or weights is not None:
        return quantiles(name, a, q, axis, out, method, keepdims, weights, weak)
    q = as_quantile(q)
    check_quantiles(name, q, method)
    rows, kept = rows_of(a, axis)
    rows = ops.np.sort(rows, -1)
    n = ops.np.sum(ops.np.logical_not(ops.np.isnan(rows)), -1, keepdims=True)
    warn_of(ops.np.equal(n, 0), "All-NaN slice encountered")
    last = ops.np.maximum(ops.np.subtract(n, 1), 0)
    dtype = dtype_of(method, a, q, weak)
    precise = q.dtype if q.dtype.kind == "f" else np.dtype(float)
    wanted = ops.np.astype(ops.np.reshape(q, (-1,)), precise)
    position = ops.np.clip(POSITIONS[method](ops.np.astype(n, precise), wanted), 0, ops.np.astype(last, precise))
    below = ops.np.astype(ops.np.floor(position), np.dtype(np.intp))
    weight = ops.np.astype(ops.np.subtract(position, ops.np.astype(below, precise)), dtype)
    left = ops.np.take_along_axis(rows, below, -1)
    right = ops.np.take_along_axis(rows, ops.np.minimum(ops.np.add(below, 1), last), -1)
    if name == "nanmedian":     # without a difference, which would be nan for two infinite elements
        alone = ops.np.equal(weight, 0)
        found = ops.np.divide(ops.np.where(alone, left, ops.np.add(left, right)), ops.np.subtract(
            np.asarray(2, dtype), alone))
    else:
        found = ops.np.add(left, ops.np.multiply(ops.np.subtract(right, left), weight))
    found = ops.np.reshape(found, (*found.shape[:-1], *q.shape))
    found = with_first(found if name == "nanmedian" else in_c_order(found), q.ndim)
    return in_place_of(found, q.ndim, kept, keepdims, dtype, out, "unsafe")


@array_function()
def nanquantile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                method: str = "linear", keepdims: Any = ABSENT, *, weights: Any = None) -> Any:
    """Return the quantiles of the elements that are not nan."""
    return nan_quantiles("nanquantile", a, q, axis, out, method, keepdims, weights, is_weak(q))


@array_function()
def nanpercentile(a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False,
                  method: str = "linear", keepdims: Any = ABSENT, *, weights: Any = None) -> Any:
    """Compute percentiles of the elements that are not nan. `q` is in percent."""
    return nan_quantiles("nanpercentile", a, as_share(q), axis, out, method, keepdims, weights, is_weak(q))


@array_function()
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = ABSENT) -> Any:
    """Return the median of the elements that are not nan."""
    a = as_nonscalar(a)
    if a.dtype.kind not in "fc":
        return median(a, axis, out, overwrite_input, keepdims)
    return nan_quantiles("nanmedian", a, 0.5, axis, out, "linear", keepdims, None, True)


# --- correlations ----------------------------------------------------------------------------------------------------


@array_function()
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:
    """Return the covariances of variables, which are rows, over observations."""
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
        if (is_masked(x) or is_masked(others)) and tuple(x.shape) == tuple(others.shape):   # either mask, as in ma
            mask = ops.np.logical_or(ops.masked.mask(x), ops.masked.mask(others))
            x, others = [ops.masked.with_mask(ops.masked.filled(rows, 0), mask) for rows in (x, others)]
        x = ops.np.concatenate([x, others], 0)
    ddof = (0 if bias else 1) if ddof is None else ddof
    if is_masked(x) and (fweights is not None or aweights is not None):
        raise UnsupportedError("cov: covariances of masked arrays do not support weights\ncompute the weighted sums")
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
    """Return the argument as a matrix whose rows are variables."""
    x = x if x.dtype == dtype else ops.np.astype(x, dtype)
    if x.ndim < 2:
        return ops.np.reshape(x, (1, -1))
    return ops.np.transpose(x) if is_transposed else x


def weights_of_observations(n: int, **given: Any) -> Any:
    """Return the product of the weights that were given for `n` observations, or None without any."""
    weights = None
    for name, value in given.items():
        if value is not None:
            weight = as_nonscalar(value)
            known = known_values(weight)
            if name == "fweights" and known is not None and not np.all(known == np.around(known)):
                raise TypeError("fweights must be integer")
            if weight.ndim > 1:
                raise RuntimeError(f"cannot handle multidimensional {name}")
            if weight.shape[0] != n:
                raise RuntimeError(f"incompatible numbers of samples and {name}")
            if known is not None and (known < 0).any():
                raise ValueError(f"{name} cannot be negative")
            weights = weight if weights is None else ops.np.multiply(weights, weight)
    return weights


def freedom_of_weights(weights: Any, aweights: Any, ddof: Any) -> Any:
    """Return the divisor of sums of weighted products."""
    total = ops.np.sum(weights)
    if ddof == 0:
        return total
    if aweights is None:
        return ops.np.subtract(total, ddof)
    spread = ops.np.sum(ops.np.multiply(weights, as_nonscalar(aweights)))
    return ops.np.subtract(total, ops.np.divide(ops.np.multiply(ddof, spread), total))


def weighted_covariance(x: Any, weights: Any, freedom: Any) -> Any:
    """Return the covariances of the rows of `x`, with a weight for each column."""
    center = ops.np.divide(ops.np.sum(ops.np.multiply(x, weights), 1, keepdims=True), ops.np.sum(weights))
    apart = ops.np.subtract(x, center)
    other = ops.np.transpose(ops.np.multiply(apart, weights))
    products = ops.np.matmul(apart, ops.np.conjugate(other) if other.dtype.kind == "c" else other)
    return ops.np.divide(products, freedom)


@array_function()
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Return the correlation coefficients of variables."""
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
    """Count how often 0, 1, 2, ... occur, or sum their weights. `length` fixes the number of counts, as in JAX."""
    x = as_nonscalar(x)
    if x.ndim != 1:
        raise ValueError("object of too small depth for desired array" if x.ndim == 0 else
                         "object too deep for desired array")
    if x.dtype.kind not in "iub":
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule 'safe'")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    known = known_values(x)
    if known is not None and known.size and known.min() < 0:
        raise ValueError("'list' argument must have no negative elements")
    if length is None:
        largest = -1 if not x.shape[0] else int(known.max()) if known is not None else decided_by(
            ops.np.max(x), "how many counts numpy.bincount returns", "pass length=, the number of counts to return")
        length = max(minlength, largest + 1)
    if weights is None:
        weights = ops.np.ones_like(x, dtype=np.dtype(np.intp))
    else:
        weights = as_nonscalar(weights)
        if tuple(weights.shape) != tuple(x.shape):
            raise ValueError("The weights and list don't have the same length.")
        if not np.can_cast(weights.dtype, float):
            raise TypeError(f"Cannot cast array data from {weights.dtype!r} to dtype('float64') according to the rule "
                            "'safe'")
        weights = ops.np.astype(weights, np.dtype(float))
    if known is None:       # a negative number is out of bounds, not a position from the end
        x = ops.np.where(ops.np.less(x, 0), length, x)
    return added_up(x, weights, length)


def added_up(x: Any, weights: Any, length: int) -> Any:
    """Sum, for each number below `length`, the weights of the elements that are this number."""
    zeros = ops.np.zeros_like(weights, shape=(length,))
    return ops.np.scatter_add(zeros, ops.np.astype(x, np.dtype(np.intp)), weights, 0)


def edges_of(a: Any, bins: Any, limits: Any) -> Any:
    """Return the edges of bins, given or evenly spaced."""
    if isinstance(bins, str):
        raise DispatchTypeError("numpy.histogram was called with a Tensor and a string as bins, which estimates their "
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
            if not (np.isfinite(first) and np.isfinite(last)):
                raise ValueError(f"supplied range of [{first}, {last}] is not finite")
            if first == last:
                first, last = first - 0.5, last + 0.5
            return made(np.linspace(first, last, n + 1, dtype=edge_dtype(first, last, a)), a)
        if not a.size:
            return made(np.linspace(0, 1, n + 1, dtype=edge_dtype(0, 1, a)), a)
        first, last = ops.np.min(a), ops.np.max(a)
        if not all(known is None or np.isfinite(known) for known in map(known_values, (first, last))):
            raise ValueError(f"autodetected range of [{known_values(first)}, {known_values(last)}] is not finite")
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
    """Return the bin number of each element: 0 below the first edge, the number of edges above the last one."""
    n = edges.shape[0]
    number = searchsorted(edges, x, "right")
    at_end = ops.np.equal(x, ops.np.getitem(edges, -1))
    return ops.np.where(at_end, n - 1, number)


@array_function()
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges of the bins of a histogram."""
    return edges_of(ops.np.ravel(as_nonscalar(a)), bins, range)


@array_function()
def histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Any:
    """Return the number of elements in each bin, or the sum of their weights, and the edges of the bins."""
    a = as_nonscalar(a)
    if weights is not None:
        weights = as_nonscalar(weights)
        if tuple(weights.shape) != tuple(a.shape):
            raise ValueError("weights should have the same shape as a.")
        weights = ops.np.ravel(weights)
    a = ops.np.ravel(a)
    edges = edges_of(a, bins, range)
    counts = ops.np.copy(ops.np.getitem(counted([bins_of(a, edges)], [edges.shape[0] + 1], weights), slice(1, -1)))
    if density:
        widths = ops.np.subtract(ops.np.getitem(edges, slice(1, None)), ops.np.getitem(edges, slice(-1)))
        counts = ops.np.divide(ops.np.divide(counts, widths), ops.np.sum(counts))
    return counts, edges


def counted(numbers: list[Any], lengths: list[int], weights: Any) -> Any:
    """Return the counts, or sums of weights, for each box, and for the points outside of all boxes around them."""
    flat = numbers[0]
    for number, length in zip(numbers[1:], lengths[1:], strict=True):
        flat = ops.np.add(ops.np.multiply(flat, length), number)
    if weights is None:
        weights = ops.np.ones_like(flat, dtype=np.dtype(np.intp))
    counts = added_up(flat, weights, math.prod(lengths))
    return ops.np.reshape(counts, tuple(lengths))


@array_function()
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None,
                weights: Any = None) -> Any:
    """Return the number of points in each box of a grid, or the sum of their weights, and the edges along each axis."""
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
    # a view, as in NumPy
    counts = ops.np.getitem(ops.np.astype(counts, np.dtype(float)), (slice(1, -1),) * d)
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
    """Return the number of points in each rectangle of a grid, and the edges along both axes.

    With weights, their sums replace the numbers.
    """
    x, y = as_nonscalar(x), as_nonscalar(y)
    if x.shape[0] != y.shape[0]:
        raise ValueError("x and y must have the same length.")
    if (is_array(bins) or isinstance(bins, (list, tuple))) and len(bins) not in (1, 2):
        bins = [as_array(bins)] * 2
    elif isinstance(bins, (list, tuple)) and len(bins) == 1:
        bins = [bins[0]] * 2
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]
