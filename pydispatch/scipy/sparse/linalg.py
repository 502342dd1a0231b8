"""`scipy.sparse.linalg`: sparse systems, eigenvalues and exponentials, with gradients of the stored values.

SciPy's methods compute the values. Derivatives are those of the equations that are solved, to every order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse import linalg

from pydispatch._core import Tensor, is_array
from pydispatch._loading import only_public
from pydispatch.exceptions import ConvergenceError, DispatchTypeError
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.numpy.declare import as_nonscalar, read_off
from pydispatch.ops import ops
from pydispatch.scipy.batches import by_example_if_needed
from pydispatch.scipy.borrowed import copied_object, publish
from pydispatch.scipy.implicit import LIMITS, REMEDIES, implicit_operator, jacobian_products
from pydispatch.scipy.problems import problem
from pydispatch.scipy.sparse.arrays import as_sparse, csr_array


def spsolve(A: Any, b: Any, permc_spec: Any = None, use_umfpack: bool = True) -> Any:
    """Solve A x = b by sparse factors, which also serve the backward pass.

    Parameters
    ----------
    A
        A `csr_array`, or a sparse array of SciPy's as a constant.
    b
        A vector, or a matrix of columns.
    permc_spec, use_umfpack
        Ignored: SuperLU orders the columns.

    Returns
    -------
    array
        The solution. As in SciPy, one column gives a vector.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    RuntimeError
        If the matrix is singular.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch.scipy.sparse import csr_array
    >>> spsolve(csr_array((np.array([2.0, 4.0]), [0, 1], [0, 1, 2])), np.array([1.0, 1.0]))
    array([0.5 , 0.25])
    """
    b = as_nonscalar(b)
    found = solution(as_sparse(A), b, False)
    return ops.np.getitem(found, (..., 0)) if b.ndim == 2 and b.shape[1] == 1 else found


def solution(A: csr_array, b: Any, transposed: bool) -> Any:
    if b.ndim == 1:
        columns = ops.np.expand_dims(b, -1)
        return ops.np.getitem(ops.scipy.sparse_solution(A.data, columns, A.structure, transposed), (..., 0))
    return ops.scipy.sparse_solution(A.data, b, A.structure, transposed)


def spsolve_triangular(A: Any, b: Any, lower: bool = True, overwrite_A: bool = False,
                       overwrite_b: bool = False, unit_diagonal: bool = False) -> Any:
    """Solve a system with a triangular matrix, of which one triangle is read."""
    A = as_sparse(A)
    rows, columns = A.structure.rows, A.indices
    kept = np.flatnonzero(rows >= columns if lower else rows <= columns)
    data, places = ops.np.take(A.data, kept, -1), (rows[kept], columns[kept])
    if unit_diagonal:
        data = ops.np.where(places[0] == places[1], 1.0, data)
    return solution(csr_array((data, places), A.shape), as_nonscalar(b), False)


class SparseFactors:
    """The factors of a sparse matrix: `splu(A).solve(b)`."""

    def __init__(self, A: Any) -> None:
        self.matrix = as_sparse(A)
        self.shape, self.nnz = self.matrix.shape, self.matrix.nnz

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """Solve a system with the matrix, its transpose ("T") or its adjoint ("H")."""
        if trans not in ("N", "T", "H"):
            raise ValueError("trans must be N, T, or H")
        A = self.matrix
        if trans == "H":
            A = A.with_data(ops.np.conjugate(A.data))
        return solution(A, as_nonscalar(rhs), trans != "N")


def splu(A: Any, permc_spec: Any = None, diag_pivot_thresh: Any = None, relax: Any = None, panel_size: Any = None,
         options: Any = None) -> Any:
    """Factor a sparse matrix. Constants have SciPy's factors."""
    if not isinstance(A, csr_array):
        return linalg.splu(A, permc_spec, diag_pivot_thresh, relax, panel_size, options or {})
    return SparseFactors(A)


def factorized(A: Any) -> Callable[[Any], Any]:
    """Return a function that solves systems with a sparse matrix."""
    return splu(A).solve if isinstance(A, csr_array) else linalg.factorized(A)


# --- equations -------------------------------------------------------------------------------------------------------


