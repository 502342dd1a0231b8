"""Programs of many operators compute the same in every way to run them: bit for bit, what they write to included."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from pydispatch import Tensor
from pydispatch.operators import DECLARATIONS
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs
from pydispatch.tree import tree_flatten, tree_map
from tests.programs import LEFT_OUT, Program, programs, programs_ending_in, quiet

OPERATORS = [operator for operator in DECLARATIONS if operator not in LEFT_OUT]
SOME, MANY = 150, 5000
"""Random programs of a run, and of a long one."""
EACH, EVERY = 3, 1000
"""Sample calls of each operator, likewise."""


# --- ways to run a program on arrays, which it may write to ----------------------------------------------------------


def as_it_is(program: Program, arrays: list[np.ndarray]) -> Any:
    return program.function(*arrays)


def on_tensors(program: Program, arrays: list[np.ndarray]) -> Any:
    return program.function(*map(Tensor, arrays))


def under_a_logging_mode(program: Program, arrays: list[np.ndarray]) -> Any:
    with LoggingMode(), capture_logs(is_mode=True) as lines:
        returned = program.function(*arrays)
    assert len(lines) >= len(program.steps)
    return returned


def as_logging_tensors(program: Program, arrays: list[np.ndarray]) -> Any:
    return program.function(*map(LoggingTensor, arrays))


WAYS: tuple[Callable[[Program, list[np.ndarray]], Any], ...] = (as_it_is, on_tensors, under_a_logging_mode, as_logging_tensors)


# --- what they must agree in -----------------------------------------------------------------------------------------


def raw(leaf: Any) -> np.ndarray:
    """What is in there."""
    if isinstance(leaf, LoggingTensor):
        return raw(leaf.elem)
    return np.asarray(leaf.array if isinstance(leaf, Tensor) else leaf)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Same dtype, shape and bits, but any nan is like any other?"""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.kind == "c":
        return same_bits(one.real, other.real) and same_bits(one.imag, other.imag)
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    bits = f"u{one.dtype.itemsize}"
    equal = np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)
    return bool(np.all(equal.reshape(one.shape) | (np.isnan(one) & np.isnan(other))))


def outcome(program: Program, run: Callable[[Program, list[np.ndarray]], Any]) -> Any:
    """What a way to run it returns, and what it has made of the inputs."""
    arrays = program.inputs.fresh()
    with quiet():
        returned = run(program, arrays)
    return tree_map(raw, returned), arrays


def check(program: Program, every_way: Any = WAYS) -> None:
    """The program gives the same in every way as in NumPy."""
    expected, expected_spec = tree_flatten(outcome(program, lambda program, arrays: program.in_numpy(*arrays)))
    for run in every_way:
        found, spec = tree_flatten(outcome(program, run))
        assert spec == expected_spec, f"{run.__name__}: {spec}"
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert same_bits(one, other), f"{run.__name__}, leaf {i}: found {one!r}, expected {other!r}{program!r}"


# --- every operator, and many together -------------------------------------------------------------------------------


def spread(found: list[Program], count: int) -> list[Program]:
    """So many of them, from the first to the last."""
    return found if len(found) <= count else [found[i * len(found) // count] for i in range(count)]


@functools.cache
def covered_by_samples(operator: str, count: int) -> Counter[str]:
    """Run programs that end in the operator; which operators were called, and how often."""
    covered: Counter[str] = Counter()
    for program in spread([*programs_ending_in(operator)], count):
        check(program)
        covered += program.operators
    return covered


IN_RANDOM_PROGRAMS: Counter[str] = Counter()


@pytest.mark.parametrize("operator", OPERATORS)
def test_programs_that_end_in(operator):
    assert covered_by_samples(operator, EACH)[operator]


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
def test_all_samples_of(operator):
    assert covered_by_samples(operator, EVERY)[operator]


@settings(max_examples=SOME, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_random_programs(program):
    check(program)
    IN_RANDOM_PROGRAMS.update(program.operators)


@pytest.mark.slow
@settings(max_examples=MANY, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_many_random_programs(program):
    check(program)
    IN_RANDOM_PROGRAMS.update(program.operators)


def test_every_operator_was_covered():
    """The report: how often each operator was called, in programs of its samples and in random ones."""
    in_samples = sum((covered_by_samples(operator, EACH) for operator in OPERATORS), Counter())
    print(*(f"\nleft out: {operator}: {reason}" for operator, reason in LEFT_OUT.items()))
    print(f"\n{'operator':<20}{'samples':>8}{'random':>8}")
    for operator in OPERATORS:
        print(f"{operator:<20}{in_samples[operator]:>8}{IN_RANDOM_PROGRAMS[operator]:>8}")
    assert DECLARATIONS.keys() >= LEFT_OUT.keys()
    assert [operator for operator in OPERATORS if not in_samples[operator]] == []
