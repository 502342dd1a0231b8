"""Arrays of other libraries, which operators accept in addition to Tensors and NumPy arrays."""

from typing import Any, Protocol

class OtherArray(Protocol):
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
