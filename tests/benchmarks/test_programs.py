"""The gradients written by hand are right: by finite differences, and by PyTorch's where it is installed."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cases.differentiators import functions_of
from benchmarks.cases.programs import COLUMNS, ROWS, STEP, STEPS, programs
from pydispatch import ops
from pydispatch.tracing import make_fx

TITLES = [program.title for program in programs()]
each_program = pytest.mark.parametrize("program", programs(), ids=TITLES)
PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text(encoding="utf-8")
ROWS_OF_PAGE = dict(zip(TITLES, [
    "| a polynomial of degree 4", "| a perceptron", "| 100 steps of Euler's method", "| logistic regression",
], strict=True))


@each_program
def test_the_value_by_hand_is_that_of_the_program_in_numpy(program):
    value, _ = program.by_hand(*program.arguments.values())
    assert np.isscalar(value)
    np.testing.assert_allclose(value, program.make(functions_of(np))(*program.arguments.values()), rtol=1e-13)


@each_program
def test_the_gradient_by_hand_is_that_of_finite_differences(program):
    def value(**changed):
        return program.by_hand(**program.arguments | changed)[0]

    _, gradients = program.by_hand(**program.arguments)
    for (name, array), gradient in zip(program.parameters.items(), gradients, strict=True):
        assert gradient.shape == array.shape
        for index in itertools.islice(np.ndindex(array.shape), 8):
            step = np.zeros_like(array)
            step[index] = 1e-6
            slope = (value(**{name: array + step}) - value(**{name: array - step})) / 2e-6
            np.testing.assert_allclose(gradient[index], slope, rtol=1e-6, atol=1e-9)


@each_program
def test_a_program_has_as_many_operators_as_it_says(program):
    graph = make_fx(program.make(functions_of(ops.np)))(*program.arguments.values())
    count = len(graph.find_nodes(op="call_function"))
    assert program.make.__doc__ == f"{count} operators."
    assert f"| {count} |" in next(line for line in PAGE.splitlines() if line.startswith(ROWS_OF_PAGE[program.title]))


@each_program
def test_by_hand_leaves_its_arguments_alone(program):
    before = {name: array.copy() for name, array in program.arguments.items()}
    program.by_hand(**program.arguments)
    for name, array in program.arguments.items():
        np.testing.assert_array_equal(array, before[name])


def test_the_sizes_are_those_of_the_titles():
    shapes = [[array.shape for array in program.arguments.values()] for program in programs()]
    assert shapes == [
        [(4,)], [(4, 16), (16,), (16, 2), (2,), (8, 4), (8, 2)], [(4,)], [(COLUMNS,), (ROWS, COLUMNS), (ROWS,)]]
    assert (ROWS, COLUMNS, STEPS) == (20_000, 50, 100)
    assert STEP > 0
