"""Functions of users as functions of flat arrays, whose every input is an explicit argument.

`FlatFunction` puts arrays into containers and takes them out again. `Lifted` adds what a function captures to its
arguments. What it captures is found by `outline`, which runs it once on arrays without data, where nobody sees it.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pydispatch import _core
from pydispatch._core import Tensor, Vmap
from pydispatch.autograd.values import as_tensor, bottom_of
from pydispatch.backends import MetaArray
from pydispatch.exceptions import AliasingError, DispatchTypeError, FunctionalizationError
from pydispatch.modes import default_backend
from pydispatch.tree import TreeSpec, flat_spec, tree_flatten, tree_leaves, tree_unflatten

Arrays = tuple[Any, ...]
Flat = Callable[..., Arrays]
"""A function of arrays that returns a tuple of them, and captures no values of levels."""


def check_function(who: str, function: Any, call: str) -> None:
    """DispatchTypeError unless it can be called; `who` names it, as in "cond: true_fn", `call` is how to pass one."""
    if not callable(function):
        raise DispatchTypeError(f"{who} is a {type(function).__name__}, expected a function\nwrite {call}")


class FlatFunction:
    """A user's function as one of flat arrays; what is no array in its arguments stays as it is in `args`.

    `who` names it in errors: "cond: true_fn". `keeps_inputs` says that it may return what it was given. Raises
    DispatchTypeError for results that are no arrays (None may be among them), FunctionalizationError where it writes
    to an argument, AliasingError where it returns one; not when it `is_sound`, which a run without data has shown.
    `structure` is that of its results, as soon as it has run.
    """

    def __init__(
        self, who: str, function: Callable[..., Any], args: tuple[Any, ...], *, keeps_inputs: bool = False
    ) -> None:
        self.who = who
        self.function = function
        self.is_sound = False
        self.structure: Structure | None = None
        self.refusal: Exception | None = None       # the last error that was raised here
        self._keeps_inputs = keeps_inputs
        leaves, self._spec = tree_flatten(args)
        self._places = [i for i, leaf in enumerate(leaves) if _core.is_array(leaf)]
        self._fixed = [None if _core.is_array(leaf) else leaf for leaf in leaves]
        self._is_flat = all(map(_core.is_array, args))

    def __call__(self, *values: Any) -> Arrays:
        tensors = [as_tensor(value) for value in values]
        if self.is_sound:
            return self._outputs(self.function(*self._arguments(tensors)))
        versions = [tensor._version for tensor in tensors]
        outputs = self._outputs(self.function(*self._arguments(tensors)))
        for i, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
            if tensor._version != version:
                self.refuse_write(f"argument {i}, of shape {tuple(tensor.shape)}")
            if any(_core.have_one_memory(output, tensor) for output in outputs):
                self.refuse_alias(f"argument {i}")
        return outputs

    def __repr__(self) -> str:
        return f"<{self.who}>"

    def _arguments(self, tensors: list[Tensor]) -> Any:
        """What the function is called with."""
        if self._is_flat:
            return tensors
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self._spec)

    def _outputs(self, result: Any) -> Arrays:
        """The arrays in what the function returned, as Tensors."""
        if type(result) is tuple and all(isinstance(item, Tensor) for item in result):
            self.structure = flat_structure(len(result))
            return result
        leaves, spec = tree_flatten(result)
        self.structure = Structure(spec, tuple([leaf is None for leaf in leaves]))
        outputs = [leaf for leaf in leaves if leaf is not None]
        for i, output in enumerate(outputs):
            if not _core.is_array(output):
                self.refuse(DispatchTypeError(
                    f"{self.who}: result {i} is a {type(output).__name__}, expected an array\n"
                    "return arrays, in containers if you like: np.asarray(number)"))
        return tuple([as_tensor(output) for output in outputs])

    def refuse_alias(self, what: str) -> None:
        """Raise AliasingError: a result is what the function was given, or a view of it."""
        if not self._keeps_inputs:
            self.refuse(AliasingError(f"{self.who}: a result shares memory with {what}\nreturn a copy: ops.np.copy(x)"))

    def refuse_write(self, what: str) -> None:
        """Raise FunctionalizationError: the function writes to what it was given."""
        self.refuse(FunctionalizationError(
            f"{self.who} writes in place to {what}, which is not its own: who reads that, and when, nobody can say\n"
            "write to a copy: ops.np.copy(x)"))

    def refuse(self, error: Exception) -> None:
        """Raise an error that is the function's fault."""
        self.refusal = error
        raise error


