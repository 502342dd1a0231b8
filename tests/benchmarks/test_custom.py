"""Custom operators of the benchmarks compute what operators of the library do, and sines with their gradients."""

import numpy as np
import pytest

from benchmarks.cases import custom
from benchmarks.cases.custom import APIS, custom_cases, names_of_ours
from pydispatch import Tensor


def test_both_operators_return_the_same_constant(library):
    for case in custom_cases(library, {}, "*kernel does nothing*"):
        results = [eval(call, case.names) for call in (case.call, case.over)]
        assert [type(result) for result in results] == [Tensor if "X" in case.call else np.ndarray] * 2
        arrays = [getattr(result, "array", result) for result in results]
        assert arrays[0] is arrays[1]


@pytest.mark.parametrize("name", APIS)
def test_the_gradient_of_our_sine_is_the_cosine(name):
    names = names_of_ours(APIS[name][1])
    (gradient,) = eval("grad(op(X), X, ones)", names)
    np.testing.assert_allclose(gradient.numpy(), np.cos(np.arange(4.0)), rtol=1e-15)
    assert names["op"](names["X"]).requires_grad


def test_without_pytorch_its_rows_are_left_out(library, monkeypatch):
    monkeypatch.setattr(custom, "import_or_note", lambda module, name, left_out: left_out.update({name: module}))
    left_out = {}
    assert list(custom_cases(library, left_out, "*pytorch*")) == []
    assert left_out == dict.fromkeys(APIS, "torch")
