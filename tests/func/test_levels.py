"""Interpreters: nesting, wrappers and their life, modes, mutation, threads, tasks, exceptions."""

import asyncio
import contextvars
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pydispatch import Tensor, autograd, ops
from pydispatch.func import grad, jvp, value_and_grad, vjp
from tests.comparing import close
from tests.func.conftest import check_no_level_is_active

X = np.array([0.3, -1.2, 2.0])
ONE, TWO, THREE = np.array(1.0), np.array(2.0), np.array(3.0)


def by_grad(f):
    return grad(f)


def by_vjp(f):
    def derivative(x):
        _, pull = vjp(f, x)
        return pull(np.ones(()))[0]

    return derivative


def by_jvp(f):
    return lambda x: jvp(f, (x,), (np.ones(()),))[1]


DERIVATIVES = {"grad": by_grad, "vjp": by_vjp, "jvp": by_jvp}
PAIRS = list(itertools.product(DERIVATIVES, repeat=2))
RUNS = {
    "grad": lambda f, x: grad(f)(x), "value_and_grad": lambda f, x: value_and_grad(f)(x),
    "vjp": lambda f, x: vjp(f, x), "jvp": lambda f, x: jvp(f, (x,), (np.ones(x.shape, x.dtype),)),
}
"""Each calls f, which returns a number, once with a live wrapper of x."""
REVERSE = {name: run for name, run in RUNS.items() if name != "jvp"}


pytestmark = pytest.mark.usefixtures("levels_are_left_as_they_were")


# --- nesting ------------------------------------------------------------------------------------------------


def by_tape(f):
    """Differentiate on the eager tape, with a graph of the derivative."""
    def derivative(x):
        leaf = Tensor(x.copy(), requires_grad=True)
        return autograd.grad(f(leaf), leaf, create_graph=True)[0]

    return derivative


@pytest.mark.parametrize("inner", [*DERIVATIVES.values(), by_tape], ids=[*DERIVATIVES, "tape"])
def test_perturbation_confusion_with_the_tape_outside(inner):
    close(by_tape(lambda x: x * inner(lambda y: x + y)(ONE))(ONE).detach(), 1.0)
    close(by_tape(lambda x: x * inner(lambda y: x * y)(THREE))(TWO).detach(), 4.0)
    close(by_tape(lambda x: inner(lambda y: x + 0 * y)(ONE) + x**2)(TWO).detach(), 4.0)


@pytest.mark.parametrize("outer", [by_grad, by_vjp], ids=["grad", "vjp"])
def test_perturbation_confusion_with_the_tape_of_the_level_inside(outer):
    def f(x):
        y = 0 * x + THREE
        (slope,) = autograd.grad(x * y, y, create_graph=True)      # x, though y was computed from x
        return x * slope

    close(outer(f)(TWO), 4.0)
    close(outer(outer(f))(TWO), 2.0)


@pytest.mark.parametrize("inner", ["vjp", "jvp"])
def test_outer_value_passes_through_an_inner_level(inner):
    def f(a):
        output = vjp(lambda b: a, TWO)[0] if inner == "vjp" else jvp(lambda b: a, (TWO,), (ONE,))[0]
        return output * a

    close(grad(f)(THREE), 6.0)


def test_outer_value_passes_through_as_aux_unchanged():
    def f(a):
        _, aux = grad(lambda b: (b**2, [a, b]), has_aux=True)(a)
        assert aux[0] is a
        assert aux[1] is a
        return a * 2

    close(grad(f)(THREE), 2.0)


def test_jvp_of_vjp_and_vjp_of_jvp_of_a_vector_function():
    matrix, direction = np.arange(6.0).reshape(2, 3), np.array([1.0, -2.0, 0.5])

    def f(x):
        return ops.np.sin(matrix @ x)

    ones = np.ones(2)
    expected = matrix.T @ (-np.sin(matrix @ X) * (matrix @ direction))
    _, forward_over_reverse = jvp(lambda x: vjp(f, x)[1](ones)[0], (X,), (direction,))
    _, pull = vjp(lambda x: jvp(f, (x,), (direction,))[1], X)
    close(forward_over_reverse, expected)
    close(pull(ones)[0], expected)


