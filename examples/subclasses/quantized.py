"""Numbers as 8-bit codes that look like an array of floats: value = code * scale.

Operators run on floats, those in the table on the codes. Rounding passes gradients straight through.
"""

import numpy as np

from pydispatch import Tensor, autograd, ops, subclasses
from pydispatch.library import register_pydispatch
from pydispatch.tree import tree_map


class Quantized(Tensor):
    """To callers an array of float64. Inside, codes of one byte and the size of a step."""

    def __init__(self, codes, scale):
        super().__init__(subclasses.Shell(codes, dtype=np.float64))
        self.codes, self.scale = codes, scale

    def __repr__(self):
        return f"Quantized({self.codes.tolist()}, scale={self.scale:.4g})"

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func.schema.is_mutable:
            raise TypeError(f"{func.name}: Quantized arrays are not written to\nwrite to an array, then quantize it")
        args, kwargs = tree_map(dequantize, (args, kwargs or {}))
        return func(*args, **kwargs)


def dequantize(value):
    """Return a Quantized array as an array of floats, and anything else unchanged."""
    return value.codes * value.scale if isinstance(value, Quantized) else value


def on_codes(cls, func, types, args, kwargs):
    """Apply operators that move elements and do not look at them."""
    return cls(func(args[0].codes, *args[1:], **kwargs), args[0].scale)


def integer_matmul(cls, func, types, args, kwargs):
    """Multiply two quantized matrices as integers, scaled once at the end."""
    if kwargs or not all(isinstance(array, cls) for array in args):
        return NotImplemented       # then the class's own handler runs
    left, right = args
    return func(left.codes, right.codes, dtype=np.int32) * (left.scale * right.scale)


for op in (ops.np.reshape, ops.np.transpose, ops.np.swapaxes, ops.np.getitem, ops.np.detach):
    register_pydispatch(op.default, Quantized, on_codes)
register_pydispatch(ops.np.matmul.default, Quantized, integer_matmul)


class Quantize(autograd.Function):
    """Round to codes of -127 to 127. The gradient passes as if it were the identity."""

    @staticmethod
    def forward(x):
        scale = float(abs(x).max()) / 127
        return Quantized(np.rint(np.asarray(x) / scale).astype(np.int8), scale)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Save nothing."""

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def main():
    """Multiply quantized matrices, and compute the gradient of one of them."""
    x, y = (Tensor(np.random.default_rng(seed).normal(size=(64, 64)), requires_grad=True) for seed in (0, 1))
    product = Quantize.apply(x) @ Quantize.apply(y)
    print(f"largest error: {abs(product - x @ y).max():.2f}")
    print("gradient", autograd.grad(product.sum(), x)[0][0, :3], "and without rounding", y.sum(1)[:3].detach())


if __name__ == "__main__":
    main()
