"""The sources of random numbers that a traced function can reach. Only operators may change them during a trace."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from pydispatch.autograd.randomness import REMEDY, bits_of, sources, state_of
from pydispatch.autograd.surroundings import MAX_VALUES
from pydispatch.exceptions import DispatchTypeError


class Sources:
    """The sources among the objects in reach of a function and its arguments, and their states.

    `who` traces the function.
    """

    def __init__(self, who: str, reach: Iterable[Any]) -> None:
        self.who = who
        kinds = sources()
        found = [bits_of(value) if isinstance(value, np.random.Generator) else value
                 for value in islice(reach, MAX_VALUES) if isinstance(value, kinds)]
        # with hashes of all known states, since another run of a body begins in an earlier one
        self._states = {id(source): (source, {hash(state_of(source))}) for source in found}

    def note(self) -> None:
        """Note the states, after a call that the trace has recorded."""
        for source, known in self._states.values():
            known.add(hash(state_of(source)))

    def check(self) -> None:
        """Raise DispatchTypeError if a source is in an unknown state."""
        for source, known in self._states.values():
            if hash(state_of(source)) not in known:
                raise DispatchTypeError(
                    f"{self.who}: the traced function changed the state of a {type(source).__name__} by something "
                    "other than a draw that the trace records: each run of the graph would lack the change\n"
                    f"{REMEDY}")
