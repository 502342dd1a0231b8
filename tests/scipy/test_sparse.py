"""Sparse matrices: products and solutions against dense ones, with gradients at the stored positions."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import pydispatch
import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.exceptions import ConvergenceError
from pydispatch.func import grad, jvp, vmap
from pydispatch.scipy import sparse
from pydispatch.scipy.pack import SCIPY
from pydispatch.scipy.sparse import linalg
from pydispatch.scipy.sparse.arrays import Structure
from pydispatch.testing import gradcheck, gradgradcheck, opcheck
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.scipy.samples.linalg import entries, regular
from tests.together import together

DTYPES = pytest.mark.parametrize("dtype", [float, complex])
OPERATORS = [name for name in SCIPY.of_families if name.startswith("sparse")]


def matrix(m=4, n=4, dtype=float):
    """Return a matrix of SciPy's with a heavy diagonal and about half of its values."""
    dense = entries(m, n, dtype=dtype) * (np.add.outer(np.arange(m), 2 * np.arange(n)) % 3 > 0)
    return scipy.sparse.csr_array(dense + 5 * np.eye(m, n))


def call(name, dtype):
    a = sparse.from_scipy(matrix(dtype=dtype))
    values, x, y = [Tensor(np.array(each), requires_grad=True)
                    for each in (a.data, entries(4, 2, dtype=dtype), regular(4, 2, dtype=dtype))]
    return (x, y, a.structure) if name == "sparse_sampled_product" else (values, x, a.structure)


