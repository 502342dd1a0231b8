"""Loops that nobody watches are recorded whole: still one node, with the gradients of the unrolled loop."""

import gc
import weakref

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, _core, autograd, ops
from pydispatch._core import StackedRows
from pydispatch.exceptions import AutogradError
from pydispatch.func import grad, jacfwd, jacrev, jvp, vmap
from pydispatch.higher_order import map as map_slices
from pydispatch.higher_order import scan, while_loop
from pydispatch.higher_order.steps import NEVER, stacked
from pydispatch.tracing import make_fx
from tests.functions import Stateless
from tests.higher_order import compositions
from tests.together import together

WEIGHT = np.array([[0.5, -0.3], [0.2, 0.8]])
XS = np.array([[0.3, -1.2], [2.0, 0.4], [0.9, -0.7], [0.1, 0.2]])


def cell(weight, h, x):
    return ops.np.tanh(weight @ h + x)


def scanned(weight, h, xs, reverse=False):
    def combine(h, x):
        new = cell(weight, h, x)
        return new, (new * new).sum()

    return scan(combine, h, xs, reverse=reverse)


def scanned_unrolled(weight, h, xs, reverse=False):
    rows = []
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        h = cell(weight, h, xs[i])
        rows.append((h * h).sum())
    return h, ops.np.stack(rows[::-1] if reverse else rows)


def looped(weight, h, xs):
    h = while_loop(lambda i, h: i < len(xs), lambda i, h: (i + 1, cell(weight, h, xs[0])), (0, h))[1]
    return h, h * 2.0


def looped_unrolled(weight, h, xs):
    for _ in range(len(xs)):
        h = cell(weight, h, xs[0])
    return h, h * 2.0


def mapped(weight, h, xs):
    rows = map_slices(lambda x, h: cell(weight, h, x), xs, h)
    return rows, rows[0]


def mapped_unrolled(weight, h, xs):
    rows = ops.np.stack([cell(weight, h, xs[i]) for i in range(len(xs))])
    return rows, rows[0]


LOOPS = [
    pytest.param(scanned, scanned_unrolled, id="scan"),
    pytest.param(lambda *args: scanned(*args, reverse=True), lambda *args: scanned_unrolled(*args, reverse=True),
                 id="reverse"),
    pytest.param(looped, looped_unrolled, id="while_loop"),
    pytest.param(mapped, mapped_unrolled, id="map"),
]
every_loop = pytest.mark.parametrize(("loop", "unrolled"), LOOPS)


def total(loop):
    """Return one number that depends on both results."""

    def of(*args):
        one, other = loop(*args)
        return (one * np.arange(1.0, 3.0)).sum() + ops.np.sin(other).sum()

    return of


def leaves():
    return [Tensor(array.copy(), requires_grad=True) for array in (WEIGHT, np.array([0.1, -0.2]), XS)]


@every_loop
@pytest.mark.parametrize("position", [0, 1, 2], ids=["captured", "init", "xs"])
def test_gradients_of_a_level(loop, unrolled, position):
    args = [leaf.array for leaf in leaves()]
    compositions.same(grad(total(loop), argnums=position)(*args), grad(total(unrolled), argnums=position)(*args))


@every_loop
def test_gradients_on_the_tape(loop, unrolled):
    one, other = leaves(), leaves()
    total(loop)(*one).backward()
    total(unrolled)(*other).backward()
    for left, right in zip(one, other, strict=True):
        compositions.same(left.grad, right.grad)


@every_loop
def test_values_that_depend_on_each_other(loop, unrolled):
    def f(loop):
        return lambda w: total(loop)(w * 2.0, w[0] + w[1], XS @ ops.np.sin(w))

    compositions.same(grad(f(loop))(WEIGHT), grad(f(unrolled))(WEIGHT))
    one, other = Tensor(WEIGHT, requires_grad=True), Tensor(WEIGHT, requires_grad=True)
    f(loop)(one).backward()
    f(unrolled)(other).backward()
    compositions.same(one.grad, other.grad)


@every_loop
def test_one_node(loop, unrolled):
    args = leaves()
    node = loop(*args)[0].grad_fn
    name = "map" if loop is mapped else "while_loop" if loop is looped else "scan"
    assert node.name.lower() == f"{name.replace('_', '')}backward"
    places = [_core.gradient_slot_of(leaf) for leaf in args]
    targets = [target for target, _ in node.next_functions if target is not None]
    assert targets
    assert all(any(target is place for place in places) for target in targets)


@every_loop
def test_hooks_run_once(loop, unrolled):
    seen = []
    args = leaves()
    for leaf in args:
        leaf.register_hook(lambda g: seen.append(g.shape))
    total(loop)(*args).backward()
    assert sorted(seen) == [(2,), (2, 2), (4, 2)]


@every_loop
def test_second_derivatives_on_the_tape(loop, unrolled):
    found = []
    for f in (loop, unrolled):
        args = leaves()
        first = autograd.grad(total(f)(*args), args, create_graph=True)
        found.append(autograd.grad(sum((g * g).sum() for g in first), args))
    for left, right in zip(*found, strict=True):
        compositions.same(left, right)


