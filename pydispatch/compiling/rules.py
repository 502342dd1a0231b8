"""Lowering rules, which turn operators into loops over arrays or into free views.

A rule gets the builder, the ArraySpec of the result, and the arguments of a call by name: values and literals. It
returns a value or a tuple of values. If it has no loop, it raises CannotLowerError, and the plan calls the operator.
"""

# tests: tests/compiling/test_operators.py
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy._core import umath
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.lib.stride_tricks import as_strided

from pydispatch.compiling.builder import Builder, CannotLowerError, check_loop, is_uniform
from pydispatch.compiling.steps import LoopStep
from pydispatch.compiling.values import Array, Value, coalesced
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.declare import LIBRARY

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}


def lowers(*names: str) -> Callable[[R], R]:
    """Register the decorated function as the rule of library operators: `rule(builder, spec, **arguments)`.

    The name of an operator of another pack contains its namespace. A rule replaces only the kernel that the pack
    declares. It is not used if a user's kernel is in force.
    """
    def register(rule: R) -> R:
        for name in names:
            assert "::" in name or name in DECLARATIONS or LIBRARY.family_of(name), name
            RULES[name if "::" in name else f"np::{name}"] = rule
        return rule

    return register


# --- views -----------------------------------------------------------------------------------------------------------

VIEWS = ("transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "flip", "broadcast_to", "diagonal",
         "sliding_window_view", "read_only")


def _view_rule(name: str) -> Rule:
    kernel = DECLARATIONS[name].kernels["CPU"]

    def rule(builder: Builder, spec: Any, **arguments: Any) -> Value:
        source, *others = arguments.values()        # in order, since no earlier argument is omitted
        if not isinstance(source, Value) or any(map(_holds_value, others)):
            raise CannotLowerError("an argument that determines the view is computed")
        return builder.viewed(source, lambda array: kernel(array, *others))

    return rule


for _name in VIEWS:
    lowers(_name)(_view_rule(_name))


@lowers("reshape", "ravel")
def reshape(builder: Builder, spec: Any, a: Any, shape: Any = None, copy: bool | None = None) -> Value:
    """Lower to a view of the array, or of a copy in C order."""
    a = builder.as_value(a)
    source = builder.copied(a) if copy else builder.contiguous(a)
    return builder.viewed(source, lambda array: array.reshape(spec.shape))


