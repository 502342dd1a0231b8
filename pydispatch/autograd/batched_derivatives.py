"""The derivative of a batch of calls, made from the derivative of one call.

Every function of a derivative (save, backward, jvp) is written for one example. A `BatchedDerivative` runs each
function on all examples at once, under a separate `vmap`. A batch of calls is therefore one call with a derivative, and
the interpreters below see it as one. A function that passes its values to NumPy runs once per example instead.
"""

# tests: tests/library/test_derived.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Vmap
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch.autograd import batches
from pydispatch.autograd.custom_derivatives import leaf_gradients
from pydispatch.autograd.examples import ExampleContext, example_of, examples_of, on_each_example, warn_of_loop
from pydispatch.autograd.values import Meta, enter_arrays, meta_of, values_below, zeros_beside
from pydispatch.exceptions import AutogradError, ConversionError, VmapError
from pydispatch.ops import ops
from pydispatch.tree import TreeSpec, flat_spec, tree_flatten, tree_leaves, tree_unflatten


class _BatchedCall:
    """The facts about a batch of calls, other than residuals, that backward and jvp need.

    `backward` and `forward` hold for each residual whether it is a batch. `attributes` holds it for the leaves of each
    attribute that was set. If setup ran on each example in turn, `backward` and `forward` list for each example the
    residuals that it saved, and whether as a part of a batch.

    The attributes themselves belong to the context, where interpreters find them: `batch_attributes` by name, or else
    `example_attributes`, a dict for each example.
    """

    __slots__ = ("attributes", "backward", "forward", "is_flat", "metas", "size", "spec")

    def __init__(self, leaves: list[Any], spec: TreeSpec, batch: batches.BatchedArguments) -> None:
        self.size = batch.size(leaves)
        self.spec = spec            # of the arguments
        self.is_flat = spec is flat_spec(len(leaves))       # whether no argument is a pytree
        self.metas = [_meta_of_example(leaf, dim) for leaf, dim in zip(leaves, batch.dims, strict=True)]
        self.backward: Sequence[Any] = ()
        self.forward: Sequence[Any] = ()
        self.attributes: dict[str, batches.Dims] = {}


def _meta_of_example(leaf: Any, dim: int | None) -> Meta | None:
    meta = meta_of(leaf)
    return meta if dim is None or meta is None else (meta[0][1:], meta[1])