class Structure(NamedTuple):
    """How results are nested, and which of the leaves are None."""

    spec: TreeSpec
    is_none: tuple[bool, ...]

    def nested(self, values: Sequence[Any]) -> Any:
        """The results of a function, given their arrays."""
        left = iter(values)
        return tree_unflatten([None if is_none else next(left) for is_none in self.is_none], self.spec)


@functools.lru_cache
def flat_structure(n: int) -> Structure:
    """That of a tuple of `n` arrays."""
    return Structure(flat_spec(n), (False,) * n)


class Lifted:
    """A function with what it captures as explicit arguments, after its own ones.

    While it runs, each captured Tensor means the argument that was passed for it.
    """

    def __init__(self, function: FlatFunction, captured: tuple[Tensor, ...]) -> None:
        self.function = function
        self.captured = captured

    def __repr__(self) -> str:
        return repr(self.function)

    def __call__(self, *values: Any) -> Arrays:
        n = len(values) - len(self.captured)
        if all(value is tensor for value, tensor in zip(values[n:], self.captured, strict=True)):
            return self.function(*values[:n])
        given = [as_tensor(value) for value in values[n:]]
        versions = [value._version for value in given]
        meant = {id(tensor): value for tensor, value in zip(self.captured, given, strict=True)}
        outputs = _core.substituting(lambda tensor: meant.get(id(tensor), tensor), self.function, *values[:n])
        if not self.function.is_sound:
            for value, version, tensor in zip(given, versions, self.captured, strict=True):
                if value._version != version:
                    self.function.refuse_write(described_capture(self.function.function, tensor))
        for output in outputs:
            if id(output) in meant:
                self.function.refuse_alias(described_capture(self.function.function, output))
        return tuple([meant.get(id(output), output) for output in outputs])


def described_capture(function: Callable[..., Any], tensor: Any) -> str:
    """A captured array in words, by its variable's name where that is known."""
    try:
        found = inspect.getclosurevars(function)
    except TypeError:
        return f"a captured array of shape {tuple(tensor.shape)}"
    for name, value in [*found.nonlocals.items(), *found.globals.items()]:
        if value is tensor:
            return f"the captured array {name!r}"
    return f"a captured array of shape {tuple(tensor.shape)}"


# --- running without data --------------------------------------------------------------------------------------------


class Outline(NamedTuple):
    """What is known of a function: the Tensors that it captures, and its results without data.

    `results` is None where it cannot run without data; then `captured` is what its variables lead to.
    """

    captured: tuple[Tensor, ...]
    results: Arrays | None


def outline(function: FlatFunction, examples: Sequence[Any]) -> Outline:
    """Run a function on arrays without data, of the shapes and dtypes of the examples, where nobody sees it.

    Raises what the function refuses itself; any other error means that it needs data.
    """
    function.refusal = None
    try:
        stand_ins, results = _run_without_data(function, examples)
        uncertain = stand_ins.uncertain(function)
        again = _run_without_data(function, examples)[0].captured if uncertain else ()
    except Exception as error:
        if function.refusal is error:
            raise
        in_reach = {id(tensor): tensor for tensor in tensors_in_reach(function.function) if not _has_escaped(tensor)}
        return Outline(tuple(in_reach.values()), None)
    captured = []
    for tensor, stand_in in zip(stand_ins.captured, stand_ins.values, strict=True):
        if any(tensor is other for other in uncertain) and not any(tensor is other for other in again):
            continue                    # made inside
        captured.append(tensor)
        if stand_in._version:
            function.refuse_write(described_capture(function.function, tensor))
        if any(_core.have_one_memory(result, stand_in) for result in results):
            function.refuse_alias(described_capture(function.function, tensor))
    function.is_sound = True
    return Outline(tuple(captured), results)


def _run_without_data(function: FlatFunction, examples: Sequence[Any]) -> tuple[StandIns, Arrays]:
    stand_ins = StandIns()
    results = unseen(_core.substituting, stand_ins.of, function, *[meta_like(example) for example in examples])
    return stand_ins, stand_ins.of_results(results, function)


class StandIns:
    """The Tensors that a function captures, in the order in which it used them, and what stands for each."""

    def __init__(self) -> None:
        self.captured: list[Tensor] = []
        self.values: list[Tensor] = []
        self._by_id: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """What stands for a captured Tensor; one that was made inside stands for itself."""
        known = self._by_id.get(id(tensor))
        if known is not None:
            return known
        if not _may_be_captured(tensor):
            return tensor
        stand_in = meta_like(tensor)
        self._by_id[id(tensor)] = self._by_id[id(stand_in)] = stand_in
        self.captured.append(tensor)
        self.values.append(stand_in)
        return stand_in

    def of_results(self, results: Arrays, function: FlatFunction) -> Arrays:
        """What a function returned, with what stands for it in place of what it captures."""
        return tuple([
            self.of(result) if _may_be_captured(result) and _is_held(result, function)
            else self._by_id.get(id(result), result)
            for result in results
        ])

    def uncertain(self, function: FlatFunction) -> list[Tensor]:
        """Those that the function may have made itself of data: another run would make others."""
        return [tensor for tensor in self.captured if not _is_held(tensor, function)]


