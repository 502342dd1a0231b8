"""Sparse matrices whose values may be tracked: products, and solutions of systems (`sparse.linalg.spsolve`).

SciPy's sparse arrays hold NumPy arrays only. A `csr_array` consists of an array or Tensor of values and a
constant structure, which specifies their positions. It is a pytree node with one leaf, its values: `grad`,
`vmap` and `jvp` take it as an argument, and its gradient is also a `csr_array`. Gradients exist where values
are stored, and are never dense.
"""

from pydispatch._loading import only_public
from pydispatch.scipy.borrowed import publish
from pydispatch.scipy.sparse import linalg  # noqa: F401
from pydispatch.scipy.sparse.arrays import csr_array, from_scipy, matmat, matvec  # noqa: F401

__all__ = publish("sparse", globals(), ("csr_array", "from_scipy", "linalg", "matmat", "matvec"))
__dir__ = only_public(globals())
