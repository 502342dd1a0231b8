"""Functions of each element, except for universal functions with one result."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import Tensor, is_array, is_unobserved
from pydispatch._registry.backends import check_sizes
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_copied,
    as_nonscalar,
    as_order,
    as_scalar,
    as_zero_d,
    chosen_order,
    decided_by,
    declare_operator,
    in_order,
    into,
    known_values,
)
from pydispatch.operators.declare import HAS_NUMPY_2_5
from pydispatch.operators.layouts import laid_out_like
from pydispatch.ops import ops

for name in ("sinc", "i0"):
    declare_operator(name, 1, 1)


# --- universal functions with several results, or for dates -----------------------------------------------------------


def of_universal(
    name: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[list[Any], Callable[..., tuple[Any, ...]]]:
    """Return the arguments in the dtype that the universal function computes in, and a function for its results.

    That function returns the results, or writes them to `out`. Elements that `where` leaves out are replaced by 1,
    where no function is singular.
    """
    mask, dtype = options.pop("where", True), options.pop("dtype", None)
    casting = options.pop("casting", "same_kind")
    out, order = options.pop("out", None), as_order(options.pop("order", None), default="K")
    if wrong := next((key for key in options if key not in ("subok", "signature")), None):
        raise TypeError(f"{name}() got an unexpected keyword argument {wrong!r}")
    ufunc = getattr(np, name)
    values = [as_array(value) for value in arguments[:ufunc.nin]]
    written = arguments[ufunc.nin:] or (out if isinstance(out, tuple) else (out,) * ufunc.nout)
    samples = [np.empty(0, value.dtype) if hasattr(value, "dtype") else value for value in values]
    computed = ufunc(*samples, dtype=dtype, casting=casting)[0].dtype
    if not any(value.dtype.kind == "m" for value in values if is_array(value)):
        values = [value if is_array(value) and value.dtype == computed else
                  ops.np.astype(as_nonscalar(value), computed) for value in values]
    if mask is not True:
        mask = as_array(mask)
        values = [ops.np.where(mask, value, np.ones((), computed)) for value in values]
    shapes = [target.shape for target in written if is_array(target)]
    if any(shapes):         # NumPy broadcasts operands with arrays to write to
        values[0] = ops.np.broadcast_to(values[0], np.broadcast_shapes(values[0].shape, *shapes))
    return values, partial(written_where, mask, list(written), casting, chosen_order(order, values))


def written_where(mask: Any, targets: list[Any], casting: Any, order: str, *results: Any) -> tuple[Any, ...]:
    """Return the results in an order, or written into `out` if that was passed, where the mask is true."""
    found = []
    for result, target in zip(results, [*targets, None, None], strict=False):
        if mask is not True and target is not None and target is not Ellipsis:
            result = ops.np.where(mask, result, target)
        found.append(in_order(result, order) if target is None else into(target, result, casting, repeats=True))
    return tuple(found)


@array_function()
def divmod(x1: Any, x2: Any, /, *out: Any, **options: Any) -> Any:
    """Return the quotients, rounded towards minus infinity, and the remainders."""
    (x1, x2), written = of_universal("divmod", (x1, x2, *out), options)
    return written(ops.np.floor_divide(x1, x2), ops.np.remainder(x1, x2))


@array_function()
def modf(x: Any, /, *out: Any, **options: Any) -> Any:
    """Return the fractional and the integral parts, with the sign of the element."""
    (x,), written = of_universal("modf", (x, *out), options)
    infinite = ops.np.isinf(x)
    finite = ops.np.where(infinite, ops.np.copysign(np.zeros((), x.dtype), x), x)
    return written(ops.np.fmod(finite, 1), ops.np.trunc(x))


@array_function()
def frexp(x: Any, /, *out: Any, **options: Any) -> Any:
    """Return the mantissas, between 0.5 and 1, and the exponents of 2."""
    (x,), written = of_universal("frexp", (x, *out), options)
    return written(ops.np.frexp_mantissa(x), ops.np.frexp_exponent(x))


@array_function(constant=True)
def isnat(x: Any, /, out: Any = None, **options: Any) -> Any:
    """Return whether each element is NaT, the only date or duration that does not equal itself."""
    order = as_order(options.pop("order", None), default="K")
    if wrong := next((key for key in options if key not in ("subok", "casting")), None):
        raise TypeError(f"isnat() got an unexpected keyword argument {wrong!r}")
    x = as_nonscalar(x)
    if x.dtype.kind not in "mM":
        raise TypeError("ufunc 'isnat' is only defined for np.datetime64 and np.timedelta64.")
    return into(out, in_order(ops.np.not_equal(x, x), chosen_order(order, [x])))


# --- predicates ------------------------------------------------------------------------------------------------------


def as_truth(value: Any) -> Any:
    """Return one truth value as a bool of Python, or an array while a transform, trace or mode is active."""
    if type(value) is Tensor and isinstance(value.array, np.ndarray) and is_unobserved():
        value = value.array
    return bool(value) if isinstance(value, (np.ndarray, np.generic)) else value


def is_infinite(name: str, x: Any, out: Any, *, negative: bool) -> Any:
    """Return whether each element is infinite, with this sign."""
    x = as_nonscalar(x)
    if x.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {x.dtype} values because it would be ambiguous.")
    if x.dtype.kind != "f":
        return into(out, as_scalar(ops.np.zeros_like(x, dtype=bool)), repeats=True)
    limit = -math.inf if negative else math.inf
    return into(out, ops.np.equal(x, limit), repeats=True)


@array_function(constant=True)
def isposinf(x: Any, out: Any = None) -> Any:
    """Return whether each element is plus infinity."""
    return is_infinite("isposinf", x, out, negative=False)


@array_function(constant=True)
def isneginf(x: Any, out: Any = None) -> Any:
    """Return whether each element is minus infinity."""
    return is_infinite("isneginf", x, out, negative=True)


@array_function(constant=True)
def isreal(x: Any) -> Any:
    """Return whether the imaginary part of each element is 0."""
    return ops.np.equal(ops.np.imag(as_nonscalar(x)), 0)


@array_function(constant=True)
def iscomplex(x: Any) -> Any:
    """Return whether the imaginary part of each element is not 0."""
    return ops.np.not_equal(ops.np.imag(as_nonscalar(x)), 0)


def dtype_of(x: Any) -> np.dtype[Any]:
    """Return the dtype of the array that NumPy would make of a value."""
    dtype: np.dtype[Any] = as_nonscalar(x).dtype
    return dtype


@array_function(constant=True)
def isrealobj(x: Any) -> bool:
    """Return whether the dtype of the array is real."""
    return dtype_of(x).kind != "c"


@array_function(constant=True)
def iscomplexobj(x: Any) -> bool:
    """Return whether the dtype of the array is complex."""
    return dtype_of(x).kind == "c"


@array_function(constant=True)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether the distance of the elements is at most atol + rtol * |b|."""
    a, b = as_array(a), as_array(b)
    if not is_array(a) and not is_array(b):
        a = as_nonscalar(a)
    if not is_array(b):         # Python numbers adapt to the dtype of the array
        b = b if isinstance(b, complex) else float(b)
    elif b.dtype.kind not in "mfc":
        b = ops.np.astype(b, np.result_type(b.dtype, 1.0))
    warn_of_tolerance(rtol, atol)
    with np.errstate(invalid="ignore"):
        rtol, atol = as_array(rtol), as_array(atol)
        if is_array(rtol) or is_array(b):
            limit = ops.np.add(atol, ops.np.multiply(rtol, ops.np.absolute(b) if is_array(b) else abs(b)))
        else:
            limit = ops.np.add(atol, rtol * abs(b)) if is_array(atol) else atol + rtol * abs(b)
        near = ops.np.less_equal(ops.np.absolute(ops.np.subtract(a, b)), limit)
        found = ops.np.logical_or(ops.np.logical_and(near, ops.np.isfinite(as_nonscalar(b))), ops.np.equal(a, b))
    if equal_nan:
        both = ops.np.logical_and(ops.np.isnan(as_nonscalar(a)), ops.np.isnan(as_nonscalar(b)))
        found = ops.np.logical_or(found, both)
    return found


