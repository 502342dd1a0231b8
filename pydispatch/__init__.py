"""An operator dispatcher for NumPy.

Declare an operator by its schema; any module may register kernels for it under dispatch keys, in any order. A call
computes a key set from its arguments and the ambient state, and jumps to the kernel that the set selects.
"""

__distribution__ = "pydispatch-numpy"   # what _core checks: PyDispatcher installs an import package of the same name
__version__ = "0.1.0"

from typing import TYPE_CHECKING

try:
    from pydispatch import _core
except ImportError:
    from pathlib import Path

    from pydispatch import missing_core

    if (reason := missing_core.reason(Path(__file__).parent)) is None:
        raise
    raise ImportError(reason) from None

from pydispatch import autograd, backends, exceptions, loading, modes, operators, registry, schema, tree
from pydispatch import tensor as _tensor  # noqa: F401  which gives Tensor NumPy's attributes
from pydispatch._core import DispatchKeySet, OpOverload, OpOverloadPacket, Shell, Stack, Tensor, WrapperTensor, is_array
from pydispatch.keys import DispatchKey, register_array_type, register_functionality
from pydispatch.modes import (
    DispatchMode,
    below_autograd,
    below_python,
    default_backend,
    exclude_keys,
    force_keys,
    include_keys,
    no_dispatch,
    restore_entry_state,
)
from pydispatch.ops import ops
from pydispatch.registry.backends import register_backend

if TYPE_CHECKING:
    from pydispatch import (
        compiling,
        custom_ops,
        debug,
        func,
        higher_order,
        library,
        numpy,
        packs,
        scipy,
        subclasses,
        testing,
        tracing,
    )
    from pydispatch.compiling import compile, register_compiler

__all__ = [
    "DispatchKey",
    "DispatchKeySet",
    "DispatchMode",
    "OpOverload",
    "OpOverloadPacket",
    "Shell",
    "Stack",
    "Tensor",
    "WrapperTensor",
    "autograd",
    "backends",
    "below_autograd",
    "below_python",
    "compile",
    "compiling",
    "custom_ops",
    "debug",
    "default_backend",
    "exceptions",
    "exclude_keys",
    "force_keys",
    "func",
    "higher_order",
    "include_keys",
    "is_array",
    "library",
    "modes",
    "no_dispatch",
    "numpy",
    "operators",
    "ops",
    "packs",
    "register_array_type",
    "register_backend",
    "register_compiler",
    "register_functionality",
    "registry",
    "restore_entry_state",
    "schema",
    "scipy",
    "subclasses",
    "testing",
    "tracing",
    "tree",
]

if not TYPE_CHECKING:       # for which there would be no unknown names
    __getattr__, __dir__ = loading.attributes_on_demand(__name__, globals(), {
        name: name for name in (
            "compiling", "custom_ops", "debug", "func", "higher_order", "library", "numpy", "packs", "scipy",
            "subclasses", "testing", "tracing")
    } | dict.fromkeys(("compile", "register_compiler"), "compiling"))

_core.check_connected()
loading.trace_if_asked_to()
