"""`check_backend`, with every operator that the backend of these tests has, and with one that is wrong."""

import numpy as np
import pytest

from pydispatch import ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.backends.coverage import MISSING, coverage
from pydispatch.exceptions import OpCheckError
from pydispatch.library import impl
from pydispatch.operators import DECLARATIONS
from pydispatch.testing import check_backend
from pydispatch.tree import tree_leaves
from tests.backends.lone import LoneArray
from tests.operators.samples import smooth_samples

X = np.array([[1.0, 4.0, 2.0], [3.0, 0.5, 6.0]])
UNLIKE = ("item", "empty_like", "zeros")
"""Operators whose results are no arrays, have any values, or are made of no arrays."""
HAS = sorted(name for name, found in coverage("Lone").items()
             if found.kind != MISSING and name in DECLARATIONS and name not in UNLIKE)


def read(value):
    return value.hidden if isinstance(value, LoneArray) else value


def check(name, args, kwargs=None):
    return check_backend(find_or_raise(f"np::{name}"), args, kwargs, make=LoneArray, read=read)


def is_plain(sample):
    """Return whether a sample has arrays, of float64, int or bool."""
    leaves = [leaf for leaf in tree_leaves((sample.args, sample.kwargs)) if isinstance(leaf, (np.ndarray, np.generic))]
    return bool(leaves) and all(isinstance(leaf, np.ndarray) and leaf.dtype in (np.float64, np.int64, np.bool_)
                                for leaf in leaves)


@pytest.mark.parametrize("name", HAS)
def test_an_operator_computes_what_it_does_on_numpys_arrays(name):
    chosen = list(filter(is_plain, smooth_samples(name)))[:12:2]
    outcomes = [check(name, sample.args, sample.kwargs) for sample in chosen]
    assert any("SUCCESS" in outcome.values() for outcome in outcomes), outcomes


def test_what_is_missing_is_told():
    assert "no kernel for the key Lone" in check("arctan2", (X, X))["value"]
    assert "'where'" in check("sum", (X,), {"where": X > 1})["value"]
    assert check("sum", (X,)) == dict.fromkeys(("value", "grad", "jvp", "vmap"), "SUCCESS")


WRONG = {
    "values": (lambda x: LoneArray(-x.hidden + 1), "value differs from"),
    "shape": (lambda x: LoneArray(-x.hidden[0]), r"value returned the shape \(3,\), expected \(2, 3\)"),
    "an array of NumPy's": (lambda x: -x.hidden, "value returned a NumPy array"),
    "error": (lambda x: x.nonsense, "value failed: AttributeError"),
}


@pytest.mark.parametrize(("kernel", "message"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_kernel_is_told(kernel, message):
    with impl("np::negative", "Lone", kernel), pytest.raises(OpCheckError, match=f"np::negative: {message}"):
        check("negative", (X,))
    assert check("negative", (X,))["value"] == "SUCCESS"
    assert ops.np.negative(X)[0, 0] == -1
