"""The builder of a plan, which creates the values and steps for lowering rules."""

# tests: tests/compiling/test_plan.py
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pydispatch import _core
from pydispatch.compiling.arithmetic import ELEMENTARY
from pydispatch.compiling.steps import CallStep, LoopStep, Step
from pydispatch.compiling.values import Array, Storage, Value, strides_over
from pydispatch.tracing import Graph
from pydispatch.tracing.numbers import TracedNumber

LARGEST_FOLDED = 1 << 16        # bytes of the largest constant that is folded


class CannotLowerError(Exception):
    """A lowering rule has no loop for these arguments, so the plan calls the operator. The message gives the reason."""


class QuietSite(str):
    """The line of steps whose overflows and invalid operations are not reported."""

    __slots__ = ()
    ignored = 2 | 8         # UFUNC_FPE_OVERFLOW and UFUNC_FPE_INVALID


class Builder:
    """Collects the steps of a plan. `site` is the user's line that the next steps belong to.

    `compile_function(graph)` returns the PlanFunction of a function that an operator calls.
    """

    def __init__(self, compile_function: Callable[[Graph], Any]) -> None:
        self.compile_function = compile_function
        self.steps: list[Step] = []
        self.inputs: list[Value] = []
        self.donated: list[int] = []        # numbers of inputs whose memory results may take
        self.numbers: set[int] = set()      # those of inputs that are Python numbers of the call
        self.constants: list[Array] = []
        self.n_entries = 0
        self.site: str | None = None
        self.notes: list[str] = []          # reasons why functions that operators call could not become plans
        self.folded = 0
        self._known: dict[Any, Value] = {}
        self._has_negatives = False         # whether a negative was ever taken
        self._repeated: dict[Any, Value] = {}

    # --- values ---

    def input(self, shape: tuple[int, ...], dtype: np.dtype[Any], is_donated: bool = False) -> Value:
        """Add an input."""
        if is_donated:
            self.donated.append(len(self.inputs))
        template = np.empty(shape, dtype)
        value = Value(Storage(template, "input", len(self.inputs)), template)
        self.inputs.append(value)
        return value

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Value:
        """Return a new value of the arena, in C order."""
        template = np.empty(shape, dtype)
        return Value(Storage(template), template)

    def constant(self, array: Array) -> Value:
        """Add a constant.

        Equal scalars share one value, and an array of equal elements is stored as one broadcast element.
        """
        array = np.asarray(array)
        array = array.astype(native(array.dtype), copy=False)
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
        kept.setflags(write=False)
        value = Value(Storage(kept, "constant", len(self.constants)), kept, kept)
        self.constants.append(kept)
        if array.ndim == 0:
            self._known[key] = value
        return value

    def entry(self, template: Array, *behind: Storage) -> Storage:
        """Add the storage of an entry, whose address moves over other storages in a repetition."""
        entry = Storage(template, "entry", self.n_entries)
        entry.behind = behind
        self.n_entries += 1
        return entry

    def viewed(self, value: Value, view: Callable[[Array], Array]) -> Value:
        """Return the view of a value that `view` makes from an array. Raise CannotLowerError if that is a copy."""
        template = view(value.template)
        if value.template.size and template.size and not np.may_share_memory(template, value.template):
            raise CannotLowerError("the result is a copy, not a view")
        return Value(value.storage, template, None if value.constant is None else view(value.constant))

    def contiguous(self, value: Value) -> Value:
        """Return the value in C order."""
        if value.template.flags.c_contiguous:
            return value
        return self.copied(value)

    def as_value(self, value: Any, dtype: np.dtype[Any] | None = None) -> Value:
        """Return a value unchanged, and a number as a constant. Raise CannotLowerError for anything else."""
        if isinstance(value, Value):
            return value if dtype is None else self.cast(value, dtype)
        found = self._number(value, dtype) if type(value) is TracedNumber else None
        if found is not None:
            return found
        if isinstance(value, (bool, int, float, complex, np.generic)):
            if dtype is not None and dtype.kind != "c" and isinstance(value, (complex, np.complexfloating)):
                raise CannotLowerError("NumPy warns where an imaginary part is dropped")
            try:
                number = np.asarray(value, dtype)
            except (OverflowError, ValueError) as error:
                raise CannotLowerError(str(error)) from error
            if number.dtype.hasobject:
                raise CannotLowerError(f"no dtype holds {value}")
            return self.constant(number)
        raise CannotLowerError(f"an argument is {_core.a_type(value)}")

    def _number(self, number: TracedNumber, dtype: np.dtype[Any] | None) -> Value | None:
        """Return a number of the call as NumPy converts it to a dtype, or None if that depends on its value."""
        key = TracedNumber, id(number)      # the graph keeps it alive
        value: Value | None = self.known_result(key)
        if value is None:
            if number.function is None:
                value = self.inputs[number.position] if number.position in self.numbers else None
            else:
                value = self.ufunc(*number.function)
            self.note_result(key, value)
        if value is None or dtype is None or dtype == value.dtype:
            return value
        return self.cast(value, dtype) if dtype.char in "fdFD" else None

    # --- steps ---

    def elementwise(self, loop: tuple[Any, ...], inputs: Sequence[Value], output: Value, name: str) -> Value:
        """Add a loop over the elements of the output. The inputs are broadcast to its shape."""
        if output.template.size:        # equals add_loop, inlined because most steps are made here
            shape, operands = output.shape, (*inputs, output)
            self.steps.append(LoopStep(loop, operands, shape, strides_over(shape, operands), name, self.site))
        return output

    def add_loop(
        self, loop: tuple[Any, ...], operands: tuple[Value, ...], shape: tuple[int, ...], name: str, n_out: int = 1,
        is_elementwise: bool = True,
    ) -> None:
        """Add a loop over a shape, to which the operands are broadcast. It writes to the last `n_out` of them."""
        self.steps.append(LoopStep(
            loop, operands, shape, strides_over(shape, operands), name, self.site, n_out=n_out,
            is_elementwise=is_elementwise))

    def cast(self, value: Value, dtype: np.dtype[Any]) -> Value:
        """Return the value in another dtype."""
        dtype = native(dtype)
        if value.dtype == dtype:
            return value
        if value.constant is not None:
            return self.fold(lambda array: array.astype(dtype), value)
        if value.dtype.kind == "c" and dtype.kind != "c" and dtype.kind != "b":
            raise CannotLowerError("NumPy warns where an imaginary part is dropped")
        key = "cast", *value.place, dtype
        known = self._repeated.get(key)
        if known is None:
            known = self._repeated[key] = self.copied(value, dtype)
        return known

    def copied(self, value: Value, dtype: np.dtype[Any] | None = None) -> Value:
        """Return a copy of a value in C order, in this dtype."""
        return self.copy_into(self.fresh(value.shape, value.dtype if dtype is None else dtype), value)

    def copy_into(self, target: Value, value: Value) -> Value:
        """Write a value to the target, to whose shape it is broadcast."""
        one, other = value.dtype, target.dtype
        loop: tuple[Any, ...]
        loop = ("copy", one.itemsize) if one == other else ("cast", one.num, other.num)
        check_loop(loop)
        return self.elementwise(loop, (value,), target, "copy" if one == other else "cast")

    def call(
        self, function: Callable[..., None], inputs: Sequence[Value], outputs: Sequence[Value], name: str,
        is_pure: bool, reason: str,
    ) -> None:
        """Add a call of a Python function, which is not a loop for this reason."""
        self.steps.append(CallStep(function, tuple(inputs), tuple(outputs), name, self.site, reason, is_pure))

    def fold(self, function: Callable[..., Any], *values: Value) -> Value:
        """Apply a function to constants now, and return the result as a constant."""
        self.folded += 1
        with np.errstate(all="ignore"):
            return self.constant(np.asarray(function(*[value.constant for value in values])))

    def can_fold(self, values: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        """Return whether all values are constants or literals, and the result is small enough to fold."""
        for value in values:
            if value.constant is None if isinstance(value, Value) else type(value) is TracedNumber:
                return False
        return math.prod(shape) * dtype.itemsize <= LARGEST_FOLDED

    # --- loops of universal functions ---

    def ufunc(self, function: np.ufunc, values: Sequence[Any]) -> Value:
        """Apply a universal function to values and numbers. Raise CannotLowerError unless it has one result."""
        if len(values) != function.nin or function.nout != 1:
            raise CannotLowerError(f"{function.__name__} takes {function.nin} operands and has {function.nout} results")
        loop, dtypes = loop_of(function, *[
            value.dtype if isinstance(value, Value) else _kind_of_number(value) for value in values])
        if function is np.power and dtypes[0].kind in "iu":
            raise CannotLowerError("powers of integers may raise")
        shape = common_shape([value.shape for value in values if isinstance(value, Value)])
        if self.can_fold(values, shape, dtypes[-1]) and is_quiet(function, values):
            return self.fold(function, *[self.as_value(value, dtype)
                                         for value, dtype in zip(values, dtypes[:-1], strict=True)])
        operands = [value if isinstance(value, Value) and value.dtype is dtype else self.as_value(value, dtype)
                    for value, dtype in zip(values, dtypes, strict=False)]
        if function in INVOLUTIONS and operands[0].is_whole:
            known = self.known_result((function, operands[0].storage))
            if known is not None and (known.shape, known.dtype) == (shape, dtypes[-1]):
                return known        # type: ignore[no-any-return]
        if self._has_negatives and function in WITHOUT_NEGATIVE and dtypes[-1].kind == "f":
            function, operands = self._without_negative(function, operands)
            loop = "ufunc", function, loop[2]
        if function in IDENTITIES and dtypes[-1].kind != "c":   # inf * (1+0j) contains a nan
            number, n_operands = IDENTITIES[function]
            for i, j in ((0, 1), (1, 0))[:n_operands]:
                if is_uniform(operands[j], number) and operands[i].shape == shape:
                    return operands[i]
        result = self.elementwise(loop, operands, self.fresh(shape, dtypes[-1]), function.__name__)
        if function in INVOLUTIONS:
            self.note_result((function, result.storage), operands[0])
            self._has_negatives = True
        return result

    def ufunc_of_several(self, function: np.ufunc, values: Sequence[Any]) -> tuple[Value, ...]:
        """Apply a universal function that has several results, which one loop writes."""
        loop, dtypes = loop_of(function, *[
            value.dtype if isinstance(value, Value) else _kind_of_number(value) for value in values])
        operands = [self.as_value(value, dtype) for value, dtype in zip(values, dtypes, strict=False)]
        key = function, *[value.place for value in operands]
        results: tuple[Value, ...] | None = self.known_result(key)
        if results is None:
            shape = common_shape([value.shape for value in operands])
            results = tuple([self.fresh(shape, dtype) for dtype in dtypes[function.nin:]])
            if math.prod(shape):
                self.add_loop(loop, (*operands, *results), shape, function.__name__, n_out=function.nout)
            self.note_result(key, results)
        return results

    def _without_negative(self, function: np.ufunc, operands: list[Value]) -> tuple[np.ufunc, list[Value]]:
        """Return a function and operands with the same bits, with a known value instead of its negative."""
        for i in (1, 0):
            known = self.known_result((np.negative, operands[i].storage)) if operands[i].is_whole else None
            if known is None or known.shape != operands[i].shape:
                continue
            other = operands[1 - i]
            if function is np.add:
                return np.subtract, [other, known]
            if function is np.subtract and i == 1:
                return np.add, [other, known]
            if function is np.multiply and other.constant is not None and other.constant.size and (
                    not any(other.template.strides)):
                opposite = self.constant(-other.constant.ravel()[0])
                return function, [known, self.viewed(opposite, functools.partial(np.broadcast_to, shape=other.shape))]
        return function, operands

    # --- bodies ---

    @contextmanager
    def body(self) -> Iterator[list[Step]]:
        """Collect the steps that are added inside the block, as those of a body."""
        outside, repeated = self.steps, self._repeated
        self.steps, self._repeated = [], dict(repeated)
        try:
            yield self.steps
        finally:
            self.steps, self._repeated = outside, repeated

    def mark(self) -> tuple[int, int]:
        """Return a mark of the plan's current length, for `roll_back`."""
        return len(self.steps), len(self._repeated)

    def roll_back(self, mark: tuple[int, int]) -> None:
        """Remove the steps since the mark, and forget the values that they compute."""
        n_steps, n_known = mark
        del self.steps[n_steps:]
        while len(self._repeated) > n_known:
            self._repeated.popitem()

    def known_result(self, key: Any) -> Any:
        """Return the result of an equal call in this body or one around it, or None."""
        return self._repeated.get(key)

    def note_result(self, key: Any, result: Any) -> None:
        """Note the result of a call for `known_result`."""
        self._repeated[key] = result


def common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that the shapes broadcast to."""
    for shape in shapes:
        if shape != shapes[0]:
            return np.broadcast_shapes(*shapes)
    return shapes[0] if shapes else ()


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in native byte order, as all values of plans are."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


INVOLUTIONS = frozenset((np.negative, np.conjugate))    # twice, they give the same bits
WITHOUT_NEGATIVE = frozenset((np.add, np.subtract, np.multiply))
IDENTITIES = {function: row.identity for function, row in ELEMENTARY.items() if row.identity is not None}


def is_uniform(value: Value, number: int) -> bool:
    """Return whether this is a constant whose elements all equal this number. 0 is not -0.0."""
    constant = value.constant
    if constant is None or constant.size == 0 or (constant.size > 1 and any(value.template.strides)):
        return False
    first = constant.ravel()[0]
    return bool(first == number) and not bool(np.signbit(first.real) if number == 0 else False)


def is_quiet(function: np.ufunc, values: Sequence[Any]) -> bool:
    """Return whether these constants raise no floating-point flags. Otherwise each run has to report them."""
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
    if type(value) is TracedNumber:
        return value.__class__
    if type(value) is bool:
        return np.dtype(bool)
    raise CannotLowerError(f"an operand is {_core.a_type(value)}")


@functools.lru_cache(4096)
def loop_dtypes(function: np.ufunc, *dtypes: Any) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of NumPy's loop for these operands, given as dtypes or types of Python numbers."""
    if all(isinstance(dtype, type) for dtype in dtypes):
        dtypes = tuple([np.dtype(dtype) for dtype in dtypes])
    try:
        return function.resolve_dtypes((*dtypes, *[None] * function.nout))
    except TypeError as error:
        raise CannotLowerError(str(error)) from error


@functools.lru_cache(4096)
def loop_of(function: np.ufunc, *dtypes: Any) -> tuple[tuple[Any, ...], tuple[np.dtype[Any], ...]]:
    """Return the loop for these operands, as in `_core.Plan`, and its dtypes.

    Raises CannotLowerError if the core has no such loop.
    """
    found = loop_dtypes(function, *dtypes)
    loop = "ufunc", function, tuple([dtype.num for dtype in found])
    check_loop(loop)
    return loop, found


@functools.lru_cache(4096)
def _has_loop(loop: tuple[Any, ...]) -> bool:
    return _core.has_loop(loop)


def check_loop(loop: tuple[Any, ...]) -> None:
    """Raise CannotLowerError if the core has no such loop."""
    if loop[0] == "ufunc" and not SUPPORTED.issuperset(loop[2]):
        raise CannotLowerError("there are no loops for these dtypes")
    if not _has_loop(loop):
        raise CannotLowerError(f"there is no loop {loop}")


SUPPORTED = frozenset([np.dtype(character).num for character in "?bBhHiIlLqQfdFD"])
"""The type numbers of the dtypes that have loops."""
