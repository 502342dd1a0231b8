"""Tracing of every kernel that runs."""

# tests: tests/debug/test_debug.py
from __future__ import annotations

import sys
import threading
from typing import TextIO

from pydispatch import _core
from pydispatch._core import OpOverload, TableEntry
from pydispatch.keys import DispatchKey
from pydispatch.modes import Guard


class CallPrinter:
    """Prints a line for each kernel that runs, indented by depth: path, operator, key, kernel, label."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.file = file
        self._threads = threading.local()

    def enter(self, how: str, op: OpOverload, key: DispatchKey, entry: TableEntry) -> None:
        """Print the kernel that is about to run."""
        depth = getattr(self._threads, "depth", 0)
        file = _open_stderr() if self.file is None else self.file
        if file is not None:
            print(f"{'  ' * depth}{how} {op.name} on {key.name}: {entry.kernel.debug} [{entry.label}]", file=file)
        self._threads.depth = depth + 1

    def leave(self) -> None:
        """Note that the kernel has returned or raised."""
        self._threads.depth -= 1


def _open_stderr() -> TextIO | None:
    """Return standard error, or None in a process without one, such as a daemon."""
    return None if sys.stderr is None or sys.stderr.closed else sys.stderr


def trace(file: TextIO | None = None) -> Guard:
    """Print every kernel that runs inside the block.

    The environment variable PYDISPATCH_TRACE=1 does so from the start of the process.

    Parameters
    ----------
    file
        The file to print to. The default is standard error, if there is one.

    Returns
    -------
    Guard
        A context manager.

    Examples
    --------
    >>> import sys
    >>> import numpy as np
    >>> from pydispatch import debug, ops
    >>> with debug.trace(sys.stdout):
    ...     result = ops.np.add(np.ones(2), 1.0)
    call np::add on CPU: add at numpy [kernel]
    """
    return Guard("trace()", tracer=CallPrinter(file))


def trace_from_start() -> None:
    """Print every kernel that runs, in every thread. Call this before any kernel has run."""
    _core.trace_from_start(CallPrinter())
