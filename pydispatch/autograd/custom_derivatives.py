"""Custom derivatives: operators that functions of users differentiate, on the same tape as library operators.

`autograd.Function` and custom operators both become a CustomDerivative: `setup` after the forward call, `backward`
with one gradient per result, `jvp` with one tangent per argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from pydispatch import _core
from pydispatch._core import Context, CustomNode, OpOverload, Tensor
from pydispatch.autograd.anomaly import note_origin
from pydispatch.autograd.values import Meta, as_raw_constant, as_tensor, meta_of, values_below, zeros_beside
from pydispatch.exceptions import AutogradError
from pydispatch.registry.derivatives import CustomDerivative
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
    """Note that functions of users may run later: those of a CustomDerivative, or of an operator.

    Running a function does not show what these capture.
    """
    owners = _owners.get()
    if owners is not None and owner not in owners:
        owners.append(owner)


def noting_owners(owners: list[Any], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, and add to the list whose functions may run later."""
    token = _owners.set(owners)
    try:
        return function(*args)
    finally:
        _owners.reset(token)


class TapeDerivative:
    """The derivative of a node that the tape itself adds, where formulas do not suffice. It runs in any interpreter."""

    name: str

    def run(self, gradient: Any) -> tuple[Any, ...]:
        """One gradient per edge."""
        raise NotImplementedError


class GradientStructure:
    """The structure of a node's gradients for the functions of users: one entry per result and argument."""

    __slots__ = ("arguments", "results", "single")

    def __init__(self, values: tuple[Any, ...], output: Any, single: bool) -> None:
        self.single = single
        self.arguments = tuple([tree_flatten(value)[1] if _holds_arrays(value) else None for value in values])
        outputs = (output,) if single else output
        self.results = tuple([_result_spec(result) for result in outputs])

    def nest(self, gradients: list[Any]) -> tuple[Any, ...]:
        """One entry per result: a gradient, a pytree of them, or None for what is no array."""
        left = iter(gradients)
        return tuple([
            None if spec is None else tree_unflatten(
                [next(left) if is_tensor else None for is_tensor in tensors], spec)
            for spec, tensors in self.results
        ])

    def flatten(self, entries: Sequence[Any], node: CustomNode) -> list[Any]:
        """One gradient per edge, from one entry per argument."""
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
    """One gradient per leaf of an argument; AutogradError for an entry that is not nested as the argument is.

    `name` is that of the node, for messages.
    """
    if spec.type is None:
        return [entry]
    leaves = leaves_like(spec, entry)
    if leaves is None:
        raise AutogradError(
            f"{name} returned for argument {i} a gradient that does not have the same structure as the inputs: "
            f"expected {described_structure(spec)}, found {described_structure(tree_flatten(entry)[1])}\n"
            "return one gradient, or None, for each of its elements"
        )
    return leaves


def leaves_like(spec: TreeSpec, entry: Any) -> list[Any] | None:
    """One gradient or tangent for each leaf of what has this spec; None for an entry that is not nested as that is.

    Lists and tuples are as good as one another. An entry that is None stands for None everywhere.
    """
    return [None] * n_leaves(spec) if entry is None else in_order_of(spec, *tree_flatten(entry), any_sequence=True)


# --- recording -------------------------------------------------------------------------------------------------------


def record_custom(op: OpOverload, derivative: CustomDerivative, values: tuple[Any, ...], output: Any,
                  interpreter: Any) -> None:
    """Let the derivative of one call save its residuals, and attach a node to the results, `output`."""
    single = not isinstance(output, tuple) or len(op.schema.returns) == 1
    ctx = Context(tuple([needs_grad(value, interpreter) for value in values]), interpreter)
    if interpreter is None:
        _core.with_grad_mode(False, derivative.setup, ctx, values, output)
    else:
        derivative.setup(ctx, values, output)
    attach_node(derivative, ctx, values, output, single, interpreter)


def seal_for_forward(ctx: Context, interpreter: Any) -> None:
    """From here on the context has values of the interpreter below: those saved for `jvp`, and attributes."""
    ctx.seal_for_forward()
    vars(ctx).update(values_below(vars(ctx), interpreter))


def needs_grad(value: Any, interpreter: Any) -> Any:
    """Is it tracked at this interpreter? For a pytree: a tuple or dict with the answer for each element."""
    if isinstance(value, (tuple, list)):
        return tuple([needs_grad(item, interpreter) for item in value])
    if isinstance(value, dict):
        return {key: needs_grad(item, interpreter) for key, item in value.items()}
    return _core.is_tracked_at(value, interpreter)


def attach_node(
    derivative: Any, ctx: Context, values: tuple[Any, ...], output: Any, single: bool, interpreter: Any
) -> None:
    """Make the node of a call and say that the differentiable outputs are its results."""
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
    """The gradients of a node whose derivative is a TapeDerivative, one per edge."""
    if gradient is None:
        return [None] * len(node.edges_out)
    return [
        None if edge is None else result
        for edge, result in zip(node.edges_out, node.custom_derivative.run(gradient), strict=True)
    ]


def needless_gradient(node: CustomNode, i: int) -> AutogradError:
    """What to say of a gradient for an argument that can have none."""
    return AutogradError(f"{node.name} returned a gradient different than None at position {i}, for an argument that "
                         "holds no array\nreturn None there")


def checked_gradient(value: Any, meta: Meta, i: int, node: CustomNode, create_graph: bool) -> Any:
    """A gradient that a user's function returned, with the shape and dtype of the argument."""
    shape, dtype = meta
    if not _core.is_array(value):
        raise AutogradError(
            f"{node.name} returned for argument {i} {_core.a_type(value)}, expected a Tensor or None\n"
            "return Tensor(numpy.asarray(...))"
        )
    found = tuple(value.shape)
    if found != shape:
        try:
            value = _core.sum_to(value, shape)
        except ValueError:
            raise AutogradError(
                f"{node.name} returned an invalid gradient at index {i}: found shape {found}, expected shape "
                f"compatible with {shape}\n"
                "return a gradient of the shape of the argument, or one that broadcasting made larger"
            ) from None
    if value.dtype != dtype:
        if value.dtype.kind == "c" and dtype.kind != "c":
            raise AutogradError(
                f"{node.name} returned an invalid gradient at index {i}: found dtype {value.dtype}, expected {dtype}\n"
                "return its real part: gradient.real"
            )
        value = value.astype(dtype)
    return value if create_graph else as_raw_constant(value)


def materialized(gradients: Sequence[Any], metas: Sequence[Any], like: Sequence[Any] | None = None) -> tuple[Any, ...]:
    """The gradients, with zeros for None, of the backend of those that are there; one at least is, among `like`."""
    present = next(gradient for gradient in like or gradients if gradient is not None)
    return tuple([
        zeros_beside(present, meta) if gradient is None else gradient
        for gradient, meta in zip(gradients, metas, strict=True)
    ])


_core.connect(
    function_is_used=function_is_used, record_custom=record_custom, apply_custom_on_tape=apply_custom_on_tape,
    checked_gradient=checked_gradient,
    zeros_beside=lambda gradient, meta: as_tensor(zeros_beside(gradient, meta)),
    needless_gradient=needless_gradient,
    materialize=lambda node, gradients: materialized(gradients, node.outputs),
)
