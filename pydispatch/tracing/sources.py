"""The sources of random numbers that a traced function can reach. Only operators may change them during a trace."""

# tests: tests/higher_order/test_draws.py

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from pydispatch.autograd import randomness
from pydispatch.autograd.surroundings import MAX_VALUES
from pydispatch.exceptions import DispatchTypeError


class Sources:
    """The sources among the objects in reach of a function and its arguments, and NumPy's hidden one, and their states.

    `who` traces the function, in a `with` block. In the block, the unused part of each state counts the recorded calls,
    so a state that is set to itself is a change, too.
    """

    def __init__(self, who: str, reach: Iterable[Any]) -> None:
        self.who = who
        kinds = randomness.sources()
        found = [randomness.bits_of(value) if isinstance(value, np.random.Generator) else value
                 for value in islice(reach, MAX_VALUES) if isinstance(value, kinds)]
        found += [source._bit_generator for source in found if isinstance(source, np.random.RandomState)]
        self._sources = {id(source): source for source in [*found, randomness.hidden_source()]}
        self._last: dict[int, Any] = {}
        self._known: set[int] = set()       # hashes of earlier states, in which another run may begin
        self._marked: list[Any] = []

    def __enter__(self) -> None:
        self._marked = [source for source in self._sources.values() if isinstance(source, np.random.BitGenerator)]
        self._unused = [randomness.unused_part(bits.state) for bits in self._marked]
        self._count()

    def __exit__(self, kind: type | None, *_: Any) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            for bits, start in zip(self._marked, self._unused, strict=True):
                randomness.restore_unused_part(bits, start)

    def note(self) -> None:
        """Note the states, after a call that the trace has recorded."""
        if randomness.is_repeating():
            self._add_known()
        else:
            self._count()

    def check(self) -> None:
        """Raise DispatchTypeError if the state of a source is not what the last recorded call left."""
        for key, source in self._sources.items():
            if randomness.state_of(source) != self._last[key] and not (
                    randomness.is_repeating() and _hash_of(source) in self._known):
                raise DispatchTypeError(
                    f"{self.who}: the traced function changed the state of a {type(source).__name__} by something "
                    "other than a draw that the trace records: each run of the graph would lack the change\n"
                    f"{randomness.REMEDY}")

    def _count(self) -> None:
        for bits in self._marked:
            randomness.count_in_unused_part(bits)
        self._last = {key: randomness.state_of(source) for key, source in self._sources.items()}
        if self._marked:
            self._add_known()
        else:
            self._known.update(map(hash, self._last.items()))

    def _add_known(self) -> None:
        self._known.update(map(_hash_of, self._sources.values()))


def _hash_of(source: Any) -> int:
    return hash((id(source), randomness.state_of(source, 0)))
