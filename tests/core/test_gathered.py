"""A row that was read at a number: a view, whatever is known of the number. Oracle: NumPy, with its scalars."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, compile, func
from pydispatch.exceptions import DataDependentError
from pydispatch.tracing import make_fx
from tests.modes.recorders import Passing

MATRIX = numpy.array([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0], [4.0, 5.0, 6.0]])
WEIGHTS = MATRIX + 0.25


def multiply(np: Any, a: Any, k: Any) -> None:
    row = a[k]
    row *= 2


def augment(np: Any, a: Any, k: Any) -> None:
    a[k] *= 2
    a[k, 1:] += 1


def write_elements(np: Any, a: Any, k: Any) -> None:
    row = a[k]
    row[0] = 9.0
    row[1:] *= 3
    row[row > 20] = 0.5


def write_a_view_of_it(np: Any, a: Any, k: Any) -> None:
    part = a[k][1:]
    part += 1.0


def write_out(np: Any, a: Any, k: Any) -> None:
    row = a[k]
    np.multiply(row, 3.0, out=row)


def write_a_column(np: Any, a: Any, k: Any) -> None:
    column = a[:, k]
    column /= 4.0
    np.put(column, [0], 0.5)


def write_twice(np: Any, a: Any, k: Any) -> None:
    rows = a[None]
    row = rows[0, k]
    row += 1
    row *= row


def copy_first(np: Any, a: Any, k: Any) -> None:
    row = a[k].copy()
    row *= 2
    a[0] = row


def of_several(np: Any, a: Any, k: Any) -> None:
    rows = a[[0, 1]]        # a copy in NumPy, too
    rows[k % 2] *= 2
    a[2] = rows[0]


def write_an_element(np: Any, a: Any, k: Any) -> None:
    element = a[0, k, ...]      # an array without axes, a view
    element += 1.0
    element[...] *= 3.0


PROGRAMS = [multiply, augment, write_elements, write_a_view_of_it, write_out, write_a_column, write_twice, copy_first,
            of_several, write_an_element]


def after(program: Callable[..., None], np: Any, x: Any, k: Any) -> Any:
    a = x * 1.0
    program(np, a, k)
    return a


def assert_same(found: Any, expected: Any) -> None:
    numpy.testing.assert_allclose(found.detach().numpy() if isinstance(found, Tensor) else found, expected, rtol=1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_written_to_a_row_is_written_to_the_array(program):
    def largest(np: Any, x: Any) -> Any:
        return after(program, np, x, np.argmax(x[:, 0]))

    def with_index(x: Any, k: Any) -> Any:
        return after(program, np, x, k)

    expected = largest(numpy, MATRIX)
    batch = numpy.stack([MATRIX, MATRIX[::-1]])
    loop = numpy.stack([largest(numpy, x) for x in batch])
    of_each = [after(program, numpy, MATRIX, numpy.int64(k)) for k in (0, 1, 2)]
    assert_same(largest(np, Tensor(MATRIX)), expected)
    assert_same(largest(np, Tensor(MATRIX, requires_grad=True)), expected)
    with Passing():
        assert_same(largest(np, Tensor(MATRIX)), expected)
    assert_same(func.jvp(lambda x: largest(np, x), (MATRIX,), (MATRIX,))[0], expected)
    assert_same(func.functionalize(lambda x: largest(np, x))(MATRIX), expected)
    assert_same(func.vmap(lambda x: largest(np, x))(batch), loop)
    assert_same(make_fx(lambda x: largest(np, x))(MATRIX)(MATRIX[::-1]), loop[1])
    assert_same(compile(lambda x: largest(np, x))(MATRIX), expected)
    for k in range(3):
        assert_same(with_index(Tensor(MATRIX), Tensor(numpy.array(k))), of_each[k])
        assert_same(make_fx(with_index)(MATRIX, numpy.array(1))(MATRIX, numpy.array(k)), of_each[k])
    assert_same(func.vmap(with_index)(numpy.stack([MATRIX] * 3), numpy.arange(3)), of_each)

    def weighted(x: Any) -> Any:
        return np.sum(largest(np, x) * WEIGHTS)

    slopes = numpy.empty(batch.shape)
    for place in numpy.ndindex(batch.shape):
        step = numpy.zeros(batch.shape)
        step[place] = 1e-6
        above, below = [numpy.sum(largest(numpy, (batch + sign * step)[place[0]]) * WEIGHTS) for sign in (1, -1)]
        slopes[place] = (above - below) / 2e-6
    for found in (numpy.stack([func.grad(weighted)(x) for x in batch]), func.vmap(func.grad(weighted))(batch),
                  func.grad(lambda xs: np.sum(func.vmap(weighted)(xs)))(batch),
                  numpy.stack([func.grad(compile(weighted))(x) for x in batch])):
        numpy.testing.assert_allclose(found, slopes, rtol=1e-6, atol=1e-8)


def test_a_row_whose_index_is_known_is_a_view():
    x = Tensor(MATRIX.copy())
    for key in (np.argmax(x[:, 0]), (np.argmin(x[:, 0]), slice(None, 2)), (slice(None), Tensor(numpy.array(1)))):
        assert numpy.shares_memory(x[key].numpy(), x.numpy())
    # as in NumPy, an array is none
    assert not numpy.shares_memory(x[[1]].numpy(), x.numpy())
    assert not numpy.shares_memory(x[numpy.array(1)].numpy(), x.numpy())


def test_a_row_that_was_read_before_another_write_is_refused():
    def stale(x: Any, k: Any) -> Any:
        a = x * 1.0
        row = a[k]
        a[0] = 0.0
        row *= 2
        return a

    for run in (lambda: func.vmap(stale)(MATRIX[None], numpy.array([1])),
                lambda: make_fx(stale)(MATRIX, numpy.array(1))):
        with pytest.raises(DataDependentError, match=r"read by array\[index\].*\n.*read array\[index\] again"):
            run()
