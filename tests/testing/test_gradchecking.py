"""gradcheck and gradgradcheck: their verdicts on right and wrong derivatives, and what they say of the wrong ones."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._registry.registrations import add_derivative
from pydispatch._sites import caller_site
from pydispatch.autograd import Function, grad, no_grad, once_differentiable
from pydispatch.exceptions import AutogradError, GradcheckError
from pydispatch.testing import gradcheck, gradgradcheck

np_ops = ops.np
SEED = 20260101


def normal(*shape, dtype=np.float64):
    """Return an array of normal deviates, the same ones at every call."""
    generator = np.random.default_rng(SEED)
    values = generator.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.normal(size=shape)
    return np.asarray(values, dtype)


def tracked(*shape, dtype=np.float64):
    return Tensor(normal(*shape, dtype=dtype), requires_grad=True)


def pair():
    return tracked(3), Tensor(normal(4)[1:], requires_grad=True)


def function(name, forward, backward, jvp=None, *, materialize=True):
    """Return `Function.apply` of the formulas `forward(*inputs)`, `backward(g, *inputs)`, `jvp(*tangents, *inputs)`."""

    class Made(Function):
        @staticmethod
        def forward(*inputs):
            return forward(*inputs)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            ctx.set_materialize_grads(materialize)

        @staticmethod
        def backward(ctx, *gradients):
            return backward(*gradients, *ctx.saved_tensors)

        @staticmethod
        def jvp(ctx, *tangents):
            return jvp(*tangents, *ctx.saved_tensors)

    Made.__name__ = Made.__qualname__ = name
    return Made.apply


def add_formula(op, formula):
    """Register a formula of the gradient and all arguments. A handle. Gradients of a list come as a tuple."""

    class Formula(CustomDerivative):
        name = "FormulaBackward"

        def setup(self, ctx, values, output):
            ctx.values = values

        def backward(self, ctx, grads):
            return (formula(*grads, *ctx.values), *[None] * (len(ctx.values) - 1))

    return add_derivative(op.name, Formula(), caller_site())


def in_numpy(formula):
    """Return the formula on plain arrays, so that nobody can differentiate it."""
    return lambda *tensors: Tensor(np.asarray(formula(*[tensor.detach().numpy() for tensor in tensors])))


SQUARE = in_numpy(lambda x: x * x)
PRODUCT = in_numpy(lambda x, y: x * y)
MATRIX = np.arange(6.0).reshape(2, 3) - 1.5


# --- right derivatives -----------------------------------------------------------------------------------------------


class Case(NamedTuple):
    func: object
    inputs: tuple


RIGHT = {
    "operator": lambda: Case(np_ops.multiply, (tracked(3), tracked(2, 1))),
    "operator, overload": lambda: Case(np_ops.sin.default, (tracked(4),)),
    "composite": lambda: Case(lambda x, y: (np_ops.matmul(x, y) * 2.0 - 1.0).sum(), (tracked(2, 3), tracked(3))),
    "one Tensor, no tuple": lambda: Case(lambda x: x * x * x, tracked(3)),
    "0-d": lambda: Case(np_ops.exp, (tracked(),)),
    "zero-size": lambda: Case(np_ops.exp, (tracked(0, 3),)),
    "zero-size to 0-d": lambda: Case(lambda x: x.sum(), (tracked(0),)),
    "non-contiguous": lambda: Case(np_ops.sin, (Tensor(normal(4, 6)[::-2, 1::2].T, requires_grad=True),)),
    "several outputs": lambda: Case(lambda x: (x * 2.0, {"square": x * x}), (tracked(3),)),
    "an output that is the input": lambda: Case(lambda x: (x, x * x), (tracked(2),)),
    "an output of integers": lambda: Case(lambda x: (x * x, np_ops.argmax(x)), (tracked(3),)),
    "an output that is detached": lambda: Case(lambda x: (x * x, x.detach()), (tracked(3),)),
    "an input that is not used": lambda: Case(lambda x, y: x * x, (tracked(3), tracked(2))),
    "the same Tensor twice": lambda: Case(lambda x, y: x * y, (tracked(3),) * 2),
    "constants": lambda: Case(lambda x, y, z, n: x * y + z * n, (tracked(3), normal(3), Tensor(normal(3)), 2.0)),
    "a container": lambda: Case(
        lambda xs, options: xs[0] * xs[1] * options["by"], ([tracked(3), tracked(2, 3)], {"by": tracked()})),
    "not a leaf": lambda: Case(np_ops.sin, (tracked(3) * 2.0,)),
    "differentiates inside": lambda: Case(
        lambda x: grad(np_ops.sin(x * x).sum(), x, create_graph=True)[0], (tracked(3),)),
    "complex to complex": lambda: Case(lambda z: z * z * (2 - 1j), (tracked(3, dtype=complex),)),
    "complex to complex, not holomorphic": lambda: Case(
        lambda z: np_ops.conjugate(z) * z * z, (tracked(3, dtype=complex),)),
    "complex to real": lambda: Case(lambda z: np_ops.absolute(z) + np_ops.imag(z), (tracked(3, dtype=complex),)),
    "real to complex": lambda: Case(lambda x: x * x * 1j + x, (tracked(3),)),
    "real and complex": lambda: Case(np_ops.multiply, (tracked(3), tracked(3, dtype=complex))),
    "Function": lambda: Case(
        function("Product", PRODUCT, lambda g, x, y: (g * y, g * x), lambda t, u, x, y: t * y + x * u),
        (tracked(3), tracked(3))),
    "constant result": lambda: Case(lambda x: np_ops.ones_like(x), (tracked(3),)),
    "steps": lambda: Case(lambda x: np_ops.floor(x), (tracked(3),)),
}


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives_pass(name, fast):
    func, inputs = RIGHT[name]()
    assert gradcheck(func, inputs, fast_mode=fast) is True
    assert gradcheck(func, inputs, fast_mode=fast, check_grad_dtypes=True) is True


WITHOUT_FORWARD = {"differentiates inside"}


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", [name for name in RIGHT if name not in WITHOUT_FORWARD])
def test_right_forward_mode_passes(name, fast):
    func, inputs = RIGHT[name]()
    assert gradcheck(func, inputs, fast_mode=fast, check_forward_ad=True) is True
    assert gradcheck(func, inputs, fast_mode=fast, check_forward_ad=True, check_backward_ad=False) is True


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_second_derivatives_pass(name, fast):
    func, inputs = RIGHT[name]()
    assert gradgradcheck(func, inputs, fast_mode=fast) is True


# --- wrong derivatives -----------------------------------------------------------------------------------------------

calls = itertools.count()


class Wrong(NamedTuple):
    func: object
    inputs: object
    message: str
    options: dict | None = None


def wrong_square(name, backward, message, **options):
    return Wrong(function(name, SQUARE, backward), lambda: tracked(3), message, options)


def wrong_product(name, backward, message, **options):
    return Wrong(function(name, PRODUCT, backward), pair, message, options)


WRONG = {
    "value": wrong_square("Square", lambda g, x: g * x * 3.0, r"element \(\d,\) by element \(\d,\): analytic "),
    "sign": wrong_square("Square", lambda g, x: -g * x * 2.0, "analytic "),
    "NaN": wrong_square("Square", lambda g, x: g * x * np.nan, "analytic nan, numerical "),
    "None": wrong_square("Square", lambda g, x: None, "analytic 0, numerical "),
    "reversed": wrong_square("Square", lambda g, x: np_ops.flip(g * x * 2.0), "analytic "),
    "not deterministic": wrong_square(
        "Square", lambda g, x: g * x * (2.0 + 1e-9 * next(calls)), "backward is not deterministic: output 0 with"),
    "only for the second input": wrong_product(
        "Product", lambda g, x, y: (g * y, g * y),
        r"output 0 with respect to input 1 \(argument inputs\[1\]\): element"),
    "missing term": Wrong(
        function("Cubic", in_numpy(lambda x: x**3 + x), lambda g, x: g * x * x * 3.0), lambda: tracked(3), "analytic "),
    "transposed": Wrong(
        function("Linear", in_numpy(lambda x: MATRIX @ x), lambda g, x: np_ops.matmul(Tensor(MATRIX[::-1].T), g)),
        lambda: tracked(3), r"element \(\d,\) by element \(\d,\): analytic "),
    "does not multiply": Wrong(
        function("Identity", in_numpy(lambda x: x), lambda g, x: np_ops.ones_like(g)), lambda: tracked(),
        "backward does not multiply by the gradient of the output: if that is zero, the gradient of input 0"),
    "wrong conjugate": Wrong(
        function("Square", SQUARE, lambda g, z: g * z * 2.0), lambda: tracked(2, dtype=complex),
        r"(real|imaginary) part of element \(\d,\) by (real|imaginary) part of element \(\d,\): analytic "),
    "wrong for real input of complex output": Wrong(
        function("Turn", in_numpy(lambda x: x * 1j), lambda g, x: np_ops.real(g)), lambda: tracked(2),
        r"real part of element \(0,\) by element \(0,\): analytic 1, numerical 0"),
    "detached": Wrong(
        lambda x: SQUARE(x), lambda: tracked(3), "output 0, which does not require grad, with respect to input 0 "),
    "undefined gradients taken for arrays": Wrong(
        function("Square", SQUARE, lambda g, x: Tensor(g.array * x.array * 2.0), materialize=False),
        lambda: tracked(3), "backward fails where the gradient of all outputs is undefined: AttributeError"),
    "undefined gradients taken for ones": Wrong(
        function("Square", SQUARE, lambda g, x: x * 2.0 if g is None else g * x * 2.0, materialize=False),
        lambda: tracked(3), "where the gradient of all outputs is undefined, expected None or zeros for input 0 "),
    "one undefined gradient and zeros": Wrong(
        function("Both", lambda x: (Tensor(x.array * 2.0), Tensor(x.array * 3.0)),
                 lambda g, h, x: normalized(g) * 2.0 if h is None and g is not None else doubled(g) + tripled(h),
                 materialize=False),
        lambda: tracked(3), "where the gradient of output 1 is undefined, expected None or zeros for input 0 "),
    "gradient written to": wrong_square(
        "Square", lambda g, x: write_into(g, x), "backward wrote to the gradient of output 0 in place"),
    "dtype": wrong_square(
        "Square", lambda g, x: (g * x * 2.0).astype(np.float32), "gradient of input 0 .* was computed in float32",
        check_grad_dtypes=True),
}


def normalized(g):
    norm = np.linalg.norm(g.array)
    with np.errstate(invalid="ignore"):
        return Tensor(g.array / norm * norm)


def doubled(g):
    return 0.0 if g is None else g * 2.0


def tripled(g):
    return Tensor(np.zeros(3)) if g is None else g * 3.0


def write_into(gradient, x):
    gradient.detach().numpy()[...] *= 2.0 * x.detach().numpy()
    return gradient


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_derivatives_fail(name, fast):
    func, inputs, message, options = WRONG[name]
    with pytest.raises(GradcheckError, match=message) as caught:
        gradcheck(func, inputs(), fast_mode=fast, **options or {})
    assert str(caught.value).startswith("gradcheck: ")
    assert "\n" in str(caught.value)
    assert gradcheck(func, inputs(), fast_mode=fast, raise_exception=False, **options or {}) is False


def wrong_tangents(name, jvp, message):
    backward = lambda g, x, y: (None, None) if g is None else (g * y, g * x)    # noqa: E731
    return Wrong(function(name, PRODUCT, backward, jvp, materialize=False), pair, message)


WRONG_FORWARD = {
    "value": wrong_tangents("Product", lambda t, u, x, y: add(times(t, y), times(u, y)),
                            r"with respect to input 1 \(argument inputs\[1\]\): .*: forward mode "),
    "does not multiply": Wrong(
        function("Identity", in_numpy(lambda x: x), lambda g, x: g, lambda t, x: np_ops.ones_like(x)),
        lambda: tracked(), "if all tangents of the inputs are zero, the tangent of output 0 is"),
    "not added up": wrong_tangents("Product", lambda t, u, x, y: times(u, x) if t is None else times(t, y),
                                   "for all inputs together is not the sum"),
}


def times(tangent, factor):
    return None if tangent is None else tangent * factor


def add(one, other):
    return other if one is None else one if other is None else one + other


@pytest.mark.parametrize("fast", [False, True], ids=["slow", "fast"])
@pytest.mark.parametrize("name", WRONG_FORWARD)
def test_wrong_tangents_fail(name, fast):
    func, inputs, message, _ = WRONG_FORWARD[name]
    assert gradcheck(func, inputs(), fast_mode=fast) is True
    with pytest.raises(GradcheckError, match=message):
        gradcheck(func, inputs(), fast_mode=fast, check_forward_ad=True)
    options = {"check_forward_ad": True, "check_backward_ad": False, "raise_exception": False}
    assert gradcheck(func, inputs(), fast_mode=fast, **options) is False


matrices = st.integers(1, 4).flatmap(
    lambda m: st.integers(1, 4).flatmap(
        lambda n: st.tuples(
            st.lists(st.integers(-8, 8), min_size=m * n, max_size=m * n).map(
                lambda values: np.reshape(values, (m, n)) / 8.0),
            st.one_of(st.none(), st.tuples(st.integers(0, m - 1), st.integers(0, n - 1), st.sampled_from([-2.0, 1.0]))),
        )))


@settings(max_examples=60)
@given(matrices)
def test_fast_and_slow_verdicts_agree(example):
    jacobian, error = example
    claimed = jacobian.copy()
    if error is not None:
        row, column, size = error
        claimed[row, column] += size
    func = function(
        "Linear", in_numpy(lambda x: jacobian @ x), lambda g, x: np_ops.matmul(Tensor(claimed.T), g),
        lambda t, x: np_ops.matmul(Tensor(claimed), t))
    for mode in ({}, {"check_forward_ad": True, "check_backward_ad": False}):
        verdicts = [
            gradcheck(func, tracked(jacobian.shape[1]), fast_mode=fast, raise_exception=False, **mode)
            for fast in (False, True)
        ]
        assert verdicts == [error is None] * 2


# --- second derivatives ----------------------------------------------------------------------------------------------


def test_second_derivatives_of_a_cube():
    cube = function("Cube", in_numpy(lambda x: x**3), lambda g, x: g * x * x * 3.0)
    assert gradgradcheck(cube, tracked(3)) is True
    assert gradgradcheck(cube, tracked(3), gen_non_contig_grad_outputs=True) is True
    assert gradgradcheck(cube, tracked(3), Tensor(np.ones(3))) is True
    assert gradgradcheck(cube, tracked(3), [tracked(3)], fast_mode=True) is True


@pytest.mark.parametrize("func", [np_ops.sin, lambda x: (x * x * x, x.sum())], ids=["operator", "two outputs"])
def test_forward_over_reverse(func):
    assert gradgradcheck(func, tracked(2, 2), check_fwd_over_rev=True) is True
    assert gradgradcheck(func, tracked(2, 2), check_fwd_over_rev=True, check_rev_over_rev=False) is True


def test_backward_that_nobody_can_differentiate_fails():
    cube = function("Cube", in_numpy(lambda x: x**3), in_numpy(lambda g, x: g * 3 * x * x))
    assert gradcheck(cube, tracked(3)) is True
    with pytest.raises(GradcheckError, match=r"gradgradcheck: Cube.apply: output 0 .*gradient of input 0") as caught:
        gradgradcheck(cube, tracked(3))
    assert "analytic 0, numerical" in str(caught.value)
    assert gradgradcheck(cube, tracked(3), raise_exception=False) is False


def test_once_differentiable_fails():

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return Tensor(x.array**3)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * x * 3.0

    assert gradcheck(Cube.apply, tracked(3)) is True
    with pytest.raises(AutogradError, match="once_differentiable"):
        gradgradcheck(Cube.apply, tracked(3), raise_exception=False)


def test_wrong_second_derivative_names_both_inputs():
    def backward(g, x):
        return Gradient(g, x)

    Gradient = function(
        "Gradient", in_numpy(lambda g, x: 3 * g * x * x), lambda h, g, x: (h * x * x * 3.0, h * g * x * 5.0))
    with pytest.raises(GradcheckError) as caught:
        gradgradcheck(function("Cube", in_numpy(lambda x: x**3), backward), tracked(3))
    first = str(caught.value).partition("\n")[0]
    assert first.startswith("gradgradcheck: Cube.apply: output 0 (the gradient of input 0 (argument ")
    assert "with respect to input 0 (argument" in first


# --- what it says ----------------------------------------------------------------------------------------------------


def test_message_of_a_wrong_element():
    func = function("Scaled", in_numpy(lambda x: 2.0 * x), lambda g, x: g * Tensor(np.array([2.0, 5.0])))
    with pytest.raises(GradcheckError) as caught:
        gradcheck(func, Tensor(np.ones(2), requires_grad=True))
    first, remedy, *rest = str(caught.value).splitlines()
    assert first.startswith(
        "gradcheck: Scaled.apply: output 0 with respect to input 0 (argument inputs[0]): "
        "element (1,) by element (1,): analytic 5, numerical 2")
    assert remedy.startswith("correct that derivative")
    assert rest[0] == "analytic:"
    assert rest.index("numerical:") == 3


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(("at", "numbers"), [
    (0.0, "analytic inf, numerical nan"), (np.inf, "analytic 0, numerical nan")])
def test_infinities(at, numbers, fast):
    root = function("Root", in_numpy(lambda x: np.sqrt(x)), lambda g, x: g * Tensor(0.5 / np.sqrt(x.array)))
    with np.errstate(all="ignore"), pytest.raises(GradcheckError, match=numbers):
        gradcheck(root, Tensor(np.array([at]), requires_grad=True), fast_mode=fast)


def test_large_matrices_are_abbreviated():
    func = function("Scaled", in_numpy(lambda x: 2.0 * x), lambda g, x: g)
    with pytest.raises(GradcheckError) as caught:
        gradcheck(func, tracked(60))
    assert "..." in str(caught.value)
    assert len(str(caught.value)) < 4000


def test_operators_and_arguments_are_named(fresh, define):
    op = define(fresh, "twice(Tensor[] xs, float by) -> Tensor", CPU=lambda xs, by: xs[0] * by + xs[1])
    with add_formula(op, lambda g, xs, by: (g * 3.0, g)), pytest.raises(GradcheckError) as caught:
        gradcheck(op, ([tracked(2), tracked(2)], 2.0))
    assert str(caught.value).startswith(
        f"gradcheck: {op.name}: output 0 with respect to input 0 (argument xs[0]): element (")


# --- arguments -------------------------------------------------------------------------------------------------------


def test_nothing_requires_grad():
    with pytest.raises(ValueError, match="gradcheck: np::sin: no input requires grad"):
        gradcheck(np_ops.sin, Tensor(np.ones(3)))
    with pytest.raises(ValueError, match="gradgradcheck: np::sin: no input requires grad"):
        gradgradcheck(np_ops.sin, np.ones(3))


def test_nothing_to_check():
    with pytest.raises(ValueError, match="neither forward nor reverse mode"):
        gradcheck(np_ops.sin, tracked(3), check_backward_ad=False)
    with pytest.raises(ValueError, match="neither forward nor reverse mode"):
        gradgradcheck(np_ops.sin, tracked(3), check_rev_over_rev=False)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("array", [
    np.broadcast_to(np.ones(()), (3,)), np.lib.stride_tricks.sliding_window_view(np.arange(4.0), 2),
], ids=["stride 0", "windows"])
def test_overlapping_inputs_are_refused(check, array):
    with pytest.raises(AutogradError, match=r"elements of input 0 .* share memory"):
        check(np_ops.sin, Tensor(array, requires_grad=True))


def test_overlapping_grad_outputs_are_refused():
    with pytest.raises(AutogradError, match=r"elements of grad_outputs\[0\] share memory"):
        gradgradcheck(np_ops.sin, tracked(3), Tensor(np.broadcast_to(np.ones(()), (3,)), requires_grad=True))


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_warns(check, dtype):
    with pytest.warns(UserWarning, match=f"input 0 .* has dtype {np.dtype(dtype)}, but finite diff") as caught:
        assert check(lambda x: x * 2.0, tracked(3, dtype=dtype), eps=1e-2, atol=1e-2, rtol=1e-2) is True
    assert [warning.filename for warning in caught] == [__file__]


def test_number_of_grad_outputs():
    with pytest.raises(ValueError, match="2 grad_outputs were given, expected 1"):
        gradgradcheck(np_ops.sin, tracked(3), (tracked(3), tracked(3)))


def test_other_exceptions_propagate():
    def backward(g, x):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gradcheck(function("Square", SQUARE, backward), tracked(3), raise_exception=False)
    with pytest.raises(ValueError, match="no input requires grad"):
        gradcheck(np_ops.sin, np.ones(3), raise_exception=False)


def test_results_that_change_their_shape():
    def jumps(x):
        return x * x if x.detach().numpy()[0] <= 1.0 else (x * x)[:1]

    with pytest.raises(AutogradError, match=r"output 0 has shape \(2,\), but has shape \(1,\) when input 0"):
        gradcheck(jumps, Tensor(np.ones(2), requires_grad=True))


@pytest.mark.parametrize("fast", [False, True])
def test_inputs_are_left_alone(fast):
    memory = normal(4, 6)
    x, kept = Tensor(memory[::2, ::2], requires_grad=True), memory.copy()
    y = x * 2.0
    assert gradcheck(lambda x, y: x * y, (x, y), fast_mode=fast, check_forward_ad=True) is True
    assert gradgradcheck(lambda x, y: x * y, (x, y), fast_mode=fast) is True
    assert np.array_equal(memory, kept)
    assert x.grad is None
    y.sum().backward()
    assert np.array_equal(x.grad.numpy(), np.full((2, 3), 2.0))


def test_layout_of_inputs_is_kept():
    array = normal(4, 6)[::-1, ::2].T
    strides = set()

    def func(x):
        strides.add(x.array.strides if isinstance(x.array, np.ndarray) else array.strides)
        return x * x

    assert gradcheck(func, Tensor(array, requires_grad=True)) is True
    assert strides == {array.strides}


def test_works_where_grad_mode_is_off():
    with no_grad():
        assert gradcheck(np_ops.sin, tracked(3)) is True
        assert gradgradcheck(np_ops.sin, tracked(3)) is True


def test_nondet_tol():
    square = function("Square", SQUARE, lambda g, x: g * x * (2.0 + 1e-9 * next(calls)))
    assert gradcheck(square, tracked(3), nondet_tol=1e-5) is True


def test_undefined_gradients_may_be_left_unchecked():
    func, inputs, _, _ = WRONG["undefined gradients taken for ones"]
    assert gradcheck(func, inputs(), check_undefined_grad=False) is True


def test_dtypes_may_be_left_unchecked():
    func, inputs, _, _ = WRONG["dtype"]
    assert gradcheck(func, inputs()) is True


def test_global_random_state_is_not_touched():
    np.random.seed(0)
    before = np.random.get_state()[1].copy()
    gradcheck(np_ops.sin, tracked(3), fast_mode=True)
    gradgradcheck(np_ops.sin, tracked(3), fast_mode=True)
    assert np.array_equal(np.random.get_state()[1], before)
