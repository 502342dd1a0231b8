"""A backend for tests: arrays that NumPy cannot read and that do nothing by themselves but to be indexed.

What is computed with them can only have been computed by the functions of `namespace`, which counts its calls.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from pydispatch import register_backend


class LoneArray:
    """A NumPy array, hidden."""

    __slots__ = ("__weakref__", "hidden")
    __hash__ = None
    __array_ufunc__ = None

    def __init__(self, data: Any) -> None:
        self.hidden = np.array(data)

    shape = property(lambda self: self.hidden.shape)
    dtype = property(lambda self: self.hidden.dtype)
    ndim = property(lambda self: self.hidden.ndim)
    size = property(lambda self: self.hidden.size)

    def __getitem__(self, key: Any) -> LoneArray:
        return LoneArray(self.hidden[shown(key)])

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise AssertionError("NumPy read a LoneArray")

    def __array_function__(self, *args: Any) -> Any:
        raise AssertionError("NumPy called a function with a LoneArray")

    def __bool__(self) -> bool:
        raise AssertionError("the library looked at a value")

    def __repr__(self) -> str:
        return f"LoneArray({self.hidden!r})"


CALLS: Counter[str] = Counter()


def shown(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)([shown(each) for each in value])
    return value.hidden if isinstance(value, LoneArray) else value


def hidden(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [hidden(each) for each in value]
    return LoneArray(value)


def calling(name: str, function: Any) -> Any:
    """Return a call of the function that is counted, on what the arrays hide."""
    CALLS[name] += 1

    def call(*args: Any, **options: Any) -> Any:
        return hidden(function(*shown(args), **{key: shown(value) for key, value in options.items()}))

    return call


def unary(name: str) -> Any:
    return lambda x: calling(name, getattr(np, name))(x)


def binary(name: str) -> Any:
    return lambda x1, x2: calling(name, getattr(np, name))(x1, x2)


def reduction(name: str) -> Any:
    def function(x, /, *, axis=None, keepdims=False):
        return calling(name, getattr(np, name))(x, axis=axis, keepdims=keepdims)
    return function


namespace = SimpleNamespace(
    __name__="lone",
    **{name: unary(name) for name in ("negative", "exp", "log", "log1p", "expm1", "sqrt", "tanh", "sin", "cos",
                                      "sign", "floor", "isnan", "logical_not")},
    **{name: binary(name) for name in ("add", "subtract", "multiply", "divide", "pow", "maximum", "minimum", "less",
                                       "less_equal", "equal", "logical_and", "matmul")},
    **{name: reduction(name) for name in ("prod", "max", "min", "any", "all")},
    sum=lambda x, /, *, axis=None, dtype=None, keepdims=False: calling("sum", np.sum)(
        x, axis=axis, dtype=dtype, keepdims=keepdims),
    where=lambda condition, x1, x2, /: calling("where", np.where)(condition, x1, x2),
    reshape=lambda x, /, shape: calling("reshape", np.reshape)(x, shape),
    permute_dims=lambda x, /, axes: calling("permute_dims", np.transpose)(x, axes),
    broadcast_to=lambda x, /, shape: calling("broadcast_to", np.broadcast_to)(x, shape),
    expand_dims=lambda x, /, *, axis: calling("expand_dims", np.expand_dims)(x, axis),
    squeeze=lambda x, /, axis: calling("squeeze", np.squeeze)(x, axis),
    moveaxis=lambda x, source, destination, /: calling("moveaxis", np.moveaxis)(x, source, destination),
    concat=lambda arrays, /, *, axis=0: calling("concat", np.concatenate)(arrays, axis=axis),
    full_like=lambda x, /, fill_value, *, shape=None, dtype=None: calling("full_like", np.full_like)(
        shown(x), fill_value, shape=shape, dtype=dtype),
    zeros=lambda shape, *, dtype=None: calling("zeros", np.zeros)(shape, dtype),
    astype=lambda x, dtype, /: calling("astype", np.astype)(x, dtype),
    argsort=lambda x, /, *, axis=-1, descending=False, stable=True: calling("argsort", np.argsort)(x, axis=axis),
    take_along_axis=lambda x, indices, /, *, axis: calling("take_along_axis", np.take_along_axis)(x, indices, axis),
    linalg=SimpleNamespace(inv=lambda x, /: calling("linalg.inv", np.linalg.inv)(x)),
)


def cumsum(a: Any, axis: Any = None) -> Any:
    return calling("cumsum", np.cumsum)(a, axis)


LONE = register_backend("Lone", LoneArray, namespace=namespace, kernels={"cumsum": cumsum})
