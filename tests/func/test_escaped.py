"""Values of interpreters where they do not belong, and what interpreters owe one another.

Two ways in which a value can be in the wrong place: *dead*, its transform no longer runs, or *misplaced*, its transform
is running, but not there. test_levels.py has more on grad, vjp and jvp alone.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import pickle
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, compile, exceptions, library, ops
from pydispatch._registry.operators import find_or_raise
from pydispatch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap
from pydispatch.func.transform import Transform
from pydispatch.tracing import FakeMode, make_fx
from tests import comparing
from tests.together import together

close = partial(comparing.close, atol=0.0)

XS = np.arange(1.0, 7.0).reshape(2, 3)
X = np.array([0.5, -1.0, 2.0])
ONE = np.array(1.0)


@pytest.fixture(autouse=True)
def no_level_is_left() -> Iterator[None]:
    assert _core.current_state().stack == ()
    yield
    assert _core.current_state().stack == ()


# --- values that got out ---------------------------------------------------------------------------------------------

AD = {
    "grad": lambda f: grad(lambda x: (f(x), x.sum())[1])(X),
    "value_and_grad": lambda f: value_and_grad(lambda x: (f(x), x.sum())[1])(X),
    "vjp": lambda f: vjp(lambda x: (f(x), x.sum())[1], X),
    "jvp": lambda f: jvp(lambda x: (f(x), x.sum())[1], (X,), (X,)),
    "jacrev": lambda f: jacrev(lambda x: (f(x), x * 1)[1])(X),
}
"""Each runs a function once on a value of an interpreter whose value is X."""
BATCHED = {
    "vmap": lambda f: vmap(lambda x: (f(x), x)[1])(XS),
    "vmap of one axis": lambda f: vmap(lambda x: (f(x), x)[1], in_dims=1)(XS.T),
    "vmap in chunks": lambda f: vmap(lambda x: (f(x), x)[1], chunk_size=2)(XS),
    "vmap of Tensors": lambda f: vmap(lambda x: (f(x), x)[1])(Tensor(XS)),
    "inner vmap": lambda f: vmap(lambda y: vmap(lambda x: (f(x), x)[1])(XS))(ONE * np.ones(4)),
    "vmap in grad": lambda f: grad(lambda a: vmap(lambda x: (f(x * a), x)[1])(XS).sum() * a)(ONE),
}
"""Each runs a function once on a value of a vmap of two examples of shape (3,)."""
EVERYWHERE = AD | BATCHED


def got_out(run: Callable[..., Any]) -> Tensor:
    """Return a value of a transform that no longer runs."""
    kept: list[Tensor] = []
    run(kept.append)
    (value,) = kept
    return value


def at_the_top(f: Callable[[], Any]) -> Any:
    return f()


def in_thread(f: Callable[[], Any]) -> Any:
    """Return the result of `f` in another thread, or its error."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(f())
        except BaseException as error:      # to be raised by whoever waits
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def inside(transform: Callable[..., Any]) -> Callable[[Callable[[], Any]], Any]:
    """Run a function inside an unrelated transform, and return its result."""
    def run(f: Callable[[], Any]) -> Any:
        results: list[Any] = []
        transform(lambda value: results.append(f()))
        return results[0]

    return run


PLACES = {
    "at the top": at_the_top, "in a thread": in_thread,
    "under no_grad": lambda f: with_guard(autograd.no_grad(), f),
    "in inference mode": lambda f: with_guard(autograd.inference_mode(), f),
    **{f"in {name}": inside(run) for name, run in AD.items()},
    "in vmap of the same size": inside(BATCHED["vmap"]),
    "in vmap of another size": inside(lambda f: vmap(lambda x: (f(x), x)[1])(np.ones((5, 3)))),
    "in vmap of size 1": inside(lambda f: vmap(lambda x: (f(x), x)[1])(np.ones((1, 3)))),
    "in vmap of grad": inside(lambda f: vmap(grad(lambda x: (f(x), x.sum())[1]))(XS)),
    "in vmap of vmap": inside(BATCHED["inner vmap"]),
    "in functionalize": inside(lambda f: functionalize(lambda x: (f(x), x)[1])(X)),
    "in jacfwd": inside(lambda f: jacfwd(lambda x: (f(x), x * 1)[1])(X)),
}


def with_guard(guard: Any, f: Callable[[], Any]) -> Any:
    with guard:
        return f()


