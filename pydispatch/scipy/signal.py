"""`scipy.signal` for arrays and Tensors: convolutions, correlations and linear filters.

The operators take batches. The first `batch_ndim` axes of each argument are batch axes, and broadcast. Every
operator can therefore be batched over all of its arguments, any number of times.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from scipy import signal

from pydispatch._core import MetaArray, convolve_vectors, correlate_vectors, sum_to
from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.numpy.manipulation import pad
from pydispatch.operators.batching import axis_behind, batch_of, batch_of_one, rank, reshaped
from pydispatch.operators.calculus import MODES
from pydispatch.operators.calculus import convolve_kernel as convolve_rows
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import borrow, borrow_classes, make_constant, publish
from pydispatch.scipy.checks import value_check
from pydispatch.scipy.errors import ErrorsOf
from pydispatch.scipy.pack import FACE, SCIPY

CONVOLVE, LFILTER, LFILTER_FROM = SCIPY.operators("signal_convolve", "signal_lfilter", "signal_lfilter_from")

# --- convolution -----------------------------------------------------------------------------------------------------

ndarray = np.ndarray
DIRECT = ("auto", "direct")
BACK = {"full": 0, "same": 1, "valid": 2}
"""By the mode of the convolution, NumPy's number of the mode in which the first vector's gradient is computed."""
SURELY_DIRECT = 4_000_000
"""The largest product of the lengths of vectors for which `method="auto"` means the direct method."""
FEW, MOST = 49, 2 ** 22
"""The largest number of elements of a kernel or a result for which one product with all windows of the image is
faster than SciPy, and the largest number of elements of all windows for which there is memory.
"""


def convolve_kernel(in1: Any, in2: Any, mode: str = "full", method: str = "auto", *, batch_ndim: int = 0) -> Any:
    """Convolve with SciPy's function, or directly with the loop if SciPy's checks would take longer than that."""
    if not batch_ndim and method in DIRECT and mode in MODES and (mode != "same" or in1.size >= in2.size):
        found = convolve_vectors(in1, in2, MODES[mode], SURELY_DIRECT)
        if found is not None:
            return found
    if type(in1) is type(in2) is ndarray and in1.ndim == in2.ndim > batch_ndim + 1 and method in DIRECT:
        found = convolved_by_windows(in1, in2, mode, batch_ndim)
        if found is not None:
            return found
    with ErrorsOf("signal.convolve"):
        if batch_ndim:
            return convolved_batch(in1, in2, mode, method, batch_ndim)
        return signal.convolve(in1, in2, mode, method)


def convolved_by_windows(in1: Any, in2: Any, mode: str, batch_ndim: int) -> Any:
    """Multiply the smaller array with all windows of its size in the larger one. Return None if SciPy is faster."""
    lengths1, lengths2 = in1.shape[batch_ndim:], in2.shape[batch_ndim:]
    if all(n >= m for n, m in zip(lengths1, lengths2, strict=True)):
        image, kernel, lengths, sizes = in1, in2, lengths1, lengths2
    elif all(n <= m for n, m in zip(lengths1, lengths2, strict=True)) and mode != "same":
        image, kernel, lengths, sizes = in2, in1, lengths2, lengths1
    else:
        return None
    if mode == "full":
        before, found = [m - 1 for m in sizes], [n + m - 1 for n, m in zip(lengths, sizes, strict=True)]
    elif mode == "same":
        before, found = [m // 2 for m in sizes], list(lengths)
    elif mode == "valid":
        before, found = [0] * len(sizes), [n - m + 1 for n, m in zip(lengths, sizes, strict=True)]
    else:
        return None
    n_found, n_kernel, batch = prod(found), prod(sizes), image.shape[:batch_ndim]
    if not 0 < min(n_found, n_kernel) <= FEW or n_found * n_kernel * prod(batch) > MOST or not (
            prod(batch) and image.dtype.kind in "fc" and kernel.dtype.kind in "fc"):
        return None
    if mode == "valid":
        wide: Any = np.ascontiguousarray(image)
    else:
        wide = np.zeros((*batch, *[n + m - 1 for n, m in zip(found, sizes, strict=True)]), image.dtype)
        wide[(..., *[slice(start, start + n) for start, n in zip(before, lengths, strict=True)])] = image
    backwards = kernel[(..., *[slice(None, None, -1)] * len(sizes))].reshape(*kernel.shape[:batch_ndim], 1, n_kernel)
    strides, steps = wide.strides[:batch_ndim], wide.strides[batch_ndim:]
    if n_found >= n_kernel:     # copy the longer axis along the memory
        windows = np.ndarray((*batch, *sizes, *found), wide.dtype, wide, 0, (*strides, *steps, *steps))
        result = backwards @ windows.reshape(*batch, n_kernel, n_found)
    else:
        windows = np.ndarray((*batch, *found, *sizes), wide.dtype, wide, 0, (*strides, *steps, *steps))
        result = windows.reshape(*batch, n_found, n_kernel) @ backwards.mT
    return result.reshape(*result.shape[:-2], *found)


def convolved_batch(in1: Any, in2: Any, mode: str, method: str, batch_ndim: int) -> Any:
    """Convolve each pair of examples of two batches."""
    meta = convolve_meta(in1, in2, mode, method, batch_ndim=batch_ndim)
    batch, ndim = meta.shape[:batch_ndim], len(meta.shape) - batch_ndim
    if not ndim or not prod(batch):
        return in1 * in2 if not ndim else np.empty(meta.shape, meta.dtype)
    if mode == "same":      # SciPy's function of Fourier transforms would also cut the batch
        full = convolved_batch(in1, in2, "full", method, batch_ndim)
        return full[(..., *[slice(first, first + n) for first, n in same_window(in1, in2, batch_ndim)])]
    first = (0,) * batch_ndim
    one, other = in1[first], in2[first]
    if method == "auto":
        method = "direct" if meta.dtype.kind in "biu" else signal.choose_conv_method(one, other, mode)
    if method == "fft":
        axes = tuple(range(batch_ndim, batch_ndim + ndim))
        found = signal.fftconvolve(in1, in2, mode, axes)
        return (np.round(found) if meta.dtype.kind in "biu" else found).astype(meta.dtype, copy=False)
    if ndim == 1:
        return convolve_rows(in1, in2, mode)
    result = np.empty(meta.shape, meta.dtype)
    one, other = [np.broadcast_to(x, (*batch, *x.shape[batch_ndim:])) for x in (in1, in2)]
    for place in np.ndindex(batch):
        result[place] = signal.convolve(one[place], other[place], mode, "direct")
    return result


def same_window(in1: Any, in2: Any, batch_ndim: int) -> list[tuple[int, int]]:
    """Return where the result of the mode "same" begins in that of "full", and its length, for each axis."""
    pairs = zip(shape_of(in1)[batch_ndim:], shape_of(in2)[batch_ndim:], strict=True)
    return [((m - 1) // 2, n) for n, m in pairs]


def convolve_meta(in1: Any, in2: Any, mode: str = "full", method: str = "auto", *, batch_ndim: int = 0) -> MetaArray:
    """Return the shape and dtype of the result. Raise the errors of SciPy's function."""
    shape1, shape2 = shape_of(in1), shape_of(in2)
    dtype = np.result_type(dtype_of(in1), dtype_of(in2))
    with ErrorsOf("signal.convolve"):
        if len(shape1) != len(shape2):
            raise ValueError("volume and kernel should have the same dimensionality")
        lengths1, lengths2 = shape1[batch_ndim:], shape2[batch_ndim:]
        if not lengths1:
            return MetaArray(broadcast([shape1, shape2]), dtype)
        signal.convolve(np.ones(1, dtype), np.ones(1, dtype), mode, method)     # raises if SciPy rejects these
        if 0 in lengths1 or 0 in lengths2:
            raise ValueError(f"{'in1' if 0 in lengths1 else 'in2'} cannot be empty")
        pairs = list(zip(lengths1, lengths2, strict=True))
        if mode == "full":
            lengths = [n + m - 1 for n, m in pairs]
        elif mode == "same":
            lengths = list(lengths1)
        elif all(n >= m for n, m in pairs) or all(n <= m for n, m in pairs):
            lengths = [abs(n - m) + 1 for n, m in pairs]
        else:
            raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
        return MetaArray((*broadcast([shape1[:batch_ndim], shape2[:batch_ndim]]), *lengths), dtype)


