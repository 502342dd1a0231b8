"""HIPS's `convolve`, which convolves along some axes, sums products along others, and pairs all the rest."""

# tests: tests/compat/autograd/test_namespaces.py
from __future__ import annotations

from typing import Any

import pydispatch.numpy as np

__all__ = ["convolve"]


def convolve(A: Any, B: Any, axes: Any = None, dot_axes: Any = ((), ()), mode: str = "full") -> Any:
    """Convolve two arrays along the axes in `axes`, one sequence for each, and sum products along `dot_axes`.

    The axes of the result are the other ones of A, those of B, and those of the convolution. In mode "valid", the
    result only has elements for which the shorter array lies in the longer one, along each axis.
    """
    assert mode in ("valid", "full", "same"), f"the mode is {mode!r}, expected 'valid', 'full' or 'same'"
    a_axes, b_axes = axes or (range(np.ndim(A)), range(np.ndim(B)))
    is_longer = [B.shape[b] > A.shape[a] for a, b in zip(a_axes, b_axes, strict=True)]
    is_shorter = [B.shape[b] < A.shape[a] for a, b in zip(a_axes, b_axes, strict=True)]
    if mode == "valid" and any(is_longer) and any(is_shorter):
        raise ValueError("convolve: in mode 'valid', one array must be larger than the other along all axes")
    long, short, long_axes, short_axes = (B, A, b_axes, a_axes) if mode == "valid" and any(is_longer) else (
        A, B, a_axes, b_axes)
    lengths = [short.shape[axis] for axis in short_axes]
    if mode != "valid":
        ends = [(n - 1, n - 1) if mode == "full" else (n // 2, n - 1 - n // 2) for n in lengths]
        widths = [(0, 0)] * np.ndim(long)
        for axis, end in zip(long_axes, ends, strict=True):
            widths[axis] = end
        long = np.pad(long, widths)
    windows = np.lib.stride_tricks.sliding_window_view(long, lengths, tuple(long_axes))
    flipped = np.flip(short, tuple(short_axes))
    # einsum's axes by number: the windows have those of `long`, then one for each axis of a window
    n, m = np.ndim(long), len(lengths)
    long_names, window_names = list(range(n)), list(range(n, n + m))
    short_names = list(range(n + m, n + m + np.ndim(short)))
    for name, axis in zip(window_names, short_axes, strict=True):
        short_names[axis] = name
    long_dots, short_dots = dot_axes if long is not B and short is B else dot_axes[::-1]
    for i, j in zip(long_dots, short_dots, strict=True):
        short_names[j] = long_names[i]
    rest_long = [name for i, name in enumerate(long_names) if i not in (*long_axes, *long_dots)]
    rest_short = [name for i, name in enumerate(short_names) if i not in (*short_axes, *short_dots)]
    first, second = (rest_long, rest_short) if short is B else (rest_short, rest_long)
    out = [*first, *second, *[long_names[axis] for axis in long_axes]]
    return np.einsum(windows, [*long_names, *window_names], flipped, short_names, out)
