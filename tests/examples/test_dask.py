"""The Dask example learns, in little memory, and the death of a worker changes nothing."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask

from pydispatch import func

CHECKOUT = Path(__file__).parents[2]
TRAIN = CHECKOUT / "examples" / "dask" / "train.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("dask_example", TRAIN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compute(lazy):
    return dask.compute(*lazy, scheduler="sync")


def run(*command):
    """Return the output of a new Python process, which knows the example, with one thread for products of matrices."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(TRAIN.parent)]),
                   "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("model", ["logistic", "network"])
def test_it_is_the_gradient_descent_of_numpy(example, model):
    data = example.make_data(240, 50, 4)
    rows = data.compute(scheduler="sync")
    assert sorted(set(rows[:, -1])) == [0.0, 1.0]
    start = example.initial_weights(model, 4, 3)
    found, losses = example.descend(example.LOSSES[model], data, start, 3, 1.0, compute)
    weights, expected = start, []
    for _ in range(3):
        loss, gradients = func.value_and_grad(example.LOSSES[model], argnums=1)(rows, weights)
        expected.append(loss / 240)
        weights = {name: weights[name] - gradients[name] / 240 for name in weights}
    np.testing.assert_allclose(losses, expected)
    for name in weights:
        np.testing.assert_allclose(found[name], weights[name])


def test_batches_are_all_chunks_once_in_an_order_of_their_own(example):
    data = example.make_data(250, 50, 4)
    seen = []

    def noting(lazy):
        seen.append(compute(lazy))
        return seen[-1]

    shown = []
    start = example.initial_weights("logistic", 4)
    weights, losses = example.descend_by_batches(
        example.logistic_loss, data, start, 2, 0.0, 0.9, noting, lambda done, loss: shown.append(done))
    assert (len(losses), shown) == (3, [0.4, 0.8, 1.0])
    total, gradients = compute(example.loss_and_gradients(example.logistic_loss, data, start))
    np.testing.assert_allclose(sum(loss for loss, _ in seen), total)
    np.testing.assert_allclose(sum(found["slope"] for _, found in seen), gradients["slope"])
    for name in start:
        np.testing.assert_array_equal(weights[name], start[name])


@pytest.mark.slow
def test_it_trains_on_three_times_the_memory_of_its_workers(tmp_path):
    report = tmp_path / "report.json"
    output = run(TRAIN, "--models", "logistic", "--rows", 7_000_000, "--chunk-rows", 50_000, "--steps", 1,
                 "--chunks-per-batch", 20, "--memory", "270MiB", "--report", report)
    found = json.loads(report.read_text())
    (model,) = found["models"]
    assert found["bytes"] > 3 * 2 * 270 * 2**20
    assert len(found["workers"]) == 2
    assert all(worker["peak_mb"] < 270 for worker in found["workers"])
    assert model["batch_losses"][-1] < model["losses"][0] - 0.01
    assert "100% Completed" in output


DEATH = """
import dask, numpy as np, train
if __name__ == "__main__":
    arguments = train.parsed(["--rows", "600000", "--chunk-rows", "15000", "--steps", "1", "--kill-worker", "--quiet"])
    data = train.make_data(arguments.rows, arguments.chunk_rows, arguments.features)
    with train.connected(arguments) as client:
        found = train.train(client, "network", data, arguments)
    compute = lambda lazy: dask.compute(*lazy, scheduler="sync")
    weights, _ = train.descend(train.network_loss, data, train.initial_weights("network", 31), 1, 1.0, compute)
    weights, losses = train.descend_by_batches(train.network_loss, data, weights, 4, 0.1, 0.9, compute)
    assert found["killed"] and len(losses) == 10
    assert found["batch_losses"] == losses
    for name, value in weights.items():
        np.testing.assert_array_equal(found["weights"][name], value)
"""


@pytest.mark.slow
def test_the_death_of_a_worker_in_mid_epoch_leaves_the_bits_of_one_machine(tmp_path):
    program = tmp_path / "death.py"
    program.write_text(DEATH)
    run(program)
