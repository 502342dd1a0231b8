"""The operator that runs a program, with a rule for every interpreter of the stack."""

# tests: tests/compiling/test_composed_operators.py
from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

from pydispatch import func
from pydispatch._core import Interpreter, Jvp, MetaArray, Tensor, Vmap
from pydispatch.autograd.custom_derivatives import materialized, needs_grad
from pydispatch.autograd.values import meta_of
from pydispatch.compiling import programs
from pydispatch.compiling.compilers import numpy_array
from pydispatch.higher_order import rules
from pydispatch.higher_order.closures import Arrays, batched_results
from pydispatch.higher_order.operator import HigherOrderOperator
from pydispatch.ops import ops
from pydispatch.tracing.effects import is_new
from pydispatch.tracing.trace import TraceMode

COMPILED = HigherOrderOperator("compiled", n_results=lambda program, *arrays: len(program.results))
"""The operator `COMPILED(program, *arrays)`, which returns the results of a program, a tuple of arrays."""

rules.register_common_rules(COMPILED)


@COMPILED.py_impl("CompositeExplicitAutograd")
def run(program: programs.Program, *arrays: Any) -> Arrays:
    """Run the program on raw arrays. The results are Tensors if an argument is one."""
    results = program.run(*[
        numpy_array(value.array if isinstance(value, Tensor) else value, "an argument") for value in arrays])
    return tuple(map(Tensor, results)) if any(isinstance(value, Tensor) for value in arrays) else results


@COMPILED.py_impl("Meta")
def run_without_data(program: programs.Program, *arrays: Any) -> Arrays:
    """Return arrays without data, with the shapes and dtypes of the results."""
    return tuple([
        rules.without_data(ops.np.empty_like(arrays[0], shape=spec.shape, dtype=spec.dtype)) if arrays
        else Tensor(MetaArray(spec.shape, spec.dtype)) for spec in program.results])


@COMPILED.py_impl(Vmap)
def run_on_batches(interpreter: Vmap, program: programs.Program, *arrays: Any) -> Arrays:
    """Run the program of `vmap` of the function once."""
    flags = rules.owned(arrays, interpreter)
    values = rules.below(arrays, interpreter)
    n, how = interpreter.batch_size, interpreter.randomness
    axes = tuple([0 if flag else None for flag in flags])

    def batched(flat: programs.Flat, depends: Sequence[bool]) -> programs.Flat:
        def run(*values: Any) -> Arrays:
            results = func.vmap(flat, in_dims=axes, randomness=how)(*values)
            return tuple([result if flag else ops.np.getitem(result, (0, Ellipsis))
                          for result, flag in zip(results, depends, strict=True)])

        return run

    def make() -> tuple[programs.Program, Sequence[bool]]:
        specs = tuple([((n, *shape) if flag else shape, dtype)
                       for (shape, dtype), flag in zip(program.specs, flags, strict=True)])
        examples = list(starmap(MetaArray, program.specs))
        found = batched_results(program.graph, examples, flags, interpreter) if n else None
        depends = found or [True] * len(program.results)
        return programs.traced(
            batched(program.graph, depends), specs, program.backend, batched(program.smooth, depends), program.n_smooth,
            layouts=programs.layouts_of_batches(program, flags)), depends

    derived, depends = program.derived(("vmap", tuple(flags), n, how), make)
    return rules.wrapped(COMPILED(derived, *values), interpreter, depends)


@COMPILED.py_impl(Jvp)
def run_with_tangents(interpreter: Jvp, program: programs.Program, *arrays: Any) -> Arrays:
    """Run the program of the function and its tangents once."""
    tangents = rules.tangents_of(arrays, interpreter)
    flags = tuple([tangent is not None for tangent in tangents])
    n, n_results, n_smooth = len(arrays), len(program.results), program.n_smooth

    def pushed(*values: Any) -> Arrays:
        primals = rules.chosen(values[:n], flags)

        def of_chosen(*moving: Any) -> Any:
            rest = iter(moving)
            return program.smooth(*[next(rest) if flag else value for value, flag in zip(values, flags, strict=False)])

        results, derivatives = func.jvp(of_chosen, primals, values[n:])
        return (*results, *derivatives[:n_smooth])

    specs = (*program.specs, *rules.chosen(program.specs, flags))
    if not any(flags):
        results = COMPILED(program, *rules.below(arrays, interpreter))
        return rules.with_tangents(results, (None,) * n_results, interpreter)
    layouts = program.layouts and (*program.layouts, *rules.chosen(program.layouts, flags))
    derived = program.derived(("jvp", flags), lambda: programs.traced(pushed, specs, program.backend, layouts=layouts))
    found = COMPILED(derived, *rules.below(arrays, interpreter), *rules.chosen(tangents, flags))
    return rules.with_tangents(found[:n_results], (*found[n_results:], *(None,) * (n_results - n_smooth)), interpreter)


@rules.recording_rule(COMPILED)
def run_and_record(interpreter: Interpreter | None, program: programs.Program, *arrays: Any) -> Arrays:
    """Run the forward program, and record one node, which runs the backward program."""
    wanted = tuple([needs_grad(value, interpreter) for value in arrays])
    moving = tuple([spec.dtype.kind in "fc" and i < program.n_smooth for i, spec in enumerate(program.results)])
    if not any(wanted) or not any(moving):
        return rules.wrapped(COMPILED(program, *rules.below(arrays, interpreter)), interpreter)
    split: programs.Differentiated = program.derived(
        ("grad", wanted), lambda: programs.Differentiated(program, wanted, moving))
    found = rules.wrapped(COMPILED(split.forward, *rules.below(arrays, interpreter)), interpreter)
    results, residuals = found[:len(moving)], found[len(moving):]
    metas = [meta_of(value) for value in rules.chosen(results, moving)]

    def pull(saved: Arrays, still_wanted: Sequence[bool], grads: Arrays) -> Arrays:
        cotangents = materialized(rules.chosen(grads, moving), metas, like=grads)
        gradients = iter(COMPILED(split.backward, *saved, *cotangents))
        of_all = [next(gradients) if flag else None for flag in wanted]
        return tuple([gradient for gradient, flag in zip(of_all, still_wanted, strict=True) if flag])

    rules.record(COMPILED, interpreter, arrays, results, (*residuals, *arrays), pull)
    return results


@COMPILED.py_impl(TraceMode)
def inline(mode: TraceMode, program: programs.Program, *arrays: Any) -> Arrays:
    """Add the program's graph to the trace. As in a run, the results share no memory."""
    graph = program.graph_with_functions if mode._records_functions else program.graph
    nodes = programs.results_of(graph)
    with mode:
        return tuple([result if is_new(node) and nodes.count(node) == 1 else ops.np.copy(result)
                      for result, node in zip(mode.inline(graph, arrays), nodes, strict=True)])


COMPILED.trust_rules()
