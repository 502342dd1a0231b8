"""What happens where an operator would make a dense array of a sparse one that is not asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydispatch.exceptions import PerformanceWarning, UnsupportedError
from pydispatch.registry.sites import frames_to_caller

Policy = Literal["raise", "warn", "allow"]
policy_now: ContextVar[Policy] = ContextVar("densifying", default="warn")


@contextmanager
def densifying(policy: Policy) -> Iterator[None]:
    """In this block, operators that would make a dense array of a sparse one "raise", "warn" (the default) or do.

    Raises ValueError for another policy. The error is an UnsupportedError, the warning a PerformanceWarning.
    """
    if policy not in ("raise", "warn", "allow"):
        raise ValueError(f'densifying: found {policy!r}, expected "raise", "warn" or "allow"\n'
                         'write densifying("allow")')
    token = policy_now.set(policy)
    try:
        yield
    finally:
        policy_now.reset(token)


def announce(operator: str, shape: tuple[int, ...]) -> None:
    """Say that an operator makes a dense array of this shape, as the policy wants it."""
    policy = policy_now.get()
    what = f"operator np::{operator}: the result has values where the sparse argument of shape {shape} has none"
    if policy == "raise":
        raise UnsupportedError(f"{what}, and would be dense\nto have that, write densifying(\"allow\"), or "
                               "pydispatch.backends.sparse.to_dense(array)")
    if policy == "warn":
        warnings.warn(f"{what}; it is dense\nto have that without a warning, write to_dense(array), or "
                      'densifying("allow")', PerformanceWarning, stacklevel=frames_to_caller())