USES: dict[str, Callable[[Tensor], Any]] = {
    "w + 1": lambda w: w + 1.0,
    "1 + w": lambda w: 1.0 + w,
    "array * w": lambda w: X * w,
    "w * array": lambda w: w * X,
    "w * w": lambda w: w * w,
    "w.sum()": lambda w: w.sum(),
    "w[0]": lambda w: w[0],
    "for _ in w": list,
    "operator": lambda w: ops.np.sin(w),
    "operator by keyword": lambda w: ops.np.clip(X, a_min=w),
    "where": lambda w: ops.np.where(X > 0, w, 0.0),
    "in a list": lambda w: ops.np.stack([X, w]),
    "in a tuple": lambda w: ops.np.concatenate((w, X)),
    "as an index": lambda w: ops.np.take(X, w.astype(int)),
    "written to": lambda w: ops.np.add_(w, 1.0),
    "written": lambda w: ops.np.add_(np.zeros(3), w),
    "setitem": lambda w: w.__setitem__(0, 5.0),
    "like": lambda w: ops.np.zeros_like(w),
    "copy": lambda w: w.copy(),
    "detach": lambda w: w.detach() + 1.0,
    "random": lambda w: ops.np.random_normal(np.random.default_rng(0), w),
    "argument of grad": lambda w: grad(lambda x: x.sum())(w),
    "argument of vjp": lambda w: vjp(lambda x: x * 2, w),
    "argument of jvp": lambda w: jvp(ops.np.sin, (w,), (np.ones(3),)),
    "tangent of jvp": lambda w: jvp(ops.np.sin, (np.ones(3),), (w,)),
    "argument of vmap": lambda w: vmap(lambda x: x * 2)(w),
    "shared argument of vmap": lambda w: vmap(lambda x, y: x * y, (0, None))(X, w),
    "argument of functionalize": lambda w: functionalize(lambda x: x * 2)(w),
    "result of vmap": lambda w: vmap(lambda x: w)(X),
    "unmapped result of vmap": lambda w: vmap(lambda x: w, out_dims=None)(X),
    "captured by vmap": lambda w: vmap(lambda x: x * w)(X),
    "captured by grad": lambda w: grad(lambda x: (x * w).sum())(X),
}
DEAD = r"vmap, called at .*test_escaped\.py:\d+, which no longer runs"
EACH_USE = pytest.mark.parametrize("use", USES.values(), ids=USES)
EACH_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
EACH_BATCHED = pytest.mark.parametrize("run", BATCHED.values(), ids=BATCHED)
EACH_AD = pytest.mark.parametrize("run", AD.values(), ids=AD)


# --- dead values of vmap ---------------------------------------------------------------------------------------------


@EACH_PLACE
@EACH_BATCHED
def test_a_dead_batch_is_an_error_everywhere(run, place):
    dead = got_out(run)
    with pytest.raises(exceptions.VmapError, match=DEAD + r": it escaped.*\nreturn it"):
        place(lambda: dead + 1.0)


@EACH_USE
@EACH_BATCHED
def test_a_dead_batch_is_an_error_in_every_use(run, use):
    dead = got_out(run)
    with pytest.raises(exceptions.VmapError, match=DEAD):
        use(dead)


CONVERSIONS: dict[str, Callable[[Tensor], Any]] = {
    "np.asarray": np.asarray, "np.array": np.array, "numpy()": lambda w: w.numpy(), "tolist()": lambda w: w.tolist(),
    "item()": lambda w: w.item(), "bool()": bool, "float()": float, "int()": int, "complex()": complex,
    "an index": lambda w: [0, 1][w], "if": lambda w: 1 if w else 2,
}


