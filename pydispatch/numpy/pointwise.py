"""Functions of each element, except for universal functions with one result."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import Tensor, is_array, is_unobserved
from pydispatch.numpy.declare import (
    FUNCTIONS,
    array_function,
    as_array,
    as_nonscalar,
    decided_by,
    declare_operator,
    into,
)
from pydispatch.numpy.universal import give_attributes
from pydispatch.operators.declare import HAS_NUMPY_2_5
from pydispatch.ops import ops
from pydispatch.registry.backends import check_sizes

for name in ("sinc", "i0"):
    declare_operator(name, 1, 1)


# --- universal functions with several results, or for dates -----------------------------------------------------------


def of_universal(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[list[Any], Any, list[Any]]:
    """The arguments as arrays in the dtype that the universal function computes in, the mask, and where to write.

    Elements that `where` leaves out are ones, at which no function is singular.
    """
    mask, dtype = options.pop("where", True), options.pop("dtype", None)
    casting = options.pop("casting", "same_kind")
    out = options.pop("out", None)
    if wrong := next((key for key in options if key not in ("order", "subok", "signature")), None):
        raise TypeError(f"{name}() got an unexpected keyword argument {wrong!r}")
    ufunc = getattr(np, name)
    values = [as_array(value) for value in arguments[:ufunc.nin]]
    written = arguments[ufunc.nin:] or out or (None,) * ufunc.nout
    samples = [np.empty(0, value.dtype) if hasattr(value, "dtype") else value for value in values]
    computed = ufunc(*samples, dtype=dtype, casting=casting)[0].dtype
    if not any(value.dtype.kind == "m" for value in values if is_array(value)):
        values = [value if is_array(value) and value.dtype == computed else
                  ops.np.astype(as_nonscalar(value), computed) for value in values]
    if mask is not True:
        mask = as_array(mask)
        values = [ops.np.where(mask, value, np.ones((), computed)) for value in values]
    return values, mask, list(written)


def written_where(mask: Any, results: tuple[Any, ...], targets: list[Any]) -> tuple[Any, ...]:
    """The results, written into `out` if that was passed, where the mask holds."""
    found = []
    for result, target in zip(results, [*targets, None, None], strict=False):
        if mask is not True and target is not None:
            result = ops.np.where(mask, result, target)
        found.append(into(target, result, repeats=True))
    return tuple(found)


@array_function()
def divmod(x1: Any, x2: Any, /, *out: Any, **options: Any) -> Any:
    """The quotients, rounded towards minus infinity, and the remainders."""
    (x1, x2), mask, targets = of_universal("divmod", (x1, x2, *out), options)
    return written_where(mask, (ops.np.floor_divide(x1, x2), ops.np.remainder(x1, x2)), targets)


@array_function()
def modf(x: Any, /, *out: Any, **options: Any) -> Any:
    """The fractional and the integral parts, with the sign of the element."""
    (x,), mask, targets = of_universal("modf", (x, *out), options)
    infinite = ops.np.isinf(x)
    finite = ops.np.where(infinite, ops.np.copysign(np.zeros((), x.dtype), x), x)
    return written_where(mask, (ops.np.fmod(finite, 1), ops.np.trunc(x)), targets)


@array_function()
def frexp(x: Any, /, *out: Any, **options: Any) -> Any:
    """The mantissas, between a half and one, and the exponents of two."""
    (x,), mask, targets = of_universal("frexp", (x, *out), options)
    return written_where(mask, (ops.np.frexp_mantissa(x), ops.np.frexp_exponent(x)), targets)


@array_function(constant=True)
def isnat(x: Any, /, out: Any = None, **options: Any) -> Any:
    """Is the element no date, or no duration? Of these, it alone does not equal itself."""
    if wrong := next((key for key in options if key not in ("order", "subok", "casting")), None):
        raise TypeError(f"isnat() got an unexpected keyword argument {wrong!r}")
    x = as_nonscalar(x)
    if x.dtype.kind not in "mM":
        raise TypeError("ufunc 'isnat' is only defined for np.datetime64 and np.timedelta64.")
    return into(out, ops.np.not_equal(x, x))


for name in ("divmod", "modf", "frexp", "isnat"):
    give_attributes(FUNCTIONS[name], getattr(np, name))


# --- predicates ------------------------------------------------------------------------------------------------------


def as_truth(value: Any) -> Any:
    """One truth value as a bool of Python's; an array while a transform, a trace or a mode is active."""
    if type(value) is Tensor and isinstance(value.array, np.ndarray) and is_unobserved():
        value = value.array
    return bool(value) if isinstance(value, (np.ndarray, np.generic)) else value


