"""Checks of derivatives against finite differences."""

# tests: tests/compat/autograd/test_operators.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from pydispatch.compat.autograd.derivatives import make_jvp, make_vjp
from pydispatch.compat.autograd.operators import get_name, unary_to_nary, wraps
from pydispatch.compat.autograd.spaces import vspace

__all__ = ["check_equivalent", "check_grads", "check_jvp", "check_vjp", "combo_check", "quick_grad_check",
           "scalar_close"]
Function = Callable[..., Any]
TOL = RTOL = EPS = 1e-6


def scalar_close(a: Any, b: Any) -> Any:
    """Return whether two numbers differ by less than 1e-6, absolutely or relatively."""
    return abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL


def make_numerical_jvp(f: Function, x: Any) -> Function:
    """Return the function that computes the derivative along a tangent by central differences."""
    ends, y = vspace(x), vspace(f(x))

    def jvp(v: Any) -> Any:
        above, below = [f(ends.add(x, ends.scalar_mul(v, half))) for half in (EPS / 2, -EPS / 2)]
        return y.scalar_mul(y.add(above, y.scalar_mul(below, -1.0)), 1 / EPS)

    return jvp


def check_vjp(f: Function, x: Any) -> None:
    """Raise AssertionError if the vjp differs from finite differences."""
    vjp, y = make_vjp(f, x)
    inputs, outputs = vspace(x), vspace(y)
    v, w = inputs.randn(), outputs.randn()
    pulled = inputs.covector(vjp(outputs.covector(w)))
    assert vspace(pulled) == inputs, f"the gradient is in {vspace(pulled)}, expected {inputs}"
    exact, numeric = inputs.inner_prod(v, pulled), outputs.inner_prod(w, make_numerical_jvp(f, x)(v))
    assert scalar_close(numeric, exact), (
        f"the derivative (VJP) check of {get_name(f)} failed at {x}: {exact}, by finite differences {numeric}")


def check_jvp(f: Function, x: Any) -> None:
    """Raise AssertionError if the jvp differs from finite differences."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


def check_equivalent(x: Any, y: Any) -> None:
    """Raise AssertionError if two values differ in shape, dtype or numbers."""
    space = vspace(x)
    assert space == vspace(y), f"the values are in {space} and {vspace(y)}"
    v = space.randn()
    assert scalar_close(space.inner_prod(x, v), space.inner_prod(y, v)), f"the values differ: {x} and {y}"


@unary_to_nary
def check_grads(f: Function, x: Any, modes: Sequence[str] = ("fwd", "rev"), order: int = 2) -> None:
    """Raise AssertionError if derivatives of `f`, in both modes and up to an order, differ from finite differences."""
    assert set(modes) <= {"fwd", "rev"}, modes
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:
            tangent = wraps(f, "jvp_{fun}")(lambda x, v: make_jvp(f, x)(v)[1])
            check_grads(tangent, (0, 1), modes, order=order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:
            gradient = wraps(f, "vjp_{fun}")(lambda x, v: make_vjp(f, x)[0](v))
            check_grads(gradient, (0, 1), modes, order=order - 1)(x, vspace(f(x)).randn())


def combo_check(fun: Function, *args: Any, **kwargs: Any) -> Function:
    """Return a function that checks the derivatives for every combination of the given arguments."""
    def check(*choices: Any, **options: Any) -> None:
        for values in product(*choices):
            for chosen in product(*options.values()):
                check_grads(fun, *args, **kwargs)(*values, **dict(zip(options, chosen, strict=True)))

    return check


def quick_grad_check(fun: Function, arg0: Any, extra_args: Sequence[Any] = (), kwargs: Any = None, *rest: Any,
                     **options: Any) -> None:
    """Check the gradient with respect to the first argument. It is deprecated: call check_grads."""
    warnings.warn("quick_grad_check is deprecated, call check_grads", stacklevel=2)
    check_grads(lambda x: fun(x, *extra_args, **(kwargs or {})), modes=["rev"], order=1)(arg0)
