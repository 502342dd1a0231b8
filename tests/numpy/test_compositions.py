"""Transforms around transforms of functions of `pydispatch.numpy`, against loops and other ways to the same."""

import warnings

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch.func import functionalize, grad, hessian, jacrev, jvp, linearize, vmap
from pydispatch.tracing import make_fx
from tests.together import together

POINTS, VALUES = np.linspace(-9, 9, 7), np.arange(7.0) ** 2
FUNCTIONS = {
    "eigh": lambda a: pnp.sum(pnp.linalg.eigh(a)[0] ** 2) + pnp.sum(pnp.abs(pnp.linalg.eigh(a)[1])),
    "svd": lambda a: pnp.sum(pnp.linalg.svd(a, full_matrices=False)[1] ** 3),
    "qr": lambda a: pnp.sum(pnp.linalg.qr(a)[1] ** 2),
    "slogdet": lambda a: pnp.linalg.slogdet(a)[1],
    "solve": lambda a: pnp.sum(pnp.linalg.solve(a, a[0])),
    "cholesky": lambda a: pnp.sum(pnp.linalg.cholesky(a @ a.T + np.eye(3))),
    "pinv": lambda a: pnp.sum(pnp.linalg.pinv(a) ** 2),
    "norm": pnp.linalg.norm,
    "eigvals": lambda a: pnp.sum(pnp.abs(pnp.linalg.eigvals(a)) ** 2),
    "fft": lambda a: pnp.sum(pnp.abs(pnp.fft.fft2(a)) ** 2),
    "median": lambda a: pnp.median(a) ** 2,
    "quantile": lambda a: pnp.sum(pnp.quantile(a, [0.2, 0.7], axis=0) ** 2),
    "interp": lambda a: pnp.sum(pnp.interp(a, POINTS, VALUES)),
    "convolve": lambda a: pnp.sum(pnp.convolve(a[0], a[1]) ** 2),
    "cov": lambda a: pnp.sum(pnp.cov(a) ** 2),
    "polyfit": lambda a: pnp.sum(pnp.polyfit(np.arange(3.0), a, 1) ** 2),
    "sort": lambda a: pnp.sum(pnp.sort(a, axis=0) * POINTS[:3]),
    "einsum": lambda a: pnp.einsum("ij,jk,ki->", a, a, a),
}


def symmetric(seed):
    a = np.random.default_rng(seed).standard_normal((3, 3))
    return a + a.T + 3 * np.diag(np.arange(3))


ONE, OTHER, BATCH = symmetric(0), symmetric(1), np.stack([symmetric(2), symmetric(3)])


def looped(function):
    return np.stack([function(x) for x in BATCH])


COMPOSITIONS = {
    "vmap of grad": lambda f: (vmap(grad(f))(BATCH), looped(grad(f))),
    "grad of vmap": lambda f: (grad(lambda batch: pnp.sum(vmap(f)(batch)))(BATCH), looped(grad(f))),
    "hessian": lambda f: (hessian(f)(ONE), jacrev(jacrev(f))(ONE)),
    "vmap of hessian": lambda f: (vmap(hessian(f))(BATCH), looped(hessian(f))),
    "vmap of vmap": lambda f: (vmap(vmap(f))(BATCH[:, None]), looped(f)[:, None]),
    "jvp of grad": lambda f: (jvp(grad(f), (ONE,), (OTHER,))[1], np.tensordot(hessian(f)(ONE), OTHER)),
    "linearize": lambda f: (linearize(f, ONE)[1](OTHER), jvp(f, (ONE,), (OTHER,))[1]),
    "make_fx of grad": lambda f: (make_fx(grad(f))(ONE)(OTHER), grad(f)(OTHER)),
    "make_fx of vmap": lambda f: (make_fx(vmap(f))(BATCH)(BATCH[::-1]), looped(f)[::-1]),
    "functionalize of grad": lambda f: (functionalize(grad(f))(ONE), grad(f)(ONE)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@together("composition", COMPOSITIONS)
def test_transforms_compose(name, composition):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, expected = COMPOSITIONS[composition](FUNCTIONS[name])
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6, atol=1e-7)
