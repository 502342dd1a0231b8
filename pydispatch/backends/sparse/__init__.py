"""Sparse arrays, under the functionality `Sparse`: those of `scipy.sparse`, and of the library `sparse`.

Importing this registers SciPy's; `pydata` registers those of `sparse`. Both are packs, loaded when an array of theirs
is first seen.
"""

from pydispatch.backends.sparse import kernels, scipy  # noqa: F401  which register when they are imported
from pydispatch.backends.sparse.densifying import densifying
from pydispatch.backends.sparse.operators import from_values, sample, to_dense, values
from pydispatch.loading import only_public

__all__ = ["densifying", "from_values", "sample", "to_dense", "values"]
__dir__ = only_public(globals())
