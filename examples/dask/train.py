"""Two models trained on more data than the workers' memory holds, on a cluster of one machine or of many.

    python examples/dask/train.py                              logistic regression, then a network, on this machine
    python examples/dask/train.py --scheduler tcp://host:8786  the same on a cluster that runs already
    python examples/dask/train.py --rows 100000000000 ...      any number of rows: a generator makes each chunk anew
    python examples/dask/train.py --kill-worker                a worker dies in the middle, and the result is the same

Each model is trained by gradients of all rows, then by minibatches with momentum. Needs `pip install -e '.[dask]'`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, progress

import pydispatch.numpy as pnp
from pydispatch import func
from pydispatch.backends.dask import map_chunks

# --- data: chunk i is always the same, wherever it is made -------------------------------------------------


def make_chunk(features, seed, block_info=None):
    """Return the rows of a chunk: features, and in the last column a label, 0 or 1."""
    chunk = block_info[None]
    rng = np.random.default_rng([seed, chunk["chunk-location"][0]])
    rows = np.empty(chunk["chunk-shape"])
    rng.random(out=rows)
    rows -= 0.5
    truth = np.random.default_rng(seed).standard_normal(features)
    z = np.tanh(rows[:, :-1] @ truth) + 4 * rows[:, 0] * rows[:, 1]
    rows[:, -1] = rng.random(len(rows)) < 1 / (1 + np.exp(-4 * z))
    return rows


def make_data(n_rows, chunk_rows, features, seed=0):
    """Return a Dask array of all rows, of which nothing is made before it is needed."""
    chunks = da.core.normalize_chunks((chunk_rows, features + 1), (n_rows, features + 1))
    return da.map_blocks(make_chunk, features, seed, chunks=chunks, dtype=float, meta=np.empty((0, 0)))


# --- models: the loss of some rows, written for NumPy ------------------------------------------------------


def log_loss(z, labels):
    """Compute the sum of the logistic loss."""
    return pnp.sum(pnp.logaddexp(0.0, z) - labels * z)


def logistic_loss(rows, weights):
    """Compute the loss of a logistic regression."""
    return log_loss(rows[:, :-1] @ weights["slope"] + weights["offset"], rows[:, -1])


def network_loss(rows, weights):
    """Compute the loss of a network with one hidden layer."""
    hidden = pnp.tanh(rows[:, :-1] @ weights["hidden"] + weights["bias"])
    return log_loss(hidden @ weights["out"] + weights["offset"], rows[:, -1])


def initial_weights(model, features, hidden=16):
    """Return the weights where training starts."""
    rng = np.random.default_rng(1)
    if model == "logistic":
        return {"slope": np.zeros(features), "offset": np.zeros(())}
    return {"hidden": rng.standard_normal((features, hidden)) / np.sqrt(features), "bias": np.zeros(hidden),
            "out": rng.standard_normal(hidden) / np.sqrt(hidden), "offset": np.zeros(())}


LOSSES = {"logistic": logistic_loss, "network": network_loss}


# --- training ----------------------------------------------------------------------------------------------


def loss_and_gradients(loss, rows, weights):
    """Return the loss of all rows and its gradients, in one pass over the chunks. Lazy."""
    return map_chunks(func.value_and_grad(loss, argnums=1), rows, weights, reduce="sum")


def moved(weights, directions, rate):
    """Return the weights after a step."""
    return {name: value - rate * directions[name] for name, value in weights.items()}


def descend(loss, data, weights, steps, rate, compute):
    """Descend by the gradient of all rows, and return the weights and the mean loss before each step."""
    losses = []
    for _ in range(steps):
        total, gradients = compute(loss_and_gradients(loss, data, weights))
        losses.append(float(total) / len(data))
        weights = moved(weights, gradients, rate / len(data))
    return weights, losses


def descend_by_batches(loss, data, weights, chunks_per_batch, rate, momentum, compute, show=lambda done, loss: None):
    """Run an epoch of minibatches with momentum. Return the weights and each batch's mean loss before its step."""
    order = np.random.default_rng(2).permutation(data.numblocks[0])
    velocity = {name: np.zeros_like(value) for name, value in weights.items()}
    losses = []
    for start in range(0, len(order), chunks_per_batch):
        batch = data.blocks[np.sort(order[start:start + chunks_per_batch])]
        total, gradients = compute(loss_and_gradients(loss, batch, weights))
        velocity = {name: momentum * value + gradients[name] / len(batch) for name, value in velocity.items()}
        weights = moved(weights, velocity, rate)
        losses.append(float(total) / len(batch))
        show(min(1.0, (start + chunks_per_batch) / len(order)), losses[-1])
    return weights, losses


def bar(done, loss):
    """Show how much of an epoch is done."""
    full = int(40 * done)
    end = "\n" if done == 1 else ""
    print(f"\r[{'#' * full:40}] {done:4.0%}, loss {loss:.4f}", end=end, flush=True)


