"""Packs: distributions that declare operators, each with its kernels, derivative and batching rule in one declaration.

A pack has the grammar of the library's own operators, which `Pack` documents. It is found by its entry point in the
group `pydispatch.packs`, from the namespace to its module, and loaded when `pydispatch.ops.<namespace>` is first used.
"""

from pydispatch.loading import only_public
from pydispatch.operators.declare import Pack
from pydispatch.registry.derivatives import Joint
from pydispatch.registry.packs import OPERATORS, load_pack, namespaces_of_packs

__all__ = ["OPERATORS", "Joint", "Pack", "load_pack", "namespaces_of_packs"]
__dir__ = only_public(globals())