def no_loops(*args: Any) -> Any:
    raise NotImplementedError


def equation(name: str, solver: Callable[..., Any]) -> HigherOrderOperator:
    """Make the operator of a problem, whose derivatives are those of its equations."""
    name = f"sparse.linalg.{name}"
    REMEDIES[name] = "the result is not a smooth function of the matrix, which is singular or has equal eigenvalues"
    LIMITS[name] = "change tol and maxiter"
    return implicit_operator(name, lambda residual, n: residual, solver, no_loops)


def holds_tensors(*values: Any) -> bool:
    """Return whether one of these matrices, vectors and functions is one of ours."""
    return any(not is_raw(value) and (
        isinstance(value, (Tensor, csr_array)) or type(value).__module__ == LINEAR_OPERATORS or (
            callable(value) and not isinstance(value, linalg.LinearOperator))) for value in values)


def is_raw(value: Any) -> bool:
    """Return whether a value is a matrix of ours with NumPy's values."""
    return isinstance(value, csr_array) and type(value.data) is np.ndarray and value.data.ndim == 1


def as_scipys(value: Any) -> Any:
    """Return a matrix of ours with NumPy's values as SciPy's. Other values are unchanged."""
    return value.to_scipy() if is_raw(value) else value


LINEAR_OPERATORS = "scipy.sparse.linalg._interface"


def as_ours(A: Any) -> Any:
    """Return a matrix as one that takes Tensors. Functions are products with a vector."""
    if scipy.sparse.issparse(A):
        return csr_array(A)
    return as_nonscalar(A) if isinstance(A, (list, tuple)) else A


def product(A: Any, x: Any) -> Any:
    if isinstance(A, csr_array):
        return A @ x
    return ops.np.matmul(A, x) if is_array(A) else A.matvec(x) if hasattr(A, "matvec") else A(x)


def scipys_matrix(A: Any) -> Callable[[Any], Any] | None:
    """Return a function from the arrays of one example, the first of which is A's, to the matrix for SciPy."""
    if isinstance(A, csr_array):
        return A.structure.matrix
    return np.asarray if is_array(A) else None


def run_iteration(residual: Any, x0: Any, args: Any, options: Any) -> Any:
    """Solve a system by one of SciPy's methods. Its right-hand side, and products, follow from the residual."""
    (x,), of = x0, options["matrix"]
    b = -np.asarray(residual(np.zeros_like(x), *args)[0])
    if of is not None:
        matrix = of(np.asarray(args[0]))
    else:
        _, back = jacobian_products(residual, 1, False)
        matrix = linalg.LinearOperator(
            (x.size, x.size), lambda v: np.asarray(residual(np.asarray(v, x.dtype).reshape(-1), *args)[0]) + b,
            lambda v: np.conj(back(np.conj(np.asarray(v, x.dtype).reshape(-1)), x, *args)[0]), dtype=x.dtype)
    found, info = getattr(linalg, options["method"])(matrix, b, x, **options["options"])
    if info:
        raise ConvergenceError(f"SciPy returned info={info}")
    return (found,)


def iteration(name: str) -> Callable[..., Any]:
    """Return SciPy's method of this name for Tensors too. It raises ConvergenceError for those it does not solve."""
    scipys, operator = getattr(linalg, name), equation(name, run_iteration)

    def solve(A: Any, b: Any, x0: Any = None, **options: Any) -> Any:
        if not holds_tensors(A, b, x0):
            return scipys(as_scipys(A), b, x0, **options)
        A, b = as_ours(A), as_nonscalar(b)
        vector = ops.np.reshape(b, (-1,))
        dtype = np.result_type(b.dtype, getattr(A, "dtype", None) or np.float64, np.float64)
        start = np.zeros(vector.shape[0], dtype) if x0 is None else ops.np.astype(as_nonscalar(x0), dtype)
        found = problem(f"sparse.linalg.{name}", "A", lambda x, A, b: product(A, x) - b, start, (A, vector))
        x = found.solve(operator, {"method": name, "options": options, "matrix": scipys_matrix(A)})
        return ops.np.reshape(x, tuple(b.shape)), 0

    solve.__name__ = solve.__qualname__ = name
    solve.__doc__ = scipys.__doc__
    return solve


