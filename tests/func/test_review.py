"""Defects that a review of the core of the transforms found, each with the smallest program that showed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, _core, library
from pydispatch.exceptions import OverrideWarning, VmapError
from pydispatch.func import jvp, vmap

X = np.array(2.0)


# --- views and aliases -----------------------------------------------------------------------------------------------


def view_of_tracked_memory() -> Tensor:
    """A view that was made before its memory was written to, and that nobody has looked at since."""
    base = Tensor(np.zeros(3))
    view = base[0:2]
    x = Tensor(np.ones(3))
    x.requires_grad = True
    base[:] = x * 2
    return view


def test_a_view_that_became_tracked_is_no_constant_to_a_batch() -> None:
    view = view_of_tracked_memory()
    result = vmap(lambda row: row * view)(np.ones((4, 2)))
    assert isinstance(result, Tensor)
    assert result.requires_grad


@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_tangents_are_in_memory_of_their_own(wrap: Callable[[Any], Any]) -> None:
    given = np.arange(3.0)
    tangents = jvp(lambda x: (x + 1, x + 2), (wrap(np.ones(3)),), (wrap(given),))[1]
    first, second = [np.asarray(tangent) for tangent in tangents]
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, given)
    assert not np.shares_memory(second, given)
    one = jvp(lambda x: x + 1, (wrap(np.ones(3)),), (wrap(given),))[1]
    assert not np.shares_memory(np.asarray(one), given)


def test_tangents_of_several_outputs_are_values_of_the_level_around() -> None:
    rows = np.arange(6.0).reshape(2, 3)
    found = vmap(lambda row: jvp(lambda x: (x + 1, x + 2), (row,), (row,))[1][1])(rows)
    np.testing.assert_array_equal(found, rows)
    tangents = jvp(lambda x: (x, x * 2), (np.float64(3.0),), (X,))[1]
    assert [type(tangent) for tangent in tangents] == [np.ndarray, np.ndarray]


# --- what is no batch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [np.array(3.0), np.float64(3.0), np.ones(7)], ids=["0-d", "scalar", "other size"])
def test_a_kernel_that_loses_the_batch_is_refused(result: Any) -> None:
    with pytest.warns(OverrideWarning):
        handle = library.register_kernel("np::add", "CPU", lambda x1, x2, **options: result)
    try:
        with pytest.raises(VmapError, match="batch of 2"):
            vmap(lambda x: x + x)(np.ones((2, 3)))
    finally:
        handle.remove()


def test_a_batch_has_an_axis() -> None:
    with pytest.raises(VmapError, match="batch of 2"):
        _core.wrap_value_at(_core.Vmap(2), np.array(3.0))
