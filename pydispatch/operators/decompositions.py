"""Linear algebra of matrices and stacks of matrices: inverses, determinants, decompositions, norms.

A formula receives a gradient as a linear map that is transposed, not conjugated, and returns one of this kind.

The source of the formulas is Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008). For `pinv`, it is Golub and Pereyra (1973). For `qr`, it is Walter and Lehmann, "Algorithmic
differentiation of linear algebra functions" (2010). Another source is Wan and Zhang, "Automatic differentiation for
complex valued SVD" (2019).

Eigenvectors and singular vectors are determined up to a factor, which has absolute value 1 if it is complex. A gradient
is right for functions that do not depend on these factors. It is infinite or nan where the vectors themselves are not
determined because eigenvalues or singular values are equal. Values that differ by no more than the rounding of the
largest count as equal.

Functions that read one triangle of a Hermitian matrix are functions of Hermitian matrices: a gradient is Hermitian, and
only the Hermitian part of a tangent counts.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.linalg import _umath_linalg as universal  # the universal functions that np.linalg calls

from pydispatch._core import MetaArray, Reduction, Tensor, bottom_array, is_of_numpy, sum_to
from pydispatch._registry.derivatives import Joint
from pydispatch.exceptions import NoDerivativeError
from pydispatch.operators import lapack
from pydispatch.operators.batching import axes_behind, batch_of, padded, rank, reshaped
from pydispatch.operators.declare import declare, install, operators
from pydispatch.operators.linalg import adjoint, conjugated, matmul_meta
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.operators.pointwise import nonzero

# in formulas, these operators take less time than Python's, above all for a matrix and a number
(absolute, add, broadcast_to, cofactor, cofactor_slope, concatenate, detach, divide, eig, eigenspace_basis, eigh, inv,
 logical_and, multiply, sign, solve, solve_with, spectral, subtract, svd, svdvals, vector_norm, where) = operators(
    "absolute", "add", "broadcast_to", "linalg_cofactor", "linalg_cofactor_slope", "concatenate", "detach", "divide",
    "linalg_eig", "linalg_eigenspace_basis", "linalg_eigh", "linalg_inv", "logical_and", "multiply", "sign",
    "linalg_solve", "linalg_solve_with", "linalg_spectral", "subtract", "linalg_svd", "linalg_svdvals",
    "linalg_vector_norm", "where")


# --- matrices in formulas --------------------------------------------------------------------------------------------


def is_complex(x):
    return x.dtype.kind == "c"


@lru_cache(maxsize=256)
def constant_matrix(kind, n, dtype):
    """Build a read-only constant matrix of the given kind.

    The kinds are the identity, ones below the diagonal, the latter with ones or halves on the diagonal, and infinity on
    the diagonal with zeros elsewhere.
    """
    if kind == "identity":
        found = np.eye(n, dtype=dtype)
    elif kind == "below":
        found = np.tri(n, k=-1, dtype=dtype)
    elif kind == "lower":
        found = np.tri(n, dtype=dtype)
    elif kind == "lower half":
        found = np.tri(n, k=-1, dtype=dtype) + np.eye(n, dtype=dtype) / 2
    else:
        found = np.zeros((n, n), dtype)
        np.fill_diagonal(found, np.inf)
    found.flags.writeable = False
    return found


def constant_like(kind, x):
    """Return a constant matrix for the last axis of `x`, of its precision."""
    dtype = x.dtype
    return constant_matrix(kind, x.shape[-1], dtype if dtype.kind == "f" else dtype.type(0).real.dtype)


def diagonal_of(x):
    """Return the elements on the diagonal."""
    return (x * constant_like("identity", x)).sum(-1)


def on_diagonal(x):
    """Return the matrix with these elements on its diagonal."""
    return multiply(x[..., None, :], constant_like("identity", x))


def differences(x):
    """Return x_j - x_i in row i and column j, or 0 where it is within the rounding of eigenvalues."""
    apart = subtract(x[..., None, :], x[..., :, None])
    if not x.shape[-1]:
        return apart
    rounding = multiply(absolute(x).max(-1, keepdims=True)[..., None], x.shape[-1] * np.finfo(x.dtype).eps)
    return where(absolute(apart) > rounding, apart, 0.0)


def inverse_differences(x):
    """Return 1 / (x_j - x_i) in row i and column j, 0 on the diagonal.

    It is nan where the values differ by rounding only.
    """
    apart, diagonal = differences(x), constant_like("infinite diagonal", x)
    return divide(1.0, add(where(add(apart, diagonal) == 0, np.nan, apart), diagonal))


def inverse_differences_of_squares(x):
    """Return the `inverse_differences` of the squares of numbers that are not negative."""
    apart = multiply(differences(x), add(x[..., None, :], x[..., :, None]))
    return divide(1.0, add(apart, constant_like("infinite diagonal", x)))


def hermitian_part(x):
    return multiply(add(x, adjoint(x)), 0.5)


def added(*terms):
    """Return the sum of the terms that are not None."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else add(total, term)
    return total


# --- declarations ----------------------------------------------------------------------------------------------------


def tuple_of(kernel):
    """Return `kernel` with a plain tuple of results instead of a named one."""
    return lambda *args, **options: tuple(kernel(*args, **options))


def meta_on_stacks(kernel):
    """Return a meta kernel that runs `kernel` on an empty stack to find the shapes, the dtypes and the errors."""
    def meta(a, *args, **options):
        shape = shape_of(a)
        found = kernel(np.empty((0, *shape[-2:]) if len(shape) >= 2 else shape, dtype_of(a)), *args, **options)
        results = [MetaArray((*shape[:-2], *x.shape[1:]), x.dtype)
                   for x in (found if isinstance(found, tuple) else (found,))]
        return tuple(results) if isinstance(found, tuple) else results[0]
    return meta


