"""Sparse arrays of `scipy.sparse` and of the library `sparse`, under the functionality `Sparse`.

Importing this package registers SciPy arrays. The module `pydata` registers those of `sparse`. Both are packs, loaded
when one of their arrays is first used.
"""

from pydispatch._loading import only_public
from pydispatch.backends.sparse import kernels, scipy  # noqa: F401  imported because they register
from pydispatch.backends.sparse.densifying import densifying
from pydispatch.backends.sparse.operators import from_values, sample, to_dense, values

__all__ = ["densifying", "from_values", "sample", "to_dense", "values"]
__dir__ = only_public(globals())
