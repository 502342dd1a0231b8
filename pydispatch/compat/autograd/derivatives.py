"""Vjps and jvps of functions of one argument, and HIPS's conventions, which apply where these are entered and left.

A gradient of HIPS is the conjugate of one of `func`. The gradient of a number is a NumPy scalar, that of an array of
integers an array of floats. A function may return numbers of any kind.
"""

# tests: tests/compat/autograd/test_operators.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from pydispatch import _core, func
from pydispatch._core import Tensor
from pydispatch.compat.autograd.spaces import vspace
from pydispatch.exceptions import AutogradError
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves, tree_map

__all__ = ["make_jvp", "make_vjp", "subval", "subvals"]
ARRAYS = np.ndarray, np.generic, Tensor
Function = Callable[..., Any]


class MisuseError(AutogradError, TypeError):
    """An AutogradError of the function that is being differentiated, which HIPS reports as TypeError."""


def make_vjp(fun: Function, x: Any) -> tuple[Function, Any]:
    """Return the function that pulls a cotangent of `fun(x)` back to `x`, and `fun(x)`."""
    ans, pull = func.vjp(with_floats(fun), enter(x))
    return lambda g: leave(pull(conjugate(as_floats(g)))[0]), as_numbers(ans)


def make_jvp(fun: Function, x: Any) -> Function:
    """Return the function that takes a tangent of `x` and returns `fun(x)` and its tangent."""
    def push(v: Any) -> tuple[Any, Any]:
        ans, tangent = func.jvp(with_floats(fun), (enter(x),), (as_floats(v),))
        return as_numbers(ans), as_numbers(tangent)

    return push


def subvals(x: Iterable[Any], ivs: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Return a tuple with some elements replaced."""
    values = [*x]
    for i, value in ivs:
        values[i] = value
    return (*values,)


def subval(x: Iterable[Any], i: int, v: Any) -> tuple[Any, ...]:
    """Return a tuple with one element replaced."""
    return subvals(x, [(i, v)])


def enter(x: Any) -> Any:
    """Return an argument to differentiate with respect to, with floats for arrays of integers."""
    kind = type(x)
    if kind is np.ndarray and x.dtype.kind in "fc":
        return x
    if kind is float:
        return np.float64(x)
    if isinstance(x, (np.ndarray, Tensor)):
        return ops.np.astype(x, float) if x.dtype.kind in "biu" else x
    return x if isinstance(x, np.generic) else tree_map(_enter_leaf, x)


def _enter_leaf(leaf: Any) -> Any:
    return enter(leaf) if isinstance(leaf, ARRAYS) else leaf


def leave(gradient: Any) -> Any:
    """Return a gradient of `func` as HIPS's."""
    return conjugate(as_numbers(gradient))


def as_numbers(value: Any) -> Any:
    """Return a value with NumPy scalars for arrays without axes."""
    if type(value) is np.ndarray:
        return value if value.ndim else value[()]
    return value if isinstance(value, ARRAYS) else tree_map(_number, value)


def _number(leaf: Any) -> Any:
    return leaf[()] if type(leaf) is np.ndarray and not leaf.ndim else leaf


def conjugate(value: Any) -> Any:
    """Return the conjugates of the complex arrays in a value."""
    if isinstance(value, ARRAYS):
        return ops.np.conjugate(value) if value.dtype.kind == "c" else value
    return value if isinstance(value, float) else tree_map(_conjugate_leaf, value)


def _conjugate_leaf(leaf: Any) -> Any:
    return leaf.conjugate() if isinstance(leaf, (*ARRAYS, complex)) else leaf


def as_floats(value: Any) -> Any:
    """Return a value with floats for numbers of other kinds, which have no derivative."""
    return _as_float(value) if isinstance(value, ARRAYS) else tree_map(_as_float, value)


def _as_float(leaf: Any) -> Any:
    if isinstance(leaf, ARRAYS):
        return leaf if leaf.dtype.kind in "fc" else ops.np.astype(leaf, float)
    if not isinstance(leaf, (int, float, complex)):
        raise TypeError(f"the function returned {_core.a_type(leaf)}, or its vjp was passed it, expected numbers, "
                        "arrays, and lists, tuples and dicts of them\nreturn other values by grad_and_aux")
    return leaf if isinstance(leaf, (float, complex)) else float(leaf)


def called(fun: Function, x: Any) -> Any:
    """Return `fun(x)`. Raise errors of the tape also as TypeError."""
    try:
        return fun(x)
    except AutogradError as error:
        if isinstance(error, TypeError):
            raise
        raise MisuseError(*error.args) from error


def with_floats(fun: Function) -> Function:
    """Return the function with results that `func` can differentiate."""
    def function(x: Any) -> Any:
        output = called(fun, x)
        warn_if_independent(output)
        return as_floats(output)

    return function


def scalar_output(fun: Function, name: str, is_aux: bool = False) -> Function:
    """Return the function of one real number that `fun` is, which also returns its result, or its second, as aux."""
    def function(x: Any) -> tuple[Any, Any]:
        output = called(fun, x)
        value, aux = output if is_aux else (output, output)
        if isinstance(value, Tensor) and value.size == 1 and value.dtype.kind == "f":
            warn_if_independent(value)
            return value, aux
        if isinstance(value, ARRAYS) and value.ndim:
            value = as_floats(value)
        warn_if_independent(value)
        if vspace(value).size != 1:
            raise TypeError(f"{name} only applies to real scalar-output functions, and this one returned "
                            f"{_core.a_type(value)} {value}\ntry jacobian, elementwise_grad or holomorphic_grad")
        return value, aux

    return function


def warn_if_independent(output: Any) -> None:
    """Warn of a result that does not depend on the argument of the innermost function that is being differentiated."""
    interpreter = _core.current_state().innermost
    if isinstance(output, Tensor) and _core.is_owned_by(output, interpreter):
        return
    if not any(isinstance(leaf, Tensor) and _core.is_owned_by(leaf, interpreter) for leaf in tree_leaves(output)):
        warnings.warn("Output seems independent of input.", stacklevel=4)
