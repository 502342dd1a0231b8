# Written by `python -m pydispatch stubs`.
# ruff: noqa

from collections.abc import Sequence
from typing import Any, overload

from numpy.typing import DTypeLike, NDArray

from pydispatch._core import OpOverload, Tensor
from pydispatch._stubs.arrays import Packet, _Array, _Number, _Raw, _T, _Value


class _absolute(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, x: _Array, *, dtype: DTypeLike | None = ..., casting: str = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, *, dtype: DTypeLike | None = ..., casting: str = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, x: _Value, *, dtype: DTypeLike | None = ..., casting: str = ...) -> Any: ...

class _absolute_(Packet):  # type: ignore[misc]
    def __call__(self, x: _T, *, dtype: DTypeLike | None = ..., casting: str = ...) -> _T: ...

class _add(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, x1: Tensor, x2: _Value, *, dtype: DTypeLike | None = ..., casting: str = ...) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, *, dtype: DTypeLike | None = ..., casting: str = ...) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, *, dtype: DTypeLike | None = ..., casting: str = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, *, dtype: DTypeLike | None = ..., casting: str = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, *, dtype: DTypeLike | None = ..., casting: str = ...) -> Any: ...

class _add_(Packet):  # type: ignore[misc]
    def __call__(self, x1: _T, x2: _Value, *, dtype: DTypeLike | None = ..., casting: str = ...) -> _T: ...

class _all(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., where: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., where: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., where: _Value | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., where: _Value | None = ...) -> Any: ...

