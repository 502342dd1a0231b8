"""Numbers of permutations and combinations, as smooth functions of their arguments."""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import as_array
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE, SCIPY

binom, gamma, poch = SCIPY.operators("special_binom", "special_gamma", "special_poch")


def smooth(implementation: Callable[..., Any]) -> Callable[..., Any]:
    """Declare a function with the signature of the installed SciPy's. Exact whole numbers are refused for Tensors."""
    name = implementation.__name__

    def function(*args: Any, exact: bool = False, **kwargs: Any) -> Any:
        if exact:
            raise DispatchTypeError(f"scipy.special.{name}: exact=True counts with whole numbers, without gradients\n"
                                    "pass plain numbers, or exact=False")
        return implementation(*args, **kwargs)

    function.__name__, function.__doc__ = name, implementation.__doc__
    FACE.array_function("special")(function)
    FACE.functions[f"special.{name}"].__dict__["__wrapped__"] = getattr(special, name)
    return function


def where_counted(values: Any, N: Any, k: Any) -> Any:
    """Return values where 0 <= k <= N, and 0 elsewhere."""
    counted = ops.np.logical_and(ops.np.greater_equal(k, 0), ops.np.less_equal(k, N))
    return ops.np.where(counted, values, 0.0)


@smooth
def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Return the number of combinations of N things taken k at a time."""
    N, k = as_array(N), as_array(k)
    if repetition:
        N = N + k - 1
    return where_counted(binom(N, k), N, k)


@smooth
def perm(N: Any, k: Any) -> Any:
    """Return the number of permutations of N things taken k at a time."""
    N, k = as_array(N), as_array(k)
    return where_counted(poch(N - k + 1, k), N, k)


@smooth
def factorial(n: Any, extend: str = "zero") -> Any:
    """Return n!, which is gamma(n + 1). It is 0 for negative n, unless `extend` is "complex"."""
    found = gamma(as_array(n) + 1)
    if extend == "complex":
        return found
    return ops.np.astype(ops.np.where(ops.np.less(n, 0), 0.0, found), np.dtype(float), copy=False)
