"""What pydispatch costs: cases, measured as ratios within one run, and their bounds.

`python -m pydispatch bench` prints them; docs/performance.md says what each row means.
"""

from pydispatch.bench.dispatch import OTHERS
from pydispatch.bench.gradients import GRADIENTS
from pydispatch.bench.graphs import GRAPHS
from pydispatch.bench.kinds import Effort, Row
from pydispatch.bench.levels import LEVEL, LINE
from pydispatch.bench.once import ONCE
from pydispatch.bench.python_dispatch import PEER
from pydispatch.bench.suite import FULL, QUICK, cases, measure, report

__all__ = [
    "FULL", "GRADIENTS", "GRAPHS", "LEVEL", "LINE", "ONCE", "OTHERS", "PEER", "QUICK", "Effort", "Row", "cases",
    "measure", "report",
]
