"""Captures of functions: found wherever they are held, arguments to every interpreter. Draws, writes, memory."""

import functools
import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.autograd import checkpoint, inference_mode
from pydispatch.autograd import no_grad as without_grad
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AutogradError, FunctionalizationError, VmapError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import Graph, make_fx
from tests.higher_order.compositions import same

X = np.array([0.3, -1.2, 2.0])
GLOBAL = SimpleNamespace(weight=None)


def in_a_closure(weight):
    return lambda x: x * weight


def in_a_default(weight):
    return lambda x, weight=weight: x * weight


def in_a_partial(weight):
    return functools.partial(lambda weight, x: x * weight, weight)


def in_a_bound_object(weight):
    class Layer:
        def __init__(self):
            self.weight = weight

        def forward(self, x):
            return x * self.weight

    return Layer().forward


def in_an_object(weight):
    holder = SimpleNamespace(parts={"weight": [weight]})
    return lambda x: x * holder.parts["weight"][0]


def in_a_function_that_it_calls(weight):
    def inner(x):
        return x * weight

    return lambda x: inner(x)


def in_a_global(weight):
    GLOBAL.weight = weight
    return lambda x: x * GLOBAL.weight


HOLDERS = [in_a_closure, in_a_default, in_a_partial, in_a_bound_object, in_an_object, in_a_function_that_it_calls,
           in_a_global]


def needs_data(function):
    """Return the same function, which cannot run without data."""
    class Wrapping:
        def __init__(self):
            self.function = function

        def __call__(self, x):
            x.sum().detach().item()
            return self.function(x)

    return Wrapping().__call__


@pytest.mark.parametrize("change", [lambda f: f, needs_data], ids=["without data", "with data"])
@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
def test_captured_value_is_found(holder, change):
    def f(weight):
        return map_slices(change(holder(weight)), X).sum()

    same(grad(f)(np.array(2.0)), X.sum())
    same(jvp(f, (np.array(2.0),), (np.array(3.0),))[1], 3 * X.sum())
    leaf = Tensor(np.array(2.0), requires_grad=True)
    f(leaf).backward()
    same(leaf.grad, X.sum())


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: holder.__name__)
def test_captured_batch_is_found(holder):
    same(vmap(lambda weight: map_slices(holder(weight), X))(np.array([1.0, 2.0])), np.stack([X, 2 * X]))
    same(make_fx(lambda weight: map_slices(holder(weight * 1), X))(np.array(1.0))(np.array(3.0)), 3 * X)


def test_captured_by_both_branches_is_passed_once():
    def program(x):
        y = ops.np.cos(x)
        return cond(x.sum() > 0, lambda: y * 2, lambda: y * 3, ())

    graph = make_fx(program)(X)
    (node,) = [node for node in graph.nodes if getattr(node.target, "name", None) == "cond"]
    assert [used.name for used in node.args[3]] == ["cos"]


def test_captured_and_passed():
    same(grad(lambda x: cond(x.sum() > 0, lambda y: y * x, lambda y: y + x, (x,)).sum())(X), 2 * X)
    same(grad(lambda x: cond(x.sum() > 0, lambda y, z: y * z, lambda y, z: y + z, (x, x)).sum())(X), 2 * X)


def test_captured_values_of_three_levels():
    # d/dc of d/db of d/da a*b*c*x summed, each interpreter's value captured by the innermost function.
    def f(a, b, c):
        return map_slices(lambda x: a * b * c * x, X).sum()

    def deepest(c):
        return grad(lambda b: grad(lambda a: f(a, b, c))(np.array(2.0)))(np.array(3.0))

    same(grad(deepest)(np.array(5.0)), X.sum())
    same(vmap(deepest)(np.array([1.0, 2.0])), np.array([X.sum(), 2 * X.sum()]))