def sum_of_cubes(x):
    return (x**3).sum()


# --- wrappers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_metadata_is_that_of_the_value(run):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def f(wrapper):
        assert isinstance(wrapper, Tensor)
        assert (wrapper.shape, wrapper.ndim, wrapper.size, len(wrapper)) == ((2, 3), 2, 6, 2)
        assert wrapper.dtype == np.float32
        assert [row.shape for row in wrapper] == [(3,), (3,)]
        return wrapper.sum()

    run(f, x)


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_wrapper_says_which_transform_it_belongs_to(run):
    texts = []

    def f(x):
        texts.append(repr(x))
        return x.sum()

    run(f, X)
    expected = "Jvp" if run is RUNS["jvp"] else "Grad"
    assert expected in texts[0]


@pytest.fixture(params=RUNS)
def escaped(request):
    """Provide a wrapper of X, with a result of it, of a transform that has ended."""
    kept = []

    def f(x):
        kept.extend([x, x * 2])
        return x.sum()

    RUNS[request.param](f, X)
    return kept


def test_dead_wrapper_meets_the_eager_tape(escaped):
    x, _ = escaped
    leaf = Tensor(X.copy(), requires_grad=True)
    (leaf * x).sum().backward()
    close(leaf.grad, X)


def test_dead_wrapper_of_an_inner_level_is_its_outer_value():
    kept = []

    def f(a):
        grad(lambda b: kept.append(b * a) or b)(THREE)
        return kept[0] * a

    close(grad(f)(TWO), 2 * 3.0 * 2.0)


def test_dead_wrapper_of_a_tracked_tensor_is_that_tensor():
    leaf = Tensor(X.copy(), requires_grad=True)
    kept = []
    grad(lambda x: kept.append(x) or x.sum())(leaf)
    (kept[0] ** 2).sum().backward()
    close(leaf.grad, 2 * X)


# --- exceptions ---------------------------------------------------------------------------------------------


class UnexpectedError(Exception):
    """An error that the library never raises."""


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_exception_in_an_operator(run):
    with pytest.raises(ValueError, match="broadcast"):
        run(lambda x: (x + np.ones(7)).sum(), X)
    check_no_level_is_active()


def test_wrapper_kept_by_an_exception_is_dead():
    kept = []
    with pytest.raises(UnexpectedError):
        grad(lambda x: kept.append(x) or raise_unexpected())(X)
    close(kept[0] * 2, 2 * X)


def raise_unexpected():
    raise UnexpectedError


def test_exception_in_backward_leaves_the_outer_level():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: raise_unexpected())
        return y.sum()

    with pytest.raises(UnexpectedError):
        grad(lambda a: grad(f)(a).sum())(X)
    check_no_level_is_active()


# --- threads, tasks, generators -----------------------------------------------------------------------------


def test_thread_that_takes_the_context_along_takes_the_levels():
    def f(x):
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, sum_of_cubes, x).result(30)

    close(grad(f)(X), 3 * X**2)
    close(jvp(f, (X,), (X,))[1], (3 * X**3).sum())


def test_tasks_are_independent():
    async def differentiate(power):
        results = []
        for _ in range(5):
            with autograd.no_grad():
                await asyncio.sleep(0)
                results.append(grad(lambda x: (x**power).sum())(X))
                assert not autograd.is_grad_enabled()
            await asyncio.sleep(0)
            assert autograd.is_grad_enabled()
        return results

    async def main():
        return await asyncio.gather(*(differentiate(power) for power in range(1, 5)))

    for power, results in enumerate(asyncio.run(main()), 1):
        for gradient in results:
            close(gradient, power * X ** (power - 1))


