"""odeint and quad: closed forms, SciPy's values, and every transform against them."""

import tracemalloc

import numpy as np
import pytest
from scipy import integrate as reference

from pydispatch import Tensor, compile, ops
from pydispatch.exceptions import ConvergenceError, DataDependentError, DispatchTypeError
from pydispatch.func import grad, jacfwd, jvp, linearize, vmap
from pydispatch.scipy.integrate import IntegrationWarning, odeint, quad
from pydispatch.tracing import make_fx
from tests.higher_order import compositions

X = np.array([0.3, 0.9])
BATCH = np.array([[0.3, 0.9], [0.1, 0.4], [0.8, 0.2]])
TIMES = np.array([0.0, 0.3, 1.0])
FINE = {"rtol": 1e-11, "atol": 1e-11}


def decay(k):
    """Solve dy/dt = -k y from (1, 2)."""
    return odeint(lambda y, t, k: -k * y, np.array([1.0, 2.0]), TIMES, (k,), **FINE)


def decay_by_hand(k):
    return np.array([1.0, 2.0]) * ops.np.exp(-k * TIMES[:, None])


def captured(x):
    """Integrate a pytree that starts from x, with a captured rate."""
    rate = ops.np.sin(x)
    found = odeint(lambda s, t: {"y": rate * s["y"] * ops.np.cos(t)}, {"y": x + 1.0}, TIMES, **FINE)
    return found["y"]


def captured_by_hand(x):
    return (x + 1.0) * ops.np.exp(ops.np.sin(x) * np.sin(TIMES)[:, None])


def until(x):
    t = TIMES[:2] * (x[0] + 1.0) + x[1]
    return odeint(lambda y, t: y * t, np.ones(2), t, **FINE)


def until_by_hand(x):
    t = TIMES[:2] * (x[0] + 1.0) + x[1]
    return ops.np.exp(0.5 * ops.np.reshape(t * t - t[0] * t[0], (-1, 1))) * np.ones(2)


def gaussian(s):
    y, _ = quad(lambda x: ops.np.exp(-(s + 1.0) * x * x), -np.inf, np.inf, epsabs=1e-12, epsrel=1e-12)
    return y


def gaussian_by_hand(s):
    return ops.np.sqrt(np.pi / (s + 1.0))


def between(s):
    found, _ = quad(lambda x, s: (ops.np.exp(s[0] * x), s * x), s[0], s[1] + 1.0, (s,), epsabs=1e-13, epsrel=1e-13)
    return found


def between_by_hand(s):
    a, b = s[0], s[1] + 1.0
    return (ops.np.exp(s[0] * b) - ops.np.exp(s[0] * a)) / s[0], s * (b * b - a * a) / 2


class TestOdeint(compositions.tests_of({
    "decay": (decay, decay_by_hand),
    "captured": (captured, captured_by_hand),
    "until": (until, until_by_hand),
}, (X,), BATCH)):
    pass


class TestQuad(compositions.tests_of({
    "gaussian": (gaussian, gaussian_by_hand),
    "between": (between, between_by_hand),
}, (X,), BATCH)):
    pass


# --- values of odeint ------------------------------------------------------------------------------------------------


def pendulum(y, t, b=0.25, c=5.0):
    theta, omega = y
    return [omega, -b * omega - c * np.sin(theta)]


def test_odeint_is_scipys():
    t = np.linspace(0, 10, 101)
    found = odeint(pendulum, [np.pi - 0.1, 0.0], t, (0.25, 5.0))
    np.testing.assert_allclose(found, reference.odeint(pendulum, [np.pi - 0.1, 0.0], t, (0.25, 5.0), rtol=1e-12,
                                                       atol=1e-12), atol=3e-7)


def test_a_pendulum_of_small_angle_swings_like_a_cosine():
    t = np.linspace(0, 3, 31)
    found = odeint(lambda y, t: pendulum(y, t, 0.0, 4.0), [1e-5, 0.0], t, rtol=1e-12, atol=1e-17)
    np.testing.assert_allclose(found[:, 0], 1e-5 * np.cos(2 * t), atol=1e-14)


