"""The functions that are operators, but for universal functions, and the calls that the operator takes as they are."""

from __future__ import annotations

from pydispatch.numpy.declare import declare_operator

REDUCTION = ("axis", "keepdims")
DIFFERENTIABLE = {
    "sum": (1, 3, REDUCTION), "prod": (1, 3, REDUCTION), "mean": (1, 3, REDUCTION),
    "var": (1, 3, (*REDUCTION, "ddof")), "std": (1, 3, (*REDUCTION, "ddof")), "max": (1, 2, REDUCTION),
    "min": (1, 2, REDUCTION), "cumsum": (1, 3, ("axis",)), "cumprod": (1, 3, ("axis",)), "sort": (1, 2, ("axis",)),
    "clip": (1, 3, ()), "round": (1, 2, ("decimals",)), "transpose": (1, 2, ("axes",)), "swapaxes": (1, 3, ()),
    "moveaxis": (1, 3, ()), "expand_dims": (1, 2, ("axis",)), "squeeze": (1, 2, ("axis",)), "broadcast_to": (1, 2, ()),
    "flip": (1, 2, ("axis",)), "tile": (1, 2, ()), "roll": (1, 3, ("axis",)), "take": (2, 3, ("axis", "mode")),
    "take_along_axis": (2, 3, ("axis",)), "real": (1, 1, ()), "imag": (1, 1, ()),
}
"""How many leading arguments are arrays, how many the operator takes by position, and which by keyword."""
CONSTANT = {
    "all": (1, 2, REDUCTION), "any": (1, 2, REDUCTION), "argmax": (1, 2, REDUCTION), "argmin": (1, 2, REDUCTION),
    "argsort": (1, 2, ("axis",)),
}

for names, is_constant in ((DIFFERENTIABLE, False), (CONSTANT, True)):
    for name, (n_arrays, n_positional, keywords) in names.items():
        declare_operator(name, n_arrays, n_positional, keywords, constant=is_constant)
