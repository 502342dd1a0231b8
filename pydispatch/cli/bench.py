"""Measure dispatch, gradients and compiled functions on this machine, and compare them with NumPy and other libraries.

Each table compares calls within one run: a round times every call once, and a row shows the median of the rounds.
"""

# tests: tests/cli/test_main.py
from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import json
import platform
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pydispatch.numpy as pnp
from pydispatch import __version__, func
from pydispatch._core import Tensor
from pydispatch.cli.console import Cell, Column, Plain, Rich
from pydispatch.cli.timing import make_loop, quiet, time_in_rounds
from pydispatch.compiling.functions import compile
from pydispatch.exceptions import DispatchError
from pydispatch.library import Library
from pydispatch.ops import ops

# for each table: the most rounds, and seconds. The second entry is used with --quick
ROUNDS = {False: (101, 2.0), True: (5, 0.1)}
NAMESPACE = "pydispatch_bench"
ELEMENTS = 100_000

Call = Callable[[], Any]


@dataclass(frozen=True)
class Row:
    """A measured call."""

    group: str
    name: str
    nanoseconds: float
    ratio: float        # over the first row of the group


# --- cases -----------------------------------------------------------------------------------------------


def kernel(x: Any, y: Any) -> Any:
    """Return the first argument."""
    return x


def dispatch_calls(library: Library) -> Iterator[tuple[str, Call]]:
    """Yield additions of four numbers, and a kernel in Python with and without its operator."""
    x, y = np.arange(4.0), np.ones(4)
    tracked = Tensor(x.copy(), requires_grad=True)
    library.define("first(Tensor x, Tensor y) -> Tensor", kernel, "CPU")
    first = getattr(ops, NAMESPACE).first
    yield "numpy.add(x, y)", functools.partial(np.add, x, y)
    yield "ops.np.add(x, y)", functools.partial(ops.np.add, x, y)
    yield "ops.np.add of Tensors", functools.partial(ops.np.add, Tensor(x), Tensor(y))
    yield "ops.np.add, recorded", functools.partial(ops.np.add, tracked, y)
    yield "a kernel in Python", functools.partial(kernel, x, y)
    yield "its operator", functools.partial(first, x, y)


def polynomial(xp: Any, x: Any) -> Any:
    """Return the sum of a polynomial of each element."""
    return xp.sum(((0.5 * x - 1.0) * x + 2.0) * x * x)


def perceptron(xp: Any, weights: Any) -> Any:
    """Return the mean square of a layer of 16 units over 8 inputs."""
    inputs = xp.reshape(xp.sin(xp.arange(32.0)), (8, 4))
    return xp.mean(xp.tanh(inputs @ weights) ** 2)


PROGRAMS = {
    "a polynomial of 4 numbers": (polynomial, np.linspace(-1.0, 1.0, 4)),
    "a perceptron, 8x4 inputs, 16 units": (perceptron, np.linspace(-1.0, 1.0, 64).reshape(4, 16)),
}


def chain(xp: Any, x: Any) -> Any:
    """Return ten operations on each element."""
    return xp.sqrt(xp.exp(-x * x) + 0.5) * xp.sin(2.0 * x) - xp.cos(x) / (1.0 + x * x)


def on_tape(program: Callable[..., Any], xp: Any, leaf: Any) -> Any:
    """Return the gradient of a leaf of pydispatch or PyTorch, computed by `backward`."""
    leaf.grad = None
    program(xp, leaf).backward()
    return leaf.grad


def gradient_calls(program: Callable[..., Any], x: np.ndarray, absent: dict[str, str]) -> Iterator[tuple[str, Call]]:
    """Yield the gradient of a program in each way that is installed."""
    ours = functools.partial(program, pnp)
    yield "func.grad", functools.partial(func.grad(ours), x)
    yield "Tensor.backward", functools.partial(on_tape, program, pnp, Tensor(x.copy(), requires_grad=True))
    yield "compile(func.grad)", functools.partial(compile(func.grad(ours)), x)
    if autograd := installed("autograd", absent):
        numpy = importlib.import_module("autograd.numpy")
        yield "HIPS autograd", functools.partial(autograd.grad(functools.partial(program, numpy)), x)
    if torch := installed("torch", absent):
        yield "PyTorch", functools.partial(on_tape, program, with_float64(torch), torch.tensor(x, requires_grad=True))
    if jax := installed("jax", absent):
        gradient = jax.jit(jax.grad(functools.partial(program, jax.numpy)))
        yield "jax.jit(jax.grad)", functools.partial(waiting, gradient, jax.numpy.asarray(x))


