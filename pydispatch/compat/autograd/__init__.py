"""The interface of HIPS autograd: change `autograd` to `pydispatch.compat.autograd` in your imports, and nothing else.

    import pydispatch.compat.autograd.numpy as np
    from pydispatch.compat.autograd import grad

HIPS's conventions apply where functions, vjps and rules are entered and left (`derivatives.py`). In between, `func`
differentiates functions of `pydispatch.numpy`. docs/coming-from-hips-autograd.md lists the differences, and how to
leave this layer.
"""

# tests: tests/compat/autograd/test_namespaces.py
from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES: dict[str, tuple[str, ...]] = {
    "builtins": ("structures", "primitives"),
    "core": ("derivatives", "primitives", "spaces"),
    "differential_operators": ("operators",),
    "extend": ("primitives", "spaces"),
    "misc": ("structures", "constant_graph"),
    "misc.fixed_points": ("fixed_point",),
    "misc.flatten": ("structures",),
    "misc.optimizers": ("optimizers",),
    "misc.tracers": ("constant_graph",),
    "numpy": ("numpy_functions", "pydispatch.numpy"),
    "numpy.fft": ("pydispatch.numpy.fft",),
    "numpy.linalg": ("numpy_functions", "pydispatch.numpy.linalg"),
    "numpy.numpy_boxes": ("primitives",),
    "numpy.numpy_vjps": ("spaces",),
    "numpy.numpy_vspaces": ("spaces",),
    "numpy.numpy_wrapper": ("numpy_functions", "pydispatch.numpy"),
    "numpy.random": ("pydispatch.numpy.random",),
    "scipy": (),
    "scipy.integrate": ("pydispatch.scipy.integrate",),
    "scipy.linalg": ("pydispatch.scipy.linalg",),
    "scipy.signal": ("convolution", "pydispatch.scipy.signal"),
    "scipy.special": ("pydispatch.scipy.special",),
    "scipy.stats": ("pydispatch.scipy.stats",),
    "tracer": ("primitives",),
    "util": ("derivatives", "test_util"),
    "wrap_util": ("operators",),
}
"""For each module of HIPS, the modules that hold its names: those of this folder, and public ones of pydispatch."""
NAMES = ("operators", "primitives", "structures")       # the modules that hold the names of this package
DISTRIBUTIONS = ("beta", "chi2", "dirichlet", "gamma", "multivariate_normal", "norm", "poisson", "t")


class LazyModule(ModuleType):
    """A module of HIPS that takes its names from others, which it loads on first use."""

    def __getattr__(self, name: str) -> Any:
        value = _find(self.__name__, MODULES[self.__name__.removeprefix(f"{__name__}.")], name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        names: list[str] = self.__getattr__("__all__")
        return names

    def loaded(self) -> dict[str, Any]:
        """Return the names that were used so far."""
        descriptor: Any = vars(ModuleType)["__dict__"]
        names: dict[str, Any] = descriptor.__get__(self)
        return names

    @property
    def __dict__(self) -> dict[str, Any]:       # type: ignore[override]
        """All names, for `vars`."""
        for name in dir(self):
            getattr(self, name)
        return self.loaded()


class DistributionModule(ModuleType):
    """A submodule of `scipy.stats`, whose functions are the methods of the distribution."""

    def __getattr__(self, name: str) -> Any:
        distribution = self.__name__.rpartition(".")[2]
        return getattr(getattr(import_module("pydispatch.scipy.stats"), distribution), name)


def _find(module: str, sources: tuple[str, ...], name: str) -> Any:
    """Return what a module calls by this name: a submodule, or a public name of one of its sources."""
    if f"{module}.{name}" in sys.modules and name not in (*DISTRIBUTIONS, "flatten"):
        return sys.modules[f"{module}.{name}"]
    loaded = [import_module(source if "." in source else f"{__name__}.{source}") for source in sources]
    if name == "__all__":
        return sorted({public for source in loaded for public in source.__all__})
    for source in loaded:
        if name in source.__all__ or (not name.startswith("__") and hasattr(source, name)):
            return getattr(source, name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    value = globals()[name] = _find(__name__, NAMES, name)
    return value


def __dir__() -> list[str]:
    names: list[str] = __getattr__("__all__")
    return names


for _module in MODULES:
    sys.modules[f"{__name__}.{_module}"] = LazyModule(f"{__name__}.{_module}")
for _module in DISTRIBUTIONS:
    sys.modules[f"{__name__}.scipy.stats.{_module}"] = DistributionModule(f"{__name__}.scipy.stats.{_module}")
