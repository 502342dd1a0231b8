"""`vmap`: turn a function of one example into a function of a whole batch.

Each call is a separate interpreter. Batched arguments enter it as views with their batch axis first. Results leave it
with the axis where `out_dims` specifies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, Vmap
from pydispatch.autograd.randomness import Draws
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import AutogradError
from pydispatch.func.functions import returned_by
from pydispatch.func.values import as_passed, check_no_wrapper, check_randomness
from pydispatch.ops import ops
from pydispatch.tree import (
    TreeSpec,
    described_structure,
    in_order_of,
    path_of_leaf,
    path_to_leaf_number,
    spread,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)

P = ParamSpec("P")
R = TypeVar("R")


def vmap(
    func: Callable[P, R], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *,
    chunk_size: int | None = None,
) -> Callable[P, R]:
    """Return a function that applies `func` to all examples of a batch at once.

    Parameters
    ----------
    func : callable
        A function of one example. It is called once. It sees the shapes of one example, and counts axes in these.
    in_dims : int, None or pytree, optional
        The batch axis of the arguments: an int for all, or a tuple with one entry per positional argument. Each entry
        is a pytree like that argument or a prefix of one. None passes an argument to every example. Keyword arguments
        are never batched.
    out_dims : int, None or pytree, optional
        The batch axis of the results, in the same form. A result that does not depend on the example is repeated, or
        returned unchanged for None.
    randomness : {"error", "same", "different"}, optional
        How random operators draw: not at all, once for all examples, or for each example.
    chunk_size : int, optional
        The number of examples for which `func` is called at a time. The results are joined, so no entry of `out_dims`
        may be None.

    Returns
    -------
    callable
        A function of whole batches.

    Raises
    ------
    ValueError
        If `in_dims`, `out_dims` and the arguments do not fit together, or nothing is batched.
    AxisError
        For an axis that a result does not have.
    VmapError
        For another value of `randomness`.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> func.vmap(np.dot)(numpy.ones((3, 2)), numpy.ones((3, 2)))
    array([2., 2., 2.])
    >>> func.vmap(np.dot, in_dims=(0, None))(numpy.ones((3, 2)), numpy.ones(2))
    array([2., 2., 2.])
    """
    check_randomness("vmap", randomness)
    if chunk_size is not None and (not _is_axis(chunk_size) or chunk_size <= 0):
        raise ValueError(f"vmap: chunk_size is {chunk_size!r}, expected a positive int or None\n"
                         "write chunk_size=None for the whole batch at once")
    may_be_flat = chunk_size is None and type(out_dims) is int and out_dims == 0 and type(in_dims) in (int, tuple)

    @returned_by(vmap, func, in_dims, out_dims, randomness, chunk_size=chunk_size)
    def batched(*args: Any, **kwargs: Any) -> Any:
        site = _core.calling_site()
        if may_be_flat and not kwargs:
            result = _core.map_flat(func, args, in_dims, randomness, site)
            if result is not _core.NOT_FLAT:
                return result
        return _map(_VmapCall(func, in_dims, out_dims, randomness, chunk_size, site), args, kwargs)

    return batched


class _VmapCall(NamedTuple):
    """The arguments of one call of `vmap`, and the site of the call."""

    func: Callable[..., Any]
    in_dims: Any
    out_dims: Any
    randomness: str
    chunk_size: int | None
    site: Any


class _VmapArguments(NamedTuple):
    """The leaves of the positional arguments, the batched ones with their batch axis first."""

    values: list[Any]
    is_batched: list[bool]
    spec: TreeSpec
    kwargs: dict[str, Any]


# --- the general path -----------------------------------------------------------------------------------------------


def _map(call: _VmapCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check_out_dims(call.out_dims)
    leaves, spec = tree_flatten(args)
    dims = _dims_of_leaves(call.in_dims, spec)
    size = _batch_size(leaves, dims, spec)
    arguments = _VmapArguments(
        [_constant(leaf) if dim is None else moved(leaf, dim, 0) for leaf, dim in zip(leaves, dims, strict=True)],
        [dim is not None for dim in dims], spec, _constants(kwargs),
    )
    if call.chunk_size is None or call.chunk_size >= size:
        results = _map_batch(call, arguments, size)
    else:
        results = _map_chunks(call, arguments, size, call.chunk_size)
    return _handed_out(results, (*leaves, *tree_leaves(kwargs)))


def _constant(leaf: Any) -> Any:
    """Return an unbatched argument as the function sees it.

    An array becomes a Tensor, so that batched values can index it.
    """
    is_raw = _core.is_array(leaf) and not isinstance(leaf, (Tensor, np.generic))
    return Tensor(leaf) if is_raw else leaf


def _constants(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tree_map(_constant, value) if any(map(_core.is_array, tree_leaves(value))) else value
        for name, value in kwargs.items()
    }


def _map_batch(call: _VmapCall, arguments: _VmapArguments, size: int) -> _Results:
    interpreter = Vmap(size, call.randomness, "vmap", call.site)
    entered = [
        _core.wrap_value_at(interpreter, value) if is_batched else value
        for value, is_batched in zip(arguments.values, arguments.is_batched, strict=True)
    ]
    function = functools.partial(call.func, **arguments.kwargs) if arguments.kwargs else call.func
    output = _core.run_under(interpreter, function, *tree_unflatten(entered, arguments.spec))
    return _results(interpreter, output, call.out_dims)


# --- chunks ----------------------------------------------------------------------------------------------------------


def _map_chunks(call: _VmapCall, arguments: _VmapArguments, size: int, chunk_size: int) -> _Results:
    """Run the function on each chunk of the batch, and join the results."""
    if None in tree_leaves(call.out_dims):
        raise ValueError(f"vmap: out_dims is {call.out_dims!r}, but each result needs an axis to join chunks "
                         f"along, because chunk_size is {chunk_size}\n"
                         "write an int for every result, or leave chunk_size out")
    draws = Draws()
    chunks: list[_Results] = []
    for start in range(0, size, chunk_size):
        stop = min(start + chunk_size, size)
        values = [
            ops.np.getitem(value, slice(start, stop)) if is_batched else value
            for value, is_batched in zip(arguments.values, arguments.is_batched, strict=True)
        ]
        batch = (_map_batch, call, arguments._replace(values=values), stop - start)
        if call.randomness != "same":
            chunks.append(_map_batch(*batch[1:]))
        else:
            chunks.append(draws.replay(*batch) if chunks else draws.record(*batch))
    first, rows = chunks[0], []
    for chunk in chunks:
        results = in_order_of(first.spec, chunk.values, chunk.spec)
        if results is None:
            raise ValueError("vmap: the function returned different structures for two chunks: "
                             f"{described_structure(first.spec)} and {described_structure(chunk.spec)}\n"
                             "return the same structure for all examples")
        rows.append(results)
    joined = [
        ops.np.concatenate(pieces, axis=dim)
        for dim, *pieces in zip(first.dims, *rows, strict=True)
    ]
    return _Results(joined, first.dims, first.spec)


# --- results ---------------------------------------------------------------------------------------------------------


class _Results(NamedTuple):
    """The leaves of the function's output, as values of the interpreter below, with their batch axes in place."""

    values: list[Any]
    dims: list[Any]
    spec: TreeSpec


