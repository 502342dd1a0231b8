"""Trial runs of a body on data close to its own, to compare the steps of a loop, and to find what depends on inputs.

A trial changes nothing: neither the surroundings of the body nor the states of generators.
"""

# tests: tests/higher_order/test_variables.py
from __future__ import annotations

import contextvars
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Grad, Tensor, Vmap, Wrapper
from pydispatch._registry.backends import dtype_of
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch.autograd.function import attach_results
from pydispatch.autograd.randomness import Draws, for_another_context
from pydispatch.autograd.surroundings import NewValue, Surroundings, is_lost, undo
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import AutogradError
from pydispatch.tree import tree_leaves, tree_map

T = TypeVar("T")
MAX_STEPS = 64
"""The number of steps that are compared of a loop whose length is unknown."""


def are_alike(function: Callable[..., Any], args: Any, surroundings: Surroundings, n_steps: int | None) -> bool:
    """Return whether each step of a loop computes the same as the first step would, as far as can be determined.

    Run some steps, and each of them also in the surroundings of the first, on arrays like these arguments.
    """
    trial = _Trial(function, args)

    def compare() -> bool:
        trial.run(0)
        for step in range(1, MAX_STEPS if n_steps is None else n_steps):
            before = Surroundings(function)
            later = trial.run(step)
            is_last = not before.has_changed()          # all further steps do the same
            later_changes = surroundings.restore()
            first = trial.run(step)
            surroundings.restore()
            undo(later_changes)
            if not _are_close(first, later):
                return False
            if is_last:
                return True
        return n_steps is not None

    return trial.result(surroundings, compare, otherwise=False)


def cut_off_kept(
    who: str, function: Callable[..., Any], arguments: Callable[[], Any], surroundings: Surroundings,
    inputs: Sequence[Any],
) -> None:
    """Let a gradient raise that is sent to a value which a body has kept in its surroundings.

    The body was recorded as one node, of which only its results are outputs. Values that do not depend on the tracked
    inputs stay as they are.
    """
    state = _core.current_state()
    if not state.grad or not any(map(_core.is_tracked_anywhere, inputs)):
        return
    found = [new for new in surroundings.new_values() if any(map(_is_inexact, tree_leaves(new.value)))]
    if not found:
        return
    tracked = {id(value) for value in inputs if _core.is_tracked_anywhere(value)}
    levels = [(level, tracked_at) for level in (None, *[each for each in state.stack[::-1] if isinstance(each, Grad)])
              if (tracked_at := tuple([found for value in inputs for found in _tracked_at(value, level)]))]
    trial = _Trial(function, arguments(), tracked, list(map(_core.is_tracked_anywhere, inputs)))

    def kept(step: int) -> dict[Any, list[np.ndarray]]:
        trial.run(step)
        values = {new.place: _arrays(tree_leaves(new.value)) for new in surroundings.new_values()}
        surroundings.restore()
        return values

    def depending() -> list[NewValue]:
        one, other = kept(0), kept(1)
        places = {place for place, arrays in one.items() if not _are_close(arrays, other.get(place, []))}
        return [new for new in found if _in_first_step(new.place, one) in places]

    for new in trial.result(surroundings, depending, otherwise=found):
        derivative = _CutOff(f"{who} keeps a value in {new.description}, from where it was used after the function")
        new.replace(tree_map(lambda leaf: _cut_off(leaf, levels, derivative) if _is_inexact(leaf) else leaf,  # noqa: B023
                             new.value))


class _Trial:
    """Runs of a function on data close to its arguments and captured Tensors, under no transform or mode.

    Of the arguments, those that vary from step to step are flagged, or else all. Of the captured Tensors, those whose
    ids are given vary.
    """

    def __init__(
        self, function: Callable[..., Any], args: Any, captured: Iterable[int] = (), flags: Sequence[bool] = ()
    ) -> None:
        self._function, self._args, self._captured, self._flags = function, args, frozenset(captured), flags

    def result(self, surroundings: Surroundings, call: Callable[[], T], otherwise: T) -> T:
        """Call a function that runs trials, from the surroundings of the first run. Restore the present ones."""
        changes = surroundings.restore()
        try:
            return contextvars.Context().run(for_another_context(call))
        except Exception:
            return otherwise
        finally:
            surroundings.restore()
            undo(changes)

    def run(self, step: int) -> list[np.ndarray]:
        """Return the arrays among the results of a run, with data that differs from other steps."""
        data: dict[int, tuple[Tensor, Tensor]] = {}         # by the id of a Tensor: the value that is used instead
        flags = iter(self._flags)

        def argument(leaf: Any) -> Any:
            return data_like(leaf, step if next(flags, True) else 0) if _core.is_array(leaf) else leaf

        def meaning(tensor: Tensor) -> Tensor:
            varies = id(tensor) in self._captured
            if not varies and not isinstance(tensor, Wrapper) and isinstance(tensor.array, np.ndarray):
                return tensor
            if id(tensor) not in data:
                data[id(tensor)] = tensor, data_like(tensor, step if varies else 0)
            return data[id(tensor)][1]

        draws = Draws()
        with np.errstate(all="ignore"):
            result = draws.record(_core.substituting, meaning, _core.with_grad_mode, False, self._function,
                                  *tree_map(argument, self._args))
        draws.rewind()
        return _arrays(tree_leaves(result))


