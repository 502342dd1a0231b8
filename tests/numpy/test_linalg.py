"""`numpy.linalg` where samples do not reach: symmetric matrices, factors of vectors, singular matrices, residuals."""

import functools
import subprocess
import sys
from itertools import product

import numpy as np
import pytest
import scipy.linalg

import pydispatch.numpy as pnp
import pydispatch.scipy.linalg as pscipy
from pydispatch import Tensor, compile, ops
from pydispatch.autograd import grad, saved_tensors_hooks
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AutogradError, DispatchTypeError, NoDerivativeError
from pydispatch.func import grad as func_grad
from pydispatch.func import hessian, jacfwd, jacrev, jvp, vmap
from pydispatch.operators import lapack
from pydispatch.testing import gradcheck, gradgradcheck
from tests.numpy.samples.linalg import regular
from tests.together import together

DTYPES = [pytest.param(float, id="real"), pytest.param(complex, id="complex")]


def adjoint(x):
    return pnp.conj(x).mT


def hermitian(x):
    return x + adjoint(x)


def positive(x):
    return x @ adjoint(x) + np.eye(x.shape[-1])


def same_up_to_factors(vectors):
    """Return values that do not change when vectors are multiplied by numbers of length 1."""
    return pnp.abs(vectors), vectors @ adjoint(vectors)


