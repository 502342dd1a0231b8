"""Programs that fill, update and reuse arrays: every way of asking for a gradient gives that of the program as written.

The oracle is central differences of the program on raw arrays, of NumPy.
"""

import itertools

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, autograd, compile, debug, func, ops
from pydispatch.autograd.residuals import watching_copies
from tests.together import together

X = numpy.array([[0.7, -0.4, 1.2, 0.3], [1.1, 0.5, -0.8, 0.9], [0.2, 1.3, 0.6, -0.7], [-0.5, 0.8, 0.4, 1.4]])
POSITIONS = numpy.array([2, 0, 2])
MASK = X > 0.45


def recursion(x):
    y = np.zeros(4)
    y[0] = x[0, 0]
    for i in range(1, 4):
        y[i] = np.sin(y[i - 1]) * x[0, i]
    return y.sum()


def recursion_of_rows(x):
    y = np.zeros(x.shape)
    y[0] = x[0]
    for i in range(1, 4):
        y[i] = np.sin(y[i - 1]) * x[i]
        y[i] += y[i - 1] * x[0]
    return (y * y).sum()


def running_total(x):
    total = x[0] * 1.0
    squares = np.zeros(4)
    for row in x:
        total += row * total
        squares += total * total
    return squares.sum()


def halves_of_a_split(x):
    y = np.exp(x[0])
    a, b = np.split(y, 2)
    a *= b
    b *= a
    return (y * y).sum()


def parts_of_an_unstack(x):
    y = np.sin(x)
    for i, row in enumerate(np.split(y, 4)):
        row *= y[(i + 1) % 4]
    return (y * x).sum()


def added_at(x):
    y = np.sin(x[0])
    z = np.exp(y) * y
    np.add.at(y, POSITIONS, x[1, :3] * y[:3])
    return (y * y).sum() + z.sum()


def put(x):
    y = np.sin(x)
    z = y * y
    np.put(y, [1, 6], x[3, :2])
    return (y * y).sum() + z.sum()


def copied_to(x):
    y = np.exp(x)
    z = y * y
    np.copyto(y, x * x)
    return (y * z).sum()


def out_of_a_function(x):
    y = np.exp(x)
    z = y * 2.0
    np.multiply(y, z, out=y)
    np.sin(y, out=z)
    return (y * z).sum()


def mask(x):
    y = np.exp(x)
    z = y * y
    y[MASK] = (x * x)[MASK]
    return (y * z).sum()


def index_array(x):
    y = np.exp(x)
    z = np.tanh(y)
    y[POSITIONS[1:]] = z[:2] * y[1:3]
    y[POSITIONS[1:], 1] *= 3.0
    return (y * z).sum()


def gram_schmidt(x):
    q = x * 1.0
    for i in range(4):
        q[:, i] /= np.sqrt((q[:, i] * q[:, i]).sum())
        for j in range(i + 1, 4):
            q[:, j] -= q[:, i] * (q[:, i] * q[:, j]).sum()
    return (q * numpy.arange(16.0).reshape(4, 4)).sum()


def decomposed_in_place(x):
    a = x + 4.0 * numpy.eye(4)
    for k in range(3):
        a[k + 1:, k] /= a[k, k]
        a[k + 1:, k + 1:] -= a[k + 1:, k, None] * a[k, k + 1:]
    return (a * a).sum()


def newton_history(x):
    steps = np.zeros((5, 4))
    steps[0] = 1.5
    target = 1.0 + x[0] * x[0]
    for i in range(1, 5):
        steps[i] = 0.5 * (steps[i - 1] + target / steps[i - 1])
    return (steps * steps).sum()


def dynamic_program(x):
    best = np.zeros((5, 5))
    for i in range(4):
        for j in range(4):
            best[i + 1, j + 1] = np.logaddexp(best[i, j + 1], best[i + 1, j]) + x[i, j]
    return best[4, 4] * best[2, 3]


def two_buffers(x):
    old, new = x * 1.0, np.zeros(x.shape)
    for _ in range(3):
        new[1:-1] = old[1:-1] * old[1:-1] + 0.25 * (old[2:] - old[:-2])
        old, new = new, old
    return (old * old).sum() + new.sum()


