"""`jacrev`, `jacfwd` and `hessian`: all derivatives of all outputs.

`jacrev` records a function once and runs backward from a whole basis of cotangents. `jacfwd` runs it once with a whole
basis of tangents. `vmap` batches only the basis, so the function may branch on its values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Grad, Jvp, Tensor, Vmap
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.batches import repeated
from pydispatch.autograd.grad_modes import inference_mode, no_grad
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import AutogradError
from pydispatch.func.functions import returned_by
from pydispatch.func.grad import Recorded, positions_of, record
from pydispatch.func.jvp import Propagated, inexact_error, is_inexact_array, propagate
from pydispatch.func.values import (
    are_raw,
    are_tensors_passed,
    below_interpreters,
    check_arguments,
    check_randomness,
    flatten_arguments,
    handed_out,
    leave_aux,
    unflatten_arguments,
    zeros_for,
)
from pydispatch.ops import ops
from pydispatch.tree import TreeSpec, path_of_leaf, path_to_leaf_number, tree_map, tree_unflatten

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")


def jacrev(
    func: Callable[P, Any], argnums: int | Sequence[int] = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """Return a function that computes the Jacobian of `func` in reverse mode, fast if outputs are fewer than inputs.

    Parameters
    ----------
    func : callable
        A function of real floating-point arrays that returns such arrays. With `has_aux` it returns (output, aux).
    argnums : int or tuple of int, optional
        The positional arguments to differentiate with respect to.
    has_aux : bool, optional
        With True, the result is (Jacobian, aux).
    chunk_size : int, optional
        The number of rows to compute at a time. With 1, nothing is batched.
    holomorphic : bool, optional
        With True, inputs and outputs are complex, and the blocks are complex derivatives.

    Returns
    -------
    callable
        A function of the same arguments. Its result has the structure of the output. For each output, it contains a
        block for each input. These blocks have the structure of the argument that `argnums` names, or of the tuple of
        arguments if `argnums` is a tuple. A block has the shape of its output followed by that of its input.

    Raises
    ------
    ValueError
        For a `chunk_size` below 1.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import func
    >>> func.jacrev(lambda x: x ** 2)(numpy.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise ValueError(f"jacrev: chunk_size is {chunk_size!r}, expected a positive int or None\n"
                         "write jacrev(f, chunk_size=64), or leave it out")

    @returned_by(jacrev, func, argnums, has_aux=has_aux, chunk_size=chunk_size, holomorphic=holomorphic)
    def jacobian(*args: Any) -> Any:
        return _by_rows("jacrev", func, args, argnums, has_aux, chunk_size, holomorphic, _core.calling_site())

    return jacobian


def jacfwd(
    func: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, *, randomness: str = "error",
    holomorphic: bool = False,
) -> Callable[P, Any]:
    """Return a function that computes the Jacobian of `func` in forward mode, fast if inputs are fewer than outputs.

    Parameters
    ----------
    func : callable
        A function of real floating-point arrays. Its outputs may have any dtype. With `has_aux` it returns (output,
        aux).
    argnums : int or tuple of int, optional
        The positional arguments to differentiate with respect to.
    has_aux : bool, optional
        With True, the result is (Jacobian, aux).
    randomness : {"error", "same", "different"}, optional
        How random operators draw, as for `vmap`.
    holomorphic : bool, optional
        With True, inputs and outputs are complex, and the blocks are complex derivatives.

    Returns
    -------
    callable
        A function of the same arguments. Its result has the blocks of `jacrev`. A block has the dtype of its output.

    Raises
    ------
    VmapError
        For another value of `randomness`.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import func
    >>> func.jacfwd(lambda x: x ** 2)(numpy.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    check_randomness("jacfwd", randomness)

    @returned_by(jacfwd, func, argnums, has_aux, randomness=randomness, holomorphic=holomorphic)
    def jacobian(*args: Any) -> Any:
        return _by_columns("jacfwd", func, args, argnums, has_aux, randomness, holomorphic, _core.calling_site())

    return jacobian


def hessian(
    func: Callable[P, Any], argnums: int | Sequence[int] = 0, *, holomorphic: bool = False
) -> Callable[P, Any]:
    """Return a function that computes the second derivatives of `func`: `jacfwd` of `jacrev`.

    Parameters
    ----------
    func : callable
        A function of real floating-point arrays. It runs once, so all blocks see the same random numbers.
    argnums : int or tuple of int, optional
        The positional arguments to differentiate with respect to.
    holomorphic : bool, optional
        With True, inputs and outputs are complex.

    Returns
    -------
    callable
        A function of the same arguments. A block of its result has the shape of its output followed by those of both
        inputs. For each input of the first derivative, the blocks of the second derivative have the structure of the
        inputs.

    Examples
    --------
    >>> import numpy
    >>> import pydispatch.numpy as np
    >>> from pydispatch import func
    >>> func.hessian(lambda x: np.sum(x ** 3))(numpy.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """

    @returned_by(hessian, func, argnums, holomorphic=holomorphic)
    def second_derivatives(*args: Any) -> Any:
        site = _core.calling_site()

        def first_derivatives(*inner: Any) -> Any:
            return _by_rows("hessian", func, inner, argnums, False, None, holomorphic, site)

        return _by_columns("hessian", first_derivatives, args, argnums, False, "same", holomorphic, site)

    return second_derivatives


class Inputs(NamedTuple):
    """The arrays to differentiate with respect to."""

    positions: tuple[int, ...]
    leaves: list[Any]
    spec: TreeSpec          # of the tuple of the arguments at these positions
    as_tuple: bool          # whether blocks are nested in a tuple of arguments

    def place(self, n: int) -> str:
        """Return the position of the argument that holds the n-th array, and the path inside it, for messages."""
        return path_to_leaf_number(self.spec, n, self.positions)

    def nested(self, blocks: list[Any]) -> Any:
        """Return the blocks, one for each array, in the structure of the arguments."""
        nested = unflatten_arguments(blocks, self.spec)
        return nested if self.as_tuple else nested[0]


def _inputs(args: tuple[Any, ...], argnums: Any) -> Inputs:
    positions = positions_of(argnums, len(args))
    leaves, spec = flatten_arguments(tuple([args[i] for i in positions]))
    return Inputs(positions, leaves, spec, not isinstance(argnums, int))


def _out_of_inference_mode(function: F) -> F:
    """Run the function with inference mode off, so that its values are ordinary like those of `grad`, and untracked."""

    @functools.wraps(function)
    def ordinary(*args: Any) -> Any:
        if not _core.current_state().inference:
            return function(*args)
        with inference_mode(False), no_grad():
            return function(*args)

    return ordinary     # type: ignore[return-value]


# --- reverse mode ----------------------------------------------------------------------------------------------------


@_out_of_inference_mode
def _by_rows(
    name: str, func: Callable[..., Any], args: tuple[Any, ...], argnums: Any, has_aux: bool, chunk_size: int | None,
    holomorphic: bool, site: Any,
) -> Any:
    if not has_aux and chunk_size is None and not holomorphic:
        flat = _core.jacobian_by_rows(name, func, args, argnums, site)
        if flat is not _core.NOT_FLAT:
            return flat
    inputs = _inputs(args, argnums)
    check_arguments(name, inputs.leaves, inputs.spec, inputs.positions)
    _check_inputs(name, inputs, holomorphic)
    interpreter = Grad(name, site)
    run = record(interpreter, func, args, {}, inputs.positions, inputs.leaves, inputs.spec, has_aux)
    jacobian = _jacobian_of_rows(run, name, args, inputs, chunk_size, holomorphic, site)
    return (jacobian, leave_aux(run.aux, interpreter, args)) if has_aux else jacobian


def _jacobian_of_rows(
    run: Recorded, name: str, args: tuple[Any, ...], inputs: Inputs, chunk_size: int | None, holomorphic: bool,
    site: Any,
) -> Any:
    for n, output in enumerate(run.outputs):
        if holomorphic:
            _check_complex_output(name, output, path_of_leaf(run.spec, n))
        elif dtype_of(output).kind != "f":
            raise AutogradError(f"{name}: the output{path_of_leaf(run.spec, n)} has dtype {output.dtype}, expected a "
                                "real floating-point one\nreturn the real and imaginary parts as two outputs, or "
                                f"pass holomorphic=True to {name} if the inputs are also complex and the function has "
                                "a complex derivative")
    blocks = _blocks_of_rows(run, inputs.leaves, chunk_size, site)
    if holomorphic:     # a gradient is the conjugate of the derivative
        blocks = [[ops.np.conjugate(block) for block in row] for row in blocks]
    as_tensors, of_raw = are_tensors_passed(args), are_raw(run.outputs)
    return tree_unflatten([
        inputs.nested([handed_out(block, as_tensors, of_raw, is_new=True) for block in row]) for row in blocks
    ], run.spec)


def _check_inputs(name: str, inputs: Inputs, holomorphic: bool) -> None:
    """Raise AutogradError if an input is complex without `holomorphic`, or real with it."""
    for n, leaf in enumerate(inputs.leaves):
        if holomorphic and dtype_of(leaf).kind != "c":
            raise AutogradError(f"{name}: argument {inputs.place(n)} has dtype {leaf.dtype}, expected a complex "
                                "one because holomorphic is True\n"
                                f"write {name}(f), or pass a complex array: x.astype(complex)")
        if not holomorphic and dtype_of(leaf).kind != "f":
            raise AutogradError(
                f"{name}: argument {inputs.place(n)} has dtype {leaf.dtype}, expected a real floating-point one\n"
                f"write {name}(f, holomorphic=True) if f has a complex derivative, or differentiate with respect to "
                f"the real and imaginary parts: {name}(lambda x, y: f(x + 1j * y), (0, 1))(z.real, z.imag)")


def _check_complex_output(name: str, output: Any, where: str) -> None:
    if dtype_of(output).kind != "c":
        raise AutogradError(f"{name}: the output{where} has dtype {output.dtype}, expected a complex one because "
                            "holomorphic is True\n"
                            "return a complex array, or differentiate with respect to the real and imaginary parts: "
                            f"{name}(lambda x, y: f(x + 1j * y), (0, 1))(z.real, z.imag)")


def _blocks_of_rows(run: Recorded, leaves: list[Any], chunk_size: int | None, site: Any) -> list[list[Any]]:
    """Return, for each output, the blocks of all inputs."""
    sizes = [math.prod(output.shape) for output in run.outputs]
    total = sum(sizes)
    rows = _rows(run, sizes, total, chunk_size, site)
    blocks = []
    start = 0
    for output, size in zip(run.outputs, sizes, strict=True):
        shape = tuple(output.shape)
        blocks.append([
            _block(found, start, size, total, shape + tuple(leaf.shape), leaf)
            for found, leaf in zip(rows, leaves, strict=True)
        ])
        start += size
    return blocks


def _block(rows: Any, start: int, size: int, total: int, shape: tuple[int, ...], leaf: Any) -> Any:
    if rows is None or size == 0:
        return zeros_for(leaf, shape)
    part = _indexable(rows) if size == total else _indexable(rows)[start:start + size]
    part = part if tuple(part.shape) == shape else part.reshape(shape)
    return _core.to_scalar(part) if not shape and _core.is_scalar(leaf) else part


def _indexable(value: Any) -> Any:
    """Return an object with the methods of arrays: a Tensor for other backends and if a mode has to see them."""
    return value if isinstance(value, np.ndarray) and not _core.active_modes() else as_tensor(value)


def _rows(run: Recorded, sizes: list[int], total: int, chunk_size: int | None, site: Any) -> list[Any]:
    """Return, for each input, the gradients of all elements of all outputs along axis 0, or None if these are zeros.

    If there is one element in total, its gradient has no such axis.
    """
    if total == 0:
        return [None] * len(run.inputs)
    basis = _basis(run.outputs, sizes, total)
    if total == 1:
        return run.pull(_selected(basis, 0), keep=False)
    if chunk_size == 1:
        rows = [run.pull(_selected(basis, i), keep=True) for i in range(total)]
        return _joined(rows, ops.np.stack)
    if chunk_size is None or chunk_size >= total:
        return _batch_of_rows(run, basis, total, site)
    return _joined([
        _batch_of_rows(run, _selected(basis, slice(i, i + chunk_size)), min(chunk_size, total - i), site)
        for i in range(0, total, chunk_size)
    ], ops.np.concatenate)


def _joined(pieces: list[list[Any]], join: Callable[[Any], Any]) -> list[Any]:
    """Join the rows of all chunks. In each chunk, the same inputs have gradients."""
    return [None if parts[0] is None else join(parts) for parts in zip(*pieces, strict=True)]


def _batch_of_rows(run: Recorded, cotangents: list[Any], n: int, site: Any) -> list[Any]:
    interpreter = Vmap(n, "error", run.interpreter.name, site)

    def pull() -> list[Any]:
        return run.pull([_core.wrap_value_at(interpreter, part) for part in cotangents], keep=True)

    found = _core.run_under(interpreter, pull)
    return [None if gradient is None else _batch(gradient, interpreter) for gradient in found]


def _batch(value: Any, interpreter: Vmap) -> Any:
    """Return a value of an interpreter of `vmap` with all examples along axis 0, even if they are all equal."""
    if _core.is_owned_by(value, interpreter):
        return _core.array_of(value)
    return repeated(value, interpreter.batch_size)


# --- forward mode ----------------------------------------------------------------------------------------------------


@_out_of_inference_mode
def _by_columns(
    name: str, func: Callable[..., Any], args: tuple[Any, ...], argnums: Any, has_aux: bool, randomness: str,
    holomorphic: bool, site: Any,
) -> Any:
    if not has_aux and not holomorphic:
        flat = _core.jacobian_by_columns(name, func, args, argnums, randomness, site)
        if flat is not _core.NOT_FLAT:
            return flat
    inputs = _inputs(args, argnums)
    for n, leaf in enumerate(inputs.leaves):
        if not is_inexact_array(leaf):
            raise inexact_error(name, f"argument {inputs.place(n)}", leaf)
    _check_inputs(name, inputs, holomorphic)
    sizes = [math.prod(leaf.shape) for leaf in inputs.leaves]
    total = max(sum(sizes), 1)
    batch = Vmap(total, randomness, name, site)
    interpreter = Jvp(name, site)

    def push() -> Propagated:
        tangents = [_core.wrap_value_at(batch, part) for part in _basis(inputs.leaves, sizes, total)]
        return propagate(interpreter, func, args, inputs.positions, inputs.leaves, tangents, inputs.spec, has_aux)

    run = _core.run_under(batch, push)
    jacobian = _jacobian_of_columns(run, name, args, inputs, batch, holomorphic)
    if not has_aux:
        return jacobian
    aux = tree_map(lambda leaf: _first(_core.value_below(leaf, interpreter), batch), run.aux)
    return jacobian, leave_aux(aux, interpreter, args)


def _jacobian_of_columns(
    run: Propagated, name: str, args: tuple[Any, ...], inputs: Inputs, batch: Vmap, holomorphic: bool
) -> Any:
    sizes = [math.prod(leaf.shape) for leaf in inputs.leaves]
    outputs = [_first(output, batch) for output in run.outputs]
    for n, output in enumerate(outputs if holomorphic else ()):
        _check_complex_output(name, output, path_of_leaf(run.spec, n))
    as_tensors, of_raw = are_tensors_passed(args), are_raw(outputs)
    rows = []
    for output, tangent in zip(outputs, run.tangents, strict=True):
        blocks = _blocks_of_columns(output, tangent, inputs, sizes, batch)
        rows.append(inputs.nested([handed_out(block, as_tensors, of_raw, is_new=True) for block in blocks]))
    return tree_unflatten(rows, run.spec)


def _first(value: Any, interpreter: Vmap) -> Any:
    if not _core.is_owned_by(value, interpreter):
        return value
    batch = _core.array_of(value)
    return batch[0] if isinstance(batch, np.ndarray) else ops.np.getitem(batch, 0)


def _blocks_of_columns(output: Any, tangent: Any, inputs: Inputs, sizes: list[int], interpreter: Vmap) -> list[Any]:
    shape = tuple(output.shape)
    if tangent is None:
        return [zeros_for(output, shape + tuple(leaf.shape)) for leaf in inputs.leaves]
    columns = _indexable(_batch(tangent, interpreter))
    blocks = []
    start = 0
    for leaf, size in zip(inputs.leaves, sizes, strict=True):
        part = columns if size == len(columns) else columns[start:start + size]
        block = part.transpose((*range(1, len(shape) + 1), 0)).copy()
        block = block.reshape(shape + tuple(leaf.shape))
        blocks.append(_core.to_scalar(block) if _core.is_scalar(leaf) else block)
        start += size
    return blocks


# --- both modes ------------------------------------------------------------------------------------------------------


def _basis(values: list[Any], sizes: list[int], total: int) -> list[Any]:
    """Return all unit vectors of the joint space of the values, along axis 0, split into parts like the values."""
    parts = []
    start = 0
    for value, size in zip(values, sizes, strict=True):
        parts.append(_unit_vectors(value, total, start, size).reshape((total, *value.shape)))
        start += size
    return parts


def _selected(basis: list[Any], rows: int | slice) -> list[Any]:
    return [ops.np.getitem(part, (rows, Ellipsis)) for part in basis]       # arrays, also of one element


def _unit_vectors(value: Any, total: int, start: int, size: int) -> Any:
    """Return `size` columns of the identity matrix of `total` rows, from column `start`, on the backend of a value.

    If a mode is active, an operator makes them, so that the mode sees it.
    """
    value = below_interpreters(value)
    array = _core.array_of(value) if isinstance(value, Tensor) else value
    if isinstance(array, (np.ndarray, np.generic)):
        if _core.active_modes():
            return _core.below_transforms(_by_operator, total, start, size, value.dtype)
        return _in_numpy(total, start, size, value.dtype)
    zeros = zeros_for(value, (total, size))
    if isinstance(value, Tensor) and value.dispatches_to_python:        # a fake accepts no array with data
        rows = ops.np.cumsum(ops.np.ones_like(zeros, shape=(total, 1), dtype=int), 0)
        columns = ops.np.cumsum(ops.np.ones_like(zeros, shape=(1, size), dtype=int), 1)
        return (rows == columns + start).astype(value.dtype)
    return as_tensor(ops.np.add(zeros, _in_numpy(total, start, size, dtype_of(value))))


def _by_operator(total: int, start: int, size: int, dtype: np.dtype[Any]) -> Any:
    return ops.np.eye(total, size, -start, dtype=dtype, device="CPU")


def _in_numpy(total: int, start: int, size: int, dtype: np.dtype[Any]) -> Any:
    flat = np.zeros(total * size, dtype)
    flat[start * size:(start + size) * size:size + 1] = 1
    return flat.reshape((total, size))


_core.connect(
    jacobian_of_columns=lambda run, name, args, argnums, batch: _jacobian_of_columns(
        run, name, args, _inputs(args, argnums), batch, False),
    jacobian_of_rows=lambda run, name, args, argnums, site: _jacobian_of_rows(
        run, name, args, _inputs(args, argnums), None, False, site),
    whole_batch=_batch,
)
