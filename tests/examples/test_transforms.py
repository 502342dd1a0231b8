"""The programs of examples/transforms run, fit on a page, and give the numbers of plain NumPy and SciPy."""

import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from pydispatch import func
from pydispatch.exceptions import PerformanceWarning
from pydispatch.library import CustomOpDef

FOLDER = Path(__file__).parents[2] / "examples" / "transforms"
FILES = sorted(FOLDER.glob("*.py"))


@pytest.fixture
def load():
    """Provide a function that loads an example as a module. Remove the operators of all examples afterwards."""
    modules = []

    def load(name):
        spec = importlib.util.spec_from_file_location(f"transforms_{name}", FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
        return module

    yield load
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, CustomOpDef):
                value.remove()


@pytest.fixture
def problem(load):
    return load("per_sample_gradients").Problem(6)


def close(actual, desired, tolerance=1e-10):
    np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance, strict=True)


# --- all of them ---


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_fits_on_a_page_and_the_readme_tells_of_it(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


SMALL = {
    "newton": ["--side", "12"],
    "ode": ["--steps", "40", "--noise", "0"],
    "simulation": ["--count", "20", "--days", "30"],
    "per_sample_gradients": ["--images", "16"],
}


@pytest.mark.parametrize(("name", "printed"), [
    ("newton", r" 3\.00000 +2\.00000 +0\.0000  minimum +\d+ +\d"),
    ("ode", r"births +1\.100 +1\.000 +1\.100 "),
    ("simulation", r"20 times 30 days"),
    ("per_sample_gradients", r"gradients for 16 images .*difference (0\.0e\+00|\d\.\de-1\d)\n"),
])
def test_it_prints_a_table_and_saves_a_picture(load, name, printed, tmp_path, capsys):
    module = load(name)
    with warnings.catch_warnings():
        module.main([*SMALL[name], "--plot", str(tmp_path / "plot.png")])
    assert re.search(printed, capsys.readouterr().out)
    picture = image.imread(tmp_path / "plot.png")
    assert min(picture.shape[:2]) > 200
    assert np.ptp(picture) > 0.5


@pytest.mark.parametrize("name", ["newton", "ode", "simulation"])
def test_it_needs_no_matplotlib(load, name, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    load(name).main([*SMALL[name], "--plot", str(tmp_path / "plot.png")])
    assert capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []


# --- Newton's method ---


def gradient_by_hand(x, y):
    return np.array([4 * x * (x * x + y - 11) + 2 * (x + y * y - 7), 2 * (x * x + y - 11) + 4 * y * (x + y * y - 7)])


def hessian_by_hand(x, y):
    return np.array([[12 * x * x + 4 * y - 42, 4 * (x + y)], [4 * (x + y), 12 * y * y + 4 * x - 26]])


def newton_by_hand(point, tolerance, most):
    steps = 0
    while np.abs(gradient_by_hand(*point)).max() > tolerance and steps < most:
        point = point - np.linalg.solve(hessian_by_hand(*point), gradient_by_hand(*point))
        steps += 1
    return point, steps


def test_newton_ends_where_a_loop_in_numpy_does_after_as_many_steps(load):
    newton = load("newton")
    starts = newton.starts(9)
    points, steps = func.vmap(newton.newton)(starts)
    for start, point, count in zip(starts, points, steps, strict=True):
        expected, expected_count = newton_by_hand(start, newton.TOLERANCE, newton.MOST_STEPS)
        close(point, expected, 1e-6)
        assert abs(count - expected_count) <= 1     # the last step is lost in rounding
    one, count = newton.newton(starts[0])
    close(one, points[0], 1e-9)
    assert int(count) == steps[0]


def test_newton_finds_the_nine_points_that_are_known(load):
    newton = load("newton")
    points, _ = func.vmap(newton.newton)(newton.starts(24))
    found, places = newton.distinct(points)
    assert len(found) == 9
    assert len(places) == 24 * 24
    close(np.abs([gradient_by_hand(*point) for point in found]).max(), 0.0, 1e-4)
    kinds = [newton.kind(point) for point in found]
    assert sorted(kinds) == ["maximum"] + ["minimum"] * 4 + ["saddle"] * 4
    assert any(np.allclose(point, [3, 2], atol=1e-6) for point in found)


def test_solve_is_batched_by_its_rule(load):
    solve = load("newton").solve
    random = np.random.default_rng(0)
    matrices, vectors = random.normal(size=(5, 3, 3)), random.normal(size=(5, 3))
    for in_dims in ((0, 0), (0, None), (None, 0)):
        args = [array if axis == 0 else array[0] for axis, array in zip(in_dims, (matrices, vectors), strict=True)]
        expected = [
            np.linalg.solve(matrices[i if in_dims[0] == 0 else 0], vectors[i if in_dims[1] == 0 else 0])
            for i in range(5)
        ]
        close(func.vmap(solve, in_dims)(*args), np.array(expected))


# --- the ordinary differential equation ---


def velocity_by_hand(state, parameters):
    (rabbits, foxes), (births, hunted, deaths, fed) = state, parameters
    return np.array([births * rabbits - hunted * rabbits * foxes, fed * rabbits * foxes - deaths * foxes])


def solve_by_hand(start, parameters, steps, step):
    states, state = [], np.array(start)
    for _ in range(steps):
        a = velocity_by_hand(state, parameters)
        b = velocity_by_hand(state + step / 2 * a, parameters)
        c = velocity_by_hand(state + step / 2 * b, parameters)
        d = velocity_by_hand(state + step * c, parameters)
        state = state + step / 6 * (a + 2 * b + 2 * c + d)
        states.append(state)
    return np.array(states)


def test_the_solution_is_that_of_scipy(load):
    ode = load("ode")
    solution = ode.solve(ode.TRUE_START, ode.TRUE_PARAMETERS, 50)
    close(solution, solve_by_hand(ode.TRUE_START, ode.TRUE_PARAMETERS, 50, ode.STEP))
    reference = solve_ivp(
        lambda time, state: velocity_by_hand(state, ode.TRUE_PARAMETERS), (0, 50 * ode.STEP), ode.TRUE_START,
        t_eval=ode.STEP * np.arange(1, 51), rtol=1e-10, atol=1e-10)
    close(solution, reference.y.T, 1e-3)


def test_the_solution_is_differentiated_by_start_and_parameters(load):
    ode = load("ode")
    counts = ode.observe(20, 0.1, seed=1)
    unknowns = np.array([9.0, 5.5, 1.0, 0.3, 0.5, 0.15])

    def loss_by_hand(unknowns):
        return 0.5 * np.sum((solve_by_hand(unknowns[:2], unknowns[2:], 20, ode.STEP) - counts) ** 2)

    steps = 1e-6 * np.eye(6)
    slopes = np.array([(loss_by_hand(unknowns + step) - loss_by_hand(unknowns - step)) / 2e-6 for step in steps])
    close(func.grad(ode.loss)(unknowns, counts), slopes, 1e-5)
    matrix, residuals = func.jacfwd(ode.residuals_of)(unknowns, counts), ode.residuals_of(unknowns, counts)
    assert matrix.shape == (40, 6)
    close(matrix.T @ residuals, func.grad(ode.loss)(unknowns, counts), 1e-9)


def test_the_fit_is_that_of_scipy(load):
    ode = load("ode")
    counts = ode.observe(60, 0.05, seed=2)
    guess = np.array([*counts[0], 1.0, 0.3, 0.5, 0.15])
    fitted, losses = ode.fit(counts, guess)
    reference = least_squares(
        lambda unknowns: (solve_by_hand(unknowns[:2], unknowns[2:], 60, ode.STEP) - counts).ravel(), guess,
        xtol=1e-14, ftol=1e-14, gtol=1e-14)
    assert losses == sorted(losses, reverse=True)
    close(fitted, reference.x, 1e-5)
    close(losses[-1], reference.cost, 1e-9)


# --- epidemics ---


def epidemic_by_hand(rates, weather, first, noise):
    """Compute by sums over the past: who is healthy, and who is ill of those infected so far."""
    infections, shares = [first], []
    for change in weather:
        healthy = 1 - sum(infections)
        ill = shares[-1] if shares else first
        infections.append(np.clip(rates[0] * (1 + noise * change) * healthy * ill, 0, healthy))
        shares.append(sum(count * (1 - rates[1]) ** (len(shares) + 1 - day) for day, count in enumerate(infections)))
    return np.array(shares)


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0)])
def test_epidemics_by_the_loop_and_by_the_rule(load, in_dims):
    simulation = load("simulation")
    rates, weather = simulation.ensemble(6, 25)
    args = [array if axis == 0 else array[0] for axis, array in zip(in_dims, (rates, weather), strict=True)]
    expected = [
        epidemic_by_hand(rates[i if in_dims[0] == 0 else 0], weather[i if in_dims[1] == 0 else 0], simulation.FIRST,
                         simulation.NOISE)
        for i in range(6)
    ]
    with pytest.warns(PerformanceWarning, match="epidemic::simulate"):
        one_by_one = func.vmap(simulation.simulate, in_dims)(*args)
    close(one_by_one, np.array(expected))
    simulation.simulate.register_vmap(simulation.rule)
    close(func.vmap(simulation.simulate, in_dims)(*args), one_by_one, 1e-14)


