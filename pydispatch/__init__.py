"""Gradients, batches and compiled loops for NumPy programs, from a dispatcher that you can extend.

Call NumPy's functions
    numpy, scipy                    their functions, for arrays and Tensors
    ops.np                          the operators behind these functions
    ops.np.add.explain(x, y)        what a call would do, and why
Differentiate, batch, compile
    func.grad(f), func.vmap(f)      transforms of functions: jvp, hessian, ...
    Tensor(x, requires_grad=True)   an array whose calls the tape records
    autograd.no_grad()              the tape's guards, hooks and checkpoints
    higher_order.scan(...)          loops and branches as operators
    compile(f)                      f as a plan of loops in C
    register_compiler(name, lower)  other compilers
    compiling, tracing              compiled functions, graphs
Write operators
    library.custom_op("ns::f", ...) an operator from a function
    autograd.Function               a derivative without an operator
    library.Library("ns", "DEF")    operators and kernels under dispatch keys
    packs.Pack                      operators as a distribution
    schema                          the grammar of schemas
    testing.opcheck(op, args)       checks of what you registered for it
Handle other arrays
    register_backend("Name", cls)   a kind of raw array
    backends                        arrays without data, of Dask, of sparse, ...
    subclasses                      help for Tensors that hold other Tensors
    DispatchMode                    a handler of every call in a with block
    modes, include_keys(...)        guards that choose keys and backends
See what happens
    debug.trace(), debug.profile()  calls and their times
    exceptions                      the errors, with the remedy in line two
    tree                            nested lists and dicts of arrays
    compat                          interfaces of other libraries
"""

# tests: tests/test_loading.py
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

from pydispatch import _loading, autograd, backends, exceptions, modes, schema, tree
from pydispatch import operators as _operators  # noqa: F401  which declares the operators of ops.np
from pydispatch import plugins as _plugins  # noqa: F401  which tells other libraries about Tensors
from pydispatch import tensor as _tensor  # noqa: F401  which gives Tensor NumPy's attributes
from pydispatch._core import DispatchKeySet, OpOverload, OpOverloadPacket, Tensor, WrapperTensor, below_python, is_array
from pydispatch._registry.backends import register_backend
from pydispatch.keys import DispatchKey, register_array_type, register_functionality
from pydispatch.modes import (
    DispatchMode,
    below_autograd,
    default_backend,
    exclude_keys,
    force_keys,
    include_keys,
    no_dispatch,
    restore_entry_state,
)
from pydispatch.ops import ops

if TYPE_CHECKING:
    from pydispatch import (
        compat,
        compiling,
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
    from pydispatch.compiling.compilers import register_compiler
    from pydispatch.compiling.functions import compile

__all__ = [
    "DispatchKey",
    "DispatchKeySet",
    "DispatchMode",
    "OpOverload",
    "OpOverloadPacket",
    "Tensor",
    "WrapperTensor",
    "autograd",
    "backends",
    "below_autograd",
    "below_python",
    "compat",
    "compile",
    "compiling",
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
    "ops",
    "packs",
    "register_array_type",
    "register_backend",
    "register_compiler",
    "register_functionality",
    "restore_entry_state",
    "schema",
    "scipy",
    "subclasses",
    "testing",
    "tracing",
    "tree",
]

if not TYPE_CHECKING:       # for which there would be no unknown names
    __getattr__, __dir__ = _loading.attributes_on_demand(__name__, globals(), {
        name: name for name in (
            "compat", "compiling", "debug", "func", "higher_order", "library", "numpy", "packs", "scipy",
            "subclasses", "testing", "tracing")
    } | {"compile": "compiling.functions", "register_compiler": "compiling.compilers"})

_core.check_connected()
_loading.trace_if_asked_to()