SMOOTH = {
    "cholesky": lambda x: pnp.linalg.cholesky(positive(x)),
    "cholesky-upper": lambda x: pnp.linalg.cholesky(positive(x), upper=True),
    "eigh": lambda x: pnp.linalg.eigh(hermitian(x))[0],
    "eigh-vectors": lambda x: same_up_to_factors(pnp.linalg.eigh(hermitian(x))[1][..., :2]),
    "eigh-upper": lambda x: pnp.linalg.eigh(hermitian(x), "U")[0],
    "eigvalsh": lambda x: pnp.linalg.eigvalsh(hermitian(x)),
    "eig": lambda x: (pnp.linalg.eig(x)[0], *same_up_to_factors(pnp.linalg.eig(x)[1][..., :2])),
    "svd": lambda x: [pnp.abs(y) for y in pnp.linalg.svd(x, full_matrices=False)],
    "svd-hermitian": lambda x: pnp.linalg.svd(hermitian(x), hermitian=True)[1],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3)], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_of_what_is_determined(name, shape, dtype):
    x = Tensor(regular(*shape, dtype=dtype), requires_grad=True)
    gradcheck(SMOOTH[name], (x,), check_forward_ad=True)
    if shape == (3, 3):
        gradgradcheck(SMOOTH[name], (x,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SMOOTH)
def test_vmap_is_a_loop(name, dtype):
    batch = regular(4, 3, 3, dtype=dtype)
    found = vmap(SMOOTH[name])(batch)
    expected = [SMOOTH[name](x) for x in batch]
    for i, part in enumerate(found if isinstance(found, (tuple, list)) else [found]):
        loop = [each[i] if isinstance(found, (tuple, list)) else each for each in expected]
        np.testing.assert_allclose(part, np.stack([np.asarray(x) for x in loop]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cholesky", "eigh", "eigvalsh"])
def test_the_gradient_by_a_symmetric_matrix_is_symmetric(name, dtype):
    a = np.asarray(positive(regular(3, 3, dtype=dtype)))
    x = Tensor(a, requires_grad=True)
    result = getattr(pnp.linalg, name)(x)
    result = result[0] if isinstance(result, tuple) else result
    gradient, = grad(pnp.sum(pnp.real(result) ** 3), x)
    np.testing.assert_allclose(gradient.numpy(), gradient.numpy().conj().T)


# --- batches of vectors are no matrices ------------------------------------------------------------------------------


SOLVES = {
    "matrices and vectors": (regular(4, 3, 3), np.ones((4, 3)), (0, 0)),
    "one matrix, vectors": (regular(3, 3), np.arange(12.0).reshape(4, 3), (None, 0)),
    "matrices, one vector": (regular(4, 3, 3), np.arange(3.0), (0, None)),
    "matrices and matrices": (regular(4, 3, 3), np.arange(24.0).reshape(4, 3, 2), (0, 0)),
    "stacks and vectors": (regular(4, 2, 3, 3), np.arange(12.0).reshape(4, 3), (0, 0)),
    "stacks and matrices": (regular(4, 2, 3, 3), np.arange(24.0).reshape(4, 3, 2), (0, 0)),
    "matrices and stacks": (regular(4, 3, 3), np.arange(48.0).reshape(4, 2, 3, 2), (0, 0)),
    "one matrix, matrices": (regular(3, 3), np.arange(24.0).reshape(4, 3, 2), (None, 0)),
}


@pytest.mark.parametrize("name", SOLVES)
def test_solve_in_a_batch_is_a_loop(name):
    a, b, in_dims = SOLVES[name]

    def gradients(a, b):
        return func_grad(lambda a, b: pnp.sum(pnp.linalg.solve(a, b) ** 2), argnums=(0, 1))(a, b)

    for function in (pnp.linalg.solve, lambda a, b: gradients(a, b)[0], lambda a, b: gradients(a, b)[1]):
        found = vmap(function, in_dims=in_dims)(a, b)
        for i in range(4):
            expected = function(a if in_dims[0] is None else a[i], b if in_dims[1] is None else b[i])
            np.testing.assert_allclose(np.asarray(found)[i], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "eigh", "svd", "qr", "pinv", "cholesky"])
def test_a_batch_of_vectors_is_refused_as_a_vector_is(name):
    with pytest.raises(np.linalg.LinAlgError, match="1-dimensional array given"):
        vmap(getattr(pnp.linalg, name))(np.ones((3, 3)))


# --- a cutoff for each matrix ----------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
CUTOFFS = {
    "all different": (RNG.standard_normal((3, 2, 3)), np.array([0.9, 1e-12, 1e-3])),
    "the same for several": (RNG.standard_normal((4, 3, 2)), np.array([1e-3, 0.9, 1e-3, 0.9])),
    "broadcast": (RNG.standard_normal((2, 3, 2, 2)), np.array([[0.9], [1e-3]])),
    "no matrix": (np.zeros((0, 2, 3)), np.zeros(0)),
}


@pytest.mark.parametrize("name", CUTOFFS)
def test_pinv_takes_a_cutoff_for_each_matrix(name):
    a, cutoffs = CUTOFFS[name]
    expected = np.linalg.pinv(a, cutoffs)
    for cutoff in (cutoffs, Tensor(cutoffs)):
        np.testing.assert_allclose(pnp.linalg.pinv(Tensor(a), rtol=cutoff).numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(pnp.linalg.pinv(Tensor(a), cutoff).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(vmap(lambda a: pnp.linalg.pinv(a, cutoffs), in_dims=-1)(np.stack([a, a], -1)),
                               [expected, expected], atol=1e-12)


@pytest.mark.parametrize("name", CUTOFFS)
def test_pinv_with_cutoffs_has_the_gradient_of_each_matrix_alone(name):
    a, cutoffs = CUTOFFS[name]
    found = func_grad(lambda a: pnp.sum(pnp.linalg.pinv(a, cutoffs) ** 2))(a)
    cutoffs = np.broadcast_to(cutoffs, a.shape[:-2])
    for i in np.ndindex(cutoffs.shape):
        expected = func_grad(lambda a, cutoff=float(cutoffs[i]): pnp.sum(pnp.linalg.pinv(a, cutoff) ** 2))(a[i])
        np.testing.assert_allclose(found[i], expected, atol=1e-9)


def test_pinv_with_unknown_cutoffs_is_refused():
    with pytest.raises(DispatchTypeError, match="values are unknown here"):
        vmap(lambda cutoffs: pnp.linalg.pinv(np.ones((2, 3, 3)), cutoffs))(np.ones((4, 2)))


# --- results and residuals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eig", "eigh", "svd", "qr", "slogdet"])
def test_results_have_the_names_of_numpys(name):
    x = np.eye(3) * 2
    found, expected = getattr(pnp.linalg, name)(Tensor(x)), getattr(np.linalg, name)(x)
    assert type(found) is type(expected)
    assert found._fields == expected._fields


def test_one_formula_gives_the_gradients_of_both_arguments():
    a, b = regular(3, 3), np.arange(3.0)
    both = grad(pnp.linalg.solve(x := Tensor(a, requires_grad=True), y := Tensor(b, requires_grad=True)).sum(), (x, y))
    alone = (*grad(pnp.linalg.solve(x := Tensor(a, requires_grad=True), b).sum(), x),
             *grad(pnp.linalg.solve(a, y := Tensor(b, requires_grad=True)).sum(), y))
    for left, right in zip(both, alone, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    solution = np.linalg.solve(a.T, np.ones(3))
    np.testing.assert_allclose(both[1].numpy(), solution)
    np.testing.assert_allclose(both[0].numpy(), -np.outer(solution, np.linalg.solve(a, b)))


def test_residuals_of_several_results_go_through_hooks():
    x = Tensor(np.asarray(hermitian(regular(3, 3))), requires_grad=True)
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.numpy()

    with saved_tensors_hooks(pack, Tensor):
        values, vectors = pnp.linalg.eigh(x)
    assert packed == [(3, 3), (3,), (3, 3)]
    found, = grad((values * vectors[0] ** 2).sum(), x)
    values, vectors = pnp.linalg.eigh(x)
    expected, = grad((values * vectors[0] ** 2).sum(), x)
    np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_a_result_that_was_written_to_is_kept_for_the_gradient():
    x = Tensor(np.asarray(hermitian(regular(3, 3))), requires_grad=True)
    values, vectors = pnp.linalg.eigh(x)
    ops.np.multiply_(vectors.detach(), 2.0)
    values.sum().backward()
    np.testing.assert_allclose(x.grad.array, np.eye(3), atol=1e-12)


def test_residuals_are_released_by_backward():
    x = Tensor(np.asarray(hermitian(regular(3, 3))), requires_grad=True)
    loss = pnp.linalg.eigh(x)[0].sum()
    loss.backward()
    with pytest.raises(AutogradError, match="second time"):
        loss.backward()


# --- where there is no derivative ------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [
    pytest.param(np.ones((2, 2)), id="matrix"),
    pytest.param(np.stack([np.eye(2), np.ones((2, 2))]), id="one_of_a_stack"),
])
def test_the_logarithm_of_a_determinant_of_zero_has_no_gradient(a):
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        func_grad(lambda a: pnp.sum(pnp.linalg.slogdet(a)[1]))(a)


def test_the_determinant_of_a_singular_matrix_has_a_gradient():
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])
    x = Tensor(a, requires_grad=True)
    gradcheck(pnp.linalg.det, (x,), check_forward_ad=True)
    zero, = grad(pnp.linalg.det(x := Tensor(np.zeros((3, 3)), requires_grad=True)), x)
    np.testing.assert_array_equal(zero.numpy(), np.zeros((3, 3)))


def second_derivatives_of_det(a):
    """Return the signed minors without two rows and two columns."""
    n = len(a)
    found = np.zeros((n,) * 4)
    for i, j, k, m in product(range(n), repeat=4):
        if i != k and j != m:
            minor = np.linalg.det(np.delete(np.delete(a, [i, k], 0), [j, m], 1))
            found[i, j, k, m] = minor * (-1) ** (i + j + k + m) * (1 if (i < k) == (j < m) else -1)
    return found


@pytest.mark.parametrize("n", range(4))
def test_the_determinant_is_a_polynomial_to_differentiate_whatever_the_rank(n):
    rng = np.random.default_rng(n)
    for rank in range(n + 1):
        a = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, n))
        expected = second_derivatives_of_det(a)
        for inner, outer in product((jacfwd, jacrev), repeat=2):
            np.testing.assert_allclose(outer(inner(pnp.linalg.det))(a), expected, atol=1e-12)
        np.testing.assert_allclose(hessian(pscipy.det)(a), expected, atol=1e-12)
        np.testing.assert_allclose(vmap(hessian(pnp.linalg.det))(np.stack([a, a.T])),
                                   np.stack([expected, second_derivatives_of_det(a.T)]), atol=1e-12)
        step = rng.normal(size=(n, n))
        third = (second_derivatives_of_det(a + 1e-4 * step) - second_derivatives_of_det(a - 1e-4 * step)) / 2e-4
        for outer in (jacfwd, jacrev):
            np.testing.assert_allclose(np.tensordot(outer(hessian(pnp.linalg.det))(a), step, 2), third, atol=1e-7)


