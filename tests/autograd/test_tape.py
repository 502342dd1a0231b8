"""The tape and its engine: the graph, the order of execution, backward() and grad(), leaves and `.grad`."""

import copy
import gc
import itertools
import pickle
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.autograd import Function, TapeNode, backward, enable_grad, grad, is_grad_enabled, no_grad
from pydispatch.exceptions import AutogradError, DispatchError
from tests.autograd.leaves import SabotageError, assert_gradient, constant, leaf
from tests.together import together

NP = ops.np
RNG = np.random.default_rng(0)


def on_entry(tensor, log, name):
    """Write `name` into `log` whenever the node of this tensor runs."""
    tensor.grad_fn.register_prehook(lambda gradients: log.append(name))


# --- the graph -------------------------------------------------------------------------------------------------------

NODE_NAMES = {
    "MultiplyBackward": lambda x: x * 2.0,
    "AddBackward": lambda x: x + 2.0,
    "SinBackward": lambda x: NP.sin(x),
    "Log1pBackward": lambda x: NP.log1p(x),
    "GetitemBackward": lambda x: x[0],
    "SumBackward": lambda x: x.sum(),
    "MatmulBackward": lambda x: x @ x,
    "TakeAlongAxisBackward": lambda x: NP.take_along_axis(x, np.array([0]), 0),
}


@pytest.mark.parametrize("name", NODE_NAMES)
def test_nodes_are_named_after_their_operator(name):
    node = NODE_NAMES[name](leaf([1.0, 2.0])).grad_fn
    assert isinstance(node, TapeNode)
    assert node.name == name


def test_edges_lead_to_the_nodes_of_the_arguments():
    x, y = leaf([1.0]), leaf([2.0])
    product, difference = x * y, x - y
    total = product + difference
    assert [node for node, _ in total.grad_fn.next_functions] == [product.grad_fn, difference.grad_fn]
    assert [index for _, index in total.grad_fn.next_functions] == [0, 0]


def test_edges_tell_which_result_of_a_node_they_mean():
    first, second = NP.split(leaf([1.0, 2.0]), 2)
    joined = second * first
    (node, index), (other, other_index) = joined.grad_fn.next_functions
    assert node is other
    assert node.name == "SplitBackward"
    assert (index, other_index) == (1, 0)


def test_later_calls_have_higher_sequences():
    x = leaf([1.0])
    sequences = [node.sequence for node in ((x * 2.0).grad_fn, (x + 1.0).grad_fn, NP.sin(x).grad_fn)]
    assert sequences == sorted(set(sequences))


def test_arguments_that_are_not_tracked_have_no_edge():
    x, c = leaf([1.0]), constant([2.0])
    product = x * c
    (sink, _), (nothing, _) = product.grad_fn.next_functions
    assert sink is not None
    assert nothing is None


def test_a_leaf_has_one_sink():
    x = leaf([1.0])
    first, second = x * 2.0, NP.sin(x)
    assert first.grad_fn.next_functions[0][0] is second.grad_fn.next_functions[0][0]


