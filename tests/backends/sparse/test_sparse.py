"""Sparse arrays of SciPy and of the library `sparse`: values and derivatives are those of the dense arrays.

The gradient with respect to a sparse array is the dense one, where values are stored.
"""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse

from pydispatch import Tensor, func, ops
from pydispatch.backends.sparse import densifying, from_values, sample, to_dense, values
from pydispatch.exceptions import DispatchTypeError, NoKernelError, PerformanceWarning, UnsupportedError, VmapError
from pydispatch.testing import gradcheck, gradgradcheck

pydata = pytest.importorskip("sparse")
pytest.importorskip("pydispatch.backends.sparse.pydata")
NP = ops.np
DENSE = np.array([[4.0, 0.5, 0.0, 0.0], [0.0, 0.75, 0.0, 2.5], [0.0, 1.0, 0.25, 0.0]])
OTHER = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.5], [0.0, 0.0, 1.5, 0.0]])
X, Y = np.array([1.0, -2.0, 3.0, 0.5]), np.arange(12.0).reshape(4, 3) - 5
FORMATS = {"csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_array, "coo": scipy.sparse.coo_array,
           "pydata coo": pydata.COO.from_numpy, "pydata gcxs": pydata.GCXS.from_numpy}


@pytest.fixture(params=[     # the library compiles its functions for GCXS, which takes long
    pytest.param(name, marks=pytest.mark.slow) if "gcxs" in name else name for name in FORMATS])
def make(request):
    return FORMATS[request.param]


def dense(value):
    value = value.array if isinstance(value, Tensor) else value
    if hasattr(value, "toarray"):
        return value.toarray()
    return value.todense() if isinstance(value, pydata.SparseArray) else np.asarray(value)


KEEPS_SPARSITY = {
    **{name: getattr(NP, name) for name in (
        "absolute", "negative", "positive", "sqrt", "square", "sin", "tan", "sinh", "tanh", "arctan", "arcsinh",
        "expm1", "log1p", "sign", "floor", "cbrt", "conjugate", "deg2rad")},
    "times a number": lambda a: NP.multiply(a, 2.5),
    "a number times": lambda a: NP.multiply(-1.5, a),
    "over a number": lambda a: NP.divide(a, 4.0),
    "to a power": lambda a: NP.power(a, 3),
    "times a vector": lambda a: NP.multiply(a, X),
    "times an array": lambda a: NP.multiply(Y.T, a),
    "over an array": lambda a: NP.divide(a, Y.T + 20),
    "times itself": lambda a: NP.multiply(a, a),
    "plus itself": lambda a: NP.add(a, NP.sin(a)),
    "minus itself": lambda a: NP.subtract(NP.square(a), a),
    "transposed": NP.transpose,
    "axes swapped": lambda a: NP.swapaxes(a, 0, 1),
    "reshaped": lambda a: NP.reshape(a, (2, 6)),
    "with itself transposed": lambda a: NP.matmul(a, NP.transpose(a)),
    "as float32": lambda a: NP.astype(NP.astype(a, np.float32), np.float64),
}
MAKES_DENSE = {
    "sum": NP.sum,
    "sum of columns": lambda a: NP.sum(a, axis=0),
    "sum of rows": lambda a: NP.sum(a, axis=-1, keepdims=True),
    "mean": NP.mean,
    "mean of rows": lambda a: NP.mean(a, axis=(1,)),
    "times a column": lambda a: NP.matmul(a, X),
    "times columns": lambda a: NP.matmul(a, Y),
    "a row times": lambda a: NP.matmul(X[:3], a),
    "rows times": lambda a: NP.matmul(Y, a),
    "plus an array": lambda a: NP.add(a, Y.T),
    "an array minus": lambda a: NP.subtract(Y.T, a),
}
DENSE_BY_NATURE = {
    "exp": NP.exp, "cos": NP.cos, "plus a number": lambda a: NP.add(a, 1.0),
    "a number over": lambda a: NP.divide(NP.add(NP.multiply(a, 0.0), 1.0), NP.add(a, 2.0)),
}


@pytest.mark.parametrize("name", KEEPS_SPARSITY)
def test_results_stay_sparse(name, make):
    a = make(DENSE)
    found = KEEPS_SPARSITY[name](a)
    assert isinstance(found, (scipy.sparse.sparray, pydata.SparseArray))
    np.testing.assert_allclose(dense(found), dense(KEEPS_SPARSITY[name](DENSE)))


