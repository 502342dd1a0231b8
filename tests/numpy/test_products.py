"""Products: what the samples do not show."""

from itertools import product

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.autograd import grad
from pydispatch.func import jvp, vmap
from pydispatch.operators.products import product_of_two
from pydispatch.testing import gradcheck, gradgradcheck
from tests.numpy.samples.sample import grid
from tests.together import together

SUBSCRIPTS = (
    "ij,jk->ik", "ij,kj->ki", "aij,ajk->aik", "aij,akj->kia", "ai,ai->a", "abi,bci->cab", "ij,ji->", "ij,jk->j")


@pytest.mark.parametrize("n", [2, 9, 16])
@together("subscripts", SUBSCRIPTS)
def test_products_of_matrices_are_einsum(subscripts, n):
    terms = subscripts.split("->")[0].split(",")
    x, y = (grid(*[n + ord(letter) % 5 for letter in term], seed=i) for i, term in enumerate(terms))
    expected = np.einsum(subscripts, x, y)
    for optimize in (False, True):
        found = ops.np.einsum(subscripts, x, y, optimize=optimize)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    values = [Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)]
    result = pnp.einsum(subscripts, *values)
    cotangent = grid(*expected.shape, seed=2)
    for i, found in enumerate(grad(result, values, Tensor(cotangent))):
        left, right = terms[i], terms[1 - i]
        names = f"{subscripts.split('->')[1]},{right}->{left}"
        if set(left) <= set(names.split("->")[0]):
            np.testing.assert_allclose(found.array, np.einsum(names, cotangent, [y, x][i]), rtol=1e-12, atol=1e-12)


PAIRS = {
    "matrices": ("ij,jk->ik", (40, 30), (30, 20)), "of a transposed result": ("ij,jk->ki", (40, 30), (30, 20)),
    "stacks": ("aij,akj->aik", (9, 20, 5), (9, 20, 5)),
    "axes in between": ("bqhd,bkhd->bhqk", (2, 9, 3, 8), (2, 9, 3, 8)),
    "a vector": ("ij,j->i", (120, 110), (110,)), "vectors": ("i,i->", (10_000,), (10_000,)),
}


@pytest.mark.parametrize("name", PAIRS)
@together("dtypes", [("d", "d"), ("f", "f"), ("D", "D"), ("d", "f"), ("l", "l"), (">d", ">d")])
def test_large_products_of_two_by_blas(name, dtypes):
    subscripts, *shapes = PAIRS[name]
    x, y = [(9 * grid(*shape, seed=i)).astype(dtypes[i]) for i, shape in enumerate(shapes)]
    assert product_of_two(subscripts, *shapes) is not None
    found, expected = ops.np.einsum(subscripts, x, y), np.einsum(subscripts, x, y)
    assert (found.dtype, np.shape(found)) == (expected.dtype, expected.shape)
    scale = np.einsum(subscripts, abs(x), abs(y)).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * scale if "f" not in dtypes else 1e-6 * scale)


@pytest.mark.parametrize("call", [
    ("ij,jk->ik", (8, 8), (8, 8)), ("ij,j->i", (50, 50), (50,)), ("aij,aj->ai", (5000, 3, 3), (5000, 3)),
    ("ij,ij->ij", (90, 90), (90, 90)), ("ij,kl->ik", (90, 90), (90, 90)), ("ii,ij->j", (90, 90), (90, 90)),
    ("ij,jk->ik", (90, 1), (90, 90)),
])
def test_products_that_the_loop_over_all_axes_computes(call):
    assert product_of_two(*call) is None


def test_one_tensor_as_two_operands():
    x = Tensor(grid(3, 3), requires_grad=True)
    gradcheck(lambda x: pnp.einsum("ij,jk->ik", x, x), [x])
    gradgradcheck(lambda x: pnp.einsum("ij,jk,ki->", x, x, x), [x])


@pytest.mark.parametrize("tracked", list(product((True, False), repeat=3)))
def test_operands_that_are_constant_have_no_gradient(tracked):
    values, other = grid(3), grid(3, seed=1)
    expected = sum(tracked) * np.prod([values if each else other for each in tracked], 0) / values

    def function(x):
        return pnp.einsum("i,i,i->i", *[x if each else other for each in tracked])

    _, tangent = jvp(function, (values,), (np.ones(3),))
    np.testing.assert_allclose(tangent, expected, rtol=1e-12)
    if any(tracked):
        x = Tensor(values, requires_grad=True)
        np.testing.assert_allclose(grad(function(x).sum(), x)[0].array, expected, rtol=1e-12)


@together("in_axes", [axes for axes in product((0, 1, None), repeat=3) if axes != (None,) * 3])
def test_batches_of_each_operand(in_axes):
    arrays = [grid(4, 4, 4, seed=i) if axis is not None else grid(4, 4, seed=i) for i, axis in enumerate(in_axes)]
    found = vmap(lambda *xs: pnp.einsum("ij,jk,kl->il", *xs), in_dims=in_axes)(*arrays)
    for i in range(4):
        one = [x if axis is None else np.take(x, i, axis) for x, axis in zip(arrays, in_axes, strict=True)]
        np.testing.assert_allclose(found[i], np.einsum("ij,jk,kl->il", *one), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("call", [
    ("ij", np.ones(3)), ("ij,jk", np.ones((2, 3)), np.ones((2, 3))), ("ij->k", np.ones((2, 3))), ("i->ii", np.ones(3)),
    ("i,j", np.ones(3)), ("i;j", np.ones(3)), ("...i->i", np.ones((2, 3))), (), ("ij",), (np.ones(3), [99]),
])
def test_errors_are_numpys(call):
    tensors = [Tensor(x) if isinstance(x, np.ndarray) else x for x in call]
    with pytest.raises((ValueError, TypeError)) as theirs:
        np.einsum(*call)
    for function in (np.einsum, pnp.einsum.on_tensors):
        with pytest.raises(theirs.type):
            function(*tensors)


def test_gufuncs_of_newer_versions_of_numpy():
    matrix, vector = grid(2, 3, dtype=complex), grid(3, dtype=complex)
    np.testing.assert_allclose(pnp.matvec(Tensor(matrix), vector).array, matrix @ vector)
    np.testing.assert_allclose(pnp.vecmat(Tensor(vector), matrix.T).array, vector.conj() @ matrix.T)
    np.testing.assert_allclose(pnp.vecdot(Tensor(matrix), vector).array, (matrix.conj() * vector).sum(-1))
    np.testing.assert_allclose(pnp.vecdot(Tensor(matrix.T), vector[:, None], axis=0).array,
                               (matrix.conj() * vector).sum(-1))
