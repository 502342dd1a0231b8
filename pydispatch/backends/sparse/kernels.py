"""Kernels of the library's operators for sparse arrays.

Raw arrays are passed to their library if it has the function. For tracked or transformed values, each operator is a
composite, under AutogradOther, of operators on the stored values. It therefore has derivatives of every order in both
modes, with respect to the stored values, and makes no dense array on the way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from pydispatch import library
from pydispatch._core import Tensor
from pydispatch.backends.sparse.densifying import announce
from pydispatch.backends.sparse.layouts import Layout, is_sparse, layout_of
from pydispatch.backends.sparse.operators import (
    batch_error,
    from_values,
    is_sparse_value,
    product,
    sample,
    to_dense,
    values,
)
from pydispatch.exceptions import DataDependentError, UnsupportedError
from pydispatch.func.concrete import concrete_value
from pydispatch.ops import ops

SPARSE, TRACKED = "SparseCPU", "AutogradOther"


def structure_of(a: Any, name: str) -> tuple[Any, Layout]:
    """Return the raw array under a value and its layout. Raise VmapError for a batch, as structures are constant."""
    raw = raw_array(a, name)
    return raw, layout_of(raw, f"np::{name}", "1")


def raw_array(a: Any, name: str) -> Any:
    """Return the array under all transforms. Raise VmapError for a batch."""
    try:
        return concrete_value(a)
    except DataDependentError as error:
        raise batch_error(f"np::{name}", a) from error


def with_zeros(name: str, x: Any) -> Any:
    """Make a sparse argument dense and return any other unchanged. Raise VmapError for a batch of sparse ones."""
    if not is_sparse_value(x):
        return x
    raw_array(x, name)
    return to_dense(x)


def impl(name: str, kernel: Callable[..., Any], composite: Callable[..., Any] | None = None) -> None:
    """Register a kernel for raw arrays and a composite for tracked ones. The composite is the kernel if not given."""
    library.impl(f"np::{name}", SPARSE, kernel)
    library.impl(f"np::{name}", TRACKED, composite or kernel, composite=True)


# --- operators that act on each stored value -------------------------------------------------------------------------

ZERO_AT_ZERO = (
    "absolute", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "conjugate", "copy", "deg2rad", "degrees",
    "expm1", "fabs", "floor", "imag", "log1p", "negative", "positive", "rad2deg", "radians", "real", "rint", "sign",
    "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "zeros_like", "astype", "detach",
)
NOT_ZERO_AT_ZERO = (
    "arccos", "arccosh", "cos", "cosh", "exp", "exp2", "isfinite", "log", "log10", "log2", "logical_not", "ones_like",
    "reciprocal",
)


def of_each_value(name: str) -> Callable[..., Any]:
    """Return the kernel of an operator that maps 0 to 0. It computes with the stored values only."""
    op = getattr(ops.np, name)

    def kernel(x: Any, *args: Any, **options: Any) -> Any:
        return from_values(raw_array(x, name), op(values(x), *args, **options))

    return kernel


def made_dense(name: str) -> Callable[..., Any]:
    """Return the kernel of an operator that does not map 0 to 0. Its result is dense."""
    op = getattr(ops.np, name)

    def kernel(x: Any, *args: Any, **options: Any) -> Any:
        dense = with_zeros(name, x)
        announce(name, tuple(x.shape))
        return op(dense, *args, **options)

    return kernel


for each in ZERO_AT_ZERO:
    impl(each, of_each_value(each))
for each in NOT_ZERO_AT_ZERO:
    impl(each, made_dense(each))


# --- two arguments ---------------------------------------------------------------------------------------------------


def is_number(x: Any) -> bool:
    """Return whether a value is a number, or an array without axes."""
    return not is_sparse_value(x) and np.ndim(x) == 0 if not hasattr(x, "ndim") else x.ndim == 0


def scaled(name: str, a: Any, other: Any, apply: Callable[[Any, Any], Any]) -> Any:
    """Apply a function to each stored value of `a` and to `other`, which is a number or a dense array."""
    raw, _ = structure_of(a, name)
    if is_number(other):
        return from_values(raw, apply(values(a), other))
    if np.broadcast_shapes(tuple(other.shape), raw.shape) != tuple(raw.shape):
        announce(name, tuple(raw.shape))
        return apply(with_zeros(name, a), other)
    return from_values(raw, apply(values(a), sample(raw, ops.np.broadcast_to(other, raw.shape))))


def multiply(x1: Any, x2: Any) -> Any:
    """Multiply elements. The result is sparse, because one argument is."""
    if is_sparse_value(x1) and is_sparse_value(x2):
        same_shape("multiply", x1, x2)
        return matched("multiply", x1, x2, ops.np.multiply, common=True)
    if is_sparse_value(x1):
        return scaled("multiply", x1, x2, ops.np.multiply)
    return scaled("multiply", x2, x1, lambda stored, other: ops.np.multiply(other, stored))


def divide(x1: Any, x2: Any) -> Any:
    """Divide elements. A sparse array divided by a number or a dense array is sparse."""
    if is_sparse_value(x2):
        dense = with_zeros("divide", x1), with_zeros("divide", x2)
        announce("divide", tuple(x2.shape))
        return ops.np.divide(*dense)
    return scaled("divide", x1, x2, ops.np.divide)


def power(x1: Any, x2: Any) -> Any:
    """Raise elements to a power. The result is sparse if the exponent is a positive number."""
    if is_sparse_value(x1) and isinstance(x2, (int, float)) and x2 > 0:
        return from_values(raw_array(x1, "power"), ops.np.power(values(x1), x2))
    dense = with_zeros("power", x1), with_zeros("power", x2)
    announce("power", tuple((x1 if is_sparse_value(x1) else x2).shape))
    return ops.np.power(*dense)


def summed(name: str) -> Callable[[Any, Any], Any]:
    """Return the kernel of `add` or `subtract`. The result of two sparse arrays is sparse, and otherwise dense."""
    op = getattr(ops.np, name)

    def kernel(x1: Any, x2: Any) -> Any:
        if is_sparse_value(x1) and is_sparse_value(x2):
            same_shape(name, x1, x2)
            return matched(name, x1, x2, op, common=False)
        dense = with_zeros(name, x1), with_zeros(name, x2)
        if is_number(x1) or is_number(x2):
            announce(name, tuple((x1 if is_sparse_value(x1) else x2).shape))
        return op(*dense)

    return kernel


def same_shape(name: str, x1: Any, x2: Any) -> None:
    """Raise ValueError if sparse arrays differ in shape."""
    if tuple(x1.shape) != tuple(x2.shape):
        raise ValueError(f"operator np::{name}: sparse arrays of shapes {tuple(x1.shape)} and {tuple(x2.shape)} do not "
                         "broadcast\nmake one of them dense: to_dense(array)")


def matched(name: str, x1: Any, x2: Any, op: Callable[[Any, Any], Any], *, common: bool) -> Any:
    """Apply `op` at the positions where both store a value (`common`), or where at least one does (not `common`)."""
    (first, layout), (second, other) = structure_of(x1, name), structure_of(x2, name)
    shape = tuple(first.shape)
    places = [np.ravel_multi_index(each.coordinates_of(raw), shape) for each, raw in ((layout, first), (other, second))]
    if any(len(np.unique(each)) < len(each) for each in places):
        raise UnsupportedError(f"operator np::{name}: a sparse array has several values at one position\n"
                               "add them: array.sum_duplicates()")
    kept = (np.intersect1d if common else np.union1d)(places[0], places[1])
    pattern = layout.of_coordinates(np.unravel_index(kept, shape), np.arange(1, len(kept) + 1), shape)
    order = np.asarray(layout.values_of(pattern)) - 1
    parts = [aligned(values(x), each, kept[order]) for x, each in zip((x1, x2), places, strict=True)]
    return from_values(pattern, op(*parts))


def aligned(stored: Any, places: np.ndarray, wanted: np.ndarray) -> Any:
    """Return the stored values at the wanted positions, 0 where no value is stored."""
    order = np.argsort(places)
    found = np.searchsorted(places, wanted, sorter=order)
    index = order[np.minimum(found, len(places) - 1)] if len(places) else np.zeros(len(wanted), int)
    is_there = (places[index] == wanted) if len(places) else np.zeros(len(wanted), bool)
    if is_there.all():
        return ops.np.take(stored, index)
    extended = ops.np.concatenate([stored, np.zeros(1, stored.dtype)])
    return ops.np.take(extended, np.where(is_there, index, len(places)))


impl("multiply", multiply)
impl("divide", divide)
impl("power", power)
impl("add", summed("add"))
impl("subtract", summed("subtract"))


# --- changing the structure ------------------------------------------------------------------------------------------


def rearranged(name: str, kernel: Callable[..., Any]) -> None:
    """Register an operator that moves or drops values. The kernel is the library's function."""

    def composite(a: Any, *args: Any) -> Any:
        raw, layout = structure_of(a, name)
        numbers = layout.with_values(raw, np.arange(1, len(layout.values_of(raw)) + 1))
        found = kernel(numbers, *args)
        if is_sparse(found):
            places = layout_of(found, f"np::{name}", "1").values_of(found)
            return from_values(found, ops.np.take(values(a), np.asarray(places) - 1))
        return ops.np.take(ops.np.concatenate([np.zeros(1, a.dtype), values(a)]), np.asarray(found))

    impl(name, kernel, composite)


