"""Functions of users as functions of flat arrays, whose every input is an explicit argument.

`FlatFunction` puts arrays into pytrees and takes them out again. `Lifted` adds what a function captures to its
arguments. `outline` finds what it captures by one unobserved run on arrays without data.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CellType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from pydispatch import _core
from pydispatch._core import MetaArray, OpOverload, Tensor, Vmap
from pydispatch.autograd.custom_derivatives import function_is_used, noting_owners
from pydispatch.autograd.values import Meta, as_tensor
from pydispatch.exceptions import AliasingError, AutogradError, DispatchTypeError, FunctionalizationError
from pydispatch.func.functions import TransformedFunction
from pydispatch.library.batching import BatchingHandle, batching_of
from pydispatch.modes import default_backend
from pydispatch.registry.backends import dtype_of
from pydispatch.registry.derivatives import CustomDerivative
from pydispatch.registry.registrations import derivative_of
from pydispatch.registry.sites import describe_interpreter
from pydispatch.tree import (
    OPEN,
    TreeSpec,
    completed,
    described_structure,
    in_order_of,
    is_pytree_node_type,
    n_leaves,
    tree_flatten,
    tree_flatten_present,
    tree_leaves,
    tree_unflatten,
)

Arrays = tuple[Any, ...]
Flat = Callable[..., Arrays]
"""A function of arrays that returns a tuple of them, and captures no values of interpreters."""
Step = tuple[Callable[..., Any], TreeSpec, Callable[[Any], Arrays]]
"""A function of Tensors as `_core.results_of` calls it: what it returns is nested as the spec says, or else to be made
a tuple of by the last.
"""


def check_function(who: str, function: Any, call: str) -> None:
    """DispatchTypeError unless it can be called; `who` names it, as in "cond: true_fn", `call` is how to pass one."""
    if not callable(function):
        raise DispatchTypeError(f"{who} is {_core.a_type(function)}, expected a function\nwrite {call}")


class FlatFunction:
    """A user's function as one of flat arrays; what is no array in its arguments stays as it is in `args`.

    `who` names it in errors: "cond: true_fn". `keeps_inputs` says that it may return what it was given. Raises
    DispatchTypeError for results that are no arrays (None may be among them), FunctionalizationError where it writes
    to an argument, AliasingError where it returns one; not when it `is_sound`, which a run without data has shown.
    """

    def __init__(
        self, who: str, function: Callable[..., Any], args: tuple[Any, ...], nesting: Nesting, *,
        keeps_inputs: bool = False,
    ) -> None:
        self.who = who
        self.function = function
        self.nesting = nesting      # of its results
        self.is_sound = False
        self.refusal: Exception | None = None       # the last error that was raised here
        self.outlined: Outlined | None = None
        self._keeps_inputs = keeps_inputs
        self._is_flat = all(map(_core.is_array, args))
        if not self._is_flat:
            leaves, self._spec = tree_flatten(args)
            self._places = [i for i, leaf in enumerate(leaves) if _core.is_array(leaf)]
            self._fixed = [None if _core.is_array(leaf) else leaf for leaf in leaves]

    def __call__(self, *values: Any) -> Arrays:
        tensors = [as_tensor(value) for value in values]
        if self.is_sound:
            return _core.results_of(self.step, tuple(tensors))
        versions = [tensor._version for tensor in tensors]
        outputs = self.fresh_outputs(tensors)
        for i, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
            if tensor._version != version:
                self.refuse_write(f"argument {i}, of shape {tuple(tensor.shape)}")
        return outputs

    def __repr__(self) -> str:
        return f"<{self.who}>"

    @property
    def holds_tracked(self) -> bool:
        """Is a tracked Tensor in a variable of the user's function? No may mean that it is further away."""
        return any(isinstance(value, Tensor) and value.requires_grad for value in _closed_over(self.function))

    @property
    def step(self) -> Step:
        """The function on Tensors, as the core calls it where it is sound."""
        return self.function if self._is_flat else self._on_tensors, self.nesting.returned, self._outputs

    def _on_tensors(self, *tensors: Tensor) -> Any:
        return self.function(*self._arguments(tensors))

    def _arguments(self, tensors: Sequence[Tensor]) -> Any:
        """What the function is called with."""
        if self._is_flat:
            return tensors
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self._spec)

    def _outputs(self, result: Any) -> Arrays:
        """The arrays in what the function returned, as Tensors."""
        leaves = self.nesting.leaves_of(self, result)
        for i, leaf in enumerate(leaves):
            if not _core.is_array(leaf):
                self.refuse(DispatchTypeError(
                    f"{self.who}: result {i} is {_core.a_type(leaf)}, expected an array\n"
                    "return arrays, or pytrees of them: np.asarray(number)"))
        return tuple([as_tensor(leaf) for leaf in leaves])

    def fresh_outputs(self, tensors: Sequence[Tensor]) -> Arrays:
        """What the function returns for these Tensors; AliasingError for one of them, unless it `keeps_inputs`."""
        outputs = self._outputs(self.function(*self._arguments(tensors)))
        if not self._keeps_inputs:
            for i, tensor in enumerate(tensors):
                for output in outputs:
                    if _core.have_one_memory(output, tensor):
                        self.refuse_alias(f"argument {i}")
        return outputs

    def refuse_alias(self, what: str) -> None:
        """Raise AliasingError: a result is what the function was given, or a view of it."""
        if not self._keeps_inputs:
            self.refuse(AliasingError(f"{self.who}: a result shares memory with {what}\nreturn a copy: ops.np.copy(x)"))

    def refuse_write(self, what: str) -> None:
        """Raise FunctionalizationError: the function writes to what it was given."""
        self.refuse(FunctionalizationError(
            f"{self.who} writes in place to {what}, which is not its own; the order of writes and reads is undefined\n"
            "write to a copy: ops.np.copy(x)"))

    def refuse(self, error: Exception) -> NoReturn:
        """Raise an error that is the function's fault."""
        self.refusal = error
        raise error


