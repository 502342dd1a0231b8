"""The memory of arrays: addresses, positions, overlaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from pydispatch.memory import addresses, may_overlap, overlaps_itself, positions_among


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-12, 12)), max_size=3))
def test_overlaps_itself_is_exact(axes):
    shape, strides = tuple(extent for extent, _ in axes), tuple(stride for _, stride in axes)
    start = sum(-stride * (extent - 1) for extent, stride in axes if stride < 0)
    array = np.ndarray(shape, np.int16, np.zeros(256, np.uint8), start, strides)
    firsts = [np.dot(index, strides) for index in np.ndindex(shape)]
    lie = [first + byte for first in firsts for byte in range(array.itemsize)]
    assert overlaps_itself(array) == (len(set(lie)) < len(lie))


@pytest.mark.parametrize(("array", "expected"), [
    (np.broadcast_to(np.ones(1), (10**12,)), True),
    (sliding_window_view(np.zeros(10**6), 10**5), True),
    (np.zeros((3, 4))[::-1, ::2].T, False),
    (as_strided(np.zeros(8), (3, 2), (16, 24)), False),
    (np.zeros(0), False),
    (np.float64(1), False),
])
def test_overlaps_itself(array, expected):
    assert overlaps_itself(array) is expected


def test_positions_among():
    whole = np.arange(12.0).reshape(3, 4)
    part = whole[::-1, 1:3]
    assert np.array_equal(whole.ravel()[positions_among(addresses(part), addresses(whole))], part)
    with pytest.raises(ValueError, match="is unknown"):
        positions_among(addresses(np.zeros(2)), addresses(whole))


def test_may_overlap():
    whole = np.zeros(6)
    assert may_overlap(whole[:4], whole[2:])
    assert not may_overlap(whole[:3], whole[3:])
    assert not may_overlap(whole, None)
