"""The cost of differentiating a loop that fills an array element by element, in other libraries and by hand.

Each library has the loop as its users write it: ours assigns the elements; HIPS autograd and PyTorch collect them in a
list, which `stack` joins; JAX scans, since a loop of `.at[i].set` copies the array for each element.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.cases.contests import FLOOR, Call, Contest, Entry
from benchmarks.cases.kinds import import_or_note, matches
from pydispatch import Tensor, compile, func
from pydispatch.ops import ops

FILLING = "The gradient of a loop that fills {:,} elements, an element, over NumPy by hand"
GRAD, TAPE, COMPILED = "func.grad", "Tensor.backward", "compile(func.grad)"
HIPS, TORCH, JAX = "autograd with stack", "torch with stack", "jax.lax.scan"
MODULES = {GRAD: "pydispatch", TAPE: "pydispatch", COMPILED: "pydispatch", HIPS: "autograd", TORCH: "torch", JAX: "jax"}
FEW, MANY = 100, 10_000
LEFT_OUT_OF_MANY = (COMPILED,)      # the loop is unrolled, and to compile so many steps takes minutes


def filling_cases(left_out: dict[str, str], pattern: str = "") -> Iterator[Entry]:
    """Yield each way for few elements and for many: of a loop in O(n), an element takes as long in both."""
    for n in (FEW, MANY):
        group = FILLING.format(n)
        names = [name for name in MODULES if matches(group, name, pattern)
                 and not (n == MANY and name in LEFT_OUT_OF_MANY) and import_or_note(MODULES[name], name, left_out)]
        contest = Contest(filling_calls, (n,), 1, names)
        for name in names:
            yield Entry(group, name, None, contest, name, parts=n)


def filling_calls(n: int, threads: int, names: Sequence[str]) -> dict[str, Call]:
    """Return the calls, NumPy's first."""
    x = np.linspace(0.5, 0.9, n)        # with larger factors, small differences grow
    return {FLOOR: functools.partial(gradient_by_hand, x)} | {name: MAKERS[name](x) for name in names}


def filled(x: Any) -> Any:
    """Compute each element from the one before it, and return their sum."""
    y = ops.np.zeros_like(x)
    y[0] = x[0]
    for i in range(1, len(x)):
        y[i] = ops.np.sin(y[i - 1]) * x[i]
    return y.sum()


def gradient_by_hand(x: np.ndarray) -> np.ndarray:
    """Return the same loop and the one back, with Python numbers."""
    given = x.tolist()
    y, gradient = [given[0]], [0.0] * len(given)
    for factor in given[1:]:
        y.append(math.sin(y[-1]) * factor)
    total = 0.0
    for i in range(len(given) - 1, 0, -1):
        total += 1.0
        gradient[i] = total * math.sin(y[i - 1])
        total *= math.cos(y[i - 1]) * given[i]
    gradient[0] = total + 1.0
    return np.array(gradient)


def by_tape(x: np.ndarray) -> Call:
    """Differentiate on a leaf, whose gradient is dropped after each call."""
    leaf = Tensor(x, requires_grad=True)

    def gradient() -> Any:
        leaf.grad = None
        filled(leaf).backward()
        return leaf.grad
    return gradient


def in_list(x: Any, sin: Callable[[Any], Any], stack: Callable[[list[Any]], Any]) -> Any:
    """Return the loop for libraries that differentiate no writes."""
    y = [x[0]]
    for i in range(1, len(x)):
        y.append(sin(y[-1]) * x[i])
    return stack(y).sum()


def by_hips(x: np.ndarray) -> Call:
    """Differentiate by `autograd.grad`."""
    autograd, numpy = importlib.import_module("autograd"), importlib.import_module("autograd.numpy")
    return functools.partial(autograd.grad(lambda x: in_list(x, numpy.sin, numpy.stack)), x)


def by_torch(x: np.ndarray) -> Call:
    """Differentiate by `Tensor.backward` on a leaf."""
    torch = importlib.import_module("torch")
    leaf = torch.tensor(x, requires_grad=True)

    def gradient() -> Any:
        leaf.grad = None
        in_list(leaf, torch.sin, torch.stack).backward()
        return leaf.grad.numpy()
    return gradient


def by_jax(x: np.ndarray) -> Call:
    """Differentiate by `jax.jit(jax.grad(...))` of a scan, in float64. Each call waits for its result."""
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)

    def program(x: Any) -> Any:
        def step(y: Any, factor: Any) -> Any:
            y = jax.numpy.sin(y) * factor
            return y, y
        return x[0] + jax.lax.scan(step, x[0], x[1:])[1].sum()

    compute, on_device = jax.jit(jax.grad(program)), jax.numpy.asarray(x)
    return lambda: jax.block_until_ready(compute(on_device))


MAKERS: dict[str, Callable[[np.ndarray], Call]] = {
    GRAD: lambda x: functools.partial(func.grad(filled), x),
    TAPE: by_tape,
    COMPILED: lambda x: functools.partial(compile(func.grad(filled)), x),
    HIPS: by_hips,
    TORCH: by_torch,
    JAX: by_jax,
}