class Nesting:
    """How the results of a function are nested, or those of several that must agree.

    `spec` says it as far as it is known, and is that of `source`; all of it is known as soon as a function has run,
    and what that `returned`, which is nested so but for its outermost pytree. `remedy` is for messages.
    """

    def __init__(
        self, spec: TreeSpec = OPEN, source: str = "", remedy: str = "return the same structure, with as many arrays"
    ) -> None:
        self.spec = spec
        self.returned = spec
        self._source = source
        self._remedy = remedy
        self.is_known = False

    def leaves_of(self, function: FlatFunction, result: Any) -> list[Any]:
        """What a function returned without pytrees and None, in the order of the spec; DispatchTypeError for
        another structure.
        """
        leaves, found = tree_flatten_present(result)
        ordered = in_order_of(self.spec, leaves, found)
        if ordered is None:
            function.refuse(DispatchTypeError(
                f"{function.who} returns {described_structure(found)}, expected {described_structure(self.spec)}, the "
                f"structure of {self._source}\n{self._remedy}"))
        if not self.is_known:
            self.spec, self.is_known = completed(self.spec, found), True
            self._source = self._source or f"what {function.who.partition(': ')[2]} returned"
        self.returned = self.spec
        return ordered

    def nested(self, values: Sequence[Any]) -> Any:
        """The results of a function, given their arrays."""
        return tree_unflatten(values, self.spec)


class Lifted:
    """A function with what it captures as explicit arguments, after its own ones.

    While it runs, each captured Tensor means the argument that was passed for it; to functions that it leaves behind
    for the backward pass, too. It `is_open` where all that it uses is known: it runs without data, and leaves no such
    functions behind.
    """

    def __init__(self, function: FlatFunction, captured: tuple[Tensor, ...], has_users_functions: bool) -> None:
        self.function = function
        self.captured = captured
        self.is_open = function.is_sound and not has_users_functions
        self._since = _core.next_number()

    def __repr__(self) -> str:
        return repr(self.function)

    @property
    def outlined(self) -> Outlined | None:
        """What a run of the function without data has shown, with what it captures as arguments."""
        known = self.function.outlined
        return known and known._replace(examples=[*known.examples, *metas_of(self.captured)])

    def __call__(self, *values: Any) -> Arrays:
        n = len(values) - len(self.captured)
        if self.captured and all(value is tensor for value, tensor in zip(values[n:], self.captured, strict=True)):
            return self.function(*values[:n])
        given = [as_tensor(value) for value in values[n:]]
        versions = [value._version for value in given]
        meant = {id(tensor): value for tensor, value in zip(self.captured, given, strict=True)}
        substitute = _core.Substitution(meant, self._refuse_unknown, self._since)
        outputs = _core.substituting(substitute, self.function, *values[:n])
        if not self.function.is_sound:
            for value, version, tensor in zip(given, versions, self.captured, strict=True):
                if value._version != version:
                    self.function.refuse_write(described_capture(self.function.function, tensor))
        for output in outputs:
            if id(output) in meant:
                self.function.refuse_alias(described_capture(self.function.function, output))
        return tuple([meant.get(id(output), output) for output in outputs])

    def _refuse_unknown(self, tensor: _core.Wrapper) -> None:
        """Raise AutogradError: a captured value that was not found would be a constant."""
        raise AutogradError(
            f"{self.function.who} captures a value of {describe_interpreter(tensor.interpreter)}, of shape "
            f"{tuple(tensor.shape)}, in a way that cannot be seen before it runs; it would become a constant\n"
            "pass it as an argument of the function")


