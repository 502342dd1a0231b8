"""Saved values: hooks that see them, when they are released, and what is saved at all.

test_in_place.py tests saved values that are written to.
"""

import gc
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.autograd import (
    Function,
    disable_saved_tensors_hooks,
    enable_grad,
    grad,
    is_grad_enabled,
    no_grad,
    saved_tensors_hooks,
)
from pydispatch.exceptions import AutogradError, DispatchError
from tests.autograd.leaves import Cube, SabotageError, assert_gradient, constant, leaf

NP = ops.np


# A function of x = [1, 2], y = [3, 4], the values that it saves, its gradient with respect to x.
PROGRAMS = {
    "sin": (lambda x, y: NP.sin(x), [[1.0, 2.0]], np.cos([1.0, 2.0])),
    "exp": (lambda x, y: NP.exp(x), [np.exp([1.0, 2.0])], np.exp([1.0, 2.0])),
    "square by multiply": (lambda x, y: x * x, [[1.0, 2.0], [1.0, 2.0]], np.array([2.0, 4.0])),
    "product with a constant": (lambda x, y: x * y.detach(), [[3.0, 4.0]], np.array([3.0, 4.0])),
    "product": (lambda x, y: x * y, [[1.0, 2.0], [3.0, 4.0]], np.array([3.0, 4.0])),
    "sum": (lambda x, y: x + y, [], np.array([1.0, 1.0])),
    "view": (lambda x, y: x[::-1].reshape(2, 1).ravel(), [], np.array([1.0, 1.0])),
    "exp in place": (lambda x, y: NP.exp_(x * y.detach()), [[3.0, 4.0], np.exp([3.0, 8.0])],
                     np.exp([3.0, 8.0]) * [3.0, 4.0]),
    "sin in place": (lambda x, y: NP.sin_(x + 0.0), [[1.0, 2.0]], np.cos([1.0, 2.0])),
    "Function": (lambda x, y: Cube.apply(x), [[1.0, 2.0], [1.0, 8.0]], np.array([3.0, 12.0])),
    "chain": (lambda x, y: NP.sin(NP.exp(x)), [np.exp([1.0, 2.0])] * 2,
              np.cos(np.exp([1.0, 2.0])) * np.exp([1.0, 2.0])),
}


def values():
    return leaf([1.0, 2.0]), leaf([3.0, 4.0])


def recording():
    """Return a pair of hooks that keep NumPy copies, and what they were called with."""
    packed, unpacked = [], []

    def pack(tensor):
        packed.append(tensor.detach().array.copy())
        return len(packed) - 1

    def unpack(place):
        unpacked.append(place)
        return Tensor(packed[place].copy())

    return pack, unpack, packed, unpacked


def in_order(arrays):
    return sorted(np.asarray(array).tolist() for array in arrays)


# --- which values are packed, and when -------------------------------------------------------------------------------


@pytest.mark.parametrize("case", PROGRAMS)
def test_pack_is_called_once_for_every_saved_value_and_unpack_when_it_is_needed(case):
    function, saved, expected = PROGRAMS[case]
    x, y = values()
    pack, unpack, packed, unpacked = recording()
    with saved_tensors_hooks(pack, unpack):
        result = function(x, y)
    assert in_order(packed) == in_order(saved)
    assert unpacked == []
    (gradient,) = grad(result.sum(), [x], retain_graph=True)
    assert_gradient(gradient, expected)
    needed = list(unpacked)
    assert len(needed) == len(set(needed))
    assert set(needed) <= set(range(len(packed)))
    (gradient,) = grad(result.sum(), [x])
    assert_gradient(gradient, expected)
    assert unpacked == needed * 2
    assert in_order(packed) == in_order(saved)


def test_all_values_that_all_gradients_need_are_unpacked_once():
    x, y = values()
    pack, unpack, packed, unpacked = recording()
    with saved_tensors_hooks(pack, unpack):
        total = (NP.sin(x) * NP.exp(y) + x * y).sum()
    total.backward()
    assert sorted(unpacked) == list(range(len(packed)))


def test_nothing_is_packed_where_nothing_is_recorded():
    pack, unpack, packed, _ = recording()
    with saved_tensors_hooks(pack, unpack):
        constant([1.0]) * constant([2.0])
        with no_grad():
            NP.sin(leaf([1.0]))
    assert packed == []


def test_values_saved_outside_are_not_packed():
    pack, unpack, packed, unpacked = recording()
    x = leaf([1.0])
    before = NP.sin(x)
    with saved_tensors_hooks(pack, unpack):
        before.backward()
    assert (packed, unpacked) == ([], [])
    assert_gradient(x.grad, np.cos([1.0]))


