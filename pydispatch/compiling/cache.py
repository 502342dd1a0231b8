"""A cache of plans in a directory, for the next process.

A call without a plan in memory computes a key: the fingerprint of the function, of what it captures, of the structure,
shapes, dtypes and layouts of the arguments, of the options, and of all versions. The file of that name holds the plan
as numbers and names. It is read, checked by the core, and run, without a trace:

    arguments -> key -> file -> steps -> core -> run            (a hit)
    arguments -> key -> trace -> passes -> steps -> core -> run -> the key again, if it is equal -> file     (a miss)

A file contains no code. Operators and universal functions are looked up by name among those of this package, NumPy and
SciPy, and the core checks that each step stays in its memory. What a key cannot cover (see `fingerprints`), or a file
cannot hold, is compiled as without a cache.

A file is a line with the format, the digest of the rest, the length of the JSON text, the text, and the bytes of
arrays.
"""

# tests: tests/compiling/test_cache.py
from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload
from pydispatch._registry.backends import dtype_of
from pydispatch._registry.operators import find_or_raise
from pydispatch._sites import frames_to_caller
from pydispatch.compiling.builder import QuietSite
from pydispatch.compiling.fingerprints import NAMESPACES, OURS, CannotFingerprintError, fingerprint
from pydispatch.compiling.lowering import FunctionOfOperator, OperatorCall, Slot
from pydispatch.compiling.plan import PlanFunction
from pydispatch.compiling.programs import ChosenCompiler, Mark, Program, Unflattening, layouts_of
from pydispatch.exceptions import CompilationError, PerformanceWarning
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.higher_order.operator import find_operator
from pydispatch.tracing import ArraySpec, Graph
from pydispatch.tree import TreeSpec, tree_unflatten

FORMAT = b"pydispatch plan 1\n"
DIGEST = 32
ALIGNMENT = 64

LOOPS = frozenset((
    "add_layers", "add_parts", "add_products", "argsort", "cast", "choose", "copy", "factor", "filter", "gather",
    "interpolate", "pick", "put", "put_sum", "search", "solve_factored", "solve_lower", "sort", "sum_part", "ufunc"))
"""The kinds of loops that files may name."""

UFUNCS = {
    "numpy": "numpy", "scipy.special": "scipy.special", "numpy.linalg._umath_linalg": "pydispatch.operators.lapack",
    "numpy.fft._pocketfft_umath": "pydispatch.operators.fourier"}
"""The modules of universal functions that files may name. For each, the module that allows plans to call them."""

OF_STEP = 12        # numbers of a step in a file


class CannotStoreError(Exception):
    """A file cannot hold a plan. The message says why."""


class Entry:
    """The place in a cache of the program for such arguments, by the key that the function has before it is traced."""

    def __init__(self, compiled: Any, arguments: Any) -> None:
        self.arguments = arguments
        self._compiled = compiled
        self._problem, self._key = "", ""
        if compiled.backend.name != "plan":
            self._problem = f"plans of the backend {compiled.backend.name} are not stored"
        else:
            self._key = self._find_key()
        self.file = compiled.cache / f"{self._key}.plan"

    def _find_key(self) -> str:
        """Return the fingerprint, or an empty string with `_problem` set."""
        try:
            return fingerprint(self._compiled, self.arguments.key[:2], layouts_of(self.arguments.arrays))
        except CannotFingerprintError as error:
            self._problem = str(error)
        except Exception as error:      # of a user's object
            self._problem = f"its objects cannot be examined: {type(error).__name__}: {error}"
        return ""

    def load(self) -> Program | None:
        """Return the program in the file, or None if there is none. Warn if the file is damaged."""
        if not self._key:
            return None
        try:
            return read_program(self.file, self._key, self._compiled, self.arguments)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem = f"{self.file} cannot be read: {error.strerror}"
        except Exception as error:      # whatever a damaged file leads to
            warnings.warn(f"compile: {self.file} is damaged: {type(error).__name__}: {error}\nthe function is "
                          "compiled, and the file is written again", PerformanceWarning, stacklevel=frames_to_caller())
        return None

    def note(self, program: Program, arguments: Any) -> str:
        """Store a new program, if it is for these arguments. Return what became of it, for reports."""
        if isinstance(program, LoadedProgram):
            return f", loaded from {self.file}" if program.file == self.file else ""
        if arguments is not self.arguments and arguments.key != self.arguments.key:
            return ""
        try:
            if not self._problem:
                data = _data(self._key, program)
                key = self._key
                if self._find_key() != key:
                    raise CannotStoreError(self._problem or "the function changes what it reaches")
                _write(self.file, data)
        except CannotStoreError as error:
            self._problem = str(error)
        except OSError as error:
            self._problem = f"{self._compiled.cache} cannot be written: {error.strerror}"
        except Exception as error:      # the run raises it again, if it is one of the plan
            self._problem = f"{type(error).__name__}: {error}"
        return f", not cached: {self._problem}" if self._problem else f", stored in {self.file}"


