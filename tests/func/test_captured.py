"""Results of a transform of raw arrays belong to the outer interpreter of which its function captures a value.

Python's operators process the results. On raw arrays these are NumPy's: an outer interpreter sees them only on Tensors.
"""

import itertools
import zlib

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from pydispatch.higher_order import associative_scan, cond, map, scan, while_loop
from pydispatch.modes import DispatchMode
from pydispatch.testing import LoggingMode, LoggingTensor, capture_logs
from pydispatch.tracing import make_fx
from tests.together import together

RAW = np.array([0.5, 1.25])
ONES = np.ones(2)

# Of a function of an array of two elements and a raw array like it: arrays that broadcast with two elements.
TRANSFORMS = {
    "grad": lambda f, y: grad(lambda y: f(y).sum())(y),
    "grad-aux": lambda f, y: grad(lambda y: (y.sum(), f(y)), has_aux=True)(y)[1],
    "value_and_grad": lambda f, y: value_and_grad(lambda y: f(y).sum())(y)[0],
    "vjp": lambda f, y: vjp(f, y)[0],
    "vjp-dict": lambda f, y: vjp(lambda y: {"out": f(y)}, y)[0]["out"],
    "pullback": lambda f, y: vjp(f, y)[1](ONES)[0],
    "jvp": lambda f, y: jvp(f, (y,), (ONES,))[0],
    "jvp-dict": lambda f, y: jvp(lambda y: {"out": f(y)}, (y,), (ONES,))[1]["out"],
    "tangent": lambda f, y: jvp(f, (y,), (ONES,))[1],
    "vmap": lambda f, y: vmap(f)(y[None])[0],
    "vmap-shared": lambda f, y: vmap(lambda n, y: f(y), (0, None), None)(ONES, y),
    "vmap-dict": lambda f, y: vmap(lambda y: {"out": f(y)})(y[None])["out"][0],
    "vmap-chunks": lambda f, y: vmap(f, chunk_size=1)(np.stack([y, y]))[1],
    "jacrev": lambda f, y: jacrev(f)(y)[0],
    "jacrev-chunks": lambda f, y: jacrev(f, chunk_size=1)(y)[1],
    "jacfwd": lambda f, y: jacfwd(f)(y)[1],
    "hessian": lambda f, y: hessian(lambda y: f(y).sum())(y)[0],
    "linearize": lambda f, y: linearize(f, y)[0],
    "linear": lambda f, y: linearize(f, y)[1](ONES),
    "functionalize": lambda f, y: functionalize(f)(y),
    "cond": lambda f, y: cond(np.array(True), f, lambda y: f(y) * 2, (y,)),
    "map": lambda f, y: map(f, y[None])[0],
    "scan": lambda f, y: scan(lambda carry, y: (carry + f(y), f(y)), np.zeros(2), np.stack([y, y]))[0],
    "while_loop": lambda f, y: while_loop(lambda n, y: n < 2, lambda n, y: (n + 1, f(y)), (np.array(0), y))[1],
    "associative_scan": lambda f, y: associative_scan(lambda a, b: a + b * f(b), np.stack([y, y]))[1],
}

# Of the captured array and of the argument of the transform.
BODIES = {
    "product": lambda c, y: c * y * y,
    "quotient": lambda c, y: y / (c + 2.0) * y,
    "sine": lambda c, y: ops.np.sin(c * y) * c,
    "constant": lambda c, y: y * 0.0 + c,
    "reduced": lambda c, y: c.sum() * y * y * y,
}

# What goes on with the result, and must be seen.
CONTINUATIONS = {
    "number": lambda r: r * 2.0 + 1,
    "number-left": lambda r: 3.0 - 2 * r,
    "array-left": lambda r: RAW * r,
    "indexed": lambda r: r[..., None].sum(-1) * r,
    "method": lambda r: (-r).sum() + abs(r),
}


