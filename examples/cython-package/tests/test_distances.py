"""The operators and functions of the package: `pytest tests` where pydispatch and distances-pack are installed."""

import numpy as np
import pytest
from distances_pack import kernels

from pydispatch import Tensor, compile, func, library, ops
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.testing import opcheck

X, Y = np.array([1.0, -2.0, 3.0]), np.array([0.5, 0.5, 0.5])


@pytest.mark.parametrize(("name", "args"), [
    ("smooth_abs", (X,)), ("squared_distance", (X, Y)), ("squared_distance", (X, np.array([0.25])))])
def test_operators_are_checked(name, args):
    checked = opcheck(getattr(ops.distances, name), tuple([Tensor(arg, requires_grad=True) for arg in args]))
    assert set(checked.values()) == {"SUCCESS"}


def test_values():
    np.testing.assert_allclose(ops.distances.smooth_abs(X), np.sqrt(X * X + 1) - 1)
    for x in (X, X.astype("f4"), np.arange(6).reshape(2, 3)[:, ::-1]):
        np.testing.assert_allclose(ops.distances.squared_distance(x, Y), (x - Y) ** 2)


def test_compiled():
    gradient = func.value_and_grad(lambda x: ops.distances.squared_distance(ops.distances.smooth_abs(x), Y).sum())
    for found, expected in zip(compile(gradient)(X), gradient(X), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_functions_in_cython_call_operators():
    np.testing.assert_allclose(kernels.total_distance(X, Y), ((X - Y) ** 2).sum())
    np.testing.assert_allclose(func.grad(kernels.total_distance)(X, Y), 2 * (X - Y))
    with pytest.raises(DispatchTypeError, match="no_such"):
        kernels.total_distance("no_such", Y)


def test_functions_in_cython_make_and_read_tensors():
    tensor = kernels.as_tensor(X)
    assert type(tensor) is Tensor
    assert tensor.numpy() is X
    assert kernels.as_tensor(tensor) is tensor
    assert kernels.largest(tensor) == kernels.largest(X) == 3.0
    with pytest.raises(AutogradError, match="its gradient would be lost"):
        kernels.largest(Tensor(X, requires_grad=True))
    with pytest.raises(DispatchTypeError, match="array_of: argument value is int"):
        kernels.largest(3)


def test_kernels_are_registered_from_cython():
    library.define("distances_demo::double_it", "(Tensor x) -> Tensor")
    with kernels.register_doubling("distances_demo::double_it"):
        assert ops.distances_demo.double_it(X).tolist() == [2.0, -4.0, 6.0]
