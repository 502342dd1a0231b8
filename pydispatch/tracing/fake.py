"""Fakes: a FakeTensor has a shape, a dtype and a device, but no data. A FakeMode runs operators on them.

A call runs the operator on arrays without data: its Meta kernel, its composite, or its fake implementation. For library
operators the result depends only on shapes, dtypes and literals. It is therefore cached as the answer to equal calls.
Answers of the library's own Meta kernels are cached for all modes, any other answer only for its mode.
"""

from __future__ import annotations

import functools
import weakref
from math import inf
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Setting, Shell, Tensor, Wrapper, below_python
from pydispatch._registry.conversions import user_call, written_in_trace
from pydispatch._registry.operators import schema_of
from pydispatch._registry.tables import table_entry
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import DataDependentError, DispatchTypeError, NoDataError
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.keys import DispatchKey, outranked_by
from pydispatch.library.fakes import in_fake_mode
from pydispatch.modes import DispatchMode, default_backend
from pydispatch.operators.declare import PACKS, declaration_of
from pydispatch.ops import ops
from pydispatch.schema import Schema
from pydispatch.schema.base_types import DeviceType
from pydispatch.schema.compound_types import OptionalType
from pydispatch.subclasses import flatten, is_traceable_wrapper, unflatten
from pydispatch.tensor import values_in_modes
from pydispatch.tracing.numbers import value_of
from pydispatch.tracing.values import LEAVES, ArraySpec
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

CAPACITY = 4096
"""The number of cached answers, and of cached kinds. When there are more, the cache is emptied."""

ITEM = ops.np.item.default
WITHOUT_VALUES = (ops.np.empty.default, ops.np.empty_like.default)
"""Operators whose results have undefined values."""


class Kind:
    """The properties that equal fakes share. Each kind is a unique object, so kinds are compared by identity.

    `template` and `spec` have the shape, dtype and device. `value` is an array of at most one element, if it is known.
    A fake that is written to changes its kind.
    """

    __slots__ = ("device", "spec", "template", "value")

    def __init__(self, template: Shell, device: str, value: np.ndarray[Any, Any] | None = None) -> None:
        self.template = template
        self.spec = ArraySpec(template.shape, template.dtype, device)
        self.device = device
        self.value = value

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> FakeTensor:
        """Return a new fake of this kind, as the result of a call in a mode."""
        return FakeTensor(self, mode)


kinds: dict[Any, Kind] = {}

answers_of_library: dict[tuple[Any, ...], Any] = {}
"""The answers of the library's own Meta kernels, which are the same in all modes."""


def kind_of(like: Any, device: str) -> Kind:
    """Return the kind of fakes that have the shape and dtype of `like` and are on this device."""
    dtype = like.dtype
    description = like.shape, dtype, dtype.num, device      # equal dtypes may have different numbers
    kind = kinds.get(description) if dtype.metadata is None else None
    if kind is None:
        kind = Kind(Shell(shape=like.shape, dtype=dtype, device=device), device)
        if dtype.metadata is None:
            if len(kinds) >= CAPACITY:
                kinds.clear()       # equal fakes may then have two kinds, which costs only a second answer
            kinds[description] = kind
    return kind


