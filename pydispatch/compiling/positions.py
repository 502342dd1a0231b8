"""Access to one element of each row by its position: `x[numpy.arange(n), positions]`, in a loop over rows.

The core has loops for this, which check positions as they go. A loop that is joined with others instead gets positions
that an earlier step has checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pydispatch.compiling.builder import Builder, CannotLowerError
from pydispatch.compiling.rules import reduced
from pydispatch.compiling.steps import LoopStep, Step
from pydispatch.compiling.values import Storage, Value


@dataclass(slots=True)
class PositionStep(LoopStep):
    """A loop over rows that reads or writes one element of each.

    Its loop is ("pick",), from (rows, positions) to elements, or ("put", whether to add), from (positions, elements) to
    rows. `layers` is (elements of a row, bytes to the next one). `loop_of_core` is the equivalent loop of the core.
    """

    layers: tuple[int, int] = (0, 0)
    loop_of_core: LoopStep | None = None


def with_positions(builder: Builder, steps: Sequence[Step]) -> list[Step]:
    """Replace the core's loops over positions with these, after steps that check the positions."""
    found: list[Step] = []
    checked: set[tuple[Storage, int, int]] = set()
    for step in steps:
        replaced = _replaced(step) if isinstance(step, LoopStep) else None
        if replaced is None:
            found.append(step)
            continue
        positions = replaced.operands[1 if replaced.loop[0] == "pick" else 0]
        what = positions.storage.final(), positions.offset, replaced.layers[0]
        try:
            with builder.body() as checks:
                if what not in checked:
                    _check(builder, positions, replaced.layers[0])
        except CannotLowerError:
            found.append(step)
            continue
        checked.add(what)
        found += [*checks, replaced]
    return found


def without_positions(steps: Sequence[Step]) -> list[Step]:
    """Restore the loops of the core."""
    return [step.loop_of_core if isinstance(step, PositionStep) and step.loop_of_core is not None else step
            for step in steps]


def _replaced(step: LoopStep) -> PositionStep | None:
    kind = step.loop[0]
    if kind not in ("pick", "put", "put_sum") or len(step.shape) != 1 or step.shape[0] < 2:
        return None
    n_axes, extent, stride = step.loop[2][:3]
    if n_axes != 1 or not step.strides[0][0]:
        return None
    order = (0, 1, 2) if kind == "pick" else (2, 1, 3)
    return PositionStep(
        ("pick",) if kind == "pick" else ("put", kind == "put_sum"), tuple([step.operands[i] for i in order]),
        step.shape, tuple([step.strides[i] for i in order]), step.name, step.site, is_elementwise=False,
        layers=(extent, stride), loop_of_core=step)


def _check(builder: Builder, positions: Value, n_layers: int) -> None:
    """Add steps that raise an IndexError for positions out of range."""
    inside = builder.ufunc(np.logical_and, (builder.ufunc(np.greater_equal, (positions, -n_layers)),
                                            builder.ufunc(np.less, (positions, n_layers))))
    all_inside = reduced(builder, np.logical_and, True, inside, None, False)

    def check(inputs: tuple[np.ndarray[Any, Any], ...], outputs: tuple[np.ndarray[Any, Any], ...]) -> None:
        if not inputs[0]:
            wrong = next(k for k in inputs[1].ravel() if not -n_layers <= k < n_layers)
            raise IndexError(f"index {wrong} is out of bounds for axis with size {n_layers}")

    builder.call(check, (all_inside, positions), (), "check positions", False,
                 "the loop around the access reads positions unchecked")
