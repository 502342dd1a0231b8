"""Results of handlers and rules of operators on functions: a tuple of arrays, as many as the operator returns."""

import numpy as np
import pytest

from pydispatch import DispatchMode, Tensor
from pydispatch.exceptions import DispatchTypeError
from pydispatch.func import grad
from pydispatch.func.transform import Transform
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from tests.modes.recorders import Passing
from tests.together import together

X = np.arange(3.0)

CALLS = {
    "cond": (cond, lambda x: cond(np.array(True), lambda x: (x * 1, x * 2), lambda x: (x * 3, x * 4), (x,)), 2),
    "map": (map_slices, lambda x: map_slices(lambda x: (x * 1, x * 2), x), 2),
    "scan": (scan, lambda x: scan(lambda c, x: (c + x, (x * 1, c * 1)), np.array(0.0), x), 3),
    "while_loop": (while_loop, lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x)), 2),
    "associative_scan": (associative_scan, lambda x: associative_scan(lambda a, b: (a[0] + b[0], b[1] * 1), (x, x)), 2),
}
WRONG = {
    "None": (lambda n: None, "returned a NoneType, expected a tuple of arrays"),
    "str": (lambda n: "abc", "returned a str, expected a tuple of arrays"),
    "one array": (lambda n: X, "returned an ndarray, expected a tuple of arrays"),
    "one Tensor": (lambda n: Tensor(X), "returned a Tensor, expected a tuple of arrays"),
    "a dict": (lambda n: dict.fromkeys(range(n), X), "returned a dict, expected a tuple of arrays"),
    "None in it": (lambda n: (None,) * n, "returned a NoneType as result 0, expected a tuple of arrays"),
    "a number": (lambda n: (X,) * (n - 1) + (1.0,), "returned a float as result "),
    "nested": (lambda n: ((X,) * n,), "returned a tuple as result 0, expected a tuple of arrays"),
    "nothing": (lambda n: (), "returned 0 arrays, expected a tuple of "),
    "too few": (lambda n: (X,) * (n - 1), "arrays, expected a tuple of "),
    "too many": (lambda n: (X,) * (n + 1), "arrays, expected a tuple of "),
}


class Answering(DispatchMode):
    """Returns the same for every operator on functions."""

    answer = None

    def __pydispatch__(self, func, types, args=(), kwargs=None):
        return type(self).answer if func.schema is None else func(*args, **(kwargs or {}))


class AnsweringTensor(Tensor):
    answer = None

    @classmethod
    def __pydispatch__(cls, func, types, args=(), kwargs=None):
        if func.schema is None:
            return cls.answer
        plain = [Tensor(arg.array) if isinstance(arg, AnsweringTensor) else arg for arg in args]
        return func(*plain, **(kwargs or {}))


class Interpreter(Transform):
    """A user-defined transform."""


def in_mode(operator, call, answer):
    Answering.answer = answer
    with Answering():
        return call(X)


def in_rule_of_mode(operator, call, answer):
    return with_rule(operator, Passing, answer, lambda: run_in(Passing(), call, X))


def in_rule_of_transform(operator, call, answer):
    interpreter = Interpreter()
    return with_rule(operator, Interpreter, answer, lambda: run_in(interpreter, call, interpreter.wrap))


def run_in(guard, call, x):
    with guard:
        return call(x(X) if callable(x) else x)


def with_rule(operator, place, answer, run):
    """Return the result of a call while a rule for this place returns an answer."""
    def rule(*args):
        return answer

    operator.py_impl(place)(rule)
    try:
        return run()
    finally:
        table = operator.operator
        for key in [key for key, found in table._rules.items() if found is rule]:
            del table._rules[key], table._sites[key]
        table._used = {}


def in_class(operator, call, answer):
    AnsweringTensor.answer = answer
    return call(AnsweringTensor(X))


def in_rule_of_class(operator, call, answer):
    AnsweringTensor.answer = NotImplemented
    return with_rule(operator, AnsweringTensor, answer, lambda: call(AnsweringTensor(X)))


def in_rule_of_backend(operator, call, answer):
    return with_rule(operator, "CPU", answer, lambda: call(X))


PLACES = {
    "mode": (in_mode, "the handler of mode Answering"),
    "rule of mode": (in_rule_of_mode, "the rule for class Passing"),
    "rule of transform": (in_rule_of_transform, "the rule for class Interpreter"),
    "class": (in_class, "the handler of class AnsweringTensor"),
    "rule of class": (in_rule_of_class, "the rule for class AnsweringTensor"),
    "rule of backend": (in_rule_of_backend, "the rule for CPU"),
}


@together("name", CALLS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", PLACES)
def test_wrong_results(name, place, wrong):
    operator, call, n = CALLS[name]
    answer, message = WRONG[wrong]
    run, who = PLACES[place]
    with pytest.raises(DispatchTypeError) as raised:
        run(operator, call, answer(n))
    first, second = str(raised.value).split("\n")
    assert first.startswith(f"operator {name}: {who} returned ")
    assert message in first
    assert f"{name}(*args)" in second


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize("name", CALLS)
@together("place", PLACES)
def test_right_results(name, place, kind):
    operator, call, n = CALLS[name]
    answer = kind([X * k for k in range(n)])
    found = PLACES[place][0](operator, call, answer)
    flat = [leaf for part in found for leaf in (part if isinstance(part, (tuple, list)) else (part,))]
    assert len(flat) == n
    for k, leaf in enumerate(flat):
        np.testing.assert_array_equal(np.asarray(leaf), X * k)


@pytest.mark.parametrize("name", CALLS)
def test_a_mode_below_a_gradient(name):
    call = CALLS[name][1]

    def f(x):
        result = call(x)
        return (result[0] if isinstance(result, tuple) else result).sum()

    Answering.answer = ()
    with Answering(), pytest.raises(DispatchTypeError, match="mode Answering returned 0 arrays, expected"):
        grad(f)(X)
