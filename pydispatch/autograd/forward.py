"""Forward mode: compute the tangents of results from those of arguments, by the derivative of each operator.

Everything here runs below the `jvp`, on values and tangents of the interpreter there. None is a tangent of zeros.
"""

# tests: tests/func/test_jvp.py
from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Context, Derivative, MetaArray, OpOverload, Tensor
from pydispatch._registry.derivatives import CustomDerivative, Joint, is_transposed, parameters_of
from pydispatch.autograd.custom_derivatives import check_gradients, leaves_like, seal_for_forward
from pydispatch.autograd.transposing import Results, transposed
from pydispatch.autograd.values import as_raw_constant, as_tensor, values_below
from pydispatch.autograd.views import WriteProblem, elements, gather, is_part, positions, whole_of
from pydispatch.exceptions import AutogradError
from pydispatch.memory import overlaps_itself
from pydispatch.ops import ops
from pydispatch.tree import described_structure, tree_flatten, tree_leaves, tree_map, tree_unflatten


def propagate(
    op: OpOverload, derivative: Derivative | CustomDerivative, values: tuple[Any, ...], result: Any, interpreter: Any
) -> None:
    """Set the tangents of the results of a call."""
    if isinstance(derivative, Derivative):
        if not any(map(_can_have_tangent, tree_leaves(result))):
            _core.refuse_object_results(op, tree_leaves(result), interpreter)
            return
        tangents = tuple([tree_map(lambda leaf: _tangent(leaf, interpreter), value) for value in values])
        _core.lowered(interpreter, _core.as_tangents_of, derivative.name, result, _by_formulas, op, derivative, values,
                      tangents, result, interpreter)
    else:
        ctx = Context(tuple([tree_map(lambda leaf: _has_tangent(leaf, interpreter), value) for value in values]),
                      interpreter)
        derivative.setup(ctx, values, result)
        seal_for_forward(ctx, interpreter)
        _core.lowered(interpreter, _core.as_tangents_of, derivative.name, result, _by_custom_derivative, derivative,
                      ctx, values, result, interpreter)


def _has_tangent(value: Any, interpreter: Any) -> bool:
    return _tangent(value, interpreter) is not None


def _tangent(value: Any, interpreter: Any) -> Any:
    return _core.tangent_of(value) if _core.is_owned_by(value, interpreter) else None


# --- operators of the library ----------------------------------------------------------------------------------------


def _by_formulas(
    op: OpOverload, derivative: Derivative, values: tuple[Any, ...], tangents: tuple[Any, ...], result: Any,
    interpreter: Any,
) -> None:
    source = derivative.source
    below = values_below(values, interpreter)
    output = values_below(result, interpreter)
    if _core.operators_are_watched() or not all(map(_has_plain_methods, tree_leaves((below, tangents)))):
        below, tangents, output = tree_map(_as_operand, (below, tangents, output))
    if source.jvp == "linear":
        found = _call(op, [
            value if formula is None else _all_tangents(value, tangent)
            for value, tangent, formula in zip(below, tangents, derivative.formulas, strict=True)
        ])
    elif source.jvp == "multilinear":
        found = _sum(
            _call(op, [*below[:i], tangent, *below[i + 1:]])
            for i, (tangent, formula) in enumerate(zip(tangents, derivative.formulas, strict=True))
            if formula is not None and tangent is not None
        )
    elif is_transposed(source):
        found = _by_transposition(op, source.vjp, below, tangents, output)
    else:
        found = _sum_of_formulas(op, source.vjp if source.jvp is None else source.jvp, below, tangents, output)
    if derivative.is_checked:
        _check_number(op, result, found)
    for leaf, tangent in zip(tree_leaves(result), tree_leaves(found), strict=True):
        if tangent is not None and _can_have_tangent(leaf):
            if derivative.is_checked:
                check_tangent(derivative, tangent, tuple(leaf.shape), leaf.dtype)
            write = _core.write_tangent if derivative.is_in_place else _core.set_tangent
            write(leaf, _like(tangent, leaf))


def _can_have_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.kind in "fc"