def test_values_packed_inside_are_unpacked_outside():
    pack, unpack, packed, unpacked = recording()
    x = leaf([1.0])
    with saved_tensors_hooks(pack, unpack):
        result = NP.sin(x)
    with disable_saved_tensors_hooks("not here"):
        result.backward()
    assert (len(packed), len(unpacked)) == (1, 1)
    assert_gradient(x.grad, np.cos([1.0]))


def test_only_the_innermost_pair_applies():
    outer, inner = recording(), recording()
    x = leaf([1.0, 2.0])
    with saved_tensors_hooks(*outer[:2]):
        first = NP.sin(x)
        with saved_tensors_hooks(*inner[:2]):
            second = NP.exp(first)
        third = NP.cos(second)
    third.sum().backward()
    assert (len(outer[2]), len(outer[3]), len(inner[2]), len(inner[3])) == (2, 2, 1, 1)
    value = np.exp(np.sin([1.0, 2.0]))
    assert_gradient(x.grad, -np.sin(value) * value * np.cos([1.0, 2.0]))


def test_backward_with_create_graph_packs_what_it_saves():
    x = leaf([1.0, 2.0])
    pack, unpack, packed, _ = recording()
    result = NP.sin(x)
    with saved_tensors_hooks(pack, unpack):
        (first,) = grad(result.sum(), [x], create_graph=True)
    assert len(packed) > 0
    (second,) = grad(first.sum(), [x])
    assert_gradient(second, -np.sin([1.0, 2.0]))


# --- what pack and unpack are given, and what they may do ------------------------------------------------------------


def test_pack_gets_a_constant_tensor_with_grad_mode_off():
    seen = []

    def pack(tensor):
        seen.append((type(tensor), tensor.requires_grad, is_grad_enabled(), (tensor * 2.0).requires_grad))
        return tensor

    with saved_tensors_hooks(pack, lambda packed: packed):
        NP.sin(leaf([1.0]) * 1.0)
        Cube.apply(leaf([1.0]))
    assert {(cls, enabled, tracked) for cls, _, enabled, tracked in seen} == {(Tensor, False, False)}


def test_pack_may_call_operators_of_the_library():
    x = leaf([1.0, 2.0])
    with saved_tensors_hooks(lambda tensor: NP.copy(tensor * 2.0), lambda packed: packed * 0.5):
        result = NP.sin(NP.sin(x))
    result.sum().backward()
    assert_gradient(x.grad, np.cos(np.sin([1.0, 2.0])) * np.cos([1.0, 2.0]))


def test_pack_must_not_write_to_its_argument():
    def pack(tensor):
        tensor *= 2.0
        return tensor

    with saved_tensors_hooks(pack, lambda packed: packed), pytest.raises(AutogradError, match=r"in[- ]place"):
        NP.sin(leaf([1.0]) * 1.0)


@pytest.mark.parametrize("packed", [None, 3, "text", {"a": 1}], ids=repr)
def test_pack_may_return_anything(packed):
    x = leaf([1.0])
    with saved_tensors_hooks(lambda tensor: packed, lambda given: constant([0.5]) if given == packed else None):
        result = NP.sin(x)
    result.backward()
    assert_gradient(x.grad, np.cos([0.5]))


@pytest.mark.parametrize("returned", [None, 1.0, "text", np.ones((3, 3))], ids=["None", "float", "text", "shape"])
@pytest.mark.parametrize("function", [NP.sin, Cube.apply], ids=["operator", "Function"])
def test_unpack_must_return_an_array_of_that_shape(function, returned):
    x = leaf([1.0])
    with saved_tensors_hooks(lambda tensor: tensor, lambda packed: returned):
        result = function(x)
    with pytest.raises(DispatchError, match="unpack"):
        result.backward()
    assert x.grad is None


def sabotage(value):
    raise SabotageError


def test_an_error_in_pack_goes_on_and_records_nothing():
    x = leaf([1.0])
    with saved_tensors_hooks(sabotage, sabotage), pytest.raises(SabotageError):
        NP.sin(x)
    NP.sin(x).backward()
    assert_gradient(x.grad, np.cos([1.0]))


def test_an_error_in_unpack_goes_on():
    x = leaf([1.0])
    with saved_tensors_hooks(lambda tensor: tensor, sabotage):
        result = NP.sin(x)
    for _ in range(2):
        with pytest.raises(SabotageError):
            result.backward()
    assert x.grad is None


def test_packed_values_are_not_checked_for_writes():
    x = leaf([1.0, 2.0])
    value = x * 1.0
    pack, unpack, *_ = recording()
    with saved_tensors_hooks(pack, unpack):
        result = NP.sin(value)
    value += 5.0
    result.sum().backward()
    assert_gradient(x.grad, np.cos([1.0, 2.0]))