def vjp_of_first(g: Any, in1_shape: Any, in2: Any, mode: str, method: str, batch_ndim: int) -> Any:
    if not batch_ndim and method in DIRECT and len(in1_shape) == 1 and (
            mode == "full" or (in2.size <= in1_shape[0] and (mode == "valid" or in2.size % 2))):
        found = correlate_vectors(g, in2, BACK[mode], SURELY_DIRECT)
        if found is not None:
            return found
    return convolve_vjp(g, in1_shape, in2, mode, method, batch_ndim, True)


def vjp_of_second(g: Any, in2_shape: Any, in1: Any, mode: str, method: str, batch_ndim: int) -> Any:
    return convolve_vjp(g, in2_shape, in1, mode, method, batch_ndim, False)


def convolve_vjp(g: Any, own_shape: Any, other: Any, mode: str, method: str, batch_ndim: int, is_first: bool) -> Any:
    """Return the gradient of one array: a convolution with the other one, reversed."""
    axes = range(batch_ndim, len(own_shape))
    back = "valid"
    if mode == "valid" and all(own_shape[axis] >= other.shape[axis] for axis in axes):
        back = "full"
    elif mode == "same" and is_first and all(other.shape[axis] % 2 for axis in axes):
        back = "same"
    elif mode == "same":
        g = in_full(g, own_shape, other, axes, is_first)
    if type(g) is type(other) is np.ndarray:
        backwards = other[::-1] if len(own_shape) == 1 else np.flip(other, tuple(axes))
        found = convolve_kernel(g, backwards, back, method, batch_ndim=batch_ndim)
    else:
        found = CONVOLVE(g, ops.np.flip(other, tuple(axes)) if axes else other, back, method, batch_ndim=batch_ndim)
    return found if not batch_ndim else sum_to(found, own_shape)


