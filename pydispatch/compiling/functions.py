"""`compile`, which traces a function once for each kind of arguments and then runs it as a plan."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import types
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import CompiledFunction, Tensor
from pydispatch._registry.backends import dtype_of
from pydispatch._sites import caller_site
from pydispatch.autograd.captures import captures_of_levels, in_reach, may_differ_by_level, tensors_in_reach
from pydispatch.autograd.values import as_tensor
from pydispatch.compiling.cache import Entry, LoadedPlan
from pydispatch.compiling.captured import Captured, NamesNeededError, Place, names_in_reach
from pydispatch.compiling.compilers import compiler_named
from pydispatch.compiling.numbers import Varying, is_same_program, may_vary
from pydispatch.compiling.operator import COMPILED
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.programs import (
    ARRAY,
    NUMBER,
    SCALAR,
    ChosenCompiler,
    GarbageKept,
    Mark,
    Program,
    filled,
    layouts_of,
    of_function,
)
from pydispatch.compiling.reports import difference, report
from pydispatch.exceptions import CompilationError, DispatchTypeError, PerformanceWarning
from pydispatch.func.functions import NAMES, DocOfWrapped, is_found_by_name
from pydispatch.func.values import are_tensors_passed, handed_out
from pydispatch.operators.layouts import layout_of
from pydispatch.ops import ops
from pydispatch.tracing import Graph
from pydispatch.tracing.arguments import naming_the_call
from pydispatch.tracing.numbers import TracedNumber, plain
from pydispatch.tracing.sources import Sources
from pydispatch.tracing.trace import simple_parameters
from pydispatch.tree import TreeSpec, is_pytree_node_type, tree_flatten, tree_map, tree_unflatten

P = ParamSpec("P")
R = TypeVar("R")
MOST_THREADS = 64

MANY_VARIANTS = 8
"""A function compiled more often than this warns each time that it is compiled again."""

MOST_PROGRAMS = 512
"""The most plans that a function keeps. The one made first is dropped for a new one."""


class CacheInfo(NamedTuple):
    """The number of calls that found a plan, of calls that made one, and of plans."""

    hits: int
    misses: int
    currsize: int


def compile(
    f: Callable[P, R], *, backend: str = "plan", threads: int | None = None,
    static_argnums: int | Sequence[int] = (), donate: int | Sequence[int] = (),
    cache: str | os.PathLike[str] | None = None,
) -> Compiled[P, R]:
    """Return a function like `f` that runs as a plan: a list of loops over arrays, in C.

    A call with new structures, shapes or dtypes, or with new values of arguments that are not arrays, traces `f`: it
    runs `f` once on arrays without data and notes the operators. `f` must therefore be pure. It cannot branch on data:
    use `ops.np.where`, `higher_order.cond` or `scan`. It must not write to its arguments. It prints only while it is
    traced. Strings and None are part of the guard. A number is so until it changes: then it becomes an argument of the
    plan, unless its value decides more than the elements of arrays.

    What `f` captures is part of the guard, too: a call after a change of a variable, an attribute, a list or an array
    traces `f` again. Of arrays over 4 KiB a sample is compared. Captured values of transforms, and Tensors that require
    grad, are arguments of each call.

    The results have the bits that `f` computes, except where NumPy rounds by the layout of operands. Here arguments and
    all values computed from them are in C order. Sums over transposed arrays, and products of matrices computed from
    them, may therefore differ in the last bits. The device is NumPy's, not the ambient device.

    Under `grad`, `vmap` and every other transform, the call is one operator. `make_fx` traces the operators of `f`.

    Parameters
    ----------
    f
        The function.
    backend
        The compiler: "plan", "python" (straight-line calls of kernels), "numba" (a plan with machine code, which needs
        the extra `numba`), or the name of a registered compiler. See `register_compiler`.
    threads
        The number of threads that share the loops over large arrays. None means one, and 0 means one for each core that
        the process may use. Results are the same to the bit.
    static_argnums
        Positions of arguments that are compared as a whole, by `==`. These must be hashable.
    donate
        Positions of arguments whose arrays you give up. A result of the same shape and dtype may take the memory of
        one, unless the call is under a transform or on the tape.
    cache
        A directory for plans, which later processes load instead of compiling again. It is created if needed, and
        nothing is ever removed from it. A file is used if the function, everything that it reaches, the arguments'
        kinds, the options and the versions of all software are the same. `explain` gives the reason if a plan is not
        cached. Anyone who can write to the directory can change results.

    Returns
    -------
    Compiled
        The compiled function. Its results are new arrays in C order, Tensors if an argument is one.

    Raises
    ------
    CompilationError, DataDependentError
        At the first call, if `f` cannot be traced.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import compile
    >>> @compile
    ... def f(x):
    ...     return np.exp(-x * x)
    >>> f(numpy.zeros(2))
    array([1., 1.])
    >>> print(f.plan(numpy.zeros(2)))
    @0:float64[2] = negative(input0:float64[2])
    @0:float64[2] = multiply(@0:float64[2], input0:float64[2])
    result0:float64[2] = exp(@0:float64[2])
    """
    if not callable(f):
        raise DispatchTypeError(f"compile: f is {_core.a_type(f)}, expected a function\nwrite compile(f)(x)")
    return Compiled(f, ChosenCompiler(backend, _number_of_threads(threads)), static_argnums, donate, cache)


def _number_of_threads(threads: int | None) -> int:
    if threads is None:
        return 1
    if not isinstance(threads, int) or isinstance(threads, bool) or not 0 <= threads <= MOST_THREADS:
        raise DispatchTypeError(f"compile: threads is {threads!r}, expected None or an int from 0 to {MOST_THREADS}\n"
                                "pass threads=0 for one on each core")
    return threads or min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
                          MOST_THREADS)


@_core.keep_vectorcall
class Compiled(CompiledFunction, Generic[P, R]):
    """A compiled function, as `compile` returns it."""

    __doc__ = DocOfWrapped(__doc__)

    if TYPE_CHECKING:
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def __init__(
        self, f: Callable[P, R], backend: ChosenCompiler, static_argnums: int | Sequence[int],
        donate: int | Sequence[int], cache: str | os.PathLike[str] | None = None,
    ) -> None:
        compiler_named(backend.name)        # raises for an unknown one
        functools.update_wrapper(self, f, NAMES)
        self.__wrapped__: Callable[..., Any] = f
        self.backend = backend
        self.static_argnums = _as_positions("static_argnums", static_argnums, f)
        self.donate = _as_positions("donate", donate, f)
        self._programs: dict[Any, Program] = {}
        self._numbers: dict[Any, Numbers] = {}      # by the key of arguments without the values of their numbers
        self._reasons: list[str] = []
        self._names: frozenset[str] | None = None   # in the code in reach
        self._captured: Captured | None = None      # what the last call captured
        self._ignored: dict[Place, Any] = {}        # the places that the function itself changes, with their holders
        self.cache = None if cache is None else _as_directory(cache)
        self._general_hits = 0
        self._lock = _core.Lock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def reachable(self) -> tuple[Any, ...]:
        """The objects that its calls may lead to."""
        return (self.__wrapped__,)

    def __repr__(self) -> str:
        return f"<compiled {getattr(self, '__qualname__', self.__wrapped__)}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        if is_found_by_name(self):      # it was decorated
            return str(vars(self)["__qualname__"])
        return _restored, (self.__wrapped__, self.backend, self.static_argnums, self.donate, {
            key: program for key, program in self._programs.items() if not program.numbers
        }, self.cache)

    # --- the cache ---

    def cache_info(self) -> CacheInfo:
        """Return the number of calls that found a plan, of calls that made one, and of plans."""
        return CacheInfo(self.hits + self._general_hits, len(self._reasons), len(self._programs))

    def cache_clear(self) -> None:
        """Drop all plans, and free the memory (up to 256 MB) that is kept for large results of all plans."""
        _core.clear_buffer_cache()
        with self._lock:
            self._programs.clear()
            self._numbers.clear()
            self._reasons.clear()
            self._general_hits = 0
            self.clear_variants()

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """Return the graph that such arguments are traced to."""
        program, arguments = self._program_of("graph", args, kwargs)
        return (self._traced(arguments) if program.numbers else program).graph

    def plan(self, *args: Any, **kwargs: Any) -> str:
        """Return the plan for such arguments as text, a line per step, or the text of another backend's function."""
        run = self._program_of("plan", args, kwargs)[0].run
        return run.text if isinstance(run, PlanFunction) else str(run)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """Return a report for such arguments: the graph, the plan, the parts outside C, and why it was compiled."""
        return report(repr(self), self._program_of("explain", args, kwargs)[0], self._reasons)

    def _program_of(
        self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Program, _Arguments]:
        """Return the program for the arguments of a method, and the arguments."""
        arguments = _Arguments(self, args, kwargs)
        name = getattr(self, "__qualname__", "").rpartition("<locals>.")[2]
        call = f"{'compiled' if '<' in name or not name else name}.{method}"
        with naming_the_call(call, self.__wrapped__, args, kwargs):
            return self._program(arguments)[0], arguments

    # --- captures ---

    def capture(self, roots: tuple[Any, ...], arguments: Sequence[Tensor]) -> Captured:
        """Return what a call captures. `roots` are this function's, and functions among the arguments."""
        last = self._captured
        is_simple = len(roots) == 1 and not arguments
        if is_simple and last is not None and last.links is not None and _core.are_linked(last.links):
            return last
        try:
            found = Captured(roots, self._names, self._ignored, arguments)
        except NamesNeededError:
            self._names = names_in_reach(roots)
            found = Captured(roots, self._names, self._ignored, arguments)
        if is_simple:
            self._captured = found
        return found

    def _ignore_changes(self, arguments: _Arguments) -> bool:
        """Ignore from now on what a trace has changed, such as a counter of traces. Return whether it has."""
        before = arguments.captured
        if before.links is not None and _core.are_linked(before.links):
            return False
        self._captured = None
        changed = before.changed(arguments.capture())
        if changed:
            self._ignored.update(changed)
            self._captured = None
            arguments.capture()
        return bool(changed)

    # --- calls ---

    def general(self, *args: Any, **kwargs: Any) -> Any:
        """Run a call of any kind: the first one for its arguments, or one under transforms, modes and guards."""
        program, arguments = self._program(_Arguments(self, args, kwargs), counts=True)
        results = COMPILED(program, *arguments.arrays)
        self._guard(program, arguments)
        as_tensors = are_tensors_passed(arguments.arrays)
        assert program.unflatten is not None
        return program.unflatten([handed_out(result, as_tensors, True) for result in results])

    def _program(self, arguments: _Arguments, *, counts: bool = False) -> tuple[Program, _Arguments]:
        """Return the program for such arguments, traced if there is none, and the arguments that it takes.

        With `counts`, count a hit.
        """
        with self._lock:        # calls that wait here count as hits
            for known in self._ways(arguments):
                program = self._known(known)
                if program is not None:
                    self._general_hits += counts
                    return program, known
            with GarbageKept():
                program, known = self._compiled(arguments)
                if counts and arguments.is_plain:
                    _ = program.run     # compiled before garbage is collected again, which goes through the graph
                return program, known

    def _ways(self, arguments: _Arguments) -> Iterator[_Arguments]:
        """Yield the arguments, and those with the numbers that vary as arrays."""
        yield arguments
        numbers = self._numbers.get(arguments.without_numbers)
        if numbers and numbers.varying and arguments.is_plain:
            yield arguments.with_numbers(numbers.varying)

    def _known(self, arguments: _Arguments) -> Program | None:
        """Return the known program for such arguments or None. It may depend on their layout in memory."""
        program = self._programs.get(arguments.key)
        if program is None or program.layouts is None or program.layouts == layouts_of(arguments.arrays):
            return program
        return self._programs.get((*arguments.key, layouts_of(arguments.arrays)))

    def _compiled(self, arguments: _Arguments) -> tuple[Program, _Arguments]:
        """Compile the function for these arguments, with the numbers that have changed as arguments if possible."""
        if self._programs and self._names is not None and self._names != (names := names_in_reach(arguments.roots)):
            self._names, self._captured = names, None
            arguments.capture()
        numbers, varying = self._varying(arguments)
        entries = self._entries(arguments, varying)
        program, general = None, None
        for entry in entries:
            program = program or entry.load()
        if program is None:
            program = self._traced(arguments)
            general = self._general(arguments, program, numbers, varying)
        elif program.numbers:
            numbers.varying, general = varying, (program, entries[0].arguments)
        has_changed = self._ignore_changes(arguments)
        known = list(self._programs)
        if arguments.key in known:
            reason = "arrays lie in memory in another order, on which it depends what views share"
            self._programs[*arguments.key, program.layouts] = program
        else:
            reason = difference(arguments, known) if known else "the first call"
            if general is not None:
                program, arguments = general
                if has_changed:
                    arguments.capture()
                reason += ", and is an argument of the plan from now on"
            self._programs[arguments.key] = program
        for entry in entries:
            reason += entry.note(program, arguments)
        self._reasons.append(reason)
        self._drop_oldest(arguments.key)
        if len(self._programs) > MANY_VARIANTS and not isinstance(program.compiled, LoadedPlan):
            warnings.warn(
                f"{self!r} was compiled {len(self._reasons)} times, this time because {reason} (at "
                f"{caller_site()})\npass what changes as an array argument of a fixed shape; cache_clear() forgets all "
                "plans",
                PerformanceWarning, stacklevel=2)
        return program, arguments

    def _traced(self, arguments: _Arguments) -> Program:
        program = of_function(arguments.function, arguments.names, arguments.arrays, self.backend,
                              Sources("compile", arguments.reach))
        program.numbers = arguments.numbers
        for meta, positions in (("donated", arguments.donated if self.donate else ()), ("number", program.numbers)):
            for position in positions:
                program.graph.placeholders[position].meta[meta] = True
        return program

    def _entries(self, arguments: _Arguments, varying: set[int]) -> list[Entry]:
        """Return the entries of the cache that may serve these arguments, before the function is traced."""
        if self.cache is None or not arguments.is_plain:
            return []
        ways = [arguments.with_numbers(varying), arguments] if varying else [arguments]
        return [Entry(self, way) for way in ways]

    def _varying(self, arguments: _Arguments) -> tuple[Numbers, set[int]]:
        """Return the numbers among the arguments, and the positions of those that have changed."""
        key = arguments.without_numbers
        if key is None or self.backend.name not in WITH_NUMBERS or not arguments.is_plain:
            return Numbers(key), set()
        numbers = self._numbers.get(key)
        if numbers is None:
            numbers = self._numbers[key] = Numbers(arguments.key)
            return numbers, set()
        return numbers, numbers.changed(arguments.key)

    def _general(
        self, arguments: _Arguments, program: Program, numbers: Numbers, varying: set[int]
    ) -> tuple[Program, _Arguments] | None:
        """Return a program with the changed numbers as arguments, or None if none changed or their values matter."""
        while varying:
            general = arguments.with_numbers(varying)
            if not general.numbers:
                return None
            try:
                found = self._traced(general)
                # compiled now, since that may read numbers
                is_same = isinstance(found.run, PlanFunction) and is_same_program(found, program)
            except Exception:   # any error that the number itself would not cause
                is_same = False
            if is_same and not general.reads:
                numbers.varying = varying
                return found, general
            numbers.fixed |= set(general.reads) or varying
            varying -= numbers.fixed
        return None

    def _drop_oldest(self, key: Any) -> None:
        """Drop the oldest of too many programs, and of those for other captured values, which take much memory."""
        if len(self._programs) <= min(MANY_VARIANTS, MOST_PROGRAMS):
            return
        others = [known for known in self._programs if known[:2] == key[:2] and known[2] != key[2]]
        for old in (*others[:-MANY_VARIANTS], *list(self._programs)[:-MOST_PROGRAMS]):
            dropped = self._programs.pop(old, None)
            if dropped is not None and dropped.variant is not None:
                self.remove_variant(dropped.variant)
        if len(self._numbers) > MOST_PROGRAMS:
            del self._numbers[next(iter(self._numbers))]

    def _guard(self, program: Program, arguments: _Arguments) -> None:
        """Add a variant, with which the core recognizes such arguments, after a plan has run for them."""
        run, known = program.compiled, program.variant
        if isinstance(run, PlanFunction) and (known is None or not known.is_in_force):
            with self._lock:
                guard, links = arguments.guard(program.layouts is not None), arguments.captured.links
                if (guard is not None and links is not None and program.variant is known
                        and self._known(arguments) is program):
                    variant = _core.Variant(run.plan, len(arguments.args), guard, _output_of(program), links)
                    if known is not None:
                        self.remove_variant(known)
                    self.add_variant(variant)
                    program.variant = variant


