"""Elliptic integrals and functions (DLMF 19, 22), and the arithmetic-geometric mean.

Their derivatives are integrals of the same kind: Carlson's symmetric ones. The derivatives of these are integrals over
t from 0 to infinity. For integers a, b, c and d, the integrand is
`t**k (t + x)**(-a / 2) (t + y)**(-b / 2) (t + z)**(-c / 2) (t + p)**(-d / 2)`.
All further derivatives are of this kind too. The operator `carlson` computes the integrals by the trapezoidal rule in
log(t), which converges exponentially, as the integrand is analytic.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import check_real, helper, in_double, pointwise, scaled, several, transposed

cos, rint, sin, sqrt, where = operators("cos", "rint", "sin", "sqrt", "where")
carlson, ellipe, ellipk, ellipkm1, elliprd = SCIPY.operators(
    "special_carlson", "special_ellipe", "special_ellipk", "special_ellipkm1", "special_elliprd")

# --- symmetric integrals (19.16, 19.18) ------------------------------------------------------------------------------

STEP, REACH = 0.4, 80.0
BLOCK = 64


def carlson_kernel(x: Any, y: Any, z: Any, p: Any, k: int = 0, a: int = 1, b: int = 1, c: int = 1, d: int = 0) -> Any:
    """Return a symmetric elliptic integral (DLMF 19.16), or a derivative of one. Numbers choose its integrand."""
    arrays = np.broadcast_arrays(x, y, z, p)
    shape = arrays[0].shape
    flat = np.stack([array.ravel() for array in arrays])
    used = np.array([a, b, c, d]) > 0
    result = np.empty(flat.shape[1])
    for start in range(0, flat.shape[1], BLOCK):
        result[start:start + BLOCK] = trapezoids(flat[:, start:start + BLOCK], used, k, (a, b, c, d))
    return result.reshape(shape)


def trapezoids(values: np.ndarray, used: np.ndarray, k: int, powers: tuple[int, ...]) -> np.ndarray:
    """Return the integrals for the columns of `values`: nan where one is negative, and inf where they diverge at 0."""
    there = values[used]
    positive = np.where(there > 0, there, np.nan)
    largest, least = np.nanmax(positive, 0), np.nanmin(positive, 0)
    n = int(np.nanmax(np.log(largest / least), initial=0) / STEP + 2 * REACH / STEP) + 1
    t = least * np.exp(STEP * np.arange(n)[:, None] - REACH)
    terms = t ** (k + 1)
    for value, power in zip(values, powers, strict=True):
        if power:
            terms = terms * (t + value) ** (-power / 2)
    total = STEP * terms.sum(0)
    order = sum(power * (value == 0) for value, power in zip(values, powers, strict=True))
    total = np.where(order >= 2 * (k + 1), np.inf, total)
    return np.where((there < 0).any(0), np.nan, total)


def carlson_vjp(i: int) -> Any:
    """Return the formula for the i-th argument, which raises the power of that argument."""
    def raised(g: Any, values: tuple[Any, ...], k: int, powers: tuple[int, ...]) -> Any:
        power = powers[i]
        if not power:
            return g * 0.0
        return g * (carlson(*values, k, *powers[:i], power + 2, *powers[i + 1:]) * (-power / 2))
    return lambda g, x, y, z, p, k, a, b, c, d: raised(g, (x, y, z, p), k, (a, b, c, d))


helper("carlson", "Tensor x, Tensor y, Tensor z, Tensor p, int k=0, int a=1, int b=1, int c=1, int d=0",
       in_double(carlson_kernel), vjp=tuple([carlson_vjp(i) for i in range(4)]))


def integral(factor: float, *values: Any, powers: tuple[int, ...], k: int = 0) -> Any:
    """Return `factor` times the integral. It can have fewer than four arguments."""
    check_real("elliprf", *values)
    values = (*values, *[1.0] * (4 - len(values)))
    return carlson(*values, k, *powers, *[0] * (4 - len(powers))) * factor


pointwise("elliprc", "Tensor x, Tensor y", (
    lambda g, x, y: g * integral(-0.25, x, y, powers=(3, 2)),
    lambda g, x, y: g * integral(-0.5, x, y, powers=(1, 4))), instead=2.0)
pointwise("elliprf", "Tensor x, Tensor y, Tensor z", (
    lambda g, x, y, z: g * (elliprd(y, z, x) * (-1 / 6)), lambda g, x, y, z: g * (elliprd(x, z, y) * (-1 / 6)),
    lambda g, x, y, z: g * (elliprd(x, y, z) * (-1 / 6))))
pointwise("elliprd", "Tensor x, Tensor y, Tensor z", (
    lambda g, x, y, z: g * integral(-0.75, x, y, z, powers=(3, 1, 3)),
    lambda g, x, y, z: g * integral(-0.75, x, y, z, powers=(1, 3, 3)),
    lambda g, x, y, z: g * integral(-2.25, x, y, z, powers=(1, 1, 5))))
pointwise("elliprg", "Tensor x, Tensor y, Tensor z", (
    lambda g, x, y, z: g * integral(0.125, x, y, z, powers=(3, 1, 1), k=1),
    lambda g, x, y, z: g * integral(0.125, x, y, z, powers=(1, 3, 1), k=1),
    lambda g, x, y, z: g * integral(0.125, x, y, z, powers=(1, 1, 3), k=1)))
pointwise("elliprj", "Tensor x, Tensor y, Tensor z, Tensor p", (
    lambda g, x, y, z, p: g * integral(-0.75, x, y, z, p, powers=(3, 1, 1, 2)),
    lambda g, x, y, z, p: g * integral(-0.75, x, y, z, p, powers=(1, 3, 1, 2)),
    lambda g, x, y, z, p: g * integral(-0.75, x, y, z, p, powers=(1, 1, 3, 2)),
    lambda g, x, y, z, p: g * integral(-1.5, x, y, z, p, powers=(1, 1, 1, 4))))

# --- Legendre's integrals (19.4, 19.25) ------------------------------------------------------------------------------


def part_of_first(whole: Any, p: Any) -> Any:
    """Return (E - p K) / (1 - p) from K, as a difference of two positive integrals that never cancels (19.25.1)."""
    return whole - elliprd(0.0, p, 1.0) / 3


def ellipk_slope(m: Any, whole: Any) -> Any:
    return part_of_first(whole, 1 - m) / (2 * (1 - m))


def ellipe_slope(m: Any) -> Any:
    return elliprd(0.0, 1 - m, 1.0) * (-1 / 6)


class Amplitude:
    """An amplitude as half periods, which add complete integrals, and a rest between -pi/2 and pi/2."""

    def __init__(self, phi: Any, m: Any):
        self.m = m
        self.half_periods = rint(phi / math.pi)
        rest = phi - self.half_periods * math.pi
        self.sine, cosine = sin(rest), cos(rest)
        self.cosine_squared = cosine * cosine
        self.cube = self.sine * self.sine * self.sine
        self.delta = 1 - m * self.sine * self.sine

    def with_half_periods(self, rest: Any, of_whole: Any) -> Any:
        """Add the complete integrals to `rest`. They may be infinite if there are no half periods."""
        alone = self.half_periods == 0
        return rest + where(alone, 0.0, 2 * self.half_periods * where(alone, 0.0, of_whole))

    def first_slope(self) -> Any:
        """Return the derivative of the first integral in m (19.25.5, 19.18.1)."""
        rest = self.cube * elliprd(self.cosine_squared, 1.0, self.delta) * (1 / 6)
        return self.with_half_periods(rest, ellipk_slope(self.m, ellipk(self.m)))

    def second_slope(self) -> Any:
        """Return the derivative of the second integral in m (19.25.9)."""
        rest = self.cube * elliprd(self.cosine_squared, self.delta, 1.0) * (-1 / 6)
        return self.with_half_periods(rest, ellipe_slope(self.m))


def root(phi: Any, m: Any) -> Any:
    sine = sin(phi)
    return sqrt(1 - m * sine * sine)


pointwise("ellipk", "Tensor m", lambda g, m, result: g * ellipk_slope(m, result), instead=0.5)
pointwise("ellipkm1", "Tensor p", lambda g, p, result: g * (part_of_first(result, p) / (-2 * p)), instead=0.5)
pointwise("ellipe", "Tensor m", lambda g, m: g * ellipe_slope(m), instead=0.5)
pointwise("ellipkinc", "Tensor phi, Tensor m", (
    lambda g, phi, m: g / root(phi, m), lambda g, phi, m: g * Amplitude(phi, m).first_slope()), instead=0.5)
pointwise("ellipeinc", "Tensor phi, Tensor m", (
    lambda g, phi, m: g * root(phi, m), lambda g, phi, m: g * Amplitude(phi, m).second_slope()), instead=0.5)

# --- Jacobian functions (22.13), and the arithmetic-geometric mean (19.8.5) ------------------------------------------


def ellipj_slopes_in_u(m: Any, result: Any) -> tuple[Any, ...]:
    sn, cn, dn, _ = result
    return cn * dn, -sn * dn, -m * sn * cn, dn


def ellipj_slopes_in_m(m: Any, result: Any) -> tuple[Any, ...]:
    """Return the slopes in m, along which the amplitude moves so that the first integral does not change."""
    sn, cn, dn, phi = result
    moved = -dn * Amplitude(phi, m).first_slope()
    return cn * moved, -sn * moved, -(sn * sn + 2 * m * sn * cn * moved) / (2 * dn), moved


def agm_slope(a: Any, b: Any, result: Any) -> Any:
    """Return the slope in b. The mean is pi a / (2 K(1 - b**2 / a**2))."""
    ratio = b / a
    whole = ellipkm1(ratio * ratio)
    return part_of_first(whole, ratio * ratio) / (whole * ratio) * (result / a)


several("ellipj", "Tensor u, Tensor m", 4, (
    lambda g, m, result, u_shape: transposed(g, ellipj_slopes_in_u(m, result), u_shape),
    lambda g, m, result, m_shape: transposed(g, ellipj_slopes_in_m(m, result), m_shape)), (
    lambda t, m, result: scaled(t, ellipj_slopes_in_u(m, result)),
    lambda t, m, result: scaled(t, ellipj_slopes_in_m(m, result))))
pointwise("agm", "Tensor a, Tensor b", (
    lambda g, a, b, result: g * agm_slope(b, a, result), lambda g, a, b, result: g * agm_slope(a, b, result)))
