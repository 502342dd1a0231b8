"""NumPy's masked arrays, with the functions of `numpy.ma`: results computed from masked elements are masked.

Universal functions that `numpy.ma` lacks are NumPy's own, which keep masks. Functions that only move elements also
move the masks. Reductions leave masked elements out. They are differentiated as reductions of filled arrays: a sum as
the sum with zeros for masked elements. The gradient of a masked array has its mask.
"""

from __future__ import annotations

from functools import wraps

import numpy as np
from numpy import ma

from pydispatch import library
from pydispatch._loading import only_public
from pydispatch._registry.backends import register_backend
from pydispatch.operators.declare import Pack
from pydispatch.ops import ops

__all__ = ["filled", "mask", "with_mask"]
__dir__ = only_public(globals())

MASKED = Pack("masked")
filled, mask, with_mask = MASKED.operators("filled", "mask", "with_mask")


# --- the namespace ---------------------------------------------------------------------------------------------------


def moving(name):
    """Return a NumPy function that moves elements, applied to both data and mask."""
    function = getattr(np, name)

    def moved(a, *args, **options):
        data = function(ma.getdata(a), *args, **options)
        return ma.masked_array(data, function(ma.getmaskarray(a), *args, **options))

    return wraps(function)(moved)


def matmul(x1, x2):
    """Multiply with zeros for masked elements. Mask elements of the result to which no unmasked pair contributes."""
    there = np.matmul(~ma.getmaskarray(x1), ~ma.getmaskarray(x2))
    return ma.masked_array(np.matmul(ma.filled(x1, 0), ma.filled(x2, 0)), ~there)


def argsort(a, axis=-1, kind=None, *, stable=None):
    """Return the indices that sort the array. `numpy.ma` has no `stable`, so it is passed as a kind."""
    return ma.argsort(a, axis, "stable" if stable else kind)


class MaskedFunctions:
    """The functions of `numpy.ma`, and the functions of NumPy that keep masks."""

    __name__ = "numpy.ma"

    def __init__(self):
        self.argsort, self.matmul = argsort, matmul
        for name in ("broadcast_to", "moveaxis", "flip", "roll", "tile", "rot90"):
            setattr(self, name, moving(name))

    def __getattr__(self, name):
        numpys = getattr(np, name, None)
        if hasattr(ma, name):
            return getattr(ma, name)
        if isinstance(numpys, np.ufunc):
            return numpys
        raise AttributeError(f"numpy.ma has no {name}")


# --- operators between masked and ordinary arrays --------------------------------------------------------------------


def _with_mask(data, mask):
    return ma.masked_array(data, np.array(mask)) if np.ndim(data) or mask else np.array(data)


def _no_meta(*args):
    raise NotImplementedError("an array without data has no mask")


def _batch(op, info, in_dims, *args):
    arrays = [arg if dim is None or dim == 0 else ops.np.moveaxis(arg, dim, 0)
              for arg, dim in zip(args, in_dims, strict=True)]
    if op is with_mask.default:
        n = len(arrays[0].shape) if in_dims[0] is not None else len(arrays[0].shape) + 1
        size = next(array.shape[0] for array, dim in zip(arrays, in_dims, strict=True) if dim is not None)
        arrays = [ops.np.broadcast_to(array, (size, *array.shape)) if dim is None and len(array.shape) < n else array
                  for array, dim in zip(arrays, in_dims, strict=True)]
    return op(*arrays), 0


DECLARED = (
    ("filled", "Tensor a, Scalar value", lambda a, value: np.array(ma.filled(a, value)),
     {"vjp": lambda g, a: with_mask(g, mask(a)),
      "jvp": lambda t, a: ops.np.where(mask(a), 0.0, filled(t, 0))}),      # a tangent may lack the mask of its array
    ("mask", "Tensor a", lambda a: np.array(ma.getmaskarray(a)), {"differentiable": False}),
    ("with_mask", "Tensor data, Tensor mask", _with_mask,
     {"vjp": (lambda g: filled(g, 0), None), "jvp": (lambda t, mask: with_mask(t, mask), None)}),
)
for name, arguments, kernel, parts in DECLARED:
    MASKED.declare(name, arguments, kernel, _no_meta, vmap=_batch, **parts)
MASKED.install()


# --- composites, for derivatives --------------------------------------------------------------------------------------


