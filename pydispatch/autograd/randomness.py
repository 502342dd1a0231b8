"""Random operators in functions that run again, and under vmap.

A second run of a function sees the draws of the first. `Draws` implements this. While it records, it copies each
generator before the function first draws from it. While it replays, operators draw from these copies instead. The
generators themselves advance only in the first run. An operator makes the copies, so traces contain them too.

Under vmap a draw is one for all examples, one for each, or an error.
"""

# tests: tests/func/test_randomness.py
from __future__ import annotations

import copy
import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Vmap, Wrapper
from pydispatch._sites import caller_site, describe_interpreter
from pydispatch.exceptions import AutogradError, FunctionalizationError, VmapError
from pydispatch.ops import ops

T = TypeVar("T")
Call = tuple[tuple[Any, ...], dict[str, Any]]


@functools.cache
def sources() -> tuple[type, ...]:
    """Return the types of objects that random numbers come from. NumPy imports them on first use."""
    return np.random.Generator, np.random.BitGenerator, np.random.SeedSequence, np.random.RandomState


@functools.cache
def hidden_source() -> Any:
    """Return the RandomState behind `numpy.random.normal` and NumPy's other global functions."""
    function: Any = np.random.normal
    return function.__self__


def _bits_of_hidden() -> Any:
    module: Any = np.random
    return module.get_bit_generator()


_WORDS_OF_MT19937 = 624         # before the position


@functools.lru_cache(maxsize=1)
def _memory_of_hidden(bits: Any) -> tuple[Any, Any] | None:
    """Return the memory of the hidden source: its bit generator's state, and the normal number that it keeps.

    Return None if they are not where they should be.
    """
    offset = _offset_of_normal_number()
    if type(bits) is not np.random.MT19937 or offset < 0:
        return None
    return ((ctypes.c_char * (4 * _WORDS_OF_MT19937 + 4)).from_address(bits.ctypes.state_address),
            (ctypes.c_char * 16).from_address(id(hidden_source()) + offset - 8))


def _offset_of_normal_number() -> int:
    """Return where a RandomState keeps the second of two normal numbers, after a flag, or -1 if it is not found."""
    source = np.random.RandomState(np.random.PCG64(0))
    source.standard_normal()
    kept = struct.pack("i4xd", 1, source.get_state(legacy=False)["gauss"])
    found = ctypes.string_at(id(source), type(source).__basicsize__).find(kept)
    return found + 8 if found >= 0 else -1


def full_state_of(source: Any) -> Any:
    """Return the state of a bit generator or RandomState in a form that `set_full_state` takes."""
    if not isinstance(source, np.random.RandomState):
        return source.state
    memory = _memory_of_hidden(_bits_of_hidden()) if source is hidden_source() else None
    if memory is None:
        return source.get_state(legacy=False)       # which takes 30 µs
    return memory[0].raw, memory[1].raw


def set_full_state(source: Any, state: Any) -> None:
    """Set the state of a bit generator or RandomState."""
    if not isinstance(source, np.random.RandomState):
        source.state = state
        return
    if isinstance(state, tuple):
        words, kept = state
        has_gauss, gauss = struct.unpack("i4xd", kept)
        state = {"bit_generator": "MT19937", "has_gauss": has_gauss, "gauss": gauss, "state": {
            "key": np.frombuffer(words, np.uint32, _WORDS_OF_MT19937),
            "pos": int.from_bytes(words[4 * _WORDS_OF_MT19937:], sys.byteorder)}}
    source.set_state(state)


def are_same_states(one: Any, other: Any) -> bool:
    """Return whether two results of `full_state_of` are equal."""
    if one is other:
        return True
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(
            are_same_states(one[name], other[name]) for name in one)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


REMEDY = ("draw by methods of np.random.default_rng(seed) of pydispatch.numpy, or draw and change states outside and "
          "pass what was drawn as an argument")
"""The remedy for a function that draws from a source in a way that no trace or second run can know."""


