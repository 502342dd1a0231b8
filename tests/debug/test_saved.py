"""`debug.check_saved`: raw arrays that are written to while a gradient needs them."""

import numpy as np
import pytest

from pydispatch import Tensor, debug, func, ops
from pydispatch.autograd import Function, detect_anomaly
from pydispatch.exceptions import AutogradError
from tests.together import together

N = 10_000      # elements, more bytes than are copied
X = np.linspace(0.5, 1.5, N)


class Scaled(Function):
    @staticmethod
    def forward(x, m):
        return x * m

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None


PRODUCTS = {
    "multiply": lambda w, m: (w * m).sum(),
    "matmul": lambda w, m: w @ m,
    "where": lambda w, m: ops.np.where(m > 0.7, w, 0.0).sum() + ops.np.power(w, m).sum(),
    "concatenate": lambda w, m: ops.np.concatenate([w * m, m]).sum(),
    "Function": lambda w, m: Scaled.apply(w, m).sum(),
}


def tape_gradient(f):
    def gradient(x):
        leaf = Tensor(x, requires_grad=True)
        f(leaf).backward()
        return leaf.grad
    return gradient


GRADIENTS = {
    "grad": func.grad,
    "vjp": lambda f: lambda x: func.vjp(f, x)[1](np.float64(1.0)),
    "jacrev": func.jacrev,
    "grad of grad": lambda f: func.grad(lambda x: func.grad(lambda y: f(y) * y.sum())(x).sum()),
    "tape": tape_gradient,
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("writes", [True, False])
@together("way", GRADIENTS)
def test_a_write_to_what_is_saved_is_told(name, way, writes):
    def f(w):
        m = X * 1.0
        y = PRODUCTS[name](w, m)
        if writes:
            m *= 5
        return y

    with debug.check_saved():
        if writes:
            with pytest.raises(AutogradError, match=rf"(?s)saved an ndarray of shape \({N},\).*test_saved.py"):
                GRADIENTS[way](f)(X)
        else:
            GRADIENTS[way](f)(X)


def test_small_arrays_are_copied_instead():
    def f(w):
        m = np.ones(3)
        y = (w * m).sum()
        m *= 5
        return y

    with debug.check_saved():
        assert func.grad(f)(np.ones(3)).tolist() == [1.0] * 3


@pytest.mark.filterwarnings("ignore:Error detected")
@pytest.mark.parametrize("order", [1, -1])
def test_checks_are_added_up(order):
    def overwritten(w):
        m = X * 1.0
        y = (w * m).sum()
        m *= 5
        return y

    outer, inner = (debug.check_saved, detect_anomaly)[::order]
    with outer(), inner():
        with pytest.raises(AutogradError, match="saved an ndarray"):
            func.grad(overwritten)(X)
        with np.errstate(all="ignore"), pytest.raises(AutogradError, match="nan"):
            func.grad(lambda w: (ops.np.sqrt(w) * 0.0).sum())(np.zeros(2))