def warn_of_tolerance(rtol: Any, atol: Any) -> None:
    """Warn of known tolerances that are nan or infinite, as set by `numpy.errstate(invalid=)`."""
    known = [known_values(as_nonscalar(tolerance)) for tolerance in (rtol, atol)]
    if all(each is None or np.isfinite(each).all() for each in known):
        return
    message = f"One of rtol or atol is not valid, atol: {atol}, rtol: {rtol}"
    if np.geterr()["invalid"] == "warn":
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    if np.geterr()["invalid"] == "raise":
        raise FloatingPointError(message)


@array_function(constant=True)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether all elements are close to each other.

    The result is a bool. Under transforms and modes, it is an array.
    """
    return as_truth(ops.np.all(isclose.on_tensors(a, b, rtol, atol, equal_nan)))  # type: ignore[attr-defined]


@array_function(constant=True)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return whether the arrays have the same shape and elements.

    The result is a bool. Under transforms and modes, it is an array.
    """
    try:
        a1, a2 = as_nonscalar(a1), as_nonscalar(a2)
    except ValueError:      # a ragged list
        return False
    check_sizes("array_equal", a1, a2)
    if tuple(a1.shape) != tuple(a2.shape):
        return False
    if not are_comparable(a1, a2):
        return 0 in a1.shape
    same = ops.np.equal(a1, a2)
    if equal_nan and a1.dtype.kind in "fcmM" and a2.dtype.kind in "fcmM":
        same = ops.np.logical_or(same, ops.np.logical_and(ops.np.not_equal(a1, a1), ops.np.not_equal(a2, a2)))
    return as_truth(ops.np.all(same))


def are_comparable(a1: Any, a2: Any) -> bool:
    """Return whether both arrays are text, or neither is, or one has objects."""
    return (a1.dtype.kind in "SUT") == (a2.dtype.kind in "SUT") or "O" in (a1.dtype.kind, a2.dtype.kind)


