"""What operators become in a plan: loops over arrays, or views that cost nothing.

A rule gets the builder and the arguments of a call by name, values and literals, and returns a value or a tuple of
values. It raises CannotLowerError for what it has no loop for; then the plan calls the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy._core import umath
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch.compiling.builder import Builder, CannotLowerError, check_loop
from pydispatch.compiling.values import Array, LoopStep, Value, coalesced
from pydispatch.operators import DECLARATIONS

Rule = Callable[..., Any]
R = TypeVar("R", bound=Rule)

RULES: dict[str, Rule] = {}


def lowers(*names: str) -> Callable[[R], R]:
    """Register the decorated function as the rule of library operators: `rule(builder, spec, **arguments)`.

    `spec` is the ArraySpec of the result. Rules hold for the kernels that the library declares, no others.
    """
    def register(rule: R) -> R:
        for name in names:
            assert name in DECLARATIONS, name
            RULES[name] = rule
        return rule

    return register


# --- views -----------------------------------------------------------------------------------------------------------

VIEWS = ("transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "flip", "broadcast_to")


def _view_rule(name: str) -> Rule:
    kernel = DECLARATIONS[name].kernels["CPU"]

    def rule(builder: Builder, spec: Any, **arguments: Any) -> Value:
        source, *others = arguments.values()        # in order, since none is left out before another
        if not isinstance(source, Value) or any(map(_holds_value, others)):
            raise CannotLowerError("what to view is computed")
        return builder.viewed(source, lambda array: kernel(array, *others))

    return rule


for _name in VIEWS:
    lowers(_name)(_view_rule(_name))


@lowers("reshape", "ravel")
def reshape(builder: Builder, spec: Any, a: Value, shape: Any = None, copy: bool | None = None) -> Value:
    """A view of the array, or of a copy in C order."""
    source = builder.copied(a) if copy else builder.contiguous(a)
    return builder.viewed(source, lambda array: array.reshape(spec.shape))


@lowers("take")
def take(builder: Builder, spec: Any, a: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Value:
    """A gather of layers."""
    _only_defaults({"mode": mode}, mode="raise")
    source = builder.as_value(a)
    if axis is None:
        source, axis = reshape(builder, _Shape((source.template.size,)), source), 0
    return gathered(builder, source, builder.as_value(indices), normalize_axis_index(axis, len(source.shape)))


def gathered(builder: Builder, source: Value, positions: Value, axis: int) -> Value:
    """The layers of an array along an axis at these positions, integers; IndexError for one out of range."""
    if positions.dtype.kind not in "iu" or positions.dtype == np.uint64 or not source.template.size:
        raise CannotLowerError("of these positions")
    source, positions = builder.contiguous(source), builder.contiguous(builder.cast(positions, np.dtype(np.int64)))
    outer, layers, inner = source.shape[:axis], source.shape[axis], source.shape[axis + 1:]
    result = builder.fresh((*outer, *positions.shape, *inner), source.dtype)
    if result.template.size:
        builder.steps.append(LoopStep(
            ("gather",), (source, positions, result), (), ((), (), ()), "take", builder.site,
            core_sizes=(math.prod(outer), positions.template.size, layers, math.prod(inner) * source.dtype.itemsize),
            core_strides=(0,), is_elementwise=False))
    return result


@lowers("getitem")
def getitem(builder: Builder, spec: Any, x: Value, key: Any) -> Value:
    """A view, where the key has no arrays; a gather for one array of integers along the first axis."""
    positions = _only_positions(key)
    if positions is not None and len(x.shape):
        return gathered(builder, x, positions, 0)
    full = _basic_key(key)
    return builder.viewed(x, lambda array: array[full])


def _only_positions(key: Any) -> Value | None:
    """The array of a key that is one array, of which all axes but the first are left whole."""
    parts = key if isinstance(key, tuple) else (key,)
    if parts and isinstance(parts[0], Value) and all(
            part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in parts[1:]):
        return parts[0]
    return None


def _basic_key(key: Any) -> tuple[Any, ...]:
    """A key without arrays, with an Ellipsis, so that NumPy gives a view; CannotLowerError for any other."""
    parts = key if isinstance(key, tuple) else (key,)
    for part in parts:
        if isinstance(part, bool) or _holds_value(part) or not (
                part is None or part is Ellipsis or isinstance(part, (int, slice, np.integer))):
            raise CannotLowerError("elements are gathered")
    return parts if Ellipsis in parts else (*parts, Ellipsis)


@lowers("index")
def index(builder: Builder, spec: Any, x: Value, key: Any) -> Value:
    """A copy of a view, where the key has no arrays; or a gather."""
    return builder.as_value(getitem(builder, spec, x, key))


def _holds_value(value: Any) -> bool:
    if isinstance(value, slice):
        return any(map(_holds_value, (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)):
        return any(map(_holds_value, value))
    return isinstance(value, Value)


@lowers("split")
def split(builder: Builder, spec: Any, **arguments: Any) -> tuple[Value, ...]:
    """Views of the parts."""
    source, *others = arguments.values()
    names = list(arguments)[1:]
    if not isinstance(source, Value) or any(map(_holds_value, others)):
        raise CannotLowerError("where to split is computed")
    kept = dict(zip(names, others, strict=True))
    kernel = DECLARATIONS["split"].kernels["CPU"]

    def part(i: int) -> Value:
        return builder.viewed(source, lambda array: kernel(array, **kept)[i])

    return tuple(map(part, range(len(kernel(source.template, **kept)))))


@lowers("real")
def real(builder: Builder, spec: Any, val: Value) -> Value:
    """A view of a complex array; of a real one, itself."""
    return builder.viewed(val, np.real) if val.dtype.kind == "c" else val


@lowers("imag")
def imag(builder: Builder, spec: Any, val: Value) -> Value:
    """A view of a complex array; of a real one, zeros."""
    if val.dtype.kind == "c":
        return builder.viewed(val, np.imag)
    return builder.constant(np.zeros(val.shape, val.dtype))


@lowers("detach")
def detach(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """The array itself."""
    source, = arguments.values()
    if not isinstance(source, Value):
        raise CannotLowerError("a number")
    return source


# --- copies and casts ------------------------------------------------------------------------------------------------


@lowers("copy")
def copy(builder: Builder, spec: Any, a: Value) -> Value:
    """Nothing: what would write to either of the two arrays is gone."""
    return builder.as_value(a)


@lowers("astype")
def astype(builder: Builder, spec: Any, x: Value, dtype: Any, copy: bool = True) -> Value:
    """A cast; nothing where the dtype is the same."""
    return builder.cast(builder.as_value(x), spec.dtype)


@lowers("concatenate")
def concatenate(
    builder: Builder, spec: Any, arrays: Sequence[Value], axis: int | None = 0, **others: Any
) -> Value:
    """A copy of each array to its place."""
    _only_defaults(others, dtype=None, casting="same_kind")
    result = builder.fresh(spec.shape, spec.dtype)
    if axis is None:
        arrays = [reshape(builder, _Shape((array.template.size,)), array) for array in arrays]
        axis = 0
    axis, start = normalize_axis_index(axis, len(spec.shape)), 0
    for array in arrays:
        stop = start + array.shape[axis]
        place = (*[slice(None)] * axis, slice(start, stop))
        builder.copy_into(result.viewed(result.template[place]), array)
        start = stop
    return result


@lowers("stack")
def stack(builder: Builder, spec: Any, arrays: Sequence[Value], axis: int = 0, **others: Any) -> Value:
    """A copy of each array to its place."""
    _only_defaults(others, dtype=None, casting="same_kind")
    result = builder.fresh(spec.shape, spec.dtype)
    axis = normalize_axis_index(axis, len(spec.shape))
    for i, array in enumerate(arrays):
        place: tuple[Any, ...] = (*[slice(None)] * axis, i, Ellipsis)
        builder.copy_into(result.viewed(result.template[place]), array)
    return result


@lowers("setitem")
def setitem(builder: Builder, spec: Any, x: Value, key: Any, value: Any) -> Value:
    """A copy, of which a part is overwritten; only where the key has no arrays."""
    full = _basic_key(key)
    new = builder.as_value(value) if isinstance(value, Value) else builder.as_value(value, x.dtype)
    part = x.template[full]
    while len(new.shape) > part.ndim and new.shape[0] == 1:
        new = builder.viewed(new, lambda array: array[0])
    if new.dtype.kind == "c" and x.dtype.kind != "c":
        raise CannotLowerError("NumPy warns where an imaginary part is dropped")
    if np.broadcast_shapes(new.shape, part.shape) != part.shape:
        raise CannotLowerError("the shapes differ")
    result = builder.copied(x)
    builder.copy_into(result.viewed(result.template[full]), new)
    return result


class _Shape:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


# --- new arrays ------------------------------------------------------------------------------------------------------


@lowers("zeros", "zeros_like", "empty", "empty_like")
def zeros(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """A constant."""
    return _uniform(builder, spec, builder.constant(np.zeros((), spec.dtype)))


@lowers("ones", "ones_like")
def ones(builder: Builder, spec: Any, **arguments: Any) -> Value:
    """A constant."""
    return _uniform(builder, spec, builder.constant(np.ones((), spec.dtype)))


@lowers("full", "full_like")
def full(builder: Builder, spec: Any, fill_value: Any, **arguments: Any) -> Value:
    """The value, repeated."""
    return _uniform(builder, spec, builder.as_value(fill_value, spec.dtype))


def _uniform(builder: Builder, spec: Any, value: Value) -> Value:
    if spec.dtype.kind not in "biufc":
        raise CannotLowerError("of this dtype")
    return builder.viewed(value, lambda array: np.broadcast_to(array, spec.shape))


# --- elementwise -----------------------------------------------------------------------------------------------------


@lowers("where")
def where(builder: Builder, spec: Any, condition: Any, x: Any, y: Any) -> Value:
    """A choice for each element."""
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
    """The ufunc that NumPy's function calls."""
    _only_defaults(others, dtype=None, casting="same_kind")
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is None and high is None:
        return builder.as_value(a)
    if low is None:
        return builder.ufunc(np.minimum, (a, high))
    if high is None:
        return builder.ufunc(np.maximum, (a, low))
    return builder.ufunc(umath.clip, (a, low, high))     # type: ignore[attr-defined]    # it has no public name