def test_the_second_derivative_of_a_singular_complex_determinant():
    a = np.array([[1, 2j, 0], [1, 2j, 0], [0, 1, 1j]])
    step = np.array([[1j, 0, 1], [0, 2, 0], [1, 1, -1j]])
    found = jvp(lambda a: jvp(pnp.linalg.det, (a,), (step,))[1], (a,), (step,))[1]
    before, here, behind = [np.linalg.det(a + t * step) for t in (-1, 0, 1)]
    np.testing.assert_allclose(found, before - 2 * here + behind, atol=1e-12)      # exact for cubic polynomials


EMPTY = [(0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 2, 2)]


def outcome(function, *args, **options):
    """Return the values of a call, or the error."""
    try:
        found = function(*args, **options)
    except (np.linalg.LinAlgError, ValueError) as error:
        return type(error), str(error)
    return [np.asarray(x).tolist() for x in (found if isinstance(found, tuple) else (found,))]


OF_NOTHING = outcome(np.linalg.norm, np.zeros((0, 0)), 1)
"""0, or the error of an older version of NumPy, in which nothing has no maximum."""


def outcome_of_empty(numpys, shape, **options):
    """Return NumPy's outcome, that of the newest version for the maximum of nothing, where older ones raise."""
    expected = outcome(numpys, np.zeros(shape), **options)
    is_older = isinstance(OF_NOTHING, tuple) and expected == OF_NOTHING and numpys is not np.linalg.vector_norm
    return [np.zeros(shape[:-2]).tolist()] if is_older else expected


