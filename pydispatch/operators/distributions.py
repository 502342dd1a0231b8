"""Operators that draw from distributions that programs rarely need, and in ways that they rarely need.

`random.py` describes how a draw is declared, batched and differentiated.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch._core import AnyDevice, MetaArray, sum_to
from pydispatch._registry.derivatives import Joint
from pydispatch.autograd import randomness
from pydispatch.operators import quantiles
from pydispatch.operators.batching import padded
from pydispatch.operators.declare import declare, install, named, operators
from pydispatch.operators.meta import pointwise_meta, shape_of
from pydispatch.operators.random import (
    LOCATION,
    TAGS,
    by_location,
    by_scale,
    called,
    cast_from,
    check_real,
    distribution,
    drawn_shape,
    example_shape,
    numpys,
    quotient,
)
from pydispatch.ops import ops

beta_slope, gamma_slope, log, log1p, matmul, pile, polygamma, select, swapaxes, where, zeros = operators(
    "random_beta_slope", "random_gamma_slope", "log", "log1p", "matmul", "stack", "random_polygamma", "getitem",
    "swapaxes", "where", "zeros")

# --- standard distributions, which are drawn in single or double precision -------------------------------------------


def floating(name, dtype):
    if dtype is None:
        return np.dtype(float)
    if dtype not in (np.float64, np.float32):
        raise TypeError(f"{name}: dtype is {dtype}, expected float64 or float32\n"
                        "convert the result: result.astype(dtype)")
    return dtype


IN_PRECISION = "ScalarType? dtype=None, *, Device? device=None"

distribution("random", "", floating, options=IN_PRECISION)
distribution("standard_normal", "", floating, options=IN_PRECISION)
distribution("standard_exponential", "", floating,
             options='ScalarType? dtype=None, str method="zig", *, Device? device=None')
distribution("standard_cauchy", "", cast_from(float))

# --- distributions whose draws are functions of their parameters and a number that does not depend on them -----------


def x_log_x(x):
    return x * log(where(x == 0, 1.0, x))


def lognormal_slope(result, mean, sigma):
    """Return the slope in sigma: the result times the normal number that gave it."""
    exponent = log(where(result == 0, 1.0, result))
    return result * quotient(exponent if mean is None else exponent - mean, sigma, 0.0)


def power_slope(result, a):
    """Return the slope in a, where the result is z ** (1 / a)."""
    return quotient(-x_log_x(result), a, 0.0)


def pareto_slope(result, a):
    """Return the slope in a, where the result is z ** (1 / a) - 1."""
    return quotient(-(1 + result) * log1p(result), a, 0.0)


def triangular_slopes(result, left, mode, right):
    """Return the slopes in left, mode and right.

    The square of the distance from the nearer end grows in proportion to the number drawn.
    """
    width, rises = right - left, result <= mode
    part = where(rises, result - left, right - result) / 2
    of_side = quotient(part, where(rises, mode - left, right - mode), 0.5)
    of_width = quotient(part, width, 0.25)
    rest = 1 - of_side - of_width
    return where(rises, rest, of_width), of_side, where(rises, of_width, rest)


for name in ("laplace", "logistic"):
    distribution(name, LOCATION, cast_from(float), defaults=(0.0, 1.0), vjp=by_location(0.0))
distribution("gumbel", LOCATION, cast_from(float), defaults=(0.0, 1.0), vjp=by_location(np.euler_gamma))
distribution("rayleigh", "Tensor? scale=None", cast_from(float), defaults=(1.0,), vjp=by_scale(math.sqrt(math.pi / 2)))
distribution("lognormal", "Tensor? mean=None, Tensor? sigma=None", cast_from(float), defaults=(0.0, 1.0), vjp=(
    lambda g, result: g * result, lambda g, result, mean, sigma: g * lognormal_slope(result, mean, sigma)))
for name in ("weibull", "power"):
    distribution(name, "Tensor a", cast_from(float), vjp=lambda g, result, a: g * power_slope(result, a))
distribution("pareto", "Tensor a", cast_from(float), vjp=lambda g, result, a: g * pareto_slope(result, a))
distribution(
    "triangular", "Tensor left, Tensor mode, Tensor right", cast_from(float),
    vjp=Joint(lambda g, result, left, mode, right: [
        g * slope for slope in triangular_slopes(result, left, mode, right)]),
    jvp=(
        lambda t, result, left, mode, right: t * triangular_slopes(result, left, mode, right)[0],
        lambda t, result, left, mode, right: t * triangular_slopes(result, left, mode, right)[1],
        lambda t, result, left, mode, right: t * triangular_slopes(result, left, mode, right)[2],
    ))

# --- distributions whose draws move with their parameters at the same quantile ---------------------------------------


def pointwise(name, arguments, kernel, **parts):
    """Declare a pointwise function that formulas need."""
    declare(f"random_{name}", arguments, named(kernel, f"random_{name}"), pointwise_meta(kernel), tags=("pointwise",),
            broadcasts=True, vmap="pointwise", **parts)


pointwise("polygamma", "Tensor x, int order=0", quantiles.polygamma_of_double,
          vjp=lambda g, x, order: g * polygamma(x, order + 1))
pointwise("gamma_slope", "Tensor shape, Tensor x", quantiles.in_blocks(quantiles.gamma_slope_by_integral),
          differentiated_as=quantiles.gamma_slope_by_integral)
pointwise("beta_slope", "Tensor a, Tensor b, Tensor x, Tensor complement",
          quantiles.in_blocks(quantiles.beta_slope_by_integral), differentiated_as=quantiles.beta_slope_by_integral)


distribution("standard_gamma", "Tensor shape", floating, options=IN_PRECISION,
             vjp=lambda g, result, shape: g * gamma_slope(shape, result))
distribution("gamma", "Tensor shape, Tensor? scale=None", cast_from(float), vjp=(
    lambda g, result, shape, scale: g * quantiles.in_shape(result, shape, scale),
    lambda g, result, shape, scale: g * quotient(result, scale, shape)))
distribution("chisquare", "Tensor df", cast_from(float),
             vjp=lambda g, result, df: g * gamma_slope(df / 2, result / 2))
distribution("beta", "Tensor a, Tensor b", cast_from(float), vjp=(
    lambda g, result, a, b: g * beta_slope(a, b, result, 1 - result),
    lambda g, result, a, b: -g * beta_slope(b, a, 1 - result, result)))
distribution("standard_t", "Tensor df", cast_from(float), vjp=lambda g, result, df: g * quantiles.t_slope(result, df))
distribution("f", "Tensor dfnum, Tensor dfden", cast_from(float), vjp=(
    lambda g, result, dfnum, dfden: g * quantiles.f_slopes(result, dfnum, dfden)[0],
    lambda g, result, dfnum, dfden: g * quantiles.f_slopes(result, dfnum, dfden)[1]))
distribution("wald", "Tensor mean, Tensor scale", cast_from(float), vjp=(
    lambda g, result, mean, scale: g * quantiles.wald_slopes(result, mean, scale)[0],
    lambda g, result, mean, scale: g * quantiles.wald_slopes(result, mean, scale)[1]))
distribution("vonmises", "Tensor mu, Tensor kappa", cast_from(float), vjp=(
    lambda g: g, lambda g, result, mu, kappa: g * quantiles.concentration_slope(result, mu, kappa)))
distribution("noncentral_chisquare", "Tensor df, Tensor nonc", cast_from(float), vjp=(
    lambda g, result, df, nonc: g * quantiles.noncentral_chisquare_slope(0, result, df, nonc),
    lambda g, result, df, nonc: g * quantiles.noncentral_chisquare_slope(1, result, df, nonc)))
distribution("noncentral_f", "Tensor dfnum, Tensor dfden, Tensor nonc", cast_from(float), vjp=(
    lambda g, result, dfnum, dfden, nonc: g * quantiles.noncentral_f_slope(0, result, dfnum, dfden, nonc),
    lambda g, result, dfnum, dfden, nonc: g * quantiles.noncentral_f_slope(1, result, dfnum, dfden, nonc),
    lambda g, result, dfnum, dfden, nonc: g * quantiles.noncentral_f_slope(2, result, dfnum, dfden, nonc)))

# --- integers --------------------------------------------------------------------------------------------------------

for name, parameters in {
    "negative_binomial": "Tensor n, Tensor p", "geometric": "Tensor p", "logseries": "Tensor p", "zipf": "Tensor a",
    "hypergeometric": "Tensor ngood, Tensor nbad, Tensor nsample",
}.items():
    distribution(name, parameters, cast_from(int))

# --- draws of vectors ------------------------------------------------------------------------------------------------


def vector_of(name, argument, x):
    """Return the length of a vector. Raise ValueError for anything else."""
    if len(shape_of(x)) != 1:
        raise ValueError(f"{name}: argument {argument} has shape {shape_of(x)}, expected one axis\n"
                         "draw for each vector, in vmap(..., randomness='different')")
    return shape_of(x)[0]


def in_turn(op, info, in_dims, args, batch_shape, dtype=float, *, enlarges=True):
    """Draw for each example in turn: the batching rule of draws whose parameters are not batched.

    Without batched parameters there is one draw of a larger size, if a larger size only `enlarges` the draw.
    `batch_shape` is the shape of the result for an example, for an empty batch.
    """
    if randomness.randomness_of(op, info) == "same":
        randomness.check_shared(op, info, in_dims, args)
        return called(op, args), None
    if enlarges and all(dim is None for dim in in_dims):
        place = next(i for i, argument in enumerate(op.schema.arguments) if argument.name == "size")
        size = (info.batch_size, *(args[place] or ()))
        return called(op, (*args[:place], size, *args[place + 1:])), 0
    if info.batch_size == 0:
        return zeros((0, *batch_shape), dtype=np.dtype(dtype)), 0
    examples = [[value if dim is None else select(value, i) for value, dim in zip(args, in_dims, strict=True)]
                for i in range(info.batch_size)]
    return pile([called(op, example) for example in examples]), 0


def vectors(name, parameters, meta, batch, **parts):
    """Declare draws of vectors by the method of Generator of that name."""
    kernel = named(meta, f"random_{name}")
    declare(f"random_{name}", f"Generator generator, {parameters}, Device? device=None",
            AnyDevice(vector_kernel(name)), AnyDevice(kernel), tags=TAGS, vmap=batch, **parts)


def vector_kernel(name):
    def kernel(generator, *args, **options):
        return getattr(numpys(generator), name)(*args, **options)
    return named(kernel, f"random_{name}")


def dirichlet_meta(generator, alpha, size=None):
    check_real("random_dirichlet", (alpha,))
    return MetaArray((*(size or ()), vector_of("random_dirichlet", "alpha", alpha)), np.dtype(float))


def dirichlet_slopes(result, alpha):
    """Return the slope of each component in its parameter, divided by the component's distance from 1.

    The other components shrink in proportion.
    """
    rest = 1 - result
    others = alpha.sum(-1, keepdims=True) - alpha
    return quotient(beta_slope(alpha, others, result, rest), rest, 0.0)


def dirichlet_vjp(g, result, alpha, alpha_shape):
    return sum_to(dirichlet_slopes(result, alpha) * (g - (g * result).sum(-1, keepdims=True)), alpha_shape)


def dirichlet_jvp(t, result, alpha):
    moved = t * dirichlet_slopes(result, alpha)
    return moved - result * moved.sum(-1, keepdims=True)


def dirichlet_batch(op, info, in_dims, *args):
    return in_turn(op, info, in_dims, args, (*(args[2] or ()), *args[1].shape[-1:]))


vectors("dirichlet", "Tensor alpha, int[1]? size=None, *", dirichlet_meta, dirichlet_batch, vjp=dirichlet_vjp,
        jvp=dirichlet_jvp)


def multivariate_normal_meta(generator, mean, cov, size=None, check_valid="warn", tol=1e-8, *, method="svd"):
    name = "random_multivariate_normal"
    check_real(name, (mean, cov))
    n = vector_of(name, "mean", mean)
    if shape_of(cov) != (n, n):
        raise ValueError(f"{name}: argument cov has shape {shape_of(cov)}, mean has length {n}\n"
                         "pass the covariances of all pairs, a square matrix")
    return MetaArray((*(size or ()), n), np.dtype(float))


def half(matrix):
    """Return the lower triangle with half of the diagonal.

    This is the derivative of the Cholesky factor at the unit matrix.
    """
    n = matrix.shape[-1]
    return matrix * (np.tril(np.ones((n, n))) - 0.5 * np.eye(n))


def transposed(matrix):
    return swapaxes(matrix, -1, -2)


def covariance_vjp(g, result, mean, cov):
    """Return the gradient of the covariance.

    The result is treated as mean + L z, with L the Cholesky factor and z the vector that gives this result.
    """
    factor, solve = ops.np.linalg_cholesky(cov), ops.np.linalg_solve    # loaded on first use
    n = factor.shape[-1]
    deviations = (result - mean).reshape(-1, n)
    z = solve(factor, transposed(deviations))
    inner = half(matmul(transposed(factor), matmul(transposed(g.reshape(-1, n)), transposed(z))))
    outer = transposed(solve(transposed(factor), transposed(solve(transposed(factor), inner))))
    return (outer + transposed(outer)) / 2


def covariance_jvp(t, result, mean, cov):
    factor, solve = ops.np.linalg_cholesky(cov), ops.np.linalg_solve    # loaded on first use
    n = factor.shape[-1]
    z = solve(factor, transposed((result - mean).reshape(-1, n)))
    inner = transposed(solve(factor, transposed(solve(factor, (t + transposed(t)) / 2))))
    return transposed(matmul(matmul(factor, half(inner)), z)).reshape(result.shape)


def multivariate_normal_batch(op, info, in_dims, *args):
    return in_turn(op, info, in_dims, args, (*(args[3] or ()), *args[1].shape[-1:]))


vectors("multivariate_normal",
        'Tensor mean, Tensor cov, int[1]? size=None, str check_valid="warn", float tol=1e-08, *, str method="svd"',
        multivariate_normal_meta, multivariate_normal_batch,
        vjp=(lambda g, mean_shape: sum_to(g, mean_shape), covariance_vjp), jvp=(lambda t: t, covariance_jvp))


def multinomial_shape(n_shape, pvals_shape, size):
    if not pvals_shape or not pvals_shape[-1]:
        raise ValueError(f"random_multinomial: argument pvals has shape {pvals_shape}, expected at least one element "
                         "along its last axis\npass the probability of each outcome")
    return *drawn_shape("random_multinomial", (n_shape, pvals_shape[:-1]), size), pvals_shape[-1]


def multinomial_meta(generator, n, pvals, size=None):
    check_real("random_multinomial", (n, pvals))
    return MetaArray(multinomial_shape(shape_of(n), shape_of(pvals), size), np.dtype(int))


def multinomial_batch(op, info, in_dims, generator, n, pvals, size, device):
    if randomness.randomness_of(op, info) == "same":
        randomness.check_shared(op, info, in_dims, (generator, n, pvals, size, device))
        return op(generator, n, pvals, size, device=device), None
    shape = multinomial_shape(example_shape(n, in_dims[1]), example_shape(pvals, in_dims[2]), size)[:-1]
    n = n if in_dims[1] is None else padded(n, len(shape))
    pvals = pvals if in_dims[2] is None else padded(pvals, len(shape) + 1)
    return op(generator, n, pvals, (info.batch_size, *shape), device=device), 0


vectors("multinomial", "Tensor n, Tensor pvals, int[1]? size=None, *", multinomial_meta, multinomial_batch,
        differentiable=False)


def multivariate_hypergeometric_meta(generator, colors, nsample, size=None, method="marginals"):
    return MetaArray((*(size or ()), vector_of("random_multivariate_hypergeometric", "colors", colors)), np.dtype(int))


def multivariate_hypergeometric_batch(op, info, in_dims, *args):
    return in_turn(op, info, in_dims, args, (*(args[3] or ()), *args[1].shape[-1:]), int)


vectors("multivariate_hypergeometric",
        'Tensor colors, int nsample, int[1]? size=None, str method="marginals", *', multivariate_hypergeometric_meta,
        multivariate_hypergeometric_batch, differentiable=False)

# --- choices and permutations: positions of elements -----------------------------------------------------------------


def choice_kernel(generator, a, size=None, replace=True, p=None, shuffle=True):
    return np.asarray(numpys(generator).choice(a, size, replace, p, 0, shuffle))[()]


def choice_meta(generator, a, size=None, replace=True, p=None, shuffle=True):
    if p is not None and shape_of(p) != (a,):
        raise ValueError(f"random_choice: argument p has shape {shape_of(p)}, but there are {a} elements\n"
                         "pass one probability for each")
    n = math.prod(size or ())
    if n > (0 if a == 0 else n if replace else a):
        raise ValueError(f"random_choice: {n} elements cannot be chosen from {a}\n"
                         "choose fewer, or choose from at least one with replace=True")
    return MetaArray(size or (), np.dtype(int))


def choice_batch(op, info, in_dims, *args):
    return in_turn(op, info, in_dims, args, args[2] or (), int, enlarges=args[3])


declare("random_choice", "Generator generator, int a, int[1]? size=None, bool replace=True, Tensor? p=None, "
        "bool shuffle=True, *, Device? device=None", AnyDevice(choice_kernel), AnyDevice(choice_meta), tags=TAGS,
        vmap=choice_batch, differentiable=False)


def orders_kernel(generator, shape, axis=-1):
    order = np.arange(shape[axis]).reshape((-1,) + (1,) * (len(shape) - 1 - normalize_axis_index(axis, len(shape))))
    return numpys(generator).permuted(np.broadcast_to(order, shape), axis=axis)


def orders_meta(generator, shape, axis=-1):
    normalize_axis_index(axis, len(shape))
    return MetaArray(shape, np.dtype(int))


def orders_batch(op, info, in_dims, generator, shape, axis, device):
    if randomness.randomness_of(op, info) == "same":
        return op(generator, shape, axis, device=device), None
    axis = normalize_axis_index(axis, len(shape)) + 1
    return op(generator, (info.batch_size, *shape), axis, device=device), 0


declare("random_orders", "Generator generator, int[] shape, int axis=-1, *, Device? device=None",
        AnyDevice(orders_kernel), AnyDevice(orders_meta), tags=TAGS, vmap=orders_batch, differentiable=False)

# --- generators ------------------------------------------------------------------------------------------------------


OF_GENERATORS, OF_STATES = ("generators",), ("states",)     # `random_default_rng` is declared beside its Generator


def copy_made(generator):
    made = randomness.copy_of_generator(generator)
    randomness.note_made(made)
    return made


declare("random_copy", "Generator generator", copy_made, copy_made, returns="Generator", tags=OF_STATES,
        differentiable=False)


def state_meta(generator):
    return MetaArray(randomness.words_of_state(generator).shape, np.dtype(np.uint64))


def restored(generator, state):
    made = randomness.with_words(generator, state)
    randomness.note_made(made)
    return made


def restored_meta(generator, state):
    return copy_made(generator)


def restored_batch(op, info, in_dims, generator, state):
    return op(generator, select(state, 0)), None


declare("random_state", "Generator generator", randomness.words_of_state, state_meta, tags=OF_STATES,
        differentiable=False)
declare("random_restored", "Generator generator, Tensor state", restored, restored_meta, returns="Generator",
        vmap=restored_batch, tags=OF_GENERATORS, differentiable=False)

install("random")