class FakeTensor(Tensor):
    """A Tensor with a shape, a dtype and a device, but no data. A FakeMode makes it."""

    __slots__ = ("_mode", "kind")

    kind: Kind
    _mode: FakeMode
    wraps = False       # it holds no other array, which could be a value of a transform

    def __init__(self, kind: Kind, mode: FakeMode | None = None) -> None:
        if mode is None:
            raise DispatchTypeError(
                f"FakeTensor: {_core.a_type(kind)} does not have a FakeMode\n"
                "make the FakeTensor with a mode: mode.from_array(x)"
            )
        shell = Shell(kind.template)
        shell.fake = True
        Tensor.__init__(self, shell)
        self.kind = kind
        self._mode = mode

    @property
    def fake_mode(self) -> FakeMode:
        """The mode that a FakeTensor belongs to."""
        return self._mode

    @classmethod
    def __pydispatch__(
        cls, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if len(types) > 1:
            return NotImplemented       # the other class knows the meaning of the array, a fake only its metadata
        fakes: list[FakeTensor] = []
        if isinstance(func, HigherOrderOperator):
            fakes = _fakes_of(tree_leaves((args, kwargs)))
            return fakes[0]._mode._higher_order(func, args, kwargs)
        question: list[Any] = [func.live_table or UNKNOWN]
        for value in args:
            type_ = type(value)
            if type_ is cls:
                fakes.append(value)
                question.append(value.kind)
            else:
                question.append((type_, value) if type_ in LITERALS else _described(value, fakes))
        if kwargs:
            _describe_keywords(kwargs, question, fakes)
        return fakes[0]._mode._answer(func, args, kwargs, tuple(question), fakes)

    def __repr__(self) -> str:
        known = self._known_values()
        what = f"shape={self.shape}, dtype={self.dtype}" if known is None else str(known)
        return f"FakeTensor({what}, device={self.kind.device})"

    def __str__(self) -> str:
        return format(self)

    def __format__(self, spec: str) -> str:
        known = self._known_values()
        return repr(self) if known is None else format(known[()], spec)

    def _known_values(self) -> Any:
        """Return the values of a constant of a trace, whose text may be a key, or None for another Tensor."""
        try:
            return values_in_modes(self, "text")
        except (DataDependentError, NoDataError):
            return None

    def __copy__(self) -> Any:
        return ops.np.copy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if not self.requires_grad and _core.tensors_are_followed():
            return memo.setdefault(id(self), ops.np.copy(self))
        result = memo[id(self)] = FakeTensor(self.kind, self._mode)
        result.requires_grad = self.requires_grad
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        raise DispatchTypeError(
            "a FakeTensor belongs to its FakeMode and cannot be pickled\nmake it where you use it: mode.from_array(x)"
        )


LEAVES.add(FakeTensor)


# --- questions and answers -------------------------------------------------------------------------------------------


LITERALS = frozenset({int, float, complex, bool, str, type(None)})
"""Types whose equal values always lead to the same shapes and dtypes."""


class _Unknown:
    """Replaces a value that cannot be described. It is not hashable, so no answer to its question is cached."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


UNKNOWN = _Unknown()


def _described(value: Any, fakes: list[FakeTensor]) -> Any:
    """Return the part of a question for one value, on which the answer may depend, and collect its fakes in order."""
    type_ = type(value)
    if type_ is FakeTensor:
        fakes.append(value)
        return value.kind
    if type_ in LITERALS:
        return type_, value
    if type_ is tuple:
        types = tuple(map(type, value))
        return (types, value) if LITERALS.issuperset(types) else tuple([_described(item, fakes) for item in value])
    if type_ is slice:
        return slice, *[_described(part, fakes) for part in (value.start, value.stop, value.step)]
    if isinstance(value, np.generic):
        return type_, value
    if value is Ellipsis or isinstance(value, np.dtype):
        return value
    fakes += _fakes_of(tree_leaves(value))
    return UNKNOWN


def _describe_keywords(kwargs: dict[str, Any], question: list[Any], fakes: list[FakeTensor]) -> None:
    for name, value in kwargs.items():
        question += name, _described(value, fakes)


def _fakes_of(leaves: list[Any]) -> list[FakeTensor]:
    return [leaf for leaf in leaves if type(leaf) is FakeTensor]


class Viewed:
    """The answer to a call whose result shares memory with the `source`-th fake among the arguments.

    If `source` is None, the result has separate memory, although the operator returns views of other arguments.
    """

    __slots__ = ("kind", "source")

    def __init__(self, kind: Kind, source: int | None) -> None:
        self.kind = kind
        self.source = source

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> FakeTensor:
        """Return a fake in the memory of its source."""
        result = FakeTensor(self.kind, mode)
        if self.source is None:
            result.array.base = object()
            return result
        source = fakes[self.source].array
        owner = source.base
        result.array.base = source if owner is None else owner
        return result


class SameAsArgument(NamedTuple):
    """The answer to a call that returns the `position`-th fake among the arguments."""

    position: int

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> FakeTensor:
        """Return that argument."""
        return fakes[self.position]


class Other(NamedTuple):
    """The answer to a call that returns a value that is not an array."""

    value: Any

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> Any:
        """Return that value."""
        return self.value


class ResultPytree(NamedTuple):
    """The answer to a call that returns a pytree of results."""

    parts: tuple[Kind | Viewed | SameAsArgument | Other, ...]
    spec: TreeSpec

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> Any:
        """Return the pytree."""
        return tree_unflatten([part.given(mode, fakes) for part in self.parts], self.spec)


def _memory_of(fake: FakeTensor) -> Any:
    """Return the Shell that represents the memory of the fake."""
    shell = fake.array
    return shell if shell.base is None else shell.base


# --- the mode --------------------------------------------------------------------------------------------------------


class FakeMode(DispatchMode):
    """A mode in which arrays have no data: factories make FakeTensors, and operators compute only shapes and dtypes.

    Arrays with data raise an error, except NumPy scalars. Raises DataDependentError if a shape or a number depends on
    data.

    Parameters
    ----------
    allow_real_inputs : bool, optional
        With True, operators may read from arrays with data.

    Examples
    --------
    >>> from pydispatch import ops
    >>> from pydispatch.tracing import FakeMode
    >>> with FakeMode():
    ...     print(ops.np.ones((2, 3)) @ ops.np.ones((3, 4)))
    FakeTensor(shape=(2, 4), dtype=float64, device=CPU)
    """

    enters_anew = False

    _follows_tensors = True

    def __init__(self, *, allow_real_inputs: bool = False) -> None:
        self.allow_real_inputs = allow_real_inputs
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._known: dict[int, tuple[weakref.ref[Any], Tensor]] = {}
        self._memories: dict[int, tuple[weakref.ref[Any], weakref.ref[Shell]]] = {}

    def from_array(self, x: Any) -> Any:
        """Return the fake of an array or Tensor, the same one on every call, without keeping the array alive.

        Parameters
        ----------
        x : array or Tensor
            An array, or a Tensor of a subclass with a handler that can be flattened.

        Returns
        -------
        FakeTensor
            A fake that requires grad if the Tensor does. For a subclass that can be flattened, an object of that
            subclass that holds fakes.

        Raises
        ------
        DispatchTypeError
            For other subclasses with handlers, for values that are not arrays, and for fakes of another mode.
        """
        if type(x) is FakeTensor:
            self._check_own(x, "from_array")
            return x
        known = self._known.get(id(x))
        if known is not None and known[0]() is x:
            return known[1]
        fake = self._convert(x)
        if isinstance(x, Tensor) and x.requires_grad and _core.innermost_transform_now() is None:
            fake.requires_grad = True
        if _core.is_scalar(x):
            _core.to_scalar(fake)
        if not isinstance(x, np.generic):
            self._known[id(x)] = weakref.ref(x, functools.partial(_forget, weakref.ref(self), id(x))), fake
        return fake

    def new_fake(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeTensor:
        """Return a new fake of a NumPy array, with separate memory."""
        return FakeTensor(kind_of(ArraySpec(shape, dtype), "CPU"), self)

    def _convert(self, x: Any) -> Tensor:
        if is_traceable_wrapper(x):
            inner, context = flatten(x)
            fakes = {name: self.from_array(value) for name, value in inner.items()}
            wrapper: Tensor = unflatten(type(x), fakes, context, x.shape, x.strides)
            return wrapper
        if not _core.is_array(x) or (isinstance(x, Tensor) and x.dispatches_to_python):
            raise DispatchTypeError(
                f"FakeMode.from_array: expected an array or a Tensor that can be flattened, found a "
                f"{type(x).__name__}\npass an array: mode.from_array(np.asarray(x)), or define __tensor_flatten__"
            )
        shell = Shell(x)
        device = shell.device.backend
        assert device is not None
        fake = FakeTensor(kind_of(shell, device), self)
        self._lay_in_memory(fake.array, x)
        return fake

    def _lay_in_memory(self, shell: Shell, x: Any) -> None:
        """Make fakes of arrays that share memory share the memory of the first fake."""
        owner = bottom_of(x)
        while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
            owner = owner.base
        if not isinstance(owner, np.ndarray):
            return
        known, first = self._memories.get(id(owner), (None, None))
        if known is not None and first is not None and known() is owner and first() is not None:
            shell.base = first()
        else:
            self._memories[id(owner)] = weakref.ref(owner), weakref.ref(shell)

    def __pydispatch__(
        self, func: Any, types: tuple[type, ...], args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if types:
            return NotImplemented       # a FakeTensor handles the call below the tape, and so do other classes
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        if any(type(arg) is Tensor and arg.requires_grad for arg in args) and self.allow_real_inputs:
            # the tape, which is below, records operators on fakes
            return func(*[self.from_array(arg) if type(arg) is Tensor else arg for arg in args], **kwargs or {})
        question: list[Any] = [func.live_table or UNKNOWN, _core.current_state().default_backend, _described(args, [])]
        if kwargs:
            _describe_keywords(kwargs, question, [])
        return self._answer(func, args, kwargs, tuple(question), [])

    def _higher_order(
        self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run the operator's rule for arrays without data on fakes, with functions that make fakes too."""
        rule = func.rule_for("Meta")
        if rule is None or any(isinstance(leaf, Wrapper) for leaf in tree_leaves((args, kwargs))):
            return NotImplemented
        with self:
            return rule(*args, **kwargs or {})

    def _answer(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None, question: Any,
        fakes: list[FakeTensor],
    ) -> Any:
        """Return the results of a call, from the answer to its question. `fakes` are the fakes among its arguments."""
        for fake in fakes:
            if fake._mode is not self:
                self._check_own(fake, f"operator {func.name}")
        answer = None
        try:
            answer = answers_of_library.get(question) or self._answers.get(question)
        except TypeError:               # a part of it is UNKNOWN
            question = None
        return self._find(func, args, kwargs or {}, question) if answer is None else answer.given(self, fakes)

    def _find(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], question: Any) -> Any:
        """Return the results of a call by running it without data, and cache the answer if the call has a question.

        Return NotImplemented if a transform has to see the call first.
        """
        leaves, spec = tree_flatten((args, kwargs))
        if any(isinstance(leaf, Wrapper) for leaf in leaves):
            return NotImplemented
        leaves = self._admitted(func, args, kwargs, leaves)
        fakes = _fakes_of(leaves)
        for fake in fakes:
            self._check_own(fake, f"operator {func.name}")      # a question does not show all fakes
            if fake.kind.value is not None and fake._version:
                fake.kind = kind_of(fake.kind.template, fake.kind.device)
        if func is ITEM:
            return _number(fakes[0])
        is_random = "random" in func.tags and func.namespace in PACKS
        if is_random:       # a NumPy scalar would select the kernel that draws
            leaves = [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten([_without_data(value_of(leaf)) for leaf in leaves], spec)
        schema = schema_of(func)
        args, device = _take_device(schema, args, kwargs, "Meta")
        device = device or _common_device(fakes)
        returns_views = any(_core.aliased_arguments(schema.arguments, result) for result in schema.returns)
        answer = self._answer_of(_run(func, args, kwargs), fakes, device, returns_views)
        if func.namespace in PACKS:     # other operators may return anything, so their answers are not cached
            known = [fake.kind.value is not None for fake in fakes]
            if all(known) and not schema.is_mutable and not is_random:
                answer = self._with_values(func, leaves, spec, answer)
            if question is not None and not any(known) and _says_it_all(answer, fakes):
                answers = answers_of_library if _runs_declared_kernel(func) else self._answers
                if len(answers) >= CAPACITY:
                    answers.clear()
                answers[question] = answer
        return answer.given(self, fakes)

    def _check_own(self, fake: FakeTensor, who: str) -> None:
        if fake._mode is not self:
            raise DispatchTypeError(
                f"{who}: found a FakeTensor of another FakeMode, expected one mode for all\n"
                "make all of them with one mode: mode.from_array(x)"
            )

    def _admitted(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]
    ) -> list[Any]:
        """Return the leaves, or raise if arrays with data are not allowed.

        If there is no fake, the first array with data becomes one.
        """
        real = [leaf for leaf in leaves if _is_real(leaf)]
        if not real:
            return leaves
        arguments = zip(schema_of(func).arguments, func.bind(args, kwargs), strict=True)
        for argument, value in arguments:
            if any(map(_is_real, tree_leaves(value))) and (argument.mutable or not self.allow_real_inputs):
                what = f"operator {func.name}: argument {argument.name} holds an array with data, expected a FakeTensor"
                if self.allow_real_inputs:      # traces set it
                    raise DispatchTypeError(f"{what}\n{written_in_trace(user_call())}")
                remedy = ", or use FakeMode(allow_real_inputs=True) to read from it" if not argument.mutable else ""
                raise DispatchTypeError(
                    f"{what}, because a FakeMode is active\nconvert it: mode.from_array({argument.name}){remedy}"
                )
        if _fakes_of(leaves):
            return leaves
        return [self.from_array(leaf) if leaf is real[0] else leaf for leaf in leaves]

    def _answer_of(self, found: Any, fakes: list[FakeTensor], device: str, returns_views: bool) -> Any:
        """Return the answer for these results: each is an argument, shares memory with one, or is new."""
        leaves, spec = tree_flatten(found)
        parts = tuple([self._part(leaf, fakes, device, returns_views) for leaf in leaves])
        return ResultPytree(parts, spec) if spec.type is not None else parts[0]

    def _part(
        self, found: Any, fakes: list[FakeTensor], device: str, returns_views: bool
    ) -> Kind | Viewed | SameAsArgument | Other:
        if not _core.is_array(found):
            return Other(found)
        for position, fake in enumerate(fakes):
            if found is fake.array:
                return SameAsArgument(position)
        kind = kind_of(found, device)
        owner = getattr(found, "base", None)
        for position, fake in enumerate(fakes):
            if owner is not None and owner is _memory_of(fake):
                return Viewed(kind, position)
        return Viewed(kind, None) if returns_views else kind

    def _with_values(self, func: OpOverload, leaves: list[Any], spec: TreeSpec, answer: Any) -> Any:
        """Return the answer for arguments with known values, with the values of the results if these are small."""
        parts = answer.parts if type(answer) is ResultPytree else (answer,)
        if func in WITHOUT_VALUES or any(_size(part) > 1 for part in parts):
            return answer
        args, kwargs = tree_unflatten([leaf.kind.value if type(leaf) is FakeTensor else leaf for leaf in leaves], spec)
        args, _ = _take_device(schema_of(func), args, kwargs, "CPU")
        with default_backend("CPU"):
            values = tree_leaves(below_python(func, *args, **kwargs))
        parts = tuple([_with_value(part, value) for part, value in zip(parts, values, strict=True)])
        return ResultPytree(parts, answer.spec) if type(answer) is ResultPytree else parts[0]


