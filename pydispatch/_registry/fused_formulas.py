"""Fused formulas: a formula that is a chain of universal functions becomes a `_core.UfuncChain`.

A formula is called once with symbols to find its steps. The chain computes the same numbers as the formula for NumPy
arrays. For all other arrays, the formula itself runs.
"""

# tests: tests/core/test_loops.py
from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch._core import OpOverload, OpOverloadPacket, Product, UfuncChain

Operand = tuple[str, Any]
Step = tuple[Any, list[Operand]]    # a universal function or an operator, and its operands

PRODUCTS = {    # operator: its formulas for two matrices. The declared formulas branch on the numbers of axes
    "np::matmul": (Product(0, 2, False, True), Product(1, 0, True, False)),     # g @ x2.T, x1.T @ g
}

UFUNCS = frozenset(f"np::{name}" for name, value in vars(np).items()
                   if isinstance(value, np.ufunc) and f"{'d' * value.nin}->d" in value.types)
"""Operators whose kernel is a universal function with a loop for doubles, unless a user registers another kernel."""


class NotAChainError(Exception):
    """A formula is not a chain of universal functions."""


class FormulaOperand:
    """A symbol for an argument of a formula or the result of a step.

    Operators of Python and of the library, applied to symbols, add steps.
    """

    def __init__(self, steps: list[Step], operand: Operand, made_by: int) -> None:
        self.steps = steps
        self.operand = operand
        self.made_by = made_by      # the number of steps up to and including the one that makes it

    def _refuse(self, *others: Any) -> Any:
        raise NotAChainError

    __bool__ = __len__ = __iter__ = __index__ = __float__ = __abs__ = __invert__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __getitem__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise NotAChainError

    def __neg__(self) -> FormulaOperand:
        return add_step(np.negative, self)

    def __pos__(self) -> FormulaOperand:
        return add_step(np.positive, self)


def add_step(function: Any, *operands: Any) -> FormulaOperand:
    """Add a step and return its result. The step must use the result of the previous step, if there is one."""
    steps: list[Step] = next(operand.steps for operand in operands if isinstance(operand, FormulaOperand))
    described = [_describe(operand, len(steps)) for operand in operands]
    if steps and ("previous", None) not in described:
        raise NotAChainError
    steps.append((function, described))
    return FormulaOperand(steps, ("previous", None), len(steps))


def _operator(function: Any, is_reflected: bool) -> Any:
    """Return the method of an operator of Python."""
    if is_reflected:
        return lambda operand, other: add_step(function, other, operand)
    return lambda operand, other: add_step(function, operand, other)


for _name, _function in {"add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.divide}.items():
    setattr(FormulaOperand, f"__{_name}__", _operator(_function, is_reflected=False))
    setattr(FormulaOperand, f"__r{_name}__", _operator(_function, is_reflected=True))


def _describe(operand: Any, n_steps: int) -> Operand:
    if isinstance(operand, FormulaOperand):
        if operand.operand[0] == "previous" and operand.made_by != n_steps:
            raise NotAChainError
        return operand.operand
    if type(operand) not in (int, float):
        raise NotAChainError
    return "constant", float(operand)


def fused_formula_of(formula: Any) -> UfuncChain | None:
    """Return the chain that computes the same as a formula, or None if there is none.

    All globals of the formula must be operators of the library, and it must use all of its arguments. It then has no
    branch that the symbols could have decided.
    """
    code = getattr(formula, "__code__", None)
    if code is None or code.co_freevars or code.co_kwonlyargcount or formula.__defaults__:
        return None
    scope: dict[str, Any] = {}
    for name in code.co_names:
        packet = formula.__globals__.get(name)
        if not isinstance(packet, OpOverloadPacket) or packet.name not in UFUNCS:
            return None
        scope[name] = _applying(packet.overloads[0])
    steps: list[Step] = []
    arguments = [FormulaOperand(steps, ("argument", i), 0) for i in range(code.co_argcount)]
    try:
        result = types.FunctionType(code, scope)(*arguments)
        taken = {operand[1] for _, operands in steps for operand in operands if operand[0] == "argument"}
        if not isinstance(result, FormulaOperand) or result.made_by != len(steps) or len(taken) != len(arguments):
            return None
        return UfuncChain(steps)
    except (NotAChainError, ValueError):
        return None


def _applying(operator: OpOverload) -> Callable[..., FormulaOperand]:
    def apply(*operands: Any) -> FormulaOperand:
        if not any(isinstance(operand, FormulaOperand) for operand in operands):
            raise NotAChainError
        return add_step(operator, *operands)
    return apply


def fused_formulas_of(name: str, formulas: tuple[Callable[..., Any] | None, ...]) -> tuple[Any, ...] | None:
    """Return the fused formula, or None, for each formula. Return None if no formula has one."""
    found: tuple[Any, ...] = PRODUCTS.get(name) or tuple([fused_formula_of(formula) for formula in formulas])
    found += (None,) * (len(formulas) - len(found))
    return None if all(formula is None for formula in found) else found
