"""Find the operator that makes the first NaN."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch.autograd import detect_anomaly
from pydispatch.exceptions import NaNError
from pydispatch.modes import DispatchMode, Guard
from pydispatch.registry.registrations import definition_of
from pydispatch.registry.sites import caller_site
from pydispatch.tree import tree_leaves


class NaNDetector(DispatchMode):
    """Raises NaNError for the first operator that makes a NaN; `nan_detector()` makes one."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []

    def __enter__(self) -> Self:
        guard = detect_anomaly(check_nan=False)     # so that nodes know which call they belong to
        guard.__enter__()
        self._guards.append(guard)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._guards.pop().__exit__(kind, error, trace)

    def __pydispatch__(
        self, func: OpOverload, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the operator; raise if its result holds a NaN and no argument does."""
        arguments = (args, kwargs or {})
        had_nan = _writes(func) and _nans(arguments) > 0        # a write would hide it
        with np.errstate(invalid="ignore"):     # where NumPy would warn, this raises
            result = func(*args, **kwargs or {})
        if (made := _nans(result)) and not had_nan and (_writes(func) or not _nans(arguments)):
            raise NaNError(_message(func, arguments, made))
        return result


def nan_detector() -> NaNDetector:
    """Raise NaNError at the first operator inside the block that makes a NaN from arguments without one.

    The error names the operator, the shapes of its arguments and the user's line. In a backward pass it also shows
    the call of the forward pass, if that ran inside the block. Slow: for debugging.
    """
    return NaNDetector()


def _writes(op: OpOverload) -> bool:
    definition = definition_of(op)
    return definition is not None and any(argument.mutable for argument in definition.schema.arguments)


def _arrays(values: Any) -> list[Any]:
    return [leaf for leaf in map(_whole_array, tree_leaves(values)) if isinstance(leaf, (np.ndarray, np.inexact))]


def _whole_array(value: Any) -> Any:
    """The array that a Tensor holds, that of the whole batch under `vmap`."""
    while isinstance(value, _core.Wrapper):
        value = _core.value_below(value, value.interpreter)
    return _core.bottom_array(value) if isinstance(value, _core.Tensor) else value


def _nans(values: Any) -> int:
    """How many elements are NaN, among all of NumPy's arrays."""
    return sum(int(np.count_nonzero(np.isnan(array))) for array in _arrays(values) if array.dtype.kind in "fc")


def _message(op: OpOverload, arguments: Any, made: int) -> str:
    shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in _arrays(arguments)) or "none"
    node = _core.running_node()
    origin = getattr(node.notes, "origin", None) if node is not None else None
    lines = [
        (f"operator {op.name}: its result has {made} NaN, expected none, as there is none among its arguments "
         f"({shapes}), at {caller_site()}"),
        *([f"this is in {node.name}, in a backward pass"] if node is not None else []),
        *([f"of the call that was recorded here:\n{origin.rstrip()}"] if origin else []),
        "keep the arguments where the operator and its derivative are defined, for example by np.where before the call",
    ]
    return "\n".join(lines)
