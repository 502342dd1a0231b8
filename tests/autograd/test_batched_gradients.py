"""`is_grads_batched` of autograd.grad and `check_batched_grad` of gradcheck."""

import warnings

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.autograd import Function
from pydispatch.exceptions import AutogradError, GradcheckError, PerformanceWarning
from pydispatch.func import vmap
from pydispatch.library import register_autograd
from pydispatch.testing import gradcheck, gradgradcheck
from tests.comparing import close
from tests.together import together

X = np.array([[0.3, -1.2, 2.0], [0.5, 0.1, -0.7]])
RNG = np.random.default_rng(11)


def tracked(array=X):
    return Tensor(array.copy(), requires_grad=True)


FUNCTIONS = {
    "pointwise": lambda x: ops.np.sin(x) * x,
    "reduction": lambda x: (x * x).sum(0),
    "to a number": lambda x: (x**3).sum(),
    "matmul": lambda x: x @ (x.T + 1.0),
    "broadcast": lambda x: x[0] * x + x[1, 0],
    "index": lambda x: x[np.array([1, 1, 0])] * 2.0,
    "in place": lambda x: ops.np.multiply_(x * 1.0, x),
    "views": lambda x: x.T.reshape((2, 3)) * x,
    "where": lambda x: ops.np.where(x > 0, x * x, -x),
    "stacked": lambda x: ops.np.stack([x, x * 2.0, np.ones((2, 3))]),
    "maximum": lambda x: x.max(axis=1, keepdims=True) * x,
    "cumulative": lambda x: ops.np.cumsum(x, 1) * x,
}


