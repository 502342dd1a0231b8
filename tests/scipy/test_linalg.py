"""Linear algebra: closed forms, stacks, other libraries, and errors in eager and under every transform."""

import numpy as np
import pytest
import scipy.linalg

import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.func import grad, jvp, vmap
from pydispatch.scipy import linalg
from pydispatch.testing import gradcheck, gradgradcheck
from tests.scipy.samples.linalg import definite, entries, regular
from tests.together import together

DTYPES = pytest.mark.parametrize("dtype", [float, complex])


def tracked(*arrays):
    return [Tensor(np.array(x), requires_grad=True) for x in arrays]


# --- symmetric matrices ----------------------------------------------------------------------------------------------


def hermitian(x):
    return ops.np.add(ops.np.multiply(0.1, ops.np.add(x, ops.np.conjugate(x.mT))), 4 * np.eye(x.shape[-1]))


FACTORS = {
    "cholesky": lambda x, lower: linalg.cholesky(hermitian(x), lower),
    "cho_factor": lambda x, lower: ops.np.multiply(
        linalg.cho_factor(hermitian(x), lower)[0], np.tri(3) if lower else np.tri(3).T),
    "cho_solve": lambda x, lower: linalg.cho_solve(linalg.cho_factor(hermitian(x), lower), entries(3, 2)),
}


@DTYPES
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_symmetric_matrices_have_derivatives_of_every_order(name, lower, dtype):
    def function(x):
        return FACTORS[name](x, lower)

    arguments = tracked(entries(3, 3, dtype=dtype))
    gradcheck(function, arguments, check_forward_ad=True)
    gradgradcheck(function, arguments)


def test_the_gradient_of_a_factor_is_symmetric():
    x, = tracked(definite(3))
    pnp.sum(linalg.cho_factor(x)[0] ** 2).backward()
    np.testing.assert_allclose(x.grad.numpy(), x.grad.numpy().T)


def test_the_other_triangle_is_scipys():
    a = definite(3)
    for lower in (True, False):
        np.testing.assert_array_equal(linalg.cho_factor(Tensor(a), lower)[0].numpy(),
                                      scipy.linalg.cho_factor(a, lower)[0])


def test_gradient_of_a_gaussian_likelihood():
    # d/dK of (y' inv(K) y + log det K) is inv(K) - inv(K) y y' inv(K).
    y, k = entries(4), definite(4)

    def likelihood(k):
        c, lower = linalg.cho_factor(k, lower=True)
        logdet = ops.np.sum(ops.np.log(pnp.diagonal(c)))
        return ops.np.add(pnp.vecdot(y, linalg.cho_solve((c, lower), y)), ops.np.multiply(2.0, logdet))

    inverse = np.linalg.inv(k)
    np.testing.assert_allclose(grad(likelihood)(k), inverse - np.outer(inverse @ y, inverse @ y), rtol=1e-10)


# --- functions of matrices -------------------------------------------------------------------------------------------


def test_exponential_of_a_rotation():
    def at(angle):
        return linalg.expm(ops.np.multiply(angle, np.array([[0.0, -1.0], [1.0, 0.0]])))

    found, tangent = jvp(at, (np.array(0.3),), (np.array(1.0),))
    np.testing.assert_allclose(found, [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]])
    np.testing.assert_allclose(tangent, [[-np.sin(0.3), -np.cos(0.3)], [np.cos(0.3), -np.sin(0.3)]], atol=1e-14)


@DTYPES
def test_tangents_are_the_frechet_derivative_of_scipy(dtype):
    a, e = entries(4, 4, dtype=dtype), regular(4, 4, dtype=dtype)
    _, tangent = jvp(linalg.expm, (a,), (e,))
    np.testing.assert_allclose(tangent, scipy.linalg.expm_frechet(a, e, compute_expm=False), rtol=1e-10)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e12])
def test_tangents_are_as_precise_for_every_size(size):
    a, e = entries(4, 4), regular(4, 4)
    _, tangent = jvp(linalg.expm, (a,), (size * e,))
    expected = scipy.linalg.expm_frechet(a, e, compute_expm=False)
    np.testing.assert_allclose(tangent, size * expected, rtol=1e-11, atol=1e-12 * size)


INVERSES = {
    "logm-of-expm": (lambda x: linalg.logm(linalg.expm(x)), 0.2 * entries(3, 3)),
    "expm-of-logm": (lambda x: linalg.expm(linalg.logm(x)), definite(3)),
    "square-of-sqrtm": (lambda x: (lambda y: ops.np.matmul(y, y))(linalg.sqrtm(x)), definite(3)),
}


