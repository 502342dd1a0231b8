"""Squares of functions with a kink at zero have the second derivative of the square. Their first one is zero."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, _core, autograd, compile, func
from pydispatch.autograd.kinks import SQUARED
from tests.together import together

EYE = 2 * np.eye(2)
SQUARES = {
    "norm ** 2": (lambda v: pnp.linalg.norm(v) ** 2, EYE),
    "norm ** 2.0": (lambda v: pnp.linalg.norm(v) ** 2.0, EYE),
    "square of a norm": (lambda v: pnp.square(pnp.linalg.norm(v)), EYE),
    "a norm by itself": (lambda v: (lambda n: n * n)(pnp.linalg.norm(v)), EYE),
    "norms of rows": (lambda v: pnp.sum(pnp.linalg.norm(pnp.stack([v, v]), axis=1, keepdims=True) ** 2), 2 * EYE),
    "Frobenius norm": (lambda v: pnp.linalg.norm(v[None]) ** 2, EYE),
    "hypot": (lambda v: pnp.hypot(v[0], v[1]) ** 2, EYE),
    "abs": (lambda v: pnp.sum(abs(v) ** 2), EYE),
    "fabs": (lambda v: pnp.sum(pnp.fabs(v) ** 2), EYE),
    "abs of complex": (lambda v: abs(v[0] + 1j * v[1]) ** 2, EYE),
    "std": (lambda v: pnp.std(v) ** 2, np.array([[0.5, -0.5], [-0.5, 0.5]])),
    "std of rows": (lambda v: pnp.sum(pnp.std(v[None], axis=1, ddof=1, keepdims=True) ** 2),
                    np.array([[1, -1], [-1, 1]])),
    "one zero of two": (lambda v: pnp.sum(abs(v + np.array([0.0, 3.0])) ** 2), EYE),
}


def by_tape(f):
    def hessian(x):
        leaf = Tensor(x, requires_grad=True)
        (gradient,) = autograd.grad(f(leaf), [leaf], create_graph=True)
        return np.stack([autograd.grad(part, [leaf], retain_graph=True)[0].numpy() for part in gradient])
    return hessian


HESSIANS = {
    "hessian": func.hessian,
    "jacfwd(jacfwd)": lambda f: func.jacfwd(func.jacfwd(f)),
    "jacrev(jacrev)": lambda f: func.jacrev(func.jacrev(f)),
    "jacrev(jacfwd)": lambda f: func.jacrev(func.jacfwd(f)),
    "compile(hessian)": lambda f: compile(func.hessian(f)),
    "vmap(hessian)": lambda f: lambda x: func.vmap(func.hessian(f))(np.stack([x, x + 1.0, x]))[0],
    "tape": by_tape,
}


def test_the_core_asks_for_each_square_that_is_known():
    assert SQUARED.keys() == _core.HAVE_KINKS


@pytest.mark.parametrize("name", SQUARES)
@together("way", HESSIANS)
def test_the_second_derivative_of_a_square_at_zero(name, way):
    f, expected = SQUARES[name]
    assert np.asarray(HESSIANS[way](f)(np.zeros(2))).tolist() == expected.tolist()


@pytest.mark.parametrize("name", SQUARES)
def test_values_and_gradients_are_as_before(name):
    f, _ = SQUARES[name]
    for x in (np.zeros(2), np.array([0.3, -0.4])):
        assert func.jacfwd(f)(x) == pytest.approx(func.grad(f)(x))
        assert func.vjp(f, x)[0] == f(x)
        step = 1e-6 * np.eye(2)
        assert func.grad(f)(x) == pytest.approx([(f(x + h) - f(x - h)) / 2e-6 for h in step], abs=1e-8)


def test_away_from_zero_hessians_are_those_of_finite_differences():
    x = np.array([0.3, -0.4])
    for f, _ in SQUARES.values():
        gradient = func.grad(f)
        slopes = np.stack([(gradient(x + h) - gradient(x - h)) / 2e-6 for h in 1e-6 * np.eye(2)])
        assert np.asarray(func.hessian(f)(x)) == pytest.approx(slopes, abs=1e-8)


def test_the_gradient_by_the_norm_itself_is_kept():
    x = Tensor(np.zeros(2), requires_grad=True)
    norm = pnp.linalg.norm(x)
    norm.retain_grad()
    (norm ** 2).backward()
    assert norm.grad.item() == 0.0
    y = pnp.linalg.norm(Tensor(np.array([3.0, 4.0]), requires_grad=True))
    assert autograd.grad(y ** 2, [y])[0].item() == 10.0


@pytest.mark.parametrize("way", ["hessian", "jacfwd(jacfwd)", "jacrev(jacrev)", "tape"])
def test_what_was_written_to_is_no_norm_any_more(way):
    def shifted(v):
        norm = pnp.linalg.norm(v[None], axis=1)
        norm += v.sum()
        return pnp.sum(norm ** 2)

    def overwritten(v):
        w = v * 1.0
        norm = pnp.linalg.norm(w)
        w[0] = 5.0
        return norm ** 2 + w[0]

    assert np.asarray(HESSIANS[way](overwritten)(np.zeros(2))).tolist() == EYE.tolist()
    assert np.isfinite(np.asarray(HESSIANS[way](shifted)(np.zeros(2)))).all()
