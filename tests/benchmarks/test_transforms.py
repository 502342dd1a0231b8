"""The timed transforms return the values of closed forms, in every library."""

import gc

import numpy as np
import pytest

from benchmarks.cases import transforms as bench
from benchmarks.cases.differentiators import functions_of
from benchmarks.cases.kinds import Effort
from benchmarks.cases.transforms import (
    BATCH,
    LARGE_BATCH,
    STEP,
    STEPS,
    THEIRS,
    TRANSFORMS,
    SameValues,
    Task,
    arrays_in,
    batch_cases,
    by_tape,
    check,
    examples,
    examples_of,
    library_cases,
    ours,
    tape_cases,
)
from pydispatch import ops
from pydispatch.tracing import make_fx

POLYNOMIAL, PERCEPTRON, EULER = examples()


# --- closed forms ----------------------------------------------------------------------------------------------------


def polynomial_by_hand(x):
    return 3 * x ** 3 - 2 * x ** 2 + x - 1, 9 * x ** 2 - 4 * x + 1, 18 * x - 4


def euler_by_hand(x):
    """Return the same, by the chain rule from step to step."""
    first, second = np.ones_like(x), np.zeros_like(x)
    for _ in range(STEPS):
        slope = 1 + STEP * (np.cos(x) - 0.5)
        second = slope * second - STEP * np.sin(x) * first ** 2
        first = slope * first
        x = x + STEP * (np.sin(x) - 0.5 * x)
    return x, first, second


def elementwise_by_hand(by_hand, transform, x):
    value, first, second = by_hand(x)
    if transform == "jvp":
        return [value, first]
    if transform == "vmap":
        return [value.sum(axis=1)]
    if transform in ("hessian", "jacrev"):
        return [np.diag(second if transform == "hessian" else first)]
    assert transform in ("grad", "vjp", "vmap(grad)")
    return [first]


def perceptron_by_hand(transform, w1, b1, w2, b2, inputs, targets=None):
    hidden = np.tanh(inputs @ w1 + b1)
    outputs = hidden @ w2 + b2
    slopes = 1 - hidden ** 2

    def gradients(of_outputs):
        before = (of_outputs @ w2.T) * slopes
        return [inputs.T @ before, before.sum(0), hidden.T @ of_outputs, of_outputs.sum(0)]

    if transform == "vjp":
        return gradients(np.ones_like(outputs))
    if transform == "jvp":
        before = inputs @ np.ones_like(w1) + 1
        return [outputs, (slopes * before) @ w2 + hidden @ np.ones_like(w2) + 1]
    if transform == "vmap":
        return [outputs]
    of_biases = slopes * w2[:, 0]
    if transform == "jacrev":
        return [of_biases[:, None, :]]
    errors = outputs - targets
    if transform == "grad":
        return gradients(2 * errors / len(inputs))
    if transform == "vmap(grad)":
        before = (2 * errors @ w2.T) * slopes
        return [inputs[:, :, None] * before[:, None, :], before, hidden[:, :, None] * 2 * errors[:, None], 2 * errors]
    assert transform == "hessian"
    curvature = np.diag((errors * -2 * hidden * of_biases).sum(0))
    return [2 / len(inputs) * (of_biases.T @ of_biases + curvature)]


def by_hand(example, transform):
    arguments = example.tasks[transform].arguments
    if example is PERCEPTRON:
        return perceptron_by_hand(transform, *arguments)
    return elementwise_by_hand(polynomial_by_hand if example is POLYNOMIAL else euler_by_hand, transform, *arguments)


each_example = pytest.mark.parametrize("example", examples(), ids=[example.title for example in examples()])
each_transform = pytest.mark.parametrize("transform", TRANSFORMS)


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for array, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-10, atol=1e-10, strict=True)


# --- what is timed ---------------------------------------------------------------------------------------------------


@each_transform
@each_example
def test_ours_are_the_closed_forms_each_time(example, transform):
    call = ours()(transform, example.tasks[transform])
    assert_same(arrays_in(call()), by_hand(example, transform))
    assert_same(arrays_in(call()), by_hand(example, transform))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("library", THEIRS)
@each_transform
@each_example
def test_those_of_other_libraries_that_are_installed_too(example, transform, library):
    found = [*library_cases(left_out := {}, f"{example.title}, theirs over ours/{transform}, {library}")]
    assert [case.name for case in found] == [f"{transform}, {library}"] * (library not in left_out)
    for case in found:
        assert (case.bound, case.at_least) == (5, True)
        assert_same(arrays_in(case.make_call()()), by_hand(example, transform))


