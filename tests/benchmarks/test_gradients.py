"""Every way to compute a gradient computes that by hand, in the way that its row names."""

import gc

import numpy as np
import pytest

from benchmarks.cases import differentiators
from benchmarks.cases.differentiators import OURS, THEIRS, by_backward, positions, tape, transform
from benchmarks.cases.gradients import check, gradient_cases
from benchmarks.cases.kinds import Effort
from benchmarks.cases.programs import logistic, perceptron, polynomial, programs
from pydispatch import Tensor, compile
from pydispatch.ops import ops

each_program = pytest.mark.parametrize("program", programs(), ids=[program.title for program in programs()])
POLYNOMIAL, PERCEPTRON, *_ = programs()


@each_program
@pytest.mark.parametrize("set_up", [tape, transform, differentiators.compiled])
def test_ours_is_the_gradient_by_hand_each_time(program, set_up):
    gradient = set_up(None)(program)
    check(gradient, program)
    check(gradient, program)


@each_program
def test_the_tape_gives_tensors_and_the_transform_raw_arrays(program):
    count = len(program.parameters)
    assert [type(gradient) for gradient in tape(None)(program)()] == [Tensor] * count
    result = transform(None)(program)()
    assert [type(gradient) for gradient in (result if count > 1 else [result])] == [np.ndarray] * count


def test_a_gradient_that_is_wrong_is_not_timed():
    (case, *_) = gradient_cases({}, "*polynomial*tensor.backward")
    wrong = {"make": lambda program: lambda: [program.parameters["x"]]}
    with pytest.raises(AssertionError, match="gradient of x in a polynomial"):
        type(case)(**vars(case) | wrong).measure(Effort(1, 1))


def test_gradients_are_timed_with_the_garbage_collector_on_and_it_is_put_back():
    seen = []

    def make(program):
        gradient = tape(None)(program)
        return lambda: seen.append(gc.isenabled()) or gradient()

    (case, *_) = gradient_cases({}, "*polynomial*tensor.backward")
    gc.disable()
    try:
        row = type(case)(**vars(case) | {"make": make}).measure(Effort(5, 1, 0.01))
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen[-1]
    assert row.times.keys() == {"gradient()", "by_hand(x)"}
    assert row.bound == 0.75


def test_gradients_start_anew_each_time():
    leaves = []

    def parameter(array):
        leaves.append(Tensor(array, requires_grad=True))
        return leaves[-1]

    gradient = by_backward(PERCEPTRON, ops.np, parameter, Tensor)
    first = [np.array(array) for array in gradient()]
    for left, right in zip(first, gradient(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert [leaf.shape for leaf in leaves] == [array.shape for array in PERCEPTRON.parameters.values()]


def test_one_parameter_is_differentiated_by_without_a_tuple():
    assert positions(POLYNOMIAL) == 0
    assert positions(PERCEPTRON) == (0, 1, 2, 3)


def test_peers_that_are_not_installed_are_named(monkeypatch):
    monkeypatch.setitem(THEIRS, "absent", THEIRS["jax.grad"]._replace(module="no_such_module"))
    left_out = {}
    assert list(gradient_cases(left_out, "*absent")) == []
    assert left_out == {"absent": "No module named 'no_such_module'"}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@each_program
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * way.needs_compiler) for name, way in THEIRS.items()])
def test_peers_that_are_installed_agree(program, name):
    left_out = {}
    found = list(gradient_cases(left_out, f"{program.title}/{name}"))
    expected = name not in left_out and program.make not in THEIRS[name].not_of
    assert [case.name for case in found] == [name] * expected
    for case in found:
        assert case.bound is None
        check(case.make(case.program), case.program)


def test_ours_have_bounds():
    assert [(case.name, case.bound) for case in gradient_cases({}, "*euler*") if case.name in OURS] == [
        ("Tensor.backward", 0.5), ("func.grad", 0.55), ("compile", 0.05)]


def test_a_library_that_needs_a_compiler_is_left_out_without_one(monkeypatch):
    monkeypatch.setattr(differentiators.shutil, "which", lambda name: None)
    monkeypatch.setitem(THEIRS, "compiling", THEIRS["torch.compile"]._replace(module="numpy", set_up=tape))
    left_out = {}
    assert list(gradient_cases(left_out, "*/compiling")) == []
    assert left_out == {"compiling": "there is no C++ compiler"}


def test_a_library_takes_no_part_in_programs_that_it_takes_minutes_for(monkeypatch):
    monkeypatch.setattr(differentiators.shutil, "which", lambda name: name)
    monkeypatch.setitem(THEIRS, "compiling", THEIRS["torch.compile"]._replace(module="numpy", set_up=tape))
    left_out = {}
    cases = list(gradient_cases(left_out, "*/compiling"))
    assert [case.program.make for case in cases] == [polynomial, perceptron, logistic]
    assert left_out == {}


@each_program
def test_compiled_gradients_are_plans_of_the_value_and_the_gradients(program, monkeypatch):
    made = []
    monkeypatch.setattr(differentiators, "compile", lambda f: made.append(compile(f)) or made[-1])
    gradient = differentiators.compiled(None)(program)
    check(gradient, program)
    check(gradient, program)
    arguments = [*program.arguments.values()]
    value, _ = made[0](*arguments)
    np.testing.assert_allclose(value, program.by_hand(*arguments)[0], rtol=1e-12)
    assert "0 calls of Python" in made[0].explain(*arguments)
