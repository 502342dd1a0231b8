"""The programs whose gradients are timed, and their gradients as one writes them by hand in NumPy.

A program is written once, with the operators, methods and the four functions that NumPy-like libraries share. The
gradient by hand returns the value and the gradients, since a tape computes both, and computes nothing twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class ProgramFunctions(NamedTuple):
    """The functions of a library that programs use."""

    sin: Callable[[Any], Any]
    tanh: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    log1p: Callable[[Any], Any]


class TimedProgram(NamedTuple):
    """A function from arrays to a scalar, its gradient by hand, and what both are called with."""

    title: str
    bounds: tuple[float, float, float]  # on our times over that of the gradient by hand: tape, transform, compiled
    make: Callable[[ProgramFunctions], Callable[..., Any]]
    by_hand: Callable[..., tuple[Any, list[Any]]]       # value, gradients of the parameters
    parameters: dict[str, np.ndarray]
    data: dict[str, np.ndarray]

    @property
    def arguments(self) -> dict[str, np.ndarray]:
        """The parameters, then the data."""
        return self.parameters | self.data


add_up = np.add.reduce      # half the time of the method `sum`


# --- a polynomial of degree 4, elementwise -----------------------------------------------------------------


def polynomial(library: ProgramFunctions) -> Callable[..., Any]:
    """9 operators."""
    def program(x: Any) -> Any:
        return ((((x * 0.5 - 1.5) * x + 2.0) * x - 0.25) * x + 3.0).sum()
    return program


def polynomial_by_hand(x: Any) -> tuple[Any, list[Any]]:
    """Compute the value and the derivative at once by Horner's rule."""
    leading = x * 0.5
    value = leading - 1.5
    slope = leading + value
    value = value * x + 2.0
    slope = slope * x + value
    value = value * x - 0.25
    slope = slope * x + value
    value = value * x + 3.0
    return add_up(value), [slope]


# --- a perceptron with a hidden layer, and its mean squared error ------------------------------------------

ERRORS = 8 * 2


def perceptron(library: ProgramFunctions) -> Callable[..., Any]:
    """9 operators."""
    tanh = library.tanh

    def program(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
        errors = tanh(inputs @ w1 + b1) @ w2 + b2 - targets
        return (errors * errors).sum() * (1 / ERRORS)
    return program


def perceptron_by_hand(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> tuple[Any, list[Any]]:
    """Backpropagate."""
    hidden = np.tanh(inputs @ w1 + b1)
    errors = hidden @ w2 + b2 - targets
    value = add_up(errors * errors, None) * (1 / ERRORS)
    gradient = errors * (2 / ERRORS)
    before_tanh = (gradient @ w2.T) * (1.0 - hidden * hidden)
    return value, [inputs.T @ before_tanh, add_up(before_tanh), hidden.T @ gradient, add_up(gradient)]


# --- an ordinary differential equation, by Euler's explicit method -----------------------------------------

STEPS, STEP = 100, 0.01


def euler(library: ProgramFunctions) -> Callable[..., Any]:
    """501 operators."""
    sin = library.sin

    def program(y: Any) -> Any:
        for _ in range(STEPS):
            y = y + (sin(y) - y * y) * STEP
        return y.sum()
    return program


def euler_by_hand(y: Any) -> tuple[Any, list[Any]]:
    """Forward, keeping every state, then backward through the states."""
    states = []
    for _ in range(STEPS):
        states.append(y)
        y = y + (np.sin(y) - y * y) * STEP
    gradient = np.ones_like(y)
    for state in reversed(states):
        gradient += gradient * STEP * (np.cos(state) - 2.0 * state)
    return add_up(y), [gradient]


# --- logistic regression, one step over all data -----------------------------------------------------------

ROWS, COLUMNS = 20_000, 50


def logistic(library: ProgramFunctions) -> Callable[..., Any]:
    """7 operators."""
    exp, log1p = library.exp, library.log1p

    def program(weights: Any, features: Any, labels: Any) -> Any:
        return log1p(exp(-(labels * (features @ weights)))).sum() * (1 / ROWS)
    return program


def logistic_by_hand(weights: Any, features: Any, labels: Any) -> tuple[Any, list[Any]]:
    """Use the logistic function of the margins, most of which the loss has computed already."""
    exponentials = np.exp(-(labels * (features @ weights)))
    value = add_up(np.log1p(exponentials)) * (1 / ROWS)
    return value, [labels * (exponentials / (1.0 + exponentials)) @ features * (-1 / ROWS)]


# --- all of them -------------------------------------------------------------------------------------------

@functools.cache
def programs() -> tuple[TimedProgram, ...]:
    """Return the programs, with their arrays."""
    random = np.random.default_rng(0)
    normal = random.standard_normal
    return (
        TimedProgram(
            "a polynomial of a 4-vector", (0.75, 0.9, 0.15), polynomial, polynomial_by_hand, {"x": normal(4)}, {}),
        TimedProgram(
            "a perceptron, 8x4 inputs, 16 hidden", (0.6, 0.7, 0.2), perceptron, perceptron_by_hand,
            {"w1": normal((4, 16)), "b1": normal(16), "w2": normal((16, 2)), "b2": normal(2)},
            {"inputs": normal((8, 4)), "targets": normal((8, 2))},
        ),
        TimedProgram(
            "100 steps of Euler's method, 4-vector", (0.5, 0.55, 0.05), euler, euler_by_hand,
            {"y": random.uniform(0, 1, 4)}, {},
        ),
        TimedProgram(
            "a logistic regression, 20,000x50", (1.05, 1.05, 0.95), logistic, logistic_by_hand,
            {"weights": 0.1 * normal(COLUMNS)},
            {"features": normal((ROWS, COLUMNS)), "labels": np.sign(normal(ROWS))},
        ),
    )
