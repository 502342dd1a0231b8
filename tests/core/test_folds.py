"""Reductions of small arrays along any axes give what NumPy gives, bit for bit: values, dtype, layout, warnings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from tests.core.test_elementwise import LEFT_TO_NUMPY, TYPES, numbers, operands, outcome
from tests.together import together

FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "all": np.logical_and,
         "any": np.logical_or}
SHAPES = [
    (1,), (5,), (8,), (200,), (8, 16), (16, 8), (1, 7), (7, 1), (1, 1), (2, 3, 4), (3, 1, 9), (2, 3, 2, 5), (64, 64)]
each_fold = pytest.mark.parametrize("name", FOLDS)


def sets_of_axes(ndim):
    """Yield some of the axes, as an int and as tuples, counted from either end."""
    yield None
    for axis in range(ndim):
        yield from (axis, axis - ndim, (axis,))
    for axis in range(ndim - 1):
        yield from ((axis, axis + 1), (axis + 1, axis - ndim))
    yield tuple(range(ndim))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@each_fold
def test_every_type_along_every_axis(name, dtype):
    for k, shape in enumerate(SHAPES):
        x = numbers(dtype, shape, k)
        for array in (x, x.T, x[::-1], x[..., ::2]):
            for axes in sets_of_axes(array.ndim):
                for options in ({}, {"keepdims": True}, {"keepdims": False}):
                    expected = outcome(FOLDS[name].reduce, array, axes, **options)
                    assert outcome(getattr(ops.np, name), array, axes, **options) == expected, (shape, axes, options)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_means(dtype):
    for k, shape in enumerate(SHAPES):
        x = numbers(dtype, shape, k)
        for array in (x, x.T, x[..., ::2]):
            for axes in sets_of_axes(array.ndim):
                for options in ({}, {"keepdims": True}):
                    expected = outcome(lambda a, *args, **options: a.mean(*args, **options), array, axes, **options)
                    assert outcome(ops.np.mean, array, axes, **options) == expected, (shape, axes, options)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_any_layout(data):
    (array,) = data.draw(operands(1))
    name = data.draw(st.sampled_from([*FOLDS, "mean"]))
    axes = data.draw(st.sets(st.integers(-array.ndim, array.ndim - 1), max_size=3).map(tuple)) if array.ndim else None
    options = {"keepdims": True} if data.draw(st.booleans()) else {}
    function = getattr(np, name) if name == "mean" else FOLDS[name].reduce
    expected = outcome(function, array, axes, **options)
    assert outcome(getattr(ops.np, name), array, axes, **options) == expected or expected[0][0] is ValueError
    if not expected[1] and not issubclass(expected[0][0], Exception):
        tensor = getattr(ops.np, name)(Tensor(array), axes, **options)
        assert np.asarray(tensor).tobytes() == expected[0][-1]


@pytest.mark.parametrize("dtype", LEFT_TO_NUMPY, ids=str)
@pytest.mark.parametrize("name", ["max", "min"])
def test_other_types_are_left_to_numpy(name, dtype):
    x = np.arange(6).reshape(2, 3).astype("i8").astype(dtype)
    assert np.array_equal(getattr(ops.np, name)(x, 0), FOLDS[name].reduce(x, 0))


@each_fold
@together("shape", [(), (0,), (0, 3), (3, 0), (65, 64), (1,) * 9], ids=str)
def test_arrays_that_are_left_to_numpy(name, shape):
    x = np.ones(shape)
    expected = outcome(FOLDS[name].reduce, x, None)
    assert outcome(getattr(ops.np, name), x) == expected or issubclass(expected[0][0], ValueError)


@pytest.mark.parametrize("axes", [(0, 0), (0, -2), 2, -3, (0, 5), ()], ids=str)
def test_axes_that_numpy_refuses_or_leaves_alone(axes):
    x = np.ones((2, 3))
    for name in ("sum", "max"):
        assert outcome(getattr(ops.np, name), x, axes) == outcome(FOLDS[name].reduce, x, axes)


@pytest.mark.parametrize("how", ["ignore", "warn", "raise"])
@pytest.mark.parametrize(("name", "kind", "x"), [
    ("sum", "over", np.full((2, 3), 3e38, "f4")), ("prod", "over", np.full((2, 3), 1e200)),
    ("sum", "invalid", np.array([[np.inf, 1], [-np.inf, 1]], "f4")), ("mean", "over", np.full((2, 3), 1e308)),
    ("mean", "invalid", np.array([[np.inf, 1], [-np.inf, 1]])), ("mean", "under", np.full((2, 3), 5e-324)),
])
def test_errstate_holds(name, kind, x, how):
    function = FOLDS[name].reduce if name in FOLDS else lambda a, axes: a.mean(axes)
    with np.errstate(all="ignore"), np.errstate(**{kind: how}):
        for axes in (None, 0, 1):
            assert outcome(getattr(ops.np, name), x, axes) == outcome(function, x, axes)
