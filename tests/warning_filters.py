"""Filters of warnings that tests share."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

loops_allowed = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
"""Allow operators without a batching rule to loop over the examples."""


@contextmanager
def all_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Record every warning, repeated ones too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings of divisions, overflows and casts."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
