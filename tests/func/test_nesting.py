"""Transforms inside of transforms, with batches among them."""

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops, tree
from pydispatch.exceptions import DispatchError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from tests.comparing import close, is_raw
from tests.func.forward_mode import set_forward_enabled
from tests.together import together

X = np.array([0.3, -1.2, 2.0])
Y = np.array([1.5, 0.5, -0.7])
ONE, TWO, THREE = np.array(1.0), np.array(2.0), np.array(3.0)


def twice(f):
    """Compute f of a number as the mean over a batch of two copies of the number."""
    return lambda x: vmap(f)(ops.np.stack([x, x])).mean()


# the derivative of a function of a number
DERIVATIVES = {
    "grad": grad,
    "value_and_grad": lambda f: lambda x: value_and_grad(f)(x)[1],
    "vjp": lambda f: lambda x: vjp(f, x)[1](ONE)[0],
    "jvp": lambda f: lambda x: jvp(f, (x,), (ONE,))[1],
    "jacrev": jacrev, "jacfwd": jacfwd,
    "linearize": lambda f: lambda x: linearize(f, x)[1](ONE),
    "vmap of grad": lambda f: twice(grad(f)),
    "vmap of jvp": lambda f: twice(lambda x: jvp(f, (x,), (ONE,))[1]),
    "grad of vmap": lambda f: grad(twice(f)),
    "jvp of vmap": lambda f: lambda x: jvp(twice(f), (x,), (ONE,))[1],
    "vmap of vjp_fn": lambda f: lambda x: vmap(vjp(f, x)[1])(np.ones(2))[0].mean(),
    "vmap of vmap of grad": lambda f: twice(twice(grad(f))),
}
REVERSE_AND_FORWARD = ("grad", "vjp", "jvp", "jacrev", "jacfwd", "linearize", "vmap of grad", "jvp of vmap")
PAIRS = list(itertools.product(DERIVATIVES, repeat=2))

pytestmark = pytest.mark.usefixtures("levels_are_left_as_they_were")


# --- derivatives of derivatives -----------------------------------------------------------------------------


@together("names", PAIRS, ids=" of ".join)
def test_second_derivatives_agree(names):
    outer, inner = map(DERIVATIVES.get, names)
    close(outer(inner(lambda x: x**2 * ops.np.sin(x)))(THREE), (2 - 9) * np.sin(3.0) + 12 * np.cos(3.0))


@pytest.mark.parametrize("first", REVERSE_AND_FORWARD)
def test_third_derivatives_agree(first):
    for second, third in itertools.product(REVERSE_AND_FORWARD, repeat=2):
        ways = [DERIVATIVES[name] for name in (third, second, first)]
        derivative = functools.reduce(lambda f, way: way(f), ways, ops.np.sin)
        close(derivative(THREE), -np.cos(3.0))


@pytest.mark.parametrize("way", DERIVATIVES.values(), ids=DERIVATIVES)
def test_five_derivatives_of_sine(way):
    derivative = ops.np.sin
    for expected in (np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x), np.sin, np.cos):
        derivative = way(derivative)
        close(derivative(np.array(0.7)), expected(0.7))


@together("names", PAIRS, ids=" of ".join)
def test_perturbation_confusion(names):
    outer, inner = map(DERIVATIVES.get, names)
    close(outer(lambda x: x * inner(lambda y: x + y)(ONE))(ONE), 1.0)
    close(outer(lambda x: x * inner(lambda y: x * y)(THREE))(TWO), 4.0)


@pytest.mark.parametrize("first", REVERSE_AND_FORWARD)
def test_three_levels_are_not_confused(first):
    for second, third in itertools.product(REVERSE_AND_FORWARD, repeat=2):
        one, two, three = (DERIVATIVES[name] for name in (first, second, third))
        close(three_derivatives(one, two, three), 108.0)


def three_derivatives(one, two, three):
    """Compute d/dx [ x · d/dy [ y² · d/dz (x·y·z) at z=5 ] at y=3 ] at x=2: of x · 3·9·x it is 54 x."""
    return one(lambda x: x * two(lambda y: y**2 * three(lambda z: x * y * z)(np.array(5.0)))(THREE))(TWO)


