"""Libraries of arrays that are not NumPy's, for tests: each with its pack, and how arrays go there and back."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest


class Library(NamedTuple):
    """A library: the class of its arrays, an array of it from NumPy's, and NumPy's from an array of it."""

    name: str
    array_type: type
    array: Callable[[np.ndarray], Any]
    numpy: Callable[[Any], np.ndarray]


def jax() -> Library:
    """Provide JAX in double precision."""
    library = pytest.importorskip("jax")
    library.config.update("jax_enable_x64", True)
    return Library("JAX", library.Array, library.numpy.asarray, np.asarray)


def torch() -> Library:
    library = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    return Library("Torch", library.Tensor, lambda array: library.asarray(np.array(array)),
                   lambda tensor: tensor.resolve_conj().resolve_neg().numpy())


def array_api_strict() -> Library:
    """Return the standard and nothing else."""
    library = pytest.importorskip("array_api_strict")
    return Library("ArrayAPIStrict", type(library.zeros(())), lambda array: library.asarray(np.array(array)),
                   lambda array: np.asarray(array._array))


LIBRARIES: dict[str, Callable[[], Library]] = {"jax": jax, "torch": torch, "array_api_strict": array_api_strict}


def library_named(name: str) -> Library:
    """Return the library, with its pack. The test is skipped where the library is missing."""
    library = LIBRARIES[name]()
    import_module(f"pydispatch.backends.{name}")
    return library