class LoadedProgram(Program):
    """A program from a file. What only transforms and reports need is traced on demand."""

    def __init__(self, specs: Any, backend: ChosenCompiler, unflatten: Unflattening, results: Sequence[Any],
                 numbers: tuple[int, ...], trace: Callable[[], Program], file: Path) -> None:
        self.file = file
        self.specs, self.backend, self.unflatten = specs, backend, unflatten
        self.layouts, self.numbers, self.variant, self.compiled = None, numbers, None, None
        self.results = tuple([ArraySpec(shape, dtype) for shape, dtype in results])
        self.n_smooth = len(self.results)
        self._derived: dict[Any, Any] = {}
        self._lock = _core.Lock()
        self._trace = trace

    def __getattr__(self, name: str) -> Any:
        if name not in ("flat", "graph", "smooth"):
            raise AttributeError(name)
        with self._lock:
            traced = self._trace()
            self.flat, self.graph, self.smooth, self.results = traced.flat, traced.graph, traced.smooth, traced.results
        return getattr(self, name)


class LoadedPlan(PlanFunction):
    """A plan from a file. Its program is traced for reports, and for functions that an operator calls otherwise."""

    def __init__(self, plan: _core.Plan, program: LoadedProgram, notes: list[str], folded: int) -> None:
        self.plan, self.threads, self.notes, self.folded = plan, program.backend.threads, notes, folded
        self._program = program

    @functools.cached_property
    def _graph(self) -> Graph:      # type: ignore[override]
        return self._program.graph

    def function_called(self, position: int, plan: _core.Plan) -> Callable[..., Any]:
        """Return the graph of a function that an operator calls, by its position among them and its plan."""
        functions: list[FunctionOfOperator] = []
        for call in self._made()[0].described[6]:
            _call_written(call, _Blob(), functions)
        if position >= len(functions) or not _are_equal(functions[position]._plan, plan):
            raise CompilationError("compile: a function that an operator calls is not that of the cached plan\n"
                                   "delete the plan's file")
        return functions[position]._graph


def _are_equal(one: _core.Plan, other: _core.Plan) -> bool:
    blobs = _Blob(), _Blob()
    return (_plan_written(one, blobs[0]) == _plan_written(other, blobs[1])) and blobs[0].pieces == blobs[1].pieces


# --- writing ----------------------------------------------------------------------------------------------------------