@pytest.mark.parametrize("shape", EMPTY, ids=str)
@pytest.mark.parametrize("name", ["norm", "matrix_norm", "vector_norm", "cond"])
@together("order", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"], ids=str)
def test_norms_of_empty_matrices_are_numpys(name, order, shape):
    function, numpys = getattr(pnp.linalg, name), getattr(np.linalg, name)
    options = {"p" if name == "cond" else "ord": order}
    if name == "norm" and len(shape) == 3:
        options["axis"] = (-2, -1)
    with np.errstate(all="ignore"):
        assert outcome(function, Tensor(np.zeros(shape)), **options) == outcome_of_empty(numpys, shape, **options)


@pytest.mark.parametrize("name", ["det", "slogdet", "inv", "pinv", "svd", "svdvals", "qr", "eigh", "eigvalsh", "eig",
                                  "eigvals", "cholesky", "matrix_rank"])
@together("shape", EMPTY, ids=str)
def test_decompositions_of_empty_matrices_are_numpys(shape, name):
    function, numpys = getattr(pnp.linalg, name), getattr(np.linalg, name)
    assert outcome(function, Tensor(np.zeros(shape))) == outcome_of_empty(numpys, shape)
    if name == "det" and shape[-2] == shape[-1]:
        assert func_grad(lambda a: pnp.sum(pnp.linalg.det(a)))(np.zeros(shape)).shape == shape


def test_vectors_that_are_not_determined_have_no_gradient():
    x = Tensor(np.arange(6.0).reshape(3, 2), requires_grad=True)
    u, s, _ = pnp.linalg.svd(x)
    assert grad(s.sum(), x, retain_graph=True)[0].shape == (3, 2)
    with pytest.raises(NoDerivativeError, match="full_matrices=False"):
        grad(u.sum(), x)
    with pytest.raises(NoDerivativeError, match='mode="reduced"'):
        grad(pnp.linalg.qr(x, mode="complete")[0].sum(), x)
    with pytest.raises(NoDerivativeError, match="full_matrices=False"):
        jvp(lambda x: pnp.linalg.svd(x)[0], (np.ones((3, 2)),), (np.ones((3, 2)),))


def random(*shape, dtype=float, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype is complex else 0)


def slope_of(function, a, step, h=1e-6):
    """Return the derivative along a step, by differences."""
    return (function(a + h * step) - function(a - h * step)) / (2 * h)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cutoff", [1e-15, 0.3, 0.6])
@pytest.mark.parametrize("values", [(3.0, 1.0, 0.5), (3.0, 3.0, 0.2), (1.0, 0.62, 0.58)], ids=str)
@pytest.mark.parametrize("shape", [(4, 3), (3, 4)], ids=str)
def test_the_pseudo_inverse_differentiates_what_the_cutoff_leaves(shape, values, cutoff, dtype):
    u, _, vh = np.linalg.svd(random(*shape, dtype=dtype), full_matrices=False)
    a, step = (u * values) @ vh, random(*shape, dtype=dtype, seed=1)

    def inverse(a):
        return pnp.linalg.pinv(a, cutoff)

    def change(a):
        return jvp(inverse, (a,), (step,))[1]

    expected = slope_of(lambda a: np.linalg.pinv(a, cutoff), a, step)
    np.testing.assert_allclose(change(a), expected, atol=1e-6 * np.abs(expected).max())
    expected = slope_of(change, a, step)
    np.testing.assert_allclose(jvp(change, (a,), (step,))[1], expected, atol=1e-5 * np.abs(expected).max())
    given = random(*shape[::-1], dtype=dtype, seed=2)
    gradient = func_grad(lambda a: pnp.sum(pnp.real(given.conj() * inverse(a))))(a)
    np.testing.assert_allclose(np.sum(gradient.conj() * step).real, np.sum(given.conj() * change(a)).real, rtol=1e-8)


@pytest.mark.parametrize("cutoff", [None, 0.2, 0.5])
def test_least_squares_differentiate_what_the_cutoff_leaves(cutoff):
    u, _, vh = np.linalg.svd(random(4, 3), full_matrices=False)
    a, b, step = (u * [3, 1, 0.5]) @ vh, np.arange(4.0), random(4, 3, seed=1)
    found = jvp(lambda a: pnp.linalg.lstsq(a, b, rcond=cutoff)[0], (a,), (step,))[1]
    expected = slope_of(lambda a: np.linalg.lstsq(a, b, rcond=cutoff)[0], a, step)
    np.testing.assert_allclose(found, expected, atol=1e-8)


TRIANGLES = {
    "cholesky": (np.linalg.cholesky, pnp.linalg.cholesky),
    "eigvalsh": (np.linalg.eigvalsh, pnp.linalg.eigvalsh),
    "svdvals": (lambda a: np.linalg.svd(a, compute_uv=False, hermitian=True),
                lambda a: pnp.linalg.svd(a, compute_uv=False, hermitian=True)),
    "svd": (lambda a: np.linalg.svd(a, hermitian=True)[1], lambda a: pnp.linalg.svd(a, hermitian=True)[1]),
    "pinv": (lambda a: np.linalg.pinv(a, hermitian=True), lambda a: pnp.linalg.pinv(a, hermitian=True)),
    "pinv, cutoff": (lambda a: np.linalg.pinv(a, 0.3, hermitian=True),
                     lambda a: pnp.linalg.pinv(a, 0.3, hermitian=True)),
    **{f"solve, {structure}, {lower}": (
        lambda a, structure=structure, lower=lower: scipy.linalg.solve(a, np.arange(3.0), lower, assume_a=structure),
        lambda a, structure=structure, lower=lower: pscipy.solve(a, np.arange(3.0), lower, assume_a=structure))
        for structure in ("sym", "her", "pos") for lower in (False, True)},
    **{f"inv, {structure}, {lower}": (
        lambda a, structure=structure, lower=lower: scipy.linalg.inv(a, assume_a=structure, lower=lower),
        lambda a, structure=structure, lower=lower: pscipy.inv(a, assume_a=structure, lower=lower))
        for structure in ("sym", "her", "pos") for lower in (False, True)},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TRIANGLES)
def test_where_one_triangle_is_read_the_hermitian_part_of_changes_counts(name, dtype):
    numpys, ours = TRIANGLES[name]
    whole = np.asarray(positive(regular(3, 3, dtype=dtype)))
    is_symmetric = "sym" in name
    if is_symmetric:
        whole = (whole + whole.T) / 2 + 0.1j * (dtype is complex)
    is_lower = "True" in name or "," not in name or name.startswith("pinv")
    keep, drop = (np.tril, np.triu) if is_lower else (np.triu, np.tril)
    a = keep(whole) + drop(regular(3, 3), 1 if is_lower else -1)
    np.testing.assert_allclose(ours(Tensor(a)).array, numpys(a), atol=1e-12)
    step = regular(3, 3, dtype=dtype)[::-1]
    part = (step + (step.T if is_symmetric else step.conj().T)) / 2
    expected = slope_of(numpys, a, part)
    np.testing.assert_allclose(jvp(ours, (a,), (step,))[1], expected, atol=1e-6 * np.abs(expected).max())
    gradient = func_grad(lambda a: pnp.sum(pnp.real(ours(a)) ** 2))(a)
    np.testing.assert_allclose(gradient, gradient.T if is_symmetric else gradient.conj().T, atol=1e-12)
    expected = slope_of(lambda a: np.sum(np.real(numpys(a)) ** 2), a, part)
    np.testing.assert_allclose(np.sum(gradient * step.conj()).real, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_eigenvalues_that_differ_by_rounding_count_as_equal(name):
    turned = np.linalg.qr(regular(3, 3))[0]
    a = (turned * [1, 1, 3]) @ turned.T
    function = (lambda a: pnp.linalg.eigh(a)[1][0, 0]) if name == "eigh" else (lambda a: pnp.linalg.svd(a)[0][0, -1])
    with np.errstate(all="ignore"):
        found = func_grad(function)((a + a.T) / 2)
    assert not np.isfinite(found).all()
    assert not np.isfinite(found[np.abs(found) > 1e6]).any()


def test_equal_eigenvalues_have_gradients_and_their_vectors_nan():
    x = Tensor(np.eye(2), requires_grad=True)
    values, vectors = pnp.linalg.eigh(x)
    np.testing.assert_array_equal(grad(values.sum(), x, retain_graph=True)[0].numpy(), np.eye(2))
    with np.errstate(all="ignore"):
        assert np.isnan(grad(vectors[0, 0], x)[0].numpy()).any()


SPECTRAL = {        # functions of equal eigenvalues with second derivatives
    "sum": lambda n, a: n.linalg.eigvalsh(a).sum(),
    "squares": lambda n, a: (n.linalg.eigvalsh(a) ** 2).sum(),
    "squares, eigh": lambda n, a: (n.linalg.eigh(a)[0] ** 2).sum(),
    "log-sum-exp": lambda n, a: n.log(n.exp(n.linalg.eigvalsh(a)).sum()),
    "log-determinant": lambda n, a: n.log(n.linalg.eigvalsh(a)).sum(),
    "weights of blocks": lambda n, a: (n.linalg.eigvalsh(a) ** 3 * np.array([1.0, 1.0, 2.0])).sum(),
    "the largest": lambda n, a: n.exp(n.linalg.eigvalsh(a)[-1]),
}


def second_difference(f, a, u, v):
    """Return the second derivative along two directions, by differences with an error of order h ** 4."""
    def difference(h):
        return (f(a + h * (u + v)) - f(a + h * (u - v)) - f(a - h * (u - v)) + f(a - h * (u + v))) / (4 * h * h)
    return (4 * difference(1e-3) - difference(2e-3)) / 3


@pytest.mark.parametrize("name", SPECTRAL)
@pytest.mark.parametrize("dtype", [float, complex])
def test_second_derivatives_at_equal_eigenvalues(name, dtype):
    rng = np.random.default_rng(4)
    draw = lambda: hermitian(rng.normal(size=(3, 3)) + (      # noqa: E731
        1j * rng.normal(size=(3, 3)) if dtype is complex else 0))
    turned = np.linalg.eigh(draw())[1]
    f = functools.partial(SPECTRAL[name], pnp)
    same = ["weights of blocks", "the largest"]
    for values in ([1.0, 1.0, 3.0], *([[1.5, 1.5, 1.5]] if name not in same else [])):
        a = np.asarray(hermitian((turned * values) @ turned.conj().T))
        u, v = np.asarray(draw()), np.asarray(draw())
        expected = second_difference(functools.partial(SPECTRAL[name], np), a, u, v)
        slope = lambda a, v=v: pnp.sum(func_grad(f)(a) * v.conj()).real      # noqa: E731
        for found in (jvp(slope, (a,), (u,))[1], compile(lambda a, u, slope=slope: jvp(slope, (a,), (u,))[1])(a, u),
                      vmap(lambda u, a=a, slope=slope: jvp(slope, (a,), (u,))[1])(np.stack([u, u]))[1]):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
        if dtype is float:
            np.testing.assert_allclose(np.sum(hessian(f)(a) * u[..., None, None] * v), expected, rtol=1e-5, atol=1e-5)


def test_the_slopes_of_equal_eigenvalues_are_those_of_the_perturbed_matrix():
    rng = np.random.default_rng(4)
    turned, step = np.linalg.qr(rng.normal(size=(4, 4)))[0], np.asarray(hermitian(rng.normal(size=(4, 4))))
    a = np.asarray(hermitian((turned * [1.0, 1.0, 1.0, 4.0]) @ turned.T))
    expected = (np.linalg.eigvalsh(a + 1e-7 * step) - np.linalg.eigvalsh(a)) / 1e-7
    for function in (pnp.linalg.eigvalsh, lambda a: pnp.linalg.eigh(a)[0]):
        np.testing.assert_allclose(jvp(function, (a,), (step,))[1], expected, atol=1e-5)
        batched = vmap(lambda step, f=function: jvp(f, (a,), (step,))[1])(step[None])
        np.testing.assert_allclose(batched[0], expected, atol=1e-5)


def test_second_derivatives_that_do_not_exist_are_nan():
    for f in (lambda a: pnp.linalg.eigvalsh(a)[0] ** 2, lambda a: pnp.linalg.eigvalsh(a) @ np.arange(3.0)):
        with np.errstate(all="ignore"):
            assert not np.isfinite(hessian(f)(np.eye(3))).all()
    with np.errstate(all="ignore"):
        twice = jacrev(jacrev(lambda a: (pnp.linalg.eigvalsh(a) ** 2).sum()))(np.eye(3))
    assert np.isnan(twice).any()


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("order", [1, 2, 3, np.inf])
def test_the_norm_of_zeros_has_the_gradient_zero(order, axis):
    x = Tensor(np.zeros((2, 2)), requires_grad=True)
    found, = grad(pnp.linalg.vector_norm(x, axis=axis, ord=order).sum(), x)
    np.testing.assert_array_equal(found.numpy(), np.zeros((2, 2)))
    np.testing.assert_array_equal(
        jvp(lambda x: pnp.linalg.vector_norm(x, axis=axis, ord=order), (np.zeros((2, 2)),), (np.ones((2, 2)),))[1], 0.0)


def test_eigenvalues_are_real_where_numpys_are_and_they_can_be_looked_at():
    expected = np.linalg.eigvals(np.eye(2)).dtype       # complex since NumPy 2.5
    real, turn = np.array([[2.0, 1.0], [0.5, 3.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert pnp.linalg.eigvals(Tensor(real)).dtype == expected
    assert pnp.linalg.eigvals(Tensor(turn)).dtype == complex
    assert vmap(pnp.linalg.eigvals)(np.stack([real, real])).dtype == complex
    assert pnp.linalg.eigvals(MetaArray((2, 2))).dtype == complex
    assert jacfwd(pnp.linalg.eigvals)(real).dtype == expected


# --- loading ---------------------------------------------------------------------------------------------------------


LOADED = """
import sys
import numpy as np
from pydispatch import Tensor, ops
assert "pydispatch.operators.decompositions" not in sys.modules
{use}
assert "pydispatch.operators.decompositions" in sys.modules
"""
USES = {
    "attribute": "ops.np.linalg_inv(np.eye(2))",
    "look-up": "from pydispatch._registry.operators import find_or_raise; find_or_raise('np::linalg_inv')",
    "numpy's function": "np.linalg.det(Tensor(np.eye(2)))",
    "pydispatch.numpy": "import pydispatch.numpy; pydispatch.numpy.linalg.norm(np.ones(2))",
}


@pytest.mark.parametrize("use", USES)
def test_the_operators_are_loaded_on_first_use(use):
    subprocess.run([sys.executable, "-c", LOADED.format(use=USES[use])], check=True)


def test_an_operator_that_no_family_has_is_not_found():
    with pytest.raises(AttributeError, match="no operator np::linalg_nothing"):
        ops.np.linalg_nothing()


def test_least_squares_where_the_rank_is_unknown_give_the_residuals_of_full_rank():
    a, b = np.stack([np.vander(np.arange(4.0) + i, 2) for i in range(3)]), np.cos(np.arange(12.0)).reshape(3, 4)
    expected = [np.linalg.lstsq(*pair, rcond=None) for pair in zip(a, b, strict=True)]
    def solve(a, b):
        return pnp.linalg.lstsq(a, b, rcond=None)
    batched, compiled = vmap(solve)(a, b), compile(solve)(a[0], b[0])
    for i, part in enumerate(zip(*expected, strict=True)):
        np.testing.assert_allclose(batched[i], np.stack(part), rtol=1e-9)
        np.testing.assert_allclose(compiled[i], part[0], rtol=1e-9)
        assert batched[i].dtype == compiled[i].dtype == part[0].dtype
    slopes = vmap(func_grad(lambda a, b: pnp.linalg.lstsq(a, b)[0].sum()))(a, b)
    each = [func_grad(lambda a, b: pnp.linalg.lstsq(a, b)[0].sum())(*pair) for pair in zip(a, b, strict=True)]
    np.testing.assert_allclose(slopes, np.stack(each), rtol=1e-9)


@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 5), (2, 2, 4, 3)])
@pytest.mark.parametrize("rcond", [1e-15, 0.3])
def test_pseudo_inverses_have_the_bits_of_numpys(shape, rcond):
    a = np.random.default_rng(0).normal(size=shape)
    singular = a.copy()
    singular[..., -1] = singular[..., 0]
    for matrix in (a, singular, np.zeros(shape), a[..., ::-1], a.mT):
        np.testing.assert_array_equal(ops.np.linalg_pinv(matrix, rcond), np.linalg.pinv(matrix, rcond))


@pytest.mark.parametrize("matrix", [
    np.full((2, 2), np.inf), np.zeros((0, 2)), np.eye(2, dtype=np.float32), np.eye(2) * 1j])
def test_pseudo_inverses_of_other_matrices_are_numpys(matrix):
    try:
        expected = np.linalg.pinv(matrix, 1e-9)
    except np.linalg.LinAlgError as error:      # of what is not finite, by some builds of LAPACK
        with pytest.raises(np.linalg.LinAlgError, match=str(error)):
            ops.np.linalg_pinv(matrix, 1e-9)
        return
    found = ops.np.linalg_pinv(matrix, 1e-9)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# --- factors that are kept -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("b", [np.cos(np.arange(70.0)), np.cos(np.arange(140.0)).reshape(70, 2),
                               np.cos(np.arange(140.0)).reshape(2, 70).T])
