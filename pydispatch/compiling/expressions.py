"""Expressions in numba's source for one element of a loop, by ufunc, cast or choice, and by dtype.

Every value has the dtype that NumPy gives it. `f8(...)` and the other scalar types of NumPy cut off results that numba
computes in a wider dtype. The functions in the expressions are those of `numba_functions`.
"""

# tests: tests/compiling/test_numba.py
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch.compiling.steps import LoopStep
from pydispatch.compiling.values import Value

FLOATS: dict[str, str] = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "divide": "{0} / {1}",
    "negative": "-{0}", "positive": "{0}", "absolute": "abs({0})", "fabs": "abs({0})", "square": "{0} * {0}",
    "conjugate": "{0}", "reciprocal": "{T}(1.0) / {0}", "sqrt": "sqrt({0})",
    "exp": "exp({0})", "expm1": "expm1({0})", "exp2": "np.exp2({0})", "log": "log({0})", "log2": "np.log2({0})",
    "log10": "log10({0})", "log1p": "log1p({0})", "sin": "sin({0})", "cos": "cos({0})", "tan": "tan({0})",
    "arcsin": "asin({0})", "arccos": "acos({0})", "arctan": "atan({0})", "sinh": "sinh({0})", "cosh": "cosh({0})",
    "tanh": "tanh({0})", "arcsinh": "asinh({0})", "arccosh": "acosh({0})", "arctanh": "atanh({0})",
    "floor": "np.floor({0})", "ceil": "np.ceil({0})", "trunc": "np.trunc({0})", "rint": "np.rint({0})",
    "sign": "sign({0})", "deg2rad": "{0} * {T}({radian})", "radians": "{0} * {T}({radian})",
    "rad2deg": "{0} * {T}({degree})", "degrees": "{0} * {T}({degree})",
    "power": "{0} ** {1}", "float_power": "{0} ** {1}", "arctan2": "atan2({0}, {1})", "hypot": "hypot({0}, {1})",
    "copysign": "copysign({0}, {1})", "fmod": "np.fmod({0}, {1})", "remainder": "remainder({0}, {1})",
    "floor_divide": "floor_divide({0}, {1})", "logaddexp": "logaddexp({0}, {1})",
    "maximum": "maximum({0}, {1})", "minimum": "minimum({0}, {1})",
    "fmax": "{0} if ({0} >= {1}) | ({1} != {1}) else {1}", "fmin": "{0} if ({0} <= {1}) | ({1} != {1}) else {1}",
    "clip": "clip({0}, {1}, {2})",
    "equal": "{0} == {1}", "not_equal": "{0} != {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}",
    "isnan": "{0} != {0}", "isinf": "abs({0}) == inf", "isfinite": "abs({0}) < inf",
    "signbit": "copysign(1.0, {0}) < 0.0",
    "logical_and": "({0} != 0) & ({1} != 0)", "logical_or": "({0} != 0) | ({1} != 0)",
    "logical_xor": "({0} != 0) != ({1} != 0)", "logical_not": "{0} == 0",
}
INTEGERS: dict[str, str] = {
    name: FLOATS[name] for name in (
        "add", "subtract", "multiply", "positive", "square", "conjugate", "equal", "not_equal", "less", "less_equal",
        "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not")
} | {
    "maximum": "{0} if {0} >= {1} else {1}", "minimum": "{0} if {0} <= {1} else {1}",
    "fmax": "{0} if {0} >= {1} else {1}", "fmin": "{0} if {0} <= {1} else {1}", "clip": "clip({0}, {1}, {2})",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}", "invert": "~{0}",
    "left_shift": "left_shift({0}, {1}, {bits})", "right_shift": "right_shift({0}, {1}, {bits})",
}
SIGNED = INTEGERS | {
    "negative": "-{0}", "absolute": "-{0} if {0} < 0 else {0}", "sign": "1 if {0} > 0 else (-1 if {0} < 0 else 0)",
    "floor_divide": "divide_signed({0}, {1})", "remainder": "remainder_signed({0}, {1})",
    "fmod": "fmod_signed({0}, {1})", "signbit": "{0} < 0",
}
UNSIGNED = INTEGERS | {
    "negative": "{T}(0) - {0}", "absolute": "{0}", "sign": "{T}({0} != 0)",
    "floor_divide": "divide_unsigned({0}, {1})", "remainder": "remainder_unsigned({0}, {1})",
    "fmod": "remainder_unsigned({0}, {1})",
}
BOOLS: dict[str, str] = {
    "logical_and": "{0} & {1}", "multiply": "{0} & {1}", "bitwise_and": "{0} & {1}", "minimum": "{0} & {1}",
    "fmin": "{0} & {1}", "logical_or": "{0} | {1}", "add": "{0} | {1}", "bitwise_or": "{0} | {1}",
    "maximum": "{0} | {1}", "fmax": "{0} | {1}", "logical_xor": "{0} != {1}", "bitwise_xor": "{0} != {1}",
    "not_equal": "{0} != {1}", "equal": "{0} == {1}", "less": "{1} & (not {0})", "less_equal": "{1} | (not {0})",
    "greater": "{0} & (not {1})", "greater_equal": "{0} | (not {1})", "logical_not": "not {0}", "invert": "not {0}",
    "absolute": "{0}",
}
COMPLEX: dict[str, str] = {
    "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "multiply_complex({0}, {1})",
    "divide": "divide_complex({0}, {1})", "negative": "-{0}", "positive": "{0}",
    "conjugate": "complex({0}.real, -{0}.imag)", "square": "multiply_complex({0}, {0})",
    "absolute": "hypot({0}.real, {0}.imag)",
    "equal": "({0}.real == {1}.real) & ({0}.imag == {1}.imag)",
    "not_equal": "({0}.real != {1}.real) | ({0}.imag != {1}.imag)",
}
BY_KIND = {"f": FLOATS, "i": SIGNED, "u": UNSIGNED, "b": BOOLS, "c": COMPLEX}