def refuse_vectors(x):
    """Raise LinAlgError for examples that are not matrices. Do not mistake a batch of vectors for a matrix."""
    if rank(x) - 1 < 2:
        raise np.linalg.LinAlgError(f"{rank(x) - 1}-dimensional array given. Array must be at least two-dimensional")


def stack_batch(op, info, in_dims, a, *options):
    """Run the operator on a batch of matrices, which is a stack of them."""
    refuse_vectors(a)
    found = op(a, *options)
    return found, 0 if not isinstance(found, tuple) else (0,) * len(found)


def matrix_operator(name, arguments, kernel, n_results=1, **parts):
    """Declare an operator of one matrix, or stack of matrices."""
    if n_results > 1:
        parts["returns"] = f"({', '.join(['Tensor'] * n_results)})"
    declare(f"linalg_{name}", arguments, kernel, meta_on_stacks(kernel), tags=("linalg",), vmap=stack_batch, **parts)


# --- inverses and determinants ---------------------------------------------------------------------------------------


def cofactors(a):
    """Compute the matrix of cofactors, which is the gradient of the determinant, also of singular matrices."""
    if a.size and a.dtype.kind in "fc":
        if a.shape[-2:] == (2, 2):
            return a[..., ::-1, ::-1] * CHECKERBOARD.astype(a.dtype)
        if a.shape[-2:] == (3, 3):
            return cross(a.take(NEXT, -2), a.take(LAST, -2))
        with np.errstate(all="ignore"):
            inverse = universal.inv(a)      # nan for singular matrices
            if (column_sums(a) * column_sums(inverse) < 1 / np.finfo(a.dtype).eps).all():
                return np.linalg.det(a)[..., None, None] * inverse.mT
    u, s, vh = np.linalg.svd(a)
    return (orientation(u, vh) * u.conj() * products_of_others(s)[..., None, :]) @ vh.conj()


NEXT, LAST = np.array([1, 2, 0]), np.array([2, 0, 1])
CHECKERBOARD = np.array([[1, -1], [-1, 1]])


def cross(x, y):
    """Return the cross products of the rows."""
    return x.take(NEXT, -1) * y.take(LAST, -1) - x.take(LAST, -1) * y.take(NEXT, -1)


def column_sums(a):
    """Return norms of matrices, whose product for a matrix and its inverse is a condition number."""
    return np.absolute(a).sum(-2).max(-1)


def orientation(u, vh):
    """Return the determinants of the products of two unitary matrices, as matrices of one element."""
    return (np.linalg.det(u) * np.linalg.det(vh))[..., None, None]


def products_of_others(x):
    """Return, for each element of a row, the product of the other elements."""
    one = np.ones((*x.shape[:-1], 1), x.dtype)
    before = np.cumprod(np.concatenate([one, x], -1), -1)[..., :-1]
    behind = np.cumprod(np.concatenate([one, x[..., ::-1]], -1), -1)[..., -2::-1]
    return before * behind


def products_of_all_but_two(x):
    """Return the products of a row without its elements i and j, in row i and column j.

    The diagonal is zero.
    """
    identity = np.eye(x.shape[-1], dtype=x.dtype)
    return products_of_others(np.where(identity == 1, 1, x[..., None, :])) * (1 - identity)


def cofactor_slopes(a, change):
    """Compute the derivative of the matrix of cofactors of `a` along `change`.

    With a = u s vh and change = u r vh, it is the derivative along r of the cofactors of the diagonal matrix s. These
    are products of the elements of s, so singular matrices need no other formula.
    """
    u, s, vh = np.linalg.svd(a)
    turned = adjoint(u) @ change @ adjoint(vh)
    others = products_of_all_but_two(s)
    slopes = -others * turned.mT
    diagonal = np.arange(s.shape[-1])
    slopes[..., diagonal, diagonal] = (others @ turned[..., diagonal, diagonal, None])[..., 0]
    return orientation(u, vh) * (u.conj() @ slopes @ vh.conj())


def cofactor_slope_meta(a, change):
    return matmul_meta(meta_on_stacks(np.linalg.inv)(a), change)


def cofactor_slope_batch(op, info, in_dims, *matrices):
    """Run the operator on batches of matrices, which are stacks. Arguments without a batch axis broadcast."""
    pairs = list(zip(matrices, in_dims, strict=True))
    ndim = max(rank(x) - (dim == 0) for x, dim in pairs)
    return op(*[padded(x, ndim) if dim == 0 else x for x, dim in pairs]), 0


def size_of(x):
    """Return the norms of matrices as constants, 1 for a matrix of zeros."""
    return nonzero(vector_norm(detach(x), (-2, -1), 2.0, keepdims=True))


def cofactor_slope_along(t, a, change):
    """Compute the derivative along `t` of `cofactor_slope(a, change)` by `a`, a polynomial of degree n - 2 in `a`.

    The coefficient is the mean of the polynomial's values at points on a circle, each rotated back. This is exact if
    there are as many points as coefficients. The radius makes all terms of the polynomial comparable in size.
    """
    n = max(a.shape[-1] - 1, 2)
    ndim = max(a.ndim, change.ndim, t.ndim)
    turns = np.exp(2j * np.pi / n * np.arange(n)).astype(np.result_type(a.dtype, np.complex64))
    turns = turns.reshape(n, *(1,) * ndim)
    radius = divide(size_of(a), size_of(t))
    slopes = cofactor_slope(add(a, multiply(multiply(t, radius), turns)), change)
    slope = multiply(slopes, turns.conj()).mean(0) / radius
    return slope if is_complex(a) or is_complex(change) or is_complex(t) else slope.real


