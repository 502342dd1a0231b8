"""`numpy.fft` for arrays and Tensors: discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from pydispatch._core import is_array
from pydispatch._loading import only_public
from pydispatch.numpy.declare import (
    FUNCTIONS,
    array_function,
    as_array,
    as_nonscalar,
    as_zero_d,
    declare_operator,
    into,
    maker_beside,
)
from pydispatch.numpy.standard import check_device
from pydispatch.operators import fourier
from pydispatch.ops import ops
from pydispatch.schema.base_types import as_dtype

ARGUMENTS = ("n", "axis", "norm")

for name in ("fft", "ifft", "rfft", "irfft"):
    declare_operator(f"fft.{name}", 1, 4, ARGUMENTS)


def swapped(norm: str | None) -> str:
    """Return the normalization of the inverse transform. Raise ValueError for an unknown one."""
    if norm not in fourier.SWAPPED:
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return fourier.SWAPPED[norm]


@array_function("fft")
def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """Return the real spectrum of a signal with Hermitian symmetry."""
    return into(out, ops.np.fft_irfft(ops.np.conjugate(as_nonscalar(a)), n, axis, swapped(norm)))


@array_function("fft")
def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """Return half of the signal with Hermitian symmetry that has this real spectrum. The other half follows from it."""
    return into(out, ops.np.conjugate(ops.np.fft_rfft(as_nonscalar(a), n, axis, swapped(norm))))


# --- several axes ----------------------------------------------------------------------------------------------------


def along_axes(a: Any, s: Any, axes: Any) -> list[tuple[int | None, int]]:
    """List (number of elements, axis) for each axis to transform, in order."""
    if s is None:
        axes = range(-a.ndim, 0) if axes is None else axes
        return [(None, axis) for axis in axes]
    axes = range(-len(s), 0) if axes is None else axes
    if len(s) != len(axes):
        raise ValueError("Shape and axes have different lengths.")
    return [(a.shape[axis] if n == -1 else n, axis) for n, axis in zip(s, axes, strict=True)]


def transformed(transform: Callable[..., Any], a: Any, steps: list[tuple[int | None, int]], norm: str | None) -> Any:
    """Transform the array along each of these axes in turn."""
    for n, axis in steps:
        a = transform(a, n, axis, norm)
    return as_zero_d(a)


@array_function("fft")
def fftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """Transform an array along several axes."""
    a = as_nonscalar(a)
    return into(out, transformed(ops.np.fft_fft, a, along_axes(a, s, axes)[::-1], norm))


@array_function("fft")
def ifftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """Compute the inverse of fftn."""
    a = as_nonscalar(a)
    return into(out, transformed(ops.np.fft_ifft, a, along_axes(a, s, axes)[::-1], norm))


@array_function("fft")
def rfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """Transform real numbers along several axes, with half of the spectrum along the last of them."""
    a = as_nonscalar(a)
    steps = along_axes(a, s, axes)
    n, axis = steps.pop()
    return into(out, transformed(ops.np.fft_fft, ops.np.fft_rfft(a, n, axis, norm), steps[::-1], norm))


@array_function("fft")
def irfftn(a: Any, s: Any = None, axes: Any = None, norm: str | None = None, out: Any = None) -> Any:
    """Compute the inverse of rfftn."""
    a = as_nonscalar(a)
    steps = along_axes(a, s, axes)
    n, axis = steps.pop()
    return into(out, ops.np.fft_irfft(transformed(ops.np.fft_ifft, a, steps, norm), n, axis, norm))


@array_function("fft")
def fft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """Transform an array along two axes."""
    return fftn(a, s, axes, norm, out)


@array_function("fft")
def ifft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """Compute the inverse of fft2."""
    return ifftn(a, s, axes, norm, out)


@array_function("fft")
def rfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """Transform real numbers along two axes, with half of the spectrum along the last of them."""
    return rfftn(a, s, axes, norm, out)


@array_function("fft")
def irfft2(a: Any, s: Any = None, axes: Any = (-2, -1), norm: str | None = None, out: Any = None) -> Any:
    """Compute the inverse of rfft2."""
    return irfftn(a, s, axes, norm, out)


# --- frequencies -----------------------------------------------------------------------------------------------------


def shifted(x: Any, axes: Any, sign: int) -> Any:
    """Roll `x` by half its length along axes."""
    x = as_nonscalar(x)
    axes = range(x.ndim) if axes is None else normalize_axis_tuple(axes, x.ndim)
    shifts = [x.shape[axis] // 2 if sign > 0 else -(x.shape[axis] // 2) for axis in axes]
    return ops.np.roll(x, tuple(shifts), tuple(axes))


@array_function("fft")
def fftshift(x: Any, axes: Any = None) -> Any:
    """Shift the frequency 0 to the middle of the spectrum."""
    return shifted(x, axes, 1)


@array_function("fft")
def ifftshift(x: Any, axes: Any = None) -> Any:
    """Undo fftshift."""
    return shifted(x, axes, -1)


@array_function("fft", added=("dtype", "device"), creates=True)
def fftfreq(n: int, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """Return the frequencies of the elements of a spectrum, for samples at a distance `d`."""
    check_device("fftfreq", device)
    step = step_between_frequencies(n, d)
    make = maker_beside(step)
    counts = make.concatenate([make.arange((n + 1) // 2), make.arange(-(n // 2), 0)])
    return in_precision(ops.np.multiply(counts, step), dtype)


@array_function("fft", added=("dtype", "device"), creates=True)
def rfftfreq(n: int, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
    """Return the frequencies of the elements of half a spectrum, for samples at a distance `d`."""
    check_device("rfftfreq", device)
    step = step_between_frequencies(n, d)
    return in_precision(ops.np.multiply(maker_beside(step).arange(n // 2 + 1), step), dtype)


def step_between_frequencies(n: Any, d: Any) -> Any:
    """Return 1 over the length of `n` samples at a distance `d`. Raise ValueError if `n` is not an integer."""
    if not isinstance(n, (int, np.integer)):
        raise ValueError("n should be an integer")
    d = as_array(d)
    return ops.np.divide(1.0, ops.np.multiply(n, d)) if is_array(d) else 1.0 / (n * d)


def in_precision(x: Any, dtype: Any) -> Any:
    """Convert the array to a dtype, if one is given."""
    return x if dtype is None else ops.np.astype(x, as_dtype(dtype))


globals().update({name.removeprefix("fft."): function for name, function in FUNCTIONS.items()
                  if name.startswith("fft.")})
__all__ = sorted([name.removeprefix("fft.") for name in FUNCTIONS if name.startswith("fft.")])
__dir__ = only_public(globals())
