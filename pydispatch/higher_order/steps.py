"""Loops step by step if unobserved: slices and stacks of NumPy arrays, and one recording of all steps.

A loop is one operator to every mode and transform. Without any, its steps need no separate interpreters. They are
recorded on the original values at the interpreter at which the loop is called, and the recording becomes one node.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch._core import Interpreter, StackedRows, Tensor
from pydispatch._registry.backends import dtype_of
from pydispatch.autograd.backward import edges_at
from pydispatch.autograd.values import Meta, as_raw_constant, as_tensor, bottom_of, meta_of
from pydispatch.exceptions import DispatchTypeError
from pydispatch.higher_order.closures import Arrays, FlatFunction, Step, bound, run_speculatively, show
from pydispatch.ops import ops


def in_steps(n_steps: int, reverse: bool = False) -> range:
    """Return the position of each step along the axis of the loop."""
    return range(n_steps - 1, -1, -1) if reverse else range(n_steps)


def slices(xs: Arrays, order: range) -> Iterable[Arrays]:
    """Return the slices of each step."""
    return zip(*[slices_of(x, order) for x in xs], strict=True) if xs else repeat((), len(order))


def slices_of(x: Any, order: range) -> Iterator[Any]:
    """Return the slices of one array, each made when its step begins."""
    if type(x) is Tensor and type(x.array) is np.ndarray:
        return _core.Rows(x.array[:: order.step])
    if type(x) is np.ndarray:
        return (x[i, ...] for i in order)
    return (ops.np.getitem(x, i) for i in order)


def stacked(rows: Sequence[Arrays] | StackedRows) -> Arrays:
    """Stack the results of the steps along axis 0."""
    if isinstance(rows, StackedRows):
        wholes = rows.stacks()
        if wholes is not None:
            return wholes
        rows = rows.in_order()
    return tuple([_stack(column) for column in columns_of(rows)])


def columns_of(rows: Sequence[Arrays]) -> list[list[Any]]:
    """Return the columns of the rows.

    This does not use `zip(*rows)`, which makes an iterator for each row. That many new objects trigger the garbage
    collector.
    """
    return [[row[k] for row in rows] for k in range(len(rows[0]))] if rows else []


def _stack(column: Sequence[Any]) -> Any:
    whole = _core.stack_of_arrays(column, False)
    return ops.np.stack(column) if whole is None else whole


def run_steps(step: Step, init: Arrays, slices: Iterable[Arrays]) -> tuple[Arrays, list[Arrays]]:
    """Return the last carry, and the other results of each step."""
    rows: list[Arrays] = []
    return _core.run_steps(step, init, slices, check_carry_of_scan, rows), rows


def run_steps_and_stack(
    step: Step, init: Arrays, slices: Iterable[Arrays], order: range, first: Arrays = ()
) -> Arrays:
    """Return the last carry, and the other results of the steps, stacked. `first` are those of a step before these."""
    rows = StackedRows(len(order), order.step < 0)
    if first:
        rows.append(first)
    carry = _core.run_steps(step, init, slices, check_carry_of_scan, rows)
    return (*carry, *stacked(rows))


def check_carry_of_scan(old: Sequence[Any], new: Sequence[Any]) -> None:
    """Check the carry of a step of `scan`."""
    check_carry("scan: combine", old, new)


def check_carry(who: str, old: Sequence[Any], new: Sequence[Any]) -> None:
    """Raise DispatchTypeError unless each array has the shape and dtype of the one that it replaces."""
    if len(old) != len(new):
        raise DispatchTypeError(f"{who} returns {len(new)} arrays as its carry, expected {len(old)}\n"
                                "return as many arrays as it gets")
    for i, (before, after) in enumerate(zip(old, new, strict=True)):
        if dtype_of(before) != dtype_of(after) or tuple(before.shape) != tuple(after.shape):
            raise DispatchTypeError(f"{who} returns {show(after)} for array {i} of the carry, expected {show(before)}\n"
                                    "keep the shape and dtype: cast init or the result, x.astype(dtype)")


# --- loops that nothing observes ---


def run_at_once(
    function: FlatFunction, init: Arrays, xs: Arrays, args: Arrays, order: range
) -> tuple[Arrays, tuple[Tensor, ...]] | None:
    """Run an unobserved loop, and return its results and the captured Tensors, which the first step shows.

    Return None if a run without data has to show them.
    """
    init, args = tuple(map(as_tensor, init)), tuple(map(as_tensor, args))
    rest = iter(slices(tuple(map(as_tensor, xs)), order))
    found = run_speculatively(function, (*init, *next(rest), *args))
    if found is None:
        return None
    results, captured = found
    n = len(init)
    check_carry_of_scan(init, results[:n])
    return run_steps_and_stack(bound(function, args), results[:n], rest, order, results[n:]), captured


# --- one recording of all steps --------------------------------------------------------------------------------------

NEVER = 2**31 - 1       # as a threshold of the garbage collector


class _PutOff:
    """The number of running blocks of `without_full_collections`, and the thresholds around the first of them."""

    lock = _core.Lock()
    running = 0
    around = (0, 0, 0)


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Put off full garbage collections, each of which goes through all steps that were recorded so far.

    New objects are collected as usual, so steps may leave garbage.
    """
    with _PutOff.lock:
        if not _PutOff.running:
            _PutOff.around = gc.get_threshold()
            gc.set_threshold(*_PutOff.around[:2], NEVER)
        _PutOff.running += 1
    try:
        yield
    finally:
        with _PutOff.lock:
            _PutOff.running -= 1
            if not _PutOff.running and gc.get_threshold() == (*_PutOff.around[:2], NEVER):
                gc.set_threshold(*_PutOff.around)


