"""Guards on the ambient state: nesting, leaving in any order, threads, tasks, generators."""

import asyncio
import contextvars
import inspect
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from pydispatch import (
    DispatchKey,
    DispatchKeySet,
    Tensor,
    _core,
    below_autograd,
    default_backend,
    exclude_keys,
    force_keys,
    include_keys,
    ops,
)
from pydispatch.exceptions import StateOrderError, UnknownKeyError

INITIAL = DispatchKeySet("BackendSelect")


def state():
    """Return what guards have changed: (added keys, removed keys, default backend)."""
    now = _core.current_state()
    return now.included, without_members(key.name for key in now.excluded), now.default_backend


def without_members(names):
    """Return names of keys, with the alias Autograd in place of its members.

    A backend registered meanwhile adds to these.
    """
    names, members = frozenset(names), frozenset(key.name for key in DispatchKey.Autograd.members)
    return names - members | {"Autograd"} if members <= names else names


UNCHANGED = (INITIAL, frozenset(), "CPU")
TRACED = (INITIAL | "Tracer", frozenset(), "CPU")


@pytest.fixture(autouse=True)
def state_is_left_as_it_was(tracer):
    assert state() == UNCHANGED
    yield
    assert state() == UNCHANGED


# --- what a guard does --------------------------------------------------------------------------------------

AUTOGRAD = frozenset({"Autograd"})
GUARDS = [
    ("include_keys", lambda: include_keys("Tracer"), TRACED),
    ("include a backend", lambda: include_keys("Meta"), (INITIAL | "Meta", frozenset(), "CPU")),
    (
        "include several",
        lambda: include_keys("Tracer", DispatchKey.CPU),
        (INITIAL | "Tracer" | "CPU", frozenset(), "CPU")),
    (
        "include a set",
        lambda: include_keys(DispatchKeySet("Tracer", "CPU")),
        (INITIAL | "Tracer" | "CPU", frozenset(), "CPU")),
    ("exclude_keys", lambda: exclude_keys("CPU"), (INITIAL, frozenset({"CPU"}), "CPU")),
    ("exclude a functionality", lambda: exclude_keys("BackendSelect"), (INITIAL, frozenset({"BackendSelect"}), "CPU")),
    (
        "exclude a set",
        lambda: exclude_keys(DispatchKeySet("CPU", "Tracer")),
        (INITIAL, frozenset({"CPU", "Tracer"}), "CPU")),
    ("exclude an alias", lambda: exclude_keys("Autograd"), (INITIAL, AUTOGRAD, "CPU")),
    ("below_autograd", below_autograd, (INITIAL, AUTOGRAD, "CPU")),
    ("default_backend", lambda: default_backend("meta"), (INITIAL, frozenset(), "Meta")),
    ("force_keys", force_keys, (DispatchKeySet(), frozenset(), "CPU")),
    ("force some", lambda: force_keys(("Tracer",), ("CPU",)), (DispatchKeySet("Tracer"), frozenset({"CPU"}), "CPU")),
]


@pytest.mark.parametrize(("make", "inside"), [row[1:] for row in GUARDS], ids=[row[0] for row in GUARDS])
def test_what_a_guard_changes(make, inside):
    guard = make()
    for _ in range(2):
        with guard as entered:
            assert entered is guard
            assert state() == inside
        assert state() == UNCHANGED


REPRS = [
    (lambda: include_keys("Tracer", DispatchKey.CPU), "include_keys(Tracer, CPU)"),
    (below_autograd, "below_autograd()"),
    (lambda: exclude_keys("CPU"), "exclude_keys(CPU)"),
    (lambda: default_backend("cpu"), "default_backend('cpu')"),
    (lambda: force_keys(("Tracer",), ("CPU", "A")), "force_keys(include=(Tracer), exclude=(CPU, A))"),
]


@pytest.mark.parametrize(("make", "text"), REPRS, ids=[row[1] for row in REPRS])
def test_guards_read_as_written(make, text):
    assert repr(make()) == text


@pytest.mark.parametrize("make", [include_keys, exclude_keys, lambda key: force_keys((key,)), default_backend])
def test_unknown_keys_are_refused_when_the_guard_is_made(make):
    with pytest.raises(UnknownKeyError, match="Nonsense"):
        make("Nonsense")


def test_an_alias_cannot_be_included():
    with pytest.raises(UnknownKeyError, match=r"Autograd is an alias key[\s\S]*members"):
        include_keys("Autograd")


# --- nesting ------------------------------------------------------------------------------------------------


def test_the_inner_guard_of_a_key_does_not_undo_the_outer():
    with include_keys("Tracer"):
        with include_keys("Tracer"):
            assert state() == TRACED
        assert state() == TRACED


