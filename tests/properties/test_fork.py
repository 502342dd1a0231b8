"""A child that was forked while other threads were at work registers, calls and differentiates like any process."""

import os
import signal
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from pydispatch import Tensor, _core, compile, ops
from pydispatch._registry import registrations
from pydispatch.library import Library

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function _at_fork"),     # of JAX, where it is imported
]


def register():
    with Library("forked", "FRAGMENT") as lib:
        lib.define("twice(Tensor x) -> Tensor")
        lib.impl("twice", lambda x: x * 2, "CPU")
        assert ops.forked.twice(np.ones(2)).tolist() == [2.0, 2.0]


def differentiate():
    leaf = Tensor(np.ones(3), requires_grad=True)
    for _ in range(2):
        (leaf * leaf).sum().backward()
    assert leaf.grad.array.tolist() == [4.0] * 3


def build_tables():
    registrations.mark_all_stale()
    assert ops.np.add(np.ones(2), 1.0).tolist() == [2.0, 2.0]


WORK = {"registration": register, "backward": differentiate, "tables": build_tables}


def ends_well(work, seconds=60):
    """Return whether a forked child does this and ends."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("name", ["registering", "accumulating"])
def test_a_lock_that_another_thread_holds_is_free_in_the_child(name, work):
    lock, held, done = getattr(_core, name), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert ends_well(work)
    finally:
        done.set()
        thread.join()
    work()


def test_what_another_thread_was_about_to_register_is_not_in_force_in_the_child():
    held, done = threading.Event(), threading.Event()

    def hold():
        with Library("forked", "FRAGMENT") as lib, _core.registering:
            for name in ("first", "second", "third"):
                lib.define(f"{name}(Tensor x) -> Tensor")
            held.set()
            done.wait()

    def is_clean():
        assert not [name for name in registrations.operators if name.startswith("forked::")]
        register()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert ends_well(is_clean)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_lock_that_the_forking_thread_holds_stays_its_own(work):
    def in_child():
        work()
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(0.2)
        assert other.is_alive()     # it waits

    with _core.registering, _core.accumulating:
        if work is differentiate:
            assert ends_well(work)
        else:
            assert ends_well(in_child)


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_children_of_a_busy_process_end(work):
    done = threading.Event()
    big = np.ones(300_000)

    def busy_registering():
        while not done.is_set():
            with Library("busy", "FRAGMENT") as lib:
                lib.define("busy(Tensor x) -> Tensor")
                registrations.mark_all_stale()

    def busy_differentiating():
        leaf = Tensor(big, requires_grad=True)
        while not done.is_set():
            (leaf * 2).sum().backward()

    threads = [threading.Thread(target=busy) for busy in (busy_registering, busy_differentiating, busy_differentiating)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for thread in threads:
        thread.start()
    try:
        assert [ends_well(work) for _ in range(12)] == [True] * 12
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)


def test_a_function_that_another_thread_compiles_is_compiled_in_the_child():
    tracing, done = threading.Event(), threading.Event()

    def f(x):
        if threading.current_thread() is thread:
            tracing.set()
            done.wait()
        return x * 2.0

    compiled = compile(f)
    thread = threading.Thread(target=lambda: compiled(np.ones(3)))
    thread.start()
    tracing.wait()

    def call():
        assert compiled(np.ones(3)).tolist() == [2.0] * 3

    try:
        assert ends_well(call)
    finally:
        done.set()
        thread.join()
    call()


def test_locks_are_let_go_of():
    lock = _core.Lock()
    alive = weakref.ref(lock)
    del lock
    assert alive() is None
