"""Universal functions that are operators, with the methods `reduce`, `accumulate`, `outer`, `at` and `reduceat`.

Source: NEP 13, "A mechanism for overriding Ufuncs".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import ArrayFunction, is_array
from pydispatch._registry.operators import packet
from pydispatch.numpy.declare import (
    ABSENT,
    CONSTANT,
    FUNCTIONS,
    NUMPY,
    OPERATOR,
    Adapter,
    as_array,
    as_indices,
    as_key,
    as_nonscalar,
    declare,
    into,
    known_values,
)
from pydispatch.numpy.in_place import check_target
from pydispatch.numpy.indexing import unravel_index
from pydispatch.operators import DECLARATIONS
from pydispatch.operators.layouts import laid_out_as_in_loop, laid_out_like
from pydispatch.ops import ops
from pydispatch.schema.base_types import as_dtype

REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}
ACCUMULATIONS = {"add": "cumsum", "multiply": "cumprod"}


def declare_universal_functions() -> None:
    """Declare each universal function of NumPy that is an operator."""
    for name, declaration in DECLARATIONS.items():
        numpy_function = getattr(np, name, None)
        if isinstance(numpy_function, np.ufunc) and name not in FUNCTIONS:
            constant = not (declaration.differentiable and (declaration.vjp or declaration.differentiated_as))
            function = declare(name, Adapter(NUMPY, name, numpy_function), CONSTANT if constant else OPERATOR,
                               operator=packet("np", name), n_arrays=numpy_function.nin,
                               n_positional=numpy_function.nin)
            add_methods(function, numpy_function)


def add_methods(function: ArrayFunction, ufunc: np.ufunc) -> None:
    """Add the methods of NumPy's universal function to a function: `at` for one argument, all for two."""
    if ufunc.nin in (1, 2) and ufunc.nout == 1 and ufunc.signature is None:
        for name, method in METHODS.items() if ufunc.nin == 2 else [("at", at)]:
            implementation = bound(method, function)
            method_of_function = ArrayFunction(getattr(ufunc, name), implementation)
            method_of_function.__dict__.update(__name__=name, __qualname__=f"{function.__name__}.{name}",
                                               __module__=function.__module__, __doc__=DOCS[name])
            function.__dict__[name] = method_of_function


def bound(method: Callable[..., Any], function: ArrayFunction) -> Callable[..., Any]:
    """Bind a method to one function."""
    return lambda *args, **kwargs: method(function, *args, **kwargs)


def reduce(
    function: ArrayFunction, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = ABSENT, where: Any = True,
) -> Any:
    """Combine the elements along axes, from the first to the last, like `ufunc.reduce`."""
    array = as_nonscalar(array)
    ufunc, name = getattr(np, function.__name__), function.__name__
    check_by_numpy(ufunc.reduce, array, axis, dtype, initial, where)
    of_result, of_elements = loop_dtypes(ufunc, array.dtype, dtype)
    if not array.ndim:
        axis = ()
    is_given = initial is not ABSENT and initial is not None
    operator = FUNCTIONS.get(REDUCTIONS.get(name, ""))
    # `all` of objects is a bool, not one of the objects, and `initial` is not supported
    if operator is not None and not of_result.hasobject and not (is_given and name.startswith("logical_")):
        options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
        if name in ACCUMULATIONS and dtype is not None:
            options["dtype"] = of_result
        elif dtype is not None:
            array = ops.np.astype(array, of_elements)
        if is_given:
            options["initial"] = initial
        if where is not True:
            options["where"] = as_array(where)
        return into(out, operator.on_tensors(array, **options), "unsafe")
    axes = tuple(range(array.ndim)) if axis is None else normalize_axis_tuple(axis, array.ndim)
    if initial is ABSENT and (not of_result.hasobject or 0 in array.shape):
        initial = ufunc.identity
    initial = None if initial is ABSENT or initial is None else ops.np.astype(as_nonscalar(initial), of_result)
    mask = None if where is True else rows_of(ops.np.broadcast_to(as_array(where), tuple(array.shape)), axes)
    result = fold(function, rows_of(ops.np.astype(array, of_elements), axes), initial, mask, of_result)
    if keepdims:
        result = ops.np.reshape(result, tuple([1 if i in axes else n for i, n in enumerate(array.shape)]))
    return into(out, result, "unsafe")


