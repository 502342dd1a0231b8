"""Checks of whether an operator can have rules, and of whether a rule's functions can be called as required."""

# tests: tests/library/test_custom_operator.py
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from pydispatch._core import OpOverload
from pydispatch._registry.kernels import Kernel, check_function
from pydispatch.exceptions import RegistrationError
from pydispatch.schema import Argument, OperatorName, Schema
from pydispatch.schema.base_types import TENSOR, Type
from pydispatch.schema.compound_types import ListType, without_none
from pydispatch.schema.fitting import signature_of


def is_array(type: Type) -> bool:
    """Return whether this is the type of one array, or of an optional array."""
    return without_none(type) == TENSOR


def is_list_of_arrays(type: Type) -> bool:
    """Return whether this is the type of a list of arrays, which may be optional or have optional elements."""
    type = without_none(type)
    return isinstance(type, ListType) and is_array(type.inner)


def is_view(schema: Schema) -> bool:
    """Return whether a result may share memory with an argument."""
    return any(result.alias is not None and not result.mutable for result in schema.returns)


def is_in_place(schema: Schema) -> bool:
    """Return whether an operator writes to exactly one array and returns it."""
    written = [argument for argument in schema.arguments if argument.mutable]
    if len(written) != 1 or len(schema.returns) != 1:
        return False
    result = schema.returns[0]
    return result.mutable and written[0].type == result.type == TENSOR and written[0].alias == result.alias


def keyword_only_array(schema: Schema) -> Argument | None:
    """Return the first keyword-only argument that may hold arrays, or None."""
    return next((argument for argument in schema.arguments if argument.kw_only and argument.type.contains_arrays), None)


def check_role(
    op: OpOverload | OperatorName, role: str, function: Callable[..., Any], positional: Sequence[str],
    keywords: Iterable[str] = (),
) -> Kernel:
    """Return the function as a kernel, after checking that it can be called with these arguments.

    Raises RegistrationError if it cannot.
    """
    name = op.name if isinstance(op, OpOverload) else op
    kernel = as_kernel(name, role, function)
    reason = _why_not(function, positional, keywords)
    if reason is not None:
        call = ", ".join((*positional, *(f"{keyword}={keyword}" for keyword in keywords)))
        raise RegistrationError(
            f"operator {name}: {role} {kernel.debug} does not accept the call that it will get: {reason}\n"
            f"the call: {role}({call})"
        )
    return kernel


def as_kernel(name: OperatorName, role: str, function: Callable[..., Any]) -> Kernel:
    """Return the function as a kernel. Raise RegistrationError for an object that is not a function."""
    check_function(f"operator {name}", role, function, f"pass a callable as {role}")
    return Kernel(function)


def _why_not(function: Callable[..., Any], positional: Sequence[str], keywords: Iterable[str]) -> str | None:
    if _takes_exactly(function, len(positional), keywords):
        return None
    signature = signature_of(function)
    if signature is None:
        return None
    places = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    is_open = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    if len(positional) > len(places) and not is_open:
        return f"it has no parameter for {positional[len(places)]!r}"
    try:
        signature.bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        return str(error)
    return None


def _takes_exactly(function: Callable[..., Any], n: int, keywords: Iterable[str]) -> bool:
    """Return whether a function has `n` parameters, then these keywords. `inspect` is much slower."""
    code = function.__code__ if type(function) is FunctionType and not function.__dict__ else None
    return code is not None and not (
        code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or code.co_kwonlyargcount
        or code.co_posonlyargcount) and code.co_argcount >= n and (
        set(code.co_varnames[n:code.co_argcount]) == set(keywords))


def gradient_names(schema: Schema) -> list[str]:
    """Return the names that messages give to the parameters of backward."""
    if len(schema.returns) == 1:
        return ["grad"]
    return [f"grad_{result.name or i}" for i, result in enumerate(schema.returns)]
