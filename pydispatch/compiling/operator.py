"""The operator that runs a program, with a rule for each level of the stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydispatch import func
from pydispatch._core import Grad, Interpreter, Jvp, MetaArray, Tensor, Vmap
from pydispatch.autograd.custom_derivatives import materialized, needs_grad
from pydispatch.autograd.values import meta_of
from pydispatch.compiling.programs import Differentiated, Program
from pydispatch.exceptions import DispatchTypeError
from pydispatch.higher_order.closures import Arrays
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.higher_order.transformed import (
    below,
    chosen,
    is_differentiable,
    owned,
    record,
    register_common_rules,
    tangents_of,
    with_tangents,
    without_data,
    wrapped,
)
from pydispatch.ops import ops
from pydispatch.tracing.trace import Tracer

COMPILED = HigherOrderOperator("compiled", n_results=lambda program, *arrays: len(program.results))
"""`COMPILED(program, *arrays)`: the results of a program, a tuple of arrays."""

register_common_rules(COMPILED)


@COMPILED.py_impl("CompositeExplicitAutograd")
def run(program: Program, *arrays: Any) -> Arrays:
    """The compiled function on raw arrays; Tensors, where one was passed."""
    results = program.run(*[_raw_array(value) for value in arrays])
    return tuple(map(Tensor, results)) if any(isinstance(value, Tensor) for value in arrays) else results


def _raw_array(value: Any) -> np.ndarray[Any, Any]:
    array = value.array if isinstance(value, Tensor) else value
    if type(array) is np.ndarray:
        return array
    if isinstance(array, (np.ndarray, np.generic)):
        return np.asarray(array)
    raise DispatchTypeError(f"compile: an argument is a {type(array).__name__}, expected arrays of NumPy's\n"
                            "call the function itself for other arrays")


@COMPILED.py_impl("Meta")
def run_without_data(program: Program, *arrays: Any) -> Arrays:
    """The shapes and dtypes."""
    return tuple([
        without_data(ops.np.empty_like(arrays[0], shape=spec.shape, dtype=spec.dtype)) if arrays
        else Tensor(MetaArray(spec.shape, spec.dtype)) for spec in program.results])


@COMPILED.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, program: Program, *arrays: Any) -> Arrays:
    """The program of the function under vmap."""
    flags = owned(arrays, interpreter)
    values = below(arrays, interpreter)
    n, how = interpreter.batch_size, interpreter.randomness
    axes = tuple([0 if flag else None for flag in flags])

    def batched(*values: Any) -> Arrays:
        results: Arrays = func.vmap(program.flat, in_dims=axes, randomness=how)(*values)
        return results

    specs = tuple([((n, *shape) if flag else shape, dtype)
                   for (shape, dtype), flag in zip(program.specs, flags, strict=True)])
    derived = program.transformed(("vmap", tuple(flags), n, how), batched, specs)
    return wrapped(COMPILED(derived, *values), interpreter)


@COMPILED.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, program: Program, *arrays: Any) -> Arrays:
    """The program of the function and its derivative."""
    tangents = tangents_of(arrays, interpreter)
    flags = tuple([tangent is not None for tangent in tangents])
    n = len(arrays)

    def pushed(*values: Any) -> Arrays:
        primals = chosen(values[:n], flags)

        def of_chosen(*moving: Any) -> Any:
            rest = iter(moving)
            return program.flat(*[next(rest) if flag else value for value, flag in zip(values, flags, strict=False)])

        results, derivatives = func.jvp(of_chosen, primals, values[n:])
        return (*results, *derivatives)

    specs = (*program.specs, *chosen(program.specs, flags))
    if not any(flags):
        results = COMPILED(program, *below(arrays, interpreter))
        return with_tangents(results, (None,) * len(results), interpreter)
    derived = program.transformed(("jvp", flags), pushed, specs)
    found = COMPILED(derived, *below(arrays, interpreter), *chosen(tangents, flags))
    half = len(found) // 2
    return with_tangents(found[:half], found[half:], interpreter)


@COMPILED.py_impl(Grad)
def run_and_record(interpreter: Interpreter | None, program: Program, *arrays: Any) -> Arrays:
    """The forward program, as one node that runs the backward one."""
    wanted = tuple([needs_grad(value, interpreter) for value in arrays])
    moving = tuple([spec.dtype.kind in "fc" for spec in program.results])
    if not any(wanted) or not any(moving):
        return wrapped(COMPILED(program, *below(arrays, interpreter)), interpreter)
    split: Differentiated = program.derived(("grad", wanted), lambda: Differentiated(program, wanted, moving))
    n = len(program.results)
    found = wrapped(COMPILED(split.forward, *below(arrays, interpreter)), interpreter)
    flags = [is_differentiable(value) for value in found]
    metas = [meta_of(value) for value in chosen(found, flags)]
    n_residuals = len(found) - n

    def pull(saved: Arrays, still_wanted: Sequence[bool], grads: Arrays) -> Arrays:
        cotangents = chosen(grads, flags)
        n_moving = sum(moving)
        if all(grad is None for grad in cotangents[n_moving:]):
            backward, given = split.backward, saved[:n_residuals]
            cotangents = materialized(cotangents[:n_moving], metas[:n_moving], like=grads)
        else:       # a gradient of gradients, which depend on the residuals
            whole = split.forward.derived(
                ("grad", wanted), lambda: Differentiated(split.forward, wanted, tuple(flags)))
            given = COMPILED(whole.forward, *saved[n_residuals:])[len(found):]
            backward, cotangents = whole.backward, materialized(cotangents, metas, like=grads)
        gradients = iter(COMPILED(backward, *given, *cotangents))
        of_all = [next(gradients) if flag else None for flag in wanted]
        return tuple([gradient for gradient, flag in zip(of_all, still_wanted, strict=True) if flag])

    record(COMPILED, interpreter, arrays, found, (*found[n:], *arrays), pull)
    return found[:n]


@COMPILED.py_impl("Autograd")
def run_on_tape(program: Program, *arrays: Any) -> Arrays:
    """The same on the tape."""
    return run_and_record(None, program, *arrays)


@COMPILED.py_impl(Tracer)
def inline(mode: Tracer, program: Program, *arrays: Any) -> Arrays:
    """A trace gets the operators of the function."""
    with mode:
        return tuple(program.flat(*arrays))