@lowers("take")
def take(builder: Builder, spec: Any, a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Value:
    """Lower to a gather of layers: slices along the axis."""
    _only_defaults({"mode": mode}, mode="raise")
    source = builder.as_value(a)
    if axis is None or not source.shape:       # NumPy treats a number as a vector of one element
        source, axis = reshape(builder, Shape((source.template.size,)), source), 0
    return gathered(builder, source, builder.as_value(indices), normalize_axis_index(axis, len(source.shape)))


def gathered(builder: Builder, source: Value, positions: Value, axis: int) -> Value:
    """Return an array's layers at these positions along an axis. A run raises IndexError if one is out of range."""
    source, positions = builder.contiguous(source), _as_positions(builder, positions, source)
    outer, layers, inner = source.shape[:axis], source.shape[axis], source.shape[axis + 1:]
    result = builder.fresh((*outer, *positions.shape, *inner), source.dtype)
    if result.template.size:
        builder.steps.append(LoopStep(
            ("gather",), (source, positions, result), (), ((), (), ()), "take", builder.site,
            core_sizes=(math.prod(outer), positions.template.size, layers, math.prod(inner) * source.dtype.itemsize),
            core_strides=(0,), is_elementwise=False))
    return result


def _as_positions(builder: Builder, positions: Value, layers: Value) -> Value:
    """Return the positions of layers in C order."""
    if positions.dtype.kind not in "iu" or positions.dtype == np.uint64 or not layers.template.size:
        raise CannotLowerError("the positions are not integers that fit into int64, or the array is empty")
    return builder.contiguous(builder.cast(positions, np.dtype(np.int64)))


def _as_put(builder: Builder, values: Value, target: Value, shape: tuple[int, ...]) -> Value:
    """Return the values to put into the elements of a shape, in the dtype of the target."""
    if values.dtype.kind == "c" and target.dtype.kind != "c":
        raise CannotLowerError("NumPy warns where an imaginary part is dropped")
    if np.broadcast_shapes(values.shape, shape) != shape or not math.prod(shape):
        raise CannotLowerError("the values have another shape, or there are none")
    return builder.cast(values, target.dtype)


def with_layers_added(builder: Builder, target: Value, positions: Value, values: Value, axis: int) -> Value:
    """Return a copy of an array with values added to its layers at positions along an axis, in the order of these."""
    loop = "add_layers", target.dtype.num
    check_loop(loop)
    outer, layers, inner = target.shape[:axis], target.shape[axis], target.shape[axis + 1:]
    selected = (*outer, *positions.shape, *inner)
    positions, values = _as_positions(builder, positions, target), _as_put(builder, values, target, selected)
    result = builder.copied(target)
    product = _product_with_picked(builder, values) if len(target.shape) == 1 and values.shape == selected else None
    if product is not None:
        factors, source, columns = product
        builder.steps.append(LoopStep(
            ("add_products", target.dtype.num), (result, positions, factors, source, columns, result), (), ((),) * 6,
            "add", builder.site, core_sizes=(positions.template.size, layers, source.template.size),
            is_elementwise=False))
        return result
    is_one = not any(values.template.strides)
    if not is_one:
        values = builder.contiguous(builder.viewed(values, lambda array: np.broadcast_to(array, selected)))
    builder.steps.append(LoopStep(
        loop, (result, positions, values, result), (), ((), (), (), ()), "add", builder.site,
        core_sizes=(math.prod(outer), positions.template.size, layers, math.prod(inner)),
        core_strides=(0 if is_one else target.dtype.itemsize,), is_elementwise=False))
    return result


LAST_STEPS = 8      # among which the steps are searched that compute the values to be added


def _product_with_picked(builder: Builder, values: Value) -> tuple[Value, Value, Value] | None:
    """Return (factors, vector, positions) if values are factors times elements of a vector at positions, or None.

    A loop computes the products itself, so the steps that compute the values are removed unless others use them.
    """
    product = _step_that_computes(builder, values, "ufunc")
    if product is None or product.loop[1] is not np.multiply or values.dtype.char not in "fd":
        return None
    for one, other in (product.operands[:2], product.operands[1::-1]):
        step = _step_that_computes(builder, other, "pick")
        if step is None or one.shape != values.shape or not one.template.flags.c_contiguous:
            continue
        source, columns = step.operands[:2]
        axes: tuple[int, ...] = step.loop[2]
        if axes[0] == 1 and axes[2] == source.dtype.itemsize and columns.shape == values.shape and (
                columns.template.flags.c_contiguous and source.template.size == 1):
            whole = as_strided(source.template, (axes[1],), (axes[2],))
            return one, Value(source.storage, whole), columns
    return None


def _step_that_computes(builder: Builder, value: Value, kind: str) -> LoopStep | None:
    """Return the loop of this kind that computes a value, if it is one of the last steps."""
    for step in reversed(builder.steps[-LAST_STEPS:]):
        if not isinstance(step, LoopStep):
            return None
        if any(result.storage is value.storage for result in step.operands[-step.n_out:]):
            return step if step.loop[0] == kind and step.operands[-1].place == value.place else None
    return None


@lowers("getitem")
def getitem(builder: Builder, spec: Any, x: Value, key: Any) -> Value:
    """Lower a key without arrays to a view, and integers for the first axis or for every axis to a gather."""
    positions = _only_positions(key)
    if positions is not None and len(x.shape) > 1:
        return gathered(builder, x, positions, 0)
    if isinstance(key, (Value, tuple)) and _is_position_key(key, len(x.shape)):
        return picked(builder, spec, x, key if isinstance(key, tuple) else (key,))
    full = _full_key(key, len(x.shape)) if isinstance(key, (Value, tuple)) else None
    if full is not None:
        axes = [axis for axis, part in enumerate(full) if isinstance(part, Value)]
        if len(axes) == 1:
            return gathered(builder, x, full[axes[0]], axes[0])
        return picked(builder, spec, x, _for_every_axis(builder, x.shape, key, full))
    basic = _basic_key(key)
    return builder.viewed(x, lambda array: array[basic])


def _only_positions(key: Any) -> Value | None:
    """Return the array of positions if a key is one such array for the first axis and takes all other axes."""
    parts = key if isinstance(key, tuple) else (key,)
    if parts and isinstance(parts[0], Value) and all(
            part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts[1:]):
        return parts[0]
    return None


def _is_position_key(key: Any, ndim: int) -> bool:
    """Return whether a key has integers for every axis, including at least one array."""
    parts = key if isinstance(key, tuple) else (key,)
    return len(parts) == ndim and any(isinstance(part, Value) for part in parts) and all(
        part.dtype.kind in "iu" and part.dtype != np.uint64 if isinstance(part, Value)
        else isinstance(part, (int, np.integer)) and not isinstance(part, bool) for part in parts)


def _full_key(key: Any, ndim: int) -> tuple[Any, ...] | None:
    """Return a key of integer arrays and whole axes with a part for every axis, or None for any other key."""
    parts = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(part, Value) for part in parts):
        return None
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    n_whole = ndim - len(parts) + len(dots)
    at = dots[0] if dots else len(parts)
    full = (*parts[:at], *[slice(None)] * n_whole, *parts[at + 1:])
    is_known = len(dots) < 2 and n_whole >= 0 and all(
        part.dtype.kind in "iu" and part.dtype != np.uint64 if isinstance(part, Value) else
        isinstance(part, slice) and part == slice(None) for part in full)
    return full if is_known else None


def _for_every_axis(builder: Builder, shape: tuple[int, ...], key: Any, full: tuple[Any, ...]) -> list[Value]:
    """Return positions along every axis that select the same elements as a key of arrays and whole axes.

    `full` is the key with a part for every axis. The axes of the picked elements come first in the result, unless the
    arrays are adjacent in the key: then they stay in their place.
    """
    given = [i for i, part in enumerate(key if isinstance(key, tuple) else (key,)) if isinstance(part, Value)]
    arrays = [axis for axis, part in enumerate(full) if isinstance(part, Value)]
    whole = [axis for axis, part in enumerate(full) if not isinstance(part, Value)]
    n_picked = max(len(full[axis].shape) for axis in arrays)
    together = given[-1] - given[0] == len(given) - 1
    n_before = len([axis for axis in whole if together and axis < arrays[0]])
    ndim = n_picked + len(whole)

    def along(value: Value, last: int) -> Value:
        """Return a view of the value whose last axis is this one of the result."""
        extents = (*value.shape, *[1] * (ndim - 1 - last))
        return builder.viewed(value, lambda array: array.reshape(extents))

    places = [place for place in range(ndim) if not n_before <= place < n_before + n_picked]
    counted = {axis: builder.constant(np.arange(shape[axis])) for axis in whole}
    return [along(full[axis], n_before + n_picked - 1) if axis in arrays
            else along(counted[axis], places[whole.index(axis)]) for axis in range(len(full))]


MOST_WRITTEN = 1 << 10          # with more elements, one call is faster than single writes
MOST_POSITION_AXES = 5          # for a loop with MAX_OPERANDS operands