def _as_positions(name: str, given: Any, f: Callable[..., Any]) -> tuple[int, ...]:
    positions = tuple(given) if isinstance(given, Sequence) else (given,)
    if not positions:
        return ()
    if not all(isinstance(position, int) and not isinstance(position, bool) for position in positions):
        raise DispatchTypeError(f"compile: {name} is {given!r}, expected positions of arguments\nwrite {name}=(0, 2)")
    parameters = simple_parameters(f)
    if parameters is not None and not all(-len(parameters) <= position < len(parameters) for position in positions):
        raise DispatchTypeError(f"compile: {name} is {given!r}, but f has the parameters {', '.join(parameters)}\n"
                                "count positions from 0, or from the end, with -1 for the last one")
    return positions


def _as_directory(given: Any) -> Path:
    try:
        return Path(given)
    except TypeError:
        raise DispatchTypeError(f"compile: cache is {_core.a_type(given)}, expected the path of a directory\n"
                                "write cache='plans'") from None


def _restored(
    f: Callable[..., Any], backend: ChosenCompiler, static_argnums: tuple[int, ...], donate: tuple[int, ...],
    programs: dict[Any, Program], cache: os.PathLike[str] | None = None,
) -> Compiled[..., Any]:
    compiled = Compiled(f, backend, static_argnums, donate, cache)
    compiled._programs.update(programs)
    return compiled


