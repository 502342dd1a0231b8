"""`grad`, `value_and_grad` and `vjp`: reverse mode as a transform.

Each call is a level of its own: its values record on the tape of that level, backward runs at the level below, so
transforms nest in any order and never see each other's tapes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Grad, Tensor
from pydispatch.autograd.values import as_raw_constant
from pydispatch.exceptions import AutogradError
from pydispatch.func.values import (
    as_passed,
    check_aux,
    check_differentiable,
    check_no_wrapper,
    enter_arguments,
    enter_constants,
    leave_aux,
)
from pydispatch.ops import ops
from pydispatch.tree import tree_flatten, tree_unflatten


def grad(func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which must return one real number as a 0-d array.

    `argnums` says which positional arguments to differentiate with respect to: an int, or a tuple of ints for a tuple
    of gradients. With `has_aux`, `func` returns (value, aux) and the result is (gradient, aux). A gradient has the
    shape and dtype of its argument, and is a raw array where that is one.
    """
    @functools.wraps(func)
    def gradient_of(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        _, aux, gradients = _differentiate(func, args, kwargs, argnums, has_aux, (frame.f_code, frame.f_lineno))
        return (gradients, aux) if has_aux else gradients

    return gradient_of


def value_and_grad(
    func: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives (value, gradient) of `func`; with `has_aux`, ((value, aux), gradient)."""

    @functools.wraps(func)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        value, aux, gradients = _differentiate(func, args, kwargs, argnums, has_aux, (frame.f_code, frame.f_lineno))
        value = as_passed(value, args)
        return ((value, aux) if has_aux else value), gradients

    return value_and_gradient


def _differentiate(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], argnums: Any, has_aux: bool, site: Any
) -> tuple[Any, Any, Any]:
    """(value, aux, gradients): the aux and the gradients as they are handed out."""
    positions = (argnums,) if type(argnums) is int and 0 <= argnums < len(args) else positions_of(argnums, len(args))
    value, aux, found, level = _core.value_and_gradients(func, args, kwargs, positions, has_aux, site)
    gradients = tuple([
        gradient if type(gradient) is np.ndarray and type(args[i]) is np.ndarray else _gradient(gradient, args[i])
        for gradient, i in zip(found, positions, strict=True)
    ])
    if has_aux:
        aux = leave_aux(aux, level, args)
    return value, aux, gradients[0] if isinstance(argnums, int) else gradients


@functools.lru_cache(maxsize=256, typed=True)
def _known_positions(argnums: tuple[int, ...], n: int) -> tuple[int, ...]:
    return _positions_of(argnums, n)


def positions_of(argnums: Any, n: int) -> tuple[int, ...]:
    """The positions that `argnums` names, none negative; raises AutogradError for what names none, or one twice."""
    return _known_positions(argnums, n) if type(argnums) is tuple else _positions_of(argnums, n)


def _positions_of(argnums: Any, n: int) -> tuple[int, ...]:
    given = (argnums,) if isinstance(argnums, int) and not isinstance(argnums, bool) else argnums
    if not isinstance(given, tuple) or not given or not all(type(i) is int for i in given):
        raise AutogradError(f"argnums is {argnums!r}, expected an int or a tuple of ints, not empty\nwrite argnums=0")
    if any(not -n <= i < n for i in given):
        raise AutogradError(f"argnums is {argnums!r}, but there are {n} positional arguments\n"
                            "pass the arguments to differentiate by position")
    positions = tuple([i % n for i in given])
    if len(set(positions)) < len(positions):
        raise AutogradError(f"argnums {argnums!r} names an argument twice\nname each once")
    return positions


def check_scalar(output: Any) -> None:
    """Raise AutogradError unless this is one real number as a 0-d array."""
    check_no_wrapper("grad", output)
    if not _core.is_array(output):
        raise AutogradError(f"grad: the function returned a {type(output).__name__}, expected one real number as a 0-d "
                            "array\nreturn a Tensor; with more to return, pass has_aux=True and return (value, aux)")
    if tuple(output.shape) != ():
        raise AutogradError(f"grad: the function returned an array of shape {tuple(output.shape)}, expected one real "
                            "number as a 0-d array\nreturn a sum, or use vjp")
    if output.dtype.kind != "f":
        raise AutogradError(f"grad: the function returned a value of dtype {output.dtype}, expected a real "
                            "floating-point one\nreturn abs(value) ** 2 of a complex value, or use vjp")


def _one_like(value: Any) -> Any:
    bottom = _core.bottom_array(value) if isinstance(value, Tensor) else value
    return _core.one_of(value.dtype) if isinstance(bottom, np.ndarray) else ops.np.ones_like(value)


def _gradient(gradient: Any, argument: Any) -> Any:
    """The gradient as it is handed out: in memory of its own, a raw array for a raw argument."""
    if gradient is None:
        gradient = ops.np.zeros_like(_constant(argument))
    return as_passed(gradient, (argument,))


def _constant(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`(func(*primals), vjp_fn)`: `vjp_fn(cotangents)` gives one gradient per primal, as often as it is called.

    The cotangents are nested as the output is, each of the shape of its output. A raw output may be what an operator
    saved, so writing to it changes what `vjp_fn` gives. With `has_aux`, `func` returns
    (output, aux), and the result is (output, vjp_fn, aux).
    """
    frame = sys._getframe(1)
    level = Grad("vjp", (frame.f_code, frame.f_lineno))
    positions = tuple(range(len(primals)))
    for position in positions:
        check_differentiable("vjp", primals[position], position)
    _core.enter_level(level)
    try:
        entered = enter_arguments(level, primals, positions)
        output, aux = check_aux("vjp", func(*entered), has_aux)
        leaves, spec = tree_flatten(output)
        _check_outputs("vjp", leaves)
        edges = [_core.edge_of_tensor(leaf) if _core.is_tracked_at(leaf, level) else None for leaf in leaves]
    finally:
        _core.leave_level(level)
    targets = tuple([_core.edge_of_tensor(primal) for primal in entered])
    below = [_core.value_below(leaf, level) for leaf in leaves]
    given = primals or (None,)

    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        sent = _cotangents(cotangents, below, spec)
        pairs = [(edge, value) for edge, value in zip(edges, sent, strict=True) if edge is not None]
        found = [None] * len(targets)
        if pairs and targets:
            found = _core.run_backward(tuple([edge for edge, _ in pairs]), tuple([value for _, value in pairs]),
                                       create_graph=False, keep_graph=True, inputs=targets, level=level)
        return tuple([_gradient(gradient, primal) for gradient, primal in zip(found, primals, strict=True)])

    result = tree_unflatten([as_passed(leaf, given) for leaf in below], spec)
    if has_aux:
        return result, vjp_fn, leave_aux(aux, level, given)
    return result, vjp_fn


def _check_outputs(name: str, leaves: list[Any]) -> None:
    if not leaves:
        raise AutogradError(f"{name}: the function returned no array\nreturn at least one")
    for i, leaf in enumerate(leaves):
        check_no_wrapper(name, leaf)
        if not _core.is_array(leaf):
            raise AutogradError(f"{name}: output {i} is a {type(leaf).__name__}, expected an array\n"
                                "return arrays only; what is not to be differentiated goes into aux: has_aux=True")
        if leaf.dtype.kind not in "fc":
            raise AutogradError(f"{name}: output {i} has dtype {leaf.dtype}, expected a floating-point or complex one\n"
                                "return it as aux: has_aux=True")


def _cotangents(cotangents: Any, outputs: list[Any], spec: Any) -> list[Any]:
    leaves, found = tree_flatten(cotangents)
    if found != spec:
        raise AutogradError("vjp: the cotangents are not nested as the output is: expected "
                            f"{len(outputs)} in {_kind(spec)}, found {len(leaves)} in {_kind(found)}\n"
                            "pass one cotangent per output, nested in the same way")
    sent = []
    for i, (cotangent, output) in enumerate(zip(leaves, outputs, strict=True)):
        if not _core.is_array(cotangent):
            raise AutogradError(f"vjp: cotangent {i} is a {type(cotangent).__name__}, expected an array\n"
                                "pass numpy.asarray(...)")
        if tuple(cotangent.shape) != tuple(output.shape):
            raise AutogradError(f"vjp: cotangent {i} has shape {tuple(cotangent.shape)}, the output has shape "
                                f"{tuple(output.shape)}\npass one of the shape of the output")
        if cotangent.dtype.kind == "c" and output.dtype.kind != "c":
            raise AutogradError(f"vjp: cotangent {i} is complex, the output has dtype {output.dtype}\npass a real one")
        sent.append(as_raw_constant(cotangent if cotangent.dtype == output.dtype else cotangent.astype(output.dtype)))
    return sent


def _kind(spec: Any) -> str:
    return "an array" if spec.type is None else f"a {spec.type.__name__}"


_core.connect(enter_constants=enter_constants, check_differentiable=check_differentiable, check_aux=check_aux,
              check_scalar=check_scalar, one_like=_one_like)
