"""KeyboardInterrupt at any moment: what was entered is left, and what is on was entered."""

import contextlib
import functools
import signal
import sys
import threading
import time

import numpy as np
import pytest

from pydispatch import Tensor, _core, autograd, modes, ops
from pydispatch._registry import registrations
from pydispatch.func import Transform, functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from pydispatch.higher_order import cond, scan
from pydispatch.library import custom_op
from pydispatch.testing.logging import LoggingMode, _logs, capture_logs
from pydispatch.tracing import FakeMode, make_fx
from tests.func.forward_mode import set_forward_enabled
from tests.modes.recorders import Passing

needs_whole_entrances = pytest.mark.skipif(
    sys.version_info[:2] == (3, 14),
    reason="CPython 3.14 takes signals between `__enter__` and the block: its own locks stay locked, too")

X = np.ones(3)
LEAF = Tensor(np.ones(3), requires_grad=True)


@pytest.fixture(autouse=True)
def errors_as_before():
    """Restore `numpy.errstate`, which an interrupt may leave on, since Python code enters and leaves it."""
    with np.errstate():
        yield


class Interpreter(Transform):
    pass


def run_interrupted(action, times, seconds, state_now=_core.current_state):
    """Do something so often under a timer. How many times it ended in an interrupt, and with another state.

    `state_now` is written in C, so that no interrupt hits it.
    """
    armed = True

    def interrupt(number, frame):
        while frame.f_code is interrupt.__code__:
            frame = frame.f_back
        if armed and frame.f_code is not run_interrupted.__code__:
            raise KeyboardInterrupt

    state = state_now()
    hit = changed = 0
    before, hook = signal.signal(signal.SIGALRM, interrupt), sys.unraisablehook
    sys.unraisablehook = id     # told of interrupts in finalizers, which Python drops, and no signal comes into C
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
        for _ in range(times):
            try:
                action()
            except KeyboardInterrupt:
                hit += 1
            changed += state_now() != state
    finally:
        armed = False       # for a signal on its way, and for those inside `signal.signal`, which is Python
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    return hit, changed


def entering(make):
    def enter():
        with make():
            pass

    return enter


GUARDS = {
    "no_grad": autograd.no_grad,
    "enable_grad": autograd.enable_grad,
    "inference_mode": autograd.inference_mode,
    "set_grad_enabled": lambda: autograd.set_grad_enabled(False),
    "set_forward_enabled": lambda: set_forward_enabled(False),
    "detect_anomaly": autograd.detect_anomaly,
    "saved_tensors_hooks": lambda: autograd.saved_tensors_hooks(lambda x: x, lambda x: x),
    "disable_saved_tensors_hooks": lambda: autograd.disable_saved_tensors_hooks("no"),
    "include_keys": lambda: modes.include_keys("CPU"),
    "exclude_keys": lambda: modes.exclude_keys("Autograd"),
    "force_keys": modes.force_keys,
    "below_autograd": modes.below_autograd,
    "default_backend": lambda: modes.default_backend("Meta"),
    "no_dispatch": modes.no_dispatch,
    "mode": Passing,
    "LoggingMode": LoggingMode,
    "capture_logs": capture_logs,
    "FakeMode": FakeMode,
    "transform": Interpreter,
}

TRANSFORMS = {
    "grad": lambda: grad(lambda x: (x * x).sum())(X),
    "vjp": lambda: vjp(lambda x: x * x, X)[1](X),
    "jvp": lambda: jvp(lambda x: x * x, (X,), (X,)),
    "vmap": lambda: vmap(lambda x: x * x)(X),
    "jacrev": lambda: jacrev(lambda x: x * x)(X),
    "jacfwd": lambda: jacfwd(lambda x: x * x)(X),
    "hessian": lambda: hessian(lambda x: (x * x).sum())(X),
    "functionalize": lambda: functionalize(lambda x: x * x)(X),
    "linearize": lambda: linearize(lambda x: x * x, X)[1](X),
    "make_fx": lambda: make_fx(lambda x: x * x)(X),
    "mode": lambda: _under(Passing(), lambda: ops.np.exp(X)),
    "FakeMode": lambda: _under(FakeMode(), lambda: ops.np.exp(ops.np.ones(3))),
    "backward": lambda: (LEAF * LEAF).sum().backward(inputs=[LEAF]),
    "scan": lambda: grad(lambda x: scan(lambda c, v: (c * v, c * 1), x[0], x)[0])(X),
    "cond": lambda: vmap(lambda x: cond(x > 0, lambda v: v * 2, lambda v: v * 3, (x,)))(X),
}
WITH_BLOCKS = {"make_fx", "mode", "FakeMode"}       # those of them that enter some in Python


