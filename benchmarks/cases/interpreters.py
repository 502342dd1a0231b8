"""The time that each interpreter of nested transforms adds to an operator, beyond the calls on arrays that remain."""

from __future__ import annotations

import contextvars
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases.kinds import Case, Effort, Row
from pydispatch import DispatchMode, func
from pydispatch._core import Wrapper
from pydispatch.cli.timing import Loop, make_loop, time_in_rounds
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

INTERPRETER = "Transforms: what an interpreter adds to an operator"
LINE = "Transforms: how far that is from a line, per interpreter"

Function = Callable[..., Any]
Call = Callable[[], Any]

DEPTHS = (1, 2, 3, 4)
LENGTH = 2      # of the batch of each vmap
WEIGHTS = np.linspace(-1.0, 1.0, 16).reshape(4, 4)
OPERATORS: dict[str, tuple[str, dict[str, Any], float]] = {
    "sin": ("op(x)", {"op": ops.np.sin}, 0.4),
    "sum": ("op(x)", {"op": ops.np.sum}, 1.0),
    "matmul": ("op(x, w)", {"op": ops.np.matmul, "w": WEIGHTS}, 1.0),
    "reshape": ("op(x, shape)", {"op": ops.np.reshape, "shape": (2, 2)}, 1.0),
    "getitem": ("op(x, 1)", {"op": ops.np.getitem}, 1.0),
}
NESTED = ("vmap", "grad", "jvp")
LINE_BOUND = 0.25

Manager = AbstractContextManager[Any]     # is entered around a transform


def nested(transform: str, body: Function, managers: Sequence[Manager]) -> Call:
    """Return a call of `body` on 4 numbers under nested transforms, one in each manager, outermost first.

    `body` returns its argument.
    """
    apply = {"vmap": by_vmap, "grad": by_grad, "jvp": by_jvp}[transform]
    for within in reversed(managers):
        body = apply(body, within)
    x = np.linspace(0.5, 1.5, 4)
    if transform == "vmap":
        x = np.broadcast_to(x, (*(LENGTH,) * len(managers), 4)).copy()
    return lambda: body(x)


def by_vmap(body: Function, within: Manager) -> Function:
    """Run `body` under one more vmap."""
    batched = func.vmap(body)

    def call(x: Any) -> Any:
        with within:
            return batched(x)
    return call


def by_grad(body: Function, within: Manager) -> Function:
    """Run `body` under one more grad."""
    gradient = func.grad(lambda x: (body(x) * x).sum())

    def call(x: Any) -> Any:
        with within:
            return gradient(x)
    return call


def by_jvp(body: Function, within: Manager) -> Function:
    """Run `body` under one more jvp."""
    def call(x: Any) -> Any:
        with within:
            return func.jvp(body, (x,), (np.ones(4),))[0]
    return call


