"""Checks of whether a function can be the kernel of a schema."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeGuard, cast

import numpy as np

from pydispatch import _core
from pydispatch.schema.base_types import ANY, DEVICE, NUMERIC_TYPES, STR, TENSOR, Type
from pydispatch.schema.compound_types import ListType, OptionalType
from pydispatch.schema.frozen import REQUIRED, same_value, short_repr
from pydispatch.schema.model import Argument, Schema

KERNELS_IN_C = _core.AnyDevice, _core.ArrayMethod, _core.OutKernel, _core.Reduction
_TELLING: Final = frozenset(("__wrapped__", "__signature__"))      # attributes that give a function another signature
DISPATCHER = type(np.sum)       # the type of NumPy's functions that dispatch by `__array_function__`


class Fit(NamedTuple):
    """The way a function takes the arguments of a schema, as sets of names.

    `filled` arguments have a default in the schema but not in the function, so they are always passed. `unsupported`
    arguments have a default in the schema and no parameter in the function, so they can only have their default.
    """

    filled: frozenset[str] = frozenset()
    unsupported: frozenset[str] = frozenset()


EXACT: Final = Fit()
"""The fit of a function that takes every argument, with the schema's default."""


def first_difference(real: Schema, inferred: Schema) -> str | None:
    """Return the first difference between a kernel's inferred schema and the real one, counting from 1, or None.

    Only numbers of arguments and types count. Names, defaults, annotations, size hints and keyword-only markers are
    ignored. A return annotated Any matches any number of returns. Arguments that the kernel does not take are ignored.
    """
    if [result.type for result in inferred.returns] == [ANY]:
        inferred = Schema(inferred.name, inferred.arguments, real.returns)
    real = without_unsupported(real, inferred)
    for what, ours, theirs in (
        ("arguments", real.arguments, inferred.arguments),
        ("returns", real.returns, inferred.returns),
    ):
        if len(ours) != len(theirs):
            return f"number of {what}: expected {len(ours)}, inferred {len(theirs)}"
    by_name = {argument.name: argument for argument in inferred.arguments if argument.kw_only}
    for i, (argument, at_same_place) in enumerate(zip(real.arguments, inferred.arguments, strict=True), 1):
        other = by_name.get(argument.name, at_same_place) if argument.kw_only else at_same_place
        if not _same_for_kernel(argument.type, other.type):
            return f"argument {i}: expected {argument.type}, inferred {other.type}"
    for i, (result, returned) in enumerate(zip(real.returns, inferred.returns, strict=True), 1):
        is_number = result.type == TENSOR and returned.type in NUMERIC_TYPES     # converted to a 0-d array
        if not is_number and not _same_for_kernel(result.type, returned.type):
            return f"return {i}: expected {result.type}, inferred {returned.type}"
    return None


def without_unsupported(real: Schema, inferred: Schema) -> Schema:
    """Return the real schema without the arguments that a kernel of the inferred schema leaves at their defaults."""
    n = sum(not argument.kw_only for argument in inferred.arguments)
    keywords = {argument.name for argument in inferred.arguments if argument.kw_only}
    by_position = [argument for argument in real.arguments if not argument.kw_only]
    n_spare = max(n - len(by_position), 0)      # positional parameters that keyword-only arguments match
    by_name = [argument for argument in real.arguments if argument.kw_only]
    taken = [argument for i, argument in enumerate(by_position) if i < n or not argument.has_default]
    for argument in by_name:
        if argument.name in keywords or not argument.has_default or n_spare > 0:
            taken.append(argument)
            n_spare -= argument.name not in keywords
    return Schema(real.name, tuple(taken), real.returns)


def _same_for_kernel(real: Type, inferred: Type) -> bool:
    """Return whether the types match. Any matches every type, and str matches Device, which has no class in Python."""
    if inferred == ANY:
        return True
    if isinstance(real, (OptionalType, ListType)) and type(real) is type(inferred):
        return _same_for_kernel(real.inner, cast(ListType, inferred).inner)
    return real == inferred or (real == DEVICE and inferred == STR)