@pytest.mark.parametrize("name", INVERSES)
def test_inverse_functions_have_inverse_derivatives(name):
    function, x = INVERSES[name]
    t = entries(3, 3)
    found, tangent = jvp(function, (x,), (t,))
    np.testing.assert_allclose(found, x, atol=1e-12)
    np.testing.assert_allclose(tangent, t, atol=1e-11)
    np.testing.assert_allclose(grad(lambda x: ops.np.sum(ops.np.multiply(function(x), t)))(x), t, atol=1e-11)


def test_a_real_matrix_with_a_complex_root_has_a_real_gradient():
    a = np.array([[-2.0, 0.3], [0.1, -3.0]])
    gradcheck(lambda x: linalg.sqrtm(x), tracked(a), check_forward_ad=True)
    gradcheck(lambda x: linalg.logm(x), tracked(a), check_forward_ad=True)


def test_second_derivative_of_an_exponential_is_that_of_its_series():
    a, e = 0.1 * entries(3, 3), regular(3, 3)

    def along(s):
        return linalg.expm(ops.np.add(a, ops.np.multiply(s, e)))

    _, second = jvp(lambda s: jvp(along, (s,), (np.array(1.0),))[1], (np.array(0.0),), (np.array(1.0),))
    h = 1e-4
    differences = [scipy.linalg.expm(a + s * e) for s in (-h, 0, h)]
    np.testing.assert_allclose(second, (differences[0] - 2 * differences[1] + differences[2]) / h ** 2, rtol=1e-4)


# --- stacks ----------------------------------------------------------------------------------------------------------

STACKED = {
    "solve_triangular": lambda a, b: linalg.solve_triangular(a, b, lower=True),
    "vectors": lambda a, b: linalg.solve_triangular(a, b[..., 0], trans="T") if b.ndim == 2 else
    linalg.solve_triangular(a, b[..., :1], trans="T")[..., 0],
    "cho_solve": lambda a, b: linalg.cho_solve(linalg.cho_factor(ops.np.matmul(a, a.mT)), b),
    "lu_solve": lambda a, b: linalg.lu_solve(linalg.lu_factor(a), b, 1),
    "expm": lambda a, b: ops.np.matmul(linalg.expm(a), b),
    "logm": lambda a, b: ops.np.matmul(linalg.logm(ops.np.matmul(a, a.mT)), b),
    "sqrtm": lambda a, b: ops.np.matmul(linalg.sqrtm(ops.np.matmul(a, a.mT)), b),
    "solve_sylvester": lambda a, b: linalg.solve_sylvester(a, np.eye(2), b),
}


@pytest.mark.parametrize("name", STACKED)
def test_gradients_of_a_stack_are_those_of_its_matrices(name):
    a, b = regular(4, 3, 3).reshape(2, 2, 3, 3), entries(2, 2, 3, 2)

    def loss(a, b):
        found = STACKED[name](a, b)
        return ops.np.sum(ops.np.multiply(found, found))

    arguments = tracked(a, b)
    loss(*arguments).backward()
    each = grad(loss, (0, 1))
    batched = vmap(vmap(each))(a, b)
    for i in np.ndindex(2, 2):
        for stacked, from_vmap, expected in zip(arguments, batched, each(a[i], b[i]), strict=True):
            np.testing.assert_allclose(stacked.grad.numpy()[i], expected, rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(from_vmap[i], expected, rtol=1e-9, atol=1e-11)


def test_one_triangle_serves_a_batch_of_right_hand_sides():
    a, b = regular(3, 3), entries(5, 3)
    found = vmap(lambda b: linalg.solve_triangular(a, b))(b)
    np.testing.assert_allclose(found, [scipy.linalg.solve_triangular(a, each) for each in b])


def test_toeplitz_and_block_diag_gather_gradients():
    assert grad(lambda c: ops.np.sum(linalg.toeplitz(c)))(np.ones(3)).tolist() == [3.0, 4.0, 2.0]
    weights = np.arange(9.0).reshape(3, 3)
    found = grad(lambda x: ops.np.sum(ops.np.multiply(linalg.block_diag(x, np.ones((1, 1))), weights)))(np.ones((2, 2)))
    assert found.tolist() == [[0.0, 1.0], [3.0, 4.0]]


# --- other libraries -------------------------------------------------------------------------------------------------


def test_gradients_are_those_of_torch():
    torch = pytest.importorskip("torch")
    a, b = regular(4, 4), entries(4, 2)
    x, y = [torch.from_numpy(value.copy()).requires_grad_() for value in (a, b)]
    (torch.linalg.solve_triangular(torch.linalg.matrix_exp(x), y, upper=True) ** 2).sum().backward()
    found = grad(lambda a, b: ops.np.sum(ops.np.square(linalg.solve_triangular(linalg.expm(a), b))), (0, 1))(a, b)
    np.testing.assert_allclose(found[0], x.grad.numpy(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found[1], y.grad.numpy(), rtol=1e-8, atol=1e-8)


def test_gradients_are_those_of_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    a, b = regular(4, 4), entries(4)
    theirs = jax.grad(lambda a, b: (jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(a), b) ** 2).sum(), (0, 1))
    ours = grad(lambda a, b: ops.np.sum(ops.np.square(linalg.lu_solve(linalg.lu_factor(a), b))), (0, 1))
    for found, expected in zip(ours(a, b), theirs(a, b), strict=True):
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-9, atol=1e-11)