def reduced(name, value):
    """Return a reduction that replaces masked elements by this value. Results of masked elements only are masked."""
    def composite(a, axis=None, dtype=None, *, keepdims=False):
        found = getattr(ops.np, name)(filled(a, value), axis, dtype, keepdims=keepdims)
        return with_mask(found, ops.np.all(mask(a), axis, keepdims=keepdims))
    return composite


def extreme(name, infinity):
    """Return the maximum or minimum of unmasked elements. Results of masked elements only are masked."""
    def composite(a, axis=None, *, keepdims=False):
        found = getattr(ops.np, name)(filled(a, as_limit(infinity, a.dtype)), axis, keepdims=keepdims)
        return with_mask(found, ops.np.all(mask(a), axis, keepdims=keepdims))
    return composite


def as_limit(infinity, dtype):
    """Return the number of a dtype that is nearest to this infinity."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.max if infinity > 0 else limits.min
    return infinity > 0 if dtype.kind == "b" else infinity


def accumulated(name, value):
    """Return a cumulative operator that skips masked elements."""
    def composite(a, axis=None, *args):
        found = getattr(ops.np, name)(filled(a, value), axis, *args)
        return with_mask(found, mask(a) if axis is not None else ops.np.reshape(mask(a), (-1,)))
    return composite


def counted(a, axis, keepdims):
    """Count the unmasked elements, as floating-point numbers."""
    return ops.np.sum(ops.np.logical_not(mask(a)), axis, float, keepdims=keepdims)


def mean(a, axis=None, dtype=None, *, keepdims=False):
    """Return the mean of the unmasked elements."""
    n = counted(a, axis, keepdims)
    total = ops.np.sum(filled(a, 0), axis, dtype, keepdims=keepdims)
    return with_mask(total / ops.np.maximum(n, 1.0), ops.np.equal(n, 0.0))


def var(a, axis=None, dtype=None, *, ddof=0, keepdims=False):
    """Return the variance of the unmasked elements."""
    n = counted(a, axis, keepdims) - ddof
    distance = filled(a, 0) - filled(mean(a, axis, dtype, keepdims=True), 0)
    squares = ops.np.where(mask(a), 0.0, ops.np.square(ops.np.absolute(distance)))
    total = ops.np.sum(squares, axis, dtype, keepdims=keepdims)
    return with_mask(total / ops.np.where(ops.np.less_equal(n, 0.0), 1.0, n), ops.np.less_equal(n, 0.0))


def std(a, axis=None, dtype=None, *, ddof=0, keepdims=False):
    """Return the standard deviation of the unmasked elements."""
    return ops.np.sqrt(var(a, axis, dtype, ddof=ddof, keepdims=keepdims))


def covariance(a, divisor):
    """Return the mean products of each pair of rows, less their means, over the elements that both have."""
    there = ops.np.astype(ops.np.logical_not(mask(a)), float)
    apart = filled(a - mean(a, -1, keepdims=True), 0)
    n = divisor - (a.shape[-1] - ops.np.matmul(there, ops.np.swapaxes(there, -1, -2)))
    products = ops.np.matmul(apart, ops.np.conjugate(ops.np.swapaxes(apart, -1, -2)))
    return with_mask(products / ops.np.where(ops.np.less_equal(n, 0.0), 1.0, n), ops.np.less_equal(n, 0.0))


def matmul_of_filled(x1, x2):
    """Multiply with zeros for masked elements."""
    there = ops.np.matmul(ops.np.logical_not(mask(x1)), ops.np.logical_not(mask(x2)))
    return with_mask(ops.np.matmul(filled(x1, 0), filled(x2, 0)), ops.np.logical_not(there))


COMPOSITES = {
    "sum": reduced("sum", 0), "prod": reduced("prod", 1), "max": extreme("max", -np.inf),
    "min": extreme("min", np.inf), "cumsum": accumulated("cumsum", 0), "cumprod": accumulated("cumprod", 1),
    "mean": mean, "var": var, "std": std, "covariance": covariance, "matmul": matmul_of_filled,
}
"""The composites that operators run for Tensors, so that derivatives leave masked elements out."""
register_backend("Masked", ma.MaskedArray, namespace=MaskedFunctions())
for name, function in COMPOSITES.items():
    library.impl(f"np::{name}", "AutogradMasked", function, composite=True)
library.impl("np::covariance", "Masked", covariance)
for name, _arguments, kernel, _entry in DECLARED:
    library.impl(f"masked::{name}", "Masked", kernel)
