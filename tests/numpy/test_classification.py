"""Each public function of NumPy is one of: an operator, written with operators, constant, passed on, refused."""

import inspect
import operator

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch.numpy import fft, linalg, passed_on
from pydispatch.numpy.declare import FUNCTIONS, KINDS, OF_NUMPY, REASONS, Adapter
from tests.numpy import page
from tests.together import together

PUBLIC = sorted([name for name in np.__all__ if not name.startswith("_") and hasattr(np, name)])
CALLABLE = [
    *[name for name in PUBLIC if callable(getattr(np, name))],
    *[f"linalg.{name}" for name in np.linalg.__all__ if name != "LinAlgError"],
    *[f"fft.{name}" for name in np.fft.__all__],
]
OBJECTS = ("vectorize", "r_", "c_")
"""Our own classes with NumPy's names, which are neither functions nor passed on."""


@together("name", CALLABLE)
def test_each_is_one_thing(name):
    numpys = operator.attrgetter(name)(np)
    is_ours = numpys in OF_NUMPY
    is_passed_on = not is_ours and name in (*passed_on.TYPES, *passed_on.FUNCTIONS, *passed_on.CONSTANTS)
    assert is_ours + (is_passed_on or name in OBJECTS) == 1
    found = operator.attrgetter(name)(pnp)
    if is_ours:
        assert found is OF_NUMPY[numpys].public
    elif name not in OBJECTS:
        assert found is numpys


@together("name", PUBLIC)
def test_every_public_name_is_there(name):
    assert hasattr(pnp, name)
    assert name in dir(pnp)


def test_modules_have_what_they_list():
    for module, numpys in ((linalg, np.linalg), (fft, np.fft)):
        assert set(numpys.__all__) <= set(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)


@together("name", FUNCTIONS)
def test_each_function_has_a_kind(name):
    assert KINDS[name] in (*page.KINDS_IN_ORDER, "refused")
    assert (name in REASONS) == (KINDS[name] == "refused")


ADDED = {"flatnonzero", "nonzero", "argwhere", "unique", "bincount", "fft.fftfreq", "fft.rfftfreq", "polydiv", "roots"}
"""Functions that take one more keyword, or two, which says how many elements to give."""
OTHERWISE = {"arange", "array2string", "asmatrix", "bmat", "einsum", "save", "savetxt", "savez", "savez_compressed"}
"""Functions that hand on what they get, or whose signature NumPy 2.4 tells otherwise than it takes."""


def parameters_of(function):
    return [(parameter.name, parameter.kind) for parameter in inspect.signature(function).parameters.values()]


@pytest.mark.skipif(np.__version__.split(".")[:2] != page.WRITTEN_FOR.split("."), reason="versions add arguments")
@together("name", [
    name for name, function in FUNCTIONS.items() if name not in OTHERWISE and not name.startswith("random.")
    and not isinstance(function.implementation, Adapter) and inspect.isroutine(function.numpy_function)])
def test_signatures_are_numpys(name):
    function = FUNCTIONS[name]
    expected, found = parameters_of(function.numpy_function), parameters_of(function.implementation)
    assert found == expected if name not in ADDED else found[:len(expected)] == expected
    assert parameters_of(function) == parameters_of(function.public) == found


KINDS_BY_HAND = {"add": "operator", "sort": "operator", "einsum": "written with operators", "linalg.solve": "operator",
                 "fft.rfft": "operator", "fft.rfft2": "written with operators", "median": "written with operators",
                 "argsort": "constant", "isnan": "constant", "sign": "operator", "shape": "constant",
                 "searchsorted": "constant", "nonzero": "constant", "linalg.matrix_rank": "constant", "bmat": "refused"}


@pytest.mark.parametrize("name", KINDS_BY_HAND)
def test_kinds(name):
    assert KINDS[name] == KINDS_BY_HAND[name]


@pytest.mark.parametrize("name", REASONS)
def test_a_refusal_says_what_to_write(name):
    assert len(REASONS[name].split()) > 6
