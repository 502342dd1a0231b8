"""Each function of a family is one of: an operator, written with operators, constant, passed on, refused."""

import operator
from types import ModuleType

import numpy as np
import pytest
import scipy

import pydispatch.scipy
from pydispatch import Tensor, func
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import OF_NUMPY
from pydispatch.scipy import signal
from pydispatch.scipy.pack import FACE, PASSED_ON
from tests.scipy import families, page  # noqa: F401  the first declares all functions
from tests.together import together


@together("name", sorted(FACE.functions))
def test_each_function_has_a_kind(name):
    assert FACE.kinds[name] in (*page.KINDS, "refused")
    assert (name in FACE.reasons) == (FACE.kinds[name] == "refused")
    assert operator.attrgetter(name)(pydispatch.scipy) is FACE.functions[name]
    assert OF_NUMPY[FACE.original(name)] is FACE.functions[name]


@together("name", [f"{family}.{name}" for family in PASSED_ON for name in PASSED_ON[family]])
def test_what_is_passed_on_is_scipys(name):
    assert operator.attrgetter(name)(pydispatch.scipy) is operator.attrgetter(name)(scipy)


@pytest.mark.parametrize("family", [
    "cluster.vq", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse",
    "sparse.linalg", "spatial", "spatial.distance", "special", "stats",
])
def test_every_public_name_of_scipys_is_here(family):
    theirs, ours = [operator.attrgetter(family)(module) for module in (scipy, pydispatch.scipy)]
    modules = {name for name in theirs.__all__ if isinstance(getattr(theirs, name), ModuleType)}
    assert set(theirs.__all__) - modules <= set(ours.__all__)


def test_a_function_for_arrays_names_what_to_write_for_tensors():
    x = np.array([1.0, 3.0, 2.0, 4.0])
    assert func.grad(lambda y: y * signal.medfilt(x).sum())(1.0) == 8.0       # an array is a constant
    with pytest.raises(DispatchTypeError, match=r"scipy.signal.medfilt does not take a Tensor\n.*library.custom_op"):
        signal.medfilt(Tensor(x))


@together("name", sorted(FACE.reasons))
def test_a_refusal_says_what_to_write(name):
    assert len(FACE.reasons[name].split()) > 6