def compare_signature(schema: Schema, fn: Callable[..., Any], *, with_keyset: bool = False) -> Fit:
    """Return how `fn` takes the arguments of a schema.

    Positional arguments match by position, keyword-only ones by name. A function without a known signature is not
    checked. With `with_keyset`, the first parameter is the key set and is not counted.

    Raises ValueError if `fn` does not take an argument that has no default, requires one that the schema does not have,
    or has another default for an argument.
    """
    found = parameters_of(fn)
    if found is None:
        return EXACT
    parameters = found.positional[1:] if with_keyset else found.positional
    passed = [argument for argument in schema.arguments if not argument.kw_only]
    unsupported = [] if found.has_varargs else _unsupported_positions(passed, parameters, found.keywords)
    defaults = [(argument, default) for argument, (_, default) in zip(passed, parameters, strict=False)]
    left = dict(parameters[len(passed) :]) | found.keywords  # can be passed by name
    for argument in schema.arguments[len(passed) :]:
        if argument.name in left:
            defaults.append((argument, left.pop(argument.name)))
        elif not found.has_varkw or argument.name in dict(parameters):
            names = [name.rstrip("/") for name, _ in parameters]
            if not argument.has_default or argument.name in names:
                raise ValueError(f"it does not take a keyword argument {argument.name!r}")
            unsupported.append(argument.name)
    for name, default in left.items():
        if default is REQUIRED:
            raise ValueError(f"it requires a parameter {name.rstrip('/')!r} that the schema does not pass")
    return Fit(frozenset([
        argument.name for argument, default in defaults
        if default is not argument.default and argument.has_default and not _has_default(argument, default)
    ]), frozenset(unsupported))


def _unsupported_positions(
    passed: list[Argument], parameters: list[tuple[str, Any]], keywords: dict[str, Any]
) -> list[str]:
    """Return the positional arguments that a function without `*args` does not take.

    Raises ValueError if one of them has no default.
    """
    rest = passed[len(parameters) :]
    if any(not argument.has_default for argument in rest):
        raise ValueError(
            f"it takes {len(parameters)} positional arguments ({', '.join(name for name, _ in parameters)}), "
            f"the schema passes {len(passed)} ({', '.join(argument.name for argument in passed)})"
        )
    for argument in rest:
        if argument.name in keywords:
            raise ValueError(f"it takes {argument.name!r} by keyword only, the schema passes it by position")
    return [argument.name for argument in rest]


def _has_default(argument: Argument, default: Any) -> bool:
    """Return whether the function has the argument's default. Raise ValueError if it has another default."""
    if default is REQUIRED:
        return False
    if not is_default_of(argument, default):
        raise ValueError(
            f"its default for {argument.name!r} is {short_repr(default)}, "
            f"the schema's is {short_repr(argument.default)}"
        )
    return True


def is_default_of(argument: Argument, value: Any) -> bool:
    """Return whether the default of a function's parameter, once converted, equals the argument's default."""
    try:
        return same_value(argument.convert(value), argument.default)
    except (TypeError, ValueError):
        return False


class Parameters:
    """The parameters of a function: names and defaults, in order."""

    __slots__ = ("has_varargs", "has_varkw", "keywords", "positional")

    def __init__(
        self,
        positional: list[tuple[str, Any]],
        n_positional_only: int,
        keywords: dict[str, Any],
        has_varargs: bool,
        has_varkw: bool,
    ):
        for i, (name, default) in enumerate(positional[:n_positional_only]):
            positional[i] = f"{name}/", default  # a name with a slash matches no keyword
        self.positional = positional
        self.keywords = keywords
        self.has_varargs = has_varargs
        self.has_varkw = has_varkw


