"""Universal functions that are operators, with the methods `reduce`, `accumulate`, `outer`, `at` and `reduceat`.

Source: NEP 13, "A mechanism for overriding Ufuncs".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pydispatch._core import ArrayFunction
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import (
    ABSENT,
    CONSTANT,
    FUNCTIONS,
    NUMPY,
    OPERATOR,
    Adapter,
    as_array,
    as_key,
    as_nonscalar,
    declare,
    into,
)
from pydispatch.operators import DECLARATIONS
from pydispatch.ops import ops
from pydispatch.registry.operators import packet

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
            give_attributes(function, numpy_function)
            add_methods(function, numpy_function)


def give_attributes(function: ArrayFunction, ufunc: np.ufunc) -> None:
    """Give a function the attributes of NumPy's universal function."""
    attributes = ("nin", "nout", "nargs", "ntypes", "types", "identity", "signature")
    function.__dict__.update({name: getattr(ufunc, name) for name in attributes})


def add_methods(function: ArrayFunction, ufunc: np.ufunc) -> None:
    """Give a function of two arguments the methods of NumPy's universal function."""
    if ufunc.nin == 2 and ufunc.nout == 1 and ufunc.signature is None:
        for name, method in METHODS.items():
            implementation = bound(method, function)
            method_of_function = ArrayFunction(getattr(ufunc, name), implementation)
            method_of_function.__dict__.update(__name__=name, __qualname__=f"{function.__name__}.{name}",
                                               __module__=function.__module__, __doc__=DOCS[name])
            function.__dict__[name] = method_of_function


def bound(method: Callable[..., Any], function: ArrayFunction) -> Callable[..., Any]:
    """A method, bound to one function."""
    return lambda *args, **kwargs: method(function, *args, **kwargs)


def reduce(
    function: ArrayFunction, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
    initial: Any = ABSENT, where: Any = True,
) -> Any:
    """`ufunc.reduce`: combine the elements along axes, from the first to the last."""
    array = as_nonscalar(array)
    operator = FUNCTIONS.get(REDUCTIONS.get(function.__name__, ""))
    if operator is not None and (array.dtype != object or dtype is not None):   # `all` of objects is a bool, not one
        options: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
        if dtype is not None:
            array = ops.np.astype(array, dtype)
        if function.__name__ not in ("logical_and", "logical_or") and initial is not ABSENT and initial is not None:
            options["initial"] = initial
        if where is not True:
            options["where"] = as_array(where)
        return into(out, operator.on_tensors(array, **options))
    axes = range(array.ndim) if axis is None else normalize_axis_tuple(axis, array.ndim)
    result = array if dtype is None else ops.np.astype(array, dtype)
    for reduced in sorted(axes, reverse=True):
        result = reduce_axis(function, result, reduced, initial, where)
        initial, where = ABSENT, True
        if keepdims:
            result = ops.np.expand_dims(result, reduced)
    return into(out, result)


def reduce_axis(function: ArrayFunction, array: Any, axis: int, initial: Any, where: Any) -> Any:
    """The reduction along one axis, by a call for each of its elements."""
    if where is not True:
        if initial is ABSENT:
            raise ValueError(f"{function.__name__}.reduce: where= needs initial=, as the function has no identity")
        raise DispatchTypeError(f"numpy.{function.__name__}.reduce was called with a Tensor and where=\n"
                                "reduce numpy.where(mask, array, value), with a value that changes nothing")
    parts = [ops.np.take(array, i, axis) for i in range(array.shape[axis])]
    if initial is not ABSENT and initial is not None:
        parts.insert(0, initial)
    elif not parts:
        identity = function.__dict__["identity"]
        if identity is None:
            raise ValueError(f"zero-size array to reduction operation {function.__name__} which has no identity")
        shape = array.shape[:axis] + array.shape[axis + 1:]
        return ops.np.zeros_like(array, shape=shape) + np.asarray(identity, array.dtype)
    result = parts[0]
    for part in parts[1:]:
        result = function.on_tensors(result, part)
    return result


def accumulate(function: ArrayFunction, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
    """`ufunc.accumulate`: the results of `reduce` for the first element, the first two, and so on."""
    array = as_nonscalar(array)
    if dtype is not None:
        array = ops.np.astype(array, dtype)
    operator = FUNCTIONS.get(ACCUMULATIONS.get(function.__name__, ""))
    if operator is not None:
        return into(out, operator.on_tensors(array, axis=axis))
    axis = normalize_axis_index(axis, array.ndim)
    results: list[Any] = []
    for i in range(array.shape[axis]):
        part = ops.np.take(array, i, axis)
        results.append(part if not results else function.on_tensors(results[-1], part))
    return into(out, ops.np.stack(results, axis) if results else ops.np.copy(array))


def outer(function: ArrayFunction, x1: Any, x2: Any, /, **kwargs: Any) -> Any:
    """`ufunc.outer`: the function of every pair of elements."""
    x1, x2 = as_nonscalar(x1), as_nonscalar(x2)
    return function.on_tensors(ops.np.reshape(x1, (*x1.shape, *(1,) * x2.ndim)), x2, **kwargs)


def at(function: ArrayFunction, array: Any, indices: Any, values: Any = None, /) -> None:
    """`ufunc.at`: write the function of the elements at the indices and the values, one pair after the other."""
    key = as_key(indices)
    values = as_array(values)
    if function.__name__ == "add":
        ops.np.index_put_(array, key, values, accumulate=True)
    elif function.__name__ == "subtract":
        ops.np.index_put_(array, key, ops.np.negative(values), accumulate=True)
    else:
        positions = np.arange(array.size).reshape(array.shape)[key]
        values = ops.np.reshape(ops.np.broadcast_to(values, positions.shape), (-1,))
        for i, place in enumerate(np.ravel(positions)):
            at_place = np.unravel_index(place, array.shape)
            array[at_place] = function.on_tensors(array[at_place], values[i])


def reduceat(
    function: ArrayFunction, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Any:
    """`ufunc.reduceat`: reduce the slices that start at the indices and end at the next one."""
    array = as_nonscalar(array)
    axis = normalize_axis_index(axis, array.ndim)
    starts = [int(i) for i in np.asarray(indices)]
    ends = [*starts[1:], array.shape[axis]]
    front = (slice(None),) * axis
    parts = [reduce(function, array[(*front, slice(start, max(end, start + 1)))], axis, dtype)
             for start, end in zip(starts, ends, strict=True)]
    return into(out, ops.np.stack(parts, axis))


METHODS: dict[str, Callable[..., Any]] = {
    "reduce": reduce, "accumulate": accumulate, "outer": outer, "at": at, "reduceat": reduceat,
}
DOCS = {name: getattr(np.ufunc, name).__doc__ for name in METHODS}     # the same for all; each look makes a string

declare_universal_functions()