@together("names", PAIRS, ids=" of ".join)
def test_inner_function_that_returns_an_outer_value(names):
    outer, inner = map(DERIVATIVES.get, names)
    close(outer(lambda x: inner(lambda y: x)(ONE) + 0 * x)(TWO), 0.0)
    close(outer(lambda x: inner(lambda y: x)(ONE))(TWO), 0.0)
    close(outer(lambda x: inner(lambda y: x)(ONE) + x**2)(TWO), 4.0)


@together("names", PAIRS, ids=" of ".join)
def test_detach_cuts_every_level(names):
    outer, inner = map(DERIVATIVES.get, names)
    close(outer(lambda a: inner(lambda b: (a * b).detach() * b)(ONE))(TWO), 0.0)


# --- batches and derivatives --------------------------------------------------------------------------------


def wave(x):
    return (ops.np.sin(x) * x**2).sum()


def slope(x):
    return np.cos(x) * x**2 + np.sin(x) * 2 * x


def curvature(x):
    return -np.sin(x) * x**2 + 4 * x * np.cos(x) + 2 * np.sin(x)


POINTS = np.random.default_rng(3).normal(size=(4, 3))
TANGENTS = np.random.default_rng(4).normal(size=(4, 3))


def test_gradients_of_a_batch_and_calls_once():
    calls = []
    close(vmap(grad(lambda x: calls.append(x.shape) or wave(x)))(POINTS), slope(POINTS))
    assert calls == [(3,)]
    close(grad(lambda x: vmap(wave)(x).sum())(POINTS), slope(POINTS))


def test_value_and_grad_of_a_batch():
    values, gradients = vmap(value_and_grad(wave))(POINTS)
    close(values, (np.sin(POINTS) * POINTS**2).sum(axis=1))
    close(gradients, slope(POINTS))
    assert is_raw(gradients)


def test_per_example_gradients_of_what_is_shared():
    def loss(w, x):
        return ((x * w).sum() - 1)**2

    w = np.array([0.5, -0.3, 0.1])
    residuals = (POINTS * w).sum(axis=1) - 1
    close(vmap(grad(loss), (None, 0))(w, POINTS), 2 * residuals[:, None] * POINTS)


def test_jvp_of_a_batch_and_batch_of_jvps():
    expected = (slope(POINTS) * TANGENTS).sum(axis=1)
    close(jvp(vmap(wave), (POINTS,), (TANGENTS,))[1], expected)
    close(vmap(lambda x, t: jvp(wave, (x,), (t,))[1])(POINTS, TANGENTS), expected)
    close(vmap(lambda t: jvp(wave, (X,), (t,))[1])(TANGENTS), TANGENTS @ slope(X))
    close(vmap(lambda x: jvp(wave, (x,), (X,))[1])(POINTS), slope(POINTS) @ X)


def test_vjp_in_a_batch_with_a_cotangent_from_outside():
    g = np.array(0.5)
    close(vmap(lambda x: vjp(wave, x)[1](g)[0])(POINTS), 0.5 * slope(POINTS))


def test_batch_of_cotangents_is_the_jacobian():
    _, pull = vjp(lambda x: ops.np.sin(POINTS @ x), X)
    jacobian, = vmap(pull)(np.eye(4))
    close(jacobian, np.cos(POINTS @ X)[:, None] * POINTS)


def test_jacobian_of_a_batched_function():
    _, pull = vjp(vmap(wave), POINTS)
    blocks, = vmap(pull)(np.eye(4))
    expected = np.zeros((4, 4, 3))
    expected[np.arange(4), np.arange(4)] = slope(POINTS)
    close(blocks, expected)


def test_vjp_of_vjp():
    def inner(x):
        return vjp(wave, x)[1](ONE)[0]

    _, pull = vjp(inner, X)
    close(pull(Y)[0], curvature(X) * Y)
    close(np.diag(vmap(pull)(np.eye(3))[0]), curvature(X))


def test_hessians_of_a_batch():
    expected = np.stack([np.diag(row) for row in curvature(POINTS)])
    ways = (hessian(wave), jacfwd(grad(wave)), jacrev(grad(wave)), jacfwd(jacrev(wave)), jacrev(jacfwd(wave)))
    for way in ways:
        close(vmap(way)(POINTS), expected)
    close(vmap(lambda x, t: jvp(grad(wave), (x,), (t,))[1])(POINTS, TANGENTS), curvature(POINTS) * TANGENTS)


