"""First and second derivatives of every operator against finite differences, complex numbers among them."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.testing import gradcheck, gradgradcheck

PROGRAMS = {
    "cond": lambda x, w: cond(np.array(True), lambda x: ops.np.sin(x) * w, lambda x: x + w, (x,)),
    "map": lambda x, w: map_slices(lambda row, w: row * row * w, x, w),
    "scan": lambda x, w: scan(lambda c, row: (c * row + w, ops.np.sin(c * w)), w * 1.0, x),
    "reverse": lambda x, w: scan(lambda c, row: (ops.np.tanh(c + row * w), c * c), x[0], x, reverse=True),
    "while_loop": lambda x, w: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, ops.np.sin(x) * w + x), (0, x))[1],
    "associative_scan": lambda x, w: associative_scan(lambda a, b: a * b + w * 0, x),
}


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, dtype):
    def numbers(shape):
        values = generator.normal(size=shape)
        return Tensor(values + 1j * generator.normal(size=shape) if dtype is complex else values, requires_grad=True)

    generator = np.random.default_rng(2)
    inputs = numbers((3, 2)), numbers(2)
    assert gradcheck(PROGRAMS[name], inputs)
    assert gradgradcheck(PROGRAMS[name], inputs)