UNTRACKED = {
    "operators on constants": lambda x: constant([1.0]) * 2.0,
    "comparisons": lambda x: x > 0.0,
    "index of the largest": lambda x: x.argmax(),
    "conversion to ints": lambda x: x.astype(np.int64),
    "zeros of the same shape": lambda x: NP.zeros_like(x),
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("case", UNTRACKED)
def test_results_without_gradient_are_not_tracked(case):
    result = UNTRACKED[case](leaf([1.0, 2.0]))
    assert (result.requires_grad, result.grad_fn, result.is_leaf) == (False, None, True)


def test_raw_arrays_are_constants():
    x = leaf([1.0, 2.0])
    raw = np.array([3.0, 4.0])
    for product in (x * raw, raw * x):
        (total,) = grad(product.sum(), [x])
        assert_gradient(total, [3.0, 4.0])
    assert isinstance(NP.multiply(raw, raw), np.ndarray)


LEFT_OPERANDS = {"ndarray": np.array([3.0, 4.0]), "float64": np.float64(3.0), "float": 3.0, "int": 3}


@pytest.mark.parametrize("left", LEFT_OPERANDS)
def test_operands_of_other_kinds_on_the_left_do_not_lose_the_gradient(left):
    value = LEFT_OPERANDS[left]
    x = leaf([1.0, 2.0])
    (value * x + (value - x)).sum().backward()
    assert_gradient(x.grad, np.broadcast_to(value, 2) - 1.0)


CONVERSIONS = {
    "asarray": np.asarray,
    "array": np.array,
    "float": lambda x: float(x[0]),
    "ufunc's argument": lambda x: np.array([0.0, 0.0]).__iadd__(x),
    "item of an array": lambda x: np.zeros(2).__setitem__(slice(None), x),
}


@pytest.mark.parametrize("conversion", CONVERSIONS)
def test_numpy_does_not_lose_gradients_silently(conversion):
    with pytest.raises((DispatchError, TypeError)):
        CONVERSIONS[conversion](leaf([1.0, 2.0]))


def test_numpy_reads_tracked_values_under_no_grad():
    with no_grad():
        x = leaf([1.0, 2.0])
        np.testing.assert_array_equal(np.asarray(x), [1.0, 2.0])
        assert float(x[1]) == 2.0


# --- the order of execution ------------------------------------------------------------------------------------------


def test_a_chain_runs_backwards():
    log, value = [], leaf([1.0])
    for name in "abcde":
        value = value * 2.0
        on_entry(value, log, name)
    value.backward()
    assert log == list("edcba")


def test_a_diamond_runs_latest_first_and_each_node_after_all_that_use_it():
    log = []
    top = leaf([1.0]) * 2.0
    left = top * 3.0
    right = NP.sin(top)
    late_left = left * 5.0
    bottom = late_left + right
    for name, value in zip(["top", "left", "right", "late_left", "bottom"], (top, left, right, late_left, bottom),
                           strict=True):
        on_entry(value, log, name)
    bottom.backward()
    assert log == ["bottom", "late_left", "right", "left", "top"]


@pytest.mark.parametrize("reverse", [False, True], ids=["as made", "the other way round"])
def test_of_two_roots_the_later_one_runs_first(reverse):
    log, x = [], leaf([1.0])
    roots = [x * 2.0, x * 3.0]
    for name, root in zip("bc", roots, strict=True):
        on_entry(root, log, name)
    backward(roots[::-1] if reverse else roots)
    assert log == ["c", "b"]
    assert_gradient(x.grad, [5.0])


def test_a_root_that_another_root_depends_on_waits_for_it():
    log, x = [], leaf([1.0])
    inner = x * 2.0
    outer = inner * 3.0
    on_entry(inner, log, "inner")
    on_entry(outer, log, "outer")
    backward([inner, outer])
    assert log == ["outer", "inner"]
    assert_gradient(x.grad, [8.0])


def test_nodes_made_by_several_threads_run_after_what_uses_them():
    log, x = [], leaf([1.0])
    values = {}

    def build(name, source):
        values[name] = values.get(source, x) * 2.0
        on_entry(values[name], log, name)

    for name, source in (("a", None), ("b", "a"), ("c", "b"), ("d", "a")):
        thread = threading.Thread(target=build, args=(name, source))
        thread.start()
        thread.join()
    (values["c"] + values["d"]).backward()
    assert_gradient(x.grad, [12.0])
    assert sorted(log) == ["a", "b", "c", "d"]
    assert log.index("c") < log.index("b") < log.index("a")
    assert log.index("d") < log.index("a")


def test_every_node_of_a_deep_diamond_runs_once():
    log, depth = [], 30
    x = leaf([1.0])
    value = x
    for interpreter in range(depth):
        left, right = value * 1.0, value * 1.0
        value = left + right
        for part in (left, right, value):
            on_entry(part, log, interpreter)
    value.backward()
    assert len(log) == 3 * depth
    assert_gradient(x.grad, [2.0**depth])


def test_grad_runs_only_what_lies_on_the_way_to_the_inputs():
    log, x, y = [], leaf([1.0]), leaf([2.0])
    left, right = x * 2.0, y * 3.0
    on_entry(left, log, "left")
    on_entry(right, log, "right")
    (gradient,) = grad(left + right, [x])
    assert log == ["left"]
    assert_gradient(gradient, [2.0])


def test_grad_stops_at_an_input_that_is_not_a_leaf():
    log, x = [], leaf([1.0])
    middle = x * 2.0
    on_entry(middle, log, "middle")
    (gradient,) = grad(middle * 3.0, [middle])
    assert log == []
    assert_gradient(gradient, [3.0])


def test_an_input_before_another_input_is_reached_through_it():
    x = leaf([1.0])
    middle = x * 2.0
    gradients = grad(middle * 3.0, [x, middle])
    assert_gradient(gradients[0], [6.0])
    assert_gradient(gradients[1], [3.0])


def test_gradients_that_hooks_have_seen_are_not_summed_into():
    seen = []
    middle = leaf(1.0) * 1.0
    branches = [middle + 0.0, middle + 0.0, middle + 0.0]
    for branch in branches:
        branch.register_hook(seen.append)
    middle.retain_grad()
    (branches[0] * 2.0 + branches[1] * 3.0 + branches[2] * 5.0).backward()
    assert [gradient.item() for gradient in seen] == [5.0, 3.0, 2.0]
    assert_gradient(middle.grad, 10.0)


def test_none_is_zero():
    class Nothing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return None

    x = leaf([1.0])
    middle = x * 2.0
    (Nothing.apply(middle) + middle * 3.0).backward()
    assert_gradient(x.grad, [6.0])


def scaled_by(gradient_of):
    """Return the identity, whose backward gives `gradient_of(g)`."""
    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return gradient_of(g)

    return Scaled.apply


FITTING = {
    "a leading axis": lambda g: NP.stack([g, g, g]),
    "an axis of one": lambda g: g + np.zeros((2, 2, 3)),
    "exactly": lambda g: g * 3.0,
}


@pytest.mark.parametrize("case", FITTING)
def test_larger_gradients_are_summed_to_the_shape_of_the_input(case):
    x = leaf(np.ones((1, 3)))
    cotangent = RNG.normal(size=(1, 3))
    (gradient,) = grad(scaled_by(FITTING[case])(x), [x], cotangent)
    larger = FITTING[case](constant(cotangent)).array
    assert_gradient(gradient, larger.reshape(-1, 3).sum(0, keepdims=True))


UNFITTING = {
    "too long": lambda g: constant(np.ones((1, 4))),
    "too few axes": lambda g: g.sum(),
    "transposed": lambda g: constant(np.ones((3, 1))),
}


@pytest.mark.parametrize("case", UNFITTING)
def test_gradients_of_other_shapes_are_refused(case):
    x = leaf(np.ones((1, 3)))
    result = scaled_by(UNFITTING[case])(x)
    with pytest.raises(AutogradError, match="ScaledBackward") as caught:
        result.sum().backward()
    assert "(1, 3)" in str(caught.value)


BROADCASTS = {"a scalar": ((), (2, 3)), "a row": ((3,), (2, 3)), "a column": ((2, 1), (2, 3)), "both": ((2, 1), (1, 3)),
              "nothing": ((0,), (2, 0))}


@pytest.mark.parametrize("case", BROADCASTS)
def test_gradients_are_summed_over_broadcast_axes(case):
    left, right = (RNG.normal(size=shape) for shape in BROADCASTS[case])
    x, y = leaf(left), leaf(right)
    cotangent = RNG.normal(size=np.broadcast_shapes(*BROADCASTS[case]))
    gradients = grad(x * y, [x, y], cotangent)
    for gradient, value, other in zip(gradients, (left, right), (right, left), strict=True):
        expected = cotangent * other
        extra = tuple(range(expected.ndim - value.ndim))
        kept = tuple(axis for axis in range(expected.ndim) if axis not in extra
                     and value.shape[axis - len(extra)] == 1 and expected.shape[axis] != 1)
        assert_gradient(gradient, expected.sum(extra + kept).reshape(value.shape))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
def test_gradients_have_the_dtype_of_the_input(dtype):
    x = leaf([1.0, 2.0], dtype)
    (x * constant([3.0, 4.0])).sum().backward()
    assert_gradient(x.grad, np.array([3.0, 4.0], dtype))


def test_gradients_cross_a_conversion_of_dtype():
    x = leaf([1.0, 2.0], np.float32)
    (x.astype(np.float64) * np.array([3.0, 4.0])).sum().backward()
    assert_gradient(x.grad, np.array([3.0, 4.0], np.float32))


@pytest.mark.parametrize("create_graph", [False, True], ids=["off", "create_graph"])
def test_grad_mode_in_backward_is_create_graph(create_graph):
    modes = []

    def look(g):
        modes.append(is_grad_enabled())
        return g * 2.0

    x = leaf([1.0])
    result = scaled_by(look)(x)
    result.register_hook(lambda g: modes.append(is_grad_enabled()))
    with no_grad():
        (gradient,) = grad(result, [x], create_graph=create_graph)
        assert not is_grad_enabled()
    assert modes == [create_graph, create_graph]
    assert gradient.requires_grad is False     # the cotangent is a constant


@pytest.mark.parametrize("create_graph", [False, True], ids=["off", "create_graph"])
def test_gradients_are_tracked_when_a_graph_is_asked_for(create_graph):
    x = leaf([3.0])
    (gradient,) = grad(x * x, [x], create_graph=create_graph)
    assert gradient.requires_grad is create_graph


def test_a_graph_is_created_even_where_grad_mode_is_off():
    x = leaf([3.0])
    cube = x * x * x
    with no_grad():
        (first,) = grad(cube, [x], create_graph=True)
    (second,) = grad(first, [x])
    assert_gradient(second, [18.0])


@pytest.mark.parametrize("length", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_long_chains_are_walked_and_freed_without_recursion(length):
    x = leaf([1.0])
    value = x
    for _ in range(length):
        value = value + 1.0
    value.backward()
    assert_gradient(x.grad, [1.0])
    gone = weakref.ref(value.grad_fn)
    del value
    assert gone() is None


@pytest.mark.parametrize("length", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_long_chains_that_were_never_run_are_freed_without_recursion(length):
    value = leaf([1.0])
    for _ in range(length):
        value = NP.sin(value)
    gone = weakref.ref(value.grad_fn)
    del value
    assert gone() is None


def test_a_long_chain_of_functions():
    double = scaled_by(lambda g: g)
    x = leaf([1.0])
    value = x
    for _ in range(20_000):
        value = double(value)
    value.backward()
    assert_gradient(x.grad, [1.0])
    gone = weakref.ref(value.grad_fn)
    del value
    assert gone() is None


def test_a_long_chain_of_views():
    x = leaf([1.0, 2.0])
    value = x * 1.0
    for _ in range(20_000):
        value = value.reshape(-1)
    value.sum().backward()
    assert_gradient(x.grad, [1.0, 1.0])


def test_a_long_chain_of_writes():
    x = leaf([1.0])
    value = x * 1.0
    for _ in range(20_000):
        value += 1.0
    value.backward()
    assert_gradient(x.grad, [1.0])


def test_a_long_chain_is_cut_by_an_input_near_its_end():
    value = leaf([1.0])
    for _ in range(50_000):
        value = value + 1.0
    near = value
    (gradient,) = grad(near * 2.0, [near])
    assert_gradient(gradient, [2.0])


# --- retaining the graph ---------------------------------------------------------------------------------------------

SAVE_NOTHING = {
    "add": lambda x: x + 2.0,
    "add of itself": lambda x: x + x,
    "subtract": lambda x: 1.0 - x,
    "negative": lambda x: -x,
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "reshape": lambda x: x.reshape(2, 1),
    "transpose": lambda x: x.T,
    "getitem": lambda x: x[1:],
    "concatenate": lambda x: NP.concatenate([x, x]),
    "copy": lambda x: x.copy(),
}
SAVE_SOMETHING = {
    "multiply": lambda x: x * x,
    "exp": lambda x: NP.exp(x),
    "sin": lambda x: NP.sin(x),
    "matmul": lambda x: x @ x,
    "divide": lambda x: 1.0 / x,
    "prod": lambda x: x.prod(),
    "below nodes that save nothing": lambda x: NP.sin(x) + 1.0,
}


@pytest.mark.parametrize("case", SAVE_NOTHING)
def test_nodes_that_saved_nothing_run_again(case):
    x = leaf([1.0, 2.0])
    result = SAVE_NOTHING[case](x)
    cotangent = np.ones(result.shape)
    result.backward(cotangent)
    once = x.grad.array.copy()
    result.backward(cotangent)
    assert_gradient(x.grad, 2 * once)


@pytest.mark.parametrize("case", SAVE_SOMETHING)
def test_nodes_whose_values_were_released_say_so(case):
    x = leaf([1.0, 2.0])
    result = SAVE_SOMETHING[case](x)
    cotangent = np.ones(result.shape)
    result.backward(cotangent)
    once = x.grad.array.copy()
    with pytest.raises(AutogradError, match="retain_graph=True"):
        result.backward(cotangent)
    assert_gradient(x.grad, once)


def test_two_losses_that_share_a_part_of_the_graph():
    x = leaf([1.0, 2.0])
    shared = NP.sin(x)
    first, second = (shared * 2.0).sum(), (shared * 3.0).sum()
    first.backward()
    with pytest.raises(AutogradError, match=r"[Ss]in"):
        second.backward()


@pytest.mark.parametrize("case", SAVE_SOMETHING)
def test_retained_graphs_run_again_and_gradients_accumulate(case):
    x = leaf([1.0, 2.0])
    result = SAVE_SOMETHING[case](x)
    cotangent = np.ones(result.shape)
    result.backward(cotangent, retain_graph=True)
    once = x.grad.array.copy()
    result.backward(cotangent, retain_graph=True)
    result.backward(cotangent)
    assert_gradient(x.grad, 3 * once)
    with pytest.raises(AutogradError):
        result.backward(cotangent)


def test_create_graph_retains_the_graph():
    x = leaf([3.0])
    square = x * x
    grad(square, [x], create_graph=True)
    (again,) = grad(square, [x])
    assert_gradient(again, [6.0])


def test_create_graph_without_retaining_it():
    x = leaf([3.0])
    square = x * x
    grad(square, [x], create_graph=True, retain_graph=False)
    with pytest.raises(AutogradError, match="retain_graph=True"):
        grad(square, [x])


def test_a_part_of_the_graph_that_was_not_run_is_not_released():
    x, y = leaf([3.0]), leaf([4.0])
    left, right = x * x, y * y
    total = left + right
    grad(total, [x])
    (other,) = grad(total, [y])
    assert_gradient(other, [8.0])


@pytest.mark.parametrize("order", range(1, 7), ids=lambda n: f"order {n}")
def test_derivatives_of_higher_order(order):
    x = leaf([0.3, -1.2])
    value = NP.sin(x)
    for _ in range(order):
        (value,) = grad(value.sum(), [x], create_graph=True)
    cycle = (np.sin, np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v))
    assert_gradient(value, cycle[order % 4](x.detach().array))


def test_double_backward_into_grad():
    x = leaf([3.0])
    (gradient,) = grad(x * x * x, [x], create_graph=True)
    gradient.backward()
    assert_gradient(x.grad, [18.0])


def test_hessian_of_several_inputs():
    x, y = leaf([3.0]), leaf([4.0])
    first = grad(x * x * y + y * y * y, [x, y], create_graph=True)
    rows = [grad(entry, [x, y], retain_graph=True) for entry in first]
    assert [[entry.item() for entry in row] for row in rows] == [[8.0, 6.0], [6.0, 24.0]]


def test_gradients_with_respect_to_the_cotangent():
    x, cotangent = leaf([3.0, 5.0]), leaf([1.0, 2.0])
    (gradient,) = grad(x * x, [x], cotangent, create_graph=True)
    by_cotangent, by_x = grad(gradient.sum(), [cotangent, x])
    assert_gradient(by_cotangent, [6.0, 10.0])
    assert_gradient(by_x, [2.0, 4.0])


def test_a_tracked_cotangent_is_a_constant_without_create_graph():
    x, cotangent = leaf([3.0]), leaf([1.0])
    (gradient,) = grad(x * x, [x], cotangent)
    assert gradient.requires_grad is False


# --- backward() and grad() -------------------------------------------------------------------------------------------


def test_grad_leaves_dot_grad_alone():
    x, y = leaf([1.0]), leaf([2.0])
    gradients = grad(x * y, [y, x])
    assert (x.grad, y.grad) == (None, None)
    assert_gradient(gradients[0], [1.0])
    assert_gradient(gradients[1], [2.0])


def test_grad_takes_one_tensor_for_a_sequence_of_one():
    x = leaf([3.0])
    (gradient,) = grad(x * x, x, constant([1.0]))
    assert_gradient(gradient, [6.0])


@pytest.mark.parametrize("how", ["method", "function"])
def test_backward_as_method_and_as_function(how):
    x = leaf([1.0, 2.0])
    total = (x * x).sum()
    if how == "method":
        assert total.backward() is None
    else:
        assert backward(total) is None
    assert_gradient(x.grad, [2.0, 4.0])


def test_only_the_inputs_get_gradients():
    x, y = leaf([1.0]), leaf([2.0])
    (x * y).backward(inputs=[x])
    assert_gradient(x.grad, [2.0])
    assert y.grad is None


def test_one_input_needs_no_list():
    x, y = leaf([1.0]), leaf([2.0])
    (x * y).backward(inputs=y)
    assert x.grad is None
    assert_gradient(y.grad, [1.0])


def test_an_input_that_is_no_leaf_gets_its_gradient():
    x = leaf([1.0])
    middle = x * 2.0
    (middle * 3.0).backward(inputs=[middle])
    assert_gradient(middle.grad, [3.0])
    assert x.grad is None


def test_an_input_that_is_no_leaf_accumulates():
    x = leaf([1.0])
    middle = x * 2.0
    for _ in range(2):
        (middle + middle).backward(inputs=[middle])
    assert_gradient(middle.grad, [4.0])


@pytest.mark.parametrize("inputs", [[], ()], ids=["list", "tuple"])
def test_backward_to_no_inputs_is_an_error(inputs):
    x = leaf([1.0])
    with pytest.raises(AutogradError, match="inputs"):
        (x * 2.0).backward(inputs=inputs)


def test_backward_to_an_input_that_requires_no_gradient():
    x = leaf([1.0])
    with pytest.raises(AutogradError, match="requires_grad"):
        (x * 2.0).backward(inputs=[constant([1.0])])


def test_the_same_input_twice():
    x = leaf([3.0])
    first, second = grad(x * x, [x, x])
    assert_gradient(first, [6.0])
    assert_gradient(second, [6.0])
    assert not np.shares_memory(first.array, second.array)


def test_the_same_output_twice():
    x = leaf([3.0])
    square = x * x
    (gradient,) = grad([square, square], [x])
    assert_gradient(gradient, [12.0])


def test_several_outputs_with_cotangents_of_their_own():
    x = leaf([3.0, 4.0])
    outputs = [x * x, x.sum(), x[0]]
    (gradient,) = grad(outputs, [x], [np.array([1.0, 10.0]), None, constant(100.0)])
    assert_gradient(gradient, [107.0, 81.0])


def test_an_input_that_is_an_output_gets_the_cotangent():
    x = leaf([1.0, 2.0])
    middle = x * 2.0
    for value in (x, middle):
        (gradient,) = grad(value, [value], np.array([3.0, 4.0]))
        assert_gradient(gradient, [3.0, 4.0])


def test_an_input_that_is_an_output_and_used_by_another():
    x = leaf([1.0])
    middle = x * 2.0
    (gradient,) = grad([middle, middle * 3.0], [middle])
    assert_gradient(gradient, [4.0])


def test_an_unused_input_is_named():
    x, y = leaf([1.0]), leaf([2.0])
    with pytest.raises(AutogradError, match=r"\b1\b(.|\n)*allow_unused=True"):
        grad(x * 2.0, [x, y])


def test_an_unused_input_is_none_where_that_is_allowed():
    x, y = leaf([1.0]), leaf([2.0])
    gradient, nothing = grad(x * 2.0, [x, y], allow_unused=True)
    assert_gradient(gradient, [2.0])
    assert nothing is None


@pytest.mark.parametrize("allow_unused", [None, True], ids=["by default", "allowed"])
def test_an_unused_input_is_zero_where_that_is_asked_for(allow_unused):
    x, y = leaf([1.0]), leaf([2.0, 3.0], np.float32)
    _, zeros = grad(x * 2.0, [x, y], materialize_grads=True, allow_unused=allow_unused)
    assert_gradient(zeros, np.zeros(2, np.float32))


def test_zeros_for_what_must_not_be_unused_contradict():
    x = leaf([1.0])
    with pytest.raises(ValueError, match="allow_unused"):
        grad(x * 2.0, [x], materialize_grads=True, allow_unused=False)


def test_an_input_that_requires_no_gradient():
    x = leaf([1.0])
    with pytest.raises(AutogradError, match=r"\b1\b"):
        grad(x * 2.0, [x, constant([1.0])])


def test_a_later_value_is_unused_by_an_earlier_one():
    x = leaf([1.0])
    first = x * 2.0
    later = first * 3.0
    assert grad(first, [later], allow_unused=True) == (None,)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_the_cotangent_of_one_element_is_one(shape):
    x = leaf(np.full(shape, 3.0))
    (x * x).backward()
    assert_gradient(x.grad, np.full(shape, 6.0))


IMPLICIT = {
    "two elements": lambda: leaf([1.0, 2.0]) * 1.0,
    "no element": lambda: leaf(np.zeros(0)) * 1.0,
    "complex": lambda: leaf(1.0, np.complex128) * 1.0,
}


@pytest.mark.parametrize("case", IMPLICIT)
def test_other_cotangents_have_to_be_given(case):
    with pytest.raises(AutogradError, match=r"scalar(.|\n)*cotangent"):
        IMPLICIT[case]().backward()
    with pytest.raises(AutogradError, match=r"scalar(.|\n)*cotangent"):
        backward([IMPLICIT[case]()])


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 2), (2, 1)], ids=str)
def test_cotangents_have_exactly_the_shape_of_the_output(shape):
    x = leaf([1.0, 2.0])
    with pytest.raises(AutogradError, match=r"\(2,\)"):
        (x * 2.0).backward(np.ones(shape))


