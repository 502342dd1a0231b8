"""Pointwise operators: every element of the result depends on one element of each argument."""

from __future__ import annotations

import numpy as np

from pydispatch.backends.meta import MetaArray, broadcast, sample, shape_of
from pydispatch.operators.declare import LAYOUT, array_method, copying, declare, exact

UFUNC_OPTIONS = ', *, ScalarType? dtype=None, str casting="same_kind"'
UFUNC_LEFT_OUT = {
    "where": "the elements left out would hold garbage; use ops.np.where(mask, result, other)",
    "signature": "use dtype=",
    **LAYOUT,
}


def pointwise(kernel, arguments=None, *, name=None, out=None, in_place=True, fills_out=True, left_out=UFUNC_LEFT_OUT,
              tags=(), **entry):
    """Declare a pointwise operator; of a ufunc the arguments are known."""
    name = name or kernel.__name__
    arguments = arguments or ("Tensor x", "Tensor x1, Tensor x2")[kernel.nin - 1] + UFUNC_OPTIONS
    out = out or kernel
    declare(name, arguments, kernel, pointwise_meta(out), out=out, in_place=in_place, fills_out=fills_out,
            left_out=left_out, tags=("pointwise", *tags), broadcasts=True, **entry)


def predicate(kernel, **entry):
    """Declare a pointwise operator that says bool of each element; it has no in-place variant."""
    pointwise(kernel, in_place=False, tags=("predicate",), **entry)


def pointwise_meta(kernel):
    """The rule: the dtype by the kernel on samples, the shape by broadcasting."""
    def meta(*args, out=None, **options):
        samples = {name: sample(value) for name, value in options.items()}
        result = kernel(*map(sample, args), **samples)
        if out is not None:
            kernel(*map(sample, args), **samples, out=np.empty(result.shape, out.dtype))
        return MetaArray(broadcast(map(shape_of, (*args, *options.values()))), result.dtype)
    return meta


# arithmetic

pointwise(np.add)
pointwise(np.subtract)
pointwise(np.multiply)
pointwise(np.divide)
pointwise(np.floor_divide)
pointwise(np.remainder)
pointwise(np.power)
pointwise(np.negative)
pointwise(np.positive)
pointwise(np.absolute)
pointwise(np.sign)
pointwise(np.square)
pointwise(np.reciprocal)
pointwise(np.conjugate)
pointwise(np.maximum)
pointwise(np.minimum)
pointwise(np.fmax)
pointwise(np.fmin)
pointwise(np.copysign)

# powers, exponentials, logarithms

pointwise(np.sqrt)
pointwise(np.exp)
pointwise(np.exp2)
pointwise(np.expm1)
pointwise(np.log)
pointwise(np.log2)
pointwise(np.log10)
pointwise(np.log1p)
pointwise(np.logaddexp)
pointwise(np.hypot)

# trigonometry

pointwise(np.sin)
pointwise(np.cos)
pointwise(np.tan)
pointwise(np.arcsin)
pointwise(np.arccos)
pointwise(np.arctan)
pointwise(np.arctan2)
pointwise(np.sinh)
pointwise(np.cosh)
pointwise(np.tanh)
pointwise(np.arcsinh)
pointwise(np.arccosh)
pointwise(np.arctanh)

# rounding and limits


def clip(a, a_min=None, a_max=None, *, min=None, max=None, **options):
    """The elements of `a` within the limits; the limits have two names each, as in NumPy, and may be missing."""
    if min is not None or max is not None:
        if a_min is not None or a_max is not None:
            raise ValueError("clip: limits are given both as a_min, a_max and as min, max\npass one of the two pairs")
        a_min, a_max = min, max
    return np.clip(a, a_min, a_max, **options)


pointwise(np.floor)
pointwise(np.ceil)
pointwise(np.trunc)
pointwise(np.rint)
ROUND = array_method("round")
pointwise(ROUND, "Tensor a, int decimals=0", out=exact("round", ROUND, lambda shape, *rest: shape), fills_out=False,
          left_out={})
pointwise(clip, f"Tensor a, Tensor? a_min=None, Tensor? a_max=None{UFUNC_OPTIONS}, Tensor? min=None, Tensor? max=None")

# comparison and predicates

predicate(np.equal)
predicate(np.not_equal)
predicate(np.less)
predicate(np.less_equal)
predicate(np.greater)
predicate(np.greater_equal)
predicate(np.isnan)
predicate(np.isinf)
predicate(np.isfinite)
predicate(np.signbit)

# logic and bits

pointwise(np.logical_and)
pointwise(np.logical_or)
pointwise(np.logical_xor)
pointwise(np.logical_not)
pointwise(np.bitwise_and)
pointwise(np.bitwise_or)
pointwise(np.bitwise_xor)
pointwise(np.invert)
pointwise(np.left_shift)
pointwise(np.right_shift)

# choice

pointwise(np.where, "Tensor condition, Tensor x, Tensor y", out=copying("where", np.where),
          in_place=False, fills_out=False, left_out={})