DOUBLE = np.dtype(np.float64)


def is_plain(a):
    return type(a) is np.ndarray and a.dtype is DOUBLE


def is_plain_square(a):
    """Return whether `a` is a matrix of float64, or a stack, whose universal function can be called directly."""
    if not is_plain(a):
        return False
    shape = a.shape
    return len(shape) > 1 and shape[-1] == shape[-2]


LARGEST, LEAST = Reduction(np.maximum), Reduction(np.minimum)


def is_plain_and_finite(a):
    """Return whether `a` is a matrix of finite numbers of float64, or a stack of them.

    The universal function can then be called directly: no conversion is needed, and nan means that it did not converge.
    """
    return (type(a) is np.ndarray and a.dtype is DOUBLE and a.ndim > 1 and a.size > 0
            and math.isfinite(LARGEST(a)) and math.isfinite(LEAST(a)))


def has_converged(values):
    """Return whether none of these eigenvalues or singular values is nan."""
    return not math.isnan(LARGEST(values))


def slogdet_kernel(a):
    """Compute `np.linalg.slogdet`, without NumPy's checks and conversions for plain matrices.

    These take three times as long as a small matrix.
    """
    return universal.slogdet(a) if is_plain_square(a) else tuple(np.linalg.slogdet(a))


def inverse_of_regular(a, sign):
    """Return the inverse of a matrix, or of a stack of them, whose determinants have these signs."""
    if is_plain_square(a) and is_of_numpy(sign) and (sign.all() if sign.ndim else sign):
        return universal.inv(a)         # finds no pivot of 0, so it has no error to report
    return inv(a)


def slogdet_vjp(g, a, result):
    g_sign, g_log = g
    if is_complex(a):
        turn = (g_sign * result[0]).imag * 1j if g_sign is not None else None
        factor = added(g_log, turn)
    elif g_log is None:
        return a * 0
    else:
        factor = g_log
    inverse = inverse_of_regular(a, result[0])
    return multiply(inverse, factor if inverse.ndim == 2 else factor[..., None, None]).mT


def slogdet_jvp(t, a, result):
    relative = (inv(a).mT * t).sum((-2, -1))
    if is_complex(a):
        return result[0] * relative.imag * 1j, relative.real
    return result[0] * 0, relative


def solve_kernel(a, b):
    """Compute `np.linalg.solve`, with the factors of the last matrices."""
    found = lapack.solution(a, b) if lapack.is_solved_as_by_numpy(a, b) else None
    return np.linalg.solve(a, b) if found is None else found


def solve_with_kernel(a, b, *, transposed=False, lower=False):
    """Solve with a matrix or its transpose. With `lower`, the matrix is the lower triangle of `a`."""
    if lapack.is_solved_here(a, b, lapack.SMALLEST_TRIANGLE if lower else lapack.SMALLEST):
        found = (lapack.triangular_solution if lower else lapack.solution)(a, b, transposed)
        if found is not None:
            return found
    a = np.where(constant_matrix("lower", a.shape[-1], np.dtype(bool)), a, 0) if lower and a.ndim > 1 else a
    a = a.mT if transposed else a
    if lower and a.ndim == 2 and b.size and b.ndim in (1, 2) and is_plain_square(a) and is_plain(b):
        with np.errstate(all="ignore"):
            found = (universal.solve1 if b.ndim == 1 else universal.solve)(a, b)
        if not math.isnan(found.item(0)):   # as it is where a matrix is singular
            return found
    return np.linalg.solve(a, b)


def solve_of_vectors(a, b, **options):
    """Return the result of `solve_with` for a `b` whose last axis is a vector, in each of a stack."""
    return solve_with(a, b, **options) if b.ndim == 1 else solve_with(a, b[..., None], **options)[..., 0]


def solve_with_vjp(g, a, result, b_shape, transposed, lower):
    is_vector = len(b_shape) == 1
    gradient = (solve_of_vectors if is_vector else solve_with)(a, g, transposed=not transposed, lower=lower)
    left, right = (result, gradient) if transposed else (gradient, result)
    product = left[..., :, None] * right[..., None, :] if is_vector else left @ right.mT
    product = multiply(product, constant_like("lower", product)) if lower else product
    return sum_to(-product, tuple(a.shape)), sum_to(gradient, b_shape)


def solve_with_jvp_of_a(t, a, result, b_shape, transposed, lower):
    t = multiply(t, constant_like("lower", t)) if lower else t
    t = t.mT if transposed else t
    if len(b_shape) == 1:
        return -solve_of_vectors(a, (t @ result[..., None])[..., 0], transposed=transposed, lower=lower)
    return -solve_with(a, t @ result, transposed=transposed, lower=lower)


def solve_with_jvp_of_b(t, a, b_shape, transposed, lower):
    return (solve_of_vectors if len(b_shape) == 1 else solve_with)(a, t, transposed=transposed, lower=lower)


def solve_vjp(g, a, result, b_shape):
    if len(b_shape) == 1 and g.ndim == 1 and is_plain_square(a) and 0 < len(a) < lapack.SMALLEST and is_plain(g):
        gradient = universal.solve1(a.mT, g)
        if not math.isnan(gradient.item(0)):    # as it is if rounding makes only the transpose singular
            return -gradient[:, None] * result, gradient
    return solve_with_vjp(g, a, result, b_shape, False, False)


