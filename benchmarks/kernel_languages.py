"""The overhead of an operator over its kernel, for kernels in several languages.

    python -m benchmarks.kernel_languages [N ...]       for arrays of N elements (4, 1,000 and 100,000)

Each kernel computes `x * y + 1.0` for float64; `bare` is a call of it, `op` one of the operator whose kernel it is, on
arrays and on Tensors. All calls of a size are timed in turn, in one process; the numbers are medians over the rounds,
in nanoseconds, and `adds` is the median of the differences. Needs numba and SciPy.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from scipy import LowLevelCallable

from pydispatch import Tensor, ops
from pydispatch.cli.timing import make_loop, on_one_core, quiet, time_in_rounds
from pydispatch.library import Library, c_function

ROUNDS = 101
SIZES = (4, 1_000, 100_000)


def in_python(x: Any, y: Any) -> Any:
    """Return the kernel in Python, which calls two of NumPy's functions."""
    return x * y + 1.0


def in_blocks(x: Any, y: Any, result: Any, n: Any) -> None:
    """Define the same kernel as a function in C that is called with addresses."""
    given, factors, results = numba.carray(x, n), numba.carray(y, n), numba.carray(result, n)
    for i in range(n):
        results[i] = given[i] * factors[i] + 1.0


def kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernels by what they are written in."""
    pointer = numba.types.CPointer(numba.float64)
    per_element = numba.cfunc("float64(float64, float64)")(in_python)
    per_block = numba.cfunc(numba.void(pointer, pointer, pointer, numba.int64))(in_blocks)
    compiled = numba.njit("float64[::1](float64[::1], float64[::1])")(in_python)
    return {
        "Python": in_python,
        "ufunc of NumPy (np.multiply alone)": np.multiply,
        "C function of an element": c_function(LowLevelCallable(per_element.ctypes)),
        "C function of a block": c_function(
            LowLevelCallable(per_block.ctypes, signature="void (double *, double *, double *, intptr_t)")),
        "numba.vectorize": numba.vectorize(["float64(float64, float64)"])(in_python),
        "numba.njit": compiled,
    }


def measure(n: int) -> list[tuple[str, float, float, float, float, float]]:
    """Return a row per kernel: bare, op, what op adds, op on Tensors, what that adds."""
    names: dict[str, Any] = {"x": np.linspace(0.0, 1.0, n), "y": np.linspace(1.0, 2.0, n)}
    names |= {"u": Tensor(names["x"]), "v": Tensor(names["y"])}
    found, loops = kernels(), []
    with Library("kernel_languages", "FRAGMENT") as library, quiet():
        for i, kernel in enumerate(found.values()):
            library.define(f"f{i}(Tensor x, Tensor y) -> Tensor")
            library.impl(f"f{i}", kernel, "CPU")
            for call, callee in (("f(x, y)", kernel), ("f(x, y)", getattr(ops.kernel_languages, f"f{i}")),
                                 ("f(u, v)", getattr(ops.kernel_languages, f"f{i}"))):
                loops.append(make_loop(call, {**names, "f": callee}))
        rounds = time_in_rounds(loops, ROUNDS, 60.0)
    rows = []
    for i, name in enumerate(found):
        bare, raw, wrapped = [[times[3 * i + k] for times in rounds] for k in range(3)]
        rows.append((name, statistics.median(bare), statistics.median(raw), median_difference(raw, bare),
                     statistics.median(wrapped), median_difference(wrapped, bare)))
    return rows


def median_difference(these: list[float], those: list[float]) -> float:
    """Return the median over the rounds of what one takes more than the other."""
    return statistics.median([one - other for one, other in zip(these, those, strict=True)])


def main() -> None:
    """Measure and print."""
    on_one_core()
    for n in map(int, sys.argv[1:] or SIZES):
        print(f"{n:,} elements\n\n| kernel | bare | op on arrays | adds | op on Tensors | adds |")
        print("|---|---|---|---|---|---|")
        for name, *numbers in measure(n):
            print(f"| {name} | {' | '.join([f'{number:,.0f}' for number in numbers])} |")
        print(flush=True)


if __name__ == "__main__":
    main()
