"""`scipy.fft` for arrays and Tensors: Fourier transforms by NumPy's, and cosine and sine transforms.

Source of the transposes: the definitions in SciPy's documentation, whose matrices differ from their transposes in the
weights of the first and last elements only.
"""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from scipy import fft as scipys

import pydispatch.numpy.fft as numpys
from pydispatch._core import MetaArray
from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.meta import dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import publish
from pydispatch.scipy.pack import FACE, SCIPY

trigonometric, = SCIPY.operators("fft_trigonometric")

# --- Fourier transforms ----------------------------------------------------------------------------------------------

SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The normalization of the inverse transform, whose sum has the other sign."""


def along_one(name: str) -> None:
    """Declare a transform along one axis."""
    def transform(x: Any, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: bool = False,
                  workers: Any = None, *, plan: Any = None) -> Any:
        return getattr(numpys, name)(x, n, axis, norm)
    define(name, transform)


def along_several(name: str, axes: Any) -> None:
    """Declare a transform along several axes, all or the last two by default."""
    def transform(x: Any, s: Any = None, axes: Any = axes, norm: Any = None, overwrite_x: bool = False,
                  workers: Any = None, *, plan: Any = None) -> Any:
        x = as_nonscalar(x)
        if name.startswith("hfft"):
            return numpys.irfftn(ops.np.conjugate(x), *lengths_and_axes(x, s, axes), SWAPPED[norm])
        if name.startswith("ihfft"):
            return ops.np.conjugate(numpys.rfftn(x, *lengths_and_axes(x, s, axes), SWAPPED[norm]))
        return getattr(numpys, name[:-1] + "n")(x, *lengths_and_axes(x, s, axes), norm)
    define(name, transform)


def lengths_and_axes(x: Any, s: Any, axes: Any) -> tuple[Any, Any]:
    """Return the lengths and the axes that SciPy transforms."""
    if isinstance(axes, (int, np.integer)):
        axes = (axes,)
    if isinstance(s, (int, np.integer)):
        s = (s,)
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    if s is not None:
        s = [x.shape[axis] if length is None else length for length, axis in zip(s, axes, strict=True)]
    return s, axes


def define(name: str, function: Callable[..., Any]) -> None:
    """Declare a function with SciPy's name."""
    function.__name__ = name
    FACE.array_function("fft")(function)
    FACE.functions[f"fft.{name}"].__dict__["__wrapped__"] = getattr(scipys, name)   # whose signature users see


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    along_one(_name)
    along_several(f"{_name}2", (-2, -1))
    along_several(f"{_name}n", None)


@FACE.array_function("fft")
def fftshift(x: Any, axes: Any = None) -> Any:
    """Move the zero frequency to the middle."""
    return numpys.fftshift(x, axes)


@FACE.array_function("fft")
def ifftshift(x: Any, axes: Any = None) -> Any:
    """Move the zero frequency from the middle to the front."""
    return numpys.ifftshift(x, axes)


# --- cosine and sine transforms --------------------------------------------------------------------------------------

INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}
"""The type of the inverse transform, which is also that of the transposed matrix."""


def trigonometric_kernel(x: Any, kind: str, type: int) -> Any:
    """Transform along the last axis, without normalization."""
    return getattr(scipys, kind)(x, type, norm="backward", orthogonalize=False)


def weighted(x: Any, at_first: float, at_last: float) -> Any:
    """Multiply the first and the last elements along the last axis."""
    if at_first == at_last == 1.0:
        return x
    weights = np.ones(x.shape[-1], x.dtype.type(0).real.dtype if x.dtype.kind in "fc" else float)
    weights[0] *= at_first
    weights[-1] *= at_last
    return ops.np.multiply(x, weights)


def ends(kind: str, type: int, factor: float) -> tuple[float, float]:
    """Return the weights of the elements that a transform counts once and the others twice."""
    if kind == "dst":
        return (1.0, factor) if type in (2, 3) else (1.0, 1.0)
    return (factor, factor) if type == 1 else (factor, 1.0) if type in (2, 3) else (1.0, 1.0)