def _output_of(program: Program) -> Any:
    """Return the `output` of the core's Variant, which makes the user's output from the tuple of arrays."""
    assert program.unflatten is not None
    kinds_of_results = [leaf for leaf in program.unflatten.leaves if isinstance(leaf, Mark)]
    marks = tuple([object() for _ in kinds_of_results])
    kinds = {id(mark): "scalar" if kind is SCALAR else "array"
             for mark, kind in zip(marks, kinds_of_results, strict=True)}
    if NUMBER in kinds_of_results:
        return program.unflatten
    found: list[tuple[Any, ...]] = []
    if not _add_output(program.unflatten(marks), kinds, found):
        return program.unflatten
    return None if found == [("array",)] else tuple(found)


def _add_output(value: Any, marks: Mapping[int, str], found: list[tuple[Any, ...]]) -> bool:
    """Add the description of a pytree with marks for arrays. Return False for a pytree node of another class."""
    kind = type(value)
    if id(value) in marks:
        found.append((marks[id(value)],))
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


class Numbers:
    """The numbers among arguments of one structure: positions of those that vary, and whose values matter."""

    def __init__(self, key: Any) -> None:
        self._last = key
        self.varying: set[int] = set()
        self.fixed: set[int] = set()

    def changed(self, key: Any) -> set[int]:
        """Return the positions of the numbers that have varied, if plans may take them as arguments."""
        changed = {i for i, (new, old) in enumerate(zip(key[1], self._last[1], strict=True)) if new != old}
        self._last = key
        return (self.varying | changed) - self.fixed


