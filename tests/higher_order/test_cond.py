"""cond: contracts, rules of every transform, what it refuses."""

import numpy as np
import pytest

from pydispatch import Tensor, ops
from pydispatch.exceptions import AliasingError, DispatchTypeError, FunctionalizationError
from pydispatch.func import grad, jvp, vmap
from pydispatch.higher_order import cond
from tests.higher_order import compositions
from tests.records import Runs

X = np.array([0.3, -1.2, 2.0])
BATCH = np.array([[0.3, -1.2, 2.0], [-1.0, -0.5, 0.25], [0.7, 0.1, -3.0], [1.0, 2.0, 0.5]])


def chooses(x, true_fn, false_fn):
    return true_fn if compositions.concrete(x.sum() > 0) else false_fn


def operands(x):
    return cond(x.sum() > 0, ops.np.sin, lambda x: x * x * 2.0, (x,))


def operands_unrolled(x):
    return chooses(x, ops.np.sin, lambda x: x * x * 2.0)(x)


def captured(x):
    scale = ops.np.exp(x)
    return cond(x.sum() > 0, lambda: ops.np.sin(x) * scale, lambda: scale * 2.0, ())


def captured_unrolled(x):
    scale = ops.np.exp(x)
    return chooses(x, lambda: ops.np.sin(x) * scale, lambda: scale * 2.0)()


def several(x):
    return cond(x.sum() > 0, lambda d: {"a": d["x"] * 2.0, "b": (d["y"].sum(), d["x"] > 0)},
                lambda d: {"a": d["y"] * d["x"], "b": (d["x"].sum(), d["y"] > 0)}, ({"x": x, "y": ops.np.cos(x)},))


def several_unrolled(x):
    y = ops.np.cos(x)
    if compositions.concrete(x.sum() > 0):
        return {"a": x * 2.0, "b": (y.sum(), x > 0)}
    return {"a": y * x, "b": (x.sum(), y > 0)}


def nested(x):
    def positive(x):
        return cond(x[0] > 0.5, lambda: x * x, lambda: ops.np.cos(x) * x, ())

    return cond(x.sum() > 0, positive, lambda x: x * 3.0, (x,))


def nested_unrolled(x):
    if compositions.concrete(x.sum() > 0):
        return x * x if compositions.concrete(x[0] > 0.5) else ops.np.cos(x) * x
    return x * 3.0


def unbatched(x):
    return cond(np.array(True), lambda x: x * x * x, lambda x: x + 1.0, (x,))


def unbatched_unrolled(x):
    return x * x * x


TestW8W17Compositions = compositions.tests_of({
    "operands": (operands, operands_unrolled),
    "captured": (captured, captured_unrolled),
    "several": (several, several_unrolled),
    "nested": (nested, nested_unrolled),
    "unbatched predicate": (unbatched, unbatched_unrolled),
}, (X, -X), BATCH)


# --- the predicate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pred", [True, 1, 2.5, np.array(True), np.array([[1.0]]), np.bool_(True)], ids=repr)
def test_predicates_that_hold(pred):
    compositions.same(cond(pred, lambda x: x + 1, lambda x: x - 1, (X,)), X + 1)


@pytest.mark.parametrize("pred", [False, 0, np.array(False), np.array([0]), Tensor(np.array(0.0))], ids=repr)
def test_predicates_that_do_not_hold(pred):
    compositions.same(cond(pred, lambda x: x + 1, lambda x: x - 1, (X,)), X - 1)


def test_python_bool_calls_the_branch_itself():
    assert cond(True, lambda: "any value", lambda: None) == "any value"


def test_only_the_chosen_branch_computes():
    ran = Runs()

    def note(name):
        def branch(x):
            ran.append((name, isinstance(x.array, np.ndarray)))
            return x * 2
        return branch

    cond(np.array(True), note("true"), note("false"), (X,))
    assert ran == [("true", False), ("false", False), ("true", True)]


def test_predicate_of_several_elements():
    with pytest.raises(DispatchTypeError, match=r"cond: pred has shape \(3,\), expected one element"):
        cond(X > 0, lambda x: x, lambda x: x, (X,))


def test_predicate_that_is_no_array():
    with pytest.raises(DispatchTypeError, match="cond: pred is a str"):
        cond("yes", lambda x: x, lambda x: x, (X,))


