"""Compiled solvers, over SciPy's with functions written by hand in NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import integrate

import pydispatch
from benchmarks.cases.transforms import SameValues
from pydispatch import func
from pydispatch.ops import ops
from pydispatch.scipy.integrate import odeint, quad

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


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, float]] = {
    "odeint": (populations, populations_by_hand, RATES, 0.05),
    "odeint, gradient": (func.grad(lambda rates: (populations(rates) ** 2).sum()), gradient_by_hand, RATES, 0.05),
    "quad": (integral, integral_by_hand, np.array(0.7), 4.0),
}


def solver_cases() -> Iterator[SameValues]:
    """Yield each solver."""
    for name, (program, by_hand, argument, bound) in PROGRAMS.items():
        yield SameValues(
            SOLVERS, name, bound, "ours()", "by_hand()", {},
            make_call=functools.partial(functools.partial, pydispatch.compile(program), argument),
            make_over=functools.partial(functools.partial, by_hand, argument))
