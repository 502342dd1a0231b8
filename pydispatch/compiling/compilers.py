"""Compilers: functions that make a graph a function of NumPy arrays, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from pydispatch.compiling.plan import compile_to_plan
from pydispatch.exceptions import CompilationError, RegistrationError
from pydispatch.tracing import Graph

Lower = Callable[..., Callable[..., tuple[Any, ...]]]

GROUP = "pydispatch.compilers"
"""The group of entry points, through which installed packages name their compilers."""

_compilers: dict[str, Lower] = {}


def register_compiler(name: str, lower: Lower) -> None:
    """Have `compile(f, backend=name)` use a compiler.

    `lower(graph)` returns a function of as many NumPy arrays as the graph has placeholders, which returns what the
    graph returns, a tuple of arrays. One that can use threads takes their number, too: `lower(graph, threads=2)` is
    called where a user asks for more than one. The arrays that it gets have the shapes and dtypes in the placeholders'
    `meta["val"]`, in any layout; it must not write to them. RegistrationError where the name is taken.

    An installed package names its compiler in the entry point group `pydispatch.compilers`.
    """
    if not callable(lower):
        raise RegistrationError(f"register_compiler: lower is a {type(lower).__name__}, expected a function\n"
                                "pass one that makes a function of a graph: lower(graph)")
    if name in _compilers:
        raise RegistrationError(f"register_compiler: there is a compiler {name!r} already\nchoose another name")
    _compilers[name] = lower


def compiler_named(name: str) -> Lower:
    """The compiler of this name; CompilationError where there is none."""
    if name not in _compilers:
        for point in entry_points(group=GROUP, name=name):
            register_compiler(name, point.load())
    if name not in _compilers:
        known = sorted({*_compilers, *[point.name for point in entry_points(group=GROUP)]})
        raise CompilationError(f"compile: backend is {name!r}, expected one of {', '.join(map(repr, known))}\n"
                               "name one of these, or register it: register_compiler(name, lower)")
    return _compilers[name]


def compile_to_python(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """The straight-line Python source of the graph, which calls kernels: `Graph.compile`."""
    function = graph.compile().function
    return lambda *arrays: tuple(function(*arrays))


register_compiler("plan", compile_to_plan)
register_compiler("python", compile_to_python)
