"""Anomaly mode: errors name the line of the call whose backward raised or returned a NaN."""

import threading

import numpy as np
import pytest

from pydispatch import ops
from pydispatch.autograd import Function, detect_anomaly, grad
from pydispatch.exceptions import AutogradError
from tests.autograd.leaves import SabotageError, assert_gradient, leaf
from tests.warning_filters import all_warnings

NP = ops.np


@pytest.fixture(autouse=True)
def infinities_are_expected():
    with np.errstate(all="ignore"):
        yield


class Sabotage(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        raise SabotageError("no gradient today")


def sabotaged_here(x):
    return Sabotage.apply(x)


def root_taken_here(x):
    return NP.sqrt(x)


def nan_in_backward(x):
    """Make a NaN in backward: at 0 the derivative of the root is infinite, and the incoming gradient is 0."""
    return (root_taken_here(x) * 0.0).sum()


def report(run, error):
    """Return the user's report when `run()` raises `error`: the message, its notes, and the warnings before it."""
    with all_warnings() as caught, pytest.raises(error) as raised:
        run()
    warned = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
    return "\n".join([str(raised.value), *getattr(raised.value, "__notes__", []), *warned]), warned


def test_a_nan_names_node_output_and_forward_line():
    x = leaf([0.0, 4.0])
    with detect_anomaly():
        total = nan_in_backward(x)
        text, _ = report(total.backward, AutogradError)
    assert "SqrtBackward" in text
    assert "0th" in text or "output 0" in text
    assert "nan" in text.lower()
    assert "root_taken_here" in text
    assert "return NP.sqrt(x)" in text
    assert x.grad is None


@pytest.mark.parametrize("index", [0, 1], ids=lambda index: f"output {index}")
def test_the_gradient_that_is_nan_is_told(index):
    factors = [leaf(1.0), leaf(1.0)]
    factors[1 - index] = leaf(np.nan)
    with detect_anomaly():
        product = factors[0] * factors[1]
        text, _ = report(product.backward, AutogradError)
    assert "MultiplyBackward" in text
    assert f"{index}th" in text or f"output {index}" in text


def test_a_node_that_raises_names_its_forward_line_and_the_error_goes_on():
    x = leaf([1.0])
    with detect_anomaly():
        total = sabotaged_here(x)
        text, warned = report(total.backward, SabotageError)
    assert len(warned) == 1
    assert "SabotageBackward" in text
    assert "sabotaged_here" in text
    assert "return Sabotage.apply(x)" in text


@pytest.mark.parametrize("raising", [True, False], ids=["error", "NaN"])
def test_nodes_made_outside_have_no_forward_line(raising):
    x = leaf([0.0])
    total = sabotaged_here(x) if raising else nan_in_backward(x)
    with detect_anomaly():
        text, _ = report(total.backward, SabotageError if raising else AutogradError)
    assert ("SabotageBackward" if raising else "SqrtBackward") in text
    assert "_here" not in text
    assert "outside" in text or "No forward" in text


def test_without_check_nan_they_pass():
    x = leaf([0.0, 4.0])
    with detect_anomaly(check_nan=False):
        nan_in_backward(x).backward()
    assert np.isnan(x.grad.array[0])
    assert x.grad.array[1] == 0.0


def test_without_check_nan_errors_still_tell_their_line():
    with detect_anomaly(check_nan=False):
        total = sabotaged_here(leaf([1.0]))
        text, _ = report(total.backward, SabotageError)
    assert "sabotaged_here" in text


def test_outside_of_the_mode_nothing_is_checked():
    x = leaf([0.0, 4.0])
    with detect_anomaly():
        total = nan_in_backward(x)
    total.backward()
    assert np.isnan(x.grad.array[0])


def test_outside_of_the_mode_an_error_comes_alone():
    total = sabotaged_here(leaf([1.0]))
    text, warned = report(total.backward, SabotageError)
    assert warned == []
    assert text == "no gradient today"


def test_what_is_right_stays_right():
    x = leaf([1.0, 4.0])
    with detect_anomaly():
        (first,) = grad(NP.sqrt(x).sum(), [x], create_graph=True)
        (second,) = grad(first.sum(), [x])
    assert_gradient(first, [0.5, 0.25])
    assert_gradient(second, [-0.25, -0.03125])


def test_infinities_are_no_nans():
    x = leaf([0.0])
    with detect_anomaly():
        NP.sqrt(x).backward()
    assert_gradient(x.grad, [np.inf])


def test_a_nan_in_complex_gradients_is_found():
    x = leaf([0.0], np.complex128)
    with detect_anomaly():
        total = (root_taken_here(x) * 0.0).real
        text, _ = report(total.backward, AutogradError)
    assert "root_taken_here" in text


def test_a_nan_in_float32_gradients_is_found():
    x = leaf([0.0], np.float32)
    with detect_anomaly():
        total = nan_in_backward(x)
        text, _ = report(total.backward, AutogradError)
    assert "root_taken_here" in text


def test_the_second_derivative_tells_what_induced_it():
    x = leaf([1.0])

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return Sabotage.apply(g * ctx.saved_tensors[0])

    def induced_here(x):
        return Once.apply(x)

    with detect_anomaly():
        value = induced_here(x)
        (first,) = grad(value, [x], create_graph=True)
        text, _ = report(lambda: first.backward(), SabotageError)
    assert "SabotageBackward" in text
    assert "induced_here" in text


def test_nested_and_left_again():
    x = leaf([0.0])
    with detect_anomaly():
        with detect_anomaly(check_nan=False):
            nan_in_backward(x).backward()
        text, _ = report(nan_in_backward(x).backward, AutogradError)
    assert "root_taken_here" in text
    nan_in_backward(x).backward()
    assert np.isnan(x.grad.array[0])


def test_one_threads_mode_is_not_anothers():
    inside, checked = threading.Event(), threading.Event()

    def hold():
        with detect_anomaly():
            inside.set()
            checked.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    x = leaf([0.0])
    nan_in_backward(x).backward()
    checked.set()
    thread.join(60)
    assert np.isnan(x.grad.array[0])


def test_as_a_decorator():
    @detect_anomaly()
    def work():
        total = nan_in_backward(leaf([0.0]))
        return report(total.backward, AutogradError)[0]

    assert "root_taken_here" in work()
