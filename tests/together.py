"""Cases that a test runs one by one as one item of pytest, which takes longer for an item than for most cases."""

from __future__ import annotations

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
    labels = [ids(case) for case in cases] if callable(ids) else list(ids or map(without_address, cases))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def failure(case: Any, label: Any, others: dict[str, Any]) -> Exception | None:
            try:
                test(**others, **dict(zip(keys, case if len(keys) > 1 else (case,), strict=True)))
            except Exception as error:
                error.add_note(f"in the case {label}")
                return error
            except (pytest.fail.Exception, pytest.skip.Exception) as error:     # not an Exception. None may be skipped
                return AssertionError(f"{error.msg}, in the case {label}")
            return None

        @functools.wraps(test)
        def run(**others: Any) -> None:
            found = [failure(case, label, others) for case, label in zip(cases, labels, strict=True)]
            failures = [error for error in found if error is not None]
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(cases)} cases fail", failures)

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(
            parameters=[value for name, value in signature.parameters.items() if name not in keys])
        return run

    return decorate
