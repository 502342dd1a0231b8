"""Measurement of the memory that NumPy allocates for arrays."""

from __future__ import annotations

from pydispatch import _core


class MemoryUse(_core.MemoryUse):
    """The memory that NumPy allocates for arrays inside its blocks. Create one by `memory()`."""

    def __repr__(self) -> str:
        return (f"peak {in_bytes(self.peak)}, live {in_bytes(self.live)}, "
                f"allocated {in_bytes(self.allocated)} in {self.allocations} allocations")


def memory() -> MemoryUse:
    """Measure the memory that NumPy allocates for arrays inside the block: `peak`, `live`, `allocated`, `allocations`.

    It counts the bytes of elements in this thread or task, including temporaries inside NumPy's functions and
    computations on raw arrays without an operator. It does not count allocations before the block, nor the results of
    compiled functions, which reuse memory.

    Returns
    -------
    MemoryUse
        A context manager whose attributes are the measurements.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import debug
    >>> with debug.memory() as used:
    ...     array = np.ones(1000)
    >>> used.peak >= 8000
    True
    """
    return MemoryUse()


def in_bytes(number: float) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"