def _runs_declared_kernel(func: OpOverload) -> bool:
    """Return whether the kernel that runs without data is the one that a pack declares."""
    entry = table_entry(func, DispatchKey.Meta)
    declared = declaration_of(func)
    return (entry is not None and declared is not None and entry.is_raw
            and entry.kernel.function is declared.kernels.get("Meta"))


def _forget(mode: weakref.ref[FakeMode], address: int, _: object) -> None:
    alive = mode()
    if alive is not None:
        alive._known.pop(address, None)


def _is_real(leaf: Any) -> bool:
    """Return whether this is an array with data. NumPy scalars count as literals here."""
    return _core.is_array(leaf) and type(leaf) is not FakeTensor and not isinstance(leaf, np.generic)


def _without_data(leaf: Any) -> Any:
    """Return a leaf as kernels take it: the Shell of a fake, the raw array of a Tensor."""
    return leaf.array if isinstance(leaf, Tensor) else leaf


def _take_device(
    schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], instead: str
) -> tuple[tuple[Any, ...], str | None]:
    """Return the positional arguments with the device of the call replaced, and that device or None."""
    for position, argument in enumerate(schema.arguments):
        kind = argument.type
        if not isinstance(kind.inner if isinstance(kind, OptionalType) else kind, DeviceType):
            continue
        if kwargs.get(argument.name) is not None:
            asked: str = kwargs[argument.name]
            kwargs[argument.name] = instead
            return args, asked
        if position < len(args) and args[position] is not None:
            return (*args[:position], instead, *args[position + 1:]), args[position]
    return args, None


