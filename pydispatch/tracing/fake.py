"""Fakes: a FakeTensor has a shape, a dtype and a device, but no data; a FakeMode runs operators on them.

A call runs the operator on arrays without data: its Meta kernel, its composite, or its fake implementation. For library
operators the result depends only on shapes, dtypes and literals, so it is kept as the answer to equal calls: that of
the library's own Meta kernels for all modes, any other for the mode.
"""

from __future__ import annotations

import functools
import weakref
from math import inf
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import OpOverload, Setting, Shell, Tensor, Wrapper
from pydispatch.autograd.values import bottom_of
from pydispatch.exceptions import DataDependentError, DispatchTypeError, NoDataError
from pydispatch.higher_order import HigherOrderOperator
from pydispatch.keys import DispatchKey, outranked_by
from pydispatch.library.fakes import in_fake_mode
from pydispatch.memory import items_of
from pydispatch.modes import DispatchMode, below_python, default_backend
from pydispatch.operators.declare import PACKS, declaration_of
from pydispatch.ops import ops
from pydispatch.registry.operators import schema_of
from pydispatch.registry.tables import table_entry
from pydispatch.schema import DeviceType, OptionalType, Schema
from pydispatch.subclasses import flatten, is_traceable_wrapper, unflatten
from pydispatch.tracing.values import LEAVES, ArraySpec
from pydispatch.tree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

CAPACITY = 4096
"""The number of answers, and of kinds, that are kept; when there are more, all of them are forgotten."""

ITEM = ops.np.item.default
GETITEM = ops.np.getitem.default
WITHOUT_VALUES = (ops.np.empty.default, ops.np.empty_like.default)
"""Operators whose results have undefined values."""


class Kind:
    """What equal fakes have in common; a unique object, so that kinds are compared by identity.

    `template` has shape, dtype and device, and so has `spec`. `value` is an array of at most one element, if it is
    known; a fake that is written to changes its kind.
    """

    __slots__ = ("device", "spec", "template", "value")

    def __init__(self, template: Shell, device: str, value: np.ndarray[Any, Any] | None = None) -> None:
        self.template = template
        self.spec = ArraySpec(template.shape, template.dtype, device)
        self.device = device
        self.value = value

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> FakeTensor:
        """A new fake of this kind, as the result of a call in a mode."""
        return FakeTensor(self, mode)


kinds: dict[Any, Kind] = {}

answers_of_library: dict[tuple[Any, ...], Any] = {}
"""The answers of the library's own Meta kernels, which are the same in all modes."""


def kind_of(like: Any, device: str) -> Kind:
    """The kind of fakes that have the shape and dtype of `like` and are on this device."""
    dtype = like.dtype
    description = like.shape, dtype, dtype.num, device      # dtypes that are equal may differ in their number
    kind = kinds.get(description) if dtype.metadata is None else None
    if kind is None:
        kind = Kind(Shell(shape=like.shape, dtype=dtype, device=device), device)
        if dtype.metadata is None:
            if len(kinds) >= CAPACITY:
                kinds.clear()       # equal fakes may then have two kinds, which costs only a second answer
            kinds[description] = kind
    return kind


class FakeTensor(Tensor):
    """A Tensor with a shape, a dtype and a device, but no data; a FakeMode makes it."""

    __slots__ = ("_mode", "kind")

    kind: Kind
    _mode: FakeMode
    wraps = False       # it holds no other array, which could be a value of a transform

    def __init__(self, kind: Kind, mode: FakeMode | None = None) -> None:
        if mode is None:
            raise DispatchTypeError(
                f"FakeTensor: {_core.a_type(kind)} does not name its FakeMode\n"
                "make it with its mode: mode.from_array(x)"
            )
        shell = Shell(kind.template)
        shell.fake = True
        Tensor.__init__(self, shell)
        self.kind = kind
        self._mode = mode

    @property
    def fake_mode(self) -> FakeMode:
        """The mode that it belongs to."""
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
        return f"FakeTensor(shape={self.shape}, dtype={self.dtype}, device={self.kind.device})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        result = memo[id(self)] = FakeTensor(self.kind, self._mode)
        result.requires_grad = self.requires_grad
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        raise DispatchTypeError(
            "a FakeTensor belongs to its FakeMode and cannot be pickled\nmake it where it is used: mode.from_array(x)"
        )


