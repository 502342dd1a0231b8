"""Generated source code, and the function that it defines."""

from __future__ import annotations

import itertools
import linecache
import weakref
from typing import Any, NamedTuple

numbers = itertools.count()     # counts the sources that were compiled
# files of freed functions, which leave `linecache` later, since it may be iterating over its entries now
forgotten: list[str] = []


class Source(NamedTuple):
    """Python source that defines a function `forward`, and the values of its globals."""

    text: str
    names: dict[str, Any]

    def function(self) -> Any:
        """Return the function. Tracebacks show its lines as long as it exists."""
        while forgotten:
            linecache.cache.pop(forgotten.pop(), None)
        filename = f"<graph {next(numbers)}>"
        namespace = dict(self.names)
        exec(compile(self.text, filename, "exec"), namespace)
        function = namespace["forward"]
        linecache.cache[filename] = len(self.text), None, self.text.splitlines(keepends=True), filename
        weakref.finalize(function, forgotten.append, filename).atexit = False
        return function
