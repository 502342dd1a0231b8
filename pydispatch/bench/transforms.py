"""What transforms cost: against PyTorch's and HIPS autograd's, against batches by hand, against the tape, by level.

Each program is written once, for all libraries.
"""

from __future__ import annotations

import contextvars
import functools
import importlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pydispatch import DispatchMode, func
from pydispatch._core import Tensor, Wrapper
from pydispatch.bench.differentiators import functions_of
from pydispatch.bench.kinds import Case, Effort, Ratio, Row, import_or_note, matches
from pydispatch.bench.programs import Functions, add_up
from pydispatch.ops import ops
from pydispatch.timing import Loop, collecting, make_loop, time_in_rounds
from pydispatch.tree import tree_leaves

OTHERS = "Transforms of {}, theirs over ours"
BY_HAND = "Transforms: vmap, over the same batch written by hand in NumPy"
OVER_TAPE = "Transforms: func.grad, over Tensor.backward"
LEVEL = "Transforms: what a level adds to an operator"
LINE = "Transforms: how far that is from a line, over a level"
TRANSFORMS = ("grad", "vjp", "jvp", "vmap", "vmap(grad)", "hessian", "jacrev")
BATCH, LARGE_BATCH = 8, 2500        # the latter times four numbers are 10,000

Function = Callable[..., Any]
Make = Callable[[Functions], Function]
Arrays = tuple[np.ndarray, ...]
Call = Callable[[], Any]


# --- the programs ----------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What a transform is applied to: a function, its arguments, and which of them matter to the transform."""

    function: Make
    arguments: Arrays
    argnums: int | tuple[int, ...] = 0
    in_dims: tuple[int | None, ...] = (0,)


class Example(NamedTuple):
    """A program: a task for each transform, and the one of `vmap` for a batch of any length."""

    title: str
    tasks: dict[str, Task]
    batch: Callable[[int], Task]
    by_hand: Function           # the batch in NumPy


def summed(values: Make) -> Make:
    """The sum of a program's values."""
    def make(library: Functions) -> Function:
        compute = values(library)
        return lambda x: compute(x).sum()
    return make


def polynomial(library: Functions) -> Function:
    """7 operators; one more for the sum."""
    return lambda x: 3 * x ** 3 - 2 * x ** 2 + x - 1


STEPS, STEP = 100, 0.01


def euler(library: Functions) -> Function:
    """Explicit steps of x' = sin x - x / 2: 500 operators; one more for the sum."""
    sin = library.sin

    def program(x: Any) -> Any:
        for _ in range(STEPS):
            x = x + STEP * (sin(x) - 0.5 * x)
        return x
    return program


def network(library: Functions) -> Function:
    """A perceptron with a hidden layer: 5 operators."""
    tanh = library.tanh
    return lambda w1, b1, w2, b2, inputs: tanh(inputs @ w1 + b1) @ w2 + b2


