"""Small arrays are used again, and nobody can tell: whoever holds one, or memory of it, keeps it."""

import gc
import random
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, func


def let_go_of(*shapes):
    for shape in shapes:
        for _ in range(4):
            Tensor(np.full(shape, 7.0)) + 1.0


HOLDERS = {
    "the array": lambda array: array,
    "a view": lambda array: array[:1],
    "a memoryview": memoryview,
    "a slice of its elements": lambda array: array.reshape(-1)[::2],
    "a DLPack capsule": lambda array: np.from_dlpack(array),
    "the Tensor": Tensor,
    "a Tensor of a view": lambda array: Tensor(array)[0],
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS)
def test_what_is_held_is_not_used_again(holder):
    tensor = Tensor(np.arange(4.0)) * 2.0
    held = holder(tensor.array)
    before = np.array(held.array if isinstance(held, Tensor) else held)
    del tensor
    results = [Tensor(np.full(4, 9.0)) + float(i) for i in range(20)]
    np.testing.assert_array_equal(np.array(held.array if isinstance(held, Tensor) else held), before)
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result.array, 9.0 + i)


def test_weak_references_die():
    tensor = Tensor(np.arange(4.0)) * 2.0
    gone = []
    reference = weakref.ref(tensor.array, gone.append)
    del tensor
    gc.collect()
    assert reference() is None
    assert len(gone) == 1
    assert (Tensor(np.ones(4)) + 1.0).array is not None
    assert reference() is None


CHANGES = {
    "read-only": lambda array: array.setflags(write=False),
    "another dtype": lambda array: setattr(array, "dtype", np.int64),
    "smaller elements": lambda array: setattr(array, "dtype", np.uint8),
    "another shape": lambda array: setattr(array, "shape", (2, 2)),
    "no axes": lambda array: array.resize((), refcheck=False),
    "more elements": lambda array: array.resize(8, refcheck=False),
}


@pytest.mark.filterwarnings("ignore:Setting the")      # in place, which NumPy 2.5 warns of
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_arrays_that_users_changed(change):
    for _ in range(3):
        tensor = Tensor(np.arange(4.0)) * 2.0
        change(tensor.array)
        del tensor
    for shape in ((4,), (2, 2), (), (8,), (1,)):
        for _ in range(4):
            result = (Tensor(np.full(shape, 2.0)) * 3.0).array
            expected = np.full(shape, 6.0)
            np.testing.assert_array_equal(result, expected)
            assert (result.dtype, result.shape, result.strides) == (expected.dtype, expected.shape, expected.strides)
            assert result.flags.writeable
            assert result.flags.owndata


SHAPES = [(), (1,), (4,), (256,), (257,), (0,), (1, 4), (4, 1), (2, 2), (1, 1), (16, 16), (2, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layout_is_that_of_a_fresh_array(shape):
    let_go_of(*SHAPES)
    for x in (np.full(shape, 2.0), np.full(shape[::-1], 2.0).T):
        result, expected = (Tensor(x) * 3.0).array, np.asarray(x * 3.0)
        np.testing.assert_array_equal(result, expected)
        assert result.strides == expected.strides
        assert str(result.flags) == str(expected.flags)
        assert result.base is None


def test_gradients_that_users_hold_stay():
    x = np.arange(1.0, 5.0)
    held = [func.grad(lambda x, i=i: (x * x * float(i)).sum())(x) for i in range(20)]
    for i, gradient in enumerate(held):
        np.testing.assert_array_equal(gradient, 2.0 * i * x)


@pytest.mark.parametrize("seed", range(20))
def test_random_lives(seed):
    choose = random.Random(seed)
    alive = [(Tensor(array), array.copy()) for array in (np.arange(2.0), np.ones((2, 2)), np.array(3.0))]
    for _ in range(300):
        tensor, model = choose.choice(alive)
        other, other_model = choose.choice(alive)
        kind = choose.randrange(5)
        if kind == 0:
            alive.append((tensor + other, model + other_model))
        elif kind == 1:
            alive.append((tensor * 0.5, model * 0.5))
        elif kind == 2 and model.ndim:
            alive.append((tensor[0], model[0]))
        elif kind == 3:
            alive.append((Tensor(tensor.array), model))
        while len(alive) > 12:
            alive.pop(choose.randrange(len(alive)))
        del tensor, other
        for tensor, model in alive:
            np.testing.assert_array_equal(tensor.array, model)
        del tensor
