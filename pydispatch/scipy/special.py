"""`scipy.special` for arrays and Tensors.

Sources of the derivatives: DLMF, the NIST Digital Library of Mathematical Functions, by the sections named beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scipy import special

from pydispatch.operators.declare import Formulas
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE, SCIPY

digamma, polygamma = SCIPY.operators("special_digamma", "special_polygamma")


def pointwise(name: str, arguments: str, vjp: Formulas, kernel: Callable[..., Any] | None = None) -> None:
    """Declare a pointwise function of this name, and its operator; the kernel is SciPy's function."""
    kernel = kernel or getattr(special, name)
    n_arrays = arguments.count("Tensor")
    SCIPY.pointwise(f"special_{name}", kernel, arguments, vjp=vjp)
    FACE.declare_operator(f"special.{name}", n_arrays, n_arrays)


# --- gamma functions -------------------------------------------------------------------------------------------------

pointwise("gammaln", "Tensor x", lambda g, x: g * digamma(x))
pointwise("digamma", "Tensor x", lambda g, x: g * polygamma(1, x))
pointwise("polygamma", "Tensor n, Tensor x", (None, lambda g, n, x: g * polygamma(n + 1, x)))


# --- sums of exponentials --------------------------------------------------------------------------------------------


@FACE.array_function("special")
def softmax(x: Any, axis: Any = None) -> Any:
    """Exponentials that sum up to 1 along the axes."""
    powers = ops.np.exp(ops.np.subtract(x, ops.np.max(x, axis, keepdims=True)))
    return ops.np.divide(powers, ops.np.sum(powers, axis, keepdims=True))


SCIPY.install("special")
globals().update({name.removeprefix("special."): function for name, function in FACE.functions.items()
                  if name.startswith("special.")})
