"""Every operator with a derivative: gradients of subclasses are those of Tensors. No formula goes round a handler."""

import numpy as np
import pytest

from pydispatch import Tensor
from pydispatch.autograd import grad
from pydispatch.backends import MetaArray
from pydispatch.func import jvp
from pydispatch.operators import VARIANTS
from pydispatch.tree import tree_leaves
from tests.numpy.calls import case_named
from tests.operators.oracles import DIFFERENTIABLE, cases, is_single, likewise, weights
from tests.subclasses.classes import Around, Is, Two, Wrapped
from tests.together import together

# NumPy's, of samples that ask for a real result of complex numbers
pytestmark = pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")

CLASSES = {"is-a": Is, "has-a": Wrapped, "has has-a": lambda x: Wrapped(Wrapped(x)), "two": lambda x: Two(x, x.copy())}
IN_PLACE = [name for name in DIFFERENTIABLE if VARIANTS[name].in_place]


def inner(value):
    """Return the array inside all wrappers, of the first of two."""
    while isinstance(value, Tensor):
        value = value.a if isinstance(value, Two) else getattr(value, "inner", value.array)
    assert not isinstance(value, MetaArray), "a kernel ran on a Shell"
    return value


def total(results, wrap):
    """Return a real number that depends on every result, and the cotangents of this."""
    tracked = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
    return tracked, [wrap(np.array(weights(result.shape, result.dtype, i))) for i, result in enumerate(tracked)]


def gradients(case, wrap, *, again=False):
    """Return the gradients of the values in a call, or with `again` those of the gradients."""
    values = [wrap(np.array(value)).requires_grad_() for value in case.values]
    outputs, cotangents = total(case.ours(*values), wrap)
    if not outputs:
        return None
    first = grad(outputs, values, cotangents, allow_unused=True, create_graph=again)
    if not again:
        return first
    outputs, cotangents = total([gradient for gradient in first if gradient is not None], wrap)
    return grad(outputs, values, cotangents, allow_unused=True) if outputs else None


def check(case, wrap, expected, found):
    tolerance = 1e-4 if is_single(case) else 1e-11
    assert (expected is None) == (found is None), case
    for one, other in zip(expected or (), found or (), strict=True):
        assert (one is None) == (other is None), case
        if one is not None:
            assert type(other) is type(wrap(np.zeros(1))), case
            assert (other.shape, other.dtype) == (one.shape, one.dtype), case
            with case_named(case):
                np.testing.assert_allclose(inner(other), one.array, tolerance, tolerance)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name):
    wraps = (Is, Wrapped, Around)
    for i, case in enumerate(cases(name)):
        expected = gradients(case, Tensor)
        for wrap in wraps if i < 2 else [wraps[i % 3]]:
            check(case, wrap, expected, gradients(case, wrap))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("wrap", [CLASSES["has has-a"], CLASSES["two"]], ids=["has has-a", "two"])
def test_gradients_of_deeper_ones(name, wrap):
    for case in cases(name)[::4]:
        check(case, wrap, gradients(case, Tensor), gradients(case, wrap))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_gradients(name):
    for case in cases(name)[::3]:
        check(case, Wrapped, gradients(case, Tensor, again=True), gradients(case, Wrapped, again=True))


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_tangents(name):
    for case in cases(name)[::3]:
        values, directions = case.values, likewise(case.values, 7)
        expected, found = (
            jvp(lambda *values: case.ours(*values), tuple(map(wrap, values)), tuple(map(wrap, directions)))  # noqa: B023
            for wrap in (Tensor, Wrapped)
        )
        check(case, Wrapped, tree_leaves(expected), tree_leaves(found))


def gradients_in_place(name, case, wrap):
    """Return the same where the first value, which is no leaf, is written to."""
    leaves = [wrap(np.array(value)).requires_grad_() for value in case.values]
    values = [leaf + 0 for leaf in leaves]
    before = values[0]
    (result,) = case._replace(name=VARIANTS[name].in_place).ours(*values)
    assert result is before, case
    outputs, cotangents = total([result], wrap)
    return grad(outputs, leaves, cotangents, allow_unused=True) if outputs else None


@pytest.mark.parametrize("name", IN_PLACE)
@together("wrap", [Is, Wrapped, Around, CLASSES["two"]], ids=["is-a", "has-a", "WrapperTensor", "two"])
def test_gradients_in_place(name, wrap):
    usable = 0
    for case in cases(name):
        if case.places[0] != 0:
            continue
        try:
            expected = gradients_in_place(name, case, Tensor)
        except (TypeError, ValueError):     # a shape or dtype that does not fit into the first argument
            continue
        usable += 1
        check(case, wrap, expected, gradients_in_place(name, case, wrap))
    assert usable
