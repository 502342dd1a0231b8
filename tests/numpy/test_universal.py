"""Universal functions: their methods and options on Tensors."""

from __future__ import annotations

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.autograd import grad
from pydispatch.func import grad as func_grad
from pydispatch.func import jvp, vmap
from pydispatch.numpy.declare import FUNCTIONS
from tests.cases import in_one_case

BINARY = [name for name, function in FUNCTIONS.items() if "outer" in function.__dict__ and name != "ldexp"]
"""Less the one whose result is not its own argument again: NumPy reduces nothing with it."""
ARRAY = np.array([[3, 1, 2], [1, 2, 5], [7, 1, 1], [2, 6, 4]])
DTYPES = {"logical": bool, "equal": bool, "not": bool, "less": bool, "greater": bool, "bit": int, "left": int,
          "right": int, "gcd": int, "lcm": int}
"""By the first word of the name; float for others."""
METHODS = {
    "reduce": lambda ufunc, x: ufunc.reduce(x),
    "reduce, axis=1, keepdims": lambda ufunc, x: ufunc.reduce(x, axis=1, keepdims=True),
    "accumulate": lambda ufunc, x: ufunc.accumulate(x, axis=1),
    "outer": lambda ufunc, x: ufunc.outer(x, x[0].tolist()),
    "reduceat": lambda ufunc, x: ufunc.reduceat(x, [0, 2, 1], axis=0),
}


def one_by_one(method, name, array):
    """What the method gives in NumPy, in the dtype that it has there, of pairs of elements one after the other.

    NumPy's own loops for arctan2 and power take the first and the last element of a row alone on some processors.
    """
    ufunc = getattr(np, name)
    of_scalars = np.frompyfunc(lambda x, y: ufunc(array.dtype.type(x), array.dtype.type(y)), 2, 1)
    return np.asarray(method(of_scalars, array.astype(object))).astype(method(ufunc, array).dtype)


@in_one_case
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
@pytest.mark.parametrize("name", BINARY)
def test_methods_of_binary_functions(name, method):
    array = ARRAY.astype(DTYPES.get(name.split("_")[0].removesuffix("wise"), float))
    expected = one_by_one(method, name, array)
    for ufunc in (getattr(np, name), getattr(pnp, name)):
        found = method(ufunc, Tensor(array))
        assert type(found) is Tensor
        np.testing.assert_allclose(found.array, expected, rtol=1e-15)
        assert found.dtype == expected.dtype
    assert type(method(getattr(pnp, name), array)) is np.ndarray


def test_where_leaves_elements_out_of_the_gradient():
    x = Tensor(np.array([4.0, 0.0]), requires_grad=True)
    result = np.sqrt(x, where=[True, False], out=None)
    assert grad(result[0], x)[0].tolist() == [0.25, 0.0]


@pytest.mark.parametrize("namespace", [np, pnp])
def test_results_written_into_a_tensor_pass_gradients_on(namespace):
    x = np.array([1.0, 2.0, 3.0])

    def function(x):
        out, total = namespace.zeros_like(x), namespace.zeros_like(x)
        namespace.exp(x, out=out)
        namespace.add(out, x, out=total)
        return namespace.sum(total * x)

    slope = np.exp(x) * (1 + x) + 2 * x
    np.testing.assert_allclose(func_grad(function)(x), slope)
    tensor = Tensor(x, requires_grad=True)
    function(tensor).backward()
    np.testing.assert_allclose(tensor.grad.numpy(), slope)
    np.testing.assert_allclose(jvp(function, (x,), (np.ones(3),))[1], slope.sum())
    np.testing.assert_allclose(vmap(func_grad(function))(np.stack([x, x])), np.stack([slope, slope]))
    with pytest.raises(TypeError, match="cast"):
        namespace.add(tensor, 1.0, out=Tensor(np.zeros(3, int)))