@EACH_BATCHED
@together("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_dead_batch_is_not_converted(run, convert):
    dead = got_out(run)
    with pytest.raises(exceptions.DispatchError, match=DEAD):
        convert(dead)


@EACH_PLACE
@EACH_BATCHED
def test_a_dead_batch_can_be_looked_at(run, place):
    dead = got_out(run)
    text, shape, dtype, length = place(lambda: (repr(dead), dead.shape, dead.dtype, len(dead)))
    assert "vmap of 2, which no longer runs" in text
    assert (shape, dtype, length, dead.ndim, dead.size) == ((3,), np.float64, 3, 1, 3)
    assert str(dead)
    assert f"{dead}"


@EACH_BATCHED
def test_nothing_is_written_to_by_a_dead_batch(run):
    dead, target, xs = got_out(run), np.zeros(3), XS.copy()
    with pytest.raises(exceptions.VmapError):
        ops.np.add_(target, dead)
    with pytest.raises(exceptions.VmapError):
        ops.np.setitem_(target, 0, dead)
    assert not target.any()
    np.testing.assert_array_equal(XS, xs)


@EACH_PLACE
def test_a_batch_is_dead_after_an_exception_too(place):
    kept = []

    def f(x: Any) -> Any:
        kept.append(x)
        raise KeyError

    with pytest.raises(KeyError):
        vmap(f)(XS)
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        place(lambda: kept[0] * 2)


def test_the_line_of_the_error_is_that_of_the_call_of_vmap():
    kept = []
    mapped = vmap(lambda x: (kept.append(x), x)[1])
    mapped(XS)
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(exceptions.VmapError, match=rf"test_escaped\.py:{line}, which no longer runs"):
        kept[0] + 1


def test_a_new_vmap_at_the_same_depth_is_another_level():
    kept = []

    def f(x: Any) -> Any:
        kept.append(x)
        return x * kept[0]

    mapped = vmap(f)
    close(mapped(XS), XS * XS)
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        mapped(XS)
    assert len({id(value.interpreter) for value in kept}) == 2


def test_a_dead_batch_at_an_inner_level_of_its_own_transform():
    def f(row: Any) -> Any:
        kept = []
        vmap(lambda x: (kept.append(x), x)[1])(row)
        with pytest.raises(exceptions.VmapError, match="it escaped"):
            kept[0] + row
        return row

    vmap(f)(XS)


# --- dead values of grad, vjp and jvp --------------------------------------------------------------------------------

VALUES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "w + 1": (lambda w: w + 1.0, X + 1.0),
    "array * w": (lambda w: X * w, X * X),
    "w * w": (lambda w: w * w, X * X),
    "w.sum()": (lambda w: w.sum(), X.sum()),
    "w[0]": (lambda w: w[0], X[0]),
    "operator": (ops.np.sin, np.sin(X)),
    "operator by keyword": (lambda w: ops.np.clip(X * 0, a_min=w), np.maximum(X * 0, X)),
    "in a list": (lambda w: ops.np.stack([X, w]), np.stack([X, X])),
    "written": (lambda w: ops.np.add_(np.zeros(3), w), X),
    "like": (ops.np.zeros_like, np.zeros(3)),
    "argument of grad": (lambda w: grad(lambda x: (x * x).sum())(w), 2 * X),
    "argument of jvp": (lambda w: jvp(ops.np.sin, (w,), (np.ones(3),))[1], np.cos(X)),
    "argument of vmap": (lambda w: vmap(lambda x: x * 2)(w), 2 * X),
    "captured by vmap": (lambda w: vmap(lambda x: x * w)(np.ones(2)), np.stack([X, X])),
    "result of vmap": (lambda w: vmap(lambda x: w)(np.ones(2)), np.stack([X, X])),
}


@EACH_AD
@together("use, expected", VALUES.values(), ids=VALUES)
def test_a_dead_ad_value_is_its_value(run, use, expected):
    dead = got_out(run)
    assert not dead.requires_grad
    assert dead.grad_fn is None
    found = use(dead)
    close(found, expected)
    assert not getattr(found, "requires_grad", False)


@EACH_PLACE
@EACH_AD
def test_a_dead_ad_value_is_a_constant_everywhere(run, place):
    dead = got_out(run)

    def value() -> Any:
        result = dead * 2.0
        while isinstance(result, _core.Wrapper):
            result = _core.array_of(result)
        return np.asarray(result)

    close(place(value), 2.0 * X)


@pytest.mark.parametrize("inner", AD.values(), ids=AD)
def test_a_dead_ad_value_of_a_batch_is_that_batch_while_it_lives(inner):
    kept = []

    def f(row: Any) -> Any:
        grad(lambda x: (kept.append(x), x.sum())[1])(row)
        return kept[0] * 2.0

    close(vmap(f)(XS), 2.0 * XS)
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        kept[0] + 1.0


def test_a_dead_batch_of_an_ad_value_is_an_error_while_that_lives():
    def f(x: Any) -> Any:
        kept = []
        vmap(lambda row: (kept.append(row), row)[1])(x)
        with pytest.raises(exceptions.VmapError, match="it escaped"):
            kept[0] * 2.0
        return x.sum()

    close(grad(f)(XS), np.ones((2, 3)))


