# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value


class _from_values(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, values: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, values: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, values: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, values: _Value) -> Any: ...

class _product(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, b: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value) -> Any: ...

class _sample(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, x: _Value) -> Any: ...

class _to_dense(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> _Array: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class Operators:
    """The operators of sparse."""

    from_values: _from_values
    product: _product
    sample: _sample
    to_dense: _to_dense
    values: _to_dense