LEAVES.add(FakeTensor)


# --- questions and answers -------------------------------------------------------------------------------------------


LITERALS = frozenset({int, float, complex, bool, str, type(None)})
"""Types whose equal values always lead to the same shapes and dtypes."""


class _Unknown:
    """Replaces a value that cannot be described; it is not hashable, so no answer to its question is kept."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


UNKNOWN = _Unknown()


def _described(value: Any, fakes: list[FakeTensor]) -> Any:
    """The part of a question for one value: all that the answer may depend on. Collects its fakes, in order."""
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
        start, stop, step = value.start, value.stop, value.step
        return slice, type(start), start, type(stop), stop, type(step), step
    if isinstance(value, np.generic):
        return type_, value
    if value is Ellipsis or isinstance(value, np.dtype):
        return value
    fakes += _fakes_of(tree_leaves(value))
    return UNKNOWN


def _describe_keywords(kwargs: dict[str, Any], question: list[Any], fakes: list[FakeTensor]) -> None:
    for name, value in kwargs.items():
        question += name, _described(value, fakes)


def _note_part(whole: Shell, key: Any, part: Shell) -> None:
    """Let the view that a basic key selects be known as that part of the array."""
    if whole.place is None:
        whole.place = object()
    part.place = whole.place, items_of(key)


def _fakes_of(leaves: list[Any]) -> list[FakeTensor]:
    return [leaf for leaf in leaves if type(leaf) is FakeTensor]


class Viewed:
    """The answer to a call whose result shares memory with the `source`-th fake among the arguments.

    Where `source` is None, it has a memory of its own, though the operator returns views of other arguments.
    """

    __slots__ = ("kind", "source")

    def __init__(self, kind: Kind, source: int | None) -> None:
        self.kind = kind
        self.source = source

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> FakeTensor:
        """A fake in the memory of its source."""
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
        """That argument."""
        return fakes[self.position]


class Other(NamedTuple):
    """The answer to a call that returns a value that is not an array."""

    value: Any

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> Any:
        """That value."""
        return self.value


class ResultPytree(NamedTuple):
    """The answer to a call that returns a pytree of results."""

    parts: tuple[Kind | Viewed | SameAsArgument | Other, ...]
    spec: TreeSpec

    def given(self, mode: FakeMode, fakes: list[FakeTensor]) -> Any:
        """The pytree."""
        return tree_unflatten([part.given(mode, fakes) for part in self.parts], self.spec)


def _memory_of(fake: FakeTensor) -> Any:
    """The Shell that represents the memory of the fake."""
    shell = fake.array
    return shell if shell.base is None else shell.base


# --- the mode --------------------------------------------------------------------------------------------------------


class FakeMode(DispatchMode):
    """A mode in which arrays have no data: factories make FakeTensors, and operators compute only shapes and dtypes.

    Arrays with data are an error, except NumPy scalars; with `allow_real_inputs`, operators may read from them.
    DataDependentError where a shape or a number depends on data.
    """

    enters_anew = False

    def __init__(self, *, allow_real_inputs: bool = False) -> None:
        self.allow_real_inputs = allow_real_inputs
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._known: dict[int, tuple[weakref.ref[Any], Tensor]] = {}
        self._memories: dict[int, tuple[weakref.ref[Any], weakref.ref[Shell]]] = {}

    def from_array(self, x: Any) -> Any:
        """The fake of an array or Tensor, the same one every time; it does not keep the array alive.

        It requires grad if the Tensor does. For a subclass with a handler that can be flattened, the result is an
        object of that subclass that holds fakes. DispatchTypeError for other subclasses with handlers, for values that
        are not arrays, and for fakes of another mode.
        """
        if type(x) is FakeTensor:
            self._check_own(x, "from_array")
            return x
        known = self._known.get(id(x))
        if known is not None and known[0]() is x:
            return known[1]
        fake = self._convert(x)
        if isinstance(x, Tensor) and x.requires_grad:
            fake.requires_grad = True
        if not isinstance(x, np.generic):
            self._known[id(x)] = weakref.ref(x, functools.partial(_forget, weakref.ref(self), id(x))), fake
        return fake

    def new_fake(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeTensor:
        """A new fake of NumPy's arrays, with a memory of its own."""
        return FakeTensor(kind_of(ArraySpec(shape, dtype), "CPU"), self)

    def _convert(self, x: Any) -> Tensor:
        if is_traceable_wrapper(x):
            inner, context = flatten(x)
            fakes = {name: self.from_array(value) for name, value in inner.items()}
            wrapper: Tensor = unflatten(type(x), fakes, context, x.shape, x.strides)
            return wrapper
        if not _core.is_array(x) or (isinstance(x, Tensor) and x.dispatches_to_python):
            raise DispatchTypeError(
                f"FakeMode.from_array: expected an array, or a Tensor that is one or can be flattened, found a "
                f"{type(x).__name__}\npass an array: mode.from_array(np.asarray(x)); or define __tensor_flatten__"
            )
        shell = Shell(x)
        device = shell.device.backend
        assert device is not None
        fake = FakeTensor(kind_of(shell, device), self)
        self._lay_in_memory(fake.array, x)
        return fake

    def _lay_in_memory(self, shell: Shell, x: Any) -> None:
        """Let fakes of arrays that share memory share memory, too: that of the first fake."""
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
            return NotImplemented       # a FakeTensor handles the call, below the tape; other classes do so themselves
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        question: list[Any] = [func.live_table or UNKNOWN, _core.current_state().default_backend, _described(args, [])]
        if kwargs:
            _describe_keywords(kwargs, question, [])
        return self._answer(func, args, kwargs, tuple(question), [])

    def _higher_order(
        self, func: HigherOrderOperator, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Any:
        """Run the operator's rule for arrays without data on fakes; arrays that its functions make are fakes, too."""
        rule = func.rule_for("Meta")
        if rule is None or any(isinstance(leaf, Wrapper) for leaf in tree_leaves((args, kwargs))):
            return NotImplemented
        with self:
            return rule(*args, **kwargs or {})

    def _answer(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None, question: Any,
        fakes: list[FakeTensor],
    ) -> Any:
        """The results of a call, from the answer to its question; `fakes` are the fakes among its arguments."""
        for fake in fakes:
            if fake._mode is not self:
                self._check_own(fake, f"operator {func.name}")
        answer = None
        try:
            answer = answers_of_library.get(question) or self._answers.get(question)
        except TypeError:               # something in it is UNKNOWN
            question = None
        result = (
            self._find(func, args, kwargs or {}, question) if answer is None else answer.given(self, fakes))
        if func is GETITEM and len(fakes) == 1 and type(result) is FakeTensor and not kwargs:
            _note_part(fakes[0].array, args[1], result.array)
        return result

    def _find(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], question: Any) -> Any:
        """The results of a call, by running it without data; the answer is kept if the call has a question.

        NotImplemented where a transform has to see the call first.
        """
        leaves, spec = tree_flatten((args, kwargs))
        if any(isinstance(leaf, Wrapper) for leaf in leaves):
            return NotImplemented
        leaves = self._admitted(func, args, kwargs, leaves)
        fakes = _fakes_of(leaves)
        for fake in fakes:
            self._check_own(fake, f"operator {func.name}")      # some that a question does not show
            if fake.kind.value is not None and fake._version:
                fake.kind = kind_of(fake.kind.template, fake.kind.device)
        if func is ITEM:
            return _number(fakes[0])
        is_random = "random" in func.tags and func.namespace in PACKS
        if is_random:       # a NumPy scalar would select the kernel that draws
            leaves = [leaf.item() if isinstance(leaf, np.generic) else leaf for leaf in leaves]
        args, kwargs = tree_unflatten([_without_data(leaf) for leaf in leaves], spec)
        schema = schema_of(func)
        args, device = _take_device(schema, args, kwargs, "Meta")
        device = device or _common_device(fakes)
        returns_views = any(_core.aliased_arguments(schema.arguments, result) for result in schema.returns)
        answer = self._answer_of(_run(func, args, kwargs), fakes, device, returns_views)
        if func.namespace in PACKS:     # other operators may return anything, so their answers are not kept
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
                f"{who}: found a FakeTensor of another FakeMode, expected those of one mode\n"
                "make all of them with one mode: mode.from_array(x)"
            )

    def _admitted(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]
    ) -> list[Any]:
        """The leaves, unless arrays with data are refused; if there is no fake, the first such array becomes one."""
        real = [leaf for leaf in leaves if _is_real(leaf)]
        if not real:
            return leaves
        arguments = zip(schema_of(func).arguments, func.bind(args, kwargs), strict=True)
        for argument, value in arguments:
            if any(map(_is_real, tree_leaves(value))) and (argument.mutable or not self.allow_real_inputs):
                remedy = "; or FakeMode(allow_real_inputs=True), to read from it" if not argument.mutable else ""
                raise DispatchTypeError(
                    f"operator {func.name}: argument {argument.name} holds an array with data, expected a FakeTensor, "
                    f"since a FakeMode is active\nconvert it: mode.from_array({argument.name}){remedy}"
                )
        if _fakes_of(leaves):
            return leaves
        return [self.from_array(leaf) if leaf is real[0] else leaf for leaf in leaves]

    def _answer_of(self, found: Any, fakes: list[FakeTensor], device: str, returns_views: bool) -> Any:
        """The answer for results that were found: each is an argument, shares memory with one, or is new."""
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
        """The answer for arguments whose values are known: it has the values of the results, if these are small."""
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
    """Is the kernel that runs without data the one that a pack declares?"""
    entry = table_entry(func, DispatchKey.Meta)
    declared = declaration_of(func)
    return (entry is not None and declared is not None and entry.is_raw
            and entry.kernel.function is declared.kernels.get("Meta"))


