"""The policy for operators that would make a dense array of a sparse one without a request."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

from pydispatch._sites import frames_to_caller
from pydispatch.exceptions import PerformanceWarning, UnsupportedError

Policy = Literal["raise", "warn", "allow"]
policy_now: ContextVar[Policy] = ContextVar("densifying", default="warn")


@contextmanager
def densifying(policy: Policy) -> Iterator[None]:
    """Set what operators do in this block if they would make a dense array of a sparse one.

    Parameters
    ----------
    policy
        "raise" raises an UnsupportedError, "warn" (the default outside of all blocks) issues a PerformanceWarning, and
        "allow" does neither.

    Raises
    ------
    ValueError
        If the policy is another one.

    Examples
    --------
    >>> import pydispatch.numpy as pnp
    >>> from scipy import sparse
    >>> with densifying("allow"):
    ...     pnp.exp(sparse.csr_array([[0.0, 0.0]]))
    array([[1., 1.]])
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
    """Warn or raise, depending on the policy, because an operator makes a dense array of a sparse one of this shape."""
    policy = policy_now.get()
    what = f"operator np::{operator}: the result has values where the sparse argument of shape {shape} has none"
    if policy == "raise":
        raise UnsupportedError(f"{what}, so it would be dense\nto allow this, write densifying(\"allow\"), or "
                               "pydispatch.backends.sparse.to_dense(array)")
    if policy == "warn":
        warnings.warn(f"{what}, so it is dense\nto avoid this warning, write to_dense(array), or "
                      'densifying("allow")', PerformanceWarning, stacklevel=frames_to_caller())
