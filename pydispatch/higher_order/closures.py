"""Users' functions as functions of flat arrays, with every input as an explicit argument.

`FlatFunction` packs arrays into pytrees and unpacks them again. `Lifted` adds captured values to the arguments of a
function. `abstract_result` finds captured values by one unobserved run on arrays without data.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import Jvp, MetaArray, OpOverload, Shell, Tensor, Vmap
from pydispatch._registry.backends import dtype_of
from pydispatch._registry.derivatives import CustomDerivative
from pydispatch._registry.registrations import derivative_of
from pydispatch._sites import describe_interpreter
from pydispatch.autograd.captures import closed_over, tensors_in_reach
from pydispatch.autograd.custom_derivatives import function_is_used, noting_owners
from pydispatch.autograd.randomness import REMEDY, Draws, for_another_context, generator_here, note_state_of
from pydispatch.autograd.surroundings import Surroundings
from pydispatch.autograd.trials import are_alike, cut_off_kept, end_lost
from pydispatch.autograd.values import Meta, as_tensor
from pydispatch.exceptions import AliasingError, AutogradError, DispatchTypeError, FunctionalizationError
from pydispatch.func.concrete import concrete_value, is_traced
from pydispatch.higher_order.operator import partial_last
from pydispatch.library.batching import BatchingHandle, batching_of
from pydispatch.modes import default_backend
from pydispatch.ops import ops
from pydispatch.tree import (
    OPEN,
    TreeSpec,
    completed,
    described_structure,
    in_order_of,
    n_leaves,
    tree_flatten,
    tree_flatten_present,
    tree_unflatten,
)

T = TypeVar("T")
Arrays = tuple[Any, ...]
Flat = Callable[..., Arrays]
"""A function of arrays that returns a tuple of arrays, and captures no values of interpreters."""
Step = tuple[Callable[..., Any], TreeSpec, Callable[[Any], Arrays]]
"""A function of Tensors in the form that `_core.results_of` calls.

