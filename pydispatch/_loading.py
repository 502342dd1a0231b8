"""Loading on first use, so that `import pydispatch` loads only what a plain call needs.

Three things are loaded on demand: an attribute of a package (`attributes_on_demand`), a function (`deferred`), and the
upcalls of the core (`CONNECTED`). Python's import lock makes each of them safe if several threads need it at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from pydispatch import _core

CONNECTED = {
    "autograd.anomaly": ("note_origin", "tell_origin", "check_node"),
    "autograd.batches": (
        "unbatched_write", "not_a_batch", "batch_dims", "copies_for_examples", "lost_view"),
    "autograd.custom_derivatives": (
        "record_custom", "apply_custom_on_tape", "function_is_used", "checked_gradient", "zeros_beside",
        "needless_gradient", "materialize", "check_gradients", "gradient_of_formula"),
    "autograd.forward": ("propagate", "part_of", "part_replaced", "has_no_positions", "check_tangent"),
    "autograd.function": ("apply_in_general", "parts_of_function", "finish_in_general", "wrap_outputs"),
    "autograd.kinks": ("square_of_kink",),
    "autograd.views": ("view_node", "written_node", "write_error", "check_passed_once", "detach_error",
                       "scalar_error"),
    "compiling.reports": ("name_loop",),
    "func.grad": (
        "enter_constants", "check_differentiable", "check_aux", "as_scalar", "one_beside", "differentiate_in_general",
        "as_gradient", "as_passed", "leave_aux", "as_raw_constant", "as_cotangent", "recorded", "output_and_vjp_fn",
        "zeros_for"),
    "func.jacobians": ("jacobian_of_columns", "jacobian_of_rows", "whole_batch"),
    "func.jvp": ("propagated", "output_and_tangent"),
    "func.vmap": ("grads_of_batch", "moved", "batched_in_general"),
    "library.derived": ("batch_by_default",),
    "library.pickling": ("reduce_operator", "reduce_packet"),
    "library.registration": ("py_impl",),
    "numpy.declare": ("as_elements", "as_key", "entered"),
    "numpy.methods": ("call_as_function",),
    "numpy.objects": ("binary_with_object", "compare_unlike"),
    "numpy.protocols": ("call_universal", "function_of_numpy", "call_on_backend"),
    "_registry.conversions": ("conversion_error",),
    "_registry.derivatives": ("compile_derivative",),
}
"""The modules that are loaded when the core calls one of the functions that they connect."""


def attributes_on_demand(
    package: str, namespace: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that loads some attributes on first access.

    `modules` maps each attribute to its module. An attribute that maps to its own name is that module. `dir` shows only
    the public names, the `__all__` of the namespace.
    """
    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{modules[name]}")
        value = namespace[name] = module if modules[name] == name else getattr(module, name)
        return value

    return find, only_public(namespace)


def only_public(namespace: dict[str, Any]) -> Callable[[], list[str]]:
    """Return a `__dir__` for a public module, so that `dir` and editors show only its `__all__`."""
    return lambda: sorted(namespace["__all__"])


def deferred(module: str, name: str) -> Callable[..., Any]:
    """Return a function that imports its module of the package when it is called."""
    found: Any = None

    def function(*args: Any, **options: Any) -> Any:
        nonlocal found
        if found is None:
            found = getattr(import_module(f"pydispatch.{module}"), name)
        return found(*args, **options)
    function.__name__ = function.__qualname__ = name
    return function


def trace_if_asked_to() -> None:
    """Trace all calls of the process if the environment variable PYDISPATCH_TRACE is set."""
    if os.environ.get("PYDISPATCH_TRACE", "0") not in ("", "0"):
        deferred("debug.trace", "trace_from_start")()


def _connected(module: str, name: str) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        import_module(f"pydispatch.{module}")      # it replaces this function by its own
        return _core.connected(name)(*args, **options)
    return function


_core.connect(**{name: _connected(module, name) for module, names in CONNECTED.items() for name in names})
