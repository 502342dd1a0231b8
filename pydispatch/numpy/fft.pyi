# Written by `python tools/regenerate.py`.  # ruff: noqa

import builtins
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, overload

from numpy.typing import NDArray

from pydispatch._core import Tensor
from pydispatch._stubs.arrays import _Array, _Out, _Raw, _T

__all__: list[str]

@overload
def fft(a: Any, n: Any = ..., axis: Any = ..., norm: Any = ..., *, out: _Out) -> _Out: ...
@overload
def fft(a: _Array, n: Any = ..., axis: Any = ..., norm: Any = ..., out: None = ...) -> _Array: ...
@overload
def fft(a: Any, n: Any = ..., axis: Any = ..., norm: Any = ..., out: Any = ...) -> Any: ...
@overload
def fft2(a: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., *, out: _Out) -> _Out: ...
@overload
def fft2(a: _Array, s: Any = ..., axes: Any = ..., norm: Any = ..., out: None = ...) -> _Array: ...
@overload
def fft2(a: Any, s: Any = ..., axes: Any = ..., norm: Any = ..., out: Any = ...) -> Any: ...
@overload
def fftfreq(n: Any, d: _Raw | None = ..., device: Any = ..., *, dtype: Any = ...) -> NDArray[Any]: ...
@overload
def fftfreq(n: Any, d: Any = ..., device: Any = ..., *, dtype: Any = ...) -> Any: ...
fftn = fft2
@overload
def fftshift(x: _Array, axes: Any = ...) -> _Array: ...
@overload
def fftshift(x: Any, axes: Any = ...) -> Any: ...
hfft = fft
ifft = fft
ifft2 = fft2
ifftn = fft2
ifftshift = fftshift
ihfft = fft
irfft = fft
irfft2 = fft2
irfftn = fft2
rfft = fft
rfft2 = fft2
rfftfreq = fftfreq
rfftn = fft2