class BatchedDerivative(CustomDerivative):
    """The derivative of a batch of calls, built from the functions that differentiate one call.

    Its values are those of the interpreter below the vmap, with the batch axis first. All results are batches.
    """

    def __init__(self, derivative: CustomDerivative, batch: batches.BatchedArguments) -> None:
        self.single = derivative        # of one call
        self.batch = batch
        self.functions = derivative.functions
        self.name = f"vmap({derivative.name.removesuffix('Backward')})Backward"

    def check(self) -> None:
        """Raise if the derivative of one call no longer fits its operator."""
        self.single.check()

    # setup

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Call the user's function so that it saves the residuals of every example."""
        leaves, spec = tree_flatten(values)
        record = ctx.batch = _BatchedCall(leaves, spec, self.batch)
        ctx.example_attributes = None
        try:
            self.batch.under_vmap(record.size, self._setup_at_once, ctx, leaves, spec, output)
        except ConversionError:
            warn_of_loop(f"setup_context of {self.batch.name}", "write it with operators")
            _core.with_grad_mode(False, self._setup_one_by_one, ctx, leaves, spec, output)

    def _setup_at_once(self, interpreter: Vmap, ctx: Any, leaves: list[Any], spec: TreeSpec, output: Any) -> None:
        entered = _core.entered_leaves(interpreter, leaves, self.batch.dims)
        inner = ExampleContext(ctx)
        results = batches.entered_results(interpreter, output, leaves, entered)
        self.single.setup(inner, tree_unflatten(entered, spec), results)
        if inner.for_backward is not None:
            ctx.save_for_backward(*_core.leaves_below(inner.for_backward, interpreter))
            ctx.batch.backward = _core.dims_of_leaves(inner.for_backward, interpreter)
        if inner.for_forward is not None:
            ctx.save_for_forward(*_core.leaves_below(inner.for_forward, interpreter))
            ctx.batch.forward = _core.dims_of_leaves(inner.for_forward, interpreter)
        self._hand_on_marks(ctx, inner, self._marked, interpreter)
        attributes = ctx.batch_attributes = vars(inner)
        if attributes:
            ctx.batch.attributes = {name: batches.dims_of(value, interpreter) for name, value in attributes.items()}
            ctx.batch_attributes = values_below(attributes, interpreter)

    def _marked(self, tensor: Any, interpreter: Vmap) -> Any:
        if not _core.is_owned_by(tensor, interpreter):
            raise VmapError(f"{self.batch.name} marks an unbatched value as dirty or as an output\n"
                            "write to a copy, or batch that argument")
        return _core.value_below(tensor, interpreter)

    def _hand_on_marks(self, ctx: Any, inner: ExampleContext, change: Callable[..., Any], *args: Any) -> None:
        """Mark `change(tensor, *args)` for each tensor that the inner context marked."""
        if inner.dirty:
            ctx.mark_dirty(*[change(tensor, *args) for tensor in inner.dirty])
        if inner.non_differentiable:
            ctx.mark_non_differentiable(*[change(tensor, *args) for tensor in inner.non_differentiable])
        ctx.set_materialize_grads(inner.materialize)

    def _setup_one_by_one(self, ctx: Any, leaves: list[Any], spec: TreeSpec, output: Any) -> None:
        outputs, output_spec = tree_flatten(output)
        saved = _Saved([*leaves, *outputs], (*self.batch.dims, *[0] * len(outputs)))
        record = ctx.batch
        ctx.example_attributes, record.backward, record.forward = [], [], []
        for number in range(record.size):
            inner = ExampleContext(ctx)
            saved.parts = [*self.batch.example(leaves, number), *[examples_of(leaf, number) for leaf in outputs]]
            arguments, results = saved.parts[:len(leaves)], saved.parts[len(leaves):]
            self.single.setup(inner, tree_unflatten(arguments, spec), tree_unflatten(results, output_spec))
            record.backward.append([saved.residual_of(tensor) for tensor in inner.for_backward or ()])
            record.forward.append([saved.residual_of(tensor) for tensor in inner.for_forward or ()])
            ctx.example_attributes.append(vars(inner))
        ctx.save_for_backward(*saved.values)
        ctx.save_for_forward(*saved.values)
        if record.size:
            self._hand_on_marks(ctx, inner, saved.whole_of)

    # backward

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
        """Return one gradient per argument: a batch for a batch, the sum over all examples for a constant."""
        record = ctx.batch
        if record.size == 0:
            found = self._gradients_of_none(record, tree_leaves(grads))
        else:
            found, dims = self.batch.under_vmap(record.size, self._backward_at, ctx, grads)
            if dims != self.batch.dims:
                found = [
                    _reduced(value, found_dim, dim, record.size)
                    for value, found_dim, dim in zip(found, dims, self.batch.dims, strict=True)
                ]
        return found if record.is_flat else list(tree_unflatten(found, record.spec))

    def _gradients_of_none(self, record: _BatchedCall, grads: list[Any]) -> list[Any]:
        """Return the gradients if there are no examples: zeros."""
        present = next((gradient for gradient in grads if gradient is not None), None)
        return [
            None if meta is None or meta[1].kind not in "fc"
            else zeros_beside(present, meta if dim is None else ((0, *meta[0]), meta[1]))
            for meta, dim in zip(record.metas, self.batch.dims, strict=True)
        ]

    def _backward_at(self, interpreter: Vmap, ctx: Any, grads: tuple[Any, ...]) -> tuple[list[Any], batches.Dims]:
        """Return (gradients below the interpreter, which of them are batches)."""
        entries = self._call(interpreter, ctx, self.single.backward, enter_arrays(interpreter, grads), forward=False)
        gradients = self._gradients(entries, ctx.batch)
        return _core.leaves_below(gradients, interpreter), _core.dims_of_leaves(gradients, interpreter)

    def _call(self, interpreter: Vmap, ctx: Any, function: Any, values: tuple[Any, ...], *, forward: bool) -> Any:
        """Call `function(context, values)` of the derivative of one call, with its residuals."""
        if ctx.example_attributes is None:
            return function(self._restored(ctx, interpreter, forward=forward), values)
        saved = ctx.saved_tensors
        return on_each_example(
            interpreter, lambda number, *parts: function(self._restored_example(ctx, saved, number, forward=forward),
                                                         parts),
            values,
        )

    def _gradients(self, entries: Sequence[Any], record: _BatchedCall) -> list[Any]:
        """Return one gradient per leaf of the arguments, of the shape of one example."""
        flat = entries if record.is_flat else [
            gradient for i, (entry, spec) in enumerate(zip(entries, record.spec.children, strict=True))
            for gradient in leaf_gradients(entry, spec, i, self.single.name)
        ]
        return [self._of_shape(gradient, meta) for gradient, meta in zip(flat, record.metas, strict=True)]

    def _of_shape(self, gradient: Any, meta: Meta | None) -> Any:
        if meta is None or not _core.is_array(gradient):
            return gradient
        try:
            return _core.sum_to(gradient, meta[0])
        except ValueError:
            raise AutogradError(
                f"{self.single.name} returned an invalid gradient: found shape {tuple(gradient.shape)}, expected shape "
                f"compatible with {meta[0]}\n"
                "return a gradient of the argument's shape, or of a shape that it broadcasts to"
            ) from None

    # jvp

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """Return one tangent per result, each a batch."""
        pairs, spec = self.batch.under_vmap(ctx.batch.size, self._jvp_at, ctx, tangents)
        return tree_unflatten([batches.as_batch(value, dim, ctx.batch.size) for value, dim in pairs], spec)

    def _jvp_at(self, interpreter: Vmap, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        leaves, spec = tree_flatten(tangents)
        entered = tree_unflatten(_core.entered_leaves(interpreter, leaves, self.batch.dims), spec)
        found, found_spec = tree_flatten(self._call(interpreter, ctx, self.single.jvp, entered, forward=True))
        return [batches.left_leaf(interpreter, leaf) for leaf in found], found_spec

    # contexts

    def _restored(self, ctx: Any, interpreter: Vmap, *, forward: bool) -> ExampleContext:
        """Return the context of all examples, with values of an interpreter of vmap."""
        record = ctx.batch
        dims = record.forward if forward and record.forward else record.backward
        saved = _core.entered_leaves(interpreter, ctx.saved_tensors, dims)
        inner = ExampleContext(ctx, saved)
        for name, value in ctx.batch_attributes.items():
            leaves, spec = tree_flatten(value)
            entered = _core.entered_leaves(interpreter, leaves, record.attributes[name])
            setattr(inner, name, tree_unflatten(entered, spec))
        return inner

    def _restored_example(self, ctx: Any, saved: tuple[Any, ...], number: int, *, forward: bool) -> ExampleContext:
        """Return the context of one example, if setup ran for each."""
        record = ctx.batch
        places = record.forward[number] if forward and record.forward[number] else record.backward[number]
        inner = ExampleContext(ctx, [
            example_of(saved[i], number) if is_part and saved[i] is not None else saved[i] for i, is_part in places
        ])
        vars(inner).update(ctx.example_attributes[number])
        return inner


class _Saved:
    """The residuals of a batch if users' functions run on each example in turn.

    Arguments and results are saved whole, since a part of one would be a constant to further derivatives.
    """

    def __init__(self, wholes: list[Any], dims: batches.Dims) -> None:
        self.wholes = wholes
        self.dims = dims
        self.parts: list[Any] = []      # of the current example
        self.values: list[Any] = []
        self._places: dict[int, int] = {}

    def residual_of(self, tensor: Any) -> tuple[int, bool]:
        """Return the number of the residual that holds the tensor, and whether the tensor is a part of it."""
        i = self._position(tensor)
        if i is None:
            self.values.append(tensor)
            return len(self.values) - 1, False
        if i not in self._places:
            self._places[i] = len(self.values)
            self.values.append(self.wholes[i])
        return self._places[i], self.dims[i] is not None

    def whole_of(self, tensor: Any) -> Any:
        """Return the batch that a tensor is a part of."""
        i = self._position(tensor)
        return tensor if i is None else self.wholes[i]

    def _position(self, tensor: Any) -> int | None:
        return next((i for i, part in enumerate(self.parts) if part is tensor and _core.is_array(part)), None)


def _reduced(gradient: Any, found: int | None, dim: int | None, size: int) -> Any:
    """Convert the gradient of a batch to a batch, and sum that of a constant over all examples."""
    if not _core.is_array(gradient):
        return gradient
    if dim is not None:
        return batches.as_batch(gradient, found, size)
    return gradient if found is None else ops.np.sum(gradient, 0)
