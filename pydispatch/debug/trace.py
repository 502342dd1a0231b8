"""Print every kernel that runs."""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from pydispatch import _core
from pydispatch._core import OpOverload, TableEntry
from pydispatch.keys import DispatchKey
from pydispatch.modes import Guard


class CallPrinter:
    """Prints a line for each kernel that runs, indented by depth: how it was reached, operator, key, kernel, label."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._threads = threading.local()

    def enter(self, how: str, op: OpOverload, key: DispatchKey, entry: TableEntry) -> None:
        """A kernel is about to run."""
        depth = getattr(self._threads, "depth", 0)
        file = _open_stderr() if self.file is None else self.file
        if file is not None:
            print(f"{'  ' * depth}{how} {op.name} on {key.name}: {entry.kernel.debug} [{entry.label}]", file=file)
        self._threads.depth = depth + 1

    def leave(self) -> None:
        """The kernel has returned or raised."""
        self._threads.depth -= 1


def _open_stderr() -> TextIO | None:
    """Standard error; None in a process without one, such as a daemon."""
    return None if sys.stderr is None or sys.stderr.closed else sys.stderr


def trace(file: TextIO | None = None) -> Guard:
    """Print every kernel that runs inside the block, to `file` or standard error if there is one.

    The environment variable PYDISPATCH_TRACE=1 does so from the start of the process.
    """
    return Guard("trace()", tracer=CallPrinter(file))


def trace_from_start() -> None:
    """Print every kernel that runs, in every thread; call it before any has run."""
    _core.trace_from_start(CallPrinter())
