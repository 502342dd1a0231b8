"""The backend `Dask`: `dask.array.Array`, the functions of `dask.array`, and kernels for operators that these lack.

Kernels are lazy. They use shapes, dtypes and chunks, never values. A kernel that works along an axis makes one chunk of
it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np

from pydispatch._core import OpOverload
from pydispatch._registry.backends import is_masked, register_backend
from pydispatch.backends import masked
from pydispatch.backends.dask import indexing, matrices, reductions, shaping
from pydispatch.backends.dask.chunkwise import along, as_dask, of_known_sizes, on_elements, on_masked, on_rows
from pydispatch.backends.dask.other_chunks import any_masked, checked, chunk_has
from pydispatch.keys import backend_names
from pydispatch.library import impl
from pydispatch.operators.declare import LIBRARY
from pydispatch.ops import ops

NAME = "Dask"


def sort(a: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    """Sort elements along an axis."""
    return _ordered(ops.np.sort.default, a, axis, kind, stable)


def argsort(a: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    """Return the indices that sort elements along an axis."""
    return _ordered(ops.np.argsort.default, a, axis, kind, stable)


def _ordered(operator: OpOverload, a: Any, axis: int | None, kind: str | None, stable: bool | None) -> Any:
    if axis is None:
        a, axis = shaping.ravel(a), 0
    return along(operator, (axis,), a, axis, kind, stable=stable)


def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """Return the elements at the positions that are given for each row."""
    if axis is None:
        arr, axis = shaping.ravel(arr), 0
    rows = [da.moveaxis(as_dask(a), axis, -1) for a in (arr, indices)]
    found = on_rows(ops.np.take_along_axis.default, "(n),(k)->(k)", *rows)
    return da.moveaxis(found, -1, axis)


def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    """Find the positions of elements in a sorted array, which becomes one chunk."""
    return on_rows(ops.np.searchsorted.default, "(n),()->()", as_dask(a), as_dask(v), side)


def interval(x: Any, xp: Any) -> Any:
    """Return the number of the interval between sorted points that each element lies in."""
    core = core_of_points(x, xp)
    return on_rows(ops.np.interval.default, f"({core}),(n)->({core})", as_dask(x), as_dask(xp))


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    """Interpolate linearly between values at sorted points."""
    core = core_of_points(x, xp)
    ends = ",()" * sum(isinstance(end, (da.Array, np.ndarray)) for end in (left, right))
    return on_rows(ops.np.interp.default, f"({core}),(n),(n){ends}->({core})", *map(as_dask, (x, xp, fp)), left, right)


def core_of_points(x: Any, xp: Any) -> str:
    """Return the axes of the points that belong to one row of sorted points, for a signature."""
    return "" if xp.ndim == 1 else ",".join(f"k{axis}" for axis in range(x.ndim - xp.ndim + 1))


def item(a: Any) -> Any:
    """Compute the only element, as a Python number."""
    return a.compute().item()


def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """Compute the convolution of rows."""
    return on_rows(ops.np.convolve.default, "(n),(m)->(k)", as_dask(a), as_dask(v), mode)


def fft(operator: OpOverload, a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Compute a Fourier transform along an axis."""
    return along(operator, (axis,), a, n, axis, norm)


# --- registration ----------------------------------------------------------------------------------------------------


def bound(name: str, function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """Return a kernel that calls a function with these arguments first. Messages show its name."""
    def kernel(*args: Any, **options: Any) -> Any:
        return function(*first, *args, **options)
    kernel.__name__ = kernel.__qualname__ = name
    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    "sort": sort, "argsort": argsort, "take_along_axis": take_along_axis, "searchsorted": searchsorted,
    "interval": interval, "interp": interp, "convolve": convolve,
    "clip": bound("clip", on_elements, ops.np.clip.default),
    "getitem": indexing.index, "index": indexing.index, "setitem": indexing.setitem, "index_put": indexing.index_put,
    "take": indexing.take, "item": item, "scatter_add": indexing.scatter_add,
    "reshape": shaping.reshape, "ravel": shaping.ravel, "repeat": shaping.repeat, "roll": shaping.roll,
    "split": shaping.split,
    "concatenate": shaping.concatenate, "stack": shaping.stack, "broadcast_to": shaping.broadcast_to,
    "linspace": shaping.linspace, "full": shaping.full, "full_like": shaping.full_like,
    "zeros_like": shaping.zeros_like, "ones_like": shaping.ones_like, "empty_like": shaping.empty_like,
    **{name: bound(name, reductions.reduced, name) for name in ("sum", "prod", "max", "min", "all", "any")},
    **{name: bound(name, reductions.accumulated, name) for name in ("cumsum", "cumprod")},
    "mean": reductions.mean, "var": reductions.var, "std": reductions.std,
    "einsum": matrices.einsum, "covariance": matrices.covariance, "matmul": matrices.matmul,
    "linalg_inv": matrices.inv, "linalg_cholesky": matrices.cholesky, "linalg_solve": matrices.solve,
    "linalg_qr": matrices.qr, "linalg_svd": matrices.svd, "linalg_vector_norm": matrices.vector_norm,
}
"""Kernels of operators that `dask.array` lacks, or where its function takes less than NumPy's or differs from it."""

