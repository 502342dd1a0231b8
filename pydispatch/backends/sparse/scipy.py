"""The sparse arrays of `scipy.sparse`."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from pydispatch.backends.sparse.layouts import add_layout


class SciPyLayout:
    """The layout of CSR, CSC and COO as they are, and of other formats by conversion to CSR."""

    def values_of(self, array: Any) -> np.ndarray:
        """Return the stored values, of shape (n,)."""
        return indexed(array).data

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Return the positions of the stored values: for each axis, an array of shape (n,)."""
        return tuple(indexed(array).tocoo(copy=False).coords)

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """Return an array with other values at the same positions. It shares the positions with `array`."""
        found = copy(indexed(array))
        found.data = values
        return found

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Make an array of values at coordinates. Values at the same position are added."""
        found = sparse.coo_array((values, coordinates), shape=shape)
        return found.tocsr() if len(shape) == 2 else found

    def to_dense(self, array: Any) -> np.ndarray:
        """Return the dense array, with its zeros."""
        return array.toarray()

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the elements at these positions, 0 where no value is stored."""
        found = array.tocsr()[coordinates]
        return found.toarray() if sparse.issparse(found) else np.asarray(found)


def indexed(array: Any) -> Any:
    """Return the array in a format that stores one value for each position."""
    return array if array.format in ("csr", "csc", "coo") else array.tocsr()


add_layout(sparse.sparray, SciPyLayout())