@array_function(constant=True)
def array_equiv(a1: Any, a2: Any) -> Any:
    """Return whether the arrays, broadcast to one shape, have the same elements.

    The result is a bool. Under transforms and modes, it is an array.
    """
    try:
        a1, a2 = as_nonscalar(a1), as_nonscalar(a2)
        shape = np.broadcast_shapes(tuple(a1.shape), tuple(a2.shape))
    except ValueError:
        return False
    if not are_comparable(a1, a2):
        return 0 in shape
    return as_truth(ops.np.all(ops.np.equal(a1, a2)))


# --- numbers ---------------------------------------------------------------------------------------------------------


@array_function()
def fix(x: Any, out: Any = None) -> Any:
    """Round the elements towards zero."""
    if HAS_NUMPY_2_5:
        warnings.warn("numpy.fix is deprecated. Use numpy.trunc instead, which is faster and follows the Array API "
                      "standard.", DeprecationWarning, stacklevel=3)
    return into(out, ops.np.trunc(as_nonscalar(x)), repeats=True)


@array_function()
def around(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round the elements to a number of decimals, halves to the even neighbour."""
    return into(out, ops.np.round(as_nonscalar(a), decimals))


@array_function()
def angle(z: Any, deg: bool = False) -> Any:
    """Return the angles of complex numbers, in radians or degrees. For real numbers, they are 0 or half a turn."""
    z = as_nonscalar(z)
    found = ops.np.arctan2(ops.np.imag(z), ops.np.real(z)) if z.dtype.kind == "c" else ops.np.arctan2(0, z)
    return ops.np.multiply(found, 180 / math.pi) if deg else found


@array_function()
def real_if_close(a: Any, tol: float = 100) -> Any:
    """Return the real parts if all imaginary ones are nearly 0, else the complex numbers.

    The dtype depends on values.
    """
    a = as_zero_d(as_nonscalar(a))
    if a.dtype.kind != "c":
        return a
    limit = np.finfo(a.dtype).eps * tol if tol > 1 else tol
    imaginary = ops.np.imag(a)
    is_close = decided_by(ops.np.all(ops.np.less(ops.np.absolute(imaginary), limit)),
                          "whether numpy.real_if_close returns real numbers", "use real(x), or leave x complex")
    return ops.np.real(a) if is_close else a


@array_function()
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace nan and infinities by numbers. Without `copy`, they are written into the array."""
    target = x
    x = as_nonscalar(x)
    if x.dtype.kind not in "fc":
        return as_scalar(ops.np.copy(x) if copy or x is not target else x)
    if x.dtype.kind == "c":
        found = ops.np.complex(*[numbers(part, nan, posinf, neginf) for part in (ops.np.real(x), ops.np.imag(x))])
    else:
        found = numbers(x, nan, posinf, neginf)
    if copy or x is not target:
        return as_scalar(laid_out_like(found, x))
    ops.np.setitem_(x, ..., found)
    return as_scalar(x)


def numbers(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    """Compute `nan_to_num` of real numbers. Elements that were replaced get no gradient."""
    limits = np.finfo(x.dtype)
    other, high, low = [as_copied(value, x.dtype) for value in (
        nan, limits.max if posinf is None else posinf, limits.min if neginf is None else neginf)]
    other = ops.np.where(ops.np.isnan(x), other, ops.np.where(ops.np.greater(x, 0), high, low))
    return ops.np.where(ops.np.isfinite(x), x, other)


@array_function()
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    """Add multiples of the period to angles, so that neighbours differ by at most half of it."""
    p = as_nonscalar(p)
    fixed = p if isinstance(period, Tensor) or isinstance(discont, Tensor) else ops.np.detach(p)
    axis = normalize_axis_index(axis, p.ndim)
    front = (slice(None),) * axis
    difference = ops.np.not_equal if p.dtype.kind == "b" else ops.np.subtract
    steps = difference(ops.np.getitem(fixed, (*front, slice(1, None))),
                       ops.np.getitem(fixed, (*front, slice(None, -1))))
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(steps.dtype, period)
    high, is_ambiguous = (period // 2, period % 2 == 0) if dtype.kind in "iu" else (period / 2, True)
    low = -high
    wrapped = ops.np.add(ops.np.remainder(ops.np.subtract(steps, low), period), low)
    if is_ambiguous:
        at_low = ops.np.logical_and(ops.np.equal(wrapped, low), ops.np.greater(steps, 0))
        wrapped = ops.np.where(at_low, high, wrapped)
    correction = ops.np.where(ops.np.less(ops.np.absolute(steps), discont), 0, ops.np.subtract(wrapped, steps))
    shape = tuple([1 if i == axis else extent for i, extent in enumerate(p.shape)])
    first = ops.np.zeros_like(p, dtype=correction.dtype, shape=shape)
    total = ops.np.concatenate([first, ops.np.cumsum(correction, axis)], axis)
    return laid_out_like(ops.np.astype(ops.np.add(p, total), dtype, copy=False), p)
