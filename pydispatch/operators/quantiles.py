"""The slope of a draw in the parameters of its distribution, at the same quantile.

A draw x of a distribution with density f and cumulative distribution F moves with a parameter p so that F(x, p) stays
constant: dx/dp = -(dF/dp) / f, the implicit reparameterization. That is an integral of f(t) / f(x) times the slope of
-log f(t) in p, over all t below x, or over all t above x with the opposite sign. We take the side on which nothing
cancels. There t is x exp(-v) or x exp(v), or the same with 1 - x, for v from 0 to infinity. The integrand falls at
least exponentially.
"""

from __future__ import annotations

import math

import numpy as np

from pydispatch.operators.declare import named, operators
from pydispatch.operators.random import quotient

(absolute, beta_slope, cos, detach, exp, expm1, gamma_slope, log, log1p, maximum, minimum, polygamma, remainder, sign,
 sqrt, where) = operators(
    "absolute", "random_beta_slope", "cos", "detach", "exp", "expm1", "random_gamma_slope", "log", "log1p", "maximum",
    "minimum", "random_polygamma", "remainder", "sign", "sqrt", "where")

STEP = 0.1
_T = np.arange(-3.5, 4.1, STEP)
NODES = np.exp(_T - np.exp(-_T))
WEIGHTS = STEP * NODES * (1 + np.exp(-_T))
"""The double-exponential rule for integrals from 0 to infinity of functions that fall like exp(-v) in the end.

It is accurate to 13 digits, whatever the function does on smaller scales, since its nodes are dense near 0.
"""
BLOCK = 96
"""The number of integrals that a kernel computes at a time, small enough for the allocator to reuse its memory."""


def scale_of(slope, curvature):
    """Return the v for which slope * v + curvature * v ** 2 / 2 is about 1."""
    return 2 / (slope + sqrt(slope * slope + 2 * curvature))


def along_nodes(scale):
    """Return the nodes for integrands that fall on this scale, and their weights, along a new axis, as constants."""
    scale = detach(scale)[..., None]
    return scale * NODES, scale * WEIGHTS


def gamma_slope_by_integral(shape, x):
    """Compute the slope of a draw `x` of a gamma distribution in its shape.

    Below x the integral is the one for shape + 1, by parts, since the terms of the other cancel for a small shape.
    """
    inside = (x > 0) & (shape > 0)
    x, shape = where(inside, x, 1.0), where(inside, shape, 1.0)
    below = x < shape + 1
    rate = where(below, shape + 1, shape)
    v, weights = along_nodes(scale_of(absolute(rate - x), x))
    signed = where(below[..., None], -v, v)
    falls = exp(rate[..., None] * signed - x[..., None] * expm1(signed)) * weights
    total, first = falls.sum(-1), (falls * v).sum(-1)
    surplus = log(x) - polygamma(rate)
    slope = where(below, -((1 + x * total) * surplus - x * first) / shape, total * surplus + first)
    return where(inside, x * slope, 0.0)


def beta_slope_by_integral(a, b, x, complement):
    """Compute the slope of a draw `x` of a beta distribution in `a`, where `complement` is 1 - x."""
    inside = (x > 0) & (complement > 0) & (a > 0) & (b > 0)
    a, b, x, y = where(inside, a, 1.0), where(inside, b, 1.0), where(inside, x, 0.5), where(inside, complement, 0.5)
    below = x * b <= y * a
    near, far = where(below, x, y), where(below, y, x)
    rate, power = where(below, a + 1, b), where(below, b - 2, a - 1)
    scale = scale_of(rate - power * near / far, absolute(power) * near / (far * far) + rate)
    v, weights = along_nodes(maximum(scale, 1 / rate))
    ratio = (near / far)[..., None]
    falls = exp(power[..., None] * log1p(-ratio * expm1(-v)) - rate[..., None] * v) * weights
    log_x = where(x < 0.5, log(x), log1p(-where(x < 0.5, 0.5, y)))
    log_t = log1p(-where(below, 0.5, y)[..., None] * exp(-v))
    surplus = polygamma(a + b) - polygamma(where(below, a + 1, a))
    part = (b - 1) * ratio[..., 0]
    lower = -x / a * ((log_x + surplus) * (1 + part * falls.sum(-1)) - part * (falls * v).sum(-1))
    upper = y * ((log_t + surplus[..., None]) * falls).sum(-1)
    return where(inside, where(below, lower, upper), 0.0)


