# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value


class _filled(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, value: _Number) -> _Array: ...
    @overload
    def __call__(self, a: _Value, value: _Number) -> Any: ...

class _mask(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> _Array: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class _with_mask(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class Operators:
    """The operators of masked."""

    filled: _filled
    mask: _mask
    with_mask: _with_mask
