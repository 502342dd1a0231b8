"""Names of operators: ``namespace::name.overload``."""

# ruff: noqa: RUF023  the order of the slots is the order of the fields
from __future__ import annotations

from pydispatch.exceptions import SchemaError
from pydispatch.schema.frozen import Frozen
from pydispatch.schema.scanner import RESERVED_WORDS, Scanner, is_identifier


class OperatorName(Frozen):
    """The name of an operator, ``namespace::name.overload``. A missing namespace is None, a missing overload is ""."""

    __slots__ = ("namespace", "name", "overload")
    namespace: str | None
    name: str
    overload: str

    def __init__(self, namespace: str | None, name: str, overload: str = ""):
        self._freeze(namespace, name, overload)

    @property
    def qualified(self) -> str:
        """The name without its overload."""
        return self.name if self.namespace is None else f"{self.namespace}::{self.name}"

    def with_namespace(self, namespace: str) -> OperatorName:
        """Return this name in `namespace`, or the same object if it already has a namespace."""
        return self if self.namespace is not None else OperatorName(namespace, self.name, self.overload)

    def __str__(self) -> str:
        return f"{self.qualified}.{self.overload}" if self.overload else self.qualified


def validate_namespace(text: str) -> str:
    """Return `text` if it can be the namespace of operators.

    Raises SchemaError otherwise.
    """
    if not isinstance(text, str) or not is_identifier(text) or text in RESERVED_WORDS:
        why = "a reserved word" if text in RESERVED_WORDS else "not an identifier"
        raise SchemaError(f"namespace {text!r} is {why}\nUse ASCII letters, digits and underscores, as in `my_lib`")
    return text


def parse_name(text: str) -> OperatorName:
    """Parse ``namespace::name.overload``.

    Raises SchemaError with a caret under the token that does not fit.
    """
    scanner = Scanner(text, "name")
    name = read_name(scanner)
    if scanner.token == "(":
        scanner.fail("expected a name, found a schema", f"Leave out the arguments: `{name}`")
    scanner.end()
    return name


def read_name(scanner: Scanner) -> OperatorName:
    name = scanner.identifier("the name of an operator")
    namespace = None
    if scanner.accept("::"):
        namespace, name = name, scanner.identifier("the name of an operator after '::'")
    if not scanner.accept("."):
        return OperatorName(namespace, name)
    overload = scanner.identifier("the name of an overload after '.'")
    if overload == "default" or overload.startswith("__"):
        scanner.fail(
            f"{overload!r} is not a legal overload name",
            "Leave it out, or choose one that is neither `default` nor starts with `__`",
            scanner.at - 1,
        )
    return OperatorName(namespace, name, overload)