def test_event_loop_inside_a_transform_takes_the_levels_along():
    async def cube(x):
        await asyncio.sleep(0)
        return (x**3).sum()

    async def both(x):
        return sum(await asyncio.gather(cube(x), cube(2 * x)))

    close(grad(lambda x: asyncio.run(both(x)))(X), 27 * X**2)


def test_generator_runs_at_the_level_of_the_one_who_asks():
    def powers(x):
        y = x
        while True:
            y = y * x
            yield y

    kept = []

    def f(x):
        kept.append(powers(x))
        return next(kept[0]).sum()

    close(grad(f)(X), 2 * X)
    cube = next(kept[0])        # the wrappers inside the generator have died
    close(cube, X**3)
    assert type(cube) is np.ndarray


def test_generator_that_differentiates_between_steps():
    def steps(x):
        for _ in range(4):
            x = x - 0.1 * grad(sum_of_cubes)(x)
            yield x

    def f(x):
        *_, last = steps(x)
        return last.sum()

    x, slope = X, np.ones(3)
    for _ in range(4):
        slope = slope * (1 - 0.6 * x)
        x = x - 0.3 * x**2
    close(grad(f)(X), slope)


def test_result_of_one_thread_is_used_in_another():
    leaf = Tensor(X.copy(), requires_grad=True)
    with ThreadPoolExecutor(1) as pool:
        gradient = pool.submit(grad(sum_of_cubes), leaf).result(30)
    gradient.sum().backward()
    close(leaf.grad, 6 * X)


# --- grad mode ----------------------------------------------------------------------------------------------


def test_no_grad_around_everything_inside_gives_zeros():
    def f(x):
        with autograd.no_grad():
            return sum_of_cubes(x)

    close(grad(f)(X), np.zeros(3))


def test_no_grad_outside_does_not_matter_to_the_value():
    x = Tensor(X.copy(), requires_grad=True)
    with autograd.no_grad():
        value, gradient = value_and_grad(sum_of_cubes)(x)
    close(gradient, 3 * X**2)
    assert not value.requires_grad
    assert not gradient.requires_grad


