"""What the tests of benchmarks share."""

from __future__ import annotations

import pytest

from pydispatch.cli import timing


@pytest.fixture
def work(monkeypatch):
    """A call that takes as many microseconds as it is told, on a clock that nothing else moves on."""
    now = [0.0]

    def work(microseconds):
        now[0] += microseconds * 1e-6

    monkeypatch.setattr(timing, "clock", lambda: now[0])
    return work