class _arange(Packet):  # type: ignore[misc]
    def __call__(self, start_or_stop: _Number, stop: _Number | None = ..., step: _Number = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...

class _argmax(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: _Array, axis: int | None = ..., *, keepdims: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | None = ..., *, keepdims: bool = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | None = ..., *, keepdims: bool = ...) -> Any: ...

class _argpartition(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, kth: int | Sequence[int], axis: int | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, kth: int | Sequence[int], axis: int | None = ...) -> Any: ...

class _argsort(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axis: int | None = ..., kind: str | None = ..., *, stable: bool | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | None = ..., kind: str | None = ..., *, stable: bool | None = ...) -> Any: ...

class _astype(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, dtype: DTypeLike, *, copy: bool = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, dtype: DTypeLike, *, copy: bool = ...) -> Any: ...

class _broadcast_to(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, array: _Array, shape: int | Sequence[int]) -> _Array: ...
    @overload
    def __call__(self, array: _Value, shape: int | Sequence[int]) -> Any: ...

class _clip(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, a_min: _Value | None = ..., a_max: _Value | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., min: _Value | None = ..., max: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, a_min: _Raw | None = ..., a_max: _Raw | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., min: _Raw | None = ..., max: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, a_min: _Value | None = ..., a_max: _Value | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., min: _Value | None = ..., max: _Value | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, a_min: _Value | None = ..., a_max: _Value | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., min: _Value | None = ..., max: _Value | None = ...) -> Any: ...

class _clip_(Packet):  # type: ignore[misc]
    def __call__(self, a: _T, a_min: _Value | None = ..., a_max: _Value | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., min: _Value | None = ..., max: _Value | None = ...) -> _T: ...

class _complex(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _concatenate(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, arrays: Sequence[_Array], axis: int | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ...) -> _Array: ...
    @overload
    def __call__(self, arrays: Sequence[_Value], axis: int | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, arrays: Sequence[_Value], axis: int | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ...) -> Any: ...

class _convolve(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, v: _Value, mode: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, v: Tensor, mode: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, v: _Raw, mode: str = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, v: _Value, mode: str = ...) -> Any: ...

class _copy(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> _Array: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class _covariance(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, divisor: _Number) -> _Array: ...
    @overload
    def __call__(self, a: _Value, divisor: _Number) -> Any: ...

class _cumprod(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: _Array, axis: int | None = ..., dtype: DTypeLike | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | None = ..., dtype: DTypeLike | None = ..., *, out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | None = ..., dtype: DTypeLike | None = ...) -> Any: ...

class _diagonal(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, offset: int = ..., axis1: int = ..., axis2: int = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, offset: int = ..., axis1: int = ..., axis2: int = ...) -> Any: ...

class _einsum(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, subscripts: str, x1: Tensor, x2: _Value | None = ..., others: Sequence[_Value] | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., optimize: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, subscripts: str, x1: _Raw, x2: _Raw | None = ..., others: Sequence[_Raw] | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., optimize: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, subscripts: str, x1: _Value, x2: _Value | None = ..., others: Sequence[_Value] | None = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., optimize: bool = ...) -> Any: ...

class _empty(Packet):  # type: ignore[misc]
    def __call__(self, shape: int | Sequence[int], *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...

class _empty_like(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, prototype: _Array, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, prototype: _Value, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _expand_dims(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axis: int | Sequence[int]) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int]) -> Any: ...

class _eye(Packet):  # type: ignore[misc]
    def __call__(self, N: int, M: int | None = ..., k: int = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...

class _fft_fft(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, n: int | None = ..., axis: int = ..., norm: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, n: int | None = ..., axis: int = ..., norm: str | None = ...) -> Any: ...

class _flip(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, m: _Array, axis: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, m: _Value, axis: int | Sequence[int] | None = ...) -> Any: ...

class _frexp_exponent(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array) -> _Array: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

class _full(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, shape: int | Sequence[int], fill_value: _Array, *, dtype: DTypeLike | None = ..., device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, shape: int | Sequence[int], fill_value: _Value, *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _full_like(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, fill_value: _Value, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, fill_value: Tensor, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, fill_value: _Raw, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, fill_value: _Value, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _getitem(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, key: Any) -> _Array: ...
    @overload
    def __call__(self, x: _Value, key: Any) -> Any: ...

class _i0_derivative(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, order: int = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, order: int = ...) -> Any: ...

class _imag(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, val: _Array) -> _Array: ...
    @overload
    def __call__(self, val: _Value) -> Any: ...

class _index_put(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: Tensor, key: Any, values: _Value, *, accumulate: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, key: Any, values: Tensor, *, accumulate: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, key: Any, values: _Raw, *, accumulate: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, key: Any, values: _Value, *, accumulate: bool = ...) -> Any: ...

class _index_put_(Packet):  # type: ignore[misc]
    def __call__(self, x: _T, key: Any, values: _Value, *, accumulate: bool = ...) -> _T: ...

class _interp(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: Tensor, xp: _Value, fp: _Value, left: _Value | None = ..., right: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, xp: Tensor, fp: _Value, left: _Value | None = ..., right: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, xp: _Value, fp: Tensor, left: _Value | None = ..., right: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, xp: _Raw, fp: _Raw, left: _Raw | None = ..., right: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, xp: _Value, fp: _Value, left: _Value | None = ..., right: _Value | None = ...) -> Any: ...

class _item(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> Any: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class _linalg_cholesky(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, *, upper: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, *, upper: bool = ...) -> Any: ...

class _linalg_eig(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, a: _Value) -> Any: ...

class _linalg_eigh(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, UPLO: str = ...) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, a: _Value, UPLO: str = ...) -> Any: ...

class _linalg_eigvalsh(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, UPLO: str = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, UPLO: str = ...) -> Any: ...

class _linalg_pinv(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, rcond: float | None = ..., hermitian: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, rcond: float | None = ..., hermitian: bool = ...) -> Any: ...

class _linalg_qr(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, mode: str = ...) -> tuple[_Array, _Array]: ...
    @overload
    def __call__(self, a: _Value, mode: str = ...) -> Any: ...

class _linalg_solve_with(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, b: _Value, *, transposed: bool = ..., lower: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, *, transposed: bool = ..., lower: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, *, transposed: bool = ..., lower: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, *, transposed: bool = ..., lower: bool = ...) -> Any: ...

class _linalg_spectral(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, pair: _Array, UPLO: str = ...) -> _Array: ...
    @overload
    def __call__(self, pair: _Value, UPLO: str = ...) -> Any: ...

class _linalg_svd(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, full_matrices: bool = ..., hermitian: bool = ...) -> tuple[_Array, _Array, _Array]: ...
    @overload
    def __call__(self, a: _Value, full_matrices: bool = ..., hermitian: bool = ...) -> Any: ...

class _linalg_svdvals(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, hermitian: bool = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, hermitian: bool = ...) -> Any: ...

class _linalg_vector_norm(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, axis: int | Sequence[int] | None = ..., ord: _Number = ..., *, keepdims: bool = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, axis: int | Sequence[int] | None = ..., ord: _Number = ..., *, keepdims: bool = ...) -> Any: ...

class _linspace(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, start: Tensor, stop: _Value, num: int = ..., endpoint: bool = ..., *, axis: int = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, start: _Value, stop: Tensor, num: int = ..., endpoint: bool = ..., *, axis: int = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, start: _Raw, stop: _Raw, num: int = ..., endpoint: bool = ..., *, axis: int = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, start: _Value, stop: _Value, num: int = ..., endpoint: bool = ..., *, axis: int = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _max(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ...) -> Any: ...

class _mean(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., where: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., where: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., where: _Value | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., where: _Value | None = ...) -> Any: ...

class _moveaxis(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, source: int | Sequence[int], destination: int | Sequence[int]) -> _Array: ...
    @overload
    def __call__(self, a: _Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Any: ...

class _ones_like(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, *, shape: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _prod(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, keepdims: bool = ..., initial: _Number | None = ..., where: _Value | None = ...) -> Any: ...

class _random_beta(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: Tensor, x2: _Value, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Value, x2: Tensor, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Raw, x2: _Raw, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_beta_slope(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x1: Tensor, x2: _Value, x3: _Value, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, x3: _Value, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: Tensor, x4: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: _Value, x4: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, x3: _Raw, x4: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class _random_chisquare(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_choice(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, a: int, size: int | Sequence[int] | None = ..., replace: bool = ..., p: _Raw | None = ..., shuffle: bool = ..., *, device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, a: int, size: int | Sequence[int] | None = ..., replace: bool = ..., p: _Value | None = ..., shuffle: bool = ..., *, device: str | None = ...) -> Any: ...

class _random_copy(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any) -> Any: ...

class _random_default_rng(Packet):  # type: ignore[misc]
    def __call__(self, seed: Any = ...) -> Any: ...

class _random_dirichlet(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /, size: int | Sequence[int] | None = ..., *, device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_exponential(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, scale: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, scale: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_gamma(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, shape: Tensor, scale: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, shape: _Raw, scale: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, shape: _Value, scale: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_gumbel(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, loc: _Raw | None = ..., scale: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, loc: _Value | None = ..., scale: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_hypergeometric(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: Tensor, x2: _Value, x3: _Value, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Value, x2: Tensor, x3: _Value, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Value, x2: _Value, x3: Tensor, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Raw, x2: _Raw, x3: _Raw, /, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_integers(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, low: Tensor, high: _Value | None = ..., size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, endpoint: bool = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, low: _Raw, high: _Raw | None = ..., size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, endpoint: bool = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, low: _Value, high: _Value | None = ..., size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, endpoint: bool = ..., device: str | None = ...) -> Any: ...

class _random_lognormal(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, mean: _Raw | None = ..., sigma: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, mean: _Value | None = ..., sigma: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_multinomial(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: Tensor, x2: _Value, /, size: int | Sequence[int] | None = ..., *, device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Value, x2: Tensor, /, size: int | Sequence[int] | None = ..., *, device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Raw, x2: _Raw, /, size: int | Sequence[int] | None = ..., *, device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_multivariate_hypergeometric(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /, nsample: int, size: int | Sequence[int] | None = ..., method: str = ..., *, device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_multivariate_normal(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: Tensor, x2: _Value, /, size: int | Sequence[int] | None = ..., check_valid: str = ..., tol: float = ..., *, method: str = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Value, x2: Tensor, /, size: int | Sequence[int] | None = ..., check_valid: str = ..., tol: float = ..., *, method: str = ..., device: str | None = ...) -> Tensor: ...
    @overload
    def __call__(self, generator: Any, x1: _Raw, x2: _Raw, /, size: int | Sequence[int] | None = ..., check_valid: str = ..., tol: float = ..., *, method: str = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_normal_like(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, generator: Any, loc: _Value | None = ..., scale: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, generator: Any, loc: _Raw | None = ..., scale: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, generator: Any, loc: _Value | None = ..., scale: _Value | None = ...) -> Any: ...

class _random_normal_like_(Packet):  # type: ignore[misc]
    def __call__(self, a: _T, generator: Any, loc: _Value | None = ..., scale: _Value | None = ...) -> _T: ...

class _random_orders(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any, shape: int | Sequence[int], axis: int = ..., *, device: str | None = ...) -> NDArray[Any]: ...

class _random_permutation(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /, axis: int = ..., *, device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_poisson(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, lam: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, lam: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_random(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any, size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, device: str | None = ...) -> NDArray[Any]: ...

class _random_restored(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /) -> Any: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_standard_cauchy(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any, size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...

class _random_standard_exponential(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any, size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., method: str = ..., *, device: str | None = ...) -> NDArray[Any]: ...

class _random_standard_gamma(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, x1: _Array, /, size: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, device: str | None = ...) -> _Array: ...
    @overload
    def __call__(self, generator: Any, *values: Any, **named: Any) -> Any: ...

class _random_state(Packet):  # type: ignore[misc]
    def __call__(self, generator: Any) -> NDArray[Any]: ...

class _random_uniform(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, generator: Any, low: _Raw | None = ..., high: _Raw | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, generator: Any, low: _Value | None = ..., high: _Value | None = ..., size: int | Sequence[int] | None = ..., *, dtype: DTypeLike | None = ..., device: str | None = ...) -> Any: ...

class _random_uniform_like(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, generator: Any, low: _Value | None = ..., high: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, generator: Any, low: _Raw | None = ..., high: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, generator: Any, low: _Value | None = ..., high: _Value | None = ...) -> Any: ...

class _random_uniform_like_(Packet):  # type: ignore[misc]
    def __call__(self, a: _T, generator: Any, low: _Value | None = ..., high: _Value | None = ...) -> _T: ...

class _repeat(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, repeats: int | Sequence[int], axis: int | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, repeats: int | Sequence[int], axis: int | None = ...) -> Any: ...

class _reshape(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, shape: int | Sequence[int], *, copy: bool | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, shape: int | Sequence[int], *, copy: bool | None = ...) -> Any: ...

class _roll(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, shift: int | Sequence[int], axis: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, shift: int | Sequence[int], axis: int | Sequence[int] | None = ...) -> Any: ...

class _round(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: _Array, decimals: int = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, decimals: int = ..., *, out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, decimals: int = ...) -> Any: ...

class _round_(Packet):  # type: ignore[misc]
    def __call__(self, a: _T, decimals: int = ...) -> _T: ...

class _scatter_add(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: Tensor, indices: _Value, values: _Value, axis: int) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, indices: Tensor, values: _Value, axis: int) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, indices: _Value, values: Tensor, axis: int) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, indices: _Raw, values: _Raw, axis: int) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, indices: _Value, values: _Value, axis: int) -> Any: ...

class _scatter_add_(Packet):  # type: ignore[misc]
    def __call__(self, x: _T, indices: _Value, values: _Value, axis: int) -> _T: ...

class _searchsorted(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, v: _Value, side: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, v: Tensor, side: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, v: _Raw, side: str = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, v: _Value, side: str = ...) -> Any: ...

class _setitem(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: Tensor, key: Any, value: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, key: Any, value: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, key: Any, value: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, key: Any, value: _Value) -> Any: ...

class _setitem_(Packet):  # type: ignore[misc]
    def __call__(self, x: _T, key: Any, value: _Value) -> _T: ...

class _slice_sums(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: Tensor, indices: _Value, axis: int = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, indices: Tensor, axis: int = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, indices: _Raw, axis: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, indices: _Value, axis: int = ...) -> Any: ...

class _slices_filled(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, g: Tensor, indices: _Value, n: int, axis: int = ...) -> Tensor: ...
    @overload
    def __call__(self, g: _Value, indices: Tensor, n: int, axis: int = ...) -> Tensor: ...
    @overload
    def __call__(self, g: _Raw, indices: _Raw, n: int, axis: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, g: _Value, indices: _Value, n: int, axis: int = ...) -> Any: ...

class _sliding_window_view(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, x: _Array, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, x: _Value, window_shape: int | Sequence[int], axis: int | Sequence[int] | None = ...) -> Any: ...

class _split(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, ary: _Array, indices_or_sections: int | int | Sequence[int], axis: int = ...) -> tuple[_Array, ...]: ...
    @overload
    def __call__(self, ary: _Value, indices_or_sections: int | int | Sequence[int], axis: int = ...) -> Any: ...

class _squeeze(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axis: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ...) -> Any: ...

class _stack(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, arrays: Sequence[_Array], axis: int = ..., *, dtype: DTypeLike | None = ..., casting: str = ...) -> _Array: ...
    @overload
    def __call__(self, arrays: Sequence[_Value], axis: int = ..., *, dtype: DTypeLike | None = ..., casting: str = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, arrays: Sequence[_Value], axis: int = ..., *, dtype: DTypeLike | None = ..., casting: str = ...) -> Any: ...

class _std(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, ddof: _Number = ..., keepdims: bool = ..., where: _Value | None = ..., mean: _Value | None = ..., correction: _Number | None = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, ddof: _Number = ..., keepdims: bool = ..., where: _Raw | None = ..., mean: _Raw | None = ..., correction: _Number | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, ddof: _Number = ..., keepdims: bool = ..., where: _Value | None = ..., mean: _Value | None = ..., correction: _Number | None = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., dtype: DTypeLike | None = ..., *, ddof: _Number = ..., keepdims: bool = ..., where: _Value | None = ..., mean: _Value | None = ..., correction: _Number | None = ...) -> Any: ...

class _swapaxes(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axis1: int, axis2: int) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axis1: int, axis2: int) -> Any: ...

class _take(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, a: Tensor, indices: _Value, axis: int | None = ..., *, mode: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, indices: Tensor, axis: int | None = ..., *, mode: str = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, indices: _Raw, axis: int | None = ..., *, mode: str = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, indices: _Value, axis: int | None = ..., *, mode: str = ..., out: _T) -> _T: ...
    @overload
    def __call__(self, a: _Value, indices: _Value, axis: int | None = ..., *, mode: str = ...) -> Any: ...

class _take_along_axis(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, arr: Tensor, indices: _Value, axis: int | None = ...) -> Tensor: ...
    @overload
    def __call__(self, arr: _Value, indices: Tensor, axis: int | None = ...) -> Tensor: ...
    @overload
    def __call__(self, arr: _Raw, indices: _Raw, axis: int | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, arr: _Value, indices: _Value, axis: int | None = ...) -> Any: ...

class _tile(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, A: _Array, reps: int | Sequence[int]) -> _Array: ...
    @overload
    def __call__(self, A: _Value, reps: int | Sequence[int]) -> Any: ...

class _transpose(Packet):  # type: ignore[misc]
    @overload
    def __call__(self, a: _Array, axes: int | Sequence[int] | None = ...) -> _Array: ...
    @overload
    def __call__(self, a: _Value, axes: int | Sequence[int] | None = ...) -> Any: ...

class _where(Packet):  # type: ignore[misc]
    out: OpOverload
    @overload
    def __call__(self, x1: Tensor, x2: _Value, x3: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: Tensor, x3: _Value, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Value, x2: _Value, x3: Tensor, /) -> Tensor: ...
    @overload
    def __call__(self, x1: _Raw, x2: _Raw, x3: _Raw, /) -> NDArray[Any]: ...
    @overload
    def __call__(self, condition: _Value, x: _Value, y: _Value, *, out: _T) -> _T: ...
    @overload
    def __call__(self, *arrays: _Value, **named: _Value) -> Any: ...

class Operators:
    """The operators of np."""

    absolute: _absolute
    absolute_: _absolute_
    add: _add
    add_: _add_
    all: _all
    any: _all
    arange: _arange
    arccos: _absolute
    arccos_: _absolute_
    arccosh: _absolute
    arccosh_: _absolute_
    arcsin: _absolute
    arcsin_: _absolute_
    arcsinh: _absolute
    arcsinh_: _absolute_
    arctan: _absolute
    arctan2: _add
    arctan2_: _add_
    arctan_: _absolute_
    arctanh: _absolute
    arctanh_: _absolute_
    argmax: _argmax
    argmin: _argmax
    argpartition: _argpartition
    argsort: _argsort
    astype: _astype
    bitwise_and: _add
    bitwise_and_: _add_
    bitwise_count: _absolute
    bitwise_count_: _absolute_
    bitwise_or: _add
    bitwise_or_: _add_
    bitwise_xor: _add
    bitwise_xor_: _add_
    broadcast_to: _broadcast_to
    cbrt: _absolute
    cbrt_: _absolute_
    ceil: _absolute
    ceil_: _absolute_
    clip: _clip
    clip_: _clip_
    complex: _complex
    concatenate: _concatenate
    conjugate: _absolute
    conjugate_: _absolute_
    convolve: _convolve
    copy: _copy
    copysign: _add
    copysign_: _add_
    cos: _absolute
    cos_: _absolute_
    cosh: _absolute
    cosh_: _absolute_
    covariance: _covariance
    cumprod: _cumprod
    cumsum: _cumprod
    deg2rad: _absolute
    deg2rad_: _absolute_
    degrees: _absolute
    degrees_: _absolute_
    detach: _copy
    diagonal: _diagonal
    divide: _add
    divide_: _add_
    einsum: _einsum
    empty: _empty
    empty_like: _empty_like
    equal: _add
    exp: _absolute
    exp2: _absolute
    exp2_: _absolute_
    exp_: _absolute_
    expand_dims: _expand_dims
    expm1: _absolute
    expm1_: _absolute_
    eye: _eye
    fabs: _absolute
    fabs_: _absolute_
    fft_fft: _fft_fft
    fft_ifft: _fft_fft
    fft_irfft: _fft_fft
    fft_rfft: _fft_fft
    flip: _flip
    float_power: _add
    float_power_: _add_
    floor: _absolute
    floor_: _absolute_
    floor_divide: _add
    floor_divide_: _add_
    fmax: _add
    fmax_: _add_
    fmin: _add
    fmin_: _add_
    fmod: _add
    fmod_: _add_
    frexp_exponent: _frexp_exponent
    frexp_mantissa: _frexp_exponent
    full: _full
    full_like: _full_like
    gcd: _add
    gcd_: _add_
    getitem: _getitem
    greater: _add
    greater_equal: _add
    heaviside: _add
    heaviside_: _add_
    hypot: _add
    hypot_: _add_
    i0: _frexp_exponent
    i0_derivative: _i0_derivative
    imag: _imag
    index: _getitem
    index_put: _index_put
    index_put_: _index_put_
    interp: _interp
    interval: _complex
    invert: _absolute
    invert_: _absolute_
    isfinite: _absolute
    isinf: _absolute
    isnan: _absolute
    item: _item
    lcm: _add
    lcm_: _add_
    ldexp: _add
    ldexp_: _add_
    left_shift: _add
    left_shift_: _add_
    less: _add
    less_equal: _add
    linalg_cholesky: _linalg_cholesky
    linalg_cofactor: _copy
    linalg_cofactor_slope: _complex
    linalg_det: _copy
    linalg_eig: _linalg_eig
    linalg_eigenspace_basis: _complex
    linalg_eigh: _linalg_eigh
    linalg_eigvals: _copy
    linalg_eigvalsh: _linalg_eigvalsh
    linalg_inv: _copy
    linalg_pinv: _linalg_pinv
    linalg_qr: _linalg_qr
    linalg_slogdet: _linalg_eig
    linalg_solve: _complex
    linalg_solve_with: _linalg_solve_with
    linalg_spectral: _linalg_spectral
    linalg_svd: _linalg_svd
    linalg_svdvals: _linalg_svdvals
    linalg_vector_norm: _linalg_vector_norm
    linspace: _linspace
    log: _absolute
    log10: _absolute
    log10_: _absolute_
    log1p: _absolute
    log1p_: _absolute_
    log2: _absolute
    log2_: _absolute_
    log_: _absolute_
    logaddexp: _add
    logaddexp2: _add
    logaddexp2_: _add_
    logaddexp_: _add_
    logical_and: _add
    logical_and_: _add_
    logical_not: _absolute
    logical_not_: _absolute_
    logical_or: _add
    logical_or_: _add_
    logical_xor: _add
    logical_xor_: _add_
    matmul: _add
    matmul_: _add_
    max: _max
    maximum: _add
    maximum_: _add_
    mean: _mean
    min: _max
    minimum: _add
    minimum_: _add_
    moveaxis: _moveaxis
    multiply: _add
    multiply_: _add_
    negative: _absolute
    negative_: _absolute_
    nextafter: _add
    nextafter_: _add_
    not_equal: _add
    ones: _empty
    ones_like: _ones_like
    positive: _absolute
    positive_: _absolute_
    power: _add
    power_: _add_
    prod: _prod
    rad2deg: _absolute
    rad2deg_: _absolute_
    radians: _absolute
    radians_: _absolute_
    random_beta: _random_beta
    random_beta_slope: _random_beta_slope
    random_binomial: _random_beta
    random_chisquare: _random_chisquare
    random_choice: _random_choice
    random_copy: _random_copy
    random_default_rng: _random_default_rng
    random_dirichlet: _random_dirichlet
    random_exponential: _random_exponential
    random_f: _random_beta
    random_gamma: _random_gamma
    random_gamma_slope: _complex
    random_geometric: _random_chisquare
    random_gumbel: _random_gumbel
    random_hypergeometric: _random_hypergeometric
    random_integers: _random_integers
    random_laplace: _random_gumbel
    random_logistic: _random_gumbel
    random_lognormal: _random_lognormal
    random_logseries: _random_chisquare
    random_multinomial: _random_multinomial
    random_multivariate_hypergeometric: _random_multivariate_hypergeometric
    random_multivariate_normal: _random_multivariate_normal
    random_negative_binomial: _random_beta
    random_noncentral_chisquare: _random_beta
    random_noncentral_f: _random_hypergeometric
    random_normal: _random_gumbel
    random_normal_like: _random_normal_like
    random_normal_like_: _random_normal_like_
    random_orders: _random_orders
    random_pareto: _random_chisquare
    random_permutation: _random_permutation
    random_poisson: _random_poisson
    random_polygamma: _i0_derivative
    random_power: _random_chisquare
    random_random: _random_random
    random_rayleigh: _random_exponential
    random_restored: _random_restored
    random_standard_cauchy: _random_standard_cauchy
    random_standard_exponential: _random_standard_exponential
    random_standard_gamma: _random_standard_gamma
    random_standard_normal: _random_random
    random_standard_t: _random_chisquare
    random_state: _random_state
    random_triangular: _random_hypergeometric
    random_uniform: _random_uniform
    random_uniform_like: _random_uniform_like
    random_uniform_like_: _random_uniform_like_
    random_vonmises: _random_beta
    random_wald: _random_beta
    random_weibull: _random_chisquare
    random_zipf: _random_chisquare
    ravel: _copy
    read_only: _copy
    real: _imag
    reciprocal: _absolute
    reciprocal_: _absolute_
    remainder: _add
    remainder_: _add_
    repeat: _repeat
    reshape: _reshape
    right_shift: _add
    right_shift_: _add_
    rint: _absolute
    rint_: _absolute_
    roll: _roll
    round: _round
    round_: _round_
    scatter_add: _scatter_add
    scatter_add_: _scatter_add_
    searchsorted: _searchsorted
    setitem: _setitem
    setitem_: _setitem_
    sign: _absolute
    sign_: _absolute_
    signbit: _absolute
    sin: _absolute
    sin_: _absolute_
    sinc: _frexp_exponent
    sinc_derivative: _i0_derivative
    sinh: _absolute
    sinh_: _absolute_
    slice_sums: _slice_sums
    slices_filled: _slices_filled
    sliding_window_view: _sliding_window_view
    sort: _argsort
    spacing: _absolute
    spacing_: _absolute_
    split: _split
    sqrt: _absolute
    sqrt_: _absolute_
    square: _absolute
    square_: _absolute_
    squeeze: _squeeze
    stack: _stack
    std: _std
    subtract: _add
    subtract_: _add_
    sum: _prod
    swapaxes: _swapaxes
    take: _take
    take_along_axis: _take_along_axis
    tan: _absolute
    tan_: _absolute_
    tanh: _absolute
    tanh_: _absolute_
    tile: _tile
    transpose: _transpose
    trunc: _absolute
    trunc_: _absolute_
    var: _std
    where: _where
    zeros: _empty
    zeros_like: _ones_like
