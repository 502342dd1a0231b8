"""Profiles of every operator that runs: number of calls, time, memory and line."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import NamedTuple

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch.debug import html
from pydispatch.debug.flamegraph import Frame, draw
from pydispatch.debug.memory import in_bytes
from pydispatch.modes import Guard

SORTS = ("own", "total", "calls", "allocated", "peak", "name")
MOST_ROWS = 50
"""The most rows that a notebook shows."""
GROUPINGS = ("operator", "line", "shapes")


class Event(NamedTuple):
    """One run of an operator, or of a node in a backward pass. Times are in nanoseconds, memory in bytes."""

    name: str
    backward: bool
    around: int         # the position of the enclosing event, or -1
    thread: int
    start: int
    stop: int
    allocated: int
    peak: int
    shapes: tuple[tuple[int, ...] | None, ...]
    line: str

    @property
    def shapes_text(self) -> str:
        """The shapes of the arguments, as in `[2,3] [3]`, with `[?]` for an unknown one."""
        return " ".join("[?]" if shape is None else f"[{','.join(map(str, shape))}]" for shape in self.shapes)


class ProfileRow(NamedTuple):
    """The sums over the events of one group, and the highest peak among them."""

    name: str
    group: str
    calls: int
    own: int
    total: int
    allocated: int
    peak: int


class Profile(_core.Recorder, Guard):
    """The events of its blocks. Create one by `profile()`."""

    def __init__(self) -> None:
        super().__init__("profile()")

    @property
    def events(self) -> list[Event]:       # type: ignore[override]
        """The events, in order of their starts."""
        line_of = _Lines()
        return [
            Event(_name_of(what), isinstance(what, str) and what.endswith("Backward"), around, thread, start, stop,
                  allocated, peak, shapes, line_of(code, offset))
            for what, around, thread, start, stop, allocated, peak, shapes, code, offset in super().events
        ]

    def rows(self, by: str = "operator") -> list[ProfileRow]:
        """Return a row per operator. With `by="line"` or "shapes", split by user line or by shapes of the arguments."""
        _check("by", by, GROUPINGS)
        events = self.events
        own = _own_parts(events)
        keys = [(event.name, {"operator": "", "line": event.line, "shapes": event.shapes_text}[by]) for event in events]
        sums: dict[tuple[str, str], list[int]] = {}
        for i, (event, key) in enumerate(zip(events, keys, strict=True)):
            row = sums.setdefault(key, [0] * 5)
            row[0] += 1
            row[1] += own[i][0]
            if key not in {keys[k] for k in _around(events, i)}:    # count the time of a recursive call once
                row[2] += event.stop - event.start
            row[3] += own[i][1]
            row[4] = max(row[4], event.peak)
        return [ProfileRow(*key, *numbers) for key, numbers in sums.items()]

    def table(self, sort: str = "own", by: str = "operator", limit: int | None = None) -> str:
        """Format the rows as text.

        Parameters
        ----------
        sort
            "own", "total", "calls", "allocated" or "peak" for largest first, or "name".
        by
            "operator", or "line" or "shapes" to split the rows.
        limit
            The largest number of rows.

        Returns
        -------
        str
            The table, with a summary in its last line.
        """
        _check("sort", sort, SORTS)
        rows = self.rows(by)
        rows.sort(key=lambda row: (row.name, row.group) if sort == "name" else -getattr(row, sort))
        titles = ["operator", *([by] if by != "operator" else []), "calls", "own", "total", "allocated", "peak"]
        cells = [
            [row.name, *([row.group] if by != "operator" else []), str(row.calls), _in_time(row.own),
             _in_time(row.total), in_bytes(row.allocated), in_bytes(row.peak)] for row in rows[:limit]
        ]
        left = len(titles) - 5
        widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
        lines = ["  ".join(cell.ljust(width) if i < left else cell.rjust(width)
                           for i, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
                 for line in (titles, ["─" * width for width in widths], *cells)]
        if len(cells) < len(rows):
            lines.append(f"... and {len(rows) - len(cells)} more")
        return "\n".join([*lines, self._summary(rows)])

    def _summary(self, rows: list[ProfileRow]) -> str:
        return (f"{sum(row.calls for row in rows)} calls, {_in_time(sum(row.own for row in rows))} of "
                f"{_in_time(self.elapsed)}; NumPy allocated {in_bytes(self.memory.allocated)} "
                f"for arrays, at most {in_bytes(self.memory.peak)} at once")

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """Return the table as HTML, with a bar for each operator's share of the time."""
        rows = sorted(self.rows(), key=lambda row: -row.own)
        whole = sum(row.own for row in rows) or 1
        shown = [(row.own / whole, [row.name, str(row.calls), _in_time(row.own), _in_time(row.total),
                                    in_bytes(row.allocated), in_bytes(row.peak)]) for row in rows[:MOST_ROWS]]
        left = f"; {len(rows) - MOST_ROWS} more operators are not shown" if len(rows) > MOST_ROWS else ""
        titles = ["operator", "calls", "own", "total", "allocated", "peak"]
        return html.table(titles, shown) + html.paragraph(self._summary(rows) + left)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as JSON in Chrome's format, which Perfetto (ui.perfetto.dev) opens."""
        events = self.events
        begin = min((event.start for event in events), default=0)
        records = [{
            "name": event.name, "cat": "backward" if event.backward else "operator", "ph": "X", "pid": os.getpid(),
            "tid": event.thread, "ts": (event.start - begin) / 1e3, "dur": (event.stop - event.start) / 1e3,
            "args": {"line": event.line, "shapes": event.shapes_text, "allocated": event.allocated, "peak": event.peak},
        } for event in events]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": records, "displayTimeUnit": "ns"}, file)

    def flamegraph(self, path: str | os.PathLike[str]) -> None:
        """Write an SVG that shows, for each user line, the operators that it calls, and those that these call."""
        root = Frame("operators")
        events = self.events
        frames: list[Frame] = []
        for event, (own, _) in zip(events, _own_parts(events), strict=True):
            around = frames[event.around] if event.around >= 0 else root.inside(event.line)
            frames.append(around.inside(event.name))
            frames[-1].own += own
        with open(path, "w", encoding="utf-8") as file:
            file.write(draw(root, _in_time))


