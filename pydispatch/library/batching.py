"""Batching rules of operators: the functions that vmap runs once for a whole batch instead of once per example."""

# tests: tests/library/test_derived.py
from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pydispatch._core import OpOverload, Vmap
from pydispatch._registry import registrations
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.operators import schema_of
from pydispatch._registry.registrations import RuleHandle
from pydispatch.autograd.batches import call_batching_rule
from pydispatch.exceptions import RegistrationError
from pydispatch.library.checks import as_kernel
from pydispatch.schema import Argument, Schema
from pydispatch.schema.base_types import ANY
from pydispatch.schema.fitting import compare_signature


class BatchingHandle(RuleHandle):
    """The registered batching rule of an operator, made of `function(info, in_dims, *args, **kwargs)`."""

    __slots__ = ("fill", "kernel")

    def __init__(self, kernel: Kernel, fill: Collection[str], site: str) -> None:

        def rule(interpreter: Vmap, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args, kwargs = filled_arguments(func, func.bind(args, kwargs), fill)
            what = f"operator {func.name}: the batching rule {kernel.debug}"
            return call_batching_rule(what, kernel.function, interpreter, args, kwargs)

        super().__init__(Vmap, rule, site)
        self.kernel = kernel
        self.fill = fill        # passed even when they equal their defaults


def filled_arguments(
    op: OpOverload, values: tuple[Any, ...], fill: Collection[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments to pass to a function: those that differ from their defaults, and those named in `fill`."""
    args, kwargs = op.strip_defaults(values)
    for i, argument in enumerate(op.schema.arguments) if fill else ():
        if argument.name in fill and argument.kw_only:
            kwargs[argument.name] = values[i]
        elif argument.name in fill:
            args = values[: max(len(args), i + 1)]
    return args, kwargs


def add_batching(op: OpOverload, function: Callable[..., Any], site: str) -> BatchingHandle:
    """Register a batching rule, which becomes the one in use.

    Raises RegistrationError if the rule cannot take the operator's arguments.
    """
    schema = schema_of(op)
    kernel = as_kernel(op.name, "a batching rule", function)
    extended = Schema(schema.name, (Argument("info", ANY), Argument("in_dims", ANY), *schema.arguments), schema.returns)
    try:
        fit = compare_signature(extended, function)
        if fit.unsupported:
            raise ValueError(f"it has no parameter {', '.join(sorted(fit.unsupported))}")
    except ValueError as error:
        raise RegistrationError(
            f"operator {op.name}: the batching rule {kernel.debug} does not fit the schema: {error}\n"
            f"it is called as rule(info, in_dims, *args, **kwargs), with the arguments of {schema}"
        ) from None
    with registrations.lock:
        handle = BatchingHandle(kernel, fit.filled, site)
        registrations.install(op.name, handle)
        return handle


def batching_of(op: OpOverload) -> RuleHandle | None:
    """Return the batching rule in use, which is the newest, however it was registered."""
    return next((r for r in reversed(op.registrations) if isinstance(r, RuleHandle) and r.cls is Vmap), None)