def program(transform, body, continuation, *inner):
    """Return a function of two elements: a transform of a raw array, around others, which captures the argument."""
    def run(x):
        def function(y):
            return BODIES[body](x, y)

        for name in inner:
            function = nested(TRANSFORMS[name], function)
        return CONTINUATIONS[continuation](TRANSFORMS[transform](function, RAW)) * x + ONES

    return run


def nested(transform, function):
    return lambda y: transform(function, RAW) * y


SINGLE = [(transform, body, continuation) for transform in TRANSFORMS
          for body, continuation in zip(BODIES, CONTINUATIONS, strict=True)]
NESTED = [row for row in itertools.product(TRANSFORMS, BODIES, CONTINUATIONS, TRANSFORMS)
          if zlib.crc32("/".join(row).encode()) % 40 == 0]
PROGRAMS = [pytest.param(row, id="-".join(row)) for row in SINGLE]
MORE = [pytest.param(row, id="-".join(row), marks=pytest.mark.slow) for row in NESTED]

HERE, THERE = np.array([0.75, -1.5]), np.array([-0.25, 2.0])

every_program = pytest.mark.parametrize("row", PROGRAMS + MORE)


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
@every_program
def test_a_graph_is_the_function_on_other_inputs(row, tracing_mode):
    function = program(*row)
    graph = make_fx(function, tracing_mode=tracing_mode)(HERE)
    np.testing.assert_allclose(np.asarray(graph(THERE)), function(THERE), rtol=1e-12)


def differences(function, x, direction, step=1e-6):
    return (np.asarray(function(x + step * direction)) - np.asarray(function(x - step * direction))) / (2 * step)


def on_tape(function, x):
    leaf = Tensor(x, requires_grad=True)
    function(leaf).sum().backward()
    return np.asarray(leaf.grad)


GRADIENTS = {
    "grad": lambda function, x: grad(lambda x: function(x).sum())(x),
    "jvp": lambda function, x: np.array([jvp(function, (x,), (row,))[1].sum() for row in np.eye(2)]),
    "jacrev": lambda function, x: jacrev(function)(x).sum(0),
    "tape": on_tape,
}


@together("name", GRADIENTS)
@every_program
def test_a_gradient_goes_through_what_is_captured(row, name):
    function = program(*row)
    expected = [differences(function, HERE, direction).sum() for direction in np.eye(2)]
    np.testing.assert_allclose(GRADIENTS[name](function, HERE), expected, rtol=1e-5, atol=1e-7)


@every_program
def test_a_batch_goes_through_what_is_captured(row):
    function = program(*row)
    found = vmap(function)(np.stack([HERE, THERE]))
    np.testing.assert_allclose(found, [function(HERE), function(THERE)], rtol=1e-12)


class Doubled(DispatchMode):
    """A mode that doubles what comes from the products with 7, the last calls of the programs."""

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is ops.np.multiply.default and type(args[1]) is float and args[1] == 7 else result


@every_program
def test_a_mode_sees_what_is_done_with_the_result(row):
    function = program(*row)
    with Doubled():
        found = function(Tensor(HERE)) * 7.0
    np.testing.assert_allclose(np.asarray(found), np.asarray(function(HERE)) * 14.0)


@pytest.mark.parametrize("body", BODIES)
@together("transform", TRANSFORMS)
def test_a_mode_sees_the_result_of_a_transform_itself(transform, body):
    captured = Tensor(HERE)
    with Doubled():
        found = TRANSFORMS[transform](lambda y: BODIES[body](captured, y), RAW) * 7.0
    np.testing.assert_allclose(
        np.asarray(found), 14.0 * np.asarray(TRANSFORMS[transform](lambda y: BODIES[body](HERE, y), RAW)))


