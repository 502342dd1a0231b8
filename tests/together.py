"""Cases that a test runs one by one as one item of pytest, which takes longer for an item than for most cases."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.ids import without_address


def together(names: str, cases: Iterable[Any], ids: Any = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on all cases as one item, and report each case that fails.

    The arguments are those of `pytest.mark.parametrize`. The test has only fixtures that its cases can share.
    """
    cases, keys = list(cases), [name.strip() for name in names.split(",")]
    labels = None if ids is None or callable(ids) else list(ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def failure(i: int, others: dict[str, Any]) -> Exception | None:
            try:
                test(**others, **dict(zip(keys, cases[i] if len(keys) > 1 else (cases[i],), strict=True)))
                return None
            except (pytest.fail.Exception, pytest.skip.Exception) as failed:    # not an Exception. None may be skipped
                error: Exception = AssertionError(failed.msg)
            except Exception as raised:
                error = raised
            error.add_note(f"in the case {labels[i] if labels else (ids or without_address)(cases[i])}")
            return error

        @functools.wraps(test)
        def run(**others: Any) -> None:
            failures = [error for i in range(len(cases)) if (error := failure(i, others)) is not None]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases fail", failures)

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(
            parameters=[value for name, value in signature.parameters.items() if name not in keys])
        return run

    return decorate
