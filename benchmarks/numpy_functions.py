"""The cost of `pydispatch.numpy`: raw arrays, NumPy's own functions on Tensors, first uses of functions, the import.

    python -m benchmarks.numpy_functions raw [PATTERN]      functions on small raw arrays, over NumPy's own
    python -m benchmarks.numpy_functions protocols          NumPy's own functions on a Tensor, more than the operator
    python -m benchmarks.numpy_functions first              the first call of each function, more than the next one
    python -m benchmarks.numpy_functions import             processor time of the imports

`raw` calls every function of NumPy's main namespace, `linalg` and `fft` that takes arrays: with the samples of the
tests, and functions without samples on 4 elements. Each call is timed in turn with NumPy's; a ratio is the median
over the rounds.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import json
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

import pydispatch.numpy as pnp
from benchmarks.cases.once import process_time
from pydispatch import Tensor, ops
from pydispatch.cli.timing import make_loop, pin, quiet, seconds, time_in_rounds
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.samples import SAMPLES
from tests.numpy.samples.sample import grid

BOUND = 1.1
FIRST = 150         # microseconds
ROUNDS = 41
LARGEST = 32        # elements of an array: the time of larger ones is NumPy's


class Call(NamedTuple):
    """A call by its text, and what the names in it stand for."""

    function: str
    text: str
    names: dict[str, Any]
    shown: str


def calls() -> Iterator[Call]:
    """Yield all calls, function by function."""
    for name in FUNCTIONS:
        if FUNCTIONS[name].numpy_function is None or KINDS[name] == "refused":
            continue
        for sample in SAMPLES.get(name, ()):
            small = all(leaf.size <= LARGEST for leaf in tree_leaves((sample.args, sample.kwargs))
                        if isinstance(leaf, np.ndarray))
            if small and accepts(FUNCTIONS[name].numpy_function, sample.args, sample.kwargs):
                yield call_of(name, sample.args, sample.kwargs, repr(sample))
        if name not in SAMPLES:
            yield from (call_of(name, args, kwargs, shown(name, args, kwargs)) for args, kwargs in others(name))


def shown(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the text of a call for a reader."""
    return f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def call_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], shown: str) -> Call:
    """Return the call of a function with these arguments."""
    args, kwargs = tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, (args, kwargs))
    values = {f"a{i}": value for i, value in enumerate(args)}
    values |= {f"k{i}": value for i, value in enumerate(kwargs.values())}
    texts = [*(f"a{i}" for i in range(len(args))), *(f"{key}=k{i}" for i, key in enumerate(kwargs))]
    return Call(name, f"f({', '.join(texts)})", values, shown)


X, POSITIVE, M = grid(4), np.abs(grid(4)) / 3, grid(2, 2)
INTS, MASK = np.array([3, 1, 2, 0]), np.array([True, False, True, True])
OTHERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "transpose": ((M,),), "swapaxes": ((M, 0, 1),), "moveaxis": ((M, 0, 1),), "expand_dims": ((X, 0),),
    "squeeze": ((grid(4, 1),),), "broadcast_to": ((X, (2, 4)),), "tile": ((X, 2),), "roll": ((X, 1),),
    "take": ((X, INTS),), "take_along_axis": ((X, INTS, 0),), "matmul": ((M, M),),
    "array_repr": ((X,),), "asmatrix": ((M,),), "put": ((X.copy(), 0, 1.0),), "place": ((X.copy(), MASK, X),),
    "copyto": ((X.copy(), X),), "putmask": ((X.copy(), MASK, X),), "fill_diagonal": ((M.copy(), 0.0),),
    "put_along_axis": ((X.copy(), INTS, X, 0),), "iinfo": ((int,),),
}
TO_FILES = ("save", "savez", "savez_compressed", "savetxt")


def others(name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield arguments for a function without samples: 4 elements, and axes for those that have them."""
    function = FUNCTIONS[name].numpy_function
    if name in OTHERS:
        yield from ((args, {}) for args in OTHERS[name])
    elif isinstance(function, np.ufunc):
        for x in (POSITIVE, INTS, MASK):
            if accepts(function, (x,) * function.nin):
                yield (x,) * function.nin, {}
                yield (x,) * (function.nin - 1) + (x.tolist()[0],), {}
        if accepts(function, (POSITIVE,) * function.nin):
            yield (POSITIVE,) * function.nin, {"out": np.empty(4, function(*(POSITIVE,) * function.nin).dtype)}
    elif name not in TO_FILES:
        yield (POSITIVE,), {}
        if accepts(function, (M,), {"axis": 0}):
            yield (M,), {"axis": 0}
        if accepts(function, (M,), {"keepdims": True}):
            yield (M,), {"axis": -1, "keepdims": True}


def accepts(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> bool:
    """Return whether NumPy's function takes these arguments."""
    args, kwargs = tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, (args, kwargs or {}))
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return True


def ratio(call: Call) -> tuple[float, float]:
    """Return the median ratio of the times, and the median of NumPy's in nanoseconds."""
    ours = operator.attrgetter(call.function)(pnp)
    loops = [make_loop(call.text, {"f": f, **call.names}) for f in (ours, FUNCTIONS[call.function].numpy_function)]
    rounds = time_in_rounds(loops, ROUNDS)
    return statistics.median(this / other for this, other in rounds), statistics.median(other for _, other in rounds)


