"""Bessel functions of all kinds, Airy, Kelvin and Struve functions (DLMF 9, 10, 11), and their integrals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch.operators.declare import operators
from pydispatch.ops import ops
from pydispatch.scipy.pack import FACE, SCIPY
from pydispatch.scipy.special.declare import ORDER, PARAMETER, alias, check_real, pointwise, scaled, several, transposed

maximum, sign, sqrt, trunc, where = operators("maximum", "sign", "sqrt", "trunc", "where")
(i0, i0e, i1, i1e, iv, ive, j0, j1, jv, jve, k0, k0e, k1, k1e, kn, kv, kve, y0, y1, yn, yv, yve, modstruve, rgamma,
 struve) = SCIPY.operators(*[f"special_{name}" for name in (
     "i0", "i0e", "i1", "i1e", "iv", "ive", "j0", "j1", "jv", "jve", "k0", "k0e", "k1", "k1e", "kn", "kv", "kve", "y0",
     "y1", "yn", "yv", "yve", "modstruve", "rgamma", "struve")])
bei, beip, ber, berp, besselpoly, hankel1, hankel1e, hankel2, hankel2e, kei, keip, ker, kerp = SCIPY.operators(
    *[f"special_{name}" for name in (
        "bei", "beip", "ber", "berp", "besselpoly", "hankel1", "hankel1e", "hankel2", "hankel2e", "kei", "keip", "ker",
        "kerp")])
airy, = SCIPY.operators("special_airy")

# --- of order 0 and 1 (10.6.2, 10.6.3, 10.29.2, 10.29.3) -------------------------------------------------------------

pointwise("j0", "Tensor x", lambda g, x: -g * j1(x))
pointwise("j1", "Tensor x", lambda g, x: g * ((j0(x) - jv(2, x)) * 0.5))
pointwise("y0", "Tensor x", lambda g, x: -g * y1(x))
pointwise("y1", "Tensor x", lambda g, x: g * ((y0(x) - yn(2, x)) * 0.5))
pointwise("i0", "Tensor x", lambda g, x: g * i1(x))
pointwise("i1", "Tensor x", lambda g, x: g * ((i0(x) + iv(2, x)) * 0.5))
pointwise("k0", "Tensor x", lambda g, x: -g * k1(x))
pointwise("k1", "Tensor x", lambda g, x, result: -g * (k0(x) + result / x))
pointwise("i0e", "Tensor x", lambda g, x, result: g * (i1e(x) - sign(x) * result))
pointwise("i1e", "Tensor x", lambda g, x, result: g * ((i0e(x) + ive(2, x)) * 0.5 - sign(x) * result))
pointwise("k0e", "Tensor x", lambda g, x, result: g * (result - k1e(x)))
pointwise("k1e", "Tensor x", lambda g, x, result: g * (result - (k0e(x) + kve(2, x)) * 0.5))

# --- of any order (10.6.1, 10.29.1) ----------------------------------------------------------------------------------

OF_ORDER = "Tensor v, Tensor z"


def yn_slope(n: Any, x: Any) -> Any:
    """Return the derivative of yn for an integer order. SciPy truncates the order to an integer."""
    return (yn(n - 1, x) - yn(n + 1, x)) * 0.5


def kn_slope(n: Any, x: Any) -> Any:
    """Return the derivative of kn for an integer order. SciPy truncates the order to an integer."""
    return (kn(n - 1, x) + kn(n + 1, x)) * -0.5


pointwise("jv", OF_ORDER, (ORDER, lambda g, v, z: g * ((jv(v - 1, z) - jv(v + 1, z)) * 0.5)))
alias("jn", "jv")
pointwise("yv", OF_ORDER, (ORDER, lambda g, v, z: g * ((yv(v - 1, z) - yv(v + 1, z)) * 0.5)))
pointwise("yn", "Tensor n, Tensor x", (ORDER, lambda g, n, x: g * yn_slope(trunc(n), x)))
pointwise("iv", OF_ORDER, (ORDER, lambda g, v, z: g * ((iv(v - 1, z) + iv(v + 1, z)) * 0.5)))
pointwise("kv", OF_ORDER, (ORDER, lambda g, v, z: g * ((kv(v - 1, z) + kv(v + 1, z)) * -0.5)))
pointwise("kn", "Tensor n, Tensor x", (ORDER, lambda g, n, x: g * kn_slope(trunc(n), x)))
pointwise("jve", OF_ORDER, (
    ORDER, lambda g, v, z: g * ((jve(v - 1, check_real("jve", z)) - jve(v + 1, z)) * 0.5)))
pointwise("yve", OF_ORDER, (
    ORDER, lambda g, v, z: g * ((yve(v - 1, check_real("yve", z)) - yve(v + 1, z)) * 0.5)))
pointwise("ive", OF_ORDER, (ORDER, lambda g, v, z, result: g * (
    (ive(v - 1, check_real("ive", z)) + ive(v + 1, z)) * 0.5 - sign(z) * result)))
pointwise("kve", OF_ORDER, (ORDER, lambda g, v, z, result: g * (result - (kve(v - 1, z) + kve(v + 1, z)) * 0.5)))
pointwise("hankel1", OF_ORDER, (ORDER, lambda g, v, z: g * ((hankel1(v - 1, z) - hankel1(v + 1, z)) * 0.5)))
pointwise("hankel2", OF_ORDER, (ORDER, lambda g, v, z: g * ((hankel2(v - 1, z) - hankel2(v + 1, z)) * 0.5)))
pointwise("hankel1e", OF_ORDER, (ORDER, lambda g, v, z, result: g * (
    (hankel1e(v - 1, z) - hankel1e(v + 1, z)) * 0.5 - 1j * result)))
pointwise("hankel2e", OF_ORDER, (ORDER, lambda g, v, z, result: g * (
    (hankel2e(v - 1, z) - hankel2e(v + 1, z)) * 0.5 + 1j * result)))
pointwise("besselpoly", "Tensor a, Tensor lmb, Tensor nu", (
    lambda g, a, lmb, nu: g * (besselpoly(a, lmb + 1, nu - 1) - besselpoly(a, lmb + 1, nu + 1)), PARAMETER, ORDER))

# --- derivatives of given order, by the same recurrences -------------------------------------------------------------


def derivative_of(name: str, of: str, phase: int) -> None:
    """Declare the n-th derivative of a Bessel function: differences of neighbours with binomial coefficients."""
    def derivative(v: Any, z: Any, n: int = 1) -> Any:
        if not isinstance(n, (int, np.integer)) or n < 0:
            raise ValueError(f"{name}: n is {n!r}, expected a non-negative integer")
        function = getattr(ops.scipy, f"special_{of}")
        total = function(ops.np.subtract(v, n), z)
        for k in range(1, n + 1):
            term = function(ops.np.add(v, 2 * k - n), z)
            total = ops.np.add(total, ops.np.multiply(float(phase ** k * math.comb(n, k)), term))
        if of == "kv" and n % 2:
            total = ops.np.negative(total)
        return ops.np.multiply(total, 0.5 ** n)

    derivative.__name__, derivative.__doc__ = name, f"The n-th derivative of {of} in z."
    FACE.array_function("special")(derivative)


for _name, _of, _phase in (("jvp", "jv", -1), ("yvp", "yv", -1), ("ivp", "iv", 1), ("kvp", "kv", 1),
                           ("h1vp", "hankel1", -1), ("h2vp", "hankel2", -1)):
    derivative_of(_name, _of, _phase)

# --- spherical functions (10.51.2, 10.51.5), whose derivatives also combine neighbours -------------------------------


def spherical(name: str, below: float, above: float) -> None:
    """Declare a spherical Bessel function with the slope (below n f(n - 1) + above (n + 1) f(n + 1)) / (2 n + 1)."""
    function, = SCIPY.operators(f"special_{name}")

    def vjp(g: Any, n: Any, z: Any, derivative: bool) -> Any:
        neighbours = function(maximum(n - 1, 0), z, derivative), function(n + 1, z, derivative)
        return g * ((neighbours[0] * (below * n) + neighbours[1] * (above * (n + 1))) / (2 * n + 1))

    pointwise(name, "Tensor n, Tensor z, bool derivative=False", (ORDER, vjp))


spherical("spherical_jn", 1, -1)
spherical("spherical_yn", 1, -1)
spherical("spherical_in", 1, 1)
spherical("spherical_kn", -1, -1)

# --- Airy functions (9.2.1) ------------------------------------------------------------------------------------------


def airy_slopes(z: Any, result: Any) -> tuple[Any, ...]:
    ai, aip, bi, bip = result
    return aip, z * ai, bip, z * bi


def airye_slopes(z: Any, result: Any) -> tuple[Any, ...]:
    """Return the slopes of scaled Airy functions, which for z > 0 have a factor exp(2/3 z**1.5) or its inverse."""
    check_real("airye", z)
    ai, aip, bi, bip = result
    growth = sqrt(where(z > 0, z, 0.0))
    return aip + growth * ai, z * ai + growth * aip, bip - growth * bi, z * bi - growth * bip


def itairy_slopes(x: Any) -> tuple[Any, ...]:
    right, left = airy(x), airy(-x)
    return right[0], right[2], left[0], left[2]


several("airy", "Tensor z", 4, lambda g, z, result: transposed(g, airy_slopes(z, result)),
        lambda t, z, result: scaled(t, airy_slopes(z, result)))
several("airye", "Tensor z", 4, lambda g, z, result: transposed(g, airye_slopes(z, result)),
        lambda t, z, result: scaled(t, airye_slopes(z, result)))
several("itairy", "Tensor x", 4, lambda g, x: transposed(g, itairy_slopes(x)), lambda t, x: scaled(t, itairy_slopes(x)))

# --- Kelvin functions (10.61.3): y'' + y'/x = i y --------------------------------------------------------------------


def over(slope: Any, x: Any, at_zero: float) -> Any:
    """Return slope / x, with its limit at 0."""
    zero = x == 0
    return where(zero, at_zero, slope / where(zero, 1.0, x))


pointwise("ber", "Tensor x", lambda g, x: g * berp(x))
pointwise("bei", "Tensor x", lambda g, x: g * beip(x))
pointwise("berp", "Tensor x", lambda g, x, result: g * (-bei(x) - over(result, x, 0.0)))
pointwise("beip", "Tensor x", lambda g, x, result: g * (ber(x) - over(result, x, 0.5)))
pointwise("ker", "Tensor x", lambda g, x: g * kerp(x))
pointwise("kei", "Tensor x", lambda g, x: g * keip(x))
pointwise("kerp", "Tensor x", lambda g, x, result: g * (-kei(x) - result / x))
pointwise("keip", "Tensor x", lambda g, x, result: g * (ker(x) - result / x))

# --- Struve functions (11.4.27, 11.4.29) -----------------------------------------------------------------------------


def struve_surplus(v: Any, x: Any) -> Any:
    """Return the term that the recurrences of Bessel functions lack."""
    return (x / 2) ** (v * 1.0) * rgamma(v + 1.5) / (2 * math.sqrt(math.pi))


pointwise("struve", "Tensor v, Tensor x", (ORDER, lambda g, v, x: g * (
    (struve(v - 1, x) - struve(v + 1, x)) * 0.5 + struve_surplus(v, x))))
pointwise("modstruve", "Tensor v, Tensor x", (ORDER, lambda g, v, x: g * (
    (modstruve(v - 1, x) + modstruve(v + 1, x)) * 0.5 + struve_surplus(v, x))))

# --- integrals -------------------------------------------------------------------------------------------------------


def integrals(name: str, slopes: Callable[[Any], tuple[Any, Any]]) -> None:
    """Declare a pair of integrals, from 0 or to infinity, by their integrands."""
    several(name, "Tensor x", 2, lambda g, x: transposed(g, slopes(x)), lambda t, x: scaled(t, slopes(x)))


integrals("itj0y0", lambda x: (j0(x), y0(x)))
integrals("iti0k0", lambda x: (i0(x), k0(x)))
integrals("it2j0y0", lambda x: (over(1 - j0(x), x, 0.0), -y0(x) / x))
integrals("it2i0k0", lambda x: (over(i0(x) - 1, x, 0.0), -k0(x) / x))
pointwise("itstruve0", "Tensor x", lambda g, x: g * struve(0, x))
pointwise("itmodstruve0", "Tensor x", lambda g, x: g * modstruve(0, x))
pointwise("it2struve0", "Tensor x", lambda g, x: g * (-struve(0, x) / x))