def _handed_out(results: _Results, given: tuple[Any, ...]) -> Any:
    tensors = tuple([value for value in given if isinstance(value, Tensor)][:1])
    return tree_unflatten([as_passed(value, tensors) for value in results.values], results.spec)


def _results(interpreter: Vmap, output: Any, out_dims: Any) -> _Results:
    leaves, spec = tree_flatten(output)
    if spec.type is None and type(out_dims) is tuple and len(out_dims) == 1:
        out_dims = out_dims[0]
    dims = spread(out_dims, spec)
    if dims is None:
        raise ValueError(f"vmap: out_dims is {out_dims!r}, but the function returned {described_structure(spec)}: "
                         "expected an int for all results, or a pytree of the same structure\n"
                         "write vmap(f, out_dims=0), or an entry for each *")
    values = [_result(interpreter, leaf, dim, spec, n) for n, (leaf, dim) in enumerate(zip(leaves, dims, strict=True))]
    return _Results(values, dims, spec)


def _result(interpreter: Vmap, leaf: Any, dim: Any, spec: TreeSpec, n: int) -> Any:
    """Return leaf n of the results as a value of the interpreter below, with its batch axis in place."""
    if not _core.is_array(leaf):
        if dim is None:
            return leaf
        raise ValueError(f"vmap: {_name_of_result(spec, n)} is of type {type(leaf).__name__}, expected an array, "
                         f"because out_dims has {dim} for it\n"
                         "return an array, or write None in out_dims to get it unchanged")
    if not _core.is_owned_by(leaf, interpreter):
        leaf = _core.live_value(leaf)
    if not _core.is_owned_by(leaf, interpreter):
        return _repeated(interpreter, leaf, dim, spec, n)
    if dim is None:
        raise ValueError(f"vmap: {_name_of_result(spec, n)} is batched, but out_dims has None for it\n"
                         "write an int: the batch axis of the result")
    return moved(_core.value_below(leaf, interpreter), 0, _axis_of_result(dim, leaf, spec, n))