@every_loop
@together("change", [
    lambda f: grad(lambda w: grad(f)(w).sum()),
    lambda f: jacrev(grad(f)),
    lambda f: jacfwd(grad(f)),
    lambda f: lambda w: jvp(grad(f), (w,), (w,))[1],
    lambda f: jacrev(lambda w: f(w) * w),
    lambda f: lambda w: vmap(grad(f))(np.stack([w, 2 * w])),
    lambda f: make_fx(grad(f))(WEIGHT),
    lambda f: grad(lambda w: vmap(f)(ops.np.stack([w, 2 * w])).sum()),
], ids=["grad grad", "jacrev grad", "jacfwd grad", "jvp grad", "jacrev", "vmap grad", "make_fx grad", "grad vmap"])
def test_compositions(loop, unrolled, change):
    def of(f):
        return change(lambda w: total(f)(w, np.array([0.1, -0.2]), XS))(WEIGHT)

    compositions.same(of(loop), of(unrolled))


@every_loop
def test_graph_that_is_kept(loop, unrolled):
    args = leaves()
    result = total(loop)(*args)
    one = autograd.grad(result, args, retain_graph=True)
    two = autograd.grad(result, args)
    for left, right in zip(one, two, strict=True):
        compositions.same(left, right)
    with pytest.raises(AutogradError, match="backward"):
        autograd.grad(result, args)


@pytest.mark.parametrize("wrap", [
    lambda f, x: scan(lambda c, _: (f(c), None), x, length=3)[0],
    lambda f, x: while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, f(c)), (0, x))[1],
    lambda f, x: map_slices(f, ops.np.stack([x, x])).sum(),
], ids=["scan", "while_loop", "map"])
def test_nothing_is_kept_after_backward(wrap):
    nodes = []

    def step(x):
        result = ops.np.sin(x)
        if result.requires_grad:
            nodes.append(weakref.ref(result.grad_fn))
        return result

    result = wrap(step, Tensor(np.array(0.5), requires_grad=True))
    assert nodes
    assert all(node() is not None for node in nodes)
    result.backward()
    gc.collect()
    assert result.requires_grad
    assert all(node() is None for node in nodes)


class Names(DispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func.name))
        return func(*args, **(kwargs or {}))


@every_loop
def test_a_mode_sees_one_operator(loop, unrolled):
    args = leaves()
    with Names() as names:
        result = loop(*args)[0].sum()
    assert len([name for name in names.names if name in ("scan", "map", "while_loop")]) == 1
    assert not any("tanh" in name for name in names.names)
    with Names() as names:
        backward = autograd.grad(result, args[0])
    assert "scan" in names.names
    assert not any("matmul" in name for name in names.names)
    other = leaves()
    compositions.same(backward[0], autograd.grad(unrolled(*other)[0].sum(), other[0])[0])


def test_a_rule_for_the_backend_is_called():
    calls = []

    @scan.py_impl("CPU")
    def rule(combine, init, xs, args, length, reverse):
        calls.append(length)
        return scan.operator.rule_for("CompositeExplicitAutograd")(combine, init, xs, args, length, reverse)

    try:
        grad(lambda w: scanned(w, np.zeros(2), XS)[0].sum())(WEIGHT)
    finally:
        place = next(place for place, found in scan.operator._rules.items() if found is rule)
        del scan.operator._rules[place], scan.operator._sites[place]
        scan.operator._used = {}
    assert calls == [4, 4]


@every_loop
def test_cotangents_of_other_levels(loop, unrolled):
    def f(loop):
        return lambda w: loop(w, np.array([0.1, -0.2]), XS)

    compositions.same(jacrev(f(loop))(WEIGHT)[0], jacrev(f(unrolled))(WEIGHT)[0])


@pytest.mark.parametrize("n", [1, 3])
def test_scan_without_xs(n):
    def f(w):
        return scan(lambda c, _: (ops.np.sin(c * w), None), np.array(0.5), length=n)[0]

    def unrolled(w):
        c = np.array(0.5)
        for _ in range(n):
            c = ops.np.sin(c * w)
        return c

    compositions.same(grad(f)(np.array(1.3)), grad(unrolled)(np.array(1.3)))


def test_carry_in_containers():
    def combine(c, x, w):
        return {"b": [c["a"] + x], "a": c["b"][0] * w}, (x * w, {"y": c["a"] * 1.0})

    def f(w):
        final, ys = scan(lambda c, x: combine(c, x, w), {"a": w, "b": [w * 2.0]}, XS[:, 0])
        return final["a"] + final["b"][0] + ys[0].sum() + ys[1]["y"].sum()

    def unrolled(w):
        a, b, s = w, w * 2.0, 0.0
        for x in XS[:, 0]:
            s = s + x * w + a * 1.0
            a, b = b * w, a + x
        return a + b + s

    compositions.same(grad(f)(np.array(1.3)), grad(unrolled)(np.array(1.3)))


