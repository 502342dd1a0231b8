"""Call a graph as if it were one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch._registry.backends import dtype_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema.frozen import short_repr
from pydispatch.tracing.codegen import generate
from pydispatch.tracing.effects import nodes_told_from_scalars
from pydispatch.tracing.graph import Graph, Node
from pydispatch.tracing.interpreting import GraphInterpreter
from pydispatch.tracing.literals import is_literal, same_literal
from pydispatch.tracing.structure import structure_error
from pydispatch.tracing.values import ArraySpec
from pydispatch.tree import in_order_of, tree_flatten, tree_map


def call_graph(graph: Graph, /, *args: Any) -> Any:
    """Run the code of a graph, and dispatch every operator.

    Parameters
    ----------
    graph : Graph
        The graph.
    `*args` : object
        Its arguments, of the structure `in_spec`.

    Returns
    -------
    object
        The results. They are Tensors if there is a Tensor among the arguments. A constant that is returned is the
        object in `constants`.

    Raises
    ------
    DispatchTypeError
        For arguments whose structure differs from `in_spec`. Also for a shape or dtype that differs from the ArraySpec
        in a placeholder's `meta["val"]`, unless `check_shapes` is off. If `meta["val"]` is not an ArraySpec, for any
        other value.
    """
    leaves = graph.flatten_arguments(args)
    return call_on_leaves(graph.cached(function_of), leaves, graph.cached(tells_scalars))


def interpret(graph: Graph, /, *args: Any) -> Any:
    """Run a graph like `call_graph`, but node by node."""
    leaves = graph.flatten_arguments(args)
    return call_on_leaves(
        lambda *leaves: GraphInterpreter(graph).run_flat(list(leaves)), leaves, graph.cached(tells_scalars))


def function_of(graph: Graph) -> Callable[..., Any]:
    """Return the code of a graph as a function."""
    function: Callable[..., Any] = generate(graph).function()
    return function


def tells_scalars(graph: Graph) -> bool:
    """Return whether a node of the graph distinguishes NumPy scalars from 0-d arrays."""
    return any(map(nodes_told_from_scalars, graph.nodes))


def flatten_arguments(graph: Graph, args: tuple[Any, ...]) -> list[Any]:
    """Return the values of the placeholders, from arguments of the structure `in_spec`.

    Raise DispatchTypeError, naming the argument, if the structure differs, or if the shape, dtype or value differs from
    the placeholder's `meta["val"]`.
    """
    leaves, spec = tree_flatten(args)
    ordered = in_order_of(graph.in_spec, leaves, spec)
    if ordered is None:
        raise structure_error(graph.in_spec, spec)
    return [
        check_value(node, leaf, graph.check_shapes) for node, leaf in zip(graph.placeholders, ordered, strict=True)]


def call_on_leaves(function: Callable[..., Any], leaves: list[Any], wants_tensors: bool) -> Any:
    """Call `function(*leaves)`, and return Tensors if a leaf is a Tensor, or else raw arrays.

    If the function `wants_tensors`, it always receives Tensors. On raw arrays, operators return NumPy scalars, which
    cannot be written to and which index differently from arrays.
    """
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        return tree_map(_as_tensor, function(*leaves))
    if not wants_tensors:
        return function(*leaves)
    inner = [_as_tensor(leaf) for leaf in leaves]
    passed = {id(tensor): leaf for tensor, leaf in zip(inner, leaves, strict=True) if not isinstance(leaf, np.generic)}
    return tree_map(lambda value: _as_raw(value, passed), function(*inner))


def _as_tensor(value: Any) -> Any:
    return Tensor(value) if _core.is_array(value) and not isinstance(value, Tensor) else value


def _as_raw(value: Any, passed: dict[int, Any]) -> Any:
    if id(value) in passed:
        return passed[id(value)]
    return _core.raw_of(value) if type(value) is Tensor and not value.requires_grad else value


def check_value(placeholder: Node, value: Any, check_shapes: bool) -> Any:
    """Return the value of an argument, with a number converted to a 0-d array if the graph expects one.

    Raise DispatchTypeError, naming the argument, for a value, shape or dtype that the graph was not made for.
    """
    known = placeholder.meta.get("val")
    if isinstance(known, ArraySpec):
        fits = not check_shapes or (_core.is_array(value) and _is_like(value, known))
        return value if fits else _as_expected(placeholder, value, known)
    if is_fixed(placeholder) and not _same(known, value):
        raise _unexpected(placeholder, short_repr(value), short_repr(known), "trace again: make_fx(f)(*args)")
    return value


def _is_like(value: Any, spec: ArraySpec) -> bool:
    """Return whether an array has this shape and dtype. Dtypes of other libraries are compared by their names."""
    if isinstance(value, (Tensor, np.ndarray)):
        return _core.is_like(value, spec.shape, spec.dtype)
    return tuple(value.shape) == tuple(spec.shape) and dtype_of(value) == spec.dtype


def _as_expected(placeholder: Node, value: Any, spec: ArraySpec) -> Any:
    is_number = type(value) in NUMBERS
    if is_number and not spec.shape and spec.device == "CPU" and _is_in_reach(value, spec.dtype):
        return np.asarray(value, spec.dtype)
    if not is_number and not _core.is_array(value):
        return value                    # the caller is responsible for values of other kinds
    found = short_repr(value) if is_number else f"{value.dtype}{list(value.shape)}"
    raise _unexpected(placeholder, found, f"{spec.dtype}{list(spec.shape)}",
                      "trace again: make_fx(f)(*args), or make_fx(f, check_shapes=False)(*args) if f is right for all "
                      "shapes and dtypes")


NUMBERS = {bool: "b", int: "iu", float: "f", complex: "c"}


def _is_in_reach(number: complex, dtype: np.dtype[Any]) -> bool:
    """Return whether an array keeps this dtype when combined with the Python number."""
    order = "biufc"
    return dtype.kind in order and order.index(NUMBERS[type(number)][0]) <= order.index(dtype.kind)


def _unexpected(placeholder: Node, found: str, expected: str, remedy: str) -> DispatchTypeError:
    return DispatchTypeError(f"the graph's argument {placeholder.name} is {' '.join(found.split())}, expected "
                             f"{expected}, as in the trace\n{remedy}")


def shape_and_dtype(placeholder: Node) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return the shape and dtype that the graph was made for, or None if unknown."""
    known = placeholder.meta.get("val")
    return (known.shape, known.dtype) if isinstance(known, ArraySpec) else None


def is_fixed(placeholder: Node) -> bool:
    """Return whether the graph was made for one value of this argument, such as a number or string."""
    return "val" in placeholder.meta and not isinstance(placeholder.meta["val"], ArraySpec)


def _same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if is_literal(left) and is_literal(right):
        return same_literal(left, right)
    return type(left) is type(right) and not _core.is_array(left) and bool(left == right)
