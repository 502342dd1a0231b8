"""Derivatives of functions that also take indices or masks, of each example's own or shared.

Every sequence of vmaps and derivatives, where each vmap maps both arguments or one of them, against loops.
"""

import itertools
import zlib

import numpy as np
import pytest

from pydispatch import ops
from pydispatch.func import functionalize, jacfwd, jacrev, linearize, vmap
from pydispatch.higher_order import cond, scan, while_loop
from pydispatch.tracing import make_fx

op = ops.np
MATRIX = np.random.default_rng(7).normal(size=(3, 3))
ROW = np.array([0, 1, 2])


def element_set(x, i):
    y = x * 1.0
    y[i[0]] = x.sum()
    return y * y


def zeros_set(x, i):
    y = op.zeros_like(x)
    y[i[0]] = x[i[1]] * x[i[2]]
    return y


def selected_step(h, k, x):
    return op.sin(h + x[k]) * h, h * h


WITH_INDICES = {
    "x[i]": lambda x, i: op.log(op.exp(x).sum()) - x[i[0]],
    "index": lambda x, i: op.sin(op.index(x, i)),
    "index a matrix": lambda x, i: op.tanh(op.index(MATRIX, i) @ x),
    "index columns": lambda x, i: op.index(MATRIX * x, (slice(None), i)).sum(axis=0) ** 2,
    "index elements": lambda x, i: op.index(MATRIX * op.sin(x), (i, ROW)) ** 2,
    "take": lambda x, i: op.take(x * x, i + 1, mode="clip"),
    "take with wrap": lambda x, i: op.take(x * x, i + 7, mode="wrap"),
    "take_along_axis": lambda x, i: op.take_along_axis(x**3, i, 0),
    "scatter_add": lambda x, i: op.scatter_add(x * x, i, op.sin(x), 0),
    "index_put that adds": lambda x, i: op.index_put(op.sin(x), i, x * x, accumulate=True),
    "index_put": lambda x, i: op.index_put(x * x, i, 0.0),
    "x[i] = v": element_set, "zeros[i] = v": zeros_set,
    "an exponent": lambda x, i: op.power(x + 3.0, i),
    "a place that was found": lambda x, i: x[op.argmax(x * i)] * x,
    "scan over indices": lambda x, i: scan(lambda h, k: selected_step(h, k, x), x.sum(), i)[1],
    "number of steps": lambda x, i: while_loop(
        lambda k, y: k < i[0] + 1, lambda k, y: (k + 1, y * op.sin(y) + y), (np.array(0), x))[1],
}
WITH_MASKS = {
    "where": lambda x, mask: op.where(mask, x * x, op.sin(x)),
    "index_put by a mask": lambda x, mask: op.index_put(x**3, mask, 2.0) * x,
    "sum where": lambda x, mask: op.sum(x**3, where=mask) * x,
    "max of some": lambda x, mask: op.max(op.where(mask, x, -9.0)) * x,
    "cond": lambda x, mask: cond(mask[0], lambda x: x**3, lambda x: op.sin(x) * x, (x,)),
}
FUNCTIONS = WITH_INDICES | WITH_MASKS

MAPPED = {"both": (0, 0), "x": (0, None), "choice": (None, 0)}


def one_by_one(f, in_dims):
    def looped(x, choice):
        n = len(choice) if in_dims[0] is None else len(x)
        return op.stack([
            f(*[value if dim is None else value[k] for value, dim in zip((x, choice), in_dims, strict=True)])
            for k in range(n)
        ])

    return looped


def pushed(f):
    return lambda x, choice: linearize(lambda x: f(x, choice), x)[1](op.cos(x))


DERIVATIVES = {"jacfwd": jacfwd, "jacrev": jacrev, "linearize": pushed}
STEPS = (*MAPPED, *DERIVATIVES, "functionalize")


def words(length):
    """Return the words that contain a vmap."""
    return [word for word in itertools.product(STEPS, repeat=length) if not MAPPED.keys().isdisjoint(word)]


def is_refused(name, word):
    """Return whether a batch is written to unbatched memory, or linearize meets a while_loop in reverse mode."""
    if name in ("x[i] = v", "zeros[i] = v"):
        return "choice" in word
    return name == "number of steps" and "linearize" in word and "jacrev" in word


def programs(name, word):
    """Return the function transformed, the same by loops, and how many axes of examples its two arguments have."""
    with_vmap = in_a_loop = FUNCTIONS[name]
    n_x = n_choice = 0
    for step in reversed(word):
        if step in MAPPED:
            in_dims = MAPPED[step]
            with_vmap, in_a_loop = vmap(with_vmap, in_dims), one_by_one(in_a_loop, in_dims)
            n_x, n_choice = n_x + (in_dims[0] == 0), n_choice + (in_dims[1] == 0)
        elif step == "functionalize":
            with_vmap = functionalize(with_vmap)        # the loop does without
        else:
            with_vmap, in_a_loop = DERIVATIVES[step](with_vmap), DERIVATIVES[step](in_a_loop)
    return with_vmap, in_a_loop, n_x, n_choice


def arguments(name, n_x, n_choice, seed):
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    shape = (2,) * n_choice + (3,)
    choice = rng.integers(0, 3, shape) if name in WITH_INDICES else rng.random(shape) > 0.4
    return rng.normal(size=(2,) * n_x + (3,)), choice


def same(found, expected, name, word):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-9, atol=1e-10, strict=True,
                               err_msg=f"{name}: {word}")


def check(name, word):
    with_vmap, in_a_loop, *numbers = programs(name, word)
    values = arguments(name, *numbers, seed=0)
    same(with_vmap(*values), in_a_loop(*values), name, word)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_of_two(name):
    for word in [*words(1), *words(2)]:
        if not is_refused(name, word):
            check(name, word)


def test_a_scan_asks_for_no_index_that_is_not_known():
    check("scan over indices", ("both", "both", "linearize"))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_of_three(name):
    for word in words(3):
        if not is_refused(name, word):
            check(name, word)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_of_words(name):
    for word in [*words(1), *words(2)]:
        if is_refused(name, word):
            continue
        with_vmap, in_a_loop, *numbers = programs(name, word)
        graph = make_fx(with_vmap)(*arguments(name, *numbers, seed=0))
        others = arguments(name, *numbers, seed=1)
        same(graph(*others), in_a_loop(*others), name, word)
