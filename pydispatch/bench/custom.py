"""What a custom operator costs, over an operator of the library and against PyTorch's."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pydispatch import custom_ops, library
from pydispatch._core import Tensor
from pydispatch.autograd import grad
from pydispatch.bench.dispatch import arrays
from pydispatch.bench.kinds import Ratio, import_or_note, matches
from pydispatch.bench.peers import NAMESPACE
from pydispatch.ops import ops

WITHOUT = "Custom operators, over operators of the library; the kernel does nothing"
WITHOUT_ROWS = (
    ("raw arrays", 1.5, "custom(x, y)", "op(x, y)"),
    ("Tensors", 1.5, "custom(X, Y)", "op(X, Y)"),
)
WITH = "PyTorch's custom operators, forward and backward, over ours"
PERMANENT = f"{NAMESPACE}_custom"      # these operators stay
SINE = "(Tensor x) -> Tensor"
BINARY = "(Tensor x, Tensor y) -> Tensor"

Function = Callable[..., Any]


def custom_cases(fragment: library.Library, left_out: dict[str, str], pattern: str = "") -> Iterator[Ratio]:
    """Both groups."""
    if any(matches(WITHOUT, row[0], pattern) for row in WITHOUT_ROWS):
        yield from without_gradient(fragment)
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
    """The kernel; without annotations, which need not fit a schema."""
    return CONSTANT


@functools.cache
def custom_constant() -> Function:
    """A custom operator with that kernel; it stays."""
    return library.custom_op(f"{PERMANENT}::custom", constant, mutates_args=(), schema=BINARY)


def without_gradient(fragment: library.Library) -> list[Ratio]:
    """The same kernel in an operator of either kind."""
    fragment.define(f"constant{BINARY}", constant, "CPU")
    names = arrays() | {"op": getattr(ops, NAMESPACE).constant, "custom": custom_constant()}
    return [Ratio(WITHOUT, *row, names) for row in WITHOUT_ROWS]


# --- forward and backward: a sine, and its formula ---------------------------------------------------------


def by_custom_op(api: Any, operators: Any, name: str, sin: Function, cos: Function) -> Function:
    """By `custom_op` and `register_autograd`, which are the same in both libraries."""
    def save(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * cos(x)

    operator = api.custom_op(f"{PERMANENT}::{name}", lambda x: sin(x), mutates_args=(), schema=SINE)
    operator.register_autograd(backward, setup_context=save)
    return operator  # type: ignore[no-any-return]


def by_functions_of_2023(api: Any, operators: Any, name: str, sin: Function, cos: Function) -> Function:
    """By `custom_op`, `impl`, `impl_save_for_backward` and `impl_backward`, which are the same in both libraries."""
    qualified = f"{PERMANENT}::{name}"
    api.custom_op(qualified, SINE)
    api.impl(qualified)(lambda x: sin(x))
    api.impl_save_for_backward(qualified)(lambda inputs, output: inputs.x)
    api.impl_backward(qualified)(lambda ctx, x, gradient: {"x": gradient * cos(x)})
    return getattr(getattr(operators, PERMANENT), name)  # type: ignore[no-any-return]


Make = Callable[[Any, Any, str, Function, Function], Function]
APIS: dict[str, tuple[str, Make]] = {
    "torch.library.custom_op": ("torch.library", by_custom_op),
    "torch._custom_ops": ("torch._custom_ops", by_functions_of_2023),
}
OUR_APIS: dict[Make, Any] = {by_custom_op: library, by_functions_of_2023: custom_ops}


@functools.cache
def names_of_ours(make: Make) -> dict[str, Any]:
    """Our operator, and what it is called with."""
    operator = make(OUR_APIS[make], ops, make.__name__, np.sin, ops.np.cos)
    X = Tensor(np.arange(4.0), requires_grad=True)
    return {"op": operator, "grad": grad, "X": X, "ones": Tensor(np.ones(4))}


@functools.cache
def names_of_theirs(torch: Any, api: Any, make: Make) -> dict[str, Any]:
    """PyTorch's operator, and what it is called with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # the API of 2023 is deprecated
        operator = make(api, torch.ops, make.__name__, torch.sin, torch.cos)
    a = torch.arange(4.0, dtype=torch.float64, requires_grad=True)
    return {
        "torch_op": operator, "torch_grad": torch.autograd.grad, "a": a,
        "ones_a": torch.ones(4, dtype=torch.float64),
    }
