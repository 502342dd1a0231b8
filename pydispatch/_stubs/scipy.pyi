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
class _interpolate_closed(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, who: str) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, who: str) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, who: str) -> Any: ...

@final
class _linalg_cho_factor(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, lower: bool = ..., overwrite_a: bool = ..., check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, lower: bool = ..., overwrite_a: bool = ..., check_finite: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, lower: bool = ..., overwrite_a: bool = ..., check_finite: bool = ...) -> Any: ...

@final
class _linalg_det(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, check_finite: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, check_finite: bool = ...) -> Any: ...

@final
class _linalg_expm(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, A: Tensor) -> Tensor: ...
    @overload
    def __call__(self, A: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, A: _Value) -> Any: ...

@final
class _linalg_expm_direction(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, e: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, e: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, e: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, e: _Value) -> Any: ...

@final
class _linalg_lu_constant(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, overwrite_a: bool = ..., check_finite: bool = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, a: _Raw, overwrite_a: bool = ..., check_finite: bool = ...) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, a: _Value, overwrite_a: bool = ..., check_finite: bool = ...) -> Any: ...

@final
class _linalg_lu_of_matrix(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, lu: _Value, pivots: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, lu: Tensor, pivots: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, lu: _Value, pivots: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, lu: _Raw, pivots: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, lu: _Value, pivots: _Value) -> Any: ...

@final
class _linalg_row_exchanges(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, lu: Tensor, pivots: _Value) -> Tensor: ...
    @overload
    def __call__(self, lu: _Value, pivots: Tensor) -> Tensor: ...
    @overload
    def __call__(self, lu: _Raw, pivots: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, lu: _Value, pivots: _Value) -> Any: ...

@final
class _linalg_solve(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, check_finite: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, check_finite: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, check_finite: bool = ...) -> Any: ...

@final
class _linalg_solve_sylvester(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, q: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, q: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, q: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, q: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, q: _Value) -> Any: ...

@final
class _linalg_solve_triangular(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, trans: int = ..., lower: bool = ..., unit_diagonal: bool = ..., overwrite_b: bool = ..., check_finite: bool = ..., is_factor: bool = ...) -> Any: ...

