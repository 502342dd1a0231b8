"""`compile`: a function that is traced once for each kind of arguments, and runs as a plan from then on."""

from __future__ import annotations

import functools
import inspect
import os
import sys
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
from pydispatch.compiling.programs import ARRAY, ChosenCompiler, Program, of_function
from pydispatch.compiling.reports import difference, report
from pydispatch.exceptions import CompilationError, DispatchTypeError, PerformanceWarning
from pydispatch.func.functions import NAMES, DocOfWrapped
from pydispatch.func.values import are_tensors_passed, handed_out
from pydispatch.ops import ops
from pydispatch.registry.backends import dtype_of
from pydispatch.registry.sites import caller_site
from pydispatch.tracing import Graph
from pydispatch.tracing.trace import simple_parameters
from pydispatch.tree import TreeSpec, is_pytree_node_type, tree_flatten, tree_unflatten

MOST_THREADS = 64

MANY_VARIANTS = 8
"""A function that has been compiled more often than this warns each time that it is compiled again."""


class CacheInfo(NamedTuple):
    """How often a compiled function found a plan for a call, how often it made one, and how many it has."""

    hits: int
    misses: int
    currsize: int


def compile(
    f: Callable[..., Any], *, backend: str = "plan", threads: int | None = None,
    static_argnums: int | Sequence[int] = (), donate: int | Sequence[int] = (),
) -> Compiled:
    """A function like `f` that runs as a plan: a list of loops over arrays, in C.

    A call with new structures, shapes or dtypes, or with new values of arguments that are not arrays, traces `f`: it
    runs `f` once on arrays without data and notes the operators. So `f` must be pure. It cannot branch on data: use
    `ops.np.where`, `higher_order.cond` or `scan`. It must not write to its arguments. What it prints, it prints once.
    Captured arrays keep the values that they had then. Numbers, strings and None are part of the guard, so each new
    number compiles again: pass what changes as an array.

    `static_argnums` are positions of arguments that are compared as a whole, by `==`; these must be hashable. `donate`
    are positions of arguments whose arrays you give up: a result of the same shape and dtype may take the memory of
    one, if the call is under no transform and not on the tape.

    Results are new arrays in C order, Tensors if an argument was one. They have the bits that `f` computes, except
    where NumPy rounds by the layout of operands: here arguments and all that is computed from them lie in C order, so
    sums over transposed arrays, and products of matrices computed from them, may differ in the last bits. The device
    is NumPy's, whatever the ambient one.

    Under `grad`, `vmap` and every other transform, the call is one operator; `make_fx` traces the operators of `f`.
    `backend` is "plan", "python" (straight-line calls of kernels), "numba" (a plan with machine code; needs the extra
    `numba`), or the name of a registered compiler: see `register_compiler`. `threads` share the loops over large arrays
    (None: one thread; 0: one for each core that the process may use); results are the same to the bit.

    Raises CompilationError or DataDependentError at the first call if `f` cannot be traced.
    """
    if not callable(f):
        raise DispatchTypeError(f"compile: f is {_core.a_type(f)}, expected a function\nwrite compile(f)(x)")
    return Compiled(f, ChosenCompiler(backend, _number_of_threads(threads)), static_argnums, donate)


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
    """What `compile` returns; see there."""

    __doc__ = DocOfWrapped(__doc__)

    def __init__(
        self, f: Callable[..., Any], backend: ChosenCompiler, static_argnums: int | Sequence[int],
        donate: int | Sequence[int],
    ) -> None:
        compiler_named(backend.name)        # which raises for an unknown one
        functools.update_wrapper(self, f, NAMES)
        self.__wrapped__: Callable[..., Any] = f
        self.backend = backend
        self.static_argnums = _as_positions("static_argnums", static_argnums, f)
        self.donate = _as_positions("donate", donate, f)
        self._programs: dict[Any, Program] = {}
        self._reasons: list[str] = []
        self._general_hits = 0
        self._lock = _core.Lock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self, '__qualname__', self.__wrapped__)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if _found_by_name(self) is self:        # it was decorated
            return str(self.__qualname__)
        return _restored, (self.__wrapped__, self.backend, self.static_argnums, self.donate, dict(self._programs))

    # --- the cache ---

    def cache_info(self) -> CacheInfo:
        """How many calls found a plan, how many made one, and how many plans there are."""
        return CacheInfo(self.hits + self._general_hits, len(self._reasons), len(self._programs))

    def cache_clear(self) -> None:
        """Forget all plans, and give back the memory (up to 256 MB) that is kept for large results of all plans."""
        _core.free_kept_memory()
        with self._lock:
            self._programs.clear()
            self._reasons.clear()
            self._general_hits = 0
            self.clear_variants()

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph that such arguments are traced to."""
        return self._program(_Arguments(self, args, kwargs)).graph

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """The plan for such arguments, as text: a line per step. For other backends, the text of what they return."""
        run = self._program(_Arguments(self, args, kwargs)).run
        return run.text if isinstance(run, PlanFunction) else str(run)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """A report for such arguments: the graph, the plan, what is not in C and why, why it was compiled."""
        program = self._program(_Arguments(self, args, kwargs))
        return report(repr(self), program, self._reasons)

    # --- calls ---

    def general(self, *args: Any, **kwargs: Any) -> Any:
        """A call of any kind: the first one for its arguments, or under transforms, modes and guards."""
        arguments = _Arguments(self, args, kwargs)
        program = self._program(arguments, counts=True)
        results = COMPILED(program, *arguments.arrays)
        self._guard(program, arguments)
        as_tensors = are_tensors_passed(arguments.arrays)
        assert program.unflatten is not None
        return program.unflatten([handed_out(result, as_tensors, True) for result in results])

    def _program(self, arguments: _Arguments, *, counts: bool = False) -> Program:
        """The program for such arguments, traced if there is none; a call `counts` as a hit."""
        with self._lock:        # calls that wait meanwhile are hits
            program = self._programs.get(arguments.key)
            if program is None:
                return self._compiled(arguments)
            self._general_hits += counts
        return program

    def _compiled(self, arguments: _Arguments) -> Program:
        program = of_function(arguments.function, arguments.names, arguments.arrays, self.backend)
        if self.donate:
            for i, node in enumerate(program.graph.placeholders):
                if arguments.is_donated(i):
                    node.meta["donated"] = True
        known = list(self._programs)
        self._reasons.append(difference(arguments.key, known) if known else "the first call")
        self._programs[arguments.key] = program
        if len(self._programs) > MANY_VARIANTS:
            warnings.warn(
                f"{self!r} was compiled {len(self._programs)} times, this time because {self._reasons[-1]} (at "
                f"{caller_site()})\npass what changes as an array of a fixed shape; cache_clear() forgets all plans",
                PerformanceWarning, stacklevel=2)
        return program

    def _guard(self, program: Program, arguments: _Arguments) -> None:
        """Have the core recognize such arguments from now on, where a plan has run for them."""
        run = program.compiled
        if isinstance(run, PlanFunction) and not program.is_guarded:
            with self._lock:
                guard = arguments.guard()
                if guard is not None and not program.is_guarded and self._programs.get(arguments.key) is program:
                    self.add_variant(_core.Variant(run.plan, len(arguments.args), guard, _output_of(program)))
                    program.is_guarded = True


def _found_by_name(compiled: Compiled) -> Any:
    """What stands where a function says that it was defined."""
    found: Any = sys.modules.get(str(getattr(compiled, "__module__", None)))
    for name in str(getattr(compiled, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found


def _as_positions(name: str, given: Any, f: Callable[..., Any]) -> tuple[int, ...]:
    positions = tuple(given) if isinstance(given, Sequence) else (given,)
    if not all(isinstance(position, int) and not isinstance(position, bool) for position in positions):
        raise DispatchTypeError(f"compile: {name} is {given!r}, expected positions of arguments\nwrite {name}=(0, 2)")
    parameters = simple_parameters(f) if positions else None
    if parameters is not None and not all(-len(parameters) <= position < len(parameters) for position in positions):
        raise DispatchTypeError(f"compile: {name} is {given!r}, and f has the parameters {', '.join(parameters)}\n"
                                "count positions from 0, or from the end, with -1 for the last one")
    return positions


def _restored(
    f: Callable[..., Any], backend: ChosenCompiler, static_argnums: tuple[int, ...], donate: tuple[int, ...],
    programs: dict[Any, Program],
) -> Compiled:
    compiled = Compiled(f, backend, static_argnums, donate)
    compiled._programs.update(programs)
    return compiled


def _output_of(program: Program) -> Any:
    """The `output` of a Variant of the core: how to make the user's output from the tuple of arrays."""
    assert program.unflatten is not None
    marks = tuple([object() for _ in program.results])
    found: list[tuple[Any, ...]] = []
    if not _add_output(program.unflatten(marks), set(map(id, marks)), found):
        return program.unflatten
    return None if found == [("array",)] else tuple(found)