def solve_jvp_of_a(t, a, result, b_shape):
    return solve_with_jvp_of_a(t, a, result, b_shape, False, False)


def solve_meta(a, b, **options):
    shape, other = shape_of(a), shape_of(b)
    first = np.empty((0, *shape[-2:]) if len(shape) >= 2 else shape, dtype_of(a))
    second = np.empty(other if len(other) <= 1 else (0, *other[-2:]), dtype_of(b))
    found = np.linalg.solve(first, second)
    if len(other) == 1:
        return MetaArray((*shape[:-2], *other), found.dtype)
    return MetaArray((*broadcast([shape[:-2], other[:-2]]), *found.shape[-2:]), found.dtype)


def solve_batch(op, info, in_dims, a, b, *options):
    op = partial(op, **dict(zip(("transposed", "lower"), options, strict=False)))
    first, second = in_dims[0] == 0, in_dims[1] == 0
    n_axes, n_others = rank(a) - first, rank(b) - second
    if n_axes < 2:
        refuse_vectors(batch_of(a, in_dims[0], info.batch_size))
    if n_others == 1:
        if not second:
            return op(a, b), 0
        if not first and n_axes == 2:
            return op(a, b.T).T, 0      # one matrix, many right-hand sides
        columns = reshaped(b, (b.shape[0], *(1,) * (n_axes - 2), b.shape[1], 1))
        return op(a, columns)[..., 0], 0
    ndim = max(n_axes, n_others)
    if first and n_axes < ndim:
        a = reshaped(a, (a.shape[0], *(1,) * (ndim - n_axes), *a.shape[1:]))
    if second and n_others < ndim:
        b = reshaped(b, (b.shape[0], *(1,) * (ndim - n_others), *b.shape[1:]))
    return op(a, b), 0


matrix_operator("inv", "Tensor a", np.linalg.inv, vjp=lambda g, result: -(result.mT @ g @ result.mT),
                jvp=lambda t, result: -(result @ t @ result))
matrix_operator("cofactor", "Tensor a", cofactors, vjp=lambda g, a: cofactor_slope(a, g),
                jvp=lambda t, a: cofactor_slope(a, t))
declare("linalg_cofactor_slope", "Tensor a, Tensor change", cofactor_slopes, cofactor_slope_meta, tags=("linalg",),
        vjp=(lambda g, a, change: sum_to(cofactor_slope_along(g, a, change), tuple(a.shape)),
             lambda g, a, change_shape: sum_to(cofactor_slope(a, g), change_shape)),
        jvp=(lambda t, a, change: cofactor_slope_along(t, a, change), lambda t, a: cofactor_slope(a, t)),
        vmap=cofactor_slope_batch)
matrix_operator("det", "Tensor a", np.linalg.det, vjp=lambda g, a: g[..., None, None] * cofactor(a),
                jvp=lambda t, a: (cofactor(a) * t).sum((-2, -1)))
matrix_operator("slogdet", "Tensor a", slogdet_kernel, 2, vjp=slogdet_vjp, jvp=slogdet_jvp)
declare("linalg_solve", "Tensor a, Tensor b", solve_kernel, solve_meta, tags=("linalg",), vjp=Joint(solve_vjp),
        jvp=(solve_jvp_of_a, lambda t, a, b_shape: solve_of_vectors(a, t) if len(b_shape) == 1 else solve(a, t)),
        vmap=solve_batch)
declare("linalg_solve_with", "Tensor a, Tensor b, *, bool transposed=False, bool lower=False", solve_with_kernel,
        solve_meta, tags=("linalg",), vjp=Joint(solve_with_vjp), jvp=(solve_with_jvp_of_a, solve_with_jvp_of_b),
        vmap=solve_batch)


# --- symmetric matrices ----------------------------------------------------------------------------------------------


def cholesky_kernel(a, *, upper=False):
    """Compute `np.linalg.cholesky`. `upper`, which reads the upper triangle, also works with NumPy 2.0."""
    if not upper:
        return np.linalg.cholesky(a)
    lower = np.linalg.cholesky(a.mT.conj() if np.iscomplexobj(a) else a.mT)
    return lower.mT.conj() if np.iscomplexobj(a) else lower.mT.copy()


def cholesky_vjp(g, result, upper):
    lower, g = (adjoint(result), conjugated(g).mT) if upper else (result, g)
    middle = lower.mT @ g * constant_like("lower half", lower)
    left = solve_with(lower, middle, transposed=True, lower=True)
    return hermitian_part(solve_with(conjugated(lower), left.mT, transposed=True, lower=True).mT)


def cholesky_jvp(t, result, upper):
    lower = adjoint(result) if upper else result
    left = solve_with(lower, hermitian_part(t), lower=True)
    inner = solve_with(conjugated(lower), left.mT, lower=True).mT
    tangent = lower @ (inner * constant_like("lower half", lower))
    return adjoint(tangent) if upper else tangent


def eigh_kernel(a, UPLO="L"):
    """Compute `np.linalg.eigh`, without NumPy's checks for plain matrices.

    These take three times as long as a small matrix.
    """
    if UPLO == "L" and is_plain_square(a) and is_plain_and_finite(a):
        found = universal.eigh_lo(a)
        if has_converged(found[0]):
            return found
    return tuple(np.linalg.eigh(a, UPLO))


