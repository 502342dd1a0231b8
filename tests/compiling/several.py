"""A kind of step that the package does not have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydispatch.compiling.passes.encoding import Encoder
from pydispatch.compiling.passes.memory import Arena
from pydispatch.compiling.steps import Step, lines_of


@dataclass(slots=True)
class SeveralStep(Step):
    """Steps that run several times, without carries."""

    body: list[Step]
    times: int

    def inner(self) -> Sequence[Step]:
        return self.body

    def map_bodies(self, function: Callable[[list[Step]], list[Step]]) -> None:
        self.body = function(self.body)

    def lines(self, indent: str) -> Iterator[str]:
        yield f"{indent}{self.times} times:"
        yield from lines_of(self.body, indent + "    ")

    def add_lifetimes(self, arena: Arena) -> None:
        start = arena.time
        arena.walk(self.body)
        arena.extend(self, start)

    def encode(self, encoder: Encoder) -> None:
        at, _ = encoder.add_bodies(self.body, ())
        encoder.add_header("repeat", at, self.times * encoder.work_since(at), "several", n_places=0, n_moves=0,
                           n_swaps=0, length=self.times, buffer=0, offset=0, n_test=0)
