"""`map_chunks`: a higher-order operator that calls a function for each chunk of Dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute as compute_lazy

from pydispatch import _core
from pydispatch._core import Interpreter, Jvp, Vmap
from pydispatch._registry.backends import is_masked
from pydispatch.autograd.captures import tensors_in_reach
from pydispatch.autograd.values import bottom_of
from pydispatch.backends.dask.functions import (
    CHUNKED,
    SHARED,
    ArgumentMarker,
    Arrays,
    Batched,
    ChunkFunction,
    OfPytrees,
    Pullback,
    Pushforward,
    Specs,
    as_arrays,
    is_number_of_array,
    specs_of,
)
from pydispatch.backends.dask.graphs import over_chunks
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func.values import all_as_passed
from pydispatch.higher_order import rules
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.tree import described_structure, path_of_leaf, spread, tree_flatten, tree_unflatten


def map_chunks(
    f: Callable[..., Any], *args: Any, reduce: Any = None, chunked: int | Sequence[int] | None = None,
    compiled: bool = True, compute: bool = False,
) -> Any:
    """Call `f(*args)` for each chunk of rows, and join or sum the results.

    The results are lazy Dask arrays, and so are their derivatives. `func.grad` and every other transform see one
    operator, whose backward pass is also a `map_chunks`.

    Parameters
    ----------
    f
        Function that returns arrays, also in a pytree. It may call transforms. `cloudpickle` pickles it, so it can be
        a closure, but it must not capture Tensors.
    *args
        Arguments that are Dask arrays, or pytrees of them, are chunked along axis 0. `f` gets one chunk of each, as
        NumPy arrays, and the chunks are aligned. All other arguments, arrays or pytrees with arrays in them, are the
        same for every chunk.
    reduce
        None joins the results of the chunks along axis 0. "sum" sums them over chunks. A pytree of these sets it for
        parts of the output. It is nested like the output, down to any depth.
    chunked
        Positions of the chunked arguments, if they are not those that hold Dask arrays.
    compiled
        Whether each worker process compiles `f`, once. See `pydispatch.compile` for its requirements.
    compute
        Whether to compute summed results immediately. They are then NumPy arrays, and so are the gradients of arguments
        that are not chunked.

    Returns
    -------
    Any
        The arrays that `f` returns, nested in the same way.

    Raises
    ------
    DispatchTypeError
        If an argument or `reduce` does not fit.
    """
    if not callable(f):
        raise DispatchTypeError(f"map_chunks: f is {_core.a_type(f)}, expected a function\nwrite map_chunks(f, x)")
    leaves, spec, places = _sorted_leaves(args, chunked)
    _check_captured(f)
    values = [leaf for leaf, place in zip(leaves, places, strict=True) if place is CHUNKED]
    shared = [leaf for leaf, place in zip(leaves, places, strict=True) if place is SHARED]
    function = OfPytrees(f, spec, [leaf if place is None else place
                                   for leaf, place in zip(leaves, places, strict=True)])
    results, out_spec, out_leaves = function.abstract_result((*_specs_of_first_chunks(values), *specs_of(shared)))
    summed = _are_summed(reduce, results, out_spec, out_leaves)
    results = MAP_CHUNKS(ChunkCall(function, summed, compiled, compute), tuple(values), tuple(shared))
    handed = all_as_passed(results, values, shared)
    return tree_unflatten([handed[leaf] if is_number_of_array(leaf) else leaf for leaf in out_leaves], out_spec)


def _sorted_leaves(args: tuple[Any, ...], chunked: Any) -> tuple[list[Any], Any, list[ArgumentMarker | None]]:
    """Return the leaves of the arguments, and for each CHUNKED, SHARED, or None if it is not an array."""
    positions = _positions(args, chunked)
    leaves, spec = tree_flatten(args)
    places: list[ArgumentMarker | None] = []
    for i, arg in enumerate(args):
        for leaf in tree_flatten(arg)[0]:
            if i in positions and (not _core.is_array(leaf) or leaf.ndim == 0):
                raise DispatchTypeError(f"map_chunks: argument {i} is chunked and holds {_described(leaf)}, expected "
                                        "arrays with rows\nleave its position out of `chunked`")
            places.append(None if not _core.is_array(leaf) else CHUNKED if i in positions else SHARED)
    if CHUNKED not in places:
        raise DispatchTypeError("map_chunks: no argument is a Dask array, expected at least one\n"
                                "pass dask.array.from_array(x, chunks=...), or name positions: chunked=(0,)")
    return leaves, spec, places


def _specs_of_first_chunks(values: Sequence[Any]) -> Specs:
    """Return the shapes and dtypes of the first chunks. Assume two rows if Dask does not know their number."""
    chunked = next((bottom for bottom in map(bottom_of, values) if isinstance(bottom, da.Array)), None)
    n_rows = len(values[0]) if chunked is None else chunked.chunks[0][0]
    return tuple([((2 if np.isnan(n_rows) else n_rows, *shape[1:]), dtype) for shape, dtype in specs_of(values)])


def _described(value: Any) -> str:
    return "an array of shape ()" if _core.is_array(value) else _core.a_type(value)


def _positions(args: tuple[Any, ...], chunked: Any) -> tuple[int, ...]:
    if chunked is None:
        return tuple([i for i, arg in enumerate(args) if _is_chunked(i, tree_flatten(arg)[0])])
    given = (chunked,) if isinstance(chunked, int) else tuple(chunked)
    if not all(isinstance(i, int) and -len(args) <= i < len(args) for i in given):
        raise DispatchTypeError(f"map_chunks: chunked is {chunked!r}, expected positions among {len(args)} arguments\n"
                                "write chunked=(0, 1)")
    return tuple([i % len(args) for i in given])


def _is_chunked(i: int, leaves: Sequence[Any]) -> bool:
    """Return whether an argument holds only Dask arrays. Raise DispatchTypeError if it also holds other values."""
    flags = [isinstance(bottom_of(leaf), da.Array) and leaf.ndim > 0 for leaf in leaves]
    if any(flags) and not all(flags):
        raise DispatchTypeError(f"map_chunks: argument {i} holds Dask arrays and other values\n"
                                "specify which arguments are chunked: chunked=(0, 1)")
    return bool(flags) and all(flags)


def _check_captured(f: Callable[..., Any]) -> None:
    for tensor in tensors_in_reach(f):
        if isinstance(tensor, _core.Wrapper) or tensor.requires_grad or isinstance(bottom_of(tensor), da.Array):
            raise DispatchTypeError(
                f"map_chunks: f captures {_core.a_type(tensor)} of shape {tuple(tensor.shape)}, which cannot be sent "
                "to workers with its derivatives\npass it as an argument: map_chunks(f, x, captured)")


def _are_summed(reduce: Any, results: Any, spec: Any, leaves: Sequence[Any]) -> tuple[bool, ...]:
    """Return, for each array that f returns, whether it is summed over chunks."""
    flags = spread(reduce, spec)
    if flags is None or any(flag not in (None, "sum") for flag in flags):
        raise DispatchTypeError(f"map_chunks: reduce is {reduce!r}, but f returns {described_structure(spec)}, "
                                'expected None, "sum", or a pytree of these with the same structure\n'
                                'write reduce="sum"')
    summed = []
    for n, (leaf, flag) in enumerate(zip(leaves, flags, strict=True)):
        if is_number_of_array(leaf):
            if flag is None and not results[leaf][0]:
                raise DispatchTypeError(
                    f"map_chunks: the result{path_of_leaf(spec, n)} has no axis, expected one for the rows "
                    'along which chunks are joined\nsum it over chunks: reduce="sum", or return result[None]')
            summed.append(flag == "sum")
    return tuple(summed)


# --- the operator ----------------------------------------------------------------------------------------------------


class ChunkCall:
    """A function to call with each chunk, which of its results are summed over chunks, and the options of the call."""

    __slots__ = ("compiled", "compute", "function", "summed")

    def __init__(self, function: ChunkFunction, summed: tuple[bool, ...], compiled: bool, compute: bool) -> None:
        self.function = function
        self.summed = summed
        self.compiled = compiled
        self.compute = compute

    def of(self, function: ChunkFunction, summed: Sequence[bool]) -> ChunkCall:
        """Return a call of another function with the same options."""
        return ChunkCall(function, tuple(summed), self.compiled, self.compute)


MAP_CHUNKS = HigherOrderOperator("map_chunks", n_results=lambda call, chunked, shared: len(call.summed))
rules.register_common_rules(MAP_CHUNKS)


@MAP_CHUNKS.py_impl("CompositeExplicitAutograd")
def run(call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """Build the graph over the chunks. If no array is Dask's, call the function itself."""
    values, others = [bottom_of(value) for value in chunked], [bottom_of(value) for value in shared]
    if any(map(is_masked, (*values, *others))):
        raise DispatchTypeError(
            "map_chunks: an argument is masked, or has masked chunks, expected arrays without masks, which compiled "
            "functions and sums over chunks would lose\npass the elements and the mask: "
            "array.map_blocks(numpy.ma.filled, 0.0), dask.array.ma.getmaskarray(array)")
    if not any(isinstance(value, da.Array) for value in values):
        return as_arrays(call.function(*values, *others))
    results = over_chunks(call.function, call.summed, values, others, call.compiled)
    if call.compute:
        computed = iter(map(np.asarray, compute_lazy(*rules.chosen(results, call.summed))))
        results = [next(computed) if flag else result for result, flag in zip(results, call.summed, strict=True)]
    return tuple(results)


