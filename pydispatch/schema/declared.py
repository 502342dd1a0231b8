"""A fast parser for the signatures of declarations, whose arguments are mostly simple and often recur.

`parse_signature` also reads them, but compiles a pattern first and takes ten times as long for an argument. Signatures
that are not simple go to that parser: those with tuples, dicts, several alias sets, names of dtypes or errors.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pydispatch.exceptions import SchemaError
from pydispatch.schema.base_types import BASE_TYPES, Type
from pydispatch.schema.compound_types import ListType, optional, union
from pydispatch.schema.frozen import MISSING, REQUIRED
from pydispatch.schema.literals import simple_literal
from pydispatch.schema.model import MAX_ARGUMENTS, AliasInfo, Argument, Return, Schema, alias_of_list
from pydispatch.schema.parser import lacks_default, parse_argument, parse_returns, parse_signature
from pydispatch.schema.scanner import RESERVED_WORDS, is_identifier


@cache
def parse_declared_signature(text: str) -> Schema:
    """Parse ``(arguments) -> returns``, a schema without a name."""
    arguments, _, returns = text[1:].partition(") -> ")
    try:
        return Schema(None, _arguments(arguments), _returns(returns)) if text[:1] == "(" else parse_signature(text)
    except SchemaError:     # a comma or an arrow in a string, or a real error to show with its place
        return parse_signature(text)


def _arguments(text: str) -> list[Argument]:
    found: list[Argument] = []
    kw_only, piece = False, ""
    for part in text.split(", ") if text else ():
        piece = f"{piece}, {part}" if piece else part
        if ("(" in piece or "[" in piece) and not _is_closed(piece):
            continue
        if piece == "*":
            kw_only = True
        else:
            argument = _argument(piece, kw_only)
            if argument.default is REQUIRED and found and lacks_default(argument, found[-1]):
                raise SchemaError(f"argument {argument} of ({text}) has no default, but follows one that has\n"
                                  "give it a default, or put it before that argument")
            found.append(argument)
        piece = ""
    if piece or len({argument.name for argument in found}) < len(found) or len(found) > MAX_ARGUMENTS:
        raise SchemaError(f"({text}) has an open bracket, two arguments of one name, or more than {MAX_ARGUMENTS}\n"
                          'write it as in "Tensor x, int[] shape, *, bool keepdims=False"')
    return found


def _is_closed(text: str) -> bool:
    return text.count("(") == text.count(")") and text.count("[") == text.count("]")


@cache
def _argument(text: str, kw_only: bool) -> Argument:
    return _simple_argument(text, kw_only) or parse_argument(text, kw_only)


@cache
def _returns(text: str) -> tuple[Return, ...]:
    parts = text[1:-1].split(", ") if text.startswith("(") else [text]
    types = [_simple_type(part) for part in parts]
    if None in types:
        return parse_returns(text)
    return tuple([Return("", *found) for found in types if found is not None])


def _simple_argument(text: str, kw_only: bool) -> Argument | None:
    """Return the argument if it has a simple type, a name, and at most a simple default. Otherwise return None."""
    head, equals, literal = text.partition("=")
    spelled, _, name = head.rpartition(" ")
    found = _simple_type(spelled)
    if found is None or not is_identifier(name) or name in RESERVED_WORDS:
        return None
    type, size, alias = found
    argument = Argument(name, type, size, kw_only=kw_only, alias=alias)
    if not equals:
        return argument
    value: Any = simple_literal(literal)
    if value is MISSING or (value is not None and type.contains_arrays):
        return None
    try:
        return Argument(name, type, size, argument.convert(value), kw_only, alias)
    except (TypeError, ValueError):
        return None


@cache
def _simple_type(text: str) -> tuple[Type, int | None, AliasInfo | None] | None:
    """Return a simple type with its size hint and alias annotation, or None.

    Simple types are a base type, an array with one alias set, a list, an optional type, and a union.
    """
    if text in BASE_TYPES:
        return BASE_TYPES[text], None, None
    if text.endswith("?"):
        inner = _simple_type(text[:-1])
        return None if inner is None else (optional(inner[0]), *inner[1:])
    if text.endswith("]"):
        spelled, _, size = text[:-1].rpartition("[")
        inner = _simple_type(spelled)
        if inner is None or inner[1] is not None or not (not size or (size.isascii() and size.isdecimal())):
            return None
        return ListType(inner[0]), int(size) if size else None, alias_of_list(inner[2])
    if text.startswith("Union(") and text.endswith(")"):
        members = [_simple_type(part) for part in text[6:-1].split(", ")]
        is_plain = all(member is not None and member[1:] == (None, None) for member in members)
        return (union([member[0] for member in members if member is not None]), None, None) if is_plain else None
    spelled, _, mark = text.removesuffix(")").partition("(")
    name = mark.removesuffix("!")
    if spelled != "Tensor" or len(name) != 1 or not is_identifier(name) or text != f"Tensor({mark})":
        return None
    return BASE_TYPES[spelled], None, AliasInfo(frozenset(name), mark != name)
