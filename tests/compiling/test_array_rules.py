"""Loops over rows and matrices in plans: the bits and the errors of NumPy, without calls of Python."""

import pickle

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from pydispatch import compile, func, ops
from pydispatch import numpy as pnp
from pydispatch.higher_order import cond, scan
from tests.compiling.same import check_same

NP = ops.np
RNG = np.random.default_rng(0)


def drawn(*shape, dtype=float):
    values = RNG.standard_normal(shape)
    return (values + 1j * RNG.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else (
        values * 9).astype(dtype)


def check_loops(function, *arrays):
    """Check the bits, and that the plan calls no Python."""
    compiled = compile(function)
    with np.errstate(all="ignore"):
        check_same(compiled(*arrays), function(*arrays))
    report = compiled.explain(*arrays)
    assert ", 0 calls of Python, " in report, report


OF_MATRICES = {
    "inv": NP.linalg_inv, "det": NP.linalg_det, "slogdet": NP.linalg_slogdet, "eigvalsh": NP.linalg_eigvalsh,
    "eigh": NP.linalg_eigh, "svd": NP.linalg_svd, "svd of some vectors": lambda a: NP.linalg_svd(a, False),
    "svdvals": NP.linalg_svdvals, "cholesky": lambda a: NP.linalg_cholesky(a @ a.mT.conj() + np.eye(a.shape[-1])),
    "solve": lambda a: NP.linalg_solve(a, a[..., :2]),
    "solve a vector": lambda a: NP.linalg_solve(a, a[(0,) * (a.ndim - 1)]),
    "stacks": lambda a: NP.linalg_solve(a, a[(0,) * (a.ndim - 2)][:, :2]),
}
HAS_LOOPS = hasattr(_umath_linalg, "svd_f")     # NumPy 2.0 names its loops otherwise, so plans call it from Python
if not HAS_LOOPS:
    OF_MATRICES = {name: function for name, function in OF_MATRICES.items() if not name.startswith("svd")}


@pytest.mark.parametrize("dtype", "fdFDi")
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3, 3), (1, 1)])
@pytest.mark.parametrize("name", OF_MATRICES)
def test_matrices(name, shape, dtype):
    a = drawn(*shape, dtype=dtype)
    if dtype == "i":
        a = a + 30 * np.eye(shape[-1], dtype=int)
    check_loops(OF_MATRICES[name], a)
    check_loops(lambda a: OF_MATRICES[name](a.mT[..., ::-1]), a)


@pytest.mark.parametrize("shape", [(2, 2), (5, 2, 2), (3, 3), (4, 2, 3, 3)])
def test_cofactors(shape):
    check_loops(NP.linalg_cofactor, drawn(*shape))


@pytest.mark.parametrize(("function", "message"), [
    (NP.linalg_inv, "Singular matrix"), (lambda a: NP.linalg_solve(a, a), "Singular matrix"),
    (lambda a: NP.linalg_solve_with(a, a, lower=True), "Singular matrix"),
    (lambda a: NP.linalg_cholesky(a - np.eye(a.shape[-1])), "Matrix is not positive definite"),
    (lambda a: NP.linalg_svdvals(a * np.nan), "SVD did not converge"),
    (lambda a: NP.linalg_eigvalsh(a * np.nan), "Eigenvalues did not converge"),
])
@pytest.mark.parametrize("n", [3, 70])
def test_errors_of_matrices(function, message, n):
    a = np.zeros((n, n))
    messages = []
    for each in (function, compile(function)):
        try:
            each(a)
        except np.linalg.LinAlgError as error:
            messages.append(str(error))
    assert len(messages) in (0, 2)
    assert set(messages) <= {message}
    if "converge" not in message:
        assert messages
    check_same(compile(lambda a: NP.linalg_inv(a) + 1.0)(np.eye(n)), np.linalg.inv(np.eye(n)) + 1.0)    # no flag stays


def test_earlier_invalid_operations_are_no_singular_matrix():
    compiled = compile(lambda a, b: (NP.sqrt(b), NP.linalg_inv(a)))
    with np.errstate(invalid="ignore"):
        check_same(compiled(np.eye(2), np.array([-1.0])), (np.array([np.nan]), np.eye(2)))


def test_a_branch_that_is_not_taken_inverts_nothing():
    function = compile(lambda a: cond(NP.linalg_det(a) != 0.0, NP.linalg_inv, lambda a: a * 2.0, (a,)))
    check_same(function(np.zeros((2, 2))), np.zeros((2, 2)))


