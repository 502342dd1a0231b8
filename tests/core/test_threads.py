"""Operators, derivatives, transforms, compiled functions and registrations in eight threads at once.

The tests run with the GIL too. On a free-threaded CPython they are the first to fail.
"""

import gc
import itertools
import threading
from collections.abc import Callable

import numpy
import pytest

import pydispatch.numpy as np
from pydispatch import Tensor, autograd, compile, func, ops
from pydispatch.exceptions import AutogradError
from pydispatch.library import Library, custom_op
from tests.together import together

N_THREADS = 8
N_TIMES = 30
X = numpy.linspace(0.5, 2.0, 6).reshape(2, 3)


def run_in_threads(work: Callable[[int], object], times: int = N_TIMES) -> None:
    """Let every thread do its work `times` times, beginning together, and raise the first error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(N_THREADS)

    def run(number: int) -> None:
        try:
            barrier.wait()
            for _ in range(times):
                work(number)
        except BaseException as error:      # a thread would only print it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(N_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def same(found, expected) -> None:
    numpy.testing.assert_allclose(numpy.asarray(found), expected, rtol=1e-12)


def loss(x):
    return np.sum(np.sin(x) * x)


def slope_of_loss(x):
    return numpy.cos(x) * x + numpy.sin(x)


compiled = compile(lambda x: np.exp(x) * 2.0 + x)
shared = Tensor(X.copy())
leaf = Tensor(X.copy(), requires_grad=True)
graph = loss(leaf)


def differentiate_shared_graph(number: int) -> None:
    (gradient,) = autograd.grad(graph, leaf, retain_graph=True)
    same(gradient, slope_of_loss(X))


def take_views_of_shared(number: int) -> None:
    same(Tensor.detach(shared[number % 2]) + 1.0, X[number % 2] + 1.0)


def record_own_tape(number: int) -> None:
    x = Tensor(X + number, requires_grad=True)
    loss(x).backward()
    same(x.grad, slope_of_loss(X + number))


def write_in_place(number: int) -> None:
    x = Tensor(X + number, requires_grad=True)
    y = x * 1.0
    squares = y * y
    y[0] = 0.0
    (np.sum(squares) + np.sum(y)).backward()
    expected = 2.0 * (X + number)
    expected[1] += 1.0
    same(x.grad, expected)


def enter_guards(number: int) -> None:
    x = Tensor(X, requires_grad=True)
    with autograd.no_grad():
        assert not (x * 2.0).requires_grad
        with autograd.enable_grad():
            assert (x * 2.0).requires_grad
    with autograd.inference_mode():
        assert not (x * 2.0).requires_grad


WORK = {
    "call": lambda number: same(np.add(Tensor(X), number), X + number),
    "own tape": record_own_tape,
    "shared graph": differentiate_shared_graph,
    "views": take_views_of_shared,
    "in place": write_in_place,
    "guards": enter_guards,
    "grad": lambda number: same(func.grad(loss)(X + number), slope_of_loss(X + number)),
    "grad of grad": lambda number: same(
        func.grad(lambda x: np.sum(func.grad(loss)(x)))(X), 2 * numpy.cos(X) - X * numpy.sin(X)),
    "jvp": lambda number: same(func.jvp(np.sin, (X,), (X,))[1], numpy.cos(X) * X),
    "vmap": lambda number: same(func.vmap(func.grad(loss))(X + number), slope_of_loss(X + number)),
    "compiled": lambda number: same(compiled(X[:, : 1 + number % 3]), (numpy.exp(X) * 2.0 + X)[:, : 1 + number % 3]),
    "compiled again": lambda number: same(compile(lambda x: np.cos(x) * number)(X), numpy.cos(X) * number),
    "collect": lambda number: gc.collect(0),
}


@together("name", WORK, ids=str)
def test_one_kind_of_work(name):
    run_in_threads(WORK[name])


def test_all_kinds_of_work():
    work = list(WORK.values())
    run_in_threads(lambda number: [work[(number + k) % len(work)](number) for k in range(len(work))], 8)


def test_gradients_of_all_threads_add_up_in_a_shared_leaf():
    x = Tensor(X.copy(), requires_grad=True)
    run_in_threads(lambda number: loss(x).backward())
    same(x.grad, N_THREADS * N_TIMES * slope_of_loss(X))


def test_threads_that_release_one_graph_get_its_gradient_or_an_error():
    for _ in range(N_TIMES):
        graph, found, refused = loss(leaf), [], []

        def differentiate(number: int, graph=graph, found=found, refused=refused) -> None:
            try:
                found.append(autograd.grad(graph, leaf)[0])
            except AutogradError as error:
                refused.append(str(error))

        run_in_threads(differentiate, 1)
        assert found
        for gradient in found:
            same(gradient, slope_of_loss(X))
        assert all("released" in message for message in refused)


@pytest.mark.filterwarnings("ignore:.* was compiled .* times")
def test_a_compiled_function_is_called_while_it_is_compiled_for_other_shapes():
    double = compile(lambda x: x * 2.0)

    def work(number: int) -> None:
        for n in range(1, 12):
            x = numpy.full(1 + (n + number) % 12, float(n))
            same(double(x), x * 2.0)

    run_in_threads(work, 3)


def test_one_thread_writes_to_what_others_differentiate():
    """Check shapes: the values are unspecified."""
    y = leaf * 1.0

    def work(number: int) -> None:
        if number == 0:
            y[0] = 2.0
        else:
            (gradient,) = autograd.grad(np.sum(y * y), leaf, retain_graph=True)
            assert gradient.shape == X.shape

    run_in_threads(work)


def test_calls_while_a_kernel_comes_and_goes(fresh: Library):
    """Check that a call sees the kernel of before or after, and no other."""
    fresh.define("f(Tensor x) -> Tensor")
    fresh.impl("f", lambda x: x + 1.0, "CompositeExplicitAutograd")
    f = getattr(ops, fresh.namespace).f

    def work(number: int) -> None:
        if number == 0:
            fresh.impl("f", lambda x: x + 2.0, "CPU").remove()
        else:
            assert (f(X) - X).round(9)[0, 0] in (1.0, 2.0)

    run_in_threads(work, 100)


def test_every_thread_defines_operators(fresh: Library):
    names = itertools.count()

    def work(number: int) -> None:
        name = f"{fresh.namespace}::g{next(names)}"

        @custom_op(name, mutates_args=())
        def g(x: Tensor) -> Tensor:
            return x * (number + 1.0)

        g.register_autograd(lambda ctx, gradient: gradient * (number + 1.0))
        same(func.grad(lambda x: np.sum(g(x)))(X), numpy.full(X.shape, number + 1.0))

    run_in_threads(work, 5)
