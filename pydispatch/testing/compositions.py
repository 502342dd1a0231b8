"""Checks that a function gives the same results under every composition of transforms. `opcheck` uses them.

A batch is compared with separate calls for its examples, and a second derivative with finite differences of the first.
"""

# tests: tests/testing/test_opcheck.py
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pydispatch._core import Tensor
from pydispatch._registry.messages import shorten
from pydispatch.exceptions import DataDependentError, NoDerivativeError, OpCheckError, PerformanceWarning
from pydispatch.func import grad, jvp, vmap
from pydispatch.ops import ops
from pydispatch.tree import tree_leaves

Array = NDArray[Any]
Function = Callable[..., tuple[Any, ...]]
BATCH = 3


class Subject(NamedTuple):
    """A function of arrays that returns a tuple of arrays, and its arguments for a check.

    `differentiable` has the positions of the arguments to differentiate, `written` those of the arguments that are
    written to. `eps`, `atol` and `rtol` are the step and tolerances of finite differences. `exact` is (atol, rtol) for
    all other comparisons.
    """

    name: str
    function: Function
    arrays: tuple[Array, ...]
    differentiable: tuple[int, ...]
    written: tuple[int, ...]
    eps: float
    atol: float
    rtol: float
    exact: tuple[float, float] | None = None


def check_compositions(subject: Subject) -> None:
    """Raise OpCheckError for the first composition that differs. A function may refuse to be batched."""
    if not subject.arrays:
        return
    with _loops_are_fine():
        with suppress(NotImplementedError, DataDependentError):
            for dims in _dims(subject):
                _check_batch(subject, dims)
        if subject.differentiable:
            with suppress(NoDerivativeError):
                _check_second_derivatives(subject)


def _dims(subject: Subject) -> Iterator[tuple[int | None, ...]]:
    """Yield the batch axes to check.

    First all arguments are batched along the first or last axis, then each one together with those that are written to.
    """
    n = len(subject.arrays)
    yield (0,) * n
    yield (-1,) * n
    alone = [tuple([0 if k == i or k in subject.written else None for k in range(n)]) for i in range(n)]
    yield from (dims for dims in dict.fromkeys(alone) if None in dims)


def _check_batch(subject: Subject, dims: tuple[int | None, ...]) -> None:
    function, which = subject.function, subject.differentiable
    examples = [_example(subject, dims, number) for number in range(BATCH)]
    batch = [
        array if dim is None else _joined([example[i] for example in examples], dim)
        for i, (array, dim) in enumerate(zip(subject.arrays, dims, strict=True))
    ]
    singles = [function(*example) for example in examples]
    _compare(subject, f"vmap, in_dims={dims}", vmap(function, dims)(*batch), _stacked(singles))
    if not which or not _has_floats(singles[0]):
        return
    with suppress(NoDerivativeError):
        _check_derivatives(subject, dims, examples, batch)


def _check_derivatives(
    subject: Subject, dims: tuple[int | None, ...], examples: list[list[Array]], batch: list[Array]
) -> None:
    function, which = subject.function, subject.differentiable
    gradient = grad(_loss(function), which)
    slopes = [gradient(*example) for example in examples]
    _compare(subject, f"vmap(grad), in_dims={dims}", vmap(gradient, dims)(*batch), _stacked(slopes))
    total = grad(_sum_of_losses(vmap(function, dims), function), which)(*batch)
    expected = tuple([
        _joined(column, dims[i]) if dims[i] is not None else sum(column[1:], column[0])
        for i, column in zip(which, _columns(slopes), strict=True)
    ])
    _compare(subject, f"grad(vmap), in_dims={dims}", total, expected)
    with suppress(NoDerivativeError):
        _check_tangents(subject, dims, examples, batch)


def _check_tangents(
    subject: Subject, dims: tuple[int | None, ...], examples: list[list[Array]], batch: list[Array]
) -> None:
    function = subject.function

    def push(*arrays: Any) -> Any:
        return _pushed(subject, function, arrays)

    singles = [push(*example) for example in examples]
    expected = _stacked(singles)
    _compare(subject, f"vmap(jvp), in_dims={dims}", vmap(push, dims)(*batch), expected)
    tangents = [
        _joined([_direction(example[i]) for example in examples], dim) if dim is not None else _direction(array)
        for i, (array, dim) in enumerate(zip(batch, dims, strict=True))
    ]
    _compare(subject, f"jvp(vmap), in_dims={dims}",
             _pushed(subject, vmap(function, dims), tuple(batch), tangents), expected)


def _check_second_derivatives(subject: Subject) -> None:
    arrays, which = subject.arrays, subject.differentiable
    if not _has_floats(subject.function(*arrays)):
        return
    gradient = grad(_loss(subject.function), which)
    expected = _difference(subject, gradient)
    if any(leaf.dtype.kind not in "fc" for leaf in expected):
        return
    with suppress(NoDerivativeError):
        _compare(subject, "jvp(grad)", _pushed(subject, gradient, arrays), expected, exact=False)
    _compare(subject, "grad(grad)", _by_direction(subject, gradient), expected, exact=False)
    with suppress(NoDerivativeError):
        slope = grad(lambda *values: _weighed(_pushed(subject, subject.function, values)), which)(*arrays)
        along = sum(float(np.sum(np.conj(np.asarray(one)) * _direction(arrays[i])).real)
                    for i, one in zip(which, slope, strict=True))
        pushed = _difference(subject, lambda *values: (_weighed(_pushed(subject, subject.function, values)),))
        _compare(subject, "grad(jvp)", (np.array(along),), pushed, exact=False)


# --- losses and directions -------------------------------------------------------------------------------------------


