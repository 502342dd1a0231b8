"""Mathieu, parabolic cylinder and spheroidal wave functions (DLMF 28, 12, 30).

SciPy returns each together with its slope, and the slope of that follows from the differential equation.
"""

from __future__ import annotations

import math
from typing import Any

from scipy import special

from pydispatch.operators.declare import operators
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.special.declare import ORDER, PARAMETER, helper, scaled, several, transposed

cos, cosh = operators("cos", "cosh")
DEGREE = math.pi / 180

# --- Mathieu functions (28.2.1, 28.20.1), by angles in degrees if they are not modified ------------------------------

for _name in ("mathieu_a", "mathieu_b", "pro_cv", "obl_cv"):
    helper(f"{_name}_value", "Tensor m, Tensor q" if _name < "n" else "Tensor m, Tensor n, Tensor c",
           getattr(special, _name), differentiable=False)


def mathieu(name: str, value: str) -> None:
    """Declare a Mathieu function; the operator `value` gives its characteristic number."""
    modified = "mod" in name
    characteristic, = SCIPY.operators(f"special_{value}_value")

    def slopes(m: Any, q: Any, x: Any, result: Any) -> tuple[Any, Any]:
        y, slope = result
        if modified:
            return slope, (characteristic(m, q) - 2 * q * cosh(2 * x)) * y
        return slope * DEGREE, (2 * q * cos(x * (2 * DEGREE)) - characteristic(m, q)) * y * DEGREE

    several(name, "Tensor m, Tensor q, Tensor x", 2, (
        ORDER, PARAMETER, lambda g, m, q, x, result: transposed(g, slopes(m, q, x, result))), (
        None, None, lambda t, m, q, x, result: scaled(t, slopes(m, q, x, result))))


for _name in ("mathieu_cem", "mathieu_modcem1", "mathieu_modcem2"):
    mathieu(_name, "mathieu_a")
for _name in ("mathieu_sem", "mathieu_modsem1", "mathieu_modsem2"):
    mathieu(_name, "mathieu_b")

# --- parabolic cylinder functions (12.2.4, 12.14.1) ------------------------------------------------------------------


def cylinder_slopes(v: Any, x: Any, result: Any) -> tuple[Any, Any]:
    y, slope = result
    return slope, (x * x / 4 - v - 0.5) * y


def other_cylinder_slopes(a: Any, x: Any, result: Any) -> tuple[Any, Any]:
    y, slope = result
    return slope, (a - x * x / 4) * y


for _name in ("pbdv", "pbvv"):
    several(_name, "Tensor v, Tensor x", 2, (
        ORDER, lambda g, v, x, result: transposed(g, cylinder_slopes(v, x, result))), (
        None, lambda t, v, x, result: scaled(t, cylinder_slopes(v, x, result))))
several("pbwa", "Tensor a, Tensor x", 2, (
    PARAMETER, lambda g, a, x, result: transposed(g, other_cylinder_slopes(a, x, result))), (
    None, lambda t, a, x, result: scaled(t, other_cylinder_slopes(a, x, result))))

# --- spheroidal wave functions (30.2.1) ------------------------------------------------------------------------------
#
# (e x**2 - 1) e y'' + 2 x y' = (cv - e s c**2 x**2 + m**2 / (e x**2 - 1)) y, where s is -1 for oblate ones, and e is -1
# for the radial ones among these: their variable is imaginary.


def spheroidal(name: str, value: str) -> None:
    """Declare a spheroidal wave function, and the one that takes its characteristic number."""
    s = -1 if name.startswith("obl") else 1
    e = -1 if name.startswith("obl_rad") else 1
    characteristic, = SCIPY.operators(f"special_{value}_value")

    def slopes(m: Any, c: Any, cv: Any, x: Any, result: Any) -> tuple[Any, Any]:
        y, slope = result
        edge = e * x * x - 1
        return slope, e * ((cv - e * s * c * c * x * x + m * m / edge) * y - 2 * x * slope) / edge

    several(name, "Tensor m, Tensor n, Tensor c, Tensor x", 2, (
        ORDER, ORDER, PARAMETER,
        lambda g, m, n, c, x, result: transposed(g, slopes(m, c, characteristic(m, n, c), x, result))), (
        None, None, None, lambda t, m, n, c, x, result: scaled(t, slopes(m, c, characteristic(m, n, c), x, result))))
    several(f"{name}_cv", "Tensor m, Tensor n, Tensor c, Tensor cv, Tensor x", 2, (
        ORDER, ORDER, PARAMETER, PARAMETER,
        lambda g, m, c, cv, x, result: transposed(g, slopes(m, c, cv, x, result))), (
        None, None, None, None, lambda t, m, c, cv, x, result: scaled(t, slopes(m, c, cv, x, result))))


for _name in ("ang1", "rad1", "rad2"):
    spheroidal(f"pro_{_name}", "pro_cv")
    spheroidal(f"obl_{_name}", "obl_cv")
