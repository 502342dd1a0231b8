"""The cost of dispatch to Python: handlers of modes and subclasses, fakes, tracing, and the gain of compiled graphs.

A handler is one function, which serves PyTorch's class too where PyTorch is there to compare with.
"""

from __future__ import annotations

import contextlib
import importlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases.differentiators import functions_of
from benchmarks.cases.dispatch import arrays
from benchmarks.cases.kinds import Case, Effort, Ratio, Row, import_or_note, matches
from benchmarks.cases.programs import ERRORS, STEP, STEPS, add_up, programs
from pydispatch import DispatchMode, WrapperTensor
from pydispatch._core import Tensor
from pydispatch.cli.timing import Loop, make_loop, time_in_rounds
from pydispatch.ops import ops
from pydispatch.subclasses import Shell
from pydispatch.testing.logging import LoggingMode, capture_logs
from pydispatch.tracing import FakeMode, make_fx

ADDED = "What handlers in Python add to np.add on 4-element Tensors, each"
TRACED = "An operator on fakes, and in a trace: np.add, and a perceptron's nine"
PEER = "What PyTorch adds for the same, over what we add"
COMPILED = "Graph.compile, over the same operators in straight-line NumPy"
DEPTHS = (1, 2, 3, 4)
OPERATORS = 9      # of the perceptron
TEXT = "op(X, Y)"

Manager = Callable[[], AbstractContextManager[Any]]


# --- kinds of cases --------------------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """A call, the names in it, and a context manager that is entered once for each loop."""

    label: str
    text: str
    names: dict[str, Any]
    within: Manager = nullcontext

    def loop(self) -> Loop:
        """Return the loop of this call, for time_in_rounds."""
        turn = make_loop(self.text, self.names)

        def loop(number: int) -> None:
            with self.within():
                turn(number)
        return loop


class Pair(NamedTuple):
    """A call with a number of modes, wrappers or operators, and one without, or None: then all of the call counts."""

    call: Timed
    plain: Timed | None
    number: int = 1

    def loops(self) -> list[Loop]:
        """Return the loops of the calls: one or two."""
        return [timed.loop() for timed in (self.call, self.plain) if timed is not None]

    def added(self, times: Sequence[float]) -> float:
        """Return microseconds that each of them adds, from the nanoseconds that the loops took."""
        call, *plain = times
        return (call - sum(plain)) / self.number / 1000

    def times(self, rounds: Sequence[Sequence[float]]) -> dict[str, float]:
        """Return the medians, by label."""
        labels = [timed.label for timed in (self.call, self.plain) if timed is not None]
        return dict(zip(labels, map(statistics.median, zip(*rounds, strict=True)), strict=True))


@dataclass(frozen=True)
class AddedTime(Case):
    """Microseconds that each mode, wrapper or operator adds to a call."""

    pair: Pair = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        rounds = time_in_rounds(self.pair.loops(), effort.rounds, effort.seconds)
        return self.row([*map(self.pair.added, rounds)], self.pair.times(rounds), unit="µs")


@dataclass(frozen=True)
class AddedByPeer(Case):
    """The overhead of PyTorch over ours."""

    theirs: Pair = field(repr=False)
    ours: Pair = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        loops, others = self.theirs.loops(), self.ours.loops()
        rounds = time_in_rounds([*loops, *others], effort.rounds, effort.seconds)
        added = [(self.theirs.added(times[:len(loops)]), self.ours.added(times[len(loops):])) for times in rounds]
        theirs, ours = (statistics.median(values) * 1000 for values in zip(*added, strict=True))
        return self.row([one / other for one, other in added], {"theirs": theirs, "ours": ours}, at_least=True)