def count(text, name):
    return len([line for line in text.splitlines() if f" = {name}(" in line])


@pytest.mark.parametrize("n", [20, 70])
@pytest.mark.parametrize("columns", [(), (1,), (3,)])
@pytest.mark.parametrize(("transposed", "lower"), [(False, False), (True, False), (False, True), (True, True)])
def test_solutions(n, columns, transposed, lower):
    a, b = drawn(n, n) + 50 * np.eye(n), drawn(n, *columns)
    check_loops(lambda a, b: NP.linalg_solve_with(a, b, transposed=transposed, lower=lower), a, b)
    check_loops(lambda a, b: NP.linalg_solve_with(a.T, b[::-1], transposed=transposed, lower=lower), a, b)


def test_solutions_and_gradients_share_factors():
    a, b = drawn(70, 70) + 50 * np.eye(70), drawn(70)
    compiled = compile(func.value_and_grad(lambda a: pnp.linalg.solve(a, b) @ pnp.linalg.solve(a, b * 2.0)))
    text = compiled.plan(a)
    assert len([line for line in text.splitlines() if line.count("70,70") == 2 and "solve(" in line]) == 1, text
    function = func.value_and_grad(lambda a: pnp.linalg.solve(a, b) @ pnp.linalg.solve(a, b * 2.0))
    check_same(compiled(a), function(a))
    known = compile(lambda b: NP.linalg_solve(a, b))
    check_same(known(b), np.linalg.solve(a, b))
    assert "70,70" not in known.plan(b).split("solve(")[0]


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize(("shape", "axis"), [
    ((1,), 0), ((8,), -1), ((9,), 0), ((5, 12), 0), ((16, 7), 1), ((2, 33, 3), 1)])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms(name, shape, axis, norm):
    transform = getattr(NP, f"fft_{name}")
    for dtype in "d" if name == "rfft" else "dD":
        x = drawn(*shape, dtype=dtype)
        for n in (None, shape[axis] + 3, max(shape[axis] - 1, 1)):
            if name != "irfft" or (n != 1 and x.shape[axis] > 1):
                check_loops(lambda x, n=n: transform(x, n, axis, norm), x)


@pytest.mark.parametrize("dtype", "?bHiqfdFD")
@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_sorts(name, dtype):
    x = drawn(4, 30, 3, dtype=dtype)
    if dtype in "fdFD":
        x[0, 3:6] = np.nan
    for axis in (0, 1, -1, None):
        for options in ({}, {"stable": True}, {"kind": "stable"}):
            check_loops(lambda x, a=axis, o=options: getattr(NP, name)(x, a, **o), x)
            check_loops(lambda x, a=axis, o=options: getattr(NP, name)(x.T[::2], a, **o), x)


@pytest.mark.parametrize("dtype", "fdqi")
@pytest.mark.parametrize("side", ["left", "right"])
def test_searches(dtype, side):
    a, v = drawn(50, dtype=dtype), drawn(7, 9, dtype=dtype)
    if dtype in "fd":
        a[3] = v[2, 3] = v[4] = np.nan
    for given in (np.sort(a), a, a[:1]):        # also in an array that is not sorted
        check_loops(lambda a, v: NP.searchsorted(a, v, side), given, v.T)
    check_loops(lambda a, v: (NP.searchsorted(a, v[0, 0], side), NP.searchsorted(a, a[::-1], side)), np.sort(a), v)


SAMPLES = {
    "sorted": np.sort(drawn(40)), "few": np.sort(drawn(3)), "one": drawn(1), "not sorted": drawn(40),
    "twice": np.repeat(np.sort(drawn(20)), 2), "endless": np.array([-np.inf, 0.0, 1.0, 2.0, np.inf]),
    "whole numbers": np.arange(12),
}


