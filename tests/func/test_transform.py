"""`func.Transform`: transforms of one's own, by rules, in all orders with those of the library."""

import itertools
from functools import partial

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor, library, ops
from pydispatch.exceptions import AutogradError, DispatchTypeError, NoKernelError, StateOrderError
from pydispatch.func import Transform, grad, hessian, jvp, vmap
from pydispatch.tracing import make_fx
from tests import comparing

close = partial(comparing.close, atol=0.0)

LOW, HIGH = np.array([-1.0, 0.5]), np.array([1.5, 2.0])


class Bounds(Transform):
    """Intervals: the value below is the lower end, the note the upper one."""

    def ends(self, value):
        return (value.array, value.note) if self.owns(value) else (value, value)


def bounds(function):
    def bounded(low, high):
        with Bounds() as interpreter:
            return interpreter.ends(function(interpreter.wrap(low, high)))

    return bounded


def of_increasing(interpreter, func, args, kwargs):
    low, high = zip(*map(interpreter.ends, args), strict=True)
    return interpreter.wrap(func(*low, **kwargs), func(*high, **kwargs))


def of_product(interpreter, func, args, kwargs):
    left, right = map(interpreter.ends, args)
    products = ops.np.stack([func(x, y) for x, y in itertools.product(left, right)])
    return interpreter.wrap(ops.np.min(products, axis=0), ops.np.max(products, axis=0))


@pytest.fixture(autouse=True)
def rules():
    pairs = [(ops.np.add, of_increasing), (ops.np.exp, of_increasing), (ops.np.sum, of_increasing),
             (ops.np.multiply, of_product)]
    handles = [library.register_pydispatch(op.default, Bounds, rule) for op, rule in pairs]
    yield
    for handle in handles:
        handle.remove()


def polynomial(x):
    return (x * x + ops.np.exp(x) * 3.0).sum()


def ends_by_hand(low, high):
    products = np.stack([low * low, low * high, high * high])
    return (products.min(0) + np.exp(low) * 3.0).sum(), (products.max(0) + np.exp(high) * 3.0).sum()


@pytest.mark.parametrize("kind", [np.asarray, Tensor])
def test_rules_make_the_values(kind):
    low, high = bounds(polynomial)(kind(LOW), kind(HIGH))
    for found, expected in zip((low, high), ends_by_hand(LOW, HIGH), strict=True):
        close(found, np.asarray(expected))


def test_rules_run_below_so_their_result_can_be_differentiated():
    slope = grad(lambda high: bounds(polynomial)(LOW, high)[1])(HIGH)
    close(slope, 2 * HIGH + 3 * np.exp(HIGH))
    value, change = jvp(lambda high: bounds(ops.np.exp)(LOW, high)[1], (HIGH,), (np.ones(2),))
    close(value, np.exp(HIGH))
    close(change, np.exp(HIGH))


LOWS, HIGHS = np.stack([LOW, LOW - 1, 2 * LOW]), np.stack([HIGH, HIGH + 1, 3 * HIGH])


@pytest.mark.parametrize("both", [
    pytest.param(lambda f: vmap(bounds(f)), id="vmap outside"),
    pytest.param(lambda f: bounds(vmap(f)), id="vmap inside"),
])
def test_batches(both):
    low, high = both(polynomial)(LOWS, HIGHS)
    expected = [ends_by_hand(*ends) for ends in zip(LOWS, HIGHS, strict=True)]
    close(low, np.array([ends[0] for ends in expected]))
    close(high, np.array([ends[1] for ends in expected]))


def test_batches_of_derivatives():
    def high_end(high):
        return bounds(polynomial)(LOW, high)[1]

    close(vmap(grad(high_end))(HIGHS), 2 * HIGHS + 3 * np.exp(HIGHS))
    close(hessian(high_end)(HIGH), np.diag(2 + 3 * np.exp(HIGH)))


def test_a_trace_has_what_the_rules_call():
    graph = make_fx(bounds(ops.np.exp))(LOW, HIGH)
    assert [node.target.__name__ for node in graph.nodes if node.op == "call_function"] == ["exp", "exp"]
    close(graph(LOW + 1, HIGH + 1)[1], np.exp(HIGH + 1))


def test_inside_it_are_other_transforms():
    register = library.register_pydispatch(ops.np.copy.default, Bounds, of_increasing)
    low, high = bounds(grad(lambda x: x * x + x))(np.array(-1.0), np.array(2.0))
    register.remove()
    close(low, np.array(-1.0))
    close(high, np.array(5.0))


def test_a_level_within_itself():
    inner = bounds(lambda x: bounds(lambda y: x + y)(np.array(10.0), np.array(20.0))[1])
    close(inner(np.array(1.0), np.array(2.0)), (np.array(21.0), np.array(22.0)))


def test_a_composite_comes_in_pieces(fresh):
    fresh.define("double_exp(Tensor x) -> Tensor")
    fresh.impl("double_exp", lambda x: ops.np.exp(ops.np.exp(x)), "CompositeImplicitAutograd")
    double_exp = getattr(ops, fresh.namespace).double_exp
    close(bounds(double_exp)(LOW, HIGH)[1], np.exp(np.exp(HIGH)))


def test_a_mode_outside_sees_what_the_rules_call():
    seen = []

    class Log(DispatchMode):
        def __pydispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func.name))
            return func(*args, **kwargs)

    with Log():
        bounds(ops.np.exp)(LOW, HIGH)
    assert seen == ["np::exp", "np::exp"]


def test_what_has_no_rule():
    with pytest.raises(NoKernelError, match=r"^operator np::sin has no rule for Bounds.*\nregister one: library\.reg"):
        bounds(ops.np.sin)(LOW, HIGH)
    with pytest.raises(NoKernelError, match=r"^operator np::add_ has no rule"):
        bounds(lambda x: ops.np.add_(np.zeros(2), 1.0))(LOW, HIGH)
    low, _ = bounds(lambda x: x + ops.np.ones(2))(LOW, HIGH)
    close(low, LOW + 1)


def test_process_answers_for_all_without_a_rule():
    class Traced(Transform):
        def process(self, func, args, kwargs):
            called.append(str(func.name))
            return func(*[arg.array if self.owns(arg) else arg for arg in args], **kwargs)

    called = []
    with Traced() as interpreter:
        result = ops.np.sin(interpreter.wrap(LOW))
    close(result, np.sin(LOW))
    assert called == ["np::sin"]


def test_a_value_belongs_to_one_run():
    kept = []
    bounds(lambda x: kept.append(x) or x)(LOW, HIGH)
    with Bounds() as interpreter:
        assert not interpreter.owns(kept[0])
        with pytest.raises(AutogradError, match=r"Bounds, called at .*\.py:\d+, which no longer runs\nuse it"):
            ops.np.exp(kept[0])


def test_an_object_is_one_run():
    interpreter = Bounds()
    with interpreter:
        pass
    with pytest.raises(StateOrderError, match=r"^Bounds: .*\nmake a new object"), interpreter:
        pass


def test_only_arrays_are_wrapped():
    with Bounds() as interpreter, pytest.raises(DispatchTypeError,
                                                match=r"^Bounds: wrap got a float.*\npass numpy.asarray"):
        interpreter.wrap(2.0)


def test_an_error_leaves_no_level_behind():
    with pytest.raises(ZeroDivisionError):
        bounds(lambda x: 1 / 0)(LOW, HIGH)
    close(ops.np.sin(LOW), np.sin(LOW))