def is_infinite(name: str, x: Any, out: Any, *, negative: bool) -> Any:
    """Is the element infinite, with this sign?"""
    x = as_nonscalar(x)
    if x.dtype.kind == "c":
        raise TypeError(f"This operation is not supported for {x.dtype} values because it would be ambiguous.")
    if x.dtype.kind != "f":
        return into(out, ops.np.zeros_like(x, dtype=bool))
    limit = -math.inf if negative else math.inf
    return into(out, ops.np.equal(x, limit))


@array_function(constant=True)
def isposinf(x: Any, out: Any = None) -> Any:
    """Is the element plus infinity?"""
    return is_infinite("isposinf", x, out, negative=False)


@array_function(constant=True)
def isneginf(x: Any, out: Any = None) -> Any:
    """Is the element minus infinity?"""
    return is_infinite("isneginf", x, out, negative=True)


@array_function(constant=True)
def isreal(x: Any) -> Any:
    """Is the imaginary part 0?"""
    return ops.np.equal(ops.np.imag(as_nonscalar(x)), 0)


@array_function(constant=True)
def iscomplex(x: Any) -> Any:
    """Is the imaginary part not 0?"""
    return ops.np.not_equal(ops.np.imag(as_nonscalar(x)), 0)


def as_dtype(x: Any) -> np.dtype[Any]:
    """The dtype of the array that NumPy would make of a value."""
    dtype: np.dtype[Any] = as_nonscalar(x).dtype
    return dtype


@array_function(constant=True)
def isrealobj(x: Any) -> bool:
    """Is the dtype of the array real?"""
    return as_dtype(x).kind != "c"


@array_function(constant=True)
def iscomplexobj(x: Any) -> bool:
    """Is the dtype of the array complex?"""
    return as_dtype(x).kind == "c"


@array_function(constant=True)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Is the distance of the elements at most atol + rtol * |b|?"""
    a, b = as_nonscalar(a), as_nonscalar(b)
    if b.dtype.kind not in "mfc":
        b = ops.np.astype(b, np.result_type(b.dtype, 1.0))
    with np.errstate(invalid="ignore"):
        limit = ops.np.add(as_array(atol), ops.np.multiply(as_array(rtol), ops.np.absolute(b)))
        near = ops.np.less_equal(ops.np.absolute(ops.np.subtract(a, b)), limit)
        found = ops.np.logical_or(ops.np.logical_and(near, ops.np.isfinite(b)), ops.np.equal(a, b))
    if equal_nan:
        found = ops.np.logical_or(found, ops.np.logical_and(ops.np.isnan(a), ops.np.isnan(b)))
    return found


@array_function(constant=True)
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Are all elements close to each other? A bool; under transforms and modes, an array with it."""
    return as_truth(ops.np.all(isclose.on_tensors(a, b, rtol, atol, equal_nan)))  # type: ignore[attr-defined]


