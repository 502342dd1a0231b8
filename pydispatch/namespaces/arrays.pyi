"""What operators take beside Tensors and NumPy's arrays."""

from typing import Any, Protocol

class OtherArray(Protocol):
    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...
