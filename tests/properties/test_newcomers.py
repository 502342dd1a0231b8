"""Mistakes of newcomers: each error names what was called, what it found, what it expected, and what to write."""

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, autograd, compile, func, library, ops
from pydispatch.exceptions import AutogradError, ConversionError, DataDependentError, DispatchTypeError, UnknownKeyError

X = np.ones((2, 3))


def mistake(error, *fragments):
    """Return a case: the error that the function of this name raises, and parts of its message."""
    return lambda call: pytest.param(call, error, fragments, id=call.__name__.replace("_", " ").strip())


@mistake(DispatchTypeError, "np::sum", "'axis'", "found str '0'", "pass an int or a tuple of ints, or None for 'axis'")
def an_axis_in_quotes():
    ops.np.sum(X, axis="0")


@mistake(DispatchTypeError, "np::sin", "'dtype'", "found str 'flaot'", "a dtype, such as numpy.float64")
def a_dtype_that_is_none():
    ops.np.sin(X, dtype="flaot")


@mistake(DispatchTypeError, "grad: the first argument is a float64, expected a function", "grad(f)(x), not grad(f(x))")
def grad_of_a_value():
    func.grad(np.sum(X))


@mistake(DispatchTypeError, "vmap: the first argument is an ndarray, expected a function")
def vmap_of_an_array():
    func.vmap(X)


@mistake(AutogradError, "argnums is 1, but the call has 1 positional argument\n")
def argnums_that_count_from_one():
    func.grad(np.sum, 1)(X)


@mistake(DispatchTypeError, "expected Tensors, found a float at index 0", "requires_grad=True")
def autograd_of_a_number():
    autograd.grad(1.0, Tensor(X, requires_grad=True))


@mistake(DispatchTypeError, "expected Tensors, found an ndarray at index 0", "requires_grad=True")
def autograd_by_an_array():
    autograd.grad(Tensor(X, requires_grad=True).sum(), X)


@mistake(ConversionError, "value of grad", "used as float()", "numpy.zeros(shape, like=tensor)")
def math_in_grad():
    func.grad(lambda x: float(x))(1.0)


@mistake(ConversionError, "value of grad", "used as a NumPy array", "numpy.stack([...]), not numpy.array([...])")
def an_array_of_values():
    func.grad(lambda x: np.array([x[0], x[1]]).sum())(np.ones(2))


@mistake(AutogradError, "used as float()", "numpy.zeros(shape, like=tensor)")
def a_tracked_value_as_a_number():
    float(Tensor(np.ones(()), requires_grad=True))


@mistake(DataDependentError, "make_fx: x_1", "used as a Python number", "every run of the graph", "np.where")
def a_number_in_compile():
    compile(lambda x: float(x))(np.ones(()))


@mistake(NotImplementedError, "Silent defines no __pydispatch__", "define __pydispatch__(self, func, types, args=(), ")
def a_mode_without_a_handler():
    class Silent(DispatchMode):
        pass

    with Silent():
        ops.np.sin(X)


MISTAKES = [value for value in globals().values() if isinstance(value, type(pytest.param()))]


@pytest.mark.parametrize(("call", "error", "fragments"), MISTAKES)
def test_the_message_says_what_to_write(call, error, fragments):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert [fragment for fragment in fragments if fragment not in text] == [], text
    assert len(text.splitlines()) > 1, "no remedy"


@pytest.mark.parametrize(("given", "meant"), [("cpu", "CPU"), ("autogradcpu", "AutogradCPU"), ("cea", "CEA")])
def test_a_key_in_other_letters_is_recognized(fresh, given, meant):
    fresh.define("g(Tensor x) -> Tensor")
    with pytest.raises(UnknownKeyError, match=rf"did you mean {meant}\?"):
        fresh.impl("g", np.sin, given)
    with pytest.raises(UnknownKeyError, match=r"^(?!.*did you mean)"):
        fresh.impl("g", np.sin, "GPU")


@pytest.mark.parametrize("result", [None, (X, X)], ids=["none", "two"])
def test_a_kernel_that_returns_another_number_of_values(fresh, result):
    fresh.define("g(Tensor x) -> Tensor", lambda x: result)
    with pytest.raises(DispatchTypeError, match=r"::g: result 1: .*\n.*several values ends in -> \(Tensor, Tensor\), "):
        getattr(ops, fresh.namespace).g(X)


def test_a_formula_that_reads_what_nothing_saved(fresh):
    fresh.define("g(Tensor x) -> Tensor")
    fresh.impl("g", np.sin, "CPU")
    library.register_autograd(f"{fresh.namespace}::g", lambda ctx, grad: grad * ctx.slope)
    with pytest.raises(AttributeError, match=r"ctx has no attribute 'slope'.*\nwrite ctx.slope = \.\.\."):
        func.grad(lambda x: getattr(ops, fresh.namespace).g(x).sum())(X)


def test_what_forward_sets_may_be_asked_for(fresh):
    seen = []

    def backward(ctx, grad):
        seen.append((hasattr(ctx, "slope"), getattr(ctx, "slope", None), ctx.factor))
        return grad * ctx.factor

    fresh.define("g(Tensor x) -> Tensor")
    fresh.impl("g", lambda x: 2 * x, "CPU")
    library.register_autograd(f"{fresh.namespace}::g", backward,
                              setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", 2))
    np.testing.assert_array_equal(func.grad(lambda x: getattr(ops, fresh.namespace).g(x).sum())(X), 2 * X)
    assert seen == [(False, None, 2)]
