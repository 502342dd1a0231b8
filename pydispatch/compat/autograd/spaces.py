"""Vector spaces of values: what HIPS's `vspace` returns for numbers, arrays, and lists, tuples and dicts of them."""

# tests: tests/compat/autograd/test_values.py
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy

import pydispatch.numpy as np
from pydispatch import _core
from pydispatch._core import Tensor
from pydispatch.exceptions import UnsupportedError
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = [
    "ArrayVSpace", "ComplexArrayVSpace", "VSpace", "match_complex", "repeat_to_match_shape", "unbroadcast",
    "unbroadcast_f", "vspace",
]


class VSpace:
    """The vector space of a value: the shape and dtype of each array in it."""

    def __init__(self, value: Any) -> None:
        leaves, self.spec = tree_flatten(value)
        self.leaves = [(tuple(numpy.shape(leaf)), _dtype_of(leaf)) for leaf in leaves]

    iscomplex = property(lambda self: any(dtype.kind == "c" for _, dtype in self.leaves))
    size = property(lambda self: sum(numpy.prod(shape, dtype=int) * (1 + (dtype.kind == "c"))
                                     for shape, dtype in self.leaves), doc="The number of real dimensions.")
    dtype = property(lambda self: self.leaves[0][1])
    ndim = property(lambda self: len(self.leaves[0][0]))

    @property
    def shape(self) -> Any:
        """The shape of an array. For a container, the spaces of its elements in its structure."""
        if self.spec.type is None:
            return self.leaves[0][0]
        return self._filled(lambda shape, dtype: vspace(numpy.zeros(shape, dtype)))

    def _filled(self, make: Callable[..., Any]) -> Any:
        return tree_unflatten([make(shape, dtype) for shape, dtype in self.leaves], self.spec)

    def zeros(self) -> Any:
        """Return the zero vector."""
        return self._filled(numpy.zeros)

    def ones(self) -> Any:
        """Return the sum of the basis vectors."""
        return self._filled(lambda shape, dtype: numpy.full(shape, 1 + 1j if dtype.kind == "c" else 1, dtype))

    def randn(self) -> Any:
        """Return a vector of normal numbers."""
        return self._filled(_randn)

    def standard_basis(self) -> Iterator[Any]:
        """Return the basis vectors, one after the other. A complex element has two."""
        for i, (shape, dtype) in enumerate(self.leaves):
            for index in numpy.ndindex(*shape):
                for unit in (1, 1j) if dtype.kind == "c" else (1,):
                    leaves = [numpy.zeros(*leaf) for leaf in self.leaves]
                    leaves[i][index] = unit
                    yield tree_unflatten(leaves, self.spec)

    def add(self, x: Any, y: Any) -> Any:
        """Return the sum of two vectors."""
        return tree_map(lambda x, y: x + y, x, y)

    def mut_add(self, x: Any, y: Any) -> Any:
        """Return the sum of two vectors, the first of which may be None for zeros."""
        return self.add(self.zeros() if x is None else x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """Return a multiple of a vector."""
        return tree_map(lambda x: x * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """Return the real inner product of two vectors."""
        return sum(np.sum(np.real(np.conj(x) * y)) for x, y in zip(tree_leaves(x), tree_leaves(y), strict=True))

    def covector(self, x: Any) -> Any:
        """Return the conjugate of a vector."""
        return tree_map(lambda x: np.conj(x) if np.iscomplexobj(x) else x, x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VSpace) and vars(self) == vars(other)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.leaves})"

    @classmethod
    def register(cls, value_type: type, vspace_maker: Any = None) -> None:
        """Accept a class of arrays, which needs no registration. Raise UnsupportedError for any other."""
        if not issubclass(value_type, (numpy.ndarray, numpy.generic, float, complex, list, tuple, dict)):
            raise UnsupportedError(f"VSpace.register: {value_type.__name__} is not a class of NumPy arrays\n"
                                   "register it as a container of arrays: pydispatch.tree.register_pytree_node")


class ArrayVSpace(VSpace):
    """The space of a real number or array."""


class ComplexArrayVSpace(ArrayVSpace):
    """The space of a complex number or array."""


def vspace(value: Any) -> VSpace:
    """Return the vector space of a value. Raise TypeError for objects other than floats, arrays and containers."""
    space = VSpace(value)
    if space.spec.type is None:
        space.__class__ = ComplexArrayVSpace if space.dtype.kind == "c" else ArrayVSpace
    return space


def _dtype_of(leaf: Any) -> Any:
    if isinstance(leaf, (numpy.ndarray, numpy.inexact)) or (isinstance(leaf, Tensor) and (
            leaf.ndim or leaf.dtype.kind in "fc")):
        return leaf.dtype
    if isinstance(leaf, (float, complex)):
        return numpy.dtype(type(leaf))
    raise TypeError(f"Can't find vector space for {leaf!r}, {_core.a_type(leaf)}\npass floats, arrays, or lists, "
                    "tuples and dicts of them")


def _randn(shape: tuple[int, ...], dtype: Any) -> Any:
    draw = numpy.array(numpy.random.standard_normal(shape))
    return (draw + 1j * numpy.random.standard_normal(shape) if dtype.kind == "c" else draw).astype(dtype)


# --- for rules of primitives that broadcast --------------------------------------------------------------------------


def unbroadcast(x: Any, target_meta: tuple[Any, ...], broadcast_idx: int = 0) -> Any:
    """Return a gradient summed to the shape in `(shape, ndim, dtype, is_complex)`, and real unless that is complex."""
    shape, ndim, _, is_complex = target_meta
    while np.ndim(x) > ndim:
        x = np.sum(x, axis=broadcast_idx)
    for axis, length in enumerate(shape):
        if length == 1:
            x = np.sum(x, axis=axis, keepdims=True)
    return x if is_complex or not np.iscomplexobj(x) else np.real(x)


def metadata(target: Any) -> tuple[Any, ...]:
    """Return what `unbroadcast` takes of an argument: its shape, number of axes, dtype, and whether it is complex."""
    return np.shape(target), np.ndim(target), np.result_type(target), np.iscomplexobj(target)


def unbroadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the vjp that calls `f` and sums its result to the shape of the argument `target`."""
    meta = metadata(target)
    return lambda g: unbroadcast(f(g), meta)


def match_complex(target: Any, x: Any) -> Any:
    """Return `x` as a complex value if `target` is one, or else its real part."""
    if np.iscomplexobj(target):
        return x if np.iscomplexobj(x) else x + 0j
    return np.real(x) if np.iscomplexobj(x) else x


def repeat_to_match_shape(g: Any, shape: Any, dtype: Any, axis: Any, keepdims: bool) -> tuple[Any, int]:
    """Return the gradient of a reduction spread over the reduced axes, and the number of elements of each slice."""
    axes = range(len(shape)) if axis is None else numpy.atleast_1d(axis) % max(len(shape), 1)
    kept = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return np.reshape(g, kept) + np.zeros(shape, dtype), int(numpy.prod([shape[i] for i in axes], dtype=int))
