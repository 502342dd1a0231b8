"""Deferred initialisation: build a model without memory, look at it, and materialise it later, maybe only parts.

Under the mode, arrays that would be made are Deferred: a shape, a dtype, and a place in a list of calls. What is done
to them, also in place, is added to the list. To materialise is to run the list in order.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.backends import MetaArray
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_leaves, tree_map


@dataclass(frozen=True)
class Place:
    """The number of an array in the list of calls."""

    number: int


class Deferred(Tensor):
    """An array that is to be made."""

    def __init__(self, like, init, place):
        super().__init__(Shell(shape=like.shape, dtype=like.dtype))
        self.init, self.place = init, place

    def __repr__(self):
        return f"Deferred({self.dtype}{list(self.shape)})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func is ops.np.item.default:
            raise ValueError(f"{args[0]!r} has no values yet\nmaterialize it first")
        init = next(leaf.init for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, cls))
        return init.defer(func, args, kwargs)


class DeferredInit(DispatchMode):
    """Operators that make arrays of numbers alone, such as zeros, are deferred."""

    def __init__(self):
        self.calls, self.numbers = [], count()

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        if func.schema.arguments[-1].name == "device" and not any(map(is_array, tree_leaves((args, kwargs)))):
            return self.defer(func, args, kwargs | {"device": "Meta"})
        return func(*args, **kwargs)        # Deferred has its own handler

    def defer(self, func, args, kwargs):
        """Record a call, and return its results without data. A run on `Meta` determines their shapes."""
        meta_args, meta_kwargs = tree_map(without_data, (args, kwargs))
        shapes = func(*meta_args, **meta_kwargs)
        result = tree_map(lambda leaf: Deferred(leaf, self, Place(next(self.numbers))), shapes)
        self.calls.append((func, *tree_map(gradient_slot_of, (args, kwargs, result))))
        return result

    def materialize(self, tensor):
        """Return the values of a Deferred array."""
        values = {}
        for func, args, kwargs, places in self.calls:
            args, kwargs = tree_map(lambda leaf: values[leaf] if isinstance(leaf, Place) else leaf, (args, kwargs))
            kwargs.pop("device", None)
            values.update(zip(tree_leaves(places), tree_leaves(func(*args, **kwargs)), strict=True))
        return values[tensor.place]


def is_array(value):
    return isinstance(value, (Tensor, np.ndarray, np.generic))


def without_data(value):
    return MetaArray(value.shape, value.dtype) if is_array(value) else value


def gradient_slot_of(value):
    return value.place if isinstance(value, Deferred) else value


def main():
    """Define a layer of ten gigabytes, and make one that fits into memory."""
    for size in (36_000, 4):
        with DeferredInit() as init:
            weights = ops.np.sin(ops.np.arange(size * size, dtype=np.float64)).reshape(size, size)
            weights *= 0.1
            bias = ops.np.zeros(size) + weights[0]
        print(f"{weights!r}: {weights.nbytes:,} bytes to come, in {len(init.calls)} calls")
    print(f"the bias of the second: {init.materialize(bias)}")


if __name__ == "__main__":
    main()