@pytest.mark.parametrize("name", MAKES_DENSE)
def test_dense_results(name, make):
    np.testing.assert_allclose(dense(MAKES_DENSE[name](make(DENSE))), MAKES_DENSE[name](DENSE))


def loss_of(function, a):
    return NP.sum(NP.square(NP.sin(function(a))))


def where_stored(gradient):
    return np.where(DENSE != 0, gradient, 0.0)


@pytest.mark.parametrize("name", KEEPS_SPARSITY | MAKES_DENSE)
def test_gradients_are_the_dense_ones_where_values_are_stored(name, make):
    function = (KEEPS_SPARSITY | MAKES_DENSE)[name]
    with np.errstate(all="ignore"):     # roots have no derivative at the zeros
        expected = where_stored(func.grad(lambda a: loss_of(function, a))(DENSE))
    found = func.grad(lambda a: loss_of(function, a))(make(DENSE))
    assert isinstance(found, (scipy.sparse.sparray, pydata.SparseArray))
    np.testing.assert_allclose(dense(found), expected, atol=1e-6 if name == "as float32" else 1e-12)
    leaf = Tensor(make(DENSE), requires_grad=True)
    loss_of(function, leaf).backward()
    np.testing.assert_allclose(dense(leaf.grad), expected, atol=1e-6 if name == "as float32" else 1e-12)
    tangent = func.jvp(lambda a: loss_of(function, a), (make(DENSE),), (make(OTHER * (DENSE != 0) + 2 * DENSE),))[1]
    np.testing.assert_allclose(
        tangent, np.sum(expected * (OTHER * (DENSE != 0) + 2 * DENSE)), rtol=1e-5 if name == "as float32" else 1e-9)


@pytest.mark.parametrize("name", KEEPS_SPARSITY | MAKES_DENSE)
def test_derivatives_of_every_order_in_the_stored_values(name):
    if name in ("as float32", "sign", "floor"):
        return      # finite differences are too coarse, or gradients vanish: the test above has them
    function, a = (KEEPS_SPARSITY | MAKES_DENSE)[name], scipy.sparse.csr_array(DENSE)
    v = Tensor(a.data.copy(), requires_grad=True)
    gradcheck(lambda v: loss_of(function, from_values(a, v)), (v,), check_forward_ad=True)
    gradgradcheck(lambda v: loss_of(function, from_values(a, v)), (v,))


@pytest.mark.parametrize("key", [(slice(0, 2),), (1,), (slice(None), 1), (1, 3), (0, 2)], ids=str)
@pytest.mark.parametrize("kind", ["csr", "pydata coo"])
def test_parts(key, kind):
    a = FORMATS[kind](DENSE)
    np.testing.assert_allclose(dense(NP.getitem(a, key)), DENSE[key])
    expected = np.zeros_like(DENSE)
    expected[key] = 2 * DENSE[key]
    found = func.grad(lambda a: NP.sum(NP.square(NP.getitem(a, key))))(a)
    np.testing.assert_allclose(dense(found), expected)


def test_gradients_by_the_dense_side(make):
    found = func.grad(lambda y: NP.sum(NP.square(NP.matmul(make(DENSE), y))))(Y)
    np.testing.assert_allclose(found, 2 * DENSE.T @ DENSE @ Y)
    found = func.grad(lambda x: NP.sum(NP.square(NP.multiply(make(DENSE), x))))(X)
    np.testing.assert_allclose(found, 2 * X * np.sum(DENSE ** 2, 0))


def test_examples_of_the_dense_side(make):
    columns = np.stack([X, 2 * X, X - 1])
    found = func.vmap(lambda x: NP.matmul(make(DENSE), x))(columns)
    np.testing.assert_allclose(dense(found), columns @ DENSE.T)


def test_arrays_of_three_axes():
    cube = np.where(np.arange(24).reshape(2, 3, 4) % 5 == 0, np.arange(24.0).reshape(2, 3, 4) + 1, 0.0)
    a = pydata.COO.from_numpy(cube)
    np.testing.assert_allclose(dense(NP.sum(a, axis=(0, 2))), cube.sum((0, 2)))
    found = func.grad(lambda a: NP.sum(NP.square(NP.sum(NP.transpose(a, (2, 0, 1)), axis=1))))(a)
    np.testing.assert_allclose(dense(found), np.where(cube != 0, 2 * cube.sum(0), 0.0))


def test_gradients_of_a_large_matrix_stay_small():
    n = 200_000     # its dense gradient would take 320 GB
    a = scipy.sparse.eye_array(n, format="csr") * 2.0
    x = np.linspace(0, 1, n)
    found = func.grad(lambda a: NP.sum(NP.square(NP.matmul(a, x))))(a)
    assert found.nnz == n
    np.testing.assert_allclose(found.data, 4 * x * x)


