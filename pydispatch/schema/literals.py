"""The text of values in a schema, and the parsing of strings."""

# tests: tests/schema/test_parser.py
from __future__ import annotations

import re
from typing import Any, Final

_ESCAPES: Final = dict(zip("\\'\"ntabfv", "\\'\"\n\t\a\b\f\v", strict=True))
_ESCAPED: Final = {ord(char): f"\\{letter}" for letter, char in _ESCAPES.items()}
_ESCAPED.update((code, f"\\{code:03o}") for code in (*range(32), 127) if code not in _ESCAPED)


def literal(value: Any) -> str:
    """Return the text of a Python value as a default, for types without their own notation."""
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPED)}"'
    if isinstance(value, complex):
        return repr(value).strip("()")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(literal, value))}]"
    return repr(value)


def unquote(token: str) -> str:
    """Return the text inside a quoted one, with its escapes replaced.

    Raises ValueError for an unknown escape.
    """
    quotes = 3 if token[:3] in ('"""', "'''") else 1
    text = token[quotes:-quotes]
    return re.sub(r"\\([0-3][0-7]{2}|.)", _unescape, text, flags=re.DOTALL) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        return chr(int(code, 8))
    if code not in _ESCAPES:
        raise ValueError(f"unknown escape '\\{code}'")
    return _ESCAPES[code]