@EACH_AD
def test_a_dead_ad_value_can_be_looked_at(run):
    dead = got_out(run)
    assert "0.5" in repr(dead)
    assert (dead.shape, dead.dtype, len(dead)) == ((3,), np.float64, 3)


# --- values that are misplaced ---------------------------------------------------------------------------------------

NAMES = {"grad": "grad", "value_and_grad": "grad", "vjp": "vjp", "jvp": "jvp", "jacrev": "jacrev"}
EACH_RUN = pytest.mark.parametrize(
    ("run", "name"), [(run, NAMES.get(name, "vmap")) for name, run in EVERYWHERE.items()], ids=EVERYWHERE)
MISPLACED = r"{name}, called at .*test_escaped\.py:\d+, which is not active here(.|\n)*in the same thread"


@EACH_RUN
def test_a_value_in_another_thread(run, name):
    # The thread that made it is waiting, so its interpreter is running.
    def f(value: Any) -> None:
        with pytest.raises(exceptions.AutogradError, match=MISPLACED.format(name=name)):
            in_thread(lambda: value + 1.0)
        assert "which no longer runs" not in in_thread(lambda: repr(value))

    run(f)


@EACH_RUN
def test_a_value_in_a_kernel_below_its_level(run, name, fresh, define):
    captured: list[Any] = []

    def leak(x: Any) -> Any:
        return np.asarray(captured[0] * 2.0)

    leaky = define(fresh, "leaky(Tensor x) -> Tensor", CPU=leak)

    def f(value: Any) -> None:
        captured.append(value)
        with pytest.raises(exceptions.AutogradError, match=MISPLACED.format(name=name)):
            leaky(X)

    run(f)


@EACH_RUN
def test_a_value_in_a_transform_of_another_thread(run, name):
    def f(value: Any) -> None:
        for transform in (AD["grad"], BATCHED["vmap"]):
            with pytest.raises(exceptions.AutogradError, match=MISPLACED.format(name=name)):
                in_thread(lambda transform=transform: transform(lambda x: x * value))

    run(f)


@pytest.mark.parametrize("inner", ["grad", "jvp", "vmap"])
@together("outer", EVERYWHERE.values(), ids=EVERYWHERE)
def test_an_inner_value_at_an_outer_level(outer, inner):
    transform = EVERYWHERE[inner]

    def f(value: Any) -> None:
        def g(x: Any) -> None:
            interpreter = x.interpreter
            with pytest.raises(exceptions.AutogradError, match="not active here"):
                _core.lowered(interpreter, lambda: x + 1.0)
            _core.lowered(interpreter, lambda: value + 1.0)

        transform(g)

    outer(f)


# --- order of interpreters --------------------------------------------------------------------------------------------


@pytest.fixture
def traced(fresh, define):
    """Define an operator `twice` whose rules for interpreters record who was called, and go on below."""
    asked: list[Any] = []
    twice = define(fresh, "twice(Tensor x) -> Tensor", CPU=lambda x: x * 2.0)

    def rule(interpreter: Any, func: Any, args: Any, kwargs: Any) -> Any:
        asked.append((interpreter.name, [_core.is_owned_by(arg, interpreter) for arg in args],
                      _core.innermost_transform_now()))
        values = [_core.value_below(arg, interpreter) for arg in args]
        return _core.wrap_value_at(interpreter, func(*values, **kwargs))

    for cls in (_core.Grad, _core.Jvp, _core.Vmap):
        library.register_pydispatch(twice, cls, rule)
    return twice, asked


STACKS = list(itertools.product(["grad", "jvp", "vmap"], repeat=2))
TRANSFORMS = {
    "grad": lambda f: grad(lambda x: f(x).sum()), "jvp": lambda f: lambda x: jvp(f, (x,), (x,))[0],
    "vmap": lambda f: vmap(f),
}


@pytest.mark.parametrize(("outer", "inner"), STACKS, ids=[" of ".join(pair) for pair in STACKS])
def test_the_innermost_level_is_asked_first_and_absent_in_its_rule(traced, outer, inner):
    twice, asked = traced
    TRANSFORMS[outer](TRANSFORMS[inner](twice))(np.ones((2, 3, 4)))
    assert [(name, owned) for name, owned, _ in asked] == [(inner, [True]), (outer, [True])]
    assert asked[0][2].name == outer
    assert asked[1][2] is None