# --- the digits ---


def losses_by_hand(problem, strokes, thresholds, digits):
    """Compute the loss of each image, in plain NumPy."""
    windows = np.lib.stride_tricks.sliding_window_view(problem.images[..., 0], (3, 3), axis=(1, 2))
    hidden = np.maximum(np.einsum("nyxij,ijc->nyxc", windows, strokes[:, :, 0]) + thresholds, 0)
    scores = np.einsum("nyxc,yxcd->nd", hidden, digits)
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(scores)), problem.labels]


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
def test_gradients_for_each_image_are_those_of_finite_differences(problem):
    gradients = problem.gradients()
    assert [array.shape for array in gradients] == [(6, *array.shape) for array in problem.parameters]
    for gradient, expected in zip(gradients, problem.gradients_by_a_loop(), strict=True):
        close(gradient, expected, 1e-12)
    random = np.random.default_rng(3)
    directions = [random.normal(size=array.shape) for array in problem.parameters]
    up, down = (
        losses_by_hand(problem, *(p + sign * 1e-6 * d for p, d in zip(problem.parameters, directions, strict=True)))
        for sign in (1, -1))
    along = sum(
        (gradient * direction).reshape(6, -1).sum(axis=1)
        for gradient, direction in zip(gradients, directions, strict=True))
    close(along, (up - down) / 2e-6, 1e-6)


@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")
def test_the_hessian_times_a_vector_is_the_second_difference(problem):
    random = np.random.default_rng(4)
    vectors = tuple(random.normal(size=array.shape) for array in problem.parameters)
    products = problem.hessian_product(vectors)
    for product, expected in zip(products, problem.hessian_product_by_differences(vectors), strict=True):
        close(product, expected, 1e-6)

    def mean_along(step):
        return losses_by_hand(problem, *(p + step * v for p, v in zip(problem.parameters, vectors, strict=True))).mean()

    curvature = (mean_along(1e-5) - 2 * mean_along(0.0) + mean_along(-1e-5)) / 1e-10
    close(float(sum((p * v).sum() for p, v in zip(products, vectors, strict=True))), float(curvature), 1e-4)