class Noting(DispatchMode):
    """Notes the calls that reach it."""

    def __init__(self) -> None:
        self.calls: list[Noted] = []

    def __pydispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, and pass it on."""
        self.calls.append(Noted(func, args, kwargs or {}))
        return func(*args, **kwargs or {})


class Noted(NamedTuple):
    """A call of an operator."""

    operator: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def has_wrappers(self) -> bool:
        """Return whether an interpreter processes it."""
        return any(isinstance(leaf, Wrapper) for leaf in tree_leaves((self.args, self.kwargs)))


class AtDepth(NamedTuple):
    """An operator under a number of nested transforms."""

    loop: Loop              # calls it under all of them
    arrays_only: Loop       # the calls of arrays that remain of it, one after the other
    processed: int          # how many calls the interpreters process for it


def at_depths(
    transform: str, operator: str, depths: Sequence[int], use: Callable[[Sequence[AtDepth]], None],
    shallower: Sequence[AtDepth] = (),
) -> None:
    """Call `use` with the operator at each depth. `use` runs their loops, each under its own interpreters only.

    So the time to enter and leave interpreters is not measured.
    """
    if not depths:
        use(shallower)
        return
    depth, *deeper = depths
    text, names, _ = OPERATORS[operator]
    turn: Any = make_loop(text, {"x": None, **names})      # of n and x
    remaining, *passed_on = noted_calls(transform, functools.partial(turn, 1), depth)
    processed = 1 + sum(call.has_wrappers for calls in passed_on for call in calls)

    def body(x: Any) -> Any:
        context = contextvars.copy_context()
        point = AtDepth(lambda number: context.run(turn, number, x), straight_line(remaining), processed)
        contextvars.Context().run(at_depths, transform, operator, deeper, use, (*shallower, point))
        return x

    nested(transform, body, [nullcontext()] * depth)()


def noted_calls(transform: str, call: Callable[[Any], Any], depth: int) -> list[list[Noted]]:
    """Return the calls that each interpreter makes for one call under all of them, those of the outermost first."""
    modes = [Noting() for _ in range(depth)]
    result = []

    def body(x: Any) -> Any:
        for mode in modes:
            mode.calls.clear()
        call(x)
        result.extend([mode.calls.copy() for mode in modes])
        return x

    nested(transform, body, modes)()
    return result


def straight_line(calls: Sequence[Noted]) -> Loop:
    """Return a loop of these calls."""
    names: dict[str, Any] = {}

    def name_of(value: Any) -> str:
        name = f"v{len(names)}"
        names[name] = value
        return name

    lines = []
    for call in calls:
        arguments = [*map(name_of, call.args), *(f"{key}={name_of(value)}" for key, value in call.kwargs.items())]
        lines.append(f"{name_of(call.operator)}({', '.join(arguments)})")
    return make_loop("; ".join(lines), names)


@dataclass(frozen=True)
class PerInterpreter(Case):
    """Microseconds that an interpreter adds to an operator beyond the calls on arrays, per call that it processes.

    This is the slope of the line through the origin that fits depths 1 to 4 best. The row shows their times.
    """

    transform: str = field(repr=False)
    operator: str = field(repr=False)

    def added(self, effort: Effort) -> tuple[list[int], list[list[float]]]:
        """Return the numbers of processed calls, and for each round the nanoseconds added, at each depth."""
        processed: list[int] = []
        rounds: list[list[float]] = []

        def use(points: Sequence[AtDepth]) -> None:
            loops = [loop for point in points for loop in (point.loop, point.arrays_only)]
            processed.extend(point.processed for point in points)
            rounds.extend(
                [call - rest for call, rest in zip(times[::2], times[1::2], strict=True)]
                for times in time_in_rounds(loops, effort.rounds, effort.seconds)
            )

        at_depths(self.transform, self.operator, DEPTHS, use)
        return processed, rounds

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        processed, rounds = self.added(effort)
        return self.row([slope(processed, added) / 1000 for added in rounds], times_of(processed, rounds), unit="µs")


@dataclass(frozen=True)
class OffLine(PerInterpreter):
    """The largest distance of depths 1 to 4 from the line that fits them, over a fourth of what depth 4 adds."""

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        processed, rounds = self.added(effort)
        times = times_of(processed, rounds)
        *_, deepest = medians = [*times.values()]
        steepness, start = statistics.linear_regression(processed, medians)
        worst = max(abs(time - start - steepness * count) for count, time in zip(processed, medians, strict=True))
        return self.row([worst / (deepest / len(DEPTHS))], times)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the line through the origin that fits the points best (least squares)."""
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / sum(x * x for x in xs)


def times_of(processed: Sequence[int], rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the median at each depth."""
    medians = map(statistics.median, zip(*rounds, strict=True))
    return {
        f"depth {depth}, {count} processed": time
        for depth, count, time in zip(DEPTHS, processed, medians, strict=True)
    }


def interpreter_cases() -> Iterator[PerInterpreter]:
    """Yield what an interpreter adds to each kind of operator, and how that grows with depth."""
    for transform in NESTED:
        for operator, (_, _, bound) in OPERATORS.items():
            yield PerInterpreter(INTERPRETER, f"{transform}, {operator}", bound, transform, operator)
    for transform in NESTED:
        for operator in OPERATORS:
            yield OffLine(LINE, f"{transform}, {operator}", LINE_BOUND, transform, operator)
