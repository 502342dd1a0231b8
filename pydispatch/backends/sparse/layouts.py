"""What operators ask of sparse arrays, whatever library they are of."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError
from pydispatch.keys import register_array_type


class Layout(Protocol):
    """How the arrays of one library hold their values. The order of values is that of `values_of`, throughout."""

    def values_of(self, array: Any) -> np.ndarray:
        """The stored values, of shape (n,)."""

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Where they are: for each axis, an array of shape (n,)."""

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """An array with other values at the same places, which shares them with `array`."""

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """A new array; values at one place are added."""

    def to_dense(self, array: Any) -> np.ndarray:
        """The array with its zeros."""

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """The elements at these places, 0 where no value is stored."""


LAYOUTS: dict[type, Layout] = {}
"""By class of arrays, for the subclasses too."""


def add_layout(array_type: type, layout: Layout) -> None:
    """Arrays of this type are sparse arrays of NumPy's backend, which a user may have said before."""
    LAYOUTS[array_type] = layout
    if not _core.registered_word(array_type):
        register_array_type(array_type, "CPU", "Sparse")


def layout_of(array: Any, operator: str, argument: str) -> Layout:
    """That of a sparse array; DispatchTypeError for any other value."""
    for cls in type(array).__mro__:
        if cls in LAYOUTS:
            return LAYOUTS[cls]
    raise DispatchTypeError(f"{operator}: argument {argument} is {type(array).__name__}, expected a sparse array\n"
                            "make one: scipy.sparse.csr_array(...)")


def is_sparse(value: Any) -> bool:
    """Is this a sparse array, no Tensor?"""
    return any(cls in LAYOUTS for cls in type(value).__mro__)
