"""NEP 35: NumPy's functions that make arrays make Tensors where `like` is one."""

import io

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.autograd import grad
from pydispatch.func import vmap

CALLS = {
    "arange": lambda xp, **like: xp.arange(3, **like),
    "array": lambda xp, **like: xp.array([1, 2], dtype="f4", **like),
    "asarray": lambda xp, **like: xp.asarray([[1, 2], [3, 4]], **like),
    "asanyarray": lambda xp, **like: xp.asanyarray([1.5], **like),
    "ascontiguousarray": lambda xp, **like: xp.ascontiguousarray([1, 2], **like),
    "empty": lambda xp, **like: xp.empty((0, 2), **like),
    "eye": lambda xp, **like: xp.eye(2, 3, k=1, **like),
    "full": lambda xp, **like: xp.full(2, 7, **like),
    "identity": lambda xp, **like: xp.identity(2, **like),
    "ones": lambda xp, **like: xp.ones(2, int, **like),
    "tri": lambda xp, **like: xp.tri(3, **like),
    "zeros": lambda xp, **like: xp.zeros((2, 2), **like),
    "frombuffer": lambda xp, **like: xp.frombuffer(bytes(16), **like),
    "fromiter": lambda xp, **like: xp.fromiter(range(3), float, **like),
    "fromfunction": lambda xp, **like: xp.fromfunction(lambda i: 2 * i, (3,), **like),
    "loadtxt": lambda xp, **like: xp.loadtxt(io.StringIO("1 2"), **like),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_made_like_a_tensor_is_one(name):
    expected = CALLS[name](np)
    found = CALLS[name](np, like=Tensor(np.ones(1)))
    assert type(found) is Tensor
    np.testing.assert_array_equal(found.numpy(), expected, strict=True)
    assert type(CALLS[name](np, like=expected)) is np.ndarray


@pytest.mark.parametrize("namespace", [np, pnp], ids=["numpy", "pydispatch.numpy"])
def test_an_array_made_like_a_tensor_can_be_filled(namespace):
    def squares(x):
        result = namespace.zeros(3, like=x)
        for i in range(3):
            result[i] = x * x * i
        return result

    x = Tensor(np.array(3.0), requires_grad=True)
    assert squares(x).detach().tolist() == [0.0, 9.0, 18.0]
    assert grad(squares(x).sum(), x)[0] == 18.0


def test_what_is_made_for_one_example_takes_a_batch():
    def filled(x):
        result = np.zeros(2, like=x)
        result[0] = x
        return result

    assert vmap(filled)(np.ones(3)).tolist() == [[1, 0]] * 3
