"""`python tools/regenerate.py` knows every generated file, and says which are stale."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import with_tables

pytest.importorskip("scipy")
from tools import regenerate

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "regenerate.py"
GENERATED = {"names.md": lambda text: text.upper(), "names.pyi": regenerate.whole("{} = 1\n".format, "x")}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "names.md").write_text("stale")
    (tmp_path / "names.pyi").write_text("x = 1\n")
    return tmp_path


def texts(folder):
    return [path.read_text() for path in sorted(folder.iterdir())]


@pytest.mark.skipif(bool(regenerate.wrong_versions()), reason="the files are for other versions of NumPy and SciPy")
def test_no_generated_file_is_stale():
    pytest.importorskip("sparse")
    done = subprocess.run([sys.executable, SCRIPT, "--check"], cwd=ROOT.parent, capture_output=True, text=True,
                          check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_every_file_that_names_the_command_is_in_the_list():
    found = [*ROOT.glob("docs/*.md"), *ROOT.glob("pydispatch/**/*.pyi"), *ROOT.glob("tests/**/*.txt"),
             *ROOT.glob("docs/*.svg"), *ROOT.glob("docs/static/*.svg")]
    written = re.compile(r"written by `python (tools/regenerate\.py|-m pydispatch stubs)`", re.IGNORECASE)
    assert {path.relative_to(ROOT).as_posix() for path in found if written.search(path.read_text())} == set(
        regenerate.GENERATED)


def test_a_check_names_stale_files_and_writes_nothing(files):
    before = texts(files)
    assert regenerate.regenerate(files, GENERATED, check=True) == ["names.md"]
    assert texts(files) == before


def test_stale_files_are_written(files):
    assert regenerate.regenerate(files, GENERATED, check=False) == ["names.md"]
    assert texts(files) == ["STALE", "x = 1\n"]
    assert regenerate.regenerate(files, GENERATED, check=True) == []


@pytest.mark.parametrize(("arguments", "status", "printed"), [
    (["--check"], 1, "names.md is stale: run python tools/regenerate.py\n"), ([], 0, "names.md: written\n")])
def test_the_command(files, monkeypatch, capsys, arguments, status, printed):
    (files / "docs").mkdir()
    (files / "docs" / "backends.md").write_text("<!-- coverage of Other: no.such_library -->\nold\n<!-- end -->\n")
    monkeypatch.setattr(regenerate, "ROOT", files)
    monkeypatch.setattr(regenerate, "GENERATED", GENERATED)
    monkeypatch.setattr(regenerate, "VERSIONS", {})
    assert regenerate.main(arguments) == status
    output = capsys.readouterr()
    assert output.out == printed
    assert output.err == "docs/backends.md: left out the table of Other, whose library is not installed\n"


def test_other_versions_of_libraries_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(regenerate, "VERSIONS", {"numpy": "1.0"})
    assert regenerate.main(["--check"]) == 2
    assert "pip install 'numpy==1.0.*'" in capsys.readouterr().err


def test_tables_of_pages():
    page = "a\n<!-- one: by hand -->\nold\n<!-- end -->\nb\n<!-- two: too -->\n<!-- end -->\n"
    assert with_tables(page, {"two": ["| 2 |"], "one": ["| 1 |", "|---|"]}) == (
        "a\n<!-- one: by hand -->\n\n| 1 |\n|---|\n\n<!-- end -->\nb\n<!-- two: too -->\n\n| 2 |\n\n<!-- end -->\n")
    with pytest.raises(ValueError, match=r"0 places for the table 'three': it needs one `<!-- three: \.\.\. -->`"):
        with_tables(page, {"three": []})
