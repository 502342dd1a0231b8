"""Subclasses of Tensor that several tests use."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from pydispatch import OpOverload, Tensor, WrapperTensor
from pydispatch.subclasses import Shell, return_and_correct_aliasing
from pydispatch.tree import tree_map


def writable(value: Any) -> Any:
    """Return the value, or an array for the NumPy scalar that a kernel made of 0-d arrays."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def unwrapped(cls: type[Any], values: Any) -> Any:
    """Return the values, with what they hold in place of objects of `cls`."""
    return tree_map(lambda leaf: leaf.inner if isinstance(leaf, cls) else leaf, values)


def wrapped(cls: type[Any], values: Any) -> Any:
    """Return the values, with objects of `cls` around all arrays."""
    arrays = (Tensor, np.ndarray, np.generic)
    return tree_map(lambda leaf: cls(writable(leaf)) if isinstance(leaf, arrays) else leaf, values)


class Wrapped(Tensor):
    """Has an array, or a Tensor, in `inner`. What its calls are is written down in `calls`, while someone reads."""

    calls: list[OpOverload] | None = None

    def __init__(self, inner: Any, *, requires_grad: bool = False) -> None:
        super().__init__(Shell(inner), requires_grad=requires_grad)
        self.inner = writable(inner)

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if cls.calls is not None:
            cls.calls.append(func)
        return cls.wrap(func(*cls.unwrap(args), **cls.unwrap(kwargs or {})))

    @classmethod
    def unwrap(cls, values: Any) -> Any:
        return unwrapped(cls, values)

    @classmethod
    def wrap(cls, values: Any) -> Any:
        return wrapped(cls, values)


class Other(Wrapped):
    """A class that Wrapped does not unwrap, though it is one."""


class Around(WrapperTensor):
    """A WrapperTensor that does what Wrapped does."""

    calls: list[OpOverload] | None = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if cls.calls is not None:
            cls.calls.append(func)
        out = wrapped(cls, func(*unwrapped(cls, args), **unwrapped(cls, kwargs)))
        return return_and_correct_aliasing(func, args, kwargs, out)


class Is(Tensor):
    """Is an array. What the base handler returns is made one again."""

    calls: list[OpOverload] | None = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if cls.calls is not None:
            cls.calls.append(func)
        out = super().__pydispatch__(func, types, args, kwargs)
        return tree_map(lambda leaf: cls(leaf) if type(leaf) is Tensor else leaf, out)


@contextlib.contextmanager
def calls_of(cls: type[Any]) -> Iterator[list[OpOverload]]:
    """Collect the operators that reach the handler of `cls` meanwhile."""
    cls.calls = []
    try:
        yield cls.calls
    finally:
        cls.calls = None


def bottom(value: Any) -> Any:
    while isinstance(value, Tensor):
        value = value.inner if isinstance(value, (Wrapped, WrapperTensor)) else value.array
    return value


class Two(Tensor):
    """Has two arrays of one shape, and does everything with both."""

    def __init__(self, a: Any, b: Any, *, requires_grad: bool = False) -> None:
        super().__init__(Shell(a), requires_grad=requires_grad)
        self.a, self.b = writable(a), writable(b)

    def __tensor_flatten__(self):
        return ("a", "b"), None

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, strides):
        return Two(inner["a"], inner["b"])

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return return_and_correct_aliasing(func, args, kwargs, cls.compute(func, args, kwargs))

    @classmethod
    def compute(cls, func, args, kwargs):
        first, second = (func(*cls.each(args, name), **cls.each(kwargs, name)) for name in ("a", "b"))
        if isinstance(first, tuple):
            return tuple(map(cls, first, second))
        return cls(first, second)

    @classmethod
    def each(cls, values, name):
        return tree_map(lambda leaf: getattr(leaf, name) if isinstance(leaf, cls) else leaf, values)


class NaiveTwo(Two):
    """The same without the aliasing helper."""

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        return cls.compute(func, args, kwargs)


def noting_arguments(seen):
    """Return a class like Wrapped whose handler appends its `args` to a list."""

    class Looks(Wrapped):
        @classmethod
        def __pydispatch__(cls, func, types, args=(), kwargs=None):
            seen.append(args)
            return super().__pydispatch__(func, types, args, kwargs)

    return Looks
