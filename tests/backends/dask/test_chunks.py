"""`map_chunks` beside the same function of the whole arrays."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("distributed")

import dask
import dask.array as da

import pydispatch.numpy as pnp
from pydispatch import Tensor, func, ops
from pydispatch.backends.dask import RegisterOperators, map_chunks, workers
from pydispatch.exceptions import DispatchTypeError
from pydispatch.library import custom_op

RNG = np.random.default_rng(16)
ROWS = RNG.standard_normal((20, 3))
LABELS = (RNG.random(20) < 0.5).astype(float)
WEIGHTS = RNG.standard_normal(3)
PARAMETERS = {"weights": RNG.standard_normal((3, 2)), "bias": [RNG.standard_normal(2), 0.5]}
CHUNKS = {"one": (20,), "even": (5,) * 4, "uneven": (9, 1, 10), "single rows": (1,) * 20}


@pytest.fixture
def no_compute():
    """Provide a function that has nothing computed in a block."""
    def refuse(*args, **kwargs):
        raise AssertionError("computed by accident")

    return lambda: dask.config.set(scheduler=refuse)


@pytest.fixture(params=CHUNKS)
def chunks(request):
    return CHUNKS[request.param]


def in_chunks(array, chunks):
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def loss(rows, labels, weights):
    z = rows @ weights
    return pnp.sum(pnp.logaddexp(0.0, z) - labels * z)


def predicted(rows, weights):
    return pnp.tanh(rows @ weights)


def network(rows, labels, parameters):
    weights, (bias, scale) = parameters["weights"], parameters["bias"]
    hidden = pnp.tanh(rows @ weights + bias)
    return {"loss": pnp.sum((pnp.sum(hidden, axis=1) * scale - labels) ** 2), "hidden": hidden}


# each is called with `run`, which is map_chunks, or on whole arrays calls the function itself
PROGRAMS = {
    "summed": lambda run, X, y: run(loss, X, y, WEIGHTS, reduce="sum"),
    "joined": lambda run, X, y: run(predicted, X, WEIGHTS),
    "both": lambda run, X, y: run(network, X, y, PARAMETERS, reduce={"loss": "sum", "hidden": None}),
    "a transform inside": lambda run, X, y: run(func.value_and_grad(loss, argnums=2), X, y, WEIGHTS, reduce="sum"),
    "gradients of examples": lambda run, X, y: run(
        func.vmap(func.grad(loss, argnums=2), in_dims=(0, 0, None)), X, y, WEIGHTS),
    "a pytree of chunked arrays": lambda run, X, y: run(
        lambda data, w: loss(data["rows"], data["labels"], w), {"rows": X, "labels": y}, WEIGHTS, reduce="sum"),
    "grad": lambda run, X, y: func.grad(lambda w: run(loss, X, y, w, reduce="sum"))(WEIGHTS),
    "grad and a penalty": lambda run, X, y: func.grad(
        lambda w: run(loss, X, y, w, reduce="sum") + 0.5 * ops.np.sum(w * w))(WEIGHTS),
    "grad of a pytree": lambda run, X, y: func.grad(
        lambda p: run(network, X, y, p, reduce={"loss": "sum", "hidden": None})["loss"])(PARAMETERS),
    "grad of what is joined": lambda run, X, y: func.grad(lambda w: ops.np.sum(run(predicted, X, w)))(WEIGHTS),
    "grad of chunked arrays": lambda run, X, y: func.grad(lambda X: run(loss, X, y, WEIGHTS, reduce="sum"))(X),
    "grad of a chain": lambda run, X, y: func.grad(
        lambda w: run(lambda p, y: pnp.sum((p - y) ** 2), run(predicted, X, w), y, reduce="sum"))(WEIGHTS),
    "value_and_grad": lambda run, X, y: func.value_and_grad(lambda w: run(loss, X, y, w, reduce="sum"))(WEIGHTS),
    "vjp": lambda run, X, y: func.vjp(lambda w: run(loss, X, y, w, reduce="sum"), WEIGHTS)[1](np.float64(2.0)),
    "jvp": lambda run, X, y: func.jvp(lambda w: run(loss, X, y, w, reduce="sum"), (WEIGHTS,), (WEIGHTS + 1,)),
    "jvp of what is joined": lambda run, X, y: func.jvp(lambda w: run(predicted, X, w), (WEIGHTS,), (WEIGHTS + 1,)),
    "jvp of chunked arrays": lambda run, X, y: func.jvp(
        lambda X: run(predicted, X, WEIGHTS), (X,), (ops.np.multiply(X, 2.0),)),
    "hessian": lambda run, X, y: func.hessian(lambda w: run(loss, X, y, w, reduce="sum"))(WEIGHTS),
    "grad of grad": lambda run, X, y: func.grad(lambda w: ops.np.sum(
        func.grad(lambda v: run(loss, X, y, v, reduce="sum"))(w) * w))(WEIGHTS),
    "vmap": lambda run, X, y: func.vmap(lambda w: run(loss, X, y, w, reduce="sum"))(np.stack([WEIGHTS, -WEIGHTS])),
    "vmap of what is joined": lambda run, X, y: func.vmap(
        lambda w: run(predicted, X, w))(np.stack([WEIGHTS, -WEIGHTS])),
    "vmap of grad": lambda run, X, y: func.vmap(func.grad(
        lambda w: run(loss, X, y, w, reduce="sum")))(np.stack([WEIGHTS, -WEIGHTS])),
}


def whole(f, *args, reduce=None):
    return f(*args)


def assert_close(found, expected):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        assert found.shape == np.shape(expected)
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_lazy_and_those_of_whole_arrays(name, chunks, no_compute):
    with no_compute():
        lazy = PROGRAMS[name](map_chunks, in_chunks(ROWS, chunks), in_chunks(LABELS, chunks))
    found = dask.compute(lazy, scheduler="sync")[0]
    assert_close(found, PROGRAMS[name](whole, ROWS, LABELS))
    arrays = [leaf for leaf in dask.core.flatten([lazy] if not isinstance(lazy, (tuple, list)) else list(lazy))
              if isinstance(leaf, da.Array)]
    for array in arrays:
        computed = array.compute(scheduler="sync")
        assert (computed.shape, computed.dtype) == (array.shape, array.dtype)


def test_it_does_the_same_without_compiling():
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    gradient = func.grad(lambda w: map_chunks(loss, X, y, w, reduce="sum", compiled=False))(WEIGHTS)
    assert_close(gradient.compute(scheduler="sync"), func.grad(loss, argnums=2)(ROWS, LABELS, WEIGHTS))


def test_sums_are_computed_on_request():
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    with dask.config.set(scheduler="sync"):
        value, gradient = func.value_and_grad(lambda w: map_chunks(loss, X, y, w, reduce="sum", compute=True))(WEIGHTS)
    assert type(value) is type(gradient) is np.ndarray
    assert_close((value, gradient), func.value_and_grad(loss, argnums=2)(ROWS, LABELS, WEIGHTS))


def test_tensors_get_tensors_and_gradients_on_the_tape(no_compute):
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    weights = Tensor(WEIGHTS, requires_grad=True)
    with no_compute():
        value = map_chunks(loss, X, y, weights, reduce="sum")
        value.backward()
    assert type(value) is Tensor
    assert_close(weights.grad.array.compute(scheduler="sync"), func.grad(loss, argnums=2)(ROWS, LABELS, WEIGHTS))


def test_chunks_are_aligned_and_may_be_of_unknown_size():
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (4, 16))
    value = map_chunks(loss, X, y, WEIGHTS, reduce="sum")
    assert_close(value.compute(scheduler="sync"), np.float64(loss(ROWS, LABELS, WEIGHTS)))
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    kept = X[X[:, 0] > 0]
    assert np.isnan(kept.shape[0])
    result = map_chunks(predicted, kept, WEIGHTS)
    assert np.isnan(result.shape[0])
    np.testing.assert_allclose(result.compute(scheduler="sync"), predicted(ROWS[ROWS[:, 0] > 0], WEIGHTS))
    gradient = func.grad(lambda w: map_chunks(lambda x, v: ops.np.sum(predicted(x, v)), kept, w, reduce="sum"))(WEIGHTS)
    expected = func.grad(lambda w: ops.np.sum(predicted(ROWS[ROWS[:, 0] > 0], w)))(WEIGHTS)
    np.testing.assert_allclose(gradient.compute(scheduler="sync"), expected)


def test_parameters_may_be_lazy_when_positions_say_so():
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    weights = da.from_array(WEIGHTS, chunks=3)
    gradient = func.grad(lambda w: map_chunks(loss, X, y, w, reduce="sum", chunked=(0, 1)))(weights)
    assert_close(gradient.compute(scheduler="sync"), func.grad(loss, argnums=2)(ROWS, LABELS, WEIGHTS))


def test_on_arrays_of_numpys_it_is_the_function():
    found = map_chunks(loss, ROWS, LABELS, WEIGHTS, reduce="sum", chunked=(0, 1))
    assert_close(found, loss(ROWS, LABELS, WEIGHTS))


def test_there_is_one_task_per_chunk_and_a_tree_of_sums(no_compute):
    random = da.random.default_rng(1)
    X, y = random.standard_normal((64, 3), chunks=(1, 3)), random.random(64, chunks=1)

    def n_tasks(value):
        return len(dict(dask.optimize(value)[0].__dask_graph__()))

    with no_compute():
        gradient = func.grad(lambda w: map_chunks(loss, X, y, w, reduce="sum"))(WEIGHTS)
        data, tree, rest = 2 * 64, 8 + 1, 5
        assert n_tasks(gradient) <= data + 64 + tree + rest
        z = X @ WEIGHTS
        by_hand = X.T @ (1 / (1 + da.exp(-z)) - y)
        assert n_tasks(gradient) <= n_tasks(by_hand)


def test_a_function_is_loaded_and_compiled_once_per_process():
    X, y = in_chunks(ROWS, (5,) * 4), in_chunks(LABELS, (5,) * 4)
    workers._loaded.clear()

    def run(scale):
        gradient = func.grad(lambda w: map_chunks(lambda *args: loss(*args) * scale, X, y, w, reduce="sum"))(WEIGHTS)
        gradient.compute(scheduler="threads", num_workers=2)

    for _ in range(3):
        run(2.0)
    (function,) = workers._loaded.values()
    assert function.cache_info().misses == 1
    assert sum(function.cache_info()[:2]) == 12
    run(3.0)
    assert len(workers._loaded) == 2


def test_functions_that_were_not_used_for_long_are_forgotten(monkeypatch):
    monkeypatch.setattr(workers, "MOST_FUNCTIONS", 2)
    workers._loaded.clear()
    X = in_chunks(ROWS, (20,))
    for scale in (1.0, 2.0, 1.0, 3.0):
        map_chunks(lambda x, scale=scale: x * scale, X).compute(scheduler="sync")
    assert len(workers._loaded) == 2


def test_the_same_call_has_the_same_keys():
    X, y = in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11))
    first, second = (func.grad(lambda w: map_chunks(loss, X, y, w, reduce="sum"))(WEIGHTS) for _ in range(2))
    assert first.name == second.name
    assert first.name != func.grad(lambda w: map_chunks(loss, X, y, w, reduce="sum"))(WEIGHTS + 1).name


@pytest.mark.parametrize(("call", "message"), [
    (lambda X, y: map_chunks(3, X), r"f is an int, expected a function\nwrite map_chunks\(f, x\)"),
    (lambda X, y: map_chunks(loss, ROWS, LABELS, WEIGHTS), r"no argument is a Dask array.*\npass .*chunked="),
    (lambda X, y: map_chunks(loss, X, y, WEIGHTS), r'has no axis.*\nsum it over chunks: reduce="sum"'),
    (lambda X, y: map_chunks(loss, X, y, WEIGHTS, reduce="mean"), r"reduce is 'mean', but f returns \*.*\nwrite"),
    (lambda X, y: map_chunks(loss, X, y, WEIGHTS, reduce=("sum", None)), r"reduce is \('sum', None\)"),
    (lambda X, y: map_chunks(loss, X, y[:10], WEIGHTS, reduce="sum"), r"chunked array 1 has 10 rows, expected 20"),
    (lambda X, y: map_chunks(loss, X.rechunk((5, 1)), y, WEIGHTS, reduce="sum"),
     r"chunks along several axes.*\npass array.rechunk\({1: -1}\)"),
    (lambda X, y: map_chunks(loss, X, y, WEIGHTS, reduce="sum", chunked=(0, 5)), r"positions among 3 arguments"),
    (lambda X, y: map_chunks(lambda d, w: loss(*d, w), (X, LABELS), WEIGHTS, reduce="sum"),
     r"argument 0 holds Dask arrays and other values\nspecify which"),
    (lambda X, y: map_chunks(loss, X, y, 2.0, reduce="sum", chunked=(0, 1, 2)), r"argument 2 is chunked and holds a"),
    (lambda X, y: func.grad(lambda w: map_chunks(lambda X, y: loss(X, y, w), X, y, reduce="sum"))(WEIGHTS),
     r"f captures a GradTensor of shape \(3,\).*\npass it as an argument"),
], ids=["no function", "no Dask array", "no rows", "an unknown reduction", "another structure", "other rows",
        "chunks of columns", "positions", "a mixture", "a number", "captured"])
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(DispatchTypeError, match=f"map_chunks: .*{message}"):
        call(in_chunks(ROWS, (9, 11)), in_chunks(LABELS, (9, 11)))


def test_the_plugin_registers_operators():
    operator = custom_op("plugged::twice", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    plugin = pickle.loads(pickle.dumps(RegisterOperators("tests.library.elsewhere", np, operator, ops.plugged)))
    plugin.setup(None)
    assert plugin.name == RegisterOperators("tests.library.elsewhere", np, operator, ops.plugged).name
    assert plugin.name != RegisterOperators(operator).name
    operator.remove()


def test_the_scheduler_is_imported_when_it_is_asked_for():
    program = """
import sys
from pydispatch.backends import dask
assert "distributed" not in sys.modules, "imported with the arrays"
assert "map_chunks" in dir(dask)
dask.map_chunks
assert "distributed" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
