"""Convert arguments and results of every transform as they enter and leave its interpreter."""

# tests: tests/func/test_grad.py
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Grad, Interpreter, Shell, Tensor, Wrapper
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.values import as_raw_constant, check_no_fake, enter_arrays
from pydispatch.exceptions import AutogradError, NotDifferentiableError, VmapError
from pydispatch.ops import ops
from pydispatch.tree import (
    TreeSpec,
    described_structure,
    flat_spec,
    in_order_of,
    is_pytree_node_type,
    path_of_leaf,
    path_to_leaf_number,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)


def check_differentiable(name: str, value: Any, place: Any) -> None:
    """Raise unless this is a floating-point or complex array. `place` is its position, and its path in a pytree."""
    if isinstance(value, int):
        raise NotDifferentiableError(f"{name}: argument {place} is of type {type(value).__name__}, expected a float or "
                                     f"an array\npass a float: {float(value)}")
    if not _core.is_array(value):
        raise NotDifferentiableError(
            f"{name}: argument {place} is {_core.a_type(value)}, expected an array to differentiate with respect "
            "to\n"
            "pass an array, or a pytree of arrays (see pydispatch.tree.register_pytree_node), or leave it out of "
            "argnums"
        )
    if dtype_of(value).kind not in "fc":
        raise AutogradError(f"{name}: argument {place} has dtype {value.dtype}, but only floating-point and complex "
                            "arrays can be differentiated\nconvert it first: array.astype(float)")


def check_arguments(name: str, leaves: list[Any], spec: TreeSpec, positions: Sequence[int]) -> None:
    """Check that the leaves of the arguments at these positions can be differentiated. `spec` describes their tuple."""
    for n, leaf in enumerate(leaves):
        if not _core.is_array(leaf) or dtype_of(leaf).kind not in "fc":
            check_differentiable(name, leaf, path_to_leaf_number(spec, n, positions))


def check_randomness(name: str, randomness: str) -> None:
    """Raise VmapError unless this is a value that `randomness=` accepts."""
    if randomness not in ("error", "same", "different"):
        raise VmapError(f"{name}: randomness is {randomness!r}, expected 'error', 'same' or 'different'\n"
                        f'write {name}(f, randomness="different") for one draw per example')


def as_array(leaf: Any) -> Any:
    """Convert a float or complex number to the scalar that a transform uses. Return other leaves unchanged."""
    return np.asarray(leaf)[()] if isinstance(leaf, (float, complex)) else leaf


def flatten_arguments(args: tuple[Any, ...]) -> tuple[list[Any], TreeSpec]:
    """Flatten a tuple that mostly holds arrays, converting floats to NumPy scalars."""
    if all(map(_core.is_array, args)):
        return list(args), flat_spec(len(args))
    leaves, spec = tree_flatten(args)
    return list(map(as_array, leaves)), spec


def unflatten_arguments(leaves: list[Any], spec: TreeSpec) -> tuple[Any, ...]:
    """Rebuild the tuple of arguments that `flatten_arguments` took apart."""
    if spec is flat_spec(len(leaves)):
        return tuple(leaves)
    args: tuple[Any, ...] = tree_unflatten(leaves, spec)
    return args


def flatten_like(name: str, what: str, value: Any, spec: TreeSpec, example: str) -> list[Any]:
    """Return the leaves of a pytree that must have the structure `spec`. Dicts may order their keys differently."""
    leaves, found = flatten_arguments(value) if type(value) is tuple else tree_flatten(value)
    leaves = list(map(as_array, leaves))
    ordered = leaves if found is spec else in_order_of(spec, leaves, found)
    if ordered is None:
        raise AutogradError(f"{name}: the {what} have the structure {described_structure(found)}, expected "
                            f"{described_structure(spec)}\n"
                            f"{example}")
    return ordered


def fitted_to(whose: str, model: Any, what: str, value: Any) -> Any:
    """Convert a tangent or cotangent to the dtype of its array. `whose` and `what` name the two in messages.

    Raise AutogradError for another shape, and for a complex value of a real array.
    """
    if tuple(value.shape) != tuple(model.shape):
        raise AutogradError(f"{what} has shape {tuple(value.shape)}, but {whose} has shape {tuple(model.shape)}\n"
                            f"pass an array with the shape of {whose}")
    if isinstance(value, np.matrix):
        raise AutogradError(f"{what} is a numpy.matrix, expected an array\npass numpy.asarray(matrix)")
    if value.dtype == model.dtype:
        return value
    dtype = dtype_of(model)
    if dtype_of(value).kind == "c" and dtype.kind != "c":
        raise AutogradError(f"{what} is complex, but {whose} has dtype {dtype}\npass a real array")
    return ops.np.astype(value, dtype)


def enter_arguments(
    interpreter: Interpreter, args: tuple[Any, ...], chosen: Sequence[int], entered: tuple[Any, ...]
) -> Sequence[Any]:
    """Return the arguments as values of an interpreter: those at the chosen positions entered, others as constants."""
    if type(chosen) is range:       # all of them
        return entered
    values = dict(zip(chosen, entered, strict=True))
    return [values[i] if i in values else enter_arrays(interpreter, arg) for i, arg in enumerate(args)]


