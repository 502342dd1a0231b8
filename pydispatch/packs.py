"""Packs: distributions that declare operators, each with its kernels, derivative and batching rule in one declaration.

A pack has the grammar of the library's own operators, which `Pack` documents. It is found by its entry point in the
group `pydispatch.packs`, from the namespace to its module, and loaded when `pydispatch.ops.<namespace>` is first used.
"""

from pydispatch._loading import only_public
from pydispatch._registry.derivatives import Joint
from pydispatch._registry.packs import OPERATORS, load_pack, namespaces_of_packs
from pydispatch.operators.declare import Pack

__all__ = ["OPERATORS", "Joint", "Pack", "load_pack", "namespaces_of_packs"]
__dir__ = only_public(globals())
