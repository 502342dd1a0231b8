"""Generated batching rules, which vmap uses for operators that have none registered.

An operator with a registered derivative becomes another operator for a batch: `vmap(ns::name)`. The kernel and the
derivative of that one run the original's on all examples. The interpreters below call it once and record it once, and
modes see one operator. Other operators are called once per example.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from pydispatch import _core
from pydispatch._core import MetaArray, OpOverload, TableEntry, Tensor, Vmap
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._registry.kernels import Kernel
from pydispatch._registry.operators import schema_of
from pydispatch._registry.registrations import (
    DefinitionHandle,
    DerivativeHandle,
    KernelHandle,
    OperatorHandle,
    derivative_of,
)
from pydispatch._registry.tables import table_entry
from pydispatch.autograd.batched_derivatives import BatchedDerivative
from pydispatch.autograd.batches import BatchedArguments, Dims, counterpart, dims_of, entered_results
from pydispatch.autograd.randomness import check_shared, randomness_of
from pydispatch.autograd.values import as_raw_constant, bottom_of, zeros_beside
from pydispatch.exceptions import ConversionError, VmapError
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import filled_arguments
from pydispatch.library.checks import is_view
from pydispatch.library.derivatives import MissingDerivative
from pydispatch.library.fakes import META
from pydispatch.ops import ops
from pydispatch.schema import OperatorName
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Functions = dict[Any, Callable[..., Any] | None]  # kernels as functions of values, by kernel and by the types of values

BATCHABLE = "batchable"
"""The tag of operators whose kernels are made of operators, so that these kernels can run on a batch."""
RANDOM = "random"
"""The tag of operators that draw random numbers."""


def batch_by_default(op: OpOverload, interpreter: Vmap, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator that has no batching rule under vmap. The interpreter of vmap is absent during the call."""
    table = op.live_table
    derivative = None if table is None else table.derivative
    if isinstance(derivative, CustomDerivative) and not derivative.missing and not kwargs and _core.are_flat(args):
        family = _family_of(op, derivative)
        if not family.is_random:
            return _batch_flat(op, family, interpreter, args)
    values = op.bind(args, kwargs)
    leaves, spec = tree_flatten(values)
    below = _core.leaves_below(leaves, interpreter)
    dims = _core.dims_of_leaves(leaves, interpreter)
    if RANDOM in op.tags:
        return _draw(op, interpreter, values, dims)
    if has_own_derivative(op) or BATCHABLE in op.tags:
        derived_args, derived_kwargs = op.strip_defaults(tree_unflatten(below, spec))
        result = derived_operator(op, dims, interpreter.randomness)(*derived_args, **derived_kwargs)
    else:
        result = _run_loop(op, _batch(op, dims, interpreter.randomness), tree_unflatten(below, spec))
    return entered_results(interpreter, result, below, leaves)


def _batch_flat(op: OpOverload, family: _Family, interpreter: Vmap, args: tuple[Any, ...]) -> Any:
    """Call an operator that has a derivative and no pytree argument, as `batch_by_default` does but faster."""
    below = tuple(_core.leaves_below(args, interpreter))
    dims = _core.dims_of_leaves(args, interpreter)
    derived = _derived_in(family, op, dims + (None,) * (family.n_arguments - len(args)), interpreter.randomness)
    return entered_results(interpreter, derived(*below), below, args)


def _draw(op: OpOverload, interpreter: Vmap, values: tuple[Any, ...], dims: Dims) -> Any:
    """Call an operator that draws random numbers, once for all examples or once for each."""
    leaves, spec = tree_flatten(values)
    below = _core.leaves_below(leaves, interpreter)
    arguments: tuple[Any, ...] = tree_unflatten(below, spec)
    call = _with_values(op)
    if randomness_of(op, interpreter) == "same":
        in_dims = [0 if 0 in dims_of(value, interpreter) else None for value in values]
        check_shared(op, interpreter, in_dims, arguments)
        return call(*arguments)
    batch = _batch(op, dims, interpreter.randomness)
    result = batch.one_by_one(call, arguments, lambda: _of_no_examples(op, batch, arguments), interpreter.batch_size)
    return entered_results(interpreter, result, below, leaves)


def has_own_derivative(op: OpOverload) -> bool:
    """Return whether the operator is differentiated by users' functions."""
    handle = derivative_of(op)
    return handle is not None and isinstance(handle.derivative, CustomDerivative) and not handle.derivative.missing


# --- derived operators -----------------------------------------------------------------------------------------------


