"""Operators with one mistake each, and the checks of opcheck that find it, and some that have none."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pydispatch import OpOverload, Tensor, below_autograd, ops
from pydispatch._core import bottom_array
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._registry.operators import find_or_raise
from pydispatch._registry.registrations import add_derivative
from pydispatch._sites import caller_site
from pydispatch.backends.meta import MetaArray
from pydispatch.library import Library, register_vmap

calls = itertools.count()


class Formula(CustomDerivative):
    """A rule of plain functions: `backward(grads, *values)` and `jvp(tangents, *values)`, one entry per argument."""

    name = "FormulaBackward"

    def __init__(self, backward: Callable[..., Any], jvp: Callable[..., Any] | None = None) -> None:
        self.of_gradients = backward
        self.of_tangents = jvp

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*[value for value in values if hasattr(value, "dtype")])

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> Any:
        return self.of_gradients(*grads, *ctx.saved_tensors)

    def jvp(self, ctx: Any, tangents: tuple[Any, ...]) -> Any:
        if self.of_tangents is None:
            return super().jvp(ctx, tangents)
        return self.of_tangents(*tangents, *ctx.saved_tensors)


@dataclass
class Operator:
    """A registration, a sample call, and the checks that must fail, with a part of their message."""

    schema: str
    kernels: dict[str, Callable[..., Any]]
    args: Callable[[], tuple[Any, ...]]
    fails: dict[str, str] = field(default_factory=dict)
    formula: Formula | None = None
    tags: tuple[str, ...] = ()
    vmap: Callable[..., Any] | None = None

    def define(self, library: Library) -> OpOverload:
        library.define(self.schema, tags=self.tags)
        name = f"{library.namespace}::{self.schema.partition('(')[0]}"
        for key, kernel in self.kernels.items():
            library.impl(name, kernel, key)
        op = find_or_raise(name)
        if self.vmap is not None:
            register_vmap(op, self.vmap)
        if self.formula is not None:
            library.handles.append(add_derivative(op.name, self.formula, caller_site()))
        return op


def array() -> np.ndarray:
    return np.array([[0.5, -1.25], [2.0, 0.75]])


def tracked() -> Tensor:
    return Tensor(array(), requires_grad=True)


def like(*arrays: MetaArray) -> MetaArray:
    return MetaArray(arrays[0].shape, arrays[0].dtype)


def square(x: np.ndarray) -> np.ndarray:
    return x * x


SQUARE = Formula(lambda g, x: (g * x * 2.0,), lambda t, x: t * x * 2.0)
IDENTITY = Formula(lambda g, x: (g,), lambda t, x: t * 1.0)


def in_place(x: np.ndarray) -> np.ndarray:
    x *= 2
    return x.copy()


def through_a_view(x: np.ndarray) -> np.ndarray:
    x.view(np.int64).reshape(-1)[1] = 7
    return x.copy()


def beside_the_view(x: np.ndarray) -> np.ndarray:
    memory = x
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    kept = x.copy()
    memory[...] = 1
    x[...] = kept
    return kept


def first_of_list(xs: tuple[np.ndarray, ...]) -> np.ndarray:
    xs[0][1] = 0
    return xs[0] + xs[1]


def halves_of_one_buffer(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    buffer = np.concatenate([x, x])
    return buffer[: len(x)], buffer[len(x) :]


BUFFER = np.zeros((2, 2))


def into_a_cache(x: np.ndarray) -> np.ndarray:
    np.multiply(x, x, out=BUFFER)
    return BUFFER


def builds_a_graph(x: np.ndarray) -> Tensor:
    return Tensor(x, requires_grad=True) * 2.0


def detached(x: Tensor) -> Any:
    with below_autograd():
        return ops.np.multiply(x, x)


def gradient_in_numpy(g: Tensor, x: Tensor) -> tuple[Tensor]:
    return (Tensor(2 * g.detach().numpy() * x.detach().numpy()),)


def unary(cpu: Callable[..., Any], meta: Callable[..., Any] | None = like, *, args: Any = lambda: (array(),),
          formula: Formula | None = None, tags: tuple[str, ...] = (), **fails: str) -> Operator:
    kernels = {"CPU": cpu} | ({} if meta is None else {"Meta": meta})
    return Operator("f(Tensor x) -> Tensor", kernels, args, fails, formula, tags)


def with_vmap(rule: Callable[..., Any], **fails: str) -> Operator:
    """Return the square of an array, with this batching rule."""
    return Operator("f(Tensor x) -> Tensor", {"CPU": square, "Meta": like}, lambda: (tracked(),), fails, SQUARE,
                    vmap=rule)


DIFFERS = r"f: vmap, in_dims=\(0,\): result 0 is .* for the examples one by one"

WRONG = {
    # 119
    "writes to its argument": unary(in_place, test_schema="'x' is not defined as mutable but was mutated"),
    "writes through a view": unary(through_a_view, test_schema="'x' is not defined as mutable but was mutated"),
    "writes beside a view": unary(
        beside_the_view, args=lambda: (np.arange(8.0)[::2],),
        test_schema="'x' is not defined as mutable but was mutated", test_transforms=DIFFERS),
    "writes to an element of a list": Operator(
        "f(Tensor[] xs) -> Tensor", {"CPU": first_of_list, "Meta": lambda xs: like(*xs)},
        lambda: ((array(), array()),), {"test_schema": "'xs' is not defined as mutable but was mutated"}),
    "does not write": Operator(
        "f(Tensor(a!) x, Tensor y) -> ()", {"CPU": lambda x, y: None, "Meta": lambda x, y: None},
        lambda: (array(), array()), {"test_schema": "'x' is defined as mutable but was not mutated"}),
    # 120
    "returns its argument": unary(
        lambda x: x, test_schema="result 0 is not defined to alias output but was aliasing argument 'x'"),
    "returns a view": unary(
        lambda x: x.T, test_schema="result 0 is not defined to alias output but was aliasing argument 'x'"),
    "returns a view of no elements": unary(
        lambda x: x[:0], lambda x: MetaArray((0, 2), x.dtype), test_schema="aliasing argument 'x'"),
    "returns the memory by another way": unary(
        lambda x: np.frombuffer(memoryview(x).cast("B"), x.dtype), lambda x: MetaArray((4,), x.dtype),
        test_schema="aliasing argument 'x'", test_transforms="C-contiguous"),
    "returns its argument in a list": Operator(
        "f(Tensor x) -> Tensor[]", {"CPU": lambda x: [x + 1, x], "Meta": lambda x: [like(x), like(x)]},
        lambda: (array(),), {"test_schema": "result 0 is not defined to alias output but was aliasing argument 'x'"}),
    "aliases an argument other than it says": Operator(
        "f(Tensor(a) x, Tensor y) -> Tensor(a)", {"CPU": lambda x, y: y, "Meta": lambda x, y: like(y)},
        lambda: (array(), array()), {"test_schema": "aliasing argument 'y'"}),
    "returns one array twice": Operator(
        "f(Tensor x) -> (Tensor, Tensor)", {"CPU": lambda x: (x + 1,) * 2, "Meta": lambda x: (like(x), like(x))},
        lambda: (array(),), {"test_schema": "results 0 and 1 are aliasing each other"}),
    "returns halves of one buffer": Operator(
        "f(Tensor x) -> (Tensor, Tensor)", {"CPU": halves_of_one_buffer, "Meta": lambda x: (like(x), like(x))},
        lambda: (array(),), {"test_schema": "results 0 and 1 are aliasing each other"}),
    "returns pieces of one buffer": Operator(
        "f(Tensor x) -> Tensor[]",
        {"CPU": lambda x: np.split(x + 1, 2), "Meta": lambda x: [MetaArray((1, 2)) for _ in range(2)]},
        lambda: (array(),), {"test_schema": "two arrays of result 0 are aliasing each other"}),
    # 123
    "returns what it wrote to": Operator(
        "f(Tensor(a!) x) -> Tensor", {"CPU": lambda x: np.add(x, 1, out=x), "Meta": like}, lambda: (array(),),
        {"test_schema": "result 0 is not defined to alias output but was aliasing argument 'x'"}),
    # 126
    "counts its calls": unary(
        lambda x: x + next(calls), test_determinism="result 0 differs between calls with equal arguments",
        test_transforms=DIFFERS),
    "draws random numbers": unary(
        lambda x: x + np.random.default_rng().random(x.shape), test_determinism="result 0 differs between calls",
        test_transforms=DIFFERS),
    "writes what it drew": Operator(
        "f(Tensor(a!) x) -> ()", {"CPU": lambda x: x.__setitem__(0, next(calls)), "Meta": lambda x: None},
        lambda: (array(),), {"test_determinism": "the content of argument 'x' after the call differs between calls",
                             "test_transforms": DIFFERS}),
    "returns a cached array": unary(into_a_cache, test_determinism="two calls returned the same memory"),
    # 127
    "no formula": unary(
        square, args=lambda: (tracked(),), **dict.fromkeys(
            ("test_autograd_registration", "test_gradcheck", "test_gradgradcheck"),
            "Autograd has not been implemented")),
    # 124, 125
    "builds a graph in a backend kernel": Operator(
        "f(Tensor x) -> Tensor", {"CPU": builds_a_graph, "Meta": like}, lambda: (tracked(),),
        {"test_autograd_registration": "is incorrectly registered: it builds a graph"}, Formula(
            lambda g, x: (g * 2.0,), lambda t, x: t * 2.0)),
    "builds a graph in an explicit composite": Operator(
        "f(Tensor x) -> Tensor", {"CompositeExplicitAutograd": builds_a_graph, "Meta": like}, lambda: (tracked(),),
        {"test_autograd_registration": "is incorrectly registered: it builds a graph"}, Formula(
            lambda g, x: (g * 2.0,), lambda t, x: t * 2.0)),
    "a formula under an autograd kernel": Operator(
        "f(Tensor x) -> Tensor",
        {"CPU": square, "Meta": like, "Autograd": lambda x: ops.np.multiply(x, x)},
        lambda: (array(),), {"test_autograd_registration": "its derivative, registered at .* is never used"}, SQUARE),
    # 121, 122
    "no fake": unary(square, None, test_faketensor="no kernel"),
    "fake of another shape": unary(
        square, lambda x: MetaArray((4,), x.dtype), test_faketensor=r"has shape \(4,\), expected \(2, 2\)"),
    "fake of another dtype": unary(
        square, lambda x: MetaArray(x.shape, np.float32), test_faketensor="has dtype float32, expected float64"),
    "fake of fewer results": Operator(
        "f(Tensor x) -> Tensor[]", {"CPU": lambda x: [x + 1, x + 2], "Meta": lambda x: [like(x)]}, lambda: (array(),),
        {"test_faketensor": "result 0 holds 1 values, expected 2"}),
    "fake that is a view": unary(square, lambda x: x, test_faketensor="result 0 is argument 'x' or a view of it"),
    "fake that reads data": unary(
        square, lambda x: MetaArray(x.shape, np.asarray(x).dtype),
        test_faketensor="a MetaArray has a shape and a dtype, but no data"),
    # the derivatives
    "wrong gradient": unary(
        square, args=lambda: (tracked(),), formula=Formula(lambda g, x: (g * x,)),
        test_gradcheck=r"gradcheck: t\d+::f: output 0 with respect to input 0 \(argument x\): element"),
    "gradient of one argument is missing": Operator(
        "f(Tensor x, Tensor y) -> Tensor", {"CPU": np.multiply, "Meta": like}, lambda: (tracked(), tracked()),
        {"test_gradcheck": r"\(argument y\): .*: analytic 0, numerical",
         "test_transforms": r"grad\(grad\): result 0 is .* by finite differences"},
        Formula(lambda g, x, y: (g * y, None))),
    "gradient of an element of a list": Operator(
        "f(Tensor[] xs) -> Tensor", {"CPU": lambda xs: xs[0] - xs[1], "Meta": lambda xs: like(*xs)},
        lambda: ([tracked(), tracked()],),
        {"test_gradcheck": r"input 1 \(argument xs\[1\]\): .*: analytic 1, numerical -1"},
        Formula(lambda g: ((g, g),))),
    "backward is not deterministic": unary(
        square, args=lambda: (tracked(),), formula=Formula(lambda g, x: (g * x * (2 + 1e-8 * next(calls)),)),
        test_gradcheck="backward is not deterministic", test_gradgradcheck=": analytic .*, numerical ",
        test_transforms=r"vmap\(grad\), in_dims=\(0,\): result 0 is .* for the examples one by one"),
    "an autograd kernel that loses the gradient": Operator(
        "f(Tensor x) -> Tensor", {"CPU": square, "Meta": like, "Autograd": detached}, lambda: (tracked(),),
        dict.fromkeys(("test_gradcheck", "test_forward_mode", "test_gradgradcheck"),
                      "output 0, which does not require grad, with respect to input 0")),
    "wrong tangents": unary(
        square, args=lambda: (tracked(),), formula=Formula(SQUARE.of_gradients, lambda t, x: t * x),
        test_forward_mode=r"input 0 \(argument x\): .*: forward mode "),
    "second derivative is missing": unary(
        square, args=lambda: (tracked(),), formula=Formula(gradient_in_numpy),
        test_gradgradcheck=r"gradgradcheck: t\d+::f: output 0 \(the gradient of input 0 \(argument x\)\)",
        test_transforms="was used as a NumPy array"),
    "rule for another axis": with_vmap(lambda info, in_dims, x: (ops.np.square(x[::-1]), 0), test_transforms=DIFFERS),
    "rule that loses the derivative": with_vmap(
        lambda info, in_dims, x: (ops.np.square(Tensor(np.array(bottom_array(x)))) if isinstance(x, Tensor)
                                  else ops.np.square(x), 0),
        test_transforms=r"grad\(vmap\), in_dims=\(0,\): result 0 is "),
    "rule that returns one value": with_vmap(lambda info, in_dims, x: x, test_transforms="expected exactly two values"),
    "tangents of another derivative": unary(
        square, args=lambda: (tracked(),), formula=Formula(SQUARE.of_gradients, lambda t, x: 2 * t * x.detach()),
        test_transforms=r"grad\(jvp\): result 0 is "),
}

RIGHT = {
    "square": unary(square, args=lambda: (tracked(),), formula=SQUARE),
    "square, single precision": unary(
        square, args=lambda: (Tensor(array().astype(np.float32), requires_grad=True),), formula=SQUARE),
    "square of numbers laid out with gaps": unary(
        square, args=lambda: (Tensor(np.arange(1.0, 9.0)[::-2], requires_grad=True),), formula=SQUARE),
    "square without forward mode": unary(square, args=lambda: (tracked(),), formula=Formula(SQUARE.of_gradients)),
    "square with a batching rule": with_vmap(lambda info, in_dims, x: (ops.np.square(x), in_dims[0])),
    "square of a constant": unary(square),
    "random": unary(lambda x: x + next(calls), tags=("nondeterministic_seeded",)),
    "composite": Operator(
        "f(Tensor x) -> Tensor", {"CompositeImplicitAutograd": lambda x: ops.np.sin(x) * x}, lambda: (tracked(),)),
    "view": Operator(
        "f(Tensor(a) x) -> Tensor(a)", {"CPU": lambda x: x.T, "Meta": lambda x: MetaArray(x.shape[::-1], x.dtype, x)},
        lambda: (array(),)),
    "pieces": Operator(
        "f(Tensor(a) x) -> Tensor(a)[]",
        {"CPU": lambda x: np.split(x, 2), "Meta": lambda x: [MetaArray((1, 2), x.dtype, x) for _ in range(2)]},
        lambda: (array(),)),
    "writes": Operator(
        "f(Tensor(a!) x, Tensor y) -> Tensor(a!)", {"CPU": lambda x, y: np.add(x, y, out=x), "Meta": lambda x, y: x},
        lambda: (array(), array())),
    "writes what was there": Operator(
        "f(Tensor(a!) x) -> ()", {"CPU": lambda x: np.copyto(x, 1.0), "Meta": lambda x: None},
        lambda: (np.ones((2, 2)),)),
    "writes to nothing": Operator(
        "f(Tensor(a!) x) -> ()", {"CPU": lambda x: np.copyto(x, 1.0), "Meta": lambda x: None},
        lambda: (np.ones((0, 2)),)),
    "an array and a number": Operator(
        "f(Tensor x) -> (Tensor, int)", {"CPU": lambda x: (x + 1, x.ndim), "Meta": lambda x: (like(x), len(x.shape))},
        lambda: (tracked(),), {}, Formula(lambda g, _, x: (g,), lambda t, x: (t * 1.0, None))),
    "keywords and lists": Operator(
        "f(Tensor[] xs, *, Tensor? by=None, float scale=1.0) -> Tensor",
        {"CPU": lambda xs, *, by=None, scale=1.0: scale * (xs[0] + xs[1]) * (1 if by is None else by),
         "Meta": lambda xs, *, by=None, scale=1.0: like(*xs)},
        lambda: ([array(), array()],)),
    "an autograd kernel": Operator(
        "f(Tensor x) -> Tensor", {"CPU": square, "Meta": like, "Autograd": lambda x: ops.np.multiply(x, x)},
        lambda: (tracked(),)),
}