def test_functions_that_enter_levels_themselves():
    def body(x):
        return grad(lambda y: (y * y * weight).sum())(x) + vmap(lambda y: y * weight)(x)

    weight = Tensor(np.array(2.0), requires_grad=True)
    result = cond(np.array(True), body, lambda x: x * weight, (X,))
    same(result.detach(), 2 * X * 2 + X * 2)
    result.sum().backward()
    same(weight.grad, 3 * X.sum())
    same(grad(lambda w: cond(np.array(True), lambda x: grad(lambda y: (y * y * w).sum())(x), lambda x: x * w,
                             (X,)).sum())(np.array(2.0)), 2 * X.sum())


def test_tape_inside_of_a_body():
    def body(x):
        leaf = Tensor(np.array(3.0), requires_grad=True)
        (leaf * leaf).backward()
        return x * leaf.grad

    same(cond(np.array(True), body, lambda x: x * 1, (X,)), 6 * X)


def test_names_keep_their_meaning_outside():
    weight = Tensor(np.array(2.0))

    def fails(x):
        if isinstance(x.array, np.ndarray):
            raise KeyError(x.shape)
        return x * weight

    with pytest.raises(KeyError):
        grad(lambda x: cond(np.array(True), fails, lambda x: x * weight, (x * weight,)).sum())(X)
    same(weight * 3, np.array(6.0))


# --- values that are no longer alive ---------------------------------------------------------------------------------


def test_batch_that_escaped():
    kept = []
    vmap(lambda x: kept.append(x) or x * 1)(X)
    with pytest.raises(VmapError, match="it escaped"):
        cond(np.array(True), lambda: kept[0] * 2, lambda: kept[0] * 3, ())


def test_dead_value_of_grad_is_a_constant():
    kept = []
    grad(lambda x: kept.append(x) or x.sum())(X)
    same(cond(np.array(True), lambda: kept[0] * 2, lambda: kept[0] * 3, ()), X * 2)


def test_backward_after_the_level_is_over():
    _, pull = vjp(lambda x: scan(lambda c, y: (c * y * x.sum(), None), np.array(1.0), x)[0], X)
    same(pull(np.array(1.0))[0], grad(lambda x: x[0] * x[1] * x[2] * x.sum() ** 3)(X))
    same(pull(np.array(2.0))[0], 2 * grad(lambda x: x[0] * x[1] * x[2] * x.sum() ** 3)(X))


def test_saved_operand_that_is_written_to():
    x = Tensor(X, requires_grad=True)
    y = x * 1
    result = cond(np.array(True), lambda y: y * y, lambda y: y + 1, (y,))
    y += 1
    result.sum().backward()
    same(x.grad, 2 * X)


def test_second_backward():
    x = Tensor(X, requires_grad=True)
    result = scan(lambda c, x: (c * x, None), 1.0, x)[0]
    result.backward(retain_graph=True)
    result.backward()
    same(x.grad, 2 * X.prod() / X)
    with pytest.raises(AutogradError, match="ScanBackward: Trying to backward through the graph a second time"):
        result.backward()


def test_nothing_is_kept_alive():
    weight = Tensor(X, requires_grad=True)
    result = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * weight), (0, weight))[1]
    gc.disable()
    try:
        watch = weakref.ref(result)
        del result
        assert watch() is None
    finally:
        gc.enable()


# --- grad modes ------------------------------------------------------------------------------------------------------


def test_no_grad_and_inference_mode():
    weight = Tensor(X, requires_grad=True)
    for mode in (without_grad, inference_mode):
        with mode():
            result = cond(np.array(True), lambda: weight * 2, lambda: weight * 3, ())
        assert not result.requires_grad
        same(result, X * 2)


def test_no_grad_in_a_body():
    def body(x):
        with without_grad():
            constant = x * x
        return constant * x

    same(grad(lambda x: cond(np.array(True), body, lambda x: x * 1, (x,)).sum())(X), X * X)


# --- Jacobians -------------------------------------------------------------------------------------------------------


def loop(x):
    return scan(lambda c, x: (c * x, c + x), np.array(1.0), ops.np.sin(x))


def loop_unrolled(x):
    carry, rows = 1.0, []
    for i in range(3):
        rows.append(carry + ops.np.sin(x)[i])
        carry = carry * ops.np.sin(x)[i]
    return carry, ops.np.stack(rows)


