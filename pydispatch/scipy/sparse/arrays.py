"""Sparse matrices as a constant structure and values that may be tracked, and their operators."""

from __future__ import annotations

from copy import copy
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from pydispatch._core import MetaArray, Tensor, sum_to
from pydispatch.exceptions import DispatchTypeError
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.operators.batching import padded, rank
from pydispatch.operators.meta import broadcast, dtype_of, shape_of
from pydispatch.ops import ops
from pydispatch.packs import Joint
from pydispatch.scipy.pack import SCIPY
from pydispatch.tree import register_pytree_node, tree_leaves

product, sampled_product, solution = SCIPY.operators("sparse_product", "sparse_sampled_product", "sparse_solution")


class Structure:
    """The positions of a sparse matrix's values, row by row: a constant that matrices of the same structure share.

    Raises ValueError for index arrays that make no matrix.
    """

    def __init__(self, indices: Any, indptr: Any, shape: tuple[int, int]):
        self.indices, self.indptr = [np.array(x, np.intp if not len(x) else None) for x in (indices, indptr)]
        self.shape = (int(shape[0]), int(shape[1]))
        self.pattern = sparse.csr_array((np.zeros(len(self.indices)), self.indices, self.indptr), shape=self.shape)
        self.pattern.check_format()
        self.indices.flags.writeable = self.indptr.flags.writeable = False
        self.last_factors: tuple[np.ndarray, list[Any]] | None = None

    def matrix(self, data: np.ndarray) -> sparse.csr_array:
        """Return SciPy's array with these values, without a check of its structure."""
        found = copy(self.pattern)
        found.data = data
        return found

    def blocks(self, data: np.ndarray) -> sparse.csr_array:
        """Return the matrices of a stack along the diagonal of one matrix. Each row of `data` has the values of one."""
        n, (n_rows, n_columns) = len(data), self.shape
        each = np.arange(n)[:, None]
        indices = (self.indices + each * n_columns).reshape(-1)
        indptr = np.append((self.indptr[:-1] + each * len(self.indices)).reshape(-1), n * len(self.indices))
        return sparse.csr_array((data.reshape(-1), indices, indptr), shape=(n * n_rows, n * n_columns))

    @cached_property
    def rows(self) -> np.ndarray:
        """The row of each value."""
        return np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))

    @cached_property
    def transposed(self) -> tuple[Structure, np.ndarray]:
        """The structure of the transposed matrix, and for each of its values the index of the original one."""
        order = np.lexsort((self.rows, self.indices))
        counts = np.bincount(self.indices, minlength=self.shape[1])
        return Structure(self.rows[order], np.append(0, counts.cumsum()), self.shape[::-1]), order

    def factors(self, data: np.ndarray) -> list[Any]:
        """Return L and U of each matrix of a stack. The last ones are cached for the backward pass."""
        last = self.last_factors
        if last is not None and np.array_equal(last[0], data) and last[0].dtype == data.dtype:
            return last[1]
        found = []
        for i, values in enumerate(data):
            try:
                found.append(splu(self.matrix(values).tocsc()))
            except RuntimeError as error:
                where = f" in matrix {i} of the stack" if len(data) > 1 else ""
                raise RuntimeError(f"spsolve: {error}{where}") from error
        self.last_factors = data.copy(), found
        return found

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Structure) and self.shape == other.shape and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices))

    def __hash__(self) -> int:
        return hash((self.shape, len(self.indices)))

    def __repr__(self) -> str:
        return f"Structure({len(self.indices)} values of {self.shape[0]}x{self.shape[1]})"


# --- operators -------------------------------------------------------------------------------------------------------
#
# `data` is one row of values or a stack of rows. The other arrays are matrices or stacks of them. Stacks broadcast.


def check_values(name, data, structure):
    """Raise ValueError unless there is one value for each stored position."""
    if not data or data[-1] != len(structure.indices):
        raise ValueError(f"{name}: argument data has shape {data}, expected (..., {len(structure.indices)})\n"
                         "pass one value for each stored position, or a stack of such rows")


def check_rows(name, shape, n):
    """Raise ValueError unless these are matrices of `n` rows."""
    if len(shape) < 2 or shape[-2] != n:
        raise ValueError(f"{name}: dimension mismatch, argument of shape {shape} beside a matrix of {n} columns\n"
                         f"pass an array of shape (..., {n}, k)")