def test_batches_in_batches_with_derivatives():
    table = vmap(lambda x: vmap(lambda y: grad(lambda z: (z * x * y).sum())(x))(TANGENTS))(POINTS)
    close(table, POINTS[:, None] * TANGENTS)
    mixed = grad(lambda x: vmap(lambda y: grad(lambda z: (z**2 * x * y).sum())(y).sum())(TANGENTS).sum())(X)
    close(mixed, 2 * (TANGENTS**2).sum(axis=0))       # Σ 2 y x y


def test_gradient_with_respect_to_what_all_examples_share():
    def f(w):
        return vmap(lambda x: (w * x**2).sum(), in_dims=0)(POINTS).sum()

    close(grad(f)(X), (POINTS**2).sum(axis=0))
    close(jacrev(lambda w: vmap(lambda x: (w * x**2).sum())(POINTS))(X), POINTS**2)
    close(jacfwd(lambda w: vmap(lambda x: (w * x**2).sum())(POINTS))(X), POINTS**2)


def test_other_axes():
    close(vmap(grad(wave), in_dims=1, out_dims=1)(POINTS), slope(POINTS))
    close(grad(lambda x: vmap(wave, in_dims=1)(x).sum())(POINTS), slope(POINTS))


def test_functionalize_among_them():
    def f(x):
        y = x.copy()
        y *= x
        y[0] += 1
        return (y * x).sum()

    expected = 3 * POINTS**2 + np.array([1.0, 0.0, 0.0])
    close(vmap(grad(functionalize(f)))(POINTS), expected)
    close(vmap(functionalize(grad(f)))(POINTS), expected)
    close(functionalize(vmap(grad(f)))(POINTS), expected)
    close(jacfwd(functionalize(f))(POINTS[0]), expected[0])


def test_a_batch_is_written_to_zeros_that_are_made_inside():
    def f(x):
        total = ops.np.zeros(3)
        ops.np.add_(total, x)
        total[1:] *= x[1:]
        return total

    expected = np.concatenate([POINTS[:, :1], POINTS[:, 1:] ** 2], 1)
    close(vmap(f)(POINTS), expected)
    close(vmap(functionalize(f))(POINTS), expected)
    close(vmap(functionalize(f), in_dims=1)(POINTS.T), expected)
    close(jacrev(functionalize(f))(POINTS[0]), np.diag([1.0, *2 * POINTS[0, 1:]]))


def test_eager_tape_under_everything():
    x = Tensor(POINTS.copy(), requires_grad=True)
    gradients = vmap(grad(wave))(x)
    assert gradients.requires_grad
    gradients.sum().backward()
    close(x.grad, curvature(POINTS))


# --- programs -----------------------------------------------------------------------------------------------


def network(params, x):
    for weights, bias in params[:-1]:
        x = ops.np.tanh(weights @ x + bias)
    weights, bias = params[-1]
    return weights @ x + bias


def loss(params, x, y):
    return ((network(params, x) - y)**2).mean()


def make_network(generator, sizes=(3, 5, 4, 2)):
    return [
        {"weights": generator.normal(size=(n, m)), "bias": generator.normal(size=n)}
        for m, n in itertools.pairwise(sizes)
    ]


def as_pairs(params):
    return [(layer["weights"], layer["bias"]) for layer in params]


def by_hand(params, x, y):
    """Return the gradient of the loss for one example, in plain NumPy."""
    values = [x]
    for layer in params[:-1]:
        values.append(np.tanh(layer["weights"] @ values[-1] + layer["bias"]))
    g = 2 * (params[-1]["weights"] @ values[-1] + params[-1]["bias"] - y) / y.size
    gradients = []
    for k in reversed(range(len(params))):
        gradients.append({"weights": np.outer(g, values[k]), "bias": g})
        g = (params[k]["weights"].T @ g) * (1 - values[k]**2)
    return gradients[::-1]


def all_close(actual, desired):
    assert tree.tree_flatten(actual)[1] == tree.tree_flatten(desired)[1]
    for one, other in zip(tree.tree_leaves(actual), tree.tree_leaves(desired), strict=True):
        close(one, other, rtol=1e-9)


@pytest.fixture
def data():
    generator = np.random.default_rng(11)
    return make_network(generator), generator.normal(size=(6, 3)), generator.normal(size=(6, 2))


def loss_of(params, x, y):
    return loss(as_pairs(params), x, y)