def _common_device(fakes: list[FakeTensor]) -> str:
    """Return the device whose kernels would run.

    Without fakes it is the ambient device. Otherwise it is Meta, the highest other one, or CPU.
    """
    devices = {fake.kind.device for fake in fakes}
    if len(devices) == 1:
        return devices.pop()
    if not devices:
        return _core.current_state().default_backend
    return max(devices, key=lambda device: (device != "CPU", device == "Meta", devices & outranked_by(device) != set()))


def _run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the operator on arrays without data. Raise DataDependentError if its kernel reads data."""
    try:
        with Setting(in_fake_mode, True), default_backend("Meta"):
            return below_python(func, *args, **kwargs)
    except NoDataError as error:
        raise DataDependentError(
            f"operator {func.name}: its kernel for arrays without data reads values\n"
            f'register a function that reads only shapes and dtypes: library.register_fake("{func.name}", fake)'
        ) from error


def _number(fake: FakeTensor) -> Any:
    """Return the only element of a fake whose value is known."""
    if fake.size != 1:
        raise ValueError(f"operator {ITEM.name}: argument a has shape {fake.shape}, expected one element\n"
                         "select one element: x[0]")
    if fake.kind.value is None:
        raise DataDependentError(
            f"operator {ITEM.name}: argument a is a FakeTensor, whose value is unknown, expected an array with data\n"
            "use operators on arrays, such as ops.np.where(condition, x, other), or leave the FakeMode"
        )
    return fake.kind.value.item()


def _says_it_all(answer: Any, fakes: list[FakeTensor]) -> bool:
    """Return whether the answer is valid for all equal calls.

    It is not if it refers to an argument that was passed twice.
    """
    if type(answer) is Kind:
        return True
    parts = answer.parts if type(answer) is ResultPytree else (answer,)
    if any(type(part) is Other for part in parts):
        return False
    return len({id(_memory_of(fake)) for fake in fakes}) == len(fakes)


def _size(part: Kind | Viewed | SameAsArgument | Other) -> float:
    """Return the number of elements of a result, or infinity if unknown."""
    kind = part.kind if type(part) is Viewed else part
    return kind.template.size if type(kind) is Kind else inf


def _with_value(part: Any, value: Any) -> Any:
    """Return the part of an answer for a result whose value is known."""
    if type(part) is Viewed:
        return Viewed(_with_value(part.kind, value), part.source)
    return Kind(part.template, part.device, np.array(value))