@pytest.mark.parametrize(("outer", "inner"), STACKS, ids=[" of ".join(pair) for pair in STACKS])
def test_a_level_that_owns_no_argument_is_passed_over(traced, outer, inner):
    twice, asked = traced

    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            return y + twice(x)

        return TRANSFORMS[inner](g)(x)

    TRANSFORMS[outer](f)(np.ones((2, 3)) if outer != "vmap" else np.ones((2, 3, 3)))
    assert [name for name, *_ in asked] == [outer]


def test_a_composite_runs_at_the_level_where_it_is_called(traced, fresh):
    twice, asked = traced
    interpreters = []

    def kernel(x: Any) -> Any:
        interpreters.append(_core.innermost_transform_now().name)
        return twice(x) + 1.0

    fresh.define("composite(Tensor x) -> Tensor")
    fresh.impl("composite", kernel, "CompositeImplicitAutograd")
    composite = find_or_raise(f"{fresh.namespace}::composite")
    close(vmap(composite)(XS), XS * 2.0 + 1.0)
    close(grad(lambda x: vmap(composite)(x).sum() + (x * x).sum())(XS), 2 * XS)
    assert interpreters == ["vmap", "vmap"]
    assert [name for name, *_ in asked] == ["vmap", "vmap", "grad"]


def test_a_kernel_for_all_backends_runs_below_all_levels(fresh):
    seen = []

    def kernel(x: Any) -> Any:
        seen.append((type(x), x.shape, _core.current_state().stack))
        return np.sin(x)

    fresh.define("op(Tensor x) -> Tensor")
    fresh.impl("op", kernel, "CompositeExplicitAutograd")
    op = getattr(ops, fresh.namespace).op
    with pytest.warns(exceptions.PerformanceWarning, match="once for each example"):
        close(vmap(op)(XS), np.sin(XS))
    assert seen == [(np.ndarray, (3,), ())] * 2
    with pytest.raises(exceptions.NoDerivativeError, match="op"):
        grad(lambda x: op(x).sum())(X)


def test_wrappers_nest_as_the_stack_does():
    seen: list[Any] = []

    def keep(x: Any) -> Any:
        seen.append(kinds(x))
        return x.sum()

    def kinds(x: Any) -> list[str]:
        found = []
        while isinstance(x, Tensor):
            found.append(x.interpreter.name if isinstance(x, _core.Wrapper) else "Tensor")
            x = _core.array_of(x)
        return found

    vmap(grad(keep))(XS)
    grad(lambda x: vmap(keep)(x).sum())(XS)
    jvp(grad(keep), (X,), (X,))
    vmap(vmap(keep))(XS)
    vmap(grad(keep))(Tensor(XS))
    assert seen == [["grad", "vmap"], ["vmap", "grad"], ["grad", "jvp"], ["vmap", "vmap"], ["grad", "vmap", "Tensor"]]


def test_what_is_seen_is_one_example_at_every_depth():
    x = np.zeros((2, 3, 4, 5), np.float32)
    seen = []

    def f(value: Any) -> Any:
        seen.append((value.shape, value.ndim, value.size, len(value), value.dtype, len(list(value))))
        return value.sum()

    vmap(f, 1)(x)
    vmap(vmap(f, 2), 0)(x)
    vmap(grad(f))(x)
    grad(lambda x: vmap(f)(x).sum())(x)
    single = np.dtype(np.float32)
    assert seen == [((2, 4, 5), 3, 40, 2, single, 2), ((3, 4), 2, 12, 3, single, 3), ((3, 4, 5), 3, 60, 3, single, 3),
                    ((3, 4, 5), 3, 60, 3, single, 3)]


