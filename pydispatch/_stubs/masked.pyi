# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, OpOverloadPacket, Tensor
from pydispatch._stubs.arrays import OtherArray

_T = TypeVar("_T")
_Number: TypeAlias = complex | np.generic
_Raw: TypeAlias = NDArray[Any] | _Number
_Value: TypeAlias = Tensor | OtherArray | _Raw


@final
class _filled(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, value: _Number) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, value: _Number) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, value: _Number) -> Any: ...

@final
class _mask(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

@final
class _with_mask(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, data: Tensor, mask: _Value) -> Tensor: ...
    @overload
    def __call__(self, data: _Value, mask: Tensor) -> Tensor: ...
    @overload
    def __call__(self, data: _Raw, mask: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, data: _Value, mask: _Value) -> Any: ...

class Operators:
    """The operators of masked."""

    filled: _filled
    mask: _mask
    with_mask: _with_mask
