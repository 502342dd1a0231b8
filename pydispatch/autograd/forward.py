"""Forward mode: the tangents of results from those of arguments, by the derivative of each operator.

Everything here runs below the `jvp`, on values and tangents of the interpreter there. None is a tangent of zeros.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Context, Derivative, OpOverload, Tensor
from pydispatch.autograd.custom_derivatives import leaves_like, seal_for_forward
from pydispatch.autograd.values import as_raw_constant, as_tensor, values_below
from pydispatch.autograd.views import elements, gather, is_part, positions, whole_of
from pydispatch.exceptions import AutogradError
from pydispatch.ops import ops
from pydispatch.registry.derivatives import CustomDerivative, parameters_of
from pydispatch.tree import (
    described_structure,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)


def propagate(
    op: OpOverload, derivative: Derivative | CustomDerivative, values: tuple[Any, ...], result: Any, interpreter: Any
) -> None:
    """Give the results of a call their tangents."""
    if isinstance(derivative, Derivative):
        if not any(map(_can_have_tangent, tree_leaves(result))):
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
    if _core.operators_are_watched() or any(map(_is_of_other_backend, tree_leaves((below, tangents)))):
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
    else:
        found = _sum_of_formulas(op, source.vjp if source.jvp is None else source.jvp, below, tangents, output)
    for leaf, tangent in zip(tree_leaves(result), tree_leaves(found), strict=True):
        if tangent is not None and _can_have_tangent(leaf):
            write = _core.write_tangent if derivative.is_in_place else _core.set_tangent
            write(leaf, _like(tangent, leaf))


def _can_have_tangent(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.kind in "fc"


def _as_operand(value: Any) -> Any:
    """A raw array as a Tensor, so that what formulas do with it are calls of operators."""
    return as_tensor(value) if isinstance(value, np.ndarray) or _is_of_other_backend(value) else value


def _is_of_other_backend(value: Any) -> bool:
    """Is this a raw array whose methods are not those of Tensors?"""
    return _core.is_array(value) and not isinstance(value, (Tensor, np.ndarray, np.generic))


def _sum_of_formulas(
    op: OpOverload, formulas: Any, values: tuple[Any, ...], tangents: tuple[Any, ...], output: Any
) -> Any:
    """What the formulas of the arguments that have tangents add up to."""
    arguments = op.schema.arguments
    names = tuple([argument.name for argument in arguments])
    arrays = [i for i, argument in enumerate(arguments) if argument.type.contains_arrays]
    return _sum(
        formula(tangents[i], *[_named(name, names, values, output) for name in parameters_of(formula)[1:]])
        for i, formula in zip(arrays, formulas if isinstance(formulas, tuple) else (formulas,), strict=False)
        if formula is not None and any(tangent is not None for tangent in tree_leaves(tangents[i]))
    )


def _call(op: OpOverload, values: list[Any]) -> Any:
    """The functional variant of an operator, on one value per argument."""
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
    """The tangents of an argument of a linear operator, with zeros for None."""
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
        elif isinstance(tangent, tuple):        # of several results
            total = tuple([_sum(pair) for pair in zip(total, tangent, strict=True)])
        elif tangent is not None:
            total = total + tangent
    return total


def _named(name: str, names: tuple[str, ...], values: tuple[Any, ...], output: Any) -> Any:
    """What a formula asks for by this name."""
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
    """A tangent with the shape and dtype of what it is the tangent of; an array where it is a NumPy scalar."""
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
    """One tangent per argument, nested as the arguments are; zeros for None where the user wants them."""
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
    """Check what a user's jvp returned, and give it to the outputs."""
    outputs = output if isinstance(output, tuple) else (output,)
    entries = found if isinstance(output, tuple) and isinstance(found, (tuple, list)) else (found,)
    if len(entries) != len(outputs):
        raise AutogradError(f"the jvp of {name} returned {len(entries)} tangents, expected {len(outputs)}\n"
                            "return one per output")
    for i, (value, entry) in enumerate(zip(outputs, entries, strict=True)):
        leaves, spec = tree_flatten(value)
        tangents = leaves_like(spec, entry)
        if tangents is None:
            raise AutogradError(f"the jvp of {name} returned for output {i} tangents of structure "
                                f"{described_structure(tree_flatten(entry)[1])}, expected "
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
                            "return a tangent, zeros for instance, or mark the output as non-differentiable")
    if not _core.is_array(tangent) or tuple(tangent.shape) != tuple(leaf.shape):
        what = f"of shape {tuple(tangent.shape)}" if _core.is_array(tangent) else f"that is {_core.a_type(tangent)}"
        raise AutogradError(f"the jvp of {name} returned a tangent {what} for output {i}, expected a Tensor of shape "
                            f"{tuple(leaf.shape)}\nreturn one of that shape")
    if tangent.dtype.kind == "c" and leaf.dtype.kind != "c":
        raise AutogradError(f"the jvp of {name} returned a complex tangent for output {i}, of dtype {leaf.dtype}\n"
                            "return its real part: tangent.real")
    lower = tangent if isinstance(leaf.array, Tensor) else as_raw_constant(tangent)
    write = _core.write_tangent if _core.is_any_of(leaf, ctx.dirty) else _core.set_tangent
    write(leaf, _like(lower, leaf))


# --- tangents of views -----------------------------------------------------------------------------------------------


def part_of(tangent: Any, part: Any, whole: Any) -> Any:
    """The tangent of a view from that of its memory."""
    return gather(tangent, positions(part, whole), is_part(part, whole))


def part_replaced(tangent: Any, new: Any, part: Any, whole: Any) -> Any:
    """The tangent of a memory after a view of it was written to."""
    shape, real = tuple(whole.shape), is_part(part, whole)
    if tangent is None:
        tangent = ops.np.zeros_like(new, shape=shape, dtype=whole.dtype)
    return whole_of(ops.np.index_put(elements(tangent, real), positions(part, whole), new), shape, real)


_core.connect(propagate=propagate, part_of=part_of, part_replaced=part_replaced)