@array_function(constant=True)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Do the arrays have the same shape and elements? A bool; under transforms and modes, an array with it."""
    try:
        a1, a2 = as_nonscalar(a1), as_nonscalar(a2)
    except ValueError:      # a ragged list
        return False
    check_sizes("array_equal", a1, a2)
    if tuple(a1.shape) != tuple(a2.shape):
        return False
    same = ops.np.equal(a1, a2)
    if equal_nan and a1.dtype.kind in "fcmM" and a2.dtype.kind in "fcmM":
        same = ops.np.logical_or(same, ops.np.logical_and(ops.np.not_equal(a1, a1), ops.np.not_equal(a2, a2)))
    return as_truth(ops.np.all(same))


@array_function(constant=True)
def array_equiv(a1: Any, a2: Any) -> Any:
    """Do the arrays, broadcast to one shape, have the same elements? A bool; under transforms and modes, an array."""
    try:
        a1, a2 = as_nonscalar(a1), as_nonscalar(a2)
        np.broadcast_shapes(tuple(a1.shape), tuple(a2.shape))
    except ValueError:
        return False
    return as_truth(ops.np.all(ops.np.equal(a1, a2)))


# --- numbers ---------------------------------------------------------------------------------------------------------


@array_function()
def fix(x: Any, out: Any = None) -> Any:
    """The elements rounded towards zero."""
    if HAS_NUMPY_2_5:
        warnings.warn("numpy.fix is deprecated. Use numpy.trunc instead, which is faster and follows the Array API "
                      "standard.", DeprecationWarning, stacklevel=3)
    return into(out, ops.np.trunc(as_nonscalar(x)))


@array_function()
def around(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """The elements rounded to that many decimals, halves to the even neighbour."""
    return into(out, ops.np.round(as_nonscalar(a), decimals))


@array_function()
def angle(z: Any, deg: bool = False) -> Any:
    """The angles of complex numbers in the plane, in radians or degrees; for real numbers, 0 or half a turn."""
    z = as_nonscalar(z)
    found = ops.np.arctan2(ops.np.imag(z), ops.np.real(z)) if z.dtype.kind == "c" else ops.np.arctan2(0, z)
    return ops.np.multiply(found, 180 / math.pi) if deg else found


@array_function()
def real_if_close(a: Any, tol: float = 100) -> Any:
    """The real parts where all imaginary ones are nearly 0, else the complex numbers: the dtype depends on values."""
    a = as_nonscalar(a)
    if a.dtype.kind != "c":
        return a
    limit = np.finfo(a.dtype).eps * tol if tol > 1 else tol
    imaginary = ops.np.imag(a)
    is_close = decided_by(ops.np.all(ops.np.less(ops.np.absolute(imaginary), limit)),
                          "whether numpy.real_if_close returns real numbers", "use real(x), or leave x complex")
    return ops.np.real(a) if is_close else a


@array_function()
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Numbers in place of nan and infinities; without `copy`, written into the array."""
    target = x
    x = as_nonscalar(x)
    if x.dtype.kind not in "fc":
        return ops.np.copy(x) if copy or x is not target else x
    if x.dtype.kind == "c":
        found = ops.np.complex(*[numbers(part, nan, posinf, neginf) for part in (ops.np.real(x), ops.np.imag(x))])
    else:
        found = numbers(x, nan, posinf, neginf)
    if copy or x is not target:
        return found
    ops.np.setitem_(x, ..., found)
    return x


def numbers(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    """`nan_to_num` of real numbers. No gradient goes to elements that were replaced."""
    limits = np.finfo(x.dtype)
    high = limits.max if posinf is None else as_array(posinf)
    low = limits.min if neginf is None else as_array(neginf)
    other = ops.np.where(ops.np.isnan(x), as_array(nan), ops.np.where(ops.np.greater(x, 0), high, low))
    return ops.np.where(ops.np.isfinite(x), x, ops.np.astype(other, x.dtype))


@array_function()
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    """Angles plus multiples of the period, such that neighbours differ by at most half of it."""
    p = as_nonscalar(p)
    fixed = p if isinstance(period, Tensor) or isinstance(discont, Tensor) else ops.np.detach(p)
    axis = normalize_axis_index(axis, p.ndim)
    front = (slice(None),) * axis
    steps = ops.np.subtract(ops.np.getitem(fixed, (*front, slice(1, None))),
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
    return ops.np.astype(ops.np.add(p, total), dtype, copy=False)
