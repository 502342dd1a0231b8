"""Every public name has an entry in the reference, or is made into one when pages are built."""

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

from pydispatch.scipy.pack import FACE, PASSED_ON

PAGE = "".join(path.read_text(encoding="utf-8") for path in (Path(__file__).parents[2] / "docs").glob("*.md"))
ENTRIES = set(re.findall(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", PAGE, re.MULTILINE))
MODULES = ["", *(f".{name}" for name in (
    "autograd", "backends", "backends.dask", "compiling", "compat.custom_ops", "debug", "func", "higher_order",
    "library", "modes", "packs", "scipy.integrate", "scipy.optimize", "testing", "tracing"))]


def has_entry(module, name):
    """Return whether a page has an entry for a name, maybe in another module that has the same object."""
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
    family = module.removeprefix(".scipy.")
    scipys = {*PASSED_ON.get(family, ()),
              *[path.rpartition(".")[2] for path in FACE.kinds if path.startswith(f"{family}.")]}
    missing = [name for name in names if name not in scipys and not has_entry(module, name)
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
    assert names - entries == {name for name in names - entries if f"`np::{name}(" in pages}
    assert "`np::add_(Tensor(a!) x1" in pages
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


def test_an_entry_says_what_help_says():
    entry = reference.operator_entry("argsort")
    assert "Returns the indices that would sort an array." in entry
    assert "- Gradient: none, since the results are constants.\n" in entry
    assert "```python\n>>> ops.np.argsort(np.array([3.0, 1.0, 2.0]))\narray([1, 2, 0])\n```" in entry
    assert "`np::add_(Tensor(a!) x1" in reference.operator_entry("add")
    assert "chosen from `x` or `y`" in reference.operator_entry("where")


def test_signatures_have_no_annotations():
    assert reference.arguments(ops.np.sum.default).startswith("(a, axis=None, dtype=None, *, keepdims=False")
    assert reference.arguments(pydispatch.numpy.ptp) == "(a, axis=None, out=None, keepdims=...)"
