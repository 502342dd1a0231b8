"""What the stubs of all operators share: their arrays, and the base of their packets."""

from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from pydispatch._core import OpOverload, OpOverloadPacket, Tensor

class OtherArray(Protocol):
    """An array of another library, which operators accept in addition to Tensors and NumPy arrays."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...

_T = TypeVar("_T")
_Array = TypeVar("_Array", Tensor, NDArray[Any])
_Out = TypeVar("_Out", bound=Tensor | NDArray[Any])
_Number: TypeAlias = complex | np.generic
_Raw: TypeAlias = NDArray[Any] | _Number
_Value: TypeAlias = Tensor | OtherArray | _Raw

class Packet(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
