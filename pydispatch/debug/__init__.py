"""Inspect the dispatcher: dump registrations and tables, check invariants, explain a call, trace calls."""

from pydispatch.debug.explain import Explanation
from pydispatch.debug.invariants import check_invariants
from pydispatch.debug.state import dump_state, dump_table
from pydispatch.debug.trace import trace

__all__ = ["Explanation", "check_invariants", "dump_state", "dump_table", "trace"]