class DerivedDefinition(DefinitionHandle):
    """The definition of a derived operator: its parent, and the batches that it serves."""

    __slots__ = ("batch", "parent")

    def __init__(self, name: OperatorName, parent: OpOverload, batch: BatchedArguments, site: str) -> None:
        super().__init__(schema_of(parent).with_name(name), site, parent.alias_analysis, parent.tags, {})
        self.parent = parent
        self.batch = batch


def derived_operator(op: OpOverload, dims: Dims, randomness: str) -> OpOverload:
    """Return `op` for a batch: an operator with the same arguments, where those with a dim have their batch axis first.

    All results have their batch axis first. `dims` has an entry for each leaf of the arguments, with defaults filled
    in.
    """
    handle = derivative_of(op)
    if handle is None or not isinstance(handle.derivative, CustomDerivative):
        return _derive(op, _batch(op, dims, randomness), None)
    return _derived_in(_family_of(op, handle.derivative), op, dims, randomness)


class _Family(NamedTuple):
    """The operators derived from one while its table is in force, and facts that every call needs."""

    table: Any
    operators: dict[tuple[Dims, str], OpOverload]
    is_random: bool
    n_arguments: int


def _family_of(op: OpOverload, derivative: CustomDerivative) -> _Family:
    """Return the family of an operator. Its derivative holds the family, so both are freed with the operator."""
    family: _Family | None = derivative.derived
    table = op.live_table
    if family is None or family.table is not table:
        family = derivative.derived = _Family(table, {}, RANDOM in op.tags, len(op.schema.arguments))
    return family


def _derived_in(family: _Family, op: OpOverload, dims: Dims, randomness: str) -> OpOverload:
    derived = family.operators.get((dims, randomness))
    if derived is None:
        handle = derivative_of(op)
        assert handle is not None
        derived = family.operators[dims, randomness] = _derive(op, _batch(op, dims, randomness), handle.derivative)
    return derived


def _derive(op: OpOverload, batch: BatchedArguments, derivative: CustomDerivative | None) -> OpOverload:
    name = OperatorName(None, f"vmap({op.name})")
    site = op.site or "pydispatch"
    derived = OpOverload(name)
    known: Functions = {}
    n_arguments = len(op.schema.arguments)

    def forward(*args: Any, **kwargs: Any) -> Any:
        values = args if len(args) == n_arguments else derived.bind(args, kwargs)
        return _run_kernels(op, batch, values, known)

    def fake(*args: Any, **kwargs: Any) -> Any:
        return _run_fake(op, batch, derived.bind(args, kwargs))

    kernel = Kernel(forward, checks_aliasing=not is_view(op.schema))
    handles: list[OperatorHandle] = [
        DerivedDefinition(name, op, batch, site),
        KernelHandle(DispatchKey.CompositeExplicitAutograd, kernel, site),
        KernelHandle(META, Kernel(fake), site),
    ]
    if derivative is not None:
        handles.append(DerivativeHandle(_batched_derivative(derived, derivative, batch), site))
    for handle in handles:
        handle.operator = derived
        handle.active = True
    derived.registrations = handles
    return derived


def _batched_derivative(derived: OpOverload, derivative: CustomDerivative, batch: BatchedArguments) -> CustomDerivative:
    if derivative.missing:
        return MissingDerivative(derived, derivative.missing, refuses_calls=derivative.refuses_calls)
    return BatchedDerivative(derivative, batch)


def _batch(op: OpOverload, dims: Dims, randomness: str) -> BatchedArguments:
    other = "write its kernel with operators" if BATCHABLE in op.tags else (
        "define the operator with batchable=True if its kernel consists of operators")
    return BatchedArguments(
        f"operator {op.name}", dims, randomness,
        f'register a batching rule: pydispatch.library.register_vmap("{op.name}", rule), or {other}')


# --- kernels ---------------------------------------------------------------------------------------------------------


def _run_kernels(op: OpOverload, batch: BatchedArguments, values: tuple[Any, ...], known: Functions) -> Any:
    """Run the operator's kernel on a batch of raw arrays if it can take one, else the operator on each example."""
    function = _batchable_kernel(op, values, known)
    if function is not None:
        try:
            result = batch.at_once(function, values)
        except ConversionError:
            pass
        else:
            return as_raw_constant(result) if _core.is_array(result) else tree_map(as_raw_constant, result)
    return _run_loop(op, batch, values)