bicg, bicgstab, cg, cgs, gcrotmk, gmres, lgmres, minres, qmr, tfqmr = map(iteration, (
    "bicg", "bicgstab", "cg", "cgs", "gcrotmk", "gmres", "lgmres", "minres", "qmr", "tfqmr"))


# --- eigenvalues -----------------------------------------------------------------------------------------------------


def check_real(name: str, *matrices: Any) -> None:
    for each in matrices:
        if scipys_matrix(each) is None or each.dtype.kind == "c":
            raise DispatchTypeError(f"sparse.linalg.{name}: expected a csr_array, or an array, of real numbers\n"
                                    "make one of its values")


def run_eigenvalues(residual: Any, x0: Any, args: Any, options: Any) -> Any:
    matrices = [of(np.asarray(x)) for of, x in zip(options["matrices"], args, strict=False)]
    return getattr(linalg, options["method"])(*matrices[:1], options["k"], *matrices[1:], **options["options"])


def start(v0: Any, A: Any) -> Any:
    """Return the vector from which SciPy begins. For matrices of ours it is always the same, since it decides signs."""
    is_ours = isinstance(A, (csr_array, Tensor)) and v0 is None
    return np.random.default_rng(0).uniform(-1, 1, min(A.shape[-2:])) if is_ours else v0


EIGSH, SVDS = equation("eigsh", run_eigenvalues), equation("svds", run_eigenvalues)


def eigsh(A: Any, k: int = 6, M: Any = None, sigma: float | None = None, which: str = "LM",
          v0: Any = None, ncv: Any = None, maxiter: Any = None, tol: float = 0, return_eigenvectors: bool = True,
          **options: Any) -> Any:
    """Compute some eigenvalues and eigenvectors of a symmetric matrix. For Tensors, of real numbers."""
    options.update(sigma=sigma, which=which, v0=start(v0, A), ncv=ncv, maxiter=maxiter, tol=tol)
    if not holds_tensors(A, M):
        return linalg.eigsh(as_scipys(A), k, as_scipys(M), return_eigenvectors=return_eigenvectors, **options)
    matrices = [as_ours(each) for each in (A, M) if each is not None]
    check_real("eigsh", *matrices)
    n = A.shape[0]

    def residual(unknowns: Any, A: Any, M: Any = None) -> Any:
        values, vectors = unknowns
        moved = vectors if M is None else product(M, vectors)
        return (1 - ops.np.sum(vectors * moved, 0)) / 2, product(A, vectors) - moved * values

    found = problem("sparse.linalg.eigsh", "A", residual, (np.zeros(k), np.zeros((n, k))), tuple(matrices))
    values, vectors = found.solve(EIGSH, {
        "method": "eigsh", "k": k, "options": options, "matrices": list(map(scipys_matrix, matrices))})
    return (values, vectors) if return_eigenvectors else values


def svds(A: Any, k: int = 6, ncv: Any = None, tol: float = 0, which: str = "LM", v0: Any = None, maxiter: Any = None,
         return_singular_vectors: bool = True, solver: str = "arpack", **options: Any) -> Any:
    """Compute some singular values and vectors. For Tensors, of a matrix of real numbers."""
    options.update(ncv=ncv, tol=tol, which=which, v0=start(v0, A), maxiter=maxiter, solver=solver)
    if not holds_tensors(A):
        return linalg.svds(as_scipys(A), k, return_singular_vectors=return_singular_vectors, **options)
    A = as_ours(A)
    check_real("svds", A)
    m, n = A.shape

    def residual(unknowns: Any, A: Any) -> Any:
        left, values, right = unknowns
        return (product(A, right.mT) - left * values, (1 - ops.np.sum(left * left, 0)) / 2,
                product(A.T, left).mT - right * values[:, None])

    found = problem("sparse.linalg.svds", "A", residual, (np.zeros((m, k)), np.zeros(k), np.zeros((k, n))), (A,))
    left, values, right = found.solve(SVDS, {
        "method": "svds", "k": k, "options": options, "matrices": [scipys_matrix(A)]})
    return (left, values, right) if return_singular_vectors is True else values


# --- functions of matrices -------------------------------------------------------------------------------------------