@pytest.mark.parametrize("case", [*batch_cases()], ids=lambda case: case.name)
def test_batches_by_hand_are_those_of_vmap(case):
    assert_same(arrays_in(case.make_call()()), arrays_in(case.make_over()()))
    assert case.bound == (1.2 if "2,500" in case.name else 3)


@pytest.mark.parametrize("case", [*tape_cases()], ids=lambda case: case.name)
def test_the_tape_gives_the_gradients_of_the_transform(case):
    expected = next(by_hand(example, "grad") for example in examples() if example.title.startswith(case.name))
    assert_same(arrays_in(case.make_over()()), expected)
    assert_same(arrays_in(case.make_over()()), expected)
    assert case.bound == 1.3


@each_example
@pytest.mark.parametrize("transform", ["grad", "vjp"])
def test_a_program_has_as_many_operators_as_it_says(example, transform):
    task = example.tasks[transform]
    count = len(make_fx(task.function(functions_of(ops.np)))(*task.arguments).find_nodes(op="call_function"))
    assert count == {POLYNOMIAL.title: 7, PERCEPTRON.title: 5, EULER.title: 500}[example.title] + {
        "vjp": 0, "grad": 3 if example is PERCEPTRON else 1}[transform]


def test_sizes_are_those_agreed():
    assert [len(example.tasks["vmap"].arguments[-1]) for example in examples()] == [BATCH] * 3 == [8] * 3
    assert LARGE_BATCH * 4 == 10_000
    assert (STEPS, STEP) == (100, 0.01)
    assert [array.shape for array in PERCEPTRON.tasks["grad"].arguments] == [(4, 4), (4,), (4, 1), (1,), (8, 4), (8, 1)]
    assert {example.tasks["grad"].arguments[0].shape for example in (POLYNOMIAL, EULER)} == {(4,)}
    assert all(example.tasks.keys() == {*TRANSFORMS} for example in examples())


def test_the_arguments_of_each_example():
    shared, xs = np.ones(3), np.arange(4.0).reshape(2, 2)
    (a, first), (b, second) = examples_of(Task(None, (shared, xs), in_dims=(None, 0)))
    assert a is b is shared
    np.testing.assert_array_equal([first, second], xs)


def test_arrays_in_lists_of_results_are_stacked():
    first, second = arrays_in([(np.ones(2), 1.0), (np.zeros(2), 2.0)])
    np.testing.assert_array_equal(first, [[1, 1], [0, 0]])
    np.testing.assert_array_equal(second, [1, 2])


@pytest.mark.parametrize("wrong", [np.ones(2) + 1e-9, np.ones(3), np.ones(2, np.float32)])
def test_values_that_differ_are_not_timed(wrong):
    with pytest.raises(AssertionError):
        check(lambda: wrong, lambda: np.ones(2), "title")


def test_both_calls_are_timed_with_the_garbage_collector_on_once_they_agree(work):
    seen = []

    def call(microseconds):
        seen.append(gc.isenabled())
        work(microseconds)
        return np.ones(2)

    case = SameValues("group", "name", 5, "theirs()", "ours()", {}, at_least=True,
                      make_call=lambda: lambda: call(60), make_over=lambda: lambda: call(10))
    gc.disable()
    try:
        row = case.measure(Effort(5, 1))
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen[-1]
    assert (row.value, row.at_least, row.ok) == (pytest.approx(6), True, True)
    assert row.times == pytest.approx({"theirs()": 60_000, "ours()": 10_000})


def test_libraries_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setattr(bench, "THEIRS", {"absent": THEIRS["HIPS"]._replace(module="no_such_module")})
    left_out = {}
    assert [*library_cases(left_out)] == []
    assert left_out == {"absent": "No module named 'no_such_module'"}


def test_a_pattern_spares_the_import_of_others(monkeypatch):
    monkeypatch.setattr(bench, "import_or_note", None)
    assert [*library_cases({}, "vmap, over the same batch")] == []


def test_tapes_start_anew_each_time():
    gradients = by_tape(PERCEPTRON.tasks["grad"])
    assert_same(arrays_in(gradients()), arrays_in(gradients()))
