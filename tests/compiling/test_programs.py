"""Whole programs compiled: the twenty NumPy programs, the examples, and programs as forward and backward ones."""

import importlib
from functools import partial

import numpy as np
import pytest

import pydispatch.numpy
from pydispatch import Tensor, compile, func, ops
from pydispatch.compiling.programs import results_of
from pydispatch.exceptions import DataDependentError, NoKernelError
from pydispatch.func import grad, vmap
from tests.comparing import raw
from tests.compiling.same import check_same
from tests.compiling.test_transforms import near
from tests.examples import test_mathematics as mathematics
from tests.examples.test_transforms import load  # noqa: F401      # a fixture
from tests.programs.test_programs import BRANCHES, PROGRAMS, SMOOTH, as_arrays
from tests.programs.test_programs import check_same as check_near
from tests.warning_filters import quiet

COMPILABLE = [name for name in PROGRAMS if name not in BRANCHES]


@pytest.fixture(params=["numpy", "pydispatch.numpy"])
def program(request, name, monkeypatch):
    """Provide a program that calls NumPy np, or ours."""
    module = importlib.import_module(f"tests.programs.{name}")
    monkeypatch.setattr(module, "np", {"numpy": np, "pydispatch.numpy": pydispatch.numpy}[request.param])
    return module


PRODUCTS_OF_TRANSPOSED = ("k_means",)
"""Programs that multiply what they compute from a transposed matrix: it lies by rows in a plan, by columns in eager,
and on some processors (those with AVX-512) BLAS adds the one in another order than the other."""


def check_to_rounding(found, expected):
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", COMPILABLE)
def test_programs_to_the_bit(name, program):
    arguments = program.example()
    expected = importlib.import_module(f"tests.programs.{name}").main(*map(Tensor, arguments))
    compiled, check = compile(program.main), check_to_rounding if name in PRODUCTS_OF_TRANSPOSED else check_same
    for _ in range(2):
        check(as_arrays(compiled(*arguments)), as_arrays(expected))
    check(as_arrays(compiled(*map(Tensor, arguments))), as_arrays(expected))


@pytest.mark.parametrize("name", sorted(BRANCHES))
def test_programs_that_decide_by_values_are_refused_with_their_line(name, program):
    with pytest.raises(DataDependentError, match=rf"tests/programs/{name}\.py:\d+"):
        compile(program.main)(*program.example())


@pytest.mark.parametrize("name", [name for name in COMPILABLE if name in SMOOTH and name not in (
    "game_of_life", "mandelbrot", "lotka_volterra")])
def test_gradients_of_programs(name, monkeypatch):
    module = importlib.import_module(f"tests.programs.{name}")
    monkeypatch.setattr(module, "np", pydispatch.numpy)
    arguments, places = module.example(), SMOOTH[name]

    def loss(*values):
        results = [leaf for leaf in func_leaves(module.main(*values)) if leaf.dtype.kind == "f"]
        return sum([(leaf * leaf).sum() for leaf in results])

    expected = grad(loss, places)(*arguments)
    check_near(compile(grad(loss, places))(*arguments), expected)
    check_near(grad(compile(loss), places)(*arguments), expected)


def func_leaves(value):
    from pydispatch.tree import tree_leaves
    return [leaf for leaf in tree_leaves(value) if hasattr(leaf, "dtype")]


@pytest.mark.parametrize("name", ["black_scholes", "page_rank", "ridge_regression", "heat_equation", "floyd_warshall"])
def test_programs_in_a_batch(name, monkeypatch):
    module = importlib.import_module(f"tests.programs.{name}")
    monkeypatch.setattr(module, "np", pydispatch.numpy)
    first, *others = module.example()
    batch = np.stack([first, first.T if name == "floyd_warshall" else first[::-1]])
    with quiet():
        found = vmap(compile(lambda x: module.main(x, *others)))(batch)
        expected = [as_arrays(module.main(x, *others)) for x in batch]
    for i, leaf in enumerate(func_leaves(found)):
        np.testing.assert_allclose(raw(leaf), np.stack([each[i] for each in expected]), rtol=1e-9, atol=1e-11)


