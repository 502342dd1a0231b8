"""The sparse arrays of the library `sparse`, of any number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import sparse

from pydispatch.backends.sparse import kernels  # noqa: F401  for these arrays too
from pydispatch.backends.sparse.layouts import add_layout


class PyDataLayout:
    """COO as it is; other formats by way of COO."""

    def values_of(self, array: Any) -> np.ndarray:
        """The stored values, of shape (n,)."""
        return indexed(array).data

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Where they are: for each axis, an array of shape (n,)."""
        return tuple(indexed(array).coords)

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """An array with other values at the same places, which shares them with `array`."""
        return sparse.COO(indexed(array).coords, values, shape=array.shape, has_duplicates=False, sorted=True)

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """A new array; values at one place are added."""
        return sparse.COO(np.stack(coordinates), values, shape=shape)

    def to_dense(self, array: Any) -> np.ndarray:
        """The array with its zeros."""
        return array.todense()

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """The elements at these places, 0 where no value is stored."""
        stored = np.ravel_multi_index(self.coordinates_of(array), array.shape)
        wanted = np.ravel_multi_index(coordinates, array.shape)
        values = np.append(self.values_of(array), 0)
        place = np.searchsorted(stored, wanted)
        is_there = np.append(stored, -1)[place] == wanted
        return values[np.where(is_there, place, -1)]


def indexed(array: Any) -> sparse.COO:
    """The array as COO, its places in order; those with another fill value than 0 are no sparse arrays here."""
    found = array if isinstance(array, sparse.COO) else array.asformat("coo")
    if found.fill_value != 0:
        raise ValueError(f"the sparse array has the fill value {found.fill_value}, expected 0\n"
                         "make it dense: array.todense()")
    return found


add_layout(sparse.SparseArray, PyDataLayout())
