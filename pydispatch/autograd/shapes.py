"""The shapes of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydispatch import _core


def sum_to(value: Any, shape: Sequence[int]) -> Any:
    """Sum an array over the axes along which broadcasting stretched an argument of this shape.

    Formulas need it where the engine cannot sum for them, such as before a product with the argument.

    Parameters
    ----------
    value : array
        An array or a Tensor of a shape that `shape` broadcasts to.
    shape : tuple of int
        The shape of the argument.

    Returns
    -------
    array
        The sums, of that shape. `value` itself if it has the shape.

    Raises
    ------
    ValueError
        If `shape` does not broadcast to the shape of `value`.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import autograd
    >>> autograd.sum_to(numpy.ones((3, 2)), (2,))
    array([3., 3.])
    >>> autograd.sum_to(numpy.ones((3, 2)), (3, 1))
    array([[2.],
           [2.],
           [2.]])
    """
    shape = tuple(shape)
    if len(shape) > len(value.shape):
        raise ValueError(f"an array of shape {tuple(value.shape)} cannot be summed to shape {shape}\n"
                         "pass the shape of the argument that was broadcast")
    return _core.sum_to(value, shape)
