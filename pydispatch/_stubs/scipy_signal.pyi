# Written by `python tools/regenerate.py`.  # ruff: noqa

import builtins
from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, overload

from numpy.typing import NDArray

from pydispatch._core import Tensor
from pydispatch._stubs.arrays import _Array, _Out, _Raw, _T

@overload
def convolve(in1: Tensor, in2: Any, mode: Any = ..., method: Any = ...) -> Tensor: ...
@overload
def convolve(in1: Any, in2: Tensor, mode: Any = ..., method: Any = ...) -> Tensor: ...
@overload
def convolve(in1: NDArray[Any], in2: _Raw, mode: Any = ..., method: Any = ...) -> NDArray[Any]: ...
@overload
def convolve(in1: _Raw, in2: NDArray[Any], mode: Any = ..., method: Any = ...) -> NDArray[Any]: ...
@overload
def convolve(in1: Any, in2: Any, mode: Any = ..., method: Any = ...) -> Any: ...
