"""Each public name of NumPy has exactly one role in `pydispatch.numpy`."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import pydispatch.numpy
from pydispatch import Tensor
from pydispatch.numpy.declare import FUNCTIONS, KINDS
from pydispatch.numpy.passed_on import LOADED
from tests.numpy import page, stub
from tests.together import together

STUB = Path(pydispatch.numpy.__file__).with_suffix(".pyi")


@together("name", sorted(FUNCTIONS))
def test_aliases_are_the_same_object(name):
    function = FUNCTIONS[name]
    aliases = [alias for alias, value in LOADED.items() if callable(value) and value is function.numpy_function]
    assert all(getattr(pydispatch.numpy, alias) is function.public for alias in aliases)


@together("name", sorted(FUNCTIONS))
def test_a_function_pickles_by_name(name):
    assert pickle.loads(pickle.dumps(FUNCTIONS[name].public)) is FUNCTIONS[name].public


def test_tensors_tell_their_namespace():
    namespace = Tensor(np.ones(2)).__array_namespace__()
    making = {"argsort", "clip", *pydispatch.numpy.tensors.MAKING}      # with what behaves otherwise
    assert all(getattr(namespace, name) is getattr(pydispatch.numpy, name)
               for name in FUNCTIONS if "." not in name and name not in making)
    assert namespace.linalg is pydispatch.numpy.linalg
    assert type(namespace.zeros(2)) is Tensor


def test_every_function_has_a_kind():
    assert KINDS.keys() == FUNCTIONS.keys()


def test_type_checkers_see_every_name():
    tree = ast.parse(STUB.read_text())
    seen = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen |= {alias.asname or alias.name for node in imports for alias in node.names}
    seen |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    seen |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    missing = {name for name in pydispatch.numpy.__all__ if not name.startswith("_")} - seen
    # names that NumPy has dropped, and that tables and stubs written for the newest one do not have
    assert missing <= {"in1d", "trapz", "row_stack"}


def test_classes_of_universal_functions_have_different_names():
    pytest.importorskip("scipy")        # whose universal functions share classes with NumPy's
    if np.__version__.split(".")[:2] == page.WRITTEN_FOR.split("."):
        assert len(set(stub.shared().values())) == len(stub.shared())
