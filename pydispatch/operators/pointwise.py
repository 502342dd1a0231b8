"""Pointwise operators: every element of the result depends on one element of each argument."""

from __future__ import annotations

from math import log as log_of_number
from math import pi as pi_of_number

import numpy as np

from pydispatch._core import ArrayMethod, known_array
from pydispatch.operators.batching import batch_of
from pydispatch.operators.declare import IS_NUMPY_2_0, LAYOUT, copying, declare, exact, named, operators
from pydispatch.operators.layouts import in_order_of
from pydispatch.operators.meta import broadcast, pointwise_meta

absolute, copysign, cos, cosh, exp, exp2, hypot, imag, isfinite, isinf, isnan, ldexp, log = operators(
    "absolute", "copysign", "cos", "cosh", "exp", "exp2", "hypot", "imag", "isfinite", "isinf", "isnan", "ldexp", "log",
)
logaddexp, logaddexp2, rint, sign, sin, sinh, sqrt, where, zeros_like = operators(
    "logaddexp", "logaddexp2", "rint", "sign", "sin", "sinh", "sqrt", "where", "zeros_like",
)
LOG_2, LOG_10 = log_of_number(2), log_of_number(10)
RADIANS_PER_DEGREE = pi_of_number / 180
DOUBLE = np.float64(1)      # a factor that makes numbers double precision, at least

UFUNC_OPTIONS = ', *, ScalarType? dtype=None, str casting="same_kind"'
UNARY, BINARY = f"Tensor x{UFUNC_OPTIONS}", f"Tensor x1, Tensor x2{UFUNC_OPTIONS}"
UFUNC_LEFT_OUT = {
    "where": "use ops.np.where(mask, result, other): the other elements would be undefined",
    "signature": "use dtype=",
    **LAYOUT,
}


def pointwise(kernel, arguments=None, *, name=None, out=None, in_place=True, fills_out=True, left_out=UFUNC_LEFT_OUT,
              tags=(), vmap="pointwise", **parts):
    """Declare a pointwise operator. The arguments of a universal function are known."""
    name = name or kernel.__name__
    arguments = arguments or (UNARY, BINARY)[kernel.nin - 1]
    out = out or kernel
    declare(name, arguments, kernel, pointwise_meta(out), out=out, in_place=in_place, fills_out=fills_out,
            left_out=left_out, tags=("pointwise", *tags), broadcasts=True, vmap=vmap, **parts)


def predicate(kernel, **parts):
    """Declare a pointwise operator that returns a bool for each element. It has no in-place variant."""
    pointwise(kernel, in_place=False, tags=("predicate",), differentiable=False, **parts)


def comparison(kernel):
    """Declare a comparison."""
    predicate(comparison_of_numpy_2_0(kernel) if IS_NUMPY_2_0 else kernel, arguments=BINARY)


def comparison_of_numpy_2_0(kernel):
    """Return the comparison without a crash of NumPy 2.0.

    The crash occurs if a Python int exceeds the integer type of the other argument.
    """
    def compare(x1, x2, **options):
        if type(x2) is int and np.result_type(x1).kind in "iu":
            x2 = np.asarray(x2)
        elif type(x1) is int and np.result_type(x2).kind in "iu":
            x1 = np.asarray(x1)
        return kernel(x1, x2, **options)
    return named(compare, kernel.__name__)


def step(kernel, **parts):
    """Declare a pointwise operator that is piecewise constant, with gradients of zeros."""
    pointwise(kernel, vjp=(vanished,) * getattr(kernel, "nin", 1), **parts)


def vanished(g):
    return zeros_like(g)


# inside of transforms the results of such operators are constants, like those of comparisons
vanished.vanishes = True        # type: ignore[attr-defined]


# arithmetic


def is_nowhere(mask):
    """Return whether no element of a mask is True. Return False if the elements are unknown, as in a batch or trace."""
    known = known_array(mask)
    return type(known) in (np.ndarray, np.bool_) and not np.count_nonzero(known)


def tie_halved(g, chosen, tie):
    """Return the gradient where the argument is chosen, and half of it where both arguments are equal."""
    if is_nowhere(tie):
        return g * chosen
    return g * chosen + g * tie / 2


def absolute_vjp(g, x):
    # in place, the gradient may be complex, although the absolute values that were written are real
    return g.real * sign(x).conj() if x.dtype.kind == "c" else g * sign(x)


def sign_vjp(g, x, result):
    """Return the gradient of the sign, which is zero for real numbers.

    The sign of a complex number rotates with the number, more slowly the larger the number is.
    """
    if result.dtype.kind != "c":
        return zeros_like(g)
    return imag(g * result) * 1j * result.conj() / nonzero(absolute(x))


def sign_jvp(t, x, result):
    if result.dtype.kind != "c":
        return zeros_like(t)
    return imag(t * result.conj()) * 1j * result / nonzero(absolute(x))