def profile() -> Profile:
    """Record every operator that runs inside the block, including backward passes. Also works as a decorator.

    It records this thread or task, and those that copy its context. `print` shows a table. NumPy's computations on raw
    arrays (`a @ b` of two ndarrays) are not operators: only the last line of the table has their time and memory.

    Returns
    -------
    Profile
        A context manager that records.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import debug, ops
    >>> with debug.profile() as recorded:
    ...     total = ops.np.sum(ops.np.exp(np.zeros(3)))
    >>> [(row.name, row.calls) for row in recorded.rows()]
    [('np::exp', 1), ('np::sum', 1)]
    """
    return Profile()


@contextmanager
def count_operators() -> Iterator[Counter[str]]:
    """Count the runs inside the block by name: operators, and nodes of backward passes.

    The Counter is filled when the block ends. It excludes NumPy's computations on raw arrays, such as `a @ b` of two
    ndarrays.

    Yields
    ------
    Counter
        The counts.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import debug, func
    >>> with debug.count_operators() as counts:
    ...     gradient = func.grad(lambda x: np.sum(x * x))(numpy.ones(3))
    >>> sorted(counts)
    ['MultiplyBackward', 'SumBackward', 'np::multiply', 'np::sum']
    """
    counts: Counter[str] = Counter()
    recorder = _core.Recorder("count_operators()")
    try:
        with recorder:
            yield counts
    finally:
        counts.update(_name_of(event[0]) for event in recorder.events)


def _name_of(what: OpOverload | str) -> str:
    return what if isinstance(what, str) else str(what.name)


def _own_parts(events: list[Event]) -> list[list[int]]:
    """Return the time and allocated bytes of each event, excluding the events inside it."""
    parts = [[event.stop - event.start, event.allocated] for event in events]
    for event in events:
        if event.around >= 0:
            parts[event.around][0] -= event.stop - event.start
            parts[event.around][1] -= event.allocated
    return parts


def _around(events: list[Event], i: int) -> Iterator[int]:
    """Yield the positions of the enclosing events, innermost first."""
    while (i := events[i].around) >= 0:
        yield i


class _Lines:
    """The lines of instructions, as `file:line`. Each function is read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def __call__(self, code: CodeType | None, offset: int) -> str:
        if code is None:
            return "(no Python code)"
        key = id(code), offset
        if key not in self._known:
            line = next((line for start, stop, line in code.co_lines() if start <= offset < stop), None)
            self._known[key] = f"{code.co_filename}:{line or code.co_firstlineno}"
        return self._known[key]


def _check(argument: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"profile: argument {argument} is {value!r}, expected one of {', '.join(map(repr, known))}\n"
                         f"write {argument}={known[0]!r}")


def _in_time(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.0f} ns"
