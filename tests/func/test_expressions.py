"""Random expressions that differentiate inside of one another, against arithmetic with nilpotent numbers.

d/dx f at a is the coefficient of ε in f(a + ε), with an ε of its own for each derivative: the model cannot confuse
interpreters. A batch is a loop. Programs detach, write in place, through views, and call Functions, at every depth.
"""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pydispatch import Tensor, ops
from pydispatch.func import functionalize, grad, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp, vmap
from tests.functions import Cube, ExponentialInPlace, Identity, Multiply, SineCosine, WeightedSum

# the Functions compute with NumPy, so batches of them run one by one
pytestmark = pytest.mark.filterwarnings("ignore::pydispatch.exceptions.PerformanceWarning")


class Nilpotent:
    """A polynomial in symbols whose squares are zero: coefficients by the set of symbols."""

    def __init__(self, terms):
        self.terms = terms

    def __add__(self, other):
        symbols = self.terms.keys() | other.terms.keys()
        return Nilpotent({s: self.terms.get(s, 0.0) + other.terms.get(s, 0.0) for s in symbols})

    def __mul__(self, other):
        terms = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                if not left & right:
                    terms[left | right] = terms.get(left | right, 0.0) + a * b
        return Nilpotent(terms)

    @property
    def value(self):
        return self.terms.get(frozenset(), 0.0)

    def apply(self, derivatives):
        """Apply an analytic function, given its derivatives at the value, by Taylor's series, which ends."""
        rest = Nilpotent({symbols: a for symbols, a in self.terms.items() if symbols})
        total, power = number(0.0), number(1.0)
        for k in range(len(frozenset().union(*self.terms)) + 1):
            total += power * number(derivatives(k) / math.factorial(k))
            power *= rest
        return total

    def without(self, symbol):
        return Nilpotent({symbols: a for symbols, a in self.terms.items() if symbol not in symbols})

    def coefficient(self, symbol):
        return Nilpotent({symbols - {symbol}: a for symbols, a in self.terms.items() if symbol in symbols})


def number(value):
    return Nilpotent({frozenset(): value})


def sine_of(a):
    return a.apply(lambda k: math.sin(a.value + k * math.pi / 2))


def exponential_of(a):
    return a.apply(lambda k: math.exp(a.value))


MODEL = {
    "add": lambda a, b: a + b, "multiply": lambda a, b: a * b, "sine": sine_of, "sine Function": sine_of,
    "cube Function": lambda a: a * a * a, "exponential in place": exponential_of,
    "detach": lambda a: number(a.value), "identity Function": lambda a: a, "multiply Function": lambda a, b: a * b,
    "list Function": lambda a, b: a + b + b,
    "buffer": lambda a, b, c: (a + b) * c, "view": lambda a, b, c: a + b * c,
}


def by_model(expression, values):
    kind, *parts = expression
    if kind == "constant":
        return number(parts[0])
    if kind == "variable":
        return values[-1 - parts[0] % len(values)]      # the innermost first
    if kind == "derivative":
        mode, at, body = parts
        symbol = object()
        result = by_model(body, [*values, by_model(at, values) + Nilpotent({frozenset({symbol}): 1.0})])
        slope = result.coefficient(symbol)
        return slope + result.without(symbol) if mode == "value_and_grad" else slope
    if kind == "batch":
        *points, body = parts
        results = [by_model(body, [*values, by_model(point, values)]) for point in points]
        return functools.reduce(Nilpotent.__add__, [number(k + 1.0) * result for k, result in enumerate(results)])
    return MODEL[kind](*[by_model(part, values) for part in parts])


def detached(a):
    return a.detach() if isinstance(a, Tensor) else a


def exponential_in_place(a):
    written = ops.np.zeros(1) + a
    assert ExponentialInPlace.apply(written) is written
    return written.sum()


def zeros_for(shape, value):
    """Return zeros made here, of the kind that what is written to them has: a raw array takes no tracked Tensor."""
    return ops.np.zeros(shape) + 0 * value


def by_buffer(a, b, c):
    buffer = zeros_for(2, a + b + c)
    buffer[0] = a
    buffer[1] = b
    buffer *= c
    return buffer.sum()


def by_view(a, b, c):
    buffer = zeros_for((2, 2), a + b + c)
    view = buffer[1]
    buffer[0, 0] = a
    view[1] = b
    view *= c
    return buffer.sum()