COTANGENTS = {
    "Tensor": constant([1.0, 2.0]),
    "raw array": np.array([1.0, 2.0]),
    "ints": np.array([1, 2]),
    "float32": np.array([1.0, 2.0], np.float32),
}


@pytest.mark.parametrize("case", COTANGENTS)
def test_cotangents_are_cast_to_the_dtype_of_the_output(case):
    x, seen = leaf([3.0, 4.0]), []
    result = x * 2.0
    result.register_hook(seen.append)
    result.backward(COTANGENTS[case])
    assert_gradient(seen[0], [1.0, 2.0])
    assert_gradient(x.grad, [2.0, 4.0])


def test_a_float64_cotangent_of_a_float32_output():
    x, seen = leaf([3.0], np.float32), []
    result = x * 2.0
    result.register_hook(seen.append)
    result.backward(np.array([0.1]))
    assert_gradient(seen[0], np.array([0.1], np.float32))


def test_the_number_of_cotangents_is_that_of_the_outputs():
    x = leaf([1.0])
    with pytest.raises(AutogradError, match="cotangents"):
        grad([x * 1.0, x * 2.0], [x], [np.ones(1)])


def test_an_output_that_is_not_tracked():
    with pytest.raises(AutogradError, match="requires_grad"):
        constant([1.0]).backward()
    with pytest.raises(AutogradError, match="requires_grad"):
        (leaf([1.0]) * 2.0).detach().backward()
    with no_grad():
        untracked = leaf([1.0]) * 2.0
    with pytest.raises(AutogradError, match="requires_grad"):
        untracked.backward()


