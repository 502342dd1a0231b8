"""Functions of `autograd.numpy` and `autograd.numpy.linalg` that differ from NumPy's or are not in NumPy."""

# tests: tests/compat/autograd/test_namespaces.py
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy

import pydispatch.numpy as np

__all__ = ["concatenate", "eigh", "hstack", "make_diagonal", "stack", "vstack", "where"]


def of_iterable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of several arrays that also takes them from an iterator."""
    @wraps(function)
    def call(arrays: Any, *args: Any, **kwargs: Any) -> Any:
        return function(arrays if hasattr(arrays, "__len__") else list(arrays), *args, **kwargs)

    return call


concatenate, hstack = of_iterable(np.concatenate), of_iterable(np.hstack)
stack, vstack = of_iterable(np.stack), of_iterable(np.vstack)


def where(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """Choose between elements as `numpy.where`. Return numbers and lists of Python if no argument is an array."""
    values = (condition, *args, *[kwargs[name] for name in ("x", "y") if name in kwargs])
    chosen = np.where(*values)
    has_array = len(values) == 1 or any(hasattr(value, "dtype") for value in values)
    return chosen if has_array or not isinstance(chosen, numpy.ndarray) else chosen.tolist()


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return matrices with the last axis of `D` as diagonals. Only `axis1=-1, axis2=-2` is possible."""
    if (offset, axis1, axis2) != (0, -1, -2):
        raise NotImplementedError("make_diagonal: expected offset=0, axis1=-1 and axis2=-2\n"
                                  "for one row, write numpy.diag")
    return D[..., None] * np.eye(D.shape[-1])


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Return eigenvalues and eigenvectors. The gradient is that of the triangle that `UPLO` names, which is read."""
    triangle = np.tril(a, -1) if UPLO.upper() == "L" else np.triu(a, 1)
    diagonal = np.real(np.diagonal(a, 0, -1, -2))[..., None] * np.eye(np.shape(a)[-1])
    return np.linalg.eigh(triangle + np.conj(np.swapaxes(triangle, -1, -2)) + diagonal, UPLO)