PROGRAMS = {
    "add": ops.np.add, "multiply": ops.np.multiply, "sine": ops.np.sin, "detach": detached,
    "sine Function": lambda a: SineCosine.apply(a)[0], "cube Function": lambda a: Cube.apply(a)[0],
    "identity Function": Identity.apply, "multiply Function": Multiply.apply,
    "list Function": lambda a, b: WeightedSum.apply([a, b]), "exponential in place": exponential_in_place,
    "buffer": by_buffer, "view": by_view,
}
ONE = np.array(1.0)
MODES = {
    "grad": lambda f, x: grad(f)(x), "vjp": lambda f, x: vjp(f, x)[1](ONE)[0],
    "jvp": lambda f, x: jvp(f, (x,), (ONE,))[1], "value_and_grad": lambda f, x: sum(value_and_grad(f)(x)),
    "jacrev": lambda f, x: jacrev(f)(x), "jacfwd": lambda f, x: jacfwd(f)(x),
    "linearize": lambda f, x: linearize(f, x)[1](ONE),
    "functionalize of grad": lambda f, x: functionalize(grad(f))(x),
    "jvp of functionalize": lambda f, x: jvp(functionalize(f), (x,), (ONE,))[1],
    "vmap of grad": lambda f, x: vmap(grad(f))(ops.np.reshape(x, (1,)))[0],
    "jacrev of a batch": lambda f, x: jacrev(vmap(f))(ops.np.reshape(x, (1,)))[0, 0],
}


def by_transforms(expression, values):
    kind, *parts = expression
    if kind == "constant":
        return np.array(parts[0])
    if kind == "variable":
        return values[-1 - parts[0] % len(values)]      # the innermost first
    if kind == "derivative":
        mode, at, body = parts
        return MODES[mode](lambda x: by_transforms(body, [*values, x]), by_transforms(at, values))
    if kind == "batch":
        *points, body = parts
        batch = ops.np.stack([by_transforms(point, values) for point in points])
        results = vmap(lambda x: by_transforms(body, [*values, x]))(batch)
        return (results * np.arange(1.0, len(points) + 1)).sum()
    return PROGRAMS[kind](*[by_transforms(part, values) for part in parts])


def one_of_kinds(parts):
    unary = st.sampled_from(["sine", "sine", "sine Function", "sine Function", "identity Function", "detach"])
    binary = st.sampled_from(["add", "multiply", "multiply", "multiply Function", "list Function"])
    bounded = st.tuples(st.just("sine"), parts)
    return st.one_of(st.tuples(binary, parts, parts), st.tuples(unary, parts),
                     st.tuples(st.sampled_from(["cube Function", "exponential in place"]), bounded),
                     st.tuples(st.sampled_from(["buffer", "view"]), parts, parts, parts), derivatives(parts),
                     derivatives(parts), batches(parts))


def derivatives(parts):
    return st.tuples(st.just("derivative"), st.sampled_from(sorted(MODES)), parts, parts)


def batches(parts):
    return st.one_of(st.tuples(st.just("batch"), parts, parts), st.tuples(st.just("batch"), parts, parts, parts))


leaves = st.one_of(st.tuples(st.just("variable"), st.sampled_from([0, 0, 0, 1, 1, 2, 3])),
                   st.tuples(st.just("variable"), st.sampled_from([0, 0, 0, 1, 1, 2, 3])),
                   st.tuples(st.just("constant"), st.sampled_from([-1.25, 0.5, 1.0, 2.0])))
expressions = st.recursive(leaves, one_of_kinds, max_leaves=12)


@settings(max_examples=400)
@given(st.one_of(derivatives(expressions), batches(expressions)))
def test_nested_derivatives(expression):
    expected = by_model(expression, [number(0.75), number(-0.5)])
    actual = by_transforms(expression, [np.array(0.75), np.array(-0.5)])
    np.testing.assert_allclose(np.asarray(actual), expected.value, rtol=1e-9, atol=1e-9)


@settings(max_examples=200)
@given(expressions.map(lambda body: ("derivative", "grad", ("variable", 0), body)), st.sampled_from([0, 1]))
def test_nested_derivatives_on_the_eager_tape(expression, n):
    numbers = [0.75, -0.5]
    symbol = object()
    points = [number(value) for value in numbers]
    points[n] += Nilpotent({frozenset({symbol}): 1.0})
    expected = by_model(expression, points).coefficient(symbol).value
    tensors = [Tensor(np.array(value), requires_grad=True) for value in numbers]
    result = by_transforms(expression, tensors)
    if result.requires_grad:
        result.backward()
    gradient = tensors[n].grad
    np.testing.assert_allclose(0.0 if gradient is None else np.asarray(gradient), expected, rtol=1e-9, atol=1e-9)