def _run_loop(op: OpOverload, batch: BatchedArguments, values: tuple[Any, ...]) -> Any:
    """Call the operator on each example, under any interpreters."""
    if is_view(op.schema):
        raise VmapError(
            f"operator {op.name}: vmap cannot generate a batching rule: its results share memory with arguments\n"
            f'register one: pydispatch.library.register_vmap("{op.name}", rule)'
        )
    return batch.one_by_one(_with_values(op), values, lambda: _of_no_examples(op, batch, values))


def _with_values(op: OpOverload) -> Callable[..., Any]:
    """Return the operator as a function of one value per argument."""

    def call(*values: Any) -> Any:
        args, kwargs = op.strip_defaults(values)
        return op(*args, **kwargs)

    return call


def _batchable_kernel(op: OpOverload, values: tuple[Any, ...], known: Functions) -> Callable[..., Any] | None:
    """Return the kernel for these arrays as a function of one value per argument, or None if it cannot take a batch."""
    kinds = op.live_table, *map(type, values)
    if kinds not in known:
        function = _found_kernel(op, values, known)
        if not _core.are_flat(values) or any(isinstance(value, Tensor) for value in values):
            return function         # the kernel also depends on the values inside
        known[kinds] = function
    return known[kinds]


def _found_kernel(op: OpOverload, values: tuple[Any, ...], known: Functions) -> Callable[..., Any] | None:
    if BATCHABLE not in op.tags:
        return None
    entry = _entry_for(op, values)
    if entry is None or entry.kernel.boxed or entry.kernel.with_keyset or entry.unsupported_names:
        return None
    if entry.kernel not in known:
        known[entry.kernel] = _taking_values(op, entry.kernel)
    return known[entry.kernel]


def _taking_values(op: OpOverload, kernel: Kernel) -> Callable[..., Any]:
    fill = kernel.fit(op.schema).filled
    if not any(argument.has_default or argument.kw_only for argument in op.schema.arguments):
        return kernel.function

    def call(*values: Any) -> Any:
        args, kwargs = filled_arguments(op, values, fill)
        return kernel.function(*args, **kwargs)

    return call


def _entry_for(op: OpOverload, values: tuple[Any, ...]) -> TableEntry | None:
    """Return the kernel for the raw arrays under all wrappers of these values."""
    leaves = values if _core.are_flat(values) else tree_leaves(values)
    keys = [_core.keys_of(bottom_of(leaf)) for leaf in leaves if _core.is_array(leaf)]
    return table_entry(op, reduce(or_, keys).highest)


# --- shapes ----------------------------------------------------------------------------------------------------------


def _run_fake(op: OpOverload, batch: BatchedArguments, values: tuple[Any, ...]) -> Any:
    """Run the operator on one example without data, and add the batch axis to its results."""
    leaves, spec = tree_flatten(values)
    size = batch.size(leaves) if any(dim is not None for dim in batch.dims) else 0
    examples = [
        leaf if dim is None else ops.np.zeros_like(leaf, shape=tuple(leaf.shape)[1:])
        for leaf, dim in zip(leaves, batch.dims, strict=True)
    ]
    result = _with_values(op)(*tree_unflatten(examples, spec))

    def with_batch(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        argument = counterpart(leaf, examples, leaves)
        return ops.np.zeros_like(leaf, shape=(size, *leaf.shape)) if argument is None else argument

    return tree_map(with_batch, result)


def _of_no_examples(op: OpOverload, batch: BatchedArguments, values: tuple[Any, ...]) -> Any:
    """Return the results of a batch of size zero, from a run of the operator on arrays without data."""
    if table_entry(op, META) is None:
        raise VmapError(
            f"operator {op.name}: vmap over no examples needs a fake implementation for the result's shape\n"
            f'register a fake: pydispatch.library.register_fake("{op.name}", fake)'
        )
    leaves, spec = tree_flatten(values)
    present = next((leaf for leaf in leaves if _core.is_array(leaf)), None)
    metas = [MetaArray(tuple(leaf.shape), leaf.dtype) if _core.is_array(leaf) else leaf for leaf in leaves]
    result = _run_fake(op, batch, tree_unflatten(metas, spec))

    def empty(leaf: Any) -> Any:
        if not _core.is_array(leaf):
            return leaf
        argument = counterpart(leaf, metas, leaves)
        if argument is not None:
            return argument
        return zeros_beside(present, (tuple(leaf.shape), leaf.dtype))

    return tree_map(empty, result)


_core.connect(batch_by_default=batch_by_default)
