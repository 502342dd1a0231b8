"""Operators that write, on a backend whose arrays can be written to. Indices that a decomposition does not know."""

import numpy as np
import pytest

from pydispatch import Tensor, ops, register_backend
from pydispatch.autograd import backward
from pydispatch.exceptions import NoKernelError, UnsupportedError
from tests.backends.lone import LoneArray, namespace, shown


class KeptArray(LoneArray):
    """A LoneArray whose elements can be assigned, unless it is locked."""

    __slots__ = ("is_locked",)

    def __setitem__(self, key, value):
        if getattr(self, "is_locked", False):
            raise TypeError("the array is locked")
        self.hidden[shown(key)] = shown(value)

    def copy(self):
        return KeptArray(self.hidden)


register_backend("Kept", KeptArray, namespace=namespace, above="Lone")
X = np.array([[1.0, 4.0, 2.0], [3.0, 0.5, 6.0]])
KEY = (np.array([0, 1, 0]), np.array([2, 0, 2]))
WRITES = {
    "in place": ("add_", (X, 2.0), {}),
    "out": ("add.out", (X, 2.0), {"out": np.zeros((2, 3))}),
    "reduction into out": ("sum.out", (X, 0), {"out": np.zeros(3)}),
    "item": ("setitem_", (X, (0, slice(1, None)), 7.0), {}),
    "item, functional": ("setitem", (X, (0, slice(1, None)), 7.0), {}),
    "selection": ("index_put_", (X, KEY, 7.0), {}),
    "selection that accumulates": ("index_put_", (X, KEY, np.array([1.0, 2.0, 3.0])), {"accumulate": True}),
    "accumulating, functional": ("index_put", (X, KEY, np.array([1.0, 2.0, 3.0])), {"accumulate": True}),
}


def kept(value):
    return KeptArray(value) if isinstance(value, np.ndarray) and value.dtype == float else value


@pytest.mark.parametrize("wrap", [lambda x: x, Tensor], ids=["raw", "Tensor"])
@pytest.mark.parametrize(("name", "args", "kwargs"), WRITES.values(), ids=list(WRITES))
def test_writing(name, args, kwargs, wrap):
    name, _, overload = name.partition(".")
    op = getattr(getattr(ops.np, name), overload or "default")
    copies = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    outs = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in kwargs.items()}
    expected = op(*copies, **outs)
    first, *rest = map(kept, args)
    given = {key: kept(value) for key, value in kwargs.items()}
    target = wrap(first)
    written = given.get("out") if overload else target
    found = op(target, *rest, **given)
    if name.endswith("_") or overload:
        assert found is written or found.array is written
    found = found.array if isinstance(found, Tensor) else found
    np.testing.assert_array_equal(found.hidden, expected)
    if not name.endswith("_"):
        assert np.array_equal(first.hidden, X)


def test_a_write_of_another_shape():
    with pytest.raises(ValueError, match=r"has shape \(2,\), the result has shape \(3,\)\n"):
        ops.np.sum(kept(X), 0, out=kept(np.zeros(2)))


def test_an_array_that_refuses_to_be_written_to():
    x = kept(X)
    x.is_locked = True
    with pytest.raises(UnsupportedError, match=r"KeptArray cannot be written to: the array is locked\n.*functional"):
        ops.np.add_(x, 1.0)


def test_a_tape_records_writes():
    w = Tensor(kept(X), requires_grad=True)
    x = Tensor(kept(np.zeros((2, 3))))
    ops.np.add_(x, ops.np.multiply(w, w))
    ops.np.add_(x, w)
    ops.np.setitem_(x, (0, 1), 3.0)
    backward(ops.np.sum(x))
    expected = 2 * X + 1
    expected[0, 1] = 0
    np.testing.assert_array_equal(w.grad.array.hidden, expected)


def test_indices_that_are_not_known_are_refused_by_name():
    indices = LoneArray(np.array([0, 0]))
    with pytest.raises(NoKernelError, match=r"np::index_put: no kernel for the key Lone, and.*\n.*impl"):
        ops.np.index_put(LoneArray(X), (indices,), 1.0)
