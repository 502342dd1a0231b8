"""Masked arrays: operators of `numpy.ma`, masks through gradients, and other arrays beside them."""

from collections import Counter
from operator import attrgetter

import numpy as np
import pytest
from numpy import ma

import pydispatch.backends.masked
import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func, ops
from pydispatch.exceptions import (
    CompilationError,
    DispatchError,
    DispatchTypeError,
    NoKernelError,
    UnsupportedArgumentError,
)
from pydispatch.operators.declare import IS_NUMPY_2_0
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_leaves, tree_map
from tests.numpy.calls import quietly
from tests.numpy.samples import SAMPLES
from tests.together import together

M = ma.masked_array([1.0, 2.0, 3.0, 4.0], [False, True, False, False])
TABLE = ma.masked_array(np.arange(1.0, 7.0).reshape(2, 3), [[False, True, False], [True, True, False]])
ONES = np.ones(3)


def check(found, expected):
    """Assert equal masks, and equal elements where nothing is masked."""
    assert np.array_equal(ma.getmaskarray(found), ma.getmaskarray(expected))
    np.testing.assert_allclose(ma.filled(found, 0.0), ma.filled(expected, 0.0), rtol=1e-12)


AS_IN_MA = {
    "elementwise": (pnp.exp, ma.exp, M),
    "domain": (pnp.log, ma.log, ma.masked_array([-1.0, 1.0], [False, False])),
    "universal function that ma lacks": (pnp.square, np.square, M),
    "two arrays": (lambda x: pnp.add(x, np.ones(4)), lambda x: x + np.ones(4), M),
    "sum": (pnp.sum, ma.sum, M),
    "sum of masked elements alone": (lambda x: pnp.sum(x, axis=0), lambda x: ma.sum(x, axis=0), TABLE),
    "mean": (lambda x: pnp.mean(x, axis=1), lambda x: ma.mean(x, axis=1), TABLE),
    "variance": (pnp.var, ma.var, M),
    "cumsum": (pnp.cumsum, ma.cumsum, M),
    "median": (lambda x: pnp.median(x, axis=0), lambda x: ma.median(x, axis=0), TABLE),
    "median of all": (lambda x: pnp.median(x, keepdims=True), lambda x: ma.median(x, keepdims=True), M),
    "median of nan": (pnp.median, ma.median, ma.masked_array([1.0, np.nan, 5.0, 4.0], [True, False, False, False])),
    "quantiles": (lambda x: pnp.quantile(x, [0.3, 0.8]), lambda x: ma.masked_array(
        np.quantile(x.compressed(), [0.3, 0.8])), M),
    "percentile of integers": (lambda x: pnp.percentile(x, 50), lambda x: ma.masked_array(6.0),
                               ma.masked_array([9, 1, 5, 7, 2], [False, True, False, False, False])),
    "quantile of masked elements alone": (
        lambda x: pnp.quantile(x, 0.5, axis=0), lambda x: ma.median(x, axis=0), TABLE),
    "average": (lambda x: pnp.average(x, weights=np.arange(1.0, 5.0)), lambda x: ma.average(
        x, weights=np.arange(1.0, 5.0)), M),
    "average of rows": (lambda x: pnp.average(x, 1, np.arange(1.0, 4.0)), lambda x: ma.average(
        x, 1, np.arange(1.0, 4.0)), TABLE),
    "covariance": (pnp.cov, ma.cov, TABLE), "covariance of columns": (
        lambda x: pnp.cov(x, rowvar=False, ddof=0), lambda x: ma.cov(x, rowvar=False, ddof=0), TABLE),
    "covariance of two": (lambda x: pnp.cov(x, M[::-1]), lambda x: ma.cov(x, M[::-1]), M),
    "correlation": (lambda x: pnp.corrcoef(x, rowvar=False), lambda x: ma.corrcoef(x, rowvar=False), TABLE),
    "sort": (pnp.sort, ma.sort, M),
    "where": (lambda x: pnp.where(x > 2, x, 0.0), lambda x: ma.where(x > 2, x, 0.0), M),
    "concatenate": (lambda x: pnp.concatenate([x, np.ones(1)]), lambda x: ma.concatenate([x, np.ones(1)]), M),
    "reshape": (lambda x: pnp.reshape(x, (2, 2)), lambda x: ma.reshape(x, (2, 2)), M),
    "indexing": (lambda x: ops.np.getitem(x, (slice(1, 3),)), lambda x: x[1:3], M),
    "moved axes": (lambda x: pnp.moveaxis(x, 0, 1), lambda x: x.T, TABLE),
    "product with a matrix": (lambda x: pnp.matmul(x, ONES), lambda x: ma.masked_array([4.0, 6.0], [False, False]),
                              TABLE),
}


