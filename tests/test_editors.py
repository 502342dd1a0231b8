"""Completion in editors: names in IPython with and without jedi."""

import json
import subprocess
import sys

import pytest

from pydispatch import Tensor, ops

SESSION = """
import json, sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
jedi, first, texts = json.loads(sys.argv[1])
if first:
    import pydispatch
shell = InteractiveShell.instance()
shell.run_cell("import numpy as np, pydispatch; from pydispatch import ops, Tensor; t = Tensor(np.ones(3))")
shell.Completer.use_jedi = jedi
found = {}
for text in texts:
    with provisionalcompleter():
        found[text] = [each.text.removeprefix(".") for each in shell.Completer.completions(text, len(text))]
print(json.dumps(found))
"""
TEXTS = ["ops.", "ops.np.a", "ops.np.linalg_", "ops.np.add.", "ops.np.add(", "t.re", "pydispatch.",
         "pydispatch.numpy.linalg.in"]


def run(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("is_first", [False, True], ids=["IPython first", "package first"])
@pytest.mark.parametrize("jedi", [False, True], ids=["without jedi", "with jedi"])
def test_names_are_completed(jedi, is_first):
    pytest.importorskip("IPython")
    if jedi:
        pytest.importorskip("jedi")
    found = json.loads(run(SESSION, json.dumps([jedi, is_first, TEXTS])).splitlines()[-1])
    assert "np" in found["ops."]
    assert {"add", "absolute", "arange"} <= set(found["ops.np.a"])
    assert "linalg_inv" in found["ops.np.linalg_"]
    assert {"default", "out", "explain"} <= set(found["ops.np.add."])
    assert {"x1=", "x2=", "dtype=", "out="} <= set(found["ops.np.add("])
    assert {"requires_grad", "reshape", "real"} <= set(found["t.re"])
    assert {"func", "ops", "numpy", "scipy", "tracing"} <= set(found["pydispatch."])
    assert not {"_loading", "keys", "TYPE_CHECKING"} & set(found["pydispatch."])
    assert "inv" in found["pydispatch.numpy.linalg.in"]


def test_a_namespace_lists_what_is_loaded_on_demand():
    names = run("from pydispatch import ops\nfor name in dir(ops.np): print(getattr(ops.np, name).__name__)").split()
    assert {"add", "linalg_inv", "fft_fft", "random_normal"} <= set(names)
    assert [name for name in dir(ops.np) if name.startswith("_")] == []
    assert dir(ops.a_namespace_without_operators) == []


def test_a_tensor_lists_its_methods():
    assert {"sum", "reshape", "argsort", "backward", "grad_fn", "numpy", "flags"} <= set(dir(Tensor))
