"""Fixtures that the tests of the tape share."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Show that reference counts free what a test drops."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