@pytest.mark.parametrize("body", ["product", "sine", "reduced"])
@together("transform", TRANSFORMS)
def test_the_result_of_a_captured_subclass_is_one(transform, body):
    with capture_logs():
        captured = LoggingTensor(HERE)
        found = TRANSFORMS[transform](lambda y: BODIES[body](captured, y), RAW)
    assert isinstance(found, LoggingTensor)
    np.testing.assert_allclose(
        np.asarray(found.elem), np.asarray(TRANSFORMS[transform](lambda y: BODIES[body](HERE, y), RAW)))


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
@every_program
def test_in_the_graph_of_a_branch(row, tracing_mode):
    function = program(*row)

    def branching(x):
        return cond(x.sum() > 0, lambda: function(x), lambda: function(x * 2.0))

    graph = make_fx(branching, tracing_mode=tracing_mode)(HERE)
    for x in (HERE, THERE):
        np.testing.assert_allclose(np.asarray(graph(x)), np.asarray(branching(x)), rtol=1e-12)


@pytest.mark.parametrize("tracing_mode", ["real", "fake"])
def test_a_cotangent_and_a_tangent_of_the_trace(tracing_mode):
    def function(x):
        pull = vjp(lambda y: (y + 1, y * 2), RAW)[1]
        push = linearize(lambda y: y + 1, RAW)[1]
        along = jvp(lambda y: y + 1, (RAW,), (x,))[1]
        return pull((x, x))[0] * 2.0 + push(x) * 3.0 + along * 4.0

    graph = make_fx(function, tracing_mode=tracing_mode)(HERE)
    np.testing.assert_allclose(np.asarray(graph(THERE)), function(THERE))


# What a function captures is an argument of these.
ON_FUNCTIONS = {"cond", "map", "scan", "while_loop", "associative_scan"}


@pytest.mark.parametrize("transform", sorted(TRANSFORMS.keys() - ON_FUNCTIONS))
def test_outside_of_all_levels_a_captured_constant_leaves_raw_arrays_raw(transform):
    captured = Tensor(HERE)
    assert isinstance(TRANSFORMS[transform](lambda y: captured * y * y, RAW), np.ndarray | np.generic)


@together("transform", sorted(TRANSFORMS.keys() - {"vmap-shared"}))
def test_a_mode_leaves_the_results_of_raw_arrays_alone_raw(transform):
    with LoggingMode():
        assert isinstance(TRANSFORMS[transform](lambda y: y * y * y, RAW), np.ndarray | np.generic)


class Noting(DispatchMode):
    """A mode that keeps the arguments of all calls."""

    def __init__(self):
        self.seen = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.seen += args
        return func(*args, **(kwargs or {}))


def test_a_mode_around_grad_sees_a_captured_constant_itself():
    captured = Tensor(HERE)
    with Noting() as mode:
        grad(lambda y: (captured * y * y).sum())(RAW)
    assert any(value is captured for value in mode.seen)


CONSTANTS = {
    "Tensor": lambda: Tensor(HERE.copy()), "view": lambda: Tensor(np.stack([THERE, HERE]))[1],
    "integers": lambda: Tensor(np.array([3, 4])), "array": lambda: HERE.copy(), "scalar": lambda: Tensor(np.array(2.5)),
}
OPERATIONS = {
    "product": lambda c, y: c * y, "maximum": ops.np.maximum, "where": lambda c, y: ops.np.where(c > 1.0, c, y) * y,
    "matmul": lambda c, y: (y[:, None] * (c + y)) @ y, "power": lambda c, y: y ** c,
}


@pytest.mark.parametrize("constant", CONSTANTS)
@together("operation", OPERATIONS)
def test_a_captured_constant_counts_as_its_array(constant, operation):
    captured, f = CONSTANTS[constant](), OPERATIONS[operation]
    raw = np.array(captured)
    value, gradient = value_and_grad(lambda y: f(captured, y * y).sum())(RAW)
    second = hessian(lambda y: f(captured, y * y).sum())(RAW)
    assert type(value) is np.float64
    assert type(gradient) is type(second) is np.ndarray
    expected, slope = value_and_grad(lambda y: f(raw, y * y).sum())(RAW)
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradient, slope)
    np.testing.assert_array_equal(second, hessian(lambda y: f(raw, y * y).sum())(RAW))
