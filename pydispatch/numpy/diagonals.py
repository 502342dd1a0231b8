"""Functions of diagonals and triangles, and grids of indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch._core import is_array
from pydispatch.numpy.creation import made, made_of
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_nonscalar,
    in_order,
    into,
    is_number,
    known_values,
    read_off,
)
from pydispatch.ops import ops

# triangles


@array_function(creates=True)
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float, *, like: Any = None) -> Any:
    """Return ones at and below a diagonal, and zeros above."""
    columns = ops.np.arange(N if M is None else M)
    last = ops.np.expand_dims(ops.np.add(ops.np.arange(N), k), 1)
    return made(ops.np.astype(ops.np.less_equal(columns, last), dtype), like)


def below(shape: tuple[int, ...], k: int) -> Any:
    """Return the mask of the elements at and below a diagonal."""
    rows, columns = (shape[-2:] * 2)[:2]        # a vector is taken as the row of a square matrix
    return np.tri(rows, columns, k, dtype=np.bool)


@array_function()
def tril(m: Any, k: int = 0) -> Any:
    """Return the elements at and below a diagonal, with zeros above."""
    m = as_nonscalar(m)
    return ops.np.where(below(m.shape, k), m, np.zeros((), m.dtype))


@array_function()
def triu(m: Any, k: int = 0) -> Any:
    """Return the elements at and above a diagonal, with zeros below."""
    m = as_nonscalar(m)
    return ops.np.where(below(m.shape, k - 1), np.zeros((), m.dtype), m)


# diagonals


@array_function()
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return a diagonal of the matrices in two axes, along a new last axis, as a read-only view."""
    return ops.np.read_only(ops.np.diagonal(as_nonscalar(a), offset, axis1, axis2))


@array_function()
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """Sum the elements of a diagonal."""
    return into(out, ops.np.sum(ops.np.diagonal(as_nonscalar(a), offset, axis1, axis2), -1, dtype=dtype), "unsafe")


@array_function()
def diag(v: Any, k: int = 0) -> Any:
    """Return the matrix with a vector on its diagonal, or the diagonal of a matrix as a read-only view."""
    v = as_nonscalar(v)
    if len(v.shape) == 1:
        n = v.shape[0] + abs(k)
        steps = np.arange(v.shape[0])
        return ops.np.index_put(ops.np.zeros_like(v, shape=(n, n)), (steps + max(-k, 0), steps + max(k, 0)), v)
    if len(v.shape) == 2:
        return diagonal(v, k)
    raise ValueError("Input must be 1- or 2-d.")


@array_function()
def diagflat(v: Any, k: int = 0) -> Any:
    """Return the matrix with the elements on its diagonal."""
    return diag(ops.np.ravel(as_nonscalar(v)), k)


@array_function()
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return the matrix of the powers of a vector's elements."""
    x = as_nonscalar(x)
    if len(x.shape) != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    exponents = np.arange(x.shape[0] if N is None else N)
    powers = ops.np.power(ops.np.reshape(x, (-1, 1)), exponents if increasing else exponents[::-1])
    dtype = np.promote_types(x.dtype, int)
    return powers if powers.dtype == dtype else ops.np.astype(powers, dtype)


# positions, which have no gradient


@array_function(constant=True)
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    """Return the indices of the elements at and below a diagonal of a matrix like this."""
    if len(arr.shape) != 2:
        raise ValueError("input array must be 2-d")
    return made_of(np.tril_indices(arr.shape[0], k, arr.shape[1]), [arr])


@array_function(constant=True)
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    """Return the indices of the elements at and above a diagonal of a matrix like this."""
    if len(arr.shape) != 2:
        raise ValueError("input array must be 2-d")
    return made_of(np.triu_indices(arr.shape[0], k, arr.shape[1]), [arr])