def precise(*arrays):
    """Return the dtype of a product or solution."""
    return np.result_type(*map(dtype_of, arrays))


def product_shape(data, x, structure, transposed):
    check_values("matmul", data, structure)
    n_rows, n_columns = structure.shape[::-1] if transposed else structure.shape
    check_rows("matmul", x, n_columns)
    return *broadcast((data[:-1], x[:-2])), n_rows, x[-1]


def product_kernel(data, x, structure, transposed=False):
    """Multiply sparse matrices, given by values and structure, with dense ones."""
    shape = product_shape(data.shape, x.shape, structure, transposed)
    *batch, n_rows, k = shape
    if not prod(shape):
        return np.zeros(shape, np.result_type(data, x))
    if prod(data.shape[:-1]) == 1:      # one matrix and many columns
        matrix = structure.matrix(data.reshape(-1))
        columns = x if x.ndim == 2 else np.moveaxis(x, -2, 0)
        found = (matrix.T if transposed else matrix) @ columns.reshape((x.shape[-2], -1))
        if x.ndim == 2:
            return found.reshape(shape)
        return np.moveaxis(found.reshape((n_rows, *x.shape[:-2], k)), 0, -2).reshape(shape)
    stack = structure.blocks(np.broadcast_to(data, (*batch, data.shape[-1])).reshape((prod(batch), data.shape[-1])))
    columns = np.broadcast_to(x, (*batch, *x.shape[-2:])).reshape((-1, k))
    return ((stack.T if transposed else stack) @ columns).reshape(shape)


def product_vjp(g, data, x, structure, transposed):
    left, right = (x, g) if transposed else (g, x)
    return (sum_to(sampled_product(left, right, structure), tuple(data.shape)),
            sum_to(product(data, g, structure, not transposed), tuple(x.shape)), None)


def product_batch(op, info, in_dims, data, x, structure, *options):
    return op(*aligned((data, x), in_dims, (1, 2)), structure, *options), 0


def aligned(arrays, in_dims, core):
    """Return batches whose examples have equally many axes before those of one row or matrix."""
    n = max(rank(x) - (dim == 0) - k for x, dim, k in zip(arrays, in_dims, core, strict=False))
    return [padded(x, n + k) if dim == 0 else x for x, dim, k in zip(arrays, in_dims, core, strict=False)]


def sampled_shape(left, right, structure):
    check_rows("sampled_product", left, structure.shape[0])
    check_rows("sampled_product", right, structure.shape[1])
    return *broadcast((left[:-2], right[:-2])), len(structure.indices)


def sampled_kernel(left, right, structure):
    """Return the elements of left @ right.T at the positions of the structure."""
    sampled_shape(left.shape, right.shape, structure)
    if left.shape[-1] == 1:
        return left[..., 0].take(structure.rows, -1) * right[..., 0].take(structure.indices, -1)
    return np.einsum("...pk,...pk->...p", left.take(structure.rows, -2), right.take(structure.indices, -2))


def solution_shape(data, b, structure):
    check_values("spsolve", data, structure)
    if structure.shape[0] != structure.shape[1]:
        raise ValueError(f"spsolve: matrix must be square (has shape {structure.shape})")
    if len(b) < 2 or b[-2] != structure.shape[0]:
        raise ValueError(f"spsolve: matrix - rhs dimension mismatch ({structure.shape} - {b[-2]})")
    return *broadcast((data[:-1], b[:-2])), *b[-2:]


def in_doubles(dtype):
    """Return the dtype in which systems are solved."""
    return dtype if dtype.char in "fdFD" else np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def solution_kernel(data, b, structure, transposed=False):
    """Solve systems whose matrices are sparse, given by values and structure."""
    shape = solution_shape(data.shape, b.shape, structure)
    dtype = in_doubles(np.result_type(data, b))
    result = np.empty(shape, dtype)
    batch, of_matrices = shape[:-2], data.shape[:-1]
    factors = structure.factors(data.astype(dtype, copy=False).reshape((prod(of_matrices), data.shape[-1])))
    which = np.broadcast_to(np.arange(prod(of_matrices)).reshape(of_matrices), batch)
    sides = np.broadcast_to(b.astype(dtype, copy=False), shape)
    for i in np.ndindex(batch):
        result[i] = factors[which[i]].solve(np.ascontiguousarray(sides[i]), "T" if transposed else "N")
    return result


