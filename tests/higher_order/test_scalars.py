"""Numbers, scalars of NumPy, scalar Tensors and elements enter a body as scalars: `v += 1` rebinds the variable.

Oracle: the same function of Python numbers, in a loop.
"""

import numpy as np
import pytest

import pydispatch.numpy as pnp
from pydispatch import Tensor, compile, func
from pydispatch.autograd import checkpoint
from pydispatch.higher_order import associative_scan, cond, scan, while_loop
from pydispatch.higher_order import map as map_slices
from pydispatch.tracing import make_fx
from tests.together import together

X = np.array([0.5, 1.1, -0.4])
YES = np.array(True)


def rebinds(v, by=1.0):
    same = v
    same += by
    return same * v


def summed(s, v):
    s += v
    v *= 2
    return s, s * v


def counted(i, y):
    i += 1
    y = y * i
    return i, y


def pairs(a, b):
    a += b
    return a * 1


PROGRAMS = {     # a function of an array, and what it computes in a loop
    "map": (lambda x: map_slices(rebinds, x).sum(), lambda x: sum((v + 1) * v for v in x)),
    "argument of map": (lambda x: map_slices(lambda v, by: rebinds(by, v), x, x[0]).sum(),
                        lambda x: sum((x[0] + v) * x[0] for v in x)),
    "scan": (lambda x: scan(summed, 0.0, x)[1].sum(), lambda x: sum(x[: i + 1].sum() * 2 * x[i] for i in range(3))),
    "scan from a scalar": (lambda x: scan(summed, x[0], x[1:])[0], lambda x: x.sum()),
    "while_loop": (lambda x: while_loop(lambda i, y: i < 3, counted, (0, x))[1].sum(), lambda x: 6 * x.sum()),
    "while_loop of two": (
        lambda x: while_loop(lambda i, s: i < 3, lambda i, s: counted(i, rebinds(s)), (0, x.sum()))[1],
        lambda x: (s1 := (x.sum() + 1) * x.sum(), s2 := 2 * (s1 + 1) * s1, 3 * (s2 + 1) * s2)[2]),
    "cond": (lambda x: cond(YES, rebinds, lambda v: v * 1, (x[1],)), lambda x: (x[1] + 1) * x[1]),
    "associative_scan": (lambda x: associative_scan(pairs, x).sum(), lambda x: x.cumsum().sum()),
    "checkpoint": (lambda x: checkpoint(lambda m, y: (y * rebinds(m)).sum(), x.max(), x),
                   lambda x: x.sum() * (x.max() + 1) * x.max()),
}
WAYS = {
    "value": lambda f: f(X), "grad": lambda f: func.grad(f)(X), "jacfwd": lambda f: func.jacfwd(f)(X),
    "hessian": lambda f: func.hessian(f)(X), "vmap": lambda f: func.vmap(f)(np.stack([X, X + 1])),
    "vmap of grad": lambda f: func.vmap(func.grad(f))(np.stack([X, X + 1])),
    "compile": lambda f: compile(f)(X), "compiled grad": lambda f: compile(func.grad(f))(X),
    "functionalize": lambda f: func.functionalize(f)(X), "make_fx": lambda f: make_fx(f)(X)(X),
    "linearize": lambda f: func.linearize(f, X)[1](np.ones(3)),
    "Tensor": lambda f: f(Tensor(X)).numpy(),
}


@pytest.mark.parametrize("program", PROGRAMS)
@together("way", WAYS)
def test_assignments_to_scalars_rebind(program, way):
    here, in_a_loop = PROGRAMS[program]
    before = X.copy()
    oracle = {"functionalize": "value", "make_fx": "value", "compile": "value", "compiled grad": "grad",
              "Tensor": "value"}.get(way, way)
    np.testing.assert_allclose(WAYS[way](here), WAYS[oracle](in_a_loop), rtol=1e-9)
    np.testing.assert_array_equal(X, before)


def test_results_are_scalars_where_the_arguments_are():
    kept = [
        scan(lambda s, _: (s + 1, None), 0.0, length=0)[0], while_loop(lambda i: i < 0, lambda i: i, (0,))[0],
        while_loop(lambda i, j: i < 1, lambda i, j: (i + 1, j), (0, 2.0))[1],
        cond(YES, rebinds, rebinds, (np.float64(2),)),
    ]
    assert all(isinstance(value, np.generic) for value in kept)


@pytest.mark.parametrize("start", [np.zeros(()), Tensor(np.zeros(()))], ids=["array", "Tensor"])
def test_arrays_without_axes_stay_arrays(start):
    def step(s, v):
        y = s.copy()
        y[...] = v
        y[()] += 1
        return y, None

    found = scan(step, start, X)[0]
    np.testing.assert_allclose(np.asarray(found), X[-1] + 1)


def test_elements_of_a_scalar_are_not_assigned():
    def assigns(v):
        v[...] = 1.0
        return v

    with pytest.raises(Exception, match="scalar"):
        map_slices(assigns, X)
    assert func.grad(lambda x: scan(lambda s, v: (pnp.stack([v, s]).sum(), None), 0.0, x)[0])(X).tolist() == [1, 1, 1]
