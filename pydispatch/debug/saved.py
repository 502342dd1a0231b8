"""Detection of writes to raw arrays while a gradient needs them."""

from __future__ import annotations

from pydispatch.autograd.anomaly import CHECK_SAVED, Checks
from pydispatch.modes import Guard


def check_saved() -> Guard:
    """Raise AutogradError if a raw array was written to between its use and the gradient that needs it.

    Writes to Tensors are always noticed, and small raw arrays that a gradient will need are copied. Raw arrays of more
    than 64 KiB are not copied. Inside this block, a checksum of each is taken when it is saved, and compared after it
    was used. The error names the array, the operator and the line. This is slow: use it for debugging.

    Returns
    -------
    Guard
        A context manager. It checks functions that are differentiated inside it: both the call and its backward pass.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import debug, func
    >>> def scaled(w):
    ...     m = numpy.ones(10_000)
    ...     y = w * m
    ...     m *= 5
    ...     return np.sum(y)
    >>> with debug.check_saved():
    ...     func.grad(scaled)(numpy.ones(10_000))       # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pydispatch.exceptions.AutogradError: MultiplyBackward saved an ndarray of shape (10000,) and dtype float64, ...
    """
    return Checks("check_saved()", CHECK_SAVED)