The spec describes the nesting of its result. The last function makes a tuple of any other result.
"""


def check_function(who: str, function: Any, call: str) -> None:
    """Raise DispatchTypeError unless the function can be called.

    `who` names it, as in "cond: true_fn". `call` shows how to pass a function.
    """
    if not callable(function):
        raise DispatchTypeError(f"{who} is {_core.a_type(function)}, expected a function\nwrite {call}")


class FlatFunction:
    """A user's function as a function of flat arrays. Leaves of `args` that are not arrays are fixed.

    It receives scalars where `args` has some, unless it `keeps_arrays`: values that cannot be written to, as in NumPy.
    `who` names it in errors, as in "cond: true_fn". With `keeps_inputs` it may return its inputs. A call raises
    DispatchTypeError for results that are not arrays (None is allowed among them), FunctionalizationError for a write
    to an argument, AliasingError if it returns one. The last two are skipped if the function `is_sound`, as a run
    without data has shown.
    """

    def __init__(
        self, who: str, function: Callable[..., Any], args: tuple[Any, ...], nesting: Nesting, *,
        keeps_inputs: bool = False, keeps_arrays: bool = False,
    ) -> None:
        self.who = who
        self.function = function
        self.surroundings: Surroundings | None = None       # as its first run found them
        self.nesting = nesting      # of its results
        self.is_sound = False
        self.n_steps = 0            # in the first run of a loop, if it depends on data
        self.refusal: Exception | None = None       # the last error raised here
        self.abstract_run: AbstractRun | None = None
        self.examples: Sequence[Any] = ()       # the values of its abstract run, until its first run ends
        self.graph: Any = None                  # the graph that the trace made of it
        self._keeps_inputs = keeps_inputs
        leaves, self._spec = tree_flatten(args)
        self._scalars = [] if keeps_arrays else [
            i for i, leaf in enumerate(filter(_core.is_array, leaves)) if _core.is_scalar(leaf)]
        self._is_flat = all(map(_core.is_array, args))
        if not self._is_flat:
            self._places = [i for i, leaf in enumerate(leaves) if _core.is_array(leaf)]
            self._fixed = [None if _core.is_array(leaf) else leaf for leaf in leaves]

    def __call__(self, *values: Any) -> Arrays:
        if self.surroundings is not None and _core.current_state().default_backend == "Meta":
            return self.surroundings.again(self._call, *values)     # unseen: its changes are undone
        return self._call(*values)

    def _call(self, *values: Any) -> Arrays:
        tensors = [as_tensor(value) for value in kept_from_writes(values)]
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
        """Return whether a variable of the user's function holds a tracked Tensor. One further away is not found."""
        return any(isinstance(value, Tensor) and value.requires_grad for value in closed_over(self.function))

    @property
    def step(self) -> Step:
        """The function on Tensors in the form that the core calls if the function is sound."""
        takes_tensors = self._is_flat and not self._scalars
        return self.function if takes_tensors else self._on_tensors, self.nesting.returned, self._outputs

    def _on_tensors(self, *tensors: Tensor) -> Any:
        for i in self._scalars:
            _core.to_scalar(tensors[i])
        return self.function(*(tensors if self._is_flat else self._arguments(tensors)))

    def _arguments(self, tensors: Sequence[Tensor]) -> Any:
        """Return the arguments of the user's function."""
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self._spec)

    def example_arguments(self) -> Any:
        """Return the arguments that the user's function is run abstractly with."""
        values = tuple(map(as_tensor, self.examples))
        return values if self._is_flat else self._arguments(values)

    def _outputs(self, result: Any) -> Arrays:
        """Return the arrays in the function's result as Tensors."""
        leaves = self.nesting.leaves_of(self, result)
        for i, leaf in enumerate(leaves):
            if not _core.is_array(leaf):
                self.refuse(DispatchTypeError(
                    f"{self.who}: result {i} is {_core.a_type(leaf)}, expected an array\n"
                    "return arrays, or pytrees of them: np.asarray(number)"))
        return tuple([as_tensor(leaf) for leaf in leaves])

    def fresh_outputs(self, tensors: Sequence[Tensor]) -> Arrays:
        """Call the function on these Tensors. Raise AliasingError if it returns one, unless it `keeps_inputs`."""
        outputs = self._outputs(self._on_tensors(*tensors))
        if not self._keeps_inputs:
            for i, tensor in enumerate(tensors):
                for output in outputs:
                    if _core.have_one_memory(output, tensor):
                        self.refuse_alias(f"argument {i}")
        return outputs

    def refuse_alias(self, what: str) -> None:
        """Raise AliasingError because a result is an input of the function, or a view of one."""
        if not self._keeps_inputs:
            self.refuse(AliasingError(f"{self.who}: a result shares memory with {what}\nreturn a copy: ops.np.copy(x)"))

    def refuse_write(self, what: str) -> None:
        """Raise FunctionalizationError because the function writes to one of its inputs."""
        self.refuse(FunctionalizationError(
            f"{self.who} writes in place to {what}, which it did not make: the order of writes and reads is undefined\n"
            "write to a copy: ops.np.copy(x)"))

    def refuse_state(self, remedy: str, *_: Any) -> None:
        """Raise FunctionalizationError because each step of a loop replaces something that only the first can find.

        Or because the function replaces the state of a source of random numbers, which has another remedy.
        """
        assert self.surroundings is not None
        replaced = self.surroundings.replaced
        when = "in each step, but when the loop runs again, each step gets the value of the first step"
        if self.surroundings.source:
            replaced, remedy = self.surroundings.source, REMEDY
            when = "by something other than the draw of an operator, which another run or a graph would lack"
        self.refuse(FunctionalizationError(f"{self.who} replaces {replaced} {when}\n{remedy}"))

    def refuse_steps(self, remedy: str) -> None:
        """Raise FunctionalizationError because a step changes its surroundings, on which later steps depend."""
        assert self.surroundings is not None
        self.refuse(FunctionalizationError(
            f"{self.who} adds {self.surroundings.extended} in a step, and later steps may compute something else with "
            "it, but when the loop runs again, each step starts without it\n"
            f"compute it before the loop, or {remedy}"))

    def again_if_alike(self, remedy: str, n_steps: int, function: Callable[..., T], *args: Any) -> T:
        """Call a function for a step of another run of a loop. Raise if its steps are not alike."""
        assert self.surroundings is not None
        if self.surroundings.extended and not are_alike(function, args, self.surroundings, n_steps):
            self.refuse_steps(remedy)
        self.surroundings.extended = ""         # the steps are alike
        return self.again_as_a_step(function, *args)

    def again_as_a_step(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function for a step of another run of a loop. Raise if its draws begin unlike those of the first."""
        assert self.surroundings is not None
        result = self.surroundings.again(function, *args)
        if self.surroundings.source:
            self.refuse_state("")
        return result

    def note_stack(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and note its interpreters. Values of earlier steps, but not of this call, count as lost."""
        self.n_steps += 1
        state = _core.current_state()
        if self.surroundings is not None and state.default_backend != "Meta":
            self.surroundings.stack = tuple(state.stack)
        return function(*args)

    def count(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function, and count the call as a step of the first run of a loop."""
        self.n_steps += 1
        return function(*args)

    def refuse_lost(self) -> None:
        """Raise FunctionalizationError because a step of a loop keeps a value, which later steps find as a constant."""
        assert self.surroundings is not None
        self.refuse(FunctionalizationError(
            f"{self.who} keeps a value of a step in {self.surroundings.lost}, where later steps find it without its "
            "derivative\ncompute it before the loop, or in each step"))

    def refuse(self, error: Exception) -> NoReturn:
        """Raise an error that the function caused."""
        self.refusal = error
        raise error


class Nesting:
    """The nesting of a function's results, or of the results of several functions that must agree.

    `spec` describes the known part, and comes from `source`. It is complete as soon as a function has run. `returned`
    is the spec of that function's result, which differs at most in its outermost pytree. `remedy` is for messages.
    """

    def __init__(
        self, spec: TreeSpec = OPEN, source: str = "",
        remedy: str = "return the same structure, with the same number of arrays",
    ) -> None:
        self.spec = spec
        self.returned = spec
        self._source = source
        self._remedy = remedy
        self.is_known = False

    def leaves_of(self, function: FlatFunction, result: Any) -> list[Any]:
        """Return the leaves of a function's result without None, in the order of the spec.

        Raise DispatchTypeError for another structure.
        """
        leaves, found = tree_flatten_present(result)
        ordered = in_order_of(self.spec, leaves, found)
        if ordered is None:
            function.refuse(DispatchTypeError(
                f"{function.who} returns {described_structure(found)}, expected {described_structure(self.spec)}, the "
                f"structure of {self._source}\n{self._remedy}"))
        if not self.is_known:
            self.spec, self.is_known = completed(self.spec, found), True
            self._source = self._source or f"the result of {function.who.partition(': ')[2]}"
        self.returned = self.spec
        return ordered

    def nested(self, values: Sequence[Any]) -> Any:
        """Return the results of a function in their structure, given their arrays."""
        return tree_unflatten(values, self.spec)


class Lifted:
    """A function with its captured values as explicit arguments, after its own arguments.

    While it runs, each captured Tensor is replaced by the argument that was passed for it. This also holds for
    functions that it leaves behind for the backward pass. It `is_open` if all values that it uses are known: it runs
    without data, and leaves no such functions behind.
    """

    def __init__(self, function: FlatFunction, captured: tuple[Tensor, ...], has_users_functions: bool) -> None:
        self.function = function
        self.captured = captured
        self.is_open = function.is_sound and not has_users_functions
        self._since = _core.next_number()
        self.graph: Any = None          # the graph that a trace made of it

    def __repr__(self) -> str:
        return repr(self.function)

    @property
    def abstract_run(self) -> AbstractRun | None:
        """The facts that a run of the function without data has shown, with captured values as arguments."""
        known = self.function.abstract_run
        return known and known._replace(examples=[*known.examples, *metas_of(self.captured)])

    @property
    def examples(self) -> Sequence[Any]:
        """The values of the abstract run of the function, and its captured values."""
        return (*self.function.examples, *self.captured)

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
        """Raise AutogradError, because a captured value that was not found would be a constant."""
        raise AutogradError(
            f"{self.function.who} captures a value of {describe_interpreter(tensor.interpreter)}, of shape "
            f"{tuple(tensor.shape)}, that is only found when it runs, so the value would become a constant\n"
            "pass it as an argument of the function")


def bound(function: Flat, args: Arrays) -> Step:
    """Bind the last arguments of a function, and return a function of the first ones for a loop to call."""
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
    """Return the arrays as a step takes them: Tensors for a user's function, unchanged for any other."""
    return tuple(values if step[1] is OPEN else map(as_tensor, values))


def described_capture(function: Callable[..., Any], tensor: Any) -> str:
    """Return a description of a captured array, by its variable's name if that is known."""
    try:
        found = inspect.getclosurevars(function)
    except TypeError:
        return f"a captured array of shape {tuple(tensor.shape)}"
    for name, value in [*found.nonlocals.items(), *found.globals.items()]:
        if value is tensor:
            return f"the captured array {name!r}"
    return f"a captured array of shape {tuple(tensor.shape)}"


# --- running without data --------------------------------------------------------------------------------------------


class AbstractResult(NamedTuple):
    """The facts known about a function: the Tensors that it captures, and its results without data.

    `results` is None if the function cannot run without data. Then `captured` holds all Tensors reachable from its
    variables. With `has_users_functions`, users' functions may run later, and these were searched in the same way.
    `generators` has the generators that it draws from.
    """

    captured: tuple[Tensor, ...]
    results: Arrays | None
    has_users_functions: bool = False
    generators: Draws | None = None


class AbstractRun(NamedTuple):
    """The facts that a run without data has shown: shapes and dtypes, and the owners of functions that may run later.

    With `is_random`, two runs may differ because operators draw numbers.
    """

    examples: list[Meta]
    results: list[Meta]
    owners: list[Any]
    is_random: bool


def abstract_result(
    function: FlatFunction, examples: Sequence[Any], *, has_constants: bool = False
) -> AbstractResult:
    """Run a function unobserved on arrays without data, of the shapes and dtypes of the examples.

    If it needs data, try again with the values of the constants that it captures. It may convert them to numbers. Raise
    errors for which the function itself is refused. Raise RecursionError, since each further attempt would get as
    deep, and MemoryError. Any other error means that the function needs data.
    """
    _core.end_speculative_run()
    function.refusal, function.surroundings = None, function.surroundings or Surroundings(function.function)
    try:
        draws = Draws()
        substitution, owners, results = _run_without_data(function, examples, draws)
        meant = _held(substitution.captured, function)
        if len(meant) < len(substitution.captured):
            meant.update(map(id, _run_without_data(function, examples, Draws())[0].captured))
    except Exception as error:
        if function.refusal is error or isinstance(error, (RecursionError, MemoryError)):
            raise
        original = function.function
        if not has_constants and (constants := _constants_in_reach(original)):
            function.function = functools.partial(_with_constants, constants, original)
            found = abstract_result(function, examples, has_constants=True)
            if found.results is not None:
                return found
            function.function = original
        return AbstractResult(_without_repeats(_usable_in_reach(original)), None, True)
    function.surroundings.note_draws(draws.drawn)
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
    function.examples = examples
    function.abstract_run = AbstractRun(metas_of(examples), metas_of(results), owners, bool(draws))
    if owners:
        captured += _usable_in_reach(list(map(functions_of, owners)))
    return AbstractResult(_without_repeats(captured), results, bool(owners), draws)


def _constants_in_reach(function: Callable[..., Any]) -> list[tuple[Tensor, Tensor]]:
    """Return the captured Tensors that depend on no argument of a transform, each with its value, which is read-only.

    The first run must not write to them: another run would find them changed.
    """
    found = []
    for tensor in _usable_in_reach(function):
        here = _core.live_value(tensor)
        try:
            value = None if is_traced(here) else Tensor(concrete_value(here))
        except Exception:       # it has no data
            continue
        if value is not None:
            found.append((tensor, _core.to_scalar(value) if _core.is_scalar(tensor) else value))
    return found


def _with_constants(constants: list[tuple[Tensor, Tensor]], function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with the values of captured constants."""
    meanings = {id(each): value for tensor, value in constants for each in (tensor, value)}
    return _core.substituting(_core.Substitution(meanings), function, *args)


def as_scalars(results: Arrays, models: Sequence[Any] | None) -> Arrays:
    """Convert results to scalars where the function returned scalars in its run without data.

    `models` is None if it could not run without data. Operators on functions return arrays. The run without data shows
    which of them are scalars.
    """
    if models is None:
        return results
    return (*[_as_scalar(result) if _core.is_scalar(model) else result
              for result, model in zip(results, models, strict=False)], *results[len(models):])


def _as_scalar(result: Any) -> Any:
    """Return a result as a scalar at all interpreters that it is a value of."""
    below = result
    while isinstance(below, Tensor):
        below = _core.array_of(_core.to_scalar(below))
    return _core.to_scalar(result)


def run_speculatively(function: FlatFunction, values: Arrays) -> tuple[Arrays, tuple[Tensor, ...]] | None:
    """Run a function on these Tensors, unobserved, and return its results and captured Tensors. Then it is sound.

    Return None if a run without data is needed: if the function fails, or captures a tracked Tensor.
    """
    speculative, draws = _core.SpeculativeRun(*values), Draws()
    function.surroundings = Surroundings(function.function)
    captured: tuple[Tensor, ...] = ()
    try:
        results = draws.record(_core.substituting, speculative, function.fresh_outputs, values)
        for result in results:
            speculative(result)
        captured = tuple(speculative.captured)
        is_known = not speculative.has_ended and (not captured or _are_held(captured, function))
    except (RecursionError, MemoryError):
        raise
    except Exception:
        is_known = False
    if not is_known:
        draws.rewind()
        function.surroundings.restore()
        return None
    for tensor in captured:
        if any(_core.have_one_memory(result, tensor) for result in results):
            function.refuse_alias(described_capture(function.function, tensor))
    function.surroundings.note_draws(draws.drawn)
    function.is_sound = True
    return results, captured


def _are_held(tensors: Arrays, function: FlatFunction) -> bool:
    """Return whether these Tensors existed before the function ran, as far as can be determined."""
    return len(_held(tensors, function)) == len(tensors)


def kept_from_writes(values: Arrays) -> Arrays:
    """Copy small NumPy arrays among the values, since writes to them are not counted. A trace follows them itself."""
    if _core.active_modes() or np.ndarray not in map(type, values):
        return values
    kept: Arrays = _core.guarded_value(values)
    return kept


def is_plain(values: Iterable[Any]) -> bool:
    """Return whether these are NumPy arrays, or Tensors of them, under no interpreter and of no user's class."""
    return all(type(value) is np.ndarray or (type(value) is Tensor and type(value.array) is np.ndarray)
               for value in values)


def metas_of(values: Iterable[Any]) -> list[Meta]:
    """Return the shape and dtype of each array."""
    return [(tuple(value.shape), dtype_of(value)) for value in values]


def results_without_data(function: Flat, values: Arrays) -> Arrays:
    """Return the results of a function for arrays without data.

    The function does not run again for arrays like those of its abstract run. Otherwise each nested loop or branch
    would double the runs of its contents.
    """
    known = abstract_run_of(function)
    arrays = [value.array if type(value) is Tensor else value for value in values]
    types = set(map(type, arrays))
    if (known is None or MetaArray not in types or not all(map(_is_plain, types))
            or metas_of(values) != known.examples):
        return function(*values)
    for owner in known.owners:
        function_is_used(owner)
    return tuple([Tensor(MetaArray(*meta)) for meta in known.results])


def is_fake(value: Any) -> bool:
    """Return whether a Tensor of a subclass has no data, only a shape and a dtype."""
    return isinstance(value, Tensor) and not isinstance(value, _core.Wrapper) and isinstance(value.array, Shell)


class Known:
    """A function of flat arrays that does not run for arrays without data, since its results for these are known."""

    def __init__(self, function: Flat, examples: Iterable[Any], results: Iterable[Any]) -> None:
        self._function = function
        self._examples, self.results = metas_of(examples), metas_of(results)

    def __call__(self, *values: Any) -> Arrays:
        fake = next(filter(is_fake, values), None)
        if fake is None or metas_of(values) != self._examples:
            return self._function(*values)
        return tuple([ops.np.empty_like(fake, shape=shape, dtype=dtype) for shape, dtype in self.results])


def kept(function: Any, key: Any, make: Callable[[], T]) -> T:
    """Call `make`, or for a body and functions derived from it, return the result of the first call with this key.

    A body is the graph of a function that is passed to an operator. It computes the same as the function at any
    interpreter. Nested functions are therefore transformed once for each level, not once for each path to it.
    """
    known: dict[Any, Any] | None = getattr(function, "kept", None)
    if known is None:
        return make()
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found


class Derived:
    """A function that a transform derives from a body, with its graph as soon as a trace has made one."""

    def __init__(self, function: Flat) -> None:
        self.kept: dict[Any, Any] = {}
        self._function = function
        self._abstract_run = abstract_run_of(function)
        self._graph: Any = None

    @property
    def graph(self) -> Any:
        """The graph, or None before it is traced and after it was edited."""
        return None if self._graph is None or not self._graph.is_body else self._graph

    @graph.setter
    def graph(self, graph: Any) -> None:
        self._graph = graph

    @property
    def abstract_run(self) -> AbstractRun | None:
        """The facts that a run without data has shown."""
        graph = self.graph
        return self._abstract_run if graph is None else graph.abstract_run

    def __call__(self, *values: Any) -> Arrays:
        graph = self.graph
        if graph is None or metas_of(values) != graph.abstract_run.examples:
            return self._function(*values)
        return tuple(graph(*values))


def derived(function: Flat, key: Any, make: Callable[[], Flat]) -> Flat:
    """Return the function that a transform derives from another one, cached as by `kept`."""
    return kept(function, key, lambda: make() if getattr(function, "kept", None) is None else Derived(make()))


def may_draw(function: Flat) -> bool:
    """Return whether two runs of a function may differ because operators draw numbers."""
    known = abstract_run_of(function)
    return known is None or known.is_random


def abstract_run_of(function: Flat) -> AbstractRun | None:
    """Return the facts that a run without data has shown about a function, or None."""
    known: AbstractRun | None = getattr(function, "abstract_run", None)
    return known


def _is_plain(array_type: type) -> bool:
    """Return whether this is the type of arrays without data, or one of NumPy's."""
    return array_type is MetaArray or array_type is np.ndarray or issubclass(array_type, np.generic)


def _usable_in_reach(functions: Any) -> list[Tensor]:
    return [tensor for tensor in tensors_in_reach(functions) if not _belongs_to_ended_transform(tensor)]


def _without_repeats(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple({id(tensor): tensor for tensor in tensors}.values())


def functions_of(owner: Any) -> tuple[Any, ...]:
    """Return the users' functions in an operator whose captures no call shows. A function is its own owner.

    For a Function, captured values are among the arguments of its calls.
    """
    if isinstance(owner, CustomDerivative):
        return () if getattr(owner, "separate", False) else owner.functions
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
    function: FlatFunction, examples: Sequence[Any], draws: Draws
) -> tuple[_core.CapturedMetaArrays, list[Any], Arrays]:
    """Return the substitution for captured Tensors, the owners of functions that may run later, and the results."""
    substitution = _core.CapturedMetaArrays()
    owners: list[Any] = []             # custom derivatives, operators
    values = [meta_like(example) for example in examples]
    results = noting_draws(draws, noting_owners, owners, _core.substituting, substitution, function, *values)
    return substitution, owners, _with_substitutes(results, substitution, function)


def _with_substitutes(results: Arrays, substitution: _core.CapturedMetaArrays, function: FlatFunction) -> Arrays:
    """Return the results of a function with captured Tensors among them replaced by their substitutes."""
    known = tuple(map(substitution.meaning, results))
    unknown = [result for result in known if _core.is_from_outside(result)]
    if not unknown:
        return known
    held = _held(unknown, function)
    return tuple([substitution(result) if id(result) in held else result for result in known])


def _held(tensors: Sequence[Tensor], function: FlatFunction) -> set[int]:
    """Return the ids of the Tensors that existed before the function ran, as far as can be determined.

    The function may have made the others itself, from data. Another run would make others.
    """
    near = set(map(id, closed_over(function.function)))
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
    """Return whether this is a value of a transform that no longer runs."""
    value = _core.live_value(tensor)        # in a body, it may be substituted
    return isinstance(value, (_core.BatchedTensor, _core.PythonWrapper)) and not value.interpreter.alive


def meta_like(value: Any) -> Tensor:
    """Return an array without data of the shape and dtype of a value."""
    return Tensor(MetaArray(tuple(value.shape), dtype_of(value)))


def unseen(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function with no mode or transform active, as in a new thread, on arrays without data.

    No numbers are drawn. While draws are recorded, generators call operators.
    """
    return noting_draws(Draws(), function, *args)


def noting_draws(draws: Draws, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function like `unseen`, and note the generators that it would draw from."""
    try:
        return contextvars.Context().run(for_another_context(_on_meta), draws, function, args)
    finally:
        draws.rewind(without_data=True)


def _on_meta(draws: Draws, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    with default_backend("Meta"):
        return draws.record(function, *args)


def batched_results(function: Flat, examples: Sequence[Any], batched: Sequence[bool],
                    interpreter: Vmap) -> list[bool] | None:
    """Return which results differ between the examples of a batch, given which arguments do, or None if unknown.

    The examples are values of one example. If the function has no abstract run yet, this one is stored, which avoids
    another run without data.
    """
    return kept(function, ("batched results", tuple(batched), interpreter.batch_size, interpreter.randomness),
                lambda: _batched_results(function, examples, batched, interpreter))


def _batched_results(
    function: Flat, examples: Sequence[Any], batched: Sequence[bool], interpreter: Vmap
) -> list[bool] | None:
    inner = interpreter.again()
    draws, owners = Draws(), list[Any]()

    def run() -> Arrays:
        values = [in_batch(inner, example) if flag else meta_like(example)
                  for example, flag in zip(examples, batched, strict=True)]
        results: Arrays = _core.run_under(inner, function, *values)
        return results

    try:
        results = noting_draws(draws, noting_owners, owners, run)
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None
    if type(function) is FunctionType and abstract_run_of(function) is None:
        function.abstract_run = AbstractRun(   # type: ignore[attr-defined]
            metas_of(examples), metas_of(results), owners, bool(draws))
    return [_core.is_owned_by(result, inner) for result in results]


def in_batch(interpreter: Vmap, example: Any) -> Tensor:
    """Return a value of an interpreter of vmap, without data, whose examples have the shape and dtype of this one."""
    batch = Tensor(MetaArray((interpreter.batch_size, *example.shape), dtype_of(example)))
    value: Tensor = _core.wrap_value_at(interpreter, batch)
    return value


# --- captured arrays as arguments ------------------------------------------------------------------------------------


@contextmanager
def first_run_of(
    *functions: FlatFunction, inputs: Arrays = (), state: str = "", n_steps: int | None = None
) -> Iterator[None]:
    """Run a block that calls functions for the first time. Later runs find the surroundings of that run.

    The `inputs` are the values that the functions compute from, and the captured Tensors.

    The functions of a loop run many times in it, but later runs cannot find the surroundings of each step. Later runs,
    and traces, are refused if a step replaces something, or adds something that changes what later steps compute.
    `state` is the remedy that the error gives. `n_steps` is None if it depends on data.
    """
    originals = [function.function for function in functions]
    is_forward = any(isinstance(interpreter, Jvp) for interpreter in _core.current_state().stack)
    if state and is_forward:
        for function in functions:
            function.function = functools.partial(function.note_stack, function.function)
    elif state and n_steps is None:
        for function in functions:
            function.n_steps = 0
            function.function = functools.partial(function.count, function.function)
    try:
        yield
    finally:
        for function, original in zip(functions, originals, strict=True):
            function.function = original
    for function in functions:
        if function.surroundings is not None:
            _prepare_later_runs(function, function.surroundings, inputs, state, n_steps, is_forward)
        function.examples = ()          # nothing runs on them again, and they may be large


def _prepare_later_runs(
    function: FlatFunction, surroundings: Surroundings, inputs: Arrays, state: str, n_steps: int | None,
    is_forward: bool,
) -> None:
    """Let later runs of a function find the surroundings of its first run, or refuse them."""
    cut_off_kept(function.who, function.function, function.example_arguments, surroundings, inputs)
    again: Callable[..., Any] = function.again_as_a_step if state else surroundings.again
    is_traced = any(mode._knows_bodies for mode in _core.active_modes())
    if surroundings.source and (is_traced or surroundings.drawn):
        function.refuse_state("")       # operators began to draw in a state that differs from a single run's
    if is_forward and not state:
        end_lost(function.who, surroundings)
    if state:
        surroundings.note()
        if surroundings.lost:
            function.refuse_lost()
        if surroundings.replaced:
            again = functools.partial(function.refuse_state, state)
            if is_traced:
                again()
        elif surroundings.extended:
            if is_traced and not are_alike(function.function, function.example_arguments(), surroundings, n_steps):
                function.refuse_steps(state)
            again = functools.partial(
                function.again_if_alike, state, function.n_steps if n_steps is None else n_steps)
    function.function = functools.partial(again, function.function)


def lift(
    functions: Sequence[FlatFunction], abstract: Sequence[AbstractResult]
) -> tuple[list[Flat], tuple[Tensor, ...]]:
    """Return the functions with all values that any of them captures as last arguments, and these Tensors."""
    known = {id(tensor): tensor for found in abstract for tensor in found.captured}
    if _core.current_state().default_backend == "Meta":     # in the abstract run of another function
        known |= {id(tensor): tensor for function in functions for tensor in tensors_in_reach(function.function)
                  if type(tensor) is Tensor and type(tensor.array) is MetaArray}
    captured = tuple(known.values())
    for found in abstract:
        if found.generators is not None:     # note the draws of every function, since any may run
            for generator in found.generators.drawn:
                generator_here(generator)
            for name in found.generators.not_repeatable:
                note_state_of(name)
    has_users_functions = any(found.has_users_functions for found in abstract)
    lifted: list[Any] = list(functions)
    if captured or has_users_functions:
        lifted = [Lifted(function, captured, has_users_functions) for function in functions]
    trace = next((mode for mode in _core.active_modes() if mode._knows_bodies), None)
    if trace is not None and not has_users_functions and not any(found.generators for found in abstract):
        lifted = [trace._body_of(function) for function in lifted]
    return lifted, captured


def n_results(function: Flat, examples: Sequence[Any]) -> int | None:
    """Return how many arrays a function returns, or None if it cannot run without data."""
    flat = function.function if isinstance(function, Lifted) else function
    if isinstance(flat, Known):
        return len(flat.results)
    known = abstract_run_of(flat)
    if known is not None:
        return len(known.results)
    if isinstance(flat, FlatFunction) and flat.nesting.is_known:
        return n_leaves(flat.nesting.spec)
    try:
        return len(unseen(function, *map(meta_like, examples)))
    except (RecursionError, MemoryError):
        raise
    except Exception:
        return None


def show(value: Any) -> str:
    """Return the shape and dtype for messages."""
    return f"{dtype_of(value)}{list(value.shape)}"