# --- errors ----------------------------------------------------------------------------------------------------------

GOOD = np.eye(2)
SINGULAR, INDEFINITE, NAN, WIDE = np.diag([1.0, 0.0]), np.diag([1.0, -1.0]), np.full((2, 2), np.nan), np.ones((2, 3))
ERRORS = {
    "singular": (lambda a: linalg.solve_triangular(a, np.ones(2)), SINGULAR, np.linalg.LinAlgError,
                 "solve_triangular: singular matrix: resolution failed at diagonal 1"),
    "cholesky-indefinite": (linalg.cholesky, INDEFINITE, np.linalg.LinAlgError,
                            "cholesky: 2-th leading minor of the array is not positive definite"),
    "cho_factor-indefinite": (lambda a: linalg.cho_factor(a)[0], INDEFINITE, np.linalg.LinAlgError,
                              "cho_factor: 2-th leading minor of the array is not positive definite"),
    "solve_triangular-nan": (lambda a: linalg.solve_triangular(a, np.ones(2)), NAN, ValueError,
                             "solve_triangular: array must not contain infs or NaNs"),
    "cho_factor-nan": (lambda a: linalg.cho_factor(a)[0], NAN, ValueError, "cho_factor: array must not contain"),
    "inv-singular": (linalg.inv, SINGULAR, np.linalg.LinAlgError, "inv: Singular matrix"),
    "solve-singular": (lambda a: linalg.solve(a, np.ones(2)), SINGULAR, np.linalg.LinAlgError,
                       "solve: Singular matrix"),
    "solve-indefinite": (lambda a: linalg.solve(a, np.ones(2), assume_a="pos"), INDEFINITE, np.linalg.LinAlgError,
                         "cho_factor: 2-th leading minor"),
    "inv-nan": (linalg.inv, NAN, ValueError, "inv: array must not contain"),
    "det-nan": (linalg.det, NAN, ValueError, "det: array must not contain"),
    "solve-nan": (lambda a: linalg.solve(a, np.ones(2)), NAN, ValueError, "solve: array must not contain"),
    "logm-nan": (linalg.logm, NAN, ValueError, "logm: array must not contain"),
    "lu_factor-nan": (lambda a: linalg.lu_factor(a)[0], NAN, ValueError, "lu_factor: array must not contain"),
}
SHAPES = {
    "solve_triangular": lambda a: linalg.solve_triangular(a, np.ones(2)),
    "right-hand side": lambda a: linalg.solve_triangular(np.eye(4), a),
    "cho_factor": lambda a: linalg.cho_factor(a)[0],
    "cho_solve": lambda a: linalg.cho_solve((a, True), np.ones(2)),
    "lu_solve": lambda a: linalg.lu_solve((np.eye(4), np.arange(4)), a),
    "expm": linalg.expm,
    "sqrtm": linalg.sqrtm,
    "logm": linalg.logm,
    "solve_sylvester": lambda a: linalg.solve_sylvester(a, np.eye(2), np.eye(2)),
    "inv": linalg.inv,
    "det": linalg.det,
    "solve": lambda a: linalg.solve(a, np.ones(2)),
}


def total(function):
    return lambda a: ops.np.sum(ops.np.real(function(a)))


WAYS = {
    "eager": lambda function: lambda a: function(Tensor(a)),
    "tracked": lambda function: lambda a: function(Tensor(a, requires_grad=True)),
    "grad": lambda function: grad(total(function)),
    "jvp": lambda function: lambda a: jvp(function, (a,), (np.ones_like(a),)),
    "vmap": lambda function: lambda a: vmap(function)(np.stack([np.eye(*a.shape), np.eye(*a.shape), a])),
    "vmap-of-grad": lambda function: lambda a: vmap(grad(total(function)))(np.stack([np.eye(*a.shape)] * 2 + [a])),
}


