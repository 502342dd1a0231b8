"""Products of vectors, matrices and arrays of more axes."""

from __future__ import annotations

import warnings
from math import prod
from operator import index
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import is_array, known_array
from pydispatch._registry.operators import packet
from pydispatch.numpy.declare import (
    array_function,
    as_array,
    as_nonscalar,
    as_order,
    as_scalar,
    chosen_order,
    in_order,
    into,
)
from pydispatch.operators.declare import HAS_NUMPY_2_5
from pydispatch.operators.layouts import in_c_order
from pydispatch.operators.products import Terms, path_of, result_of_step, taken_off, terms_of
from pydispatch.ops import ops
from pydispatch.schema.base_types import as_dtype

EINSUM = packet("np", "einsum")
LETTERS = ascii_uppercase + ascii_lowercase     # NumPy's letters for the axis numbers 0, 1, 2, ...


@array_function(operator=(2, 3, ()), after_text=True)
def einsum(
    *operands: Any, out: Any = None, dtype: Any = None, order: str = "K", casting: str = "safe", optimize: Any = False
) -> Any:
    """Compute sums of products, with a letter for each axis."""
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
    order = as_order(order, default="K")
    options: dict[str, Any] = {} if dtype is None else {"dtype": as_dtype(dtype)}
    if casting != "safe":
        options["casting"] = casting
    if len(arrays) == 1 and out is None:
        view = selected(subscripts, arrays[0])
        if view is not None:
            return view
    if optimize is False or optimize is None:
        result = summed(subscripts, arrays, options)
    elif len(arrays) < 3:
        result = summed(subscripts, arrays, {"optimize": True, **options})
    else:
        result = contracted(subscripts, arrays, optimize, options)
    return into(out, result if out is not None else in_order(result, chosen_order(order, arrays)), casting)


def selected(subscripts: str, x: Any) -> Any:
    """Return a view for subscripts that only select and order elements, or None for others.

    The view has the array's own dtype.
    """
    if not is_array(x) or not x.shape:
        return None
    terms = terms_of(subscripts, (len(x.shape),))
    letters, = terms.operands
    if set(letters) != set(terms.result):
        return None
    for letter in terms.result:
        while letters.count(letter) > 1:
            first = letters.index(letter)
            second = letters.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"dimensions in single operand for collapsing index {letter!r} don't match "
                                 f"({x.shape[first]} != {x.shape[second]})")
            x = ops.np.diagonal(x, 0, first, second)
            letters = letters[:first] + letters[first + 1:second] + letters[second + 1:] + letter
    return ops.np.transpose(x, tuple(map(letters.index, terms.result)))


def summed(subscripts: str, arrays: list[Any], options: dict[str, Any]) -> Any:
    """Call the operator once."""
    if len(arrays) < 3:
        return EINSUM(subscripts, *arrays, **options)
    return EINSUM(subscripts, arrays[0], arrays[1], arrays[2:], **options)