@final
class _ndimage_convolve(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, input: Tensor, weights: _Value, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Value, weights: Tensor, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Raw, weights: _Raw, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, input: _Value, weights: _Value, mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _ndimage_map_coordinates(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, input: Tensor, coordinates: _Value, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Value, coordinates: Tensor, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Raw, coordinates: _Raw, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, input: _Value, coordinates: _Value, order: int = ..., mode: str = ..., cval: float = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _ndimage_transposed(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, g: Tensor, weights: _Value, mode: str = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, g: _Value, weights: Tensor, mode: str = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, g: _Raw, weights: _Raw, mode: str = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, g: _Value, weights: _Value, mode: str = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _ndimage_weigh(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, input: Tensor, g: _Value, shape: int | Sequence[int], mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Value, g: Tensor, shape: int | Sequence[int], mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, input: _Raw, g: _Raw, shape: int | Sequence[int], mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, input: _Value, g: _Value, shape: int | Sequence[int], mode: str = ..., cval: float = ..., origin: int | Sequence[int] | None = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _signal_convolve(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, in1: Tensor, in2: _Value, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, in1: _Value, in2: Tensor, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, in1: _Raw, in2: _Raw, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, in1: _Value, in2: _Value, mode: str = ..., method: str = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _signal_lfilter(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, b: Tensor, a: _Value, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Value, a: Tensor, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: Tensor, axis: int = ..., *, batch_ndim: int = ...) -> Tensor: ...
    @overload
    def __call__(self, b: _Raw, a: _Raw, x: _Raw, axis: int = ..., *, batch_ndim: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _signal_lfilter_from(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, b: Tensor, a: _Value, x: _Value, zi: _Value, axis: int = ..., *, batch_ndim: int = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, b: _Value, a: Tensor, x: _Value, zi: _Value, axis: int = ..., *, batch_ndim: int = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: Tensor, zi: _Value, axis: int = ..., *, batch_ndim: int = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: _Value, zi: Tensor, axis: int = ..., *, batch_ndim: int = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, b: _Raw, a: _Raw, x: _Raw, zi: _Raw, axis: int = ..., *, batch_ndim: int = ...) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, b: _Value, a: _Value, x: _Value, zi: _Value, axis: int = ..., *, batch_ndim: int = ...) -> Any: ...

@final
class _sparse_product(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, data: Tensor, x: _Value, structure: Any, transposed: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, data: _Value, x: Tensor, structure: Any, transposed: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, data: _Raw, x: _Raw, structure: Any, transposed: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, data: _Value, x: _Value, structure: Any, transposed: bool = ...) -> Any: ...

@final
class _sparse_sampled_product(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, left: Tensor, right: _Value, structure: Any) -> Tensor: ...
    @overload
    def __call__(self, left: _Value, right: Tensor, structure: Any) -> Tensor: ...
    @overload
    def __call__(self, left: _Raw, right: _Raw, structure: Any) -> NDArray[Any]: ...
    @overload
    def __call__(self, left: _Value, right: _Value, structure: Any) -> Any: ...

@final
class _sparse_solution(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, data: Tensor, b: _Value, structure: Any, transposed: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, data: _Value, b: Tensor, structure: Any, transposed: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, data: _Raw, b: _Raw, structure: Any, transposed: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, data: _Value, b: _Value, structure: Any, transposed: bool = ...) -> Any: ...

@final
class _special_agm(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value) -> Any: ...

@final
class _special_airy(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, z: _Raw) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

@final
class _special_bdtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, k: Tensor, n: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, n: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, n: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: _Raw, n: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, k: _Value, n: _Value, p: _Value) -> Any: ...

@final
class _special_bdtri(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, k: Tensor, n: _Value, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, n: Tensor, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, n: _Value, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: _Raw, n: _Raw, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, k: _Value, n: _Value, y: _Value) -> Any: ...

@final
class _special_bdtrik(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, y: Tensor, n: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, y: _Value, n: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, y: _Value, n: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, y: _Raw, n: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, y: _Value, n: _Value, p: _Value) -> Any: ...

@final
class _special_bdtrin(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, k: Tensor, y: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, y: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, y: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: _Raw, y: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, k: _Value, y: _Value, p: _Value) -> Any: ...

@final
class _special_bei(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

@final
class _special_besselpoly(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, lmb: _Value, nu: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, lmb: Tensor, nu: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, lmb: _Value, nu: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, lmb: _Raw, nu: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, lmb: _Value, nu: _Value) -> Any: ...

@final
class _special_betainc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, x: _Value) -> Any: ...

@final
class _special_betainccinv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, y: _Value) -> Any: ...

@final
class _special_binom(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, k: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, k: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, k: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, k: _Value) -> Any: ...

@final
class _special_boxcox(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, lmbda: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, lmbda: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, lmbda: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, lmbda: _Value) -> Any: ...

@final
class _special_btdtria(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, b: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, b: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, b: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, b: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, b: _Value, x: _Value) -> Any: ...

@final
class _special_btdtrib(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, p: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, p: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, p: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, p: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, p: _Value, x: _Value) -> Any: ...

@final
class _special_carlson(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, y: _Value, z: _Value, p: _Value, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: Tensor, z: _Value, p: _Value, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: Tensor, p: _Value, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: _Value, p: Tensor, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, y: _Raw, z: _Raw, p: _Raw, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: _Value, p: _Value, k: int = ..., a: int = ..., b: int = ..., c: int = ..., d: int = ...) -> Any: ...

@final
class _special_chdtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, v: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, v: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, v: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, v: _Value, x: _Value) -> Any: ...

@final
class _special_chdtri(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, v: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, v: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, v: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, v: _Value, p: _Value) -> Any: ...

@final
class _special_chdtriv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, x: _Value) -> Any: ...

@final
class _special_chndtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, df: _Value, nc: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, df: Tensor, nc: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, df: _Value, nc: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, df: _Raw, nc: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, df: _Value, nc: _Value) -> Any: ...