def transposed(g: Any, kind: str, type: int) -> Any:
    """Multiply by the transposed matrix of a transform."""
    if type in (1, 2):
        g = weighted(g, *ends(kind, type, 2.0))
    found = trigonometric(g, kind, INVERSE[type])
    return weighted(found, *ends(kind, type, 0.5)) if type in (1, 3) else found


def trigonometric_meta(x: Any, kind: str, type: int) -> MetaArray:
    dtype = dtype_of(x)
    return MetaArray(shape_of(x), trigonometric_kernel(np.zeros(3, dtype), kind, type).dtype)


SCIPY.declare("fft_trigonometric", "Tensor x, str kind, int type", trigonometric_kernel, trigonometric_meta,
              vjp=transposed, jvp=lambda t, kind, type: trigonometric(t, kind, type),
              vmap=lambda op, info, in_dims, x, kind, type: (op(ops.np.moveaxis(x, in_dims[0], 0), kind, type), 0))


def normalized(kind: str, x: Any, type: int, axis: int, norm: Any, orthogonalize: Any, inverse: bool) -> Any:
    """Transform along one axis, with SciPy's normalizations."""
    if type not in INVERSE:
        raise ValueError(f"Invalid type ({type}) for this operation")
    if norm not in SWAPPED:
        raise ValueError(f"Invalid norm value {norm!r}, should be \"backward\", \"ortho\" or \"forward\"")
    orthogonalize = norm == "ortho" if orthogonalize is None else orthogonalize
    if inverse:
        type, norm = INVERSE[type], SWAPPED[norm]
    x = ops.np.moveaxis(x, axis, -1)
    length = 2 * (x.shape[-1] + (0 if type != 1 else -1 if kind == "dct" else 1))
    if orthogonalize and type in (1, 3):
        x = weighted(x, *ends(kind, type, np.sqrt(2.0)))
    found = trigonometric(x, kind, type)
    if orthogonalize and type in (1, 2):
        found = weighted(found, *ends(kind, type, np.sqrt(0.5)))
    if norm == "ortho":
        found = ops.np.divide(found, np.sqrt(length).item())
    elif norm == "forward":
        found = ops.np.divide(found, float(length))
    return ops.np.moveaxis(found, -1, axis)


def sized(x: Any, lengths: Sequence[Any], axes: Sequence[int]) -> Any:
    """Cut or pad with zeros along axes."""
    for length, axis in zip(lengths, axes, strict=True):
        n = x.shape[axis]
        if length is None or length == n:
            continue
        if length < 1:
            raise ValueError(f"invalid number of data points ({length}) specified")
        if length < n:
            x = ops.np.getitem(x, (slice(None),) * axis + (slice(0, length),))
        else:
            shape = (*x.shape[:axis], length - n, *x.shape[axis + 1:])
            x = ops.np.concatenate([x, ops.np.zeros_like(x, shape=shape)], axis)
    return x


def declare_trigonometric(name: str) -> None:
    """Declare a transform along one axis, and one along several."""
    inverse, kind = name.startswith("i"), name[-3:]

    def transform(x: Any, type: int = 2, n: Any = None, axis: int = -1, norm: Any = None, overwrite_x: bool = False,
                  workers: Any = None, orthogonalize: Any = None) -> Any:
        x = as_nonscalar(x)
        axis = normalize_axis_index(axis, x.ndim)
        return normalized(kind, sized(x, (n,), (axis,)), type, axis, norm, orthogonalize, inverse)

    def along_all(x: Any, type: int = 2, s: Any = None, axes: Any = None, norm: Any = None, overwrite_x: bool = False,
                  workers: Any = None, orthogonalize: Any = None) -> Any:
        x = as_nonscalar(x)
        s, axes = lengths_and_axes(x, s, axes)
        axes = normalize_axis_tuple(axes, x.ndim)
        x = x if s is None else sized(x, s, axes)
        for axis in axes:
            x = normalized(kind, x, type, axis, norm, orthogonalize, inverse)
        return x

    define(name, transform)
    define(f"{name}n", along_all)


for _name in ("dct", "idct", "dst", "idst"):
    declare_trigonometric(_name)

SCIPY.install("fft")
__all__ = publish("fft", globals())
__dir__ = only_public(globals())
