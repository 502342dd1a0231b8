"""Whole programs on Dask arrays: as few tasks as in Dask alone, modes, traces, explanations, several backends."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import DispatchMode, Tensor, debug, ops, register_backend
from pydispatch.exceptions import DispatchTypeError, NoKernelError
from pydispatch.func import grad, hessian, jvp, value_and_grad, vjp, vmap
from pydispatch.library import impl
from tests.backends.dask.lazy import check_lazy, computed, da, dask, lazily, n_tasks, uneven
from tests.together import together

RNG = np.random.default_rng(0)
N, D, H, C = 40, 6, 5, 3
DATA = RNG.normal(size=(N, D))
SIGNS = np.sign(RNG.normal(size=N))
CLASSES = np.eye(C)[RNG.integers(0, C, N)]
ROWS = RNG.integers(0, 7, N)
W, W1, W2, TABLE = RNG.normal(size=D), RNG.normal(size=(D, H)), RNG.normal(size=(H, C)), RNG.normal(size=(7, D))
X, S, T, I = [da.from_array(x, chunks=(8, *x.shape[1:])) for x in (DATA, SIGNS, CLASSES, ROWS)]  # noqa: E741


def logistic(np, w):
    return np.sum(np.log1p(np.exp(-np.matmul(X, w) * S)))


def squares(np, w):
    r = np.matmul(X, w) - S
    return np.sum(r * r)


def network(np, w1, w2):
    out = np.matmul(np.tanh(np.matmul(X, w1)), w2)
    shifted = out - np.max(out, 1, keepdims=True)
    return -np.sum((shifted - np.log(np.sum(np.exp(shifted), 1, keepdims=True))) * T) / N


def standardized(np, x):
    return (x - np.mean(x, 0)) / np.std(x, 0)


def logistic_grad(w):
    return X.T @ (-S / (1 + da.exp((X @ w) * S)))


def network_grad(w1, w2):
    h = da.tanh(X @ w1)
    e = da.exp(h @ w2 - (h @ w2).max(1, keepdims=True))
    d = (e / e.sum(1, keepdims=True) - T) / N
    return X.T @ ((d @ w2.T) * (1 - h * h)), h.T @ d


def cubes_grad(x):
    s = x.std(0)
    z = (x - x.mean(0)) / s
    g = 3 * z * z
    return (g - g.mean(0) - z * (g * z).mean(0)) / s


def logistic_hessian(w):
    p = 1 / (1 + da.exp(-(X @ w) * S))
    return X.T @ (X * (p * (1 - p))[:, None])


def embedding_grad(table):
    found = (1 - da.tanh(da.from_array(table, chunks=-1)[I]) ** 2) * X
    return da.stack([(found * (I == k)[:, None]).sum(0) for k in range(len(table))])  # noqa: SIM300


def one_loss(w, x, s):
    return pnp.log1p(pnp.exp(-pnp.sum(x * w) * s))


PROGRAMS = {
    "sum of losses": (lambda: logistic(pnp, W), lambda: logistic(da, W)),
    "standardized columns": (lambda: standardized(pnp, X), lambda: standardized(da, X)),
    "gradient of a logistic regression": (lambda: grad(lambda w: logistic(pnp, w))(W), lambda: logistic_grad(W)),
    "value and gradient": (lambda: value_and_grad(lambda w: logistic(pnp, w))(W),
                           lambda: (logistic(da, W), logistic_grad(W))),
    "gradient of a network": (lambda: grad(lambda *w: network(pnp, *w), (0, 1))(W1, W2), lambda: network_grad(W1, W2)),
    "gradient by the data": (lambda: grad(lambda x: pnp.sum(standardized(pnp, x) ** 3))(X), lambda: cubes_grad(X)),
    "vjp": (lambda: vjp(lambda x: pnp.tanh(pnp.matmul(x, W1)), X)[1](da.ones((N, H), chunks=(8, H)))[0],
            lambda: (1 - da.tanh(X @ W1) ** 2) @ W1.T),
    "jvp": (lambda: jvp(lambda w: squares(pnp, w), (W,), (W,)),
            lambda: (squares(da, W), (2 * (X @ W - S) * (X @ W)).sum())),
    "hessian": (lambda: hessian(lambda w: logistic(pnp, w))(W), lambda: logistic_hessian(W)),
    "vmap": (lambda: vmap(lambda x: pnp.sum(pnp.tanh(x) * W))(X), lambda: (da.tanh(X) * W).sum(1)),
    "gradient per example": (lambda: vmap(grad(one_loss), (None, 0, 0))(W, X, S),
                             lambda: X * (-S / (1 + da.exp((X * W).sum(1) * S)))[:, None]),
    "gradient of an embedding": (lambda: grad(lambda table: pnp.sum(pnp.tanh(table[I]) * X))(TABLE),
                                 lambda: embedding_grad(TABLE)),
}
"""Programs of ours, and what one would write with Dask alone."""
MOST = 3


@pytest.mark.parametrize(("ours", "theirs"), PROGRAMS.values(), ids=list(PROGRAMS))
def test_graphs_are_about_as_large_as_those_written_in_dask(ours, theirs):
    found, expected = lazily(ours), lazily(theirs)
    check_lazy(found, computed(expected))
    found, expected = [each if isinstance(each, tuple) else (each,) for each in (found, expected)]
    assert n_tasks(*found) <= MOST * n_tasks(*expected)


KEPT = {
    "pointwise": lambda x: pnp.sum(pnp.tanh(x) * x),
    "product": lambda x: pnp.sum(pnp.matmul(x, W1) ** 2),
    "reduction and broadcast": lambda x: pnp.sum(standardized(pnp, x) ** 3),
    "slices": lambda x: pnp.sum(x[:, :2] * x[:, 2:4]),
    "sort of rows": lambda x: pnp.sum(pnp.sort(x, axis=1) ** 2),
    "times numbers": lambda x: pnp.sum(3 * x * W),
    "last of rows": lambda x: pnp.sum(pnp.sort(x, axis=1)[:, -1]),
    "sums of columns": lambda x: pnp.sum(pnp.exp(pnp.sum(3 * x, 0))),
    "column": lambda x: pnp.sum(x[:, 1] ** 2),
}


@pytest.mark.parametrize("program", KEPT.values(), ids=list(KEPT))
def test_a_gradient_has_the_chunks_of_what_it_is_of(program):
    found = lazily(grad(program), X)
    assert found.chunks == X.chunks
    check_lazy(found, grad(program)(DATA))


def test_no_chunk_is_larger_than_dask_makes_them():
    with dask.config.set({"array.chunk-size": "480B"}):
        found = lazily(lambda: 3 * ops.np.broadcast_to(da.ones(D), (N, D)))
    assert max(found.chunks[0]) * max(found.chunks[1]) * 8 <= 480
    check_lazy(found, np.full((N, D), 3.0))


def test_modes_see_the_operators():
    seen = []

    class Names(DispatchMode):
        def __pydispatch__(self, op, types, args=(), kwargs=None):
            seen.append(str(op.name))
            return op(*args, **(kwargs or {}))

    with Names():
        found = lazily(grad(lambda w: logistic(pnp, w)), W)
    assert {"np::matmul", "np::log1p", "np::sum"} <= set(seen)
    check_lazy(found, computed(logistic_grad(W)))


def test_tensors_hold_them_and_go_backward():
    x = Tensor(X, requires_grad=True)
    lazily(lambda: pnp.sum(pnp.tanh(x) ** 2).backward())
    check_lazy(x.grad.array, 2 * np.tanh(DATA) * (1 - np.tanh(DATA) ** 2))


def test_explain_and_trace_show_the_backend(capsys):
    shown = str(lazily(ops.np.sort.default.explain, X))
    assert "dispatched on Dask" in shown
    assert "kernel sort at" in shown
    with debug.trace():
        lazily(logistic, pnp, W)
    shown = [line.split(":")[2].split()[:3] for line in capsys.readouterr().err.splitlines()]
    assert shown == [[name, "on", "Dask"] for name in ("matmul", "exp", "log1p", "sum")]


MIXED = {
    "NumPy's array": (lambda x: pnp.add(x, DATA), lambda x: x + DATA),
    "number": (lambda x: pnp.maximum(x, 0.5), lambda x: np.maximum(x, 0.5)),
    "Tensor": (lambda x: pnp.add(Tensor(DATA), x).array, lambda x: DATA + x),
    "list": (lambda x: pnp.concatenate([x, DATA]), lambda x: np.concatenate([x, DATA])),
    "indices of NumPy's array": (lambda x: pnp.take(TABLE, I, axis=0), lambda x: TABLE[ROWS]),
    "function of NumPy's on a Tensor": (lambda x: np.tanh(Tensor(x)).array, np.tanh),
    "function of NumPy's": (np.tanh, np.tanh),
}


@pytest.mark.parametrize(("call", "expected"), MIXED.values(), ids=list(MIXED))
def test_arrays_of_numpys_go_along(call, expected):
    check_lazy(lazily(call, X), expected(DATA))


class OtherArray:
    shape, dtype = (3,), np.dtype(float)


def test_another_run_time_backend_needs_a_rank():
    register_backend("OtherOfDask", OtherArray)
    with pytest.raises(DispatchTypeError, match=r"(?s)Dask.*OtherOfDask.*above="):
        ops.np.add(da.ones(3), OtherArray())


GATHERED = {"rows": (ROWS,), "pairs": (ROWS[:5], ROWS[:5] % D), "grid": (ROWS[:4].reshape(2, 2),),
            "beside a slice": (slice(2, None), ROWS[:3] % D), "apart": (ROWS[:3], None, ROWS[:3] % D),
            "number beside": (3, ROWS[:3] % D), "mask": (DATA[:, 0] > 0,), "mask of all": (DATA > 0,)}


@pytest.mark.parametrize("key", GATHERED.values(), ids=list(GATHERED))
def test_index_arrays_select_and_collect(key):
    def total(x):
        return pnp.sum(x[key] ** 3)

    check_lazy(lazily(ops.np.index, X, key), DATA[key])
    check_lazy(lazily(grad(total), X), grad(total)(DATA))


@pytest.mark.parametrize("key", [(I,), (I, I % D), (I[:4].reshape(2, 2), slice(1, 3))], ids=["rows", "pairs", "grid"])
def test_lazy_index_arrays_select_and_collect(key):
    values = tuple([computed(item) for item in key])
    check_lazy(lazily(ops.np.index, X, key), DATA[values])
    check_lazy(lazily(grad(lambda x: pnp.sum(x[key] ** 3)), X), grad(lambda x: pnp.sum(x[values] ** 3))(DATA))


def test_a_lazy_mask_selects_an_unknown_number_and_collects():
    mask = X[:, 0] > 0
    check_lazy(lazily(ops.np.index, X, mask), DATA[DATA[:, 0] > 0])
    put = lazily(ops.np.index_put, X, mask, X[mask] * 2)
    check_lazy(put, np.where(DATA[:, :1] > 0, DATA * 2, DATA))
    added = lazily(ops.np.index_put, X, mask, 1.0, accumulate=True)
    check_lazy(added, np.where(DATA[:, :1] > 0, DATA + 1, DATA))


OF_UNKNOWN_SIZES = {
    "pointwise": lambda x: pnp.tanh(x) * 2, "sum": pnp.sum, "zeros_like": pnp.zeros_like,
    "full_like": lambda x: pnp.full_like(x, 2.0), "mean of rows": lambda x: pnp.mean(x, axis=0),
    "product": lambda x: pnp.matmul(x, W), "transpose": pnp.transpose, "concatenate": lambda x: pnp.concatenate([x, x]),
    "running sums": lambda x: pnp.cumsum(x, axis=1), "running products": lambda x: pnp.cumprod(x, axis=0),
    "rows as variables": pnp.cov, "nan as zeros": lambda x: pnp.nancumsum(x, 0),
}


@pytest.mark.parametrize("program", OF_UNKNOWN_SIZES.values(), ids=list(OF_UNKNOWN_SIZES))
def test_unknown_sizes(program):
    found = lazily(lambda x: program(x[x[:, 0] > 0]), X)
    check_lazy(found, program(DATA[DATA[:, 0] > 0]))


DRAWS = {
    "permutation": lambda rng, x: rng.permutation(x), "choice": lambda rng, x: rng.choice(x, 3),
    "standard numbers, scaled": lambda rng, x: x + 2.0 * rng.standard_normal(x.shape),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_draws_that_need_no_values_are_lazy_and_numpys(draw):
    found = lazily(lambda x: draw(pnp.random.default_rng(3), x), X)
    check_lazy(found, draw(np.random.default_rng(3), DATA))


@pytest.mark.parametrize("draw", ["normal", "poisson", "exponential", "gamma"])
def test_draws_with_lazy_parameters_are_refused(draw):
    before = pnp.random.default_rng(3)
    with pytest.raises(NoKernelError, match=f"np::random_{draw}: no kernel for the key Dask(?s:.*)loc [+] scale [*] z"):
        lazily(lambda x: getattr(before, draw)(x), X)
    assert before.standard_normal() == np.random.default_rng(3).standard_normal()      # nothing was drawn


MATRICES = {
    "one chunk": lambda a: a.rechunk(-1), "square chunks": lambda a: a.rechunk(4), "uneven chunks": lambda a: a.rechunk(
        ((3, 5), (3, 5))), "chunks of rows": lambda a: a.rechunk((4, 8)),
}
SOLVERS = {
    "inv": pnp.linalg.inv, "solve": lambda a: pnp.linalg.solve(a, pnp.ones(8)), "cholesky": pnp.linalg.cholesky,
    "det": pnp.linalg.det, "svdvals": pnp.linalg.svdvals, "qr": lambda a: pnp.abs(pnp.linalg.qr(a)[1]),
}


@pytest.mark.parametrize("chunks", MATRICES.values(), ids=list(MATRICES))
@together("solver", SOLVERS.values(), ids=list(SOLVERS))
def test_matrices_of_many_chunks(solver, chunks):
    a = DATA[:8] @ DATA[:8].T + 3 * np.eye(8)
    check_lazy(lazily(solver, chunks(da.from_array(a))), solver(a))


ARGUMENTS = {
    "take, around": (ops.np.take, (X, np.array([41, -1]), 0), {"mode": "wrap"}),
    "take, to the end": (ops.np.take, (X, np.array([41, -1]), 0), {"mode": "clip"}),
    "zeros_like, device": (ops.np.zeros_like, (X,), {"device": "Dask"}),
    "full, values": (ops.np.full, ((2, N, D), X), {"dtype": np.float32, "device": "Dask"}),
    "sum, where and initial": (ops.np.sum, (X, 0), {"where": X > 0, "initial": 2.0}),
    "max, where and initial": (ops.np.max, (X, 1), {"where": X > 0, "initial": -2.0, "keepdims": True}),
    "mean, where": (ops.np.mean, (X, 0), {"where": X > 0}),
    "var, where and correction": (ops.np.var, (X, 0), {"where": X > 0, "correction": 1}),
    "concatenate, dtype": (ops.np.concatenate, ((X, DATA),), {"dtype": np.float32}),
}


@pytest.mark.parametrize(("op", "args", "options"), ARGUMENTS.values(), ids=list(ARGUMENTS))
def test_arguments_that_dask_does_not_take(op, args, options):
    numpys = computed((args, {name: value for name, value in options.items() if name != "device"}))
    check_lazy(lazily(op, *args, **options), op(*numpys[0], **numpys[1]))


def test_item_computes():
    assert ops.np.item(pnp.sum(X)) == pytest.approx(DATA.sum())
    assert pnp.sum(Tensor(X)).item() == pytest.approx(DATA.sum())
    assert Tensor(X).item(3) == DATA.item(3)
    assert Tensor(X).item((1, 1)) == Tensor(X).item(1, 1) == DATA.item(1, 1)


def test_a_kernel_of_the_user_wins():
    kernel = impl("np::arctan2", "Dask", lambda x1, x2: x1)
    with kernel:
        assert ops.np.arctan2(X, X) is X
    check_lazy(lazily(ops.np.arctan2, X, X), np.arctan2(DATA, DATA))


def test_names_are_the_same_for_the_same_call():
    for call in (lambda: pnp.sort(X), lambda: pnp.heaviside(X, 0.5), lambda: pnp.fft.fft(X), lambda: pnp.linalg.pinv(
            uneven(DATA))):
        assert call().name == call().name
