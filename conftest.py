"""The examples in the documentation, the README and the docstrings are tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from importlib.util import find_spec
from typing import Any

import pytest
from sybil import Sybil
from sybil.document import PythonDocStringDocument
from sybil.integration.pytest import SybilItem
from sybil.parsers.myst import PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

pytest_plugins = ["tests.needs"]
OUTPUT_FLAGS = ELLIPSIS | NORMALIZE_WHITESPACE

pages = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=OUTPUT_FLAGS)],
    patterns=["README.md", "docs/*.md"],
    excludes=[] if find_spec("distributed") else ["docs/backends.md", "docs/scale.md"],
)
docstrings = Sybil(
    parsers=[DocTestParser(OUTPUT_FLAGS)],
    patterns=["pydispatch/*.py", "pydispatch/*/*.py", "pydispatch/*/*/*.py"],
    document_types={".py": PythonDocStringDocument},
)

pytest_collect_file = (pages + docstrings).pytest()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, since all items survive them: a third of the time.

    `gc.disable` would do it too, but Dask, imported then, remembers that the collector is off and leaves it off later.
    """
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        return (yield)
    finally:
        gc.set_threshold(*before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedule files in time linear in the number of items: pytest-xdist searches and counts all items for each one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Collection(list[str]):
        def __init__(self, ids: Sequence[str]) -> None:
            super().__init__(ids)
            self.index = {name: i for i, name in enumerate(ids)}.__getitem__

    class Scheduling(LoadFileScheduling):
        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            self.registered_collections[node] = Collection(collection)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            name = self.registered_collections[node][item_index]
            del self.assigned_work[node][self._split_scope(name)][name]
            self._reschedule(node)

    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the examples after the tests: a page registers a backend, which lasts for the life of the process."""
    items.sort(key=lambda item: isinstance(item, SybilItem))