def test_jacobians_and_hessian():
    for jacobian in (jacrev, jacfwd):
        same(jacobian(lambda x: loop(x)[1])(X), jacobian(lambda x: loop_unrolled(x)[1])(X))
    same(hessian(lambda x: loop(x)[0])(X), hessian(lambda x: loop_unrolled(x)[0])(X))


# --- draws -----------------------------------------------------------------------------------------------------------


def test_looking_at_a_function_draws_nothing():
    generator, other = np.random.default_rng(5), np.random.default_rng(5)
    found = scan(lambda c, _: (c + ops.np.random_normal(generator, 0.0, 1.0), None), 0.0, length=3)[0]
    same(found, np.array(sum(other.normal(0.0, 1.0) for _ in range(3))))


def drawing(generator):
    def f(x):
        total = scan(lambda c, _: (c + ops.np.random_normal(generator, 0.0, 1.0), None), 0.0, length=2)[0]
        return total + x

    return f


def test_draws_of_a_batch():
    generator, other = np.random.default_rng(5), np.random.default_rng(5)
    found = vmap(drawing(generator), randomness="different")(np.zeros(3))
    same(found, other.normal(0.0, 1.0, 3) + other.normal(0.0, 1.0, 3))
    generator, other = np.random.default_rng(5), np.random.default_rng(5)
    found = vmap(drawing(generator), randomness="same")(np.zeros(3))
    same(found, np.full(3, other.normal(0.0, 1.0) + other.normal(0.0, 1.0)))
    with pytest.raises(VmapError, match="random"):
        vmap(drawing(generator))(np.zeros(3))


def test_draws_of_a_batch_in_a_branch():
    generator, other = np.random.default_rng(5), np.random.default_rng(5)
    found = vmap(lambda x: cond(np.array(True), lambda: ops.np.random_normal(generator, 0.0, 1.0),
                                lambda: ops.np.zeros(()), ()) + x, randomness="different")(np.zeros(3))
    same(found, other.normal(0.0, 1.0, 3))


def test_result_that_is_the_same_for_all_examples():
    found = vmap(lambda x: cond(np.array(True), lambda y: y * 2, lambda y: y * 3, (X,)), out_dims=None)(np.zeros(4))
    same(found, X * 2)


# --- writes ----------------------------------------------------------------------------------------------------------


def writes_to_its_own(x):
    y = x * 1
    y += x
    y[0] = 3.0
    return y * x


@pytest.mark.parametrize("operand", [X, np.ones(3)], ids=["argument", "constant"])
def test_functionalize_reaches_into_functions(operand):
    def program(x):
        y = x if operand is X else operand
        return cond(np.array(True), writes_to_its_own, lambda x: x * 2, (y,)) + x

    graph = make_fx(functionalize(program))(X)
    branch = graph.constants["true_fn"]
    assert type(branch) is Graph
    assert [node.target.name.name for node in branch.find_nodes(op="call_function")] == [
        "multiply", "add", "setitem", "multiply"]
    same(graph(X), program(X))


@pytest.mark.parametrize("transform", [
    lambda f: f, grad, functionalize, lambda f: lambda x: jvp(f, (x,), (x,)), lambda f: make_fx(f)],
    ids=["base", "grad", "functionalize", "jvp", "make_fx"])
def test_write_to_a_captured_array_is_refused_everywhere(transform):
    kept = Tensor(np.zeros(3))

    def f(x):
        def combine(c, x):
            kept[0] = 1.0
            return c + x, None

        return scan(combine, 0.0, x)[0]

    with pytest.raises(FunctionalizationError, match="scan: combine writes in place to the captured array 'kept'"):
        transform(f)(X)
    same(kept, np.zeros(3))


# --- what is made inside is not captured -----------------------------------------------------------------------------


