"""Fixtures of the tests of benchmarks."""

from collections.abc import Iterator

import pytest

from benchmarks.cases.peers import NAMESPACE
from pydispatch.cli import timing
from pydispatch.library import Library


@pytest.fixture
def work(monkeypatch):
    """Provide a call that takes as many microseconds as it is told, on a clock that nothing else moves on."""
    now = [0.0]

    def work(microseconds):
        now[0] += microseconds * 1e-6

    monkeypatch.setattr(timing, "clock", lambda: now[0])
    return work


@pytest.fixture
def library() -> Iterator[Library]:
    """Provide a library on the namespace of the benchmarks' operators."""
    with Library(NAMESPACE, "FRAGMENT") as library:
        yield library
