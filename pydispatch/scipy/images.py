"""SciPy's compiled routines of `scipy.ndimage` for Tensors: each writes its result to `output`.

The copies of SciPy's modules call these functions (see `borrowed.py`), which have the parameters of SciPy's routines.
"""

# tests: tests/scipy/test_functions.py
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from scipy import ndimage

from pydispatch.func import vmap
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.ops import ops
from pydispatch.scipy.batches import by_example_if_needed
from pydispatch.scipy.ndimage import MAP, RANKED, SPLINE, extended, in_dtype_of_image

__all__ = ["fourier_filter", "fourier_shift", "generic_filter", "generic_filter1d", "geometric_transform",
           "min_or_max_filter", "min_or_max_filter1d", "rank_filter", "spline_filter1d", "zoom_shift"]

MODES = ("nearest", "wrap", "reflect", "mirror", "constant", "grid-wrap", "grid-constant")
"""The modes by SciPy's numbers of them."""


def write(output: Any, values: Any) -> None:
    output[...] = values if values.dtype == output.dtype else ops.np.astype(values, output.dtype)


# --- selected elements -----------------------------------------------------------------------------------------------


def selected(input: Any, place: Any, cval: float) -> Any:
    """Return elements of the image by their places. Those of place -1 are `cval`."""
    values = ops.np.take(ops.np.reshape(input, (-1,)), ops.np.maximum(place, 0))
    return ops.np.where(ops.np.less(place, 0), np.asarray(cval, input.dtype), values)


def rank_filter(input: Any, rank: int, footprint: Any, output: Any, mode: int, cval: Any, origins: Any) -> None:
    """Select the element of a rank in each window. SciPy's routine for one axis passes the length of the window."""
    if isinstance(footprint, int):
        footprint = np.ones(footprint, bool)
    place = RANKED(input, np.asarray(footprint), int(rank), MODES[mode], float(cval), tuple(np.atleast_1d(origins)))
    write(output, selected(input, place, cval))


def min_or_max_filter1d(input: Any, size: int, axis: int, output: Any, mode: int, cval: Any, origin: int,
                        minimum: int) -> None:
    """Select the least or largest neighbour along an axis."""
    shape, origins = [1] * input.ndim, [0] * input.ndim
    shape[axis], origins[axis] = size, origin
    min_or_max_filter(input, np.ones(shape, bool), None, output, mode, cval, origins, minimum)


def min_or_max_filter(input: Any, footprint: Any, structure: Any, output: Any, mode: int, cval: Any, origins: Any,
                      minimum: int) -> None:
    """Select the least or largest neighbour. A structure is subtracted before, or added."""
    if structure is None:
        rank_filter(input, 0 if minimum else int(footprint.sum()) - 1, footprint, output, mode, cval, origins)
        return
    mask = np.asarray(footprint)
    change = ops.np.take(ops.np.reshape(as_nonscalar(structure), (-1,)), np.flatnonzero(mask))
    values = windows(input, mask, mode, cval, origins)
    found = ops.np.min(values - change, -1) if minimum else ops.np.max(values + change, -1)
    write(output, found)


def windows(input: Any, footprint: Any, mode: int, cval: Any, origins: Any) -> Any:
    """Return the neighbours of each element along a new last axis."""
    place = np.arange(prod(input.shape)).reshape(input.shape)
    for axis, (size, origin) in enumerate(zip(footprint.shape, origins, strict=True)):
        before = size // 2 + origin
        place = extended(place, axis, before, size - 1 - before, MODES[mode], -1)
    view = np.lib.stride_tricks.sliding_window_view(place, footprint.shape)
    return selected(input, view[..., footprint], cval)


def generic_filter(input: Any, function: Callable[..., Any], footprint: Any, output: Any, mode: int, cval: Any,
                   origins: Any, extra_arguments: Any, extra_keywords: Any) -> None:
    """Call a function for the neighbours of each element."""
    values = windows(input, np.asarray(footprint), mode, cval, origins)
    found = vmap(lambda values: by_example_if_needed(function, (values, *extra_arguments), extra_keywords))(
        ops.np.reshape(values, (-1, values.shape[-1])))
    write(output, ops.np.reshape(found, input.shape))


