"""`opcheck`, which checks that an operator does what its schema and registrations declare."""

from __future__ import annotations

import inspect
import keyword
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pydispatch import _core
from pydispatch._core import DispatchKeySet, OpOverload, OpOverloadPacket, TableEntry, Tensor, is_array
from pydispatch._registry.messages import shorten
from pydispatch._registry.registrations import derivative_of
from pydispatch._registry.tables import table_entry
from pydispatch.autograd import enable_grad, no_grad
from pydispatch.backends.meta import MetaArray
from pydispatch.exceptions import DataDependentError, NoDataError, NoDerivativeError, OpCheckError
from pydispatch.keys import DispatchKey
from pydispatch.library.batching import batching_of, filled_arguments
from pydispatch.library.checks import is_view
from pydispatch.library.targets import Definition
from pydispatch.modes import default_backend
from pydispatch.ops import ops
from pydispatch.schema import Argument, Return
from pydispatch.testing.compositions import Subject, check_compositions
from pydispatch.testing.gradchecking import copy_with_layout, gradcheck, gradgradcheck
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

Array = NDArray[Any]


def opcheck(
    op: OpOverload | OpOverloadPacket | Definition, args: Sequence[Any], kwargs: dict[str, Any] | None = None, *,
    test_utils: str | Sequence[str] = "ALL", raise_exception: bool = True, atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, str | Exception]:
    """Check an operator on one sample call.

    The checks are:

    - test_schema: arguments are written to exactly where declared. Results share memory with arguments, and with each
      other, only where declared.
    - test_determinism: equal calls give equal results in separate memory. An operator with the tag
      "nondeterministic_seeded" passes.
    - test_autograd_registration: there is a formula or a composite, not both. A backend kernel builds no graph.
    - test_faketensor: the fake (Meta) kernel gives as many results, of the same shapes and dtypes. A fake that reports
      that a size depends on data passes.
    - test_gradcheck, test_forward_mode, test_gradgradcheck: gradients, tangents and second derivatives are right. An
      operator without forward mode passes the second.
    - test_transforms: vmap gives the same as separate calls for the examples, alone and composed with grad and jvp in
      either order. Second derivatives by each two of grad and jvp agree with finite differences. An operator passes if
      it refuses to be batched (NotImplementedError, or shapes that depend on data).

    Derivatives are checked for Tensors that require grad, best in double precision. Without any, these checks pass.
    Every check works on copies.

    Parameters
    ----------
    op
        The operator.
    args, kwargs
        The arguments of the sample call.
    test_utils
        The names of the checks to run, or "ALL".
    raise_exception
        Whether to raise at the first failure.
    atol, rtol
        The tolerances of all comparisons. Pass both or none. Without them, equal calls must give identical results.

    Returns
    -------
    dict
        "SUCCESS" or the exception for each check. If the kernel for these arguments does not take every argument of the
        schema, "unsupported" names the others.

    Raises
    ------
    OpCheckError
        At the first failure, if `raise_exception` is True.
    ValueError
        For a value that is not an operator, for unknown checks or an empty list of them, for one tolerance without the
        other, and for arguments without data.

    Examples
    --------
    >>> import numpy as np
    >>> from pydispatch import Tensor, ops, testing
    >>> x = Tensor(np.linspace(0.5, 1.0, 3), requires_grad=True)
    >>> set(testing.opcheck(ops.np.sin, (x,)).values())
    {'SUCCESS'}
    """
    overload = _overload(op, args, kwargs or {})
    sample = _Sample(overload, overload.bind(args, kwargs or {}), *_tolerances(atol, rtol))
    _check_data(sample)
    outcome: dict[str, str | Exception] = {}
    for name in _chosen(test_utils):
        try:
            CHECKS[name](sample)
            outcome[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck: {overload.name}: {name} failed: {error}") from error
            outcome[name] = error
    unsupported = _unsupported(sample)
    return outcome | {"unsupported": ", ".join(unsupported)} if unsupported else outcome


def _unsupported(sample: _Sample) -> tuple[str, ...]:
    """Return the arguments that the kernel for these values does not take."""
    leaves = _arrays(sample.values)
    if not leaves:
        return ()
    entry = table_entry(sample.op, DispatchKeySet(*map(_core.keys_of, leaves)).highest)
    return () if entry is None else entry.unsupported_names


class _Sample(NamedTuple):
    """An operator and one value for each argument of its schema."""

    op: OpOverload
    values: tuple[Any, ...]
    atol: float | None
    rtol: float | None

    @property
    def arguments(self) -> Iterator[tuple[Argument, Any]]:
        return zip(self.op.schema.arguments, self.values, strict=True)

    @property
    def requires_grad(self) -> bool:
        return any(map(_requires_grad, tree_leaves(self.values)))


class _CheckedCall(NamedTuple):
    """The arguments of one call, and its results."""

    values: tuple[Any, ...]
    results: tuple[Any, ...]        # one per return of the schema


def _overload(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> OpOverload:
    if isinstance(args, (str, Tensor)) or not isinstance(args, Sequence):
        raise ValueError(f"opcheck: args is {_core.a_type(args)}, expected a tuple of arguments\npass (x,)")
    if isinstance(op, OpOverloadPacket):
        op = op.resolve(*args, **kwargs)
    elif isinstance(op, Definition):
        op = op.operator
    if not isinstance(op, OpOverload):
        raise ValueError(
            f"opcheck: op is {shorten(op)}, expected an OpOverload, an OpOverloadPacket or the result of custom_op\n"
            "pass pydispatch.ops.<namespace>.<name>"
        )
    return op


def _tolerances(atol: float | None, rtol: float | None) -> tuple[float | None, float | None]:
    if (atol is None) != (rtol is None):
        raise ValueError("opcheck: only one of atol and rtol was given\npass both or neither")
    return atol, rtol


def _chosen(test_utils: str | Sequence[str]) -> tuple[str, ...]:
    if test_utils == "ALL":
        return tuple(CHECKS)
    names = (test_utils,) if isinstance(test_utils, str) else test_utils
    if not isinstance(names, (list, tuple)) or not names or not set(names) <= CHECKS.keys():
        raise ValueError(
            f"opcheck: test_utils is {shorten(test_utils)}, expected test_utils to be subset of {list(CHECKS)}\n"
            'pass a name, a list of names, or "ALL"'
        )
    return tuple(names)


def _check_data(sample: _Sample) -> None:
    for argument, value in sample.arguments:
        for leaf in _arrays(value):
            if not isinstance(leaf, (np.ndarray, np.generic)):
                raise ValueError(
                    f"opcheck: operator {sample.op.name}: argument {argument.name!r} holds an array of type "
                    f"{type(leaf).__name__}, expected NumPy's: opcheck runs kernels and compares values\n"
                    "pass arrays with data, or Tensors over them"
                )


# --- calls on copies -------------------------------------------------------------------------------------------------


def _raw(value: Any) -> Any:
    return value.array if isinstance(value, Tensor) else value


def _arrays(value: Any) -> list[Any]:
    """Return the arrays in a value, without their Tensors."""
    return [_raw(leaf) for leaf in tree_leaves(value) if is_array(leaf)]


def _memories(value: Any) -> list[Array]:
    """Return the arrays in a value that can be written to or share memory."""
    return [array for array in _arrays(value) if isinstance(array, np.ndarray)]


def _map_arrays(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply `change` to the arrays in a value. Tensors become new, untracked Tensors."""

    def map_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return Tensor(change(leaf.array))
        return change(leaf) if is_array(leaf) else leaf

    return tree_map(map_leaf, value)


def _copy_array(array: Any) -> Any:
    return copy_with_layout(array) if isinstance(array, np.ndarray) else array      # scalars are immutable


def _copied(values: tuple[Any, ...]) -> tuple[Any, ...]:
    copies: tuple[Any, ...] = _map_arrays(_copy_array, values)
    return copies


def _call(op: OpOverload, values: tuple[Any, ...]) -> _CheckedCall:
    args, kwargs = op.strip_defaults(values)
    return _CheckedCall(values, _per_return(op, op(*args, **kwargs)))


def _call_untracked(sample: _Sample) -> _CheckedCall:
    with no_grad():
        return _call(sample.op, _copied(sample.values))


def _per_return(op: OpOverload, result: Any) -> tuple[Any, ...]:
    n_returns = len(op.schema.returns)
    return () if n_returns == 0 else (result,) if n_returns == 1 else tuple(result)


# --- test_schema -----------------------------------------------------------------------------------------------------


def check_schema(sample: _Sample) -> None:
    """Check that arguments are written to, and results share memory, as declared."""
    values = _copied(sample.values)
    before = [_contents(value) for value in values]
    with no_grad():
        call = _call(sample.op, values)
    for argument, value, contents in zip(sample.op.schema.arguments, values, before, strict=True):
        _check_writes(sample, argument, changed=_contents(value) != contents)
    _check_shared_with_arguments(sample.op, call)
    _check_shared_among_results(sample.op, call)


def _contents(value: Any) -> list[Any]:
    """Return the contents of the arrays and of the memory that they view, to detect writes to either."""
    return [(a.shape, a.strides, a.dtype, _core.address(a), a.tobytes(), _owner(a).tobytes())
            for a in _memories(value)]


def _owner(array: Array) -> Array:
    """Return the array that owns the memory of this one."""
    base: Any = array
    while base is not None:
        if isinstance(base, np.ndarray):
            array = base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return array


def _check_writes(sample: _Sample, argument: Argument, changed: bool) -> None:
    if changed and not argument.mutable:
        raise OpCheckError(
            f"operator {sample.op.name}: argument {argument.name!r} is not defined as mutable but was mutated\n"
            f'declare it "Tensor(a!) {argument.name}", or write to a copy in the kernel'
        )
    if argument.mutable and not changed and not _tries_to_write(sample, argument):
        raise OpCheckError(
            f"operator {sample.op.name}: argument {argument.name!r} is defined as mutable but was not mutated\n"
            f'declare it "Tensor {argument.name}", or pass arguments for which the kernel writes to it'
        )


def _tries_to_write(sample: _Sample, argument: Argument) -> bool:
    """Return whether the kernel writes to an argument without changing its values."""
    values = _copied(sample.values)
    targets = _memories(values[sample.op.schema.arguments.index(argument)])
    if all(target.size == 0 for target in targets):
        return True
    for target in targets:
        target.flags.writeable = False
    try:
        with no_grad():
            _call(sample.op, values)
    except Exception:
        return True
    return False


def _share_memory(left: Array, right: Array) -> bool:
    if 0 in (left.nbytes, right.nbytes):
        return _owner(left) is _owner(right) and _owner(left).nbytes > 0
    return _owner(left) is _owner(right) or np.may_share_memory(left, right)


def _check_shared_with_arguments(op: OpOverload, call: _CheckedCall) -> None:
    schema = op.schema
    for i, (result, value) in enumerate(zip(schema.returns, call.results, strict=True)):
        declared = _aliased(op, result)
        for position, argument in enumerate(schema.arguments):
            if position not in declared and _any_shared(_memories(value), _memories(call.values[position])):
                raise OpCheckError(
                    f"operator {op.name}: result {i} is not defined to alias output but was aliasing argument "
                    f"{argument.name!r}\ndeclare Tensor(a) {argument.name} and -> Tensor(a), or return a copy"
                )


def _aliased(op: OpOverload, result: Return) -> frozenset[int]:
    """Return the positions of the arguments whose memory a result may share."""
    written = _core.mutated_argument(op.schema.arguments, result)
    return frozenset(_core.aliased_arguments(op.schema.arguments, result)) | ({written} - {-1})


def _any_shared(left: Sequence[Array], right: Sequence[Array]) -> bool:
    return any(_share_memory(one, other) for one in left for other in right)


def _check_shared_among_results(op: OpOverload, call: _CheckedCall) -> None:
    arrays = [
        (i, _aliased(op, result), array)
        for i, (result, value) in enumerate(zip(op.schema.returns, call.results, strict=True))
        for array in _memories(value)
    ]
    for (i, one, left), (k, other, right) in combinations(arrays, 2):
        if not one & other and _share_memory(left, right):
            where = f"two arrays of result {i}" if i == k else f"results {i} and {k}"
            raise OpCheckError(
                f"operator {op.name}: {where} are aliasing each other, but are not defined to\n"
                "return a copy of one of them"
            )


# --- test_determinism ------------------------------------------------------------------------------------------------


def check_determinism(sample: _Sample) -> None:
    """Check that equal calls give equal results, in separate memory."""
    if "nondeterministic_seeded" in sample.op.tags:
        return
    first = _call_untracked(sample)
    for _ in range(2):
        again = _call_untracked(sample)
        _check_same_results(sample, first, again)
        if _any_shared(_memories(first.results), _memories(again.results)):
            raise OpCheckError(
                f"operator {sample.op.name}: two calls returned the same memory\n"
                "return a new array from every call: a write to one result would change the other"
            )


def _check_same_results(sample: _Sample, first: _CheckedCall, again: _CheckedCall) -> None:
    for what, one, other in (
        *((f"result {i}", *pair) for i, pair in enumerate(zip(first.results, again.results, strict=True))),
        *((f"the content of argument {argument.name!r} after the call", *pair) for argument, *pair
          in zip(sample.op.schema.arguments, first.values, again.values, strict=True) if argument.mutable),
    ):
        leaves, others = tree_leaves(one), tree_leaves(other)
        if len(leaves) != len(others) or not all(map(_same_values, [sample] * len(leaves), leaves, others)):
            raise OpCheckError(
                f"operator {sample.op.name}: {what} differs between calls with equal arguments: first {shorten(one)}, "
                f"then {shorten(other)}\nmake the kernel depend on its arguments only, tag the operator "
                '"nondeterministic_seeded", or pass atol and rtol'
            )


def _same_values(sample: _Sample, one: Any, other: Any) -> bool:
    one, other = _raw(one), _raw(other)
    if not is_array(one) or not is_array(other):
        return type(one) is type(other) and bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    inexact = one.dtype.kind in "fc"
    if sample.atol is None or sample.rtol is None or not inexact:
        return np.array_equal(one, other, equal_nan=inexact)
    return np.allclose(one, other, rtol=sample.rtol, atol=sample.atol, equal_nan=True)


# --- test_autograd_registration --------------------------------------------------------------------------------------


def check_autograd_registration(sample: _Sample) -> None:
    """Check that the operator has exactly one derivative, and that it is used."""
    _check_formula_is_used(sample.op)
    if sample.requires_grad:
        _check_kernel_builds_no_graph(sample)
        with enable_grad():
            _call(sample.op, _tracked(sample))      # raises if an operator has no derivative


def _kernel_above(op: OpOverload) -> TableEntry | None:
    """Return the entry at the autograd key, which runs for Tensors before the tape, or None if it falls through."""
    entry = table_entry(op, DispatchKey("AutogradCPU"))
    return None if entry is None or entry.is_fallthrough else entry


def _check_formula_is_used(op: OpOverload) -> None:
    above, handle = _kernel_above(op), derivative_of(op)
    if above is not None and handle is not None and not getattr(handle.derivative, "missing", None):
        raise OpCheckError(
            f"operator {op.name}: its derivative, registered at {handle.site}, is never used: the kernel "
            f"{above.kernel.debug} runs instead [{above.label}]\nremove one of the two registrations"
        )


def _check_kernel_builds_no_graph(sample: _Sample) -> None:
    """Check that a backend kernel builds no graph. It gets raw arrays, so a graph would end there."""
    entry = table_entry(sample.op, DispatchKey("CPU"))
    if entry is None or not entry.is_raw or entry.kernel.boxed or entry.kernel.with_keyset:
        return
    fill = entry.kernel.fit(sample.op.schema).filled
    args, kwargs = filled_arguments(sample.op, tree_map(_raw, _copied(sample.values)), fill)
    with enable_grad():
        result = entry.kernel.function(*args, **kwargs)
    if any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in tree_leaves(result)):
        raise OpCheckError(
            f"operator {sample.op.name}: the kernel {entry.kernel.debug} is incorrectly registered: it builds a "
            f"graph, but is not an autograd kernel [{entry.label}], so its graph is lost\n"
            "register its formula with register_autograd, or a function made of operators under "
            "CompositeImplicitAutograd"
        )


def _tracked(sample: _Sample) -> tuple[Any, ...]:
    """Return copies that require grad if the values do. Copies that the operator writes to are not leaves."""
    return tuple([tree_map(partial(_tracked_leaf, argument), value) for argument, value in sample.arguments])


def _tracked_leaf(argument: Argument, leaf: Any) -> Any:
    copy = _map_arrays(_copy_array, leaf)
    if isinstance(copy, Tensor) and leaf.requires_grad:
        copy.requires_grad_()
        return ops.np.copy(copy) if argument.mutable else copy
    return copy


# --- test_faketensor -------------------------------------------------------------------------------------------------


def check_fake(sample: _Sample) -> None:
    """Check that on arrays without data the operator gives as many results, of the same shapes and dtypes."""
    real = _call_untracked(sample)
    try:
        with default_backend("Meta"), no_grad():
            fake = _call(sample.op, tuple([_without_data(*pair) for pair in sample.arguments]))
    except NoDataError:
        raise
    except DataDependentError:
        return
    for i, (one, other) in enumerate(zip(real.results, fake.results, strict=True)):
        _check_same_metadata(sample.op, i, one, other)
    for i, declared in enumerate(sample.op.schema.returns):
        _check_fake_views(sample.op, i, _aliased(sample.op, declared), fake)


def _is_index(argument: Argument) -> bool:
    """Return whether the values of numbers and masks in this argument can determine shapes."""
    return str(argument.type) == "Any"


def _without_data(argument: Argument, value: Any) -> Any:
    is_index = _is_index(argument)

    def meta(array: Any) -> Any:
        if is_index and (not isinstance(array, np.ndarray) or array.dtype == np.bool_):
            return array
        return MetaArray(array.shape, array.dtype)

    return _map_arrays(meta, value)


def _check_same_metadata(op: OpOverload, i: int, real: Any, fake: Any) -> None:
    reals, fakes = tree_leaves(real), tree_leaves(fake)
    if len(reals) != len(fakes):
        raise _fake_error(op, f"result {i} holds {len(fakes)} values", f"{len(reals)}")
    for one, other in zip(reals, fakes, strict=True):
        if not is_array(one):
            if type(one) is not type(other):
                raise _fake_error(op, f"result {i} is {_core.a_type(other)}", _core.a_type(one))
            continue
        one, other = _raw(one), _raw(other)
        if not isinstance(other, MetaArray):
            raise _fake_error(op, f"result {i} is {_core.a_type(other)}", "a MetaArray")
        if other.shape != one.shape:
            raise _fake_error(op, f"result {i} has shape {other.shape}", f"{one.shape}: Shapes are not equal")
        if other.dtype != one.dtype:
            raise _fake_error(op, f"result {i} has dtype {other.dtype}", f"{one.dtype}: dtypes are not equal")


def _check_fake_views(op: OpOverload, i: int, declared: frozenset[int], fake: _CheckedCall) -> None:
    bases = [array if array.base is None else array.base for array in _arrays(fake.results[i])
             if isinstance(array, MetaArray)]
    for position, value in enumerate(fake.values):
        if position not in declared and any(base is array for base in bases for array in _arrays(value)):
            name = op.schema.arguments[position].name
            raise _fake_error(op, f"result {i} is argument {name!r} or a view of it", "a new array")


def _fake_error(op: OpOverload, found: str, expected: str) -> OpCheckError:
    return OpCheckError(
        f"operator {op.name}: its fake does not agree with its kernel: {found}, expected {expected}\n"
        "correct the function that is registered with register_fake, or under Meta"
    )


# --- derivatives -----------------------------------------------------------------------------------------------------


def check_gradients(sample: _Sample) -> None:
    """Check that gradients agree with finite differences."""
    if sample.requires_grad:
        with _single_precision_is_known():
            gradcheck(_as_function(sample), sample.values, **_precision(sample))


def check_forward_mode(sample: _Sample) -> None:
    """Check that tangents agree with finite differences, if the operator has forward mode."""
    if sample.requires_grad:
        with _single_precision_is_known(), suppress(NoDerivativeError):
            gradcheck(
                _as_function(sample), sample.values, check_forward_ad=True, check_backward_ad=False,
                **_precision(sample),
            )


def check_second_gradients(sample: _Sample) -> None:
    """Check that second derivatives agree with finite differences of gradients."""
    if sample.requires_grad:
        with _single_precision_is_known():
            gradgradcheck(_as_function(sample), sample.values, **_precision(sample))


def _as_function(sample: _Sample) -> Callable[..., Any]:
    """Return the operator as a function of one value per argument that does not write to them.

    It copies the arguments that the operator writes to, and returns the copies after the results.
    """
    op, arguments = sample.op, sample.op.schema.arguments

    def function(*values: Any) -> Any:
        values = tuple([
            tree_map(_copy_at_this_interpreter, value) if argument.mutable else value
            for argument, value in zip(arguments, values, strict=True)
        ])
        call = _call(op, values)
        return call.results, [value for argument, value in zip(arguments, values, strict=True) if argument.mutable]

    function.__qualname__ = str(op.name)
    function.__signature__ = inspect.Signature([        # type: ignore[attr-defined]
        inspect.Parameter(_identifier(argument.name), inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for argument in arguments
    ])
    return function


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _copy_at_this_interpreter(leaf: Any) -> Any:
    """Copy an array, so that values of the innermost transform can be written to it even if it is a constant there."""
    return ops.np.zeros(leaf.shape, dtype=leaf.dtype) + leaf if is_array(leaf) else leaf


def _precision(sample: _Sample) -> dict[str, Any]:
    """Return the step and tolerances of finite differences, which are coarser in single precision."""
    single = any(
        isinstance(leaf, Tensor) and leaf.requires_grad and leaf.dtype not in (np.float64, np.complex128)
        for leaf in tree_leaves(sample.values)
    )
    options: dict[str, Any] = {"eps": 5e-3, "atol": 1e-2, "rtol": 1e-2} if single else {}
    if sample.atol is not None and sample.rtol is not None:
        options |= {"atol": sample.atol, "rtol": sample.rtol}
    return options


# --- test_transforms -------------------------------------------------------------------------------------------------


def check_transforms(sample: _Sample) -> None:
    """Check that the operator gives the same results under every composition of transforms."""
    if "nondeterministic_seeded" in sample.op.tags or (is_view(sample.op.schema) and batching_of(sample.op) is None):
        return
    leaves, spec = tree_flatten(sample.values)
    owners = [argument for argument, value in sample.arguments for _ in tree_leaves(value)]
    places = [i for i, leaf in enumerate(leaves) if _memories(leaf) and not _is_index(owners[i])]
    function = _as_function(sample)

    def on_arrays(*arrays: Any) -> tuple[Any, ...]:
        given = [tree_map(_raw, leaf) for leaf in leaves]
        for i, array in zip(places, arrays, strict=True):
            given[i] = array
        return tuple([leaf for leaf in tree_leaves(function(*tree_unflatten(given, spec))) if is_array(leaf)])

    options = {"eps": 1e-6, "atol": 1e-4, "rtol": 1e-3} | _precision(sample)
    check_compositions(Subject(
        f"operator {sample.op.name}", on_arrays, tuple([_copy_array(_raw(leaves[i])) for i in places]),
        differentiable=tuple([k for k, i in enumerate(places) if _requires_grad(leaves[i])]),
        written=tuple([k for k, i in enumerate(places) if owners[i].mutable]),
        exact=None if sample.atol is None or sample.rtol is None else (sample.atol, sample.rtol), **options,
    ))


def _requires_grad(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


@contextmanager
def _single_precision_is_known() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "grad(grad)?check: .* finite differences need", UserWarning)
        yield


CHECKS: dict[str, Callable[[_Sample], None]] = {
    "test_schema": check_schema,
    "test_determinism": check_determinism,
    "test_autograd_registration": check_autograd_registration,
    "test_faketensor": check_fake,
    "test_gradcheck": check_gradients,
    "test_forward_mode": check_forward_mode,
    "test_gradgradcheck": check_second_gradients,
    "test_transforms": check_transforms,
}