def nonzero(x):
    """Return `x` with 1 instead of 0, to divide by or to take the logarithm of."""
    return x + (x == 0)


def power_vjp_of_base(g, x1, x2):
    """Return g x2 x1^(x2 - 1).

    It is 0 for x1^0, also at 0 and nan, where 1 / x1 may be infinite. It is also 0 for 0 = x1^±inf.
    """
    if type(x2) in (int, float) and x2 in (2, 3, 4):        # a logarithm and an exponential take longer
        return g * (x2 * (x1 if x2 == 2 else x1 * x1 if x2 == 3 else x1 * x1 * x1))
    constant = x2 == 0
    if constant is not False:
        x1 = where(constant & ~(absolute(x1) >= np.finfo(x1.dtype).tiny), 1.0, x1)
    power = x1 ** (x2 - 1.0)
    if type(x2) is not int:
        infinite = isinf(x2)
        if not is_nowhere(infinite):
            x2 = where(infinite & (power == 0), 0.0, x2)
    return g * (x2 * power)


def power_jvp_of_base(t, x1, x2):
    """Return the tangent by `power_vjp_of_base`, or as that of a square root for the exponent 0.5."""
    return along(t, 2 * sqrt(x1)) if type(x2) is float and x2 == 0.5 else power_vjp_of_base(t, x1, x2)


def power_vjp_of_exponent(g, x1, result):
    """Return g x1^x2 log(x1), with 0 where that power is 0, and for 0^0.

    The logarithm is complex if the power is.
    """
    constant = (result == 0) | ((x1 == 0) & isfinite(result))
    return g * (result * log(where(constant, 1.0, x1), dtype=result.dtype))


def fmod_vjp_of_divisor(g, x1, x2, result):
    """Return -g times the quotient, rounded towards zero.

    The quotient is an integer, which division without rounding may miss.
    """
    return -g * rint((x1 - result) / x2)


