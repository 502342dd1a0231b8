"""Programs that scan 100,000 steps, for libraries with `scan`, and with their gradients as loops by hand.

The loops are written once for NumPy and for numba, which compiles them as they are, but where a small matrix is in
them: there numba's are loops over its elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Function = Callable[..., Any]


class ScanLibrary(NamedTuple):
    """The parts of a library that programs use: its functions, and `scan(step, init, xs, length=n)`."""

    functions: Any
    scan: Callable[..., Any]


class ScanTask(NamedTuple):
    """A program from arrays to a scalar and the results of all steps. The gradient is by the first argument."""

    title: str
    arguments: Callable[[int], tuple[Any, ...]]     # for so many steps
    make: Callable[[ScanLibrary], Function]
    by_hand: Function
    gradient_by_hand: Function                      # of the scalar
    in_loops: Function                              # for numba
    gradient_in_loops: Function


# --- a damped pendulum -----------------------------------------------------------------------------------------------

STEP, GRAVITY, FRICTION = 1e-3, 9.81, 0.1


def pendulum(library: ScanLibrary) -> Function:
    """Make steps of the half-implicit Euler method. Return all angles, and the sum of their squares."""
    sin = library.functions.sin

    def step(state: Any, _: Any) -> Any:
        angle, velocity = state
        velocity = velocity - (sin(angle) * GRAVITY + velocity * FRICTION) * STEP
        angle = angle + velocity * STEP
        return (angle, velocity), angle

    def program(start: Any, velocity: Any, steps: int) -> Any:
        _, angles = library.scan(step, (start, velocity), None, length=steps)
        return (angles * angles).sum(), angles
    return program


def pendulum_by_hand(start: Any, velocity: Any, steps: int) -> Any:
    """Compute with NumPy numbers."""
    angles = np.empty(steps)
    angle, velocity = start[()], velocity[()]
    for i in range(steps):
        velocity = velocity - (np.sin(angle) * GRAVITY + velocity * FRICTION) * STEP
        angle = angle + velocity * STEP
        angles[i] = angle
    return (angles * angles).sum(), angles


def pendulum_gradient_by_hand(start: Any, velocity: Any, steps: int) -> Any:
    """Go backwards through the angles."""
    _, angles = pendulum_by_hand(start, velocity, steps)
    of_angle = of_velocity = np.float64(0.0)
    for i in range(steps - 1, -1, -1):
        of_angle = of_angle + 2.0 * angles[i]
        of_velocity = of_velocity + of_angle * STEP
        before = angles[i - 1] if i else start[()]
        of_angle = of_angle - of_velocity * STEP * GRAVITY * np.cos(before)
        of_velocity = of_velocity - of_velocity * STEP * FRICTION
    return of_angle


def pendulum_gradient_in_loops(start: Any, velocity: Any, steps: int) -> Any:
    """Compute both directions in one function, since numba would compile another as another."""
    angles = np.empty(steps)
    angle, speed = start.item(), velocity.item()
    for i in range(steps):
        speed -= (math.sin(angle) * GRAVITY + speed * FRICTION) * STEP
        angle += speed * STEP
        angles[i] = angle
    of_angle, of_speed = 0.0, 0.0
    for i in range(steps - 1, -1, -1):
        of_angle += 2.0 * angles[i]
        of_speed += of_angle * STEP
        before = angles[i - 1] if i else start.item()
        of_angle -= of_speed * STEP * GRAVITY * math.cos(before)
        of_speed -= of_speed * STEP * FRICTION
    return of_angle


# --- exponential smoothing -------------------------------------------------------------------------------------------


def smoothing(library: ScanLibrary) -> Function:
    """Return all levels, and the mean squared error of each as a forecast of the next value."""
    def program(rate: Any, values: Any) -> Any:
        def step(level: Any, value: Any) -> Any:
            level = level + (value - level) * rate
            return level, level

        _, levels = library.scan(step, values[0], values)
        errors = values[1:] - levels[:-1]
        return (errors * errors).mean(), levels
    return program


def smoothing_by_hand(rate: Any, values: Any) -> Any:
    """Compute with NumPy numbers."""
    levels = np.empty_like(values)
    level, rate = values[0], rate[()]
    for i in range(len(values)):
        level = level + (values[i] - level) * rate
        levels[i] = level
    errors = values[1:] - levels[:-1]
    return (errors * errors).mean(), levels


def smoothing_gradient_by_hand(rate: Any, values: Any) -> Any:
    """Go backwards through the levels."""
    _, levels = smoothing_by_hand(rate, values)
    of_errors = (levels[:-1] - values[1:]) * (2 / (len(values) - 1))
    of_level = of_rate = np.float64(0.0)
    kept = 1.0 - rate[()]
    for i in range(len(values) - 2, -1, -1):
        of_level = of_level + of_errors[i]
        of_rate = of_rate + of_level * (values[i] - (levels[i - 1] if i else values[0]))
        of_level = of_level * kept
    return of_rate


def smoothing_gradient_in_loops(rate: Any, values: Any) -> Any:
    """Compute both directions in one function."""
    n, kept = len(values), 1.0 - rate.item()
    levels = np.empty_like(values)
    level = values[0]
    for i in range(n):
        level += (values[i] - level) * rate.item()
        levels[i] = level
    of_level, of_rate = 0.0, 0.0
    for i in range(n - 2, -1, -1):
        of_level += (levels[i] - values[i + 1]) * (2 / (n - 1))
        of_rate += of_level * (values[i] - (levels[i - 1] if i else values[0]))
        of_level *= kept
    return of_rate


# --- a Kalman filter with four states --------------------------------------------------------------------------------

STATES = 4


def kalman(library: ScanLibrary) -> Function:
    """Return all means of the states, and the negative log-likelihood, whose parameter is the noise."""
    log = library.functions.log

    def program(noise: Any, values: Any, transition: Any, observation: Any, spread: Any) -> Any:
        def step(state: Any, value: Any) -> Any:
            mean, covariance = state
            mean = transition @ mean
            covariance = transition @ covariance @ transition.T + spread
            gain = covariance @ observation
            variance = gain @ observation + noise
            error = value - mean @ observation
            mean = mean + gain * (error / variance)
            covariance = covariance - gain[:, None] * gain / variance
            return (mean, covariance), (mean, log(variance) + error * error / variance)

        _, (means, losses) = library.scan(step, (spread[0] * 0.0, spread), values)
        return losses.sum(), means
    return program


def kalman_by_hand(noise: Any, values: Any, transition: Any, observation: Any, spread: Any) -> Any:
    """Compute with small arrays."""
    means = np.empty((len(values), STATES))
    mean, covariance = np.zeros(STATES), spread
    loss = 0.0
    for i, value in enumerate(values):
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + spread
        gain = covariance @ observation
        variance = gain @ observation + noise
        error = value - mean @ observation
        mean = mean + gain * (error / variance)
        covariance = covariance - gain[:, None] * gain / variance
        means[i] = mean
        loss = loss + np.log(variance) + error * error / variance
    return loss, means


def kalman_gradient_by_hand(noise: Any, values: Any, transition: Any, observation: Any, spread: Any) -> Any:
    """Go backwards through gains, variances and errors, which are kept."""
    kept = []
    mean, covariance = np.zeros(STATES), spread
    for value in values:
        mean = transition @ mean
        covariance = transition @ covariance @ transition.T + spread
        gain = covariance @ observation
        variance = gain @ observation + noise
        error = value - mean @ observation
        mean = mean + gain * (error / variance)
        covariance = covariance - gain[:, None] * gain / variance
        kept.append((gain, variance, error))
    of_mean, of_covariance, of_noise = np.zeros(STATES), np.zeros((STATES, STATES)), 0.0
    for gain, variance, error in reversed(kept):
        along = of_mean @ gain
        both = (of_covariance + of_covariance.T) @ gain
        of_gain = of_mean * (error / variance) - both / variance
        of_variance = (1.0 - error * error / variance - along * error / variance + gain @ both * 0.5 / variance)
        of_variance = of_variance / variance
        of_error = (along + 2.0 * error) / variance
        of_noise = of_noise + of_variance
        of_gain = of_gain + of_variance * observation
        of_covariance = of_covariance + of_gain[:, None] * observation
        of_mean = of_mean - of_error * observation
        of_covariance = transition.T @ of_covariance @ transition
        of_mean = transition.T @ of_mean
    return of_noise


def kalman_in_loops(noise: Any, values: Any, transition: Any, observation: Any, spread: Any) -> Any:
    """Compute with loops over the elements."""
    means = np.empty((len(values), STATES))
    mean, before = np.zeros(STATES), np.zeros(STATES)
    covariance, product = spread.copy(), np.empty((STATES, STATES))
    gain = np.empty(STATES)
    loss = 0.0
    for n in range(len(values)):
        before[:] = mean
        for i in range(STATES):
            mean[i] = 0.0
            for j in range(STATES):
                mean[i] += transition[i, j] * before[j]
                product[i, j] = 0.0
                for k in range(STATES):
                    product[i, j] += transition[i, k] * covariance[k, j]
        variance, error = noise.item(), values[n]
        for i in range(STATES):
            gain[i] = 0.0
            for j in range(STATES):
                covariance[i, j] = spread[i, j]
                for k in range(STATES):
                    covariance[i, j] += product[i, k] * transition[j, k]
                gain[i] += covariance[i, j] * observation[j]
            variance += gain[i] * observation[i]
            error -= mean[i] * observation[i]
        for i in range(STATES):
            mean[i] += gain[i] * (error / variance)
            means[n, i] = mean[i]
            for j in range(STATES):
                covariance[i, j] -= gain[i] * gain[j] / variance
        loss += math.log(variance) + error * error / variance
    return loss, means


def kalman_gradient_in_loops(noise: Any, values: Any, transition: Any, observation: Any, spread: Any) -> Any:
    """Compute both directions in one function."""
    n_values = len(values)
    gains, variances, errors = np.empty((n_values, STATES)), np.empty(n_values), np.empty(n_values)
    mean, before = np.zeros(STATES), np.zeros(STATES)
    covariance, product = spread.copy(), np.empty((STATES, STATES))
    for n in range(n_values):
        gain = gains[n]
        before[:] = mean
        for i in range(STATES):
            mean[i] = 0.0
            for j in range(STATES):
                mean[i] += transition[i, j] * before[j]
                product[i, j] = 0.0
                for k in range(STATES):
                    product[i, j] += transition[i, k] * covariance[k, j]
        variance, error = noise.item(), values[n]
        for i in range(STATES):
            gain[i] = 0.0
            for j in range(STATES):
                covariance[i, j] = spread[i, j]
                for k in range(STATES):
                    covariance[i, j] += product[i, k] * transition[j, k]
                gain[i] += covariance[i, j] * observation[j]
            variance += gain[i] * observation[i]
            error -= mean[i] * observation[i]
        for i in range(STATES):
            mean[i] += gain[i] * (error / variance)
            for j in range(STATES):
                covariance[i, j] -= gain[i] * gain[j] / variance
        variances[n], errors[n] = variance, error
    of_mean, of_covariance, of_noise = np.zeros(STATES), np.zeros((STATES, STATES)), 0.0
    both = np.empty(STATES)
    for n in range(n_values - 1, -1, -1):
        gain, variance, error = gains[n], variances[n], errors[n]
        along, across = 0.0, 0.0
        for i in range(STATES):
            both[i] = 0.0
            for j in range(STATES):
                both[i] += (of_covariance[i, j] + of_covariance[j, i]) * gain[j]
            along += of_mean[i] * gain[i]
            across += gain[i] * both[i]
        of_variance = (1.0 + (across * 0.5 - error * error - along * error) / variance) / variance
        of_error = (along + 2.0 * error) / variance
        of_noise += of_variance
        for i in range(STATES):
            of_gain = (of_mean[i] * error - both[i]) / variance + of_variance * observation[i]
            before[i] = of_mean[i] - of_error * observation[i]
            for j in range(STATES):
                of_covariance[i, j] += of_gain * observation[j]
        for i in range(STATES):
            of_mean[i] = 0.0
            for j in range(STATES):
                of_mean[i] += transition[j, i] * before[j]
                product[i, j] = 0.0
                for k in range(STATES):
                    product[i, j] += transition[k, i] * of_covariance[k, j]
        for i in range(STATES):
            for j in range(STATES):
                of_covariance[i, j] = 0.0
                for k in range(STATES):
                    of_covariance[i, j] += product[i, k] * transition[k, j]
    return of_noise


def observations(steps: int) -> tuple[Any, ...]:
    """Return the noise, observed positions, and a system of two coordinates that move with their velocities."""
    transition = np.eye(STATES) * 0.99
    transition[0, 2] = transition[1, 3] = 0.1
    random = np.random.default_rng(0)
    return (
        np.array(0.5), random.standard_normal(steps), transition, np.array([1.0, 0.5, 0.0, 0.0]),
        np.eye(STATES) * 0.1,
    )


# --- all of them -----------------------------------------------------------------------------------------------------

SCAN_TASKS = {task.title: task for task in (
    ScanTask(
        "a pendulum", lambda steps: (np.array(1.0), np.array(0.0), steps), pendulum, pendulum_by_hand,
        pendulum_gradient_by_hand, pendulum_by_hand, pendulum_gradient_in_loops,
    ),
    ScanTask(
        "exponential smoothing", lambda steps: (np.array(0.1), np.random.default_rng(0).standard_normal(steps)),
        smoothing, smoothing_by_hand, smoothing_gradient_by_hand, smoothing_by_hand, smoothing_gradient_in_loops,
    ),
    ScanTask(
        "a Kalman filter with 4 states", observations, kalman, kalman_by_hand, kalman_gradient_by_hand,
        kalman_in_loops, kalman_gradient_in_loops,
    ),
)}
