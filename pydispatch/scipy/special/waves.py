"""Mathieu and parabolic cylinder functions (DLMF 28, 12).

SciPy returns each together with its slope. The derivative of the slope follows from the differential equation.
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

# --- Mathieu functions (28.2.1, 28.20.1), of angles in degrees unless they are modified ------------------------------

for _name in ("mathieu_a", "mathieu_b"):
    helper(f"{_name}_value", "Tensor m, Tensor q", getattr(special, _name), differentiable=False)


def mathieu(name: str, value: str) -> None:
    """Declare a Mathieu function. The operator `value` gives its characteristic number."""
    modified = "mod" in name
    characteristic, = SCIPY.operators(f"special_{value}_value")

    def slopes(m: Any, q: Any, x: Any, result: Any) -> tuple[Any, Any]:
        y, slope = result
        if modified:
            return slope, (characteristic(m, q) - 2 * q * cosh(2 * x)) * y
        return slope * DEGREE, (2 * q * cos(x * (2 * DEGREE)) - characteristic(m, q)) * y * DEGREE

    several(name, "Tensor m, Tensor q, Tensor x", 2, (
        ORDER, PARAMETER,
        lambda g, m, q, x, result, x_shape: transposed(g, slopes(m, q, x, result), x_shape)), (
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
        ORDER, lambda g, v, x, result, x_shape: transposed(g, cylinder_slopes(v, x, result), x_shape)), (
        None, lambda t, v, x, result: scaled(t, cylinder_slopes(v, x, result))))
several("pbwa", "Tensor a, Tensor x", 2, (
    PARAMETER, lambda g, a, x, result, x_shape: transposed(g, other_cylinder_slopes(a, x, result), x_shape)), (
    None, lambda t, a, x, result: scaled(t, other_cylinder_slopes(a, x, result))))
