"""Text, files and memory of Tensors, and NumPy's indexing objects."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile
from pydispatch.autograd import grad
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.func import grad as grad_of
from pydispatch.func import vmap
from pydispatch.tracing import make_fx

X = np.arange(6.0).reshape(2, 3) / 3


@pytest.mark.parametrize("namespace", [np, pnp], ids=["numpy", "pydispatch.numpy"])
def test_text_is_that_of_the_tensor(namespace):
    tensor = Tensor(X)
    assert namespace.array_repr(tensor) == repr(tensor)
    assert namespace.array_str(tensor, precision=2) == np.array_str(X, precision=2)
    assert namespace.array2string(Tensor(X, requires_grad=True), precision=1) == np.array2string(X, precision=1)


@pytest.mark.parametrize("namespace", [np, pnp], ids=["numpy", "pydispatch.numpy"])
def test_files_get_the_numbers(namespace, tmp_path):
    namespace.save(tmp_path / "x.npy", Tensor(X))
    namespace.savez(tmp_path / "x.npz", Tensor(X), named=Tensor(X))
    namespace.savez_compressed(tmp_path / "y.npz", x=Tensor(X))
    namespace.savetxt(tmp_path / "x.txt", Tensor(X))
    found = [np.load(tmp_path / "x.npy"), np.load(tmp_path / "x.npz")["arr_0"], np.load(tmp_path / "x.npz")["named"],
             np.load(tmp_path / "y.npz")["x"], np.loadtxt(tmp_path / "x.txt")]
    for array in found:
        np.testing.assert_array_equal(array, X)
    with pytest.raises(AutogradError, match="its gradient would be lost"):
        namespace.save(tmp_path / "x.npy", Tensor(X, requires_grad=True))


def test_memory_is_that_of_the_arrays():
    tensor = Tensor(X)
    assert np.shares_memory(tensor, X)
    assert np.shares_memory(tensor[0], tensor)
    assert not np.may_share_memory(tensor, Tensor(X.copy()))


KEYS = {
    "vectors": lambda x: (x, 0.0, slice(0, 3), x), "numbers first": lambda x: (1, 2, x),
    "matrices": lambda x: (np.ones((2, 3)), np.ones((2, 1))), "pairs": lambda x: (x, x),
    "rows": lambda x: ("0,2", x, x),
    "columns": lambda x: ("0,2,0", x, x), "a new axis": lambda x: ("1,3,1", x, x), "axis 0": lambda x: ("0", x, x),
}


@pytest.mark.parametrize(("name", "key"), [
    *[("r_", key) for key in KEYS if key != "matrices"], ("c_", "rows"), ("c_", "columns"), ("c_", "a new axis"),
    ("c_", "pairs"), ("c_", "matrices"),
])
def test_joining_by_index_is_numpys(name, key):
    ours, numpys, x = getattr(pnp, name), getattr(np, name), np.arange(3.0)
    expected = numpys[KEYS[key](x)]
    np.testing.assert_array_equal(ours[KEYS[key](x)], expected)
    arrays_as_tensors = tuple([Tensor(part) if isinstance(part, np.ndarray) else part for part in KEYS[key](x)])
    found = ours[arrays_as_tensors]
    assert isinstance(found, Tensor)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.dtype == expected.dtype


def test_joining_by_index_has_gradients_and_batches():
    x = Tensor(np.arange(3.0), requires_grad=True)
    gradient, = grad((pnp.r_[x, 1.0, x] * np.arange(7.0)).sum(), x)
    np.testing.assert_array_equal(gradient.numpy(), [4.0, 6.0, 8.0])
    np.testing.assert_array_equal(vmap(lambda x: pnp.c_[x, x])(X), [np.c_[x, x] for x in X])
    with pytest.raises(DispatchTypeError, match="requests a matrix"):
        pnp.r_["r", x]


def test_requirements_are_strings():
    with pytest.raises(TypeError, match="require: requirements has 0, expected a string"):
        pnp.require(Tensor(X), None, (0,))


@pytest.mark.parametrize("name", ["bmat", "asmatrix"])
def test_matrices_of_their_own_class_are_refused(name):
    with pytest.raises(DispatchTypeError, match=f"numpy.{name} does not take a Tensor"):
        getattr(pnp, name)(Tensor(X))


SCALARS = {"element": lambda x: x[0, 1], "sum": lambda x: x.sum(), "product": lambda x: x[0] @ x[1],
           "position": lambda x: x.argmax(), "number": lambda x: 2.5, "text": lambda x: "a",
           "view": lambda x: x[0, 1, ...], "array": lambda x: x,
           "0-d array": lambda x: x.sum(keepdims=True).reshape(()), "list": lambda x: [1.0]}


@pytest.mark.parametrize("value", SCALARS)
def test_isscalar_is_true_of_what_numpy_returns_as_scalars(value):
    found = []

    def asked(x):
        found.append(pnp.isscalar(SCALARS[value](x)))
        return (x * x).sum()

    for way in (lambda f: f, grad_of, vmap, make_fx, compile):
        way(asked)(np.stack([X, X]) if way is vmap else X)
    asked(Tensor(X))
    assert set(found) == {np.isscalar(SCALARS[value](X))}
    assert all(type(answer) is bool for answer in found)