def test_batched_predicate_of_another_shape():
    batch = np.array([[1.0], [-1.0]])
    compositions.same(vmap(lambda x: cond(x > 0, lambda x: x * 2, lambda x: x * 3, (x,)))(batch),
                      np.array([[2.0], [-3.0]]))


def test_batched_predicate_of_numbers():
    found = vmap(lambda n: cond(n, lambda: n * 2, lambda: n - 5, ()))(np.array([0, 1, 3]))
    compositions.same(found, np.array([-5, 2, 6]))


def test_batched_predicate_chooses_among_unbatched_operands():
    found = vmap(lambda p: cond(p, lambda: X * 1, lambda: X * 2, ()))(np.array([True, False]))
    compositions.same(found, np.stack([X, X * 2]))


# --- the trap --------------------------------------------------------------------------------------------------------


def root(x):
    return cond(x > 0, ops.np.sqrt, lambda x: x * 0.0, (x,))


def safe_root(x):
    return cond(x > 0, lambda x: ops.np.sqrt(ops.np.where(x > 0, x, 1.0)), lambda x: x * 0.0, (x,))


def test_nan_trap_values_are_right():
    with np.errstate(all="raise"):
        compositions.same(vmap(root)(np.array([4.0, -1.0])), np.array([2.0, 0.0]))


def test_nan_trap_one_by_one_there_is_none():
    compositions.same([grad(root)(np.array(4.0)), grad(root)(np.array(-1.0))], [0.25, 0.0])


def test_nan_trap_gradient_of_a_batch():
    with np.errstate(all="raise"):
        found = grad(lambda x: vmap(root)(x).sum())(np.array([4.0, -1.0]))
    compositions.same(found, np.array([0.25, 0.0]))


def test_nan_trap_operands_made_safe():
    compositions.same(grad(lambda x: vmap(safe_root)(x).sum())(np.array([4.0, -1.0])), np.array([0.25, 0.0]))


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pred", [True, False])
def test_operand_that_the_chosen_branch_does_not_use(pred):
    def f(x, y):
        return cond(np.array(pred), lambda x, y: x * 2.0, lambda x, y: y * 3.0, (x, y)).sum()

    left, right = grad(f, argnums=(0, 1))(X, X)
    compositions.same(left, np.full(3, 2.0 if pred else 0.0))
    compositions.same(right, np.full(3, 0.0 if pred else 3.0))


def test_tape_gives_zeros_too():
    x, y = Tensor(X, requires_grad=True), Tensor(X, requires_grad=True)
    cond(np.array(True), lambda x, y: x * 2.0, lambda x, y: y * 3.0, (x, y)).sum().backward()
    compositions.same([x.grad, y.grad], [np.full(3, 2.0), np.zeros(3)])


def test_jvp_of_a_captured_value():
    out, tangent = jvp(lambda x: cond(np.array(True), lambda: x * x, lambda: x + 0.0, ()), (X,), (np.ones(3),))
    compositions.same([out, tangent], [X * X, 2 * X])


def test_captured_weight_of_the_tape():
    weight = Tensor(np.array(3.0), requires_grad=True)
    cond(np.array(True), lambda x: x * weight, lambda x: x + weight, (X,)).sum().backward()
    compositions.same(weight.grad, X.sum())


def test_captured_value_of_an_outer_level_under_an_inner_one():
    def f(w):
        return grad(lambda x: cond(x.sum() > 0, lambda x: x * x * w, lambda x: x * w, (x,)).sum())(X).sum()

    compositions.same(grad(f)(np.array(2.0)), (2 * X).sum())
    compositions.same(vmap(f)(np.array([1.0, 2.0])), np.array([2 * X.sum(), 4 * X.sum()]))
    compositions.same(jvp(f, (np.array(2.0),), (np.array(1.0),))[1], (2 * X).sum())


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("false_fn", "message"), [
    (lambda x: (x * 1, x * 2), r"false_fn returns \(\*, \*\), expected \*, the structure of the result of true_fn"),
    (lambda x: [x * 1], r"false_fn returns \[\*\], expected \*"),
    (lambda x: x[:2] * 1, r"result 0 is float64\[3\] from true_fn, but float64\[2\] from false_fn"),
    (lambda x: x > 0, r"result 0 is float64\[3\] from true_fn, but bool\[3\] from false_fn"),
    (lambda x: 1.0, "cond: false_fn: result 0 is a float, expected an array"),
], ids=["tuple", "list", "shape", "dtype", "number"])
@pytest.mark.parametrize("pred", [True, False])
def test_branches_that_differ(false_fn, message, pred):
    with pytest.raises(DispatchTypeError, match=message):
        cond(np.array(pred), lambda x: x * 1, false_fn, (X,))


