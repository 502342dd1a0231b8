"""Writes in place: through arrays, views and bases, tracked or not. What they do to gradients, and which are refused.

The same program runs on Tensors, whose gradients are asked for, and on arrays, for central differences.
"""

import operator
import re
from pathlib import Path

import numpy as np
import pytest

import pydispatch
from pydispatch import Tensor, func, ops
from pydispatch.autograd import Function, grad, no_grad
from pydispatch.autograd.residuals import watching_copies
from pydispatch.autograd.views import WriteProblem
from pydispatch.exceptions import AutogradError, DispatchError
from pydispatch.tracing import make_fx
from tests.autograd.leaves import assert_gradient, constant, gradient_by_differences, leaf
from tests.together import together

NP = ops.np
X = np.array([[0.3, -1.2, 0.7], [1.1, 0.4, -0.6]])
S = np.array(0.8)


def assert_right_gradients(program, *arrays):
    """Assert that the gradients of `program(*arrays)`, weighted element by element, agree with central differences."""
    shape = np.shape(program(*(array.copy() for array in arrays)))
    weights = np.cos(np.arange(1.0, 1.0 + np.prod(shape, dtype=int))).reshape(shape)
    leaves = [leaf(array) for array in arrays]
    found = grad((program(*leaves) * weights).sum(), leaves, materialize_grads=True)
    expected = gradient_by_differences(lambda *values: program(*values) * weights, *arrays)
    for value, array, gradient, reference in zip(leaves, arrays, found, expected, strict=True):
        assert_gradient(gradient, reference, rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(value.array, array)


# --- every view, every write, read through every path ----------------------------------------------------------------

VIEWS = {
    "all": lambda b: b[...],
    "slice": lambda b: b[:, 1:],
    "row": lambda b: b[1],
    "step": lambda b: b[:, ::2],
    "backwards": lambda b: b[::-1, ::-1],
    "new axis": lambda b: b[:, None],
    "one element": lambda b: b[1, 2, ...],
    "nothing": lambda b: b[:, 3:],
    "reshape": lambda b: b.reshape(3, 2),
    "ravel": lambda b: b.ravel(),
    "transpose": lambda b: b.transpose(),
    "transpose by axes": lambda b: NP.transpose(b, (1, 0)),
    "T": lambda b: b.T,
    "mT": lambda b: b.mT,
    "swapaxes": lambda b: b.swapaxes(0, 1),
    "moveaxis": lambda b: NP.moveaxis(b, 0, 1),
    "expand_dims": lambda b: NP.expand_dims(b, 1),
    "squeeze": lambda b: NP.squeeze(b[1:]),
    "flip": lambda b: NP.flip(b),
    "flip of an axis": lambda b: NP.flip(b, 1),
    "astype": lambda b: b.astype(np.float64, copy=False),
    "real": lambda b: NP.real(b),
    "slice of slice": lambda b: b[:, 1:][1:, 1:],
    "flip of transpose of slice": lambda b: NP.flip(b[:, 1:].T, 0),
    "slice of reshape": lambda b: b.reshape(-1)[1:5:2],
    "diagonal": lambda b: NP.diagonal(b),
    "diagonal of reshape": lambda b: NP.diagonal(b.reshape(3, 2), -1, 1, 0),
    "reshape of step": lambda b: b[:, ::3].reshape(2),
    "reshape that copies": lambda b: b.T.reshape(-1),
}
WRITES = {
    "scale": lambda v, s: NP.multiply_(v, 3.0),
    "scale by tracked": lambda v, s: NP.multiply_(v, s),
    "add tracked": lambda v, s: NP.add_(v, s),
    "set constant": lambda v, s: NP.setitem_(v, ..., 5.0),
    "set tracked": lambda v, s: NP.setitem_(v, ..., s * s),
    "result needed": lambda v, s: NP.exp_(v),
    "input needed": lambda v, s: NP.sin_(v),
    "both": lambda v, s: NP.multiply_(v, v + s),
    "twice": lambda v, s: NP.add_(NP.multiply_(v, s), 1.0),
}
READERS = {
    "base": lambda b, v, before, after: b,
    "view": lambda b, v, before, after: v,
    "other view": lambda b, v, before, after: before,
    "later view": lambda b, v, before, after: after,
    "all of them": lambda b, v, before, after: NP.concatenate([b.ravel(), v.ravel(), before * b[0, 1], after.ravel()]),
}


@together("reader", READERS)
@together("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_through_a_view_is_seen_through_every_path(view, write, reader):
    def program(x, s):
        base = x * 1.0
        through, before = VIEWS[view](base), base.reshape(-1)[1:]
        early = before * 2.0
        WRITES[write](through, s)
        after = base[:, 1]
        return NP.concatenate([READERS[reader](base, through, before, after).ravel(), early])

    assert_right_gradients(program, X, S)


@together("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_through_the_base_is_seen_through_views(view, write):
    def program(x, s):
        base = x * 1.0
        through = VIEWS[view](base)
        early = through * 2.0
        WRITES[write](base, s)
        return NP.concatenate([through.ravel(), early.ravel(), VIEWS[view](base).ravel()])

    assert_right_gradients(program, X, S)


@together("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_write_into_memory_that_was_not_tracked(view, write):
    def program(x, s):
        base = type_of(x)(np.ones((2, 3)))
        through, before = VIEWS[view](base), base[:, 1:]
        WRITES[write](through, s)
        return NP.concatenate([base.ravel(), before.ravel() * 2.0, through.ravel() * 3.0, x.ravel()])

    assert_right_gradients(program, X, S)


def type_of(x):
    """Return the function that makes a constant of the same kind."""
    return Tensor if isinstance(x, Tensor) else np.array


COMPLEX_VIEWS = {
    "real": lambda z: z.real,
    "imag": lambda z: z.imag,
    "real of slice": lambda z: z[:, 1:].real,
    "slice of imag": lambda z: z.imag[1:],
    "transpose of real": lambda z: z.real.T,
}


@pytest.mark.parametrize("view", COMPLEX_VIEWS)
@together("write", WRITES)
def test_a_write_through_a_part_of_complex_numbers(view, write):
    def program(x, s):
        base = x * (1.0 + 0.5j) + 0.25j
        through, other = COMPLEX_VIEWS[view](base), base.imag
        WRITES[write](through, s)
        return NP.concatenate([(base * base).real.ravel(), other.ravel(), through.ravel()])

    assert_right_gradients(program, X, S)


@pytest.mark.parametrize("view", COMPLEX_VIEWS)
def test_a_write_through_the_base_is_seen_through_parts_of_complex_numbers(view):
    def program(x, s):
        base = x * (1.0 + 0.5j)
        through = COMPLEX_VIEWS[view](base)
        base *= s * 1j
        return through * 1.0

    assert_right_gradients(program, X, S)


# --- programs of several writes --------------------------------------------------------------------------------------


def base_and_view_in_turn(x, s):
    base = x * 1.0
    view = base[0]
    view *= s
    base += view
    view *= 2.0
    base *= s
    return base * view


def two_views_that_overlap(x, s):
    base = x * 1.0
    left, right = base[:, :2], base[:, 1:]
    left *= s
    right += left
    left *= right.copy()
    return NP.concatenate([base, left, right], axis=1)


def views_of_views(x, s):
    base = x * 1.0
    rows = base[:, 1:]
    element = rows[1, 0, ...]
    element *= s
    rows += element
    base *= rows[:, :1].copy()
    return base * element


def rows_of_a_table(x, s):
    table = x * 0.0
    for i in range(2):
        table[i] = NP.sin(x[i]) * s
    return table


def recurrence(x, s):
    state = x * 1.0
    for i in range(2):
        state[:, i + 1] = state[:, i].copy() * s + state[:, i + 1]
    return state


def copies_are_apart(x, s):
    base = x * 1.0
    copy = base.copy()
    copy *= s
    return NP.concatenate([base, copy])


def swapped(x, s):
    base = x * 1.0
    first = base[0].copy()
    base[0] = base[1].copy() * s
    base[1] = first
    return base * x


def overwritten_altogether(x, s):
    base = NP.sin(x)
    base[...] = s
    return base


def written_where_true(x, s):
    base = x * 1.0
    base[np.array([[True, False, True], [False, True, False]])] = s
    return base * x


def written_at_indices(x, s):
    base = x * 1.0
    view = base.T
    base[np.array([1, 0]), np.array([2, 2])] = x[0, :2] * s
    return view * 1.0


def view_written_at_indices(x, s):
    base = x * 1.0
    row = base[1]
    row[np.array([2, 0])] = x[0, :2] * s
    return base * 2.0


def accumulated_at_indices(x, s):
    base = x * 1.0
    NP.index_put_(base, (np.array([1, 1, 0]),), x[:1] * s, accumulate=True)
    return base * 1.0


def scattered(x, s):
    base = x * 1.0
    NP.scatter_add_(base, np.array([[0, 0], [2, 1]]), x[:, :2] * s, 1)
    return base * x


def write_of_itself(x, s):
    base = x * 1.0
    base[:] = base.copy() * s
    base[0] = base[1]
    base += base.copy()
    return base


def broadcast_write(x, s):
    base = x * 1.0
    base += x[0] * s
    base *= x[:, :1]
    return base


def no_view_of_zero_size(x, s):
    base = x * 1.0
    base[:, 3:] *= s
    return base * 2.0


PROGRAMS = (
    base_and_view_in_turn, two_views_that_overlap, views_of_views, rows_of_a_table, recurrence, copies_are_apart,
    swapped, overwritten_altogether, written_where_true, written_at_indices, view_written_at_indices,
    accumulated_at_indices, scattered, write_of_itself, broadcast_write, no_view_of_zero_size)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_of_several_writes(program):
    assert_right_gradients(program, X, S)


def test_in_place_operators_return_the_very_object():
    value = leaf([1.0, 2.0]) * 1.0
    same = value
    value += 1.0
    assert value is same
    assert NP.multiply_(value, 2.0) is same


def test_earlier_consumers_keep_the_earlier_node():
    x = leaf([1.0])
    value = x * 2.0
    node = value.grad_fn
    early = value + 0.0
    value *= 3.0
    assert value.grad_fn is not node
    assert early.grad_fn.next_functions[0][0] is node
    assert value.grad_fn.next_functions[0][0] is node


def test_the_node_of_a_view_follows_the_base():
    value = leaf([1.0, 2.0]) * 1.0
    view = value[:1]
    before = view.grad_fn
    assert view.grad_fn is before
    value *= 3.0
    after = view.grad_fn
    assert after is not before
    assert view.grad_fn is after


def test_the_node_of_the_base_follows_the_view():
    value = leaf([1.0, 2.0]) * 1.0
    before = value.grad_fn
    view = value[:1]
    view *= 3.0
    assert value.grad_fn is not before


def test_a_plain_base_becomes_tracked():
    base = constant([0.0, 0.0, 0.0])
    view, other = base[:2], base[2:]
    assert (base.is_leaf, base.requires_grad, view.requires_grad) == (True, False, False)
    x = leaf(2.0)
    base[1] = x
    for value in (base, view, other):
        assert (value.requires_grad, value.is_leaf) == (True, False)
        assert value.grad_fn is not None
    (base * np.array([1.0, 10.0, 100.0])).sum().backward()
    assert_gradient(x.grad, 10.0)


def test_a_constant_written_to_plain_memory_leaves_it_plain():
    x, base = leaf([1.0, 2.0]), constant([0.0, 0.0])
    base[:] = 5.0
    base += x.detach()
    with no_grad():
        base *= x
    assert not base.requires_grad


def test_gradients_written_over_end_there():
    x, base = leaf([1.0, 2.0]), constant([0.0, 0.0])
    base[:] = x
    base[0] = 5.0
    base.sum().backward()
    assert_gradient(x.grad, [0.0, 1.0])


def test_in_place_operators_make_a_plain_target_tracked():
    x, target = leaf([2.0, 3.0]), constant([5.0, 7.0])
    target *= x
    assert target.requires_grad
    target.sum().backward()
    assert_gradient(x.grad, [5.0, 7.0])


# --- where the history of a memory is not touched --------------------------------------------------------------------


def untracked_write(how, target, value):
    if how == "no_grad":
        with no_grad():
            target[...] = value
    else:
        target.detach()[...] = value


@pytest.mark.parametrize("through", ["base", "view"])
@pytest.mark.parametrize("how", ["no_grad", "detach"])
def test_untracked_writes_change_values_and_leave_gradients(how, through):
    x = leaf([1.0, 2.0])
    base = x * 3.0
    view = base[:1]
    target = base if through == "base" else view
    node = base.grad_fn
    untracked_write(how, target, 9.0)
    assert base.grad_fn is node
    assert base.array[0] == 9.0
    assert view.array[0] == 9.0
    assert base._version == view._version == 1
    assert_gradient(grad(base.sum(), [x], retain_graph=True)[0], [3.0, 3.0])
    assert_gradient(grad(view.sum(), [x])[0], [3.0, 0.0])


@pytest.mark.parametrize("how", ["no_grad", "detach"])
@pytest.mark.parametrize("through", ["base", "view", "view of a view", "detached view"])
def test_what_was_saved_survives_untracked_writes(how, through):
    x = leaf([1.0, 2.0])
    base = x * 3.0
    square = base * base
    target = {
        "base": lambda: base,
        "view": lambda: base[1:],
        "view of a view": lambda: base[:][1:],
        "detached view": lambda: base[1:].detach(),
    }[through]()
    untracked_write(how, target, 9.0)
    square.sum().backward()
    assert_gradient(x.grad, [18.0, 36.0])


def test_a_detached_tensor_of_a_tensor_shares_the_counter():
    x = leaf([1.0, 2.0])
    base = x * 3.0
    square = base * base
    Tensor(base)[...] = 9.0
    square.sum().backward()
    assert_gradient(x.grad, [18.0, 36.0])


def test_a_detached_memory_tracks_what_is_written_to_it_for_itself():
    x, y = leaf([1.0, 2.0]), leaf([5.0, 7.0])
    base = x * 3.0
    other = base.detach()
    other *= y
    assert other.requires_grad
    assert_gradient(grad(base.sum(), [x, y], materialize_grads=True)[1], [0.0, 0.0])
    assert_gradient(grad(other.sum(), [y])[0], [3.0, 6.0])


def test_a_detached_view_does_not_make_its_base_tracked():
    base, y = constant([1.0, 2.0]), leaf([5.0])
    other = base[:1].detach()
    other *= y
    assert not base.requires_grad
    assert other.requires_grad
    np.testing.assert_array_equal(base.array, [5.0, 2.0])


# --- versions of saved values ----------------------------------------------------------------------------------------


def test_every_write_counts_once_and_views_share_the_count():
    value = leaf([1.0, 2.0]) * 1.0
    view, detached = value[:1], value.detach()
    assert value._version == 0
    value += 1.0
    view *= 2.0
    detached[0] = 5.0
    with no_grad():
        NP.exp_(value[1:])
    assert [t._version for t in (value, view, detached, value.T, value.copy())] == [4, 4, 4, 4, 0]


# An operator, and what its formula needs: "x", "y", "result".
NEEDS = {
    "exp": (lambda x, y: NP.exp(x), ["result"]),
    "tanh": (lambda x, y: NP.tanh(x), ["result"]),
    "sqrt": (lambda x, y: NP.sqrt(x), ["result"]),
    "sin": (lambda x, y: NP.sin(x), ["x"]),
    "log": (lambda x, y: NP.log(x), ["x"]),
    "multiply": (lambda x, y: x * y, ["x", "y"]),
    "matmul": (lambda x, y: x @ y, ["x", "y"]),
    "add": (lambda x, y: x + y, []),
    "subtract": (lambda x, y: x - y, []),
    "sum": (lambda x, y: x.sum(0), []),
    "mean": (lambda x, y: x.mean(0), []),
    "reshape": (lambda x, y: x.reshape(-1) * 1.0, []),
    "concatenate": (lambda x, y: NP.concatenate([x, y]), []),
    "where": (lambda x, y: NP.where(np.array([True, False]), x, y), []),
    "take": (lambda x, y: x.take(np.array([0]), axis=0), []),
    "cumsum": (lambda x, y: x.cumsum(0), []),
}
CASES = [(name, value) for name in NEEDS for value in ("x", "y", "result")]


@pytest.mark.parametrize(("name", "value"), CASES, ids=[f"{name}-{value}" for name, value in CASES])
def test_a_value_is_copied_exactly_where_it_is_needed(name, value):
    function, needed = NEEDS[name]
    x, y = leaf([[0.5, 2.0], [1.5, 0.7]]), leaf([[3.0, 1.0], [0.3, 2.0]])
    inputs = {"x": x * 1.0, "y": y * 1.0}
    result = function(*inputs.values())
    early = result * 2.0
    target = result if value == "result" else inputs[value]
    copies = []
    with no_grad(), watching_copies(lambda *pair: copies.append(pair)):
        target *= 7.0
    assert len(copies) == (value in needed)
    leaves = [x, y]
    untouched = function(x, y)
    found = grad(early.sum(), leaves, materialize_grads=True)
    expected = grad((untouched * 2.0).sum(), leaves, materialize_grads=True)
    for one, other in zip(found, expected, strict=True):
        assert_gradient(one, other.array)


def test_each_node_gets_the_value_that_it_saved():
    x, y = leaf([1.0]), leaf([2.0])
    changed = y * 1.0
    products = []
    for _ in range(5):
        products.append(x * changed)
        changed += 1.0
    for i, product in enumerate(products):
        assert_gradient(grad(product, [y], retain_graph=True)[0], [1.0])
        assert_gradient(grad(product, [x])[0], [2.0 + i])


def test_writes_past_the_tensor_are_not_seen():
    x = leaf([1.0, 2.0])
    value = x * 1.0
    square = value * value
    value.array[0] = 5.0
    assert value._version == 0
    square.sum().backward()
    assert_gradient(x.grad, [10.0, 4.0])


def test_what_is_not_tracked_needs_nothing_of_the_other():
    x, c = leaf([2.0, 3.0]), constant([5.0, 7.0])
    value = x * 1.0
    product = value * c
    value += 1.0
    product.sum().backward()
    assert_gradient(x.grad, [5.0, 7.0])


def test_a_leaf_that_was_saved_and_written_to_under_no_grad():
    x = leaf([2.0, 3.0])
    square = x * x
    with no_grad():
        x += 1.0
    square.sum().backward()
    assert_gradient(x.grad, [4.0, 6.0])


SELF_WRITES = {
    "exp_": (lambda v: NP.exp_(v), np.exp),
    "sin_": (lambda v: NP.sin_(v), np.sin),
    "sqrt_": (lambda v: NP.sqrt_(v), np.sqrt),
    "multiply_ by a constant": (lambda v: NP.multiply_(v, 3.0), lambda v: 3.0 * v),
    "multiply_ by a function of itself": (lambda v: NP.multiply_(v, v + 1.0), lambda v: v * (v + 1.0)),
    "reciprocal_": (lambda v: NP.reciprocal_(v), lambda v: 1.0 / v),
    "divide_": (lambda v: NP.divide_(v, v + 1.0), lambda v: v / (v + 1.0)),
    "power_": (lambda v: NP.power_(v, 3.0), lambda v: v**3),
    "add_ of itself": (lambda v: NP.add_(v, v), lambda v: 2.0 * v),
    "square_": (lambda v: NP.square_(v), np.square),
    "two in a row": (lambda v: NP.exp_(NP.sin_(v)), lambda v: np.exp(np.sin(v))),
    "three in a row": (lambda v: NP.sin_(NP.cos_(NP.sin_(v))), lambda v: np.sin(np.cos(np.sin(v)))),
}


@pytest.mark.parametrize("through", ["value", "view"])
@together("case", SELF_WRITES)
def test_a_value_overwritten_by_what_needs_it(case, through):
    write, reference = SELF_WRITES[case]
    array = np.array([0.5, 1.5])
    x = leaf(array)
    value = x * 1.0
    write(value if through == "value" else value[:])
    value.sum().backward()
    (expected,) = gradient_by_differences(reference, array)
    assert_gradient(x.grad, expected, rtol=1e-7)


@pytest.mark.parametrize("case", SELF_WRITES)
def test_second_derivatives_of_a_value_overwritten_by_what_needs_it(case):
    write, reference = SELF_WRITES[case]
    array = np.array([0.5, 1.5])
    x = leaf(array)
    (first,) = grad(write(x * 1.0).sum(), [x], create_graph=True)
    weighted = (first * np.array([1.0, 2.0])).sum() + 0.0 * x.sum()
    (second,) = grad(weighted, [x])
    step = 1e-4
    curvature = (reference(array + step) - 2.0 * reference(array) + reference(array - step)) / step**2
    assert_gradient(second, curvature * [1.0, 2.0], rtol=1e-5, atol=1e-5)


OVERLAPPING = {
    "itself": lambda v: NP.multiply_(v, v),
    "a view of itself": lambda v: NP.multiply_(v, v[:]),
    "one of its elements": lambda v: NP.multiply_(v, v[:1]),
    "the other way round": lambda v: NP.multiply_(v, v[::-1]),
    "an overlapping view": lambda v: NP.multiply_(v[1:], v[:-1]),
    "itself in a quotient": lambda v: NP.divide_(v, v[:1]),
    "itself as the exponent": lambda v: NP.power_(v, v),
    "itself written to itself": lambda v: NP.setitem_(v, slice(1, None), v[:-1]),
}


@pytest.mark.parametrize("case", OVERLAPPING)
def test_operands_that_share_memory_with_the_target(case):
    def program(x):
        value = x * 1.0
        OVERLAPPING[case](value)
        return value

    assert_right_gradients(program, np.array([0.5, 1.5, 2.5]))


# --- what is refused -------------------------------------------------------------------------------------------------


def in_place(target):
    target *= 2.0


WAYS_TO_WRITE = {
    "operator": in_place,
    "setitem": lambda target: target.__setitem__(..., 2.0),
    "function": lambda target: NP.exp_(target),
    "by index": lambda target: NP.index_put_(target, np.array([0]), 2.0),
    "tracked value": lambda target: NP.add_(target, leaf(1.0)),
}


def base_of(values):
    return leaf(values) * 1.0


REFUSED = {
    "leaf": lambda: leaf([1.0, 2.0]),
    "view of a leaf": lambda: leaf([1.0, 2.0])[:1],
    "view of a view of a leaf": lambda: leaf([1.0, 2.0])[:1].reshape(1, 1),
    "flipped leaf": lambda: NP.flip(leaf([1.0, 2.0])),
    "view made in no_grad": lambda: view_made_in_no_grad(base_of([1.0, 2.0])),
    "view of a view made in no_grad": lambda: view_made_in_no_grad(base_of([1.0, 2.0]))[:1],
    "broadcast": lambda: NP.broadcast_to(base_of([1.0, 2.0]), (3, 2)),
    "view of a broadcast": lambda: NP.broadcast_to(base_of([1.0, 2.0]), (3, 2))[:2],
    "view that a Function made": lambda: ViewInFunction.apply(base_of([1.0, 2.0])),
}
OVERLAPPING_ITSELF = ("broadcast", "view of a broadcast", "view that a Function made")


def view_made_in_no_grad(base):
    with no_grad():
        return base[:]


class ViewInFunction(Function):
    @staticmethod
    def forward(ctx, x):
        return x.reshape(2, 1)

    @staticmethod
    def backward(ctx, g):
        return g.reshape(2)


@pytest.mark.parametrize("write", WAYS_TO_WRITE)
@together("case", REFUSED)
def test_writes_that_are_refused_change_nothing(case, write):
    target = REFUSED[case]()
    before, version = target.array.copy(), target._version
    with pytest.raises((AutogradError, ValueError)) as caught:
        WAYS_TO_WRITE[write](target)
    assert isinstance(caught.value, DispatchError) or case in OVERLAPPING_ITSELF
    np.testing.assert_array_equal(target.array, before)
    assert target._version == version or not isinstance(caught.value, AutogradError)


@pytest.mark.parametrize("case", [case for case in REFUSED if case not in OVERLAPPING_ITSELF])
def test_writes_that_are_refused_name_the_operator_and_a_remedy(case):
    with pytest.raises(AutogradError, match=r"(?s)multiply_.*\n") as caught:
        in_place(REFUSED[case]())
    assert any(word in str(caught.value) for word in ("no_grad", "copy", "detach"))


def test_a_write_to_a_base_whose_view_became_a_leaf():
    base = constant([1.0, 2.0])
    view = base[:1]
    base.requires_grad_()
    with pytest.raises(AutogradError):
        view *= 2.0
    np.testing.assert_array_equal(base.array, [1.0, 2.0])


@pytest.mark.parametrize("target", ["leaf", "view"])
def test_leaves_may_be_written_to_under_no_grad(target):
    x = leaf([1.0, 2.0])
    with no_grad():
        (x if target == "leaf" else x[:]).__imul__(10.0)
    assert (x.is_leaf, x.requires_grad, x._version) == (True, True, 1)
    (x * x).sum().backward()
    assert_gradient(x.grad, [20.0, 40.0])


def test_a_leaf_may_be_written_to_through_detach():
    x = leaf([1.0, 2.0])
    x.detach()[0] = 10.0
    (x * x).sum().backward()
    assert_gradient(x.grad, [20.0, 4.0])


def test_a_refused_write_of_a_tracked_value_into_a_leaf_leaves_the_leaf_usable():
    x, y = leaf([1.0]), leaf([2.0])
    with pytest.raises(AutogradError):
        x += y
    assert (x.is_leaf, x.requires_grad) == (True, True)
    (x * y).backward()
    assert_gradient(x.grad, [2.0])


def test_reading_parts_of_a_split_is_fine_and_so_is_writing_a_copy():
    x = leaf([1.0, 2.0])
    first, second = NP.split(x * 1.0, 2)
    mine = first.copy()
    mine *= 3.0
    (mine + second * 5.0).backward()
    assert_gradient(x.grad, [3.0, 5.0])


def test_parts_of_a_split_follow_a_base_that_is_written_to():
    x = leaf([1.0, 2.0])
    base = x * 1.0
    first, second = NP.split(base, 2)
    base *= 3.0
    (first * 5.0 + second * 7.0).backward()
    assert_gradient(x.grad, [15.0, 21.0])


def test_a_view_made_in_no_grad_of_a_base_written_to_later_is_refused():
    base = base_of([1.0, 2.0])
    view = view_made_in_no_grad(base)
    base *= 3.0
    with pytest.raises(AutogradError, match="no_grad"):
        view * 2.0


@pytest.mark.parametrize("make", ["split", "view made in no_grad"])
def test_such_views_may_be_written_to_under_no_grad(make):
    x = leaf([1.0, 2.0])
    base = x * 1.0
    view = NP.split(base, 2)[0] if make == "split" else view_made_in_no_grad(base)
    with no_grad():
        view *= 10.0
    assert base.array[0] == 10.0
    base.sum().backward()
    assert_gradient(x.grad, [1.0, 1.0])


@pytest.mark.parametrize("make", ["split", "view made in no_grad"])
def test_such_views_of_plain_memory_may_be_written_to_with_constants(make):
    base = constant([1.0, 2.0])
    view = NP.split(base, 2)[0] if make == "split" else view_made_in_no_grad(base)
    view *= 10.0
    assert base.array[0] == 10.0
    assert not base.requires_grad


@pytest.mark.parametrize("make", ["split", "view made in no_grad"])
def test_such_views_of_plain_memory_take_tracked_values(make):
    base, x = constant([1.0, 2.0]), leaf([5.0])
    parts = NP.split(base, 2)
    view = parts[0] if make == "split" else view_made_in_no_grad(base)[:1]
    view *= x
    assert base.requires_grad
    (base * np.array([3.0, 7.0])).sum().backward()
    assert_gradient(x.grad, [3.0])


def test_a_write_to_an_array_that_overlaps_itself():
    base = Tensor(np.lib.stride_tricks.as_strided(np.zeros(3), (2, 2), (8, 8)))
    with pytest.raises((AutogradError, ValueError)):
        base *= leaf([[1.0, 2.0], [3.0, 4.0]])
    assert not base.requires_grad


RAW_WRITES = {
    "in-place operator": lambda raw, x: NP.add_(raw, x),
    "setitem_": lambda raw, x: NP.setitem_(raw, ..., x),
    "ndarray's own": lambda raw, x: raw.__setitem__(..., x),
    "out": lambda raw, x: NP.add(x, 1.0, out=raw),
    "index_put_": lambda raw, x: NP.index_put_(raw, np.array([0, 1]), x),
}


@pytest.mark.parametrize("write", RAW_WRITES)
def test_tracked_values_are_not_written_into_raw_arrays(write):
    raw = np.zeros(2)
    with pytest.raises(DispatchError):
        RAW_WRITES[write](raw, leaf([1.0, 2.0]))
    np.testing.assert_array_equal(raw, [0.0, 0.0])


@pytest.mark.parametrize("write", [name for name in RAW_WRITES if name != "ndarray's own"])
def test_they_may_be_under_no_grad(write):
    raw = np.zeros(2)
    with no_grad():
        RAW_WRITES[write](raw, leaf([1.0, 2.0]))
    assert raw.any()


TRACKED_OUT = {
    "argument": lambda x, out: NP.multiply(x, 2.0, out=out),
    "out": lambda x, out: NP.multiply(np.ones(2), 2.0, out=x * 1.0),
    "both": lambda x, out: NP.multiply(x, 2.0, out=x * 1.0),
    "reduction": lambda x, out: NP.cumsum(x, out=out),
}


@pytest.mark.parametrize("case", TRACKED_OUT)
def test_out_takes_up_gradients(case):
    x, out = leaf([1.0, 2.0]), constant([0.0, 0.0])
    result = TRACKED_OUT[case](x, out)
    expected = {"argument": [2.0, 4.0], "out": [2.0, 2.0], "both": [2.0, 4.0], "reduction": [1.0, 3.0]}[case]
    np.testing.assert_array_equal(result.array, expected)
    if case in ("argument", "reduction"):
        assert (result is out, out._version) == (True, 1)
    gradient, = grad((result * result).sum(), x, allow_unused=True)
    slopes = {"argument": [8.0, 16.0], "out": None, "both": [8.0, 16.0], "reduction": [8.0, 6.0]}[case]
    assert gradient.array.tolist() == slopes if slopes else gradient is None or not gradient.array.any()


@pytest.mark.parametrize("case", ["argument", "reduction"])
def test_a_raw_array_as_out_is_refused_where_something_is_tracked(case):
    raw = np.zeros(2)
    with pytest.raises(AutogradError, match="raw array"):
        TRACKED_OUT[case](leaf([1.0, 2.0]), raw)
    np.testing.assert_array_equal(raw, [0.0, 0.0])


def test_out_is_allowed_under_no_grad_and_counts_as_a_write():
    out = constant([0.0, 0.0])
    with no_grad():
        assert NP.multiply(leaf([1.0, 2.0]), 3.0, out=out) is out
    np.testing.assert_array_equal(out.array, [3.0, 6.0])
    assert (out.requires_grad, out._version) == (False, 1)


def test_a_write_that_fails_leaves_the_graph_as_it_was():
    x = leaf([1.0, 2.0])
    value = x * 3.0
    node = value.grad_fn
    with pytest.raises(ValueError, match=r"broadcast|shape"):
        value += np.ones(5)
    assert value.grad_fn is node
    value.sum().backward()
    assert_gradient(x.grad, [3.0, 3.0])


def test_a_write_that_fails_leaves_plain_memory_plain():
    base = constant([1.0, 2.0])
    with pytest.raises(ValueError, match=r"broadcast|shape"):
        base += leaf(np.ones(5))
    assert not base.requires_grad
    with pytest.raises(TypeError):
        Tensor(np.zeros(2, int)).__iadd__(leaf([1.0, 2.0]))


def test_tracked_values_written_to_ints_are_constants():
    base, x = Tensor(np.zeros(2, int)), leaf(2.7)
    base[0] = x
    assert not base.requires_grad
    np.testing.assert_array_equal(base.array, [2, 0])


def test_the_core_names_each_problem_of_a_write():
    package = Path(pydispatch.__file__).parent
    source = "".join(path.read_text() for path in package.rglob("*.p*[xy]"))
    named = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', (package / "core/tape/in_place.pyx").read_text()))
    assert named <= set(WriteProblem.__members__)
    assert {name for name in WriteProblem.__members__ if f'"{name}"' not in source} == {"RAW"}


# --- augmented assignments, in every way to differentiate ---

WAYS = {
    "backward": lambda f, x: grad(f(v := leaf(x)), v)[0],
    "grad": lambda f, x: func.grad(f)(x),
    "vjp": lambda f, x: func.vjp(f, x)[1](np.float64(1))[0],
    "jacfwd": lambda f, x: func.jacfwd(f)(x),
    "linearize": lambda f, x: np.array([func.linearize(f, x)[1](t) for t in np.eye(len(x))]),
    "vmap(grad)": lambda f, x: func.vmap(func.grad(f))(x[None])[0],
    "grad(vmap)": lambda f, x: func.grad(lambda x: func.vmap(f)(x[None])[0])(x),
    "grad(functionalize)": lambda f, x: func.grad(func.functionalize(f))(x),
    "compile(grad)": lambda f, x: pydispatch.compile(func.grad(f))(x),
    "make_fx(grad)": lambda f, x: make_fx(func.grad(f))(x)(x),
}
AUGMENTED = {"+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
             "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow}


@pytest.mark.parametrize("other", [lambda x: 0.7, lambda x: x[::-1] + 1.0], ids=["a number", "a value"])
@pytest.mark.parametrize("augment", AUGMENTED.values(), ids=AUGMENTED)
@together("way", WAYS.values(), ids=WAYS)
def test_augmented_assignments(augment, other, way):
    def program(x):
        y = x * 1.1 + 2.0
        y = augment(y, other(x))
        y[1:] = augment(y[1:], 1.3)
        return (y * x).sum()

    x = np.array([0.31, 1.17, 2.43])
    (expected,) = gradient_by_differences(program, x)
    np.testing.assert_allclose(np.asarray(getattr(found := way(program, x), "array", found)), expected, rtol=1e-6)
