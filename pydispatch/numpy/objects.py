"""Operators of the language between a Tensor and an object that is not an array: a list, None, a Fraction, a matrix.

They have the same meaning as in NumPy. A Fraction counts as the float that NumPy's loops convert it to.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from numbers import Rational
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import as_array, as_scalar
from pydispatch.ops import ops

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
NEVER_EQUAL = (type(None), str, bytes)
"""Types whose objects are not equal to any number."""

REPEATED = (list, tuple, str, bytes)
"""Types of sequences that an integer scalar repeats, as in `[0] * (labels.max() + 1)`."""


def binary_with_object(name: str, left: Any, right: Any) -> Any:
    """Compute `left + right` and similar operations where one operand is neither an array nor a number.

    `name` is the name of the special method.
    """
    tensor, other = (left, right) if isinstance(left, Tensor) else (right, left)
    if name in ("mul", "imul") and isinstance(other, REPEATED) and _core.is_scalar(tensor):
        return NotImplemented       # Python repeats the sequence, and calls __index__
    if isinstance(other, np.matrix):
        refuse_product(name, tensor)
        operand: Any = np.asarray(other)
    elif isinstance(other, (list, tuple)):
        operand = as_array(other)
    elif isinstance(other, NEVER_EQUAL) and tensor.dtype.kind not in "biufc":
        operand = np.asarray(other)
    elif isinstance(other, NEVER_EQUAL):
        if name not in ("eq", "ne"):        # otherwise, Python would append the bytes of the Tensor to others
            raise TypeError(f"{_core.a_type(left)} and {_core.a_type(right)} are not operands of {name}\n"
                            "pass numbers, or arrays of numbers")
        return never_equal(name, tensor)
    elif isinstance(other, int):
        return NotImplemented       # a TracedNumber
    elif isinstance(other, Rational) or (isinstance(other, Decimal) and name in COMPARISONS):
        operand = float(other)
        if name in ("eq", "ne") and other != operand:
            return never_equal(name, tensor)
    else:
        return NotImplemented
    return function_of(name)(*((tensor, operand) if tensor is left else (operand, tensor)))


def never_equal(name: str, *operands: Any) -> Any:
    """Return the result of `==` or `!=` for operands of which no elements are equal."""
    shape = np.broadcast_shapes(*[tuple(getattr(value, "shape", ())) for value in operands])
    tensor = next(value for value in operands if isinstance(value, Tensor))
    return as_scalar(ops.np.full_like(tensor, name == "ne", dtype=bool, shape=shape))


def compare_unlike(name: str, left: Any, right: Any, error: TypeError) -> Any:
    """Compute `left == right` or `left != right` after it raised an error.

    Elements of types that NumPy's function does not compare, such as text and numbers, are not equal.
    """
    if type(error).__name__ != "UFuncTypeError":
        raise error
    return never_equal(name, left, right)


def refuse_product(name: str, tensor: Tensor) -> None:
    """Raise DispatchTypeError for a product with a numpy.matrix.

    It would be elementwise, while NumPy's is the product of matrices.
    """
    if tensor.ndim and name in ("mul", "imul", "pow", "ipow"):
        raise DispatchTypeError(
            f"{'*' if 'mul' in name else '**'} was called with a numpy.matrix and {_core.a_type(tensor)}: for a matrix "
            "this is the matrix product, for a Tensor the elementwise one\n"
            "write matrix @ tensor, or numpy.asarray(matrix) * tensor for the elementwise product")


def function_of(name: str) -> Callable[[Any, Any], Any]:
    """Return the function of `operator` that corresponds to a special method."""
    function: Callable[[Any, Any], Any] = getattr(operator, f"{name}_" if name in ("and", "or") else name)
    return function


_core.connect(binary_with_object=binary_with_object, compare_unlike=compare_unlike)
