"""The cost of compiling: the first call of compiled gradients, their thousandth, and the share of each operator."""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.cases.differentiators import COMPILERS, Differentiator, Gradient, available, functions_of, positions
from benchmarks.cases.kinds import Absolute, matches
from benchmarks.cases.programs import TimedProgram, perceptron, programs
from pydispatch import compile, func
from pydispatch.cli.timing import clock, make_loop, time_in_rounds
from pydispatch.ops import ops
from pydispatch.tracing import make_fx

FIRST = "First call of a compiled gradient"
THOUSANDTH = "Thousandth call of a compiled gradient"
PER_OPERATOR = "Compilation, for each operator of the program"
CALL = "A compiled call: the guard, one loop over 4 elements, and the new array"
COMPILATION = (CALL, PER_OPERATOR, FIRST, THOUSANDTH)
LONGEST = 10            # milliseconds, for the first call of the perceptron's gradient
BOUND = 80              # microseconds for an operator
ENOUGH = 1.0            # seconds: others take longer to compile, and are compiled once then
GUARD, ARGUMENT = 0.1, 0.03      # microseconds: of a guard, and for each argument
CALL_ROUNDS = 20         # for each repetition
LATE = range(951, 1051)         # the calls around the thousandth, since one alone is too short

CALLED: dict[int, Callable[..., Any]] = {
    1: lambda a: a * 2.0, 2: lambda a, b: a * 2.0, 5: lambda a, b, c, d, e: a * 2.0,
}
"""Functions of so many arguments that do the same."""


def compilation_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Absolute]:
    """Yield calls, then our programs and gradients by operator, then the gradients of all installed compilers."""
    for n in CALLED:
        yield Absolute(CALL, f"arguments: {n}", GUARD + n * ARGUMENT, "µs", functools.partial(call_times, n))
    for program in programs():
        for suffix, is_gradient in (("", False), (", gradient", True)):
            yield Absolute(PER_OPERATOR, program.title + suffix, BOUND, "µs",
                           functools.partial(times_per_operator, program, is_gradient))
    for group, unit, values in ((FIRST, "ms", first_calls), (THOUSANDTH, "µs", thousandth_calls)):
        for program in programs():
            for library, way in COMPILERS.items():
                name = f"{program.title}, {library}"
                if matches(group, name, pattern) and (module := available(way, program, library, left_out)):
                    bound = LONGEST if group == FIRST and library == "compile" and program.make is perceptron else None
                    yield Absolute(group, name, bound, unit, functools.partial(values, way, module, program))


def call_times(n_arguments: int, repetitions: int) -> list[float]:
    """Return microseconds of a call."""
    names = {f"x{i}": np.ones(4) for i in range(n_arguments)}
    compiled = compile(CALLED[n_arguments])
    compiled(*names.values())
    loop = make_loop(f"compiled({', '.join(names)})", {"compiled": compiled, **names})
    return [time / 1e3 for time, in time_in_rounds([loop], CALL_ROUNDS * repetitions)]


def first_calls(way: Differentiator, module: Any, program: TimedProgram, repetitions: int) -> list[float]:
    """Return milliseconds of the first call of gradients that were just made. Slow ones are made once."""
    found: list[float] = []
    while len(found) < repetitions and sum(found) < ENOUGH * 1e3:
        found.append(time_of(way.set_up(module)(program)) * 1e3)
    return found


def thousandth_calls(way: Differentiator, module: Any, program: TimedProgram, repetitions: int) -> list[float]:
    """Return microseconds of each of the calls around the thousandth."""
    gradient = way.set_up(module)(program)
    for _ in range(LATE.start - 1):
        gradient()
    start = clock()
    for _ in LATE:
        gradient()
    return [(clock() - start) / len(LATE) * 1e6]


def times_per_operator(program: TimedProgram, is_gradient: bool, repetitions: int) -> list[float]:
    """Return microseconds that the first call takes more than a later one, for each operator that is traced."""
    function = program.make(functions_of(ops.np))
    if is_gradient:
        function = func.value_and_grad(function, positions(program))
    arguments = [*program.arguments.values()]
    n_operators = len(make_fx(function)(*arguments).find_nodes(op="call_function"))
    found = []
    for _ in range(repetitions):
        call = functools.partial(compile(function), *arguments)
        found.append((time_of(call) - time_of(call)) / n_operators * 1e6)
    return found


def time_of(call: Gradient | Callable[[], Any]) -> float:
    """Return seconds of processor time of one call, compilers that it starts included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = clock()
    call()
    elapsed = clock() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
