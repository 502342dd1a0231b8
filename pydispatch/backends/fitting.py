"""Match the arguments of an operator with the parameters of a function in a backend's namespace.

A kernel matches positional arguments by position. Functions of other libraries use NumPy's names or those of the Array
API, but not always in the same order, and they take more arguments by keyword. Here, an argument with a default is
matched by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pydispatch._registry.tables import is_device
from pydispatch.schema import Argument, Schema
from pydispatch.schema.fitting import Fit, Parameters, is_default_of, parameters_of
from pydispatch.schema.frozen import REQUIRED

OTHER_NAMES = {"a_min": "min", "a_max": "max", "axes": "axis", "decimals": "ndigits", "N": "n_rows", "M": "n_cols"}
"""Names in the Array API and other libraries, for arguments that these do not have by NumPy's name."""
NUMBERS = {("expand_dims", "axis"), ("repeat", "repeats")}
"""Arguments that are one or more integers in a schema, and often only one elsewhere. One is passed as a number."""
DEFAULTS = {("transpose", "axes"): lambda a: tuple(reversed(range(len(a.shape))))}
"""Defaults, computed from the first array, for functions that require the argument."""


class Way(NamedTuple):
    """The way in which a function takes one argument: by position (name None), by a name, or not at all."""

    argument: Argument
    name: str | None = None
    is_left_out: bool = False


class Adapted:
    """A kernel that passes arguments to a function of a namespace by the function's own names.

    It passes the first `by_position` arguments as they are. `names` are the names of further positional arguments, and
    `renamed` maps the names of keyword-only ones. In both, None marks an argument that the function does not take.
    """

    __slots__ = ("by_position", "default", "function", "names", "numbers", "renamed")

    def __init__(self, function: Callable[..., Any], operator: str, ways: list[Way]) -> None:
        positional = [way for way in ways if not way.argument.kw_only]
        self.function = function
        self.by_position = sum(way.name is None and not way.is_left_out for way in positional)
        self.names = tuple([way.name for way in positional[self.by_position:]])
        self.renamed = {way.argument.name: way.name for way in ways
                        if way.argument.kw_only and way.name != way.argument.name}
        self.numbers = tuple([i for i, way in enumerate(positional) if (operator, way.argument.name) in NUMBERS])
        self.default = next(((i, DEFAULTS[operator, way.argument.name]) for i, way in enumerate(positional)
                             if (operator, way.argument.name) in DEFAULTS), None)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        if self.numbers or self.default:
            args = self._converted(args)
        for name, other in self.renamed.items():
            if name in options:
                value = options.pop(name)
                if other is not None:
                    options[other] = value
        n = self.by_position
        options |= {other: value for other, value in zip(self.names, args[n:], strict=False) if other is not None}
        return self.function(*args[:n], **options)

    def _converted(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(args)
        for i in self.numbers:
            if i < len(values) and isinstance(values[i], tuple) and len(values[i]) == 1:
                values[i], = values[i]
        if self.default is not None:
            i, default = self.default
            if len(values) > i and values[i] is None:
                values[i] = default(values[0])
        return tuple(values)


def fitted(operator: str, schema: Schema, function: Callable[..., Any]) -> tuple[Callable[..., Any], Fit]:
    """Return a kernel for the function and how it takes the arguments. Raise ValueError if it cannot."""
    found = parameters_of(function) or of_required(schema)
    ways, defaults = ways_of(schema, found)
    unsupported = frozenset([way.argument.name for way in ways if way.is_left_out and not is_device(way.argument)])
    filled = frozenset([way.argument.name for way, default in zip(ways, defaults, strict=True)
                        if not way.is_left_out and is_filled(way.argument, default)])
    return (function if is_direct(operator, ways) else Adapted(function, operator, ways)), Fit(filled, unsupported)


def is_direct(operator: str, ways: list[Way]) -> bool:
    """Return whether the function takes each argument by the position or name that it has in the schema.

    An argument that the function does not take is never passed to it, except a device.
    """
    taken = [way for way in ways if not way.is_left_out or is_device(way.argument)]
    positional = [way for way in ways if not way.argument.kw_only]
    n = sum(not way.is_left_out for way in positional)
    return (all(not way.is_left_out and way.name == (way.argument.name if way.argument.kw_only else None)
                for way in taken) and not any(way.is_left_out for way in positional[:n])
            and not any((operator, way.argument.name) in NUMBERS | DEFAULTS.keys() for way in ways))


def of_required(schema: Schema) -> Parameters:
    """Return the parameters of a C function without a signature: the required arguments, by position."""
    required = [(argument.name, REQUIRED) for argument in schema.arguments if not argument.has_default]
    return Parameters(required, len(required), {}, False, False)


def ways_of(schema: Schema, found: Parameters) -> tuple[list[Way], list[Any]]:
    """Return how the function takes each argument, and its own default for each."""
    by_name = {name: default for name, default in found.positional if not name.endswith("/")} | found.keywords
    parameters = list(found.positional)
    ways: list[Way] = []
    defaults: list[Any] = []
    in_order = True
    for argument in schema.arguments:
        way, default = Way(argument, is_left_out=True), argument.default
        name = next((name for name in (argument.name, OTHER_NAMES.get(argument.name, "")) if name in by_name), None)
        i = len(ways)
        if is_device(argument):         # a kernel of one backend need not take it
            pass
        elif not argument.kw_only and in_order and i < len(parameters) and goes_there(argument, name, parameters[i][0]):
            way, default = Way(argument), parameters[i][1]
            by_name.pop(parameters[i][0], None)
        elif not argument.kw_only and in_order and i >= len(parameters) and found.has_varargs:
            way = Way(argument)
        elif name is not None:
            way, default = Way(argument, name), by_name.pop(name)
        elif found.has_varkw and argument.kw_only:
            way = Way(argument, argument.name)
        elif not argument.has_default:
            raise ValueError(f"it has no parameter {argument.name!r}")
        in_order = in_order and way == Way(argument)
        ways.append(way)
        defaults.append(default)
    check_required(found, by_name, sum(way == Way(way.argument) for way in ways))
    return ways, defaults


def goes_there(argument: Argument, name: str | None, parameter: str) -> bool:
    """Return whether the parameter at the position of an argument is the one for it."""
    return parameter.rstrip("/") in (argument.name, name) or (not argument.has_default and name is None)


def check_required(found: Parameters, left: dict[str, Any], n_by_position: int) -> None:
    """Raise ValueError if the function requires a parameter that no argument fills."""
    left = {name: default for name, default in found.positional[n_by_position:]
            if name.endswith("/") or name in left} | {
        name: default for name, default in found.keywords.items() if name in left}
    for name, default in left.items():
        if default is REQUIRED:
            raise ValueError(f"it requires a parameter {name.rstrip('/')!r} that the operator does not have")


def is_filled(argument: Argument, default: Any) -> bool:
    """Return whether an argument is passed even at its default, because the function's own default differs.

    None means the function's own behaviour, unless the function requires the argument.
    """
    if not argument.has_default or default is argument.default:
        return False
    if default is REQUIRED:
        return True
    return argument.default is not None and not is_default_of(argument, default)