@pytest.mark.parametrize("layout", [lambda a: a, lambda a: np.asfortranarray(a), lambda a: a[::-1]])
def test_solutions_have_the_bits_of_numpys_also_with_the_same_matrix_again(b, layout):
    a = layout(np.random.default_rng(0).normal(size=(70, 70)))
    for _ in range(3):
        found = ops.np.linalg_solve(a, b)
        np.testing.assert_array_equal(found, np.linalg.solve(a, b))
        assert found.strides == np.linalg.solve(a, b).strides
        a[3, 5] += 0.5          # factors of the matrix before do not serve for it


@pytest.mark.parametrize("n", [3, 70])
@pytest.mark.parametrize("options", [{"transposed": True}, {"lower": True}, {"transposed": True, "lower": True}])
@pytest.mark.parametrize("n_columns", [None, 2])
def test_solutions_with_parts_of_matrices(n, options, n_columns):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(n, n)) + 8 * np.eye(n), rng.normal(size=(n, n_columns) if n_columns else n)
    matrix = np.tril(a) if "lower" in options else a
    expected = np.linalg.solve(matrix.T if "transposed" in options else matrix, b)
    def solve(a, b):
        return ops.np.linalg_solve_with(a, b, **options)
    np.testing.assert_allclose(solve(a, b), expected, rtol=1e-10)
    np.testing.assert_array_equal(compile(solve)(a, b), solve(a, b))
    np.testing.assert_allclose(vmap(solve)(np.stack([a, a]), np.stack([b, 2 * b]))[1], 2 * expected, rtol=1e-10)
    if n == 3:
        tracked = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
        gradcheck(solve, tracked, check_forward_ad=True)
        gradgradcheck(solve, tracked)


