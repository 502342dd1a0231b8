"""The programs of examples/mathematics run, fit on a page, and agree with the independent methods that they name."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from pydispatch import func

FOLDER = Path(__file__).parents[2] / "examples" / "mathematics"
FILES = sorted(FOLDER.glob("*.py"))


def load(name):
    spec = importlib.util.spec_from_file_location(f"mathematics_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- all of them ---


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_fits_on_a_page_and_the_readme_tells_of_it(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    assert f"[{file.name}]({file.name})" in (FOLDER / "README.md").read_text(encoding="utf-8")


SMALL = {
    "gaussian_process": (["--count", "20"], r"likelihood +(-[\d.]+) .*\n.*scikit-learn +\1\n"),
    "kalman": (["--length", "40"], r"log-likelihood +(-[\d.]+)\d\d .*\n.*at once +\1"),
    "hamiltonian_monte_carlo": (["--chains", "10", "--length", "50"], r"accepted\n"),
    "camera_calibration": (["--size", "48"], r"zoom .* ([-\d.]+) +\1\n(.*\n){3}distortion .* ([-\d.]+) +\3\n"),
    "deconvolution": (["--size", "24"], r"squares, less LSQR +0\.0000"),
    "registration": (["--size", "32"], r"Powell, at most +0\.000"),
    "stiffest_beam": (["--count", "5"], r"gradient, less formula +[\d.]+e-(09|1\d)  at most\n"),
    "neural_ode": (["--steps", "3"], r"LSODA, largest +[\d.]+e-0[5-9]\n"),
    "optimal_control": (["--targets", "1"], r"start +([\d.]+)\d\d +(-[\d.]+)\d\d\n.*collocation +\1\d\d +\2"),
}


def test_every_program_is_run():
    assert [file.stem for file in FILES] == sorted(SMALL)


@pytest.mark.parametrize("name", SMALL)
def test_it_prints_a_table_and_saves_a_picture(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    words, printed = SMALL[name]
    load(name).main([*words, "--plot", str(tmp_path / "plot.png")])
    assert re.search(printed, capsys.readouterr().out)
    picture = image.imread(tmp_path / "plot.png")
    assert min(picture.shape[:2]) > 200
    assert np.ptp(picture) > 0.5


@pytest.mark.parametrize("name", SMALL)
def test_it_needs_scipy_alone(name, tmp_path, monkeypatch, capsys):
    for extra in ("matplotlib", "matplotlib.figure", "sklearn", "sklearn.gaussian_process", "tqdm"):
        monkeypatch.setitem(sys.modules, extra, None)
    load(name).main([*SMALL[name][0], "--plot", str(tmp_path / "plot.png")])
    assert capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []


def slopes(function, x, step=1e-6):
    return np.array([(function(x + step * each) - function(x - step * each)) / (2 * step) for each in np.eye(len(x))])


# --- Gaussian process ---


def test_the_marginal_likelihood_is_scikit_learns_and_its_gradient_is_right():
    example = load("gaussian_process")
    x, y = example.observe(15)
    point = np.array([0.3, 0.2, -0.7])
    value, slope = func.value_and_grad(example.negative_log_likelihood)(point, x, y)
    np.testing.assert_allclose(-value, example.by_scikit_learn(point, x, y), rtol=1e-8)
    np.testing.assert_allclose(slope, slopes(lambda p: example.negative_log_likelihood(p, x, y), point), rtol=1e-6)


def test_the_fit_is_a_maximum():
    example = load("gaussian_process")
    x, y = example.observe(40)
    found = example.fit(x, y)
    assert found.success
    assert np.abs(slopes(lambda p: example.by_scikit_learn(p, x, y), found.x)).max() < 1e-3


# --- Kalman filter ---


def test_the_likelihood_of_the_filter_is_that_of_the_whole_series():
    example = load("kalman")
    series = example.observe(30)
    point = np.array([-0.5, -2.0, 0.3])
    value, slope = func.value_and_grad(example.negative_log_likelihood)(point, series)
    np.testing.assert_allclose(-value, example.density_of_the_whole(point, series), rtol=1e-9)
    expected = slopes(lambda p: -example.density_of_the_whole(p, series), point, 1e-5)
    np.testing.assert_allclose(slope, expected, rtol=1e-5)


# --- Hamiltonian Monte Carlo ---


@pytest.mark.slow
def test_the_posterior_is_that_of_the_grid():
    example = load("hamiltonian_monte_carlo")
    rows, happened = example.observe(100)
    weights, accepted = example.sample(rows, happened, 100, 500)
    mean, deviation = example.on_a_grid(rows, happened)
    assert accepted > 0.9
    np.testing.assert_allclose(weights.mean((0, 1)), mean, atol=0.02)
    np.testing.assert_allclose(weights.std((0, 1)), deviation, atol=0.02)


def test_a_transition_of_one_chain_is_that_of_plain_numpy():
    example = load("hamiltonian_monte_carlo")
    rows, happened = example.observe(20)
    weights, momentum = np.array([0.1, 0.2]), np.array([0.5, -1.0])

    def slope(position):
        return rows.T @ (happened - 1 / (1 + np.exp(-rows @ position))) - position / 4

    position, speed = weights, momentum + example.STEP / 2 * slope(weights)
    for _ in range(example.LEAPFROGS):
        position = position + example.STEP * speed
        speed = speed + example.STEP * slope(position)
    found, accepted = example.transition(weights, momentum, 1e-9, rows, happened)
    assert accepted
    np.testing.assert_allclose(found, position, rtol=1e-12)


# --- camera calibration ---


def test_the_fitted_camera_is_the_true_one():
    example = load("camera_calibration")
    photo, image = example.photograph(96), example.board(*example.pixels(136))
    blurred = example.ndimage.gaussian_filter(photo, 2.0), example.ndimage.gaussian_filter(image, 2.0 * 0.82)
    found = example.fit(*blurred)
    assert found.success
    np.testing.assert_allclose(found.x, example.TRUE_CAMERA, rtol=0.05)
    jacobian = func.jacfwd(example.residuals)(example.FIRST_GUESS, *blurred)
    step = 1e-7
    for each, column in zip(np.eye(5), jacobian.T, strict=True):
        ahead, behind = [example.residuals(example.FIRST_GUESS + sign * step * each, *blurred) for sign in (1, -1)]
        np.testing.assert_allclose(np.median(np.abs((ahead - behind) / (2 * step) - column)), 0, atol=1e-6)


# --- deconvolution ---


def test_the_gradient_of_the_deconvolution_is_right():
    example = load("deconvolution")
    kernel = example.blur(2)
    observed = example.observe(example.scene(6), kernel)
    pixels = np.random.default_rng(1).standard_normal(36)
    for keeps_edges in (False, True):
        slope = func.grad(example.objective)(pixels, observed, kernel, keeps_edges)
        expected = slopes(lambda x, edges=keeps_edges: example.objective(x, observed, kernel, edges), pixels)
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-8)


def test_the_sharpened_image_is_closer_to_the_scene():
    example = load("deconvolution")
    image, kernel = example.scene(48), example.blur(3)
    observed = example.observe(image, kernel)
    found = [example.sharpen(observed, kernel, keeps_edges) for keeps_edges in (True, False)]
    apart = [np.sqrt(((picture - image) ** 2).mean()) for picture in (observed[3:-3, 3:-3], *found[::-1])]
    assert apart[2] < apart[1] < apart[0]


# --- neural ODE ---


def test_the_misfit_of_the_neural_ode_has_the_right_gradient():
    example = load("neural_ode")
    pieces = example.pieces_of(example.true_path())[:3]
    weights, direction = example.first_weights(), example.first_weights(seed=1)

    def along(step):
        return example.misfit(weights + step * direction, pieces)

    found = func.grad(example.misfit)(weights, pieces) @ direction
    np.testing.assert_allclose(found, (along(1e-3) - along(-1e-3)) / 2e-3, rtol=1e-4)


@pytest.mark.slow
def test_the_neural_ode_follows_the_spiral():
    example = load("neural_ode")
    path = example.true_path()
    weights, misfits = example.fit(example.pieces_of(path), 200)
    assert misfits[-1] < 1e-3 * misfits[0]
    learned = example.odeint(example.field, example.START, example.TIMES, (weights,))
    assert np.linalg.norm(learned - path, axis=1).mean() < 0.5


# --- optimal control ---


def test_the_gradient_of_the_least_effort_is_the_costate():
    example = load("optimal_control")
    costate = example.by_collocation()
    found = func.grad(example.least_effort)(example.HANGING, example.GRAVITY, costate)
    np.testing.assert_allclose(found, costate, rtol=1e-6)


def test_the_least_effort_is_not_lowered_by_another_torque():
    example = load("optimal_control")
    t = np.linspace(0, example.TIMES[-1], 4001)
    s = t / t[-1]
    angle = np.pi * (3 * s ** 2 - 2 * s ** 3)
    torque = np.gradient(np.gradient(angle, t), t) + np.sin(angle)
    effort = example.least_effort(example.HANGING, example.GRAVITY, example.by_collocation())
    assert 0 < effort < np.trapezoid(0.5 * torque ** 2, t)
