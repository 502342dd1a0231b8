"""Rules for a batch of calls, made of the rule for one call.

Every piece of a rule (save, backward, jvp) is written for one example. A `VmappedRule` runs each of them on all
examples at once, under a `vmap` of its own: what a batch of calls does is again one call, with a rule like any other,
that lower levels see whole. A piece that hands its values to NumPy runs once per example instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import BatchedTensor, Context, Vmap
from pydispatch.autograd.rules import Rule, count_leaves, leaf_gradients, zeros_beside
from pydispatch.autograd.values import Meta, meta_of
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, PerformanceWarning, VmapError
from pydispatch.ops import ops
from pydispatch.registry import frames_to_caller
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_map, tree_unflatten

Dims = tuple[int | None, ...]       # one per leaf: 0 for a batch, whose first axis it is; None for a constant


def dims_of(value: Any, level: Vmap) -> Dims:
    """Which leaves of a container are batches of this level."""
    return dims_of_leaves(tree_leaves(value), level)


def dims_of_leaves(leaves: Iterable[Any], level: Vmap) -> Dims:
    """Which of these are batches of this level."""
    return tuple([0 if _core.is_owned_by(leaf, level) else None for leaf in leaves])


def example_of(value: Any, number: int) -> Any:
    """One example of a batch, as a view."""
    return ops.np.getitem(value, (number, Ellipsis))


def examples_of(value: Any, number: int) -> Any:
    """The same for a container whose arrays are all batches."""
    return tree_map(lambda leaf: example_of(leaf, number) if _core.is_array(leaf) else leaf, value)


def warn_of_loop(what: str, remedy: str) -> None:
    """Tell that something runs once per example."""
    warnings.warn(
        f"{what} runs once for each example of vmap, because it takes NumPy arrays\n{remedy}", PerformanceWarning,
        stacklevel=frames_to_caller(),
    )


class Batch:
    """Which leaves of the arguments of a call are batches, and what is called on them: at once, or one by one.

    `name` is what is called, `remedy` what to advise against a loop.
    """

    def __init__(self, name: str, dims: Dims, randomness: str, remedy: str) -> None:
        self.name = name
        self.dims = dims
        self.randomness = randomness
        self.remedy = remedy

    def size(self, leaves: Sequence[Any]) -> int:
        """The number of examples."""
        return next(int(leaf.shape[0]) for leaf, dim in zip(leaves, self.dims, strict=True) if dim is not None)

    def under_vmap(self, size: int, function: Callable[..., Any], *args: Any) -> Any:
        """`function(level, *args)` in a level of vmap of its own."""
        level = Vmap(size, self.randomness, f"vmap({self.name})")
        _core.enter_level(level)
        try:
            return function(level, *args)
        finally:
            _core.leave_level(level)

    def at_once(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """What the function gives for all examples; every array of it is a batch."""
        leaves, spec = tree_flatten(values)
        size = self.size(leaves)

        def run(level: Vmap) -> Any:
            entered = _entered(level, leaves, self.dims)
            try:
                output = function(*tree_unflatten(entered, spec))
            except ConversionError as error:
                if any(isinstance(leaf, BatchedTensor) and leaf._version for leaf in entered):
                    raise self._written_halfway(error) from error
                raise
            results, output_spec = tree_flatten(output)
            return output_spec, [_left(level, leaf) for leaf in results]

        output_spec, found = self.under_vmap(size, run)
        return tree_unflatten([_as_result(value, dim, size) for value, dim in found], output_spec)

    def one_by_one(
        self, function: Callable[..., Any], values: tuple[Any, ...], of_none: Callable[[], Any] | None = None,
        size: int | None = None,
    ) -> Any:
        """What the function gives for each example, stacked. `of_none` gives what it is when there are none.

        `size` is the number of examples, where no argument tells.
        """
        leaves, spec = tree_flatten(values)
        size = self.size(leaves) if size is None else size
        if size == 0:
            if of_none is None:
                raise VmapError(f"{self.name}: vmap over no examples, and what the result looks like is known only "
                                f"from calling it\n{self.remedy}")
            return of_none()
        warn_of_loop(self.name, self.remedy)
        results, sliced = [], []
        for number in range(size):
            sliced.append(self.example(leaves, number))
            results.append(function(*tree_unflatten(sliced[-1], spec)))
        return self._stacked(results, sliced, leaves)

    def example(self, leaves: Sequence[Any], number: int) -> list[Any]:
        """The leaves of one call."""
        return [
            leaf if dim is None or leaf is None else example_of(leaf, number)
            for leaf, dim in zip(leaves, self.dims, strict=True)
        ]

    def _written_halfway(self, error: ConversionError) -> VmapError:
        """What has written to arguments must not be run again, one by one."""
        return VmapError(f"{self.name}: inside of vmap it wrote to an argument before it took one for a NumPy array: "
                         f"{str(error).splitlines()[0]}\n{self.remedy}")

    def _stacked(self, results: list[Any], sliced: list[list[Any]], leaves: list[Any]) -> Any:
        flat = [tree_flatten(result) for result in results]
        spec = flat[0][1]
        if any(found != spec for _, found in flat):
            raise VmapError(f"{self.name}: the results of the examples of vmap are not nested alike\n"
                            "return the same kind of result for every example")
        columns = zip(*[found for found, _ in flat], strict=True)
        return tree_unflatten([self._column(list(column), sliced, leaves) for column in columns], spec)

    def _column(self, column: list[Any], sliced: list[list[Any]], leaves: list[Any]) -> Any:
        """One leaf of the results, from those of each example; what is an argument is that argument."""
        for position, leaf in enumerate(leaves):
            if _core.is_array(leaf) and all(
                found is given[position] for found, given in zip(column, sliced, strict=True)
            ):
                return _as_result(leaf, self.dims[position], len(column))
        if all(map(_core.is_array, column)):
            shapes = {tuple(array.shape) for array in column}
            if len(shapes) > 1:
                raise DataDependentError(f"{self.name}: the results of the examples of vmap have different shapes: "
                                         f"{', '.join(map(str, sorted(shapes)))}\ncall it on one example at a time")
            return ops.np.stack(column)
        first = column[0]
        if any(type(other) is not type(first) or other != first for other in column[1:]):
            raise VmapError(f"{self.name}: a result that is no array differs between the examples of vmap: {first!r} "
                            "and others\nreturn it as an array")
        return first


def _entered(level: Vmap, leaves: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    return [
        leaf if dim is None or leaf is None else _core.wrap_value_at(level, leaf)
        for leaf, dim in zip(leaves, dims, strict=True)
    ]


def _entered_whole(level: Vmap, value: Any) -> Any:
    """A container whose arrays are all batches."""
    return tree_map(lambda leaf: _core.wrap_value_at(level, leaf) if _core.is_array(leaf) else leaf, value)


def _left(level: Vmap, leaf: Any) -> tuple[Any, int | None]:
    """(value below, whether it is a batch)."""
    if _core.is_owned_by(leaf, level):
        return _core.value_below(leaf, level), 0
    return leaf, None


def _as_batch(value: Any, dim: int | None, size: int) -> Any:
    """The value with a batch axis: of a constant every example is the same."""
    if dim is not None or not _core.is_array(value):
        return value
    return ops.np.broadcast_to(value, (size, *value.shape))


def _as_result(value: Any, dim: int | None, size: int) -> Any:
    """The same with memory of its own, which may be written to."""
    return value if dim is not None or not _core.is_array(value) else ops.np.copy(_as_batch(value, None, size))


# --- contexts --------------------------------------------------------------------------------------------------------


class ExampleContext:
    """What the functions of an author get for `ctx` while they run on one example, or on a batch as if it were one."""

    def __init__(self, needs_input_grad: tuple[Any, ...], saved: Sequence[Any] = (), dependencies: Any = ()) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors = tuple(saved)
        self.dependencies = dependencies
        self.materialize = True
        self.dirty: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.for_backward: tuple[Any, ...] | None = None
        self.for_forward: tuple[Any, ...] | None = None

    def save_for_backward(self, *tensors: Any) -> None:
        """As that of the real one, and so are the other methods."""
        if self.for_backward is not None:
            raise AutogradError("ctx.save_for_backward was called twice\ncall it once, with everything that is saved")
        self.for_backward = self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        self.for_forward = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        self.dirty = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


_OWN = frozenset(vars(ExampleContext(())))


def _set_by_author(ctx: ExampleContext) -> dict[str, Any]:
    return {name: value for name, value in vars(ctx).items() if name not in _OWN}


class _Record:
    """What is known of a call when its backward or jvp runs, besides what was saved.

    `backward` and `forward` say of what was saved whether it is a batch; `attributes` says it of the leaves of each
    attribute that was set. Where setup ran for one example after the other, `examples` has the attributes of each, and
    `backward` and `forward` say for each which of the saved values it saved, and whether as a part of a batch.
    """

    __slots__ = ("attributes", "backward", "examples", "forward", "metas", "size", "specs")

    def __init__(self, leaves: list[Any], specs: tuple[Any, ...], batch: Batch) -> None:
        self.size = batch.size(leaves)
        self.specs = specs          # of each argument
        self.metas = [_meta_of_example(leaf, dim) for leaf, dim in zip(leaves, batch.dims, strict=True)]
        self.backward: Sequence[Any] = ()
        self.forward: Sequence[Any] = ()
        self.attributes: dict[str, Dims] = {}
        self.examples: list[dict[str, Any]] | None = None


def _meta_of_example(leaf: Any, dim: int | None) -> Meta | None:
    meta = meta_of(leaf)
    return meta if dim is None or meta is None else (meta[0][1:], meta[1])


# --- rules -----------------------------------------------------------------------------------------------------------


class VmappedRule(Rule):
    """How a batch of calls is differentiated by the functions that differentiate one.

    Its values are those of the level below the vmap, with the batch axis first; all results are batches.
    """

    def __init__(self, rule: Rule, batch: Batch) -> None:
        self.rule = rule
        self.batch = batch
        self.name = f"vmap({rule.name.removesuffix('Backward')})Backward"

    def check(self) -> None:
        """Raise when the rule for one call no longer fits its operator."""
        self.rule.check()

    # setup

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Have the author save what is needed of every example."""
        leaves, spec = tree_flatten(values)
        record = ctx.batch = _Record(leaves, spec.children, self.batch)
        try:
            self.batch.under_vmap(record.size, self._setup_at_once, ctx, leaves, spec, output)
        except ConversionError:
            warn_of_loop(f"setup_context of {self.batch.name}", "write it with operators")
            _core.with_grad_mode(False, self._setup_one_by_one, ctx, leaves, spec, output)

    def _setup_at_once(self, level: Vmap, ctx: Any, leaves: list[Any], spec: TreeSpec, output: Any) -> None:
        entered = _entered(level, leaves, self.batch.dims)
        inner = ExampleContext(ctx.needs_input_grad)
        self.rule.setup(inner, tree_unflatten(entered, spec), _entered_output(level, output, leaves, entered))
        if inner.for_backward is not None:
            ctx.save_for_backward(*[_core.value_below(tensor, level) for tensor in inner.for_backward])
            ctx.batch.backward = dims_of_leaves(inner.for_backward, level)
        if inner.for_forward is not None:
            ctx.save_for_forward(*[_core.value_below(tensor, level) for tensor in inner.for_forward])
            ctx.batch.forward = dims_of_leaves(inner.for_forward, level)
        self._hand_on_marks(ctx, inner, lambda tensor: self._marked(tensor, level))
        attributes = _set_by_author(inner)
        ctx.batch.attributes = {name: dims_of(value, level) for name, value in attributes.items()}
        ctx.batch_attributes = tree_map(lambda leaf: _core.value_below(leaf, level), attributes)

    def _marked(self, tensor: Any, level: Vmap) -> Any:
        if not _core.is_owned_by(tensor, level):
            raise VmapError(f"{self.batch.name} marks what all examples of vmap share, as written to or as an output\n"
                            "write to a copy, or map over that argument too")
        return _core.value_below(tensor, level)

    def _hand_on_marks(self, ctx: Any, inner: ExampleContext, change: Callable[[Any], Any]) -> None:
        if inner.dirty:
            ctx.mark_dirty(*map(change, inner.dirty))
        if inner.non_differentiable:
            ctx.mark_non_differentiable(*map(change, inner.non_differentiable))
        ctx.set_materialize_grads(inner.materialize)

    def _setup_one_by_one(self, ctx: Any, leaves: list[Any], spec: TreeSpec, output: Any) -> None:
        outputs, output_spec = tree_flatten(output)
        saved = _Saved([*leaves, *outputs], (*self.batch.dims, *[0] * len(outputs)))
        record = ctx.batch
        record.examples, record.backward, record.forward = [], [], []
        for number in range(record.size):
            inner = ExampleContext(ctx.needs_input_grad)
            saved.parts = [*self.batch.example(leaves, number), *[examples_of(leaf, number) for leaf in outputs]]
            arguments, results = saved.parts[:len(leaves)], saved.parts[len(leaves):]
            self.rule.setup(inner, tree_unflatten(arguments, spec), tree_unflatten(results, output_spec))
            record.backward.append([saved.place_of(tensor) for tensor in inner.for_backward or ()])
            record.forward.append([saved.place_of(tensor) for tensor in inner.for_forward or ()])
            record.examples.append(_set_by_author(inner))
        ctx.save_for_backward(*saved.values)
        ctx.save_for_forward(*saved.values)
        if record.size:
            self._hand_on_marks(ctx, inner, saved.whole_of)

    # backward

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
        """One gradient per argument: of a batch a batch, of a constant the sum over all examples."""
        record = ctx.batch
        if record.size == 0:
            found = self._gradients_of_none(record, tree_leaves(grads))
        else:
            pairs = self.batch.under_vmap(record.size, self._backward_at, ctx, grads)
            found = [
                _reduced(value, found_dim, dim, record.size)
                for (value, found_dim), dim in zip(pairs, self.batch.dims, strict=True)
            ]
        left = iter(found)
        return [tree_unflatten([next(left) for _ in range(count_leaves(spec))], spec) for spec in record.specs]

    def _gradients_of_none(self, record: _Record, grads: list[Any]) -> list[Any]:
        """The same where there are no examples: zeros."""
        present = next((gradient for gradient in grads if gradient is not None), None)
        return [
            None if meta is None or meta[1].kind not in "fc"
            else zeros_beside(present, meta if dim is None else ((0, *meta[0]), meta[1]))
            for meta, dim in zip(record.metas, self.batch.dims, strict=True)
        ]

    def _backward_at(self, level: Vmap, ctx: Any, grads: tuple[Any, ...]) -> list[tuple[Any, int | None]]:
        entered = tuple([_entered_whole(level, gradient) for gradient in grads])
        entries = self._call(level, ctx, self.rule.backward, entered, forward=False)
        return [_left(level, gradient) for gradient in self._gradients(entries, ctx.batch)]

    def _call(self, level: Vmap, ctx: Any, function: Any, values: tuple[Any, ...], *, forward: bool) -> Any:
        """`function(context, values)` of the rule for one call, with what was saved for it."""
        if ctx.batch.examples is None:
            return function(self._restored(ctx, level, forward=forward), values)
        saved = ctx.saved_tensors
        return on_each_example(
            level, lambda number, *parts: function(self._restored_example(ctx, saved, number, forward=forward), parts),
            values,
        )

    def _gradients(self, entries: Sequence[Any], record: _Record) -> list[Any]:
        """One gradient per leaf of the arguments, of the shape of one example."""
        flat: list[Any] = []
        for i, (entry, spec) in enumerate(zip(entries, record.specs, strict=True)):
            flat += leaf_gradients(entry, spec, i, self.rule)
        return [self._of_shape(gradient, meta) for gradient, meta in zip(flat, record.metas, strict=True)]

    def _of_shape(self, gradient: Any, meta: Meta | None) -> Any:
        if meta is None or not _core.is_array(gradient):
            return gradient
        try:
            return _core.sum_to(gradient, meta[0])
        except ValueError:
            raise AutogradError(
                f"{self.rule.name} returned an invalid gradient: found shape {tuple(gradient.shape)}, expected shape "
                f"compatible with {meta[0]}\n"
                "return a gradient of the shape of the argument, or one that broadcasting made larger"
            ) from None

    # jvp

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        """One tangent per result, each a batch."""
        pairs, spec = self.batch.under_vmap(ctx.batch.size, self._jvp_at, ctx, tangents)
        return tree_unflatten([_as_batch(value, dim, ctx.batch.size) for value, dim in pairs], spec)

    def _jvp_at(self, level: Vmap, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        leaves, spec = tree_flatten(tangents)
        entered = tree_unflatten(_entered(level, leaves, self.batch.dims), spec)
        found, found_spec = tree_flatten(self._call(level, ctx, self.rule.jvp, entered, forward=True))
        return [_left(level, leaf) for leaf in found], found_spec

    # contexts

    def _restored(self, ctx: Any, level: Vmap, *, forward: bool) -> ExampleContext:
        """The context of all examples, as values of a level of vmap."""
        record = ctx.batch
        saved = _entered(level, ctx.saved_tensors, record.forward if forward and record.forward else record.backward)
        inner = ExampleContext(ctx.needs_input_grad, saved, ctx.dependencies)
        inner.materialize = ctx.materialize
        for name, value in ctx.batch_attributes.items():
            leaves, spec = tree_flatten(value)
            setattr(inner, name, tree_unflatten(_entered(level, leaves, record.attributes[name]), spec))
        return inner

    def _restored_example(self, ctx: Any, saved: tuple[Any, ...], number: int, *, forward: bool) -> ExampleContext:
        """The context of one example, where setup ran for each."""
        record = ctx.batch
        places = record.forward[number] if forward and record.forward[number] else record.backward[number]
        inner = ExampleContext(ctx.needs_input_grad, [
            example_of(saved[i], number) if is_part and saved[i] is not None else saved[i] for i, is_part in places
        ], ctx.dependencies)
        inner.materialize = ctx.materialize
        vars(inner).update(record.examples[number])
        return inner


class _Saved:
    """What is saved of a batch where the functions of an author see one example after the other.

    Arguments and results are saved whole, since a part of one would be a constant to further derivatives.
    """

    def __init__(self, wholes: list[Any], dims: Dims) -> None:
        self.wholes = wholes
        self.dims = dims
        self.parts: list[Any] = []      # of the present example
        self.values: list[Any] = []
        self._places: dict[int, int] = {}

    def place_of(self, tensor: Any) -> tuple[int, bool]:
        """Where it is among the values, and whether as a part."""
        i = self._position(tensor)
        if i is None:
            self.values.append(tensor)
            return len(self.values) - 1, False
        if i not in self._places:
            self._places[i] = len(self.values)
            self.values.append(self.wholes[i])
        return self._places[i], self.dims[i] is not None

    def whole_of(self, tensor: Any) -> Any:
        """The batch that it is a part of."""
        i = self._position(tensor)
        return tensor if i is None else self.wholes[i]

    def _position(self, tensor: Any) -> int | None:
        return next((i for i, part in enumerate(self.parts) if part is tensor and _core.is_array(part)), None)


def _entered_output(level: Vmap, output: Any, leaves: list[Any], entered: list[Any]) -> Any:
    """The results as values of the level; what is an argument is the same argument there."""

    def enter(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        for lower, upper in zip(leaves, entered, strict=True):
            if lower is leaf and upper is not leaf:
                return upper
        return _core.wrap_value_at(level, leaf)

    return tree_map(enter, output)


def _reduced(gradient: Any, found: int | None, dim: int | None, size: int) -> Any:
    """The gradient of a batch as a batch, that of a constant summed over all examples."""
    if not _core.is_array(gradient):
        return gradient
    if dim is not None:
        return _as_batch(gradient, found, size)
    return gradient if found is None else ops.np.sum(gradient, 0)


# --- functions that authors write ------------------------------------------------------------------------------------


def split_for_numpy(what: str, function: Callable[..., Any], n_values: int | None = None) -> Callable[..., Any]:
    """An author's `function(ctx, *values)`; where it takes values of a vmap for NumPy arrays, it runs on each example.

    `n_values`, where that is known, makes it faster.
    """

    def run(ctx: Any, *values: Any) -> Any:
        try:
            return function(ctx, *values)
        except ConversionError:
            level = _core.innermost_transform_now()
            if not isinstance(level, Vmap) or level.batch_size == 0:
                raise
        warn_of_loop(what, "write it with operators")
        context = _split_context(ctx, level)
        return on_each_example(level, lambda number, *parts: run(context(number), *parts), values)

    def run_on_one(ctx: Any, value: Any) -> Any:
        try:
            return function(ctx, value)
        except ConversionError:
            return run(ctx, value)

    return run_on_one if n_values == 1 else run


def _split_context(ctx: Any, level: Vmap) -> Callable[[int], Any]:
    """The context of each example, from that of all."""
    if not isinstance(ctx, (Context, ExampleContext)):
        return lambda number: ctx
    saved, attributes = ctx.saved_tensors, {name: value for name, value in vars(ctx).items() if name not in _OWN}

    def context(number: int) -> ExampleContext:
        parts = [_part(level, tensor, number) for tensor in saved]
        inner = ExampleContext(ctx.needs_input_grad, parts, ctx.dependencies)
        inner.materialize = ctx.materialize
        vars(inner).update({name: _part(level, value, number) for name, value in attributes.items()})
        return inner

    return context


def on_each_example(level: Vmap, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """`function(number, *parts of values)` for each example, where the level is absent; the results as its values."""

    def run() -> tuple[list[list[Any]], Any]:
        rows = [
            tree_flatten(function(number, *[_part(level, value, number) for value in values]))
            for number in range(level.batch_size)
        ]
        spec = rows[0][1]
        if any(found != spec for _, found in rows):
            raise VmapError("the results of the examples of vmap are not nested alike\n"
                            "return gradients or tangents for the same arrays of every example")
        return [_batch_of(level, column) for column in zip(*[leaves for leaves, _ in rows], strict=True)], spec

    leaves, spec = _core.lowered(level, run)
    return tree_unflatten(leaves, spec)


def _part(level: Vmap, value: Any, number: int) -> Any:
    """One example of what is a batch, or of the batches in a container."""

    def part(leaf: Any) -> Any:
        leaf = _core.live_value(leaf)       # an attribute may hold a value of a `grad` that is over
        return example_of(_core.value_below(leaf, level), number) if _core.is_owned_by(leaf, level) else leaf

    return tree_map(part, value)


def _batch_of(level: Vmap, column: tuple[Any, ...]) -> Any:
    """One gradient or tangent of each example as one of the level; None is zeros beside others."""
    present = next((leaf for leaf in column if _core.is_array(leaf)), None)
    if present is None:
        return column[0]
    return _core.wrap_value_at(level, ops.np.stack([ops.np.zeros_like(present) if leaf is None else leaf
                                                    for leaf in column]))



def call_batching_rule(
    what: str, rule: Callable[..., Any], level: Vmap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What a batching rule `(info, in_dims, *args, **kwargs) -> (output, out_dims)` gives, as values of the level.

    It runs on the values below, where the level is absent. VmapError for a result of another kind.
    """
    in_dims = tree_map(lambda leaf: 0 if _core.is_owned_by(leaf, level) else None, args)
    below = tree_map(lambda leaf: _core.value_below(leaf, level), args)
    found = rule(level, in_dims, *below, **kwargs)
    if type(found) is not tuple or len(found) != 2:
        kind = f"a tuple of {len(found)}" if type(found) is tuple else f"a {type(found).__name__}"
        raise VmapError(f"{what} returned {kind}, expected exactly two values\nreturn a tuple: output, out_dims")
    output, out_dims = found
    leaves, spec = tree_flatten(output)
    dims = list(_dims_per_leaf(what, spec, out_dims))
    known = [pair for pair in zip(tree_leaves(below), tree_leaves(args), strict=True) if pair[0] is not pair[1]]
    return tree_unflatten(
        [_wrapped(what, level, leaf, dim, known) for leaf, dim in zip(leaves, dims, strict=True)], spec
    )


def _dims_per_leaf(what: str, spec: Any, dims: Any) -> Iterator[int | None]:
    """`dims`, a tree that the nesting of the output begins with, for every leaf of the output."""
    if dims is None or type(dims) is int:
        yield from [dims] * count_leaves(spec)
        return
    entries, found = _children(dims)
    if spec.type is None or found is None or len(entries) != len(spec.children):
        raise VmapError(f"{what} returned out_dims {dims!r}, which are not nested as the output is\n"
                        "return one int or None for all of the output, or one for each of its elements")
    for entry, child in zip(entries, spec.children, strict=True):
        yield from _dims_per_leaf(what, child, entry)


def _children(dims: Any) -> tuple[list[Any], Any]:
    if isinstance(dims, dict):
        return list(dims.values()), dict
    return (list(dims), list) if isinstance(dims, (list, tuple)) else ([], None)


def _wrapped(what: str, level: Vmap, leaf: Any, dim: int | None, known: list[tuple[Any, Any]]) -> Any:
    if dim is None:
        return leaf
    if not _core.is_array(leaf):
        raise VmapError(f"{what} says that a {type(leaf).__name__} in its output has a batch axis, {dim}\n"
                        "return None in out_dims for what is no array")
    for lower, upper in known:
        if lower is leaf and dim == 0:
            return upper
    ndim = len(leaf.shape)
    if not -ndim <= dim < ndim or leaf.shape[dim] != level.batch_size:
        raise VmapError(f"{what} returned an array of shape {tuple(leaf.shape)}, of which axis {dim} is not the batch "
                        f"of {level.batch_size} examples\nreturn in out_dims where the batch axis of each output is")
    return _core.wrap_value_at(level, leaf if dim == 0 else ops.np.moveaxis(leaf, dim, 0))
