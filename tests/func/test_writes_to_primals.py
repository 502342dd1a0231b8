"""Functions that write to their arguments in forward mode: tangents follow, and the caller's array is written to."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AutogradError
from pydispatch.func import grad, hessian, jacfwd, jvp, linearize, vjp, vmap

X = np.array([1.5, -2.0, 3.0])
T = np.array([1.0, 10.0, -0.5])


def assign_element(x):
    x[0] = x[1] * x[2]
    return x * x


def assign_all(x):
    x[...] = ops.np.sin(x)
    return x * 2.0


def assign_to_view(x):
    view = x[1:]
    view[0] = x[0] * 3.0
    return x + 0.0


def read_earlier_view(x):
    view = x[1:]
    x[1] = x[0] * x[0]
    return view * 2.0


def multiply(x):
    x *= x
    return x + 1.0


def multiply_view(x):
    view = x[:2]
    view *= x[2]
    return x.sum() + view


def put(x):
    x[np.array([2, 0])] = x[np.array([0, 1])]
    return x * x


def put_by_mask(x):
    x[np.array([True, False, True])] = x[1] * 2.0
    return x + 0.0


def constant(x):
    x[1] = 7.0
    return x * x


def twice(x):
    x += 1.0
    x *= x
    return x + 0.0


def returned(x):
    x *= 2.0
    return x


def unread(x):
    y = x * x
    x[0] = 100.0
    return y


WRITES = [assign_element, assign_all, assign_to_view, read_earlier_view, multiply, multiply_view, put, put_by_mask,
          constant, twice, returned, unread]

every_write = pytest.mark.parametrize("f", WRITES, ids=lambda f: f.__name__)


def on_raw(f, x):
    """Return the result and the array as the function leaves it, by NumPy."""
    x = x.copy()
    return np.asarray(f(Tensor(x))).copy(), x


def derivative(f, x, t, step=1e-6):
    return (on_raw(f, x + step * t)[0] - on_raw(f, x - step * t)[0]) / (2 * step)


def close(actual, expected, rtol=1e-7):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol, atol=1e-8)


@every_write
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_tangents_follow_and_the_array_of_the_caller_is_written_to(f, wrap):
    x, t = X.copy(), T.copy()
    output, tangent = jvp(f, (wrap(x),), (wrap(t),))
    expected, written = on_raw(f, X)
    close(output, expected)
    close(tangent, derivative(f, X, T))
    close(x, written)
    np.testing.assert_array_equal(t, T)


@every_write
def test_beside_other_results(f):
    output, tangent = jvp(lambda p: {"f": f(p["x"]), "y": p["y"] * 2}, ({"x": X.copy(), "y": X},), ({"x": T, "y": T},))
    close(output["f"], on_raw(f, X)[0])
    close(tangent["f"], derivative(f, X, T))
    close(tangent["y"], 2 * T)


@every_write
def test_in_other_transforms(f):
    columns = np.stack([derivative(f, X, row) for row in np.eye(3)], axis=-1)
    close(jacfwd(f)(X.copy()), columns)
    push = linearize(f, X.copy())[1]
    close(push(T), derivative(f, X, T))
    close(push(2 * T), 2 * derivative(f, X, T))
    xs, ts = np.stack([X, 2 * X]), np.stack([T, -T])
    output, tangent = vmap(lambda x, t: jvp(f, (x,), (t,)))(xs.copy(), ts)
    close(output, [on_raw(f, x)[0] for x in xs])
    close(tangent, [derivative(f, x, t) for x, t in zip(xs, ts, strict=True)])


def along(f):
    """Return the derivative along T, as a function."""
    return lambda x: jvp(f, (x.copy(),), (Tensor(T),))[1]


def differences(function, step=1e-4):
    return (np.asarray(function(Tensor(X + step * T))) - np.asarray(function(Tensor(X - step * T)))) / (2 * step)


@every_write
def test_forward_mode_of_it(f):
    close(jvp(along(f), (X,), (T,))[1], differences(along(f)), rtol=1e-5)


@every_write
def test_reverse_mode_of_it(f):
    close(grad(lambda x: along(f)(x).sum())(X) @ T, differences(along(f)).sum(), rtol=1e-5)


def test_a_constant_argument_takes_up_tangents():
    def f(x, buffer):
        buffer[1:] = x * x
        return buffer * 2.0

    buffer = np.zeros(4)
    close(jacfwd(f)(X, buffer), 2 * np.vstack([np.zeros(3), np.diag(2 * X)]))
    close(buffer, [0.0, *X * X])


def test_out_takes_up_tangents():
    primal = X.copy()
    value, tangent = jvp(lambda x: ops.np.exp(x * 1.0, out=x) * x, (primal,), (T,))
    close(value, np.exp(X) ** 2)
    close(tangent, 2 * np.exp(X) ** 2 * T)
    close(primal, np.exp(X))


# --- refused ---------------------------------------------------------------------------------------------------------


def first_to_second(x, y):
    x[0] = 2.0 * y[1]
    return y * 1.0


TWICE = {
    "jvp": lambda x, y: jvp(first_to_second, (x, y), (T[: len(x)], T)),
    "jvp-container": lambda x, y: jvp(lambda p: first_to_second(*p), ([x, y],), ([T[: len(x)], T],)),
    "jacfwd": lambda x, y: jacfwd(first_to_second, argnums=1)(x, y),
    "linearize": lambda x, y: linearize(first_to_second, x, y),
    "grad": lambda x, y: grad(lambda w, x, y: first_to_second(x, w).sum() + y.sum())(T, x, y),
    "grad-container": lambda x, y: grad(lambda w, p: first_to_second(p[0], w).sum() + p[1].sum())(T, [x, y]),
}


@pytest.mark.parametrize("call", TWICE.values(), ids=TWICE)
def test_a_write_to_what_two_arguments_share_is_refused(call):
    x = X.copy()
    for one, other in ((x, x), (x[:2], x), (Tensor(x), Tensor(x))):
        with pytest.raises(AutogradError, match=r"another argument .* shares memory with it.*\n.*copy"):
            call(one, other)
        np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("call", TWICE.values(), ids=TWICE)
def test_parts_that_do_not_overlap_are_written_to(call):
    both = np.concatenate([X, X])
    call(both[:3], both[3:])
    assert both[0] != X[0]
    np.testing.assert_array_equal(both[1:], [*X[1:], *X])


@pytest.mark.parametrize("f", [assign_element, multiply], ids=lambda f: f.__name__)
@pytest.mark.parametrize("call", [
    lambda f, x: grad(lambda x: f(x).sum())(x), lambda f, x: vjp(f, x), lambda f, x: hessian(lambda x: f(x).sum())(x),
], ids=["grad", "vjp", "hessian"])
def test_reverse_mode_refuses_to_write_to_its_argument(call, f):
    x = X.copy()
    with pytest.raises(AutogradError, match="differentiates with respect to"):
        call(f, x)
    np.testing.assert_array_equal(x, X)
