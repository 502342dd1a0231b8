"""Programs over the operator library: plain functions that are written step by step, with NumPy looking on.

A program is built with its inputs at hand. Every step is first done by NumPy, which tells the shapes and dtypes that
the next step has to go by, whether the step is defined at all, and what the whole program has to return.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from pydispatch import ops
from pydispatch.operators import DECLARATIONS, VARIANTS
from pydispatch.tree import tree_leaves, tree_map
from tests.operators.samples import CUBE, Sample, call, functional_names, numpy_function, samples, schema_of
from tests.warning_filters import quiet

SCOPE = {"ops": ops, "np": np, "dtype": np.dtype, "nan": np.nan, "inf": np.inf}
"""The names that the source of a program may use: `repr` of what stands in it."""
REFUSALS = (TypeError, ValueError, IndexError, ArithmeticError)
"""The error with which NumPy rejects a call."""
LARGEST = 150
"""Elements of an array; a step that makes a larger one is not taken."""


# --- programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A value of a program, named `v0`, `v1` and so on. The inputs come first."""

    index: int

    def __repr__(self) -> str:
        return f"v{self.index}"


class Step(NamedTuple):
    """One call of an operator, by the name of its declaration. A step that splits has several results."""

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Value, ...]
    splits: bool = False

    @property
    def source(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        targets = ", ".join(map(repr, self.results)) + "," * (self.splits and len(self.results) == 1)
        return f"{targets} = ops.np.{self.operator.removesuffix('.out')}({', '.join(arguments)})"


@dataclass(frozen=True)
class Inputs:
    """Recipes for the inputs, so that every run has its own: views of arrays that are copied, aliases included."""

    bases: tuple[Any, ...]
    views: tuple[tuple[int, Callable[[Any], Any]], ...]     # the base, and which view of it

    def fresh(self) -> list[Any]:
        bases = [*map(copied, self.bases)]
        return [view(bases[i]) for i, view in self.views]


@dataclass(frozen=True)
class Program:
    """Steps, the values that are returned in some container, and inputs for which all of it is defined."""

    inputs: Inputs
    steps: tuple[Step, ...]
    returned: Any
    has_masks: bool
    """Do keys select by truth values? Then shapes depend on them, and there is no knowing of what fakes select."""

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The program as somebody would write it."""
        scope = dict(SCOPE)
        exec(self.source, scope)
        return scope["program"]

    @property
    def source(self) -> str:
        parameters = ", ".join(repr(Value(i)) for i in range(len(self.inputs.views)))
        lines = [f"def program({parameters}):", *(step.source for step in self.steps), f"return {self.returned!r}"]
        return "\n    ".join(lines) + "\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def __repr__(self) -> str:
        inputs = "\n".join(f"v{i} = {value!r}" for i, value in enumerate(self.inputs.fresh()))
        return f"\n{self.source}{inputs}\n"

    @property
    def operators(self) -> Counter[str]:
        """The operators that it calls, with their numbers of calls."""
        return Counter(step.operator for step in self.steps)

    def in_numpy(self, *inputs: Any) -> Any:
        """Return the program with NumPy's functions in place of the operators."""
        values = dict(enumerate(inputs))
        for step in self.steps:
            found = step_in_numpy(step.operator, *resolved((step.args, step.kwargs), values))
            for value, result in zip(step.results, found if step.splits else [found], strict=True):
                values[value.index] = result
        return resolved(self.returned, values)


def resolved(tree: Any, values: Any) -> Any:
    """Return the tree with what its Values stand for."""
    return tree_map(lambda leaf: values[leaf.index] if isinstance(leaf, Value) else leaf, tree)


# --- what NumPy does -------------------------------------------------------------------------------------------------


def viewed(x: Any, key: Any) -> np.ndarray:
    """Return a view even of a single element."""
    items = key if isinstance(key, tuple) else (key,)
    return np.asarray(x)[items if Ellipsis in items else (*items, Ellipsis)]


def put(x: np.ndarray, key: Any, values: Any, accumulate: bool = False) -> np.ndarray:
    """Put values at the key of `x`, maybe in the memory of `x`, where NumPy before 2.2 reads what it wrote."""
    key, values = tree_map(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, (key, values))
    if accumulate:
        np.add.at(x, key, values if np.ndim(values) == 0 else np.broadcast_to(values, x[key].shape))
    else:
        x[key] = values
    return x


def added_along(x: np.ndarray, indices: np.ndarray, values: Any, axis: int) -> np.ndarray:
    """Add values to `x` where take_along_axis reads. Return `x`, which may be a view of any kind."""
    places = np.take_along_axis(np.arange(x.size).reshape(x.shape), indices, axis)
    np.add.at(x, np.unravel_index(places, x.shape), np.broadcast_to(values, places.shape))
    return x


def where_into(condition: Any, x: Any, y: Any, *, out: np.ndarray) -> np.ndarray:
    np.copyto(out, np.where(condition, x, y))
    return out


def rounded(a: Any, decimals: int = 0) -> Any:
    """Round, and never return `a`, which NumPy 2.0 does for integers."""
    result = np.round(a, decimals)
    return copied(result) if result is a else result


IN_NUMPY: dict[str, Callable[..., Any]] = {
    "getitem": lambda x, key: x[key], "detach": lambda x: viewed(x, ...), "where.out": where_into,
    "astype": lambda x, dtype, *, copy=True: np.asarray(x).astype(dtype, copy=copy),
    "round": rounded, "setitem_": put, "index_put_": put, "scatter_add_": added_along,
}
"""Functions of NumPy that have another name or take other arguments."""


def step_in_numpy(operator: str, args: Any, kwargs: Any) -> Any:
    """Return NumPy's result of a step: an array, or a list of them."""
    if operator in IN_NUMPY:
        return IN_NUMPY[operator](*args, **kwargs)
    function = numpy_function(VARIANTS[operator].functional)
    if operator == VARIANTS[operator].in_place:
        return function(*args, **kwargs, out=args[0])
    result = function(*args, **kwargs)
    return kwargs.get("out", result)    # of a scalar, np.clip(..., out=array) returns another scalar


# --- what is defined -------------------------------------------------------------------------------------------------


def is_defined(operator: str, args: Any, kwargs: Any, target: Any, results: list[Any], others: list[list[Any]]) -> bool:
    """Return whether the values of the arguments before the call determine the results to the last bit.

    Not where conversions, signs of nan or the choice of a loop are the processor's: NumPy has other loops for other
    layouts, and where operand and result overlap. `others` are results of such loops.
    """
    name = VARIANTS[operator].functional
    if name not in ("empty", "empty_like") and not all(agree(results, other) for other in others):
        return False
    leaves = [np.asarray(leaf) for leaf in tree_leaves((args, kwargs)) if not isinstance(leaf, UNNUMBERED)]
    floats = [leaf for leaf in leaves if leaf.dtype.kind in "fc"]
    if name in ("fmax", "fmin") and zeros_of_both_signs_meet(*args):
        return False        # which of them NumPy gives depends on the length, and on where the result lies
    if name in ("signbit", "copysign"):
        return not any(np.isnan(leaf).any() for leaf in floats)
    kinds = {np.asarray(leaf).dtype.kind for leaf in (target, *results) if leaf is not None}
    if name in ("argmax", "argmin") or not kinds & set("iu"):
        return True
    lowest = 0 if "u" in kinds else -100
    return all(np.isfinite(leaf).all() and (leaf.real <= 100).all() and (leaf.real >= lowest).all() for leaf in floats)


UNNUMBERED = (np.dtype, slice, str, type(None), type(Ellipsis))
"""Leaves without a value that could be undefined."""


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether dtypes, shapes and bits are the same, with all nans alike."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype.kind == "c":
        return same_bits(one.real, other.real) and same_bits(one.imag, other.imag)
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    bits = f"u{one.dtype.itemsize}"
    equal = np.ascontiguousarray(one).view(bits) == np.ascontiguousarray(other).view(bits)
    return bool(np.all(equal.reshape(one.shape) | (np.isnan(one) & np.isnan(other))))


def zeros_of_both_signs_meet(x1: Any, x2: Any) -> bool:
    """Return whether one array has 0.0 where the other has -0.0."""
    x1, x2 = np.asarray(x1), np.asarray(x2)
    if "c" in (x1.dtype.kind, x2.dtype.kind):
        return False
    return bool(np.any((x1 == 0) & (x2 == 0) & (np.signbit(x1) != np.signbit(x2))))


def in_new_memory(operator: str, args: Any, kwargs: Any) -> list[Any]:
    """Return the result of the operator as a function."""
    kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    found = step_in_numpy(VARIANTS[operator].functional, args, kwargs)
    return found if isinstance(found, list) else [found]


def agree(results: list[Any], others: list[Any]) -> bool:
    """Return whether two arrays are the same after a cast to one dtype."""
    pairs = [(np.asarray(result), np.asarray(other)) for result, other in zip(results, others, strict=True)]
    return all(same_bits(result, other.astype(result.dtype)) for result, other in pairs)


def is_mask(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype == bool


def copied(leaf: Any) -> Any:
    return leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf


def overlaps(target: np.ndarray, operands: Any) -> bool:
    """Return whether an array among the operands shares memory with the target."""
    return any(isinstance(leaf, np.ndarray) and np.may_share_memory(leaf, target) for leaf in tree_leaves(operands))


class Refused(Exception):  # noqa: N818
    """A step that NumPy refuses, that is not defined, or that makes too large an array."""


class Builder:
    """A program that grows: the steps so far, and what NumPy has computed for them."""

    def __init__(self, inputs: Inputs):
        self.inputs = inputs
        self.values: list[Any] = inputs.fresh()
        self.writable = [isinstance(value, np.ndarray) for value in self.values]
        self.steps: list[Step] = []
        self.has_masks = False

    def step(self, operator: str, *args: Any, **kwargs: Any) -> tuple[Value, ...]:
        """Take a step, or raise Refused. Gives its results."""
        given_args, given_kwargs = given = resolved((args, kwargs), self.values)
        before = tree_map(copied, given)
        target = self.target_of(operator, given_args, given_kwargs)
        content = None if target is None else target.copy()
        try:
            with quiet():
                warnings.simplefilter("error", DeprecationWarning)      # what a version to come will refuse
                others = [in_new_memory(operator, *arguments) for arguments in (before, given)]
                found = step_in_numpy(operator, *given)
                splits = isinstance(found, list)
                results = list(found) if splits else [found]
                if sum(map(np.size, results)) > LARGEST or not is_defined(operator, *before, target, results, others):
                    raise Refused
        except (*REFUSALS, DeprecationWarning, Refused) as error:
            if target is not None:
                target[...] = content
            raise Refused from error
        names = [argument.name for argument in schema_of(operator).arguments]
        values = tuple(Value(len(self.values) + i) for i in range(len(results)))
        self.values += results
        self.writable += [self.can_be_written(operator, args, result) for result in results]
        self.has_masks |= "key" in names and any(map(is_mask, tree_leaves(given_args[names.index("key")])))
        self.steps.append(Step(operator, args, kwargs, values, splits))
        return values

    def target_of(self, operator: str, args: Any, kwargs: Any) -> Any:
        """Return the array that a step writes to. Refused where it cannot, or must not since operands lie there too."""
        variants = VARIANTS[operator]
        if operator == variants.functional:
            return None
        target = kwargs["out"] if operator == variants.out else args[0]
        if not isinstance(target, np.ndarray) or not target.flags.writeable:
            raise Refused
        operands = [args, {name: value for name, value in kwargs.items() if name != "out"}]
        may_overlap = operator != variants.out or isinstance(getattr(np, variants.functional), np.ufunc)
        if not may_overlap and overlaps(target, operands):
            raise Refused
        return target

    def can_be_written(self, operator: str, args: Any, result: Any) -> bool:
        """Return whether a value can be written to: neither scalars of NumPy nor views of them, which Tensors share."""
        if not isinstance(result, np.ndarray) or not result.flags.writeable:
            return False
        may_be_view = "view" in DECLARATIONS[operator].tags or "conversion" in DECLARATIONS[operator].tags
        return not may_be_view or not isinstance(args[0], Value) or self.writable[args[0].index]

    def finished(self, returned: Any) -> Program:
        return Program(self.inputs, tuple(self.steps), returned, self.has_masks)


# --- a program for every operator ------------------------------------------------------------------------------------

SAMPLES = {"detach": [call(CUBE), call(CUBE.T), call(np.array(2))]}
LEFT_OUT = {"item": "its result is a number, with which a program is batched for other values"} | {
    name: "it draws" for name in DECLARATIONS if "random" in DECLARATIONS[name].tags
}
"""Operators that are in no program, and why."""


def programs_ending_in(operator: str) -> Iterator[Program]:
    """Return short programs whose last call is that of the operator, one per sample call that is defined."""
    for sample in SAMPLES.get(operator) or samples(VARIANTS[operator].functional):
        try:
            yield program_of(operator, sample)
        except Refused:
            continue


def program_of(operator: str, sample: Sample) -> Program:
    """Return the sample call on a view of its first array, in place or with an `out` as the operator has it."""
    arrays: list[Any] = []

    def as_input(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        arrays.append(leaf)
        return Value(len(arrays) - 1)

    args, kwargs = tree_map(as_input, tuple(sample))
    identity = [(i, lambda base: base) for i in range(len(arrays))]
    builder = Builder(Inputs(tuple(arrays), tuple(identity)))
    if args and isinstance(args[0], Value):
        args = (*builder.step("getitem", args[0], Ellipsis), *args[1:])
    if operator == VARIANTS[operator].out:
        with quiet():
            try:
                result = np.asarray(numpy_function(VARIANTS[operator].functional)(*sample.args, **sample.kwargs))
            except REFUSALS as error:
                raise Refused from error
        (kwargs["out"],) = builder.step("empty", result.shape, dtype=result.dtype)
    results = builder.step(operator, *args, **kwargs)
    if operator in ("empty", "empty_like"):
        if not isinstance(builder.values[results[0].index], np.ndarray):
            raise Refused
        builder.step("setitem_", results[0], Ellipsis, 1)
    return builder.finished((results, [Value(i) for i in range(len(arrays))]))


# --- random programs -------------------------------------------------------------------------------------------------

SHAPES = ((3,), (2, 3), (3, 2), (4, 3), (3, 1), (2,), (4,), (), (2, 1, 3), (2, 2, 3), (0, 3), (3, 3))
KINDS = ("float64", "float64", "float64", "float32", "int64", "int64", "int8", "uint8", "bool", "complex128")
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda base: base,
    "transposed": lambda base: base.T,
    "reversed": lambda base: base[::-1] if base.ndim else base,
    "every other": lambda base: base[..., ::2] if base.ndim else base,
    "one less": lambda base: base[1:] if base.ndim else base,
}
SCALARS = (2, -1, 0.5, 3, 1.5, True, 0)
DTYPES = tuple(map(np.dtype, ("float64", "float32", "int64", "int8", "complex128", "bool")))


def numbers(shape: tuple[int, ...], kind: str, shift: int) -> np.ndarray:
    """Return small numbers of each sign with few digits, unsigned bytes, and truth values."""
    count = int(np.prod(shape))
    steps = (np.arange(count) * 7 + shift * 3) % 11
    values = (steps - 5) / (4 if kind.startswith(("float", "complex")) else 1)
    if kind == "uint8":
        values = steps
    elif kind == "bool":
        values = steps % 2
    return values.reshape(shape).astype(kind) + (np.resize([0.5j, -1j, 0], shape) if kind == "complex128" else 0)


def special(shape: tuple[int, ...], kind: str, shift: int) -> np.ndarray:
    """Draw floating-point numbers with zeros of both signs, infinities and nan."""
    values = np.roll([0.5, -0.0, np.inf, 1.0, np.nan, 0.0, -np.inf, -2.0], shift)
    return np.resize(values, shape).astype("float32" if kind == "float32" else "float64")


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    """Draw two to four arrays, and one of indices. Every other one may be a view of one before."""
    bases, views = [], []
    for i in range(draw(st.integers(2, 4))):
        layout = LAYOUTS[draw(st.sampled_from(list(LAYOUTS)))]
        if bases and draw(st.integers(0, 3)) == 0:
            views.append((draw(st.integers(0, len(bases) - 1)), layout))
            continue
        make = special if draw(st.integers(0, 7)) == 0 else numbers
        bases.append(np.asarray(make(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(KINDS)), i)))
        views.append((len(bases) - 1, layout))
    bases.append(np.array(draw(st.sampled_from(([0, 1], [1, 0, 1], [[0], [1]], [-1, 0])))))
    views.append((len(bases) - 1, LAYOUTS["as it is"]))
    return Inputs(tuple(bases), tuple(views))


class Chooser(Builder):
    """A builder that draws what to do next."""

    def __init__(self, draw: st.DrawFn):
        super().__init__(draw(inputs()))
        self.draw = draw

    def one_of(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def once_in(self, count: int) -> bool:
        return self.draw(st.integers(0, count - 1)) == count - 1

    def where(self, fits: Callable[[Any], bool], *, only: Any = None) -> Value:
        """Return one of the values that fit, half of the time a late one. Raise Refused where there is none."""
        indices = range(len(self.values)) if only is None else only
        found = [Value(i) for i in reversed(indices) if fits(self.values[i])]
        if not found:
            raise Refused
        return self.one_of(found if self.once_in(2) else found[:4])

    def any(self) -> Value:
        return self.where(lambda value: True)

    def any_or_number(self) -> Any:
        return self.one_of(SCALARS) if self.once_in(4) else self.any()

    def target(self) -> Value:
        """Return a value to write to. Views rather than others, since their bases change too."""
        indices = [i for i, writable in enumerate(self.writable) if writable]
        views = [i for i in indices if self.values[i].base is not None]
        return self.where(lambda value: True, only=indices if not views or self.once_in(3) else views)

    def out(self, result: Any) -> Value:
        """Return an array that a result can be written to: an existing value, or a new one."""
        fits = [i for i, writable in enumerate(self.writable) if writable and self.values[i].shape == np.shape(result)]
        if fits and self.once_in(2):
            return self.where(lambda value: True, only=fits)
        return self.step("zeros", np.shape(result), dtype=result.dtype)[0]

    def indices(self) -> Value:
        """Return an array of indices of most axes, not of 0 dimensions, for scalars of NumPy's are one number of a key.
        """
        return self.where(lambda value: np.ndim(value) > 0 and value.dtype.kind == "i" and (np.abs(value) <= 1).all())

    def shape(self, value: Value) -> tuple[int, ...]:
        return np.shape(self.values[value.index])

    def axis(self, value: Value) -> int:
        ndim = len(self.shape(value))
        if not ndim:
            raise Refused
        return self.draw(st.integers(-ndim, ndim - 1))

    def basic_key(self, value: Value) -> Any:
        """Return numbers and slices for some axes, perhaps before an Ellipsis or with a new axis."""
        shape = self.shape(value)
        shape = shape[:self.draw(st.integers(0, len(shape)))]
        slices = (slice(None), slice(None, None, -1), slice(1, None), slice(None, -1), slice(None, None, 2))
        items: list[Any] = [self.one_of((*slices, *range(-extent, extent))) for extent in shape]
        if self.once_in(4):
            items.append(Ellipsis)
        elif self.once_in(4):
            items.insert(self.draw(st.integers(0, len(items))), None)
        return items[0] if len(items) == 1 else tuple(items)

    def index_key(self, value: Value) -> Any:
        """Return an array of indices for an axis, with a number, a slice or another array before or after."""
        array, ndim = self.indices(), len(self.shape(value))
        keys = (array, (array, Ellipsis), (array, None))
        longer = ((slice(None), array), (array, array), (0, array), (array, slice(None, None, 2)))
        return self.one_of(keys + longer if ndim > 1 else keys)

    def take(self, operator: str) -> None:
        """Call the operator on values that may fit, or raise Refused."""
        variants = VARIANTS[operator]
        name = variants.functional
        first = self.target() if operator == variants.in_place else self.any()
        args, kwargs = arguments_of(name)(self, name, first)
        if operator == name in BINARY and self.once_in(6):
            args = args[::-1]
        if operator == variants.out:
            (made,) = self.step(name, *args, **kwargs)
            kwargs["out"] = self.out(self.values[made.index])
        results = self.step(operator, *args, **kwargs)
        if name in ("empty", "empty_like"):
            self.step("setitem_", *results, Ellipsis, 2)


Arguments = Callable[[Chooser, str, Value], Sample]


def pointwise_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    others = [builder.any_or_number() for _ in range(n_arrays(name) - 1)]
    takes_dtype = any(argument.name == "dtype" for argument in schema_of(name).arguments)
    options = {"dtype": builder.one_of(DTYPES)} if takes_dtype and builder.once_in(6) else {}
    return call(first, *others, **options)


def n_arrays(name: str) -> int:
    return sum(str(argument.type) == "Tensor" for argument in schema_of(name).arguments)


def reduction_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    axes = builder.one_of(((), (builder.axis(first),), ((0, 1),)))
    return call(first, *axes, **({"keepdims": True} if builder.once_in(2) else {}))


def matmul_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    columns = builder.shape(first)[-1:]
    return call(first, builder.where(
        lambda value: np.ndim(value) > 0 and np.shape(value)[max(np.ndim(value) - 2, 0):][:1] == columns))


def join_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    def is_alike(value: Any) -> bool:
        return np.shape(value) == builder.shape(first)

    return call((first, *(builder.where(is_alike) for _ in range(builder.one_of((0, 1, 2))))), builder.one_of((0, -1)))


def put_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    values = builder.any_or_number() if builder.once_in(2) else 3
    return call(first, builder.index_key(first), values, **({"accumulate": True} if builder.once_in(2) else {}))


def reshape_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    shape = builder.shape(first)
    return call(first, builder.one_of((-1, (1, *shape), (*shape[1:], *shape[:1]), shape[::-1])))


def transpose_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    axes = tuple(range(len(builder.shape(first))))
    return call(first, *builder.one_of(((), (axes[::-1],), (axes[1:] + axes[:1],))))


def one_of_these(*choices: tuple[Any, ...]) -> Arguments:
    """Return the first argument, then one of these."""
    return lambda builder, name, first: call(first, *builder.one_of(choices))


def along_an_axis(*before: Callable[[Chooser], Any]) -> Arguments:
    """Return the first argument, then those, then an axis of it."""
    return lambda builder, name, first: call(first, *(make(builder) for make in before), builder.axis(first))


def sorting_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    return call(first, builder.axis(first), "stable")       # other kinds may order ties as they like


def shape_first(*after: Callable[[Chooser], Any]) -> Arguments:
    """Return a shape, then those. The first argument is of no use."""
    return lambda builder, name, first: call(builder.one_of(SHAPES), *(make(builder) for make in after))


def einsum_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    axes = "ijkl"[:len(builder.shape(first))]
    return builder.one_of((
        call(f"{axes}->{axes[::-1]}", first), call(f"{axes}->", first), call(f"{axes},{axes}->{axes}", first, first)))


def interval_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    return call(first, *builder.step("arange", builder.one_of((1, 3))))


def interp_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    if np.iscomplexobj(builder.values[first.index]):    # NumPy casts complex scalars and refuses complex arrays
        raise Refused
    samples = builder.where(is_vector)
    return call(first, *builder.step("arange", builder.shape(samples)[0]), samples, *builder.one_of(((), (0.5, -1))))


def convolve_arguments(builder: Chooser, name: str, first: Value) -> Sample:
    return call(builder.where(is_vector), builder.where(is_vector), builder.one_of(("full", "same", "valid")))


def is_vector(value: Any) -> bool:
    return np.ndim(value) == 1 and np.size(value) > 0


BY_TAG: dict[str, Arguments] = {
    "pointwise": pointwise_arguments, "reduction": reduction_arguments, "accumulation": along_an_axis(),
    "sorting": sorting_arguments, "join": join_arguments, "like": one_of_these(()), "conversion": one_of_these(()),
}
BY_NAME: dict[str, Arguments] = {
    "round": one_of_these((), (1,)),
    "clip": lambda builder, name, first: call(first, builder.one_of((-1, None, 0.5)), builder.any_or_number()),
    "matmul": matmul_arguments,
    "covariance": one_of_these((2.0,)),
    "einsum": einsum_arguments,
    "interval": interval_arguments,
    "interp": interp_arguments,
    "convolve": convolve_arguments,
    "reshape": reshape_arguments,
    "ravel": one_of_these(()),
    "transpose": transpose_arguments,
    "swapaxes": along_an_axis(lambda builder: 0),
    "moveaxis": along_an_axis(lambda builder: -1),
    "expand_dims": one_of_these((0,), (-1,), ((0, -1),)),
    "squeeze": one_of_these(()),
    "broadcast_to": lambda builder, name, first: call(first, (2, *builder.shape(first))),
    "flip": lambda builder, name, first: call(first, *builder.one_of(((), (builder.axis(first),)))),
    "diagonal": lambda builder, name, first: call(
        builder.where(lambda value: np.ndim(value) > 1), *builder.one_of(((), (1,), (-1, -1, 0)))),
    "sliding_window_view": along_an_axis(lambda builder: (2,)),
    "read_only": one_of_these(()),
    "detach": one_of_these(()),
    "split": along_an_axis(lambda builder: builder.one_of(((1,), 1, (1, 2)))),
    "repeat": one_of_these((2,), (2, 0)),
    "tile": one_of_these((2,), ((1, 2),)),
    "roll": one_of_these((1,), (-1, 0)),
    "getitem": lambda builder, name, first: call(first, builder.basic_key(first)),
    "setitem": lambda builder, name, first: call(first, builder.basic_key(first), builder.any_or_number()),
    "index": lambda builder, name, first: call(first, builder.index_key(first)),
    "index_put": put_arguments,
    "take": along_an_axis(Chooser.indices),
    "take_along_axis": along_an_axis(Chooser.indices),
    "scatter_add": along_an_axis(Chooser.indices, Chooser.any_or_number),
    "argpartition": along_an_axis(lambda builder: (0,)),
    "slice_sums": along_an_axis(Chooser.indices),
    "slices_filled": along_an_axis(Chooser.indices, lambda builder: 4),
    "zeros": shape_first(),
    "ones": shape_first(),
    "empty": shape_first(),
    "full": shape_first(Chooser.any_or_number),
    "arange": lambda builder, name, first: call(builder.one_of((3, 2, 4.0))),
    "linspace": one_of_these((2, 3), (0.5, 2)),
    "eye": lambda builder, name, first: call(3, builder.one_of((None, 2))),
    "full_like": lambda builder, name, first: call(first, builder.one_of(SCALARS)),
    "astype": lambda builder, name, first: call(first, builder.one_of(DTYPES), copy=builder.one_of((True, False))),
}
"""Functions that draw the arguments of an operator after the first one: by name, else by category."""


def arguments_of(name: str) -> Arguments:
    return BY_NAME.get(name) or next(BY_TAG[tag] for tag in DECLARATIONS[name].tags if tag in BY_TAG)


def with_tag(tag: str) -> list[str]:
    return [name for name in OPERATORS if tag in DECLARATIONS[name].tags]


OPERATORS = [name for name in DECLARATIONS if name not in LEFT_OUT]
BINARY = [name for name in functional_names() if "pointwise" in DECLARATIONS[name].tags and n_arrays(name) == 2]
LIKELIER = (["negative"], ["getitem"], ["getitem"], with_tag("view"), with_tag("inplace"), with_tag("inplace"),
            ["setitem_", "index_put_", "scatter_add_"], with_tag("indexing"), with_tag("creation"), with_tag("join"),
            with_tag("reduction"), with_tag("rearrangement"), with_tag("linalg"), with_tag("conversion"))
"""Operators from which half of the steps are drawn, so that there are views, and writes through them."""
HANDS = [OPERATORS[i::30] for i in range(30)]
"""All operators, dealt: what Hypothesis draws from as many comes in clusters, and leaves most of them out."""


@st.composite
def programs(draw: st.DrawFn, hand: list[str], at_least: int = 10) -> Program:
    """Draw programs of ten steps and a few more, half of them calls of operators in `hand`.

    What they return is the last value and some others, or all.
    """
    builder = Chooser(draw)
    length = draw(st.integers(at_least, at_least + 6))
    while len(builder.steps) < length:
        try:
            builder.take(builder.one_of(hand if builder.once_in(2) else builder.one_of(LIKELIER)))
        except Refused:
            continue
    last = Value(len(builder.values) - 1)
    everything = [*map(Value, range(len(builder.values)))]
    others = draw(st.lists(st.sampled_from(everything), max_size=3))
    containers = (last, (last, *others), {"last": last, "others": others}, everything)
    return builder.finished(draw(st.sampled_from(containers)))
