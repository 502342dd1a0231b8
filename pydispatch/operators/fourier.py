"""Discrete Fourier transforms along one axis. They are linear, so each derivative is another transform."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from pydispatch import _core
from pydispatch._core import MetaArray
from pydispatch.operators.batching import axis_behind, rank
from pydispatch.operators.declare import IS_NUMPY_2_0, declare, install, operators
from pydispatch.operators.meta import dtype_of, shape_of

concatenate, fft, ifft, irfft, rfft, zeros_like = operators(
    "concatenate", "fft_fft", "fft_ifft", "fft_irfft", "fft_rfft", "zeros_like")

SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The normalization of the other direction."""


universal: Any = getattr(np.fft, "_pocketfft_umath", None)
"""The universal functions that np.fft calls, in the versions of NumPy that have them in that module."""
if universal is not None:
    _core.add_core_loops(*[function for function in vars(universal).values() if isinstance(function, np.ufunc)])
DOUBLE = np.dtype(float)
COMPLEX = np.dtype(complex)
ORDER: Any = "C" if IS_NUMPY_2_0 else "K"     # of the result's elements in memory
FFT, IFFT = [getattr(function, "__wrapped__", function) for function in (np.fft.fft, np.fft.ifft)]
"""NumPy's functions without the check for `__array_function__`, which is not needed for arrays."""


def fft_kernel(a, *options):
    """Compute `np.fft.fft`, without NumPy's checks and conversions for plain signals.

    These take longer than a small transform.
    """
    if options or not is_plain_signal(a):
        return (FFT if type(a) is np.ndarray else np.fft.fft)(a, *options)
    return universal.fft(a, 1.0, out=np.empty_like(a, COMPLEX, ORDER))


def ifft_kernel(a, *options):
    """Compute `np.fft.ifft`, without NumPy's checks and conversions for plain signals.

    These take longer than a small transform.
    """
    if options or not is_plain_signal(a):
        return (IFFT if type(a) is np.ndarray else np.fft.ifft)(a, *options)
    return universal.ifft(a, 1.0 / a.shape[-1], out=np.empty_like(a, COMPLEX, ORDER))


def is_plain_signal(a):
    """Return whether `a` is an array of float64 or complex128 whose universal function can be called directly."""
    return (type(a) is np.ndarray and (a.dtype is COMPLEX or a.dtype is DOUBLE) and a.ndim > 0 and a.shape[-1] > 0
            and universal is not None)


def fitted(x, n, axis):
    """Cut `x`, or fill it up with zeros, to `n` elements along an axis.

    This is the transpose of how a transform reads the elements.
    """
    axis = normalize_axis_index(axis, x.ndim)
    present = x.shape[axis]
    if present > n:
        return x[(slice(None),) * axis + (slice(n),)]
    if present < n:
        shape = tuple(x.shape)
        return concatenate([x, zeros_like(x, shape=(*shape[:axis], n - present, *shape[axis + 1:]))], axis)
    return x


def weights(m, n, axis, ndim, dtype, inner):
    """Return weights for a half spectrum: `inner` for the elements with a mirror image, 1 for the others."""
    found = np.full(m, inner, dtype)
    found[0] = 1
    if n % 2 == 0 and m > n // 2:
        found[n // 2] = 1
    return found.reshape((-1,) + (1,) * (ndim - 1 - normalize_axis_index(axis, ndim)))


def fft_vjp(transform):
    def vjp(g, a_shape, n, axis, norm):
        return fitted(transform(g, None, axis, norm), a_shape[axis], axis)
    return vjp


def rfft_vjp(g, a_shape, n, axis, norm):
    n = a_shape[axis] if n is None else n
    halves = weights(g.shape[axis], n, axis, g.ndim, g.real.dtype, 0.5)
    return fitted(irfft(g.conj() * halves, n, axis, SWAPPED[norm]), a_shape[axis], axis)


def irfft_vjp(g, a_shape, n, axis, norm):
    n = g.shape[axis]
    spectrum = rfft(g, n, axis, SWAPPED[norm]).conj()
    return fitted(spectrum * weights(spectrum.shape[axis], n, axis, g.ndim, g.dtype, 2), a_shape[axis], axis)


def meta_along(kernel, length):
    """Return a meta kernel that takes the dtype and errors from `kernel` and the length from `length(n, extent)`."""
    def meta(a, n=None, axis=-1, norm=None):
        shape = shape_of(a)
        axis = normalize_axis_index(axis, len(shape))
        dtype = kernel(np.zeros(2, dtype_of(a)), 2 if n is None else min(n, 2), -1, norm).dtype
        extent = length(n, shape[axis])
        if (shape[axis] if n is None else n) < 1:
            kernel(np.zeros(0, dtype_of(a)), n)     # raises NumPy's error
        return MetaArray((*shape[:axis], extent, *shape[axis + 1:]), dtype)
    return meta


def transform_batch(op, info, in_dims, a, n, axis, norm):
    return op(a, n, axis_behind(axis, rank(a) - 1, None), norm), 0


def transform(name, kernel, length, vjp):
    declare(f"fft_{name}", "Tensor a, int? n=None, int axis=-1, str? norm=None", kernel, meta_along(kernel, length),
            tags=("fft",), vjp=vjp, jvp="linear", vmap=transform_batch)


transform("fft", fft_kernel, lambda n, extent: extent if n is None else n, fft_vjp(fft))
transform("ifft", ifft_kernel, lambda n, extent: extent if n is None else n, fft_vjp(ifft))
transform("rfft", np.fft.rfft, lambda n, extent: (extent if n is None else n) // 2 + 1, rfft_vjp)
transform("irfft", np.fft.irfft, lambda n, extent: 2 * (extent - 1) if n is None else n, irfft_vjp)

install("fft")