def eigenspace_basis_kernel(values, change):
    """Return unitary matrices that diagonalize, within each block of equal eigenvalues, the change of the matrix.

    A block has the eigenvalues of the change in ascending order, as `eigh` does.
    """
    size = np.absolute(change).sum((-2, -1), keepdims=True)
    identity = np.eye(values.shape[-1])
    if has_distinct(values):
        return np.broadcast_to(identity, change.shape).astype(change.dtype)
    block = np.zeros(values.shape)
    np.cumsum(np.diff(snapped(values)) > 0, -1, out=block[..., 1:])
    is_within = block[..., None, :] == block[..., :, None]
    return np.linalg.eigh(np.where(is_within, change, 0) + 4 * size * block[..., None, :] * identity)[1]


def snapped(values):
    """Return ascending eigenvalues with those that differ from the one before by rounding set equal to it."""
    if values.shape[-1] < 2:
        return values
    steps = subtract(values[..., 1:], values[..., :-1])
    rounding = multiply(absolute(values).max(-1, keepdims=True), 16 * values.shape[-1] * np.finfo(values.dtype).eps)
    return concatenate([values[..., :1], where(steps > rounding, steps, 0.0)], -1).cumsum(-1)


def has_distinct(values):
    return bool((np.diff(snapped(values)) > 0).all())


def is_on_numpy(x):
    """Return whether an array is NumPy's, or has no data, under all transforms."""
    return isinstance(bottom_array(x) if isinstance(x, Tensor) else x, (np.ndarray, np.generic, MetaArray))


def spectral_kernel(pair, UPLO="L"):
    """Return the gradient of a function of the eigenvalues.

    The argument is a stack of two matrices: the argument of that function, and its gradient by the eigenvalues as a
    diagonal matrix. As one argument, both have their tangents in one formula.
    """
    _, vectors = eigh_kernel(np.ascontiguousarray(pair[..., 0, :, :]), UPLO)
    return (vectors.conj() * diagonal_of(pair[..., 1, :, :]).real[..., None, :]) @ vectors.mT


def spectral_parts(pair, UPLO):
    """Return the eigenvectors, and in row i and column j the change of the gradient over that of the eigenvalues."""
    values, vectors = eigh(pair[..., 0, :, :], UPLO)
    g = diagonal_of(pair[..., 1, :, :])
    g = g.real if is_complex(g) else g
    change = subtract(g[..., None, :], g[..., :, None])
    values = snapped(values)
    rounding = multiply(absolute(g).max(-1, keepdims=True)[..., None], np.finfo(g.dtype).eps ** 0.5) if g.size else 0.0
    is_equal = logical_and(absolute(change) <= rounding, differences(values) == 0)
    return values, vectors, where(is_equal, 0.0, multiply(change, inverse_differences(values)))


def spectral_jvp(t, pair, UPLO):
    """Rotate the eigenvectors of equal eigenvalues to those of the change, along which the eigenvalues have slopes.

    A gradient that is equal there has this slope. The slope of a gradient that differs is nan.
    """
    values, vectors, slopes = spectral_parts(pair, UPLO)
    change = adjoint(vectors) @ hermitian_part(t[..., 0, :, :]) @ vectors
    rotated = vectors @ eigenspace_basis(detach(values), detach(change))
    found = vectors @ multiply(change, slopes) @ adjoint(vectors)
    return conjugated(added(found, multiply(rotated, diagonal_of(t[..., 1, :, :])[..., None, :]) @ adjoint(rotated)))


def spectral_vjp(g, pair, UPLO):
    """Return nan by the gradient where eigenvalues are equal: the rotation depends on the direction."""
    values, vectors, slopes = spectral_parts(pair, UPLO)
    middle = adjoint(vectors) @ g @ vectors
    is_within = (differences(values) == 0).sum(-1) > 1
    along = diagonal_of(middle)
    by_gradient = on_diagonal(where(is_within, multiply(along, np.nan), along))
    by_matrix = hermitian_part(conjugated(vectors) @ multiply(middle, slopes).mT @ vectors.mT)
    return concatenate([by_matrix[..., None, :, :], by_gradient[..., None, :, :]], -3)


def eigh_vjp(g, a, result, UPLO):
    g_values, g_vectors = g
    values, vectors = result
    if g_vectors is None and not is_of_numpy(values) and is_on_numpy(values):
        pair = [a, multiply(on_diagonal(g_values), 1.0 + 0j if is_complex(a) else 1.0)]
        pair = concatenate([x[..., None, :, :] for x in pair], -3)
        return hermitian_part(spectral(pair, UPLO))
    middle = None if g_values is None else on_diagonal(g_values)
    if g_vectors is not None:
        middle = added(multiply(vectors.mT @ g_vectors, inverse_differences(snapped(values))), middle)
    return hermitian_part(conjugated(vectors) @ middle @ vectors.mT)


def eigh_jvp(t, result):
    values, vectors = result
    change = adjoint(vectors) @ hermitian_part(t) @ vectors
    along = diagonal_of(change)
    if is_on_numpy(values) and not (is_of_numpy(values) and has_distinct(values)):
        basis = eigenspace_basis(detach(values), detach(change))
        along = diagonal_of(adjoint(basis) @ change @ basis)
    return along.real if is_complex(along) else along, vectors @ (change * inverse_differences(snapped(values)))


declare("linalg_cholesky", "Tensor a, *, bool upper=False", cholesky_kernel, meta_on_stacks(cholesky_kernel),
        tags=("linalg",), vjp=cholesky_vjp, jvp=cholesky_jvp,
        vmap=lambda op, info, in_dims, a, upper: stack_batch(partial(op, upper=upper), info, in_dims, a))