@pytest.mark.parametrize("guard", [autograd.no_grad, autograd.inference_mode], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize("run", ["grad", "value_and_grad", "vjp"])
def test_modes_inside_do_not_depend_on_those_outside(guard, run):
    modes = []

    def f(x):
        modes.append((autograd.is_grad_enabled(), autograd.is_inference_mode_enabled(), x.requires_grad))
        return x.sum()

    with guard():
        RUNS[run](f, X)
    assert modes == [(True, False, True)]


def test_enable_grad_inside_acts_on_the_inner_level_only():
    x = Tensor(X.copy(), requires_grad=True)

    def f(x):
        with autograd.enable_grad():
            return sum_of_cubes(x)

    with autograd.no_grad():
        value, gradient = value_and_grad(f)(x)
    close(gradient, 3 * X**2)
    assert not value.requires_grad
    assert not gradient.requires_grad


def test_leaked_mode_makes_the_rest_a_constant():
    def f(x):
        y = x * 2
        autograd.set_grad_enabled(False)
        return (y * x).sum()

    close(grad(f)(X), np.zeros(3))


def test_inference_mode_inside_gives_zeros():
    def f(x):
        with autograd.inference_mode():
            return sum_of_cubes(x)

    close(grad(f)(X), np.zeros(3))
    close(jvp(f, (X,), (X,))[1], 0.0)


def test_results_under_inference_mode_are_ordinary():
    x = Tensor(X.copy())
    with autograd.inference_mode():
        gradient = grad(sum_of_cubes)(x)
    gradient.requires_grad_()
    (gradient**2).sum().backward()
    close(gradient.grad, 6 * X**2)


DETACHED = {
    "detach": lambda a, b: (a * b).detach(),
    "no_grad": autograd.no_grad(lambda a, b: a * b),
    "inference_mode": autograd.inference_mode()(lambda a, b: a * b),
}


@pytest.mark.parametrize("constant", DETACHED.values(), ids=DETACHED)
@pytest.mark.parametrize("names", list(itertools.product(["grad", "vjp"], repeat=2)), ids=" of ".join)
def test_detaching_cuts_every_level(constant, names):
    outer, inner = map(DERIVATIVES.get, names)
    close(outer(lambda a: inner(lambda b: constant(a, b) * b)(ONE) + 0 * a)(TWO), 0.0)
    close(inner(lambda b: constant(TWO, b) * b)(ONE), 2.0)


# --- mutation -----------------------------------------------------------------------------------------------

WRITES = {
    "add_": lambda target: ops.np.add_(target, 1.0),
    "multiply_ by an array": lambda target: ops.np.multiply_(target, np.full(3, 2.0)),
    "out=": lambda target: ops.np.add(X, 1.0, out=target),
    "setitem_": lambda target: ops.np.setitem_(target, 0, 5.0),
    "index_put_": lambda target: ops.np.index_put_(target, np.array([0, 1]), 5.0),
}
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("view", [lambda t: t.detach(), lambda t: t[0:2], lambda t: t.reshape(3, 1)],
                         ids=["detach", "slice", "reshape"])
def test_view_of_a_captured_array_is_not_written_to(run, view):
    target = Tensor(X.copy())

    def f(x):
        ops.np.add_(view(target), 1.0)
        return x.sum()

    with pytest.raises(RuntimeError):
        run(f, X)
    close(target, X)


@pytest.mark.parametrize("run", REVERSE.values(), ids=REVERSE)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_differentiated_argument_is_not_written_to(run, write):
    x = X.copy()

    def f(x):
        write(x)
        return x.sum()

    with pytest.raises(RuntimeError):
        run(f, x)
    close(x, X)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("wrap", [np.asarray, Tensor], ids=["raw", "Tensor"])
def test_argument_that_is_not_differentiated_may_be_written_to(write, wrap):
    expected = X.copy()
    write(expected)
    buffer = X.copy()

    def f(x, buffer):
        write(buffer)
        return (x * buffer).sum()

    close(grad(f)(X, wrap(buffer)), expected)
    close(buffer, expected)


def test_tracked_value_written_to_an_argument_has_its_gradient():
    buffer = np.zeros(3)

    def f(x, buffer):
        buffer[1:] = x[1:] ** 2
        return (buffer * X).sum()

    close(grad(f)(X, buffer), [0.0, *(2 * X[1:] ** 2)])
    close(buffer, [0.0, *X[1:] ** 2])


@pytest.mark.parametrize("names", PAIRS, ids=" of ".join)
def test_copy_of_an_outer_value_made_inside_may_be_written_to(names):
    outer, inner = map(DERIVATIVES.get, names)

    def g(a, b):
        buffer = a.copy()
        buffer *= b
        return buffer * b

    close(outer(lambda a: inner(lambda b: g(a, b))(TWO))(THREE), 4.0)


@pytest.mark.parametrize("names", PAIRS, ids=" of ".join)
def test_array_made_at_the_inner_level_takes_outer_values_too(names):
    outer, inner = map(DERIVATIVES.get, names)

    def g(b, a):
        buffer = ops.np.zeros(3)
        buffer[0] = a**2 * b**3
        return buffer.sum()

    close(outer(lambda a: inner(lambda b: g(b, a))(TWO))(THREE), 2 * 3.0 * 3 * 4.0)


@pytest.mark.parametrize("name", ["grad", "vjp"])
def test_value_saved_for_backward_is_not_changed_by_another_binding(name):
    def f(x):
        y = x * 2
        z = ops.np.sin(y)
        y += 1          # a scalar, so this is another value
        return z * 1.0

    close(DERIVATIVES[name](f)(TWO), 2 * np.cos(4.0))


@pytest.mark.parametrize("name", ["grad", "vjp"])
def test_value_saved_for_backward_survives_writes(name):
    def f(x):
        y = ops.np.reshape(x * 2, (1,))
        z = ops.np.sin(y)
        y += 1
        return z[0] * 1.0

    close(DERIVATIVES[name](f)(TWO), 2 * np.cos(4.0))