def test_values_of_levels_below_are_opaque(fresh, define):
    seen = []
    add = define(fresh, "add(Tensor a, Tensor b) -> Tensor", CPU=np.add)

    def rule(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
        seen.append((info.batch_size, in_dims, tuple(a.shape), tuple(b.shape), type(a).__name__))
        return add(ops.np.reshape(a, (1,)) if in_dims[0] is None else a, b), 0

    library.register_vmap(add, rule)
    found = vmap(lambda a: vmap(lambda b: add(a, b))(np.arange(3.0)))(np.arange(2.0) * 10)
    close(found, np.arange(3.0) + 10.0 * np.arange(2.0)[:, None])
    assert seen[0] == (3, (None, 0), (), (3,), "BatchedTensor")
    assert [entry[0] for entry in seen] == [3, 2]


class UnexpectedError(Exception):
    """An error that the library never raises."""


@pytest.mark.parametrize(("outer", "inner"), STACKS, ids=[" of ".join(pair) for pair in STACKS])
def test_an_exception_restores_the_stack(outer, inner):
    def fail(x: Any) -> Any:
        raise UnexpectedError

    def guarded(x: Any) -> Any:
        before = _core.current_state().stack
        with contextlib.suppress(UnexpectedError):
            TRANSFORMS[inner](fail)(x)
        assert _core.current_state().stack == before
        return x * 2.0

    x = np.ones((2, 3, 4))
    with pytest.raises(UnexpectedError):
        TRANSFORMS[outer](TRANSFORMS[inner](fail))(x)
    assert _core.current_state().stack == ()
    TRANSFORMS[outer](guarded)(x)


@pytest.mark.parametrize("run", EVERYWHERE.values(), ids=EVERYWHERE)
def test_a_new_thread_starts_without_levels(run):
    stacks = []
    run(lambda value: stacks.append(in_thread(lambda: _core.current_state().stack)))
    assert stacks == [()]


def test_threads_have_batches_of_their_own():
    barrier = threading.Barrier(4)
    results: dict[int, Any] = {}

    def work(n: int) -> None:
        def f(x: Any) -> Any:
            barrier.wait(60)
            return x * n

        results[n] = vmap(f)(XS)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(4):
        close(results[n], XS * n)


class Nothing(Transform):
    """A transform without any rule."""


def test_no_rule_is_an_error_that_says_how_to_register_one():
    with pytest.raises(exceptions.NoKernelError, match=r"np::sin has no rule for Nothing(.|\n)*register_pydispatch"):
        vmap(lambda x: call_in(Nothing, ops.np.sin, x))(XS)


def call_in(cls: type[Transform], op: Any, x: Any) -> Any:
    with cls() as interpreter:
        return op(interpreter.wrap(x))


def test_a_constant_of_vmap_is_not_repeated(fresh, define):
    seen = []
    scale = define(fresh, "scale(Tensor x, Tensor y) -> Tensor", CPU=np.multiply)

    def rule(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        seen.append((in_dims, y))
        return x * y, 0

    library.register_vmap(scale, rule)
    big = np.ones(3)
    vmap(lambda x: scale(x, big))(XS)
    ((in_dims, y),) = seen
    assert in_dims == (0, None)
    assert y is big


def test_what_owns_no_batch_runs_once_below(fresh, define, spy):
    kernel = spy(ONE)
    op = define(fresh, "op(Tensor x) -> Tensor", CPU=kernel)
    vmap(lambda x: x + op(X))(XS)
    vmap(lambda x: vmap(lambda y: y + op(X))(x))(XS)
    assert [args[0] is X for args, _ in kernel.calls] == [True, True]


# --- state that is saved and put back --------------------------------------------------------------------------------


def modes() -> tuple[bool, bool]:
    state = _core.current_state()
    return autograd.is_grad_enabled(), state.forward


@pytest.mark.parametrize("inner", ["grad", "value_and_grad", "vjp"])
def test_grad_mode_is_on_inside_and_as_it_was_below(inner):
    seen = []

    def f(value: Any) -> None:
        seen.append(modes()[0])
        _core.lowered(value.interpreter, lambda: seen.append(modes()[0]))

    with autograd.no_grad():
        AD[inner](f)
    AD[inner](f)
    assert seen == [True, False, True, True]


def test_no_grad_around_an_inner_grad_stops_the_outer_one():
    def f(x: Any) -> Any:
        with autograd.no_grad():
            slope = vmap(grad(lambda y: y * y))(x)
        return (slope * x).sum()

    close(grad(f)(X), 2 * X)


def test_jvp_has_forward_mode_on_and_no_grad_does_not_matter():
    with autograd.no_grad():
        close(vmap(lambda x: jvp(ops.np.sin, (x,), (x,))[1])(X), np.cos(X) * X)
        close(jvp(vmap(ops.np.sin), (X,), (X,))[1], np.cos(X) * X)


def test_inference_mode_is_off_inside_of_derivatives():
    with autograd.inference_mode():
        close(vmap(grad(ops.np.sin))(X), np.cos(X))
        close(grad(lambda x: vmap(ops.np.sin)(x).sum())(X), np.cos(X))


@pytest.mark.parametrize("run", EVERYWHERE.values(), ids=EVERYWHERE)
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "raises"])
def test_a_mode_that_leaks_is_put_back(run, fails):
    def leak(value: Any) -> None:
        autograd.set_grad_enabled(False)
        if fails:
            raise UnexpectedError

    before = modes()
    with contextlib.suppress(UnexpectedError):
        run(leak)
    assert modes() == before


