"""The cost of a custom operator, over an operator of the library and against PyTorch's."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.cases.dispatch import arrays
from benchmarks.cases.kinds import Excess, Ratio, import_or_note, matches
from benchmarks.cases.peers import NAMESPACE
from pydispatch import library
from pydispatch._core import Tensor
from pydispatch.autograd import Function, grad
from pydispatch.compat import custom_ops
from pydispatch.func import grad as func_grad
from pydispatch.func import vmap
from pydispatch.library.derived import derived_operator
from pydispatch.ops import ops

WITHOUT = "Custom operators, over operators of the library; the kernel does nothing"
WITHOUT_ROWS = (
    ("raw arrays", 1.5, "custom(x, y)", "op(x, y)"),
    ("Tensors", 1.5, "custom(X, Y)", "op(X, Y)"),
)
FUNCTION = "autograd.Function, over a custom operator; both compute a sine by NumPy"
FUNCTION_ROWS = (
    ("untracked", 1.5, "apply(x)", "operator(x)"),
    ("untracked Tensors, by operators", 1.5, "function(T)", "batchable(T)"),
    ("on the tape", 1.5, "apply(X)", "operator(X)"),
    ("on the tape, forward and backward", 1.5, "gradient(apply(X), X, ones)", "gradient(operator(X), X, ones)"),
    ("ten in func.grad", 1.5, "grad_of_function(x)", "grad_of_operator(x)"),
)
DERIVED = "Derived operators: a sine of three examples, over NumPy's"
DERIVED_ROWS = (
    ("operator, call", 10, "derived(xs)"),
    ("operator, vmap", 10, "vmap_of_operator(xs)"),
    ("operator, grad(vmap)", 30, "grad_of_operator(xs)"),
    ("Function, vmap", 10, "vmap_of_function(xs)"),
    ("Function, grad(vmap)", 30, "grad_of_function(xs)"),
)
WITH = "PyTorch's custom operators, forward and backward, over ours"
PERMANENT = f"{NAMESPACE}_custom"      # holds operators that are never removed
SINE = "(Tensor x) -> Tensor"
BINARY = "(Tensor x, Tensor y) -> Tensor"

Call = Callable[..., Any]


def custom_cases(fragment: library.Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Ratio]:
    """Yield all groups."""
    if any(matches(WITHOUT, row[0], pattern) for row in WITHOUT_ROWS):
        yield from without_gradient(fragment)
    if any(matches(FUNCTION, row[0], pattern) for row in FUNCTION_ROWS):
        yield from functions()
    if any(matches(DERIVED, row[0], pattern) for row in DERIVED_ROWS):
        yield from derived()
    for name, (module_name, make) in APIS.items():
        if matches(WITH, name, pattern):
            torch = import_or_note("torch", name, left_out)
            if torch is not None:
                yield Ratio(
                    WITH, name, 10, "torch_grad(torch_op(a), a, ones_a)", "grad(op(X), X, ones)",
                    names_of_ours(make) | names_of_theirs(torch, importlib.import_module(module_name), make),
                    at_least=True,
                )


# --- without gradients -------------------------------------------------------------------------------------


CONSTANT = np.ones(4)


def constant(x, y):  # type: ignore[no-untyped-def]
    """Return the kernel, without annotations, so that it fits every schema."""
    return CONSTANT


@functools.cache
def custom_constant() -> Call:
    """Return a custom operator with that kernel, which is never removed."""
    return library.custom_op(f"{PERMANENT}::custom", constant, mutates_args=(), schema=BINARY)


def without_gradient(fragment: library.Library) -> list[Ratio]:
    """Return the same kernel in a library operator and in a custom operator."""
    fragment.define(f"constant{BINARY}", constant, "CPU")
    names = arrays() | {"op": getattr(ops, NAMESPACE).constant, "custom": custom_constant()}
    return [Ratio(WITHOUT, *row, names) for row in WITHOUT_ROWS]


# --- Functions -------------------------------------------------------------------------------------------------------


numpy_sin = np.sin      # by one look-up, as in the kernel of the operator


class Sine(Function):
    """A sine by NumPy."""

    @staticmethod
    def forward(x: Any) -> Any:
        """Return the sine."""
        return numpy_sin(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keep the argument."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return the cosine."""
        (x,) = ctx.saved_tensors
        return gradient * ops.np.cos(x)


def ten(f: Callable[..., Any]) -> Callable[..., Any]:
    """Make ten calls in a row."""
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = f(x)
        return ops.np.sum(x)

    return func_grad(chain)


