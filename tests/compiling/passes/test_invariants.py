"""Loop-invariant code motion: what is computed once, and what is not."""

import numpy as np
import pytest

from pydispatch import compile, ops
from pydispatch.higher_order import scan, while_loop
from tests.compiling.same import check_same

X = np.arange(1.0, 5.0)


def with_wave(c, x, y):
    return c * ops.np.exp(ops.np.sin(y)) + x


def with_own_change(c, x, y):
    return ops.np.setitem(c, 0, ops.np.exp(c[1])) + x


def with_inner_loop(c, x, y):
    return scan(lambda d, z: (d + ops.np.exp(y) * z, d * 1.0), c, X * x)[0]


@pytest.mark.parametrize(("body", "name", "inside"), [
    (with_wave, "exp", False), (with_wave, "multiply", True), (with_own_change, "exp", True),
    (with_inner_loop, "exp", False)])
def test_steps_that_repetitions_do_not_change_run_once(body, name, inside):
    def function(x, y):
        return scan(lambda c, x: (body(c, x, y), c * 1.0), y - 2.0, x)

    compiled = compile(function)
    check_same(compiled(X[:3], X), function(X[:3], X))
    line = next(line for line in compiled.plan(X[:3], X).splitlines() if f"= {name}(" in line)
    assert line.startswith("    ") == inside


def test_steps_of_loops_that_may_not_run_stay_inside():
    def function(x):
        return while_loop(lambda c: c.sum() < 0.0, lambda c: (c + ops.np.log(x - 9.0),), (x,))[0]

    with np.errstate(all="raise"):
        check_same(compile(function)(X), X)
