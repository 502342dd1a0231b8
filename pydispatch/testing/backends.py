"""`check_backend`: an operator computes on the arrays of a backend what it computes on NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pydispatch import func
from pydispatch._core import OpOverload, OpOverloadPacket, Tensor
from pydispatch.exceptions import NoDerivativeError, NoKernelError, OpCheckError, UntakenArgumentError
from pydispatch.ops import ops
from pydispatch.registry.registrations import derivative_of
from pydispatch.tree import tree_leaves, tree_map

SUCCESS = "SUCCESS"


def check_backend(
    op: OpOverload | OpOverloadPacket, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
    make: Callable[[np.ndarray[Any, Any]], Any], read: Callable[[Any], Any], rtol: float = 1e-7, atol: float = 1e-10,
) -> dict[str, str]:
    """Check an operator on one sample call with NumPy's arrays, which `make` turns into those of a backend.

    - value: the results have the shapes, dtypes and values that they have with NumPy's arrays; `read` makes those of
      NumPy of them.
    - grad, jvp, vmap: so have gradients and tangents by all floating-point arguments, and a batch of two equal calls.

    Gives "SUCCESS" for each check; or the first line of the NoKernelError or UntakenArgumentError that names what the
    backend lacks; or which error NumPy's arrays raise. Raises OpCheckError for anything else.
    """
    op = op.resolve(*args, **(kwargs or {})) if isinstance(op, OpOverloadPacket) else op
    outcome = {}
    for name, program in _programs(op, dict(kwargs or {}), args):
        try:
            expected = _quietly(program, lambda array: array)
        except Exception as error:
            outcome[name] = f"{type(error).__name__} with NumPy's arrays too"
            continue
        try:
            found = _quietly(program, make)
        except (NoKernelError, UntakenArgumentError) as error:
            outcome[name] = str(error).partition("\n")[0]
            continue
        except Exception as error:
            raise OpCheckError(f"check_backend: {op.name}: {name} failed: {type(error).__name__}: {error}") from error
        _compare(f"check_backend: {op.name}: {name}", found, expected, read, rtol, atol)
        outcome[name] = SUCCESS
    return outcome


Program = Callable[[Callable[[Any], Any]], Any]


def _quietly(program: Program, make: Callable[[Any], Any]) -> Any:
    """Run a program; numbers may be divided by zero."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return program(make)


def _programs(op: OpOverload, kwargs: dict[str, Any], args: Sequence[Any]) -> Iterator[tuple[str, Program]]:
    """The checks as functions of what makes arrays."""
    arguments = (tuple(args), kwargs)
    leaves = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, np.ndarray)]
    floats = [leaf for leaf in leaves if leaf.dtype.kind == "f"]

    def call(values: Sequence[Any], among: list[Any]) -> Any:
        by_identity = {id(leaf): value for leaf, value in zip(among, values, strict=True)}
        positional, named = tree_map(lambda leaf: by_identity.get(id(leaf), leaf), arguments)
        return op(*positional, **named)

    def total(*values: Any) -> Any:
        results = [leaf for leaf in tree_leaves(call(values, floats)) if _kind(leaf) == "f"]
        if not results:
            raise NoDerivativeError(f"operator {op.name}: no result has a floating-point dtype")
        return sum((ops.np.sum(ops.np.multiply(leaf, leaf)) for leaf in results[1:]),
                   start=ops.np.sum(ops.np.multiply(results[0], results[0])))

    def made(make: Callable[[Any], Any], among: list[Any]) -> list[Any]:
        return [make(leaf) for leaf in among]

    yield "value", lambda make: call(made(make, leaves), leaves)
    if floats and derivative_of(op) is not None:
        positions = tuple(range(len(floats)))
        yield "grad", lambda make: func.grad(total, argnums=positions)(*made(make, floats))
        yield "jvp", lambda make: func.jvp(total, tuple(made(make, floats)), tuple(made(make, floats)))
    if floats:
        yield "vmap", lambda make: func.vmap(lambda *values: call(values, floats))(
            *made(make, [np.stack([leaf, leaf]) for leaf in floats]))


def _kind(value: Any) -> str:
    """The kind of dtype, for arrays whose dtypes are those of NumPy or like them."""
    return str(getattr(getattr(value, "dtype", None), "kind", "f"))


def _compare(what: str, found: Any, expected: Any, read: Callable[[Any], Any], rtol: float, atol: float) -> None:
    ours, theirs = tree_leaves(found), tree_leaves(expected)
    if len(ours) != len(theirs):
        raise OpCheckError(f"{what} gave {len(ours)} results, expected {len(theirs)}")
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, (np.ndarray, np.generic)) and isinstance(one, (np.ndarray, np.generic)):
            raise OpCheckError(f"{what} gave an array of NumPy's, expected one of the backend")
        one = read(one.array if isinstance(one, Tensor) else one)
        if np.shape(one) != np.shape(other):
            raise OpCheckError(f"{what} gave the shape {np.shape(one)}, expected {np.shape(other)}")
        try:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise OpCheckError(f"{what} gave other values than NumPy's arrays: {error}") from None
