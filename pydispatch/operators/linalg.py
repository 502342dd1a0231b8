"""Products of matrices."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.exceptions import AxisError

from pydispatch._core import ArrayMethod, MetaArray, sum_to
from pydispatch.operators import batching
from pydispatch.operators.declare import declare, operators
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.operators.pointwise import UFUNC_LEFT_OUT, UFUNC_OPTIONS

add, divide, matmul, mean, subtract = operators("add", "divide", "matmul", "mean", "subtract")

MATMUL_LEFT_OUT = {
    "axes": "use ops.np.moveaxis on the arguments and the result",
    "axis": "NumPy's matmul has the name but refuses every value",
    "keepdims": "NumPy's matmul has the name but refuses every value",
    **UFUNC_LEFT_OUT,
}
del MATMUL_LEFT_OUT["where"]
AXES_OF_MATRICES: Any = [(-2, -1), (-2, -1), (-2, -1)]
AXES_OF_VECTOR: Any = [(-1,), (-2, -1), (-1,)]


def matmul_meta(x1, x2, *, out=None, **options):
    """Infer the metadata: the dtype from np.matmul without elements, the shape from rows, columns and the loop."""
    if out is not None:
        options["out"] = np.empty((0, 0), out.dtype)
    dtype = (product_dtype(dtype_of(x1), dtype_of(x2)) if not options
             else np.matmul(np.empty((0, 0), dtype_of(x1)), np.empty((0, 0), dtype_of(x2)), **options).dtype)
    loop, core = matmul_shape(shape_of(x1), shape_of(x2))
    if out is not None and core != out.shape[len(out.shape) - len(core):]:
        raise ValueError(f"matmul.out: argument out has shape {out.shape}, the result has shape {loop + core}\n"
                         f"pass out=np.empty({loop + core}, ...)")
    return MetaArray(loop + core, dtype)


@cache
def product_dtype(left, right):
    return np.matmul(np.empty((0, 0), left), np.empty((0, 0), right)).dtype


def matmul_shape(left, right):
    """Return the shapes of a product's loop and of one matrix. Raise ValueError if the arguments do not match."""
    if not left or not right:
        raise ValueError(f"matmul: arguments of shapes {left} and {right}, expected matrices\nuse ops.np.multiply")
    inner = right[-2] if len(right) > 1 else right[0]
    if left[-1] != inner:
        raise ValueError(f"matmul: argument x1 has {left[-1]} columns, x2 has {inner} rows "
                         f"(shapes {left} and {right})\nto transpose one: ops.np.swapaxes(x, -1, -2)")
    return broadcast((left[:-2], right[:-2])), left[-2:-1] + (right[-1:] if len(right) > 1 else ())


def matmul_in_place(x1, x2, *, out, **options):
    """Compute `x1 @= x2` as NumPy does: the product with a vector is not repeated to fill the matrix."""
    try:
        return np.matmul(x1, x2, out=out, axes=AXES_OF_MATRICES if x1.ndim > 1 else AXES_OF_VECTOR, **options)
    except AxisError as error:
        raise ValueError(f"matmul_: arguments of shapes {x1.shape} and {shape_of(x2)}, expected a product of the shape "
                         "of x1\nuse x1 @ x2") from error


def row(x):
    return batching.reshaped(x, (*x.shape[:-1], 1, *x.shape[-1:]))


def column(x):
    return batching.reshaped(x, (*x.shape, 1))


def matmul_vjp_of_left(g, x1_shape, x2):
    """Return g @ x2.T, where a vector on the left is a row and one on the right is a column."""
    if x2.ndim == 1:
        return column(g) * x2
    if len(x1_shape) == 1 and g.ndim > 1:
        return sum_to((x2 @ column(g))[..., 0], x1_shape)
    return sum_to(g @ x2.mT, x1_shape)


def matmul_vjp_of_right(g, x1, x2_shape):
    """Return x1.T @ g, where a vector on the left is a row and one on the right is a column."""
    if x1.ndim == 1:
        return column(x1) * row(g) if len(x2_shape) > 1 else g * x1
    if len(x2_shape) == 1:
        return g @ x1 if g.ndim == 1 else sum_to((row(g) @ x1)[..., 0, :], x2_shape)
    return sum_to(x1.mT @ g, x2_shape)


