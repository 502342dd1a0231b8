"""Expressions in numba's source for one element of a loop, by ufunc, cast or choice, and by dtype.

Every value has the dtype that NumPy gives it. `f8(...)` and the other scalar types of NumPy cut off results that numba
computes in a wider dtype. The expressions are those of `plans/src/arithmetic.h`. Their functions are in
`numba_functions`.
"""

# tests: tests/compiling/test_numba.py
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch.compiling.arithmetic import ELEMENTARY
from pydispatch.compiling.steps import LoopStep
from pydispatch.compiling.values import Value


def in_python(expression: str) -> str:
    """Return an expression in C as Python's, with `{0}`, `{1}` and `{2}` for x, y and z."""
    condition, is_choice, rest = expression.partition(" ? ")
    if is_choice:
        one, _, other = rest.partition(" : ")
        return f"{in_python(one)} if {in_python(condition)} else {in_python(other)}"
    text = re.sub(r"!(\w+)", r"(not \1)", expression.replace("&&", "&").replace("||", "|"))
    return re.sub(r"\b[xyz]\b", lambda found: f"{{{'xyz'.index(found[0])}}}", text)


EXPRESSIONS = {function: {kind: in_python(text) for kind, text in row.expressions.items()}
               for function, row in ELEMENTARY.items()}


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
    by_kind = EXPRESSIONS.get(what[0], {})
    text = by_kind.get(given.kind)
    if given.kind == "f" and "k" in by_kind and _is_number(step.operands[1]):
        text = by_kind["k"]
    if text is None:
        return None
    return typed(re.sub(r"\bT\b", scalar_type(found), text.replace("BITS", str(8 * given.itemsize))), found)


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
