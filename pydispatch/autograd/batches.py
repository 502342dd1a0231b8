"""Batches of calls: which arguments are batched, running a function on all examples, users' batching rules."""

# tests: tests/func/test_vmap_semantics.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import BatchedTensor, OpOverload, Vmap
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.examples import example_of, warn_of_loop
from pydispatch.autograd.values import contiguous_examples, order_in_memory, values_below
from pydispatch.exceptions import ConversionError, DataDependentError, VmapError
from pydispatch.ops import ops
from pydispatch.tree import (
    TreeSpec,
    described_structure,
    in_order_of,
    spread,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

Dims = tuple[int | None, ...]       # one per leaf: 0 for a batch along its first axis, None for a constant


def dims_of(value: Any, interpreter: Vmap) -> Dims:
    """Return which leaves of a pytree are batches of this interpreter."""
    return _core.dims_of_leaves(tree_leaves(value), interpreter)


class BatchedArguments:
    """The batched leaves of a call's arguments, and the ways to call a function on them: at once or one by one.

    `name` is the function's. `remedy` advises how to avoid a loop.
    """

    def __init__(self, name: str, dims: Dims, randomness: str, remedy: str) -> None:
        self.name = name
        self.dims = dims
        self.randomness = randomness
        self.remedy = remedy
        self._label = f"vmap({name.removeprefix('operator ')})"
        self._first = next((i for i, dim in enumerate(dims) if dim is not None), -1)    # the first batch

    def size(self, leaves: Sequence[Any]) -> int:
        """Return the number of examples."""
        return int(leaves[self._first].shape[0])

    def interpreter(self, size: int) -> Vmap:
        """Return an interpreter of vmap that runs this many examples at once."""
        return Vmap(size, self.randomness, self._label)

    def under_vmap(self, size: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(interpreter, *args)` in a new interpreter of vmap."""
        interpreter = self.interpreter(size)
        return _core.run_under(interpreter, function, interpreter, *args)

    def at_once(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Call the function on all examples at once, and return a result of which every array is batched."""
        leaves, spec = (values, None) if _core.are_flat(values) else tree_flatten(values)
        size = self.size(leaves)
        interpreter = self.interpreter(size)
        entered = _core.entered_leaves(interpreter, leaves, self.dims)
        try:
            args = entered if spec is None else tree_unflatten(entered, spec)
            output = _core.run_under(interpreter, function, *args)
        except ConversionError as error:
            if any(isinstance(leaf, BatchedTensor) and leaf._version for leaf in entered):
                raise self._written_halfway(error) from error
            raise
        if _core.is_owned_by(output, interpreter):
            return _core.value_below(output, interpreter)
        return tree_map(lambda leaf: _as_result(*left_leaf(interpreter, leaf), size), output)

    def one_by_one(
        self, function: Callable[..., Any], values: tuple[Any, ...], of_none: Callable[[], Any] | None = None,
        size: int | None = None,
    ) -> Any:
        """Call the function on each example and stack the results.

        `of_none` makes the result if there are no examples. `size` is the number of examples if no argument shows it.
        """
        leaves, spec = tree_flatten(values)
        size = self.size(leaves) if size is None else size
        if size == 0:
            if of_none is None:
                raise VmapError(f"{self.name}: vmap over an empty batch: the shape of the result is unknown\n"
                                f"{self.remedy}")
            return of_none()
        warn_of_loop(self.name, self.remedy)
        results, sliced = [], []
        for number in range(size):
            sliced.append(self.example(leaves, number))
            results.append(function(*tree_unflatten(sliced[-1], spec)))
        return self._stacked(results, sliced, leaves)

    def example(self, leaves: Sequence[Any], number: int) -> list[Any]:
        """Return the leaves of one call."""
        return [
            leaf if dim is None or leaf is None else example_of(leaf, number)
            for leaf, dim in zip(leaves, self.dims, strict=True)
        ]

    def _written_halfway(self, error: ConversionError) -> VmapError:
        """Return the error for a function that wrote to arguments and so must not run again on each example."""
        return VmapError(f"{self.name}: under vmap, it wrote to an argument before it converted one to a NumPy array: "
                         f"{str(error).splitlines()[0]}\n"
                         f"{self.remedy}")

    def _stacked(self, results: list[Any], sliced: list[list[Any]], leaves: list[Any]) -> Any:
        spec = tree_flatten(results[0])[1]
        rows = [in_order_of(spec, *tree_flatten(result)) for result in results]
        if None in rows:
            raise VmapError(f"{self.name}: the results differ in structure between the examples of vmap\n"
                            "return the same structure for all examples")
        columns = zip(*rows, strict=True)
        return tree_unflatten([self._column(list(column), sliced, leaves) for column in columns], spec)

    def _column(self, column: list[Any], sliced: list[list[Any]], leaves: list[Any]) -> Any:
        """Return a leaf of the results, made from that of each example. An argument stays that argument."""
        for position, leaf in enumerate(leaves):
            if _core.is_array(leaf) and all(
                found is given[position] for found, given in zip(column, sliced, strict=True)
            ):
                return _as_result(leaf, self.dims[position], len(column))
        if all(map(_core.is_array, column)):
            shapes = {tuple(array.shape) for array in column}
            if len(shapes) > 1:
                raise DataDependentError(f"{self.name}: results have different shapes in the examples of vmap: "
                                         f"{', '.join(map(str, sorted(shapes)))}\ncall it on one example at a time")
            return ops.np.stack(column)
        first = column[0]
        if any(type(other) is not type(first) or other != first for other in column[1:]):
            raise VmapError(f"{self.name}: a result that is not an array differs between the examples of vmap: "
                            f"{first!r} and others\nreturn it as an array")
        return first


def entered_results(interpreter: Vmap, result: Any, below: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """Wrap results, all of them batches, as values of an interpreter. A result among `below` becomes its argument."""
    if _core.is_array(result) and not _core.is_any_of(result, below):
        return _core.wrap_value_at(interpreter, result)

    def enter(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        argument = counterpart(leaf, below, arguments)
        return _core.wrap_value_at(interpreter, leaf) if argument is None else argument

    return tree_map(enter, result)


def left_leaf(interpreter: Vmap, leaf: Any) -> tuple[Any, int | None]:
    """Return (value below, 0 for a batch or None)."""
    if _core.is_owned_by(leaf, interpreter):
        return _core.value_below(leaf, interpreter), 0
    return _core.uniform_below(leaf, interpreter), None


def as_batch(value: Any, dim: int | None, size: int) -> Any:
    """Return the value with a batch axis. All examples of a constant are equal."""
    if dim is not None or not _core.is_array(value):
        return value
    return ops.np.broadcast_to(value, (size, *value.shape))


def repeated(value: Any, size: int) -> Any:
    """Repeat a constant array for each of `size` examples, in new memory that may be written to."""
    return ops.np.copy(as_batch(value, None, size))


def _as_result(value: Any, dim: int | None, size: int) -> Any:
    return value if dim is not None or not _core.is_array(value) else repeated(value, size)


def counterpart(leaf: Any, ones: Sequence[Any], others: Sequence[Any]) -> Any:
    """Return the element of `others` at the position where `leaf` itself is in `ones`.

    Return None if there is none or if both elements are the same object.
    """
    return next((other for one, other in zip(ones, others, strict=True) if one is leaf and other is not leaf), None)


# --- users' batching rules ---------------------------------------------------------------------------------------


def call_batching_rule(
    what: str, rule: Callable[..., Any], interpreter: Vmap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a batching rule `(info, in_dims, *args, **kwargs) -> (output, out_dims)`, and wrap the output.

    The rule runs on the values below, with the interpreter absent. Raise VmapError for any other result.
    """
    in_dims, below = batch_dims(args, interpreter)
    found = rule(interpreter, in_dims, *below, **kwargs)
    if type(found) is not tuple or len(found) != 2:
        kind = f"a tuple of {len(found)}" if type(found) is tuple else _core.a_type(found)
        raise VmapError(f"{what} returned {kind}, expected exactly two values\nreturn a tuple: output, out_dims")
    output, out_dims = found
    leaves, spec = tree_flatten(output)
    dims = _dims_per_leaf(what, spec, out_dims)
    lower, upper = tree_leaves(below), tree_leaves(args)
    return tree_unflatten([
        _wrapped(what, interpreter, leaf, dim, counterpart(leaf, lower, upper))
        for leaf, dim in zip(leaves, dims, strict=True)
    ], spec)


def _dims_per_leaf(what: str, spec: TreeSpec, dims: Any) -> list[int | None]:
    """Return the axis for every leaf of the output. `dims` is a prefix of the output's structure."""
    found = spread(dims, spec)
    if found is None or not all(dim is None or type(dim) is int for dim in found):
        raise VmapError(f"{what} returned out_dims {dims!r}, whose structure differs from the output's: "
                        f"{described_structure(spec)}\n"
                        "return one int or None for all, or a pytree like the output")
    return found


def _wrapped(what: str, interpreter: Vmap, leaf: Any, dim: int | None, argument: Any) -> Any:
    """Wrap a result as a value of the interpreter, or return the batched `argument` that it is."""
    if dim is None:
        return leaf
    if not _core.is_array(leaf):
        raise VmapError(f"{what} returned out_dims with axis {dim} for {_core.a_type(leaf)}, which is not an "
                        "array\n"
                        "return None for it in out_dims")
    if argument is not None and dim == 0:
        return argument
    ndim = len(leaf.shape)
    if not -ndim <= dim < ndim or leaf.shape[dim] != interpreter.batch_size:
        raise VmapError(f"{what} returned an array of shape {tuple(leaf.shape)}, whose axis {dim} does not hold the "
                        f"{interpreter.batch_size} examples of the batch\n"
                        "return the batch axis of each output in out_dims")
    return _core.wrap_value_at(interpreter, leaf if dim == 0 else ops.np.moveaxis(leaf, dim, 0))


def batch_dims(value: Any, interpreter: Vmap) -> tuple[Any, Any]:
    """Return (dims, values below) of a pytree: for each leaf 0, or None if it is not a batch of the interpreter."""
    dims = tree_map(lambda leaf: 0 if _core.is_owned_by(leaf, interpreter) else None, value)
    return dims, values_below(value, interpreter)


def copies_for_examples(value: Any, size: int) -> Any:
    """Copy an array for each of `size` examples. Each copy has the array's layout in memory."""
    return contiguous_examples(as_batch(value, None, size), order_in_memory(value))


def lost_view(op: OpOverload, maker: OpOverload, interpreter: Vmap) -> VmapError:
    """Return the error for writing a batched value to an array whose view would not see it."""
    return VmapError(
        f"operator {op.name}: cannot write a batched value to an array that is the same in all examples of "
        f"{describe_interpreter(interpreter)} and has a view made by operator {maker.name}, which copies batches\n"
        "write before you make the view, or make the array from a batched one: np.zeros_like(x, shape=...)"
    )


def unbatched_write(op: OpOverload, argument: str, target: Any, interpreter: Vmap) -> VmapError:
    """Return the error for writing a batched value to an unbatched array."""
    return VmapError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, is an array from outside the "
        f"function of {describe_interpreter(interpreter)}, but the value to write is batched: in a loop, each example "
        "would overwrite the value from the previous one\n"
        "return the value, or write to an array made in the function: np.zeros(shape), array.copy()"
    )


def not_a_batch(value: Any, interpreter: Vmap) -> VmapError:
    """Return the error for an array that lacks the batch axis of the interpreter."""
    return VmapError(
        f"{describe_interpreter(interpreter)}: expected a batch of {interpreter.batch_size} examples along the first "
        f"axis, found an array of shape {tuple(getattr(value, 'shape', ()))}\n"
        "a kernel or batching rule must keep the batch axis: see pydispatch.library.register_vmap"
    )


_core.connect(
    unbatched_write=unbatched_write, not_a_batch=not_a_batch, batch_dims=batch_dims,
    copies_for_examples=copies_for_examples, lost_view=lost_view,
)
