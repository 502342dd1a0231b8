"""The parts of the core: each uses of its neighbours only what their headers declare, or what Python sees."""

import ast
import re
from pathlib import Path

import pytest

import pydispatch
from tests.together import together

PACKAGE = Path(pydispatch.__file__).parent
SOURCES = {path.name: path for folder in ("core", "plans") for path in sorted((PACKAGE / folder).rglob("*.p[xy]*"))}
PARTS = sorted(Path(name).stem for name in SOURCES if name.endswith(".pyx"))
HEADERS = sorted(Path(name).stem for name in SOURCES if name.endswith(".pxd"))
INDEX = (PACKAGE / "_core.pyx").read_text()
LIST_OF_HEADERS = (PACKAGE / "_core.pxd").read_text()


def code_of(name: str) -> str:
    """Return a part or header without comments, docstrings and other strings."""
    text = SOURCES[name].read_text()
    text = re.sub(r'""".*?"""', '""', text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda found: interpolated(found[0]), text)
    return re.sub(r"#.*", "", text)


def interpolated(string: str) -> str:
    """Return the expressions of an f-string as code, and nothing for other strings."""
    return '""' + "".join(f" ({inner})" for inner in re.findall(r"\{([^{}]*)\}", string))


def defined_names(code: str) -> set[str]:
    """Return the names defined or declared at the top level, members of enums included."""
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
    """Return the identifiers in the code, but for attributes."""
    return set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code))


USED = {name: used_names(code_of(name)) for name in SOURCES}
DEFINED = {part: defined_names(code_of(f"{part}.pyx")) for part in PARTS}
DECLARED = {header: defined_names(code_of(f"{header}.pxd")) for header in HEADERS}
SEEN_BY_PYTHON = {
    node.name if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else target.id
    for node in ast.parse((PACKAGE / "_core.pyi").read_text()).body
    for target in (getattr(node, "targets", None) or [getattr(node, "target", node)])
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) or isinstance(target, ast.Name)
}


@together("part", PARTS)
def test_a_part_uses_what_headers_declare(part: str) -> None:
    used = USED[f"{part}.pyx"] - DEFINED[part] - set().union(*DECLARED.values()) - SEEN_BY_PYTHON
    private = {other: sorted(used & DEFINED[other]) for other in PARTS if other != part}
    assert {other: names for other, names in private.items() if names} == {}


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_declares_the_functions_that_others_use(header: str) -> None:
    functions = set(re.findall(r"^cdef (?!class)[^(\n]*?(\w+)\(", code_of(f"{header}.pxd"), re.MULTILINE))
    elsewhere = set().union(*[USED[name] for name in SOURCES if Path(name).stem != header])
    assert sorted(functions - elsewhere) == []


def test_every_part_has_a_header_beside_it() -> None:
    hooks = PACKAGE / "core/call/hooks"         # declares names of several parts: see test_direction.py
    assert {path.with_suffix("") for path in SOURCES.values() if path.suffix == ".pyx"} == {
        path.with_suffix("") for path in SOURCES.values() if path.suffix == ".pxd"} - {hooks}
    assert len(SOURCES) == 2 * len(PARTS) + 1


def test_every_part_is_included_once() -> None:
    included = re.findall(r'^include "([\w/]+\.pyx)"', INDEX, re.MULTILINE)
    assert sorted(PACKAGE / name for name in included) == sorted(SOURCES[f"{part}.pyx"] for part in PARTS)


def test_every_header_is_included_once() -> None:
    included = re.findall(r'^include "([\w/]+\.pxd)"', LIST_OF_HEADERS, re.MULTILINE)
    assert sorted(PACKAGE / name for name in included) == sorted(SOURCES[f"{header}.pxd"] for header in HEADERS)


def test_the_tree_on_the_page_for_developers_names_every_part() -> None:
    page = (PACKAGE.parent / "docs" / "development.md").read_text()
    tree, = re.findall(r"^```text\npydispatch/\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    folders = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()]
    assert [part for part in PARTS if not re.search(rf"\b{part}\b", tree)] == []
    assert [folder for folder in folders if f"{folder}/" not in tree] == []


def test_every_part_says_what_it_is_about() -> None:
    for name, path in SOURCES.items():
        assert re.match(r"# \S.*\.\n", path.read_text()), name


def test_no_line_is_longer_than_120_characters() -> None:
    long = [f"{name}:{number}" for name, path in SOURCES.items()
            for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
    assert long == []


def test_c_code_is_in_headers() -> None:
    blocks = {name: re.findall(r'cdef extern from \*:\n    """\n(.*?)    """\n', path.read_text(), re.DOTALL)
              for name, path in SOURCES.items()}
    long = [name for name, found in blocks.items() if any(block.count("\n") > 2 for block in found)]
    assert long == ["recording.pyx"]
