"""What is said about levels and in-place writes when something is not possible there, and other help for the core."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import BatchedTensor, Interpreter, OpOverload, TableEntry, Tensor, Vmap
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import (
    AutogradError,
    DataDependentError,
    NoDerivativeError,
    UntrackedResultWarning,
    VmapError,
)
from pydispatch.ops import ops
from pydispatch.registry.sites import frames_to_caller
from pydispatch.tree import tree_leaves, tree_map


def described_level(level: Interpreter) -> str:
    """The transform and where it was called, for messages."""
    where = ""
    if level.site is not None:
        code, offset = level.site
        line = next((line for start, end, line in code.co_lines() if start <= offset < end), code.co_firstlineno)
        where = f", called at {code.co_filename}:{line}"
    return f"{level.name}{where}{'' if level.alive else ', which is over'}"


def misplaced_error(op: OpOverload | None, argument: str | None, value: Any) -> AutogradError | VmapError:
    """A value of a transform is used where that transform is not active."""
    what = "a value" if op is None else f"operator {op.name}: argument {argument!r} is a value"
    if isinstance(value, BatchedTensor) and not value.interpreter.alive:
        return VmapError(f"{what} of {described_level(value.interpreter)}: it has escaped from the function that was "
                         "mapped\nreturn it from there")
    return AutogradError(
        f"{what} of {described_level(value.interpreter)}, which is not active here\n"
        "use it in the function that was transformed, in the same thread, or return it from there; to a kernel, "
        "Function or rule that runs below it, pass it as an argument"
    )


def opaque_autograd_kernel(op: OpOverload, entry: TableEntry, level: Interpreter) -> NoDerivativeError:
    """An operator with an autograd kernel of somebody's own cannot be differentiated by a transform."""
    return NoDerivativeError(
        f"operator {op.name} is used inside of {level.name}, which cannot see through its Autograd kernel "
        f"{entry.kernel.debug}\n"
        f'register a formula instead: pydispatch.library.register_autograd("{op.name}", backward)'
    )


REASONS = {
    "captured": (
        "it is no value of {level}, and what is written to it would be lost to differentiation, or be seen outside",
        "write to a copy made inside, or pass it as an argument of the transformed function",
    ),
    "raw": ("it is a raw array, a constant, and gradients of what is written would be lost",
            "make it a Tensor first: Tensor(array)"),
    "leaf": ("a leaf Tensor that requires grad is being used in an in-place operation",
             "write inside of no_grad(), or to a copy: tensor.copy()"),
    "primal": ("it is an argument that {level} differentiates with respect to, or a view of one",
               "write to a copy: tensor.copy()"),
    "view of a leaf": ("a view of a leaf Tensor that requires grad is being used in an in-place operation",
                       "write inside of no_grad(), or to a copy: tensor.copy()"),
    "passed twice": ("another argument of {level} shares memory with it, and what is written would be a constant there",
                     "pass a copy of one of them: ops.np.copy(array)"),
    "not differentiable": ("it is tracked, and what is written has no gradient: the old one would go on being used",
                           "use the operator that returns a new array"),
    "overlap": ("several of its elements share memory, so writing to one writes to others",
                "write to a copy: tensor.copy()"),
    "without memory": ("it is a wrapper without memory that is a view or has views, so gradients cannot be placed",
                       "write to a copy: tensor.copy()"),
    "inference": ("it was made in inference mode, and in-place writes to it outside are not possible",
                  "write inside of inference_mode(), or to a copy: tensor.copy()"),
}


def write_error(op: OpOverload, argument: str, reason: str, target: Any, level: Interpreter | None) -> AutogradError:
    """An in-place write that would lose a gradient: for one of REASONS, or what kind of view the target is."""
    if reason == "captured" and level is None:
        reason = "raw" if not isinstance(target, Tensor) else "captured"
    article = "" if reason.startswith("one ") else "a "
    why, remedy = REASONS.get(reason, (f"it is {article}{reason}, and writing to it would lose gradients",
                                       "write to a copy: tensor.copy()"))
    place = "the tape" if level is None else described_level(level)
    return AutogradError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, cannot be written to in place: "
        f"{why.format(level=place)}\n{remedy}"
    )


def check_passed_once(op: OpOverload, argument: str, target: Any, level: Interpreter) -> None:
    """Raise AutogradError where two arguments of a transformed function have the memory that is to be written to."""
    leaves = [leaf for leaf in tree_leaves(level.arguments) if _core.is_array(leaf)]
    if len(leaves) > 1 and sum(_overlap(leaf, target) for leaf in leaves) > 1:
        raise write_error(op, argument, "passed twice", target, level)


def _overlap(value: Any, other: Any) -> bool:
    one, two = bottom_of(value), bottom_of(other)
    return isinstance(one, np.ndarray) and isinstance(two, np.ndarray) and np.may_share_memory(one, two)


def overlaps_itself(array: Any) -> bool:
    """Do elements of the array share memory with one another?"""
    if not isinstance(array, np.ndarray) or array.size == 0:
        return False
    reach = 0
    axes = zip(array.strides, array.shape, strict=True)
    for stride, extent in sorted((abs(stride), extent) for stride, extent in axes if extent > 1):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def detach_error(tensor: Tensor) -> AutogradError:
    """The handler of a class has no alias of a value for the tape."""
    return AutogradError(
        f"{type(tensor).__name__}.__pydispatch__ returned its argument for np::detach, expected another object with "
        "the same value: the tape has to keep the result of an operator apart from what goes on with it\n"
        "return a new Tensor of the class around what this one wraps"
    )


