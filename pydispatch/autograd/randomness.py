"""What random operators do under vmap: one draw for all examples, one for each, or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydispatch._core import OpOverload, Vmap
from pydispatch.exceptions import VmapError
from pydispatch.registry.sites import describe_interpreter


def randomness_of(op: OpOverload, interpreter: Vmap) -> str:
    """What a draw is under an interpreter: "same" for all examples, or "different"; VmapError where none is allowed."""
    if interpreter.randomness == "error":
        raise VmapError(
            f"operator {op.name} draws random numbers in {describe_interpreter(interpreter)}, whose randomness is "
            "'error': it does not say whether the examples of a batch share one draw\n"
            f'pass {_mapper(interpreter)}(..., randomness="different") for one draw per example, or '
            'randomness="same" for one draw for all'
        )
    return interpreter.randomness


def _mapper(interpreter: Vmap) -> str:
    """The function that is given the randomness of an interpreter."""
    return interpreter.name if interpreter.name.isidentifier() else "vmap"


def check_shared(op: OpOverload, interpreter: Vmap, in_dims: Sequence[int | None], args: Sequence[Any]) -> None:
    """VmapError for an argument of a draw that differs from example to example: no draw is one of all."""
    for argument, dim, value in zip(op.schema.arguments, in_dims, args, strict=True):
        if dim is not None:
            shape = tuple(getattr(value, "shape", ()))[1:]
            raise VmapError(
                f"operator {op.name}: argument {argument.name!r}, of shape {shape}, is batched in "
                f"{describe_interpreter(interpreter)}, but randomness='same' needs one draw for all\n"
                f'pass {_mapper(interpreter)}(..., randomness="different"), or draw without the argument and '
                "compute with it"
            )
