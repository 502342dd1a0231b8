"""The parser of arguments' defaults."""

# tests: tests/schema/test_parser.py
from __future__ import annotations

import re
from typing import Any, Final

from pydispatch.schema.base_types import ANY, DTYPE, Type
from pydispatch.schema.compound_types import optional, without_none
from pydispatch.schema.frozen import MISSING
from pydispatch.schema.literals import unquote
from pydispatch.schema.model import Argument, spell_type
from pydispatch.schema.scanner import Scanner, is_identifier
from pydispatch.schema.user_types import EnumType

_NUMERAL: Final = r"(?a)(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan)j?"
_CONSTANTS: Final = {"True": True, "False": False, "None": None}
_LARGEST_INT: Final = 2**63


def read_default(scanner: Scanner, argument: Argument) -> Any:
    """Read the literal after '=', and convert it to the argument's type."""
    at = scanner.at
    value = _read_literal(scanner, argument.type)
    outer = without_none(argument.type)
    if value is not None and outer.contains_arrays and outer != ANY:
        scanner.fail(f"{_where(argument)}: an array has no literal",
                     f"Write `{optional(outer)} {argument.name}=None`", at)
    try:
        return argument.convert(value)
    except (TypeError, ValueError) as error:
        scanner.fail(f"{_where(argument)} cannot have this default: {error}", "", at)


def _where(argument: Argument) -> str:
    return f"argument {argument.name!r} of type {spell_type(argument.type, None, argument.size)}"


def _read_literal(scanner: Scanner, type: Type) -> Any:
    token = scanner.token
    if scanner.accept("["):
        return tuple([_read_literal(scanner, type) for _ in scanner.items_until("]", "a value")])
    if token[:1] in ("'", '"') and len(token) > 1:
        return _read_string(scanner)
    if token in _CONSTANTS:
        scanner.advance()
        return _CONSTANTS[token]
    if token == "-" or token[:1].isdecimal() or re.fullmatch(_NUMERAL, token):
        return _read_number(scanner)
    if not is_identifier(token):
        scanner.fail_expecting("a default")
    return _read_word(scanner, type)


def _read_string(scanner: Scanner) -> str:
    try:
        text = unquote(scanner.token)
    except ValueError as error:
        scanner.fail(str(error), "Write the character itself, or `\\ooo` in octal")
    scanner.advance()
    return text


def _read_number(scanner: Scanner) -> int | float | complex:
    at = scanner.at
    text = "-" if scanner.accept("-") else ""
    text += _read_numeral(scanner)
    if not text.endswith("j") and scanner.token in ("+", "-"):
        text += scanner.advance() + _read_numeral(scanner)
        if not text.endswith("j"):
            scanner.fail("expected an imaginary part such as `1j`", "", scanner.at - 1)
    if text.endswith("j"):
        return complex(text)
    if not text.removeprefix("-").isdecimal():
        return float(text)
    value = int(text) if len(text) < 25 else _LARGEST_INT  # avoid reading thousands of digits
    if not -_LARGEST_INT <= value < _LARGEST_INT:
        scanner.fail(f"the integer {text} has more than 64 bits", "", at)
    return value


def _read_numeral(scanner: Scanner) -> str:
    token = scanner.token
    if not _is_decimal(token) and not re.fullmatch(_NUMERAL, token):    # compiling the pattern takes a while
        scanner.fail_expecting("a number", "Numbers are decimal: `16`, `1.5`, `1e-3`, `2j`")
    return scanner.advance()


def _is_decimal(token: str) -> bool:
    """Return whether the token is a number such as 16 or 1.5."""
    whole, point, rest = token.partition(".")
    return token.isascii() and whole.isdecimal() and (rest.isdecimal() or not point)


def _read_word(scanner: Scanner, type: Type) -> Any:
    """Read the name of a dtype, or of a member of an enumeration."""
    at = scanner.at
    text = scanner.advance()
    while scanner.accept("."):
        text += f".{scanner.identifier('the name of a member')}"
    value = type.word(text)
    if value is MISSING:
        scanner.fail(f"{text!r} is not a value of type {type}", _remedy_for_word(text, type), at)
    return value


def _remedy_for_word(text: str, type: Type) -> str:
    if isinstance(type, EnumType):
        return f"Write one of its members: {', '.join(map(type.literal, type.cls))}"
    if DTYPE in (type, getattr(type, "inner", None)):
        return "Write the name of a dtype: `float64`"
    return f"Quote a string: `'{text}'`"
