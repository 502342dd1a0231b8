"""Operators and functions on workers that are processes of their own."""

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask.array as da
from distributed import Client, LocalCluster

from pydispatch import func, ops
from pydispatch._registry import registrations
from pydispatch.backends.dask import RegisterOperators, map_chunks, workers
from pydispatch.library import custom_op, register_autograd

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def known_operators(names):
    """Return whether the operators of these names are registered in this process, without a look for them."""
    return [name in registrations.operators for name in names]


def compilations():
    """Return how often each function that this process holds was compiled."""
    return [function.cache_info().misses for function in workers._loaded.values()]


def test_workers_register_operators_when_they_join_and_compile_functions_once():
    cube = custom_op("joined::cube", lambda x: x * x * x, mutates_args=(), schema="(Tensor x) -> Tensor")
    register_autograd(cube, lambda ctx, g: 3 * g * ctx.x * ctx.x,
                      setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]))
    cube.register_fake(lambda x: x)
    names = ["joined::cube", "elsewhere::double"]
    rows = np.arange(24.0).reshape(12, 2) / 24
    with (LocalCluster(n_workers=1, threads_per_worker=1, processes=True, memory_limit="400MiB",
                       dashboard_address=None) as cluster, Client(cluster) as client):
        client.register_plugin(RegisterOperators("tests.library.elsewhere", ops.joined))
        cluster.scale(2)
        client.wait_for_workers(2, timeout=30)
        assert list(client.run(known_operators, names).values()) == [[True, True]] * 2
        X = da.from_array(rows, chunks=(3, 2))
        weights = np.array([1.0, 2.0])
        loss = lambda x, w: ops.np.sum(ops.joined.cube(x @ w))  # noqa: E731
        for _ in range(3):
            gradient = func.grad(lambda w: map_chunks(loss, X, w, reduce="sum"))(weights)
            np.testing.assert_allclose(gradient.compute(), func.grad(lambda w: loss(rows, w))(weights))
        counts = {tuple(found) for found in client.run(compilations).values()}
        assert counts in ({(1,)}, {(1,), ()})       # one worker may have done it all
    cube.remove()
