"""`jvp`: forward mode as a transform. Values of its level carry tangents."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pydispatch import _core
from pydispatch._core import Jvp
from pydispatch.exceptions import AutogradError, NotDifferentiableError
from pydispatch.func.values import as_passed, check_aux, check_no_wrapper, leave_aux
from pydispatch.ops import ops
from pydispatch.tree import tree_flatten, tree_unflatten


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """`(func(*primals), derivative)`, the derivative along `tangents`, nested as the output is.

    Each tangent has the shape of its primal. The tangent of an output that depends on no primal is zeros; `strict`
    raises AutogradError for such. With `has_aux`, `func` returns (output, aux), and the result is
    (output, tangent, aux).
    """
    _check_arguments(primals, tangents)
    frame = sys._getframe(1)
    level = Jvp("jvp", (frame.f_code, frame.f_lineno))
    _core.enter_level(level)
    try:
        entered = [
            _core.primal(level, primal, _like(tangent, primal))
            for primal, tangent in zip(primals, tangents, strict=True)
        ]
        output, aux = check_aux("jvp", func(*entered), has_aux)
        leaves, spec = tree_flatten(output)
        _check_outputs(leaves)
        found = [_core.tangent_of(leaf) if _core.is_owned_by(leaf, level) else None for leaf in leaves]
    finally:
        _core.leave_level(level)
    if strict and any(tangent is None for tangent in found):
        raise AutogradError("jvp: an output does not depend on the primals, and strict=True\n"
                            "pass strict=False for zeros")
    values = [_core.value_below(leaf, level) for leaf in leaves]
    results = [
        ops.np.zeros_like(value) if tangent is None else tangent for value, tangent in zip(values, found, strict=True)
    ]
    given = (*primals, *tangents)
    result = (
        tree_unflatten([as_passed(value, given) for value in values], spec),
        tree_unflatten([as_passed(tangent, given) for tangent in results], spec),
    )
    if has_aux:
        return (*result, leave_aux(aux, level, given))
    return result


def _check_arguments(primals: Any, tangents: Any) -> None:
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise AutogradError(f"jvp: primals and tangents are a {type(primals).__name__} and a "
                            f"{type(tangents).__name__}, expected tuples\nwrite jvp(f, (x,), (t,))")
    if not primals:
        raise AutogradError("jvp: there are no primals\nwrite jvp(f, (x,), (t,))")
    if len(primals) != len(tangents):
        raise AutogradError(f"jvp: {len(tangents)} tangents were given for {len(primals)} primals\npass one for each")
    for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        for what, value in (("primal", primal), ("tangent", tangent)):
            if not _core.is_array(value):
                raise AutogradError(f"jvp: {what} {i} is a {type(value).__name__}, expected an array\n"
                                    "pass numpy.asarray(...)")
            if value.dtype.kind not in "fc":
                raise NotDifferentiableError(f"jvp: {what} {i} has dtype {value.dtype}, expected a floating-point or "
                                             "complex one\nconvert it first: array.astype(float)")
        if tuple(primal.shape) != tuple(tangent.shape):
            raise AutogradError(f"jvp: tangent {i} has shape {tuple(tangent.shape)}, its primal has shape "
                                f"{tuple(primal.shape)}\npass one of the shape of the primal")


def _check_outputs(leaves: list[Any]) -> None:
    for i, leaf in enumerate(leaves):
        check_no_wrapper("jvp", leaf)
        if not _core.is_array(leaf):
            raise AutogradError(f"jvp: output {i} is a {type(leaf).__name__}, expected an array\n"
                                "return arrays only; what is not to be differentiated goes into aux: has_aux=True")


def _like(tangent: Any, primal: Any) -> Any:
    if tangent.dtype == primal.dtype:
        return tangent
    if tangent.dtype.kind == "c" and primal.dtype.kind != "c":
        raise AutogradError(f"jvp: a tangent is complex, its primal has dtype {primal.dtype}\npass a real one")
    return tangent.astype(primal.dtype)
