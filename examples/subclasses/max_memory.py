"""How much memory do arrays need at most, and in which operator? A mode that knows of every array that is made.

What counts is memory and not arrays: views share it. Weak references tell when it is given back.
"""

import weakref

import numpy as np

from pydispatch import DispatchMode, Tensor, ops
from pydispatch.tree import tree_leaves


class MaxMemory(DispatchMode):
    """`now`, `peak` and `peak_in`, in bytes of memory that operators have made inside."""

    def __init__(self):
        self.now = self.peak = 0
        self.peak_in = None
        self.known = set()

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        known_before = {id(owner(leaf)) for leaf in tree_leaves((args, kwargs))}
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            array = owner(leaf)
            if isinstance(array, np.ndarray) and id(array) not in known_before | self.known:
                self.add(array)
        if self.now > self.peak:
            self.peak, self.peak_in = self.now, func
        return result

    def add(self, array):
        self.now += array.nbytes
        self.known.add(id(array))
        weakref.finalize(array, self.remove, id(array), array.nbytes)

    def remove(self, key, nbytes):
        self.now -= nbytes
        self.known.remove(key)


def owner(value):
    """Return the array that owns the memory of this one."""
    array = value.array if isinstance(value, Tensor) else value
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array


def main():
    """Compute the same product in two orders, and measure what a gradient holds."""
    a, b, v = np.ones((500, 400)), np.ones((400, 300)), np.ones((300, 1))
    for text, product in [("(a b) v", lambda: ops.np.matmul(ops.np.matmul(a, b), v)),
                          ("a (b v)", lambda: ops.np.matmul(a, ops.np.matmul(b, v)))]:
        with MaxMemory() as memory:
            product()
        print(f"{text}: at most {memory.peak:9,} bytes, in {memory.peak_in.name}")

    x = Tensor(np.ones(1000), requires_grad=True)
    with MaxMemory() as memory:
        y = x
        for _ in range(10):
            y = ops.np.sin(y)
        kept = memory.now
        y.sum().backward()
        del y
    print(f"ten operators keep {kept:,} bytes for the way back, after it {memory.now:,}, the gradient, are left")


if __name__ == "__main__":
    main()
