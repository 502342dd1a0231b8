"""The modules of compat.autograd: HIPS's names, each as an import, and the functions that NumPy and SciPy lack."""

import subprocess
import sys
from importlib import import_module

import numpy
import pydispatch.compat.autograd.numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from pydispatch.compat.autograd.scipy.signal import convolve

import pydispatch.compat.autograd as ag
from pydispatch.compat.autograd import MODULES, grad
from pydispatch.compat.autograd.test_util import check_grads

EXPECTED = {
    "": "checkpoint deriv dict elementwise_grad grad grad_and_aux grad_named hessian hessian_tensor_product "
        "hessian_vector_product holomorphic_grad isinstance jacobian list make_ggnvp make_hvp make_jvp make_vjp "
        "multigrad_dict primitive tensor_jacobian_product tuple type value_and_grad vector_jacobian_product numpy",
    "builtins": "dict isinstance list tuple type",
    "core": "JVPNode VJPNode VSpace def_linear defjvp defvjp getval isbox make_jvp make_vjp primitive primitive_jvps "
            "primitive_vjps vspace",
    "extend": "Box JVPNode SparseObject VJPNode VSpace def_linear defjvp defjvp_argnum defjvp_argnums defvjp "
              "defvjp_argnum defvjp_argnums notrace_primitive primitive register_notrace vspace",
    "misc": "const_graph flatten fixed_points optimizers",
    "numpy": "array concatenate fft float64 linalg make_diagonal ndarray numpy_boxes numpy_vjps numpy_vspaces pi "
             "random sum where",
    "numpy.linalg": "LinAlgError cholesky det eig eigh inv norm pinv slogdet solve svd",
    "numpy.fft": "fft fft2 fftn fftshift ifft irfft rfft",
    "numpy.random": "RandomState rand randn seed",
    "scipy": "integrate linalg signal special stats",
    "scipy.integrate": "odeint",
    "scipy.linalg": "cholesky_banded inv solve_banded solve_sylvester solve_triangular solveh_banded sqrtm",
    "scipy.special": "beta betainc betaln digamma erf erfc erfinv expit gamma gammainc gammaincc gammaln i0 iv j0 jn "
                     "logit logsumexp multigammaln polygamma psi rgamma y0 yn",
    "scipy.stats": "beta chi2 dirichlet gamma multivariate_normal norm poisson t",
    "tracer": "Box Node getval isbox new_box notrace_primitive primitive",
    "wrap_util": "unary_to_nary wraps",
}