@together("ours, mas, array", AS_IN_MA.values(), ids=list(AS_IN_MA))
def test_results_are_those_of_numpy_ma(ours, mas, array):
    check(ours(array), mas(array))


MASK = ma.getmaskarray(M)
LEFT = M.compressed()
OF_ELEMENTS = {
    "sum": (pnp.sum, np.sum), "mean": (pnp.mean, np.mean), "var": (pnp.var, np.var), "std": (pnp.std, np.std),
    "prod": (pnp.prod, np.prod), "max": (pnp.max, np.max), "min": (pnp.min, np.min),
    "sum of products": (lambda x: pnp.sum(pnp.sin(x) * x), None),
    "cumsum": (lambda x: pnp.sum(pnp.cumsum(x)), None), "cumprod": (lambda x: pnp.sum(pnp.cumprod(x)), None),
    "in parts": (lambda x: pnp.sum(x[1:] ** 2), None),
}


@pytest.mark.parametrize(("function", "_"), OF_ELEMENTS.values(), ids=list(OF_ELEMENTS))
def test_gradients_are_those_without_the_masked_elements(function, _):
    expected = ma.masked_all(4)
    expected[~MASK] = func.grad(function)(LEFT) if function is not OF_ELEMENTS["in parts"][0] else [0.0, 6.0, 8.0]
    value, gradient = func.value_and_grad(function)(M)
    check(gradient, expected)
    check(value, function(M))
    tensor = Tensor(M, requires_grad=True)
    function(tensor).backward()
    check(tensor.grad.array, expected)
    other = M.copy()
    other.data[1] = 1e9
    check(func.grad(function)(other), expected)


def test_gradients_along_axes():
    found = func.grad(lambda x: pnp.sum(pnp.sum(x, axis=0) ** 2))(TABLE)
    check(found, ma.masked_array([[2.0, 0.0, 18.0], [0.0, 0.0, 18.0]], TABLE.mask))
    found = func.grad(lambda x: pnp.sum(pnp.matmul(x, ONES) ** 2))(TABLE)
    check(found, ma.masked_array([[8.0, 0.0, 8.0], [0.0, 0.0, 12.0]], TABLE.mask))


def test_missing_data_in_a_regression():
    w = np.array([0.5, -1.0, 2.0])
    found = func.grad(lambda w: pnp.sum(pnp.matmul(TABLE, w) ** 2))(w)
    expected = func.grad(lambda w: pnp.sum(pnp.matmul(ma.filled(TABLE, 0.0), w) ** 2))(w)
    check(found, expected)


def test_tangents_and_batches():
    value, tangent = func.jvp(lambda x: pnp.sum(x * x), (M,), (ma.ones_like(M),))
    check(value, 26.0)
    check(tangent, 16.0)
    check(func.vmap(lambda x: pnp.sum(x * x))(TABLE), ma.masked_array([10.0, 36.0], [False, False]))
    check(func.vmap(func.grad(lambda x: pnp.mean(x * x)))(TABLE),
          ma.masked_array([[1.0, 0.0, 3.0], [0.0, 0.0, 12.0]], TABLE.mask))