def picked(builder: Builder, spec: Any, x: Value, parts: Sequence[Any]) -> Value:
    """Return single elements of an array, at integers for every axis. A run raises IndexError for one out of range."""
    if not math.prod(spec.shape):
        raise CannotLowerError("it selects no elements")
    source, axes, positions = _moving_axes(builder, x, parts, spec.shape)
    loop = "pick", x.dtype.itemsize, axes
    check_loop(loop)
    return builder.elementwise(loop, (source, *positions), builder.fresh(spec.shape, x.dtype), "index")


def _moving_axes(
    builder: Builder, x: Value, parts: Sequence[Any], shape: tuple[int, ...]
) -> tuple[Value, tuple[int, ...], list[Value]]:
    """Return (view of the elements that positions count from, numbers and axes for the loop, the positions).

    If the positions along the first axis are 0, 1, 2, ..., the view moves along with them. Each row is then read or
    written separately.
    """
    template, strides, extents = x.template, x.template.strides, x.shape
    follows = _counts_rows(parts[0], shape) and extents[0] == shape[0]
    first = template[(slice(None) if follows else 0, *[0] * (len(extents) - 1), Ellipsis)]
    if follows:
        first = first.reshape((-1, *[1] * (len(shape) - 1)))
    positions = [builder.as_value(part, np.dtype(np.int64)) for part in parts[follows:]]
    if not 0 < len(positions) <= MOST_POSITION_AXES or not math.prod(extents):
        raise CannotLowerError("it has too many axes, or no elements")
    axes = [number for axis in range(int(follows), len(extents)) for number in (extents[axis], strides[axis])]
    return Value(x.storage, first), (len(positions), *axes), positions


def _counts_rows(part: Any, shape: tuple[int, ...]) -> bool:
    """Return whether these are the numbers of the result's rows: 0, 1, 2, ...."""
    if not isinstance(part, Value) or part.constant is None or not shape:
        return False
    numbers = part.constant
    return (numbers.ndim == len(shape) and numbers.size == numbers.shape[0] == shape[0] > 1
            and bool((numbers.ravel() == np.arange(shape[0])).all()))


@lowers("index_put")
def index_put(builder: Builder, spec: Any, x: Any, key: Any, values: Any, *, accumulate: bool = False) -> Value:
    """Lower to a copy in which layers or single elements are written or added to, for integers and whole axes."""
    parts: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    target, values = builder.as_value(x), builder.as_value(values)
    full = _full_key(key, len(target.shape))
    if accumulate and np.result_type(target.dtype, values.dtype) != target.dtype:
        raise CannotLowerError("NumPy adds in the dtype of the values, and rounds each sum")
    if accumulate and full is not None:
        arrays = [axis for axis, part in enumerate(full) if isinstance(part, Value)]
        if len(arrays) == 1:
            return with_layers_added(builder, target, full[arrays[0]], values, arrays[0])
    if not _is_position_key(parts, len(target.shape)):
        if full is None:
            raise CannotLowerError("the key contains more than integers and whole axes")
        parts = _for_every_axis(builder, target.shape, key, full)
    else:
        full = None
    shape = np.broadcast_shapes(*[part.shape for part in parts if isinstance(part, Value)])
    if full is not None and not accumulate and math.prod(shape) > MOST_WRITTEN:
        raise CannotLowerError("NumPy writes many whole axes faster")
    values = _as_put(builder, values, target, shape)
    result = put(builder, builder.copied(target), parts, values, shape, accumulate)
    if target.dtype.kind == "f" and is_uniform(target, 0) and _counts_rows(parts[0], shape) and (
            math.prod(shape) == shape[0]):
        _note_parts(builder, result, [Part(
            None, lambda base, total: put(builder, total, parts, values, shape, True, "add"))])
    return result


class Part(NamedTuple):
    """A value written into zeros: its basic key or None, and a function that adds it to a copy of an array."""

    key: Any
    add: Callable[[Value, Value], Any]


PARTS_IN_ZEROS = "parts of zeros"   # key of a known result: the parts of a storage
MOST_PARTS = 16


def _note_parts(builder: Builder, value: Value, parts: Sequence[Part]) -> None:
    builder.note_result((PARTS_IN_ZEROS, value.storage, value.shape), parts)


def _parts_of(builder: Builder, value: Value) -> Sequence[Part]:
    """Return the parts that were written into zeros, or () for any other value."""
    return builder.known_result((PARTS_IN_ZEROS, value.storage, value.shape)) or () if value.is_whole else ()


def _are_apart(template: Array, one: Part, other: Part) -> bool:
    return one.key is not None and other.key is not None and not np.may_share_memory(
        template[one.key], template[other.key], max_work=1000)      # type: ignore[arg-type]    # any number is allowed


def _with_parts_added(builder: Builder, values: Sequence[Any]) -> Value | None:
    """Return the sum of an array and zeros with a part, as a copy with this part added, or None.

    The bits are those of the sum. The sum of 0 and -0.0 is 0, so 0 is added to all other elements. If the array also
    consists of parts in zeros, no element is in all of them.
    """
    one, other = values
    if not isinstance(one, Value) or not isinstance(other, Value) or (one.shape, one.dtype) != (
            other.shape, other.dtype):
        return None
    before, part = _parts_of(builder, one), _parts_of(builder, other)
    if len(part) != 1:
        one, before, part = other, part, before
    if len(part) != 1 or one.constant is not None:
        return None
    if not 0 < len(before) < MOST_PARTS or (
            len(before) == 1 and not _are_apart(other.template, before[0], part[0])):
        total = builder.ufunc(np.add, (one, 0.0))
        part[0].add(one, total)
        return total
    total = builder.copied(builder.viewed(
        builder.constant(np.zeros((), one.dtype)), lambda array: np.broadcast_to(array, one.shape)))
    for each in (*before, *part):
        each.add(total, total)
    _note_parts(builder, total, (*before, *part))
    return total