def _is_held(tensor: Tensor, function: FlatFunction) -> bool:
    """Was it there before the function ran, as far as can be told?"""
    return isinstance(tensor, _core.Wrapper) or any(
        tensor is held for held in tensors_in_reach(function.function))


def _has_escaped(tensor: Tensor) -> bool:
    """Is this a value of a transform that is over, which nobody can use any more?"""
    return isinstance(tensor, (_core.BatchedTensor, _core.LevelTensor)) and not tensor.interpreter.alive


def _may_be_captured(tensor: Tensor) -> bool:
    """Values of levels that are active here were made inside; so were others without data, unless they are tracked."""
    if isinstance(tensor, _core.Wrapper):
        return not any(tensor.interpreter is level for level in _core.current_state().stack)
    return type(bottom_of(tensor)) is not MetaArray or tensor.requires_grad


def meta_like(value: Any) -> Tensor:
    """An array without data of the shape and dtype of a value."""
    return Tensor(MetaArray(tuple(value.shape), value.dtype))


def unseen(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function where no mode is on and no transform active, as in a new thread, and arrays have no data."""
    return contextvars.Context().run(_on_meta, function, args)


def _on_meta(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with default_backend("Meta"):
        return function(*args)


def batched_results(function: Flat, examples: Sequence[Any], batched: Sequence[bool], level: Vmap) -> list[bool] | None:
    """Which results differ between the examples of a batch, given which arguments do; None where nobody can say.

    The examples are values of one example.
    """
    inner = Vmap(level.batch_size, level.randomness, level.name, level.site)

    def run() -> list[bool]:
        values = [in_batch(inner, example) if flag else meta_like(example)
                  for example, flag in zip(examples, batched, strict=True)]
        _core.enter_level(inner)
        try:
            return [_core.is_owned_by(result, inner) for result in function(*values)]
        finally:
            _core.leave_level(inner)

    try:
        flags: list[bool] = unseen(run)
    except Exception:
        return None
    return flags


def in_batch(level: Vmap, example: Any) -> Tensor:
    """A value of a level of vmap, without data, of which one example looks like this."""
    batch = Tensor(MetaArray((level.batch_size, *example.shape), example.dtype))
    value: Tensor = _core.wrap_value_at(level, batch)
    return value


# --- what variables lead to ------------------------------------------------------------------------------------------


MAX_DEPTH = 8


def tensors_in_reach(function: Any) -> Iterator[Tensor]:
    """The Tensors that the variables of a function lead to: closures, globals, defaults, bound objects, containers."""
    yield from _reached(function, {}, 0)


def _reached(value: Any, seen: dict[int, Any], depth: int) -> Iterator[Tensor]:
    if id(value) in seen or depth > MAX_DEPTH:
        return
    seen[id(value)] = value
    if isinstance(value, Tensor):
        yield value
        return
    for part in _parts(value):
        yield from _reached(part, seen, depth + 1)


def _parts(value: Any) -> Iterable[Any]:
    """What an object holds."""
    if isinstance(value, (type, np.ndarray, str, bytes)) or inspect.ismodule(value):
        return ()
    if inspect.isfunction(value):
        found = inspect.getclosurevars(value)
        defaults = (value.__defaults__ or (), value.__kwdefaults__ or {})
        return (*found.nonlocals.values(), *found.globals.values(), *defaults)
    if inspect.ismethod(value):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (tuple, list, set, frozenset)):
        return value
    leaves = tree_leaves(value)
    if len(leaves) != 1 or leaves[0] is not value:
        return leaves
    is_of_a_user = not type(value).__module__.startswith(("pydispatch.", "builtins", "numpy"))
    return vars(value).values() if is_of_a_user and hasattr(value, "__dict__") else ()


# --- captured arrays as arguments ------------------------------------------------------------------------------------


def lift(functions: Sequence[FlatFunction], outlines: Sequence[Outline]) -> tuple[list[Flat], tuple[Tensor, ...]]:
    """The functions with all that any of them captures as last arguments, and these Tensors."""
    known = {id(tensor): tensor for found in outlines for tensor in found.captured}
    captured = tuple(known.values())
    if not captured:
        return list(functions), ()
    return [Lifted(function, captured) for function in functions], captured


def show(value: Any) -> str:
    """Shape and dtype, for messages."""
    return f"{value.dtype}{list(value.shape)}"
