"""The scanner, which reads text token by token and shows errors with a caret."""

# tests: tests/schema/test_parser.py
from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NoReturn

from pydispatch.exceptions import SchemaError
from pydispatch.schema.frozen import described

RESERVED_WORDS: Final = frozenset((
    "def", "if", "else", "elif", "while", "return", "is", "True", "False", "None",
    "and", "or", "not", "global", "for", "in", "raise", "assert", "break", "continue",
    "del", "pass", "class", "import", "with", "as", "Ellipsis", "NoneType",
))

# Strings, names, numbers, then text that only starts like a number, then punctuation. Compiled on first use, like the
# other patterns, to make the import faster.
_TOKEN: Final = (
    r'''(?as)("""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*\''''
    r"""|[A-Za-z_]\w*|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?(?![\w.])|\.?\d[\w.]*"""
    r"""|::|->|\.\.\.|\#[^\n]*|\n|[^ \t\r])"""
)


@cache
def _token_pattern() -> re.Pattern[str]:
    return re.compile(_TOKEN)


def is_identifier(text: str) -> bool:
    return text.isascii() and text.isidentifier()


def _tokens(text: str) -> list[tuple[str, int]]:
    """Return the tokens and their offsets, without comments and insignificant line ends."""
    tokens: list[tuple[str, int]] = []
    depth = 0
    for match in _token_pattern().finditer(text):
        token = match.group()
        depth += (token == "(") - (token == ")")
        is_blank = token == "\n" and (depth > 0 or not text[match.end() :].strip(" \t\r"))
        if not is_blank and not token.startswith("#"):
            tokens.append((token, match.start()))
    tokens.append(("", len(text.rstrip())))
    return tokens


class Scanner:
    """The tokens of `text`. `token` is the next one, "" after the last. `what` names the kind of text in errors.

    An unexpected token raises a SchemaError with a caret under it.
    """

    __slots__ = ("at", "text", "token", "tokens", "what")

    def __init__(self, text: Any, what: str):
        if not isinstance(text, str):
            example = "ns::f" if what == "name" else "ns::f(Tensor x) -> Tensor"
            raise SchemaError(f"expected a {what} as a string, found {described(text)}\n"
                              f"Write it in quotes: \"{example}\"")
        self.text = text
        self.what = what
        self.tokens: list[str]
        if "\n" in text or "#" in text:
            self.tokens = [token for token, _ in _tokens(text)]
        else:
            self.tokens = _token_pattern().findall(text)
            self.tokens.append("")
        self.at = 0
        self.token = self.tokens[0]

    def fail(self, message: str, remedy: str = "", at: int | None = None) -> NoReturn:
        """Raise a SchemaError that points at token number `at`, or at the next one."""
        offset = _tokens(self.text)[self.at if at is None else at][1]
        start = self.text.rfind("\n", 0, offset) + 1
        line = self.text[start:].partition("\n")[0]
        blank = re.sub(r"[^\t]", " ", line[: offset - start])
        lines = (f"cannot read {self.what}: {message}", remedy, f"    {line}", f"    {blank}^")
        raise SchemaError("\n".join(filter(None, lines)))

    def fail_expecting(self, what: str, remedy: str = "") -> NoReturn:
        ends = {"": "the end of the text", "\n": "the end of the line"}
        self.fail(f"expected {what}, found {ends.get(self.token) or repr(self.token)}", remedy)

    def advance(self) -> str:
        """Return the next token and step over it."""
        token = self.token
        self.at += 1
        self.token = self.tokens[self.at]
        return token

    def accept(self, token: str) -> bool:
        """Step over this token if it is the next one, and return whether it was."""
        if self.token != token:
            return False
        self.advance()
        return True

    def expect(self, token: str, what: str, remedy: str = "") -> None:
        if self.token != token:
            self.fail_expecting(what, remedy)
        self.advance()

    def identifier(self, what: str, remedy: str = "") -> str:
        if self.token in RESERVED_WORDS:
            self.fail(f"expected {what}, found the reserved word {self.token!r}", "Choose another name")
        if not is_identifier(self.token):
            self.fail_expecting(what, remedy)
        return self.advance()

    def items_until(self, bracket: str, what: str) -> Iterator[None]:
        """Iterate once per item of a list: step over the commas, up to the closing bracket."""
        if self.accept(bracket):
            return
        yield
        while self.accept(","):
            yield
        self.expect(bracket, f"',' or {bracket!r} after {what}")

    def end(self) -> None:
        if self.token != "":
            self.fail_expecting(f"the end of the {self.what}", "One string declares one operator")