@pytest.mark.parametrize("guard", [autograd.no_grad, autograd.enable_grad, autograd.inference_mode])
def test_vmap_leaves_modes_as_they_are(guard):
    seen = []
    with guard():
        expected = modes()
        vmap(lambda x: (seen.append(modes()), x)[1])(XS)
    assert seen == [expected]


def test_the_level_tells_its_state(fresh, define):
    seen = []
    op = define(fresh, "op(Tensor x) -> Tensor", CPU=np.sin)
    library.register_vmap(op, lambda info, in_dims, x: (seen.append((info.batch_size, info.randomness)), (x, 0))[1])
    vmap(op, randomness="same")(XS)
    vmap(op, in_dims=1, randomness="different")(XS)
    vmap(op, chunk_size=2)(np.ones(5))
    assert seen == [(2, "same"), (3, "different"), (2, "error"), (2, "error"), (1, "error")]


def test_below_all_levels_there_are_none():
    seen = []

    def look() -> Any:
        seen.append(_core.current_state().stack)
        return ops.np.sin(X)

    def f(x: Any) -> Any:
        before = _core.current_state().stack
        close(_core.below_transforms(look), np.sin(X))
        with pytest.raises(exceptions.AutogradError, match="not active here"):
            _core.below_transforms(lambda: x + 1.0)
        assert _core.current_state().stack == before
        return x.sum()

    vmap(grad(f))(XS)
    assert seen == [()]


# --- writes to what is captured --------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": ops.np.add_, "iadd": lambda target, value: target.__iadd__(value),
    "setitem": lambda target, value: ops.np.setitem_(target, slice(None), value),
    "index_put": lambda target, value: ops.np.index_put_(target, np.array([0, 1, 2]), value),
    "out": lambda target, value: ops.np.multiply(value, 2.0, out=target),
    "random": lambda target, value: ops.np.random_normal_like_(target, np.random.default_rng(0), value),
}
CAPTURES: dict[str, Callable[[], Any]] = {
    "raw": lambda: np.zeros(3), "Tensor": lambda: Tensor(np.zeros(3)), "view": lambda: Tensor(np.zeros((2, 3)))[0],
    "tracked": lambda: Tensor(np.zeros(3), requires_grad=True) * 1.0,
}
NO_WRITE = r"cannot be written to in place"
EACH_WRITE = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@EACH_WRITE
@pytest.mark.parametrize("capture", CAPTURES.values(), ids=CAPTURES)
@pytest.mark.parametrize("inner", ["grad", "vjp", "jvp"])
def test_a_level_of_derivatives_writes_to_nothing_that_is_captured(inner, capture, write):
    target = capture()
    if write is WRITES["iadd"] and isinstance(target, np.ndarray):
        target = Tensor(target)

    def f(value: Any) -> None:
        for what in (value, X):
            with pytest.raises(exceptions.AutogradError, match=NO_WRITE):
                write(target, what)
            with autograd.no_grad(), pytest.raises(exceptions.AutogradError, match=NO_WRITE):
                write(target, what)

    AD[inner](f)
    assert not np.asarray(target.detach() if isinstance(target, Tensor) else target).any()


@EACH_WRITE
@pytest.mark.parametrize(("outer", "inner"), [("vmap", "grad"), ("vmap", "jvp"), ("grad", "jvp"), ("jvp", "grad")])
def test_a_level_of_derivatives_writes_to_no_value_of_an_outer_level(outer, inner, write):
    def f(outer_value: Any) -> None:
        target = outer_value * 0.0

        def g(value: Any) -> None:
            with pytest.raises(exceptions.AutogradError, match=NO_WRITE):
                write(target, value)

        EVERYWHERE[inner](g)
        interpreter = target
        while isinstance(interpreter, _core.Wrapper):
            interpreter = _core.array_of(interpreter)
        assert not np.asarray(interpreter).any()

    EVERYWHERE[outer](f)


