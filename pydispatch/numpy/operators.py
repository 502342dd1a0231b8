"""The functions that are operators, except for universal functions; and which calls go straight to the operator."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from pydispatch.numpy.declare import Adapter, as_nonscalar, declare_operator
from pydispatch.ops import ops

REDUCTION = ("axis", "keepdims")
DIFFERENTIABLE = {
    "sum": (1, 3, REDUCTION), "prod": (1, 3, REDUCTION), "mean": (1, 3, REDUCTION),
    "var": (1, 3, (*REDUCTION, "ddof")), "std": (1, 3, (*REDUCTION, "ddof")), "max": (1, 2, REDUCTION),
    "min": (1, 2, REDUCTION), "cumsum": (1, 3, ("axis",)), "cumprod": (1, 3, ("axis",)), "clip": (3, 3, ()),
    "round": (1, 2, ("decimals",)), "transpose": (1, 2, ("axes",)), "swapaxes": (1, 3, ()),
    "moveaxis": (1, 3, ()), "expand_dims": (1, 2, ("axis",)), "squeeze": (1, 2, ("axis",)), "broadcast_to": (1, 2, ()),
    "flip": (1, 2, ("axis",)), "tile": (1, 2, ()), "roll": (1, 3, ("axis",)), "take": (2, 3, ("axis", "mode")),
    "take_along_axis": (2, 3, ("axis",)), "real": (1, 1, ()), "imag": (1, 1, ()),
}
"""How many leading arguments are arrays, how many the operator takes by position, and which keywords it takes."""
CONSTANT = {
    "all": (1, 2, REDUCTION), "any": (1, 2, REDUCTION), "argmax": (1, 2, REDUCTION), "argmin": (1, 2, REDUCTION),
}

for names, is_constant in ((DIFFERENTIABLE, False), (CONSTANT, True)):
    for name, (n_arrays, n_positional, keywords) in names.items():
        declare_operator(name, n_arrays, n_positional, keywords, constant=is_constant)


class Sorting(Adapter):
    """`sort` or `argsort`, with the keyword `descending` of the array API standard, which NumPy has since 2.5.

    Equal elements keep their order, and nan come last, as they do there.
    """

    added = frozenset({"descending"})

    def __call__(self, *args: Any, descending: bool | None = False, **kwargs: Any) -> Any:
        if not descending:
            return super().__call__(*args, **kwargs)
        a, *others = args
        kwargs.update(zip(("axis", "kind", "order"), others, strict=False))
        if kwargs.get("order") is not None:
            return super().__call__(a, **kwargs)        # which says why not
        axis, kind, stable = kwargs.get("axis", -1), kwargs.get("kind"), kwargs.get("stable")
        if kind is None and stable is None:
            stable = True       # as the standard has it
        a = as_nonscalar(a)
        if axis is None:
            a, axis = ops.np.ravel(a), 0
        order = ops.np.argsort(ops.np.flip(a, axis), axis, kind, stable=stable)     # equal elements keep their order
        order = ops.np.subtract(a.shape[axis] - 1, ops.np.flip(order, axis))
        if np.issubdtype(a.dtype, np.inexact):      # nan are now first, but come last in either order
            n_nan = ops.np.sum(ops.np.isnan(a), axis, keepdims=True)
            positions = ops.np.add(ops.np.cumsum(ops.np.ones_like(order), axis), n_nan - 1)
            order = ops.np.take_along_axis(order, ops.np.remainder(positions, max(1, a.shape[axis])), axis)
        return order if self.name == "argsort" else ops.np.take_along_axis(a, order, axis)


DESCENDING = inspect.Parameter("descending", inspect.Parameter.KEYWORD_ONLY, default=False)
for name in ("sort", "argsort"):
    function = declare_operator(name, 1, 2, ("axis",), constant=name == "argsort", adapter=Sorting)
    signature = inspect.signature(getattr(np, name))
    if "descending" not in signature.parameters:
        function.__dict__["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), DESCENDING])
