"""Detection of the operator that produces the first NaN."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch._registry.registrations import definition_of
from pydispatch._sites import caller_site
from pydispatch.autograd import detect_anomaly
from pydispatch.exceptions import NaNError
from pydispatch.modes import DispatchMode, Guard
from pydispatch.tree import tree_leaves


class NaNDetector(DispatchMode):
    """Raises NaNError for the first operator that produces a NaN. Create one by `nan_detector()`."""

    def __init__(self, raw: bool = False) -> None:
        self._guards: list[Guard] = []
        self._raw = raw

    def __enter__(self) -> Self:
        guard = detect_anomaly(check_nan=False)     # so that each node records its forward call
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
        """Call the operator. Raise if its result holds a NaN and no argument does."""
        arguments = (args, kwargs or {})
        if self._raw and (found := _nans(arguments)):
            raise NaNError(_message(func, arguments, f"its arguments hold {found} NaN that no operator inside the "
                                    "block made: it is from NumPy on raw arrays or from before the block,"))
        had_nan = _writes(func) and _nans(arguments) > 0        # a write would hide it
        with np.errstate(invalid="ignore"):     # this raises where NumPy would warn
            result = func(*args, **kwargs or {})
        if (made := _nans(result)) and not had_nan and (_writes(func) or not _nans(arguments)):
            raise NaNError(_message(func, arguments, f"its result has {made} NaN, expected none, since its "
                                    "arguments have none"))
        return result


def nan_detector(raw: bool = False) -> NaNDetector:
    """Raise NaNError at the first operator inside the block that produces a NaN from arguments without one.

    The error names the operator, the shapes of its arguments and the user's line. In a backward pass it also shows the
    call of the forward pass, if that ran inside the block. Computations of NumPy on raw arrays (`a / b` of two
    ndarrays) are not checked. This is slow: use it for debugging.

    Parameters
    ----------
    raw
        Whether the first operator with a NaN in an argument also raises. That NaN came from a computation on raw arrays
        or from outside the block.

    Returns
    -------
    NaNDetector
        A context manager.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import debug, ops
    >>> with debug.nan_detector():
    ...     ops.np.log(np.array([-1.0]))        # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pydispatch.exceptions.NaNError: operator np::log: its result has 1 NaN, expected none, ...
    """
    return NaNDetector(raw)


def _writes(op: OpOverload) -> bool:
    definition = definition_of(op)
    return definition is not None and any(argument.mutable for argument in definition.schema.arguments)


def _arrays(values: Any) -> list[Any]:
    return [leaf for leaf in map(_whole_array, tree_leaves(values)) if isinstance(leaf, (np.ndarray, np.inexact))]


def _whole_array(value: Any) -> Any:
    """Return the array that a Tensor holds: under `vmap`, that of the whole batch."""
    while isinstance(value, _core.Wrapper):
        value = _core.value_below(value, value.interpreter)
    return _core.bottom_array(value) if isinstance(value, _core.Tensor) else value


def _nans(values: Any) -> int:
    """Count the NaN elements of all NumPy arrays in the values."""
    return sum(int(np.count_nonzero(np.isnan(array))) for array in _arrays(values) if array.dtype.kind in "fc")


def _message(op: OpOverload, arguments: Any, what: str) -> str:
    shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in _arrays(arguments)) or "none"
    node = _core.running_node()
    origin = getattr(node.notes, "origin", None) if node is not None else None
    lines = [
        f"operator {op.name}: {what} ({shapes}), at {caller_site()}",
        *([f"called by {node.name} in a backward pass"] if node is not None else []),
        *([f"the forward call was recorded here:\n{origin.rstrip()}"] if origin else []),
        "keep the arguments where the operator and its derivative are defined, for example by np.where before the call",
    ]
    return "\n".join(lines)
