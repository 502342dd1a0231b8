"""Three kinds of arrays in one call: rank decides, or the error names two kinds and the `above=` to write."""

import re
from itertools import permutations

import numpy as np
import pytest

from pydispatch import Tensor, func, ops, register_backend
from pydispatch.exceptions import DispatchTypeError, NoKernelError, RegistrationError
from pydispatch.keys import outranked_by, replace_backend

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

DATA = np.array([1.0, 2.0, 4.0])
MASK = np.array([False, True, False])


def magnitude(value):
    return value.magnitude if isinstance(value, Quantity) else value


class Quantity:
    """An array of any kind, in metres. Its kernels call operators on the wrapped array."""

    def __init__(self, magnitude):
        self.magnitude = magnitude

    shape = property(lambda self: self.magnitude.shape)
    dtype = property(lambda self: self.magnitude.dtype)
    ndim = property(lambda self: self.magnitude.ndim)


class Units:
    """The functions of quantities."""

    @staticmethod
    def add(x1, x2):
        return Quantity(ops.np.add(magnitude(x1), magnitude(x2)))

    @staticmethod
    def where(condition, x, y):
        return Quantity(ops.np.where(magnitude(condition), magnitude(x), magnitude(y)))

    @staticmethod
    def multiply(x1, x2):
        return Quantity(ops.np.multiply(magnitude(x1), magnitude(x2)))


@pytest.fixture(scope="module", autouse=True)
def ranks():
    """Load the packs by their first arrays, then rank quantities above Dask arrays."""
    for array in (da.ones(3), np.ma.masked_array(DATA)):
        Tensor(array)
    register_backend("MetresOverDask", Quantity, above=("Dask",), namespace=Units)


QUANTITY, LAZY, NUMPYS = (lambda: Quantity(da.from_array(DATA)), lambda: da.from_array(DATA > 1.0), lambda: 10 * DATA)


@pytest.mark.parametrize("wrap", [lambda array: array, Tensor], ids=["raw", "Tensors"])
def test_units_over_dask_with_numpys(wrap):
    found = ops.np.where(wrap(LAZY()), wrap(QUANTITY()), wrap(NUMPYS()))
    found = found.array if isinstance(found, Tensor) else found
    assert isinstance(found, Quantity)
    assert isinstance(found.magnitude, da.Array)
    np.testing.assert_array_equal(found.magnitude.compute(), [10.0, 2.0, 4.0])


def test_gradients_of_units_over_dask_with_numpys():
    def scaled_square(x):
        return ops.np.multiply(ops.np.multiply(x, x), ops.np.multiply(LAZY(), NUMPYS()))

    gradient = func.vjp(scaled_square, QUANTITY())[1](NUMPYS())[0]
    assert isinstance(gradient, Quantity)
    assert isinstance(gradient.magnitude, da.Array)
    np.testing.assert_allclose(gradient.magnitude.compute(), 2 * DATA * [0, 20, 40] * 10 * DATA)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_masked_with_numpys_and_numbers(order):
    masked = np.ma.masked_array(DATA, MASK)
    values = [masked, DATA, np.array(2.0)]
    condition, x, y = [values[i] for i in order]
    found = ops.np.where(ops.np.greater(condition, 0.0), x, y)
    assert isinstance(found, np.ma.MaskedArray)
    np.testing.assert_array_equal(found.mask, np.False_ if order[2] == 0 else MASK)


KINDS = {"Dask": lambda: da.from_array(DATA), "Masked": lambda: np.ma.masked_array(DATA, MASK), "CPU": lambda: DATA}


@pytest.mark.parametrize("kinds", list(permutations(["Dask", "Masked", "CPU"])), ids="-".join)
@pytest.mark.parametrize("wrap", [lambda array: array, Tensor], ids=["raw", "Tensors"])
def test_kinds_without_a_rank_are_named(kinds, wrap):
    with pytest.raises(DispatchTypeError) as caught:
        ops.np.where(*[wrap(KINDS[kind]()) for kind in kinds])
    for part in ("np::where", "Dask", "Masked", "above="):
        assert part in str(caught.value)


def test_the_error_says_how_to_rank_them():
    masked, lazy = KINDS["Masked"](), KINDS["Dask"]()
    with pytest.raises(DispatchTypeError, match="rank one above the other: ") as caught:
        ops.np.add(masked, lazy)
    lower = outranked_by("Dask")
    text = re.search(r"register_backend\('Dask', (\S+), above=\('Masked',\)\)$", str(caught.value))
    assert text[1] == "dask.array.core.Array"
    try:
        eval(text[0], {"register_backend": register_backend, "dask": dask})
        assert outranked_by("Dask") == lower | {"Masked"}
        found = ops.np.add(masked, lazy).compute()
        np.testing.assert_array_equal(np.ma.getmaskarray(found), MASK)
        np.testing.assert_array_equal(found[~MASK], 2 * DATA[~MASK])
    finally:
        replace_backend("Dask", da.Array, da.Array, lower)
    with pytest.raises(DispatchTypeError):
        ops.np.add(masked, lazy)
    with pytest.raises(RegistrationError, match="the key name 'Dask' is taken"):
        register_backend("Dask", Quantity, above=("Masked",))


@pytest.mark.parametrize("kind", ["Dask", "Masked"])
@pytest.mark.parametrize("is_first", [True, False], ids=["sparse first", "sparse last"])
def test_a_sparse_array_with_one_of_another_backend_is_named_with_it(kind, is_first):
    sparse = pytest.importorskip("scipy.sparse").csr_array(np.eye(3))
    arrays = (sparse, KINDS[kind]()) if is_first else (KINDS[kind](), sparse)
    with pytest.raises(NoKernelError) as caught:
        ops.np.matmul(*arrays)
    first, second = ("SparseCPU", kind) if is_first else (kind, "SparseCPU")
    assert f"'x1' has {first}, 'x2' has {second}\n" in str(caught.value)
    assert f'convert an argument, or register one: lib.impl("np::matmul", kernel, "Sparse{kind}")' in str(caught.value)
