"""Products of vectors, matrices and arrays of more axes."""

from __future__ import annotations

import warnings
from math import prod
from operator import index
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch.numpy.declare import array_function, as_array, as_nonscalar, into
from pydispatch.operators.declare import HAS_NUMPY_2_5
from pydispatch.operators.products import Terms, path_of, result_of_step, taken_off, terms_of
from pydispatch.ops import ops
from pydispatch.registry.operators import packet

EINSUM = packet("np", "einsum")
LETTERS = ascii_uppercase + ascii_lowercase     # NumPy's for the axis numbers 0, 1, 2, ...


@array_function(operator=(2, 3, ()), after_text=True)
def einsum(
    *operands: Any, out: Any = None, dtype: Any = None, order: str = "K", casting: str = "safe", optimize: Any = False
) -> Any:
    """Sums of products, with a letter for each axis."""
    if not operands:
        raise ValueError("must specify the einstein sum subscripts string and at least one operand, or at least one "
                         "operand and its corresponding subscripts list")
    subscripts = operands[0]
    if type(subscripts) is str:
        arrays = [as_array(x) for x in operands[1:]]
    else:
        subscripts, arrays = from_lists(operands)
    if not arrays:
        raise ValueError("must provide at least an operand to einsum")
    options: dict[str, Any] = {} if dtype is None else {"dtype": np.dtype(dtype)}
    if casting != "safe":
        options["casting"] = casting
    if optimize is False or optimize is None:
        return into(out, summed(subscripts, arrays, options))
    if len(arrays) < 3:
        return into(out, summed(subscripts, arrays, {"optimize": True, **options}))
    return into(out, contracted(subscripts, arrays, optimize, options))


def summed(subscripts: str, arrays: list[Any], options: dict[str, Any]) -> Any:
    """One call of the operator."""
    n = len(arrays)
    if n == 2:
        return EINSUM(subscripts, arrays[0], arrays[1], **options)
    if n == 1:
        return EINSUM(subscripts, arrays[0], **options)
    return EINSUM(subscripts, arrays[0], arrays[1], arrays[2:], **options)


def from_lists(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Subscripts from lists of axis numbers: `einsum(x1, [0, 1], x2, [1, 2], [0, 2])`."""
    arrays = [as_array(x) for x in operands[:len(operands) // 2 * 2:2]]
    terms = [letters(numbers) for numbers in operands[1::2]]
    result = f"->{letters(operands[-1])}" if len(operands) % 2 else ""
    return ",".join(terms) + result, arrays


def letters(numbers: Any) -> str:
    """The letters for a list of axis numbers, which may have an Ellipsis in it."""
    found = []
    for number in numbers:
        if number is not Ellipsis and not 0 <= index(number) < len(LETTERS):
            raise ValueError(f"subscript is not within the valid range [0, {len(LETTERS)})")
        found.append("..." if number is Ellipsis else LETTERS[number])
    return "".join(found)


def contracted(subscripts: str, arrays: list[Any], optimize: Any, options: dict[str, Any]) -> Any:
    """Several operands, a few at a time, in the order that NumPy chooses for `optimize`; so are their gradients."""
    arrays = [as_nonscalar(x) for x in arrays]
    shapes = tuple([tuple(x.shape) for x in arrays])
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    if optimize is True:
        optimize = "greedy"
    elif not isinstance(optimize, str):     # a path, or an algorithm and the most memory that it may take
        optimize = tuple([tuple(each) if isinstance(each, list) else each for each in optimize])
    known = list(zip(terms.operands, shapes, strict=True))
    for positions in path_of(str(terms), shapes, optimize):
        chosen, operands = taken_off(known, positions), taken_off(arrays, positions)
        result = result_of_step(chosen, known, terms.result)
        arrays.append(summed(str(Terms(tuple([term for term, _ in chosen]), result)), operands,
                             {"optimize": True, **options}))
        known.append((result, ()))
    return arrays[0]


def terms_from(n: int, start: int = 0) -> str:
    """The letters of `n` axes, beginning with that of a number."""
    return LETTERS[start:start + n]


@array_function()
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """The sum of products over the last axes of one array and the first of the other, or over pairs of axes."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    try:
        iter(axes)
    except TypeError:
        left, right = list(range(-axes, 0)), list(range(axes))
    else:
        left, right = [list(x) if isinstance(x, (list, tuple)) or np.ndim(x) else [x] for x in axes]
    if len(left) != len(right) or any(not -a.ndim <= axis < a.ndim for axis in left) or any(
            not -b.ndim <= axis < b.ndim for axis in right):
        raise ValueError("shape-mismatch for sum")
    left, right = [axis % a.ndim for axis in left], [axis % b.ndim for axis in right]
    if any(a.shape[one] != b.shape[other] for one, other in zip(left, right, strict=True)):
        raise ValueError("shape-mismatch for sum")
    first, second = list(terms_from(a.ndim)), list(terms_from(b.ndim, a.ndim))
    for one, other in zip(left, right, strict=True):
        second[other] = first[one]
    result = [first[i] for i in range(a.ndim) if i not in left] + [second[i] for i in range(b.ndim) if i not in right]
    return EINSUM(f"{''.join(first)},{''.join(second)}->{''.join(result)}", a, b, optimize=True)


@array_function()
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """The product of vectors, of matrices, or with a number; else sums over the last axis and the last but one."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    if not a.ndim or not b.ndim:
        return into(out, ops.np.multiply(a, b))
    if (a.ndim <= 2 and b.ndim <= 2) or b.ndim == 1:
        return into(out, ops.np.matmul(a, b))
    return into(out, tensordot.on_tensors(a, b, ((a.ndim - 1,), (b.ndim - 2,))))   # type: ignore[attr-defined]


@array_function()
def inner(a: Any, b: Any, /) -> Any:
    """The sum of products over the last axes."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    if not a.ndim or not b.ndim:
        return ops.np.multiply(a, b)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} not aligned: {a.shape[-1]} (dim {a.ndim - 1}) "
                         f"!= {b.shape[-1]} (dim {b.ndim - 1})")
    if b.ndim == 1:
        return ops.np.matmul(a, b)
    return tensordot.on_tensors(a, b, ((-1,), (-1,)))   # type: ignore[attr-defined]