@final
class _special_chndtrinc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, df: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, df: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, df: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, df: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, df: _Value, p: _Value) -> Any: ...

@final
class _special_chndtrix(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, df: _Value, nc: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, df: Tensor, nc: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, df: _Value, nc: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, df: _Raw, nc: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, df: _Value, nc: _Value) -> Any: ...

@final
class _special_digamma(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, z: Tensor) -> Tensor: ...
    @overload
    def __call__(self, z: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

@final
class _special_diric(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, n: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, n: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, n: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, n: _Value) -> Any: ...

@final
class _special_ellipe(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, m: Tensor) -> Tensor: ...
    @overload
    def __call__(self, m: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, m: _Value) -> Any: ...

@final
class _special_ellipeinc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, phi: Tensor, m: _Value) -> Tensor: ...
    @overload
    def __call__(self, phi: _Value, m: Tensor) -> Tensor: ...
    @overload
    def __call__(self, phi: _Raw, m: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, phi: _Value, m: _Value) -> Any: ...

@final
class _special_ellipj(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, u: Tensor, m: _Value) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, u: _Value, m: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, u: _Raw, m: _Raw) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, u: _Value, m: _Value) -> Any: ...

@final
class _special_ellipkm1(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value) -> Any: ...

@final
class _special_elliprc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, y: _Value) -> Any: ...

@final
class _special_elliprd(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, y: _Value, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: Tensor, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, y: _Raw, z: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: _Value) -> Any: ...

@final
class _special_elliprj(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, y: _Value, z: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: Tensor, z: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, y: _Raw, z: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, y: _Value, z: _Value, p: _Value) -> Any: ...

@final
class _special_erfcinv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, y: _Value) -> Any: ...

@final
class _special_eval_chebyc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, x: _Value) -> Any: ...

@final
class _special_eval_gegenbauer(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, alpha: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, alpha: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, alpha: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, alpha: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, alpha: _Value, x: _Value) -> Any: ...

@final
class _special_eval_jacobi(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, alpha: _Value, beta: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, alpha: Tensor, beta: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, alpha: _Value, beta: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, alpha: _Value, beta: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, alpha: _Raw, beta: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, alpha: _Value, beta: _Value, x: _Value) -> Any: ...

@final
class _special_eval_sh_jacobi(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, p: _Value, q: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, p: Tensor, q: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, p: _Value, q: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, p: _Value, q: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, p: _Raw, q: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, p: _Value, q: _Value, x: _Value) -> Any: ...

@final
class _special_exprel_derivative(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, order: int = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, order: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, order: int = ...) -> Any: ...

@final
class _special_fdtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, dfn: Tensor, dfd: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, dfd: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, dfd: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Raw, dfd: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, dfn: _Value, dfd: _Value, x: _Value) -> Any: ...

@final
class _special_fdtri(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, dfn: Tensor, dfd: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, dfd: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, dfd: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Raw, dfd: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, dfn: _Value, dfd: _Value, p: _Value) -> Any: ...

@final
class _special_fdtridfd(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, dfn: Tensor, p: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, p: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Value, p: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, dfn: _Raw, p: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, dfn: _Value, p: _Value, x: _Value) -> Any: ...

@final
class _special_fresnel(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, z: _Raw) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, z: _Value) -> Any: ...

@final
class _special_gammainc(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, x: _Value) -> Any: ...

@final
class _special_gammainccinv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, y: _Value) -> Any: ...

@final
class _special_gdtrix(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, p: _Value) -> Any: ...

@final
class _special_hankel1(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, v: Tensor, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, v: _Value, z: Tensor) -> Tensor: ...
    @overload
    def __call__(self, v: _Raw, z: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, v: _Value, z: _Value) -> Any: ...