@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
def test_the_error_follows_the_tolerance(rtol):
    t = np.linspace(0, 5, 20)
    found = odeint(lambda y, t: -y * ops.np.cos(t), [1.0], t, rtol=rtol, atol=rtol)[:, 0]
    error = np.abs(found - np.exp(-np.sin(t))).max()
    assert rtol / 1000 < error < 10 * rtol


@pytest.mark.parametrize("t", [[0.0], [0, 1], [1.0, 0.0], [0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.0], [2.0, 1.5, 1.5, -1.0]],
                         ids=str)
def test_times_ascend_or_descend_and_may_repeat(t):
    found = odeint(lambda y, t: -y, [1.0, 2.0], t)
    expected = np.array([1.0, 2.0]) * np.exp(t[0] - np.asarray(t, float))[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for gradient in ("adjoint", "direct"):
        found = grad(lambda k, gradient=gradient: odeint(lambda y, t: -k * y, [1.0, 2.0], t, gradient=gradient).sum())(
            np.array(1.0))
        np.testing.assert_allclose(found, (expected.sum(1) * (t[0] - np.asarray(t, float))).sum(), rtol=1e-6)


def test_tfirst_pytrees_and_constants():
    found = odeint(lambda t, s: {"x": s["v"], "v": -9.81}, {"x": np.array(1.0), "v": np.array(0.0)}, [0.0, 0.1],
                   tfirst=True)
    np.testing.assert_allclose(found["x"], [1.0, 1.0 - 9.81 * 0.005])


def test_complex_state():
    found = odeint(lambda y, t: 1j * y, [1 + 0j], TIMES)
    np.testing.assert_allclose(found[:, 0], np.exp(1j * TIMES), rtol=1e-7)
    loss = grad(lambda w: ops.np.absolute(odeint(lambda y, t: w * y, np.array([1 + 0j]), TIMES)[-1, 0]))
    np.testing.assert_allclose(loss(np.array(0.3 + 0.2j)), np.exp(0.3), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype(dtype):
    assert odeint(lambda y, t: -y, np.ones(2, dtype), TIMES, rtol=1e-4).dtype == dtype


def test_the_largest_step_and_the_first_can_be_given():
    calls = []

    def counted(y, t):
        calls.append(float(np.asarray(t)) if isinstance(t, np.ndarray) else 0.0)
        return -y

    odeint(counted, [1.0], [0.0, 1.0], rtol=1e-2, atol=1e-2)
    few = len(calls)
    odeint(counted, [1.0], [0.0, 1.0], rtol=1e-2, atol=1e-2, hmax=0.01, h0=0.01)
    assert len(calls) - few >= 600


# --- derivatives of odeint -------------------------------------------------------------------------------------------


def both(k, y0, t, gradient):
    found = odeint(lambda y, t: ops.np.sin(k * y) + ops.np.cos(t), y0, t, gradient=gradient, rtol=1e-11, atol=1e-11)
    return (ops.np.cos(found) * np.array([[1.0], [2.0], [3.0]])).sum()


@pytest.mark.parametrize("gradient", ["adjoint", "direct"])
@pytest.mark.parametrize("argument", [0, 1, 2], ids=["parameters", "y0", "t"])
def test_finite_differences(gradient, argument):
    args = [X + 0.4, X, TIMES]
    e, direction = 1e-5, np.cos(np.arange(args[argument].size))

    def loss(value):
        return both(*[value if i == argument else arg for i, arg in enumerate(args)], gradient)

    def difference(f, x):
        return (np.asarray(f(x + e * direction)) - np.asarray(f(x - e * direction))) / (2 * e)

    x = args[argument]
    tolerance = 1e-4 if (gradient, argument) == ("direct", 2) else 2e-6       # the interpolant's derivative
    first = difference(loss, x)
    np.testing.assert_allclose(grad(loss)(x) @ direction, first, rtol=tolerance)
    np.testing.assert_allclose(jvp(loss, (x,), (direction,))[1], first, rtol=tolerance)
    second = difference(grad(loss), x)
    np.testing.assert_allclose(jvp(grad(loss), (x,), (direction,))[1], second, rtol=5e-4, atol=1e-5)


def test_direct_gradient_is_that_of_the_steps_taken():
    def loss(k, gradient):
        return odeint(lambda y, t: -k * y, [1.0], [0.0, 1.0], gradient=gradient, rtol=1e30, h0=0.5, hmax=0.5)[-1, 0]

    e, k = 1e-6, np.array(3.0)
    difference = (loss(k + e, "direct") - loss(k - e, "direct")) / (2 * e)
    np.testing.assert_allclose(grad(loss)(k, "direct"), difference, rtol=1e-8)
    np.testing.assert_allclose(jvp(lambda k: loss(k, "direct"), (k,), (np.array(1.0),))[1], difference, rtol=1e-8)
    assert abs(grad(loss)(k, "adjoint") / difference - 1) > 1e-5


TestDirect = compositions.tests_of({
    "direct": (lambda k: odeint(lambda y, t: -k * y, k + 1.0, TIMES, gradient="direct", **FINE),
               lambda k: (k + 1.0) * ops.np.exp(-k * TIMES[:, None])),
}, (X,), BATCH)


@pytest.mark.parametrize("gradient", ["adjoint", "direct"])
def test_vmap_solves_a_batch_as_one_system(gradient):
    def solve(k, y0):
        return odeint(lambda y, t: -k * y, y0, TIMES, gradient=gradient)

    k, y0 = np.array([0.1, 1.0, 20.0]), np.array([[1.0, 2.0], [0.1, 0.2], [3.0, 4.0]])
    expected = y0[:, None] * np.exp(-k[:, None, None] * TIMES[:, None])
    np.testing.assert_allclose(vmap(solve)(k, y0), expected, atol=1e-6)
    np.testing.assert_allclose(vmap(lambda k: solve(k, y0[0]))(k)[1], y0[0] * np.exp(-TIMES)[:, None], atol=1e-6)
    found = vmap(grad(lambda k, y0: solve(k, y0).sum()))(k, y0)
    np.testing.assert_allclose(found, (-TIMES[:, None] * expected).sum((1, 2)), atol=1e-5)
    shared = grad(lambda k: vmap(lambda y0: solve(k, y0).sum())(y0).sum())(np.array(0.5))
    np.testing.assert_allclose(shared, -(TIMES * np.exp(-0.5 * TIMES)).sum() * y0.sum(), rtol=1e-6)


def test_the_worst_example_of_a_batch_decides_on_the_steps():
    rates = np.array([0.0] * 99 + [30.0])
    found = vmap(lambda k: odeint(lambda y, t: k * ops.np.cos(k * t) * y ** 0, np.zeros(1), TIMES))(rates)
    np.testing.assert_allclose(found[-1, :, 0], np.sin(30 * TIMES), atol=1e-6)


def test_vmap_over_times():
    t = np.stack([TIMES, 2 * TIMES + 1])
    np.testing.assert_allclose(
        vmap(lambda t: odeint(lambda y, t: -y, [1.0], t))(t)[..., 0], np.exp(t[:, :1] - t), rtol=1e-6)
    found = grad(lambda t: vmap(lambda t: odeint(lambda y, t: -y, [1.0], t))(t).sum())(t)
    expected = -np.exp(t[:, :1] - t)
    expected[:, 0] = -expected[:, 1:].sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def peak_of_gradient(gradient, n_steps):
    """Return the most memory that a gradient takes besides its arguments, in bytes."""
    y0 = np.linspace(0.1, 1.0, 1000)

    def loss(k):
        return odeint(lambda y, t: -k * y, y0, [0.0, 1.0], gradient=gradient, hmax=1.0 / n_steps, rtol=1e-3,
                      atol=1e-3).sum()

    tracemalloc.start()
    try:
        grad(loss)(np.array(0.5))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_the_memory_of_the_adjoint_does_not_depend_on_the_number_of_steps():
    peak_of_gradient("adjoint", 10)         # what is loaded and cached at first does not count
    few, many = peak_of_gradient("adjoint", 10), peak_of_gradient("adjoint", 1000)
    assert many - few < 100 * 8000          # free lists keep some 60 states of 8,000 bytes for reuse
    assert peak_of_gradient("direct", 100) > 4 * peak_of_gradient("direct", 10)


def test_linearize():
    value, push = linearize(captured, X)
    compositions.same(value, captured(X))
    compositions.same(push(BATCH[1]), jvp(captured_by_hand, (X,), (BATCH[1],))[1])


# --- compiled odeint -------------------------------------------------------------------------------------------------


def overflowing(k):
    """Solve with a first step that is far too large."""
    return odeint(lambda y, t: -k * y * ops.np.exp(y * y), np.ones(2), np.array([0.0, 1.0]), h0=500.0)


@pytest.mark.parametrize(("program", "x"), [
    pytest.param(decay, X, id="decay"),
    pytest.param(captured, X, id="captured"),
    pytest.param(until, X, id="until"),
    pytest.param(overflowing, X, id="overflowing"),
    pytest.param(grad(lambda x: captured(x).sum()), X, id="gradient"),
    pytest.param(jacfwd(decay), X, id="tangents"),
    pytest.param(vmap(decay), BATCH, id="batch"),
])
def test_compiled_solutions_are_loops_of_the_plan(program, x, monkeypatch):
    compiled = compile(program)
    with np.errstate(over="raise", invalid="raise"):
        np.testing.assert_array_equal(compiled(x), program(x))
        expected = program(x / 2)
        monkeypatch.setattr("pydispatch.scipy.runge_kutta.solution", None)
        np.testing.assert_array_equal(compiled(x / 2), expected)


@pytest.mark.parametrize("program", [
    lambda k: odeint(lambda y, t: k * y, np.array([1.0, np.nan]), TIMES),
    lambda k: odeint(lambda y, t: k * y * y, np.array([1.0]), np.array([0.0, 2.0])),
    lambda k: odeint(lambda y, t: ops.np.cos(50 * k * t) * y, [1.0], TIMES, mxstep=4),
    lambda k: odeint(lambda y, t: y, [1.0], k * np.array([0.0, 1.0, 0.5])),
    lambda k: vmap(lambda s: odeint(lambda y, t: s * y * y, [1.0], [0.0, 2.0]))(k * np.array([0.1, 1.0, 0.2])),
], ids=["nan_y0", "blow_up", "mxstep", "order", "batch"])
def test_compiled_solutions_fail_like_eager_ones(program):
    found = []
    for function in (program, compile(program)):
        with pytest.raises((ConvergenceError, ValueError), match=r"^odeint: ") as caught:
            function(np.array(1.0))
        found.append(caught.value)
    assert [type(error) for error in found] == [type(found[0])] * 2
    assert str(found[0]) == str(found[1])


# --- quad ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("f", "a", "b", "options"), [
    pytest.param(lambda x: np.exp(-x), 0.0, np.inf, {}, id="half_line"),
    pytest.param(lambda x: 1 / (1 + x * x), -np.inf, np.inf, {}, id="line"),
    pytest.param(lambda x: 1 / (1 + x * x), np.inf, 0.0, {}, id="backward"),
    pytest.param(lambda x: abs(x - 0.3), 0, 1, {"points": [0.3]}, id="points"),
    pytest.param(lambda x: np.log(x), 0.0, 1.0, {"epsabs": 1e-10}, id="singular"),
    pytest.param(lambda x: 2.0, 0.0, 3.0, {}, id="constant"),
    pytest.param(lambda x: 0.0 * x, 0.0, 3.0, {}, id="zero"),
    pytest.param(lambda x: np.exp(-x * x), 0.0, 2.0, {}, id="smooth"),
    pytest.param(lambda x: np.exp(-x) * np.cos(3 * x), 4.0, -1.0, {"epsabs": 0.0, "epsrel": 1e-12}, id="precise"),
    pytest.param(lambda x: np.cos(40 * x), 0.0, 5.0, {}, id="wave"),
])
def test_quad_is_scipys(f, a, b, options):
    expected = [*reference.quad(f, a, b, **options)]
    assert [float(part) for part in quad(f, a, b, **options)] == expected
    compiled = compile(lambda a, b: quad(f, a, b, **options))
    np.testing.assert_allclose(compiled(np.array(float(a)), np.array(float(b))), expected, rtol=1e-14, atol=1e-15)


