"""Other dispatchers, each set up to call the same Python kernel; the benchmarks compare with those installed.

A set-up gets the module, and returns a dict of names: `peer`, and `a` and `b` if it is not called on NumPy arrays.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

NAMESPACE = "pydispatch_bench"


def kernel(x, y):  # type: ignore[no-untyped-def]
    """Return the kernel, without annotations, since some dispatchers would check them at each call."""
    return x


def array_function(numpy: Any) -> dict[str, Any]:
    """Return a class that handles a function of NumPy by NEP 18."""
    handled = {numpy.dot: kernel}

    class Handler:
        def __array_function__(self, function: Any, classes: Any, args: Any, kwargs: Any) -> Any:
            return handled[function](*args, **kwargs)  # type: ignore[no-untyped-call]

    return {"peer": numpy.dot, "a": Handler(), "b": Handler()}


def singledispatch(functools: Any) -> dict[str, Any]:
    """Register one type, looked up by the first argument."""
    peer = functools.singledispatch(lambda x, y: None)
    peer.register(np.ndarray, kernel)
    return {"peer": peer}


def ovld(package: Any) -> dict[str, Any]:
    """Dispatch on annotations."""
    annotated = types.FunctionType(kernel.__code__, {}, "kernel")
    annotated.__annotations__ = {"x": np.ndarray, "y": np.ndarray}
    functions = package.Ovld(name="kernel")
    functions.register(annotated)
    return {"peer": functions.dispatch}


def uarray(package: Any) -> dict[str, Any]:
    """Define a multimethod with one global backend, which converts no arguments."""

    class UarrayBackend:
        __ua_domain__ = NAMESPACE

        @staticmethod
        def __ua_function__(method: Any, args: Any, kwargs: Any) -> Any:
            return kernel(*args, **kwargs)  # type: ignore[no-untyped-call]

    def no_arrays(x: Any, y: Any) -> tuple[Any, ...]:
        return ()

    def put_back(args: Any, kwargs: Any, arrays: Any) -> tuple[Any, Any]:
        return args, kwargs

    package.set_global_backend(UarrayBackend)
    return {"peer": package.generate_multimethod(no_arrays, put_back, NAMESPACE)}


def plum(package: Any) -> dict[str, Any]:
    """Define one method, for two arrays."""
    return {"peer": package.Dispatcher().multi((np.ndarray, np.ndarray))(kernel)}


def multipledispatch(package: Any) -> dict[str, Any]:
    """Define one method, for two arrays."""
    peer = package.Dispatcher("kernel")
    peer.add((np.ndarray, np.ndarray), kernel)
    return {"peer": peer}


def torch_library(torch: Any) -> dict[str, Any]:
    """Define an operator with a CPU kernel in Python, on PyTorch's tensors."""
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define("kernel(Tensor x, Tensor y) -> Tensor")
    library.impl("kernel", kernel, "CPU")
    operator = getattr(torch.ops, NAMESPACE).kernel.default
    return {"peer": operator, "a": torch.arange(4.0), "b": torch.ones(4), "library": library}


class Peer(NamedTuple):
    """A dispatcher: the module to import, the bound on what it adds over what we add, and its set-up."""

    module: str
    bound: float
    set_up: Callable[[Any], dict[str, Any]]


PEERS = {
    "ovld": Peer("ovld", 2.5, ovld),
    "__array_function__": Peer("numpy", 5, array_function),
    "functools.singledispatch": Peer("functools", 5, singledispatch),
    "uarray": Peer("uarray", 5, uarray),
    "plum": Peer("plum", 5, plum),
    "multipledispatch": Peer("multipledispatch", 5, multipledispatch),
    "torch.library": Peer("torch", 20, torch_library),
}