@array_function()
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """The products of all pairs of elements."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    return into(out, ops.np.multiply(ops.np.reshape(a, (prod(a.shape), 1)), ops.np.reshape(b, (prod(b.shape),))))


@array_function()
def vdot(a: Any, b: Any, /) -> Any:
    """The product of two arrays as vectors, the first one conjugated."""
    a, b = ops.np.ravel(as_nonscalar(a)), ops.np.ravel(as_nonscalar(b))
    if a.shape != b.shape:
        raise ValueError("cannot reshape array: vdot takes arrays of one size")
    return ops.np.matmul(conjugated(a), b)


def conjugated(x: Any) -> Any:
    """The complex conjugate; a real array itself."""
    return ops.np.conjugate(x) if x.dtype.kind == "c" else x


def generalized(
    name: str, subscripts: str, cores: tuple[int, int], a: Any, b: Any, options: dict[str, Any]
) -> Any:
    """A universal function of vectors and matrices, whose arguments broadcast along all other axes."""
    axes, axis = options.pop("axes", None), options.pop("axis", None)
    keepdims, out = options.pop("keepdims", False), options.pop("out", None)
    known = {key: options.pop(key) for key in ("dtype", "casting") if options.get(key) is not None}
    for key in ("order", "subok", "signature", "dtype", "casting"):
        options.pop(key, None)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(options))!r}")
    for x, core in ((a, cores[0]), (b, cores[1])):
        if x.ndim < core:
            raise ValueError(f"{name}: Input operand does not have enough dimensions (has {x.ndim}, requires {core})")
    if axis is not None:
        axes = [(axis,), (axis,), ()]
    if axes is not None:
        places = [(place,) if isinstance(place, int) else tuple(place) for place in axes]
        a = ops.np.moveaxis(a, places[0], range(-cores[0], 0))
        b = ops.np.moveaxis(b, places[1], range(-cores[1], 0))
    if a.shape[-1] != b.shape[-1 if cores[1] == 1 or cores[0] != 1 else -2]:
        raise ValueError(f"{name}: Input operand 1 has a mismatch in its core dimension 0 "
                         f"(shapes {tuple(a.shape)} and {tuple(b.shape)})")
    if "dtype" in known:
        known["dtype"] = np.dtype(known["dtype"])
        known.setdefault("casting", "same_kind")
    result = EINSUM(subscripts, a, b, **known)
    if axes is not None and len(places) > 2 and places[2]:
        result = ops.np.moveaxis(result, -1, places[2][0])
    if keepdims:
        result = ops.np.expand_dims(result, -1 if axis is None else axis)
    return into(out, result)


@array_function()
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, **options: Any) -> Any:
    """The products of vectors along an axis, the first one conjugated."""
    x1, x2 = conjugated(as_nonscalar(x1)), as_nonscalar(x2)
    if axis != -1:
        options["axis"] = axis
    return generalized("vecdot", "...i,...i->...", (1, 1), x1, x2, {"out": out, **options})


@array_function()
def matvec(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:
    """The products of matrices and vectors."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    return generalized("matvec", "...ij,...j->...i", (2, 1), x1, x2, {"out": out, **options})


