"""Programs written with `pydispatch.numpy`: functions of one array to a number, to be differentiated on any backend.

Arrays of a library that stand left of an operator are asked first, and some raise where they meet what they do not
know: so constants are passed to functions, and do not stand on the left.
"""

import numpy as np

import pydispatch.numpy as pnp

X = np.linspace(-1.0, 1.5, 12).reshape(4, 3)
Y = np.array([0.0, 1.0, 1.0, 0.0])
LABELS = np.eye(3)[[0, 2, 1, 2]]
KERNEL = np.array([0.25, 0.5, 0.25, 0.0, 0.0, 0.0])
SPREAD = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.2], [0.0, 0.2, 1.5]])


def logistic_regression(w, x, y):
    """Mean log loss of a linear model."""
    z = pnp.matmul(x, w)
    return pnp.mean(pnp.logaddexp(0.0, z) - z * y)


def network(w, x, y):
    hidden = pnp.tanh(pnp.matmul(x, pnp.reshape(w[:6], (3, 2))) + w[6:8])
    return pnp.sum((hidden @ w[8:10] + w[10] - y) ** 2)


def cross_entropy(w, x, labels):
    """Compute the softmax cross entropy of a linear model."""
    z = pnp.matmul(x, w)
    z = z - pnp.max(z, axis=1, keepdims=True)
    return -pnp.mean(pnp.sum((z - pnp.log(pnp.sum(pnp.exp(z), axis=1, keepdims=True))) * labels, axis=1))


def clustering(centers, x):
    """Return the loss of k-means: squared distances to the nearest centers."""
    distances = pnp.sum(pnp.subtract(pnp.expand_dims(x, 1), centers) ** 2, axis=-1)
    return pnp.sum(pnp.min(distances, axis=1))


def oscillator(state):
    """Return the energy after two steps of Runge and Kutta."""
    def slope(s):
        return pnp.stack([s[1], -pnp.sin(s[0])])

    for _ in range(2):
        middle = slope(state + 0.05 * slope(state))
        state = state + 0.1 * middle
    return 0.5 * state[1] ** 2 - pnp.cos(state[0])


def gaussian(mean, x, covariance):
    """Return minus the log density of a normal distribution."""
    centered = pnp.subtract(x, mean)
    precision = pnp.linalg.inv(covariance)
    return 0.5 * pnp.sum((centered @ precision) * centered) + 2.0 * pnp.log(pnp.linalg.det(covariance))


def principal(v, x):
    """Compute Rayleigh's quotient after three steps of the power iteration."""
    gram = pnp.matmul(pnp.transpose(x), x)
    for _ in range(3):
        v = pnp.matmul(gram, v)
        v = v / pnp.sqrt(pnp.sum(v * v))
    return pnp.sum(v * pnp.matmul(gram, v))


def convolution(signal, kernel):
    """Return the energy of a circular convolution by way of the frequencies."""
    product = pnp.fft.fft(signal) * pnp.fft.fft(kernel)
    return pnp.sum(pnp.real(pnp.fft.ifft(product)) ** 2)


PROGRAMS = {
    "logistic regression": (logistic_regression, (np.array([0.1, -0.2, 0.3]), X, Y)),
    "network": (network, (np.linspace(-1, 1, 11), X, Y)),
    "cross entropy": (cross_entropy, (np.linspace(-1, 1, 9).reshape(3, 3), X, LABELS)),
    "k-means": (clustering, (np.array([[0.1, 0.2, 0.3], [-0.6, -0.5, 0.4]]), X)),
    "differential equation": (oscillator, (np.array([0.5, 0.1]),)),
    "normal density": (gaussian, (np.array([0.1, 0.2, 0.3]), X, SPREAD)),
    "power iteration": (principal, (np.array([1.0, 0.5, -0.3]), X)),
    "convolution": (convolution, (np.linspace(-1, 1, 6), KERNEL)),
}
"""The function and its arguments, the first of which it is differentiated by."""
