"""The convolution of the digits example is right. It learns in time on one core, and not with a gradient of zeros."""

import importlib.util
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from pydispatch import Tensor, compile, func, ops
from pydispatch.testing import gradcheck
from pydispatch.tree import tree_leaves

TRAIN = Path(__file__).parents[2] / "examples" / "digits" / "train.py"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def example():
    """Provide the example as a module, with the right formula in force. Its operator is removed afterwards."""
    spec = importlib.util.spec_from_file_location("digits_example", TRAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.convolve.register_autograd(module.gradients, setup_context=module.save)
    yield module
    module.convolve.remove()


def convolution_by_loops(images, kernels):
    n, height, width, _ = images.shape
    rows, columns, _, channels = kernels.shape
    result = np.zeros((n, height - rows + 1, width - columns + 1, channels))
    for i, y, x, channel in np.ndindex(result.shape):
        result[i, y, x, channel] = np.sum(images[i, y:y + rows, x:x + columns] * kernels[..., channel])
    return result


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_operator_is_the_convolution_of_its_definition(example, padding):
    random = np.random.default_rng(0)
    images, kernels = random.normal(size=(2, 5, 4, 3)), random.normal(size=(3, 3, 3, 2))
    around = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    expected = convolution_by_loops(np.pad(images, around), kernels)
    np.testing.assert_allclose(example.convolve(images, kernels, padding), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_formula_is_the_gradient(example, padding):
    random = np.random.default_rng(0)
    images, kernels = (Tensor(random.normal(size=shape), requires_grad=True) for shape in ((2, 4, 3, 2), (3, 3, 2, 2)))
    assert gradcheck(lambda images, kernels: example.convolve(images, kernels, padding), (images, kernels))


def test_a_step_of_the_training_is_compiled(example):
    random = np.random.default_rng(0)
    parameters = [parameter.numpy() for parameter in (value.detach() for value in example.Network.initial(random))]
    images, labels = random.random((5, 8, 8, 1)), np.array([3, 1, 4, 1, 5])

    def fake(images, kernels, padding=0):
        n, height, width, _ = images.shape
        rows, columns, _, channels = kernels.shape
        shape = n, height + 2 * padding - rows + 1, width + 2 * padding - columns + 1, channels
        return ops.np.empty(shape, dtype=images.dtype)

    example.convolve.register_fake(fake)        # a compiled function is traced without data

    @func.value_and_grad
    def step(parameters, images):
        return example.cross_entropy(example.Network(*parameters).scores(images), labels)

    found_and_expected = [tree_leaves(function(parameters, images)) for function in (compile(step), step)]
    for found, expected in zip(*found_and_expected, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def run(folder, *options):
    """Return the output of the example, and the processor time that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = subprocess.run(
        [sys.executable, TRAIN, "--seed", "1", "--plot", folder / "loss.png", *options],
        capture_output=True, text=True, cwd=folder, env={**os.environ, **ONE_THREAD, "TQDM_DISABLE": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def accuracies(output):
    """Return the accuracies before and after, as shares."""
    found = re.search(r"test accuracy +([\d.]+)% -> ([\d.]+)%", output)
    assert found, output
    return float(found[1]) / 100, float(found[2]) / 100


@pytest.mark.slow
def test_digits_are_read_after_less_than_a_minute_on_one_core(tmp_path):
    output, seconds = run(tmp_path)
    before, after = accuracies(output)
    assert before < 0.3
    assert after >= 0.95
    assert seconds < 60
    picture = image.imread(tmp_path / "loss.png")
    assert picture.shape[0] > 200
    assert picture.shape[1] > 300
    assert np.ptp(picture) > 0.5


@pytest.mark.slow
def test_digits_are_not_read_with_a_gradient_of_zeros(tmp_path):
    before, after = accuracies(run(tmp_path, "--zero-gradient", "--epochs", "5")[0])
    assert after < 0.9
    assert after == before
