"""Results of users' formulas are checked, whichever way a derivative is registered: one check with one message."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from pydispatch import Tensor, compile, library, ops
from pydispatch.autograd import Function
from pydispatch.backends import MetaArray
from pydispatch.compat import custom_ops
from pydispatch.exceptions import AutogradError
from pydispatch.func import grad, hessian, jvp, vjp, vmap
from pydispatch.packs import Joint, Pack
from tests.functions import Stateless
from tests.together import together

pytestmark = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
X = np.array([1.0, 2.0, 3.0])
numbers = itertools.count()


def like(x):
    return MetaArray(x.shape, x.dtype)


def as_tensor(value):
    return Tensor(value) if isinstance(value, np.ndarray) else value


def by_register_autograd(formula):
    name = f"checked::defined{next(numbers)}"
    library.define(name, "(Tensor x) -> Tensor")
    library.impl(name, "CPU", lambda x: x * 2)
    library.register_fake(name, lambda x: x * 2)
    library.register_autograd(name, lambda ctx, g: as_tensor(formula(np.asarray(g.numpy()))))
    return getattr(ops.checked, name.partition("::")[2])


def by_custom_op(formula):
    def double(x: Tensor) -> Tensor:
        return x * 2

    op = library.custom_op(f"checked::custom{next(numbers)}", double, mutates_args=())
    op.register_fake(lambda x: x * 2)
    op.register_autograd(lambda ctx, g: as_tensor(formula(np.asarray(g.numpy()))))
    return op


def by_custom_ops(formula):
    name = f"checked::older{next(numbers)}"
    custom_ops.custom_op(name, "(Tensor x) -> Tensor")
    custom_ops.impl(name, device_types="cpu", func=lambda x: x * 2)
    custom_ops.impl_save_for_backward(name, func=lambda inputs, output: None)
    custom_ops.impl_backward(name, func=lambda ctx, saved, g: {"x": as_tensor(formula(np.asarray(g.numpy())))})
    return getattr(ops.checked, name.partition("::")[2])


def by_function(formula):
    class Double(Stateless):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return as_tensor(formula(np.asarray(g.numpy())))

    return Double.apply


def by_pack(formula, vjp=lambda formula: lambda g: formula(np.asarray(g)), **parts):
    name = f"checked_pack_{next(numbers)}"
    pack = Pack(name)
    pack.declare("double", "Tensor x", lambda x: x * 2, like, vjp=vjp(formula), **parts)
    pack.install()
    return getattr(ops, name).double


def by_joint(formula):
    return by_pack(formula, lambda formula: Joint(lambda g, x: (formula(np.asarray(g)),)))


WAYS = {"define and register_autograd": by_register_autograd, "custom_op": by_custom_op, "custom_ops": by_custom_ops,
        "Function": by_function, "pack": by_pack, "Joint of a pack": by_joint}
FAULTS = {
    "too short": (lambda g: np.full(2, g.sum()), "found shape (2,), expected shape compatible with (3,)"),
    "too long": (lambda g: np.ones((2, 4)), "found shape (2, 4), expected shape compatible with (3,)"),
    "summed": (lambda g: np.asarray(g.sum()), "found shape (), expected shape compatible with (3,)"),
    "complex": (lambda g: g * 1j, "found dtype complex128, expected float64"),
    "no array": (lambda g: "g", "str"),
}


def by_tape(op):
    x = Tensor(X, requires_grad=True)
    ops.np.sum(op(x)).backward()
    return x.grad


ASKING = {
    "grad": lambda op: grad(lambda x: ops.np.sum(op(x)))(X),
    "tape": by_tape,
    "vjp": lambda op: vjp(op, X)[1](X),
    "vmap of grad": lambda op: vmap(grad(lambda x: ops.np.sum(op(x))))(X[None]),
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=list(ASKING))
@pytest.mark.parametrize("fault", FAULTS)
@together("way", WAYS)
def test_what_a_backward_returns_is_checked(way, fault, asking):
    formula, found = FAULTS[fault]
    with pytest.raises((AutogradError, RuntimeError), match=re.escape(found)):
        asking(WAYS[way](formula))


@pytest.mark.parametrize("way", WAYS)
def test_a_gradient_of_a_number_is_a_number(way):
    with pytest.raises(AutogradError, match=re.escape("found shape (3,), expected shape compatible with ()")):
        grad(WAYS[way](lambda g: np.ones(3)))(2.0)
    assert grad(WAYS[way](lambda g: g * 2))(2.0) == 2.0


def test_a_gradient_is_summed_where_the_argument_was_repeated():
    class Multiply(Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, g * x

    assert grad(lambda x: Multiply.apply(x, X).sum())(2.0) == X.sum()


PACK = Pack("checked_pack")
PACK.pointwise("multiply", lambda x, y: x * y, "Tensor x, Tensor y", vjp=(lambda g, y: g * y, lambda g, x: g * x))
PACK.pointwise("wrong", lambda x, y: x * y, "Tensor x, Tensor y", vjp=(lambda g, y: (g * y)[:1], lambda g, x: g * x))
PACK.declare("product", "Tensor x, Tensor y", lambda x, y: x @ y,
             lambda x, y: MetaArray((x.shape[0], y.shape[1]), x.dtype),
             vjp=Joint(lambda g, x, y: (g @ y.mT, x.mT @ g)))
PACK.declare("too_few", "Tensor x, Tensor y", lambda x, y: x @ y,
             lambda x, y: MetaArray((x.shape[0], y.shape[1]), x.dtype), vjp=Joint(lambda g, x, y: (g @ y.mT,)))
PACK.declare("squares", "Tensor x", lambda x: (x ** 2).sum(), lambda x: MetaArray((), x.dtype),
             vjp=lambda g, x: g * 2 * x)
PACK.declare("total", "Tensor[] xs", sum, lambda xs: like(xs[0]), vjp=lambda g, xs_shape: [g] * (len(xs_shape) - 1),
             jvp="linear")
PACK.declare("both", "Tensor x", lambda x: (x * 2, x.sum()), lambda x: (like(x), MetaArray((), x.dtype)),
             returns="(Tensor, Tensor)", vjp=lambda g, x: sum(
                 part * factor + x * 0 for part, factor in zip(g, (2, 1), strict=True) if part is not None))
PACK.declare("doubled", "Tensor x", lambda x: x * 2, like, vjp=lambda g: g * 2, jvp=lambda t: t[:1])
PACK.declare("turned", "Tensor x", lambda x: x * 2, like, vjp=lambda g: g * 2, jvp=lambda t: t * 1j)
PACK.install()
SQUARE = np.arange(4.0).reshape(2, 2) + 1


def test_messages_of_packs_name_the_argument():
    with pytest.raises(AutogradError, match=re.escape(
            "operator checked_pack::wrong: vjp returned an invalid gradient of argument 'x': found shape (1,)")):
        grad(lambda x: ops.checked_pack.wrong(x, X).sum())(X)
    with pytest.raises(AutogradError, match="checked_pack::too_few: vjp returned 1 gradients, expected a tuple of 2"):
        grad(lambda x: ops.checked_pack.too_few(x, SQUARE).sum())(SQUARE)
    with pytest.raises(AutogradError, match="checked_pack::too_few: vjp returned 1 gradients, expected a tuple of 2"):
        jvp(lambda x: ops.checked_pack.too_few(x, SQUARE), (SQUARE,), (SQUARE,))
    with pytest.raises(AutogradError, match="checked_pack::total: vjp returned 1 gradients, expected a tuple of 2"):
        grad(lambda x: ops.checked_pack.total([x, x]).sum())(X)
    with pytest.raises(AutogradError, match=re.escape("found shape (1,), expected (3,), the shape of the result")):
        jvp(ops.checked_pack.doubled, (X,), (X,))
    with pytest.raises(AutogradError, match="found dtype complex128, expected float64, the dtype of the result"):
        jvp(ops.checked_pack.turned, (X,), (X,))


def test_gradients_of_packs_are_summed_where_arguments_broadcast():
    rows = np.stack([X, X + 1])
    found = grad(lambda x, y: ops.checked_pack.multiply(x, y).sum(), (0, 1))(rows, X)
    np.testing.assert_array_equal(found[0], np.stack([X, X]))
    np.testing.assert_array_equal(found[1], rows.sum(0))
    assert grad(lambda x: ops.checked_pack.multiply(x, X).sum())(2.0) == X.sum()
    np.testing.assert_array_equal(jvp(ops.checked_pack.multiply, (rows, X), (rows, X))[1], 2 * rows * X)


@pytest.mark.parametrize("given", [SQUARE, SQUARE * (1 + 2j)], ids=["real", "complex"])
def test_formulas_for_gradients_alone_are_transposed_in_forward_mode(given):
    step = given[::-1] * (2 if given.dtype.kind == "f" else 1j)
    _, found = jvp(ops.checked_pack.product, (given, SQUARE), (step, SQUARE))
    np.testing.assert_allclose(found, step @ SQUARE + given @ SQUARE)
    _, found = jvp(lambda x: ops.checked_pack.product(x, SQUARE), (given,), (step,))
    np.testing.assert_allclose(found, step @ SQUARE)


def test_reductions_of_packs_without_jvp_have_a_forward_mode():
    np.testing.assert_allclose(jvp(ops.checked_pack.squares, (X,), (np.ones(3),))[1], 12.0)
    np.testing.assert_allclose(hessian(ops.checked_pack.squares)(X), 2 * np.eye(3))
    np.testing.assert_allclose(compile(grad(ops.checked_pack.squares))(X), 2 * X)
    _, (found, total) = jvp(ops.checked_pack.both, (X,), (X,))
    np.testing.assert_allclose(found, 2 * X)
    np.testing.assert_allclose(total, X.sum())
