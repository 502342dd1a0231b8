"""The programs over large arrays, each for all NumPy-like libraries, as strings for numexpr, and as loops for numba."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pydispatch import func

Function = Callable[..., Any]
Compiler = Callable[[Function], Function]


class LargeTask(NamedTuple):
    """A program over large arrays."""

    title: str
    bound: float                                        # on the time of the plan over NumPy's
    arguments: Callable[[int], tuple[Any, ...]]         # for about so many elements in all
    make: Callable[[Any], Function]                     # with a library's functions
    in_loops: Callable[[Compiler], Function]            # with numba's compiler
    in_numexpr: Callable[[Any], Function] | None        # with the module, None where it has no such functions
    by_hand: Function | None = None                     # in NumPy, where that is not `make` with NumPy's functions


CHEAP, OTHERS = 0.5, 0.7


def uniform(seed: int, low: float, high: float, *shape: int) -> np.ndarray:
    """Return random numbers, the same each time."""
    return np.random.default_rng(seed).uniform(low, high, shape)


def prange() -> Any:
    """Return numba's loop over a range that may be shared among threads."""
    return importlib.import_module("numba").prange


# --- 15 cheap operators ----------------------------------------------------------------------------------------------


def expression(library: Any) -> Function:
    """Compute sums, differences and products of three arrays, and one maximum."""
    def program(x: Any, y: Any, z: Any) -> Any:
        a = x * y + z
        b = x * z - y
        c = a * b + x
        d = a - b * 2.0
        e = c * d + y * z
        return library.maximum(e * 0.5 - a * c, 0.0)
    return program


def expression_in_numexpr(numexpr: Any) -> Function:
    """Compute the expression in one string."""
    a, b = "(x * y + z)", "(x * z - y)"
    c, d = f"({a} * {b} + x)", f"({a} - {b} * 2.0)"
    inner = f"(({c} * {d} + y * z) * 0.5 - {a} * {c})"
    text = f"where({inner} > 0, {inner}, 0)"

    def program(x: Any, y: Any, z: Any) -> Any:
        return numexpr.evaluate(text, {"x": x, "y": y, "z": z})
    return program


def expression_in_loops(compiler: Compiler) -> Function:
    """Compute the expression in one loop."""
    each = prange()

    @compiler
    def program(x: Any, y: Any, z: Any) -> Any:
        result = np.empty_like(x)
        for i in each(len(x)):
            a = x[i] * y[i] + z[i]
            b = x[i] * z[i] - y[i]
            c = a * b + x[i]
            d = a - b * 2.0
            result[i] = max((c * d + y[i] * z[i]) * 0.5 - a * c, 0.0)
        return result
    return program


# --- options and how their prices change -----------------------------------------------------------------------------

RATE, VOLATILITY = 0.03, 0.25
NORMAL = (0.2316419, 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429)     # Abramowitz, Stegun 26.2.17
DENSITY = 1 / math.sqrt(2 * math.pi)


def black_scholes(library: Any) -> Function:
    """Compute the price of calls, delta, gamma, vega, theta and rho."""
    exp, log, sqrt, where, absolute = library.exp, library.log, library.sqrt, library.where, library.absolute
    p, c1, c2, c3, c4, c5 = NORMAL

    def density(x: Any) -> Any:
        return exp(x * x * -0.5) * DENSITY

    def distribution(x: Any, density: Any) -> Any:
        k = 1.0 / (absolute(x) * p + 1.0)
        tail = density * (k * (k * (k * (k * (k * c5 + c4) + c3) + c2) + c1))
        return where(x > 0.0, 1.0 - tail, tail)

    def program(spot: Any, strike: Any, years: Any) -> Any:
        root = sqrt(years)
        deviation = root * VOLATILITY
        d1 = (log(spot / strike) + years * (RATE + VOLATILITY ** 2 / 2)) / deviation
        d2 = d1 - deviation
        density1 = density(d1)
        delta = distribution(d1, density1)
        owed = strike * exp(years * -RATE) * distribution(d2, density(d2))
        sensitivity = spot * density1
        return (
            spot * delta - owed, delta, density1 / (spot * deviation), sensitivity * root,
            sensitivity * (VOLATILITY * -0.5) / root - owed * RATE, years * owed,
        )
    return program


