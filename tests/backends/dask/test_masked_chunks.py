"""Arrays of Dask's whose chunks are masked: lazy, and what the same arrays are in one piece."""

from typing import Any

import numpy as np
import pytest
from numpy import ma

import pydispatch.numpy as pnp
from pydispatch import Tensor, func
from pydispatch.exceptions import (
    DispatchError,
    DispatchTypeError,
    NoKernelError,
    UnsupportedArgumentError,
    UnsupportedError,
)
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves, tree_map
from tests.backends.dask.lazy import backend, computed, da, dask, lazily, n_tasks, uneven
from tests.backends.dask.test_arrays import OPEN_SIZES, READING, SAMPLES, first_of_each, function
from tests.numpy.calls import is_array, quietly

RNG = np.random.default_rng(0)
DATA = ma.masked_array(RNG.normal(size=(6, 4)), RNG.random((6, 4)) < 0.3)
WEIGHTS = np.arange(1.0, 7.0)


def cut(array: ma.MaskedArray) -> Any:
    return da.from_array(array, chunks=(2, 3))


X = cut(DATA)


def check(found: Any, expected: Any, tolerance: float = 1e-12) -> None:
    """Assert equal masks, and equal elements where nothing is masked."""
    found = computed(found)
    assert np.array_equal(ma.getmaskarray(found), ma.getmaskarray(expected))
    np.testing.assert_allclose(ma.filled(found, 0.0), ma.filled(expected, 0.0), rtol=tolerance, atol=tolerance)