@final
class _special_huber(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, delta: Tensor, r: _Value) -> Tensor: ...
    @overload
    def __call__(self, delta: _Value, r: Tensor) -> Tensor: ...
    @overload
    def __call__(self, delta: _Raw, r: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, delta: _Value, r: _Value) -> Any: ...

@final
class _special_hyp1f1(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, z: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, z: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, z: _Value) -> Any: ...

@final
class _special_hyp2f1(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, c: _Value, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, c: _Value, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, c: Tensor, z: _Value) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: _Value, c: _Value, z: Tensor) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, c: _Raw, z: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, c: _Value, z: _Value) -> Any: ...

@final
class _special_inv_boxcox(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, y: Tensor, lmbda: _Value) -> Tensor: ...
    @overload
    def __call__(self, y: _Value, lmbda: Tensor) -> Tensor: ...
    @overload
    def __call__(self, y: _Raw, lmbda: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, y: _Value, lmbda: _Value) -> Any: ...

@final
class _special_it2i0k0(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, x: _Raw) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

@final
class _special_itairy(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
    @overload
    def __call__(self, x: _Raw) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, x: _Value) -> Any: ...

@final
class _special_lambertw(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, z: Tensor, k: int = ..., tol: float = ...) -> Tensor: ...
    @overload
    def __call__(self, z: _Raw, k: int = ..., tol: float = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, z: _Value, k: int = ..., tol: float = ...) -> Any: ...

@final
class _special_log_softmax(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, axis: int | Sequence[int] | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, axis: int | Sequence[int] | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, axis: int | Sequence[int] | None = ...) -> Any: ...

@final
class _special_logsumexp(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Any: ...

@final
class _special_logsumexp_signed(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., b: _Value | None = ..., *, keepdims: bool = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., b: _Raw | None = ..., *, keepdims: bool = ...) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., b: _Value | None = ..., *, keepdims: bool = ...) -> Any: ...

@final
class _special_logsumexp_weighted(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, b: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Value, b: Tensor, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, b: _Raw, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, b: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Any: ...

@final
class _special_logsumexp_with_shares(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, a: _Raw, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, a: _Value, axis: int | Sequence[int] | None = ..., *, keepdims: bool = ...) -> Any: ...

@final
class _special_lpmv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, m: Tensor, v: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, m: _Value, v: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, m: _Value, v: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, m: _Raw, v: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, m: _Value, v: _Value, x: _Value) -> Any: ...

@final
class _special_mathieu_a_value(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, m: Tensor, q: _Value) -> Tensor: ...
    @overload
    def __call__(self, m: _Value, q: Tensor) -> Tensor: ...
    @overload
    def __call__(self, m: _Raw, q: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, m: _Value, q: _Value) -> Any: ...

@final
class _special_mathieu_cem(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, m: Tensor, q: _Value, x: _Value) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, m: _Value, q: Tensor, x: _Value) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, m: _Value, q: _Value, x: Tensor) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, m: _Raw, q: _Raw, x: _Raw) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, m: _Value, q: _Value, x: _Value) -> Any: ...

@final
class _special_multigammaln(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, d: int) -> Tensor: ...
    @overload
    def __call__(self, a: _Raw, d: int) -> NDArray[Any]: ...
    @overload
    def __call__(self, a: _Value, d: int) -> Any: ...

@final
class _special_nrdtrimn(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, std: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, std: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, std: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, std: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, std: _Value, x: _Value) -> Any: ...

@final
class _special_nrdtrisd(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, mn: Tensor, p: _Value, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, mn: _Value, p: Tensor, x: _Value) -> Tensor: ...
    @overload
    def __call__(self, mn: _Value, p: _Value, x: Tensor) -> Tensor: ...
    @overload
    def __call__(self, mn: _Raw, p: _Raw, x: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, mn: _Value, p: _Value, x: _Value) -> Any: ...

@final
class _special_owens_t(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, h: Tensor, a: _Value) -> Tensor: ...
    @overload
    def __call__(self, h: _Value, a: Tensor) -> Tensor: ...
    @overload
    def __call__(self, h: _Raw, a: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, h: _Value, a: _Value) -> Any: ...