def check_no_wrapper(name: str, output: Any) -> None:
    """Raise for a wrapper made inside, because its value may belong to the transform, which does not own the wrapper.

    A class whose objects hold no other array declares `wraps = False`. Of these, raise for a FakeTensor that a trace
    has left behind.
    """
    interpreter = _core.current_state().innermost
    if isinstance(interpreter, Grad):
        check_no_fake(name, output, interpreter.arguments)
    if isinstance(output, Tensor) and isinstance(_core.array_of(output), Shell) and getattr(output, "wraps", True):
        raise AutogradError(
            f"{name}: the function returned {_core.a_type(output)}, a wrapper made inside it, whose value is unknown\n"
            "return the value that it wraps, or pass the wrapper as an argument"
        )


def flatten_outputs(name: str, output: Any) -> tuple[list[Any], TreeSpec]:
    """Return the arrays that a function returned. Raise AutogradError if there is none, or for any other leaf."""
    leaves, spec = tree_flatten(output)
    if not leaves:
        raise AutogradError(f"{name}: the function returned no array\nreturn at least one")
    leaves = [as_array(_core.unwrap_dead_result(leaf)) for leaf in leaves]
    for n, leaf in enumerate(leaves):
        check_no_wrapper(name, leaf)
        if not _core.is_array(leaf):
            raise AutogradError(
                f"{name}: the output{path_of_leaf(spec, n)} is {_core.a_type(leaf)}, expected an array\n"
                "return only arrays, and everything else as aux: has_aux=True"
            )
    return leaves, spec


def check_aux(name: str, output: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return (output, aux) from the value that the function returned."""
    if not has_aux:
        return output, None
    if type(output) is not tuple or len(output) != 2:
        raise AutogradError(f"{name}: with has_aux=True the function returned {_core.a_type(output)}, expected a "
                            "tuple (output, aux)\nreturn exactly two values")
    return output


def leave_aux(aux: Any, interpreter: Interpreter, args: tuple[Any, ...]) -> Any:
    """Return the auxiliary output of a function as the user gets it."""
    def left(leaf: Any) -> Any:
        below, = _core.results_below((leaf,), interpreter)
        return as_passed(_core.unwrap_dead_result(below), args)
    return tree_map(left, aux)


def zeros_for(value: Any, shape: tuple[int, ...] | None = None) -> Any:
    """Return constant zeros of the dtype and backend of a value, of its shape or another, as a raw array if possible.

    If a mode is active, an operator makes them, so that the mode sees it.
    """
    shape = tuple(value.shape) if shape is None else shape
    value = below_interpreters(value)
    if isinstance(value, Tensor):
        if value.dispatches_to_python:
            return ops.np.zeros_like(value.detach(), shape=shape)
        value = value.array
    if isinstance(value, (np.ndarray, np.generic)):
        if _core.active_modes():
            return _core.below_transforms(_zeros, shape, value.dtype)
        return np.zeros(shape, value.dtype)
    return ops.np.zeros_like(value) if shape == tuple(value.shape) else ops.np.zeros_like(value, shape=shape)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    return ops.np.zeros(shape, dtype=dtype, device="CPU")


def below_interpreters(value: Any) -> Any:
    """Return the value under all interpreters: a Tensor, possibly of a class with a handler, or an array.

    For a captured Tensor, apply the active substitution first.
    """
    value = _core.live_value(value)
    while isinstance(value, Wrapper):
        value = _core.array_of(value)
    return value


def as_passed(value: Any, args: tuple[Any, ...], *, of_raw: bool = False, is_new: bool = False) -> Any:
    """Return a constant as the user gets it: a Tensor if a Tensor was passed, a raw array otherwise.

    Under a mode it stays a Tensor even if none was passed, unless it is known to be computed from raw arrays only
    (`of_raw`). With `is_new`, it shares no memory with arrays of the user, so values of the enclosing transforms can be
    written to it.
    """
    return handed_out(value, are_tensors_passed(args), of_raw, is_new=is_new)


def scalar_or_array(value: Any, model: Any) -> Any:
    """Convert the gradient or tangent of `model` to a scalar if `model` is one, or else to an array."""
    if _core.is_scalar(model):
        return _core.to_scalar(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def all_as_passed(values: Sequence[Any], *args: Sequence[Any]) -> list[Any]:
    """Return values computed only from these groups of arrays as the user gets them."""
    as_tensors = any(map(are_tensors_passed, args))
    return [handed_out(value, as_tensors, True) for value in values]


def are_raw(values: Sequence[Any]) -> bool:
    """Return whether none of these values of the interpreter below is a Tensor.

    If the results of a function are raw, no Tensor was used to compute them, and none is used for their derivatives.
    """
    return not any(isinstance(value, Tensor) for value in values)


def are_tensors_passed(args: Sequence[Any]) -> bool:
    """Return whether a Tensor is among the arguments, inside pytrees too."""
    for arg in args:    # noqa: SIM110  half the time of any()
        if type(arg) is not np.ndarray and _holds_tensor(arg):
            return True
    return False


def handed_out(value: Any, as_tensors: bool, of_raw: bool, *, is_new: bool = False) -> Any:
    """Return a constant as the user gets it, given whether a Tensor was passed."""
    if as_tensors:
        if not _core.is_array(value):
            return value
        return _core.own_value(value) if is_new else _core.wrap_value_at(None, value)
    if of_raw and type(value) is Tensor:
        return _core.raw_of(value)
    return value if type(value) is np.ndarray else as_raw_constant(value)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    return is_pytree_node_type(type(value)) and any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))
