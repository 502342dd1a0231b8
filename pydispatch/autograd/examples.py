"""Run users' functions that take NumPy arrays on each example of a batch in turn."""

# tests: tests/library/test_custom_operator.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import Context, Vmap
from pydispatch._sites import frames_to_caller
from pydispatch.exceptions import AutogradError, ConversionError, PerformanceWarning, VmapError
from pydispatch.ops import ops
from pydispatch.tree import in_order_of, tree_flatten, tree_map, tree_unflatten


def example_of(value: Any, number: int) -> Any:
    """Return one example of a batch, as a view."""
    return ops.np.getitem(value, (number, Ellipsis))


def examples_of(value: Any, number: int) -> Any:
    """Return one example of a pytree whose arrays are all batches."""
    return tree_map(lambda leaf: example_of(leaf, number) if _core.is_array(leaf) else leaf, value)


def warn_of_loop(what: str, remedy: str) -> None:
    """Warn that something runs once per example."""
    warnings.warn(
        f"{what} runs once for each example of vmap, because it takes NumPy arrays\n{remedy}", PerformanceWarning,
        stacklevel=frames_to_caller(),
    )


class ExampleContext:
    """The `ctx` that users' functions get while they run on one example, or on a batch as if it were one.

    Its `__dict__` holds only the attributes that they set.
    """

    __slots__ = ("__dict__", "_is_forward", "dependencies", "dirty", "for_backward", "for_forward", "materialize",
                 "needs_input_grad", "non_differentiable", "saved_tensors")

    needs_input_grad: tuple[Any, ...]
    dependencies: tuple[Any, ...]
    materialize: bool
    _is_forward: bool

    def __init__(self, outer: Context | ExampleContext, saved: Sequence[Any] = ()) -> None:
        self.needs_input_grad = outer.needs_input_grad
        self.saved_tensors = tuple(saved)
        self.dependencies = outer.dependencies
        self.materialize = outer.materialize
        self._is_forward = outer._is_forward
        self.dirty: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.for_backward: tuple[Any, ...] | None = None
        self.for_forward: tuple[Any, ...] | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """Save residuals, like the method of the real context. The other methods also match it."""
        if self.for_backward is not None:
            raise AutogradError("ctx.save_for_backward was called twice\ncall it once, with all values to save")
        self.for_backward = self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


def split_for_numpy(
    what: str, function: Callable[..., Any], n_values: int | None = None, *, warns: bool = True,
) -> Callable[..., Any]:
    """Make a user's `function(ctx, *values)` run on each example if it converts values of a vmap to NumPy arrays.

    `n_values`, if known, makes it faster. It warns of the loop if `warns` is set.
    """

    def run(ctx: Any, *values: Any) -> Any:
        try:
            return function(ctx, *values)
        except ConversionError:
            interpreter = _core.innermost_transform_now()
            if not isinstance(interpreter, Vmap) or interpreter.batch_size == 0:
                raise
        if warns:
            warn_of_loop(what, "write it with operators")
        context = _split_context(ctx, interpreter)
        return on_each_example(interpreter, lambda number, *parts: run(context(number), *parts), values)

    def run_on_one(ctx: Any, value: Any) -> Any:
        try:
            return function(ctx, value)
        except ConversionError:
            return run(ctx, value)

    return run_on_one if n_values == 1 else run


def _split_context(ctx: Any, interpreter: Vmap) -> Callable[[int], Any]:
    """Return a function from the number of an example to its context."""
    if not isinstance(ctx, (Context, ExampleContext)):
        return lambda number: ctx
    saved, attributes = ctx.saved_tensors, dict(vars(ctx))

    def context(number: int) -> ExampleContext:
        parts = [_part(interpreter, tensor, number) for tensor in saved]
        inner = ExampleContext(ctx, parts)
        vars(inner).update({name: _part(interpreter, value, number) for name, value in attributes.items()})
        return inner

    return context


def on_each_example(interpreter: Vmap, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """Call `function(number, *parts of values)` for each example, below the interpreter, and wrap the results."""

    def run() -> tuple[list[list[Any]], Any]:
        results = [
            function(number, *[_part(interpreter, value, number) for value in values])
            for number in range(interpreter.batch_size)
        ]
        spec = tree_flatten(results[0])[1]
        rows = [in_order_of(spec, *tree_flatten(result)) for result in results]
        if None in rows:
            raise VmapError("the results differ in structure between the examples of vmap\n"
                            "return gradients or tangents for the same arrays in every example")
        return [_batch_of(interpreter, column) for column in zip(*rows, strict=True)], spec

    leaves, spec = _core.lowered(interpreter, run)
    return tree_unflatten(leaves, spec)


def _part(interpreter: Vmap, value: Any, number: int) -> Any:
    """Return one example of a batch, or of the batches in a pytree."""

    def part(leaf: Any) -> Any:
        leaf = _core.live_value(leaf)       # an attribute may hold a dead wrapper of a `grad`
        if not _core.is_owned_by(leaf, interpreter):
            return leaf
        return example_of(_core.value_below(leaf, interpreter), number)

    return tree_map(part, value)


def _batch_of(interpreter: Vmap, column: tuple[Any, ...]) -> Any:
    """Stack one gradient or tangent of each example. None becomes zeros if another example has an array."""
    present = next((leaf for leaf in column if _core.is_array(leaf)), None)
    if present is None:
        return column[0]
    there = [ops.np.zeros_like(present) if leaf is None else leaf for leaf in column]
    return _core.wrap_value_at(interpreter, ops.np.stack(there))