def test_large_singular_matrices_are_refused():
    a = np.ones((70, 70))
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        ops.np.linalg_solve(a, a[0])
    for options in ({"transposed": True}, {"lower": True}):
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            ops.np.linalg_solve_with(np.zeros((70, 70)), a[0], **options)


def test_without_the_routines_numpys_functions_solve(monkeypatch):
    a, b = np.random.default_rng(0).normal(size=(70, 70)), np.cos(np.arange(70.0))
    with_routines = func_grad(lambda a: pnp.linalg.solve(a, b).sum())(a)
    monkeypatch.setattr(lapack, "LAPACK", None)
    np.testing.assert_allclose(func_grad(lambda a: pnp.linalg.solve(a, b).sum())(a), with_routines, rtol=1e-9)
    monkeypatch.setattr(lapack.ctypes, "CDLL", raise_os_error)
    assert lapack.lapack_of_numpy() is None


def raise_os_error(*args):
    raise OSError


def test_the_gradient_of_large_factors():
    a = regular(70, 70) / 70
    step, weights = np.random.default_rng(0).normal(size=(2, 70, 70))
    def loss(library, a):
        return (library.linalg.cholesky(a @ a.T + np.eye(70)) * weights).sum()
    slope = (loss(np, a + 1e-6 * step) - loss(np, a - 1e-6 * step)) / 2e-6
    np.testing.assert_allclose((func_grad(lambda a: loss(pnp, a))(a) * step).sum(), slope, rtol=1e-6)
    np.testing.assert_allclose(jvp(lambda a: loss(pnp, a), (a,), (step,))[1], slope, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("dtype", [float, complex, np.float32])
def test_cofactors_are_signed_minors(n, dtype):
    a = regular(2, n, n, dtype=complex if dtype is complex else float).astype(dtype)
    expected = [[[np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) * (-1) ** (i + j) for j in range(n)]
                 for i in range(n)] for x in a]
    found = ops.np.linalg_cofactor(a)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype is np.float32 else 1e-9)