def print_raw(pattern: str = "*") -> None:
    """Print the calls above the bound, then a line for each function: its slowest call."""
    assert all((pnp.linalg, pnp.fft))       # they declare their functions when they are loaded
    worst: dict[str, tuple[float, float, str]] = {}
    warnings.simplefilter("ignore")
    for call in list(calls()):
        if not fnmatch.fnmatch(call.function, pattern):
            continue
        with quiet(), np.errstate(all="ignore"):
            found = (*ratio(call), " ".join(call.shown.split()))
        worst[call.function] = max(worst.get(call.function, found), found)
        if found[0] > BOUND:
            print(f"{found[0]:6.2f} {found[1]:9.0f} ns  {found[2]}", flush=True)
    print(f"\n{len(worst)} functions, {sum(value[0] > BOUND for value in worst.values())} of them above {BOUND}")
    for name, (value, time, shown) in sorted(worst.items(), key=lambda item: -item[1][0]):
        print(f"{value:6.2f} {time:9.0f} ns  {name:24} {shown}")


# --- NumPy's own functions on Tensors --------------------------------------------------------------------------------

PROTOCOLS = (
    # NumPy's function, the operator, the bound in microseconds
    ("np.sin(t)", "ops.np.sin(t)", 0.35), ("np.add(t, t)", "ops.np.add(t, t)", 0.35),
    ("np.add(x, t)", "ops.np.add(x, t)", 0.35),
    ("np.sum(t)", "ops.np.sum(t)", 0.45), ("np.concatenate([t, t])", "ops.np.concatenate([t, t])", 0.45),
    ("np.transpose(t)", "ops.np.transpose(t)", 0.45), ("np.sort(t)", "ops.np.sort(t)", 0.45),
    ("np.cumsum(t)", "ops.np.cumsum(t)", 0.45), ("np.where(m, t, t)", "ops.np.where(m, t, t)", 0.45),
    ("np.sum(t, axis=0)", "ops.np.sum(t, axis=0)", 0.45), ("np.mean(t, axis=0)", "ops.np.mean(t, axis=0)", 0.45),
    ("np.argmax(t, axis=0)", "ops.np.argmax(t, axis=0)", 0.45),
    ("np.sum(t, axis=0, keepdims=True)", "ops.np.sum(t, axis=0, keepdims=True)", 0.45),
    ("np.linalg.inv(a)", "ops.np.linalg_inv(a)", 0.45),
)


def print_protocols() -> None:
    """Print what a call by NEP 13 or NEP 18 takes more than the operator."""
    names = {"np": np, "ops": ops, "t": Tensor(POSITIVE), "x": POSITIVE, "m": Tensor(MASK), "a": Tensor(M)}
    for text, plain, bound in PROTOCOLS:
        with quiet():
            rounds = time_in_rounds([make_loop(call, names) for call in (text, plain)], 201, 2.0)
        excess = statistics.median(this - other for this, other in rounds) / 1e3
        print(f"{excess:6.2f} µs  {text:32} bound {bound}")


# --- the first use, and the import -----------------------------------------------------------------------------------


@contextlib.contextmanager
def compiled_modules() -> Iterator[dict[str, str]]:
    """Set variables with which processes share a folder for what they compile."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        yield variables | {"PYTHONPYCACHEPREFIX": folder}


def first_uses() -> dict[str, float]:
    """Return microseconds of the first call of each function on Tensors, more than the next one."""
    assert all((pnp.linalg, pnp.fft))
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    found = {}
    firsts = {call.function: call for call in reversed(list(calls()))}
    for name, call in reversed(firsts.items()):
        tensors = tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, call.names)
        loop = make_loop(call.text, {"f": operator.attrgetter(name)(pnp), **tensors})
        try:
            times = [seconds(loop, 1) * 1e6 for _ in range(3)]
        except (TypeError, ValueError, RuntimeError):       # what takes no Tensors
            continue
        found[name] = times[0] - min(times[1:])
    return found


def print_first() -> None:
    """Print the functions by what their first use takes: the least of several processes, since they disturb it."""
    command = [sys.executable, "-m", "benchmarks.numpy_functions", "first-uses"]
    with compiled_modules() as variables:
        run = functools.partial(subprocess.run, command, check=True, stdout=subprocess.PIPE, env=variables)
        runs = [json.loads(run().stdout) for _ in range(8)][1:]     # the first one compiles modules
    least = {name: min(run[name] for run in runs) for name in runs[0]}
    print(f"{len(least)} functions, {sum(time > FIRST for time in least.values())} of them above {FIRST} µs")
    for name, time in sorted(least.items(), key=lambda item: -item[1]):
        print(f"{time:8.1f} µs  {name}")


def print_import() -> None:
    """Print what the imports add, in milliseconds of processor time."""
    codes = ("pass", "import numpy", "import numpy, pydispatch", "import numpy, pydispatch.numpy")
    with compiled_modules() as variables:
        process_time(codes[-1], variables)      # compiles all of it
        rounds = [[process_time(code, variables) * 1e3 for code in codes] for _ in range(15)]
    for i, (title, bound) in enumerate((("numpy", None), ("pydispatch", 30), ("pydispatch.numpy", 15))):
        added = statistics.median(times[i + 1] - times[i] for times in rounds)
        print(f"import {title:18} {added:6.1f} ms more" + (f", bound {bound}" if bound else ""))


def main() -> None:
    what, *arguments = sys.argv[1:] or ["raw"]
    if what == "first-uses":
        with quiet():
            print(json.dumps(first_uses()))
        return
    pin()
    {"raw": print_raw, "protocols": print_protocols, "first": print_first, "import": print_import}[what](*arguments)


if __name__ == "__main__":
    main()
