"""Functions that write to their first argument, against NumPy's."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor
from pydispatch.exceptions import AutogradError, DispatchTypeError
from pydispatch.func import functionalize, vmap
from tests.together import together

ARRAY = np.arange(12.0).reshape(3, 4)
WRITES = {
    "copyto": lambda xp, x, v: xp.copyto(x, v[:4]),
    "copyto, where": lambda xp, x, v: xp.copyto(x, v[0], where=ARRAY % 2 == 0),
    "copyto, list": lambda xp, x, v: xp.copyto(x, [1, 2, 3, 4]),
    "put": lambda xp, x, v: xp.put(x, [0, 5, -1], v),
    "put, repeated": lambda xp, x, v: xp.put(x, [0, 5, 7, 8], v[:3]),
    "put, wrap": lambda xp, x, v: xp.put(x, [13, -14], v[:2], mode="wrap"),
    "put, clip": lambda xp, x, v: xp.put(x, [13, -14], v[:2], mode="clip"),
    "place": lambda xp, x, v: xp.place(x, ARRAY > 4, v[:3]),
    "putmask": lambda xp, x, v: xp.putmask(x, ARRAY > 4, v[:5]),
    "fill_diagonal": lambda xp, x, v: xp.fill_diagonal(x, v[0]),
    "fill_diagonal, values": lambda xp, x, v: xp.fill_diagonal(x, v[:2]),
    "put_along_axis": lambda xp, x, v: xp.put_along_axis(x, np.array([[1], [0], [3]]), v[:3].reshape(3, 1), 1),
    "put_along_axis, None": lambda xp, x, v: xp.put_along_axis(x, np.array([1, 5]), v[:2], None),
}
FLAT = np.linspace(20.0, 31.0, 12)


@pytest.mark.parametrize("xp", [np, pnp], ids=["numpy", "pydispatch.numpy"])
@together("write", WRITES.values(), ids=list(WRITES))
def test_writes_are_numpys(xp, write):
    array, raw, t = ARRAY.copy(), ARRAY.copy(), Tensor(ARRAY.copy())
    write(np, array, FLAT), write(pnp, raw, FLAT), write(xp, t, Tensor(FLAT))
    np.testing.assert_array_equal(raw, array)
    np.testing.assert_array_equal(t.array, array)


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_gradients_follow_what_was_written(write):
    weights = np.arange(1.0, 13.0).reshape(3, 4)
    x, v = Tensor(ARRAY.copy(), requires_grad=True), Tensor(FLAT.copy(), requires_grad=True)
    y = x * 1.0
    write(pnp, y, v)
    (y * weights).sum().backward()

    def difference(i, of_values):
        moved = []
        for step in (1.0, -1.0):
            array, values = ARRAY.copy(), FLAT.copy()
            (values if of_values else array).flat[i] += step
            write(np, array, values)
            moved.append((array * weights).sum())
        return (moved[0] - moved[1]) / 2

    expected = np.array([difference(i, False) for i in range(12)]).reshape(3, 4)
    np.testing.assert_allclose(x.grad.array, expected)
    found = np.zeros(12) if v.grad is None else v.grad.array
    np.testing.assert_allclose(found, [difference(i, True) for i in range(12)])


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_batches_are_written_as_a_loop_writes(write):
    batch, values = np.stack([ARRAY, ARRAY + 1, ARRAY * 2]), np.stack([FLAT, FLAT + 1, FLAT - 1])

    def written(x, v):
        write(pnp, x, v)
        return x

    found = vmap(written)(batch.copy(), values)
    np.testing.assert_array_equal(found, [written(x.copy(), v) for x, v in zip(batch, values, strict=True)])


@pytest.mark.parametrize("write", [write for name, write in WRITES.items() if "list" not in name],
                         ids=[name for name in WRITES if "list" not in name])
def test_an_array_cannot_hold_a_tracked_tensor(write):
    array = ARRAY.copy()
    with pytest.raises((DispatchTypeError, AutogradError), match=r"a NumPy array,? cannot hold|used as a NumPy array"):
        write(np, array, Tensor(FLAT, requires_grad=True))
    np.testing.assert_array_equal(array, ARRAY)


class ByItem:
    """NumPy's functions, as assignments to items."""

    copyto = staticmethod(lambda x, values: x.__setitem__(..., values))


OVERLAPPING = {
    "a row by a column": lambda xp, x: x.__setitem__(1, x[:, 2]),
    "a column by a row": lambda xp, x: x.__setitem__((slice(None), 2), x[1]),
    "a column by a reversed row": lambda xp, x: x.__setitem__((slice(None), 2), x[1, ::-1]),
    "a slice by itself, moved on": lambda xp, x: x.__setitem__((0, slice(1, None)), x[0, :-1]),
    "a row by a column of one row": lambda xp, x: x.__setitem__(1, x[None, :, 2]),
    "a diagonal by a column": lambda xp, x: x.reshape(-1).__setitem__(slice(None, None, 5), x[:, 2]),
    "copyto": lambda xp, x: xp.copyto(x[1], x[:, 2]),
    "a loop": lambda xp, x: [x.__setitem__(k, x[:, 2] + x[k - 1]) for k in range(1, 4)],
}


@pytest.mark.parametrize("write", OVERLAPPING.values(), ids=OVERLAPPING)
def test_values_are_read_before_overlapping_elements_are_written(write):
    class ReadFirst(np.ndarray):
        def __setitem__(self, key, value):
            super().__setitem__(key, np.array(value))

    given = np.arange(16.0).reshape(4, 4)
    expected, t, functional = given.copy().view(ReadFirst), Tensor(given.copy()), given.copy()
    write(ByItem, expected)
    write(pnp, t)
    functionalize(lambda x: write(pnp, x))(functional)
    assert t.tolist() == functional.tolist() == expected.tolist()
