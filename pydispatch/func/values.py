"""Into a level and out of it: what every transform does with its arguments and results."""

from __future__ import annotations

from typing import Any

from pydispatch import _core
from pydispatch._core import Interpreter, Shell, Tensor
from pydispatch.autograd.values import as_raw_constant
from pydispatch.exceptions import AutogradError, NotDifferentiableError
from pydispatch.tree import tree_map


def check_differentiable(name: str, value: Any, position: int) -> None:
    """Raise unless this is a floating-point or complex array."""
    if not _core.is_array(value):
        raise NotDifferentiableError(
            f"{name}: argument {position} is a {type(value).__name__}, expected an array to differentiate with respect "
            "to\npass numpy.asarray(...), or leave it out of argnums"
        )
    if value.dtype.kind not in "fc":
        raise AutogradError(f"{name}: argument {position} has dtype {value.dtype}; only floating-point and complex "
                            "arrays can be differentiated\nconvert it first: array.astype(float)")


def enter_constants(level: Interpreter, value: Any) -> Any:
    """The arrays in a value as constants of a level."""
    return tree_map(lambda leaf: _core.wrap_value_at(level, leaf) if _core.is_array(leaf) else leaf, value)


def enter_arguments(level: Interpreter, args: tuple[Any, ...], chosen: tuple[int, ...]) -> list[Any]:
    """The arguments as values of a level of `grad`, the chosen ones tracked."""
    return [
        _core.tracked_leaf(level, arg) if i in chosen else enter_constants(level, arg)
        for i, arg in enumerate(args)
    ]


def check_no_wrapper(name: str, output: Any) -> None:
    """Raise for a wrapper made inside: what it holds may belong to the transform, which it does not itself."""
    if isinstance(output, Tensor) and isinstance(output.array, Shell):
        raise AutogradError(
            f"{name}: the function returned a {type(output).__name__}, a wrapper that it made, and what that holds is "
            "unknown\nreturn the value that it wraps, or pass the wrapper as an argument"
        )


def check_aux(name: str, output: Any, has_aux: bool) -> tuple[Any, Any]:
    """(output, aux) of what the function returned."""
    if not has_aux:
        return output, None
    if type(output) is not tuple or len(output) != 2:
        raise AutogradError(f"{name}: with has_aux=True the function returned a {type(output).__name__}, expected a "
                            "tuple (output, aux)\nreturn exactly two values")
    return output


def leave_aux(aux: Any, level: Interpreter, args: tuple[Any, ...]) -> Any:
    """What a function returned besides its output, as it is handed out."""
    return tree_map(lambda leaf: as_passed(_core.value_below(leaf, level), args), aux)


def as_passed(value: Any, args: tuple[Any, ...]) -> Any:
    """A constant as it is handed out: a Tensor where one was passed, a raw array where there was none."""
    if not _core.is_array(value):
        return value
    if any(isinstance(arg, Tensor) for arg in args):
        return _core.wrap_value_at(None, value)
    return as_raw_constant(value)