@pytest.mark.parametrize("name", ERRORS)
@together("way", WAYS)
def test_bad_values_are_named(name, way):
    function, bad, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message) as caught:
        WAYS[way](function)(bad)
    if "vmap" in way:
        assert caught.value.__notes__ == ["in example 2 of a batch of 3"]


@pytest.mark.parametrize("name", SHAPES)
@together("way", WAYS)
def test_wrong_shapes_are_named(name, way):
    operator = "solve_triangular" if name == "right-hand side" else name
    with pytest.raises(ValueError, match=rf"^linalg.{operator}: "):
        WAYS[way](SHAPES[name])(WIDE)


@pytest.mark.parametrize("name", ["expm", "sqrtm"])
def test_wrong_shapes_raise_scipys_class(name):
    with pytest.raises(np.linalg.LinAlgError, match=rf"^linalg.{name}: "):
        getattr(linalg, name)(Tensor(WIDE))


@pytest.mark.parametrize(("name", "call"), [
    ("lu_solve", lambda b: linalg.lu_solve((Tensor(NAN), np.arange(2)), b)),
    ("cho_solve", lambda b: linalg.cho_solve((Tensor(NAN), True), b)),
], ids=["lu_solve", "cho_solve"])
def test_solutions_from_factors_name_themselves(name, call):
    with pytest.raises(ValueError, match=rf"^linalg.{name}: "):
        call(np.ones(2))


@pytest.mark.parametrize("trans", [0, 1])
def test_stacks_of_factors_and_of_sides(trans):
    matrices, sides = np.stack([regular(3, 3), regular(3, 3)[::-1]])[:, None], entries(2, 3, 3, 2)
    lu, pivots = linalg.lu_factor(Tensor(matrices))
    transposed = np.swapaxes(matrices, -1, -2) if trans else matrices
    for side in (sides, sides[0, 0]):
        found = linalg.lu_solve((lu, pivots), side, trans).numpy()
        np.testing.assert_allclose(found, np.linalg.solve(transposed, side), rtol=1e-9, atol=1e-12)
    expected = np.linalg.solve(transposed, sides[0, 0, :, :1])[..., 0]
    np.testing.assert_allclose(linalg.lu_solve((lu, pivots), sides[0, 0, :, 0], trans).numpy(), expected, rtol=1e-9)


def test_a_stack_of_factors_of_cholesky_and_a_vector():
    matrices, side = np.stack([definite(3), 2 * definite(3)]), entries(3)
    found = linalg.cho_solve(linalg.cho_factor(Tensor(matrices)), side)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(matrices, side[:, None])[..., 0], rtol=1e-9)


def test_a_stack_names_the_matrix():
    stack = np.stack([GOOD, GOOD, SINGULAR]).reshape(1, 3, 2, 2)
    with pytest.raises(np.linalg.LinAlgError, match=r"matrix \(0, 2\) of the stack"):
        linalg.solve_triangular(Tensor(stack), np.ones(2))
    for function in (linalg.cholesky, linalg.inv, lambda a: linalg.solve(a, np.ones(2))):
        with pytest.raises(np.linalg.LinAlgError, match=r"matrix \(0, 2\) of the stack"):
            function(Tensor(stack))


def test_a_singular_factor_warns_as_scipys():
    with pytest.warns(scipy.linalg.LinAlgWarning, match="lu_factor: Diagonal number 2 is exactly zero"):
        linalg.lu_factor(Tensor(SINGULAR))


def test_large_values_are_finite():
    found = linalg.solve_triangular(Tensor(1e200 * np.eye(2)), np.ones(2))
    np.testing.assert_allclose(found.numpy(), 1e-200)


@pytest.mark.parametrize("structure", ["pos", "upper triangular", "lower triangular", "sym", None])
@pytest.mark.parametrize("transposed", [False, True])
def test_solutions_by_the_structure_of_the_matrix(structure, transposed):
    a = np.diag([1.0, 2.0, 3.0]) if structure else regular(3, 3)
    b = entries(3, 2)
    found = linalg.solve(Tensor(a), b, assume_a=structure, transposed=transposed)
    np.testing.assert_allclose(found.numpy(), np.linalg.solve(a.T if transposed else a, b))
    with pytest.raises(ValueError, match="solve: round is not a recognized matrix structure"):
        linalg.solve(Tensor(a), b, assume_a="round")