def _forget(mode: weakref.ref[FakeMode], address: int, _: object) -> None:
    alive = mode()
    if alive is not None:
        alive._known.pop(address, None)


def _is_real(leaf: Any) -> bool:
    """Is it an array with data? NumPy's scalars count as literals here."""
    return _core.is_array(leaf) and type(leaf) is not FakeTensor and not isinstance(leaf, np.generic)


def _without_data(leaf: Any) -> Any:
    """A leaf as kernels take it: the Shell of a fake, the raw array of a Tensor."""
    return leaf.array if isinstance(leaf, Tensor) else leaf


def _take_device(
    schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any], instead: str
) -> tuple[tuple[Any, ...], str | None]:
    """The positional arguments with the device of the call replaced; and that device, or None."""
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
    """The device whose kernels would run: without fakes the ambient one; else Meta, the highest other one, or CPU."""
    devices = {fake.kind.device for fake in fakes}
    if len(devices) == 1:
        return devices.pop()
    if not devices:
        return _core.current_state().default_backend
    return max(devices, key=lambda device: (device != "CPU", device == "Meta", devices & outranked_by(device) != set()))


def _run(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the operator on arrays without data. DataDependentError if its kernel reads data."""
    try:
        with Setting(in_fake_mode, True), default_backend("Meta"):
            return below_python(func, *args, **kwargs)
    except NoDataError as error:
        raise DataDependentError(
            f"operator {func.name}: the kernel that it runs on arrays without data reads values\n"
            f'read only shapes and dtypes in the function that you register: library.register_fake("{func.name}", fake)'
        ) from error


def _number(fake: FakeTensor) -> Any:
    """The only element of a fake whose value is known."""
    if fake.size != 1:
        raise ValueError(f"operator {ITEM.name}: argument a has shape {fake.shape}, expected one element\n"
                         "take one of them: x[0]")
    if fake.kind.value is None:
        raise DataDependentError(
            f"operator {ITEM.name}: argument a is a FakeTensor, whose value is unknown, expected one with data\n"
            "keep to arrays, for example with ops.np.where(condition, x, other), or leave the FakeMode"
        )
    return fake.kind.value.item()


def _says_it_all(answer: Any, fakes: list[FakeTensor]) -> bool:
    """Is the answer valid for all equal calls? Not if it names an argument that was passed twice."""
    if type(answer) is Kind:
        return True
    parts = answer.parts if type(answer) is ResultPytree else (answer,)
    if any(type(part) is Other for part in parts):
        return False
    return len({id(_memory_of(fake)) for fake in fakes}) == len(fakes)


def _size(part: Kind | Viewed | SameAsArgument | Other) -> float:
    """The number of elements of a result; infinite if unknown."""
    kind = part.kind if type(part) is Viewed else part
    return kind.template.size if type(kind) is Kind else inf


def _with_value(part: Any, value: Any) -> Any:
    """The part of an answer for a result whose value is known."""
    if type(part) is Viewed:
        return Viewed(_with_value(part.kind, value), part.source)
    return Kind(part.template, part.device, np.array(value))
