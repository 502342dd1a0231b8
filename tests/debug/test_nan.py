"""The operators that `debug.nan_detector` names, and those that it ignores."""

import inspect
import re

import numpy as np
import pytest

from pydispatch import Tensor, debug, ops
from pydispatch.exceptions import NaNError
from pydispatch.func import grad, jvp, vmap

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")


def logarithm(x):
    return ops.np.log(x)


LINE = inspect.getsourcelines(logarithm)[1] + 1
BAD = np.array([1.0, -1.0, -2.0])


IN_EXAMPLE = "in example 1 of a batch of 3"


@pytest.mark.parametrize(("call", "found"), [
    (lambda: logarithm(BAD), "2 NaN"),
    (lambda: logarithm(Tensor(BAD)), "2 NaN"),
    (lambda: logarithm(Tensor(BAD, requires_grad=True)), "2 NaN"),
    (lambda: logarithm(Tensor(BAD) * 1.0).sum(), "2 NaN"),
    (lambda: grad(lambda x: ops.np.sum(logarithm(x)))(BAD), "2 NaN"),
    (lambda: vmap(logarithm)(BAD), IN_EXAMPLE),
    (lambda: vmap(grad(logarithm))(BAD), IN_EXAMPLE),
    (lambda: jvp(logarithm, (BAD,), (BAD,)), "2 NaN"),
], ids=["plain", "Tensor", "tape", "method after", "grad", "vmap", "vmap of grad", "jvp"])
def test_it_names_the_operator_and_the_line(call, found):
    with pytest.raises(NaNError) as caught, debug.nan_detector():
        call()
    assert re.match(r"operator np::log: its result has [12] NaN, expected none", str(caught.value))
    assert found in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"{__file__}:{LINE}" in str(caught.value)


def test_a_nan_that_numpy_made_on_raw_arrays_is_found_where_an_operator_gets_it():
    def made_by_numpy():
        with np.errstate(invalid="ignore"):
            return np.zeros(2) / np.zeros(2)

    with debug.nan_detector():
        ops.np.add(made_by_numpy(), 1.0)
    with debug.nan_detector(raw=True):
        ops.np.add(np.zeros(2), 1.0)
        with pytest.raises(NaNError, match="np::add: its arguments hold 2 NaN that no operator inside the block"):
            ops.np.add(made_by_numpy(), 1.0)


def test_it_works_inside_of_transforms():
    def function(x):
        with debug.nan_detector():
            return logarithm(x)

    with pytest.raises(NaNError, match="operator np::log"):
        vmap(function)(BAD)


def test_in_a_backward_pass_it_shows_the_call_of_the_forward_pass():
    x = Tensor(np.array([0.0, 1.0]), requires_grad=True)
    with debug.nan_detector():
        line = inspect.currentframe().f_lineno + 1
        y = ops.np.sqrt(x)
        total = ops.np.sum(y * 0.0)
        with pytest.raises(NaNError) as caught:
            total.backward()
    text = str(caught.value)
    assert "operator np::divide" in text
    assert "called by SqrtBackward in a backward pass" in text
    assert f'File "{__file__}", line {line}' in text


@pytest.mark.parametrize("call", [
    lambda: ops.np.isnan(np.array([np.nan, 1.0])),
    lambda: ops.np.add(np.array([np.nan, 1.0]), 1.0),
    lambda: ops.np.log(np.array([0.0])),
    lambda: ops.np.argsort(np.array([3, 1])),
    lambda: ops.np.add_(Tensor(np.array([np.nan])), 1.0),
], ids=["isnan", "NaN among the arguments", "infinite", "integers", "write to NaN"])
def test_it_lets_pass_what_makes_none(call):
    with debug.nan_detector():
        call()


def test_a_write_that_makes_nan_is_found():
    x = Tensor(np.array([1.0, 2.0]))
    with pytest.raises(NaNError, match="operator np::subtract_"), debug.nan_detector():
        ops.np.subtract_(ops.np.divide_(x, 0.0), np.inf)


def test_the_state_is_as_before():
    for _ in range(2):
        with pytest.raises(NaNError), debug.nan_detector():
            logarithm(BAD)
        assert np.isnan(logarithm(BAD)).sum() == 2