declare("linalg_eigenspace_basis", "Tensor values, Tensor change", eigenspace_basis_kernel,
        lambda values, change: MetaArray(shape_of(change), dtype_of(change)), tags=("linalg",), differentiable=False,
        vmap=lambda op, info, in_dims, values, change: (op(*[
            x if dim == 0 else broadcast_to(x, (info.batch_size, *x.shape))
            for x, dim in zip((values, change), in_dims, strict=True)]), 0))
declare("linalg_spectral", "Tensor pair, str UPLO='L'", spectral_kernel,
        lambda pair, UPLO="L": MetaArray((*shape_of(pair)[:-3], *shape_of(pair)[-2:]), dtype_of(pair)),
        tags=("linalg",), vmap=stack_batch, vjp=spectral_vjp, jvp=spectral_jvp)
matrix_operator("eigh", "Tensor a, str UPLO='L'", eigh_kernel, 2, vjp=eigh_vjp, jvp=eigh_jvp)
matrix_operator("eigvalsh", "Tensor a, str UPLO='L'", np.linalg.eigvalsh,
                differentiated_as=lambda a, UPLO="L": eigh(a, UPLO)[0])


# --- other square matrices -------------------------------------------------------------------------------------------


def as_complex(kernel):
    """Make `kernel` return complex results for all matrices. NumPy's results are real where the values are."""
    def kernel_of_complex(a):
        results = kernel(a)
        is_pair = isinstance(results, tuple)
        found = [x.astype(np.result_type(x.dtype, np.complex64), copy=False)
                 for x in (results if is_pair else (results,))]
        return tuple(found) if is_pair else found[0]
    return kernel_of_complex


def eig_vjp(g, a, result):
    g_values, g_vectors = g
    values, vectors = result
    middle = None if g_values is None else on_diagonal(g_values)
    if g_vectors is not None:
        lengthwise = (vectors * g_vectors).sum(-2).real
        g_vectors = g_vectors - vectors.conj() * lengthwise[..., None, :]      # the vectors keep length 1
        middle = added(vectors.mT @ g_vectors * inverse_differences(values), middle)
    found = solve(vectors.mT, middle @ vectors.mT)
    return found if is_complex(a) else found.real


def eig_jvp(t, result):
    values, vectors = result
    change = solve(vectors, t @ vectors)
    tangent = vectors @ (change * inverse_differences(values))
    lengthwise = (vectors.conj() * tangent).sum(-2).real
    return diagonal_of(change), tangent - vectors * lengthwise[..., None, :]


matrix_operator("eig", "Tensor a", as_complex(np.linalg.eig), 2, vjp=eig_vjp, jvp=eig_jvp)
matrix_operator("eigvals", "Tensor a", as_complex(np.linalg.eigvals), differentiated_as=lambda a: eig(a)[0])


# --- matrices of any shape -------------------------------------------------------------------------------------------


def check_determined(name, remedy, a_shape, is_full):
    """Raise NoDerivativeError where vectors are returned that the matrix does not determine."""
    if is_full and a_shape[-2] != a_shape[-1]:
        raise NoDerivativeError(
            f"numpy.linalg.{name} returned vectors beyond the {min(a_shape[-2:])} that a matrix of shape "
            f"{tuple(a_shape[-2:])} determines. They have no derivative\n{remedy}")


def svd_vjp(g, a_shape, full_matrices, hermitian, result):
    g_u, g_s, g_vh = g
    u, s, vh = result
    if g_u is not None or g_vh is not None:
        check_determined("svd", "pass full_matrices=False", a_shape, full_matrices)
    k = s.shape[-1]
    u, vh = u[..., :, :k], vh[..., :k, :]
    middle = None if g_s is None else on_diagonal(g_s)
    differences = inverse_differences_of_squares(s) if g_u is not None or g_vh is not None else None
    beyond = None
    if g_u is not None:
        g_u = conjugated(g_u)
        inner = adjoint(u) @ g_u
        turned = multiply(subtract(inner, adjoint(inner)), differences)
        middle = added(middle, multiply(turned, s[..., None, :]))
        if is_complex(u):
            middle = middle + on_diagonal(diagonal_of(inner).imag / s) * 1j
        if u.shape[-2] > k:
            beyond = (g_u - u @ inner) / s[..., None, :] @ vh
    if g_vh is not None:
        g_v = g_vh.mT       # the adjoint of the conjugate
        inner = vh @ g_v
        middle = added(middle, (inner - adjoint(inner)) * differences * s[..., :, None])
        if vh.shape[-1] > k:
            beyond = added(beyond, u @ (adjoint(g_v - adjoint(vh) @ inner) / s[..., :, None]))
    return hermitian_where(hermitian, conjugated(added(u @ middle @ vh, beyond)))


def svd_jvp(t, a_shape, full_matrices, hermitian, result):
    check_determined("svd", "pass full_matrices=False", a_shape, full_matrices)
    t = hermitian_where(hermitian, t)
    u, s, vh = result
    k = s.shape[-1]
    v = adjoint(vh)
    change = adjoint(u) @ t @ v
    back = adjoint(change)
    differences = inverse_differences_of_squares(s)
    rotation = (change * s[..., None, :] + s[..., :, None] * back) * differences
    if is_complex(u):
        rotation = rotation + on_diagonal(diagonal_of(change).imag / s) * 1j
    t_u = u @ rotation
    t_v = v @ ((s[..., :, None] * change + back * s[..., None, :]) * differences)
    if u.shape[-2] > k:
        t_u = t_u + (t @ v - u @ change) / s[..., None, :]
    if v.shape[-2] > k:
        t_v = t_v + (adjoint(t) @ u - v @ back) / s[..., None, :]
    along = diagonal_of(change)
    return t_u, along.real if is_complex(along) else along, adjoint(t_v)