def test_a_guard_object_can_be_entered_again_inside_itself():
    guard = include_keys("Tracer")
    with guard:
        with guard:
            assert state() == TRACED
        assert state() == TRACED


def test_exclusion_beats_inclusion_whichever_is_outside():
    for outer, inner in ((include_keys, exclude_keys), (exclude_keys, include_keys)):
        with outer("Tracer"), inner("Tracer"):
            assert state()[:2] == (INITIAL | "Tracer", frozenset({"Tracer"}))


@pytest.mark.parametrize(
    "error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit], ids=lambda cls: cls.__name__)
def test_exceptions_restore_the_state(error):
    with pytest.raises(error):  # noqa: SIM117
        with include_keys("Tracer"), below_autograd(), default_backend("Meta"):
            raise error


CALLS = {
    "call": lambda op, x: op(x),
    "keyword": lambda op, x: op(x=x),
    "boxed": lambda op, x: op.call_boxed([x]),
    "packet": lambda op, x: getattr(ops, op.namespace).f(x),
    "redispatch": lambda op, x: op.redispatch(DispatchKeySet("CPU"), x),
}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_exceptions_in_kernels_leave_the_state_as_it_was(fresh, define, error, call):
    def kernel(x):
        with below_autograd(), include_keys("Tracer"):
            raise error

    op = define(fresh, "f(Tensor x) -> str", CPU=kernel)
    for x in (np.ones(2), Tensor(np.ones(2))):
        with exclude_keys("A"):
            with pytest.raises(error):
                call(op, x)
            assert state() == (INITIAL, frozenset({"A"}), "CPU")


# --- leaving in any order -----------------------------------------------------------------------------------


def test_leaving_out_of_order_takes_out_exactly_its_own_entry():
    first, second, third = include_keys("Tracer"), below_autograd(), default_backend("Meta")
    for guard in (first, second, third):
        guard.__enter__()
    with pytest.raises(StateOrderError) as caught:
        second.__exit__(None, None, None)
    lines = str(caught.value).splitlines()
    assert "below_autograd()" in lines[0]
    assert "default_backend('Meta')" in lines[0]
    assert "with" in lines[1]
    assert state() == (INITIAL | "Tracer", frozenset(), "Meta")
    third.__exit__(None, None, None)
    assert state() == TRACED
    first.__exit__(None, None, None)


def test_leaving_twice_or_never_entered():
    guard = include_keys("Tracer")
    for _ in range(2):
        with pytest.raises(StateOrderError, match=r"include_keys\(Tracer\).*not entered"):
            guard.__exit__(None, None, None)
        with guard:
            pass


def test_a_forcing_guard_can_be_taken_out_from_the_middle():
    outer, force, inner = include_keys("Tracer"), force_keys(), include_keys("CPU")
    for guard in (outer, force, inner):
        guard.__enter__()
    assert state()[0] == DispatchKeySet("CPU")
    with pytest.raises(StateOrderError):
        force.__exit__(None, None, None)
    assert state()[0] == INITIAL | "Tracer" | "CPU"
    inner.__exit__(None, None, None)
    outer.__exit__(None, None, None)


class AnyOrder(RuleBasedStateMachine):
    """Guards entered and left at random, against a plain list of those that are in force."""

    guards = Bundle("guards")

    def __init__(self):
        super().__init__()
        self.entered = []
        self.context = contextvars.Context()

    @rule(target=guards, row=st.sampled_from(GUARDS))
    def make(self, row):
        return row[1](), row[2]

    @rule(guard=guards)
    def enter(self, guard):
        self.context.run(guard[0].__enter__)
        self.entered.append(guard[0])

    @rule(guard=guards)
    def leave(self, guard):
        guard = guard[0]
        positions = [i for i, other in enumerate(self.entered) if other is guard]
        try:
            self.context.run(guard.__exit__, None, None, None)
            raised = False
        except StateOrderError:
            raised = True
        assert raised == (not positions or positions[-1] != len(self.entered) - 1)
        if positions:
            del self.entered[positions[-1]]

    @precondition(lambda self: self.entered)
    @rule()
    def leave_the_innermost(self):
        self.context.run(self.entered.pop().__exit__, None, None, None)

    @invariant()
    def state_follows_from_the_guards_in_force(self):
        added, removed, backend = INITIAL, set(), "CPU"
        for guard in self.entered:
            if guard.changes.get("replace"):
                added, removed = DispatchKeySet(), set()
            added |= guard.changes.get("added") or DispatchKeySet()
            removed |= set(guard.changes.get("removed", ()))
            backend = guard.changes.get("default_backend", backend)
        names = without_members(
            key.name
            for key in DispatchKey.Autograd.members
            + DispatchKey.CompositeExplicitAutograd.members
            + (DispatchKey.BackendSelect, DispatchKey("Tracer"))
            if key.slot in removed
        )
        assert self.context.run(state) == (added, names, backend)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])


