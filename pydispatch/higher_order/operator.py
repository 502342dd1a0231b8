"""HigherOrderOperator: an operator whose arguments may be functions, pytrees or anything else. Its rules are in tables.

A call goes down the stack like that of any operator. Each interpreter sees the operator once, and the rule for its
class defines the meaning of the call there. Below all interpreters, the rule for the arguments' keys runs.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from pydispatch import _core
from pydispatch._core import ActiveMode, DispatchKeySet, Interpreter, Tensor
from pydispatch._registry import registrations
from pydispatch._registry.tables import choices_for, framework_fallback
from pydispatch._sites import caller_site, describe_interpreter, registration_site
from pydispatch.autograd.values import enter_arrays, values_below
from pydispatch.exceptions import DispatchTypeError, NoDerivativeError, NoHandlerError, NoKernelError, RegistrationError
from pydispatch.keys import DispatchKey, parse_key
from pydispatch.modes import DispatchMode, below_autograd
from pydispatch.tree import tree_flatten, tree_leaves, tree_map, tree_unflatten

F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[..., Any]
Examples = Callable[..., dict[int, tuple[Any, ...]]]

COMPOSITE = DispatchKey.CompositeImplicitAutograd


def partial_last(function: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any]:
    """Bind the last arguments of a function, and return a function of the first ones."""
    return lambda *values: function(*values, *args)


class HigherOrderOperator:
    """An operator without a schema, defined by its rules. Its arguments may be of any kind.

    `py_impl(where)` registers the rule for a dispatch key, or for the class of a transform, a mode or a Tensor.
    Interpreters and keys consider the arrays among the arguments, including those in tuples, lists and dicts. The
    captures of a function are unknown, so the values of interpreters that it works on must be among the arguments.

    Parameters
    ----------
    name : str
        The name of the operator.
    examples : callable, optional
        `examples(*args)` returns arguments with which the functions among the arguments may be called: {position:
        arguments}. Traces use it to make graphs of the functions. These are compiled with the graph that calls the
        operator, unless the operator `transforms` them.
    transforms : bool, optional
        Whether the operator passes its functions values of a separate interpreter.
    n_results : callable, optional
        `n_results(*args)` is the number of arrays that a call returns, or None if unknown. With it, results are a tuple
        of that many arrays. Results of handlers and rules are checked, except for rules that exist when `trust_rules`
        is called.
    captures : int, optional
        The position of a tuple whose last elements the functions take as their last arguments: the values that they
        capture. Generators among these, which traces put there, are passed to the functions, and no rule sees them.
    planned_as : callable, optional
        A function of the same arguments whose operators a compiled plan runs instead of the operator. It may raise
        NotImplementedError for some arguments.
    is_quiet : bool, optional
        Whether these operators report no overflows and invalid operations.

    Examples
    --------
    >>> import numpy
    >>> from pydispatch import higher_order
    >>> twice = higher_order.HigherOrderOperator("twice")
    >>> @twice.py_impl("CompositeImplicitAutograd")
    ... def run(function, x):
    ...     return function(function(x))
    >>> twice(numpy.negative, numpy.ones(2))
    array([1., 1.])
    """

    schema = None

    def __init__(
        self, name: str, *, examples: Examples | None = None, transforms: bool = False,
        n_results: Callable[..., int | None] | None = None, captures: int | None = None,
        planned_as: Callable[..., Any] | None = None, is_quiet: bool = False,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise RegistrationError(f'HigherOrderOperator: the name is {name!r}, expected a string\n'
                                    'write HigherOrderOperator("mysum")')
        self.name = self.__name__ = self.__qualname__ = name
        self.examples = examples
        self.transforms = transforms
        self.n_results = n_results
        self.captures = captures
        self.planned_as, self.is_quiet = planned_as, is_quiet
        self._trusted: frozenset[Rule] = frozenset()
        self._rules: dict[DispatchKey | type, Rule] = {}
        self._sites: dict[DispatchKey | type, str] = {}     # where each was registered
        self._used: dict[Any, Any] = {}     # the rules for keys and calls, computed on demand
        self._module = registration_site().module
        _operators[name] = self

    def __repr__(self) -> str:
        return f"<HigherOrderOperator {self.name}>"

    def __reduce__(self) -> tuple[Callable[[str, str], HigherOrderOperator], tuple[str, str]]:
        return find_operator, (self.name, self._module)

    # --- rules ---

    def py_impl(self, where: str | DispatchKey | type) -> Callable[[F], F]:
        """Register the decorated function as the rule for a key or a class.

        The rule for a dispatch key is called as `rule(*args, **kwargs)`. The rule for "Autograd" is called if grad mode
        is on and an argument is tracked. It continues with untracked arguments.

        The rule for the class of a transform is called as `rule(interpreter, *args, **kwargs)`, with the interpreter
        absent, if it owns an array among the arguments. The rule for a mode is called as `rule(mode, *args, **kwargs)`,
        with the mode absent. The rule for a class of Tensors is called as `rule(cls, *args, **kwargs)`, below autograd.
        The last two may return NotImplemented.

        Parameters
        ----------
        where : str, DispatchKey or type
            The dispatch key, or the class of a transform, a mode or a Tensor.

        Returns
        -------
        callable
            A decorator.

        Raises
        ------
        RegistrationError
            If there is already a rule for the key or class.
        """
        place = self._place(where)

        def register(rule: F) -> F:
            site = caller_site()
            with registrations.lock:
                if place in self._rules:
                    raise RegistrationError(
                        f"operator {self.name}: a rule for {_described(place)} is already registered, at "
                        f"{self._sites[place]}\nremove one of the two")
                registrations.assign_item(self._sites, place, site)
                registrations.assign_item(self._rules, place, rule)
                registrations.assign(self, "_used", {})
            return rule

        return register

    def _place(self, where: Any) -> DispatchKey | type:
        if isinstance(where, type):
            if issubclass(where, (Interpreter, DispatchMode, Tensor)):
                return where
            raise RegistrationError(
                f"operator {self.name}: py_impl got the class {where.__name__}, expected one of a transform, a mode or "
                "a Tensor\npass a dispatch key for arrays: py_impl(\"CPU\")")
        key = parse_key(where)
        if key is DispatchKey.Python:
            raise RegistrationError(f"operator {self.name}: py_impl got the key Python, which covers all modes and "
                                    "classes\npass the class: py_impl(MyMode)")
        return key

    def rule_for(self, where: str | DispatchKey | type) -> Rule | None:
        """Return the rule that is used for a key or a class, or None."""
        if isinstance(where, type):
            return self._rules.get(where)
        key = parse_key(where)
        if key not in self._used:
            keys = frozenset(place for place in self._rules if isinstance(place, DispatchKey))
            source = key if key.is_alias else next(
                choice.source for choice in choices_for(keys) if choice.key is key)
            self._used[key] = None if source is None else self._rules.get(source)
        rule: Rule | None = self._used[key]
        return rule

    def trust_rules(self) -> None:
        """Skip the check of results for the rules that are registered now."""
        self._trusted = frozenset(self._rules.values())

    # --- calls ---

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _core.end_speculative_run()
        given, spec = tree_flatten((args, kwargs))
        leaves = _core.unwrap_all_dead(given)
        if leaves is not given:
            args, kwargs = tree_unflatten(leaves, spec)
        if self.captures is not None and any(isinstance(leaf, np.random.Generator) for leaf in leaves):
            args = self._with_generators_bound(args)
            leaves = tree_flatten((args, kwargs))[0]
        return self._go_on(args, kwargs, leaves)

    def _with_generators_bound(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Bind the generators that were passed for the functions of a call to these functions."""
        assert self.captures is not None
        passed = args[self.captures]
        generators = [value for value in passed if isinstance(value, np.random.Generator)]
        bound = [partial_last(arg, generators) if callable(arg) else arg for arg in args]
        bound[self.captures] = passed[:len(passed) - len(generators)]
        return tuple(bound)

    def _go_on(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Process the call at the innermost interpreter, or below all of them, given the leaves of the arguments."""
        state = _core.current_state()
        interpreter = state.innermost
        if interpreter is None:
            return self._at_bottom(args, kwargs, leaves)
        if any(map(_core.is_uniform_value, leaves)):
            args, kwargs = tree_map(lambda leaf: _core.uniform_below(leaf, interpreter), (args, kwargs))
            leaves = tree_leaves((args, kwargs))
        if isinstance(interpreter, ActiveMode):
            return self._in_mode(interpreter, args, kwargs, leaves)
        if not any(_core.is_owned_by(leaf, interpreter) for leaf in leaves) and not (
                self.examples is not None and interpreter.sees_functions):
            return _with_new_values(interpreter, _core.lowered(interpreter, self._go_on, args, kwargs, leaves), leaves)
        if state.inference or interpreter.is_off(state):
            return self._as_constants(interpreter, args, kwargs)
        rule = self._rules.get(type(interpreter))
        if rule is not None:
            result = _core.lowered(interpreter, _call, rule, (interpreter, *args), kwargs)
            return result if rule in self._trusted else self._checked(result, _rule(type(interpreter)), args)
        if COMPOSITE in self._rules:
            return self._rules[COMPOSITE](*args, **kwargs)
        raise self._no_rule(interpreter)

    def _as_constants(self, interpreter: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call on the values below an interpreter that differentiates but is switched off."""
        below = values_below((args, kwargs), interpreter)
        result = _core.lowered(interpreter, self._go_on, *below, tree_leaves(below))
        return enter_arrays(interpreter, result)

    def _in_mode(self, interpreter: ActiveMode, args: tuple[Any, ...], kwargs: dict[str, Any],
                 leaves: list[Any]) -> Any:
        """Let a mode handle the call. If it declines, the next interpreter does, without the mode."""
        mode = interpreter.mode
        rule = self._rules.get(type(mode))
        result = NotImplemented
        who = _rule(type(mode))
        if rule is not None:
            result = _core.lowered(interpreter, _call, rule, (mode, *args), kwargs)
        if result is NotImplemented and COMPOSITE in self._rules and mode.decompose_composites:
            return self._rules[COMPOSITE](*args, **kwargs)
        if result is NotImplemented:
            types = tuple(handled_types(leaves))
            result = _core.lowered(interpreter, mode.__pydispatch__, self, types, args, kwargs)
            who = f"the handler of mode {type(mode).__name__}"
        if result is NotImplemented:
            return _core.lowered(interpreter, self._go_on, args, kwargs, leaves)
        return self._checked(result, who, args)

    def _at_bottom(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Run the tape, handlers of classes, and the rule for the backend in turn, by the arguments' keys."""
        state = _core.current_state()
        keys = _core.keys_of_all(leaves) or DispatchKey(state.default_backend).keyset
        records = state.grad and not state.inference and _core.is_any_tracked_at(leaves, None)
        key, rule = self._first_rule(keys | state.included, state.excluded, records)
        if rule is None:
            return self._ask_classes(args, kwargs)
        result = rule(*args, **kwargs)
        return result if rule in self._trusted else self._checked(result, _rule(key), args)

    def _first_rule(
        self, keys: DispatchKeySet, excluded: tuple[DispatchKey, ...], records: bool
    ) -> tuple[DispatchKey, Rule | None]:
        """Return the first key with an effect, and its rule. For Python it is None, and the classes handle the call."""
        used = self._used
        found: tuple[DispatchKey, Rule | None] | None = used.get((keys, excluded, records))
        if found is None:
            found = used[keys, excluded, records] = self._found_rule(keys, excluded, records)
        return found

    def _found_rule(
        self, keys: DispatchKeySet, excluded: tuple[DispatchKey, ...], records: bool
    ) -> tuple[DispatchKey, Rule | None]:
        key = DispatchKey.Undefined
        for key in reversed(tuple(keys)):
            if key in excluded or (key.is_autograd and not records):
                continue
            rule = None if key is DispatchKey.Python else self.rule_for(key)
            if rule is not None or key is DispatchKey.Python:
                return key, rule
            if key.is_autograd:
                raise self._no_derivative("the tape", "Autograd")
            if framework_fallback(key) is None:
                break
        raise NoKernelError(f"operator {self.name}: no rule for the key {key.name}\n{self._registered()}\n"
                            f'register one: @{self.name}.py_impl("{key.name}")')

    def _ask_classes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the classes with a handler among the arguments handle the call, below autograd."""
        types = tuple(handled_types((args, kwargs)))
        with below_autograd():
            for cls in types:
                rule = self._rules.get(cls)
                result = NotImplemented if rule is None else rule(cls, *args, **kwargs)
                who = _rule(cls)
                if result is NotImplemented:
                    who = f"the handler of class {cls.__name__}"
                    owner: Any = next(leaf for leaf in tree_leaves((args, kwargs)) if type(leaf) is cls)
                    result = owner.__pydispatch__(self, types, args, kwargs)
                if result is not NotImplemented:
                    return self._checked(result, who, args)
        raise NoHandlerError(
            f"operator {self.name}: every handler declined (returned NotImplemented), in this order: "
            f"{', '.join([cls.__name__ for cls in types])}\n"
            f"register a rule: @{self.name}.py_impl({types[0].__name__})")

    def _checked(self, result: Any, who: str, args: tuple[Any, ...]) -> Any:
        """Return the result of a handler or rule as a tuple of the expected number of arrays.

        Raise DispatchTypeError for any other result.
        """
        if self.n_results is None:
            return result
        if not isinstance(result, (tuple, list)):
            raise self._wrong_results(who, _core.a_type(result), None)
        for i, value in enumerate(result):
            if not _core.is_array(value):
                raise self._wrong_results(who, f"{_core.a_type(value)} as result {i}", None)
        expected = self.n_results(*args)
        if expected is not None and len(result) != expected:
            raise self._wrong_results(who, f"{len(result)} arrays", expected)
        return tuple(result)

    def _wrong_results(self, who: str, found: str, n: int | None) -> DispatchTypeError:
        expected = "a tuple of arrays" if n is None else f"a tuple of {n}"
        return DispatchTypeError(f"operator {self.name}: {who} returned {found}, expected {expected}\n"
                                 f"return the operator's results as one tuple of arrays: {self.name}(*args)")

    # --- errors ---

    def _registered(self) -> str:
        names = [_described(place) for place in self._sites]
        return f"rules are registered for: {', '.join(names)}" if names else "no rules are registered for it"

    def _no_rule(self, interpreter: Interpreter) -> Exception:
        name = type(interpreter).__name__
        if interpreter.differentiates:
            return self._no_derivative(describe_interpreter(interpreter), f"higher_order.{name}")
        known = f"higher_order.{name}" if name in ("Vmap", "Functionalize") else name
        return NoKernelError(
            f"operator {self.name} has no rule for {describe_interpreter(interpreter)}\n{self._registered()}\n"
            f"register one, def rule(interpreter, *args): @{self.name}.py_impl({known})")

    def _no_derivative(self, where: str, place: str) -> NoDerivativeError:
        shown, arguments = ('"Autograd"', "*args") if place == "Autograd" else (place, "interpreter, *args")
        return NoDerivativeError(
            f"operator {self.name} has no rule for {where}, so it cannot be differentiated\n"
            f"{self._registered()}\n"
            f"register one, def rule({arguments}): @{self.name}.py_impl({shown})")


_operators: weakref.WeakValueDictionary[str, HigherOrderOperator] = weakref.WeakValueDictionary()


def find_operator(name: str, module: str) -> HigherOrderOperator:
    """Return the operator of a name, which a module may define, for pickles. Raise NoKernelError if there is none."""
    if module:
        import_module(module)
    operator = _operators.get(name)
    if operator is None:
        raise NoKernelError(f"there is no higher-order operator {name}\nimport the module that defines it first")
    return operator


def handled_types(value: Any) -> Sequence[type]:
    """Return the classes with a handler among the Tensors in a value: subclasses first, then from left to right."""
    found: list[type] = []
    for leaf in tree_leaves(value):
        cls = type(leaf)
        if isinstance(leaf, Tensor) and leaf.dispatches_to_python and cls not in found:
            place = next((i for i, other in enumerate(found) if issubclass(cls, other)), len(found))
            found.insert(place, cls)
    return found


def _with_new_values(interpreter: Interpreter, result: Any, leaves: list[Any]) -> Any:
    """Wrap new Tensors in the result of a call that involved no values of an interpreter as its values."""

    def of_leaf(leaf: Any) -> Any:
        is_new = isinstance(leaf, Tensor) and not any(leaf is argument for argument in leaves)
        return _core.own_value_at(interpreter, leaf) if is_new else leaf

    return result if type(result) is np.ndarray else tree_map(of_leaf, result)


def _call(rule: Rule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return rule(*args, **kwargs)


def _rule(place: Any) -> str:
    return f"the rule for {_described(place)}"


def _described(place: Any) -> str:
    return str(place.name) if isinstance(place, DispatchKey) else f"class {place.__name__}"
