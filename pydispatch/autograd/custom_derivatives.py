"""Custom derivatives: operators differentiated by users' functions, on the same tape as library operators.

`autograd.Function` and custom operators both become a CustomDerivative: `setup` after the forward call, `backward` with
one gradient per result, `jvp` with one tangent per argument.
"""

# tests: tests/autograd/test_function_transforms.py
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from pydispatch import _core
from pydispatch._core import Context, CustomNode, OpOverload, Tensor
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch.autograd.anomaly import note_origin
from pydispatch.autograd.values import Meta, as_raw_constant, as_tensor, meta_of, values_below, zeros_beside
from pydispatch.exceptions import AutogradError
from pydispatch.tree import (
    TreeSpec,
    described_structure,
    in_order_of,
    n_leaves,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)

_owners: ContextVar[list[Any] | None] = ContextVar("pydispatch.owners", default=None)


def function_is_used(owner: Any) -> None:
    """Note that functions of a CustomDerivative, or of an operator, may run later.

    A run of a function does not show what these capture.
    """
    owners = _owners.get()
    if owners is not None and owner not in owners:
        owners.append(owner)


def noting_owners(owners: list[Any], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, and append to the list the owners whose functions may run later."""
    token = _owners.set(owners)
    try:
        return function(*args)
    finally:
        _owners.reset(token)


class TapeDerivative:
    """The derivative of a node that the tape itself adds, if formulas do not suffice. It runs in any interpreter."""

    name: str
    reads_part: bool    # whether it belongs to a view, rather than to a write through one

    def part(self, gradient: Any) -> Any:
        """Return the part of a memory's gradient that a node is about, as a view, or None if it cannot be a view."""
        raise NotImplementedError

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """Return one gradient per edge."""
        raise NotImplementedError


class GradientStructure:
    """The structure of a node's gradients for the users' functions: one entry per result and argument."""

    __slots__ = ("arguments", "results", "single")

    def __init__(self, values: tuple[Any, ...], output: Any, single: bool) -> None:
        self.single = single
        self.arguments = tuple([tree_flatten(value)[1] if _holds_arrays(value) else None for value in values])
        outputs = (output,) if single else output
        self.results = tuple([_result_spec(result) for result in outputs])

    def nest(self, gradients: list[Any]) -> tuple[Any, ...]:
        """Return one entry per result: a gradient, a pytree of gradients, or None for a result that is not an array."""
        left = iter(gradients)
        return tuple([
            None if spec is None else tree_unflatten(
                [next(left) if is_tensor else None for is_tensor in tensors], spec)
            for spec, tensors in self.results
        ])

    def flatten(self, entries: Sequence[Any], node: CustomNode) -> list[Any]:
        """Return one gradient per edge, from one entry per argument."""
        gradients: list[Any] = []
        for i, (entry, spec) in enumerate(zip(entries, self.arguments, strict=True)):
            if spec is None:
                if any(leaf is not None for leaf in tree_leaves(entry)):
                    raise needless_gradient(node, i)
                gradients.append(None)
            else:
                gradients += leaf_gradients(entry, spec, i, node.name)
        return gradients


def _holds_arrays(value: Any) -> bool:
    return any(_core.is_array(leaf) for leaf in tree_leaves(value))


def _result_spec(result: Any) -> Any:
    leaves, spec = tree_flatten(result)
    tensors = [isinstance(leaf, Tensor) for leaf in leaves]
    return (spec, tensors) if spec.type is not None or any(tensors) else (None, tensors)


def leaf_gradients(entry: Any, spec: TreeSpec, i: int, name: str) -> list[Any]:
    """Return one gradient per leaf of an argument.

    Raise AutogradError for an entry that is not nested like the argument. `name` is the node's, for messages.
    """
    if spec.type is None:
        return [entry]
    leaves = leaves_like(spec, entry)
    if leaves is None:
        raise AutogradError(
            f"{name} returned a gradient for argument {i} whose structure differs from that of the argument: "
            f"expected {described_structure(spec)}, found {described_structure(tree_flatten(entry)[1])}\n"
            "return one gradient, or None, for each element of the argument"
        )
    return leaves


def leaves_like(spec: TreeSpec, entry: Any) -> list[Any] | None:
    """Return one gradient or tangent for each leaf of this spec, or None for an entry nested differently.

    Lists and tuples are interchangeable. An entry that is None means None everywhere.
    """
    return [None] * n_leaves(spec) if entry is None else in_order_of(spec, *tree_flatten(entry), any_sequence=True)


# --- recording -------------------------------------------------------------------------------------------------------


def record_custom(op: OpOverload, derivative: CustomDerivative, values: tuple[Any, ...], output: Any,
                  interpreter: Any) -> None:
    """Save the residuals of one call by its derivative, and attach a node to the results, `output`."""
    single = not isinstance(output, tuple) or len(op.schema.returns) == 1
    ctx = Context(tuple([needs_grad(value, interpreter) for value in values]), interpreter)
    if interpreter is None:
        _core.with_grad_mode(False, derivative.setup, ctx, values, output)
    else:
        derivative.setup(ctx, values, output)
    attach_node(derivative, ctx, values, output, single, interpreter)


def seal_for_forward(ctx: Context, interpreter: Any) -> None:
    """Replace the values that the context saved for `jvp`, and its attributes, by those of the interpreter below."""
    ctx.seal_for_forward()
    vars(ctx).update(values_below(vars(ctx), interpreter))


def needs_grad(value: Any, interpreter: Any) -> Any:
    """Return whether a value is tracked at this interpreter.

    For a pytree, return a tuple or dict with this for each element.
    """
    if isinstance(value, (tuple, list)):
        return tuple([needs_grad(item, interpreter) for item in value])
    if isinstance(value, dict):
        return {key: needs_grad(item, interpreter) for key, item in value.items()}
    return _core.is_tracked_at(value, interpreter)


def attach_node(
    derivative: Any, ctx: Context, values: tuple[Any, ...], output: Any, single: bool, interpreter: Any
) -> None:
    """Make the node of a call, and record the differentiable outputs as its results."""
    edges, inputs = [], []
    leaf: Any
    for value in values:
        for leaf in tree_leaves(value) if _holds_arrays(value) else [None]:
            tracked = _core.is_tracked_at(leaf, interpreter)
            edges.append(_core.edge_of_tensor(leaf) if tracked else None)
            inputs.append(meta_of(leaf) if tracked else None)
    outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
    if all(edge is None for edge in edges):
        ctx.seal(None, outputs)
        return
    node = CustomNode(derivative, ctx, tuple(edges), tuple(inputs), tuple(map(meta_of, outputs)),
                      GradientStructure(values, output, single), interpreter)
    if _core.current_state().anomaly:
        note_origin(node)
    ctx.seal(node, outputs)
    for i, tensor in enumerate(outputs):
        if tensor.dtype.kind in "fc" and not _core.is_any_of(tensor, ctx.non_differentiable):
            _attach_output(tensor, node, i, is_written=_core.is_any_of(tensor, ctx.dirty), is_only=len(outputs) == 1)


def _attach_output(tensor: Tensor, node: CustomNode, i: int, is_written: bool, is_only: bool) -> None:
    if is_written and is_only:
        _core.attach_written(tensor, node)
        return
    _core.attach(tensor, _core.result_slot(node, i, made_by_function=not is_written and _core.is_view(tensor)))


# --- running backward ------------------------------------------------------------------------------------------------


def apply_custom_on_tape(node: CustomNode, gradient: Any) -> list[Any]:
    """Return the gradients of a node whose derivative is a TapeDerivative, one per edge."""
    if gradient is None:
        return [None] * len(node.edges_out)
    return [
        None if edge is None else result
        for edge, result in zip(node.edges_out, node.custom_derivative.run(gradient), strict=True)
    ]


def needless_gradient(node: CustomNode, i: int) -> AutogradError:
    """Return the error for a gradient of an argument that can have none."""
    return AutogradError(f"{node.name} returned a gradient other than None at position {i}, for an argument without "
                         "arrays\nreturn None there")


def checked_gradient(value: Any, meta: Meta, i: int, node: CustomNode, create_graph: bool) -> Any:
    """Convert a gradient that a user's function returned to the shape and dtype of the argument."""
    named = f"{node.name} returned an invalid gradient at index {i}"
    value = as_gradient(value, meta, node.outputs or (), named, is_complex=False)
    return value if create_graph else as_raw_constant(value)


def as_gradient(value: Any, meta: Meta, outputs: Sequence[Meta], named: str, *, is_complex: bool) -> Any:
    """Convert a gradient to the shape and dtype of its argument.

    Raise AutogradError if that is impossible. Its message starts with `named`.

    A gradient that broadcasting made larger is summed. With `is_complex`, the gradient of a real argument is the real
    part.
    """
    shape, dtype = meta
    if not _core.is_array(value):
        raise AutogradError(f"{named}: found {_core.a_type(value)}, expected a Tensor of shape {shape} or None\n"
                            "return Tensor(numpy.asarray(...))")
    found = tuple(value.shape)
    if found != shape:
        value = summed(value, shape, outputs)
        if value is None:
            raise AutogradError(f"{named}: found shape {found}, expected shape compatible with {shape}\n"
                                "return a gradient of the argument's shape, or of a shape that it broadcasts to")
    if value.dtype == dtype:
        return value
    if value.dtype.kind == "c" and dtype.kind != "c":
        if not is_complex:
            raise AutogradError(f"{named}: found dtype {value.dtype}, expected {dtype}, the dtype of the argument\n"
                                "return its real part: gradient.real")
        value = value.real
    return value.astype(dtype)


def summed(gradient: Any, shape: tuple[int, ...], outputs: Sequence[Meta]) -> Any:
    """Sum a gradient that broadcasting made larger to the shape of the argument, or return None if that is impossible.

    An argument of one element is repeated to any shape. Its gradient must have the shape of a result.
    """
    if math.prod(shape) == 1 and all(tuple(gradient.shape) != result for result, _ in outputs):
        return None
    try:
        return _core.sum_to(gradient, shape)
    except ValueError:
        return None


def gradient_of_formula(node: Any, i: int, value: Any, meta: Meta, gradient: Any, is_complex: bool) -> Any:
    """Convert the result of a pack's formula for argument i to its gradient."""
    op = node.derivative.operator
    named = f"operator {op.name}: vjp returned an invalid gradient of argument {op.schema.arguments[i].name!r}"
    return as_gradient(value, meta, node.outputs or [meta_of(gradient)], named, is_complex=is_complex)


def check_gradients(op: OpOverload, found: Any, n: int, may_be_fewer: bool) -> None:
    """Raise AutogradError unless a formula returned `n` gradients, or with `may_be_fewer` at most that many.

    The number is not known if one of several arguments is a list.
    """
    if not isinstance(found, (tuple, list)) or len(found) > n or (len(found) < n and not may_be_fewer):
        what = f"{len(found)} gradients" if isinstance(found, (tuple, list)) else _core.a_type(found)
        raise AutogradError(f"operator {op.name}: vjp returned {what}, expected a tuple of {n}\n"
                            "return one gradient, or None, for each array that it differentiates with respect to")


def materialized(gradients: Sequence[Any], metas: Sequence[Any], like: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """Replace None among the gradients by zeros on the backend of a present gradient, from `like` if given."""
    present = next(gradient for gradient in like or gradients if gradient is not None)
    return tuple([
        zeros_beside(present, meta) if gradient is None else gradient
        for gradient, meta in zip(gradients, metas, strict=True)
    ])


_core.connect(
    function_is_used=function_is_used, record_custom=record_custom, apply_custom_on_tape=apply_custom_on_tape,
    checked_gradient=checked_gradient, gradient_of_formula=gradient_of_formula,
    check_gradients=lambda node, *found: check_gradients(node.derivative.operator, *found),
    zeros_beside=lambda gradient, meta: as_tensor(zeros_beside(gradient, meta)),
    needless_gradient=needless_gradient,
    materialize=lambda node, gradients: materialized(gradients, node.outputs),
)
