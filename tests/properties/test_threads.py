"""Threads: calls while others register and remove. First calls at the same time. Counters. Guards.

Time is a counter that every thread advances, so "before" and "after" are exact.
"""

import gc
import itertools
import random
import sys
import threading
import time

import numpy as np
import pytest

from pydispatch import DispatchKeySet, Tensor, debug, include_keys, ops
from pydispatch.exceptions import NoKernelError, RegistrationError
from pydispatch.library import Library, Stack

X = np.arange(3.0)
N_CALLERS, N_WRITERS = 8, 3


@pytest.fixture(autouse=True)
def switching_often():
    """Have threads change places a hundred times more often than usual."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(interval)


def run_together(functions):
    """Run each function in a thread of its own, all starting at once. Raise what any of them raised."""
    errors, start = [], threading.Barrier(len(functions))

    def guarded(function):
        try:
            start.wait(60)
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


# --- calls while others register and remove -----------------------------------------------------------------

# A way to call, and the keys whose kernels may answer it: the earlier one wins, wherever it is registered.
CALLS = {
    "raw": (lambda op: op(X), ("CPU", "CIA")),
    "Tensor": (lambda op: op(Tensor(X)), ("AutogradCPU", "CPU", "CIA")),
    "keyword": (lambda op: op(x=X), ("CPU", "CIA")),
    "boxed": (lambda op: boxed(op, Tensor(X)), ("AutogradCPU", "CPU", "CIA")),
    "redispatch": (lambda op: op.redispatch(DispatchKeySet("CPU"), X), ("CPU", "CIA")),
    "traced": (lambda op: traced(op), ("fallback", "CPU", "CIA")),
}


def boxed(op, x):
    stack = Stack([x])
    op.call_boxed(stack)
    return stack[0]


def traced(op):
    with include_keys("Tracer"):
        return op(X)


class Registration:
    """A kernel that was in force surely from `sure_from` to `sure_until`, and perhaps from `from_` to `until`."""

    def __init__(self):
        self.from_ = self.sure_from = self.sure_until = self.until = None


class Race:
    """Kernels that come and go, with a record of when, and calls that are checked against it."""

    def __init__(self, library, n_operators):
        self.clock = itertools.count()
        self.library = library
        self.names = [f"f{i}" for i in range(n_operators)]
        self.records = {}  # token -> (operator, key, Registration)
        self.alive = {}  # (operator, key) -> Registrations that have not been removed yet
        self.done = threading.Event()
        self.n_calls = self.n_registrations = 0
        for name in self.names:
            library.define(f"{name}(Tensor x) -> str")
        self.operators = {name: getattr(getattr(ops, library.namespace), name).default for name in self.names}

    def end_after(self, seconds):
        """End the race after a time, on a busy machine later, when calls and registrations have met."""
        for wait in (seconds, *[0.5] * 60):
            time.sleep(wait)
            if min(self.n_calls, self.n_registrations) > 100:
                break
        self.done.set()

    def register_and_remove(self, seed):
        """Register and remove kernels until the race is over."""
        rng = random.Random(seed)
        held = []
        while not self.done.is_set():
            if len(held) < 3 or (len(held) < 12 and rng.random() < 0.5):
                held.append(self.register(rng.choice(self.names), rng.choice(("CPU", "CIA", "AutogradCPU"))))
            else:
                self.remove(*held.pop(rng.randrange(len(held))))
        for registered in held:
            self.remove(*registered)

    def fall_back_and_remove(self):
        """Register and remove fallbacks until the race is over."""
        while not self.done.is_set():
            registered = self.register(None, "fallback")
            time.sleep(0.0005)
            self.remove(*registered)
            time.sleep(0.0005)

    def register(self, name, key):
        registration = Registration()
        token = f"{key} of {name} {next(self.clock)}"
        kernel = (lambda op, x: token) if key == "fallback" else (lambda x: token)
        self.records[token] = name, key, registration
        self.alive.setdefault((name, key), []).append(registration)
        registration.from_ = next(self.clock)
        if key == "fallback":
            handle = Library("_", "IMPL").fallback(kernel, "Tracer")
        else:
            handle = self.library.impl(name, kernel, key)
        registration.sure_from = next(self.clock)
        self.n_registrations += 1
        return name, key, registration, handle

    def remove(self, name, key, registration, handle):
        registration.sure_until = next(self.clock)
        handle.remove()
        registration.until = next(self.clock)
        self.alive[name, key].remove(registration)

    def call(self, seed):
        """Call until the race is over. Each answer must come from a kernel that could have given it."""
        rng = random.Random(seed)
        kinds = list(CALLS)
        while not self.done.is_set():
            name, kind = rng.choice(self.names), rng.choice(kinds)
            call, keys = CALLS[kind]
            start = next(self.clock)
            try:
                token = call(self.operators[name])
            except NoKernelError:
                token = None
            end = next(self.clock)
            self.check(name, keys, token, start, end)
            self.n_calls += 1

    def check(self, name, keys, token, start, end):
        rank = len(keys)
        if token is not None:
            of, key, registration = self.records[token]
            assert of in (name, None), f"{token} answered for {name}"
            assert registration.from_ < end, f"{token} answered before it was registered"
            assert registration.until is None or registration.until > start, (f"{token} answered after its removal")
            rank = keys.index(key)
        for better in keys[:rank]:
            of = None if better == "fallback" else name
            for other in list(self.alive.get((of, better), ())):
                in_force_all_along = (
                    other.sure_from is not None
                    and other.sure_from < start
                    and (other.sure_until is None or other.sure_until > end))
                assert not in_force_all_along, (f"{token} answered, although a kernel under {better} was in force")


@pytest.mark.parametrize("seconds", [2, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::pydispatch.exceptions.OverrideWarning")
def test_calls_while_others_register_and_remove(fresh, tracer, seconds):
    race = Race(fresh, 3)
    run_together(
        [lambda seed=seed: race.call(seed) for seed in range(N_CALLERS)]
        + [lambda seed=seed: race.register_and_remove(100 + seed) for seed in range(N_WRITERS)]
        + [race.fall_back_and_remove, lambda: race.end_after(seconds)])
    assert race.n_calls > 100
    assert race.n_registrations > 100
    assert not any(race.alive.values())
    debug.check_invariants()
    for op in race.operators.values():
        with pytest.raises(NoKernelError):
            op(X)
        assert debug.dump_table(op, "difference") == ""


def test_operators_come_and_go_while_they_are_called(new_library):
    library = new_library()
    namespace, done, answers = library.namespace, threading.Event(), set()

    def write():
        for i in range(150):
            with Library(namespace, "FRAGMENT") as fragment:
                fragment.define("f(Tensor x) -> str", lambda x, i=i: f"answer {i}")
                getattr(ops, namespace).f(X)
            gc.collect(0)
        done.set()

    def call():
        while not done.is_set():
            try:
                answers.add(getattr(ops, namespace).f(X)[:6])
            except (AttributeError, RuntimeError) as error:  # not found, or stale
                answers.add(type(error).__name__)

    run_together([write, *[call] * 4])
    assert answers <= {"answer", "OperatorNotFoundError", "StaleOperatorError"}
    debug.check_invariants()


# --- the same moment ----------------------------------------------------------------------------------------


def test_first_calls_at_the_same_time(fresh, define, token):
    for i in range(50):
        op = define(fresh, f"f{i}(Tensor x) -> str", CPU=token("CPU"), CIA=token("CIA"))
        answers = []
        run_together([lambda op=op, answers=answers: answers.append((op(X), op(Tensor(X))))] * 4)
        assert answers == [("CPU", "CPU")] * 4


def test_one_of_two_definitions_wins(fresh, token):
    for i in range(50):
        refused = []

        def define(i=i, refused=refused):
            try:
                fresh.define(f"f{i}(Tensor x) -> str", token("ran"))
            except RegistrationError:
                refused.append(i)

        run_together([define] * 4)
        assert refused == [i] * 3
    debug.check_invariants()


def test_registrations_by_many_threads_all_count(fresh, backends, token):
    def register(thread):
        for i in range(25):
            fresh.define(f"f{thread}_{i}(Tensor x) -> str")
            for key in ("CPU", "A", "CIA"):
                fresh.impl(f"f{thread}_{i}", token(f"{key} {thread} {i}"), key)

    run_together([lambda thread=thread: register(thread) for thread in range(8)])
    for thread, i in itertools.product(range(8), range(25)):
        op = getattr(getattr(ops, fresh.namespace), f"f{thread}_{i}")
        assert [op(X), op(backends.ArrayA(X)), op(backends.ArrayB(X))] == [
            f"{key} {thread} {i}" for key in ("CPU", "A", "CIA")]
    debug.check_invariants()


# --- state --------------------------------------------------------------------------------------------------


def test_every_write_is_counted():
    t = Tensor(np.zeros(1))
    view = t[:]

    def write():
        for _ in range(500):
            ops.np.add_(t, 1)

    run_together([write] * 8)
    assert (t._version, view._version, t.tolist()) == (4000, 4000, [4000.0])


def test_guards_of_threads_do_not_mix(fresh, define, token):
    op = define(fresh, "f(Tensor x) -> str", CPU=token("CPU"), Tracer=token("Tracer"))

    def inside():
        for _ in range(300):
            with include_keys("Tracer"):
                assert [op(X), op(x=X)] == ["Tracer"] * 2
            assert op(X) == "CPU"

    def outside():
        for _ in range(600):
            assert op(X) == "CPU"

    run_together([inside, outside] * 4)


def test_tensors_made_and_dropped_in_threads(backends):
    def work():
        for i in range(1000):
            array = backends.ArrayA(X) if i % 3 else np.ones(2)
            t = Tensor(array)
            assert t.array is array
            assert t._version == 0
            assert len([Tensor(array) for _ in range(i % 20)]) == i % 20

    run_together([work] * 4)
