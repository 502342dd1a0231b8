"""Ways to compute the gradient of a program, ours and those of other libraries, each as its documentation shows.

A set-up gets the module of the library, and returns a function from a program to a call without arguments. That call
computes the value and the gradients of the parameters, on arrays of the library that were made before.
"""

from __future__ import annotations

import atexit
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchmarks.cases.kinds import import_or_note
from benchmarks.cases.numba_programs import gradients_in_loops
from benchmarks.cases.programs import ProgramFunctions, TimedProgram, euler
from pydispatch import compile, func
from pydispatch._core import Tensor
from pydispatch.ops import ops

Gradient = Callable[[], Any]        # returns the gradients: one, or a sequence of them
MakeGradient = Callable[[TimedProgram], Gradient]


def has_compiler() -> bool:
    """Return whether there is a compiler of C++."""
    return any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))


class Differentiator(NamedTuple):
    """A way to compute gradients: the module that it needs, its set-up, and what it cannot do."""

    module: str
    set_up: Callable[[Any], MakeGradient]
    needs_compiler: bool = False        # of C++
    not_of: Sequence[Callable[..., Any]] = ()       # programs that it takes minutes for


def functions_of(namespace: Any) -> ProgramFunctions:
    """Return the functions that programs use, by name."""
    return ProgramFunctions(*(getattr(namespace, name) for name in ProgramFunctions._fields))


def positions(program: TimedProgram) -> int | tuple[int, ...]:
    """Return the positions to differentiate with respect to: an int for a single one, so that libraries need no tuple.
    """
    return 0 if len(program.parameters) == 1 else tuple(range(len(program.parameters)))


def by_backward(
    program: TimedProgram, namespace: Any, parameter: Callable[[Any], Any], constant: Callable[[Any], Any]
) -> Gradient:
    """Differentiate by the method `backward` of the value, which leaves gradients on the parameters."""
    compute = program.make(functions_of(namespace))
    parameters = [parameter(array) for array in program.parameters.values()]
    arguments = (*parameters, *map(constant, program.data.values()))

    def gradient() -> Any:
        for leaf in parameters:
            leaf.grad = None
        compute(*arguments).backward()
        return [leaf.grad for leaf in parameters]
    return gradient


def by_transform(gradient: Callable[..., Any], arguments: Sequence[Any]) -> Gradient:
    """Differentiate by a function that computes gradients."""
    return lambda: gradient(*arguments)


# --- ours --------------------------------------------------------------------------------------------------


def tape(_: Any) -> MakeGradient:
    """Return Tensors that require gradients."""
    return lambda program: by_backward(program, ops.np, lambda array: Tensor(array, requires_grad=True), Tensor)


def transform(_: Any) -> MakeGradient:
    """Differentiate by `func.grad`, on raw arrays."""
    return lambda program: by_transform(
        func.grad(program.make(functions_of(ops.np)), positions(program)), [*program.arguments.values()]
    )


def compiled(_: Any) -> MakeGradient:
    """Differentiate by `compile` of `func.value_and_grad`, on raw arrays."""
    def make(program: TimedProgram) -> Gradient:
        compute = compile(func.value_and_grad(program.make(functions_of(ops.np)), positions(program)))
        return of_values_and_gradients(compute, [*program.arguments.values()])
    return make


def of_values_and_gradients(compute: Callable[..., Any], arguments: Sequence[Any]) -> Gradient:
    """Differentiate by a function that also computes the value."""
    return lambda: compute(*arguments)[1]


# --- others ------------------------------------------------------------------------------------------------


def torch_tape(torch: Any) -> MakeGradient:
    """Return Tensors that require gradients."""
    def parameter(array: Any) -> Any:
        return torch.tensor(array, requires_grad=True)

    return lambda program: by_backward(program, torch, parameter, torch.tensor)


def torch_transform(functions: Any) -> MakeGradient:
    """Differentiate by `torch.func.grad`, on tensors."""
    torch = importlib.import_module("torch")
    return lambda program: by_transform(
        functions.grad(program.make(functions_of(torch)), positions(program)),
        [*map(torch.tensor, program.arguments.values())],
    )


def torch_compiled(inductor: Any) -> MakeGradient:
    """Compile the program by `torch.compile`, which calls a compiler of C++, again each time, with the tape around."""
    torch = importlib.import_module("torch")
    inductor.config.compile_threads = 1         # so that the compiler's work counts

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()
        importlib.import_module("torch._inductor.utils").clear_caches()
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="pydispatch-bench-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return torch.compile(function)  # type: ignore[no-any-return]

    def parameter(array: Any) -> Any:
        return torch.tensor(array, requires_grad=True)

    return lambda program: by_backward(
        program._replace(make=lambda library: compiled(program.make(library))), torch, parameter, torch.tensor)


def by_hand_in_numba(numba: Any) -> MakeGradient:
    """Compute value and gradients by loops that are written by hand, compiled by numba."""
    functions = gradients_in_loops(numba)
    return lambda program: of_values_and_gradients(functions[program.make], [*program.arguments.values()])


def hips(autograd: Any) -> MakeGradient:
    """Differentiate by `grad` of HIPS autograd, with its own copy of NumPy's functions."""
    numpy = importlib.import_module("autograd.numpy")
    return lambda program: by_transform(
        autograd.grad(program.make(functions_of(numpy)), positions(program)), [*program.arguments.values()]
    )


def jax_eager(jax: Any) -> MakeGradient:
    """Differentiate by `grad` of JAX, operator by operator, in float64."""
    return jax_gradient(jax, lambda gradient: gradient)


def jax_compiled(jax: Any) -> MakeGradient:
    """Differentiate by `jit` of `grad` of JAX, in float64."""
    return jax_gradient(jax, jax.jit)


def jax_gradient(jax: Any, compiled: Callable[[Any], Any]) -> MakeGradient:
    """Wait for the gradient: JAX computes in the background."""
    jax.config.update("jax_enable_x64", True)

    def make(program: TimedProgram) -> Gradient:
        gradient = compiled(jax.grad(program.make(functions_of(jax.numpy)), positions(program)))
        arguments = [*map(jax.numpy.asarray, program.arguments.values())]
        return lambda: jax.block_until_ready(gradient(*arguments))
    return make


OURS = {
    "Tensor.backward": Differentiator("pydispatch", tape),
    "func.grad": Differentiator("pydispatch", transform),
    "compile": Differentiator("pydispatch", compiled),
}
THEIRS = {
    "torch.Tensor.backward": Differentiator("torch", torch_tape),
    "torch.func.grad": Differentiator("torch.func", torch_transform),
    "torch.compile": Differentiator("torch._inductor", torch_compiled, needs_compiler=True, not_of=(euler,)),
    "autograd.grad (HIPS)": Differentiator("autograd", hips),
    "jax.grad": Differentiator("jax", jax_eager),
    "jax.jit of jax.grad": Differentiator("jax", jax_compiled),
    "numba, by hand": Differentiator("numba", by_hand_in_numba),
}
COMPILERS = {
    name: (OURS | THEIRS)[name] for name in ("compile", "jax.jit of jax.grad", "numba, by hand", "torch.compile")
}


def available(way: Differentiator, program: TimedProgram, name: str, left_out: dict[str, str]) -> Any:
    """Return the module if it is installed and can compute the gradient of the program, else None, perhaps with a note.
    """
    if program.make in way.not_of:
        return None
    module = import_or_note(way.module, name, left_out)
    if module is not None and way.needs_compiler and not has_compiler():
        left_out[name] = "there is no C++ compiler"
        return None
    return module