def in_full(g: Any, own_shape: Any, other: Any, axes: Any, is_first: bool) -> Any:
    """Return the gradient of the mode "full" that belongs to one of the mode "same"."""
    lengths = [(own_shape[axis], other.shape[axis]) for axis in axes]
    starts = [((m if is_first else n) - 1) // 2 for n, m in lengths]
    shape = (*g.shape[:len(own_shape) - len(axes)], *[n + m - 1 for n, m in lengths])
    inner = (..., *[slice(start, start + g.shape[axis]) for start, axis in zip(starts, axes, strict=True)])
    return ops.np.setitem(ops.np.zeros_like(g, shape=shape), inner, g)


def convolve_batch(op: Any, info: Any, in_dims: Any, in1: Any, in2: Any, mode: str, method: str, batch_ndim: int
                   ) -> Any:
    ranks = [rank(x) - (dim == 0) for x, dim in zip((in1, in2), in_dims, strict=False)]
    if ranks[0] != ranks[1]:
        raise ValueError("signal.convolve: volume and kernel should have the same dimensionality")
    if not ranks[0]:
        return ops.np.multiply(in1, in2), 0
    in1, in2 = batch_of_one(in1, in_dims[0]), batch_of_one(in2, in_dims[1])
    return op(in1, in2, mode, method, batch_ndim=batch_ndim + 1), 0


SCIPY.declare(
    "signal_convolve", 'Tensor in1, Tensor in2, str mode="full", str method="auto", *, int batch_ndim=0',
    convolve_kernel, convolve_meta, vjp=(vjp_of_first, vjp_of_second), jvp="multilinear", vmap=convolve_batch)
FACE.declare_operator("signal.convolve", 2, 4, ("mode", "method"))


def reversed_conjugate(x: Any) -> Any:
    """Reverse and conjugate an array. Convolution with the result is correlation with the array."""
    return ops.np.flip(ops.np.conjugate(x) if x.dtype.kind == "c" else x)


@FACE.array_function("signal")
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Return the sums of products of one array with the conjugate of the other one, for each distance between them."""
    in1, in2 = as_nonscalar(in1), as_nonscalar(in2)
    if in1.ndim != in2.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    return CONVOLVE(in1, reversed_conjugate(in2), mode, method)


@FACE.array_function("signal")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """Convolve along some axes by Fourier transforms. The other axes broadcast."""
    return convolved_along(in1, in2, mode, axes)


@FACE.array_function("signal")
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """Compute the same convolution as `fftconvolve`. For arrays, SciPy transforms a long one piece by piece."""
    return convolved_along(in1, in2, mode, axes)


def convolved_along(in1: Any, in2: Any, mode: str, axes: Any) -> Any:
    """Convolve along some axes, which are all by default."""
    in1, in2 = [x if x.dtype.kind in "fc" else ops.np.astype(x, np.dtype(float)) for x in map(as_nonscalar, (in1, in2))]
    ndim = in1.ndim
    if ndim != in2.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    if 0 in in1.shape or 0 in in2.shape:
        return ops.np.zeros_like(in1, shape=(0,), dtype=np.dtype(float))
    if axes is None:
        return CONVOLVE(in1, in2, mode, "fft")
    axes = normalize_axis_tuple(axes, ndim)
    if not axes:
        raise ValueError("when provided, axes cannot be empty")
    others = [axis for axis in range(ndim) if axis not in axes]
    if any(in1.shape[axis] != in2.shape[axis] and 1 not in (in1.shape[axis], in2.shape[axis]) for axis in others):
        raise ValueError(f"incompatible shapes for in1 and in2: {tuple(in1.shape)} and {tuple(in2.shape)}")
    order = (*others, *axes)
    found = ops.np.transpose(CONVOLVE(ops.np.transpose(in1, order), ops.np.transpose(in2, order), mode, "fft",
                                      batch_ndim=len(others)), tuple(np.argsort(order).tolist()))
    if mode == "same":      # as long as in1, even along axes that broadcast
        starts = [(found.shape[axis] - in1.shape[axis]) // 2 for axis in range(ndim)]
        if any(starts):
            found = ops.np.getitem(found, tuple([slice(start, start + n) for start, n in
                                                 zip(starts, in1.shape, strict=True)]))
    return found


BOUNDARIES = {"fill": "constant", "pad": "constant", "wrap": "wrap", "circular": "wrap", "symm": "symmetric",
              "symmetric": "symmetric"}


@FACE.array_function("signal")
def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    """Convolve two matrices. The first is surrounded by a number, or by copies of itself."""
    return convolved_matrices(in1, as_nonscalar(in2), mode, boundary, fillvalue, -1)


@FACE.array_function("signal")
def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    """Correlate two matrices. The first is surrounded by a number, or by copies of itself.

    As in SciPy, the mode "valid" conjugates the smaller one, even if it is the first.
    """
    in1, in2 = as_nonscalar(in1), as_nonscalar(in2)
    is_smaller = any(n < m for n, m in zip(in1.shape, in2.shape, strict=False))
    if mode != "valid" or in1.ndim != 2 or in2.ndim != 2 or not is_smaller:
        return convolved_matrices(in1, reversed_conjugate(in2), mode, boundary, fillvalue, 0)
    swapped = convolved_matrices(in2, reversed_conjugate(in1), mode, boundary, fillvalue, 0)
    return ops.np.flip(swapped)


def convolved_matrices(in1: Any, in2: Any, mode: str, boundary: str, fillvalue: Any, rounds: int) -> Any:
    """Convolve two matrices, the first of which is extended beyond its boundary.

    If there are two elements in the middle, the mode "same" takes the first one for `rounds` = -1, and else the
    second.
    """
    in1 = as_nonscalar(in1)
    if not in1.ndim == in2.ndim == 2:
        raise ValueError("inputs must both be 2-D arrays")
    if boundary not in BOUNDARIES:
        raise ValueError(f"boundary is {boundary!r}, expected one of {', '.join(BOUNDARIES)}")
    if mode == "valid":
        return CONVOLVE(in1, in2, mode, "direct")
    if mode not in MODES:
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    options = {"constant_values": fillvalue} if BOUNDARIES[boundary] == "constant" else {}
    wide = pad(in1, [(m - 1, m - 1) for m in in2.shape], BOUNDARIES[boundary], **options)
    found = CONVOLVE(wide, in2, "valid", "direct")
    if mode == "full":
        return found
    starts = [(m + rounds) // 2 for m in in2.shape]
    return ops.np.getitem(found, tuple([slice(start, start + n) for start, n in zip(starts, in1.shape, strict=True)]))


# --- linear filters --------------------------------------------------------------------------------------------------
#
# The result y is defined by A y = B x, where A and B are triangular Toeplitz matrices of the coefficients. Gradients
# therefore use the inverse of A transposed, which is the same filter, backwards in time.


def each_filter(function: Callable[..., Any], b: Any, a: Any, others: tuple[Any, ...], batch_ndim: int) -> Any:
    """Call `function` with the coefficients and the other arrays of each example, and stack the results."""
    batch = broadcast([x.shape[:batch_ndim] for x in (b, a, *others)])
    parts = [np.broadcast_to(x, (*batch, *x.shape[batch_ndim:])) for x in (b, a, *others)]
    found = [function(*[part[place] for part in parts]) for place in np.ndindex(batch)]
    if isinstance(found[0], tuple):
        return tuple([np.stack(each).reshape(*batch, *each[0].shape) for each in zip(*found, strict=True)])
    return np.stack(found).reshape(*batch, *found[0].shape)


def in_example(axis: int, ndim: int, batch_ndim: int) -> int:
    """Convert an axis of a batch to one of an example, counted from the end."""
    return normalize_axis_index(axis, ndim) - ndim if batch_ndim else axis


def filters_together(b: Any, a: Any, x: Any, zi: Any, axis: int, batch_ndim: int) -> Any:
    """Return the results and final states of many filters together, or None if single filters are faster.

    Like SciPy, use the transposed direct form II, sample by sample. Without a recursion, go coefficient by
    coefficient. `axis` counts from the end. States that are not requested are None.
    """
    batch, n = broadcast([v.shape[:batch_ndim] for v in (b, a, x)]), x.shape[axis]
    dtype = np.result_type(b, a, x, *(() if zi is None else (zi,)))
    order = max(b.shape[-1], a.shape[-1])
    recurs = a.shape[-1] > 1 or zi is not None
    if (recurs and prod(batch) <= n) or dtype.kind not in "fc" or not (b.size and a.size and a[..., 0].all()):
        return None
    ones = (1,) * (x.ndim - batch_ndim - 1)
    coefficients = [np.moveaxis(lengthened(v / a[..., :1], order).astype(dtype), -1, 0) for v in (b, a)]
    feed, back = [v.reshape(*v.shape, *ones) for v in coefficients]
    samples = np.moveaxis(x, axis, 0)
    shape = np.broadcast_shapes(samples.shape[1:], (*batch, *ones))
    result, state = np.zeros((n, *shape), dtype), np.zeros((order, *shape), dtype)      # the last state remains 0
    if not recurs:
        for k in range(min(order, n)):
            result[k:] += feed[k] * samples[:n - k]
        return np.moveaxis(result, 0, axis), None
    if zi is not None:
        state[:-1] = np.moveaxis(zi, axis, 0)
    for sample, found in zip(samples, result, strict=True):
        np.multiply(feed[0], sample, out=found)
        found += state[0]
        state[:-1] = state[1:] + feed[1:] * sample - back[1:] * found
    return np.moveaxis(result, 0, axis), np.moveaxis(state[:-1], 0, axis)


def lfilter_kernel(b: Any, a: Any, x: Any, axis: int = -1, *, batch_ndim: int = 0) -> Any:
    """Filter by SciPy's function, filter by filter."""
    with ErrorsOf("signal.lfilter"):
        if not batch_ndim:
            return signal.lfilter(b, a, x, axis)
        axis = in_example(axis, x.ndim, batch_ndim)
        with np.errstate(all="ignore"):
            found = filters_together(b, a, x, None, axis, batch_ndim)
        if found is not None:
            return found[0]
        return each_filter(lambda b, a, x: signal.lfilter(b, a, x, axis), b, a, (x,), batch_ndim)


def lfilter_from_kernel(b: Any, a: Any, x: Any, zi: Any, axis: int = -1, *, batch_ndim: int = 0) -> Any:
    """Filter from an initial state. Return the result and the final state."""
    with ErrorsOf("signal.lfilter"):
        if not batch_ndim:
            return signal.lfilter(b, a, x, axis, zi)
        axis = in_example(axis, x.ndim, batch_ndim)
        with np.errstate(all="ignore"):
            found = filters_together(b, a, x, zi, axis, batch_ndim)
        if found is not None:
            return found
        return each_filter(lambda b, a, x, zi: signal.lfilter(b, a, x, axis, zi), b, a, (x, zi), batch_ndim)


def coefficients_like(b: Any, a: Any, batch_ndim: int) -> list[np.ndarray]:
    """Return arrays like the coefficients of one filter, with which the kernel gives its errors and its dtype."""
    return [np.ones(shape_of(v)[batch_ndim:], dtype_of(v)) for v in (b, a)]


def lfilter_meta(b: Any, a: Any, x: Any, axis: int = -1, *, batch_ndim: int = 0) -> MetaArray:
    """Return an array like `x`, in the dtype that SciPy chooses."""
    shape = shape_of(x)
    with ErrorsOf("signal.lfilter"):
        if not shape[batch_ndim:]:
            raise ValueError("x must be at least 1-D")
        axis = normalize_axis_index(axis, len(shape))
        b_like, a_like = coefficients_like(b, a, batch_ndim)
        dtype = signal.lfilter(b_like, a_like, np.ones(1, dtype_of(x))).dtype
    batch = broadcast([shape_of(v)[:batch_ndim] for v in (b, a, x)])
    return MetaArray((*batch, *shape[batch_ndim:]), dtype)


def lfilter_from_meta(b: Any, a: Any, x: Any, zi: Any, axis: int = -1, *, batch_ndim: int = 0
                      ) -> tuple[MetaArray, MetaArray]:
    """Return an array like `x`, in the dtype that SciPy chooses, and the final state."""
    shape = lfilter_meta(b, a, x, axis, batch_ndim=batch_ndim).shape
    n = max(shape_of(b)[-1], shape_of(a)[-1]) - 1
    axis = normalize_axis_index(axis, len(shape))
    with ErrorsOf("signal.lfilter"):
        b_like, a_like = coefficients_like(b, a, batch_ndim)
        dtype = signal.lfilter(b_like, a_like, np.ones(1, dtype_of(x)), zi=np.ones(n, dtype_of(zi)))[0].dtype
        state = (*shape[:axis], n, *shape[axis + 1:])
        if len(shape_of(zi)) != len(shape) or any(m not in (1, k) for k, m in zip(state, shape_of(zi), strict=True)):
            raise ValueError(f"Unexpected shape for parameter zi: expected {state}, found {shape_of(zi)}.")
    return MetaArray(shape, dtype), MetaArray(state, dtype)


def one_like(a: Any, batch_ndim: int) -> np.ndarray:
    """Return the coefficients of a filter that changes nothing."""
    return np.ones((1,) * (batch_ndim + 1), a.dtype)


def backwards(b: Any, a: Any, g: Any, axis: int, batch_ndim: int) -> Any:
    """Compute the transpose of a filter: the same filter backwards in time."""
    return ops.np.flip(LFILTER(b, a, ops.np.flip(g, axis), axis, batch_ndim=batch_ndim), axis)


def lagged_products(w: Any, x: Any, axis: int, shape: Any, batch_ndim: int) -> Any:
    """Return the sums of products w[n] x[n - k], for each k of as many coefficients."""
    n_lags = shape[-1] if shape else 1
    if rank(x) > 1:
        w, x = ops.np.moveaxis(w, axis, -1), ops.np.moveaxis(x, axis, -1)
    zeros = ops.np.zeros_like(x, shape=(*x.shape[:-1], n_lags - 1))
    found = CONVOLVE(ops.np.concatenate((zeros, x), -1), ops.np.flip(w, -1), "valid", "direct", batch_ndim=rank(w) - 1)
    summed = tuple(range(batch_ndim, rank(w) - 1))
    return sum_to(ops.np.flip(ops.np.sum(found, summed) if summed else found, -1), shape)


def lfilter_batch(op: Any, info: Any, in_dims: Any, b: Any, a: Any, *rest: Any) -> Any:
    *arrays, axis, batch_ndim = rest
    ndim = rank(arrays[0]) - (in_dims[2] == 0)
    axis = axis_behind(axis, ndim, None)
    if batch_ndim or in_dims[0] == 0 or in_dims[1] == 0:
        b, a, batch_ndim = batch_of_one(b, in_dims[0]), batch_of_one(a, in_dims[1]), batch_ndim + 1
    arrays = [batch_of(arrays[0], in_dims[2], info.batch_size),
              *[batch_of_one(zi, dim) for zi, dim in zip(arrays[1:], in_dims[3:], strict=False)]]
    return op(b, a, *arrays, axis, batch_ndim=batch_ndim), (0, 0) if len(arrays) == 2 else 0


def lengthened(x: Any, n: int) -> Any:
    """Append zeros to rows, up to `n` elements each."""
    missing = n - x.shape[-1]
    return ops.np.concatenate((x, ops.np.zeros_like(x, shape=(*x.shape[:-1], missing))), -1) if missing else x


def lfilter_from_by_operators(b: Any, a: Any, x: Any, zi: Any, axis: int = -1, *, batch_ndim: int = 0) -> Any:
    """Filter from an initial state, which is added to the first elements of B x. The final state is the rest of A y."""
    b_like, a_like, x_like, state = [MetaArray(tuple(v.shape), v.dtype) for v in (b, a, x, zi)]
    lfilter_from_meta(b_like, a_like, x_like, state, axis, batch_ndim=batch_ndim)       # raises the errors
    ndim = rank(x)
    n, n_state = x.shape[axis], max(b.shape[-1], a.shape[-1]) - 1
    x, zi = ops.np.moveaxis(x, axis, -1), ops.np.moveaxis(zi, axis, -1)
    first = ops.np.getitem(a, (..., slice(0, 1)))
    b, a = ops.np.divide(b, first), ops.np.divide(a, first)
    rows_of = [reshaped(v, (*v.shape[:-1], *(1,) * (ndim - 1 - batch_ndim), v.shape[-1])) for v in (b, a)]
    given = lengthened(CONVOLVE(x, rows_of[0], "full", "direct", batch_ndim=ndim - 1), n + n_state)
    given = ops.np.add(given, lengthened(zi, n + n_state))
    y = LFILTER(one_like(a, batch_ndim), a, ops.np.getitem(given, (..., slice(0, n))), -1, batch_ndim=batch_ndim)
    taken = lengthened(CONVOLVE(y, rows_of[1], "full", "direct", batch_ndim=ndim - 1), n + n_state)
    rest = ops.np.subtract(ops.np.getitem(given, (..., slice(n, None))), ops.np.getitem(taken, (..., slice(n, None))))
    return ops.np.moveaxis(y, -1, axis), ops.np.moveaxis(rest, -1, axis)


SCIPY.declare(
    "signal_lfilter", "Tensor b, Tensor a, Tensor x, int axis=-1, *, int batch_ndim=0", lfilter_kernel, lfilter_meta,
    vmap=lfilter_batch, vjp=(
        lambda g, b_shape, a, x, axis, batch_ndim: lagged_products(
            backwards(one_like(a, batch_ndim), a, g, axis, batch_ndim), x, axis, b_shape, batch_ndim),
        lambda g, a, a_shape, axis, batch_ndim, result: lagged_products(
            ops.np.negative(backwards(one_like(a, batch_ndim), a, g, axis, batch_ndim)), result, axis, a_shape,
            batch_ndim),
        lambda g, b, a, axis, batch_ndim, x_shape: sum_to(backwards(b, a, g, axis, batch_ndim), x_shape)),
    jvp=(
        lambda t, a, x, axis, batch_ndim: LFILTER(t, a, x, axis, batch_ndim=batch_ndim),
        lambda t, a, axis, batch_ndim, result: ops.np.negative(LFILTER(t, a, result, axis, batch_ndim=batch_ndim)),
        lambda t, b, a, axis, batch_ndim: LFILTER(b, a, t, axis, batch_ndim=batch_ndim)))
SCIPY.declare(
    "signal_lfilter_from", "Tensor b, Tensor a, Tensor x, Tensor zi, int axis=-1, *, int batch_ndim=0",
    lfilter_from_kernel, lfilter_from_meta, returns="(Tensor, Tensor)", vmap=lfilter_batch,
    differentiated_as=lfilter_from_by_operators)


@FACE.array_function("signal", operator=(3, 4, ("axis",)))
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Filter an array along an axis by a rational transfer function, from rest or from a state."""
    b, a, x = as_nonscalar(b), as_nonscalar(a), as_nonscalar(x)
    b, a = [v if v.ndim else ops.np.reshape(v, (1,)) for v in (b, a)]
    return LFILTER(b, a, x, axis) if zi is None else LFILTER_FROM(b, a, x, as_nonscalar(zi), axis)


def check_sections(sos: Any, who: str) -> None:
    """Raise SciPy's error for sections of second order whose denominators do not begin with one."""
    if not (sos[..., 3] == 1).all():
        raise ValueError(f"{who}: sos[:, 3] should be all ones")


sections = value_check("signal_sections", check_sections)


@FACE.array_function("signal")
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Filter an array along an axis by a sequence of sections of second order."""
    sos, x = as_nonscalar(sos), as_nonscalar(x)
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError(f"sos array must be shape (n_sections, 6), not {tuple(sos.shape)}")
    sos = sections(sos, "signal.sosfilt")
    if not x.ndim:
        raise ValueError("x must be at least 1D")
    axis = normalize_axis_index(axis, x.ndim)
    states = []
    if zi is not None:
        zi, shape = as_nonscalar(zi), (sos.shape[0], *x.shape[:axis], 2, *x.shape[axis + 1:])
        if tuple(zi.shape) != shape:
            raise ValueError(f"zi must have shape {shape}, got {tuple(zi.shape)}")
    for i in range(sos.shape[0]):
        b, a = ops.np.getitem(sos, (i, slice(0, 3))), ops.np.getitem(sos, (i, slice(3, 6)))
        if zi is None:
            x = LFILTER(b, a, x, axis)
        else:
            x, state = LFILTER_FROM(b, a, x, ops.np.getitem(zi, i), axis)
            states.append(state)
    return x if zi is None else (x, ops.np.stack(states))


borrow("signal", """
    freqz freqs freqz_zpk lombscargle vectorstrength gausspulse sweep_poly zpk2tf ss2tf invres invresz bilinear_zpk
    kaiser_atten lsim cont2discrete gauss_spline normalize lp2lp_zpk tf2ss hilbert hilbert2 envelope resample czt
    zoom_fft wiener deconvolve group_delay spectrogram stft firwin firwin2 kaiser_beta impulse step dlsim dstep dimpulse
    bode freqresp dbode dfreqresp cspline1d qspline1d sos2tf zpk2ss bessel butter cheby1
    cheby2 chirp detrend ellip gammatone iirfilter lp2bp_zpk lp2bs_zpk lp2hp lp2hp_zpk lp2lp
    savgol_coeffs savgol_filter coherence csd istft periodogram welch iircomb iirnotch iirpeak
""")
make_constant("signal", "argrelextrema argrelmax argrelmin check_COLA check_NOLA")
borrow_classes("signal", "CZT ShortTimeFFT StateSpace TransferFunction ZerosPolesGain ZoomFFT dlti lti")
SCIPY.install("signal")
if TYPE_CHECKING:       # type checkers cannot see what the next line defines
    from pydispatch._stubs.scipy_signal import *  # noqa: F403
__all__ = publish("signal", globals())
__dir__ = only_public(globals())