@pytest.mark.parametrize("ends", [{}, {"left": -1.0, "right": 2}])
@pytest.mark.parametrize("name", SAMPLES)
def test_interpolation(name, ends):
    xp = SAMPLES[name]
    fp = drawn(len(xp))
    fp[len(xp) // 2:len(xp) // 2 + 2] = np.inf
    x = np.concatenate([drawn(60), xp, [np.nan, np.inf, -np.inf]])
    for values in (x, np.sort(x), x[:100:2].reshape(2, -1).T if len(x) > 100 else x[::-1], x[0]):
        check_loops(lambda x, xp, fp: NP.interp(x, xp, fp, **ends), values, xp, fp)
    check_loops(lambda x, xp: NP.interval(x, xp), x, xp)


@pytest.mark.parametrize("call", [
    ("ij,jk->ik", (30, 20), (20, 25)), ("bij,bjk->ibk", (4, 30, 20), (4, 20, 25)),
    ("ij,kj,kl->li", (30, 20), (25, 20), (25, 30)),
    ("ijk,ljk->il", (12, 9, 8), (10, 9, 8)),
])
@pytest.mark.parametrize("dtype", "fD")
def test_sums_of_products(call, dtype):
    subscripts, *shapes = call
    operands = [drawn(*shape, dtype=dtype) for shape in shapes]
    check_loops(lambda *xs: NP.einsum(subscripts, *xs[:2], *([xs[2:]] if xs[2:] else [])), *operands)
    np.testing.assert_allclose(pnp.einsum(subscripts, *operands), np.einsum(subscripts, *operands, optimize=True),
                               rtol=1e-3, atol=1e-3)


def test_rows_of_one_element_are_sorted():
    x = drawn(4, 5, 6)
    for part in (x[..., :1], x[:1].T, x[:, :1].swapaxes(1, 2)):
        check_loops(lambda a: (NP.argsort(a), NP.sort(a)), part)


def test_plans_in_loops():
    """Compile steps of matrices, searches and transforms inside a scan, with a gradient."""
    table = np.linspace(0.0, 3.0, 9)

    def function(x, a):
        def step(c, _):
            c = pnp.linalg.solve(a, c) + pnp.interp(c, table, table ** 2) + pnp.fft.ifft(pnp.fft.fft(c)).real
            return pnp.sort(c) / 4.0, c.sum()

        return scan(step, x, None, length=5)[1].sum()

    x, a = drawn(4), drawn(4, 4) + 20 * np.eye(4)
    check_same(compile(function)(x, a), function(x, a))
    transformed = func.grad(function, (0, 1))
    compiled = compile(transformed)
    for one, other in zip(compiled(x, a), transformed(x, a), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert not HAS_LOOPS or ", 0 calls of Python, " in compiled.explain(x, a)


@pytest.mark.skipif(not HAS_LOOPS, reason="pickles of NumPy 2.0 name another function")
def test_plans_are_pickled():
    compiled = compile(lambda a: (NP.linalg_inv(a), NP.sort(a), NP.fft_rfft(a)))
    a = drawn(4, 4)
    expected = compiled(a)
    variant, = compiled.variants
    check_same(tuple(pickle.loads(pickle.dumps(variant.plan)).run(a)), expected)


WEIGHTS = {
    "any": drawn(3, 5), "along rows": drawn(1, 7), "along columns": drawn(4, 1),
    "symmetric": np.array([[1.0, 3.0, 1.0]]),
    "antisymmetric": np.array([[1.0], [2.0], [0.0], [-2.0], [-1.0]]), "even": drawn(2, 4), "one": drawn(1, 1),
    "tiny": np.array([[1.0, 1e-17, 0.0], [2.0, np.nan, 1.0]]),
}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("mode", ["reflect", "constant", "nearest", "mirror", "wrap"])
def test_filters(name, mode):
    ndimage = pytest.importorskip("pydispatch.scipy.ndimage")
    convolve = ndimage.CONVOLVE
    weights = WEIGHTS[name]
    for columns in (7, 16, 37):
        image = drawn(9, columns)
        image[3, 4], image[5, 6] = np.inf, 1e20
        check_loops(lambda x, w: convolve(x, w, mode, 2.0), image, weights)
        check_loops(lambda x, w: convolve(x.T, w.T[::-1], mode, 0.0, [(m - 1) // 2 for m in w.T.shape]), image, weights)
        check_loops(lambda x, w: convolve(x, w, mode, batch_ndim=1), np.stack([image, image[::-1]]), weights[None])
        check_loops(lambda x, g: ndimage.WEIGH(x, g, weights.shape, mode, 2.0), image, drawn(9, columns))
        check_loops(lambda g, w: ndimage.TRANSPOSED(g, w, mode), image, weights)
        check_loops(lambda g, w: ndimage.TRANSPOSED(g, w.T, mode, [-((m - 1) // 2) for m in w.T.shape]), image, weights)
