"""Products: what the samples do not show."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, ops
from pydispatch.autograd import grad, gradcheck, gradgradcheck
from pydispatch.func import jvp, vmap
from tests.numpy.samples.sample import grid

SUBSCRIPTS = (
    "ij,jk->ik", "ij,kj->ki", "aij,ajk->aik", "aij,akj->kia", "ai,ai->a", "abi,bci->cab", "ij,ji->", "ij,jk->j",
)


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
@pytest.mark.parametrize("n", [2, 9])
def test_products_of_matrices_are_einsum(subscripts, n):
    """Large ones are products of matrices where `optimize` says so, and in gradients."""
    terms = subscripts.split("->")[0].split(",")
    x, y = (grid(*[n + ord(letter) % 5 for letter in term], seed=i) for i, term in enumerate(terms))
    expected = np.einsum(subscripts, x, y)
    np.testing.assert_allclose(ops.np.einsum(subscripts, x, y, optimize=True), expected, rtol=1e-12, atol=1e-12)
    values = [Tensor(x, requires_grad=True), Tensor(y, requires_grad=True)]
    result = pnp.einsum(subscripts, *values)
    cotangent = grid(*expected.shape, seed=2)
    for i, found in enumerate(grad(result, values, Tensor(cotangent))):
        left, right = terms[i], terms[1 - i]
        names = f"{subscripts.split('->')[1]},{right}->{left}"
        if set(left) <= set(names.split("->")[0]):
            np.testing.assert_allclose(found.array, np.einsum(names, cotangent, [y, x][i]), rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("in_axes", [axes for axes in product((0, 1, None), repeat=3) if axes != (None,) * 3])
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