def _repeated(interpreter: Vmap, leaf: Any, dim: Any, spec: TreeSpec, n: int) -> Any:
    """Repeat a result that does not depend on the example, as a new array with a new axis."""
    if isinstance(leaf, _core.Wrapper):
        _core.check_active(leaf)
    if dim is None:
        return leaf
    check_no_wrapper("vmap", leaf)
    axis = _axis_of_result(dim, leaf, spec, n)
    return moved(ops.np.copy(ops.np.broadcast_to(leaf, (interpreter.batch_size, *leaf.shape))), 0, axis)


def _axis_of_result(dim: Any, leaf: Any, spec: TreeSpec, n: int) -> int:
    axes = len(leaf.shape) + 1
    if not -axes <= dim < axes:
        raise np.exceptions.AxisError(
            f"vmap: out_dims has {dim} for {_name_of_result(spec, n)}, which has {axes} axes, including the "
            "batch axis\n"
            f"write an axis from {-axes} to {axes - 1}"
        )
    return int(dim)


def _name_of_result(spec: TreeSpec, n: int) -> str:
    return f"the result{path_of_leaf(spec, n)}"


# --- axes ------------------------------------------------------------------------------------------------------------


def moved(value: Any, source: int, destination: int) -> Any:
    """Return a view of the array with one axis moved, or the array itself if the axis is already there."""
    ndim = value.ndim
    order = _order(ndim, source, destination)
    if order is None:
        return value
    return value.transpose(order) if type(value) is np.ndarray else ops.np.moveaxis(value, source, destination)


@functools.lru_cache(maxsize=256)
def _order(ndim: int, source: int, destination: int) -> tuple[int, ...] | None:
    """Return the order of the axes that moves one of them, or None if it is already there."""
    source, destination = source % ndim, destination % ndim
    if source == destination:
        return None
    order = [axis for axis in range(ndim) if axis != source]
    order.insert(destination, source)
    return tuple(order)


