"""The tables of what a backend has: in Python, on the command line, on the page."""

import pytest

from pydispatch import ops
from pydispatch.backends.coverage import COVERED, DECOMPOSED, KINDS, MISSING, PARTIAL, counts, coverage
from pydispatch.cli.main import main
from pydispatch.exceptions import UnknownKeyError
from pydispatch.library import impl
from tests.backends import page
from tests.backends.lone import LONE

ROWS = {
    "exp": (PARTIAL, "lone.py", ("dtype", "casting")),
    "linalg_inv": (COVERED, "lone.py", ()),
    "getitem": (COVERED, "_getitem", ()),
    "cumsum": (PARTIAL, "cumsum", ("dtype",)),
    "full_like": (COVERED, "[namespace kernel]", ()),
    "std": (DECOMPOSED, "_std", ()),
    "sort": (DECOMPOSED, "decomposition", ()),
    "linalg_det": (MISSING, "lone has no linalg.det", ()),
    "linalg_eigvals": (MISSING, "decomposition calls np::linalg_eig, which is also missing", ()),
    "random_normal": (MISSING, "generators of pydispatch.numpy.random", ()),
}


@pytest.mark.parametrize("name", ROWS)
def test_what_a_backend_has(name):
    kind, text, unsupported = ROWS[name]
    found = coverage("lone")[name]
    assert (found.kind, found.unsupported) == (kind, unsupported)
    assert text in found.text


def test_every_operator_is_of_one_kind():
    covered = coverage("Lone")
    assert sum(counts(covered).values()) == len(covered) > 200
    assert all(counts(covered)[kind] for kind in KINDS)
    for name, found in covered.items():
        assert hasattr(ops.np, name)
        assert bool(found.unsupported) == (found.kind == PARTIAL) or found.kind == DECOMPOSED


def test_a_registered_kernel_covers():
    with impl("np::arctan2", LONE, lambda x1, x2, *, dtype=None, casting="same_kind": x1):
        found = coverage("Lone")["arctan2"]
        assert found.kind == COVERED
        assert found.text.endswith("[kernel]")
    assert coverage("Lone")["arctan2"].kind == MISSING


@pytest.mark.parametrize(("name", "message"), [("CPU", "not a run-time backend"), ("Nowhere", "unknown backend")])
def test_backends_without_a_table(name, message):
    with pytest.raises(UnknownKeyError, match=message):
        coverage(name)


def test_the_command_line(capsys):
    assert main(["backends", "lone", "--import", "tests.backends.lone"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row, = [line.split() for line in lines if line.startswith("exp ")]
    assert row[:2] == ["exp", "partial"]
    assert row[-3:] == ["without", "dtype,", "casting"]
    assert lines[-1] == ", ".join(f"{number} {kind}" for kind, number in counts(coverage("Lone")).items())
    assert main(["backends", "--import", "tests.backends.lone"]) == 0
    row, = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("Lone")]
    assert row == ["Lone", "tests.backends.lone.LoneArray", *map(str, counts(coverage("Lone")).values())]


def test_the_command_line_without_such_a_backend(capsys):
    assert main(["backends", "nowhere"]) == 1
    assert "unknown backend 'nowhere'" in capsys.readouterr().err


def test_the_page_shows_what_backends_have():
    wrong = "<!-- coverage of Lone: tests.backends.lone -->\nold\n<!-- end -->"
    rows = page.renewed(wrong).splitlines()
    assert rows[2:4] == ["| what | operators |", "|---|---|"]
    shown = {what.partition(" (")[0]: (int(what.partition(" (")[2].rstrip(")")), names.split()) for what, names in (
        row.strip("| ").split(" | ") for row in rows[4:rows.index("", 4)])}
    assert list(shown)[:2] == ["covered", "without `dtype`, `casting`"]
    assert list(shown)[-2:] == ["from other operators", "missing"]
    assert "`cumsum`" in shown["without `dtype`"][1]
    assert [names for _, names in shown.values()].count(["all", "others"]) == 1
    assert all(len(names) == n for n, names in shown.values() if names != ["all", "others"])
    expected = {f"`{name}`" for name in coverage("Lone") if not name.startswith("random_")}
    assert sum(n for n, _ in shown.values()) == len(expected)
    assert {name for _, names in shown.values() for name in names} - expected == {"all", "others"}
