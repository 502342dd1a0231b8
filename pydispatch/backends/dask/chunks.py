"""`map_chunks`: a function over the chunks of Dask arrays, as a higher-order operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import compute as compute_lazy

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Jvp, Vmap
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
from pydispatch.higher_order.closures import tensors_in_reach
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.transformed import (
    axes_swapped,
    below,
    chosen,
    owned,
    record,
    register_common_rules,
    tangents_of,
    with_tangents,
    wrapped,
)
from pydispatch.registry.backends import is_masked
from pydispatch.tree import described_structure, path_of_leaf, spread, tree_flatten, tree_unflatten


def map_chunks(
    f: Callable[..., Any], *args: Any, reduce: Any = None, chunked: int | Sequence[int] | None = None,
    compiled: bool = True, compute: bool = False,
) -> Any:
    """The results of `f(*args)` for each chunk of rows: joined along axis 0, or with `reduce="sum"` summed over chunks.

    Arguments that are Dask arrays, or pytrees of them, are chunked along axis 0: `f` gets one chunk of each, as NumPy
    arrays, and the chunks are aligned. All others, arrays or pytrees with arrays in them, are the same for every chunk.
    `chunked` gives the positions of the chunked arguments where that is not what you mean. `f` returns arrays, in a
    pytree too; `reduce` is "sum" or None for all of them, or a pytree of these, nested as the output is, as far as it
    goes.

    Results are lazy Dask arrays, and so are their derivatives: `func.grad` and every other transform see one operator,
    whose backward pass is a `map_chunks` too. With `compute=True`, results that are summed are computed at once, and
    are NumPy arrays, as are the gradients of arguments that are not chunked.

    `f` may call transforms, and is pickled: by `cloudpickle`, so it may be a closure. It must not capture Tensors.
    `compiled` says whether each worker process compiles it, once; see `pydispatch.compile` for what that asks of `f`.

    Raises DispatchTypeError for arguments or a `reduce` that do not fit.
    """
    if not callable(f):
        raise DispatchTypeError(f"map_chunks: f is {_core.a_type(f)}, expected a function\nwrite map_chunks(f, x)")
    leaves, spec, places = _sorted_leaves(args, chunked)
    _check_captured(f)
    values = [leaf for leaf, place in zip(leaves, places, strict=True) if place is CHUNKED]
    shared = [leaf for leaf, place in zip(leaves, places, strict=True) if place is SHARED]
    function = OfPytrees(f, spec, [leaf if place is None else place
                                   for leaf, place in zip(leaves, places, strict=True)])
    outline, out_spec, out_leaves = function.outline((*_specs_of_first_chunks(values), *specs_of(shared)))
    summed = _are_summed(reduce, outline, out_spec, out_leaves)
    results = MAP_CHUNKS(ChunkCall(function, summed, compiled, compute), tuple(values), tuple(shared))
    handed = all_as_passed(results, values, shared)
    return tree_unflatten([handed[leaf] if is_number_of_array(leaf) else leaf for leaf in out_leaves], out_spec)


def _sorted_leaves(args: tuple[Any, ...], chunked: Any) -> tuple[list[Any], Any, list[ArgumentMarker | None]]:
    """The leaves of the arguments, and for each its place: CHUNKED, SHARED, or None for what is no array."""
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
        raise DispatchTypeError("map_chunks: no argument is a Dask array, expected one whose chunks to go over\n"
                                "pass dask.array.from_array(x, chunks=...), or name positions: chunked=(0,)")
    return leaves, spec, places


def _specs_of_first_chunks(values: Sequence[Any]) -> Specs:
    """Shapes and dtypes of the first chunks; two rows where Dask does not know how many."""
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
    """Does an argument hold Dask arrays and nothing else? An error where it holds both."""
    flags = [isinstance(bottom_of(leaf), da.Array) and leaf.ndim > 0 for leaf in leaves]
    if any(flags) and not all(flags):
        raise DispatchTypeError(f"map_chunks: argument {i} holds Dask arrays and other values\n"
                                "say which arguments are chunked: chunked=(0, 1)")
    return bool(flags) and all(flags)


def _check_captured(f: Callable[..., Any]) -> None:
    for tensor in tensors_in_reach(f):
        if isinstance(tensor, _core.Wrapper) or tensor.requires_grad or isinstance(bottom_of(tensor), da.Array):
            raise DispatchTypeError(
                f"map_chunks: f captures {_core.a_type(tensor)} of shape {tuple(tensor.shape)}, which cannot go to "
                "workers with its derivatives\npass it as an argument: map_chunks(f, x, captured)")


def _are_summed(reduce: Any, outline: Any, spec: Any, leaves: Sequence[Any]) -> tuple[bool, ...]:
    """For each array that f returns: is it summed over chunks?"""
    flags = spread(reduce, spec)
    if flags is None or any(flag not in (None, "sum") for flag in flags):
        raise DispatchTypeError(f"map_chunks: reduce is {reduce!r}, f returns {described_structure(spec)}; expected "
                                'None, "sum", or a pytree of these, nested alike\nwrite reduce="sum"')
    summed = []
    for n, (leaf, flag) in enumerate(zip(leaves, flags, strict=True)):
        if is_number_of_array(leaf):
            if flag is None and not outline[leaf][0]:
                raise DispatchTypeError(
                    f"map_chunks: the result{path_of_leaf(spec, n)} has no axis, expected one for the rows "
                    'along which chunks are joined\nsum it over chunks: reduce="sum"; or return result[None]')
            summed.append(flag == "sum")
    return tuple(summed)


# --- the operator ----------------------------------------------------------------------------------------------------


class ChunkCall:
    """What a call does with each chunk, and which results it sums over chunks."""

    __slots__ = ("compiled", "compute", "function", "summed")

    def __init__(self, function: ChunkFunction, summed: tuple[bool, ...], compiled: bool, compute: bool) -> None:
        self.function = function
        self.summed = summed
        self.compiled = compiled
        self.compute = compute

    def of(self, function: ChunkFunction, summed: Sequence[bool]) -> ChunkCall:
        """Another function, called in the same way."""
        return ChunkCall(function, tuple(summed), self.compiled, self.compute)


MAP_CHUNKS = HigherOrderOperator("map_chunks", n_results=lambda call, chunked, shared: len(call.summed))
register_common_rules(MAP_CHUNKS)


@MAP_CHUNKS.py_impl("CompositeExplicitAutograd")
def run(call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """The graph over the chunks; where no array is Dask's, the function itself."""
    values, others = [bottom_of(value) for value in chunked], [bottom_of(value) for value in shared]
    if any(map(is_masked, (*values, *others))):
        raise DispatchTypeError(
            "map_chunks: an argument is masked, or has masked chunks, expected arrays without masks, which compiled "
            "functions and sums over chunks would forget\npass the elements and the mask: "
            "array.map_blocks(numpy.ma.filled, 0.0), dask.array.ma.getmaskarray(array)")
    if not any(isinstance(value, da.Array) for value in values):
        return as_arrays(call.function(*values, *others))
    results = over_chunks(call.function, call.summed, values, others, call.compiled)
    if call.compute:
        computed = iter(map(np.asarray, compute_lazy(*chosen(results, call.summed))))
        results = [next(computed) if flag else result for result, flag in zip(results, call.summed, strict=True)]
    return tuple(results)


