"""The parts of the core: each uses of its neighbours only what their headers declare, or what Python sees."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pydispatch
from tests.cases import in_one_case

PACKAGE = Path(pydispatch.__file__).parent
PARTS = sorted(path.stem for path in (PACKAGE / "core").glob("*.pyx"))
HEADERS = sorted(path.stem for path in (PACKAGE / "core").glob("*.pxd"))
INDEX = (PACKAGE / "_core.pyx").read_text()
LIST_OF_HEADERS = (PACKAGE / "_core.pxd").read_text()


def code_of(name: str) -> str:
    """A part or header without comments, docstrings and other strings."""
    text = (PACKAGE / "core" / name).read_text()
    text = re.sub(r'""".*?"""', '""', text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda found: interpolated(found[0]), text)
    return re.sub(r"#.*", "", text)


def interpolated(string: str) -> str:
    """What an f-string evaluates, as code; nothing of other strings."""
    return '""' + "".join(f" ({inner})" for inner in re.findall(r"\{([^{}]*)\}", string))


def defined_names(code: str) -> set[str]:
    """What is defined or declared at the top level, members of enums included."""
    functions = r"^c?p?def (?:inline )?(?:[\w.*\[\] ]+?[ *])?(\w+)\("
    classes = r"^(?:cdef )?(?:class|struct|enum) (\w+)"
    variables = r"^cdef (?!class|struct|enum|extern|inline)(?:[\w.]+[ *]+)+(\w+)(?:\[\w*( [+-] \d)?\])?\s*(?:=|$)"
    types = r"^ctypedef .*?\(\*(\w+)\)"
    plain = r"^(\w+) = "
    found = {match[1] for pattern in (functions, classes, variables, types, plain)
             for match in re.finditer(pattern, code, re.MULTILINE)}
    for block in re.findall(r"^cdef enum:\n((?:    .*\n|\n)+)", code, re.MULTILINE):
        found |= set(re.findall(r"\b([A-Z][A-Z_0-9]+)\b", re.sub(r"=.*", "", block)))
    return found


def used_names(code: str) -> set[str]:
    """The identifiers in the code, but for attributes."""
    return set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code))


DEFINED = {part: defined_names(code_of(f"{part}.pyx")) for part in PARTS}
DECLARED = {header: defined_names(code_of(f"{header}.pxd")) for header in HEADERS}
SEEN_BY_PYTHON = {
    node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else target.id
    for node in ast.parse((PACKAGE / "_core.pyi").read_text()).body
    for target in (getattr(node, "targets", None) or [getattr(node, "target", node)])
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or isinstance(target, ast.Name)
}


@in_one_case
@pytest.mark.parametrize("part", PARTS)
def test_a_part_uses_what_headers_declare(part: str) -> None:
    used = used_names(code_of(f"{part}.pyx")) - DEFINED[part] - set().union(*DECLARED.values()) - SEEN_BY_PYTHON
    private = {other: sorted(used & DEFINED[other]) for other in PARTS if other != part}
    assert {other: names for other, names in private.items() if names} == {}


@in_one_case
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_declares_the_functions_that_others_use(header: str) -> None:
    functions = set(re.findall(r"^cdef (?!class)[^(\n]*?(\w+)\(", code_of(f"{header}.pxd"), re.MULTILINE))
    elsewhere = set().union(*[
        used_names(code_of(path.name)) for path in (PACKAGE / "core").glob("*.p*") if path.stem != header])
    assert sorted(functions - elsewhere) == []


def test_every_part_has_a_header() -> None:
    assert HEADERS == PARTS


def test_every_part_is_included_once() -> None:
    assert sorted(re.findall(r'^include "core/(\w+)\.pyx"', INDEX, re.MULTILINE)) == PARTS


def test_every_header_is_included_once() -> None:
    assert sorted(re.findall(r'^include "core/(\w+)\.pxd"', LIST_OF_HEADERS, re.MULTILINE)) == HEADERS


def test_the_tree_on_the_page_for_developers_names_every_part() -> None:
    page = (PACKAGE.parent / "docs" / "development.md").read_text()
    tree, = re.findall(r"^```text\npydispatch/\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folders = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert [part for part in PARTS if not re.search(rf"\b{part}\b", tree)] == []
    assert [folder for folder in folders if f"{folder}/" not in tree] == []


def test_every_part_says_what_it_is_about() -> None:
    for path in (PACKAGE / "core").glob("*.p*"):
        assert re.match(r"# \S.*\.\n", path.read_text()), path.name


def test_no_line_is_longer_than_120_characters() -> None:
    """As in Python code, which ruff looks after."""
    long = [f"{path.name}:{number}" for path in (PACKAGE / "core").glob("*.p*")
            for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
    assert long == []