def test_backward_from_a_leaf():
    x = leaf([1.0, 2.0])
    x.backward(np.array([3.0, 4.0]))
    assert_gradient(x.grad, [3.0, 4.0])


def test_raw_arrays_are_refused_as_outputs_and_inputs():
    x = leaf([1.0])
    with pytest.raises(DispatchError, match="Tensor"):
        grad(x * 2.0, [np.ones(1)])
    with pytest.raises(DispatchError, match="Tensor"):
        grad(np.ones(1), [x])


# --- leaves and .grad ------------------------------------------------------------------------------------------------

INTEGRAL = {name: np.zeros(2, name) for name in ("bool", "int8", "int64", "uint16")}


@pytest.mark.parametrize("name", INTEGRAL)
def test_only_floats_and_complex_numbers_have_gradients(name):
    array = INTEGRAL[name]
    with pytest.raises(AutogradError, match=name):
        Tensor(array, requires_grad=True)
    tensor = Tensor(array)
    with pytest.raises(AutogradError, match=name):
        tensor.requires_grad = True
    with pytest.raises(AutogradError, match=name):
        tensor.requires_grad_()
    tensor.requires_grad_(False)
    assert tensor.requires_grad is False


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "longdouble", "complex64", "complex128"])
def test_floats_and_complex_numbers_may_require_gradients(name):
    assert Tensor(np.zeros(2, name), requires_grad=True).requires_grad


