"""Meta arrays and the ndarrays that stand for them."""

import copy
import pickle
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch._core import Shell
from pydispatch.backends import MetaArray
from pydispatch.exceptions import DispatchTypeError
from pydispatch.operators.meta import along, broadcastable, sample, stand_in
from pydispatch.tracing import FakeMode
from tests.together import together


def test_attributes():
    array = MetaArray([2, np.int64(3)], "float32")
    assert (array.shape, array.dtype, array.ndim, array.size) == ((2, 3), np.dtype(np.float32), 2, 6)
    assert (array.itemsize, array.nbytes, array.base, len(array)) == (4, 24, None, 2)
    assert MetaArray(5).shape == (5,)
    assert MetaArray(()).dtype == np.float64
    assert MetaArray((10**9, 10**9)).size == 10**18
    assert repr(array) == "MetaArray(shape=(2, 3), dtype=float32)"


@pytest.mark.parametrize("make", [
    MetaArray, lambda shape, dtype: Shell(shape=shape, dtype=dtype),
    lambda shape, dtype: ops.np.zeros_like(FakeMode().from_array(np.zeros((), dtype)), shape=shape),
    lambda shape, dtype: ops.np.zeros(shape, dtype=dtype, device="Meta"),
], ids=["MetaArray", "Shell", "FakeTensor", "zeros"])
@together("shape", [(2**40, 2**40), (2**63,), (2**62,), (2**40, 0, 2**40), (2**63, 0), (2**60, 1),
                    (0, 2**62, 4), (2**31, 2**31, 4)], ids=str)
def test_what_no_memory_could_hold_is_refused_as_by_numpy(make, shape):
    with pytest.raises(ValueError, match=r"array is too big|Maximum allowed") as expected:
        np.empty(shape)
    with pytest.raises(ValueError, match=r"too (big|large)|Maximum allowed") as found:
        make(shape, np.dtype(float))
    if make is MetaArray:
        assert str(found.value) == str(expected.value)


def test_identity_is_equality():
    array = MetaArray((2,))
    assert array != MetaArray((2,))
    assert len({array, MetaArray((2,))}) == 2
    assert weakref.ref(array)() is array


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))])
def test_copies(copied):
    array = copied(MetaArray((2, 3), np.int8))
    assert (array.shape, array.dtype) == ((2, 3), np.int8)


@pytest.mark.parametrize("ask", [np.asarray, bool, lambda array: np.add(array, 1), lambda array: np.ones(2) + array])
def test_there_is_no_data(ask):
    with pytest.raises(DispatchTypeError, match="no data"):
        ask(MetaArray((2,)))


def test_bad_shapes():
    with pytest.raises(ValueError, match="negative"):
        MetaArray((2, -1))
    with pytest.raises(TypeError):
        MetaArray((2.5,))
    with pytest.raises(TypeError, match="len"):
        len(MetaArray(()))


def test_views_name_the_owner():
    owner = MetaArray((2, 3))
    view = ops.np.reshape(owner, (6,))
    assert view.base is owner
    assert ops.np.getitem(view, slice(2)).base is owner
    assert ops.np.copy(view).base is None
    assert ops.np.reshape(owner, (6,), copy=True).base is None


def test_tensors_over_views_share_a_version():
    owner = Tensor(MetaArray((2, 3)))
    view = owner.T
    view += 1
    assert owner._version == view._version == 1


def test_stand_ins_take_no_memory():
    array = stand_in(MetaArray((10**9, 10**3), np.complex128))
    assert array.shape == (10**9, 10**3)
    assert array.dtype == np.complex128
    assert array.strides == (0, 0)
    assert stand_in(3.0) == 3.0
    assert sample(MetaArray((4, 4), np.int8)).shape == (0,)


def test_shapes():
    assert along((2, 3), None) == ((6,), 0)
    assert along((2, 3), -1) == ((2, 3), 1)
    assert along((), 0) == ((1,), 0)
    assert broadcastable((3, 1), (2, 3, 4))
    assert not broadcastable((2, 3, 4), (3, 4))
    assert not broadcastable((2,), (3,))