def bound(function: Flat, args: Arrays) -> Step:
    """The function of its first arguments, with these as the last: what a loop calls each time."""
    if isinstance(function, Lifted):
        n = len(args) - len(function.captured)
        if all(map(operator.is_, args[n:], function.captured)):
            function, args = function.function, args[:n]
    if isinstance(function, FlatFunction) and function.is_sound:
        call, spec, in_general = function.step
        args = tuple(map(as_tensor, args))
    else:
        call, spec, in_general = function, OPEN, tuple
    return partial_last(call, args) if args else call, spec, in_general


def as_taken(step: Step, values: Sequence[Any]) -> Arrays:
    """The arrays as a step takes them: a user's function Tensors, any other one what it is given."""
    return tuple(values if step[1] is OPEN else map(as_tensor, values))


def partial_last(function: Callable[..., Any], args: Arrays) -> Callable[..., Any]:
    """The function of its first arguments, with these as the last."""
    return lambda *values: function(*values, *args)


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
    With `has_users_functions`, functions of users may run later; these were searched likewise.
    """

    captured: tuple[Tensor, ...]
    results: Arrays | None
    has_users_functions: bool = False


class Outlined(NamedTuple):
    """What a run without data has shown, for another one: shapes and dtypes, and whose functions may run later."""

    examples: list[Meta]
    results: list[Meta]
    owners: list[Any]


def outline(function: FlatFunction, examples: Sequence[Any]) -> Outline:
    """Run a function on arrays without data, of the shapes and dtypes of the examples, unobserved.

    Raises what the function refuses itself; RecursionError, since each attempt to go on would get as deep; and
    MemoryError. Any other error means that it needs data.
    """
    _core.end_trial()
    function.refusal = None
    try:
        substitution, owners, results = _run_without_data(function, examples)
        meant = _held(substitution.captured, function)
        if len(meant) < len(substitution.captured):
            meant.update(map(id, _run_without_data(function, examples)[0].captured))
    except Exception as error:
        if function.refusal is error or isinstance(error, (RecursionError, MemoryError)):
            raise
        return Outline(_without_repeats(_usable_in_reach(function.function)), None, True)
    captured = []
    for tensor, substitute in zip(substitution.captured, substitution.values, strict=True):
        if id(tensor) not in meant:
            continue                    # the function made it
        captured.append(tensor)
        if substitute._version:
            function.refuse_write(described_capture(function.function, tensor))
        if any(_core.have_one_memory(result, substitute) for result in results):
            function.refuse_alias(described_capture(function.function, tensor))
    function.is_sound = True
    function.outlined = Outlined(metas_of(examples), metas_of(results), owners)
    if owners:
        captured += _usable_in_reach(list(map(functions_of, owners)))
    return Outline(_without_repeats(captured), results, bool(owners))


def tried(function: FlatFunction, values: Arrays) -> tuple[Arrays, tuple[Tensor, ...]] | None:
    """What a function returns for these Tensors, where nothing observes it, and what it captures; then it is sound.

    None where a run without data has to tell, as where the function fails, and where what it captures is tracked.
    """
    trial = _core.Trial(*values)
    try:
        results = _core.substituting(trial, function.fresh_outputs, values)
        for result in results:
            trial(result)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None
    captured = tuple(trial.captured)
    if trial.has_ended or (captured and not _are_held(captured, function)):
        return None
    for tensor in captured:
        if any(_core.have_one_memory(result, tensor) for result in results):
            function.refuse_alias(described_capture(function.function, tensor))
    function.is_sound = True
    return results, captured


def _are_held(tensors: Arrays, function: FlatFunction) -> bool:
    """Were these Tensors there before the function ran? No may mean that this cannot be told."""
    return len(_held(tensors, function)) == len(tensors)


def is_plain(values: Iterable[Any]) -> bool:
    """Are these arrays of NumPy's, or Tensors of such, under no interpreter and of no class of a user's?"""
    return all(type(value) is np.ndarray or (type(value) is Tensor and type(value.array) is np.ndarray)
               for value in values)


def metas_of(values: Iterable[Any]) -> list[Meta]:
    """Shape and dtype of each array."""
    return [(tuple(value.shape), dtype_of(value)) for value in values]


def results_without_data(function: Flat, values: Arrays) -> Arrays:
    """What a function returns for arrays without data.

    It does not run again for arrays like those of its outline: else each loop or branch within another one would double
    the runs of what is in it.
    """
    known = outlined_of(function)
    arrays = [value.array if type(value) is Tensor else value for value in values]
    types = set(map(type, arrays))
    if (known is None or MetaArray not in types or not all(map(_is_plain, types))
            or metas_of(values) != known.examples):
        return function(*values)
    for owner in known.owners:
        function_is_used(owner)
    return tuple([Tensor(MetaArray(*meta)) for meta in known.results])


def outlined_of(function: Flat) -> Outlined | None:
    """What a run without data has shown of a function; None where nothing is known."""
    known: Outlined | None = getattr(function, "outlined", None)
    return known


def _is_plain(array_type: type) -> bool:
    """Is this the type of arrays without data, or one of NumPy's?"""
    return array_type is MetaArray or array_type is np.ndarray or issubclass(array_type, np.generic)