@array_function()
def vecmat(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:
    """The products of conjugated vectors and matrices."""
    x1, x2 = conjugated(as_nonscalar(x1)), as_nonscalar(x2)
    return generalized("vecmat", "...i,...ij->...j", (1, 2), x1, x2, {"out": out, **options})


@array_function()
def kron(a: Any, b: Any) -> Any:
    """The products of all pairs of elements: a block for each element of the first array."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    ndim = max(a.ndim, b.ndim)
    left, right = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (a, b))
    a = ops.np.reshape(a, tuple([n for extent in left for n in (extent, 1)]))
    b = ops.np.reshape(b, tuple([n for extent in right for n in (1, extent)]))
    return ops.np.reshape(ops.np.multiply(a, b), tuple([m * n for m, n in zip(left, right, strict=True)]))


@array_function()
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """The cross products of vectors of three elements; before NumPy 2.5 also of two and a third that is 0."""
    if axis is not None:
        axisa, axisb, axisc = axis, axis, axis
    a, b = as_nonscalar(a), as_nonscalar(b)
    if not a.ndim or not b.ndim:
        raise ValueError("At least one array has zero dimension")
    a = ops.np.moveaxis(a, normalize_axis_index(axisa, a.ndim, msg_prefix="axisa"), -1)
    b = ops.np.moveaxis(b, normalize_axis_index(axisb, b.ndim, msg_prefix="axisb"), -1)
    lengths = a.shape[-1], b.shape[-1]
    if HAS_NUMPY_2_5 and lengths != (3, 3):
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they are "
                         f"{lengths[0]} and {lengths[1]} dimensional instead.")
    if not {*lengths} <= {2, 3}:
        raise ValueError("incompatible dimensions for cross product\n(dimension must be 2 or 3)")
    if 2 in lengths:
        warnings.warn("Arrays of 2-dimensional vectors are deprecated. Use arrays of 3-dimensional vectors instead. "
                      "(deprecated in NumPy 2.0)", DeprecationWarning, stacklevel=3)
    a, b = (with_third(x, lengths) for x in (a, b))
    if lengths == (2, 2):
        return ops.np.subtract(ops.np.multiply(ops.np.getitem(a, (..., 0)), ops.np.getitem(b, (..., 1))),
                               ops.np.multiply(ops.np.getitem(a, (..., 1)), ops.np.getitem(b, (..., 0))))
    ahead, behind = np.array([1, 2, 0]), np.array([2, 0, 1])
    result = ops.np.subtract(ops.np.multiply(ops.np.take(a, ahead, -1), ops.np.take(b, behind, -1)),
                             ops.np.multiply(ops.np.take(a, behind, -1), ops.np.take(b, ahead, -1)))
    return ops.np.moveaxis(result, -1, normalize_axis_tuple(axisc, result.ndim, "axisc")[0])


def with_third(x: Any, lengths: tuple[int, int]) -> Any:
    """Vectors of two elements with a 0 after them, if the others have three."""
    if x.shape[-1] == 3 or lengths == (2, 2):
        return x
    zeros = ops.np.zeros_like(x, shape=(*x.shape[:-1], 1))
    return ops.np.concatenate([x, zeros], -1)
