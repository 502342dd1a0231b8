"""How a function of a backend's namespace takes the arguments of an operator.

A kernel matches positional arguments by position. Functions of other libraries have the names of NumPy's, or those of
the Array API, but not always its order, and take more by keyword: here an argument with a default matches by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pydispatch.registry.tables import is_device
from pydispatch.schema import Argument, Fit, Schema
from pydispatch.schema.fitting import Parameters, is_default_of, parameters_of
from pydispatch.schema.frozen import REQUIRED

OTHER_NAMES = {"a_min": "min", "a_max": "max", "axes": "axis", "decimals": "ndigits", "N": "n_rows", "M": "n_cols"}
"""Names of arguments in the Array API and other libraries, where these have no argument of NumPy's name."""
NUMBERS = {("expand_dims", "axis"), ("repeat", "repeats")}
"""Arguments that a schema has as one or more integers, and other libraries often as one: one goes as a number."""
DEFAULTS = {("transpose", "axes"): lambda a: tuple(reversed(range(len(a.shape))))}
"""Defaults that a function needs which requires the argument, from the first array."""


class Way(NamedTuple):
    """How a function takes one argument: by position (name None), by a name, or not at all."""

    argument: Argument
    name: str | None = None
    is_left_out: bool = False


class Adapted:
    """A kernel that passes arguments to a function of a namespace by the names that it has for them.

    `by_position` arguments go as they come. `names` are those of further positional arguments and `renamed` maps those
    of keyword-only ones; None for one that the function does not take.
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
    """A kernel of the function, and how it takes the arguments; ValueError with the reason where it cannot."""
    found = parameters_of(function) or of_required(schema)
    ways, defaults = ways_of(schema, found)
    untaken = frozenset([way.argument.name for way in ways if way.is_left_out and not is_device(way.argument)])
    filled = frozenset([way.argument.name for way, default in zip(ways, defaults, strict=True)
                        if not way.is_left_out and is_filled(way.argument, default)])
    return (function if is_direct(operator, ways) else Adapted(function, operator, ways)), Fit(filled, untaken)


def is_direct(operator: str, ways: list[Way]) -> bool:
    """Does the function take all that it is ever passed by the position or name that the argument has in the schema?

    What it does not take is never passed, but for a device.
    """
    taken = [way for way in ways if not way.is_left_out or is_device(way.argument)]
    positional = [way for way in ways if not way.argument.kw_only]
    n = sum(not way.is_left_out for way in positional)
    return (all(not way.is_left_out and way.name == (way.argument.name if way.argument.kw_only else None)
                for way in taken) and not any(way.is_left_out for way in positional[:n])
            and not any((operator, way.argument.name) in NUMBERS | DEFAULTS.keys() for way in ways))


def of_required(schema: Schema) -> Parameters:
    """The parameters of a function in C that does not tell its own: arguments without a default, by position."""
    required = [(argument.name, REQUIRED) for argument in schema.arguments if not argument.has_default]
    return Parameters(required, len(required), {}, False, False)


def ways_of(schema: Schema, found: Parameters) -> tuple[list[Way], list[Any]]:
    """How each argument is taken, and the function's own default for it."""
    by_name = {name: default for name, default in found.positional if not name.endswith("/")} | found.keywords
    parameters = list(found.positional)
    ways: list[Way] = []
    defaults: list[Any] = []
    in_order = True
    for argument in schema.arguments:
        way, default = Way(argument, is_left_out=True), argument.default
        name = next((name for name in (argument.name, OTHER_NAMES.get(argument.name, "")) if name in by_name), None)
        i = len(ways)
        if is_device(argument):         # which a kernel of one backend need not know
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
            raise ValueError(f"it takes no argument {argument.name!r}")
        in_order = in_order and way == Way(argument)
        ways.append(way)
        defaults.append(default)
    check_required(found, by_name, sum(way == Way(way.argument) for way in ways))
    return ways, defaults


def goes_there(argument: Argument, name: str | None, parameter: str) -> bool:
    """Is this parameter, at the position of the argument, the one for it?"""
    return parameter.rstrip("/") in (argument.name, name) or (not argument.has_default and name is None)


def check_required(found: Parameters, left: dict[str, Any], n_by_position: int) -> None:
    """ValueError where the function requires a parameter that no argument is for."""
    left = {name: default for name, default in found.positional[n_by_position:]
            if name.endswith("/") or name in left} | {
        name: default for name, default in found.keywords.items() if name in left}
    for name, default in left.items():
        if default is REQUIRED:
            raise ValueError(f"it requires a parameter {name.rstrip('/')!r} that the operator does not have")


def is_filled(argument: Argument, default: Any) -> bool:
    """Is the argument passed at its default too, because the function has another one?

    None stands for what the function does by itself, unless it requires the argument.
    """
    if not argument.has_default or default is argument.default:
        return False
    if default is REQUIRED:
        return True
    return argument.default is not None and not is_default_of(argument, default)
