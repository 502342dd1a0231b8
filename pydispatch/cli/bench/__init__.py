"""What pydispatch costs: cases, measured as ratios within one run, and their bounds.

`python -m pydispatch bench` prints them; docs/performance.md says what each row means.
"""

from pydispatch.cli.bench.compilation import COMPILATION
from pydispatch.cli.bench.dispatch import OTHERS
from pydispatch.cli.bench.gradients import GRADIENTS
from pydispatch.cli.bench.graphs import GRAPHS
from pydispatch.cli.bench.interpreters import INTERPRETER, LINE
from pydispatch.cli.bench.kinds import Effort, Row
from pydispatch.cli.bench.once import ONCE
from pydispatch.cli.bench.python_dispatch import PEER
from pydispatch.cli.bench.suite import FULL, QUICK, cases, measure, report
from pydispatch.registry.sites import count_as_user

__all__ = [
    "COMPILATION", "FULL", "GRADIENTS", "GRAPHS", "INTERPRETER", "LINE", "ONCE", "OTHERS", "PEER", "QUICK", "Effort",
    "Row", "cases", "measure", "report",
]

count_as_user(__name__)     # its programs are compiled as those of users are
