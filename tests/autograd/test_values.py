"""Single values: the array that they hold, zeros beside them."""

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.autograd.values import bottom_of, meta_of, zeros_beside
from pydispatch.backends import MetaArray
from pydispatch.func import grad, vmap
from pydispatch.subclasses import Shell
from pydispatch.testing import LoggingTensor

META = ((3, 1), np.dtype(np.float32))


@pytest.mark.parametrize(("value", "cls", "held"), [
    (None, np.ndarray, np.ndarray), (np.ones(2), np.ndarray, np.ndarray), (Tensor(np.ones(2)), Tensor, np.ndarray),
    (MetaArray((2,), float), MetaArray, MetaArray), (Tensor(MetaArray((2,), float)), Tensor, MetaArray),
    (LoggingTensor(np.ones(2)), LoggingTensor, Shell),
], ids=["None", "array", "Tensor", "meta", "Tensor of meta", "subclass"])
def test_zeros_beside(value, cls, held):
    zeros = zeros_beside(value, META)
    assert type(zeros) is cls
    assert isinstance(bottom_of(zeros), held)
    assert meta_of(zeros) == META


def test_the_array_at_the_bottom():
    x = np.ones((2, 3))
    seen = []

    def note(v):
        seen.append(bottom_of(v))
        return (v * v).sum()

    grad(grad(lambda scale: grad(note)(x).sum() * scale))(np.array(1.0))
    vmap(grad(note))(x)
    whole, example = seen
    assert whole is x
    assert example.shape == (3,)
    assert np.shares_memory(example, x)
    assert bottom_of(Tensor(x)) is x
    assert bottom_of("text") == "text"
