"""Replay the calls that NumPy's own tests make, and compare what they give here with what NumPy gives.

`python -m tests.numpy.recorded_calls record FILE` runs the tests that NumPy installs and writes the arguments of every
call of a public function to FILE, which is never committed. `python -m tests.numpy.recorded_calls replay FILE` makes
the calls again, by NumPy and in each of `WAYS`, and prints what differs, by function and kind.
"""

import argparse
import atexit
import contextlib
import importlib
import io
import itertools
import marshal
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import pydispatch.numpy as face
import pydispatch.numpy.fft
import pydispatch.numpy.linalg  # noqa: F401  the functions of a family exist once it is imported
from pydispatch import Tensor, compile, exceptions, func
from pydispatch.tree import tree_leaves, tree_map
from tests.warning_filters import all_warnings

FAMILIES = ("", "linalg", "fft")
METHODS = ("reduce", "accumulate", "reduceat", "outer", "at")
LEFT_OUT = ("extint", "simd", "thread", "cython", "limited_api", "mem_policy")
TESTED = ("_core", "lib", "linalg", "fft")
UNRECORDED = """
    array_repr array_str array2string save savez savez_compressed savetxt load loadtxt genfromtxt fromfile
    fromregex fromstring frombuffer fromiter fromfunction frompyfunc from_dlpack test info show_config
    show_runtime getbufsize setbufsize seterr geterr seterrcall geterrcall errstate printoptions
    set_printoptions get_printoptions get_include may_share_memory shares_memory nested_iters isfortran
    require asmatrix bmat empty empty_like typename iterable datetime_data datetime_as_string busday_count
    busday_offset is_busday base_repr binary_repr mintypecode format_float_positional format_float_scientific
    min_scalar_type asanyarray
"""
"""Functions whose results are text, files, settings or undefined, or that tell of memory."""
LATE = ("ma", "testing", "polynomial", "ctypeslib", "_core._rational_tests", "_core._umath_tests", "strings", "char",
        "_core._multiarray_tests", "_core._struct_ufunc_tests", "_core._operand_flag_tests", "rec", "random")
"""Modules that look at NumPy's functions when they are imported."""
MOST_ELEMENTS = 2000
MOST_ALIKE = 40
"""The number of calls with the same function, keywords and dtypes that are recorded."""
SECONDS = 10


# --- recording -------------------------------------------------------------------------------------------------------


class UnrecordedError(Exception):
    """A call has an argument that cannot be written down."""


def function_of(code: bytes, module: str, cells: tuple[Any, ...], defaults: Any) -> Any:
    namespace = {**vars(importlib.import_module(module)), "np": np}
    return types.FunctionType(marshal.loads(code), namespace, "function", defaults,
                              tuple(types.CellType(cell) for cell in cells))


class Writer(pickle.Pickler):
    """A pickler of calls, which takes functions that were defined inside of others, too."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Recorder):
            return value.look_up, (value.recorded_name,)
        if isinstance(value, types.FunctionType) and ("<" in value.__qualname__ or "." in value.__qualname__):
            cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
            return function_of, (marshal.dumps(value.__code__), value.__module__, cells, value.__defaults__)
        is_of_memory = hasattr(value, "__array_interface__") and not isinstance(value, (np.ndarray, np.generic))
        if is_of_memory or isinstance(value, (types.GeneratorType, types.ModuleType)):
            raise UnrecordedError
        return NotImplemented


def look_up(name: str) -> Any:
    """Return NumPy's function or method of a function, such as "add.reduce"."""
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part)
    return found


def elements_in(value: Any) -> int:
    """Return how many elements arguments have together."""
    if isinstance(value, np.ndarray):
        return value.size
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(elements_in, value)) if isinstance(value, (list, tuple)) else 1


