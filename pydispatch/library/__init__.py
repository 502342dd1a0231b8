"""Registration of operators by schema, of kernels under dispatch keys, and of fallbacks.

Any module can register, in any order. Every registration returns a handle that undoes exactly that registration.
Garbage collection undoes nothing: a registration lasts until you remove its handle, close its `Library`, or end the
process.
"""

from pydispatch._core import Stack
from pydispatch._loading import only_public
from pydispatch._registry.c_functions import c_function
from pydispatch._registry.kernels import fallthrough_kernel
from pydispatch._registry.registrations import Handle
from pydispatch.library.custom_operator import (
    CustomOpDef,
    custom_op,
    register_autograd,
    register_fake,
    register_kernel,
    register_vmap,
)
from pydispatch.library.fakes import get_ctx
from pydispatch.library.registration import Library, define, get_kernel, impl, register_pydispatch
from pydispatch.schema.checks import check_strict
from pydispatch.schema.inference import infer_schema
from pydispatch.schema.user_types import register_opaque_type, unregister_opaque_type

__all__ = [
    "CustomOpDef", "Handle", "Library", "Stack", "c_function", "check_strict", "custom_op", "define",
    "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "infer_schema", "register_autograd", "register_fake",
    "register_kernel", "register_opaque_type", "register_pydispatch", "register_vmap", "unregister_opaque_type",
]
__dir__ = only_public(globals())
