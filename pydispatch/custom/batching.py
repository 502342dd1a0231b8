"""Batching rules of operators: what vmap runs in place of many calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydispatch import registry
from pydispatch._core import OpOverload
from pydispatch.custom.checks import as_kernel
from pydispatch.exceptions import RegistrationError
from pydispatch.registry import Kernel, OperatorHandle, schema_of
from pydispatch.schema import ANY, Argument, Schema, compare_signature


class BatchingHandle(OperatorHandle):
    """A batching rule: `(info, in_dims, *args, **kwargs) -> (output, out_dims)`."""

    __slots__ = ("fill", "rule")

    def __init__(self, rule: Kernel, fill: frozenset[str], site: str) -> None:
        super().__init__(site)
        self.rule = rule
        self.fill = fill        # the arguments that are passed even when they equal their default


def add_batching(op: OpOverload, rule: Callable[..., Any], site: str) -> BatchingHandle:
    """Register a batching rule; the newest is used. RegistrationError when it cannot take the operator's arguments."""
    schema = schema_of(op)
    kernel = as_kernel(op.name, "a vmap rule", rule)
    extended = Schema(schema.name, (Argument("info", ANY), Argument("in_dims", ANY), *schema.arguments), schema.returns)
    try:
        fill = compare_signature(extended, rule)
    except ValueError as error:
        raise RegistrationError(
            f"operator {op.name}: the vmap rule {kernel.debug} does not fit the schema: {error}\n"
            f"it is called as rule(info, in_dims, *args, **kwargs), with the arguments of {schema}"
        ) from None
    with registry.lock:
        handle = BatchingHandle(kernel, fill, site)
        registry.install(op.name, handle)
        return handle


def batching_of(op: OpOverload) -> BatchingHandle | None:
    """The batching rule in force, the newest."""
    return next((r for r in reversed(op.registrations) if isinstance(r, BatchingHandle)), None)