def test_gradient_descent_in_a_loop():
    def body(p, n):
        return p - 0.1 * grad(lambda p: (p * p).sum())(p), n + 1

    def descend(p):
        return while_loop(lambda p, n: n < 3, body, (p, 0))[0]

    same(descend(np.ones(2)), np.full(2, 0.8**3))
    same(vmap(descend)(np.ones((3, 2))), np.full((3, 2), 0.8**3))
    same(grad(lambda p: descend(p).sum())(np.ones(2)), np.full(2, 0.8**3))


@pytest.mark.parametrize("inner", [
    lambda y: grad(lambda z: (z * z).sum())(y), lambda y: jvp(lambda z: z * z, (y,), (y,))[1] / y,
    lambda y: vmap(lambda z: z + z)(y)], ids=["grad", "jvp", "vmap"])
def test_levels_inside_over_data(inner):
    def body(x):
        return x * inner(np.array([1.0, 2.0, 4.0]))

    same(cond(np.array(True), body, lambda x: x * 1, (X,)), X * [2.0, 4.0, 8.0])
    same(grad(lambda x: cond(np.array(True), body, lambda x: x * 1, (x,)).sum())(X), np.array([2.0, 4.0, 8.0]))


def test_tensors_made_inside_are_no_arguments():
    def body(x):
        return x * Tensor(np.array([1.0, 2.0, 4.0])) + Tensor(np.ones(3), requires_grad=True).detach()

    graph = make_fx(lambda x: cond(np.array(True), body, lambda x: x * 1, (x,)))(X)
    (node,) = [node for node in graph.nodes if getattr(node.target, "name", None) == "cond"]
    assert [used.name for used in node.args[3]] == ["x_1"]
    same(graph(X), X * [1.0, 2.0, 4.0] + 1)


def test_results_of_arrays_without_data_have_none():
    meta = Tensor(MetaArray((2,), np.dtype(float)))
    found = while_loop(lambda x, i: i < 3, lambda x, i: (x * 2, i + 1), (meta, 0))
    assert [type(value.array) for value in found] == [MetaArray, MetaArray]
    found = cond(meta.sum() > 0, lambda x: np.ones(2), lambda x: np.zeros(2), (np.ones(2),))
    assert type(found.array) is MetaArray


# --- linearize -------------------------------------------------------------------------------------------------------

LINEARIZED = {
    "cond": lambda x: cond(x.sum() > 0, lambda x: ops.np.sin(x) * x[0], lambda x: x * 2, (x,)),
    "scan": loop,
    "map": lambda x: map_slices(lambda n: n * x, x),
    "while_loop": lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (0, x))[1],
    "associative_scan": lambda x: associative_scan(lambda a, b: a * b, x),
    "followed by others": lambda x: ops.np.exp(loop(x)[1]) * loop(x)[0],
    "gradient": grad(lambda x: (loop(x)[1] ** 2).sum()),
}


@pytest.mark.parametrize("name", LINEARIZED)
def test_linearize(name):
    f = LINEARIZED[name]
    out, derivative = linearize(f, X)
    for tangent in (X, np.ones(3)):
        same((out, derivative(tangent)), jvp(f, (X,), (tangent,)))
    batch = np.stack([X, -X])
    same(vmap(lambda x: linearize(f, x)[1](x))(batch), vmap(lambda x: jvp(f, (x,), (x,))[1])(batch))


def test_linearize_a_gradient_whose_steps_are_data():
    f = grad(lambda x: LINEARIZED["while_loop"](x).sum())
    with pytest.raises(AutogradError, match=r"while_loop needs data to find which(.|\n)*use jvp"):
        linearize(f, X)


def test_write_to_a_tensor_made_inside_of_data():
    def body(x):
        made = Tensor(np.zeros(3))
        made[0] = x[1]
        return made

    same(cond(np.array(True), body, lambda x: x * 1, (X,)), np.array([X[1], 0.0, 0.0]))


def test_objects_that_hold_each_other():
    holder = SimpleNamespace()
    holder.own = [holder, {"x": SimpleNamespace(back=holder)}]
    holder.weight = None

    def f(weight):
        holder.weight = weight
        return map_slices(needs_data(lambda x: x * holder.weight), X).sum()

    same(grad(f)(np.array(2.0)), X.sum())


