"""The parser of schemas."""

from __future__ import annotations

from functools import cache

from pydispatch.schema.compound_types import ListType
from pydispatch.schema.default_parser import read_default
from pydispatch.schema.model import MAX_ARGUMENTS, Argument, Return, Schema
from pydispatch.schema.names import OperatorName, read_name
from pydispatch.schema.scanner import Scanner, is_identifier
from pydispatch.schema.type_parser import read_type


def parse_schema(text: str) -> Schema:
    """Parse ``namespace::name.overload(arguments) -> returns``.

    Raises SchemaError with a caret under the token that does not fit.
    """
    scanner = Scanner(text, "schema")
    name = read_name(scanner)
    if scanner.token == "":
        scanner.fail("expected a schema, found a name", f"Write `{name}(Tensor x) -> Tensor`")
    return _read_schema(scanner, name)


def parse_signature(text: str) -> Schema:
    """Parse ``(arguments) -> returns``, a schema without a name."""
    return _read_schema(Scanner(text, "schema"), None)


@cache
def parse_declared_signature(text: str) -> Schema:
    """Parse the signature of a declaration. Declarations with the same text share the schema."""
    return parse_signature(text)


def parse_schema_or_name(text: str) -> Schema | OperatorName:
    """Parse a schema or a name. A parenthesis after the name makes it a schema."""
    scanner = Scanner(text, "schema")
    name = read_name(scanner)
    if scanner.token == "(":
        return _read_schema(scanner, name)
    scanner.end()
    return name


def _read_schema(scanner: Scanner, name: OperatorName | None) -> Schema:
    arguments = _read_arguments(scanner)
    scanner.expect("->", "'->' and the returns", "Write `-> ()` to return nothing")
    returns = _read_returns(scanner)
    scanner.end()
    return Schema(name, arguments, returns)


def _read_arguments(scanner: Scanner) -> list[Argument]:
    arguments: list[Argument] = []
    kw_only = False
    scanner.expect("(", "'(' and the arguments")
    for _ in scanner.items_until(")", "an argument"):
        if scanner.accept("*"):
            kw_only = True
        else:
            arguments.append(_read_argument(scanner, kw_only, arguments))
    return arguments


def _read_argument(scanner: Scanner, kw_only: bool, before: list[Argument]) -> Argument:
    if len(before) == MAX_ARGUMENTS:
        scanner.fail(f"more than {MAX_ARGUMENTS} arguments", "Take a list: `Tensor[] xs`")
    type, size, alias = read_type(scanner)
    at = scanner.at
    name = scanner.identifier("the name of the argument", "Write it after the type: `Tensor x`")
    if before and any(argument.name == name for argument in before):
        scanner.fail(f"two arguments are named {name!r}", "", at)
    argument = Argument(name, type, size, kw_only=kw_only, alias=alias)
    if scanner.accept("="):
        return Argument(name, type, size, read_default(scanner, argument), kw_only, alias)
    if before and before[-1].has_default and not (kw_only or isinstance(type, ListType)):
        scanner.fail(
            f"argument {name!r} has no default, but {before[-1].name!r} before it has one",
            f"Give it a default, or make it keyword-only: `*, {argument}`",
            at,
        )
    return argument


def _read_returns(scanner: Scanner) -> list[Return]:
    parenthesised = scanner.accept("(")
    if scanner.token in ("None", "NoneType") and (not parenthesised or scanner.tokens[scanner.at + 1] == ")"):
        scanner.fail(f"{scanner.token!r} is not a return type", "Write `-> ()` to return nothing")
    if not parenthesised:
        return [_read_return(scanner)]
    returns: list[Return] = []
    for _ in scanner.items_until(")", "a return"):
        result = _read_return(scanner)
        if result.name and any(other.name == result.name for other in returns):
            scanner.fail(f"two returns are named {result.name!r}", "", scanner.at - 1)
        returns.append(result)
    return returns


def _read_return(scanner: Scanner) -> Return:
    type, size, alias = read_type(scanner)
    name = scanner.identifier("the name of the return") if is_identifier(scanner.token) else ""
    return Return(name, type, size, alias)
