"""`check_backend`, which compares an operator on the arrays of a backend with NumPy's."""

# tests: tests/backends/test_battery.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pydispatch import func
from pydispatch._core import OpOverload, OpOverloadPacket, Tensor
from pydispatch._registry.registrations import derivative_of
from pydispatch.exceptions import NoDerivativeError, NoKernelError, OpCheckError, UnsupportedArgumentError
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves, tree_map

SUCCESS = "SUCCESS"


def check_backend(
    op: OpOverload | OpOverloadPacket, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None, *,
    make: Callable[[np.ndarray[Any, Any]], Any], read: Callable[[Any], Any], rtol: float = 1e-7, atol: float = 1e-10,
) -> dict[str, str]:
    """Check an operator on one sample call with NumPy arrays, which `make` converts to those of a backend.

    The checks are:

    - value: the results have the shapes, dtypes and values that they have with NumPy arrays.
    - grad, jvp, vmap: gradients and tangents of all floating-point arguments, and a batch of two equal calls, also
      agree.

    Parameters
    ----------
    op
        The operator.
    args, kwargs
        The arguments of the sample call.
    make
        Converts a NumPy array to an array of the backend.
    read
        Converts an array of the backend to a NumPy array.
    rtol, atol
        The tolerances of comparisons.

    Returns
    -------
    dict
        "SUCCESS" for each check that passes. Otherwise the first line of the NoKernelError or UnsupportedArgumentError
        that names what the backend lacks, or the error that NumPy arrays also raise.

    Raises
    ------
    OpCheckError
        If a check fails otherwise.
    """
    op = op.resolve(*args, **(kwargs or {})) if isinstance(op, OpOverloadPacket) else op
    outcome = {}
    for name, program in _programs(op, dict(kwargs or {}), args):
        try:
            expected = _quietly(program, lambda array: array)
        except Exception as error:
            outcome[name] = f"{type(error).__name__} also with NumPy arrays"
            continue
        try:
            found = _quietly(program, make)
        except (NoKernelError, UnsupportedArgumentError) as error:
            outcome[name] = str(error).partition("\n")[0]
            continue
        except Exception as error:
            raise OpCheckError(f"check_backend: {op.name}: {name} failed: {type(error).__name__}: {error}") from error
        _compare(f"check_backend: {op.name}: {name}", found, expected, read, rtol, atol)
        outcome[name] = SUCCESS
    return outcome


Program = Callable[[Callable[[Any], Any]], Any]


def _quietly(program: Program, make: Callable[[Any], Any]) -> Any:
    """Run a program without warnings, such as those for divisions by zero."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return program(make)


def _programs(op: OpOverload, kwargs: dict[str, Any], args: Sequence[Any]) -> Iterator[tuple[str, Program]]:
    """Yield the checks, as functions of a function that converts arrays."""
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
    """Return the kind of dtype, for arrays whose dtypes are those of NumPy or similar."""
    return str(getattr(getattr(value, "dtype", None), "kind", "f"))


def _compare(what: str, found: Any, expected: Any, read: Callable[[Any], Any], rtol: float, atol: float) -> None:
    ours, theirs = tree_leaves(found), tree_leaves(expected)
    if len(ours) != len(theirs):
        raise OpCheckError(f"{what} returned {len(ours)} results, expected {len(theirs)}")
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(other, (np.ndarray, np.generic)) and isinstance(one, (np.ndarray, np.generic)):
            raise OpCheckError(f"{what} returned a NumPy array, expected an array of the backend")
        one = read(one.array if isinstance(one, Tensor) else one)
        if np.shape(one) != np.shape(other):
            raise OpCheckError(f"{what} returned the shape {np.shape(one)}, expected {np.shape(other)}")
        try:
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise OpCheckError(f"{what} differs from the result with NumPy arrays: {error}") from None