def generic_filter1d(input: Any, function: Callable[..., Any], filter_size: int, axis: int, output: Any, mode: int,
                     cval: Any, origin: int, extra_arguments: Any, extra_keywords: Any) -> None:
    """Call a function for each extended line along an axis, and for the line that it writes its result to."""
    before = filter_size // 2 + origin
    place = np.arange(prod(input.shape)).reshape(input.shape)
    place = extended(place, axis, before, filter_size - 1 - before, MODES[mode], -1)
    lines = np.moveaxis(selected(input, place, cval), axis, -1)
    n = input.shape[axis]

    def filtered(line: Any) -> Any:
        found = ops.np.zeros_like(line[:n])
        function(line, found, *extra_arguments, **extra_keywords)
        return found

    found = vmap(filtered)(ops.np.reshape(lines, (-1, lines.shape[-1])))
    write(output, np.moveaxis(ops.np.reshape(found, (*lines.shape[:-1], n)), -1, axis))


# --- interpolation ---------------------------------------------------------------------------------------------------


def spline_filter1d(input: Any, order: int, axis: int, output: Any, mode: int) -> None:
    """Compute coefficients of splines along an axis."""
    write(output, SPLINE(input, order, axis - input.ndim, MODES[mode]))


def geometric_transform(input: Any, mapping: Any, coordinates: Any, matrix: Any, shift: Any, output: Any, order: int,
                        mode: int, cval: Any, npad: int, extra_arguments: Any, extra_keywords: Any) -> None:
    """Interpolate at coordinates, those that a function returns, or those of a linear map."""
    if mapping is not None:
        points = [np.stack([as_nonscalar(x) for x in mapping(place, *extra_arguments, **extra_keywords)])
                  for place in np.ndindex(*output.shape)]
        coordinates = ops.np.reshape(np.stack(points, -1), (input.ndim, *output.shape))
    elif matrix is not None:
        grid, coordinates = np.indices(output.shape).reshape(output.ndim, -1), shift[:, None]
        for axis, line in enumerate(grid):      # in this order, as SciPy rounds
            coordinates = coordinates + matrix[:, axis, None] * line
        coordinates = ops.np.reshape(coordinates, (input.ndim, *output.shape))
    found = MAP(input, as_nonscalar(coordinates) + npad, order, MODES[mode], cval)
    write(output, in_dtype_of_image(found, output.dtype))


def zoom_shift(input: Any, zoom: Any, shift: Any, output: Any, order: int, mode: int, cval: Any, npad: int,
               grid_mode: bool) -> None:
    """Interpolate at coordinates that are shifted, then multiplied."""
    lines = []
    for axis, n in enumerate(output.shape):
        line = np.arange(n, dtype=float)
        line = line if shift is None else line + shift[axis]
        if grid_mode and zoom is not None:
            line = (line + 0.5) * zoom[axis] - 0.5
        elif zoom is not None:
            line = line * zoom[axis]
        shape = [1] * output.ndim
        shape[axis] = n
        lines.append(ops.np.broadcast_to(ops.np.reshape(line, tuple(shape)), tuple(output.shape)))
    geometric_transform(input, None, np.stack(lines), None, None, output, order, mode, cval, npad, None, None)


# --- Fourier transforms ----------------------------------------------------------------------------------------------


def frequencies(input: Any, n: int, axis: int) -> list[np.ndarray]:
    """Return the frequencies along each axis. With n given, the input is a transform of n real numbers along `axis`."""
    found = []
    for k, size in enumerate(input.shape):
        line = np.arange(size) / n if n >= 0 and k == axis else np.fft.fftfreq(size)
        found.append(line.reshape([-1 if k == i else 1 for i in range(input.ndim)]))
    return found


def fourier_filter(input: Any, sizes: Any, n: int, axis: int, output: Any, kind: int) -> None:
    """Multiply by the transform of a Gaussian, of a box, or of an ellipsoid."""
    if kind == 2:
        ones = np.ones(input.shape)
        found = input * ndimage.fourier_ellipsoid(ones, np.asarray(sizes), n, axis)
    else:
        found = input
        for k, line in enumerate(frequencies(input, n, axis)):
            found = found * (np.exp(-2 * (np.pi * line * sizes[k]) ** 2) if kind == 0 else np.sinc(line * sizes[k]))
    write(output, found)


def fourier_shift(input: Any, shift: Any, n: int, axis: int, output: Any) -> None:
    """Multiply by the transform of a shifted impulse."""
    phase: Any = 0.0
    for k, line in enumerate(frequencies(input, n, axis)):
        phase = phase + line * shift[k]
    write(output, input * np.exp(-2j * np.pi * phase))