@DTYPES
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_pass_opcheck(name, dtype):
    op, args = getattr(ops.scipy, name), call(name, dtype)
    assert set(opcheck(op, args).values()) == {"SUCCESS"}
    if name != "sparse_sampled_product":
        assert set(opcheck(op, (*args, True)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", OPERATORS)
def test_no_operator_loops_over_a_batch(name):
    assert SCIPY.of_families[name].vmap is not None


@DTYPES
def test_products_are_scipys(dtype):
    theirs = matrix(3, 4, dtype)
    ours = sparse.from_scipy(theirs)
    for x in (entries(4, dtype=dtype), entries(4, 2, dtype=dtype)):
        np.testing.assert_allclose(ours @ x, theirs @ x, rtol=1e-14)
        np.testing.assert_allclose((ours @ Tensor(x)).numpy(), theirs @ x, rtol=1e-14)
    for x in (entries(3, dtype=dtype), entries(2, 3, dtype=dtype)):
        np.testing.assert_allclose(x @ ours, x @ theirs, rtol=1e-14)
        np.testing.assert_allclose(ours.T @ x.T, theirs.T @ x.T, rtol=1e-14)
    stack = entries(5, 4, 2, dtype=dtype)
    np.testing.assert_allclose(ours @ stack, theirs.toarray() @ stack, rtol=1e-13)
    np.testing.assert_allclose(sparse.matvec(ours, x[0, :1].repeat(4)), theirs @ x[0, :1].repeat(4))
    np.testing.assert_allclose(sparse.matmat(theirs, stack), theirs.toarray() @ stack, rtol=1e-13)


def test_parts_are_scipys():
    theirs = matrix(3, 4)
    ours = sparse.csr_array((theirs.data, theirs.indices, theirs.indptr), shape=(3, 4))
    assert (ours.shape, ours.nnz, ours.dtype, ours.T.shape) == ((3, 4), theirs.nnz, np.float64, (4, 3))
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    np.testing.assert_array_equal(ours.T.toarray(), theirs.toarray().T)
    np.testing.assert_array_equal(ours.T.T.to_scipy().toarray(), theirs.toarray())
    np.testing.assert_array_equal(sparse.csr_array(ours).indices, theirs.indices)
    np.testing.assert_array_equal(ours.with_data(2 * theirs.data).toarray(), 2 * theirs.toarray())


def test_a_gradient_by_a_matrix_is_a_matrix_of_its_structure():
    a, x, weights = sparse.from_scipy(matrix(3, 4)), entries(4), entries(3) + 0.1
    found = grad(lambda a: ops.np.sum(ops.np.multiply(a @ x, weights)))(a)
    assert isinstance(found, sparse.csr_array)
    dense = np.outer(weights, x)
    np.testing.assert_allclose(found.data, dense[found.structure.rows, found.indices])
    np.testing.assert_allclose(found.toarray() == 0, matrix(3, 4).toarray() == 0)


@DTYPES
def test_solutions_are_scipys(dtype):
    theirs = matrix(dtype=dtype)
    ours = sparse.from_scipy(theirs)
    for shape in ((4,), (4, 1), (4, 3)):
        b = entries(*shape, dtype=dtype)
        for a in (ours, theirs):
            found = sparse.linalg.spsolve(a, b)
            expected = scipy.sparse.linalg.spsolve(theirs.tocsc(), b)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@DTYPES
def test_gradients_of_solutions_are_those_of_the_dense_system(dtype):
    a, b = sparse.from_scipy(matrix(dtype=dtype)), entries(4, dtype=dtype)

    def solve(values, b):
        return sparse.linalg.spsolve(a.with_data(values), b)

    arguments = [Tensor(np.array(x), requires_grad=True) for x in (a.data, b)]
    gradcheck(solve, arguments, check_forward_ad=True)
    gradgradcheck(solve, arguments)

    def loss(solve):
        return lambda a, b: ops.np.sum(ops.np.square(ops.np.absolute(solve(a, b))))

    found = grad(loss(sparse.linalg.spsolve), (0, 1))(a, b)
    expected = grad(loss(ops.np.linalg_solve), (0, 1))(matrix(dtype=dtype).toarray(), b)
    np.testing.assert_allclose(found[0].data, expected[0][a.structure.rows, a.indices], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10)


FUNCTIONS = {
    "matvec": lambda a, x: a @ x,
    "transposed": lambda a, x: a.T @ x,
    "rmatmul": lambda a, x: x @ a,
    "spsolve": sparse.linalg.spsolve,
    "toarray": lambda a, x: ops.np.multiply(a.toarray(), x),
}


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)], ids=["data", "x", "both"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_loop(name, in_dims):
    a, x = sparse.from_scipy(matrix()), entries(4)
    matrices = [a.with_data(a.data * factor) for factor in (1.0, 0.9, 1.2)]
    vectors = [x, x + 1, x * 2]
    loop = [FUNCTIONS[name](matrices[i] if in_dims[0] == 0 else a, vectors[i] if in_dims[1] == 0 else x)
            for i in range(3)]
    stacked = a.with_data(np.stack([each.data for each in matrices])) if in_dims[0] == 0 else a
    found = vmap(FUNCTIONS[name], in_dims)(stacked, np.stack(vectors) if in_dims[1] == 0 else x)
    np.testing.assert_allclose(found, loop, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_under_vmap_are_a_loop(name):
    a, x = sparse.from_scipy(matrix()), entries(3, 4)
    stacked = a.with_data(np.stack([a.data, a.data * 2, a.data * 3]))
    each = grad(lambda a, x: ops.np.sum(ops.np.square(FUNCTIONS[name](a, x))), (0, 1))
    found = vmap(each)(stacked, x)
    for i in range(3):
        of_matrix, of_vector = each(a.with_data(stacked.data[i]), x[i])
        np.testing.assert_allclose(found[0].data[i], of_matrix.data, rtol=1e-10)
        np.testing.assert_allclose(found[1][i], of_vector, rtol=1e-10)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced_and_compiled_is_eager(name):
    a, x = sparse.from_scipy(matrix()), entries(4)

    def function(values, x):
        return FUNCTIONS[name](a.with_data(values), x)

    for made in (make_fx(function)(a.data, x), pydispatch.compile(function)):
        np.testing.assert_allclose(made(2 * a.data, x + 1), function(2 * a.data, x + 1), rtol=1e-13)
    compiled = pydispatch.compile(grad(lambda values, x: ops.np.sum(function(values, x))))
    np.testing.assert_allclose(compiled(a.data, x), grad(lambda values: ops.np.sum(function(values, x)))(a.data))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_empty_batch(name):
    a = sparse.from_scipy(matrix())
    each = grad(lambda a, x: ops.np.sum(FUNCTIONS[name](a, x)), (0, 1))
    found = vmap(each)(a.with_data(np.zeros((0, a.nnz))), np.zeros((0, 4)))
    assert (found[0].data.shape, found[1].shape) == ((0, a.nnz), (0, 4))


def test_a_matrix_without_values():
    a = sparse.csr_array((np.zeros(0), [], [0, 0, 0]), shape=(2, 3))
    assert (a @ np.ones(3)).tolist() == [0.0, 0.0]
    assert grad(lambda a: ops.np.sum(a @ np.ones((3, 2))))(a).data.shape == (0,)


def test_forward_mode():
    a, t = sparse.from_scipy(matrix()), sparse.from_scipy(matrix()).with_data(entries(matrix().nnz))
    b = entries(4)
    found, tangent = jvp(sparse.linalg.spsolve, (a, b), (t, b))
    np.testing.assert_allclose(a @ tangent + t @ found, b, rtol=1e-12)


def test_the_backward_pass_uses_the_factors_again(monkeypatch):
    factored = []
    splu = scipy.sparse.linalg.splu
    monkeypatch.setattr("pydispatch.scipy.sparse.arrays.splu", lambda a: factored.append(1) or splu(a))
    a = sparse.from_scipy(matrix())
    grad(lambda a: ops.np.sum(sparse.linalg.spsolve(a, entries(4))))(a)
    assert len(factored) == 1
    a.data[0] *= 2      # the factors are no longer those of the matrix
    np.testing.assert_allclose(a @ sparse.linalg.spsolve(a, entries(4)), entries(4))
    assert len(factored) == 2


def test_nothing_is_dense():
    n = 100_000
    laplacian = scipy.sparse.diags_array([np.full(n - 1, -1.0), np.full(n, 2.5), np.full(n - 1, -1.0)],
                                         offsets=[-1, 0, 1]).tocsr()
    a, x = sparse.from_scipy(laplacian), np.ones(n)
    found = grad(lambda a: ops.np.sum(ops.np.square(a @ sparse.linalg.spsolve(a, x))))(a)
    assert found.data.shape == (3 * n - 2,)
    np.testing.assert_allclose(found.data, 0, atol=1e-12)     # of the same right-hand side, whatever the matrix


# --- errors ----------------------------------------------------------------------------------------------------------

A = sparse.from_scipy(matrix(3, 4))
SQUARE = sparse.from_scipy(matrix(3, 3))
ERRORS = {
    "product": (lambda x: A @ x, ValueError, "matmul: dimension mismatch"),
    "matvec": (lambda x: sparse.matvec(A, x), ValueError, "matvec: dimension mismatch"),
    "solution": (lambda x: sparse.linalg.spsolve(SQUARE, x), ValueError, "spsolve: matrix - rhs dimension mismatch"),
    "square": (lambda x: sparse.linalg.spsolve(A, x), ValueError, "spsolve: matrix must be square"),
    "data": (A.with_data, ValueError, "with_data: argument data has shape"),
    "singular": (lambda x: sparse.linalg.spsolve(SQUARE.with_data(ops.np.multiply(
        SQUARE.data, ops.np.multiply(0.0, ops.np.sum(x)))), np.ones(3)), RuntimeError,
        "spsolve: Factor is exactly singular"),
}


def summed(function):
    return lambda x: ops.np.sum(function(x))


WAYS = {
    "eager": lambda function: lambda x: function(Tensor(x)),
    "grad": lambda function: grad(summed(function)),
    "jvp": lambda function: lambda x: jvp(function, (x,), (x,)),
    "vmap": lambda function: lambda x: vmap(function)(np.stack([x, x])),
    "vmap-of-grad": lambda function: lambda x: vmap(grad(summed(function)))(np.stack([x, x])),
}


@pytest.mark.parametrize("name", ERRORS)
@together("way", WAYS)
def test_errors_name_the_function(name, way):
    function, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        WAYS[way](function)(np.ones(7))


def test_a_batch_names_the_singular_matrix():
    stack = SQUARE.with_data(np.stack([SQUARE.data, 0 * SQUARE.data]))
    with pytest.raises(RuntimeError, match="spsolve: Factor is exactly singular in matrix 1 of the stack"):
        sparse.linalg.spsolve(stack, np.ones((2, 3, 1)))
    with pytest.raises(RuntimeError, match="spsolve: Factor is exactly singular") as caught:
        vmap(lambda a: sparse.linalg.spsolve(a, np.ones(3)))(stack)
    assert caught.value.__notes__ == ["in example 1 of a batch of 2"]


@pytest.mark.parametrize(("indices", "indptr"), [([0, 9], [0, 1, 2]), ([0, 1], [0, 1]), ([0, 1], [0, 1, 3])])
def test_a_structure_that_makes_no_matrix_is_refused(indices, indptr):
    with pytest.raises(ValueError, match="ind"):
        Structure(indices, indptr, (2, 2))


def test_other_values_are_refused():
    with pytest.raises(TypeError, match=r"csr_array: found Tensor, expected \(data, indices, indptr\)"):
        sparse.csr_array(Tensor(np.eye(2)))


# --- sums, products of sparse matrices, and their parts --------------------------------------------------------------


def test_sparse_results_are_scipys():
    left, right = matrix(4, 5), matrix(5, 3)
    ours = sparse.csr_array(left)
    for found, expected in (
            (ours @ right, left @ right), (ours + 2 * left, 3 * left), (ours - left[:, ::-1], left - left[:, ::-1]),
            (-ours / 2, -left / 2), (ours.multiply(np.arange(5.0)), left.multiply(np.arange(5.0)))):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-14)
    np.testing.assert_allclose(ours.diagonal(), left.diagonal())
    for axis in (None, 0, 1):
        np.testing.assert_allclose(ours.sum(axis), left.sum(axis))
    places = (np.array([1, 0, 1]), np.array([2, 0, 2]))
    np.testing.assert_array_equal(sparse.csr_array((np.array([1.0, 2.0, 4.0]), places)).toarray(),
                                  [[2, 0, 0], [0, 0, 5]])
    assert ours.tocsc().shape == (4, 5)         # a method of SciPy's


def tracked(*arrays):
    return [Tensor(np.array(x), requires_grad=True) for x in arrays]


def test_sparse_results_have_gradients():
    left, right = sparse.csr_array(matrix(2, 3)), sparse.csr_array(matrix(3, 2))

    def parts(one, other):
        a, b = left.with_data(one), right.with_data(other)
        return (a @ b).data, (a.T - 2 * b).data, a.diagonal(), a.sum(), b.sum(1), linalg.norm(a), linalg.norm(b, 1)

    gradcheck(parts, tracked(left.data, right.data), check_forward_ad=True)
    stack = np.stack([left.data, 2 * left.data])
    found = vmap(lambda one: (left.with_data(one) @ right).data)(stack)
    np.testing.assert_allclose(found[1], 2 * found[0])


# --- sparse.linalg ---------------------------------------------------------------------------------------------------

N = 4
DIAGONAL, BESIDE = np.linspace(2.5, 4, N), np.linspace(-1, -0.6, N - 1)
B = np.linspace(1, 2, N)


def symmetric(diagonal, beside):
    """Return a tridiagonal matrix."""
    i = np.arange(N)
    return sparse.csr_array((pnp.concatenate([diagonal, beside, beside]),
                             (np.concatenate([i, i[:-1], i[1:]]), np.concatenate([i, i[1:], i[:-1]]))))


SYMMETRIC = symmetric(DIAGONAL, BESIDE)
METHODS = ("bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr")
MATRICES = {
    "csr_array": lambda d: SYMMETRIC.with_data(d),
    "array": lambda d: SYMMETRIC.with_data(d).toarray(),
    "function": lambda d: lambda x: SYMMETRIC.with_data(d) @ x,
    "LinearOperator": lambda d: linalg.LinearOperator(
        (N, N), lambda x: SYMMETRIC.with_data(d) @ x, lambda x: SYMMETRIC.with_data(d).T @ x, dtype=float),
    "aslinearoperator": lambda d: linalg.aslinearoperator(SYMMETRIC.with_data(d)),
}


@together("method", METHODS)
def test_iterations_solve_and_have_gradients(method):
    def solve(data, b):
        x, info = getattr(linalg, method)(SYMMETRIC.with_data(data), b, rtol=1e-13)
        assert info == 0
        return x

    expected = np.linalg.solve(SYMMETRIC.toarray(), B)
    np.testing.assert_allclose(solve(Tensor(SYMMETRIC.data), B), expected, rtol=1e-11)
    np.testing.assert_array_equal(getattr(linalg, method)(SYMMETRIC.to_scipy(), B)[0],
                                  getattr(scipy.sparse.linalg, method)(SYMMETRIC.to_scipy(), B)[0])
    gradcheck(solve, tracked(SYMMETRIC.data, B))


@together("kind", MATRICES)
def test_iterations_take_matrices_of_every_kind(kind):
    def solve(data, b):
        return linalg.cg(MATRICES[kind](data), b, rtol=1e-13)[0]

    gradcheck(solve, tracked(SYMMETRIC.data, B), check_forward_ad=True)
    _, slope = jvp(lambda b: solve(SYMMETRIC.data, b), (B,), (B,))
    np.testing.assert_allclose(slope, np.linalg.solve(SYMMETRIC.toarray(), B), rtol=1e-10)


def test_iterations_that_do_not_converge_are_refused():
    with pytest.raises(ConvergenceError, match=r"sparse\.linalg\.cg: SciPy returned info=1"):
        linalg.cg(SYMMETRIC, Tensor(B), maxiter=1)


PROBLEMS = {
    "splu": (lambda d, b: linalg.splu(SYMMETRIC.with_data(d)).solve(b, "T"), (SYMMETRIC.data, B)),
    "factorized": (lambda d, b: linalg.factorized(SYMMETRIC.with_data(d))(b), (SYMMETRIC.data, B)),
    "spsolve_triangular": (lambda d, b: linalg.spsolve_triangular(SYMMETRIC.with_data(d), b), (SYMMETRIC.data, B)),
    "spsolve_triangular, unit": (lambda d, b: linalg.spsolve_triangular(
        SYMMETRIC.with_data(d), b, False, unit_diagonal=True), (SYMMETRIC.data, B)),
    "expm_multiply": (lambda d, b: linalg.expm_multiply(SYMMETRIC.with_data(d), b), (SYMMETRIC.data, B)),
    "expm_multiply at times": (lambda d, b: linalg.expm_multiply(SYMMETRIC.with_data(d), b, 0, 1, 3),
                               (SYMMETRIC.data, B)),
    "eigsh": (lambda d, e: linalg.eigsh(symmetric(d, e), 2), (DIAGONAL, BESIDE)),
    "eigsh, sigma": (lambda d, e: linalg.eigsh(symmetric(d, e), 2, sigma=0, return_eigenvectors=False),
                     (DIAGONAL, BESIDE)),
    "eigsh, M": (lambda d, e: linalg.eigsh(symmetric(d, e), 2, symmetric(d * 0.1 + 1, e * 0.1)), (DIAGONAL, BESIDE)),
    "svds": (lambda d: linalg.svds(SYMMETRIC.with_data(d), 2), (SYMMETRIC.data + np.arange(10) / 9,)),
}


QUICK = ("splu", "spsolve_triangular", "expm_multiply", "eigsh, sigma")


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
                                  for name in PROBLEMS])
