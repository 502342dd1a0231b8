"""Instructions per call, counted by valgrind's callgrind: the same at every run, so that CI sees a regression.

    python -m benchmarks.instructions             count, and compare with the reference for this Python
    python -m benchmarks.instructions --update    count, and make that the reference

One process runs the calls of `python -m benchmarks` n and 2n times; the difference, by n, is what a call takes. A call
of sched_yield, which nothing else makes, has callgrind write what it counted since the last one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import differentiators, dispatch
from benchmarks.cases.compilation import CALLED
from benchmarks.cases.peers import NAMESPACE
from benchmarks.cases.programs import programs
from pydispatch import Tensor, compile, higher_order
from pydispatch.cli.console import Cell, Column, console
from pydispatch.cli.timing import make_loop
from pydispatch.library import Library
from pydispatch.ops import ops

REFERENCE = Path(__file__).with_name("instructions.json")
ROOT = REFERENCE.parents[1]
TURNS = 200
COMPILATIONS = 10   # turns of what compiles, each of which takes as long as a thousand calls
COMPILATION = "compilation: "
ROWS = 10_000       # of the logistic regression: more than where blocks begin
TOLERANCE = 0.1     # other builds of the same Python differ by half of that
VALGRIND = shutil.which("valgrind")


# --- counting --------------------------------------------------------------------------------------------


def calls(library: Library) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the calls that are timed, and those that they are compared with: name -> text, names in it."""
    cases = [("", case) for case in dispatch.floor_cases(library)]
    cases += [("np.add: ", case) for case in dispatch.add_cases()]
    cases += [("either: ", case) for case in dispatch.backend_cases(library)]
    timed = {f"{prefix}{text}": (text, case.names) for prefix, case in cases for text in (case.call, case.over)}
    return timed | gradient_calls() | compiled_calls() | compilations()


def gradient_calls() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a recorded operator, and the gradient of the polynomial in each of our ways."""
    tracked = dispatch.arrays() | {"X": Tensor(np.ones(4), requires_grad=True)}
    polynomial = programs()[0]
    names = {name: {"gradient": way.set_up(None)(polynomial)} for name, way in differentiators.OURS.items()}
    return {"tracked: X * Y": ("X * Y", tracked)} | {
        f"polynomial: {name}": ("gradient()", names[name]) for name in names
    }


def compiled_calls() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return compiled functions of more arguments, of more steps, and with a loop of more steps, to compare them."""
    x = np.ones(4)
    timed = {}
    for n, function in CALLED.items():
        timed[f"compiled: one step, arguments: {n}"] = f"compiled({', '.join('x' * n)})", compile(function)
    for n in (10, 100):
        timed[f"compiled: steps: {n}"] = "compiled(x)", compile(functools.partial(product, n))
    for n in (10, 110):
        timed[f"compiled: scan, times: {n}"] = "compiled(x)", compile(functools.partial(scanned, n))
    for text, compiled in timed.values():
        eval(text, {"compiled": compiled, "x": x})
    return {name: (text, {"compiled": compiled, "x": x}) for name, (text, compiled) in timed.items()}