WITH_NUMBER = {"maximum": "{1} if {1} > {0} else {0}", "minimum": "{1} if {1} < {0} else {0}"}
"""Expressions of one instruction for a second operand that is known and not NaN."""


def _is_number(value: Value) -> bool:
    return value.constant is not None and not bool(np.isnan(value.constant).any())


def scalar_type(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in the sources."""
    return f"{dtype.kind}{dtype.itemsize}"


def template(step: LoopStep) -> str | None:
    """Return the expression of a step for one element, with `{0}` and so on for the operands, or None."""
    kind, *what = step.loop
    dtypes = [value.dtype for value in step.operands]
    if kind == "copy":
        return "{0}"
    if kind == "choose":
        return "{1} if {0} else {2}"
    if kind == "cast":
        return _cast(dtypes[0], dtypes[1])
    if kind != "ufunc" or len(set(dtypes[:-1])) != 1:
        return None
    given, found = dtypes[0], dtypes[-1]
    name = what[0].__name__
    text = BY_KIND[given.kind].get(name)
    if given.kind == "f" and name in WITH_NUMBER and _is_number(step.operands[1]):
        text = WITH_NUMBER[name]
    if text is None:
        return None
    text = text.replace("{bits}", str(8 * given.itemsize)).replace("{T}", scalar_type(found))
    text = text.replace("{radian}", repr(math.pi / 180)).replace("{degree}", repr(180 / math.pi))
    return typed(text, found)


def _cast(given: np.dtype[Any], found: np.dtype[Any]) -> str | None:
    if found.kind == "b":
        return "({0}.real != 0) | ({0}.imag != 0)" if given.kind == "c" else "{0} != 0"
    if given.kind == "f" and found.kind in "iu" and (found.kind == "u" or found.itemsize < 4):
        return None         # compilers differ for values out of range
    if found.kind == "c" and given.kind != "c":
        part = "f4" if found.itemsize == 8 else "f8"
        return f"{scalar_type(found)}(complex({part}({{0}}), {part}(0.0)))"
    return f"{scalar_type(found)}({{0}})"


def typed(text: str, dtype: np.dtype[Any]) -> str:
    """Convert an expression to this dtype."""
    return text if dtype.kind == "b" else f"{scalar_type(dtype)}({text})"


def literal(number: Any) -> str:
    """Return the source of an element of an array."""
    dtype = number.dtype
    if dtype.kind == "b":
        return str(bool(number))
    if dtype.kind == "c":
        return f"{scalar_type(dtype)}(complex({_real(number.real)}, {_real(number.imag)}))"
    if dtype.kind == "f":
        return typed(_real(number), dtype)
    return typed(str(int(number)), dtype)


def _real(number: Any) -> str:
    text = repr(float(number))
    return f"({text})" if text.startswith("-") else text        # nan and inf are names


def is_sum(step: LoopStep) -> bool:
    """Return whether the step is a floating-point sum, whose order changes the last bits."""
    return step.loop[0] == "ufunc" and step.loop[1] is np.add and step.operands[0].dtype.kind == "f"


def product_of(step: LoopStep) -> Sequence[int] | None:
    """Return (rows, inner, columns) if the step multiplies matrices of floats, else None."""
    if step.loop[0] != "ufunc" or step.loop[1] is not np.matmul or step.operands[0].dtype.kind != "f":
        return None
    return step.core_sizes
