"""An array without data: its operators run on ones, and only shape and dtype of the result are kept.

You learn the shapes of a program's results without values, and without memory between calls. It works for every
operator. (`FakeMode` and the Meta backend do it with meta kernels, which compute nothing.)
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map


class ShapeOnly(Tensor):
    """A shape and a dtype."""

    def __init__(self, shape, dtype=np.float64, *, requires_grad=False):
        super().__init__(Shell(shape=shape, dtype=dtype), requires_grad=requires_grad)

    def __repr__(self):
        return f"{self.dtype}{list(self.shape)}"

    def inflate(self):
        """Return an array of ones of this shape."""
        return Tensor(np.ones(self.shape, self.dtype))

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func is ops.np.item.default:
            raise ValueError(f"{args[0]!r} has no value\ntake the branch by shapes, or run on arrays")
        args, kwargs = tree_map(lambda leaf: leaf.inflate() if isinstance(leaf, cls) else leaf, (args, kwargs or {}))
        result = func(*args, **kwargs)
        return tree_map(lambda leaf: cls(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf, result)


def attention(query, key, value):
    """Compute weighted means of the values, by how well query and key go together."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    weights = ops.np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value


def main():
    """Show the shapes in an attention layer, and of a gradient, without data."""
    query = ShapeOnly((8, 50, 64), np.float32, requires_grad=True)
    key, value = ShapeOnly((8, 20, 64), np.float32), ShapeOnly((8, 20, 32), np.float32)
    result = attention(query, key, value)
    result.sum().backward()
    print(f"result {result!r}, gradient of query {query.grad!r}")
    try:
        attention(query, value, key)
    except ValueError as error:
        print(f"key and value exchanged: {error}")


if __name__ == "__main__":
    main()
