"""Numbers of four bits, two to a byte: the shape outside is not the shape inside.

What can be done on packed bytes is done on them, operator by operator: selecting rows, joining, bitwise logic. The rest
runs on unpacked numbers, and writes that would have to split a byte are refused.
"""

import numpy as np

from pydispatch import Tensor, ops
from pydispatch.library import register_pydispatch
from pydispatch.subclasses import Shell
from pydispatch.tree import tree_map


class UInt4(Tensor):
    """Integers of 0 to 15. Of two neighbours in a row, the first has the lower half of the byte."""

    def __init__(self, packed):
        *outer, width = packed.shape
        super().__init__(Shell(shape=(*outer, 2 * width), dtype=np.uint8))
        self.packed = packed

    def __repr__(self):
        return f"UInt4({self.unpack().tolist()})"

    def unpack(self):
        """Return the numbers, a byte each."""
        return np.stack([self.packed & 15, self.packed >> 4], axis=-1).reshape(self.shape)

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func.schema.is_mutable:
            raise NotImplementedError(f"{func.name}: no rule writes to packed numbers\nwrite to x.unpack(), then pack")
        args, kwargs = tree_map(lambda leaf: leaf.unpack() if isinstance(leaf, cls) else leaf, (args, kwargs or {}))
        return func(*args, **kwargs)


def pack(values):
    """Pack numbers of 0 to 15, an even number of them in each row."""
    values = np.asarray(values, np.uint8)
    return UInt4(values[..., ::2] | values[..., 1::2] << 4)


def select(cls, func, types, args, kwargs):
    """Select. Whole rows stay packed. A key that goes into rows is for the handler."""
    array, key = args
    items = key if isinstance(key, tuple) else (key,)
    if len(items) >= array.ndim or not all(isinstance(item, (int, slice)) for item in items):
        return NotImplemented
    return cls(func(array.packed, key))


def assign(cls, func, types, args, kwargs):
    """Write packed rows over packed rows."""
    array, key, value = args
    if not (isinstance(array, cls) and isinstance(value, cls)) or isinstance(key, tuple):
        return NotImplemented
    func(array.packed, key, value.packed)
    return array


def bitwise(cls, func, types, args, kwargs):
    """Compute both halves of a byte at once."""
    if kwargs or not all(isinstance(array, cls) for array in args):
        return NotImplemented
    return cls(func(*[array.packed for array in args]))


def join(cls, func, types, args, kwargs):
    """Join along any axis. Along the last one too, as every row is whole bytes."""
    arrays, *axis = args
    if kwargs or not all(isinstance(array, cls) for array in arrays):
        return NotImplemented
    return cls(func([array.packed for array in arrays], *axis))


register_pydispatch(ops.np.getitem.default, UInt4, select)
register_pydispatch(ops.np.setitem_.default, UInt4, assign)
register_pydispatch(ops.np.concatenate.default, UInt4, join)
for op in (ops.np.bitwise_and, ops.np.bitwise_or, ops.np.bitwise_xor):
    register_pydispatch(op.default, UInt4, bitwise)


def main():
    """Store a small picture of 16 shades in half the memory."""
    picture = pack(np.add.outer(np.arange(4), np.arange(8)))
    print(f"{picture.shape} of {picture.dtype}, in {picture.packed.nbytes} bytes")
    print(f"a row          {picture[1]!r}")
    print(f"exclusive or   {picture[1] ^ picture[3]!r}")
    print(f"sum, unpacked  {picture[1] + picture[3]!r}")
    picture[0] = picture[3]
    print(f"row 0 is now   {picture[0]!r}")


if __name__ == "__main__":
    main()
