"""The composition matrix: one operator with rules of its own, through every two transforms, on two backends.

None of the rules is the true derivative, and no two agree, so that a value tells which of them was used.
"""

from __future__ import annotations

import numpy as np
import pytest

from pydispatch import Tensor, is_array, ops
from pydispatch.func import grad, jvp, vmap
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
    """A class of arrays that can be computed with, as those of a real backend can."""
    members = {
        "__add__": ops.np.add, "__radd__": lambda x, y: ops.np.add(y, x), "__mul__": ops.np.multiply,
        "__rmul__": lambda x, y: ops.np.multiply(y, x), "__neg__": ops.np.negative, "reshape": ops.np.reshape,
    }
    return type("ArrayWithOperators", (cls,), {name: to_method(member) for name, member in members.items()})


def to_method(function):
    return lambda *args: function(*args)


@pytest.fixture(params=["CPU", "A"])
def to_backend(request, backends):
    """NumPy's arrays as those of a backend; on A every operator computes with NumPy's kernels."""
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
    """As NumPy arrays."""
    return tree_map(lambda leaf: np.asarray(getattr(leaf, "data", leaf)), value)


@pytest.fixture(params=["all given", "jvp generated", "vmap generated", "both generated"])
def given(request):
    """Which rules the operator has."""
    return {"all given": ("jvp", "vmap"), "jvp generated": ("vmap",), "vmap generated": ("jvp",),
            "both generated": ()}[request.param]


@pytest.fixture
def sin(fresh, backends, given):
    """An operator with kernels for two backends and its own derivatives."""
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
    """Every transform and pair of transforms of an elementwise function, as functions of a batch of vectors."""

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
    """What the given rules say that each composition is."""
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


def test_matrix_has_ten_entries(sin):
    assert list(compositions(sin)) == NAMES
    assert len(NAMES) == 10