# --- the cluster -------------------------------------------------------------------------------------------


@contextmanager
def connected(arguments):
    """Connect to the cluster at --scheduler, else to a new one on this machine."""
    if arguments.scheduler:
        with Client(arguments.scheduler) as client:
            yield client
        return
    with (LocalCluster(n_workers=arguments.workers, threads_per_worker=1, processes=True,
                       memory_limit=arguments.memory, dashboard_address=None) as cluster, Client(cluster) as client):
        yield client


def state_of_worker(dask_worker):
    """Return peak memory of a worker's process in MB, and the bytes that it has received from others."""
    received = sum(entry["total"] for entry in dask_worker.transfer_incoming_log)
    return {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "received": received}


def state_of_scheduler(dask_scheduler):
    """Return the tasks that the scheduler has finished, and the seconds that its thread has computed."""
    finished = sum(prefix.state_counts["memory"] for prefix in dask_scheduler.task_prefixes.values())
    return {"tasks": finished, "seconds": time.thread_time()}


def kill_a_worker(client):
    """End the process of one worker, without a word to anybody."""
    address, info = next(iter(client.scheduler_info()["workers"].items()))
    client.run(die_soon, workers=[address])
    return info["name"]


def die_soon():
    """End this process while it computes."""
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()


def train(client, model, data, arguments):
    """Train a model by both methods, and returns what happened, and the weights."""
    loss, start = LOSSES[model], time.perf_counter()
    before = client.run_on_scheduler(state_of_scheduler)

    def compute(lazy):
        value, gradients = lazy
        futures = client.compute([value, gradients])
        if not arguments.quiet:
            progress(futures, notebook=False)
            print()
        return client.gather(futures)

    def compute_batch(lazy):
        if arguments.kill_worker and not killed and len(batches) == 2:
            killed.append(kill_a_worker(client))
        batches.append(None)
        return client.gather(client.compute(list(lazy)))

    killed, batches = [], []
    weights = initial_weights(model, arguments.features)
    weights, losses = descend(loss, data, weights, arguments.steps, arguments.rate, compute)
    middle = time.perf_counter()
    weights, batch_losses = descend_by_batches(
        loss, data, weights, arguments.chunks_per_batch, arguments.batch_rate, arguments.momentum, compute_batch,
        (lambda done, loss: None) if arguments.quiet else bar)
    after = client.run_on_scheduler(state_of_scheduler)
    return {
        "model": model, "losses": losses, "batch_losses": batch_losses, "killed": killed,
        "seconds": middle - start, "batch_seconds": time.perf_counter() - middle,
        "tasks": after["tasks"] - before["tasks"], "scheduler_seconds": after["seconds"] - before["seconds"],
        "weights": {name: np.asarray(value).tolist() for name, value in weights.items()},
    }


def parsed(arguments=None):
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", help="address of a running scheduler; without it, a cluster on this machine")
    parser.add_argument("--workers", type=int, default=2, help="processes of the cluster on this machine")
    parser.add_argument("--memory", default="400MiB", help="memory limit of each of them")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=31)
    parser.add_argument("--chunk-rows", type=int, default=100_000)
    parser.add_argument("--models", nargs="+", choices=sorted(LOSSES), default=sorted(LOSSES))
    parser.add_argument("--steps", type=int, default=3, help="gradient steps on all rows")
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--chunks-per-batch", type=int, default=4)
    parser.add_argument("--batch-rate", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--kill-worker", action="store_true", help="kill a worker in the middle of each epoch")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.add_argument("--report", type=Path, help="write all figures to this file, as JSON")
    return parser.parse_args(arguments)


def main():
    """Train the models, and print what it took."""
    arguments = parsed()
    data = make_data(arguments.rows, arguments.chunk_rows, arguments.features)
    print(f"{arguments.rows:,} rows in {data.numblocks[0]:,} chunks: {data.nbytes / 1e9:.2f} GB")
    report = {"bytes": data.nbytes, "chunks": data.numblocks[0], "models": []}
    with connected(arguments) as client:
        client.wait_for_workers(1)
        for model in arguments.models:
            found = train(client, model, data, arguments)
            report["models"].append(found)
            print(f"{model}: loss {found['losses'][0]:.4f} -> {found['losses'][-1]:.4f} in {found['seconds']:.1f} s, "
                  f"{found['batch_losses'][-1]:.4f} after batches in {found['batch_seconds']:.1f} s; "
                  f"{found['tasks']} tasks, {found['scheduler_seconds']:.2f} s in the scheduler")
        report["workers"] = list(client.run(state_of_worker).values())
    for worker in report["workers"]:
        print(f"a worker: at most {worker['peak_mb']:.0f} MB, {worker['received'] / 1e3:.0f} kB from others")
    if arguments.report:
        arguments.report.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