def put(
    builder: Builder, result: Value, parts: Sequence[Any], values: Value, shape: tuple[int, ...], accumulate: bool,
    name: str = "index_put",
) -> Value:
    """Write to, or add to, single elements of a value that nothing else uses, and return it."""
    first, axes, positions = _moving_axes(builder, result, parts, shape)
    dtype = result.dtype
    loop = ("put_sum", dtype.num, axes) if accumulate else ("put", dtype.itemsize, axes)
    check_loop(loop)
    operands = (first, values, *positions, first)
    builder.add_loop(loop, operands, shape, name, is_elementwise=False)
    return result


@lowers("take_along_axis")
def take_along_axis(builder: Builder, spec: Any, arr: Any, indices: Any, axis: int | None = -1) -> Value:
    """Lower to a pick, at the same place along all other axes."""
    arr, indices = builder.as_value(arr), builder.as_value(indices)
    if indices.dtype.kind not in "iu" or indices.dtype == np.uint64:
        raise CannotLowerError("the positions are not integers that fit into int64")
    if axis is None:
        arr, axis = reshape(builder, Shape((arr.template.size,)), arr), 0
    if len(arr.shape) == 1:
        return gathered(builder, arr, indices, 0)
    return picked(builder, spec, arr, _grid_with(builder, arr, indices, axis))


@lowers("scatter_add")
def scatter_add(builder: Builder, spec: Any, x: Any, indices: Any, values: Any, axis: int) -> Value:
    """Lower to a copy to which values are added element by element."""
    x, indices, values = builder.as_value(x), builder.as_value(indices), builder.as_value(values)
    if indices.dtype.kind not in "iu" or indices.dtype == np.uint64 or values.dtype != x.dtype:
        raise CannotLowerError("the positions are not integers that fit into int64, or the values have another dtype")
    if len(x.shape) == len(indices.shape) == 1:
        return with_layers_added(builder, x, indices, values, 0)
    parts = _grid_with(builder, x, indices, axis)
    shape = np.broadcast_shapes(*[part.shape for part in parts])
    return put(builder, builder.copied(x), parts, _as_put(builder, values, x, shape), shape, True, "scatter_add")


def _grid_with(builder: Builder, x: Value, indices: Value, axis: int) -> list[Value]:
    """Return broadcasting numbers of the elements along every axis, but `indices` along one axis."""
    grid = [builder.constant(numbers) for numbers in np.indices(x.shape, sparse=True)]
    grid[normalize_axis_index(axis, len(x.shape))] = indices
    return grid


@lowers("repeat")
def repeat(builder: Builder, spec: Any, a: Any, repeats: Sequence[int], axis: int | None = None) -> Value:
    """Lower to a gather of layers."""
    a = builder.as_value(a)
    if axis is None or not a.shape:     # NumPy treats a number as a vector of one element
        a, axis = reshape(builder, Shape((a.template.size,)), a), 0
    axis = normalize_axis_index(axis, len(a.shape))
    return gathered(builder, a, builder.constant(np.arange(a.shape[axis]).repeat(repeats)), axis)


@lowers("tile")
def tile(builder: Builder, spec: Any, A: Any, reps: Sequence[int]) -> Value:
    """Lower to a copy of the array with a new axis before each axis, along which it is repeated."""
    array = builder.as_value(A)
    ndim = max(len(array.shape), len(reps))
    extents, times = (1,) * (ndim - len(array.shape)) + array.shape, (1,) * (ndim - len(reps)) + tuple(reps)
    apart = [number for extent in extents for number in (1, extent)]
    repeated = [number for pair in zip(times, extents, strict=True) for number in pair]
    return reshape(builder, spec, builder.viewed(
        array, lambda array: np.broadcast_to(array.reshape(apart), repeated)))


@lowers("roll")
def roll(builder: Builder, spec: Any, a: Any, shift: Sequence[int], axis: Sequence[int] | None = None) -> Value:
    """Lower to copies of the two parts along each axis in turn."""
    value = builder.as_value(a)
    if axis is None:
        flat = reshape(builder, Shape((value.template.size,)), value)
        return reshape(builder, spec, rolled(builder, flat, sum(shift), 0))
    axes = normalize_axis_tuple(axis, len(value.shape), allow_duplicate=True)
    for by, along in zip(*map(np.ravel, np.broadcast_arrays(shift, axes)), strict=True):
        value = rolled(builder, value, int(by), int(along))
    return value


def rolled(builder: Builder, value: Value, by: int, axis: int) -> Value:
    """Return a copy in which the last layers along an axis come before the others."""
    n = value.shape[axis]
    start = n - by % n if n else 0
    parts = [(*[slice(None)] * axis, part) for part in (slice(start, n), slice(0, start))]
    return concatenate(builder, value, [
        builder.viewed(value, lambda array, part=part: array[part]) for part in parts], axis)   # type: ignore[misc]