def solution_vjp(g, data, b_shape, structure, transposed, result):
    of_b = solution(data, g, structure, not transposed)
    left, right = (result, of_b) if transposed else (of_b, result)
    return sum_to(-sampled_product(left, right, structure), tuple(data.shape)), sum_to(of_b, b_shape), None


SCIPY.declare(
    "sparse_product", "Tensor data, Tensor x, Any structure, bool transposed=False", product_kernel,
    lambda data, x, structure, transposed=False: MetaArray(
        product_shape(shape_of(data), shape_of(x), structure, transposed), precise(data, x)),
    tags=("sparse",), vjp=Joint(product_vjp), vmap=product_batch, jvp=(
        lambda t, x, structure, transposed: product(t, x, structure, transposed),
        lambda t, data, structure, transposed: product(data, t, structure, transposed)))
SCIPY.declare(
    "sparse_sampled_product", "Tensor left, Tensor right, Any structure", sampled_kernel,
    lambda left, right, structure: MetaArray(
        sampled_shape(shape_of(left), shape_of(right), structure), precise(left, right)),
    tags=("sparse",), vjp=(
        lambda g, left_shape, right, structure: sum_to(product(g, right, structure), left_shape),
        lambda g, right_shape, left, structure: sum_to(product(g, left, structure, True), right_shape)),
    jvp=(lambda t, right, structure: sampled_product(t, right, structure),
         lambda t, left, structure: sampled_product(left, t, structure)),
    vmap=lambda op, info, in_dims, left, right, structure: (
        op(*aligned((left, right), in_dims, (2, 2)), structure), 0))
SCIPY.declare(
    "sparse_solution", "Tensor data, Tensor b, Any structure, bool transposed=False", solution_kernel,
    lambda data, b, structure, transposed=False: MetaArray(
        solution_shape(shape_of(data), shape_of(b), structure), in_doubles(precise(data, b))),
    tags=("sparse",), vjp=Joint(solution_vjp), vmap=product_batch, jvp=(
        lambda t, data, result, structure, transposed: -solution(
            data, product(t, result, structure, transposed), structure, transposed),
        lambda t, data, structure, transposed: solution(data, t, structure, transposed)))


# --- matrices --------------------------------------------------------------------------------------------------------