# --- conversions, what is dense, and mistakes ------------------------------------------------------------------------


def test_conversions(make):
    a = make(DENSE)
    np.testing.assert_array_equal(to_dense(a), DENSE)
    np.testing.assert_array_equal(dense(from_values(a, values(a))), DENSE)
    np.testing.assert_array_equal(dense(from_values(a, sample(a, DENSE + 1.0))), where_stored(DENSE + 1.0))
    np.testing.assert_array_equal(dense(func.grad(lambda a: NP.sum(to_dense(a) * Y.T))(a)), where_stored(Y.T))
    np.testing.assert_array_equal(func.grad(lambda x: NP.sum(sample(a, x) * 2.0))(DENSE),
                                  where_stored(np.full((3, 4), 2.0)))


@pytest.mark.parametrize("name", DENSE_BY_NATURE)
def test_what_makes_a_dense_array_says_so(name, make):
    function, a = DENSE_BY_NATURE[name], make(DENSE)
    with pytest.warns(PerformanceWarning, match="where the sparse argument of shape"):
        found = function(a)
    np.testing.assert_allclose(dense(found), function(DENSE))
    with densifying("raise"), pytest.raises(UnsupportedError, match="would be dense\nto allow this"):
        function(a)
    with densifying("allow"):
        np.testing.assert_allclose(dense(function(a)), function(DENSE))
        np.testing.assert_allclose(dense(func.grad(lambda a: loss_of(function, a))(a)),
                                   where_stored(func.grad(lambda a: loss_of(function, a))(DENSE)))


def test_an_unknown_policy():
    with pytest.raises(ValueError, match="found 'never', expected"), densifying("never"):
        pass


def test_a_dense_array_has_no_stored_values():
    with pytest.raises(DispatchTypeError, match="argument a is ndarray, expected a sparse array"):
        values(DENSE)


def test_values_of_another_number():
    with pytest.raises(ValueError, match=r"argument values has shape \(2,\), expected \(6,\)"):
        from_values(scipy.sparse.csr_array(DENSE), np.ones(2))


def test_an_operator_without_a_kernel():
    with pytest.raises(NoKernelError, match="np::argsort: no kernel for the key SparseCPU"):
        NP.argsort(scipy.sparse.csr_array(DENSE))


def test_a_batch_of_sparse_arrays():
    a = scipy.sparse.csr_array(DENSE)
    with pytest.raises(VmapError, match=r"use pydispatch\.scipy\.sparse\.csr_array"):
        func.vmap(lambda v: NP.matmul(from_values(a, v), X))(np.ones((2, 6)))


MAPPED = {
    "sin": NP.sin, "exp": NP.exp, "sum": NP.sum, "mean": NP.mean, "multiply": lambda row: row * 2.0,
    "add": lambda row: row + 1.0, "power": lambda row: row ** 3, "divide": lambda row: NP.divide(1.0, row),
    "matmul": lambda row: NP.matmul(row, np.ones(4)), "getitem": lambda row: row[0],
    "subtract": lambda row: row - np.ones(4),
}


@pytest.mark.parametrize("name", MAPPED)
def test_a_sparse_array_that_is_mapped_over(name, make):
    a = make(DENSE)
    with pytest.raises(VmapError, match=f"operator np::{name}: found a {type(a).__name__}, which vmap maps over(?s:.*)"
                       r"\nmap over array.todense\(\), or pass the array with in_dims=None"):
        func.vmap(MAPPED[name])(a)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(func.vmap(MAPPED[name])(a.todense()), [MAPPED[name](row) for row in DENSE])


def test_two_shapes():
    with pytest.raises(ValueError, match=r"shapes \(3, 4\) and \(4, 3\) do not broadcast"):
        NP.add(scipy.sparse.csr_array(DENSE), scipy.sparse.csr_array(DENSE.T))


@pytest.mark.parametrize("source", [
    "import scipy.sparse; a = scipy.sparse.csr_array(np.eye(3) * 2)",
    "import sparse; a = sparse.COO.from_numpy(np.eye(3) * 2)",
], ids=["scipy", "pydata"])
def test_the_pack_is_loaded_with_the_first_array(source):
    program = (f"import numpy as np; {source}; from pydispatch import func, ops; "
               "print(ops.np.sum(func.grad(lambda a: ops.np.sum(ops.np.square(ops.np.matmul(a, np.ones(3)))))(a)))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 12.0
