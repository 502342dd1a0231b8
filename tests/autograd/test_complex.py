"""Complex numbers: for a real L, the gradient is dL/dRe + i dL/dIm, that is PyTorch's convention.

A holomorphic f turns the gradient g of its result into g * conj(f'). Each closed form is checked against differences
along the real and the imaginary axis as well.
"""

import numpy as np
import pytest

from pydispatch import ops
from pydispatch.autograd import grad
from pydispatch.exceptions import AutogradError
from tests.autograd.leaves import assert_gradient, constant, leaf

NP = ops.np
Z = np.array([0.3 + 0.7j, -1.2 + 0.4j, 0.8 - 0.5j])
W = np.array([1.1 - 0.2j, 0.6 + 0.9j, -0.7 + 0.3j])
X = np.array([0.4, -1.3, 0.9])
G = np.array([0.5 - 1.0j, 2.0 + 0.25j, -0.75 + 0.5j])
R = np.array([0.5, -2.0, 1.25])


def real_part(a, b):
    """Return the inner product of two complex arrays as pairs of reals."""
    return np.sum((a * np.conj(b)).real)


def gradient_by_complex_differences(function, z, cotangent, step=1e-6):
    """Return dL/dRe + i dL/dIm of L = <cotangent, function(z)>, element by element."""
    gradient = np.zeros_like(z)
    for index in np.ndindex(z.shape):
        for direction in (1.0, 1j) if z.dtype.kind == "c" else (1.0,):
            moved = np.stack([z, z])
            moved[(0, *index)] += direction * step
            moved[(1, *index)] -= direction * step
            up, down = (real_part(function(value), cotangent) for value in moved)
            gradient[index] += direction * (up - down) / (2 * step)
    return gradient