@EACH_WRITE
@pytest.mark.parametrize("capture", [np.zeros, lambda n: Tensor(np.zeros(n))], ids=["raw", "Tensor"])
def test_vmap_writes_no_batch_to_what_is_captured(capture, write):
    target = capture(3)
    if write is WRITES["iadd"]:
        target = Tensor(np.zeros(3))
    message = r"shape \(3,\), is an array from outside the function of vmap(.|\n)*np.zeros"
    with pytest.raises(exceptions.VmapError, match=message):
        vmap(lambda x: write(target, x))(XS)
    assert not np.asarray(target).any()


@pytest.mark.parametrize("write", [write for name, write in WRITES.items() if name != "random"],
                         ids=[name for name in WRITES if name != "random"])
def test_vmap_writes_what_all_examples_share_once(write):
    target = Tensor(np.zeros(3))
    vmap(lambda x: (write(target, X), x)[1])(XS)
    close(target, 2 * X if write is WRITES["out"] else X)


def test_at_an_inner_level_the_outer_one_decides():
    def f(row: Any) -> Any:
        target = ops.np.zeros_like(row)
        vmap(lambda y: (ops.np.add_(target, row), y)[1])(np.ones(4))
        with pytest.raises(exceptions.VmapError, match="is an array from outside the function of vmap"):
            vmap(lambda y: ops.np.add_(target, y))(np.ones(4))
        return target

    close(vmap(f)(XS), XS)


# --- values that leave in other ways ---------------------------------------------------------------------------------


@pytest.mark.parametrize("run", EVERYWHERE.values(), ids=EVERYWHERE)
def test_live_values_are_not_converted(run):
    def f(value: Any) -> None:
        for convert in (np.asarray, np.array, lambda w: w.numpy()):
            with pytest.raises(exceptions.ConversionError):
                convert(value)

    run(f)


@pytest.mark.parametrize("run", EVERYWHERE.values(), ids=EVERYWHERE)
def test_values_of_levels_are_not_pickled(run):
    def f(value: Any) -> None:
        with pytest.raises((exceptions.DispatchError, TypeError, pickle.PicklingError)):
            pickle.dumps(value)

    run(f)


def test_a_generator_of_values_ends_with_its_level():
    def lazily(x: Any) -> Iterator[Any]:
        yield x * 2.0
        yield x * 3.0

    kept = []

    def f(x: Any) -> Any:
        kept.append(lazily(x))
        return next(kept[0])

    close(vmap(f)(XS), XS * 2.0)
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        next(kept[0])


def test_a_value_kept_in_a_container_is_dead_too():
    kept: dict[str, Any] = {}
    vmap(lambda x: kept.setdefault("pair", (x, [x * 2.0]))[0])(XS)
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        ops.np.concatenate(kept["pair"][1])
    with pytest.raises(exceptions.VmapError, match="it escaped"):
        vmap(lambda x: kept["pair"], out_dims=0)(XS)


TRACED: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "compile": lambda f: compile(f)(X),
    "compile of grad": lambda f: compile(grad(f))(X),
    "make_fx": lambda f: make_fx(f, tracing_mode="fake")(X),
}
GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda kept: grad(lambda x: kept.sum())(X),
    "of a pytree": lambda kept: grad(lambda x: kept.sum())({"a": X}),
    "vjp": lambda kept: vjp(lambda x: kept, X),
    "jacrev": lambda kept: jacrev(lambda x: kept)(X),
    "hessian": lambda kept: hessian(lambda x: kept.sum())(X),
    "checkpoint": lambda kept: grad(lambda x: autograd.checkpoint(lambda x: kept.sum(), x))(X),
}


@pytest.mark.parametrize("gradient", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("run", TRACED.values(), ids=TRACED)
def test_a_value_without_data_that_got_out_of_a_trace_has_no_gradient(run, gradient):
    kept: list[Any] = []
    run(lambda x: (kept.append(x * 2.0), x.sum())[1])
    with pytest.raises(exceptions.DataDependentError, match=r"the function returned a FakeTensor(.|\n)*return it"):
        gradient(kept[0])


def test_a_constant_without_data_has_zeros_as_gradient_beside_arguments_without_data():
    mode = FakeMode()
    x, constant = mode.from_array(X), mode.from_array(ONE)
    assert grad(lambda x: constant)(x).shape == X.shape
    with FakeMode(allow_real_inputs=True):
        assert grad(lambda x: ops.np.zeros(()))(X).shape == X.shape