class _Static:
    """An argument that is compared as a whole."""

    def __init__(self, value: Any) -> None:
        self.value = value


class OfArrays:
    """A function of the arrays among its arguments, and of those that it captures.

    `leaves` has ARRAY for each array among the arguments, SCALAR for each scalar, and TracedNumbers for numbers that
    only the plan has as arrays.

    Captured Tensors are identified by their `places` among the reachable ones, so that another call may capture others.
    """

    def __init__(self, f: Callable[..., Any], spec: TreeSpec, leaves: list[Any], places: Sequence[int]) -> None:
        self._f, self._spec, self._leaves, self._places = f, spec, leaves, places

    def __call__(self, *arrays: Any) -> Any:
        n = len(arrays) - len(self._places)
        args, kwargs = tree_unflatten(filled(self._leaves, arrays[:n]), self._spec)
        if not self._places:
            return self._f(*args, **kwargs)
        reach = list(tensors_in_reach(_functions(self._f, self._leaves)))
        meanings = {}
        for place, value in zip(self._places, arrays[n:], strict=True):
            captured, meant = reach[place], as_tensor(value)
            meanings[id(captured)] = _core.to_scalar(meant) if _core.is_scalar(captured) else meant
        result = _core.substituting(_core.Substitution(meanings), functools.partial(self._f, *args, **kwargs))
        return tree_map(lambda leaf: meanings.get(id(leaf), leaf), result)