def _by_direction(subject: Subject, gradient: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the Hessian times the direction, as the gradient of the gradient along the direction."""
    which = subject.differentiable

    def along(*values: Any) -> Any:
        parts = zip(which, gradient(*values), strict=True)
        return sum(_real(ops.np.sum(ops.np.conjugate(one) * _direction(subject.arrays[i]))) for i, one in parts)

    found: tuple[Any, ...] = grad(along, which)(*subject.arrays)
    return found


def _loss(function: Function) -> Callable[..., Any]:
    return lambda *values: _weighed(function(*values))


def _weighed(results: Sequence[Any]) -> Any:
    """Return a real number that depends on all differentiable results, with a different weight for each element."""
    return sum(_real(ops.np.sum(ops.np.multiply(leaf, _weights(leaf.shape, n, leaf.dtype))))
               for n, leaf in enumerate(results) if leaf.dtype.kind in "fc")


def _sum_of_losses(batched: Function, function: Function) -> Callable[..., Any]:
    """Return the sum of `_loss` over all examples, from the results of the whole batch."""

    def loss(*batch: Any) -> Any:
        return sum(_real(ops.np.sum(ops.np.multiply(leaf, _weights(tuple(leaf.shape)[1:], n, leaf.dtype))))
                   for n, leaf in enumerate(batched(*batch)) if leaf.dtype.kind in "fc")

    return loss


def _real(value: Any) -> Any:
    return ops.np.real(value) if value.dtype.kind == "c" else value


def _weights(shape: tuple[int, ...], seed: int, dtype: Any) -> Array:
    weights = np.random.default_rng(seed).uniform(0.5, 2.0, shape)
    return (weights + 0.5j).astype(dtype) if dtype.kind == "c" else weights.astype(dtype)


def _direction(array: Array) -> Array:
    """Return a direction for an array, which depends only on its shape and dtype."""
    return _weights(array.shape, 100, array.dtype) if array.dtype.kind in "fc" else np.zeros_like(array)


def _pushed(
    subject: Subject, function: Callable[..., Any], values: Sequence[Any], tangents: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Return the tangents of the differentiable results."""
    which = subject.differentiable

    def of_chosen(*chosen: Any) -> tuple[Any, ...]:
        given = list(values)
        for i, value in zip(which, chosen, strict=True):
            given[i] = value
        return tuple([leaf for leaf in function(*given) if leaf.dtype.kind in "fc"])

    along = [_direction(values[i]) if tangents is None else tangents[i] for i in which]
    found: tuple[Any, ...] = jvp(of_chosen, tuple([values[i] for i in which]), tuple(along))[1]
    return found


def _difference(subject: Subject, function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the derivative of a function along the direction, by central differences."""
    ends = []
    for sign in (1, -1):
        moved = list(subject.arrays)
        for i in subject.differentiable:
            moved[i] = moved[i] + (sign * subject.eps * _direction(moved[i])).astype(moved[i].dtype)
        ends.append([np.asarray(leaf) for leaf in function(*moved)])
    return tuple([(above - below) / (2 * subject.eps) for above, below in zip(*ends, strict=True)])


# --- examples --------------------------------------------------------------------------------------------------------


def _example(subject: Subject, dims: tuple[int | None, ...], number: int) -> list[Array]:
    """Return one example of a batch. Arguments with a batch axis differ slightly between examples."""
    return [
        array if dim is None or array.dtype.kind not in "fc" else array * array.dtype.type(1 + number / 64)
        for array, dim in zip(subject.arrays, dims, strict=True)
    ]


def _joined(arrays: list[Array], dim: int | None) -> Array:
    return np.stack(arrays, 0 if dim is None else dim)


def _columns(rows: list[Any]) -> list[list[Array]]:
    return [[np.asarray(leaf) for leaf in column] for column in zip(*rows, strict=True)]


def _stacked(rows: list[Any]) -> tuple[Array, ...]:
    """Stack the results of all examples. Raise DataDependentError if their shapes differ."""
    columns = _columns(rows)
    if any(len({array.shape for array in column}) > 1 for column in columns):
        raise DataDependentError("the shapes of the results depend on data")
    return tuple([np.stack(column) for column in columns])


def _has_floats(results: Sequence[Any]) -> bool:
    return any(leaf.dtype.kind in "fc" for leaf in results)


def _compare(subject: Subject, what: str, found: Any, expected: Any, *, exact: bool = True) -> None:
    lefts, rights = tree_leaves(found), tree_leaves(expected)
    for n, (left, right) in enumerate(zip(lefts, rights, strict=True)):
        left, right = _raw(left), np.asarray(right)
        if left.shape != right.shape or not _agree(left, right, subject, exact):
            oracle = "as for the examples one by one" if exact else "by finite differences"
            raise OpCheckError(
                f"{subject.name}: {what}: result {n} is {shorten(left)}, expected {shorten(right)}, {oracle}"
                "\ncorrect its backward, jvp or batching rule, or what it saves"
            )


def _agree(left: Array, right: Array, subject: Subject, exact: bool) -> bool:
    if left.dtype.kind not in "fc":
        return np.array_equal(left, right)
    if not exact:
        return np.allclose(left, right, rtol=subject.rtol, atol=subject.atol, equal_nan=True)
    atol, rtol = subject.exact or [float(np.finfo(left.dtype).eps) ** 0.75] * 2
    return np.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True)


def _raw(value: Any) -> Array:
    value = value.detach() if isinstance(value, Tensor) else value
    return np.asarray(value.array if isinstance(value, Tensor) else value)


@contextmanager
def _loops_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerformanceWarning)
        yield
