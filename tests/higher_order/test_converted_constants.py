"""Bodies convert the constants that they capture, as plain functions do, in every transform."""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile
from pydispatch.exceptions import DispatchError
from pydispatch.func import functionalize, grad, hessian, jvp, linearize, vjp, vmap
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx

X = np.array([0.5, 1.5, -2.0])
ONES = np.ones(3)

TWO = Tensor(np.array(2))
CONSTANTS = {
    "an array made inside": lambda x: pnp.array(2),
    "a scalar": lambda x: pnp.sum(pnp.ones(2)),
    "a written array": lambda x: pnp.add(two := pnp.zeros(()), 2.0, out=two),
    "a Tensor from outside": lambda x: TWO,
    "a derived value": lambda x: pnp.floor(x * 0 + 2)[0],
}
CONVERSIONS = {
    "float": lambda v, k: v * float(k),
    "int and index": lambda v, k: v * pnp.arange(5.0)[int(k)],
    "a slice": lambda v, k: v * pnp.ones(5)[: int(k)].sum(),
    "a branch": lambda v, k: v * 2 if k > 1 else v * 3,
    "a range": lambda v, k: sum((v for _ in range(int(k))), v * 0),
    "item": lambda v, k: v * k.item(),
    "an array of NumPy": lambda v, k: v * np.asarray(k).tolist(),
    "text": lambda v, k: v * {"2": 2.0}[f"{float(k):.0f}"],
}
CONSTRUCTS = {
    "cond": lambda x, k, body: cond(np.array(True), lambda x: body(x, k).sum(), lambda x: x.sum() * 1, (x,)),
    "scan": lambda x, k, body: scan(lambda total, v: (total + body(v, k), None), np.zeros(()), x)[0],
    "while_loop": lambda x, k, body: while_loop(
        lambda i, total: i < int(k), lambda i, total: (i + 1, total + body(x, k).sum() / 2), (0, np.zeros(())))[1],
    "map": lambda x, k, body: map_slices(lambda v: body(v, k), x).sum(),
    "associative_scan": lambda x, k, body: associative_scan(lambda a, b: a + body(b, k) / 2, x)[-1] * 2,
    "scan in cond": lambda x, k, body: cond(np.array(True), lambda x: scan(
        lambda total, v: (total + body(v, k), None), np.zeros(()), x)[0], lambda x: x.sum() * 1, (x,)),
}
SLOPES = {
    "grad": lambda f: grad(f)(X) @ ONES,
    "tape": lambda f: (lambda t: (f(t).backward(), t.grad.numpy() @ ONES)[1])(Tensor(X, requires_grad=True)),
    "vjp": lambda f: vjp(f, X)[1](1.0)[0] @ ONES,
    "jvp": lambda f: jvp(f, (X,), (ONES,))[1],
    "linearize": lambda f: linearize(f, X)[1](ONES),
    "compile(grad)": lambda f: compile(grad(f))(X) @ ONES,
    "grad(compile)": lambda f: grad(compile(f))(X) @ ONES,
    "vmap(grad)": lambda f: vmap(grad(f))(X[None])[0] @ ONES,
    "grad(vmap)": lambda f: grad(lambda batch: vmap(f)(batch).sum())(X[None])[0] @ ONES,
    "functionalize(grad)": lambda f: functionalize(grad(f))(X) @ ONES,
    "grad(functionalize)": lambda f: grad(functionalize(f))(X) @ ONES,
}
VALUES = {
    "raw": lambda f: f(X),
    "Tensor": lambda f: f(Tensor(X)).numpy(),
    "vmap": lambda f: vmap(f)(X[None])[0],
    "functionalize": lambda f: functionalize(f)(X),
    "make_fx": lambda f: make_fx(f)(X)(X),
    "compile": lambda f: compile(f)(X),
    "compile in Python": lambda f: compile(f, backend="python")(X),
}


def of(construct, constant, conversion):
    return lambda x: CONSTRUCTS[construct](x, CONSTANTS[constant](x), CONVERSIONS[conversion])


CASES = [
    *[(construct, "an array made inside", conversion) for construct in CONSTRUCTS for conversion in CONVERSIONS],
    *[(construct, constant, "float") for construct in CONSTRUCTS for constant in CONSTANTS
      if constant not in ("an array made inside", "a derived value")],
]


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=[pytest.mark.slow] * (i % 8 > 0)) for i, case in enumerate(CASES)], ids=" ".join)
def test_bodies_convert_captured_constants(case):
    f = of(*case)
    for name, way in VALUES.items():
        np.testing.assert_allclose(way(f), 2 * X.sum(), err_msg=name)
    for name, way in SLOPES.items():
        np.testing.assert_allclose(way(f), 6.0, err_msg=name)
    np.testing.assert_allclose(hessian(f)(X), np.zeros((3, 3)))


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_value_that_depends_on_an_argument_is_not_converted(construct):
    f = of(construct, "a derived value", "float")
    for way in (lambda: vmap(f)(X[None]), lambda: compile(f)(X), lambda: f(Tensor(X, requires_grad=True))):
        with pytest.raises(DispatchError):
            way()


def test_a_body_does_not_write_to_a_constant_that_it_converts():
    def f(x):
        k = pnp.array(2.0)

        def body(total, v):
            k[...] = float(k) + 1.0
            return total + v, None

        return scan(body, np.zeros(()), x)[0]

    for way in (grad(f), functionalize(f), compile(f), lambda x: vmap(f)(x[None])):
        with pytest.raises(DispatchError):
            way(X)