@pytest.mark.parametrize("case", PROGRAMS)
def test_higher_derivatives_go_through_packed_values(case):
    function, *_ = PROGRAMS[case]
    found = []
    for hooks in (None, recording()[:2]):
        x, y = values()
        if hooks is None:
            result = function(x, y)
        else:
            with saved_tensors_hooks(*hooks):
                result = function(x, y)
        (first,) = grad(result.sum(), [x], create_graph=True)
        if first.requires_grad:
            found.append(grad(first.sum(), [x, y], materialize_grads=True))
        else:
            found.append(())
    plain, packed = found
    assert len(plain) == len(packed)
    for expected, gradient in zip(plain, packed, strict=True):
        assert_gradient(gradient, expected.array)


def test_the_second_derivative_of_a_packed_cube():
    x = leaf([2.0, 3.0])
    pack, unpack, *_ = recording()
    with saved_tensors_hooks(pack, unpack):
        cube = x * x * x
    (first,) = grad(cube.sum(), [x], create_graph=True)
    (second,) = grad(first.sum(), [x])
    assert_gradient(second, [12.0, 18.0])


def test_what_is_packed_is_kept_instead_of_the_value():
    x, store = leaf([1.0, 2.0]), {}

    def pack(tensor):
        store[len(store)] = tensor.array.copy()
        return len(store) - 1

    with saved_tensors_hooks(pack, lambda place: Tensor(store[place])):
        value = x * 1.0
        gone = weakref.ref(value.array)
        result = NP.sin(value)
    gc.disable()
    try:
        del value
        assert gone() is None
    finally:
        gc.enable()
    result.sum().backward()
    assert_gradient(x.grad, np.cos([1.0, 2.0]))


# --- forbidding them -------------------------------------------------------------------------------------------------


def test_disabled_hooks_raise_with_the_message():
    x = leaf([1.0])
    forbidden = pytest.raises(RuntimeError, match="no hooks in this house")
    with disable_saved_tensors_hooks("no hooks in this house"):
        with forbidden, saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed):
            NP.sin(x)
        NP.sin(x).backward()
    assert_gradient(x.grad, np.cos([1.0]))
    with saved_tensors_hooks(lambda tensor: tensor, lambda packed: packed):
        NP.sin(x).backward()
    assert_gradient(x.grad, 2.0 * np.cos([1.0]))


def test_hooks_that_were_active_before_are_forbidden_too():
    pack, unpack, packed, _ = recording()
    forbidden = pytest.raises(RuntimeError, match="no hooks in this house")
    with saved_tensors_hooks(pack, unpack), forbidden, disable_saved_tensors_hooks("no hooks in this house"):
        NP.sin(leaf([1.0]))
    assert packed == []


def test_disabling_where_nobody_uses_hooks_is_harmless():
    x = leaf([1.0])
    with disable_saved_tensors_hooks("no hooks in this house"):
        Cube.apply(NP.sin(x)).backward()
    assert_gradient(x.grad, 3.0 * np.sin([1.0]) ** 2 * np.cos([1.0]))


# --- releasing ------------------------------------------------------------------------------------------------------


def chain_of(x, n):
    """Apply sin n times, and return weak references to the intermediate arrays too."""
    value, arrays = x, []
    for _ in range(n):
        value = NP.sin(value)
        arrays.append(weakref.ref(value.array))
    return value, arrays


def alive(arrays):
    return sum(array() is not None for array in arrays)


@pytest.mark.usefixtures("no_collector")
def test_saved_values_are_freed_as_backward_consumes_them():
    x, n = leaf([1.0, 2.0]), 10
    first = x * 1.0
    value, arrays = chain_of(first, n)
    left = []
    node = value.grad_fn
    for _ in range(n):
        node.register_prehook(lambda gradients: left.append(alive(arrays)) and None)
        node = node.next_functions[0][0]
    del node
    total = value.sum()
    del value
    assert alive(arrays) == n - 1       # sin saves its input only, the last result is nobody's
    total.backward()
    assert left == [*range(n - 1, 0, -1), 0]
    assert alive(arrays) == 0


@pytest.mark.usefixtures("no_collector")
def test_saved_values_stay_with_retain_graph():
    x = leaf([1.0])
    value, arrays = chain_of(x, 5)
    value.backward(retain_graph=True)
    assert alive(arrays) == 5
    value.backward()
    assert alive(arrays) == 1           # the value itself
    del value
    assert alive(arrays) == 0