def in_blocks(function):
    """Return a kernel that calls a pointwise function on a block of elements at a time."""
    def kernel(*args):
        arrays = np.broadcast_arrays(*args)
        shape, dtype = arrays[0].shape, np.result_type(*args, np.float16)
        flat = [array.ravel() for array in arrays]
        result = np.empty(arrays[0].size, dtype)
        with np.errstate(all="ignore"):
            for start in range(0, result.size, BLOCK):
                block = slice(start, start + BLOCK)
                result[block] = function(*[array[block] for array in flat])
        return result.reshape(shape)[()]
    return named(kernel, function.__name__)


BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""The Bernoulli numbers B2, B4, ..."""
STEPS = np.arange(10.0)


def polygamma_of_double(x, order=0):
    """Compute the derivative of order `order` + 1 of log(gamma(x)), for x > 0.

    It is computed by recurrence from the asymptotic series. With order -1 it is log(gamma(x)) itself.
    """
    x = np.asarray(x)
    dtype = np.result_type(x.dtype, np.float16)
    x = x.astype(np.result_type(dtype, float))
    if order < 0:
        return log_gamma(x).astype(dtype)[()]
    y, n = x + len(STEPS), math.factorial(order)
    steps = ((x[..., None] + STEPS) ** -(order + 1)).sum(-1)
    inverse, tail = 1 / y, np.zeros_like(x)
    square = inverse * inverse
    for j in range(len(BERNOULLI), 0, -1):
        tail = (tail + BERNOULLI[j - 1] * math.factorial(order + 2 * j - 1) / math.factorial(2 * j)) * square
    first = -np.log(y) if order == 0 else math.factorial(order - 1) * inverse ** order
    found = (-1) ** (order + 1) * (n * steps + first + n / 2 * inverse ** (order + 1) + tail * inverse ** order)
    return found.astype(dtype)[()]


def log_gamma(x):
    y = x + len(STEPS)
    tail = sum(b / (2 * j * (2 * j - 1)) * y ** (1 - 2 * j) for j, b in enumerate(BERNOULLI, 1))
    return (y - 0.5) * np.log(y) - y + math.log(2 * math.pi) / 2 + tail - np.log(x[..., None] + STEPS).sum(-1)


def in_shape(result, shape, scale):
    """Return the slope of a gamma variable in its shape."""
    return gamma_slope(shape, result) if scale is None else scale * gamma_slope(shape, quotient(result, scale, 0.0))


def t_slope(result, df):
    """Return the slope by the beta variable 1 / (1 + df / result ** 2), of parameters 1 / 2 and df / 2."""
    square = result * result
    x, y = square / (df + square), df / (df + square)
    return result / 2 * (1 / df - quotient(beta_slope(df / 2, 0.5, y, x), 2 * x * y, 0.0))


def f_slopes(result, dfnum, dfden):
    """Return the slopes by the beta variable 1 / (1 + dfden / (dfnum * result)).

    Its parameters are dfnum / 2 and dfden / 2.
    """
    whole = dfden + dfnum * result
    x, y = dfnum * result / whole, dfden / whole
    a, b = dfnum / 2, dfden / 2
    return (
        result * (quotient(beta_slope(a, b, x, y), 2 * x * y, 0.0) - 1 / dfnum),
        result * (1 / dfden - quotient(beta_slope(b, a, y, x), 2 * x * y, 0.0)),
    )


def wald_slopes(result, mean, scale):
    """Return the slopes by the normal tail, divided by the normal density, at `edge`."""
    edge = sqrt(scale / result) * (result / mean + 1)
    v, weights = along_nodes(scale_of(edge, 1.0))
    tail = (exp(-edge[..., None] * v - v * v / 2) * weights).sum(-1)
    part = 2 / mean * sqrt(result * result * result / scale) * tail
    return part * scale / mean, result / scale - part


LEGENDRE, LEGENDRE_WEIGHTS = np.polynomial.legendre.leggauss(48)


def integral(function, start, length):
    """Return the integral of a smooth function."""
    values = function(start[..., None] + length[..., None] * (LEGENDRE / 2 + 0.5))
    return (values * LEGENDRE_WEIGHTS).sum(-1) * length / 2


def concentration_slope(result, mu, kappa):
    """Return the slope of a draw of a von Mises distribution in `kappa`.

    It is computed by the integral from the draw to the end of its side.
    """
    angle = remainder(result - mu + math.pi, 2 * math.pi) - math.pi
    distance, steep = absolute(angle), kappa[..., None] if hasattr(kappa, "shape") else kappa
    width = minimum(sqrt(120 / maximum(detach(kappa), 1e-3)), math.pi) + 0 * detach(distance)
    total = integral(lambda t: exp(steep * (cos(t) - 1)), 0 * width, width)
    mean = integral(lambda t: cos(t) * exp(steep * (cos(t) - 1)), 0 * width, width) / total
    length = where(cos(distance) > mean, -distance, minimum(width, math.pi - distance))
    peak = cos(distance)[..., None]
    return sign(angle) * integral(
        lambda t: (cos(t) - mean[..., None]) * exp(steep * (cos(t) - peak)), distance, length)


# A noncentral variable is a central one with j more in its shape, for a random j that has a Poisson distribution. It
# therefore moves as the central ones do, on the average over the possible j, given the draw.

SIGMAS = 9.0


def mean_over_shapes(function, log_weight, likeliest, spread, n):
    """Return the mean of `function(j)` over j = 0, 1, ... with the weights exp(log_weight(j)).

    Where the first `n` numbers from 0 are not enough, the sum is taken over equal distances around the likeliest j.
    This is as good for weights as smooth as these.
    """
    start, spread = detach(likeliest - SIGMAS * spread)[..., None], detach(spread)[..., None]
    order = np.arange(float(n))
    j = where(start < 0, order, maximum(start, 0.0) + order * (2 * SIGMAS / (n - 1)) * spread)
    exponent = log_weight(j)
    weights = exp(exponent - detach(exponent).max(-1, keepdims=True))
    return (weights * function(j)).sum(-1) / weights.sum(-1)


def noncentral_gamma_mean(function, shape, x, half):
    """Return the mean of `function(j)` for the draw `x` of a gamma variable whose shape is larger by j.

    The variable has scale 1. j has a Poisson distribution of mean `half`.
    """
    product = half * x
    likeliest = maximum(sqrt((shape - 1) * (shape - 1) / 4 + product) - (shape + 1) / 2, 0.0)
    spread = sqrt(1 / (1 / (likeliest + 1) + 1 / (likeliest + shape)))
    log_product, shape = log(maximum(product, 1e-300))[..., None], (shape + 0 * product)[..., None]
    return mean_over_shapes(
        function, lambda j: j * log_product - polygamma(j + 1, -1) - polygamma(shape + j, -1), likeliest, spread, 96)


def noncentral_chisquare_slope(i, result, df, nonc):
    """Return the slope in the i-th parameter."""
    shape, x = df / 2, result / 2
    many, draw = (shape + 0 * x)[..., None], (x + 0 * shape)[..., None]
    return noncentral_gamma_mean(
        (lambda j: gamma_slope(many + j, draw), lambda j: draw / (many + j))[i], shape, x, nonc / 2)


def noncentral_beta_mean(function, a, b, x, half):
    """Return the mean of `function(j)` for the draw `x` of a beta variable whose parameter is a + j.

    j has a Poisson distribution of mean `half`.
    """
    product = half * x
    linear = (a + 1 - product) / 2
    likeliest = maximum(sqrt(maximum(linear * linear - a + product * (a + b), 0.0)) - linear, 0.0)
    spread = sqrt(1 / (1 / (likeliest + 1) + 1 / (likeliest + a) - 1 / (likeliest + a + b)))
    log_product, a = log(maximum(product, 1e-300))[..., None], (a + 0 * product)[..., None]
    whole = a + (b + 0 * product)[..., None]
    return mean_over_shapes(
        function, lambda j: j * log_product - polygamma(j + 1, -1) + polygamma(whole + j, -1) - polygamma(a + j, -1),
        likeliest, spread, 192)


def noncentral_f_slope(i, result, dfnum, dfden, nonc):
    """Return the slope in the i-th parameter, by the beta variable of `f_slopes`."""
    whole = dfden + dfnum * result
    x, y = dfnum * result / whole, dfden / whole
    a, b = dfnum / 2, dfden / 2
    many, others, below, above = ((value + 0 * x)[..., None] for value in (a, b, x, y))
    mean = noncentral_beta_mean((
        lambda j: beta_slope(many + j, others, below, above),
        lambda j: -beta_slope(others, many + j, above, below),
        lambda j: below * above / (many + j),
    )[i], a, b, x, nonc / 2)
    explicit = (-1 / dfnum, 1 / dfden, 0.0)[i]
    return result * (explicit + quotient(mean, 2 * x * y, 0.0))