# A function of z, and its derivative.
HOLOMORPHIC = {
    "exp": (lambda z: NP.exp(z), np.exp),
    "expm1": (lambda z: NP.expm1(z), np.exp),
    "exp2": (lambda z: NP.exp2(z), lambda z: np.log(2.0) * np.exp2(z)),
    "log": (lambda z: NP.log(z), lambda z: 1 / z),
    "log2": (lambda z: NP.log2(z), lambda z: 1 / (z * np.log(2.0))),
    "log10": (lambda z: NP.log10(z), lambda z: 1 / (z * np.log(10.0))),
    "log1p": (lambda z: NP.log1p(z), lambda z: 1 / (1 + z)),
    "sqrt": (lambda z: NP.sqrt(z), lambda z: 0.5 / np.sqrt(z)),
    "square": (lambda z: NP.square(z), lambda z: 2 * z),
    "reciprocal": (lambda z: NP.reciprocal(z), lambda z: -1 / z**2),
    "sin": (lambda z: NP.sin(z), np.cos),
    "cos": (lambda z: NP.cos(z), lambda z: -np.sin(z)),
    "tan": (lambda z: NP.tan(z), lambda z: 1 / np.cos(z) ** 2),
    "sinh": (lambda z: NP.sinh(z), np.cosh),
    "cosh": (lambda z: NP.cosh(z), np.sinh),
    "tanh": (lambda z: NP.tanh(z), lambda z: 1 / np.cosh(z) ** 2),
    "arcsin": (lambda z: NP.arcsin(z), lambda z: 1 / np.sqrt(1 - z**2)),
    "arccos": (lambda z: NP.arccos(z), lambda z: -1 / np.sqrt(1 - z**2)),
    "arctan": (lambda z: NP.arctan(z), lambda z: 1 / (1 + z**2)),
    "arcsinh": (lambda z: NP.arcsinh(z), lambda z: 1 / np.sqrt(1 + z**2)),
    "arctanh": (lambda z: NP.arctanh(z), lambda z: 1 / (1 - z**2)),
    "negative": (lambda z: -z, lambda z: -np.ones_like(z)),
    "cube": (lambda z: z * z * z, lambda z: 3 * z**2),
    "power": (lambda z: z**3, lambda z: 3 * z**2),
    "power of a base": (lambda z: NP.power(2.0 + 1.0j, z), lambda z: np.log(2 + 1j) * (2 + 1j) ** z),
    "product with a constant": (lambda z: z * W, lambda z: W),
    "product with a number": (lambda z: (2.0 - 1.0j) * z, lambda z: np.full_like(z, 2 - 1j)),
    "quotient by a constant": (lambda z: z / W, lambda z: 1 / W),
    "quotient of a constant": (lambda z: W / z, lambda z: -W / z**2),
    "sum and difference": (lambda z: (z + W) - (1j - z), lambda z: np.full_like(z, 2)),
    "view and back": (lambda z: z[::-1].reshape(3, 1)[::-1].ravel(), lambda z: np.ones_like(z)),
}
# A function of z that is not holomorphic, or whose result is real, and its gradient for the gradient g of the result.
REAL_LINEAR = {
    "absolute": (lambda z: abs(z), lambda z, g: g * z / np.abs(z)),
    "squared absolute": (lambda z: (z * z.conj()).real, lambda z, g: 2 * g * z),
    "real": (lambda z: z.real, lambda z, g: g + 0j),
    "imag": (lambda z: z.imag, lambda z, g: 1j * g),
    "conjugate": (lambda z: z.conj(), lambda z, g: np.conj(g)),
    "product with its conjugate": (lambda z: z * z.conj(), lambda z, g: 2 * g.real * z),
    "real times imag": (lambda z: z.real * z.imag, lambda z, g: g * (z.imag + 1j * z.real)),
    "exp of the absolute": (lambda z: NP.exp(abs(z)), lambda z, g: g * np.exp(np.abs(z)) * z / np.abs(z)),
    "sum of squares": (lambda z: NP.sum(z.real * z.real + z.imag * z.imag), lambda z, g: 2 * g * z),
    "real of the square": (lambda z: NP.square(z).real, lambda z, g: g * np.conj(2 * z)),
    "imag of exp": (lambda z: NP.exp(z).imag, lambda z, g: 1j * g * np.conj(np.exp(z))),
    "quotient by the conjugate": (
        lambda z: z / z.conj(), lambda z, g: g * np.conj(1 / np.conj(z)) + np.conj(g) * (-z / np.conj(z) ** 2)),
}
# A function of a real x with a complex result, and its gradient for the gradient g of the result.
REAL_TO_COMPLEX = {
    "product with a constant": (lambda x: x * W, lambda x, g: (g * np.conj(W)).real),
    "product with 1j": (lambda x: x * 1j, lambda x, g: g.imag),
    "sum with a constant": (lambda x: x + W, lambda x, g: g.real),
    "constant less x": (lambda x: W - x, lambda x, g: -g.real),
    "quotient by a constant": (lambda x: x / W, lambda x, g: (g * np.conj(1 / W)).real),
    "power of a constant": (lambda x: NP.power(W, x), lambda x, g: (g * np.conj(np.log(W) * W**x)).real),
    "exp of 1j x": (lambda x: NP.exp(x * 1j), lambda x, g: (g * np.conj(1j * np.exp(1j * x))).real),
    "astype": (lambda x: x.astype(np.complex128), lambda x, g: g.real),
    "concatenate": (lambda x: NP.concatenate([x[:2], W[:1]]), lambda x, g: np.array([g[0].real, g[1].real, 0.0])),
    "where": (lambda x: NP.where(np.array([True, False, True]), x, W), lambda x, g: g.real * [1, 0, 1]),
    "written into complex": (lambda x: NP.setitem(W * 1.0, slice(1, None), x[1:]), lambda x, g: g.real * [0, 1, 1]),
}