def sorted_in_place(x):
    y = np.sin(x)
    z = y * y
    y.sort(axis=1)
    return (y * z).sum()


def filled_diagonal(x):
    y = np.exp(x)
    z = y * y
    np.fill_diagonal(y, x[0])
    return (y * z).sum()


def exchanged_rows(x):
    y = x * x
    for i in range(3):
        kept = y[i].copy()
        y[i] = y[i + 1] * y[i]
        y[i + 1] = kept
    return (y * y).sum()


def results_overwritten(x):
    y = np.exp(x)
    z = np.tanh(y)
    y *= 2.0
    z -= y
    y[0] = z[1]
    return (z * y).sum()


def raw_constant(x):
    m = numpy.ones((4, 4))
    y = np.sin(x) * m
    m *= 5.0
    return (y * x).sum()


def raw_positions(x):
    at = numpy.array([0, 2])
    y = x[at] * x[1:3]
    at += 1
    return (y * y).sum()


def raw_key_in_a_tuple(x):
    at = numpy.array([0, 2])
    y = x[at, 1:] * 2.0
    at[:] = 3
    return (y * y).sum()


def raw_list(x):
    m = numpy.ones((4, 4))
    y = np.einsum("ij,jk,kl->il", x, m, x)
    m[0] = 7.0
    return y.sum()


def constant_of_the_face(x):
    m = np.ones((4, 4))
    y = np.sin(x) * m
    m *= 5.0
    return (y * x * m).sum()


PROGRAMS = [recursion, recursion_of_rows, running_total, halves_of_a_split, parts_of_an_unstack, added_at, put,
            copied_to, out_of_a_function, mask, index_array, gram_schmidt, decomposed_in_place, newton_history,
            dynamic_program, two_buffers, sorted_in_place, filled_diagonal, exchanged_rows, results_overwritten,
            raw_constant, raw_positions, raw_key_in_a_tuple, raw_list, constant_of_the_face]


class Passing(func.Transform):
    """A transform of one's own that passes every call on."""

    def process(self, op, args, kwargs):
        return self.lower(op, *args, **kwargs)


def by_tape(f):
    def gradient(x):
        leaf = Tensor(x.copy(), requires_grad=True)
        on_tape(f)(leaf).backward()
        return leaf.grad.array
    return gradient


def on_tape(f):
    """Run a program on the tape, where factories must make Tensors to be written to."""
    return lambda leaf: func.functionalize(f)(leaf) if f in NEED_FACTORIES else f(leaf)


NEED_FACTORIES = {recursion, recursion_of_rows, running_total, newton_history, dynamic_program, two_buffers}
WAYS = {
    "tape": by_tape,
    "tape, twice": lambda f: lambda x: by_second_order(f)(x),
    "grad": func.grad,
    "vjp": lambda f: lambda x: func.vjp(f, x)[1](numpy.array(1.0))[0],
    "jvp": func.jacfwd,
    "jacrev": func.jacrev,
    "linearize": lambda f: lambda x: numpy.stack(
        [func.linearize(f, x)[1](one) for one in numpy.eye(16).reshape(16, 4, 4)]).reshape(4, 4),
    "checkpoint": lambda f: func.grad(lambda x: autograd.checkpoint(f, x)),
    "functionalize": lambda f: func.grad(func.functionalize(f)),
    "functionalize outside": lambda f: func.functionalize(func.grad(f)),
    "vmap": lambda f: lambda x: func.vmap(func.grad(f))(x[None])[0],
    "compile": lambda f: compile(func.grad(f)),
}


def by_second_order(f):
    def gradient(x):
        leaf = Tensor(x.copy(), requires_grad=True)
        first, = autograd.grad(on_tape(f)(leaf), leaf, create_graph=True)
        return autograd.grad((first * first).sum(), leaf, retain_graph=True)[0].array * 0.0 + first.detach().numpy()
    return gradient