DEGREES = {10: 0.144, 20: 1.44, 30: 3.54}
"""Degrees of Taylor polynomials, and the norms of matrices up to which they are exact in double precision."""


def expm_multiply(A: Any, B: Any, start: float | None = None, stop: Any = None, num: int | None = None,
                  endpoint: bool | None = None, traceA: complex | None = None) -> Any:
    """Multiply by the exponential of a matrix, or of `num` multiples of it, without computing the exponential."""
    if not holds_tensors(A, B):
        return linalg.expm_multiply(as_scipys(A), B, start, stop, num, endpoint, traceA)
    A, B = as_ours(A), as_nonscalar(B)
    if start is None:
        return by_example_if_needed(exponential_times, (A, B, 1.0), {})
    times = np.linspace(start, stop, num or 50, endpoint=endpoint is not False)
    found = [by_example_if_needed(exponential_times, (A, B, times[0]), {})]
    for step in np.diff(times):
        found.append(by_example_if_needed(exponential_times, (A, found[-1], step), {}))
    return ops.np.stack(found)


def exponential_times(A: Any, B: Any, time: float) -> Any:
    """Return exp(time A) B, by Taylor polynomials of the matrix less the mean of its diagonal.

    Source: Al-Mohy and Higham, "Computing the action of the matrix exponential" (2011), whose bounds these are.
    """
    of = scipys_matrix(A)
    if of is None:
        raise DispatchTypeError("sparse.linalg.expm_multiply: expected a csr_array, or an array\n"
                                "make one of A's values")
    matrix = of(read_off(A.data if isinstance(A, csr_array) else A))
    shift = matrix.trace() / matrix.shape[0]
    size = abs(time) * np.max(abs(matrix).sum(0), initial=0) + abs(time * shift)
    n_steps, degree = min((degree * max(1, int(np.ceil(size / most))), degree) for degree, most in DEGREES.items())
    n_steps //= degree
    for _ in range(n_steps):
        term = total = B
        for k in range(1, degree + 1):
            term = (product(A, term) - shift * term) * (time / (n_steps * k))
            total = total + term
        B = total * np.exp(time * shift / n_steps)
    return B


def norm(x: Any, ord: Any = None, axis: Any = None) -> Any:
    """Compute the norm of a sparse matrix: Frobenius, or 1 or infinity."""
    if not isinstance(x, csr_array) or is_raw(x):
        return linalg.norm(as_scipys(x), ord, axis)
    size = ops.np.absolute(x.data)
    if axis is None and ord in (None, "fro", "f"):
        return ops.np.sqrt(ops.np.sum(size * size, -1))
    if axis is not None or ord not in (1, -1, np.inf, -np.inf):
        raise NotImplementedError(f"sparse.linalg.norm: ord={ord!r} with axis={axis!r} is not supported for csr_array\n"
                                  "pass ord='fro', 1 or inf")
    sums = x.with_data(size).sum(int(abs(ord) != 1))
    return ops.np.max(sums, -1) if ord > 0 else ops.np.min(sums, -1)


def aslinearoperator(A: Any) -> Any:
    """Return a matrix as a linear operator, which takes Tensors if the matrix has some."""
    if not isinstance(A, (Tensor, csr_array)):
        return linalg.aslinearoperator(A)
    adjoint = A.T.with_data(ops.np.conjugate(A.T.data)) if isinstance(A, csr_array) else ops.np.conjugate(A.T)
    return __getattr__("LinearOperator")(
        A.shape, lambda x: product(A, x), lambda x: product(adjoint, x), lambda x: product(A, x), A.dtype,
        lambda x: product(adjoint, x))


def __getattr__(name: str) -> Any:
    if name != "LinearOperator":
        raise AttributeError(f"module 'pydispatch.scipy.sparse.linalg' has no attribute {name!r}")
    return copied_object(linalg.LinearOperator, name)


OWN = ("LinearOperator", "aslinearoperator", "bicg", "bicgstab", "cg", "cgs", "eigsh", "expm_multiply", "factorized",
       "gcrotmk", "gmres", "lgmres", "minres", "norm", "qmr", "splu", "spsolve", "spsolve_triangular", "svds", "tfqmr")
__all__ = publish("sparse.linalg", globals(), OWN)
__dir__ = only_public(globals())
