"""`order=`: in which order elements lie in memory, and functions that read them in that order. Oracle: NumPy."""

import numpy
import pytest

import pydispatch.numpy as face
from pydispatch import Tensor, compile, func
from pydispatch.exceptions import DataDependentError
from pydispatch.tracing import make_fx
from tests.together import together

READ = {
    "ravel, K": lambda np, m: m.ravel("K"),
    "ravel, A": lambda np, m: np.ravel(m, order="A"),
    "reshape, A": lambda np, m: m.reshape(-1, order="A"),
    "flatten, K": lambda np, m: m.flatten("K"),
    "transposed, ravel, K": lambda np, m: m.T.ravel(order="K"),
    "transposed, ravel, A": lambda np, m: m.T.ravel(order="A"),
    "transposed, reshape, A": lambda np, m: np.reshape(m.T, -1, order="A"),
    "transposed, flatten, A": lambda np, m: m.T.flatten("A"),
    "three axes": lambda np, m: m.reshape(1, 2, 3).transpose(2, 0, 1).ravel("K"),
    "backwards": lambda np, m: m[::-1].T.ravel("K"),
    "repeated": lambda np, m: np.exp(np.broadcast_to(m[0], (2, 3)).T).ravel("K"),
    "copy, K": lambda np, m: m.T.copy(order="K").ravel("K"),
    "copy, A": lambda np, m: np.copy(m.T, order="A").ravel("K"),
    "copy, A, with gaps": lambda np, m: np.copy(m[:, ::2].T, order="A").ravel("K"),
    "array, A, with gaps": lambda np, m: np.array(m[:, ::2].T, order="A").ravel("K"),
    "astype, A, with gaps": lambda np, m: m[:, ::2].T.astype(float, order="A").ravel("K"),
    "astype, K": lambda np, m: m.T.astype("f4").ravel("K"),
    "astype, F": lambda np, m: m.astype("f4", order="F").ravel("K"),
    "asfortranarray": lambda np, m: np.asfortranarray(m).ravel("K"),
    "zeros, F": lambda np, m: (np.zeros((2, 3), order="F") + m).ravel("K"),
    "zeros_like, A, with gaps": lambda np, m: (np.zeros_like(m[:, ::2].T, order="A") + m[:, ::2].T).ravel("K"),
    "ones_like, F": lambda np, m: np.multiply(np.ones_like(m, order="F"), m.T.T).ravel("A"),
    "exp": lambda np, m: np.exp(m.T).ravel("K"),
    "exp, C": lambda np, m: np.exp(m.T, order="C").ravel("K"),
    "exp, F": lambda np, m: np.exp(m, order="F").ravel("K"),
    "exp, A": lambda np, m: np.exp(m[:, ::2].T, order="A").ravel("K"),
    "add, A": lambda np, m: np.add(m.T, m.T, order="A").ravel("K"),
    "add, A, of both orders": lambda np, m: np.add(m.reshape(3, 2), m.T, order="A").ravel("K"),
    "modf, F": lambda np, m: np.modf(m / 2, order="F")[0].ravel("K"),
    "divmod, C": lambda np, m: np.divmod(m.T, 2.0, order="C")[1].ravel("K"),
    "matmul, F": lambda np, m: np.matmul(m, m.T, order="F").ravel("A"),
    "vecdot, F": lambda np, m: np.vecdot(m[:, :, None], m[:, :, None], order="F").ravel("K"),
    "einsum, F": lambda np, m: np.einsum("ij,jk->ik", m, m.T, order="F").ravel("K"),
    "dot": lambda np, m: np.dot(m.T, m).ravel("K"),
    "dot of equal layouts": lambda np, m: np.dot(m[:, :2], m).ravel("K"),
    "dot with a number": lambda np, m: np.dot(m.T, 2.0).ravel("K"),
    "inner with a number": lambda np, m: np.inner(2.0, m.T).ravel("K"),
    "choose": lambda np, m: np.choose(np.array([[0, 1], [1, 0], [0, 0]]).T, [m, m + 1.0]).ravel("K"),
    "where": lambda np, m: np.where(m.T > 0, m.T, 1.0).ravel("K"),
    "round": lambda np, m: np.round(m.T).ravel("K"),
    "sum": lambda np, m: np.sum(m.reshape(2, 3, 1).transpose(2, 1, 0), 0).ravel("K"),
}
if not hasattr(numpy, "vecdot"):
    del READ["vecdot, F"]
WAYS = {
    "tensors": lambda f, m: f(Tensor(m)),
    "vjp": lambda f, m: func.vjp(f, m)[0],
    "jvp": lambda f, m: func.jvp(f, (m,), (m,))[0],
    "vmap": lambda f, m: func.vmap(f)(numpy.stack([m, m]) if m.flags.c_contiguous else numpy.stack([m.T, m.T]).mT)[1],
    "functionalize": lambda f, m: func.functionalize(f)(m),
    "make_fx": lambda f, m: make_fx(f)(m)(m),
    "compile": lambda f, m: compile(f)(m),
    "compile, vjp": lambda f, m: compile(lambda m: func.vjp(f, m)[0])(m),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("order", ["C", "F"])
def test_elements_are_read_in_the_order_of_memory(name, order):
    matrix = numpy.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], order=order)
    expected = READ[name](numpy, matrix)
    for way, run in WAYS.items():
        found = run(lambda m: READ[name](face, m), matrix)
        numpy.testing.assert_allclose(numpy.asarray(found), expected, err_msg=way)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["C", "F"])
@together("read", [
    lambda np, m: np.exp(m).ravel("A"), lambda np, m: np.exp(np.cos(m), order="A").ravel("K"),
    lambda np, m: np.copy(np.exp(m), order="A").ravel("K"), lambda np, m: np.pad(np.exp(m), 1).ravel("K"),
    lambda np, m: np.round(np.exp(m), 1).ravel("K"), lambda np, m: m.ravel("A"), lambda np, m: np.copy(m).ravel("K")])
def test_a_batch_between_the_elements_of_an_example_is_in_no_order(read, axis, order):
    numbers = numpy.arange(12.0)
    batch = numpy.moveaxis(
        numbers.reshape(2, 3, 2) if order == "C" else numbers.reshape(3, 2, 2).transpose(1, 0, 2), -1, axis)
    expected = [read(numpy, example) for example in numpy.moveaxis(batch, axis, 0)]
    numpy.testing.assert_allclose(func.vmap(lambda m: read(face, m), axis)(batch), expected)


@pytest.mark.parametrize("read", [lambda m: m.ravel("K"), lambda m: m.T.reshape(-1, order="A"),
                                  lambda m: m.T.copy(order="A"), lambda m: face.exp(m, order="A")])
def test_a_trace_without_data_cannot_tell_the_order(read):
    with pytest.raises(DataDependentError, match=r"order of the elements(.|\n)*order=\"C\""):
        make_fx(read, tracing_mode="fake")(numpy.ones((2, 3)))


@pytest.mark.parametrize("read", [lambda m: m.ravel("K"), lambda m: m.reshape(-1, order="A"), lambda m: m.copy("A")])
def test_of_one_axis_the_order_is_known(read):
    matrix = numpy.ones((1, 3, 1))
    found = make_fx(read, tracing_mode="fake")(matrix)(matrix)
    numpy.testing.assert_array_equal(found, read(matrix))
