"""`scipy.ndimage` for arrays and Tensors: filters and interpolation of images.

A filter extends the image beyond its boundary, and convolves. The sum of products of g with the filtered image
is linear in the image, in the weights and in g. Derivatives of any order therefore consist of the three
operators that are its gradients: `ndimage_convolve` with respect to g, `ndimage_transposed` to the image, and
`ndimage_weigh` to the weights.

The weights have as many axes as the image. For a filter along one axis, the others have length 1. The first
`batch_ndim` axes of all arrays are batch axes, and broadcast.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from scipy import ndimage, signal
from scipy.ndimage import _ni_support

from pydispatch._core import MetaArray, is_array, sum_to
from pydispatch._loading import only_public
from pydispatch.autograd.values import as_tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import as_nonscalar, into, known_values
from pydispatch.numpy.manipulation import pad
from pydispatch.operators.batching import batch_of_one
from pydispatch.operators.calculus import PADDING
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import REPLACED, borrow, make_constant, publish
from pydispatch.scipy.errors import ErrorsOf
from pydispatch.scipy.pack import FACE, SCIPY

CONVOLVE, TRANSPOSED, WEIGH, MAP, SPLINE, RANKED = SCIPY.operators(
    "ndimage_convolve", "ndimage_transposed", "ndimage_weigh", "ndimage_map_coordinates", "ndimage_spline_coefficients",
    "ndimage_ranked")

# --- boundaries ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def sources(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return, for each element of the extended axis, which of n elements it repeats."""
    return np.pad(np.arange(n), (before, after), PADDING[mode])     # type: ignore[call-overload]


def extended(x: np.ndarray, axis: int, before: int, after: int, mode: str, cval: float) -> np.ndarray:
    """Extend an array at both ends of an axis by these numbers of elements."""
    if PADDING[mode] is not None:
        return x.take(sources(x.shape[axis], before, after, mode), axis)
    widths = [(0, 0)] * x.ndim
    widths[axis] = (before, after)
    return np.pad(x, widths, constant_values=cval)


def folded(x: np.ndarray, axis: int, before: int, after: int, mode: str) -> np.ndarray:
    """Compute the transpose of `extended`: add elements beyond the ends to those that they repeat."""
    x = np.moveaxis(x, axis, 0)
    n = len(x) - before - after
    result = x[before:before + n].copy()
    if PADDING[mode] is not None:
        places = sources(n, before, after, mode)
        for part in (slice(0, before), slice(before + n, None)):
            for place, row in zip(places[part], x[part], strict=True):
                result[place] += row
    return np.moveaxis(result, 0, axis)


# --- filters ---------------------------------------------------------------------------------------------------------


def widths_of(weights_shape: Any, origin: Any) -> list[tuple[int, int]]:
    """Return how far an image is extended along each axis, before and after. Raise ValueError for an origin outside."""
    found = []
    for m, shift in zip(weights_shape, (0,) * len(weights_shape) if origin is None else origin, strict=True):
        before = (m - 1) // 2 - shift
        if not 0 <= before < m:
            raise ValueError("Invalid origin; origin must satisfy "
                             "-(weights.shape[k] // 2) <= origin[k] <= (weights.shape[k]-1) // 2")
        found.append((before, m - 1 - before))
    return found


def long_axes(weights_shape: Any, batch_ndim: int) -> list[int]:
    """Return the axes along which a filter has more than one weight."""
    return [axis for axis in range(batch_ndim, len(weights_shape)) if weights_shape[axis] > 1]


SMALL = 4096
"""The number of products per example up to which a call of SciPy's function takes longer than the products."""


def convolve_kernel(
    input: Any, weights: Any, mode: str = "reflect", cval: float = 0.0, origin: Any = None, *, batch_ndim: int = 0
) -> Any:
    """Convolve by SciPy's function, or, if only one axis has weights, by its function for one axis."""
    with ErrorsOf("ndimage.convolve"):
        check_filter(input, weights, mode, origin, batch_ndim)
        ndim = input.ndim - batch_ndim
        shifts, axes = (0,) * ndim if origin is None else origin, long_axes(weights.shape[batch_ndim:], 0)
        axis = (axes[0] if axes else ndim - 1) - ndim

        def filter_with_one(image: Any, weights: Any) -> Any:
            if len(axes) <= 1:
                return ndimage.convolve1d(image, weights.reshape(-1), axis, mode=mode, cval=cval, origin=shifts[axis])
            leading = [0] * (image.ndim - ndim)
            return ndimage.convolve(image, weights, mode=mode, cval=cval, origin=(*leading, *shifts))

        if prod(weights.shape[:batch_ndim]) == 1:
            return filter_with_one(input, weights)
        found = None
        if prod(weights.shape[batch_ndim:]) * prod(input.shape[batch_ndim:]) <= SMALL:
            with np.errstate(all="ignore"):
                found = sum_of_shifted(input, weights, mode, cval, origin, batch_ndim)
        return each_image(filter_with_one, input, weights, batch_ndim) if found is None else found


