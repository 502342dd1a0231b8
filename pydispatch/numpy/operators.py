"""The functions that are operators, except for universal functions, and the calls that go directly to the operator."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from pydispatch._core import Tensor
from pydispatch.numpy.declare import Adapter, as_nonscalar, declare_operator, into
from pydispatch.ops import ops

REDUCTION = ("axis", "keepdims")
DIFFERENTIABLE = {
    "sum": (1, 3, REDUCTION), "prod": (1, 3, REDUCTION), "mean": (1, 3, REDUCTION),
    "var": (1, 3, (*REDUCTION, "ddof")), "std": (1, 3, (*REDUCTION, "ddof")), "max": (1, 2, REDUCTION),
    "min": (1, 2, REDUCTION), "cumsum": (1, 3, ("axis",)), "cumprod": (1, 3, ("axis",)), "clip": (3, 3, ()),
    "round": (1, 2, ("decimals",)), "transpose": (1, 2, ("axes",)), "swapaxes": (1, 3, ()),
    "moveaxis": (1, 3, ()), "expand_dims": (1, 2, ("axis",)), "squeeze": (1, 2, ("axis",)), "broadcast_to": (1, 2, ()),
    "flip": (1, 2, ("axis",)), "tile": (1, 2, ()), "take": (2, 3, ("axis", "mode")),
    "take_along_axis": (2, 3, ("axis",)), "real": (1, 1, ()), "imag": (1, 1, ()),
}
"""The number of leading arguments that are arrays, the number that the operator takes by position, and its keywords."""
CONSTANT = {
    "all": (1, 2, REDUCTION), "any": (1, 2, REDUCTION), "argmax": (1, 2, REDUCTION), "argmin": (1, 2, REDUCTION),
}


class Clip(Adapter):
    """`clip`. NumPy requires both limits, or none of the two names `a_min` and `a_max`."""

    def call(self, passed: dict[str, Any], out: Any) -> Any:
        given = [name for name in ("a_min", "a_max") if name in passed]
        if len(given) == 1:
            missing = "a_max" if given == ["a_min"] else "a_min"
            raise TypeError(f"clip() missing 1 required positional argument: {missing!r}")
        return super().call(passed, out)


class Reducing(Adapter):
    """A reduction whose `initial` may be a Tensor, which is combined with the result."""

    def call(self, passed: dict[str, Any], out: Any) -> Any:
        """Call the operator, without an `initial` that it may not be able to read."""
        axis = passed.get("axis")
        if isinstance(axis, (int, np.integer)) and axis in (0, -1) and not as_nonscalar(passed["a"]).ndim:
            passed["axis"] = None       # NumPy accepts these axes for arrays without axes
        initial = passed.get("initial")
        if not isinstance(initial, Tensor):
            return super().call(passed, out)
        if initial.ndim:
            raise ValueError("Input object to FillWithScalar is not a scalar")
        combine, neutral = COMBINED[self.name]
        a = passed["a"] = as_nonscalar(passed["a"])
        found = super().call(passed | {"initial": neutral(a.dtype)}, None)
        return into(out, combine(found, ops.np.astype(initial, found.dtype)))


def limit_of(dtype: np.dtype[Any], sign: int) -> Any:
    """Return the largest or the smallest value of a dtype."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min)
    return sign > 0 if dtype.kind == "b" else sign * np.inf


COMBINED: dict[str, tuple[Any, Any]] = {
    "sum": (ops.np.add, lambda dtype: None), "prod": (ops.np.multiply, lambda dtype: None),
    "max": (ops.np.maximum, lambda dtype: limit_of(dtype, -1)),
    "min": (ops.np.minimum, lambda dtype: limit_of(dtype, 1)),
}
"""The function that combines the results of parts, and its neutral value."""

ADAPTERS: dict[str, type[Adapter]] = {"clip": Clip, **dict.fromkeys((*COMBINED, "all", "any"), Reducing)}

for names, is_constant in ((DIFFERENTIABLE, False), (CONSTANT, True)):
    for name, (n_arrays, n_positional, keywords) in names.items():
        declare_operator(name, n_arrays, n_positional, keywords, constant=is_constant,
                         adapter=ADAPTERS.get(name))


class Sorting(Adapter):
    """`sort` or `argsort`, with the keyword `descending` of the array API standard, which NumPy has since 2.5.

    As in NumPy, equal elements keep their order, and nan come last.
    """

    added = frozenset({"descending"})

    def __call__(self, *args: Any, descending: bool | None = False, **kwargs: Any) -> Any:
        if not descending:
            return super().__call__(*args, **kwargs)
        a, *others = args
        kwargs.update(zip(("axis", "kind", "order"), others, strict=False))
        if kwargs.get("order") is not None:
            return super().__call__(a, **kwargs)        # raises with the reason
        axis, kind, stable = kwargs.get("axis", -1), kwargs.get("kind"), kwargs.get("stable")
        if kind is None and stable is None:
            stable = True       # required by the standard
        a = as_nonscalar(a)
        if axis is None:
            a, axis = ops.np.ravel(a), 0
        order = ops.np.argsort(ops.np.flip(a, axis), axis, kind, stable=stable)     # equal elements keep their order
        order = ops.np.subtract(a.shape[axis] - 1, ops.np.flip(order, axis))
        if np.issubdtype(a.dtype, np.inexact):      # nan comes first here, but last in either order
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