@pytest.mark.parametrize("module", EXPECTED)
def test_the_names_of_hips(module):
    found = import_module(f"pydispatch.compat.autograd.{module}".rstrip("."))
    for name in EXPECTED[module].split():
        assert getattr(found, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name      # noqa: B018


def test_every_module_can_be_imported_from():
    for module in MODULES:
        namespace = {}
        exec(f"from pydispatch.compat.autograd.{module} import *", namespace)
    assert "sin" in dir(np)
    assert import_module("pydispatch.compat.autograd.numpy") is np
    assert ag.misc.flatten is ag.misc.flatten


@pytest.mark.parametrize("name", ["beta", "chi2", "gamma", "norm", "poisson", "t"])
def test_distributions_are_modules(name):
    module = import_module(f"pydispatch.compat.autograd.scipy.stats.{name}")
    shapes = {"beta": (2.0, 3.0), "chi2": (3.0,), "gamma": (2.0,), "norm": (), "poisson": (2.5,), "t": (4.0,)}[name]
    x = 2.0 if name == "poisson" else 0.4
    method = "logpmf" if name == "poisson" else "logpdf"
    assert_allclose(getattr(module, method)(x, *shapes), getattr(getattr(scipy.stats, name), method)(x, *shapes))


def test_importing_loads_nothing_else():
    code = ("import sys, pydispatch.compat.autograd; "
            "assert not {'scipy', 'pydispatch.numpy', 'pydispatch.compat.autograd.operators'} & {*sys.modules}")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_where_keeps_numbers_of_python():
    assert type(np.where(True, 1, 2)) is int
    assert np.where(False, 1, y=2.5) == 2.5
    assert np.where(True, [1], [2]) == np.where([True], [1], [2]) == [1]
    assert np.where([True, False])[0].tolist() == [0]
    assert_allclose(np.where(condition=[True, False], x=numpy.ones(2), y=0.0), [1, 0])
    assert_allclose(grad(lambda x: np.sum(np.where(x > 1, x**2, x)))(numpy.array([0.5, 3.0])), [1, 6])


def test_arrays_to_join_may_come_from_an_iterator():
    x = numpy.array([1.0, 2.0])
    for join in (np.stack, np.vstack, np.hstack, np.concatenate):
        assert_allclose(join(x * i for i in range(3)), join([0 * x, x, 2 * x]))
    assert_allclose(grad(lambda x: np.sum(np.stack(map(np.sin, x), axis=0)))(x), numpy.cos(x))


def test_make_diagonal():
    check_grads(lambda d: np.make_diagonal(d, axis1=-1, axis2=-2), order=1)(numpy.ones((2, 3)))
    assert_allclose(np.make_diagonal(numpy.array([1.0, 2.0]), axis1=-1, axis2=-2), numpy.diag([1, 2]))
    with pytest.raises(NotImplementedError):
        np.make_diagonal(numpy.ones(2))


@pytest.mark.parametrize("side", ["L", "U"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_eigh_differentiates_the_triangle_that_it_reads(side, dtype):
    rng = numpy.random.default_rng(0)
    a = rng.normal(size=(3, 3)) + (1j * rng.normal(size=(3, 3)) if dtype is complex else 0)
    check_grads(lambda a: np.linalg.eigh(a, side)[0], order=1)(a)
    assert_allclose(np.linalg.eigh(a, side)[0], numpy.linalg.eigh(a, side)[0])


def naive(a, b, mode):
    """Return the convolution of vectors by its sum."""
    full = [sum(a[i] * b[k - i] for i in range(len(a)) if 0 <= k - i < len(b)) for k in range(len(a) + len(b) - 1)]
    short, long = sorted((len(a), len(b)))
    start = {"full": 0, "valid": short - 1, "same": (len(b) - 1) // 2}[mode]
    return full[start:start + {"full": len(full), "valid": long - short + 1, "same": len(a)}[mode]]


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
@pytest.mark.parametrize("sizes", [(5, 3), (3, 5), (5, 2), (4, 4)])
def test_convolutions_of_vectors(mode, sizes):
    a, b = [numpy.arange(1.0, n + 1) ** 2 for n in sizes]
    assert_allclose(convolve(a, b, mode=mode), naive(a, b, mode))
    check_grads(lambda a, b: convolve(a, b, mode=mode), (0, 1), order=1)(a, b)


@pytest.mark.parametrize("mode", ["full", "valid", "same"])
def test_convolutions_pair_sum_and_convolve_axes(mode):
    rng = numpy.random.default_rng(0)
    a, b = rng.normal(size=(2, 5, 3)), rng.normal(size=(3, 3, 4))       # pairs: 2 and 4, convolved: 5 and 3
    found = convolve(a, b, axes=([1], [0]), dot_axes=([2], [1]), mode=mode)
    expected = [[sum(numpy.array(naive(a[i, :, k], b[:, k, j], mode)) for k in range(3)) for j in range(4)]
                for i in range(2)]
    assert_allclose(found, expected)
    other = convolve(b, a, axes=([0], [1]), dot_axes=([1], [2]), mode="valid")
    assert other.shape == (4, 2, 3)
    with pytest.raises(AssertionError):
        convolve(a, b, mode="other")
    with pytest.raises(ValueError, match="larger"):
        convolve(numpy.ones((2, 5)), numpy.ones((3, 4)), mode="valid")


def test_vars_holds_all_names():
    assert vars(np)["exp"] is np.exp
    assert set(np.__all__) <= {*vars(np)}