@pytest.mark.parametrize("transform", [grad, lambda f: vmap(lambda x: f(x)), lambda f: lambda x: jvp(f, (x,), (x,))],
                         ids=["grad", "vmap", "jvp"])
def test_branches_that_differ_under_transforms(transform):
    def f(x):
        return cond(x.sum() > 0, lambda x: x * 1, lambda x: x.sum(), (x,)).sum()

    with pytest.raises(DispatchTypeError, match="result 0 is"):
        transform(f)(np.ones((2, 3)))


@pytest.mark.parametrize("branch", [lambda x: x, lambda x: x[1:], lambda x: x.reshape((3, 1))],
                         ids=["itself", "slice", "reshaped"])
def test_output_that_is_an_operand(branch):
    with pytest.raises(AliasingError, match="cond: true_fn: a result shares memory with argument 0"):
        cond(np.array(True), branch, branch, (X,))


def test_output_that_is_captured():
    kept = Tensor(X.copy())
    with pytest.raises(AliasingError, match="shares memory with the captured array 'kept'"):
        cond(np.array(True), lambda: kept, lambda: kept * 2, ())


def test_write_to_an_operand():
    def writes(x):
        x += 1
        return x * 2

    x = X.copy()
    with pytest.raises(FunctionalizationError, match=r"cond: false_fn writes in place to argument 0, of shape \(3,\)"):
        cond(np.array(True), lambda x: x * 2, writes, (x,))
    compositions.same(x, X)


def test_write_to_a_captured_array():
    kept = Tensor(X.copy())

    def writes(x):
        kept[0] = 7.0
        return x * 2

    with pytest.raises(FunctionalizationError, match="writes in place to the captured array 'kept'"):
        cond(np.array(True), writes, lambda x: x * 2, (X,))
    compositions.same(kept, X)


def test_write_to_what_was_made_inside():
    def writes(x):
        y = x * 1
        y += 1
        return y * x

    compositions.same(cond(np.array(True), writes, lambda x: x * 2, (X,)), (X + 1) * X)


@pytest.mark.parametrize(("args", "message"), [
    ((np.array(True), 3, lambda: X, ()), "cond: true_fn is an int, expected a function"),
    ((np.array(True), lambda: X, None, ()), "cond: false_fn is a NoneType, expected a function"),
    ((np.array(True), lambda x: x, lambda x: x, X), "cond: operands is an ndarray, expected a tuple or list"),
], ids=["true_fn", "false_fn", "operands"])
def test_arguments(args, message):
    with pytest.raises(DispatchTypeError, match=message):
        cond(*args)


# --- what goes in and comes out --------------------------------------------------------------------------------------


def test_raw_in_raw_out():
    assert type(operands(X)) is np.ndarray


def test_tensor_in_tensor_out():
    assert type(operands(Tensor(X))) is Tensor


def test_operands_that_are_no_arrays_stay():
    found = cond(np.array(False), lambda x, n, name: x * n, lambda x, n, name: x * (n + len(name)), (X, 2, "abc"))
    compositions.same(found, X * 5)


def test_branch_that_looks_at_values():
    # The branch cannot run without data, so only variables reveal what it captures.
    def branch(x):
        return x * 2.0 if x.sum() > 0 else x * 3.0

    compositions.same(cond(np.array(True), branch, branch, (X,)), X * 2)
    compositions.same(grad(lambda x: cond(np.array(True), branch, branch, (x,)).sum())(-X), np.full(3, 3.0))


def test_branch_that_looks_at_values_and_captures():
    def f(w):
        def branch(x):
            return x * w if x.sum() > 0 else x + w

        return cond(np.array(True), branch, branch, (X,)).sum()

    compositions.same(grad(f)(np.array(2.0)), X.sum())
