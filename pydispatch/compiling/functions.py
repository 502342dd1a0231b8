"""`compile`: a function that is traced once for each kind of arguments, and then runs a plan."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import types
import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import CompiledFunction, Tensor
from pydispatch.compiling.compilers import compiler_named
from pydispatch.compiling.operator import COMPILED
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.programs import Backend, Program, of_function
from pydispatch.compiling.reports import difference, report
from pydispatch.exceptions import CompilationError, DispatchTypeError, PerformanceWarning
from pydispatch.func.values import are_tensors_passed, handed_out
from pydispatch.registry.sites import caller_site
from pydispatch.tracing import Graph
from pydispatch.tree import is_pytree_node_type, tree_flatten, tree_unflatten

MOST_THREADS = 64

MANY_VARIANTS = 8
"""From so many variants on, each new one is worth a warning."""


class CacheInfo(NamedTuple):
    """How often a compiled function ran a plan that it had, how often it made one, and how many it has."""

    hits: int
    misses: int
    currsize: int


def compile(
    f: Callable[..., Any], *, backend: str = "plan", threads: int | None = None,
    static_argnums: int | Sequence[int] = (), donate: int | Sequence[int] = (),
) -> Compiled:
    """A function like `f` that runs as a plan: a list of loops over arrays, in C.

    The first call with arguments of a new structure, shapes, dtypes or values of what is no array traces `f`: calls it
    with arrays that have no data, and notes the operators. So `f` is pure: it may not depend on data (`ops.np.where`,
    `higher_order.cond` and `scan` do that), writes to no argument, and what it prints is printed once. Captured arrays
    keep the values that they had then. Numbers, strings and None are part of the guard, so a new number compiles
    again: pass an array for what changes. `static_argnums` are positions of arguments that are compared as a whole, by
    `==`; these must be hashable. Arrays in the arguments at the positions `donate` are given up: results of the same
    shape and dtype may take their memory, where the call is under no transform and not on the tape.

    Results are new arrays in C order, Tensors if one was passed. `grad(compile(f))`, `vmap(compile(f))` and all other
    transforms see one operator, and `make_fx` the operators of `f`. `backend` is "plan", "python" (a straight line of
    kernel calls), or the name of a registered compiler: see `register_compiler`. Loops over large arrays are shared
    among so many `threads` (None: one, 0: one for each core that the process may use); the bits do not depend on it.

    Raises CompilationError or DataDependentError at the first call where `f` cannot be traced.
    """
    if not callable(f):
        raise DispatchTypeError(f"compile: f is a {type(f).__name__}, expected a function\nwrite compile(f)(x)")
    return Compiled(f, Backend(backend, _number_of_threads(threads)), static_argnums, donate)


def _number_of_threads(threads: int | None) -> int:
    if threads is None:
        return 1
    if not isinstance(threads, int) or isinstance(threads, bool) or not 0 <= threads <= MOST_THREADS:
        raise DispatchTypeError(f"compile: threads is {threads!r}, expected None or an int from 0 to {MOST_THREADS}\n"
                                "pass threads=0 for one on each core")
    return threads or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
                          MOST_THREADS)


@_core.keep_vectorcall
class Compiled(CompiledFunction):
    """A function that `compile` has made; see there."""

    def __init__(
        self, f: Callable[..., Any], backend: Backend, static_argnums: int | Sequence[int],
        donate: int | Sequence[int],
    ) -> None:
        compiler_named(backend.name)        # which raises for an unknown one
        functools.update_wrapper(self, f)
        self.__wrapped__: Callable[..., Any] = f
        self.general = self._call
        self.backend = backend
        self.static_argnums = _as_positions("static_argnums", static_argnums)
        self.donate = _as_positions("donate", donate)
        self._programs: dict[Any, Program] = {}
        self._reasons: list[str] = []
        self._general_hits = 0
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self, '__qualname__', self.__wrapped__)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.__wrapped__, self.backend, self.static_argnums, self.donate, dict(self._programs))

    # --- what it knows ---

    def cache_info(self) -> CacheInfo:
        """How often a plan was there, how often one was made, and how many there are."""
        return CacheInfo(self.hits + self._general_hits, len(self._reasons), len(self._programs))

    def cache_clear(self) -> None:
        """Forget all plans."""
        with self._lock:
            self._programs.clear()
            self._reasons.clear()
            self._general_hits = 0
            self.clear_variants()

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph for such arguments."""
        return self._program(_Arguments(self, args, kwargs)).graph

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """The steps of the plan for such arguments, as text; of other backends, what they show."""
        run = self._program(_Arguments(self, args, kwargs)).run
        return run.text if isinstance(run, PlanFunction) else str(run)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What was traced for such arguments, what became of it, and why the function was compiled so often."""
        program = self._program(_Arguments(self, args, kwargs))
        return report(repr(self), program, self._reasons)

    # --- calls ---

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        """A call of any kind: under transforms and modes, too, and for the first time."""
        arguments = _Arguments(self, args, kwargs)
        known = arguments.key in self._programs
        program = self._program(arguments)
        self._general_hits += known
        results = COMPILED(program, *arguments.arrays)
        as_tensors = are_tensors_passed(arguments.arrays)
        assert program.nest is not None
        return program.nest([handed_out(result, as_tensors, True) for result in results])

    def _program(self, arguments: _Arguments) -> Program:
        program = self._programs.get(arguments.key)
        if program is None:
            with self._lock:
                program = self._programs.get(arguments.key)
                if program is None:
                    program = self._compiled(arguments)
        return program

    def _compiled(self, arguments: _Arguments) -> Program:
        program = of_function(arguments.function, arguments.names, arguments.arrays, self.backend)
        for i, node in enumerate(program.graph.placeholders):
            if arguments.is_donated(i):
                node.meta["donated"] = True
        run = program.run
        known = list(self._programs)
        self._reasons.append(difference(arguments.key, known) if known else "the first call")
        self._programs[arguments.key] = program
        guard = arguments.guard()
        if isinstance(run, PlanFunction) and guard is not None and len(arguments.arrays) == len(run.plan.inputs):
            self.add_variant(_core.Variant(run.plan, len(arguments.args), guard, _nest_of(program)))
        if len(self._programs) > MANY_VARIANTS:
            warnings.warn(
                f"{self!r} was compiled {len(self._programs)} times, now because {self._reasons[-1]} (at "
                f"{caller_site()})\npass what changes as an array, and keep shapes; cache_clear() forgets all plans",
                PerformanceWarning, stacklevel=2)
        return program


def _as_positions(name: str, given: Any) -> tuple[int, ...]:
    positions = (given,) if isinstance(given, int) else tuple(given)
    if not all(isinstance(position, int) and not isinstance(position, bool) for position in positions):
        raise DispatchTypeError(f"compile: {name} is {given!r}, expected positions of arguments\nwrite {name}=(0, 2)")
    return positions


def _restored(
    f: Callable[..., Any], backend: Backend, static_argnums: tuple[int, ...], donate: tuple[int, ...],
    programs: dict[Any, Program],
) -> Compiled:
    compiled = Compiled(f, backend, static_argnums, donate)
    compiled._programs.update(programs)
    return compiled


def _nest_of(program: Program) -> Any:
    """How the core makes the result of the tuple of arrays: see Variant."""
    assert program.nest is not None
    marks = tuple([object() for _ in program.results])
    found: list[tuple[Any, ...]] = []
    if not _nested(program.nest(marks), set(map(id, marks)), found):
        return program.nest
    return None if found == [("array",)] else tuple(found)


def _nested(value: Any, marks: set[int], found: list[tuple[Any, ...]]) -> bool:
    """Add how a value is nested; False where it has a pytree node of another class."""
    kind = type(value)
    if id(value) in marks:
        found.append(("array",))
    elif kind is tuple or kind is list:
        found.append((kind.__name__, len(value)))
        return all(_nested(item, marks, found) for item in value)
    elif kind is dict:
        found.append(("dict", tuple(value)))
        return all(_nested(item, marks, found) for item in value.values())
    elif is_pytree_node_type(kind):
        return False
    else:
        found.append(("value", value))
    return True


class _Static:
    """An argument that is compared as a whole."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Arguments:
    """The arguments of a call: which arrays, and all else that a program is made for."""

    def __init__(self, compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.compiled = compiled
        self.args, self.kwargs = args, kwargs
        static = compiled.static_argnums
        if static:
            args = tuple([_Static(arg) if i in static or i - len(args) in static else arg
                          for i, arg in enumerate(args)])
        leaves, self.spec = tree_flatten((args, kwargs))
        self.leaves = [np.asarray(leaf) if isinstance(leaf, np.generic) else leaf
                       for leaf in _core.unwrap_all_dead(leaves)]
        self.arrays = [leaf for leaf in self.leaves if _core.is_array(leaf)]
        self.key = self.spec, tuple([_described(leaf) for leaf in self.leaves])

    def is_donated(self, number: int) -> bool:
        """Is this array, one of `arrays`, in an argument that is given up?"""
        positions = [i for i, arg in enumerate(self.args) for leaf in tree_flatten(arg)[0] if _core.is_array(leaf)]
        return number < len(positions) and (
            positions[number] in self.compiled.donate or positions[number] - len(self.args) in self.compiled.donate)

    @property
    def names(self) -> list[str]:
        """A name for each array: the parameter's, which is unique."""
        try:
            bound = inspect.signature(self.compiled.__wrapped__).bind(*self.args, **self.kwargs).arguments
        except (TypeError, ValueError):
            bound = {}
        owners = {id(leaf): name for name, value in bound.items() for leaf in tree_flatten(value)[0]}
        names: list[str] = []
        for array in self.arrays:
            base = owners.get(id(array), "arg")
            name, n = base, 1
            while name in names:
                n += 1
                name = f"{base}_{n}"
            names.append(name)
        return names

    def function(self, *arrays: Any) -> Any:
        """The user's function of the arrays."""
        rest = iter(arrays)
        leaves = [next(rest) if _core.is_array(leaf) else leaf.value if isinstance(leaf, _Static) else leaf
                  for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.spec)
        return self.compiled.__wrapped__(*args, **kwargs)

    def guard(self) -> tuple[tuple[Any, ...], ...] | None:
        """What a Variant of the core expects; None where it has no words for it."""
        found: list[tuple[Any, ...]] = []
        if self.kwargs or self.compiled.static_argnums:
            return None
        return tuple(found) if all(_expected(arg, found) for arg in self.args) else None


def _described(leaf: Any) -> Any:
    """What equal leaves have in common: of an array shape and dtype, else type and value."""
    if _core.is_array(leaf):
        return tuple(leaf.shape), leaf.dtype
    if isinstance(leaf, _Static):
        leaf = leaf.value
    if not isinstance(leaf, Hashable):
        raise CompilationError(f"compile: an argument is a {type(leaf).__name__}, which is neither an array nor "
                               "hashable\npass arrays, in pytrees too, and values that can be compared")
    return type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf


def _expected(value: Any, found: list[tuple[Any, ...]]) -> bool:
    """Add what is expected in place of this value; False where there are no words for it."""
    kind = type(value)
    if kind is tuple or kind is list:
        found.append((kind.__name__, len(value)))
        return all(_expected(item, found) for item in value)
    if kind is dict:
        found.append(("dict", tuple(value)))
        return all(_expected(item, found) for item in value.values())
    if _core.is_array(value):
        array = value.array if type(value) is Tensor else value
        if type(array) is not np.ndarray:
            return False
        found.append(("array", array.shape, array.dtype))
        return True
    found.append(("value", value))
    return kind in (int, float, complex, bool, str, bytes, type(None)) or isinstance(value, np.random.Generator)


