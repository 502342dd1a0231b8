"""Functions that choose elements, and that sort and search."""

from __future__ import annotations

from typing import Any

from pydispatch.numpy.declare import array_function, as_array
from pydispatch.ops import ops


@array_function()
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    """Elements of x where the condition holds, of y elsewhere; with the condition alone, the indices where it holds."""
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    return ops.np.where(as_array(condition), as_array(x), as_array(y))