@pytest.mark.parametrize(("function", "second"), [
    (lambda x: pnp.sum(x**3), lambda x: 6.0 * x), (lambda x: pnp.sum(pnp.exp(x)), ma.exp),
    (lambda x: pnp.sum(x * x * x), lambda x: 6.0 * x),
], ids=["power", "exponential", "products"])
def test_hessians_mask_the_rows_of_masked_elements(function, second):
    found = func.hessian(function)(M)
    check(found, ma.masked_array(np.diag(ma.filled(second(M), 0.0)), np.repeat(M.mask[:, None], 4, axis=1)))


def test_numpys_arrays_join_in():
    check(ops.np.multiply(np.arange(4.0), M), np.arange(4.0) * M)
    check(func.grad(lambda w: pnp.sum((M - w) ** 2))(1.5), np.array(-7.0))


def test_written_in_place():
    array = M.copy()
    assert ops.np.add_(array, 1.0) is array
    check(array, M + 1.0)


def test_what_ma_lacks_is_named():
    with pytest.raises(NoKernelError, match=r"np::linalg_inv(?s:.*)numpy.ma has no linalg.inv"):
        ops.np.linalg_inv(ma.masked_array(np.eye(2)))
    # `ma` of NumPy 2.0 does not tell what its functions take
    with pytest.raises(TypeError if IS_NUMPY_2_0 else UnsupportedArgumentError, match="argument 'where'"):
        ops.np.sum(M, where=np.array([True, True, False, True]))


OTHERWISE: dict[str, str] = {}
"""Functions that compute something else than NumPy's, and what."""


MASKED_OF_NOTHING = {"trapezoid", "dot"}
"""Functions that sum; `numpy.ma` masks a sum of no elements."""
REFUSALS = {"numpy.ma has no": 480, "argument 'dtype'": 2, "assignment destination is read-only": 2, "readonly": 2,
            "covariances of masked arrays do not support weights": 9}
"""Why samples are refused, and how many are at most."""


def refusal(error):
    """Return the one reason of the table that an error gives."""
    reasons = [reason for reason in REFUSALS if reason in str(error)]
    assert len(reasons) == 1, error
    return reasons[0]


def without_mask(leaf):
    return ma.masked_array(leaf) if isinstance(leaf, np.ndarray) else leaf


REDUCTIONS = {"plain": {}, "keepdims": {"keepdims": True}, "dtype": {"dtype": np.float64}, "ddof": {"ddof": 1},
              "where": {"where": np.ones(3, bool)}, "initial": {"initial": 2}}


@pytest.mark.parametrize("name", list(pydispatch.backends.masked.COMPOSITES))
@together("dtype", [float, np.float32, int, np.int8, bool, complex])
def test_composites_compute_what_kernels_do(name, dtype):
    array = ma.masked_array(np.array([[3, -4, 1], [2, 5, 0], [7, -1, 6]]).astype(dtype),
                            [[False, True, False], [True, True, True], [False, False, False]])
    op = getattr(ops.np, name)
    calls = [(array.T,)] if name == "matmul" else [(axis, options) for axis in (None, 0, 1, -1)
                                                   for options in REDUCTIONS.values()]

    def outcome(x, *call):
        try:
            return quietly(op, (x, *call[:1]), call[1] if len(call) > 1 else {})
        except (DispatchError, TypeError, ValueError) as error:
            return type(error)

    for call in calls:
        of_array, of_tensor = outcome(array, *call), outcome(Tensor(array), *call)
        if isinstance(of_array, type):
            # `ma` of NumPy 2.0 does not tell what its functions take
            assert of_tensor is of_array or (IS_NUMPY_2_0 and isinstance(of_tensor, type)), call
            continue
        check(of_tensor.array, of_array)
        assert of_tensor.dtype == of_array.dtype