def black_scholes_in_numexpr(numexpr: Any) -> Function:
    """Compute each result by a string, and by strings for what several results need."""
    p, c1, c2, c3, c4, c5 = NORMAL
    tail = f"density * (k * (k * (k * (k * (k * {c5} + {c4}) + {c3}) + {c2}) + {c1}))"

    def distribution(x: Any, density: Any) -> Any:
        k = numexpr.evaluate(f"1.0 / (abs(x) * {p} + 1.0)", {"x": x})
        return numexpr.evaluate(f"where(x > 0, 1 - {tail}, {tail})", {"x": x, "density": density, "k": k})

    def program(spot: Any, strike: Any, years: Any) -> Any:
        names = {"spot": spot, "strike": strike, "years": years}

        def evaluate(text: str) -> Any:
            return numexpr.evaluate(text, names)

        names["deviation"] = evaluate(f"sqrt(years) * {VOLATILITY}")
        names["d1"] = evaluate(f"(log(spot / strike) + years * {RATE + VOLATILITY ** 2 / 2}) / deviation")
        names["d2"] = evaluate("d1 - deviation")
        names["density1"] = evaluate(f"exp(d1 * d1 * -0.5) * {DENSITY}")
        names["delta"] = delta = distribution(names["d1"], names["density1"])
        names["cdf2"] = distribution(names["d2"], evaluate(f"exp(d2 * d2 * -0.5) * {DENSITY}"))
        names["owed"] = evaluate(f"strike * exp(years * {-RATE}) * cdf2")
        return (
            evaluate("spot * delta - owed"), delta, evaluate("density1 / (spot * deviation)"),
            evaluate("spot * density1 * sqrt(years)"),
            evaluate(f"spot * density1 * {VOLATILITY * -0.5} / sqrt(years) - owed * {RATE}"), evaluate("years * owed"),
        )
    return program


def black_scholes_in_loops(compiler: Compiler) -> Function:
    """Compute all results in one loop."""
    each = prange()
    p, c1, c2, c3, c4, c5 = NORMAL

    @compiler
    def program(spot: Any, strike: Any, years: Any) -> Any:
        price, delta, gamma = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
        vega, theta, rho = np.empty_like(spot), np.empty_like(spot), np.empty_like(spot)
        for i in each(len(spot)):
            root = math.sqrt(years[i])
            deviation = root * VOLATILITY
            d1 = (math.log(spot[i] / strike[i]) + years[i] * (RATE + VOLATILITY ** 2 / 2)) / deviation
            d2 = d1 - deviation
            density1, density2 = math.exp(d1 * d1 * -0.5) * DENSITY, math.exp(d2 * d2 * -0.5) * DENSITY
            k = 1.0 / (abs(d1) * p + 1.0)
            tail = density1 * (k * (k * (k * (k * (k * c5 + c4) + c3) + c2) + c1))
            cdf1 = 1.0 - tail if d1 > 0.0 else tail
            k = 1.0 / (abs(d2) * p + 1.0)
            tail = density2 * (k * (k * (k * (k * (k * c5 + c4) + c3) + c2) + c1))
            cdf2 = 1.0 - tail if d2 > 0.0 else tail
            owed = strike[i] * math.exp(years[i] * -RATE) * cdf2
            sensitivity = spot[i] * density1
            price[i], delta[i], gamma[i] = spot[i] * cdf1 - owed, cdf1, density1 / (spot[i] * deviation)
            vega[i] = sensitivity * root
            theta[i] = sensitivity * (VOLATILITY * -0.5) / root - owed * RATE
            rho[i] = years[i] * owed
        return price, delta, gamma, vega, theta, rho
    return program


# --- the loss of a classifier, and its gradient ----------------------------------------------------------------------

CLASSES = 100


def classification(size: int) -> tuple[Any, ...]:
    """Return logits of 100 classes, and a class for each row."""
    rows = size // CLASSES
    return uniform(0, -3, 3, rows, CLASSES), np.random.default_rng(1).integers(0, CLASSES, rows)


