# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value


class _from_values(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _to_dense(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> _Array: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class Operators:
    """The operators of sparse."""

    from_values: _from_values
    product: _from_values
    sample: _from_values
    to_dense: _to_dense
    values: _to_dense
