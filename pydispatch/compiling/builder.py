"""The builder of a plan: rules of operators ask it for values and steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.compiling.values import (
    Array,
    CallStep,
    LoopStep,
    Step,
    Storage,
    Value,
    broadcast_strides,
)

LARGEST_FOLDED = 1 << 16        # bytes of a constant that is computed when the plan is made


class CannotLowerError(Exception):
    """A rule has no loop for these arguments: the operator is called."""


class Builder:
    """Collects the steps of a plan; `site` is the user's line that asks for what comes next."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.inputs: list[Value] = []
        self.donated: list[int] = []        # numbers of inputs whose memory results may take
        self.constants: list[Array] = []
        self.n_entries = 0
        self.site: str | None = None
        self.notes: list[str] = []          # what could not become loops
        self.folded = 0
        self._known: dict[Any, Value] = {}
        self._repeated: dict[Any, Value] = {}
        self._held: list[Any] = []          # what the keys of the memo refer to by address

    # --- values ---

    def input(self, shape: tuple[int, ...], dtype: np.dtype[Any], is_donated: bool = False) -> Value:
        """A new input."""
        if is_donated:
            self.donated.append(len(self.inputs))
        template = np.empty(shape, dtype)
        value = Value(Storage(template, "input", len(self.inputs)), template)
        self.inputs.append(value)
        return value

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Value:
        """A new value of the arena, in C order."""
        template = np.empty(shape, dtype)
        return Value(Storage(template), template)

    def constant(self, array: Array) -> Value:
        """A value that is known; equal ones are one. An array of equal elements is one element, repeated."""
        array = np.asarray(array)
        if array.size > 1 and array.nbytes <= LARGEST_FOLDED and array.dtype.kind != "V":
            first = array.ravel()[:1]
            if array.tobytes() == first.tobytes() * array.size:
                one = self.constant(first[0])
                return Value(one.storage, np.broadcast_to(one.template, array.shape), array)
        if array.ndim == 0:
            key = array.dtype.str, array.tobytes()
            known = self._known.get(key)
            if known is not None:
                return known
        kept = np.array(array, order="C")
        kept.flags.writeable = False
        value = Value(Storage(kept, "constant", len(self.constants)), kept, kept)
        self.constants.append(kept)
        if array.ndim == 0:
            self._known[key] = value
        return value

    def entry(self, template: Array, *behind: Storage) -> Storage:
        """The storage of what moves in a repetition, from one place in other storages to another."""
        entry = Storage(template, "entry", self.n_entries)
        entry.behind = behind
        self.n_entries += 1
        return entry

    def viewed(self, value: Value, view: Callable[[Array], Array]) -> Value:
        """A view of a value; `view` makes it of an array. CannotLowerError where it makes a copy."""
        template = view(value.template)
        if value.template.size and template.size and not np.may_share_memory(template, value.template):
            raise CannotLowerError("it copies")
        return Value(value.storage, template, None if value.constant is None else view(value.constant))

    def contiguous(self, value: Value) -> Value:
        """The value in C order."""
        if value.template.flags.c_contiguous:
            return value
        return self.copied(value)

    def as_value(self, value: Any, dtype: np.dtype[Any] | None = None) -> Value:
        """A value, or a number as one; CannotLowerError for anything else."""
        if isinstance(value, Value):
            return value if dtype is None else self.cast(value, dtype)
        if isinstance(value, (bool, int, float, complex, np.generic)):
            try:
                return self.constant(np.asarray(value, dtype))
            except OverflowError as error:
                raise CannotLowerError(str(error)) from error
        raise CannotLowerError(f"an argument is a {type(value).__name__}")

    # --- steps ---

    def elementwise(self, loop: tuple[Any, ...], inputs: Sequence[Value], output: Value, name: str) -> Value:
        """Add a loop over the elements of the output, to which inputs are repeated."""
        shape = output.shape
        if output.template.size:
            operands = (*inputs, output)
            self.steps.append(LoopStep(
                loop, operands, shape, tuple([broadcast_strides(value.template, shape) for value in operands]), name,
                self.site))
        return output

    def cast(self, value: Value, dtype: np.dtype[Any]) -> Value:
        """The value in another dtype."""
        if value.dtype == dtype:
            return value
        if value.constant is not None:
            return self.fold(lambda array: array.astype(dtype), value)
        if value.dtype.kind == "c" and dtype.kind != "c" and dtype.kind != "b":
            raise CannotLowerError("NumPy warns where an imaginary part is dropped")
        key = "cast", value.storage, value.offset, value.shape, value.template.strides, value.dtype, dtype
        known = self._repeated.get(key)
        if known is None:
            known = self._repeated[key] = self.copied(value, dtype)
        return known

    def copied(self, value: Value, dtype: np.dtype[Any] | None = None) -> Value:
        """A copy of a value in C order, in this dtype."""
        return self.copy_into(self.fresh(value.shape, value.dtype if dtype is None else dtype), value)

    def copy_into(self, target: Value, value: Value) -> Value:
        """Write a value, repeated to the shape of the target, to it."""
        one, other = value.dtype, target.dtype
        loop: tuple[Any, ...]
        loop = ("copy", one.itemsize) if one == other else ("cast", one.num, other.num)
        check_loop(loop)
        return self.elementwise(loop, (value,), target, "copy" if one == other else "astype")

    def call(
        self, function: Callable[..., None], inputs: Sequence[Value], outputs: Sequence[Value], name: str, is_pure: bool
    ) -> None:
        """Add a call of Python."""
        self.steps.append(CallStep(function, tuple(inputs), tuple(outputs), name, self.site, is_pure))

    def fold(self, function: Callable[..., Any], *values: Value) -> Value:
        """What a function gives for values that are known, a constant."""
        self.folded += 1
        with np.errstate(all="ignore"):
            return self.constant(np.asarray(function(*[value.constant for value in values])))

    def can_fold(self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Is all of this known, and the result small enough?"""
        for value in values:
            if isinstance(value, Value) and value.constant is None:
                return False
        return math.prod(shape) * dtype.itemsize <= LARGEST_FOLDED

    # --- loops of ufuncs ---

    def ufunc(self, function: np.ufunc, values: Sequence[Any]) -> Value:
        """What a ufunc gives, which has one result; operands are values and numbers."""
        if len(values) != function.nin or function.nout != 1:
            raise CannotLowerError("it has other operands")
        dtypes = loop_dtypes(function, *[
            value.dtype if isinstance(value, Value) else _kind_of_number(value) for value in values])
        loop = "ufunc", function, tuple([dtype.num for dtype in dtypes])
        check_loop(loop)
        if function is np.power and dtypes[0].kind in "iu":
            raise CannotLowerError("powers of integers may raise")
        shape = np.broadcast_shapes(*[value.shape for value in values if isinstance(value, Value)])
        if self.can_fold(values, shape, dtypes[-1]) and is_quiet(function, values):
            return self.fold(function, *[self.as_value(value, dtype)
                                         for value, dtype in zip(values, dtypes[:-1], strict=True)])
        operands = [self.as_value(value, dtype) for value, dtype in zip(values, dtypes[:-1], strict=True)]
        if function in NEUTRAL:
            for i, j in ((0, 1), (1, 0))[:NEUTRAL[function][1]]:
                if is_uniform(operands[j], NEUTRAL[function][0]) and operands[i].shape == shape:
                    return operands[i]
        return self.elementwise(loop, operands, self.fresh(shape, dtypes[-1]), function.__name__)

    # --- bodies ---

    @contextmanager
    def body(self) -> Iterator[list[Step]]:
        """Steps that are added in the block are those of a body."""
        outside, repeated = self.steps, self._repeated
        self.steps, self._repeated = [], dict(repeated)
        try:
            yield self.steps
        finally:
            self.steps, self._repeated = outside, repeated

    def known_result(self, key: Any) -> Any:
        """What an equal call has given, in this body or around it."""
        return self._repeated.get(key)

    def note_result(self, key: Any, result: Any) -> None:
        """Remember what a call gives."""
        self._repeated[key] = result


NEUTRAL: dict[np.ufunc, tuple[int, int]] = {np.multiply: (1, 2), np.divide: (1, 1), np.subtract: (0, 1)}
"""Numbers that change nothing as an operand, bit for bit: the second one, or (2) either."""


def is_uniform(value: Value, number: int) -> bool:
    """Is this a constant, all elements of which are this number (0 is not -0.0)?"""
    constant = value.constant
    if constant is None or constant.size == 0 or (constant.size > 1 and any(value.template.strides)):
        return False
    first = constant.ravel()[0]
    return bool(first == number) and not bool(np.signbit(first.real) if number == 0 else False)


def is_quiet(function: np.ufunc, values: Sequence[Any]) -> bool:
    """Does it raise no floating-point flags for these constants, which each run would report?"""
    try:
        with np.errstate(all="raise"):
            function(*[value.constant if isinstance(value, Value) else value for value in values])
    except (FloatingPointError, ValueError, OverflowError):
        return False
    return True


def _kind_of_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.dtype
    if type(value) in (int, float, complex):
        return type(value)
    if type(value) is bool:
        return np.dtype(bool)
    raise CannotLowerError(f"an operand is a {type(value).__name__}")


@functools.lru_cache(4096)
def loop_dtypes(function: np.ufunc, *dtypes: Any) -> tuple[np.dtype[Any], ...]:
    """The dtypes of the loop that NumPy takes for operands of these dtypes; a Python number is given by its type."""
    if all(isinstance(dtype, type) for dtype in dtypes):
        dtypes = tuple([np.dtype(dtype) for dtype in dtypes])
    try:
        return function.resolve_dtypes((*dtypes, *[None] * function.nout))
    except TypeError as error:
        raise CannotLowerError(str(error)) from error


@functools.lru_cache(4096)
def _has_loop(loop: tuple[Any, ...]) -> bool:
    return _core.has_loop(loop)


def check_loop(loop: tuple[Any, ...]) -> None:
    """CannotLowerError where the core has no such loop."""
    if loop[0] == "ufunc" and not SUPPORTED.issuperset(loop[2]):
        raise CannotLowerError("of these dtypes")
    if not _has_loop(loop):
        raise CannotLowerError(f"there is no loop {loop}")


SUPPORTED = frozenset([np.dtype(character).num for character in "?bBhHiIlLqQfdFD"])
"""The numbers of the dtypes that loops work on."""
