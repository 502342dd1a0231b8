"""The sparse arrays of the library `sparse`, which have any number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import sparse

from pydispatch.backends.sparse import kernels  # noqa: F401  registers kernels, which serve these arrays too
from pydispatch.backends.sparse.layouts import add_layout


class PyDataLayout:
    """The layout of COO as it is, and of other formats by conversion to COO."""

    def values_of(self, array: Any) -> np.ndarray:
        """Return the stored values, of shape (n,)."""
        return indexed(array).data

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Return the positions of the stored values: for each axis, an array of shape (n,)."""
        return tuple(indexed(array).coords)

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """Return an array with other values at the same positions. It shares the positions with `array`."""
        return sparse.COO(indexed(array).coords, values, shape=array.shape, has_duplicates=False, sorted=True)

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Make an array of values at coordinates. Values at the same position are added."""
        return sparse.COO(np.stack(coordinates), values, shape=shape)

    def to_dense(self, array: Any) -> np.ndarray:
        """Return the dense array, with its zeros."""
        return array.todense()

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the elements at these positions, 0 where no value is stored."""
        stored = np.ravel_multi_index(self.coordinates_of(array), array.shape)
        wanted = np.ravel_multi_index(coordinates, array.shape)
        values = np.append(self.values_of(array), 0)
        place = np.searchsorted(stored, wanted)
        is_there = np.append(stored, -1)[place] == wanted
        return values[np.where(is_there, place, -1)]


def indexed(array: Any) -> sparse.COO:
    """Return the array as COO, its positions in order. Raise ValueError if its fill value is not 0."""
    found = array if isinstance(array, sparse.COO) else array.asformat("coo")
    if found.fill_value != 0:
        raise ValueError(f"the sparse array has the fill value {found.fill_value}, expected 0\n"
                         "make it dense: array.todense()")
    return found


add_layout(sparse.SparseArray, PyDataLayout())
