"""The elementary operations: what the table in `plans/src/arithmetic.h` specifies for each universal function."""

# tests: tests/core/test_operations.py
from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy._core import umath

from pydispatch import _core

SLOW = 8                        # quick loops, about, that take as long as a loop with functions such as `exp`


class Elementary(NamedTuple):
    """A line of the table.

    `cost` is about how many additions take as long. `identity` is (a number that changes no bit of the other operand,
    the operands that it may be: the second (1), or either (2)). `expressions` has the C for each kind of dtype.
    """

    cost: int
    identity: tuple[int, int] | None
    expressions: dict[str, str]


def read_columns(cost: str, identity: str, expressions: str) -> Elementary:
    """Return the columns of a line that are for Python."""
    found = re.fullmatch(r"(RIGHT|EITHER)\((\d+)\)", identity)
    return Elementary(
        int(cost), (int(found[2]), 1 if found[1] == "RIGHT" else 2) if found else None,
        {kind: text for kinds, _, text in [part.partition(" ") for part in expressions.split(";")] for kind in kinds})


ELEMENTARY: dict[np.ufunc, Elementary] = {
    getattr(umath, name): read_columns(*columns) for name, _, _, *columns in _core.ELEMENTARY_OPERATIONS}
