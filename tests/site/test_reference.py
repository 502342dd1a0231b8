"""Every public name has an entry in the reference, or is made into one when pages are built."""

from __future__ import annotations

import importlib
import re
import types
from pathlib import Path

import pytest

import pydispatch
from pydispatch import ops

pytest.importorskip("sphinx")
pytest.importorskip("scipy")

from extensions import reference

PAGE = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "docs").glob("*.md"))
ENTRIES = set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", PAGE, re.MULTILINE))
MODULES = ["", *(f".{name}" for name in (
    "autograd", "backends", "backends.dask", "compiling", "custom_ops", "debug", "func", "higher_order",
    "library", "modes", "operators", "packs", "registry", "scipy.integrate", "scipy.optimize", "testing", "tracing"))]


def has_entry(module, name):
    """Whether a page has an entry for a name, maybe in another module that has the same object."""
    value = getattr(importlib.import_module(f"pydispatch{module}"), name)
    if isinstance(value, type) and value.__module__ == "pydispatch.exceptions":
        return True         # a page has all of them
    same = {entry for entry in ENTRIES if entry.rpartition(".")[2] == name}
    return f"pydispatch{module}.{name}" in ENTRIES or any(
        getattr(importlib.import_module(entry.rpartition(".")[0]), name, None) is value for entry in same)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_have_entries(module):
    if module == ".backends.dask":
        pytest.importorskip("distributed")
    names = importlib.import_module(f"pydispatch{module}").__all__
    missing = [name for name in names if not has_entry(module, name)
               and not isinstance(getattr(importlib.import_module(f"pydispatch{module}"), name), types.ModuleType)]
    assert set(missing) <= {"ops"}      # the namespace of namespaces, in prose


def test_a_page_has_all_errors():
    assert ".. automodule:: pydispatch.exceptions\n   :members:" in PAGE


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "MADE", folder)
        reference.make(None)
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_every_operator_has_an_entry_with_its_schemas(generated):
    pages = "".join(text for name, text in generated.items() if name.startswith("operators-"))
    entries = set(re.findall(r"\{py:function\} pydispatch\.ops\.np\.(\w+)\(", pages))
    names = {name for name in dir(ops.np) if not name.startswith("_")}
    assert not {name for name in names - entries if f"ops.np.{name}, in place" not in pages}
    assert "`np::linalg_inv(Tensor a) -> Tensor`" in pages


@pytest.mark.parametrize("namespace", ["numpy", "numpy.linalg", "numpy.fft", "numpy.random", "scipy.special"])
def test_every_function_has_an_entry(generated, namespace):
    module = importlib.import_module(f"pydispatch.{namespace}")
    page = generated[f"functions-{namespace.replace('.', '-')}"]
    entries = set(re.findall(r"\{py:\w+\} pydispatch\.[\w.]+?\.(\w+)(?:\(|$)", page, re.MULTILINE))
    names = {name for name in module.__all__ if not isinstance(getattr(module, name), types.ModuleType)}
    assert names == entries


def test_distributions_have_the_methods_of_scipys(generated):
    page = generated["functions-scipy-stats"]
    assert "pydispatch.scipy.stats.norm.logcdf(" in page
    assert "scipys" not in page


def test_signatures_are_without_annotations_and_odd_defaults():
    assert reference.arguments(ops.np.sum.default).startswith("(a, axis=None, dtype=None, *, keepdims=False")
    assert reference.arguments(pydispatch.numpy.ptp) == "(a, axis=None, out=None, keepdims=...)"


def test_what_operators_say_of_themselves_is_laid_out():
    assert reference.in_markdown("""np::f(Tensor x) -> Tensor
np::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)

Does it.

Shapes: any.
Gradient: of x.

Example:

    >>> ops.np.f(x)
    1
""") == """Does it.

- `np::f(Tensor x) -> Tensor`
- `np::f.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)`

- Shapes: any.
- Gradient: of x.

```python
>>> ops.np.f(x)
1
```"""


def test_entries_have_a_sentence_facts_and_an_example(generated):
    entry = generated["operators-pointwise"].partition("pydispatch.ops.np.add(")[2].partition("````")[0]
    assert "\nAdd arguments element-wise.\n" in entry
    assert "\n- Gradient: of x1, x2" in entry
    assert "\n>>> ops.np.add(" in entry
