"""Sparse matrices whose values may be tracked: products, and solutions of systems (`sparse.linalg.spsolve`).

SciPy's sparse arrays hold NumPy's arrays only. `csr_array` holds an array or Tensor of values beside a constant
structure, which says where they are. It is a pytree node with one leaf, its values: `grad`, `vmap` and `jvp` take it as
an argument, and a gradient by it is a `csr_array` too. Gradients exist where values are stored, and are never dense.
"""

from pydispatch.loading import only_public
from pydispatch.scipy.sparse import linalg
from pydispatch.scipy.sparse.arrays import csr_array, from_scipy, matmat, matvec

__all__ = ["csr_array", "from_scipy", "linalg", "matmat", "matvec"]
__dir__ = only_public(globals())