def test_per_sample_gradients_of_a_network(data):
    params, x, y = data
    found = vmap(grad(loss_of), (None, 0, 0))(params, x, y)
    expected = [by_hand(params, *example) for example in zip(x, y, strict=True)]
    for k, layer in enumerate(found):
        for name, gradient in layer.items():
            close(gradient, np.stack([example[k][name] for example in expected]), rtol=1e-9)


def test_gradient_of_the_mean_is_the_mean_of_the_gradients(data):
    params, x, y = data
    found = grad(lambda params: vmap(loss_of, (None, 0, 0))(params, x, y).mean())(params)
    expected = [by_hand(params, *example) for example in zip(x, y, strict=True)]
    for k, layer in enumerate(found):
        for name, gradient in layer.items():
            close(gradient, np.mean([example[k][name] for example in expected], axis=0), rtol=1e-9)


def test_in_chunks(data):
    params, x, y = data
    whole = vmap(grad(loss_of), (None, 0, 0))(params, x, y)
    all_close(vmap(grad(loss_of), (None, 0, 0), chunk_size=4)(params, x, y), whole)


def test_ensemble_of_models(data):
    _, x, y = data
    members = [make_network(np.random.default_rng(seed)) for seed in range(3)]
    flat = [tree.tree_leaves(member) for member in members]
    stacked = tree.tree_unflatten([np.stack(leaves) for leaves in zip(*flat, strict=True)],
                                  tree.tree_flatten(members[0])[1])
    outputs = vmap(lambda params, x: network(as_pairs(params), x), (0, None))(stacked, x[0])
    for output, member in zip(outputs, members, strict=True):
        close(output, network(as_pairs(member), x[0]), rtol=1e-9)
    gradients = vmap(grad(loss_of), (0, None, None))(stacked, x[0], y[0])
    for i, member in enumerate(members):
        all_close([{name: value[i] for name, value in layer.items()} for layer in gradients],
                  by_hand(member, x[0], y[0]))
    each_its_own = vmap(grad(loss_of))(stacked, x[:3], y[:3])
    for i, member in enumerate(members):
        all_close([{name: value[i] for name, value in layer.items()} for layer in each_its_own],
                  by_hand(member, x[i], y[i]))


def test_ensemble_on_a_batch(data):
    _, x, y = data
    members = [make_network(np.random.default_rng(seed)) for seed in range(3)]
    flat = [tree.tree_leaves(member) for member in members]
    stacked = tree.tree_unflatten([np.stack(leaves) for leaves in zip(*flat, strict=True)],
                                  tree.tree_flatten(members[0])[1])
    losses = vmap(vmap(loss_of, (None, 0, 0)), (0, None, None))(stacked, x, y)
    expected = [[loss_of(member, *example) for example in zip(x, y, strict=True)] for member in members]
    close(losses, np.array(expected), rtol=1e-9)


RATE = 0.1


def inner_loss(w, x):
    return ((w * x - 1.0)**2).sum()


def adapted_by_grad(w, x):
    return w - RATE * grad(inner_loss)(w, x)


def adapted_by_vjp(w, x):
    return w - RATE * vjp(lambda w: inner_loss(w, x), w)[1](ONE)[0]


def adapted_by_jacobian(w, x):
    return w - RATE * jacfwd(inner_loss)(w, x)


@pytest.mark.parametrize("adapted", [adapted_by_grad, adapted_by_vjp, adapted_by_jacobian], ids=lambda f: f.__name__)
@pytest.mark.parametrize("outer", [grad, jacrev, jacfwd], ids=lambda f: f.__name__)
def test_learning_to_learn_over_a_batch_of_tasks(outer, adapted):
    def of_task(w, x):
        return (adapted(w, x)**3).sum()

    def of_all(w):
        return vmap(of_task, (None, 0))(w, POINTS).sum()

    w = np.array([0.5, -0.3, 0.2])
    stepped = w - RATE * 2 * POINTS * (w * POINTS - 1)
    each = 3 * stepped**2 * (1 - RATE * 2 * POINTS**2)
    close(outer(of_all)(w), each.sum(axis=0))
    close(vmap(outer(of_task), (None, 0))(w, POINTS), each)