def qr_vjp(g, a, mode, result):
    g_q, g_r = g
    q, r = result
    check_determined("qr", 'pass mode="reduced"', a.shape if a.shape[-2] > a.shape[-1] else (1, 1), mode == "complete")
    g_q = None if g_q is None else conjugated(g_q)
    g_r = None if g_r is None else conjugated(g_r)
    m, n = a.shape[-2:]
    right = None
    if m < n:       # the columns beyond the first m are q @ r
        if g_r is not None:
            right = q @ g_r[..., :, m:]
            g_q = added(g_q, a[..., :, m:] @ adjoint(g_r[..., :, m:]))
            g_r = g_r[..., :, :m]
        r = r[..., :, :m]
    middle = added(None if g_r is None else g_r @ adjoint(r), None if g_q is None else -(adjoint(q) @ g_q))
    middle = middle.mT * constant_like("lower half", r)
    middle = middle.mT + conjugated(middle)      # the upper triangle, and its adjoint below
    found = solve(r, adjoint(added(g_q, q @ middle)))
    found = adjoint(found)
    if m < n:
        found = concatenate([found, right if right is not None else a[..., :, m:] * 0], -1)
    return conjugated(found)


def qr_jvp(t, a, mode, result):
    q, r = result
    check_determined("qr", 'pass mode="reduced"', a.shape if a.shape[-2] > a.shape[-1] else (1, 1), mode == "complete")
    k = r.shape[-2]
    square = r[..., :, :k]
    scaled = solve(square.mT, t[..., :, :k].mT).mT      # t / r
    inner = adjoint(q) @ scaled
    below = inner * constant_like("below", inner)
    rotation = below - adjoint(below)
    if is_complex(q):
        rotation = rotation + on_diagonal(diagonal_of(inner).imag) * 1j
    t_q = q @ rotation + (scaled - q @ inner)
    t_r = adjoint(q) @ t - rotation @ r
    return t_q, t_r


def hermitian_from(a, lower=True):
    """Return the Hermitian matrix given by one triangle. It depends on the Hermitian part of changes."""
    kept = multiply(a if lower else adjoint(a), constant_like("below", a))
    diagonal = multiply(conjugated(a) + a, constant_like("identity", a) / 2)
    part = hermitian_part(a)
    return add(part, detach(subtract(added(kept, adjoint(kept), diagonal), part)))


def hermitian_where(hermitian, x):
    """Return a gradient or tangent, or its Hermitian part for a matrix of which one triangle is read."""
    return hermitian_part(x) if hermitian else x


def may_truncate(a, rcond):
    """Return whether a cutoff can remove singular values that are more than rounding."""
    return rcond is not None and rcond > 1e3 * np.finfo(a.dtype).eps


def geometric(left, x, right):
    """Sum left^n x right^n over n from 0 on, for matrices of norms up to 1, by the first 1024 terms."""
    for _ in range(10):
        x = add(x, left @ x @ right)
        left, right = left @ left, right @ right
    return x


class Truncation:
    """The matrices that the derivative of a pseudo-inverse depends on.

    They are P, the inverse of A without its rest E, and E = A - A P A. With singular values r of A that are kept and s
    that are not, a change of A rotates the vectors of r and s against one another. The factors 1 / (r² - s²) are 1 / r²
    times geometric series in s² / r², or in matrices in E'E and P'P.

    Sources: Golub and Pereyra (1973), without a rest. Smith (1968), for the sums of the series.
    """

    def __init__(self, a, rcond, hermitian, result):
        a = hermitian_from(a) if hermitian else a
        self.p = result
        self.rows = subtract(constant_matrix("identity", a.shape[-1], dtype_of_real(a)), result @ a)
        self.columns = subtract(constant_matrix("identity", a.shape[-2], dtype_of_real(a)), a @ result)
        self.rest = None
        if may_truncate(a, rcond):
            self.rest = subtract(a, a @ result @ a)
            sizes = svdvals(detach(a), hermitian)[..., :1, None]
            self.cutoff = nonzero(multiply(multiply(sizes, sizes), rcond ** 2))

    def of_rows(self, x):
        """Sum the series for the part that is rotated into the rows of A."""
        if self.rest is None:
            return x
        p, rest, cutoff = self.p, self.rest, self.cutoff
        return geometric(divide(adjoint(rest) @ rest, cutoff), x, multiply(adjoint(p) @ p, cutoff))

    def of_columns(self, x):
        """Sum the series for the part that is rotated into the columns of A."""
        if self.rest is None:
            return x
        p, rest, cutoff = self.p, self.rest, self.cutoff
        return geometric(multiply(p @ adjoint(p), cutoff), x, divide(rest @ adjoint(rest), cutoff))


def dtype_of_real(x):
    """Return the dtype of a real number of the precision of an array."""
    return np.dtype(x.dtype.type(0).real.dtype)


def pinv_vjp(g, a, rcond, hermitian, result):
    g = conjugated(g)
    turn, p = Truncation(a, rcond, hermitian, result), result
    back = adjoint(p)
    first = turn.of_rows(g) @ (back @ p)
    second = (p @ back) @ turn.of_columns(g)
    found = adjoint(first) @ turn.rows + turn.columns @ adjoint(second) - back @ g @ back
    if turn.rest is not None:
        found = found + turn.rest @ first @ back + back @ second @ turn.rest
    return hermitian_where(hermitian, conjugated(found))


