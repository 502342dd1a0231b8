"""`scipy.spatial.distance` for arrays and Tensors.

Source: the formulas in SciPy's documentation. Where vectors are equal, the gradient of a length is 0.
"""

# tests: tests/scipy/test_spatial.py
from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np
from scipy.spatial import distance as scipys

from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar, known_values
from pydispatch.ops import ops
from pydispatch.scipy.borrowed import borrow, publish
from pydispatch.scipy.pack import FACE

METRICS: dict[str, Callable[..., Any]] = {}
"""Functions of vectors along the last axis, which broadcast, by SciPy's name of the metric."""


def metric(name: str, *others: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a distance between two vectors, and between all rows by this name or others."""
    def declared(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_vectors(u: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
            return function(as_vector(u), as_vector(v), *args, **kwargs)

        of_vectors.__name__, of_vectors.__doc__ = name, function.__doc__
        FACE.array_function("spatial.distance")(of_vectors)
        FACE.functions[f"spatial.distance.{name}"].__dict__["__wrapped__"] = getattr(scipys, name)
        METRICS.update(dict.fromkeys((name, *others), function))
        return function
    return declared


def as_numbers(x: Any) -> Any:
    """Return an array in double precision, in which SciPy computes distances."""
    x = as_nonscalar(x)
    return x if x.dtype == np.float64 else ops.np.astype(x, np.dtype(float))


def as_vector(x: Any) -> Any:
    """Return an array with one axis. Raise ValueError for others."""
    x = as_nonscalar(x)
    if x.ndim != 1:
        raise ValueError("Input vector should be 1-D.")
    return x if x.dtype.kind in "fc" else as_numbers(x)


def weighted(values: Any, w: Any) -> Any:
    """Multiply by the weights of the elements, if there are any."""
    return values if w is None else ops.np.multiply(values, as_numbers(w))


def total(values: Any, w: Any = None) -> Any:
    return ops.np.sum(weighted(values, w), -1)


def differences(u: Any, v: Any) -> Any:
    return ops.np.absolute(ops.np.subtract(u, v))


@metric("minkowski", "minkowski", "mi", "m", "pnorm")
def p_norm(u: Any, v: Any, p: float = 2, w: Any = None) -> Any:
    """Return the p-norm of the difference."""
    if p <= 0:
        raise ValueError("p must be greater than 0")
    apart = ops.np.subtract(u, v)
    if w is not None:
        apart = ops.np.multiply(apart, ops.np.power(as_numbers(w), 0.0 if p == np.inf else 1.0 / p))
    return ops.np.linalg_vector_norm(apart, -1, float(p))


@metric("euclidean", "euclid", "eu", "e")
def length(u: Any, v: Any, w: Any = None) -> Any:
    """Return the length of the difference."""
    return p_norm(u, v, 2, w)


@metric("sqeuclidean", "sqeuclid", "sqe")
def squared_length(u: Any, v: Any, w: Any = None) -> Any:
    """Return the squared length of the difference."""
    return total(ops.np.square(ops.np.subtract(u, v)), w)


@metric("cityblock", "cblock", "cb", "c", "manhattan")
def sum_of_differences(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of the differences of the elements."""
    return total(differences(u, v), w)


@metric("chebyshev", "chebychev", "cheby", "cheb", "ch")
def largest_difference(u: Any, v: Any, w: Any = None) -> Any:
    """Return the largest difference of elements whose weight is positive."""
    apart = differences(u, v)
    return ops.np.max(apart if w is None else ops.np.multiply(apart, ops.np.greater(as_nonscalar(w), 0)), -1)


@metric("canberra")
def relative_differences(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of the relative differences of the elements, which are 0 for two zeros."""
    size = ops.np.add(ops.np.absolute(u), ops.np.absolute(v))
    some = ops.np.not_equal(size, 0)
    return total(ops.np.where(some, ops.np.divide(differences(u, v), ops.np.where(some, size, 1.0)), 0.0), w)


@metric("braycurtis")
def relative_difference(u: Any, v: Any, w: Any = None) -> Any:
    """Return the differences of the elements relative to their sums."""
    return ops.np.divide(total(differences(u, v), w), total(ops.np.absolute(ops.np.add(u, v)), w))


@metric("correlation", "co")
def lack_of_correlation(u: Any, v: Any, w: Any = None, centered: bool = True) -> Any:
    """Return 1 minus the correlation of the elements."""
    if w is not None:
        w = as_numbers(w)
        w = ops.np.divide(w, ops.np.sum(w))
    if centered:
        u, v = [ops.np.subtract(x, ops.np.mean(x, -1, keepdims=True) if w is None else
                                ops.np.sum(weighted(x, w), -1, keepdims=True)) for x in (u, v)]
    product, of_u, of_v = [total(ops.np.multiply(x, y), w) for x, y in ((u, v), (u, u), (v, v))]
    found = ops.np.subtract(1.0, ops.np.divide(product, ops.np.sqrt(ops.np.multiply(of_u, of_v))))
    return ops.np.clip(found, 0.0, 2.0)


@metric("cosine", "cos")
def lack_of_alignment(u: Any, v: Any, w: Any = None) -> Any:
    """Return 1 minus the cosine of the angle between two vectors."""
    return lack_of_correlation(u, v, w, centered=False)


@metric("seuclidean", "se", "s")
def standardized_length(u: Any, v: Any, V: Any) -> Any:
    """Return the length of the difference whose elements are divided by standard deviations."""
    return p_norm(u, v, 2, ops.np.divide(1.0, as_numbers(V)))


@metric("mahalanobis", "mahal", "mah")
def length_by_covariance(u: Any, v: Any, VI: Any) -> Any:
    """Return the length of the difference, measured by the inverse of a covariance."""
    apart = ops.np.subtract(u, v)
    return ops.np.sqrt(ops.np.sum(ops.np.multiply(ops.np.matmul(apart, as_numbers(VI)), apart), -1))


# --- all rows --------------------------------------------------------------------------------------------------------


def between_rows(name: str, pair: tuple[Any, Any], metric: Any, kwargs: dict[str, Any], observed: Any) -> Any:
    """Return the distances between rows that broadcast. Parameters that are left out are those of the data."""
    function = metric if callable(metric) else METRICS.get(str(metric).lower())
    if function is None:
        raise NotImplementedError(f"spatial.distance.{name}: metric {metric!r} is not supported for Tensors\n"
                                  f"pass one of {', '.join(sorted(METRICS))}, or an array")
    if function is standardized_length and "V" not in kwargs:
        kwargs = {"V": ops.np.var(observed, 0, ddof=1), **kwargs}
    if function is length_by_covariance and "VI" not in kwargs:
        apart = ops.np.subtract(observed, ops.np.mean(observed, 0, keepdims=True))
        covariance = ops.np.divide(ops.np.matmul(ops.np.transpose(apart), apart), float(observed.shape[0] - 1))
        kwargs = {"VI": ops.np.linalg_inv(covariance), **kwargs}
    return function(*pair, **kwargs)


def as_rows(name: str, X: Any) -> Any:
    """Return a matrix in double precision. Raise ValueError for other arrays."""
    X = as_numbers(X)
    if X.ndim != 2:
        raise ValueError(f"{name} must be a 2-dimensional array.")
    return X


def refuse_out(name: str, out: Any) -> None:
    if out is not None:
        raise NotImplementedError(f"spatial.distance.{name}: out= is not supported for Tensors\nuse the result")


@FACE.array_function("spatial.distance")
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Return the distances between all rows of two matrices."""
    refuse_out("cdist", out)
    XA, XB = as_rows("XA", XA), as_rows("XB", XB)
    if XA.shape[1] != XB.shape[1]:
        raise ValueError("XA and XB must have the same number of columns (i.e. feature dimension.)")
    pair = ops.np.expand_dims(XA, 1), ops.np.expand_dims(XB, 0)
    return between_rows("cdist", pair, metric, kwargs, ops.np.concatenate([XA, XB]))


@FACE.array_function("spatial.distance")
def pdist(X: Any, metric: Any = "euclidean", *, out: Any = None, **kwargs: Any) -> Any:
    """Return the distances between each two rows of a matrix."""
    refuse_out("pdist", out)
    X = as_rows("X", X)
    first, second = np.triu_indices(X.shape[0], 1)
    return between_rows("pdist", (ops.np.take(X, first, 0), ops.np.take(X, second, 0)), metric, kwargs, X)


@FACE.array_function("spatial.distance")
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    """Convert a vector of distances to a symmetric matrix, or back."""
    X = as_nonscalar(X)
    if (force.lower() == "tomatrix" and X.ndim != 1) or (force.lower() == "tovector" and X.ndim != 2):
        raise ValueError(f"Forcing '{force.lower()}' but input X is not a "
                         f"{'distance vector' if X.ndim != 1 else 'distance matrix'}.")
    if X.ndim == 1:
        return as_matrix(X)
    if X.ndim != 2 or X.shape[0] != X.shape[1]:
        raise ValueError("The matrix argument must be square.")
    known = known_values(X)
    if checks and known is not None:
        scipys.is_valid_dm(known, throw=True, name="X")
    return ops.np.take(ops.np.reshape(X, (-1,)), np.flatnonzero(np.triu(np.ones(X.shape), 1)))


def as_matrix(vector: Any) -> Any:
    """Return the symmetric matrix of a vector of distances."""
    n = vector.shape[0]
    size = (1 + isqrt(1 + 8 * n)) // 2
    if size * (size - 1) // 2 != n:
        raise ValueError("Incompatible vector size. It must be a binomial coefficient n choose 2 for some integer "
                         "n >= 2.")
    places = np.zeros((size, size), np.intp)        # the diagonal takes a zero, put before the others
    places[np.triu_indices(size, 1)] = np.arange(1, n + 1)
    return ops.np.take(ops.np.concatenate([ops.np.zeros_like(vector, shape=(1,)), vector]), places + places.T)


borrow("spatial.distance", "jensenshannon")
__all__ = publish("spatial.distance", globals())
__dir__ = only_public(globals())