@MAP_CHUNKS.py_impl("Meta")
def run_without_data(call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """Call the function on all rows together, for shapes and dtypes."""
    return call.function(*chunked, *shared)


@MAP_CHUNKS.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """Call the function on batches of each chunk."""
    flags = rules.owned((*chunked, *shared), interpreter)
    values = tuple([rules.axes_swapped(_core.value_below(value, interpreter)) if flag else value
                    for value, flag in zip(chunked, flags[:len(chunked)], strict=True)])
    function = Batched(call.function, flags, call.summed, interpreter.randomness)
    results = MAP_CHUNKS(call.of(function, call.summed), values, rules.below(shared, interpreter))
    return rules.wrapped(rules.swapped_at([not flag for flag in call.summed], results), interpreter)


@MAP_CHUNKS.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """Compute results and tangents in one pass over chunks of values and of tangents."""
    tangents = [rules.tangents_of(values, interpreter) for values in (chunked, shared)]
    flags = [[tangent is not None for tangent in found] for found in tangents]
    function = Pushforward(call.function, [*flags[0], *flags[1]])
    results = MAP_CHUNKS(
        call.of(function, call.summed * 2),
        (*rules.below(chunked, interpreter), *rules.chosen(tangents[0], flags[0])),
        (*rules.below(shared, interpreter), *rules.chosen(tangents[1], flags[1])))
    n = len(call.summed)
    return rules.with_tangents(results[:n], results[n:], interpreter)


@rules.recording_rule(MAP_CHUNKS)
def run_and_record(interpreter: Interpreter | None, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """Run the operator below and record it as one node, whose backward pass is another `map_chunks`."""
    results = rules.wrapped(
        MAP_CHUNKS(call, rules.below(chunked, interpreter), rules.below(shared, interpreter)), interpreter)
    n = len(chunked)

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        return gradients(call, saved[:n], saved[n:], wanted, grads)

    rules.record(MAP_CHUNKS, interpreter, (*chunked, *shared), results, (*chunked, *shared), pull)
    return results


def gradients(
    call: ChunkCall, chunked: Arrays, shared: Arrays, wanted: Sequence[bool], grads: Sequence[Any]
) -> Arrays:
    """Return the wanted gradients: per chunk for chunked arguments, summed over chunks for the others."""
    moving = [grad is not None for grad in grads]
    kinds = [*zip(grads, moving, call.summed, strict=True)]
    function = Pullback(call.function, wanted, moving, call.summed)
    is_shared = [False] * len(chunked) + [True] * len(shared)
    return MAP_CHUNKS(
        call.of(function, rules.chosen(is_shared, wanted)),
        (*chunked, *[grad for grad, moves, summed in kinds if moves and not summed]),
        (*shared, *[grad for grad, moves, summed in kinds if moves and summed]))
