"""Scripts and notebooks of the site are made of pages and programs, and run."""

import ast
import codeop
import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest
from extensions import notebooks

ROOT = Path(__file__).parents[2]
PAGE = """# A page

See [another](other.md) and [the web](https://example.org/).

```python
>>> x = 3       # three
>>> def twice(y):
...     return 2 * y
>>> twice(x)
6

```

(name)=
## An error

![A picture](picture.png)

```python
>>> print(1)
1
>>> twice()
Traceback (most recent call last):
    ...
TypeError: ...

```

```sh
not this
```
"""
PROGRAM = '''"""Does it.

More.
"""

from __future__ import annotations

import argparse


def main(words: list[Undefined] | None = None):
    print(argparse.ArgumentParser().parse_args(words))


if __name__ == "__main__":
    main()
'''


def test_cells_of_a_page_are_prose_and_examples():
    cells = notebooks.cells_of_page(PAGE)
    assert [cell.is_code for cell in cells] == [False, True, False, True, True, False]
    assert cells[1].text == "x = 3       # three\ndef twice(y):\n    return 2 * y\n\ntwice(x)".replace("\n\n", "\n")
    assert [(cell.text, cell.raises) for cell in cells[3:5]] == [("print(1)", False), ("twice()", True)]


def test_a_block_without_prompts_is_code():
    assert notebooks.cells_of_page("```python\nx = 1\n```\n") == [notebooks.Cell("x = 1", True)]


def test_a_notebook_keeps_links_to_the_web_alone_and_goes_on_after_errors():
    made = json.loads(notebooks.notebook(notebooks.cells_of_page(PAGE)))
    prose = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "markdown"]
    assert prose[0] == "# A page\n\nSee another and [the web](https://example.org/)."
    assert prose[1] == "\n## An error\n\nA picture"
    tags = [cell["metadata"].get("tags") for cell in made["cells"] if cell["cell_type"] == "code"]
    assert tags == [None, None, ["raises-exception"]]
    assert (made["nbformat"], len({cell["id"] for cell in made["cells"]})) == (4, len(made["cells"]))


def test_a_script_prints_what_the_page_shows():
    text = notebooks.script(PAGE.partition("(name)=")[0])
    assert text == "# A page\nx = 3       # three\ndef twice(y):\n    return 2 * y\nprint(twice(x))\n"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout == "6\n"


def test_a_script_prints_nothing_where_the_page_shows_nothing():
    assert notebooks.script("```python\n>>> [1].sort()\n>>> print(2)\n2\n```\n") == "[1].sort()\nprint(2)\n"
    assert notebooks.script("```python\n3\n```\n") == "3\n"


def test_a_script_goes_on_after_errors():
    text = notebooks.script(PAGE)
    done = subprocess.run([sys.executable, "-c", f"{text}print('goes on')"], capture_output=True, text=True, check=True)
    error = "TypeError: twice() missing 1 required positional argument: 'y'"
    assert done.stdout.splitlines() == ["6", "1", error, "goes on"]


PAGES = [path for path in sorted(ROOT.glob("docs/*.md")) if path.stem not in ("index", "changelog", "security")
         and any(cell.is_code for cell in notebooks.cells_of_page(path.read_text()))]
BESIDE = {"rebuild": ["tiny_dispatcher.py"]}
"""Files that pages tell readers to put beside their script."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_script_of_a_page_runs(page, tmp_path):
    if page.stem in ("backends", "scale"):
        pytest.importorskip("dask")
    for name in BESIDE.get(page.stem, []):
        (tmp_path / name).write_text((page.parent / name).read_text())
    (tmp_path / "examples_of_the_page.py").write_text(notebooks.script(page.read_text()))
    subprocess.run([sys.executable, "examples_of_the_page.py"], capture_output=True, check=True, cwd=tmp_path)


def run_cells(cells, namespace):
    """Run code as a notebook does: a `from __future__` is for all cells after it."""
    compiled = codeop.Compile()
    for cell in cells:
        if cell.is_code:
            exec(compiled(cell.text, "cell", "exec"), namespace)


def test_a_program_runs_cell_by_cell_without_words_of_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["jupyter", "-f", "kernel.json"])
    cells = notebooks.cells_of_program(PROGRAM)
    assert [cell.is_code for cell in cells] == [False, True, True, True]
    assert cells[0].text == "Does it.\n\nMore."
    run_cells(cells, {"__name__": "__main__"})
    assert capsys.readouterr().out == "Namespace()\n"


def test_a_notebook_ends_with_the_picture():
    assert notebooks.cells_of_program(PROGRAM, "it.png")[-1].text.endswith('Image("it.png")')


RUN_CELLS = """
import codeop, json, sys
compiled = codeop.Compile()
for text in json.load(sys.stdin):
    exec(compiled(text, "cell", "exec"), globals())
"""


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/subclasses/*.py")), ids=lambda path: path.stem)
def test_the_examples_run_cell_by_cell(path, tmp_path):
    texts = [cell.text for cell in notebooks.cells_of_program(path.read_text()) if cell.is_code]
    found = subprocess.run([sys.executable, "-c", RUN_CELLS, "-f", "kernel.json"], input=json.dumps(texts), text=True,
                           capture_output=True, check=True, cwd=tmp_path)
    assert found.stdout
    assert not found.stderr


AT_A_PROMPT = """
import builtins, json, sys
for n, (text, error) in enumerate(json.load(sys.stdin)):
    try:
        exec(builtins.compile(text, f"<python-input-{n}>", "single"))
    except Exception as raised:
        if error is None or type(raised).__name__ not in error:
            raise
    else:
        assert error is None, text
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs" / "index.md"], ids=lambda page: page.stem)
def test_the_examples_of_a_page_can_be_typed_at_a_prompt(page):
    if page.stem in ("backends", "scale"):
        pytest.importorskip("dask")
    typed = []
    for block in notebooks.BLOCK.findall(page.read_text()):
        examples = doctest.DocTestParser().get_examples(block)
        typed += [(example.source, example.exc_msg) for example in examples] or [
            (f"{ast.unparse(statement)}\n", None) for statement in ast.parse(block).body]
    subprocess.run([sys.executable, "-c", AT_A_PROMPT], input=json.dumps(typed), text=True, capture_output=True,
                   check=True, cwd=page.parent)
