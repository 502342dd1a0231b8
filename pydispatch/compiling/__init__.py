"""Compiled functions: traced once for each kind of arguments, then run as plans in C."""

from pydispatch._loading import only_public
from pydispatch.compiling.functions import CacheInfo, Compiled

__all__ = ["CacheInfo", "Compiled"]       # `compile` and `register_compiler` are in `pydispatch`
__dir__ = only_public(globals())
