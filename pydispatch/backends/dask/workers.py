"""Code that runs on Dask's workers: functions that each process loads once, and the plugin that registers operators."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
from distributed import Worker, WorkerPlugin

from pydispatch.backends.dask.functions import Arrays, ChunkFunction, as_arrays
from pydispatch.compiling.functions import compile

MOST_FUNCTIONS = 128
"""The number of functions that a process keeps compiled. It drops the least recently used."""

_loaded: OrderedDict[str, Callable[..., Any]] = OrderedDict()       # by token
_lock = threading.Lock()


class ShippedFunction:
    """A function as it is sent to workers. Each process loads it once, and compiles it once if requested."""

    __slots__ = ("data", "is_compiled", "token")

    def __init__(self, function: ChunkFunction, is_compiled: bool) -> None:
        self.data: bytes = cloudpickle.dumps(function)
        self.is_compiled = is_compiled
        self.token = hashlib.sha1(self.data, usedforsecurity=False).hexdigest() + ("-compiled" if is_compiled else "")

    def __dask_tokenize__(self) -> str:
        return self.token

    def loaded(self) -> Callable[..., Any]:
        """Return the function, loaded and compiled in this process."""
        with _lock:
            function = _loaded.get(self.token)
            if function is not None:
                _loaded.move_to_end(self.token)
                return function
        function = cloudpickle.loads(self.data)     # not under the lock: it may import modules
        if self.is_compiled:
            function = compile(function)
        with _lock:
            function = _loaded.setdefault(self.token, function)
            while len(_loaded) > MOST_FUNCTIONS:
                _loaded.popitem(last=False)
        return function


class Work(NamedTuple):
    """The input that all chunks share: the function, and the arrays that are the same for all chunks."""

    function: ShippedFunction
    shared: Arrays


def run_on_chunk(work: Work, *chunks: Any) -> Arrays:
    """Return the results for one chunk."""
    return as_arrays(work.function.loaded()(*chunks, *work.shared))


class RegisterOperators(WorkerPlugin):
    """Registers operators on all workers, also those that join later, by `client.register_plugin(...)`.

    Parameters
    ----------
    *sources
        Modules, or their names, which every worker imports. Operators, or namespaces such as `ops.my`, which are sent
        together with their registrations.
    """

    def __init__(self, *sources: Any) -> None:
        self._modules = [source.__name__ if isinstance(source, ModuleType) else source for source in sources
                         if isinstance(source, (str, ModuleType))]
        operators = [source for source in sources if not isinstance(source, (str, ModuleType))]
        self._operators: bytes = cloudpickle.dumps(operators)
        self.name = f"pydispatch-operators-{hashlib.sha1(repr((self._modules, self._operators)).encode()).hexdigest()}"

    def setup(self, worker: Worker) -> None:
        """Register the operators in the process of a worker."""
        for module in self._modules:
            import_module(module)
        cloudpickle.loads(self._operators)