def _basic_key(key: Any) -> tuple[Any, ...]:
    """Return a key without arrays, with an Ellipsis, so that NumPy makes a view. Raise CannotLowerError for others."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, bool) or _holds_value(part) or not (
                part is None or part is Ellipsis or isinstance(part, (int, slice, np.integer))):
            raise CannotLowerError("the key has arrays")
    return parts if Ellipsis in parts else (*parts, Ellipsis)


@lowers("index")
def index(builder: Builder, spec: Any, x: Value, key: Any) -> Value:
    """Lower a key without arrays to a copy of a view, and other keys to a gather."""
    return builder.as_value(getitem(builder, spec, x, key))


def _holds_value(value: Any) -> bool:
    if isinstance(value, slice):
        return any(map(_holds_value, (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)):
        return any(map(_holds_value, value))
    return isinstance(value, Value)


@lowers("split")
def split(builder: Builder, spec: Any, **arguments: Any) -> tuple[Value, ...]:
    """Lower to views of the parts."""
    source, *others = arguments.values()
    names = list(arguments)[1:]
    if not isinstance(source, Value) or any(map(_holds_value, others)):
        raise CannotLowerError("the argument that determines the places to split at is computed")
    kept = dict(zip(names, others, strict=True))
    kernel = DECLARATIONS["split"].kernels["CPU"]

    def part(i: int) -> Value:
        return builder.viewed(source, lambda array: kernel(array, **kept)[i])

    return tuple(map(part, range(len(kernel(source.template, **kept)))))


@lowers("real")
def real(builder: Builder, spec: Any, val: Any) -> Value:
    """Lower to a view of a complex array, or to a real array itself."""
    if not isinstance(val, Value):
        return builder.as_value(np.real(val))       # the real part of a bool is an int
    return builder.viewed(val, np.real) if val.dtype.kind == "c" else val


@lowers("imag")
def imag(builder: Builder, spec: Any, val: Any) -> Value:
    """Lower to a view of a complex array, or to zeros for a real one."""
    if not isinstance(val, Value):
        return builder.as_value(np.imag(val))
    if val.dtype.kind == "c":
        return builder.viewed(val, np.imag)
    return builder.constant(np.zeros(val.shape, val.dtype))


@lowers("detach")
def detach(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """Lower to the array itself."""
    source, = arguments.values()
    if not isinstance(source, Value):
        raise CannotLowerError("the argument is a number")
    return source


# --- copies and casts ------------------------------------------------------------------------------------------------


@lowers("copy")
def copy(builder: Builder, spec: Any, a: Value) -> Value:
    """Lower to the array itself, because a graph without writes needs no copies."""
    return builder.as_value(a)


@lowers("astype")
def astype(builder: Builder, spec: Any, x: Value, dtype: Any, copy: bool = True) -> Value:
    """Lower to a cast, or to the array itself if it has the dtype."""
    return builder.cast(builder.as_value(x), spec.dtype)


@lowers("concatenate")
def concatenate(
    builder: Builder, spec: Any, arrays: Sequence[Any], axis: int | None = 0, **others: Any
) -> Value:
    """Lower to copies of the arrays to their places."""
    _only_defaults(others, dtype=None, casting="same_kind")
    arrays = [builder.as_value(array) for array in arrays]
    if axis is not None and not all(array.shape for array in arrays):
        raise CannotLowerError("of an array without axes")
    result = builder.fresh(spec.shape, spec.dtype)
    if axis is None:
        arrays = [reshape(builder, Shape((array.template.size,)), array) for array in arrays]
        axis = 0
    axis, start = normalize_axis_index(axis, len(spec.shape)), 0
    for array in arrays:
        stop = start + array.shape[axis]
        place = (*[slice(None)] * axis, slice(start, stop))
        builder.copy_into(result.viewed(result.template[place]), array)
        start = stop
    return result


@lowers("stack")
def stack(builder: Builder, spec: Any, arrays: Sequence[Any], axis: int = 0, **others: Any) -> Value:
    """Lower to copies of the arrays to their places."""
    _only_defaults(others, dtype=None, casting="same_kind")
    result = builder.fresh(spec.shape, spec.dtype)
    axis = normalize_axis_index(axis, len(spec.shape))
    for i, array in enumerate(arrays):
        place: tuple[Any, ...] = (*[slice(None)] * axis, i, Ellipsis)
        part = array if isinstance(array, Value) else builder.as_value(array, spec.dtype)
        builder.copy_into(result.viewed(result.template[place]), part)
    return result


@lowers("setitem")
def setitem(builder: Builder, spec: Any, x: Value, key: Any, value: Any) -> Value:
    """Lower to a copy with a part overwritten, for keys without arrays."""
    if not isinstance(x, Value):
        raise CannotLowerError("a number is written to")
    full = _basic_key(key)
    new = builder.as_value(value) if isinstance(value, Value) else builder.as_value(value, x.dtype)
    part = x.template[full]
    new = _without_first_axes(builder, new, part.ndim)
    if new.dtype.kind == "c" and x.dtype.kind != "c":
        raise CannotLowerError("NumPy warns where an imaginary part is dropped")
    if np.broadcast_shapes(new.shape, part.shape) != part.shape:
        raise CannotLowerError("the value does not broadcast to the shape of the part")
    result = builder.copied(x)
    builder.copy_into(result.viewed(result.template[full]), new)
    if x.dtype.kind == new.dtype.kind == "f" and is_uniform(x, 0) and part.size:
        new = builder.cast(new, x.dtype)
        loop = "ufunc", np.add, (x.dtype.num,) * 3

        def add(base: Value, total: Value) -> None:
            target = total.viewed(total.template[full])
            builder.add_loop(loop, (base.viewed(base.template[full]), new, target), target.shape, "add")

        _note_parts(builder, result, [Part(full, add)])
    return result


def _without_first_axes(builder: Builder, value: Value, ndim: int) -> Value:
    """Return a view with this number of axes. Like NumPy's assignment, it drops first axes of length 1."""
    while len(value.shape) > ndim and value.shape[0] == 1:
        value = builder.viewed(value, lambda array: array[0, ...])
    return value