def cross_entropy(library: Any) -> Function:
    """Compute the mean loss, and its gradient by the logits, by `value_and_grad` of the library."""
    exp, log = library.exp, library.log
    value_and_grad, constant = func.value_and_grad, getattr(library, "detach", None)
    if constant is None:
        jax = importlib.import_module("jax")
        value_and_grad, constant = jax.value_and_grad, jax.lax.stop_gradient

    def loss(logits: Any, labels: Any) -> Any:
        shifted = logits - constant(logits.max(axis=1, keepdims=True))
        return (log(exp(shifted).sum(axis=1)) - shifted[np.arange(len(logits)), labels]).mean()

    return value_and_grad(loss)


def cross_entropy_by_hand(logits: Any, labels: Any) -> Any:
    """Reuse the exponentials of the loss for the gradient."""
    rows = np.arange(len(logits))
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    totals = exponentials.sum(axis=1, keepdims=True)
    value = (np.log(totals[:, 0]) - shifted[rows, labels]).mean()
    gradient = exponentials / totals
    gradient[rows, labels] -= 1.0
    gradient *= 1 / len(logits)
    return value, gradient


def cross_entropy_in_loops(compiler: Compiler) -> Function:
    """Compute loss and gradient in a loop over rows."""
    each = prange()

    @compiler
    def program(logits: Any, labels: Any) -> Any:
        rows, classes = logits.shape
        gradient = np.empty_like(logits)
        value = 0.0
        for i in each(rows):
            largest = logits[i, 0]
            for j in range(1, classes):
                largest = max(largest, logits[i, j])
            total = 0.0
            for j in range(classes):
                gradient[i, j] = math.exp(logits[i, j] - largest)
                total += gradient[i, j]
            value += math.log(total) - (logits[i, labels[i]] - largest)
            factor = 1 / (total * rows)
            for j in range(classes):
                gradient[i, j] *= factor
            gradient[i, labels[i]] -= 1 / rows
        return value / rows, gradient
    return program


# --- a step of the heat equation -------------------------------------------------------------------------------------

CONDUCTIVITY = 0.2


def stencil(library: Any) -> Function:
    """Return the inner points after a step, from their four neighbours."""
    def program(u: Any) -> Any:
        middle = u[1:-1, 1:-1]
        return middle + (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - middle * 4.0) * CONDUCTIVITY
    return program


def stencil_in_numexpr(numexpr: Any) -> Function:
    """Compute the step in one string, of views."""
    text = f"middle + (up + down + left + right - middle * 4.0) * {CONDUCTIVITY}"

    def program(u: Any) -> Any:
        return numexpr.evaluate(text, {
            "middle": u[1:-1, 1:-1], "up": u[:-2, 1:-1], "down": u[2:, 1:-1], "left": u[1:-1, :-2],
            "right": u[1:-1, 2:],
        })
    return program


def stencil_in_loops(compiler: Compiler) -> Function:
    """Compute the step in a loop over rows of points."""
    each = prange()

    @compiler
    def program(u: Any) -> Any:
        rows, columns = u.shape
        result = np.empty((rows - 2, columns - 2))
        for i in each(1, rows - 1):
            for j in range(1, columns - 1):
                around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
                result[i - 1, j - 1] = u[i, j] + (around - u[i, j] * 4.0) * CONDUCTIVITY
        return result
    return program


# --- an update of parameters -----------------------------------------------------------------------------------------