@pytest.mark.usefixtures("no_collector")
def test_saved_values_of_functions_are_freed_too():
    x = leaf([2.0])
    middle = x * 1.0
    array = weakref.ref(middle.array)
    result = Cube.apply(middle)
    del middle
    assert array() is not None
    result.backward()
    assert array() is None
    assert result.detach().item() == 8.0


def test_values_of_functions_that_were_released_say_so():
    x = leaf([2.0])
    result = Cube.apply(x)
    result.backward()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        result.backward()


@pytest.mark.usefixtures("no_collector")
def test_saved_values_are_freed_when_the_graph_is_dropped_unused():
    value, arrays = chain_of(leaf([1.0]), 5)
    assert alive(arrays) == 5
    del value
    assert alive(arrays) == 0


@pytest.mark.usefixtures("no_collector")
def test_the_part_of_a_graph_that_was_not_run_keeps_its_values():
    x, y = leaf([1.0]), leaf([2.0])
    (left, left_arrays), (right, right_arrays) = chain_of(x, 3), chain_of(y, 3)
    total = left + right
    del left, right
    grad(total, [x])
    assert (alive(left_arrays), alive(right_arrays)) == (0, 2)
    (gradient,) = grad(total, [y])
    sines = [2.0, np.sin(2.0), np.sin(np.sin(2.0))]
    assert_gradient(gradient, np.array([np.prod(np.cos(sines))]))
    assert alive(right_arrays) == 0


@pytest.mark.usefixtures("no_collector")
def test_values_are_freed_when_backward_ends_in_an_error():
    x = leaf([1.0])
    middle = x * 1.0
    middle.register_hook(sabotage)
    value, arrays = chain_of(middle, 3)
    with pytest.raises(SabotageError):
        value.backward()
    del value, middle
    assert alive(arrays) == 0


# --- what is not kept alive ------------------------------------------------------------------------------------------

FORGETTING = {
    "add": lambda x, c: x + c,
    "subtract": lambda x, c: c - x,
    "negative": lambda x, c: -x,
    "sum": lambda x, c: x.sum(),
    "mean": lambda x, c: x.mean(0),
    "reshape": lambda x, c: x.reshape(4),
    "transpose": lambda x, c: x.T,
    "getitem": lambda x, c: x[:1],
    "concatenate": lambda x, c: NP.concatenate([x, c]),
    "stack": lambda x, c: NP.stack([x, c]),
    "multiply by a number": lambda x, c: x * 3.0,
    "copy": lambda x, c: x.copy(),
    "astype": lambda x, c: x.astype(np.float32),
    "where": lambda x, c: NP.where(np.array([True, False]), x, c),
    "cumsum": lambda x, c: x.cumsum(0),
    "roll": lambda x, c: NP.roll(x, 1),
    "exp": lambda x, c: NP.exp(x),
    "tanh": lambda x, c: NP.tanh(x),
    "setitem": lambda x, c: NP.setitem(x, 0, c[0]),
    "divide": lambda x, c: x / 3.0,
    "flip": lambda x, c: NP.flip(x),
}
VIEWS = ("reshape", "transpose", "getitem", "flip")


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("case", FORGETTING)
def test_arguments_that_no_formula_needs_are_not_kept(case):
    x = leaf(np.ones((2, 2)))
    first, other = x * 1.0, x * 2.0
    result = FORGETTING[case](first, other)
    arrays = [weakref.ref(first.array), weakref.ref(other.array)]
    del first, other
    expected = 1 if case in VIEWS else 0
    assert alive(arrays) == expected
    result.sum().backward()
    assert x.grad is not None


@pytest.mark.usefixtures("no_collector")
def test_the_side_of_a_product_that_is_constant_is_all_that_is_kept():
    x = leaf(np.ones(3))
    value, c = x * 1.0, constant(np.ones(3))
    product = value * c
    arrays = [weakref.ref(value.array), weakref.ref(c.array)]
    del value, c
    assert [array() is not None for array in arrays] == [False, True]
    product.sum().backward()


@pytest.mark.usefixtures("no_collector")
def test_a_saved_input_is_the_object_itself_and_no_copy():
    x = leaf(np.ones(3))
    kept = []

    class Keeping(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            kept.extend(ctx.saved_tensors)
            return g

    Keeping.apply(x).sum().backward()
    assert kept[0] is x


def test_enable_grad_in_unpack_tracks_nothing_of_it():
    x = leaf([1.0])

    def unpack(packed):
        with enable_grad():
            return leaf([0.5]) * 1.0

    with saved_tensors_hooks(lambda tensor: None, unpack):
        result = NP.sin(x)
    (gradient,) = grad(result, [x])
    assert_gradient(gradient, np.cos([0.5]))
    assert not gradient.requires_grad