# --- examples --------------------------------------------------------------------------------------------------------


def test_the_example_of_an_ode(load):  # noqa: F811
    ode = load("ode")
    counts = ode.observe(40, 0.02, 0)
    guess = np.concatenate([ode.TRUE_START, ode.TRUE_PARAMETERS]) * 1.1
    for function in (ode.loss, ode.residuals_of, func.jacfwd(ode.residuals_of), grad(ode.loss)):
        compiled = compile(function)
        near(compiled(guess, counts), function(guess, counts))
        if function is ode.loss:
            assert "repeat 40 times" in compiled.plan(guess, counts)
            assert " 0 calls of Python" in compiled.explain(guess, counts)
    near(grad(compile(ode.loss))(guess, counts), grad(ode.loss)(guess, counts))
    expected = ode.fit(counts, guess, 3)
    ode.loss, ode.residuals_of = compile(ode.loss), compile(ode.residuals_of)
    near(ode.fit(counts, guess, 3)[0], expected[0])


def test_the_example_of_newtons_method(load):  # noqa: F811
    newton = load("newton")
    points = newton.starts(5)
    for function in (newton.himmelblau, newton.gradient, newton.hessian):
        near(vmap(compile(function))(points), vmap(function)(points))
        near(compile(vmap(function))(points), vmap(function)(points))
    with pytest.raises(NoKernelError, match="newton::solve: no fake kernel"):
        compile(newton.newton)(points[0])
    newton.solve.register_fake(lambda matrix, vector: ops.np.empty_like(vector))
    near(compile(newton.newton)(points[0]), newton.newton(points[0]))
    near(compile(vmap(newton.newton))(points), vmap(newton.newton)(points))


@pytest.mark.filterwarnings("ignore:operator samples..convolve runs once for each example")
def test_the_example_of_gradients_per_sample(load):  # noqa: F811
    example = load("per_sample_gradients")
    problem = example.Problem(4)
    arguments = problem.parameters, problem.images, problem.targets
    per_sample = vmap(grad(problem.loss), (None, 0, 0))
    example.convolve.register_fake(lambda images, kernels, padding=0: ops.np.empty_like(images, shape=(
        images.shape[0], images.shape[1] + 2 * padding - kernels.shape[0] + 1,
        images.shape[2] + 2 * padding - kernels.shape[1] + 1, kernels.shape[3])))
    near(compile(per_sample)(*arguments), per_sample(*arguments))
    near(vmap(grad(compile(problem.loss)), (None, 0, 0))(*arguments), per_sample(*arguments))


def test_the_example_of_a_simulation(load):  # noqa: F811
    simulation = load("simulation")
    rates, weather = simulation.ensemble(3, 20)
    with pytest.raises(NoKernelError, match="epidemic::simulate: no fake kernel"):
        compile(simulation.simulate)(rates[0], weather[0])
    simulation.simulate.register_fake(lambda rates, weather: ops.np.empty_like(weather))
    compiled = compile(lambda rates, weather: simulation.simulate(rates, weather).max() * 2)
    check_same(compiled(rates[0], weather[0]), np.max(simulation.simulate(rates[0], weather[0])) * 2)


def of_deconvolution(example, keeps_edges):
    kernel, scene = example.blur(1), example.scene(12)
    observed = example.observe(scene, kernel)
    return func.value_and_grad(lambda x: example.objective(x, observed, kernel, keeps_edges)), (scene.ravel(),)


def of_monte_carlo(example):
    weights, momenta = np.random.default_rng(0).standard_normal((2, 5, 2))
    arguments = weights, momenta, np.linspace(0.1, 0.9, 5), *example.observe(20)
    return vmap(example.transition, in_dims=(0, 0, 0, None, None)), arguments