class Odd:
    """Cannot be compared."""

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


def test_objects_that_cannot_be_compared():
    odd = Odd()
    weight = Tensor(np.array(2.0))
    same(map_slices(lambda x: x * weight if odd is not None else x, X), X * 2)


@pytest.mark.parametrize("enter", [
    lambda w: grad(lambda u: u * u)(w), lambda w: jvp(lambda u: u * u, (w,), (np.array(1.0),))[1],
    lambda w: jvp(lambda u: u * 2.0, (np.array(1.0),), (w,))[1], lambda w: vjp(lambda u: u * u, w)[1](np.array(1.0))[0],
    lambda w: vmap(lambda u: u * 2.0)(ops.np.stack([w, w]))[0], lambda w: vmap(lambda u, v: u * v, (0, None))(
        np.array([2.0, 1.0]), w)[0], lambda w: functionalize(lambda u: u * 2.0)(w)],
    ids=["grad", "jvp", "tangent", "vjp", "vmap", "vmap None", "functionalize"])
def test_captured_value_as_the_argument_of_a_transform(enter):
    def f(w):
        return map_slices(lambda x: x * enter(w), X).sum()

    same(grad(f)(np.array(2.0)), 2 * X.sum())
    same(vmap(f)(np.array([2.0, 3.0])), np.array([4 * X.sum(), 6 * X.sum()]))
    same(jvp(f, (np.array(2.0),), (np.array(3.0),))[1], 6 * X.sum())


def test_a_variable_that_has_no_value_yet():
    x = Tensor(np.array(2.0))

    def combine(c, _):
        return (c + x if c is not None else later), None

    found = scan(combine, np.array(1.0), length=3)[0]
    later = None
    assert later is None
    assert float(found) == 7.0


# --- captured values in arrays that a body makes ---

BODIES = {
    "scan": lambda f: scan(lambda s, _: (s + f(), None), 0.0, length=2)[0],
    "map": lambda f: map_slices(lambda s: s * f(), np.ones(2)).sum(),
    "while_loop": lambda f: while_loop(lambda i, s: i < 2, lambda i, s: (i + 1, s + f()), (0, 0.0))[1],
    "cond": lambda f: cond(np.array(True), lambda: 2 * f(), lambda: f(), ()),
    "checkpoint": lambda f: checkpoint(lambda z: z * f(), 2.0),
}
KEYS = {"slice": np.s_[1:], "ellipsis": ..., "mask": np.array([True, False, True]), "list": [2, 0]}
DERIVATIVES = {
    "grad": grad, "jacfwd": jacfwd, "hessian": hessian, "grad of grad": lambda f: jacrev(grad(f)),
    "linearize": lambda f: lambda x: linearize(f, x)[1](np.ones(3)),
}


@pytest.mark.parametrize("adds", [False, True], ids=["set", "add.at"])
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("body", BODIES)
def test_a_captured_value_is_written_by_a_key_to_an_array_that_the_body_makes(body, key, adds):
    def loss(value):
        y = pnp.zeros(3)
        part = value if key == "ellipsis" else value[:2]
        if adds:
            pnp.add.at(y, KEYS[key], part)
        else:
            y[KEYS[key]] = part
        return (y * y * np.arange(1.0, 4.0)).sum()

    for name, derivative in DERIVATIVES.items():
        found = derivative(lambda value: BODIES[body](lambda: loss(value)))(X)
        np.testing.assert_allclose(found, derivative(lambda value: 2 * loss(value))(X), err_msg=name)


def into_zeros_of_numpy(value):
    y = np.zeros(3)
    y[:] = value
    return y.sum()


@pytest.mark.parametrize("lose", [into_zeros_of_numpy, lambda value: np.asarray(value).sum()])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("derivative", [grad, jacfwd])
def test_a_captured_value_is_not_lost_in_an_array_of_numpys(body, lose, derivative):
    with pytest.raises(AutogradError, match="its gradient would be lost"):
        derivative(lambda value: BODIES[body](lambda: lose(value)))(X)