@dataclass(frozen=True)
class Deviation(Case):
    """The largest distance of the cost of 1, 2, 3 and 4 handlers from a line, over what one of them adds."""

    pairs: Sequence[Pair] = field(repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        loops = [pair.call.loop() for pair in self.pairs]
        rounds = time_in_rounds(loops, effort.rounds, effort.seconds)
        medians = [*map(statistics.median, zip(*rounds, strict=True))]
        depths = [pair.number for pair in self.pairs]
        slope, start = statistics.linear_regression(depths, medians)
        worst = max(abs(time - start - slope * depth) for depth, time in zip(depths, medians, strict=True))
        times = dict(zip((pair.call.label for pair in self.pairs), medians, strict=True))
        return self.row([worst / slope], times)


# --- handlers --------------------------------------------------------------------------------------------------------
#
# They are written as users write them, and PyTorch's are the same.


def pass_on(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Handle a call in a mode that changes nothing."""
    return func(*args, **kwargs)


def decline(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Leave every call of a mode to others."""
    return NotImplemented


def rewrap(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Handle a call of a class whose objects have another array inside."""
    return cls(func(*[arg.inner if isinstance(arg, cls) else arg for arg in args], **kwargs))


def return_constant(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """Handle a call of a class that computes nothing."""
    return cls.constant


class PassOn(DispatchMode):
    """A mode that changes nothing."""

    __pydispatch__ = pass_on


class Decline(DispatchMode):
    """A mode that leaves every call to others."""

    __pydispatch__ = decline


class Wrapped(WrapperTensor):
    """A wrapper of an array or of another wrapper."""

    __slots__ = ()
    __pydispatch__ = classmethod(rewrap)


class WrappedInPython(Tensor):
    """Wrapped, with a constructor in Python."""

    __slots__ = ("inner",)
    inner: Any

    def __init__(self, inner: Any) -> None:
        super().__init__(Shell(inner))
        self.inner = inner

    __pydispatch__ = classmethod(rewrap)


class Inherited(Tensor):
    """Is an array. Its handler is that of the base class."""

    __slots__ = ()

    @classmethod
    def __pydispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass on."""
        return super().__pydispatch__(func, types, args, kwargs)


class Constant(Tensor):
    """Is an array. Its handler computes nothing."""

    __slots__ = ()
    constant = Tensor(np.ones(4))
    __pydispatch__ = classmethod(return_constant)


# --- libraries that are compared -------------------------------------------------------------------------------------


class Handlers(NamedTuple):
    """The parts of a library for the rows on handlers: an addition, its arguments, and classes with these handlers."""

    add: Any
    x: Any
    y: Any
    zeros: Any
    mode: Manager
    declining: Manager
    wrapped: Callable[[Any], Any]
    wrapped_in_python: Callable[[Any], Any]
    inherited: Callable[[Any], Any]
    constant: Callable[[Any], Any]
    logged: Manager


class Tracing(NamedTuple):
    """The parts of a library for the rows on fakes and traces."""

    namespace: Any
    to_array: Callable[[Any], Any]
    fake_mode: Any
    to_fake: Callable[[Any], Any]
    make_fx: Callable[..., Any]


def stacked(*managers: Manager) -> Manager:
    """Combine all of these context managers, the first outermost."""
    @contextlib.contextmanager
    def within() -> Iterator[None]:
        with ExitStack() as stack:
            for manager in managers:
                stack.enter_context(manager())
            yield
    return within


def our_handlers() -> Handlers:
    """Yield the rows of this library."""
    names = arrays()
    return Handlers(
        ops.np.add, names["X"], names["Y"], ops.np.zeros, PassOn, Decline, Wrapped, WrappedInPython,
        Inherited, Constant,
        stacked(LoggingMode, lambda: capture_logs(is_mode=True)),
    )


def our_tracing() -> Tracing:
    """Yield the rows of this library."""
    mode = FakeMode()
    return Tracing(ops.np, lambda array: array, mode, mode.from_array, make_fx)


def torch_handlers(torch: Any) -> Handlers:
    """Yield the rows of PyTorch."""
    mode_class = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode
    logging = importlib.import_module("torch.testing._internal.logging_tensor")
    handler = "__torch_dispatch__"

    def wrap(cls: Any, inner: Any) -> Any:
        result = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        result.inner = inner
        return result

    def inherit(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super(inherited, cls).__torch_dispatch__(func, types, args, kwargs)

    inherited: Any = type("Inherited", (torch.Tensor,), {handler: classmethod(inherit)})
    constant = type("Constant", (torch.Tensor,), {handler: classmethod(return_constant), "constant": torch.ones(4)})
    wrapped = type("Wrapped", (torch.Tensor,), {"__new__": wrap, handler: classmethod(rewrap)})
    return Handlers(
        torch.add, torch.arange(4.0), torch.ones(4), torch.zeros,
        type("PassOn", (mode_class,), {handler: pass_on}), type("Decline", (mode_class,), {handler: decline}),
        wrapped, wrapped,       # there is only one kind
        lambda x: torch.Tensor._make_subclass(inherited, x), lambda x: torch.Tensor._make_subclass(constant, x),
        stacked(logging.LoggingTensorMode, lambda: logging.capture_logs(is_mode=True)),
    )


def torch_tracing(torch: Any) -> Tracing:
    """Yield the rows of PyTorch."""
    mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()
    make = importlib.import_module("torch.fx.experimental.proxy_tensor").make_fx
    return Tracing(torch, torch.tensor, mode, mode.from_tensor, make)


# --- handlers, fakes and traces --------------------------------------------------------------------------------------


def handler_pairs(library: Handlers) -> dict[str, Pair]:
    """Return the rows on handlers, by name."""
    names = {"op": library.add, "X": library.x, "Y": library.y}
    plain = Timed("plain", TEXT, names)

    def modes(count: int) -> Pair:
        return Pair(Timed(f"×{count}", TEXT, names, stacked(*[library.mode] * count)), plain, count)

    def wrappers(count: int) -> Pair:
        x, y = library.x, library.y
        for _ in range(count):
            x, y = library.wrapped(x), library.wrapped(y)
        return Pair(Timed(f"×{count}", TEXT, names | {"X": x, "Y": y}), plain, count)

    def on(make: Callable[[Any], Any], within: Manager = nullcontext) -> Pair:
        return Pair(Timed("with", TEXT, names | {"X": make(library.x), "Y": make(library.y)}, within), plain)

    factory, made = "zeros(4)", {"zeros": library.zeros}
    return {
        **{f"mode ×{count}": modes(count) for count in DEPTHS},
        **{f"wrapper subclass ×{count}": wrappers(count) for count in DEPTHS},
        "wrapper made in Python": on(library.wrapped_in_python),
        "subclass, super()": on(library.inherited),
        "subclass, a constant": on(library.constant),
        "mode over a wrapper": on(library.wrapped, library.mode),
        "mode declines, subclass": on(library.constant, library.declining),
        "factory under a mode": Pair(Timed("with", factory, made, library.mode), Timed("plain", factory, made)),
        "LoggingMode": Pair(Timed("with", TEXT, names, library.logged), plain),
        "enter and leave a mode": Pair(Timed("with", "with mode: pass", {"mode": library.mode()}), None),
    }


def tracing_pairs(library: Tracing) -> dict[str, Pair]:
    """Return the rows on fakes and traces, by name."""
    program = programs()[1]
    compute = program.make(functions_of(library.namespace))
    tensors = [library.to_array(array) for array in program.arguments.values()]
    x, y = (library.to_fake(library.to_array(np.ones(4))) for _ in range(2))
    add = {"op": library.namespace.add, "X": x, "Y": y}
    run = {"f": compute, "arrays": [*map(library.to_fake, tensors)]}
    trace = {"f": compute, "arrays": tensors, "make_fx": library.make_fx}
    return {
        "np.add of fakes": Pair(Timed("in their mode", TEXT, add, lambda: library.fake_mode), None),
        "np.add, out of their mode": Pair(Timed("out of their mode", TEXT, add), None),
        "perceptron of fakes": Pair(Timed("all", "f(*arrays)", run, lambda: library.fake_mode), None, OPERATORS),
        "make_fx": Pair(Timed("all", "make_fx(f)(*arrays)", trace), None, OPERATORS),
        "make_fx, fake": Pair(Timed("all", "make_fx(f, tracing_mode='fake')(*arrays)", trace), None, OPERATORS),
    }


HANDLER_BOUNDS = {f"mode ×{count}": 0.35 for count in DEPTHS} | {f"wrapper subclass ×{count}": 0.7 for count in DEPTHS}
TRACING_BOUNDS = {"np.add of fakes": 2.0, "perceptron of fakes": 2.0}
PEER_BOUNDS = {f"mode ×{count}": 10.0 for count in DEPTHS} | {f"wrapper subclass ×{count}": 7.0 for count in DEPTHS}
DEVIATION_BOUND = 0.25


def handler_cases() -> Iterator[Case]:
    """Yield what handlers add, and how that grows with their number."""
    pairs = handler_pairs(our_handlers())
    for name, pair in pairs.items():
        yield AddedTime(ADDED, name, HANDLER_BOUNDS.get(name), pair)
    for name in ("mode", "wrapper subclass"):
        yield Deviation(
            ADDED, f"{name}, off a line", DEVIATION_BOUND, [pairs[f"{name} ×{count}"] for count in DEPTHS])


def tracing_cases() -> Iterator[Case]:
    """Yield the time of an operator on fakes, and in a trace."""
    for name, pair in tracing_pairs(our_tracing()).items():
        yield AddedTime(TRACED, name, TRACING_BOUNDS.get(name), pair)


def torch_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Case]:
    """Yield PyTorch's rows beside ours, where it is installed."""
    ours = handler_pairs(our_handlers()) | tracing_pairs(our_tracing())
    chosen = [name for name in ours if matches(PEER, name, pattern)]
    torch = import_or_note("torch", PEER, left_out) if chosen else None
    if torch is not None:
        theirs = handler_pairs(torch_handlers(torch)) | tracing_pairs(torch_tracing(torch))
        for name in chosen:
            yield AddedByPeer(PEER, name, PEER_BOUNDS.get(name), theirs[name], ours[name])


# --- compiled graphs -------------------------------------------------------------------------------------------------
#
# The programs in the operators of the language, as one writes them, Euler's steps without the loop.


def polynomial_in_numpy(x: Any) -> Any:
    """9 operators."""
    return add_up((((x * 0.5 - 1.5) * x + 2.0) * x - 0.25) * x + 3.0)


def perceptron_in_numpy(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
    """9 operators."""
    errors = np.tanh(inputs @ w1 + b1) @ w2 + b2 - targets
    return add_up(errors * errors, None) * (1 / ERRORS)


def euler_in_numpy() -> Callable[[Any], Any]:
    """501 operators."""
    lines = ["def euler(y):", *["    y = y + (sin(y) - y * y) * STEP"] * STEPS, "    return add_up(y)"]
    scope: dict[str, Any] = {"sin": np.sin, "STEP": STEP, "add_up": add_up}
    exec("\n".join(lines), scope)
    return scope["euler"]  # type: ignore[no-any-return]


def compiled_cases(pattern: str = "") -> Iterator[Ratio]:
    """Yield the small programs, traced and compiled."""
    by_hand: Sequence[Callable[..., Any]] = (polynomial_in_numpy, perceptron_in_numpy, euler_in_numpy())
    for program, in_numpy in zip(programs(), by_hand, strict=False):
        if matches(COMPILED, program.title, pattern):
            inputs = [*program.arguments.values()]
            compiled = make_fx(program.make(functions_of(ops.np)))(*inputs).compile()
            np.testing.assert_array_equal(compiled(*inputs), in_numpy(*inputs))
            arguments = ", ".join(program.arguments)
            names = {"compiled": compiled, "by_hand": in_numpy, **program.arguments}
            yield Ratio(COMPILED, program.title, 1.05, f"compiled({arguments})", f"by_hand({arguments})", names)