def test_compiled_quad_is_a_loop_of_the_plan(monkeypatch):
    compiled = compile(grad(lambda s: quad(lambda x: np.exp(-s * x * x), 0.0, 2.0)[0]))
    compiled(np.array(0.5))
    monkeypatch.setattr("pydispatch.scipy.integrate.integrate", None)
    np.testing.assert_allclose(compiled(np.array(0.7)), -reference.quad(
        lambda x: x * x * np.exp(-0.7 * x * x), 0.0, 2.0)[0], rtol=1e-12)


def test_quad_of_arrays_is_quad_vec():
    def f(x):
        return np.stack([np.sin(x), x * x])

    y, error = quad(f, 0.0, 2.0)
    expected, _ = reference.quad_vec(f, 0.0, 2.0)
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    assert error.shape == ()
    assert error < 1e-8


def test_quad_of_a_pytree_and_complex_values():
    found, _ = quad(lambda x: {"a": x, "b": ops.np.exp(1j * x) * np.ones(2)}, 0, 1)
    np.testing.assert_allclose(found["a"], 0.5)
    np.testing.assert_allclose(found["b"], np.full(2, (np.exp(1j) - 1) / 1j))


def test_gradients_in_limits_are_values_there():
    def integral(a, b):
        return quad(lambda x: ops.np.exp(-x), a, b)[0]

    a, b = np.array(0.2), np.array(1.5)
    assert [float(grad(integral, i)(a, b)) for i in (0, 1)] == pytest.approx([-np.exp(-0.2), np.exp(-1.5)])
    assert float(grad(integral)(a, np.array(np.inf))) == pytest.approx(-np.exp(-0.2))
    assert float(grad(integral, 1)(a, np.array(np.inf))) == 0.0
    assert float(jvp(integral, (a, b), (a, b))[1]) == pytest.approx(-0.2 * np.exp(-0.2) + 1.5 * np.exp(-1.5))
    jump = grad(lambda b: quad(lambda x: ops.np.where(x < 1.0, 0.0, 2.0), 0.0, b, points=[1.0])[0])(b)
    assert float(jump) == 2.0