@pytest.mark.parametrize("backend", ["plan", "python"])
def test_plans_refuse_them(backend):
    # A plan computes with elements only, and would take a masked one for a number.
    def doubled(x):
        return ops.np.sum(x * 2.0)

    compiled = compile(doubled, backend=backend)
    compiled(np.ones(4))
    with pytest.raises(DispatchTypeError, match="an argument is a MaskedArray, expected a NumPy array\ncall the func"):
        compiled(M)
    with pytest.raises(DispatchTypeError, match="an argument is a MaskedArray"):
        func.grad(compiled)(M)
    with pytest.raises((DispatchTypeError, CompilationError), match="MaskedArray"):
        compile(lambda x: ops.np.add(x, M), backend=backend)(np.ones(4))


def test_a_graph_keeps_those_that_the_function_captures():
    check(make_fx(lambda x: ops.np.add(x, M))(np.ones(4))(np.full(4, 2.0)), M + 2.0)


def test_without_a_mask_they_are_ordinary_arrays():
    refused, differing = Counter(), {}
    for sample in (sample for samples in SAMPLES.values() for sample in samples if sample.name not in OTHERWISE):
        arrays = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if isinstance(leaf, np.ndarray)]
        if not arrays or any(array.dtype.kind not in "biufc" for array in arrays):
            continue
        function = attrgetter(sample.name)(pnp)
        try:
            expected = quietly(function, sample.args, sample.kwargs)
            found = quietly(function, *tree_map(without_mask, (sample.args, sample.kwargs)))
        except (DispatchError, ValueError, BufferError) as error:
            refused[refusal(error)] += 1
            continue
        except Exception as error:
            differing[repr(sample)] = repr(error)
            continue
        for left, right in zip(tree_leaves(found), tree_leaves(expected), strict=True):
            if isinstance(right, (np.ndarray, np.generic)):
                there = ~ma.getmaskarray(left)
                if sample.name not in MASKED_OF_NOTHING and not np.all(there | ~np.isfinite(right)):
                    differing[repr(sample)] = "masked, and not for being outside of a domain"
                if np.shape(left) != right.shape or not np.allclose(
                        np.asarray(left)[there], right[there], rtol=1e-6, atol=1e-6, equal_nan=True):
                    differing[repr(sample)] = ""
    assert all(n <= REFUSALS[reason] for reason, n in refused.items()), refused
    assert refused.total() < 520, refused
    assert not differing


FORWARD = {
    "add": lambda x: (x + M).sum(), "subtract": lambda x: (M - x).sum(), "mean": lambda x: (x + M).mean(),
    "prod": lambda x: (x + M).prod(), "var": lambda x: (x + M).var(), "max": lambda x: (x - M).max(),
    "cumsum": lambda x: pnp.cumsum(x + M).sum(), "matmul": lambda x: ops.np.matmul(x + M, np.arange(4.0)),
    "part": lambda x: (x + M)[:2].sum(), "complex": lambda x: ((x + M) * 1j).sum().imag,
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("x", [np.array([4.0, 5.0, 7.0, 2.0]), M], ids=["beside a masked array", "masked"])
def test_tangents_of_masked_elements_do_not_count(name, x):
    function = FORWARD[name]
    expected = ma.filled(func.grad(function)(x), 0.0)
    basis = np.eye(4)
    np.testing.assert_allclose([float(func.jvp(function, (x,), (row,))[1]) for row in basis], expected)
    np.testing.assert_allclose([float(func.linearize(function, x)[1](row)) for row in basis], expected)
    np.testing.assert_allclose(ma.filled(func.jacfwd(function)(x), 0.0).astype(float), expected)
    step = 1e-6 * np.where(ma.getmaskarray(M), 0.0, 1.0)
    slope = (function(x + step) - function(x - step)) / 2e-6
    np.testing.assert_allclose(float(slope), (expected * (step > 0)).sum(), rtol=1e-6, atol=1e-8)
