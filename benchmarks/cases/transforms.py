"""The cost of transforms: against PyTorch's and HIPS autograd's, against batches by hand, against the tape.

Each program is written once, for all libraries.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases.differentiators import functions_of
from benchmarks.cases.kinds import Effort, Ratio, Row, import_or_note, matches
from benchmarks.cases.programs import ProgramFunctions, add_up
from pydispatch import func
from pydispatch._core import Tensor
from pydispatch.cli.timing import collecting
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

OTHERS = "Transforms of {}, theirs over ours"
BY_HAND = "Transforms: vmap, over the same batch written by hand in NumPy"
OVER_TAPE = "Transforms: func.grad, over Tensor.backward"
TRANSFORMS = ("grad", "vjp", "jvp", "vmap", "vmap(grad)", "hessian", "jacrev")
BATCH, LARGE_BATCH = 8, 2500        # the latter times four numbers are 10,000

Function = Callable[..., Any]
Make = Callable[[ProgramFunctions], Function]
Arrays = tuple[np.ndarray, ...]
Call = Callable[[], Any]


# --- the programs ----------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A task for a transform: a function, its arguments, and which of them the transform works on."""

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
    """Return the sum of a program's values."""
    def make(library: ProgramFunctions) -> Function:
        compute = values(library)
        return lambda x: compute(x).sum()
    return make


def polynomial(library: ProgramFunctions) -> Function:
    """7 operators, and one more for the sum."""
    return lambda x: 3 * x ** 3 - 2 * x ** 2 + x - 1


STEPS, STEP = 100, 0.01


def euler(library: ProgramFunctions) -> Function:
    """Make explicit steps of x' = sin x - x / 2: 500 operators, and one more for the sum."""
    sin = library.sin

    def program(x: Any) -> Any:
        for _ in range(STEPS):
            x = x + STEP * (sin(x) - 0.5 * x)
        return x
    return program


def network(library: ProgramFunctions) -> Function:
    """Compute a perceptron with a hidden layer: 5 operators."""
    tanh = library.tanh
    return lambda w1, b1, w2, b2, inputs: tanh(inputs @ w1 + b1) @ w2 + b2


def mean_squared_error(library: ProgramFunctions) -> Function:
    """Compute the mean squared error of the perceptron: 8 operators."""
    compute = network(library)

    def program(w1: Any, b1: Any, w2: Any, b2: Any, inputs: Any, targets: Any) -> Any:
        errors = compute(w1, b1, w2, b2, inputs) - targets
        return (errors * errors).mean()
    return program


def elementwise(title: str, values: Make, array: Callable[[tuple[int, ...]], np.ndarray]) -> Example:
    """Return a program of one array of 4 numbers: its sum where a scalar is differentiated, else its values."""
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
    """4 inputs, 4 hidden neurons, one output. The derivative is by all parameters, or by the hidden biases."""
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
    """Return the programs, with their arrays."""
    random = np.random.default_rng(0)
    return (
        elementwise("a polynomial of a 4-vector", polynomial, random.standard_normal),
        perceptron(random.standard_normal),
        elementwise("100 explicit Euler steps, 4-vector", euler, random.standard_normal),
    )


# --- libraries -------------------------------------------------------------------------------------------------------


class ArrayLibrary(NamedTuple):
    """The transforms of a library: its module, and a function that makes a call of one, without arguments."""

    module: str
    bound: float
    set_up: Callable[[Any], Callable[[str, Task], Call]]


def directions(transform: str, task: Task) -> Arrays:
    """Return ones: the cotangent of the value, or tangents of the parameters."""
    if transform == "vjp":
        return (np.ones_like(task.function(functions_of(np))(*task.arguments)),)
    return tuple(np.ones_like(array) for array in task.arguments[:number_of_parameters(task)])


def number_of_parameters(task: Task) -> int:
    """Return the number of arguments that are differentiated with respect to. They come first."""
    return len(task.argnums) if isinstance(task.argnums, tuple) else 1


def of_parameters(function: Function, data: Sequence[Any]) -> Function:
    """Return the function of the parameters only."""
    return (lambda *parameters: function(*parameters, *data)) if data else function


