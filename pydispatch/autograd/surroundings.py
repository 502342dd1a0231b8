"""The surroundings of a function in its first run, for a function that runs again.

`Surroundings` keeps the function's variables and the objects behind them: the contents of lists, dicts and attributes,
small NumPy arrays, and the states of generators. While the function runs again, whatever has changed since is reset.
"""

# tests: tests/higher_order/test_variables.py
from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from operator import is_
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import JvpTensor, Tensor
from pydispatch.autograd.captures import attributes_of, classes_of, in_reach, slots_of, variables_of
from pydispatch.autograd.randomness import bits_of, is_handed_out, sources
from pydispatch.tree import tree_leaves

T = TypeVar("T")
Names = tuple[str, ...] | None
MAX_VALUES = 1000           # in reach of the function, and in one list or dict
MAX_BYTES = 1 << 20         # of all arrays; a single array is kept as gradients keep it
_MISSING = object()


class Surroundings:
    """A snapshot of the variables of a function and of the objects in reach, in order of distance.

    `replaced` describes something that a run replaced: an element, an attribute, a variable, a state. What it adds does
    not count, since that may be a cache.
    """

    def __init__(self, function: Any) -> None:
        self.replaced = ""
        self.lost = ""                      # where an earlier step has put a value of forward mode
        self.stack: Iterable[Any] = ()      # the interpreters of the last step, in forward mode
        self.source = ""                    # a changed source of random numbers that operators did not draw from
        self.drawn: set[int] | None = None  # the ids of bit generators that operators drew from, None: unknown
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        # (object, what holds its names, which of them, their values)
        self._names: list[tuple[Any, Any, Names, dict[Any, Any]]] = []
        self._generators: dict[int, tuple[Any, Any]] = {}       # by id, since several objects may share one
        self._sequences: dict[int, tuple[Any, Any]] = {}
        classes: dict[type, None] = {}
        left = MAX_BYTES
        for value in islice(in_reach(function), MAX_VALUES):
            cls = type(value)
            if cls is np.ndarray:
                copied = _core.guarded_value(value) if value.nbytes <= left else value
                if copied is not value:     # a copy was made: the array is small and may be written to
                    left -= value.nbytes
                    self._arrays.append((value, copied))
            elif cls is list:
                if len(value) <= MAX_VALUES:
                    self._lists.append((value, value.copy()))
            elif isinstance(value, sources()):
                self._keep_randomness(value)
            elif cls is FunctionType:
                cells, names = variables_of(value)
                if cells:
                    self._keep(value, value.__closure__, cells)
                if names:
                    self._keep(value, value.__globals__, names)
                self._keep(value, value.__dict__)
            elif cls is not tuple and not isinstance(value, Tensor):
                held = value if isinstance(value, dict) else attributes_of(value)
                if held is not None:
                    self._keep(value, held)
                if cls is not dict:
                    classes.update(dict.fromkeys(classes_of(value)))
                    slots = slots_of(value)
                    if slots:
                        self._keep(value, value, slots)
        for found in classes:
            self._keep(found, found)

    def _keep_randomness(self, value: Any) -> None:
        """Keep the state of a generator, unless `Draws` knows of its changes, and how many children it has."""
        bits = bits_of(value) if isinstance(value, np.random.Generator) else value
        if type(value) is np.random.Generator or isinstance(value, np.random.BitGenerator):
            self._generators[id(bits)] = bits, bits.state
        sequence = getattr(bits, "seed_seq", bits)
        if type(sequence) is np.random.SeedSequence:
            self._sequences[id(sequence)] = sequence, sequence.__reduce__()[2]

    def _keep(self, value: Any, owner: Any, names: Names = None) -> None:
        found = _values_of(owner, names)
        if len(found) <= MAX_VALUES:
            self._names.append((value, owner, names, dict(found)))

    def restore(self) -> list[Reset]:
        """Reset everything that has changed, and return the changes."""
        alive = {*_core.current_state().stack, *self.stack}
        found = [_set_array(array, old) for array, old in self._arrays if array.tobytes() != old.tobytes()]
        found += [_set_list(held, old, alive) for held, old in self._lists
                  if len(held) != len(old) or not all(map(is_, held, old))]
        for value, owner, names, old in self._names:
            now = _values_of(owner, names)
            if len(now) != len(old) or not all(map(is_, now.values(), old.values())):
                found.append(_set_names(value, owner, names, now, old, alive))
        found += [_set_state(generator, old, self._is_drawn(generator)) for generator, old in self._generators.values()
                  if str(generator.state) != str(old)]
        found += [_set_spawned(sequence, old) for sequence, old in self._sequences.values()
                  if str(sequence.__reduce__()[2]) != str(old)]
        return found

    def _is_drawn(self, generator: Any) -> bool:
        """Return whether operators may have changed the state, or code that runs again with a copy of the generator.

        Operators draw nothing without data.
        """
        if _core.current_state().default_backend == "Meta":
            return is_handed_out(generator)
        return self.drawn is None or id(generator) in self.drawn

    def again(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function with the surroundings reset, and restore their present state afterwards."""
        changes = self.restore()
        try:
            return function(*args)
        finally:
            self._note(self.restore())
            _undo(changes)

    def note(self) -> None:
        """Note what the first run has replaced, and what it has lost."""
        changes = self.restore()
        self._note(changes)
        self.lost = next((change.added for change in changes if change.added), "")
        _undo(changes)

    def _note(self, changes: list[Reset]) -> None:
        self.replaced = self.replaced or next((change.replaced for change in changes if change.replaced), "")
        self.source = self.source or next((change.replaced for change in changes if change.is_source), "")


class Reset(NamedTuple):
    """A change that was reset.

    `replaced` describes what existed before it, and is empty for something added. `added` describes what holds a value
    of forward mode that has ended, if something does.
    """

    undo: Callable[[], None]
    replaced: str
    is_source: bool = False
    added: str = ""


def _undo(changes: list[Reset]) -> None:
    for change in reversed(changes):        # an array may be a view of another one
        change.undo()


def _set_array(array: np.ndarray, old: np.ndarray) -> Reset:
    now, whole = array.copy(), array.view()
    whole.flags.writeable = True        # it may be a read-only view of another array

    def put(values: np.ndarray) -> None:
        whole[...] = values

    put(old)
    return Reset(lambda: put(now), f"elements of an array of shape {array.shape}")


def _set_list(held: list[Any], old: list[Any], alive: set[Any]) -> Reset:
    now = held.copy()
    held[:] = old
    replaced = next((i for i, value in enumerate(old) if i >= len(now) or now[i] is not value), None)
    added = next((i for i, value in enumerate(now) if _is_lost(value, alive)), None)
    return Reset(lambda: held.__setitem__(slice(None), now),
                  "" if replaced is None else f"element {replaced} of a list",
                  added="" if added is None else f"element {added} of a list")


def _values_of(owner: Any, names: Names) -> dict[Any, Any]:
    """Return the values of these names, or of all: variables of a closure, keys, attributes of a class, or slots."""
    if names is None:
        if isinstance(owner, dict):
            return owner
        return {name: value for name, value in vars(owner).items() if not name.startswith("__")}
    if type(owner) is dict:
        return {name: owner[name] for name in names if name in owner}
    found: dict[Any, Any] = {}
    pairs: Iterable[tuple[Any, Any]] = enumerate(owner) if type(owner) is tuple else zip(names, names, strict=True)
    for key, part in pairs:
        try:
            found[key] = part.cell_contents if type(owner) is tuple else object.__getattribute__(owner, part)
        except (ValueError, AttributeError):
            continue        # it has no value
    return found


def _set_names(
    value: Any, owner: Any, names: Names, now: dict[Any, Any], old: dict[Any, Any], alive: set[Any]
) -> Reset:
    changed = {key: now.get(key, _MISSING) for key in [*old, *now]
               if now.get(key, _MISSING) is not old.get(key, _MISSING)}
    for key in changed:
        _set_name(owner, key, old.get(key, _MISSING))

    def undo() -> None:
        for key, value in changed.items():
            _set_name(owner, key, value)

    replaced = next((key for key in changed if key in old), _MISSING)
    added = next((key for key in changed if _is_lost(changed[key], alive)), _MISSING)
    return Reset(undo, "" if replaced is _MISSING else _described(value, owner, names, replaced),
                 added="" if added is _MISSING else _described(value, owner, names, added))


def _is_lost(value: Any, alive: set[Any]) -> bool:
    """Return whether a value holds one of forward mode that has ended, which is a constant from then on."""
    return any(isinstance(leaf, JvpTensor) and leaf.interpreter not in alive for leaf in tree_leaves(value))


def _described(value: Any, owner: Any, names: Names, key: Any) -> str:
    if type(owner) is tuple:
        assert names is not None
        return f"the variable {names[key]!r}"
    if owner is value and isinstance(value, dict):
        return f"the key {key!r} of a dict"
    if names is not None and isinstance(owner, dict):
        return f"the global variable {key!r}"
    name = value.__name__ if isinstance(value, (type, FunctionType)) else type(value).__name__
    return f"the attribute {key!r} of {name}"


def _set_name(owner: Any, key: Any, value: Any) -> None:
    if type(owner) is tuple:        # the cells of a closure, which may have no value
        if value is not _MISSING:
            owner[key].cell_contents = value
        else:
            del owner[key].cell_contents
    elif isinstance(owner, dict):
        if value is not _MISSING:
            owner[key] = value
        else:
            owner.pop(key, None)
    else:                           # the user's class may define how its attributes are set
        base = type if isinstance(owner, type) else object
        if value is not _MISSING:
            base.__setattr__(owner, key, value)
        else:
            base.__delattr__(owner, key)


def _set_spawned(sequence: Any, old: Any) -> Reset:
    """Reset the number of children of a SeedSequence. It is read-only, but part of what a pickle restores."""
    now = sequence.__reduce__()[2]
    sequence.__setstate__(old)
    return Reset(lambda: sequence.__setstate__(now), "")


def _set_state(generator: Any, old: Any, is_drawn: bool) -> Reset:
    now = generator.state
    generator.state = old
    # the draws of operators are those of each step
    replaced = "" if is_drawn else f"the state of a {type(generator).__name__}"
    return Reset(lambda: setattr(generator, "state", now), replaced, not is_drawn)