def windows_of(input: Any, shape: Any, mode: str, cval: float, origin: Any, batch_ndim: int) -> Any:
    """Yield, for weights of this shape, the position of each and the shifted image that it is multiplied by."""
    lengths, wide = input.shape[batch_ndim:], input
    for axis, (before, after) in enumerate(widths_of(shape, origin)):
        if before or after:
            wide = extended(wide, batch_ndim + axis, before, after, mode, cval)
    for lag in np.ndindex(*shape):
        window = tuple([slice(k, k + n) for k, n in zip(lag, lengths, strict=True)])
        yield tuple([m - 1 - k for m, k in zip(shape, lag, strict=True)]), wide[(..., *window)]


def sum_of_shifted(input: Any, weights: Any, mode: str, cval: float, origin: Any, batch_ndim: int) -> Any:
    """Filter all examples together, each with its own weights. Return None unless all values are finite real numbers.

    SciPy leaves out weights that are 0, so that they do not make a sum nan.
    """
    if not (input.dtype.kind == weights.dtype.kind == "f" and np.isfinite(input).all()):
        return None
    shape, ones = weights.shape[batch_ndim:], (1,) * (input.ndim - batch_ndim)
    batch = broadcast([x.shape[:batch_ndim] for x in (input, weights)])
    result = np.zeros((*batch, *input.shape[batch_ndim:]))
    term = np.empty_like(result)
    for place, shifted in windows_of(input, shape, mode, cval, origin, batch_ndim):
        result += np.multiply(shifted, weights[(..., *place)].reshape(*weights.shape[:batch_ndim], *ones), out=term)
    return result.astype(input.dtype, copy=False)


def each_image(function: Any, one: np.ndarray, other: np.ndarray, batch_ndim: int) -> np.ndarray:
    """Call `function` for each pair of examples, and stack the results."""
    batch = broadcast([x.shape[:batch_ndim] for x in (one, other)])
    one, other = [np.broadcast_to(x, (*batch, *x.shape[batch_ndim:])) for x in (one, other)]
    found = [function(one[place], other[place]) for place in np.ndindex(batch)]
    return np.stack(found).reshape(*batch, *found[0].shape)


def check_filter(input: Any, weights: Any, mode: str, origin: Any, batch_ndim: int) -> None:
    """Raise the errors of SciPy's filters."""
    ndim, shape = len(shape_of(input)), shape_of(weights)
    if len(shape) != ndim or 0 in shape[batch_ndim:]:
        raise RuntimeError(f"weights.ndim ({len(shape) - batch_ndim}) must match len(axes) ({ndim - batch_ndim})")
    if mode not in PADDING:
        raise RuntimeError("boundary mode not supported")
    widths_of(shape[batch_ndim:], origin)