def _is_axis(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


# --- in_dims and out_dims --------------------------------------------------------------------------------------------


def _check_out_dims(out_dims: Any) -> None:
    if type(out_dims) is int:
        return
    for dim in tree_leaves(out_dims):
        if dim is not None and not _is_axis(dim):
            raise ValueError(f"vmap: out_dims is {out_dims!r}, in which {dim!r} is neither an int nor None\n"
                             "write the batch axis of the result: out_dims=0")


def _dims_of_leaves(in_dims: Any, spec: TreeSpec) -> list[Any]:
    """Return the axis for every leaf of the arguments."""
    if not _is_axis(in_dims) and not isinstance(in_dims, tuple):
        raise ValueError(f"vmap: in_dims is {in_dims!r}, expected an int, or a tuple with an entry for each positional "
                         "argument\nwrite in_dims=0, or a tuple: in_dims=(0, None)")
    if not spec.children:
        raise ValueError("vmap: expected a positional argument, because keyword arguments are never batched\n"
                         "pass the arrays to batch by position")
    dims = spread(in_dims, spec)
    if dims is None:
        raise ValueError(f"vmap: in_dims is {in_dims!r}, but the arguments are {described_structure(spec)}: expected "
                         "an int for all, or a tuple of the same structure\n"
                         "write vmap(f, in_dims=0), or a tuple with an entry for each *")
    for dim in dims:
        if dim is not None and not _is_axis(dim):
            raise ValueError(f"vmap: in_dims is {in_dims!r}, in which {dim!r} is neither an int nor None\n"
                             "write the batch axis, or None for an unbatched argument")
    return dims


def _batch_size(leaves: list[Any], dims: list[Any], spec: TreeSpec) -> int:
    """Return the number of examples. Raise ValueError if arguments lack their batch axes or disagree."""
    sizes = {}
    for n, (leaf, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            continue
        if not _core.is_array(leaf):
            raise ValueError(f"vmap: {_name_of_argument(spec, n)} is of type {type(leaf).__name__}, expected an "
                             f"array, because in_dims has {dim} for it\n"
                             "write None for it in in_dims to pass it to every example")
        shape = leaf.shape
        if not -len(shape) <= dim < len(shape):
            raise _no_such_axis(_name_of_argument(spec, n), tuple(shape), dim)
        sizes[n] = int(shape[dim])
    if not sizes:
        raise ValueError("vmap: in_dims has no axis for any array, but vmap needs one to find the number of "
                         "examples\n"
                         "write in_dims=0, or call the function without vmap")
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{size} in {_name_of_argument(spec, n)}" for n, size in sizes.items())
        raise ValueError(f"vmap: the batched arguments have different numbers of examples: {found}\n"
                         "check in_dims, and write None for unbatched arguments")
    return next(iter(sizes.values()))


def _name_of_argument(spec: TreeSpec, n: int) -> str:
    return f"argument {path_to_leaf_number(spec, n)}"


def _no_such_axis(name: str, shape: tuple[int, ...], dim: int) -> ValueError:
    ndim = len(shape)
    remedy = f"write an axis from {-ndim} to {ndim - 1}" if ndim else "write None for it, to pass it to every example"
    return ValueError(f"vmap: in_dims has {dim} for {name}, which has shape {shape} and no such axis\n{remedy}")


# --- batches of gradients --------------------------------------------------------------------------------------------


def _grads_of_batch(
    outputs: Any, inputs: Any, grad_outputs: Any, retain_graph: bool | None, create_graph: bool,
    allow_unused: bool | None, materialize_grads: bool,
) -> tuple[Tensor | None, ...]:
    """Compute `autograd.grad` for batches of cotangents, along their first axes. None means 1 in all examples."""
    given = (grad_outputs,) if _core.is_array(grad_outputs) else tuple(grad_outputs or ())
    if not any(map(_core.is_array, given)):
        raise AutogradError("grad: is_grads_batched=True needs a cotangent to find the size of the batch\n"
                            "pass grad_outputs, each with the batch as its first axis")
    is_used: list[bool] = []

    def gradients_of(cotangents: tuple[Any, ...]) -> tuple[Tensor, ...]:
        found = _core.grad(outputs, inputs, cotangents, retain_graph, create_graph, allow_unused, materialize_grads)
        is_used.extend([gradient is not None for gradient in found])
        return tuple([gradient for gradient in found if gradient is not None])

    in_dims = (tuple([0 if _core.is_array(cotangent) else None for cotangent in given]),)
    call = _VmapCall(gradients_of, in_dims, 0, "error", None, _core.calling_site())
    gradients = iter(_map(call, (tuple(map(_as_tensor, given)),), {}))
    return tuple([next(gradients) if used else None for used in is_used])


def _as_tensor(cotangent: Any) -> Any:
    return as_tensor(cotangent) if _core.is_array(cotangent) else cotangent


_core.connect(
    grads_of_batch=_grads_of_batch, moved=moved,
    batched_in_general=lambda interpreter, output, args: _handed_out(_results(interpreter, output, 0), args),
)
