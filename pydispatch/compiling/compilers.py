"""Compilers by name. A compiler turns a graph into a function of NumPy arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._registry.backends import is_like_numpy
from pydispatch._sites import remember, replaces_former
from pydispatch.compiling.plan import compile_to_plan
from pydispatch.exceptions import CompilationError, DispatchTypeError, RegistrationError
from pydispatch.tracing import Graph
from pydispatch.tracing.values import device_of

Lower = Callable[..., Callable[..., tuple[Any, ...]]]

GROUP = "pydispatch.compilers"
"""The group of entry points in which installed packages name their compilers."""

_compilers: dict[str, Lower] = {}

ON_DEMAND = {"numba": ("pydispatch.compiling.numba_backend", "compile_to_numba")}
"""Compilers of this package that need another package: (module, function). Each has an extra of its name."""


def register_compiler(name: str, lower: Lower) -> None:
    """Register a compiler, for use as `compile(f, backend=name)`.

    The code that registered a compiler may run again. The new compiler then replaces it, with an OverrideWarning. An
    installed package names its compiler in the entry point group `pydispatch.compilers`.

    Parameters
    ----------
    name
        The name to pass as `backend`.
    lower
        `lower(graph)` returns a function of as many NumPy arrays as the graph has placeholders. The function returns a
        tuple of arrays, as the graph does. Callers get copies of arrays that share memory with another array or are not
        in C order. Its arguments have the shapes and dtypes in the placeholders' `meta["val"]`, and any layout. The
        function must not write to them. A compiler that can use threads also takes their number: for more than one, it
        is called as `lower(graph, threads=2)`.

    Raises
    ------
    RegistrationError
        If the name is taken otherwise, or an argument has the wrong type.
    """
    if not isinstance(name, str):
        raise RegistrationError(f"register_compiler: name is {name!r}, expected a str\nwrite register_compiler('mine', "
                                "lower)")
    if not callable(lower):
        raise RegistrationError(f"register_compiler: lower is {_core.a_type(lower)}, expected a function\n"
                                "pass one that makes a function of a graph: lower(graph)")
    if name in ON_DEMAND or (name in _compilers and not replaces_former("compiler", name)):
        raise RegistrationError(f"register_compiler: there is a compiler {name!r} already\nchoose another name")
    remember("compiler", name)
    _compilers[name] = lower


def compiler_named(name: str) -> Lower:
    """Return the compiler of this name. Raise CompilationError if there is none."""
    if not isinstance(name, str):
        raise DispatchTypeError(f"compile: backend is {name!r}, expected the name of a compiler\nwrite backend='plan'")
    if name in ON_DEMAND and name not in _compilers:
        _compilers[name] = _loaded(name, *ON_DEMAND[name])
    if name not in _compilers:
        for point in entry_points(group=GROUP, name=name):
            register_compiler(name, point.load())
    if name not in _compilers:
        known = sorted({*_compilers, *ON_DEMAND, *[point.name for point in entry_points(group=GROUP)]})
        raise CompilationError(f"compile: backend is {name!r}, expected one of {', '.join(map(repr, known))}\n"
                               "name one of these, or register it: register_compiler(name, lower)")
    return _compilers[name]


def _loaded(name: str, module: str, function: str) -> Lower:
    try:
        lower: Lower = getattr(import_module(module), function)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pydispatch"):
            raise
        raise CompilationError(f"compile: backend {name!r} needs the package {error.name}, which is not installed\n"
                               f"install it: pip install 'pydispatch-numpy[{name}]'") from error
    return lower


def numpy_array(value: Any, what: str) -> np.ndarray[Any, Any]:
    """Return the elements of a NumPy array or scalar.

    Raises DispatchTypeError for other arrays, such as masked ones and those of classes that redefine operators.
    """
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.generic) or (
            isinstance(value, np.ndarray) and device_of(value) == "CPU" and is_like_numpy(value)):
        return np.asarray(value)        # a subclass with the same meaning, such as numpy.memmap
    way = ("pass numpy.asarray(matrix)" if isinstance(value, np.matrix)
           else "call the function itself, not compiled, for other arrays")
    raise DispatchTypeError(f"compile: {what} is {_core.a_type(value)}, expected a NumPy array\n{way}")


class NewResults:
    """A function whose results are always new arrays in C order: it copies those of another function if needed."""

    def __init__(self, function: Callable[..., Any], constants: Iterable[Any]) -> None:
        self._function = function
        self._known = tuple([constant for constant in constants if isinstance(constant, np.ndarray)])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        others = [*self._known, *arrays]
        results = []
        for found in self._function(*arrays):
            result = numpy_array(found, "a result") if isinstance(found, np.ndarray) else np.asarray(found)
            flags = result.flags
            is_new = flags.c_contiguous and flags.writeable and flags.aligned and result.dtype.isnative
            if not is_new or any(np.may_share_memory(result, other) for other in others):
                result = np.array(result, result.dtype.newbyteorder("="), order="C")
            others.append(result)
            results.append(result)
        return tuple(results)

    def __str__(self) -> str:
        return str(self._function)


def takes_threads(lower: Lower) -> bool:
    """Return whether a compiler takes the number of threads to use."""
    try:
        parameters = inspect.signature(lower).parameters
    except ValueError:      # written in C
        return True
    return "threads" in parameters or any(found.kind is found.VAR_KEYWORD for found in parameters.values())


class PythonSource:
    """A graph as a function of raw arrays that runs its source. It prints as that source."""

    def __init__(self, graph: Graph) -> None:
        compiled = graph.compile()
        self._function, self._source = compiled.function, compiled.source

    def __call__(self, *arrays: Any) -> Any:
        return self._function(*arrays)

    def __str__(self) -> str:
        return self._source


def compile_to_python(graph: Graph, threads: int = 1) -> Callable[..., tuple[Any, ...]]:
    """Compile a graph to straight-line Python source that calls kernels. Threads are left to NumPy."""
    return PythonSource(graph)


register_compiler("plan", compile_to_plan)
register_compiler("python", compile_to_python)
