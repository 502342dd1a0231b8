"""The inspection of a namespace under the Python array API standard.

Source: "Python array API standard", version 2025.12, section "Inspection".
"""

from __future__ import annotations

from typing import Any

import numpy as np

API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")

KINDS = {
    "bool": ("bool",), "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"), "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
KINDS |= {
    "integral": KINDS["signed integer"] + KINDS["unsigned integer"],
    "numeric": (*KINDS["signed integer"], *KINDS["unsigned integer"], *KINDS["real floating"],
                *KINDS["complex floating"]),
}
"""The dtypes of the standard, by the kinds that it groups them in."""


def check_device(name: str, device: Any) -> None:
    """Raise ValueError for a device other than NumPy's, which is "cpu" for its arrays and "CPU" for Tensors."""
    if device not in (None, "cpu", "CPU"):
        raise ValueError(f'{name}: argument device is {device!r}, but NumPy has only "cpu"')


class ArrayNamespaceInfo:
    """The capabilities of `pydispatch.numpy`: `__array_namespace_info__()` of the array API standard."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def capabilities(self) -> dict[str, Any]:
        """Return whether each optional behaviour of the standard is available."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Return the device of new arrays."""
        return self.device

    def devices(self) -> tuple[str, ...]:
        """Return all devices."""
        return (self.device,)

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes of arrays made without one."""
        check_device("__array_namespace_info__", device)
        return {"real floating": np.dtype(float), "complex floating": np.dtype(complex), "integral": np.dtype(int),
                "indexing": np.dtype(np.intp)}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """Return the dtypes by name, all or those of one kind, or of several in a tuple.

        Raises ValueError for an unknown kind.
        """
        check_device("__array_namespace_info__", device)
        kinds = tuple(KINDS) if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in kinds:
            if each not in KINDS:
                raise ValueError(f"__array_namespace_info__().dtypes: argument kind is {each!r}, expected one of "
                                 f"{', '.join(KINDS)}")
        return {name: np.dtype(name) for each in kinds for name in KINDS[each]}