def _only_defaults(given: dict[str, Any], **defaults: Any) -> None:
    for name, value in given.items():
        if name not in defaults or value != defaults[name]:
            raise CannotLowerError(f"of its argument {name}")


def pointwise(builder: Builder, spec: Any, function: np.ufunc, arguments: dict[str, Any]) -> Value:
    """The rule of every operator whose kernel is a ufunc."""
    values = list(arguments.values())[: function.nin]
    _only_defaults(dict(list(arguments.items())[function.nin:]), dtype=None, casting="same_kind")
    if function is np.matmul:
        return matmul(builder, spec, *values)
    return builder.ufunc(function, values)


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
            raise CannotLowerError("of its argument initial or where")
        return reduced(builder, function, identity, builder.as_value(a, spec.dtype), axis, keepdims)

    return rule


for _name in IDENTITIES:
    lowers(_name)(_reduction_rule(_name))


@lowers("mean")
def mean(
    builder: Builder, spec: Any, a: Value, axis: Any = None, dtype: Any = None, keepdims: bool = False,
    where: Any = None,
) -> Value:
    """The sum, divided by the number of elements, as NumPy does it."""
    if where is not None or a.dtype != spec.dtype or a.dtype.char not in "fdFD" or not a.template.size:
        raise CannotLowerError("of these dtypes, or its argument where")
    total = reduced(builder, np.add, 0, a, axis, keepdims)
    return builder.ufunc(np.true_divide, (total, a.template.size // max(total.template.size, 1)))


def reduced(
    builder: Builder, function: np.ufunc, identity: Any, a: Value, axis: Any, keepdims: bool
) -> Value:
    """The reduction by a ufunc in the order of NumPy's: along axes by their strides, the last one in one loop."""
    if not a.template.size or any(stride < 0 for stride in a.template.strides):
        raise CannotLowerError("over no elements, or backward")
    axes = (tuple(range(len(a.shape))) if axis is None else
            normalize_axis_tuple(axis if isinstance(axis, (tuple, list)) else (axis,), len(a.shape)))
    loop = "ufunc", function, (a.dtype.num,) * 3
    check_loop(loop)
    kept_shape = tuple([1 if axis in axes else extent for axis, extent in enumerate(a.shape)])
    if builder.can_fold([a], kept_shape, a.dtype):
        return builder.fold(lambda array: function.reduce(array, axis=axes, dtype=a.dtype, keepdims=keepdims), a)
    result = builder.fresh(kept_shape, a.dtype)
    if identity is None:
        first = tuple([slice(0, 1) if axis in axes else slice(None) for axis in range(len(a.shape))])
        builder.copy_into(result, builder.viewed(a, lambda array: array[first]))
    else:
        builder.copy_into(result, builder.constant(np.asarray(identity, a.dtype)))
    order = sorted(range(len(a.shape)), key=lambda axis: -a.template.strides[axis])
    strides = [0 if axis in axes else result.template.strides[axis] for axis in range(len(a.shape))]
    builder.steps.append(LoopStep(
        loop, (result, a, result), tuple([a.shape[axis] for axis in order]),
        (tuple([strides[axis] for axis in order]), tuple([a.template.strides[axis] for axis in order]),
         tuple([strides[axis] for axis in order])), f"{function.__name__}.reduce", builder.site, is_elementwise=False))
    if keepdims:
        return result
    return builder.viewed(result, lambda array: array.reshape(
        [extent for axis, extent in enumerate(kept_shape) if axis not in axes]))


# --- products of matrices --------------------------------------------------------------------------------------------


def matmul(builder: Builder, spec: Any, x1: Any, x2: Any) -> Value:
    """NumPy's loop for one product after the other, which calls BLAS."""
    if not isinstance(x1, Value) or not isinstance(x2, Value):
        raise CannotLowerError("of numbers")
    loop = "ufunc", np.matmul, (spec.dtype.num,) * 3
    check_loop(loop)
    left, right = builder.cast(x1, spec.dtype), builder.cast(x2, spec.dtype)
    if any(value.template.size == 0 for value in (left, right)):
        raise CannotLowerError("of empty arrays")
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
        _batch_strides(array, n_core, len(batch))
        for array, n_core in ((one, 1 + has_rows), (other, 1 + has_columns), (product, has_rows + has_columns))])
    builder.steps.append(LoopStep(
        loop, (left, right, result), batch, strides, "matmul", builder.site, core_sizes=sizes, core_strides=core,
        is_elementwise=False))
    return result


def _batch_strides(array: Array, n_core: int, n: int) -> tuple[int, ...]:
    n_own = array.ndim - n_core
    return (0,) * (n - n_own) + tuple([
        0 if extent == 1 else stride
        for extent, stride in zip(array.shape[:n_own], array.strides[:n_own], strict=True)])


def elements(step: LoopStep) -> int:
    """About how many elements a run of the step goes through."""
    return max(math.prod(step.shape), 1) * (math.prod(step.core_sizes) if step.core_sizes else 1)


def iteration(step: LoopStep) -> tuple[list[int], list[list[int]], list[int], list[int]]:
    """(extents, strides) of the outer axes, and the sizes and strides that the loop gets."""
    extents, strides = coalesced(step.shape, step.strides)
    return extents[:-1], strides[:-1], [extents[-1], *step.core_sizes], [*strides[-1], *step.core_strides]