def test_vmap_over_limits_and_parameters():
    b, s = np.array([1.0, 2.0, np.inf]), np.array([1.0, 2.0, 3.0])
    found, error = vmap(lambda b, s: quad(lambda x: ops.np.exp(-s * x), 0.0, b))(b, s)
    np.testing.assert_allclose(found, (1 - np.exp(-s * b)) / s, rtol=1e-8)
    assert error.shape == (3,)
    found, error = vmap(lambda s: quad(lambda x: ops.np.exp(-s * x), 0.0, 1.0))(s)
    np.testing.assert_allclose(found, (1 - np.exp(-s)) / s, rtol=1e-8)
    np.testing.assert_array_equal(error, np.full(3, error[0]))


def test_abserr_is_a_constant():
    s = Tensor(np.array(0.5), requires_grad=True)
    y, error = quad(lambda x: ops.np.exp(-s * x), 0.0, 1.0)
    y.backward()
    assert float(s.grad) == pytest.approx((0.5 * np.exp(-0.5) - 1 + np.exp(-0.5)) / 0.25)
    np.testing.assert_array_equal(grad(lambda s: quad(lambda x: ops.np.exp(-s * x), 0.0, 1.0)[1])(np.array(0.5)), 0.0)
    assert error < 1e-8


# --- bad input -------------------------------------------------------------------------------------------------------


