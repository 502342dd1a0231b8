"""`scipy.cluster` for arrays and Tensors: vector quantization. Hierarchies are SciPy's, for arrays."""

from __future__ import annotations

from scipy.cluster import hierarchy

from pydispatch._loading import only_public
from pydispatch.scipy.cluster import vq

__all__ = ["hierarchy", "vq"]
__dir__ = only_public(globals())