def functions() -> list[Ratio]:
    """Return the same sine as a Function and as an operator."""
    names = names_of_ours(by_custom_op)
    names = names | {
        "x": np.arange(4.0), "T": Tensor(np.arange(4.0)), "function": SineOfBatch.apply, "batchable": batchable_sine(),
        "apply": Sine.apply, "operator": names["op"], "gradient": names["grad"],
        "grad_of_function": ten(Sine.apply), "grad_of_operator": ten(names["op"]),
    }
    return [Ratio(FUNCTION, *row, names) for row in FUNCTION_ROWS]


# --- derived operators -----------------------------------------------------------------------------------------------


class SineOfBatch(Sine):
    """A sine written with operators, which vmap can run on all examples at once."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any) -> Any:
        """Return the sine."""
        return ops.np.sin(x)


@functools.cache
def batchable_sine() -> Call:
    """Return the same as a custom operator, which is never removed."""
    operator = library.custom_op(
        f"{PERMANENT}::batchable", lambda x: ops.np.sin(x), mutates_args=(), schema=SINE, batchable=True)
    operator.register_autograd(Sine.backward, setup_context=Sine.setup_context)
    return operator


def gradient_over_examples(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradient of the sum of a function's results over all examples."""
    batched = vmap(f)
    return func_grad(lambda xs: ops.np.sum(batched(xs)))


def derived() -> list[Excess]:
    """Yield the derived operator of a batch, called directly and by vmap. Then the same for a Function."""
    operator, function = batchable_sine(), SineOfBatch.apply
    names = {
        "xs": np.arange(12.0).reshape(3, 4), "sin": np.sin,
        "derived": derived_operator(getattr(ops, PERMANENT).batchable.default, (0,), "error"),
        "vmap_of_operator": vmap(operator), "grad_of_operator": gradient_over_examples(operator),
        "vmap_of_function": vmap(function), "grad_of_function": gradient_over_examples(function),
    }
    return [Excess(DERIVED, name, bound, call, "sin(xs)", names) for name, bound, call in DERIVED_ROWS]


# --- forward and backward: a sine, and its formula ---------------------------------------------------------


def by_custom_op(api: Any, operators: Any, name: str, sin: Call, cos: Call) -> Call:
    """Define by `custom_op` and `register_autograd`, which are the same in both libraries."""
    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * cos(x)

    operator = api.custom_op(f"{PERMANENT}::{name}", lambda x: sin(x), mutates_args=(), schema=SINE)
    operator.register_autograd(backward, setup_context=save)
    return operator  # type: ignore[no-any-return]


def by_functions_of_2023(api: Any, operators: Any, name: str, sin: Call, cos: Call) -> Call:
    """Define by `custom_op`, `impl`, `impl_save_for_backward` and `impl_backward`, the same in both libraries."""
    qualified = f"{PERMANENT}::{name}"
    api.custom_op(qualified, SINE)
    api.impl(qualified)(lambda x: sin(x))
    api.impl_save_for_backward(qualified)(lambda inputs, output: inputs.x)
    api.impl_backward(qualified)(lambda ctx, x, gradient: {"x": gradient * cos(x)})
    return getattr(getattr(operators, PERMANENT), name)  # type: ignore[no-any-return]


Make = Callable[[Any, Any, str, Call, Call], Call]
APIS: dict[str, tuple[str, Make]] = {
    "torch.library.custom_op": ("torch.library", by_custom_op),
    "torch._custom_ops": ("torch._custom_ops", by_functions_of_2023),
}
OUR_APIS: dict[Make, Any] = {by_custom_op: library, by_functions_of_2023: custom_ops}


@functools.cache
def names_of_ours(make: Make) -> dict[str, Any]:
    """Return our operator and its arguments, by name."""
    operator = make(OUR_APIS[make], ops, make.__name__, np.sin, ops.np.cos)
    X = Tensor(np.arange(4.0), requires_grad=True)
    return {"op": operator, "grad": grad, "X": X, "ones": Tensor(np.ones(4))}


@functools.cache
def names_of_theirs(torch: Any, api: Any, make: Make) -> dict[str, Any]:
    """Return PyTorch's operator and its arguments, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # the API of 2023 is deprecated
        operator = make(api, torch.ops, make.__name__, torch.sin, torch.cos)
    a = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    return {
        "torch_op": operator, "torch_grad": torch.autograd.grad, "a": a,
        "ones_a": torch.ones(4, dtype=torch.float64),
    }