def pinv_jvp(t, a, rcond, hermitian, result):
    t = hermitian_where(hermitian, t)
    turn, p = Truncation(a, rcond, hermitian, result), result
    back = adjoint(t)
    first, second = turn.rows @ back, back @ turn.columns
    if turn.rest is not None:
        first = first + adjoint(turn.rest) @ t @ p
        second = second + p @ t @ adjoint(turn.rest)
    first = turn.of_rows(first @ (adjoint(p) @ p))
    second = turn.of_columns((p @ adjoint(p)) @ second)
    return first + second - p @ t @ p


# NumPy 2.0 has two universal functions for each, for wide and for tall matrices
SVD_FULL, SVD_REDUCED = getattr(universal, "svd_f", None), getattr(universal, "svd_s", None)


def svd_kernel(a, full_matrices=True, hermitian=False):
    """Compute `np.linalg.svd`, without NumPy's checks for plain matrices, which take as long as a small matrix."""
    direct = SVD_FULL if full_matrices else SVD_REDUCED
    if direct is not None and not hermitian and is_plain_and_finite(a):
        found = direct(a)
        if has_converged(found[1]):
            return found
    return tuple(np.linalg.svd(a, full_matrices, True, hermitian))


def svdvals_kernel(a, hermitian=False):
    return np.linalg.svd(a, False, False, hermitian)


def pinv_kernel(a, rcond=None, hermitian=False):
    """Compute `np.linalg.pinv`, without NumPy's checks and conversions for plain matrices.

    These take longer than a small matrix.
    """
    if rcond is None:
        return np.linalg.pinv(a, hermitian=hermitian)
    if SVD_REDUCED is not None and not hermitian and is_plain_and_finite(a):
        u, values, vh = SVD_REDUCED(a)
        if has_converged(values):
            inverses = np.zeros(values.shape)
            np.divide(1, values, inverses, where=values > rcond * values[..., :1])      # the first is the largest
            return vh.mT @ (inverses[..., None] * u.mT)
    return np.linalg.pinv(a, rcond, hermitian)


matrix_operator("svd", "Tensor a, bool full_matrices=True, bool hermitian=False", svd_kernel, 3, vjp=svd_vjp,
                jvp=svd_jvp)
matrix_operator("svdvals", "Tensor a, bool hermitian=False", svdvals_kernel,
                differentiated_as=lambda a, hermitian=False: svd(a, False, hermitian)[1])
matrix_operator("qr", "Tensor a, str mode='reduced'", tuple_of(np.linalg.qr), 2, vjp=qr_vjp, jvp=qr_jvp)
matrix_operator("pinv", "Tensor a, float? rcond=None, bool hermitian=False", pinv_kernel, vjp=pinv_vjp, jvp=pinv_jvp)


# --- norms -----------------------------------------------------------------------------------------------------------


def vector_norm_kernel(x, axis=None, ord=2.0, *, keepdims=False):
    return np.linalg.vector_norm(x, axis=axis, ord=ord, keepdims=keepdims)


def vector_norm_meta(x, axis=None, ord=2.0, *, keepdims=False):
    shape = shape_of(x)
    axes = range(len(shape)) if axis is None else normalize_axis_tuple(axis, len(shape))
    kept = [1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes]
    return MetaArray(tuple(kept), vector_norm_kernel(np.ones(1, dtype_of(x)), None, ord).dtype)


def spread(x, a_shape, axis, keepdims):
    """Reshape one value per norm so that it broadcasts to the elements."""
    if keepdims or axis is None:
        return x if keepdims else x[(None,) * len(a_shape)]
    axes = normalize_axis_tuple(axis, len(a_shape))
    return x[tuple([None if i in axes else slice(None) for i in range(len(a_shape))])]


def unit_vjp(x, ord, norm):
    """Return the derivative of the norm by each element, 0 where the norm is 0."""
    if ord == 1:
        return conjugated(sign(x))
    size = absolute(x)
    if ord in (np.inf, -np.inf):
        is_extreme = (size == norm) * 1.0
        return conjugated(sign(x)) * is_extreme     # the caller divides by the number of ties
    safe = where(norm == 0, 1.0, norm)
    if ord == 2:
        return conjugated(x) / safe
    base = where(size == 0, 1.0, size) / safe if ord < 2 else size / safe
    return conjugated(sign(x)) * base ** (ord - 1)


def ties(x, axis, ord, norm):
    """Count the elements that share an extreme. The count is 1 for other norms."""
    if ord not in (np.inf, -np.inf):
        return 1.0
    return ((absolute(x) == norm) * 1.0).sum(axis, keepdims=True)


def slope(x, axis, ord, result, keepdims):
    if ord == 0:
        return x * 0
    norm = spread(result, x.shape, axis, keepdims)
    return unit_vjp(x, ord, norm) / ties(x, axis, ord, norm)


def vector_norm_vjp(g, x, axis, ord, keepdims, result):
    return spread(g, x.shape, axis, keepdims) * slope(x, axis, ord, result, keepdims)


def vector_norm_jvp(t, x, axis, ord, keepdims, result):
    change = (t * slope(x, axis, ord, result, keepdims)).sum(axis, keepdims=keepdims)
    return change.real if is_complex(change) else change


def vector_norm_batch(op, info, in_dims, x, axis, ord, keepdims):
    return op(x, axes_behind(axis, rank(x) - 1, None), ord, keepdims=keepdims), 0


declare("linalg_vector_norm", "Tensor x, int[1]? axis=None, Scalar ord=2.0, *, bool keepdims=False", vector_norm_kernel,
        vector_norm_meta, tags=("linalg",), vjp=vector_norm_vjp, jvp=vector_norm_jvp, vmap=vector_norm_batch)

install("linalg")