@MAP_CHUNKS.py_impl("Meta")
def run_without_data(call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """The function on all rows at once, for shapes and dtypes."""
    return call.function(*chunked, *shared)


@MAP_CHUNKS.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """The function on batches of each chunk."""
    flags = owned((*chunked, *shared), interpreter)
    values = tuple([axes_swapped(_core.value_below(value, interpreter)) if flag else value
                    for value, flag in zip(chunked, flags[:len(chunked)], strict=True)])
    function = Batched(call.function, flags, call.summed, interpreter.randomness)
    results = MAP_CHUNKS(call.of(function, call.summed), values, below(shared, interpreter))
    return wrapped([result if flag else axes_swapped(result)
                    for result, flag in zip(results, call.summed, strict=True)], interpreter)


@MAP_CHUNKS.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """One pass over chunks of values and of tangents."""
    tangents = [tangents_of(values, interpreter) for values in (chunked, shared)]
    flags = [[tangent is not None for tangent in found] for found in tangents]
    function = Pushforward(call.function, [*flags[0], *flags[1]])
    results = MAP_CHUNKS(
        call.of(function, call.summed * 2),
        (*below(chunked, interpreter), *chosen(tangents[0], flags[0])),
        (*below(shared, interpreter), *chosen(tangents[1], flags[1])))
    n = len(call.summed)
    return with_tangents(results[:n], results[n:], interpreter)


@MAP_CHUNKS.py_impl(Grad)
def run_and_record(interpreter: Interpreter | None, call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """The pass over the chunks below, as one node; its backward is another one."""
    results = wrapped(MAP_CHUNKS(call, below(chunked, interpreter), below(shared, interpreter)), interpreter)
    n = len(chunked)

    def pull(saved: Arrays, wanted: Sequence[bool], grads: Arrays) -> Arrays:
        return gradients(call, saved[:n], saved[n:], wanted, grads)

    record(MAP_CHUNKS, interpreter, (*chunked, *shared), results, (*chunked, *shared), pull)
    return results


@MAP_CHUNKS.py_impl("Autograd")
def run_on_tape(call: ChunkCall, chunked: Arrays, shared: Arrays) -> Arrays:
    """`run_and_record` on the tape."""
    return run_and_record(None, call, chunked, shared)


def gradients(
    call: ChunkCall, chunked: Arrays, shared: Arrays, wanted: Sequence[bool], grads: Sequence[Any]
) -> Arrays:
    """The gradients that are wanted: per chunk for chunked arguments, summed over chunks for the others."""
    moving = [grad is not None for grad in grads]
    kinds = [*zip(grads, moving, call.summed, strict=True)]
    function = Pullback(call.function, wanted, moving, call.summed)
    is_shared = [False] * len(chunked) + [True] * len(shared)
    return MAP_CHUNKS(
        call.of(function, chosen(is_shared, wanted)),
        (*chunked, *[grad for grad, moves, summed in kinds if moves and not summed]),
        (*shared, *[grad for grad, moves, summed in kinds if moves and summed]))