BAD = {
    "nan_y0": (lambda: odeint(lambda y, t: y, [1.0, np.nan], TIMES), ConvergenceError, "is not finite"),
    "blow_up": (lambda: odeint(lambda y, t: y * y, [1.0], [0.0, 2.0]), ConvergenceError,
                "the step size has become too small at t = 1"),
    "mxstep": (lambda: odeint(lambda y, t: ops.np.cos(50 * t) * y, [1.0], TIMES, mxstep=4), ConvergenceError,
               "4 steps are not enough to get from t = 0 to 0.3"),
    "order": (lambda: odeint(lambda y, t: y, [1.0], [0.0, 1.0, 0.5]), ValueError, "not in order"),
    "nan_t": (lambda: odeint(lambda y, t: y, [1.0], [0.0, np.nan]), ValueError, "not in order"),
    "no_times": (lambda: odeint(lambda y, t: y, [1.0], 1.0), ValueError, "one-dimensional"),
    "shape": (lambda: odeint(lambda y, t: y.sum(), [1.0, 2.0], TIMES), DispatchTypeError,
              r"func returns float64\[\] as array 0, where y0 is float64\[2\]"),
    "size": (lambda: odeint(lambda y, t: [y[0]] * 3, [1.0, 2.0], TIMES), DispatchTypeError,
             "func returns 3 numbers for 2 unknowns"),
    "structure": (lambda: odeint(lambda y, t: y["a"], {"a": X}, TIMES), DispatchTypeError, "the structure of y0"),
    "gradient": (lambda: odeint(lambda y, t: y, [1.0], TIMES, gradient="x"), ValueError, "gradient is 'x'"),
    "limits": (lambda: quad(lambda x: x, np.zeros(2), 1.0), DispatchTypeError, "a is not a real number"),
    "integrand": (lambda: quad(lambda x: "x", 0.0, 1.0), DispatchTypeError, "result 0 is a str"),
    "no_function": (lambda: quad(1.0, 0.0, 1.0), DispatchTypeError, "func is a float"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, error, message = BAD[case]
    with np.errstate(all="ignore"), pytest.raises(error, match=message) as caught:
        call()
    first, *more = str(caught.value).splitlines()
    assert first.startswith(("odeint: ", "quad: "))
    assert more


@pytest.mark.parametrize("transform", [
    pytest.param(lambda f, x: vmap(f)(x), id="vmap"),
    pytest.param(lambda f, x: vmap(grad(f))(x), id="vmap_grad"),
    pytest.param(lambda f, x: grad(lambda x: vmap(f)(x).sum())(x), id="grad_vmap"),
    pytest.param(lambda f, x: jvp(vmap(f), (x,), (x,)), id="jvp_vmap"),
    pytest.param(lambda f, x: vmap(f)(Tensor(x, requires_grad=True)), id="tape"),
])
def test_the_example_that_failed_is_named(transform):
    def program(s):
        return odeint(lambda y, t: s * y * y, [1.0], [0.0, 2.0]).sum()

    with pytest.raises(ConvergenceError, match=r"^odeint: .*\(example 1 of the batch\)"):
        transform(program, np.array([0.1, 1.0, 0.2]))


def test_the_example_that_failed_is_named_among_those_with_times_of_their_own():
    def program(end):
        return odeint(lambda y, t: y * y, [1.0], ops.np.stack((end * 0.0, end))).sum()

    for transform in (vmap(program), grad(lambda ends: vmap(program)(ends).sum())):
        with pytest.raises(ConvergenceError, match=r"^odeint: .*\(example 1 of the batch\)"):
            transform(np.array([0.5, 2.0]))


def test_the_example_whose_times_are_in_no_order_is_named():
    times = np.array([[0.0, 1.0, 2.0], [0.0, 2.0, 1.0]])
    with pytest.raises(ValueError, match=r"^odeint: the values in t are not in order \(example 1 of the batch\)\nsort"):
        vmap(lambda t: odeint(lambda y, t: -y, [1.0], t))(times)

    def failing(y, t):
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        vmap(lambda t: odeint(failing, [1.0], t))(np.sort(times))


@pytest.mark.parametrize("f", [lambda x: 1 / x, lambda x: np.stack([1 / x, x])], ids=["number", "array"])
def test_an_integral_that_does_not_converge_warns_as_scipys(f):
    with np.errstate(all="ignore"), pytest.warns(IntegrationWarning, match="^quad: "):
        quad(f, 0.0, 1.0, limit=10)


def test_direct_gradient_needs_data():
    with pytest.raises(DataDependentError, match="needs the number of steps"):
        make_fx(grad(lambda k: odeint(lambda y, t: -k * y, X, TIMES, gradient="direct").sum()), tracing_mode="fake")(X)


# --- derivatives of any size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1.0, 1e20])
@pytest.mark.parametrize("program", [
    pytest.param(lambda k: odeint(lambda y, t: -k * y, [1.0], [0.0, 1.0])[-1, 0], id="odeint"),
    pytest.param(lambda k: odeint(lambda y, t: -k * y, [1.0], [0.0, 1.0], atol=0.0)[-1, 0], id="without_atol"),
    pytest.param(lambda k: quad(lambda x: -k * x * ops.np.exp(-k * x) + ops.np.exp(-k * x), 0.0, 1.0)[0], id="quad"),
])
def test_tolerances_are_relative_to_the_gradient_that_comes_in(program, size):
    k = np.array(0.5)
    np.testing.assert_allclose(grad(lambda k: size * program(k))(k), -size * np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(jvp(program, (k,), (np.array(size),))[1], -size * np.exp(-0.5), rtol=1e-6)
    np.testing.assert_allclose(grad(grad(lambda k: size * program(k)))(k), size * np.exp(-0.5), rtol=1e-6)


def test_a_gradient_of_zeros_or_of_what_is_not_finite():
    def program(k):
        return odeint(lambda y, t: -k * y, [1.0], [0.0, 1.0])[-1, 0]

    k = np.array(0.5)
    assert grad(lambda k: 0.0 * program(k))(k) == 0.0
    with pytest.raises(ConvergenceError, match="is not finite"):
        grad(lambda k: np.nan * program(k))(k)


def test_functions_that_return_the_same_buffer_at_each_call():
    slope, values = np.zeros(1), np.zeros(2)

    def decay(y, t):
        slope[0] = -y[0]
        return slope

    def sine_and_square(x):
        values[:] = np.sin(x), x * x
        return values

    found = odeint(decay, np.array([1.0]), np.array([0.0, 5.0]))
    np.testing.assert_allclose(found[-1], np.exp(-5.0), atol=1e-6)
    expected = odeint(lambda y, t: -y, np.array([1.0]), np.array([0.0, 5.0]))
    np.testing.assert_array_equal(found, expected)
    found, error = quad(sine_and_square, 0.0, 1.0)
    np.testing.assert_allclose(found, [1 - np.cos(1.0), 1 / 3], rtol=1e-12)
    assert error < 1e-10


def test_options_that_only_scipy_has_go_to_scipys_function():
    options = {"weight": "cos", "wvar": 3.0}
    assert quad(np.exp, 0.0, 2.0, **options) == reference.quad(np.exp, 0.0, 2.0, **options)
    found, about = odeint(lambda y, t: -y, [1.0], TIMES, full_output=True)
    expected, expected_about = reference.odeint(lambda y, t: -y, [1.0], TIMES, full_output=True)
    assert (found == expected).all()
    assert about.keys() == expected_about.keys()


def test_options_that_only_scipy_has_take_no_tensor():
    with pytest.raises(DispatchTypeError, match=r"^quad: SciPy's own function takes arrays"):
        quad(lambda x: x, 0.0, Tensor(np.array(2.0)), weight="cos", wvar=3.0)


def test_times_may_be_whole_numbers():
    assert (odeint(lambda y, t: -y, np.ones(2), np.arange(3)) == odeint(lambda y, t: -y, np.ones(2), np.arange(3.0))
            ).all()
