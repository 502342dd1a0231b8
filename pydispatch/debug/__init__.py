"""Inspect the dispatcher: dump registrations and tables, explain and trace calls, profile programs and find NaN."""

from pydispatch._loading import only_public
from pydispatch.debug.explain import Explanation
from pydispatch.debug.invariants import check_invariants
from pydispatch.debug.memory import MemoryUse, memory
from pydispatch.debug.nan import nan_detector
from pydispatch.debug.profile import Profile, count_operators, profile
from pydispatch.debug.saved import check_saved
from pydispatch.debug.state import dump_state, dump_table
from pydispatch.debug.trace import trace

__all__ = [
    "Explanation", "MemoryUse", "Profile", "check_invariants", "check_saved", "count_operators", "dump_state",
    "dump_table", "memory", "nan_detector", "profile", "trace",
]
__dir__ = only_public(globals())