def test_learning_to_learn_with_two_steps():
    def f(w):
        for _ in range(2):
            w = adapted_by_grad(w, X)
        return w.sum()

    factor = 1 - RATE * 2 * X**2
    close(grad(f)(Y), factor**2)
    close(jacfwd(f)(Y), factor**2)


def test_newton_step_and_its_derivative():
    # One step of Newton's method finds the minimum of a quadratic form from any start, so the derivative is 0.
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    b = np.array([1.0, -1.0])

    def step(x):
        def f(x):
            return 0.5 * x @ (matrix @ x) - b @ x

        (p, q), (r, s) = hessian(f)(x)
        first, second = grad(f)(x)
        return x - ops.np.stack([s * first - q * second, p * second - r * first]) / (p * s - q * r)

    start = np.array([0.3, -0.4])
    close(step(start), np.linalg.solve(matrix, b))
    close(jacrev(step)(start), np.zeros((2, 2)))


# --- modes --------------------------------------------------------------------------------------------------


def test_no_grad_in_a_batch():
    def part(x):
        with autograd.no_grad():
            weight = x**2
        return (weight * x).sum()

    close(vmap(grad(part))(POINTS), POINTS**2)
    close(grad(lambda x: vmap(part)(x).sum())(POINTS), POINTS**2)
    close(jacrev(part)(X), X**2)
    close(jacfwd(part)(X), 3 * X**2)
    with autograd.no_grad():
        close(vmap(grad(part))(POINTS), POINTS**2)
        close(hessian(wave)(X), np.diag(curvature(X)))


def test_no_grad_around_an_inner_gradient():
    def f(a):
        with autograd.no_grad():
            q = jacrev(lambda x: x**3)(a)
        return a * q

    close(grad(f)(TWO), 12.0)
    close(jacrev(f)(TWO), 12.0)
    close(vmap(grad(f))(np.array([1.0, 2.0])), np.array([3.0, 12.0]))


def test_forward_mode_switched_off_inside():
    def f(x):
        with set_forward_enabled(False):
            weight = x**2
        return weight * x

    close(jacfwd(f)(X), np.diag(X**2))
    close(linearize(f, X)[1](Y), X**2 * Y)
    close(jacrev(f)(X), np.diag(3 * X**2))
    close(vmap(lambda x, t: jvp(f, (x,), (t,))[1])(POINTS, TANGENTS), POINTS**2 * TANGENTS)


def test_inference_mode():
    def inside(x):
        with autograd.inference_mode():
            return (x**2).sum()

    for way in (jacrev, jacfwd, lambda f: lambda x: linearize(f, x)[1](X)):
        close(np.sum(way(inside)(X)), 0.0)


WAYS = {"jacrev": jacrev(wave), "jacrev in chunks": jacrev(lambda x: ops.np.sin(x) * x**2, chunk_size=2),
        "jacfwd": jacfwd(wave), "hessian": hessian(wave), "no dependence": jacfwd(lambda x: ops.np.ones(2))}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_results_under_inference_mode_are_ordinary(way):
    expected = way(X)
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.inference_mode():
        found = way(x)
    assert not found.requires_grad
    found += 1          # what is made in inference mode could not be written to
    close(found, expected + 1)


# --- wrappers after their interpreter, and elsewhere --------------------------------------------------------------

RUNS = {
    "grad": lambda f, x: grad(f)(x), "vjp": lambda f, x: vjp(f, x), "jvp": lambda f, x: jvp(f, (x,), (np.ones(3),)),
    "jacrev": lambda f, x: jacrev(f)(x), "jacfwd": lambda f, x: jacfwd(f)(x),
    "hessian": lambda f, x: hessian(f)(x), "linearize": lambda f, x: linearize(f, x),
}
REVERSE = {name: run for name, run in RUNS.items() if name not in ("jvp", "jacfwd", "linearize")}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_dead_wrapper_is_its_value(run):
    kept = []

    def f(x):
        kept.extend([x, x * 2])
        return wave(x)

    run(f, X)
    x, doubled = kept
    close(ops.np.add(x, doubled), 3 * X)
    assert not x.requires_grad
    assert not doubled.requires_grad
    close(grad(lambda y: (y * x).sum())(Y), X)
    close(jacfwd(lambda y: y * doubled)(Y), np.diag(2 * X))
    close(vmap(lambda y: y * x)(POINTS), POINTS * X)
    close(vmap(grad(wave))(ops.np.stack([x, x])), np.stack([slope(X)] * 2))
    for way in (grad(wave), jacrev(wave), jacfwd(wave)):
        close(way(x), slope(X))


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_dead_value_of_a_batch_is_an_error_everywhere(run):
    kept = []
    vmap(lambda x: kept.append(x) or x)(POINTS)
    for f in (lambda x: (x * kept[0]).sum(), lambda x: kept[0].sum()):
        with pytest.raises(RuntimeError, match=r"vmap.*escaped") as caught:
            run(f, X)
        assert isinstance(caught.value, DispatchError)
    with pytest.raises(RuntimeError, match="escaped"):
        run(wave, kept[0])


