"""`scipy.sparse.linalg`: solutions of sparse systems, with gradients in the values and in the right-hand side."""

from __future__ import annotations

from typing import Any

from pydispatch.loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.ops import ops
from pydispatch.scipy.sparse.arrays import as_sparse

__all__ = ["spsolve"]
__dir__ = only_public(globals())


def spsolve(A: Any, b: Any) -> Any:
    """The solution of A x = b by sparse factors, which serve the backward pass too.

    `A` is a `csr_array`, or a sparse array of SciPy's as a constant; `b` a vector, or a matrix of columns. As in SciPy,
    one column gives a vector. Raises ValueError for shapes that do not fit, RuntimeError for a singular matrix.
    """
    A, b = as_sparse(A), as_nonscalar(b)
    if b.ndim == 1 or (b.ndim == 2 and b.shape[1] == 1):
        columns = b if b.ndim == 2 else ops.np.expand_dims(b, -1)
        return ops.np.getitem(ops.scipy.sparse_solution(A.data, columns, A.structure), (..., 0))
    return ops.scipy.sparse_solution(A.data, b, A.structure)