def kinds_in(value: Any) -> Any:
    """Return the types of arguments, by which calls are alike."""
    if isinstance(value, np.ndarray):
        return value.dtype.str if value.dtype.names is None else "V", value.ndim, value.size == 0
    if isinstance(value, dict):
        return tuple(sorted((key, kinds_in(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(kinds_in, value[:4])
    return value[:8] if isinstance(value, str) else value if value is None else type(value).__name__


class Recorder:
    """A function of NumPy's that writes its calls down, in the order in which the tests make them."""

    calls: ClassVar[dict[bytes, None]] = {}
    alike: ClassVar[Counter[Any]] = Counter()
    depth = 0

    look_up = staticmethod(look_up)

    def __init__(self, name: str, function: Any) -> None:
        self.recorded_name = name
        self.function = function
        self.__wrapped__ = function
        self.__doc__, self.__name__ = function.__doc__, getattr(function, "__name__", name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not Recorder.depth:
            Recorder.depth += 1
            try:
                self.record(args, kwargs)
            except Exception:       # what cannot be written down is not replayed
                pass
            finally:
                Recorder.depth -= 1
        Recorder.depth += 1
        try:
            return self.function(*args, **kwargs)
        finally:
            Recorder.depth -= 1

    def record(self, args: Any, kwargs: Any) -> None:
        if elements_in([args, kwargs]) > MOST_ELEMENTS:
            return
        kind = (self.recorded_name, kinds_in(args), kinds_in(kwargs))
        Recorder.alike[kind] += 1
        if Recorder.alike[kind] > MOST_ALIKE:
            return
        written = io.BytesIO()
        Writer(written, 5).dump((self.recorded_name, args, kwargs))
        if written.tell() < 100_000:
            Recorder.calls[written.getvalue()] = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.function, name)
        return Recorder(f"{self.recorded_name}.{name}", found) if name in METHODS else found

    def __eq__(self, other: Any) -> bool:
        return (other.function if isinstance(other, Recorder) else other) is self.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return repr(self.function)


def pytest_configure(config: Any) -> None:
    """Put recorders in the place of NumPy's functions, before its tests are imported (this module is the plugin)."""
    if "PYDISPATCH_RECORD" not in os.environ:
        return
    for late in LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(f"numpy.{late}")
    for family in FAMILIES:
        module = importlib.import_module(f"numpy.{family}".rstrip("."))
        for name in getattr(module, "__all__", dir(module)):
            function = getattr(module, name, None)
            is_function = callable(function) and not isinstance(function, type)
            if is_function and name not in UNRECORDED.split() and name[0] != "_":
                setattr(module, name, Recorder(f"{family}.{name}".lstrip("."), function))
    atexit.register(lambda: Path(os.environ["PYDISPATCH_RECORD"]).write_bytes(pickle.dumps(list(Recorder.calls))))


def record(file: Path, families: tuple[str, ...] = TESTED) -> list[bytes]:
    """Run NumPy's tests and write their calls to a file."""
    calls: dict[bytes, None] = {}
    for family in families:
        with tempfile.TemporaryDirectory() as scratch:
            written, settings = Path(scratch, "calls"), Path(scratch, "pytest.ini")
            settings.write_text("[pytest]\n")       # not those of a checkout that NumPy is installed in
            environment = {**os.environ, "PYDISPATCH_RECORD": str(written),
                           "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
            run = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "tests.numpy.recorded_calls", "-p", "no:cacheprovider",
                 "-p", "no:xdist", "--tb=no", "-W", "ignore", "--continue-on-collection-errors", "-m", "not slow",
                 "-k", f"not ({' or '.join(LEFT_OUT)})", "-c", str(settings),
                 str(Path(np.__file__).parent / family / "tests")],
                cwd=scratch, env=environment, check=False, capture_output=True, text=True)
            assert run.returncode in (0, 1), run.stdout[-2000:] + run.stderr     # NumPy's own tests may fail
            calls |= dict.fromkeys(pickle.loads(written.read_bytes()))
    file.write_bytes(pickle.dumps(list(calls)))
    return list(calls)


# --- replaying -------------------------------------------------------------------------------------------------------


REFUSALS = (
    exceptions.AutogradError, exceptions.CompilationError, exceptions.ConversionError, exceptions.DataDependentError,
    exceptions.DispatchTypeError, exceptions.UnsupportedError, exceptions.VmapError)
"""Errors of a call that is rejected with the reason."""
UNDIFFERENTIABLE = (exceptions.AutogradError, exceptions.NoDerivativeError, exceptions.NotDifferentiableError)
LARGEST_DIFFERENTIATED, LARGEST_RESULT = 64, 100_000
Outcome = tuple[Any, Any, frozenset[str], list[np.ndarray]]
"""The result or error of a call, its warnings, and its arguments afterwards."""


class TooLong(BaseException):
    """A call takes longer than `SECONDS`."""


def stop(*_: Any) -> None:
    raise TooLong


def is_plain(value: Any) -> bool:
    """Return whether a Tensor can wrap this array."""
    return type(value) is np.ndarray and value.dtype.names is None and value.dtype.isnative


def is_numeric(value: Any) -> bool:
    return is_plain(value) and value.dtype.kind in "biufc"


class Call:
    """One recorded call. Each look at its arguments gives new ones."""

    def __init__(self, written: bytes) -> None:
        self.written = written
        self.name, self.args, self.kwargs = pickle.loads(written)

    def arguments(self) -> tuple[Any, Any]:
        return pickle.loads(self.written)[1:]

    def ours(self) -> Any:
        found: Any = face
        for part in self.name.split("."):
            found = getattr(found, part)
        return found

    def __repr__(self) -> str:
        shown = [repr(arg) for arg in self.args] + [f"{key}={value!r}" for key, value in self.kwargs.items()]
        text = " ".join(f"{self.name}({', '.join(shown)})".split())
        return text if len(text) < 300 else f"{text[:300]}..."


def arrays_in(tree: Any, test: Callable[[Any], bool] = is_plain) -> list[np.ndarray]:
    """Return the arrays of arguments, those in lists too, in order. The same array twice only once."""
    found: dict[int, np.ndarray] = {id(leaf): leaf for leaf in tree_leaves(tree) if test(leaf)}
    return list(found.values())


def replaced(tree: Any, arrays: list[np.ndarray], values: Any) -> Any:
    """Return arguments with values in the place of arrays."""
    by_id = {id(array): value for array, value in zip(arrays, values, strict=True)}
    return tree_map(lambda leaf: by_id.get(id(leaf), leaf), tree)


def outcome(function: Callable[..., Any], arrays: list[np.ndarray]) -> Outcome:
    """Return the result or error of a call without arguments."""
    with all_warnings() as caught, np.errstate(all="warn"):
        signal.alarm(SECONDS)
        try:
            found, error = tree_map(as_numpy, function()), None
        except (Exception, TooLong) as raised:
            found, error = None, raised
        finally:
            signal.alarm(0)
    return found, error, frozenset(each.category.__name__ for each in caught), arrays


def as_numpy(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().numpy()
    return list(leaf) if isinstance(leaf, Iterator) else leaf


def by_numpy(call: Call) -> Outcome:
    args, kwargs = call.arguments()
    return outcome(lambda: look_up(call.name)(*args, **kwargs), arrays_in((args, kwargs)))


def raw(call: Call) -> Outcome:
    args, kwargs = call.arguments()
    return outcome(lambda: call.ours()(*args, **kwargs), arrays_in((args, kwargs)))


def on_tensors(call: Call) -> Outcome:
    arguments = call.arguments()
    arrays = arrays_in(arguments)
    args, kwargs = replaced(arguments, arrays, [Tensor(array) for array in arrays])
    return outcome(lambda: call.ours()(*args, **kwargs), arrays)


def on_tracked(call: Call) -> Outcome:
    """Call with Tensors that require grad where they may."""
    arguments = call.arguments()
    arrays = arrays_in(arguments)
    args, kwargs = replaced(arguments, arrays, [
        Tensor(array, requires_grad=True) if array.dtype.kind in "fc" else Tensor(array) for array in arrays])
    return outcome(lambda: call.ours()(*args, **kwargs), arrays)


def compiled(call: Call) -> Outcome:
    arguments = call.arguments()
    arrays = arrays_in(arguments, is_numeric)

    def function(*values: Any) -> Any:
        args, kwargs = replaced(arguments, arrays, values)
        return call.ours()(*args, **kwargs)

    return outcome(lambda: compile(function)(*arrays), arrays)


def under_vmap(call: Call, expected: Outcome) -> Outcome:
    """Return the first example of a batch of the same."""
    arguments = call.arguments()
    arrays = arrays_in(arguments, is_numeric)
    batches = [np.stack([array, array]) for array in arrays]

    def function(*values: Any) -> Any:
        args, kwargs = replaced(arguments, arrays, values)
        result = call.ours()(*args, **kwargs)
        return values if result is None else result

    found, error, caught, _ = outcome(lambda: func.vmap(function)(*batches), arrays)
    first = None if error else tree_map(lambda leaf: leaf[0] if isinstance(leaf, np.ndarray) else leaf, found)
    if expected[1] is None and expected[0] is None:
        first = None
    return first, error, caught, [batch[0] for batch in batches]


WAYS: dict[str, Callable[..., Outcome]] = {
    "raw": raw, "tensors": on_tensors, "tracked": on_tracked, "compiled": compiled, "vmap": under_vmap}
UNKNOWN_VALUES = ("compiled", "vmap")


def differences(expected: Outcome, found: Outcome, way: str = "tensors") -> str | None:
    """Return how two outcomes differ, or "refused".

    None if they agree. What values warn of is unknown in traces and batches.
    """
    value, error, caught, arrays = expected
    other_value, other_error, other_caught, other_arrays = found
    if isinstance(error, TooLong):
        return None
    if other_error is not None and error is None:
        return "refused" if isinstance(other_error, REFUSALS) else f"raises {type(other_error).__name__}"
    if error is not None:
        if other_error is None:
            return f"passes where NumPy raises {type(error).__name__}"
        known = (type(error) in type(other_error).__mro__ or type(other_error) in type(error).__mro__
                 or isinstance(other_error, REFUSALS))
        return None if known else f"raises {type(other_error).__name__} for {type(error).__name__}"
    of_value = differ(value, other_value)
    if of_value is not None:
        return of_value
    if way in UNKNOWN_VALUES:
        arrays = list(filter(is_numeric, arrays))
    if any(differ(a, b) for a, b in zip(arrays, other_arrays, strict=True)):
        return "arguments"
    same = caught == other_caught or way in UNKNOWN_VALUES
    return None if same else f"warnings {sorted(caught)}: {sorted(other_caught)}"


def gives_arrays(result: Any) -> bool:
    """Return whether the result is None or consists of NumPy arrays and numbers."""
    return all(leaf is None or isinstance(leaf, (np.ndarray, np.generic)) for leaf in tree_leaves(result))


def differ(a: Any, b: Any) -> str | None:
    """Return whether two results differ in structure, dtype, shape or values."""
    if isinstance(a, (tuple, list)) and not isinstance(b, np.ndarray):
        if not isinstance(b, (tuple, list)) or len(a) != len(b):
            return "structure"
        return next((found for found in map(differ, a, b) if found), None)
    if isinstance(a, (np.ndarray, np.generic, bool, int, float, complex)) and not isinstance(b, (str, type(None))):
        x, y = np.asarray(a), np.asarray(b)
        if isinstance(a, (np.ndarray, np.generic)) and x.dtype != y.dtype:
            return f"dtype {y.dtype} for {x.dtype}"
        if x.shape != y.shape:
            return "shape"
        if x.dtype.kind in "biufc" and y.dtype.kind not in "biufc":
            return f"dtype {y.dtype} for {x.dtype}"
        return None if is_close(x, y) else "value"
    if type(a) is not type(b):
        return f"type {type(b).__name__} for {type(a).__name__}"
    try:
        return None if a is b or bool(a == b) or isinstance(a, np.dtype) else "value"
    except Exception:
        return None


def is_close(x: np.ndarray, y: np.ndarray) -> bool:
    if x.dtype.kind not in "fc":
        if x.dtype.kind in "mM":
            return bool(((x == y) | (np.isnat(x) & np.isnat(y))).all())
        return x.tobytes() == y.tobytes() if x.dtype.kind in "biu" else repr(x) == repr(y)
    with np.errstate(all="ignore"):
        scale = np.nanmax(np.abs(np.where(np.isfinite(x), x, 0)), initial=0)
        return np.allclose(x, y, rtol=64 * np.finfo(x.dtype).eps, atol=64 * np.finfo(x.dtype).eps * scale,
                           equal_nan=True)


def slopes_differ(call: Call) -> str | None:
    """Compare the derivative along one direction, forward and in reverse, with a difference of NumPy's results."""
    arguments = call.arguments()
    arrays = arrays_in(arguments, lambda leaf: is_plain(leaf) and leaf.dtype == float)
    options = arguments[1]
    if not arrays or sum(a.size for a in arrays) > LARGEST_DIFFERENTIATED:
        return None
    if options.get("out") is not None or options.get("order") in ("A", "K"):
        return None
    if not all(np.isfinite(array).all() and array.size for array in arrays):
        return None
    rng = np.random.default_rng(len(call.written))
    directions = [rng.uniform(0.5, 1, array.shape) for array in arrays]

    def function(name: Callable[[], Any], *values: Any) -> Any:
        args, kwargs = replaced(arguments, arrays, values)
        leaves = [leaf for leaf in tree_leaves(name()(*args, **kwargs)) if str(getattr(leaf, "dtype", "")) == "float64"]
        return tuple(leaves)

    def along(step: float) -> Any:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return function(lambda: look_up(call.name),
                            *[array + step * way for array, way in zip(arrays, directions, strict=True)])

    def ours(*values: Any) -> Any:
        return function(call.ours, *values)

    try:
        at, near, far = along(0.0), [along(s) for s in (-1e-6, 1e-6)], [along(s) for s in (-2e-6, 2e-6)]
        with np.errstate(all="ignore"):
            expected = [(b - a) / 2e-6 for a, b in zip(*near, strict=True)]
            coarse = [(b - a) / 4e-6 for a, b in zip(*far, strict=True)]
            one_sided = [(b - a) / 1e-6 for a, b in zip(at, near[1], strict=True)]
    except Exception:
        return None
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        signal.alarm(SECONDS)
        try:
            slopes = func.jvp(ours, tuple(arrays), tuple(directions))[1]
            seeds = tuple(np.ones_like(np.asarray(each)) for each in slopes)
            gradients = func.vjp(ours, *arrays)[1](seeds)
        except (*UNDIFFERENTIABLE, *REFUSALS):
            return None
        except (Exception, TooLong) as error:
            return f"raises {type(error).__name__}"
        finally:
            signal.alarm(0)
    total = expected_total = scale = 0.0
    for value, a, b, c, found in zip(at, expected, coarse, one_sided, slopes, strict=True):
        sure = np.isfinite(a) & np.isfinite(found) & (np.abs(a - b) < 1e-4 * (1 + np.abs(a)))
        sure &= np.abs(a - c) < 1e-3 * (1 + np.abs(a))      # no corner
        if not np.all(sure) or np.abs(value).max(initial=0) > 1e3:
            return None
        if not np.allclose(a, found, rtol=1e-3, atol=1e-4):
            return "slopes"
        expected_total += np.sum(found)
        scale += np.sum(np.abs(found))
    for way, gradient in zip(directions, gradients, strict=True):
        total += np.sum(way * np.asarray(gradient))
    return None if abs(total - expected_total) < 1e-5 * (1 + scale) else "slopes in reverse"


def replay(calls: list[bytes], ways: Any = (*WAYS, "slopes"), share: tuple[int, int] = (0, 1)) -> Iterator[Any]:
    """Give (way, call, difference, what NumPy gives, what is given here) for each call and way that differ."""
    signal.signal(signal.SIGALRM, stop)
    for written in calls[share[0]::share[1]]:
        try:
            call = Call(written)
            call.ours()
        except Exception:       # of a function that a test defines in a way that does not unpickle, or of NumPy only
            continue
        expected = by_numpy(call)
        if elements_in([expected[0]]) > LARGEST_RESULT:
            continue
        for way in ways:
            if way == "slopes":
                found = slopes_differ(call) if expected[1] is None else None
                if found:
                    yield way, call, found, None, None
                continue
            if way in UNKNOWN_VALUES and not arrays_in((call.args, call.kwargs), is_numeric):
                continue
            if way == "vmap" and expected[1] is None and not gives_arrays(expected[0]):
                continue
            given = WAYS[way](call, expected) if way == "vmap" else WAYS[way](call)
            found = differences(expected, given, way)
            if found == "arguments" and call.kwargs.get("overwrite_input"):
                continue        # NumPy leaves there what it likes
            if found:
                yield way, call, found, expected, given


def spread_out(calls: list[bytes]) -> list[bytes]:
    """Return the calls in an order in which each function comes early."""
    by_function = defaultdict(list)
    for written in calls:
        by_function[written[:40]].append(written)
    return [each for row in itertools.zip_longest(*by_function.values()) for each in row if each is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "replay"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--ways", default=",".join((*WAYS, "slopes")))
    parser.add_argument("--only", default="", help="functions, by name")
    parser.add_argument("--share", default="0/1", help="k/n: every n-th call, from the k-th on")
    parser.add_argument("--examples", type=int, default=2)
    parser.add_argument("--refused", action="store_true", help="show what is refused, too")
    options = parser.parse_args()
    if options.action == "record":
        print(len(record(options.file)), "calls")
        return
    calls = pickle.loads(options.file.read_bytes())
    if options.only:
        names = options.only.split(",")
        calls = [call for call in calls if any(name.encode() in call[:60] for name in names)]
    k, n = map(int, options.share.split("/"))
    seen: dict[Any, list[Any]] = defaultdict(list)
    for way, call, kind, expected, given in replay(calls, options.ways.split(","), (k, n)):
        if kind == "refused" and not options.refused:
            continue
        if options.only and call.name.split(".")[-1] not in names and call.name not in names:
            continue
        seen[way, call.name, kind].append((call, expected, given))
    for (way, name, kind), cases in sorted(seen.items()):
        print(f"{way:9} {name:20} {kind}: {len(cases)}")
        for call, expected, given in cases[:options.examples]:
            print("    ", call)
            if expected is not None:
                for each in (expected, given):
                    shown = repr(each[0]) if each[1] is None else f"{type(each[1]).__name__}: {each[1]}"
                    print("       ", " ".join(shown.split())[:200], *sorted(each[2]))


if __name__ == "__main__":
    main()