class csr_array:  # noqa: N801  SciPy's name
    """A sparse matrix: `csr_array((data, indices, indptr), shape=(m, n))`, or `csr_array(matrix)` of SciPy's.

    `A @ x` takes vectors, matrices, stacks of matrices, and sparse matrices. Numbers and elements of arrays multiply
    the values: `A * 2`, `A.multiply(x)`. Sums and differences are sparse. Other methods are SciPy's, for constants.

    Parameters
    ----------
    arg1
        A tuple of values, columns and starts of rows, a tuple `(data, (rows, columns))`, whose values at the same
        position are added, or what else SciPy's class takes: a sparse array, an array, or a shape. The values may be a
        Tensor. With more than one axis, they are a stack of matrices of one structure.
    shape
        Shape of one matrix. By default, it is as small as the positions allow.
    dtype
        Dtype of the values. By default, theirs.

    Raises
    ------
    ValueError
        If the parts do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> A = csr_array((np.array([2.0, 3.0]), [0, 1], [0, 1, 2]))
    >>> A @ np.array([1.0, 1.0])
    array([2., 3.])
    """

    __slots__ = ("data", "structure")
    __array_ufunc__ = None
    data: Any
    structure: Structure

    def __init__(self, arg1: Any, shape: tuple[int, int] | None = None, dtype: Any = None):
        if isinstance(arg1, csr_array):
            data, self.structure = arg1.data, arg1.structure
        elif isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], tuple):
            data, self.structure = summed(as_nonscalar(arg1[0]), arg1[1], shape)
        elif isinstance(arg1, tuple) and len(arg1) == 3:
            data, indices, indptr = arg1
            indices = np.asarray(indices)
            if shape is None:
                shape = (len(indptr) - 1, int(indices.max(initial=-1)) + 1)
            self.structure = Structure(indices, indptr, shape)
        elif any(isinstance(leaf, Tensor) for leaf in tree_leaves(arg1)):
            raise DispatchTypeError(f"csr_array: found {type(arg1).__name__}, expected (data, indices, indptr)\n"
                                    "pass the Tensor as data: where its values are is a constant")
        else:
            csr = sparse.csr_array(arg1, shape)
            data, self.structure = csr.data.copy(), Structure(csr.indices, csr.indptr, csr.shape)
        data = as_nonscalar(data)
        self.data = data if dtype is None else ops.np.astype(data, np.dtype(dtype))
        check_values("csr_array", tuple(self.data.shape), self.structure)

    @classmethod
    def of_structure(cls, data: Any, structure: Structure) -> csr_array:
        """Return the matrix with these values at the positions of a structure."""
        self = object.__new__(cls)
        self.data, self.structure = data, structure
        return self

    def with_data(self, data: Any) -> csr_array:
        """Return a matrix of the same structure with these values."""
        data = as_nonscalar(data)
        check_values("with_data", tuple(data.shape), self.structure)
        return self.of_structure(data, self.structure)

    @property
    def indices(self) -> np.ndarray:
        """The column of each value."""
        return self.structure.indices

    @property
    def indptr(self) -> np.ndarray:
        """The positions in the values where each row starts."""
        return self.structure.indptr

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of one matrix."""
        return self.structure.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the values."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """The number of stored values."""
        return len(self.structure.indices)

    @property
    def T(self) -> csr_array:  # noqa: N802
        """The transposed matrix."""
        structure, order = self.structure.transposed
        return self.of_structure(ops.np.take(self.data, order, -1), structure)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(f"csr_array has no attribute {name!r}")
        return getattr(self.to_scipy(), name)

    def __matmul__(self, x: Any) -> Any:
        if sparse.issparse(x) or isinstance(x, csr_array):
            return matched(self, csr_array(x))
        x = as_nonscalar(x)
        if x.ndim == 1:
            return ops.np.getitem(self @ ops.np.expand_dims(x, -1), (..., 0))
        return ops.scipy.sparse_product(self.data, x, self.structure)

    def __rmatmul__(self, x: Any) -> Any:
        x = as_nonscalar(x)
        if x.ndim == 1:
            return self.T @ x
        return ops.np.swapaxes(self.T @ ops.np.swapaxes(x, -1, -2), -1, -2)

    dot = __matmul__

    def __mul__(self, factor: Any) -> csr_array:
        return self.of_structure(self.data * factor, self.structure)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> csr_array:
        return self.of_structure(self.data / divisor, self.structure)

    def __neg__(self) -> csr_array:
        return self * -1

    def __add__(self, other: Any) -> csr_array:
        other = csr_array(other)
        if other.shape != self.shape:
            raise ValueError(f"inconsistent shapes: {self.shape} and {other.shape}")
        data = ops.np.concatenate([as_nonscalar(x.data) for x in (self, other)], -1)
        places = [np.concatenate(each) for each in ((self.structure.rows, other.structure.rows),
                                                    (self.indices, other.indices))]
        return csr_array((data, tuple(places)), self.shape)

    __radd__ = __add__

    def __sub__(self, other: Any) -> csr_array:
        return self + -csr_array(other)

    def __rsub__(self, other: Any) -> csr_array:
        return csr_array(other) - self

    def multiply(self, other: Any) -> csr_array:
        """Multiply each stored value by the element of an array at its position."""
        other = ops.np.broadcast_to(as_nonscalar(other), self.shape)
        return self * ops.np.index(other, (self.structure.rows, self.indices))

    def diagonal(self) -> Any:
        """Return the diagonal, with its zeros."""
        kept = np.flatnonzero(self.structure.rows == self.indices)
        found = np.zeros((len(kept), min(self.shape)))
        found[np.arange(len(kept)), self.indices[kept]] = 1
        return ops.np.matmul(ops.np.take(self.data, kept, -1), found)

    def sum(self, axis: int | None = None) -> Any:
        """Return the sum of all elements, or those of columns (axis 0) or rows."""
        if axis is None:
            return ops.np.sum(self.data, -1)
        return (self.T if axis % 2 == 0 else self) @ np.ones(self.shape[axis % 2])

    def toarray(self) -> Any:
        """Return the dense matrix, with its zeros."""
        return self @ np.eye(self.shape[1], dtype=self.dtype)

    def to_scipy(self) -> sparse.csr_array:
        """Return SciPy's array of one matrix whose values are not tracked."""
        return self.structure.matrix(np.asarray(self.data))

    def __repr__(self) -> str:
        return f"csr_array({self.data!r}, {self.structure!r})"