def compilations() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return first calls of compiled functions, of few elements and of enough for blocks."""
    names = {"compile": compile, "polynomial": program_of(0), "logistic": program_of(3)}
    x, weights, features, labels = np.ones(4), np.ones(2), np.ones((ROWS, 2)), np.ones(ROWS)
    return {f"{COMPILATION}{title}": (text, names | arguments) for title, text, arguments in (
        ("a polynomial", "compile(polynomial)(x)", {"x": x}),
        ("a logistic regression", "compile(logistic)(weights, features, labels)",
         {"weights": weights, "features": features, "labels": labels}),
    )}


def program_of(number: int) -> Callable[..., Any]:
    """Return a program of the benchmarks, of our operators."""
    return programs()[number].make(differentiators.functions_of(ops.np))


def turns_of(name: str) -> int:
    """Return how often a call is made between two counts."""
    return COMPILATIONS if name.startswith(COMPILATION) else TURNS


def product(n: int, x: Any) -> Any:
    """Multiply so many times. No multiplication can be left out."""
    result = x
    for _ in range(n):
        result = result * x
    return result


def scanned(n: int, x: Any) -> Any:
    """Multiply by a loop."""
    return higher_order.scan(lambda result, _: (result * x, None), x, length=n)[0]


def run_calls() -> None:
    """Run the calls under callgrind, and print their names."""
    gc.disable()
    with Library(NAMESPACE, "FRAGMENT") as library:
        timed = calls(library)
        start_counting()
        for name, (text, names) in timed.items():
            loop, once = make_loop(text, names), turns_of(name)
            loop(once)
            for turns in (0, once, 2 * once):
                loop(turns)
                os.sched_yield()
    print(json.dumps(list(timed)))


def start_counting() -> None:
    """Start the counts of callgrind. Until then a process takes a fifth of the time."""
    order = subprocess.Popen(["vgdb", f"--pid={os.getpid()}", "--max-invoke-ms=0", "instrumentation", "on"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while order.poll() is None:     # valgrind looks for orders while a program computes
        pass
    assert order.returncode == 0


def count() -> dict[str, int]:
    """Return instructions of each call. Needs valgrind."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        command = [
            VALGRIND, "--quiet", "--tool=callgrind", "--instr-atstart=no", "--dump-before=sched_yield",
            f"--callgrind-out-file={output}",
            sys.executable, "-m", "benchmarks.instructions", "--run-calls",
        ]
        variables = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        names = json.loads(subprocess.run(command, check=True, cwd=ROOT, env=variables, stdout=subprocess.PIPE).stdout)
        parts = sorted(Path(folder).glob("out.*"), key=lambda path: int(path.suffix[1:]))
        totals = [total_of(part) for part in parts[-3 * len(names):]]
    return {
        name: round((twice - once) / turns_of(name))
        for name, once, twice in zip(names, totals[1::3], totals[2::3], strict=True)
    }


def total_of(part: Path) -> int:
    """Return the instructions in one dump of callgrind."""
    found = re.search(r"^totals: (\d+)", part.read_text(), re.MULTILINE)
    assert found, f"{part} has no totals"
    return int(found[1])


# --- comparing -------------------------------------------------------------------------------------------


def version() -> str:
    """Return the Python version that a reference is for."""
    return ".".join(platform.python_version_tuple()[:2])


def reference() -> dict[str, int] | None:
    """Return the reference for this Python, None where there is none."""
    found: dict[str, int] | None = json.loads(REFERENCE.read_text()).get(version())
    return found


def regressions(counted: dict[str, int], expected: dict[str, int]) -> dict[str, float]:
    """Return the calls that take more than they should, beyond the tolerance: how many times as much."""
    ratios = {name: number / expected[name] for name, number in counted.items() if name in expected}
    return {name: ratio for name, ratio in ratios.items() if ratio > 1 + TOLERANCE}


def update(counted: dict[str, int]) -> None:
    """Make these counts the reference for this Python. Those for others stay."""
    references = {**json.loads(REFERENCE.read_text()), version(): counted}
    REFERENCE.write_text(json.dumps(references, indent=1, sort_keys=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="make what is counted now the reference")
    parser.add_argument("--run-calls", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run_calls:
        run_calls()
        return
    if VALGRIND is None:
        parser.exit(1, "valgrind is not installed\n")
    counted, expected = count(), reference() or {}
    worse = regressions(counted, expected)
    columns = [Column("call"), *(Column(title, right=True) for title in ("instructions", "reference", "change"))]
    console().table(columns, [
        (
            Cell(name, "name"), f"{number:,}", f"{expected[name]:,}" if name in expected else "",
            Cell(f"{number / expected[name] - 1:+.1%}", "bad" if name in worse else "") if name in expected else "",
        )
        for name, number in counted.items()
    ])
    if arguments.update:
        update(counted)
    elif worse:
        sys.exit(f"more than {TOLERANCE:.0%} above the reference: {', '.join(worse)}")


if __name__ == "__main__":
    main()
