"""Ways to run an imperative program, and what NumPy and finite differences say that each must give.

`python -m tests.properties.imperative_ways FIRST COUNT [WAY ...]` runs the programs of COUNT seeds and prints, by way
and kind, the first program that differs.
"""

import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy

import pydispatch.numpy as face
from pydispatch import Tensor, compile, func
from pydispatch.tracing import make_fx
from pydispatch.tree import tree_map
from tests.properties.imperative import arguments_of, program_of, source_of

ALL = (0, 1, 2)
STEP = 1e-3
"""The step of finite differences, whose errors are of order STEP ** 4 after one extrapolation."""
DIRECTIONS = 2


class OnTensors:
    """Functions of a namespace, or methods of a generator, that make Tensors where they would make arrays."""

    def __init__(self, functions: Any) -> None:
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.functions, name)
        if hasattr(found, "at"):
            return found
        if name in ("linalg", "random"):
            return OnTensors(found)

        def made(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if name == "default_rng":
                return OnTensors(result)
            return tree_map(lambda leaf: Tensor(leaf) if isinstance(leaf, numpy.ndarray) else leaf, result)
        return made


def value(leaf: Any) -> Any:
    return numpy.asarray(leaf.detach().numpy() if isinstance(leaf, Tensor) else leaf)


class ReadFirst(numpy.ndarray):
    """Arrays whose assignments read all values before they write. NumPy 2.4 does not for vectors of other strides."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, numpy.array(value))


class Case:
    """The program of a seed, its arguments, and what is to be found."""

    def __init__(self, seed: int, source: str | None = None) -> None:
        self.seed = seed
        self.source = source_of(seed) if source is None else source
        self.program = program_of(self.source)
        self.args = arguments_of(seed)
        rng = numpy.random.default_rng([seed, 1])
        self.directions = [[rng.normal(size=x.shape) for x in self.args] for _ in range(DIRECTIONS)]
        self.batch_dims = tuple(int(rng.integers(x.ndim + 1)) for x in self.args)

    def copied(self) -> list[Any]:
        return [x.copy() for x in self.args]

    def on_arguments(self, *args: Any) -> list[Any]:
        """Return the loss, the arrays that the program returns, and its arguments as it leaves them."""
        loss, arrays = self.program(face, *args)
        return [loss, *arrays, *args]

    def on_copies(self, *args: Any) -> list[Any]:
        """Run in the same way on copies of the arguments."""
        return self.on_arguments(*map(face.copy, args))

    def loss(self, *args: Any) -> Any:
        return self.on_copies(*args)[0]

    def with_aux(self, *args: Any) -> tuple[Any, list[Any]]:
        loss, *others = self.on_copies(*args)
        return loss, others

    def slope(self, *args: Any, direction: int = 1) -> Any:
        """Return the slope of the loss in a direction, by reverse mode."""
        grads = func.grad(self.loss, argnums=ALL)(*args)
        return sum((face.sum(grad * d) for grad, d in zip(grads, self.directions[direction], strict=True)), 0.0)

    # --- oracles: NumPy, and finite differences of it ---

    def by_numpy(self, args: list[Any]) -> list[Any]:
        loss, arrays = self.program(numpy, *args)
        return [loss, *arrays, *args]

    @cached_property
    def expected(self) -> list[Any]:
        return self.by_numpy(self.copied())

    @cached_property
    def expected_scaled(self) -> list[Any]:
        """The same of the second example of batches."""
        return self.by_numpy([0.5 * x for x in self.args])

    @cached_property
    def is_comparable(self) -> bool:
        """Return whether the results are finite, and NumPy does not read what it has overwritten."""
        finite = all(numpy.isfinite(each).all() for each in (*self.expected, *self.expected_scaled))
        return finite and all(map(numpy.array_equal, self.expected, self.by_numpy([
            x.view(ReadFirst) for x in self.copied()])))

    def at(self, *steps: float) -> float:
        """Return the loss, some steps along the directions."""
        args = self.copied()
        for step, direction in zip(steps, self.directions, strict=False):
            args = [x + step * d for x, d in zip(args, direction, strict=True)]
        return float(self.program(numpy, *args)[0])

    @cached_property
    def gradient(self) -> list[Any]:
        """The gradient by `func.grad`, which is compared with `slopes`, and each other way with it."""
        return [value(grad) for grad in func.grad(self.loss, argnums=ALL)(*self.args)]

    @cached_property
    def slopes(self) -> list[float] | None:
        """The slopes in the directions, or None near a kink."""
        return extrapolated([lambda h: (self.at(h) - self.at(-h)) / (2 * h),
                             lambda h: (self.at(0.0, h) - self.at(0.0, -h)) / (2 * h)], 1e-6)

    @cached_property
    def curvature(self) -> list[float] | None:
        """The second derivative in the first direction and the second."""
        def difference(h: float) -> float:
            return (self.at(h, h) - self.at(h, -h) - self.at(-h, h) + self.at(-h, -h)) / (4 * h * h)
        return extrapolated([difference], 1e-4)

    def batch(self) -> list[Any]:
        return [numpy.stack([x, 0.5 * x], dim) for x, dim in zip(self.args, self.batch_dims, strict=True)]


def extrapolated(differences: list[Callable[[float], float]], tolerance: float) -> list[float] | None:
    """Return the limits of differences of even order for small steps, None if they depend on the step."""
    found = []
    for difference in differences:
        wide, middle, near = (difference(scale * STEP) for scale in (1.0, 0.5, 0.25))
        first, second = (4 * middle - wide) / 3, (4 * near - middle) / 3
        if not abs(first - second) <= 0.1 * tolerance * (1 + abs(second)):
            return None
        found.append(second)
    return found


# --- values: the loss, what is returned, and the arguments as the program leaves them ---------------------------------


def raw(case: Case) -> list[Any]:
    return case.on_arguments(*case.copied())


def tensors(case: Case) -> list[Any]:
    return case.on_arguments(*map(Tensor, case.copied()))


def traced(case: Case) -> list[Any]:
    args = case.copied()
    loss, arrays = make_fx(lambda *a: case.program(face, *a))(*case.copied())(*args)
    return [loss, *arrays, *args]


def functionalized(case: Case) -> list[Any]:
    args = case.copied()
    loss, arrays = func.functionalize(lambda *a: case.program(face, *a))(*args)
    return [loss, *arrays, *args]


def plan(case: Case) -> list[Any]:
    return compile(case.on_copies)(*case.args)


def python(case: Case) -> list[Any]:
    return compile(case.on_copies, backend="python")(*case.args)


def numba(case: Case) -> list[Any]:
    return compile(case.on_copies, backend="numba")(*case.args)


def forward(case: Case) -> list[Any]:
    args = case.copied()
    (loss, arrays), _ = func.jvp(lambda *a: case.program(face, *a), tuple(args), tuple(case.directions[0]))
    return [loss, *arrays, *args]


def reverse(case: Case) -> list[Any]:
    (loss, others), _ = func.value_and_grad(case.with_aux, argnums=ALL, has_aux=True)(*case.args)
    return [loss, *others]


def batched(case: Case) -> list[Any]:
    """Return both examples, whose arguments are written to."""
    batch = case.batch()
    loss, arrays = func.vmap(lambda *a: case.program(face, *a), case.batch_dims, randomness="same")(*batch)
    return [loss, *arrays, *(numpy.moveaxis(x, dim, 0) for x, dim in zip(batch, case.batch_dims, strict=True))]


VALUES = {way.__name__: way for way in (raw, tensors, traced, functionalized, plan, python, numba, forward, reverse)}


# --- gradients of the loss, or slopes in the directions ---------------------------------------------------------------


def tape(case: Case) -> tuple[Any, ...]:
    args = [Tensor(x, requires_grad=True) for x in case.copied()]
    loss = case.program(OnTensors(face), *map(face.copy, args))[0]
    if isinstance(loss, Tensor) and loss.requires_grad:
        loss.backward()
    return tuple(numpy.zeros(x.shape) if x.grad is None else x.grad for x in args)


def grad_of_compiled(case: Case) -> tuple[Any, ...]:
    return func.grad(compile(case.loss), argnums=ALL)(*case.args)


def compiled_grad(case: Case) -> tuple[Any, ...]:
    return compile(func.grad(case.loss, argnums=ALL))(*case.args)


def compiled_grad_in_python(case: Case) -> tuple[Any, ...]:
    return compile(func.grad(case.loss, argnums=ALL), backend="python")(*case.args)


def grad_of_functionalized(case: Case) -> tuple[Any, ...]:
    return func.grad(func.functionalize(case.loss), argnums=ALL)(*case.args)


def functionalized_grad(case: Case) -> tuple[Any, ...]:
    return func.functionalize(func.grad(case.loss, argnums=ALL))(*case.args)


def traced_grad(case: Case) -> tuple[Any, ...]:
    return make_fx(func.grad(case.loss, argnums=ALL))(*case.args)(*case.args)


def vjp(case: Case) -> tuple[Any, ...]:
    return func.vjp(case.loss, *case.args)[1](1.0)


def batched_grad(case: Case) -> tuple[Any, ...]:
    found = func.vmap(func.grad(case.loss, argnums=ALL), case.batch_dims, randomness="same")(*case.batch())
    return tuple(x[0] for x in found)


def grad_of_batched(case: Case) -> tuple[Any, ...]:
    losses = func.vmap(case.loss, case.batch_dims, randomness="same")
    found = func.grad(lambda *args: face.sum(losses(*args)), argnums=ALL)(*case.batch())
    return tuple(numpy.take(value(x), 0, dim) for x, dim in zip(found, case.batch_dims, strict=True))


GRADIENTS = {way.__name__: way for way in (
    tape, vjp, grad_of_compiled, compiled_grad, compiled_grad_in_python, grad_of_functionalized, functionalized_grad,
    traced_grad, batched_grad, grad_of_batched)}


def jvp(case: Case) -> list[Any]:
    return [func.jvp(case.loss, tuple(case.args), tuple(d))[1] for d in case.directions]


def linearized(case: Case) -> list[Any]:
    slope = func.linearize(case.loss, *case.args)[1]
    return [slope(*d) for d in case.directions]


def compiled_jvp(case: Case) -> list[Any]:
    slope = compile(lambda args, d: func.jvp(case.loss, args, d)[1])
    return [slope(tuple(case.args), tuple(d)) for d in case.directions]


SLOPES = {way.__name__: way for way in (jvp, linearized, compiled_jvp)}


def second_reverse(case: Case) -> Any:
    grads = func.grad(case.slope, argnums=ALL)(*case.args)
    return sum(value(x * d).sum() for x, d in zip(grads, case.directions[0], strict=True))


def forward_over_reverse(case: Case) -> Any:
    return func.jvp(case.slope, tuple(case.args), tuple(case.directions[0]))[1]


def reverse_over_forward(case: Case) -> Any:
    def slope(*args: Any) -> Any:
        return func.jvp(case.loss, args, tuple(case.directions[1]))[1]
    grads = func.grad(slope, argnums=ALL)(*case.args)
    return sum(value(x * d).sum() for x, d in zip(grads, case.directions[0], strict=True))


def compiled_second(case: Case) -> Any:
    def second(*args: Any) -> Any:
        return func.jvp(case.slope, args, tuple(case.directions[0]))[1]
    return compile(second)(*case.args)


CURVATURES = {way.__name__: way for way in (second_reverse, forward_over_reverse, reverse_over_forward,
                                            compiled_second)}


# --- comparisons ------------------------------------------------------------------------------------------------------


def check_values(found: Any, expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        one = value(one)
        assert one.shape == numpy.shape(other), f"shape {one.shape}, expected {numpy.shape(other)}"
        numpy.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


def check_batch(case: Case) -> None:
    """Compare with a loop over the examples, which are views of the batch: `ravel` copies those that have gaps."""
    found = batched(case)
    for i, examples in enumerate(zip(*map(numpy.moveaxis, case.batch(), case.batch_dims, (0, 0, 0)), strict=True)):
        check_values([value(x)[i] for x in found], case.by_numpy(list(examples)))


def check_near(found: list[Any], expected: list[float] | None, tolerance: float) -> None:
    if expected is not None:
        numpy.testing.assert_allclose([value(each) for each in found], expected, rtol=tolerance, atol=tolerance)


def check_gradient(case: Case) -> None:
    along = [sum((grad * d).sum() for grad, d in zip(case.gradient, direction, strict=True))
             for direction in case.directions]
    check_near(along, case.slopes, 1e-6)


CHECKS: dict[str, Callable[[Case], None]] = {
    **{name: lambda case, way=way: check_values(way(case), case.expected) for name, way in VALUES.items()},
    "batched": check_batch,
    "grad": check_gradient,
    **{name: lambda case, way=way: check_values(way(case), case.gradient) for name, way in GRADIENTS.items()},
    **{name: lambda case, way=way: check_near(way(case), case.slopes, 1e-6) for name, way in SLOPES.items()},
    **{name: lambda case, way=way: check_near([way(case)], case.curvature, 1e-4) for name, way in CURVATURES.items()},
}


def differences(case: Case, names: Iterable[str]) -> Iterator[tuple[str, Exception]]:
    """Yield the ways that find something else, or fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not case.is_comparable:
            return
        for name in names:
            try:
                CHECKS[name](case)
            except Exception as error:
                yield name, error


def main(first: int, count: int, *names: str) -> None:
    found: Counter[tuple[str, ...]] = Counter()
    comparable = smooth = 0
    for seed in range(first, first + count):
        case = Case(seed)
        for name, error in differences(case, names or CHECKS):
            kind = (name, type(error).__name__, " ".join(str(error).split())[:120])
            found[kind] += 1
            if found[kind] == 1:
                print(f"--- seed {seed}: {kind}", case.source[case.source.index("def program"):], sep="\n", flush=True)
                traceback.print_exception(error, limit=-6)
        comparable += case.is_comparable
        smooth += case.is_comparable and case.slopes is not None
    print(f"{count} programs, {comparable} comparable, {smooth} smooth, {found.total()} differences")
    for kind, times in found.most_common():
        print(times, *kind)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
