"""A short test of the installation: dispatch, gradients, batches and compiled functions against NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from pydispatch import Tensor, func
from pydispatch.cli.doctor.extensions import compiler_names, error_of_compiler
from pydispatch.cli.doctor.findings import REINSTALL, Finding, text_of
from pydispatch.compiling.functions import compile
from pydispatch.debug import check_invariants

Program = Callable[[Any], Any]
Pairs = Iterator[tuple[Any, Any]]
Comparison = Callable[[Program, Any], Pairs]

SECONDS = 7.0
"""No program starts later than this. Programs that numba compiles take up to a second each."""

PROGRAMS: dict[str, Program] = {
    "arithmetic": lambda x: (2 * x + 1) / (x * x + 3),
    "functions of elements": lambda x: np.exp(-x) * np.sin(x) + np.log(x) + np.sqrt(x),
    "a condition": lambda x: np.where(x > 1, x * x, -x),
    "reductions": lambda x: (x.sum(axis=0, keepdims=True) - x.mean()) * x.max(axis=1, keepdims=True),
    "products": lambda x: x @ x.T + np.einsum("ij,kj->ik", x, x),
    "indexing": lambda x: x[1:, ::-1] * x[[0, 2]].sum(axis=0),
    "joining": lambda x: np.concatenate([x, x[::-1]], axis=1).reshape(-1),
    "order": lambda x: np.sort(x, axis=0) * np.cumsum(x, axis=1),
    "linear algebra": lambda x: np.linalg.solve(x @ x.T + np.eye(len(x)), x),
    "Fourier transform": lambda x: np.abs(np.fft.rfft(x)) ** 2,
}
"""The programs to compare. On arrays they are plain NumPy."""


def examine_calls(seconds: float = SECONDS) -> Iterator[Finding]:
    """Compare all programs with NumPy in each way of running them, as far as the time allows."""
    deadline = time.monotonic() + seconds
    yield examine_registrations()
    ways: dict[str, Comparison] = {"dispatch": dispatched, "gradient": differentiated, "vmap": batched}
    ways |= {f"compile, {name}": partial(compiled, name)
             for name in compiler_names() if error_of_compiler(name) is None}
    for way, compare in ways.items():
        yield examine_way(way, compare, deadline)


def examine_registrations() -> Finding:
    """Check that registrations and tables agree with each other."""
    try:
        check_invariants()
    except AssertionError as error:
        return Finding("registrations", text_of(error), remedy_of_self_test())
    return Finding("registrations", "consistent")


def examine_way(way: str, compare: Comparison, deadline: float) -> Finding:
    """Compare all programs with NumPy in one way of running them."""
    values = np.random.default_rng(17).uniform(0.5, 2.0, (3, 4))
    agreeing, differing = 0, []
    for name, program in PROGRAMS.items():
        if time.monotonic() > deadline:
            break
        try:
            for found, expected in compare(program, values):
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        except Exception as error:
            differing.append(f"{name} ({text_of(error)})")
        else:
            agreeing += 1
    left_out = len(PROGRAMS) - agreeing - len(differing)
    late = f", {left_out} skipped for lack of time" if left_out else ""
    if differing:
        return Finding(way, f"differs from NumPy: {'; '.join(differing)}{late}", remedy_of_self_test())
    return Finding(way, f"{agreeing} programs agree with NumPy{late}")


def remedy_of_self_test() -> str:
    """Return the remedy for wrong results."""
    return f"{REINSTALL}. If that does not help, report it with the whole output of doctor"


def dispatched(program: Program, values: Any) -> Pairs:
    """Yield the program's result on a Tensor, and NumPy's."""
    yield program(Tensor(values)).numpy(), program(values)


def differentiated(program: Program, values: Any) -> Pairs:
    """Yield the gradients by the tape and by the transform, and NumPy's central differences."""
    steps = 1e-6 * np.eye(values.size).reshape(-1, *values.shape)
    differences = [(program(values + step).sum() - program(values - step).sum()) / 2e-6 for step in steps]
    expected = np.array(differences).reshape(values.shape)
    leaf = Tensor(values, requires_grad=True)
    program(leaf).sum().backward()
    yield leaf.grad, expected
    yield func.grad(lambda x: program(x).sum())(values), expected


def batched(program: Program, values: Any) -> Pairs:
    """Yield the program's result on a batch, and that of a loop."""
    batch = np.stack([values, values[::-1], 2 * values])
    yield func.vmap(program)(batch), np.stack([program(each) for each in batch])


def compiled(name: str, program: Program, values: Any) -> Pairs:
    """Yield the compiled program's results on the array that it was compiled for, on another, and on a tall one."""
    function = compile(program, backend=name)
    for array in (values, values[::-1].copy(), tall(values)):
        yield function(array), program(array)


def tall(values: Any) -> Any:
    """Return an array with so many rows that a compiler may generate loops for it."""
    return np.tile(values, (128, 1))
