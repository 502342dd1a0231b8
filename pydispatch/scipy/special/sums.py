"""Sums of exponentials along axes: `logsumexp`, `softmax`, `log_softmax`."""

from __future__ import annotations

import math
from cmath import isfinite as is_finite_number  # raises no floating-point errors
from typing import Any

import numpy as np
from scipy import special

import pydispatch.numpy as pnp
from pydispatch._core import MetaArray, Reduction, is_of_numpy, logarithm_and_shares, restored
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.declare import operators
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.operators.pointwise import nonzero
from pydispatch.operators.reductions import reduced_axes, reduced_behind, reduced_shape
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE, SCIPY
from pydispatch.scipy.special.declare import check_real, is_complex

astype, exp, isfinite, isinf, log, log1p, most, maximum, multiply, total, where, zeros_like = operators(
    "astype", "exp", "isfinite", "isinf", "log", "log1p", "max", "maximum", "multiply", "sum", "where", "zeros_like")
ALL, MAX, SUM = Reduction(np.logical_and), Reduction(np.maximum), Reduction(np.add)

# --- kernels ---------------------------------------------------------------------------------------------------------


def logsumexp_kernel(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Compute SciPy's logsumexp, with fewer calls for real numbers."""
    if axis is None and not keepdims:
        found = logarithm_and_shares(a)
        if found is not None:
            return found[0][()]
    a = as_real_floating(a)
    if a.dtype.kind != "f" or not a.size or not a.ndim:
        return special.logsumexp(a, axis, None, keepdims)
    logarithms, _, _ = logarithms_and_terms(a, axis)
    return logarithms if keepdims else without_axes(logarithms, a.shape, axis)[()]


def with_shares_kernel(a: Any, axis: Any = None, *, keepdims: bool = False) -> tuple[Any, Any]:
    """Return the logarithms of sums, and each element's share of its sum."""
    found = logarithm_and_shares(a) if axis is None and not keepdims else None
    if found is None:
        a = as_real_floating(a)
        if a.dtype.kind != "f" or not a.size or not a.ndim:
            logarithms = special.logsumexp(a, axis, None, keepdims)
            return logarithms, np.asarray(shares(a, axis, logarithms))
        logarithms, terms, sums = logarithms_and_terms(a, axis)
        found = logarithms if keepdims else without_axes(logarithms, a.shape, axis), terms / sums
    return found


def as_real_floating(a: Any) -> np.ndarray:
    """Convert an array of whole numbers to floating-point numbers."""
    a = np.asarray(a)
    return a.astype(float) if a.dtype.kind in "biu" else a


def without_axes(reduced: Any, shape: tuple[int, ...], axis: Any) -> Any:
    """Remove the reduced axes of an array of this shape from its reduction."""
    return reduced.reshape(reduced_shape(shape, reduced_axes(axis, len(shape)), False))


def logarithms_and_terms(a: np.ndarray, axis: Any) -> tuple[Any, Any, Any]:
    """Compute `logarithms_and_terms_by_operators` in fewer calls if all values are finite."""
    largest = MAX(a, axis, keepdims=True)
    if not ALL(np.isfinite(largest)):
        return logarithms_and_terms_by_operators(a, axis)
    terms = np.exp(a - largest)
    are_largest = a == largest
    n = SUM(are_largest.astype(a.dtype), axis, keepdims=True)
    rest = SUM(np.where(are_largest, 0.0, terms), axis, keepdims=True)
    return np.log1p(rest / n) + np.log(n) + largest, terms, rest + n


def weighted_kernel(a: Any, b: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the logarithm of the weighted sum of exponentials."""
    return special.logsumexp(a, axis, b, keepdims)


def signed_kernel(a: Any, axis: Any = None, b: Any = None, *, keepdims: bool = False) -> Any:
    """Return the logarithm of the absolute value of the weighted sum of exponentials, and the sign of that sum."""
    return tuple(special.logsumexp(a, axis, b, keepdims, return_sign=True))


def softmax_kernel(x: Any, axis: Any = None) -> Any:
    x = np.asarray(x)
    powers = np.exp(x - x.max(axis, keepdims=True))
    powers /= powers.sum(axis, keepdims=True)
    return powers


def log_softmax_kernel(x: Any, axis: Any = None) -> Any:
    x = np.asarray(x)
    largest = x.max(axis, keepdims=True)
    check = largest.sum()
    if not is_finite_number(check):
        largest = np.where(np.isfinite(largest), largest, 0)
    shifted = x - largest
    sums = np.exp(shifted).sum(axis, keepdims=True)
    if sums.min(initial=1) > 0:
        return shifted - np.log(sums)
    with np.errstate(divide="ignore"):
        return shifted - np.log(sums)


# --- kernels as steps of a plan --------------------------------------------------------------------------------------


def logarithms_and_terms_by_operators(a: Any, axis: Any) -> tuple[Any, Any, Any]:
    """Return the logarithms as SciPy computes them, the terms, scaled to a largest one of 1, and the sums of the
    terms.

    The largest terms are counted, because they can be nearly all of a sum. If they are infinite, the others vanish.
    """
    largest = most(a, axis, keepdims=True)
    endless, are_largest = isinf(largest), a == largest
    n = maximum(total(are_largest, axis, dtype=largest.dtype, keepdims=True), 1.0)      # 0 elements if there are nans
    terms = exp(where(endless, -math.inf, a) - where(endless, 0.0, largest))
    rest = total(where(are_largest, 0.0, terms), axis, keepdims=True)
    return log1p(rest / n) + log(n) + largest, where(are_largest & (largest == math.inf), 1.0, terms), rest + n


def logsumexp_by_operators(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    return with_shares_by_operators(a, axis, keepdims=keepdims)[0]


def with_shares_by_operators(a: Any, axis: Any = None, *, keepdims: bool = False) -> tuple[Any, Any]:
    if is_complex(a) or not a.ndim or not a.size:
        raise NotImplementedError("complex numbers, and arrays without axes or elements, are not supported")
    if a.dtype.kind != "f":
        a = astype(a, np.dtype(float))
    logarithms, terms, sums = logarithms_and_terms_by_operators(a, axis)
    return logarithms if keepdims else without_axes(logarithms, a.shape, axis), terms / sums


def softmax_by_operators(x: Any, axis: Any = None) -> Any:
    powers = exp(x - most(x, axis, keepdims=True))
    return powers / total(powers, axis, keepdims=True)


def log_softmax_by_operators(x: Any, axis: Any = None) -> Any:
    largest = most(x, axis, keepdims=True)
    shifted = x - where(isfinite(largest), largest, zeros_like(largest))
    sums = total(exp(shifted), axis, keepdims=True)
    return shifted - where(sums == 0, -math.inf, log(nonzero(sums)))


# --- without data ----------------------------------------------------------------------------------------------------


def reduced_meta(a, axis=None, b=None, *, keepdims=False):
    """Return a meta array like the logarithms of sums. Weights have the shape of `a`."""
    dtype = special.logsumexp(np.ones(1, dtype_of(a)), b=None if b is None else np.ones(1, dtype_of(b))).dtype
    shape = shape_of(a)
    return MetaArray(reduced_shape(shape, reduced_axes(axis, len(shape)), keepdims), dtype)


def with_shares_meta(a: Any, axis: Any = None, *, keepdims: bool = False) -> tuple[MetaArray, MetaArray]:
    logarithms = reduced_meta(a, axis, keepdims=keepdims)
    return logarithms, MetaArray(shape_of(a), logarithms.dtype)


def weighted_meta(a: Any, b: Any, axis: Any = None, *, keepdims: bool = False) -> MetaArray:
    return reduced_meta(a, axis, b, keepdims=keepdims)


def signed_meta(a: Any, axis: Any = None, b: Any = None, *, keepdims: bool = False) -> tuple[MetaArray, MetaArray]:
    logarithms = reduced_meta(a, axis, b, keepdims=keepdims)
    # for complex numbers, the logarithm of the absolute value is real
    return MetaArray(logarithms.shape, np.empty(0, logarithms.dtype).real.dtype), logarithms


def same_meta(x: Any, axis: Any = None) -> MetaArray:
    shape = shape_of(x)
    reduced_axes(axis, len(shape))
    return MetaArray(shape, np.exp(np.empty(0, dtype_of(x))).dtype)


# --- derivatives -----------------------------------------------------------------------------------------------------


def shares(a: Any, axis: Any, result: Any) -> Any:
    """Return exp(a - result), each element's share of the sum, also of a sum that is 0 or infinite."""
    result = restored(result, a.shape, axis)
    if is_of_numpy(result) and is_of_numpy(a):
        check = result.sum()
        if is_finite_number(check):
            return np.exp(a - result)
    if is_complex(a):
        return exp(a - result)
    endless = isinf(result)
    tie = endless & (a == result) & (a > 0)
    powers = exp(where(endless, -math.inf, a) - where(endless, 0.0, result))
    return where(tie, 1 / nonzero(total(tie, axis, keepdims=True)), powers)


def weighted(a: Any, axis: Any, b: Any, result: Any) -> Any:
    """Return the shares of weighted terms. An element without weight has none, even if it is infinite."""
    if b is None:
        return shares(a, axis, result)
    return b * shares(where(b == 0, 0.0, a), axis, result)


def signed_shares(a: Any, axis: Any, b: Any, result: Any) -> Any:
    check_real("logsumexp_signed", a)
    logarithms, signs = result
    return weighted(a, axis, b, logarithms) * restored(signs, a.shape, axis)


def logsumexp_with_shares(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the logarithms by the operator that also returns the shares, of which the gradients are multiples."""
    return (WITH_SHARES(a, axis, keepdims=True) if keepdims else WITH_SHARES(a, axis))[0]


def with_shares_vjp(g: Any, a_shape: Any, axis: Any, result: Any) -> Any:
    of_logarithms, of_shares = g
    if of_shares is None:
        return multiply(restored(of_logarithms, a_shape, axis), result[1])
    found = softmax_vjp(of_shares, axis, result[1])
    return found if of_logarithms is None else found + restored(of_logarithms, a_shape, axis) * result[1]


def with_shares_jvp(t: Any, axis: Any, keepdims: bool, result: Any) -> tuple[Any, Any]:
    return total(t * result[1], axis, keepdims=keepdims), softmax_vjp(t, axis, result[1])


def softmax_vjp(g: Any, axis: Any, result: Any) -> Any:
    """Return the gradient of softmax. The map is symmetric, so tangents use it too."""
    moved = g * result
    sums = moved.sum(axis, keepdims=True) if is_of_numpy(moved) else total(moved, axis, keepdims=True)
    return moved - result * sums


def log_softmax_vjp(g: Any, axis: Any, result: Any) -> Any:
    return g - exp(result) * (g.sum(axis, keepdims=True) if is_of_numpy(g) else total(g, axis, keepdims=True))


def zero_if_none(g: Any, result: Any) -> Any:
    return result[0] * 0.0 if g is None else g


def with_constant_sign(tangent: Any) -> tuple[Any, Any]:
    return tangent, tangent * 0.0


ARGUMENTS = "Tensor a, int[1]? axis=None, Tensor? b=None, *, bool keepdims=False"
WITHOUT_WEIGHTS = "Tensor a, int[1]? axis=None, *, bool keepdims=False"
WITH_SHARES, = SCIPY.operators("special_logsumexp_with_shares")

SCIPY.declare("special_logsumexp", WITHOUT_WEIGHTS, logsumexp_kernel, reduced_meta, tags=("reduction",),
              vmap={"axis": reduced_behind}, differentiated_as=logsumexp_with_shares, planned_as=logsumexp_by_operators)
SCIPY.declare("special_logsumexp_with_shares", WITHOUT_WEIGHTS, with_shares_kernel, with_shares_meta,
              returns="(Tensor, Tensor)", tags=("reduction",), vmap={"axis": reduced_behind}, vjp=with_shares_vjp,
              jvp=with_shares_jvp, planned_as=with_shares_by_operators)
SCIPY.declare("special_logsumexp_weighted", "Tensor a, Tensor b, int[1]? axis=None, *, bool keepdims=False",
              weighted_kernel, weighted_meta, tags=("reduction",), vmap={"axis": reduced_behind}, vjp=(
                  lambda g, a, b, axis, result: restored(g, a.shape, axis) * weighted(a, axis, b, result),
                  lambda g, a, axis, result: restored(g, a.shape, axis) * shares(a, axis, result)), jvp=(
                  lambda t, a, axis, b, keepdims, result: total(
                      t * weighted(a, axis, b, result), axis, keepdims=keepdims),
                  lambda t, a, axis, keepdims, result: total(t * shares(a, axis, result), axis, keepdims=keepdims)))
SCIPY.declare("special_logsumexp_signed", ARGUMENTS, signed_kernel, signed_meta,
              returns="(Tensor, Tensor)", tags=("reduction",), vmap={"axis": reduced_behind}, vjp=(
                  lambda g, a, axis, b, result: restored(zero_if_none(g[0], result), a.shape, axis)
                  * signed_shares(a, axis, b, result),
                  lambda g, a, axis, result: restored(zero_if_none(g[0], result), a.shape, axis)
                  * signed_shares(a, axis, None, result)), jvp=(
                  lambda t, a, axis, b, keepdims, result: with_constant_sign(
                      total(t * signed_shares(a, axis, b, result), axis, keepdims=keepdims)),
                  lambda t, a, axis, keepdims, result: with_constant_sign(
                      total(t * signed_shares(a, axis, None, result), axis, keepdims=keepdims))))
SCIPY.declare("special_softmax", "Tensor x, int[1]? axis=None", softmax_kernel, same_meta, tags=("reduction",),
              vmap={"axis": reduced_behind}, vjp=softmax_vjp, jvp=softmax_vjp, planned_as=softmax_by_operators)
SCIPY.declare("special_log_softmax", "Tensor x, int[1]? axis=None", log_softmax_kernel, same_meta, tags=("reduction",),
              vmap={"axis": reduced_behind}, vjp=log_softmax_vjp,
              jvp=lambda t, axis, result: t - total(exp(result) * t, axis, keepdims=True),
              planned_as=log_softmax_by_operators)

# --- functions -------------------------------------------------------------------------------------------------------


@FACE.array_function("special", operator=(1, 2, ("axis", "keepdims")))
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """Return the logarithm of the sum of exponentials along axes, with weights `b`, and on request the sum's sign."""
    a = as_nonscalar(a)
    if b is not None:
        a, b = pnp.broadcast_arrays(a, as_nonscalar(b))
    if return_sign:
        return ops.scipy.special_logsumexp_signed(a, axis, b, keepdims=keepdims)
    if b is not None:
        return ops.scipy.special_logsumexp_weighted(a, b, axis, keepdims=keepdims)
    return ops.scipy.special_logsumexp(a, axis, keepdims=keepdims)


FACE.declare_operator("special.softmax", 1, 2, ("axis",))
FACE.declare_operator("special.log_softmax", 1, 2, ("axis",))