LEAVES = 50
LEARNING_RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def parameters(size: int) -> tuple[Any, ...]:
    """Return parameters, both moments and gradients, each a dict of 50 arrays, and the number of the step."""
    def arrays(seed: int, low: float) -> dict[str, Any]:
        return {f"layer{i:02}": uniform(seed * LEAVES + i, low, 1, size // LEAVES) for i in range(LEAVES)}
    return arrays(0, -1), arrays(1, -1), arrays(2, 0), arrays(3, -1), np.array(7.0)


def adam(library: Any) -> Function:
    """Make a step of Adam: return new parameters, and moments."""
    sqrt = library.sqrt

    def program(values: Any, firsts: Any, seconds: Any, gradients: Any, step: Any) -> Any:
        scale = LEARNING_RATE / (1.0 - BETA1 ** step)
        correction = 1.0 / (1.0 - BETA2 ** step)
        results: tuple[dict[str, Any], ...] = {}, {}, {}
        for name, value in values.items():
            gradient = gradients[name]
            first = firsts[name] * BETA1 + gradient * (1 - BETA1)
            second = seconds[name] * BETA2 + gradient * gradient * (1 - BETA2)
            results[0][name] = value - first * scale / (sqrt(second * correction) + EPSILON)
            results[1][name], results[2][name] = first, second
        return results
    return program


def adam_in_numexpr(numexpr: Any) -> Function:
    """Make the step by three strings for each array."""
    def program(values: Any, firsts: Any, seconds: Any, gradients: Any, step: Any) -> Any:
        scale, correction = LEARNING_RATE / (1.0 - BETA1 ** step), 1.0 / (1.0 - BETA2 ** step)
        results: tuple[dict[str, Any], ...] = {}, {}, {}
        for name, value in values.items():
            names = {"g": gradients[name], "m": firsts[name], "v": seconds[name], "p": value, "s": scale,
                     "c": correction}
            names["m"] = results[1][name] = numexpr.evaluate(f"m * {BETA1} + g * {1 - BETA1}", names)
            names["v"] = results[2][name] = numexpr.evaluate(f"v * {BETA2} + g * g * {1 - BETA2}", names)
            results[0][name] = numexpr.evaluate(f"p - m * s / (sqrt(v * c) + {EPSILON})", names)
        return results
    return program


def adam_in_loops(compiler: Compiler) -> Function:
    """Make the step in one loop for each array."""
    each = prange()

    @compiler
    def update(value: Any, first: Any, second: Any, gradient: Any, scale: float, correction: float) -> Any:
        values, firsts, seconds = np.empty_like(value), np.empty_like(value), np.empty_like(value)
        for i in each(len(value)):
            firsts[i] = first[i] * BETA1 + gradient[i] * (1 - BETA1)
            seconds[i] = second[i] * BETA2 + gradient[i] * gradient[i] * (1 - BETA2)
            values[i] = value[i] - firsts[i] * scale / (math.sqrt(seconds[i] * correction) + EPSILON)
        return values, firsts, seconds

    def program(values: Any, firsts: Any, seconds: Any, gradients: Any, step: Any) -> Any:
        scale, correction = float(LEARNING_RATE / (1.0 - BETA1 ** step)), float(1.0 / (1.0 - BETA2 ** step))
        results: tuple[dict[str, Any], ...] = {}, {}, {}
        for name, value in values.items():
            new = update(value, firsts[name], seconds[name], gradients[name], scale, correction)
            for result, array in zip(results, new, strict=True):
                result[name] = array
        return results
    return program


# --- all of them -----------------------------------------------------------------------------------------------------

TASKS = {task.title: task for task in (
    LargeTask(
        "15 cheap operators", CHEAP, lambda size: tuple(uniform(seed, -1, 1, size) for seed in range(3)),
        expression, expression_in_loops, expression_in_numexpr,
    ),
    LargeTask(
        "a step of the heat equation", CHEAP, lambda size: (uniform(0, -1, 1, math.isqrt(size), math.isqrt(size)),),
        stencil, stencil_in_loops, stencil_in_numexpr,
    ),
    LargeTask("Adam on 50 arrays", CHEAP, parameters, adam, adam_in_loops, adam_in_numexpr),
    LargeTask(
        "Black-Scholes with greeks", OTHERS,
        lambda size: (uniform(0, 50, 150, size), uniform(1, 50, 150, size), uniform(2, 0.1, 2, size)),
        black_scholes, black_scholes_in_loops, black_scholes_in_numexpr,
    ),
    LargeTask(
        "cross-entropy with gradient, 100 classes", OTHERS, classification, cross_entropy, cross_entropy_in_loops,
        None, cross_entropy_by_hand,
    ),
)}