def _add_output(value: Any, marks: set[int], found: list[tuple[Any, ...]]) -> bool:
    """Add the description of a pytree, in which marks stand for arrays; False for a pytree node of another class."""
    kind = type(value)
    if id(value) in marks:
        found.append(("array",))
    elif kind is tuple or kind is list:
        found.append((kind.__name__, len(value)))
        return all(_add_output(item, marks, found) for item in value)
    elif kind is dict:
        found.append(("dict", tuple(value)))
        return all(_add_output(item, marks, found) for item in value.values())
    elif is_pytree_node_type(kind):
        return False
    else:
        found.append(("value", value))
    return True


class _Static:
    """An argument that is compared as a whole."""

    def __init__(self, value: Any) -> None:
        self.value = value


class OfArrays:
    """A function of the arrays among its arguments: `leaves` has ARRAY for each of these."""

    def __init__(self, f: Callable[..., Any], spec: TreeSpec, leaves: list[Any]) -> None:
        self._f, self._spec, self._leaves = f, spec, leaves

    def __call__(self, *arrays: Any) -> Any:
        rest = iter(arrays)
        args, kwargs = tree_unflatten([next(rest) if leaf is ARRAY else leaf for leaf in self._leaves], self._spec)
        return self._f(*args, **kwargs)