def _arrays(leaves: Iterable[Any]) -> list[np.ndarray]:
    return [np.asarray(bottom_of(leaf)) for leaf in leaves if leaf is not None]


def _are_close(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> bool:
    return len(left) == len(right) and all(
        one.shape == other.shape and (one == other if one.dtype == object else np.isclose(
            one, other, rtol=1e-9, atol=0, equal_nan=True)).all() for one, other in zip(left, right, strict=True))


def data_like(value: Any, step: int) -> Tensor:
    """Return a Tensor of numbers close to those of an array, or close to 1 if it has none. They differ by step."""
    array = bottom_of(value)
    shape, dtype = tuple(value.shape), dtype_of(value)
    if type(array) is not np.ndarray or array.shape != shape:
        array = np.ones(shape, dtype)
    if dtype.kind in "fc":
        noise = np.random.default_rng(step).uniform(size=shape)
        array = (array + 0.01 * noise * (1 + np.abs(array))).astype(dtype)
    elif dtype.kind in "iub" and step % 2:
        array = np.where(array > 0, array - 1, 1).astype(dtype)
    made = Tensor(np.array(array))
    return _core.to_scalar(made) if _core.is_scalar(value) else made


def _in_first_step(place: tuple[int, Any], places: Collection[tuple[int, Any]]) -> tuple[int, Any]:
    """Return the place in a list where the first step of a loop has put what a later step has put here."""
    holder, i = place
    if place in places or not isinstance(i, int):
        return place
    first = [other for held, other in places if held == holder]
    return (holder, min(first) + (i - min(first)) % len(first)) if first else place


# --- values that a body has kept -------------------------------------------------------------------------------------


def _is_inexact(value: Any) -> bool:
    return _core.is_array(value) and dtype_of(value).kind in "fc"


def _tracked_at(value: Any, level: Any) -> Iterator[Tensor]:
    """Find the Tensor among a value and those below it that is tracked at an interpreter, or on the tape for None."""
    while isinstance(value, Tensor):
        if _core.is_tracked_at(value, level):
            yield value
        value = _core.value_below(value, value.interpreter) if isinstance(value, Wrapper) else None


def _cut_off(value: Any, levels: Sequence[tuple[Any, tuple[Tensor, ...]]], derivative: CustomDerivative) -> Any:
    """Return a value whose gradients at these interpreters raise, or the value itself if its use raises."""
    below, stack = value, _core.current_state().stack[::-1]
    while isinstance(below, Wrapper) and isinstance(below.interpreter, Grad):
        below = _core.value_below(below, below.interpreter)
    lowest = -1
    if isinstance(below, Wrapper):
        if below.interpreter not in stack:
            return value
        lowest = stack.index(below.interpreter)
    for level, tracked in levels:
        if level is None and lowest < 0:
            output = _core.detach_at(below, None) if isinstance(below, Tensor) else Tensor(below)
            below = attach_results(derivative, tracked, output, level)
        elif level is not None and stack.index(level) > lowest:
            below = attach_results(derivative, tracked, _core.wrap_value_at(level, below), level)
    return below


def end_lost(who: str, surroundings: Surroundings) -> None:
    """Replace the values of forward mode that a body has kept, and that have ended. Uses of the substitutes raise."""
    alive = set(_core.current_state().stack)
    for new in surroundings.new_values():
        if is_lost(new.value, alive):
            ended = Vmap(1, "error", who)       # it has no value that is active
            new.replace(tree_map(lambda leaf: _core.wrap_value_at(ended, np.asarray(bottom_of(leaf))[None])    # noqa: B023
                                 if is_lost(leaf, alive) else leaf, new.value))


class _CutOff(CustomDerivative):
    """The derivative of a value that a body has kept."""

    name = "KeptBackward"
    label = "a value that a function keeps"
    separate = True
    once = False

    def __init__(self, what: str) -> None:
        self._what = what

    def setup(self, ctx: Any, values: tuple[Any, ...], output: Any) -> None:
        """Save nothing."""

    def backward(self, ctx: Any, grads: tuple[Any, ...]) -> list[Any]:
        """Raise AutogradError."""
        raise AutogradError(f"{self._what}: its gradient would be lost\nreturn the value from the function")