class Draws:
    """The generators that one run of a function draws from: a copy of each, in the state before its first draw."""

    def __init__(self, batches: frozenset[Vmap] | None = None) -> None:
        self.drawn: list[np.random.Generator] = []
        self.copies: list[Any] = []
        self.not_repeatable: dict[str, str] = {}    # the names of operators, and where they were called
        self.handed_out: set[int] = set()           # the ids of bit generators that it asked for: see `bits_here`
        # the interpreters of vmap around the first run
        self.batches = _batches() - _foreign() if batches is None else batches

    def __bool__(self) -> bool:
        return bool(self.copies or self.not_repeatable)

    def record(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function whose draws another run will repeat."""
        return _core.drawing(_Recording(self), function, *args)

    def replay(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function with the draws of the recorded run. Raise AutogradError if an operator cannot repeat them."""
        if not self:
            return function(*args)
        for name, site in self.not_repeatable.items():
            raise AutogradError(
                f"operator {name}, called at {site}, can return a different result each time, and the function that "
                "calls it runs again, to compute a gradient or another part of a batch\n"
                "call it outside that function and pass in its result, or declare an argument of type Generator and "
                "draw from that")
        return _core.drawing(_Replay(self), function, *args)

    def restart(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function for other examples of a batch than the recorded ones, with draws from the recorded start."""
        return _core.drawing(_Restarting(self), function, *args) if self.copies else function(*args)

    def rewind(self, *, without_data: bool = False) -> None:
        """Reset the generators to their states before the recorded run.

        In a run without data, only the function itself has changed states.
        """
        for generator, copied in zip(self.drawn, self.copies, strict=True):
            if not without_data or id(bits_of(generator)) in self.handed_out:
                bits_of(generator).state = bits_of(copied).state

    def copy_of(self, generator: np.random.Generator, claimed: set[int]) -> Any:
        """Return a generator in the state in which the recorded run first drew from this one.

        A generator that the function made itself is another object in each run. Such generators are matched in order:
        the first unknown one with the first recorded one that is not matched yet, and so on.
        """
        known = [bits_of(drawn) for drawn in self.drawn]
        here = [i for i, drawn in enumerate(known) if drawn is bits_of(generator)]
        found = here or [i for i in range(len(known)) if i not in claimed]
        if not found:
            raise AutogradError("when it ran again, a function drew from a generator that it had not used before\n"
                                "make it use the same generators each time")
        claimed.add(found[0])
        return self.from_start(generator, found[0])

    def from_start(self, generator: np.random.Generator, i: int) -> Any:
        """Return generator `i` in its state before the recorded run."""
        return ops.np.random_copy(self.copies[i])


class StepDraws(Draws):
    """The draws of a step of a loop. The states are values: arrays of each step, which a loop can stack."""

    def recording(self, step: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """Return a function that runs a step and returns the states of its generators in one array."""

        def states(*values: Any) -> tuple[Any, ...]:
            one = Draws(self.batches)
            one.record(step, *values)
            self.drawn, self.copies, self.not_repeatable = one.drawn, one.copies, one.not_repeatable
            parts = [_core.drawing(None, ops.np.random_state, copied) for copied in self.copies]
            return (ops.np.concatenate(parts) if parts else ops.np.zeros((0,), dtype=np.dtype(np.uint64)),)

        return states

    def replaying(self, step: Callable[..., T], position: int) -> Callable[..., T]:
        """Return the step with another argument at this position: the states that `recording` returned."""

        def again(*values: Any) -> T:
            ends = list(accumulate(map(_size_of_state, self.copies), initial=0))
            states = [ops.np.getitem(values[position], slice(*part)) for part in pairwise(ends)]
            return SavedDraws(self.drawn, states, self.batches).replay(
                step, *values[:position], *values[position + 1:])

        return again


class SavedDraws(Draws):
    """The draws of a run whose generators' states are known, as arrays."""

    def __init__(self, drawn: Sequence[np.random.Generator], states: Sequence[Any], batches: frozenset[Vmap]) -> None:
        super().__init__(batches)
        self.drawn, self.copies = list(drawn), list(states)

    def from_start(self, generator: np.random.Generator, i: int) -> Any:
        """Return generator `i` in its state before the recorded run."""
        return ops.np.random_restored(generator, self.copies[i])


class _Redirecting:
    """The base of objects that redirect draws during a run: see `_core.drawing`.

    `foreign` are interpreters of vmap that began between a first run and a second one. One draw serves all their
    examples.
    """

    repeats = False         # whether the function has run before

    def __init__(self, foreign: frozenset[Vmap]) -> None:
        self._foreign = foreign
        self._meant: dict[int, np.random.Generator] = {}    # by the id of a bit generator
        self._alive: list[np.random.Generator] = []         # kept alive, so that no other object gets the same id
        self.handed_out: set[int] = set()       # the ids of bit generators that the function asked for: see `bits_here`

    @property
    def foreign(self) -> frozenset[Vmap]:
        """The interpreters of vmap whose examples share one draw."""
        return self._foreign

    def arguments(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Return the arguments of a call with generators replaced, or None if none has to be."""
        found = [value for value in (*args, *kwargs.values()) if isinstance(value, np.random.Generator)]
        if not found:
            self.note_state_of(str(op.name))
        meant = {id(value): self.generator(value) for value in found}
        if all(meant[id(value)] is value for value in found):
            return None
        return (tuple([meant.get(id(value), value) for value in args]),
                {name: meant.get(id(value), value) for name, value in kwargs.items()})

    def generator(self, generator: np.random.Generator) -> np.random.Generator:
        """Return the generator to draw from instead of this one."""
        known = self._meant.get(id(bits_of(generator)))
        if known is None:
            known = self.first_draw(generator)
            self.made(known)
            self._meant[id(bits_of(generator))] = known
            self._alive.append(generator)
        return generator if bits_of(known) is bits_of(generator) else known

    def made(self, generator: np.random.Generator) -> None:
        """Leave a generator unchanged, because the function makes an equal one in each run."""
        self._meant[id(bits_of(generator))] = generator
        self._alive.append(generator)

    def first_draw(self, generator: np.random.Generator) -> np.random.Generator:
        """Return the generator to draw from instead of one that is met for the first time."""
        raise NotImplementedError

    def note_state_of(self, name: str) -> None:
        """Note an operator that cannot be repeated."""


class _Recording(_Redirecting):
    def __init__(self, draws: Draws) -> None:
        self.outer = _core.current_state().generators
        super().__init__(_foreign())
        self.recorded = draws
        self.handed_out = draws.handed_out

    def first_draw(self, generator: np.random.Generator) -> np.random.Generator:
        meant = generator if self.outer is None else self.outer.generator(generator)
        self.recorded.copies.append(_core.drawing(None, ops.np.random_copy, meant))
        self.recorded.drawn.append(generator)
        return meant

    def made(self, generator: np.random.Generator) -> None:
        super().made(generator)
        if self.outer is not None:
            self.outer.made(generator)

    def note_state_of(self, name: str) -> None:
        self.recorded.not_repeatable.setdefault(name, str(caller_site()))
        if self.outer is not None:
            self.outer.note_state_of(name)


class _Replay(_Redirecting):
    repeats = True

    def __init__(self, draws: Draws) -> None:
        super().__init__((_batches() - draws.batches) | _foreign())
        self._draws = draws
        self._claimed: set[int] = set()
        self._untouched: list[tuple[Any, Any]] = []     # bit generators of which copies draw now, and their states

    def check(self, sources: Sequence[Any] | None) -> None:
        """Raise FunctionalizationError if the state of one of these has changed since operators drew from a copy."""
        for bits, state in self._untouched:
            is_meant = sources is None or any(bits is source for source in sources)
            if is_meant and not are_same_states(bits.state, state):
                raise FunctionalizationError(
                    f"a function that runs again changes the state of a {type(bits).__name__} other than by an "
                    f"operator's draw, after operators drew from it\n{REMEDY}")

    def first_draw(self, generator: np.random.Generator) -> np.random.Generator:
        self._untouched.append((bits_of(generator), bits_of(generator).state))
        found: np.random.Generator = _core.drawing(_Copying(frozenset()), self._draws.copy_of, generator, self._claimed)
        return found


class _Restarting(_Recording):
    repeats = True

    def first_draw(self, generator: np.random.Generator) -> np.random.Generator:
        for i, drawn in enumerate(self.recorded.drawn):
            if bits_of(drawn) is bits_of(generator):
                found: np.random.Generator = _core.drawing(None, self.recorded.from_start, generator, i)
                return found
        return super().first_draw(generator)


class _Sharing(_Redirecting):
    """Draws from the usual generators, but with one draw for batches that share those of a first run."""

    def first_draw(self, generator: np.random.Generator) -> np.random.Generator:
        return generator


class _Copying(_Sharing):
    """Makes copies of generators for a run that repeats draws."""

    repeats = True


def for_another_context(function: Callable[..., T]) -> Callable[..., T]:
    """Return a function to call in another context, in which batches share draws as they do here."""
    draws = _Sharing(_foreign())
    return lambda *args: _core.drawing(draws, function, *args)


def generator_here(generator: np.random.Generator) -> np.random.Generator:
    """Return the generator to draw from instead of this one, which a running function draws from, or may draw from."""
    draws = _core.current_state().generators
    return generator if draws is None else draws.generator(generator)


def bits_here(generator: np.random.Generator) -> Any:
    """Return the bit generator of `generator_here`, and note that the running function may change its state."""
    draws: Any = _core.current_state().generators
    if draws is not None:
        draws.handed_out.add(id(bits_of(generator)))
    return bits_of(generator_here(generator))


def is_handed_out(bits: Any) -> bool:
    """Return whether the running function has asked for a bit generator by `bits_here`."""
    draws: Any = _core.current_state().generators
    return draws is not None and id(bits) in draws.handed_out


def forget_handed_out(sources: Sequence[Any]) -> None:
    """Note that the states of these bit generators have been restored."""
    draws: Any = _core.current_state().generators
    if draws is not None:
        draws.handed_out.difference_update(map(id, sources))


def check_untouched(sources: Sequence[Any] | None = None) -> None:
    """Raise FunctionalizationError if a function that repeats draws has changed the state of a source otherwise.

    Check these sources, or all from which it draws.
    """
    draws: Any = _core.current_state().generators
    if isinstance(draws, _Replay):
        draws.check(sources)


def is_repeating() -> bool:
    """Return whether the running function repeats the draws of an earlier run."""
    draws: Any = _core.current_state().generators
    return draws is not None and draws.repeats


def bits_of(generator: np.random.Generator) -> Any:
    """Return the bit generator that holds the state. Generators that share it share their stream.

    The attribute of that name is refused to functions that are traced.
    """
    return np.random.Generator.bit_generator.__get__(generator)


def note_made(generator: np.random.Generator) -> None:
    """Note that later runs of the running function make this generator too, since it depends only on a seed."""
    draws = _core.current_state().generators
    if draws is not None:
        draws.made(generator)


def note_state_of(name: str) -> None:
    """Note that the running function calls an operator that cannot be repeated."""
    draws = _core.current_state().generators
    if draws is not None:
        draws.note_state_of(name)


def _foreign() -> frozenset[Vmap]:
    """Return the interpreters of vmap that began between the first run of a function and the current one."""
    draws = _core.current_state().generators
    return frozenset() if draws is None else draws.foreign


def _batches() -> frozenset[Vmap]:
    """Return the interpreters of vmap that are active here."""
    return frozenset([each.first for each in _core.current_state().stack if isinstance(each, Vmap)])


def batches_of(values: Iterable[Any]) -> frozenset[Vmap]:
    """Return the interpreters of vmap that own these values."""
    found = set()
    for value in values:
        while isinstance(value, Wrapper):
            if isinstance(value.interpreter, Vmap):
                found.add(value.interpreter.first)
            value = _core.value_below(value, value.interpreter)
    return frozenset(found)


# --- states as arrays ------------------------------------------------------------------------------------------------


def words_of_state(generator: np.random.Generator) -> np.ndarray:
    """Return the state of a generator as an array: two words per number, one word per element of an array."""
    words: list[int] = []
    for value in _leaves_of_state(bits_of(generator).state):
        words += [value & _WORD, value >> 64] if isinstance(value, int) else list(map(int, value.ravel()))
    return np.array(words, np.uint64)


def state_of(source: Any, unused: int | None = None) -> tuple[Any, ...]:
    """Return the state of a source other than a Generator for comparisons, with the number of its children.

    `unused` replaces the unused part of the state of a bit generator.
    """
    if isinstance(source, np.random.RandomState):
        state = full_state_of(source)
        return state if isinstance(state, tuple) else (state["gauss"], *[
            leaf if isinstance(leaf, int) else leaf.tobytes() for leaf in _leaves_of_state(state)])
    sequence = getattr(source, "seed_seq", source)
    children = sequence.n_children_spawned if type(sequence) is np.random.SeedSequence else 0
    leaves = [] if sequence is source else _leaves_of_state(
        source.state if unused is None else with_unused_part(source.state, unused))
    return (children, *[leaf if isinstance(leaf, int) else leaf.tobytes() for leaf in leaves])


def with_words(generator: np.random.Generator, words: np.ndarray) -> np.random.Generator:
    """Copy a generator, and set the copy to the state that such an array holds."""
    copied = copy_of_generator(generator)
    rest = iter(words.tolist())
    bits_of(copied).state = _filled_state(bits_of(copied).state, rest)
    return copied


def copy_of_generator(generator: np.random.Generator) -> np.random.Generator:
    """Return a generator with the same state and an independent stream."""
    return type(generator)(copy.copy(bits_of(generator)))


_WORD = (1 << 64) - 1


def _leaves_of_state(state: Any) -> Iterator[Any]:
    if isinstance(state, dict):
        for name in sorted(state):
            yield from _leaves_of_state(state[name])
    elif isinstance(state, np.ndarray):
        yield state
    elif not isinstance(state, str):
        yield int(state)


def _filled_state(state: Any, words: Iterator[int]) -> Any:
    if isinstance(state, dict):
        return {name: _filled_state(state[name], words) for name in sorted(state)}
    if isinstance(state, np.ndarray):
        return np.array([next(words) for _ in range(state.size)], state.dtype).reshape(state.shape)
    return state if isinstance(state, str) else next(words) | next(words) << 64


def _size_of_state(generator: np.random.Generator) -> int:
    return len(words_of_state(generator))


# --- the unused parts of states --------------------------------------------------------------------------------------

# Programs cannot see a change of this part, so it shows that a state was set, even to an equal one.


def unused_part(state: Any) -> tuple[str, int]:
    """Return the name of the part of a bit generator's state that does not influence what is drawn, and its value.

    The name is empty if no part is known.
    """
    if state.get("has_uint32"):                             # half a word is left. Any other number has the same meaning
        return "has_uint32", state["has_uint32"] >> 1
    if "has_uint32" in state:                               # the half that was drawn last
        return "uinteger", state["uinteger"]
    if state["bit_generator"] == "MT19937" and state["state"]["pos"]:      # all but one bit of the first word
        return "key", int(state["state"]["key"][0]) & _LOW_BITS
    return "", 0


def with_unused_part(state: Any, value: int) -> Any:
    """Return the state with another value of the unused part."""
    name, _ = unused_part(state)
    if name == "key":
        key = state["state"]["key"].copy()
        key[0] = int(key[0]) & ~_LOW_BITS | value & _LOW_BITS
        return {**state, "state": {**state["state"], "key": key}}
    parts = {"has_uint32": {"has_uint32": 1 | value << 1}, "uinteger": {"uinteger": value & (_LOW_BITS << 1 | 1)}}
    return {**state, **parts.get(name, {})}


def count_in_unused_part(bits: Any) -> None:
    """Add one to the unused part of the state of a bit generator."""
    state = bits.state
    bits.state = with_unused_part(state, unused_part(state)[1] + 1)


def restore_unused_part(bits: Any, old: tuple[str, int]) -> None:
    """Set the unused part of the state of a bit generator to the old one, unless draws have replaced it."""
    name, value = unused_part(bits.state)
    if name == old[0] and (value - old[1]) & _LOW_BITS < _MANY:
        bits.state = with_unused_part(bits.state, old[1])


_LOW_BITS = (1 << 31) - 1
_MANY = 1 << 20         # calls that are counted


# --- vmap ------------------------------------------------------------------------------------------------------------


def randomness_of(op: OpOverload, interpreter: Vmap) -> str:
    """Return whether a draw under an interpreter is the "same" for all examples or "different".

    Raise VmapError if draws are not allowed. In a second run of a function, all examples of a batch that the first run
    was not in see the draw of that run.
    """
    draws = _core.current_state().generators
    if draws is not None and interpreter.first in draws.foreign:
        return "same"
    if interpreter.randomness == "error":
        raise VmapError(
            f"operator {op.name} draws random numbers in {describe_interpreter(interpreter)}, whose randomness is "
            "'error', which does not specify whether the examples of a batch share one draw\n"
            f'pass {_mapper(interpreter)}(..., randomness="different") for one draw per example, or '
            'randomness="same" for one draw for all'
        )
    return interpreter.randomness


def _mapper(interpreter: Vmap) -> str:
    """Return the name of the function that takes the randomness of an interpreter."""
    return interpreter.name if interpreter.name.isidentifier() else "vmap"


def check_shared(op: OpOverload, interpreter: Vmap, in_dims: Sequence[int | None], args: Sequence[Any]) -> None:
    """Raise VmapError for an argument of a draw that differs between examples, since they cannot share one draw."""
    for argument, dim, value in zip(op.schema.arguments, in_dims, args, strict=True):
        if dim is not None:
            shape = tuple(getattr(value, "shape", ()))[1:]
            raise VmapError(
                f"operator {op.name}: argument {argument.name!r}, of shape {shape}, is batched in "
                f"{describe_interpreter(interpreter)}, but randomness='same' needs one draw for all examples\n"
                f'pass {_mapper(interpreter)}(..., randomness="different"), or draw without the argument and '
                "compute with it"
            )