OF_MATHEMATICS = {
    "gaussian_process": lambda example: (
        func.value_and_grad(example.negative_log_likelihood), (np.array([0.3, 0.2, -0.7]), *example.observe(15))),
    "kalman": lambda example: (
        func.value_and_grad(example.negative_log_likelihood), (np.array([-0.5, -2.0, 0.3]), example.observe(30))),
    "hamiltonian_monte_carlo": of_monte_carlo,
    "camera_calibration": lambda example: (
        func.jacfwd(example.residuals),
        (example.FIRST_GUESS, example.photograph(16), example.board(*example.pixels(56)))),
    "deconvolution": lambda example: of_deconvolution(example, False),
    "deconvolution, edges": lambda example: of_deconvolution(example, True),
    "neural_ode": lambda example: (
        func.value_and_grad(example.misfit), (example.first_weights(), example.pieces_of(example.true_path()))),
    "optimal_control": lambda example: (example.flow.__wrapped__, (
        {"state": np.array([0.3, 0.4]), "costate": np.array([0.1, -0.2]), "effort": np.zeros(())}, np.array(0.5),
        example.GRAVITY)),
    "registration": lambda example: (
        func.value_and_grad(partial(example.difference, example.ndimage)),
        (example.TRUE, example.scene(12), example.laid(example.ndimage, example.scene(12), example.TRUE + 0.01))),
    "stiffest_beam": lambda example: (func.value_and_grad(example.lowest), (np.linspace(0.8, 1.2, 8),)),
}
"""The function that each example of mathematics compiles, and arguments for it."""


def test_all_examples_of_mathematics_have_a_row():
    assert {name.partition(",")[0] for name in OF_MATHEMATICS} == {file.stem for file in mathematics.FILES}


@pytest.mark.parametrize("name", OF_MATHEMATICS)
def test_what_the_examples_of_mathematics_compile(name):
    function, arguments = OF_MATHEMATICS[name](mathematics.load(name.partition(",")[0]))
    compiled, expected = compile(function), function(*arguments)
    for _ in range(2):
        near(compiled(*arguments), expected)


# --- forward and backward --------------------------------------------------------------------------------------------


def split(function, *arrays):
    """Return the program of a function, and the two that its gradient runs."""
    compiled = compile(function)
    func.vjp(compiled, *arrays)
    program, = compiled._programs.values()
    return program, next(iter(program._derived.values()))


def test_residuals_are_what_the_backward_program_cannot_make_of_the_arguments():
    x = np.ones((3, 4))
    program, found = split(lambda x: ops.np.exp(ops.np.sin(x)) * ops.np.transpose(ops.np.transpose(x)), x)
    residuals = results_of(found.forward.graph)[len(program.results):]
    assert 1 <= len(residuals) <= 3
    assert {node.op for node in residuals} == {"call_function"}
    assert not {node.target.name.name for node in residuals} & {"transpose"}


def test_a_linear_function_keeps_nothing():
    _, found = split(lambda x: x.sum(0) * 3 - x[0], np.ones((3, 4)))
    assert len(found.forward.results) == 1


def test_both_return_what_the_joint_function_does():
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4))
    _, found = split(lambda x, y: (ops.np.tanh(x * y), (x + y).sum()), x, y)
    first, total, *residuals = found.forward.run(x, y)
    check_same((first, total), (np.tanh(x * y), (x + y).sum()))
    gradients = found.backward.run(*residuals, x, y, np.ones((3, 4)), np.array(2.0))
    slope = 1 - np.tanh(x * y) ** 2
    near(gradients, (slope * y + 2, slope * x + 2))


def test_programs_of_one_level_are_made_once():
    compiled = compile(lambda x: (x * x).sum())
    x = np.ones(3)
    for _ in range(3):
        grad(compiled)(x)
        vmap(compiled)(np.ones((2, 3)))
        func.jvp(compiled, (x,), (x,))
    program, = compiled._programs.values()
    assert len(program._derived) == 3


def test_writes_after_a_copy_that_only_the_layout_shows():
    # `ravel` of a column copies, of a row it is a view, so later writes are in the one and not in the other.
    def column(x):
        y = ops.np.concatenate((x, x))
        flat = ops.np.ravel(y[:, 1])
        y[...] = 0.0
        return flat

    def row(x):
        y = ops.np.concatenate((x, x))
        flat = ops.np.ravel(y[1])
        y[...] = 0.0
        return flat

    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(compile(column)(x), [1.0, 4.0, 1.0, 4.0])
    np.testing.assert_array_equal(compile(row)(x), [0.0, 0.0, 0.0])