def test_requires_grad_is_settable():
    x = constant([1.0])
    assert (x.requires_grad, x.is_leaf, x.grad_fn, x.grad) == (False, True, None, None)
    x.requires_grad = True
    assert (x.requires_grad, x.is_leaf, x.grad_fn, x.grad) == (True, True, None, None)
    (x * 2.0).backward()
    assert_gradient(x.grad, [2.0])
    x.requires_grad = False
    assert (x * 2.0).requires_grad is False
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert x.requires_grad_(False) is x
    assert not x.requires_grad


def test_a_result_of_a_graph_stays_tracked():
    middle = leaf([1.0]) * 2.0
    assert (middle.requires_grad, middle.is_leaf) == (True, False)
    middle.requires_grad = True
    middle.requires_grad_()
    with pytest.raises(AutogradError, match="detach"):
        middle.requires_grad = False
    with pytest.raises(AutogradError, match="detach"):
        middle.requires_grad_(False)
    assert middle.requires_grad


def test_requires_grad_concerns_later_calls_only():
    x = constant([1.0])
    before = x * 2.0
    x.requires_grad = True
    assert not before.requires_grad
    after = x * 3.0
    x.requires_grad = False
    after.backward()
    assert not (x * 2.0).requires_grad


def test_a_detached_value_is_a_leaf_of_its_own():
    x = leaf([1.0])
    y = (x * 2.0).detach().requires_grad_()
    (y * 3.0).backward()
    assert_gradient(y.grad, [3.0])
    assert x.grad is None


def test_a_tensor_of_a_tensor_is_a_leaf_of_its_own():
    x = leaf([1.0])
    y = Tensor(x, requires_grad=True)
    (y * x).backward()
    assert_gradient(x.grad, [1.0])
    assert_gradient(y.grad, [1.0])


def test_asking_a_result_for_its_gradient_warns():
    middle = leaf([1.0]) * 2.0
    with pytest.warns(UserWarning, match="retain_grad"):
        assert middle.grad is None


def test_constants_and_retained_results_do_not_warn():
    assert constant([1.0]).grad is None
    assert leaf([1.0]).grad is None
    middle = leaf([1.0]) * 2.0
    middle.retain_grad()
    assert middle.grad is None


def test_later_gradients_are_added_in_place():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward()
    assert x.grad is first
    assert_gradient(first, [4.0, 8.0])


def test_with_create_graph_the_sum_is_a_new_object():
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    first = x.grad
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not first
    assert_gradient(first, [2.0, 4.0])
    assert_gradient(x.grad, [4.0, 8.0])
    assert x.grad.requires_grad
    x.grad = None       # breaks the cycle: x, its gradient, the graph of that


def test_gradients_without_create_graph_are_constants():
    x = leaf([1.0])
    (x * x).backward()
    assert (x.grad.requires_grad, x.grad.grad_fn, x.grad.is_leaf) == (False, None, True)


def test_a_gradient_that_the_user_set_is_added_to():
    x = leaf([1.0])
    mine = x.grad = constant([10.0])
    (x * 2.0).backward()
    assert x.grad is mine
    assert_gradient(mine, [12.0])


def test_accumulating_counts_as_a_write_to_the_gradient():
    x, y = leaf([1.0]), leaf([1.0])
    (x * 2.0).backward()
    used = y * x.grad
    (x * 2.0).backward()
    used.backward()
    assert_gradient(y.grad, [2.0])


def test_grad_is_settable():
    x = leaf([1.0, 2.0])
    gradient = x.grad = constant([3.0, 4.0])
    assert x.grad is gradient
    x.grad = None
    assert x.grad is None
    x.grad = gradient
    del gradient
    assert_gradient(x.grad, [3.0, 4.0])


UNFIT_GRADIENTS = {
    "shape": lambda: constant([1.0]),
    "dtype": lambda: constant([1.0, 2.0], np.float32),
    "complex": lambda: constant([1.0, 2.0], np.complex128),
    "type": lambda: "a gradient",
    "number": lambda: 1.0,
}


@pytest.mark.parametrize("case", UNFIT_GRADIENTS)
def test_a_gradient_must_fit(case):
    x = leaf([1.0, 2.0])
    with pytest.raises(DispatchError, match="grad"):
        x.grad = UNFIT_GRADIENTS[case]()
    assert x.grad is None


def test_a_result_keeps_its_gradient_on_request():
    x = leaf([1.0])
    middle = x * 2.0
    assert not middle.retains_grad
    middle.retain_grad()
    middle.retain_grad()
    assert middle.retains_grad
    (middle * 3.0).backward()
    assert_gradient(middle.grad, [3.0])
    assert_gradient(x.grad, [6.0])
    (middle * 3.0).backward(retain_graph=True)
    assert_gradient(middle.grad, [6.0])


def test_a_retained_gradient_of_several_uses_is_their_sum():
    middle = leaf([1.0]) * 2.0
    middle.retain_grad()
    (middle * 3.0 + middle * 5.0).backward()
    assert_gradient(middle.grad, [8.0])


def test_on_a_leaf_there_is_nothing_to_do():
    x = leaf([1.0])
    x.retain_grad()
    assert not x.retains_grad
    (x * 2.0).backward()
    assert_gradient(x.grad, [2.0])


def test_constants_have_no_gradient_to_retain():
    with pytest.raises(AutogradError, match="requires_grad"):
        constant([1.0]).retain_grad()


def test_the_root_keeps_the_cotangent():
    root = leaf([1.0]) * 2.0
    root.retain_grad()
    root.backward(np.array([5.0]))
    assert_gradient(root.grad, [5.0])


def test_one_of_several_results_of_a_node():
    first, second = NP.split(leaf([1.0, 2.0]), 2)
    second.retain_grad()
    (first * 2.0 + second * 3.0).backward()
    assert_gradient(second.grad, [3.0])
    with pytest.warns(UserWarning, match="retain_grad"):
        assert first.grad is None


def test_leaves_of_subclasses_have_gradients():
    class Parameter(Tensor):
        pass

    x = Parameter(np.array([1.0, 2.0]), requires_grad=True)
    (x * x).sum().backward()
    assert_gradient(x.grad, [2.0, 4.0])


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda value: pickle.loads(pickle.dumps(value))}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_of_a_leaf_is_a_leaf_of_its_own(how):
    x = leaf([1.0, 2.0])
    (x * x).sum().backward()
    y = COPIES[how](x)
    assert (y.requires_grad, y.is_leaf) == (True, True)
    assert not np.shares_memory(x.array, y.array)
    y.grad = None
    (y * 3.0).sum().backward()
    assert_gradient(x.grad, [2.0, 4.0])
    assert_gradient(y.grad, [3.0, 3.0])
    assert COPIES[how](constant([1.0])).requires_grad is False


@pytest.mark.parametrize("how", COPIES)
def test_a_result_of_a_graph_cannot_be_copied_without_its_graph(how):
    with pytest.raises(AutogradError, match="detach"):
        COPIES[how](leaf([1.0]) * 2.0)


def test_copy_copy_is_an_operator():
    x = leaf([1.0])
    copy.copy(x).backward()
    assert_gradient(x.grad, [1.0])


def test_iterating_is_differentiable():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    first, second = x
    (sum((row * row).sum() for row in x) + (first * second).sum()).backward()
    assert_gradient(x.grad, [[5.0, 8.0], [7.0, 10.0]])