def transposed_kernel(g: Any, weights: Any, mode: str = "reflect", origin: Any = None, *, batch_ndim: int = 0) -> Any:
    """Filter with reversed weights over the whole extended image, and fold it."""
    if prod(weights.shape[:batch_ndim]) != 1:
        return each_image(lambda g, weights: transposed_kernel(g, weights, mode, origin), g, weights, batch_ndim)
    axes = long_axes(weights.shape, batch_ndim)
    widths = widths_of(weights.shape[batch_ndim:], origin)
    backwards = np.flip(weights, tuple(axes))
    if PADDING[mode] in (None, "wrap"):     # the transpose is also such a filter
        shifts = tuple([(before + after) // 2 - after for before, after in widths])
        return convolve_kernel(g, backwards, mode, 0.0, shifts, batch_ndim=batch_ndim)
    shape, inner = list(g.shape), [slice(None)] * g.ndim
    for axis in axes:
        m = weights.shape[axis]
        shape[axis] += m - 1
        inner[axis] = slice(m // 2, m // 2 + g.shape[axis])
    wide = np.zeros(shape, g.dtype)
    wide[tuple(inner)] = g
    found = convolve_kernel(wide, backwards, "constant", batch_ndim=batch_ndim)
    for axis in axes:
        found = folded(found, axis, *widths[axis - batch_ndim], mode)
    return found


MANY = 64
"""The largest number of products that are summed directly. More are transformed, as each sum reads the whole image."""


def weigh_kernel(input: Any, g: Any, shape: Any, mode: str = "reflect", cval: float = 0.0,
                 origin: Any = None, *, batch_ndim: int = 0) -> Any:
    """Return the sums of products of `g` with the shifted image, for each element of weights of this shape."""
    shape = tuple(shape)
    axes = long_axes((1,) * batch_ndim + shape, batch_ndim)
    if prod(shape) > MANY:
        wide = input
        for axis in axes:
            wide = extended(wide, axis, *widths_of(shape, origin)[axis - batch_ndim], mode, cval)
        others = tuple([axis for axis in range(batch_ndim, g.ndim) if axis not in axes])
        found = signal.fftconvolve(wide, np.flip(g, tuple(axes)), "valid", axes).sum(others, keepdims=True)
        return np.flip(found, tuple(axes)).astype(np.result_type(input, g))
    if not batch_ndim and input.dtype == g.dtype and g.dtype.char in "fdFD":
        return weighed_by_blas(input, g, shape, mode, cval, origin)
    result: Any = np.empty((*broadcast([x.shape[:batch_ndim] for x in (input, g)]), *shape), np.result_type(input, g))
    examples: Any = [..., *range(batch_ndim, g.ndim)]
    no_axes: Any = [...]
    for place, shifted in windows_of(input, shape, mode, cval, origin, batch_ndim):
        result[(..., *place)] = np.einsum(shifted, examples, g, examples, no_axes)
    return result


def weighed_by_blas(input: Any, g: Any, shape: Any, mode: str, cval: float, origin: Any) -> Any:
    """Return the sums of products as scalar products. Images that are shifted along the first axis share a copy."""
    wide, flat, result = input, g.reshape(-1), np.empty(shape, g.dtype)
    for axis, widths in enumerate(widths_of(shape, origin)):
        wide = extended(wide, axis, *widths, mode, cval) if any(widths) else wide
    row = prod(g.shape[1:])
    for place in np.ndindex(*shape[1:]):
        shifted = wide[(..., *[slice(k, k + n) for k, n in zip(place, g.shape[1:], strict=True)])].reshape(-1)
        for k in range(shape[0]):
            result[(-1 - k, *[-1 - i for i in place])] = shifted[k * row:k * row + g.size] @ flat
    return result


def convolve_meta(input: Any, weights: Any, mode: str = "reflect", cval: float = 0.0, origin: Any = None, *,
                  batch_ndim: int = 0) -> MetaArray:
    """Return an array like the image, in the dtype that SciPy chooses."""
    with ErrorsOf("ndimage.convolve"):
        check_filter(input, weights, mode, origin, batch_ndim)
        dtype = ndimage.convolve1d(np.ones(1, dtype_of(input)), np.ones(1, dtype_of(weights)), mode=mode, cval=cval
                                   ).dtype
    batch = broadcast([shape_of(x)[:batch_ndim] for x in (input, weights)])
    return MetaArray((*batch, *shape_of(input)[batch_ndim:]), dtype)


def transposed_meta(g: Any, weights: Any, mode: str = "reflect", origin: Any = None, *, batch_ndim: int = 0
                    ) -> MetaArray:
    return convolve_meta(g, weights, mode, 0.0, origin, batch_ndim=batch_ndim)


def weigh_meta(input: Any, g: Any, shape: Any, mode: str = "reflect", cval: float = 0.0, origin: Any = None, *,
               batch_ndim: int = 0) -> MetaArray:
    batch = broadcast([shape_of(x)[:batch_ndim] for x in (input, g)])
    return MetaArray((*batch, *shape), np.result_type(dtype_of(input), dtype_of(g)))


def filter_batch(op: Any, info: Any, in_dims: Any, one: Any, other: Any, *rest: Any) -> Any:
    *options, batch_ndim = rest
    return op(batch_of_one(one, in_dims[0]), batch_of_one(other, in_dims[1]), *options, batch_ndim=batch_ndim + 1), 0


def summed(found: Any, shape: Any, batch_ndim: int) -> Any:
    """Return the gradient of an array whose batch axes may have been broadcast."""
    return sum_to(found, shape) if batch_ndim else found


SCIPY.declare(
    "ndimage_convolve",
    'Tensor input, Tensor weights, str mode="reflect", float cval=0.0, int[]? origin=None, *, int batch_ndim=0',
    convolve_kernel, convolve_meta, vmap=filter_batch, vjp=(
        lambda g, input_shape, weights, mode, origin, batch_ndim: summed(
            TRANSPOSED(g, weights, mode, origin, batch_ndim=batch_ndim), input_shape, batch_ndim),
        lambda g, input, weights_shape, mode, cval, origin, batch_ndim: summed(
            WEIGH(input, g, weights_shape[batch_ndim:], mode, cval, origin, batch_ndim=batch_ndim), weights_shape,
            batch_ndim)),
    jvp=(
        lambda t, weights, mode, origin, batch_ndim: CONVOLVE(t, weights, mode, 0.0, origin, batch_ndim=batch_ndim),
        lambda t, input, mode, cval, origin, batch_ndim: CONVOLVE(
            input, t, mode, cval, origin, batch_ndim=batch_ndim)))
SCIPY.declare(
    "ndimage_transposed", 'Tensor g, Tensor weights, str mode="reflect", int[]? origin=None, *, int batch_ndim=0',
    transposed_kernel, transposed_meta, vmap=filter_batch, jvp="multilinear", vjp=(
        lambda t, g_shape, weights, mode, origin, batch_ndim: summed(
            CONVOLVE(t, weights, mode, 0.0, origin, batch_ndim=batch_ndim), g_shape, batch_ndim),
        lambda t, g, weights_shape, mode, origin, batch_ndim: summed(
            WEIGH(t, g, weights_shape[batch_ndim:], mode, 0.0, origin, batch_ndim=batch_ndim), weights_shape,
            batch_ndim)))
SCIPY.declare(
    "ndimage_weigh", 'Tensor input, Tensor g, int[] shape, str mode="reflect", float cval=0.0, int[]? origin=None, *, '
    "int batch_ndim=0", weigh_kernel, weigh_meta, vmap=filter_batch, vjp=(
        lambda t, input_shape, g, mode, origin, batch_ndim: summed(
            TRANSPOSED(g, t, mode, origin, batch_ndim=batch_ndim), input_shape, batch_ndim),
        lambda t, input, g_shape, mode, cval, origin, batch_ndim: summed(
            CONVOLVE(input, t, mode, cval, origin, batch_ndim=batch_ndim), g_shape, batch_ndim)),
    jvp=(
        lambda t, g, shape, mode, origin, batch_ndim: WEIGH(t, g, shape, mode, 0.0, origin, batch_ndim=batch_ndim),
        lambda t, input, shape, mode, cval, origin, batch_ndim: WEIGH(
            input, t, shape, mode, cval, origin, batch_ndim=batch_ndim)))


# --- arguments of SciPy's functions ----------------------------------------------------------------------------------


def each_of(value: Any, n: int) -> list[Any]:
    """Return one value for each axis."""
    if isinstance(value, str) or value is None or not (
            isinstance(value, (list, tuple, range)) or (is_array(value) and value.ndim)):
        return [value] * n
    values = [ops.np.getitem(value, i) for i in range(value.shape[0])] if is_array(value) else list(value)
    if len(values) != n:
        raise RuntimeError("sequence argument must have length equal to input rank")
    return values


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes to filter along, which are all by default."""
    return tuple(range(ndim)) if axes is None else normalize_axis_tuple(axes, ndim)


def into_output(output: Any, result: Any) -> Any:
    """Return the result in the dtype or array that was passed as `output`."""
    if output is None:
        return result
    dtype = output.dtype if is_array(output) else np.dtype(output)
    if result.dtype != dtype:
        result = ops.np.astype(result, dtype)
    return into(output, result) if is_array(output) else result


def as_image(input: Any, output: Any) -> Any:
    """Return the image in a dtype that also holds the output, because SciPy computes in double precision anyway."""
    input = as_nonscalar(input)
    if output is None:
        return input
    dtype = output.dtype if is_array(output) else np.dtype(output)
    wide = np.result_type(input.dtype, dtype)
    return ops.np.astype(input, wide) if wide != input.dtype else input


def filtered(input: Any, weights: Any, mode: Any, cval: Any, origin: Any, axes: Any, correlates: bool) -> Any:
    """Convolve or correlate the image with weights along some of its axes."""
    weights, ndim = as_nonscalar(weights), len(input.shape)
    shape, n = tuple(weights.shape), len(axes)
    if len(shape) != n or 0 in shape:
        raise RuntimeError(f"weights.ndim ({len(shape)}) must match len(axes) ({n})")
    if not isinstance(mode, str):
        raise RuntimeError("A sequence of modes is not supported")
    origins = dict(zip(axes, each_of(origin, n), strict=True))
    lengths = dict(zip(sorted(axes), shape, strict=True))
    if correlates:
        weights = ops.np.flip(ops.np.conjugate(weights) if weights.dtype.kind == "c" else weights)
        origins = {axis: -shift - (lengths[axis] % 2 == 0) for axis, shift in origins.items()}
    if n != ndim:
        weights = ops.np.reshape(weights, tuple([lengths.get(axis, 1) for axis in range(ndim)]))
    shifts = tuple([int(origins.get(axis, 0)) for axis in range(ndim)])
    if any(shifts):
        return CONVOLVE(input, weights, mode, cval, shifts)
    return CONVOLVE(input, weights, mode, cval)


@FACE.array_function("ndimage")
def convolve(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: Any = 0, *,
             axes: Any = None) -> Any:
    """Convolve an image with weights."""
    input = as_image(input, output)
    return into_output(output, filtered(input, weights, mode, cval, origin, axes_of(axes, input.ndim), False))


@FACE.array_function("ndimage")
def correlate(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: float = 0.0, origin: Any = 0,
              *, axes: Any = None) -> Any:
    """Correlate an image with weights."""
    input = as_image(input, output)
    return into_output(output, filtered(input, weights, mode, cval, origin, axes_of(axes, input.ndim), True))


def filtered_along(input: Any, weights: Any, axis: int, output: Any, mode: str, cval: Any, origin: Any,
                   correlates: bool) -> Any:
    """Filter an image along one axis."""
    input, weights = as_image(input, output), as_nonscalar(weights)
    if weights.ndim != 1 or weights.shape[0] < 1:
        raise RuntimeError("no filter weights given")
    axes = (normalize_axis_index(axis, input.ndim),)
    return into_output(output, filtered(input, weights, mode, cval, origin, axes, correlates))


@FACE.array_function("ndimage")
def convolve1d(input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0,
               origin: int = 0) -> Any:
    """Convolve an image with weights along an axis."""
    return filtered_along(input, weights, axis, output, mode, cval, origin, False)


@FACE.array_function("ndimage")
def correlate1d(input: Any, weights: Any, axis: int = -1, output: Any = None, mode: str = "reflect", cval: float = 0.0,
                origin: int = 0) -> Any:
    """Correlate an image with weights along an axis."""
    return filtered_along(input, weights, axis, output, mode, cval, origin, True)


# --- filters with fixed weights --------------------------------------------------------------------------------------


def gaussian_weights(name: str, sigma: Any, order: int, truncate: float, radius: Any) -> Any:
    """Return a Gaussian, or its derivative of some order, as weights, by operators if `sigma` is a Tensor."""
    known = known_values(sigma) if is_array(sigma) else sigma
    if radius is None:
        if known is None:
            raise DispatchTypeError(f"{name}: the radius of the filter follows from sigma, whose value is unknown "
                                    "here\npass radius=")
        radius = int(truncate * float(known) + 0.5)
    if not isinstance(radius, (int, np.integer)) or radius < 0:
        raise ValueError("radius must be a nonnegative integer")
    if order < 0:
        raise ValueError("order must be non-negative")
    plain = not is_array(sigma) or isinstance(sigma, (np.ndarray, np.generic))
    maker: Any = np if plain else ops.np
    x = np.arange(-radius, radius + 1)
    squared = maker.multiply(sigma, sigma)
    found = maker.exp(maker.multiply(maker.divide(-0.5, squared), x ** 2))
    found = maker.divide(found, maker.sum(found))
    factors: list[Any] = [1.0]      # of a polynomial q: q times the Gaussian is the derivative
    for _ in range(order):
        slopes = [k * factors[k] if plain else ops.np.multiply(factors[k], k) for k in range(1, len(factors))]
        falling = [maker.divide(maker.negative(factor), squared) for factor in factors]
        raised = [0.0, *falling]
        factors = [maker.add(slopes[k], raised[k]) if k < len(slopes) else raised[k] for k in range(len(raised))]
    if not order:
        return found
    total: Any = 0.0
    for k, factor in enumerate(factors):
        total = maker.add(total, maker.multiply(factor, x ** float(k) if k else np.ones(x.shape)))
    return maker.multiply(total, found)


@FACE.array_function("ndimage")
def gaussian_filter1d(input: Any, sigma: Any, axis: int = -1, order: int = 0, output: Any = None, mode: str = "reflect",
                      cval: float = 0.0, truncate: float = 4.0, *, radius: Any = None) -> Any:
    """Convolve an image along an axis with a Gaussian, or with a derivative of it.

    `sigma` can be a Tensor, which has a gradient if `radius` is given.
    """
    weights = gaussian_weights("ndimage.gaussian_filter1d", sigma, order, truncate, radius)
    return filtered_along(input, weights, axis, output, mode, cval, 0, False)


@FACE.array_function("ndimage")
def gaussian_filter(input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect",
                    cval: float = 0.0, truncate: float = 4.0, *, radius: Any = None, axes: Any = None) -> Any:
    """Convolve an image along its axes with Gaussians, or with derivatives of them."""
    image = as_image(input, output)
    axes = axes_of(axes, image.ndim)
    lists = [each_of(value, len(axes)) for value in (sigma, order, mode, radius)]
    for axis, width, degree, boundary, reach in zip(axes, *lists, strict=True):
        if is_array(width) or width > 1e-15:
            weights = gaussian_weights("ndimage.gaussian_filter", width, degree, truncate, reach)
            image = filtered_along(image, weights, axis, None, boundary, cval, 0, False)
    return into_output(output, image if image is not input else ops.np.copy(input))


def averaged(image: Any, size: int, axis: int, mode: str, cval: float, origin: int) -> Any:
    """Return moving means along an axis. Like SciPy, divide a sum, and truncate for integers."""
    if size < 1:
        raise RuntimeError("incorrect filter size")
    if not 0 <= size // 2 + origin < size:
        raise ValueError("invalid origin")
    dtype = image.dtype
    if dtype.kind not in "fc":
        image = ops.np.astype(image, np.dtype(float))
    total = filtered_along(image, np.ones(size), axis, None, mode, cval, origin, True)
    found = ops.np.divide(total, size)
    return found if found.dtype == dtype else ops.np.astype(found, dtype)


@FACE.array_function("ndimage")
def uniform_filter1d(input: Any, size: int, axis: int = -1, output: Any = None, mode: str = "reflect",
                     cval: float = 0.0, origin: int = 0) -> Any:
    """Average neighbours along an axis."""
    return into_output(output, averaged(as_image(input, output), size, axis, mode, cval, origin))


@FACE.array_function("ndimage")
def uniform_filter(input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: float = 0.0,
                   origin: Any = 0, *, axes: Any = None) -> Any:
    """Average neighbours along all axes."""
    image = as_image(input, output)
    axes = axes_of(axes, image.ndim)
    lists = [each_of(value, len(axes)) for value in (size, mode, origin)]
    for axis, length, boundary, shift in zip(axes, *lists, strict=True):
        if length > 1:
            image = averaged(image, int(length), axis, boundary, cval, shift)
    return into_output(output, image if image is not input else ops.np.copy(input))


# --- selected elements -----------------------------------------------------------------------------------------------


def ranked_kernel(input: Any, footprint: Any, rank: int, mode: str, cval: float, origin: Any, *, batch_ndim: int = 0
                  ) -> Any:
    """Return the place of the element that each window selects, or -1 for elements beyond the image.

    SciPy filters the order of the elements instead of their values.
    """
    order = np.argsort(input, None, "stable")
    places = np.empty(input.size)
    places[order] = np.arange(input.size)
    beyond = np.searchsorted(input.reshape(-1)[order], cval) - 0.5
    leading = (1,) * batch_ndim
    found = ndimage.rank_filter(
        places.reshape(input.shape), int(rank), footprint=footprint.reshape(leading + footprint.shape[-len(origin):]),
        mode=mode, cval=beyond, origin=[*[0] * batch_ndim, *origin])
    inside = found % 1 == 0
    selected = order[np.where(inside, found, 0).astype(np.intp)] % max(prod(input.shape[batch_ndim:]), 1)
    return np.where(inside, selected, -1)


def ranked_batch(op: Any, info: Any, in_dims: Any, input: Any, footprint: Any, *rest: Any) -> Any:
    *options, batch_ndim = rest
    return op(batch_of_one(input, in_dims[0]), footprint, *options, batch_ndim=batch_ndim + 1), 0


SCIPY.declare(
    "ndimage_ranked", "Tensor input, Tensor footprint, int rank, str mode, float cval, int[] origin, *, "
    "int batch_ndim=0", ranked_kernel,
    lambda input, footprint, rank, mode, cval, origin, batch_ndim=0: MetaArray(shape_of(input), np.dtype(np.intp)),
    vmap=ranked_batch, differentiable=False)


# --- interpolation ---------------------------------------------------------------------------------------------------


def check_coordinates(input: Any, coordinates: Any, order: int, mode: str, batch_ndim: int) -> None:
    """Raise SciPy's errors."""
    shape, ndim = shape_of(coordinates)[batch_ndim:], len(shape_of(input)) - batch_ndim
    if not 0 <= order <= 5:
        raise RuntimeError("spline order not supported")
    if ndim < 1 or len(shape) < 2:
        raise RuntimeError("input and output rank must be > 0")
    if shape[0] != ndim:
        raise RuntimeError("invalid shape for coordinate array")
    if dtype_of(coordinates).kind == "c":
        raise TypeError("Complex type not supported")
    if mode not in PADDING:
        raise RuntimeError("boundary mode not supported")


FEW = 8
"""The number of images above which calls of SciPy take longer than operators on all images."""


def map_kernel(input: Any, coordinates: Any, order: int = 3, mode: str = "constant", cval: float = 0.0, *,
               batch_ndim: int = 0) -> Any:
    """Interpolate by SciPy image by image. A single image takes the coordinates of all examples."""
    with ErrorsOf("ndimage.map_coordinates"):
        check_coordinates(input, coordinates, order, mode, batch_ndim)
        if prod(input.shape[:batch_ndim]) > FEW and order <= 1 and input.dtype.kind == "f":
            with np.errstate(all="ignore"):
                return map_by_operators(input, coordinates, order, mode, cval, batch_ndim=batch_ndim)
        if prod(input.shape[:batch_ndim]) != 1:
            return each_image(lambda image, points: ndimage.map_coordinates(
                image, points, None, order, mode, cval, False), input, coordinates, batch_ndim)
        return ndimage.map_coordinates(input.reshape(input.shape[batch_ndim:]), np.moveaxis(coordinates, batch_ndim, 0),
                                       None, order, mode, cval, False)


def map_meta(input: Any, coordinates: Any, order: int = 3, mode: str = "constant", cval: float = 0.0, *,
             batch_ndim: int = 0) -> MetaArray:
    with ErrorsOf("ndimage.map_coordinates"):
        check_coordinates(input, coordinates, order, mode, batch_ndim)
    batch = broadcast([shape_of(x)[:batch_ndim] for x in (input, coordinates)])
    return MetaArray((*batch, *shape_of(coordinates)[batch_ndim + 1:]), dtype_of(input))


def within(c: Any, n: int, mode: str) -> Any:
    """Map coordinates along an axis of n elements into the image, with the derivatives of the mapping."""
    if mode == "nearest":
        return ops.np.clip(c, 0, n - 1)
    if mode in ("reflect", "grid-mirror"):
        c = ops.np.remainder(c, 2 * n)
        return ops.np.where(ops.np.greater(c, n - 0.5), ops.np.subtract(2 * n - 1, c), c)
    if mode == "grid-wrap":
        return ops.np.remainder(c, n)
    if mode in ("mirror", "wrap") and n == 1:
        return ops.np.multiply(c, 0.0)
    if mode == "mirror":
        c = ops.np.remainder(c, 2 * n - 2)
        return ops.np.where(ops.np.greater(c, n - 1), ops.np.subtract(2 * n - 2, c), c)
    if mode == "wrap":      # the ends of the image coincide, and coordinates at either end stay
        turns = ops.np.trunc(ops.np.divide(ops.np.absolute(c), n - 1))
        below, above = ops.np.less(c, 0), ops.np.greater(c, n - 1)
        shift = ops.np.where(below, ops.np.add(turns, 1.0), ops.np.where(above, ops.np.negative(turns), 0.0))
        return ops.np.add(c, ops.np.multiply(shift, n - 1.0))
    return c


def spline_weights(part: Any, order: int) -> list[Any]:
    """Return the values of the B-splines that are not 0 at a distance from a knot, by de Boor's recursion."""
    found = [ops.np.subtract(1.0, part), part]
    for k in range(2, order + 1):
        rising = [(part + float(k - 1 - j)) * (value / k) for j, value in enumerate(found)]
        falling = [value - part for value, part in zip(found, rising, strict=True)]
        found = [falling[0], *[rising[j - 1] + falling[j] for j in range(1, k)], rising[-1]]
    return found


def neighbours(c: Any, n: int, order: int, mode: str) -> list[tuple[Any, Any, Any]]:
    """Return the elements next to a coordinate as (position, weight, is inside).

    A weight that is always 1 and a flag that is always True are None.
    """
    start = ops.np.floor(c if order % 2 else ops.np.add(c, 0.5))
    part = ops.np.subtract(c, start)
    weights = spline_weights(part if order % 2 else ops.np.add(part, 0.5), order) if order else [None]
    found = []
    for k, weight in enumerate(weights):
        position, inside = ops.np.add(start, float(k - order // 2)), None
        if mode == "grid-constant":
            inside = ops.np.logical_and(ops.np.greater_equal(position, 0), ops.np.less(position, n))
        if order > 1:       # as the coefficients are extended
            position = within(position, n, "mirror" if mode in ("constant", "wrap") else mode)
        position = ops.np.remainder(position, n) if mode == "grid-wrap" else ops.np.clip(position, 0, n - 1)
        found.append((ops.np.astype(position, np.dtype(np.intp)), weight, inside))
    return found


def map_by_operators(input: Any, coordinates: Any, order: int = 3, mode: str = "constant", cval: float = 0.0, *,
                     batch_ndim: int = 0) -> Any:
    """Sum elements of the image, whose weights are polynomials in the coordinates between two elements."""
    image, points_like = [MetaArray(tuple(x.shape), x.dtype) for x in (input, coordinates)]
    map_meta(image, points_like, order, mode, cval, batch_ndim=batch_ndim)      # raises the errors
    batch, shape = tuple(input.shape[:batch_ndim]), tuple(input.shape[batch_ndim:])
    points = len(coordinates.shape) - batch_ndim - 1
    first = (np.arange(prod(batch)) * prod(shape)).reshape(*batch, *(1,) * points)
    flat = ops.np.reshape(input, (prod(batch) * prod(shape),))
    along, outside = [], None
    for axis, n in enumerate(shape):
        c = ops.np.getitem(coordinates, (*[slice(None)] * batch_ndim, axis))
        c = ops.np.multiply(c, 1.0) if c.dtype.kind != "f" else c
        if mode == "constant":
            beyond = ops.np.logical_or(ops.np.less(c, 0), ops.np.greater(c, n - 1))
            outside = beyond if outside is None else ops.np.logical_or(outside, beyond)
            c = ops.np.where(beyond, 0.0, c)
        if order < 2 or mode != "nearest":      # for splines, SciPy repeats coefficients instead of elements
            c = within(c, n, mode)
        along.append(neighbours(c, n, order, mode))
    total: Any = None
    for corner in product(*along):
        place: Any = first
        term, inside = None, None
        for (position, weight, is_inside), stride in zip(corner, strides_of(shape), strict=True):
            place = ops.np.add(place, ops.np.multiply(position, stride))
            if weight is not None:
                term = weight if term is None else ops.np.multiply(term, weight)
            if is_inside is not None:
                inside = is_inside if inside is None else ops.np.logical_and(inside, is_inside)
        value = ops.np.take(flat, place)
        if inside is not None:
            value = ops.np.where(inside, value, cval)
        value = value if term is None else ops.np.multiply(value, term)
        total = value if total is None else ops.np.add(total, value)
    if outside is not None:
        total = ops.np.where(outside, cval, total)
    return in_dtype_of_image(total, input.dtype)


def strides_of(shape: tuple[int, ...]) -> list[int]:
    """Return the distances of neighbours along each axis, in elements of a flat array."""
    return [prod(shape[axis + 1:]) for axis in range(len(shape))]


def in_dtype_of_image(values: Any, dtype: np.dtype) -> Any:
    """Convert values to the dtype of the image. For integers, halves are rounded away from 0.

    Unsigned ones are limited to their range, which splines can exceed.
    """
    if values.dtype == dtype:
        return values
    if dtype.kind == "u":
        values = ops.np.clip(values, 0, np.iinfo(dtype).max)
    if dtype.kind not in "fc":
        rounded = ops.np.floor(ops.np.add(ops.np.absolute(values), 0.5))
        values = ops.np.multiply(ops.np.sign(values), rounded)
    return ops.np.astype(values, dtype)


SCIPY.declare(
    "ndimage_map_coordinates", 'Tensor input, Tensor coordinates, int order=3, str mode="constant", float cval=0.0, *, '
    "int batch_ndim=0", map_kernel, map_meta, vmap=filter_batch, differentiated_as=map_by_operators)


SHORT = 40
"""The number of elements up to which SciPy's coefficients for reflected ends are not symmetric functions of them."""


def spline_kernel(input: Any, order: int, axis: int, mode: str, transposed: bool = False) -> Any:
    """Return the coefficients of splines along an axis, which counts from the last, or the transpose of that map.

    If the ends are mirrored, each of their elements counts as half of another one.
    """
    dtype, n = np.result_type(input.dtype, np.float64), input.shape[axis]
    if not transposed:
        return ndimage.spline_filter1d(input, order, axis, dtype, mode)
    if n <= SHORT:
        return np.moveaxis(np.moveaxis(input, axis, -1) @ ndimage.spline_filter1d(np.eye(n), order, 0, mode=mode),
                           -1, axis)
    weights = np.ones((n, *[1] * (-1 - axis)))
    if mode not in ("reflect", "grid-mirror", "nearest", "grid-wrap"):
        weights[[0, -1]] = 0.5
    return ndimage.spline_filter1d(input / weights, order, axis, dtype, mode) * weights


SCIPY.declare(
    "ndimage_spline_coefficients", "Tensor input, int order, int axis, str mode, bool transposed=False", spline_kernel,
    lambda input, order, axis, mode, transposed=False: MetaArray(
        shape_of(input), np.result_type(dtype_of(input), np.float64)),
    vjp=lambda g, order, axis, mode, transposed: SPLINE(g, order, axis, mode, not transposed),
    jvp=lambda t, order, axis, mode, transposed: SPLINE(t, order, axis, mode, transposed),
    vmap=lambda op, info, in_dims, input, *options: (op(input, *options), 0))


@FACE.array_function("ndimage")
def map_coordinates(input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant",
                    cval: float = 0.0, prefilter: bool = True) -> Any:
    """Return the image at coordinates between its elements, interpolated by splines of an order.

    The image and the coordinates have gradients.
    """
    image, coordinates, npad = as_image(input, output), as_nonscalar(coordinates), 0
    dtype = image.dtype
    if prefilter and order > 1:
        if mode in ("nearest", "grid-constant"):
            npad = 12
            image = pad(image, npad, "edge") if mode == "nearest" else pad(image, npad, constant_values=cval)
        for axis in range(-image.ndim, 0):
            image = SPLINE(image, order, axis, mode)
    found = MAP(image, coordinates + npad if npad else coordinates, order, mode, cval)
    return into_output(output, in_dtype_of_image(found, dtype))


def output_of(output: Any, input: Any, shape: Any = None, complex_output: bool = False) -> Any:
    """Return the array to write a result to, of the kind of the image."""
    if is_array(output):
        return output
    like = np.broadcast_to(np.zeros((), input.dtype), input.shape)
    found = _ni_support._get_output(output, like, shape, complex_output=complex_output)
    return as_tensor(ops.np.zeros_like(input, dtype=found.dtype, shape=tuple(found.shape)))


def spectrum_of(output: Any, input: Any, char: str = "d") -> Any:
    """Return the array to write a spectrum to. By default, it is in double precision unless the image is not."""
    return output_of(output or (input.dtype if input.dtype.char in "FD" + char.replace("d", "f") else char), input)


REPLACED["scipy.ndimage._ni_support"] = {"_get_output": output_of}
REPLACED["scipy.ndimage._fourier"] = {"_get_output_fourier": spectrum_of,
                                      "_get_output_fourier_complex": partial(spectrum_of, char="D")}
borrow("ndimage", """
    affine_transform black_tophat center_of_mass extrema fourier_ellipsoid fourier_gaussian fourier_shift
    fourier_uniform gaussian_gradient_magnitude gaussian_laplace generic_filter generic_filter1d
    generic_gradient_magnitude generic_laplace geometric_transform grey_closing grey_dilation grey_erosion grey_opening
    labeled_comprehension laplace maximum maximum_filter maximum_filter1d mean median median_filter minimum
    minimum_filter minimum_filter1d morphological_gradient morphological_laplace percentile_filter prewitt rank_filter
    rotate shift sobel spline_filter spline_filter1d standard_deviation sum sum_labels variance vectorized_filter
    white_tophat zoom
""")
make_constant("ndimage", """
    binary_closing binary_dilation binary_erosion binary_fill_holes binary_hit_or_miss binary_opening
    binary_propagation distance_transform_bf distance_transform_cdt distance_transform_edt find_objects histogram label
    maximum_position minimum_position watershed_ift
""")
SCIPY.install("ndimage")
__all__ = publish("ndimage", globals())
__dir__ = only_public(globals())
