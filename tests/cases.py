"""Many rows of a table as one case: pytest takes more time for a case than most rows take."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest

Parameters = type(pytest.param())


class Row(NamedTuple):
    name: str
    values: dict[str, Any]
    marks: tuple[Any, ...]


def in_one_case(test: Callable[..., None]) -> Callable[..., None]:
    """Run the rows of each `parametrize` beneath as one case, which tells of every row that fails.

    What a `parametrize` above names stays a case, and rows with marks, "slow" say, are another one. Rows share what
    fixtures give, but for `fresh`: each has a library of its own.
    """
    marks = test.pytestmark
    tables = [list(rows_of(*mark.args, **mark.kwargs)) for mark in marks if mark.name == "parametrize"]
    assert tables, f"{test.__name__}: no `parametrize` beneath"
    groups: dict[str, list[Row]] = {}
    for parts in itertools.product(*tables):
        row = Row("-".join(part.name for part in parts),
                  {name: value for part in parts for name, value in part.values.items()},
                  tuple(mark for part in parts for mark in part.marks))
        groups.setdefault(repr(row.marks), []).append(row)

    def run(*args: Any, open_fresh: Callable[[], Any] | None = None, **arguments: Any) -> None:
        with nullcontext() if open_fresh is None else open_fresh() as fresh:
            test(*args, **arguments, **({} if open_fresh is None else {"fresh": fresh}))

    @functools.wraps(test)
    def case(*args: Any, rows: list[Row], **fixtures: Any) -> None:
        failures, skipped = [], []
        for row in rows:
            try:
                run(*args, **fixtures, **row.values)
            except pytest.skip.Exception as reason:
                skipped.append(reason)
            except (Exception, pytest.fail.Exception) as error:
                error.add_note(f"in the row {row.name}")
                failures.append(error)
        if failures:
            raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows fail", failures)
        if len(skipped) == len(rows):
            raise skipped[0]

    names = {name for table in tables for row in table for name in row.values}
    signature = inspect.signature(test)
    others = [parameter.replace(name="open_fresh") if name == "fresh" else parameter
              for name, parameter in signature.parameters.items() if name not in names]
    rows = inspect.Parameter("rows", inspect.Parameter.KEYWORD_ONLY)
    case.__signature__ = signature.replace(parameters=[*others, rows])
    case.pytestmark = [mark for mark in marks if mark.name != "parametrize"]
    return pytest.mark.parametrize("rows", [
        pytest.param(group, id="-".join(["rows", *[mark.name for mark in group[0].marks]]), marks=group[0].marks)
        for group in groups.values()])(case)


def rows_of(
    names: str | Iterable[str], table: Iterable[Any], ids: Iterable[str] | Callable[[Any], str] | None = None
) -> Iterator[Row]:
    """What `pytest.mark.parametrize` is given, row by row."""
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    given = iter(ids) if ids is not None and not callable(ids) else itertools.repeat(None)
    for i, row in enumerate(table):
        if not isinstance(row, Parameters):
            row = pytest.param(*(row if len(names) > 1 else (row,)))
        name = next(given)
        if row.id is not None:
            name = row.id
        if name is None:
            name = "-".join(id_of(value, ids if callable(ids) else None) or f"{names[k]}{i}"
                            for k, value in enumerate(row.values))
        yield Row(str(name), dict(zip(names, row.values, strict=True)), tuple(row.marks))


def id_of(value: Any, ids: Callable[[Any], str] | None) -> str | None:
    """What names a value: the id that it is given, itself, its name, or nothing."""
    given = None if ids is None else ids(value)
    if given is not None:
        return str(given)
    if value is None or isinstance(value, (str, int, float, complex, bytes)):
        return str(value)
    return getattr(value, "__name__", None)