PROGRAMS = {
    "mean": lambda x: pnp.mean(x * x), "mean of columns": lambda x: pnp.sum(pnp.mean(x * x, axis=0) ** 2),
    "mean of rows": lambda x: pnp.sum(pnp.mean(x, axis=1, keepdims=True) * x),
    "var": lambda x: pnp.var(x), "var of columns": lambda x: pnp.sum(pnp.var(x, axis=0, ddof=1)),
    "std": lambda x: pnp.sum(pnp.std(x, axis=1)), "sum": lambda x: pnp.sum(x ** 3),
    "average": lambda x: pnp.sum(pnp.average(x * x, axis=0, weights=WEIGHTS)),
    "nanmean": lambda x: pnp.sum(pnp.nanmean(x * x, axis=0)), "nanvar": lambda x: pnp.sum(pnp.nanvar(x, axis=0)),
    "nanstd": lambda x: pnp.nanstd(x), "median": lambda x: pnp.sum(pnp.median(x * x, axis=0)),
    "quantile": lambda x: pnp.sum(pnp.quantile(x, [0.3, 0.8], axis=0)),
    "cov": lambda x: pnp.sum(pnp.cov(x.T) ** 2), "corrcoef": lambda x: pnp.sum(pnp.corrcoef(x.T) ** 2),
    "prod": lambda x: pnp.sum(pnp.prod(x, axis=0)), "cumprod": lambda x: pnp.sum(pnp.cumprod(x, axis=0)),
    "cumsum": lambda x: pnp.sum(pnp.cumsum(x, axis=0) ** 2), "max": lambda x: pnp.sum(pnp.max(x, axis=0) ** 2),
    "product": lambda x: pnp.sum(pnp.matmul(x, np.arange(4.0)) ** 2),
    "where": lambda x: pnp.mean(pnp.where(x > 0, x, 0.0) * x),
    "joined": lambda x: pnp.mean(pnp.concatenate([x, x]) * x[0]),
    "standardized": lambda x: pnp.mean(((x - pnp.mean(x, axis=0)) / pnp.std(x, axis=0)) ** 4),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_gradients_leave_masked_elements_out(program):
    value, gradient = lazily(func.value_and_grad(program), X)
    check(value, program(DATA))
    check(gradient, func.grad(program)(DATA))
    expected = ma.masked_array(np.zeros(DATA.shape), DATA.mask)
    for place in zip(*np.nonzero(~DATA.mask), strict=True):
        values = []
        for step in (1e-6, -1e-6):
            moved = DATA.copy()
            moved[place] += step
            values.append(float(program(moved)))
        expected[place] = (values[0] - values[1]) / 2e-6
    check(gradient, expected, 1e-6)


@pytest.mark.parametrize("name", ["mean", "var of columns", "std", "average", "cov", "standardized", "prod"])
def test_other_derivatives_are_those_in_one_piece(name):
    program, rows = PROGRAMS[name], (lambda x: pnp.std(x) * pnp.mean(x * x))
    tangent = np.cos(np.arange(24.0)).reshape(6, 4)
    of_masked = ma.masked_array(tangent, DATA.mask)
    check(lazily(func.jvp, program, (X,), (cut(of_masked),))[1], func.jvp(program, (DATA,), (of_masked,))[1])
    check(lazily(func.vmap(func.grad(rows)), X), func.vmap(func.grad(rows))(DATA))

    def along(gradient: Any) -> Any:
        return lambda x: pnp.sum(gradient(x) * tangent)

    check(lazily(func.grad(along(func.grad(program))), X), func.grad(along(func.grad(program)))(DATA), 1e-10)
    tensor = Tensor(X, requires_grad=True)
    lazily(lambda: program(tensor).backward())
    check(tensor.grad.array, func.grad(program)(DATA))


def test_whatever_lies_under_the_mask():
    other = DATA.copy()
    other.data[DATA.mask] = 1e9
    check(func.grad(PROGRAMS["standardized"])(cut(other)), func.grad(PROGRAMS["standardized"])(DATA))


def masked(leaf: Any) -> Any:
    """Return an array of floating-point numbers with every third element masked."""
    if not is_array(leaf) or leaf.dtype.kind not in "fc" or leaf.size < 2:
        return leaf
    return ma.masked_array(leaf, (np.arange(leaf.size) % 3 == 1).reshape(leaf.shape))


OTHERWISE = ("array(", "array_str(", "common_type(", "from_dlpack(", "intersect1d(", "polydiv(", "polymul(",
             "result_type(", "union1d(", "unique", *READING)
"""Functions that return no array, convert a list of arrays to NumPy's, depend on values, or keep a masked element as
`numpy.ma.unique` does."""


TAKEN = [sample for samples in SAMPLES.values() for sample in samples if not repr(sample).startswith(OTHERWISE)]


@pytest.mark.parametrize(("samples", "at_least"), [
    (first_of_each(TAKEN), 80), pytest.param(TAKEN, 300, marks=pytest.mark.slow)], ids=["first of each", "all"])
def test_functions_compute_what_they_do_in_one_piece(samples, at_least):
    n_equal, differing = 0, {}
    for sample in samples:
        args, kwargs = tree_map(masked, (sample.args, sample.kwargs))
        if not any(isinstance(leaf, ma.MaskedArray) for leaf in tree_leaves((args, kwargs))):
            continue
        try:
            expected = quietly(function(sample.name), args, kwargs)
        except Exception:
            continue
        args, kwargs = tree_map(lambda leaf: uneven(leaf) if isinstance(leaf, ma.MaskedArray) else leaf,
                                tree_map(masked, (sample.args, sample.kwargs)))
        try:
            found = computed(lazily(function(sample.name), *args, **kwargs))
            for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
                if is_array(right) or isinstance(right, ma.MaskedArray):
                    check(left, right, 1e-6)
        except DispatchError as error:
            is_open = repr(sample).startswith(OPEN_SIZES) and isinstance(error, UnsupportedError)
            if "whose chunks are of MaskedArray" not in str(error) and not is_open:
                differing[repr(sample)] = error
        except Exception as error:
            differing[repr(sample)] = error
        else:
            n_equal += 1
    assert not differing
    assert n_equal > at_least


def test_what_masked_arrays_lack_is_refused_before_anything_is_computed():
    square = cut(ma.masked_array(np.eye(6)))
    for call in (lambda: pnp.linalg.inv(square), lambda: pnp.fft.fft(X), lambda: pnp.sinc(X),
                 lambda: pnp.einsum("ij,ij->i", X, X)):
        with pytest.raises(NoKernelError, match=r"whose chunks are of MaskedArray, and there is no kernel for the key "
                           r"Masked\nconvert the chunks: array.map_blocks\(numpy.ma.filled, 0.0\)"):
            lazily(call)
    check(pnp.linalg.inv(square.map_blocks(ma.filled, 0.0)), np.eye(6))
    for name, options in (("sum", {"where": DATA.data > 0}), ("max", {"initial": 1.0}), ("var", {"mean": 0.0})):
        with pytest.raises(UnsupportedArgumentError, match=f"np::{name}: argument '{next(iter(options))}'"):
            lazily(getattr(ops.np, name), X, **options)


@pytest.mark.parametrize("call", [
    lambda f: backend.map_chunks(f, X), lambda f: backend.map_chunks(f, X, reduce="sum", compiled=False),
    lambda f: func.grad(lambda x: pnp.sum(backend.map_chunks(f, x, reduce="sum")))(X),
    lambda f: backend.map_chunks(lambda x, m: f(x * m), X.map_blocks(ma.filled, 0.0), DATA[0]),
], ids=["compiled", "sum", "gradient", "shared"])
def test_functions_over_chunks_refuse_masks(call):
    with pytest.raises(DispatchTypeError, match=r"map_chunks: an argument is masked(?s:.*)\npass the elements and "):
        lazily(call, lambda x: pnp.sum(x ** 2, axis=0))
    whole = X.rechunk({1: -1})
    elements, mask = whole.map_blocks(ma.filled, 0.0), da.ma.getmaskarray(whole)

    def loss(x: Any) -> Any:
        return backend.map_chunks(lambda x, m: pnp.sum(pnp.where(m, 0.0, x ** 2)), x, mask, reduce="sum")

    np.testing.assert_allclose(computed(func.grad(loss)(elements)), 2 * ma.filled(DATA, 0.0))


def test_ordinary_chunks_are_differentiated_by_formulas():
    x = da.from_array(DATA.data, chunks=(2, 3))
    assert n_tasks(func.grad(lambda x: pnp.mean(x * x))(x)) < n_tasks(func.grad(lambda x: pnp.mean(x * x))(X))
    tracked = [Tensor(array, requires_grad=True) for array in (x, X)]
    assert "by the library's formulas" in str(ops.np.mean.default.explain(tracked[0]))
    assert "by the library's formulas" not in str(ops.np.mean.default.explain(tracked[1]))


@pytest.mark.slow
def test_gradients_on_other_processes():
    with dask.config.set(scheduler="processes", num_workers=1):
        found = func.grad(PROGRAMS["standardized"])(X).compute()
    check(found, func.grad(PROGRAMS["standardized"])(DATA))
