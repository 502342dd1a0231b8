"""The surroundings of a function in its first run, for a function that runs again.

`Surroundings` keeps the function's variables and the objects behind them: the contents of lists, dicts and attributes,
small NumPy arrays, and the states of generators. While the function runs again, whatever has changed since is reset.
"""

# tests: tests/higher_order/test_variables.py
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from operator import is_
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import JvpTensor, Tensor, Wrapper
from pydispatch.autograd import randomness
from pydispatch.autograd.captures import attributes_of, classes_of, in_reach, slots_of, variables_of
from pydispatch.tree import tree_leaves

T = TypeVar("T")
Names = tuple[str, ...] | None
MAX_VALUES = 1000           # in reach of the function, and in one list or dict
MAX_BYTES = 1 << 20         # of all arrays together. A single array is kept as gradients keep it
_MISSING = object()


class Surroundings:
    """A snapshot of the variables of a function and of the objects in reach, in order of distance.

    `replaced` describes something that a run replaced: an element, an attribute, a variable, a state. `extended`
    describes something that a run added, which may be a cache or a record.
    """

    def __init__(self, function: Any) -> None:
        self.replaced = self.extended = ""
        self.lost = ""                      # where an earlier step has put a value of forward mode
        self.stack: Iterable[Any] = ()      # the interpreters of the last step, in forward mode
        self.source = ""                    # a changed source of random numbers that operators did not draw from
        self.drawn: set[int] | None = None  # the ids of bit generators that operators drew from, None: unknown
        self.n_spawned = 0                  # the children of SeedSequences in the first run
        self.n_children_drawn = 0           # how many of these operators drew from
        self._repeats = False
        self._arrays: list[tuple[np.ndarray, np.ndarray]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        # (object, what holds its names, which of them, their values)
        self._names: list[tuple[Any, Any, Names, dict[Any, Any]]] = []
        self._generators: dict[int, tuple[Any, Any]] = {}       # by id, since several objects may share one
        self._sequences: dict[int, tuple[Any, Any]] = {}
        self._keep_randomness(randomness.hidden_source())
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
            elif isinstance(value, randomness.sources()):
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
        bits = randomness.bits_of(value) if isinstance(value, np.random.Generator) else value
        if type(value) is np.random.Generator or isinstance(bits, np.random.RandomState) or (bits is value and not (
                isinstance(value, np.random.SeedSequence))):
            self._generators[id(bits)] = bits, randomness.full_state_of(bits)
        sequence = getattr(bits, "seed_seq", bits)
        if type(sequence) is np.random.SeedSequence:
            self._sequences[id(sequence)] = sequence, sequence.__reduce__()[2]

    def _keep(self, value: Any, owner: Any, names: Names = None) -> None:
        found = _values_of(owner, names)
        if len(found) <= MAX_VALUES:
            self._names.append((value, owner, names, dict(found)))

    def restore(self) -> list[Reset]:
        """Reset everything that has changed, and return the changes."""
        alive = set(_core.current_state().stack)
        found = [_set_array(array, old) for array, old in self._arrays if array.tobytes() != old.tobytes()]
        found += [_set_list(held, old, alive) for held, old in self._lists
                  if len(held) != len(old) or not all(map(is_, held, old))]
        for value, owner, names, old in self._names:
            now = _values_of(owner, names)
            if len(now) != len(old) or not all(map(is_, now.values(), old.values())):
                found.append(_set_names(value, owner, names, now, old, alive))
        found += [_set_state(generator, old, self._is_drawn(generator)) for generator, old in self._generators.values()
                  if not randomness.are_same_states(randomness.full_state_of(generator), old)]
        found += [_set_spawned(sequence, old, self.n_spawned <= self.n_children_drawn)
                  for sequence, old in self._sequences.values() if str(sequence.__reduce__()[2]) != str(old)]
        return found

    def note_draws(self, drawn: Iterable[np.random.Generator]) -> None:
        """Note the generators that operators drew from."""
        found = {id(bits): bits for bits in map(randomness.bits_of, drawn)}
        self.drawn = set(found)
        self.n_children_drawn = sum(bool(getattr(bits.seed_seq, "spawn_key", ())) for bits in found.values())

    def _is_drawn(self, generator: Any) -> bool:
        """Return whether operators, or repeated code with a copy of the generator, may have changed the state.

        Without data operators draw nothing, and in later runs they draw from copies.
        """
        if self._repeats or _core.current_state().default_backend == "Meta":
            return randomness.is_handed_out(generator)
        return self.drawn is None or id(generator) in self.drawn

    def again(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function with the surroundings reset, and restore their present state afterwards."""
        changes = self.restore()
        marked = [bits for bits, _ in self._generators.values() if isinstance(bits, np.random.BitGenerator)]
        for bits in marked:
            randomness.count_in_unused_part(bits)
        self._repeats = True
        try:
            result = function(*args)
            randomness.check_untouched(marked)
            return result
        finally:
            for bits in marked:
                _, old = self._generators[id(bits)]
                if randomness.are_same_states(bits.state, old) and not self._is_drawn(bits):
                    self._note([_set_state(bits, old, False)])      # it was set
                randomness.restore_unused_part(bits, randomness.unused_part(old))
            self._note(self.restore())
            self._repeats = False
            randomness.forget_handed_out(marked)
            undo(changes)

    def note(self) -> None:
        """Note what the first run has replaced, and what it has lost."""
        changes = self.restore()
        self._note(changes)
        self.lost = next((change.lost for change in changes if change.lost), "")
        self.extended = next((change.added for change in changes if change.added), "")
        undo(changes)

    def new_values(self) -> Iterator[NewValue]:
        """Find the values that elements of lists, variables, keys and attributes did not have at first."""
        for held, before in self._lists:
            for i, part in enumerate(held):
                if i >= len(before) or part is not before[i]:
                    yield NewValue((id(held), i), part, f"element {i} of a list", partial(held.__setitem__, i))
        for value, owner, names, old in self._names:
            for key, part in _values_of(owner, names).items():
                if part is not old.get(key, _MISSING):
                    yield NewValue((id(owner), key), part, _described(value, owner, names, key),
                                   partial(_set_name, owner, key))

    def has_changed(self) -> bool:
        """Return whether anything has changed."""
        changes = self.restore()
        undo(changes)
        return bool(changes)

    def _note(self, changes: list[Reset]) -> None:
        self.replaced = self.replaced or next((change.replaced for change in changes if change.replaced), "")
        self.source = self.source or next((change.replaced for change in changes if change.is_source), "")
        self.n_spawned = self.n_spawned or sum(change.n_spawned for change in changes)


class NewValue(NamedTuple):
    """A value that something holds since a run: where, the value, a description of where, and how to replace it."""

    place: tuple[int, Any]
    value: Any
    description: str
    replace: Callable[[Any], None]


class Reset(NamedTuple):
    """A change that was reset.

    `replaced` describes what existed before it, and `added` what did not. `lost` describes what holds a value of
    forward mode that has ended. Each is empty if nothing is like that. A SeedSequence has `n_spawned` more children.
    """

    undo: Callable[[], None]
    replaced: str
    is_source: bool = False
    added: str = ""
    lost: str = ""
    n_spawned: int = 0


def undo(changes: list[Reset]) -> None:
    """Restore the state before `Surroundings.restore`."""
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
    lost = next((i for i, value in enumerate(now) if is_lost(value, alive)), None)
    return Reset(lambda: held.__setitem__(slice(None), now),
                 "" if replaced is None else f"element {replaced} of a list",
                 added=f"element {len(old)} of a list" if len(now) > len(old) else "",
                 lost="" if lost is None else f"element {lost} of a list")


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

    def put() -> None:
        for key, value in changed.items():
            _set_name(owner, key, value)

    def first(keys: Iterable[Any]) -> str:
        return next((_described(value, owner, names, key) for key in keys), "")

    return Reset(put, first(key for key in changed if key in old),
                 added=first(key for key in changed if key not in old),
                 lost=first(key for key, part in changed.items() if is_lost(part, alive)))


def is_lost(value: Any, alive: set[Any]) -> bool:
    """Return whether a value holds one of forward mode that has ended, which is a constant from then on."""
    return any(isinstance(leaf, JvpTensor) and leaf.interpreter not in alive and _has_tangent(leaf)
               for leaf in tree_leaves(value))


def _has_tangent(value: Any) -> bool:
    while isinstance(value, Wrapper):
        if isinstance(value, JvpTensor) and _core.tangent_of(value) is not None:
            return True
        value = _core.value_below(value, value.interpreter)
    return False


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


def _set_spawned(sequence: Any, old: Any, are_drawn: bool) -> Reset:
    """Reset the number of children of a SeedSequence. It is read-only, but part of what a pickle restores.

    The children of each step are known if operators draw from all of them.
    """
    now, n = sequence.__reduce__()[2], sequence.n_children_spawned
    sequence.__setstate__(old)
    return Reset(lambda: sequence.__setstate__(now), "" if are_drawn else "the state of a SeedSequence",
                 not are_drawn, n_spawned=n - sequence.n_children_spawned)


def _set_state(generator: Any, old: Any, is_drawn: bool) -> Reset:
    now = randomness.full_state_of(generator)
    randomness.set_full_state(generator, old)
    # the draws of operators are those of each step
    replaced = "" if is_drawn else f"the state of a {type(generator).__name__}"
    return Reset(lambda: randomness.set_full_state(generator, now), replaced, not is_drawn)