@pytest.mark.parametrize("transform", ["jacrev", "jacfwd", "hessian"])
def test_errors_name_transform_and_line(transform):
    ways = {"jacrev": jacrev, "jacfwd": jacfwd, "hessian": hessian}
    captured = X.copy()

    def f(x):
        captured_again = ops.np.add_(captured, x)
        return captured_again.sum()

    with pytest.raises(RuntimeError, match=rf"{transform}, called at .*test_nesting\.py:\d+"):
        ways[transform](f)(X)
    close(captured, X)


# --- writes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("wrap", [lambda x: x, Tensor], ids=["raw", "Tensor"])
def test_captured_array_is_not_written_to(run, wrap):
    captured = wrap(X.copy())

    def f(x):
        ops.np.add_(captured, 1.0)
        return wave(x)

    with pytest.raises(RuntimeError) as caught:
        run(f, X)
    assert isinstance(caught.value, DispatchError)
    close(captured, X)


@pytest.mark.parametrize("run", REVERSE.values(), ids=REVERSE)
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[:2], lambda x: x.reshape(3, 1)],
                         ids=["it", "slice", "reshaped"])
def test_differentiated_argument_is_not_written_to(run, view):
    x = X.copy()

    def f(x):
        view(x).__imul__(2)
        return wave(x)

    with pytest.raises(RuntimeError) as caught:
        run(f, x)
    assert isinstance(caught.value, DispatchError)
    close(x, X)


def test_leaf_of_a_container_is_not_written_to():
    x = X.copy()

    def f(params):
        params["x"] *= 2
        return wave(params["x"])

    for run in REVERSE.values():
        params = {"x": x}
        with pytest.raises(RuntimeError):
            run(f, params)
        close(x, X)
        assert params["x"] is x


def test_container_is_not_changed_by_what_the_function_does_to_it():
    params = {"x": X, "y": Y}

    def f(params):
        params["z"] = params.pop("x") * params["y"]
        return params["z"].sum()

    close(grad(f)(params)["x"], Y)
    close(jacrev(f)(params)["y"], X)
    close(jvp(f, (params,), (params,))[1], 2 * X @ Y)
    assert list(params) == ["x", "y"]


def test_write_in_a_batch_inside_of_a_gradient():
    def f(x):
        def each(row):
            row = row.copy()
            row *= row
            row[1:] += row[0]
            return row.sum()

        return vmap(each)(x).sum()

    close(grad(f)(POINTS), 2 * POINTS * [3.0, 1.0, 1.0])
    close(vmap(grad(lambda x: f(ops.np.reshape(x, (1, 3)))))(POINTS), 2 * POINTS * [3.0, 1.0, 1.0])


# --- what is forbidden, and what is not ---------------------------------------------------------------------

FORBIDDEN = {
    "requires_grad_": lambda x: x.requires_grad_(), "requires_grad_ of a result": lambda x: (x * 2).requires_grad_(),
    "requires_grad = True": lambda x: setattr(x, "requires_grad", True),
    "requires_grad_ of a constant": lambda x: Tensor(X.copy()).requires_grad_(),
    "backward": lambda x: (x * x).sum().backward(), "autograd.backward": lambda x: autograd.backward((x * x).sum()),
    "retain_grad": lambda x: (x * 2).retain_grad(),
}


@pytest.mark.parametrize("act", FORBIDDEN.values(), ids=FORBIDDEN)
@together("run", RUNS.values(), ids=RUNS)
def test_forbidden_inside(run, act):
    def f(x):
        act(x)
        return wave(x)

    with pytest.raises(RuntimeError) as caught:
        run(f, X)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_concrete_values_are_there(run):
    seen = []

    def f(x):
        seen.append((x.detach().item(0), bool(x[0] > 0), x.detach().tolist()))
        return wave(x)

    run(f, X)
    assert seen == [(X[0], True, X.tolist())]