class _Blob:
    """The bytes of arrays, each at an aligned offset."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, array: np.ndarray[Any, Any]) -> list[Any]:
        """Add an array. Return its description."""
        if array.dtype.kind not in "biufcmM" or not array.dtype.isnative:
            raise CannotStoreError(f"a constant has the dtype {array.dtype}")
        at = self.size
        data = array.tobytes()
        padding = -len(data) % ALIGNMENT
        self.pieces += (data, bytes(padding))
        self.size += len(data) + padding
        return [array.dtype.str, list(array.shape), at]


def _write(file: Path, data: bytes) -> None:
    """Write a file. Other processes find all of it, or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{os.urandom(8).hex()}")
    try:
        unfinished.write_bytes(data)
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _data(key: str, program: Program) -> bytes:
    run = program.run
    if type(run) is not PlanFunction:
        raise CannotStoreError(f"the backend {program.backend.name} makes no plan that a file can hold")
    if program.layouts is not None:
        raise CannotStoreError("it depends on how arrays lie in memory")
    assert program.unflatten is not None
    blob = _Blob()
    text = json.dumps({
        "key": key, "scipy": _scipy(), "unflatten": [_written(program.unflatten._spec),
                                                     _written(program.unflatten.leaves)],
        "notes": run.notes, "folded": run.folded, "plan": _plan_written(run.plan, blob, []),
    }, separators=(",", ":")).encode()
    rest = len(text).to_bytes(8, "little") + text + bytes(-len(text) % ALIGNMENT) + b"".join(blob.pieces)
    return FORMAT + hashlib.blake2b(rest, digest_size=DIGEST).digest() + rest


def _scipy() -> str | None:
    """Return the version of SciPy, or None if it is not loaded."""
    scipy = sys.modules.get("scipy")
    return None if scipy is None else str(scipy.__version__)


def _plan_written(plan: _core.Plan, blob: _Blob, functions: list[Any] | None = None) -> dict[str, Any]:
    inputs, constants, results, n_entries, arena_size, steps, calls, n_threads, donated = plan.described
    tables: list[dict[Any, int]] = [{}, {}, {}, {}]      # kinds, loops, tuples, labels

    def number(table: int, item: Any) -> int:
        return tables[table].setdefault(item, len(tables[table]))

    rows = [(number(0, kind), n_inside, -1 if loop is None else number(1, loop), *[number(2, part) for part in parts],
             work, number(3, (label[0], label[1], isinstance(label[1], QuietSite))))
            for kind, n_inside, loop, *parts, work, label in steps]
    return {
        "inputs": _specs_written(inputs), "results": _specs_written(results),
        "constants": [blob.add(constant) for constant in constants], "n_entries": n_entries, "arena_size": arena_size,
        "n_threads": n_threads, "donated": donated, "kinds": list(tables[0]), "tuples": list(tables[2]),
        "loops": [_loop_written(loop) for loop in tables[1]], "labels": list(tables[3]),
        "steps": blob.add(np.array(rows, np.int64).reshape(-1, OF_STEP)),
        "calls": [_call_written(call, blob, functions) for call in calls]}


def _specs_written(specs: Sequence[Any]) -> list[Any]:
    return [[shape, _written(dtype)[1]] for shape, dtype in specs]


def _loop_written(loop: tuple[Any, ...]) -> list[Any]:
    if loop[0] not in LOOPS:
        raise CannotStoreError(f"it has a loop {loop[0]!r}")
    if loop[0] != "ufunc":
        return list(loop)
    function, name = loop[1], str(loop[1].__name__)
    for module in UFUNCS:
        if getattr(sys.modules.get(module), name, None) is function:
            return ["ufunc", module, name, *loop[2:]]
    raise CannotStoreError(f"{function!r} is not found by its name")


def _call_written(call: tuple[Any, ...], blob: _Blob, functions: list[Any] | None) -> list[Any]:
    function, inputs, outputs, *_ = call
    if type(function) is not OperatorCall or function.made is not None:
        raise CannotStoreError("it calls a Python function")
    target = function.target
    if isinstance(target, OpOverload) and target.namespace in NAMESPACES:
        named: list[Any] = [str(target.name)]
    elif isinstance(target, HigherOrderOperator) and _is_ours(target._module):
        named = [target.name, target._module]
    else:
        raise CannotStoreError(f"it calls {getattr(target, 'name', target)}")
    return [named, *[_written(part, functions, blob) for part in (function.args, function.kwargs)],
            function.direct[1], _written(inputs), _written(outputs)]