def _as_operand(value: Any) -> Any:
    """Return a raw array as a Tensor, so that formulas applied to it call operators."""
    if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
        value = _core.plain_array(value)
    return value if _has_plain_methods(value) and not isinstance(value, np.ndarray) else as_tensor(value)


def _has_plain_methods(value: Any) -> bool:
    """Return whether this is not a raw array whose operators may differ from those of Tensors."""
    return type(value) is np.ndarray or isinstance(value, (Tensor, np.generic)) or not _core.is_array(value)


def _sum_of_formulas(
    op: OpOverload, formulas: Any, values: tuple[Any, ...], tangents: tuple[Any, ...], output: Any
) -> Any:
    """Sum the results of the formulas of all arguments that have tangents."""
    arguments = op.schema.arguments
    names = tuple([argument.name for argument in arguments])
    arrays = [i for i, argument in enumerate(arguments) if argument.type.contains_arrays]
    return _sum(
        formula(tangents[i], *[_named(name, names, values, output) for name in parameters_of(formula)[1:]])
        for i, formula in zip(arrays, formulas if isinstance(formulas, tuple) else (formulas,), strict=False)
        if formula is not None and any(tangent is not None for tangent in tree_leaves(tangents[i]))
    )


def _by_transposition(
    op: OpOverload, given: Any, values: tuple[Any, ...], tangents: tuple[Any, ...], output: Any
) -> Any:
    """Return the tangents of an operator that only has formulas for gradients, by transposing these."""
    names = tuple([argument.name for argument in op.schema.arguments])
    arrays = [i for i, argument in enumerate(op.schema.arguments) if argument.type.contains_arrays]

    def run(formula: Any, grads: Any) -> Any:
        return formula(grads, *[_named(name, names, values, output) for name in parameters_of(formula)[1:]])

    def backward(grads: Any) -> list[Any]:
        grads = tree_map(_conjugate, grads)
        if isinstance(given, Joint):
            parts = run(given.formula, grads)
            check_gradients(op, parts, len(arrays), False)
        else:
            formulas = given if isinstance(given, tuple) else (given,)
            parts = [None if formula is None else run(formula, grads) for formula in formulas]
        entries: list[Any] = [None] * len(names)
        for i, part in zip(arrays, parts, strict=False):
            entries[i] = tree_map(_conjugate, part)
        return entries

    return transposed(f"operator {op.name}", backward, Results(output, ()), tangents, False)


def _conjugate(value: Any) -> Any:
    """Return the conjugate. Formulas are transposed maps, while gradients belong to adjoint ones."""
    return value.conj() if _core.is_array(value) and value.dtype.kind == "c" else value


def _check_number(op: OpOverload, result: Any, found: Any) -> None:
    """Raise AutogradError unless formulas of a pack returned as many tangents as there are results."""
    n, given = len(tree_leaves(result)), len(tree_leaves(found))
    if n != given:
        raise AutogradError(f"operator {op.name}: jvp returned {given} tangents, expected {n}\n"
                            "return one per result, None for those without a derivative")


