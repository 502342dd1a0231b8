"""The gradients of the programs by hand, as loops for numba: one after the other, without temporaries.

`gradients_in_loops` compiles them. They compute what the ones in NumPy do, in the form in which numba is fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases.programs import ERRORS, ROWS, STEP, STEPS, euler, logistic, perceptron, polynomial


def polynomial_in_loops(x: Any) -> Any:
    """Compute value and slope, element by element."""
    slopes = np.empty_like(x)
    total = 0.0
    for i in range(len(x)):
        value, slope = x[i] * 0.5, 0.5
        for constant in (-1.5, 2.0, -0.25):
            value += constant
            slope = slope * x[i] + value
            value *= x[i]
        slopes[i] = slope
        total += value + 3.0
    return total, slopes


def perceptron_in_loops(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
    """Backpropagate, one example after the other."""
    of_w1, of_b1, of_w2, of_b2 = np.zeros_like(w1), np.zeros_like(b1), np.zeros_like(w2), np.zeros_like(b2)
    hidden = np.empty_like(b1)
    total = 0.0
    for n in range(len(inputs)):
        for j in range(len(b1)):
            before = b1[j]
            for i in range(len(w1)):
                before += inputs[n, i] * w1[i, j]
            hidden[j] = math.tanh(before)
        errors = b2 - targets[n]
        for j in range(len(b1)):
            for k in range(len(b2)):
                errors[k] += hidden[j] * w2[j, k]
        for k in range(len(b2)):
            total += errors[k] * errors[k]
            errors[k] *= 2 / ERRORS
            of_b2[k] += errors[k]
        for j in range(len(b1)):
            gradient = 0.0
            for k in range(len(b2)):
                of_w2[j, k] += hidden[j] * errors[k]
                gradient += w2[j, k] * errors[k]
            gradient *= 1 - hidden[j] * hidden[j]
            of_b1[j] += gradient
            for i in range(len(w1)):
                of_w1[i, j] += inputs[n, i] * gradient
    return total / ERRORS, (of_w1, of_b1, of_w2, of_b2)


def euler_in_loops(y: Any) -> Any:
    """Compute all steps of one element, forward and back, then the next element."""
    gradient = np.empty_like(y)
    states = np.empty(STEPS)
    total = 0.0
    for i in range(len(y)):
        state, slope = y[i], 1.0
        for n in range(STEPS):
            states[n] = state
            state += (math.sin(state) - state * state) * STEP
        for n in range(STEPS - 1, -1, -1):
            slope += slope * STEP * (math.cos(states[n]) - 2 * states[n])
        gradient[i] = slope
        total += state
    return total, gradient


def logistic_in_loops(weights: Any, features: Any, labels: Any) -> Any:
    """Compute products by BLAS, the rest in one loop."""
    margins = features @ weights
    total = 0.0
    for i in range(len(margins)):
        exponential = math.exp(-labels[i] * margins[i])
        total += math.log1p(exponential)
        margins[i] = labels[i] * exponential / (1 + exponential)
    return total / ROWS, margins @ features * (-1 / ROWS)


def gradients_in_loops(numba: Any) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the functions, by the function that makes the program. Each is compiled at its first call."""
    loops = {
        polynomial: polynomial_in_loops, perceptron: perceptron_in_loops, euler: euler_in_loops,
        logistic: logistic_in_loops,
    }
    return {make: numba.njit(function) for make, function in loops.items()}