class Shape:
    """The parts of an ArraySpec that rules need."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> None:
        self.shape = shape
        self.dtype = dtype


# --- new arrays ------------------------------------------------------------------------------------------------------


@lowers("zeros", "zeros_like", "empty", "empty_like")
def zeros(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """Lower to a constant."""
    return _uniform(builder, spec, builder.constant(np.zeros((), spec.dtype)))


@lowers("ones", "ones_like")
def ones(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """Lower to a constant."""
    return _uniform(builder, spec, builder.constant(np.ones((), spec.dtype)))


@lowers("full", "full_like")
def full(builder: Builder, spec: Any, fill_value: Any, **arguments: Any) -> Value:
    """Lower to the value, broadcast."""
    return _uniform(builder, spec, builder.as_value(fill_value, spec.dtype))


def _uniform(builder: Builder, spec: Any, value: Value) -> Value:
    if spec.dtype.kind not in "biufc":
        raise CannotLowerError(f"there are no loops for {spec.dtype}")
    value = _without_first_axes(builder, value, len(spec.shape))
    return builder.viewed(value, lambda array: np.broadcast_to(array, spec.shape))


# --- elementwise -----------------------------------------------------------------------------------------------------


@lowers("where")
def where(builder: Builder, spec: Any, condition: Any, x: Any, y: Any) -> Value:
    """Lower to a choice for each element."""
    dtype = spec.dtype
    operands = [builder.as_value(condition, np.dtype(bool)), builder.as_value(x, dtype), builder.as_value(y, dtype)]
    loop = "choose", dtype.itemsize
    check_loop(loop)
    return builder.elementwise(loop, operands, builder.fresh(spec.shape, dtype), "where")


@lowers("clip")
def clip(
    builder: Builder, spec: Any, a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None,
    **others: Any,
) -> Value:
    """Lower to the universal function that NumPy's function calls."""
    _only_defaults(others, dtype=None, casting="same_kind")
    low, high = a_min if min is None else min, a_max if max is None else max
    values = builder.as_value(a)        # NumPy converts a number to an array
    if low is None and high is None:
        return values
    if low is None:
        return builder.ufunc(np.minimum, (values, high))
    if high is None:
        return builder.ufunc(np.maximum, (values, low))
    return builder.ufunc(umath.clip, (values, low, high))     # type: ignore[attr-defined]    # it has no public name


def _only_defaults(given: dict[str, Any], **defaults: Any) -> None:
    for name, value in given.items():       # a dtype of float64 equals None
        if name not in defaults or (value is not defaults[name] if defaults[name] is None else value != defaults[name]):
            raise CannotLowerError(f"its argument {name} is not the default")


def operands(function: np.ufunc, arguments: dict[str, Any]) -> list[Any]:
    """Return the operands of a universal function whose other arguments are the defaults."""
    values = list(arguments.values())
    if len(values) > function.nin:
        del values[function.nin:]
        _only_defaults(dict(list(arguments.items())[function.nin:]), dtype=None, casting="same_kind")
    return values


def pointwise(
    builder: Builder, spec: Any, function: np.ufunc, values: Sequence[Any]
) -> Value | tuple[Value, ...]:
    """Lower an operator whose kernel is a universal function of these values and numbers."""
    if function is np.matmul:
        return matmul(builder, spec, *values)
    if function.nout > 1:
        return builder.ufunc_of_several(function, values)
    found = _with_parts_added(builder, values) if function is np.add else None
    return builder.ufunc(function, values) if found is None else found


@lowers("round")
def round_to(builder: Builder, spec: Any, a: Any, decimals: int = 0) -> Value:
    """Lower to NumPy's rounding to decimals: multiply by a power of ten, round to whole numbers, and divide."""
    value = builder.as_value(a)
    if value.dtype.kind in "iu" and decimals >= 0:
        return value
    if value.dtype.kind != "f":
        raise CannotLowerError("NumPy rounds parts of complex numbers, and casts others")
    if decimals == 0:
        return builder.ufunc(np.rint, (value,))
    first, second = (np.multiply, np.true_divide) if decimals > 0 else (np.true_divide, np.multiply)
    power = float(10 ** abs(decimals))
    return builder.ufunc(second, (builder.ufunc(np.rint, (builder.ufunc(first, (value, power)),)), power))


@lowers("complex")
def complex_numbers(builder: Builder, spec: Any, real: Any, imag: Any) -> Value:
    """Lower to copies of the parts."""
    result = builder.fresh(spec.shape, spec.dtype)
    for target, part in ((result.template.real, real), (result.template.imag, imag)):
        builder.copy_into(result.viewed(target), builder.as_value(part, target.dtype))
    return result


@lowers("frexp_mantissa")
def frexp_mantissa(builder: Builder, spec: Any, x: Any) -> Value:
    """Lower to the first result of NumPy's frexp."""
    return builder.ufunc_of_several(np.frexp, (builder.as_value(x),))[0]


@lowers("frexp_exponent")
def frexp_exponent(builder: Builder, spec: Any, x: Any) -> Value:
    """Lower to the second result of NumPy's frexp."""
    return builder.ufunc_of_several(np.frexp, (builder.as_value(x),))[1]


# --- reductions ------------------------------------------------------------------------------------------------------

IDENTITIES: dict[str, tuple[np.ufunc, int | bool | None]] = {
    "sum": (np.add, 0), "prod": (np.multiply, 1), "max": (np.maximum, None), "min": (np.minimum, None),
    "all": (np.logical_and, True), "any": (np.logical_or, False),
}


def _reduction_rule(name: str) -> Rule:
    function, identity = IDENTITIES[name]

    def rule(
        builder: Builder, spec: Any, a: Any, axis: Any = None, keepdims: bool = False, initial: Any = None,
        where: Any = None, **others: Any,
    ) -> Value:
        if initial is not None or where is not None:
            raise CannotLowerError("it has an argument initial or where")
        a = builder.as_value(a)
        if a.dtype != spec.dtype and depends_on_order(function, spec.dtype) and not counts(function, a, spec.dtype):
            raise CannotLowerError("NumPy casts and adds a few thousand elements at a time")
        return reduced(builder, function, identity, builder.cast(a, spec.dtype), axis, keepdims)

    return rule