@array_function(constant=True)
def diag_indices_from(arr: Any) -> Any:
    """Return the indices of the main diagonal of an array of this shape."""
    if len(arr.shape) < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(arr.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    return made_of(np.diag_indices(arr.shape[0], len(arr.shape)), [arr])


# grids


@array_function(creates=True)
def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """Return the indices of the elements of an array of this shape, for each axis."""
    shape = tuple(dimensions)
    axes = [ops.np.reshape(ops.np.arange(n, dtype=dtype), (*(1,) * i, n, *(1,) * (len(shape) - 1 - i)))
            for i, n in enumerate(shape)]
    if sparse:
        return tuple(axes)
    if not axes:
        return ops.np.empty((0,), dtype=dtype)
    return ops.np.stack([ops.np.broadcast_to(axis, shape) for axis in axes])


@array_function(creates=True)
def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None,
                 **kwargs: Any) -> Any:
    """Call a function with the indices of all elements of an array of this shape."""
    return made(function(*indices(shape, dtype=dtype), **kwargs), like)


@array_function()
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Return the coordinates of the points of a grid, from the coordinates along its axes."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    arrays = [as_nonscalar(x) for x in xi]
    parts = [ops.np.reshape(x, (*(1,) * i, -1, *(1,) * (n - 1 - i))) for i, x in enumerate(arrays)]
    if indexing == "xy" and n > 1:
        parts = [ops.np.swapaxes(part, 0, 1) for part in parts]
    if not sparse:
        shape = np.broadcast_shapes(*[part.shape for part in parts])
        parts = [part if tuple(part.shape) == shape else ops.np.broadcast_to(part, shape) for part in parts]
    return made_of([in_order(part, "C", copy=True) for part in parts] if copy else parts, arrays)


@array_function()
def ix_(*args: Any) -> Any:
    """Reshape vectors of indices so that together they select a grid."""
    parts = []
    for i, item in enumerate(args):
        indices = as_nonscalar(item)
        if len(indices.shape) != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if indices.dtype.kind == "b":
            indices = np.flatnonzero(read_off(indices))
        elif indices.shape[0] == 0 and not is_array(item):
            indices = ops.np.astype(indices, np.intp)
        parts.append(ops.np.reshape(indices, (*(1,) * i, -1, *(1,) * (len(args) - 1 - i))))
    return made_of(parts, args)


@array_function(creates=True)
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Return `num` numbers at equal ratios from `start` to `stop`."""
    are_numbers = is_number(start) and is_number(stop)
    start, stop = as_nonscalar(start), as_nonscalar(stop)
    if any(known is not None and (known == 0).any() for known in map(known_values, (start, stop))):
        raise ValueError("Geometric sequence cannot include zero")
    kind = np.result_type(start.dtype, stop.dtype, float(num), np.zeros((), dtype))
    start, stop = ops.np.astype(start, kind), ops.np.astype(stop, kind)
    shape = np.broadcast_shapes(start.shape, stop.shape)
    # as NumPy does, rotate both so that the first is positive. The angle does not change the result
    sign = ops.np.detach(ops.np.sign(start))
    start, stop = ops.np.divide(start, sign), ops.np.divide(stop, sign)
    first, last = min(num, 1), num - 1 if endpoint and num > 1 else num
    ends = ops.np.log10(start), ops.np.log10(stop)
    if are_numbers:         # arrays would bring a backend
        ends = ends[0].item(), ends[1].item()
    between = ops.np.getitem(logspace(*ends, num, endpoint), slice(first, last))
    result = ops.np.multiply(sign, ops.np.concatenate((
        ops.np.broadcast_to(start, (first, *shape)), between, ops.np.broadcast_to(stop, (num - last, *shape)))))
    result = ops.np.moveaxis(result, 0, axis)
    return result if dtype is None else ops.np.astype(result, dtype)


@array_function(creates=True)
def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None,
             axis: int = 0) -> Any:
    """Return powers of a base with evenly spaced exponents."""
    start, stop, base = as_array(start), as_array(stop), as_array(base)
    if is_array(base) and base.ndim:
        ends = [as_nonscalar(x) for x in (start, stop, base)]
        ndim = max(x.ndim for x in ends)
        start, stop, base = [ops.np.reshape(x, (*(1,) * (ndim - x.ndim), *x.shape)) for x in ends]
        base = ops.np.expand_dims(base, axis)
    exponents = ops.np.linspace(start, stop, num, endpoint, axis=axis)
    result = ops.np.power(base, exponents)
    return result if dtype is None else ops.np.astype(result, dtype)