def check(function, argument, cotangent, expected, rtol=1e-12):
    """Assert that the gradient is the closed form, and that differences agree."""
    x = leaf(argument, argument.dtype)
    (found,) = grad(function(x), [x], cotangent)
    assert_gradient(found, expected, rtol=rtol)
    differences = gradient_by_complex_differences(function, argument, np.asarray(cotangent))
    np.testing.assert_allclose(expected, differences, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_functions(name):
    function, derivative = HOLOMORPHIC[name]
    check(function, Z, G, G * np.conj(derivative(Z)))


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_holomorphic_functions_in_single_precision(name):
    function, derivative = HOLOMORPHIC[name]
    z = leaf(Z, np.complex64)
    result = function(z)
    (found,) = grad(result, [z], G)
    expected = (G * np.conj(derivative(Z))).astype(np.complex64)
    assert_gradient(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REAL_LINEAR)
def test_functions_that_are_not_holomorphic(name):
    function, gradient = REAL_LINEAR[name]
    result = function(Z)
    cotangent = {"c": G, "f": R}[result.dtype.kind] if np.ndim(result) else np.asarray(0.75)
    check(function, Z, cotangent, gradient(Z, cotangent))


@pytest.mark.parametrize("name", REAL_TO_COMPLEX)
def test_functions_from_real_to_complex(name):
    function, gradient = REAL_TO_COMPLEX[name]
    check(function, X, G, gradient(X, G))


# --- of several arguments --------------------------------------------------------------------------------------------

# A function of a real x and a complex z, and its gradients for the gradient g of the result.
MIXED = {
    "product": (lambda x, z: x * z, lambda x, z, g: ((g * np.conj(z)).real, g * x)),
    "the other way round": (lambda x, z: z * x, lambda x, z, g: ((g * np.conj(z)).real, g * x)),
    "sum": (lambda x, z: x + z, lambda x, z, g: (g.real, g)),
    "difference": (lambda x, z: z - x, lambda x, z, g: (-g.real, g)),
    "quotient": (lambda x, z: x / z, lambda x, z, g: ((g * np.conj(1 / z)).real, g * np.conj(-x / z**2))),
    "quotient by the real one": (lambda x, z: z / x, lambda x, z, g: ((g * np.conj(-z / x**2)).real, g / x)),
    "power": (lambda x, z: z**x, lambda x, z, g: ((g * np.conj(np.log(z) * z**x)).real, g * np.conj(x * z ** (x - 1)))),
    "made of parts": (lambda x, z: x * 1j + z, lambda x, z, g: (g.imag, g)),
    "where": (
        lambda x, z: NP.where(np.array([True, False, True]), x, z),
        lambda x, z, g: (g.real * [1, 0, 1], g * [0, 1, 0])),
    "in place": (lambda x, z: NP.multiply_(z * 1.0, x), lambda x, z, g: ((g * np.conj(z)).real, g * x)),
    "real part in place": (lambda x, z: with_real_part(z * 1.0, x), lambda x, z, g: (g.real, 1j * g.imag)),
}


def with_real_part(z, x):
    part = NP.real(z)
    part[...] = x
    return z


@pytest.mark.parametrize("name", MIXED)
def test_functions_of_a_real_and_a_complex_argument(name):
    function, gradients = MIXED[name]
    x, z = leaf(X), leaf(Z, Z.dtype)
    found = grad(function(x, z), [x, z], G)
    expected = gradients(X, Z, G)
    for gradient, reference in zip(found, expected, strict=True):
        assert_gradient(gradient, reference)
    by_x = gradient_by_complex_differences(lambda value: function(value, Z), X, G)
    by_z = gradient_by_complex_differences(lambda value: function(X, value), Z, G)
    np.testing.assert_allclose(expected[0], by_x, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(expected[1], by_z, rtol=1e-7, atol=1e-8)


def test_the_product_of_two_complex_arguments():
    z, w = leaf(Z, Z.dtype), leaf(W, W.dtype)
    by_z, by_w = grad(z * w, [z, w], G)
    assert_gradient(by_z, G * np.conj(W))
    assert_gradient(by_w, G * np.conj(Z))


def test_the_product_of_matrices():
    a, b = np.outer(Z, W), np.outer(W, Z)[:, :2]
    g = np.outer(G, Z[:2])
    x, y = leaf(a, a.dtype), leaf(b, b.dtype)
    by_x, by_y = grad(x @ y, [x, y], g)
    assert_gradient(by_x, g @ b.conj().T)
    assert_gradient(by_y, a.conj().T @ g)


REDUCTIONS = {
    "sum": (lambda z: z.sum(), lambda z: np.ones_like(z)),
    "mean": (lambda z: z.mean(), lambda z: np.full_like(z, 1 / 3)),
    "prod": (lambda z: z.prod(), lambda z: z.prod() / z),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name):
    function, derivative = REDUCTIONS[name]
    check(function, Z, np.asarray(0.5 - 0.25j), (0.5 - 0.25j) * np.conj(derivative(Z)))


# --- conventions and dtypes ------------------------------------------------------------------------------------------


def test_the_gradient_of_the_squared_absolute_points_away_from_zero():
    z = leaf(3.0 + 4.0j, np.complex128)
    (z * z.conj()).real.backward()
    assert_gradient(z.grad, np.array(6.0 + 8.0j))


def test_the_absolute_at_zero():
    z = leaf(0.0, np.complex128)
    abs(z).backward()
    assert_gradient(z.grad, np.array(0j))


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_gradients_have_the_dtype_of_the_leaf(name):
    z = leaf([1.0 + 2.0j], name)
    (z.real * 2.0 + z.imag).sum().backward()
    assert_gradient(z.grad, np.array([2.0 + 1.0j], name))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_the_gradient_of_a_real_leaf_is_real(name):
    x = leaf([1.0, 2.0], name)
    (x * (3.0 + 4.0j)).backward(np.array([1.0 + 1.0j, 2.0]))
    assert_gradient(x.grad, np.array([7.0, 6.0], name))


def test_a_complex_cotangent_of_a_real_result_is_refused():
    x = leaf([1.0])
    with pytest.raises(AutogradError, match="complex"):
        (x * 2.0).backward(np.array([1.0 + 1.0j]))


def test_a_real_cotangent_of_a_complex_result_is_cast():
    z = leaf([1.0 + 2.0j], np.complex128)
    (z * 2.0).backward(np.array([3.0]))
    assert_gradient(z.grad, np.array([6.0 + 0.0j]))


def test_the_cotangent_of_one_complex_number_has_to_be_given():
    z = leaf(1.0 + 2.0j, np.complex128)
    with pytest.raises(AutogradError, match="complex"):
        (z * z).backward()
    (z * z).backward(constant(1.0, np.complex128))
    assert_gradient(z.grad, np.array(2.0 - 4.0j))


def test_hooks_see_the_gradient_in_that_convention():
    seen, z = [], leaf(Z, Z.dtype)
    middle = z * W
    middle.register_hook(seen.append)
    grad(NP.exp(middle), [z], G)
    assert_gradient(seen[0], G * np.conj(np.exp(Z * W)))


# --- higher orders ---------------------------------------------------------------------------------------------------

SECOND = {
    "cube": (lambda z: z * z * z, lambda z: 3 * z**2, lambda z: 6 * z),
    "exp": (lambda z: NP.exp(z), np.exp, np.exp),
    "sin": (lambda z: NP.sin(z), np.cos, lambda z: -np.sin(z)),
    "log": (lambda z: NP.log(z), lambda z: 1 / z, lambda z: -1 / z**2),
    "reciprocal": (lambda z: 1.0 / z, lambda z: -1 / z**2, lambda z: 2 / z**3),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_of_holomorphic_functions(name):
    # The gradient of z is h = g conj(f'(z)), antiholomorphic, so a gradient k of h gives conj(k) g conj(f''(z)).
    function, derivative, second_derivative = SECOND[name]
    z = leaf(Z, Z.dtype)
    (first,) = grad(function(z), [z], G, create_graph=True)
    assert_gradient(first.detach(), G * np.conj(derivative(Z)))
    (second,) = grad(first, [z], W)
    assert_gradient(second, np.conj(W) * G * np.conj(second_derivative(Z)))


def test_the_second_derivative_of_the_squared_absolute():
    z = leaf(Z, Z.dtype)
    (first,) = grad((z * z.conj()).real.sum(), [z], create_graph=True)
    (second,) = grad(first, [z], G)
    assert_gradient(second, 2 * G)


def test_second_derivatives_of_a_real_leaf_through_complex_numbers():
    # |exp((1 + 2j) x)|² is exp(2 x).
    x = leaf(X)
    result = abs(NP.exp(x * (1.0 + 2.0j)))
    (first,) = grad((result * result).sum(), [x], create_graph=True)
    (second,) = grad(first.sum(), [x])
    assert_gradient(first.detach(), 2 * np.exp(2 * X))
    assert_gradient(second, 4 * np.exp(2 * X))
