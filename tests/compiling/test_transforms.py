"""Compiled functions under transforms and over them, on the tape, in modes and traces, and in one another."""

import copy
import pickle

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, autograd, compile, ops
from pydispatch.autograd import checkpoint, inference_mode, no_grad
from pydispatch.exceptions import AutogradError, CompilationError, DataDependentError
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from pydispatch.testing.logging import LoggingMode, LoggingTensor, capture_logs
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves
from tests.comparing import raw
from tests.compiling.same import check_same
from tests.custom_operators import CUSTOM_OPERATORS
from tests.functions import FUNCTIONS, Stateless
from tests.higher_order import compositions

X = np.random.default_rng(5).uniform(0.3, 1.5, (3, 4))
W = np.random.default_rng(6).uniform(0.3, 1.5, (4, 4))


class Triple(Stateless):
    """3x, whose gradient says 5."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Filled(Triple):
    """Triple, computed in an array that forward fills."""

    @staticmethod
    def forward(x):
        y = pnp.zeros(x.shape)
        y[...] = x
        y *= 3
        return y


def without_gradient_in_part(x):
    with no_grad():
        y = x * x
    return (y * x * x).sum()


def writing(x):
    y = ops.np.copy(x)
    y[0] *= 2
    y[:, 1] = x[:, 0] * x[:, 2]
    y += 1
    return (y * y).sum()


FUNCTIONS_OF_ONE = {
    "elementwise": lambda x: (ops.np.sin(x) * x + ops.np.exp(x)).sum(),
    "products": lambda x: ops.np.tanh(x @ W @ x.T).sum(),
    "reductions": lambda x: (x.max(0) * x.mean() / x.sum(1, keepdims=True)).sum(),
    "views": lambda x: (x.T[1:, ::-1] * x.T[:-1]).sum() + x[0, 1] * x[..., 2].sum(),
    "softmax": lambda x: ops.np.log(ops.np.exp(x - x.max(1, keepdims=True)).sum(1)).sum(),
    "choices": lambda x: ops.np.where(x > 0.8, x * x, ops.np.sqrt(x)).sum(),
    "gathers": lambda x: (ops.np.take(x, np.array([2, 0, 0]), 0) * x[np.array([0, 1, 1])]).sum(),
    "linear algebra": lambda x: pnp.linalg.inv(x @ x.T + np.eye(3)).sum(),
    "writes": writing,
    "no gradient in part": without_gradient_in_part,
    "a Function": lambda x: (Triple.apply(x) * x).sum(),
    "a Function that writes": lambda x: (Filled.apply(x) * x).sum(),
    "a checkpoint": lambda x: checkpoint(lambda x: ops.np.sin(x * x), x).sum(),
    "detached": lambda x: (ops.np.detach(x * x) * x).sum(),
    "a number": lambda x: ops.np.full((2,), 3.0).sum() * x.sum(),
    "stacks": lambda x: (ops.np.stack([x, x * x], 1) * ops.np.concatenate([x, x])[::2, None][:3, :1].sum()).sum(),
    "running totals": lambda x: (ops.np.cumsum(x, 1) * ops.np.sort(x, 1)).sum(),
}


def on_tape(f):
    def gradient(x):
        leaf = Tensor(np.array(x), requires_grad=True)
        f(leaf).backward()
        return leaf.grad.numpy()
    return gradient


def on_tape_twice(f):
    def gradient(x):
        leaf = Tensor(np.array(x), requires_grad=True)
        first, = autograd.grad(f(leaf), leaf, create_graph=True)
        if not first.requires_grad:
            return first.numpy(), np.zeros_like(x)
        second, = autograd.grad((first * first).sum(), leaf, allow_unused=True)
        return raw(first), np.zeros_like(x) if second is None else raw(second)
    return gradient


def gradient_norm(f):
    return lambda x: (grad(f)(x) ** 2).sum()


TRANSFORMS = {
    "value": lambda f: f,
    "grad": grad,
    "value_and_grad": value_and_grad,
    "grad of grad": lambda f: grad(gradient_norm(f)),
    "jvp": lambda f: lambda x: jvp(f, (x,), (ops.np.cos(x),)),
    "jvp of grad": lambda f: lambda x: jvp(grad(f), (x,), (ops.np.cos(x),)),
    "grad of jvp": lambda f: grad(lambda x: jvp(f, (x,), (ops.np.cos(x),))[1]),
    "vjp": lambda f: lambda x: vjp(f, x)[1](np.array(2.0)),
    "jacrev": lambda f: jacrev(lambda x: f(x) * x[0]),
    "jacfwd": lambda f: jacfwd(lambda x: f(x) * x[0]),
    "hessian": hessian,
    "linearize": lambda f: lambda x: linearize(f, x)[1](ops.np.cos(x)),
    "tape": on_tape,
    "tape twice": on_tape_twice,
    "vmap": lambda f: lambda x: vmap(f)(ops.np.stack([x, x * 2])),
    "vmap of grad": lambda f: lambda x: vmap(grad(f))(ops.np.stack([x, x * 2])),
    "grad of vmap": lambda f: grad(lambda x: vmap(f)(ops.np.stack([x, x * 2])).sum()),
    "vmap of vmap": lambda f: lambda x: vmap(vmap(f))(ops.np.reshape(ops.np.stack([x, x * 2, x, x]), (2, 2, 3, 4))),
    "grad of vmap of grad": lambda f: grad(
        lambda x: (vmap(grad(f), in_dims=1)(ops.np.stack([x, x * 2], 1)) ** 2).sum()),
    "functionalize": functionalize,
    "functionalize of grad": lambda f: functionalize(grad(f)),
    "make_fx": lambda f: lambda x: make_fx(f)(x)(x),
    "make_fx of grad": lambda f: lambda x: make_fx(grad(f))(x)(x),
    "checkpoint": lambda f: on_tape(lambda x: checkpoint(f, x)),
}
IN_LOOPS = {
    "vmap": lambda f: lambda x: np.stack([f(x), f(x * 2)]),
    "vmap of grad": lambda f: lambda x: np.stack([grad(f)(x), grad(f)(x * 2)]),
    "vmap of vmap": lambda f: lambda x: np.reshape([f(x), f(x * 2), f(x), f(x)], (2, 2)),
}
"""References for transforms where an eager one might fail in the same way."""
WITHOUT_FORWARD_MODE = ("a Function", "a Function that writes")
FORWARD_MODE = ("jvp", "jvp of grad", "grad of jvp", "jacfwd", "hessian", "linearize")


def near(found, expected):
    found, expected = tree_leaves(found), tree_leaves(expected)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        one, other = np.asarray(raw(one)), np.asarray(raw(other))
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12, strict=True)


def oracle(transform, function):
    return IN_LOOPS.get(transform, TRANSFORMS[transform])(FUNCTIONS_OF_ONE[function])


def pairs_of(transforms):
    return pytest.mark.parametrize(("function", "transform"), [
        (function, transform) for function in FUNCTIONS_OF_ONE for transform in transforms
        if not (function in WITHOUT_FORWARD_MODE and transform in FORWARD_MODE)])


@pairs_of(TRANSFORMS)
def test_transforms_of_compiled_functions(function, transform):
    compiled = TRANSFORMS[transform](compile(FUNCTIONS_OF_ONE[function]))
    near(compiled(X), oracle(transform, function)(X))
    backward = X[::-1]
    near(compiled(backward), oracle(transform, function)(np.ascontiguousarray(backward)))


@pairs_of([name for name in TRANSFORMS if not name.startswith(("tape", "make_fx", "checkpoint"))])
def test_compiled_transforms_of_functions(function, transform):
    compiled = compile(TRANSFORMS[transform](FUNCTIONS_OF_ONE[function]))
    expected = oracle(transform, function)(X)
    for _ in range(2):
        near(compiled(X), expected)
    assert compiled.cache_info() == (1, 1, 1)


@pairs_of(["value", "grad", "grad of grad", "vmap of grad", "tape twice", "jvp of grad"])
def test_compiled_functions_in_compiled_functions(function, transform):
    inner = compile(FUNCTIONS_OF_ONE[function])
    if transform.startswith("tape"):
        near(TRANSFORMS[transform](compile(lambda x: inner(x) * 1.0))(X), oracle(transform, function)(X))
    else:
        near(compile(TRANSFORMS[transform](inner))(X), oracle(transform, function)(X))


@pairs_of(["grad", "grad of grad", "tape", "tape twice", "vmap of grad", "hessian"])
def test_pickled_functions_have_the_same_derivatives(function, transform):
    compiled = compile(Named(function))
    compiled(X)
    near(TRANSFORMS[transform](pickle.loads(pickle.dumps(compiled)))(X), oracle(transform, function)(X))


class Named:
    """One of the functions, as an object that pickles."""

    def __init__(self, name):
        self.name = name

    def __call__(self, x):
        return FUNCTIONS_OF_ONE[self.name](x)


# --- the tape --------------------------------------------------------------------------------------------------------


def test_gradients_add_up_and_hooks_run():
    compiled, seen = compile(lambda x, y: x * y), []
    x, y = Tensor(X, requires_grad=True), Tensor(X + 1, requires_grad=True)
    result = compiled(x, y)
    x.register_hook(lambda g: seen.append(np.array(g)))
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 2 * (X + 1))
    np.testing.assert_array_equal(y.grad.numpy(), 2 * X)
    assert len(seen) == 2
    with pytest.raises(AutogradError, match="a second time"):
        result.sum().backward()


def test_only_gradients_that_are_asked_for():
    compiled = compile(lambda x, y, n: (x * y, n + 1, (x * 2).sum()))
    x, y = Tensor(X, requires_grad=True), Tensor(X)
    product, number, total = compiled(x, y, np.array([1, 2]))
    assert (product.requires_grad, number.requires_grad, total.requires_grad) == (True, False, True)
    assert number.dtype == np.int64
    total.backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.full_like(X, 2))
    assert y.grad is None


@pytest.mark.parametrize("guard", [no_grad, inference_mode])
def test_guards_of_the_tape(guard):
    compiled = compile(lambda x: x * 2)
    x = Tensor(X, requires_grad=True)
    with guard():
        assert not compiled(x).requires_grad
    assert compiled(x).requires_grad
    with guard():
        assert not compiled(x).requires_grad


def test_results_are_leaves_of_nothing_without_a_tape():
    found = compile(lambda x: (x, x * 2))(Tensor(X))
    assert [type(value) for value in found] == [Tensor, Tensor]
    assert all(value.is_leaf and not value.requires_grad for value in found)


def test_arguments_that_were_written_to_before_the_backward_pass():
    x = Tensor(X.copy(), requires_grad=True)
    y = x * 1
    result = compile(lambda y: (y * y).sum())(y)
    y += 1
    result.backward()
    np.testing.assert_allclose(x.grad.array, 2 * X)


# --- modes, subclasses, traces ---------------------------------------------------------------------------------------


def test_modes_see_one_call_every_time():
    compiled = compile(lambda x: x + ops.np.arange(4.0) * ops.np.linspace(0, 1, 4))
    for _ in range(3):
        with LoggingMode(), capture_logs(is_mode=True) as lines:
            compiled(X)
        assert len(lines) == 1
        assert "compiled(<Program" in lines[0]


def test_subclasses_see_one_call():
    with capture_logs() as lines:
        found = compile(lambda x: ops.np.sin(x) * 2)(LoggingTensor(X))
    assert type(found) is LoggingTensor
    assert len([line for line in lines if "compiled(" in line]) == 1
    np.testing.assert_array_equal(raw(found.elem), np.sin(X) * 2)


def test_traces_get_the_operators():
    compiled = compile(lambda x: ops.np.sin(x) * 2)
    graph = make_fx(lambda x: compiled(x) + 1)(X)
    assert [node.target.name.name for node in graph.find_nodes(op="call_function")] == ["sin", "multiply", "add"]
    np.testing.assert_array_equal(graph(X), np.sin(X) * 2 + 1)


IN_OPERATORS = ("Identity", "ScaleByCaptured")
"""The samples whose forward does not call NumPy."""


@pytest.mark.parametrize("sample", FUNCTIONS, ids=lambda sample: sample.name)
def test_samples_of_functions(sample):
    for arguments in sample.arguments():
        compiled = compile(sample.function.apply)
        if sample.name in IN_OPERATORS:
            check_same(compiled(*arguments), sample.function.apply(*arguments))
            leaf, other = (Tensor(np.array(arguments[0]), requires_grad=True) for _ in range(2))
            compiled(leaf, *arguments[1:]).sum().backward()
            sample.function.apply(other, *arguments[1:]).sum().backward()
            near(leaf.grad, other.grad)
        else:
            with pytest.raises(DataDependentError, match=r"depends on the arguments of the trace.*\.py:\d+"):
                compiled(*arguments)


TRACEABLE = [sample for sample in CUSTOM_OPERATORS if sample.has_fake and sample.name != "numpy_split_copy_with_int"]
"""Not those whose results have shapes that depend on data, or are numbers."""


@pytest.mark.parametrize("sample", TRACEABLE, ids=lambda sample: sample.name)
def test_custom_operators(sample):
    for args, kwargs in sample.arguments():
        expected = sample.operator(*copy.deepcopy(args), **kwargs)
        compiled = compile(sample.operator)
        for _ in range(2):
            found = compiled(*args, **kwargs)
            check_same(list(found) if isinstance(expected, list) else found, expected)
        assert "call samples::" in compiled.plan(*args, **kwargs)


@pytest.mark.parametrize("sample", TRACEABLE, ids=lambda sample: sample.name)
def test_gradients_of_custom_operators(sample):
    for args, kwargs in sample.arguments():
        if not isinstance(args[0], np.ndarray):
            continue

        def loss(x, sample=sample, rest=args[1:], kwargs=kwargs):
            results = tree_leaves(sample.operator(x, *rest, **kwargs))
            return sum([(leaf * leaf).sum() for leaf in results if getattr(leaf, "dtype", np.dtype(int)).kind == "f"])

        expected = grad(loss)(args[0])
        near(grad(compile(loss))(args[0]), expected)
        near(compile(grad(loss))(args[0]), expected)
        near(vmap(compile(loss))(np.stack([args[0], args[0] + 1])), np.stack([loss(args[0]), loss(args[0] + 1)]))


@pytest.mark.parametrize("sample", [sample for sample in CUSTOM_OPERATORS if sample not in TRACEABLE],
                         ids=lambda sample: sample.name)
def test_custom_operators_whose_results_depend_on_data_are_refused(sample):
    for args, kwargs in sample.arguments():
        with pytest.raises((DataDependentError, CompilationError), match=r"shape|number|no array|fake"):
            compile(sample.operator)(*args, **kwargs)


# --- under every composition -----------------------------------------------------------------------------------------

MATRIX = {
    "smooth": lambda x: (ops.np.sin(x) * x, x * x),
    "with views": lambda x: x[::-1] * ops.np.reshape(x, (1, -1))[0] + x[0],
    "with a product": lambda x: ops.np.tanh(ops.np.matmul(np.ones((x.shape[0],) * 2), x)),
}
POINTS = [np.array([0.4, -0.7, 1.3]), np.array([0.9, 0.1, -0.4])]

TestCompositions = compositions.tests_of(
    {name: (compile(function), function) for name, function in MATRIX.items()}, POINTS, np.stack(POINTS))


def test_a_node_that_dies_while_an_error_is_on_its_way():
    def reflected(x):
        q = pnp.eye(3)
        q -= pnp.outer(q @ x, x)
        w = x[1:]
        q[:, 1:] -= pnp.outer(q[:, 1:] @ w, w)
        return q.sum()

    x = np.array([0.5, 1.1, -0.4])
    np.testing.assert_allclose(compile(grad(reflected))(x), grad(reflected)(x), rtol=1e-12)