def test_a_guard_held_across_a_yield_is_reported_when_it_leaves_out_of_order():
    def careless():
        with include_keys("Tracer"):
            yield state()

    generator = careless()
    assert next(generator) == TRACED
    with below_autograd():
        with pytest.raises(StateOrderError, match="below_autograd"):
            next(generator)
        assert state() == (INITIAL, AUTOGRAD, "CPU")


# --- threads and contexts -----------------------------------------------------------------------------------


def in_thread(function):
    """Return the result of a function in a new thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_threads_start_empty():
    with include_keys("Tracer"), default_backend("Meta"):
        assert in_thread(state) == UNCHANGED


def test_guards_of_a_thread_stay_in_it():
    entered, seen = threading.Barrier(2), threading.Barrier(2)

    def hold():
        with default_backend("Meta"):
            entered.wait(5)
            seen.wait(5)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(5)
    assert state() == UNCHANGED
    seen.wait(5)
    thread.join()


def test_a_guard_is_left_where_it_was_entered():
    guard = include_keys("Tracer")

    def leave():
        with pytest.raises(
            StateOrderError, match=r"in a context in which it was not entered[\s\S]*same thread or task"):
            guard.__exit__(None, None, None)
        return state()

    with guard:
        assert in_thread(leave) == UNCHANGED
        assert contextvars.Context().run(leave) == UNCHANGED
        assert state() == TRACED


def test_a_copied_context_has_the_guards_and_keeps_its_own_changes():
    with include_keys("Tracer"):
        context = contextvars.copy_context()
    guard = default_backend("Meta")
    context.run(guard.__enter__)
    assert context.run(state) == (*TRACED[:2], "Meta")
    assert state() == UNCHANGED


# --- asyncio ------------------------------------------------------------------------------------------------


def test_tasks_do_not_see_each_others_guards():
    async def task(guard, inside, turn, other):
        with guard:
            seen = [state()]
            other.set()
            await turn.wait()
            seen.append(state())
        assert seen == [inside, inside]

    async def main():
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(task(include_keys("Tracer"), TRACED, first, second),
                             task(below_autograd(), (INITIAL, AUTOGRAD, "CPU"), second, first))
        return state()

    assert asyncio.run(main()) == UNCHANGED


def test_a_task_inherits_the_guards_of_its_creator_and_changes_only_its_own():
    async def child():
        with default_backend("Meta"):
            await asyncio.sleep(0)
            return state()

    async def main():
        with include_keys("Tracer"):
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
            assert state() == TRACED
            return await task

    assert asyncio.run(main()) == (*TRACED[:2], "Meta")


def test_to_thread_inherits():
    async def main():
        with include_keys("Tracer"):
            return await asyncio.to_thread(state)

    assert asyncio.run(main()) == TRACED


def test_kernels_in_tasks_are_chosen_by_the_guards_of_their_task(fresh, define, token, tracer):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), Tracer=token("Tracer"), Meta=token("Meta"))

    async def task(guard, expected):
        with guard:
            for _ in range(20):
                assert op(1.0) == expected
                await asyncio.sleep(0)

    async def main():
        await asyncio.gather(task(include_keys("Tracer"), "Tracer"), task(default_backend("Meta"), "Meta"),
                             task(below_autograd(), "CPU"))

    asyncio.run(main())


# --- decorators ---------------------------------------------------------------------------------------------

traced = include_keys("Tracer")


def test_a_decorated_function():
    @traced
    def function(n, *, fail=False):
        """Document this."""
        assert state() == TRACED
        if fail:
            raise KeyError(n)
        return n if n == 0 else function(n - 1)

    assert function(3) == 0
    with pytest.raises(KeyError):
        function(1, fail=True)
    assert (function.__name__, function.__doc__) == ("function", "Document this.")
    assert list(inspect.signature(function).parameters) == ["n", "fail"]


def test_a_decorated_method_and_kernel(fresh, define):
    class Thing:
        @traced
        def method(self, n):
            return self, n, state()

    thing = Thing()
    assert thing.method(2) == (thing, 2, TRACED)

    @traced
    def kernel(x, n=1):
        return repr(state())

    op = define(fresh, "f(Tensor x, int n=1) -> str", CPU=kernel)
    assert op(np.ones(1)) == repr(TRACED)


@traced
def conversation(log):
    """Yield the last value sent. Survive a ValueError, and report being closed."""
    received = None
    try:
        while received != "stop":
            log.append(state())
            try:
                received = yield received
            except ValueError as error:
                received = f"caught {error}"
    finally:
        log.append(("closed", state()))
    return "result"


def test_a_decorated_generator_has_the_guard_on_only_while_it_runs():
    log = []
    generator = conversation(log)
    assert inspect.isgenerator(generator)
    assert log == []
    assert next(generator) is None
    assert state() == UNCHANGED
    assert generator.send("a") == "a"
    assert generator.throw(ValueError("b")) == "caught b"
    assert state() == UNCHANGED
    with pytest.raises(StopIteration) as stop:
        generator.send("stop")
    assert stop.value.value == "result"
    assert log == [TRACED] * 3 + [("closed", TRACED)]


def test_a_decorated_generator_that_is_never_started():
    conversation([]).close()
    assert state() == UNCHANGED


@pytest.mark.parametrize("end", ["close", "throw", "forget"])
def test_the_end_of_a_decorated_generator(end):
    log = []
    generator = conversation(log)
    next(generator)
    if end == "close":
        generator.close()
    elif end == "throw":
        with pytest.raises(KeyboardInterrupt):
            generator.throw(KeyboardInterrupt)
    else:
        del generator
    assert log == [TRACED, ("closed", TRACED)]
    assert state() == UNCHANGED


def test_decorated_generators_interleave():
    @include_keys("Tracer")
    def one():
        yield state()
        yield state()

    @below_autograd()
    def two():
        yield state()
        yield state()

    below = (INITIAL, AUTOGRAD, "CPU")
    assert list(zip(one(), two(), strict=True)) == [(TRACED, below)] * 2
    both = (INITIAL | "Tracer", AUTOGRAD, "CPU")

    @below_autograd()
    def outer():
        yield from one()

    assert list(outer()) == [both, both]


def test_a_decorated_coroutine_has_the_guard_on_only_while_it_runs():
    @traced
    async def coroutine(n):
        seen = [state()]
        await asyncio.sleep(0)
        seen.append(state())
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            seen.append(state())
        return n, seen

    async def main():
        assert inspect.iscoroutinefunction(coroutine)
        task = asyncio.ensure_future(coroutine(7))
        await asyncio.sleep(0)
        assert state() == UNCHANGED
        n, seen = await task
        assert (n, seen) == (7, [TRACED] * 3)
        assert await coroutine(8) == (8, [TRACED] * 3)

    asyncio.run(main())


@pytest.mark.parametrize("cancelled", [False, True], ids=["raises", "is cancelled"])
def test_a_decorated_coroutine_that_fails(cancelled):
    seen = []

    @traced
    async def coroutine():
        try:
            await asyncio.sleep(0)
            if not cancelled:
                raise KeyError
            await asyncio.sleep(60)
        finally:
            seen.append(state())

    async def main():
        task = asyncio.ensure_future(coroutine())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else KeyError):
            await task
        assert state() == UNCHANGED

    asyncio.run(main())
    assert seen == [TRACED]


@traced
async def async_conversation(log):
    """Do the same as `conversation`, with awaits."""
    received = None
    try:
        while received != "stop":
            await asyncio.sleep(0)
            log.append(state())
            try:
                received = yield received
            except ValueError as error:
                received = f"caught {error}"
    finally:
        await asyncio.sleep(0)
        log.append(("closed", state()))


def test_a_decorated_async_generator_has_the_guard_on_only_while_it_runs():
    async def main():
        log = []
        generator = async_conversation(log)
        assert inspect.isasyncgen(generator)
        assert await generator.asend(None) is None
        assert state() == UNCHANGED
        assert await generator.asend("a") == "a"
        assert await generator.athrow(ValueError("b")) == "caught b"
        assert state() == UNCHANGED
        with pytest.raises(StopAsyncIteration):
            await generator.asend("stop")
        assert log == [TRACED] * 3 + [("closed", TRACED)]

    asyncio.run(main())


@pytest.mark.parametrize("end", ["aclose", "athrow", "break"])
def test_the_end_of_a_decorated_async_generator(end):
    async def main():
        log = []
        generator = async_conversation(log)
        if end == "break":
            async for _ in generator:
                break
        else:
            await anext(generator)
        if end == "athrow":
            with pytest.raises(KeyError):
                await generator.athrow(KeyError)
        else:
            await generator.aclose()
        assert log == [TRACED, ("closed", TRACED)]
        assert state() == UNCHANGED

    asyncio.run(main())