LAYOUTS = {
    "0-d": np.array(3.0),
    "empty": np.zeros((0, 3)),
    "strided": np.arange(12.0).reshape(3, 4)[:, ::2],
    "Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "reversed": np.arange(4.0)[::-1],
    "read-only": np.frombuffer(np.arange(3.0).tobytes()),
    "byte-swapped": np.arange(3.0).astype(">f8"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_leaves_of_every_layout(layout):
    array = LAYOUTS[layout]
    x = Tensor(array, requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.shape == array.shape
    assert x.grad.dtype.type is array.dtype.type
    np.testing.assert_array_equal(x.grad.array, 4 * array)


# --- gradients belong to whoever asked -------------------------------------------------------------------------------


def keeping(gradient):
    """Return the identity, whose backward returns the very object `gradient`."""
    return scaled_by(lambda g: gradient)


CONSTANT = np.array([[1.0, 2.0], [3.0, 4.0]])
FIXED = constant(CONSTANT)
COTANGENT = np.array([[1.0, -1.0], [2.0, 0.5]])
ALIASING = {
    "the output itself": lambda x, y: x,
    "add": lambda x, y: x + y,
    "add a constant": lambda x, y: x + CONSTANT,
    "subtract": lambda x, y: x - y,
    "add to itself": lambda x, y: x + x,
    "positive": lambda x, y: +x,
    "copy": lambda x, y: x.copy(),
    "conjugate": lambda x, y: x.conj(),
    "real": lambda x, y: x.real,
    "astype": lambda x, y: x.astype(np.float64, copy=False),
    "multiply by one": lambda x, y: x * 1.0,
    "multiply by a constant": lambda x, y: x * CONSTANT,
    "reshape": lambda x, y: x.reshape(4).reshape(2, 2),
    "ravel": lambda x, y: x.ravel().reshape(2, 2),
    "transpose": lambda x, y: x.T.T,
    "swapaxes": lambda x, y: NP.swapaxes(NP.swapaxes(x, 0, 1), 0, 1),
    "flip": lambda x, y: NP.flip(NP.flip(x)),
    "squeeze": lambda x, y: NP.squeeze(NP.expand_dims(x, 0), 0),
    "getitem": lambda x, y: x[:],
    "getitem of halves": lambda x, y: NP.concatenate([x[:1], x[1:]]),
    "concatenate": lambda x, y: NP.concatenate([x, y])[:2],
    "stack": lambda x, y: NP.stack([x, y])[0],
    "split": lambda x, y: NP.concatenate(NP.split(x, 2)),
    "broadcast_to": lambda x, y: NP.broadcast_to(x, (2, 2)),
    "where": lambda x, y: NP.where(CONSTANT > 0.0, x, y),
    "clip": lambda x, y: x.clip(-100.0, 100.0),
    "maximum": lambda x, y: NP.maximum(x, -CONSTANT),
    "sum": lambda x, y: x.sum() + CONSTANT * 0.0,
    "sum along an axis": lambda x, y: x.sum(0, keepdims=True) + CONSTANT * 0.0,
    "sum along no axis": lambda x, y: x.sum(()),
    "mean": lambda x, y: x.mean() + CONSTANT * 0.0,
    "max": lambda x, y: x.max() + CONSTANT * 0.0,
    "roll": lambda x, y: NP.roll(x, 1),
    "take": lambda x, y: x.take(np.array([0, 1]), axis=0),
    "repeat": lambda x, y: x.repeat(1, axis=0),
    "matmul with the identity": lambda x, y: x @ np.eye(2),
    "cumsum": lambda x, y: x.cumsum(0),
    "in place": lambda x, y: x.copy().__iadd__(y),
    "setitem": lambda x, y: written(y.copy(), x),
    "Function returning a constant": lambda x, y: keeping(FIXED)(x),
    "Function returning its gradient": lambda x, y: scaled_by(lambda g: g)(x),
    "detached gradient": lambda x, y: scaled_by(lambda g: g.detach())(x),
}


def written(target, value):
    target[...] = value
    return target


def new_pair():
    return leaf([[1.0, 2.0], [3.0, 4.0]]), leaf([[5.0, 6.0], [7.0, 8.0]])


def assert_own_memory(results, strangers):
    """Assert that no result shares memory with another one or a stranger, and that each can be written to."""
    arrays = [result.array for result in results]
    for array in arrays:
        assert array.flags.writeable
        assert 0 not in array.strides
    for one, other in itertools.combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    for array, stranger in itertools.product(arrays, strangers):
        assert not np.shares_memory(array, stranger)


@pytest.mark.parametrize("create_graph", [False, True], ids=["once", "create_graph"])
@pytest.mark.parametrize("cotangent", ["raw", "Tensor"])
@together("case", ALIASING)
def test_gradients_from_grad_share_no_memory(case, cotangent, create_graph):
    x, y = new_pair()
    given = COTANGENT.copy()
    result = ALIASING[case](x, y)
    assert result.shape == given.shape
    found = [
        gradient
        for _ in range(2)
        for gradient in grad(result, [x, y, x], Tensor(given) if cotangent == "Tensor" else given, allow_unused=True,
                             retain_graph=True, create_graph=create_graph)
        if gradient is not None
    ]
    assert len(found) >= 4
    assert_own_memory(found, [given, CONSTANT, FIXED.array, x.array, y.array])
    np.testing.assert_array_equal(given, COTANGENT)


@pytest.mark.parametrize("cotangent", ["raw", "Tensor"])
@together("case", ALIASING)
def test_gradients_in_grad_share_no_memory(case, cotangent):
    x, y = new_pair()
    given = COTANGENT.copy()
    result = ALIASING[case](x, y)
    fixed = CONSTANT.copy()
    for _ in range(2):
        result.backward(Tensor(given) if cotangent == "Tensor" else given, retain_graph=True)
    found = [value.grad for value in (x, y) if value.grad is not None]
    assert_own_memory(found, [given, CONSTANT, FIXED.array, x.array, y.array])
    np.testing.assert_array_equal(given, COTANGENT)
    np.testing.assert_array_equal(CONSTANT, fixed)
    np.testing.assert_array_equal(FIXED.array, fixed)


def test_two_leaves_that_get_the_same_gradient():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    cotangent = constant([5.0, 6.0])
    (x + y).backward(cotangent)
    x.grad.array[:] = 0.0
    assert_gradient(y.grad, [5.0, 6.0])
    np.testing.assert_array_equal(cotangent.array, [5.0, 6.0])


def test_a_retained_gradient_and_a_leafs():
    x = leaf([1.0, 2.0])
    middle = x + 0.0
    middle.retain_grad()
    cotangent = np.array([5.0, 6.0])
    middle.backward(cotangent)
    assert_own_memory([x.grad, middle.grad], [cotangent])


def test_what_a_hook_kept_or_returned_is_not_aliased():
    x, mine, seen = leaf([1.0, 2.0]), constant([7.0, 8.0]), []
    x.register_hook(seen.append)
    x.register_hook(lambda g: mine)
    for _ in range(2):
        (x * 2.0).backward(np.ones(2))
    assert_gradient(x.grad, [14.0, 16.0])
    np.testing.assert_array_equal(mine.array, [7.0, 8.0])
    for gradient in seen:
        assert_gradient(gradient, [2.0, 2.0])
    assert_own_memory([x.grad], [mine.array, *(gradient.array for gradient in seen)])


def test_the_gradient_of_a_hooked_leaf_does_not_change_what_the_hook_saw():
    x, seen = leaf([1.0, 2.0]), []
    x.register_hook(seen.append)
    for _ in range(3):
        (x * 2.0).backward(np.ones(2))
    for gradient in seen:
        assert_gradient(gradient, [2.0, 2.0])


# --- None and zeros --------------------------------------------------------------------------------------------------


def test_a_leaf_whose_gradient_is_none_has_none():
    x = leaf([1.0])
    scaled_by(lambda g: None)(x).backward()
    assert x.grad is None


def test_grad_says_that_the_input_is_unused():
    x = leaf([1.0])
    result = scaled_by(lambda g: None)(x)
    with pytest.raises(AutogradError, match="allow_unused=True"):
        grad(result, [x], retain_graph=True)
    assert grad(result, [x], retain_graph=True, allow_unused=True) == (None,)
    (zeros,) = grad(result, [x], materialize_grads=True)
    assert_gradient(zeros, [0.0])


def test_nodes_above_a_gradient_of_none_still_run():
    log, x = [], leaf([1.0])
    middle = NP.sin(x)
    on_entry(middle, log, "sin")
    scaled_by(lambda g: None)(middle).backward()
    assert log == ["sin"]
    assert x.grad is None


def test_functions_get_zeros_in_place_of_none():
    seen, x = [], leaf([1.0, 2.0])
    middle = scaled_by(lambda g: seen.append(g) or g)(x)
    scaled_by(lambda g: None)(middle).backward(np.ones(2))
    assert_gradient(seen[0], [0.0, 0.0])


SILENT = {
    "sin": NP.sin,
    "multiply": lambda x: x * x,
    "sum": lambda x: x.sum() + np.zeros(2),
    "matmul": lambda x: x * (x @ x),
    "getitem": lambda x: x[:],
    "split": lambda x: NP.concatenate(NP.split(x, 2)),
    "concatenate": lambda x: NP.concatenate([x[:1], x[1:]]),
    "write": lambda x: written(x.copy(), x * 2.0),
}


@pytest.mark.parametrize("case", SILENT)
def test_every_formula_bears_a_gradient_of_none(case):
    x = leaf([1.0, 2.0])
    scaled_by(lambda g: None)(SILENT[case](x)).backward(np.ones(2))
    assert x.grad is None


def test_a_result_that_nobody_uses_contributes_nothing():
    x = leaf([1.0, 2.0])
    first, _ = NP.split(x, 2)
    (first * 3.0).backward()
    assert_gradient(x.grad, [3.0, 0.0])


# --- backward within backward, threads, errors, garbage --------------------------------------------------------------


def test_backward_in_a_hook():
    x, inner = leaf([3.0]), []

    def hook(g):
        with enable_grad():
            y = leaf([5.0])
            (y * y).backward()
        inner.append(y.grad)

    middle = x * 2.0
    middle.register_hook(hook)
    (middle * middle).backward()
    assert_gradient(x.grad, [24.0])
    assert_gradient(inner[0], [10.0])


def test_backward_in_a_function():
    class ByInnerGradient(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (saved,) = ctx.saved_tensors
            with enable_grad():
                inner = saved.detach().requires_grad_()
                (gradient,) = grad((inner * inner * inner).sum(), [inner])
            return g * gradient

    x = leaf([2.0, 3.0])
    (ByInnerGradient.apply(x * 1.0) * 2.0).sum().backward()
    assert_gradient(x.grad, [24.0, 54.0])


def test_backward_in_a_hook_over_the_same_leaf():
    x = leaf([3.0])

    def hook(g):
        with enable_grad():
            other = x * 10.0
        other.backward()

    middle = x * 2.0
    middle.register_hook(hook)
    middle.backward()
    assert_gradient(x.grad, [12.0])


def test_backward_in_a_hook_over_a_part_of_the_graph_that_is_running():
    x, inner = leaf([3.0]), []
    shared = NP.sin(x)
    first = shared * 2.0
    first.register_hook(lambda g: inner.extend(grad(shared, [x], retain_graph=True)))
    first.backward()
    assert_gradient(inner[0], np.cos([3.0]))
    assert_gradient(x.grad, 2.0 * np.cos([3.0]))


INNER_RUNS = {
    "grad": lambda value, x, y: grad(value, [y], retain_graph=True),
    "grad of the same input": lambda value, x, y: grad(value, [x], retain_graph=True),
    "backward": lambda value, x, y: value.backward(retain_graph=True),
    "backward to an input": lambda value, x, y: value.backward(inputs=[y], retain_graph=True),
    "backward to nothing that is reached": lambda value, x, y: grad(value, [leaf([1.0])], allow_unused=True),
}


@pytest.mark.parametrize("case", INNER_RUNS)
def test_a_pass_to_some_inputs_is_not_confused_by_one_inside_of_it(case):
    x, y = leaf([2.0]), leaf([3.0])
    product = x * y
    sine = NP.sin(product)
    sine.register_hook(lambda g: INNER_RUNS[case](product, x, y) and None)
    (gradient,) = grad(sine * 2.0, [x])
    assert_gradient(gradient, 2.0 * np.cos([6.0]) * 3.0)


def test_deeply_nested_backward():
    depth = 60

    class Nested(Function):
        @staticmethod
        def forward(ctx, x, interpreter):
            ctx.interpreter = interpreter
            ctx.save_for_backward(x)
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if ctx.interpreter == 0:
                return g * 2.0, None
            with enable_grad():
                inner = x.detach().requires_grad_()
                (gradient,) = grad(Nested.apply(inner, ctx.interpreter - 1), [inner], g)
            return gradient + 1.0, None

    x = leaf([1.0])
    Nested.apply(x, depth).backward()
    assert_gradient(x.grad, [depth + 2.0])


def test_backward_in_backward_without_end():
    x = leaf([1.0])
    y = x * 2.0
    handle = y.register_hook(lambda g: y.backward(retain_graph=True))
    with pytest.raises(RecursionError):
        y.backward(retain_graph=True)
    handle.remove()
    x.grad = None
    y.backward()
    assert_gradient(x.grad, [2.0])


@pytest.fixture
def switching_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(interval)


def in_threads(functions):
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return errors


@pytest.mark.usefixtures("switching_often")
def test_threads_that_share_a_leaf():
    x = leaf([1.0, 2.0])
    n_threads, n_steps = 8, 50

    def train():
        for _ in range(n_steps):
            (x * 1.0).sum().backward()

    assert in_threads([train] * n_threads) == []
    assert_gradient(x.grad, np.full(2, 1.0 * n_threads * n_steps))


@pytest.mark.usefixtures("switching_often")
def test_threads_with_graphs_of_their_own():
    totals = {}

    def work(seed):
        x = leaf([float(seed), 1.0])
        for _ in range(100):
            value = NP.sin(x) * x
            (gradient,) = grad(value.sum(), [x])
        totals[seed] = gradient

    assert in_threads([lambda seed=seed: work(seed) for seed in range(8)]) == []
    for seed, gradient in totals.items():
        values = np.array([float(seed), 1.0])
        assert_gradient(gradient, np.sin(values) + values * np.cos(values))


@pytest.mark.usefixtures("switching_often")
def test_threads_that_run_one_retained_graph():
    x = leaf([0.5])
    value = x
    for _ in range(50):
        value = NP.sin(value) + value
    (expected,) = grad(value, [x], retain_graph=True)
    found = []

    def work():
        for _ in range(20):
            found.extend(grad(value, [x], retain_graph=True))

    assert in_threads([work] * 4) == []
    assert len(found) == 80
    for gradient in found:
        assert_gradient(gradient, expected.array)


@pytest.mark.usefixtures("switching_often")
def test_threads_that_ask_one_graph_for_different_inputs():
    x, y = leaf([2.0]), leaf([3.0])
    value = x * y
    for _ in range(30):
        value = NP.sin(value) + value * 0.1
        value.register_hook(lambda g: time.sleep(0))       # lets another thread go on
    inputs = [x, y]
    expected = grad(value, inputs, retain_graph=True)

    def work(k):
        for _ in range(20):
            (gradient,) = grad(value, [inputs[k]], retain_graph=True)
            assert_gradient(gradient, expected[k].array)

    assert in_threads([lambda k=k: work(k % 2) for k in range(6)]) == []


@pytest.mark.usefixtures("switching_often")
def test_threads_that_run_a_graph_that_is_not_retained():
    # One thread is first. The others either run in time or raise, since the values are released.
    for _ in range(20):
        x = leaf([0.5])
        value = x
        for _ in range(20):
            value = NP.sin(value) + value
        expected = grad(value, [x], retain_graph=True)[0].array
        found = []
        errors = in_threads([lambda value=value, x=x, found=found: found.extend(grad(value, [x]))] * 4)
        assert len(found) >= 1
        assert len(found) + len(errors) == 4
        for gradient in found:
            assert_gradient(gradient, expected)
        for error in errors:
            assert isinstance(error, AutogradError)
            assert "retain_graph=True" in str(error)


@pytest.mark.usefixtures("switching_often")
def test_one_thread_builds_while_another_runs():
    x = leaf([1.0])
    shared = x * 2.0

    def build():
        for _ in range(200):
            NP.sin(shared) * shared

    def run():
        for _ in range(200):
            (shared + 1.0).backward(retain_graph=True)

    assert in_threads([build, run, build, run]) == []
    assert_gradient(x.grad, [800.0])


def test_an_error_in_backward_leaves_the_engine_usable():
    def fail(g):
        if failing:
            raise SabotageError
        return g * 5.0

    failing = [True]
    x, y = leaf([1.0]), leaf([2.0])
    early = NP.sin(x)
    risky = scaled_by(fail)(early)
    total = risky + y * 3.0
    with pytest.raises(SabotageError):
        total.backward(retain_graph=True)
    assert x.grad is None
    assert is_grad_enabled()
    y.grad = None
    failing.clear()
    total.backward()
    assert_gradient(x.grad, 5.0 * np.cos([1.0]))
    assert_gradient(y.grad, [3.0])


def test_gradients_that_had_arrived_stay():
    x, y = leaf([1.0]), leaf([2.0])

    def fail(g):
        raise SabotageError

    early = scaled_by(fail)(x)
    late = y * 3.0
    with pytest.raises(SabotageError):
        (early + late).backward()
    assert x.grad is None
    assert_gradient(y.grad, [3.0])


def test_an_error_in_a_hook():
    def fail(g):
        raise SabotageError

    x = leaf([1.0])
    middle = x * 2.0
    handle = middle.register_hook(fail)
    with pytest.raises(SabotageError):
        middle.backward(retain_graph=True)
    handle.remove()
    middle.backward()
    assert_gradient(x.grad, [2.0])


def test_an_error_within_a_nested_backward():
    def fail(g):
        raise SabotageError

    def nest(g):
        with enable_grad():
            scaled_by(fail)(leaf([1.0])).backward()

    x = leaf([1.0])
    middle = x * 2.0
    handle = middle.register_hook(nest)
    with pytest.raises(SabotageError):
        middle.backward(retain_graph=True)
    handle.remove()
    middle.backward()
    assert_gradient(x.grad, [2.0])


def own_output_saved():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            result = NP.exp(x)
            ctx.save_for_backward(result)
            return result

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    return Exp.apply


SAVING = {
    "exp": NP.exp,
    "tanh": NP.tanh,
    "sqrt": NP.sqrt,
    "exp_ in place": lambda x: NP.exp_(x * 1.0),
    "tanh_ of a view": lambda x: NP.tanh_((x * 1.0)[:1]),
    "prod": lambda x: x.prod(),
    "max": lambda x: x.max(),
    "cumprod": lambda x: x.cumprod(0),
    "std": lambda x: x.std(),
    "split": lambda x: NP.split(x, 2)[0],
    "view": lambda x: (x * 1.0)[:1],
    "multiply by itself": lambda x: x * x,
    "Function that saves its output": lambda x: own_output_saved()(x),
    "retained gradient": lambda x: retaining(x * 2.0),
    "after grad": lambda x: differentiated(NP.exp(x)),
    "after create_graph": lambda x: differentiated(NP.exp(x), create_graph=True),
    "gradient that is tracked": lambda x: differentiated(NP.exp(x), x, create_graph=True),
}


def retaining(value):
    value.retain_grad()
    value.sum().backward()
    return value


def differentiated(value, wrt=None, **options):
    """Return `value` after its gradient was taken, or that gradient."""
    x = wrt if wrt is not None else value
    (gradient,) = grad(value.sum(), [x], retain_graph=True, **options)
    return value if wrt is None else gradient


@pytest.mark.parametrize("case", SAVING)
def test_results_are_freed_without_the_collector(case):
    gc.collect()
    gc.disable()
    try:
        value = SAVING[case](leaf([1.0, 2.0]))
        node, result = weakref.ref(value.grad_fn), weakref.ref(value)
        del value
        assert result() is None
        assert node() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("case", SAVING)
def test_results_are_freed_after_backward_without_the_collector(case):
    gc.collect()
    gc.disable()
    try:
        x = leaf([1.0, 2.0])
        value = SAVING[case](x)
        value.sum().backward(retain_graph=True)
        node, result, source = weakref.ref(value.grad_fn), weakref.ref(value), weakref.ref(x)
        del value, x
        assert result() is None
        assert node() is None
        assert source() is None
    finally:
        gc.enable()


CYCLES = {
    "hook that holds its tensor": lambda x: hooked_by_itself(x * 2.0),
    "prehook that holds its tensor": lambda x: prehooked_by_itself(x * 2.0),
    "leaf's hook that holds the leaf": lambda x: hooked_by_itself(x),
    "gradient with a graph": lambda x: with_graph_in_grad(x),
    "Function whose context holds its result": lambda x: held_by_context(x),
}


def hooked_by_itself(value):
    value.register_hook(lambda g: value and None)
    return value


def prehooked_by_itself(value):
    value.grad_fn.register_prehook(lambda gradients: value and None)
    return value


def with_graph_in_grad(x):
    (x * x).sum().backward(create_graph=True)
    return x


def held_by_context(x):
    class Holding(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.result = x * 1.0
            return ctx.result

        @staticmethod
        def backward(ctx, g):
            return g

    return Holding.apply(x)


@pytest.mark.parametrize("case", CYCLES)
def test_cycles_that_users_make_are_collected(case):
    value = CYCLES[case](leaf([1.0, 2.0]))
    gone = weakref.ref(value)
    del value
    gc.collect()
    assert gone() is None


def test_a_graph_outlives_the_tensors_it_came_from():
    x = leaf([1.0, 2.0])
    total = (NP.sin(x * 2.0) * constant([3.0, 4.0])).sum()
    gc.collect()
    total.backward()
    assert_gradient(x.grad, 2.0 * np.cos([2.0, 4.0]) * [3.0, 4.0])


def test_a_leaf_that_is_gone_takes_its_gradient_with_it():
    x = leaf([3.0])
    total = (leaf([1.0]) * 2.0) * x
    gc.collect()
    total.backward()
    assert_gradient(x.grad, [2.0])