def _is_ours(module: str) -> bool:
    return any(f"{module}.".startswith(f"{ours}.") for ours in OURS) and re.fullmatch(r"[a-z_.]+", module) is not None


def _written(value: Any, functions: list[Any] | None = None, blob: _Blob | None = None) -> Any:
    """Return a value for JSON: an atom as itself, anything else as a list that begins with its kind.

    Add functions that an operator calls to `functions`.
    """
    kind = type(value)
    if kind in (type(None), bool, int, float, str):
        return value
    if kind in (tuple, list):
        return [kind.__name__, *[_written(item, functions, blob) for item in value]]
    if kind is dict:
        return ["dict", *[_written(item, functions, blob) for pair in value.items() for item in pair]]
    if kind is slice:
        return ["slice", *[_written(item, functions, blob) for item in (value.start, value.stop, value.step)]]
    if kind is complex:
        return ["complex", value.real, value.imag]
    if kind is type(Ellipsis):
        return ["ellipsis"]
    if isinstance(value, np.dtype) and value.kind in "biufcmM" and not value.metadata:
        return ["dtype", value.str]
    if kind is Slot:
        return ["slot", value.position]
    if kind is Mark:
        return ["mark", value.name]
    if kind is TreeSpec and value.type in (None, tuple, list, dict):
        return ["spec", value.type and value.type.__name__, _written(value.context),
                *[_written(child) for child in value.children]]
    if kind is FunctionOfOperator and functions is not None and blob is not None:
        functions.append(value)
        return ["function", len(functions) - 1, _plan_written(value._plan, blob)]
    raise CannotStoreError(f"a part of it is {_core.a_type(value)}")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_program(file: Path, key: str, compiled: Any, arguments: Any) -> LoadedProgram | None:
    """Return the program in a file, or None if it is for another version of SciPy."""
    data = file.read_bytes()
    start = len(FORMAT) + DIGEST
    if not data.startswith(FORMAT) or hashlib.blake2b(
            memoryview(data)[start:], digest_size=DIGEST).digest() != data[len(FORMAT):start]:
        raise ValueError("it is not a whole file of this format")
    length = int.from_bytes(data[start:start + 8], "little")
    found = json.loads(data[start + 8:start + 8 + length])
    if found["key"] != key:
        raise ValueError("it belongs to another name")
    if found["scipy"] not in (None, _scipy()) and found["scipy"] != import_module("scipy").__version__:
        return None
    reader = _Reader(memoryview(data)[start + 8 + length + -length % ALIGNMENT:])
    spec, leaves = map(reader.value, found["unflatten"])
    plan = reader.plan(found["plan"])
    tree_unflatten(list(leaves), spec)
    if sum(isinstance(leaf, Mark) for leaf in leaves) != len(plan.described[2]):
        raise ValueError("its output does not have the results of its plan")
    specs = tuple([(tuple(array.shape), dtype_of(array)) for array in arguments.arrays])
    if specs != plan.described[0]:
        raise ValueError("its arrays are not the inputs of its plan")
    program = LoadedProgram(specs, compiled.backend, Unflattening(spec, leaves), plan.described[2], arguments.numbers,
                            functools.partial(compiled._traced, arguments.without_data()), file)
    reader.run = program.compiled = LoadedPlan(plan, program, list(found["notes"]), found["folded"])
    return program


