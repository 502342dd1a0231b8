"""The methods that operators require of sparse arrays, whichever library they come from."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from pydispatch import _core
from pydispatch.exceptions import DispatchTypeError
from pydispatch.keys import register_array_type


class Layout(Protocol):
    """The storage of values in the arrays of one library. All methods use the order of `values_of`."""

    def values_of(self, array: Any) -> np.ndarray:
        """Return the stored values, of shape (n,)."""

    def coordinates_of(self, array: Any) -> tuple[np.ndarray, ...]:
        """Return the positions of the stored values: for each axis, an array of shape (n,)."""

    def with_values(self, array: Any, values: np.ndarray) -> Any:
        """Return an array with other values at the same positions. It shares the positions with `array`."""

    def of_coordinates(self, coordinates: tuple[np.ndarray, ...], values: np.ndarray, shape: tuple[int, ...]) -> Any:
        """Make an array of values at coordinates. Values at the same position are added."""

    def to_dense(self, array: Any) -> np.ndarray:
        """Return the dense array, with its zeros."""

    def sample(self, array: Any, coordinates: tuple[np.ndarray, ...]) -> np.ndarray:
        """Return the elements at these positions, 0 where no value is stored."""


LAYOUTS: dict[type, Layout] = {}
"""The layout of each class of arrays, which its subclasses share."""


def add_layout(array_type: type, layout: Layout) -> None:
    """Register the layout of an array type. Register the type as sparse on NumPy's backend unless it is registered."""
    LAYOUTS[array_type] = layout
    if not _core.registered_word(array_type):
        register_array_type(array_type, "CPU", "Sparse")


def layout_of(array: Any, operator: str, argument: str) -> Layout:
    """Return the layout of a sparse array. Raise DispatchTypeError for any other value."""
    for cls in type(array).__mro__:
        if cls in LAYOUTS:
            return LAYOUTS[cls]
    raise DispatchTypeError(f"{operator}: argument {argument} is {type(array).__name__}, expected a sparse array\n"
                            "make one: scipy.sparse.csr_array(...)")


def is_sparse(value: Any) -> bool:
    """Return whether a value is a raw sparse array."""
    return any(cls in LAYOUTS for cls in type(value).__mro__)
