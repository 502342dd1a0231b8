"""The parser of types, with their alias annotations and size hints."""

# tests: tests/schema/test_parser.py
from __future__ import annotations

from typing import NoReturn

from pydispatch.schema.base_types import BASE_TYPES, Type
from pydispatch.schema.compound_types import DictType, ListType, TupleType, optional, union, without_none
from pydispatch.schema.model import WRITTEN, AliasInfo, alias_of_list
from pydispatch.schema.scanner import RESERVED_WORDS, Scanner, is_identifier
from pydispatch.schema.spellings import why_unknown
from pydispatch.schema.user_types import type_of_name


def read_type(scanner: Scanner, nested: bool = False) -> tuple[Type, int | None, AliasInfo | None]:
    """Parse a type, its size hint and its annotation. A type `nested` in another one has neither."""
    type = _read_atom(scanner)
    alias: AliasInfo | None = None
    if scanner.token in ("(", "!"):
        if isinstance(without_none(type), TupleType):
            scanner.fail("a tuple cannot have an alias annotation", "Take a list: `Tensor(a!)[] xs`")
        alias = _read_alias(scanner, nested)
    size: int | None = None
    while True:
        if scanner.accept("?"):
            type = optional(type)
        elif scanner.token == "[":
            if size is not None:
                scanner.fail("only the outermost list can have a size hint", f"Write `{type}[]`")
            scanner.advance()
            size = _read_size(scanner, nested)
            type = ListType(type)
            alias = _read_alias_of_list(scanner, nested, alias)
        else:
            return type, size, alias


def _read_atom(scanner: Scanner) -> Type:
    if scanner.accept("("):
        return TupleType(_read_nested_types(scanner))
    if scanner.accept("Dict"):
        return _read_dict(scanner)
    if scanner.accept("Union"):
        return _read_union(scanner)
    base = BASE_TYPES.get(scanner.token)
    if base is not None:
        scanner.advance()
        return base
    parts = _dotted_name(scanner)
    registered = type_of_name.get("".join(parts))
    if registered is None:
        _fail_unknown(scanner, "".join(parts) or scanner.token)
    for _ in parts:
        scanner.advance()
    return registered


def _dotted_name(scanner: Scanner) -> list[str]:
    """Parse names with dots between them."""
    tokens = scanner.tokens[scanner.at :]
    n = 0
    while is_identifier(tokens[n]) and (n == 0 or tokens[n - 1] == "."):
        n += 2 if tokens[n + 1] == "." else 1
    return tokens[:n]


def _fail_unknown(scanner: Scanner, name: str) -> NoReturn:
    token = scanner.token
    if token == "...":
        scanner.fail("'...' is not part of the schema language", "Take a list: `Tensor[] xs`")
    if not is_identifier(token) or token in RESERVED_WORDS - {"None", "NoneType"}:
        scanner.fail_expecting("a type")
    following = scanner.tokens[scanner.at + 1 : scanner.at + 4]
    scanner.fail(*why_unknown(name, following, type_of_name))


def _read_nested_types(scanner: Scanner) -> list[Type]:
    return [read_type(scanner, nested=True)[0] for _ in scanner.items_until(")", "a type")]


def _read_dict(scanner: Scanner) -> DictType:
    scanner.expect("(", "'('", "Write `Dict(str, Tensor)`")
    types = _read_nested_types(scanner)
    if len(types) != 2:
        scanner.fail("a Dict takes exactly two types", "Write `Dict(str, Tensor)`", scanner.at - 1)
    return DictType(*types)


def _read_union(scanner: Scanner) -> Type:
    scanner.expect("(", "'('", "Write `Union(int, str)`")
    members = [
        None if scanner.accept("None") or scanner.accept("NoneType") else read_type(scanner, nested=True)[0]
        for _ in scanner.items_until(")", "a type")
    ]
    try:
        return union(members)
    except ValueError as error:
        scanner.fail(str(error), "Write `Union(int, None)`", scanner.at - 1)


def _read_size(scanner: Scanner, nested: bool) -> int | None:
    """Parse the rest of ``[N]`` or ``[]``."""
    if scanner.accept("]"):
        return None
    if nested:
        scanner.fail("lists inside a tuple, Dict or Union cannot have size hints", "Write `[]`")
    if not scanner.token.isdecimal():
        scanner.fail_expecting("']' or the size of the list", "`int[]`, or `int[2]` to repeat a single int")
    size = int(scanner.advance())
    scanner.expect("]", "']' after the size of the list")
    return size


def _read_alias_of_list(scanner: Scanner, nested: bool, contained: AliasInfo | None) -> AliasInfo | None:
    if scanner.token not in ("(", "!"):
        return alias_of_list(contained)
    own = _read_alias(scanner, nested)
    return AliasInfo(own.before, own.write, own.after, contained)


def _read_alias(scanner: Scanner, nested: bool) -> AliasInfo:
    if nested:
        scanner.fail("types inside a tuple, Dict or Union cannot have alias annotations",
                     "Take a list: `Tensor(a!)[] xs`")
    if scanner.accept("!"):
        return WRITTEN
    scanner.advance()
    before = _read_alias_set(scanner)
    write = scanner.accept("!")
    after = _read_alias_set(scanner) if scanner.accept("->") else before
    scanner.expect(")", "')' after an alias annotation", "Write `(a)`, `(a!)`, `(a|b!)` or `(a -> b)`")
    return AliasInfo(before, write, after)


def _read_alias_set(scanner: Scanner) -> frozenset[str]:
    names = [_read_alias_name(scanner)]
    while scanner.accept("|"):
        names.append(_read_alias_name(scanner))
    return frozenset(names)


def _read_alias_name(scanner: Scanner) -> str:
    return "*" if scanner.accept("*") else scanner.identifier("the name of an alias set", "Write `(a)` or `(a!)`")