class Recording:
    """The graph of all steps of a loop at an interpreter. Its node runs it backward while the loop is unobserved.

    `order` holds the position of each step along the axis of the loop.
    """

    def __init__(self, interpreter: Interpreter | None, init: Arrays, xs: Arrays, args: Arrays, order: range) -> None:
        self.interpreter = interpreter
        self.order = order
        self.init = tuple([self._leaf(value) for value in init])
        self._xs = [self._rows(x) for x in xs]
        self._targets = [
            *edges_at(interpreter, self.init), *[self._edges_of(rows) for rows in self._xs],
            *edges_at(interpreter, args),
        ]
        self._metas: list[Meta | None] = [meta_of(value) for value in (*init, *xs, *args)]
        self._final: list[Any] = []
        self._columns: list[list[Any]] = []

    def _leaf(self, value: Any) -> Tensor:
        """Return a value as the steps receive it. A tracked value becomes a new leaf that nothing else depends on."""
        below = _core.value_below(value, self.interpreter)
        if not _core.is_tracked_at(value, self.interpreter):
            return as_tensor(below)
        leaf: Tensor = _core.tracked_leaf(self.interpreter, Tensor(below) if self.interpreter is None else below)
        return leaf

    def _rows(self, x: Any) -> Iterable[Tensor]:
        """Return the slices of an array to loop over: a list of leaves if it is tracked."""
        array = bottom_of(_core.value_below(x, self.interpreter))
        if not _core.is_tracked_at(x, self.interpreter):
            return slices_of(Tensor(array), self.order)
        rows = [array[i] for i in self.order]
        if self.interpreter is None:
            rows = list(map(Tensor, rows))
        return [_core.tracked_leaf(self.interpreter, row) for row in rows]

    def _edges_of(self, rows: Iterable[Tensor]) -> list[Any] | None:
        return edges_at(self.interpreter, rows) if isinstance(rows, list) else None

    def slices(self) -> Iterable[Arrays]:
        """Return the slices of each step."""
        return zip(*self._xs, strict=True) if self._xs else repeat((), len(self.order))

    def run(self, function: Callable[..., tuple[Arrays, list[Arrays]]], *args: Any) -> Arrays:
        """Call `function(*args)`, and return its carry and the other results of each step as values below."""
        with without_full_collections():
            carry, rows = _core.raised(self.interpreter, function, *args)
        columns = columns_of(rows)
        self._final = edges_at(self.interpreter, carry)
        self._columns = [edges_at(self.interpreter, column) for column in columns]
        return (*_core.leaves_below(carry, self.interpreter),
                *[self._stack(column[:: self.order.step]) for column in columns])

    def _stack(self, column: Sequence[Any]) -> Any:
        whole = _core.stack_of_arrays(column, True)
        return ops.np.stack(_core.leaves_below(column, self.interpreter)) if whole is None else whole

    def gradients(self, wanted: Sequence[bool], grads: Arrays, *, keep: bool) -> Arrays:
        """Return one gradient for each wanted argument. With `keep`, retain the graph."""
        roots: list[Any] = []
        cotangents: list[Any] = []
        for edge, sent in zip(self._final, grads, strict=False):
            if edge is not None and sent is not None:
                roots.append(edge)
                cotangents.append(as_raw_constant(sent))
        for edges, sent in zip(self._columns, grads[len(self._final):], strict=True):
            if sent is not None:
                whole = as_raw_constant(sent)
                reached = [(edge, i) for edge, i in zip(edges, self.order, strict=True) if edge is not None]
                roots += [edge for edge, _ in reached]
                cotangents += [whole[i, ...] for _, i in reached]
        targets = [target for target, is_wanted in zip(self._targets, wanted, strict=True) if is_wanted]
        flat = tuple([edge for target in targets for edge in (target if isinstance(target, list) else (target,))])
        found = iter(_core.run_backward(
            tuple(roots), tuple(cotangents), create_graph=False, keep_graph=keep,
            inputs=flat, interpreter=self.interpreter, stops=True) if roots else [None] * len(flat))
        metas = [meta for meta, is_wanted in zip(self._metas, wanted, strict=True) if is_wanted]
        return tuple([self._gradient(target, meta, found) for target, meta in zip(targets, metas, strict=True)])

    def _gradient(self, target: Any, meta: Any, found: Iterator[Any]) -> Any:
        shape, dtype = meta
        if not isinstance(target, list):
            gradient = next(found)
            return np.zeros(shape, dtype) if gradient is None else gradient
        total = np.zeros(shape, dtype)
        for i, part in zip(self.order, found, strict=False):
            if part is not None:
                total[i] = part
        return total
