"""The composition matrix: one operator with rules of its own, through every two transforms, on two backends.

None of the rules is the true derivative, and no two agree, so that a value tells which of them was used.
"""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from pydispatch import Tensor, is_array, ops
from pydispatch.func import grad, jvp, vjp, vmap
from pydispatch.library import Library, custom_op
from pydispatch.tree import tree_leaves, tree_map

X = np.array([[0.3, -1.2, 2.0], [1.7, 0.4, -0.6]])
BACKWARD, JVP, VMAP = 3.0, 5.0, 7.0
pytestmark = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")


def sin_setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def sin_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ops.np.cos(x) * BACKWARD


def sin_jvp(ctx, tangent):
    (x,) = ctx.saved_tensors
    return tangent * ops.np.cos(x) * JVP


def with_operators(cls):
    """Return a class of arrays that can be computed with, as those of a real backend can."""
    members = {
        "__add__": ops.np.add, "__radd__": lambda x, y: ops.np.add(y, x), "__mul__": ops.np.multiply,
        "__rmul__": lambda x, y: ops.np.multiply(y, x), "__neg__": ops.np.negative, "reshape": ops.np.reshape,
    }
    return type("ArrayWithOperators", (cls,), {name: to_method(member) for name, member in members.items()})


def to_method(function):
    return lambda *args: function(*args)


@pytest.fixture(params=["CPU", "A"])
def to_backend(request, backends):
    """Provide NumPy arrays as those of a backend, on A every operator computes with NumPy's kernels."""
    if request.param == "CPU":
        yield np.asarray
        return
    make = with_operators(backends.ArrayA)

    def compute(op, *args, **kwargs):
        args, kwargs = tree_map(lambda leaf: leaf.data if isinstance(leaf, make) else leaf, (args, kwargs))
        return tree_map(lambda leaf: make(leaf) if is_array(leaf) else leaf, op(*args, **kwargs))

    with Library("_", "IMPL") as library:
        library.fallback(compute, "A")
        yield make


def host(value):
    return tree_map(lambda leaf: np.asarray(getattr(leaf, "data", leaf)), value)


@pytest.fixture(params=["all given", "jvp generated", "vmap generated", "both generated"])
def given(request):
    return {"all given": ("jvp", "vmap"), "jvp generated": ("vmap",), "vmap generated": ("jvp",),
            "both generated": ()}[request.param]


@pytest.fixture
def sin(fresh, backends, given):
    """Provide an operator with kernels for two backends and its own derivatives."""
    calls = []

    def on_cpu(x):
        calls.append("CPU")
        return np.sin(x)

    def on_a(x):
        calls.append("A")
        return type(x)(np.sin(x.data))

    definition = custom_op(f"{fresh.namespace}::sin", on_cpu, mutates_args=(), device_types="cpu",
                           schema="(Tensor x) -> Tensor")
    definition.register_kernel("A", on_a)
    definition.register_fake(lambda x: ops.np.zeros_like(x))
    definition.register_autograd(sin_backward, setup_context=sin_setup, jvp=sin_jvp if "jvp" in given else None)
    if "vmap" in given:
        definition.register_vmap(lambda info, in_dims, x: (definition(x) * VMAP, in_dims[0]))
    definition.calls = calls
    yield definition
    definition.remove()


def ones(x):
    return ops.np.ones_like(x)


def compositions(f):
    """Return every transform and pair of transforms of an elementwise function, as functions of a batch of vectors."""

    def total(x):
        return ops.np.sum(f(x))

    def slope(x):
        return grad(total)(x)

    def tangent(x):
        return jvp(f, (x,), (ones(x),))[1]

    return {
        "grad": slope,
        "jvp": lambda x: jvp(f, (x,), (ones(x),)),
        "vmap": vmap(f),
        "vmap(grad)": vmap(slope),
        "grad(vmap)": grad(lambda x: ops.np.sum(vmap(f)(x))),
        "grad(grad)": grad(lambda x: ops.np.sum(slope(x))),
        "jvp(grad)": lambda x: jvp(slope, (x,), (ones(x),)),
        "grad(jvp)": grad(lambda x: ops.np.sum(tangent(x))),
        "jvp(vmap)": lambda x: jvp(vmap(f), (x,), (ones(x),)),
        "vmap(jvp)": vmap(lambda x: jvp(f, (x,), (ones(x),))),
    }