def mean_squared_error(library: Functions) -> Function:
    """Of the perceptron: 8 operators."""
    compute = network(library)

    def program(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
        errors = compute(w1, b1, w2, b2, inputs) - targets
        return (errors * errors).mean()
    return program


def elementwise(title: str, values: Make, array: Callable[[tuple[int, ...]], np.ndarray]) -> Example:
    """A program of one array of 4 numbers: its sum where a scalar is differentiated, else its values."""
    x, scalar = array((4,)), summed(values)
    in_numpy = values(functions_of(np))

    def batch(length: int) -> Task:
        return Task(scalar, (array((length, 4)),))

    return Example(
        title,
        {name: Task(scalar, (x,)) for name in ("grad", "hessian")}
        | {name: Task(values, (x,)) for name in ("vjp", "jvp", "jacrev")}
        | {name: batch(BATCH) for name in ("vmap", "vmap(grad)")},
        batch, lambda xs: add_up(in_numpy(xs), 1),
    )


def perceptron(array: Callable[[tuple[int, ...]], np.ndarray]) -> Example:
    """4 inputs, 4 hidden neurons, one output; all parameters are differentiated by, or the hidden biases."""
    parameters = array((4, 4)), array((4,)), array((4, 1)), array((1,))
    inputs, targets = array((BATCH, 4)), array((BATCH, 1))
    every, shared = (0, 1, 2, 3), (None,) * 4
    of_network, of_loss = (*parameters, inputs), (*parameters, inputs, targets)

    def batch(length: int) -> Task:
        return Task(network, (*parameters, array((length, 4))), in_dims=(*shared, 0))

    return Example(
        "a perceptron, 8x4 inputs, 4 hidden",
        {
            "grad": Task(mean_squared_error, of_loss, every),
            "vjp": Task(network, of_network, every),
            "jvp": Task(network, of_network, every),
            "vmap": Task(network, of_network, in_dims=(*shared, 0)),
            "vmap(grad)": Task(mean_squared_error, of_loss, every, (*shared, 0, 0)),
            "hessian": Task(mean_squared_error, of_loss, 1),
            "jacrev": Task(network, of_network, 1),
        },
        batch, network(functions_of(np)),
    )


@functools.cache
def examples() -> tuple[Example, ...]:
    """The programs, with their arrays."""
    random = np.random.default_rng(0)
    return (
        elementwise("a polynomial of a 4-vector", polynomial, random.standard_normal),
        perceptron(random.standard_normal),
        elementwise("100 explicit Euler steps, 4-vector", euler, random.standard_normal),
    )


# --- libraries -------------------------------------------------------------------------------------------------------


class Library(NamedTuple):
    """A library's transforms: the module that it needs, and how a call of one, without arguments, is made."""

    module: str
    bound: float
    set_up: Callable[[Any], Callable[[str, Task], Call]]


def directions(transform: str, task: Task) -> Arrays:
    """Ones: the cotangent of the value, or tangents of the parameters."""
    if transform == "vjp":
        return (np.ones_like(task.function(functions_of(np))(*task.arguments)),)
    return tuple(np.ones_like(array) for array in task.arguments[:number_of_parameters(task)])


def number_of_parameters(task: Task) -> int:
    """How many arguments are differentiated by; they come first."""
    return len(task.argnums) if isinstance(task.argnums, tuple) else 1


def of_parameters(function: Function, data: Sequence[Any]) -> Function:
    """A function of the parameters alone."""
    return (lambda *parameters: function(*parameters, *data)) if data else function


def by_pytorchs_names(api: Any, namespace: Any, to_array: Callable[[Any], Any]) -> Callable[[str, Task], Call]:
    """Calls of a library whose transforms have the names and parameters that PyTorch's and ours share."""
    def make(transform: str, task: Task) -> Call:
        function = task.function(functions_of(namespace))
        arguments = tuple(map(to_array, task.arguments))
        parameters, data = arguments[:number_of_parameters(task)], arguments[number_of_parameters(task):]
        if transform in ("vjp", "jvp"):
            vectors = tuple(map(to_array, directions(transform, task)))
            inner = of_parameters(function, data)
            if transform == "vjp":
                return lambda: api.vjp(inner, *parameters)[1](*vectors)
            return lambda: api.jvp(inner, parameters, vectors)
        transformed = {
            "grad": lambda: api.grad(function, task.argnums),
            "vmap": lambda: api.vmap(function, task.in_dims),
            "vmap(grad)": lambda: api.vmap(api.grad(function, task.argnums), task.in_dims),
            "hessian": lambda: api.hessian(function, task.argnums),
            "jacrev": lambda: api.jacrev(function, task.argnums),
        }[transform]()
        return lambda: transformed(*arguments)
    return make


def ours(_: Any = None) -> Callable[[str, Task], Call]:
    """On raw arrays."""
    return by_pytorchs_names(func, ops.np, lambda array: array)


def pytorch(api: Any) -> Callable[[str, Task], Call]:
    """`torch.func`, on one thread."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return by_pytorchs_names(api, torch, torch.tensor)


def hips(autograd: Any) -> Callable[[str, Task], Call]:
    """The package `autograd`; it has no `vmap`: a list of the results for each example, not stacked."""
    numpy = importlib.import_module("autograd.numpy")

    def make(transform: str, task: Task) -> Call:
        function, arguments, argnums = task.function(functions_of(numpy)), task.arguments, task.argnums
        if transform in ("vjp", "jvp"):
            vectors = directions(transform, task)
            if transform == "vjp":
                return lambda: autograd.make_vjp(function, argnums)(*arguments)[0](vectors[0])
            tangent = vectors if isinstance(argnums, tuple) else vectors[0]
            return lambda: autograd.make_jvp(function, argnums)(*arguments)(tangent)
        if transform.startswith("vmap"):
            of_one = autograd.grad(function, argnums) if "grad" in transform else function
            each = examples_of(task)
            return lambda: [of_one(*one) for one in each]
        transformed = {"grad": autograd.grad, "hessian": autograd.hessian, "jacrev": autograd.jacobian}[transform]
        return functools.partial(transformed(function, argnums), *arguments)
    return make


def examples_of(task: Task) -> list[Arrays]:
    """The arguments of a batch, for each example."""
    length = next(len(array) for array, axis in zip(task.arguments, task.in_dims, strict=True) if axis == 0)
    return [
        tuple(array if axis is None else array[i] for array, axis in zip(task.arguments, task.in_dims, strict=True))
        for i in range(length)
    ]


THEIRS = {
    "torch.func": Library("torch.func", 5, pytorch),
    "HIPS": Library("autograd", 5, hips),
}


def arrays_in(result: Any) -> list[np.ndarray]:
    """The arrays of a result, in order; of a list of results for each example, stacked."""
    if isinstance(result, list):
        return [np.stack(arrays) for arrays in zip(*map(arrays_in, result), strict=True)]
    return [np.asarray(leaf) for leaf in tree_leaves(result)]


def check(call: Call, expected: Call, title: str) -> None:
    """AssertionError where two calls do not give the same values."""
    for theirs, ours in zip(arrays_in(call()), arrays_in(expected()), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-10, strict=True, err_msg=title)


# --- against other libraries, batches by hand, the tape --------------------------------------------------------------


@dataclass(frozen=True)
class SameValues(Ratio):
    """The time of one call over that of another, once both give the same; with the garbage collector on."""

    make_call: Callable[[], Call] = field(kw_only=True, repr=False)      # what `call` and `over` call
    make_over: Callable[[], Call] = field(kw_only=True, repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        call, over = self.make_call(), self.make_over()
        check(call, over, f"{self.group}, {self.name}")
        self.names.update({self.call.partition("(")[0]: call, self.over.partition("(")[0]: over})
        with collecting():
            return super().measure(effort)


def library_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[SameValues]:
    """Every transform of every program, by every other library that is installed."""
    for example in examples():
        group = OTHERS.format(example.title)
        for transform in TRANSFORMS:
            for library, (module_name, bound, set_up) in THEIRS.items():
                name = f"{transform}, {library}"
                module = import_or_note(module_name, library, left_out) if matches(group, name, pattern) else None
                if module is not None:
                    yield SameValues(
                        group, name, bound, "theirs()", "ours()", {}, at_least=True,
                        make_call=functools.partial(set_up(module), transform, example.tasks[transform]),
                        make_over=functools.partial(ours(), transform, example.tasks[transform]),
                    )


def batch_cases() -> Iterator[SameValues]:
    """`vmap` of every program over a small batch and a large one."""
    for length, bound in ((BATCH, 3.0), (LARGE_BATCH, 1.2)):
        for example in examples():
            task = example.batch(length)
            yield SameValues(
                BY_HAND, f"{example.title.partition(',')[0]}, batch of {length:,}", bound, "vmap()", "by_hand()", {},
                make_call=functools.partial(ours(), "vmap", task),
                make_over=functools.partial(functools.partial, example.by_hand, *task.arguments),
            )


def tape_cases() -> Iterator[SameValues]:
    """The gradients of every program."""
    for example in examples():
        task = example.tasks["grad"]
        yield SameValues(
            OVER_TAPE, example.title.partition(",")[0], 1.3, "grad()", "tape()", {},
            make_call=functools.partial(ours(), "grad", task), make_over=functools.partial(by_tape, task),
        )


def by_tape(task: Task) -> Call:
    """The gradients by the method `backward` of the value."""
    compute, count = task.function(functions_of(ops.np)), number_of_parameters(task)
    parameters = [Tensor(array, requires_grad=True) for array in task.arguments[:count]]
    arguments = (*parameters, *map(Tensor, task.arguments[count:]))

    def gradients() -> Any:
        for leaf in parameters:
            leaf.grad = None
        compute(*arguments).backward()
        return tuple(leaf.grad for leaf in parameters)
    return gradients


# --- by level --------------------------------------------------------------------------------------------------------

DEPTHS = (1, 2, 3, 4)
LENGTH = 2      # of the batch of each level of vmap
WEIGHTS = np.linspace(-1.0, 1.0, 16).reshape(4, 4)
OPERATORS: dict[str, tuple[str, dict[str, Any], float]] = {
    "sin": ("op(x)", {"op": ops.np.sin}, 0.4),
    "sum": ("op(x)", {"op": ops.np.sum}, 1.0),
    "matmul": ("op(x, w)", {"op": ops.np.matmul, "w": WEIGHTS}, 1.0),
    "reshape": ("op(x, shape)", {"op": ops.np.reshape, "shape": (2, 2)}, 1.0),
    "getitem": ("op(x, 1)", {"op": ops.np.getitem}, 1.0),
}
LEVELS = ("vmap", "grad", "jvp")
LINE_BOUND = 0.25

Manager = AbstractContextManager[Any]     # is entered for a level


def nested(transform: str, body: Function, managers: Sequence[Manager]) -> Call:
    """A call of `body` on 4 numbers at so many levels of a transform, each within its manager, outermost first.

    The body returns what it is given.
    """
    apply = {"vmap": by_vmap, "grad": by_grad, "jvp": by_jvp}[transform]
    for within in reversed(managers):
        body = apply(body, within)
    x = np.linspace(0.5, 1.5, 4)
    if transform == "vmap":
        x = np.broadcast_to(x, (*(LENGTH,) * len(managers), 4)).copy()
    return lambda: body(x)


def by_vmap(body: Function, within: Manager) -> Function:
    """One level more."""
    mapped = func.vmap(body)

    def call(x: Any) -> Any:
        with within:
            return mapped(x)
    return call


def by_grad(body: Function, within: Manager) -> Function:
    """One level more."""
    gradient = func.grad(lambda x: (body(x) * x).sum())

    def call(x: Any) -> Any:
        with within:
            return gradient(x)
    return call


def by_jvp(body: Function, within: Manager) -> Function:
    """One level more."""
    def call(x: Any) -> Any:
        with within:
            return func.jvp(body, (x,), (np.ones(4),))[0]
    return call


class Noting(DispatchMode):
    """Notes the calls that reach it."""

    def __init__(self) -> None:
        self.calls: list[Noted] = []

    def __pydispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, and pass it on."""
        self.calls.append(Noted(func, args, kwargs or {}))
        return func(*args, **kwargs or {})


class Noted(NamedTuple):
    """A call of an operator."""

    operator: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def has_wrappers(self) -> bool:
        """Is there a level that processes it?"""
        return any(isinstance(leaf, Wrapper) for leaf in tree_leaves((self.args, self.kwargs)))


class AtDepth(NamedTuple):
    """An operator at so many levels."""

    loop: Loop              # calls it at the innermost level
    arrays_only: Loop       # the calls of arrays that remain of it, one after the other
    processed: int          # how many calls the levels process for it


def at_depths(
    transform: str, operator: str, depths: Sequence[int], use: Callable[[Sequence[AtDepth]], None],
    shallower: Sequence[AtDepth] = (),
) -> None:
    """Hands over the operator at each depth. Their loops run while `use` does, each among its own levels alone.

    So what it takes to enter levels, and to leave them, is not timed.
    """
    if not depths:
        use(shallower)
        return
    depth, *deeper = depths
    text, names, _ = OPERATORS[operator]
    turn: Any = make_loop(text, {"x": None, **names})      # of n and x
    remaining, *passed_on = noted_calls(transform, functools.partial(turn, 1), depth)
    processed = 1 + sum(call.has_wrappers for calls in passed_on for call in calls)

    def body(x: Any) -> Any:
        levels = contextvars.copy_context()
        point = AtDepth(lambda number: levels.run(turn, number, x), straight_line(remaining), processed)
        contextvars.Context().run(at_depths, transform, operator, deeper, use, (*shallower, point))
        return x

    nested(transform, body, [nullcontext()] * depth)()


def noted_calls(transform: str, call: Callable[[Any], Any], depth: int) -> list[list[Noted]]:
    """The calls that each level makes for one at the innermost, those of the outermost level first."""
    modes = [Noting() for _ in range(depth)]
    result = []

    def body(x: Any) -> Any:
        for mode in modes:
            mode.calls.clear()
        call(x)
        result.extend([mode.calls.copy() for mode in modes])
        return x

    nested(transform, body, modes)()
    return result


def straight_line(calls: Sequence[Noted]) -> Loop:
    """A loop of these calls."""
    names: dict[str, Any] = {}

    def name_of(value: Any) -> str:
        name = f"v{len(names)}"
        names[name] = value
        return name

    lines = []
    for call in calls:
        arguments = [*map(name_of, call.args), *(f"{key}={name_of(value)}" for key, value in call.kwargs.items())]
        lines.append(f"{name_of(call.operator)}({', '.join(arguments)})")
    return make_loop("; ".join(lines), names)


@dataclass(frozen=True)
class PerLevel(Case):
    """Microseconds that a level adds to an operator beyond the calls of arrays, for each call that it processes.

    The slope of the line through the origin that fits depths 1 to 4 best; the times are those of these.
    """

    transform: str = field(repr=False)
    operator: str = field(repr=False)

    def added(self, effort: Effort) -> tuple[list[int], list[list[float]]]:
        """The numbers of processed calls, and for each round the nanoseconds added, at each depth."""
        processed: list[int] = []
        rounds: list[list[float]] = []

        def use(points: Sequence[AtDepth]) -> None:
            loops = [loop for point in points for loop in (point.loop, point.arrays_only)]
            processed.extend(point.processed for point in points)
            rounds.extend(
                [call - rest for call, rest in zip(times[::2], times[1::2], strict=True)]
                for times in time_in_rounds(loops, effort.rounds, effort.seconds)
            )

        at_depths(self.transform, self.operator, DEPTHS, use)
        return processed, rounds

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        processed, rounds = self.added(effort)
        return self.row([slope(processed, added) / 1000 for added in rounds], times_of(processed, rounds), unit="µs")


@dataclass(frozen=True)
class OffLine(PerLevel):
    """How far what depths 1 to 4 add is from a line, at most, over a fourth of what depth 4 adds."""

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        processed, rounds = self.added(effort)
        times = times_of(processed, rounds)
        *_, deepest = medians = [*times.values()]
        steepness, start = statistics.linear_regression(processed, medians)
        worst = max(abs(time - start - steepness * count) for count, time in zip(processed, medians, strict=True))
        return self.row([worst / (deepest / len(DEPTHS))], times)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of the line through the origin with the least squares."""
    return sum(x * y for x, y in zip(xs, ys, strict=True)) / sum(x * x for x in xs)


def times_of(processed: Sequence[int], rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """The median at each depth."""
    medians = map(statistics.median, zip(*rounds, strict=True))
    return {
        f"depth {depth}, {count} processed": time
        for depth, count, time in zip(DEPTHS, processed, medians, strict=True)
    }


def level_cases() -> Iterator[PerLevel]:
    """What a level adds to each kind of operator, and how that grows with depth."""
    for transform in LEVELS:
        for operator, (_, _, bound) in OPERATORS.items():
            yield PerLevel(LEVEL, f"{transform}, {operator}", bound, transform, operator)
    for transform in LEVELS:
        for operator in OPERATORS:
            yield OffLine(LINE, f"{transform}, {operator}", LINE_BOUND, transform, operator)


def transform_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Case]:
    """All of them."""
    yield from library_cases(left_out, pattern)
    yield from batch_cases()
    yield from tape_cases()
    yield from level_cases()
