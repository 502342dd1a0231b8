"""Copies of SciPy's modules in Python: what they share with the originals, and batches of calls that need values."""

import inspect

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
import scipy.sparse

from pydispatch import Tensor, func
from pydispatch.exceptions import ConversionError, DataDependentError
from pydispatch.scipy import linalg, signal
from pydispatch.scipy.borrowed import COPIES, borrow, copy_of, namespace
from pydispatch.scipy.pack import FACE
from pydispatch.tracing import make_fx

NUMERATOR, DENOMINATOR = np.array([0.3, 0.5, -0.2]), np.array([1.1, -0.4, 0.2])


def leading(b):
    """Normalize a filter, which compares its coefficients with 0."""
    return signal.normalize(b, DENOMINATOR)[0]


def test_a_copy_computes_with_our_functions_and_raises_the_originals_exceptions():
    copy = copy_of("scipy.signal._filter_design")
    assert copy is copy_of("scipy.signal._filter_design")
    assert copy.normalize is not scipy.signal.normalize
    assert copy.BadCoefficients is scipy.signal.BadCoefficients


def test_compiled_modules_are_the_originals():
    assert copy_of("scipy.signal._sosfilt") is None
    assert namespace("scipy.signal._sosfilt") is scipy.signal._sosfilt


def test_a_copy_is_made_outside_of_all_transforms():
    module = scipy.signal.gauss_spline.__module__
    COPIES.pop(module, None)
    func.grad(lambda x: signal.gauss_spline(x, 2).sum())(NUMERATOR)
    constants = [value for value in vars(COPIES[module]).values() if isinstance(value, Tensor)]
    assert constants == []


def test_arrays_are_passed_to_scipys_function():
    found = signal.normalize(NUMERATOR, DENOMINATOR)
    assert [type(each) for each in found] == [np.ndarray, np.ndarray]


BATCH = np.stack([NUMERATOR, 2 * NUMERATOR])
LOSS_SLOPE = 2 * NUMERATOR / DENOMINATOR[0] ** 2


@pytest.mark.parametrize(("transformed", "expected"), [
    (lambda x: func.vmap(leading)(x), BATCH / DENOMINATOR[0]),
    (lambda x: func.vmap(func.vmap(leading))(x[None]), BATCH[None] / DENOMINATOR[0]),
    (lambda x: func.vmap(func.grad(lambda b: (leading(b) ** 2).sum()))(x), np.stack([LOSS_SLOPE, 2 * LOSS_SLOPE])),
    (lambda x: func.grad(lambda x: (func.vmap(leading)(x) ** 2).sum())(x), np.stack([LOSS_SLOPE, 2 * LOSS_SLOPE])),
    (lambda x: func.vmap(func.jacfwd(leading))(x), np.stack([np.eye(3) / DENOMINATOR[0]] * 2)),
    (lambda x: func.vmap(func.hessian(lambda b: (leading(b) ** 2).sum()))(x),
     np.stack([2 * np.eye(3) / DENOMINATOR[0] ** 2] * 2)),
    (lambda x: func.jvp(func.vmap(leading), (x,), (x,))[1], BATCH / DENOMINATOR[0]),
], ids=["vmap", "vmap of vmap", "vmap of grad", "grad of vmap", "vmap of jacfwd", "vmap of hessian", "jvp of vmap"])
def test_a_function_that_needs_values_runs_example_by_example(transformed, expected):
    np.testing.assert_allclose(transformed(BATCH), expected, rtol=1e-12)


def test_the_tape_follows_a_batch():
    x = Tensor(BATCH.copy(), requires_grad=True)
    func.vmap(leading)(x).sum().backward()
    np.testing.assert_allclose(x.grad, np.full((2, 3), 1 / DENOMINATOR[0]))


def test_a_trace_refuses_values_by_name():
    with pytest.raises(DataDependentError, match="make_fx"):
        make_fx(leading)(NUMERATOR)


def test_a_conversion_that_loses_a_gradient_is_refused():
    with pytest.raises(ConversionError, match="its gradient would be lost"):
        func.grad(lambda x: scipy.signal.max_len_seq(3)[0][0] * float(x[0]))(NUMERATOR)


def test_names_that_the_installed_scipy_lacks_are_left_out():
    borrow("signal", "no_such_function")
    assert "signal.no_such_function" not in FACE.functions


def test_a_function_for_arrays_has_scipys_signature():
    assert inspect.signature(linalg.qz) == inspect.signature(scipy.linalg.qz)


def test_a_function_for_arrays_takes_sparse_ones():
    x = scipy.sparse.csr_array(np.diag([1.0, 2.0, 3.0]))
    found = linalg.clarkson_woodruff_transform(x, 2, rng=np.random.default_rng(0))
    expected = scipy.linalg.clarkson_woodruff_transform(x, 2, rng=np.random.default_rng(0))
    assert type(found) is type(expected)
    assert (found.toarray() == expected.toarray()).all()
