"""Compiled functions: traced once for each kind of arguments, then run as plans in C."""

from pydispatch.compiling.compilers import register_compiler
from pydispatch.compiling.functions import CacheInfo, Compiled, compile
from pydispatch.loading import only_public

__all__ = ["CacheInfo", "Compiled", "compile", "register_compiler"]
__dir__ = only_public(globals())
