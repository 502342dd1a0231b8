"""The sources of random numbers that a traced function can reach. Only operators may change them during a trace."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from pydispatch.autograd.randomness import REMEDY, bits_of, hidden_source, is_repeating, sources, state_of
from pydispatch.autograd.surroundings import MAX_VALUES
from pydispatch.exceptions import DispatchTypeError


class Sources:
    """The sources among the objects in reach of a function and its arguments, and NumPy's hidden one, and their states.

    `who` traces the function.
    """

    def __init__(self, who: str, reach: Iterable[Any]) -> None:
        self.who = who
        kinds = sources()
        found = [bits_of(value) if isinstance(value, np.random.Generator) else value
                 for value in islice(reach, MAX_VALUES) if isinstance(value, kinds)]
        self._sources = {id(source): source for source in [*found, hidden_source()]}
        self._last = {key: state_of(source) for key, source in self._sources.items()}
        self._known: dict[int, set[int]] = {}       # hashes of earlier states, in which another run may begin

    def note(self) -> None:
        """Note the states, after a call that the trace has recorded."""
        for key, source in self._sources.items():
            state = state_of(source)
            self._known.setdefault(key, set()).update((hash(self._last[key]), hash(state)))
            if not is_repeating():
                self._last[key] = state

    def check(self) -> None:
        """Raise DispatchTypeError if a source is in another state than the last recorded call has left."""
        for key, source in self._sources.items():
            state = state_of(source)
            if state != self._last[key] and not (is_repeating() and hash(state) in self._known.get(key, ())):
                raise DispatchTypeError(
                    f"{self.who}: the traced function changed the state of a {type(source).__name__} by something "
                    "other than a draw that the trace records: each run of the graph would lack the change\n"
                    f"{REMEDY}")