def test_functions_of_matrices_have_gradients(name):
    function, arrays = PROBLEMS[name]
    gradcheck(function, tracked(*arrays), check_forward_ad=True)
    stack = np.stack([arrays[0], 1.1 * arrays[0]])
    found = tree_leaves(vmap(lambda x: function(x, *arrays[1:]))(stack))
    for example, leaf in enumerate(tree_leaves(function(stack[1], *arrays[1:]))):
        np.testing.assert_allclose(found[example][1], leaf, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_functions_of_matrices_have_second_derivatives(name):
    function, arrays = PROBLEMS[name]
    gradgradcheck(function, tracked(*arrays))


def test_values_are_scipys():
    theirs, large = SYMMETRIC.to_scipy(), sparse.csr_array(matrix(30, 30))
    np.testing.assert_allclose(linalg.eigsh(SYMMETRIC, 2)[0], scipy.sparse.linalg.eigsh(theirs, 2)[0], rtol=1e-12)
    np.testing.assert_allclose(linalg.svds(SYMMETRIC, 2)[1], scipy.sparse.linalg.svds(theirs, 2)[1], rtol=1e-12)
    for factor in (-9, -0.01, 3):
        np.testing.assert_allclose(linalg.expm_multiply(factor * large, np.ones(30)),
                                   scipy.sparse.linalg.expm_multiply(factor * large.to_scipy(), np.ones(30)), rtol=1e-9)
    for ord in (None, "fro", 1, -1, np.inf, -np.inf):
        np.testing.assert_allclose(linalg.norm(SYMMETRIC, ord), scipy.sparse.linalg.norm(theirs, ord), rtol=1e-14)


@pytest.mark.parametrize("arguments", [
    ([[1.0, 0.0], [2.0, 3.0]],), ((2, 3),), (np.eye(2), None, np.float32), (scipy.sparse.eye_array(3, format="coo"),),
], ids=["a list", "a shape", "a dtype", "another format"])
def test_a_matrix_is_made_as_scipys(arguments):
    found, expected = sparse.csr_array(*arguments), scipy.sparse.csr_array(*arguments)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert (found.toarray() == expected.toarray()).all()


def test_functions_of_a_constant_matrix_are_scipys():
    theirs = SYMMETRIC.to_scipy()
    b = np.arange(1.0, 1.0 + SYMMETRIC.shape[0])
    found, info = linalg.cg(SYMMETRIC, b, maxiter=1)
    expected, expected_info = scipy.sparse.linalg.cg(theirs, b, maxiter=1)
    assert (found == expected).all()
    assert info == expected_info
    assert linalg.norm(SYMMETRIC, axis=0).tolist() == scipy.sparse.linalg.norm(theirs, axis=0).tolist()
    v0 = np.ones(SYMMETRIC.shape[0])
    assert (linalg.eigsh(SYMMETRIC, 2, v0=v0, return_eigenvectors=False)
            == scipy.sparse.linalg.eigsh(theirs, 2, v0=v0, return_eigenvectors=False)).all()
