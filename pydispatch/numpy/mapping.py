"""Functions that call a user's function for slices or elements. For Tensors they do so by `vmap`.

A function that reads values (`x * x if x > 0 else -x`) is called in a loop, as NumPy calls it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import Tensor, is_array
from pydispatch._loading import deferred
from pydispatch.exceptions import ConversionError, DataDependentError, VmapError
from pydispatch.numpy.creation import made
from pydispatch.numpy.declare import array_function, as_nonscalar, entered, holds_arrays_of_others, stacked
from pydispatch.operators.layouts import in_c_order, laid_out_as_in_loop
from pydispatch.ops import ops

vmap = deferred("func", "vmap")


def of_each_example(function: Callable[..., Any], batches: list[Any]) -> Any:
    """Call the function on each example of the batches, and stack the results.

    If it returns tuples, each of their items is stacked.
    """
    try:
        return vmap(function)(*batches)
    except (ConversionError, DataDependentError, VmapError):    # the function reads values, which are known in a loop
        found = [function(*examples) for examples in zip(*batches, strict=True)]
    like = next((batch for batch in batches if isinstance(batch, Tensor)), None)
    if isinstance(found[0], tuple):
        return tuple([made(stacked(parts), like) for parts in zip(*found, strict=True)])
    return made(stacked(found), like)


@array_function()
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply the function to every vector along an axis.

    One call serves all vectors, if the function is made of operators.
    """
    arr = as_nonscalar(arr)
    axis = normalize_axis_index(axis, arr.ndim)
    moved = ops.np.moveaxis(arr, axis, -1)
    shape = tuple(moved.shape[:-1])
    if 0 in shape:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    rows = ops.np.reshape(moved, (math.prod(shape), moved.shape[-1]))
    found = of_each_example(lambda row: as_nonscalar(func1d(row, *args, **kwargs)), [rows])
    each = tuple(found.shape[1:])
    found = ops.np.reshape(in_c_order(ops.np.copy(found) if _core.have_one_memory(found, arr) else found), shape + each)
    n, k = len(shape), len(each)
    return ops.np.transpose(found, (*range(axis), *range(n, n + k), *range(axis, n)))


@array_function()
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    """Apply a function of an array and an axis for each axis in turn."""
    result = as_nonscalar(a)
    ndim = result.ndim
    for axis in np.atleast_1d(np.asarray(axes)).tolist():
        axis = axis + ndim if axis < 0 else axis
        found = func(result, axis)
        if found.ndim != ndim:
            found = ops.np.expand_dims(found, axis)
            if found.ndim != ndim:
                raise ValueError("function is not returning an array of the correct shape")
        result = found
    return result


class vectorize:    # noqa: N801  NumPy's name
    """Turn a function of elements into a function of arrays that broadcast.

    For NumPy arrays it is `numpy.vectorize`. For Tensors it is a `vmap`: `pyfunc` is called once, if it is made of
    operators.

    Parameters
    ----------
    pyfunc : callable, optional
        The function of elements. Without it, the object is a decorator.
    otypes : str or list of dtypes, optional
        The dtypes of the results.
    doc : str, optional
        The docstring of the function.
    excluded : set of str or int, optional
        Names or positions of arguments that are passed on as they are.
    cache : bool, optional
        Whether `numpy.vectorize` caches the first call.
    signature : str, optional
        The axes that the function works on, such as "(m,n),(n)->(m)".

    Examples
    --------
    >>> import pydispatch.numpy as np
    >>> from pydispatch import Tensor
    >>> norm = np.vectorize(lambda v: (v * v).sum(), signature="(n)->()")
    >>> norm(Tensor([[1.0, 2.0], [3.0, 4.0]])).numpy()
    array([ 5., 25.])
    """

    def __init__(self, pyfunc: Any = None, otypes: Any = None, doc: str | None = None, excluded: Any = None,
                 cache: bool = False, signature: str | None = None) -> None:
        self.options = {"otypes": otypes, "doc": doc, "excluded": excluded, "cache": cache, "signature": signature}
        self.pyfunc = pyfunc
        if pyfunc is not None:
            self.numpys = np.vectorize(pyfunc, **self.options)
            self.__name__, self.__doc__ = getattr(pyfunc, "__name__", "vectorized"), self.numpys.__doc__
        self.excluded = frozenset(excluded or ())
        self.dtypes = None if otypes is None else list(map(np.dtype, otypes))
        self.core_ndims = core_ndims(signature)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is None:         # used as a decorator with options
            return vectorize(*args, **self.options)
        if not holds_arrays_of_others([*args, *kwargs.values()]):
            result = self.numpys(*args, **kwargs)
            return result if any(map(is_array, (*args, *kwargs.values()))) else entered(result)
        return self.on_tensors(args, kwargs)

    def on_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function on all elements at once."""
        names = [*range(len(args)), *kwargs]
        values = [*args, *kwargs.values()]
        batched = [i for i, name in enumerate(names) if name not in self.excluded]
        arrays = [as_nonscalar(values[i]) for i in batched]
        ndims = self.core_ndims or [0] * len(arrays)
        loops = [tuple(x.shape[:x.ndim - k]) for x, k in zip(arrays, ndims, strict=True)]
        shape = np.broadcast_shapes(*loops)
        n = math.prod(shape)
        batches = []
        for x, k in zip(arrays, ndims, strict=True):
            core = tuple(x.shape[x.ndim - k:])
            batches.append(ops.np.reshape(ops.np.broadcast_to(x, shape + core), (n, *core)))

        def one(*examples: Any) -> Any:
            call = list(values)
            for i, example in zip(batched, examples, strict=True):
                call[i] = example
            found = self.pyfunc(*call[:len(args)], **dict(zip(kwargs, call[len(args):], strict=True)))
            return tuple(map(as_nonscalar, found)) if isinstance(found, tuple) else as_nonscalar(found)

        found = of_each_example(one, batches)
        several = found if isinstance(found, tuple) else (found,)
        dtypes = [x.dtype for x in several] if self.dtypes is None else self.dtypes
        results = [ops.np.reshape(x if x.dtype == dtype else ops.np.astype(x, dtype), shape + tuple(x.shape[1:]))
                   for x, dtype in zip(several, dtypes, strict=True)]
        results = [laid_out_as_in_loop(x, *arrays) if self.core_ndims is None else in_c_order(x) for x in results]
        return tuple(results) if isinstance(found, tuple) else results[0]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else lambda *args, **kwargs: self(instance, *args, **kwargs)


def core_ndims(signature: str | None) -> list[int] | None:
    """Return the number of axes of each argument that a function with this signature takes."""
    if signature is None:
        return None
    return [len([name for name in term.split(",") if name.strip()])
            for term in re.findall(r"\(([^()]*)\)", signature.partition("->")[0])]
