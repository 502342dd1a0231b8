"""Registration of Tensors with libraries that choose functions by the array's module: autoray, einops and opt_einsum.

Each library is configured through its own interface when the user or another library imports it. This module imports
none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from pydispatch._core import Tensor

FACE = "pydispatch.numpy"


def register_with_autoray(autoray: Any) -> None:
    """Make `autoray.do("sum", tensor)` call the function of `pydispatch.numpy`."""
    autoray.autoray.register_module_alias("pydispatch", FACE)


def register_with_opt_einsum(dispatch: Any) -> None:
    """Make `opt_einsum.contract` use the functions of `pydispatch.numpy`."""
    dispatch._aliases["pydispatch"] = FACE


def register_with_einops(backends: Any) -> None:
    """Make `einops.rearrange`, `reduce`, `repeat` and `einsum` accept Tensors."""
    class TensorBackend(backends.AbstractBackend):      # type: ignore[misc]
        """The einops backend for Tensors, which calls NumPy's functions on them."""

        framework_name = "pydispatch"

        def __init__(self) -> None:
            self.np: Any = import_module(FACE)

        def is_appropriate_type(self, tensor: object) -> bool:
            """Return whether the object is a Tensor."""
            return isinstance(tensor, Tensor)

        def from_numpy(self, x: Any) -> Tensor:
            """Return the array as a Tensor."""
            return Tensor(x)

        def to_numpy(self, x: Tensor) -> Any:
            """Return the array under a Tensor."""
            return x.numpy()

        def arange(self, start: int, stop: int) -> Tensor:
            """Return consecutive numbers as a Tensor."""
            return Tensor(self.np.arange(start, stop))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            """Stack the Tensors along a new first axis."""
            return self.np.stack(tensors)

        def tile(self, x: Any, repeats: Any) -> Any:
            """Repeat the Tensor along each axis."""
            return self.np.tile(x, repeats)

        def concat(self, tensors: Any, axis: int) -> Any:
            """Concatenate the Tensors along an axis."""
            return self.np.concatenate(tensors, axis=axis)

        def add_axis(self, x: Any, new_position: int) -> Any:
            """Insert an axis."""
            return self.np.expand_dims(x, new_position)

        def is_float_type(self, x: Tensor) -> bool:
            """Return whether the Tensor holds floating-point or complex numbers."""
            return x.dtype.kind in "fc"

        def einsum(self, pattern: str, *x: Any) -> Any:
            """Return the sum of products."""
            return self.np.einsum(pattern, *x)

    backends.TensorBackend = TensorBackend      # einops finds subclasses only while a reference to them exists


REGISTER: dict[str, Callable[[Any], None]] = {
    "autoray": register_with_autoray, "einops._backends": register_with_einops,
    "opt_einsum.backends.dispatch": register_with_opt_einsum,
}
"""The functions to call when a module has been imported."""


class RegisteringLoader:
    """The loader of a module, which registers with the module after loading it for the first time."""

    def __init__(self, loader: Any, waiting: dict[str, Callable[[Any], None]]) -> None:
        self.loader, self.waiting = loader, waiting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> Any:
        """Create the module by its original loader."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and register with it."""
        self.loader.exec_module(module)
        register = self.waiting.pop(module.__name__, None)
        if register is not None:
            with suppress(AttributeError):      # another version with another interface: do not register
                register(module)


class AfterImport:
    """Finds each module in REGISTER by the other finders, until it has been imported."""

    def __init__(self, waiting: dict[str, Callable[[Any], None]]) -> None:
        self.waiting = waiting

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module to register with, and None for all others."""
        register = self.waiting.pop(name, None)
        if register is None:
            return None
        try:
            spec = find_spec(name)
        finally:
            self.waiting[name] = register
        if spec is not None and spec.loader is not None:
            spec.loader = RegisteringLoader(spec.loader, self.waiting)      # type: ignore[assignment]
        return spec


def install() -> None:
    """Register with the modules that are imported, and with the others as soon as they are."""
    waiting = {}
    for name, register in REGISTER.items():
        if name in sys.modules:
            with suppress(AttributeError):
                register(sys.modules[name])
        else:
            waiting[name] = register
    if waiting:
        sys.meta_path.insert(0, AfterImport(waiting))


install()