def summed(data: Any, places: tuple[Any, ...], shape: Any) -> tuple[Any, Structure]:
    """Return the values in the order of a new structure. Those at the same position are added."""
    rows, columns = map(np.asarray, places)
    if shape is None:
        shape = tuple([int(x.max(initial=-1)) + 1 for x in (rows, columns)])
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    is_first = np.append(True, (np.diff(rows) != 0) | (np.diff(columns) != 0))[:len(rows)]
    data = ops.np.take(data, order, -1)
    starts = np.flatnonzero(is_first)
    if len(starts) < len(rows):
        adding = Structure(np.arange(len(rows)), np.append(starts, len(rows)), (len(starts), len(rows)))
        data = ops.np.getitem(product(np.ones(len(rows)), ops.np.expand_dims(data, -1), adding), (..., 0))
    counts = np.bincount(rows[starts], minlength=shape[0])
    return data, Structure(columns[starts], np.append(0, counts.cumsum()), shape)


def matched(left: csr_array, right: csr_array) -> csr_array:
    """Return the product of sparse matrices, whose values are sums of products of theirs."""
    if left.shape[1] != right.shape[0]:
        raise ValueError(f"matmul: dimension mismatch, {left.shape} and {right.shape}")
    counts = np.diff(right.indptr)[left.indices]        # of the products with each value on the left
    first = np.repeat(np.arange(left.nnz), counts)
    within = np.arange(len(first)) - np.repeat(np.append(0, counts.cumsum())[:-1], counts)
    second = np.repeat(right.indptr[left.indices], counts) + within
    data = ops.np.take(left.data, first, -1) * ops.np.take(right.data, second, -1)
    return csr_array((data, (left.structure.rows[first], right.indices[second])), (left.shape[0], right.shape[1]))


register_pytree_node(csr_array, lambda matrix: ((matrix.data,), matrix.structure),
                     lambda children, structure: csr_array.of_structure(children[0], structure))


def from_scipy(matrix: Any) -> csr_array:
    """Return a `csr_array` with the values and the structure of a sparse array of SciPy's.

    Parameters
    ----------
    matrix
        A sparse array of SciPy's.

    Returns
    -------
    csr_array
        The matrix.
    """
    return csr_array(matrix)


def as_sparse(A: Any) -> csr_array:
    return A if isinstance(A, csr_array) else csr_array(A)


def matvec(A: Any, x: Any) -> Any:
    """Multiply a matrix with a vector.

    Parameters
    ----------
    A
        A `csr_array`, or a sparse array of SciPy's.
    x
        Vector of shape (n,), or column of shape (n, 1).

    Returns
    -------
    array
        The product A @ x.

    Raises
    ------
    ValueError
        If the shape of `x` does not fit.
    """
    A, x = as_sparse(A), as_nonscalar(x)
    n = A.shape[1]
    if tuple(x.shape) not in ((n,), (n, 1)):
        raise ValueError(f"matvec: dimension mismatch, argument x has shape {tuple(x.shape)}, expected ({n},)\n"
                         "pass a vector, or write A @ x for a matrix")
    return A @ x


def matmat(A: Any, X: Any) -> Any:
    """Multiply a matrix with a matrix, or with a stack of them.

    Parameters
    ----------
    A
        A `csr_array`, or a sparse array of SciPy's.
    X
        Matrix, or stack of matrices.

    Returns
    -------
    array
        The product A @ X.

    Raises
    ------
    ValueError
        If `X` is not a matrix.
    """
    A, X = as_sparse(A), as_nonscalar(X)
    if X.ndim < 2:
        raise ValueError(f"matmat: argument X has shape {tuple(X.shape)}, expected a matrix\n"
                         "pass a matrix, or use matvec for a vector")
    return A @ X


SCIPY.install("sparse")
