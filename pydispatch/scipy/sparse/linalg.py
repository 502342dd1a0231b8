"""`scipy.sparse.linalg`: solutions of sparse systems, with gradients of the values and of the right-hand side."""

from __future__ import annotations

from typing import Any

from pydispatch._loading import only_public
from pydispatch.numpy.declare import as_nonscalar
from pydispatch.ops import ops
from pydispatch.scipy.sparse.arrays import as_sparse

__all__ = ["spsolve"]
__dir__ = only_public(globals())


def spsolve(A: Any, b: Any) -> Any:
    """Solve A x = b by sparse factors, which also serve the backward pass.

    Parameters
    ----------
    A
        A `csr_array`, or a sparse array of SciPy's as a constant.
    b
        A vector, or a matrix of columns.

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
    A, b = as_sparse(A), as_nonscalar(b)
    if b.ndim == 1 or (b.ndim == 2 and b.shape[1] == 1):
        columns = b if b.ndim == 2 else ops.np.expand_dims(b, -1)
        return ops.np.getitem(ops.scipy.sparse_solution(A.data, columns, A.structure), (..., 0))
    return ops.scipy.sparse_solution(A.data, b, A.structure)