def parameters_of(fn: Callable[..., Any]) -> Parameters | None:
    """Return a function's parameters, or None if Python has no signature, as for many functions written in C."""
    if type(fn) in KERNELS_IN_C:    # `inspect` also finds this, but takes as long as filling a whole table
        return None
    written = getattr(fn, "__wrapped__", fn) if type(fn) is DISPATCHER else fn
    if type(written) is types.FunctionType and not _TELLING & written.__dict__.keys():
        return _parameters_of_function(written)
    if is_ufunc(fn):
        return _parameters_of_ufunc(fn)
    if type(fn) is types.BuiltinFunctionType:
        found = _parameters_of_text(getattr(fn, "__text_signature__", None) or "")
        if found is not None:
            return found
    signature = signature_of(fn)
    return None if signature is None else _parameters_of_signature(signature)


def signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature that Python finds, or None, as for some functions of C."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        return None


def is_ufunc(fn: Any) -> TypeGuard[np.ufunc]:
    """Return whether the object is called like a universal function. Numba's are of another class."""
    return isinstance(fn, np.ufunc) or all(type(getattr(fn, count, None)) is int for count in ("nin", "nout"))


def _parameters_of_ufunc(fn: Any) -> Parameters:
    """Return the inputs of a universal function, and the keywords that its class lists (JAX), or any keyword."""
    inputs: list[tuple[str, Any]] = [(f"x{i}", REQUIRED) for i in range(fn.nin)]
    if not isinstance(fn, np.ufunc):
        reported = _parameters_of_signature(inspect.signature(fn))
        if reported.has_varargs:        # Numba's report the parameters of the compiled function
            return Parameters(inputs, fn.nin, reported.keywords, False, reported.has_varkw)
    return Parameters(inputs, fn.nin, {}, False, True)


def _parameters_of_function(fn: types.FunctionType) -> Parameters:
    code = fn.__code__
    names = code.co_varnames
    n = code.co_argcount
    defaults = fn.__defaults__ or ()
    of_keywords = fn.__kwdefaults__ or {}
    return Parameters(
        list(zip(names[:n], (REQUIRED,) * (n - len(defaults)) + defaults, strict=True)),
        code.co_posonlyargcount,
        {name: of_keywords.get(name, REQUIRED) for name in names[n : n + code.co_kwonlyargcount]},
        bool(code.co_flags & inspect.CO_VARARGS),
        bool(code.co_flags & inspect.CO_VARKEYWORDS),
    )


def _parameters_of_text(text: str) -> Parameters | None:
    """Return the parameters in the text signature of a function in C, or None if it is not a simple one.

    `inspect` reads every signature, but its tokenizer takes milliseconds to compile its patterns.
    """
    try:
        definition = ast.parse(f"def f{text}: pass").body[0]
        found = cast(ast.FunctionDef, definition).args
        defaults = [ast.literal_eval(default) for default in found.defaults]
        of_keywords = [REQUIRED if default is None else ast.literal_eval(default) for default in found.kw_defaults]
    except (SyntaxError, ValueError):
        return None
    names = [argument.arg for argument in found.posonlyargs + found.args]
    return Parameters(
        list(zip(names, [REQUIRED] * (len(names) - len(defaults)) + defaults, strict=True)), len(found.posonlyargs),
        {argument.arg: default for argument, default in zip(found.kwonlyargs, of_keywords, strict=True)},
        found.vararg is not None, found.kwarg is not None,
    )


def _parameters_of_signature(signature: inspect.Signature) -> Parameters:
    found: list[list[tuple[str, Any]]] = [[], [], [], [], []]       # by kind, in Python's order
    for p in signature.parameters.values():
        found[p.kind].append((p.name, REQUIRED if p.default is p.empty else p.default))
    positional_only, either, varargs, keywords, varkw = found
    return Parameters(positional_only + either, len(positional_only), dict(keywords), bool(varargs), bool(varkw))
