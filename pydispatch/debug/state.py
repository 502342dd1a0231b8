"""Registrations and tables as text."""

# tests: tests/debug/test_debug.py
from __future__ import annotations

from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch._registry import registrations
from pydispatch._registry.messages import describe, describe_table
from pydispatch._registry.operators import find
from pydispatch._registry.registrations import definition_of
from pydispatch._registry.tables import compute_table


def overload_of(op: str | OpOverload | OpOverloadPacket) -> OpOverload | None:
    """Return the overload of this name, or None if it does not exist."""
    if isinstance(op, OpOverload):
        return op
    if isinstance(op, OpOverloadPacket):
        return op.overloads[0] if op.overloads else find(op.name)
    return find(op)


def dump_state(op: str | OpOverload | OpOverloadPacket | None = None) -> str:
    """Return the registrations of an operator as text.

    The text has one line each for the name, the schema, the definition site and the alias-analysis kind. A line per
    kernel follows: runtime keys before aliases, and for each key the newest first and the others marked inactive. A
    line per rule for a class follows.

    Parameters
    ----------
    op
        The operator, or its name. None means all operators.

    Returns
    -------
    str
        The text, or "" for an unknown operator.
    """
    if op is None:
        return "\n".join(describe(registrations.operators[name]) for name in sorted(registrations.operators))
    found = overload_of(op)
    return "" if found is None else describe(found)


def dump_table(op: str | OpOverload | OpOverloadPacket, which: str = "computed") -> str:
    """Return the table of an operator as text.

    The live table is empty until the first call after a change. A stale one never differs.

    Parameters
    ----------
    op
        The operator, or its name.
    which
        "computed" from its registrations, "live", or the "difference" of the two.

    Returns
    -------
    str
        The text, or "" for an unknown operator.

    Examples
    --------
    >>> from pydispatch import debug
    >>> print(debug.dump_table("np::add").splitlines()[0])
    CPU: add at numpy [kernel]
    """
    found = overload_of(op)
    if found is None or definition_of(found) is None:
        return ""
    computed = describe_table(compute_table(found).rows)
    if which == "computed":
        return computed
    live = describe_table(found.live_table.rows) if found.live_table is not None else ""
    if which == "live":
        return live
    if which != "difference":
        raise ValueError(f'dump_table: argument which is {which!r}, expected "computed", "live" or "difference"\n'
                         'leave it out for "computed"')
    if found.live_table is None:
        return ""
    old, new = live.splitlines(), computed.splitlines()
    return "".join(f"- {line}\n" for line in old if line not in new) + "".join(
        f"+ {line}\n" for line in new if line not in old)