@batching.same_operator_on_batch(max_other_ndim=2)      # a batch of rows or matrices times one matrix is one product
def matmul_batch(op, info, in_dims, x1, x2, dtype, casting, *out):
    """Multiply batches. A batch of vectors has two axes, but must not be mistaken for a matrix.

    Unbatched arguments are not repeated. Where possible, the examples become the rows of a single product.
    """
    product = batching.with_options(op, (), dtype, casting)
    first, second = in_dims[0] == 0, in_dims[1] == 0
    rank1, rank2 = batching.rank(x1) - first, batching.rank(x2) - second
    if not rank1 or not rank2:
        matmul_shape(tuple(getattr(x1, "shape", ()))[first:], tuple(getattr(x2, "shape", ()))[second:])
    if not out and not second:
        if rank2 <= 2:
            return product(x1, x2), 0
        if rank1 == 1:
            return batching.to_front(product(x1, x2), rank2 - 2), 0
    elif not out and not first:
        if rank1 == 1:
            return product(x2, x1) if rank2 == 1 else product(x1, x2), 0
        if rank2 == 1 and rank1 == 2:
            return product(x2, batching.permuted(x1, (1, 0))), 0
        if rank2 == 1:
            return batching.to_front(product(x1, batching.permuted(x2, (1, 0))), rank1 - 1), 0
    ndim = max(rank1, rank2, 2)
    if out:
        if out[0].ndim - 1 < (rank1 > 1) + (rank2 > 1):
            raise ValueError(f"matmul.out: argument out has {out[0].ndim - 1} axes, which are too few for the product\n"
                             "leave it out, or pass an array with the shape of x1 @ x2")
        target = with_axes_for_vectors(out[0], rank1 == 1, rank2 == 1)
        ndim = max(ndim, target.ndim - 1)
        out = (batching.padded(target, ndim),)
    left = row(x1) if rank1 == 1 else x1
    right = column(x2) if rank2 == 1 else x2
    result = product(batching.padded(left, ndim) if first else left, batching.padded(right, ndim) if second else right,
                     **batching.into(out))
    return without_axes_of_vectors(result, rank1 == 1, rank2 == 1), 0


def with_axes_for_vectors(product, is_row, is_column):
    """Reshape a product with vectors to the product with matrices of one row or one column."""
    shape = tuple(product.shape)
    shape = (*shape, 1) if is_column else shape
    return batching.reshaped(product, (*shape[:-1], 1, shape[-1]) if is_row else shape)


def without_axes_of_vectors(product, is_row, is_column):
    """Undo `with_axes_for_vectors`."""
    shape = tuple(product.shape)
    return batching.reshaped(product, shape[:-2] + shape[-2:-1] * (not is_row) + shape[-1:] * (not is_column))


declare("matmul", f"Tensor x1, Tensor x2{UFUNC_OPTIONS}", np.matmul, matmul_meta, out=np.matmul, fills_out=True,
        in_place=matmul_in_place, tags=("linalg",), left_out=MATMUL_LEFT_OUT,
        vjp=(matmul_vjp_of_left, matmul_vjp_of_right), jvp="multilinear", vmap=matmul_batch)


# --- adjoints --------------------------------------------------------------------------------------------------------


def adjoint(x):
    """Return the conjugate transpose."""
    return conjugated(x.mT)


def conjugated(x):
    return x.conj() if x.dtype.kind == "c" else x


def with_adjoint(x):
    """Return the sum of a matrix and its adjoint."""
    return add(x, adjoint(x))


# --- covariances -----------------------------------------------------------------------------------------------------

MEAN = ArrayMethod("mean")


def refuse_vector(ndim):
    """Raise ValueError for an array that is not a matrix. A batch of vectors must not be mistaken for one."""
    if ndim < 2:
        raise ValueError(f"covariance: argument a has {ndim} {'axis' if ndim == 1 else 'axes'}, expected a matrix or a "
                         "stack of them\nmake a vector a row: reshape(a, (1, -1))")


def covariance_kernel(a, divisor):
    """Compute the products of the rows, less their means, divided by `divisor`.

    BLAS computes only one half of real products.
    """
    a = np.asarray(a)
    refuse_vector(a.ndim)
    apart = a - MEAN(a, -1, keepdims=True)
    return np.matmul(apart, adjoint(apart)) / divisor


def covariance_meta(a, divisor):
    """Infer the metadata: the product of rows with rows, in a dtype that holds fractions, as means have."""
    shape = shape_of(a)
    refuse_vector(len(shape))
    return MetaArray((*shape[:-1], shape[-2]), covariance_kernel(np.ones((1, 1), dtype_of(a)), 1.0).dtype)


def covariance_batch(op, info, in_dims, a, divisor):
    refuse_vector(batching.rank(a) - 1)
    return op(a, divisor), 0


def centered(a):
    """Return the rows, less their means."""
    return subtract(a, mean(a, -1, keepdims=True))


# Rows of gradients add up to 0, and so do the rows that tangents are multiplied with. Neither has to be centered again.
declare("covariance", "Tensor a, Scalar divisor", covariance_kernel, covariance_meta, tags=("linalg",),
        vmap=covariance_batch,
        vjp=lambda g, a, divisor: divide(matmul(with_adjoint(g), conjugated(centered(a))), divisor),
        jvp=lambda t, a, divisor: divide(with_adjoint(matmul(t, adjoint(centered(a)))), divisor))
