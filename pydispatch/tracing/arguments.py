"""Match the arguments of a call, or of a node that represents one, with the operator's schema."""

# tests: tests/tracing/test_calling.py
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydispatch import _core
from pydispatch._core import OpOverload, OpOverloadPacket
from pydispatch.exceptions import DispatchTypeError
from pydispatch.schema import Argument, Schema
from pydispatch.schema.fitting import signature_of
from pydispatch.schema.frozen import same_value
from pydispatch.tracing.literals import is_literal
from pydispatch.tracing.values import values_in
from pydispatch.tree import tree_leaves


def misfit(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return a description of an error in the number or the names of these arguments, or None if there is none."""
    positional = [argument.name for argument in schema.arguments if not argument.kw_only]
    if len(args) > len(positional):
        return f"{len(args)} positional arguments, expected at most {len(positional)}"
    known = {argument.name for argument in schema.arguments}
    for name in kwargs:
        if name not in known:
            return f"there is no argument {name}"
        if name in positional[:len(args)]:
            return f"argument {name} is given twice"
    passed = {*positional[:len(args)], *kwargs}
    for argument in schema.arguments:
        if not argument.has_default and argument.name not in passed:
            return f"argument {argument.name} is missing"
    return None


@contextmanager
def naming_the_call(
    call: str, f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[None]:
    """Raise an error with the call to write if the block raises TypeError because `f` does not take these arguments."""
    try:
        yield
    except TypeError as error:
        found = _misfit_of_function(f, args, kwargs)
        if found is None:
            raise
        problem, arguments = found
        raise DispatchTypeError(f"{call}: {problem}\npass the arguments of a call: {call}({arguments})") from error


def _misfit_of_function(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Return an error in these arguments and those that are required, or None without an error or a signature."""
    signature = signature_of(f)
    if signature is None:
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        required = [f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else name
                    for name, parameter in signature.parameters.items() if parameter.default is parameter.empty
                    and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]
        return str(error), ", ".join(required)
    return None


def overload_for(packet: OpOverloadPacket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
    """Return the first overload that takes this number of arguments with these names.

    Raise DispatchTypeError if there is none.
    """
    problems = []
    for overload in packet.overloads:
        problem = misfit(overload.schema, args, kwargs)
        if problem is None:
            return overload
        problems.append(f"\n  {overload.schema}: {problem}")
    raise DispatchTypeError(f"no overload of {packet.name} takes these arguments{''.join(problems)}\n"
                            "pass the arguments of one of these schemas")


def by_name(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the passed arguments by name, in the order of the schema."""
    arguments = schema.arguments
    passed = {argument.name: value for argument, value in zip(arguments, args, strict=False)}
    if kwargs:
        for argument in arguments:
            if argument.name in kwargs:
                passed[argument.name] = kwargs[argument.name]
    return passed


def _converted(schema: Schema, argument: Argument, value: Any) -> Any:
    try:
        return argument.convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        problem = str(error)
    raise DispatchTypeError(f"operator {schema.name}: argument {argument.name}: {problem}\n"
                            f"set the node's arguments to match the schema: {schema}")


def stripped_arguments(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that differ from their defaults, with literals converted to the types of the schema."""
    passed = by_name(schema, args, kwargs)
    found = {}
    for argument in schema.arguments:
        if argument.name not in passed:
            continue
        value = passed[argument.name]
        if not argument.type.contains_arrays and all(map(is_literal, values_in(value))):
            value = _converted(schema, argument, value)
        if not (argument.has_default and same_value(value, argument.default)):
            found[argument.name] = value
    return found


def written_arrays(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arrays and Tensors that a call writes to, including those in pytrees."""
    positions = func.schema.written
    if not positions:
        return []
    values = func.bind(args, kwargs)
    return [leaf for i in positions for leaf in tree_leaves(values[i]) if _core.is_array(leaf)]