rearranged("transpose", lambda a, axes=None: a.transpose() if axes is None else a.transpose(axes))
rearranged("swapaxes", lambda a, axis1, axis2: a.transpose(swapped(a.ndim, axis1, axis2)))
rearranged("reshape", lambda a, shape: a.reshape(shape))
rearranged("getitem", operator.getitem)


def swapped(ndim: int, axis1: int, axis2: int) -> tuple[int, ...]:
    """Return the order of axes with two of them exchanged."""
    order = list(range(ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return tuple(order)


# --- reductions and products -----------------------------------------------------------------------------------------


def sum_of(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Sum over axes. The result is dense."""
    raw, layout = structure_of(a, "sum")
    axes = tuple(range(raw.ndim)) if axis is None else tuple(np.atleast_1d(axis) % raw.ndim)
    kept = tuple([n for i, n in enumerate(raw.shape) if i not in axes])
    shape = tuple([1 if i in axes else n for i, n in enumerate(raw.shape)]) if keepdims else kept
    if not kept:
        return ops.np.reshape(ops.np.sum(values(a)), shape)
    coordinates = [each for i, each in enumerate(layout.coordinates_of(raw)) if i not in axes]
    rows = np.ravel_multi_index(coordinates, kept)
    adding = sparse.csr_array((np.ones(len(rows), np.int8), (rows, np.arange(len(rows)))),
                              shape=(int(np.prod(kept)), len(rows)))
    return ops.np.reshape(ops.np.matmul(adding.astype(a.dtype), values(a)), shape)


def mean_of(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Average over axes, including zeros."""
    raw_array(a, "mean")
    count = np.prod([a.shape[i] for i in (range(a.ndim) if axis is None else np.atleast_1d(axis))])
    return ops.np.divide(sum_of(a, axis, keepdims=keepdims), float(count))


def matmul(x1: Any, x2: Any) -> Any:
    """Multiply matrices. The result is sparse for two sparse arrays, and dense for a sparse and a dense one."""
    if is_sparse_value(x1) and is_sparse_value(x2):
        raw_array(x1, "matmul"), raw_array(x2, "matmul")
        return product(x1, x2)
    if is_sparse_value(x2):
        if x1.ndim == 1:
            return matmul(ops.np.transpose(x2), x1)
        return ops.np.transpose(matmul(ops.np.transpose(x2), ops.np.transpose(x1)))
    raw, layout = structure_of(x1, "matmul")
    if not isinstance(x1, Tensor):
        return ops.np.matmul(raw, x2)
    rows, columns = layout.coordinates_of(raw)
    adding = sparse.csr_array((np.ones(len(rows), np.int8), (rows, np.arange(len(rows)))),
                              shape=(raw.shape[0], len(rows))).astype(x1.dtype)
    stored = values(x1)
    terms = ops.np.take(x2, columns, 0)
    return ops.np.matmul(adding, ops.np.multiply(stored if x2.ndim == 1 else ops.np.expand_dims(stored, 1), terms))


impl("sum", sum_of)
impl("mean", mean_of)
impl("matmul", lambda x1, x2: x1 @ x2, matmul)
