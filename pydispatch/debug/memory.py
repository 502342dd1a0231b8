"""How much memory NumPy allocates for arrays."""

from __future__ import annotations

from pydispatch import _core


class MemoryUse(_core.MemoryUse):
    """What NumPy allocates for arrays inside of its blocks; `memory()` makes one."""

    def __repr__(self) -> str:
        return (f"peak {in_bytes(self.peak)}, live {in_bytes(self.live)}, "
                f"allocated {in_bytes(self.allocated)} in {self.allocations} allocations")


def memory() -> MemoryUse:
    """Measure the memory that NumPy allocates for arrays inside the block: `peak`, `live`, `allocated`, `allocations`.

    It counts the bytes of elements, temporaries inside of NumPy's functions included, in this thread or task. What was
    allocated before the block does not count; nor do the results of compiled functions, which use memory again.
    """
    return MemoryUse()


def in_bytes(number: float) -> str:
    """A number of bytes, in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"
