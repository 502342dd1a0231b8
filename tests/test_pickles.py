"""Pickles that earlier versions wrote are read: those in `pickles/`, one file for each version.

`python -m tests.test_pickles` writes those of this version, once, when it is released.
"""

import base64
import json
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import pydispatch
from pydispatch import DispatchKey, Tensor, compile, func, ops
from pydispatch.exceptions import OperatorNotFoundError
from pydispatch.testing import LoggingTensor
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_structure

FOLDER = Path(__file__).parent / "pickles"
FILES = sorted(FOLDER.glob("*.json"))
X = np.arange(6.0).reshape(2, 3)


def loss(parameters, x):
    return ops.np.sum(ops.np.tanh(ops.np.matmul(x, parameters["w"])) + parameters["b"])


PARAMETERS = {"w": np.full((3, 2), 0.25), "b": np.array([1.0, -1.0])}


def values():
    gradient = func.value_and_grad(loss)
    return {
        "tensor": Tensor(X), "of float32, in Fortran's order": Tensor(np.asfortranarray(X, np.float32)),
        "leaf": Tensor(X, requires_grad=True), "subclass": LoggingTensor(Tensor(X)),
        "key": DispatchKey.AutogradCPU, "keys": Tensor(X).keys, "operator": ops.np.add, "overload": ops.np.add.out,
        "structure": tree_structure(PARAMETERS), "graph": make_fx(loss)(PARAMETERS, X),
        "graph of a gradient": make_fx(gradient)(PARAMETERS, X), "transformed": func.grad(ops.np.sum),
        "compiled": compile(ops.np.sum),
    }


def check(name, found):
    """Check that an object equals the pickled one."""
    expected = values()[name]
    assert type(found) is type(expected)
    match name:
        case "tensor" | "of float32, in Fortran's order" | "leaf":
            np.testing.assert_array_equal(found.detach().numpy(), X)
            assert (found.dtype, found.strides, found.requires_grad) == (
                expected.dtype, expected.strides, expected.requires_grad)
        case "subclass":
            np.testing.assert_array_equal(found.elem.numpy(), X)
        case "key" | "keys" | "structure":
            assert found == expected
        case "operator" | "overload":
            assert found is expected
        case "graph":
            assert found(PARAMETERS, X) == loss(PARAMETERS, X)
            assert str(found).splitlines()[0] == str(expected).splitlines()[0]
        case "graph of a gradient":
            value, gradient = found(PARAMETERS, X)
            assert value == loss(PARAMETERS, X)
            slope = 1 - np.tanh(X @ PARAMETERS["w"]) ** 2
            np.testing.assert_allclose(gradient["w"], X.T @ slope)
            np.testing.assert_allclose(gradient["b"], [2.0, 2.0])
        case "transformed":
            np.testing.assert_array_equal(found(X), np.ones((2, 3)))
        case "compiled":
            assert found(X) == 15.0


@func.vmap
def doubled(x):
    return x * 2


@func.grad
def slope(x):
    return ops.np.sum(x * x * x)


@func.vmap
@func.grad
def slopes(x):
    return ops.np.sum(x * x)


@compile
@func.jacrev
def jacobian(x):
    return ops.np.sin(x)


@func.functionalize
def written(x):
    y = x * 1.0
    y += 1.0
    return y


class Methods:
    @func.grad
    def slope(x):       # noqa: N805  a plain function in a class
        return ops.np.sum(x * x)


DECORATED = {"vmap": doubled, "grad": slope, "vmap of grad": slopes, "compile": jacobian, "functionalize": written,
             "in a class": Methods.slope}
MADE = {"of a decorated function": func.vmap(slopes), "compiled graph": make_fx(np.sin)(X).compile(),
        "partial": partial(doubled), "compiled": compile(slope)}


@pytest.mark.parametrize("name", DECORATED)
def test_decorated_functions_are_pickled_by_name(name):
    assert pickle.loads(pickle.dumps(DECORATED[name])) is DECORATED[name]


def test_a_pool_of_processes_calls_them():
    functions = [*DECORATED.values(), *MADE.values()]
    arguments = [X[None] if function is MADE["of a decorated function"] else X for function in functions]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found = list(pool.map(called, functions, arguments))
    for one, function, argument in zip(found, functions, arguments, strict=True):
        np.testing.assert_array_equal(one, function(argument))


def called(function, argument):
    return function(argument)


@pytest.mark.parametrize("name", values())
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_pickles_of_earlier_versions_are_read(file, name):
    found = json.loads(file.read_text())["pickles"]
    if name not in found:
        pytest.skip("that version did not pickle it")
    check(name, pickle.loads(base64.b64decode(found[name])))


@pytest.mark.parametrize("name", values())
def test_what_is_pickled_now_is_read(name):
    check(name, pickle.loads(pickle.dumps(values()[name])))


def test_every_release_has_pickles():
    changelog = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
    released = set(re.findall(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE))
    assert released <= {file.stem for file in FILES}


def test_a_pickle_of_an_operator_that_is_gone_names_it():
    text = pickle.dumps(make_fx(ops.np.add)(X, X))
    with pytest.raises(OperatorNotFoundError, match="no operator np::adx"):
        pickle.loads(text.replace(b"np::add", b"np::adx"))


if __name__ == "__main__":
    written = {name: base64.b64encode(pickle.dumps(value, protocol=4)).decode() for name, value in values().items()}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{pydispatch.__version__}.json").write_text(
        json.dumps({"numpy": np.__version__, "pickles": written}, indent=1) + "\n")
