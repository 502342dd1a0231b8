"""SciPy's sparse arrays."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from pydispatch.backends.sparse.layouts import add_layout


class SciPyLayout:
    """CSR, CSC and COO as they are; other formats by way of CSR."""

    def values_of(self, array: Any) -> np.ndarray:
        """The stored values, of shape (n,)."""
        return indexed(array).data

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Where they are: for each axis, an array of shape (n,)."""
        return tuple(indexed(array).tocoo(copy=False).coords)

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """An array with other values at the same places, which shares them with `array`."""
        found = copy(indexed(array))
        found.data = values
        return found

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """A new array; values at one place are added."""
        found = sparse.coo_array((values, coordinates), shape=shape)
        return found.tocsr() if len(shape) == 2 else found

    def to_dense(self, array: Any) -> np.ndarray:
        """The array with its zeros."""
        return array.toarray()

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """The elements at these places, 0 where no value is stored."""
        found = array.tocsr()[coordinates]
        return found.toarray() if sparse.issparse(found) else np.asarray(found)


def indexed(array: Any) -> Any:
    """The array in a format with one value for each place that it names."""
    return array if array.format in ("csr", "csc", "coo") else array.tocsr()


add_layout(sparse.sparray, SciPyLayout())
