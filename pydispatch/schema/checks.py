"""Checks of the stricter dialect of library operators, and of tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pydispatch.exceptions import DispatchTypeError, SchemaError
from pydispatch.schema.base_types import TENSOR
from pydispatch.schema.frozen import described
from pydispatch.schema.model import AliasInfo, Argument, Return, Schema, spell_type
from pydispatch.schema.parser import parse_schema


def check_strict(schema: Schema | str, tags: Iterable[str] = ()) -> None:
    """Check that a schema follows the stricter dialect of library operators, and its tags.

    The text must equal the printed schema. An alias set must be named by one lower-case letter. A set that is written
    to has one member. Either all returns are written to, or none. If they are, they are the out arguments in order, or
    the first argument.

    Parameters
    ----------
    schema
        The schema, or its text.
    tags
        The tags of the operator.

    Raises
    ------
    SchemaError
        If the schema breaks a rule.

    Examples
    --------
    >>> from pydispatch import library
    >>> library.check_strict("ns::add(Tensor x1, Tensor x2) -> Tensor")
    >>> library.check_strict("ns::add(Tensor x1,Tensor x2) -> Tensor")      # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pydispatch.exceptions.SchemaError: ...
    """
    if not isinstance(schema, Schema):
        text, schema = schema, parse_schema(schema)
        _demand(text == str(schema), schema, f"the text {text!r} is not canonical", f"Write `{schema}`")
    values: tuple[Argument | Return, ...] = (*schema.arguments, *schema.returns)
    for value in values:
        _check_alias(schema, value.alias)
    _check_returns(schema)
    check_tags(schema, tags)


def check_tags(schema: Schema, tags: Iterable[str]) -> None:
    """Check that the tags `out` and `inplace` are true of this schema. Ignore other tags.

    Raises SchemaError if one is not.
    """
    tags = tags_of(schema, tags)
    for tag in tags:
        if tag == "out":
            _check_out(schema)
        elif tag == "inplace":
            _check_inplace(schema)


def tags_of(what: object, tags: object) -> tuple[str, ...]:
    """Return the tags of an operator, given as one text or as several.

    Raises SchemaError for a tag that is not a string, and for `out` together with `inplace`.
    """
    given = (tags,) if isinstance(tags, str) else tuple(tags) if isinstance(tags, Iterable) else None
    if given is None or not all(isinstance(tag, str) for tag in given):
        raise SchemaError(
            f"{what}: argument tags is {described(tags)}, expected a string, or several\nWrite `tags=\"inplace\"`"
        )
    if "out" in given and "inplace" in given:
        raise SchemaError(
            f"{what}: the tags `out` and `inplace` are mutually exclusive\n"
            "Keep `inplace` if the operator writes to its first argument and returns it, "
            "`out` if it writes to keyword-only arguments and returns them"
        )
    return given


def _check_alias(schema: Schema, alias: AliasInfo | None) -> None:
    while alias is not None:
        for name in alias.before | alias.after:
            is_letter = len(name) == 1 and (name.islower() or name == "*")
            _demand(is_letter, schema, f"alias set {name!r}", "Name it by one lower-case letter: `(a!)`")
        is_single = len(alias.before) < 2 or not alias.write
        _demand(is_single, schema, f"{alias} writes to several sets", "Name one: `(a!)`")
        alias = alias.contained


def _check_returns(schema: Schema) -> None:
    outs = [argument for argument in schema.arguments if argument.is_out]
    written = [result for result in schema.returns if result.mutable]
    is_uniform = len(written) in (0, len(schema.returns))
    _demand(is_uniform, schema, "only some of the returns are annotated as written to", "Annotate all or none")
    if outs:
        _demand_returned(outs, schema)
    elif written:
        first = [argument.alias for argument in schema.arguments[:1] if argument.mutable]
        fits = [result.alias for result in written] == first
        message = "a return annotated as written to is neither an out argument nor the first argument"
        _demand(fits, schema, message, "Annotate both alike: `(a!)`")


def _check_out(schema: Schema) -> None:
    remedy = "Write it like `f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`"
    mutable = [argument for argument in schema.arguments if argument.mutable]
    _demand(bool(mutable), schema, "tagged `out`, but no argument is written to", remedy)
    for argument in mutable:
        fits = argument.kw_only and argument.type == TENSOR
        _demand(fits, schema, f"tagged `out`, but `{argument}` is not a keyword-only array", remedy)
    _demand_returned(mutable, schema)


def _check_inplace(schema: Schema) -> None:
    remedy = "Write it like `f_(Tensor(a!) x) -> Tensor(a!)`"
    written = [argument for argument in schema.arguments if argument.mutable]
    is_one_array = [(argument.type, argument.kw_only) for argument in written] == [(TENSOR, False)]
    fits = is_one_array and written[0] is schema.arguments[0]
    _demand(fits, schema, "tagged `inplace`, but it does not write to exactly its first argument", remedy)
    is_returned = _types(schema.returns) == _types(written)
    _demand(is_returned, schema, "tagged `inplace`, but it does not return its first argument", remedy)


def _demand_returned(outs: list[Argument], schema: Schema) -> None:
    fits = _types(schema.returns) == _types(outs)
    types = ", ".join(spell_type(argument.type, argument.alias, argument.size) for argument in outs)
    _demand(fits, schema, "the returns are not the out arguments in order", f"Return `({types})`")


def _types(values: Iterable[Argument | Return]) -> list[tuple[object, object]]:
    return [(value.type, value.alias) for value in values]


def _demand(condition: bool, schema: Schema, message: str, remedy: str) -> None:
    if not condition:
        raise SchemaError(f"{schema}: {message}\n{remedy}")


def written_names(where: str, mutates_args: Iterable[str], parameters: Collection[str]) -> Collection[str]:
    """Return the names in `mutates_args` after checking that they are parameters, or "unknown"."""
    if mutates_args == "unknown":
        return "unknown"
    if isinstance(mutates_args, str):
        raise SchemaError(
            f"{where}: mutates_args is a string, {mutates_args!r}, not a collection of names\n"
            f"Pass a tuple, ({mutates_args!r},), or \"unknown\" for all arrays"
        )
    if not isinstance(mutates_args, Iterable):
        raise DispatchTypeError(
            f"{where}: mutates_args is {mutates_args!r}, expected the names of parameters\n"
            "Pass () if it writes to none of them"
        )
    names = frozenset(mutates_args)
    strangers = ", ".join(sorted(map(repr, names.difference(parameters))))
    if strangers:
        raise SchemaError(
            f"{where}: {{{strangers}}} in mutates_args were not found\nParameters: {', '.join(parameters)}"
        )
    return names