@final
class _special_pbdv(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, v: Tensor, x: _Value) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, v: _Value, x: Tensor) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, v: _Raw, x: _Raw) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, v: _Value, x: _Value) -> Any: ...

@final
class _special_pbwa(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, a: Tensor, x: _Value) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, a: _Value, x: Tensor) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(self, a: _Raw, x: _Raw) -> tuple[NDArray[Any], NDArray[Any]]: ...
    @overload
    def __call__(self, a: _Value, x: _Value) -> Any: ...

@final
class _special_pdtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, k: Tensor, m: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, m: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: _Raw, m: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, k: _Value, m: _Value) -> Any: ...

@final
class _special_pdtri(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, k: Tensor, y: _Value) -> Tensor: ...
    @overload
    def __call__(self, k: _Value, y: Tensor) -> Tensor: ...
    @overload
    def __call__(self, k: _Raw, y: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, k: _Value, y: _Value) -> Any: ...

@final
class _special_pdtrik(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, m: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, m: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, m: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, m: _Value) -> Any: ...

@final
class _special_poch(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, z: Tensor, m: _Value) -> Tensor: ...
    @overload
    def __call__(self, z: _Value, m: Tensor) -> Tensor: ...
    @overload
    def __call__(self, z: _Raw, m: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, z: _Value, m: _Value) -> Any: ...

@final
class _special_radian(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, d: Tensor, m: _Value, s: _Value) -> Tensor: ...
    @overload
    def __call__(self, d: _Value, m: Tensor, s: _Value) -> Tensor: ...
    @overload
    def __call__(self, d: _Value, m: _Value, s: Tensor) -> Tensor: ...
    @overload
    def __call__(self, d: _Raw, m: _Raw, s: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, d: _Value, m: _Value, s: _Value) -> Any: ...

@final
class _special_smirnov(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, d: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, d: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, d: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, d: _Value) -> Any: ...

@final
class _special_smirnov_slope(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, d: _Value, order: int = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, d: Tensor, order: int = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, d: _Raw, order: int = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, d: _Value, order: int = ...) -> Any: ...

@final
class _special_smirnovi(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, p: _Value) -> Any: ...

@final
class _special_spherical_in(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, n: Tensor, z: _Value, derivative: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Value, z: Tensor, derivative: bool = ...) -> Tensor: ...
    @overload
    def __call__(self, n: _Raw, z: _Raw, derivative: bool = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, n: _Value, z: _Value, derivative: bool = ...) -> Any: ...

@final
class _special_stdtr(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, df: Tensor, t: _Value) -> Tensor: ...
    @overload
    def __call__(self, df: _Value, t: Tensor) -> Tensor: ...
    @overload
    def __call__(self, df: _Raw, t: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, df: _Value, t: _Value) -> Any: ...

@final
class _special_stdtridf(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, p: Tensor, t: _Value) -> Tensor: ...
    @overload
    def __call__(self, p: _Value, t: Tensor) -> Tensor: ...
    @overload
    def __call__(self, p: _Raw, t: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, p: _Value, t: _Value) -> Any: ...

@final
class _special_stdtrit(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, df: Tensor, p: _Value) -> Tensor: ...
    @overload
    def __call__(self, df: _Value, p: Tensor) -> Tensor: ...
    @overload
    def __call__(self, df: _Raw, p: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, df: _Value, p: _Value) -> Any: ...

@final
class _special_voigt_profile(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, sigma: _Value, gamma: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, sigma: Tensor, gamma: _Value) -> Tensor: ...
    @overload
    def __call__(self, x: _Value, sigma: _Value, gamma: Tensor) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, sigma: _Raw, gamma: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, sigma: _Value, gamma: _Value) -> Any: ...