def _usable_in_reach(functions: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_in_reach(functions) if not _belongs_to_ended_transform(tensor)]


def _without_repeats(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple({id(tensor): tensor for tensor in tensors}.values())


def functions_of(owner: Any) -> tuple[Any, ...]:
    """The functions of users in a CustomDerivative, or an operator; a function is its own."""
    if isinstance(owner, CustomDerivative):
        return owner.functions
    if not isinstance(owner, OpOverload):
        return (owner,)
    handle = derivative_of(owner)
    batching = batching_of(owner)
    return (
        *(handle.derivative.functions
          if handle is not None and isinstance(handle.derivative, CustomDerivative) else ()),
        *((batching.kernel.function,) if isinstance(batching, BatchingHandle) else ()),
    )


def _run_without_data(
    function: FlatFunction, examples: Sequence[Any]
) -> tuple[_core.CapturedMetaArrays, list[Any], Arrays]:
    """The substitution for captured Tensors, the owners of functions that may run later, and the results."""
    substitution = _core.CapturedMetaArrays()
    owners: list[Any] = []             # custom derivatives, operators
    values = [meta_like(example) for example in examples]
    results = unseen(noting_owners, owners, _core.substituting, substitution, function, *values)
    return substitution, owners, _with_substitutes(results, substitution, function)


def _with_substitutes(results: Arrays, substitution: _core.CapturedMetaArrays, function: FlatFunction) -> Arrays:
    """The results of a function; captured Tensors among them are replaced by their substitutes."""
    known = tuple(map(substitution.meaning, results))
    unknown = [result for result in known if _core.is_from_outside(result)]
    if not unknown:
        return known
    held = _held(unknown, function)
    return tuple([substitution(result) if id(result) in held else result for result in known])


def _held(tensors: Sequence[Tensor], function: FlatFunction) -> set[int]:
    """By their ids, the Tensors that were there before the function ran, as far as can be told.

    Others it may have made itself, of data: another run would make others.
    """
    near = set(map(id, _closed_over(function.function)))
    sought = {id(tensor) for tensor in tensors if id(tensor) not in near and not isinstance(tensor, _core.Wrapper)}
    found = {id(tensor) for tensor in tensors} - sought
    for tensor in tensors_in_reach(function.function) if sought else ():
        if id(tensor) in sought:
            found.add(id(tensor))
            sought.remove(id(tensor))
            if not sought:
                break
    return found


def _belongs_to_ended_transform(tensor: Tensor) -> bool:
    """Is this a value of a transform that no longer runs?"""
    value = _core.live_value(tensor)        # inside of a body it may mean another one
    return isinstance(value, (_core.BatchedTensor, _core.PythonWrapper)) and not value.interpreter.alive


def meta_like(value: Any) -> Tensor:
    """An array without data of the shape and dtype of a value."""
    return Tensor(MetaArray(tuple(value.shape), dtype_of(value)))


def unseen(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function where no mode is on and no transform active, as in a new thread, and arrays have no data."""
    return contextvars.Context().run(_on_meta, function, args)


def _on_meta(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with default_backend("Meta"):
        return function(*args)


def batched_results(function: Flat, examples: Sequence[Any], batched: Sequence[bool],
                    interpreter: Vmap) -> list[bool] | None:
    """Which results differ between the examples of a batch, given which arguments do; None if unknown.

    The examples are values of one example.
    """
    inner = Vmap(interpreter.batch_size, interpreter.randomness, interpreter.name, interpreter.site)

    def run() -> list[bool]:
        values = [in_batch(inner, example) if flag else meta_like(example)
                  for example, flag in zip(examples, batched, strict=True)]
        return [_core.is_owned_by(result, inner) for result in _core.run_under(inner, function, *values)]

    try:
        flags: list[bool] = unseen(run)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None
    return flags


def in_batch(interpreter: Vmap, example: Any) -> Tensor:
    """A value of an interpreter of vmap, without data, of which one example looks like this."""
    batch = Tensor(MetaArray((interpreter.batch_size, *example.shape), dtype_of(example)))
    value: Tensor = _core.wrap_value_at(interpreter, batch)
    return value


# --- what variables lead to ------------------------------------------------------------------------------------------


MAX_DEPTH = 8
_HOLD_NOTHING = frozenset((np.ndarray, np.ufunc, int, float, bool, str, bytes, type, ModuleType, NoneType))


def tensors_in_reach(function: Any) -> Iterator[Tensor]:
    """The Tensors that the variables of a function lead to: closures, globals, defaults, bound objects, pytrees.

    What takes fewer steps to comes first.
    """
    seen: dict[int, Any] = {}
    found: list[Any] = [function]
    for _ in range(MAX_DEPTH + 1):
        parts: list[Any] = []
        for value in found:
            if type(value) in _HOLD_NOTHING or id(value) in seen:
                continue
            seen[id(value)] = value
            if isinstance(value, Tensor):
                yield value
            else:
                parts += _parts(value)
        found = parts


def _parts(value: Any) -> Iterable[Any]:
    """What an object holds."""
    if isinstance(value, FunctionType):
        return (*_contents(value.__closure__ or ()), *_globals_of(value), *(value.__defaults__ or ()),
                *(value.__kwdefaults__ or {}).values())
    if isinstance(value, TransformedFunction):
        return (value.target,)
    cls = type(value)
    is_node, is_of_a_library = is_pytree_node_type(cls), cls.__module__.startswith(("pydispatch.", "numpy"))
    if (is_of_a_library and not is_node) or isinstance(value, (type, np.ndarray, str, bytes, ModuleType)):
        return ()
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (tuple, list, set, frozenset)):
        return value
    if is_node:
        return tree_leaves(value)
    return vars(value).values() if cls.__module__ != "builtins" and hasattr(value, "__dict__") else ()


def _closed_over(function: Any) -> list[Any]:
    """What is in the variables of a closure; of anything else, nothing."""
    return _contents(getattr(function, "__closure__", None) or ())


def _contents(cells: Iterable[CellType]) -> list[Any]:
    """What is in these variables, but for those that have no value yet."""
    found = []
    for cell in cells:
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue
    return found


def _globals_of(function: FunctionType) -> list[Any]:
    """What a function finds under the names in its code, those of attributes among them."""
    known = function.__globals__
    return [known[name] for name in function.__code__.co_names if name in known]


# --- captured arrays as arguments ------------------------------------------------------------------------------------


def lift(functions: Sequence[FlatFunction], outlines: Sequence[Outline]) -> tuple[list[Flat], tuple[Tensor, ...]]:
    """The functions with all that any of them captures as last arguments, and these Tensors."""
    known = {id(tensor): tensor for found in outlines for tensor in found.captured}
    if _core.current_state().default_backend == "Meta":     # while another function is outlined
        known |= {id(tensor): tensor for function in functions for tensor in tensors_in_reach(function.function)
                  if type(tensor) is Tensor and type(tensor.array) is MetaArray}
    captured = tuple(known.values())
    has_users_functions = any(found.has_users_functions for found in outlines)
    if not captured and not has_users_functions:
        return list(functions), ()
    return [Lifted(function, captured, has_users_functions) for function in functions], captured


def n_results(function: Flat, examples: Sequence[Any]) -> int | None:
    """How many arrays a function returns; None where it cannot run without data."""
    flat = function.function if isinstance(function, Lifted) else function
    if isinstance(flat, FlatFunction) and flat.nesting.is_known:
        return n_leaves(flat.nesting.spec)
    try:
        return len(unseen(function, *map(meta_like, examples)))
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None


def show(value: Any) -> str:
    """Shape and dtype, for messages."""
    return f"{dtype_of(value)}{list(value.shape)}"
