"""Kinds of cases: what a row measures, and its bound."""

from __future__ import annotations

import fnmatch
import importlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydispatch.cli.timing import make_loop, time_in_rounds


class Effort(NamedTuple):
    """The effort of measuring: rounds of loops, repetitions of slow measurements, seconds for the rounds of a row."""

    rounds: int
    repetitions: int
    seconds: float = 2.0


@dataclass(frozen=True)
class Row:
    """A measured value, the median over the rounds, with its quartiles and its bound, where it has one."""

    group: str
    name: str
    value: float
    low: float
    high: float
    unit: str
    bound: float | None
    at_least: bool
    times: dict[str, float] = field(default_factory=dict)   # call -> nanoseconds

    @property
    def ok(self) -> bool:
        """Return whether the value is within its bound."""
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Case:
    """A row of a table. Without a bound it is only for comparison."""

    group: str
    name: str
    bound: float | None

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        raise NotImplementedError

    def row(
        self, values: list[float], times: dict[str, float], *, unit: str = "×", at_least: bool = False
    ) -> Row:
        """Return the row for the values of all rounds."""
        low, value, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        return Row(self.group, self.name, value, low, high, unit, self.bound, at_least, times)


@dataclass(frozen=True)
class Ratio(Case):
    """The time of one call over that of another."""

    call: str
    over: str
    names: dict[str, Any] = field(repr=False)
    at_least: bool = False

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        calls = (self.call, self.over)
        rounds = time_in_rounds([make_loop(text, self.names) for text in calls], effort.rounds, effort.seconds)
        times = map(statistics.median, zip(*rounds, strict=True))
        ratios = [this / other for this, other in rounds]
        return self.row(ratios, dict(zip(calls, times, strict=True)), at_least=self.at_least)


@dataclass(frozen=True)
class Excess(Ratio):
    """The microseconds that one call takes longer than another, for each of its equal parts."""

    parts: int = 1

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        calls = (self.call, self.over)
        rounds = time_in_rounds([make_loop(text, self.names) for text in calls], effort.rounds, effort.seconds)
        times = [statistics.median(column) / self.parts for column in zip(*rounds, strict=True)]
        excesses = [(this - other) / self.parts / 1e3 for this, other in rounds]
        return self.row(excesses, dict(zip(calls, times, strict=True)), unit="µs")


@dataclass(frozen=True)
class Added(Case):
    """The time that a peer adds to a kernel, over the time that an operator adds to it."""

    names: dict[str, Any] = field(repr=False)

    calls = ("kernel(x, y)", "op(x, y)", "peer(a, b)")

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        rounds = time_in_rounds([make_loop(text, self.names) for text in self.calls], effort.rounds, effort.seconds)
        times = map(statistics.median, zip(*rounds, strict=True))
        ratios = [(theirs - direct) / (ours - direct) for direct, ours, theirs in rounds]
        return self.row(ratios, dict(zip(self.calls, times, strict=True)), at_least=True)


@dataclass(frozen=True)
class Absolute(Case):
    """A value with a unit of its own."""

    unit: str
    values: Callable[[int], list[float]] = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        return self.row(self.values(effort.repetitions), {}, unit=self.unit)


def matches(group: str, name: str, pattern: str) -> bool:
    """Return whether a part of "group/name" matches the pattern, in which * and `?` are wildcards."""
    return fnmatch.fnmatch(f"{group}/{name}".lower(), f"*{pattern.lower()}*")


def import_or_note(module: str, name: str, left_out: dict[str, str]) -> Any:
    """Return a peer's module, or None if it is not installed, with a note under the peer's name."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        left_out[name] = str(error)
        return None