def compiled_calls(absent: dict[str, str]) -> Iterator[tuple[str, Call]]:
    """Yield a chain of operations on many elements in each way that is installed."""
    x = np.linspace(-1.0, 1.0, ELEMENTS)
    yield "numpy", functools.partial(chain, np, x)
    yield "compile", functools.partial(compile(functools.partial(chain, pnp)), x)
    if torch := installed("torch", absent):
        yield "PyTorch", functools.partial(chain, torch, torch.tensor(x))
    if jax := installed("jax", absent):
        yield "jax.jit", functools.partial(waiting, jax.jit(functools.partial(chain, jax.numpy)), jax.numpy.asarray(x))


def installed(name: str, absent: dict[str, str]) -> Any:
    """Import a library to compare with. If it is not installed, note the reason in `absent` and return None."""
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        absent[name] = str(error)
        return None
    if name == "jax":
        module.config.update("jax_enable_x64", True)
    if name == "torch":
        module.set_num_threads(1)
    return module


def with_float64(torch: Any) -> Any:
    """Set float64 as the default dtype of PyTorch, and return PyTorch."""
    torch.set_default_dtype(torch.float64)
    return torch


def waiting(function: Callable[..., Any], x: Any) -> Any:
    """Call a function of JAX, and wait for its result."""
    return function(x).block_until_ready()


def tables(library: Library, absent: dict[str, str]) -> Iterator[tuple[str, Iterable[tuple[str, Call]]]]:
    """Yield the title and the calls of each table."""
    yield "Dispatch", dispatch_calls(library)
    for title, (program, x) in PROGRAMS.items():
        yield f"Gradient of {title}", gradient_calls(program, x, absent)
    yield f"Ten operations on {ELEMENTS:,} numbers", compiled_calls(absent)


# --- measuring and printing ------------------------------------------------------------------------------


def measure(group: str, calls: Iterable[tuple[str, Call]], is_quick: bool) -> list[Row]:
    """Time the calls of one table against each other."""
    named = list(calls)
    rounds, seconds = ROUNDS[is_quick]
    with quiet():
        times = time_in_rounds([make_loop("call()", {"call": call}) for _, call in named], rounds, seconds)
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return [Row(group, name, median, median / medians[0]) for (name, _), median in zip(named, medians, strict=True)]


def run_bench(out: Plain | Rich, arguments: argparse.Namespace) -> None:
    """Measure all tables. Print each, or write JSON, or both."""
    absent: dict[str, str] = {}
    rows: list[Row] = []
    with Library(NAMESPACE, "FRAGMENT") as library:
        for group, calls in tables(library, absent):
            if fnmatch.fnmatch(group.lower(), f"*{arguments.rows.lower()}*"):
                rows += (measured := measure(group, calls, arguments.quick))
                if arguments.json != "-":
                    print_table(out, group, measured)
    if not rows:
        raise DispatchError(f"no table matches {arguments.rows!r}\nsee them all: python -m pydispatch bench --quick")
    if arguments.json != "-":
        for name, reason in absent.items():
            out.line(f"left out: {name}: {reason}", "dim")
    if arguments.json:
        text = json.dumps(report(rows, absent), indent=1)
        if arguments.json == "-":
            print(text)
        else:
            Path(arguments.json).write_text(f"{text}\n")


def print_table(out: Plain | Rich, group: str, rows: list[Row]) -> None:
    """Print the rows of one table, with times in one unit."""
    unit, scale = ("µs", 1e3) if max(row.nanoseconds for row in rows) >= 10_000 else ("ns", 1.0)
    columns = Column("".ljust(30)), Column(unit.rjust(10), right=True), Column("".rjust(8), right=True)
    out.table(columns, (
        (Cell(row.name, "name"), f"{row.nanoseconds / scale:,.4g}", Cell(f"{row.ratio:.2f}×", "dim")) for row in rows
    ), group)


def report(rows: list[Row], absent: dict[str, str]) -> dict[str, Any]:
    """Return the rows and the versions, for JSON."""
    versions = {"pydispatch": __version__, "python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "platform": platform.platform(), "rows": [asdict(row) for row in rows], "left_out": absent}