pointwise(np.add, vjp=(lambda g: g, lambda g: g))
pointwise(np.subtract, vjp=(lambda g: g, lambda g: -g))
pointwise(np.multiply, vjp=(lambda g, x2: g * x2, lambda g, x1: g * x1))
pointwise(np.divide, vjp=(lambda g, x2: g / x2, lambda g, x2, result: -g * (result / x2)))
step(np.floor_divide)
pointwise(np.remainder, vjp=(lambda g: g, lambda g, x1, x2: -g * (x1 // x2)))
pointwise(np.fmod, vjp=(lambda g: g, fmod_vjp_of_divisor))
pointwise(np.power, vjp=(power_vjp_of_base, power_vjp_of_exponent), jvp=(power_jvp_of_base, power_vjp_of_exponent))
pointwise(np.float_power, vjp=(
    lambda g, x1, x2: power_vjp_of_base(g, x1 * DOUBLE, x2),
    lambda g, x1, result: power_vjp_of_exponent(g, x1 * DOUBLE, result)))
pointwise(np.negative, vjp=lambda g: -g)
pointwise(np.positive, vjp=lambda g: g)
pointwise(np.absolute, vjp=absolute_vjp, jvp=lambda t, x: (t * sign(x).conj()).real)
pointwise(np.fabs, vjp=lambda g, x: g * sign(x))
pointwise(np.sign, vjp=sign_vjp, jvp=sign_jvp)
pointwise(np.square, vjp=lambda g, x: g * (2 * x))
pointwise(np.reciprocal, vjp=lambda g, result: -g * (result * result))
pointwise(np.conjugate, vjp=lambda g: g.conj())
pointwise(np.maximum, vjp=(
    lambda g, x1, x2: tie_halved(g, x1 > x2, x1 == x2), lambda g, x1, x2: tie_halved(g, x1 < x2, x1 == x2)))
pointwise(np.minimum, vjp=(
    lambda g, x1, x2: tie_halved(g, x1 < x2, x1 == x2), lambda g, x1, x2: tie_halved(g, x1 > x2, x1 == x2)))
pointwise(np.fmax, vjp=(
    lambda g, x1, x2: g * ((x1 >= x2) | isnan(x2)), lambda g, x1, x2: g * ~((x1 >= x2) | isnan(x2))))
pointwise(np.fmin, vjp=(
    lambda g, x1, x2: g * ((x1 <= x2) | isnan(x2)), lambda g, x1, x2: g * ~((x1 <= x2) | isnan(x2))))
pointwise(np.copysign, vjp=(lambda g, x1, result: g * (sign(x1) * sign(result)), vanished))
pointwise(np.heaviside, vjp=(vanished, lambda g, x1: g * (x1 == 0)))
pointwise(np.nextafter, vjp=(lambda g: g, vanished))
pointwise(np.ldexp, vjp=(lambda g, x2: ldexp(g, x2), None))
pointwise(np.gcd, differentiable=False)
pointwise(np.lcm, differentiable=False)

# powers, exponentials, logarithms


def of_norm(x, norm):
    """Return x / norm, where norm is at least as large as x.

    It is 0 where norm is 0, and the sign of x where x is infinite.
    """
    infinite = isinf(x)
    if is_nowhere(infinite):
        return x / nonzero(norm)
    return where(infinite, copysign(1.0, x), where(infinite, zeros_like(norm), x) / nonzero(norm))


def logaddexp_vjp(g, x, other, exp=exp, logaddexp=logaddexp):
    """Return g / (1 + e^(other - x)), or the corresponding gradient for another base.

    It is half of g where both arguments are the same infinity.
    """
    tie = isinf(x) & (x == other)
    if not is_nowhere(tie):
        zeros = zeros_like(x)
        x, other = where(tie, zeros, x), where(tie, zeros, other)
    return g * exp(-logaddexp(0.0, other - x))


def along(t, divisor):
    """Return t / divisor, with 0 for a tangent of 0 also where the divisor is 0.

    A constant does not move where a slope is infinite. The divisor 0 is replaced by the least number, which leaves a
    further derivative infinite.
    """
    steep = divisor == 0
    if is_nowhere(steep):
        return t / divisor
    return t / where(steep & (t == 0), np.finfo(divisor.dtype).smallest_subnormal, divisor)


pointwise(np.sqrt, vjp=lambda g, result: g / (2 * result), jvp=lambda t, result: along(t, 2 * result))
pointwise(np.cbrt, vjp=lambda g, result: g / (3 * result * result))
pointwise(np.exp, vjp=lambda g, result: g * result)
pointwise(np.exp2, vjp=lambda g, result: g * (LOG_2 * result))
pointwise(np.expm1, vjp=lambda g, result: g * (result + 1))
pointwise(np.log, vjp=lambda g, x: g / x)
pointwise(np.log2, vjp=lambda g, x: g / (LOG_2 * x))
pointwise(np.log10, vjp=lambda g, x: g / (LOG_10 * x))
pointwise(np.log1p, vjp=lambda g, x: g / (x + 1))
pointwise(np.logaddexp, vjp=(
    lambda g, x1, x2: logaddexp_vjp(g, x1, x2), lambda g, x1, x2: logaddexp_vjp(g, x2, x1)))
pointwise(np.logaddexp2, vjp=(
    lambda g, x1, x2: logaddexp_vjp(g, x1, x2, exp2, logaddexp2),
    lambda g, x1, x2: logaddexp_vjp(g, x2, x1, exp2, logaddexp2)))
pointwise(np.hypot, vjp=(
    lambda g, x1, result: g * of_norm(x1, result), lambda g, x2, result: g * of_norm(x2, result)))

# trigonometry


def over_norm(x, x1, x2):
    """Return x / (x1² + x2²), 0 where both are 0."""
    norm = hypot(x1, x2)
    return of_norm(x, norm) / nonzero(norm)


pointwise(np.sin, vjp=lambda g, x: g * cos(x))
pointwise(np.cos, vjp=lambda g, x: g * -sin(x))
pointwise(np.tan, vjp=lambda g, result: g * (result * result + 1))
pointwise(np.arcsin, vjp=lambda g, x: g / sqrt(1 - x * x), jvp=lambda t, x: along(t, sqrt(1 - x * x)))
pointwise(np.arccos, vjp=lambda g, x: -g / sqrt(1 - x * x), jvp=lambda t, x: along(-t, sqrt(1 - x * x)))
pointwise(np.arctan, vjp=lambda g, x: g / (x * x + 1))
pointwise(np.arctan2, vjp=(lambda g, x1, x2: g * over_norm(x2, x1, x2), lambda g, x1, x2: -g * over_norm(x1, x1, x2)))
pointwise(np.deg2rad, vjp=lambda g: g * RADIANS_PER_DEGREE)
pointwise(np.radians, vjp=lambda g: g * RADIANS_PER_DEGREE)
pointwise(np.rad2deg, vjp=lambda g: g / RADIANS_PER_DEGREE)
pointwise(np.degrees, vjp=lambda g: g / RADIANS_PER_DEGREE)
pointwise(np.sinh, vjp=lambda g, x: g * cosh(x))
pointwise(np.cosh, vjp=lambda g, x: g * sinh(x))
pointwise(np.tanh, vjp=lambda g, result: g * (1 - result * result))
pointwise(np.arcsinh, vjp=lambda g, result: g / cosh(result))
pointwise(np.arccosh, vjp=lambda g, x: g / sqrt(x - 1) / sqrt(x + 1),
          jvp=lambda t, x: along(t, sqrt(x - 1)) / sqrt(x + 1))
pointwise(np.arctanh, vjp=lambda g, x: g / ((1 - x) * (1 + x)))

# rounding and limits

CLIP = ArrayMethod("clip")


def clip(a, a_min=None, a_max=None, *, min=None, max=None, **options):
    """Clip the elements of `a` to the limits. Each limit has two names, as in NumPy, and may be missing."""
    if min is not None or max is not None:
        if a_min is not None or a_max is not None:
            raise ValueError("clip: limits are given both as a_min, a_max and as min, max\npass one of the two pairs")
        a_min, a_max = min, max
    return CLIP(a, a_min, a_max, **options)


def round_of_numpy_2_0(a, decimals=0):
    """Round, with a copy of an array of integers, which NumPy 2.0 returns itself."""
    result = ROUND(a, decimals)
    return result.copy() if result is a else result


def between_limits(g, a, a_min, a_max, min, max):
    """Return the gradient where a clip leaves the element unchanged."""
    low, high = a_min if min is None else min, a_max if max is None else max
    if low is None or high is None:
        return g if low is high else g * (a >= low if high is None else a <= high)
    return g * ((a >= low) & (a <= high))


def at_lower_limit(g, a, low, high):
    """Return the gradient where a clip gives the lower limit: it exceeds the element, but not the upper limit."""
    return g * (a < low) if high is None else g * ((a < low) & (low <= high))


def at_upper_limit(g, a, low, high):
    """Return the gradient where a clip gives the upper limit: the element or the lower limit exceeds it."""
    return g * (a > high) if low is None else g * ((a > high) | (low > high))


step(np.floor)
step(np.ceil)
step(np.trunc)
step(np.rint)
step(np.spacing)
ROUND = ArrayMethod("round")


def round_batch(op, info, in_dims, a, decimals, *out):
    """Round a batch of examples, in the layout of NumPy's results.

    NumPy rounds an array in F order to one in F order. A batch of such examples is in neither order.
    """
    a = batch_of(a, in_dims[0], info.batch_size)
    if out:
        return op(a, decimals, out=out[0]), 0
    return in_order_of(op(a, decimals), a, is_batch=True) if decimals else op(a), 0


step(named(round_of_numpy_2_0, "round") if IS_NUMPY_2_0 else ROUND,
     arguments="Tensor a, int decimals=0", vmap=round_batch, out=exact("round", ROUND, lambda shape, *rest: shape),
     fills_out=False, left_out={})
pointwise(
    clip, f"Tensor a, Tensor? a_min=None, Tensor? a_max=None{UFUNC_OPTIONS}, Tensor? min=None, Tensor? max=None", vjp=(
        between_limits,
        lambda g, a, a_min, a_max: at_lower_limit(g, a, a_min, a_max),
        lambda g, a, a_min, a_max: at_upper_limit(g, a, a_min, a_max),
        lambda g, a, min, max: at_lower_limit(g, a, min, max),
        lambda g, a, min, max: at_upper_limit(g, a, min, max)))

# comparison and predicates

comparison(np.equal)
comparison(np.not_equal)
comparison(np.less)
comparison(np.less_equal)
comparison(np.greater)
comparison(np.greater_equal)
predicate(np.isnan)
predicate(np.isinf)
predicate(np.isfinite)
predicate(np.signbit)

# logic and bits

pointwise(np.logical_and, differentiable=False)
pointwise(np.logical_or, differentiable=False)
pointwise(np.logical_xor, differentiable=False)
pointwise(np.logical_not, differentiable=False)
pointwise(np.bitwise_and, differentiable=False)
pointwise(np.bitwise_or, differentiable=False)
pointwise(np.bitwise_xor, differentiable=False)
pointwise(np.invert, differentiable=False)
pointwise(np.left_shift, differentiable=False)
pointwise(np.right_shift, differentiable=False)
pointwise(np.bitwise_count, differentiable=False)

# choice and composition


def complex_numbers(real, imag):
    """Combine real and imaginary parts exactly: `real + 1j * imag` loses infinities, NaNs and negative zeros."""
    dtype = np.result_type(np.result_type(real, imag), np.complex64)
    result = np.empty(broadcast((np.shape(real), np.shape(imag))), dtype)
    np.copyto(result.real, real)
    np.copyto(result.imag, imag)
    return result


pointwise(np.where, "Tensor condition, Tensor x, Tensor y", out=copying("where", np.where), in_place=False,
          fills_out=False, left_out={}, tags=("zero_d_array",), vjp=(
              None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)))
declare("complex", "Tensor real, Tensor imag", complex_numbers, pointwise_meta(complex_numbers),
        tags=("pointwise", "zero_d_array"),
        broadcasts=True, vmap="pointwise", vjp=(lambda g: g.real, lambda g: -imag(g)), jvp="linear")