def _functions(f: Callable[..., Any], leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the objects that may lead to captured Tensors: the function, and arguments that are not arrays."""
    return (f, *[leaf for leaf in leaves if leaf is not ARRAY and leaf is not SCALAR and not _core.is_array(leaf)])


class _Arguments:
    """The arguments of a call: the arrays, and the key of the program that they need."""

    def __init__(self, compiled: Compiled[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.compiled = compiled
        self.args, self.kwargs = args, kwargs
        static = compiled.static_argnums
        if static:
            args = tuple([_Static(arg) if i in static or i - len(args) in static else arg
                          for i, arg in enumerate(args)])
        leaves, self.spec = tree_flatten((args, kwargs))
        self.given = list(filter(_is_input, leaves))
        leaves = list(map(plain, _core.unwrap_all_dead(leaves)))
        self.leaves = [_as_native(leaf) if _is_input(leaf) else leaf for leaf in leaves]
        self.arrays = [leaf for leaf in self.leaves if _core.is_array(leaf)]
        self.key: Any = self.spec, tuple([_described(leaf) for leaf in leaves])
        self.reads: list[int] = []      # the positions among the leaves of numbers whose values were used
        self.places: tuple[int, ...] = ()
        self._of_levels: list[Tensor] = []
        if may_differ_by_level():
            found = captures_of_levels(self.reach)
            if found:
                self.places = tuple(found)
                captured = [_core.live_value(tensor) for tensor in found.values()]
                self.arrays += captured
                described = tuple([_described(leaf) for leaf in (*leaves, *captured)])
                self.key = (self.spec, self.places), described
                self._of_levels = list(found.values())
        self.capture()

    def capture(self) -> Captured:
        """Look at what the call captures, which is part of the key, and return it."""
        self.captured = self.compiled.capture(self.roots, self._of_levels)
        self.key = (*self.key[:2], self.captured.key)
        return self.captured

    @property
    def is_plain(self) -> bool:
        """Return whether the call is outside of transforms and modes, and is not recorded."""
        state = _core.current_state()
        return state.innermost is None and state.substitute is None and not self.places and not any(
            map(_core.is_tracked_anywhere, self.arrays))

    @functools.cached_property
    def without_numbers(self) -> Any:
        """The key, with only the type of each number, or None without numbers."""
        described = tuple([leaf[0] if leaf[0] in (float, int) else leaf for leaf in self.key[1]])
        return None if described == self.key[1] else (self.key[0], described)

    def with_numbers(self, positions: Collection[int]) -> _Arguments:
        """Return the arguments with the numbers at these positions among the leaves as arrays."""
        leaves, spec = tree_flatten((self.args, self.kwargs))
        return _Arguments(self.compiled, *tree_unflatten([
            Varying(leaf) if i in positions and may_vary(leaf) else leaf for i, leaf in enumerate(leaves)], spec))

    def without_data(self) -> _Arguments:
        """Return such arguments without the memory of the arrays, to be traced later."""
        leaves, spec = tree_flatten((self.args, self.kwargs))
        return _Arguments(self.compiled, *tree_unflatten(list(map(_without_data, leaves)), spec))

    @property
    def numbers(self) -> tuple[int, ...]:
        """The positions in `arrays` of the numbers that vary."""
        return tuple([i for i, leaf in enumerate(self.given) if type(leaf) is Varying])

    @functools.cached_property
    def reach(self) -> list[Any]:
        """The objects in reach of the function, and of arguments that are not arrays."""
        return list(in_reach(self.roots))

    @functools.cached_property
    def roots(self) -> tuple[Any, ...]:
        """The function, and arguments that may capture values."""
        return _functions(self.compiled.__wrapped__, [
            leaf.value if type(leaf) is _Static else leaf for leaf in self.leaves if type(leaf) not in HOLD_NOTHING])

    @property
    def donated(self) -> list[int]:
        """The numbers in `arrays` of those that are parts of donated arguments."""
        positions = [i for i, arg in enumerate(self.args) for leaf in filter(_is_input, tree_flatten(arg)[0])]
        return [number for number, i in enumerate(positions)
                if i in self.compiled.donate or i - len(self.args) in self.compiled.donate]

    @property
    def names(self) -> list[str]:
        """A unique name for each array: that of its parameter, with a number if several share one."""
        parameters = None if self.kwargs else simple_parameters(self.compiled.__wrapped__)
        if parameters is not None and len(parameters) == len(self.args):
            if all(map(_is_input, self.args)):
                return list(parameters)
            bound = dict(zip(parameters, self.args, strict=True))
        else:
            try:
                bound = inspect.signature(self.compiled.__wrapped__).bind(*self.args, **self.kwargs).arguments
            except (TypeError, ValueError):
                bound = {}
        owners: dict[int, deque[str]] = defaultdict(deque)
        for name, value in bound.items():
            for leaf in tree_flatten(value)[0]:
                owners[id(leaf)].append(name)
        names: dict[str, None] = {}
        numbers: Counter[str] = Counter()       # of names with this base
        for leaf in self.given:
            name = base = owners[id(leaf)].popleft() if owners[id(leaf)] else "arg"
            while name in names or not numbers[base]:
                numbers[base] += 1
                name = base if numbers[base] == 1 else f"{base}_{numbers[base]}"
            names[name] = None
        return [*names, *[f"captured_{place}" for place in self.places]]

    @property
    def function(self) -> OfArrays:
        """The user's function as a function of the arrays only."""
        position = itertools.count()
        leaves: list[Any] = []
        for i, (leaf, (*_, of_key)) in enumerate(zip(self.leaves, self.key[1], strict=False)):
            if of_key is NUMBER:
                leaves.append(TracedNumber(leaf.item(), self.reads, i, next(position)))
            elif _core.is_array(leaf):
                leaves.append(SCALAR if of_key is SCALAR else ARRAY)
                next(position)
            else:
                leaves.append(leaf.value if isinstance(leaf, _Static) else leaf)
        return OfArrays(self.compiled.__wrapped__, self.spec, leaves, self.places)

    def guard(self, has_strides: bool) -> tuple[tuple[Any, ...], ...] | None:
        """Return the guard of the core's Variant, or None if a guard cannot describe the arguments."""
        found: list[tuple[Any, ...]] = []
        if self.kwargs or self.compiled.static_argnums or self.places:
            return None
        return tuple(found) if all(_expected(arg, found, has_strides) for arg in self.args) else None


def _is_input(leaf: Any) -> bool:
    """Return whether a leaf is an input of the plan."""
    return _core.is_array(leaf) or type(leaf) is Varying


def _as_native(array: Any) -> Any:
    """Return the array in native byte order, which loops need, and a NumPy scalar or a number as an array."""
    if type(array) is Varying:
        return np.asarray(array.value)
    if isinstance(array, np.generic):
        array = np.asarray(array)
    return array if dtype_of(array).isnative else ops.np.astype(array, array.dtype.newbyteorder("="))


def _without_data(leaf: Any) -> Any:
    """Return an array like this one, of one element that is repeated, and anything else as it is."""
    if not _core.is_array(leaf) or _core.is_scalar(leaf):
        return leaf
    dtype, shape = dtype_of(leaf), tuple(leaf.shape)
    return np.ndarray(shape, dtype, bytes(dtype.itemsize), 0, (0,) * len(shape))


def _described(leaf: Any) -> Any:
    """Return a leaf's part of the key: shape and dtype of an array, type and value of anything else."""
    if _core.is_array(leaf):
        dtype = dtype_of(leaf)
        described = tuple(leaf.shape), dtype if dtype.isnative else dtype.newbyteorder("=")
        return (*described, SCALAR) if _core.is_scalar(leaf) else described
    if type(leaf) is Varying:
        return type(leaf.value), f"any {'positive' if leaf.sign > 0 else 'negative'} number", NUMBER
    if isinstance(leaf, _Static):
        leaf = leaf.value
    if isinstance(leaf, slice):
        return slice, tuple(map(_described, (leaf.start, leaf.stop, leaf.step)))
    if not isinstance(leaf, Hashable):
        raise CompilationError(f"compile: an argument is {_core.a_type(leaf)}, expected an array or a "
                               "hashable value\npass arrays, pytrees of arrays, or hashable values")
    return type(leaf), repr(leaf) if isinstance(leaf, (float, complex)) else leaf


def _expected(value: Any, found: list[tuple[Any, ...]], has_strides: bool) -> bool:
    """Add a guard's expectation of this value. Return False if a guard cannot describe it."""
    kind = type(value)
    if kind is tuple or kind is list:
        found.append((kind.__name__, len(value)))
        return all(_expected(item, found, has_strides) for item in value)
    if kind is dict:
        found.append(("dict", tuple(value)))
        return all(type(key) in COMPARED for key in value) and all(
            _expected(item, found, has_strides) for item in value.values())
    if _core.is_array(value):
        array = value.array if type(value) is Tensor else value
        if (not isinstance(array, np.generic) and type(array) is not np.ndarray) or not array.dtype.isnative:
            return False
        strides = [array.strides] if has_strides and layout_of(array) is not None else []
        found.append(("scalar" if _core.is_scalar(value) else "array", array.shape, array.dtype, *strides))
        return True
    if kind is Varying:
        found.append(("number", type(value.value), value.sign))
        return True
    found.append(("value", value))
    return kind in COMPARED or isinstance(value, np.random.Generator)


WITH_NUMBERS = ("plan", "numba")
"""The compilers whose plans can take numbers as arguments."""

HOLD_NOTHING = frozenset((np.ndarray, int, float, complex, bool, str, bytes, type(None), slice, Varying))
"""Types of arguments that capture nothing."""

COMPARED = frozenset((int, float, complex, bool, str, bytes, type(None)))
"""The types that the core compares without calling Python."""