def from_lists(operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Convert lists of axis numbers to subscripts: `einsum(x1, [0, 1], x2, [1, 2], [0, 2])`."""
    arrays = [as_array(x) for x in operands[:len(operands) // 2 * 2:2]]
    terms = [letters(numbers) for numbers in operands[1::2]]
    result = f"->{letters(operands[-1])}" if len(operands) % 2 else ""
    return ",".join(terms) + result, arrays


def letters(numbers: Any) -> str:
    """Return the letters for a list of axis numbers, which may contain an Ellipsis."""
    found = []
    for number in numbers:
        if number is not Ellipsis and not 0 <= index(number) < len(LETTERS):
            raise ValueError(f"subscript is not within the valid range [0, {len(LETTERS)})")
        found.append("..." if number is Ellipsis else LETTERS[number])
    return "".join(found)


def contracted(subscripts: str, arrays: list[Any], optimize: Any, options: dict[str, Any]) -> Any:
    """Contract several operands, a few at a time, in the order that NumPy chooses for `optimize`.

    Their gradients are computed in the same way.
    """
    arrays = [as_nonscalar(x) for x in arrays]
    shapes = tuple([tuple(x.shape) for x in arrays])
    terms = terms_of(subscripts, tuple(map(len, shapes)))
    if optimize is True:
        optimize = "greedy"
    elif not isinstance(optimize, str):     # a path, or an algorithm and its limit of memory
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
    """Return the letters of `n` axes, starting with that of number `start`."""
    return LETTERS[start:start + n]


@array_function(constant=True)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """Return the order in which to contract operands, by their shapes."""
    find: Any = np.einsum_path
    shapes = [np.broadcast_to(np.empty((), x.dtype), tuple(x.shape)) if is_array(x) else x for x in operands]
    return find(*shapes, optimize=optimize, einsum_call=einsum_call)


@array_function()
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Sum products over the last axes of one array and the first of the other, or over pairs of axes."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    try:
        iter(axes)
    except TypeError:
        left, right = list(range(-axes, 0)), list(range(axes))
    else:
        left, right = [list(x) if isinstance(x, (list, tuple)) or np.ndim(x) else [x] for x in axes]
    if len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ValueError("duplicate axes are not allowed in tensordot")
    if len(left) != len(right):
        raise ValueError("shape-mismatch for sum")
    if any(not -x.ndim <= axis < x.ndim for x, axes_of_x in ((a, left), (b, right)) for axis in axes_of_x):
        raise IndexError("tuple index out of range")
    left, right = [axis % a.ndim for axis in left], [axis % b.ndim for axis in right]
    if any(a.shape[one] != b.shape[other] for one, other in zip(left, right, strict=True)):
        raise ValueError("shape-mismatch for sum")
    first, second = list(terms_from(a.ndim)), list(terms_from(b.ndim, a.ndim))
    for one, other in zip(left, right, strict=True):
        second[other] = first[one]
    result = [first[i] for i in range(a.ndim) if i not in left] + [second[i] for i in range(b.ndim) if i not in right]
    found = EINSUM(f"{''.join(first)},{''.join(second)}->{''.join(result)}", a, b, optimize=True)
    return in_c_order(found) if result else ops.np.reshape(found, ())       # NumPy returns it as an array


@array_function()
def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Multiply vectors, matrices, or an array and a number.

    Otherwise, sum products over the last axis of `a` and the last but one of `b`.
    """
    a, b = as_nonscalar(a), as_nonscalar(b)
    if not a.ndim or not b.ndim:
        result = scaled(a, b)
    elif (a.ndim <= 2 and b.ndim <= 2) or b.ndim == 1:
        result = in_c_order(ops.np.matmul(a, b))
    else:
        result = tensordot.on_tensors(a, b, ((a.ndim - 1,), (b.ndim - 2,)))   # type: ignore[attr-defined]
    check_product(out, result)
    return into(out, result)


def scaled(a: Any, b: Any) -> Any:
    """Multiply by a number. The result is in C order where NumPy calls the BLAS, else in the array's order."""
    result = ops.np.multiply(a, b)
    return in_c_order(result) if result.ndim <= 2 and result.dtype.char in "fdFD" else result


def check_product(out: Any, result: Any) -> None:
    """Raise ValueError for an array into which `dot` does not write its result."""
    if not is_array(out):
        return
    memory = known_array(out)
    if out.dtype != result.dtype or tuple(out.shape) != tuple(result.shape) or (
            isinstance(memory, np.ndarray) and not memory.flags.c_contiguous):
        raise ValueError("output array is not acceptable (must have the right datatype, number of dimensions, and be a "
                         f"C-Array)\npass out=np.empty({tuple(result.shape)}, {str(result.dtype)!r})")


@array_function()
def inner(a: Any, b: Any, /) -> Any:
    """Sum products over the last axes."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    if not a.ndim or not b.ndim:
        return scaled(a, b)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"shapes {tuple(a.shape)} and {tuple(b.shape)} not aligned: {a.shape[-1]} (dim {a.ndim - 1}) "
                         f"!= {b.shape[-1]} (dim {b.ndim - 1})")
    if b.ndim == 1:
        return ops.np.matmul(a, b)
    return tensordot.on_tensors(a, b, ((-1,), (-1,)))   # type: ignore[attr-defined]


@array_function()
def outer(a: Any, b: Any, out: Any = None) -> Any:
    """Return the products of all pairs of elements."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    result = ops.np.multiply(ops.np.reshape(a, (prod(a.shape), 1)), ops.np.reshape(b, (prod(b.shape),)))
    return into(out, result, repeats=True)


@array_function()
def vdot(a: Any, b: Any, /) -> Any:
    """Return the product of two arrays as vectors, with the first one conjugated."""
    a, b = ops.np.ravel(as_nonscalar(a)), ops.np.ravel(as_nonscalar(b))
    if a.shape != b.shape:
        raise ValueError("cannot reshape array: vdot takes arrays of one size")
    return ops.np.matmul(conjugated(a), b)


def conjugated(x: Any) -> Any:
    """Return the complex conjugate, or a real array itself."""
    return ops.np.conjugate(x) if x.dtype.kind == "c" else x


def generalized(
    name: str, cores: tuple[int, int], a: Any, b: Any, options: dict[str, Any]
) -> Any:
    """Call a universal function of vectors and matrices, whose arguments broadcast along all other axes."""
    axes, axis = options.pop("axes", None), options.pop("axis", None)
    keepdims, out = options.pop("keepdims", False), options.pop("out", None)
    known = {key: options.pop(key) for key in ("dtype", "casting") if options.get(key) is not None}
    order = as_order(options.pop("order", None), default="K")
    for key in ("subok", "signature", "dtype", "casting"):
        options.pop(key, None)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument {next(iter(options))!r}")
    for x, core in ((a, cores[0]), (b, cores[1])):
        if x.ndim < core:
            raise ValueError(f"{name}: Input operand does not have enough dimensions (has {x.ndim}, requires {core})")
    of_result = core_of_result(cores)
    a, b, places = with_axes_last(name, a, b, axis, axes, cores, of_result, keepdims)
    if a.shape[-1] != b.shape[-1 if cores[1] == 1 or cores[0] != 1 else -2]:
        raise ValueError(f"{name}: Input operand 1 has a mismatch in its core dimension 0 "
                         f"(shapes {tuple(a.shape)} and {tuple(b.shape)})")
    if "dtype" in known:
        known["dtype"] = as_dtype(known["dtype"])
        known.setdefault("casting", "same_kind")
    if cores == (2, 1):
        result = ops.np.squeeze(ops.np.matmul(a, ops.np.expand_dims(b, -1), **known), -1)
    elif cores == (1, 2):
        result = ops.np.squeeze(ops.np.matmul(ops.np.expand_dims(a, -2), b, **known), -2)
    else:
        result = EINSUM("...i,...i->...", a, b, **known)
    if keepdims:
        result = ops.np.expand_dims(result, -1)
    if places:
        result = ops.np.moveaxis(result, tuple(range(-len(places), 0)), places)
    return into(out, in_order(result, chosen_order(order, [a, b])), repeats=True)


def core_of_result(cores: tuple[int, int]) -> int:
    """Return the number of axes of vectors and matrices that the result has."""
    return 0 if cores == (1, 1) else 1


def with_axes_last(
    name: str, a: Any, b: Any, axis: Any, axes: Any, cores: tuple[int, int], of_result: int, keepdims: Any,
) -> tuple[Any, Any, tuple[int, ...]]:
    """Move the axes of vectors and matrices behind the others, and return where those of the result belong."""
    if axis is not None and axes is not None:
        raise TypeError("cannot specify both 'axis' and 'axes'")
    if not isinstance(keepdims, (bool, np.bool)):
        raise TypeError("'keepdims' must be a boolean")
    if keepdims and (cores[0] != cores[1] or of_result):
        raise TypeError(f"{name} does not support keepdims: its signature requires that all inputs have the same "
                        "number of core dimensions and that no output has core dimensions.")
    kept = cores[0] if keepdims else of_result
    if axis is not None:
        if cores != (1, 1):
            raise TypeError(f"{name}: axis can only be used with a single shared core dimension, not with the 2 "
                            "distinct ones implied by its signature")
        axes = [axis, axis, axis if keepdims else ()]
    if axes is None:
        return a, b, ()
    if not isinstance(axes, list):
        raise TypeError("axes should be a list.")
    if len(axes) != 3 and (len(axes) != 2 or of_result):
        raise ValueError("axes should be a list with an entry for all 3 inputs and outputs; entries for outputs can "
                         "only be omitted if none of them has core axes.")
    entries = [*axes, tuple(range(-kept, 0))] if len(axes) == 2 else axes
    places = []
    for i, (entry, n) in enumerate(zip(entries, (*cores, kept), strict=True)):
        if not isinstance(entry, tuple):
            entry = (index(entry),)
            if n != 1:
                raise np.exceptions.AxisError(f"{name}: operand {i} has {n} core dimensions, but the axes item is a "
                                              "single integer.")
        if len(entry) != n:
            raise np.exceptions.AxisError(f"{name}: operand {i} has {n} core dimensions, but {len(entry)} dimensions "
                                          "are specified by axes tuple.")
        places.append(tuple([index(place) for place in entry]))
    a = ops.np.moveaxis(a, places[0], tuple(range(-cores[0], 0)))
    b = ops.np.moveaxis(b, places[1], tuple(range(-cores[1], 0)))
    return a, b, places[2]


@array_function()
def vecdot(x1: Any, x2: Any, /, out: Any = None, *, axis: int = -1, **options: Any) -> Any:
    """Return the products of vectors along an axis, with the first one conjugated."""
    x1, x2 = conjugated(as_nonscalar(x1)), as_nonscalar(x2)
    if axis != -1:
        options["axis"] = axis
    return generalized("vecdot", (1, 1), x1, x2, {"out": out, **options})


@array_function()
def matvec(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:
    """Return the products of matrices and vectors."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    return generalized("matvec", (2, 1), x1, x2, {"out": out, **options})


@array_function()
def vecmat(x1: Any, x2: Any, /, out: Any = None, **options: Any) -> Any:
    """Return the products of conjugated vectors and matrices."""
    x1, x2 = conjugated(as_nonscalar(x1)), as_nonscalar(x2)
    return generalized("vecmat", (1, 2), x1, x2, {"out": out, **options})


@array_function()
def kron(a: Any, b: Any) -> Any:
    """Return the products of all pairs of elements, in a block for each element of the first array."""
    a, b = as_nonscalar(a), as_nonscalar(b)
    ndim = max(a.ndim, b.ndim)
    left, right = ((1,) * (ndim - x.ndim) + tuple(x.shape) for x in (a, b))
    a = ops.np.reshape(a, tuple([n for extent in left for n in (extent, 1)]))
    b = ops.np.reshape(b, tuple([n for extent in right for n in (1, extent)]))
    return as_scalar(ops.np.reshape(ops.np.multiply(a, b), tuple([m * n for m, n in zip(left, right, strict=True)])))


@array_function()
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """Return the cross products of vectors of three elements.

    Before NumPy 2.5, vectors may have two elements, with a third that is 0.
    """
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
    if lengths == (3, 3):
        ahead, behind = np.array([1, 2, 0]), np.array([2, 0, 1])
        result = ops.np.subtract(ops.np.multiply(ops.np.take(a, ahead, -1), ops.np.take(b, behind, -1)),
                                 ops.np.multiply(ops.np.take(a, behind, -1), ops.np.take(b, ahead, -1)))
    else:
        result = ops.np.subtract(ops.np.multiply(element(a, 0), element(b, 1)),
                                 ops.np.multiply(element(a, 1), element(b, 0)))
        if lengths == (2, 2):
            return in_c_order(result)
        longer, shorter = (a, b) if lengths[0] == 3 else (b, a)
        first, second = (ops.np.multiply(element(longer, 2), element(shorter, i)) for i in (1, 0))
        first, second = (ops.np.negative(first), second) if longer is a else (first, ops.np.negative(second))
        result = ops.np.stack([first, second, result], -1)
    return ops.np.moveaxis(in_c_order(result), -1, normalize_axis_tuple(axisc, result.ndim, "axisc")[0])


def element(x: Any, i: int) -> Any:
    """Return one element of each vector."""
    return ops.np.getitem(x, (..., i))
