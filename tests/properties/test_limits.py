"""Exhausted memory and C stack: an exception is raised, and no state stays changed."""

import contextlib
import contextvars
import gc
import sys

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, func, ops

NP = ops.np
X = np.arange(3.0)


@pytest.mark.parametrize("leaf", [None, X, Tensor(X)], ids=["None", "array", "Tensor"])
@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_tuples_nested_deep(fresh, define, leaf, depth):
    op = define(fresh, "f(Tensor x, Any a=None) -> Tensor", CPU=lambda x, a=None: x * 1)
    value = leaf
    for _ in range(depth):
        value = (value,)
    with pytest.raises(RecursionError):
        op(X, value)
    # CPython 3.14 looks at the stack of C itself, which has room for 2,000 calls
    has_room = depth == 2_000 and sys.version_info >= (3, 14)
    with contextlib.nullcontext() if has_room else pytest.raises(RecursionError):
        _core.keys_of(value)


def test_an_operator_that_is_its_own_kernel(fresh, define):
    op = define(fresh, "f(Tensor x) -> Tensor")
    fresh.impl("f", op, "CPU")
    with pytest.raises(RecursionError):
        op(X)


def test_a_context_with_many_guards_is_dropped():
    def enter_many():
        for _ in range(300_000):
            autograd.no_grad().__enter__()

    context = contextvars.copy_context()
    context.run(enter_many)
    del context
    gc.collect()
    assert autograd.is_grad_enabled()


def in_guard():
    with autograd.no_grad():
        return NP.add(X, 1.0)


def sum_of_squares(x):
    return (x * x).sum()


GRADIENT = func.grad(sum_of_squares)
GRADIENTS = func.vmap(GRADIENT)
HESSIAN = func.hessian(sum_of_squares)
DOUBLED = func.vmap(lambda x: x * 2.0)

# From 3.12 CPython releases the code of a function twice where it fails to make the function.
makes_functions = pytest.mark.skipif(sys.version_info >= (3, 12), reason="CPython fails at making functions")


@pytest.mark.usefixtures("no_other_thread")
@pytest.mark.parametrize("call", [
    in_guard, lambda: GRADIENT(X), lambda: GRADIENTS(np.stack((X, X))), lambda: DOUBLED(X),
    lambda: func.jvp(NP.sin, (X,), (X,))[1], lambda: NP.concatenate((Tensor(X), Tensor(X))).array,
    pytest.param(lambda: func.grad(sum_of_squares)(X), marks=makes_functions),
    pytest.param(lambda: func.vmap(lambda x: x * 2.0)(X), marks=makes_functions),
    pytest.param(lambda: HESSIAN(X), marks=makes_functions),
], ids=["guard", "grad", "vmap-grad", "vmap", "jvp", "concatenate", "making-grad", "making-vmap", "making-hessian"])
def test_every_allocation_fails_once(call):
    testcapi = pytest.importorskip("_testcapi")
    for _ in range(3):
        expected = call()
    state, references = _core.current_state(), sys.getrefcount(X)
    for n in range(80):
        try:
            testcapi.set_nomemory(n, n + 1)
            call()
        except MemoryError:
            pass
        except SystemError as error:        # of NumPy, which returned NULL and raised nothing
            assert "<ufunc 'multiply'> returned NULL without" in str(error)  # noqa: PT017
        finally:
            testcapi.remove_mem_hooks()
        assert _core.current_state() is state
        np.testing.assert_array_equal(call(), expected)
    gc.collect()
    assert sys.getrefcount(X) >= references
