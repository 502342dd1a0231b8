"""Checks of values: immediate if the values are known, and by an operator in a transform or a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch._core import MetaArray, known_array
from pydispatch.numpy.declare import known_values
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.scipy.pack import SCIPY

OF_NUMPY = ("CPU", "Meta")
"""Backends whose values are checked. Values of other backends may be lazy, and are not examined."""


def value_check(name: str, check: Callable[[Any, str], None]) -> Callable[[Any, str], Any]:
    """Declare the operator of a check, and return the function that applies it.

    `check(x, who)` raises SciPy's error for values of a NumPy array. The message begins with `who`, the name of the
    caller. The check works along the last axis or along none, because axes of a batch come first. The returned
    function returns x. Its caller has to use that result, because a compiled function drops unused ones.
    """
    def kernel(x: Any, who: str) -> Any:
        check(x, who)
        return x.copy()
    kernel.__doc__ = check.__doc__

    SCIPY.declare(name, "Tensor x, str who", kernel, lambda x, who: MetaArray(shape_of(x), dtype_of(x)),
                  vjp=lambda g: g, jvp=lambda t: t, vmap=lambda op, info, in_dims, x, who: (op(x, who), 0))
    (operator,) = SCIPY.operators(name)

    def checked(x: Any, who: str) -> Any:
        known = known_values(x)
        if known is not None:
            check(known, who)
            return x
        return operator(x, who) if known_array(x) is None and x.device in OF_NUMPY else x

    return checked