def check_by_numpy(method: Callable[..., Any], array: Any, axis: Any, dtype: Any, *options: Any) -> None:
    """Raise the errors that NumPy raises for an array like this one.

    NumPy is called on an array of at most one element along each axis.
    """
    small = np.ones([min(n, 1) for n in array.shape], array.dtype)
    if options:
        initial, where = options
        given = {} if initial is ABSENT else {"initial": None if initial is None else 1}
        method(small, axis, dtype, where=where is True or np.True_, **given)
    else:
        method(small, axis, dtype)


def loop_dtypes(ufunc: np.ufunc, dtype: np.dtype[Any], given: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the dtypes of results and of elements in the loop by which NumPy reduces elements of this dtype."""
    asked: dict[str, Any] = {} if given is None else {"signature": (as_dtype(given), None, None), "casting": "unsafe"}
    of_result, of_elements, _ = ufunc.resolve_dtypes((None, dtype, None), reduction=True, **asked)
    return of_result, of_elements


def rows_of(array: Any, axes: tuple[int, ...]) -> Any:
    """Return the array with these axes joined as its first one."""
    rest = [i for i in range(array.ndim) if i not in axes]
    shape = (math.prod([array.shape[i] for i in axes]), *[array.shape[i] for i in rest])
    return ops.np.reshape(ops.np.transpose(array, (*axes, *rest)), shape)


def fold(function: ArrayFunction, rows: Any, initial: Any, mask: Any, dtype: np.dtype[Any]) -> Any:
    """Combine `initial`, or else the first row, with the rows selected by `mask`, in order."""
    result = initial
    for i in range(rows.shape[0]):
        row = ops.np.getitem(rows, i)
        if result is None:
            result = ops.np.astype(row, dtype)
            continue
        combined = function.on_tensors(result, row)
        result = combined if mask is None else ops.np.where(ops.np.getitem(mask, i), combined, result)
    shape = tuple(rows.shape[1:])
    return result if tuple(result.shape) == shape else ops.np.copy(ops.np.broadcast_to(result, shape))


def accumulate(function: ArrayFunction, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """Return the results of `reduce` for the first element, the first two, and so on, like `ufunc.accumulate`."""
    array = as_nonscalar(array)
    ufunc = getattr(np, function.__name__)
    check_by_numpy(ufunc.accumulate, array, axis, dtype)
    axis = one_axis(f"{function.__name__}.accumulate", axis, array)
    of_result, of_elements = loop_dtypes(ufunc, array.dtype, dtype)
    operator = FUNCTIONS.get(ACCUMULATIONS.get(function.__name__, ""))
    if operator is not None:
        found = operator.on_tensors(array, axis=axis, dtype=None if dtype is None else of_result)
        return into(out, found, "unsafe")
    array = ops.np.astype(array, of_elements)
    results: list[Any] = []
    for i in range(array.shape[axis]):
        part = ops.np.take(array, i, axis)
        results.append(part if not results else function.on_tensors(results[-1], part))
    return into(out, laid_out_like(ops.np.stack(results, axis), array) if results else array, "unsafe")


def one_axis(name: str, axis: int | None, array: Any) -> int:
    """Return the axis as a number from 0 on. None means the only axis of a vector."""
    if axis is None and array.ndim > 1:
        raise ValueError(f"{name} does not allow multiple axes")
    return normalize_axis_index(axis or 0, array.ndim)


def outer(function: ArrayFunction, x1: Any, x2: Any, /, **kwargs: Any) -> Any:
    """Apply the function to every pair of elements, like `ufunc.outer`."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    return function.on_tensors(ops.np.reshape(x1, (*x1.shape, *(1,) * x2.ndim)), x2, **kwargs)


def at(function: ArrayFunction, array: Any, indices: Any, *values: Any) -> None:
    """Write the function of the elements at the indices and the values, one pair after another, like `ufunc.at`."""
    if len(values) != function.__dict__["nin"] - 1:
        raise ValueError(f"{function.__name__}.at takes {function.__dict__['nin'] + 1} arguments: an array, "
                         "indices and values")
    if not is_array(array):
        raise TypeError("first operand must be array")
    key, values = as_key(indices), tuple(map(as_array, values))
    check_target(array, key, *values)
    if not selects_by_arrays(key):
        write_function(function, array, key, copied_item, ops.np.setitem_, values)
    elif function.__name__ == "add":
        ops.np.index_put_(array, key, values[0], accumulate=True)
    elif function.__name__ == "subtract" and array.dtype.kind in "fciu":
        ops.np.index_put_(array, key, ops.np.negative(as_nonscalar(values[0])), accumulate=True)
    else:
        places = ops.np.index(np.arange(array.size).reshape(tuple(array.shape)), key)
        values = tuple([ops.np.ravel(ops.np.broadcast_to(value, tuple(places.shape))) for value in values])
        places = ops.np.ravel(places)
        if function.__name__ in EXTREMES and values[0].dtype == array.dtype:
            groups = [combined_at_places(function, places, values[0])]
        else:
            groups = [(ops.np.index(places, chosen), tuple([ops.np.index(value, chosen) for value in values]))
                      for chosen in apart(places)]
        for places, values in groups:
            place = unravel_index(places, tuple(array.shape))
            write_function(function, array, place, ops.np.index, ops.np.index_put_, values)


EXTREMES = frozenset(("maximum", "minimum", "fmax", "fmin"))     # exact in any grouping


def combined_at_places(function: ArrayFunction, places: Any, values: Any) -> tuple[Any, tuple[Any]]:
    """Sort the values by their positions. Return the positions, and each value combined with those before it there.

    Each round combines twice as many as the round before, so few rounds do, also for unknown positions.
    """
    known = known_values(places)
    most = places.shape[0] if known is None else int(np.bincount(known).max(initial=0))
    order = ops.np.argsort(places, stable=True) if known is None else np.argsort(known, kind="stable")
    places, values = ops.np.index(places, order), ops.np.index(values, order)
    distance = 1
    while distance < most:
        later, before = slice(distance, None), slice(None, -distance)
        at_same = ops.np.equal(ops.np.getitem(places, later), ops.np.getitem(places, before))
        last = ops.np.getitem(values, later)
        both = ops.np.where(at_same, function.on_tensors(ops.np.getitem(values, before), last), last)
        values = ops.np.concatenate((ops.np.getitem(values, slice(distance)), both))
        distance *= 2
    return places, (values,)


def selects_by_arrays(key: Any) -> bool:
    """Return whether this key contains index arrays or masks. NumPy integers do not count as arrays."""
    return any((is_array(item) and not isinstance(item, np.integer)) or isinstance(item, bool)
               for item in (key if isinstance(key, tuple) else (key,)))


def copied_item(array: Any, key: Any) -> Any:
    """Return a copy of the elements that a basic key selects, which later writes do not change."""
    return ops.np.copy(ops.np.getitem(array, key))


def write_function(
    function: ArrayFunction, array: Any, key: Any, read: Any, write: Any, values: tuple[Any, ...]
) -> None:
    """Write the function of the elements at a key and of the values to that key. `at` casts to any dtype."""
    found = as_nonscalar(function.on_tensors(read(array, key), *values))
    write(array, key, ops.np.astype(found, array.dtype))


def apart(places: Any) -> list[np.ndarray]:
    """Group the numbers of positions so that no group contains a position twice.

    The first number of each position is in the first group. Where the positions are unknown, every group has one
    number.
    """
    known, n = known_values(places), places.shape[0]
    if known is None:
        return list(np.arange(n).reshape(n, 1))
    order = np.argsort(known, kind="stable")
    starts = np.flatnonzero(np.diff(known[order], prepend=-1))
    times = np.empty(n, np.intp)        # how often the position occurred before
    times[order] = np.arange(n) - np.repeat(starts, np.diff(starts, append=n))
    return np.split(np.argsort(times, kind="stable"), np.cumsum(np.bincount(times))[:-1]) if n else []


def reduceat(
    function: ArrayFunction, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:
    """Reduce the slices that start at the indices and end at the next one, like `ufunc.reduceat`."""
    array, starts = as_nonscalar(array), as_indices(indices)
    axis = one_axis(f"{function.__name__}.reduceat", axis, array)
    ufunc: Any = function.numpy_function
    # the dtype of the loop, or NumPy's error if there is none
    dtype = ufunc.reduceat(np.ones(1, array.dtype), [0], dtype=dtype).dtype
    n, rows = array.shape[axis], ops.np.astype(ops.np.moveaxis(array, axis, -1), dtype)
    known = known_values(starts)
    if ufunc is np.add:
        found = ops.np.slice_sums(rows, starts, -1)
    elif known is None:
        found = reduce_unknown(function, rows, starts)
    else:
        places = known.tolist()
        for start in places:
            if not 0 <= start < n:
                raise IndexError(f"index {start} out-of-bounds in {function.__name__}.reduceat [0, {n})")
        slices = [ops.np.getitem(rows, (..., slice(start, max(end, start + 1))))
                  for start, end in zip(places, [*places[1:], n], strict=False)]
        parts = [reduce(function, part, -1, dtype, initial=None) for part in slices]
        found = ops.np.stack(parts, -1) if parts else ops.np.zeros_like(rows, shape=(*rows.shape[:-1], 0))
    found = ops.np.moveaxis(ops.np.astype(found, dtype), -1, axis)
    first = ops.np.getitem(array, (*(slice(None),) * axis, slice(1)))
    along = np.empty(tuple([extent if i == axis else 1 for i, extent in enumerate(found.shape)]), np.intp)
    return into(out, laid_out_as_in_loop(found, first, along), "unsafe")


def reduce_unknown(function: ArrayFunction, rows: Any, starts: Any) -> Any:
    """Reduce along the last axis like `reduceat` with unknown indices: in all slices, element by element.

    Where an element is not in a slice, the function receives 1 instead, since it may be singular there.
    """
    n, one = rows.shape[-1], np.ones((), rows.dtype)
    # a negative index is out of bounds here
    starts = ops.np.take(np.arange(n), ops.np.where(ops.np.less(starts, 0), n, starts))
    ends = ops.np.concatenate([ops.np.getitem(starts, slice(1, None)), np.full(min(1, starts.shape[0]), n)])
    result = ops.np.zeros_like(rows, shape=(*rows.shape[:-1], starts.shape[0]))
    for i in range(n):
        element = ops.np.getitem(rows, (..., slice(i, i + 1)))
        follows = ops.np.logical_and(ops.np.less(starts, i), ops.np.less(i, ends))
        combined = function.on_tensors(ops.np.where(follows, result, one), ops.np.where(follows, element, one))
        result = ops.np.where(follows, combined, ops.np.where(ops.np.equal(starts, i), element, result))
    return result


METHODS: dict[str, Callable[..., Any]] = {
    "reduce": reduce, "accumulate": accumulate, "outer": outer, "at": at, "reduceat": reduceat,
}
DOCS = {name: getattr(np.ufunc, name).__doc__ for name in METHODS}     # equal for all, and each access makes a string

declare_universal_functions()
