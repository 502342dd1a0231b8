"""Forward mode for operators and Functions without a jvp, by transposing their backward."""

# tests: tests/operators/test_derivatives.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch.autograd.backward import gradients_in_interpreter
from pydispatch.autograd.custom_derivatives import leaf_gradients
from pydispatch.autograd.values import as_tensor, meta_of, zeros_beside
from pydispatch.exceptions import ConversionError, NoDerivativeError
from pydispatch.tree import tree_flatten, tree_leaves, tree_unflatten


class Results:
    """The structure of a call's results: the shape and dtype of each array, and which are differentiable."""

    __slots__ = ("flags", "metas", "spec")

    def __init__(self, output: Any, constants: Sequence[Any]) -> None:
        leaves, self.spec = tree_flatten(output)
        self.metas = [meta_of(leaf) for leaf in leaves]
        self.flags = [
            meta is not None and meta[1].kind in "fc" and not _core.is_any_of(leaf, constants)
            for leaf, meta in zip(leaves, self.metas, strict=True)
        ]


def transposed(
    name: str, backward: Callable[[Any], Sequence[Any]], results: Results, tangents: Sequence[Any], materialize: bool
) -> Any:
    """Return the tangents of the results, nested like the results, from one entry per argument, None without tangent.

    `backward` returns one entry per argument from gradients nested like the results. A derivative has to be linear, but
    this cannot be checked. Raise NoDerivativeError for a backward that converts its gradients to NumPy arrays.
    """
    present = next(leaf for leaf in tree_leaves(tangents) if leaf is not None)
    zeros = [
        zeros_beside(present, meta) if meta is not None and (flag or materialize) else None
        for meta, flag in zip(results.metas, results.flags, strict=True)
    ]

    def run(*tracked: Any) -> list[tuple[Any, Any]]:
        left = iter(tracked)
        gradients = [
            next(left) if flag else None if zero is None else as_tensor(zero)
            for zero, flag in zip(zeros, results.flags, strict=True)
        ]
        entries = backward(tree_unflatten(gradients, results.spec))
        return [
            pair for i, (given, entry) in enumerate(zip(tangents, entries, strict=True))
            for pair in _pairs(given, entry, i, name)
        ]

    values = [zero for zero, flag in zip(zeros, results.flags, strict=True) if flag]
    try:
        found = iter(gradients_in_interpreter(f"the jvp of {name}, derived from its backward", run, values))
    except ConversionError as error:
        raise NoDerivativeError(
            f"{name} has no jvp, and its backward cannot be transposed: it converts gradients to NumPy arrays\n"
            f"{_REMEDY}"
        ) from error
    return tree_unflatten(
        [_tangent(next(found), present, meta) if flag else None
         for meta, flag in zip(results.metas, results.flags, strict=True)],
        results.spec,
    )


def refuse_once_differentiable(name: str) -> NoDerivativeError:
    """Return the error for a backward that cannot be differentiated, and so cannot be transposed either."""
    return NoDerivativeError(
        f"{name} has no jvp, and its backward cannot be transposed: it is once_differentiable\n{_REMEDY}"
    )


_REMEDY = "define one (register_autograd(..., jvp=jvp), or a jvp staticmethod), or write backward with operators"


def _pairs(given: Any, entry: Any, i: int, name: str) -> list[tuple[Any, Any]]:
    """Return (gradient, tangent) of argument `i` where both exist."""
    tangents, spec = tree_flatten(given)
    pairs = []
    for gradient, tangent in zip(leaf_gradients(entry, spec, i, name), tangents, strict=True):
        if tangent is None or not _core.is_array(gradient):
            continue
        gradient = _core.sum_to(gradient, tuple(tangent.shape))
        if gradient.dtype.kind == "c" and tangent.dtype.kind != "c":
            gradient = gradient.real
        if gradient.dtype != tangent.dtype:
            gradient = gradient.astype(tangent.dtype)
        pairs.append((gradient, tangent))
    return pairs


def _tangent(found: Any, present: Any, meta: Any) -> Any:
    return as_tensor(zeros_beside(present, meta) if found is None else found)