@every_loop
def test_function_that_closes_over_a_weight(loop, unrolled):
    class Scaled(Stateless):
        @staticmethod
        def forward(x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    def f(loop):
        return lambda w: total(lambda w, h, xs: loop(Scaled.apply(w), h, xs))(w, np.array([0.1, -0.2]), XS)

    compositions.same(grad(f(loop))(WEIGHT), grad(f(unrolled))(WEIGHT))


@pytest.mark.parametrize("loop", [
    lambda f, x: scan(lambda c, _: (f(c), None), x, length=9),
    lambda f, x: scan(lambda c, _: (f(c), c.sum()), x, length=9),
    lambda f, x: while_loop(lambda i, c: i < 9, lambda i, c: (i + 1, f(c)), (0, x)),
], ids=["scan", "scan with results", "while_loop"])
def test_only_the_carry_of_the_last_step_is_kept(loop):
    carries, alive = [], []

    def step(carry):
        alive.append(sum(known() is not None for known in carries))
        carries.append(weakref.ref(carry))
        return carry + 1

    loop(step, Tensor(np.zeros(3)))
    assert max(alive) <= 2      # the first one, which is held here, and the one before


# --- rows are stacked as they come -----------------------------------------------------------------------------------


ROWS = {        # what steps 0, 1, 2, ... return besides a carry
    "numbers": lambda i: (np.float64(i),),
    "vectors": lambda i: (np.arange(3.0) + i,),
    "several": lambda i: (np.arange(3) + i, np.full((2, 2), i, np.float32), np.bool_(i % 2)),
    "transposed": lambda i: (np.arange(6.0).reshape(2, 3).T + i,),
    "every other element": lambda i: (np.arange(8.0)[::2] * i,),
    "empty": lambda i: (np.zeros((0, 3)),),
    "of another dtype in the end": lambda i: (np.arange(3.0 if i > 2 else 3) + i,),
    "of another dtype at once": lambda i: (np.arange(3, dtype="f" if i else "d"),),
    "texts": lambda i: (np.array([str(i)] * 2),),
    "dates": lambda i: (np.array([i, 1], "M8[D]"),),
}


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("row_of", ROWS.values(), ids=ROWS)
def test_rows_are_stacked_as_they_come(row_of, reverse):
    rows, length = StackedRows(4, reverse), 4
    given = [tuple(Tensor(np.asarray(value)) for value in row_of(i)) for i in range(length)]
    for row in given:
        rows.append(row)
    for k, whole in enumerate(stacked(rows)):
        expected = np.stack([row[k].array for row in (given[::-1] if reverse else given)])
        np.testing.assert_array_equal(whole.numpy(), expected)
        assert whole.dtype == expected.dtype


def test_rows_are_copied():
    rows, row = StackedRows(2), np.ones(3)
    for number in (1.0, 2.0):
        row[:] = number
        rows.append((Tensor(row),))
    assert stacked(rows)[0].tolist() == [[1.0] * 3, [2.0] * 3]


def test_tracked_rows_keep_their_gradients():
    rows, x = StackedRows(3), Tensor(np.arange(3.0), requires_grad=True)
    for i in range(3):
        rows.append((x * float(i) if i else Tensor(np.zeros(3)),))
    (whole,) = stacked(rows)
    whole.sum().backward()
    assert whole.detach().tolist() == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
    assert x.grad.tolist() == [3, 3, 3]


def test_rows_of_other_shapes_are_refused_as_by_stack():
    rows = StackedRows(2)
    rows.append((Tensor(np.ones(3)),))
    rows.append((Tensor(np.ones(2)),))
    with pytest.raises(ValueError, match="must have the same shape"):
        stacked(rows)


def test_nothing_is_stacked_of_no_row():
    assert stacked(StackedRows(0)) == ()


# --- garbage ----------------------------------------------------------------------------------------------------------


def recorded_scan(step, length):
    return grad(lambda x: ops.np.sum(scan(step, x, None, length=length)[0]))


def test_recording_puts_off_full_garbage_collections():
    seen = []

    def step(carry, _):
        seen.append(gc.get_threshold())
        return carry * 1.5, None

    before = gc.get_threshold()
    recorded_scan(lambda carry, _: (recorded_scan(step, 2)(carry), None), 2)(np.ones(2))
    assert {threshold[:2] for threshold in seen} == {before[:2]}
    assert NEVER in {threshold[2] for threshold in seen}
    assert gc.get_threshold() == before


def test_thresholds_are_restored_after_an_error_and_kept_if_changed():
    before = gc.get_threshold()

    def fail(carry, _):
        if gc.get_threshold()[2] == NEVER:      # a run before may look for captured values
            raise KeyboardInterrupt
        return carry * 1.0, None

    def change(carry, _):
        if gc.get_threshold()[2] == NEVER:
            gc.set_threshold(500, 5, 5)
        return carry * 1.0, None

    with pytest.raises(KeyboardInterrupt):
        recorded_scan(fail, 2)(np.ones(2))
    assert gc.get_threshold() == before
    try:
        recorded_scan(change, 2)(np.ones(2))
        assert gc.get_threshold() == (500, 5, 5)
    finally:
        gc.set_threshold(*before)