def implied(given):
    """Return the expected value of each composition under the given rules."""
    backward = BACKWARD
    forward = JVP if "jvp" in given else BACKWARD       # transposed
    batch = VMAP if "vmap" in given else 1.0
    sin, cos = np.sin(X), np.cos(X)
    return {
        "grad": backward * cos,
        "jvp": (sin, forward * cos),
        "vmap": batch * sin,
        "vmap(grad)": backward * cos,
        "grad(vmap)": batch * backward * cos,
        "grad(grad)": -backward * sin,
        "jvp(grad)": (backward * cos, -backward * sin),
        "grad(jvp)": -forward * sin,
        "jvp(vmap)": (batch * sin, batch * forward * cos),
        "vmap(jvp)": (batch * sin, forward * cos),
    }


NAMES = list(implied(()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("as_tensors", [False, True], ids=["raw", "Tensor"])
def test_composition_gives_what_the_rules_imply(sin, given, to_backend, name, as_tensors):
    x = to_backend(X)
    result = compositions(sin)[name](Tensor(x) if as_tensors else x)
    expected = implied(given)[name]
    assert all(type(leaf) is (Tensor if as_tensors else type(x)) for leaf in tree_leaves(result))
    arrays = tree_map(lambda leaf: leaf.array, result) if as_tensors else result
    for actual, desired in zip(tree_leaves(host(arrays)), tree_leaves(expected), strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-12, strict=True)


def test_the_kernel_of_the_backend_is_the_one_that_runs(sin, to_backend):
    for composition in compositions(sin).values():
        composition(to_backend(X))
    assert set(sin.calls) == {"CPU" if to_backend is np.asarray else "A"}


# --- every composition up to a depth ---------------------------------------------------------------------------------
#
# An operator with the true derivatives, against the same function of library operators.


def mixed(x, w):
    """Provide an operator whose results depend on all of x and on their own element, neither elementwise nor symmetric.
    """
    return ops.np.sin(x) * w + ops.np.mean(x * x * w)


def mixed_backward(ctx, g):
    x, w = ctx.saved_tensors
    spread = ops.np.sum(g) / x.size
    return g * ops.np.cos(x) * w + spread * 2 * x * w, g * ops.np.sin(x) + spread * x * x


def mixed_jvp(ctx, x_tangent, w_tangent):
    x, w = ctx.saved_tensors
    along_x = 0 if x_tangent is None else ops.np.cos(x) * w * x_tangent + ops.np.mean(2 * x * w * x_tangent)
    return along_x if w_tangent is None else along_x + ops.np.sin(x) * w_tangent + ops.np.mean(x * x * w_tangent)


def mixed_in_numpy(x, w):
    return np.sin(x) * w + np.mean(x * x * w)


def mixed_vmap(definition):
    """Return a batching rule written by hand, which puts the batch axis last."""
    def rule(info, in_dims, x, w):
        x, w = (ops.np.broadcast_to(value, (info.batch_size, 3)) if dim is None else ops.np.moveaxis(value, dim, 0)
                for value, dim in zip((x, w), in_dims, strict=True))
        rows = [definition(x[i], w[i]) for i in range(info.batch_size)]
        return ops.np.stack(rows, -1), -1
    return rule


KINDS = {
    "black box": (mixed_in_numpy, {}, None), "black box, jvp given": (mixed_in_numpy, {}, mixed_jvp),
    "batchable": (mixed, {"batchable": True}, None), "batchable, jvp given": (mixed, {"batchable": True}, mixed_jvp),
    "rule given": (mixed_in_numpy, {}, mixed_jvp),
}


@pytest.fixture(params=KINDS)
def mixed_operator(request, fresh):
    kernel, options, tangents = KINDS[request.param]
    definition = custom_op(f"{fresh.namespace}::mixed", kernel, mutates_args=(),
                           schema="(Tensor x, Tensor w) -> Tensor", **options)
    definition.register_autograd(mixed_backward, setup_context=sin_setup, jvp=tangents)
    if request.param == "rule given":
        definition.register_vmap(mixed_vmap(definition))
    yield definition
    definition.remove()


LETTERS = {
    "g": lambda f: lambda x: grad(lambda x: ops.np.sum(f(x) * weights(x)))(x),
    "j": lambda f: lambda x: jvp(f, (x,), (ops.np.cos(x),))[1],
    "r": lambda f: lambda x: vjp(f, x)[1](ops.np.cos(x))[0],
    "v": vmap,
}


def weights(x):
    """Return some numbers that differ from place to place and depend on nothing."""
    return np.linspace(0.5, 1.5, int(np.prod(x.shape))).reshape(x.shape)


def spelled(word, f):
    """Return the function that a word of transforms makes of one of a vector."""
    for letter in reversed(word):
        f = LETTERS[letter](f)
    return f


WORDS = ["".join(word) for depth in (1, 2, 3) for word in itertools.product(LETTERS, repeat=depth)]
LONG_WORDS = ["".join(word) for word in itertools.product(LETTERS, repeat=4)]


def check_word(operator, word):
    """Check the value, and the gradient with respect to the variable captured below all transforms."""
    shape = (2,) * word.count("v") + (3,)
    x, w = np.random.default_rng(1).normal(size=shape), np.array([0.5, -1.5, 2.0])
    for program in (lambda f: spelled(word, lambda x: f(x, w))(x),
                    lambda f: grad(lambda w: ops.np.sum(spelled(word, lambda x: f(x, w))(x)))(w),
                    lambda f: jvp(lambda w: spelled(word, lambda x: f(x, w))(x), (w,), (w * w,))[1]):
        np.testing.assert_allclose(program(operator), program(mixed), rtol=1e-9, atol=1e-9, strict=True, err_msg=word)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_word_of_transforms(mixed_operator, depth):
    for word in WORDS:
        if len(word) == depth:
            check_word(mixed_operator, word)


@pytest.mark.slow
@pytest.mark.parametrize("first", LETTERS)
def test_every_word_of_four_transforms(mixed_operator, first):
    for word in LONG_WORDS:
        if word[0] == first:
            check_word(mixed_operator, word)


def in_numpy(formula):
    """Return a formula that takes NumPy arrays, so that it can be used once, and on one example at a time."""
    def run(ctx, *values):
        arrays = SimpleNamespace(saved_tensors=[np.asarray(value) for value in ctx.saved_tensors])
        found = formula(arrays, *[None if value is None else np.asarray(value) for value in values])
        return tree_map(lambda leaf: Tensor(np.asarray(leaf)), found)
    return run


@pytest.fixture(params=[{}, {"batchable": True}], ids=["black box", "batchable"])
def opaque_operator(request, fresh):
    kernel = mixed if request.param else mixed_in_numpy
    definition = custom_op(f"{fresh.namespace}::mixed", kernel, mutates_args=(),
                           schema="(Tensor x, Tensor w) -> Tensor", **request.param)
    definition.register_autograd(in_numpy(mixed_backward), setup_context=sin_setup, jvp=in_numpy(mixed_jvp))
    yield definition
    definition.remove()


def test_every_word_with_one_derivative_in_numpy(opaque_operator):
    words = [word for word in WORDS + LONG_WORDS if len(word) - word.count("v") == 1]
    assert len(words) == 3 * (1 + 2 + 3 + 4)
    for word in words:
        x = np.random.default_rng(1).normal(size=(2,) * word.count("v") + (3,))
        w = np.array([0.5, -1.5, 2.0])
        found, expected = (spelled(word, lambda x, f=f, w=w: f(x, w))(x) for f in (opaque_operator, mixed))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, strict=True, err_msg=word)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_of_captured_arrays_in_numpy(opaque_operator, depth):
    x, w = np.random.default_rng(1).normal(size=(2,) * depth + (3,)), np.array([0.5, -1.5, 2.0])
    for program in (lambda f: grad(lambda w: ops.np.sum(spelled("v" * depth, lambda x: f(x, w))(x)))(w),
                    lambda f: jvp(lambda w: spelled("v" * depth, lambda x: f(x, w))(x), (w,), (w * w,))[1]):
        np.testing.assert_allclose(program(opaque_operator), program(mixed), rtol=1e-9, atol=1e-9, strict=True)


def test_matrix_has_ten_entries(sin):
    assert list(compositions(sin)) == NAMES
    assert len(NAMES) == 10