for _name in IDENTITIES:
    lowers(_name)(_reduction_rule(_name))


@lowers("mean")
def average(
    builder: Builder, spec: Any, a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    where: Any = None,
) -> Value:
    """Lower to the sum divided by the number of elements, as NumPy computes it."""
    a = builder.as_value(a)
    if where is not None or a.dtype != spec.dtype or a.dtype.char not in "fdD" or not a.template.size:
        raise CannotLowerError("it casts, is over no elements, or has an argument where")
    total = reduced(builder, np.add, 0, a, axis, keepdims)
    return builder.ufunc(np.true_divide, (total, a.template.size // max(total.template.size, 1)))


@lowers("var")
def var(
    builder: Builder, spec: Any, a: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False,
    where: Any = None, mean: Any = None, correction: float | None = None,
) -> Value:
    """Lower to the mean of the squared differences from the mean, as NumPy computes it."""
    a = builder.as_value(a)
    if where is not None or mean is not None or a.dtype != spec.dtype or a.dtype.char not in "fd" or (
            not a.template.size):
        raise CannotLowerError("it casts, is over no elements, or has an argument where or mean")
    if a.constant is not None or any(
            stride <= 0 for stride, extent in zip(a.template.strides, a.shape, strict=True) if extent > 1):
        raise CannotLowerError("it is known, or repeats elements, or goes along a negative stride")
    # the order in which NumPy lays out its intermediate results
    order = sorted(range(len(a.shape)), key=lambda axis: -a.template.strides[axis])

    def in_order(value: Value) -> Value:
        return builder.viewed(value, lambda array: array.transpose(order))

    apart = builder.ufunc(np.subtract, (in_order(a), in_order(average(builder, spec, a, axis, keepdims=True))))
    squares = builder.viewed(builder.ufunc(np.square, (apart,)), lambda array: array.transpose(np.argsort(order)))
    total = reduced(builder, np.add, 0, squares, axis, keepdims)
    n = a.template.size // max(total.template.size, 1) - (ddof if correction is None else correction)
    if n <= 0:
        raise CannotLowerError("NumPy warns where no degree of freedom is left")
    return builder.ufunc(np.true_divide, (total, n))


@lowers("std")
def std(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """Lower to the square root of the variance."""
    return builder.ufunc(np.sqrt, (var(builder, spec, **arguments),))


MOST_SEARCHED = 1 << 10         # elements. For more, NumPy's single pass is faster than the four steps here


def _search_rule(extreme: np.ufunc) -> Rule:
    def rule(builder: Builder, spec: Any, a: Any, axis: int | None = None, keepdims: bool = False) -> Value:
        """Lower to the smallest position of an extreme element, or of a NaN."""
        a = builder.as_value(a)
        if a.dtype.kind not in "iuf" or not 0 < a.template.size <= MOST_SEARCHED or a.constant is not None:
            raise CannotLowerError("NumPy's search is faster, the numbers are not real, or the values are known")
        if axis is None or not a.shape:
            a, axis = reshape(builder, Shape((a.template.size,)), a), 0
        if any(stride < 0 for stride in a.template.strides):
            a = builder.copied(a)
        found = builder.ufunc(np.equal, (a, reduced(builder, extreme, None, a, axis, True)))
        if a.dtype.kind == "f":
            found = builder.ufunc(np.logical_or, (found, builder.ufunc(np.not_equal, (a, a))))
        n = a.shape[axis]
        positions = np.arange(n, dtype=spec.dtype).reshape((-1, *[1] * (len(a.shape) - 1 - axis % len(a.shape))))
        chosen = builder.elementwise(("choose", spec.dtype.itemsize), [
            found, builder.constant(positions), builder.constant(np.asarray(n, spec.dtype))],
            builder.fresh(a.shape, spec.dtype), "where")
        first = reduced(builder, np.minimum, None, chosen, axis, keepdims)
        return builder.viewed(first, lambda array: array.reshape(spec.shape))

    return rule


lowers("argmax")(_search_rule(np.maximum))
lowers("argmin")(_search_rule(np.minimum))


def _accumulation_rule(function: np.ufunc) -> Rule:
    def rule(builder: Builder, spec: Any, a: Any, axis: int | None = None, dtype: Any = None) -> Value:
        """Lower to a copy of the first layer, and a loop that reads the previous layer of its result."""
        a = builder.cast(builder.as_value(a), spec.dtype)
        if axis is None:
            a, axis = reshape(builder, Shape((a.template.size,)), a), 0
        loop = "ufunc", function, (a.dtype.num,) * 3
        check_loop(loop)
        if not a.template.size or not a.shape or a.constant is not None:
            raise CannotLowerError("it is over no elements, of a single one, or known")
        if a.dtype.kind == "c" and function is np.multiply:
            raise CannotLowerError("NumPy's loop for products of complex numbers rounds by the layout")
        axis = normalize_axis_index(axis, len(a.shape))

        def layers(array: Array, *bounds: int | None) -> Array:
            return array[(*[slice(None)] * axis, slice(*bounds))]

        result = builder.fresh(a.shape, a.dtype)
        builder.copy_into(result.viewed(layers(result.template, 1)), builder.viewed(a, lambda array: layers(array, 1)))
        if a.shape[axis] > 1:
            before, after = (result.viewed(layers(result.template, *part)) for part in ((None, -1), (1, None)))
            terms = builder.viewed(a, lambda array: layers(array, 1, None))
            # behind an axis of length 1: rows depend on earlier rows, so blocks must not share them
            builder.add_loop(loop, (before, terms, after), (1, *terms.shape) if axis == 0 else terms.shape,
                             f"{function.__name__}.accumulate", is_elementwise=False)
        return result

    return rule


lowers("cumsum")(_accumulation_rule(np.add))
lowers("cumprod")(_accumulation_rule(np.multiply))


def depends_on_order(function: np.ufunc, dtype: np.dtype[Any]) -> bool:
    """Return whether a reduction rounds, so that its bits depend on the order of the elements."""
    return function in (np.add, np.multiply) and dtype.kind in "fc"


def counts(function: np.ufunc, a: Value, dtype: np.dtype[Any]) -> bool:
    """Return whether a sum of truth values fits a dtype exactly, in any order."""
    return function is np.add and a.dtype.kind == "b" and a.template.size <= 1 / np.finfo(dtype).eps


def reduced(
    builder: Builder, function: np.ufunc, identity: Any, a: Value, axis: Any, keepdims: bool
) -> Value:
    """Reduce by a universal function in NumPy's order: along the axis of the smallest stride first."""
    shape, of_a = a.shape, a.template.strides
    n = len(shape)
    if not a.template.size or min(of_a, default=0) < 0:
        raise CannotLowerError("it is over no elements, or along a negative stride")
    if axis is None:
        axes = tuple(range(n))
    elif type(axis) is int and -n <= axis < n:
        axes = axis % n,
    else:
        axes = normalize_axis_tuple(axis if isinstance(axis, (tuple, list)) else (axis,), n)
    loop = "ufunc", function, (a.dtype.num,) * 3
    check_loop(loop)
    kept_shape = tuple([1 if axis in axes else extent for axis, extent in enumerate(shape)])
    if builder.can_fold([a], kept_shape, a.dtype):
        return builder.fold(lambda array: function.reduce(array, axis=axes, dtype=a.dtype, keepdims=keepdims), a)
    order = sorted(range(n), key=lambda axis: -of_a[axis])
    if n > 1 and depends_on_order(function, a.dtype):
        _, joined = coalesced([shape[axis] for axis in order],
                              [[of_a[axis] for axis in order], [axis not in axes for axis in order]])
        if len(joined) > 1 and not (joined[-1][1] or joined[-2][1]):
            raise CannotLowerError("NumPy joins axes that lie apart in memory")
    result = builder.fresh(kept_shape, a.dtype)
    if identity is None:
        first = tuple([slice(0, 1) if axis in axes else slice(None) for axis in range(len(a.shape))])
        builder.copy_into(result, builder.viewed(a, lambda array: array[first]))
    else:
        builder.copy_into(result, builder.constant(np.asarray(identity, a.dtype)))
    of_result = result.template.strides
    strides = tuple([0 if axis in axes else of_result[axis] for axis in order])
    builder.steps.append(LoopStep(
        loop, (result, a, result), tuple([shape[axis] for axis in order]),
        (strides, tuple([of_a[axis] for axis in order]), strides), f"{function.__name__}.reduce", builder.site,
        is_elementwise=False))
    if keepdims:
        return result
    return builder.viewed(result, lambda array: array.reshape(
        [extent for axis, extent in enumerate(kept_shape) if axis not in axes]))


# --- products of matrices --------------------------------------------------------------------------------------------


def matmul(builder: Builder, spec: Any, x1: Any, x2: Any) -> Value:
    """Lower to NumPy's loop for products of matrices, which calls BLAS for each."""
    if not isinstance(x1, Value) or not isinstance(x2, Value):
        raise CannotLowerError("an operand is a number")
    loop = "ufunc", np.matmul, (spec.dtype.num,) * 3
    check_loop(loop)
    left, right = builder.cast(x1, spec.dtype), builder.cast(x2, spec.dtype)
    if any(value.template.size == 0 for value in (left, right)):
        raise CannotLowerError("an operand is empty")
    result = builder.fresh(spec.shape, spec.dtype)
    one, other, product = left.template, right.template, result.template
    has_rows, has_columns = one.ndim > 1, other.ndim > 1
    sizes = (one.shape[-2] if has_rows else 1, one.shape[-1], other.shape[-1] if has_columns else 1)
    core = (
        one.strides[-2] if has_rows else 0, one.strides[-1],
        other.strides[-2] if has_columns else other.strides[-1], other.strides[-1] if has_columns else 0,
        product.strides[-1 - has_columns] if has_rows else 0, product.strides[-1] if has_columns else 0,
    )
    batch = spec.shape[: len(spec.shape) - has_rows - has_columns]
    strides = tuple([
        batch_strides(array, n_core, len(batch))
        for array, n_core in ((one, 1 + has_rows), (other, 1 + has_columns), (product, has_rows + has_columns))])
    builder.steps.append(LoopStep(
        loop, (left, right, result), batch, strides, "matmul", builder.site, core_sizes=sizes, core_strides=core,
        is_elementwise=False))
    return result


@lowers("covariance")
def covariance(builder: Builder, spec: Any, a: Any, divisor: Any) -> Value:
    """Lower to the product of the centred rows and their adjoint."""
    a = builder.as_value(a)
    apart = builder.ufunc(np.subtract, (a, average(builder, spec, a, -1, keepdims=True)))
    other = builder.viewed(apart, lambda array: array.mT)
    if a.dtype.kind == "c":
        other = builder.ufunc(np.conjugate, (other,))
    return builder.ufunc(np.true_divide, (matmul(builder, spec, apart, other), divisor))


def batch_strides(array: Array, n_core: int, n: int) -> tuple[int, ...]:
    """Return the strides of an array along `n` axes of a batch, to which all but its last axes are broadcast."""
    n_own = array.ndim - n_core
    return (0,) * (n - n_own) + tuple([
        0 if extent == 1 else stride
        for extent, stride in zip(array.shape[:n_own], array.strides[:n_own], strict=True)])