def differences(f, x, step=1e-6):
    found = numpy.zeros(numpy.shape(f(x)) + x.shape)
    for place in itertools.product(*map(range, x.shape)):
        change = numpy.zeros(x.shape)
        change[place] = step
        found[(..., *place)] = (numpy.asarray(f(x + change)) - numpy.asarray(f(x - change))) / (2 * step)
    return found


@together("f, way", [
    (f, way) for f in PROGRAMS for way in WAYS if way != "vmap" or f not in NEED_FACTORIES
], ids=lambda value: getattr(value, "__name__", value))
def test_gradient_of_a_program_that_writes(f, way):
    x = X.copy()
    numpy.testing.assert_allclose(WAYS[way](f)(x), differences(f, X), rtol=1e-6, atol=1e-6)
    numpy.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("way", [
    func.hessian, lambda f: func.jacrev(func.grad(f)), lambda f: func.jacfwd(func.jacfwd(f)),
    lambda f: func.hessian(func.functionalize(f)),
], ids=["hessian", "jacrev of grad", "jacfwd of jacfwd", "functionalize"])
@together("f", PROGRAMS, ids=lambda f: f.__name__)
def test_second_derivatives_of_a_program_that_writes(f, way):
    numpy.testing.assert_allclose(way(f)(X.copy()), differences(func.grad(f), X), rtol=1e-5, atol=1e-5)


# --- what it costs ---------------------------------------------------------------------------------------------------


def filled(x):
    y = np.zeros(x.shape)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = np.sin(y[i - 1]) * x[i]
    return y.sum()


def filled_by_slices(x):
    y = x * 1.0
    for i in range(1, len(x)):
        y[i:i + 1] *= np.sin(y[i - 1:i])
    return y.sum()


def filled_by_columns(x):
    y = x * 1.0
    for i in range(1, x.shape[1]):
        y[:, i] *= np.sin(y[:, i - 1])
    return y.sum()


@pytest.mark.parametrize(("f", "shape"), [
    (filled, lambda n: (n,)), (filled, lambda n: (n, 3)), (filled_by_slices, lambda n: (n,)),
    (filled_by_slices, lambda n: (n, 3)), (filled_by_columns, lambda n: (2, n)),
], ids=["elements", "rows", "slices", "slices of rows", "columns"])
def test_a_loop_that_fills_n_elements_allocates_memory_for_n(f, shape):
    n = 800
    x = numpy.linspace(0.1, 0.9, numpy.prod(shape(n))).reshape(shape(n))
    func.grad(f)(x)
    with debug.memory() as use:
        func.grad(f)(x)
    # Five to thirteen arrays like x. A copy in each of the n steps would make more than n / 2.
    # Not compared between two lengths: small arrays reuse memory that earlier tests have left.
    assert use.allocated < 40 * x.nbytes


def test_nothing_is_copied_that_no_node_needs():
    copies = []
    x = Tensor(numpy.arange(1.0, 7.0), requires_grad=True)
    with watching_copies(lambda value, copy: copies.append(copy.shape)):
        y = x * 1.0
        square = y[:3] * y[:3]
        y[3:] = 5.0                     # disjoint
        y[4] += y[5]
        assert copies == []
        square.sum().backward()
        y *= 2.0                        # released
        assert copies == []
        del square
        square = y[::2] * y[::2]
        y[1::2] *= 3.0                  # disjoint by strides
        assert copies == []
        cube = ops.np.exp(square) * square
        del cube
        square += 1.0                   # dead
        assert copies == []
        y[2] = 0.0
    assert copies == [(3,), (3,)]       # both operands of the product


def test_a_copy_goes_with_the_last_node_that_needs_it():
    y = Tensor(numpy.arange(1.0, 1001.0), requires_grad=True) * 1.0
    with debug.memory() as use:
        results = []
        for _ in range(10):
            results.append((y * y).sum())
            with autograd.no_grad():
                y += 1.0
        assert use.live > 9 * 8000
        for result in results[::2]:
            result.backward(retain_graph=False)
        del results, result
    assert use.live < 2 * 8000          # the gradient of the leaf, and no copy
