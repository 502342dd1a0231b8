"""The cost of the gradient of a program, over the same gradient written by hand in NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.cases.differentiators import OURS, THEIRS, Gradient, MakeGradient, available
from benchmarks.cases.kinds import Effort, Ratio, Row, matches
from benchmarks.cases.programs import TimedProgram, programs
from pydispatch.cli.timing import collecting

GRADIENTS = "Gradient of {}"


@dataclass(frozen=True)
class GradientRatio(Ratio):
    """The time of a gradient over that of the one by hand, with garbage collection. Both are checked to agree."""

    program: TimedProgram = field(kw_only=True, repr=False)
    make: MakeGradient = field(kw_only=True, repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        gradient = self.make(self.program)
        check(gradient, self.program)
        self.names["gradient"] = gradient
        with collecting():
            return super().measure(effort)


def check(gradient: Gradient, program: TimedProgram) -> None:
    """Raise AssertionError if a gradient differs from the one by hand."""
    result = gradient()
    results = [result] if len(program.parameters) == 1 and not isinstance(result, list) else result
    _, expected = program.by_hand(*program.arguments.values())
    for theirs, ours, name in zip(results, expected, program.parameters, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, err_msg=f"gradient of {name} in {program.title}")


def gradient_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[GradientRatio]:
    """Yield every program by each of our ways, and by those of other installed libraries, which have no bounds."""
    for program in programs():
        group = GRADIENTS.format(program.title)
        bounds = dict(zip(OURS, program.bounds, strict=True))
        for name, way in (OURS | THEIRS).items():
            if matches(group, name, pattern) and (module := available(way, program, name, left_out)):
                yield GradientRatio(
                    group, name, bounds.get(name), "gradient()",
                    f"by_hand({', '.join(program.arguments)})", names_of(program),
                    program=program, make=way.set_up(module),
                )


def names_of(program: TimedProgram) -> dict[str, Any]:
    """Return the arguments of the gradient by hand, by name."""
    return {"by_hand": program.by_hand, **program.arguments}