def check_tangent(derivative: Derivative, tangent: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise AutogradError if a result cannot have the value that a formula of a pack returned as its tangent."""
    named = f"operator {derivative.operator.name}: jvp returned an invalid tangent"
    if not _core.is_array(tangent):
        raise AutogradError(f"{named}: found {_core.a_type(tangent)}, expected an array of shape {shape}\n"
                            "return an array, or None for no tangent")
    found = tuple(tangent.shape)
    if found != shape and not (derivative.source.broadcasts and _repeats_to(found, shape)):
        raise AutogradError(f"{named}: found shape {found}, expected {shape}, the shape of the result\n"
                            "return a tangent of that shape")
    if tangent.dtype.kind == "c" and dtype.kind != "c":
        raise AutogradError(f"{named}: found dtype {tangent.dtype}, expected {dtype}, the dtype of the result\n"
                            "return its real part: tangent.real")


def _repeats_to(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether broadcasting repeats an array of shape `found` to `shape`."""
    try:
        return np.broadcast_shapes(found, shape) == shape
    except ValueError:
        return False


def _call(op: OpOverload, values: list[Any]) -> Any:
    """Call the functional variant of an operator, with one value per argument."""
    functional = _functional(op)
    schema = functional.schema
    positional = [value for argument, value in zip(schema.arguments, values, strict=True) if not argument.kw_only]
    named = {
        argument.name: value for argument, value in zip(schema.arguments, values, strict=True) if argument.kw_only
    }
    return functional(*positional, **named)


@lru_cache(maxsize=1024)
def _functional(op: OpOverload) -> Any:
    return getattr(getattr(ops, op.name.namespace or ""), op.name.name.removesuffix("_")).default


def _all_tangents(value: Any, tangents: Any) -> Any:
    """Return the tangents of an argument of a linear operator, with zeros for None."""
    if isinstance(value, (tuple, list)):
        return tuple([_all_tangents(item, tangent) for item, tangent in zip(value, tangents, strict=True)])
    if value is None or tangents is not None:
        return tangents
    return ops.np.zeros_like(value)


def _sum(tangents: Any) -> Any:
    total = None
    for tangent in tangents:
        if total is None:
            total = tangent
        elif isinstance(tangent, tuple):        # a tangent of several results
            total = tuple([_sum(pair) for pair in zip(total, tangent, strict=True)])
        elif tangent is not None:
            total = total + tangent
    return total


def _named(name: str, names: tuple[str, ...], values: tuple[Any, ...], output: Any) -> Any:
    """Return the value that a formula requires for a parameter of this name."""
    if name in names:
        return values[names.index(name)]
    if name == "result":
        return output
    argument, _, what = name.rpartition("_")
    return _described(values[names.index(argument)], what)


def _described(value: Any, what: str) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple([_described(item, what) for item in value])
    return tuple(getattr(value, "shape", ())) if what == "shape" else _dtype_of(value)


def _dtype_of(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else ops.np.full((), value).dtype


def _like(tangent: Any, tensor: Tensor) -> Any:
    """Convert a tangent to the shape and dtype of its tensor, and a NumPy scalar to an array."""
    if isinstance(tangent, np.generic):
        tangent = np.asarray(tangent)
    if tuple(tangent.shape) != tuple(tensor.shape):
        tangent = _core.expand(tangent, tuple(tensor.shape))
    if tangent.dtype == tensor.dtype:
        return tangent
    if tensor.dtype.kind != "c" and tangent.dtype.kind == "c":
        tangent = tangent.real
    return tangent.astype(tensor.dtype)


# --- Functions and custom operators ----------------------------------------------------------------------------------


def _by_custom_derivative(
    derivative: CustomDerivative, ctx: Context, values: tuple[Any, ...], result: Any, interpreter: Any
) -> None:
    tangents = [_tangent(leaf, interpreter) for leaf in tree_leaves(values)]
    found = _core.deriving(derivative.jvp, ctx, nested_tangents(values, tangents, interpreter, ctx.materialize))
    give_tangents(derivative.name.removesuffix("Backward"), ctx, result, found, interpreter)


def nested_tangents(
    values: tuple[Any, ...], tangents: list[Any], interpreter: Any, materialize: bool
) -> tuple[Any, ...]:
    """Return one tangent per argument, nested like the arguments, with zeros for None if the user asks for them."""
    leaves, spec = tree_flatten(values)
    given = [
        _tangent_for_user(value, tangent, interpreter, materialize)
        for value, tangent in zip(leaves, tangents, strict=True)
    ]
    nested: tuple[Any, ...] = tree_unflatten(given, spec)
    return nested


def _tangent_for_user(value: Any, tangent: Any, interpreter: Any, materialize: bool) -> Any:
    if tangent is not None:
        return as_tensor(tangent)
    if materialize and _core.is_array(value) and value.dtype.kind in "fc":
        return as_tensor(ops.np.zeros_like(_core.value_below(value, interpreter)))
    return None


def give_tangents(name: str, ctx: Context, output: Any, found: Any, interpreter: Any) -> None:
    """Check the tangents that a user's jvp returned, and set them on the outputs."""
    outputs = output if isinstance(output, tuple) else (output,)
    entries = found if isinstance(output, tuple) and isinstance(found, (tuple, list)) else (found,)
    if len(entries) != len(outputs):
        raise AutogradError(f"the jvp of {name} returned {len(entries)} tangents, expected {len(outputs)}\n"
                            "return one per output")
    for i, (value, entry) in enumerate(zip(outputs, entries, strict=True)):
        leaves, spec = tree_flatten(value)
        tangents = leaves_like(spec, entry)
        if tangents is None:
            raise AutogradError(f"the jvp of {name} returned tangents of structure "
                                f"{described_structure(tree_flatten(entry)[1])} for output {i}, expected "
                                f"{described_structure(spec)}\n"
                                "return one tangent for each array of the output")
        for leaf, tangent in zip(leaves, tangents, strict=True):
            if isinstance(leaf, Tensor) and _core.is_owned_by(leaf, interpreter):
                _give_tangent(name, ctx, i, leaf, tangent)


def _give_tangent(name: str, ctx: Context, i: int, leaf: Tensor, tangent: Any) -> None:
    if leaf.dtype.kind not in "fc" or _core.is_any_of(leaf, ctx.non_differentiable):
        return
    if tangent is None:
        raise AutogradError(f"the jvp of {name} returned None for output {i}, which is differentiable\n"
                            "return a tangent, such as zeros, or mark the output as non-differentiable")
    if not _core.is_array(tangent) or tuple(tangent.shape) != tuple(leaf.shape):
        what = f"of shape {tuple(tangent.shape)}" if _core.is_array(tangent) else f"that is {_core.a_type(tangent)}"
        raise AutogradError(f"the jvp of {name} returned a tangent {what} for output {i}, expected a Tensor of shape "
                            f"{tuple(leaf.shape)}\nreturn a tangent of that shape")
    if tangent.dtype.kind == "c" and leaf.dtype.kind != "c":
        raise AutogradError(f"the jvp of {name} returned a complex tangent for output {i}, of dtype {leaf.dtype}\n"
                            "return its real part: tangent.real")
    lower = tangent if isinstance(leaf.array, Tensor) else as_raw_constant(tangent)
    write = _core.write_tangent if _core.is_any_of(leaf, ctx.dirty) else _core.set_tangent
    write(leaf, _like(lower, leaf))


# --- tangents of views -----------------------------------------------------------------------------------------------


def has_no_positions(whole: Any) -> bool:
    """Return whether a memory has no data, in a run that nothing records, which shows only shapes and dependences.

    Such a run needs no positions: every element of a tangent depends on everything that was written to the memory.
    """
    return (type(whole) is MetaArray and _core.current_state().default_backend == "Meta"
            and not _core.active_modes())


def part_of(tangent: Any, part: Any, whole: Any) -> Any:
    """Return the tangent of a view from that of its memory."""
    if has_no_positions(whole):
        return ops.np.astype(ops.np.broadcast_to(ops.np.sum(tangent), tuple(part.shape)), part.dtype)
    return gather(tangent, positions(part, whole), is_part(part, whole))


def part_replaced(tangent: Any, new: Any, part: Any, whole: Any) -> Any:
    """Return the tangent of a memory after a view of it was written to."""
    if overlaps_itself(part):
        problem = WriteProblem.OVERLAP
        raise AutogradError(
            f"an array of shape {tuple(part.shape)} cannot be written to in place: {problem.why}\n{problem.remedy}")
    shape, real = tuple(whole.shape), is_part(part, whole)
    if tangent is None:
        tangent = ops.np.zeros_like(new, shape=shape, dtype=whole.dtype)
    if has_no_positions(whole):
        return ops.np.add(tangent, ops.np.astype(ops.np.sum(new), whole.dtype))
    return whole_of(ops.np.index_put(elements(tangent, real), positions(part, whole), new), shape, real)


_core.connect(propagate=propagate, part_of=part_of, part_replaced=part_replaced, has_no_positions=has_no_positions,
              check_tangent=check_tangent)