class _Arguments:
    """The arguments of a call: the arrays, and the key of the program that they need."""

    def __init__(self, compiled: Compiled, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.compiled = compiled
        self.args, self.kwargs = args, kwargs
        static = compiled.static_argnums
        if static:
            args = tuple([_Static(arg) if i in static or i - len(args) in static else arg
                          for i, arg in enumerate(args)])
        leaves, self.spec = tree_flatten((args, kwargs))
        self.given = [leaf for leaf in leaves if _core.is_array(leaf)]
        self.leaves = [_as_native(leaf) if _core.is_array(leaf) else leaf for leaf in _core.unwrap_all_dead(leaves)]
        self.arrays = [leaf for leaf in self.leaves if _core.is_array(leaf)]
        self.key = self.spec, tuple([_described(leaf) for leaf in self.leaves])

    def is_donated(self, number: int) -> bool:
        """Is this array, by its number in `arrays`, in a donated argument?"""
        positions = [i for i, arg in enumerate(self.args) for leaf in tree_flatten(arg)[0] if _core.is_array(leaf)]
        return number < len(positions) and (
            positions[number] in self.compiled.donate or positions[number] - len(self.args) in self.compiled.donate)

    @property
    def names(self) -> list[str]:
        """A unique name for each array: that of its parameter, with a number where several share one."""
        parameters = None if self.kwargs else simple_parameters(self.compiled.__wrapped__)
        if parameters is not None and len(parameters) == len(self.args):
            if all(map(_core.is_array, self.args)):
                return list(parameters)
            bound = dict(zip(parameters, self.args, strict=True))
        else:
            try:
                bound = inspect.signature(self.compiled.__wrapped__).bind(*self.args, **self.kwargs).arguments
            except (TypeError, ValueError):
                bound = {}
        owners: dict[int, list[str]] = {}
        for name, value in bound.items():
            for leaf in tree_flatten(value)[0]:
                owners.setdefault(id(leaf), []).append(name)
        names: list[str] = []
        for leaf in self.given:
            base = owners[id(leaf)].pop(0) if owners.get(id(leaf)) else "arg"
            name, n = base, 1
            while name in names:
                n += 1
                name = f"{base}_{n}"
            names.append(name)
        return names

    @property
    def function(self) -> OfArrays:
        """The user's function as a function of the arrays alone."""
        return OfArrays(self.compiled.__wrapped__, self.spec, [
            ARRAY if _core.is_array(leaf) else leaf.value if isinstance(leaf, _Static) else leaf
            for leaf in self.leaves])

    def guard(self) -> tuple[tuple[Any, ...], ...] | None:
        """The guard of a Variant of the core; None where a guard cannot describe the arguments."""
        found: list[tuple[Any, ...]] = []
        if self.kwargs or self.compiled.static_argnums:
            return None
        return tuple(found) if all(_expected(arg, found) for arg in self.args) else None


def _as_native(array: Any) -> Any:
    """The array in the byte order that loops know; a NumPy scalar as an array."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    return array if dtype_of(array).isnative else ops.np.astype(array, array.dtype.newbyteorder("="))


def _described(leaf: Any) -> Any:
    """The part of the key that a leaf decides: for an array its shape and dtype, else its type and value."""
    if _core.is_array(leaf):
        return tuple(leaf.shape), dtype_of(leaf)
    if isinstance(leaf, _Static):
        leaf = leaf.value
    if isinstance(leaf, slice):
        return slice, tuple(map(_described, (leaf.start, leaf.stop, leaf.step)))
    if not isinstance(leaf, Hashable):
        raise CompilationError(f"compile: an argument is {_core.a_type(leaf)}, expected an array or something "
                               "hashable\npass arrays, pytrees of arrays, or hashable values")
    return type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf


def _expected(value: Any, found: list[tuple[Any, ...]]) -> bool:
    """Add what a guard expects in the place of this value; False where a guard cannot describe it."""
    kind = type(value)
    if kind is tuple or kind is list:
        found.append((kind.__name__, len(value)))
        return all(_expected(item, found) for item in value)
    if kind is dict:
        found.append(("dict", tuple(value)))
        return all(type(key) in COMPARED for key in value) and all(_expected(item, found) for item in value.values())
    if _core.is_array(value):
        array = value.array if type(value) is Tensor else value
        if type(array) is not np.ndarray or not array.dtype.isnative:
            return False
        found.append(("array", array.shape, array.dtype))
        return True
    found.append(("value", value))
    return kind in COMPARED or isinstance(value, np.random.Generator)


COMPARED = frozenset((int, float, complex, bool, str, bytes, type(None)))
"""The types of what the core compares, without a call of Python."""