def _under(guard, function):
    with guard:
        return function()


@needs_whole_entrances
@pytest.mark.parametrize("make", GUARDS.values(), ids=GUARDS)
def test_an_interrupted_block_is_left(make, count):
    logs = _logs.get()      # private: nothing public lists the open logs, and one left open only costs time
    hit, changed = run_interrupted(entering(make), 5_000, 1e-4)
    count("interrupts", hit)
    assert changed == 0
    assert _logs.get() == logs
    assert hit > 5


@needs_whole_entrances
@pytest.mark.slow
@pytest.mark.parametrize("make", GUARDS.values(), ids=GUARDS)
def test_an_interrupted_block_is_left_often(make, count):
    hit, changed = run_interrupted(entering(make), 100_000, 1e-4)
    count("interrupts", hit)
    assert changed == 0
    assert hit > 100


@pytest.mark.parametrize("call", [
    pytest.param(call, marks=needs_whole_entrances if name in WITH_BLOCKS else (), id=name)
    for name, call in TRANSFORMS.items()
])
def test_an_interrupted_transform_is_left(call, count):
    call()
    hit, changed = run_interrupted(call, 1_000, 1e-4)
    count("interrupts", hit)
    assert changed == 0
    assert hit > 5


@needs_whole_entrances
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")        # an interrupt came between making and use
@pytest.mark.parametrize("make", [autograd.no_grad, Passing], ids=["guard", "mode"])
@pytest.mark.parametrize("kind", ["function", "generator", "coroutine"])
def test_an_interrupted_decorated_function_is_left(make, kind, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)     # interrupts in destructors of coroutines
    if kind == "function":
        call = make()(lambda: None)
    elif kind == "generator":
        @make()
        def steps():
            yield 1
            yield 2

        def call():
            list(steps())
    else:
        @make()
        async def work():
            pass

        def call():
            with contextlib.suppress(StopIteration), contextlib.closing(work()) as coroutine:
                coroutine.send(None)

    assert run_interrupted(call, 5_000, 1e-4)[1] == 0


@needs_whole_entrances
@pytest.mark.parametrize("was_enabled", [True, False])
def test_an_interrupted_switch_of_kernels_is_left(was_enabled, caplog):
    caplog.set_level("ERROR", "pydispatch.library")
    definition = custom_op("interrupted::f", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    definition.register_kernel("CPU", lambda x: x * 10)
    try:
        with definition.set_kernel_enabled("CPU", was_enabled):
            hit, changed = run_interrupted(
                entering(lambda: definition.set_kernel_enabled("CPU", not was_enabled)), 5_000, 1e-4,
                functools.partial(getattr, definition.operator, "registrations"))
            assert definition(X).tolist() == [10.0 if was_enabled else 2.0] * 3
        assert changed == 0
        assert hit > 5
        assert definition(X).tolist() == [10.0] * 3
    finally:
        definition.remove()


def test_leaving_a_switch_of_kernels_waits_for_another_thread_and_an_interrupt():
    definition = custom_op("interrupted::f", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
    held = threading.Event()

    def hold():
        with registrations.lock:
            held.set()
            time.sleep(0.02)
            signal.raise_signal(signal.SIGALRM)
            time.sleep(0.05)

    def switch():
        with definition.set_kernel_enabled("CPU", False):
            other.start()
            held.wait()

    before = list(definition.operator.registrations)
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    other = threading.Thread(target=hold)
    try:
        with pytest.raises(KeyboardInterrupt):
            switch()
        assert list(definition.operator.registrations) == before
        assert not registrations.lock._is_owned()
    finally:
        signal.signal(signal.SIGALRM, handler)
        other.join()
        definition.remove()


def test_a_switch_that_was_not_interrupted_stays():
    with autograd.enable_grad():
        autograd.set_grad_enabled(False)
        assert not autograd.is_grad_enabled()
        with pytest.raises(ZeroDivisionError):
            1 / 0  # noqa: B018
        assert not autograd.is_grad_enabled()


def test_a_switch_that_an_exception_takes_away_before_its_use_is_taken_back():
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        (autograd.set_grad_enabled(False), fail())
    assert autograd.is_grad_enabled()