@pytest.mark.parametrize("order", ["vmap outside", "vmap inside"])
@pytest.mark.parametrize("use", [bool, float, lambda x: x.item()], ids=["bool", "float", "item"])
def test_no_concrete_values_in_a_batch(order, use):
    def f(x):
        use(x[0])
        return wave(x)

    call = vmap(grad(f)) if order == "vmap outside" else grad(lambda x: vmap(f)(x).sum())
    with pytest.raises(RuntimeError) as caught:
        call(POINTS)
    assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("convert", [np.asarray, lambda x: x.numpy(), lambda x: np.array([x[0]])],
                         ids=["asarray", "numpy", "array of a list"])
def test_conversion_to_numpy_is_refused(run, convert):
    def f(x):
        convert(x)
        return wave(x)

    with pytest.raises((TypeError, RuntimeError)) as caught:
        run(f, X)
    assert isinstance(caught.value, DispatchError)


def test_hooks_inside_of_a_batch():
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: seen.append(g.shape) or g * 10)
        return (y * y).sum()

    close(vmap(grad(f))(POINTS), 80 * POINTS)
    assert seen == [(3,)]


def test_autograd_grad_inside():
    def f(x):
        slope_of_cube, = autograd.grad((x**3).sum(), x, create_graph=True)
        return (slope_of_cube * x).sum()

    close(vmap(grad(f))(POINTS), 9 * POINTS**2)
    close(hessian(f)(X), np.diag(18 * X))


@pytest.mark.parametrize("outer", RUNS.values(), ids=RUNS)
@together("inner", RUNS.values(), ids=RUNS)
def test_exception_in_the_middle(outer, inner):
    def fail(x):
        raise ZeroDivisionError

    def f(x):
        return vmap(lambda y: inner(fail, y))(ops.np.stack([x, x])).sum()

    with pytest.raises(ZeroDivisionError):
        outer(f, X)
    leaf = Tensor(X.copy(), requires_grad=True)
    wave(leaf).backward()
    close(leaf.grad, slope(X))


# --- operators, kernels, threads ----------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_operator_without_a_derivative_raises_at_the_call(run, fresh, define):
    opaque = define(fresh, "opaque(Tensor x) -> Tensor", CPU=lambda x: x * 2)
    reached = []

    def f(x):
        reached.append(opaque(x))
        return wave(x)

    with pytest.raises(NotImplementedError, match="opaque") as caught:
        run(f, X)
    assert isinstance(caught.value, DispatchError)
    assert reached == []
    run(lambda x: wave(x) * opaque(Y).sum(), X)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_transforms_inside_of_a_kernel(run, fresh, define):
    found = []
    inside = define(fresh, "inside(Tensor x) -> Tensor", CPU=lambda x: found.append(run(wave, x)) or x * 1)

    def f(x):
        return (x * inside(Y)).sum()

    close(grad(f)(X), Y)
    close(jacfwd(f)(X), Y)
    close(vmap(lambda x: inside(Y) * x)(POINTS), POINTS * Y)
    expected = tree.tree_leaves(run(wave, Y))
    for result in found:
        leaves = tree.tree_leaves(result)
        close(leaves[0], expected[0])
        assert is_raw(leaves[0])


@pytest.mark.parametrize("name", RUNS)
def test_saved_tensors_hooks_are_refused_where_something_is_saved(name):
    with autograd.saved_tensors_hooks(lambda t: t, lambda t: t):
        if name in ("jvp", "jacfwd", "linearize"):
            RUNS[name](wave, X)
        else:
            with pytest.raises(RuntimeError, match="saved_tensors_hooks") as caught:
                RUNS[name](wave, X)
            assert isinstance(caught.value, DispatchError)


@pytest.mark.parametrize("way", [hessian, lambda f: jacrev(jacrev(f)), lambda f: jacfwd(jacfwd(f))],
                         ids=["hessian", "jacrev of jacrev", "jacfwd of jacfwd"])
def test_threads_are_independent(way):
    points = np.random.default_rng(5).normal(size=(40, 3))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(way(wave), points))
    for point, result in zip(points, found, strict=True):
        close(result, np.diag(curvature(point)))
