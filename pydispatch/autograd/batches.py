"""Batches of calls: which arguments are batched, a function on all examples, batching rules of users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydispatch import _core
from pydispatch._core import BatchedTensor, OpOverload, Vmap
from pydispatch.autograd.examples import example_of, warn_of_loop
from pydispatch.autograd.values import values_below
from pydispatch.exceptions import ConversionError, DataDependentError, VmapError
from pydispatch.ops import ops
from pydispatch.registry.sites import describe_interpreter
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

Dims = tuple[int | None, ...]       # one per leaf: 0 for a batch, whose first axis it is; None for a constant


def dims_of(value: Any, interpreter: Vmap) -> Dims:
    """Which leaves of a pytree are batches of this interpreter."""
    return _core.dims_of_leaves(tree_leaves(value), interpreter)


class BatchedArguments:
    """Which leaves of a call's arguments are batched, and how to call a function on them: at once, or one by one.

    `name` is the function's, `remedy` the advice against a loop.
    """

    def __init__(self, name: str, dims: Dims, randomness: str, remedy: str) -> None:
        self.name = name
        self.dims = dims
        self.randomness = randomness
        self.remedy = remedy
        self._label = f"vmap({name.removeprefix('operator ')})"
        self._first = next((i for i, dim in enumerate(dims) if dim is not None), -1)    # batch among the leaves

    def size(self, leaves: Sequence[Any]) -> int:
        """The number of examples."""
        return int(leaves[self._first].shape[0])

    def interpreter(self, size: int) -> Vmap:
        """An interpreter of vmap that runs this many examples at once."""
        return Vmap(size, self.randomness, self._label)

    def under_vmap(self, size: int, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(interpreter, *args)` in an interpreter of vmap of its own."""
        interpreter = self.interpreter(size)
        return _core.run_under(interpreter, function, interpreter, *args)

    def at_once(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """Call the function on all examples at once; every array of the result is batched."""
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
        """Call the function on each example and stack the results; `of_none` makes the result if there are no examples.

        `size` is the number of examples, where no argument tells.
        """
        leaves, spec = tree_flatten(values)
        size = self.size(leaves) if size is None else size
        if size == 0:
            if of_none is None:
                raise VmapError(f"{self.name}: vmap over no examples: only a call tells the shape of the result\n"
                                f"{self.remedy}")
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
        """A function that has written to arguments must not run again, one by one."""
        return VmapError(f"{self.name}: under vmap it wrote to an argument before it converted one to a NumPy array: "
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


def entered_results(interpreter: Vmap, result: Any, below: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """Results, all of them batches, as values of an interpreter; what is one of the values `below` is that argument."""
    if _core.is_array(result) and not _core.is_any_of(result, below):
        return _core.wrap_value_at(interpreter, result)

    def enter(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        argument = counterpart(leaf, below, arguments)
        return _core.wrap_value_at(interpreter, leaf) if argument is None else argument

    return tree_map(enter, result)


def left_leaf(interpreter: Vmap, leaf: Any) -> tuple[Any, int | None]:
    """(value below, whether it is a batch)."""
    if _core.is_owned_by(leaf, interpreter):
        return _core.value_below(leaf, interpreter), 0
    return leaf, None


def as_batch(value: Any, dim: int | None, size: int) -> Any:
    """The value with a batch axis; all examples of a constant are the same."""
    if dim is not None or not _core.is_array(value):
        return value
    return ops.np.broadcast_to(value, (size, *value.shape))


def repeated(value: Any, size: int) -> Any:
    """A constant array for each of `size` examples, in memory of its own, which may be written to."""
    return ops.np.copy(as_batch(value, None, size))


def _as_result(value: Any, dim: int | None, size: int) -> Any:
    return value if dim is not None or not _core.is_array(value) else repeated(value, size)


def counterpart(leaf: Any, ones: Sequence[Any], others: Sequence[Any]) -> Any:
    """What is among `others` where this very object is among `ones`; None where it is not, or is the same in both."""
    return next((other for one, other in zip(ones, others, strict=True) if one is leaf and other is not leaf), None)


# --- rules that users write ----------------------------------------------------------------------------------------


def call_batching_rule(
    what: str, rule: Callable[..., Any], interpreter: Vmap, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a batching rule `(info, in_dims, *args, **kwargs) -> (output, out_dims)`; wraps the output.

    It runs on the values below, with the interpreter absent. Raises VmapError for any other result.
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
    """One entry of `dims`, a prefix of the output's structure, for every leaf of the output."""
    found = spread(dims, spec)
    if found is None or not all(dim is None or type(dim) is int for dim in found):
        raise VmapError(f"{what} returned out_dims {dims!r}, whose structure differs from the output's: "
                        f"{described_structure(spec)}\n"
                        "return one int or None for all, or a pytree like the output")
    return found


def _wrapped(what: str, interpreter: Vmap, leaf: Any, dim: int | None, argument: Any) -> Any:
    """A result as a value of the interpreter: the `argument` that it is, if it is one and a batch."""
    if dim is None:
        return leaf
    if not _core.is_array(leaf):
        raise VmapError(f"{what} returned out_dims with axis {dim} for {_core.a_type(leaf)}, which is not an "
                        "array\n"
                        "return None in out_dims for it")
    if argument is not None and dim == 0:
        return argument
    ndim = len(leaf.shape)
    if not -ndim <= dim < ndim or leaf.shape[dim] != interpreter.batch_size:
        raise VmapError(f"{what} returned an array of shape {tuple(leaf.shape)}, whose axis {dim} does not hold the "
                        f"{interpreter.batch_size} examples of the batch\n"
                        "return the batch axis of each output in out_dims")
    return _core.wrap_value_at(interpreter, leaf if dim == 0 else ops.np.moveaxis(leaf, dim, 0))


def batch_dims(value: Any, interpreter: Vmap) -> tuple[Any, Any]:
    """(dims, values below) of a pytree: for each leaf 0, or None where it is no batch of the interpreter."""
    dims = tree_map(lambda leaf: 0 if _core.is_owned_by(leaf, interpreter) else None, value)
    return dims, values_below(value, interpreter)


def unbatched_write(op: OpOverload, argument: str, target: Any, interpreter: Vmap) -> VmapError:
    """The error for a batched value that is written to an unbatched array."""
    return VmapError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, is unbatched in "
        f"{describe_interpreter(interpreter)}, but the value to write is batched\n"
        "use the operator that returns a new array, or write to an array with a batch axis: ops.np.zeros_like(x) of "
        "a batched x, x.copy()"
    )


def number_error(value: BatchedTensor, use: str) -> DataDependentError | VmapError:
    """The error for reading one number from a batched value."""
    interpreter = value.interpreter
    if not interpreter.alive:
        return VmapError(f"a value of {describe_interpreter(interpreter)} was used as {use}: it has left the function "
                         "under vmap\n"
                         "return it from there")
    return DataDependentError(
        f"a value of {describe_interpreter(interpreter)} was used as {use}, but each example has its own: a branch "
        "cannot depend on data under vmap\n"
        "choose between results with ops.np.where(condition, x, y) or pydispatch.higher_order.cond, or call the "
        "function on one example"
    )


def not_a_batch(value: Any, interpreter: Vmap) -> VmapError:
    """The error for an array that lacks the batch axis of the interpreter."""
    return VmapError(
        f"{describe_interpreter(interpreter)}: expected a batch of {interpreter.batch_size} examples along the first "
        f"axis, found an array of shape {tuple(getattr(value, 'shape', ()))}\n"
        "a kernel or batching rule must keep the batch axis: see pydispatch.library.register_vmap"
    )


_core.connect(
    unbatched_write=unbatched_write, not_a_batch=not_a_batch, number_error=number_error, batch_dims=batch_dims,
)