def by_pytorchs_names(api: Any, namespace: Any, to_array: Callable[[Any], Any]) -> Callable[[str, Task], Call]:
    """Return calls of a library whose transforms have the names and parameters that PyTorch's and ours share."""
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
    """Return the calls of our transforms, on raw arrays."""
    return by_pytorchs_names(func, ops.np, lambda array: array)


def pytorch(api: Any) -> Callable[[str, Task], Call]:
    """Return the calls of `torch.func`, on one thread."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return by_pytorchs_names(api, torch, torch.tensor)


def hips(autograd: Any) -> Callable[[str, Task], Call]:
    """Return the calls of the package `autograd`. Without `vmap`: a list of the results for each example, not stacked.
    """
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
    """Return the arguments of a batch, for each example."""
    length = next(len(array) for array, axis in zip(task.arguments, task.in_dims, strict=True) if axis == 0)
    return [
        tuple(array if axis is None else array[i] for array, axis in zip(task.arguments, task.in_dims, strict=True))
        for i in range(length)
    ]


THEIRS = {
    "torch.func": ArrayLibrary("torch.func", 5, pytorch),
    "HIPS": ArrayLibrary("autograd", 5, hips),
}


def arrays_in(result: Any) -> list[np.ndarray]:
    """Return the arrays of a result, in order. A list of results for each example is stacked."""
    if isinstance(result, list):
        return [np.stack(arrays) for arrays in zip(*map(arrays_in, result), strict=True)]
    return [np.asarray(leaf) for leaf in tree_leaves(result)]


def check(call: Call, expected: Call, title: str) -> None:
    """Raise AssertionError if two calls do not give the same values."""
    for theirs, ours in zip(arrays_in(call()), arrays_in(expected()), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-10, strict=True, err_msg=title)


# --- against other libraries, batches by hand, the tape --------------------------------------------------------------


@dataclass(frozen=True)
class SameValues(Ratio):
    """The time of one call over that of another, with garbage collection. Both are checked to agree."""

    make_call: Callable[[], Call] = field(kw_only=True, repr=False)      # the functions that `call` and `over` call
    make_over: Callable[[], Call] = field(kw_only=True, repr=False)

    def measure(self, effort: Effort) -> Row:
        """Run it."""
        call, over = self.make_call(), self.make_over()
        check(call, over, f"{self.group}, {self.name}")
        self.names.update({self.call.partition("(")[0]: call, self.over.partition("(")[0]: over})
        with collecting():
            return super().measure(effort)


def library_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[SameValues]:
    """Yield every transform of every program, by every other library that is installed."""
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
    """Yield `vmap` of every program over a small batch and a large one."""
    for length, bound in ((BATCH, 3.0), (LARGE_BATCH, 1.2)):
        for example in examples():
            task = example.batch(length)
            yield SameValues(
                BY_HAND, f"{example.title.partition(',')[0]}, batch of {length:,}", bound, "vmap()", "by_hand()", {},
                make_call=functools.partial(ours(), "vmap", task),
                make_over=functools.partial(functools.partial, example.by_hand, *task.arguments),
            )


def tape_cases() -> Iterator[SameValues]:
    """Yield the gradients of every program."""
    for example in examples():
        task = example.tasks["grad"]
        yield SameValues(
            OVER_TAPE, example.title.partition(",")[0], 1.3, "grad()", "tape()", {},
            make_call=functools.partial(ours(), "grad", task), make_over=functools.partial(by_tape, task),
        )


def by_tape(task: Task) -> Call:
    """Return the gradients by the method `backward` of the value."""
    compute, count = task.function(functions_of(ops.np)), number_of_parameters(task)
    parameters = [Tensor(array, requires_grad=True) for array in task.arguments[:count]]
    arguments = (*parameters, *map(Tensor, task.arguments[count:]))

    def gradients() -> Any:
        for leaf in parameters:
            leaf.grad = None
        compute(*arguments).backward()
        return tuple(leaf.grad for leaf in parameters)
    return gradients


def transform_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[SameValues]:
    yield from library_cases(left_out, pattern)
    yield from batch_cases()
    yield from tape_cases()
