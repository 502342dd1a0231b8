"""Declares special functions: an operator, and the function with SciPy's name that calls it.

The derivatives are taken from the NIST Digital Library of Mathematical Functions. Its sections are named next
to them. Names that the installed SciPy lacks are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special

from pydispatch._core import MetaArray, sum_to
from pydispatch.exceptions import NoDerivativeError
from pydispatch.numpy.declare import INSTEAD
from pydispatch.operators.declare import LAYOUT, named
from pydispatch.operators.meta import broadcast, sample, shape_of
from pydispatch.scipy.pack import FACE, SCIPY

Formula = Callable[..., Any] | str
"""A formula, or the reason why an argument has none."""

LEFT_OUT = {"dtype": "convert the arguments: x.astype(dtype)", "casting": "convert the arguments: x.astype(dtype)",
            **LAYOUT}
ORDER = "it is an order, and derivatives in orders have no closed form"
COUNT = "it counts something, and SciPy rounds it"
PARAMETER = "derivatives in this parameter have no closed form"


def pointwise(
    name: str, arguments: str, vjp: Formula | tuple[Formula, ...] | None, *, kernel: Callable[..., Any] | None = None,
    instead: float | None = None, **parts: Any,
) -> None:
    """Declare a pointwise function and its operator. Its kernel is SciPy's function by default.

    `instead` is a point where the function is smooth, if it is not smooth at 1. Elements that `where=` leaves out
    are computed at this point.
    """
    kernel = kernel or getattr(special, name, None)
    if kernel is None:
        return
    arrays = arrays_of(arguments)
    if vjp is not None:
        parts["vjp"] = formulas_of(name, arrays, vjp)
    SCIPY.pointwise(f"special_{name}", kernel, arguments, differentiable=vjp is not None, left_out=LEFT_OUT, **parts)
    FACE.declare_operator(f"special.{name}", len(arrays), arguments.count(",") + 1, constant=vjp is None)
    if instead is not None:
        INSTEAD[f"special_{name}"] = instead


def several(name: str, arguments: str, n_results: int, vjp: Formula | tuple[Formula, ...],
            jvp: tuple[Callable[..., Any] | None, ...] | Callable[..., Any]) -> None:
    """Declare a pointwise function with several results, and its operator.

    `jvp` has None for the arguments for which `vjp` has a reason.
    """
    if not hasattr(special, name):
        return
    function = getattr(special, name)
    arrays = arrays_of(arguments)
    formulas = formulas_of(name, arrays, vjp)
    tangents = jvp if isinstance(jvp, tuple) else (jvp,)
    tangents = tuple([tangent or formula for tangent, formula in zip(tangents, formulas, strict=True)])

    def meta(*args: Any) -> tuple[MetaArray, ...]:
        shape = broadcast(map(shape_of, args))
        return tuple([MetaArray(shape, result.dtype) for result in function(*map(sample, args))])

    returns = f"({', '.join(['Tensor'] * n_results)})"
    SCIPY.declare(f"special_{name}", arguments, function, meta, returns=returns, tags=("pointwise",),
                  broadcasts=True, vmap="pointwise", vjp=formulas, jvp=tangents, left_out=LEFT_OUT)
    FACE.declare_operator(f"special.{name}", len(arrays), len(arrays))


def helper(name: str, arguments: str, kernel: Callable[..., Any], **parts: Any) -> None:
    """Declare a pointwise operator that formulas need and that has no function in SciPy."""
    SCIPY.pointwise(f"special_{name}", kernel, arguments, **parts)


def alias(name: str, of: str) -> None:
    """Declare another of SciPy's names for the same function."""
    if hasattr(special, name):
        FACE.functions[f"special.{name}"] = FACE.functions[f"special.{of}"]
        FACE.kinds[f"special.{name}"] = FACE.kinds[f"special.{of}"]


def refuse(names: str, reason: str) -> None:
    """Declare functions that do not take Tensors."""
    FACE.refuse({f"special.{name}": reason for name in names.split() if hasattr(special, name)})


def arrays_of(arguments: str) -> list[str]:
    """Return the names of the arguments that are arrays."""
    return [part.split()[1].partition("=")[0] for part in arguments.split(", ") if part.startswith("Tensor")]


def formulas_of(
    name: str, arrays: list[str], vjp: Formula | tuple[Formula, ...]
) -> tuple[Callable[..., Any], ...]:
    """Return the formulas of a declaration. A reason becomes a formula that raises."""
    given = vjp if isinstance(vjp, tuple) else (vjp,)
    return tuple([refusal(name, argument, formula) if isinstance(formula, str) else formula
                  for argument, formula in zip(arrays, given, strict=True)])


def refusal(name: str, argument: str, reason: str) -> Callable[..., Any]:
    """Return a formula that raises, for an argument without a derivative."""
    def formula(g: Any) -> Any:
        raise NoDerivativeError(f"operator scipy::special_{name} has no derivative in its argument {argument!r}: "
                                f"{reason}\npass it as a constant: tensor.detach()")
    return formula


# --- formulas --------------------------------------------------------------------------------------------------------


def transposed(g: tuple[Any, ...], slopes: tuple[Any, ...], shape: tuple[int, ...] | None = None) -> Any:
    """Return the gradient of an argument, from the gradients of the results and their slopes.

    `shape` is that of the argument, if it may broadcast.
    """
    terms = [part * slope for part, slope in zip(g, slopes, strict=True) if part is not None]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total if shape is None else sum_to(total, shape)


def scaled(t: Any, slopes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the tangents of the results, from the tangent of an argument and their slopes."""
    return tuple([t * slope for slope in slopes])


def is_complex(x: Any) -> bool:
    """Return whether an argument is complex."""
    return x.dtype.kind == "c" if hasattr(x, "dtype") else isinstance(x, complex)


def check_real(name: str, *values: Any) -> Any:
    """Return the first argument. Raise NoDerivativeError for complex ones, for which the function has no derivative."""
    if any(map(is_complex, values)):
        raise NoDerivativeError(f"operator scipy::special_{name} has a derivative for real arguments only\n"
                                "pass the argument as a constant: tensor.detach()")
    return values[0]


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that computes in double precision without warnings, and converts back to its arguments' one."""
    def kernel(*args: Any) -> Any:
        floating = [x.dtype for x in args if hasattr(x, "dtype") and x.dtype.kind == "f"]
        dtype = np.result_type(*floating, np.float16) if floating else np.dtype(float)
        with np.errstate(all="ignore"):
            found = function(*[np.asarray(x, float) if not isinstance(x, int) else x for x in args])
        return np.asarray(found).astype(dtype)[()]
    kernel.__doc__ = function.__doc__
    return named(kernel, function.__name__)
