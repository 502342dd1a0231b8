"""Compiled functions: traced once for each kind of arguments, then run as plans in C."""

from pydispatch._loading import only_public
from pydispatch.compiling.compilers import register_compiler
from pydispatch.compiling.functions import CacheInfo, Compiled, compile

__all__ = ["CacheInfo", "Compiled", "compile", "register_compiler"]
__dir__ = only_public(globals())