_warned: weakref.WeakKeyDictionary[type, set[str]] = weakref.WeakKeyDictionary()


def warn_untracked(op: OpOverload, mode: Any, result: Any) -> None:
    """Warn, once per class and operator, of a mode that gave a constant for what has a gradient."""
    leaves = [leaf for leaf in tree_leaves(result) if _core.is_array(leaf) and leaf.dtype.kind in "fc"]
    names = _warned.setdefault(type(mode), set())
    if str(op.name) in names or not leaves or any(map(_core.is_tracked_anywhere, leaves)):
        return
    names.add(str(op.name))
    warnings.warn(
        f"operator {op.name}: an argument requires grad, and what {type(mode).__name__}.__pydispatch__ returned is a "
        "constant: the gradient ends here\n"
        "return what func(*args, **kwargs) returned or something computed from it, or call inside of no_grad()",
        UntrackedResultWarning, stacklevel=frames_to_caller(),
    )


def unbatched_write(op: OpOverload, argument: str, target: Any, level: Vmap) -> VmapError:
    """What differs from example to example would be written to what all examples share."""
    return VmapError(
        f"operator {op.name}: argument {argument!r}, of shape {tuple(target.shape)}, is the same for every example of "
        f"{described_level(level)}, and what is to be written to it differs from one to the next\n"
        "use the operator that returns a new array, or write to an array with a batch axis: ops.np.zeros_like(x) of a "
        "mapped x, x.copy()"
    )


def number_error(value: BatchedTensor, use: str) -> DataDependentError | VmapError:
    """One number is asked for where every example has its own."""
    level = value.interpreter
    if not level.alive:
        return VmapError(f"a value of {described_level(level)} was used as {use}: it has escaped from the function "
                         "that was mapped\nreturn it from there")
    return DataDependentError(
        f"a value of {described_level(level)} was used as {use}, and every example has its own: what happens next "
        "cannot depend on data inside of vmap\nchoose between results with ops.np.where(condition, x, y) or "
        "pydispatch.higher_order.cond, or call the function on one example"
    )


def not_a_batch(value: Any, level: Vmap) -> VmapError:
    """Something is to be a value of vmap that is no batch of as many examples."""
    return VmapError(
        f"{described_level(level)}: an array of shape {tuple(getattr(value, 'shape', ()))} was given for a batch of "
        f"{level.batch_size}, which has these along its first axis\n"
        "a kernel or batching rule must keep the axis of the examples: see pydispatch.library.register_vmap"
    )


def randomness_of(op: OpOverload, level: Vmap) -> str:
    """What a draw is at a level: "same" for all examples, or "different" ones; VmapError where none is allowed."""
    if level.randomness == "error":
        raise VmapError(
            f"operator {op.name} draws random numbers in {described_level(level)}, whose randomness is 'error': it "
            "does not say whether the examples of a batch share one draw\n"
            f'pass {_mapper(level)}(..., randomness="different") for a draw for each, or randomness="same" for one draw'
        )
    return level.randomness


def _mapper(level: Vmap) -> str:
    """The function that is given the randomness of a level."""
    return level.name if level.name.isidentifier() else "vmap"


def check_shared(op: OpOverload, level: Vmap, in_dims: Sequence[int | None], args: Sequence[Any]) -> None:
    """VmapError for an argument of a draw that differs from example to example: no draw is one of all."""
    for argument, dim, value in zip(op.schema.arguments, in_dims, args, strict=True):
        if dim is not None:
            shape = tuple(getattr(value, "shape", ()))[1:]
            raise VmapError(
                f"operator {op.name}: argument {argument.name!r}, of shape {shape}, differs from "
                f"example to example in {described_level(level)}, whose randomness is 'same': no draw is one of all\n"
                f'pass {_mapper(level)}(..., randomness="different"), or draw without the argument and compute with it'
            )


def enter_arrays(level: Interpreter, value: Any) -> Any:
    """A container with its arrays as new values of a level."""
    return tree_map(lambda leaf: _core.wrap_value_at(level, leaf) if _core.is_array(leaf) else leaf, value)


def values_below(value: Any, level: Interpreter) -> Any:
    """A container with what its values of a level are below it."""
    return tree_map(lambda leaf: _core.value_below(leaf, level), value)


def batch_dims(value: Any, level: Vmap) -> tuple[Any, Any]:
    """(dims, values below) of a container: for each leaf 0, or None where it is no batch of the level."""
    dims = tree_map(lambda leaf: 0 if _core.is_owned_by(leaf, level) else None, value)
    return dims, values_below(value, level)


_core.connect(
    unbatched_write=unbatched_write, not_a_batch=not_a_batch, number_error=number_error, batch_dims=batch_dims,
    zeros_like=lambda value: ops.np.zeros_like(value),
    reshape=lambda value, shape: ops.np.reshape(value, shape),
    moveaxis=lambda value, source, destination: ops.np.moveaxis(value, source, destination),
    add_to=lambda total, value: ops.np.add_(total, value), detach_error=detach_error, warn_untracked=warn_untracked,
    overlaps_itself=overlaps_itself, check_passed_once=check_passed_once,
    described_level=described_level, misplaced_error=misplaced_error, opaque_autograd_kernel=opaque_autograd_kernel,
    write_error=write_error, copy=lambda value: ops.np.copy(value), sum=lambda value, axis: ops.np.sum(value, axis),
    broadcast_to=lambda value, shape: ops.np.broadcast_to(value, shape),
)