SIGNATURES = {
    "linalg_cofactor": "(m,m)->(m,m)", "linalg_cofactor_slope": "(m,m),(m,m)->(m,m)", "linalg_det": "(m,m)->()",
    "linalg_slogdet": "(m,m)->(),()", "linalg_eigh": "(m,m)->(m),(m,m)", "linalg_eigvalsh": "(m,m)->(m)",
    "linalg_eig": "(m,m)->(m),(m,m)", "linalg_eigvals": "(m,m)->(m)", "linalg_svdvals": "(m,n)->(k)",
    "linalg_pinv": "(m,n)->(n,m)", "linalg_eigenspace_basis": "(m),(m,m)->(m,m)", "linalg_spectral": "(p,m,m)->(m,m)",
}
"""Operators on stacks of matrices, which run as generalized universal functions."""
OF_NUMPYS = ("einsum", "linalg_inv", "linalg_cholesky", "linalg_solve", "linalg_qr", "linalg_svd", "cumsum", "cumprod",
             "setitem", "index_put", "argmax", "argmin")
"""Operators that Dask computes on NumPy arrays, whichever kind the chunks are."""
TRANSFORMS = ("fft_fft", "fft_ifft", "fft_rfft", "fft_irfft")


def pointwise(name: str) -> Callable[..., Any]:
    """Return the kernel of a pointwise operator: Dask's function, if there is one, for chunks of NumPy's only."""
    operator = getattr(ops.np, name).default
    by_chunk = bound(name, on_elements, operator)
    function = getattr(da, name, None)
    if function is None:
        return by_chunk

    def kernel(*args: Any, **options: Any) -> Any:
        takes_chunks = not options and not any(is_masked(each) or chunk_has(operator, each) for each in args)
        return function(*args) if takes_chunks else by_chunk(*args, **options)
    kernel.__name__ = kernel.__qualname__ = name
    return kernel


class Functions(SimpleNamespace):
    """The functions of `dask.array`, except pointwise ones."""

    __name__ = "dask.array"

    def __getattr__(self, name: str) -> Any:
        return getattr(da, name)


def register() -> None:
    """Register the backend, unless it is registered."""
    if NAME in backend_names():
        return
    register_backend(NAME, da.Array, namespace=Functions(**{
        name: pointwise(name) for name, declaration in LIBRARY.declarations.items()
        if declaration.variant == "functional" and "pointwise" in declaration.tags}))
    for name, kernel in kernels().items():
        impl(f"np::{name}", NAME, of_known_sizes(name, kernel))
    for name in ("filled", "mask", "with_mask"):
        impl(f"masked::{name}", NAME, bound(name, on_masked, getattr(masked, name).default))
    for name, composite in masked.COMPOSITES.items():
        impl(f"np::{name}", f"Autograd{NAME}", composite, composite=any_masked)


def kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernels to register, by operator."""
    of_signatures = {name: bound(name, on_rows, getattr(ops.np, name).default, signature)
                     for name, signature in SIGNATURES.items()}
    of_transforms = {name: bound(name, fft, getattr(ops.np, name).default) for name in TRANSFORMS}
    of_numpys = {name: checked(getattr(ops.np, name).default, KERNELS.get(name) or getattr(da, name))
                 for name in OF_NUMPYS}
    return KERNELS | of_numpys | of_signatures | of_transforms
