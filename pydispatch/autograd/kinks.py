"""Squares of functions with a kink at zero: `abs(x) ** 2`, `norm(x) ** 2`.

The slope of a norm at zero is defined as 0. By the chain rule the second derivative of its square would be 0 too, but
it is 2. Where the norm is zero, the square of its argument is therefore added. It is also zero, but has the right
second derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Tensor
from pydispatch.ops import ops

Arguments = dict[str, Any]      # those that the call of the function saved, by name


def abs_squared(x: Any) -> Any:
    """Return the square of the absolute value, which is smooth."""
    if x.dtype.kind == "c":
        real, imaginary = ops.np.real(x), ops.np.imag(x)
        return real * real + imaginary * imaginary
    return x * x


def of_elements(arguments: Arguments) -> Any:
    """Return the sum of the squares of the arguments."""
    squares = [abs_squared(x) for name, x in arguments.items() if name in ("x", "x1", "x2")]
    return sum(squares[1:], squares[0])


def of_vector_norm(arguments: Arguments) -> Any:
    """Return the sum of squares along the axes, or None for other norms."""
    if arguments["ord"] != 2:
        return None
    return ops.np.sum(abs_squared(arguments["x"]), arguments["axis"])


def of_std(arguments: Arguments) -> Any:
    """Return the variance."""
    names = ("axis", "dtype", "ddof", "where", "mean", "correction")
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    return ops.np.var(arguments["a"], **given)


SQUARED: dict[str, Callable[[Arguments], Any]] = {
    "np::absolute": of_elements, "np::fabs": of_elements, "np::hypot": of_elements,
    "np::linalg_vector_norm": of_vector_norm, "np::std": of_std,
}


def square_of_kink(op: OpOverload, values: dict[int, Any], root: Tensor, exponent: Any, square: Tensor) -> Any:
    """Return the square of a result of `op`, with the right second derivative where the result is zero.

    `values` are the arguments of the call by position, at least those that its formulas need.
    """
    if not is_two(exponent) or not is_differentiated_twice():
        return square
    known = _core.known_array(root)
    if isinstance(known, (np.ndarray, np.generic)) and np.all(known):
        return square
    names = [argument.name for argument in op.schema.arguments]
    smooth = SQUARED[str(op.name)]({names[i]: value for i, value in values.items()})
    if smooth is None:
        return square
    beside = ops.np.where(ops.np.equal(root, 0), ops.np.reshape(smooth, tuple(root.shape)), 0.0)
    return ops.np.add(square, beside)


def is_two(exponent: Any) -> bool:
    """Return whether this is the number 2."""
    return isinstance(exponent, (int, float, np.number)) and exponent == 2


def is_differentiated_twice() -> bool:
    """Return whether the recorded derivative may be differentiated again, on the tape or by another transform."""
    derivatives = [i for i in _core.current_state().stack if isinstance(i, (_core.Grad, _core.Jvp))]
    return len(derivatives) != 1


_core.connect(square_of_kink=square_of_kink)
