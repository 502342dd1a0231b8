"""The direction of the core's chapters: each uses only those below it. hooks.pxd lists the names that go up.

`python -m tests.core.test_direction` prints the names that each chapter uses upwards.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.test_headers import HEADERS, PACKAGE, PARTS, SOURCES, code_of, defined_names, used_names

ROWS = ["seam", "loops", "values", "state", "call", "tape", "stack", "kernels"]     # the lowest chapter first
BELOW = {chapter: set(ROWS[:i + 1]) for i, chapter in enumerate(ROWS)}
BELOW["plans"] = {"seam", "loops", "plans"}
BELOW["interface"] = {*ROWS, "plans", "interface"}
Uses = dict[str, dict[str, set[str]]]      # by chapter and name: the parts that use it
DOORS = {"compiled": "interface"}       # calls of compiled functions join the dispatcher and the machine of plans


def chapter_of(path: Path) -> str:
    """Return the folder of a part, or the chapter that a door belongs to."""
    return DOORS.get(path.stem, path.parent.name)


def blocks_of(code: str) -> list[str]:
    """Return the statements at the top level, with what is indented below them."""
    return re.split(r"^(?=\S)(?![)\]}])", code, flags=re.MULTILINE)


def local_names(block: str) -> set[str]:
    """Return parameters, variables and methods of the functions and classes in a statement."""
    if not re.match(r"c?p?def |class ", block):
        return set()
    found = set(re.findall(r"^ +(?:c?p?def|class) [^(\n]*?(\w+)\(", block, re.MULTILINE))
    for parameters in re.findall(r"def [^\n(]*\b\w+\(([^()]*(?:\([^()]*\)[^()]*)*)\)", block):
        found |= {last_name(re.sub(r"=.*| (or|not) None", "", one)) for one in split(parameters)}
    declaration = r"^ +([^\n(]*)$" if block.startswith("cdef struct") else r"^ +cdef (?!class|inline|extern)([^\n(]*)$"
    for variables in re.findall(declaration, block, re.MULTILINE):
        found |= {last_name(re.sub(r"=.*|\[.*", "", one)) for one in split(variables)}
    for pattern in (r"^ +([\w, ()*]+) (?:[-+*/|&]|<<|>>|//)?= ", r"= ([\w, ]+) = ", r"\bfor ([\w, ()]+?) in\b",
                    r"\blambda ([\w, ]*):", r"\bas (\w+)\b"):
        for targets in re.findall(pattern, block, re.MULTILINE):
            found |= used_names(targets)
    return found


def split(names: str) -> list[str]:
    """Return the items of a list of declarations."""
    return re.split(r",(?![^()]*\))", names)


def last_name(declaration: str) -> str:
    """Return the name that a declaration such as `Tensor tensor` declares."""
    return re.split(r"\W", declaration.strip())[-1]


def types_of(code: str) -> set[str]:
    """Return the classes, structs and other types that code declares."""
    names = re.findall(r"\b(?:class|struct|union) (\w+)|ctypedef .*?(?:\(\*(\w+)\)|(\w+)$)", code, re.MULTILINE)
    return {name for alternatives in names for name in alternatives if name}


def chapters_by_name() -> dict[str, set[str]]:
    """Map each name to the chapters that define it: functions by their body, others by their header."""
    bodies: defaultdict[str, set[str]] = defaultdict(set)
    headers: defaultdict[str, set[str]] = defaultdict(set)
    for part in PARTS:
        for name in defined_names(code_of(f"{part}.pyx")):
            bodies[name].add(chapter_of(SOURCES[f"{part}.pyx"]))
    declared_types: set[str] = set()
    for header in HEADERS:
        code = code_of(f"{header}.pxd")
        if header != "hooks":
            declared_types |= types_of(code)
            for name in defined_names(code) | types_of(code):
                headers[name].add(chapter_of(SOURCES[f"{header}.pxd"]))
    return {name: headers[name] if name in declared_types or name not in bodies else bodies[name]
            for name in bodies | headers}


def uses() -> Iterator[tuple[str, str, str]]:
    """Yield (name, chapter, part) for each name that a part uses or its header mentions as a type."""
    codes = [code_of(f"{header}.pxd") for header in HEADERS]
    types = set().union(*map(types_of, codes)) | set(filter(str.isupper, set().union(*map(defined_names, codes))))
    for file, path in SOURCES.items():
        for block in blocks_of(code_of(file)):
            names = used_names(block) & types if file.endswith(".pxd") else used_names(block) - local_names(block)
            if file != "hooks.pxd":
                yield from ((name, chapter_of(path), path.stem) for name in names)


def used_upwards() -> Uses:
    """Return by chapter the names that it uses of chapters above it, each with the parts that use it."""
    chapters = chapters_by_name()
    found: Uses = {chapter: defaultdict(set) for chapter in BELOW}
    for name, chapter, part in uses():
        if name in chapters and not chapters[name] & BELOW[chapter]:
            found[chapter][name].add(part)
    return found


def hooks() -> set[str]:
    """Return the names of hooks.pxd, each below a comment that says why it goes up."""
    lines = SOURCES["hooks.pxd"].read_text()
    return set(re.findall(r"^# [^-\n].*\ncp?def [^(\n]*?(\w+)(?:\(|$)", lines, re.MULTILINE))


@pytest.fixture(scope="module")
def upwards() -> Uses:
    return used_upwards()


@pytest.mark.parametrize("chapter", BELOW)
def test_a_chapter_uses_only_the_chapters_below_it_and_hooks(chapter: str, upwards: Uses) -> None:
    assert {name: parts for name, parts in upwards[chapter].items() if name not in hooks()} == {}


def test_every_hook_goes_up_and_has_a_reason(upwards: Uses) -> None:
    assert set().union(*upwards.values()) == hooks()
    assert len(re.findall(r"^c", SOURCES["hooks.pxd"].read_text(), re.MULTILINE)) == len(hooks()) <= 20


def test_the_index_lists_the_chapters_in_this_order() -> None:
    index = re.findall(r'^include "(?:core/)?(\w+)/', (PACKAGE / "_core.pyx").read_text(), re.MULTILINE)
    assert list(dict.fromkeys(index)) == list(BELOW)
    assert {path.parent.name for path in SOURCES.values()} == set(BELOW)


def test_the_analysis_finds_an_upward_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "loops").mkdir()
    part = tmp_path / "loops" / "folds.pyx"
    part.write_text(SOURCES["folds.pyx"].read_text() + "\n\ncdef Table f(Frame* frame, dispatch):\n"
                    "    release(frame)\n    return dispatch(table_of(None), state_now)\n")
    monkeypatch.setitem(SOURCES, "folds.pyx", part)
    assert sorted(used_upwards()["loops"]) == ["Frame", "Table", "release", "state_now", "table_of"]


if __name__ == "__main__":
    for of_chapter, names in used_upwards().items():
        print(f"{of_chapter:10} {len(names):3}  {', '.join(sorted(names))}")