@final
class _special_zeta(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, x: Tensor, q: _Value | None = ...) -> Tensor: ...
    @overload
    def __call__(self, x: _Raw, q: _Raw | None = ...) -> NDArray[Any]: ...
    @overload
    def __call__(self, x: _Value, q: _Value | None = ...) -> Any: ...

@final
class _special_zeta_slope(OpOverloadPacket):  # type: ignore[misc]
    default: OpOverload
    @overload
    def __call__(self, s: Tensor, q: _Value) -> Tensor: ...
    @overload
    def __call__(self, s: _Value, q: Tensor) -> Tensor: ...
    @overload
    def __call__(self, s: _Raw, q: _Raw) -> NDArray[Any]: ...
    @overload
    def __call__(self, s: _Value, q: _Value) -> Any: ...

class Operators:
    """The operators of scipy."""

    interpolate_closed: _interpolate_closed
    interpolate_finite: _interpolate_closed
    interpolate_increasing: _interpolate_closed
    interpolate_knots: _interpolate_closed
    linalg_cho_factor: _linalg_cho_factor
    linalg_cholesky: _linalg_cho_factor
    linalg_det: _linalg_det
    linalg_expm: _linalg_expm
    linalg_expm_direction: _linalg_expm_direction
    linalg_inv: _linalg_det
    linalg_logm: _linalg_expm
    linalg_logm_direction: _linalg_expm_direction
    linalg_lu_constant: _linalg_lu_constant
    linalg_lu_factor: _linalg_lu_constant
    linalg_lu_of_matrix: _linalg_lu_of_matrix
    linalg_row_exchanges: _linalg_row_exchanges
    linalg_solve: _linalg_solve
    linalg_solve_sylvester: _linalg_solve_sylvester
    linalg_solve_triangular: _linalg_solve_triangular
    linalg_sqrtm: _linalg_expm
    ndimage_convolve: _ndimage_convolve
    ndimage_map_coordinates: _ndimage_map_coordinates
    ndimage_transposed: _ndimage_transposed
    ndimage_weigh: _ndimage_weigh
    signal_convolve: _signal_convolve
    signal_lfilter: _signal_lfilter
    signal_lfilter_from: _signal_lfilter_from
    signal_sections: _interpolate_closed
    sparse_product: _sparse_product
    sparse_sampled_product: _sparse_sampled_product
    sparse_solution: _sparse_solution
    special_agm: _special_agm
    special_airy: _special_airy
    special_airye: _special_airy
    special_bdtr: _special_bdtr
    special_bdtrc: _special_bdtr
    special_bdtri: _special_bdtri
    special_bdtrik: _special_bdtrik
    special_bdtrin: _special_bdtrin
    special_bei: _special_bei
    special_beip: _special_bei
    special_ber: _special_bei
    special_berp: _special_bei
    special_besselpoly: _special_besselpoly
    special_beta: _special_agm
    special_betainc: _special_betainc
    special_betaincc: _special_betainc
    special_betainccinv: _special_betainccinv
    special_betaincinv: _special_betainccinv
    special_betaln: _special_agm
    special_binom: _special_binom
    special_boxcox: _special_boxcox
    special_boxcox1p: _special_boxcox
    special_btdtria: _special_btdtria
    special_btdtrib: _special_btdtrib
    special_carlson: _special_carlson
    special_cbrt: _special_bei
    special_chdtr: _special_chdtr
    special_chdtrc: _special_chdtr
    special_chdtri: _special_chdtri
    special_chdtriv: _special_chdtriv
    special_chndtr: _special_chndtr
    special_chndtrinc: _special_chndtrinc
    special_chndtrix: _special_chndtrix
    special_cosdg: _special_bei
    special_cosm1: _special_bei
    special_cotdg: _special_bei
    special_dawsn: _special_bei
    special_digamma: _special_digamma
    special_diric: _special_diric
    special_ellipe: _special_ellipe
    special_ellipeinc: _special_ellipeinc
    special_ellipj: _special_ellipj
    special_ellipk: _special_ellipe
    special_ellipkinc: _special_ellipeinc
    special_ellipkm1: _special_ellipkm1
    special_elliprc: _special_elliprc
    special_elliprd: _special_elliprd
    special_elliprf: _special_elliprd
    special_elliprg: _special_elliprd
    special_elliprj: _special_elliprj
    special_entr: _special_bei
    special_erf: _special_bei
    special_erfc: _special_bei
    special_erfcinv: _special_erfcinv
    special_erfcx: _special_bei
    special_erfi: _special_bei
    special_erfinv: _special_erfcinv
    special_eval_chebyc: _special_eval_chebyc
    special_eval_chebys: _special_eval_chebyc
    special_eval_chebyt: _special_eval_chebyc
    special_eval_chebyu: _special_eval_chebyc
    special_eval_gegenbauer: _special_eval_gegenbauer
    special_eval_genlaguerre: _special_eval_gegenbauer
    special_eval_hermite: _special_eval_chebyc
    special_eval_hermitenorm: _special_eval_chebyc
    special_eval_jacobi: _special_eval_jacobi
    special_eval_laguerre: _special_eval_chebyc
    special_eval_legendre: _special_eval_chebyc
    special_eval_sh_chebyt: _special_eval_chebyc
    special_eval_sh_chebyu: _special_eval_chebyc
    special_eval_sh_jacobi: _special_eval_sh_jacobi
    special_eval_sh_legendre: _special_eval_chebyc
    special_exp1: _special_digamma
    special_exp10: _special_bei
    special_exp2: _special_bei
    special_expi: _special_bei
    special_expit: _special_bei
    special_expm1: _special_bei
    special_expn: _special_eval_chebyc
    special_exprel: _special_bei
    special_exprel_derivative: _special_exprel_derivative
    special_fdtr: _special_fdtr
    special_fdtrc: _special_fdtr
    special_fdtri: _special_fdtri
    special_fdtridfd: _special_fdtridfd
    special_fresnel: _special_fresnel
    special_gamma: _special_digamma
    special_gammainc: _special_gammainc
    special_gammaincc: _special_gammainc
    special_gammainccinv: _special_gammainccinv
    special_gammaincinv: _special_gammainccinv
    special_gammaln: _special_bei
    special_gammasgn: _special_bei
    special_gdtr: _special_betainc
    special_gdtrc: _special_betainc
    special_gdtria: _special_btdtria
    special_gdtrib: _special_btdtrib
    special_gdtrix: _special_gdtrix
    special_hankel1: _special_hankel1
    special_hankel1e: _special_hankel1
    special_hankel2: _special_hankel1
    special_hankel2e: _special_hankel1
    special_huber: _special_huber
    special_hyp0f1: _special_hankel1
    special_hyp1f1: _special_hyp1f1
    special_hyp2f1: _special_hyp2f1
    special_hyperu: _special_betainc
    special_i0: _special_bei
    special_i0e: _special_bei
    special_i1: _special_bei
    special_i1e: _special_bei
    special_inv_boxcox: _special_inv_boxcox
    special_inv_boxcox1p: _special_inv_boxcox
    special_it2i0k0: _special_it2i0k0
    special_it2j0y0: _special_it2i0k0
    special_it2struve0: _special_bei
    special_itairy: _special_itairy
    special_iti0k0: _special_it2i0k0
    special_itj0y0: _special_it2i0k0
    special_itmodstruve0: _special_bei
    special_itstruve0: _special_bei
    special_iv: _special_hankel1
    special_ive: _special_hankel1
    special_j0: _special_bei
    special_j1: _special_bei
    special_jv: _special_hankel1
    special_jve: _special_hankel1
    special_k0: _special_bei
    special_k0e: _special_bei
    special_k1: _special_bei
    special_k1e: _special_bei
    special_kei: _special_bei
    special_keip: _special_bei
    special_ker: _special_bei
    special_kerp: _special_bei
    special_kl_div: _special_elliprc
    special_kn: _special_eval_chebyc
    special_kolmogi: _special_ellipkm1
    special_kolmogorov: _special_erfcinv
    special_kolmogorov_slope: _special_erfcinv
    special_kv: _special_hankel1
    special_kve: _special_hankel1
    special_lambertw: _special_lambertw
    special_log1p: _special_bei
    special_log_expit: _special_bei
    special_log_ndtr: _special_bei
    special_log_softmax: _special_log_softmax
    special_log_wright_bessel: _special_betainc
    special_loggamma: _special_digamma
    special_logit: _special_bei
    special_logsumexp: _special_logsumexp
    special_logsumexp_signed: _special_logsumexp_signed
    special_logsumexp_weighted: _special_logsumexp_weighted
    special_logsumexp_with_shares: _special_logsumexp_with_shares
    special_lpmv: _special_lpmv
    special_mathieu_a_value: _special_mathieu_a_value
    special_mathieu_b_value: _special_mathieu_a_value
    special_mathieu_cem: _special_mathieu_cem
    special_mathieu_modcem1: _special_mathieu_cem
    special_mathieu_modcem2: _special_mathieu_cem
    special_mathieu_modsem1: _special_mathieu_cem
    special_mathieu_modsem2: _special_mathieu_cem
    special_mathieu_sem: _special_mathieu_cem
    special_mills: _special_bei
    special_modstruve: _special_chdtr
    special_multigammaln: _special_multigammaln
    special_nbdtr: _special_bdtr
    special_nbdtrc: _special_bdtr
    special_nbdtri: _special_bdtri
    special_nbdtrik: _special_bdtrik
    special_nbdtrin: _special_bdtrin
    special_ndtr: _special_bei
    special_ndtri: _special_erfcinv
    special_ndtri_exp: _special_erfcinv
    special_nrdtrimn: _special_nrdtrimn
    special_nrdtrisd: _special_nrdtrisd
    special_owens_t: _special_owens_t
    special_pbdv: _special_pbdv
    special_pbvv: _special_pbdv
    special_pbwa: _special_pbwa
    special_pdtr: _special_pdtr
    special_pdtrc: _special_pdtr
    special_pdtri: _special_pdtri
    special_pdtrik: _special_pdtrik
    special_poch: _special_poch
    special_polygamma: _special_eval_chebyc
    special_polygamma_of_any_order: _special_eval_chebyc
    special_powm1: _special_elliprc
    special_pseudo_huber: _special_huber
    special_radian: _special_radian
    special_rel_entr: _special_elliprc
    special_rgamma: _special_digamma
    special_round: _special_bei
    special_shichi: _special_it2i0k0
    special_sici: _special_it2i0k0
    special_sindg: _special_bei
    special_smirnov: _special_smirnov
    special_smirnov_slope: _special_smirnov_slope
    special_smirnovi: _special_smirnovi
    special_softmax: _special_log_softmax
    special_spence: _special_digamma
    special_spherical_in: _special_spherical_in
    special_spherical_jn: _special_spherical_in
    special_spherical_kn: _special_spherical_in
    special_spherical_yn: _special_spherical_in
    special_stdtr: _special_stdtr
    special_stdtridf: _special_stdtridf
    special_stdtrit: _special_stdtrit
    special_struve: _special_chdtr
    special_tandg: _special_bei
    special_tklmbda: _special_boxcox
    special_voigt_profile: _special_voigt_profile
    special_wofz: _special_digamma
    special_wright_bessel: _special_betainc
    special_wrightomega: _special_digamma
    special_xlog1py: _special_elliprc
    special_xlogy: _special_elliprc
    special_y0: _special_bei
    special_y1: _special_bei
    special_yn: _special_eval_chebyc
    special_yv: _special_hankel1
    special_yve: _special_hankel1
    special_zeta: _special_zeta
    special_zeta_slope: _special_zeta_slope
    special_zetac: _special_bei
    stats_definite: _interpolate_closed
    stats_finite_there: _interpolate_closed
    stats_on_simplex: _interpolate_closed
    stats_positive: _interpolate_closed
