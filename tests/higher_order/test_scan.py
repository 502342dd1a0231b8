"""scan: values, contracts, every transform against unrolled loops."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AliasingError, DispatchTypeError, FunctionalizationError
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import scan
from tests.higher_order import compositions

X = np.array([[0.3, -1.2], [2.0, 0.4], [0.9, -0.7]])
BATCH = np.stack([X, X[::-1] * 0.5, np.sin(X)])
WEIGHT = np.array([[0.5, -0.3], [0.2, 0.8]])


def unroll(combine, init, xs, reverse=False):
    carry, rows = init, []
    for i in reversed(range(len(xs))) if reverse else range(len(xs)):
        carry, y = combine(carry, xs[i])
        rows.append(y)
    return carry, ops.np.stack(rows[::-1] if reverse else rows)


def products(x):
    return scan(lambda c, x: (c * x, ops.np.sin(c) + x), np.ones(2), x)


def products_unrolled(x):
    return unroll(lambda c, x: (c * x, ops.np.sin(c) + x), np.ones(2), x)


def backwards(x):
    return scan(lambda c, x: (c * x + 1.0, c * c), x[0], x, reverse=True)


def backwards_unrolled(x):
    return unroll(lambda c, x: (c * x + 1.0, c * c), x[0], x, reverse=True)


def recurrent(x):
    """Scan with captured weights, which depend on x, and a captured bias, which does not."""
    weight = WEIGHT * ops.np.cos(x[0])

    def combine(h, x):
        h = ops.np.tanh(weight @ h + x)
        return h, (h * h).sum()

    return scan(combine, np.zeros(2), x)


def recurrent_unrolled(x):
    weight = WEIGHT * ops.np.cos(x[0])

    def combine(h, x):
        h = ops.np.tanh(weight @ h + x)
        return h, (h * h).sum()

    return unroll(combine, np.zeros(2), x)


def without_xs(x):
    """Return a counter, which has no derivative, and a carry that starts with x."""
    (_, final), ys = scan(lambda c, _: ((c[0] + 1, c[1] * c[1] + c[0]), c[1].sum()), (0, x[0]), length=3)
    return final, ys


def without_xs_unrolled(x):
    value, rows = x[0], []
    for i in range(3):
        rows.append(value.sum())
        value = value * value + i
    return value, ops.np.stack(rows)


def containers(x):
    carry, ys = scan(
        lambda c, s: ({"n": c["n"] + 1, "v": c["v"] * s["a"]}, (c["v"] + s["b"], None)),
        {"n": 0, "v": x[0]}, {"a": x, "b": ops.np.sin(x)})
    return carry["v"], ys[0]


def containers_unrolled(x):
    return unroll(lambda c, s: (c * s, c + ops.np.sin(s)), x[0], x)


def nested(x):
    def inner(c, row):
        return scan(lambda a, b: (a + b * c, a * b), c * 0.5, row)

    return scan(lambda c, row: (inner(c, row)[0], inner(c, row)[1]), x[0, 0] * 1.0, x)


def nested_unrolled(x):
    def outer(c, row):
        return unroll(lambda a, b: (a + b * c, a * b), c * 0.5, row)

    return unroll(outer, x[0, 0] * 1.0, x)


TestW12W13W14W17Compositions = compositions.tests_of({
    "products": (products, products_unrolled),
    "backwards": (backwards, backwards_unrolled),
    "recurrent": (recurrent, recurrent_unrolled),
    "without xs": (without_xs, without_xs_unrolled),
    "containers": (containers, containers_unrolled),
    "nested": (nested, nested_unrolled),
}, (X,), BATCH)


# --- values ----------------------------------------------------------------------------------------------------------


def cumulative(x, **options):
    return scan(lambda c, x: (c + x, c + x), 0.0 if x.ndim == 1 else ops.np.zeros_like(x[0]), x, **options)


def test_cumulative_sum():
    compositions.same(cumulative(np.arange(4.0)), (np.array(6.0), np.array([0.0, 1.0, 3.0, 6.0])))


def test_reverse_keeps_the_order_of_xs():
    compositions.same(cumulative(np.arange(4.0), reverse=True), (np.array(6.0), np.array([6.0, 6.0, 5.0, 3.0])))


@pytest.mark.parametrize("axis", [1, -1])
def test_scan_along_another_axis(axis):
    carry, ys = scan(lambda c, x: (c + x, c + x), np.zeros(3), X, axis=axis)
    compositions.same((carry, ys), (X.sum(1), np.cumsum(X, 1).T))


def test_scan_init_returned_where_there_is_nothing_to_scan():
    compositions.same(scan(lambda c, x: (c, c), (X, 2), []), ((X, np.array(2)), []))


def test_nothing_to_stack():
    carry, ys = scan(lambda c, x: (c + x, None), np.zeros(2), X)
    compositions.same(carry, X.sum(0))
    assert ys is None


def test_raw_in_raw_out():
    assert [type(value) for value in scan(lambda c, x: (c + x, c * x), np.zeros(2), X)] == [np.ndarray, np.ndarray]


def test_tensor_in_tensor_out():
    found = scan(lambda c, x: (c + x, c * x), Tensor(np.zeros(2)), X)
    assert [type(value) for value in found] == [Tensor, Tensor]


def test_captured_weight_of_the_tape():
    weight = Tensor(WEIGHT, requires_grad=True)
    scan(lambda h, x: (ops.np.tanh(weight @ h + x), None), np.zeros(2), X)[0].sum().backward()

    def unrolled(weight):
        h = np.zeros(2)
        for x in X:
            h = ops.np.tanh(weight @ h + x)
        return h.sum()

    compositions.same(weight.grad, grad(unrolled)(WEIGHT))


def test_body_that_looks_at_values():
    def combine(c, x):
        return (c * x if x.sum() > 0 else c + x), c * c

    def program(x):
        return scan(combine, np.ones(2), x)

    for name in ("value", "grad", "jvp", "tape"):
        compositions.check_single(program, lambda x: unroll(combine, np.ones(2), x), X, name)


# --- vmap: what is a batch -------------------------------------------------------------------------------------------


def weighted(weight, init, xs):
    return scan(lambda c, x: (ops.np.tanh(c * weight + x), (c * x).sum()), init, xs)


def weighted_unrolled(weight, init, xs):
    return unroll(lambda c, x: (ops.np.tanh(c * weight + x), (c * x).sum()), init, xs)


ARGUMENTS = (np.array([0.5, 1.5]), np.array([0.1, -0.2]), X)


@pytest.mark.parametrize("mapped", [(0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)],
                         ids=lambda flags: "".join(map(str, flags)))
@pytest.mark.parametrize("derive", [False, True], ids=["value", "grad"])
def test_which_arguments_are_batches(mapped, derive):
    args = [np.stack([arg, arg + 0.3, arg * 2]) if flag else arg for arg, flag in zip(ARGUMENTS, mapped, strict=True)]
    program, unrolled = weighted, weighted_unrolled
    if derive:
        program, unrolled = [
            grad(lambda *args, f=f: (f(*args)[0] ** 2).sum() + f(*args)[1].sum(), argnums=(0, 1, 2))
            for f in (weighted, weighted_unrolled)]
    found = vmap(program, in_dims=tuple([0 if flag else None for flag in mapped]))(*args)
    rows = [unrolled(*[arg[i] if flag else arg for arg, flag in zip(args, mapped, strict=True)]) for i in range(3)]
    compositions.same(found, tuple([np.stack(column) for column in zip(*rows, strict=True)]))


def test_fixpoint_of_several_steps():
    def program(x):
        carry, _ = scan(lambda c, _: ((c[0], c[0] + c[1], c[1] + c[2])[:0] or (x * 1.0, c[0] * 2, c[1] + 1), None),
                        (np.array(1.0), np.array(2.0), np.array(3.0)), length=4)
        return carry

    def unrolled(x):
        a, b, c = 1.0, 2.0, 3.0
        for _ in range(4):
            a, b, c = x, a * 2, b + 1
        return a, b, c

    batch = np.array([0.5, -1.0])
    columns = zip(*map(unrolled, batch), strict=True)
    compositions.same(vmap(program)(batch), tuple([np.array(column) for column in columns]))


def test_unbatched_carry_stays_one():
    counters = []

    def program(x):
        carry, n = scan(lambda c, x: ((c[0] + 1, c[1] + x), None), (0, 0.0), x)[0]
        counters.append(carry)
        return n

    compositions.same(vmap(program)(BATCH[:, :, 0]), BATCH[:, :, 0].sum(1))
    assert counters[0].item() == 3


def test_body_without_a_fake():
    def combine(c, x):
        return c + np.asarray(3.0) * x, ops.np.sin(x) * (1.0 if np.isfinite(x.shape[0]) else c.item())

    found = vmap(lambda x: scan(combine, np.zeros(2), x))(BATCH)
    rows = [unroll(combine, np.zeros(2), x) for x in BATCH]
    compositions.same(found, tuple([np.stack(column) for column in zip(*rows, strict=True)]))


def test_in_dims_of_a_batch():
    found = vmap(lambda x: scan(lambda c, x: (c + x, None), np.zeros(2), x)[0], in_dims=1)(np.moveaxis(BATCH, 0, 1))
    compositions.same(found, BATCH.sum(1))


def test_jvp_of_init_alone():
    out, tangent = jvp(lambda c: scan(lambda c, x: (c * x, None), c, X)[0], (np.ones(2),), (np.array([1.0, 2.0]),))
    compositions.same((out, tangent), (X.prod(0), X.prod(0) * [1, 2]))


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("combine", "message"), [
    (lambda c, x: (c[:1] * 1, x * 1), r"scan: combine returns float64\[1\] for array 0 of the carry, expected float64"),
    (lambda c, x: (c > 0, x * 1), r"scan: combine returns bool\[2\] for array 0 of the carry"),
    (lambda c, x: ((c * 1, c * 1), x * 1), r"scan: combine returns \(\(\*, \*\), \*\), expected \(\*, \.\.\.\)"),
    (lambda c, x: (None, x * 1), r"scan: combine returns \(None, \*\), expected \(\*, \.\.\.\)"),
    (lambda c, x: c + x, r"combine returns \*, expected \(\*, \.\.\.\), the structure of \(init, y\)"),
    (lambda c, x: (c + x, 1.0), "scan: combine: result 1 is a float, expected an array"),
], ids=["shape", "dtype", "structure", "None", "no pair", "number"])
@pytest.mark.parametrize("transform", [lambda f: f, lambda f: grad(lambda x: f(x)), vmap], ids=["base", "grad", "vmap"])
def test_metadata_errors(combine, message, transform):
    with pytest.raises(DispatchTypeError, match=message):
        transform(lambda x: scan(combine, np.zeros(2), x)[0])(BATCH if transform is vmap else X)


@pytest.mark.parametrize(("combine", "argument"), [
    (lambda c, x: (c, x * 1), 0), (lambda c, x: (c + x, c), 0), (lambda c, x: (c + x, x), 1),
    (lambda c, x: (c + x, x[:1]), 1),
], ids=["carry", "carry as y", "x as y", "slice of x"])
def test_outputs_that_are_inputs(combine, argument):
    with pytest.raises(AliasingError, match=f"scan: combine: a result shares memory with argument {argument}"):
        scan(combine, np.zeros(2), X)


def test_write_to_the_carry():
    def combine(c, x):
        c += x
        return c * 1, x * 1

    init = np.zeros(2)
    with pytest.raises(FunctionalizationError, match="scan: combine writes in place to argument 0"):
        scan(combine, init, X)
    compositions.same(init, np.zeros(2))


def test_write_to_a_captured_array_names_it():
    total = Tensor(np.zeros(2))

    def combine(c, x):
        total.__iadd__(x)
        return c + x, x * 1

    with pytest.raises(FunctionalizationError, match="writes in place to the captured array 'total'"):
        scan(combine, np.zeros(2), X)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"xs": (X, X[:2])}, "scan: xs have lengths 3, 2 along the loop's axis"),
    ({"xs": X, "length": 4}, "scan: xs have lengths 3, 4"),
    ({"length": -1}, "scan: length is -1, expected a number of steps"),
    ({"xs": [1.0]}, "scan: xs contains a float, expected arrays"),
    ({"init": "x", "xs": X}, "scan: init contains a str"),
    ({"combine": 3, "xs": X}, "scan: combine is an int, expected a function"),
], ids=["unequal", "length", "length -1", "number", "text", "no function"])
def test_arguments(arguments, message):
    given = {"combine": lambda c, x: (c * 1, None), "init": np.zeros(2)} | arguments
    with pytest.raises(DispatchTypeError, match=message):
        scan(given.pop("combine"), given.pop("init"), given.pop("xs", None), **given)


def test_axis_that_is_none():
    with pytest.raises(np.exceptions.AxisError, match="axis 2 is out of bounds"):
        scan(lambda c, x: (c, None), np.zeros(2), X, axis=2)