class _Reader:
    """Makes the values that a file describes. Raises an exception of any kind for a wrong description."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.run: LoadedPlan | None = None

    def array(self, described: list[Any]) -> np.ndarray[Any, Any]:
        text, shape, at = described
        dtype, n = _dtype(text), math.prod(map(_natural, shape))
        array = np.frombuffer(self._data, dtype, n, _natural(at)) if n else np.empty(0, dtype)
        array = array.reshape(shape).copy()
        array.setflags(write=False)
        return array

    def plan(self, found: dict[str, Any]) -> _core.Plan:
        kinds, labels = found["kinds"], []
        tuples = list(map(tuple, found["tuples"]))
        loops = [*map(_loop, found["loops"]), None]     # None is at -1
        for name, site, is_quiet in found["labels"]:
            labels.append((str(name), QuietSite(site or "") if is_quiet else site))
        rows = self.array(found["steps"]).tolist()
        n = len(tuples)
        steps = tuple([
            (kinds[kind], n_inside, loops[loop], tuples[a], tuples[b], tuples[c], tuples[d], tuples[e], tuples[f],
             tuples[g], work, labels[label])
            for kind, n_inside, loop, a, b, c, d, e, f, g, work, label in rows]) if n else ()
        return _core.Plan(
            _specs(found["inputs"]), tuple(map(self.array, found["constants"])), _specs(found["results"]),
            found["n_entries"], found["arena_size"], steps, tuple(map(self._call, found["calls"])), found["n_threads"],
            tuple(found["donated"]))

    def _call(self, found: list[Any]) -> tuple[Any, ...]:
        named, args, kwargs, copied, inputs, outputs = found
        inputs, outputs = self.value(inputs), self.value(outputs)
        target: Any
        if len(named) == 1:
            target = find_or_raise(named[0])
            if target.namespace not in NAMESPACES:
                raise ValueError(f"it calls {named[0]}")
        elif _is_ours(named[1]):
            target = find_operator(*named)
        else:
            raise ValueError(f"it calls {named[0]} of {named[1]}")
        function = OperatorCall(target, self.value(args, len(inputs)), self.value(kwargs, len(inputs)), copied, None)
        return function, inputs, outputs, *function.direct

    def _call_traced(self, position: int, plan: _core.Plan, *values: Any) -> Any:
        """Call the graph of a function that an operator calls, for arrays that its plan does not take."""
        assert self.run is not None
        return self.run.function_called(position, plan)(*values)

    def value(self, found: Any, n_slots: int = 0) -> Any:
        if type(found) is not list:
            return found
        kind, *parts = found
        if kind == "dtype":
            return _dtype(parts[0])
        if kind == "slot":
            if not 0 <= parts[0] < n_slots:
                raise ValueError(f"a call has no argument {parts[0]}")
            return Slot(parts[0])
        if kind == "mark":
            return Mark[parts[0]]
        if kind == "function":
            plan = self.plan(parts[1])
            return FunctionOfOperator(plan, functools.partial(self._call_traced, parts[0], plan))
        values = [self.value(part, n_slots) for part in parts]
        if kind == "dict":
            return dict(zip(values[::2], values[1::2], strict=True))
        if kind == "spec":
            return TreeSpec({None: None, "tuple": tuple, "list": list, "dict": dict}[values[0]], values[1],
                            tuple(values[2:]))
        if kind == "ellipsis":
            return ...
        return {"tuple": tuple, "list": list}[kind](values) if kind in ("tuple", "list") else (
            {"slice": slice, "complex": complex}[kind](*values))


def _specs(found: list[Any]) -> tuple[Any, ...]:
    return tuple([(tuple(shape), _dtype(text)) for shape, text in found])


@functools.cache
def _dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in "biufcmM":
        raise ValueError(f"an array has the dtype {dtype}")
    return dtype


def _loop(found: list[Any]) -> tuple[Any, ...]:
    kind, *parts = found
    if kind not in LOOPS:
        raise ValueError(f"it has a loop {kind!r}")
    if kind == "ufunc":
        module, name, types, *message = parts
        if module not in UFUNCS:
            raise ValueError(f"{module!r} is not a module of universal functions")
        import_module(UFUNCS[module])
        function = getattr(import_module(module), name)
        if type(function) is not np.ufunc:
            raise ValueError(f"{name!r} of {module!r} is not a universal function")
        return kind, function, tuple(map(_natural, types)), *map(str, message)
    return kind, *[tuple(part) if type(part) is list else part for part in parts]


def _natural(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is not a size")
    return number
