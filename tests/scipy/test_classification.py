"""Each function of a family is one of: an operator, written with operators, constant, passed on, refused."""

import operator
from importlib import import_module

import pytest
import scipy

import pydispatch.scipy
from pydispatch.numpy.declare import OF_NUMPY
from pydispatch.scipy.pack import FACE, FAMILIES, PASSED_ON
from tests.scipy import page
from tests.together import together

for family in FAMILIES:
    import_module(f"pydispatch.scipy.{family}")


@together("name", sorted(FACE.functions))
def test_each_function_has_a_kind(name):
    assert FACE.kinds[name] in (*page.KINDS_IN_ORDER, "refused")
    assert (name in FACE.reasons) == (FACE.kinds[name] == "refused")
    assert operator.attrgetter(name)(pydispatch.scipy) is FACE.functions[name]
    assert OF_NUMPY[FACE.original(name)] is FACE.functions[name]


@pytest.mark.parametrize("name", [f"{family}.{name}" for family in PASSED_ON for name in PASSED_ON[family]])
def test_what_is_passed_on_is_scipys(name):
    assert operator.attrgetter(name)(pydispatch.scipy) is operator.attrgetter(name)(scipy)


@pytest.mark.parametrize("name", sorted(FACE.reasons))
def test_a_refusal_says_what_to_write(name):
    assert len(FACE.reasons[name].split()) > 6
