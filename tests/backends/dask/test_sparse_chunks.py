"""Arrays of Dask's whose chunks are sparse arrays of the library `sparse`: lazy, and equal to those of dense chunks."""

from typing import Any

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import func
from pydispatch.exceptions import NoKernelError
from pydispatch.ops import ops
from tests.backends.dask.lazy import computed, da, lazily

sparse = pytest.importorskip("sparse")
pytest.importorskip("pydispatch.backends.sparse.pydata")
RNG = np.random.default_rng(0)
DATA = np.where(RNG.random((6, 4)) < 0.5, RNG.normal(size=(6, 4)), 0.0)
W, V = RNG.normal(size=(4, 3)), np.arange(1.0, 5.0)


def of_dense(x: Any) -> Any:
    return da.from_array(x, chunks=(2, 4))


X = of_dense(DATA).map_blocks(sparse.COO)


def dense(array: Any) -> np.ndarray:
    found = computed(array)
    return found.todense() if isinstance(found, sparse.SparseArray) else np.asarray(found)


SPARSE = {
    "sin": pnp.sin, "times a number": lambda x: x * 2.0, "times a vector": lambda x: x * V, "squares": lambda x: x ** 2,
    "sums": lambda x: x + x, "transposed": pnp.transpose, "parts": lambda x: x[1:3],
    "joined": lambda x: pnp.concatenate([x, x]), "with itself": lambda x: pnp.matmul(pnp.transpose(x), x),
    "positive part": lambda x: pnp.maximum(x, 0.0),
}
DENSE = {
    "by a vector": lambda x: pnp.matmul(x, V), "by a matrix": lambda x: x @ W,
    "from the left": lambda x: np.ones(6) @ x,
    "by an array of Dask's": lambda x: pnp.matmul(x, da.from_array(W, chunks=2)),
    "sum": pnp.sum, "sums of rows": lambda x: pnp.sum(x, axis=1, keepdims=True), "mean": lambda x: pnp.mean(x, axis=0),
    "variance": lambda x: pnp.var(x, axis=0), "deviation": pnp.std, "loss": lambda x: pnp.logaddexp(0.0, x @ V),
}


@pytest.mark.parametrize("name", SPARSE | DENSE)
def test_values(name):
    found = lazily((SPARSE | DENSE)[name], X)
    np.testing.assert_allclose(dense(found), dense((SPARSE | DENSE)[name](of_dense(DATA))), atol=1e-12)
    assert isinstance(computed(found), sparse.SparseArray) == (name in SPARSE)


@pytest.mark.parametrize("name", [name for name in SPARSE | DENSE if name != "positive part"])
def test_gradients(name):
    def loss(x: Any) -> Any:
        y = (SPARSE | DENSE)[name](x)
        return pnp.sum(y * np.cos(np.arange(float(np.prod(y.shape)))).reshape(y.shape))

    stored = DATA != 0
    found, expected = lazily(func.grad(loss), X), func.grad(loss)(of_dense(DATA))
    np.testing.assert_allclose(dense(found)[stored], dense(expected)[stored], atol=1e-12)


def test_a_regression():
    y = of_dense(DATA[:, :1] > 0)[:, 0]

    def loss(w: Any, x: Any) -> Any:
        z = pnp.matmul(x, w)
        return pnp.mean(pnp.logaddexp(0.0, z) - z * y)

    found, expected = lazily(func.grad(loss), V, X), func.grad(loss)(V, of_dense(DATA))
    np.testing.assert_allclose(dense(found), dense(expected), atol=1e-12)
    tangent = lazily(func.jvp, lambda w: loss(w, X), (V,), (np.ones(4),))[1]
    np.testing.assert_allclose(dense(tangent), dense(expected).sum(), atol=1e-12)
    by_values = X.map_blocks(func.grad(lambda chunk: ops.np.sum(ops.np.sin(ops.np.matmul(chunk, V)))))
    expected = np.where(DATA != 0, np.cos(DATA @ V)[:, None] * V, 0.0)
    np.testing.assert_allclose(dense(by_values), expected, atol=1e-12)


@pytest.mark.parametrize("function", [
    lambda x: pnp.sort(x), lambda x: pnp.cumsum(x, axis=0), lambda x: pnp.argmax(x, axis=0), lambda x: pnp.median(x),
    lambda x: pnp.einsum("ij,j->i", x, V), lambda x: ops.np.index_put(x, (np.array([0, 1]),), 1.0),
    lambda x: pnp.clip(x, -1.0, 1.0), lambda x: pnp.linalg.qr(x),
], ids=["sort", "cumsum", "argmax", "median", "einsum", "index_put", "clip", "qr"])
def test_what_sparse_arrays_lack_is_refused_before_anything_is_computed(function):
    with pytest.raises(NoKernelError, match=r"found a Dask array whose chunks are of COO(?s:.*)SparseCPU\n"
                       r"convert the chunks: array.map_blocks\(lambda chunk: chunk.todense\(\)\)"):
        lazily(function, X)
    lazily(function, X.map_blocks(lambda chunk: chunk.todense()))
