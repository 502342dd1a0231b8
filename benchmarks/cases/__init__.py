"""Measure what pydispatch costs: cases, as ratios within one run, with their bounds.

`python -m benchmarks` prints them; docs/performance.md explains each row.
"""

from benchmarks.cases.compilation import COMPILATION
from benchmarks.cases.dispatch import OTHERS
from benchmarks.cases.gradients import GRADIENTS
from benchmarks.cases.graphs import GRAPHS
from benchmarks.cases.interpreters import INTERPRETER, LINE
from benchmarks.cases.kinds import Effort, Row
from benchmarks.cases.once import ONCE
from benchmarks.cases.python_dispatch import PEER
from benchmarks.cases.suite import FULL, QUICK, cases, measure, report

__all__ = [
    "COMPILATION", "FULL", "GRADIENTS", "GRAPHS", "INTERPRETER", "LINE", "ONCE", "OTHERS", "PEER", "QUICK", "Effort",
    "Row", "cases", "measure", "report",
]
