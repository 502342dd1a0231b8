"""Faults that random nonsense found: wrong numbers, hangs and unhelpful errors."""

import numpy as np
import pytest

import pydispatch
from pydispatch import Tensor, ops
from pydispatch.exceptions import DispatchTypeError

COMPLEX = np.array([[1 + 2j, np.nan, 3 - 1j], [complex(2, np.nan), 5 - 1j, 1]])
OBJECTS = np.array([[1, "x", None], [0, 2, ""]], object)
INFINITE = np.array([[np.inf, np.inf, np.inf], [1.0, np.inf, np.nan], [-np.inf, 2.0, -np.inf]])


@pytest.mark.parametrize(("function", "args"), [
    pytest.param(np.nanmedian, (INFINITE, 1), id="medians of infinite elements"),
    pytest.param(np.nanmedian, (np.array([np.inf]),), id="median of one infinite element"),
    pytest.param(np.nanmedian, (COMPLEX,), id="median of complex elements that are not nan"),
    pytest.param(np.nanmedian, (COMPLEX, 0), id="medians of complex elements, of pairs and alone"),
    pytest.param(np.nanmedian, (COMPLEX.astype("c8"), 1), id="medians of single-precision complex elements"),
    pytest.param(np.lexsort, (np.array([3.0, 1.0, 2.0]),), id="keys that are numbers"),
    pytest.param(np.lexsort, (np.array([3, 1]), 0), id="keys that are numbers, along an axis"),
    pytest.param(np.dot, (np.float32([1, 2]), 1j), id="dot with a complex number"),
    pytest.param(np.dot, (np.float32([1, 2]), 2.5), id="dot with a number"),
    pytest.param(np.dot, (2, np.float32([1, 2])), id="dot of a number"),
    pytest.param(np.any, (OBJECTS,), id="any of objects"),
    pytest.param(np.all, (OBJECTS, 0), id="all of objects along an axis"),
    pytest.param(np.logical_or.reduce, (OBJECTS, 0), id="objects joined by or"),
    pytest.param(np.digitize, (np.array([1, 2, 3]), np.array([3, 2, 1], "u1")), id="unsigned bins that fall"),
    pytest.param(np.digitize, (0.5, np.array([True, True, False])), id="bins of bools that fall"),
    pytest.param(np.gradient, (np.array(["1970-04-11", "1970-01-03", "1971-01-01"], "M8[D]"),), id="slopes of dates"),
    pytest.param(np.trapezoid, (np.ones((3, 2)), np.arange(4.0).reshape(2, 1, 2)), id="x with more axes than y"),
    pytest.param(np.median, (np.eye(3), 0, None, False, 1), id="axes of a median that 1 keeps"),
    pytest.param(np.nanmedian, (np.eye(3), 0, None, False, 1), id="axes of a median without nan that 1 keeps"),
    pytest.param(np.nanmedian, (np.array([[1, 2]]), 0, None, False, 1), id="axes of a median of integers that 1 keeps"),
    pytest.param(np.quantile, (np.eye(3), 0.5, 0, None, False, "linear", 1), id="axes of a quantile that 1 keeps"),
    pytest.param(np.delete, (np.arange(4.0), np.array([1, -1])), id="delete at indices that are a Tensor"),
    pytest.param(np.polyder, (np.arange(4.0), 9), id="polyder beyond the last coefficient"),
    pytest.param(np.diff, (np.arange(4.0), 9), id="diff beyond the last element"),
    pytest.param(np.diff, (np.arange(0), 2), id="diff of nothing"),
    pytest.param(np.diff, (np.arange(3).astype("M8[s]"), 7), id="diff of dates beyond the last"),
])
def test_the_result_is_numpys(function, args):
    found = function(*[Tensor(x) if isinstance(x, np.ndarray) else x for x in args])
    expected = function(*args)
    assert isinstance(found, Tensor)
    assert found.shape == np.shape(expected)
    assert found.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(found.array, expected)


@pytest.mark.parametrize("function", [np.polyder, np.diff], ids=lambda f: f.__name__)
def test_what_a_huge_order_leaves_is_soon_empty(function):
    assert function(Tensor(np.arange(4.0)), 2**70).shape == (0,)


@pytest.mark.parametrize("function", [np.histogram_bin_edges, np.histogram], ids=lambda f: f.__name__)
def test_unsigned_bins_that_fall_are_refused(function):
    with pytest.raises(ValueError, match="must increase monotonically"):
        function(Tensor(np.arange(3.0)), np.array([3, 2, 1], "u1"))


def test_values_scattered_at_a_number_are_refused():
    with pytest.raises(ValueError, match="argument indices has 0 axes, expected 1"):
        ops.np.scatter_add_(np.ones(3), 2**70, 1.0, 0)


@pytest.mark.parametrize("wrap", [lambda f: f, pydispatch.compile], ids=["called", "compiled"])
def test_a_view_of_a_number_that_no_dtype_holds_is_refused(wrap):
    with pytest.raises(DispatchTypeError, match="expected Tensor, found int"):
        wrap(lambda x: ops.np.flip(x, ()))(2**64)


def test_quantiles_of_dates_are_refused():
    with pytest.raises(DispatchTypeError, match="of dtype timedelta64"):
        np.nanquantile(Tensor(np.array([1, 2], "m8[s]")), 0.5)