def test_values_that_are_not_finite_pass_on_request():
    assert np.isnan(linalg.solve_triangular(Tensor(NAN), np.ones(2), check_finite=False).numpy()).all()


@pytest.mark.parametrize("name", STACKED)
def test_an_empty_batch(name):
    found = vmap(grad(lambda a, b: ops.np.sum(STACKED[name](a, b)), (0, 1)))(np.zeros((0, 3, 3)), np.zeros((0, 3, 2)))
    assert [x.shape for x in found] == [(0, 3, 3), (0, 3, 2)]


@pytest.mark.parametrize("shape", [(0, 0), (0, 3, 3)])
def test_empty_arrays(shape):
    a = Tensor(np.zeros(shape))
    for found in (linalg.cholesky(a), linalg.lu_factor(a)[0], linalg.expm(a), linalg.sqrtm(a), linalg.logm(a),
                  linalg.solve_triangular(a, np.zeros(shape))):
        assert found.shape == shape


# --- banded matrices -------------------------------------------------------------------------------------------------


def dense(ab, lower):
    """Return the matrix with these diagonals."""
    upper, n = len(ab) - 1 - lower, ab.shape[-1]
    return np.array([[ab[upper + i - j, j] if -upper <= i - j <= lower else 0 for j in range(n)] for i in range(n)])


@DTYPES
@pytest.mark.parametrize("sizes", [(1, 1), (2, 0), (0, 1)])
def test_banded_systems_are_those_of_the_full_matrix(sizes, dtype):
    ab, b = entries(sum(sizes) + 1, 4, dtype=dtype), entries(4, 2, dtype=dtype)
    ab[sizes[1]] += 4
    found = linalg.solve_banded(sizes, Tensor(ab), b).numpy()
    np.testing.assert_allclose(found, np.linalg.solve(dense(ab, sizes[0]), b))
    arguments = tracked(ab, b)
    gradcheck(lambda ab, b: linalg.solve_banded(sizes, ab, b), arguments, check_forward_ad=True)
    gradgradcheck(lambda ab, b: linalg.solve_banded(sizes, ab, b), arguments)


@DTYPES
@pytest.mark.parametrize("lower", [True, False])
def test_hermitian_bands_are_given_by_half(lower, dtype):
    ab, b = 0.5 * entries(3, 4, dtype=dtype), entries(4, dtype=dtype)
    ab[0 if lower else 2] = 6
    np.testing.assert_allclose(linalg.solveh_banded(Tensor(ab), b, lower=lower).numpy(),
                               scipy.linalg.solveh_banded(ab, b, lower=lower))
    gradcheck(lambda ab, b: linalg.solveh_banded(ab, b, lower=lower), tracked(ab, b), check_forward_ad=True)
    factor = dense(linalg.cholesky_banded(Tensor(ab), lower=lower).numpy(), 2 if lower else 0)
    matrix = dense(scipy.linalg.cholesky_banded(ab, lower=lower), 2 if lower else 0)
    np.testing.assert_allclose(factor, matrix)
    gradcheck(lambda ab: linalg.cholesky_banded(ab, lower=lower), tracked(ab.real), check_forward_ad=True)


def test_a_wrong_number_of_diagonals_is_named():
    with pytest.raises(ValueError, match="has 3 diagonals, expected 4"):
        linalg.solve_banded((1, 2), Tensor(np.ones((3, 4))), np.ones(4))


# --- what has no derivative ------------------------------------------------------------------------------------------

UNCLEAR = {
    "equal eigenvalues": (lambda a: linalg.schur(a)[0], np.eye(3), r"linalg\.schur: Singular matrix\n"),
    "dependent eigenvectors": (lambda a: linalg.funm(a, np.exp), np.array([[1.0, 1], [0, 1]]),
                               r"linalg\.funm: the matrix has no independent eigenvectors"),
    "complex": (lambda a: linalg.hessenberg(a * 1j), np.eye(3), r"linalg\.hessenberg: found a Tensor of dtype complex"),
    "a stack": (lambda a: linalg.ldl(a)[0], np.stack([np.eye(3)] * 2), "matrix|square|use vmap"),
}


@together("what", UNCLEAR)
def test_results_without_derivatives_are_refused(what):
    function, a, message = UNCLEAR[what]
    with pytest.raises((scipy.linalg.LinAlgError, NotImplementedError, ValueError), match=message):
        grad(lambda a: ops.np.sum(function(a)))(a)