@pytest.mark.parametrize("size", [0, 1, 4])
@together("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_batched_gradients_equal_a_loop(f, size):
    x = tracked()
    y = f(x)
    cotangents = RNG.normal(size=(size, *y.shape))
    each = [autograd.grad(y, x, c, retain_graph=True)[0].array for c in cotangents]
    (found,) = autograd.grad(y, x, cotangents, is_grads_batched=True)
    assert type(found) is Tensor
    close(found.array, np.array(each).reshape((size, *X.shape)))


@pytest.mark.parametrize("kind", [np.asarray, Tensor], ids=["raw", "tensor"])
def test_several_outputs_and_inputs(kind):
    x, w = tracked(), tracked(X * 2.0)
    a, b = x * w, ops.np.exp(w).sum()
    c, d = RNG.normal(size=(4, 2, 3)), RNG.normal(size=4)
    each = [autograd.grad((a, b), (x, w), (c[i], d[i]), retain_graph=True) for i in range(4)]
    found = autograd.grad([a, b], [x, w], (kind(c), kind(d)), is_grads_batched=True)
    for k in range(2):
        close(found[k].array, np.stack([gradients[k].array for gradients in each]))


def test_none_stands_for_one_in_all_examples():
    x = tracked()
    total, other = (x * x).sum(), (x * 3.0).sum()
    (found,) = autograd.grad((total, other), x, (np.array([1.0, 2.0]), None), is_grads_batched=True)
    close(found.array, np.stack([2 * X + 3.0, 4 * X + 3.0]))


def test_inputs_that_take_no_part():
    x, w = tracked(), tracked()
    y = x * 2.0
    c = np.ones((4, 2, 3))
    with pytest.raises(AutogradError, match="not have been used"):
        autograd.grad(y, (x, w), c, retain_graph=True, is_grads_batched=True)
    found = autograd.grad(y, (x, w), c, retain_graph=True, allow_unused=True, is_grads_batched=True)
    assert found[1] is None
    close(found[0].array, 2 * c)
    found = autograd.grad(y, (w, x), c, materialize_grads=True, is_grads_batched=True)
    close(found[0].array, np.zeros((4, 2, 3)))
    close(found[1].array, 2 * c)


def test_the_graph_is_released_as_it_is_by_grad():
    x = tracked()
    y = x * x
    c = np.ones((2, 2, 3))
    autograd.grad(y, x, c, retain_graph=True, is_grads_batched=True)
    autograd.grad(y, x, c, is_grads_batched=True)
    with pytest.raises(AutogradError):
        autograd.grad(y, x, c, is_grads_batched=True)


def test_a_gradient_that_can_be_differentiated_again():
    x = tracked()
    c = RNG.normal(size=(4, 2, 3))
    (found,) = autograd.grad(x**3, x, c, create_graph=True, is_grads_batched=True)
    close(found.array, 3 * X**2 * c)
    (second,) = autograd.grad(found.sum(), x)
    close(second.array, 6 * X * c.sum(0))


def test_backward_runs_once():
    runs = []

    class Counted(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            runs.append(gradient.shape)
            (x,) = ctx.saved_tensors
            return 2.0 * x * gradient

    x = tracked()
    c = RNG.normal(size=(4, 2, 3))
    (found,) = autograd.grad(Counted.apply(x), x, c, is_grads_batched=True)
    close(found.array, 2 * X * c)
    assert runs == [(2, 3)]


WRONG = {
    "no cotangents": (lambda y, x: autograd.grad(y.sum(), x, is_grads_batched=True), "needs a cotangent to find"),
    "None alone": (lambda y, x: autograd.grad(y.sum(), x, [None], is_grads_batched=True), "needs a cotangent to find"),
    "no batch axis": (lambda y, x: autograd.grad(y, x, np.ones((2, 3)), is_grads_batched=True), "Mismatch in shape"),
    "another shape": (lambda y, x: autograd.grad(y, x, np.ones((4, 3, 2)), is_grads_batched=True),
                      r"shape \(3, 2\), but the output has shape \(2, 3\)"),
}


@pytest.mark.parametrize(("call", "match"), WRONG.values(), ids=WRONG)
def test_what_is_refused(call, match):
    x = tracked()
    with pytest.raises(AutogradError, match=match):
        call(x * x, x)


def test_sizes_that_disagree_are_refused():
    x = tracked()
    with pytest.raises(ValueError, match="different numbers of examples"):
        autograd.grad((x * x, x * 2.0), x, (np.ones((4, 2, 3)), np.ones((5, 2, 3))), is_grads_batched=True)


def test_no_grad_attribute_is_touched():
    x = tracked()
    autograd.grad(x * x, x, np.ones((4, 2, 3)), is_grads_batched=True)
    assert x.grad is None


def test_inside_of_a_vmap():
    x = tracked()
    y = x * x
    c = RNG.normal(size=(2, 4, 2, 3))
    found = vmap(lambda c: autograd.grad(y, x, c, retain_graph=True, is_grads_batched=True)[0])(c)
    close(np.asarray(found), 2 * X * c)


# --- gradcheck -------------------------------------------------------------------------------------------------------


class TakesBatchesApart(Function):
    """Wrong on batches alone: what backward computes depends on how many examples there are."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2.0 * x * gradient + is_batched(gradient)


def is_batched(value):
    return 1.0 if type(value).__name__ == "BatchedTensor" else 0.0


class AsksForNumbers(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2.0 if bool((gradient == 0.0).all()) else 2.0 * gradient


@pytest.mark.parametrize("fast_mode", [False, True])
@together("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_gradcheck_of_batches(f, fast_mode):
    assert gradcheck(f, tracked(), check_batched_grad=True, fast_mode=fast_mode)


def test_gradcheck_of_batches_of_several_and_complex():
    z = Tensor(X + 1j * X[::-1], requires_grad=True)
    assert gradcheck(lambda x, y: (x * y, [y.sum(0)]), (z, tracked()), check_batched_grad=True)
    assert gradcheck(lambda x, y: (x * 2.0, y), (tracked(), tracked()), check_batched_grad=True)


def test_gradgradcheck_of_batches():
    assert gradgradcheck(lambda x: ops.np.sin(x) * x, tracked(), check_batched_grad=True)


def test_gradcheck_finds_what_is_wrong_on_batches_alone():
    assert gradcheck(TakesBatchesApart.apply, tracked())
    with pytest.raises(GradcheckError, match=r"for a batch of gradients of output 0, the gradient of input 0"):
        gradcheck(TakesBatchesApart.apply, tracked(), check_batched_grad=True)
    assert gradcheck(TakesBatchesApart.apply, tracked(), check_batched_grad=True, raise_exception=False) is False


def test_gradcheck_tells_what_cannot_be_done_on_batches():
    assert gradcheck(AsksForNumbers.apply, tracked())
    with pytest.raises(GradcheckError, match=r"fails on a batch of gradients of output 0: DataDependentError"):
        gradcheck(AsksForNumbers.apply, tracked(), check_batched_grad=True)


def test_gradcheck_does_not_warn_of_loops(define, fresh):
    twist = define(fresh, "twist(Tensor x) -> Tensor", CPU=lambda x: x[::-1].copy())
    register_autograd(twist, lambda ctx, gradient: twist(gradient))
    x = tracked()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerformanceWarning)
        assert gradcheck(twist, x, check_batched_grad=True)
