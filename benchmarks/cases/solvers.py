"""Compiled solvers, over SciPy's with functions written by hand in NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import integrate, optimize

import pydispatch
from benchmarks.cases.transforms import SameValues
from pydispatch import func
from pydispatch.ops import ops
from pydispatch.scipy.integrate import odeint, quad
from pydispatch.scipy.optimize import minimize, root

SOLVERS = "Solvers, compiled, over SciPy's by hand"
FINE: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
TIMES = np.linspace(0.0, 2.0, 11)
START = np.array([1.0, 0.5])
RATES = np.array([1.1, 0.4, 0.1, 0.4])


# --- Lotka and Volterra's equations ----------------------------------------------------------------------------------


def populations(rates: Any) -> Any:
    """Return the numbers of prey and predators at all times."""
    def slope(y: Any, t: Any) -> Any:
        return ops.np.stack((rates[0] * y[0] - rates[1] * y[0] * y[1], rates[2] * y[0] * y[1] - rates[3] * y[1]))

    return odeint(slope, START, TIMES, **FINE)


def slope_by_hand(y: Any, rates: Any) -> Any:
    """Return the slope, in NumPy."""
    return np.array([rates[0] * y[0] - rates[1] * y[0] * y[1], rates[2] * y[0] * y[1] - rates[3] * y[1]])


def populations_by_hand(rates: Any) -> Any:
    """Return the same numbers, by SciPy's steps of Dormand and Prince."""
    return integrate.solve_ivp(lambda t, y: slope_by_hand(y, rates), TIMES[[0, -1]], START, t_eval=TIMES, **FINE).y.T


def gradient_by_hand(rates: Any) -> Any:
    """Return the gradient of the sum of squares, by the adjoint equation between each two times."""
    def back(t: float, values: Any) -> Any:
        (x, y), (a, b) = values[:2], values[2:4]
        of_state = [a * (rates[0] - rates[1] * y) + b * rates[2] * y, -a * rates[1] * x + b * (rates[2] * x - rates[3])]
        of_rates = [a * x, -a * x * y, b * x * y, -b * y]
        return np.concatenate((slope_by_hand((x, y), rates), np.negative(of_state), np.negative(of_rates)))

    states = populations_by_hand(rates)
    sent, total = np.zeros(2), np.zeros(4)
    for i in range(len(TIMES) - 1, 0, -1):
        start = np.concatenate((states[i], sent + 2 * states[i], total))
        end = integrate.solve_ivp(back, TIMES[[i, i - 1]], start, **FINE).y[:, -1]
        sent, total = end[2:4], end[4:]
    return total


# --- an integral -----------------------------------------------------------------------------------------------------


def integral(s: Any) -> Any:
    """Integrate a wave that decays."""
    return quad(lambda x: ops.np.exp(-s * x * x) * ops.np.cos(x), 0.0, 5.0)[0]


def integral_by_hand(s: Any) -> Any:
    """Return the same integral, by SciPy's function."""
    return integrate.quad(lambda x: np.exp(-s * x * x) * np.cos(x), 0.0, 5.0)[0]


# --- roots and minima ------------------------------------------------------------------------------------------------

START_OF_VALLEY = np.array([-1.2, 1.0, 0.5, 0.3])


def anomaly(e: Any) -> Any:
    """Solve Kepler's equation."""
    return root(lambda u: u - e * ops.np.sin(u) - 1.0, 1.0).x


def anomaly_by_hand(e: Any) -> Any:
    """Solve it by SciPy's function."""
    return optimize.root(lambda u: u - e * np.sin(u) - 1.0, 1.0, jac=lambda u: np.diag(1.0 - e * np.cos(u))).x[0]


def slope_of_anomaly_by_hand(e: Any) -> Any:
    """Return the derivative by the eccentricity."""
    u = anomaly_by_hand(e)
    return np.sin(u) / (1.0 - e * np.cos(u))


def lowest(a: Any) -> Any:
    """Return the minimum of Rosenbrock's function."""
    return minimize(lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (a - x[:-1]) ** 2).sum(), START_OF_VALLEY,
                    tol=1e-8).x


def lowest_by_hand(a: Any) -> Any:
    """Return it by SciPy's function."""
    def value_and_gradient(x: Any) -> Any:
        bend, rest = x[1:] - x[:-1] ** 2, a - x[:-1]
        gradient = np.zeros(len(x))
        gradient[1:] += 200 * bend
        gradient[:-1] -= 400 * bend * x[:-1] + 2 * rest
        return (100 * bend ** 2 + rest ** 2).sum(), gradient

    return optimize.minimize(value_and_gradient, START_OF_VALLEY, jac=True, tol=1e-8).x


def total_populations(rates: Any) -> Any:
    return (populations(rates) ** 2).sum()


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, float]] = {
    "odeint": (populations, populations_by_hand, RATES, 0.05),
    "odeint, gradient": (func.grad(total_populations), gradient_by_hand, RATES, 0.05),
    "quad": (integral, integral_by_hand, np.array(0.7), 4.0),
    "root": (anomaly, anomaly_by_hand, np.array(0.3), 0.5),
    "root, gradient": (func.grad(anomaly), slope_of_anomaly_by_hand, np.array(0.3), 0.5),
    "minimize": (lowest, lowest_by_hand, np.array(1.1), 0.05),
}


def solver_cases() -> Iterator[SameValues]:
    """Yield each solver."""
    for name, (program, by_hand, argument, bound) in PROGRAMS.items():
        yield SameValues(
            SOLVERS, name, bound, "ours()", "by_hand()", {},
            make_call=functools.partial(functools.partial, pydispatch.compile(program), argument),
            make_over=functools.partial(functools.partial, by_hand, argument))
